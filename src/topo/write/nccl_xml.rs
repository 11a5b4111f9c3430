//! NCCL's description of a system; RCCL's, where a GPU has xGMI links.

use super::Written;
use crate::topo::{
    graph::{Confidence, Graph, Link, LinkKind, NodeId, NodeKind},
    read::nccl_words as words,
    speeds,
};
use std::{collections::HashMap, fmt::Write};

pub(super) fn write(graph: &Graph) -> Written {
    let mut writer = Writer {
        graph,
        text: String::new(),
        depth: 0,
        several: graph.of_kind(NodeKind::Host).nth(1).is_some(),
        parts: parts(graph),
        written: vec![false; graph.len()],
        left_out: Vec::new(),
    };
    let version = graph.get_whole("version").unwrap_or("1");
    let mut whole = vec![("version", version)];
    whole.extend(graph.whole().filter(|(key, _)| *key != "version"));
    writer.open("system", &whole);
    writer.tree();
    writer.close("system");
    Written {
        text: writer.text,
        left_out: writer.left_out,
    }
}

struct Writer<'g> {
    graph: &'g Graph,
    text: String,
    depth: usize,
    /// Whether there are several hosts.
    several: bool,
    /// Further GPUs of a function.
    parts: HashMap<NodeId, Vec<NodeId>>,
    /// Nodes that are in the text.
    written: Vec<bool>,
    left_out: Vec<String>,
}

/// What is still to be written, the last first.
enum Task {
    Node(NodeId),
    Close(&'static str),
}

/// Whether a node is a PCI function, and so can be an element with others inside.
fn is_function(graph: &Graph, node: NodeId) -> bool {
    graph.get(node, "busid").is_some()
}

/// The further GPUs of functions, each of the last one before it that has its name.
fn parts(graph: &Graph) -> HashMap<NodeId, Vec<NodeId>> {
    let mut parts: HashMap<NodeId, Vec<NodeId>> = HashMap::new();
    let mut functions: HashMap<(Option<NodeId>, &str), NodeId> = HashMap::new();
    for node in graph.of_kind(NodeKind::Gpu) {
        let place = (graph.parent(node), graph.name(node));
        match (graph.get(node, words::PART), functions.get(&place)) {
            (Some(_), Some(function)) => parts.entry(*function).or_default().push(node),
            (Some(_), None) => {}
            (None, _) => _ = functions.insert(place, node),
        }
    }
    parts
}

impl Writer<'_> {
    /// All nodes, without recursion. What lies in no NUMA node is put into one of its own.
    fn tree(&mut self) {
        let graph = self.graph;
        let is_top = |node: &NodeId| graph.kind(*node) == NodeKind::Numa;
        let stray: Vec<NodeId> = (graph.nodes())
            .filter(|node| is_function(graph, *node) && graph.within(*node, NodeKind::Numa).is_none())
            .filter(|node| !graph.ancestors(*node).any(|above| is_function(graph, above)))
            .collect();
        for numa in graph.nodes().filter(is_top) {
            self.cpu(numa);
            let children: Vec<NodeId> = graph.children(numa).collect();
            self.inside(&children);
            self.close("cpu");
        }
        if !stray.is_empty() {
            self.open("cpu", &[("numaid", "-1")]);
            self.inside(&stray);
            self.close("cpu");
        }
        self.tell_left_out();
    }

    /// Hosts are words of NUMA nodes, and switches of NVLinks the ends of links.
    fn tell_left_out(&mut self) {
        let graph = self.graph;
        let mut lost: Vec<NodeKind> = graph
            .nodes()
            .filter(|node| !self.written[node.at()])
            .map(|node| graph.kind(node))
            .filter(|kind| !matches!(kind, NodeKind::Host | NodeKind::NvSwitch))
            .collect();
        lost.sort();
        for kinds in lost.chunk_by(|one, other| one == other) {
            let nameless = match kinds[0] {
                NodeKind::Gpu => " without a bus id",
                _ => "",
            };
            self.left_out
                .push(format!("{} of {:?}{nameless}", kinds.len(), kinds[0]));
        }
        let links = graph.edges().filter(|edge| {
            let is_between = |kind| matches!(kind, LinkKind::NvLink | LinkKind::XGmi);
            let is_known = |node| {
                graph.kind(node) == NodeKind::NvSwitch
                    || graph.get(node, "busid").is_some() && self.written[node.at()]
            };
            let leads = is_known(edge.from) && is_known(edge.to);
            edge.link.kind == LinkKind::Hccs || is_between(edge.link.kind) && !leads
        });
        let links = links.count();
        if links > 0 {
            self.left_out
                .push(format!("{links} links of GPUs or NPUs, each way counted"));
        }
    }

