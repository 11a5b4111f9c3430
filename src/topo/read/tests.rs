use super::*;
use crate::topo::{diff::diff, graph::*, write};
use std::path::{Path, PathBuf};

/// All topology files of the tests that this library's readers know, by name.
fn files() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/topologies");
    let mut files = Vec::new();
    for folder in ["nccl-xml", "rccl-xml"] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            files.push((path, text));
        }
    }
    files.sort();
    assert_eq!(files.len(), 49, "the files of tests/data/topologies");
    files
}

/// A file's machine by another reader: the text's tags, in their order, by name.
fn tags(text: &str) -> Vec<&str> {
    let mut rest = text;
    let mut tags = Vec::new();
    while let Some(start) = rest.find('<') {
        rest = &rest[start..];
        let end = if rest.starts_with("<!--") { "-->" } else { ">" };
        let end = rest.find(end).unwrap();
        if !rest.starts_with("<!--") {
            tags.push(&rest[1..end]);
        }
        rest = &rest[end..];
    }
    tags
}

#[test]
fn counts_are_those_of_the_text() {
    let mut all = [0; 7];
    for (path, text) in files() {
        let tags = tags(&text);
        if tags[0].starts_with("graphs") {
            continue;
        }
        let (reading, format) = read(&text, "file").unwrap();
        assert_eq!(format.name, "nccl-xml");
        let of = |begin: &str| tags.iter().filter(|tag| tag.starts_with(begin)).count();
        let class = |classes: &[&str]| {
            let is = |tag: &&&str| {
                classes
                    .iter()
                    .any(|class| tag.contains(&format!("class=\"0x{class}")))
            };
            tags.iter()
                .filter(|tag| tag.starts_with("pci "))
                .filter(is)
                .count()
        };
        let alone = tags
            .windows(2)
            .filter(|two| two[1] == "nic" && !two[0].starts_with("pci "))
            .count();
        let wanted = [
            class(&["03", "12"]),
            class(&["02"]) + alone,
            class(&["0604"]),
            of("cpu "),
            of("net "),
            of("gpu "),
            of("pci ") - class(&["02", "03", "06", "12"]),
        ];
        use NodeKind::*;
        let kinds = [Gpu, Nic, PciSwitch, Numa, NicPort, Rank, PciFunction];
        let graph = &reading.graph;
        assert_eq!(
            kinds.map(|kind| graph.of_kind(kind).count()),
            wanted,
            "{}: {kinds:?}",
            path.display()
        );
        assert_eq!(graph.of_kind(Host).count(), 1, "{}", path.display());
        let links = graph
            .edges()
            .filter(|edge| matches!(edge.link.kind, LinkKind::XGmi));
        assert_eq!(links.count(), of("xgmi "), "{}", path.display());
        for (sum, count) in all.iter_mut().zip(wanted) {
            *sum += count;
        }
    }
    // By `grep -ho 'class="0x\(03\|12\)' tests/data/topologies/*/*.xml | wc -l`, tclass left out.
    assert_eq!(all[0], 379, "GPUs of all files: {all:?}");
}

#[test]
fn what_is_written_is_the_same_graph_again() {
    for (path, text) in files() {
        let Ok((Reading { graph, .. }, format)) = read(&text, "file") else {
            panic!("{}", path.display());
        };
        let json = (write::writer("json").unwrap().write)(&graph);
        let (again, json_format) = read(&json.text, "json").unwrap();
        assert_eq!(
            (json_format.name, &again.repairs[..]),
            ("json", &[][..]),
            "{}",
            path.display()
        );
        assert!(again.graph == graph, "{}: JSON is exact", path.display());
        if format.name == "nccl-xml" {
            let xml = (write::writer("nccl-xml").unwrap().write)(&graph);
            let (again, _) = read(&xml.text, "xml").unwrap_or_else(|flaw| panic!("{flaw}\n{}", xml.text));
            assert_eq!(diff(&graph, &again.graph), [], "{}", path.display());
            assert_eq!(xml.left_out, [""; 0], "{}", path.display());
        }
    }
}

/// Reads, and writes what was read: neither may panic. Says whether it was a graph.
pub(super) fn survives(text: &str) -> bool {
    match read(text, "file") {
        Ok((Reading { graph, .. }, _)) => {
            for writer in write::WRITERS {
                let _ = (writer.write)(&graph);
            }
            true
        }
        Err(flaw) => {
            let lines = text.split('\n').count();
            assert!(
                (1..=lines).contains(&(flaw.at.line as usize)) && flaw.at.column >= 1,
                "{flaw}"
            );
            assert!(!flaw.what.is_empty() && !flaw.wanted.is_empty());
            false
        }
    }
}

