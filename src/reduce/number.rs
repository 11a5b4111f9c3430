//! How each element type is read, accumulated and rounded.

#[cfg(target_arch = "x86_64")]
use super::avx512::{Chunked, Long};
use super::order::Ordered;
use super::quotient::Inverse;
use crate::types::{F8E4M3, F8E5M2};
use half::bf16;
use std::num::NonZero;

/// An element as it lies in memory. Any bytes are a valid one.
pub(super) trait Number: Copy {
    /// What it is accumulated in.
    type Wide: Copy + Default;

    /// Stands for this type in kernels that may use AVX2 and F16C instructions, and is used in no others.
    type Avx2: Number<Wide = Self::Wide>;

    /// The same for kernels that may use the AVX-512 instructions of Ice Lake and later.
    type Avx512: Number<Wide = Self::Wide>;

    /// Whether kernels of this type may multiply and add in one instruction.
    const FUSED: bool = false;

    /// Whether there are numbers that a product with a small one takes out of the wide type's range.
    const TINY: bool = true;

    /// The same value in the wide type.
    fn widen(self) -> Self::Wide;

    /// The nearest element, ties to even.
    fn narrow(wide: Self::Wide) -> Self;

    /// Reads and widens `N` elements and passes each on with its index.
    ///
    /// # Safety
    /// `from` points to `N` readable elements, at any address.
    #[inline(always)]
    unsafe fn load<const N: usize>(from: *const Self, mut take: impl FnMut(usize, Self::Wide)) {
        for i in 0..N {
            // SAFETY: the caller's promise.
            take(i, unsafe { from.add(i).read_unaligned() }.widen());
        }
    }

    /// Narrows and writes `N` elements that are asked for by their index.
    ///
    /// # Safety
    /// `to` points to room for `N` elements, at any address.
    #[inline(always)]
    unsafe fn store<const N: usize>(to: *mut Self, give: impl Fn(usize) -> Self::Wide) {
        for i in 0..N {
            // SAFETY: the caller's promise.
            unsafe { to.add(i).write_unaligned(Self::narrow(give(i))) };
        }
    }
}

/// A type that is accumulated in.
pub(super) trait Arithmetic: Copy {
    /// The sum; integers wrap.
    fn plus(self, other: Self) -> Self;
    /// The product; integers wrap.
    fn times(self, other: Self) -> Self;
    /// The larger; NaN wins, and +0 is larger than −0.
    fn larger(self, other: Self) -> Self;
    /// The smaller; NaN wins, and −0 is smaller than +0.
    fn smaller(self, other: Self) -> Self;
    /// The same, with one NaN for all.
    #[inline(always)]
    fn canonical(self) -> Self {
        self
    }
}

/// A float that is accumulated in.
pub(super) trait Float: Arithmetic {
    /// The quotient.
    fn over(self, ranks: NonZero<usize>) -> Self;
    /// What to multiply by for the same result as of the division, if there is such.
    fn factor(ranks: NonZero<usize>) -> Option<Self>;
    /// The same for [`Float::divide`], where there is no such factor.
    fn inverse(ranks: NonZero<usize>) -> Option<Inverse<Self>>;
    /// The quotients of all, to the bit, by multiplications unless one is tiny: `tiny` says whether that may be. For processors
    /// that multiply and add in one instruction.
    fn divide<const N: usize>(totals: &mut [Self; N], inverse: Inverse<Self>, tiny: bool);
}

/// Types that are their own accumulator, and what stands for them.
macro_rules! plain {
    ($($t:ty, $avx2:ty, $avx512:ty;)*) => {$(
        impl Number for $t {
            type Wide = Self;
            #[cfg(target_arch = "x86_64")]
            type Avx2 = $avx2;
            #[cfg(target_arch = "x86_64")]
            type Avx512 = $avx512;
            #[cfg(not(target_arch = "x86_64"))]
            type Avx2 = Self;
            #[cfg(not(target_arch = "x86_64"))]
            type Avx512 = Self;

            #[inline(always)]
            fn widen(self) -> Self {
                self
            }

            #[inline(always)]
            fn narrow(wide: Self) -> Self {
                wide
            }
        }
    )*};
}

plain! {
    i8, Self, Self;
    i16, Self, Self;
    i32, Self, Self;
    i64, Self, Long<Self>;
    u8, Self, Self;
    u16, Self, Self;
    u32, Self, Self;
    u64, Self, Long<Self>;
    f32, Fused<Self>, Fused<Self>;
    f64, Fused<Self>, Fused<Self>;
}

/// A float in kernels for processors that multiply and add in one instruction.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Fused<T>(T);

impl<T: Number> Number for Fused<T> {
    type Wide = T::Wide;
    type Avx2 = Self;
    type Avx512 = Self;
    const FUSED: bool = true;
    const TINY: bool = T::TINY;

    #[inline(always)]
    fn widen(self) -> T::Wide {
        self.0.widen()
    }

    #[inline(always)]
    fn narrow(wide: T::Wide) -> Self {
        Fused(T::narrow(wide))
    }
}

impl<T: Ordered> Ordered for Fused<T> {
    type ForMax = T::ForMax;
    type ForMin = T::ForMin;
}

