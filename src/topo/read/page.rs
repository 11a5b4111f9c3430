//! [`Page`]: what readers share that keep the place of all they read.

use super::hostlist;
use super::{Flaw, Lines, Position, Reading, repairs::Repairs};
use crate::topo::{
    graph::{Graph, Origin, SourceId},
    words::cut,
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
        Origin::line(self.source, self.position(byte).line)
    }

    pub(super) fn tell(&mut self, byte: usize, what: impl Into<String>) {
        self.repairs.tell(self.position(byte), what);
    }

    pub(super) fn flaw(&self, byte: usize, what: impl Into<String>, wanted: &str) -> Flaw {
        Flaw {
            source_name: self.name.to_owned(),
            at: self.position(byte),
            what: cut(&what.into(), LONGEST).into_owned(),
            wanted: wanted.to_owned(),
        }
    }

    /// A name as the file has it, if it is one that anything is called.
    pub(super) fn name(&self, byte: usize, name: &str) -> Result<String, Flaw> {
        match name.len() <= hostlist::LONGEST {
            true => Ok(name.to_owned()),
            false => {
                let what = format!("a name of {} bytes", name.len());
                Err(self.flaw(byte, what, "1024 at most"))
            }
        }
    }

    pub(super) fn done(self) -> Reading {
        Reading {
            graph: self.graph,
            repairs: self.repairs.done(),
        }
    }
}

/// Characters of what is wrong.
const LONGEST: usize = 400;

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