    fn cpu(&mut self, numa: NodeId) {
        let graph = self.graph;
        self.written[numa.at()] = true;
        let host = graph.within(numa, NodeKind::Host);
        let hash = host.and_then(|host| graph.get(host, words::HOST));
        let hash = hash.or_else(|| host.filter(|_| self.several).map(|host| graph.name(host)));
        let mut all: Vec<(&str, &str)> = hash.map(|hash| (words::HOST, hash)).into_iter().collect();
        let number = graph.get(numa, "numaid");
        all.push((
            "numaid",
            number.unwrap_or(graph.name(numa).trim_start_matches("NUMA ")),
        ));
        all.extend(graph.attributes(numa).filter(|(key, _)| *key != "numaid"));
        self.open("cpu", &all);
    }

    fn inside(&mut self, nodes: &[NodeId]) {
        let graph = self.graph;
        let mut tasks: Vec<Task> = nodes.iter().rev().map(|node| Task::Node(*node)).collect();
        while let Some(task) = tasks.pop() {
            let node = match task {
                Task::Close(name) => {
                    self.close(name);
                    continue;
                }
                Task::Node(node) => node,
            };
            let children = || graph.children(node).filter(|child| !self.is_inner(*child));
            let below: Vec<Task> = children().map(Task::Node).collect();
            match graph.kind(node) {
                _ if graph.get(node, words::PART).is_some() => {}
                NodeKind::Nic if !is_function(graph, node) => {
                    self.nic(node);
                }
                _ if is_function(graph, node) => {
                    self.pci(node);
                    tasks.push(Task::Close("pci"));
                    tasks.extend(below.into_iter().rev());
                }
                // What the format does not know, with what it knows inside.
                _ => tasks.extend(below.into_iter().rev()),
            }
        }
    }

    /// Whether a node is written with the one in which it lies.
    fn is_inner(&self, node: NodeId) -> bool {
        matches!(
            self.graph.kind(node),
            NodeKind::Rank | NodeKind::NicPort | NodeKind::Numa
        )
    }

    /// A function, but for what lies in it.
    fn pci(&mut self, node: NodeId) {
        let graph = self.graph;
        self.written[node.at()] = true;
        let known = words::PCI
            .iter()
            .filter_map(|key| Some((*key, graph.get(node, key)?)));
        let more = graph
            .attributes(node)
            .filter_map(|(key, value)| Some((key.strip_prefix(words::PCI_PREFIX)?, value)));
        let all: Vec<(&str, &str)> = known.chain(more).collect();
        self.open("pci", &all);
        match graph.kind(node) {
            NodeKind::Gpu => {
                self.gpu(node);
                for part in self.parts.remove(&node).unwrap_or_default() {
                    self.gpu(part);
                }
            }
            NodeKind::Nic => self.nic(node),
            _ => {}
        }
    }

    /// A GPU once for each of its ranks; its links with the first.
    fn gpu(&mut self, node: NodeId) {
        let graph = self.graph;
        self.written[node.at()] = true;
        let own = |key: &str| {
            !words::PCI.contains(&key)
                && !key.starts_with(words::PCI_PREFIX)
                && !key.starts_with(words::LINK_PREFIX)
                && !key.starts_with(words::HWLOC_PREFIX)
                && key != words::PART
        };
        let mut all: Vec<(&str, &str)> = graph.attributes(node).filter(|(key, _)| own(key)).collect();
        all.sort_by_key(|(key, _)| ["dev", "sm"].iter().position(|first| first == key).unwrap_or(2));
        let mut ranks = graph
            .children(node)
            .filter(|child| graph.kind(*child) == NodeKind::Rank)
            .peekable();
        let links = self.links(node);
        if all.is_empty() && ranks.peek().is_none() && links.is_empty() {
            return;
        }
        let mut links = Some(links);
        loop {
            let rank = ranks.next();
            if let Some(rank) = rank {
                self.written[rank.at()] = true;
            }
            let rank = rank.and_then(|rank| graph.get(rank, "rank"));
            let with_rank: Vec<(&str, &str)> = all
                .iter()
                .copied()
                .chain(rank.map(|rank| ("rank", rank)))
                .collect();
            match links.take().filter(|links| !links.is_empty()) {
                None => self.empty("gpu", &with_rank),
                Some(links) => {
                    self.open("gpu", &with_rank);
                    for (name, attributes) in links {
                        let attributes: Vec<_> = attributes
                            .iter()
                            .map(|(key, value)| (key.as_str(), value.as_str()))
                            .collect();
                        self.empty(name, &attributes);
                    }
                    self.close("gpu");
                }
            }
            if ranks.peek().is_none() {
                return;
            }
        }
    }

