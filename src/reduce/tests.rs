//! The kernels against a reference that goes one element at a time and computes as plainly as it can.

use super::kernels::{self, Pass};
use super::number::{Arithmetic, Number};
use super::{Manner, reduce, reduce_as};
use crate::mem::Region;
use crate::types::{DType, F8E4M3, F8E5M2, Op};
use half::{bf16, f16};
use proptest::prelude::*;
use std::num::NonZero;

/// An element's bits, or that they must be a NaN: which one is not specified.
#[derive(Debug, PartialEq)]
enum Value {
    Bits(u64),
    NaN,
}

/// What the element at one place must become.
fn expected(op: Op, dtype: DType, finish: Option<usize>, manner: Manner, elements: &[u64]) -> Value {
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
                numbers[source] *= to_f32(dtype, scalar);
                if manner.tree {
                    numbers[source] = to_f32(dtype, from_f32(dtype, numbers[source]));
                }
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

fn to_f32(dtype: DType, bits: u64) -> f32 {
    match dtype {
        DType::Float32 => f32::from_bits(bits as u32),
        DType::Float16 => f16::from_bits(bits as u16).to_f32(),
        DType::Bfloat16 => bf16::from_bits(bits as u16).to_f32(),
        DType::Float8e4m3 => F8E4M3(bits as u8).to_f32(),
        DType::Float8e5m2 => F8E5M2(bits as u8).to_f32(),
        _ => unreachable!("{dtype} is not accumulated in float32"),
    }
}

fn from_f32(dtype: DType, value: f32) -> u64 {
    match dtype {
        DType::Float32 => value.to_bits().into(),
        DType::Float16 => f16::from_f32(value).to_bits().into(),
        DType::Bfloat16 => bf16::from_f32(value).to_bits().into(),
        DType::Float8e4m3 => F8E4M3::from_f32(value).0.into(),
        DType::Float8e5m2 => F8E5M2::from_f32(value).0.into(),
        _ => unreachable!("{dtype} is not accumulated in float32"),
    }
}

fn value_of(dtype: DType, bits: u64) -> Value {
    let is_nan = match dtype {
        DType::Float64 => f64::from_bits(bits).is_nan(),
        _ if dtype.is_integer() => false,
        _ => to_f32(dtype, bits).is_nan(),
    };
    if is_nan { Value::NaN } else { Value::Bits(bits) }
}

/// The bits of the element at `index` of the vector that begins at byte `at`.
fn element(memory: &[u8], dtype: DType, at: usize, index: usize) -> u64 {
    let at = at + index * dtype.size();
    let mut bits = [0; 8];
    bits[..dtype.size()].copy_from_slice(&memory[at..at + dtype.size()]);
    u64::from_le_bytes(bits)
}

/// A reduction's shape, apart from type and operation.
#[derive(Debug, Clone)]
struct Case {
    count: usize,
    /// Bytes before each source, and last before the destination: any alignment.
    gaps: Vec<usize>,
    /// The source that is the destination too.
    in_place: Option<usize>,
    /// The source that a pre-multiplied sum multiplies.
    scaled: Option<usize>,
    finish: Option<usize>,
    tree: bool,
    seed: u64,
}

impl Case {
    fn any() -> impl Strategy<Value = Case> {
        let shape = (
            prop_oneof![0usize..70, 0usize..1200],
            proptest::collection::vec(0usize..80, 2..=20),
            proptest::option::of(0usize..9),
            proptest::option::of(0usize..9),
            proptest::option::of(prop_oneof![1usize..=10, Just(1000), Just(1 << 40)]),
            any::<bool>(),
            any::<u64>(),
        );
        shape.prop_map(|(count, gaps, in_place, scaled, finish, tree, seed)| Case {
            count,
            in_place: in_place.map(|source| source % (gaps.len() - 1)),
            scaled: scaled.map(|source| source % (gaps.len() - 1)),
            gaps,
            finish,
            tree,
            seed,
        })
    }

    /// Where each vector begins, and how long the memory is.
    fn places(&self, dtype: DType) -> (Vec<usize>, usize) {
        let len = self.count * dtype.size();
        let mut end = 0;
        let begin = |gap: &usize| {
            let at = end + gap;
            end = at + len;
            at
        };
        let places = self.gaps.iter().map(begin).collect();
        (places, end + 64)
    }

    /// Memory full of elements of all kinds, at whatever address: arbitrary bits, and those of simple numbers.
    fn memory(&self, dtype: DType, len: usize) -> Vec<u8> {
        let mut state = self.seed;
        let mut random = move || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            state >> 33
        };
        let special = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            1e-7,
            400.0,
            6e4,
        ];
        let mut next = || match (random() % 8, dtype) {
            (0, _) => random() << 33 ^ random(),
            (_, DType::Float64) => (f64::from(random() as i16) / 64.0).to_bits(),
            (_, _) if dtype.is_integer() => random() << 33 ^ random() << 11 ^ random(),
            (1, _) => from_f32(dtype, special[random() as usize % special.len()]),
            (_, _) => from_f32(dtype, f32::from(random() as i16) / 64.0),
        };
        let elements = len.div_ceil(dtype.size());
        let mut memory: Vec<u8> = (0..elements)
            .flat_map(|_| next().to_le_bytes().into_iter().take(dtype.size()))
            .collect();
        memory.truncate(len);
        memory
    }

    fn check(&self, op: Op, dtype: DType, run: Run) {
        let (mut places, len) = self.places(dtype);
        let before = self.memory(dtype, len);
        let scaled = self.scaled.filter(|_| op == Op::PreMulSum);
        let manner = Manner {
            tree: self.tree,
            scaled: scaled.map(|source| (source, element(&before, dtype, len - 8, 0))),
        };
        let out = places.pop().unwrap();
        let out = self.in_place.map_or(out, |source| places[source]);
        let bytes = self.count * dtype.size();

        let mut after = before.clone();
        let whole = Region::of_mut(&mut after);
        let sources: Vec<Region<'_>> = places.iter().map(|&at| whole.part(at, bytes)).collect();
        run(op, dtype, self.finish, manner, &sources, &whole.part(out, bytes));

        for i in 0..self.count {
            let elements: Vec<u64> = places.iter().map(|&at| element(&before, dtype, at, i)).collect();
            let want = expected(op, dtype, self.finish, manner, &elements);
            let got = element(&after, dtype, out, i);
            let got = if want == Value::NaN {
                value_of(dtype, got)
            } else {
                Value::Bits(got)
            };
            assert_eq!(got, want, "{op} of {dtype}, element {i}: {elements:x?}");
        }
        assert_eq!(
            after[..out],
            before[..out],
            "{op} of {dtype} wrote before its destination"
        );
        assert_eq!(
            after[out + bytes..],
            before[out + bytes..],
            "{op} of {dtype} wrote past its destination"
        );
    }

    fn check_all(&self, run: Run) {
        for dtype in DType::ALL {
            let all = Op::ALL.into_iter().chain([Op::PreMulSum]);
            for op in all.filter(|op| op.accepts(dtype)) {
                self.check(op, dtype, run);
            }
        }
    }
}

