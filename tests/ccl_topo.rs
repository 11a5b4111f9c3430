//! `ccl-topo` as its users meet it.

#[path = "common/compile.rs"]
#[allow(dead_code)]
mod compile;

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
    // Files of others' machines need not be whole.
    let complaints: Vec<&str> = err
        .lines()
        .filter(|line| !line.ends_with(": something was repaired or left out, ccl-topo show tells what"))
        .collect();
    assert_eq!(
        (output.status.code(), complaints),
        (Some(0), vec![]),
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
        (
            &[][..],
            "show, dump, diff, rings, simulate, draw, plan, explain or verify?",
        ),
        (&["paint"], "unrecognized subcommand"),
        (&["draw", "a"], "--output <OUT.svg>"),
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
    let from = [
        "diff",
        &plain,
        &write("marked", marked.as_bytes()),
        "--from",
        "slurm",
    ];
    assert_eq!(prints(&from), "");
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
        status == 2 && line.contains("--root says where live looks"),
        "{line}"
    );
    for (words, status) in [
        (&["show", &file][..], 1),
        (&["plan", &file, "allreduce", "1M", "--hosts", "2"], 1),
        (&["verify", "allreduce", "--ranks", "2"], 1),
        (&["--help"], 1),
        (&["diff", &file, &format!("{DATA}/own/slurm-4hosts.conf")], 2),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ccl-topo"));
        let full = std::fs::File::create("/dev/full").unwrap();
        let output = command.args(words).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{words:?}");
        assert!(
            text(&output.stderr).contains("standard output: No space left"),
            "{output:?}"
        );
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccl-topo"));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command.args(["show", &file]).stdout(writer).output().unwrap();
    assert_eq!(
        (output.status.code(), text(&output.stderr).as_str()),
        (Some(0), ""),
        "who reads has seen enough"
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("holes");
    let holes = std::fs::File::create(&path).unwrap();
    holes.set_len((1 << 30) + 1).unwrap();
    let (status, line) = fails(&["show", &path.display().to_string()]);
    assert!(
        status == 1 && line.ends_with("holes: more than 1024 MiB: no description of a machine\n"),
        "{line}"
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

/// A file's words may hold what moves a terminal's cursor: it is written so that it is read again and no terminal sees it.
#[test]
fn what_is_written_moves_no_cursor() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let xml = "<system version=\"1\"><cpu numaid=\"0\" x=\"a\u{85}\u{9b}b\u{7f}\"><pci busid=\"0000:01:00.0\" class=\"0x030200\">\
               <gpu dev=\"0\" sm=\"80\"/></pci></cpu></system>";
    std::fs::write(file("first"), xml).unwrap();
    for format in ["json", "nccl-xml"] {
        let written = prints(&["dump", &file("first"), "--format", format]);
        let strange = |c: char| c.is_control() && c != '\n';
        assert!(!written.contains(strange), "{written:?}");
        std::fs::write(file(format), written).unwrap();
        assert_eq!(prints(&["diff", &file("first"), &file(format)]), "");
    }
}

/// A copy of a machine's `/sys` with four GPUs and two NVSwitches, and NVML's stand-in.
struct Gpus {
    folder: tempfile::TempDir,
}

impl Gpus {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (bus, class) in ["01", "02", "03", "04"]
            .map(|bus| (bus, "0x030200"))
            .into_iter()
            .chain(["0a", "0b"].map(|bus| (bus, "0x068000")))
        {
            let device = folder.path().join(format!("sys/bus/pci/devices/0007:{bus}:00.0"));
            std::fs::create_dir_all(&device).unwrap();
            std::fs::write(device.join("class"), class).unwrap();
            std::fs::write(device.join("vendor"), "0x10de").unwrap();
        }
        compile::library("tests/nvml.c", &folder.path().join("libnvidia-ml.so.1"), &[]);
        Gpus { folder }
    }

    fn run(&self, machine: &str, path: Option<&str>, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ccl-topo"));
        command.args(words).stdin(Stdio::null());
        command.env("LD_LIBRARY_PATH", self.folder.path());
        command.env("NVML_STAND_IN", machine).env_remove("CCL_DEBUG");
        match path {
            Some(path) => command.env("CCL_NVML_PATH", path),
            None => command.env_remove("CCL_NVML_PATH"),
        };
        command.output().unwrap()
    }

    /// What is told of the copy by the stand-in.
    fn show(&self, machine: &str, words: &[&str]) -> String {
        let root = self.folder.path().display().to_string();
        let words: Vec<&str> = words.iter().copied().chain(["live", "--root", &root]).collect();
        let output = self.run(machine, Some("libnvidia-ml.so.1"), &words);
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout)
    }
}

