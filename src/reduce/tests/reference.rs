//! What elements must become, computed as plainly as can be.

use crate::reduce::Manner;
use crate::types::{DType, F8E4M3, F8E5M2, Op};
use half::{bf16, f16};

/// An element's bits, or that they must be a NaN: which one is not specified.
#[derive(Debug, PartialEq)]
pub(super) enum Value {
    Bits(u64),
    NaN,
}

/// What the element at one place must become.
pub(super) fn expected(
    op: Op,
    dtype: DType,
    finish: Option<usize>,
    manner: Manner,
    elements: &[u64],
) -> Value {
    let ranks = finish.filter(|_| op == Op::Avg);
    match (dtype, elements) {
        (_, [only]) if ranks.is_none() && manner.scaled.is_none() => Value::Bits(*only),
        (DType::Float64, _) => {
            let mut numbers: Vec<f64> = elements.iter().map(|&bits| f64::from_bits(bits)).collect();
            if let Some((source, scalar)) = manner.scaled {
                numbers[source] *= f64::from_bits(scalar);
            }
            let total = fold_f64(op, manner.tree, &numbers);
            value_of(dtype, ranks.map_or(total, |n| total / n as f64).to_bits())
        }
        _ if dtype.is_integer() => {
            Value::Bits(truncate(dtype, fold_integers(op, dtype, ranks, manner, elements)))
        }
        _ => {
            let mut numbers: Vec<f32> = elements.iter().map(|&bits| to_f32(dtype, bits)).collect();
            if let Some((source, scalar)) = manner.scaled {
                let product = numbers[source] * to_f32(dtype, scalar);
                numbers[source] = to_f32(dtype, from_f32(dtype, product));
            }
            let total = fold_f32(op, manner.tree, &numbers);
            value_of(dtype, from_f32(dtype, ranks.map_or(total, |n| total / n as f32)))
        }
    }
}

fn fold_integers(op: Op, dtype: DType, ranks: Option<usize>, manner: Manner, elements: &[u64]) -> i128 {
    let mut numbers: Vec<i128> = elements.iter().map(|&bits| integer(dtype, bits)).collect();
    if let Some((source, scalar)) = manner.scaled {
        numbers[source] = numbers[source].wrapping_mul(integer(dtype, scalar));
    }
    let numbers = numbers.into_iter();
    match op {
        Op::Sum | Op::PreMulSum => numbers.fold(0, i128::wrapping_add),
        Op::Avg => integer(dtype, truncate(dtype, numbers.sum())) / ranks.unwrap_or(1) as i128,
        Op::Prod => numbers.fold(1, i128::wrapping_mul),
        Op::Max => numbers.max().unwrap(),
        Op::Min => numbers.min().unwrap(),
        Op::BitAnd => numbers.fold(-1, |a, b| a & b),
        Op::BitOr => numbers.fold(0, |a, b| a | b),
        Op::BitXor => numbers.fold(0, |a, b| a ^ b),
    }
}

macro_rules! fold_floats {
    ($name:ident, $t:ty) => {
        fn $name(op: Op, tree: bool, numbers: &[$t]) -> $t {
            let best = |a: $t, b: $t, better: std::cmp::Ordering| match () {
                () if a.is_nan() || b.is_nan() => <$t>::NAN,
                () if a.total_cmp(&b) == better => a, // orders −0 before +0
                () => b,
            };
            let combine = |a, b| match op {
                Op::Sum | Op::Avg | Op::PreMulSum => a + b,
                Op::Prod => a * b,
                Op::Max => best(a, b, std::cmp::Ordering::Greater),
                Op::Min => best(a, b, std::cmp::Ordering::Less),
                _ => unreachable!("{op} of floats"),
            };
            match numbers {
                [only] => *only,
                _ if tree => {
                    let (low, high) = numbers.split_at(numbers.len().next_power_of_two() / 2);
                    combine($name(op, tree, low), $name(op, tree, high))
                }
                _ => numbers.iter().copied().reduce(combine).unwrap(),
            }
        }
    };
}

fold_floats!(fold_f32, f32);
fold_floats!(fold_f64, f64);

/// The integer that these bits are.
fn integer(dtype: DType, bits: u64) -> i128 {
    match dtype {
        DType::Int8 => (bits as i8).into(),
        DType::Int16 => (bits as i16).into(),
        DType::Int32 => (bits as i32).into(),
        DType::Int64 => (bits as i64).into(),
        _ => bits.into(),
    }
}

/// The low bits of `number`, as many as `dtype` has.
fn truncate(dtype: DType, number: i128) -> u64 {
    number as u64 & u64::MAX >> (64 - 8 * dtype.size())
}

pub(super) fn to_f32(dtype: DType, bits: u64) -> f32 {
    match dtype {
        DType::Float32 => f32::from_bits(bits as u32),
        DType::Float16 => f16::from_bits(bits as u16).to_f32(),
        DType::Bfloat16 => bf16::from_bits(bits as u16).to_f32(),
        DType::Float8e4m3 => F8E4M3(bits as u8).to_f32(),
        DType::Float8e5m2 => F8E5M2(bits as u8).to_f32(),
        _ => unreachable!("{dtype} is not accumulated in float32"),
    }
}

pub(super) fn from_f32(dtype: DType, value: f32) -> u64 {
    match dtype {
        DType::Float32 => value.to_bits().into(),
        DType::Float16 => f16::from_f32(value).to_bits().into(),
        DType::Bfloat16 => bf16::from_f32(value).to_bits().into(),
        DType::Float8e4m3 => F8E4M3::from_f32(value).0.into(),
        DType::Float8e5m2 => F8E5M2::from_f32(value).0.into(),
        _ => unreachable!("{dtype} is not accumulated in float32"),
    }
}

pub(super) fn value_of(dtype: DType, bits: u64) -> Value {
    let is_nan = match dtype {
        DType::Float64 => f64::from_bits(bits).is_nan(),
        _ if dtype.is_integer() => false,
        _ => to_f32(dtype, bits).is_nan(),
    };
    if is_nan { Value::NaN } else { Value::Bits(bits) }
}

/// The bits of the element at `index` of the vector that begins at byte `at`.
pub(super) fn element(memory: &[u8], dtype: DType, at: usize, index: usize) -> u64 {
    let at = at + index * dtype.size();
    let mut bits = [0; 8];
    bits[..dtype.size()].copy_from_slice(&memory[at..at + dtype.size()]);
    u64::from_le_bytes(bits)
}
