//! Averages: quotients by a number that is known beforehand, by multiplications in the place of divisions.
//!
//! Sources: Granlund and Montgomery, "Division by invariant integers using multiplication" (1994), for integers; Brisebarre,
//! Muller and Raina, "Accelerating correctly rounded floating-point division when the divisor is known in advance" (2004).

use super::number::Number;
use std::num::NonZero;

/// An integer type whose totals are divided, toward zero.
pub(super) trait Quotient: Number {
    /// What is worked out once for all quotients by the same number.
    type Divisor: Copy;

    /// For at least two ranks.
    fn divisor(ranks: NonZero<usize>) -> Self::Divisor;

    /// Divides all.
    fn divide<const N: usize>(totals: &mut [Self::Wide; N], divisor: Self::Divisor);
}

/// To divide magnitudes of a type: the upper half of the product with `factor`, shifted.
#[derive(Clone, Copy)]
pub(super) struct Reciprocal<U> {
    factor: U,
    shift: u32,
}

macro_rules! reciprocals {
    ($($u:ty, $twice:ty, $high:ident;)*) => {$(
        impl Reciprocal<$u> {
            /// For magnitudes up to half of what the type holds. With 2^shift < ranks ≤ 2^(shift + 1) and the next factor above
            /// 2^(bits + shift) / ranks, the product is too large by less than a 2^(bits + shift)th of ranks times the magnitude,
            /// which is at most one: too little to reach the next whole number.
            fn of_signed(ranks: NonZero<usize>) -> Self {
                let (ranks, shift) = Self::bounded(ranks);
                let factor = ((1 << (<$u>::BITS + shift)) / ranks + 1) as $u;
                Reciprocal { factor, shift }
            }

            /// For all magnitudes: the factor, which has a bit more than the type, without its first one.
            fn of_unsigned(ranks: NonZero<usize>) -> Self {
                let (ranks, shift) = Self::bounded(ranks);
                let above = (1 << (shift + 1)) - ranks;
                let factor = ((above << <$u>::BITS) / ranks + 1) as $u;
                Reciprocal { factor, shift }
            }

            /// Ranks, from two to one more than the largest magnitude, and the exponent of the power of two below.
            fn bounded(ranks: NonZero<usize>) -> ($twice, u32) {
                let ranks = (ranks.get() as u128).clamp(2, u128::from(<$u>::MAX) + 1) as $twice;
                (ranks, (ranks - 1).ilog2())
            }

            #[inline(always)]
            fn quotients_of_signed<const N: usize>(self, magnitudes: &mut [$u; N]) {
                let whole = $high(magnitudes, self.factor);
                for (magnitude, whole) in magnitudes.iter_mut().zip(whole) {
                    *magnitude = whole.wrapping_shr(self.shift);
                }
            }

            #[inline(always)]
            fn quotients_of_unsigned<const N: usize>(self, magnitudes: &mut [$u; N]) {
                let whole = $high(magnitudes, self.factor);
                for (magnitude, whole) in magnitudes.iter_mut().zip(whole) {
                    // No larger than the magnitude, and the sum no larger than the type holds.
                    let half = magnitude.wrapping_sub(whole) >> 1;
                    *magnitude = half.wrapping_add(whole).wrapping_shr(self.shift);
                }
            }
        }
    )*};
}

reciprocals! {
    u16, u32, high_16;
    u32, u64, high_32;
    u64, u128, high_64;
}

/// The upper halves of the products.
#[inline(always)]
fn high_16<const N: usize>(numbers: &[u16; N], factor: u16) -> [u16; N] {
    numbers.map(|number| ((u32::from(number) * u32::from(factor)) >> 16) as u16)
}

/// The same, of the numbers in both halves of 64 bits: processors multiply one of them in each.
#[inline(always)]
fn high_32<const N: usize>(numbers: &[u32; N], factor: u32) -> [u32; N] {
    const LOWER: u64 = u32::MAX as u64;
    let factor = u64::from(factor);
    let mut high = *numbers;
    if N.is_multiple_of(2) {
        for i in 0..N / 2 {
            // SAFETY: two of the `N` numbers lie there, 64 bits.
            unsafe {
                let two = numbers.as_ptr().cast::<u64>().add(i).read_unaligned();
                let (lower, upper) = ((two & LOWER) * factor, (two >> 32) * factor);
                high.as_mut_ptr()
                    .cast::<u64>()
                    .add(i)
                    .write_unaligned(lower >> 32 | upper & !LOWER);
            }
        }
    } else {
        high = high.map(|number| ((u64::from(number) * factor) >> 32) as u32);
    }
    high
}

