//! Files about what joins hosts: Slurm's, topograph's, those of InfiniBand, rank tables, networks of simulators.

use super::*;

/// By the ends of ranges.
#[test]
fn slurm_counts_are_those_of_the_text() {
    for (name, hosts, kinds) in [
        (
            "own/slurm-tree.conf",
            32 + 32 + 28 + 32 + 8 + 1 + 8 + 8,
            [6, 2, 1],
        ),
        ("own/slurm-block.conf", 53, [3, 0, 0]),
        ("fabric/slinky-dra-block.conf", 12 * 8, [12, 0, 0]),
    ] {
        let (graph, repairs) = graph(name);
        assert_eq!(repairs, [""; 0], "{name}");
        assert_eq!(count(&graph, Host), hosts, "{name}");
        assert_eq!(
            [Leaf, Spine, CoreSwitch].map(|kind| count(&graph, kind)),
            kinds,
            "{name}"
        );
        let first = graph.of_kind(Host).next().unwrap();
        let paths = Paths::from(&graph, first);
        assert!(
            graph
                .of_kind(Host)
                .all(|host| host == first || paths.to(host).is_some()),
            "{name}"
        );
    }
    let (graph, _) = graph("own/slurm-tree.conf");
    let (rack, host) = (named(&graph, Leaf, "rack03"), named(&graph, Host, "n0094"));
    assert_eq!(graph.place(link(&graph, rack, host).origin), "t:8");
    assert_eq!(
        graph.get(named(&graph, CoreSwitch, "top"), "LinkSpeed"),
        Some("400")
    );
}

#[test]
fn a_host_in_two_networks_joins_them_for_nobody() {
    let (graph, _) = of("SwitchName=a Nodes=h1,h2\nSwitchName=b Nodes=h2,h3\n");
    let hosts = ["h1", "h2", "h3"].map(|name| named(&graph, Host, name));
    let paths = Paths::from(&graph, hosts[0]);
    assert_eq!(hosts.map(|host| paths.to(host).is_some()), [true, true, false]);
}

/// As `scontrol show topology` writes them.
#[test]
fn hosts_hang_on_the_lowest_switch_that_names_them() {
    let text = "SwitchName=l1 Level=0 LinkSpeed=1 Nodes=n[1-2]\nSwitchName=l2 Level=0 LinkSpeed=1 Nodes=n3\n\
                SwitchName=mid Level=1 LinkSpeed=1 Nodes=n[1-3] Switches=l[1-2]\n\
                SwitchName=root Level=2 LinkSpeed=1 Nodes=n[1-4] Switches=mid\n";
    let (graph, repairs) = of(text);
    assert_eq!(repairs, [""; 0]);
    let hosts = |kind, name: &str| -> Vec<&str> {
        let ends = graph
            .edges_from(named(&graph, kind, name))
            .map(|edge| graph.edge(edge).to);
        let hosts = ends.filter(|end| graph.kind(*end) == Host);
        hosts.map(|host| graph.name(host)).collect()
    };
    assert_eq!(hosts(Leaf, "l1"), ["n1", "n2"]);
    assert_eq!(hosts(Leaf, "l2"), ["n3"]);
    assert_eq!(hosts(Spine, "mid"), [""; 0]);
    assert_eq!(hosts(CoreSwitch, "root"), ["n4"], "it has one of its own");

    let plain: String = text
        .lines()
        .rev()
        .map(|line| line.replace(" Level=", " LinkSpeed=") + "\n")
        .collect();
    let (same, repairs) = of(&plain);
    assert_eq!(same.edges().len(), graph.edges().len());
    let told = |line, switch: &str| {
        format!("{line}:1: 3 hosts of {switch} are below its switches, too: joined with those alone")
    };
    assert_eq!(repairs, [told(1, "root"), told(2, "mid")]);
}

#[test]
fn hosts_of_many_switches_in_a_row_are_no_long_search() {
    let row = |at: usize| format!("SwitchName=s{at} Switches=s{} Nodes=h{at}\n", at + 1);
    let rows: String = (0..20_000).map(row).collect();
    let told = flaw(&rows);
    assert!(told.ends_with("wanted switches of a few levels"), "{told}");
}