#[test]
fn nvml_tells_of_links() {
    let gpus = Gpus::new();
    for (machine, lines) in [
        (
            "mesh",
            &[
                "1 host, 1 NUMA node, 4 GPUs, 2 NVSwitches",
                "GPU0         X    NVL    NVL    NVL",
                "GPU0         X     40     40     40",
                "    0007:01:00.0  GPU dev=0 sm=80  (Pcie ~12 GB/s)  -> 0007:02:00.0 (2 x NvLink ~40 GB/s), \
                 0007:03:00.0 (2 x NvLink ~40 GB/s), 0007:04:00.0 (2 x NvLink ~40 GB/s)",
            ][..],
        ),
        (
            "switch",
            &[
                "GPU0         X    NVL    NVL    NVL",
                "GPU0         X    240    240    240",
                "    0007:04:00.0  GPU dev=3 sm=80  (Pcie ~12 GB/s)  -> 0007:0a:00.0 (12 x NvLink ~240 GB/s)",
            ],
        ),
        (
            "fabric",
            &[
                "1 host, 1 NUMA node, 4 GPUs, 3 NVSwitches",
                "GPU0         X  721.8  721.8  721.8",
                "    0007:02:00.0  GPU dev=1 sm=100  (Pcie ~12 GB/s)  -> NVLink fabric (18 x NvLink ~721.8 GB/s)",
            ],
        ),
        ("no driver", &["GPU0         X    PHB    PHB    PHB"]),
        (
            "other driver",
            &[
                "GPU0         X    PHB    PHB    PHB",
                "  NVML does not answer, so NVLinks are not known: libnvidia-ml.so.1: RM detects a driver/library version mismatch",
            ],
        ),
    ] {
        let shown = gpus.show(machine, &["show"]);
        for line in lines {
            assert!(
                shown.lines().any(|shown| shown == *line),
                "{machine}: {line}\n{shown}"
            );
        }
        assert_eq!(
            shown.contains("repaired or left out"),
            machine == "other driver",
            "{shown}"
        );
    }
    let dumped = gpus.show("fabric", &["dump"]);
    let cluster = format!("\"fabric_cluster\":\"{}\"", "ab".repeat(16));
    for word in ["\"uuid\":\"GPU-3\"", "\"fabric_clique\":\"1\"", &cluster] {
        assert!(dumped.contains(word), "{word}\n{dumped}");
    }
}

#[test]
fn what_nvml_tells_comes_through_nccls_format() {
    let gpus = Gpus::new();
    for machine in ["mesh", "switch", "fabric"] {
        let [json, xml] = ["json", "nccl-xml"].map(|format| {
            let path = gpus.folder.path().join(format!("{machine} {format}"));
            std::fs::write(&path, gpus.show(machine, &["dump", "--format", format])).unwrap();
            path.display().to_string()
        });
        let output = ccl_topo(&["diff", &json, &xml]);
        let lines = text(&output.stdout);
        let links: Vec<&str> = lines.lines().filter(|line| line.contains("NvLink")).collect();
        assert_eq!(links, [""; 0], "{machine}");
    }
}

