//! Where grains and tiles lie in a vector of `count` elements.
//!
//! The vector is cut into blocks and each block into grains, always by the same rule: part i of a length L is
//! `i·L/n .. (i+1)·L/n`. Tile t of a call is the t-th piece of *every* grain, so that all collectives tile alike.

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
    use proptest::prelude::*;

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
