//! [`Problem`]: endpoints by number, what has a capacity by number, and what each hop uses.

use super::{Limit, Shared, Task};
use crate::topo::{
    graph::{Graph, NodeId, NodeKind},
    paths::{Paths, Way},
    width::{self, width},
};
use std::collections::{HashMap, VecDeque};

/// What a search works on.
pub(super) struct Problem {
    pub(super) endpoints: Vec<NodeId>,
    pub(super) nics: Vec<NodeId>,
    pub(super) hosts: usize,
    pub(super) shared: Vec<Shared>,
    /// Bytes a second.
    pub(super) capacities: Vec<u64>,
    /// From each endpoint to each.
    routes: Vec<Option<Route>>,
    /// From each adapter to each endpoint, with the adapter's ports.
    enter: Vec<Option<Route>>,
    /// From each endpoint to each adapter, with the adapter's ports.
    leave: Vec<Option<Route>>,
}

/// What a hop uses.
#[derive(Debug, Clone)]
pub(super) struct Route {
    pub(super) uses: Vec<u32>,
    pub(super) way: Way,
    pub(super) relays: Vec<NodeId>,
}

/// How often everything is used by what is being put together, and how much of it is left for that.
#[derive(Clone)]
pub(super) struct Load<'c> {
    pub(super) left: &'c [u64],
    pub(super) times: Vec<u32>,
}

#[derive(Default)]
struct Numbers {
    shared: Vec<Shared>,
    capacities: Vec<u64>,
    known: HashMap<Shared, u32>,
}

impl Problem {
    pub(super) fn new(graph: &Graph, task: &Task) -> Self {
        let mut numbers = Numbers::default();
        let mut routes = Vec::new();
        let mut leave = Vec::new();
        for &from in &task.endpoints {
            let paths = Paths::from(graph, from);
            for &to in &task.endpoints {
                routes.push(if from == to {
                    None
                } else {
                    numbers.route(graph, &paths, from, to)
                });
            }
            for &nic in &task.nics {
                let route = numbers.route(graph, &paths, from, nic);
                leave.push(numbers.ports(graph, route, Shared::Out(nic)));
            }
        }
        let mut enter = Vec::new();
        for &nic in &task.nics {
            let paths = Paths::from(graph, nic);
            for &to in &task.endpoints {
                let route = numbers.route(graph, &paths, nic, to);
                enter.push(numbers.ports(graph, route, Shared::In(nic)));
            }
        }
        relay(&mut routes, &task.endpoints);
        Problem {
            endpoints: task.endpoints.clone(),
            nics: task.nics.clone(),
            hosts: task.hosts,
            shared: numbers.shared,
            capacities: numbers.capacities,
            routes,
            enter,
            leave,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.endpoints.len()
    }

    pub(super) fn route(&self, from: usize, to: usize) -> Option<&Route> {
        self.routes[from * self.len() + to].as_ref()
    }

    pub(super) fn enter(&self, nic: usize, to: usize) -> Option<&Route> {
        self.enter[nic * self.len() + to].as_ref()
    }

    pub(super) fn leave(&self, from: usize, nic: usize) -> Option<&Route> {
        self.leave[from * self.nics.len() + nic].as_ref()
    }

    /// All routes there are.
    pub(super) fn all(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter().chain(&self.enter).chain(&self.leave).flatten()
    }

    /// Two endpoints without a way from one to the other.
    pub(super) fn apart(&self) -> Option<[usize; 2]> {
        let count = self.len();
        let mut pairs = (0..count).flat_map(|from| (0..count).map(move |to| [from, to]));
        pairs.find(|[from, to]| from != to && self.route(*from, *to).is_none())
    }

    /// What limits a channel most of all that it uses, by how much of it all channels use.
    pub(super) fn limit(&self, routes: &[&Route], times: &[u32]) -> Option<Limit> {
        let uses = routes.iter().flat_map(|route| &route.uses).map(|at| *at as usize);
        let full = uses.min_by_key(|&at| (self.capacities[at] / u64::from(times[at].max(1)), at))?;
        Some(Limit {
            what: self.shared[full],
            bytes_per_second: self.capacities[full],
            uses: times[full],
        })
    }
}

impl Numbers {
    fn number(&mut self, shared: Shared, capacity: u64) -> u32 {
        *self.known.entry(shared).or_insert_with(|| {
            self.shared.push(shared);
            self.capacities.push(capacity.min(width::MOST));
            (self.shared.len() - 1) as u32 // At most two for an edge, and a few for a node.
        })
    }