#[test]
fn nvml_is_asked_of_this_machine_alone() {
    let gpus = Gpus::new();
    let root = gpus.folder.path().display().to_string();
    let shown = |path, words: &[&str]| {
        let output = gpus.run("mesh", path, words);
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout)
    };
    let here = shown(None, &["show", "live"]);
    let other = "NVML has a GPU 0007:01:00.0, which sysfs has not: left out";
    assert!(here.contains(other), "{here}");
    assert!(!shown(Some(""), &["show", "live"]).contains(other));
    let there = shown(None, &["show", "live", "--root", &root]);
    assert!(there.contains("4 GPUs") && !there.contains("NvLink"), "{there}");

    let words = ["show", "live", "--root", &root];
    let missing = gpus.run("mesh", Some("/nowhere/libnvidia-ml.so.1"), &words);
    assert_eq!(
        (
            missing.status.code(),
            text(&missing.stdout),
            text(&missing.stderr)
        ),
        (Some(0), there, String::new())
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccl-topo"));
    command
        .args(words)
        .env("CCL_NVML_PATH", "/nowhere/libnvidia-ml.so.1");
    let told = command.env("CCL_DEBUG", "debug").output().unwrap();
    assert!(
        text(&told.stderr).contains("no NVML: /nowhere/libnvidia-ml.so.1"),
        "{told:?}"
    );
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
            "a number from 1 ",
        ),
        (
            &["simulate", "allreduce", "1G", "--ranks-per-host", "1000000"],
            "a number from 1 to 2048",
        ),
        (&["simulate", "allreduce", "1G", "--tile", "0"], "at least 1 byte"),
        (
            &["plan", &file, "allreduce", "1G", "--local-bandwidth", "100"],
            "--local-bandwidth goes without a file",
        ),
        (
            &["simulate", "allreduce", "1G", "--link-bandwidth", "0"],
            "a number above 0",
        ),
    ] {
        let (status, told) = fails(words);
        let wanted = if wrong == "host7" { 1 } else { 2 };
        assert!(
            status == wanted && told.contains(wrong),
            "{words:?}: {status} {told}"
        );
    }
}

/// A file that joins several hosts says how many there are, and what joins them.
#[test]
fn hosts_are_added_where_the_file_has_them() {
    let file = format!("{DATA}/own/slurm-4hosts.conf");
    let call = [
        "simulate",
        "allreduce",
        "1G",
        "--topo",
        &file,
        "--algorithm",
        "ring",
    ];
    let with = |words: &[&'static str]| [&call[..], words].concat();
    let told = prints(&with(&["--hosts", "2", "--add-hosts", "2"]));
    let row = told.lines().find(|line| line.starts_with("ring ")).unwrap();
    assert!(row.ends_with(" 1.50"), "{told}");
    for (words, wanted) in [
        (&["--add-hosts", "4"][..], "8 hosts of a file that joins 4"),
        (
            &["--fabric", "tree:1:1"],
            "--fabric is for hosts that are alike: the file says what joins its 4",
        ),
        (&["--oversubscription", "8"], "--oversubscription is for hosts"),
        (&["--link-latency", "1e9"], "--link-latency is for hosts"),
    ] {
        let (status, line) = fails(&with(words));
        assert!(status == 1 && line.contains(wanted), "{words:?}: {line}");
    }
}

/// A file with neither hosts nor adapters is no host of several: it is all there is.
#[test]
fn a_file_without_hosts_is_the_whole_network() {
    let file = format!("{DATA}/own/astra-analytical.yml");
    let call = [
        "simulate",
        "allreduce",
        "1M",
        "--topo",
        &file,
        "--algorithm",
        "doubling",
    ];
    let told = prints(&call);
    assert!(told.contains("among 8 ranks, 1 hosts of 8\n"), "{told}");
    let told = prints(&[&call[..], &["--hosts", "2"]].concat());
    assert!(told.contains("among 16 ranks, 2 hosts of 8\n"), "{told}");
}

#[test]
fn numa_nodes_without_processors_have_no_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("memory").display().to_string();
    let numa = |number, set| format!("<object type=\"NUMANode\" os_index=\"{number}\" cpuset=\"{set}\"/>");
    let nodes = [numa(0, "0x3"), numa(1, "0x0"), numa(2, "0xc")].concat();
    let xml = format!("<topology version=\"2.0\"><object type=\"Machine\">{nodes}</object></topology>");
    std::fs::write(&file, xml).unwrap();
    let told = prints(&["simulate", "allreduce", "1M", "--topo", &file, "--hosts", "1"]);
    assert!(told.contains("among 2 ranks, 1 hosts of 2\n"), "{told}");
}

#[test]
fn hosts_whose_ports_are_down_do_not_talk() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("down").display().to_string();
    let xml = "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"0000:01:00.0\" class=\"0x030200\"><gpu dev=\"0\" sm=\"80\"/></pci>\
               <nic><net name=\"docker0\" dev=\"0\" speed=\"10000\"/></nic></cpu></system>";
    std::fs::write(&file, xml).unwrap();
    for words in [
        &["simulate", "allreduce", "1M", "--topo", &file][..],
        &["plan", &file, "allreduce", "1M"],
    ] {
        let (status, told) = fails(words);
        assert!(
            status == 1
                && told.contains("no port of the file's adapters is up")
                && told.contains("--hosts 1"),
            "{words:?}: {told}"
        );
    }
}

