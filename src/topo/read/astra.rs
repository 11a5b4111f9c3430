//! ASTRA-sim's networks: the YAML of its analytical model, and the `.topo` of its packet simulator, a fat tree.

use super::{
    Flaw, Format, Reading,
    document::{self, Value},
    page::{self, Page},
};
use crate::topo::{
    graph::{Confidence, Link, LinkKind, NodeId, NodeKind},
    words::short,
};

pub(super) const YAML: Format = Format {
    name: "astra-yaml",
    about: "ASTRA-sim's analytical network",
    sniff: |text| document::is_yaml_with(text, &["npus_count"]),
    read: read_yaml,
};

pub(super) const TREE: Format = Format {
    name: "astra-topo",
    about: "a fat tree of ASTRA-sim's packet simulator",
    sniff: |text| {
        let has = |key: &str| {
            text.lines()
                .any(|line| line.split_whitespace().next() == Some(key))
        };
        has("Nodes") && has("Tiers")
    },
    read: read_tree,
};

pub(super) const SYSTEM: Format = Format {
    name: "astra-system",
    about: "ASTRA-sim's system, which has no topology",
    sniff: |text| document::is_json_with(text, &["all-reduce-implementation", "scheduling-policy"]),
    read: |text, source| {
        let page = Page::new(text, source);
        let root = document::json(&page)?;
        Err(page.flaw(
            root.at,
            "ASTRA-sim's system, which says how hosts work and not how they are joined",
            "its network, with topology and npus_count",
        ))
    },
};

/// NPUs of a network, at most.
const NPUS: u64 = 1 << 14;

/// Dimensions of a network, at most.
const DIMENSIONS: usize = 16;

/// Links of a network, at most.
const LINKS: u64 = 1 << 18;

/// A dimension of the analytical model.
struct Dimension<'v> {
    at: usize,
    shape: &'v str,
    size: u64,
    bytes_per_second: u64,
    latency_ns: u32,
}

fn read_yaml(text: &str, source: &str) -> Result<Reading, Flaw> {
    let mut page = Page::new(text, source);
    let root = document::yaml(&page)?;
    let dimensions = dimensions(&page, &root)?;
    let mut npus = 1_u64;
    for dimension in &dimensions {
        npus = npus.saturating_mul(dimension.size);
        if npus > NPUS {
            return Err(page.flaw(dimension.at, format!("more than {NPUS} NPUs"), "fewer"));
        }
    }
    let mut links = 0_u64;
    for dimension in &dimensions {
        let each = if dimension.shape == "FullyConnected" {
            dimension.size
        } else {
            2
        };
        links = links.saturating_add(npus.saturating_mul(each));
        if links > LINKS {
            return Err(page.flaw(dimension.at, format!("more than {LINKS} links"), "fewer"));
        }
    }
    let origin = page.origin(root.at);
    let nodes: Vec<NodeId> = (0..npus)
        .map(|npu| {
            page.graph
                .add_node(NodeKind::Npu, &format!("NPU {npu}"), None, origin)
        })
        .collect();
    let mut stride = 1;
    for (place, dimension) in dimensions.iter().enumerate() {
        let size = dimension.size as usize;
        for first in (0..nodes.len()).filter(|npu| npu / stride % size == 0) {
            let members: Vec<NodeId> = (0..size).map(|at| nodes[first + at * stride]).collect();
            join(&mut page, dimension, place, &members);
        }
        stride *= size;
    }
    Ok(page.done())
}

fn join(page: &mut Page, dimension: &Dimension, place: usize, members: &[NodeId]) {
    let mut link = Link::new(LinkKind::Opaque, page.origin(dimension.at))
        .speed(dimension.bytes_per_second, Confidence::Declared);
    link.latency_ns = Some(dimension.latency_ns);
    let size = members.len();
    match dimension.shape {
        "Ring" if size > 1 => {
            // Two NPUs have one link, not two.
            let last = if size == 2 { 1 } else { size };
            for at in 0..last {
                page.graph.join(members[at], members[(at + 1) % size], link);
            }
        }
        "FullyConnected" => {
            for (at, one) in members.iter().enumerate() {
                for other in &members[at + 1..] {
                    page.graph.join(*one, *other, link);
                }
            }
        }
        "Switch" => {
            let name = format!("switch of dimension {place}");
            let switch = page.graph.add_node(NodeKind::Leaf, &name, None, link.origin);
            for member in members {
                page.graph.join(*member, switch, link);
            }
        }
        _ => {}
    }
}

