//! Files about the inside of hosts: hwloc's, and matrices of devices.

use super::*;

/// By the text's objects, one a line.
#[test]
fn hwloc_counts_are_those_of_the_text() {
    for (name, text) in files().into_iter().filter(|(name, _)| name.contains("hwloc")) {
        let (graph, _) = of(&text);
        let of = |class: &str| {
            between(&text, "<object ", ">")
                .iter()
                .filter(|object| object.contains(&format!("type=\"{class}\"")))
                .count()
        };
        let devices: Vec<&str> = between(&text, "<object type=\"PCIDev\"", "<object type=\"PCIDev\"");
        let pci = |classes: &[&str]| {
            devices
                .iter()
                .filter(|part| {
                    classes
                        .iter()
                        .any(|class| part.contains(&format!("pci_type=\"{class}")))
                })
                .count()
        };
        let consoles = devices
            .iter()
            .filter(|part| {
                ["[102b:", "[1a03:", "[1002:515e"]
                    .iter()
                    .any(|id| part.contains(id))
            })
            .count();
        // A function without a device of the system, beside one that has one, is virtual.
        let virtuals = devices
            .iter()
            .filter(|part| part.contains("Userspace NIC") && !part.contains("OSDev"))
            .count();
        let wanted = [
            of("Machine"),
            of("Package") + of("Socket"),
            of("NUMANode"),
            pci(&["03"]) - consoles,
            pci(&["02", "0c06"]) - virtuals,
            text.matches("subtype=\"NVSwitch\"").count(),
        ];
        let kinds = [Host, Package, Numa, Gpu, Nic, NvSwitch];
        assert_eq!(kinds.map(|kind| count(&graph, kind)), wanted, "{name}: {kinds:?}");
    }
}

#[test]
fn hwloc_has_links_of_gpus() {
    let (graph, repairs) = graph("hwloc/nvidiaDGX2.xml");
    assert_eq!(
        repairs,
        ["164:19: 0000:66:00.0 has no ids: known by its subtype or its name in the system"]
    );
    for (place, gpu) in graph.of_kind(Gpu).enumerate() {
        let links = graph
            .edges_from(gpu)
            .map(|edge| graph.edge(edge))
            .filter(|edge| edge.link.kind == LinkKind::NvLink);
        let links: Vec<_> = links
            .map(|edge| (graph.name(edge.to), edge.link.wires, edge.link.bytes_per_second))
            .collect();
        // Each board's six switches are one to its GPUs.
        let first = ["0000:61:00.0", "0000:c1:00.0"][place / 8];
        assert_eq!(links, [(first, 6, 150_000_000_000)], "{}", graph.name(gpu));
    }
    let first = graph.of_kind(Gpu).next().unwrap();
    assert_eq!(
        (graph.name(first), graph.get(first, "hwloc.nvml")),
        ("0000:34:00.0", Some("nvml0"))
    );
    // The links between the two boards' switches are not in the file.
    let paths = Paths::from(&graph, first);
    let ways = graph
        .of_kind(Gpu)
        .skip(1)
        .map(|gpu| paths.to(gpu).unwrap().way.name());
    assert_eq!(
        ways.collect::<Vec<_>>(),
        [vec!["NVL"; 7], vec!["SYS"; 8]].concat()
    );
    let second = graph.of_kind(Gpu).nth(1).unwrap();
    assert_eq!(paths.to(second).unwrap().bytes_per_second, 150_000_000_000);

    let (graph, repairs) = self::graph("hwloc/power8gpudistances.xml");
    assert_eq!(repairs, [""; 0]);
    let gpus: Vec<NodeId> = graph.of_kind(Gpu).collect();
    assert_eq!(link(&graph, gpus[0], gpus[1]).bytes_per_second, 40_000_000_000);
    assert!(graph.edge_between(gpus[0], gpus[2]).is_none());
    let numas = ["NUMA 0", "NUMA 1"].map(|name| named(&graph, Numa, name));
    for (gpu, numa) in gpus.iter().zip([numas[0], numas[0], numas[1], numas[1]]) {
        assert_eq!(link(&graph, *gpu, numa).kind, LinkKind::NvLink);
        assert_eq!(graph.within(*gpu, Numa), Some(numa));
    }
    assert_eq!(graph.get(numas[0], "distance"), Some("10 40"));
}

