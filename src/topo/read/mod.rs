//! Readers of topology files, one file each; [`read`] finds out from its content which format a text has.
//!
//! To add a reader: a file here with a [`Format`], and its line in [`FORMATS`]. A reader repairs what is provably wrong and tells
//! each repair with its position; what it cannot read is a [`Flaw`] with its position; it never panics.

mod astra;
mod document;
mod fabric;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod hccl;
mod hostlist;
mod hwloc;
mod ibnet;
pub(super) mod json;
mod lines;
mod lspci;
mod matrix;
mod nccl_graph;
mod nccl_xml;
mod netq;
mod nvswitches;
mod page;
mod repairs;
mod slurm;
mod slurm_yaml;
mod taccl;
mod topograph;
pub(crate) mod xml;

pub use lines::{Lines, Position};
pub(super) use nccl_xml::{reckon as nccl_reckon, words as nccl_words};

use super::graph::Graph;
use std::fmt;

/// A format of topology files.
#[derive(Debug)]
pub struct Format {
    /// As the command line calls it.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Whether a text looks like it. Cheap, and no is certain.
    pub sniff: fn(&str) -> bool,
    /// Reads a text; the second is the source's name.
    pub read: fn(&str, &str) -> Result<Reading, Flaw>,
}

/// What was read.
#[derive(Debug)]
pub struct Reading {
    /// The machine.
    pub graph: Graph,
    /// What was changed or left out on the way, in the order of positions; of very much only the first, and how much more there was.
    pub repairs: Vec<Repair>,
}

/// What a reader changed or left out, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// Where; [`Position::NONE`] if it was no text.
    pub at: Position,
    /// What was wrong and what is there instead.
    pub what: String,
}

/// Why a text could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{source_name}:{at}: {what}; wanted {wanted}")]
pub struct Flaw {
    /// The file, or what else the text is from.
    pub source_name: String,
    /// Where.
    pub at: Position,
    /// What was wrong.
    pub what: String,
    /// What would have been right.
    pub wanted: String,
}

/// All formats, in the order in which they are tried: one that is sure before one that guesses.
pub const FORMATS: &[Format] = &[
    json::FORMAT,
    nccl_xml::FORMAT,
    nccl_graph::FORMAT,
    hwloc::FORMAT,
    hccl::FORMAT,
    netq::FORMAT,
    taccl::FORMAT,
    astra::SYSTEM,
    matrix::FORMAT,
    lspci::FORMAT,
    ibnet::FORMAT,
    slurm::FORMAT,
    slurm_yaml::FORMAT,
    topograph::FORMAT,
    astra::YAML,
    astra::TREE,
];

/// Reads a text in the format that its content has; also says which that is.
///
/// # Errors
///
/// A text that no reader knows, or whose reader finds a flaw.
pub fn read(text: &str, source: &str) -> Result<(Reading, &'static Format), Flaw> {
    let format = FORMATS.iter().find(|format| (format.sniff)(unmarked(text)));
    let format = format.ok_or_else(|| unknown(text, source))?;
    Ok((read_as(format, text, source)?, format))
}

/// What is wrong with a text that looks like no format.
fn unknown(text: &str, source: &str) -> Flaw {
    let text = unmarked(text);
    let flaw = |at, what: &str, wanted: String| Flaw {
        source_name: source.to_owned(),
        at,
        what: what.to_owned(),
        wanted,
    };
    if text.trim().is_empty() {
        return flaw(Position::FIRST, "nothing but blanks", "a topology".to_owned());
    }
    if let Some(at) = text.find('\0') {
        let at = Lines::new(text).position(at);
        return flaw(
            at,
            "a byte of 0",
            "text in UTF-8, or in UTF-16 with a mark of its order".to_owned(),
        );
    }
    if text.contains('\r') && !text.contains('\n') {
        let at = Position::FIRST;
        return flaw(
            at,
            "lines that end in CR alone",
            "lines that end in LF".to_owned(),
        );
    }
    let names: Vec<_> = FORMATS.iter().map(|format| format.name).collect();
    let wanted = format!("one of {}", names.join(", "));
    flaw(Position::FIRST, "no topology format begins like this", wanted)
}

/// Reads a text in a format, whatever its content looks like.
///
/// # Errors
///
/// A flaw in it.
pub fn read_as(format: &Format, text: &str, source: &str) -> Result<Reading, Flaw> {
    (format.read)(unmarked(text), source)
}

/// A text without the mark by which some editors begin UTF-8.
fn unmarked(text: &str) -> &str {
    text.trim_start_matches('\u{feff}')
}

/// The format of a name.
pub fn format(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.name == name)
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            Position::NONE => f.write_str(&self.what),
            at => write!(f, "{at}: {}", self.what),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod tests_of_others;
