//! NCCL's description of a system (`NCCL_TOPO_DUMP_FILE`, `NCCL_TOPO_FILE`), and RCCL's, which has xGMI links.
//!
//! `system` holds `cpu`s, which are NUMA nodes and may be of several hosts; these hold trees of `pci`, whose leaves may hold
//! `gpu`s with links, or a `nic` with `net`s. A `pci` and the `gpu` or `nic` in it are one node here. A GPU's links to switches
//! lead to the first of them, or, where these are no nodes of the file, to one [`NodeKind::NvSwitch`] of the host: hardware spreads
//! data over all of them.
//!
//! What is written is kept as attributes of nodes ([`words`]), also what is repaired on the edges, so that the writer
//! gives the file again.

use super::{Flaw, Format, Lines, Position, Reading, nvswitches, repairs::Repairs, xml};
use crate::topo::{
    graph::{Confidence, EdgeId, Graph, Group, Link, LinkKind, NodeId, NodeKind, Origin, SourceId},
    pci, speeds,
    words::short,
};
use roxmltree::Node;
use std::collections::{BTreeMap, HashMap, HashSet, hash_map::Entry};

pub(super) const FORMAT: Format = Format {
    name: "nccl-xml",
    about: "NCCL's or RCCL's system",
    sniff: |text| xml::begins(text, &["system"]),
    read,
};

/// How attributes of the file's elements are called in the graph.
pub(crate) mod words {
    /// Those of a `pci`; others of it have the prefix.
    pub(crate) const PCI: [&str; 8] = [
        "busid",
        "class",
        "vendor",
        "device",
        "subsystem_vendor",
        "subsystem_device",
        "link_speed",
        "link_width",
    ];
    pub(crate) const PCI_PREFIX: &str = "pci.";
    /// Those of a `nic`.
    pub(crate) const NIC_PREFIX: &str = "nic.";
    /// A link of a GPU that is no edge to another GPU, or of a PCI switch to another: its kind, then its target. The value is its
    /// other attributes.
    pub(crate) const LINK_PREFIX: &str = "link:";
    /// A further GPU of a function, which lies beside the first, has its number.
    pub(crate) const PART: &str = "part";
    /// What only hwloc says of a device, in its words.
    pub(crate) const HWLOC_PREFIX: &str = "hwloc.";
    /// A host's hash, on the host.
    pub(crate) const HOST: &str = "host_hash";
}

/// What links of a file are taken to carry, in bytes a second.
pub(crate) mod reckon {
    use crate::topo::{
        graph::{Graph, LinkKind, NodeId, NodeKind},
        pci, speeds,
    };

    /// The link of a function, and what of its words cannot be; `fastest`: of its ports, in megabits.
    pub(crate) fn pci(
        kind: NodeKind,
        speed: Option<&str>,
        width: Option<&str>,
        fastest: Option<u64>,
    ) -> (u64, Option<String>) {
        let slow = pci::link(speed, width, false).0;
        let busy = match kind {
            NodeKind::Gpu | NodeKind::Npu | NodeKind::NvSwitch => true,
            // Many adapters can do more than their slot, but none is put where it can do almost nothing.
            _ => fastest.is_some_and(|fastest| speeds::network(fastest) / 4 > slow),
        };
        pci::link(speed, width, busy)
    }

    /// One of a GPU's links to others.
    pub(crate) fn wire(graph: &Graph, gpu: NodeId, kind: LinkKind) -> u64 {
        match kind {
            LinkKind::XGmi => speeds::xgmi(graph.get(gpu, "gcn").unwrap_or("")),
            _ => speeds::nvlink(graph.get(gpu, "sm").and_then(pci::number)),
        }
    }

    /// A NUMA node's link to others of its host, of which the slower counts. `word`: its attributes.
    pub(crate) fn socket<'w>(word: impl Fn(&str) -> Option<&'w str>) -> u64 {
        let number = |key| word(key).and_then(pci::number).unwrap_or(0);
        let words = |key| word(key).unwrap_or("");
        speeds::socket(
            words("arch"),
            words("vendor"),
            number("familyid"),
            number("modelid"),
        )
    }

    /// Of a port the megabits a second, if it tells any.
    pub(crate) fn megabits(speed: Option<&str>) -> Option<u64> {
        let speed = speed?.trim().parse::<i64>().ok()?;
        u64::try_from(speed).ok().filter(|speed| *speed > 0)
    }
}

