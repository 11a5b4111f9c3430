use super::*;
use crate::topo::{diff::diff, paths::Paths, read, write};
use std::os::unix::fs::symlink;

/// A directory like `/`, with files by path and contents, and links to directories.
fn machine(files: &[(&str, &str)], links: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    for (path, target) in links {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }
    root
}

fn named(graph: &Graph, name: &str) -> NodeId {
    let mut all = graph.nodes().filter(|node| graph.name(*node) == name);
    all.next().unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn a_machine_with_nothing_has_a_numa_node() {
    let root = machine(&[], &[]);
    let reading = super::read(root.path());
    assert_eq!(reading.repairs, []);
    let names: Vec<_> = reading
        .graph
        .nodes()
        .map(|node| reading.graph.name(node))
        .collect();
    assert_eq!(names, ["host", "NUMA 0"]);
}

#[test]
fn two_packages_with_gpus_and_adapters() {
    let (cpu, node) = ("sys/devices/system/cpu", "sys/devices/system/node");
    let pci = "sys/devices/pci0000:00";
    let mut files: Vec<(String, &str)> = vec![
        ("proc/sys/kernel/hostname".into(), "alpha\n"),
        (
            "proc/cpuinfo".into(),
            "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n",
        ),
        (format!("{node}/node0/cpulist"), "0-1\n\0"),
        (format!("{node}/node0/distance"), "10 21\n"),
        (
            format!("{node}/node0/meminfo"),
            "Node 0 MemTotal:       1024 kB\n",
        ),
        (format!("{node}/node1/cpulist"), "2-3\n"),
    ];
    for (number, package, shared) in [
        (0, "0\n", "0-1\n"),
        (1, "0", "0-1"),
        (2, "1", "2-3"),
        (3, "1", "2-3"),
    ] {
        files.push((format!("{cpu}/cpu{number}/topology/physical_package_id"), package));
        files.push((format!("{cpu}/cpu{number}/cache/index0/level"), "1"));
        files.push((format!("{cpu}/cpu{number}/cache/index3/level"), "3"));
        files.push((format!("{cpu}/cpu{number}/cache/index3/shared_cpu_list"), shared));
    }
    // A bridge with a GPU that idles, an adapter of two functions' kinds beside it, and one of a hypervisor.
    let device = |path: &str, class: &'static str, vendor: &'static str, now: &'static str| {
        [
            (format!("{path}/class"), class),
            (format!("{path}/vendor"), vendor),
            (format!("{path}/numa_node"), "1\n"),
            (format!("{path}/max_link_speed"), "16.0 GT/s PCIe\n"),
            (format!("{path}/max_link_width"), "16\n"),
            (format!("{path}/current_link_speed"), now),
            (format!("{path}/current_link_width"), "16\n"),
        ]
    };
    let bridge = format!("{pci}/0000:00:01.0");
    let full = "16.0 GT/s PCIe\n";
    files.extend(device(&bridge, "0x060400\n", "0x8086\n", full));
    files.extend(device(
        &format!("{bridge}/0000:01:00.0"),
        "0x030200\n",
        "0x10de\n",
        "2.5 GT/s PCIe\n",
    ));
    files.extend(device(
        &format!("{bridge}/0000:02:00.0"),
        "0x020700\n",
        "0x15b3\n",
        full,
    ));
    files.extend(device(
        &format!("{pci}/0000:00:1f.0"),
        "0x030000\n",
        "0x1a03\n",
        full,
    ));
    let verbs = "sys/class/infiniband/mlx5_0";
    for (file, content) in [
        ("sys_image_guid", "9a70:5000:03ae:6d94\n"),
        ("ports/1/rate", "200 Gb/sec (4X HDR)\n"),
        ("ports/1/state", "4: ACTIVE\n"),
        ("ports/1/link_layer", "InfiniBand\n"),
    ] {
        files.push((format!("{verbs}/{file}"), content));
    }
    files.push(("sys/class/net/ib0/speed".into(), "200000\n"));
    files.push(("sys/class/net/docker0/speed".into(), "-1\n"));
    files.push(("sys/class/net/eth0/speed".into(), "10000\n"));
    files.push(("sys/class/net/eth0/operstate".into(), "down\n"));
    files.push(("sys/devices/vmbus/nothing".into(), ""));
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, content)| (path.as_str(), *content))
        .collect();
    let root = machine(
        &files,
        &[
            (
                "sys/bus/pci/devices/0000:00:01.0",
                "../../../devices/pci0000:00/0000:00:01.0",
            ),
            (
                "sys/bus/pci/devices/0000:01:00.0",
                "../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0",
            ),
            (
                "sys/bus/pci/devices/0000:02:00.0",
                "../../../devices/pci0000:00/0000:00:01.0/0000:02:00.0",
            ),
            (
                "sys/bus/pci/devices/0000:00:1f.0",
                "../../../devices/pci0000:00/0000:00:1f.0",
            ),
            (
                "sys/class/infiniband/mlx5_0/device",
                "../../../devices/pci0000:00/0000:00:01.0/0000:02:00.0",
            ),
            (
                "sys/class/net/ib0/device",
                "../../../devices/pci0000:00/0000:00:01.0/0000:02:00.0",
            ),
            ("sys/class/net/eth0/device", "../../../devices/vmbus"),
        ],
    );
    let Reading { graph, repairs } = super::read(root.path());
    let repairs: Vec<&str> = repairs.iter().map(|repair| repair.what.as_str()).collect();
    assert_eq!(
        repairs,
        [
            "0000:01:00.0 runs at 2.5 GT/s PCIe x16 of 16.0 GT/s PCIe x16: idle, or badly plugged in; taken as 24 GB/s"
        ]
    );
    let [gpu, nic, port] = ["0000:01:00.0", "0000:02:00.0", "mlx5_0"].map(|name| named(&graph, name));
    assert_eq!(
        [gpu, nic, port].map(|node| graph.kind(node)),
        [NodeKind::Gpu, NodeKind::Nic, NodeKind::NicPort]
    );
    let above: Vec<&str> = graph.ancestors(gpu).map(|node| graph.name(node)).collect();
    assert_eq!(
        above,
        ["0000:00:01.0", "pci0000:00", "NUMA 1", "package 1", "alpha"]
    );
    assert_eq!(
        graph.place(graph.origin(gpu)),
        "/sys/bus/pci/devices/0000:01:00.0"
    );
    assert_eq!(
        (graph.parent(port), graph.get(port, "netdev")),
        (Some(nic), Some("ib0"))
    );
    let to_port = graph.edge(graph.edge_between(nic, port).unwrap()).link;
    assert_eq!(
        (to_port.kind, to_port.bytes_per_second, to_port.reachable),
        (LinkKind::Ib, 25_000_000_000, true)
    );
    let eth0 = named(&graph, "eth0");
    let to_eth0 = graph
        .edge(graph.edge_between(graph.parent(eth0).unwrap(), eth0).unwrap())
        .link;
    assert!(!to_eth0.reachable, "it is down");
    assert!(
        graph
            .nodes()
            .all(|node| !["docker0", "ib0", "0000:00:1f.0"].contains(&graph.name(node)))
    );
    let paths = Paths::from(&graph, gpu);
    assert_eq!(
        (
            paths.to(nic).unwrap().way.name(),
            paths.to(nic).unwrap().bytes_per_second
        ),
        ("PIX", 24_000_000_000)
    );
    let [one, other] = ["NUMA 0", "NUMA 1"].map(|name| named(&graph, name));
    assert_eq!(
        graph
            .edge(graph.edge_between(one, other).unwrap())
            .link
            .bytes_per_second,
        22_000_000_000
    );
    assert_eq!(
        [graph.get(one, "memory"), graph.get(one, "distance")],
        [Some("1024kB"), Some("10 21")]
    );
    assert_eq!(graph.of_kind(NodeKind::Cores).count(), 2);

    let json = (write::writer("json").unwrap().write)(&graph);
    assert!(read::read(&json.text, "json").unwrap().0.graph == graph);
    let xml = (write::writer("nccl-xml").unwrap().write)(&graph);
    let again = read::read(&xml.text, "xml").unwrap().0.graph;
    let kinds = [
        NodeKind::Gpu,
        NodeKind::Nic,
        NodeKind::NicPort,
        NodeKind::Numa,
        NodeKind::PciSwitch,
    ];
    let counts = |graph: &Graph| kinds.map(|kind| graph.of_kind(kind).count());
    assert_eq!(counts(&again), counts(&graph), "{:?}", diff(&graph, &again));
    assert_eq!(xml.left_out, ["2 of Cores", "2 of Package", "1 of RootComplex"]);
}

