//! [`Operation`]: what can be measured.

use crate::types::Collective;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A collective, or messages between neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Operation {
    Collective(Collective),
    /// Each rank sends a vector to the next one, the last to rank 0, and receives one from the rank before, both at once.
    SendRecv,
}

impl Operation {
    /// All that there are; the root, where there is one, is an argument of its own.
    pub(super) fn all() -> impl Iterator<Item = Operation> {
        let collectives = COLLECTIVES.into_iter().map(Operation::Collective);
        collectives.chain([Operation::SendRecv])
    }

    /// The name on the command line, in the table and in the files.
    pub(super) fn name(self) -> &'static str {
        match self {
            Operation::Collective(collective) => collective.name(),
            Operation::SendRecv => "sendrecv",
        }
    }

    /// The collective, which alone is planned and has algorithms.
    pub(super) fn collective(self) -> Option<Collective> {
        match self {
            Operation::Collective(collective) => Some(collective),
            Operation::SendRecv => None,
        }
    }

    /// See [`Collective::root`].
    pub(super) fn root(self) -> Option<u32> {
        self.collective()?.root()
    }

    /// How long a batch of calls must last at least.
    ///
    /// So long that reading the clock and being woken do not count; and where ranks do not wait for all others in each call,
    /// that those which are ahead have waited often, for many calls at once. With 8 ranks on 2 cores most samples of 50 us were of
    /// ranks that only went ahead, so that the median told nothing of what the calls took.
    pub(super) fn shortest_sample(self) -> Duration {
        match self.root() {
            None => Duration::from_micros(50),
            Some(_) => Duration::from_millis(1),
        }
    }

    /// See [`Collective::has_vector`].
    pub(super) fn has_vector(self) -> bool {
        self.collective().is_none_or(Collective::has_vector)
    }

    /// See [`Collective::reduces`].
    pub(super) fn reduces(self) -> bool {
        self.collective().is_some_and(Collective::reduces)
    }

    /// See [`Collective::has_given_blocks`].
    pub(super) fn has_given_blocks(self) -> bool {
        self.collective().is_some_and(Collective::has_given_blocks)
    }

    /// Whether its input and its output may lie in one buffer.
    pub(super) fn has_form_in_place(self) -> bool {
        !matches!(
            self,
            Operation::Collective(Collective::AlltoAllV) | Operation::SendRecv
        )
    }

    /// How many blocks the vector of a call between `ranks` ranks has: one for each rank where the collective has blocks
    /// ([`Collective::has_blocks`]), and else one.
    pub(super) fn blocks(self, ranks: usize) -> usize {
        match self.collective().is_some_and(Collective::has_blocks) {
            true => ranks,
            false => 1,
        }
    }
}

const COLLECTIVES: [Collective; 14] = [
    Collective::AllReduce,
    Collective::Broadcast { root: 0 },
    Collective::Reduce { root: 0 },
    Collective::AllGather,
    Collective::ReduceScatter,
    Collective::Gather { root: 0 },
    Collective::Scatter { root: 0 },
    Collective::AlltoAll,
    Collective::AllGatherV,
    Collective::ReduceScatterV,
    Collective::GatherV { root: 0 },
    Collective::ScatterV { root: 0 },
    Collective::AlltoAllV,
    Collective::Barrier,
];
