//! Networks as switches with what is below them: what Slurm's and topograph's readers make of their files.

use super::{Flaw, page::Page};
use crate::topo::{
    graph::{Link, LinkKind, NodeId, NodeKind},
    words::short,
};
use std::collections::HashMap;

/// A switch.
pub(super) struct Switch {
    pub(super) at: usize,
    pub(super) name: String,
    /// Names of switches below.
    pub(super) below: Vec<String>,
    /// Names of hosts.
    pub(super) hosts: Vec<String>,
    pub(super) words: Vec<(String, String)>,
}

/// Bytes of a switch's name, at most.
const NAME: usize = 1024;

/// A switch's name, if no repair or edge that has it would make a small file a large one.
pub(super) fn name(page: &Page, at: usize, name: &str) -> Result<String, Flaw> {
    match name.len() {
        1..=NAME => Ok(name.to_owned()),
        length => Err(page.flaw(
            at,
            format!("a switch's name of {length} bytes"),
            "1 to 1024 of them",
        )),
    }
}

/// Adds switches, and hosts as they are named. Gives back the hosts by name.
pub(super) fn build(page: &mut Page, switches: Vec<Switch>) -> Result<HashMap<String, NodeId>, Flaw> {
    let mut rows = merge(page, switches);
    let kinds = kinds(page, &rows)?;
    keep_lowest(page, &mut rows)?;
    let mut nodes: Vec<NodeId> = Vec::with_capacity(rows.len());
    for (row, kind) in rows.iter().zip(kinds) {
        let origin = page.origin(row.at);
        let node = page.graph.add_node(kind, &row.name, None, origin);
        for (key, value) in &row.words {
            page.graph.set(node, key, value);
        }
        nodes.push(node);
    }
    let names = places(&rows);
    let mut hosts: HashMap<String, (NodeId, usize)> = HashMap::new();
    for (place, row) in rows.iter().enumerate() {
        let link = Link::new(LinkKind::Opaque, page.origin(row.at));
        for below in &row.below {
            page.graph.join(nodes[place], nodes[names[below]], link);
        }
        for host in &row.hosts {
            let known = hosts.get(host).copied();
            let node = match known {
                Some((_, last)) if last == place => {
                    page.tell(
                        row.at,
                        format!(
                            "host {} twice in {}: once is enough",
                            short(host),
                            short(&row.name)
                        ),
                    );
                    continue;
                }
                Some((node, last)) => {
                    let (host, other) = (short(host), short(&rows[last].name));
                    page.tell(
                        row.at,
                        format!("host {host} is in {other}, too: joined with both"),
                    );
                    node
                }
                None => page.graph.add_node(NodeKind::Host, host, None, link.origin),
            };
            hosts.insert(host.clone(), (node, place));
            page.graph.join(nodes[place], node, link);
        }
    }
    Ok(hosts.into_iter().map(|(name, (node, _))| (name, node)).collect())
}

/// Rows of one name are one switch; a switch that is named only below others is a switch.
fn merge(page: &mut Page, switches: Vec<Switch>) -> Vec<Switch> {
    let mut rows: Vec<Switch> = Vec::new();
    let mut names: HashMap<String, usize> = HashMap::new();
    for mut row in switches {
        match names.get(&row.name) {
            Some(&first) => {
                page.tell(
                    row.at,
                    format!("a second {}: joined with the first", short(&row.name)),
                );
                let first = &mut rows[first];
                first.below.append(&mut row.below);
                first.hosts.append(&mut row.hosts);
                first.words.append(&mut row.words);
            }
            None => {
                names.insert(row.name.clone(), rows.len());
                rows.push(row);
            }
        }
    }
    for place in 0..rows.len() {
        let mut below = std::mem::take(&mut rows[place].below);
        below.sort();
        below.dedup();
        for name in &below {
            if !names.contains_key(name) {
                let at = rows[place].at;
                page.tell(
                    at,
                    format!(
                        "{} is below a switch, but has nothing below it: kept so",
                        short(name)
                    ),
                );
                names.insert(name.clone(), rows.len());
                rows.push(Switch {
                    at,
                    name: name.clone(),
                    below: Vec::new(),
                    hosts: Vec::new(),
                    words: Vec::new(),
                });
            }
        }
        rows[place].below = below;
    }
    rows
}

