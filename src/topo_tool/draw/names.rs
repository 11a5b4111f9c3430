//! What is written in boxes.

use super::page::{Letters, clean};
use super::view::Shown;
use crate::topo::{
    graph::{Graph, Link, NodeId, NodeKind},
    search::Task,
    show::{giga, kind},
};
use std::collections::HashMap;

/// Devices by short names, as `ccl-topo show` and `rings` have them.
pub(super) struct Names(HashMap<NodeId, String>);

impl Names {
    pub(super) fn new(graph: &Graph) -> Names {
        let devices = graph
            .nodes()
            .filter(|node| matches!(graph.kind(*node), NodeKind::Gpu | NodeKind::Npu));
        let mut counts: HashMap<NodeKind, usize> = HashMap::new();
        let mut names = HashMap::new();
        for node in devices.chain(Task::usable_nics(graph)) {
            let name = match graph.kind(node) {
                NodeKind::Gpu => "GPU",
                NodeKind::Npu => "NPU",
                _ => "NIC",
            };
            let count = counts.entry(graph.kind(node)).or_default();
            names.insert(node, format!("{name}{count}"));
            *count += 1;
        }
        Names(names)
    }

    /// A short name, or the node's own.
    pub(super) fn of(&self, graph: &Graph, node: NodeId) -> String {
        let own = || clean(graph.name(node));
        self.0.get(&node).cloned().unwrap_or_else(own)
    }
}

/// What is written in a box; of what is around others in a line.
pub(super) fn lines(graph: &Graph, shown: &Shown, names: &Names) -> Vec<String> {
    let node = shown.node;
    let mut lines = Vec::new();
    let name = clean(graph.name(node));
    if let Some(short) = names.0.get(&node).filter(|_| shown.alike == 1) {
        lines.push(short.clone());
    }
    if lines.first().is_none_or(|short| !is_same(short, &name)) {
        lines.push(match name.trim().is_empty() {
            true => kind(graph.kind(node)).to_owned(),
            false => name,
        });
    }
    lines.extend(told(graph, node));
    if shown.hidden > 0 {
        lines.push(format!("and {} inside", shown.hidden));
    }
    if shown.alike > 1 {
        lines.push(format!("× {}", shown.alike));
    }
    lines
        .iter()
        .map(|line| Letters::PLAIN.cut(line, WIDEST))
        .collect()
}

/// Pixels of a line in a box.
const WIDEST: f64 = 150.0;

/// Whether one is the other, spaces and such apart.
fn is_same(one: &str, other: &str) -> bool {
    let letters = |text: &str| -> String {
        let kept = text.chars().filter(|letter| letter.is_alphanumeric());
        kept.flat_map(char::to_lowercase).collect()
    };
    letters(one) == letters(other)
}

/// Ranks, ports and cores in a node that have no boxes.
fn told(graph: &Graph, node: NodeId) -> Vec<String> {
    let mut lines = Vec::new();
    let of = |wanted: NodeKind| {
        graph
            .children(node)
            .filter(move |child| graph.kind(*child) == wanted && graph.children(*child).next().is_none())
    };
    let mut ranks = of(NodeKind::Rank);
    match (ranks.next(), ranks.count()) {
        (Some(rank), 0) => lines.push(clean(graph.name(rank))),
        (Some(_), more) => lines.push(format!("{} ranks", more + 1)),
        (None, _) => {}
    }
    let ports: Vec<NodeId> = of(NodeKind::NicPort).collect();
    if !ports.is_empty() {
        let mut links: HashMap<NodeId, Link> = HashMap::new();
        for edge in graph.edges_from(node).map(|edge| graph.edge(edge)) {
            links.entry(edge.to).or_insert(edge.link);
        }
        let speed = |port: &NodeId| {
            let link = links.get(port).filter(|link| link.reachable);
            link.map(|link| link.bytes_per_second)
        };
        let used: Vec<u64> = ports.iter().filter_map(speed).collect();
        let sum: u64 = used.iter().copied().fold(0, u64::saturating_add);
        // Where none can be used it is told that they are there.
        let count = if used.is_empty() { ports.len() } else { used.len() };
        let times = if count > 1 {
            format!("{count} × ")
        } else {
            String::new()
        };
        lines.push(match sum / count as u64 {
            0 => format!("{times}port"),
            each => format!("{times}{} GB/s", giga(each)),
        });
    }
    let has_cores = matches!(graph.kind(node), NodeKind::Numa | NodeKind::Package);
    if let Some(cores) = graph.get(node, "cpulist").filter(|_| has_cores) {
        lines.push(format!("cores {}", clean(cores)));
    }
    let caches = of(NodeKind::Cores).count();
    if caches > 1 {
        lines.push(format!("{caches} groups of cores"));
    }
    lines
}
