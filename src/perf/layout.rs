//! [`Layout`]: the blocks of a call's vector that a rank has, and where in its buffers they lie.
//!
//! The vector has a block for each rank where the collective has blocks ([`Collective::has_blocks`]), and else one. What
//! each rank brings and gets is said once more here, and not taken from the planner, so that a mistake there shows.

use super::{report::Placement, skew::Skew};
use crate::types::Collective;
use std::ops::Range;

/// How many blocks the vector of a call between `ranks` ranks has.
pub(super) fn blocks(collective: Collective, ranks: usize) -> usize {
    if collective.has_blocks() { ranks } else { 1 }
}

/// The rank and the block of its input that `block` of `rank`'s output is a copy of; nothing where it is the reduction of
/// this block of all ranks.
pub(super) fn origin(collective: Collective, rank: usize, block: usize) -> Option<(usize, usize)> {
    match collective {
        Collective::AllReduce
        | Collective::Reduce { .. }
        | Collective::ReduceScatter
        | Collective::ReduceScatterV
        | Collective::Barrier => None,
        Collective::Broadcast { root } | Collective::Scatter { root } | Collective::ScatterV { root } => {
            Some((root as usize, block))
        }
        Collective::AllGather
        | Collective::AllGatherV
        | Collective::Gather { .. }
        | Collective::GatherV { .. } => Some((block, block)),
        Collective::AlltoAll | Collective::AlltoAllV => Some((block, rank)),
    }
}

/// A rank's part in a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    /// The blocks that it brings.
    pub(super) input: Range<usize>,
    /// The blocks that it gets.
    pub(super) output: Range<usize>,
    /// What its send buffer consists of: the input, or nothing in place.
    pub(super) send: Whole,
    /// What its receive buffer consists of: the output, and the input too in place.
    pub(super) recv: Whole,
}

/// What a buffer consists of: blocks, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Whole {
    blocks: Range<usize>,
    /// Elements of each.
    pub(super) counts: Vec<usize>,
    /// The element of the buffer where each begins.
    pub(super) displs: Vec<usize>,
}

impl Layout {
    /// With blocks of `count` elements, or of as many in the mean and as unequal as `skew` says.
    pub(super) fn new(
        (collective, skew): (Collective, Skew),
        ranks: usize,
        rank: usize,
        placement: Placement,
        count: usize,
    ) -> Layout {
        let (all, own) = (0..blocks(collective, ranks), rank..rank + 1);
        let at_root = match collective.root() == Some(rank as u32) {
            true => all.clone(),
            false => 0..0,
        };
        let (input, output) = match collective {
            Collective::AllReduce | Collective::Barrier | Collective::AlltoAll | Collective::AlltoAllV => {
                (all.clone(), all)
            }
            Collective::Broadcast { .. } => (at_root, all),
            Collective::Reduce { .. } => (all, at_root),
            Collective::AllGather | Collective::AllGatherV => (own, all),
            Collective::ReduceScatter | Collective::ReduceScatterV => (all, own),
            Collective::Gather { .. } | Collective::GatherV { .. } => (own, at_root),
            Collective::Scatter { .. } | Collective::ScatterV { .. } => (at_root, own),
        };
        let (send, recv) = match placement {
            Placement::OutOfPlace => (input.clone(), output.clone()),
            // One of the two lies within the other.
            Placement::InPlace if input.len() > output.len() => (0..0, input.clone()),
            Placement::InPlace => (0..0, output.clone()),
        };
        let lengths = skew.lengths(collective, ranks, count);
        let whole = |blocks: Range<usize>, is_sent: bool| {
            let length = |block: usize| match (collective, is_sent) {
                (Collective::AlltoAllV, true) => lengths[rank * ranks + block],
                (Collective::AlltoAllV, false) => lengths[block * ranks + rank],
                _ => lengths[block],
            };
            Whole::of(blocks, length)
        };
        Layout {
            input,
            output,
            send: whole(send, true),
            recv: whole(recv, false),
        }
    }

