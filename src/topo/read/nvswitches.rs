//! NVSwitches of a host: hardware spreads what GPUs send over all that they share, so these are one to whoever looks for a way.

use crate::topo::graph::NodeId;
use std::collections::HashMap;

/// For each switch the first of those that it shares GPUs with, itself or through others. Links are a GPU and a switch.
pub(super) fn firsts(links: &[(NodeId, NodeId)]) -> HashMap<NodeId, NodeId> {
    // Each switch leads to an earlier one of its group, or is the first and leads to itself.
    let mut earlier: HashMap<NodeId, NodeId> = HashMap::new();
    let mut one_of: HashMap<NodeId, NodeId> = HashMap::new();
    for &(gpu, switch) in links {
        earlier.entry(switch).or_insert(switch);
        let other = *one_of.entry(gpu).or_insert(switch);
        let firsts = [switch, other].map(|node| first(&mut earlier, node));
        earlier.insert(firsts[0].max(firsts[1]), firsts[0].min(firsts[1]));
    }
    let mut switches: Vec<NodeId> = earlier.keys().copied().collect();
    switches.sort();
    let pairs = switches
        .iter()
        .map(|&switch| (switch, first(&mut earlier, switch)));
    pairs.collect()
}

fn first(earlier: &mut HashMap<NodeId, NodeId>, node: NodeId) -> NodeId {
    let mut node = node;
    while let Some(&next) = earlier.get(&node).filter(|next| **next != node) {
        // Halves the way for whoever comes after.
        let beyond = earlier.get(&next).copied().unwrap_or(next);
        earlier.insert(node, beyond);
        node = beyond;
    }
    node
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topo::graph::{Graph, NodeKind, Origin};

    #[test]
    fn switches_that_share_gpus_are_one() {
        let mut graph = Graph::new();
        let nodes: Vec<NodeId> = (0..9)
            .map(|_| graph.add_node(NodeKind::NvSwitch, "", None, Origin::ASSUMED))
            .collect();
        let links = [(6, 5), (6, 3), (7, 1), (7, 2), (8, 4), (8, 3)];
        let links = links.map(|(gpu, switch)| (nodes[gpu], nodes[switch]));
        let firsts = firsts(&links);
        let of = |switch: usize| {
            nodes
                .iter()
                .position(|node| firsts.get(&nodes[switch]) == Some(node))
        };
        let wanted = [None, Some(1), Some(1), Some(3), Some(3), Some(3)];
        assert_eq!([0, 1, 2, 3, 4, 5].map(of), wanted);
    }
}