macro_rules! integers {
    ($($t:ty)*) => {$(
        impl Arithmetic for $t {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            #[inline(always)]
            fn larger(self, other: Self) -> Self {
                self.max(other)
            }

            #[inline(always)]
            fn smaller(self, other: Self) -> Self {
                self.min(other)
            }
        }
    )*};
}

integers! { i8 i16 i32 i64 u8 u16 u32 u64 }

/// The bits of the operand that comes first, and of the one that comes first when they are asked the other way round.
/// These are the same, but for a NaN and for zeros of both signs, where they are those of either operand.
macro_rules! first {
    ($a:ident $before:tt $b:ident) => {
        (
            if $a $before $b { $a } else { $b }.to_bits(),
            if $b $before $a { $b } else { $a }.to_bits(),
        )
    };
}

/// Floats. Max and min are IEEE 754-2019's `maximum` and `minimum`, made of what processors have instructions for:
/// where the two answers of `first!` differ, "or" keeps a NaN a NaN and makes −0 of both zeros; for +0 the signs are
/// taken by "and".
macro_rules! floats {
    ($($t:ty, $sign:expr, $tiny:expr;)*) => {$(
        impl Arithmetic for $t {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }

            #[inline(always)]
            fn larger(self, other: Self) -> Self {
                let (a, b) = first!(self > other);
                Self::from_bits(a & b | (a | b) & !$sign)
            }

            #[inline(always)]
            fn smaller(self, other: Self) -> Self {
                let (a, b) = first!(self < other);
                Self::from_bits(a | b)
            }

            #[inline(always)]
            fn canonical(self) -> Self {
                if self.is_nan() { Self::NAN } else { self }
            }
        }

        impl Float for $t {
            #[inline(always)]
            fn over(self, ranks: NonZero<usize>) -> Self {
                self / ranks.get() as Self
            }

            #[inline(always)]
            fn factor(ranks: NonZero<usize>) -> Option<Self> {
                ranks.is_power_of_two().then(|| 1.0 / ranks.get() as Self)
            }

            /// `high` is rounded toward zero, so that both are positive: then their products with an infinity or a zero are
            /// alike, and so is their sum.
            #[inline(always)]
            fn inverse(ranks: NonZero<usize>) -> Option<Inverse<Self>> {
                if ranks.get() >= MANY || ranks.is_power_of_two() {
                    return None;
                }
                let ranks = ranks.get() as Self;
                let nearest = 1.0 / ranks;
                let high = if (-ranks).mul_add(nearest, 1.0) < 0.0 { nearest.next_down() } else { nearest };
                let low = (-ranks).mul_add(high, 1.0) / ranks;
                Some(Inverse { high, low, ranks })
            }

            /// The sum of both products, before it is rounded, is off by less than a 2^(2p − 2)th of itself, p being the bits of
            /// the mantissa. A quotient is further than that from the middle of two floats: less than 2^20 ranks (`MANY`) times
            /// such a middle, a number of p + 1 bits, differ from all numbers of p bits by one in the last of p + 21 bits, if
            /// at all, and cannot be one. So the sum is rounded as the quotient would be. What is no longer precise near the
            /// smallest numbers is divided.
            #[inline(always)]
            fn divide<const N: usize>(totals: &mut [Self; N], inverse: Inverse<Self>, tiny: bool) {
                // A zero comes out as the largest.
                let key = |total: &Self| (total.to_bits() << 1).wrapping_sub(1);
                let smallest = totals.iter().fold($sign, |smallest, total| smallest.min(key(total)));
                if tiny && smallest < ($tiny as Self).to_bits() << 1 {
                    totals.iter_mut().for_each(|total| *total /= inverse.ranks);
                } else {
                    totals
                        .iter_mut()
                        .for_each(|total| *total = total.mul_add(inverse.high, *total * inverse.low));
                }
            }
        }
    )*};
}

/// Ranks from which on averages of floats are divided in any case.
const MANY: usize = 1 << 20;

floats! {
    f32, 1u32 << 31, 1e-15;
    f64, 1u64 << 63, 1e-200;
}

impl Number for bf16 {
    type Wide = f32;
    type Avx2 = Fused<Self>;
    #[cfg(target_arch = "x86_64")]
    type Avx512 = Chunked<Self>;
    #[cfg(not(target_arch = "x86_64"))]
    type Avx512 = Self;

    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    fn narrow(wide: f32) -> Self {
        let bits = wide.to_bits();
        // Half a unit of what stays, less one when it is even: a tie is carried only from odd to even.
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        let quieted = bits >> 16 | 0x40;
        bf16::from_bits(if wide.is_nan() { quieted } else { rounded } as u16)
    }
}

macro_rules! eight_bit_floats {
    ($($t:ty)*) => {$(
        impl Number for $t {
            type Wide = f32;
            type Avx2 = Fused<Self>;
            #[cfg(target_arch = "x86_64")]
            type Avx512 = Chunked<Self>;
            #[cfg(not(target_arch = "x86_64"))]
            type Avx512 = Self;
            const TINY: bool = false;

            #[inline(always)]
            fn widen(self) -> f32 {
                self.to_f32()
            }

            #[inline(always)]
            fn narrow(wide: f32) -> Self {
                Self::from_f32(wide)
            }
        }
    )*};
}

eight_bit_floats! { F8E4M3 F8E5M2 }
