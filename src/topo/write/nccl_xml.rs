//! NCCL's description of a system; RCCL's, where a GPU has xGMI links.
//!
//! The file has no bandwidths of PCI links and of GPUs' links, only what the reader reckons them from: where that would be others,
//! words are chosen that give those of the graph, and where there are none that is told.

use super::Written;
use crate::topo::{
    graph::{Confidence, Graph, Link, LinkKind, NodeId, NodeKind},
    pci,
    read::{nccl_reckon as reckon, nccl_words as words},
    speeds,
    words::{short, short_and_unlike},
};
use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    fmt::Write,
};

pub(super) fn write(graph: &Graph) -> Written {
    let mut writer = Writer {
        graph,
        text: String::new(),
        depth: 0,
        several: graph.of_kind(NodeKind::Host).nth(1).is_some(),
        parts: parts(graph),
        written: vec![false; graph.len()],
        untrue: [0; KINDS.len()],
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
    /// Of how many links of each kind a reader reckons another bandwidth.
    untrue: [usize; KINDS.len()],
    left_out: Vec<String>,
}

/// What bandwidths are of, in the order of the constants.
const KINDS: [&str; 4] = [
    "PCI links, for which the nearest are written",
    "links of GPUs, for which those of their count are written",
    "network ports, for which whole megabits are written",
    "pairs of NUMA nodes",
];
const PCI: usize = 0;
const GPU: usize = 1;
const PORT: usize = 2;
const SOCKET: usize = 3;

/// What is still to be written, the last first.
enum Task {
    Node(NodeId),
    Close(&'static str),
}

/// Whether a node is a PCI function, and so can be an element with others inside.
fn is_function(graph: &Graph, node: NodeId) -> bool {
    graph.get(node, "busid").is_some()
}

/// The bus id by which links name a function: each of them has it, so that it is no longer than such are.
fn target(graph: &Graph, node: NodeId) -> Option<&str> {
    graph.get(node, "busid").filter(|bus_id| bus_id.len() <= REPEATED)
}

/// Bytes of what is written again with each link or rank, at most: 0000:00:00.0 has 12.
const REPEATED: usize = 64;

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

impl<'g> Writer<'g> {
    /// All nodes, without recursion. What lies in no NUMA node is put into one of its host.
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
        let mut of_hosts: BTreeMap<Option<NodeId>, Vec<NodeId>> = BTreeMap::new();
        for node in stray {
            let host = graph.within(node, NodeKind::Host);
            of_hosts.entry(host).or_default().push(node);
        }
        for (host, nodes) in of_hosts {
            let hash = self.hash(host);
            let mut all: Vec<(&str, &str)> = hash.iter().map(|hash| (words::HOST, &**hash)).collect();
            all.push(("numaid", "-1"));
            self.open("cpu", &all);
            self.inside(&nodes);
            self.close("cpu");
        }
        self.tell_left_out();
    }

    /// Hosts are words of NUMA nodes, without which they are lost, and switches of NVLinks the ends of links.
    fn tell_left_out(&mut self) {
        let graph = self.graph;
        let mut lost: Vec<NodeKind> = graph
            .nodes()
            .filter(|node| !self.written[node.at()])
            .map(|node| graph.kind(node))
            .filter(|kind| *kind != NodeKind::NvSwitch)
            .collect();
        lost.sort();
        for kinds in lost.chunk_by(|one, other| one == other) {
            let nameless = match kinds[0] {
                NodeKind::Gpu => " without a bus id",
                NodeKind::Host => " without a NUMA node or a PCI device",
                _ => "",
            };
            self.left_out
                .push(format!("{} of {:?}{nameless}", kinds.len(), kinds[0]));
        }
        let links = graph.edges().filter(|edge| {
            let is_between = |kind| matches!(kind, LinkKind::NvLink | LinkKind::XGmi);
            let is_known = |node, bus_id: Option<&str>| {
                graph.kind(node) == NodeKind::NvSwitch || bus_id.is_some() && self.written[node.at()]
            };
            let leads = is_known(edge.from, graph.get(edge.from, "busid"))
                && is_known(edge.to, target(graph, edge.to));
            edge.link.kind == LinkKind::Hccs || is_between(edge.link.kind) && !leads
        });
        let links = links.count();
        if links > 0 {
            self.left_out
                .push(format!("{links} links of GPUs or NPUs, each way counted"));
        }
        let socket = |numa| reckon::socket(|key| graph.get(numa, key));
        let sockets = graph.edges().filter(|edge| {
            let ends = [edge.from, edge.to];
            edge.link.kind == LinkKind::Socket
                && edge.link.bytes_per_second > 0
                && edge.from < edge.to
                && ends.iter().all(|end| graph.kind(*end) == NodeKind::Numa)
                && socket(edge.from).min(socket(edge.to)) != edge.link.bytes_per_second
        });
        self.untrue[SOCKET] = sockets.count();
        for (count, what) in self.untrue.into_iter().zip(KINDS) {
            if count > 0 {
                self.left_out.push(format!("the bandwidths of {count} {what}"));
            }
        }
    }

    fn cpu(&mut self, numa: NodeId) {
        let graph = self.graph;
        self.written[numa.at()] = true;
        let hash = self.hash(graph.within(numa, NodeKind::Host));
        let mut all: Vec<(&str, &str)> = hash.iter().map(|hash| (words::HOST, &**hash)).collect();
        let number = graph.get(numa, "numaid");
        all.push((
            "numaid",
            number.unwrap_or(graph.name(numa).trim_start_matches("NUMA ")),
        ));
        all.extend(graph.attributes(numa).filter(|(key, _)| *key != "numaid"));
        self.open("cpu", &all);
    }

    /// What all NUMA nodes of a host have that is now written, if something tells it from others.
    fn hash(&mut self, host: Option<NodeId>) -> Option<Cow<'g, str>> {
        let graph = self.graph;
        let host = host?;
        self.written[host.at()] = true;
        let hash = graph.get(host, words::HOST);
        let hash = hash.or_else(|| self.several.then(|| graph.name(host)));
        hash.map(short_and_unlike)
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
                    let nets = self.nets(node);
                    self.nic(node, &nets);
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
        let is_nic = graph.kind(node) == NodeKind::Nic;
        let nets = if is_nic { self.nets(node) } else { Vec::new() };
        let chosen = self.lanes(node, &nets);
        let known = words::PCI.iter().filter_map(|key| {
            let chosen = chosen.as_ref().and_then(|chosen| match *key {
                "link_speed" => Some(&*chosen[0]),
                "link_width" => Some(&*chosen[1]),
                _ => None,
            });
            Some((*key, chosen.or_else(|| graph.get(node, key))?))
        });
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
            NodeKind::Nic => self.nic(node, &nets),
            NodeKind::PciSwitch => self.pci_links(node),
            _ => {}
        }
    }

    /// A switch's links to others, as they were.
    fn pci_links(&mut self, node: NodeId) {
        for (key, value) in self.graph.attributes(node) {
            let key = key.strip_prefix(words::LINK_PREFIX);
            let Some(target) = key.and_then(|key| key.strip_prefix("pcilink ")) else {
                continue;
            };
            let others = value.split(' ').filter_map(|word| word.split_once('='));
            let all: Vec<(&str, &str)> = std::iter::once(("target", target)).chain(others).collect();
            self.empty("pcilink", &all);
        }
    }

    /// Other words for a function's link than its own, where these are of another bandwidth: a speed and a width.
    fn lanes(&mut self, node: NodeId, nets: &[Net]) -> Option<[String; 2]> {
        let graph = self.graph;
        let mut links = graph.edges_from(node).map(|edge| graph.edge(edge));
        let up =
            links.find(|edge| edge.link.kind == LinkKind::Pcie && Some(edge.to) == graph.parent(node))?;
        let bytes = up.link.bytes_per_second;
        let speeds = nets.iter().flatten().filter(|(key, _)| key == "speed");
        let fastest = speeds
            .filter_map(|(_, speed)| speed.trim().parse::<u64>().ok())
            .max();
        let reckoned =
            |speed: Option<&str>, width: Option<&str>| reckon::pci(graph.kind(node), speed, width, fastest);
        let own = ["link_speed", "link_width"].map(|key| graph.get(node, key));
        if bytes == 0 || reckoned(own[0], own[1]).0 == bytes {
            return None;
        }
        let mut near: Vec<(u64, usize, u32, u32)> = Vec::new();
        for tenths in SPEEDS {
            for (place, lanes) in LANES.into_iter().enumerate() {
                let carries = speeds::pcie(tenths, lanes).unwrap_or(0);
                near.push((carries.abs_diff(bytes), place, tenths, lanes));
            }
        }
        near.sort_unstable();
        for (off, _, tenths, lanes) in near {
            let words = [
                format!("{}.{} GT/s PCIe", tenths / 10, tenths % 10),
                lanes.to_string(),
            ];
            // Some are not believed of a device in use.
            if reckoned(Some(&words[0]), Some(&words[1])).1.is_none() {
                self.untrue[PCI] += usize::from(off > 0);
                return Some(words);
            }
        }
        None
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
            // Of the same GPU again those of the first count.
            all.retain(|(key, value)| is_name(key) && key.len().max(value.len()) <= REPEATED);
        }
    }

    fn links(&mut self, node: NodeId) -> Vec<Row> {
        let graph = self.graph;
        let mut rows = Vec::new();
        let mut kept = false;
        // Of rows that are kept as they were, and of the edges that these are.
        let mut sums = [0_u64; 2];
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
                let number = |key| {
                    let mut words = others.clone();
                    pci::number(words.find(|(word, _)| *word == key)?.1)
                };
                if target.starts_with("fffffff") || matches!(number("tclass"), Some(0x06_8000 | 0x06_8001)) {
                    let kind = if name == "xgmi" {
                        LinkKind::XGmi
                    } else {
                        LinkKind::NvLink
                    };
                    let all =
                        reckon::wire(graph, node, kind).saturating_mul(number("count").unwrap_or(1).into());
                    sums[0] = sums[0].saturating_add(all);
                }
                let others = others.map(|(key, value)| (key.to_owned(), value.to_owned()));
                rows.push((
                    name,
                    std::iter::once(("target".to_owned(), short(target).into_owned()))
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
                    let bytes = edge.link.bytes_per_second;
                    let wires = Some(edge.link.wires.max(1)).filter(|wires| {
                        let each = speeds::MB * u64::from(*wires);
                        bytes % each == 0
                    });
                    let count = wires.unwrap_or(1);
                    self.untrue[GPU] += usize::from(bytes % speeds::MB > 0);
                    let words = [
                        (
                            "bw".to_owned(),
                            (bytes / speeds::MB / u64::from(count)).to_string(),
                        ),
                        ("count".to_owned(), count.to_string()),
                    ];
                    rows.push(("c2c", words.to_vec()));
                    continue;
                }
                _ => continue,
            };
            let (target, class) = match target(graph, edge.to) {
                Some(bus_id) => (bus_id, graph.get(edge.to, "class").map(short)),
                None if graph.kind(edge.to) == NodeKind::NvSwitch && !kept => {
                    ("fffffff:ff:ff.0", Some("0x068000".into()))
                }
                None => {
                    if matches!(graph.kind(edge.to), NodeKind::NvSwitch | NodeKind::Numa) {
                        sums[1] = sums[1].saturating_add(edge.link.bytes_per_second);
                    }
                    continue;
                }
            };
            let count = self.count(node, &edge.link);
            let mut words = vec![
                ("target".to_owned(), target.to_owned()),
                ("count".to_owned(), count.to_string()),
            ];
            words.extend(class.map(|class| ("tclass".to_owned(), class.into_owned())));
            rows.push((name, words));
        }
        self.untrue[GPU] += usize::from(kept && sums[1] > 0 && sums[0] != sums[1]);
        rows
    }

    /// How many of a GPU's links carry what an edge does: its own wires, if no number does.
    fn count(&mut self, gpu: NodeId, link: &Link) -> u32 {
        let (bytes, one) = (link.bytes_per_second, reckon::wire(self.graph, gpu, link.kind));
        if bytes == 0 || one.saturating_mul(link.wires.into()) == bytes {
            return link.wires;
        }
        let count = u32::try_from(bytes / one).ok().filter(|_| bytes % one == 0);
        self.untrue[GPU] += usize::from(count.is_none());
        count.unwrap_or(link.wires)
    }

    /// The ports of an adapter with their attributes.
    fn nets(&mut self, node: NodeId) -> Vec<Net> {
        let graph = self.graph;
        let mut links: HashMap<NodeId, Link> = HashMap::new();
        for edge in graph.edges_from(node).map(|edge| graph.edge(edge)) {
            links.entry(edge.to).or_insert(edge.link);
        }
        let ports = graph
            .children(node)
            .filter(|port| graph.kind(*port) == NodeKind::NicPort);
        let mut nets = Vec::new();
        for port in ports {
            self.written[port.at()] = true;
            let mut net: Net = graph
                .attributes(port)
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect();
            if graph.get(port, "name").is_none() {
                net.push(("name".to_owned(), graph.name(port).to_owned()));
            }
            let own = graph.get(port, "speed");
            let reckoned = speeds::network(reckon::megabits(own).unwrap_or(speeds::NETWORK_MEGABITS));
            // What was assumed where the file said nothing is assumed again.
            let other = links.get(&port).filter(|link| {
                let is_said = link.confidence > Confidence::Assumed && own.is_none();
                link.bytes_per_second > 0 && (is_said || link.bytes_per_second != reckoned)
            });
            if let Some(link) = other {
                let megabits = (link.bytes_per_second / speeds::network(1)).max(1);
                self.untrue[PORT] += usize::from(speeds::network(megabits) != link.bytes_per_second);
                net.retain(|(key, _)| key != "speed");
                net.push(("speed".to_owned(), megabits.to_string()));
            }
            net.sort_by_key(|(key, _)| {
                ["name", "dev", "speed", "port"]
                    .iter()
                    .position(|first| first == key)
                    .unwrap_or(4)
            });
            nets.push(net);
        }
        nets
    }

    fn nic(&mut self, node: NodeId, nets: &[Net]) {
        let graph = self.graph;
        self.written[node.at()] = true;
        let all = graph
            .attributes(node)
            .filter_map(|(key, value)| Some((key.strip_prefix(words::NIC_PREFIX)?, value)));
        let all: Vec<(&str, &str)> = all.collect();
        if is_function(graph, node) && all.is_empty() && nets.is_empty() {
            return;
        }
        if nets.is_empty() {
            return self.empty("nic", &all);
        }
        self.open("nic", &all);
        for net in nets {
            let net: Vec<(&str, &str)> = net.iter().map(|(key, value)| (&**key, &**value)).collect();
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

/// The attributes of a port.
type Net = Vec<(String, String)>;

/// Tenths of GT/s a lane of PCI Express; numbers of lanes, the usual first.
const SPEEDS: [u32; 6] = [25, 50, 80, 160, 320, 640];
const LANES: [u32; 7] = [16, 8, 4, 2, 1, 32, 12];

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
            // Text for XML, but a terminal may take it for a command.
            '\u{7f}'..='\u{9f}' => {
                let _ = write!(text, "&#{};", u32::from(c));
            }
            // What XML cannot hold at all.
            '\0'..' ' | '\u{fffe}' | '\u{ffff}' => text.push('?'),
            c => text.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topo::{graph::Origin, read::read};

    /// A host's name, a bus id and a GPU's words are written with each NUMA node, link and rank.
    #[test]
    fn long_names_are_not_repeated() {
        let link = |kind| Link::new(kind, Origin::ASSUMED).speed(1, Confidence::Declared);
        let long = "x".repeat(100_000);
        let mut graph = Graph::new();
        let mut numas = Vec::new();
        for end in ["1", "2"] {
            let host = graph.add_node(NodeKind::Host, &format!("{long}{end}"), None, Origin::ASSUMED);
            numas.extend(
                (0..1000).map(|_| graph.add_node(NodeKind::Numa, "NUMA 0", Some(host), Origin::ASSUMED)),
            );
        }
        let mut gpu = |bus_id: &str| {
            let gpu = graph.add_node(NodeKind::Gpu, "gpu", Some(numas[0]), Origin::ASSUMED);
            graph.set(gpu, "busid", bus_id);
            gpu
        };
        let (one, other) = (gpu("0000:01:00.0"), gpu(&long));
        graph.set(one, "class", &long);
        graph.set(one, "about", &long);
        for _ in 0..1000 {
            graph.add_edge(one, other, link(LinkKind::NvLink));
            graph.add_edge(other, one, link(LinkKind::NvLink));
            graph.add_node(NodeKind::Rank, "rank", Some(one), Origin::ASSUMED);
        }
        let written = write(&graph);
        assert!(written.text.len() < 4 << 20, "{} bytes", written.text.len());
        let told = "1000 links of GPUs or NPUs, each way counted";
        assert!(
            written.left_out.iter().any(|left_out| left_out == told),
            "{:?}",
            written.left_out
        );
        let again = read(&written.text, "again").unwrap().0.graph;
        assert_eq!(again.of_kind(NodeKind::Host).count(), 2);
    }

    /// Hosts whose devices lie in no NUMA node stay apart, and those that cannot be written are told.
    #[test]
    fn hosts_without_numa_nodes_stay() {
        let mut graph = Graph::new();
        for (name, bus_ids) in [
            ("a", &["0000:01:00.0", "0000:02:00.0"][..]),
            ("b", &["0000:01:00.0"]),
            ("c", &[]),
        ] {
            let host = graph.add_node(NodeKind::Host, name, None, Origin::ASSUMED);
            for bus_id in bus_ids {
                let gpu = graph.add_node(NodeKind::Gpu, bus_id, Some(host), Origin::ASSUMED);
                graph.set(gpu, "busid", bus_id);
                graph.set(gpu, "class", "0x030200");
            }
        }
        let written = write(&graph);
        let again = read(&written.text, "again").unwrap().0.graph;
        let gpus = |host| {
            let of_host = |gpu: &NodeId| again.within(*gpu, NodeKind::Host) == Some(host);
            again.of_kind(NodeKind::Gpu).filter(of_host).count()
        };
        let hosts: Vec<_> = again
            .of_kind(NodeKind::Host)
            .map(|host| (again.name(host), gpus(host)))
            .collect();
        assert_eq!(hosts, [("a", 2), ("b", 1)], "{}", written.text);
        assert_eq!(
            written.left_out,
            ["1 of Host without a NUMA node or a PCI device"]
        );
    }

    /// Links of a file that its words have no bandwidths for.
    #[test]
    fn bandwidths_are_those_of_the_graph_or_told() {
        let link = |kind, bytes| Link::new(kind, Origin::ASSUMED).speed(bytes, Confidence::Declared);
        let mut graph = Graph::new();
        let host = graph.add_node(NodeKind::Host, "host", None, Origin::ASSUMED);
        let numas = ["0", "1"].map(|name| {
            let numa = graph.add_node(NodeKind::Numa, "NUMA", Some(host), Origin::ASSUMED);
            graph.set(numa, "numaid", name);
            numa
        });
        graph.join(numas[0], numas[1], link(LinkKind::Socket, 7_000_000_000));
        let mut function = |bus: &str, kind, class: &str, bytes| {
            let node = graph.add_node(kind, bus, Some(numas[0]), Origin::ASSUMED);
            graph.set(node, "busid", bus);
            graph.set(node, "class", class);
            graph.join(numas[0], node, link(LinkKind::Pcie, bytes));
            node
        };
        let gpus = [
            ("01", 24_000_000_000),
            ("02", 11_815_384_500),
            ("03", 750_000_000),
        ];
        let gpus =
            gpus.map(|(bus, bytes)| function(&format!("0000:{bus}:00.0"), NodeKind::Gpu, "0x030200", bytes));
        let nic = function("0000:04:00.0", NodeKind::Nic, "0x020000", 6_000_000_000);
        // The port of a link that is not trained, and what its words say is another speed.
        graph.set(nic, "link_speed", "32.0 GT/s PCIe");
        graph.set(nic, "link_width", "16");
        for (name, bytes) in [("eth0", 25_000_000_000), ("eth1", 100_000)] {
            let port = graph.add_node(NodeKind::NicPort, name, Some(nic), Origin::ASSUMED);
            graph.set(port, "speed", "10000");
            graph.join(nic, port, link(LinkKind::Tcp, bytes));
        }
        // Without its compute capability a GPU's NVLink is taken for one of 20 GB/s.
        graph.join(gpus[0], gpus[1], link(LinkKind::NvLink, 80_000_000_000));
        graph.join(gpus[0], gpus[2], link(LinkKind::NvLink, 25_000_000_000));
        graph.join(
            gpus[2],
            numas[0],
            Link {
                wires: 2,
                ..link(LinkKind::C2c, 45_001_000_000)
            },
        );
        let written = write(&graph);
        let again = read(&written.text, "again").unwrap().0.graph;
        let of = |name: &str| again.nodes().find(|node| again.name(*node) == name).unwrap();
        let bytes = |from: NodeId, to: NodeId| {
            let edges = again.edges_from(from).map(|edge| again.edge(edge));
            let edges = edges
                .filter(|edge| edge.to == to)
                .map(|edge| edge.link.bytes_per_second);
            edges.collect::<Vec<_>>()
        };
        let [one, two, three, nic] = ["01", "02", "03", "04"].map(|bus| of(&format!("0000:{bus}:00.0")));
        let up = |node| bytes(node, again.parent(node).unwrap());
        assert_eq!(up(one), [24_000_000_000]);
        assert_eq!(up(two), [12_000_000_000]);
        // A single lane is not believed of a GPU: two of half the speed are.
        assert_eq!(up(three), [750_000_000, 45_001_000_000]);
        assert_eq!(up(nic), [6_000_000_000]);
        assert_eq!(bytes(one, two), [80_000_000_000]);
        assert_eq!(bytes(one, three), [20_000_000_000]);
        assert_eq!(bytes(nic, of("eth0")), [25_000_000_000]);
        assert_eq!(
            written.left_out,
            [
                "the bandwidths of 1 PCI links, for which the nearest are written",
                "the bandwidths of 2 links of GPUs, for which those of their count are written",
                "the bandwidths of 1 network ports, for which whole megabits are written",
                "the bandwidths of 1 pairs of NUMA nodes",
            ]
        );
    }
}
