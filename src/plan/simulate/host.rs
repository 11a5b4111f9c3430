//! One host as messages see it: which edges lie between two of its ranks, and between a rank and the network.

use super::network::{Edges, MOST_LOOKS, Way, femtoseconds};
use crate::topo::graph::{Confidence, Graph, Link, LinkKind, NodeId, NodeKind, Origin};
use crate::topo::levels::{DEVICE_CLASSES, declared, device_class, devices};
use crate::topo::paths::Paths;
use crate::topo::search::Task;
use crate::types::Error;

/// Ways inside a host, worked out once for all hosts that are alike.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    graph: Graph,
    /// What the ranks run on, in order.
    devices: Vec<NodeId>,
    /// The device of each rank.
    seats: Vec<usize>,
    adapters: Vec<Adapter>,
    /// From each rank to each, row by row; none where there is no way.
    between: Vec<Option<Way>>,
    /// Each rank's adapter, the way to it and the way from it.
    exits: Vec<Option<(usize, Way, Way)>>,
    limits: Limits,
}

/// A network adapter with all its ports.
#[derive(Debug, Clone)]
struct Adapter {
    node: Option<NodeId>,
    name: Box<str>,
    bandwidth: f64,
    works: bool,
}

/// What is taken where a file does not say, and for ranks that share a device. Bytes a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limits {
    /// Of the link of an adapter, or of a host, to the network, if it should not be the file's.
    pub(crate) link: Option<f64>,
    /// Of an edge of unknown speed.
    pub(crate) unknown: f64,
    /// Of ranks on one device, together.
    pub(crate) memory: f64,
}

impl Limits {
    /// 50 GB/s networks, 100 GB/s memory.
    pub(crate) const USUAL: Limits = Limits {
        link: None,
        unknown: 50e9,
        memory: 100e9,
    };
}

/// Edges of all ways inside a host, at most: they take half a GB.
const MOST_KEPT: usize = 1 << 27;

impl Host {
    /// Ranks of a host at most. There is a way for each pair of them: these take seconds and half a GB.
    pub(crate) const MOST_RANKS: usize = 2048;

    /// The ways among `ranks` ranks of a machine. They run on what the file says if it declares so many, else on its GPUs or NPUs, on
    /// its NUMA nodes if it has none, and leave it by
    /// the nearest adapter that is up; among equals by the one that fewest use.
    ///
    /// # Errors
    /// [`Error::Usage`] if so many ranks' ways through such a graph take long to find, or much memory.
    pub(crate) fn new(mut graph: Graph, ranks: usize, limits: Limits) -> Result<Host, Error> {
        if graph.is_empty() {
            graph.add_node(NodeKind::Host, "host", None, Origin::ASSUMED);
        }
        let adapters = adapters(&graph, &limits);
        let mut devices = devices(&graph);
        if devices.is_empty() {
            devices.extend(graph.nodes().next()); // The whole of it.
        }
        let each = graph.len() + graph.edges().len();
        if each.saturating_mul(ranks.min(devices.len())) > MOST_LOOKS {
            return Err(Error::usage(format!(
                "the ways of {ranks} ranks through a file of {each} nodes and edges take too long to find: --ranks-per-host makes them fewer"
            )));
        }
        let declared = declared(&graph);
        let mut all = seats(ranks, devices.len());
        if declared.len() == ranks {
            devices = declared.clone();
            devices.sort_unstable();
            devices.dedup();
            let seat = |device: &NodeId| devices.binary_search(device).ok();
            all = declared.iter().filter_map(seat).collect();
        }
        let mut host = Host {
            seats: all,
            graph,
            devices,
            adapters,
            between: Vec::new(),
            exits: Vec::new(),
            limits,
        };
        host.find_ways()?;
        Ok(host)
    }

