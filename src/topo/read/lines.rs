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
    /// Bytes that go on with a character, before each block of [`BLOCK`] bytes: a line may be as long as its file.
    going_on: Vec<usize>,
}

const BLOCK: usize = 512;

impl<'t> Lines<'t> {
    /// Looks through a text once.
    pub fn new(text: &'t str) -> Self {
        let ends = text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n');
        let starts = std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        let mut before = vec![0];
        for block in text.as_bytes().chunks(BLOCK) {
            before.push(before[before.len() - 1] + going_on(block));
        }
        Lines {
            text,
            starts,
            going_on: before,
        }
    }

    /// The position of a byte; the end's, if it lies beyond.
    pub fn position(&self, byte: usize) -> Position {
        let byte = byte.min(self.text.len());
        let line = self.starts.partition_point(|&start| start <= byte).max(1);
        let start = self.starts[line - 1];
        let column = (byte - self.going_on(byte)) - (start - self.going_on(start)) + 1;
        Position {
            line: clamp(line),
            column: clamp(column),
        }
    }

    /// Bytes before one that go on with a character.
    fn going_on(&self, byte: usize) -> usize {
        let block = byte / BLOCK;
        self.going_on[block] + going_on(&self.text.as_bytes()[block * BLOCK..byte])
    }
}

fn going_on(bytes: &[u8]) -> usize {
    bytes.iter().filter(|&&byte| byte & 0xc0 == 0x80).count()
}

fn clamp(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
