//! Files of all formats but NCCL's and this library's own.

use super::{
    tests::{mutate, survives},
    *,
};
use crate::topo::{
    graph::{NodeKind::*, *},
    paths::Paths,
};
use std::{collections::HashSet, fs, path::Path};

const FOLDERS: [&str; 5] = ["fabric", "hwloc", "matrix", "own", "profiles"];

/// All files of the tests by name, such as "own/slurm-tree.conf".
fn files() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/topologies");
    let mut files = Vec::new();
    for folder in FOLDERS {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = format!("{folder}/{}", path.file_name().unwrap().to_str().unwrap());
            files.push((name, fs::read_to_string(&path).unwrap()));
        }
    }
    files.sort();
    assert_eq!(files.len(), 36, "the files of tests/data/topologies");
    files
}

fn text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/topologies")
        .join(name);
    fs::read_to_string(path).unwrap()
}

fn graph(name: &str) -> (Graph, Vec<String>) {
    of(&text(name))
}

fn of(text: &str) -> (Graph, Vec<String>) {
    let (reading, _) = read(text, "t").unwrap_or_else(|flaw| panic!("{flaw}"));
    let repairs = reading.repairs.iter().map(Repair::to_string).collect();
    (reading.graph, repairs)
}

fn flaw(text: &str) -> String {
    read(text, "t").unwrap_err().to_string()
}

fn count(graph: &Graph, kind: NodeKind) -> usize {
    graph.of_kind(kind).count()
}

fn named(graph: &Graph, kind: NodeKind, name: &str) -> NodeId {
    let mut all = graph.of_kind(kind).filter(|node| graph.name(*node) == name);
    all.next().unwrap_or_else(|| panic!("no {kind:?} {name}"))
}

fn link(graph: &Graph, from: NodeId, to: NodeId) -> Link {
    graph.edge(graph.edge_between(from, to).unwrap()).link
}

/// The parts of a text between such a begin and end.
fn between<'t>(text: &'t str, begin: &str, end: &str) -> Vec<&'t str> {
    text.split(begin)
        .skip(1)
        .map(|rest| rest.split(end).next().unwrap())
        .collect()
}

#[test]
fn each_file_has_its_format() {
    for (name, text) in files() {
        let file = name.split_once('/').unwrap().1;
        let wanted = match file {
            _ if name.starts_with("hwloc/") || file.starts_with("hwloc") => "hwloc",
            _ if file.contains("lspci") => "lspci-tree",
            _ if name.starts_with("matrix/") || file.starts_with("matrix") => "nvidia-smi",
            _ if file.starts_with("slurm") && file.ends_with(".yaml") => "slurm-yaml",
            _ if file.starts_with("slurm") || file.starts_with("slinky") => "slurm",
            _ if file.starts_with("topograph") => "topograph",
            _ if file.starts_with("netq") => "netq",
            _ if file.starts_with("ibnet") => "ibnetdiscover",
            _ if file.starts_with("hccl") => "hccl",
            _ if file.starts_with("taccl") => "taccl",
            _ if file.ends_with(".topo") => "astra-topo",
            _ if file.ends_with(".yml") => "astra-yaml",
            _ => "astra-system",
        };
        let format = FORMATS.iter().find(|format| (format.sniff)(&text)).unwrap();
        assert_eq!(format.name, wanted, "{name}");
        let read = read(&text, &name);
        match wanted {
            "lspci-tree" | "astra-system" => _ = read.unwrap_err(),
            _ => _ = read.unwrap(),
        }
    }
}

#[test]
fn a_mark_before_a_text_is_no_part_of_it() {
    for (name, text) in files() {
        let marked = format!("\u{feff}{text}");
        match (read(&text, "t"), read(&marked, "t")) {
            (Ok((plain, format)), Ok((marked, same))) => {
                assert_eq!(format.name, same.name, "{name}");
                assert!(plain.graph == marked.graph, "{name}");
            }
            (plain, marked) => assert_eq!(plain.unwrap_err(), marked.unwrap_err(), "{name}"),
        }
    }
}

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