#[test]
fn hosts_that_all_fail_are_no_network() {
    let file = format!("{DATA}/nccl-xml/oci-h100-topology-kubernetes.xml");
    let all = ["--fail", "host0", "--fail", "host1"];
    for words in [
        &["plan", &file, "allreduce", "1M"][..],
        &["explain", &file, "allreduce", "1M"],
        &["simulate", "allreduce", "1M", "--topo", &file],
        &["draw", &file, "--what", "timeline", "-o", "-"],
    ] {
        let (status, told) = fails(&[words, &all].concat());
        assert!(
            status == 1 && told.contains("without host1 no host is left"),
            "{words:?}: {told}"
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

#[test]
fn committed_pictures_are_those_that_draw_makes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("docs/pictures/README.md")).unwrap();
    let mut made = Vec::new();
    for line in readme.lines() {
        let Some(words) = line.strip_prefix("    ccl-topo ") else {
            continue;
        };
        let (words, file) = words.split_once(" -o ").unwrap();
        let words: Vec<&str> = words.split(' ').chain(["-o", "-"]).collect();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ccl-topo"));
        let output = command.args(&words).current_dir(root).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        let kept = std::fs::read(root.join(file)).unwrap();
        assert!(
            kept == output.stdout,
            "{file} is not what this makes any more: {line}"
        );
        made.push(file.rsplit('/').next().unwrap().to_owned());
    }
    let there = std::fs::read_dir(root.join("docs/pictures")).unwrap();
    let mut there: Vec<String> = there
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".svg"))
        .collect();
    there.sort();
    made.sort();
    assert_eq!(made, there, "pictures and the commands that make them");
}

#[test]
fn draw_writes_a_file_or_says_why_not() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.svg").display().to_string();
    let file = format!("{DATA}/own/matrix-dgx1.txt");
    assert_eq!(prints(&["draw", &file, "-o", &out]), "");
    let first = std::fs::read_to_string(&out).unwrap();
    assert!(
        first.starts_with("<svg ") && first.contains("matrix-dgx1.txt: graph</title>"),
        "{first}"
    );
    assert_eq!(prints(&["draw", &file, "-o", "-"]), first);
    let timeline = prints(&["draw", &file, "--what", "timeline", "--hosts", "1", "-o", "-"]);
    assert!(
        timeline.contains("allreduce of 1048576 bytes among 8 ranks on 1 host by "),
        "{timeline}"
    );
    let slurm = format!("{DATA}/own/slurm-tree.conf");
    let chain = [
        "draw",
        &file,
        "--what",
        "timeline",
        "--algorithm",
        "chain",
        "-o",
        "-",
    ];
    for (code, words, wanted) in [
        (
            1,
            &["draw", &file, "-o", "/nowhere/at.svg"][..],
            "/nowhere/at.svg: No such file",
        ),
        (
            2,
            &["draw", &file, "--op", "allreduce", "-o", "-"],
            "--what timeline",
        ),
        (
            2,
            &["draw", &file, "--hosts", "2", "-o", "-"],
            "--what rings, trees or timeline",
        ),
        (
            2,
            &["draw", &file, "--what", "rings", "--fail", "host0", "-o", "-"],
            "--fail is a timeline's: --what timeline",
        ),
        (
            2,
            &["draw", &file, "--ranks-per-host", "3", "-o", "-"],
            "--ranks-per-host is a timeline's",
        ),
        (2, &chain, "chain does not do allreduce"),
        (1, &["draw", &slurm, "--what", "rings", "-o", "-"], "ring"),
        (
            1,
            &[
                "draw", &file, "--what", "timeline", "--bytes", "64M", "--tile", "64", "-o", "-",
            ],
            "longer tiles (--tile)",
        ),
        (
            1,
            &["draw", &slurm, "--what", "rings", "--hosts", "2", "-o", "-"],
            "which has 149",
        ),
    ] {
        let (status, line) = fails(words);
        assert_eq!((status, line.lines().count()), (code, 1), "{words:?}: {line}");
        assert!(line.contains(wanted), "{words:?}: {line}");
    }
}