#[test]
fn copies_whose_links_lead_nowhere_are_read() {
    let bus = "sys/bus/pci/devices";
    let mut files = Vec::new();
    for place in ["0", "1"] {
        let device = format!("{bus}/0000:02:00.{place}");
        files.push((format!("{device}/class"), "0x020000\n"));
        files.push((format!("{device}/vendor"), "0x8086\n"));
    }
    files.push(("sys/class/net/eth0/speed".into(), "25000\n"));
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, content)| (path.as_str(), *content))
        .collect();
    let root = machine(
        &files,
        &[
            ("sys/bus/pci/devices/0000:02:00.1/physfn", "../not-copied"),
            (
                "sys/class/net/eth0/device",
                "../../../devices/pci0000:00/0000:02:00.0",
            ),
        ],
    );
    let Reading { graph, .. } = super::read(root.path());
    let nics: Vec<&str> = graph.of_kind(NodeKind::Nic).map(|nic| graph.name(nic)).collect();
    assert_eq!(nics, ["0000:02:00.0"], "the other is a part of it");
    let port = named(&graph, "eth0");
    assert_eq!(
        graph.parent(port).map(|nic| graph.name(nic)),
        Some("0000:02:00.0")
    );
}

/// A virtual function that the host itself uses has an interface of its own; a container may see no other.
#[test]
fn virtual_functions_are_no_adapters() {
    let pci = "sys/devices/pci0000:00";
    let mut files = Vec::new();
    for place in ["0", "1"] {
        let device = format!("{pci}/0000:02:00.{place}");
        files.push((format!("{device}/class"), "0x020000\n"));
        files.push((format!("{device}/vendor"), "0x8086\n"));
    }
    files.push(("sys/class/net/eth0/speed".into(), "25000\n"));
    files.push(("sys/class/net/eth0v0/speed".into(), "25000\n"));
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, content)| (path.as_str(), *content))
        .collect();
    let [one, other] = ["0", "1"].map(|place| format!("../../../devices/pci0000:00/0000:02:00.{place}"));
    let root = machine(
        &files,
        &[
            ("sys/bus/pci/devices/0000:02:00.0", &one),
            ("sys/bus/pci/devices/0000:02:00.1", &other),
            ("sys/devices/pci0000:00/0000:02:00.1/physfn", "../0000:02:00.0"),
            ("sys/class/net/eth0/device", &one),
            ("sys/class/net/eth0v0/device", &other),
        ],
    );
    for port in ["eth0", "eth0v0"] {
        let Reading { graph, .. } = super::read(root.path());
        for (kind, wanted) in [(NodeKind::Nic, "0000:02:00.0"), (NodeKind::NicPort, port)] {
            let names: Vec<&str> = graph.of_kind(kind).map(|node| graph.name(node)).collect();
            assert_eq!(names, [wanted]);
        }
        let _ = std::fs::remove_dir_all(root.path().join("sys/class/net/eth0"));
    }
}

