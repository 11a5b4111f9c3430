//! Slurm's `topology.conf`, and what `scontrol show topology` prints of it: trees of switches, or blocks of hosts and, by scontrol,
//! blocks of blocks.

use super::{
    Flaw, Format, Reading,
    fabric::{self, Switch},
    hostlist::{self, Left},
    page::{self, Page},
};
use crate::topo::{
    graph::{Link, LinkKind, NodeKind, Origin},
    words::{short, short_and_unlike},
};
use std::collections::{BTreeSet, HashMap, HashSet};

pub(super) const FORMAT: Format = Format {
    name: "slurm",
    about: "Slurm's topology.conf or what scontrol shows of it, tree or block",
    sniff: |text| {
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
            line.contains('=') && KEYS_OF_LINES.contains(&key.as_str())
        };
        first.is_some_and(starts)
    },
    read,
};

/// What a line may begin with.
const KEYS_OF_LINES: [&str; 4] = ["switchname", "blockname", "blocksizes", "aggregatedblock"];

/// What a row is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Switch,
    Block,
    /// Blocks that Slurm may give to a job together; only scontrol tells them.
    Aggregated,
}

fn read(text: &str, source: &str) -> Result<Reading, Flaw> {
    let mut page = Page::new(text, source);
    let (mut switches, mut blocks, mut aggregated) = (Vec::new(), Vec::new(), Vec::new());
    let mut left = Left::new();
    for line in whole_lines(text) {
        if let Some((row, kind)) = row(&mut page, &line, &mut left)? {
            match kind {
                Kind::Switch => switches.push(row),
                Kind::Block => blocks.push(row),
                Kind::Aggregated => aggregated.push(row),
            }
        }
    }
    let blocks = aggregate(&mut page, blocks, aggregated);
    build(&mut page, switches, blocks)?;
    Ok(page.done())
}

/// The blocks, with those that are made of them above: each is above the largest before it that have its blocks.
fn aggregate(page: &mut Page, mut blocks: Vec<Switch>, mut aggregated: Vec<Switch>) -> Vec<Switch> {
    aggregated.sort_by_key(|row| row.below.len());
    let mut highest: HashMap<String, String> = (blocks.iter())
        .map(|block| (block.name.clone(), block.name.clone()))
        .collect();
    for mut row in aggregated {
        let all = std::mem::take(&mut row.below);
        let below: BTreeSet<String> = all.iter().filter_map(|name| highest.get(name).cloned()).collect();
        if let Some(name) = all.iter().find(|name| !highest.contains_key(*name)) {
            let what = format!("{} has no block {}", short(&row.name), short(name));
            page.tell(row.at, what + ": made of the others");
        }
        // A second one of the same blocks, or none of any, says nothing more.
        if below.len() < 2 {
            page.tell(row.at, format!("{} joins no blocks: left out", short(&row.name)));
            continue;
        }
        for name in all {
            if let Some(highest) = highest.get_mut(&name) {
                highest.clone_from(&row.name);
            }
        }
        row.below = below.into_iter().collect();
        blocks.push(row);
    }
    blocks
}

/// Adds switches and blocks, of which there has to be one.
pub(super) fn build(page: &mut Page, mut switches: Vec<Switch>, mut blocks: Vec<Switch>) -> Result<(), Flaw> {
    if switches.is_empty() && blocks.is_empty() {
        return Err(page.flaw(
            0,
            "neither a switch nor a block",
            "SwitchName=... or BlockName=..., in YAML tree: or block: with some",
        ));
    }
    let inner: HashSet<&String> = blocks.iter().flat_map(|block| &block.below).collect();
    let named: HashSet<String> = (blocks.iter())
        .map(|block| block.name.clone())
        .filter(|name| !inner.contains(name))
        .collect();
    switches.append(&mut blocks);
    fabric::build(page, switches)?;
    if named.len() > 1 {
        join_blocks(page, &named);
    }
    Ok(())
}

/// Between blocks that are in no other there is some network: a node stands for it.
fn join_blocks(page: &mut Page, named: &HashSet<String>) {
    let network = page
        .graph
        .add_node(NodeKind::Opaque, "between blocks", None, Origin::ASSUMED);
    let is_block = |kind| matches!(kind, NodeKind::Leaf | NodeKind::Spine | NodeKind::CoreSwitch);
    let blocks: Vec<_> = (page.graph.nodes())
        .filter(|&node| is_block(page.graph.kind(node)) && named.contains(page.graph.name(node)))
        .collect();
    for block in blocks {
        page.graph
            .join(network, block, Link::new(LinkKind::Opaque, Origin::ASSUMED));
    }
}

/// A line, and those that it goes on in, as one.
#[derive(Default)]
struct Line {
    text: String,
    /// Where in it each line begins, and where that is in the file.
    parts: Vec<(usize, usize)>,
}

impl Line {
    /// The byte of the file that a byte of the line is.
    fn place(&self, at: usize) -> usize {
        let part = self.parts.partition_point(|&(start, _)| start <= at).max(1) - 1;
        self.parts
            .get(part)
            .map_or(at, |&(start, place)| place + (at - start))
    }
}

