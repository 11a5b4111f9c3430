//! The network between ranks: which edges a message goes over, what each carries, and its name.
//!
//! Hosts that are alike under a fabric of switches are never written out: an edge's number and a message's way follow from the
//! numbers of the ranks, so that 100,000 ranks take no memory.

use super::host::{Host, Limits, declared_of, devices_of, hosts_of, no_way, seats};
use crate::plan::groups::Groups;
use crate::topo::graph::{Edge, Graph, GroupId, LinkKind, NodeId, NodeKind, Origin};
use crate::topo::paths::Paths;
use crate::types::Error;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Edges from one rank to another, and how long they take: in femtoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Way {
    pub(crate) edges: Vec<u32>,
    pub(crate) latency: u64,
}

/// Switches above hosts. Links of hosts are as fast as their adapters; what several links join is taken as one edge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fabric {
    /// Hosts of a leaf switch, and leaf switches of a pod; 0: all there are.
    pub(crate) hosts: usize,
    pub(crate) leaves: usize,
    /// How many times as much can come from below a switch as goes up from it.
    pub(crate) oversubscription: f64,
    /// Of each link, in nanoseconds.
    pub(crate) latency_ns: f64,
}

impl Fabric {
    /// All hosts on one switch.
    pub(crate) fn switch(latency_ns: f64) -> Fabric {
        Fabric {
            hosts: 0,
            leaves: 0,
            oversubscription: 1.0,
            latency_ns,
        }
    }
}

/// A network of ranks.
#[derive(Debug)]
pub(crate) struct Network {
    kind: Kind,
    /// Edges that carry so many times what they should.
    changed: BTreeMap<u32, f64>,
}

#[derive(Debug)]
enum Kind {
    Cluster(Box<Cluster>),
    Whole(Box<Whole>),
}

/// Hosts that are alike below a fabric.
#[derive(Debug)]
struct Cluster {
    /// How many there are, with those that failed.
    all: usize,
    failed: Vec<usize>,
    host: Host,
    /// Hosts of which a part failed.
    hurt: BTreeMap<usize, Host>,
    fabric: Fabric,
}

/// A graph of hosts and what joins them.
#[derive(Debug)]
struct Whole {
    graph: Graph,
    limits: Limits,
    ranks: Vec<NodeId>,
    per_host: usize,
    /// The ways from the rank that was asked for last: ranks are gone through in order.
    last: RefCell<Option<(NodeId, Paths)>>,
}

/// Ranks of a network at most.
pub(crate) const MOST_RANKS: usize = 1 << 24;

/// Edges at most: their numbers are to fit 32 bits, and there is a table of them.
const MOST_EDGES: usize = 1 << 30;

/// Nodes and edges of a file that the ways from all ranks are looked for among, at most: some seconds for an algorithm, and about a
/// minute for all.
pub(super) const MOST_LOOKS: usize = 1 << 29;

impl Network {
    /// `hosts` hosts like `host`.
    pub(crate) fn cluster(host: Host, hosts: usize, fabric: Fabric) -> Network {
        Network::of(Kind::Cluster(Box::new(Cluster {
            all: hosts,
            failed: Vec::new(),
            host,
            hurt: BTreeMap::new(),
            fabric,
        })))
    }

