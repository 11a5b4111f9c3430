//! What `ibnetdiscover` prints: switches, and adapters of hosts, with the links of their ports.

use super::{
    Flaw, Format, Reading,
    page::{self, Page},
};
use crate::topo::graph::{Confidence, EdgeId, Link, LinkKind, NodeId, NodeKind};
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
        wires: HashSet::new(),
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
    /// Ends of wires that are known: each is told at both ends as a rule.
    wires: HashSet<(String, u32)>,
    edges: HashMap<(NodeId, NodeId), [EdgeId; 2]>,
    /// Adapters without a host, and where the first is.
    nameless: Option<(usize, usize)>,
}

struct Device {
    id: String,
    node: NodeId,
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
        Ok(Device {
            id: id.to_owned(),
            node,
        })
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
        let fresh = self.wires.insert((device.id.clone(), own));
        let fresh = self.wires.insert((id.to_owned(), port)) && fresh;
        if !fresh {
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
