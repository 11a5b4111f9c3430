use super::lanes::Lanes;
use super::machine::Drawn;
use super::page::{Label, Letters, Page, Rect, clean};
use super::{of_channels, of_graph, timeline};
use crate::plan::simulate::trace::Span;
use crate::topo::{
    graph::{Confidence, Graph, Link, LinkKind, NodeKind, Origin},
    samples,
    search::{Task, search},
};

fn overlap(one: &Rect, other: &Rect) -> bool {
    let is_apart = one.right() <= other.x + 0.01
        || other.right() <= one.x + 0.01
        || one.bottom() <= other.y + 0.01
        || other.bottom() <= one.y + 0.01;
    !is_apart
}

fn is_within(inner: &Rect, outer: &Rect) -> bool {
    inner.x >= outer.x - 0.01
        && inner.y >= outer.y - 0.01
        && inner.right() <= outer.right() + 0.01
        && inner.bottom() <= outer.bottom() + 0.01
}

/// Labels stay in their boxes and on the page, and do not meet.
fn check_labels(page: &Page, name: &str) {
    let all = Rect {
        width: page.width,
        height: page.height,
        ..Rect::default()
    };
    let mut labels: Vec<&Label> = page.labels.iter().collect();
    for label in &labels {
        assert!(is_within(&label.at, &all), "{name}: {label:?} on {all:?}");
        if let Some(within) = &label.within {
            assert!(is_within(&label.at, within), "{name}: {label:?}");
        }
    }
    labels.sort_by(|one, other| one.at.y.total_cmp(&other.at.y));
    for (place, one) in labels.iter().enumerate() {
        let near = labels[place + 1..]
            .iter()
            .take_while(|other| other.at.y < one.at.bottom());
        for other in near {
            assert!(!overlap(&one.at, &other.at), "{name}: {one:?} and {other:?}");
        }
    }
}

/// Boxes of a picture stand apart, or in what they lie in.
fn check_boxes(drawn: &Drawn, name: &str) {
    let (view, layout) = (&drawn.view, &drawn.layout);
    let mut boxes: Vec<usize> = (0..view.boxes.len()).collect();
    boxes.sort_by(|one, other| layout.at[*one].y.total_cmp(&layout.at[*other].y));
    for (place, &one) in boxes.iter().enumerate() {
        let (at, root) = (&layout.at[one], view.root(one));
        assert!(
            is_within(at, &layout.at[root]) || !view.is_frame(root),
            "{name}: box {one}"
        );
        for &other in boxes[place + 1..]
            .iter()
            .take_while(|other| layout.at[**other].y < at.bottom())
        {
            let is_around =
                (view.is_frame(one) && view.root(other) == one) || (view.is_frame(other) && root == other);
            let is_clear = is_around || !overlap(at, &layout.at[other]);
            assert!(
                is_clear,
                "{name}: {:?} {at:?}, {:?} {:?}",
                view.boxes[one].lines, view.boxes[other].lines, layout.at[other]
            );
        }
    }
}

/// The picture as text, which must be well-formed and without anything that could be run or fetched.
fn svg(page: Page) -> String {
    let text = page.svg("about");
    let document = roxmltree::Document::parse(&text).unwrap();
    for node in document.descendants().filter(|node| node.is_element()) {
        let name = node.tag_name().name();
        let is_known = ["svg", "title", "rect", "path", "text"].contains(&name);
        assert!(is_known, "{name}");
        for attribute in node.attributes() {
            assert!(!attribute.name().starts_with("on") && attribute.name() != "href");
        }
    }
    text
}

#[test]
fn all_files_can_be_drawn_and_no_labels_meet() {
    for (name, graph) in samples::mutants(&mut fastrand::Rng::with_seed(7), 1) {
        let drawn = Drawn::new(&graph, std::slice::from_ref(&name), false);
        check_boxes(&drawn, &name);
        let page = drawn.end(Vec::new());
        check_labels(&page, &name);
        let text = svg(page);
        assert!(text.len() < 2_000_000, "{name}: {} bytes", text.len());
        assert_eq!(svg(of_graph(&graph, &name)), text, "{name}");
    }
}

#[test]
fn rings_and_trees_can_be_drawn_where_there_are_any() {
    let mut drawn = 0;
    for (name, graph) in samples::mutants(&mut fastrand::Rng::with_seed(8), 1) {
        for hosts in [1, 2] {
            let task = Task {
                steps: 200, // Long searches find no other kinds of things.
                ..Task::of(&graph, hosts)
            };
            if task.endpoints.len() > 16 {
                continue;
            }
            let found = search(&graph, &task);
            for lanes in [Lanes::rings(&graph, &found), Lanes::trees(&graph, &found)] {
                let mut picture = Drawn::new(&graph, &[lanes.about(&task)], true);
                if lanes.draw(&mut picture).is_ok() {
                    let page = picture.end(Vec::new());
                    check_labels(&page, &name);
                    let text = svg(page);
                    assert!(text.contains("GB/s together"), "{name}");
                    drawn += 1;
                }
            }
        }
    }
    assert!(drawn > 150, "only {drawn} pictures");
}