    /// The first `hosts` hosts of a file that says how they are joined, with so many ranks each.
    ///
    /// # Errors
    /// [`Error::Usage`] if it has no two hosts, or not so many; or so many ranks that to find their ways would take long.
    pub(crate) fn whole(
        graph: Graph,
        hosts: Option<usize>,
        per_host: usize,
        limits: Limits,
    ) -> Result<Network, Error> {
        let there = hosts_of(&graph);
        let wanted = hosts.unwrap_or(there.len());
        if there.len() < 2 || wanted > there.len() {
            let there = there.len();
            return Err(Error::usage(format!(
                "{wanted} hosts of a file that joins {there}"
            )));
        }
        let all = wanted.saturating_mul(per_host);
        if all > MOST_RANKS {
            return Err(Error::usage(format!(
                "{wanted} hosts of {per_host} ranks are more than {MOST_RANKS} ranks: --hosts or --ranks-per-host makes them fewer"
            )));
        }
        let each = graph.len() + graph.edges().len();
        let (mut ranks, mut looks) = (Vec::with_capacity(all), 0_usize);
        let there = &there[..wanted];
        let declared = declared_of(&graph, there);
        for (before, devices) in devices_of(&graph, there).into_iter().enumerate() {
            // Where so many ranks are declared they are where the file says.
            match declared[before].len() == per_host {
                true => ranks.extend(&declared[before]),
                false => ranks.extend(
                    seats(per_host, devices.len())
                        .into_iter()
                        .map(|seat| devices[seat]),
                ),
            }
            looks = looks.saturating_add(each.saturating_mul(per_host.min(devices.len())));
            if looks > MOST_LOOKS {
                let fewer = match before {
                    0 | 1 => String::new(),
                    most => format!(": simulate fewer, --hosts {most} at most"),
                };
                return Err(Error::usage(format!(
                    "the ways of {wanted} hosts through a file of {each} nodes and edges take too long to find{fewer}"
                )));
            }
        }
        Ok(Network::of(Kind::Whole(Box::new(Whole {
            graph,
            limits,
            ranks,
            per_host,
            last: RefCell::new(None),
        }))))
    }

    /// The same network, if it is not too large.
    ///
    /// # Errors
    /// [`Error::Usage`] if its edges are more than can be numbered.
    pub(crate) fn numbered(self) -> Result<Network, Error> {
        let edges = self.edges();
        match edges > MOST_EDGES {
            true => Err(Error::usage(format!(
                "the hosts have {edges} edges and {MOST_EDGES} are the most: simulate fewer hosts (--hosts)"
            ))),
            false => Ok(self),
        }
    }

    fn of(kind: Kind) -> Network {
        Network {
            kind,
            changed: BTreeMap::new(),
        }
    }

    pub(crate) fn ranks(&self) -> usize {
        match &self.kind {
            Kind::Cluster(cluster) => (cluster.all - cluster.failed.len()) * cluster.host.ranks(),
            Kind::Whole(whole) => whole.ranks.len(),
        }
    }

    pub(crate) fn ranks_per_host(&self) -> usize {
        match &self.kind {
            Kind::Cluster(cluster) => cluster.host.ranks(),
            Kind::Whole(whole) => whole.per_host,
        }
    }

    /// So many of the first ranks are enough to see by which edges one of the first host sends to others, and how near the nearest is: where
    /// all hosts are alike, those of two.
    pub(super) fn telling_ranks(&self) -> usize {
        match &self.kind {
            Kind::Cluster(_) => self.ranks().min(2 * self.ranks_per_host()),
            Kind::Whole(_) => self.ranks(),
        }
    }

    /// The ranks of each host.
    pub(crate) fn groups(&self) -> Groups {
        Groups::Rows {
            ranks: self.ranks(),
            size: self.ranks_per_host(),
        }
    }

    /// After how many ranks the network may look the same again, the fewest first.
    pub(crate) fn periods(&self) -> Vec<usize> {
        let Kind::Cluster(cluster) = &self.kind else {
            return Vec::new();
        };
        let Fabric { hosts, leaves, .. } = cluster.fabric;
        let host = cluster.host.ranks();
        let mut periods = vec![1, host, host * hosts, host * hosts * leaves];
        periods.retain(|&period| period > 0);
        periods.dedup();
        periods
    }

    /// How many edges there are, used or not.
    pub(crate) fn edges(&self) -> usize {
        match &self.kind {
            Kind::Cluster(cluster) => cluster.first_pod() + 2 * cluster.pods(),
            Kind::Whole(whole) => whole.graph.edges().len() + whole.graph.groups().len() + whole.ranks.len(),
        }
    }