    /// `ranks` devices with an adapter each, joined by a switch.
    pub(crate) fn uniform(ranks: usize, local: f64, latency_ns: u32, limits: Limits) -> Host {
        let mut graph = Graph::new();
        let link = |kind, speed: f64, latency| Link {
            latency_ns: Some(latency),
            ..Link::new(kind, Origin::ASSUMED).speed(speed as u64, Confidence::Assumed)
        };
        let switch = graph.add_node(NodeKind::NvSwitch, "switch", None, Origin::ASSUMED);
        let bridge = graph.add_node(NodeKind::PciSwitch, "bridge", None, Origin::ASSUMED);
        for rank in 0..ranks {
            let device = graph.add_node(NodeKind::Gpu, &format!("device{rank}"), None, Origin::ASSUMED);
            let nic = graph.add_node(NodeKind::Nic, &format!("nic{rank}"), None, Origin::ASSUMED);
            graph.join(device, switch, link(LinkKind::NvLink, local, latency_ns));
            graph.join(device, nic, link(LinkKind::Pcie, 1e15, 0));
            // For the others, where theirs has failed.
            graph.join(device, bridge, link(LinkKind::Pcie, local, 0));
            graph.join(bridge, nic, link(LinkKind::Pcie, local, 0));
        }
        // Few edges lie between any two, so that even of the most ranks the ways are neither many nor long.
        Host::new(graph, ranks, limits).expect("short ways")
    }

    pub(crate) fn ranks(&self) -> usize {
        self.seats.len()
    }

    /// Whether something leads out of the host.
    pub(crate) fn has_exit(&self) -> bool {
        !self.adapters.is_empty()
    }

    /// Edges, shared capacities, devices' memory, and adapters' links out and in.
    pub(super) fn width(&self) -> usize {
        self.graph.edges().len() + self.graph.groups().len() + self.devices.len() + 2 * self.adapters.len()
    }

    fn first_link(&self) -> usize {
        self.width() - 2 * self.adapters.len()
    }

    /// The link of an adapter out of the host, or into it.
    pub(super) fn link(&self, adapter: usize, into: bool) -> usize {
        self.first_link() + 2 * adapter + usize::from(into)
    }

    pub(super) fn link_bandwidth(&self) -> f64 {
        self.adapters.iter().map(|adapter| adapter.bandwidth).sum()
    }

    pub(super) fn between(&self, from: usize, to: usize) -> Option<&Way> {
        self.between[from * self.ranks() + to].as_ref()
    }

    /// A rank's adapter, the way to it and the way from it.
    pub(super) fn exit(&self, rank: usize) -> Option<&(usize, Way, Way)> {
        self.exits[rank].as_ref()
    }

    pub(super) fn capacity(&self, at: usize) -> f64 {
        let (edges, groups) = (self.graph.edges().len(), self.graph.groups().len());
        match at {
            _ if at < edges + groups => Edges(&self.graph, &self.limits).capacity(at),
            _ if at < self.first_link() => self.limits.memory,
            _ => self.adapters[(at - self.first_link()) / 2].bandwidth,
        }
    }

    pub(super) fn name(&self, at: usize) -> String {
        let (edges, groups) = (self.graph.edges().len(), self.graph.groups().len());
        match at {
            _ if at < edges + groups => Edges(&self.graph, &self.limits).name(at),
            _ if at < self.first_link() => {
                let device = self.devices[at - edges - groups];
                format!("{} memory", self.graph.name(device))
            }
            _ => {
                let link = at - self.first_link();
                let way = if link.is_multiple_of(2) { "out" } else { "in" };
                format!("{} {way}", self.adapters[link / 2].name)
            }
        }
    }

    /// Where the bandwidth of an edge is written.
    pub(super) fn place(&self, at: usize) -> String {
        let (edges, groups) = (self.graph.edges().len(), self.graph.groups().len());
        match at {
            _ if at < edges + groups => Edges(&self.graph, &self.limits).place(at),
            _ if at < self.first_link() || self.limits.link.is_some() => "assumed".to_owned(),
            _ => {
                let nic = self.adapters[(at - self.first_link()) / 2].node;
                let is_port = |node: &NodeId| self.graph.kind(*node) == NodeKind::NicPort;
                let port = nic.and_then(|nic| self.graph.children(nic).find(is_port));
                let origin = port.or(nic).map(|node| self.graph.origin(node));
                self.graph.place(origin.unwrap_or(Origin::ASSUMED))
            }
        }
    }

