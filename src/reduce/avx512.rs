//! 16- and 8-bit floats in kernels for processors with AVX-512: 64 elements at a time.

mod long;
#[cfg(test)]
mod tests;

pub(super) use long::Long;

use super::number::Number;
use super::order::Ordered;
use crate::types::{F8E4M3, F8E5M2, float8};
use half::{bf16, f16};
use std::arch::x86_64::*;
use std::mem::transmute;

/// A type of small floats in kernels for processors with AVX-512 as Ice Lake has it. It is used in no others, by
/// [`Number::Avx512`]'s contract: that is what the instructions below rely on.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Chunked<T>(T);

/// Float32 in a register of 16.
type Lanes = __m512;

/// Conversions of 64 elements, whose accumulators may lie in any order: that of one type is always the same.
pub(super) trait Chunk: Number<Wide = f32> {
    /// # Safety
    /// `from` points to 64 readable elements, at any address; the processor is as [`Chunked`] says.
    unsafe fn read(from: *const u8) -> [Lanes; 4];

    /// NaN among the numbers are those that arithmetic makes of what was read: quiet, and of no bits that elements lack.
    ///
    /// # Safety
    /// `to` points to room for 64 elements, at any address; the processor is as [`Chunked`] says.
    unsafe fn write(to: *mut u8, wide: [Lanes; 4]);
}

impl<T: Chunk> Number for Chunked<T> {
    type Wide = f32;
    type Avx2 = Self;
    type Avx512 = Self;
    const FUSED: bool = true;
    const TINY: bool = T::TINY;

    #[inline(always)]
    fn widen(self) -> f32 {
        self.0.widen()
    }

    #[inline(always)]
    fn narrow(wide: f32) -> Self {
        Chunked(T::narrow(wide))
    }

    #[inline(always)]
    unsafe fn load<const N: usize>(from: *const Self, mut take: impl FnMut(usize, f32)) {
        const { assert!(N < 64 || N.is_multiple_of(64)) }
        if N < 64 {
            // SAFETY: the caller's promise; both stand for the same type.
            return unsafe { T::Avx2::load::<N>(from.cast(), take) };
        }
        let mut wide = [0.0; N];
        for (i, to) in wide.as_chunks_mut::<64>().0.iter_mut().enumerate() {
            // SAFETY: 64 of the caller's elements; see the type. Four registers of 16 float32 are an array of 64.
            *to = unsafe { transmute::<[Lanes; 4], [f32; 64]>(T::read(from.add(64 * i).cast())) };
        }
        for (i, value) in wide.into_iter().enumerate() {
            take(i, value);
        }
    }

    #[inline(always)]
    unsafe fn store<const N: usize>(to: *mut Self, give: impl Fn(usize) -> f32) {
        if N < 64 {
            // SAFETY: as in `load`.
            return unsafe { T::Avx2::store::<N>(to.cast(), give) };
        }
        let mut wide = [0.0; N];
        for (i, value) in wide.iter_mut().enumerate() {
            *value = give(i);
        }
        for (i, from) in wide.as_chunks::<64>().0.iter().enumerate() {
            // SAFETY: as in `load`, the other way.
            unsafe { T::write(to.add(64 * i).cast(), transmute::<[f32; 64], [Lanes; 4]>(*from)) };
        }
    }
}

impl<T: Chunk + Ordered> Ordered for Chunked<T> {
    type ForMax = T::ForMax;
    type ForMin = T::ForMin;
}

impl Chunk for f16 {
    #[inline(always)]
    unsafe fn read(from: *const u8) -> [Lanes; 4] {
        // SAFETY: the caller's promises.
        unsafe {
            [
                _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())),
                _mm512_cvtph_ps(_mm256_loadu_si256(from.add(32).cast())),
                _mm512_cvtph_ps(_mm256_loadu_si256(from.add(64).cast())),
                _mm512_cvtph_ps(_mm256_loadu_si256(from.add(96).cast())),
            ]
        }
    }

    #[inline(always)]
    unsafe fn write(to: *mut u8, wide: [Lanes; 4]) {
        for (k, wide) in wide.into_iter().enumerate() {
            // SAFETY: the caller's promises.
            unsafe {
                let narrow = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(wide);
                _mm256_storeu_si256(to.add(32 * k).cast(), narrow);
            }
        }
    }
}

/// Two neighbours share four bytes and lie in the same lane of two registers.
impl Chunk for bf16 {
    #[inline(always)]
    unsafe fn read(from: *const u8) -> [Lanes; 4] {
        // SAFETY: the caller's promises.
        unsafe {
            let [a, b] = pairs(_mm512_loadu_si512(from.cast()));
            let [c, d] = pairs(_mm512_loadu_si512(from.add(64).cast()));
            [a, b, c, d]
        }
    }

    #[inline(always)]
    unsafe fn write(to: *mut u8, [a, b, c, d]: [Lanes; 4]) {
        // SAFETY: the caller's promises.
        unsafe {
            _mm512_storeu_si512(to.cast(), pair(a, b));
            _mm512_storeu_si512(to.add(64).cast(), pair(c, d));
        }
    }
}

