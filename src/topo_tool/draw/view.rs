//! What of a graph is drawn: boxes, each for a node or for nodes that are alike, and what they hold.

use super::names::{Names, lines};
use super::plan::{Fate, Plan};
use crate::topo::graph::{Graph, NodeId, NodeKind};
use std::collections::HashMap;

/// A node that is drawn, or one of several that are alike.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) node: NodeId,
    pub(super) kind: NodeKind,
    /// How many are like it, with itself.
    pub(super) alike: usize,
    pub(super) parent: Option<usize>,
    pub(super) children: Vec<usize>,
    /// NVSwitches that lie in it, which stand below all that it holds.
    pub(super) apart: Vec<usize>,
    /// Of what lies in nothing: 0 of machines, more of what is above them, less of what is below.
    pub(super) rank: i32,
    /// Nodes in it that are not drawn.
    pub(super) hidden: usize,
    pub(super) lines: Vec<String>,
}

/// All boxes; parents before their children.
#[derive(Debug)]
pub(super) struct View {
    pub(super) boxes: Vec<Shown>,
    /// Those that lie in nothing, from left to right.
    pub(super) roots: Vec<usize>,
    /// The box of each node: its own, the one that it lies in, or that of one that is like it.
    of: Vec<Option<u32>>,
    /// Whether a node is itself in the picture, and not only one that is like it.
    is_there: Vec<bool>,
    /// What is not in the picture.
    pub(super) left_out: Vec<String>,
}

impl View {
    pub(super) fn of(&self, node: NodeId) -> Option<usize> {
        self.of[node.at()].map(|at| at as usize)
    }

    pub(super) fn is_there(&self, node: NodeId) -> bool {
        self.is_there[node.at()]
    }

    /// What a box lies in at last.
    pub(super) fn root(&self, mut at: usize) -> usize {
        while let Some(parent) = self.boxes[at].parent {
            at = parent;
        }
        at
    }

    /// Whether a box is drawn around others.
    pub(super) fn is_frame(&self, at: usize) -> bool {
        let shown = &self.boxes[at];
        shown.parent.is_none() && !(shown.children.is_empty() && shown.apart.is_empty())
    }

    /// Whether a box is an NVSwitch in a machine.
    pub(super) fn is_apart(&self, at: usize) -> bool {
        let shown = &self.boxes[at];
        (shown.parent).is_some_and(|parent| self.boxes[parent].apart.contains(&at))
    }

    /// Everything apart, or what is alike as one where there is not room for all.
    pub(super) fn new(graph: &Graph, is_apart: bool) -> View {
        let plan = Plan::new(graph, is_apart);
        let mut view = View {
            boxes: Vec::new(),
            roots: Vec::new(),
            of: vec![None; graph.len()],
            is_there: vec![false; graph.len()],
            left_out: Vec::new(),
        };
        view.add_roots(graph, &plan);
        view.add_inner(graph, &plan);
        view.add_apart(graph, &plan);
        view.find_all(graph, &plan);
        let names = Names::new(graph);
        for shown in &mut view.boxes {
            shown.lines = lines(graph, shown, &names);
        }
        if plan.pruned > 0 {
            let pruned = plan.pruned;
            view.left_out
                .push(format!("{pruned} PCI switches that lead to NVSwitches only"));
        }
        view
    }

    fn add(&mut self, graph: &Graph, node: NodeId, parent: Option<usize>, rank: i32) -> usize {
        let at = self.boxes.len();
        self.boxes.push(Shown {
            node,
            kind: graph.kind(node),
            alike: 1,
            parent,
            children: Vec::new(),
            apart: Vec::new(),
            rank,
            hidden: 0,
            lines: Vec::new(),
        });
        self.of[node.at()] = Some(at as u32);
        self.is_there[node.at()] = true;
        at
    }

    /// Adds what lies in nothing, one of those that are alike; what is joined side by side.
    fn add_roots(&mut self, graph: &Graph, plan: &Plan) {
        let mut classes: HashMap<u32, usize> = HashMap::new();
        let mut counts: HashMap<i32, usize> = HashMap::new();
        let mut left_out = 0;
        for &node in &plan.roots {
            let colour = plan.colours[node.at()];
            if let Some(&at) = classes.get(&colour) {
                self.boxes[at].alike += 1;
                self.of[node.at()] = Some(at as u32);
                continue;
            }
            let rank = plan.ranks[node.at()];
            let count = counts.entry(rank).or_default();
            *count += 1;
            if *count > MOST_ROOTS {
                left_out += 1;
                continue;
            }
            let at = self.add(graph, node, None, rank);
            classes.insert(colour, at);
        }
        if left_out > 0 {
            self.left_out.push(format!("{left_out} more hosts or switches"));
        }
        self.roots = self.in_order(graph, plan);
    }

