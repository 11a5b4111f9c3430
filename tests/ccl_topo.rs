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
        (&[][..], "show, dump, diff or simulate?"),
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
fn simulate_tells_how_long_calls_take() {
    let file = format!("{DATA}/nccl-xml/oci-h100-topology-kubernetes.xml");
    let call = [
        "simulate",
        "allreduce",
        "1G",
        "--topo",
        &file,
        "--hosts",
        "10",
        "--algorithm",
        "ring",
    ];
    let told = prints(&call);
    assert!(
        told.contains("among 80 ranks, 10 hosts of 8\n") && told.contains("8 channels"),
        "{told}"
    );
    let json = |words: &[&str]| -> serde_json::Value {
        let words: Vec<_> = call.iter().chain(words).copied().collect();
        serde_json::from_str(&prints(&words)).unwrap()
    };
    let slowed = json(&["--json", "--degrade", "host3/0000:0c:00.0 out=0.5"]);
    let result = &slowed["results"][0];
    let time = |when: &str| result[when]["time_us"].as_f64().unwrap();
    assert!((1.8..2.2).contains(&(time("changed") / time("now"))), "{slowed}");
    let busiest = &result["changed"]["busiest"][0]["edge"];
    assert_eq!(busiest, "host3/0000:0c:00.0 out", "{slowed}");
    let traced = [
        "simulate",
        "allgather",
        "4K",
        "--ranks-per-host",
        "2",
        "--algorithm",
        "ring",
        "--json",
        "--trace",
    ];
    let traced: serde_json::Value = serde_json::from_str(&prints(&traced)).unwrap();
    let now = &traced["results"][0]["now"];
    assert_eq!(
        now["spans"].as_array().unwrap().len() as f64,
        now["messages"].as_f64().unwrap()
    );

    for (words, wrong) in [
        (&["simulate", "allreduce", "1G", "--fail", "host7"][..], "host7"),
        (
            &["simulate", "allreduce", "1G", "--algorithm", "chain"],
            "chain does not do allreduce",
        ),
        (&["simulate", "sum", "1G"], "one of allreduce, "),
        (&["simulate", "allreduce", "1G", "--fabric", "tree"], "tree:HOSTS"),
        (
            &["simulate", "allreduce", "1G", "--hosts", "0"],
            "at least one host",
        ),
    ] {
        let (status, told) = fails(words);
        assert!(status != 0 && told.contains(wrong), "{words:?}: {told}");
    }
}