fn dimensions<'v>(page: &Page, root: &'v Value) -> Result<Vec<Dimension<'v>>, Flaw> {
    let shapes = root.list("topology");
    if shapes.len() > DIMENSIONS {
        let what = format!("{} dimensions", shapes.len());
        return Err(page.flaw(root.at, what, "16 at most"));
    }
    let mut dimensions = Vec::new();
    for (place, shape) in shapes.iter().enumerate() {
        let number = |key: &str, (least, most): (f64, f64), wanted: &str| {
            let value = root.list(key).get(place);
            let word = value.and_then(|value| value.as_word());
            let number = word.and_then(|word| word.trim().parse::<f64>().ok());
            let number = number.filter(|number| (least..=most).contains(number));
            let at = value.or(root.get(key)).map_or(shape.at, |value| value.at);
            number.ok_or_else(|| {
                let what = match (word, root.get(key)) {
                    (Some(word), _) => format!("{key} \"{}\" of dimension {place}", short(word)),
                    (None, Some(_)) => format!("no {key} of dimension {place}"),
                    (None, None) => format!("no {key}"),
                };
                page.flaw(at, what, wanted)
            })
        };
        let name = shape.as_word().unwrap_or("");
        if !["Ring", "FullyConnected", "Switch"].contains(&name) {
            return Err(page.flaw(
                shape.at,
                format!("topology \"{name}\""),
                "Ring, FullyConnected or Switch",
            ));
        }
        dimensions.push(Dimension {
            at: shape.at,
            shape: name,
            size: number("npus_count", (1.0, 1e9), "NPUs of each dimension, at least 1")? as u64,
            bytes_per_second: (number("bandwidth", (1e-9, 1e9), "GB/s of each dimension, above 0")? * 1e9)
                as u64,
            latency_ns: number("latency", (0.0, 4e9), "ns of each dimension, at least 0")? as u32,
        });
    }
    match dimensions.is_empty() {
        true => Err(page.flaw(
            root.at,
            "no dimension",
            "topology: [ Ring ] and npus_count: [ 8 ]",
        )),
        false => Ok(dimensions),
    }
}

/// What the speed of a tier should be.
const GIGABITS: &str = "Gb/s of a link down, above 0";

/// What a tier of a fat tree says.
#[derive(Default)]
struct Tier {
    at: usize,
    gigabits: u64,
    down: u64,
    up: u64,
    latency_ns: u64,
    bundle: u64,
}

fn read_tree(text: &str, source: &str) -> Result<Reading, Flaw> {
    let mut page = Page::new(text, source);
    let (mut nodes, mut wanted, mut pod) = ((0, 0), 0, 0);
    let mut tiers: Vec<Tier> = Vec::new();
    for (start, line) in page::lines(text) {
        let mut words = page::words(start, line.split('#').next().unwrap_or(""));
        let Some((at, key)) = words.next() else {
            continue;
        };
        let value = words.next().and_then(|(_, word)| word.parse::<u64>().ok());
        let value =
            value.ok_or_else(|| page.flaw(at, format!("{key} without a number"), "a number behind it"))?;
        let place = tiers.len() as u64;
        match (key, tiers.last_mut()) {
            ("Nodes", None) => nodes = (value, at),
            ("Tiers", None) => wanted = value,
            ("Podsize", None) => pod = value,
            ("Tier", _) if value == place => tiers.push(Tier {
                at,
                bundle: 1,
                ..Tier::default()
            }),
            ("Tier", _) => return Err(page.flaw(at, format!("Tier {value}"), "tiers in their order")),
            ("Downlink_speed_Gbps", Some(_)) if value == 0 => {
                return Err(page.flaw(at, "Downlink_speed_Gbps 0", GIGABITS));
            }
            ("Downlink_speed_Gbps", Some(tier)) => tier.gigabits = value,
            ("Radix_Down", Some(tier)) => tier.down = value,
            ("Radix_Up", Some(tier)) => tier.up = value,
            ("Downlink_Latency_ns", Some(tier)) => tier.latency_ns = value,
            ("Bundle", Some(tier)) => tier.bundle = value,
            _ => page.tell(at, format!("{key} is unknown here: left out")),
        }
    }
    if nodes.0 == 0 || nodes.0 > NPUS {
        return Err(page.flaw(nodes.1, format!("Nodes {}", nodes.0), "1 to 16384"));
    }
    if tiers.is_empty() || tiers.len() as u64 != wanted || tiers.len() > 3 {
        let what = format!("{} tiers where Tiers is {wanted}", tiers.len());
        return Err(page.flaw(text.trim_end().len(), what, "1 to 3 tiers, each with its lines"));
    }
    build_tree(&mut page, nodes, pod, &tiers)?;
    Ok(page.done())
}