#[test]
fn slurm_is_repaired_aloud_or_has_a_flaw() {
    let (graph, repairs) =
        of("SwitchName=a Switches=b,c\nSwitchName=b Nodes=x[1-2],x1\nswitchname=a nodes=x1 Comment=y\n");
    assert!(
        repairs
            .iter()
            .any(|told| told == "1:1: c is below a switch, but has nothing below it: kept so"),
        "{repairs:?}"
    );
    assert!(
        repairs
            .iter()
            .any(|told| told == "3:1: a second a: joined with the first"),
        "{repairs:?}"
    );
    assert!(
        repairs
            .iter()
            .any(|told| told == "3:23: \"Comment=y\" is unknown: left out"),
        "{repairs:?}"
    );
    assert_eq!(count(&graph, Host), 2);
    for (text, wanted) in [
        (
            "SwitchName=a Nodes=n[1-1000000000]\n",
            "t:1:20: a list with which there are more than 262144 names; wanted a list such as",
        ),
        ("SwitchName=a Nodes=n[1-\n", "t:1:21: a [ that is not closed"),
        (
            "SwitchName=a Switches=b\nSwitchName=b Switches=a\n",
            "t:1:1: a is below itself, or above a switch that is",
        ),
        ("SwitchName=a Switches=a\n", "t:1:1: a is below itself"),
        (
            "SwitchName=a SwitchName=b\n",
            "t:1:14: \"SwitchName=b\" here; wanted",
        ),
        ("SwitchName=a nodes\n", "t:1:14: \"nodes\"; wanted Name=value"),
        ("BlockSizes=4\n", "t:1:1: neither a switch nor a block"),
    ] {
        assert!(flaw(text).starts_with(wanted), "{}", flaw(text));
    }
}

#[test]
fn slurm_in_yaml_is_the_default_of_its_topologies() {
    let (graph, repairs) = graph("own/slurm-topology.yaml");
    assert_eq!(
        repairs,
        [
            "5:3: racks is not the cluster's default: left out",
            "16:12: \"comment\" is unknown: left out",
        ]
    );
    assert_eq!([Host, Leaf, Spine].map(|kind| count(&graph, kind)), [4, 2, 1]);
    let leaf = named(&graph, Leaf, "leaf2");
    assert!(graph.edge_between(leaf, named(&graph, Host, "node3")).is_some());
    assert_eq!(graph.place(graph.origin(leaf)), "t:19");

    let (graph, repairs) = of(
        "---\n- topology: a\n  flat: true\n- topology: b\n  block:\n    block_sizes: [2, 4]\n    blocks:\n\
         \x20   - block: b1\n      nodes: n[1-2]\n    - block: b2\n      nodes: n[3-4]\n",
    );
    assert_eq!(repairs, ["2:3: a has neither switches nor blocks: left out"]);
    assert_eq!([Host, Leaf, Opaque].map(|kind| count(&graph, kind)), [4, 2, 1]);
    assert_eq!(graph.get_whole("BlockSizes"), Some("2,4"));
    for (text, wanted) in [
        (
            "- topology: a\n  flat: true\n",
            "t:1:1: neither a switch nor a block",
        ),
        (
            "- topology: a\n  tree:\n    switches:\n    - nodes: n1\n",
            "t:4:7: a switch without a name",
        ),
        (
            "- topology: a\n  tree:\n    switches:\n    - switch: s\n      nodes: n[1-x]\n",
            "t:5:14: \"1-x\" within brackets",
        ),
    ] {
        assert!(flaw(text).starts_with(wanted), "{}", flaw(text));
    }
}

#[test]
fn topograph_counts_are_those_of_the_text() {
    for (name, text) in files().into_iter().filter(|(name, _)| name.contains("topograph")) {
        let (graph, repairs) = of(&text);
        assert_eq!(repairs, [""; 0], "{name}");
        // Ranges of equal width, by the last two digits of both ends.
        let ranges = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .flat_map(|line| between(line, "[", "]"));
        let last = |word: &str| word[word.len() - 2..].parse::<usize>().unwrap();
        let hosts: usize = ranges
            .filter_map(|range| range.split_once('-'))
            .filter(|(first, _)| first.bytes().all(|byte| byte.is_ascii_digit()))
            .map(|(first, end)| last(end) - last(first) + 1)
            .sum();
        let alone = text.matches("\"I25\"").count();
        let domains: HashSet<&str> = between(&text, "test/domain: ", "\n").into_iter().collect();
        let blocks = text.matches("- switch: ").count();
        assert_eq!(
            [Host, NvSwitch, Leaf].map(|kind| count(&graph, kind)),
            [hosts + alone, domains.len(), blocks],
            "{name}"
        );
    }
    assert!(flaw("switches: &a [1]\nblocks: *a\n").starts_with("t:2:9: an alias"));
    assert!(flaw("blocks:\n- nodes: [\"n[1-999999999]\"]\n").starts_with("t:2:11: a list with which"));
}