/// The bfloat16 in the lower and in the upper halves, as float32.
#[inline(always)]
unsafe fn pairs(both: __m512i) -> [Lanes; 2] {
    // SAFETY: the processor is as the caller says.
    unsafe {
        let lower = _mm512_slli_epi32::<16>(both);
        let upper = _mm512_and_si512(both, _mm512_set1_epi32(!0xffff));
        [_mm512_castsi512_ps(lower), _mm512_castsi512_ps(upper)]
    }
}

/// The other way round.
#[inline(always)]
unsafe fn pair(lower: Lanes, upper: Lanes) -> __m512i {
    // SAFETY: the processor is as the caller says.
    unsafe {
        let lower = _mm512_srli_epi32::<16>(upper_half(lower));
        _mm512_mask_blend_epi16(0xaaaa_aaaa, lower, upper_half(upper))
    }
}

/// What `bf16::narrow` does, with the result in the upper half of each lane. It leaves the upper half of a NaN as it is, since the
/// lower is zero.
#[inline(always)]
unsafe fn upper_half(wide: Lanes) -> __m512i {
    // SAFETY: the processor is as the caller says.
    unsafe {
        let bits = _mm512_castps_si512(wide);
        let odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(1 << 16));
        let half = _mm512_mask_mov_epi32(_mm512_set1_epi32(0x7fff), odd, _mm512_set1_epi32(0x8000));
        _mm512_add_epi32(bits, half)
    }
}

/// An 8-bit float of `E` exponent and `M` mantissa bits, infinite or NaN from the magnitude `SPECIAL` on.
///
/// Each is a bfloat16, too, whose two bytes are looked up. A number is rounded by adding one whose last bit is the last bit
/// that stays: the sum has the number's units in its last bits, and these and the exponent are the code. Four neighbours share
/// four bytes and lie in the same lane of four registers.
struct Small<const E: u32, const M: u32, const SPECIAL: u32>;

impl<const E: u32, const M: u32, const SPECIAL: u32> Small<E, M, SPECIAL> {
    const LEAST_EXPONENT: i32 = 2 - (1 << (E - 1));

    /// The lower (0) or upper (1) bytes of the bfloat16, by the code without its sign.
    const fn table(byte: usize) -> [u8; 128] {
        let mut table = [0; 128];
        let mut code = 0;
        while code < table.len() {
            let wide = float8::widen::<E, M>(code as u32, SPECIAL);
            table[code] = wide.to_bits().to_le_bytes()[2 + byte];
            code += 1;
        }
        table
    }

    /// # Safety
    /// As for [`Chunk::read`].
    #[inline(always)]
    unsafe fn read(from: *const u8) -> [Lanes; 4] {
        // SAFETY: the caller's promises.
        unsafe {
            let codes = _mm512_loadu_si512(from.cast());
            let low = look_up(const { &Self::table(0) }, codes);
            let high = look_up(const { &Self::table(1) }, codes);
            let high = _mm512_ternarylogic_epi32::<OR_AND>(high, codes, _mm512_set1_epi8(i8::MIN));
            let first = _mm512_set1_epi16(0xff);
            let even = _mm512_ternarylogic_epi32::<SELECT>(first, low, _mm512_slli_epi16::<8>(high));
            let odd = _mm512_ternarylogic_epi32::<SELECT>(first, _mm512_srli_epi16::<8>(low), high);
            let ([a, c], [b, d]) = (pairs(even), pairs(odd));
            [a, b, c, d]
        }
    }

    /// Writes numbers that no code is too small for, with the signs of `wide`.
    ///
    /// # Safety
    /// As for [`Chunk::write`].
    #[inline(always)]
    unsafe fn write(to: *mut u8, [a, b, c, d]: [Lanes; 4], wide: [Lanes; 4]) {
        const { assert!(E + M == 7) }
        // Of the sum's exponent, less that of the code's.
        let bias = (127 + (23 - M as i32) + Self::LEAST_EXPONENT) << M;
        // SAFETY: the caller's promises.
        unsafe {
            let codes = four_bytes([
                Self::code(a),
                _mm512_slli_epi32::<8>(Self::code(b)),
                _mm512_slli_epi32::<16>(Self::code(c)),
                _mm512_slli_epi32::<24>(Self::code(d)),
            ]);
            let codes = _mm512_sub_epi8(codes, _mm512_set1_epi8(bias as i8));
            let [a, b, c, d] = wide;
            let signs = four_bytes([
                _mm512_srli_epi32::<24>(_mm512_castps_si512(a)),
                _mm512_srli_epi32::<16>(_mm512_castps_si512(b)),
                _mm512_srli_epi32::<8>(_mm512_castps_si512(c)),
                _mm512_castps_si512(d),
            ]);
            let codes = _mm512_ternarylogic_epi32::<SELECT>(_mm512_set1_epi8(0x7f), codes, signs);
            _mm512_storeu_si512(to.cast(), codes);
        }
    }

