//! What each collective means: which blocks a rank's input has, and what each block of its output must contain.
//!
//! The vector of a call has its blocks numbered alike on all ranks, in the input and in the output. Where a rank has a part
//! of them only (its own block of a gather's input, say), the others are not there: a schedule neither reads nor stores
//! them.
//!
//! The V forms mean what the plain ones mean; their blocks are not equally long.
//!
//! A barrier is an all-reduce whose values nobody looks at: a rank that holds everybody's contribution knows that everybody
//! has arrived.

use crate::types::Collective;
use std::ops::Range;

/// What a block of a rank's output must hold when the collective is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Block `block` of every rank exactly once, reduced and finished.
    ReductionOf { block: usize },
    /// Block `block` of rank `rank`, as it was.
    CopyOf { rank: usize, block: usize },
}

/// The blocks of a vector of `blocks` that `rank`'s input has.
pub(crate) fn input(collective: Collective, rank: usize, blocks: usize) -> Range<usize> {
    let at = |root: u32| rank == root as usize;
    match collective {
        Collective::AllReduce
        | Collective::Barrier
        | Collective::Reduce { .. }
        | Collective::ReduceScatter
        | Collective::ReduceScatterV
        | Collective::AlltoAll
        | Collective::AlltoAllV => 0..blocks,
        Collective::Broadcast { root } | Collective::Scatter { root } | Collective::ScatterV { root }
            if at(root) =>
        {
            0..blocks
        }
        Collective::Broadcast { .. } | Collective::Scatter { .. } | Collective::ScatterV { .. } => 0..0,
        Collective::AllGather
        | Collective::AllGatherV
        | Collective::Gather { .. }
        | Collective::GatherV { .. } => rank..rank + 1,
    }
}

/// The blocks of a vector of `blocks` that `rank`'s output has.
pub(crate) fn output(collective: Collective, rank: usize, blocks: usize) -> Range<usize> {
    let at = |root: u32| rank == root as usize;
    match collective {
        Collective::AllReduce
        | Collective::Barrier
        | Collective::Broadcast { .. }
        | Collective::AllGather
        | Collective::AllGatherV
        | Collective::AlltoAll
        | Collective::AlltoAllV => 0..blocks,
        Collective::Reduce { root } | Collective::Gather { root } | Collective::GatherV { root }
            if at(root) =>
        {
            0..blocks
        }
        Collective::Reduce { .. } | Collective::Gather { .. } | Collective::GatherV { .. } => 0..0,
        Collective::ReduceScatter
        | Collective::ReduceScatterV
        | Collective::Scatter { .. }
        | Collective::ScatterV { .. } => rank..rank + 1,
    }
}

/// What `block` of `rank`'s output, which it has, must hold at the end.
pub(crate) fn wanted(collective: Collective, rank: usize, block: usize) -> Wanted {
    match collective {
        Collective::AllReduce
        | Collective::Barrier
        | Collective::Reduce { .. }
        | Collective::ReduceScatter
        | Collective::ReduceScatterV => Wanted::ReductionOf { block },
        Collective::Broadcast { root } | Collective::Scatter { root } | Collective::ScatterV { root } => {
            Wanted::CopyOf {
                rank: root as usize,
                block,
            }
        }
        Collective::AllGather
        | Collective::AllGatherV
        | Collective::Gather { .. }
        | Collective::GatherV { .. } => Wanted::CopyOf { rank: block, block },
        Collective::AlltoAll | Collective::AlltoAllV => Wanted::CopyOf {
            rank: block,
            block: rank,
        },
    }
}

/// The elements of a call's vector that a rank's buffers hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) input: Range<usize>,
    pub(crate) output: Range<usize>,
}

/// Elements of the whole vector of a call with this count, if that is a number.
pub(crate) fn total(collective: Collective, ranks: usize, count: usize) -> Option<usize> {
    match collective.has_blocks() {
        true => count.checked_mul(ranks),
        false => Some(count),
    }
}

/// What `rank` holds in a call whose vector has a [`total`].
#[inline]
pub(crate) fn held(collective: Collective, ranks: usize, rank: usize, count: usize) -> Held {
    let blocks = if collective.has_blocks() { ranks } else { 1 };
    let elements = |blocks: Range<usize>| match blocks.is_empty() {
        true => 0..0,
        false => blocks.start * count..blocks.end * count,
    };
    Held {
        input: elements(input(collective, rank, blocks)),
        output: elements(output(collective, rank, blocks)),
    }
}

/// Whether all blocks are equally long, so that what comes from one may lie where another belongs.
pub(crate) fn has_equal_blocks(collective: Collective) -> bool {
    collective.has_blocks() && !collective.has_given_blocks()
}

/// What turns algorithm bandwidth into bus bandwidth: the traffic per rank that a collective cannot do without, in
/// vectors. Bus bandwidth is comparable with what the memory or the wire can carry, whatever the number of ranks.
///
/// Source: nccl-tests, `doc/PERFORMANCE.md`.
#[cfg(feature = "cli")]
pub(crate) fn bus_factor(collective: Collective, ranks: usize) -> f64 {
    match collective {
        Collective::AllReduce => 2.0 * (ranks as f64 - 1.0) / ranks as f64,
        Collective::Broadcast { .. } | Collective::Reduce { .. } => 1.0,
        Collective::AllGather
        | Collective::ReduceScatter
        | Collective::Gather { .. }
        | Collective::Scatter { .. }
        | Collective::AlltoAll
        | Collective::AllGatherV
        | Collective::ReduceScatterV
        | Collective::GatherV { .. }
        | Collective::ScatterV { .. }
        | Collective::AlltoAllV => (ranks as f64 - 1.0) / ranks as f64,
        Collective::Barrier => 0.0,
    }
}

/// Every collective, with each of these roots where it has one.
pub(crate) fn every(roots: impl IntoIterator<Item = usize>) -> Vec<Collective> {
    let rooted = roots.into_iter().flat_map(|root| {
        let root = root as u32;
        [
            Collective::Broadcast { root },
            Collective::Reduce { root },
            Collective::Gather { root },
            Collective::Scatter { root },
            Collective::GatherV { root },
            Collective::ScatterV { root },
        ]
    });
    [
        Collective::AllReduce,
        Collective::Barrier,
        Collective::AllGather,
        Collective::ReduceScatter,
        Collective::AlltoAll,
        Collective::AllGatherV,
        Collective::ReduceScatterV,
        Collective::AlltoAllV,
    ]
    .into_iter()
    .chain(rooted)
    .collect()
}
