//! [`Repairs`]: what a reader tells of a text, bounded however long the text is.

use super::{Position, Repair};
use crate::topo::words::cut;

/// Repairs in the order in which they are told; of many only the first are kept.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    kept: Vec<Repair>,
    more: usize,
}

impl Repairs {
    pub(super) fn tell(&mut self, at: Position, what: impl Into<String>) {
        if self.kept.len() < MOST {
            let what = cut(&what.into(), LONGEST).into_owned();
            self.kept.push(Repair { at, what });
        } else {
            self.more += 1;
        }
    }

    /// In the order of positions.
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

/// Repairs that are kept, and characters of each.
const MOST: usize = 1000;
const LONGEST: usize = 400;