    /// The code and the bias of `write`, in the last byte of each lane.
    #[inline(always)]
    unsafe fn code(number: Lanes) -> __m512i {
        let least = f32::from_bits(((127 + Self::LEAST_EXPONENT) as u32) << 23);
        // SAFETY: the processor is as the caller says.
        unsafe {
            let exponent = _mm512_and_ps(number, _mm512_castsi512_ps(_mm512_set1_epi32(-1 << 23)));
            let exponent = _mm512_range_ps::<LARGER_MAGNITUDE>(exponent, _mm512_set1_ps(least));
            let last_bit = _mm512_set1_epi32(((23 - M) << 23) as i32);
            let unit = _mm512_add_epi32(_mm512_castps_si512(exponent), last_bit);
            let sum = _mm512_add_ps(number, _mm512_castsi512_ps(unit));
            let units = _mm512_sub_epi32(_mm512_castps_si512(sum), unit);
            let exponent = _mm512_srlv_epi32(unit, _mm512_set1_epi32(23 - M as i32));
            _mm512_add_epi32(units, exponent)
        }
    }
}

/// The bytes of the table at the codes, whatever their signs.
#[inline(always)]
unsafe fn look_up(table: &[u8; 128], codes: __m512i) -> __m512i {
    // SAFETY: a table is two registers; the processor is as the caller says.
    unsafe {
        let lower = _mm512_loadu_si512(table.as_ptr().cast());
        let upper = _mm512_loadu_si512(table.as_ptr().add(64).cast());
        _mm512_permutex2var_epi8(lower, codes, upper)
    }
}

/// The first, second, third and fourth byte of each lane.
#[inline(always)]
unsafe fn four_bytes([a, b, c, d]: [__m512i; 4]) -> __m512i {
    // SAFETY: the processor is as the caller says.
    unsafe {
        let lower = _mm512_ternarylogic_epi32::<SELECT>(_mm512_set1_epi32(0xff), a, b);
        let upper = _mm512_ternarylogic_epi32::<SELECT>(_mm512_set1_epi32(0xff_0000), c, d);
        _mm512_mask_blend_epi16(0xaaaa_aaaa, lower, upper)
    }
}

/// `number` in the bounds of a format whose largest is `largest`; `nan` for NaN.
#[inline(always)]
unsafe fn bounded(number: Lanes, largest: f32, nan: f32) -> Lanes {
    // SAFETY: the processor is as the caller says.
    unsafe {
        let is_number = _mm512_cmp_ps_mask::<_CMP_ORD_Q>(number, number);
        let (largest, nan) = (_mm512_set1_ps(largest), _mm512_set1_ps(nan));
        _mm512_mask_range_ps::<SMALLER_MAGNITUDE>(nan, is_number, number, largest)
    }
}

impl Chunk for F8E4M3 {
    #[inline(always)]
    unsafe fn read(from: *const u8) -> [Lanes; 4] {
        // SAFETY: the caller's promises.
        unsafe { Small::<4, 3, 0x7f>::read(from) }
    }

    #[inline(always)]
    unsafe fn write(to: *mut u8, wide: [Lanes; 4]) {
        // SAFETY: the caller's promises. NaN's code is that of the number that would come after the largest.
        unsafe {
            let [a, b, c, d] = wide;
            let numbers = [
                bounded(a, 448.0, 480.0),
                bounded(b, 448.0, 480.0),
                bounded(c, 448.0, 480.0),
                bounded(d, 448.0, 480.0),
            ];
            Small::<4, 3, 0x7f>::write(to, numbers, wide);
        }
    }
}

impl Chunk for F8E5M2 {
    #[inline(always)]
    unsafe fn read(from: *const u8) -> [Lanes; 4] {
        // SAFETY: the caller's promises.
        unsafe { Small::<5, 2, 0x7c>::read(from) }
    }

    #[inline(always)]
    unsafe fn write(to: *mut u8, wide: [Lanes; 4]) {
        // SAFETY: the caller's promises. The codes of infinity and NaN are those of numbers that would come after the largest.
        unsafe {
            let [a, b, c, d] = wide;
            let numbers = [or_infinite(a), or_infinite(b), or_infinite(c), or_infinite(d)];
            Small::<5, 2, 0x7c>::write(to, numbers, wide);
        }
    }
}

/// `number` in the bounds of E5M2, with numbers beyond for infinity and NaN.
#[inline(always)]
unsafe fn or_infinite(number: Lanes) -> Lanes {
    // SAFETY: the processor is as the caller says.
    unsafe {
        let is_infinite = _mm512_fpclass_ps_mask::<INFINITE>(number);
        _mm512_mask_mov_ps(
            bounded(number, 57344.0, 98304.0),
            is_infinite,
            _mm512_set1_ps(65536.0),
        )
    }
}

/// Of `vpternlog`: a | b & c.
const OR_AND: i32 = 0xf8;
/// Of `vpternlog`: the bits of b where a has ones, else those of c.
const SELECT: i32 = 0xca;
/// Of `vrangeps`, with the sign of the first operand.
const SMALLER_MAGNITUDE: i32 = 0b0010;
const LARGER_MAGNITUDE: i32 = 0b0011;
/// Of `vfpclassps`: of either sign.
const INFINITE: i32 = 0x18;
