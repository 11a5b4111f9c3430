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
                let above = &paths[parent.at()];
                match above.len() > LONG {
                    true => format!("{}/{name}", short_and_unlike(above)),
                    false => format!("{above}/{name}"),
                }
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

/// Bytes of a path that are kept as they are before what lies below it: each node and each edge there has it.
const LONG: usize = 1000;

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
                short_and_unlike(&group.name)
            );
        }
        table.insert(format!("{kind} {from} -> {to}{which}"), said);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topo::graph::{Confidence, Group, Link, LinkKind, NodeKind, Origin};

    /// Nodes deep inside one another, with edges that share a capacity; names end so.
    fn deep(end: &str, name: usize) -> Graph {
        let mut graph = Graph::new();
        let named = |start: &str| format!("{start}{}{end}", "x".repeat(name));
        let mut top = graph.add_node(NodeKind::Host, &named("host"), None, Origin::ASSUMED);
        for depth in 0..DEPTH - 2 {
            top = graph.add_node(
                NodeKind::PciSwitch,
                &named(&format!("{depth}")),
                Some(top),
                Origin::ASSUMED,
            );
        }
        let group = graph.add_group(Group {
            name: named("slot").into(),
            bytes_per_second: 1,
            confidence: Confidence::Declared,
            origin: Origin::ASSUMED,
        });
        for at in 0..1000 {
            let node = graph.add_node(NodeKind::Gpu, &format!("gpu{at}"), Some(top), Origin::ASSUMED);
            let link = Link {
                group: Some(group),
                ..Link::new(LinkKind::Pcie, Origin::ASSUMED)
            };
            graph.join(top, node, link);
        }
        graph
    }

    #[test]
    fn names_that_are_told_often_are_told_short() {
        let (one, other) = (deep("1", 100_000), deep("2", 100_000));
        let changes = diff(&one, &other);
        assert_eq!(diff(&one, &one.clone()), []);
        let bytes: usize = changes.iter().map(|change| change.to_string().len()).sum();
        assert!(bytes < 16 << 20, "{bytes} bytes");
        // All nodes and edges lie in the host, whose name is another.
        assert_eq!(changes.len(), 2 * (1 + DEPTH - 2 + 1000 + 2000));
        let last = changes
            .iter()
            .any(|change| change.to_string().ends_with("/gpu999"));
        assert!(last, "nodes keep their own names");
    }
}