#[test]
fn verify_proves_schedules_and_files_or_tells_what_is_wrong() {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/msccl");
    let told = prints(&[
        "verify",
        "allreduce",
        "--ranks",
        "8",
        "--algorithm",
        "ring",
        "--bytes",
        "8K",
    ]);
    let row = "ring                   120         112      14      14    4.67           28672 B    1.00  rank 0 for all, 8 compared";
    assert!(told.lines().any(|line| line == row), "{told}");
    let told = prints(&["verify", "broadcast", "--ranks", "5", "--root", "3"]);
    assert!(told.contains("\nchain ") && !told.contains("FLAW"), "{told}");

    let file = format!("{data}/own/ring-allreduce-4.xml");
    let told = prints(&["verify", &file]);
    assert!(
        told.starts_with(&format!(
            "{file}: \"ring 4\", allreduce among 4 ranks, 4 chunks, Simple, in place"
        )),
        "{told}"
    );
    for wanted in ["\nproved: ", "1.500 vectors", "1.00 times what one must"] {
        assert!(told.contains(wanted), "{told}");
    }
    let strict = ccl_topo(&["verify", &file, "--slots", "1"]);
    assert_eq!(strict.status.code(), Some(1));
    assert!(text(&strict.stdout).contains(": deadlock: rank 0, thread block 0, step 1"));

    let file = format!("{data}/own/broken/wrong-chunk.xml");
    let wrong = ccl_topo(&["verify", &file]);
    assert_eq!((wrong.status.code(), text(&wrong.stderr).as_str()), (Some(1), ""));
    let wanted =
        format!("\n{file}:17: rank 1, thread block 0, step 1: reduces chunk 0 of the vector with chunk 2\n");
    let told = text(&wrong.stdout);
    assert!(told.contains(&wanted) && told.ends_with("NOT proved\n"), "{told}");

    let topology = format!("{DATA}/nccl-xml/aws-p4d-24xl-topo.xml");
    let ring = format!("{data}/own/ring-allreduce-4.xml");
    for (words, wanted) in [
        (&["allreduce"][..], "allreduce among how many ranks? --ranks N"),
        (
            &["allreduce", "--ranks", "4", "--root", "1"],
            "allreduce has no root",
        ),
        (
            &["broadcast", "--ranks", "4", "--root", "4"],
            "--root 4 is none of 4 ranks",
        ),
        (
            &["broadcast", "--ranks", "4", "--algorithm", "ring"],
            "ring cannot broadcast: one of direct",
        ),
        (
            &["nothing", "--ranks", "4"],
            "--ranks goes with a collective: nothing is none",
        ),
        (
            &[&ring, "--root", "3"],
            "ring-allreduce-4.xml: allreduce has no root",
        ),
        (
            &["gather", "--ranks", "5000"],
            "are not proved: the ranks' schedules differ",
        ),
        (&[&topology], "an element \"system\"; wanted an algo of MSCCL"),
        (&["/nowhere/at-all"], "No such file"),
    ] {
        let words: Vec<_> = ["verify"].iter().chain(words).copied().collect();
        let (status, line) = fails(&words);
        let is_read = ["an element", "No such file", "ring-allreduce", "are not proved"]
            .iter()
            .any(|of| wanted.starts_with(of));
        assert_eq!(status, if is_read { 1 } else { 2 }, "{words:?}: {line}");
        assert!(
            line.starts_with("ccl-topo: ") && line.contains(wanted),
            "{words:?}: {line}"
        );
    }
}

/// What is chosen is reckoned on the edges that the simulator runs: both say about the same.
#[test]
fn plans_take_about_what_the_simulator_says() {
    let number = |words: &[&str], place: &str| -> f64 {
        let said: serde_json::Value = serde_json::from_str(&prints(words)).unwrap();
        said.pointer(place).unwrap().as_f64().unwrap()
    };
    for file in [
        "nccl-xml/oci-h100-topology-kubernetes.xml",
        "nccl-xml/aws-p4d-24xl-topo.xml",
        "rccl-xml/topo_8p_pcie.xml",
        "own/slurm-4hosts.conf",
    ] {
        let file = format!("{DATA}/{file}");
        for algorithm in ["ring", "direct", "doubletree", "halving", "hierarchical"] {
            for (bytes, tile) in [("64K", "64K"), ("1M", "64K"), ("64M", "1M")] {
                let how = [
                    "allreduce",
                    bytes,
                    "--algorithm",
                    algorithm,
                    "--channels",
                    "1",
                    "--tile",
                    tile,
                    "--json",
                ];
                let planned = number(&[&["plan", &file][..], &how].concat(), "/time_us");
                let run = number(
                    &[&["simulate", "--topo", &file][..], &how].concat(),
                    "/results/0/now/time_us",
                );
                let times = planned / run;
                assert!(
                    (0.95..1.3).contains(&times),
                    "{file} {how:?}: {planned} and {run} us"
                );
            }
        }
    }
}

