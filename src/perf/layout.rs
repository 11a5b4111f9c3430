//! [`Layout`]: the blocks of a call's vector that a rank has, and which of its buffers they lie in.
//!
//! The vector has a block for each rank where the collective has blocks ([`Collective::has_blocks`]), and else one. What
//! each rank brings and gets is said once more here, and not taken from the planner, so that a mistake there shows.

use super::report::Placement;
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

/// A rank's part in a collective, in blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    /// What it brings.
    pub(super) input: Range<usize>,
    /// What it gets.
    pub(super) output: Range<usize>,
    /// What its send buffer consists of: the input, or nothing in place.
    pub(super) send: Range<usize>,
    /// What its receive buffer consists of: the output, and the input too in place.
    pub(super) recv: Range<usize>,
}

impl Layout {
    pub(super) fn new(collective: Collective, ranks: usize, rank: usize, placement: Placement) -> Layout {
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
        Layout {
            input,
            output,
            send,
            recv,
        }
    }

    /// Whether the input, where there is any, lies in the receive buffer.
    pub(super) fn has_one_buffer(&self) -> bool {
        self.send.is_empty()
    }
}

/// The blocks `part` of a buffer that consists of the blocks `whole`, as elements of that buffer.
pub(super) fn within(whole: &Range<usize>, part: &Range<usize>, count: usize) -> Range<usize> {
    if part.is_empty() {
        return 0..0;
    }
    (part.start - whole.start) * count..(part.end - whole.start) * count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::args::OPERATIONS;

    const RANKS: usize = 4;

    fn layouts(placement: Placement) -> impl Iterator<Item = (Collective, usize, Layout)> {
        let each = move |collective| {
            (0..RANKS).map(move |rank| (collective, rank, Layout::new(collective, RANKS, rank, placement)))
        };
        OPERATIONS.into_iter().flat_map(each)
    }

    #[test]
    fn in_place_one_buffer_has_the_input_and_the_output() {
        for (collective, rank, layout) in layouts(Placement::InPlace) {
            assert!(layout.send.is_empty(), "{collective:?}");
            for part in [&layout.input, &layout.output] {
                assert!(
                    part.clone().all(|block| layout.recv.contains(&block)),
                    "{collective:?} rank {rank}: {layout:?}"
                );
            }
        }
    }

    #[test]
    fn what_is_copied_was_there() {
        for (collective, rank, layout) in layouts(Placement::OutOfPlace) {
            for block in layout.output {
                let Some((from, sent)) = origin(collective, rank, block) else {
                    continue;
                };
                let there = Layout::new(collective, RANKS, from, Placement::OutOfPlace).input;
                assert!(there.contains(&sent), "{collective:?} rank {rank} block {block}");
            }
        }
    }

    #[test]
    fn parts_are_counted_from_their_buffer_s_begin() {
        let own = Layout::new(Collective::AllGather, RANKS, 2, Placement::OutOfPlace);
        assert_eq!(within(&own.send, &own.input, 10), 0..10);
        assert_eq!(within(&own.recv, &own.output, 10), 0..40);
        let own = Layout::new(Collective::AllGather, RANKS, 2, Placement::InPlace);
        assert_eq!(within(&own.recv, &own.input, 10), 20..30);
        let other = Layout::new(Collective::Gather { root: 0 }, RANKS, 2, Placement::InPlace);
        assert_eq!(within(&other.recv, &other.input, 10), 0..10);
        assert_eq!(within(&other.recv, &other.output, 10), 0..0);
    }
}