#[test]
fn a_cut_file_is_a_flaw_with_a_position() {
    for (path, text) in files() {
        let whole = text.trim_end().len();
        for (end, _) in text.match_indices('\n').filter(|(end, _)| *end < whole) {
            assert!(!survives(&text[..end]), "{} cut at {end}", path.display());
        }
        assert!(survives(&text));
    }
}

#[test]
fn mutations_do_no_harm() {
    let mut random = fastrand::Rng::with_seed(1);
    let (mut graphs, mut flaws) = (0, 0);
    for (_, text) in files() {
        for time in 0..1000 {
            let mut bytes = text.clone().into_bytes();
            for _ in 0..random.usize(1..4) {
                mutate(&mut bytes, &mut random);
            }
            let text = String::from_utf8_lossy(&bytes);
            // Writing takes longer than reading: it is tried with some.
            match if time % 20 == 0 {
                survives(&text)
            } else {
                read(&text, "file").is_ok()
            } {
                true => graphs += 1,
                false => flaws += 1,
            }
        }
    }
    assert!(
        graphs > 100 && flaws > 100,
        "{graphs} graphs, {flaws} flaws: mutations that say nothing"
    );
}

pub(crate) fn mutate(bytes: &mut Vec<u8>, random: &mut fastrand::Rng) {
    let (at, other) = (random.usize(..bytes.len()), random.usize(..bytes.len()));
    let (start, end) = (at.min(other), at.max(other));
    match random.u8(..6) {
        0 => bytes[at] = random.u8(..),
        1 => bytes[at] = *random.choice(b"<>\"=/0-9afg\n ").unwrap(),
        2 => _ = bytes.remove(at),
        3 => bytes.swap(at, other),
        4 => _ = bytes.drain(start..end.min(start + 60)),
        _ => {
            let part = bytes[start..end.min(start + 200)].to_vec();
            bytes.splice(start..start, part);
        }
    }
    if bytes.is_empty() {
        bytes.push(b'<');
    }
}

fn system(inner: &str) -> String {
    format!("<system version=\"1\">\n{inner}\n</system>\n")
}

/// Reads one with a single host and NUMA node with such PCI functions, and gives back what was repaired, too.
fn one_cpu(inner: &str) -> (Graph, Vec<String>) {
    of(&system(&format!("<cpu numaid=\"0\">\n{inner}\n</cpu>")))
}

fn of(text: &str) -> (Graph, Vec<String>) {
    let (reading, _) = read(text, "t.xml").unwrap_or_else(|flaw| panic!("{flaw}"));
    let written = (write::writer("nccl-xml").unwrap().write)(&reading.graph);
    let (again, _) = read(&written.text, "again").unwrap_or_else(|flaw| panic!("{flaw}: {}", written.text));
    assert_eq!(diff(&reading.graph, &again.graph), [], "{}", written.text);
    let repairs = reading.repairs.iter().map(|repair| repair.to_string()).collect();
    (reading.graph, repairs)
}

fn named(graph: &Graph, kind: NodeKind, name: &str) -> NodeId {
    let mut all = graph.of_kind(kind).filter(|node| graph.name(*node) == name);
    all.next().unwrap_or_else(|| panic!("no {kind:?} {name}"))
}

fn link(graph: &Graph, from: NodeId, to: NodeId) -> Link {
    graph.edge(graph.edge_between(from, to).unwrap()).link
}

#[test]
fn nvlinks_to_switches_that_are_no_nodes_are_one_switch_of_the_host() {
    let gpu = |bus: &str, dev| {
        format!(
            "<pci busid=\"0000:{bus}:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n\
             <gpu dev=\"{dev}\" sm=\"90\" rank=\"{dev}\" gdr=\"1\">\n\
             <nvlink target=\"0000:1a:00.0\" count=\"10\" tclass=\"0x068000\"/>\n\
             <nvlink target=\"0000:1b:00.0\" count=\"8\" tclass=\"0x068000\"/>\n</gpu></pci>"
        )
    };
    let (graph, repairs) = one_cpu(&(gpu("0f", 0) + &gpu("2d", 1)));
    assert_eq!(repairs, [""; 0]);
    let (gpu, switch) = (
        named(&graph, NodeKind::Gpu, "0000:2d:00.0"),
        named(&graph, NodeKind::NvSwitch, "NVSwitch"),
    );
    for (from, to) in [(gpu, switch), (switch, gpu)] {
        let link = link(&graph, from, to);
        assert_eq!(
            (link.wires, link.bytes_per_second, link.kind),
            (18, 370_800_000_000, LinkKind::NvLink)
        );
        assert_eq!(graph.place(link.origin), "t.xml:9");
    }
    let up = link(&graph, gpu, graph.parent(gpu).unwrap());
    assert_eq!(
        (up.bytes_per_second, up.confidence),
        (48_000_000_000, Confidence::Declared)
    );
    assert_eq!(graph.place(graph.origin(gpu)), "t.xml:7");
}

