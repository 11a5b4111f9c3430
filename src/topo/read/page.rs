//! [`Page`]: what readers share that keep the place of all they read.

use super::{
    Flaw, Lines, Position, Reading,
    repairs::{self, Repairs},
};
use crate::topo::{
    graph::{Graph, Origin, SourceId},
    words,
};

/// A text that is being read, and the graph it makes.
pub(super) struct Page<'t> {
    pub(super) text: &'t str,
    pub(super) graph: Graph,
    name: &'t str,
    pub(super) lines: Lines<'t>,
    source: SourceId,
    repairs: Repairs,
}

impl<'t> Page<'t> {
    pub(super) fn new(text: &'t str, name: &'t str) -> Self {
        let mut graph = Graph::new();
        Page {
            text,
            source: graph.source(name),
            graph,
            name,
            lines: Lines::new(text),
            repairs: Repairs::default(),
        }
    }

    pub(super) fn position(&self, byte: usize) -> Position {
        self.lines.position(byte)
    }

    /// The line of a byte, as an origin.
    pub(super) fn origin(&self, byte: usize) -> Origin {
        Origin::line(self.source, self.lines.line(byte))
    }

    pub(super) fn tell(&mut self, byte: usize, what: impl Into<String>) {
        let at = self.position(byte);
        self.repairs.tell(at, what);
    }

    pub(super) fn flaw(&self, byte: usize, what: impl Into<String>, wanted: &str) -> Flaw {
        Flaw {
            source_name: self.name.to_owned(),
            at: self.position(byte),
            what: words::cut(what.into(), repairs::BYTES),
            wanted: wanted.to_owned(),
        }
    }

    pub(super) fn done(self) -> Reading {
        Reading {
            graph: self.graph,
            repairs: self.repairs.done(),
        }
    }
}

/// The lines of a text without their ends, each with the byte at which it begins.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    text.split('\n').map(move |line| {
        let start = at;
        at += line.len() + 1;
        (start, line.strip_suffix('\r').unwrap_or(line))
    })
}

/// The words of a line, each with the byte of the text at which it begins.
pub(super) fn words(start: usize, line: &str) -> impl Iterator<Item = (usize, &str)> {
    let base = line.as_ptr() as usize;
    line.split_whitespace()
        .map(move |word| (start + (word.as_ptr() as usize - base), word))
}
