//! [`read`]: this machine, or a copy of another's `/sys` and `/proc`, as a graph, without any library.
//!
//! Processors and NUMA nodes, last-level caches, the PCI tree above accelerators and network adapters with what its links can do at
//! most (idle ones run slower), ports by `class/net` and `class/infiniband`, AMD's xGMI links by `class/kfd`. NVLinks
//! are not in sysfs: [`read_with_nvml`] asks NVIDIA's driver as well. Whatever is not there is left out.

#[cfg(feature = "nvml")]
mod nvml;

use super::{
    graph::{Confidence, Graph, Link, LinkKind, NodeId, NodeKind, Origin},
    pci,
    read::{Position, Reading, Repair},
    speeds, text,
};
#[cfg(feature = "nvml")]
use std::ffi::OsStr;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::{Path, PathBuf},
};

/// The machine as seen under `root`.
pub fn read(root: &Path) -> Reading {
    Reader::new(root).read().end()
}

/// The same, and what the library `nvml` (a name that the loader knows, or a path) tells of its GPUs, if it is there. By default a
/// machine has it as [`NVML`]; what it tells is of the machine that runs this.
#[cfg(feature = "nvml")]
pub fn read_with_nvml(root: &Path, nvml: &OsStr) -> Reading {
    let mut reader = Reader::new(root).read();
    reader.ask_nvml(nvml);
    reader.end()
}

/// NVML as NVIDIA's driver installs it.
#[cfg(feature = "nvml")]
pub const NVML: &str = crate::sys::nvml::LIBRARY;

/// Whether a folder has an entry of that name; where it leads may be missing in a copy.
fn has(folder: &Path, name: &str) -> bool {
    fs::symlink_metadata(folder.join(name)).is_ok()
}

struct Reader<'r> {
    root: &'r Path,
    graph: Graph,
    host: NodeId,
    repairs: Vec<Repair>,
    /// By number.
    numas: BTreeMap<u32, NodeId>,
    /// PCI functions, bridges and roots by their names.
    functions: HashMap<String, NodeId>,
}

/// A device that is shown, and the directories above it.
struct Device {
    bus_id: String,
    folder: PathBuf,
    kind: NodeKind,
    /// Names from the root complex down to the device's parent.
    above: Vec<String>,
}

impl<'r> Reader<'r> {
    fn new(root: &'r Path) -> Self {
        let mut graph = Graph::new();
        let name = word(&root.join("proc/sys/kernel/hostname")).unwrap_or_else(|| "host".to_owned());
        let host = graph.add_node(NodeKind::Host, &name, None, Origin::ASSUMED);
        Reader {
            root,
            graph,
            host,
            repairs: Vec::new(),
            numas: BTreeMap::new(),
            functions: HashMap::new(),
        }
    }

    fn read(mut self) -> Self {
        self.processors();
        self.sockets();
        self.devices();
        self.ports();
        self.xgmi();
        self
    }

    fn end(self) -> Reading {
        Reading {
            graph: self.graph,
            repairs: self.repairs,
        }
    }
}

