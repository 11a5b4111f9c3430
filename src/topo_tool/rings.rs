//! `ccl-topo rings`: channels over a machine's endpoints, what limits them, and what no schedule can pass.

use crate::topo::{
    graph::{Graph, NodeId, NodeKind},
    search::{End, Found, Limit, Shared, Task, search},
    show::{giga, kind},
};
use std::{collections::HashMap, fmt::Write};

/// Searches a machine, or many hosts like it, and says what was found.
pub(super) fn rings(graph: &Graph, hosts: usize) -> Result<String, String> {
    can_be(graph, hosts)?;
    let task = Task::of(graph, hosts);
    Ok(told(graph, &task, &search(graph, &task)))
}

/// Whether there can be so many hosts like that of a graph.
///
/// # Errors
/// If it has several already.
pub(super) fn can_be(graph: &Graph, hosts: usize) -> Result<(), String> {
    let has = graph.of_kind(NodeKind::Host).count();
    if hosts > 1 && has > 1 {
        return Err(format!(
            "--hosts says how many hosts are like the one of the file, which has {has}"
        ));
    }
    Ok(())
}

/// What a search found, in words.
fn told(graph: &Graph, task: &Task, found: &Found) -> String {
    let mut text = String::new();
    let names = Names::new(graph, task);
    let all = task.endpoints.len();
    let _ = writeln!(text, "{}", names.legend(graph, task)); // Writing to a string does not fail.
    if let Some([from, to]) = found.apart {
        let _ = writeln!(
            text,
            "no ring: no way leads from {} to {}",
            names.of(from),
            names.of(to)
        );
        return text;
    }
    if found.rings.is_empty() {
        let why = match all {
            0 => "there is nothing that could be in one",
            1 if task.hosts == 1 => "one endpoint has nobody to talk with",
            _ if task.hosts > 1 && task.nics.is_empty() => "there is no adapter that leads to other hosts",
            _ if found.end == End::Levels => "there are too many endpoints or adapters to search",
            _ => "the search found none",
        };
        let _ = writeln!(text, "no ring: {why}");
        return text;
    }
    let _ = writeln!(
        text,
        "{}",
        head("ring", found.rings.len(), found.ring_bandwidth())
    );
    for (place, ring) in found.rings.iter().enumerate() {
        let mut order = names.list(&ring.order, " ");
        match ring.nics {
            Some([enter, leave]) => order = format!("{} > {order} > {}", names.of(enter), names.of(leave)),
            None => {
                let _ = write!(order, " {}", names.of(ring.order[0])); // A ring has endpoints.
            }
        }
        let _ = writeln!(text, "  {place}  {} GB/s  {order}", giga(ring.bytes_per_second));
        if !ring.relays.is_empty() {
            let _ = writeln!(text, "     through {}", names.list(&ring.relays, " "));
        }
    }
    limits(&mut text, graph, found.rings.iter().filter_map(|ring| ring.limit));
    let rings = found.ring_bandwidth();
    let how = match found.end {
        End::Exact => "exact".to_owned(),
        End::Greedy => "each ring exact beside those before it".to_owned(),
        End::Steps(steps) => format!("search ended after {steps} steps"),
        End::TwoOpt => "2-opt".to_owned(),
        End::Levels => "in the order of the levels".to_owned(),
    };
    match &found.bound {
        Some(bound) => {
            let most = bound.bytes_per_second();
            let _ = writeln!(text, "reached {:.2} of the bound, {how}", part(rings, most));
            let tight = if bound.tight {
                ""
            } else {
                "; there may be a lower one"
            };
            let _ = writeln!(
                text,
                "bound of an all-gather: {} GB/s, since {} of {} endpoints send the others their parts over {} GB/s{tight}",
                giga(most),
                bound.senders,
                bound.all,
                giga(bound.over)
            );
        }
        None => _ = writeln!(text, "{how}"),
    }
    if let Some(crossing) = found.crossing {
        let _ = writeln!(
            text,
            "bound of rings: {} GB/s cross the narrowest cut, reached {:.2}",
            giga(crossing),
            part(rings, crossing)
        );
    }
    if !found.trees.is_empty() {
        let _ = writeln!(
            text,
            "\n{}",
            head("tree", found.trees.len(), found.tree_bandwidth())
        );
    }
    for (place, tree) in found.trees.iter().enumerate() {
        let shape = match tree.arity {
            0 | 1 => "chain",
            2 => "binary",
            _ => "wide",
        };
        let _ = write!(text, "  {place}  {} GB/s  {shape}  ", giga(tree.bytes_per_second));
        if let Some(nic) = tree.nic {
            let _ = write!(text, "{} > ", names.of(nic));
        }
        let _ = writeln!(text, "{}", names.tree(tree.root, &tree.edges));
    }
    limits(&mut text, graph, found.trees.iter().filter_map(|tree| tree.limit));
    text
}

fn head(what: &str, count: usize, bandwidth: u64) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}, {} GB/s together", giga(bandwidth))
}

fn part(reached: u64, most: u64) -> f64 {
    reached as f64 / most.max(1) as f64
}

