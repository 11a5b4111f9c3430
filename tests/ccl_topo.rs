//! `ccl-topo` as its users meet it.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/topologies");

fn ccl_topo(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccl-topo"));
    command.args(words).stdin(Stdio::null()).output().unwrap()
}

/// What it prints, which must go well.
fn prints(words: &[&str]) -> String {
    let output = ccl_topo(words);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(
        (output.status.code(), err.as_str()),
        (Some(0), ""),
        "{words:?}\n{out}"
    );
    out
}

/// The status and the message of what must not go well.
fn fails(words: &[&str]) -> (i32, String) {
    let output = ccl_topo(words);
    assert_eq!(text(&output.stdout), "", "{words:?}");
    (output.status.code().unwrap(), text(&output.stderr))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn show_tells_what_there_is() {
    let file = format!("{DATA}/nccl-xml/aws-p4d-24xl-topo.xml");
    let shown = prints(&["show", &file]);
    for line in [
        "1 host, 2 NUMA nodes, 4 PCI switches, 8 GPUs, 4 NICs",
        "      0000:10:1c.0  GPU  (Pcie 12 GB/s)",
        "GPU0         X    PIX    PHB    PHB    SYS    SYS    SYS    SYS    PIX    PHB    SYS    SYS",
        "GPU0         X     12     12     12     10     10     10     10     12     12     10     10",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line}\n{shown}");
    }
    assert!(!shown.contains("repaired"), "{shown}");

    let shown = prints(&["show", &format!("{DATA}/nccl-xml/azure-ncv4-topo.xml")]);
    assert!(
        shown.contains("  5:9: 0001:00:00.0 has links to itself"),
        "{shown}"
    );
    let shown = prints(&["show", &format!("{DATA}/rccl-xml/topo_8p_90a.xml")]);
    assert!(shown.contains("0000:c5:00.0 (XGmi ~36 GB/s)"), "{shown}");
    let shown = prints(&["show", &format!("{DATA}/nccl-xml/azure-ncv4-graph.xml")]);
    assert!(
        shown.contains("graph 0 channel 1: gpu 0, gpu 3, gpu 2, gpu 1\n"),
        "{shown}"
    );
    let shown = prints(&["show", "live"]);
    assert!(shown.contains("NUMA 0"), "{shown}");
}

#[test]
fn dump_and_diff_agree() {
    let folder = tempfile::tempdir().unwrap();
    let file = format!("{DATA}/rccl-xml/topo_8p_942.xml");
    let mut made = Vec::new();
    for format in ["json", "nccl-xml"] {
        let path = folder.path().join(format).display().to_string();
        std::fs::write(&path, prints(&["dump", &file, "--format", format])).unwrap();
        assert_eq!(prints(&["diff", &file, &path]), "");
        made.push(path);
    }
    let changed =
        std::fs::read_to_string(&made[1])
            .unwrap()
            .replacen("speed=\"400000\"", "speed=\"200000\"", 1);
    std::fs::write(&made[1], changed).unwrap();
    let output = ccl_topo(&["diff", &made[0], &made[1]]);
    assert_eq!(output.status.code(), Some(1));
    let lines = text(&output.stdout);
    assert!(lines.contains(", speed: 400000 -> 200000\n"), "{lines}");
    assert_eq!(
        lines.lines().count(),
        3,
        "the word, and the edges each way: {lines}"
    );
}

#[test]
fn mistakes_are_one_line() {
    let missing = fails(&["show", "/nowhere/at-all"]);
    assert_eq!(missing.0, 1);
    assert!(
        missing.1.starts_with("ccl-topo: /nowhere/at-all: No such file"),
        "{missing:?}"
    );
    let this = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("Cargo.toml")
        .display()
        .to_string();
    let (status, line) = fails(&["dump", &this]);
    assert_eq!(status, 1);
    assert!(
        line.contains("Cargo.toml:1:1: no topology format begins like this; wanted one of"),
        "{line}"
    );
    for (words, wanted) in [
        (&[][..], "show, dump or diff?"),
        (&["draw"], "unrecognized subcommand"),
        (
            &["dump", "a", "--format", "png"],
            "possible values: json, nccl-xml",
        ),
        (&["show", "a", "--from", "png"], "a format is one of json"),
        (&["diff", "a"], "<SECOND>"),
    ] {
        let (status, line) = fails(words);
        assert_eq!((status, line.lines().count()), (2, 1), "{words:?}: {line}");
        assert!(
            line.starts_with("ccl-topo: ") && line.contains(wanted),
            "{words:?}: {line}"
        );
    }
}