#[test]
fn hwloc_of_the_first_version() {
    let (graph, repairs) = graph("own/hwloc-v1.xml");
    assert_eq!(repairs, [""; 0]);
    let [gpu, nic] =
        [(Gpu, "0000:02:00.0"), (Nic, "0000:82:00.0")].map(|(kind, name)| named(&graph, kind, name));
    let numa = |node| graph.name(graph.within(node, Numa).unwrap());
    assert_eq!([numa(gpu), numa(nic)], ["NUMA 0", "NUMA 1"]);
    let ports: Vec<_> = graph
        .children(nic)
        .map(|port| {
            (
                graph.name(port),
                link(&graph, nic, port).kind,
                link(&graph, nic, port).reachable,
            )
        })
        .collect();
    assert_eq!(
        ports,
        [
            ("mlx4_0", LinkKind::Ib, true),
            ("mlx4_0:2", LinkKind::Roce, false)
        ]
    );
    let up = link(&graph, gpu, graph.parent(gpu).unwrap());
    assert_eq!(
        (up.bytes_per_second, up.confidence),
        (6_000_000_000, Confidence::Declared)
    );
    let cores = graph.of_kind(Cores).next().unwrap();
    assert_eq!(
        (graph.name(cores), graph.get(cores, "cores")),
        ("L3 of 0-3", Some("1"))
    );
    assert_eq!(
        graph.get(named(&graph, Numa, "NUMA 1"), "distance"),
        Some("2.000000 1.000000")
    );
}

#[test]
fn hwloc_of_the_third_version_tells_of_the_whole_beside_the_machine() {
    let (graph, _) = graph("hwloc/nvidia-dgx-gb10.xml");
    let host = graph.of_kind(Host).next().unwrap();
    let words = ["OSName", "DMIProductName"].map(|key| graph.get(host, key));
    assert_eq!(graph.name(host), "cfarm107");
    assert_eq!(words, [Some("Linux"), Some("NVIDIA_DGX_Spark")]);
}