impl Reader<'_> {
    /// NUMA nodes in their packages, and groups of cores that share a last-level cache in these.
    fn processors(&mut self) {
        let cpus = numbered(&self.root.join("sys/devices/system/cpu"), "cpu");
        let mut packages: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for (cpu, folder) in &cpus {
            let package = number(&folder.join("topology/physical_package_id")).unwrap_or(0);
            packages.entry(package).or_default().insert(*cpu);
        }
        let mut package_nodes = BTreeMap::new();
        for package in packages.keys().filter(|_| packages.len() > 1) {
            let name = format!("package {package}");
            let node = self
                .graph
                .add_node(NodeKind::Package, &name, Some(self.host), Origin::ASSUMED);
            package_nodes.insert(*package, node);
        }
        for (numa, folder) in numbered(&self.root.join("sys/devices/system/node"), "node") {
            let cpulist = word(&folder.join("cpulist")).unwrap_or_default();
            let own = cpu_set(&cpulist);
            let package = packages
                .iter()
                .find(|(_, cpus)| !own.is_empty() && own.is_subset(cpus));
            let parent = package
                .and_then(|(package, _)| package_nodes.get(package))
                .copied();
            let node = self.numa(numa, parent.unwrap_or(self.host), &folder);
            self.graph.set(node, "cpulist", &cpulist);
            if let Some(distance) = word(&folder.join("distance")) {
                self.graph.set(node, "distance", &distance);
            }
            let meminfo = text(&folder.join("meminfo")).unwrap_or_default();
            let total = meminfo.lines().find_map(|line| line.split_once("MemTotal:"));
            if let Some((_, total)) = total {
                self.graph
                    .set(node, "memory", &total.split_whitespace().collect::<String>());
            }
        }
        if self.numas.is_empty() {
            let folder = self.root.join("sys/devices/system/cpu");
            let node = self.numa(0, self.host, &folder);
            if let Some(online) = word(&folder.join("online")) {
                self.graph.set(node, "cpulist", &online);
            }
        }
        self.caches(&cpus);
    }

    fn numa(&mut self, number: u32, parent: NodeId, folder: &Path) -> NodeId {
        let origin = self.origin(folder);
        let node = self
            .graph
            .add_node(NodeKind::Numa, &format!("NUMA {number}"), Some(parent), origin);
        self.graph.set(node, "numaid", &number.to_string());
        self.numas.insert(number, node);
        node
    }

    fn caches(&mut self, cpus: &BTreeMap<u32, PathBuf>) {
        let sets: Vec<(NodeId, BTreeSet<u32>)> = (self.numas.values())
            .map(|numa| (*numa, cpu_set(self.graph.get(*numa, "cpulist").unwrap_or(""))))
            .collect();
        let mut seen = BTreeSet::new();
        for (cpu, folder) in cpus {
            let last = numbered(&folder.join("cache"), "index")
                .into_values()
                .max_by_key(|cache| number(&cache.join("level")).unwrap_or(0));
            let Some(cache) = last else {
                continue;
            };
            let Some(shared) = word(&cache.join("shared_cpu_list")) else {
                continue;
            };
            let numa = sets
                .iter()
                .find(|(_, set)| set.contains(cpu))
                .map(|(numa, _)| *numa);
            let Some(numa) = numa.filter(|_| seen.insert(shared.clone())) else {
                continue;
            };
            let level = number(&cache.join("level")).unwrap_or(0);
            let origin = self.origin(&cache);
            let name = format!("L{level} of {shared}");
            let cores = self.graph.add_node(NodeKind::Cores, &name, Some(numa), origin);
            self.graph.set(cores, "cpulist", &shared);
            if let Some(size) = word(&cache.join("size")) {
                self.graph.set(cores, "cache", &size);
            }
            self.graph.join(numa, cores, Link::new(LinkKind::Memory, origin));
        }
    }

    /// NUMA nodes are joined with one another; very many, through a node in the middle.
    fn sockets(&mut self) {
        let info = text(&self.root.join("proc/cpuinfo")).unwrap_or_default();
        let field = |name: &str| {
            let value = info
                .lines()
                .find_map(|line| line.split_once(':').filter(|(key, _)| key.trim() == name));
            value
                .map(|(_, value)| value.trim().to_owned())
                .unwrap_or_default()
        };
        let vendor = field("vendor_id");
        let arch = match () {
            _ if !field("CPU implementer").is_empty() => "arm64",
            _ if info.contains("POWER") => "ppc64",
            _ => "x86_64",
        };
        let decimal = |name: &str| field(name).parse().unwrap_or(0);
        let speed = speeds::socket(arch, &vendor, decimal("cpu family"), decimal("model"));
        let link = Link::new(LinkKind::Socket, Origin::ASSUMED).speed(speed, Confidence::Assumed);
        let numas: Vec<NodeId> = self.numas.values().copied().collect();
        for numa in &numas {
            self.graph.set(*numa, "arch", arch);
            for (key, field) in [
                ("vendor", "vendor_id"),
                ("familyid", "cpu family"),
                ("modelid", "model"),
            ] {
                let value = info
                    .lines()
                    .find_map(|line| line.split_once(':').filter(|(key, _)| key.trim() == field));
                if let Some((_, value)) = value {
                    self.graph.set(*numa, key, value.trim());
                }
            }
        }
        if numas.len() > 64 {
            let middle = self
                .graph
                .add_node(NodeKind::Opaque, "sockets", Some(self.host), Origin::ASSUMED);
            for numa in numas {
                self.graph.join(numa, middle, link);
            }
            return;
        }
        for (place, one) in numas.iter().enumerate() {
            for other in &numas[place + 1..] {
                self.graph.join(*one, *other, link);
            }
        }
    }

    /// Accelerators and adapters, with all bridges above them.
    fn devices(&mut self) {
        let bus = self.root.join("sys/bus/pci/devices");
        let mut names: Vec<String> = entries(&bus);
        names.sort();
        for name in names {
            let folder = bus.join(&name);
            let kind = pci::kind(&pci::Ids {
                class: hex(&folder, "class"),
                vendor: hex(&folder, "vendor"),
                device: hex(&folder, "device"),
            });
            let wanted = matches!(
                kind,
                NodeKind::Gpu | NodeKind::Npu | NodeKind::Nic | NodeKind::NvSwitch
            );
            // Virtual functions are parts of the physical one, where that is to be seen.
            if !wanted || has(&folder, "physfn") {
                continue;
            }
            let target = fs::read_link(&folder).unwrap_or_default();
            let mut above: Vec<String> = (target.components())
                .filter_map(|part| part.as_os_str().to_str())
                .filter(|part| is_bus_id(part) || part.starts_with("pci"))
                .map(str::to_owned)
                .collect();
            above.pop();
            self.device(&Device {
                bus_id: name,
                folder,
                kind,
                above,
            });
        }
    }

    fn device(&mut self, device: &Device) {
        let mut parent = self.numa_of(device);
        for name in &device.above {
            parent = match self.functions.get(name) {
                Some(known) => *known,
                None if is_bus_id(name) => {
                    let folder = self.root.join("sys/bus/pci/devices").join(name);
                    self.function(name, &folder, NodeKind::PciSwitch, parent)
                }
                None => {
                    let origin = self.origin(&self.root.join("sys/devices").join(name));
                    let root = self
                        .graph
                        .add_node(NodeKind::RootComplex, name, Some(parent), origin);
                    self.graph.join(parent, root, Link::new(LinkKind::Pcie, origin));
                    self.functions.insert(name.clone(), root);
                    root
                }
            };
        }
        self.function(&device.bus_id, &device.folder, device.kind, parent);
    }

    fn numa_of(&mut self, device: &Device) -> NodeId {
        let first = self.numas.values().next().copied().unwrap_or(self.host);
        let said = word(&device.folder.join("numa_node"));
        let number = said.as_deref().and_then(|said| said.parse().ok());
        let node = number.and_then(|number: u32| self.numas.get(&number)).copied();
        if node.is_none() && self.numas.len() > 1 {
            let said = said.unwrap_or_default();
            self.tell(format!(
                "{} has numa_node \"{said}\": taken as the first",
                device.bus_id
            ));
        }
        node.unwrap_or(first)
    }

    fn function(&mut self, bus_id: &str, folder: &Path, kind: NodeKind, parent: NodeId) -> NodeId {
        let origin = self.origin(folder);
        let node = self
            .graph
            .add_node(kind, &pci::bus_id(bus_id), Some(parent), origin);
        self.functions.insert(bus_id.to_owned(), node);
        self.graph.set(node, "busid", bus_id);
        for (key, file) in [
            ("class", "class"),
            ("vendor", "vendor"),
            ("device", "device"),
            ("subsystem_vendor", "subsystem_vendor"),
            ("subsystem_device", "subsystem_device"),
            ("link_speed", "max_link_speed"),
            ("link_width", "max_link_width"),
        ] {
            if let Some(value) = word(&folder.join(file)) {
                self.graph.set(node, key, &value);
            }
        }
        let speed = word(&folder.join("max_link_speed"));
        let width = word(&folder.join("max_link_width"));
        let (bytes, odd) = pci::link(speed.as_deref(), width.as_deref(), kind == NodeKind::Gpu);
        let above = self.graph.get(parent, "link_speed").is_some();
        let above = above.then(|| {
            pci::link(
                self.graph.get(parent, "link_speed"),
                self.graph.get(parent, "link_width"),
                false,
            )
            .0
        });
        let sure = speed.is_some() && width.is_some() && odd.is_none();
        let sure = if sure {
            Confidence::Declared
        } else {
            Confidence::Assumed
        };
        let bytes = bytes.min(above.unwrap_or(u64::MAX));
        self.graph
            .join(parent, node, Link::new(LinkKind::Pcie, origin).speed(bytes, sure));
        let now = [
            word(&folder.join("current_link_speed")),
            word(&folder.join("current_link_width")),
        ];
        if let (Some(speed), Some(width), [Some(speed_now), Some(width_now)]) = (&speed, &width, &now) {
            let slower = (pci::speed(speed_now) < pci::speed(speed), width_now != width);
            if slower.0 || slower.1 {
                self.tell(format!(
                    "{bus_id} runs at {speed_now} x{width_now} of {speed} x{width}: idle, or badly plugged in; taken as {} GB/s",
                    bytes as f64 / 1e9
                ));
            }
        }
        node
    }

    /// Ports of adapters: InfiniBand's and RoCE's by `class/infiniband`, others by `class/net`. An interface without a device
    /// (bridges, pairs of containers) is none.
    fn ports(&mut self) {
        let verbs = self.root.join("sys/class/infiniband");
        let nets = self.root.join("sys/class/net");
        let mut with_verbs = BTreeSet::new();
        let mut names = entries(&verbs);
        names.sort();
        for name in names {
            let folder = verbs.join(&name);
            let Some(nic) = self.adapter(&folder.join("device")) else {
                continue;
            };
            for (port, folder) in numbered(&folder.join("ports"), "") {
                let origin = self.origin(&folder);
                let layer = word(&folder.join("link_layer")).unwrap_or_default();
                let kind = if layer == "InfiniBand" {
                    LinkKind::Ib
                } else {
                    LinkKind::Roce
                };
                let label = if port == 1 {
                    name.clone()
                } else {
                    format!("{name}:{port}")
                };
                let node = self.graph.add_node(NodeKind::NicPort, &label, Some(nic), origin);
                for (key, path) in [
                    ("rate", folder.join("rate")),
                    ("state", folder.join("state")),
                    ("link_layer", folder.join("link_layer")),
                    ("lid", folder.join("lid")),
                    ("sm_lid", folder.join("sm_lid")),
                    ("gid", folder.join("gids/0")),
                    ("guid", verbs.join(&name).join("sys_image_guid")),
                ] {
                    if let Some(value) = word(&path) {
                        self.graph.set(node, key, &value);
                    }
                }
                self.graph.set(node, "port", &port.to_string());
                let rate = self
                    .graph
                    .get(node, "rate")
                    .and_then(|rate| rate.split(' ').next()?.parse::<f64>().ok());
                let mut link = Link::new(kind, origin);
                if let Some(gigabits) = rate {
                    link = link.speed((gigabits * 1e9 / 8.0) as u64, Confidence::Declared);
                }
                link.reachable = self
                    .graph
                    .get(node, "state")
                    .is_none_or(|state| state.contains("ACTIVE"));
                self.graph.join(nic, node, link);
            }
            with_verbs.insert(nic);
        }
        let mut names = entries(&nets);
        let device = |name: &String| nets.join(name).join("device");
        names.sort_by_cached_key(|name| (self.physical(&device(name)).is_some(), name.clone()));
        for name in names {
            let (folder, device) = (nets.join(&name), device(&name));
            if !has(&folder, "device") {
                continue;
            }
            let physical = self.physical(&device);
            let nic = self.adapter(physical.as_deref().unwrap_or(&device));
            // A virtual function goes by the physical one's port, and is that where a container has no other.
            let has_port = |nic| self.graph.children(nic).next().is_some();
            if physical.is_some() && nic.is_some_and(has_port) {
                continue;
            }
            if let Some(nic) = nic.filter(|nic| with_verbs.contains(nic)) {
                let port = number(&folder.join("dev_port")).unwrap_or(0) as usize;
                let ports: Vec<NodeId> = self.graph.children(nic).collect();
                if let Some(port) = ports.get(port).or(ports.first()) {
                    self.graph.set(*port, "netdev", &name);
                }
                continue;
            }
            let nic = nic.unwrap_or_else(|| self.other_adapter(&folder));
            self.net(&name, &folder, nic);
        }
    }

    fn net(&mut self, name: &str, folder: &Path, nic: NodeId) {
        let origin = self.origin(folder);
        let node = self.graph.add_node(NodeKind::NicPort, name, Some(nic), origin);
        for key in ["speed", "mtu", "operstate"] {
            if let Some(value) = word(&folder.join(key)) {
                self.graph.set(node, key, &value);
            }
        }
        let mut link = Link::new(LinkKind::Tcp, origin);
        let megabits = self
            .graph
            .get(node, "speed")
            .and_then(|speed| speed.parse::<u64>().ok());
        link = match megabits.filter(|megabits| *megabits > 0) {
            Some(megabits) => link.speed(speeds::network(megabits), Confidence::Declared),
            None => link.speed(speeds::network(speeds::NETWORK_MEGABITS), Confidence::Assumed),
        };
        link.reachable = self.graph.get(node, "operstate") != Some("down");
        self.graph.join(nic, node, link);
    }

    /// The adapter at the end of a link to a device: the last PCI function on the way, or the one of which it is a part.
    fn adapter(&self, link: &Path) -> Option<NodeId> {
        let node = *self.functions.get(&last_function(link)?)?;
        (self.graph.kind(node) == NodeKind::Nic).then_some(node)
    }

    /// The link to the physical function of the virtual one to which `link` leads, if it is one.
    fn physical(&self, link: &Path) -> Option<PathBuf> {
        let devices = self.root.join("sys/bus/pci/devices");
        let function = devices.join(last_function(link)?);
        has(&function, "physfn").then(|| function.join("physfn"))
    }

    /// An adapter that is no PCI function: on USB, or a hypervisor's.
    fn other_adapter(&mut self, folder: &Path) -> NodeId {
        let origin = self.origin(&folder.join("device"));
        let parent = self.numas.values().next().copied().unwrap_or(self.host);
        let nic = self.graph.add_node(NodeKind::Nic, "nic", Some(parent), origin);
        self.graph.join(parent, nic, Link::new(LinkKind::Local, origin));
        nic
    }

    /// xGMI links of AMD's GPUs. A GPU's location is its bus id in numbers.
    fn xgmi(&mut self) {
        let nodes = numbered(&self.root.join("sys/class/kfd/kfd/topology/nodes"), "");
        let mut gpus = HashMap::new();
        for (number, folder) in &nodes {
            let words = properties(&folder.join("properties"));
            let word = |name: &str| words.get(name).copied().unwrap_or(0);
            let location = word("location_id");
            let bus_id = format!(
                "{:04x}:{:02x}:{:02x}.{:x}",
                word("domain"),
                location >> 8 & 0xff,
                location >> 3 & 0x1f,
                location & 7
            );
            if let Some(gpu) = self.functions.get(&bus_id).filter(|_| location > 0) {
                gpus.insert(u64::from(*number), *gpu);
            }
        }
        for folder in nodes.values() {
            for link in numbered(&folder.join("io_links"), "").into_values() {
                let words = properties(&link.join("properties"));
                let word = |name: &str| words.get(name).copied().unwrap_or(0);
                let ends = [word("node_from"), word("node_to")].map(|end| gpus.get(&end).copied());
                let ([Some(from), Some(to)], XGMI) = (ends, word("type")) else {
                    continue;
                };
                let origin = self.origin(&link);
                let mut edge = Link::new(LinkKind::XGmi, origin);
                edge = match word("max_bandwidth") {
                    0 => edge.speed(speeds::xgmi(""), Confidence::Assumed),
                    megabytes => edge.speed(megabytes.saturating_mul(speeds::MB), Confidence::Declared),
                };
                self.graph.add_edge(from, to, edge);
            }
        }
    }

    /// A path below the root.
    fn origin(&mut self, path: &Path) -> Origin {
        let below = path.strip_prefix(self.root).unwrap_or(path);
        let source = self.graph.source(&format!("/{}", below.display()));
        Origin::whole(source)
    }

    fn tell(&mut self, what: String) {
        self.repairs.push(Repair {
            at: Position::NONE,
            what,
        });
    }
}

