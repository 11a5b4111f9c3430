//! What ranks say to each other about a message, in the header of a lane's.

use crate::{transport::Header, types::DType};

/// What a message is, without its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Envelope {
    pub(super) tag: i32,
    pub(super) dtype: DType,
    /// Elements.
    pub(super) count: u64,
}

/// Something said on the control lane of a link, or the beginning of a piece of data on the data lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// A message whose data is the body.
    Here(Envelope),
    /// A message whose data stays with the sender until it is wanted. The body is its number.
    There(Envelope),
    /// The receiver of message `id` has a place for it.
    Wanted { id: u32 },
    /// The receiver has handed on this many messages of the first kind.
    Taken { messages: u32 },
    /// The next piece of message `id`.
    Piece { id: u32 },
    /// The data of message `id`, which was short and could not be kept when it was announced, is the body.
    Late { id: u32 },
}

impl Word {
    pub(super) fn header(self) -> Header {
        let envelope = |kind: u32, Envelope { tag, dtype, count }: Envelope| {
            [
                kind | (dtype as u32) << 8,
                tag.cast_unsigned(),
                count as u32,
                (count >> 32) as u32,
            ]
        };
        match self {
            Word::Here(of) => envelope(0, of),
            Word::There(of) => envelope(1, of),
            Word::Wanted { id } => [2, id, 0, 0],
            Word::Taken { messages } => [3, messages, 0, 0],
            Word::Piece { id } => [4, id, 0, 0],
            Word::Late { id } => [5, id, 0, 0],
        }
    }

    /// What a header says, if it says anything.
    pub(super) fn of([what, second, low, high]: Header) -> Option<Word> {
        let envelope = || {
            let dtype = DType::from_number((what >> 8) as i32).ok()?;
            let count = u64::from(low) | u64::from(high) << 32;
            // What no memory holds is nonsense.
            let bytes = count.checked_mul(dtype.size() as u64)?;
            isize::try_from(bytes).ok()?;
            Some(Envelope {
                tag: second.cast_signed(),
                dtype,
                count,
            })
        };
        Some(match what & 0xff {
            0 => Word::Here(envelope()?),
            1 => Word::There(envelope()?),
            2 => Word::Wanted { id: second },
            3 => Word::Taken { messages: second },
            4 => Word::Piece { id: second },
            5 => Word::Late { id: second },
            _ => return None,
        })
    }
}

impl Envelope {
    pub(super) fn bytes(&self) -> usize {
        self.count as usize * self.dtype.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_round_trip(tag: i32, count in 0u64..1 << 59, dtype in 0i32..14, id: u32) {
            let envelope = Envelope { tag, count, dtype: DType::from_number(dtype).unwrap() };
            let words = [
                Word::Here(envelope), Word::There(envelope), Word::Wanted { id }, Word::Taken { messages: id },
                Word::Piece { id }, Word::Late { id },
            ];
            for word in words {
                prop_assert_eq!(Word::of(word.header()), Some(word));
            }
        }

        #[test]
        fn nonsense_is_told(header: Header) {
            if let Some(word) = Word::of(header) {
                let again = Word::of(word.header());
                prop_assert_eq!(again, Some(word));
            }
        }
    }
}
