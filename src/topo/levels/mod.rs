//! [`Levels`]: which endpoints are near one another, out of the graph alone.
//!
//! Two endpoints are as near as the widest way between them carries, also by way of further endpoints: single linkage, which is
//! what a spanning tree of the widest edges gives. Where the widths of its edges have a gap, a level ends. Time is that of
//! sorting the edges.

use super::{
    graph::{Graph, LinkKind, NodeId, NodeKind},
    paths::Paths,
    show,
    width::{self, width},
};
use std::{collections::HashMap, fmt::Write};

/// The levels of a machine or a network, the nearest endpoints first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Levels {
    /// What talks with one another: GPUs and NPUs; without any, NUMA nodes that have processors, hosts or ranks.
    pub endpoints: Vec<NodeId>,
    /// From 1 to 5, each a partition of the endpoints into groups that the next one unites; none without endpoints.
    pub levels: Vec<Level>,
}

/// A partition of the endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Level {
    /// What its groups are, in a word.
    pub name: String,
    /// What the narrowest way inside a group carries, alone; 0 if no two endpoints are together.
    pub bytes_per_second: u64,
    /// Whether that is what such links usually carry, because no source says.
    pub assumed: bool,
    /// Groups of any sizes, in the order of their first endpoints.
    pub groups: Vec<Group>,
}

/// Endpoints that are together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// In the order of the graph.
    pub members: Vec<NodeId>,
    /// The node that they all lie in, or the switch that joins them, if there is one that has no others.
    pub is: Option<NodeId>,
}

/// What talks with one another in a graph.
pub fn endpoints(graph: &Graph) -> Vec<NodeId> {
    let of_kind = |kind| graph.of_kind(kind).collect();
    let devices = std::iter::once_with(|| devices(graph));
    let mut all = devices.chain([NodeKind::Host, NodeKind::Rank].into_iter().map(of_kind));
    all.find(|endpoints| !endpoints.is_empty()).unwrap_or_default()
}

/// What ranks of a machine run on: its accelerators, or its NUMA nodes.
pub(crate) fn devices(graph: &Graph) -> Vec<NodeId> {
    let of_class = |class| {
        graph
            .nodes()
            .filter(move |node| device_class(graph, *node) == Some(class))
    };
    let mut all = (0..DEVICE_CLASSES).map(|class| of_class(class).collect::<Vec<_>>());
    all.find(|devices| !devices.is_empty()).unwrap_or_default()
}

/// What the ranks that a file declares run on, in the order of their numbers.
#[cfg(feature = "cli")]
pub(crate) fn declared(graph: &Graph) -> Vec<NodeId> {
    let number = |rank: &NodeId| {
        graph
            .get(*rank, "rank")
            .and_then(|number| number.parse::<u64>().ok())
    };
    let mut ranks: Vec<NodeId> = graph.of_kind(NodeKind::Rank).collect();
    ranks.sort_by_key(|rank| (number(rank), *rank));
    ranks.into_iter().filter_map(|rank| graph.parent(rank)).collect()
}

/// Of devices ranks run on those of the first class that there is: accelerators, NUMA nodes, memory without processors (CXL, HBM).
pub(crate) fn device_class(graph: &Graph, node: NodeId) -> Option<usize> {
    match graph.kind(node) {
        NodeKind::Gpu | NodeKind::Npu => Some(0),
        NodeKind::Numa if graph.get(node, "cpulist") == Some("") => Some(2),
        NodeKind::Numa => Some(1),
        _ => None,
    }
}

pub(crate) const DEVICE_CLASSES: usize = 3;

impl Levels {
    /// Finds the levels of a graph's endpoints.
    pub fn of(graph: &Graph) -> Self {
        let endpoints = endpoints(graph);
        let levels = levels(graph, &endpoints);
        Levels { endpoints, levels }
    }