    /// Bytes a second.
    pub(crate) fn capacity(&self, edge: u32) -> f64 {
        let at = edge as usize;
        let own = match &self.kind {
            Kind::Cluster(cluster) => cluster.capacity(at),
            Kind::Whole(whole) if at < whole.first_memory() => {
                let asked = whole.asked(at);
                asked.unwrap_or_else(|| whole.edges().capacity(at))
            }
            Kind::Whole(whole) => whole.limits.memory,
        };
        own * self.changed.get(&edge).copied().unwrap_or(1.0)
    }

    pub(crate) fn name(&self, edge: u32) -> String {
        let at = edge as usize;
        match &self.kind {
            Kind::Cluster(cluster) => cluster.name(at),
            Kind::Whole(whole) if at < whole.first_memory() => whole.name(at),
            Kind::Whole(whole) => format!("rank {} memory", at - whole.first_memory()),
        }
    }

    /// Where an edge's bandwidth is written: `file:line`, or what takes its place.
    pub(crate) fn place(&self, edge: u32) -> String {
        let at = edge as usize;
        match &self.kind {
            Kind::Cluster(cluster) if at < cluster.first_leaf() => {
                let width = cluster.host.width();
                cluster.host(at / width).place(at % width)
            }
            Kind::Cluster(_) => "the fabric".to_owned(),
            Kind::Whole(whole) if at < whole.first_memory() && whole.asked(at).is_none() => {
                whole.edges().place(at)
            }
            Kind::Whole(_) => "assumed".to_owned(),
        }
    }

    /// What each rank of a host runs on; of a file that joins hosts, what each rank does.
    pub(crate) fn devices(&self) -> Vec<NodeId> {
        match &self.kind {
            Kind::Cluster(cluster) => cluster.host.devices(),
            Kind::Whole(whole) => whole.ranks.clone(),
        }
    }

    /// The way between two ranks that are not the same.
    ///
    /// # Errors
    /// [`Error::Usage`] if there is none.
    pub(crate) fn way(&self, from: usize, to: usize) -> Result<Way, Error> {
        let way = match &self.kind {
            Kind::Cluster(cluster) => cluster.way(from, to),
            Kind::Whole(whole) => whole.way(from, to),
        };
        way.ok_or_else(|| no_way(from, to))
    }

    /// Makes an edge carry `factor` times as much.
    ///
    /// # Errors
    /// [`Error::Usage`] if no edge has this name, or edges of several hosts have it, or the factor is no share.
    pub(crate) fn degrade(&mut self, name: &str, factor: f64) -> Result<(), Error> {
        if !(factor > 0.0 && factor.is_finite()) {
            return Err(Error::usage(format!(
                "{name}: {factor} is no share of a bandwidth: fail it instead"
            )));
        }
        let (found, others) = match &self.kind {
            Kind::Whole(whole) => (whole.find(name)?, whole.first_memory()),
            Kind::Cluster(_) => (None, 0),
        };
        let mut others = others as u32..self.edges() as u32;
        let found = found.map(|at| at as u32);
        let found = found.or_else(|| others.find(|&edge| self.name(edge) == name));
        let edge = found.ok_or_else(|| Error::usage(format!("no edge is called {name:?}")))?;
        self.changed.insert(edge, factor);
        Ok(())
    }

