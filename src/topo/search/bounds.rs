//! What no schedule can pass: cuts of the edges that hops may use.
//!
//! In an all-gather each part of the network must send out what its endpoints have, if others lie outside, so it takes at least
//! as long as that takes where it takes longest: n/p times the maximum over cuts S of |S ∩ endpoints| / B⁺(S), where B⁺(S) is what the
//! edges that leave S carry. Cuts are found by flows (ForestColl, arXiv 2402.06787), whose source feeds every endpoint equally:
//! where less arrives than all of it, the cut is a worse one, and is taken next.

use super::{Shared, flow::Network, problem::Problem};
use crate::topo::graph::{Graph, NodeId};
use std::collections::HashMap;

/// What no all-gather can pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// The endpoints of one host on the side of the cut that has to send.
    pub side: Vec<NodeId>,
    /// How many endpoints are there, those of other hosts counted, too.
    pub senders: u64,
    /// How many there are altogether.
    pub all: u64,
    /// Bytes a second over the cut.
    pub over: u64,
    /// Whether no cut is worse; else there was no time to see all.
    pub tight: bool,
}

impl Bound {
    /// Bytes a second of rings that would take as long.
    pub fn bytes_per_second(&self) -> u64 {
        let rate = u128::from(self.over) * u128::from(self.all - 1) / u128::from(self.senders.max(1));
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

#[derive(Debug)]
pub(super) struct Bounds {
    pub(super) all_gather: Option<Bound>,
    pub(super) crossing: Option<u64>,
}

/// Arcs that are looked at for one graph.
const LOOKS: u64 = 1 << 21;

/// Vertices of a network with bounds.
const VERTICES: usize = 2048;

pub(super) fn of(graph: &Graph, problem: &Problem) -> Bounds {
    let Some(mut cuts) = Cuts::new(graph, problem) else {
        return Bounds {
            all_gather: None,
            crossing: None,
        };
    };
    // This first: the source of the other would only be in the way.
    let crossing = cuts.crossing();
    let bound = cuts.worst().map(|(senders, over, tight, side)| Bound {
        side: side.into_iter().map(|at| problem.endpoints[at]).collect(),
        senders,
        all: cuts.all,
        over,
        tight,
    });
    Bounds {
        all_gather: bound,
        crossing,
    }
}

/// The network of all edges that hops may use. Other hosts are one more vertex.
struct Cuts {
    network: Network,
    /// Arcs of edges, with their capacities.
    arcs: Vec<(usize, u64)>,
    /// Vertices of the endpoints, and of the other hosts, with how many endpoints they are.
    ends: Vec<(usize, u64)>,
    endpoints: usize,
    all: u64,
}

impl Cuts {
    fn new(graph: &Graph, problem: &Problem) -> Option<Self> {
        let mut used: Vec<u32> = problem
            .all()
            .flat_map(|route| route.uses.iter().copied())
            .collect();
        used.sort();
        used.dedup();
        let mut network = Network::new(0);
        let mut vertices: HashMap<NodeId, usize> = HashMap::new();
        let mut vertex = |node: NodeId, network: &mut Network| {
            *vertices.entry(node).or_insert_with(|| network.add_vertex())
        };
        let mut ends: Vec<(usize, u64)> = problem
            .endpoints
            .iter()
            .map(|&node| (vertex(node, &mut network), 1))
            .collect();
        let others = network.add_vertex();
        let mut arcs = Vec::new();
        let mut groups = HashMap::new();
        for at in used.into_iter().map(|at| at as usize) {
            let capacity = problem.capacities[at];
            let mut add = |from, to, network: &mut Network| arcs.push((network.add(from, to, 0), capacity));
            match problem.shared[at] {
                Shared::Edge(id) => {
                    let edge = graph.edge(id);
                    let [from, to] = [edge.from, edge.to].map(|node| vertex(node, &mut network));
                    let group = edge
                        .link
                        .group
                        .filter(|group| graph.group(*group).bytes_per_second > 0);
                    match group {
                        // What shares a capacity goes through one arc, wherever it goes on.
                        Some(group) => {
                            let [begin, end] = *groups
                                .entry(group)
                                .or_insert_with(|| [network.add_vertex(), network.add_vertex()]);
                            add(from, begin, &mut network);
                            add(end, to, &mut network);
                        }
                        None => add(from, to, &mut network),
                    }
                }
                Shared::Group(group) => {
                    let [begin, end] = *groups
                        .entry(group)
                        .or_insert_with(|| [network.add_vertex(), network.add_vertex()]);
                    add(begin, end, &mut network);
                }
                Shared::Out(nic) => add(vertex(nic, &mut network), others, &mut network),
                Shared::In(nic) => add(others, vertex(nic, &mut network), &mut network),
            }
        }
        // An adapter whose ports are not known is limited by its slot alone.
        for &nic in &problem.nics {
            let at = vertex(nic, &mut network);
            let has = |shared| problem.shared.contains(&shared);
            for (known, from, to) in [
                (has(Shared::Out(nic)), at, others),
                (has(Shared::In(nic)), others, at),
            ] {
                if !known {
                    arcs.push((network.add(from, to, 0), crate::topo::width::MOST));
                }
            }
        }
        let endpoints = problem.len();
        let all = (endpoints as u64).saturating_mul(problem.hosts as u64);
        if problem.hosts > 1 {
            ends.push((others, all - endpoints as u64));
        }
        let few = network.len() <= VERTICES && all < 1 << 32;
        few.then_some(Cuts {
            network,
            arcs,
            ends,
            endpoints,
            all,
        })
    }

    fn scale(&mut self, by: u128) {
        for &(arc, capacity) in &self.arcs {
            self.network.set(arc, u128::from(capacity) * by);
        }
    }

    /// The least that crosses any cut between endpoints; other hosts count as one.
    fn crossing(&mut self) -> Option<u64> {
        self.scale(1);
        let (first, others) = self.ends.split_first()?;
        let mut least = u128::MAX;
        for other in others {
            for (from, to) in [(first.0, other.0), (other.0, first.0)] {
                least = least.min(self.network.flow(from, to).0);
                if self.network.looks > LOOKS {
                    return None;
                }
            }
        }
        u64::try_from(least).ok()
    }

    /// The worst cut: how many endpoints have to send, over what, whether none is worse, and which they are.
    fn worst(&mut self) -> Option<(u64, u64, bool, Vec<usize>)> {
        self.network.looks = 0;
        let source = self.network.add_vertex();
        let feeds: Vec<usize> = self
            .ends
            .iter()
            .map(|end| self.network.add(source, end.0, 0))
            .collect();
        // All but one endpoint send to that one.
        let (at, weight) = self.ends[0];
        let into = self.arcs.iter().filter(|(arc, _)| self.network.end(*arc) == at);
        let mut over: u128 = into.map(|(_, capacity)| u128::from(*capacity)).sum();
        let mut senders = self.all.checked_sub(weight).filter(|senders| *senders > 0)?;
        let mut side: Vec<usize> = (1..self.endpoints).collect();
        let mut tight = true;
        for target in 0..self.ends.len() {
            loop {
                if self.network.looks > LOOKS {
                    tight = false;
                    break;
                }
                // Each endpoint is fed with over / senders; all is multiplied by senders.
                self.scale(senders.into());
                for (feed, end) in feeds.iter().zip(&self.ends) {
                    self.network.set(*feed, over * u128::from(end.1));
                }
                let (flow, near) = self.network.flow(source, self.ends[target].0);
                if flow >= over * u128::from(self.all) {
                    break;
                }
                senders = self.ends.iter().filter(|end| near[end.0]).map(|end| end.1).sum();
                side = (0..self.endpoints).filter(|&at| near[self.ends[at].0]).collect();
                let crosses = |arc: usize| near[self.network.begin(arc)] && !near[self.network.end(arc)];
                let arcs = self.arcs.iter().filter(|(arc, _)| crosses(*arc));
                over = arcs.map(|(_, capacity)| u128::from(*capacity)).sum();
                if senders == 0 {
                    return None; // Cannot be: then all that is fed would have arrived.
                }
            }
        }
        Some((senders, u64::try_from(over).ok()?, tight, side))
    }
}
