use super::*;
use crate::topo::{
    graph::{Confidence, Link, Origin},
    read::read,
    samples,
};

/// What the levels' groups are, and how large.
fn shape(graph: &Graph) -> Vec<(String, Vec<usize>)> {
    let levels = Levels::of(graph);
    for (inner, outer) in levels.levels.iter().zip(levels.levels.iter().skip(1)) {
        assert!(inner.bytes_per_second >= outer.bytes_per_second);
        for group in &inner.groups {
            let around = outer
                .groups
                .iter()
                .find(|around| around.members.contains(&group.members[0]));
            let around = around.expect("each level has all endpoints");
            assert!(group.members.iter().all(|member| around.members.contains(member)));
        }
    }
    let sizes = |level: &Level| level.groups.iter().map(|group| group.members.len()).collect();
    levels
        .levels
        .iter()
        .map(|level| (level.name.clone(), sizes(level)))
        .collect()
}

fn is(name: &str, sizes: &[usize]) -> (String, Vec<usize>) {
    (name.to_owned(), sizes.to_vec())
}

#[test]
fn levels_of_machines_are_what_they_are() {
    let h100 = samples::graph("nccl-xml/oci-h100-topology-kubernetes.xml");
    assert_eq!(shape(&h100), [is("host", &[8])]);
    let p4d = samples::graph("nccl-xml/aws-p4d-24xl-topo.xml");
    assert_eq!(shape(&p4d), [is("NUMA node", &[4, 4]), is("host", &[8])]);
    let text = "<system version=\"1\">
        <cpu numaid=\"0\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"85\">
          <pci busid=\"0000:10:00.0\" class=\"0x060400\" link_speed=\"16 GT/s\" link_width=\"8\">
            <pci busid=\"0000:11:00.0\" class=\"0x030200\" link_speed=\"16 GT/s\" link_width=\"16\"/>
            <pci busid=\"0000:12:00.0\" class=\"0x030200\" link_speed=\"16 GT/s\" link_width=\"16\"/></pci>
          <pci busid=\"0000:13:00.0\" class=\"0x030200\" link_speed=\"8 GT/s\" link_width=\"16\"/></cpu>
        <cpu numaid=\"1\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"85\">
          <pci busid=\"0000:21:00.0\" class=\"0x030200\" link_speed=\"16 GT/s\" link_width=\"16\"/></cpu>
        </system>";
    let (reading, _) = read(text, "t.xml").unwrap();
    let wanted = [
        is("PCI switch", &[2, 1, 1]),
        is("NUMA node", &[3, 1]),
        is("host", &[4]),
    ];
    assert_eq!(shape(&reading.graph), wanted);
}

#[test]
fn levels_of_networks_are_tiers() {
    let tree = samples::graph("own/slurm-tree.conf");
    let levels = shape(&tree);
    let kinds: Vec<&str> = levels.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(kinds, ["leaf switch", "spine switch", "core switch"]);
    assert_eq!(levels[0].1, [32, 32, 28, 32, 17, 8]);
    assert_eq!(levels[1].1, [124, 25]);
    assert_eq!(levels[2].1, [149]);
    let blocks = shape(&samples::graph("own/slurm-block.conf"));
    assert_eq!(blocks[0], is("leaf switch", &[18, 18, 17]));
    assert_eq!(blocks[1].1, [53]);
    assert_eq!(blocks.len(), 2);
    let levels = Levels::of(&tree);
    assert!(
        levels.levels[0].groups[0]
            .is
            .is_some_and(|leaf| tree.name(leaf) == "rack01")
    );
}

/// Hosts below a switch, with so many GPUs on each.
fn cluster(hosts: &[usize]) -> Graph {
    let mut graph = Graph::new();
    let link =
        |kind, gb: u64| Link::new(kind, Origin::ASSUMED).speed(gb * 1_000_000_000, Confidence::Declared);
    let leaf = graph.add_node(NodeKind::Leaf, "leaf", None, Origin::ASSUMED);
    for (number, gpus) in hosts.iter().enumerate() {
        let host = graph.add_node(NodeKind::Host, &format!("host {number}"), None, Origin::ASSUMED);
        graph.join(leaf, host, link(LinkKind::Ib, 25));
        let switch = graph.add_node(NodeKind::NvSwitch, "switch", Some(host), Origin::ASSUMED);
        for _ in 0..*gpus {
            let gpu = graph.add_node(NodeKind::Gpu, "gpu", Some(host), Origin::ASSUMED);
            graph.join(host, gpu, link(LinkKind::Pcie, 48));
            graph.join(switch, gpu, link(LinkKind::NvLink, 370));
        }
    }
    graph
}

#[test]
fn hosts_may_be_unequal() {
    for hosts in [&[3, 1][..], &[2, 2, 1], &[8; 10]] {
        let all = hosts.iter().sum();
        assert_eq!(
            shape(&cluster(hosts)),
            [is("host", hosts), is("leaf switch", &[all])]
        );
    }
    assert_eq!(shape(&Graph::new()), []);
    let mut two = Graph::new();
    for name in ["a", "b"] {
        two.add_node(NodeKind::Gpu, name, None, Origin::ASSUMED);
    }
    assert_eq!(shape(&two), [is("group", &[1, 1])]);
}