    /// The roots, what is below one switch side by side.
    fn in_order(&self, graph: &Graph, plan: &Plan) -> Vec<usize> {
        let mut below: Vec<Vec<usize>> = vec![Vec::new(); self.boxes.len()];
        for edge in graph.edges() {
            let ends = [edge.from, edge.to].map(|node| self.of(plan.top(node)));
            if let [Some(from), Some(to)] = ends {
                let (low, high) = match self.boxes[from].rank < self.boxes[to].rank {
                    true => (from, to),
                    false => (to, from),
                };
                if self.boxes[low].rank != self.boxes[high].rank {
                    below[high].push(low);
                }
            }
        }
        let mut order: Vec<usize> = (0..self.boxes.len()).collect();
        order.sort_by_key(|&at| -self.boxes[at].rank);
        let mut seen = vec![false; self.boxes.len()];
        let mut roots = Vec::new();
        let mut stack: Vec<usize> = order.into_iter().rev().collect();
        while let Some(at) = stack.pop() {
            if std::mem::replace(&mut seen[at], true) {
                continue;
            }
            roots.push(at);
            below[at].sort_unstable();
            below[at].dedup();
            stack.extend(below[at].iter().rev());
        }
        roots
    }

    /// Adds what lies in the roots, level by level, until there are enough boxes.
    fn add_inner(&mut self, graph: &Graph, plan: &Plan) {
        let mut level: Vec<usize> = self.roots.clone();
        for _ in 0..DEEPEST {
            let mut next = Vec::new();
            for at in level {
                let node = self.boxes[at].node;
                let is_wide = plan.leaves[plan.top(node).at()] > WIDE;
                let mut alike: HashMap<u32, usize> = HashMap::new();
                let children = graph.children(node);
                for child in children.filter(|child| plan.fates[child.at()] == Fate::Shown) {
                    let colour = plan.colours[child.at()];
                    let may_be_like = is_wide && plan.leaves[child.at()] == 1;
                    if let Some(&like) = alike.get(&colour).filter(|_| may_be_like) {
                        self.boxes[like].alike += 1;
                        self.of[child.at()] = Some(like as u32);
                    } else if self.boxes.len() < MOST_BOXES {
                        let added = self.add(graph, child, Some(at), 0);
                        alike.insert(colour, added);
                        self.boxes[at].children.push(added);
                        next.push(added);
                    }
                }
            }
            level = next;
        }
    }

    /// Adds the NVSwitches of machines.
    fn add_apart(&mut self, graph: &Graph, plan: &Plan) {
        let mut alike: HashMap<(usize, u32), usize> = HashMap::new();
        for node in graph.of_kind(NodeKind::NvSwitch) {
            let top = plan.top(node);
            if plan.fates[node.at()] != Fate::Apart || !self.is_there(top) {
                continue;
            }
            let Some(root) = self.of(top) else {
                continue;
            };
            let key = (root, plan.colours[node.at()]);
            let is_many = self.boxes[root].apart.len() >= MANY_APART;
            if let Some(&like) = alike.get(&key).filter(|_| is_many) {
                self.boxes[like].alike += 1;
                self.of[node.at()] = Some(like as u32);
            } else if self.boxes.len() < MOST_BOXES {
                let added = self.add(graph, node, Some(root), 0);
                alike.insert(key, added);
                self.boxes[root].apart.push(added);
            }
        }
    }

    /// Finds a box for all nodes that have none: that of what they lie in.
    fn find_all(&mut self, graph: &Graph, plan: &Plan) {
        for node in graph.nodes() {
            let fate = plan.fates[node.at()];
            let Some(parent) = graph.parent(node).filter(|_| self.of(node).is_none()) else {
                continue;
            };
            if fate == Fate::Pruned {
                continue;
            }
            self.of[node.at()] = self.of[parent.at()];
            self.is_there[node.at()] = self.is_there[parent.at()];
            if let Some(at) = self
                .of(node)
                .filter(|_| self.is_there(node) && fate != Fate::Told)
            {
                self.boxes[at].hidden += 1;
            }
        }
    }
}

/// Boxes side by side in a machine, before those that are alike become one.
const WIDE: usize = 48;

/// NVSwitches of a machine, before those that are alike become one.
const MANY_APART: usize = 16;

const MOST_ROOTS: usize = 60;

const MOST_BOXES: usize = 400;

/// Levels below what lies in nothing.
const DEEPEST: usize = 14;