/// Lines without remarks; one that ends in a backslash goes on in the next.
fn whole_lines(text: &str) -> impl Iterator<Item = Line> {
    let mut lines = page::lines(text).peekable();
    std::iter::from_fn(move || {
        lines.peek()?;
        let mut whole = Line::default();
        for (start, line) in lines.by_ref() {
            let line = line.split('#').next().unwrap_or("").trim_end();
            let more = line.strip_suffix('\\');
            whole.parts.push((whole.text.len(), start));
            whole.text.push_str(more.unwrap_or(line));
            if more.is_none() {
                break;
            }
        }
        Some(whole)
    })
}

/// A key and its value, with the bytes of the line at which they begin.
struct Word<'l> {
    key: (usize, &'l str),
    value: (usize, &'l str),
    end: usize,
}

/// The next of a line's `Key=value`, `Key = value` and `Key="a value"`.
fn next_word<'l>(page: &Page, line: &'l Line, from: usize) -> Result<Option<Word<'l>>, Flaw> {
    let text = &line.text;
    let after_blanks = |at: usize| at + (text[at..].len() - text[at..].trim_start().len());
    let start = after_blanks(from);
    if start == text.len() {
        return Ok(None);
    }
    let flaw = |what: String| Err(page.flaw(line.place(start), what, "Name=value"));
    let length = text[start..].find(|c: char| c == '=' || c.is_whitespace());
    let key = &text[start..length.map_or(text.len(), |length| start + length)];
    let sign = after_blanks(start + key.len());
    if !text[sign..].starts_with('=') {
        return flaw(format!("\"{key}\""));
    }
    let at = after_blanks(sign + 1);
    if let Some(inner) = text[at..].strip_prefix('"') {
        let Some(value) = inner.split_once('"').map(|(value, _)| value) else {
            return flaw(format!("{key} with a \" that is not closed"));
        };
        return Ok(Some(Word {
            key: (start, key),
            value: (at + 1, value),
            end: at + value.len() + 2,
        }));
    }
    let value = text[at..].split_whitespace().next().unwrap_or("");
    if at > sign + 1 && value.contains('=') {
        return flaw(format!("{key} without a value"));
    }
    Ok(Some(Word {
        key: (start, key),
        value: (at, value),
        end: at + value.len(),
    }))
}

/// What a row may say of itself.
const WORDS: [&str; 4] = ["LinkSpeed", "Level", "BlockIndex", "BlockSize"];

/// A line's switch or block.
fn row(page: &mut Page, line: &Line, left: &mut Left) -> Result<Option<(Switch, Kind)>, Flaw> {
    let mut row: Option<(Switch, Kind)> = None;
    let mut from = 0;
    while let Some(word) = next_word(page, line, from)? {
        from = word.end;
        let ((start, key), (inner, value)) = (word.key, word.value);
        let at = line.place(start);
        let list = |page: &Page, left: &mut Left| {
            hostlist::expand(value, left)
                .map_err(|bad| page.flaw(line.place(inner + bad.at), bad.what, hostlist::WANTED))
        };
        match (key.to_ascii_lowercase().as_str(), &mut row) {
            ("switchname" | "blockname" | "aggregatedblock", None) if !value.is_empty() => {
                let kind = match key.to_ascii_lowercase().as_str() {
                    "switchname" => Kind::Switch,
                    "blockname" => Kind::Block,
                    _ => Kind::Aggregated,
                };
                let switch = Switch {
                    at,
                    name: match kind {
                        Kind::Aggregated => short_and_unlike(value).into_owned(),
                        _ => fabric::name(page, line.place(inner), value)?,
                    },
                    // Its name is the list of its blocks.
                    below: match kind {
                        Kind::Aggregated => list(page, left)?,
                        _ => Vec::new(),
                    },
                    hosts: Vec::new(),
                    words: Vec::new(),
                };
                row = Some((switch, kind));
            }
            ("switches", Some((row, Kind::Switch))) => row.below.append(&mut list(page, left)?),
            // Its blocks have them.
            ("nodes", Some((_, Kind::Aggregated))) => {}
            ("nodes", Some((row, _))) => row.hosts.append(&mut list(page, left)?),
            ("blocksizes", None) => page.graph.set_whole("BlockSizes", value),
            ("switchname" | "blockname" | "aggregatedblock" | "switches" | "nodes" | "blocksizes", _) => {
                return Err(page.flaw(
                    at,
                    format!("\"{key}={value}\" here"),
                    "SwitchName=... or BlockName=... first, once a line",
                ));
            }
            (word, row) => match (WORDS.iter().find(|name| name.eq_ignore_ascii_case(word)), row) {
                (Some(name), Some((row, _))) => row.words.push(((*name).to_owned(), value.to_owned())),
                _ => page.tell(at, format!("\"{key}={value}\" is unknown: left out")),
            },
        }
    }
    Ok(row)
}