#[test]
fn nvlinks_to_switches_of_the_file_lead_to_the_first() {
    let gpu = |bus: u32, switches: &[u32]| {
        let rows: String = switches
            .iter()
            .map(|to| format!("<nvlink target=\"0000:{to}:00.0\" count=\"2\" tclass=\"0x068000\"/>"))
            .collect();
        format!(
            "<pci busid=\"0000:{bus}:00.0\" class=\"0x030200\"><gpu dev=\"{bus}\" sm=\"80\">{rows}</gpu></pci>\n"
        )
    };
    let switches: String = (50..54)
        .map(|bus| format!("<pci busid=\"0000:{bus}:00.0\" class=\"0x068000\"/>\n"))
        .collect();
    // Two boards: one of the first's GPUs has a switch less.
    let gpus = [gpu(10, &[51, 50, 52]), gpu(11, &[51, 52]), gpu(12, &[53])].concat();
    let (graph, repairs) = one_cpu(&(gpus + &switches));
    assert_eq!(repairs, [""; 0]);
    let [one, two, three] = [10, 11, 12].map(|bus| named(&graph, NodeKind::Gpu, &format!("0000:{bus}:00.0")));
    let switch = |bus: u32| named(&graph, NodeKind::NvSwitch, &format!("0000:{bus}:00.0"));
    for (gpu, switch, wires) in [(one, switch(50), 6), (two, switch(50), 4), (three, switch(53), 2)] {
        for (from, to) in [(gpu, switch), (switch, gpu)] {
            let link = link(&graph, from, to);
            assert_eq!(
                (link.wires, link.bytes_per_second),
                (wires, u64::from(wires) * 20_000_000_000)
            );
        }
    }
    let paths = super::super::paths::Paths::from(&graph, one);
    assert_eq!(paths.to(two).unwrap().bytes_per_second, 80_000_000_000);
    assert_ne!(paths.to(three).unwrap().way.name(), "NVL");
}

#[test]
fn a_gpu_of_several_ranks_has_its_links_once() {
    let links =
        "<nvlink target=\"0000:1a:00.0\" count=\"18\" tclass=\"0x068000\"/><c2c bw=\"45000\" count=\"10\"/>";
    let (graph, repairs) = one_cpu(&format!(
        "<pci busid=\"0000:0f:00.0\" class=\"0x030200\"><gpu dev=\"0\" sm=\"90\" rank=\"0\"/>\n\
         <gpu dev=\"0\" sm=\"90\" rank=\"1\">{links}</gpu><gpu dev=\"0\" sm=\"90\" rank=\"2\">{links}</gpu></pci>"
    ));
    assert_eq!((repairs, graph.of_kind(NodeKind::Rank).count()), (vec![], 3));
    let gpu = named(&graph, NodeKind::Gpu, "0000:0f:00.0");
    let switch = named(&graph, NodeKind::NvSwitch, "NVSwitch");
    for (from, to) in [(gpu, switch), (switch, gpu)] {
        let link = link(&graph, from, to);
        assert_eq!((link.wires, link.bytes_per_second), (18, 370_800_000_000));
    }
}