#[test]
fn files_words_are_escaped_and_cut() {
    let mut graph = Graph::new();
    let host = graph.add_node(
        NodeKind::Host,
        "<script>&\"'\u{0}\u{202e}]]>",
        None,
        Origin::ASSUMED,
    );
    let gpu = graph.add_node(
        NodeKind::Gpu,
        &"界ﷺ\u{301}".repeat(5000),
        Some(host),
        Origin::ASSUMED,
    );
    let nic = graph.add_node(NodeKind::Nic, "<b onload=x>", Some(host), Origin::ASSUMED);
    graph.set(gpu, "key\u{7}<", "--><!DOCTYPE\u{fffe}");
    graph.join(gpu, nic, Link::new(LinkKind::Pcie, Origin::ASSUMED));
    let page = of_graph(&graph, &clean("a<b>\u{1b}[31m.xml"));
    check_labels(&page, "words");
    let text = svg(page);
    assert!(!text.contains("<script") && !text.contains("<b ") && !text.contains('\u{202e}'));
    assert!(
        text.contains("&lt;script&gt;&amp;\"'\u{fffd}\u{fffd}]]&gt;"),
        "{text}"
    );
    assert!(text.len() < 60_000, "{}", text.len());
}

#[test]
fn equal_subtrees_become_one_box() {
    let picture = |name: &str| Drawn::new(&samples::graph(name), &[], false);
    let texts = |drawn: &Drawn| -> Vec<String> {
        let boxes = drawn.view.boxes.iter();
        boxes.map(|shown| shown.lines.join(" ")).collect()
    };
    let slurm = texts(&picture("own/slurm-tree.conf"));
    assert_eq!(slurm.len(), 1 + 2 + 6 + 6, "{slurm:?}");
    assert!(slurm.contains(&"n0065 × 28".to_owned()), "{slurm:?}");
    let four = texts(&picture("own/slurm-4hosts.conf"));
    assert_eq!(four.len(), 1 + 2 + 4, "all of a small one: {four:?}");

    // A fat tree of 12,000 hosts with two GPUs and an adapter each.
    let mut graph = Graph::new();
    let link = |kind| Link::new(kind, Origin::ASSUMED).speed(50_000_000_000, Confidence::Declared);
    let node = |graph: &mut Graph, kind, name: String| graph.add_node(kind, &name, None, Origin::ASSUMED);
    let core = node(&mut graph, NodeKind::CoreSwitch, "core".to_owned());
    for leaf in 0..600 {
        let switch = node(&mut graph, NodeKind::Leaf, format!("leaf{leaf}"));
        graph.join(core, switch, link(LinkKind::Ib));
        for host in 0..20 {
            let host = node(&mut graph, NodeKind::Host, format!("host{leaf}-{host}"));
            let nic = graph.add_node(NodeKind::Nic, "nic", Some(host), Origin::ASSUMED);
            graph.join(nic, switch, link(LinkKind::Ib));
            for gpu in ["a", "b"] {
                let gpu = graph.add_node(NodeKind::Gpu, gpu, Some(host), Origin::ASSUMED);
                graph.join(nic, gpu, link(LinkKind::Pcie));
            }
        }
    }
    let drawn = Drawn::new(&graph, &[], false);
    let texts = texts(&drawn);
    assert_eq!(texts.len(), 1 + 1 + 1 + 3, "{texts:?}");
    assert!(texts.contains(&"host0-0 × 12000".to_owned()), "{texts:?}");
    check_labels(&drawn.end(Vec::new()), "12,000 hosts");
}