fn read(text: &str, source: &str) -> Result<Reading, Flaw> {
    let lines = Lines::new(text);
    let document = xml::parse(text, source, &lines)?;
    let root = document.root_element();
    let mut graph = Graph::new();
    let mut reader = Reader {
        lines: &lines,
        source: graph.source(source),
        graph,
        repairs: Repairs::default(),
        hosts: HashMap::new(),
        numas: Vec::new(),
        numbers: HashMap::new(),
        parts: HashMap::new(),
        gpus: HashMap::new(),
        c2c: HashSet::new(),
        linked: HashMap::new(),
        rows: HashMap::new(),
        bus: HashMap::new(),
        slots: HashMap::new(),
        links: Vec::new(),
        pci_links: Vec::new(),
        ranks: HashSet::new(),
    };
    reader.system(root);
    let mut nodes: HashMap<roxmltree::NodeId, NodeId> = HashMap::new();
    for element in root.descendants().skip(1).filter(Node::is_element) {
        let above = element.parent_element().filter(|above| *above != root);
        let parent = above.map(|above| nodes.get(&above.id()).copied());
        if let Some(None) = parent {
            continue; // In something that was left out, which has been told.
        }
        let above = above.map_or("system", |above| above.tag_name().name());
        if let Some(node) = reader.element(element, above, parent.flatten()) {
            nodes.insert(element.id(), node);
        }
    }
    reader.join_switches();
    reader.join_gpus();
    reader.join_sockets();
    reader.share_slots();
    if reader.graph.is_empty() {
        return Err(Flaw {
            source_name: source.to_owned(),
            at: lines.position(root.range().start),
            what: "a system without anything in it".to_owned(),
            wanted: "at least one <cpu>".to_owned(),
        });
    }
    Ok(Reading {
        graph: reader.graph,
        repairs: reader.repairs.done(),
    })
}

struct Reader<'r> {
    lines: &'r Lines<'r>,
    source: SourceId,
    graph: Graph,
    repairs: Repairs,
    /// By their hashes.
    hosts: HashMap<String, NodeId>,
    numas: Vec<(NodeId, Speed)>,
    /// Numbers of a host's NUMA nodes, and one below which none is free.
    numbers: HashMap<NodeId, (HashSet<u32>, u32)>,
    /// How many GPUs a function has, of which the first is the function.
    parts: HashMap<NodeId, usize>,
    /// GPUs of a function by their numbers.
    gpus: HashMap<(NodeId, Option<String>), NodeId>,
    /// GPUs with a link to their processor.
    c2c: HashSet<NodeId>,
    /// The first element of a GPU that has links.
    linked: HashMap<NodeId, roxmltree::NodeId>,
    /// What is kept of links that are no edges, by GPU and key.
    rows: HashMap<(NodeId, String), String>,
    /// Functions of a host by bus id.
    bus: HashMap<(NodeId, String), NodeId>,
    /// The edges to the functions of a slot below a node.
    slots: HashMap<(NodeId, String), Vec<[EdgeId; 2]>>,
    /// Links of GPUs, for when all GPUs are known.
    links: Vec<Row>,
    /// Links of PCI switches to others, and where they are written.
    pci_links: Vec<(usize, NodeId, String)>,
    ranks: HashSet<String>,
}

/// A `nvlink` or `xgmi`.
struct Row {
    at: usize,
    gpu: NodeId,
    host: NodeId,
    kind: LinkKind,
    target: String,
    count: u32,
    class: Option<u32>,
    /// All its attributes but the target, for a file to be written.
    words: String,
}

/// Bytes a second between NUMA nodes.
type Speed = u64;