#[test]
fn a_fabric_joins_hosts() {
    let host = |hash: &str| {
        format!(
            "<cpu host_hash=\"{hash}\" numaid=\"0\" arch=\"arm64\">\n\
             <pci busid=\"0008:01:00.0\" class=\"0x030200\" link_speed=\"64 GT/s\" link_width=\"16\">\
             <gpu dev=\"0\" sm=\"100\"><nvlink target=\"fffffff:ff:ff.0\" count=\"18\" tclass=\"0x068000\"/>\
             <c2c bw=\"45000\" count=\"10\"/></gpu></pci></cpu>"
        )
    };
    let (graph, repairs) = of(&system(&(host("0x1") + &host("0x2"))));
    assert_eq!(repairs, [""; 0]);
    assert_eq!(
        graph
            .of_kind(NodeKind::Host)
            .map(|host| graph.name(host))
            .collect::<Vec<_>>(),
        ["0x1", "0x2"]
    );
    let fabric = named(&graph, NodeKind::NvSwitch, "NVLink fabric");
    assert_eq!(graph.parent(fabric), None);
    let gpus: Vec<NodeId> = graph.of_kind(NodeKind::Gpu).collect();
    for gpu in &gpus {
        assert_eq!(link(&graph, *gpu, fabric).bytes_per_second, 18 * 40_100_000_000);
        let numa = graph.within(*gpu, NodeKind::Numa).unwrap();
        let c2c = graph
            .edges_from(*gpu)
            .map(|edge| graph.edge(edge))
            .find(|edge| edge.link.kind == LinkKind::C2c);
        let c2c = c2c.unwrap();
        assert_eq!(
            (c2c.to, c2c.link.wires, c2c.link.bytes_per_second),
            (numa, 10, 450_000_000_000)
        );
    }
    let paths = super::super::paths::Paths::from(&graph, gpus[0]);
    assert_eq!(paths.to(gpus[1]).unwrap().way.name(), "NVL");
}

#[test]
fn links_that_lead_nowhere_are_told_and_kept() {
    let (graph, repairs) = one_cpu(
        "<pci busid=\"0001:00:00.0\" class=\"0x030200\"><gpu dev=\"0\" sm=\"80\">\n\
         <nvlink target=\"0001:00:00.0\" count=\"12\" tclass=\"0x030200\"/>\n\
         <nvlink target=\"0009:00:00.0\" count=\"4\" tclass=\"0x030200\"/>\n\
         <nvlink target=\"0002:00:00.0\" count=\"4\" tclass=\"0x030200\"/>\n\
         <nvlink target=\"0003:00:00.0\" count=\"0\"/></gpu></pci>\n\
         <pci busid=\"0002:00:00.0\" class=\"0x030200\"/>",
    );
    assert_eq!(
        repairs,
        [
            "4:1: 0001:00:00.0 has links to itself: whereto they lead is not known; not used",
            "5:1: a link to 0009:00:00.0, which is not in the file: not used",
            "6:1: 0001:00:00.0 has links to 0002:00:00.0, but not back: taken as both ways",
            "7:1: a link without a count above 0: left out",
        ]
    );
    let [one, other] = ["0001:00:00.0", "0002:00:00.0"].map(|name| named(&graph, NodeKind::Gpu, name));
    assert_eq!(link(&graph, other, one).bytes_per_second, 80_000_000_000);
}

#[test]
fn long_names_are_told_by_how_they_begin() {
    let gpu = |bus_id: &str, links: &str| {
        format!("<pci busid=\"{bus_id}\" class=\"0x030200\"><gpu dev=\"0\" sm=\"80\">{links}</gpu></pci>")
    };
    let [one, other] = ["1", "2"].map(|start| start.repeat(10_000));
    let link = format!("<nvlink target=\"{other}\" count=\"4\" tclass=\"0x030200\"/>");
    let text = system(&format!(
        "<cpu numaid=\"0\">{}{}</cpu>",
        gpu(&one, &link),
        gpu(&other, "")
    ));
    let (reading, _) = read(&text, "t.xml").unwrap();
    let told: Vec<_> = reading.repairs.iter().map(|repair| &*repair.what).collect();
    let is_whole = |told: &&str| told.ends_with("222..., but not back: taken as both ways");
    assert!(told.iter().any(is_whole), "{told:?}");
}

