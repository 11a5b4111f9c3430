//! What each collective means: what its input blocks hold and what each output block must contain.
//!
//! A barrier is an all-reduce whose values nobody looks at: a rank that holds everybody's contribution knows that everybody
//! has arrived.

use crate::types::Collective;

/// What a block of a rank's output must hold when the collective is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Block `block` of every rank exactly once, reduced and finished.
    ReductionOf { block: usize },
    /// Block `block` of rank `rank`, as it was.
    CopyOf { rank: usize, block: usize },
}

/// Whether `rank`'s input buffer holds data when `collective` begins. A schedule reads no other.
pub(crate) fn has_input(collective: Collective, rank: usize) -> bool {
    match collective {
        Collective::AllReduce | Collective::Barrier => true,
        Collective::Broadcast { root } => rank == root as usize,
    }
}

/// What `block` of `rank`'s output must hold at the end.
pub(crate) fn wanted(collective: Collective, _rank: usize, block: usize) -> Wanted {
    match collective {
        Collective::AllReduce | Collective::Barrier => Wanted::ReductionOf { block },
        Collective::Broadcast { root } => Wanted::CopyOf {
            rank: root as usize,
            block,
        },
    }
}
