//! The kernels against a reference that goes one element at a time and computes as plainly as it can.

mod reference;
mod shapes;

#[cfg(target_arch = "x86_64")]
use super::avx512::Long;
#[cfg(target_arch = "x86_64")]
use super::kernels::Way;
use super::number::{Float, Number};
use super::quotient::Quotient;
use super::{Manner, Pair, reduce, reduce_as};
use crate::mem::Region;
use crate::sys::float_mode::rounding_up;
use crate::types::{DType, F8E4M3, Op};
use half::{bf16, f16};
use proptest::prelude::*;
use std::num::NonZero;

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

#[cfg(not(miri))]
#[test]
fn how_a_thread_rounds_changes_nothing() {
    // Half of a unit in the last place, and a little more than nothing: upward both would make the sum another one.
    let (ones, halves) = (vec![1.0f32; 20], vec![f32::EPSILON / 2.0; 20]);
    let sum = || of(Op::Sum, None, &[&ones, &halves]);
    assert_eq!([sum(), rounding_up(sum)], [ones.clone(), ones.clone()]);
    let average = || of(Op::Avg, Some(3), &[&[1.0f64][..], &[0.0], &[0.0]]);
    assert_eq!(average(), rounding_up(average));
    let pair = Pair::new(
        Op::Sum,
        DType::Float32,
        None,
        Manner::default(),
        size_of_val(&ones[..]),
    )
    .unwrap();
    let mut result = vec![0.0f32; 20];
    rounding_up(|| {
        pair.run(
            [Region::of(&ones), Region::of(&halves)],
            Region::of_mut(&mut result),
        )
    });
    assert_eq!(result, ones);
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

/// Quotients as kernels have them: of many totals, of few, and of one alone.
fn quotients<T: Quotient>(totals: &[T::Wide; 64], divisor: T::Divisor) -> [T::Wide; 64] {
    let mut all = *totals;
    T::divide(&mut all, divisor);
    let mut few = [totals[0], totals[1], totals[2]];
    T::divide(&mut few, divisor);
    all[..3].copy_from_slice(&few);
    all
}

macro_rules! divides_as_division {
    ($t:ty, $ranks:expr, $numbers:expr) => {{
        let ranks: NonZero<usize> = $ranks;
        let divisor = <$t as Quotient>::divisor(ranks);
        let mut numbers = $numbers;
        loop {
            let some: [$t; 64] = std::array::from_fn(|_| numbers.next().unwrap_or(0));
            let want = some.map(|number| (i128::from(number) / ranks.get() as i128) as $t);
            assert_eq!(quotients::<$t>(&some, divisor), want, "{some:?} over {ranks}");
            if some[63] == 0 {
                break;
            }
        }
    }};
}

#[test]
fn quotients_of_all_small_integers_are_exact() {
    let many = [65535, 65536, 65537, (1 << 24) + 1, 1 << 40, usize::MAX];
    for ranks in (2..=300).chain([32767, 32768, 32769]).chain(many) {
        let ranks = NonZero::new(ranks).unwrap();
        divides_as_division!(u8, ranks, 1..=u8::MAX);
        divides_as_division!(i8, ranks, (i8::MIN..=i8::MAX).filter(|&number| number != 0));
        if ranks.get() < 20 || ranks.get() % 8 == 7 || ranks.get() > 255 {
            divides_as_division!(u16, ranks, 1..=u16::MAX);
            divides_as_division!(i16, ranks, (i16::MIN..=i16::MAX).filter(|&number| number != 0));
        }
    }
}

#[test]
fn float_quotients_by_products_are_those_of_divisions() {
    let mut random = fastrand::Rng::with_seed(11);
    for ranks in (2..200)
        .chain((0..200).map(|i| 997 * i + 211))
        .chain([(1 << 20) - 1])
    {
        let ranks = NonZero::new(ranks).unwrap();
        if f32::factor(ranks).is_some() {
            continue; // whose reciprocals are exact
        }
        for round in 0..40 {
            let mut x: [f32; 32] = std::array::from_fn(|_| f32::from_bits(random.u32(..)));
            let mut y: [f64; 32] = std::array::from_fn(|_| f64::from_bits(random.u64(..)));
            // None of them tiny, and multiples of ranks and their neighbours.
            if round > 0 {
                for (x, y) in x.iter_mut().zip(&mut y) {
                    let number = random.u32(..1 << 24) as i32 - (1 << 23);
                    let change = random.i32(-1..=1);
                    *x = number as f32 * ranks.get() as f32;
                    *x = f32::from_bits(x.to_bits().wrapping_add_signed(change));
                    *x = if x.abs() < 1e-15 { -0.0 } else { *x };
                    *y = f64::from_bits(
                        (f64::from(number) * ranks.get() as f64 * 1.1).to_bits() ^ change as u64 & 3,
                    );
                    *y = if y.abs() < 1e-200 { 0.0 } else { *y };
                }
                x[0] = f32::NEG_INFINITY;
                y[0] = f64::NAN;
            }
            let (want_x, want_y) = (x.map(|x| x.over(ranks)), y.map(|y| y.over(ranks)));
            f32::divide(&mut x, f32::inverse(ranks).unwrap(), true);
            f64::divide(&mut y, f64::inverse(ranks).unwrap(), true);
            for i in 0..32 {
                assert!(x[i].to_bits() == want_x[i].to_bits() || x[i].is_nan() && want_x[i].is_nan());
                assert!(y[i].to_bits() == want_y[i].to_bits() || y[i].is_nan() && want_y[i].is_nan());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn quotients_of_large_integers_are_exact(
        ranks in prop_oneof![2usize..300, 2usize..1 << 25, 2usize..=usize::MAX], seed: u64, bits in 1u32..64,
    ) {
        let ranks = NonZero::new(ranks).unwrap();
        let mut random = fastrand::Rng::with_seed(seed);
        // Multiples of ranks and their neighbours, where a quotient is next to another, and the ends.
        let mut number = |i: usize| match i {
            0 => u64::MAX,
            1 => 1 << 63,
            2 => (1 << 63) - 1,
            _ => (random.u64(..) >> bits).wrapping_mul(ranks.get() as u64).wrapping_add(random.u64(..3)).wrapping_sub(1),
        };
        let numbers: [u64; 63] = std::array::from_fn(&mut number);
        divides_as_division!(u64, ranks, numbers.into_iter());
        divides_as_division!(i64, ranks, numbers.into_iter().map(|number| number as i64));
        divides_as_division!(u32, ranks, numbers.into_iter().map(|number| number as u32));
        divides_as_division!(u32, ranks, numbers.into_iter().map(|number| (number >> 32) as u32));
        divides_as_division!(i32, ranks, numbers.into_iter().map(|number| number as i32));
        divides_as_division!(i32, ranks, numbers.into_iter().map(|number| (number >> 32) as i32));
        #[cfg(target_arch = "x86_64")]
        if Way::Avx512.is_there() {
            let want = numbers.map(|number| number / ranks.get() as u64);
            let want_signed = numbers.map(|number| (i128::from(number as i64) / ranks.get() as i128) as i64);
            let (mut unsigned, mut signed) = (numbers, numbers.map(|number| number as i64));
            Long::<u64>::divide(&mut unsigned, Long::<u64>::divisor(ranks));
            Long::<i64>::divide(&mut signed, Long::<i64>::divisor(ranks));
            prop_assert_eq!(unsigned, want);
            prop_assert_eq!(signed, want_signed);
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
