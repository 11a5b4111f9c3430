//! [`Origin`]: where something of a graph is written.

/// A source's place among a graph's sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(u32);

/// Where something is written: a source and a line of it, a source as a whole, or nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// Place among the sources, counted from 1; 0 is none.
    source: u32,
    /// Counted from 1; 0 is the whole.
    line: u32,
}

impl Origin {
    /// Written nowhere: what is so as a rule.
    pub const ASSUMED: Origin = Origin { source: 0, line: 0 };

    /// A line, counted from 1, of a source.
    pub fn line(source: SourceId, line: u32) -> Self {
        Origin {
            source: source.0.saturating_add(1),
            line,
        }
    }

    /// A source that has no lines, such as a path in sysfs.
    pub fn whole(source: SourceId) -> Self {
        Origin::line(source, 0)
    }

    /// The source.
    pub fn source(self) -> Option<SourceId> {
        self.source.checked_sub(1).map(SourceId)
    }

    /// The line, counted from 1.
    pub fn line_number(self) -> Option<u32> {
        (self.line > 0).then_some(self.line)
    }

    pub(super) fn place(self, sources: &[Box<str>]) -> String {
        let source = self.source().and_then(|source| sources.get(source.0 as usize));
        match (source, self.line) {
            (None, _) => "assumed".to_owned(),
            (Some(source), 0) => source.to_string(),
            (Some(source), line) => format!("{source}:{line}"),
        }
    }
}

impl SourceId {
    pub(super) fn of(at: u32) -> Self {
        SourceId(at)
    }

    /// Its place among the sources, counted from 0.
    pub fn at(self) -> usize {
        self.0 as usize
    }
}
