//! hwloc's XML (`lstopo --of xml`), of its versions 1 to 3.
//!
//! Machines, packages and NUMA nodes, the outermost caches, GPUs and network adapters with the bridges above them, and the
//! bandwidths of NVLinks and xGMI links that hwloc calls distances. Other devices are left out.

use super::{Flaw, Format, Reading, nccl_words, nvswitches, page::Page, xml};
use crate::topo::{
    graph::{Confidence, EdgeId, Graph, Link, LinkKind, NodeId, NodeKind, Origin},
    pci, speeds,
    words::short,
};
use roxmltree::Node;
use std::collections::{BTreeMap, HashMap, HashSet};

pub(super) const FORMAT: Format = Format {
    name: "hwloc",
    about: "hwloc's XML",
    sniff: |text| xml::begins(text, &["topology"]),
    read,
};

/// Objects of a matrix of distances, at most.
const OBJECTS: usize = 1024;

/// Words of 32 bits of a set, ports of an adapter, NUMA nodes of a host that are all joined, at most.
const WORDS: usize = 2048;
const PORTS: usize = 256;
const NUMAS: usize = 64;

/// Pairs of NUMA nodes of all hosts, at most.
const PAIRS: usize = 1 << 18;

fn read(text: &str, source: &str) -> Result<Reading, Flaw> {
    let page = Page::new(text, source);
    let document = xml::parse(text, source, &page.lines)?;
    let root = document.root_element();
    let major = root
        .attribute("version")
        .and_then(|version| version.split('.').next()?.parse().ok());
    let mut reader = Reader {
        page,
        // The first version did not say so.
        major: major.unwrap_or(1),
        nodes: HashMap::new(),
        objects: HashMap::new(),
        numas: Vec::new(),
        numbers: HashMap::new(),
        cpusets: Vec::new(),
        hosts: HashMap::new(),
        near: HashMap::new(),
        verbs: HashSet::new(),
        wanted: HashSet::new(),
        told: HashSet::new(),
    };
    if !(1..=3).contains(&reader.major) {
        reader.tell(root, "a version that is unknown: read as version 3");
    }
    let objects: Vec<Node> = root
        .descendants()
        .filter(|node| node.has_tag_name("object"))
        .collect();
    reader.look_for_devices(&objects);
    for object in &objects {
        reader.machine_part(*object);
    }
    reader.leave_processors_to_one();
    if reader.page.graph.is_empty() {
        let at = root.range().start;
        return Err(reader
            .page
            .flaw(at, "a topology without a machine", "an <object type=\"Machine\">"));
    }
    reader.whole(root);
    for object in &objects {
        reader.cache(*object);
    }
    for object in &objects {
        reader.device(*object);
    }
    reader.sockets(root);
    for distances in root.descendants() {
        match distances.tag_name().name() {
            "distances2" | "distances2hetero" => reader.distances(distances),
            "distances" => reader.old_distances(distances),
            _ => {}
        }
    }
    Ok(reader.page.done())
}

struct Reader<'t> {
    page: Page<'t>,
    major: u32,
    nodes: HashMap<roxmltree::NodeId, NodeId>,
    /// By what distances call them: "OSDev:802", "NUMANode#1".
    objects: HashMap<String, NodeId>,
    numas: Vec<Numa>,
    /// Which NUMA nodes have a number on a host, and which are on a host: the first, and how many.
    numbers: HashMap<(NodeId, usize), (usize, usize)>,
    hosts: HashMap<NodeId, (usize, usize)>,
    /// The processors of a host's NUMA nodes.
    cpusets: Vec<(Option<NodeId>, NodeId, Bits)>,
    /// What the nodeset of an object says about the devices of a host in it.
    near: HashMap<(roxmltree::NodeId, NodeId), (NodeId, bool)>,
    /// Functions that the system knows as a verbs device.
    verbs: HashSet<roxmltree::NodeId>,
    /// Devices that are shown, and the bridges above them.
    wanted: HashSet<roxmltree::NodeId>,
    /// Bridges of which has been told that their NUMA node is not known.
    told: HashSet<roxmltree::NodeId>,
}

struct Numa {
    node: NodeId,
    host: Option<NodeId>,
}

