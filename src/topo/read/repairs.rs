//! [`Repairs`]: what a reader tells, bounded in number and length whatever the file.

use super::{Position, Repair};
use crate::topo::words;

/// Repairs that are kept, and bytes that are kept of one.
const MOST: usize = 1000;
pub(super) const BYTES: usize = 1000;

#[derive(Debug, Default)]
pub(super) struct Repairs {
    kept: Vec<Repair>,
    more: usize,
}

impl Repairs {
    pub(super) fn tell(&mut self, at: Position, what: impl Into<String>) {
        if self.kept.len() == MOST {
            self.more += 1;
            return;
        }
        let what = words::cut(what.into(), BYTES);
        self.kept.push(Repair { at, what });
    }

    /// All in the order of their positions; last, how many there were besides.
    pub(super) fn done(mut self) -> Vec<Repair> {
        self.kept.sort_by_key(|repair| repair.at);
        if self.more > 0 {
            self.kept.push(Repair {
                at: Position::NONE,
                what: format!("and {} more", self.more),
            });
        }
        self.kept
    }
}