/// What a process with NVML's stand-in does not show: tests/ccl_topo.rs has the rest.
#[cfg(feature = "nvml")]
#[test]
fn nvlinks_that_cannot_be_are_told() {
    use crate::sys::nvml::{End, Gpu, Link};
    let mut files = Vec::new();
    for bus in ["01", "02"] {
        let device = format!("sys/bus/pci/devices/0000:{bus}:00.0");
        files.push((format!("{device}/class"), "0x030200"));
        files.push((format!("{device}/vendor"), "0x10de"));
    }
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, content)| (path.as_str(), *content))
        .collect();
    let root = machine(&files, &[]);
    let link = |bus: &str, end, version| Link {
        bus_id: format!("00000000:{bus}:00.0"),
        end,
        version,
    };
    let gpu = |index, links| Gpu {
        index,
        bus_id: format!("00000000:0{}:00.0", index + 1),
        links,
        ..Gpu::default()
    };
    let mut reader = Reader::new(root.path()).read();
    reader.gpus(&[
        gpu(
            0,
            vec![
                link("02", End::Unknown, Some(6)),
                link("02", End::Gpu, Some(6)),
                link("01", End::Gpu, None),
                link("77", End::Gpu, None),
                link("78", End::Unknown, None),
                link("79", End::Processor, Some(2)),
            ],
        ),
        gpu(1, vec![link("01", End::Gpu, Some(6))]),
        gpu(2, vec![]),
    ]);
    let Reading { graph, repairs } = reader.end();
    let told: Vec<&str> = repairs.iter().map(|repair| &*repair.what).collect();
    assert_eq!(
        told,
        [
            "NVML has a GPU 0000:03:00.0, which sysfs has not: left out",
            "0000:01:00.0 has 1 NVLinks to itself: whereto they lead is not known; not used",
            "0000:01:00.0 has 1 NVLinks to 0000:77:00.0, which is not here; not used",
            "0000:01:00.0 has 1 NVLinks to 0000:78:00.0, which is not here; not used",
            "0000:01:00.0 has 2 NVLinks to 0000:02:00.0, which has 1 back: each way kept",
        ]
    );
    let [one, other, numa] = ["0000:01:00.0", "0000:02:00.0", "NUMA 0"].map(|name| named(&graph, name));
    let speeds = [(one, other), (other, one), (one, numa)].map(|(from, to)| {
        let mut edges = graph.edges_from(from).map(|edge| graph.edge(edge));
        let edge = edges.find(|edge| edge.to == to && edge.link.kind == LinkKind::NvLink);
        edge.map(|edge| (edge.link.wires, edge.link.bytes_per_second))
    });
    assert_eq!(
        speeds,
        [
            Some((2, 41_200_000_000)),
            Some((1, 20_600_000_000)),
            Some((1, 20_000_000_000))
        ]
    );
}

