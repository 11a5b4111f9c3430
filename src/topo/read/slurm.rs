//! Slurm's `topology.conf`: trees of switches, or blocks of hosts.

use super::{
    Flaw, Format, Reading,
    fabric::{self, Switch},
    hostlist::{self, Left},
    page::{self, Page},
};
use crate::topo::graph::{Link, LinkKind, NodeKind, Origin};

pub(super) const FORMAT: Format = Format {
    name: "slurm",
    about: "Slurm's topology.conf, tree or block",
    sniff: |text| {
        let text = text.trim_start_matches('\u{feff}');
        let first = text
            .lines()
            .map(str::trim)
            .find(|line| !line.is_empty() && !line.starts_with('#'));
        let starts = |line: &str| {
            let key = line
                .split('=')
                .next()
                .unwrap_or("")
                .trim_end()
                .to_ascii_lowercase();
            line.contains('=') && ["switchname", "blockname", "blocksizes"].contains(&key.as_str())
        };
        first.is_some_and(starts)
    },
    read,
};

fn read(text: &str, source: &str) -> Result<Reading, Flaw> {
    let text = text.trim_start_matches('\u{feff}');
    let mut page = Page::new(text, source);
    let (mut switches, mut blocks) = (Vec::new(), Vec::new());
    let mut left = Left::new();
    for (start, line) in page::lines(text) {
        let line = line.split('#').next().unwrap_or("");
        let line = line.trim_end().strip_suffix('\\').unwrap_or(line);
        if let Some((row, block)) = row(&mut page, start, line, &mut left)? {
            if block { &mut blocks } else { &mut switches }.push(row);
        }
    }
    if switches.is_empty() && blocks.is_empty() {
        return Err(page.flaw(
            0,
            "neither a switch nor a block",
            "SwitchName=... or BlockName=...",
        ));
    }
    let named: Vec<String> = blocks.iter().map(|block: &Switch| block.name.clone()).collect();
    switches.append(&mut blocks);
    fabric::build(&mut page, switches)?;
    if named.len() > 1 {
        join_blocks(&mut page, &named);
    }
    Ok(page.done())
}

/// Between blocks there is some network: a node stands for it.
fn join_blocks(page: &mut Page, named: &[String]) {
    let network = page
        .graph
        .add_node(NodeKind::Opaque, "between blocks", None, Origin::ASSUMED);
    let blocks: Vec<_> = (page.graph.of_kind(NodeKind::Leaf))
        .filter(|&leaf| named.iter().any(|name| name == page.graph.name(leaf)))
        .collect();
    for block in blocks {
        page.graph
            .join(network, block, Link::new(LinkKind::Opaque, Origin::ASSUMED));
    }
}

/// A line's switch, or block if the second is true.
fn row(page: &mut Page, start: usize, line: &str, left: &mut Left) -> Result<Option<(Switch, bool)>, Flaw> {
    let mut row: Option<(Switch, bool)> = None;
    for (at, word) in page::words(start, line) {
        let Some((key, value)) = word.split_once('=') else {
            return Err(page.flaw(at, format!("\"{word}\""), "Name=value"));
        };
        let inner = at + key.len() + 1;
        match (key.to_ascii_lowercase().as_str(), &mut row) {
            ("switchname" | "blockname", None) if !value.is_empty() => {
                let switch = Switch {
                    at,
                    name: fabric::name(page, inner, value)?,
                    below: Vec::new(),
                    hosts: Vec::new(),
                    words: Vec::new(),
                };
                row = Some((switch, key.eq_ignore_ascii_case("blockname")));
            }
            ("switches", Some((row, false))) => row.below.append(&mut list(page, inner, value, left)?),
            ("nodes", Some((row, _))) => row.hosts.append(&mut list(page, inner, value, left)?),
            ("linkspeed", Some((row, _))) => row.words.push(("LinkSpeed".to_owned(), value.to_owned())),
            ("blocksizes", None) => page.graph.set_whole("BlockSizes", value),
            ("switchname" | "blockname" | "switches" | "nodes" | "blocksizes", _) => {
                return Err(page.flaw(
                    at,
                    format!("\"{word}\" here"),
                    "SwitchName=... or BlockName=... first, once a line",
                ));
            }
            _ => page.tell(at, format!("\"{word}\" is unknown: left out")),
        }
    }
    Ok(row)
}

fn list(page: &Page, at: usize, value: &str, left: &mut Left) -> Result<Vec<String>, Flaw> {
    hostlist::expand(value, left).map_err(|bad| page.flaw(at + bad.at, bad.what, hostlist::WANTED))
}
