//! Closed forms, fairness by hand, and that nothing that is left out changes a result.

use super::host::{Host, Limits};
use super::network::Fabric;
use super::*;
use crate::plan::algo::ALGORITHMS;
use crate::topo::graph::{Confidence, Graph, Link, LinkKind, NodeId, NodeKind, Origin};
use crate::topo::read;

const LINK: f64 = 50e9;
const ALL: Effort = Effort {
    folds: false,
    cuts: false,
    splits: false,
    ..Effort::USUAL
};
const SHORT: Effort = Effort {
    folds: true,
    cuts: true,
    ..ALL
};

fn algorithm(name: &str) -> &'static Algorithm {
    ALGORITHMS
        .iter()
        .find(|algorithm| algorithm.name == name)
        .unwrap()
}

fn call(collective: Collective, name: &str, bytes: f64) -> Call<'static> {
    Call {
        collective,
        algorithm: algorithm(name),
        bytes,
        channels: 1,
        tile: f64::INFINITY,
        in_flight: 1,
        constants: Constants::USUAL,
        effort: ALL,
    }
}

/// Hosts of one rank on a switch: a message takes overhead and two links of 1 us, 2.5 us in all.
fn flat(ranks: usize) -> Network {
    Network::cluster(
        Host::uniform(1, 400e9, 400, Limits::USUAL),
        ranks,
        Fabric::switch(1000.0),
    )
}

const ALPHA: f64 = 2.5e-6;

fn tree(size: usize, hosts: usize, oversubscription: f64) -> Network {
    let fabric = Fabric {
        hosts: 2,
        leaves: 2,
        oversubscription,
        latency_ns: 500.0,
    };
    Network::cluster(Host::uniform(size, 400e9, 400, Limits::USUAL), hosts, fabric)
}

fn time(call: &Call<'_>, network: &Network) -> f64 {
    simulate(call, network).unwrap().time
}

fn same(found: f64, wanted: f64, within: f64, what: &str) {
    assert!(
        (found - wanted).abs() <= within * wanted,
        "{what}: {found} and not {wanted}"
    );
}

#[test]
fn a_ring_takes_what_its_closed_form_says() {
    for ranks in [2, 3, 8, 37] {
        for bytes in [1e3, 1e6, 1e9] {
            let p = ranks as f64;
            let step = ALPHA + bytes / p / LINK;
            for (collective, steps) in [
                (Collective::AllReduce, 2.0 * (p - 1.0)),
                (Collective::AllGather, p - 1.0),
                (Collective::ReduceScatter, p - 1.0),
            ] {
                let call = call(collective, "ring", bytes);
                same(
                    time(&call, &flat(ranks)),
                    steps * step,
                    1e-8,
                    &format!("{collective:?}, {ranks} ranks"),
                );
            }
        }
    }
}

#[test]
fn a_chain_is_a_pipeline() {
    let (bytes, tiles) = (1e8, 100.0);
    for ranks in [2, 5, 16] {
        let mut call = call(Collective::Broadcast { root: 0 }, "chain", bytes);
        call.tile = bytes / tiles;
        // The first tile's way, and the others behind it.
        let wanted = (ranks as f64 - 1.0) * (ALPHA + call.tile / LINK) + (tiles - 1.0) * call.tile / LINK;
        same(time(&call, &flat(ranks)), wanted, 1e-8, &format!("{ranks} ranks"));
    }
}

#[test]
fn doubling_and_trees_take_their_rounds() {
    for rounds in [1, 4, 6] {
        let (ranks, bytes) = (1 << rounds, 1e6);
        let doubling = call(Collective::AllReduce, "doubling", bytes);
        let wanted = f64::from(rounds) * (ALPHA + bytes / LINK);
        same(time(&doubling, &flat(ranks)), wanted, 1e-8, "doubling");
        // Down a binomial tree the root sends one message after the other; they overlap but for their overhead.
        let tree = call(Collective::Broadcast { root: 0 }, "tree", 0.0);
        same(time(&tree, &flat(ranks)), f64::from(rounds) * ALPHA, 1e-8, "tree");
    }
    // Up and down both trees of 7 and a root, in each of which a rank has two children as a rule.
    let double = call(Collective::AllReduce, "doubletree", 0.0);
    let found = time(&double, &flat(8));
    assert!((6.0 * ALPHA..6.0 * (ALPHA + 1e-6)).contains(&found), "{found}");
}