#[test]
fn topograph_tells_domains_by_labels_and_what_is_unknown() {
    let (graph, repairs) = of(
        "switches:\n  core:\n    switches: [leaf]\n    metadata: x\nblocks:\n- switch: leaf\n  nodes: [n1]\n  labels:\n\
         \x20   network.topology.nvidia.com/accelerator: nvl-1\n- switch: leaf\n  nodes: [n2, n3]\n  labels:\n\
         \x20   network.topology.nvidia.com/level-0: leaf\n    accelerated.topology.nvidia.com/level-0: nvl-2\n  size: 3\n",
    );
    let hosts = ["nvl-1", "nvl-2"].map(|name| graph.edges_from(named(&graph, NvSwitch, name)).count());
    assert_eq!(hosts, [1, 2]);
    assert_eq!(
        repairs,
        [
            "4:15: \"metadata\" is unknown: left out",
            "15:9: \"size\" is unknown: left out"
        ]
    );
}

#[test]
fn ibnetdiscover_and_netq() {
    let text = text("fabric/ibnetdiscover-excerpt.out");
    let (graph, repairs) = of(&text);
    assert_eq!(
        repairs,
        ["55:1: 10 adapters have no host in their description: kept without one"]
    );
    let ids = |begin: &str| -> HashSet<&str> { between(&text, begin, "\"").into_iter().collect() };
    let aggregation: HashSet<&str> = text
        .lines()
        .filter(|line| line.contains("Aggregation"))
        .flat_map(|line| between(line, "\"H-", "\""))
        .collect();
    assert_eq!(count(&graph, Nic), ids("\"H-").len() - aggregation.len());
    assert_eq!(count(&graph, Leaf) + count(&graph, Spine), ids("\"S-").len());
    let hosts: HashSet<&str> = text
        .lines()
        .flat_map(|line| between(line, "# \"a0", " "))
        .collect();
    assert_eq!(count(&graph, Host), hosts.len());
    let wires: u32 = graph
        .edges()
        .filter(|edge| edge.link.kind == LinkKind::Ib)
        .map(|edge| edge.link.wires)
        .sum();
    assert_eq!(
        wires as usize,
        2 * text.lines().filter(|line| line.starts_with('[')).count()
    );
    let leaf = graph.of_kind(Leaf).next().unwrap();
    let spine = graph
        .edges_from(leaf)
        .map(|edge| graph.edge(edge))
        .find(|edge| graph.kind(edge.to) == Spine)
        .unwrap();
    assert_eq!(
        (spine.link.wires, spine.link.bytes_per_second),
        (2, 100_000_000_000)
    );
    assert!(flaw("Switch 3 \"S-1\" # \"x\"\n[1] \"S-2\n").starts_with("t:2:1: a port without its number"));
    let (_, repairs) = of(
        "Ca\t1 \"H-1\"\t# \"n1 mlx5_0\"\n[1](1) \"S-1\"[4] # lid 1 lmc 0 \"sw\" lid 2 9xFAST\nSwitch 3 \"S-1\" # \"sw\"\n[4] \"H-1\"[1](1) # \"n1 mlx5_0\" lid 1 4xEDR\n",
    );
    assert_eq!(repairs, ["2:1: \"9xFAST\" is no speed of InfiniBand: not known"]);

    let text = self::text("fabric/netq-topologyGraph.json");
    let (graph, _) = of(&text);
    let types = |kind: &str| text.matches(&format!("\"device_type\": \"{kind}\"")).count();
    assert_eq!(count(&graph, Leaf) + count(&graph, Spine), types("switch"));
    assert_eq!(count(&graph, Host), types("discovered_via_lldp"));
    let wires: u32 = graph.edges().map(|edge| edge.link.wires).sum();
    assert_eq!(
        wires as usize,
        2 * text.matches("-*-").count() - 2 * graph.edges().len() / 2
    );
    let text = self::text("fabric/netq-computeNodes.json");
    let (graph, _) = of(&text);
    assert_eq!(
        [Host, Gpu, NvSwitch].map(|kind| count(&graph, kind)),
        [
            text.matches("\"Name\"").count(),
            text.matches("690a2d9cc5e905fa41a87c").count(),
            1
        ]
    );
}