impl Reader<'_> {
    fn system(&mut self, root: Node) {
        self.graph.set_whole("version", "1");
        for attribute in root.attributes() {
            self.graph.set_whole(attribute.name(), attribute.value());
        }
        if let Some(version) = root
            .attribute("version")
            .filter(|version| !["1", "2"].contains(version))
        {
            self.tell(
                root,
                format!("version \"{version}\" is unknown: read as version 1"),
            );
        }
    }

    /// Adds an element; `above` is the name of the one it is in.
    fn element(&mut self, element: Node, above: &str, parent: Option<NodeId>) -> Option<NodeId> {
        let name = element.tag_name().name();
        match (name, above, parent) {
            ("cpu", "system", None) => Some(self.cpu(element)),
            ("pci", "cpu" | "pci", Some(parent)) => Some(self.pci(element, parent)),
            ("gpu", "pci", Some(parent)) => self.gpu(element, parent),
            ("nic", "cpu" | "pci", Some(parent)) => Some(self.nic(element, parent)),
            ("net", "nic", Some(parent)) => Some(self.net(element, parent)),
            ("pcilink", "pci", Some(switch)) if self.graph.kind(switch) == NodeKind::PciSwitch => {
                self.pci_link(element, switch);
                None
            }
            ("nvlink" | "xgmi" | "c2c", "gpu", Some(gpu)) => {
                // A GPU of several ranks is several elements, each of which may tell its links.
                let holder = element.parent().map_or(element.id(), |holder| holder.id());
                match *self.linked.entry(gpu).or_insert(holder) == holder {
                    true if name == "c2c" => self.c2c(element, gpu),
                    true => self.row(element, gpu),
                    false => {}
                }
                None
            }
            _ => {
                self.tell(element, format!("<{name}> in <{above}> is unknown: left out"));
                None
            }
        }
    }

    fn cpu(&mut self, cpu: Node) -> NodeId {
        let host = self.host(cpu);
        let word = cpu.attribute("numaid").unwrap_or("0");
        let (taken, free) = self.numbers.entry(host).or_default();
        let (number, told) = match word.trim().parse::<u32>() {
            Ok(number) => {
                let told = "a second <cpu> of this host with its numaid: kept as one more";
                (number, (!taken.insert(number)).then(|| told.to_owned()))
            }
            Err(_) => {
                while !taken.insert(*free) {
                    *free += 1;
                }
                (
                    *free,
                    Some(format!("numaid=\"{word}\" is no NUMA node: taken as {free}")),
                )
            }
        };
        if let Some(told) = told {
            self.tell(cpu, told);
        }
        let name = format!("NUMA {number}");
        let numa = self
            .graph
            .add_node(NodeKind::Numa, &name, Some(host), self.origin(cpu));
        self.graph.set(numa, "numaid", word);
        self.keep(numa, cpu, "", &[words::HOST]);
        self.numas.push((numa, reckon::socket(|key| cpu.attribute(key))));
        numa
    }

    fn host(&mut self, cpu: Node) -> NodeId {
        let hash = cpu.attribute(words::HOST).unwrap_or("");
        if let Some(host) = self.hosts.get(hash) {
            return *host;
        }
        let name = if hash.is_empty() { "host" } else { hash };
        let host = self.graph.add_node(NodeKind::Host, name, None, self.origin(cpu));
        if !hash.is_empty() {
            self.graph.set(host, words::HOST, hash);
        }
        self.hosts.insert(hash.to_owned(), host);
        host
    }

    fn pci(&mut self, function: Node, parent: NodeId) -> NodeId {
        let bus_id = pci::bus_id(function.attribute("busid").unwrap_or(""));
        if bus_id.is_empty() {
            self.tell(
                function,
                "a <pci> without a busid: nothing can lead to it".to_owned(),
            );
        }
        let holds =
            |names: &[&str]| (function.children()).any(|child| names.contains(&child.tag_name().name()));
        let word = |key| function.attribute(key).and_then(pci::number);
        let by_class = pci::kind(&pci::Ids {
            class: word("class"),
            vendor: word("vendor"),
            device: word("device"),
        });
        let kind = match by_class {
            _ if holds(&["gpu"]) => NodeKind::Gpu,
            _ if holds(&["nic"]) => NodeKind::Nic,
            NodeKind::Gpu | NodeKind::Npu | NodeKind::PciFunction if holds(&["pci"]) => NodeKind::PciSwitch,
            kind => kind,
        };
        let node = self
            .graph
            .add_node(kind, &bus_id, Some(parent), self.origin(function));
        self.graph.set(node, "busid", "");
        self.keep_pci(node, function);
        let host = self.host_of(node);
        match self.bus.entry((host, bus_id.clone())) {
            _ if bus_id.is_empty() => {}
            Entry::Vacant(free) => _ = free.insert(node),
            Entry::Occupied(_) => {
                let told = format!("a second <pci> {bus_id} of the same host: links lead to the first");
                self.tell(function, told);
            }
        }
        let ends = self.join_pci(function, kind, parent, node);
        // Ports of a root or a switch have lanes of their own, though they may be functions of one device.
        if kind != NodeKind::PciSwitch && !bus_id.is_empty() {
            let slot = pci::slot(&bus_id).to_owned();
            self.slots.entry((parent, slot)).or_default().push(ends);
        }
        node
    }

    fn join_pci(&mut self, function: Node, kind: NodeKind, parent: NodeId, node: NodeId) -> [EdgeId; 2] {
        let (speed, width) = (function.attribute("link_speed"), function.attribute("link_width"));
        let nics = (function.children()).filter(|nic| kind == NodeKind::Nic && nic.has_tag_name("nic"));
        let fastest = nics
            .flat_map(|nic| nic.children())
            .filter(|net| net.has_tag_name("net"))
            .filter_map(|net| net.attribute("speed")?.trim().parse::<u64>().ok())
            .max();
        let (bytes, odd) = reckon::pci(kind, speed, width, fastest);
        let confidence = match (speed, width, &odd) {
            (Some(_), Some(_), None) => Confidence::Declared,
            _ => Confidence::Assumed,
        };
        if let Some(odd) = odd {
            let told = format!(
                "{odd}: no link in use has that; taken as {} GB/s",
                gigabytes(bytes)
            );
            self.tell(function, told);
        }
        let link = Link::new(LinkKind::Pcie, self.origin(function)).speed(bytes, confidence);
        self.graph.join(parent, node, link)
    }

    /// The first GPU of a function is the function; the same device again has one more rank; another is a part.
    fn gpu(&mut self, gpu: Node, function: NodeId) -> Option<NodeId> {
        let device = gpu.attribute("dev");
        let parts = self.parts.get(&function).copied().unwrap_or(0);
        let known = self.gpus.get(&(function, device.map(str::to_owned))).copied();
        let node = match known {
            None if parts == 0 => {
                self.keep(function, gpu, "", &["rank"]);
                function
            }
            // Each has the words of its function.
            None if parts == PARTS => {
                let told = format!("more than {PARTS} GPUs in a function: left out");
                self.tell(gpu, told);
                return None;
            }
            None => self.part(gpu, function, parts),
            Some(same) => {
                let differs = gpu.attributes().any(|attribute| {
                    let (name, value) = (attribute.name(), attribute.value());
                    name != "rank" && self.graph.get(same, name) != Some(value)
                });
                if differs {
                    let told = "the same GPU again with other attributes: those of the first are kept";
                    self.tell(gpu, told.to_owned());
                }
                same
            }
        };
        if known.is_none() {
            self.parts.insert(function, parts + 1);
            self.gpus.insert((function, device.map(str::to_owned)), node);
        }
        match gpu.attribute("rank") {
            Some(rank) if rank.parse::<u32>().is_ok() => self.rank(gpu, node, rank),
            Some(none) => self.graph.set(node, "rank", none),
            None => {}
        }
        Some(node)
    }

    fn part(&mut self, gpu: Node, function: NodeId, place: usize) -> NodeId {
        let name = self.graph.name(function).to_owned();
        let parent = self.graph.parent(function).unwrap_or(function);
        let node = self
            .graph
            .add_node(NodeKind::Gpu, &name, Some(parent), self.origin(gpu));
        let kept: Vec<(String, String)> = words::PCI
            .iter()
            .filter_map(|key| Some(((*key).to_owned(), self.graph.get(function, key)?.to_owned())))
            .collect();
        for (key, value) in kept {
            self.graph.set(node, &key, &value);
        }
        self.keep(node, gpu, "", &["rank"]);
        self.graph.set(node, words::PART, &place.to_string());
        let up = self.graph.edges_from(function).next();
        if let Some(link) = up.map(|edge| self.graph.edge(edge).link) {
            let ends = self.graph.join(parent, node, link);
            if !name.is_empty() {
                let slot = pci::slot(&name).to_owned();
                self.slots.entry((parent, slot)).or_default().push(ends);
            }
        }
        node
    }

    fn rank(&mut self, gpu: Node, node: NodeId, rank: &str) {
        if !self.ranks.insert(rank.to_owned()) {
            self.tell(gpu, format!("a second GPU with rank {rank}: kept"));
        }
        let origin = self.origin(gpu);
        let name = format!("rank {rank}");
        let id = self.graph.add_node(NodeKind::Rank, &name, Some(node), origin);
        self.graph.set(id, "rank", rank);
        self.graph.join(node, id, Link::new(LinkKind::Local, origin));
    }

    /// A `nic` in a network function is that function; elsewhere it is a node of its own.
    fn nic(&mut self, nic: Node, parent: NodeId) -> NodeId {
        let taken = self.graph.children(parent).next().is_some();
        if self.graph.kind(parent) == NodeKind::Nic && !taken {
            self.keep(parent, nic, words::NIC_PREFIX, &[]);
            return parent;
        }
        let origin = self.origin(nic);
        let node = self.graph.add_node(NodeKind::Nic, "nic", Some(parent), origin);
        self.keep(node, nic, words::NIC_PREFIX, &[]);
        self.graph.join(parent, node, Link::new(LinkKind::Local, origin));
        node
    }

    fn net(&mut self, net: Node, nic: NodeId) -> NodeId {
        let name = net.attribute("name").unwrap_or("net").to_owned();
        let origin = self.origin(net);
        let port = self.graph.add_node(NodeKind::NicPort, &name, Some(nic), origin);
        self.graph.set(port, "name", &name);
        self.keep(port, net, "", &[]);
        let (megabits, confidence) = match reckon::megabits(net.attribute("speed")) {
            Some(speed) => (speed, Confidence::Declared),
            None => {
                let speed = net.attribute("speed").unwrap_or("");
                self.tell(net, format!("{name} has speed \"{speed}\": taken as 10 Gb/s"));
                (speeds::NETWORK_MEGABITS, Confidence::Assumed)
            }
        };
        let kind = self.wire(nic, net);
        let mut link = Link::new(kind, origin).speed(speeds::network(megabits), confidence);
        link.latency_ns = net
            .attribute("latency")
            .and_then(|latency| latency.trim().parse::<f64>().ok())
            .filter(|latency| *latency > 0.0)
            .map(|microseconds| (microseconds * 1000.0).round() as u32);
        if is_virtual(&name) {
            link.reachable = false;
            self.tell(
                net,
                format!("{name} is no adapter but a virtual one of this host: not used"),
            );
        }
        // In the words of the system, which the writer of this format keeps.
        let state = net.attribute("state").unwrap_or("ACTIVE");
        if net.attribute("operstate") == Some("down") || !(state == "4" || state.contains("ACTIVE")) {
            link.reachable = false;
        }
        self.graph.join(nic, port, link);
        port
    }

    /// What a port is plugged into, by its function's class and whether it has a global id.
    fn wire(&self, nic: NodeId, net: Node) -> LinkKind {
        let class = self.graph.get(nic, "class").and_then(pci::number).unwrap_or(0);
        let guid = net.attribute("guid").unwrap_or("0x0").trim_start_matches("0x");
        let name = net.attribute("name").unwrap_or("");
        match class >> 8 {
            0x0207 => LinkKind::Ib,
            _ if guid.len() > 4 && !name.starts_with("e") => LinkKind::Roce,
            _ => LinkKind::Tcp,
        }
    }

    fn row(&mut self, row: Node, gpu: NodeId) {
        let target = pci::bus_id(row.attribute("target").unwrap_or(""));
        let count = row.attribute("count").and_then(pci::number);
        if count.is_none_or(|count| count == 0) {
            let told = "a link without a count above 0: left out";
            return self.tell(row, told.to_owned());
        }
        let kind = match row.tag_name().name() {
            "xgmi" => LinkKind::XGmi,
            _ => LinkKind::NvLink,
        };
        let others = row.attributes().filter(|attribute| attribute.name() != "target");
        let words = others.map(|attribute| format!("{}={}", attribute.name(), attribute.value()));
        self.links.push(Row {
            at: row.range().start,
            gpu,
            host: self.host_of(gpu),
            kind,
            target,
            count: count.unwrap_or(1),
            class: row.attribute("tclass").and_then(pci::number),
            words: words.collect::<Vec<_>>().join(" "),
        });
    }

    /// Switches that a vendor's hardware joins beside the tree.
    fn pci_link(&mut self, link: Node, switch: NodeId) {
        let target = pci::bus_id(link.attribute("target").unwrap_or(""));
        let others = link.attributes().filter(|attribute| attribute.name() != "target");
        let words = others.map(|attribute| format!("{}={}", attribute.name(), attribute.value()));
        let key = format!("{}pcilink {target}", words::LINK_PREFIX);
        self.graph.set(switch, &key, &words.collect::<Vec<_>>().join(" "));
        self.pci_links.push((link.range().start, switch, target));
    }

    /// Pairs of switches, of which each may name the other.
    fn join_switches(&mut self) {
        let mut joined: HashSet<[NodeId; 2]> = HashSet::new();
        for (at, switch, target) in std::mem::take(&mut self.pci_links) {
            let other = self.bus.get(&(self.host_of(switch), target.clone())).copied();
            let other = other.filter(|other| self.graph.kind(*other) == NodeKind::PciSwitch);
            let Some(other) = other.filter(|other| *other != switch) else {
                let told = format!("a pcilink to {target}, which is no other switch of the file: not used");
                self.repairs.tell(self.lines.position(at), told);
                continue;
            };
            if joined.insert([switch.min(other), switch.max(other)]) {
                let origin = Origin::line(self.source, self.lines.line(at));
                self.graph.join(switch, other, Link::new(LinkKind::Local, origin));
            }
        }
    }

    fn c2c(&mut self, c2c: Node, gpu: NodeId) {
        let number = |key| c2c.attribute(key).and_then(pci::number);
        let (count, megabytes) = (number("count").unwrap_or(1).max(1), number("bw").unwrap_or(0));
        let Some(numa) = self.graph.within(gpu, NodeKind::Numa) else {
            return;
        };
        if !self.c2c.insert(gpu) {
            let told = "a second <c2c> of the same GPU: left out";
            return self.tell(c2c, told.to_owned());
        }
        let bytes = (u64::from(megabytes) * u64::from(count)).saturating_mul(speeds::MB);
        let link = Link::new(LinkKind::C2c, self.origin(c2c)).speed(bytes, Confidence::Declared);
        self.graph.join(gpu, numa, Link { wires: count, ..link });
    }

    /// Links between GPUs, and from GPUs to switches.
    fn join_gpus(&mut self) {
        let mut rows = std::mem::take(&mut self.links);
        let seen = |row: &Row| self.bus.get(&(row.host, row.target.clone())).copied();
        let is_switch = |node| matches!(self.graph.kind(node), NodeKind::NvSwitch | NodeKind::PciFunction);
        let shared: Vec<(NodeId, NodeId)> = (rows.iter())
            .filter_map(|row| Some((row.gpu, seen(row).filter(|node| is_switch(*node))?)))
            .collect();
        let firsts = nvswitches::firsts(&shared);
        let mut switches: HashMap<Option<NodeId>, NodeId> = HashMap::new();
        let mut pairs: HashMap<(NodeId, NodeId), EdgeId> = HashMap::new();
        for row in rows.drain(..) {
            let link = Link {
                wires: row.count,
                ..Link::new(row.kind, Origin::line(self.source, self.lines.line(row.at)))
                    .speed(self.link_speed(row.gpu, row.kind, row.count), Confidence::Assumed)
            };
            let fabric = row.target.starts_with("fffffff");
            let target = self.bus.get(&(row.host, row.target.clone())).copied();
            let target = match target.filter(|_| !fabric) {
                Some(target) => Some(firsts.get(&target).copied().unwrap_or(target)),
                None if fabric || row.class.is_some_and(|class| class == 0x06_8000) => {
                    self.keep_row(&row);
                    let within = (!fabric).then_some(row.host);
                    Some(*switches.entry(within).or_insert_with(|| {
                        let name = if fabric { "NVLink fabric" } else { "NVSwitch" };
                        self.graph.add_node(NodeKind::NvSwitch, name, within, link.origin)
                    }))
                }
                // POWER's bridge: the GPU is joined with its processor.
                None if row.class == Some(0x06_8001) => {
                    self.keep_row(&row);
                    self.graph.within(row.gpu, NodeKind::Numa)
                }
                None => None,
            };
            match target {
                Some(target) if target == row.gpu => {
                    self.keep_row(&row);
                    let told = format!(
                        "{} has links to itself: whereto they lead is not known; not used",
                        row.target
                    );
                    self.repairs.tell(self.lines.position(row.at), told);
                }
                Some(target) => {
                    let both = !matches!(self.graph.kind(target), NodeKind::Gpu | NodeKind::Npu);
                    self.add_wires(&mut pairs, row.gpu, target, link);
                    if both {
                        self.add_wires(&mut pairs, target, row.gpu, link);
                        if self.graph.kind(target) == NodeKind::PciFunction {
                            self.graph.set_kind(target, NodeKind::NvSwitch);
                        }
                    }
                }
                None => {
                    self.keep_row(&row);
                    let told = format!("a link to {}, which is not in the file: not used", row.target);
                    self.repairs.tell(self.lines.position(row.at), told);
                }
            }
        }
        self.pair_up(&pairs);
        for ((gpu, key), row) in std::mem::take(&mut self.rows) {
            self.graph.set(gpu, &key, &row);
        }
    }

    /// Rows that lead to one target are one edge.
    fn add_wires(
        &mut self,
        pairs: &mut HashMap<(NodeId, NodeId), EdgeId>,
        from: NodeId,
        to: NodeId,
        link: Link,
    ) {
        match pairs.get(&(from, to)) {
            Some(edge) => {
                let known = self.graph.link_mut(*edge);
                known.wires = known.wires.saturating_add(link.wires);
                known.bytes_per_second = known.bytes_per_second.saturating_add(link.bytes_per_second);
            }
            None => {
                pairs.insert((from, to), self.graph.add_edge(from, to, link));
            }
        }
    }

    /// A link that only one end names has two ends all the same.
    fn pair_up(&mut self, pairs: &HashMap<(NodeId, NodeId), EdgeId>) {
        let mut edges: Vec<EdgeId> = pairs.values().copied().collect();
        edges.sort();
        for edge in edges {
            let (from, to, link) = {
                let edge = self.graph.edge(edge);
                (edge.from, edge.to, edge.link)
            };
            let at = Position {
                line: link.origin.line_number().unwrap_or(1),
                column: 1,
            };
            match pairs
                .get(&(to, from))
                .map(|back| self.graph.edge(*back).link.wires)
            {
                Some(wires) if wires != link.wires && from < to => {
                    let [from, to] = [from, to].map(|end| short(self.graph.name(end)));
                    let told = format!(
                        "{from} has {} links to {to}, which has {wires} back: each way kept",
                        link.wires
                    );
                    self.repairs.tell(at, told);
                }
                Some(_) => {}
                None => {
                    self.graph.add_edge(to, from, link);
                    let [from, to] = [from, to].map(|end| short(self.graph.name(end)));
                    let told = format!("{from} has links to {to}, but not back: taken as both ways");
                    self.repairs.tell(at, told);
                }
            }
        }
    }

    fn keep_row(&mut self, row: &Row) {
        let name = match row.kind {
            LinkKind::XGmi => "xgmi",
            _ => "nvlink",
        };
        let key = format!("{}{name} {}", words::LINK_PREFIX, row.target);
        match self.rows.entry((row.gpu, key)) {
            Entry::Vacant(free) => _ = free.insert(row.words.clone()),
            Entry::Occupied(mut before) => {
                let before = before.get_mut();
                before.push_str("; ");
                before.push_str(&row.words);
            }
        }
    }

    fn link_speed(&self, gpu: NodeId, kind: LinkKind, count: u32) -> u64 {
        reckon::wire(&self.graph, gpu, kind).saturating_mul(count.into())
    }

    /// All NUMA nodes of a host talk with one another; of very many, through a node in the middle.
    fn join_sockets(&mut self) {
        let mut hosts: BTreeMap<NodeId, Vec<(NodeId, Speed)>> = BTreeMap::new();
        for &(numa, speed) in &self.numas {
            let host = self.host_of(numa);
            hosts.entry(host).or_default().push((numa, speed));
        }
        let mut pairs = 0_usize;
        for (host, numas) in hosts {
            let link = |speed| Link::new(LinkKind::Socket, Origin::ASSUMED).speed(speed, Confidence::Assumed);
            pairs += numas.len() * numas.len() / 2;
            if numas.len() > NUMAS || pairs > PAIRS {
                let middle = self
                    .graph
                    .add_node(NodeKind::Opaque, "sockets", Some(host), Origin::ASSUMED);
                for (numa, speed) in numas {
                    self.graph.join(numa, middle, link(speed));
                }
                continue;
            }
            for (place, &(one, speed)) in numas.iter().enumerate() {
                for &(other, its) in &numas[place + 1..] {
                    self.graph.join(one, other, link(speed.min(its)));
                }
            }
        }
    }

    /// Functions of one slot share its link.
    fn share_slots(&mut self) {
        let mut slots: Vec<_> = std::mem::take(&mut self.slots).into_iter().collect();
        slots.retain(|(_, ends)| ends.len() > 1);
        slots.sort_by_key(|(_, ends)| ends[0][0]);
        for ((_, slot), ends) in slots {
            for way in 0..2 {
                let first = self.graph.edge(ends[0][way]).link;
                let speeds = ends
                    .iter()
                    .map(|ends| self.graph.edge(ends[way]).link.bytes_per_second);
                let group = Group {
                    name: format!("slot {slot}, {}", ["to it", "from it"][way]).into(),
                    bytes_per_second: speeds.max().unwrap_or(0),
                    confidence: first.confidence,
                    origin: first.origin,
                };
                let group = self.graph.add_group(group);
                for ends in &ends {
                    self.graph.link_mut(ends[way]).group = Some(group);
                }
            }
        }
    }

    fn host_of(&self, node: NodeId) -> NodeId {
        self.graph.within(node, NodeKind::Host).unwrap_or(node)
    }

    fn keep(&mut self, node: NodeId, element: Node, prefix: &str, except: &[&str]) {
        for attribute in element
            .attributes()
            .filter(|attribute| !except.contains(&attribute.name()))
        {
            self.graph
                .set(node, &format!("{prefix}{}", attribute.name()), attribute.value());
        }
    }

    fn keep_pci(&mut self, node: NodeId, function: Node) {
        for attribute in function.attributes() {
            let key = attribute.name();
            match words::PCI.contains(&key) {
                true => self.graph.set(node, key, attribute.value()),
                false => self
                    .graph
                    .set(node, &format!("{}{key}", words::PCI_PREFIX), attribute.value()),
            }
        }
    }

    fn origin(&self, element: Node) -> Origin {
        Origin::line(self.source, self.lines.line(element.range().start))
    }

    fn tell(&mut self, element: Node, what: String) {
        let at = self.lines.position(element.range().start);
        self.repairs.tell(at, what);
    }
}

/// GPUs of a function, at most: partitions of one, of which there are 8.
const PARTS: usize = 64;

/// NUMA nodes of a host that are all joined with one another.
const NUMAS: usize = 64;

/// Pairs of NUMA nodes of all hosts, at most.
const PAIRS: usize = 1 << 18;

fn gigabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}

/// Whether a network interface of that name only joins containers or virtual machines of a host.
fn is_virtual(name: &str) -> bool {
    let prefixes = [
        "veth", "docker", "br-", "virbr", "cni", "flannel", "cali", "lxcbr", "lxdbr", "tap",
    ];
    name == "lo" || prefixes.iter().any(|prefix| name.starts_with(prefix))
}