    /// The endpoints in an order in which those of a group of any level follow one another.
    pub fn order(&self) -> Vec<NodeId> {
        let mut keys: HashMap<NodeId, [usize; MOST_LEVELS]> = HashMap::new();
        for (place, level) in self.levels.iter().rev().enumerate() {
            for (number, group) in level.groups.iter().enumerate() {
                for &member in &group.members {
                    keys.entry(member).or_default()[place] = number;
                }
            }
        }
        let mut order = self.endpoints.clone();
        order.sort_by_key(|node| (keys.get(node).copied().unwrap_or_default(), *node));
        order
    }

    /// Who has to pass on what one endpoint sends another, in order: nobody if there is a way over edges and switches alone,
    /// `None` if there is no way at all, or none that 4,096 looks from an endpoint find.
    pub fn relay(&self, graph: &Graph, from: NodeId, to: NodeId) -> Option<Vec<NodeId>> {
        let mut before: HashMap<NodeId, NodeId> = HashMap::from([(from, from)]);
        let mut queue = vec![from];
        let mut at = 0;
        while at < queue.len().min(MOST_LOOKS) && !before.contains_key(&to) {
            let node = queue[at];
            at += 1;
            let paths = Paths::direct(graph, node);
            let direct = |other: &NodeId| paths.to(*other).is_some();
            for &other in [to].iter().chain(&self.endpoints).filter(|other| direct(other)) {
                before.entry(other).or_insert_with(|| {
                    queue.push(other);
                    node
                });
            }
        }
        let mut relays = Vec::new();
        let mut node = to;
        while node != from {
            node = *before.get(&node)?;
            relays.push(node);
        }
        relays.pop(); // Where it begins.
        relays.reverse();
        Some(relays)
    }

    /// A line for each level.
    pub fn tell(&self, graph: &Graph) -> String {
        let mut text = String::new();
        for (place, level) in self.levels.iter().enumerate() {
            let mut sizes: Vec<(usize, usize)> = Vec::new();
            for group in &level.groups {
                let size = group.members.len();
                match sizes.iter_mut().find(|(known, _)| *known == size) {
                    Some((_, count)) => *count += 1,
                    None => sizes.push((size, 1)),
                }
            }
            sizes.sort_by(|one, other| other.cmp(one));
            let more = sizes.len().saturating_sub(MOST_SIZES);
            sizes.truncate(MOST_SIZES);
            let sizes = sizes.iter().map(|(size, count)| match count {
                1 => format!("{size}"),
                _ => format!("{count} x {size}"),
            });
            let mut sizes = sizes.collect::<Vec<_>>().join(" + ");
            if more > 0 {
                let _ = write!(sizes, " + {more} more sizes"); // Writing to a string does not fail.
            }
            let speed = match (level.bytes_per_second, level.assumed) {
                (0, _) => "nothing joins them".to_owned(),
                (_, true) => "bandwidth unknown".to_owned(),
                (bytes, false) => format!("{} GB/s", show::giga(bytes)),
            };
            let kind = self
                .endpoints
                .first()
                .map_or("", |node| show::kind(graph.kind(*node)));
            let _ = writeln!(
                text,
                "  {}  {}: {sizes} of {kind}, {speed}",
                place + 1,
                level.name
            );
        }
        text
    }
}

const MOST_LEVELS: usize = 5;

const MOST_LOOKS: usize = 4096;

const MOST_SIZES: usize = 6;

/// An edge both ways.
struct Pair {
    width: u64,
    ends: [NodeId; 2],
    known: bool,
    kind: LinkKind,
}