/// [`reduce_as`], or something like it.
type Run = fn(Op, DType, Option<usize>, Manner, &[Region<'_>], &Region<'_>);

/// [`reduce_as`] with the portable kernels, whatever the length.
fn reduce_portably(
    op: Op,
    dtype: DType,
    finish: Option<usize>,
    manner: Manner,
    sources: &[Region<'_>],
    dst: &Region<'_>,
) {
    match sources {
        [only] if (op != Op::Avg || finish.is_none()) && manner.scaled.is_none() => dst.copy_from(only),
        _ => kernels::portable(Pass {
            op,
            dtype,
            finish: finish.and_then(NonZero::new),
            manner,
            sources,
            dst,
        }),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_type_and_operation_is_right(case in Case::any()) {
        case.check_all(reduce_as);
    }

    #[test]
    fn the_portable_kernels_are_right_at_any_length(case in Case::any()) {
        case.check_all(reduce_portably);
    }
}

/// Every length around the blocks' edges, in place and not.
#[test]
fn every_length_around_a_block_is_right() {
    for count in (0..40)
        .chain(60..70)
        .chain(120..140)
        .chain(250..262)
        .chain(500..530)
    {
        for in_place in [None, Some(0), Some(1)] {
            let case = Case {
                count,
                gaps: vec![1, 3, 5],
                in_place,
                scaled: Some(count % 2),
                finish: Some(2),
                tree: count % 3 == 0,
                seed: count as u64,
            };
            case.check_all(reduce_as);
        }
    }
}

/// Reduces equally long slices into a new vector.
fn of<T: crate::types::Element + Default>(op: Op, finish: Option<usize>, sources: &[&[T]]) -> Vec<T> {
    let mut result = vec![T::default(); sources[0].len()];
    let sources: Vec<Region<'_>> = sources.iter().map(|source| Region::of(source)).collect();
    reduce(op, T::DTYPE, finish, &sources, &Region::of_mut(&mut result));
    result
}

#[test]
fn small_floats_are_rounded_once() {
    // Each addition of 1 alone would be lost: 2048 + 1 is a tie in float16, 256 + 1 in bfloat16, 16 + 1 in E4M3.
    let half = |x: f32| vec![f16::from_f32(x); 200];
    assert_eq!(
        of(Op::Sum, None, &[&half(2048.0), &half(1.0), &half(1.0)]),
        half(2050.0)
    );
    let brain = |x: f32| vec![bf16::from_f32(x); 200];
    assert_eq!(
        of(Op::Sum, None, &[&brain(256.0), &brain(1.0), &brain(1.0)]),
        brain(258.0)
    );
    let eight = |x: f32| vec![F8E4M3::from_f32(x); 200];
    assert_eq!(
        of(Op::Sum, None, &[&eight(16.0), &eight(1.0), &eight(1.0)]),
        eight(18.0)
    );
}

#[test]
fn an_average_is_divided_once_before_it_is_rounded() {
    let half = vec![f16::MAX; 200];
    assert_eq!(of(Op::Avg, Some(2), &[&half, &half]), half);
    assert_eq!(of(Op::Avg, None, &[&half, &half]), vec![f16::INFINITY; 200]);
    assert_eq!(of(Op::Avg, Some(4), &[&[6.0f64][..]]), [1.5]);
    assert_eq!(of(Op::Avg, None, &[&[6.0f64][..]]), [6.0]);
    assert_eq!(of(Op::Sum, Some(4), &[&[6.0f64][..], &[1.0]]), [7.0]);
}

#[test]
fn integer_averages_go_toward_zero_after_the_sum_wrapped() {
    assert_eq!(
        of(Op::Avg, Some(2), &[&[-3i32, 3, -4][..], &[-4, 4, 4]]),
        [-3, 3, 0]
    );
    assert_eq!(of(Op::Avg, Some(2), &[&[100i8][..], &[100]]), [-28]);
    assert_eq!(of(Op::Avg, Some(300), &[&[-128i8, 127][..], &[0, 0]]), [0, 0]);
    assert_eq!(of(Op::Avg, Some(3), &[&[u64::MAX][..], &[0]]), [u64::MAX / 3]);
}

#[test]
fn integer_quotients_are_exact() {
    for ranks in (1..300).chain([65535, 65536, 1 << 24, (1 << 24) + 1, 1 << 60]) {
        let n = NonZero::new(ranks).unwrap();
        for number in i16::MIN..=i16::MAX {
            assert_eq!(i64::from(number.over(n)), i64::from(number) / ranks as i64);
            assert_eq!(
                u64::from((number as u16).over(n)),
                u64::from(number as u16) / ranks as u64
            );
        }
        // Where a quotient is closest to the next whole number: just below a multiple, near the type's end.
        let multiple = u32::MAX - (u64::from(u32::MAX) % ranks as u64) as u32;
        for number in [multiple, multiple.saturating_sub(1), u32::MAX, u32::MAX / 2] {
            assert_eq!(u64::from(number.over(n)), u64::from(number) / ranks as u64);
            assert_eq!(
                i64::from((number as i32).over(n)),
                i64::from(number as i32) / ranks as i64
            );
        }
    }
}

#[test]
fn integers_wrap() {
    assert_eq!(of(Op::Sum, None, &[&[i32::MAX][..], &[1]]), [i32::MIN]);
    assert_eq!(of(Op::Prod, None, &[&[200u8][..], &[2]]), [144]);
}

#[test]
fn nan_wins_and_zeros_are_ordered() {
    for (a, b) in [
        (f32::NAN, 1.0),
        (1.0, f32::NAN),
        (f32::NAN, f32::NAN),
        (f32::NEG_INFINITY, -f32::NAN),
    ] {
        for op in [Op::Max, Op::Min, Op::Sum, Op::Prod] {
            assert!(
                of(op, None, &[&[a; 200][..], &[b; 200]])
                    .iter()
                    .all(|x| x.is_nan()),
                "{op} of {a}, {b}"
            );
        }
    }
    for (a, b) in [(0.0f64, -0.0f64), (-0.0, 0.0)] {
        assert!(of(Op::Max, None, &[&[a][..], &[b]])[0].is_sign_positive());
        assert!(of(Op::Min, None, &[&[a][..], &[b]])[0].is_sign_negative());
    }
}

/// By the tree, sums of floats come out as one, however many ranks' sums are in a source.
#[test]
fn a_tree_of_trees_is_the_tree() {
    let values: Vec<[f32; 33]> = (0..4100u32)
        .map(|rank| {
            std::array::from_fn(|i| ((rank * 7919 + i as u32 * 104_729) % 100_003) as f32 / 7.0 - 5000.0)
        })
        .collect();
    let manner = Manner {
        tree: true,
        scaled: None,
    };
    let of = |sources: &[[f32; 33]]| {
        let mut sum = [0f32; 33];
        let regions: Vec<Region<'_>> = sources.iter().map(|source| Region::of(source)).collect();
        reduce_as(
            Op::Sum,
            DType::Float32,
            None,
            manner,
            &regions,
            &Region::of_mut(&mut sum),
        );
        sum
    };
    for ranks in (2..70).chain([127, 128, 129, 1000, 4100]) {
        let values = &values[..ranks];
        let (low, high) = values.split_at(ranks.next_power_of_two() / 2);
        assert_eq!(of(values), of(&[of(low), of(high)]), "{ranks} ranks");
    }
}

#[test]
fn a_tree_has_one_nan() {
    let manner = Manner {
        tree: true,
        scaled: None,
    };
    for op in [Op::Sum, Op::Prod, Op::Max, Op::Min, Op::Avg] {
        for bits in [0x7fc0_0000u32, 0xffc0_1234, 0x7f80_0001] {
            for (a, b) in [(f32::from_bits(bits), 1.0), (-2.0, f32::from_bits(bits))] {
                let mut result = [0f32; 200];
                let (a, b) = ([a; 200], [b; 200]);
                let sources = [Region::of(&a), Region::of(&b)];
                reduce_as(
                    op,
                    DType::Float32,
                    Some(2),
                    manner,
                    &sources,
                    &Region::of_mut(&mut result),
                );
                assert!(result.iter().all(|x| x.to_bits() == f32::NAN.to_bits()), "{op}");
            }
        }
    }
}

#[test]
fn a_source_may_come_twice_and_be_the_destination() {
    let mut numbers: Vec<i32> = (0..1000).collect();
    let region = Region::of_mut(&mut numbers);
    reduce(Op::Sum, DType::Int32, None, &[region, region, region], &region);
    assert!(numbers.iter().zip(0..).all(|(&sum, i)| sum == 3 * i));
}

#[test]
fn one_source_is_copied_bit_for_bit() {
    let signalling = f32::from_bits(0x7f80_0001);
    assert_eq!(
        of(Op::Max, Some(4), &[&[signalling][..]])[0].to_bits(),
        0x7f80_0001
    );
}

#[test]
fn sixteen_bit_floats_come_back_from_float32() {
    for code in 0..=u16::MAX {
        let (half, brain) = (f16::from_bits(code), bf16::from_bits(code));
        match half.is_nan() {
            true => assert!(<f16 as Number>::narrow(half.widen()).is_nan()),
            false => assert_eq!(<f16 as Number>::narrow(half.widen()).to_bits(), code),
        }
        match brain.is_nan() {
            true => assert!(<bf16 as Number>::narrow(brain.widen()).is_nan()),
            false => assert_eq!(<bf16 as Number>::narrow(brain.widen()).to_bits(), code),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn bfloat16_is_rounded_as_half_rounds_it(bits: u32, tie: bool) {
        let x = f32::from_bits(if tie { bits & 0xffff_0000 | 0x8000 } else { bits });
        let (ours, theirs) = (<bf16 as Number>::narrow(x), bf16::from_f32(x));
        prop_assert!(ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(), "{:e}", x);
    }
}

#[test]
#[should_panic(expected = "bitxor of float32")]
fn bits_of_floats_are_refused() {
    of(Op::BitXor, None, &[&[1.0f32][..], &[1.0]]);
}

#[test]
#[should_panic(expected = "a reduction of regions of different lengths")]
fn different_lengths_are_refused() {
    of(Op::Sum, None, &[&[1u8, 2][..], &[1]]);
}

#[test]
#[should_panic(expected = "3 bytes are not whole elements of int16")]
fn parts_of_elements_are_refused() {
    let mut bytes = [0u8; 3];
    let region = Region::of_mut(&mut bytes);
    reduce(Op::Sum, DType::Int16, None, &[region, region], &region);
}

#[test]
#[should_panic(expected = "a reduction of nothing")]
fn no_sources_are_refused() {
    reduce(Op::Sum, DType::Int16, None, &[], &Region::empty());
}
