//! [`Paths`]: how data gets from a node to all others, and how good the way is.
//!
//! A way is as bad as the worst part of it ([`Way`], in NCCL's words); among equals the one with the most bandwidth, then, as far as
//! they are told apart on the way, with the fewest edges is taken. It goes only over edges that are reachable, and through nodes that forward; through one GPU between
//! two NVLinks, too, which is somebody's work and so a way of its own.

use super::graph::{EdgeId, Graph, Link, LinkKind, NodeId, NodeKind};
use std::{cmp::Reverse, collections::BinaryHeap};

/// What a way leads over, the better first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// Inside one device.
    Local,
    /// Direct links between accelerators, or a switch of such.
    NvLink,
    /// NVLinks through another GPU.
    NvLinkRelay,
    /// A link between a GPU and a processor.
    C2c,
    /// At most one PCI switch.
    Switch,
    /// Several PCI switches.
    Switches,
    /// A processor's root complex.
    HostBridge,
    /// Between NUMA nodes.
    Socket,
    /// A network.
    Network,
    /// Something of which no more is known.
    Unknown,
}

impl Way {
    /// As `nvidia-smi topo -m` and NCCL write it.
    pub fn name(self) -> &'static str {
        match self {
            Way::Local => "LOC",
            Way::NvLink => "NVL",
            Way::NvLinkRelay => "NVB",
            Way::C2c => "C2C",
            Way::Switch => "PIX",
            Way::Switches => "PXB",
            Way::HostBridge => "PHB",
            Way::Socket => "SYS",
            Way::Network => "NET",
            Way::Unknown => "UNK",
        }
    }

    /// All, the better first, with what they mean.
    pub const ALL: [(Way, &str); 10] = [
        (Way::Local, "inside one device"),
        (Way::NvLink, "NVLink or xGMI, directly or through a switch of it"),
        (Way::NvLinkRelay, "NVLink or xGMI through another GPU"),
        (Way::C2c, "the link of a GPU and its processor"),
        (Way::Switch, "at most one PCI switch"),
        (Way::Switches, "several PCI switches"),
        (Way::HostBridge, "a processor's PCI bridge"),
        (Way::Socket, "between NUMA nodes"),
        (Way::Network, "a network"),
        (Way::Unknown, "a link of unknown kind"),
    ];
}

/// The best ways from one node.
#[derive(Debug)]
pub struct Paths {
    /// Where the labels of nodes are.
    best: Vec<u32>,
    labels: Vec<Label>,
}

/// How a node is reached.
#[derive(Debug, Clone, Copy)]
pub struct Label {
    /// What the way leads over.
    pub way: Way,
    /// Bytes a second of its slowest edge of known speed; `u64::MAX` if none is known.
    pub bytes_per_second: u64,
    /// How many edges it has.
    pub edges: u32,
    /// Wires of its first edge.
    pub wires: u32,
    /// Whether it has led through a network, and out of it.
    abroad: Abroad,
    /// Its last edge, and the label before it; none where it begins.
    last: Option<EdgeId>,
    before: u32,
}

/// How far a way has been in a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Abroad {
    Never,
    Now,
    Been,
}

/// No label.
const NONE: u32 = u32::MAX;

impl Paths {
    /// Finds the best way from a node to each that can be reached.
    pub fn from(graph: &Graph, from: NodeId) -> Self {
        Paths::find(graph, from, true)
    }

    /// The same, through no GPU at all: what is reached so needs nobody's work.
    pub fn direct(graph: &Graph, from: NodeId) -> Self {
        Paths::find(graph, from, false)
    }

