//! Which nodes look the same from where they are: colour refinement.

use crate::topo::graph::{Graph, LinkKind};
use std::collections::HashMap;

/// Refines colours until nodes of one have as many neighbours, parents and children of each, by edges that are alike; `None` if that
/// takes too long.
pub(super) fn refine(graph: &Graph, mut colours: Vec<u32>) -> Option<Vec<u32>> {
    let mut sorts: HashMap<Sort, u32> = HashMap::new();
    let mut neighbours: Vec<Vec<(u32, usize)>> = vec![Vec::new(); graph.len()];
    for edge in graph.edges() {
        let link = &edge.link;
        let sort = (link.kind, link.bytes_per_second, link.wires, link.reachable);
        let next = sorts.len() as u32;
        let sort = *sorts.entry(sort).or_insert(next);
        neighbours[edge.from.at()].push((2 * sort, edge.to.at()));
        neighbours[edge.to.at()].push((2 * sort + 1, edge.from.at()));
    }
    for node in graph.nodes() {
        if let Some(parent) = graph.parent(node) {
            neighbours[node.at()].push((u32::MAX, parent.at()));
            neighbours[parent.at()].push((u32::MAX - 1, node.at()));
        }
    }
    let round = graph.len() + neighbours.iter().map(Vec::len).sum::<usize>();
    let mut count = 0;
    for _ in 0..(MOST_LOOKS / round.max(1)).min(MOST_ROUNDS) {
        let mut classes: HashMap<(u32, Vec<(u32, u32)>), u32> = HashMap::new();
        let sees = |at: usize| {
            let seen = neighbours[at].iter();
            let mut seen: Vec<_> = seen.map(|&(sort, other)| (sort, colours[other])).collect();
            seen.sort_unstable();
            (colours[at], seen)
        };
        let next: Vec<u32> = (0..graph.len())
            .map(|at| {
                let next = classes.len() as u32;
                *classes.entry(sees(at)).or_insert(next)
            })
            .collect();
        colours = next;
        if classes.len() == count {
            return Some(colours);
        }
        count = classes.len();
    }
    None
}

type Sort = (LinkKind, u64, u32, bool);

const MOST_ROUNDS: usize = 64;

/// Nodes and edges that are looked at, at most.
const MOST_LOOKS: usize = 1 << 25;