#[test]
fn ibnetdiscover_may_group_by_chassis_and_tell_all_of_ports() {
    let (graph, repairs) = of(
        "Chassis 1 (guid 0x2c90200)\nHostname: n1\n\n# Spine Nodes\nswitchguid=0x2(2)\t# Spine 1 Chip 1\nSwitch\t1 \"S-2\"\t\t# \"spine\"\n\
         [1][ext 9]\t\"S-1\"[4]\t\t# \"leaf\" lid 3 4xHDR s=4 w=2 v=4\n\nNon-Chassis Nodes\n\nSwitch\t4 \"S-1\"\t\t# \"leaf\"\n\
         [1]\t\"H-1\"[1](1) \t\t# \"n1 mlx5_0\" lid 4 4xEDR s=4 w=2 v=5 e=2 slot 1\n[2]\t\"H-2\"[1](2) \t\t# \"n2 mlx5_0\" lid 5 9xFAST s=4\n",
    );
    assert_eq!(
        repairs,
        [
            "7:1: a wire of which the other end, which has a part of its own, tells nothing: taken",
            "13:1: \"s=4\" is no speed of InfiniBand: not known"
        ]
    );
    let leaf = named(&graph, Leaf, "leaf");
    let speed = |other| link(&graph, leaf, other).bytes_per_second;
    let adapter = |host: &str| graph.children(named(&graph, Host, host)).next().unwrap();
    let speeds = [named(&graph, Spine, "spine"), adapter("n1"), adapter("n2")].map(speed);
    assert_eq!(speeds, [25_000_000_000, 12_500_000_000, 0]);
}

#[test]
fn wires_of_infiniband_that_one_end_tells_are_taken_and_others_that_cannot_be_are_told() {
    let (graph, repairs) = of("Switch 4 \"S-1\" # \"a\"\n\
         [1] \"H-1\"[1](1) # \"n1 mlx5_0\" lid 2 4xNDR\n[2] \"H-2\"[1](2) # \"n2 mlx5_0\" lid 3 4xNDR\n\
         [3] \"H-1\"[1](1) # \"n1 mlx5_0\" lid 2 4xNDR\n[4] \"S-1\"[4] # \"a\" lid 1 4xNDR\n\
         Ca 1 \"H-2\" # \"n2 mlx5_0\"\n[2](2) \"S-1\"[9] # lid 3 lmc 0 \"a\" lid 1 4xNDR\n\
         [1](3) \"S-1\"[7] # lid 3 lmc 0 \"a\" lid 1 4xNDR\n\
         Ca 1 \"H-3\" # \"n3 mlx5_0\"\n[1](4) \"S-2\"[1] # lid 4 lmc 0 \"b\" lid 5 4xNDR\n");
    assert_eq!(
        repairs,
        [
            "3:1: this and 1 more wires of which the other end, which has a part of its own, tells nothing: taken",
            "4:1: a wire from a[3] to mlx5_0[1], which has one to a[1]: left out",
            "5:1: a wire from a[4] to itself: left out",
            "8:1: a wire from mlx5_0[1] to a[7], but it has one to a[2]: left out",
        ]
    );
    let wires = |leaf| -> Vec<u32> {
        let edges = graph.edges_from(named(&graph, Leaf, leaf));
        edges.map(|edge| graph.edge(edge).link.wires).collect()
    };
    assert_eq!((wires("a"), wires("b")), (vec![1, 2], vec![1]));
}

/// Each of so many switches names a host and has all others below it.
#[test]
fn switches_below_one_another_are_few_or_told_in_no_time() {
    let chain: String = (0..100_000)
        .map(|at| format!("SwitchName=s{at} Switches=s{} Nodes=n{at}\n", at + 1))
        .collect();
    assert!(flaw(&chain).contains(": hosts of too many switches below one another"));
}

