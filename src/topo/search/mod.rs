//! Rings and trees over the endpoints of a graph, with as much bandwidth as its edges allow.
//!
//! A hop takes the best way of `paths` and loads every edge, shared capacity and adapter on it; what carries several hops
//! divides itself among them. Channels are packed one after another into what is left, until no more fits. With up to 16
//! endpoints each ring is the best there is (`exact`), unless that takes too many steps; with more it is found from neighbour to
//! neighbour and mended (`local`). Steps are counted, not time: the same graph gives the same channels everywhere. What was
//! reached stands beside what no schedule can pass (`bounds`).

mod bounds;
mod exact;
mod flow;
mod local;
mod pack;
mod problem;
mod trees;

use super::{
    graph::{EdgeId, Graph, GroupId, NodeId, NodeKind},
    levels::{Levels, endpoints},
};
use problem::Problem;

pub use bounds::Bound;

/// What to search for.
#[derive(Debug, Clone)]
pub struct Task {
    /// Who talks with one another.
    pub endpoints: Vec<NodeId>,
    /// By which adapters channels come and go, where there are several hosts like this one.
    pub nics: Vec<NodeId>,
    /// How many of these hosts there are; with 1 no adapter is used.
    pub hosts: usize,
    /// How many steps the search may take for a channel.
    pub steps: u64,
}

/// A ring over all endpoints; with several hosts, the part of it in each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ring {
    /// Each sends to the next; the last to the first, or to another host.
    pub order: Vec<NodeId>,
    /// By which adapters it enters and leaves a host, where there are several.
    pub nics: Option<[NodeId; 2]>,
    /// What it carries beside the others.
    pub bytes_per_second: u64,
    /// Endpoints that pass on what is not for them.
    pub relays: Vec<NodeId>,
    /// What it shares with other channels or itself and would be faster without.
    pub limit: Option<Limit>,
}

/// A tree over all endpoints, for data up and down at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// Its root.
    pub root: NodeId,
    /// Each parent and child, parents first.
    pub edges: Vec<(NodeId, NodeId)>,
    /// The most children that an endpoint has: 1 is a chain.
    pub arity: usize,
    /// By which adapter its root talks with other hosts, where there are several.
    pub nic: Option<NodeId>,
    /// What it carries each way beside the others.
    pub bytes_per_second: u64,
    /// What it would be faster without.
    pub limit: Option<Limit>,
}

/// What limits a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// What is shared.
    pub what: Shared,
    /// What it carries.
    pub bytes_per_second: u64,
    /// How often all channels of the kind use it.
    pub uses: u32,
}

/// Something with a capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shared {
    /// An edge.
    Edge(EdgeId),
    /// Edges that have it together.
    Group(GroupId),
    /// All ports of an adapter, for what leaves it.
    Out(NodeId),
    /// All ports of an adapter, for what arrives.
    In(NodeId),
}

/// How a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// No rings carry more together.
    Exact,
    /// Each ring is the best there is beside those before it, or all have a speed at which no more fit; others may carry more together.
    Greedy,
    /// After so many steps, before all was seen.
    Steps(u64),
    /// From neighbour to neighbour, mended by exchanges of two hops.
    TwoOpt,
    /// In the order of the levels: there are too many endpoints or adapters to search.
    Levels,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Rings side by side.
    pub rings: Vec<Ring>,
    /// Trees side by side, without the rings.
    pub trees: Vec<Tree>,
    /// How the search for rings ended.
    pub end: End,
    /// What no all-gather can pass, where that was found out.
    pub bound: Option<Bound>,
    /// Bytes a second that no rings and no trees can pass: each crosses every cut, and comes into every host.
    pub crossing: Option<u64>,
    /// Two endpoints without any way from the first to the second, which is why there is no ring.
    pub apart: Option<[NodeId; 2]>,
}

