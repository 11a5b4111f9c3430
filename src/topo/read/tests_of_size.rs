//! Files that are long in one way or another: read, or refused with a position, in time and memory like their length's.

use super::*;
use crate::topo::{diff::diff, graph::NodeKind, show};

fn of(text: &str) -> (Graph, Vec<String>) {
    let (reading, _) = read(text, "t").unwrap_or_else(|flaw| panic!("{flaw}"));
    let repairs = reading.repairs.iter().map(Repair::to_string).collect();
    (reading.graph, repairs)
}

fn flaw(text: &str) -> String {
    read(text, "t").unwrap_err().to_string()
}

#[test]
fn names_are_bounded_and_so_is_what_is_told_of_them() {
    let long = "x".repeat(1025);
    let refused = "a name of 1025 bytes; wanted 1024 at most";
    assert_eq!(
        flaw(&format!("SwitchName={long} Nodes=a")),
        format!("t:1:12: {refused}")
    );
    assert!(flaw(&format!("switches:\n  s:\n    switches: [{long}]\n")).ends_with(refused));
    assert!(flaw(&format!("blocks:\n- nodes: [a]\n  switch: {long}\n")).ends_with(refused));

    let name = "x".repeat(1024);
    let (graph, told) = of(&format!("SwitchName={name} Nodes=n[1-5000],n[1-5000]\n"));
    assert_eq!(graph.of_kind(NodeKind::Host).count(), 5000);
    assert_eq!(told.len(), 1001);
    assert!(told[0].chars().count() < 420, "{}", told[0]);
    assert_eq!(told[1000], "and 4000 more");
    assert!(show::tree(&graph).lines().all(|line| line.len() < 2500));
}

#[test]
fn a_line_may_be_as_long_as_its_file() {
    let pci = r#"<pci busid="0000:00:00.0" class="0x030200"/>"#;
    let (graph, told) = of(&format!(
        r#"<system version="1"><cpu numaid="0">{}</cpu></system>"#,
        pci.repeat(100_000)
    ));
    assert_eq!(graph.of_kind(NodeKind::Gpu).count(), 100_000);
    assert_eq!(told.len(), 1001);
    let gpu = |dev: usize| format!(r#"<gpu dev="{dev}"/>"#);
    let gpus: String = (0..50_000).map(gpu).collect();
    let (graph, _) = of(&format!(
        r#"<system version="1"><cpu numaid="0"><pci busid="0000:00:00.0" class="0x030200">{gpus}</pci></cpu></system>"#
    ));
    assert_eq!(graph.of_kind(NodeKind::Gpu).count(), 50_000);
    let devices: Vec<String> = (0..50_000)
        .map(|id| format!(r#"{{"device_id":"{id}","rank_id":"{id}"}}"#))
        .collect();
    let (graph, _) = of(&format!(
        r#"{{"server_list":[{{"server_id":"a","device":[{}]}}]}}"#,
        devices.join(",")
    ));
    assert_eq!(graph.of_kind(NodeKind::Npu).count(), 50_000);
    assert!(diff(&graph, &graph).is_empty());
}

#[test]
fn tags_are_counted_as_the_parser_does() {
    let deep = "<a>".repeat(300);
    let begin = r#"<system version="1">"#;
    let too_deep = "more than 256 elements inside one another; wanted a file of a machine, which has fewer";
    assert_eq!(flaw(&format!("{begin}{deep}")), format!("t:1:786: {too_deep}"));
    for hidden in [
        r#"<!-- <x " -->"#,
        "<?x ' ?>",
        "<![CDATA[ <x \" ]]>",
        r#"<a b="/>"/>"#,
    ] {
        assert!(
            flaw(&format!("{begin}{hidden}{deep}")).ends_with(too_deep),
            "{hidden}"
        );
    }
    // Not self-closing, whatever its attribute says.
    assert!(flaw(&format!("{begin}{}", r#"<a b="/" >"#.repeat(300))).ends_with(too_deep));
    assert!(flaw(&format!("{begin}{}", r#"<a b="x/>y">"#.repeat(300))).ends_with(too_deep));
    let flat = format!(
        "{begin}<cpu numaid=\"0\"/>{}</system>",
        r#"<a b="x>y"/>"#.repeat(1000)
    );
    assert_eq!(of(&flat).1.len(), 1000);
    // Where no tag ends, none is searched to the end again and again.
    assert!(flaw(&format!("{begin}{}", "<a ".repeat(1_000_000))).starts_with("t:1:"));
    assert!(flaw(&format!("{begin}{}", "<!-- ".repeat(1_000_000))).starts_with("t:1:"));
}

#[test]
fn escapes_are_short() {
    let head = "\tGPU0\tGPU1\n";
    let matrix = |escape: &str| format!("{escape}{head}GPU0\t X \tSYS\nGPU1\tSYS\t X \n");
    for escape in ["\x1b[4m", "\x1b[0;1m", "\x1b[?25h"] {
        assert_eq!(of(&matrix(escape)).0.of_kind(NodeKind::Gpu).count(), 2);
    }
    flaw(&matrix(&format!("\x1b[{}m", "1".repeat(40))));
    flaw(&matrix(&"\x1b[".repeat(1_000_000)));
}

#[test]
fn lines_of_slurm_go_on_and_values_may_be_quoted() {
    let (graph, told) =
        of("SwitchName = s0 \\\n  Nodes=\"n[1-2]\" \\\n LinkSpeed = 100\nSwitchName=s1 Nodes =n3\n");
    assert_eq!(told, [""; 0]);
    assert_eq!(
        (
            graph.of_kind(NodeKind::Leaf).count(),
            graph.of_kind(NodeKind::Host).count()
        ),
        (2, 3)
    );
    assert_eq!(
        flaw("SwitchName=s Nodes=\"n1\n"),
        "t:1:20: a \" that is not closed; wanted Name=\"value\""
    );
    assert_eq!(
        flaw("SwitchName=s\\\nNodes\n"),
        "t:2:1: \"Nodes\"; wanted Name=value"
    );
}

#[test]
fn a_server_is_in_one_super_pod() {
    let server =
        |id: &str| format!(r#"{{"server_id":"{id}","device":[{{"device_id":"0"}},{{"device_id":"1"}}]}}"#);
    let pod = |id: usize, servers: &str| format!(r#"{{"super_pod_id":"{id}","server_list":[{servers}]}}"#);
    let a = r#"{"server_id":"a"}"#;
    let (graph, told) = of(&format!(
        r#"{{"server_list":[{}],"super_pod_list":[{},{}]}}"#,
        server("a"),
        pod(0, &[a; 3].join(",")),
        pod(1, a)
    ));
    let hccs = graph
        .edges()
        .filter(|edge| edge.link.kind == crate::topo::graph::LinkKind::Hccs);
    assert_eq!(hccs.count(), 4);
    assert_eq!(told.len(), 3);
    assert!(
        told.iter()
            .all(|told| told.ends_with("a server that is in super pod 0 already: left out")),
        "{told:?}"
    );
}

#[test]
fn columns_are_characters_wherever_they_are() {
    let text = format!("{}\n{}b", "é".repeat(1000), "aé€".repeat(1000));
    let lines = Lines::new(&text);
    for (at, _) in text.char_indices().chain([(text.len(), ' ')]) {
        let before = &text[..at];
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        let wanted = (
            before.matches('\n').count() + 1,
            before[start..].chars().count() + 1,
        );
        let found = lines.position(at);
        assert_eq!((found.line as usize, found.column as usize), wanted);
    }
}
