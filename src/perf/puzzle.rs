//! What the ranks put into an operation and what must come out, known beforehand whatever the order of reduction.
//!
//! A value is drawn by a hash of (seed, rank, entry). The numbers are held so small that every partial result, of
//! whichever ranks, is exact in the narrowest type that an algorithm may round it to; then the order cannot matter and
//! the expected value needs no tolerance:
//!
//! | operation | values |
//! | --- | --- |
//! | sum, integers | any; they wrap |
//! | avg of integers | small enough not to wrap; their sum is a multiple of the number of ranks or one less |
//! | sum and avg of floats | integers whose absolute values add up to no more than the type counts exactly (8 for float8e5m2); where there are more ranks than that, some hold 0, at each entry others |
//! | prod, integers | odd; they wrap and never reach 0 |
//! | prod, floats | powers of two of either sign whose exponents add up to normal numbers |
//! | min, max | any finite |
//! | bitand, bitor | few bits of a rank decide, so that many of the result's bits depend on a single rank |
//! | bitxor, and where nothing is reduced | any bits |

use super::{
    number::{self, Kind},
    operation::Operation,
};
use crate::types::{DType, Op};

/// One operation's inputs and results, entry by entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Puzzle {
    pub(super) operation: Operation,
    pub(super) dtype: DType,
    pub(super) op: Op,
    pub(super) ranks: usize,
    /// Another seed, other values.
    pub(super) seed: u64,
}

impl Puzzle {
    /// The bits that `rank` puts in.
    pub(super) fn input(&self, rank: usize, entry: usize) -> u64 {
        let draw = hash(hash(self.seed, rank as u64), entry as u64);
        if !self.operation.reduces() {
            return draw;
        }
        match Kind::of(self.dtype) {
            Kind::Signed(bits) | Kind::Unsigned(bits) => self.integer(bits, rank, entry, draw),
            Kind::Float(format) => match self.op {
                Op::Prod => {
                    let most = u64::from(format.exponent_range());
                    let exponent = self.share(most, rank, entry, draw, 2);
                    let sign = if draw >> 63 == 1 { -1.0 } else { 1.0 };
                    format.encode(sign * 2f64.powi(exponent as i32))
                }
                Op::Max | Op::Min => finite(format, draw),
                _ => format
                    .encode(self.share(format.largest_exact_integer(), rank, entry, draw, u64::MAX) as f64),
            },
        }
    }

    fn integer(&self, bits: u32, rank: usize, entry: usize, draw: u64) -> u64 {
        // Each bit is kept with a probability of about 1 / (2 ranks).
        let sparse = || (0..self.ranks.ilog2()).fold(draw, |kept, round| kept & hash(draw, round.into()));
        match (self.op, Kind::of(self.dtype)) {
            (Op::Prod, _) => draw | 1,
            (Op::Avg, Kind::Signed(_)) => self.level(number::low(u64::MAX, bits - 1), rank, entry, true),
            (Op::Avg, _) => self.level(number::low(u64::MAX, bits), rank, entry, false),
            (Op::BitAnd, _) => !sparse(),
            (Op::BitOr, _) => sparse(),
            _ => draw,
        }
    }

    /// An integer of either sign; those of all ranks add up to at most `budget` in absolute value, and each is at most
    /// `most`. Where the budget does not suffice for all ranks, those who get nothing differ from entry to entry.
    fn share(&self, budget: u64, rank: usize, entry: usize, draw: u64, most: u64) -> i64 {
        let ranks = self.ranks as u64;
        let holders = ranks.min(budget);
        let first = hash(self.seed, entry as u64) % ranks;
        if (rank as u64 + first) % ranks >= holders {
            return 0;
        }
        let largest = (budget / holders).min(most).min(1 << 62);
        (draw % (2 * largest + 1)).cast_signed() - largest.cast_signed()
    }

    /// An integer such that those of all ranks add up to a multiple of their number or to one less, so that an average
    /// that lacks a rank, or has one twice, is another number. Averages of small integers would mostly be 0 otherwise,
    /// as they are where there are more ranks than `budget`.
    fn level(&self, budget: u64, rank: usize, entry: usize, both_signs: bool) -> u64 {
        let ranks = self.ranks as u64;
        let largest = (budget / ranks).min(1 << 62);
        let draw = hash(self.seed, entry as u64);
        let place = (rank as u64 + (draw >> 32)) % ranks;
        if largest == 0 {
            return u64::from(place < budget);
        }
        let average = 1 + draw % largest;
        // Ranks in pairs, one as much above the average as the other is below.
        let off = hash(draw, place / 2) % (average.min(largest - average) + 1);
        let value = match place % 2 {
            0 if place + 1 == ranks => average,
            0 => average + off,
            _ => average - off,
        };
        let value = value - u64::from(place == 0 && draw >> 63 == 1);
        if both_signs && draw >> 62 & 1 == 1 {
            value.wrapping_neg()
        } else {
            value
        }
    }

