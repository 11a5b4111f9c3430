//! A graph as text: what there is, the tree of what lies in what, and the ways between GPUs and adapters.

use super::{
    graph::{Confidence, EdgeId, Graph, NodeId, NodeKind},
    paths::{Paths, Way},
    search::Task,
    words::short,
};
use std::{
    collections::{BTreeSet, HashMap},
    fmt::{Display, Write},
};

/// How many there are of each kind, in a line.
pub fn counts(graph: &Graph) -> String {
    let kinds = [
        (NodeKind::Host, "host"),
        (NodeKind::Package, "package"),
        (NodeKind::Numa, "NUMA node"),
        (NodeKind::Cores, "group of cores"),
        (NodeKind::RootComplex, "PCI root"),
        (NodeKind::PciSwitch, "PCI switch"),
        (NodeKind::Gpu, "GPU"),
        (NodeKind::Npu, "NPU"),
        (NodeKind::Rank, "rank"),
        (NodeKind::Nic, "NIC"),
        (NodeKind::NicPort, "port"),
        (NodeKind::NvSwitch, "NVSwitch"),
        (NodeKind::PciFunction, "other PCI function"),
        (NodeKind::Leaf, "leaf switch"),
        (NodeKind::Spine, "spine switch"),
        (NodeKind::CoreSwitch, "core switch"),
        (NodeKind::Wan, "wide-area network"),
        (NodeKind::Opaque, "unknown node"),
    ];
    let counts = kinds.into_iter().filter_map(|(kind, name)| {
        let count = graph.of_kind(kind).count();
        let name = match (count, name) {
            (0, _) => return None,
            (1, _) => name.to_owned(),
            (_, "group of cores") => "groups of cores".to_owned(),
            _ if name.ends_with("switch") || name.ends_with("Switch") => format!("{name}es"),
            _ => format!("{name}s"),
        };
        Some(format!("{count} {name}"))
    });
    let counts: Vec<String> = counts.collect();
    match counts.is_empty() {
        true => "nothing".to_owned(),
        false => counts.join(", "),
    }
}

/// What lies in what, a line for each node: its name, what it is, how it is joined with what it lies in, and whereto else.
pub fn tree(graph: &Graph) -> String {
    let mut text = String::new();
    let mut stack: Vec<(NodeId, usize)> = graph
        .nodes()
        .filter(|node| graph.parent(*node).is_none())
        .map(|node| (node, 0))
        .collect();
    stack.reverse();
    // Looked for among the edges of what has many children, each would take long.
    let mut ups = HashMap::new();
    for (id, edge) in graph.edge_ids().zip(graph.edges()) {
        if graph.parent(edge.to) == Some(edge.from) {
            ups.entry(edge.to).or_insert(id);
        }
    }
    while let Some((node, depth)) = stack.pop() {
        let indent = "  ".repeat(depth.min(DEEPEST));
        let _ = writeln!(text, "{indent}{}", line(graph, node, ups.get(&node).copied())); // Writing to a string does not fail.
        let children: Vec<NodeId> = graph.children(node).collect();
        stack.extend(children.into_iter().rev().map(|child| (child, depth + 1)));
    }
    text
}

/// Levels that are indented.
const DEEPEST: usize = 40;

/// `up` is its edge from what it lies in.
fn line(graph: &Graph, node: NodeId, up: Option<EdgeId>) -> String {
    let mut line = format!("{}  {}", short(graph.name(node)), kind(graph.kind(node)));
    for key in [
        "dev",
        "sm",
        "gcn",
        "speed",
        "cpulist",
        "memory",
        "link_layer",
        "netdev",
        "model",
    ] {
        if let Some(value) = graph.get(node, key) {
            let _ = write!(line, " {key}={}", short(value));
        }
    }
    let parent = graph.parent(node);
    if let Some(up) = up {
        let _ = write!(line, "  {}", speed(graph, up));
    }
    let mut seen = BTreeSet::new();
    let others = graph.edges_from(node).filter(|edge| {
        let to = graph.edge(*edge).to;
        Some(to) != parent && graph.parent(to) != Some(node)
    });
    let others: Vec<String> = others
        .map(|edge| {
            format!(
                "{} {}",
                short(graph.name(graph.edge(edge).to)),
                speed(graph, edge)
            )
        })
        .filter(|other| seen.insert(other.clone()))
        .collect();
    if !others.is_empty() {
        let shown = others.iter().take(MOST).cloned().collect::<Vec<_>>().join(", ");
        let more = others.len().saturating_sub(MOST);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        let _ = write!(line, "  -> {shown}{more}");
    }
    line
}

/// Edges to others that are shown of a node.
const MOST: usize = 8;

