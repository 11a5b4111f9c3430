//! Words of files in what is said about them: a name may be as long as its file, and be said very often.

use std::{
    borrow::Cow,
    hash::{DefaultHasher, Hash, Hasher},
};

/// Bytes that are said of a name, at most.
const NAME: usize = 200;

/// A name, or how it begins if it is very long.
pub(super) fn short(name: &str) -> Cow<'_, str> {
    match begin(name, NAME) {
        Some(begin) => Cow::Owned(format!("{begin}...")),
        None => Cow::Borrowed(name),
    }
}

/// The same, but long names that differ still differ.
pub(super) fn short_and_unlike(name: &str) -> Cow<'_, str> {
    match begin(name, NAME) {
        Some(begin) => {
            let mut hasher = DefaultHasher::new();
            name.hash(&mut hasher);
            Cow::Owned(format!("{begin}...{:016x}", hasher.finish()))
        }
        None => Cow::Borrowed(name),
    }
}

/// A line of at most so many bytes, and three dots where more was cut off.
pub(super) fn cut(line: String, most: usize) -> String {
    match begin(&line, most) {
        Some(begin) => format!("{begin}..."),
        None => line,
    }
}

/// Whole characters of the first bytes of a text that is longer.
fn begin(text: &str, most: usize) -> Option<&str> {
    if text.len() <= most {
        return None;
    }
    let end = (0..=most).rev().find(|&at| text.is_char_boundary(at))?;
    Some(&text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_names_are_cut() {
        assert_eq!(short("node1"), "node1");
        assert_eq!(short(&"a".repeat(NAME)), "a".repeat(NAME));
        assert_eq!(short(&"é".repeat(NAME)), "é".repeat(NAME / 2) + "...");
        let [one, other] = ["x", "y"].map(|end| "a".repeat(NAME) + end);
        assert_eq!(short(&one), short(&other));
        assert_ne!(short_and_unlike(&one), short_and_unlike(&other));
        assert_eq!(cut("abc".to_owned(), 2), "ab...");
    }
}
