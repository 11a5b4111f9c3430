//! How each element type is read, accumulated and rounded.

#[cfg(target_arch = "x86_64")]
use super::avx512::Chunked;
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
    /// The quotient; integers are rounded toward zero.
    fn over(self, ranks: NonZero<usize>) -> Self;
    /// What to multiply by for the same result as of the division, if there is such.
    #[inline(always)]
    fn inverse(_ranks: NonZero<usize>) -> Option<Self> {
        None
    }
    /// The same, with one NaN for all.
    #[inline(always)]
    fn canonical(self) -> Self {
        self
    }
}

/// Types that are their own accumulator.
macro_rules! plain {
    ($($t:ty)*) => {$(
        impl Number for $t {
            type Wide = Self;
            type Avx2 = Self;
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

plain! { i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 }

/// An integer over a number of ranks, toward zero. With a float and an integer type it is divided as that float, for which
/// there are vector instructions, and cut off to that integer type. The float's mantissa is so much longer than the
/// integer that no quotient is rounded up to the next whole number. (Ranks that it cannot represent are more than any
/// such integer: the quotient is 0 all the same.)
macro_rules! quotient {
    ($integer:expr, $ranks:expr,) => {
        $integer / $ranks as Self
    };
    ($integer:expr, $ranks:expr, $float:ty, $whole:ty) => {{
        let quotient = $integer as $float / $ranks as $float;
        // SAFETY: ranks are at least 1, so that the quotient is finite and no larger than the integer, which fits. (The
        // safe cast checks that, for each element apart.)
        unsafe { quotient.to_int_unchecked::<$whole>() as Self }
    }};
}

macro_rules! integers {
    ($($t:ty $(: $float:ty, $whole:ty)?;)*) => {$(
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

            #[inline(always)]
            fn over(self, ranks: NonZero<usize>) -> Self {
                quotient!(self, ranks.get(), $($float, $whole)?)
            }
        }
    )*};
}

integers! {
    i8: f32, i32;
    i16: f32, i32;
    i32: f64, i32;
    i64;
    u8: f32, i32;
    u16: f32, i32;
    u32: f64, u32;
    u64;
}

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
    ($($t:ty, $sign:expr;)*) => {$(
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
            fn over(self, ranks: NonZero<usize>) -> Self {
                self / ranks.get() as Self
            }

            #[inline(always)]
            fn inverse(ranks: NonZero<usize>) -> Option<Self> {
                ranks.is_power_of_two().then(|| 1.0 / ranks.get() as Self)
            }

            #[inline(always)]
            fn canonical(self) -> Self {
                if self.is_nan() { Self::NAN } else { self }
            }
        }
    )*};
}

floats! {
    f32, 1u32 << 31;
    f64, 1u64 << 63;
}

impl Number for bf16 {
    type Wide = f32;
    type Avx2 = Self;
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
            type Avx2 = Self;
            #[cfg(target_arch = "x86_64")]
            type Avx512 = Chunked<Self>;
            #[cfg(not(target_arch = "x86_64"))]
            type Avx512 = Self;

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
