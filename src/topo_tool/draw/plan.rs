//! What becomes of a graph's nodes in a picture, how high they stand, and which are alike.

use super::alike::refine;
use crate::topo::graph::{Graph, NodeId, NodeKind};
use std::collections::{HashMap, HashSet};

/// What becomes of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Shown,
    /// It is an NVSwitch of a machine.
    Apart,
    /// It is told in the box that it lies in.
    Told,
    /// It leads to NVSwitches only.
    Pruned,
}

/// What is found out of a graph before.
pub(super) struct Plan {
    pub(super) fates: Vec<Fate>,
    pub(super) pruned: usize,
    pub(super) roots: Vec<NodeId>,
    /// What each node lies in at last.
    tops: Vec<NodeId>,
    pub(super) ranks: Vec<i32>,
    /// Boxes side by side that a node needs.
    pub(super) leaves: Vec<usize>,
    pub(super) colours: Vec<u32>,
}

impl Plan {
    pub(super) fn new(graph: &Graph, is_apart: bool) -> Plan {
        let mut plan = Plan {
            fates: vec![Fate::Shown; graph.len()],
            pruned: 0,
            roots: graph
                .nodes()
                .filter(|node| graph.parent(*node).is_none())
                .collect(),
            tops: Vec::with_capacity(graph.len()),
            ranks: vec![0; graph.len()],
            leaves: vec![0; graph.len()],
            colours: Vec::new(),
        };
        for node in graph.nodes() {
            let top = graph.parent(node).map_or(node, |parent| plan.tops[parent.at()]);
            plan.tops.push(top);
        }
        plan.decide(graph);
        plan.rank(graph);
        plan.colours = (0..graph.len() as u32).collect();
        if !is_apart {
            plan.colour(graph);
        }
        plan
    }

    pub(super) fn top(&self, node: NodeId) -> NodeId {
        self.tops[node.at()]
    }

    /// What becomes of each node, children first.
    fn decide(&mut self, graph: &Graph) {
        for node in graph.nodes().rev() {
            let fate = |child: NodeId| self.fates[child.at()];
            let mut children = graph.children(node).peekable();
            let has_parent = graph.parent(node).is_some();
            let fate = match (graph.kind(node), children.peek().is_some()) {
                (NodeKind::Rank | NodeKind::NicPort | NodeKind::Cores, false) if has_parent => Fate::Told,
                (NodeKind::NvSwitch, false) if has_parent => Fate::Apart,
                (NodeKind::PciSwitch | NodeKind::RootComplex, true)
                    if has_parent
                        && children.all(|child| matches!(fate(child), Fate::Apart | Fate::Pruned)) =>
                {
                    Fate::Pruned
                }
                _ => Fate::Shown,
            };
            self.fates[node.at()] = fate;
            self.pruned += usize::from(fate == Fate::Pruned);
            let at = node.at();
            self.leaves[at] = self.leaves[at].max(1);
            if let Some(parent) = graph.parent(node).filter(|_| fate == Fate::Shown) {
                self.leaves[parent.at()] += self.leaves[at];
            }
        }
    }

    /// How high what lies in nothing stands.
    fn rank(&mut self, graph: &Graph) {
        for &root in &self.roots {
            self.ranks[root.at()] = match graph.kind(root) {
                _ if graph.children(root).next().is_some() => 0,
                NodeKind::NvSwitch => -1,
                NodeKind::Leaf => 1,
                NodeKind::Spine => 2,
                NodeKind::CoreSwitch => 3,
                NodeKind::Wan => 4,
                _ => 0,
            };
        }
        let is_unknown = |node: NodeId| {
            let is_root = graph.parent(node).is_none() && graph.children(node).next().is_none();
            is_root && graph.kind(node) == NodeKind::Opaque
        };
        let mut above: HashMap<NodeId, i32> = HashMap::new();
        for edge in graph.edges() {
            for (one, other) in [(edge.from, edge.to), (edge.to, edge.from)] {
                if is_unknown(one) && !is_unknown(other) {
                    let rank = above.entry(one).or_insert(0);
                    *rank = (*rank).max(self.ranks[self.top(other).at()]);
                }
            }
        }
        for &root in self.roots.iter().filter(|root| is_unknown(**root)) {
            self.ranks[root.at()] = 1 + above.get(&root).copied().unwrap_or(0);
        }
    }

    /// What is alike: nothing if there is room for all, else machines, then leaf switches too, and so on.
    fn colour(&mut self, graph: &Graph) {
        let own = |rank: i32| -> Vec<u32> {
            graph
                .nodes()
                .map(|node| {
                    let is_root = graph.parent(node).is_none();
                    let height = self.ranks[node.at()];
                    let height = if height < 0 { 1 } else { height };
                    match is_root && height > rank {
                        true => NodeKind::ALL.len() as u32 + node.at() as u32,
                        false => graph.kind(node) as u32,
                    }
                })
                .collect()
        };
        let mut best = None;
        for rank in -1..=4 {
            let Some(colours) = refine(graph, own(rank)) else {
                break;
            };
            let mut counts: HashMap<i32, usize> = HashMap::new();
            let mut seen = HashSet::new();
            for &root in &self.roots {
                if seen.insert(colours[root.at()]) {
                    *counts.entry(self.ranks[root.at()]).or_default() += self.leaves[root.at()];
                }
            }
            let has_room = counts.values().all(|&count| count <= ROOM) || self.roots.len() == 1;
            best = Some(colours);
            if has_room {
                break;
            }
        }
        if let Some(best) = best {
            self.colours = best;
        }
    }
}

/// Boxes side by side, before those that are alike become one.
const ROOM: usize = 36;
