//! [`Graph`]: machines and networks as nodes and directed edges, in columns with ids of 32 bits.
//!
//! Two relations join nodes. A node may lie *in* another ([`Graph::parent`]: a GPU in a PCI switch's tree, that in a NUMA
//! node, that in a host); this is a forest, and a parent is always older than its children. And *edges* carry data: each
//! has a kind, a bandwidth and a latency of one direction, how sure these are, and where that is written.
//!
//! Nothing here recurses, whatever the depth of an input.

mod kinds;
mod origin;

pub use kinds::{Confidence, LinkKind, NodeKind};
pub use origin::{Origin, SourceId};

use std::collections::BTreeMap;

/// A node of one [`Graph`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

/// A directed edge of one [`Graph`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EdgeId(u32);

/// Edges of one [`Graph`] that share a capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(u32);

/// Machines and networks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Graph {
    sources: Vec<Box<str>>,
    attributes: BTreeMap<Box<str>, Box<str>>,

    kinds: Vec<NodeKind>,
    names: Vec<Box<str>>,
    parents: Vec<u32>,
    first_children: Vec<u32>,
    last_children: Vec<u32>,
    next_siblings: Vec<u32>,
    node_attributes: Vec<Attributes>,
    node_origins: Vec<Origin>,
    first_edges: Vec<u32>,
    last_edges: Vec<u32>,

    edges: Vec<Edge>,
    next_edges: Vec<u32>,
    groups: Vec<Group>,
}

/// What an edge is, apart from its ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// What carries the data.
    pub kind: LinkKind,
    /// Bytes a second one way, all parallel wires together; 0 where nothing says.
    pub bytes_per_second: u64,
    /// Nanoseconds that a message of one byte takes over it, where something says.
    pub latency_ns: Option<u32>,
    /// How many equal wires this is, such as a pair's NVLinks; at least 1.
    pub wires: u32,
    /// Whether data may go this way. An edge that is there but must not be used (no peer access, no route) is not reachable.
    pub reachable: bool,
    /// With which others it shares a capacity.
    pub group: Option<GroupId>,
    /// How sure the bandwidth is.
    pub confidence: Confidence,
    /// Where it is written.
    pub origin: Origin,
}

impl Link {
    /// One reachable wire of unknown speed.
    pub fn new(kind: LinkKind, origin: Origin) -> Self {
        Link {
            kind,
            bytes_per_second: 0,
            latency_ns: None,
            wires: 1,
            reachable: true,
            group: None,
            confidence: Confidence::Assumed,
            origin,
        }
    }

    /// The same with a bandwidth of all wires together.
    pub fn speed(self, bytes_per_second: u64, confidence: Confidence) -> Self {
        Link {
            bytes_per_second,
            confidence,
            ..self
        }
    }
}

/// A directed edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// Where data comes from.
    pub from: NodeId,
    /// Where it goes.
    pub to: NodeId,
    /// How.
    pub link: Link,
}

/// A capacity that several edges share, such as two functions of one PCI slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// What shares it.
    pub name: Box<str>,
    /// Bytes a second of all its edges together.
    pub bytes_per_second: u64,
    /// How sure that is.
    pub confidence: Confidence,
    /// Where it is written.
    pub origin: Origin,
}

/// Words of a source about a node, by key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Attributes(BTreeMap<Box<str>, Box<str>>);

impl Graph {
    /// An empty graph.
    pub fn new() -> Self {
        Graph::default()
    }

    /// The id of a source of that name, which is added if it is new. Names are a file's, or paths below a root.
    pub fn source(&mut self, name: &str) -> SourceId {
        let known = self.sources.iter().rposition(|source| **source == *name);
        known.map_or_else(|| self.add_source(name), |at| SourceId::of(index(at)))
    }

    /// Adds a source, whether or not its name is new.
    pub fn add_source(&mut self, name: &str) -> SourceId {
        self.sources.push(name.into());
        SourceId::of(index(self.sources.len() - 1))
    }