#[test]
fn idle_and_virtual_links_are_repaired() {
    let gpu = |speed: &str, width: &str| {
        let pci = format!(
            "<pci busid=\"0001:00:00.0\" class=\"0x030200\" link_speed=\"{speed}\" link_width=\"{width}\"/>"
        );
        let (graph, repairs) = one_cpu(&pci);
        let gpu = named(&graph, NodeKind::Gpu, "0001:00:00.0");
        let link = link(&graph, gpu, graph.parent(gpu).unwrap());
        (
            link.bytes_per_second / 1_000_000_000,
            link.confidence,
            repairs.join("; "),
        )
    };
    use Confidence::{Assumed, Declared};
    assert_eq!(gpu("32 GT/s", "16"), (48, Declared, String::new()));
    assert_eq!(gpu("32.0 GT/s PCIe", "16"), (48, Declared, String::new()));
    for (speed, width, gb, words) in [
        (
            "",
            "0",
            12,
            "3:1: link_width \"0\" and link_speed \"\": no link in use has that; taken as 12 GB/s",
        ),
        (
            "2.5 GT/s",
            "16",
            12,
            "3:1: link_speed \"2.5 GT/s\": no link in use has that; taken as 12 GB/s",
        ),
        (
            "16 GT/s",
            "1",
            24,
            "3:1: link_width \"1\": no link in use has that; taken as 24 GB/s",
        ),
    ] {
        assert_eq!(gpu(speed, width), (gb, Assumed, words.to_owned()));
    }
    // A slow adapter may have a slow link, a fast one can not.
    for (speed, wanted) in [
        ("1000", ""),
        (
            "100000",
            "3:1: link_width \"1\" and link_speed \"2.5 GT/s PCIe\": no link in use has that",
        ),
    ] {
        let (_, repairs) = one_cpu(&format!(
            "<pci busid=\"0000:94:00.0\" class=\"0x020000\" link_speed=\"2.5 GT/s PCIe\" link_width=\"1\"><nic>\
             <net name=\"eth0\" dev=\"0\" speed=\"{speed}\" port=\"0\" guid=\"0x0\"/></nic></pci>"
        ));
        assert!(
            repairs.join("").starts_with(wanted) && repairs.len() == usize::from(!wanted.is_empty()),
            "{repairs:?}"
        );
    }
}

#[test]
fn adapters_in_all_their_shapes() {
    let (graph, repairs) = one_cpu(
        "<pci busid=\"0000:0c:00.0\" class=\"0x020000\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><nic>\n\
         <net name=\"mlx5_0\" dev=\"0\" speed=\"200000\" port=\"1\" latency=\"0.5\" guid=\"0x9a70500003ae6d94\" gdr=\"1\"/>\n\
         <net name=\"mlx5_1\" dev=\"1\" speed=\"200000\" port=\"2\" guid=\"0x9a70500003ae6d94\" gdr=\"0\" later=\"x &lt; y\"/>\n\
         </nic></pci>\n\
         <pci busid=\"0000:0d:00.0\" class=\"0x020700\"><nic><net name=\"mlx5_2\" speed=\"-1\" guid=\"0x1\"/></nic></pci>\n\
         <nic><net name=\"eth0\" speed=\"100000\" guid=\"0x0\"/>\n\
         <net name=\"veth12ab\" speed=\"10000\"/>\n\
         <net name=\"docker0\" speed=\"10000\"/>\n\
         <net name=\"br-77\" speed=\"10000\"/></nic>",
    );
    assert_eq!(
        repairs,
        [
            "7:49: mlx5_2 has speed \"-1\": taken as 10 Gb/s",
            "9:1: veth12ab is no adapter but a virtual one of this host: not used",
            "10:1: docker0 is no adapter but a virtual one of this host: not used",
            "11:1: br-77 is no adapter but a virtual one of this host: not used",
        ]
    );
    let port = |name: &str| {
        let port = named(&graph, NodeKind::NicPort, name);
        let link = link(&graph, graph.parent(port).unwrap(), port);
        (
            link.kind,
            link.bytes_per_second / 1_000_000,
            link.latency_ns,
            link.reachable,
        )
    };
    assert_eq!(port("mlx5_0"), (LinkKind::Roce, 25_000, Some(500), true));
    assert_eq!(port("mlx5_1"), (LinkKind::Roce, 25_000, None, true));
    assert_eq!(port("mlx5_2"), (LinkKind::Ib, 1250, None, true));
    assert_eq!(port("eth0"), (LinkKind::Tcp, 12_500, None, true));
    assert_eq!(port("veth12ab"), (LinkKind::Tcp, 1250, None, false));
    assert_eq!(graph.of_kind(NodeKind::Nic).count(), 3);
    let [one, other] = ["mlx5_0", "mlx5_1"].map(|name| named(&graph, NodeKind::NicPort, name));
    assert_eq!(
        (graph.parent(one), graph.get(one, "guid")),
        (graph.parent(other), graph.get(other, "guid"))
    );
    assert_eq!(
        [graph.get(one, "gdr"), graph.get(other, "later")],
        [Some("1"), Some("x < y")]
    );
}