/// Three ranks send to one; one of them to another as well.
#[test]
fn shares_are_max_min_fair() {
    let bytes = 3e9;
    let gather = call(Collective::Gather { root: 0 }, "direct", 4.0 * bytes);
    // Three flows share the root's link.
    same(
        time(&gather, &flat(4)),
        ALPHA + 3.0 * bytes / LINK,
        1e-8,
        "gather",
    );
    let split = simulate(
        &Call {
            effort: Effort { splits: true, ..ALL },
            ..gather
        },
        &flat(4),
    );
    let split = split.unwrap().split.unwrap();
    same(split.latency, ALPHA, 1e-8, "latency");
    same(split.bandwidth, bytes / LINK, 1e-6, "bandwidth");
    same(split.contention, 2.0 * bytes / LINK, 1e-6, "contention");
}

/// Flows over edges at random, with the rates that progressive filling gives them.
#[test]
fn rates_are_those_of_progressive_filling() {
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..300 {
        let (edges, lanes) = (random.usize(1..12), random.usize(1..25));
        let mut model = Model {
            threads: Vec::new(),
            ops: Vec::new(),
            lanes: Vec::new(),
            crossings: Vec::new(),
            capacities: (0..edges).map(|_| f64::from(random.u32(1..5))).collect(),
        };
        for _ in 0..lanes {
            let first = model.crossings.len();
            for edge in 0..edges as u32 {
                if random.u8(..3) == 0 || (edge + 1 == edges as u32 && first == model.crossings.len()) {
                    model.crossings.push((edge, f64::from(random.u8(1..4))));
                }
            }
            model.lanes.push(model::Line {
                from: 0,
                to: 0,
                latency: 0,
                crossings: first..model.crossings.len(),
            });
        }
        let mut flows = flows::Flows::new(&model);
        let mut active = vec![false; lanes];
        for turn in 0..40 {
            let lane = random.usize(..lanes);
            active[lane] = !active[lane];
            match active[lane] {
                true => flows.start(turn, lane as u32, 1e30),
                false => flows.end(lane as u32),
            }
            if random.bool() {
                continue;
            }
            flows.settle(turn);
            let wanted = filled(&model, &active);
            for (found, wanted) in flows.rates().iter().zip(&wanted) {
                assert!(
                    (found - wanted).abs() < 1e-9,
                    "round {round}: {:?} and not {wanted:?}",
                    flows.rates()
                );
            }
        }
    }
}

/// All flows grow together until an edge is full, whose flows then stay.
fn filled(model: &Model, active: &[bool]) -> Vec<f64> {
    let mut rates = vec![0.0; active.len()];
    let mut grows = active.to_vec();
    while grows.contains(&true) {
        let mut room = model.capacities.clone();
        let mut growing = vec![0.0; room.len()];
        for (lane, line) in model.lanes.iter().enumerate() {
            for &(edge, times) in &model.crossings[line.crossings.clone()] {
                room[edge as usize] -= times * rates[lane];
                growing[edge as usize] += if grows[lane] { times } else { 0.0 };
            }
        }
        let most = |edge: usize| {
            if growing[edge] > 0.0 {
                room[edge] / growing[edge]
            } else {
                f64::INFINITY
            }
        };
        let step = (0..room.len()).map(most).fold(f64::INFINITY, f64::min);
        for (lane, line) in model.lanes.iter().enumerate() {
            if !grows[lane] {
                continue;
            }
            rates[lane] += step;
            let crossings = &model.crossings[line.crossings.clone()];
            grows[lane] = crossings
                .iter()
                .all(|(edge, _)| most(*edge as usize) > step + 1e-12);
        }
    }
    rates
}