impl Task {
    /// A graph's endpoints, with its adapters if there are to be several hosts.
    pub fn of(graph: &Graph, hosts: usize) -> Self {
        let nics = if hosts > 1 {
            Task::usable_nics(graph).collect()
        } else {
            Vec::new()
        };
        Task {
            endpoints: endpoints(graph),
            nics,
            hosts: hosts.max(1),
            steps: STEPS,
        }
    }

    /// The adapters by which data can come and go.
    pub fn usable_nics(graph: &Graph) -> impl Iterator<Item = NodeId> + '_ {
        graph.of_kind(NodeKind::Nic).filter(|nic| {
            let mut ports = graph
                .edges_from(*nic)
                .map(|edge| graph.edge(edge))
                .filter(|edge| graph.kind(edge.to) == NodeKind::NicPort)
                .peekable();
            ports.peek().is_none() || ports.any(|port| port.link.reachable)
        })
    }
}

/// Steps for a channel.
const STEPS: u64 = 200_000;

/// Endpoints with exact rings.
const EXACT: usize = 16;

/// Endpoints between all of which ways are found.
const ALL_PAIRS: usize = 128;

/// Adapters between which and the endpoints ways are found.
const ALL_NICS: usize = 256;

/// Pairs of endpoints, and of an endpoint and an adapter each way, times nodes of the graph, which is more than all their ways have.
const MOST_HOPS: usize = 1 << 28;

/// Looks from endpoints times nodes of the graph.
const LOOKS: usize = 1 << 24;

/// Searches rings and trees.
pub fn search(graph: &Graph, task: &Task) -> Found {
    let mut found = Found {
        rings: Vec::new(),
        trees: Vec::new(),
        end: End::Exact,
        bound: None,
        crossing: None,
        apart: None,
    };
    let count = task.endpoints.len();
    if count == 0 || (count == 1 && task.hosts == 1) || (task.hosts > 1 && task.nics.is_empty()) {
        return found;
    }
    let nics = task.nics.len();
    let pairs = count.saturating_mul(nics.saturating_mul(2).saturating_add(count));
    let hops = pairs.saturating_mul(graph.len());
    if count > ALL_PAIRS || nics > ALL_NICS || hops > MOST_HOPS {
        found.end = End::Levels;
        if count.saturating_mul(graph.len()) <= LOOKS {
            in_order(graph, task, &mut found);
        }
        return found;
    }
    let problem = Problem::new(graph, task);
    if let Some([from, to]) = problem.apart() {
        found.apart = Some([task.endpoints[from], task.endpoints[to]]);
        return found;
    }
    let bounds = bounds::of(graph, &problem);
    let most = match bounds.crossing {
        Some(crossing) => Some(crossing),
        None => bounds.all_gather.as_ref().map(Bound::bytes_per_second),
    };
    (found.rings, found.end) = pack::rings(&problem, task.steps, most);
    found.trees = trees::pack(&problem);
    found.bound = bounds.all_gather;
    found.crossing = bounds.crossing;
    found
}

/// One ring in the order of the levels.
fn in_order(graph: &Graph, task: &Task, found: &mut Found) {
    let mut order = Levels::of(graph).order();
    order.retain(|endpoint| task.endpoints.contains(endpoint));
    if task.hosts > 1 || order.len() != task.endpoints.len() {
        return;
    }
    match problem::along(graph, &order) {
        Ok((bytes_per_second, limit)) => found.rings.push(Ring {
            order,
            nics: None,
            bytes_per_second,
            relays: Vec::new(),
            limit,
        }),
        Err(apart) => found.apart = Some(apart),
    }
}

impl Found {
    /// What all rings carry together.
    pub fn ring_bandwidth(&self) -> u64 {
        self.rings.iter().map(|ring| ring.bytes_per_second).sum()
    }

    /// What all trees carry together.
    pub fn tree_bandwidth(&self) -> u64 {
        self.trees.iter().map(|tree| tree.bytes_per_second).sum()
    }
}

#[cfg(test)]
mod tests;