#[test]
fn a_row_of_nvswitches_stays_in_its_machine() {
    let mut graph = Graph::new();
    let host = graph.add_node(NodeKind::Host, "host", None, Origin::ASSUMED);
    let mut inside = |kind, name: &str| graph.add_node(kind, name, Some(host), Origin::ASSUMED);
    let gpus: Vec<_> = (0..8)
        .map(|at| inside(NodeKind::Gpu, &format!("0000:{at}0:00.0")))
        .collect();
    let long = "n".repeat(40);
    let names = ["a", "b", "c", "d", "e", &long, &long, &long];
    let switches = names.map(|name| inside(NodeKind::NvSwitch, name));
    for gpu in gpus {
        for switch in switches {
            graph.join(gpu, switch, Link::new(LinkKind::NvLink, Origin::ASSUMED));
        }
    }
    let drawn = Drawn::new(&graph, &[], false);
    check_boxes(&drawn, "long names");
    let widths: Vec<f64> = (0..drawn.view.boxes.len())
        .filter(|at| drawn.view.is_apart(*at))
        .map(|at| drawn.layout.at[at].width)
        .collect();
    assert_eq!(widths.len(), 8);
    assert!(widths[0] == widths[4] && widths[4] < widths[5], "{widths:?}");
    check_labels(&drawn.end(Vec::new()), "long names");
}

#[test]
fn only_ports_that_can_be_used_are_told() {
    let told = |reachable: [bool; 2]| {
        let mut graph = Graph::new();
        let host = graph.add_node(NodeKind::Host, "host", None, Origin::ASSUMED);
        let nic = graph.add_node(NodeKind::Nic, "nic", Some(host), Origin::ASSUMED);
        for (name, reachable) in ["up", "down"].into_iter().zip(reachable) {
            let port = graph.add_node(NodeKind::NicPort, name, Some(nic), Origin::ASSUMED);
            let link = Link::new(LinkKind::Ib, Origin::ASSUMED).speed(25_000_000_000, Confidence::Declared);
            graph.join(nic, port, Link { reachable, ..link });
        }
        let drawn = Drawn::new(&graph, &[], false);
        let shown = drawn.view.boxes.iter().find(|shown| shown.node == nic).unwrap();
        shown.lines.last().cloned().unwrap()
    };
    assert_eq!(told([true, true]), "2 × 25 GB/s");
    assert_eq!(told([true, false]), "25 GB/s");
    assert_eq!(told([false, false]), "2 × port");
}

#[test]
fn what_is_too_much_is_left_out_and_told() {
    // Unlike hosts, and switches in one another.
    let mut graph = Graph::new();
    for host in 0..300 {
        let mut inner = graph.add_node(NodeKind::Host, &format!("h{host}"), None, Origin::ASSUMED);
        for _ in 0..host {
            inner = graph.add_node(NodeKind::PciSwitch, "s", Some(inner), Origin::ASSUMED);
        }
    }
    let drawn = Drawn::new(&graph, &[], false);
    check_boxes(&drawn, "deep");
    let page = drawn.end(Vec::new());
    check_labels(&page, "deep");
    let text = svg(page);
    assert!(
        text.contains("not drawn: ") && text.contains(" more hosts or switches"),
        "{text}"
    );
    assert!(text.contains(" inside"), "{text}");

    let many = samples::graph("own/slurm-tree.conf");
    let why = of_channels(&many, "many", 1, false).unwrap_err();
    assert!(why.contains("ring"), "{why}");
}

#[test]
fn timelines_have_a_bar_for_each_message_and_room_for_all() {
    let span = |rank, channel, begin, end, to: usize| Span {
        rank,
        channel,
        label: format!("to {to}"),
        begin,
        end,
    };
    let second = 1_000_000_000_000_000;
    // Two at once, then one; many too short to be seen; more at once than lines; nothing.
    let mut spans = vec![
        span(0, 0, 0, second / 2, 1),
        span(0, 1, second / 4, second, 2),
        span(0, 0, second / 2, second, 1),
    ];
    spans.extend((0..5000).map(|at| span(1, 0, at * 1000, at * 1000 + 900, 0)));
    spans.extend((0..20).map(|_| span(2, 0, 0, second, 3)));
    let call = timeline::Call {
        spans: &spans,
        ranks: 300,
        per_host: 2,
        end: second as f64,
    };
    let page = timeline::picture(&call, &["many".to_owned()]);
    check_labels(&page, "timeline");
    let text = svg(page);
    for wanted in [
        "to 1<",
        "to 2<",
        "rank 127",
        "172 more ranks",
        "to another host",
        "has all others",
        "several messages",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(text.matches("<rect").count() < 60, "{text}");

    let none = timeline::Call {
        spans: &[],
        ranks: 1,
        per_host: 1,
        end: 0.0,
    };
    check_labels(&timeline::picture(&none, &[]), "nothing");
}

#[test]
fn labels_are_cut_where_they_would_not_fit() {
    let letters = Letters::PLAIN;
    assert_eq!(letters.cut("GPU0", 100.0), "GPU0");
    assert_eq!(letters.cut("0000:0f:00.0", 50.0), "0000:0…");
    assert!(letters.width(&letters.cut(&"界".repeat(99), 50.0)) <= 50.0);
    assert_eq!(letters.cut("abc", 1.0), "…");
}