#[test]
fn what_is_left_out_changes_nothing() {
    let mut random = fastrand::Rng::with_seed(11);
    let networks = [
        ("8 on a switch", tree(8, 4, 1.0)),
        ("three levels", tree(4, 8, 1.0)),
        ("half as much above", tree(4, 8, 2.0)),
        ("not even", tree(3, 7, 3.0)),
        ("2 each", tree(2, 12, 4.0)),
        ("1 each", flat(32)),
        ("an odd number", flat(21)),
    ];
    let mut folded = 0;
    for (what, network) in &networks {
        for name in [
            "ring",
            "doubletree",
            "hierarchical",
            "doubling",
            "halving",
            "direct",
        ] {
            if name == "hierarchical" && network.ranks_per_host() == 1 {
                continue;
            }
            let mut one = call(
                Collective::AllReduce,
                name,
                10f64.powf(random.f64() * 6.0 + 3.0).round(),
            );
            one.tile = one.bytes / f64::from(random.u32(1..60));
            one.in_flight = random.usize(1..5);
            one.channels = random.usize(1..3);
            one.constants.slots = random.usize(1..5);
            let all = simulate(&one, network).unwrap();
            one.effort = SHORT;
            let short = simulate(&one, network).unwrap();
            same(short.time, all.time, 1e-9, &format!("{name}, {what}, {one:?}"));
            folded += usize::from(short.classes < all.classes);
            assert_eq!(short.messages, all.messages);
        }
    }
    assert!(folded > 20, "{folded} were folded");
}

#[test]
fn two_thousand_ranks_are_folded_to_a_few() {
    let network = tree(8, 256, 1.0);
    for (name, classes) in [("ring", 32), ("hierarchical", 1), ("doubling", 1)] {
        let mut one = call(Collective::AllReduce, name, 1e8);
        one.tile = 1e7;
        one.effort = SHORT;
        let short = simulate(&one, &network).unwrap();
        assert_eq!((short.ranks, short.classes), (2048, classes), "{name}");
        if name != "ring" {
            one.effort = ALL;
            same(short.time, time(&one, &network), 1e-9, name);
        } else {
            one.effort = Effort {
                folds: false,
                ..SHORT
            };
            same(short.time, time(&one, &network), 1e-9, name);
        }
    }
}

#[test]
fn all_bytes_go_over_the_edges() {
    let network = tree(4, 8, 1.0);
    let one = call(Collective::AllGather, "direct", 32e6);
    let report = simulate(&one, &network).unwrap();
    let programs = Programs::new(
        &Work {
            groups: None,
            collective: one.collective,
            algorithm: one.algorithm,
            parts: 1,
        },
        &network,
    )
    .unwrap();
    // Each of 32 ranks sends its megabyte to 31 others, and 28 of them are on other hosts.
    let sent: f64 = programs.lanes.iter().map(|lane| lane.grains).sum();
    assert_eq!(sent, 32.0 * 31.0);
    let out = |busy: &Busy| busy.name.ends_with(" out") || busy.name.ends_with(" in");
    let link = report.busiest.iter().find(|busy| out(busy)).unwrap();
    assert_eq!((link.bytes, link.alike), (28e6, 64));
    assert!(link.utilisation > 0.9 && link.utilisation <= 1.0, "{link:?}");
}

/// k GPUs and k adapters of each of ten H100 hosts, by what their file says.
#[test]
fn the_plateaus_of_h100_hosts_follow_from_their_graph() {
    const FILE: &str = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/data/topologies/nccl-xml/oci-h100-topology-kubernetes.xml"
    );
    let text = std::fs::read_to_string(FILE).unwrap();
    let graph = read::read(&text, "h100").unwrap().0.graph;
    for (gpus, measured) in [(1, 48.9), (2, 98.3), (4, 196.4), (8, 344.9)] {
        let host = Host::new(graph.clone(), gpus, Limits::USUAL).unwrap();
        let network = Network::cluster(host, 10, Fabric::switch(500.0));
        let mut ring = call(Collective::AllReduce, "ring", 16e9);
        (ring.channels, ring.tile, ring.in_flight, ring.effort) = (gpus, 4e6, 4, SHORT);
        let found = simulate(&ring, &network).unwrap();
        let plateau = (gpus as f64 * 49.0).min(365.0);
        let bandwidth = found.bus_bandwidth / 1e9;
        same(
            bandwidth,
            plateau,
            0.1,
            &format!("{gpus} GPUs, measured {measured}"),
        );
    }
}

