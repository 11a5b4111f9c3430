//! Where the messages of a lane lie: a ring of bytes at the sender, and one like it at the receiver.
//!
//! A message lies at the same place in both. Each begins with a line at whose end its head is, so that head and body are one piece
//! of memory and one write; the place goes along in the write's immediate, as the sender alone knows where the ring begins anew.

use super::DEPTH;
use crate::{
    mem::Region,
    transport::{Header, LANES, MAX_MESSAGE},
};
use smallvec::SmallVec;

/// Bytes of the line before a body.
pub(super) const LINE: usize = 64;

/// Bytes of a lane's ring: two of the longest messages, and some short ones.
pub(super) const RING: usize = (2 * (LINE + MAX_MESSAGE)).next_multiple_of(4096) + (8 << 10);

/// Bytes of a ring of which the sender need not hear that they are free: wherever they lie, there is a piece beside them in which
/// the longest message fits.
pub(super) const SLACK: usize = RING - 2 * (LINE + MAX_MESSAGE);

/// What stands before a body: its length, the message's number and the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) len: u32,
    pub(super) number: u32,
    pub(super) header: Header,
}

impl Head {
    pub(super) const LEN: usize = 24;

    pub(super) fn encode(&self) -> [u8; Head::LEN] {
        let Head { len, number, header } = *self;
        let words = [len, number, header[0], header[1], header[2], header[3]];
        let mut bytes = [0; Head::LEN];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8; Head::LEN]) -> Head {
        let word = |i: usize| {
            u32::from_le_bytes([bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]])
        };
        Head {
            len: word(0),
            number: word(1),
            header: [word(2), word(3), word(4), word(5)],
        }
    }
}

/// The head and body of a message that lies at `at` in a ring.
pub(super) fn whole(at: usize, len: usize) -> (usize, usize) {
    (at + LINE - Head::LEN, Head::LEN + len)
}

/// The body in a ring, if it fits there.
pub(super) fn body<'r>(ring: &Region<'r>, at: usize, len: usize) -> Option<Region<'r>> {
    ring.get(at + LINE, len)
}

/// Bytes of a ring that a message takes.
pub(super) fn taken(len: usize) -> usize {
    LINE + len.next_multiple_of(LINE)
}

/// The places of a lane's messages that are under way, in their order.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Places {
    /// From where to where message k reaches, at k modulo [`DEPTH`].
    places: [(u32, u32); DEPTH],
}

impl Places {
    /// A place for the message `next`, of `len` bytes, where `oldest` is the first one whose place is not free yet; `None` if there
    /// is none.
    pub(super) fn find(&self, oldest: u32, next: u32, len: usize) -> Option<usize> {
        if oldest == next {
            return Some(0); // what was used last is in a cache
        }
        if next.wrapping_sub(oldest) as usize >= DEPTH {
            return None;
        }
        let (tail, _) = self.places[oldest as usize % DEPTH];
        let (_, head) = self.places[next.wrapping_sub(1) as usize % DEPTH];
        let (tail, head, wanted) = (tail as usize, head as usize, taken(len));
        match head > tail {
            true if RING - head >= wanted => Some(head),
            true if tail >= wanted => Some(0),
            false if tail - head >= wanted => Some(head),
            _ => None,
        }
    }

    /// The message `number` lies there.
    pub(super) fn set(&mut self, number: u32, at: usize, len: usize) {
        self.places[number as usize % DEPTH] = (at as u32, (at + taken(len)) as u32);
    }
}

/// Where a receiver wants its next message of a lane, if it is the one that is meant: what it writes onto the sender's desk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) number: u32,
    pub(super) len: u32,
    pub(super) header: Header,
    pub(super) place: Place,
}

/// Memory of this rank's that the other one writes into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) address: u64,
    /// By the connection on which it is written.
    pub(super) keys: SmallVec<[u64; 2]>,
}

impl Wanted {
    /// Bytes of the longest one, and from one to the next on a desk.
    pub(super) const ROOM: usize = 128;

    pub(super) fn encode(&self) -> Vec<u8> {
        let Wanted {
            number,
            len,
            header,
            place,
        } = self;
        let words = [*number, *len].into_iter().chain(*header);
        let mut bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        bytes.extend(place.address.to_le_bytes());
        bytes.extend(place.keys.iter().flat_map(|key| key.to_le_bytes()));
        bytes
    }

    /// What was said by one with so many connections.
    pub(super) fn decode(bytes: &[u8; Wanted::ROOM], ends: usize) -> Wanted {
        let (head, keys) = bytes.split_at(Wanted::HEAD);
        let word =
            |i: usize| u32::from_le_bytes([head[4 * i], head[4 * i + 1], head[4 * i + 2], head[4 * i + 3]]);
        let long = |bytes: &[u8]| {
            bytes
                .iter()
                .rev()
                .fold(0, |all, &byte| all << 8 | u64::from(byte))
        };
        Wanted {
            number: word(0),
            len: word(1),
            header: [word(2), word(3), word(4), word(5)],
            place: Place {
                address: long(&head[24..]),
                keys: keys.chunks_exact(8).take(ends).map(long).collect(),
            },
        }
    }

    const HEAD: usize = 32;
}

/// Where on a desk the wish for a message stands.
pub(super) fn on_desk(lane: usize, number: u32) -> usize {
    (lane * DEPTH + number as usize % DEPTH) * Wanted::ROOM
}

