//! Lists of hosts as Slurm writes them: `rack1,node[001-128,200],r[0-3]n[0-7]`.

/// What is wrong with a list, and at which of its bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bad {
    pub(super) at: usize,
    pub(super) what: String,
}

/// Names of a file and bytes of all of them, at most.
const HOSTS: usize = 1 << 18;
const BYTES: usize = 64 << 20;

/// Parts of a name and its bytes, at most.
const PIECES: usize = 32;
const LONGEST: usize = 1024;

/// What a list should be.
pub(super) const WANTED: &str = "a list such as node[001-128,200]";

/// What the lists of a file may still be expanded to. They share it: a few bytes could stand for 10^18 names.
pub(super) struct Left {
    names: usize,
    bytes: usize,
}

impl Left {
    pub(super) fn new() -> Self {
        Left {
            names: HOSTS,
            bytes: BYTES,
        }
    }
}

/// A literal, or numbers of which each stands for a name.
enum Piece<'t> {
    Words(&'t str),
    Ranges(Vec<Range>),
}

/// Numbers from one to another, with zeros in front up to a width.
struct Range {
    first: u64,
    last: u64,
    width: usize,
}

/// The names of a list, in its order. `left` is what there may be, and is lessened.
pub(super) fn expand(list: &str, left: &mut Left) -> Result<Vec<String>, Bad> {
    let mut names = Vec::new();
    let (mut rest, mut at) = (list, 0);
    while at < list.len() {
        let (pieces, used) = item(rest, at)?;
        let count = pieces
            .iter()
            .map(Piece::count)
            .try_fold(1_u64, u64::checked_mul)
            .and_then(|count| usize::try_from(count).ok())
            .filter(|&count| count <= left.names);
        let Some(count) = count else {
            let what = format!("a list with which there are more than {HOSTS} names");
            return Err(Bad { at, what });
        };
        left.names -= count;
        let longest: usize = pieces.iter().map(Piece::longest).sum();
        if pieces.len() > PIECES || longest > LONGEST {
            let what = format!("names of {} parts and up to {longest} characters", pieces.len());
            return Err(Bad { at, what });
        }
        let Some(bytes) = left.bytes.checked_sub(count.saturating_mul(longest)) else {
            let what = format!("a list with which the names have more than {BYTES} bytes");
            return Err(Bad { at, what });
        };
        left.bytes = bytes;
        if !pieces.is_empty() {
            let mut all = vec![String::new()];
            for piece in &pieces {
                all = piece.after(&all);
            }
            names.append(&mut all);
        }
        at += used + 1;
        rest = list.get(at..).unwrap_or("");
    }
    Ok(names)
}

/// The pieces of the first item, and how long it is.
fn item(text: &str, base: usize) -> Result<(Vec<Piece<'_>>, usize), Bad> {
    let mut pieces = Vec::new();
    let mut at = 0;
    loop {
        let end = text[at..]
            .find([',', ' ', '\t', '[', ']'])
            .map_or(text.len(), |found| at + found);
        if end > at {
            pieces.push(Piece::Words(&text[at..end]));
        }
        match text.as_bytes().get(end) {
            Some(b'[') => {
                let close = text[end..].find(']').map(|found| end + found);
                let close = close.ok_or_else(|| bad(base + end, "a [ that is not closed"))?;
                pieces.push(Piece::Ranges(ranges(&text[end + 1..close], base + end + 1)?));
                at = close + 1;
            }
            Some(b']') => return Err(bad(base + end, "a ] without a [")),
            _ => return Ok((pieces, end)),
        }
    }
}

fn ranges(text: &str, base: usize) -> Result<Vec<Range>, Bad> {
    let mut ranges = Vec::new();
    let mut at = base;
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |word: &str| {
            let digits =
                !word.is_empty() && word.len() <= 18 && word.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| word.parse::<u64>().ok()).flatten()
        };
        let (Some(low), Some(high)) = (number(first), number(last)) else {
            return Err(bad(at, &format!("\"{part}\" within brackets")));
        };
        if high < low {
            return Err(bad(at, &format!("\"{part}\", which ends before it begins")));
        }
        ranges.push(Range {
            first: low,
            last: high,
            width: first.len(),
        });
        at += part.len() + 1;
    }
    Ok(ranges)
}