#[test]
fn several_ranks_and_parts_of_a_gpu() {
    let (graph, repairs) = one_cpu(
        "<pci busid=\"0000:0c:00.0\" class=\"0x030200\"><gpu dev=\"0\" rank=\"0\"/><gpu dev=\"0\" rank=\"1\"/>\
         <gpu dev=\"1\" rank=\"2\"/></pci>\n\
         <pci busid=\"0000:0c:00.1\" class=\"0x020000\"/>",
    );
    assert_eq!(repairs, [""; 0]);
    let gpus: Vec<NodeId> = graph.of_kind(NodeKind::Gpu).collect();
    let ranks = |gpu: NodeId| {
        graph
            .children(gpu)
            .map(|rank| graph.name(rank))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        [ranks(gpus[0]), ranks(gpus[1])],
        [vec!["rank 0", "rank 1"], vec!["rank 2"]]
    );
    // All functions of a slot share its link.
    let numa = graph.parent(gpus[0]).unwrap();
    let nic = named(&graph, NodeKind::Nic, "0000:0c:00.1");
    let group = link(&graph, numa, gpus[0]).group.unwrap();
    assert_eq!(
        [gpus[1], nic].map(|node| link(&graph, numa, node).group),
        [Some(group); 2]
    );
    assert_ne!(
        link(&graph, gpus[0], numa).group,
        Some(group),
        "each way has its own"
    );
    assert_eq!(graph.group(group).bytes_per_second, 12_000_000_000);
}

#[test]
fn only_functions_of_one_device_share_its_lanes() {
    let (graph, _) = one_cpu(
        "<pci busid=\"0000:40:01.1\" class=\"0x060400\"/><pci busid=\"0000:40:01.2\" class=\"0x060400\"/>\n\
         <pci class=\"0x030200\"/><pci class=\"0x030200\"/>\n\
         <pci busid=\"0000:41:00.0\" class=\"0x020000\"/><pci busid=\"0000:41:00.1\" class=\"0x020000\"/>",
    );
    let numa = named(&graph, NodeKind::Numa, "NUMA 0");
    let groups = graph
        .edges_from(numa)
        .map(|edge| graph.edge(edge).link.group.is_some());
    assert_eq!(
        groups.collect::<Vec<_>>(),
        [false, false, false, false, true, true]
    );
}

#[test]
fn switches_that_are_joined_beside_the_tree_are_near() {
    let switch = |bus: u32, targets: &[u32]| {
        let links: String = targets
            .iter()
            .map(|to| format!("<pcilink target=\"0000:{to}:00.0\"/>"))
            .collect();
        format!(
            "<pci busid=\"0000:{bus}:00.0\" class=\"0x060400\" link_speed=\"16 GT/s\" link_width=\"16\">{links}\
             <pci busid=\"0000:{}:00.0\" class=\"0x030200\" link_speed=\"16 GT/s\" link_width=\"16\"/></pci>\n",
            bus + 10
        )
    };
    let (graph, repairs) = one_cpu(&(switch(10, &[11]) + &switch(11, &[10]) + &switch(12, &[99])));
    assert_eq!(
        repairs,
        ["5:81: a pcilink to 0000:99:00.0, which is no other switch of the file: not used"]
    );
    let [one, two, three] = [20, 21, 22].map(|bus| named(&graph, NodeKind::Gpu, &format!("0000:{bus}:00.0")));
    let paths = super::super::paths::Paths::from(&graph, one);
    let way = |to| {
        let label = paths.to(to).unwrap();
        (label.way.name(), label.edges)
    };
    assert_eq!([way(two), way(three)], [("PXB", 3), ("PHB", 4)]);
    let written = (write::writer("nccl-xml").unwrap().write)(&graph).text;
    for bus in [10, 11, 99] {
        let row = format!("<pcilink target=\"0000:{bus}:00.0\"/>");
        assert_eq!(written.matches(&row).count(), 1, "{written}");
    }
}

#[test]
fn parts_are_written_with_their_own_function() {
    let function = |dev: u32| {
        format!(
            "<pci busid=\"0000:0c:00.0\" class=\"0x030200\"><gpu dev=\"{dev}\"/><gpu dev=\"{}\"/></pci>\n",
            dev + 1
        )
    };
    // Two functions of one bus id, which was told.
    let (graph, repairs) = one_cpu(&(function(0) + &function(2)));
    assert_eq!(repairs.len(), 1, "{repairs:?}");
    let written = (write::writer("nccl-xml").unwrap().write)(&graph).text;
    assert_eq!(written.matches("<gpu ").count(), 4, "{written}");
}