#[test]
fn rank_tables() {
    for (name, pods) in [
        ("own/hccl-servers.jsonc", 0),
        ("own/hccl-pods.jsonc", 2),
        ("own/hccl-groups.json", 0),
    ] {
        let text = text(name);
        let (graph, repairs) = of(&text);
        assert_eq!(repairs, [""; 0], "{name}");
        let devices = text.matches("\"device_id\"").count();
        let hosts = text
            .lines()
            .filter(|line| line.contains("\"server_id\"") && !line.contains("super_pod_id"))
            .count();
        assert_eq!(
            [Npu, Rank, Nic, Host].map(|kind| count(&graph, kind)),
            [devices, devices, devices, hosts],
            "{name}"
        );
        let fabrics = graph
            .of_kind(Opaque)
            .filter(|node| graph.name(*node).starts_with("super pod"));
        assert_eq!(fabrics.count(), pods, "{name}");
    }
    let (_, repairs) = of(
        "{\"status\": \"initializing\",\n\"server_count\": \"2\", \"server_list\": [\n{\"device\": [{\"device_id\": 0}]}],\n\
         \"super_pod_list\": [{\"server_list\": [{\"server_id\": \"x\"}]}]}",
    );
    assert_eq!(
        repairs,
        [
            "1:12: a table that is not completed: read as it is",
            "2:17: server_count is 2, but there are 1: taken as those",
            "3:1: a server without a server_id: taken as \"server\"",
            "4:37: a server that is not in the server_list: left out",
        ]
    );
    for (text, wanted) in [
        ("{\"server_list\": []}", "t:1:1: no server"),
        (
            "{\"server_list\": [{\"server_id\": \"a\", \"device\": [{}]}]}",
            "t:1:48: a device without a device_id",
        ),
        (
            "{\"server_list\": [{\"server_id\": \"a\", \"device\": [{\"device_id\": 0, \"rank_id\": 1}, {\"device_id\": 1, \"rank_id\": 1}]}]}",
            "t:1:80: a second rank 1",
        ),
        (
            "{\"server_list\": [ // x\n",
            "t:1:23: the end of the text; wanted what is still open",
        ),
    ] {
        assert!(flaw(text).starts_with(wanted), "{}", flaw(text));
    }
}

#[test]
fn networks_of_simulators_and_profiles() {
    let (graph, _) = graph("own/astra-analytical.yml");
    assert_eq!([Npu, Leaf].map(|kind| count(&graph, kind)), [8, 2]);
    let npus: Vec<NodeId> = graph.of_kind(Npu).collect();
    let up = link(&graph, npus[3], named(&graph, Leaf, "switch of dimension 0"));
    assert_eq!((up.bytes_per_second, up.latency_ns), (400_000_000_000, Some(936)));
    assert_eq!(link(&graph, npus[1], npus[5]).bytes_per_second, 50_000_000_000);
    let (graph, _) = self::graph("profiles/astra-8nodes.topo");
    // 8 hosts, 2 a switch; each 2 up, 2 down; then 4 up, 4 down, two wires a bundle.
    assert_eq!(
        [Host, Leaf, Spine, CoreSwitch].map(|kind| count(&graph, kind)),
        [8, 4, 4, 4]
    );
    let first = graph.of_kind(Host).next().unwrap();
    let paths = Paths::from(&graph, first);
    assert!(
        graph
            .of_kind(Host)
            .all(|host| host == first || paths.to(host).is_some())
    );
    let core = graph.of_kind(CoreSwitch).next().unwrap();
    let down: Vec<_> = graph
        .edges_from(core)
        .map(|edge| graph.edge(edge).link)
        .map(|link| (link.wires, link.bytes_per_second))
        .collect();
    assert_eq!(down, [(2, 25_000_000_000); 2]);
    for name in ["1KB", "32KB", "1MB"] {
        let (graph, repairs) = self::graph(&format!("profiles/taccl-topo-ndv2-{name}.json"));
        assert_eq!(
            ([Gpu, Nic, Host].map(|kind| count(&graph, kind)), repairs.len()),
            ([8, 1, 1], 1)
        );
        let host = graph.of_kind(Host).next().unwrap();
        assert!(graph.get(host, "node_betas_list").unwrap().contains(' '));
    }
    for (text, wanted) in [
        (
            "topology: [ Ring ]\nnpus_count: [ 99999999 ]\nbandwidth: [ 1 ]\nlatency: [ 1 ]\n",
            "t:1:13: more than 16384 NPUs",
        ),
        (
            "topology: [ FullyConnected ]\nnpus_count: [ 16000 ]\nbandwidth: [ 1 ]\nlatency: [ 1 ]\n",
            "t:1:13: more than 262144 links",
        ),
        (
            "topology: [ Cube ]\nnpus_count: [ 4 ]\n",
            "t:1:13: topology \"Cube\"",
        ),
        (
            "topology: [ Ring ]\nnpus_count: [ 4 ]\nlatency: [ 1 ]\n",
            "t:1:13: no bandwidth; wanted GB/s of each dimension, above 0",
        ),
        (
            "topology: [ Ring, Ring ]\nnpus_count: [ 4, 2 ]\nlatency: [ 1, 1 ]\nbandwidth: [ 4 ]\n",
            "t:4:12: no bandwidth of dimension 1; wanted GB/s of each dimension, above 0",
        ),
        (
            "Nodes 8\nTiers 1\nTier 0\nRadix_Down 8\n",
            "t:3:1: a tier without Downlink_speed_Gbps; wanted Gb/s of a link down, above 0",
        ),
        (
            "Nodes 8\nTiers 1\nTier 0\nRadix_Down 8\nDownlink_speed_Gbps 0\n",
            "t:5:1: Downlink_speed_Gbps 0; wanted Gb/s of a link down, above 0",
        ),
        (
            "Nodes 8\nTiers 1\nTier 0\nRadix_Down 3\n",
            "t:3:1: 8 ports below switches of 3",
        ),
        (
            "Nodes 8\nTiers 2\nTier 0\nRadix_Down 4\n",
            "t:4:13: 1 tiers where Tiers is 2",
        ),
        (
            "Nodes 999999999\nTiers 1\nTier 0\nRadix_Down 4\n",
            "t:1:1: Nodes 999999999",
        ),
        (
            "{\"gpus_per_node\": 100000}",
            "t:1:19: gpus_per_node here; wanted 0 to 1024",
        ),
    ] {
        assert!(flaw(text).starts_with(wanted), "{}", flaw(text));
    }
}

