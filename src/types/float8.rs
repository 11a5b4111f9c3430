//! The 8-bit floats of the Open Compute Project, and the conversions between small floats and float32.
//!
//! Source: OCP 8-bit Floating Point Specification (OFP8), revision 1.0, 2023.

/// An 8-bit float of 4 exponent and 3 mantissa bits: the OCP format E4M3 (largest 448, no infinity, NaN `0x7f`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct F8E4M3(pub u8);

/// An 8-bit float of 5 exponent and 2 mantissa bits: the OCP format E5M2 (largest 57344, infinities and NaN).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct F8E5M2(pub u8);

impl F8E4M3 {
    /// The same value as a float32.
    #[inline(always)]
    pub fn to_f32(self) -> f32 {
        widen::<4, 3>(self.0.into(), 0x7f)
    }

    /// The nearest value, ties to even. Numbers beyond ±448, infinities too, become ±448: the saturating conversion
    /// (`SATFINITE`) that CUDA and NCCL use. NaN stays NaN.
    #[inline(always)]
    pub fn from_f32(value: f32) -> Self {
        let magnitude = value.to_bits() & MAGNITUDE;
        let rounded = narrow::<4, 3>(magnitude).min(0x7e);
        let code = if magnitude > INFINITY { 0x7f } else { rounded };
        F8E4M3((value.to_bits() >> 24 & 0x80 | code) as u8)
    }
}

impl F8E5M2 {
    /// The same value as a float32.
    #[inline(always)]
    pub fn to_f32(self) -> f32 {
        widen::<5, 2>(self.0.into(), 0x7c)
    }

    /// The nearest value, ties to even. Finite numbers beyond ±57344 become ±57344 (they saturate); infinities stay
    /// infinite and NaN stays NaN.
    #[inline(always)]
    pub fn from_f32(value: f32) -> Self {
        let magnitude = value.to_bits() & MAGNITUDE;
        let rounded = narrow::<5, 2>(magnitude).min(0x7b);
        let special = if magnitude > INFINITY { 0x7e } else { 0x7c };
        let code = if magnitude >= INFINITY { special } else { rounded };
        F8E5M2((value.to_bits() >> 24 & 0x80 | code) as u8)
    }
}

/// The bits of a float32 without its sign.
pub(crate) const MAGNITUDE: u32 = 0x7fff_ffff;

/// The bits of float32's infinity; NaN has a larger magnitude.
pub(crate) const INFINITY: u32 = 0x7f80_0000;

/// The value of `code`, a float of one sign bit, `E` exponent bits and `M` mantissa bits. Magnitudes from `special` on
/// are infinity and NaN.
///
/// Without branches and tables, so that loops over it become vector instructions, and without subnormal float32
/// operands, which a process may have told its processor to take for zero.
#[inline(always)]
pub(crate) const fn widen<const E: u32, const M: u32>(code: u32, special: u32) -> f32 {
    let magnitude = code & ((1 << (E + M)) - 1);
    // Both fields where float32 has them; the exponent still lacks the difference of the biases.
    let placed = magnitude << (23 - M);
    let normal = placed + rebias::<E>();
    // A subnormal has the exponent of the smallest normal number, but no leading one: give it one and take it off.
    let one = rebias::<E>() + (1 << 23);
    let subnormal = (f32::from_bits(placed + one) - f32::from_bits(one)).to_bits();
    let finite = if magnitude < 1 << M { subnormal } else { normal };
    let bits = if magnitude >= special {
        placed | INFINITY
    } else {
        finite
    };
    f32::from_bits(bits | code >> (E + M) << 31)
}

/// The magnitude, in a float of `E` exponent and `M` mantissa bits, nearest to the float32 of these bits (no NaN), ties
/// to even. Numbers that are too large give codes past the largest: the caller caps them.
#[inline(always)]
pub(crate) fn narrow<const E: u32, const M: u32>(magnitude: u32) -> u32 {
    let dropped = 23 - M;
    // Half a unit of what stays, less one when it is even: a tie is carried only from odd to even.
    let odd = magnitude >> dropped & 1;
    let normal = magnitude
        .wrapping_sub(rebias::<E>())
        .wrapping_add((1 << (dropped - 1)) - 1 + odd)
        >> dropped;
    // The unit of this number's last bit is the subnormals' unit: adding it lets the addition do the rounding.
    let aligner = rebias::<E>() + ((dropped + 1) << 23);
    let subnormal = (f32::from_bits(magnitude) + f32::from_bits(aligner))
        .to_bits()
        .wrapping_sub(aligner);
    if magnitude < rebias::<E>() + (1 << 23) {
        subnormal
    } else {
        normal
    }
}