    /// Takes a host (`host3`), an adapter (`host3/NAME`) or an edge out; of a file that joins hosts only edges. A failed host's ranks
    /// are gone.
    ///
    /// # Errors
    /// [`Error::Usage`] if there is no such thing, or edges of several hosts are called so, or no host would be left.
    pub(crate) fn fail(&mut self, name: &str) -> Result<(), Error> {
        let can = match &self.kind {
            Kind::Whole(whole) => format!(
                ": of a file that joins hosts edges can, such as {}",
                whole.name(0)
            ),
            Kind::Cluster(_) => String::new(),
        };
        let unknown = || Error::usage(format!("nothing that can fail is called {name:?}{can}"));
        match &mut self.kind {
            Kind::Whole(whole) => {
                let at = whole.find(name)?.ok_or_else(unknown)?;
                let edge = whole.graph.edge_ids().nth(at); // None of a shared capacity.
                whole.graph.link_mut(edge.ok_or_else(unknown)?).reachable = false;
                *whole.last.borrow_mut() = None;
                Ok(())
            }
            Kind::Cluster(cluster) => {
                let (host, part) = match name.split_once('/') {
                    Some((host, part)) => (host, Some(part)),
                    None => (name, None),
                };
                let host = host.strip_prefix("host").and_then(|number| number.parse().ok());
                let host: usize = host.filter(|&host| host < cluster.all).ok_or_else(unknown)?;
                match part {
                    None => {
                        let fails = cluster.failed.len() + usize::from(!cluster.failed.contains(&host));
                        if fails == cluster.all {
                            return Err(Error::usage(format!("without {name} no host is left")));
                        }
                        cluster.failed.push(host);
                        cluster.failed.sort_unstable();
                        cluster.failed.dedup();
                    }
                    Some(part) => {
                        let hurt = cluster.host(host).without(part).ok_or_else(unknown)??;
                        cluster.hurt.insert(host, hurt);
                    }
                }
                Ok(())
            }
        }
    }
}

impl Cluster {
    fn host(&self, host: usize) -> &Host {
        self.hurt.get(&host).unwrap_or(&self.host)
    }

    /// The host of a rank, and its place there. Ranks of failed hosts are not counted.
    fn seat(&self, rank: usize) -> (usize, usize) {
        let (mut host, place) = (rank / self.host.ranks(), rank % self.host.ranks());
        for &failed in &self.failed {
            host += usize::from(failed <= host);
        }
        (host, place)
    }

    fn leaf(&self, host: usize) -> usize {
        host.checked_div(self.fabric.hosts).unwrap_or(0)
    }

    fn pod(&self, leaf: usize) -> usize {
        leaf.checked_div(self.fabric.leaves).unwrap_or(0)
    }

    fn leaves(&self) -> usize {
        self.leaf(self.all - 1) + 1
    }

    fn pods(&self) -> usize {
        self.pod(self.leaves() - 1) + 1
    }

    fn first_leaf(&self) -> usize {
        self.all * self.host.width()
    }

    fn first_pod(&self) -> usize {
        self.first_leaf() + 2 * self.leaves()
    }

    fn capacity(&self, at: usize) -> f64 {
        let Fabric {
            hosts,
            leaves,
            oversubscription,
            ..
        } = self.fabric;
        let leaf = self.host.link_bandwidth() * hosts as f64 / oversubscription;
        match at {
            _ if at < self.first_leaf() => {
                let width = self.host.width();
                self.host(at / width).capacity(at % width)
            }
            _ if at < self.first_pod() => leaf,
            _ => leaf * leaves as f64 / oversubscription,
        }
    }

    fn name(&self, at: usize) -> String {
        let trunk = |kind, at: usize| {
            let way = if at.is_multiple_of(2) { "up" } else { "down" };
            format!("{kind}{} {way}", at / 2)
        };
        match at {
            _ if at < self.first_leaf() => {
                let width = self.host.width();
                format!("host{}/{}", at / width, self.host(at / width).name(at % width))
            }
            _ if at < self.first_pod() => trunk("leaf", at - self.first_leaf()),
            _ => trunk("pod", at - self.first_pod()),
        }
    }

