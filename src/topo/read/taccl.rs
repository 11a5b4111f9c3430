//! TACCL's profiles: how long links of a host's classes take, and those between hosts.

use super::{
    Flaw, Format, Reading,
    document::{self, Data},
    page::Page,
};
use crate::topo::graph::{Link, LinkKind, NodeKind, Origin};

pub(super) const FORMAT: Format = Format {
    name: "taccl",
    about: "TACCL's profile of a host's links",
    sniff: |text| document::is_json_with(text, &["gpus_per_node"]),
    read,
};

/// GPUs of a host, at most.
const DEVICES: f64 = 1024.0;

fn read(text: &str, source: &str) -> Result<Reading, Flaw> {
    let mut page = Page::new(text, source);
    let root = document::json(&page)?;
    let count = |key: &str| match root.get(key) {
        None => Ok(0_u32),
        Some(value) => {
            let number = root
                .number(key)
                .filter(|n| n.fract() == 0.0 && (0.0..=DEVICES).contains(n));
            number
                .map(|number| number as u32)
                .ok_or_else(|| page.flaw(value.at, format!("{key} here"), "0 to 1024"))
        }
    };
    let (gpus, nics) = (count("gpus_per_node")?, count("nics_per_node")?);
    if gpus == 0 {
        return Err(page.flaw(root.at, "no GPUs", "gpus_per_node of 1 to 1024"));
    }
    let origin = page.origin(root.at);
    let name = root.word("name").unwrap_or("host");
    let host = page.graph.add_node(NodeKind::Host, name, None, origin);
    // Of which class each pair of GPUs is, the profile does not say: one node stands for all their links.
    let links = page
        .graph
        .add_node(NodeKind::Opaque, "links", Some(host), Origin::ASSUMED);
    for (prefix, kind, count) in [("GPU", NodeKind::Gpu, gpus), ("NIC", NodeKind::Nic, nics)] {
        for number in 0..count {
            let node = page
                .graph
                .add_node(kind, &format!("{prefix} {number}"), Some(host), origin);
            page.graph.join(node, links, Link::new(LinkKind::Opaque, origin));
        }
    }
    for (key, value) in root.entries() {
        let words = match &value.data {
            Data::Word(word) => word.clone(),
            Data::List(list) => {
                let words = list.iter().filter_map(|value| value.as_word());
                words.collect::<Vec<_>>().join(" ")
            }
            Data::Map(_) => {
                page.tell(value.at, format!("\"{key}\" is unknown: left out"));
                continue;
            }
        };
        page.graph.set(host, key, &words);
    }
    page.tell(
        root.at,
        "which links are of which class is not in a profile: times are kept as words of the host",
    );
    Ok(page.done())
}