/// A bandwidth of 0 would be taken for one that is not known.
#[test]
fn simulators_networks_have_bandwidths() {
    for bandwidth in ["0", "0.0", "1e-12", "-5", "NaN", "inf", "1e30", "fast"] {
        let network = format!(
            "topology: [ Ring, Switch ]\nnpus_count: [ 4, 2 ]\nbandwidth: [ 50, {bandwidth} ]\nlatency: [ 1, 1 ]\n"
        );
        let wanted = "of dimension 1; wanted GB/s of each dimension, above 0";
        assert_eq!(
            flaw(&network),
            format!("t:3:18: bandwidth \"{bandwidth}\" {wanted}")
        );
    }
}

#[test]
fn what_scontrol_shows_of_blocks_is_read() {
    let (graph, repairs) = of("BlockName=b0 BlockIndex=0 Nodes=n[0-1] BlockSize=2\n\
         BlockName=b1 BlockIndex=1 Nodes=n[2-3] BlockSize=2\n\
         BlockName=b2 BlockIndex=2 Nodes=n[4-5] BlockSize=2\n\
         BlockName=b3 BlockIndex=3 Nodes=n[6-7] BlockSize=2\n\
         AggregatedBlock=b[0-1] BlockIndex=4 Nodes=n[0-3] BlockSize=4\n\
         AggregatedBlock=b[2-3] BlockIndex=5 Nodes=n[4-7] BlockSize=4\n\
         AggregatedBlock=b[0-3] BlockIndex=6 Nodes=n[0-7] BlockSize=8\n");
    assert_eq!(repairs, [""; 0]);
    assert_eq!(
        [Host, Leaf, Spine, CoreSwitch, Opaque].map(|kind| count(&graph, kind)),
        [8, 4, 2, 1, 0]
    );
    let [block, pair, all] = [(Leaf, "b2"), (Spine, "b[2-3]"), (CoreSwitch, "b[0-3]")]
        .map(|(kind, name)| named(&graph, kind, name));
    assert_eq!(graph.get(pair, "BlockSize"), Some("4"));
    assert_eq!(graph.get(block, "BlockIndex"), Some("2"));
    let below = |node| {
        graph
            .edges_from(node)
            .map(|edge| graph.name(graph.edge(edge).to))
            .collect::<Vec<_>>()
    };
    assert_eq!(below(pair), ["b2", "b3", "b[0-3]"]);
    assert_eq!(below(all), ["b[0-1]", "b[2-3]"]);

    // Not all blocks are in one, and what names others is told.
    let (graph, repairs) = of(
        "BlockName=b0 Nodes=n0\nBlockName=b1 Nodes=n1\nBlockName=b2 Nodes=n2\n\
         AggregatedBlock=b[0-1],c Nodes=n[0-1]\nAggregatedBlock=x[0-9]\nAggregatedBlock=b[0-1],b[0-1]\n",
    );
    assert_eq!(
        repairs,
        [
            "4:1: b[0-1],c has no block c: made of the others",
            "5:1: x[0-9] has no block x0: made of the others",
            "5:1: x[0-9] joins no blocks: left out",
            "6:1: b[0-1],b[0-1] joins no blocks: left out",
        ]
    );
    let between = named(&graph, Opaque, "between blocks");
    assert_eq!(graph.edges_from(between).count(), 2);
    assert!(
        flaw("BlockName=b0 Nodes=n0\nAggregatedBlock=b[0-\n").starts_with("t:2:18: a [ that is not closed")
    );
}