#[test]
fn hwloc_processors_are_near_one_memory_alone() {
    let numa = |index, cpuset| {
        format!(r#"<object type="NUMANode" os_index="{index}" gp_index="{index}" cpuset="{cpuset}"/>"#)
    };
    let nodes = [
        (2, "0x0000000f"),
        (0, "0x00000003"),
        (1, "0x0000000c"),
        (3, "0x0000000c"),
    ];
    let nodes = nodes.map(|(index, cpuset)| numa(index, cpuset)).concat();
    let (graph, _) = of(&format!(
        r#"<topology version="2.0"><object type="Machine" gp_index="9">{nodes}</object></topology>"#
    ));
    let lists: Vec<_> = (graph.of_kind(Numa))
        .map(|node| (graph.name(node), graph.get(node, "cpulist")))
        .collect();
    let wanted = [
        ("NUMA 2", ""),
        ("NUMA 0", "0-1"),
        ("NUMA 1", "2-3"),
        ("NUMA 3", ""),
    ];
    assert_eq!(lists, wanted.map(|(name, cpus)| (name, Some(cpus))));
}

#[test]
fn hwloc_links_of_idle_accelerators_are_not_believed() {
    let device = |bus, class, speed| {
        format!(
            r#"<object type="PCIDev" gp_index="{bus}" pci_busid="0000:{bus}:00.0" pci_type="{class}" pci_link_speed="{speed}"/>"#
        )
    };
    let bridge = |bus, below: String| {
        format!(
            r#"<object type="Bridge" gp_index="{bus}" bridge_type="1-1" pci_busid="0000:{bus}:00.0" bridge_pci="0000:[{bus}-{bus}]" pci_type="0604 [8086:0000] [0000:0000] 00" pci_link_speed="4.000000">{below}</object>"#
        )
    };
    let gpu = "0302 [10de:2330] [0000:0000] a1";
    let nic = "0200 [15b3:1021] [0000:0000] 00";
    let port = r#"<object type="OSDev" gp_index="77" name="eth0" osdev_type="2"/>"#;
    let with_port = device(21, nic, "4.000000").replace("/>", &format!(">{port}</object>"));
    let below = [
        bridge(10, device(11, gpu, "4.000000")),
        bridge(20, with_port),
        device(30, gpu, "63.015385"),
    ];
    let (graph, repairs) = of(&format!(
        r#"<topology version="2.0"><object type="Machine" gp_index="90"><object type="NUMANode" os_index="0" gp_index="91" cpuset="0x1"/>{}</object></topology>"#,
        below.concat()
    ));
    let speeds: Vec<_> = (graph.edges())
        .filter(|edge| edge.link.kind == LinkKind::Pcie && edge.from < edge.to)
        .map(|edge| (graph.name(edge.to), edge.link.bytes_per_second / 100_000_000))
        .collect();
    let wanted = [
        ("0000:10:00.0", 120),
        ("0000:11:00.0", 120),
        ("0000:20:00.0", 30),
        ("0000:21:00.0", 30),
        ("0000:30:00.0", 472),
    ];
    assert_eq!((speeds, repairs.len()), (wanted.to_vec(), 2), "{repairs:?}");
}

#[test]
fn hwloc_is_repaired_aloud() {
    let (_, repairs) = graph("hwloc/40intel64-2g2n4c+pcilocality.xml");
    assert_eq!(
        repairs,
        [
            "212:7: a device near several NUMA nodes: taken as near NUMA 0, the first",
            "468:7: a device near several NUMA nodes: taken as near NUMA 1, the first",
        ]
    );
    let (_, repairs) = graph("hwloc/16intel64-manyVFs.xml");
    assert_eq!(
        repairs[0],
        "131:19: 3 functions of 0000:0b:00 have no network device: virtual ones, left out"
    );
    let (_, repairs) = of(
        "<topology version=\"9.1\"><object type=\"Machine\">\n<object type=\"NUMANode\" os_index=\"0\" gp_index=\"1\"/></object>\n\
         <distances2 type=\"NUMANode\" name=\"NUMALatency\" indexing=\"os\"><indexes>0 1</indexes><u64values>1 2 3</u64values></distances2>\n\
         <distances2 type=\"NUMANode\" name=\"NUMALatency\" indexing=\"gp\"><indexes>7</indexes><u64values>1</u64values></distances2></topology>",
    );
    assert_eq!(
        repairs,
        [
            "1:1: a version that is unknown: read as version 3",
            "3:1: 3 values for 2 objects: left out",
            "4:1: NUMALatency of 7, which is not in the file: left out",
        ]
    );
    assert_eq!(
        flaw("<topology/>"),
        "t:1:1: a topology without a machine; wanted an <object type=\"Machine\">"
    );
}

#[test]
fn matrices_have_the_devices_of_their_heading() {
    for (name, text) in files()
        .into_iter()
        .filter(|(name, _)| name.contains("matrix") && !name.contains("lspci"))
    {
        let (graph, repairs) = of(&text);
        assert_eq!(repairs, [""; 0], "{name}");
        let lines = |begin: &str| text.lines().filter(|line| line.starts_with(begin)).count();
        assert_eq!(
            [count(&graph, Gpu), count(&graph, Nic)],
            [lines("GPU"), lines("NIC") - lines("NIC Legend")],
            "{name}"
        );
        let first = graph.of_kind(Gpu).next().unwrap();
        let paths = Paths::from(&graph, first);
        let row = text.lines().find(|line| line.starts_with("GPU0")).unwrap();
        let words: Vec<&str> = row.split_whitespace().skip(1).collect();
        for (device, word) in graph
            .nodes()
            .filter(|node| matches!(graph.kind(*node), Gpu | Nic))
            .zip(words)
            .skip(1)
        {
            let way = paths.to(device).unwrap().way.name();
            let wanted = if word.starts_with("NV") { "NVL" } else { word };
            let wanted = if wanted == "NODE" { "PHB" } else { wanted };
            // nvidia-smi does not tell of NVLinks through another GPU, which a DGX-1 has.
            let wanted = if name.contains("dgx1") && way == "NVB" {
                "NVB"
            } else {
                wanted
            };
            assert_eq!(way, wanted, "{name}: GPU0 to {}", graph.name(device));
        }
    }
}

#[test]
fn matrices_know_numa_nodes_links_and_names() {
    let (graph, _) = graph("own/matrix-8gpu-4nic.txt");
    assert_eq!([Numa, NvSwitch, Host].map(|kind| count(&graph, kind)), [2, 1, 1]);
    let [gpu, nic] = [(Gpu, "GPU6"), (Nic, "NIC3")].map(|(kind, name)| named(&graph, kind, name));
    assert_eq!(
        graph.get(graph.within(nic, Numa).unwrap(), "cpulist"),
        Some("48-95,144-191")
    );
    let above = |node| graph.ancestors(node).nth(1).map(|node| (graph.kind(node), node));
    assert_eq!(
        (above(gpu), above(gpu).map(|(kind, _)| kind)),
        (above(nic), Some(PciSwitch))
    );
    assert_eq!(graph.get(nic, "name"), Some("mlx5_3"));
    let switch = graph.of_kind(NvSwitch).next().unwrap();
    assert_eq!(link(&graph, gpu, switch).wires, 18);

    let (graph, _) = self::graph("own/matrix-pairs.txt");
    let [one, other] = ["GPU0", "GPU1"].map(|name| named(&graph, Gpu, name));
    assert_eq!(
        (link(&graph, one, other).wires, graph.within(one, Numa)),
        (4, graph.within(other, Numa))
    );
    assert_eq!([Numa, PciSwitch].map(|kind| count(&graph, kind)), [2, 1]);

    let (_, repairs) = of("\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU1\tSYS\t X \n");
    assert_eq!(
        repairs,
        ["3:1: GPU0 and GPU1 are joined in two ways: the upper is taken"]
    );
    for (text, wanted) in [
        (
            "\tGPU0\tGPU1\nGPU0\t X \tPIX\n",
            "t:2:13: 1 rows of 2 devices; wanted a row for each device",
        ),
        (
            "\tGPU0\tGPU1\nGPU0\t X \tWAT\nGPU1\tSYS\t X \n",
            "t:2:10: \"WAT\"; wanted X, NV1",
        ),
        (
            "\tGPU0\tGPU1\nGPU1\t X \tPIX\n",
            "t:2:1: \"GPU1\"; wanted the row of GPU0",
        ),
        (
            "\tGPU0\tGPU1\nGPU0\tPIX\t X \n",
            "t:2:6: \"PIX\" here; wanted X where",
        ),
    ] {
        assert!(flaw(text).starts_with(wanted), "{}", flaw(text));
    }
    assert!(flaw(&text("matrix/2gpu-2nic-threadripper.lspci.txt")).starts_with("t:2:1: lspci -tv"));
}

#[test]
fn matrices_have_adapters_of_any_name() {
    let names = ["GPU0", "hfi1_0", "rocep1s0", "ibp12s0", "qedr0"];
    let heading = format!(
        "\t{}\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n",
        names.join("\t")
    );
    let rows: String = (0..names.len())
        .map(|row| {
            let cells = (0..names.len()).map(|at| if at == row { " X " } else { "PHB" });
            let near = if row == 0 { "\t32-63,96-127\t1\t\tN/A" } else { "" };
            format!("{}\t{}{near}\n", names[row], cells.collect::<Vec<_>>().join("\t"))
        })
        .collect();
    let (graph, repairs) = of(&(heading + &rows));
    assert_eq!(repairs, [""; 0]);
    let nics: Vec<&str> = graph.of_kind(Nic).map(|nic| graph.name(nic)).collect();
    assert_eq!((&nics[..], count(&graph, Gpu)), (&names[1..], 1));
    let numa = named(&graph, Numa, "NUMA 1");
    assert_eq!(graph.get(numa, "cpulist"), Some("32-63,96-127"));
}

#[test]
fn numa_nodes_without_numbers_have_those_that_are_left() {
    let (graph, _) = of(
        "\tGPU0\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\tSYS\t0-3\t1\n\
         NIC0\tSYS\t X \tSYS\nNIC1\tSYS\tSYS\t X \n",
    );
    let numas: Vec<&str> = graph.of_kind(Numa).map(|numa| graph.name(numa)).collect();
    assert_eq!(numas, ["NUMA 1", "NUMA 0", "NUMA 2"]);
}

#[test]
fn what_hwloc_says_of_devices_is_not_taken_for_nccls() {
    let (graph, _) = graph("own/hwloc-v1.xml");
    let gpu = named(&graph, Gpu, "0000:02:00.0");
    let words = ["class", "vendor", "link_speed", "hwloc.pci_link_speed"].map(|key| graph.get(gpu, key));
    assert_eq!(words, [Some("0x030200"), Some("0x10de"), None, Some("8.000000")]);
    let written = (crate::topo::write::writer("nccl-xml").unwrap().write)(&graph).text;
    assert!(
        written.contains(
            "busid=\"0000:02:00.0\" class=\"0x030200\" vendor=\"0x10de\" link_speed=\"5.0 GT/s PCIe\" link_width=\"16\">"
        ),
        "the same bandwidth: {written}"
    );
    for word in ["pci_link_speed", "bridge_pci", "hwloc", "Backend", "cuda"] {
        assert!(!written.contains(word), "{word} in {written}");
    }
}

#[test]
fn hwloc_sets_and_ports_are_bounded() {
    let set = |words: usize| vec!["0xffffffff"; words].join(",");
    let machine = |set: &str, inner: &str| {
        of(&format!(
            "<topology version=\"2.0\"><object type=\"Machine\">\n\
             <object type=\"NUMANode\" os_index=\"0\" cpuset=\"{set}\"/>\n{inner}</object></topology>"
        ))
    };
    let (graph, repairs) = machine(&set(2048), "");
    let numa = graph.of_kind(Numa).next().unwrap();
    assert_eq!((graph.get(numa, "cpulist"), repairs.len()), (Some("0-65535"), 0));
    let (graph, repairs) = machine(&format!("0x1,{}", set(2048)), "");
    assert_eq!(graph.get(numa, "cpulist"), Some("0-65535"));
    assert_eq!(
        repairs,
        ["2:1: a cpuset of more than 2048 words: only the last ones are read"]
    );

    // Memory near the same processors, as HBM is.
    let near = "<object type=\"NUMANode\" os_index=\"1\" cpuset=\"0x3\"/>";
    let (graph, _) = machine("0x3", near);
    let lists: Vec<_> = graph
        .of_kind(Numa)
        .map(|numa| graph.get(numa, "cpulist"))
        .collect();
    assert_eq!(lists, [Some("0-1"), Some("")]);

    let cache = |class: &str| format!("<object type=\"{class}\" depth=\"1\" cpuset=\"0x5\"/>");
    let (graph, _) = machine("0x1", &(cache("MemCache") + &cache("L3Cache")));
    let caches: Vec<&str> = graph.of_kind(Cores).map(|node| graph.name(node)).collect();
    assert_eq!(caches, ["L1 of 0,2"]);

    let states: String = (1..300)
        .map(|port| format!("<info name=\"Port{port}State\" value=\"{}\"/>", port % 3 + 2))
        .collect();
    let (graph, repairs) = machine(
        "0x1",
        &format!(
            "<object type=\"PCIDev\" pci_busid=\"0000:01:00.0\" pci_type=\"0207 [15b3:1017] [15b3:0023] 00\">\n\
             <object type=\"OSDev\" name=\"mlx5_0\" osdev_type=\"3\">{states}</object></object>"
        ),
    );
    assert_eq!(repairs, ["4:1: mlx5_0 has 299 ports: the first 256 are taken"]);
    assert_eq!(count(&graph, NicPort), 256);
    let nic = graph.of_kind(Nic).next().unwrap();
    let used = graph
        .children(nic)
        .filter(|port| link(&graph, nic, *port).reachable);
    assert_eq!(used.count(), 85, "4 is active");
}

#[test]
fn hwloc_devices_are_near_the_numa_nodes_of_their_set() {
    let device = |bus: u32, set: &str| {
        format!(
            "<object type=\"Group\"{set}><object type=\"PCIDev\" pci_busid=\"0000:0{bus}:00.0\" pci_type=\"0302 [10de:1db8]\"/></object>\n"
        )
    };
    let numa = |number: u32| format!("<object type=\"NUMANode\" os_index=\"{number}\"/>");
    let devices = [" nodeset=\"0x2\"", " nodeset=\"0x6\"", " nodeset=\"0x0\"", ""];
    let devices = (1..)
        .zip(devices)
        .map(|(bus, set)| device(bus, set))
        .collect::<String>();
    let (graph, repairs) = of(&format!(
        "<topology version=\"2.0\"><object type=\"Machine\">{}{}{}\n{devices}</object></topology>",
        numa(2),
        numa(1),
        numa(0)
    ));
    let near = graph
        .of_kind(Gpu)
        .map(|gpu| graph.name(graph.within(gpu, Numa).unwrap()));
    assert_eq!(near.collect::<Vec<_>>(), ["NUMA 1", "NUMA 2", "NUMA 2", "NUMA 2"]);
    let told = |line: u32, column: u32| {
        format!("{line}:{column}: a device near several NUMA nodes: taken as near NUMA 2, the first")
    };
    assert_eq!(repairs, [told(3, 36), told(5, 22)]);
}