#[test]
fn amd_gpus_have_their_links() {
    let kfd = "sys/class/kfd/kfd/topology/nodes";
    let mut files = Vec::new();
    for (bus, location) in [("03", "768"), ("c3", "49920")] {
        let path = format!("sys/bus/pci/devices/0000:{bus}:00.0");
        files.push((format!("{path}/class"), "0x120000".to_owned()));
        files.push((format!("{path}/vendor"), "0x1002".to_owned()));
        let number = if bus == "03" { 1 } else { 2 };
        files.push((
            format!("{kfd}/{number}/properties"),
            format!("simd_count 416\nlocation_id {location}\ndomain 0\n"),
        ));
        let links = format!(
            "type 11\nnode_from {number}\nnode_to {}\nmax_bandwidth 50000\n",
            3 - number
        );
        files.push((
            format!("{kfd}/{number}/io_links/0/properties"),
            "type 2\nnode_from 1\nnode_to 0\n".to_owned(),
        ));
        files.push((format!("{kfd}/{number}/io_links/1/properties"), links));
    }
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, content)| (path.as_str(), content.as_str()))
        .collect();
    let root = machine(&files, &[]);
    let Reading { graph, .. } = super::read(root.path());
    let [one, other] = ["0000:03:00.0", "0000:c3:00.0"].map(|name| named(&graph, name));
    for (from, to) in [(one, other), (other, one)] {
        let link = graph.edge(graph.edge_between(from, to).unwrap()).link;
        assert_eq!(
            (link.kind, link.bytes_per_second),
            (LinkKind::XGmi, 50_000_000_000)
        );
    }
}

#[test]
fn this_machine_can_be_read() {
    let Reading { graph, .. } = super::read(Path::new("/"));
    assert!(graph.of_kind(NodeKind::Numa).count() >= 1);
}

#[test]
fn sets_of_processors() {
    let set = |list: &str| cpu_set(list).into_iter().collect::<Vec<_>>();
    assert_eq!(set("0-3,8, 10-11"), [0, 1, 2, 3, 8, 10, 11]);
    assert!(set("").is_empty());
    assert_eq!(cpu_set("0-4294967295").len(), 65537);
}

/// A path and its contents, or what it links to, a line; excerpt of a copy of `/sys` and `/proc`.
#[test]
fn a_machine_of_another_is_the_one_that_hwloc_saw() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/topologies");
    let excerpt = fs::read_to_string(data.join("sysfs/40intel64-2g2n4c.txt")).unwrap();
    let (mut files, mut links) = (Vec::new(), Vec::new());
    for (path, content) in excerpt.lines().filter_map(|line| line.split_once('\t')) {
        match content.strip_prefix("->") {
            Some(target) => links.push((path, target)),
            None => files.push((path, content)),
        }
    }
    let root = machine(&files, &links);
    let reading = super::read(root.path());
    let told: Vec<&str> = reading.repairs.iter().map(|repair| &*repair.what).collect();
    let wanted = ["0000:02:00.0", "0000:02:00.1", "0000:03:00.0", "0000:03:00.1"];
    assert_eq!(
        told,
        wanted.map(|bus| format!("{bus} has numa_node \"-1\": taken as the first"))
    );
    let xml = fs::read_to_string(data.join("hwloc/40intel64-2g2n4c+pcilocality.xml")).unwrap();
    let (hwloc, _) = read::read(&xml, "hwloc").unwrap();
    use NodeKind::*;
    for kind in [Package, Numa, Cores, RootComplex, PciSwitch, Nic, NicPort] {
        let names = |graph: &Graph| {
            let mut names: Vec<String> = graph
                .of_kind(kind)
                .map(|node| graph.name(node).to_owned())
                .collect();
            names.sort();
            names
        };
        let (own, its) = (names(&reading.graph), names(&hwloc.graph));
        match kind {
            RootComplex => assert_eq!(own.len(), its.len()),
            _ => assert_eq!(own, its, "{kind:?}"),
        }
    }
}