/// Some of a file's GPUs have no rank, and one has two.
#[test]
fn plans_are_for_the_ranks_that_a_file_declares() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ranks.xml").display().to_string();
    let gpu = |bus: u32, inner: &str| {
        format!(
            "<pci busid=\"0000:0{bus}:00.0\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">{inner}</pci>"
        )
    };
    let gpus = [
        gpu(1, "<gpu dev=\"0\" sm=\"80\" rank=\"1\"/>"),
        gpu(2, "<gpu dev=\"1\" sm=\"80\"/>"),
        gpu(
            3,
            "<gpu dev=\"2\" sm=\"80\" rank=\"0\"/><gpu dev=\"2\" sm=\"80\" rank=\"2\"/>",
        ),
    ];
    let host = |hash: u32| format!("<cpu numaid=\"0\" host_hash=\"0x{hash}\">{}</cpu>", gpus.concat());
    let order = "ranks in order: 0000:03:00.0 0000:01:00.0 0000:03:00.0";
    std::fs::write(&file, format!("<system version=\"1\">{}</system>", host(1))).unwrap();
    let told = prints(&["plan", &file, "allreduce", "1M", "--hosts", "1"]);
    assert!(
        told.contains("among 3 ranks, 1 hosts of 3\n") && told.contains(order),
        "{told}"
    );
    let told = prints(&[
        "plan",
        &file,
        "allreduce",
        "1M",
        "--hosts",
        "1",
        "--ranks-per-host",
        "2",
    ]);
    assert!(
        told.contains("ranks in order: 0000:01:00.0 0000:02:00.0\n"),
        "{told}"
    );
    let told = prints(&["simulate", "allreduce", "1M", "--topo", &file]);
    assert!(told.contains("among 6 ranks, 2 hosts of 3\n"), "{told}");
}

#[test]
fn plans_say_what_is_taken_for_links_of_unknown_speed() {
    let file = format!("{DATA}/own/slurm-4hosts.conf");
    let told = prints(&["plan", &file, "allreduce", "1M"]);
    assert!(
        told.ends_with("\n6 links of unknown speed are taken as 50 GB/s each (--link-bandwidth)\n"),
        "{told}"
    );
    let told = prints(&["plan", &file, "allreduce", "1M", "--link-bandwidth", "12.5"]);
    assert!(told.contains("are taken as 12.5 GB/s each"), "{told}");
    let file = format!("{DATA}/nccl-xml/aws-p4d-24xl-topo.xml");
    assert!(!prints(&["plan", &file, "allreduce", "1M"]).contains("unknown"));
}

/// Where every rank might talk to every other a thousand ranks have a million pairs: those are not written down.
#[test]
fn a_thousand_ranks_are_planned_in_seconds() {
    let file = format!("{DATA}/nccl-xml/oci-h100-topology-kubernetes.xml");
    let told = prints(&["plan", &file, "allreduce", "1M", "--hosts", "128"]);
    assert!(
        told.contains("among 1024 ranks, 128 hosts of 8\nhierarchical: "),
        "{told}"
    );
    let crowded = ["--hosts", "1", "--ranks-per-host", "200"];
    let told = prints(&[&["explain", &file, "allreduce", "1M"][..], &crowded].concat());
    for wanted in [
        "direct         200 channels  left out: every rank sends to every other",
        "oneshot          1 channels  left out: it takes no less than ",
    ] {
        assert!(told.contains(wanted), "{told}");
    }
}