impl Reader<'_> {
    fn origin(&self, object: Node) -> Origin {
        self.page.origin(object.range().start)
    }

    fn tell(&mut self, object: Node, what: impl Into<String>) {
        self.page.tell(object.range().start, what);
    }

    /// The nearest of an object's ancestors that is a node, of such a kind.
    fn above(&self, object: Node, kinds: &[NodeKind]) -> Option<NodeId> {
        let nodes = object
            .ancestors()
            .skip(1)
            .filter_map(|above| self.nodes.get(&above.id()).copied());
        let mut nodes = nodes.filter(|&node| kinds.contains(&self.page.graph.kind(node)));
        nodes.next()
    }

    fn add(&mut self, object: Node, kind: NodeKind, name: &str, parent: Option<NodeId>) -> NodeId {
        let origin = self.origin(object);
        let node = self.page.graph.add_node(kind, name, parent, origin);
        self.nodes.insert(object.id(), node);
        let class = object.attribute("type").unwrap_or("");
        if let Some(index) = object.attribute("gp_index") {
            self.objects.insert(format!("{class}:{index}"), node);
        }
        if let Some(index) = object.attribute("os_index") {
            self.objects.insert(format!("{class}#{index}"), node);
        }
        node
    }

    /// Machines, packages, NUMA nodes.
    fn machine_part(&mut self, object: Node) {
        let index = object.attribute("os_index").unwrap_or("0").to_owned();
        let host = self.above(object, &[NodeKind::Host]);
        match object.attribute("type").unwrap_or("") {
            "Machine" => {
                let name = info(object, "HostName").unwrap_or("host").to_owned();
                let node = self.add(object, NodeKind::Host, &name, None);
                for (key, value) in infos(object) {
                    self.page.graph.set(node, key, value);
                }
            }
            "Package" | "Socket" => {
                // In the first version a NUMA node may hold packages.
                let parent = self.above(object, &[NodeKind::Numa]).or(host);
                let node = self.add(object, NodeKind::Package, &format!("package {index}"), parent);
                for (key, value) in infos(object) {
                    self.page.graph.set(node, key, value);
                }
                if let Some(gp) = object
                    .attribute("gp_index")
                    .filter(|_| object.attribute("type") == Some("Socket"))
                {
                    self.objects.insert(format!("Package:{gp}"), node);
                }
            }
            "NUMANode" => {
                let parent = self.above(object, &[NodeKind::Package]).or(host);
                let node = self.add(object, NodeKind::Numa, &format!("NUMA {index}"), parent);
                self.page.graph.set(node, "numaid", &index);
                let cpus = self.bits(object, "cpuset").map(|set| {
                    let ranges = set.ranges();
                    self.cpusets.push((host, node, set));
                    ranges
                });
                let memory = object.attribute("local_memory").map(|bytes| format!("{bytes}B"));
                for (key, value) in [("cpulist", cpus), ("memory", memory)] {
                    if let Some(value) = value {
                        self.page.graph.set(node, key, &value);
                    }
                }
                if host.is_none() {
                    self.tell(object, "a NUMA node in no machine: kept by itself");
                }
                let number = index.parse().unwrap_or(usize::MAX);
                if let Some(host) = host {
                    let place = self.numas.len();
                    self.numbers.entry((host, number)).or_insert((place, 0)).1 += 1;
                    self.hosts.entry(host).or_insert((place, 0)).1 += 1;
                }
                self.numas.push(Numa { node, host });
            }
            _ => {}
        }
    }

    /// Memory that is near other nodes' processors (HBM, CXL), those of one or of several, has none of its own.
    fn leave_processors_to_one(&mut self) {
        let mut sets = std::mem::take(&mut self.cpusets);
        sets.sort_by_key(|(_, _, set)| set.ones().count());
        let mut taken: HashMap<Option<NodeId>, Bits> = HashMap::new();
        for (host, node, set) in sets {
            let taken = taken.entry(host).or_default();
            match taken.meets(&set) {
                true => self.page.graph.set(node, "cpulist", ""),
                false => taken.add(&set),
            }
        }
    }

    /// Version 3 has what it says of the whole beside the machine, which is one.
    fn whole(&mut self, root: Node) {
        let graph = &mut self.page.graph;
        let Some(host) = graph.of_kind(NodeKind::Host).next() else {
            return;
        };
        let name = info(root, "HostName").filter(|_| graph.get(host, "HostName").is_none());
        if let Some(name) = name {
            graph.set_name(host, name);
        }
        for (key, value) in infos(root) {
            if graph.get(host, key).is_none() {
                graph.set(host, key, value);
            }
        }
    }

    /// The outermost cache of some cores.
    fn cache(&mut self, object: Node) {
        // A cache of memory is no cores'.
        let is_cache = |node: &Node| {
            (node.attribute("type")).is_some_and(|class| class.ends_with("Cache") && class != "MemCache")
        };
        if !is_cache(&object) || object.ancestors().skip(1).any(|above| is_cache(&above)) {
            return;
        }
        let Some((parent, _)) = self.locality(object) else {
            return;
        };
        let class = object.attribute("type").unwrap_or("");
        let level = object
            .attribute("depth")
            .unwrap_or_else(|| class.trim_end_matches("Cache").trim_start_matches('L'));
        let cpus = self
            .bits(object, "cpuset")
            .map_or(String::new(), |set| set.ranges());
        let name = format!("L{level} of {}", short(&cpus));
        let node = self.add(object, NodeKind::Cores, &name, Some(parent));
        self.page.graph.set(node, "cpulist", &cpus);
        if let Some(size) = object.attribute("cache_size") {
            self.page.graph.set(node, "cache", &format!("{size}B"));
        }
        let cores = object
            .descendants()
            .filter(|node| node.attribute("type") == Some("Core"))
            .count();
        self.page.graph.set(node, "cores", &cores.to_string());
        let origin = self.origin(object);
        self.page
            .graph
            .join(parent, node, Link::new(LinkKind::Memory, origin));
    }

    /// The NUMA node that an object is in or near, and whether that is sure. A host without NUMA nodes is its own.
    fn locality(&mut self, object: Node) -> Option<(NodeId, bool)> {
        let host = self.above(object, &[NodeKind::Host])?;
        if let Some(numa) = self.above(object, &[NodeKind::Numa]) {
            return Some((numa, true));
        }
        let Some(&(first, count)) = self.hosts.get(&host) else {
            return Some((host, true));
        };
        let first = self.numas[first].node;
        let Some(set) = object.ancestors().find(|above| above.has_attribute("nodeset")) else {
            return Some((first, count == 1));
        };
        if let Some(known) = self.near.get(&(set.id(), host)) {
            return Some(*known);
        }
        let bits = self.bits(set, "nodeset").unwrap_or_default();
        let near = bits.ones().filter_map(|number| self.numbers.get(&(host, number)));
        let near = near.fold((usize::MAX, 0), |(first, sum), &(place, count)| {
            (first.min(place), sum + count)
        });
        let place = match near {
            (_, 0) => (first, true),
            (place, count) => (self.numas[place].node, count == 1),
        };
        self.near.insert((set.id(), host), place);
        Some(place)
    }

    /// The set that an attribute is, if it is there.
    fn bits(&mut self, object: Node, key: &str) -> Option<Bits> {
        let set = object.attribute(key)?;
        if set.split(',').nth(WORDS).is_some() {
            let told = format!("a {key} of more than {WORDS} words: only the last ones are read");
            self.tell(object, told);
        }
        Some(Bits::of(set))
    }

    /// Marks GPUs and adapters, and all bridges above them.
    fn look_for_devices(&mut self, objects: &[Node]) {
        let mut slots: HashSet<String> = HashSet::new();
        let slot =
            |object: &Node| pci::slot(&pci::bus_id(object.attribute("pci_busid").unwrap_or(""))).to_owned();
        let devices: Vec<(Node, NodeKind)> = (objects.iter())
            .filter(|object| object.attribute("type") == Some("PCIDev"))
            .map(|object| (*object, self.kind(*object)))
            .collect();
        for (object, kind) in &devices {
            if *kind == NodeKind::Nic && has_device(*object) {
                slots.insert(slot(object));
            }
        }
        let known = (objects.iter()).filter(|object| self.device_kind(**object) == Some(Device::Verbs));
        self.verbs = known.filter_map(|object| Some(object.parent()?.id())).collect();
        let mut left_out: HashMap<String, (Node, usize)> = HashMap::new();
        for (object, kind) in &devices {
            let wanted = matches!(
                kind,
                NodeKind::Gpu | NodeKind::Npu | NodeKind::Nic | NodeKind::NvSwitch
            );
            if *kind == NodeKind::Nic && !has_device(*object) && slots.contains(&slot(object)) {
                left_out.entry(slot(object)).or_insert((*object, 0)).1 += 1;
                continue;
            }
            if wanted {
                // Above one that is marked, all are.
                let _ = object.ancestors().find(|above| !self.wanted.insert(above.id()));
            }
        }
        let mut left_out: Vec<_> = left_out.into_iter().collect();
        left_out.sort_by_key(|(_, (object, _))| object.range().start);
        for (slot, (object, count)) in left_out {
            self.tell(
                object,
                format!("{count} functions of {slot} have no network device: virtual ones, left out"),
            );
        }
    }

    fn kind(&self, object: Node) -> NodeKind {
        let ids = ids(object);
        let coprocessor = || {
            let mut devices = object.children();
            devices.any(|device| self.device_kind(device) == Some(Device::Coprocessor))
        };
        match pci::kind(&ids) {
            // Where the system hid a switch's registers, its ids are all 0.
            _ if object.attribute("subtype") == Some("NVSwitch") => NodeKind::NvSwitch,
            NodeKind::PciFunction if coprocessor() => NodeKind::Gpu,
            kind => kind,
        }
    }

    fn device_kind(&self, object: Node) -> Option<Device> {
        if object.attribute("type") != Some("OSDev") {
            return None;
        }
        let number: u32 = object.attribute("osdev_type")?.parse().ok()?;
        // Numbers until version 3, then bits.
        Some(match (self.major, number) {
            (..=2, 2) => Device::Network,
            (..=2, 3) => Device::Verbs,
            (..=2, 5) => Device::Coprocessor,
            (..=2, _) => Device::Other,
            (_, bits) if bits & 32 != 0 => Device::Verbs,
            (_, bits) if bits & 16 != 0 => Device::Network,
            (_, bits) if bits & 8 != 0 => Device::Coprocessor,
            _ => Device::Other,
        })
    }

    /// Bridges, GPUs and adapters that are wanted, and what the system calls them.
    fn device(&mut self, object: Node) {
        match object.attribute("type").unwrap_or("") {
            "Bridge" if self.wanted.contains(&object.id()) => {
                let kind = match object.attribute("bridge_type") {
                    Some(kind) if kind.starts_with("0-") => NodeKind::RootComplex,
                    _ => NodeKind::PciSwitch,
                };
                self.function(object, kind);
            }
            "PCIDev" if self.wanted.contains(&object.id()) => {
                let kind = self.kind(object);
                if ids(object).vendor == Some(0) {
                    let bus = object.attribute("pci_busid").unwrap_or("a device");
                    self.tell(
                        object,
                        format!("{bus} has no ids: known by its subtype or its name in the system"),
                    );
                }
                self.function(object, kind);
            }
            "OSDev" => self.system_device(object),
            _ => {}
        }
    }

    fn function(&mut self, object: Node, kind: NodeKind) {
        let bridge = self.above(
            object,
            &[
                NodeKind::PciSwitch,
                NodeKind::RootComplex,
                NodeKind::Nic,
                NodeKind::Gpu,
            ],
        );
        let parent = match bridge {
            Some(bridge) => bridge,
            None => {
                let Some((numa, sure)) = self.locality(object) else {
                    return self.tell(object, "a device in no machine: left out");
                };
                if !sure && self.told.insert(object.id()) {
                    let name = short(self.page.graph.name(numa)).into_owned();
                    self.tell(
                        object,
                        format!("a device near several NUMA nodes: taken as near {name}, the first"),
                    );
                }
                numa
            }
        };
        let name = match object
            .attribute("pci_busid")
            .filter(|_| kind != NodeKind::RootComplex)
        {
            Some(bus) => pci::bus_id(bus),
            None => format!("pci{}", object.attribute("bridge_pci").unwrap_or("")),
        };
        let node = self.add(object, kind, &name, Some(parent));
        let ids = ids(object);
        // In NCCL's words.
        let class = ids.class.map(|class| format!("{class:#08x}"));
        let vendor = ids.vendor.map(|vendor| format!("{vendor:#06x}"));
        let bus = object.attribute("pci_busid").map(str::to_owned);
        for (key, value) in [("class", class), ("vendor", vendor), ("busid", bus)] {
            if let Some(value) = value {
                self.page.graph.set(node, key, &value);
            }
        }
        for key in ["bridge_pci", "pci_link_speed"] {
            if let Some(value) = object.attribute(key) {
                self.keep(node, key, value);
            }
        }
        let origin = self.origin(object);
        let link = Link::new(LinkKind::Pcie, origin);
        let gigabytes = object
            .attribute("pci_link_speed")
            .and_then(|speed| speed.parse::<f64>().ok());
        let gigabytes = gigabytes.filter(|speed| (0.01..=1e4).contains(speed));
        let link = match gigabytes {
            _ if kind == NodeKind::RootComplex => link,
            // Accelerators that compute nothing go down to the lowest speed.
            Some(speed) if is_lowest(speed) && self.is_of_accelerators(object, kind) => {
                let why = format!(
                    "pci_link_speed {speed} of an accelerator that may be idle: taken as PCIe 3.0 with 16 lanes"
                );
                self.tell(object, why);
                link.speed(speeds::PCIE, Confidence::Assumed)
            }
            // What is left after encoding; three quarters of it arrive.
            Some(speed) => link.speed((speed * 0.75e9) as u64, Confidence::Declared),
            None => link.speed(speeds::PCIE, Confidence::Assumed),
        };
        self.page.graph.join(parent, node, link);
    }

    /// Whether it is an accelerator, or leads to nothing else.
    fn is_of_accelerators(&self, object: Node, kind: NodeKind) -> bool {
        if matches!(kind, NodeKind::Gpu | NodeKind::Npu) {
            return true;
        }
        let below = object
            .descendants()
            .filter(|below| below.attribute("type") == Some("PCIDev"));
        let kinds: Vec<NodeKind> = below.map(|below| self.kind(below)).collect();
        let is_one = |kind: &NodeKind| matches!(kind, NodeKind::Gpu | NodeKind::Npu);
        let is_nothing = |kind: &NodeKind| *kind == NodeKind::PciFunction;
        object.attribute("type") == Some("Bridge")
            && kinds.iter().any(is_one)
            && kinds.iter().all(|kind| is_one(kind) || is_nothing(kind))
    }

    /// What is hwloc's alone.
    fn keep(&mut self, node: NodeId, key: &str, value: &str) {
        let key = format!("{}{key}", nccl_words::HWLOC_PREFIX);
        self.page.graph.set(node, &key, value);
    }

    /// Ports of adapters; what a GPU is called.
    fn system_device(&mut self, object: Node) {
        let (Some(parent), Some(kind)) = (object.parent(), self.device_kind(object)) else {
            return;
        };
        let name = object.attribute("name").unwrap_or("device").to_owned();
        let Some(node) = self.nodes.get(&parent.id()).copied() else {
            return;
        };
        if let Some(index) = object.attribute("gp_index") {
            self.objects.insert(format!("OSDev:{index}"), node);
        }
        let nic = self.page.graph.kind(node) == NodeKind::Nic;
        match kind {
            Device::Coprocessor => {
                let key = name.trim_end_matches(|c: char| c.is_ascii_digit());
                self.keep(node, if key.is_empty() { "device" } else { key }, &name);
                for (key, value) in infos(object) {
                    self.keep(node, key, value);
                }
            }
            Device::Verbs if nic => self.verbs(object, node, &name),
            // Beside a port of InfiniBand's it is the same port.
            Device::Network if nic => match self.verbs.contains(&parent.id()) {
                true => self.page.graph.set(
                    node,
                    &format!("net.{name}"),
                    info(object, "Address").unwrap_or(""),
                ),
                false => _ = self.port(object, node, &name, LinkKind::Tcp, |key| info(object, key)),
            },
            Device::Network if self.page.graph.kind(node) != NodeKind::Nic => {
                self.tell(object, format!("{name} is no adapter's: left out"));
            }
            _ => {}
        }
    }

    fn verbs(&mut self, object: Node, nic: NodeId, name: &str) {
        let mut words: HashMap<&str, &str> = HashMap::new();
        let mut ports: Vec<u32> = Vec::new();
        for (key, value) in infos(object) {
            let new = !words.contains_key(key);
            words.entry(key).or_insert(value);
            let port =
                (key.strip_prefix("Port")).and_then(|key| key.strip_suffix("State")?.parse::<u32>().ok());
            ports.extend(port.filter(|_| new));
        }
        if ports.is_empty() {
            ports.push(1);
        }
        if ports.len() > PORTS {
            let told = format!(
                "{} has {} ports: the first {PORTS} are taken",
                short(name),
                ports.len()
            );
            self.tell(object, told);
            ports.truncate(PORTS);
        }
        // Each port has it as its name.
        let name = short(name);
        for port in ports {
            let word = |key: &str| {
                words
                    .get(&*format!("Port{port}{key}"))
                    .map(|&word| word.to_owned())
            };
            let label = if port == 1 {
                name.to_string()
            } else {
                format!("{name}:{port}")
            };
            let lid = word("LID").as_deref().and_then(pci::number).unwrap_or(0);
            let kind = if lid > 0 { LinkKind::Ib } else { LinkKind::Roce };
            let word_of = |key: &str| words.get(key).copied();
            let (node, edges) = self.port(object, nic, &label, kind, word_of);
            for (key, value) in [
                ("state", word("State")),
                ("lid", word("LID")),
                ("gid", word("GID0")),
            ] {
                if let Some(value) = value {
                    self.page.graph.set(node, key, &value);
                }
            }
            self.page.graph.set(node, "port", &port.to_string());
            // 4 is active.
            if word("State").is_some_and(|state| state != "4") {
                for edge in edges {
                    self.page.graph.link_mut(edge).reachable = false;
                }
            }
        }
    }

    /// A port; the words are what hwloc says of its device.
    fn port<'w>(
        &mut self,
        object: Node,
        nic: NodeId,
        name: &str,
        kind: LinkKind,
        word: impl Fn(&str) -> Option<&'w str>,
    ) -> (NodeId, [EdgeId; 2]) {
        let origin = self.origin(object);
        let node = self
            .page
            .graph
            .add_node(NodeKind::NicPort, name, Some(nic), origin);
        for (info, key) in [("Address", "address"), ("SysImageGUID", "guid")] {
            if let Some(value) = word(info) {
                self.page.graph.set(node, key, &short(value));
            }
        }
        let edges = self.page.graph.join(nic, node, Link::new(kind, origin));
        (node, edges)
    }

    /// NUMA nodes of a host are joined with one another; very many, through a node in the middle.
    fn sockets(&mut self, root: Node) {
        let package = root
            .descendants()
            .find(|node| ["Package", "Socket"].contains(&node.attribute("type").unwrap_or("")));
        let word = |key: &str| {
            package
                .and_then(|package| info(package, key))
                .unwrap_or("")
                .to_owned()
        };
        let arch = root
            .descendants()
            .find_map(|node| info(node, "Architecture"))
            .unwrap_or("x86_64");
        let arch = if word("CPUModel").contains("POWER") {
            "ppc64"
        } else {
            arch
        };
        let number = |key: &str| word(key).parse().unwrap_or(0);
        let speed = speeds::socket(
            arch,
            &word("CPUVendor"),
            number("CPUFamilyNumber"),
            number("CPUModelNumber"),
        );
        let link = Link::new(LinkKind::Socket, Origin::ASSUMED).speed(speed, Confidence::Assumed);
        let mut hosts: BTreeMap<Option<NodeId>, Vec<NodeId>> = BTreeMap::new();
        for numa in &self.numas {
            hosts.entry(numa.host).or_default().push(numa.node);
        }
        let mut pairs = 0_usize;
        for (host, numas) in hosts {
            pairs += numas.len() * numas.len() / 2;
            if numas.len() > NUMAS || pairs > PAIRS {
                let middle = self
                    .page
                    .graph
                    .add_node(NodeKind::Opaque, "sockets", host, Origin::ASSUMED);
                for numa in numas {
                    self.page.graph.join(numa, middle, link);
                }
                continue;
            }
            for (place, one) in numas.iter().enumerate() {
                for other in &numas[place + 1..] {
                    self.page.graph.join(*one, *other, link);
                }
            }
        }
    }

    /// A matrix of latencies, or of bandwidths in MB/s.
    fn distances(&mut self, matrix: Node) {
        let name = matrix.attribute("name").unwrap_or("");
        let kind = match name {
            "NVLinkBandwidth" => LinkKind::NvLink,
            "XGMIBandwidth" => LinkKind::XGmi,
            "NUMALatency" => LinkKind::Memory,
            _ => return,
        };
        let words = |tag: &str| -> Vec<&str> {
            let parts = matrix.children().filter(|part| part.has_tag_name(tag));
            parts
                .flat_map(|part| part.text().unwrap_or("").split_whitespace())
                .collect()
        };
        let (indexes, values) = (words("indexes"), words("u64values"));
        if indexes.len() > OBJECTS || values.len() != indexes.len() * indexes.len() {
            let what = format!("{} values for {} objects: left out", values.len(), indexes.len());
            return self.tell(matrix, what);
        }
        let class = matrix.attribute("type").unwrap_or("");
        let by_number = matrix.attribute("indexing") == Some("os");
        let nodes: Vec<Option<NodeId>> = (indexes.iter())
            .map(|index| {
                let key = match (index.contains(':'), by_number) {
                    (true, _) => (*index).to_owned(),
                    (false, true) => format!("{class}#{index}"),
                    (false, false) => format!("{class}:{index}"),
                };
                self.objects.get(&key).copied()
            })
            .collect();
        if let Some(place) = nodes.iter().position(Option::is_none) {
            self.tell(
                matrix,
                format!("{name} of {}, which is not in the file: left out", indexes[place]),
            );
        }
        let mut links = Vec::new();
        for (one, row) in values.chunks(indexes.len().max(1)).enumerate() {
            let Some(from) = nodes[one] else {
                continue;
            };
            if kind == LinkKind::Memory {
                self.page.graph.set(from, "distance", &row.join(" "));
                continue;
            }
            let from = self.end(from);
            for (other, value) in row.iter().enumerate().filter(|(other, _)| *other != one) {
                let megabytes = value.parse::<u64>().unwrap_or(0);
                if let (Some(to), 1..) = (nodes[other], megabytes) {
                    links.push((from, self.end(to), megabytes.saturating_mul(speeds::MB)));
                }
            }
        }
        self.join_gpus(&links, Link::new(kind, self.origin(matrix)));
    }

    /// Links with their bytes a second; those of a GPU to switches that are one to it are one edge.
    fn join_gpus(&mut self, links: &[(NodeId, NodeId, u64)], link: Link) {
        let is_switch = |graph: &Graph, node: NodeId| graph.kind(node) == NodeKind::NvSwitch;
        let graph = &self.page.graph;
        let shared: Vec<(NodeId, NodeId)> = (links.iter())
            .filter(|(from, to, _)| !is_switch(graph, *from) && is_switch(graph, *to))
            .map(|(from, to, _)| (*from, *to))
            .collect();
        let graph = &mut self.page.graph;
        let firsts = nvswitches::firsts(&shared);
        let mut edges: HashMap<(NodeId, NodeId), EdgeId> = HashMap::new();
        for &(from, to, bytes) in links {
            let [from, to] = [from, to].map(|node| firsts.get(&node).copied().unwrap_or(node));
            let link = link.speed(bytes, Confidence::Declared);
            let of_switch = is_switch(graph, from) || is_switch(graph, to);
            match edges.get(&(from, to)).copied() {
                _ if from == to => {}
                Some(edge) if of_switch => {
                    let known = graph.link_mut(edge);
                    known.wires = known.wires.saturating_add(1);
                    known.bytes_per_second = known.bytes_per_second.saturating_add(bytes);
                }
                _ => _ = edges.insert((from, to), graph.add_edge(from, to, link)),
            }
        }
    }

    /// Links to a package end at its first NUMA node.
    fn end(&self, node: NodeId) -> NodeId {
        let graph = &self.page.graph;
        let numa = graph
            .children(node)
            .find(|&child| graph.kind(child) == NodeKind::Numa);
        match graph.kind(node) {
            NodeKind::Package => numa.or(graph.within(node, NodeKind::Numa)).unwrap_or(node),
            _ => node,
        }
    }

    /// Version 1 has latencies of the NUMA nodes in their order.
    fn old_distances(&mut self, matrix: Node) {
        let count = matrix
            .attribute("nbobjs")
            .and_then(|count| count.parse::<usize>().ok())
            .unwrap_or(0);
        let values: Vec<&str> = (matrix.children())
            .filter(|part| part.has_tag_name("latency"))
            .filter_map(|part| part.attribute("value"))
            .collect();
        if count == 0 || count > OBJECTS || values.len() != count * count || count != self.numas.len() {
            return self.tell(matrix, "distances that are not those of all NUMA nodes: left out");
        }
        for (row, numa) in values.chunks(count).zip(&self.numas) {
            self.page.graph.set(numa.node, "distance", &row.join(" "));
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Device {
    Network,
    Verbs,
    Coprocessor,
    Other,
}

/// Whether the system knows a function as a network device.
fn has_device(object: Node) -> bool {
    object
        .children()
        .any(|child| child.attribute("type") == Some("OSDev"))
}

/// Those in "0302 [10de:1db8] [10de:131d] a1 00". hwloc's class has no interface.
fn ids(object: Node) -> pci::Ids {
    let words = object.attribute("pci_type").unwrap_or("");
    let hex = |text: &str| u32::from_str_radix(text, 16).ok();
    let class = words.split_whitespace().next().and_then(hex);
    let ids = words.split_once('[').and_then(|(_, ids)| ids.split_once(':'));
    pci::Ids {
        class: class.filter(|class| *class <= 0xffff).map(|class| class << 8),
        vendor: ids.and_then(|(vendor, _)| hex(vendor)),
        device: ids.and_then(|(_, device)| hex(device.split(']').next()?)),
    }
}

fn infos<'d>(object: Node<'d, 'd>) -> impl Iterator<Item = (&'d str, &'d str)> {
    (object.children().filter(|child| child.has_tag_name("info")))
        .filter_map(|info| Some((info.attribute("name")?, info.attribute("value")?)))
}

fn info<'d>(object: Node<'d, '_>, key: &str) -> Option<&'d str> {
    let mut all = object.children().filter(|child| child.has_tag_name("info"));
    let found = all.find(|info| info.attribute("name") == Some(key))?;
    found.attribute("value")
}

/// Whether a link of so many 10⁹ bytes a second, after encoding, has the lowest speed, 2.5 GT/s, and 8 or 16 lanes.
fn is_lowest(gigabytes: f64) -> bool {
    [2.0, 4.0].contains(&gigabytes)
}

/// Words of 32 bits, the lowest first.
#[derive(Default)]
struct Bits(Vec<u32>);

impl Bits {
    /// Those of "0x00000101,,0x1", with the highest word first; an empty word is 0.
    fn of(set: &str) -> Self {
        let words = set.rsplit(',').take(WORDS).map(|word| {
            let digits = word.trim().trim_start_matches("0x");
            match word {
                "0xf...f" => u32::MAX,
                _ => u32::from_str_radix(digits, 16).unwrap_or(0),
            }
        });
        Bits(words.collect())
    }

    /// The numbers of set bits, in their order.
    fn ones(&self) -> impl Iterator<Item = usize> + '_ {
        let words = (self.0.iter().enumerate()).filter(|(_, word)| **word != 0);
        words.flat_map(|(at, word)| {
            let set = (0..32).filter(move |bit| word >> bit & 1 == 1);
            set.map(move |bit| at * 32 + bit)
        })
    }

    /// Whether a bit is set in both.
    fn meets(&self, other: &Bits) -> bool {
        self.0.iter().zip(&other.0).any(|(one, other)| one & other != 0)
    }

    /// Sets those of `other`, too.
    fn add(&mut self, other: &Bits) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        for (word, more) in self.0.iter_mut().zip(&other.0) {
            *word |= more;
        }
    }

    /// Set bits as "0-3,8".
    fn ranges(&self) -> String {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for bit in self.ones() {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == bit => *last = bit,
                _ => runs.push((bit, bit)),
            }
        }
        let parts = runs.into_iter().map(|(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        });
        parts.collect::<Vec<_>>().join(",")
    }
}
