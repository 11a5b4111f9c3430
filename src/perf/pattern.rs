//! [`Pattern`]: the entries of a [`Puzzle`] as the contents of blocks of any length, to write and to compare with.
//!
//! Element i of a block is entry `offset(i / CHUNK) + i % CHUNK` of a table, the offset being a hash of the seed, the
//! block's number and the chunk's. So a gigabyte is written and compared at the speed of copying, and a part of the vector
//! that ends up in the wrong place shows.

use super::{
    layout,
    puzzle::{Puzzle, hash},
};
use crate::types::Element;
use std::ops::Range;

/// Elements that follow each other in the table.
const CHUNK: usize = 256;

/// Places in the table where a chunk may begin.
const OFFSETS: usize = 1024;

/// Elements as bits, an unsigned integer for each length: NaN equals itself, and 0 is not -0.
pub(super) trait Sample: Element + Eq {
    /// The element of the low bits of `bits`.
    fn from_raw(bits: u64) -> Self;
}

macro_rules! sample {
    ($($bits:ty)*) => {$(
        impl Sample for $bits {
            #[inline]
            fn from_raw(bits: u64) -> Self {
                bits as $bits
            }
        }
    )*};
}

sample!(u8 u16 u32 u64);

/// Entries of the table.
const TABLE: usize = OFFSETS + CHUNK;

/// A block's contents of any length.
pub(super) struct Pattern<'p> {
    /// The bits of an entry.
    bits: Box<dyn Fn(usize) -> u64 + 'p>,
    seed: u64,
}

impl<'p> Pattern<'p> {
    /// What `rank` puts into `block`.
    pub(super) fn input(puzzle: &'p Puzzle, rank: usize, block: usize) -> Self {
        Self::copy_of(puzzle, rank, block, 0)
    }

    /// What `rank` must get in `block`.
    pub(super) fn expected(puzzle: &'p Puzzle, rank: usize, block: usize) -> Self {
        Self::output(puzzle, rank, block, 0)
    }

    /// A pattern that differs from the expected one in every element.
    pub(super) fn opposite(puzzle: &'p Puzzle, rank: usize, block: usize) -> Self {
        Self::output(puzzle, rank, block, u64::MAX)
    }

    /// What `rank` must get in `block`, with the bits of `flip` inverted.
    fn output(puzzle: &'p Puzzle, rank: usize, block: usize, flip: u64) -> Self {
        match layout::origin(puzzle.operation, puzzle.ranks, rank, block) {
            Some((from, sent)) => Self::copy_of(puzzle, from, sent, flip),
            None => Self::of(puzzle, block, move |entry| puzzle.reduced(entry) ^ flip),
        }
    }

    fn copy_of(puzzle: &'p Puzzle, rank: usize, block: usize, flip: u64) -> Self {
        Self::of(puzzle, block, move |entry| puzzle.input(rank, entry) ^ flip)
    }

    fn of(puzzle: &Puzzle, block: usize, bits: impl Fn(usize) -> u64 + 'p) -> Self {
        Pattern {
            bits: Box::new(bits),
            seed: hash(puzzle.seed, block as u64),
        }
    }

    /// Shows the pattern's first `len` elements, chunk by chunk, each with the number of its first element. Of a short
    /// one only the entries that it has are made: among many ranks each takes long.
    fn each_chunk<T: Sample>(&self, len: usize, mut show: impl FnMut(usize, &[T])) {
        let made = |entries: Range<usize>| -> Vec<T> {
            entries.map(|entry| T::from_raw((self.bits)(entry))).collect()
        };
        let table = made(0..if len < TABLE { 0 } else { TABLE });
        for (number, first) in (0..len).step_by(CHUNK).enumerate() {
            let from = hash(self.seed, number as u64) as usize % OFFSETS;
            let entries = from..from + CHUNK.min(len - first);
            match table.get(entries.clone()) {
                Some(chunk) => show(first, chunk),
                None => show(first, &made(entries)),
            }
        }
    }