fn build_tree(page: &mut Page, (nodes, at): (u64, usize), pod: u64, tiers: &[Tier]) -> Result<(), Flaw> {
    let origin = page.origin(at);
    let mut below: Vec<NodeId> = (0..nodes)
        .map(|node| {
            page.graph
                .add_node(NodeKind::Host, &format!("node {node}"), None, origin)
        })
        .collect();
    // Ports upwards of each thing below: a host has one.
    let mut up = 1_u64;
    let mut links = 0_u64;
    for (place, tier) in tiers.iter().enumerate() {
        let ports = (below.len() as u64).saturating_mul(up);
        let even = |whole: u64, part: u64| part > 0 && whole.is_multiple_of(part);
        links = links.saturating_add(ports);
        if !even(ports, tier.down) || !even(up, tier.bundle) || !even(tier.down, tier.bundle) || links > LINKS
        {
            let what = format!(
                "{ports} ports below switches of {} in bundles of {}",
                tier.down, tier.bundle
            );
            return Err(page.flaw(tier.at, what, "ports that make whole switches, and not too many"));
        }
        if tier.gigabits == 0 {
            let what = "a tier without Downlink_speed_Gbps";
            return Err(page.flaw(tier.at, what, GIGABITS));
        }
        let kind = [NodeKind::Leaf, NodeKind::Spine, NodeKind::CoreSwitch][place.min(2)];
        let origin = page.origin(tier.at);
        let switches: Vec<NodeId> = (0..ports / tier.down)
            .map(|switch| {
                page.graph
                    .add_node(kind, &format!("tier {place} switch {switch}"), None, origin)
            })
            .collect();
        let bytes = tier.gigabits.saturating_mul(125_000_000);
        let mut link = Link::new(LinkKind::Opaque, origin)
            .speed(bytes.saturating_mul(tier.bundle), Confidence::Declared);
        link.latency_ns = u32::try_from(tier.latency_ns).ok();
        link.wires = u32::try_from(tier.bundle).unwrap_or(u32::MAX);
        // Tier 1 of three stays within pods; the last reaches all.
        let pods = if place == 1 && tiers.len() == 3 && even(nodes, pod) {
            (nodes / pod) as usize
        } else {
            1
        };
        if !below.len().is_multiple_of(pods) || !switches.len().is_multiple_of(pods) {
            let what = format!("{} and {} switches in {pods} pods", below.len(), switches.len());
            return Err(page.flaw(tier.at, what, "pods that are all alike"));
        }
        let (width, height) = (below.len() / pods, switches.len() / pods);
        let bundles = up / tier.bundle;
        for (at, node) in below.iter().enumerate() {
            for bundle in 0..bundles as usize {
                let switch = match place {
                    0 => at / tier.down as usize,
                    _ => at / width * height + (at % width * bundles as usize + bundle) % height,
                };
                page.graph.join(switches[switch], *node, link);
            }
        }
        (below, up) = (switches, tier.up);
    }
    Ok(())
}