/// Digits of the largest number.
const DIGITS: usize = 18;

fn bad(at: usize, what: &str) -> Bad {
    Bad {
        at,
        what: what.to_owned(),
    }
}

impl Piece<'_> {
    fn count(&self) -> u64 {
        match self {
            Piece::Words(_) => 1,
            Piece::Ranges(ranges) => (ranges.iter())
                .map(|range| range.last - range.first + 1)
                .fold(0, u64::saturating_add),
        }
    }

    /// Characters of the longest of its words.
    fn longest(&self) -> usize {
        match self {
            Piece::Words(words) => words.len(),
            Piece::Ranges(ranges) => (ranges.iter())
                .map(|range| range.width.max(DIGITS))
                .max()
                .unwrap_or(0),
        }
    }

    /// Each name so far with each word of this piece behind it.
    fn after(&self, names: &[String]) -> Vec<String> {
        let mut all = Vec::new();
        for name in names {
            match self {
                Piece::Words(words) => all.push(format!("{name}{words}")),
                Piece::Ranges(ranges) => {
                    for range in ranges {
                        let width = range.width;
                        all.extend(
                            (range.first..=range.last).map(|number| format!("{name}{number:0width$}")),
                        );
                    }
                }
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_expanded() {
        for (list, names) in [
            ("", ""),
            ("a", "a"),
            ("a,b", "a b"),
            ("n[01-03,7]", "n01 n02 n03 n7"),
            ("n[8-10]", "n8 n9 n10"),
            ("r[0-1]n[0-1]x,y", "r0n0x r0n1x r1n0x r1n1x y"),
            ("[1101-1102]", "1101 1102"),
            ("a,,b,", "a b"),
            ("a, b c", "a b c"),
            ("n[5]", "n5"),
        ] {
            assert_eq!(expand(list, &mut Left::new()).unwrap().join(" "), names, "{list}");
        }
    }

    #[test]
    fn bad_lists_are_told_before_anything_is_reserved() {
        for (list, at, what) in [
            (
                "n[1-1000000000]",
                0,
                "a list with which there are more than 262144 names",
            ),
            (
                "a,n[0-99]m[0-99]k[0-99]",
                2,
                "a list with which there are more than 262144 names",
            ),
            (
                "n[0-999999999999999999]".repeat(9).as_str(),
                0,
                "a list with which there are more than 262144 names",
            ),
            (
                &format!("n[1-1000]{}", "x".repeat(2000)),
                0,
                "names of 3 parts and up to 2019 characters",
            ),
            (
                &format!("n{}", "[1]".repeat(40)),
                0,
                "names of 41 parts and up to 721 characters",
            ),
            ("n[1", 1, "a [ that is not closed"),
            ("n1]", 2, "a ] without a ["),
            ("n[1,x]", 4, "\"x\" within brackets"),
            ("n[]", 2, "\"\" within brackets"),
            ("n[9-1]", 2, "\"9-1\", which ends before it begins"),
            (
                "n[1-9999999999999999999999]",
                2,
                "\"1-9999999999999999999999\" within brackets",
            ),
        ] {
            let bad = expand(list, &mut Left::new()).unwrap_err();
            assert_eq!((bad.at, bad.what.as_str()), (at, what), "{list}");
        }
        let mut left = Left {
            names: 10,
            ..Left::new()
        };
        expand("n[1-6]", &mut left).unwrap();
        assert!(
            expand("n[1-6]", &mut left).is_err(),
            "the lists of a file share the limit"
        );
        let mut left = Left::new();
        let list = format!("{}[1-20000]", "x".repeat(1000));
        let told: Vec<_> = (0..4)
            .map(|_| expand(&list, &mut left).map(|names| names.len()))
            .collect();
        assert_eq!(told[..3], [Ok(20000), Ok(20000), Ok(20000)]);
        let what = "a list with which the names have more than 67108864 bytes".to_owned();
        assert_eq!(told[3], Err(Bad { at: 0, what }));
    }
}