/// The difference between the exponent biases of float32 and of a float of `E` exponent bits, in the exponent's place.
const fn rebias<const E: u32>() -> u32 {
    (127 - ((1 << (E - 1)) - 1)) << 23
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A format's values by the specification's formula, indexed by magnitude code, infinities and NaN left out.
    fn finite(exponent_bits: i32, mantissa_bits: i32, largest: u8) -> Vec<f64> {
        let bias = (1 << (exponent_bits - 1)) - 1;
        (0..=i32::from(largest))
            .map(|code| {
                let (exponent, mantissa) = (code >> mantissa_bits, code & ((1 << mantissa_bits) - 1));
                let fraction = f64::from(mantissa) / f64::from(1 << mantissa_bits);
                match exponent {
                    0 => fraction * 2f64.powi(1 - bias),
                    _ => (1.0 + fraction) * 2f64.powi(exponent - bias),
                }
            })
            .collect()
    }

    /// The code of the value nearest to `x`, ties to the even code; the largest for everything beyond.
    fn nearest(values: &[f64], x: f64) -> u8 {
        let better = |a: &usize, b: &usize| {
            let distance = |i: usize| (values[i] - x.abs()).abs();
            distance(*a).total_cmp(&distance(*b)).then((a % 2).cmp(&(b % 2)))
        };
        let code = (0..values.len()).min_by(better).expect("a format has values") as u8;
        code | u8::from(x.is_sign_negative()) << 7
    }

    fn e4m3_is_right(x: f32) -> Result<(), TestCaseError> {
        let code = F8E4M3::from_f32(x).0;
        match x.is_nan() {
            true => prop_assert_eq!(code & 0x7f, 0x7f),
            false => prop_assert_eq!(
                code,
                nearest(&finite(4, 3, 0x7e), x.clamp(-1e9, 1e9).into()),
                "{:e}",
                x
            ),
        }
        Ok(())
    }

    fn e5m2_is_right(x: f32) -> Result<(), TestCaseError> {
        let code = F8E5M2::from_f32(x).0;
        match x {
            _ if x.is_nan() => prop_assert!(code & 0x7f > 0x7c),
            _ if x.is_infinite() => prop_assert_eq!(code, if x > 0.0 { 0x7c } else { 0xfc }),
            _ => prop_assert_eq!(
                code,
                nearest(&finite(5, 2, 0x7b), x.clamp(-1e9, 1e9).into()),
                "{:e}",
                x
            ),
        }
        Ok(())
    }

    fn are_right(x: f32) -> Result<(), TestCaseError> {
        e4m3_is_right(x).and(e5m2_is_right(x))
    }

    #[test]
    fn every_code_has_the_specified_value_and_comes_back() {
        let (e4m3, e5m2) = (finite(4, 3, 0x7e), finite(5, 2, 0x7b));
        assert_eq!((e4m3[0x7e], e5m2[0x7b]), (448.0, 57344.0));
        for code in 0..=u8::MAX {
            let sign = if code < 0x80 { 1.0 } else { -1.0 };
            let index = usize::from(code & 0x7f);
            let value = F8E4M3(code).to_f32();
            match e4m3.get(index) {
                Some(want) => {
                    assert_eq!(
                        (f64::from(value).to_bits()),
                        (sign * want).to_bits(),
                        "E4M3 {code:#x}"
                    );
                    assert_eq!(F8E4M3::from_f32(value).0, code);
                }
                None => assert!(value.is_nan() && F8E4M3::from_f32(value).to_f32().is_nan()),
            }
            let value = F8E5M2(code).to_f32();
            match (e5m2.get(index), index) {
                (Some(want), _) => {
                    assert_eq!(
                        f64::from(value).to_bits(),
                        (sign * want).to_bits(),
                        "E5M2 {code:#x}"
                    );
                    assert_eq!(F8E5M2::from_f32(value).0, code);
                }
                (None, 0x7c) => {
                    assert_eq!(f64::from(value), sign * f64::INFINITY);
                    assert_eq!(F8E5M2::from_f32(value).0, code);
                }
                (None, _) => assert!(value.is_nan() && F8E5M2::from_f32(value).to_f32().is_nan()),
            }
        }
    }

    #[test]
    fn ties_go_to_even_and_their_neighbours_to_the_nearer() {
        for values in [finite(4, 3, 0x7e), finite(5, 2, 0x7b)] {
            // The midpoint after the largest value is where the next one would have been.
            let last = values.len() - 1;
            let beyond = 2.0 * values[last] - values[last - 1];
            for pair in values.windows(2).chain([[values[last], beyond].as_slice()]) {
                let middle = ((pair[0] + pair[1]) / 2.0) as f32;
                for x in [
                    middle.next_down(),
                    middle,
                    middle.next_up(),
                    pair[0] as f32,
                    pair[1] as f32,
                ] {
                    are_right(x).and(are_right(-x)).unwrap();
                }
            }
        }
    }

    #[test]
    fn extremes() {
        let tiny = [0.0, f32::from_bits(1), f32::MIN_POSITIVE, 1e-30];
        for x in tiny
            .into_iter()
            .chain([f32::MAX, f32::INFINITY, f32::NAN, f32::from_bits(INFINITY + 1)])
        {
            are_right(x).and(are_right(-x)).unwrap();
        }
        assert_eq!(F8E4M3::from_f32(f32::INFINITY).to_f32(), 448.0);
        assert_eq!(F8E4M3::from_f32(-1e30).to_f32(), -448.0);
        assert_eq!(F8E5M2::from_f32(1e30).to_f32(), 57344.0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn any_float_is_rounded_to_the_nearest(bits: u32) {
            are_right(f32::from_bits(bits))?;
        }

        #[test]
        fn floats_in_range_are_rounded_to_the_nearest(mantissa in 0u32..1 << 23, exponent in 127u32 - 20..127 + 18, sign: bool) {
            are_right(f32::from_bits(u32::from(sign) << 31 | exponent << 23 | mantissa))?;
        }

        /// The same conversions serve float16; `half` is the reference.
        #[test]
        fn sixteen_bits_agree_with_half(bits: u32, code: u16) {
            let x = f32::from_bits(bits & MAGNITUDE);
            if !x.is_nan() {
                prop_assert_eq!(narrow::<5, 10>(bits & MAGNITUDE).min(0x7c00), u32::from(half::f16::from_f32(x).to_bits()));
            }
            let (ours, theirs) = (widen::<5, 10>(code.into(), 0x7c00), half::f16::from_bits(code).to_f32());
            prop_assert!(ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan());
        }
    }
}
