//! What `ibnetdiscover` prints: switches, and adapters of hosts, with the links of their ports.

use super::{
    Flaw, Format, Reading,
    page::{self, Page},
};
use crate::topo::{
    graph::{Confidence, EdgeId, Link, LinkKind, NodeId, NodeKind},
    words::short,
};
use std::collections::{HashMap, HashSet};

pub(super) const FORMAT: Format = Format {
    name: "ibnetdiscover",
    about: "what ibnetdiscover prints",
    sniff: |text| {
        text.lines().take(200).any(|line| {
            let mut words = line.split_whitespace();
            ["Switch", "Ca", "Rt"].contains(&words.next().unwrap_or(""))
                && words.next().is_some_and(|ports| ports.parse::<u32>().is_ok())
                && words.next().is_some_and(|id| id.starts_with('"'))
        })
    },
    read,
};

const LINE: &str = "Switch, Ca or Rt with its ports and \"id\", or [port] \"id\"[port]";

fn read(text: &str, source: &str) -> Result<Reading, Flaw> {
    let mut reader = Reader {
        page: Page::new(text, source),
        nodes: HashMap::new(),
        hosts: HashMap::new(),
        ends: HashMap::new(),
        wires: Vec::new(),
        described: HashSet::new(),
        edges: HashMap::new(),
        nameless: None,
    };
    let mut device: Option<Device> = None;
    for (start, line) in page::lines(text) {
        let body = line.split('#').next().unwrap_or("").trim_end();
        let remark = line.split_once('#').map_or("", |(_, remark)| remark.trim());
        let first = body.split_whitespace().next().unwrap_or("");
        match first {
            "" => {}
            "Switch" | "Ca" | "Rt" => device = Some(reader.device(start, body, remark)?),
            _ if first.starts_with('[') => {
                let Some(device) = &device else {
                    return Err(reader.page.flaw(start, "a port of no device", LINE));
                };
                reader.port(device, start, body, remark)?;
            }
            // A chassis, or what is in none.
            "Chassis" | "Hostname:" | "Non-Chassis" => device = None,
            // vendid, devid, sysimgguid, switchguid, caguid of the next device.
            _ if first.contains('=') => device = None,
            _ => return Err(reader.page.flaw(start, format!("\"{first}\""), LINE)),
        }
    }
    if reader.nodes.is_empty() {
        return Err(reader.page.flaw(0, "no device", LINE));
    }
    reader.levels();
    reader.tell_one_sided();
    if let Some((at, count)) = reader.nameless {
        let what = format!("{count} adapters have no host in their description: kept without one");
        reader.page.tell(at, what);
    }
    Ok(reader.page.done())
}

struct Reader<'t> {
    page: Page<'t>,
    /// By id.
    nodes: HashMap<String, NodeId>,
    hosts: HashMap<String, NodeId>,
    /// The wire at each port of a device, and the port at its other end.
    ends: HashMap<(NodeId, u32), (usize, (NodeId, u32))>,
    wires: Vec<Wire>,
    /// Devices that have a part of their own, and so tell of their wires.
    described: HashSet<NodeId>,
    edges: HashMap<(NodeId, NodeId), [EdgeId; 2]>,
    /// Adapters without a host, and where the first is.
    nameless: Option<(usize, usize)>,
}

struct Device {
    node: NodeId,
}

/// A wire, which each of its ends tells as a rule.
struct Wire {
    at: usize,
    /// The end that told it first, the device at the other, and whether that told it, too.
    from: (NodeId, u32),
    to: NodeId,
    by_both: bool,
}