    /// The bits of all ranks' inputs combined.
    pub(super) fn reduced(&self, entry: usize) -> u64 {
        let inputs = (0..self.ranks).map(|rank| self.input(rank, entry));
        match Kind::of(self.dtype) {
            Kind::Signed(bits) => {
                let value = |input| number::signed(input, bits);
                let least = |a: i64, b: i64| if (self.op == Op::Min) == (a < b) { a } else { b };
                match self.op {
                    Op::Max | Op::Min => inputs.map(value).reduce(least).unwrap_or(0).cast_unsigned(),
                    Op::Avg => (inputs.map(value).sum::<i64>() / self.ranks as i64).cast_unsigned(),
                    _ => self.wrapped(inputs),
                }
            }
            Kind::Unsigned(bits) => {
                let values = inputs.map(|input| number::low(input, bits));
                match self.op {
                    Op::Max => values.max().unwrap_or(0),
                    Op::Min => values.min().unwrap_or(0),
                    Op::Avg => values.sum::<u64>() / self.ranks as u64,
                    _ => self.wrapped(values),
                }
            }
            Kind::Float(format) => {
                let values = inputs.map(|input| format.decode(input));
                format.encode(match self.op {
                    Op::Prod => values.product(),
                    Op::Max => values.fold(f64::NEG_INFINITY, f64::max),
                    Op::Min => values.fold(f64::INFINITY, f64::min),
                    // From 0 and not from -0, which is where `sum` begins.
                    Op::Avg => values.fold(0.0, |sum, value| sum + value) / self.ranks as f64,
                    _ => values.fold(0.0, |sum, value| sum + value),
                })
            }
        }
    }

    /// Operations whose low bits depend on low bits only, so that the width does not matter.
    fn wrapped(&self, inputs: impl Iterator<Item = u64>) -> u64 {
        let combine: fn(u64, u64) -> u64 = match self.op {
            Op::Prod => u64::wrapping_mul,
            Op::BitAnd => |a, b| a & b,
            Op::BitOr => |a, b| a | b,
            Op::BitXor => |a, b| a ^ b,
            _ => u64::wrapping_add,
        };
        inputs.reduce(combine).unwrap_or(0)
    }
}

/// A finite number that is not -0, whose order against 0 an operation need not know.
fn finite(format: number::Format, draw: u64) -> u64 {
    let minus_zero = 1 << (format.bits() - 1);
    (0..)
        .map(|attempt| number::low(hash(draw, attempt), format.bits()))
        .find(|&bits| format.is_finite(bits) && bits != minus_zero)
        .unwrap_or(0)
}