#[inline(always)]
fn high_64<const N: usize>(numbers: &[u64; N], factor: u64) -> [u64; N] {
    numbers.map(|number| ((u128::from(number) * u128::from(factor)) >> 64) as u64)
}

/// Divides bytes: 2^16 over ranks, rounded up, is precise enough without a shift, as ranks times a byte are less than 2^16. (Of
/// more ranks than that every quotient is 0, and comes out so.) Both bytes of 16 bits are multiplied in their places.
#[inline(always)]
fn divide_bytes<const N: usize>(bytes: &mut [u8; N], factor: u16) {
    const LOWER: u16 = 0xff;
    let factor = u32::from(factor);
    if N.is_multiple_of(2) {
        for i in 0..N / 2 {
            // SAFETY: two of the `N` bytes lie there.
            unsafe {
                let at = bytes.as_mut_ptr().cast::<u16>().add(i);
                let two = at.read_unaligned();
                let lower = ((u32::from(two & LOWER) * factor) >> 16) as u16;
                let upper = ((u32::from(two & !LOWER) * factor) >> 16) as u16;
                at.write_unaligned(lower | upper & !LOWER);
            }
        }
    } else {
        for byte in bytes {
            *byte = ((u32::from(*byte) * factor) >> 16) as u8;
        }
    }
}

fn factor_of_bytes(ranks: NonZero<usize>) -> u16 {
    ((1 << 16) / ranks.get().max(2) + 1) as u16
}

impl Quotient for u8 {
    type Divisor = u16;

    #[inline(always)]
    fn divisor(ranks: NonZero<usize>) -> u16 {
        factor_of_bytes(ranks)
    }

    #[inline(always)]
    fn divide<const N: usize>(totals: &mut [u8; N], factor: u16) {
        divide_bytes(totals, factor);
    }
}

/// Divides the magnitudes of signed integers.
macro_rules! by_magnitude {
    ($totals:ident, |$magnitudes:ident| $divide:expr) => {{
        let mut $magnitudes = $totals.map(|total| total.unsigned_abs());
        $divide;
        for (total, magnitude) in $totals.iter_mut().zip($magnitudes) {
            let quotient = magnitude as _;
            *total = if *total < 0 { 0 - quotient } else { quotient };
        }
    }};
}

impl Quotient for i8 {
    type Divisor = u16;

    #[inline(always)]
    fn divisor(ranks: NonZero<usize>) -> u16 {
        factor_of_bytes(ranks)
    }

    #[inline(always)]
    fn divide<const N: usize>(totals: &mut [i8; N], factor: u16) {
        by_magnitude!(totals, |magnitudes| divide_bytes(&mut magnitudes, factor));
    }
}

macro_rules! quotients {
    ($($u:ty, $i:ty;)*) => {$(
        impl Quotient for $u {
            type Divisor = Reciprocal<$u>;

            #[inline(always)]
            fn divisor(ranks: NonZero<usize>) -> Self::Divisor {
                Reciprocal::<$u>::of_unsigned(ranks)
            }

            #[inline(always)]
            fn divide<const N: usize>(totals: &mut [$u; N], divisor: Self::Divisor) {
                divisor.quotients_of_unsigned(totals);
            }
        }

        impl Quotient for $i {
            type Divisor = Reciprocal<$u>;

            #[inline(always)]
            fn divisor(ranks: NonZero<usize>) -> Self::Divisor {
                Reciprocal::<$u>::of_signed(ranks)
            }

            #[inline(always)]
            fn divide<const N: usize>(totals: &mut [$i; N], divisor: Self::Divisor) {
                by_magnitude!(totals, |magnitudes| divisor.quotients_of_signed(&mut magnitudes));
            }
        }
    )*};
}

quotients! {
    u16, i16;
    u32, i32;
    u64, i64;
}

/// A float's division by a number of ranks as a product with two floats, whose sum is the reciprocal to twice the precision.
#[derive(Clone, Copy)]
pub(super) struct Inverse<W> {
    pub(super) high: W,
    pub(super) low: W,
    pub(super) ranks: W,
}