fn levels(graph: &Graph, endpoints: &[NodeId]) -> Vec<Level> {
    if endpoints.is_empty() {
        return Vec::new();
    }
    let pairs = pairs(graph, endpoints);
    let mut sets = Sets::new(graph.len());
    let mut has = vec![false; graph.len()];
    for endpoint in endpoints {
        has[endpoint.at()] = true;
    }
    // The edges of the spanning tree that unite endpoints, the widest first.
    let mut joins: Vec<&Pair> = Vec::new();
    for pair in &pairs {
        let [one, other] = pair.ends.map(|end| sets.root(end.at()));
        if one != other {
            if has[one] && has[other] {
                joins.push(pair);
            }
            let both = has[one] || has[other];
            let root = sets.join(one, other);
            has[root] = both;
        }
    }
    let ends = cuts(&joins);
    let mut sets = Sets::new(graph.len());
    let mut at = 0;
    let mut first = 0;
    let mut levels = Vec::new();
    for end in ends {
        let narrowest = joins[first..end].last().map_or(u64::MAX, |join| join.width);
        while at < pairs.len() && pairs[at].width >= narrowest {
            let [one, other] = pairs[at].ends.map(|end| end.at());
            sets.join(one, other);
            at += 1;
        }
        let joins = &joins[first..end];
        let (name, groups) = name(graph, partition(graph, endpoints, &mut sets), &mut sets, joins);
        levels.push(Level {
            name,
            bytes_per_second: joins.last().map_or(0, |join| join.width),
            assumed: joins.last().is_some_and(|join| !join.known),
            groups,
        });
        first = end;
    }
    levels
}

/// Edges that may be used both ways, the widest first. What ends at a node that passes nothing on is left out.
fn pairs(graph: &Graph, endpoints: &[NodeId]) -> Vec<Pair> {
    let mut through = vec![false; graph.len()];
    for node in graph.nodes() {
        through[node.at()] = graph.kind(node).forwards();
    }
    for endpoint in endpoints {
        through[endpoint.at()] = true;
    }
    let mut edges: Vec<_> = graph
        .edges()
        .filter(|edge| edge.link.reachable && edge.from != edge.to)
        .filter(|edge| through[edge.from.at()] && through[edge.to.at()])
        .map(|edge| {
            let back = edge.from > edge.to;
            let ends = [edge.from.min(edge.to), edge.from.max(edge.to)];
            (ends, back, edge)
        })
        .collect();
    edges.sort_by_key(|(ends, back, _)| (*ends, *back)); // Stable: parallel edges as they were added.
    let mut pairs = Vec::with_capacity(edges.len() / 2);
    for same in edges.chunk_by(|(one, ..), (other, ..)| one == other) {
        let mut ways = [0_u64; 2];
        let mut group = [None; 2];
        for &(_, back, edge) in same {
            let way = usize::from(back);
            let width = width(graph, edge);
            let shared = edge.link.group.is_some() && group[way] == edge.link.group;
            ways[way] = if shared {
                ways[way].max(width)
            } else {
                ways[way].saturating_add(width)
            };
            group[way] = edge.link.group;
        }
        let width = ways[0].min(ways[1]);
        if width > 0 {
            let (ends, _, edge) = same[0];
            let known = same.iter().all(|(.., edge)| width::is_known(edge));
            pairs.push(Pair {
                width,
                ends,
                known,
                kind: edge.link.kind,
            });
        }
    }
    pairs.sort_by_key(|pair| (std::cmp::Reverse(pair.width), pair.ends));
    pairs
}

/// Where levels end among the joins: after the largest gaps, of at least 6 to 5.
fn cuts(joins: &[&Pair]) -> Vec<usize> {
    let ratio = |at: &usize| joins[at - 1].width as f64 / joins[*at].width as f64;
    let mut gaps: Vec<usize> = (1..joins.len())
        .filter(|&at| u128::from(joins[at - 1].width) * 5 >= u128::from(joins[at].width) * 6)
        .collect();
    gaps.sort_by(|one, other| ratio(other).total_cmp(&ratio(one)).then(one.cmp(other)));
    gaps.truncate(MOST_LEVELS - 1);
    gaps.push(joins.len());
    gaps.sort();
    gaps
}

/// The endpoints of each set, as they lie now.
fn partition(graph: &Graph, endpoints: &[NodeId], sets: &mut Sets) -> Vec<Vec<NodeId>> {
    let mut places: Vec<u32> = vec![u32::MAX; graph.len()];
    let mut groups: Vec<Vec<NodeId>> = Vec::new();
    for &endpoint in endpoints {
        let root = sets.root(endpoint.at());
        if places[root] == u32::MAX {
            places[root] = groups.len() as u32; // Fewer than there are nodes.
            groups.push(Vec::new());
        }
        groups[places[root] as usize].push(endpoint);
    }
    groups
}