/// The place of each name's row.
fn places(rows: &[Switch]) -> HashMap<String, usize> {
    let names = rows.iter().enumerate();
    names.map(|(place, row)| (row.name.clone(), place)).collect()
}

/// Hosts hang on the lowest switches that name them: `scontrol show topology`, which tells levels, repeats them in all above.
fn keep_lowest(page: &mut Page, rows: &mut [Switch]) -> Result<(), Flaw> {
    let names = places(rows);
    // By number, as each may be looked at very often.
    let below: Vec<Vec<usize>> = (rows.iter())
        .map(|row| row.below.iter().map(|name| names[name]).collect())
        .collect();
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    let mut number = |host| {
        let next = numbers.len();
        *numbers.entry(host).or_insert(next)
    };
    let hosts: Vec<Vec<usize>> = (rows.iter())
        .map(|row| row.hosts.iter().map(|host| number(host)).collect())
        .collect();
    // The last switch, counted from 1, below which a switch and a host were seen.
    let (mut seen, mut lower) = (vec![0; rows.len()], vec![0; numbers.len()]);
    let mut looks = 0;
    for place in 0..rows.len() {
        if hosts[place].is_empty() || below[place].is_empty() {
            continue;
        }
        let mut open = vec![place];
        while let Some(above) = open.pop() {
            for &at in &below[above] {
                looks += 1;
                if std::mem::replace(&mut seen[at], place + 1) <= place {
                    hosts[at].iter().for_each(|&host| lower[host] = place + 1);
                    looks += hosts[at].len();
                    open.push(at);
                }
            }
            if looks > MOST_LOOKS {
                let what = "hosts of too many switches below one another";
                return Err(page.flaw(rows[place].at, what, "switches of a few levels"));
            }
        }
        let row = &mut rows[place];
        let before = row.hosts.len();
        let mut is_lower = hosts[place].iter().map(|&host| lower[host] > place);
        row.hosts.retain(|_| is_lower.next() == Some(false));
        let more = before - row.hosts.len();
        if more > 0 && !row.words.iter().any(|(key, _)| key == "Level") {
            let name = short(&row.name);
            let what = format!("{more} hosts of {name} are below its switches, too: joined with those alone");
            page.tell(row.at, what);
        }
    }
    Ok(())
}

/// Switches and hosts that are looked at below all switches, at most: a second.
const MOST_LOOKS: usize = 1 << 24;

/// Leaf, spine or core, by the longest way down.
fn kinds(page: &Page, rows: &[Switch]) -> Result<Vec<NodeKind>, Flaw> {
    let names = places(rows);
    let mut above: Vec<Vec<usize>> = vec![Vec::new(); rows.len()];
    let mut open: Vec<usize> = vec![0; rows.len()];
    for (place, row) in rows.iter().enumerate() {
        open[place] = row.below.len();
        for below in &row.below {
            above[names[below]].push(place);
        }
    }
    let mut heights = vec![0_usize; rows.len()];
    let mut ready: Vec<usize> = (0..rows.len()).filter(|&place| open[place] == 0).collect();
    while let Some(place) = ready.pop() {
        for &up in &above[place] {
            heights[up] = heights[up].max(heights[place] + 1);
            open[up] -= 1;
            if open[up] == 0 {
                ready.push(up);
            }
        }
    }
    if let Some(place) = open.iter().position(|&open| open > 0) {
        let row = &rows[place];
        return Err(page.flaw(
            row.at,
            format!("{} is below itself, or above a switch that is", short(&row.name)),
            "switches that make a tree",
        ));
    }
    let kind = |height| match height {
        0 => NodeKind::Leaf,
        1 => NodeKind::Spine,
        _ => NodeKind::CoreSwitch,
    };
    Ok(heights.into_iter().map(kind).collect())
}