fn speed(graph: &Graph, edge: EdgeId) -> String {
    let link = graph.edge(edge).link;
    let sure = match link.confidence {
        Confidence::Assumed => "~",
        Confidence::Declared | Confidence::Measured => "",
    };
    let wires = if link.wires > 1 {
        format!("{} x ", link.wires)
    } else {
        String::new()
    };
    let name = format!("{:?}", link.kind);
    let way = if link.reachable { "" } else { ", not used" };
    match link.bytes_per_second {
        0 => format!("({wires}{name}{way})"),
        bytes => format!("({wires}{name} {sure}{} GB/s{way})", giga(bytes)),
    }
}

pub(crate) fn giga(bytes: u64) -> String {
    let giga = bytes as f64 / 1e9;
    let text = if giga < 1.0 {
        format!("{giga:.3}")
    } else {
        format!("{giga:.1}")
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

pub(crate) fn kind(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::Rank => "rank",
        NodeKind::Gpu => "GPU",
        NodeKind::Npu => "NPU",
        NodeKind::Cores => "cores",
        NodeKind::Numa => "NUMA node",
        NodeKind::Package => "package",
        NodeKind::Host => "host",
        NodeKind::RootComplex => "PCI root",
        NodeKind::PciSwitch => "PCI switch",
        NodeKind::PciFunction => "PCI function",
        NodeKind::NvSwitch => "NVSwitch",
        NodeKind::Nic => "NIC",
        NodeKind::NicPort => "port",
        NodeKind::Leaf => "leaf switch",
        NodeKind::Spine => "spine switch",
        NodeKind::CoreSwitch => "core switch",
        NodeKind::Wan => "wide-area network",
        NodeKind::Opaque => "unknown",
    }
}

/// The kinds of ways, and the bandwidths in GB/s, between GPUs, NPUs and adapters that have a usable port.
pub fn matrix(graph: &Graph) -> String {
    let gpus = graph
        .nodes()
        .filter(|node| matches!(graph.kind(*node), NodeKind::Gpu | NodeKind::Npu));
    let devices: Vec<NodeId> = gpus.chain(Task::usable_nics(graph)).collect();
    if devices.is_empty() || graph.edges().len() == 0 {
        return String::new();
    }
    if devices.len() > WIDEST {
        return format!(
            "ways: {} devices are too many for a table, which has up to {WIDEST}\n",
            devices.len()
        );
    }
    let mut counts = [0; 3];
    let names: Vec<String> = (devices.iter())
        .map(|device| {
            let (which, name) = match graph.kind(*device) {
                NodeKind::Gpu => (0, "GPU"),
                NodeKind::Npu => (1, "NPU"),
                _ => (2, "NIC"),
            };
            counts[which] += 1;
            format!("{name}{}", counts[which] - 1)
        })
        .collect();
    let paths: Vec<Paths> = devices.iter().map(|device| Paths::from(graph, *device)).collect();
    let cell = |from: usize, to: usize| paths[from].to(devices[to]).filter(|_| from != to);
    let mut text = String::new();
    let ways = |from: usize, to: usize| match cell(from, to) {
        _ if from == to => "X".to_owned(),
        Some(label) => label.way.name().to_owned(),
        None => "-".to_owned(),
    };
    table(&mut text, &names, ways);
    let mut seen: Vec<Way> = Vec::new();
    for from in 0..devices.len() {
        seen.extend((0..devices.len()).filter_map(|to| Some(cell(from, to)?.way)));
    }
    seen.sort();
    seen.dedup();
    for (way, about) in Way::ALL.iter().filter(|(way, _)| seen.contains(way)) {
        let _ = writeln!(text, "  {}  {about}", way.name());
    }
    text.push_str("\nGB/s\n");
    table(&mut text, &names, |from, to| match cell(from, to) {
        _ if from == to => "X".to_owned(),
        Some(label) if label.bytes_per_second == u64::MAX => "?".to_owned(),
        Some(label) => giga(label.bytes_per_second),
        None => "-".to_owned(),
    });
    text.push('\n');
    for (name, device) in names.iter().zip(&devices) {
        let ports = graph
            .children(*device)
            .filter(|port| graph.kind(*port) == NodeKind::NicPort);
        let ports: Vec<&str> = ports.map(|port| graph.name(port)).collect();
        let ports = if ports.is_empty() {
            String::new()
        } else {
            format!(" {}", ports.join(", "))
        };
        let place = graph.place(graph.origin(*device));
        let _ = writeln!(text, "  {name}  {}{ports}  [{place}]", graph.name(*device));
    }
    text
}

/// Devices in a table.
const WIDEST: usize = 64;

fn table<T: Display>(text: &mut String, names: &[String], cell: impl Fn(usize, usize) -> T) {
    let width = 7;
    let _ = write!(text, "{:width$}", "");
    for name in names {
        let _ = write!(text, "{name:>width$}");
    }
    for (from, name) in names.iter().enumerate() {
        let _ = write!(text, "\n{name:<width$}");
        for to in 0..names.len() {
            let _ = write!(text, "{:>width$}", cell(from, to).to_string());
        }
    }
    text.push('\n');
}