    /// A way that is worse but wider than a node's best one is no way to it, but may be part of a better one to what is behind, where
    /// all ways are so bad: such labels go on, too. Each is wider than all better ones of its node, so there are few.
    fn find(graph: &Graph, from: NodeId, relays: bool) -> Self {
        let mut best = vec![NONE; graph.len()];
        // By node, the widest label that is done, and the best of those that are not, while there is one.
        let mut widest: Vec<u64> = vec![0; graph.len()];
        let mut open = vec![NONE; graph.len()];
        let mut labels = vec![Label {
            way: Way::Local,
            bytes_per_second: u64::MAX,
            edges: 0,
            wires: 0,
            abroad: Abroad::Never,
            last: None,
            before: NONE,
        }];
        let mut heap = BinaryHeap::from([Reverse((key(&labels[0]), from, 0_u32))]);
        while let Some(Reverse((_, node, place))) = heap.pop() {
            let label = labels[place as usize];
            if open[node.at()] == place {
                open[node.at()] = NONE;
            }
            if label.bytes_per_second <= widest[node.at()] {
                continue;
            }
            widest[node.at()] = label.bytes_per_second;
            if best[node.at()] == NONE {
                best[node.at()] = place;
            }
            for id in graph.edges_from(node) {
                let to = graph.edge(id).to.at();
                let Some(longer) = longer(graph, node, from, &label, id) else {
                    continue;
                };
                let is_relay = longer.way == Way::NvLinkRelay && !relays;
                if is_relay || longer.bytes_per_second <= widest[to] {
                    continue;
                }
                let rival = labels.get(open[to] as usize);
                if rival.is_some_and(|rival| is_as_good(rival, &longer)) {
                    continue;
                }
                let new =
                    u32::try_from(labels.len()).expect("fewer than 2^32: each takes more than 32 bytes");
                if rival.is_none_or(|rival| key(&longer) < key(rival)) {
                    open[to] = new;
                }
                heap.push(Reverse((key(&longer), graph.edge(id).to, new)));
                labels.push(Label {
                    before: place,
                    ..longer
                });
            }
        }
        Paths { best, labels }
    }

    /// The best way to a node, if there is one.
    pub fn to(&self, node: NodeId) -> Option<&Label> {
        self.labels.get(self.best[node.at()] as usize)
    }

    /// Its edges, from the first to the last.
    pub fn edges(&self, to: NodeId) -> Vec<EdgeId> {
        let mut edges = Vec::new();
        let mut label = self.to(to);
        while let Some(&Label {
            last: Some(last),
            before,
            ..
        }) = label
        {
            edges.push(last);
            label = self.labels.get(before as usize);
        }
        edges.reverse();
        edges
    }
}

/// Whether nothing that goes on from one label is better than what goes on from another.
fn is_as_good(one: &Label, other: &Label) -> bool {
    one.way <= other.way && one.bytes_per_second >= other.bytes_per_second && one.edges <= other.edges
}

/// What is less is better.
fn key(label: &Label) -> (Way, Reverse<u64>, u32) {
    (label.way, Reverse(label.bytes_per_second), label.edges)
}

/// A way with one more edge, if data may go on there.
fn longer(graph: &Graph, node: NodeId, from: NodeId, label: &Label, id: EdgeId) -> Option<Label> {
    let edge = graph.edge(id);
    if !edge.link.reachable {
        return None;
    }
    let way = of_edge(graph, node, edge.to, &edge.link);
    let own = graph.kind(from) == NodeKind::Rank && label.edges == 1 && label.way == Way::Local;
    // A host that got it from the network does not send it on there, of whatever kind the links are, and however many of its parts lie
    // in between.
    let (here, there) = (is_network(graph, node), is_network(graph, edge.to));
    let goes_abroad = way == Way::Network || here || there;
    let on = goes_abroad && label.abroad != Abroad::Never;
    let abroad = match label.abroad {
        _ if goes_abroad => Abroad::Now,
        Abroad::Never => Abroad::Never,
        Abroad::Now | Abroad::Been => Abroad::Been,
    };
    let way = match graph.kind(node) {
        NodeKind::Host | NodeKind::Nic | NodeKind::NicPort if on => return None,
        // A switch of NVLinks is a PCI function for those that manage it: no data goes from one to the other.
        NodeKind::NvSwitch if node != from && leaves_pcie(graph, label, &edge.link) => return None,
        _ if node == from || own => way,
        NodeKind::Gpu | NodeKind::Npu if way == Way::Local => way, // A rank of this GPU, where the way ends.
        NodeKind::Gpu | NodeKind::Npu if label.way == Way::NvLink && way == Way::NvLink => Way::NvLinkRelay,
        kind if kind.forwards() => way,
        _ => return None,
    };
    let speed = match edge.link.bytes_per_second {
        0 => u64::MAX,
        speed => speed,
    };
    Some(Label {
        way: label.way.max(way),
        bytes_per_second: label.bytes_per_second.min(speed),
        edges: label.edges + 1,
        wires: if label.edges == 0 {
            edge.link.wires
        } else {
            label.wires
        },
        abroad,
        last: Some(id),
        before: NONE,
    })
}

