//! The edges of a picture: those of a graph between its boxes, those that are alike as one.

use super::colours::{self, Sample, link_name};
use super::names::Names;
use super::page::Letters;
use super::view::View;
use crate::topo::{
    graph::{Confidence, Edge, Graph, LinkKind},
    show::giga,
};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Edges between two boxes, of one kind.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) ends: [usize; 2],
    pub(super) kind: LinkKind,
    pub(super) reachable: bool,
    /// Bytes a second of the widest, and of the widest the other way.
    pub(super) bytes: [u64; 2],
    pub(super) confidence: Confidence,
    /// How many wires the widest is.
    pub(super) wires: u32,
    /// How many edges it stands for, each way.
    pub(super) counts: [usize; 2],
    /// What it is in words.
    pub(super) about: String,
}

impl Wire {
    pub(super) fn widest(&self) -> u64 {
        self.bytes[0].max(self.bytes[1])
    }

    pub(super) fn dashes(&self) -> &'static str {
        match (self.reachable, self.widest()) {
            (false, _) => "2 5",
            (true, 0) if self.kind != LinkKind::Local => "7 3",
            _ => "",
        }
    }
}

/// All edges between different boxes. An edge from within a machine to something outside begins at the machine.
pub(super) fn wires(graph: &Graph, view: &mut View) -> Vec<Wire> {
    let mut wires: BTreeMap<([usize; 2], LinkKind, bool), (Wire, Edge)> = BTreeMap::new();
    for edge in graph.edges() {
        let Some([from, to]) = ends(graph, view, edge) else {
            continue;
        };
        let (ends, back) = ([from.min(to), from.max(to)], usize::from(from > to));
        let link = &edge.link;
        let (wire, widest) = wires.entry((ends, link.kind, link.reachable)).or_insert_with(|| {
            let wire = Wire {
                ends,
                kind: link.kind,
                reachable: link.reachable,
                bytes: [0; 2],
                confidence: link.confidence,
                wires: link.wires,
                counts: [0; 2],
                about: String::new(),
            };
            (wire, *edge)
        });
        wire.counts[back] += 1;
        if link.bytes_per_second > wire.widest() {
            (wire.confidence, wire.wires) = (link.confidence, link.wires);
            *widest = *edge;
        }
        wire.bytes[back] = wire.bytes[back].max(link.bytes_per_second);
    }
    let more = wires.len().saturating_sub(MOST_WIRES);
    if more > 0 {
        view.left_out.push(format!("{more} more edges"));
    }
    let names = Names::new(graph);
    let told = wires.into_values().take(MOST_WIRES).map(|(mut wire, edge)| {
        wire.about = about(graph, &names, &wire, &edge);
        wire
    });
    told.collect()
}

/// The boxes that an edge is drawn between.
fn ends(graph: &Graph, view: &View, edge: &Edge) -> Option<[usize; 2]> {
    let (from, to) = (view.of(edge.from)?, view.of(edge.to)?);
    let roots = [view.root(from), view.root(to)];
    if roots[0] != roots[1] {
        return Some(roots);
    }
    let parts = [(edge.from, edge.to), (edge.to, edge.from)];
    let is_apart = parts.iter().any(|&(one, other)| {
        graph.parent(one) == Some(other) && view.of(one).is_some_and(|at| view.is_apart(at))
    });
    let is_there = view.is_there(edge.from) && view.is_there(edge.to);
    let is_around = [from, to].contains(&roots[0]);
    (from != to && is_there && !is_around && !is_apart).then_some([from, to])
}

fn about(graph: &Graph, names: &Names, wire: &Wire, edge: &Edge) -> String {
    let mut text = format!(
        "{} - {}: {}",
        names.of(graph, edge.from),
        names.of(graph, edge.to),
        what(wire)
    );
    let (forth, back) = (wire.bytes[0], wire.bytes[1]);
    if forth != back && forth.min(back) > 0 {
        let _ = write!(text, ", {} GB/s the other way", giga(forth.min(back)));
    }
    let count = wire.counts[0].max(wire.counts[1]);
    if count > 1 {
        let _ = write!(text, ", one of {count}");
    }
    let _ = write!(text, " [{}]", graph.place(edge.link.origin)); // Writing to a string does not fail.
    Letters::PLAIN.cut(&text, 2000.0)
}

/// The kind and the bandwidth.
fn what(wire: &Wire) -> String {
    let sure = match wire.confidence {
        Confidence::Assumed => "~",
        Confidence::Declared | Confidence::Measured => "",
    };
    let mut text = link_name(wire.kind).to_owned();
    if wire.wires > 1 {
        text = format!("{} × {text}", wire.wires);
    }
    match wire.widest() {
        0 if wire.kind == LinkKind::Local => {}
        0 => text += ", bandwidth unknown",
        bytes => _ = write!(text, " {sure}{} GB/s", giga(bytes)),
    }
    if !wire.reachable {
        text += ", not used";
    }
    text
}

/// What the legend says of edges, the widest first.
pub(super) fn entries(wires: &[Wire]) -> Vec<(Sample, String)> {
    let mut sorts: BTreeMap<(u64, String), &Wire> = BTreeMap::new();
    for wire in wires {
        sorts
            .entry((u64::MAX - wire.widest(), what(wire)))
            .or_insert(wire);
    }
    let more = sorts.len().saturating_sub(MOST_SORTS);
    let sample = |wire: &Wire| Sample::Line {
        colour: colours::of_link(wire.kind),
        width: colours::width(wire.widest()),
        dashes: wire.dashes(),
    };
    let mut entries: Vec<_> = sorts
        .into_iter()
        .take(MOST_SORTS)
        .map(|((_, text), wire)| (sample(wire), text))
        .collect();
    if more > 0 {
        let none = Sample::Line {
            colour: "none",
            width: 1.0,
            dashes: "",
        };
        entries.push((none, format!("and {more} more bandwidths")));
    }
    entries
}

const MOST_SORTS: usize = 14;

const MOST_WIRES: usize = 2000;
