//! The lanes between channels of two ranks, and the messages in them.

use super::program::Cursor;
use super::value::Value;
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};

/// What a message says, grain by grain.
pub(super) type Values<S> = SmallVec<[Value<S>; 1]>;

/// A message on its way, and the send that it came from.
pub(super) struct Message<S> {
    pub(super) values: Values<S>,
    /// Where the sender was, and which of that step's sends it is.
    pub(super) cursor: Cursor,
    pub(super) send: usize,
    /// Whether the sender may not overwrite its data before it is taken.
    pub(super) lent: bool,
}

/// A first-in first-out queue from a channel of one rank to the same channel of another.
pub(super) struct Lane<S> {
    /// The channels at both ends, if those ranks have them.
    pub(super) from: Option<usize>,
    pub(super) to: Option<usize>,
    pub(super) queue: VecDeque<Message<S>>,
    /// The sender's and the receiver's last step that used it, by its number among those that they ran, and the index
    /// of the send or source.
    pub(super) last_send: (u64, usize),
    pub(super) last_take: (u64, usize),
}

/// All lanes, made when they are first used.
pub(super) struct Lanes<S> {
    numbers: Numbers,
    lanes: Vec<Lane<S>>,
}

/// The number of the lane with a key: a table where the keys are few, for speed.
enum Numbers {
    Few(Vec<Option<u32>>),
    Many(HashMap<usize, u32>),
}

/// At most so many keys are few.
const FEW: usize = 1 << 18;

impl<S> Lanes<S> {
    /// For keys below `keys`.
    pub(super) fn new(keys: usize) -> Self {
        Lanes {
            numbers: match keys <= FEW {
                true => Numbers::Few(vec![None; keys]),
                false => Numbers::Many(HashMap::new()),
            },
            lanes: Vec::new(),
        }
    }

    /// The number of the lane with this key.
    pub(super) fn number(
        &mut self,
        key: usize,
        ends: impl FnOnce() -> (Option<usize>, Option<usize>),
    ) -> usize {
        let lanes = &mut self.lanes;
        let make = || {
            let (from, to) = ends();
            lanes.push(Lane {
                from,
                to,
                queue: VecDeque::with_capacity(1),
                last_send: (0, 0),
                last_take: (0, 0),
            });
            lanes.len() as u32 - 1
        };
        let number = match &mut self.numbers {
            Numbers::Few(table) => *table[key].get_or_insert_with(make),
            Numbers::Many(map) => *map.entry(key).or_insert_with(make),
        };
        number as usize
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Lane<S>> {
        self.lanes.iter()
    }
}

impl<S> std::ops::Index<usize> for Lanes<S> {
    type Output = Lane<S>;
    fn index(&self, number: usize) -> &Lane<S> {
        &self.lanes[number]
    }
}

impl<S> std::ops::IndexMut<usize> for Lanes<S> {
    fn index_mut(&mut self, number: usize) -> &mut Lane<S> {
        &mut self.lanes[number]
    }
}