#[test]
fn what_fails_or_is_slow_takes_longer() {
    let mut one = call(Collective::AllReduce, "ring", 1e9);
    one.effort = SHORT;
    let before = time(&one, &tree(2, 8, 1.0));
    let after = |change: &dyn Fn(&mut Network)| {
        let mut network = tree(2, 8, 1.0);
        change(&mut network);
        let short = time(&one, &network);
        same(
            short,
            time(&Call { effort: ALL, ..one }, &network),
            1e-9,
            "folded",
        );
        short
    };
    let slow = after(&|network| network.degrade("host3/nic1 out", 0.5).unwrap());
    assert!((1.9..2.1).contains(&(slow / before)), "{slow} {before}");
    let fewer = after(&|network| network.fail("host3").unwrap());
    same(fewer, before * (26.0 / 14.0) / (30.0 / 16.0), 0.01, "a host less");
    let detour = after(&|network| network.fail("host3/nic1").unwrap());
    assert!(detour >= before, "{detour} {before}");
    let mut network = tree(2, 8, 1.0);
    for wrong in ["host8", "host3/nic7", "leaf0 up", "x"] {
        assert!(network.fail(wrong).is_err(), "{wrong}");
        assert!(network.degrade(wrong, 0.0).is_err(), "{wrong}");
    }
}

#[test]
fn the_last_host_does_not_fail() {
    let mut network = flat(2);
    network.fail("host1").unwrap();
    network.fail("host1").unwrap();
    let why = network.fail("host0").unwrap_err().to_string();
    assert!(why.contains("without host0 no host is left"), "{why}");
    assert_eq!(network.ranks(), 1);
}

#[test]
fn a_file_of_switches_and_hosts_is_a_network() {
    const FILE: &str = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/data/topologies/own/slurm-tree.conf"
    );
    let text = std::fs::read_to_string(FILE).unwrap();
    let graph = read::read(&text, "slurm").unwrap().0.graph;
    let network = Network::whole(graph.clone(), Some(40), 2, Limits::USUAL).unwrap();
    assert_eq!(network.ranks(), 80);
    for name in ["ring", "hierarchical", "doubletree"] {
        let mut one = call(Collective::AllReduce, name, 1e7);
        let all = time(&one, &network);
        one.effort = SHORT;
        same(time(&one, &network), all, 1e-9, name);
    }
    assert!(Network::whole(graph, Some(1000), 1, Limits::USUAL).is_err());
}

#[test]
fn a_file_of_too_many_hosts_is_refused() {
    let graph = |hosts: usize| {
        let text = format!("SwitchName=s Nodes=n[1-{hosts}]\n");
        read::read(&text, "slurm").unwrap().0.graph
    };
    let why = |graph: &Graph, hosts, ranks| {
        let network = Network::whole(graph.clone(), hosts, ranks, Limits::USUAL);
        network.unwrap_err().to_string()
    };
    let many = graph(1 << 18);
    let said = why(&many, None, 1);
    assert!(
        said.contains("take too long to find") && said.contains("--hosts 682 at most"),
        "{said}"
    );
    assert!(Network::whole(many, Some(682), 1, Limits::USUAL).is_ok());
    let said = why(&graph(4), None, 1 << 23);
    assert!(
        said.contains("4 hosts of 8388608 ranks are more than 16777216 ranks"),
        "{said}"
    );
}

#[test]
fn edges_that_have_no_numbers_are_refused() {
    let host = || Host::uniform(8, 400e9, 400, Limits::USUAL);
    let hosts = |hosts| Network::cluster(host(), hosts, Fabric::switch(500.0)).numbered();
    let said = hosts(1 << 24).unwrap_err().to_string();
    assert!(said.contains("1073741824 are the most"), "{said}");
    assert!(hosts(1 << 16).is_ok());
}

#[test]
fn a_trace_has_all_messages() {
    let mut one = call(Collective::AllReduce, "ring", 4e6);
    one.effort.traces = true;
    let report = simulate(&one, &flat(4)).unwrap();
    assert_eq!(report.spans.len() as f64, report.messages);
    assert_eq!(report.spans.len(), 4 * 6);
    let first = &report.spans[0];
    assert_eq!(
        (first.rank, first.channel, first.label.as_str(), first.begin),
        (0, 0, "to 1", 0)
    );
    let last = report.spans.iter().map(|span| span.end).max().unwrap();
    assert_eq!(seconds(last), report.time);
    assert!(simulate(&one, &flat(600)).is_err());
    one.tile = 10.0;
    let why = simulate(&one, &flat(4)).unwrap_err().to_string();
    assert!(
        why.contains("a trace of 2400000 messages: 1000000 are the most") && why.contains("--tile"),
        "{why}"
    );
}

