use super::*;
use crate::topo::{
    graph::{Confidence, Link, LinkKind, Origin},
    samples,
};

const GB: u64 = 1_000_000_000;

fn link(kind: LinkKind, gb: u64) -> Link {
    Link::new(kind, Origin::ASSUMED).speed(gb * GB, Confidence::Declared)
}

/// A graph of GPUs alone, with links of so many GB/s.
fn gpus(count: usize, links: &[(usize, usize, u64)]) -> Graph {
    let mut graph = Graph::new();
    let nodes: Vec<NodeId> = (0..count)
        .map(|at| graph.add_node(NodeKind::Gpu, &format!("g{at}"), None, Origin::ASSUMED))
        .collect();
    for &(one, other, gb) in links {
        graph.join(nodes[one], nodes[other], link(LinkKind::NvLink, gb));
    }
    graph
}

/// Searches, and checks whatever can be checked of the outcome without a search.
fn found(graph: &Graph, hosts: usize) -> Found {
    let task = Task::of(graph, hosts);
    let found = search(graph, &task);
    let problem = (task.endpoints.len() <= ALL_PAIRS).then(|| Problem::new(graph, &task));
    let place = |node: NodeId| {
        task.endpoints
            .iter()
            .position(|endpoint| *endpoint == node)
            .unwrap()
    };
    let nic = |node: NodeId| task.nics.iter().position(|nic| *nic == node).unwrap();
    let mut sorted = task.endpoints.clone();
    sorted.sort();
    if let Some(problem) = &problem {
        let mut loads = vec![0_u128; problem.capacities.len()];
        for ring in &found.rings {
            let mut order = ring.order.clone();
            let mut hops: Vec<_> = order
                .windows(2)
                .map(|pair| problem.route(place(pair[0]), place(pair[1])))
                .collect();
            let (first, last) = (place(order[0]), place(order[order.len() - 1]));
            match ring.nics {
                None => hops.push(problem.route(last, first)),
                Some([enter, leave]) => {
                    hops.extend([problem.enter(nic(enter), first), problem.leave(last, nic(leave))])
                }
            }
            order.sort();
            assert_eq!(order, sorted, "each endpoint once");
            for &used in hops.iter().flat_map(|hop| &hop.unwrap().uses) {
                loads[used as usize] += u128::from(ring.bytes_per_second);
            }
        }
        for (load, capacity) in loads.iter().zip(&problem.capacities) {
            assert!(*load <= u128::from(*capacity), "more than there is");
        }
        let mut loads = vec![0_u128; problem.capacities.len()];
        for tree in &found.trees {
            let mut nodes: Vec<NodeId> = tree.edges.iter().map(|edge| edge.1).chain([tree.root]).collect();
            nodes.sort();
            assert_eq!(nodes, sorted, "each endpoint has one parent");
            for &(up, down) in &tree.edges {
                for hop in [
                    problem.route(place(up), place(down)),
                    problem.route(place(down), place(up)),
                ] {
                    for &used in &hop.unwrap().uses {
                        loads[used as usize] += u128::from(tree.bytes_per_second);
                    }
                }
            }
        }
        for (load, capacity) in loads.iter().zip(&problem.capacities) {
            assert!(*load <= u128::from(*capacity), "more than there is");
        }
    }
    let least = |most: Option<u64>, reached: u64| {
        assert!(most.is_none_or(|most| reached <= most), "{reached} {most:?}")
    };
    least(
        found.bound.as_ref().map(Bound::bytes_per_second),
        found.ring_bandwidth(),
    );
    least(found.crossing, found.ring_bandwidth());
    least(found.crossing, found.tree_bandwidth());
    found
}

