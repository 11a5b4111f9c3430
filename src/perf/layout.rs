//! [`Layout`]: the blocks of a call's vector that a rank has, and where in its buffers they lie.
//!
//! How many blocks the vector has is told by [`Operation::blocks`]. What each rank brings and gets is said once more here,
//! and not taken from the planner, so that a mistake there shows.

use super::{operation::Operation, report::Placement, skew::Skew};
use crate::types::Collective;
use std::ops::Range;

/// The rank and the block of its input that `block` of `rank`'s output is a copy of, in a call between `ranks` ranks; nothing
/// where it is the reduction of this block of all ranks.
pub(super) fn origin(
    operation: Operation,
    ranks: usize,
    rank: usize,
    block: usize,
) -> Option<(usize, usize)> {
    let collective = match operation {
        Operation::Collective(collective) => collective,
        Operation::SendRecv => return Some(((rank + ranks - 1) % ranks, block)),
    };
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
        (operation, skew): (Operation, Skew),
        ranks: usize,
        rank: usize,
        placement: Placement,
        count: usize,
    ) -> Layout {
        let (all, own) = (0..operation.blocks(ranks), rank..rank + 1);
        let at_root = match operation.root() == Some(rank as u32) {
            true => all.clone(),
            false => 0..0,
        };
        let (input, output) = match operation {
            Operation::SendRecv => (all.clone(), all),
            Operation::Collective(collective) => match collective {
                Collective::AllReduce
                | Collective::Barrier
                | Collective::AlltoAll
                | Collective::AlltoAllV => (all.clone(), all),
                Collective::Broadcast { .. } => (at_root, all),
                Collective::Reduce { .. } => (all, at_root),
                Collective::AllGather | Collective::AllGatherV => (own, all),
                Collective::ReduceScatter | Collective::ReduceScatterV => (all, own),
                Collective::Gather { .. } | Collective::GatherV { .. } => (own, at_root),
                Collective::Scatter { .. } | Collective::ScatterV { .. } => (at_root, own),
            },
        };
        let (send, recv) = match placement {
            Placement::OutOfPlace => (input.clone(), output.clone()),
            // One of the two lies within the other.
            Placement::InPlace if input.len() > output.len() => (0..0, input.clone()),
            Placement::InPlace => (0..0, output.clone()),
        };
        let lengths = skew.lengths(operation, ranks, count);
        let whole = |blocks: Range<usize>, is_sent: bool| {
            let length = |block: usize| match (operation.collective(), is_sent) {
                (Some(Collective::AlltoAllV), true) => lengths[rank * ranks + block],
                (Some(Collective::AlltoAllV), false) => lengths[block * ranks + rank],
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

    /// The buffer in which the input lies.
    pub(super) fn sent(&self) -> &Whole {
        match self.has_one_buffer() {
            true => &self.recv,
            false => &self.send,
        }
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

    const RANKS: usize = 4;

    fn layout(operation: Operation, rank: usize, placement: Placement) -> Layout {
        Layout::new((operation, Skew::Hot), RANKS, rank, placement, 10)
    }

    fn layouts(placement: Placement) -> impl Iterator<Item = (Operation, usize, Layout)> {
        let each = move |operation| {
            (0..RANKS).map(move |rank| (operation, rank, layout(operation, rank, placement)))
        };
        let has_placement =
            move |operation: &Operation| placement == Placement::OutOfPlace || operation.has_form_in_place();
        Operation::all().filter(has_placement).flat_map(each)
    }

    #[test]
    fn in_place_one_buffer_has_the_input_and_the_output() {
        for (operation, rank, layout) in layouts(Placement::InPlace) {
            assert!(layout.send.len() == 0 && layout.has_one_buffer(), "{operation:?}");
            for part in [&layout.input, &layout.output] {
                assert!(
                    part.clone().all(|block| layout.recv.blocks.contains(&block)),
                    "{operation:?} rank {rank}: {layout:?}"
                );
            }
        }
    }

    #[test]
    fn what_is_copied_was_there() {
        for (operation, rank, layout) in layouts(Placement::OutOfPlace) {
            for (block, at) in layout.recv.blocks() {
                let Some((from, sent)) = origin(operation, RANKS, rank, block) else {
                    continue;
                };
                let there = self::layout(operation, from, Placement::OutOfPlace).send;
                let is_there =
                    |(other, place): (usize, Range<usize>)| other == sent && place.len() == at.len();
                assert!(
                    there.blocks().any(is_there),
                    "{operation:?} rank {rank} block {block}"
                );
            }
        }
    }

    #[test]
    fn messages_come_from_the_rank_before() {
        for (ranks, rank, from) in [(1, 0, 0), (2, 0, 1), (2, 1, 0), (5, 0, 4), (5, 3, 2)] {
            assert_eq!(origin(Operation::SendRecv, ranks, rank, 0), Some((from, 0)));
        }
    }

    #[test]
    fn parts_are_counted_from_their_buffer_s_begin() {
        let own = layout(
            Operation::Collective(Collective::AllGather),
            2,
            Placement::OutOfPlace,
        );
        assert_eq!(own.send.within(&own.input), 0..10);
        assert_eq!(own.recv.within(&own.output), 0..40);
        let own = layout(
            Operation::Collective(Collective::AllGather),
            2,
            Placement::InPlace,
        );
        assert_eq!(own.recv.within(&own.input), 20..30);
        let own = layout(
            Operation::Collective(Collective::AllGatherV),
            2,
            Placement::InPlace,
        );
        assert_eq!((own.recv.within(&own.input), own.recv.len()), (33..36, 40));
        let other = layout(
            Operation::Collective(Collective::Gather { root: 0 }),
            2,
            Placement::InPlace,
        );
        assert_eq!(other.recv.within(&other.input), 0..10);
        assert_eq!(other.recv.within(&other.output), 0..0);
    }
}