#[test]
fn what_is_too_much_is_refused() {
    let slow = |bandwidth: f64, latency: f64| {
        let limits = Limits {
            link: Some(bandwidth),
            ..Limits::USUAL
        };
        let host = Host::uniform(1, 400e9, 400, limits);
        Network::cluster(host, 4, Fabric::switch(latency))
    };
    let why = |call: &Call<'_>, network: &Network| simulate(call, network).unwrap_err().to_string();
    for name in ["direct", "ring", "doubling"] {
        for effort in [ALL, SHORT] {
            let mut call = call(Collective::AllReduce, name, 1e9);
            (call.tile, call.effort) = (1e5, effort);
            for network in [slow(1e-291, 500.0), slow(1.0, 500.0), slow(LINK, 9e11)] {
                let said = why(&call, &network);
                assert!(said.contains("more than 5 hours"), "{name}: {said}");
            }
            call.constants.overhead_ns = 9e11;
            assert!(why(&call, &flat(4)).contains("more than 5 hours"), "{name}");
            call.constants = Constants {
                slots: 1 << 30,
                ..Constants::USUAL
            };
            assert!(why(&call, &flat(4)).contains("slots"), "{name}");
            (call.constants, call.bytes, call.tile) = (Constants::USUAL, 1e18, 1.0);
            assert!(why(&call, &flat(4)).contains("make them longer"), "{name}");
        }
    }
}

#[test]
fn all_channels_have_the_same_root() {
    let network = tree(3, 4, 1.0);
    let root = 4;
    let ends = |collective, name, at: fn(&program::Lane) -> u32| {
        let work = Work {
            groups: None,
            collective,
            algorithm: algorithm(name),
            parts: 3,
        };
        let programs = Programs::new(&work, &network).unwrap();
        let ranks = programs
            .lanes
            .iter()
            .map(|lane| programs.threads[at(lane) as usize].rank);
        let mut ranks: Vec<_> = ranks.collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    };
    assert_eq!(
        ends(Collective::Gather { root }, "direct", |lane| lane.to),
        [root]
    );
    assert_eq!(
        ends(Collective::Scatter { root }, "direct", |lane| lane.from),
        [root]
    );
    // Along a chain nobody sends to its root, in any channel.
    let receivers = ends(Collective::Broadcast { root }, "chain", |lane| lane.to);
    assert!(
        receivers.len() == 11 && !receivers.contains(&root),
        "{receivers:?}"
    );
}

#[test]
fn channels_whose_ranks_stand_elsewhere_are_run_once() {
    let network = tree(4, 64, 1.0);
    let run = |channels, effort| {
        let call = Call {
            channels,
            effort,
            ..call(Collective::AllReduce, "ring", 1e6)
        };
        simulate(&call, &network).unwrap()
    };
    let (one, four) = (run(1, SHORT), run(4, SHORT));
    assert!(
        one.classes < one.threads && four.classes == one.classes,
        "{} {}",
        one.classes,
        four.classes
    );
    let whole = run(4, ALL);
    same(four.time, whole.time, 1e-9, "four channels");
}

fn node(graph: &mut Graph, kind: NodeKind, name: &str, within: Option<NodeId>) -> NodeId {
    graph.add_node(kind, name, within, Origin::ASSUMED)
}

fn wire(kind: LinkKind, bytes: u64) -> Link {
    Link::new(kind, Origin::ASSUMED).speed(bytes, Confidence::Declared)
}

/// A host whose adapters have a port each, of so many bytes a second; 0: it is down.
fn with_ports(speeds: &[u64]) -> Graph {
    let mut graph = Graph::new();
    let host = node(&mut graph, NodeKind::Host, "host", None);
    let gpu = node(&mut graph, NodeKind::Gpu, "gpu", Some(host));
    for &speed in speeds {
        let nic = node(&mut graph, NodeKind::Nic, "nic", Some(host));
        let port = node(&mut graph, NodeKind::NicPort, "port", Some(nic));
        graph.join(gpu, nic, wire(LinkKind::Pcie, 24_000_000_000));
        let mut link = wire(LinkKind::Ib, speed);
        link.reachable = speed > 0;
        graph.join(nic, port, link);
    }
    graph
}