    fn route(&mut self, graph: &Graph, paths: &Paths, from: NodeId, to: NodeId) -> Option<Route> {
        let way = paths.to(to)?.way;
        let mut uses = Vec::new();
        let mut relays = Vec::new();
        for id in paths.edges(to) {
            let edge = graph.edge(id);
            uses.push(self.number(Shared::Edge(id), width(graph, edge)));
            if let Some(group) = edge
                .link
                .group
                .filter(|group| graph.group(*group).bytes_per_second > 0)
            {
                uses.push(self.number(Shared::Group(group), graph.group(group).bytes_per_second));
            }
            if edge.from != from && matches!(graph.kind(edge.from), NodeKind::Gpu | NodeKind::Npu) {
                relays.push(edge.from);
            }
        }
        Some(Route { uses, way, relays })
    }

    /// With all ports of an adapter together; one whose ports are not known is as fast as its slot.
    fn ports(&mut self, graph: &Graph, route: Option<Route>, shared: Shared) -> Option<Route> {
        let (Shared::Out(nic) | Shared::In(nic)) = shared else {
            return route;
        };
        let ports = graph.edges_from(nic).map(|edge| graph.edge(edge));
        let ports = ports.filter(|edge| graph.kind(edge.to) == NodeKind::NicPort);
        let sum = ports.map(|edge| width(graph, edge)).fold(0, u64::saturating_add);
        let mut route = route?;
        if sum > 0 {
            route.uses.push(self.number(shared, sum));
        }
        Some(route)
    }
}

/// Between endpoints without a way of their own: through others, as few as possible.
fn relay(routes: &mut [Option<Route>], endpoints: &[NodeId]) {
    let count = endpoints.len();
    let direct: Vec<bool> = routes.iter().map(Option::is_some).collect();
    for from in 0..count {
        if (0..count).all(|to| to == from || direct[from * count + to]) {
            continue;
        }
        let mut before = vec![usize::MAX; count];
        before[from] = from;
        let mut queue = VecDeque::from([from]);
        while let Some(at) = queue.pop_front() {
            for to in (0..count).filter(|to| direct[at * count + to]) {
                if before[to] == usize::MAX {
                    before[to] = at;
                    queue.push_back(to);
                }
            }
        }
        for to in 0..count {
            if to == from || direct[from * count + to] || before[to] == usize::MAX {
                continue;
            }
            let mut whole = Route {
                uses: Vec::new(),
                way: Way::Unknown,
                relays: Vec::new(),
            };
            let mut node = to;
            while node != from {
                let last = before[node];
                if let Some(part) = &routes[last * count + node] {
                    whole.uses.extend(&part.uses);
                    whole.relays.extend(&part.relays);
                }
                if last != from {
                    whole.relays.push(endpoints[last]);
                }
                node = last;
            }
            whole.relays.reverse();
            routes[from * count + to] = Some(whole);
        }
    }
}

impl<'c> Load<'c> {
    pub(super) fn none(left: &'c [u64]) -> Self {
        Load {
            left,
            times: vec![0; left.len()],
        }
    }

    /// What would be left for each use if one more came; at least what [`Load::add`] says.
    pub(super) fn with(&self, route: &Route) -> u64 {
        let each = route
            .uses
            .iter()
            .map(|&at| self.left[at as usize] / u64::from(self.times[at as usize] + 1));
        each.min().unwrap_or(width::MOST)
    }

    /// Adds a route and says what is left for each of its uses.
    pub(super) fn add(&mut self, route: &Route) -> u64 {
        for &at in &route.uses {
            self.times[at as usize] += 1;
        }
        let each = route
            .uses
            .iter()
            .map(|&at| self.left[at as usize] / u64::from(self.times[at as usize]));
        each.min().unwrap_or(width::MOST)
    }

    pub(super) fn remove(&mut self, route: &Route) {
        for &at in &route.uses {
            self.times[at as usize] -= 1;
        }
    }
}

/// What a ring in a given order carries, or two of it that no way joins.
pub(super) fn along(graph: &Graph, order: &[NodeId]) -> Result<(u64, Option<Limit>), [NodeId; 2]> {
    let mut numbers = Numbers::default();
    let mut times: Vec<u32> = Vec::new();
    for (at, &from) in order.iter().enumerate() {
        let to = order[(at + 1) % order.len()];
        let route = numbers
            .route(graph, &Paths::from(graph, from), from, to)
            .ok_or([from, to])?;
        times.resize(numbers.shared.len(), 0);
        for used in route.uses {
            times[used as usize] += 1;
        }
    }
    let each = |at: &usize| numbers.capacities[*at] / u64::from(times[*at].max(1));
    let full = (0..times.len()).min_by_key(each);
    let limit = full.map(|at| Limit {
        what: numbers.shared[at],
        bytes_per_second: numbers.capacities[at],
        uses: times[at],
    });
    Ok((full.map_or(width::MOST, |at| each(&at)), limit))
}