#[test]
fn known_machines_have_their_known_bandwidth() {
    let h100 = samples::graph("nccl-xml/oci-h100-topology-kubernetes.xml");
    let rings = found(&h100, 1);
    assert_eq!((rings.ring_bandwidth(), rings.end), (370_800_000_000, End::Exact));
    assert_eq!(rings.bound.unwrap().bytes_per_second(), 370_800_000_000);
    // Four GPUs on each side of a socket link of 10 GB/s, which each ring crosses once either way.
    let p4d = found(&samples::graph("nccl-xml/aws-p4d-24xl-topo.xml"), 1);
    assert_eq!(
        (p4d.ring_bandwidth(), p4d.end, p4d.crossing),
        (10 * GB, End::Exact, Some(10 * GB))
    );
    assert_eq!(p4d.bound.unwrap().bytes_per_second(), 12 * GB);
    // DGX-1 with V100: six links of 20 GB/s each, some of them in pairs.
    let dgx1 = [
        (0, 1, 20),
        (0, 2, 20),
        (0, 3, 40),
        (0, 4, 40),
        (1, 2, 40),
        (1, 3, 20),
        (1, 5, 40),
        (2, 3, 40),
        (2, 6, 20),
        (3, 7, 20),
        (4, 5, 20),
        (4, 6, 20),
        (4, 7, 40),
        (5, 6, 40),
        (5, 7, 20),
        (6, 7, 40),
    ];
    let dgx1 = found(&gpus(8, &dgx1), 1);
    assert_eq!((dgx1.ring_bandwidth(), dgx1.end), (120 * GB, End::Exact));
    // Seven xGMI links of each of eight MI300X.
    let mi300x = found(&samples::graph("rccl-xml/topo_8p_942.xml"), 1);
    assert_eq!((mi300x.ring_bandwidth(), mi300x.end), (7 * 48 * GB, End::Exact));
}

#[test]
fn hosts_with_some_gpus_and_adapters_reach_what_these_carry() {
    let graph = samples::graph("nccl-xml/oci-h100-topology-kubernetes.xml");
    let all = Task::of(&graph, 10);
    assert_eq!((all.endpoints.len(), all.nics.len()), (8, 8));
    let ring = found(&graph, 1).ring_bandwidth() as f64 / 1e9;
    for k in [1, 2, 4, 8] {
        let task = Task {
            endpoints: all.endpoints[..k].to_vec(),
            nics: all.nics[..k].to_vec(),
            ..all.clone()
        };
        let reached = search(&graph, &task);
        let measured = (k as f64 * 49.0).min(ring);
        let ratio = reached.ring_bandwidth() as f64 / 1e9 / measured;
        assert!((0.9..1.1).contains(&ratio), "{k} of 8: {ratio} of {measured}");
        assert_eq!(reached.end, End::Exact, "{k} of 8");
        assert!(reached.ring_bandwidth() <= reached.bound.unwrap().bytes_per_second());
        let mut leave: Vec<_> = reached.rings.iter().map(|ring| ring.nics.unwrap()[1]).collect();
        leave.sort();
        assert_eq!(leave, task.nics, "each adapter has its channel");
    }
    found(&graph, 10);
}

#[test]
fn single_rings_are_as_good_as_any() {
    let mut random = fastrand::Rng::with_seed(3);
    for round in 0..40 {
        let count = random.usize(2..7);
        let mut graph = Graph::new();
        let switch = graph.add_node(NodeKind::PciSwitch, "s", None, Origin::ASSUMED);
        let nodes: Vec<NodeId> = (0..count)
            .map(|_| graph.add_node(NodeKind::Gpu, "g", None, Origin::ASSUMED))
            .collect();
        for &one in &nodes {
            graph.join(switch, one, link(LinkKind::Pcie, random.u64(1..9)));
            for &other in nodes.iter().filter(|other| **other < one) {
                if random.u8(..3) == 0 {
                    graph.join(one, other, link(LinkKind::NvLink, random.u64(1..9)));
                }
            }
        }
        let task = Task::of(&graph, 1);
        let problem = Problem::new(&graph, &task);
        let mut best = 0;
        let mut order: Vec<usize> = (0..count).collect();
        for _ in 0..2000 {
            random.shuffle(&mut order[1..]);
            let mut load = problem::Load::none(&problem.capacities);
            let hops = (0..count).map(|at| problem.route(order[at], order[(at + 1) % count]).unwrap());
            best = best.max(hops.map(|hop| load.add(hop)).min().unwrap());
        }
        let wanted = exact::Wanted {
            beyond: 0,
            enough: u64::MAX,
            steps: STEPS,
            turn: 0,
        };
        let (exact, all) = exact::best(&problem, &problem.capacities, wanted);
        assert!(
            all && exact.as_ref().is_some_and(|ring| ring.speed == best),
            "round {round}: {exact:?} {best}"
        );
        found(&graph, 1);
    }
}

