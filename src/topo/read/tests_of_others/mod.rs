//! Files of all formats but NCCL's and this library's own.

mod hosts;
mod networks;

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
