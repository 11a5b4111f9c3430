//! `nvidia-smi topo -m`: how each pair of GPUs and adapters is joined, and the processors that are near.
//!
//! The words make a tree (what is within one switch, one root, one NUMA node); where NVLinks hide how a pair is joined
//! by PCI, the other pairs and the affinities say.

use super::{
    Flaw, Format, Reading,
    page::{self, Page},
};
use crate::topo::{
    graph::{Confidence, Link, LinkKind, NodeId, NodeKind, Origin},
    speeds,
    words::short,
};
use std::collections::{BTreeMap, HashSet};

pub(super) const FORMAT: Format = Format {
    name: "nvidia-smi",
    about: "the matrix of nvidia-smi topo -m",
    sniff: |text| heading(text).is_some(),
    read,
};

/// Devices of a host, at most.
const DEVICES: usize = 512;

/// More NVLinks than a GPU has: those of a pair lead through switches then.
const NVLINKS: u32 = 18;

/// What a pair is joined by, the nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Near {
    Pix,
    Pxb,
    Phb,
    Node,
    Sys,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Cell {
    Same,
    Near(Near),
    NvLinks(u32),
    Unknown,
}

struct Device<'t> {
    at: usize,
    name: &'t str,
    cells: Vec<Cell>,
    cpus: Option<&'t str>,
    numa: Option<u32>,
}

/// Where the heading begins, and its line.
fn heading(text: &str) -> Option<(usize, &str)> {
    page::lines(text).take(50).find(|(_, line)| {
        let line = plain(line);
        let mut words = line.split_whitespace();
        words.next().is_some_and(is_device) && !words.any(|word| ["X", "SYS", "PHB"].contains(&word))
    })
}

/// Whether a word is a device's for sure; adapters' drivers name theirs as they like.
fn is_device(word: &str) -> bool {
    is_numbered(word, "GPU")
        || is_numbered(word, "NIC")
        || ["mlx5_", "mlx4_", "irdma", "bnxt_re", "efa_", "rdmap"]
            .iter()
            .any(|prefix| word.starts_with(prefix))
}