#[test]
fn numa_nodes_hosts_and_what_is_unknown() {
    let (graph, repairs) = of("<system version=\"3\" mode=\"x\">\n\
         <cpu numaid=\"-1\" arch=\"x86_64\" vendor=\"AMD\" familyid=\"143\" modelid=\"49\" affinity=\"f\" news=\"1\"/>\n\
         <cpu numaid=\"1\" arch=\"x86_64\" vendor=\"AuthenticAMD\" familyid=\"143\" modelid=\"49\">\n\
         <pci busid=\"0000:01:00.0\" class=\"0x060400\" speed=\"7\"><tpu/><gpu dev=\"0\" gdr=\"0\"/></pci></cpu>\n\
         <gpu dev=\"0\"/>\n</system>");
    assert_eq!(
        repairs,
        [
            "1:1: version \"3\" is unknown: read as version 1",
            "2:1: numaid=\"-1\" is no NUMA node: taken as 0",
            "4:54: <tpu> in <pci> is unknown: left out",
            "5:1: <gpu> in <system> is unknown: left out",
        ]
    );
    let [one, other] = ["NUMA 0", "NUMA 1"].map(|name| named(&graph, NodeKind::Numa, name));
    let socket = link(&graph, one, other);
    assert_eq!(
        (socket.kind, socket.bytes_per_second),
        (LinkKind::Socket, 16_000_000_000)
    );
    assert_eq!(
        (graph.place(socket.origin), socket.confidence),
        ("assumed".to_owned(), Confidence::Assumed)
    );
    assert_eq!(
        [graph.get(one, "news"), graph.get_whole("mode")],
        [Some("1"), Some("x")]
    );
    let gpu = named(&graph, NodeKind::Gpu, "0000:01:00.0");
    assert_eq!(
        [graph.get(gpu, "pci.speed"), graph.get(gpu, "gdr")],
        [Some("7"), Some("0")]
    );
}

#[test]
fn flaws_have_positions() {
    for (text, wanted) in [
        (
            "# a remark",
            "t:1:1: no topology format begins like this; wanted one of json, nccl-xml, nccl-graph, hwloc",
        ),
        (
            "<system/>",
            "t:1:1: a system without anything in it; wanted at least one <cpu>",
        ),
        ("<system>\n<cpu a=\"1\" a=\"2\"/></system>", "t:2:"),
        ("<system>\n  <cpu>\n</system>", "t:3:1: "),
        (
            "<!DOCTYPE a [\n<!ENTITY b \"c\">]><system><cpu>&b;</cpu></system>",
            "t:2:1: an entity",
        ),
        (
            "{\n\"ccl-topology\": 1,\n\"nodes\": [{\"id\": 0}]}",
            "t:3:19: missing field `kind`; wanted what ccl-topo dump",
        ),
        ("{\"ccl-topology\": 9}", "t:1:1: version 9; wanted version 1 to 1"),
        (
            "{\"ccl-topology\": 1,\n\"nodes\": [\n {\"id\": 0, \"kind\": \"gpu\", \"name\": \"a\", \"in\": 3}]}",
            "t:3:2: a node in 3; wanted one that lies in a node above it",
        ),
        (
            "{\"ccl-topology\": 1,\n\"edges\": [\n {\"from\": 0, \"to\": 1, \"kind\": \"pcie\"}]}",
            "t:3:2: an edge of node 0; wanted a node of the file",
        ),
    ] {
        let flaw = read(text, "t").unwrap_err().to_string();
        assert!(flaw.starts_with(wanted), "{flaw}");
    }
    let deep = "<cpu>".repeat(300_000);
    let flaw = read(&format!("<system>{deep}"), "t").unwrap_err().to_string();
    assert_eq!(
        flaw,
        "t:1:644: more than 128 elements inside one another; wanted a file of a machine, which has fewer"
    );
    let deep = format!("{{\"ccl-topology\":1,\"x\":{}", "[".repeat(300_000));
    assert!(
        read(&deep, "t")
            .unwrap_err()
            .to_string()
            .contains("recursion limit")
    );
}

#[test]
fn what_is_not_written_stays_so() {
    let (graph, repairs) =
        of("<system><cpu><pci class=\"0x060400\"><pci><nic><net/></nic></pci></pci></cpu></system>");
    assert_eq!(
        repairs,
        [
            "1:14: a <pci> without a busid: nothing can lead to it",
            "1:36: a <pci> without a busid: nothing can lead to it",
            "1:46: net has speed \"\": taken as 10 Gb/s",
        ]
    );
    let port = named(&graph, NodeKind::NicPort, "net");
    assert_eq!(
        graph.within(port, NodeKind::Numa),
        Some(named(&graph, NodeKind::Numa, "NUMA 0"))
    );
}

