//! Double binary tree: two trees over all ranks, each with half of the vector; whoever passes something on in one of them is a
//! leaf of the other.
//!
//! In a single binary tree half of the ranks, the leaves, send half as much as they could. Of two such trees every rank does
//! its share, so that the vector goes from the root to all in tiles that follow each other, with about twice its length through
//! each rank, in 2·log2(n) steps. All-reduce is a reduction up both trees and a broadcast down again; each half is completed at
//! the root alone, so that the result has the same bits everywhere. 16- and 8-bit floats are rounded at each rank.
//!
//! Ranks are counted from the root on, which is above both trees and is the parent of their tops. The others, 1 to n − 1, stand
//! in order in the first tree: the height of the v-th is the place of v's lowest bit, so that the odd ones are leaves. The
//! second tree is the first one mirrored if that makes the even ones leaves, and shifted by one place if not.
//!
//! Each tree is a channel of its own.
//!
//! Source: P. Sanders, J. Speck and J. L. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009.

use super::{Algorithm, Request};
use crate::plan::choose::TileBytes;
use crate::plan::cost::{Counts, Load, Work};
use crate::plan::layout::Layout;
use crate::plan::schedule::{
    Affine,
    Buffer::{self, Input, Output},
    How, Item, Schedule, Slice, Source, Step,
};
use crate::types::Collective;

pub(super) const DOUBLETREE: Algorithm = Algorithm {
    name: "doubletree",
    about: "half of the vector over each of two binary trees, tile by tile; who is busy in one is a leaf of the other",
    fits: |collective| {
        matches!(
            collective,
            Collective::AllReduce | Collective::Broadcast { .. } | Collective::Reduce { .. }
        )
    },
    in_order: |_, _| false,
    build,
    counts,
};

fn build(request: &Request) -> Schedule {
    let (n, me) = (request.ranks, request.rank);
    let root = request.collective.root().map_or(0, |root| root as usize);
    let channel = |half: usize| {
        let place = Place {
            root,
            ranks: n,
            half,
            node: Node::of(half, (me + n - root) % n, n),
        };
        let steps = match request.collective {
            Collective::Broadcast { .. } => vec![place.down()],
            Collective::Reduce { .. } => vec![place.up(false)],
            _ if place.node.parent.is_none() => vec![place.up(true)],
            _ => vec![place.up(false), place.down()],
        };
        steps.into_iter().map(Item::Step).collect()
    };
    Schedule {
        channels: vec![channel(0), channel(1)],
        ..Schedule::plain(n, 2, vec![])
    }
}

/// A rank's place in one of the trees.
struct Place {
    root: usize,
    ranks: usize,
    /// Which tree, and which half of the vector.
    half: usize,
    node: Node,
}

impl Place {
    fn own(&self, buffer: Buffer) -> Slice {
        Slice::grain(buffer, Affine::fixed(self.half))
    }

    /// The rank that comes `v` after the root.
    fn peer(&self, v: usize) -> Affine {
        Affine::fixed((self.root + v) % self.ranks)
    }

    fn children(&self) -> impl Iterator<Item = Affine> {
        self.node.children().map(|child| self.peer(child))
    }

    /// Adds what the children have, and its own between theirs, and hands it to the parent; the root, to its child if
    /// `back`.
    fn up(&self, back: bool) -> Step {
        let from = |v: usize| Source::Recv(self.peer(v));
        let own = Source::Slice(self.own(Input));
        let left = self.node.left.map(from);
        let sources: Vec<_> = left
            .into_iter()
            .chain([own])
            .chain(self.node.right.map(from))
            .collect();
        let Some(parent) = self.node.parent else {
            let mut sum = Step::of(How::ReduceLast, sources).store(self.own(Output));
            sum.sends.extend(self.children().filter(|_| back));
            return sum;
        };
        let how = if sources.len() == 1 {
            How::Copy
        } else {
            How::Reduce
        };
        Step::of(how, sources).send(self.peer(parent))
    }

    /// Hands what comes from the parent to the children.
    fn down(&self) -> Step {
        let source = match self.node.parent {
            Some(parent) => Source::Recv(self.peer(parent)),
            None => Source::Slice(self.own(Input)),
        };
        let mut step = Step::copy(source).store(self.own(Output));
        step.sends = self.children().collect();
        step
    }
}

/// Whom a rank has to do with in a tree, all counted from the root on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Node {
    parent: Option<usize>,
    left: Option<usize>,
    right: Option<usize>,
}

