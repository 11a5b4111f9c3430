//! [`diff`]: in what two graphs differ, whatever the order in which they were made, and wherever they are written.

use super::{
    graph::{Graph, NodeId},
    words::short_and_unlike,
};
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

/// One thing in which the second graph differs from the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Only the first has it.
    Gone(String),
    /// Only the second has it.
    New(String),
    /// Both have it, but not alike.
    Other {
        /// What it is.
        what: String,
        /// In the first.
        before: String,
        /// In the second.
        after: String,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Gone(what) => write!(f, "- {what}"),
            Change::New(what) => write!(f, "+ {what}"),
            Change::Other { what, before, after } => write!(f, "~ {what}: {before} -> {after}"),
        }
    }
}

/// All in which the second differs from the first. Nodes are known by their names and those of what they lie in.
pub fn diff(first: &Graph, second: &Graph) -> Vec<Change> {
    let mut changes = compare(&whole(first), &whole(second));
    let names = [paths(first), paths(second)];
    changes.extend(compare(&nodes(first, &names[0]), &nodes(second, &names[1])));
    changes.extend(compare(&edges(first, &names[0]), &edges(second, &names[1])));
    changes
}

/// What is there, by name, with what is said of it.
type Table = BTreeMap<String, String>;

fn compare(first: &Table, second: &Table) -> Vec<Change> {
    let mut changes = Vec::new();
    for (what, before) in first {
        match second.get(what) {
            None => changes.push(Change::Gone(what.clone())),
            Some(after) if before != after => changes.push(Change::Other {
                what: what.clone(),
                before: before.clone(),
                after: after.clone(),
            }),
            Some(_) => {}
        }
    }
    let new = second.keys().filter(|what| !first.contains_key(*what));
    changes.extend(new.map(|what| Change::New(what.clone())));
    changes
}

fn whole(graph: &Graph) -> Table {
    let all = graph.whole();
    all.map(|(key, value)| (format!("the whole's {key}"), value.to_owned()))
        .collect()
}

/// Each node's name: its own, those of what it lies in, and which it is of several with that name.
fn paths(graph: &Graph) -> Vec<String> {
    let mut paths: Vec<String> = Vec::with_capacity(graph.len());
    let mut seen: HashMap<String, usize> = HashMap::new();
    for node in graph.nodes() {
        let name = short_and_unlike(graph.name(node));
        let mut path = match graph.parent(node) {
            // Deep trees would take memory by the square of their depth.
            Some(parent) if graph.ancestors(node).nth(DEPTH).is_none() => {
                format!("{}/{name}", paths[parent.at()])
            }
            _ => name.into_owned(),
        };
        let before = seen.entry(path.clone()).or_default();
        *before += 1;
        if *before > 1 {
            path = format!("{path}#{before}");
        }
        paths.push(path);
    }
    paths
}

const DEPTH: usize = 30;

fn nodes(graph: &Graph, names: &[String]) -> Table {
    let mut table = Table::new();
    for node in graph.nodes() {
        let name = &names[node.at()];
        table.insert(format!("node {name}"), format!("{:?}", graph.kind(node)));
        for (key, value) in graph.attributes(node) {
            table.insert(format!("node {name}, {key}"), value.to_owned());
        }
    }
    table
}

fn edges(graph: &Graph, names: &[String]) -> Table {
    let mut table = Table::new();
    let mut seen: HashMap<(NodeId, NodeId, String), usize> = HashMap::new();
    for edge in graph.edges() {
        let link = &edge.link;
        let kind = format!("{:?}", link.kind);
        let before = seen.entry((edge.from, edge.to, kind.clone())).or_default();
        *before += 1;
        let which = if *before > 1 {
            format!(" #{before}")
        } else {
            String::new()
        };
        let (from, to) = (&names[edge.from.at()], &names[edge.to.at()]);
        let mut said = format!(
            "{} GB/s {:?}, {} wires",
            link.bytes_per_second as f64 / 1e9,
            link.confidence,
            link.wires
        );
        if let Some(latency) = link.latency_ns {
            said += &format!(", {latency} ns");
        }
        if !link.reachable {
            said += ", not reachable";
        }
        if let Some(group) = link.group.map(|group| graph.group(group)) {
            said += &format!(
                ", shares {} GB/s of {}",
                group.bytes_per_second as f64 / 1e9,
                group.name
            );
        }
        table.insert(format!("{kind} {from} -> {to}{which}"), said);
    }
    table
}