fn is_numbered(word: &str, prefix: &str) -> bool {
    let digits = word.strip_prefix(prefix).unwrap_or("");
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Bytes of a terminal escape, at most.
const ESCAPE: usize = 32;

/// How long the terminal escape is with which a text begins: ESC, [, numbers and a letter.
fn escape(text: &str) -> Option<usize> {
    let body = text.strip_prefix("\x1b[")?;
    let numbers = body
        .bytes()
        .take(ESCAPE - 2)
        .take_while(|byte| matches!(byte, b'0'..=b'9' | b';' | b'?'))
        .count();
    let letter = body.as_bytes().get(numbers).is_some_and(u8::is_ascii_alphabetic);
    (letter && numbers + 3 <= ESCAPE).then_some(numbers + 3)
}

/// A line with terminal escapes as blanks, each as long as it was: places stay.
fn plain(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(start) = rest.find('\x1b') {
        plain.push_str(&rest[..start]);
        rest = &rest[start..];
        let length = escape(rest);
        match length {
            Some(length) => plain.extend(std::iter::repeat_n(' ', length)),
            None => plain.push('\x1b'),
        }
        rest = &rest[length.unwrap_or(1)..];
    }
    plain.push_str(rest);
    plain
}

fn read(text: &str, source: &str) -> Result<Reading, Flaw> {
    let mut page = Page::new(text, source);
    let Some((start, head)) = heading(text) else {
        return Err(page.flaw(0, "no heading", "a line with GPU0"));
    };
    let head = plain(head);
    // Devices are all up to "CPU Affinity", "NUMA Affinity" and "GPU NUMA ID".
    let columns: Vec<&str> = head
        .split_whitespace()
        .take_while(|word| !["CPU", "NUMA", "GPU"].contains(word))
        .collect();
    if columns.len() > DEVICES {
        return Err(page.flaw(
            start,
            format!("{} devices", columns.len()),
            "512 of a host at most",
        ));
    }
    let affinity = |name: &str| head.contains(name);
    let affinities = (affinity("CPU Affinity"), affinity("NUMA Affinity"));
    let lines: Vec<(usize, String)> = (page::lines(text))
        .filter(|(at, _)| *at > start)
        .map(|(at, line)| (at, plain(line)))
        .collect();
    let mut devices: Vec<Device> = Vec::new();
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for (at, line) in &lines {
        if devices.len() < columns.len() && !line.trim().is_empty() {
            let device = row(&page, *at, line, &columns, devices.len(), affinities)?;
            devices.push(device);
        } else if let Some((nic, name)) = line.split_once(':').filter(|(nic, _)| is_device(nic.trim())) {
            names.insert(nic.trim().to_owned(), name.trim().to_owned());
        }
    }
    if devices.len() < columns.len() {
        let what = format!("{} rows of {} devices", devices.len(), columns.len());
        return Err(page.flaw(text.trim_end().len(), what, "a row for each device"));
    }
    check(&mut page, &devices);
    build(&mut page, &devices, &names);
    Ok(page.done())
}

fn row<'l>(
    page: &Page,
    start: usize,
    line: &'l str,
    columns: &[&str],
    place: usize,
    (cpus, numa): (bool, bool),
) -> Result<Device<'l>, Flaw> {
    let mut words = page::words(start, line);
    let (at, name) = words.next().unwrap_or((start, ""));
    if name != columns[place] {
        let wanted = format!("the row of {}", columns[place]);
        return Err(page.flaw(at, format!("\"{name}\""), &wanted));
    }
    let mut cells = Vec::with_capacity(columns.len());
    for _ in columns {
        let (at, word) = words.next().unwrap_or((start + line.len(), ""));
        let cell = match word {
            "X" => Cell::Same,
            "PIX" => Cell::Near(Near::Pix),
            "PXB" => Cell::Near(Near::Pxb),
            "PHB" => Cell::Near(Near::Phb),
            "NODE" => Cell::Near(Near::Node),
            "SYS" | "SOC" => Cell::Near(Near::Sys),
            "N/A" | "-" => Cell::Unknown,
            _ => {
                let links = word.strip_prefix("NV").and_then(|links| links.parse().ok());
                let links = links.filter(|links| (1..=1000).contains(links));
                let wanted = "X, NV1, PIX, PXB, PHB, NODE or SYS";
                Cell::NvLinks(links.ok_or_else(|| page.flaw(at, format!("\"{word}\""), wanted))?)
            }
        };
        if (cell == Cell::Same) != (cells.len() == place) {
            return Err(page.flaw(
                at,
                format!("\"{word}\" here"),
                "X where a device meets itself, and there alone",
            ));
        }
        cells.push(cell);
    }
    let list = words.next().map(|(_, word)| word).filter(|_| cpus);
    let node = words
        .next()
        .filter(|_| numa)
        .and_then(|(_, word)| word.split(['-', ',']).next()?.parse().ok());
    Ok(Device {
        at,
        name,
        cells,
        cpus: list.filter(|list| list.starts_with(|c: char| c.is_ascii_digit())),
        numa: node,
    })
}

/// A pair that is told in two ways.
fn check(page: &mut Page, devices: &[Device]) {
    for (one, device) in devices.iter().enumerate() {
        for (other, its) in devices.iter().enumerate().skip(one + 1) {
            if device.cells[other] != its.cells[one] {
                let what = format!(
                    "{} and {} are joined in two ways: the upper is taken",
                    short(device.name),
                    short(its.name)
                );
                page.tell(its.at, what);
            }
        }
    }
}

/// The groups of devices that are at least so near one another; each has its first device as its number.
fn groups(devices: &[Device], near: Near) -> Vec<usize> {
    let mut groups: Vec<usize> = (0..devices.len()).collect();
    for (one, device) in devices.iter().enumerate() {
        for (other, its) in devices.iter().enumerate().skip(one + 1) {
            let by_numa = near >= Near::Node
                && near < Near::Sys
                && match (device.numa, its.numa) {
                    (Some(one), Some(other)) => one == other,
                    (None, None) => device.cpus.is_some() && device.cpus == its.cpus,
                    _ => false,
                };
            let together = matches!(device.cells[other], Cell::Near(its) if its <= near) || by_numa;
            let (low, high) = (groups[one].min(groups[other]), groups[one].max(groups[other]));
            if together && low != high {
                groups
                    .iter_mut()
                    .filter(|group| **group == high)
                    .for_each(|group| *group = low);
            }
        }
    }
    groups
}

