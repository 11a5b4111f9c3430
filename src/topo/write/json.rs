//! The library's own format: JSON with a line for each node and each edge. `read/json.rs` reads it.

use super::Written;
use crate::topo::{
    graph::{EdgeId, Graph, Origin},
    read::json::{self, EdgeRow, GroupRow, NodeRow, Place},
};
use serde::Serialize;
use std::fmt::Write;

pub(super) fn write(graph: &Graph) -> Written {
    let mut text = format!("{{\n\"{}\": {},\n", json::MARK, json::VERSION);
    let whole: serde_json::Map<_, _> = graph
        .whole()
        .map(|(key, value)| (key.to_owned(), value.into()))
        .collect();
    let _ = writeln!(text, "\"about\": {},", line(&whole)); // Writing to a string does not fail.
    let sources: Vec<&str> = graph.sources().collect();
    let _ = writeln!(text, "\"sources\": {},", line(&sources));
    rows(
        &mut text,
        "nodes",
        graph.nodes().map(|node| {
            line(&NodeRow {
                id: node.at(),
                kind: graph.kind(node),
                name: graph.name(node).into(),
                within: graph.parent(node).map(|parent| parent.at()),
                place: place(graph.origin(node)),
                attributes: graph
                    .attributes(node)
                    .map(|(key, value)| (key.into(), value.into()))
                    .collect(),
                unknown: Default::default(),
            })
        }),
    );
    text.push_str(",\n");
    rows(
        &mut text,
        "groups",
        graph.groups().map(|(id, group)| {
            line(&GroupRow {
                id: id.at(),
                name: group.name.clone().into(),
                bytes_per_second: group.bytes_per_second,
                confidence: group.confidence,
                place: place(group.origin),
                unknown: Default::default(),
            })
        }),
    );
    text.push_str(",\n");
    rows(
        &mut text,
        "edges",
        edges(graph).map(|(row, both)| {
            let edge = graph.edge(row);
            let link = edge.link;
            line(&EdgeRow {
                from: edge.from.at(),
                to: edge.to.at(),
                both,
                kind: link.kind,
                bytes_per_second: link.bytes_per_second,
                latency_ns: link.latency_ns,
                wires: link.wires,
                reachable: link.reachable,
                group: link.group.map(|group| group.at()),
                confidence: link.confidence,
                place: place(link.origin),
                unknown: Default::default(),
            })
        }),
    );
    text.push_str("\n}\n");
    Written {
        text,
        left_out: Vec::new(),
    }
}

/// The edges; one and the next that is the same the other way are told as one.
fn edges(graph: &Graph) -> impl Iterator<Item = (EdgeId, bool)> {
    let mut ids = graph.edge_ids().peekable();
    std::iter::from_fn(move || {
        let id = ids.next()?;
        let edge = graph.edge(id);
        let both = ids.next_if(|next| {
            let next = graph.edge(*next);
            (next.from, next.to, next.link) == (edge.to, edge.from, edge.link)
        });
        Some((id, both.is_some()))
    })
}

fn place(origin: Origin) -> Place {
    Place {
        source: origin.source().map(|source| source.at()),
        line: origin.line_number(),
    }
}

fn rows(text: &mut String, name: &str, rows: impl Iterator<Item = String>) {
    let _ = write!(text, "\"{name}\": [");
    for (at, row) in rows.enumerate() {
        text.push_str(if at == 0 { "\n " } else { ",\n " });
        text.push_str(&row);
    }
    text.push_str("\n]");
}

fn line(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("numbers, names and maps with names as keys")
}
