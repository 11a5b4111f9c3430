//! The library's own format, which `write/json.rs` writes: an object that has, first where it was not
//! sorted, the key [`MARK`] with the [`VERSION`], and lists of nodes, groups and edges. A node comes after the one it lies in.

use super::{
    Flaw, Format, Lines, Position, Reading,
    repairs::{self, Repairs},
};
use crate::topo::{
    graph::{Confidence, Graph, Group, GroupId, Link, LinkKind, NodeId, NodeKind, Origin, SourceId},
    words,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use std::collections::{BTreeMap, HashMap};

pub(super) const FORMAT: Format = Format {
    name: "json",
    about: "this library's own",
    // Other programs may have sorted the keys.
    sniff: |text| text.trim_start().starts_with('{') && text.contains("\"ccl-topology\""),
    read,
};

/// The key by which a file is known.
pub(crate) const MARK: &str = "ccl-topology";

/// What is written; all up to it can be read.
pub(crate) const VERSION: u64 = 1;

#[derive(Deserialize)]
struct File<'t> {
    #[serde(rename = "ccl-topology")]
    version: u64,
    #[serde(default)]
    about: BTreeMap<String, String>,
    #[serde(default)]
    sources: Vec<String>,
    #[serde(borrow, default)]
    nodes: Vec<&'t RawValue>,
    #[serde(borrow, default)]
    groups: Vec<&'t RawValue>,
    #[serde(borrow, default)]
    edges: Vec<&'t RawValue>,
    #[serde(flatten)]
    unknown: BTreeMap<String, Value>,
}

/// Where something was first written: a place among the file's sources, and a line.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Place {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<u32>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NodeRow {
    pub(crate) id: usize,
    pub(crate) kind: NodeKind,
    pub(crate) name: String,
    #[serde(rename = "in", default, skip_serializing_if = "Option::is_none")]
    pub(crate) within: Option<usize>,
    #[serde(flatten)]
    pub(crate) place: Place,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) attributes: BTreeMap<String, String>,
    #[serde(flatten)]
    pub(crate) unknown: BTreeMap<String, Value>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct GroupRow {
    pub(crate) id: usize,
    pub(crate) name: String,
    pub(crate) bytes_per_second: u64,
    #[serde(default = "declared")]
    pub(crate) confidence: Confidence,
    #[serde(flatten)]
    pub(crate) place: Place,
    #[serde(flatten)]
    pub(crate) unknown: BTreeMap<String, Value>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EdgeRow {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// The same the other way.
    #[serde(default)]
    pub(crate) both: bool,
    pub(crate) kind: LinkKind,
    #[serde(default)]
    pub(crate) bytes_per_second: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) latency_ns: Option<u32>,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub(crate) wires: u32,
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub(crate) reachable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<usize>,
    #[serde(default = "declared")]
    pub(crate) confidence: Confidence,
    #[serde(flatten)]
    pub(crate) place: Place,
    #[serde(flatten)]
    pub(crate) unknown: BTreeMap<String, Value>,
}

fn declared() -> Confidence {
    Confidence::Declared
}

fn one() -> u32 {
    1
}

fn is_one(wires: &u32) -> bool {
    *wires == 1
}

fn yes() -> bool {
    true
}

fn read(text: &str, source: &str) -> Result<Reading, Flaw> {
    let mut reader = Reader {
        text,
        name: source,
        lines: Lines::new(text),
        graph: Graph::new(),
        sources: Vec::new(),
        repairs: Repairs::default(),
    };
    let file: File = serde_json::from_str(text).map_err(|error| reader.bad(0, &error))?;
    if !(1..=VERSION).contains(&file.version) {
        let what = format!("version {}", file.version);
        return Err(reader.flaw(Position::FIRST, what, format!("version 1 to {VERSION}")));
    }
    reader.tell_unknown(0, &file.unknown);
    for (key, value) in &file.about {
        reader.graph.set_whole(key, value);
    }
    reader.sources = file
        .sources
        .iter()
        .map(|source| reader.graph.add_source(source))
        .collect();
    let nodes = reader.nodes(&file.nodes)?;
    let groups = reader.groups(&file.groups)?;
    reader.edges(&file.edges, &nodes, &groups)?;
    Ok(Reading {
        graph: reader.graph,
        repairs: reader.repairs.done(),
    })
}

struct Reader<'r> {
    text: &'r str,
    name: &'r str,
    lines: Lines<'r>,
    graph: Graph,
    sources: Vec<SourceId>,
    repairs: Repairs,
}