    fn way(&self, from: usize, to: usize) -> Option<Way> {
        let ((host, place), (far, target)) = (self.seat(from), self.seat(to));
        let first = host * self.host.width();
        if host == far {
            let way = self.host(host).between(place, target)?;
            return Some(Way {
                edges: way.edges.iter().map(|edge| edge + first as u32).collect(),
                latency: way.latency,
            });
        }
        let (adapter, out, _) = self.host(host).exit(place)?;
        let (far_adapter, _, into) = self.host(far).exit(target)?;
        let far_first = far * self.host.width();
        let mut edges: Vec<u32> = out.edges.iter().map(|edge| edge + first as u32).collect();
        edges.push((first + self.host.link(*adapter, false)) as u32);
        let mut links = 2;
        let (leaf, far_leaf) = (self.leaf(host), self.leaf(far));
        if leaf != far_leaf {
            links += 2;
            edges.push((self.first_leaf() + 2 * leaf) as u32);
            let (pod, far_pod) = (self.pod(leaf), self.pod(far_leaf));
            if pod != far_pod {
                links += 2;
                edges.push((self.first_pod() + 2 * pod) as u32);
                edges.push((self.first_pod() + 2 * far_pod + 1) as u32);
            }
            edges.push((self.first_leaf() + 2 * far_leaf + 1) as u32);
        }
        edges.push((far_first + self.host.link(*far_adapter, true)) as u32);
        edges.extend(into.edges.iter().map(|edge| edge + far_first as u32));
        Some(Way {
            edges,
            latency: out
                .latency
                .saturating_add(into.latency)
                .saturating_add(femtoseconds(self.fabric.latency_ns * f64::from(links))),
        })
    }
}

impl Whole {
    fn edges(&self) -> Edges<'_> {
        Edges(&self.graph, &self.limits)
    }

    fn first_memory(&self) -> usize {
        self.graph.edges().len() + self.graph.groups().len()
    }

    /// What a link of an adapter or a host to the network is asked to carry: one to a port, or out of a host.
    fn asked(&self, at: usize) -> Option<f64> {
        let link = self.limits.link?;
        let edge = self.graph.edges().nth(at)?;
        let ends = [edge.from, edge.to];
        let kinds = [
            LinkKind::Ib,
            LinkKind::Roce,
            LinkKind::Tcp,
            LinkKind::Wan,
            LinkKind::Opaque,
        ];
        let host = |end: NodeId| match self.graph.kind(end) {
            NodeKind::Host => Some(end),
            _ => self.graph.within(end, NodeKind::Host),
        };
        let [from, to] = ends.map(host);
        let has_port = ends.iter().any(|&end| self.graph.kind(end) == NodeKind::NicPort);
        let is_link = kinds.contains(&edge.link.kind) && (from != to || has_port);
        is_link.then_some(link)
    }

    /// The name of an edge or a shared capacity; behind that of its host, if it has one.
    fn name(&self, at: usize) -> String {
        let name = self.edges().name(at);
        match self.host_of(at) {
            Some(host) => format!("{}/{name}", self.graph.name(host)),
            None => name,
        }
    }

    /// The host in which an edge lies, or one of its ends; of a shared capacity that of its first edge.
    fn host_of(&self, at: usize) -> Option<NodeId> {
        let graph = &self.graph;
        let group = at.checked_sub(graph.edges().len());
        let has = |edge: &&Edge| edge.link.group.map(GroupId::at) == group;
        let edge = match group {
            None => graph.edges().nth(at),
            Some(_) => graph.edges().find(has),
        }?;
        let [from, to] = [edge.from, edge.to].map(|end| graph.within(end, NodeKind::Host));
        match (from, to) {
            (Some(one), Some(other)) if one != other => None,
            _ => from.or(to),
        }
    }

    /// The edge or shared capacity of a name, with or without that of its host before it.
    ///
    /// # Errors
    /// [`Error::Usage`] if without it several hosts have one.
    fn find(&self, name: &str) -> Result<Option<usize>, Error> {
        let mut found = None;
        for at in 0..self.first_memory() {
            let own = self.edges().name(at);
            let Some(front) = name.strip_suffix(&*own) else {
                continue;
            };
            let host = self.host_of(at);
            match (front, found) {
                ("", None) => found = Some((at, host)),
                ("", Some((_, first))) if first != host => {
                    let hosts = [first, host].into_iter().flatten();
                    let hosts: Vec<_> = hosts
                        .map(|host| format!("{}/{name}", self.graph.name(host)))
                        .collect();
                    return Err(Error::usage(format!(
                        "several edges are called {name:?}: the host's name belongs before it, {}",
                        hosts.join(" say, or ")
                    )));
                }
                ("", _) => {}
                _ => {
                    if host.is_some_and(|host| front.strip_suffix('/') == Some(self.graph.name(host))) {
                        return Ok(Some(at));
                    }
                }
            }
        }
        Ok(found.map(|(at, _)| at))
    }

    fn way(&self, from: usize, to: usize) -> Option<Way> {
        let (node, far) = (self.ranks[from], self.ranks[to]);
        if node == far {
            // That of the host's first rank on the device.
            let begin = from - from % self.per_host;
            let before = self.ranks[begin..from].iter().position(|&other| other == node);
            let first = before.map_or(from, |before| begin + before);
            return Some(Way {
                edges: vec![(self.first_memory() + first) as u32],
                latency: femtoseconds(100.0),
            });
        }
        let mut last = self.last.borrow_mut();
        if last.as_ref().is_none_or(|(known, _)| *known != node) {
            *last = Some((node, Paths::from(&self.graph, node)));
        }
        let (_, paths) = last.as_ref()?;
        self.edges().way(paths, far)
    }
}

