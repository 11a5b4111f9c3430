//! Writers of topology files, one file each.

mod json;
mod nccl_xml;

use super::graph::Graph;

/// What a writer made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The file.
    pub text: String,
    /// What the format has no words for, and is not in the file.
    pub left_out: Vec<String>,
}

/// A format that can be written.
#[derive(Debug)]
pub struct Writer {
    /// As the command line, and the reader of the same format, call it.
    pub name: &'static str,
    /// Writes a graph.
    pub write: fn(&Graph) -> Written,
}

/// All of them.
pub const WRITERS: &[Writer] = &[
    Writer {
        name: "json",
        write: json::write,
    },
    Writer {
        name: "nccl-xml",
        write: nccl_xml::write,
    },
];

/// The writer of a name.
pub fn writer(name: &str) -> Option<&'static Writer> {
    WRITERS.iter().find(|writer| writer.name == name)
}