#[test]
fn explain_names_what_limits_a_call_and_where_that_is_written() {
    for (file, limit, line) in [
        (
            "nccl-xml/oci-h100-topology-kubernetes.xml",
            "host0/0000:0f:00.0->0000:0d:00.0 (48.0 GB/s",
            Some(5),
        ),
        (
            "nccl-xml/aws-p4d-24xl-topo.xml",
            "host0/NUMA 0->NUMA 1 (10.0 GB/s",
            None,
        ),
        (
            "rccl-xml/topo_8p_pcie.xml",
            "host0/0000:1b:00.0->0000:18:00.0 (12.0 GB/s",
            Some(8),
        ),
        ("own/slurm-4hosts.conf", "node1->leaf1 (50.0 GB/s", Some(3)),
    ] {
        let file = format!("{DATA}/{file}");
        let said = prints(&["explain", &file, "allreduce", "64M"]);
        let bottleneck = said.lines().find(|line| line.starts_with("bottleneck")).unwrap();
        let place = line.map_or("from assumed".to_owned(), |line| format!("from {file}:{line}"));
        assert!(
            bottleneck.contains(limit) && bottleneck.ends_with(&place),
            "{said}"
        );
        assert_eq!(prints(&["explain", &file, "allreduce", "64M"]), said);
        assert!(said.contains("\nring: "), "{said}");
        // Few bytes are another matter.
        let short = prints(&["plan", &file, "allreduce", "64"]);
        assert!(!short.contains("\nring: "), "{short}");
        for command in ["plan", "explain"] {
            let json = prints(&[command, &file, "allgather", "1M", "--json"]);
            serde_json::from_str::<serde_json::Value>(&json).unwrap();
        }
    }
    let bruck = [
        "plan",
        "/nowhere/at-all",
        "allreduce",
        "1M",
        "--algorithm",
        "bruck",
    ];
    let (status, said) = fails(&bruck);
    assert!(
        status == 2 && said.contains("bruck does not do allreduce"),
        "{said}"
    );
    let apart = format!("{DATA}/nccl-xml/azure-ncv4-graph.xml");
    let (status, said) = fails(&["plan", &apart, "allreduce", "1M"]);
    assert!(
        status == 1 && said.contains("no way leads from rank 0 to rank 1"),
        "{said}"
    );
}

#[test]
fn files_that_are_not_what_they_seem_are_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    // Two GPUs without a bus id, and a port whose speed is no number.
    let cut = file(
        "cut.xml",
        r#"<system version="1"><cpu numaid="0" arch="x86_64"><gpu dev="0"/><gpu dev="1"/>
        <pci busid="0000:03:00.0" class="0x020700" link_speed="16 GT/s" link_width="16">
        <nic><net name="mlx5_0" dev="0" speed="200 Gb/s" port="1" guid="0x1234567"/></nic></pci></cpu></system>"#,
    );
    let told = text(&ccl_topo(&["plan", &cut, "allreduce", "64M"]).stderr);
    assert!(
        told.ends_with("cut.xml: something was repaired or left out, ccl-topo show tells what\n"),
        "{told}"
    );
    // Broken off in its third line.
    let broken = file("broken.xml", "<system version=\"1\">\n<cpu numaid=\"0\">\n<pci ");
    assert!(
        fails(&["show", &broken])
            .1
            .contains("broken.xml:3:6: unexpected end")
    );
    // Hosts of two devices and of one.
    let gpu = |id: u32, host: u32| format!(r#"{{"id":{id},"kind":"gpu","name":"g{id}","in":{host}}}"#);
    let host = |id: u32| format!(r#"{{"id":{id},"kind":"host","name":"h{id}"}}"#);
    let nodes = [host(0), host(1), gpu(2, 0), gpu(3, 0), gpu(4, 1)].join(",");
    let edge = r#"{"from":2,"to":3,"both":true,"kind":"nvlink","bytes_per_second":20000000000}"#;
    let json = format!(r#"{{"about":{{}},"ccl-topology":1,"edges":[{edge}],"groups":[],"nodes":[{nodes}]}}"#);
    let unequal = file("unequal.json", &json);
    assert!(prints(&["show", &unequal]).contains("json, this library's own"));
    let (_, told) = fails(&["plan", &unequal, "allreduce", "64M"]);
    assert!(told.contains("1 to 2 devices: --ranks-per-host"), "{told}");
    assert!(prints(&["plan", &unequal, "allreduce", "64M", "--hosts", "1"]).contains("2 ranks"));
    // Nothing is sent.
    let aws = format!("{DATA}/nccl-xml/aws-p4d-24xl-topo.xml");
    let alone = [
        "explain",
        &aws,
        "allreduce",
        "1M",
        "--hosts",
        "1",
        "--ranks-per-host",
        "1",
    ];
    assert!(!prints(&alone).contains("NaN"));
}
