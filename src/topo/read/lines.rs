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

/// Where the lines of a text begin.
#[derive(Debug)]
pub struct Lines<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> Lines<'t> {
    /// Looks through a text once.
    pub fn new(text: &'t str) -> Self {
        let ends = text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n');
        let starts = std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        Lines { text, starts }
    }

    /// The position of a byte; the end's, if it lies beyond.
    pub fn position(&self, byte: usize) -> Position {
        let byte = byte.min(self.text.len());
        let line = self.starts.partition_point(|&start| start <= byte).max(1);
        let before = &self.text.as_bytes()[self.starts[line - 1]..byte];
        // Characters begin where no byte goes on with one.
        let column = before.iter().filter(|&&byte| byte & 0xc0 != 0x80).count() + 1;
        Position {
            line: clamp(line),
            column: clamp(column),
        }
    }
}

fn clamp(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
