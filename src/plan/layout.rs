//! Where grains and tiles lie in a vector of `count` elements, or in buffers whose blocks the caller gives.
//!
//! The vector is cut into blocks and each block into grains, always by the same rule: part i of a length L is
//! `i·L/n .. (i+1)·L/n`. Tile t of a call is the t-th piece of *every* grain, so that all collectives tile alike.

#[cfg(test)]
use super::definition;
use super::schedule::Buffer;
#[cfg(test)]
use crate::types::Collective;
use std::ops::Range;

/// Elements of each grain of a call's vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) count: usize,
    pub(crate) blocks: usize,
    pub(crate) grains: usize,
}

impl Layout {
    /// The elements of grain `index`, counted over all blocks.
    #[inline]
    pub(crate) fn grain(&self, index: usize) -> Range<usize> {
        if self.grains == 1 {
            return part(index, self.blocks, self.count);
        }
        let block = part(index / self.grains, self.blocks, self.count);
        let inner = part(index % self.grains, self.grains, block.len());
        block.start + inner.start..block.start + inner.end
    }

    /// Elements of the longest grain.
    pub(crate) fn longest(&self) -> usize {
        self.count.div_ceil(self.blocks).div_ceil(self.grains)
    }
}

/// Part `i` of `n` of `len` elements: `i·len/n .. (i+1)·len/n`, without overflow.
#[inline]
fn part(i: usize, n: usize, len: usize) -> Range<usize> {
    if n == 1 {
        return 0..len;
    }
    let (whole, rest) = (len / n, len % n);
    if rest == 0 {
        return i * whole..(i + 1) * whole;
    }
    let at = |i: usize| i * whole + i * rest / n;
    at(i)..at(i + 1)
}

/// Blocks that the caller of a V form gives, on one rank: the elements of its buffers where each lies, in any order and with
/// gaps. Those without elements, and those that the rank has not, are `0..0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Blocks {
    /// Of the input and of the output.
    pub(crate) sides: [Vec<Range<usize>>; 2],
    /// Whether no rank knows more than its own, so that each message says how long its block is.
    pub(crate) by_pair: bool,
}

impl Blocks {
    /// Elements of the longest block.
    pub(crate) fn longest(&self) -> usize {
        let lengths = self.sides.iter().flatten().map(Range::len);
        lengths.max().unwrap_or(0)
    }

    /// The elements of `buffer` where grain `index` lies; of scratch memory only their number matters.
    #[inline(never)] // so that evenly cut vectors do not pay for it
    fn place(&self, grains: usize, buffer: Buffer, index: usize) -> Range<usize> {
        let [input, output] = self.sides.each_ref().map(|side| &side[index / grains]);
        let block = match buffer {
            Buffer::Input => input,
            Buffer::Output => output,
            // A rank may have a block on one side only.
            Buffer::Scratch if input.is_empty() => output,
            Buffer::Scratch => input,
        };
        let inner = part(index % grains, grains, block.len());
        block.start + inner.start..block.start + inner.end
    }

    /// Elements of all blocks of a side: see [`Blocks::sides`].
    pub(crate) fn total(&self, side: usize) -> usize {
        self.sides[side].iter().map(Range::len).sum()
    }

    /// Elements of a buffer up to the end of the last of its blocks.
    pub(crate) fn span(&self, side: usize) -> usize {
        let ends = self.sides[side].iter().filter(|block| !block.is_empty());
        ends.map(|block| block.end).max().unwrap_or(0)
    }

    /// The same blocks where they lie one after the other on each side on which that takes less than they span.
    #[cfg(feature = "cuda")]
    pub(crate) fn packed(&self) -> Self {
        let side = |side: usize| {
            let blocks = &self.sides[side];
            if self.total(side) >= self.span(side) {
                return blocks.clone();
            }
            let one_more = |at: &mut usize, block: &Range<usize>| {
                let begin = if block.is_empty() { 0 } else { *at };
                *at += block.len();
                Some(begin..begin + block.len())
            };
            blocks.iter().scan(0, one_more).collect()
        };
        Blocks {
            sides: [side(0), side(1)],
            by_pair: self.by_pair,
        }
    }
}