/// Whether a node is a part of a network, not of a host: of unknown ones those that lie in nothing.
fn is_network(graph: &Graph, node: NodeId) -> bool {
    use NodeKind::*;
    match graph.kind(node) {
        Leaf | Spine | CoreSwitch | Wan => true,
        Opaque | NvSwitch => graph.parent(node).is_none(),
        _ => false,
    }
}

fn leaves_pcie(graph: &Graph, label: &Label, next: &Link) -> bool {
    let last = label.last.map(|last| graph.edge(last).link.kind);
    last.is_some_and(|last| (last == LinkKind::Pcie) != (next.kind == LinkKind::Pcie))
}

fn of_edge(graph: &Graph, from: NodeId, to: NodeId, link: &Link) -> Way {
    let ends = [graph.kind(from), graph.kind(to)];
    match link.kind {
        // Switches that are joined beside the tree: for NCCL, too, two are several.
        LinkKind::Local if ends == [NodeKind::PciSwitch; 2] => Way::Switches,
        LinkKind::Local => Way::Local,
        LinkKind::NvLink | LinkKind::XGmi | LinkKind::Hccs => Way::NvLink,
        LinkKind::C2c => Way::C2c,
        LinkKind::Pcie if ends.iter().any(|kind| is_processor(*kind)) => Way::HostBridge,
        LinkKind::Pcie if ends == [NodeKind::PciSwitch; 2] && !is_inside(graph, from, to) => Way::Switches,
        LinkKind::Pcie => Way::Switch,
        LinkKind::Memory | LinkKind::Shm => Way::HostBridge,
        LinkKind::Socket => Way::Socket,
        LinkKind::Opaque => Way::Unknown,
        LinkKind::Ib | LinkKind::Roce | LinkKind::Tcp | LinkKind::Wan => {
            // A port is a part of its adapter.
            let inside = ends.contains(&NodeKind::Nic) && ends.contains(&NodeKind::NicPort);
            if inside { Way::Local } else { Way::Network }
        }
    }
}

/// Whether an edge between bridges leads from one port of a switch to another of it. Below a root complex there are in turn a root's
/// port, then each switch's upstream port and its downstream ports. Where no root is told a switch is one node.
fn is_inside(graph: &Graph, from: NodeId, to: NodeId) -> bool {
    let lower = match (graph.parent(from), graph.parent(to)) {
        (Some(above), _) if above == to => from,
        (_, Some(above)) if above == from => to,
        _ => return false,
    };
    let mut depth = 0;
    for above in graph.ancestors(lower).take(BUSES) {
        match graph.kind(above) {
            NodeKind::PciSwitch => depth += 1,
            NodeKind::RootComplex => return depth >= 2 && depth % 2 == 0,
            _ => return false,
        }
    }
    false
}

/// Bridges within one another, at most: each has a bus of its own.
const BUSES: usize = 256;

