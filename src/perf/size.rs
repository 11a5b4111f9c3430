//! Sizes in bytes: as people write them, and the series of sizes that a run goes through.

use serde::{Deserialize, Serialize};

/// The binary units, largest first.
const UNITS: [(char, u64); 4] = [('T', 1 << 40), ('G', 1 << 30), ('M', 1 << 20), ('K', 1 << 10)];

/// Reads `4096`, `64K`, `1.5M`, `1GiB`: units are powers of 1024, fractions of a byte are dropped.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size: write bytes or a binary unit, e.g. 4096, 64K, 1.5M, 1G");
    let upper = text.trim().to_ascii_uppercase();
    let plain = upper
        .strip_suffix("IB")
        .or(upper.strip_suffix('B'))
        .unwrap_or(&upper);
    let (digits, unit) = UNITS
        .iter()
        .find_map(|&(letter, unit)| Some((plain.strip_suffix(letter)?, unit)))
        .unwrap_or((plain, 1));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    // Nine decimals are finer than a byte of a gigabyte, and keep the product below within 128 bits.
    if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) || fraction.len() > 9 {
        return Err(wrong());
    }
    let whole: u128 = whole.parse().map_err(|_| wrong())?;
    let scale = 10u128.pow(fraction.len() as u32);
    let fraction: u128 = format!("0{fraction}").parse().map_err(|_| wrong())?;
    let bytes = whole
        .checked_mul(u128::from(unit))
        .map(|bytes| bytes + fraction * u128::from(unit) / scale);
    // Beyond this no buffer can be: Rust's allocations end at isize::MAX bytes.
    bytes
        .and_then(|bytes| i64::try_from(bytes).ok())
        .map(i64::cast_unsigned)
        .ok_or_else(|| format!("'{text}' is more than any memory holds: the largest size is 8388607T"))
}

/// `bytes` in the largest unit in which it is at least 1, with at most two decimals: `8`, `64K`, `1.5M`.
pub(super) fn readable(bytes: u64) -> String {
    match UNITS.iter().find(|(_, unit)| bytes >= *unit) {
        Some(&(letter, unit)) => {
            let digits = format!("{:.2}", bytes as f64 / unit as f64);
            format!("{}{letter}", digits.trim_end_matches('0').trim_end_matches('.'))
        }
        None => bytes.to_string(),
    }
}

/// From one size to the next.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Step {
    /// Multiplied; the factor is more than 1.
    Factor(f64),
    /// Added, in bytes; not 0.
    Bytes(u64),
}

/// The sizes of a run: `min`, and on by `step` up to `max`, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Sweep {
    pub(super) min: u64,
    pub(super) max: u64,
    pub(super) step: Step,
}

impl Sweep {
    /// The sizes in ascending order; each is more than the one before.
    pub(super) fn sizes(self) -> impl Iterator<Item = u64> {
        std::iter::successors(Some(self.min), move |&size| {
            let next = match self.step {
                Step::Bytes(bytes) => size.checked_add(bytes)?,
                // A product says nothing about what follows 0, and a small one may round back to where it was.
                Step::Factor(_) if size == 0 => 1,
                Step::Factor(factor) => ((size as f64 * factor) as u64).max(size.checked_add(1)?),
            };
            Some(next)
        })
        .take_while(move |&size| size <= self.max)
    }

    /// The numbers of elements of `width` bytes that the sizes hold, each number once: sizes are rounded down.
    pub(super) fn counts(self, width: usize) -> impl Iterator<Item = usize> {
        let mut last = None;
        self.sizes()
            .map(move |size| size as usize / width)
            .filter(move |&count| last.replace(count) != Some(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        let cases = [
            ("0", 0),
            ("4096", 4096),
            ("1K", 1 << 10),
            ("1k", 1 << 10),
            ("64KiB", 64 << 10),
            ("64kb", 64 << 10),
            ("1.5M", 3 << 19),
            ("0.3K", 307),
            ("1G", 1 << 30),
            ("2T", 2 << 40),
            ("12B", 12),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in [
            "", "K", "-1", "1X", "1KK", ".5M", "1e6", "1.5.5M", "１K", "1 M", "9999999T", "8388608T",
        ] {
            assert!(parse(text).unwrap_err().contains(text), "{text}");
        }
    }

    #[test]
    fn sizes_are_written() {
        let cases = [
            (0, "0"),
            (1023, "1023"),
            (1024, "1K"),
            (3 << 19, "1.5M"),
            (1 << 30, "1G"),
            (1_000_000, "976.56K"),
        ];
        for (bytes, text) in cases {
            assert_eq!(readable(bytes), text);
        }
    }

    fn sizes(min: u64, max: u64, step: Step) -> Vec<u64> {
        Sweep { min, max, step }.sizes().collect()
    }

    #[test]
    fn sweeps_end_and_do_not_stand_still() {
        assert_eq!(sizes(8, 64, Step::Factor(2.0)), [8, 16, 32, 64]);
        assert_eq!(sizes(8, 63, Step::Factor(2.0)), [8, 16, 32]);
        assert_eq!(sizes(0, 5, Step::Factor(2.0)), [0, 1, 2, 4]);
        assert_eq!(sizes(3, 7, Step::Factor(1.1)), [3, 4, 5, 6, 7]);
        assert_eq!(sizes(100, 250, Step::Bytes(50)), [100, 150, 200, 250]);
        assert_eq!(sizes(7, 7, Step::Bytes(1)), [7]);
        assert_eq!(
            sizes(u64::MAX - 1, u64::MAX, Step::Factor(3.0)),
            [u64::MAX - 1, u64::MAX]
        );
    }

    #[test]
    fn counts_are_rounded_down_and_not_repeated() {
        let step = Step::Bytes(3);
        let counts: Vec<_> = Sweep {
            min: 1,
            max: 13,
            step,
        }
        .counts(4)
        .collect();
        assert_eq!(counts, [0, 1, 2, 3]); // of 1, 4, 7, 10 and 13 bytes
    }
}