#[cfg(test)]
impl Blocks {
    /// Blocks of up to `most` elements that fit together on all ranks, as `rank` gives them: some empty, in any order and with
    /// gaps, what is sent perhaps twice from the same place.
    pub(crate) fn random(collective: Collective, ranks: usize, rank: usize, most: usize, seed: u64) -> Self {
        // Of a block, or of what goes from one rank to another.
        let len = |from: usize, to: usize| {
            let mut random = fastrand::Rng::with_seed(seed ^ (from << 20 | to) as u64);
            match random.u8(..4) {
                0 => 0,
                1 => most,
                _ => random.usize(..=most),
            }
        };
        let of = |block: usize, side: usize| match (collective, side) {
            (Collective::AlltoAllV, 0) => len(rank, block),
            (Collective::AlltoAllV, _) => len(block, rank),
            _ => len(0, block),
        };
        let mut random = fastrand::Rng::with_seed(seed ^ (rank as u64) << 40);
        let mut side = |side: usize, has: Range<usize>| {
            let (mut blocks, mut order) = (vec![0..0; ranks], has.collect::<Vec<_>>());
            random.shuffle(&mut order);
            let mut at = 0;
            for block in order {
                at += random.usize(..3);
                let len = of(block, side);
                if len > 0 {
                    blocks[block] = at..at + len;
                }
                if side == 1 || random.u8(..4) > 0 {
                    at += len;
                }
            }
            blocks
        };
        Blocks {
            sides: [
                side(0, definition::input(collective, rank, ranks)),
                side(1, definition::output(collective, rank, ranks)),
            ],
            by_pair: collective.counts_by_pair(),
        }
    }
}

/// Where the grains of a call lie in a rank's buffers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Grains<'m> {
    /// The vector is cut evenly; the rank's input and output begin at these elements of it.
    Cut { layout: Layout, begins: [usize; 2] },
    /// Each block lies where the caller says, and is cut into so many grains.
    Given { blocks: &'m Blocks, grains: usize },
}

impl Grains<'_> {
    /// The elements of `buffer` where grain `index` lies; of scratch memory only their number matters.
    #[inline(always)] // in the path of each step
    pub(crate) fn place(&self, buffer: Buffer, index: usize) -> Range<usize> {
        match self {
            Grains::Cut { layout, begins } => {
                let begin = match buffer {
                    Buffer::Input => begins[0],
                    Buffer::Output => begins[1],
                    Buffer::Scratch => 0,
                };
                let grain = layout.grain(index);
                grain.start - begin..grain.end - begin
            }
            Grains::Given { blocks, grains } => blocks.place(*grains, buffer, index),
        }
    }

    /// Whether each message says how long its grains are.
    #[inline]
    pub(crate) fn are_told(&self) -> bool {
        matches!(self, Grains::Given { blocks, .. } if blocks.by_pair)
    }
}

/// How a call is cut into tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tiling {
    /// Elements of a tile's part of a grain, at most.
    pub(crate) elements: usize,
    /// How many tiles there are: at least 1.
    pub(crate) tiles: usize,
}

impl Tiling {
    /// Cuts grains of up to `longest` elements into pieces of at most `most` elements, as even as whole multiples of
    /// `multiple` elements (a cache line) allow.
    pub(crate) fn new(longest: usize, most: usize, multiple: usize) -> Self {
        let most = most.max(1);
        let even = longest.div_ceil(longest.div_ceil(most).max(1)).max(1);
        let elements = even.next_multiple_of(multiple).min(most);
        Tiling {
            elements,
            tiles: longest.div_ceil(elements).max(1),
        }
    }

    /// Cuts grains of up to `longest` elements into pieces of `elements` elements, however many that are: where no rank knows
    /// the longest grain of all.
    pub(crate) fn of_pieces(elements: usize, longest: usize) -> Self {
        Tiling {
            elements,
            tiles: longest.div_ceil(elements).max(1),
        }
    }