    /// What each rank runs on.
    pub(super) fn devices(&self) -> Vec<NodeId> {
        self.seats.iter().map(|&seat| self.devices[seat]).collect()
    }

    /// The host without an adapter or an edge of this name; `None` if it has none.
    pub(super) fn without(&self, name: &str) -> Option<Result<Host, Error>> {
        let mut host = self.clone();
        let adapter = host.adapters.iter().position(|adapter| *adapter.name == *name);
        let edge = self.graph.edge_ids().find(|edge| self.name(edge.at()) == name);
        match (adapter, edge) {
            (Some(adapter), _) => host.adapters[adapter].works = false,
            (None, Some(edge)) => host.graph.link_mut(edge).reachable = false,
            (None, None) => return None,
        }
        Some(host.find_ways().map(|()| host))
    }

    /// From one device after another: the ways from each to all nodes are not kept.
    fn find_ways(&mut self) -> Result<(), Error> {
        let (graph, limits, ranks) = (&self.graph, &self.limits, self.ranks());
        let edges = Edges(graph, limits);
        let memory = |device: usize| Way {
            edges: vec![(graph.edges().len() + graph.groups().len() + device) as u32],
            latency: femtoseconds(100.0),
        };
        let mut between = Vec::with_capacity(ranks * ranks);
        let mut exits = Vec::with_capacity(ranks);
        let mut used = vec![0; self.adapters.len()];
        let mut kept = 0;
        // Ranks that share a device follow one another.
        for alike in self.seats.chunk_by(|one, other| one == other) {
            let seat = alike[0];
            let paths = Paths::from(graph, self.devices[seat]);
            let first = between.len();
            for &to in &self.seats {
                let way = match seat == to {
                    true => Some(memory(to)),
                    false => edges.way(&paths, self.devices[to]),
                };
                kept += alike.len() * way.as_ref().map_or(0, |way| way.edges.len());
                if kept > MOST_KEPT {
                    return Err(Error::usage(format!(
                        "the ways between {ranks} ranks have more than {MOST_KEPT} edges: --ranks-per-host makes them fewer"
                    )));
                }
                between.push(way);
            }
            for _ in 1..alike.len() {
                between.extend_from_within(first..first + ranks);
            }
            let exit = self.exit_of(seat, &paths, &mut used);
            exits.extend(alike.iter().map(|_| exit.clone()));
        }
        (self.between, self.exits) = (between, exits);
        Ok(())
    }

    /// The adapter of the ranks of a device, the way to it and the way from it; `used` counts the devices of each adapter.
    fn exit_of(&self, seat: usize, paths: &Paths, used: &mut [usize]) -> Option<(usize, Way, Way)> {
        let label = |at: &usize| {
            let adapter = &self.adapters[*at];
            let Some(node) = adapter.node else {
                return adapter.works.then_some(Default::default());
            };
            let label = paths.to(node).filter(|_| adapter.works)?;
            let key = (
                label.way as u8,
                std::cmp::Reverse(label.bytes_per_second),
                used[*at],
                label.edges,
            );
            Some((Some(key), *at))
        };
        let best = (0..self.adapters.len())
            .filter(|at| label(at).is_some())
            .min_by_key(label)?;
        used[best] += 1;
        let Some(node) = self.adapters[best].node else {
            return Some((best, Way::default(), Way::default()));
        };
        let edges = Edges(&self.graph, &self.limits);
        let back = edges.way(&Paths::from(&self.graph, node), self.devices[seat])?;
        Some((best, edges.way(paths, node)?, back))
    }
}

