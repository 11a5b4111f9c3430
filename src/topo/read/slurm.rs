//! Slurm's `topology.conf`: trees of switches, or blocks of hosts.

use super::{
    Flaw, Format, Reading,
    fabric::{self, Switch},
    hostlist::{self, Left},
    page::{self, Page},
};
use crate::topo::graph::{Link, LinkKind, NodeKind, Origin};
use std::collections::HashSet;

pub(super) const FORMAT: Format = Format {
    name: "slurm",
    about: "Slurm's topology.conf, tree or block",
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
            line.contains('=') && ["switchname", "blockname", "blocksizes"].contains(&key.as_str())
        };
        first.is_some_and(starts)
    },
    read,
};

fn read(text: &str, source: &str) -> Result<Reading, Flaw> {
    let mut page = Page::new(text, source);
    let (mut switches, mut blocks) = (Vec::new(), Vec::new());
    let mut left = Left::new();
    for line in whole_lines(text) {
        if let Some((row, block)) = row(&mut page, &line, &mut left)? {
            if block { &mut blocks } else { &mut switches }.push(row);
        }
    }
    build(&mut page, switches, blocks)?;
    Ok(page.done())
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
    let named: HashSet<String> = blocks.iter().map(|block| block.name.clone()).collect();
    switches.append(&mut blocks);
    fabric::build(page, switches)?;
    if named.len() > 1 {
        join_blocks(page, &named);
    }
    Ok(())
}

/// Between blocks there is some network: a node stands for it.
fn join_blocks(page: &mut Page, named: &HashSet<String>) {
    let network = page
        .graph
        .add_node(NodeKind::Opaque, "between blocks", None, Origin::ASSUMED);
    let blocks: Vec<_> = (page.graph.of_kind(NodeKind::Leaf))
        .filter(|&leaf| named.contains(page.graph.name(leaf)))
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

/// A line's switch, or block if the second is true.
fn row(page: &mut Page, line: &Line, left: &mut Left) -> Result<Option<(Switch, bool)>, Flaw> {
    let mut row: Option<(Switch, bool)> = None;
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
            ("switchname" | "blockname", None) if !value.is_empty() => {
                let switch = Switch {
                    at,
                    name: fabric::name(page, line.place(inner), value)?,
                    below: Vec::new(),
                    hosts: Vec::new(),
                    words: Vec::new(),
                };
                row = Some((switch, key.eq_ignore_ascii_case("blockname")));
            }
            ("switches", Some((row, false))) => row.below.append(&mut list(page, left)?),
            ("nodes", Some((row, _))) => row.hosts.append(&mut list(page, left)?),
            ("linkspeed", Some((row, _))) => row.words.push(("LinkSpeed".to_owned(), value.to_owned())),
            ("level", Some((row, _))) => row.words.push(("Level".to_owned(), value.to_owned())),
            ("blocksizes", None) => page.graph.set_whole("BlockSizes", value),
            ("switchname" | "blockname" | "switches" | "nodes" | "blocksizes", _) => {
                return Err(page.flaw(
                    at,
                    format!("\"{key}={value}\" here"),
                    "SwitchName=... or BlockName=... first, once a line",
                ));
            }
            _ => page.tell(at, format!("\"{key}={value}\" is unknown: left out")),
        }
    }
    Ok(row)
}