    /// Adds a node, in another or at the top.
    ///
    /// # Panics
    ///
    /// If the parent is of another graph, or there are 2³² - 1 nodes.
    pub fn add_node(&mut self, kind: NodeKind, name: &str, parent: Option<NodeId>, origin: Origin) -> NodeId {
        let id = index(self.kinds.len());
        if let Some(NodeId(parent)) = parent {
            let at = parent as usize;
            match self.last_children[at] {
                NONE => self.first_children[at] = id,
                last => self.next_siblings[last as usize] = id,
            }
            self.last_children[at] = id;
        }
        self.kinds.push(kind);
        self.names.push(name.into());
        self.parents.push(parent.map_or(NONE, |parent| parent.0));
        for links in [
            &mut self.first_children,
            &mut self.last_children,
            &mut self.next_siblings,
            &mut self.first_edges,
            &mut self.last_edges,
        ] {
            links.push(NONE);
        }
        self.node_attributes.push(Attributes::default());
        self.node_origins.push(origin);
        NodeId(id)
    }

    /// Adds an edge for one direction.
    ///
    /// # Panics
    ///
    /// If an end is of another graph, or there are 2³² - 1 edges.
    pub fn add_edge(&mut self, from: NodeId, to: NodeId, link: Link) -> EdgeId {
        let id = index(self.edges.len());
        assert!((to.0 as usize) < self.kinds.len(), "an end of another graph");
        let at = from.0 as usize;
        match self.last_edges[at] {
            NONE => self.first_edges[at] = id,
            last => self.next_edges[last as usize] = id,
        }
        self.last_edges[at] = id;
        self.edges.push(Edge { from, to, link });
        self.next_edges.push(NONE);
        EdgeId(id)
    }

    /// Adds an edge for each direction.
    pub fn join(&mut self, one: NodeId, other: NodeId, link: Link) -> [EdgeId; 2] {
        [self.add_edge(one, other, link), self.add_edge(other, one, link)]
    }

    /// Adds a capacity that edges can share by [`Link::group`].
    pub fn add_group(&mut self, group: Group) -> GroupId {
        let id = index(self.groups.len());
        self.groups.push(group);
        GroupId(id)
    }

    /// Tells something about a node, in the words of its source; a later word of the same key replaces the former.
    pub fn set(&mut self, node: NodeId, key: &str, value: &str) {
        let Attributes(all) = &mut self.node_attributes[node.at()];
        all.insert(key.into(), value.into());
    }

    /// Tells something about the whole.
    pub fn set_whole(&mut self, key: &str, value: &str) {
        self.attributes.insert(key.into(), value.into());
    }

    /// What a source says about a node.
    pub fn get(&self, node: NodeId, key: &str) -> Option<&str> {
        let Attributes(all) = &self.node_attributes[node.at()];
        all.get(key).map(|value| &**value)
    }

    /// What a source says about the whole.
    pub fn get_whole(&self, key: &str) -> Option<&str> {
        self.attributes.get(key).map(|value| &**value)
    }

    /// All that sources say about the whole, by key.
    pub fn whole(&self) -> impl Iterator<Item = (&str, &str)> {
        self.attributes.iter().map(|(key, value)| (&**key, &**value))
    }

    /// All that a source says about a node, by key.
    pub fn attributes(&self, node: NodeId) -> impl Iterator<Item = (&str, &str)> {
        let Attributes(all) = &self.node_attributes[node.at()];
        all.iter().map(|(key, value)| (&**key, &**value))
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// All nodes; parents before their children.
    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        (0..index(self.kinds.len())).map(NodeId)
    }

