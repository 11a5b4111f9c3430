//! Element values as bit patterns, whatever their type: a reference that shares no code with the library's kernels.

use crate::types::DType;

/// How a type's bits make a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Two's complement of so many bits.
    Signed(u32),
    /// Binary of so many bits.
    Unsigned(u32),
    /// A sign, an exponent and a mantissa.
    Float(Format),
}

/// A binary floating point format with subnormal numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Format {
    exponent_bits: u32,
    mantissa_bits: u32,
    /// Whether the largest exponent is kept for infinities and NaN, as IEEE 754 has it. E4M3 keeps one pattern only.
    ieee: bool,
}

impl Kind {
    pub(super) fn of(dtype: DType) -> Kind {
        let float = |exponent_bits, mantissa_bits| {
            Kind::Float(Format {
                exponent_bits,
                mantissa_bits,
                ieee: dtype != DType::Float8e4m3,
            })
        };
        let bits = 8 * dtype.size() as u32;
        match dtype {
            DType::Int8 | DType::Int16 | DType::Int32 | DType::Int64 => Kind::Signed(bits),
            DType::Uint8 | DType::Uint16 | DType::Uint32 | DType::Uint64 => Kind::Unsigned(bits),
            DType::Float8e4m3 => float(4, 3),
            DType::Float8e5m2 => float(5, 2),
            DType::Float16 => float(5, 10),
            DType::Bfloat16 => float(8, 7),
            DType::Float32 => float(8, 23),
            DType::Float64 => float(11, 52),
        }
    }
}

/// The low `bits` of `value`.
pub(super) fn low(value: u64, bits: u32) -> u64 {
    value & (u64::MAX >> (64 - bits))
}

/// The number that the low `bits` of `value` are in two's complement.
pub(super) fn signed(value: u64, bits: u32) -> i64 {
    (value << (64 - bits)).cast_signed() >> (64 - bits)
}

impl Format {
    /// Bits of the whole.
    pub(super) fn bits(self) -> u32 {
        1 + self.exponent_bits + self.mantissa_bits
    }

    /// Integers up to here, of either sign, are numbers of the format.
    pub(super) fn largest_exact_integer(self) -> u64 {
        2 << self.mantissa_bits
    }

    /// Powers of two from `2^-e` to `2^e` are normal numbers of the format, e being this.
    pub(super) fn exponent_range(self) -> u32 {
        (1 << (self.exponent_bits - 1)) - 2
    }

    /// Whether `bits` are neither an infinity nor a NaN.
    pub(super) fn is_finite(self, bits: u64) -> bool {
        let magnitude = low(bits, self.bits() - 1);
        let exponents = low(u64::MAX, self.exponent_bits) << self.mantissa_bits;
        if self.ieee {
            magnitude & exponents != exponents
        } else {
            magnitude != low(u64::MAX, self.bits() - 1)
        }
    }

    /// The number that the finite pattern `bits` stands for.
    pub(super) fn decode(self, bits: u64) -> f64 {
        if self.mantissa_bits == 52 {
            return f64::from_bits(bits);
        }
        let mantissa = low(bits, self.mantissa_bits);
        let exponent = low(bits >> self.mantissa_bits, self.exponent_bits) as i32;
        let hidden = u64::from(exponent > 0) << self.mantissa_bits;
        let scale = exponent.max(1) - 1 + self.least_exponent() - self.mantissa_bits as i32;
        let magnitude = (mantissa | hidden) as f64 * power_of_two(scale);
        if bits >> (self.bits() - 1) & 1 == 1 {
            -magnitude
        } else {
            magnitude
        }
    }

    /// `value` rounded once, to the nearest number of the format, halves to the even one. It must be in range.
    pub(super) fn encode(self, value: f64) -> u64 {
        if self.mantissa_bits == 52 {
            return value.to_bits();
        }
        let sign = u64::from(value.is_sign_negative()) << (self.bits() - 1);
        let exponent = ((value.abs().to_bits() >> 52) as i32 - 1023).max(self.least_exponent());
        // In units of the last place; the scaling is exact. A carry runs into the exponent, where it belongs, and the
        // hidden bit adds the one by which the exponents of normal numbers are higher.
        let units =
            (value.abs() * power_of_two(self.mantissa_bits as i32 - exponent)).round_ties_even() as u64;
        let bits = sign | ((((exponent - self.least_exponent()) as u64) << self.mantissa_bits) + units);
        debug_assert!(self.is_finite(bits), "{value} is out of range of {self:?}");
        bits
    }

    /// The exponent of the smallest normal number.
    fn least_exponent(self) -> i32 {
        2 - (1 << (self.exponent_bits - 1))
    }
}

/// `2^exponent` for exponents of normal numbers.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    fn format(dtype: DType) -> Format {
        match Kind::of(dtype) {
            Kind::Float(format) => format,
            other => panic!("{dtype} is {other:?}"),
        }
    }

    #[test]
    fn sixteen_bits_agree_with_the_half_crate() {
        let (half, brain) = (format(DType::Float16), format(DType::Bfloat16));
        for bits in 0..=u16::MAX {
            assert_eq!(half.is_finite(bits.into()), f16::from_bits(bits).is_finite());
            assert_eq!(brain.is_finite(bits.into()), bf16::from_bits(bits).is_finite());
            if half.is_finite(bits.into()) {
                assert_eq!(half.decode(bits.into()), f16::from_bits(bits).to_f64());
                // Thirds fall between the numbers of the format.
                let third = half.decode(bits.into()) / 3.0;
                assert_eq!(half.encode(third), u64::from(f16::from_f64(third).to_bits()));
            }
            if brain.is_finite(bits.into()) {
                assert_eq!(brain.decode(bits.into()), bf16::from_bits(bits).to_f64());
                let third = brain.decode(bits.into()) / 3.0;
                assert_eq!(brain.encode(third), u64::from(bf16::from_f64(third).to_bits()));
            }
        }
    }

    #[test]
    fn every_finite_pattern_survives_a_round_trip() {
        for dtype in [
            DType::Float8e4m3,
            DType::Float8e5m2,
            DType::Float16,
            DType::Bfloat16,
        ] {
            let format = format(dtype);
            for bits in (0..1 << format.bits()).filter(|&bits| format.is_finite(bits)) {
                assert_eq!(format.encode(format.decode(bits)), bits, "{dtype} {bits:#x}");
            }
        }
    }

    #[test]
    fn known_values_and_ties() {
        let (e4m3, e5m2) = (format(DType::Float8e4m3), format(DType::Float8e5m2));
        assert_eq!(e4m3.decode(0x7e), 448.0);
        assert_eq!(e4m3.decode(0x01), 1.0 / 512.0);
        assert_eq!(e5m2.decode(0x7b), 57344.0);
        assert!(!e4m3.is_finite(0xff) && e4m3.is_finite(0x7e) && !e5m2.is_finite(0x7c));
        assert_eq!(e4m3.encode(17.0), e4m3.encode(16.0));
        assert_eq!(e4m3.encode(19.0), e4m3.encode(20.0));
        assert_eq!(
            (e4m3.largest_exact_integer(), e5m2.largest_exact_integer()),
            (16, 8)
        );
        assert_eq!(format(DType::Float16).largest_exact_integer(), 2048);
        assert_eq!(format(DType::Float32).encode(0.1), u64::from(0.1f32.to_bits()));
        assert_eq!(signed(0xff, 8), -1);
    }
}
