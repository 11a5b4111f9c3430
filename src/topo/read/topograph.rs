//! topograph's models of clusters in YAML: trees of switches, and blocks of hosts that may share an NVLink fabric.

use super::{
    Flaw, Format, Reading,
    document::{self, Value, tell_unknown},
    fabric::{self, Switch},
    hostlist::{self, Left},
    page::Page,
};
use crate::topo::graph::{Link, LinkKind, NodeId, NodeKind};
use std::collections::HashMap;

pub(super) const FORMAT: Format = Format {
    name: "topograph",
    about: "topograph's model of a cluster",
    sniff: |text| document::is_yaml_with(text, &["switches", "blocks"]),
    read,
};

fn read(text: &str, source: &str) -> Result<Reading, Flaw> {
    let mut page = Page::new(text, source);
    let root = document::yaml(&page)?;
    tell_unknown(&mut page, &root, &["switches", "blocks"]);
    let mut rows = Vec::new();
    let mut left = Left::new();
    for (name, switch) in root.get("switches").map_or(&[][..], Value::entries) {
        let known = ["name", "switches", "nodes", "labels", "annotations"];
        tell_unknown(&mut page, switch, &known);
        let mut row = Switch {
            at: switch.at,
            name: fabric::name(&page, switch.at, name)?,
            below: Vec::new(),
            hosts: Vec::new(),
            words: words(switch, "labels"),
        };
        for below in switch.list("switches") {
            row.below
                .push(fabric::name(&page, below.at, word(&page, below)?)?);
        }
        row.hosts = hosts(&page, switch, &mut left)?;
        rows.push(row);
    }
    let mut places: HashMap<String, usize> = HashMap::new();
    for (place, row) in rows.iter().enumerate() {
        places.entry(row.name.clone()).or_insert(place);
    }
    let mut fabrics: Vec<(usize, String, Vec<String>)> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for (place, block) in root.list("blocks").iter().enumerate() {
        tell_unknown(&mut page, block, &["switch", "nodes", "labels", "annotations"]);
        let hosts = hosts(&page, block, &mut left)?;
        let name = match block.word("switch") {
            Some(name) => fabric::name(&page, block.at, name)?,
            None => format!("block {place}"),
        };
        // The switch may be without a line of its own: it is a leaf.
        let place = *places.entry(name.clone()).or_insert_with(|| {
            rows.push(Switch {
                at: block.at,
                name,
                below: Vec::new(),
                hosts: Vec::new(),
                words: Vec::new(),
            });
            rows.len() - 1
        });
        rows[place].hosts.extend_from_slice(&hosts);
        if let Some(domain) = domain(block) {
            let at = *known.entry(domain.clone()).or_insert_with(|| {
                fabrics.push((block.at, domain.clone(), Vec::new()));
                fabrics.len() - 1
            });
            fabrics[at].2.extend(hosts);
        }
    }
    if rows.is_empty() {
        return Err(page.flaw(
            root.at,
            "neither switches nor blocks",
            "switches: by name, blocks: a list",
        ));
    }
    let hosts = fabric::build(&mut page, rows)?;
    join_fabrics(&mut page, &fabrics, &hosts);
    Ok(page.done())
}

/// Hosts of one domain have GPUs that NVLinks join; how many, the file does not say.
fn join_fabrics(page: &mut Page, fabrics: &[(usize, String, Vec<String>)], hosts: &HashMap<String, NodeId>) {
    for (at, name, members) in fabrics {
        let origin = page.origin(*at);
        let fabric = page.graph.add_node(NodeKind::NvSwitch, name, None, origin);
        let mut members: Vec<NodeId> = members
            .iter()
            .filter_map(|member| hosts.get(member).copied())
            .collect();
        members.sort();
        members.dedup();
        for host in members {
            page.graph.join(fabric, host, Link::new(LinkKind::NvLink, origin));
        }
    }
}

/// The NVLink fabric of a block's hosts.
fn domain(block: &Value) -> Option<String> {
    let mut words = words(block, "annotations")
        .into_iter()
        .chain(words(block, "labels"));
    // The other `/level-0` is that of a switch.
    let ends = [
        "/domain",
        "/accelerator",
        "accelerated.topology.nvidia.com/level-0",
    ];
    let found = words.find(|(key, _)| ends.iter().any(|end| key.ends_with(end)));
    found.map(|(_, domain)| domain)
}

fn words(value: &Value, key: &str) -> Vec<(String, String)> {
    let entries = value.get(key).map_or(&[][..], Value::entries);
    let words = entries
        .iter()
        .filter_map(|(key, value)| Some((key.clone(), value.as_word()?.to_owned())));
    words.collect()
}

fn hosts(page: &Page, value: &Value, left: &mut Left) -> Result<Vec<String>, Flaw> {
    let mut hosts = Vec::new();
    for list in value.list("nodes") {
        let names = hostlist::expand(word(page, list)?, left);
        hosts.append(&mut names.map_err(|bad| page.flaw(list.at, bad.what, hostlist::WANTED))?);
    }
    Ok(hosts)
}

fn word<'v>(page: &Page, value: &'v Value) -> Result<&'v str, Flaw> {
    value
        .as_word()
        .ok_or_else(|| page.flaw(value.at, "a list or a map", "a name"))
}