/// Bytes of a sender's desk.
pub(super) const DESK: usize = LANES * DEPTH * Wanted::ROOM;
const _: () = assert!(Wanted::HEAD + 8 * super::MAX_ENDS <= Wanted::ROOM);

/// What the immediate of a write says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// A message of a lane is there, at that place of its ring. Of its number there are the last [`NUMBER_BITS`] bits.
    Message { lane: usize, at: usize, number: u32 },
    /// A message of a lane is there, where its receiver had wanted it.
    Landed { lane: usize, number: u32 },
    /// So many messages of a lane, modulo 2^16, have been released.
    Credit { lane: usize, released: u16 },
    /// Where a lane's message is wanted stands on its sender's [desk](Wanted). Of its number there are the last 16 bits.
    Wanted { lane: usize, number: u16 },
}

impl Word {
    pub(super) fn encode(self) -> u32 {
        match self {
            Word::Message { lane, at, number } => {
                let number = number & ((1 << NUMBER_BITS) - 1);
                (lane as u32) << 27 | number << PLACE_BITS | (at / LINE) as u32
            }
            Word::Landed { lane, number } => {
                let number = number & ((1 << NUMBER_BITS) - 1);
                (lane as u32) << 27 | number << PLACE_BITS | LANDED
            }
            Word::Credit { lane, released } => 1 << 31 | (lane as u32) << 27 | u32::from(released),
            Word::Wanted { lane, number } => 1 << 31 | (lane as u32) << 27 | 1 << 16 | u32::from(number),
        }
    }

    /// What no rank of this version would say is `None`.
    pub(super) fn decode(word: u32) -> Option<Word> {
        let lane = (word >> 27 & 0xf) as usize;
        if lane >= LANES {
            return None;
        }
        if word >> 31 == 1 {
            return match word >> 16 & 0x7ff {
                0 => Some(Word::Credit {
                    lane,
                    released: word as u16,
                }),
                1 => Some(Word::Wanted {
                    lane,
                    number: word as u16,
                }),
                _ => None,
            };
        }
        let place = word & ((1 << PLACE_BITS) - 1);
        let number = word >> PLACE_BITS & ((1 << NUMBER_BITS) - 1);
        if place == LANDED {
            return Some(Word::Landed { lane, number });
        }
        let at = place as usize * LINE;
        (at + LINE <= RING).then_some(Word::Message { lane, at, number })
    }
}

const PLACE_BITS: u32 = 14;
pub(super) const NUMBER_BITS: u32 = 13;
/// Stands for a place where no message of a ring begins.
const LANDED: u32 = (1 << PLACE_BITS) - 1;
const _: () = assert!(LANES <= 16 && RING / LINE < LANDED as usize && PLACE_BITS + NUMBER_BITS == 27);
const _: () = assert!(Head::LEN <= LINE && RING.is_multiple_of(LINE));

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_and_heads_round_trip(lane in 0..LANES, line in 0..RING / LINE, number: u32, len: u32, header: Header) {
            let head = Head { len, number, header };
            prop_assert_eq!(Head::decode(&head.encode()), head);
            let number = number & ((1 << NUMBER_BITS) - 1);
            let short = number as u16;
            for word in [Word::Message { lane, at: line * LINE, number }, Word::Landed { lane, number },
                         Word::Credit { lane, released: short }, Word::Wanted { lane, number: short }] {
                prop_assert_eq!(Word::decode(word.encode()), Some(word));
            }
        }

        #[test]
        fn wishes_round_trip(number: u32, len: u32, header: Header, address: u64,
                             keys in prop::collection::vec(0u64.., 1..=crate::transport::plugin::MAX_ENDS)) {
            let place = Place { address, keys: keys.into() };
            let wanted = Wanted { number, len, header, place };
            let mut bytes = [0; Wanted::ROOM];
            let said = wanted.encode();
            bytes[..said.len()].copy_from_slice(&said);
            prop_assert_eq!(Wanted::decode(&bytes, wanted.place.keys.len()), wanted);
        }

        #[test]
        fn any_word_is_within_bounds_or_none(word: u32) {
            if let Some(known) = Word::decode(word) {
                prop_assert_eq!(known.encode(), word);
            }
        }

        /// Messages under way never share bytes, each fits, and one finds a place when all before it are gone.
        #[test]
        fn places_of_messages_under_way_are_apart(steps: Vec<(bool, usize)>) {
            let (mut places, mut lies) = (Places::default(), std::collections::VecDeque::new());
            let (mut oldest, mut next) = (0u32, 0u32);
            for (send, len) in steps {
                let len = len % (MAX_MESSAGE + 1);
                if send {
                    let found = places.find(oldest, next, len);
                    prop_assert!(found.is_some() || oldest != next);
                    let Some(at) = found else { continue };
                    let end = at + LINE + len;
                    prop_assert!(at % LINE == 0 && end <= RING);
                    prop_assert!(lies.iter().all(|&(a, b)| end <= a || b <= at));
                    places.set(next, at, len);
                    lies.push_back((at, end));
                    next += 1;
                } else if lies.pop_front().is_some() {
                    oldest += 1;
                }
                // Were all but the last few bytes free, the longest would fit.
                let (mut from, mut bytes) = (next, 0);
                for (a, b) in lies.iter().rev() {
                    bytes += taken(b - a - LINE);
                    if bytes > SLACK || from == oldest { break }
                    from -= 1;
                }
                if (next - from) < DEPTH as u32 {
                    prop_assert!(places.find(from, next, MAX_MESSAGE).is_some());
                }
            }
        }
    }
}