#[test]
fn slurm_lines_go_on_and_have_blanks_and_quotation_marks() {
    let (graph, repairs) = of(
        "# first\nSwitchName = top \\\n  Switches=\"a, b\"\\  # both\n\nSwitchName=a Nodes=\\\n\
         n[1-\\\n3],n4 Comment=\"a remark\"\nSwitchName =b Nodes= \"n5\"\n",
    );
    assert_eq!(repairs, ["7:7: \"Comment=a remark\" is unknown: left out"]);
    assert_eq!([Host, Leaf, Spine].map(|kind| count(&graph, kind)), [5, 2, 1]);
    let [a, b] = ["a", "b"].map(|name| named(&graph, Leaf, name));
    assert!(graph.edge_between(a, named(&graph, Host, "n3")).is_some());
    assert!(graph.edge_between(b, named(&graph, Host, "n5")).is_some());
    assert_eq!(graph.place(graph.origin(b)), "t:8");
    for (text, wanted) in [
        (
            "SwitchName=a \\\nNodes=n[1-\\\nx]\n",
            "t:2:9: \"1-x\" within brackets",
        ),
        (
            "SwitchName=a \\\n Nodes=a,n[1-x]\n",
            "t:2:12: \"1-x\" within brackets",
        ),
        (
            "SwitchName=a Nodes=\"n1\n",
            "t:1:14: Nodes with a \" that is not closed",
        ),
        (
            "SwitchName=a Nodes= LinkSpeed=1\n",
            "t:1:14: Nodes without a value",
        ),
        ("SwitchName=a \\", "t:1:1: neither"),
    ] {
        match read(text, "t") {
            Err(told) => assert!(told.to_string().starts_with(wanted), "{told}"),
            Ok((reading, _)) => assert_eq!((count(&reading.graph, Leaf), wanted), (1, "t:1:1: neither")),
        }
    }
}

#[test]
fn a_server_is_in_one_super_pod_once() {
    let pod = |id: u32, server: &str| format!("{{\"super_pod_id\": \"{id}\", \"server_list\": [{server}]}}");
    let server = "{\"server_id\": \"a\"}";
    let pods = [pod(0, &format!("{server},\n{server}")), pod(1, server)].join(",\n");
    let (graph, repairs) = of(&format!(
        "{{\"server_list\": [{{\"server_id\": \"a\", \"super_pod\": \"x\", \"device\": [\n{{\"device_id\": \"0\"}},\n\
         {{\"device_id\": \"0\"}}]}},\n{{\"server_id\": \"b\", \"super_pod\": \"x\", \"device\": [{{\"device_id\": 0}}, {{\"device_id\": 1}}]}}],\n\
         \"super_pod_list\": [{pods}]}}"
    ));
    assert_eq!(
        repairs,
        [
            "3:1: a second device 0 of its server: kept as one more",
            "6:1: a server that is in a super pod already: left out",
            "7:39: a server that is in a super pod already: left out",
        ]
    );
    let hccs = |name: &str| {
        let fabric = named(&graph, Opaque, name);
        graph.edges_from(fabric).count()
    };
    assert_eq!(["super pod 0", "super pod 1", "HCCS"].map(hccs), [2, 0, 2]);
}