fn build(page: &mut Page, devices: &[Device], names: &BTreeMap<String, String>) {
    let origin = page.origin(devices[0].at);
    let host = page.graph.add_node(NodeKind::Host, "host", None, origin);
    let levels = [Near::Node, Near::Phb, Near::Pxb, Near::Pix].map(|near| groups(devices, near));
    let mut above: BTreeMap<(usize, usize), NodeId> = BTreeMap::new();
    let mut nodes = Vec::with_capacity(devices.len());
    // Numbers that no device declares, for groups without one.
    let declared: HashSet<u32> = devices.iter().filter_map(|device| device.numa).collect();
    let mut left = (0..).filter(|number| !declared.contains(number));
    for (place, device) in devices.iter().enumerate() {
        let origin = page.origin(device.at);
        let mut parent = host;
        for (level, groups) in levels.iter().enumerate() {
            let members = |groups: &[usize]| groups.iter().filter(|group| **group == groups[place]).count();
            let [_, _, pxb, pix] = levels.each_ref().map(|groups| members(groups));
            let there = match level {
                0 => true,
                1 => members(groups) > 1,
                // Several switches within one another, each device or pair behind one of its own.
                2 => pxb > pix,
                _ => pix > 1 || pxb > pix,
            };
            if !there {
                continue;
            }
            let key = (level, groups[place]);
            parent = match above.get(&key) {
                Some(node) => *node,
                None => {
                    let node = inner(page, level, parent, device, origin, &mut left);
                    above.insert(key, node);
                    node
                }
            };
        }
        let kind = if is_numbered(device.name, "GPU") {
            NodeKind::Gpu
        } else {
            NodeKind::Nic
        };
        let node = page.graph.add_node(kind, device.name, Some(parent), origin);
        if let Some(name) = names.get(device.name) {
            page.graph.set(node, "name", name);
        }
        for (key, value) in [
            ("cpulist", device.cpus.map(str::to_owned)),
            ("numaid", device.numa.map(|n| n.to_string())),
        ] {
            if let Some(value) = value {
                page.graph.set(node, key, &value);
            }
        }
        page.graph.join(parent, node, pcie(origin));
        nodes.push(node);
    }
    let numas: Vec<NodeId> = page.graph.of_kind(NodeKind::Numa).collect();
    for (place, one) in numas.iter().enumerate() {
        for other in &numas[place + 1..] {
            page.graph
                .join(*one, *other, Link::new(LinkKind::Socket, Origin::ASSUMED));
        }
    }
    nvlinks(page, devices, &nodes, host);
}

fn inner(
    page: &mut Page,
    level: usize,
    parent: NodeId,
    device: &Device,
    origin: Origin,
    left: &mut impl Iterator<Item = u32>,
) -> NodeId {
    let (kind, name) = match level {
        0 => {
            let number = device.numa.or_else(|| left.next()).unwrap_or_default();
            (NodeKind::Numa, format!("NUMA {number}"))
        }
        1 => (NodeKind::RootComplex, format!("root of {}", device.name)),
        _ => (NodeKind::PciSwitch, format!("switch of {}", device.name)),
    };
    let node = page.graph.add_node(kind, &name, Some(parent), origin);
    match level {
        0 => {
            if let Some(cpus) = device.cpus {
                page.graph.set(node, "cpulist", cpus);
            }
            if let Some(numa) = device.numa {
                page.graph.set(node, "numaid", &numa.to_string());
            }
        }
        1 => _ = page.graph.join(parent, node, Link::new(LinkKind::Pcie, origin)),
        _ => _ = page.graph.join(parent, node, pcie(origin)),
    }
    node
}

fn pcie(origin: Origin) -> Link {
    Link::new(LinkKind::Pcie, origin).speed(speeds::PCIE, Confidence::Assumed)
}

/// NVLinks of pairs; where a GPU would have more than there are, they lead to a switch.
fn nvlinks(page: &mut Page, devices: &[Device], nodes: &[NodeId], host: NodeId) {
    let links = |cell: &Cell| {
        if let Cell::NvLinks(links) = cell {
            *links
        } else {
            0
        }
    };
    let most = devices
        .iter()
        .map(|device| device.cells.iter().map(links).sum::<u32>())
        .max()
        .unwrap_or(0);
    let link = |wires: u32, origin| Link {
        wires,
        ..Link::new(LinkKind::NvLink, origin).speed(
            speeds::nvlink(None).saturating_mul(wires.into()),
            Confidence::Assumed,
        )
    };
    if most > NVLINKS {
        let origin = page.origin(devices[0].at);
        let switch = page
            .graph
            .add_node(NodeKind::NvSwitch, "NVSwitch", Some(host), origin);
        for (device, node) in devices.iter().zip(nodes) {
            let wires = device.cells.iter().map(links).max().unwrap_or(0);
            if wires > 0 {
                let origin = page.origin(device.at);
                page.graph.join(*node, switch, link(wires, origin));
            }
        }
        return;
    }
    for (one, device) in devices.iter().enumerate() {
        for other in one + 1..devices.len() {
            let wires = links(&device.cells[other]);
            if wires > 0 {
                let origin = page.origin(device.at);
                page.graph.join(nodes[one], nodes[other], link(wires, origin));
            }
        }
    }
}
