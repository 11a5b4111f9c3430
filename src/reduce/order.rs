//! Small floats for max and min: as integers that are ordered as they are, which need no conversion.

use super::number::{Arithmetic, Number};
use crate::types::{F8E4M3, F8E5M2};
use half::{bf16, f16};

/// A float whose max and min are found by integers.
pub(super) trait Ordered: Number {
    /// Stands for this type, the largest integer for the largest number. NaN is larger than all.
    type ForMax: Number<Wide: Arithmetic>;
    /// Stands for this type, the largest integer for the smallest number. NaN is larger than all.
    type ForMin: Number<Wide: Arithmetic>;
}

/// A float by its bits, of which `INFINITY` is the largest magnitude that is no NaN. All NaN come out as the code `NAN`. With
/// `MIN` the order is turned round.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Key<B, const INFINITY: u16, const NAN: u16, const MIN: bool>(B);

macro_rules! keys {
    ($($bits:ty, $key:ty;)*) => {$(
        impl<const INFINITY: u16, const NAN: u16, const MIN: bool> Key<$bits, INFINITY, NAN, MIN> {
            /// The key of zero. That of the smallest number is 0; from the largest on follow NaN of both signs.
            const ZERO: $key = INFINITY as $key + 1;
            const LARGEST: $key = INFINITY as $key + Self::ZERO;

            /// From sign and magnitude to two's complement, or back.
            #[inline(always)]
            fn turned(bits: $bits) -> $bits {
                bits ^ (bits >> (<$bits>::BITS - 1) & <$bits>::MAX)
            }
        }

        impl<const INFINITY: u16, const NAN: u16, const MIN: bool> Number for Key<$bits, INFINITY, NAN, MIN> {
            type Wide = $key;
            type Avx2 = Self;
            type Avx512 = Self;

            #[inline(always)]
            fn widen(self) -> $key {
                let bits = if MIN { self.0 ^ <$bits>::MIN } else { self.0 };
                (Self::turned(bits) as $key).wrapping_add(Self::ZERO)
            }

            #[inline(always)]
            fn narrow(key: $key) -> Self {
                let bits = Self::turned(key.wrapping_sub(Self::ZERO) as $bits);
                let bits = if MIN { bits ^ <$bits>::MIN } else { bits };
                Key(if key > Self::LARGEST { NAN as $bits } else { bits })
            }
        }
    )*};
}

keys! {
    i8, u8;
    i16, u16;
}

macro_rules! ordered {
    ($($t:ty: $bits:ty, $infinity:literal, $nan:literal;)*) => {$(
        impl Ordered for $t {
            type ForMax = Key<$bits, $infinity, $nan, false>;
            type ForMin = Key<$bits, $infinity, $nan, true>;
        }
    )*};
}

ordered! {
    f16: i16, 0x7c00, 0x7e00;
    bf16: i16, 0x7f80, 0x7fc0;
    F8E4M3: i8, 0x7e, 0x7f;
    F8E5M2: i8, 0x7c, 0x7e;
}