impl Reader<'_> {
    fn device(&mut self, start: usize, body: &str, remark: &str) -> Result<Device, Flaw> {
        let Some((id, _)) = quoted(body) else {
            return Err(self.page.flaw(start, "a device without \"id\"", LINE));
        };
        let name = quoted(remark).map_or("", |(name, _)| name);
        let node = self.node(start, id, name);
        let ports = body.split_whitespace().nth(1).unwrap_or("");
        self.page.graph.set(node, "ports", ports);
        self.described.insert(node);
        Ok(Device { node })
    }

    /// A device of an id; `H-` is an adapter's, `S-` a switch's.
    fn node(&mut self, at: usize, id: &str, name: &str) -> NodeId {
        if let Some(node) = self.nodes.get(id) {
            return *node;
        }
        let origin = self.page.origin(at);
        let aggregation = name.contains("Aggregation Node");
        let (host, label) = name.split_once(' ').unwrap_or((name, ""));
        let node = match id.as_bytes().first() {
            Some(b'H') if aggregation => self.page.graph.add_node(NodeKind::Opaque, name, None, origin),
            Some(b'H') => {
                // A host's name with an adapter's behind it, unless it is what the vendor calls the adapter.
                let vendor =
                    name.contains("Technologies") || name.contains("Mellanox") || name.contains("NVIDIA");
                let host = (!vendor && !host.is_empty()).then(|| match self.hosts.get(host) {
                    Some(host) => *host,
                    None => {
                        let node = self.page.graph.add_node(NodeKind::Host, host, None, origin);
                        self.hosts.insert(host.to_owned(), node);
                        node
                    }
                });
                if host.is_none() {
                    self.nameless.get_or_insert((at, 0)).1 += 1;
                }
                let label = if host.is_none() || label.is_empty() {
                    id
                } else {
                    label
                };
                let nic = self.page.graph.add_node(NodeKind::Nic, label, host, origin);
                if let Some(host) = host {
                    self.page.graph.join(host, nic, Link::new(LinkKind::Pcie, origin));
                }
                nic
            }
            _ => {
                let label = if name.is_empty() { id } else { name };
                self.page
                    .graph
                    .add_node(NodeKind::CoreSwitch, label, None, origin)
            }
        };
        self.page.graph.set(node, "id", id);
        if !name.is_empty() {
            self.page.graph.set(node, "description", name);
        }
        self.nodes.insert(id.to_owned(), node);
        node
    }

    fn port(&mut self, device: &Device, start: usize, body: &str, remark: &str) -> Result<(), Flaw> {
        let number = |text: &str| text.strip_prefix('[')?.split(']').next()?.parse::<u32>().ok();
        let own = number(body.trim_start());
        let far = quoted(body).and_then(|(id, behind)| Some((id, number(behind)?)));
        let (Some(own), Some((id, port))) = (own, far) else {
            return Err(self
                .page
                .flaw(start, "a port without its number, or without the other end", LINE));
        };
        let (name, behind) = quoted(remark).unwrap_or(("", remark));
        let far = self.node(start, id, name);
        if !self.is_new(start, (device.node, own), (far, port)) {
            return Ok(());
        }
        // Numbers may be behind the rate.
        let mut words = behind.split_whitespace().rev();
        let last = words.clone().next().unwrap_or("");
        let bytes = words.find_map(speed);
        if bytes.is_none() {
            self.page
                .tell(start, format!("\"{last}\" is no speed of InfiniBand: not known"));
        }
        let ends = (device.node, far);
        let known = self
            .edges
            .get(&ends)
            .or_else(|| self.edges.get(&(far, device.node)));
        if let Some(known) = known {
            for edge in known {
                let link = self.page.graph.link_mut(*edge);
                link.wires = link.wires.saturating_add(1);
                link.bytes_per_second = link.bytes_per_second.saturating_add(bytes.unwrap_or(0));
            }
            return Ok(());
        }
        let mut link = Link::new(LinkKind::Ib, self.page.origin(start));
        if let Some(bytes) = bytes {
            link = link.speed(bytes, Confidence::Declared);
        }
        let edges = self.page.graph.join(device.node, far, link);
        self.edges.insert(ends, edges);
        Ok(())
    }

    /// Whether a wire is told for the first time, and no other has its ports; a port has one.
    fn is_new(&mut self, at: usize, own: (NodeId, u32), far: (NodeId, u32)) -> bool {
        let ends = [self.ends.get(&own).copied(), self.ends.get(&far).copied()];
        let graph = &self.page.graph;
        let name = |(node, port)| format!("{}[{port}]", short(graph.name(node)));
        let what = match ends {
            _ if own == far => format!("a wire from {} to itself: left out", name(own)),
            [None, None] => {
                self.ends.insert(own, (self.wires.len(), far));
                self.ends.insert(far, (self.wires.len(), own));
                self.wires.push(Wire {
                    at,
                    from: own,
                    to: far.0,
                    by_both: false,
                });
                return true;
            }
            [Some((wire, other)), _] if other == far => {
                let wire = &mut self.wires[wire];
                wire.by_both |= wire.from != own;
                return false;
            }
            [Some((_, other)), _] => format!(
                "a wire from {} to {}, but it has one to {}: left out",
                name(own),
                name(far),
                name(other)
            ),
            [_, Some((_, other))] => format!(
                "a wire from {} to {}, which has one to {}: left out",
                name(own),
                name(far),
                name(other)
            ),
        };
        self.page.tell(at, what);
        false
    }

    /// A device that is in the file tells of its wires, unless something is missing.
    fn tell_one_sided(&mut self) {
        let is_missed = |wire: &&Wire| !wire.by_both && self.described.contains(&wire.to);
        let mut missed = self.wires.iter().filter(is_missed);
        let Some(first) = missed.next().map(|wire| wire.at) else {
            return;
        };
        let count = match missed.count() {
            0 => "a wire of which".to_owned(),
            more => format!("this and {more} more wires of which"),
        };
        let what = format!("{count} the other end, which has a part of its own, tells nothing: taken");
        self.page.tell(first, what);
    }

    /// A switch with adapters is a leaf, one beside a leaf a spine, others are cores.
    fn levels(&mut self) {
        let graph = &self.page.graph;
        let switches: Vec<NodeId> = graph.of_kind(NodeKind::CoreSwitch).collect();
        let beside = |of: &dyn Fn(NodeId) -> bool, node: NodeId| {
            (graph.edges_from(node)).any(|edge| of(graph.edge(edge).to))
        };
        let leaves: HashSet<NodeId> = (switches.iter().copied())
            .filter(|&node| beside(&|other| graph.kind(other) == NodeKind::Nic, node))
            .collect();
        let spines: Vec<NodeId> = (switches.iter().copied())
            .filter(|&node| !leaves.contains(&node) && beside(&|other| leaves.contains(&other), node))
            .collect();
        for node in leaves {
            self.page.graph.set_kind(node, NodeKind::Leaf);
        }
        for node in spines {
            self.page.graph.set_kind(node, NodeKind::Spine);
        }
    }
}

/// The first part in quotation marks, and what is behind it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    text.split_once('"')?.1.split_once('"')
}

/// Bytes a second of "4xNDR".
fn speed(rate: &str) -> Option<u64> {
    let (lanes, name) = rate.split_once('x')?;
    let lanes: u64 = lanes
        .parse()
        .ok()
        .filter(|lanes| [1, 2, 4, 8, 12].contains(lanes))?;
    // Megabits a second of a lane's data.
    let megabits = match name {
        "SDR" => 2000,
        "DDR" => 4000,
        "QDR" => 8000,
        "FDR10" => 10_000,
        "FDR" => 13_640,
        "EDR" => 25_000,
        "HDR" => 50_000,
        "NDR" => 100_000,
        "XDR" => 200_000,
        _ => return None,
    };
    Some(lanes * megabits * 125_000)
}