/// What the ranks of each of these hosts run on: its accelerators, its NUMA nodes, or itself. All in one pass over the graph.
pub(crate) fn devices_of(graph: &Graph, hosts: &[NodeId]) -> Vec<Vec<NodeId>> {
    let mut place = vec![None; graph.len()];
    for (at, host) in hosts.iter().enumerate() {
        place[host.at()] = Some(at);
    }
    let mut found: Vec<[Vec<NodeId>; DEVICE_CLASSES]> = vec![Default::default(); hosts.len()];
    for node in graph.nodes() {
        let Some(class) = device_class(graph, node) else {
            continue;
        };
        for host in graph.ancestors(node).filter_map(|above| place[above.at()]) {
            found[host][class].push(node);
        }
    }
    let of_host = |(host, found): (&NodeId, [Vec<NodeId>; DEVICE_CLASSES])| {
        let first = found.into_iter().find(|devices| !devices.is_empty());
        first.unwrap_or_else(|| vec![*host])
    };
    hosts.iter().zip(found).map(of_host).collect()
}

/// The hosts of a file; those for which it declares ranks come first, in the order of their lowest.
pub(crate) fn hosts_of(graph: &Graph) -> Vec<NodeId> {
    let mut hosts: Vec<NodeId> = graph.of_kind(NodeKind::Host).collect();
    let mut first = vec![usize::MAX; graph.len()];
    for (number, device) in declared(graph).into_iter().enumerate() {
        if let Some(host) = graph.within(device, NodeKind::Host) {
            first[host.at()] = first[host.at()].min(number);
        }
    }
    hosts.sort_by_key(|host| first[host.at()]);
    hosts
}

/// What the ranks of each of these hosts run on that the file declares there, in the order of their numbers.
pub(crate) fn declared_of(graph: &Graph, hosts: &[NodeId]) -> Vec<Vec<NodeId>> {
    let mut place = vec![None; graph.len()];
    for (at, host) in hosts.iter().enumerate() {
        place[host.at()] = Some(at);
    }
    let mut found = vec![Vec::new(); hosts.len()];
    for device in declared(graph) {
        let above = std::iter::once(device).chain(graph.ancestors(device));
        if let Some(host) = { above }.find_map(|above| place[above.at()]) {
            found[host].push(device);
        }
    }
    found
}

/// The device of each rank: the first ones if there are enough, else all with about as many each.
pub(super) fn seats(ranks: usize, devices: usize) -> Vec<usize> {
    let seat = |rank| match ranks <= devices {
        true => rank,
        false => rank * devices / ranks,
    };
    (0..ranks).map(seat).collect()
}

/// The adapters of which a port is up, or whose ports are not known; where there is no adapter at all, one that is assumed.
fn adapters(graph: &Graph, limits: &Limits) -> Vec<Adapter> {
    let adapter = |node: NodeId| {
        let ports = graph.edges_from(node).map(|edge| graph.edge(edge));
        let ports = ports.filter(|edge| graph.kind(edge.to) == NodeKind::NicPort && edge.link.reachable);
        let declared: f64 = ports.map(|edge| edge.link.bytes_per_second as f64).sum();
        let declared = Some(declared).filter(|&bandwidth| bandwidth > 0.0);
        Adapter {
            node: Some(node),
            name: graph.name(node).into(),
            bandwidth: limits.link.or(declared).unwrap_or(limits.unknown),
            works: true,
        }
    };
    let mut adapters: Vec<_> = Task::usable_nics(graph).map(adapter).collect();
    if graph.of_kind(NodeKind::Nic).next().is_none() {
        adapters.push(Adapter {
            node: None,
            name: "nic".into(),
            bandwidth: limits.link.unwrap_or(limits.unknown),
            works: true,
        });
    }
    adapters
}

/// There is no way between two ranks.
pub(super) fn no_way(from: usize, to: usize) -> Error {
    Error::usage(format!("no way leads from rank {from} to rank {to}"))
}
