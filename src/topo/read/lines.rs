//! [`Lines`]: from a byte of a text to its line and column.

use std::fmt;

/// A place in a text, both counted from 1; the column in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
}

impl Position {
    /// Where a text begins.
    pub const FIRST: Position = Position { line: 1, column: 1 };

    /// Of what is in no text.
    pub const NONE: Position = Position { line: 0, column: 0 };
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Where the lines of a text begin, and how many characters are before each of its blocks.
#[derive(Debug)]
pub struct Lines<'t> {
    text: &'t str,
    starts: Vec<usize>,
    counts: Vec<usize>,
}

/// Bytes of a block: what is looked through for a column, however long the line.
const BLOCK: usize = 1024;

impl<'t> Lines<'t> {
    /// Looks through a text once.
    pub fn new(text: &'t str) -> Self {
        let ends = text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n');
        let starts = std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        let sums = text.as_bytes().chunks(BLOCK).scan(0, |sum, block| {
            *sum += characters(block);
            Some(*sum)
        });
        let counts = std::iter::once(0).chain(sums).collect();
        Lines { text, starts, counts }
    }

    /// The line of a byte; the last, if it lies beyond.
    pub fn line(&self, byte: usize) -> u32 {
        clamp(self.line_of(byte.min(self.text.len())))
    }

    /// The position of a byte; the end's, if it lies beyond.
    pub fn position(&self, byte: usize) -> Position {
        let byte = byte.min(self.text.len());
        let line = self.line_of(byte);
        let column = self.before(byte) - self.before(self.starts[line - 1]) + 1;
        Position {
            line: clamp(line),
            column: clamp(column),
        }
    }

    fn line_of(&self, byte: usize) -> usize {
        self.starts.partition_point(|&start| start <= byte).max(1)
    }

    /// How many characters begin before a byte.
    fn before(&self, byte: usize) -> usize {
        let block = byte / BLOCK;
        self.counts[block] + characters(&self.text.as_bytes()[block * BLOCK..byte])
    }
}

/// Characters begin where no byte goes on with one.
fn characters(bytes: &[u8]) -> usize {
    bytes.iter().filter(|&&byte| byte & 0xc0 != 0x80).count()
}

fn clamp(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_those_of_a_count_from_the_start() {
        let long: String = (0..2000).map(|at| ["a", "é", "√", "😀"][at % 4]).collect();
        for text in [
            String::new(),
            "\n".to_owned(),
            format!("é\n{long}\n\n{long}"),
            "a".repeat(BLOCK),
        ] {
            let lines = Lines::new(&text);
            let (mut line, mut column) = (1, 1);
            for (at, c) in text.char_indices() {
                assert_eq!(lines.position(at), Position { line, column }, "byte {at}");
                assert_eq!(lines.line(at), line);
                (line, column) = if c == '\n' {
                    (line + 1, 1)
                } else {
                    (line, column + 1)
                };
            }
            let end = Position { line, column };
            assert_eq!([text.len(), usize::MAX].map(|at| lines.position(at)), [end; 2]);
        }
    }
}
