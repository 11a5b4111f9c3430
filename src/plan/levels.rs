//! What an algorithm of two levels does in a call, put together from what its stages do.

use super::cost::Counts;

/// What an algorithm does in a call at each of two levels: inside groups of ranks, and between them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Levels {
    pub(crate) inner: Counts,
    pub(crate) outer: Counts,
}

impl Levels {
    pub(crate) const ALONE: Levels = Levels {
        inner: Counts::ALONE,
        outer: Counts::ALONE,
    };

    /// What it does at both.
    pub(crate) fn together(&self) -> Counts {
        self.inner.then(&self.outer)
    }
}

impl Counts {
    /// This and then `next`.
    pub(crate) fn then(&self, next: &Counts) -> Counts {
        let mut sum = self.beside(next);
        sum.rounds = self.rounds + next.rounds;
        sum.lead = self.lead + next.lead;
        sum.moved = self.moved + next.moved;
        sum.busiest = self.busiest;
        sum.busiest.add(&next.busiest);
        sum
    }

    /// This and at the same time `other`, which other ranks do.
    pub(crate) fn beside(&self, other: &Counts) -> Counts {
        let mut sum = Counts {
            rounds: self.rounds.max(other.rounds),
            peers: self.peers.max(other.peers),
            message: self.message.max(other.message),
            lead: self.lead.max(other.lead),
            moved: self.moved.max(other.moved),
            general: self.general || other.general,
            ..*self
        };
        sum.busiest.raise_to(&other.busiest);
        sum.all.add(&other.all);
        sum
    }

    /// The same done by `teams` teams of ranks at once.
    pub(crate) fn times(&self, teams: usize) -> Counts {
        Counts {
            all: self.all.times(teams as f64),
            ..*self
        }
    }
}
