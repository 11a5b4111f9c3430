//! float16: by the processor's own conversions where a kernel may use them, else by bit operations.

#[cfg(target_arch = "x86_64")]
use super::avx512::Chunked;
use super::number::Number;
use crate::types::float8;
use half::f16;

impl Number for f16 {
    type Wide = f32;
    #[cfg(target_arch = "x86_64")]
    type Avx2 = f16c::Converted;
    #[cfg(target_arch = "x86_64")]
    type Avx512 = Chunked<Self>;
    #[cfg(not(target_arch = "x86_64"))]
    type Avx2 = Self;
    #[cfg(not(target_arch = "x86_64"))]
    type Avx512 = Self;
    const TINY: bool = false;

    #[inline(always)]
    fn widen(self) -> f32 {
        float8::widen::<5, 10>(self.to_bits().into(), 0x7c00)
    }

    #[inline(always)]
    fn narrow(wide: f32) -> Self {
        let bits = wide.to_bits();
        let rounded = float8::narrow::<5, 10>(bits & float8::MAGNITUDE).min(0x7c00);
        let quieted = 0x7e00 | bits >> 13 & 0x3ff;
        let code = if wide.is_nan() { quieted } else { rounded };
        f16::from_bits((bits >> 16 & 0x8000 | code) as u16)
    }
}

#[cfg(target_arch = "x86_64")]
mod f16c {
    use super::{Number, f16};
    use crate::reduce::order::Ordered;
    use std::arch::x86_64::{__m128i, __m256, _MM_FROUND_TO_NEAREST_INT, _mm256_cvtph_ps, _mm256_cvtps_ph};
    use std::mem::transmute;

    /// [`f16`] in kernels for processors with AVX2 and F16C. It is used in no others, by [`Number::Avx2`]'s contract.
    #[derive(Clone, Copy)]
    #[repr(transparent)]
    pub(in super::super) struct Converted(f16);

    impl Ordered for Converted {
        type ForMax = <f16 as Ordered>::ForMax;
        type ForMin = <f16 as Ordered>::ForMin;
    }

    impl Number for Converted {
        type Wide = f32;
        type Avx2 = Self;
        type Avx512 = Self;
        const FUSED: bool = true;
        const TINY: bool = false;

        #[inline(always)]
        fn widen(self) -> f32 {
            self.0.widen()
        }

        #[inline(always)]
        fn narrow(wide: f32) -> Self {
            Converted(f16::narrow(wide))
        }

        #[inline(always)]
        unsafe fn load<const N: usize>(from: *const Self, mut take: impl FnMut(usize, f32)) {
            let mut wide = [0.0; N];
            let (eights, rest) = wide.as_chunks_mut::<8>();
            let done = N - rest.len();
            for (i, to) in eights.iter_mut().enumerate() {
                // SAFETY: eight of the caller's elements lie there, 128 bits, at any address. The processor has F16C:
                // see the type. A register of eight float32 is an array of them.
                *to = unsafe {
                    let eight = from.add(8 * i).cast::<__m128i>().read_unaligned();
                    transmute::<__m256, [f32; 8]>(_mm256_cvtph_ps(eight))
                };
            }
            for (i, to) in rest.iter_mut().enumerate() {
                // SAFETY: one of the caller's elements.
                *to = unsafe { from.add(done + i).read_unaligned() }.widen();
            }
            for (i, value) in wide.into_iter().enumerate() {
                take(i, value);
            }
        }

        #[inline(always)]
        unsafe fn store<const N: usize>(to: *mut Self, give: impl Fn(usize) -> f32) {
            let mut wide = [0.0; N];
            for (i, value) in wide.iter_mut().enumerate() {
                *value = give(i);
            }
            let (eights, rest) = wide.as_chunks::<8>();
            for (i, from) in eights.iter().enumerate() {
                // SAFETY: as in `load`, the other way.
                unsafe {
                    let eight = transmute::<[f32; 8], __m256>(*from);
                    let narrow = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(eight);
                    to.add(8 * i).cast::<__m128i>().write_unaligned(narrow);
                }
            }
            for (i, from) in rest.iter().enumerate() {
                // SAFETY: room for one of the caller's elements.
                unsafe { to.add(N - rest.len() + i).write_unaligned(Self::narrow(*from)) };
            }
        }
    }
}
