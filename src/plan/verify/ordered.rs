//! Whether contributions are combined in one order, whoever does it: [`Order::Tree`].
//!
//! A grain holds a node of the tree over ranks, and a step combines its sources as the kernels of `reduce` do, by a tree of
//! its own. What comes out must be a node again.

use super::fold::{self, Symmetry};
use super::machine::{Job, Machine, Turn};
use super::team::Team;
use super::value::Domain;
use super::{Flaw, Mode, Proof, verify};
use crate::plan::cost::Order;
use crate::plan::schedule::Schedule;
use crate::types::Collective;
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeSet;

/// Proves the schedules as [`verify`] does, and that they combine in the order that is asked for. With many ranks whose
/// schedules are alike it looks at as many of them as [`verify`] compares.
///
/// # Errors
/// The first [`Flaw`] found.
pub(crate) fn verify_in_order(
    collective: Collective,
    ranks: usize,
    order: Order,
    schedule_of: impl Fn(usize) -> Schedule,
) -> Result<Proof, Flaw> {
    let proof = verify(collective, ranks, &schedule_of)?;
    let Order::Tree { narrow } = order else {
        return Ok(proof);
    };
    match fold::symmetry(collective, ranks, &schedule_of) {
        None => {
            let schedules: Vec<_> = (0..ranks).map(schedule_of).collect();
            run(collective, ranks, &schedules, &Tree::new(ranks, narrow, 0), None)?;
        }
        Some(Symmetry { shift, sample, .. }) => {
            for rank in std::iter::once(0).chain(sample) {
                // What this rank does, as rank 0 would: the order of its sources is its own.
                let schedule = [fold::as_rank_0(&schedule_of(rank), rank, shift)];
                let turn = Turn {
                    grains: shift,
                    ranks: turned,
                };
                let tree = Tree::new(ranks, narrow, rank);
                run(collective, ranks, &schedule, &tree, Some(&turn))
                    .map_err(|flaw| Flaw { rank, ..flaw })?;
            }
        }
    }
    Ok(proof)
}

/// Runs the schedules with one kind of executor: no value depends on which.
fn run(
    collective: Collective,
    ranks: usize,
    schedules: &[Schedule],
    tree: &Tree,
    turn: Option<&Turn<Nodes>>,
) -> Result<(), Flaw> {
    let team = Team::new(collective, ranks, schedules)?;
    for in_place in [false, true] {
        let job = Job {
            team: &team,
            collective,
            in_place,
            mode: Mode::buffered(1),
            domain: tree,
            turn,
        };
        Machine::new(&job, &mut BTreeSet::new()).run()?;
    }
    Ok(())
}

/// The ranks from `start` to `end`, combined by the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Node {
    start: u32,
    end: u32,
}

/// One node; several while a step reduces, one for each source; none where they could not be one.
type Nodes = SmallVec<[Node; 1]>;

/// The tree over all ranks.
struct Tree {
    ranks: u32,
    /// Whether a partial result would be rounded, and so must not come out of a step.
    narrow: bool,
    /// The rank that rank 0 stands for; the others follow it.
    origin: u32,
    everyone: Nodes,
}

impl Tree {
    fn new(ranks: usize, narrow: bool, origin: usize) -> Self {
        let (ranks, origin) = (ranks as u32, origin as u32);
        let everyone = smallvec![Node { start: 0, end: ranks }];
        Tree {
            ranks,
            narrow,
            origin,
            everyone,
        }
    }

    /// Two nodes as one, if they are halves of one.
    fn join(&self, low: Node, high: Node) -> Option<Node> {
        let (mut start, mut end) = (0, self.ranks);
        while end - start > 1 {
            let middle = start + (end - start).next_power_of_two() / 2;
            if (start, middle, middle, end) == (low.start, low.end, high.start, high.end) {
                return Some(Node { start, end });
            }
            (start, end) = if low.start < middle {
                (start, middle)
            } else {
                (middle, end)
            };
        }
        None
    }

    /// What a kernel makes of these, in their order.
    fn combine(&self, nodes: &[Node]) -> Option<Node> {
        match nodes {
            [] => None,
            [only] => Some(*only),
            _ => {
                let (low, high) = nodes.split_at(nodes.len().next_power_of_two() / 2);
                self.join(self.combine(low)?, self.combine(high)?)
            }
        }
    }
}

impl Domain for Tree {
    type Sum = Nodes;

    fn one(&self, rank: usize) -> Nodes {
        let start = (rank as u32 + self.origin) % self.ranks;
        smallvec![Node {
            start,
            end: start + 1
        }]
    }

    fn add(&self, sum: &mut Nodes, more: &Nodes) {
        sum.extend_from_slice(more);
    }

    fn close(&self, sum: &mut Nodes) -> bool {
        let is_partial = |node: &Node| node.end - node.start < self.ranks;
        match self.combine(sum) {
            Some(node) if sum.len() == 1 || !self.narrow || !is_partial(&node) => {
                *sum = smallvec![node];
                true
            }
            _ => false,
        }
    }

    fn everyone(&self) -> &Nodes {
        &self.everyone
    }

    fn text(&self, sum: &Nodes) -> String {
        let one = |node: &Node| match node.end - node.start {
            1 => format!("rank {}", node.start),
            _ => format!("ranks {}..={}", node.start, node.end - 1),
        };
        sum.iter().map(one).collect::<Vec<_>>().join(" and ")
    }
}

/// A value of rank 0 as the rank that is `by` further on would have it: a contribution of its own, or what all have
/// together. The tree has no other nodes that would look alike.
fn turned(nodes: &Nodes, by: u32, ranks: u32) -> Nodes {
    match nodes.as_slice() {
        [Node { start, end }] if end - start == 1 => {
            let start = (start + by) % ranks;
            smallvec![Node {
                start,
                end: start + 1
            }]
        }
        [Node { start: 0, end }] if *end == ranks => nodes.clone(),
        _ => Nodes::new(),
    }
}
