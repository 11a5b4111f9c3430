//! Trees side by side, each grown from its root by the hop that carries most.
//!
//! Data goes up and down at once, so a hop loads what it uses in both directions. Of chains and of trees with two and with any number of
//! children the one that carries most is taken, from the best root; among equals not the wide one, whose root has all the
//! work, and the flattest.

use super::{
    Tree,
    pack::{LEAST, MOST},
    problem::{Load, Problem, Route},
};
use std::cmp::Reverse;

/// Endpoints that are tried as roots.
const ROOTS: usize = 16;

pub(super) fn pack(problem: &Problem) -> Vec<Tree> {
    let mut left = problem.capacities.clone();
    let mut grown: Vec<Grown> = Vec::new();
    // Many endpoints have few roots and few trees, so that time stays within bounds.
    let (roots, most) = if problem.len() <= ROOTS {
        (ROOTS, MOST)
    } else {
        (2, 4)
    };
    while grown.len() < most {
        let first = grown.first().map_or(0, |first| first.speed);
        let mut best: Option<Grown> = None;
        for arity in [2, 1, problem.len().max(3)] {
            for root in 0..problem.len().min(roots) {
                if let Some(tree) = grow(problem, &left, root, arity)
                    && best.as_ref().is_none_or(|best| tree.key() > best.key())
                {
                    best = Some(tree);
                }
            }
        }
        let Some(tree) = best.filter(|best| best.speed > first / LEAST) else {
            break;
        };
        for &used in tree.routes(problem).iter().flat_map(|route| &route.uses) {
            left[used as usize] = left[used as usize].saturating_sub(tree.speed);
        }
        grown.push(tree);
    }
    finish(problem, &grown)
}

/// A tree by numbers.
struct Grown {
    root: usize,
    edges: Vec<(usize, usize)>,
    depth: usize,
    /// The most children that an endpoint may have.
    arity: usize,
    nic: Option<usize>,
    speed: u64,
}

impl Grown {
    /// The greater the better.
    fn key(&self) -> (u64, bool, Reverse<usize>) {
        (self.speed, self.arity <= 2, Reverse(self.depth))
    }

    /// What it uses. A host's root sends and receives twice at its adapter: in a double binary tree every host has two children in
    /// one tree and none in the other.
    fn routes<'p>(&self, problem: &'p Problem) -> Vec<&'p Route> {
        let hops = self.edges.iter();
        let hops = hops.flat_map(|&(up, down)| [problem.route(up, down), problem.route(down, up)]);
        let ends = self
            .nic
            .map(|nic| [problem.enter(nic, self.root), problem.leave(self.root, nic)]);
        let ends = ends.into_iter().flatten();
        hops.chain(ends.clone()).chain(ends).flatten().collect()
    }
}

fn grow(problem: &Problem, left: &[u64], root: usize, arity: usize) -> Option<Grown> {
    let count = problem.len();
    let mut load = Load::none(left);
    let mut tree = Grown {
        root,
        edges: Vec::new(),
        depth: 0,
        arity,
        nic: None,
        speed: u64::MAX,
    };
    if !problem.nics.is_empty() {
        let both = |nic: usize| Some([problem.enter(nic, root)?, problem.leave(root, nic)?]);
        let nics = (0..problem.nics.len()).filter_map(|nic| Some((both(nic)?, nic)));
        let key = |routes: &[&Route; 2]| {
            let speed = load.with(routes[0]).min(load.with(routes[1]));
            (Reverse(speed), routes[0].way.max(routes[1].way))
        };
        let (routes, nic) = nics.min_by_key(|(routes, nic)| (key(routes), *nic))?;
        for route in routes.into_iter().chain(routes) {
            tree.speed = tree.speed.min(load.add(route));
        }
        tree.nic = Some(nic);
    }
    let mut depths = vec![usize::MAX; count];
    let mut children = vec![0; count];
    depths[root] = 0;
    for _ in 1..count {
        let mut best = None;
        for up in (0..count).filter(|&up| depths[up] != usize::MAX && children[up] < arity) {
            for down in (0..count).filter(|&down| depths[down] == usize::MAX) {
                let (Some(there), Some(back)) = (problem.route(up, down), problem.route(down, up)) else {
                    continue;
                };
                let speed = load.with(there).min(load.with(back)).min(tree.speed);
                let key = (Reverse(speed), there.way.max(back.way), depths[up], up, down);
                if best.is_none_or(|best| key < best) {
                    best = Some(key);
                }
            }
        }
        let (.., up, down) = best?;
        for route in [problem.route(up, down)?, problem.route(down, up)?] {
            tree.speed = tree.speed.min(load.add(route));
        }
        children[up] += 1;
        depths[down] = depths[up] + 1;
        tree.depth = tree.depth.max(depths[down]);
        tree.edges.push((up, down));
        if tree.speed == 0 {
            return None;
        }
    }
    (tree.speed != u64::MAX).then_some(tree)
}

fn finish(problem: &Problem, grown: &[Grown]) -> Vec<Tree> {
    let mut load = Load::none(&problem.capacities);
    for route in grown.iter().flat_map(|tree| tree.routes(problem)) {
        load.add(route);
    }
    let node = |at: usize| problem.endpoints[at];
    let tree = |tree: &Grown| {
        let mut children = vec![0; problem.len()];
        tree.edges.iter().for_each(|&(up, _)| children[up] += 1);
        Tree {
            root: node(tree.root),
            edges: tree
                .edges
                .iter()
                .map(|&(up, down)| (node(up), node(down)))
                .collect(),
            arity: children.into_iter().max().unwrap_or(0),
            nic: tree.nic.map(|nic| problem.nics[nic]),
            bytes_per_second: tree.speed,
            limit: problem.limit(&tree.routes(problem), &load.times),
        }
    };
    grown.iter().map(tree).collect()
}