/// Files that would take more memory than there is, or numbers that do not fit, are refused.
#[test]
fn what_is_too_large_is_told() {
    let radix = u64::MAX;
    for (text, place) in [
        (
            format!(
                "Nodes 2\nTiers 2\nTier 0\nDownlink_speed_Gbps 1\nRadix_Down 2\nRadix_Up {radix}\nTier 1\nRadix_Down 3\n"
            ),
            "file:",
        ),
        (
            format!("SwitchName=a Nodes=n[1-262144]{}\n", "x".repeat(100_000)),
            "file:1:",
        ),
        ("SwitchName=a Nodes=n[1-999999999]\n".to_owned(), "file:1:"),
    ] {
        let flaw = read(&text, "file").err().unwrap().to_string();
        assert!(flaw.starts_with(place), "{flaw}");
    }
}

#[test]
fn a_file_full_of_faults_in_one_line_tells_the_first() {
    let text = format!("<system version=\"1\"><cpu/>{}</system>", "<tpu/>".repeat(3000));
    let (reading, _) = read(&text, "t").unwrap();
    let told: Vec<String> = reading.repairs.iter().map(Repair::to_string).collect();
    assert_eq!(told.len(), 1001);
    assert_eq!(told[999], "1:6021: <tpu> in <system> is unknown: left out");
    assert_eq!(told[1000], "and 2000 more");
    let text = format!("{{\"ccl-topology\": 1, \"{}\": 1}}", "x".repeat(5000));
    let (reading, _) = read(&text, "t").unwrap();
    assert_eq!(reading.repairs[0].what.len(), 1003, "a line that can be read");
}

#[test]
fn a_function_has_so_many_gpus_and_the_ports_of_its_own() {
    let gpus: String = (0..66)
        .map(|dev| format!("<gpu dev=\"{dev}\" rank=\"{dev}\"/>\n"))
        .collect();
    let (graph, repairs) = one_cpu(&format!(
        "<pci busid=\"0:1:0.0\" class=\"0x030200\">\n{gpus}<gpu dev=\"63\" rank=\"70\"/></pci>"
    ));
    let told = ["68", "69"].map(|line| format!("{line}:1: more than 64 GPUs in a function: left out"));
    assert_eq!(repairs, told);
    let kinds = [NodeKind::Gpu, NodeKind::Rank];
    assert_eq!(kinds.map(|kind| graph.of_kind(kind).count()), [64, 65]);
    // A slow adapter above a fast one.
    let nic = |bus: u32, speed: u32, inner: &str| {
        format!(
            "<pci busid=\"0:{bus}:0.0\" class=\"0x020000\" link_speed=\"2.5 GT/s\" link_width=\"1\">\n\
             <nic><net name=\"eth{bus}\" speed=\"{speed}\"/></nic>{inner}</pci>"
        )
    };
    let (_, repairs) = one_cpu(&nic(1, 1000, &nic(2, 100_000, "")));
    assert_eq!(repairs.len(), 1);
    assert!(
        repairs[0].starts_with("4:43: link_width \"1\" and link_speed"),
        "{repairs:?}"
    );
    // Many links to one target are kept as they are.
    let rows: String = (1..4)
        .map(|count| format!("<nvlink target=\"0:9:0.0\" count=\"{count}\"/>"))
        .collect();
    let (graph, _) = one_cpu(&format!(
        "<pci busid=\"0:1:0.0\"><gpu dev=\"0\">{rows}<c2c bw=\"1\"/><c2c bw=\"2\"/></gpu></pci>"
    ));
    let gpu = graph.of_kind(NodeKind::Gpu).next().unwrap();
    assert_eq!(
        graph.get(gpu, "link:nvlink 0000:09:0.0"),
        Some("count=1; count=2; count=3")
    );
}

#[test]
fn many_numa_nodes_of_many_hosts_make_no_more_edges_than_there_is_room_for() {
    let cpus: String = (0..60 * 200)
        .map(|at| format!("<cpu host_hash=\"{}\"/>", at / 60))
        .collect();
    let (reading, _) = read(&system(&cpus), "t").unwrap();
    // All pairs of 145 hosts, then each with a node in the middle.
    let edges = |hosts: usize, of_one: usize| hosts * of_one * 2;
    assert_eq!(
        reading.graph.edges().len(),
        edges(145, 60 * 59 / 2) + edges(55, 60)
    );
}