    fn links(&self, node: NodeId) -> Vec<Row> {
        let graph = self.graph;
        let mut rows = Vec::new();
        let mut kept = false;
        for (key, value) in graph.attributes(node) {
            let Some((name, target)) = key
                .strip_prefix(words::LINK_PREFIX)
                .and_then(|key| key.split_once(' '))
            else {
                continue;
            };
            kept = true;
            let name = if name == "xgmi" { "xgmi" } else { "nvlink" };
            for one in value.split("; ") {
                let others = one.split(' ').filter_map(|word| word.split_once('='));
                let others = others.map(|(key, value)| (key.to_owned(), value.to_owned()));
                rows.push((
                    name,
                    std::iter::once(("target".to_owned(), target.to_owned()))
                        .chain(others)
                        .collect(),
                ));
            }
        }
        for edge in graph.edges_from(node).map(|edge| graph.edge(edge)) {
            let name = match edge.link.kind {
                LinkKind::NvLink => "nvlink",
                LinkKind::XGmi => "xgmi",
                LinkKind::C2c => {
                    let one = edge.link.bytes_per_second / speeds::MB / u64::from(edge.link.wires.max(1));
                    let words = [
                        ("bw".to_owned(), one.to_string()),
                        ("count".to_owned(), edge.link.wires.to_string()),
                    ];
                    rows.push(("c2c", words.to_vec()));
                    continue;
                }
                _ => continue,
            };
            let (target, class) = match graph.get(edge.to, "busid") {
                Some(bus_id) => (bus_id, graph.get(edge.to, "class")),
                None if graph.kind(edge.to) == NodeKind::NvSwitch && !kept => {
                    ("fffffff:ff:ff.0", Some("0x068000"))
                }
                None => continue,
            };
            let mut words = vec![
                ("target".to_owned(), target.to_owned()),
                ("count".to_owned(), edge.link.wires.to_string()),
            ];
            words.extend(class.map(|class| ("tclass".to_owned(), class.to_owned())));
            rows.push((name, words));
        }
        rows
    }

    fn nic(&mut self, node: NodeId) {
        let graph = self.graph;
        self.written[node.at()] = true;
        let all = graph
            .attributes(node)
            .filter_map(|(key, value)| Some((key.strip_prefix(words::NIC_PREFIX)?, value)));
        let all: Vec<(&str, &str)> = all.collect();
        let ports: Vec<NodeId> = graph
            .children(node)
            .filter(|port| graph.kind(*port) == NodeKind::NicPort)
            .collect();
        if is_function(graph, node) && all.is_empty() && ports.is_empty() {
            return;
        }
        if ports.is_empty() {
            return self.empty("nic", &all);
        }
        self.open("nic", &all);
        let mut links: HashMap<NodeId, Link> = HashMap::new();
        for edge in graph.edges_from(node).map(|edge| graph.edge(edge)) {
            links.entry(edge.to).or_insert(edge.link);
        }
        for port in ports {
            self.written[port.at()] = true;
            let mut net: Vec<(&str, &str)> = graph.attributes(port).collect();
            if graph.get(port, "name").is_none() {
                net.push(("name", graph.name(port)));
            }
            // What was assumed where the file said nothing is assumed again.
            let known = links
                .get(&port)
                .filter(|link| link.confidence > Confidence::Assumed);
            let speed = known.map(|link| (link.bytes_per_second / (speeds::MB / 8)).to_string());
            if let (None, Some(speed)) = (graph.get(port, "speed"), &speed) {
                net.push(("speed", speed));
            }
            net.sort_by_key(|(key, _)| {
                ["name", "dev", "speed", "port"]
                    .iter()
                    .position(|first| first == key)
                    .unwrap_or(4)
            });
            self.empty("net", &net);
        }
        self.close("nic");
    }

    fn open(&mut self, name: &str, attributes: &[(&str, &str)]) {
        self.tag(name, attributes);
        self.text.push_str(">\n");
        self.depth += 1;
    }

    fn empty(&mut self, name: &str, attributes: &[(&str, &str)]) {
        self.tag(name, attributes);
        self.text.push_str("/>\n");
    }

    fn close(&mut self, name: &str) {
        self.depth -= 1;
        self.indent();
        let _ = writeln!(self.text, "</{name}>"); // Writing to a string does not fail.
    }

    fn tag(&mut self, name: &str, attributes: &[(&str, &str)]) {
        self.indent();
        self.text.push('<');
        self.text.push_str(name);
        for (key, value) in attributes {
            if !is_name(key) {
                self.left_out.push(format!("attribute \"{key}\" of a <{name}>"));
                continue;
            }
            let _ = write!(self.text, " {key}=\"");
            escape(value, &mut self.text);
            self.text.push('"');
        }
    }

    /// Deeper than any machine goes, indentation would only make a long file longer.
    fn indent(&mut self) {
        for _ in 0..self.depth.min(40) {
            self.text.push_str("  ");
        }
    }
}

/// An element of a GPU, with its attributes.
type Row = (&'static str, Vec<(String, String)>);

/// Whether XML can have an attribute of that name.
fn is_name(key: &str) -> bool {
    let begins = key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    begins
        && key
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

fn escape(value: &str, text: &mut String) {
    for c in value.chars() {
        match c {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '"' => text.push_str("&quot;"),
            '\t' | '\n' | '\r' => {
                let _ = write!(text, "&#{};", u32::from(c));
            }
            // What XML cannot hold at all.
            '\0'..' ' | '\u{fffe}' | '\u{ffff}' => text.push('?'),
            c => text.push(c),
        }
    }
}
