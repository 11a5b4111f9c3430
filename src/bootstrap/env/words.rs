//! What a rank and rank 0's door say to each other, as functions of bytes. Integers are little-endian.
//!
//! ```text
//! hello    magic (8), version (4), rank (4), ranks (4)
//! answer   magic (8), version (4), kind (4): 1 an id, 2 a refusal; length (4); so many bytes: the id, or a text
//! ```
//!
//! Both keep this form in all versions, so that each can tell that the other has another one.

use crate::bootstrap::UniqueId;
use zeroize::Zeroizing;

/// The first words of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) version: u32,
    pub(super) rank: u32,
    pub(super) ranks: u32,
}

impl Hello {
    pub(super) const LEN: usize = 20;

    pub(super) fn encode(&self) -> [u8; Hello::LEN] {
        let mut bytes = [0; Hello::LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.rank.to_le_bytes());
        bytes[16..].copy_from_slice(&self.ranks.to_le_bytes());
        bytes
    }

    /// `None`: it is not this protocol.
    pub(super) fn decode(bytes: &[u8; Hello::LEN]) -> Option<Hello> {
        (bytes[..8] == MAGIC).then(|| Hello {
            version: word(bytes, 8),
            rank: word(bytes, 12),
            ranks: word(bytes, 16),
        })
    }

    /// Why a rank that says `self` cannot have the id of rank 0, whose own hello is `ours`.
    pub(super) fn refusal(&self, ours: &Hello) -> Option<String> {
        let rank = self.rank;
        if self.version != ours.version {
            return Some(format!(
                "rank {rank}'s library speaks version {} of the protocol, rank 0's version {}: use the same version \
                 of ccl in all processes",
                self.version, ours.version
            ));
        }
        if self.ranks != ours.ranks {
            return Some(format!(
                "the ranks disagree on their number: rank 0 was told {}, rank {rank} was told {}",
                ours.ranks, self.ranks
            ));
        }
        None
    }
}

/// What the door answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Id(Zeroizing<[u8; UniqueId::LEN]>),
    Refused(String),
}

impl Answer {
    /// The most bytes of an answer.
    pub(super) const MOST: usize = HEAD + LONGEST_TEXT;

    pub(super) fn encode(&self, version: u32) -> Zeroizing<Vec<u8>> {
        let (kind, body): (u32, &[u8]) = match self {
            Answer::Id(id) => (ID, &**id),
            Answer::Refused(text) => (REFUSED, &text.as_bytes()[..text.len().min(LONGEST_TEXT)]),
        };
        let mut bytes = Zeroizing::new(Vec::with_capacity(HEAD + body.len()));
        bytes.extend(MAGIC);
        bytes.extend(version.to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(body);
        bytes
    }

    /// Reads what has come so far.
    pub(super) fn decode(bytes: &[u8]) -> Decoded {
        let Some(head) = bytes.first_chunk::<HEAD>() else {
            let same = bytes.iter().zip(&MAGIC).all(|(one, other)| one == other);
            return if same {
                Decoded::Unfinished
            } else {
                Decoded::Garbage
            };
        };
        let (kind, len) = (word(head, 12), word(head, 16) as usize);
        if head[..8] != MAGIC || len > LONGEST_TEXT {
            return Decoded::Garbage;
        }
        let Some(body) = bytes[HEAD..].get(..len) else {
            return Decoded::Unfinished;
        };
        match (kind, body.try_into()) {
            (ID, Ok(id)) => Decoded::Whole(Answer::Id(Zeroizing::new(id))),
            (REFUSED, _) => Decoded::Whole(Answer::Refused(String::from_utf8_lossy(body).into_owned())),
            _ => Decoded::Garbage,
        }
    }
}

/// What the bytes of an answer are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    Whole(Answer),
    /// More is to come.
    Unfinished,
    Garbage,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk());
    word.map_or(0, |&word| u32::from_le_bytes(word))
}

const MAGIC: [u8; 8] = *b"ccl\0env\0";
const HEAD: usize = 20;
const LONGEST_TEXT: usize = 512;
const ID: u32 = 1;
const REFUSED: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hellos_and_answers_round_trip() {
        let hello = Hello {
            version: 3,
            rank: 7,
            ranks: 9,
        };
        assert_eq!(Hello::decode(&hello.encode()), Some(hello));
        assert_eq!(Hello::decode(&[7; Hello::LEN]), None);
        for answer in [
            Answer::Id(Zeroizing::new([5; UniqueId::LEN])),
            Answer::Refused("no".into()),
            Answer::Refused(String::new()),
        ] {
            let bytes = answer.encode(3);
            assert!(bytes.len() <= Answer::MOST);
            for end in 0..bytes.len() {
                assert_eq!(Answer::decode(&bytes[..end]), Decoded::Unfinished, "{end}");
            }
            assert_eq!(Answer::decode(&bytes), Decoded::Whole(answer));
        }
        let long = Answer::Refused("long ".repeat(1000)).encode(3);
        assert_eq!(long.len(), Answer::MOST);
    }

    #[test]
    fn refusals_name_both_sides() {
        let ours = Hello {
            version: 1,
            rank: 0,
            ranks: 4,
        };
        assert_eq!(Hello { rank: 3, ..ours }.refusal(&ours), None);
        let text = Hello {
            rank: 3,
            ranks: 5,
            ..ours
        }
        .refusal(&ours)
        .unwrap();
        assert!(text.contains("rank 0 was told 4, rank 3 was told 5"), "{text}");
        let newer = Hello {
            rank: 3,
            version: 2,
            ..ours
        };
        let text = newer.refusal(&ours).unwrap();
        assert!(
            text.contains("rank 3's library speaks version 2") && text.contains("rank 0's version 1"),
            "{text}"
        );
    }

    proptest! {
        #[test]
        fn garbage_is_never_an_id(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(!matches!(Answer::decode(&bytes), Decoded::Whole(_)));
        }
    }
}