/// The edges of a graph, and behind them its shared capacities.
pub(super) struct Edges<'g>(pub(super) &'g Graph, pub(super) &'g Limits);

impl Edges<'_> {
    pub(super) fn capacity(&self, at: usize) -> f64 {
        let Edges(graph, limits) = self;
        let known = match graph.edges().nth(at) {
            Some(edge) if edge.link.kind == LinkKind::Local => return f64::INFINITY,
            Some(edge) => edge.link.bytes_per_second,
            None => graph
                .groups()
                .nth(at - graph.edges().len())
                .map_or(0, |(_, group)| group.bytes_per_second),
        };
        if known == 0 { limits.unknown } else { known as f64 }
    }

    pub(super) fn name(&self, at: usize) -> String {
        let Edges(graph, _) = self;
        match graph.edges().nth(at) {
            Some(edge) => format!("{}->{}", graph.name(edge.from), graph.name(edge.to)),
            None => {
                let group = graph.groups().nth(at - graph.edges().len());
                group.map_or_else(String::new, |(_, group)| group.name.to_string())
            }
        }
    }

    pub(super) fn place(&self, at: usize) -> String {
        let Edges(graph, _) = self;
        let origin = match graph.edges().nth(at) {
            Some(edge) => Some(edge.link.origin),
            None => {
                let group = graph.groups().nth(at - graph.edges().len());
                group.map(|(_, group)| group.origin)
            }
        };
        graph.place(origin.unwrap_or(Origin::ASSUMED))
    }

    pub(super) fn way(&self, paths: &Paths, to: NodeId) -> Option<Way> {
        let Edges(graph, _) = self;
        paths.to(to)?;
        let mut way = Way::default();
        for id in paths.edges(to) {
            let link = &graph.edge(id).link;
            let latency = link
                .latency_ns
                .map_or_else(|| usual_latency(link.kind), f64::from);
            way.latency = way.latency.saturating_add(femtoseconds(latency));
            if link.kind != LinkKind::Local {
                way.edges.push(id.at() as u32);
            }
            let group = link.group.map(|group| (graph.edges().len() + group.at()) as u32);
            way.edges.extend(group.filter(|group| !way.edges.contains(group)));
        }
        Some(way)
    }
}

/// Nanoseconds of a link whose source does not say: what such links take, roughly.
fn usual_latency(kind: LinkKind) -> f64 {
    match kind {
        LinkKind::Local => 0.0,
        LinkKind::NvLink | LinkKind::XGmi | LinkKind::Hccs | LinkKind::C2c => 400.0,
        LinkKind::Pcie => 150.0,
        LinkKind::Socket | LinkKind::Memory | LinkKind::Shm => 100.0,
        LinkKind::Ib | LinkKind::Roce | LinkKind::Opaque => 500.0,
        LinkKind::Tcp => 5000.0,
        LinkKind::Wan => 1e6,
    }
}

pub(crate) fn femtoseconds(ns: f64) -> u64 {
    (ns * 1e6).round() as u64
}
