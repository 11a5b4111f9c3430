//! NVIDIA NetQ's JSON: the graph of a network, or compute nodes with their GPUs and NVLink domains.

use super::{
    Flaw, Format, Reading,
    document::{self, Data, Value},
    page::Page,
};
use crate::topo::graph::{Link, LinkKind, NodeId, NodeKind};
use std::collections::HashMap;

pub(super) const FORMAT: Format = Format {
    name: "netq",
    about: "NVIDIA NetQ's graph of a network, or its compute nodes",
    sniff: |text| document::is_json_with(text, &["compounded_nodes", "compounded_links", "GpuIDList"]),
    read,
};

const WANTED: &str = "a list of graphs with nodes and links, or of compute nodes with GpuIDList";

fn read(text: &str, source: &str) -> Result<Reading, Flaw> {
    let mut page = Page::new(text, source);
    let root = document::json(&page)?;
    let whole = std::slice::from_ref(&root);
    let parts = match &root.data {
        Data::List(list) => list,
        _ => whole,
    };
    let mut nodes: HashMap<String, NodeId> = HashMap::new();
    let mut domains: HashMap<String, NodeId> = HashMap::new();
    for part in parts {
        for tier in part.list("nodes") {
            for device in tier.list("compounded_nodes") {
                self::device(&mut page, device, tier, &mut nodes)?;
            }
        }
        if part.get("GpuIDList").is_some() {
            compute_node(&mut page, part, &mut domains)?;
        }
    }
    for link in parts.iter().flat_map(|part| part.list("links")) {
        self::link(&mut page, link, &nodes);
    }
    if page.graph.is_empty() {
        return Err(page.flaw(root.at, "neither devices nor compute nodes", WANTED));
    }
    Ok(page.done())
}

fn device(
    page: &mut Page,
    device: &Value,
    tier: &Value,
    nodes: &mut HashMap<String, NodeId>,
) -> Result<(), Flaw> {
    let Some(id) = device.word("id") else {
        return Err(page.flaw(device.at, "a device without an id", "\"id\": \"node0\""));
    };
    if nodes.contains_key(id) {
        page.tell(device.at, format!("a second device {id}: left out"));
        return Ok(());
    }
    let level = device
        .number("tier")
        .or_else(|| tier.number("tier"))
        .unwrap_or(-1.0);
    let kind = match device.word("device_type").unwrap_or("") {
        "switch" if level <= 1.0 => NodeKind::Leaf,
        "switch" if level <= 2.0 => NodeKind::Spine,
        "switch" => NodeKind::CoreSwitch,
        _ => NodeKind::Host,
    };
    let origin = page.origin(device.at);
    let name = device.word("name").unwrap_or(id);
    let node = page.graph.add_node(kind, name, None, origin);
    for (key, value) in device.entries() {
        if let Some(word) = value.as_word().filter(|_| key != "name") {
            page.graph.set(node, key, word);
        }
    }
    nodes.insert(id.to_owned(), node);
    Ok(())
}

/// A link has one part for each cable; their speed is not told.
fn link(page: &mut Page, link: &Value, nodes: &HashMap<String, NodeId>) {
    let end = |key| nodes.get(link.word(key)?).copied();
    let (Some(from), Some(to)) = (end("src"), end("target")) else {
        return page.tell(link.at, "a link of a device that is not in the file: left out");
    };
    let cables = link.list("compounded_links").len();
    if let Some(size) = link.number("size").filter(|size| *size != cables as f64) {
        page.tell(
            link.at,
            format!("size is {size}, but there are {cables} cables: taken as those"),
        );
    }
    let wires = u32::try_from(cables.max(1)).unwrap_or(u32::MAX);
    let origin = page.origin(link.at);
    page.graph.join(
        from,
        to,
        Link {
            wires,
            ..Link::new(LinkKind::Opaque, origin)
        },
    );
}

fn compute_node(page: &mut Page, node: &Value, domains: &mut HashMap<String, NodeId>) -> Result<(), Flaw> {
    let Some(name) = node.word("Name") else {
        return Err(page.flaw(node.at, "a compute node without a Name", "\"Name\": \"node1\""));
    };
    let origin = page.origin(node.at);
    let host = page.graph.add_node(NodeKind::Host, name, None, origin);
    for (key, value) in node
        .entries()
        .iter()
        .chain(node.get("LocationInfo").map_or(&[][..], Value::entries))
    {
        if let Some(word) = value.as_word().filter(|_| key != "Name") {
            page.graph.set(host, key, word);
        }
    }
    if let Some(health) = node
        .get("Health")
        .filter(|health| health.as_word() != Some("HEALTHY"))
    {
        page.tell(health.at, format!("{name} is not healthy: used all the same"));
    }
    let domain = node
        .word("DomainUUID")
        .filter(|domain| !domain.is_empty())
        .map(|domain| {
            *domains
                .entry(domain.to_owned())
                .or_insert_with(|| page.graph.add_node(NodeKind::NvSwitch, domain, None, origin))
        });
    for id in node.list("GpuIDList") {
        let Some(name) = id.as_word() else {
            return Err(page.flaw(id.at, "a GPU that is no word", "its id"));
        };
        let origin = page.origin(id.at);
        let gpu = page.graph.add_node(NodeKind::Gpu, name, Some(host), origin);
        page.graph.join(host, gpu, Link::new(LinkKind::Opaque, origin));
        if let Some(domain) = domain {
            page.graph.join(gpu, domain, Link::new(LinkKind::NvLink, origin));
        }
    }
    Ok(())
}
