//! What NCCL found on a system (`NCCL_GRAPH_DUMP_FILE`, `NCCL_GRAPH_FILE`): for each pattern the order in which channels visit
//! the GPUs. It has no links: the graph has the devices, and the orders as words about the whole.

use super::{Flaw, Format, Lines, Reading, repairs::Repairs, xml};
use crate::topo::{
    graph::{Graph, NodeId, NodeKind, Origin},
    words::short_and_unlike,
};
use roxmltree::Node;
use std::collections::HashMap;

pub(super) const FORMAT: Format = Format {
    name: "nccl-graph",
    about: "the orders in which NCCL's channels visit GPUs; no machine",
    sniff: |text| xml::begins(text, &["graphs"]),
    read,
};

fn read(text: &str, source: &str) -> Result<Reading, Flaw> {
    let lines = Lines::new(text);
    let document = xml::parse(text, source, &lines)?;
    let mut graph = Graph::new();
    let file = graph.source(source);
    let mut repairs = Repairs::default();
    let mut tell = |element: Node, what: String| {
        repairs.tell(lines.position(element.range().start), what);
    };
    let mut known: HashMap<String, NodeId> = HashMap::new();
    let elements = |node: Node<'_, '_>| {
        node.children()
            .filter(Node::is_element)
            .map(|child| child.id())
            .collect::<Vec<_>>()
    };
    for search in elements(document.root_element())
        .into_iter()
        .filter_map(|id| document.get_node(id))
    {
        if !search.has_tag_name("graph") {
            tell(
                search,
                format!("<{}> in <graphs> is unknown: left out", search.tag_name().name()),
            );
            continue;
        }
        // Each of its channels has it in its key.
        let id = short_and_unlike(search.attribute("id").unwrap_or(""));
        let pattern = search
            .attribute("pattern")
            .map(pattern)
            .unwrap_or("of no pattern");
        let about = search
            .attributes()
            .map(|word| format!("{}={}", word.name(), word.value()));
        let about = about.collect::<Vec<_>>().join(" ");
        graph.set_whole(&format!("graph {id}"), &format!("{pattern}; {about}"));
        let channels = elements(search)
            .into_iter()
            .filter_map(|id| document.get_node(id));
        for (place, channel) in channels.enumerate() {
            if !channel.has_tag_name("channel") {
                tell(
                    channel,
                    format!("<{}> in <graph> is unknown: left out", channel.tag_name().name()),
                );
                continue;
            }
            let mut order = Vec::new();
            for stop in channel.children().filter(Node::is_element) {
                let kind = match stop.tag_name().name() {
                    "gpu" => NodeKind::Gpu,
                    "net" => NodeKind::NicPort,
                    name => {
                        tell(stop, format!("<{name}> in <channel> is unknown: left out"));
                        continue;
                    }
                };
                let dev = stop.attribute("dev").unwrap_or("");
                let name = format!("{} {dev}", stop.tag_name().name());
                let line = lines.line(stop.range().start);
                known.entry(name.clone()).or_insert_with(|| {
                    let node = graph.add_node(kind, &name, None, Origin::line(file, line));
                    graph.set(node, "dev", dev);
                    node
                });
                order.push(name);
            }
            graph.set_whole(&format!("graph {id} channel {place}"), &order.join(", "));
        }
    }
    if known.is_empty() {
        return Err(Flaw {
            source_name: source.to_owned(),
            at: lines.position(document.root_element().range().start),
            what: "graphs without a GPU".to_owned(),
            wanted: "a <graph> with a <channel> of <gpu>s".to_owned(),
        });
    }
    Ok(Reading {
        graph,
        repairs: repairs.done(),
    })
}

/// NCCL's numbers of patterns (`src/include/graph.h`).
fn pattern(number: &str) -> &'static str {
    match number {
        "1" => "balanced tree",
        "2" => "split tree",
        "3" => "tree",
        "4" => "ring",
        "5" => "NVLS",
        "6" => "collnet, direct",
        _ => "of an unknown pattern",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_do_not_repeat_a_long_id() {
        let id = "i".repeat(100_000);
        let channels = "<channel><gpu dev=\"0\"/></channel>".repeat(1000);
        let graphs = ["1", "2"].map(|end| format!("<graph id=\"{id}{end}\">{channels}</graph>"));
        let text = format!("<graphs>{}</graphs>", graphs.concat());
        let graph = read(&text, "graphs").unwrap().graph;
        let keys: Vec<&str> = graph.whole().map(|(key, _)| key).collect();
        assert_eq!(keys.len(), 2 * 1001, "graphs whose ids begin alike are two");
        assert!(keys.iter().all(|key| key.len() < 300));
    }
}
