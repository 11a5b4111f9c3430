//! Slurm's `topology.yaml`: several topologies of the same hosts, of which the cluster's default is read.

use super::{
    Flaw, Format, Reading,
    document::{self, Value, tell_unknown},
    fabric::{self, Switch},
    hostlist::{self, Left},
    page::Page,
    slurm,
};
use crate::topo::words::short;

pub(super) const FORMAT: Format = Format {
    name: "slurm-yaml",
    about: "Slurm's topology.yaml, tree or block",
    // A topology's name is its first word.
    sniff: |text| document::is_yaml_with(text, &["- topology"]),
    read,
};

fn read(text: &str, source: &str) -> Result<Reading, Flaw> {
    let mut page = Page::new(text, source);
    let root = document::yaml(&page)?;
    let all = root.as_list();
    let has_rows = |topology: &&Value| topology.get("tree").or(topology.get("block")).is_some();
    let yes = ["true", "t", "yes", "y", "on"];
    let is_default = |topology: &&Value| {
        let word = topology.word("cluster_default");
        word.is_some_and(|word| yes.iter().any(|yes| yes.eq_ignore_ascii_case(word)))
    };
    let mut fit = all.iter().filter(has_rows);
    let taken = fit.clone().find(is_default).or_else(|| fit.next());
    for other in all {
        if taken.is_none_or(|taken| taken.at != other.at) {
            let name = short(other.word("topology").unwrap_or("a topology"));
            let why = match has_rows(&other) {
                true => "is not the cluster's default",
                false => "has neither switches nor blocks",
            };
            page.tell(other.at, format!("{name} {why}: left out"));
        }
    }
    let mut left = Left::new();
    let (mut switches, mut blocks) = (Vec::new(), Vec::new());
    if let Some(topology) = taken {
        tell_unknown(
            &mut page,
            topology,
            &["topology", "cluster_default", "tree", "block"],
        );
        if let Some(tree) = topology.get("tree") {
            tell_unknown(&mut page, tree, &["switches"]);
            switches = rows(&mut page, tree.list("switches"), "switch", &mut left)?;
        }
        if let Some(block) = topology.get("block") {
            tell_unknown(&mut page, block, &["block_sizes", "blocks"]);
            let sizes: Vec<_> = block
                .list("block_sizes")
                .iter()
                .filter_map(Value::as_word)
                .collect();
            if !sizes.is_empty() {
                page.graph.set_whole("BlockSizes", &sizes.join(","));
            }
            blocks = rows(&mut page, block.list("blocks"), "block", &mut left)?;
        }
    }
    slurm::build(&mut page, switches, blocks)?;
    Ok(page.done())
}

/// The switches or blocks of a list; `kind` is the key of their names.
fn rows(page: &mut Page, list: &[Value], kind: &str, left: &mut Left) -> Result<Vec<Switch>, Flaw> {
    let mut rows = Vec::with_capacity(list.len());
    for value in list {
        tell_unknown(page, value, &[kind, "children", "nodes"]);
        let Some(name) = value.word(kind) else {
            return Err(page.flaw(
                value.at,
                format!("a {kind} without a name"),
                &format!("{kind}: name"),
            ));
        };
        let mut names = |key| {
            let Some(list) = value.get(key) else {
                return Ok(Vec::new());
            };
            let wrong = || page.flaw(list.at, "a list or a map", hostlist::WANTED);
            let names = hostlist::expand(list.as_word().ok_or_else(wrong)?, left);
            names.map_err(|bad| page.flaw(list.at, bad.what, hostlist::WANTED))
        };
        rows.push(Switch {
            at: value.at,
            below: names("children")?,
            hosts: names("nodes")?,
            name: fabric::name(page, value.at, name)?,
            words: Vec::new(),
        });
    }
    Ok(rows)
}
