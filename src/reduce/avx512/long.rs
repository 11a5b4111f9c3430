//! 64-bit integers in kernels for processors with AVX-512: their quotients, for which no instruction multiplies enough.

use crate::reduce::number::Number;
use crate::reduce::quotient::Quotient;
use std::arch::x86_64::*;
use std::num::NonZero;

/// A 64-bit integer, used in no other kernels, as [`Chunked`](super::Chunked).
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(in super::super) struct Long<T>(T);

/// To divide by `ranks`: as floats first, then what is left of it.
#[derive(Clone, Copy)]
pub(in super::super) struct Divisor<D> {
    /// A little less than 1 / ranks.
    inverse: f64,
    /// −ranks, of 52 bits.
    minus: u64,
    /// A little more than 2^52 / ranks.
    factor: u64,
    /// In the place of these, of so many ranks that they do not suffice.
    other: Option<D>,
}

impl<D> Divisor<D> {
    #[inline(always)]
    fn new(ranks: NonZero<usize>, other: impl Fn(NonZero<usize>) -> D) -> Self {
        let ranks_52 = ranks.get() as u64 & BITS_52;
        Divisor {
            inverse: (1.0 - LESS) / ranks.get() as f64,
            minus: ranks_52.wrapping_neg() & BITS_52,
            factor: (1 << 52) / ranks.get() as u64 + 1,
            other: (ranks.get() > MANY).then(|| other(ranks)),
        }
    }
}

const BITS_52: u64 = (1 << 52) - 1;

/// What a quotient of floats is made less by: more than the three roundings on the way to it can add, in whatever direction.
const LESS: f64 = 4.0 * f64::EPSILON;

/// Ranks up to which what the floats leave is less than 2^15 + 2·ranks, and times ranks less than 2^52.
const MANY: usize = 1 << 24;

/// Eight quotients. That of the floats is never too large, and too small by little; 52 bits suffice for what it leaves, and the
/// product with `factor` is precise for that.
#[inline(always)]
unsafe fn quotients<D>(numbers: __m512i, divisor: &Divisor<D>) -> __m512i {
    // SAFETY: the processor is as the caller says.
    unsafe {
        let floats = _mm512_mul_pd(_mm512_cvtepu64_pd(numbers), _mm512_set1_pd(divisor.inverse));
        let few = _mm512_cvttpd_epu64(floats);
        let left = _mm512_madd52lo_epu64(numbers, few, _mm512_set1_epi64(divisor.minus as i64));
        _mm512_madd52hi_epu64(few, left, _mm512_set1_epi64(divisor.factor as i64))
    }
}

macro_rules! long {
    ($($t:ty, |$numbers:ident, $divisor:ident| $quotients:expr;)*) => {$(
        impl Number for Long<$t> {
            type Wide = $t;
            type Avx2 = Self;
            type Avx512 = Self;

            #[inline(always)]
            fn widen(self) -> $t {
                self.0
            }

            #[inline(always)]
            fn narrow(wide: $t) -> Self {
                Long(wide)
            }
        }

        impl Quotient for Long<$t> {
            type Divisor = Divisor<<$t as Quotient>::Divisor>;

            #[inline(always)]
            fn divisor(ranks: NonZero<usize>) -> Self::Divisor {
                Divisor::new(ranks, <$t>::divisor)
            }

            #[inline(always)]
            fn divide<const N: usize>(totals: &mut [$t; N], divisor: Self::Divisor) {
                if let Some(other) = divisor.other {
                    return <$t>::divide(totals, other);
                }
                let $divisor = &divisor;
                let (eights, rest) = totals.as_chunks_mut::<8>();
                for eight in eights {
                    // SAFETY: eight numbers are a register; the processor has the instructions: see the type.
                    unsafe {
                        let at = eight.as_mut_ptr().cast();
                        let $numbers = _mm512_loadu_si512(at);
                        _mm512_storeu_si512(at, $quotients);
                    }
                }
                for total in rest {
                    let mut eight = [*total; 8];
                    // SAFETY: as above.
                    unsafe {
                        let at = eight.as_mut_ptr().cast();
                        let $numbers = _mm512_loadu_si512(at);
                        _mm512_storeu_si512(at, $quotients);
                    }
                    *total = eight[0];
                }
            }
        }
    )*};
}

long! {
    u64, |numbers, divisor| quotients(numbers, divisor);
    i64, |numbers, divisor| {
        let quotients = quotients(_mm512_abs_epi64(numbers), divisor);
        let negative = _mm512_movepi64_mask(numbers);
        _mm512_mask_sub_epi64(quotients, negative, _mm512_setzero_si512(), quotients)
    };
}