    /// Writes the pattern's first elements to all of `to`.
    pub(super) fn fill<T: Sample>(&self, to: &mut [T]) {
        self.each_chunk(to.len(), |first, chunk| {
            to[first..first + chunk.len()].copy_from_slice(chunk);
        });
    }

    /// How many elements of `found` are not the pattern's.
    pub(super) fn count_wrong<T: Sample>(&self, found: &[T]) -> u64 {
        let mut all = 0;
        self.each_chunk(found.len(), |first, chunk: &[T]| {
            let differs = |(a, b): (&T, &T)| u32::from(a != b);
            let wrong = found[first..].iter().zip(chunk).map(differs);
            all += u64::from(wrong.sum::<u32>());
        });
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        perf::operation::Operation,
        types::{Collective, DType, Op},
    };

    const SEED: u64 = 7;

    fn counts_what_is_wrong<T: Sample>(dtype: DType) {
        let puzzle = Puzzle {
            operation: Operation::Collective(Collective::AllReduce),
            dtype,
            op: Op::Max,
            ranks: 3,
            seed: SEED,
        };
        let (expected, opposite) = (Pattern::expected(&puzzle, 0, 0), Pattern::opposite(&puzzle, 0, 0));
        let mut buffer = vec![T::from_raw(0); 3 * CHUNK + 5];
        opposite.fill(&mut buffer);
        assert_eq!(expected.count_wrong(&buffer), buffer.len() as u64);
        expected.fill(&mut buffer);
        assert_eq!(expected.count_wrong(&buffer), 0);
        opposite.fill(&mut buffer[..7]);
        assert_eq!(expected.count_wrong(&buffer), 7);
        // A vector whose chunks are exchanged is mostly wrong.
        expected.fill(&mut buffer);
        buffer.rotate_left(CHUNK);
        assert!(expected.count_wrong(&buffer) > CHUNK as u64);
    }

    #[test]
    fn wrong_elements_are_counted() {
        counts_what_is_wrong::<u8>(DType::Int8);
        counts_what_is_wrong::<u8>(DType::Float8e5m2);
        counts_what_is_wrong::<u16>(DType::Uint16);
        counts_what_is_wrong::<u16>(DType::Bfloat16);
        counts_what_is_wrong::<u32>(DType::Float32);
        counts_what_is_wrong::<u64>(DType::Float64);
    }

    #[test]
    fn what_comes_from_elsewhere_is_wrong() {
        const LEN: usize = 1000;
        let filled = |pattern: &Pattern<'_>| {
            let mut buffer = vec![0u32; LEN];
            pattern.fill(&mut buffer);
            buffer
        };
        for operation in Operation::all().filter(|operation| operation.has_vector()) {
            let puzzle = Puzzle {
                operation,
                dtype: DType::Uint32,
                op: Op::Sum,
                ranks: 4,
                seed: SEED,
            };
            let blocks = operation.blocks(puzzle.ranks);
            for (rank, block) in
                (0..puzzle.ranks).flat_map(|rank| (0..blocks).map(move |block| (rank, block)))
            {
                let expected = Pattern::expected(&puzzle, rank, block);
                let origin = layout::origin(operation, puzzle.ranks, rank, block);
                for (from, sent) in
                    (0..puzzle.ranks).flat_map(|rank| (0..blocks).map(move |block| (rank, block)))
                {
                    let wrong = expected.count_wrong(&filled(&Pattern::input(&puzzle, from, sent)));
                    match origin == Some((from, sent)) {
                        true => assert_eq!(wrong, 0, "{operation:?} {rank} {block} {from} {sent}"),
                        false => assert!(wrong > 900, "{operation:?} {rank} {block} {from} {sent}: {wrong}"),
                    }
                }
            }
        }
    }

    #[test]
    fn a_short_pattern_is_the_beginning_of_a_long_one() {
        let some = Pattern {
            bits: Box::new(|entry| entry as u64),
            seed: SEED,
        };
        let mut long = vec![0u32; 2 * TABLE];
        some.fill(&mut long);
        let mut short = vec![0; TABLE - 1];
        some.fill(&mut short);
        assert_eq!(short, long[..short.len()]);
    }
}
