//! The operations, each as a small type.

use super::number::{Arithmetic, Float, Number};
use super::quotient::{Inverse, Quotient};
use std::num::NonZero;
use std::ops::{BitAnd, BitOr, BitXor};

/// What a reduction does with its contributions, in their accumulator type `W`.
pub(super) trait Operator<W>: Copy {
    /// Two contributions, the earlier one first, as one.
    fn combine(self, so_far: W, next: W) -> W;

    /// A contribution of the `source`-th source, as it is read.
    #[inline(always)]
    fn read(self, _source: usize, value: W) -> W {
        value
    }

    /// What is done once, after the last contribution.
    #[inline(always)]
    fn finish<const N: usize>(self, _totals: &mut [W; N]) {}
}

/// Addition of floats, then the division by `ranks`.
#[derive(Clone, Copy)]
pub(super) struct Average {
    pub(super) ranks: NonZero<usize>,
}

impl<W: Float> Operator<W> for Average {
    #[inline(always)]
    fn combine(self, so_far: W, next: W) -> W {
        so_far.plus(next)
    }

    #[inline(always)]
    fn finish<const N: usize>(self, totals: &mut [W; N]) {
        totals
            .iter_mut()
            .for_each(|total| *total = total.over(self.ranks));
    }
}

/// The same by multiplications, for processors that multiply and add in one instruction.
#[derive(Clone, Copy)]
pub(super) struct FusedAverage<T: Number>(pub(super) Inverse<T::Wide>);

impl<T: Number<Wide: Float>> Operator<T::Wide> for FusedAverage<T> {
    #[inline(always)]
    fn combine(self, so_far: T::Wide, next: T::Wide) -> T::Wide {
        so_far.plus(next)
    }

    #[inline(always)]
    fn finish<const N: usize>(self, totals: &mut [T::Wide; N]) {
        T::Wide::divide(totals, self.0, T::TINY);
    }
}

/// Addition of integers, then the division.
#[derive(Clone, Copy)]
pub(super) struct WholeAverage<T: Quotient>(pub(super) T::Divisor);

impl<T: Quotient<Wide: Arithmetic>> Operator<T::Wide> for WholeAverage<T> {
    #[inline(always)]
    fn combine(self, so_far: T::Wide, next: T::Wide) -> T::Wide {
        so_far.plus(next)
    }

    #[inline(always)]
    fn finish<const N: usize>(self, totals: &mut [T::Wide; N]) {
        T::divide(totals, self.0);
    }
}

/// Addition, then the multiplication by `factor`.
#[derive(Clone, Copy)]
pub(super) struct Share<W> {
    pub(super) factor: W,
}

impl<W: Arithmetic> Operator<W> for Share<W> {
    #[inline(always)]
    fn combine(self, so_far: W, next: W) -> W {
        so_far.plus(next)
    }

    #[inline(always)]
    fn finish<const N: usize>(self, totals: &mut [W; N]) {
        totals
            .iter_mut()
            .for_each(|total| *total = total.times(self.factor));
    }
}

/// An operator whose results have one NaN for all.
#[derive(Clone, Copy)]
pub(super) struct Canonical<O>(pub(super) O);

impl<W: Arithmetic, O: Operator<W>> Operator<W> for Canonical<O> {
    #[inline(always)]
    fn read(self, source: usize, value: W) -> W {
        self.0.read(source, value)
    }

    #[inline(always)]
    fn combine(self, so_far: W, next: W) -> W {
        self.0.combine(so_far, next)
    }

    #[inline(always)]
    fn finish<const N: usize>(self, totals: &mut [W; N]) {
        self.0.finish(totals);
        totals.iter_mut().for_each(|total| *total = total.canonical());
    }
}

/// Addition, with the contributions of one source multiplied by a scalar first, and rounded to elements: several ranks may reduce the same
/// ones, some where they are multiplied and some where they come to.
#[derive(Clone, Copy)]
pub(super) struct Scaled<T> {
    pub(super) source: usize,
    pub(super) scalar: T,
}

impl<T: Number<Wide: Arithmetic>> Operator<T::Wide> for Scaled<T> {
    #[inline(always)]
    fn read(self, source: usize, value: T::Wide) -> T::Wide {
        if source != self.source {
            return value;
        }
        T::narrow(value.times(self.scalar.widen())).widen()
    }

    #[inline(always)]
    fn combine(self, so_far: T::Wide, next: T::Wide) -> T::Wide {
        so_far.plus(next)
    }
}

macro_rules! operators {
    ($($(#[$doc:meta])* $name:ident: $wide:path, $method:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(super) struct $name;

        impl<W: $wide> Operator<W> for $name {
            #[inline(always)]
            fn combine(self, so_far: W, next: W) -> W {
                so_far.$method(next)
            }
        }
    )*};
}

operators! {
    /// Addition.
    Sum: Arithmetic, plus;
    /// Multiplication.
    Prod: Arithmetic, times;
    /// The largest.
    Max: Arithmetic, larger;
    /// The smallest.
    Min: Arithmetic, smaller;
    /// Bitwise and.
    And: BitAnd<Output = W>, bitand;
    /// Bitwise or.
    Or: BitOr<Output = W>, bitor;
    /// Bitwise exclusive or.
    Xor: BitXor<Output = W>, bitxor;
}