/// What groups are: the node that holds them and no others, or else the highest switch that joins them.
fn name(graph: &Graph, groups: Vec<Vec<NodeId>>, sets: &mut Sets, joins: &[&Pair]) -> (String, Vec<Group>) {
    const NONE: u32 = u32::MAX;
    const MIXED: u32 = u32::MAX - 1;
    let mut roots: HashMap<usize, usize> = HashMap::new();
    // What group the endpoints in a node are of, and how many they are.
    let mut of: Vec<(u32, usize)> = vec![(NONE, 0); graph.len()];
    for (number, members) in groups.iter().enumerate() {
        for member in members {
            of[member.at()] = (number as u32, 1);
        }
        roots.insert(sets.root(members[0].at()), number);
    }
    let mut holders: Vec<Option<NodeId>> = vec![None; groups.len()];
    for node in graph.nodes().rev() {
        let (label, count) = of[node.at()];
        if label < MIXED && count == groups[label as usize].len() && groups[label as usize][0] != node {
            holders[label as usize] = Some(node);
        }
        if let Some(parent) = graph.parent(node) {
            let above = &mut of[parent.at()];
            above.0 = match (above.0, label) {
                (NONE, label) => label,
                (known, label) if label == NONE || label == known => known,
                _ => MIXED,
            };
            above.1 += count;
        }
    }
    // Of each group: the highest tier of switches in it, one of these, and how many they are.
    let mut switches: Vec<(u32, Option<NodeId>, usize)> = vec![(0, None, 0); groups.len()];
    for node in graph.nodes() {
        let tier = match graph.kind(node) {
            NodeKind::NvSwitch => 1,
            NodeKind::Opaque => continue,
            kind => match width::tier(kind) {
                0 => continue,
                tier => tier + 1,
            },
        };
        if let Some(&group) = roots.get(&sets.root(node.at())) {
            let best = &mut switches[group];
            match tier.cmp(&best.0) {
                std::cmp::Ordering::Greater => *best = (tier, Some(node), 1),
                std::cmp::Ordering::Equal => best.2 += 1,
                std::cmp::Ordering::Less => {}
            }
        }
    }
    let mut kinds: Vec<NodeKind> = Vec::new();
    let mut nameless = false;
    let mut named = Vec::with_capacity(groups.len());
    for ((members, holder), (_, switch, count)) in groups.into_iter().zip(holders).zip(switches) {
        if members.len() > 1 {
            match holder.or(switch) {
                Some(node) => kinds.push(graph.kind(node)),
                None => nameless = true,
            }
        }
        let is = holder.or(switch.filter(|_| count == 1));
        named.push(Group { members, is });
    }
    kinds.sort();
    kinds.dedup();
    let link = joins
        .first()
        .filter(|first| joins.iter().all(|join| join.kind == first.kind));
    let name = match (&kinds[..], link) {
        ([kind], _) if !nameless => show::kind(*kind).to_owned(),
        ([_, ..], _) if !nameless => {
            let kinds = kinds.iter().map(|kind| show::kind(*kind));
            kinds.collect::<Vec<_>>().join(" or ")
        }
        (_, Some(link)) => format!("{:?} group", link.kind),
        _ => "group".to_owned(),
    };
    (name, named)
}

/// Disjoint sets.
struct Sets(Vec<u32>);

impl Sets {
    fn new(count: usize) -> Self {
        Sets((0..count as u32).collect()) // Ids of nodes have 32 bits.
    }

    fn root(&mut self, mut at: usize) -> usize {
        while self.0[at] as usize != at {
            self.0[at] = self.0[self.0[at] as usize];
            at = self.0[at] as usize;
        }
        at
    }

    /// Unites two sets and gives back the root: the smaller one, whose paths are halved by looking.
    fn join(&mut self, one: usize, other: usize) -> usize {
        let (one, other) = (self.root(one), self.root(other));
        let (low, high) = (one.min(other), one.max(other));
        self.0[high] = low as u32;
        low
    }
}

#[cfg(test)]
mod tests;