#[test]
fn an_adapter_whose_ports_are_down_carries_nothing() {
    let host = |speeds: &[u64]| Host::new(with_ports(speeds), 1, Limits::USUAL).unwrap();
    let one = host(&[0, 10_000_000_000]);
    assert_eq!((one.link_bandwidth(), one.exit(0).unwrap().0), (10e9, 0));
    let none = host(&[0]);
    assert!(!none.has_exit() && none.exit(0).is_none());
    let network = Network::cluster(none, 2, Fabric::switch(500.0));
    assert!(network.way(0, 1).is_err());
    // One is assumed where there is none at all.
    assert_eq!(host(&[]).link_bandwidth(), LINK);
}

#[test]
fn a_host_of_too_many_or_too_long_ways_is_refused() {
    let why = |graph: Graph| {
        Host::new(graph, Host::MOST_RANKS, Limits::USUAL)
            .unwrap_err()
            .to_string()
    };
    let mut many = Graph::new();
    for _ in 0..Host::MOST_RANKS {
        node(&mut many, NodeKind::Gpu, "", None);
    }
    for _ in 0..1 << 18 {
        node(&mut many, NodeKind::Opaque, "", None);
    }
    let said = why(many);
    assert!(
        said.contains(
            "2048 ranks through a file of 264192 nodes and edges take too long to find: --ranks-per-host"
        ),
        "{said}"
    );
    let mut long = Graph::new();
    let mut last = node(&mut long, NodeKind::Gpu, "one", None);
    for _ in 0..200 {
        let next = node(&mut long, NodeKind::PciSwitch, "", None);
        long.join(last, next, wire(LinkKind::Pcie, 1));
        last = next;
    }
    let other = node(&mut long, NodeKind::Gpu, "other", None);
    long.join(last, other, wire(LinkKind::Pcie, 1));
    assert!(Host::new(long.clone(), 8, Limits::USUAL).is_ok());
    let said = why(long);
    assert!(
        said.contains("more than 134217728 edges: --ranks-per-host"),
        "{said}"
    );
}

/// Two hosts of a file have the same bus ids.
#[test]
fn edges_of_hosts_with_the_same_names_are_told_apart() {
    let mut graph = Graph::new();
    let leaf = node(&mut graph, NodeKind::Leaf, "leaf", None);
    for name in ["a", "b"] {
        let host = node(&mut graph, NodeKind::Host, name, None);
        let gpu = node(&mut graph, NodeKind::Gpu, "01:00.0", Some(host));
        let nic = node(&mut graph, NodeKind::Nic, "02:00.0", Some(host));
        graph.join(gpu, nic, wire(LinkKind::Pcie, 10_000_000_000));
        graph.join(nic, leaf, wire(LinkKind::Ib, 50_000_000_000));
    }
    let network = || Network::whole(graph.clone(), None, 1, Limits::USUAL).unwrap();
    let mut changed = network();
    let names: Vec<_> = (0..changed.edges() as u32)
        .map(|edge| changed.name(edge))
        .collect();
    assert_eq!(
        [&*names[0], &*names[4]],
        ["a/01:00.0->02:00.0", "b/01:00.0->02:00.0"]
    );
    changed.degrade("b/01:00.0->02:00.0", 0.5).unwrap();
    assert_eq!([changed.capacity(0), changed.capacity(4)], [10e9, 5e9]);
    changed.fail("b/01:00.0->02:00.0").unwrap();
    assert!(changed.way(0, 1).is_ok() && changed.way(1, 0).is_err());
    for either in ["01:00.0->02:00.0", "02:00.0->leaf"] {
        let why = network().fail(either).unwrap_err().to_string();
        assert!(why.contains("several edges are called"), "{why}");
        assert!(network().degrade(either, 0.5).is_err());
    }
    for wrong in ["c/01:00.0->02:00.0", "x01:00.0->02:00.0", "x"] {
        let why = network().fail(wrong).unwrap_err().to_string();
        let wanted = format!(
            "nothing that can fail is called {wrong:?}: of a file that joins hosts edges can, such as a/01:00.0->02:00.0"
        );
        assert!(why.contains(&wanted), "{why}");
    }
    changed.degrade("rank 1 memory", 0.5).unwrap();
}