impl Node {
    /// The node of `v` in tree `half` of `n` ranks.
    fn of(half: usize, v: usize, n: usize) -> Node {
        if half == 0 {
            return Node::first(v, n);
        }
        let Node { parent, left, right } = Node::first(place(v, n), n);
        let [parent, left, right] = [parent, left, right].map(|node| node.map(|at| holder(at, n)));
        Node { parent, left, right }
    }

    /// The node of `v` in the first tree: the subtree of height h below it is v − 2^h + 1 ..= v + 2^h − 1, as far as it is
    /// there.
    fn first(v: usize, n: usize) -> Node {
        let unit = if v == 0 {
            n.next_power_of_two()
        } else {
            1 << v.trailing_zeros()
        };
        let above = (v ^ unit) | (2 * unit);
        let steps = std::iter::successors(Some(unit / 2), |step| Some(step / 2)).take_while(|&step| step > 0);
        Node {
            parent: (v > 0).then_some(if above < n { above } else { v ^ unit }),
            left: (v > 0 && unit > 1).then(|| v - unit / 2),
            right: steps.map(|step| v + step).find(|&right| right < n),
        }
    }

    fn children(&self) -> impl Iterator<Item = usize> + use<> {
        self.left.into_iter().chain(self.right)
    }
}

/// Whose place in the first tree `v` has in the second: an odd one if its own is even.
fn place(v: usize, n: usize) -> usize {
    match v {
        0 => 0,
        _ if n % 2 == 1 => n - v,
        1 => n - 1,
        _ => v - 1,
    }
}

/// Who has the place `at` in the second tree.
fn holder(at: usize, n: usize) -> usize {
    match at {
        0 => 0,
        _ if n % 2 == 1 => n - at,
        _ if at == n - 1 => 1,
        _ => at + 1,
    }
}

/// Counted rank by rank. With tiles the ranks' work overlaps, but for the first tile's way up and down.
fn counts(load: &Load) -> Counts {
    let n = load.ranks;
    if n == 1 {
        return Counts::ALONE;
    }
    let layout = Layout {
        count: load.count,
        blocks: 2,
        grains: 1,
    };
    // Ways on which a half passes between two ranks: up, down, or both.
    let ways = if load.collective == Collective::AllReduce {
        2.0
    } else {
        1.0
    };
    let adds = if load.collective.reduces() { 1.0 } else { 0.0 };
    let mut all = Work::NONE;
    let mut busiest = Work::NONE;
    for v in 0..n {
        let mut work = Work::NONE;
        for half in [0, 1] {
            let bytes = (layout.grain(half).len() * load.element) as f64;
            let node = Node::of(half, v, n);
            let children = node.children().count() as f64;
            let peers = children + if node.parent.is_some() { 1.0 } else { 0.0 };
            work.pass(ways * peers, bytes);
            work.reduced += adds * children * bytes;
        }
        all.add(&work);
        busiest.raise_to(&work);
    }
    let rounds = ways * f64::from(n.next_power_of_two().ilog2());
    let half = load.count.div_ceil(2);
    let tile = TileBytes::SHARED_MEMORY.of_message(half, load.element) as f64;
    Counts {
        rounds,
        // Its neighbours in both trees, whose messages are in flight at the same time.
        peers: 4_f64.min(n as f64 - 1.0),
        message: (half * load.element) as f64,
        // Each rank on the way receives it once and sends it twice.
        lead: 3.0 * (rounds - 1.0) * tile,
        moved: 0.0,
        general: true,
        busiest,
        all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_busy_in_one_tree_is_a_leaf_of_the_other() {
        for n in 1..=600usize {
            let mut deepest = 0;
            for half in [0, 1] {
                let node = |v| Node::of(half, v, n);
                for v in 0..n {
                    for child in node(v).children() {
                        assert_eq!(node(child).parent, Some(v), "{n} ranks, {child}");
                    }
                    let up = std::iter::successors(Some(v), |&v| node(v).parent);
                    deepest = deepest.max(up.count() - 1);
                    let other = Node::of(1 - half, v, n);
                    assert!(
                        v == 0 || node(v).right.is_none() || other.children().count() == 0,
                        "{n} ranks, {v}"
                    );
                }
                // Each but the root is somebody's child, and the root leads to all.
                assert_eq!((0..n).map(|v| node(v).children().count()).sum::<usize>(), n - 1);
                assert!(node(0).children().count() <= 1);
            }
            assert_eq!(deepest, n.next_power_of_two().ilog2() as usize, "{n} ranks");
        }
    }
}