    /// The part of a grain that belongs to `tile`: empty when the grain is shorter.
    #[inline]
    pub(crate) fn cut(&self, grain: Range<usize>, tile: usize) -> Range<usize> {
        let at = |tile: usize| grain.end.min(grain.start + tile * self.elements);
        at(tile)..at(tile + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        plan::{
            choose::{self, TileBytes},
            cost::Load,
            schedule::Extent,
        },
        transport::{CALL_LANES, MAX_MESSAGE},
        types::{Collective, DType, MAX_RANKS},
    };
    use proptest::prelude::*;

    #[cfg(feature = "cuda")]
    #[test]
    fn blocks_far_apart_are_packed() {
        let given = Blocks {
            sides: [vec![0..2, 1..3, 0..0], vec![7..9, 0..0, 1 << 40..(1 << 40) + 3]],
            by_pair: true,
        };
        let packed = given.packed();
        // What is sent twice from the same place would take more one after the other.
        assert_eq!(packed.sides, [given.sides[0].clone(), vec![0..2, 0..0, 2..5]]);
        assert_eq!(packed.packed(), packed);
        for seed in 0..200 {
            let given = Blocks::random(Collective::AlltoAllV, 5, 2, 9, seed);
            let packed = given.packed();
            for side in [0, 1] {
                let [before, after] = [&given, &packed].map(|blocks| &blocks.sides[side]);
                assert!(before.iter().map(Range::len).eq(after.iter().map(Range::len)));
                assert_eq!(packed.span(side), given.span(side).min(given.total(side)));
            }
        }
    }

    proptest! {
        #[test]
        fn grains_and_tiles_partition_the_vector(
            count in 0usize..5000, blocks in 1usize..40, grains in 1usize..5, most in 1usize..300, multiple in 1usize..17,
        ) {
            let layout = Layout { count, blocks, grains };
            let tiling = Tiling::new(layout.longest(), most, multiple);
            let mut next = 0;
            for grain in (0..blocks * grains).map(|i| layout.grain(i)) {
                prop_assert_eq!(grain.start, next);
                next = grain.end;
                prop_assert!(grain.len() <= layout.longest());
                let mut at = grain.start;
                for tile in 0..tiling.tiles {
                    let piece = tiling.cut(grain.clone(), tile);
                    prop_assert!(piece.len() <= most && piece.start == at);
                    at = piece.end;
                }
                prop_assert_eq!(at, grain.end);
            }
            prop_assert_eq!(next, count);
        }
    }

    proptest! {
        /// Counts up to the last whose bytes are a number. (Arithmetic that overflows panics in tests.)
        #[test]
        fn huge_vectors_are_cut_like_others(
            bytes in 1usize << 32..=isize::MAX as usize, element in 0..4usize, ranks in 1..=MAX_RANKS, blocks in 1..=2usize,
            grains in 1usize..5, at: prop::sample::Index, tile: prop::sample::Index,
        ) {
            let dtype = [DType::Int8, DType::Int16, DType::Int32, DType::Int64][element];
            let size = dtype.size();
            let (count, blocks) = (bytes / size, if blocks == 1 { 1 } else { ranks });
            let layout = Layout { count, blocks, grains };
            let index = at.index(blocks * grains);
            let grain = layout.grain(index);
            let block = |i: usize| (i as u128 * count as u128 / blocks as u128) as usize;
            if grains == 1 {
                prop_assert_eq!(grain.clone(), block(index)..block(index + 1));
            }
            let end = if index + 1 < blocks * grains { layout.grain(index + 1).start } else { count };
            prop_assert!(grain.start <= grain.end && grain.end == end && grain.len() <= layout.longest());
            for (ways, collective) in [
                (TileBytes::SHARED_MEMORY, Collective::AllReduce),
                (TileBytes::ROUND.with_peers(1), Collective::AllReduce),
                (TileBytes::ROUND.with_peers(2), Collective::AllReduce),
                (TileBytes::TCP, Collective::AllReduce),
                (TileBytes::EXCHANGED, Collective::AllGatherV),
                (TileBytes::EXCHANGED.with_peers(1), Collective::AllGather),
                (TileBytes::EXCHANGED.with_peers(3), Collective::AllGather),
            ] {
                let extent = Extent { message: 1, channels: 1 };
                let load = Load::new(collective, ranks, count, dtype);
                let (tiling, _) = choose::tiling(extent, &layout, &load, MAX_MESSAGE, CALL_LANES, ways).unwrap();
                prop_assert!(tiling.elements * size <= MAX_MESSAGE);
                let tile = tile.index(tiling.tiles);
                let piece = tiling.cut(grain.clone(), tile);
                prop_assert!(piece.len() <= tiling.elements);
                prop_assert_eq!(piece.start, grain.end.min(grain.start + tile * tiling.elements));
                prop_assert_eq!(tiling.cut(grain.clone(), tiling.tiles - 1).end, grain.end);
            }
        }
    }

    #[test]
    fn the_largest_counts_do_not_overflow() {
        let layout = Layout {
            count: usize::MAX,
            blocks: 100_000,
            grains: 1,
        };
        assert_eq!(layout.grain(99_999).end, usize::MAX);
    }
}