    /// Whether the input, where there is any, lies in the receive buffer.
    pub(super) fn has_one_buffer(&self) -> bool {
        self.send.blocks.is_empty()
    }
}

impl Whole {
    fn of(blocks: Range<usize>, length: impl Fn(usize) -> usize) -> Self {
        let counts: Vec<usize> = blocks.clone().map(length).collect();
        let mut end = 0;
        let begin = |count: &usize| {
            end += count;
            end - count
        };
        Whole {
            blocks,
            displs: counts.iter().map(begin).collect(),
            counts,
        }
    }

    /// Elements of the buffer.
    pub(super) fn len(&self) -> usize {
        self.counts.iter().sum()
    }

    /// Each block: its number, and its elements in the buffer.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        let places = self.displs.iter().zip(&self.counts);
        self.blocks
            .clone()
            .zip(places.map(|(begin, count)| *begin..begin + count))
    }

    /// The elements of the buffer that the blocks `part` are.
    pub(super) fn within(&self, part: &Range<usize>) -> Range<usize> {
        if part.is_empty() {
            return 0..0;
        }
        let (first, last) = (part.start - self.blocks.start, part.end - 1 - self.blocks.start);
        self.displs[first]..self.displs[last] + self.counts[last]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::args::OPERATIONS;

    const RANKS: usize = 4;

    fn layout(collective: Collective, rank: usize, placement: Placement) -> Layout {
        Layout::new((collective, Skew::Hot), RANKS, rank, placement, 10)
    }

    fn layouts(placement: Placement) -> impl Iterator<Item = (Collective, usize, Layout)> {
        let each = move |collective| {
            (0..RANKS).map(move |rank| (collective, rank, layout(collective, rank, placement)))
        };
        let has_placement = move |collective: &Collective| {
            placement == Placement::OutOfPlace || *collective != Collective::AlltoAllV
        };
        OPERATIONS.into_iter().filter(has_placement).flat_map(each)
    }

    #[test]
    fn in_place_one_buffer_has_the_input_and_the_output() {
        for (collective, rank, layout) in layouts(Placement::InPlace) {
            assert!(
                layout.send.len() == 0 && layout.has_one_buffer(),
                "{collective:?}"
            );
            for part in [&layout.input, &layout.output] {
                assert!(
                    part.clone().all(|block| layout.recv.blocks.contains(&block)),
                    "{collective:?} rank {rank}: {layout:?}"
                );
            }
        }
    }

    #[test]
    fn what_is_copied_was_there() {
        for (collective, rank, layout) in layouts(Placement::OutOfPlace) {
            for (block, at) in layout.recv.blocks() {
                let Some((from, sent)) = origin(collective, rank, block) else {
                    continue;
                };
                let there = self::layout(collective, from, Placement::OutOfPlace).send;
                let is_there =
                    |(other, place): (usize, Range<usize>)| other == sent && place.len() == at.len();
                assert!(
                    there.blocks().any(is_there),
                    "{collective:?} rank {rank} block {block}"
                );
            }
        }
    }

    #[test]
    fn parts_are_counted_from_their_buffer_s_begin() {
        let own = layout(Collective::AllGather, 2, Placement::OutOfPlace);
        assert_eq!(own.send.within(&own.input), 0..10);
        assert_eq!(own.recv.within(&own.output), 0..40);
        let own = layout(Collective::AllGather, 2, Placement::InPlace);
        assert_eq!(own.recv.within(&own.input), 20..30);
        let own = layout(Collective::AllGatherV, 2, Placement::InPlace);
        assert_eq!((own.recv.within(&own.input), own.recv.len()), (35..37, 40));
        let other = layout(Collective::Gather { root: 0 }, 2, Placement::InPlace);
        assert_eq!(other.recv.within(&other.input), 0..10);
        assert_eq!(other.recv.within(&other.output), 0..0);
    }
}