#[test]
fn texts_come_in_the_encodings_that_people_have() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let slurm = "SwitchName=s Nodes=é\n";
    let plain = write("plain", slurm.as_bytes());
    let wide = |order: fn(u16) -> [u8; 2]| -> Vec<u8> {
        let units = "\u{feff}".encode_utf16().chain(slurm.encode_utf16());
        units.flat_map(order).collect()
    };
    let (little, big) = (wide(u16::to_le_bytes), wide(u16::to_be_bytes));
    let marked = ["\u{feff}", slurm].concat();
    for (name, bytes) in [
        ("little", &little[..]),
        ("big", &big),
        ("marked", marked.as_bytes()),
    ] {
        assert_eq!(prints(&["diff", &plain, &write(name, bytes)]), "", "{name}");
    }
    let latin = write("latin", b"SwitchName=s Nodes=\xe9\n");
    let output = ccl_topo(&["diff", &plain, &latin]);
    assert_eq!(
        (output.status.code(), text(&output.stdout).as_str()),
        (Some(0), "")
    );
    assert!(
        text(&output.stderr).ends_with("byte 19 is not UTF-8: the file is read as Latin-1\n"),
        "{output:?}"
    );
    let half = write("half", &little[..little.len() - 1]);
    let (status, line) = fails(&["show", &half]);
    assert!(status == 1 && line.contains("begins as UTF-16"), "{line}");
    let (status, line) = fails(&["diff", &plain, "/nowhere/at-all"]);
    assert!(status == 2 && line.contains("No such file"), "{line}");
}

#[test]
fn what_cannot_be_looked_at_or_written_is_told() {
    let (status, line) = fails(&["show", "live", "--root", "/nowhere"]);
    assert!(
        status == 1 && line.contains("/nowhere: no folder with a sys in it"),
        "{line}"
    );
    let file = format!("{DATA}/own/slurm-tree.conf");
    let (status, line) = fails(&["show", &file, "--root", "/"]);
    assert!(
        status == 1 && line.contains("--root says where live looks"),
        "{line}"
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccl-topo"));
    let full = std::fs::File::create("/dev/full").unwrap();
    let output = command.args(["show", &file]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("standard output: No space left"),
        "{output:?}"
    );
}

#[test]
fn what_a_format_has_no_words_for_is_told() {
    let output = ccl_topo(&[
        "dump",
        &format!("{DATA}/own/slurm-tree.conf"),
        "--format",
        "nccl-xml",
    ]);
    assert!(
        text(&output.stderr).contains("nccl-xml has no words for "),
        "{output:?}"
    );
    let matrix = "\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("matrix").display().to_string();
    std::fs::write(&path, matrix).unwrap();
    let output = ccl_topo(&["dump", &path, "--format", "nccl-xml"]);
    let told = text(&output.stderr);
    for words in [
        "2 of Gpu without a bus id",
        "2 links of GPUs or NPUs, each way counted",
    ] {
        assert!(
            told.contains(&format!("nccl-xml has no words for {words}\n")),
            "{told}"
        );
    }
}

#[test]
fn rings_stand_beside_what_is_possible() {
    let file = format!("{DATA}/nccl-xml/aws-p4d-24xl-topo.xml");
    let told = prints(&["rings", &file]);
    for part in [
        "1 ring, 10 GB/s together",
        "reached 0.83 of the bound, exact",
        "bound of rings: 10 GB/s cross the narrowest cut, reached 1.00",
        "Socket NUMA 0 -> NUMA 1, ~10 GB/s",
        "aws-p4d-24xl-topo.xml:18]",
    ] {
        assert!(told.contains(part), "{part}\n{told}");
    }
    let h100 = format!("{DATA}/nccl-xml/oci-h100-topology-kubernetes.xml");
    let told = prints(&["rings", &h100, "--hosts", "10"]);
    assert!(
        told.contains("10 hosts with 8 endpoints, GPU, and 8 adapters each"),
        "{told}"
    );
    assert!(told.contains("8 rings"), "{told}");
    let told = prints(&["rings", &format!("{DATA}/hwloc/16intel64-manyVFs.xml")]);
    assert!(told.contains("ring"), "{told}");
    let shown = prints(&["show", &file]);
    assert!(
        shown.contains("  1  NUMA node: 2 x 4 of GPU, 12 GB/s\n  2  host: 8 of GPU, 10 GB/s"),
        "{shown}"
    );
    let two = format!("{DATA}/own/slurm-block.conf");
    assert_eq!(fails(&["rings", &two, "--hosts", "2"]).0, 1);
}