/// What limits channels, each once, by name and where it is written.
fn limits(text: &mut String, graph: &Graph, limits: impl Iterator<Item = Limit>) {
    let mut all: Vec<Limit> = limits.collect();
    all.sort_by_key(|limit| limit.what);
    all.dedup();
    let more = all.len().saturating_sub(MOST_LIMITS);
    for limit in all.iter().take(MOST_LIMITS) {
        let (name, sure, place) = match limit.what {
            Shared::Edge(id) => {
                let edge = graph.edge(id);
                let name = format!(
                    "{:?} {} -> {}",
                    edge.link.kind,
                    graph.name(edge.from),
                    graph.name(edge.to)
                );
                (name, edge.link.confidence, graph.place(edge.link.origin))
            }
            Shared::Group(id) => {
                let group = graph.group(id);
                (
                    group.name.to_string(),
                    group.confidence,
                    graph.place(group.origin),
                )
            }
            Shared::Out(nic) | Shared::In(nic) => {
                let way = if matches!(limit.what, Shared::Out(_)) {
                    "out of"
                } else {
                    "into"
                };
                let port = graph
                    .children(nic)
                    .find(|port| graph.kind(*port) == NodeKind::NicPort);
                let origin = graph.origin(port.unwrap_or(nic));
                let sure = crate::topo::graph::Confidence::Declared;
                (
                    format!("{way} adapter {}", graph.name(nic)),
                    sure,
                    graph.place(origin),
                )
            }
        };
        let times = if limit.uses == 1 {
            String::new()
        } else {
            format!(" for {} uses", limit.uses)
        };
        let sure = if sure == crate::topo::graph::Confidence::Assumed {
            "~"
        } else {
            ""
        };
        let _ = writeln!(
            text,
            "  limit: {name}, {sure}{} GB/s{times}  [{place}]",
            giga(limit.bytes_per_second)
        );
    }
    if more > 0 {
        let _ = writeln!(text, "  and {more} more such limits");
    }
}

const MOST_LIMITS: usize = 4;

/// Endpoints and adapters by short names, as `ccl-topo show` has them.
struct Names(HashMap<NodeId, String>);

impl Names {
    fn new(graph: &Graph, task: &Task) -> Self {
        let mut counts: HashMap<NodeKind, usize> = HashMap::new();
        let mut names = HashMap::new();
        for &node in task.endpoints.iter().chain(&task.nics) {
            let count = counts.entry(graph.kind(node)).or_default();
            let name = match graph.kind(node) {
                NodeKind::Gpu => format!("GPU{count}"),
                NodeKind::Npu => format!("NPU{count}"),
                NodeKind::Nic => format!("NIC{count}"),
                _ => graph.name(node).to_owned(),
            };
            *count += 1;
            names.insert(node, name);
        }
        Names(names)
    }

    fn of(&self, node: NodeId) -> &str {
        self.0.get(&node).map_or("?", |name| name)
    }

    fn list(&self, nodes: &[NodeId], between: &str) -> String {
        let shown = nodes.iter().take(MOST_NAMES).map(|node| self.of(*node));
        let mut text = shown.collect::<Vec<_>>().join(between);
        if nodes.len() > MOST_NAMES {
            let _ = write!(text, "{between}and {} more,", nodes.len() - MOST_NAMES);
        }
        text
    }

    /// Each parent with its children.
    fn tree(&self, root: NodeId, edges: &[(NodeId, NodeId)]) -> String {
        let chain = edges.windows(2).all(|pair| pair[0].1 == pair[1].0);
        if chain {
            let nodes: Vec<NodeId> = [root]
                .into_iter()
                .chain(edges.iter().map(|edge| edge.1))
                .collect();
            return self.list(&nodes, " ");
        }
        let mut parents: Vec<NodeId> = edges.iter().map(|edge| edge.0).collect();
        let mut seen = std::collections::HashSet::new();
        parents.retain(|parent| seen.insert(*parent));
        let parents = parents.iter().take(MOST_NAMES).map(|parent| {
            let children: Vec<NodeId> = edges
                .iter()
                .filter(|edge| edge.0 == *parent)
                .map(|edge| edge.1)
                .collect();
            format!("{}({})", self.of(*parent), self.list(&children, " "))
        });
        parents.collect::<Vec<_>>().join(" ")
    }

    fn legend(&self, graph: &Graph, task: &Task) -> String {
        let kind = task
            .endpoints
            .first()
            .map_or("endpoint", |node| kind(graph.kind(*node)));
        let mut text = match task.hosts {
            1 => format!("endpoints: {}, {kind}\n", task.endpoints.len()),
            hosts => format!(
                "{hosts} hosts with {} endpoints, {kind}, and {} adapters each\n",
                task.endpoints.len(),
                task.nics.len()
            ),
        };
        for &node in task.endpoints.iter().chain(&task.nics).take(MOST_NAMES) {
            let (short, name) = (self.of(node), graph.name(node));
            let name = if short == name {
                String::new()
            } else {
                format!("  {name}")
            };
            let _ = writeln!(text, "  {short}{name}  [{}]", graph.place(graph.origin(node)));
        }
        text
    }
}

const MOST_NAMES: usize = 32;
