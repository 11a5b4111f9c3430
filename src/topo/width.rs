//! How much an edge is taken to carry, also where no source says.

use super::{
    graph::{Edge, Graph, LinkKind, NodeKind},
    speeds,
};

/// Bytes a second of an edge, alone: at most what its group has; 0 if it must not be used. Where no source says, what such
/// links usually carry, and of networks less with every tier of switches.
pub fn width(graph: &Graph, edge: &Edge) -> u64 {
    let link = &edge.link;
    if !link.reachable {
        return 0;
    }
    let own = match link.bytes_per_second {
        0 => usual(graph, edge),
        bytes => bytes,
    };
    let shared = link.group.map_or(0, |group| graph.group(group).bytes_per_second);
    let width = if shared > 0 { own.min(shared) } else { own };
    width.clamp(1, MOST)
}

/// Whether a source, or a table, says what an edge carries.
pub fn is_known(edge: &Edge) -> bool {
    edge.link.bytes_per_second > 0 || edge.link.kind == LinkKind::Local
}

/// More than anything carries; sums of many are far below 2⁶⁴.
pub const MOST: u64 = 1 << 46;

fn usual(graph: &Graph, edge: &Edge) -> u64 {
    let wires = u64::from(edge.link.wires);
    match edge.link.kind {
        LinkKind::Local => MOST,
        LinkKind::NvLink => speeds::nvlink(None).saturating_mul(wires),
        LinkKind::XGmi | LinkKind::Hccs => speeds::xgmi("").saturating_mul(wires),
        LinkKind::C2c => 100 * GB,
        LinkKind::Pcie => speeds::PCIE,
        LinkKind::Memory | LinkKind::Shm => 20 * GB,
        LinkKind::Socket => speeds::socket("", "", 0, 0),
        LinkKind::Ib | LinkKind::Roce | LinkKind::Tcp | LinkKind::Wan | LinkKind::Opaque => {
            let [one, other] = [edge.from, edge.to].map(|node| graph.kind(node));
            let (low, high) = (tier(one).min(tier(other)), tier(one).max(tier(other)));
            // Something unknown above switches is one more tier.
            let above = u32::from(low > 0 && [one, other].contains(&NodeKind::Opaque));
            let tiers = (high.max(1) + above).max(if edge.link.kind == LinkKind::Wan { 4 } else { 1 });
            speeds::network(speeds::NETWORK_MEGABITS) >> (2 * (tiers - 1))
        }
    }
}

/// How far above hosts a kind of node is in a network.
pub(super) fn tier(kind: NodeKind) -> u32 {
    match kind {
        NodeKind::Leaf | NodeKind::Opaque => 1,
        NodeKind::Spine => 2,
        NodeKind::CoreSwitch => 3,
        NodeKind::Wan => 4,
        _ => 0,
    }
}

const GB: u64 = 1000 * speeds::MB;