/// The kernel's number of the kind of link.
const XGMI: u64 = 11;

/// Names in a directory.
fn entries(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// What a directory holds of this name with a number.
fn numbered(folder: &Path, name: &str) -> BTreeMap<u32, PathBuf> {
    let names = entries(folder).into_iter();
    names
        .filter_map(|entry| Some((entry.strip_prefix(name)?.parse().ok()?, folder.join(&entry))))
        .collect()
}

/// A file of one line, if it says anything.
fn word(path: &Path) -> Option<String> {
    let text = text(path)?;
    // Copies of sysfs may end with a zero byte.
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    (!text.is_empty()).then(|| text.to_owned())
}

fn number(path: &Path) -> Option<u32> {
    word(path)?.parse().ok()
}

fn hex(folder: &Path, file: &str) -> Option<u32> {
    pci::number(&word(&folder.join(file))?)
}

/// Lines of a name and a number.
fn properties(path: &Path) -> HashMap<String, u64> {
    let text = text(path).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.trim().split_once(' '));
    lines
        .filter_map(|(name, value)| Some((name.to_owned(), value.trim().parse().ok()?)))
        .collect()
}

/// Processors in the kernel's words: "0-3,8".
fn cpu_set(list: &str) -> BTreeSet<u32> {
    let mut set = BTreeSet::new();
    for part in list.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
            set.extend(first..=last.min(first.saturating_add(MOST_CPUS)));
        }
    }
    set
}

/// The last PCI function on the way to which a link leads.
fn last_function(link: &Path) -> Option<String> {
    let target = fs::canonicalize(link).or_else(|_| fs::read_link(link)).ok()?;
    let mut parts = target
        .components()
        .rev()
        .filter_map(|part| part.as_os_str().to_str());
    parts.find(|part| is_bus_id(part)).map(str::to_owned)
}

/// More than any kernel is made for.
const MOST_CPUS: u32 = 1 << 16;

/// Whether a directory's name is that of a PCI function.
fn is_bus_id(name: &str) -> bool {
    let mut parts = name.rsplitn(3, ':');
    let device = parts.next().and_then(|device| device.split_once('.'));
    let hexadecimal = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_hexdigit());
    device.is_some_and(|(device, function)| hexadecimal(device) && hexadecimal(function))
        && parts.next().is_some_and(hexadecimal)
        && parts.next().is_some_and(hexadecimal)
}

#[cfg(test)]
mod tests;