#[test]
fn levels_are_those_of_the_widest_ways() {
    let mut random = fastrand::Rng::with_seed(8);
    for _ in 0..60 {
        let mut graph = Graph::new();
        let count = random.usize(2..14);
        let nodes: Vec<NodeId> = (0..count)
            .map(|_| {
                let kind = if random.bool() {
                    NodeKind::Gpu
                } else {
                    NodeKind::PciSwitch
                };
                graph.add_node(kind, "n", None, Origin::ASSUMED)
            })
            .collect();
        let mut widest = vec![vec![0_u64; count]; count];
        for one in 0..count {
            for other in 0..one {
                if random.u8(..3) == 0 {
                    let width = 10_u64.pow(random.u32(6..11)) * random.u64(1..3);
                    let mut link =
                        Link::new(LinkKind::Pcie, Origin::ASSUMED).speed(width, Confidence::Declared);
                    link.reachable = random.u8(..5) > 0;
                    graph.join(nodes[one], nodes[other], link);
                    let width = if link.reachable { width } else { 0 };
                    (widest[one][other], widest[other][one]) = (width, width);
                }
            }
        }
        for middle in 0..count {
            for one in 0..count {
                for other in 0..count {
                    let through = widest[one][middle].min(widest[middle][other]);
                    widest[one][other] = widest[one][other].max(through);
                }
            }
        }
        let levels = Levels::of(&graph);
        assert!(levels.levels.len() <= MOST_LEVELS);
        for level in &levels.levels {
            for (one, &node) in nodes.iter().enumerate() {
                let group = level.groups.iter().find(|group| group.members.contains(&node));
                for (other, peer) in nodes
                    .iter()
                    .enumerate()
                    .filter(|(_, peer)| levels.endpoints.contains(*peer))
                {
                    if let Some(group) = group.filter(|_| one != other) {
                        let near = level.bytes_per_second > 0 && widest[one][other] >= level.bytes_per_second;
                        assert_eq!(group.members.contains(peer), near);
                    }
                }
            }
        }
    }
}

#[test]
fn who_has_no_way_gets_a_relay() {
    // Four hosts in a ring of cables.
    let mut graph = Graph::new();
    let link = |kind| Link::new(kind, Origin::ASSUMED).speed(25_000_000_000, Confidence::Declared);
    let hosts: Vec<[NodeId; 3]> = (0..4)
        .map(|_| {
            let host = graph.add_node(NodeKind::Host, "host", None, Origin::ASSUMED);
            let gpu = graph.add_node(NodeKind::Gpu, "gpu", Some(host), Origin::ASSUMED);
            graph.join(host, gpu, link(LinkKind::Pcie));
            let ports = [0, 1].map(|_| {
                let nic = graph.add_node(NodeKind::Nic, "nic", Some(host), Origin::ASSUMED);
                let port = graph.add_node(NodeKind::NicPort, "port", Some(nic), Origin::ASSUMED);
                graph.join(host, nic, link(LinkKind::Pcie));
                graph.join(nic, port, link(LinkKind::Roce));
                port
            });
            [gpu, ports[0], ports[1]]
        })
        .collect();
    for host in 0..4 {
        graph.join(hosts[host][2], hosts[(host + 1) % 4][1], link(LinkKind::Roce));
    }
    let levels = Levels::of(&graph);
    let [a, b, c, d] = [0, 1, 2, 3].map(|host| hosts[host][0]);
    assert_eq!(levels.relay(&graph, a, b), Some(vec![]));
    assert_eq!(levels.relay(&graph, a, a), Some(vec![]));
    assert_eq!(levels.relay(&graph, a, c), Some(vec![b]));
    assert_eq!(levels.relay(&graph, d, b), Some(vec![a]));
    let alone = graph.add_node(NodeKind::Gpu, "alone", None, Origin::ASSUMED);
    assert_eq!(Levels::of(&graph).relay(&graph, a, alone), None);
    let three = [hosts[0][0], hosts[1][0], hosts[2][0], hosts[3][0]];
    assert_eq!(levels.endpoints, three);
}

#[test]
fn a_hundred_thousand_endpoints_have_levels() {
    let levels = shape_of_large();
    assert_eq!(levels.levels.len(), 2);
    assert_eq!(levels.levels[0].groups.len(), 12_500);
    assert_eq!(levels.order().len(), 100_000);
}

fn shape_of_large() -> Levels {
    Levels::of(&cluster(&[8; 12_500]))
}

#[test]
fn memory_without_processors_is_an_endpoint_where_there_is_nothing_else() {
    let with = |cpus: &[&str]| {
        let mut graph = Graph::new();
        for cpus in cpus {
            let numa = graph.add_node(NodeKind::Numa, "numa", None, Origin::ASSUMED);
            graph.set(numa, "cpulist", cpus);
        }
        graph.add_node(NodeKind::Numa, "numa", None, Origin::ASSUMED);
        graph
    };
    assert_eq!(endpoints(&with(&["", "0-3", ""])).len(), 2);
    let mut alone = with(&[""]);
    let last = alone.nodes().next_back().unwrap();
    alone.set(last, "cpulist", "");
    assert_eq!(endpoints(&alone).len(), 2);
}