#[test]
fn ranks_that_share_a_host_of_a_file_share_its_memory() {
    let of = |hosts, ranks| {
        let graph = crate::topo::samples::graph("own/slurm-4hosts.conf");
        Network::whole(graph, Some(hosts), ranks, Limits::USUAL).unwrap()
    };
    let two = of(2, 4);
    let memory = |from, to| two.name(two.way(from, to).unwrap().edges[0]);
    for (from, to) in [(0, 1), (1, 2), (3, 2), (2, 3)] {
        assert_eq!(memory(from, to), "rank 0 memory");
        assert_eq!(memory(from + 4, to + 4), "rank 4 memory");
    }
    let gather = call(Collective::AllGather, "ring", 1e9);
    same(time(&gather, &of(1, 8)), 7e9 / Limits::USUAL.memory, 1e-3, "ring");
}

#[test]
fn links_of_hosts_of_a_file_are_as_fast_as_asked() {
    let mut graph = Graph::new();
    let [leaf, spine] = [NodeKind::Leaf, NodeKind::Spine].map(|kind| node(&mut graph, kind, "switch", None));
    graph.join(leaf, spine, wire(LinkKind::Ib, 40_000_000_000));
    for name in ["a", "b"] {
        let host = node(&mut graph, NodeKind::Host, name, None);
        let nic = node(&mut graph, NodeKind::Nic, "nic", Some(host));
        let port = node(&mut graph, NodeKind::NicPort, "port", Some(nic));
        graph.join(host, nic, wire(LinkKind::Pcie, 30_000_000_000));
        graph.join(nic, port, wire(LinkKind::Ib, 50_000_000_000));
        graph.join(port, leaf, wire(LinkKind::Ib, 50_000_000_000));
        graph.join(host, leaf, wire(LinkKind::NvLink, 60_000_000_000));
        graph.join(host, leaf, wire(LinkKind::Opaque, 70_000_000_000));
    }
    let limits = Limits {
        link: Some(10e9),
        ..Limits::USUAL
    };
    let network = Network::whole(graph, None, 1, limits).unwrap();
    let speeds: Vec<f64> = (0..12).map(|edge| network.capacity(edge) / 1e9).collect();
    assert_eq!(
        speeds,
        [
            40.0, 40.0, 30.0, 30.0, 10.0, 10.0, 10.0, 10.0, 60.0, 60.0, 10.0, 10.0
        ]
    );
    let places = [0, 4].map(|edge| network.place(edge) == "assumed");
    assert_eq!(places, [true; 2]);
}

#[test]
fn hosts_are_in_the_order_of_the_ranks_that_they_have() {
    let mut graph = Graph::new();
    for (name, ranks) in [("a", ["2", "3"]), ("b", ["0", "1"])] {
        let host = node(&mut graph, NodeKind::Host, name, None);
        for number in ranks {
            let npu = node(&mut graph, NodeKind::Npu, &format!("NPU of {number}"), Some(host));
            let rank = node(&mut graph, NodeKind::Rank, number, Some(npu));
            graph.set(rank, "rank", number);
        }
    }
    let whole = Network::whole(graph.clone(), None, 2, Limits::USUAL).unwrap();
    let devices: Vec<_> = whole.devices().into_iter().map(|node| graph.name(node)).collect();
    assert_eq!(devices, ["NPU of 0", "NPU of 1", "NPU of 2", "NPU of 3"]);
}

#[test]
fn memory_without_processors_has_no_ranks() {
    let mut graph = Graph::new();
    for name in ["a", "b"] {
        let host = node(&mut graph, NodeKind::Host, name, None);
        for (number, cpus) in ["", "0-3", "4-7"].iter().enumerate() {
            let numa = node(&mut graph, NodeKind::Numa, &format!("NUMA {number}"), Some(host));
            graph.set(numa, "cpulist", cpus);
        }
    }
    let names = |nodes: Vec<NodeId>| -> Vec<String> {
        nodes
            .into_iter()
            .map(|node| graph.name(node).to_owned())
            .collect()
    };
    let whole = Network::whole(graph.clone(), None, 2, Limits::USUAL).unwrap();
    assert_eq!(names(whole.devices()), ["NUMA 1", "NUMA 2", "NUMA 1", "NUMA 2"]);
    let host = Host::new(graph.clone(), 2, Limits::USUAL).unwrap();
    assert_eq!(names(host.devices()), ["NUMA 1", "NUMA 2"]);
}