/// Sixty-four well-mixed bits of two numbers.
///
/// Source: the finaliser of SplitMix64, by Steele, Lea and Flood, 2014.
pub(super) fn hash(seed: u64, number: u64) -> u64 {
    let mut x = seed ^ number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Collective;

    const SEED: u64 = 7;
    const ENTRIES: usize = 40;

    fn puzzles() -> impl Iterator<Item = Puzzle> {
        (1..=20).chain([33, 64, 200]).flat_map(move |ranks| {
            DType::ALL.into_iter().flat_map(move |dtype| {
                Op::ALL
                    .into_iter()
                    .filter(move |op| op.accepts(dtype))
                    .map(move |op| Puzzle {
                        operation: Operation::Collective(Collective::AllReduce),
                        dtype,
                        op,
                        ranks,
                        seed: SEED,
                    })
            })
        })
    }

    /// `a` and `b` combined and rounded in the type itself, by this processor's or the `half` crate's arithmetic.
    fn combine(dtype: DType, op: Op, a: u64, b: u64) -> u64 {
        macro_rules! integers {
            ($rust:ty) => {{
                let (a, b) = (a as $rust, b as $rust);
                (match op {
                    Op::Sum | Op::Avg => a.wrapping_add(b),
                    Op::Prod => a.wrapping_mul(b),
                    Op::Max => a.max(b),
                    Op::Min => a.min(b),
                    Op::BitAnd => a & b,
                    Op::BitOr => a | b,
                    Op::BitXor => a ^ b,
                    Op::PreMulSum => unreachable!("it is not in Op::ALL"),
                }) as u64
            }};
        }
        macro_rules! floats {
            ($bits:ty, $decode:expr, $encode:expr) => {{
                let (a, b) = ($decode(a as $bits), $decode(b as $bits));
                u64::from($encode(match op {
                    Op::Prod => a * b,
                    Op::Max => {
                        if a < b {
                            b
                        } else {
                            a
                        }
                    }
                    Op::Min => {
                        if a < b {
                            a
                        } else {
                            b
                        }
                    }
                    _ => a + b,
                }))
            }};
        }
        let eight = |a: u64| match Kind::of(dtype) {
            Kind::Float(format) => format.decode(a),
            _ => 0.0,
        };
        let round = |a: f64| match Kind::of(dtype) {
            Kind::Float(format) => format.encode(a),
            _ => 0,
        };
        match dtype {
            DType::Int8 => integers!(i8),
            DType::Uint8 => integers!(u8),
            DType::Int16 => integers!(i16),
            DType::Uint16 => integers!(u16),
            DType::Int32 => integers!(i32),
            DType::Uint32 => integers!(u32),
            DType::Int64 => integers!(i64),
            DType::Uint64 => integers!(u64),
            DType::Float16 => floats!(u16, half::f16::from_bits, half::f16::to_bits),
            DType::Bfloat16 => floats!(u16, half::bf16::from_bits, half::bf16::to_bits),
            DType::Float32 => floats!(u32, f32::from_bits, f32::to_bits),
            DType::Float64 => floats!(u64, f64::from_bits, f64::to_bits),
            DType::Float8e4m3 | DType::Float8e5m2 => floats!(u64, eight, round),
        }
    }

    /// The division at the end of an average.
    fn divide(puzzle: &Puzzle, sum: u64) -> u64 {
        let ranks = puzzle.ranks;
        match (puzzle.dtype, Kind::of(puzzle.dtype)) {
            (DType::Float32, _) => (f32::from_bits(sum as u32) / ranks as f32).to_bits().into(),
            (DType::Float16, _) => {
                half::f16::from_f32(half::f16::from_bits(sum as u16).to_f32() / ranks as f32)
                    .to_bits()
                    .into()
            }
            (DType::Bfloat16, _) => {
                half::bf16::from_f32(half::bf16::from_bits(sum as u16).to_f32() / ranks as f32)
                    .to_bits()
                    .into()
            }
            (_, Kind::Float(format)) => format.encode(format.decode(sum) / ranks as f64),
            (_, Kind::Signed(bits)) => (number::signed(sum, bits) / ranks as i64).cast_unsigned(),
            (_, Kind::Unsigned(bits)) => number::low(sum, bits) / ranks as u64,
        }
    }

    /// Reduces by combining two random partial results until one is left.
    fn reduce(puzzle: &Puzzle, entry: usize, order: u64) -> u64 {
        let mut parts: Vec<u64> = (0..puzzle.ranks).map(|rank| puzzle.input(rank, entry)).collect();
        for round in 0.. {
            let draw = hash(order, round) as usize;
            let a = parts.swap_remove(draw % parts.len());
            if parts.is_empty() {
                return if puzzle.op == Op::Avg {
                    divide(puzzle, a)
                } else {
                    a
                };
            }
            let with = (draw >> 32) % parts.len();
            parts[with] = combine(puzzle.dtype, puzzle.op, a, parts[with]);
        }
        unreachable!("each round leaves one part less")
    }

    #[test]
    fn any_order_of_reduction_gives_the_expected_value() {
        for puzzle in puzzles() {
            let bits = 8 * puzzle.dtype.size() as u32;
            for entry in 0..ENTRIES {
                let expected = number::low(puzzle.reduced(entry), bits);
                for order in 0..3 {
                    let found = number::low(reduce(&puzzle, entry, order), bits);
                    assert_eq!(found, expected, "{puzzle:?} entry {entry} order {order}");
                }
            }
        }
    }

    /// The result if `rank` were counted so many times.
    fn counting(puzzle: &Puzzle, entry: usize, rank: usize, times: usize) -> u64 {
        let inputs = (0..puzzle.ranks)
            .flat_map(|other| std::iter::repeat_n(other, if other == rank { times } else { 1 }))
            .map(|other| puzzle.input(other, entry));
        let reduced = inputs
            .reduce(|a, b| combine(puzzle.dtype, puzzle.op, a, b))
            .unwrap();
        if puzzle.op == Op::Avg {
            divide(puzzle, reduced)
        } else {
            reduced
        }
    }

    #[test]
    fn no_rank_can_be_left_out_or_counted_twice() {
        // The average of more 8-bit integers than such a type can count to is 0.
        let known = |puzzle: &Puzzle| puzzle.ranks <= 127;
        for puzzle in puzzles().filter(|puzzle| puzzle.ranks > 1 && known(puzzle)) {
            let bits = 8 * puzzle.dtype.size() as u32;
            let twice_matters = matches!(puzzle.op, Op::Sum | Op::Prod | Op::Avg | Op::BitXor);
            for rank in 0..puzzle.ranks.min(8) {
                for times in [Some(0), twice_matters.then_some(2)].into_iter().flatten() {
                    // For min and max another rank's value is decisive at most entries.
                    let matters = (0..1000).any(|entry| {
                        let found = number::low(counting(&puzzle, entry, rank, times), bits);
                        found != number::low(puzzle.reduced(entry), bits)
                    });
                    assert!(matters, "{puzzle:?} is the same with rank {rank} {times} times");
                }
            }
        }
    }
}