    /// All nodes of a kind.
    pub fn of_kind(&self, kind: NodeKind) -> impl DoubleEndedIterator<Item = NodeId> + '_ {
        self.nodes().filter(move |&node| self.kind(node) == kind)
    }

    /// What a node is.
    pub fn kind(&self, node: NodeId) -> NodeKind {
        self.kinds[node.at()]
    }

    /// Says what a node is, once that is known better.
    pub fn set_kind(&mut self, node: NodeId, kind: NodeKind) {
        self.kinds[node.at()] = kind;
    }

    /// A node's name, which need not be its alone.
    pub fn name(&self, node: NodeId) -> &str {
        &self.names[node.at()]
    }

    /// Names a node anew.
    pub fn set_name(&mut self, node: NodeId, name: &str) {
        self.names[node.at()] = name.into();
    }

    /// In what a node lies.
    pub fn parent(&self, node: NodeId) -> Option<NodeId> {
        some(self.parents[node.at()]).map(NodeId)
    }

    /// What lies directly in a node, in the order of adding.
    pub fn children(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let mut next = self.first_children[node.at()];
        std::iter::from_fn(move || {
            let child = some(next)?;
            next = self.next_siblings[child as usize];
            Some(NodeId(child))
        })
    }

    /// In what a node lies, from the nearest to the top.
    pub fn ancestors(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        std::iter::successors(self.parent(node), |&node| self.parent(node))
    }

    /// The nearest of a kind in which a node lies.
    pub fn within(&self, node: NodeId, kind: NodeKind) -> Option<NodeId> {
        self.ancestors(node).find(|&node| self.kind(node) == kind)
    }

    /// Where a node is written.
    pub fn origin(&self, node: NodeId) -> Origin {
        self.node_origins[node.at()]
    }

    /// An origin as `file:line`, a path, or "assumed".
    pub fn place(&self, origin: Origin) -> String {
        origin.place(&self.sources)
    }

    /// All names of sources.
    pub fn sources(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().map(|source| &**source)
    }

    /// All edges.
    pub fn edges(&self) -> impl ExactSizeIterator<Item = &Edge> {
        self.edges.iter()
    }

    /// The ids of all edges.
    pub fn edge_ids(&self) -> impl DoubleEndedIterator<Item = EdgeId> + use<> {
        (0..index(self.edges.len())).map(EdgeId)
    }

    /// An edge.
    pub fn edge(&self, edge: EdgeId) -> &Edge {
        &self.edges[edge.0 as usize]
    }

    /// An edge's link, to say more of it.
    pub fn link_mut(&mut self, edge: EdgeId) -> &mut Link {
        &mut self.edges[edge.0 as usize].link
    }

    /// The edges that leave a node, in the order of adding.
    pub fn edges_from(&self, node: NodeId) -> impl Iterator<Item = EdgeId> + '_ {
        let mut next = self.first_edges[node.at()];
        std::iter::from_fn(move || {
            let edge = some(next)?;
            next = self.next_edges[edge as usize];
            Some(EdgeId(edge))
        })
    }

    /// The first edge from one node to another.
    pub fn edge_between(&self, from: NodeId, to: NodeId) -> Option<EdgeId> {
        self.edges_from(from).find(|&edge| self.edge(edge).to == to)
    }

    /// Shared capacities with their ids.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = (GroupId, &Group)> {
        (self.groups.iter().enumerate()).map(|(at, group)| (GroupId(at as u32), group))
    }

    /// A shared capacity.
    pub fn group(&self, group: GroupId) -> &Group {
        &self.groups[group.0 as usize]
    }
}

impl NodeId {
    /// Its place in a table with a row for each node.
    pub fn at(self) -> usize {
        self.0 as usize
    }
}

impl EdgeId {
    /// Its place in a table with a row for each edge.
    pub fn at(self) -> usize {
        self.0 as usize
    }
}

impl GroupId {
    /// Its place in a table with a row for each group.
    pub fn at(self) -> usize {
        self.0 as usize
    }
}

/// No node, or no edge.
const NONE: u32 = u32::MAX;

fn some(index: u32) -> Option<u32> {
    (index != NONE).then_some(index)
}

/// An id for a place in a table.
fn index(at: usize) -> u32 {
    u32::try_from(at)
        .ok()
        .filter(|&at| at != NONE)
        .expect("fewer than 2^32 - 1 of a kind: each takes more than 64 bytes")
}