#[test]
fn what_is_no_text_of_a_topology_is_told_so() {
    for (text, wanted) in [
        ("", "t:1:1: nothing but blanks; wanted a topology"),
        (" \n\t\r\n", "t:1:1: nothing but blanks; wanted a topology"),
        (
            "S\n\0w",
            "t:2:1: a byte of 0; wanted text in UTF-8, or in UTF-16 with",
        ),
        ("a b\rc d\r", "t:1:1: lines that end in CR alone; wanted"),
        (
            "# a remark\n",
            "t:1:1: no topology format begins like this; wanted one of json,",
        ),
    ] {
        assert!(flaw(text).starts_with(wanted), "{}", flaw(text));
    }
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
fn cut_files_are_graphs_or_have_a_flaw_with_a_position() {
    let mut graphs = 0;
    for (name, text) in files() {
        // Long ones at fewer lines: a second or two for all.
        let step = text.len() / 20_000 + 1;
        for (end, _) in text.match_indices('\n').step_by(step) {
            graphs += usize::from(survives(&text[..end]));
        }
        let system = name.contains("astra") && name.ends_with(".json");
        let whole = !name.contains("lspci") && !system;
        assert_eq!(survives(&text), whole, "{name}");
    }
    assert!(graphs > 100, "{graphs}");
}

#[test]
fn mutations_do_no_harm() {
    let mut random = fastrand::Rng::with_seed(2);
    let (mut graphs, mut flaws) = (0, 0);
    for (_, text) in files() {
        // Fewer of long ones, which are like the short ones but longer.
        let times = (700_000 / text.len()).min(1000);
        for _ in 0..times {
            let mut bytes = text.clone().into_bytes();
            for _ in 0..random.usize(1..4) {
                mutate(&mut bytes, &mut random);
            }
            match survives(&String::from_utf8_lossy(&bytes)) {
                true => graphs += 1,
                false => flaws += 1,
            }
        }
    }
    assert!(
        graphs > 1000 && flaws > 1000,
        "{graphs} graphs, {flaws} flaws: mutations that say nothing"
    );
}

#[test]
fn long_names_make_no_long_files() {
    let long = "s".repeat(1025);
    let told = "a switch's name of 1025 bytes; wanted 1 to 1024 of them";
    for (text, at) in [
        (format!("SwitchName={long} Nodes=a\n"), "1:12"),
        (format!("switches:\n  ? {long}\n  : nodes: [a]\n"), "3:5"),
        (format!("switches:\n  a:\n    switches: [{long}]\n"), "3:16"),
        (format!("blocks:\n- switch: {long}\n"), "2:3"),
    ] {
        assert_eq!(flaw(&text), format!("t:{at}: {told}"));
    }
    let name = "s".repeat(1024);
    let (graph, repairs) = of(&format!("SwitchName={name} Nodes=n[1-2000],n[1-2000]\n"));
    assert_eq!((count(&graph, Host), repairs.len()), (2000, 1001));
    let wanted = format!("1:1: host n1 twice in {}...: once is enough", &name[..200]);
    assert_eq!((&repairs[0], &repairs[1000][..]), (&wanted, "and 1000 more"));
    assert!(flaw(&"w".repeat(100_000)).len() < 2000);
    // All that lies in a node, or is joined with it, says its name.
    let within = |name: &str| {
        let inner: String = (1..100)
            .map(|id| format!(", {{\"id\": {id}, \"in\": 0, \"kind\": \"gpu\", \"name\": \"g\"}}"))
            .collect();
        let edges: Vec<String> = (1..100)
            .map(|id| format!("{{\"from\": {id}, \"to\": 0, \"kind\": \"pcie\"}}"))
            .collect();
        let edges = edges.join(", ");
        of(&format!("{{\"ccl-topology\": 1, \"nodes\": [{{\"id\": 0, \"kind\": \"host\", \"name\": \"{name}\"}}{inner}], \"edges\": [{edges}]}}")).0
    };
    let [one, other] = ["x", "y"].map(|end| within(&("n".repeat(100_000) + end)));
    assert!(crate::topo::show::tree(&one).len() < 100_000);
    let changes = crate::topo::diff::diff(&one, &other);
    assert_eq!(changes.len(), 2 * 199, "names differ, however long");
    assert!(
        changes
            .iter()
            .map(|change| change.to_string().len())
            .sum::<usize>()
            < 300_000
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

#[test]
fn only_escapes_of_terminals_are_blanks() {
    let matrix = |first: &str| format!("\t{first}GPU0\x1b[0m\nGPU0\t X \n");
    for escape in [
        "",
        "\x1b[4m",
        "\x1b[1;31m",
        "\x1b[?25l",
        &format!("\x1b[{}m", "1".repeat(29)),
    ] {
        assert_eq!(count(&of(&matrix(escape)).0, Gpu), 1, "{escape:?}");
    }
    for other in [
        "\x1b",
        "\x1b[",
        "\x1b[4",
        "\x1b[4 m",
        "\x1b[é",
        &format!("\x1b[{}m", "1".repeat(30)),
    ] {
        assert_ne!(
            FORMATS
                .iter()
                .find(|format| (format.sniff)(&matrix(other)))
                .map(|format| format.name),
            Some("nvidia-smi"),
            "{other:?}"
        );
    }
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