impl Reader<'_> {
    fn nodes(&mut self, rows: &[&RawValue]) -> Result<HashMap<usize, NodeId>, Flaw> {
        let mut nodes = HashMap::new();
        for raw in rows {
            let (at, row): (usize, NodeRow) = self.row(raw)?;
            self.tell_unknown(at, &row.unknown);
            let parent = match row.within {
                None => None,
                Some(within) => Some(*nodes.get(&within).ok_or_else(|| {
                    self.flaw_at(
                        at,
                        format!("a node in {within}"),
                        "one that lies in a node above it",
                    )
                })?),
            };
            let origin = self.origin(at, &row.place)?;
            let node = self.graph.add_node(row.kind, &row.name, parent, origin);
            for (key, value) in &row.attributes {
                self.graph.set(node, key, value);
            }
            if nodes.insert(row.id, node).is_some() {
                return Err(self.flaw_at(at, format!("a second node {}", row.id), "an id of its own"));
            }
        }
        Ok(nodes)
    }

    fn groups(&mut self, rows: &[&RawValue]) -> Result<HashMap<usize, GroupId>, Flaw> {
        let mut groups = HashMap::new();
        for raw in rows {
            let (at, row): (usize, GroupRow) = self.row(raw)?;
            self.tell_unknown(at, &row.unknown);
            let group = self.graph.add_group(Group {
                name: row.name.into(),
                bytes_per_second: row.bytes_per_second,
                confidence: row.confidence,
                origin: self.origin(at, &row.place)?,
            });
            if groups.insert(row.id, group).is_some() {
                return Err(self.flaw_at(at, format!("a second group {}", row.id), "an id of its own"));
            }
        }
        Ok(groups)
    }

    fn edges(
        &mut self,
        rows: &[&RawValue],
        nodes: &HashMap<usize, NodeId>,
        groups: &HashMap<usize, GroupId>,
    ) -> Result<(), Flaw> {
        for raw in rows {
            let (at, row): (usize, EdgeRow) = self.row(raw)?;
            self.tell_unknown(at, &row.unknown);
            let end = |id: usize| {
                let end = nodes.get(&id).copied();
                end.ok_or_else(|| self.flaw_at(at, format!("an edge of node {id}"), "a node of the file"))
            };
            let (from, to) = (end(row.from)?, end(row.to)?);
            let group = match row.group {
                None => None,
                Some(id) => Some(*groups.get(&id).ok_or_else(|| {
                    self.flaw_at(at, format!("an edge of group {id}"), "a group of the file")
                })?),
            };
            if row.wires == 0 {
                return Err(self.flaw_at(at, "an edge of 0 wires".to_owned(), "at least 1"));
            }
            let link = Link {
                kind: row.kind,
                bytes_per_second: row.bytes_per_second,
                latency_ns: row.latency_ns,
                wires: row.wires,
                reachable: row.reachable,
                group,
                confidence: row.confidence,
                origin: self.origin(at, &row.place)?,
            };
            match row.both {
                true => _ = self.graph.join(from, to, link),
                false => _ = self.graph.add_edge(from, to, link),
            }
        }
        Ok(())
    }

    /// A row, and where in the text it begins.
    fn row<'t, T: Deserialize<'t>>(&self, raw: &'t RawValue) -> Result<(usize, T), Flaw> {
        // The row is a part of the text: its address says which.
        let at = (raw.get().as_ptr() as usize).wrapping_sub(self.text.as_ptr() as usize);
        let row = serde_json::from_str(raw.get()).map_err(|error| self.bad(at, &error))?;
        Ok((at, row))
    }

    fn origin(&self, at: usize, place: &Place) -> Result<Origin, Flaw> {
        let Some(source) = place.source else {
            return Ok(Origin::ASSUMED);
        };
        let known = self.sources.get(source);
        let known =
            known.ok_or_else(|| self.flaw_at(at, format!("source {source}"), "one of the file's sources"))?;
        Ok(Origin::line(*known, place.line.unwrap_or(0)))
    }

    fn tell_unknown(&mut self, at: usize, unknown: &BTreeMap<String, Value>) {
        for key in unknown.keys() {
            let what = format!("\"{key}\" is unknown: left out");
            self.repairs.tell(self.lines.position(at), what);
        }
    }

    /// What serde_json did not like in what begins at a byte. It counts columns in bytes.
    fn bad(&self, start: usize, error: &serde_json::Error) -> Flaw {
        let begin = self.lines.position(start);
        let line = u32::try_from(error.line()).unwrap_or(u32::MAX).max(1);
        let column = u32::try_from(error.column()).unwrap_or(u32::MAX).max(1);
        let at = match line {
            1 => Position {
                line: begin.line,
                column: begin.column.saturating_add(column - 1),
            },
            _ => Position {
                line: begin.line.saturating_add(line - 1),
                column,
            },
        };
        let what = error.to_string();
        let what = what
            .rsplit_once(" at line ")
            .map_or(what.as_str(), |(what, _)| what);
        self.flaw(
            at,
            what.to_owned(),
            "what ccl-topo dump --format json writes".to_owned(),
        )
    }

    fn flaw_at(&self, at: usize, what: String, wanted: &str) -> Flaw {
        self.flaw(self.lines.position(at), what, wanted.to_owned())
    }

    fn flaw(&self, at: Position, what: String, wanted: String) -> Flaw {
        Flaw {
            source_name: self.name.to_owned(),
            at,
            what: words::cut(what, repairs::BYTES),
            wanted,
        }
    }
}