#[test]
fn bounds_are_the_worst_of_all_cuts() {
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..40 {
        let count = random.usize(3..7);
        let mut links: Vec<(usize, usize, u64)> =
            (1..count).map(|at| (at - 1, at, random.u64(1..9))).collect();
        links.push((0, count - 1, random.u64(1..9)));
        links.extend((0..random.usize(..5)).map(|_| {
            let one = random.usize(1..count);
            (random.usize(..one), one, random.u64(1..9))
        }));
        links.sort();
        links.dedup_by_key(|link| (link.0, link.1));
        let graph = gpus(count, &links);
        let bound = found(&graph, 1).bound.unwrap();
        assert!(bound.tight);
        let all = count as u64 - 1;
        // By links that hops use: others carry nothing, since each hop takes the best way.
        let problem = Problem::new(&graph, &Task::of(&graph, 1));
        let cuts = (1_u32..(1 << count) - 1).map(|side| {
            let inside = |node: NodeId| side >> node.at() & 1 == 1;
            let crosses = |id: &EdgeId| inside(graph.edge(*id).from) && !inside(graph.edge(*id).to);
            let over = graph
                .edge_ids()
                .filter(crosses)
                .filter(|id| problem.shared.contains(&Shared::Edge(*id)));
            let over: u64 = over.map(|id| graph.edge(id).link.bytes_per_second).sum();
            (u128::from(over) * u128::from(all) / u128::from(side.count_ones())) as u64
        });
        assert_eq!(bound.bytes_per_second(), cuts.min().unwrap());
    }
}

#[test]
fn all_files_go_through_and_their_mutants_too() {
    let mut random = fastrand::Rng::with_seed(11);
    for (name, graph) in samples::mutants(&mut random, 3) {
        for hosts in [1, 4] {
            let mut task = Task::of(&graph, hosts);
            task.steps = 500;
            if task.endpoints.len() <= 16 {
                let once = search(&graph, &task);
                assert!(once.rings.is_empty() || once.apart.is_none(), "{name}");
                let _ = Levels::of(&graph).tell(&graph);
            }
        }
    }
}

#[test]
fn many_endpoints_and_none() {
    assert_eq!(found(&Graph::new(), 1).rings, []);
    assert_eq!(found(&gpus(1, &[]), 1).rings, []);
    assert!(found(&gpus(3, &[(0, 1, 20)]), 1).apart.is_some());
    // A ring of 40, named in another order: each neighbour's neighbour is found.
    let links: Vec<_> = (0..40).map(|at| (at * 7 % 40, (at + 1) * 7 % 40, 20)).collect();
    let many = found(&gpus(40, &links), 1);
    assert_eq!((many.end, many.ring_bandwidth()), (End::Exact, 40 * GB));
    let racks = found(&samples::graph("fabric/topograph-dual-xclr-regular.yaml"), 1);
    assert_eq!((racks.end, racks.rings.is_empty()), (End::TwoOpt, false));
    let tree = found(&samples::graph("own/slurm-tree.conf"), 1);
    assert_eq!((tree.end, tree.rings.len()), (End::Levels, 1));
    assert_eq!(found(&gpus(2, &[(0, 1, 20)]), 1).ring_bandwidth(), 20 * GB);
}

#[test]
fn more_adapters_than_machines_have_are_not_searched() {
    let of = |nics: usize| {
        let mut graph = gpus(1, &[]);
        let gpu = graph.of_kind(NodeKind::Gpu).next().unwrap();
        for _ in 0..nics {
            let nic = graph.add_node(NodeKind::Nic, "nic", None, Origin::ASSUMED);
            graph.join(gpu, nic, link(LinkKind::Pcie, 20));
        }
        search(&graph, &Task::of(&graph, 2))
    };
    let many = of(60_000);
    assert_eq!((many.end, many.rings), (End::Levels, vec![]));
    assert!(!of(16).rings.is_empty());
}

#[test]
fn a_long_chain_does_not_overflow_the_stack() {
    let mut graph = Graph::new();
    let mut last = graph.add_node(NodeKind::Gpu, "first", None, Origin::ASSUMED);
    for _ in 0..5_000 {
        let next = graph.add_node(NodeKind::PciSwitch, "n", None, Origin::ASSUMED);
        graph.join(last, next, link(LinkKind::Pcie, 12));
        last = next;
    }
    let gpu = graph.add_node(NodeKind::Gpu, "last", None, Origin::ASSUMED);
    graph.join(last, gpu, link(LinkKind::Pcie, 12));
    assert_eq!(found(&graph, 1).ring_bandwidth(), 12 * GB);
    assert_eq!(Levels::of(&graph).levels[0].groups.len(), 1);
}