fn is_processor(kind: NodeKind) -> bool {
    use NodeKind::*;
    matches!(kind, Numa | RootComplex | Package | Host | Cores)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topo::graph::{Confidence, Origin};

    fn link(kind: LinkKind, gb: u64) -> Link {
        Link::new(kind, Origin::ASSUMED).speed(gb * 1_000_000_000, Confidence::Declared)
    }

    fn way(graph: &Graph, from: NodeId, to: NodeId) -> Option<(&'static str, u64)> {
        let paths = Paths::from(graph, from);
        let label = *paths.to(to)?;
        let edges = paths.edges(to);
        assert_eq!(edges.len(), label.edges as usize);
        assert_eq!(edges.last().map(|edge| graph.edge(*edge).to), Some(to));
        Some((label.way.name(), label.bytes_per_second / 1_000_000_000))
    }

    #[test]
    fn a_gpu_relays_once_between_nvlinks_and_forwards_nothing_else() {
        let mut graph = Graph::new();
        let mut gpu = |name| graph.add_node(NodeKind::Gpu, name, None, Origin::ASSUMED);
        let [a, b, c, d] = ["a", "b", "c", "d"].map(&mut gpu);
        graph.join(a, b, link(LinkKind::NvLink, 40));
        graph.join(b, c, link(LinkKind::NvLink, 20));
        graph.join(c, d, link(LinkKind::NvLink, 20));
        assert_eq!(way(&graph, a, b), Some(("NVL", 40)));
        assert_eq!(way(&graph, a, c), Some(("NVB", 20)));
        assert_eq!(way(&graph, a, d), None, "two relays");
        let switch = graph.add_node(NodeKind::PciSwitch, "switch", None, Origin::ASSUMED);
        let other = graph.add_node(NodeKind::PciSwitch, "other", None, Origin::ASSUMED);
        graph.join(switch, other, link(LinkKind::Pcie, 12));
        graph.join(switch, a, link(LinkKind::Pcie, 24));
        graph.join(switch, b, link(LinkKind::Pcie, 24));
        graph.join(other, d, link(LinkKind::Pcie, 24));
        assert_eq!(way(&graph, a, d), Some(("PXB", 12)));
        assert_eq!(way(&graph, a, switch), Some(("PIX", 24)));
        let rank = graph.add_node(NodeKind::Rank, "rank", Some(a), Origin::ASSUMED);
        let peer = graph.add_node(NodeKind::Rank, "peer", Some(b), Origin::ASSUMED);
        graph.join(a, rank, Link::new(LinkKind::Local, Origin::ASSUMED));
        graph.join(b, peer, Link::new(LinkKind::Local, Origin::ASSUMED));
        assert_eq!(way(&graph, rank, peer), Some(("NVL", 40)));
    }

    #[test]
    fn a_switch_of_nvlinks_joins_gpus_and_not_their_pci_tree() {
        let mut graph = Graph::new();
        let bridge = graph.add_node(NodeKind::PciSwitch, "bridge", None, Origin::ASSUMED);
        let mut inside = |kind, name| graph.add_node(kind, name, Some(bridge), Origin::ASSUMED);
        let nvswitch = inside(NodeKind::NvSwitch, "nvswitch");
        let [gpu, other] = ["gpu", "other"].map(|name| inside(NodeKind::Gpu, name));
        graph.join(bridge, nvswitch, link(LinkKind::Pcie, 12));
        for gpu in [gpu, other] {
            graph.join(gpu, nvswitch, link(LinkKind::NvLink, 240));
        }
        assert_eq!(way(&graph, gpu, other), Some(("NVL", 240)));
        assert_eq!(way(&graph, gpu, bridge), None);
        assert_eq!(way(&graph, bridge, gpu), None);
        assert_eq!(way(&graph, nvswitch, bridge), Some(("PIX", 12)));
    }

    #[test]
    fn ports_of_a_switch_are_one_switch() {
        let mut graph = Graph::new();
        let root = graph.add_node(NodeKind::RootComplex, "root", None, Origin::ASSUMED);
        let mut below = |kind, parent| {
            let node = graph.add_node(kind, "", Some(parent), Origin::ASSUMED);
            graph.join(parent, node, link(LinkKind::Pcie, 12));
            node
        };
        let port = below(NodeKind::PciSwitch, root);
        let mut switch = |parent: NodeId| {
            let up = below(NodeKind::PciSwitch, parent);
            [(); 3].map(|()| below(NodeKind::PciSwitch, up))
        };
        // One switch below the root's port, and another below one of its ports.
        let [one, two, three] = switch(port);
        let [inner, other, _] = switch(three);
        let mut gpu = |port| below(NodeKind::Gpu, port);
        let gpus = [one, two, inner, other].map(&mut gpu);
        let ways = [1, 2, 3].map(|to: usize| way(&graph, gpus[0], gpus[to]).unwrap().0);
        assert_eq!(ways, ["PIX", "PXB", "PXB"]);
        assert_eq!(way(&graph, gpus[2], gpus[3]), Some(("PIX", 12)));
        assert_eq!(way(&graph, gpus[2], root), Some(("PHB", 12)));
    }

    #[test]
    fn links_of_unknown_kind_are_the_last_choice() {
        let mut graph = Graph::new();
        let mut numa = |name| graph.add_node(NodeKind::Numa, name, None, Origin::ASSUMED);
        let [a, b, c] = ["a", "b", "c"].map(&mut numa);
        graph.join(a, b, link(LinkKind::Opaque, 99));
        assert_eq!(way(&graph, a, b), Some(("UNK", 99)));
        graph.join(a, c, link(LinkKind::Tcp, 1));
        graph.join(c, b, link(LinkKind::Socket, 1));
        assert_eq!(way(&graph, a, b), Some(("NET", 1)));
    }

    #[test]
    fn a_worse_but_wider_part_is_taken_where_the_whole_is_as_bad() {
        let mut graph = Graph::new();
        let mut numa = |name| graph.add_node(NodeKind::Numa, name, None, Origin::ASSUMED);
        let [s, x, t, far] = ["s", "x", "t", "far"].map(&mut numa);
        graph.join(s, x, link(LinkKind::NvLink, 1));
        graph.join(s, x, link(LinkKind::Pcie, 100));
        graph.join(x, t, link(LinkKind::Socket, 100));
        graph.join(t, far, link(LinkKind::Socket, 50));
        assert_eq!(way(&graph, s, x), Some(("NVL", 1)));
        assert_eq!(way(&graph, s, t), Some(("SYS", 100)));
        assert_eq!(way(&graph, s, far), Some(("SYS", 50)));
    }

    #[test]
    fn what_must_not_be_used_is_not() {
        let mut graph = Graph::new();
        let mut numa = |name| graph.add_node(NodeKind::Numa, name, None, Origin::ASSUMED);
        let [a, b, c] = ["a", "b", "c"].map(&mut numa);
        graph.join(
            a,
            b,
            Link {
                reachable: false,
                ..link(LinkKind::Socket, 99)
            },
        );
        graph.join(a, c, link(LinkKind::Socket, 10));
        graph.add_edge(c, b, link(LinkKind::Socket, 20));
        assert_eq!(way(&graph, a, b), Some(("SYS", 10)));
        assert_eq!(way(&graph, b, a), None, "one way only");
        let paths = Paths::from(&graph, a);
        assert_eq!((paths.to(a).unwrap().edges, paths.edges(a).len()), (0, 0));
    }

    #[test]
    fn hosts_in_a_ring_reach_their_neighbours_only() {
        let mut graph = Graph::new();
        let hosts: Vec<[NodeId; 3]> = (0..4)
            .map(|host| {
                let numa = graph.add_node(NodeKind::Numa, &format!("{host}"), None, Origin::ASSUMED);
                let ports = ["left", "right"].map(|side| {
                    let nic = graph.add_node(NodeKind::Nic, side, Some(numa), Origin::ASSUMED);
                    let port = graph.add_node(NodeKind::NicPort, side, Some(nic), Origin::ASSUMED);
                    graph.join(numa, nic, link(LinkKind::Pcie, 24));
                    graph.join(nic, port, link(LinkKind::Roce, 25));
                    port
                });
                [numa, ports[0], ports[1]]
            })
            .collect();
        for host in 0..4 {
            graph.join(hosts[host][2], hosts[(host + 1) % 4][1], link(LinkKind::Roce, 25));
        }
        assert_eq!(way(&graph, hosts[0][0], hosts[1][0]), Some(("NET", 24)));
        assert_eq!(way(&graph, hosts[0][0], hosts[3][0]), Some(("NET", 24)));
        assert_eq!(way(&graph, hosts[0][0], hosts[2][0]), None);
    }

    #[test]
    fn hosts_and_adapters_pass_nothing_on_between_switches() {
        let mut graph = Graph::new();
        let mut add = |kind, parent| graph.add_node(kind, "", parent, Origin::ASSUMED);
        let leaves = [(); 2].map(|()| add(NodeKind::Leaf, None));
        let between = add(NodeKind::Opaque, None);
        let hosts = [(); 3].map(|()| add(NodeKind::Host, None));
        let nic = add(NodeKind::Nic, Some(hosts[1]));
        // Something of which no more is known, in a host.
        let bus = add(NodeKind::Opaque, Some(hosts[0]));
        let [one, other] = [(); 2].map(|()| add(NodeKind::Numa, Some(hosts[0])));
        let opaque = link(LinkKind::Opaque, 1);
        for (leaf, ends) in [
            (leaves[0], [hosts[0], hosts[1]]),
            (leaves[1], [hosts[1], hosts[2]]),
        ] {
            for end in ends {
                graph.join(leaf, end, opaque);
            }
        }
        assert_eq!(way(&graph, hosts[0], hosts[1]), Some(("UNK", 1)));
        assert_eq!(way(&graph, hosts[0], hosts[2]), None, "two networks");
        for leaf in leaves {
            graph.join(leaf, nic, link(LinkKind::Roce, 1));
        }
        assert_eq!(way(&graph, hosts[0], hosts[2]), None, "an adapter in both");
        for (inner, to) in [(one, bus), (other, bus), (one, hosts[0]), (bus, hosts[0])] {
            graph.join(inner, to, opaque);
        }
        assert_eq!(way(&graph, other, hosts[0]), Some(("UNK", 1)));
        assert_eq!(way(&graph, other, hosts[1]), Some(("UNK", 1)));
        assert_eq!(way(&graph, other, hosts[2]), None);
        graph.join(between, hosts[1], opaque);
        assert_eq!(
            way(&graph, between, hosts[2]),
            None,
            "a network of which no more is known"
        );
        for leaf in leaves {
            graph.join(leaf, between, opaque);
        }
        assert_eq!(way(&graph, hosts[0], hosts[2]), Some(("UNK", 1)));
    }

    #[test]
    fn a_long_chain_does_not_overflow_the_stack() {
        let mut graph = Graph::new();
        let mut last = graph.add_node(NodeKind::PciSwitch, "0", None, Origin::ASSUMED);
        let first = last;
        for _ in 0..20_000 {
            let next = graph.add_node(NodeKind::PciSwitch, "n", Some(last), Origin::ASSUMED);
            graph.join(last, next, link(LinkKind::Pcie, 12));
            last = next;
        }
        assert_eq!(way(&graph, first, last), Some(("PXB", 12)));
        assert_eq!(graph.ancestors(last).count(), 20_000);
    }
}
