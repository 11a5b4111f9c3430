//! What sources say, cut to what people read.

use std::borrow::Cow;

/// A text of up to `most` characters, with the middle left out where there are more.
pub(super) fn cut(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most || text.chars().nth(most).is_none() {
        return Cow::Borrowed(text);
    }
    let half = most / 2;
    let start: String = text.chars().take(half).collect();
    let end: Vec<char> = text.chars().rev().take(half).collect();
    let end: String = end.into_iter().rev().collect();
    Cow::Owned(format!("{start}…{end}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_lose_their_middle() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abc…efg");
        assert_eq!(cut("äöüäöü", 6), "äöüäöü");
        assert_eq!(cut("äöüäöüß", 4), "äö…üß");
    }
}
