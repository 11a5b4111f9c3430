//! What NVML adds to sysfs: NVLinks and to whom they lead, compute capabilities, names and fabrics of GPUs.

use super::Reader;
use crate::{
    sys::nvml::{self, End, Gpu, Silence},
    topo::{
        graph::{Confidence, Link, LinkKind, NodeId, NodeKind, Origin},
        pci,
        read::nccl_words as words,
        speeds,
    },
};
use std::{collections::BTreeMap, ffi::OsStr};

/// Links of a GPU to one target.
struct Row {
    gpu: NodeId,
    target: String,
    end: End,
    wires: u32,
    /// Of all together.
    bytes_per_second: u64,
}

impl Reader<'_> {
    /// Asks the library of that name or path. Where it is not there, or has no driver, nothing is told: most machines have none.
    pub(super) fn ask_nvml(&mut self, library: &OsStr) {
        match nvml::gpus(library) {
            Ok(gpus) => self.gpus(&gpus),
            Err(Silence::Absent(why)) => tracing::debug!("no NVML: {why}"),
            Err(Silence::Broken(why)) => {
                self.tell(format!("NVML does not answer, so NVLinks are not known: {why}"))
            }
        }
    }

    pub(super) fn gpus(&mut self, gpus: &[Gpu]) {
        let mut rows = Vec::new();
        for gpu in gpus {
            let bus_id = pci::bus_id(&gpu.bus_id);
            let Some(&node) = self.functions.get(&bus_id) else {
                self.tell(format!("NVML has a GPU {bus_id}, which sysfs has not: left out"));
                continue;
            };
            self.describe(node, gpu);
            rows.extend(self.rows(node, gpu));
        }
        self.join_gpus(&rows);
    }

    fn describe(&mut self, node: NodeId, gpu: &Gpu) {
        self.graph.set(node, "dev", &gpu.index.to_string());
        if let Some(sm) = gpu.sm {
            self.graph.set(node, "sm", &sm.to_string());
        }
        if let Some(uuid) = &gpu.uuid {
            self.graph.set(node, "uuid", uuid);
        }
        if let Some(fabric) = &gpu.fabric {
            self.graph.set(node, "fabric_cluster", &fabric.cluster);
            self.graph.set(node, "fabric_clique", &fabric.clique.to_string());
        }
    }

    /// A row for each target, in the order of their bus ids.
    fn rows(&self, node: NodeId, gpu: &Gpu) -> Vec<Row> {
        let mut rows: BTreeMap<String, Row> = BTreeMap::new();
        for link in &gpu.links {
            let target = pci::bus_id(&link.bus_id);
            let by_sysfs = self.functions.get(&target).map(|node| self.graph.kind(*node));
            let end = match (link.end, by_sysfs) {
                (End::Unknown, Some(NodeKind::NvSwitch)) => End::Switch,
                (End::Unknown, Some(NodeKind::Gpu)) => End::Gpu,
                (End::Unknown, None) if is_hidden(&target) => End::Switch,
                (end, _) => end,
            };
            let by_version = link.version.and_then(speeds::nvlink_version);
            let speed = match (gpu.sm, by_version) {
                (None, Some(most)) => most,
                (sm, most) => speeds::nvlink(sm).min(most.unwrap_or(u64::MAX)),
            };
            let row = rows.entry(target.clone()).or_insert(Row {
                gpu: node,
                target,
                end,
                wires: 0,
                bytes_per_second: 0,
            });
            row.wires += 1;
            row.bytes_per_second += speed;
        }
        rows.into_values().collect()
    }

    /// Links are edges to GPUs, to a processor, and to one switch: hardware spreads data over all switches.
    fn join_gpus(&mut self, rows: &[Row]) {
        let origin = Origin::whole(self.graph.source("NVML"));
        let switch = self.switch(rows, origin);
        let mut edges: BTreeMap<(NodeId, NodeId), Link> = BTreeMap::new();
        for row in rows {
            let target = match row.end {
                End::Gpu => self.functions.get(&row.target).copied(),
                End::Switch => switch,
                End::Processor => self.graph.within(row.gpu, NodeKind::Numa),
                End::Unknown => None,
            };
            let name = self.graph.name(row.gpu).to_owned();
            let Some(target) = target.filter(|target| *target != row.gpu) else {
                let why = if name == row.target {
                    "itself: whereto they lead is not known"
                } else {
                    &format!("{}, which is not here", row.target)
                };
                self.tell(format!("{name} has {} NVLinks to {why}; not used", row.wires));
                continue;
            };
            if self.graph.get(target, "busid").is_none() {
                self.keep(row);
            }
            let link = Link::new(LinkKind::NvLink, origin);
            let ways = match row.end {
                End::Gpu => vec![(row.gpu, target)],
                _ => vec![(row.gpu, target), (target, row.gpu)],
            };
            for way in ways {
                let before = edges.get(&way).copied();
                let wires = before.map_or(0, |before| before.wires) + row.wires;
                let bytes = before.map_or(0, |before| before.bytes_per_second) + row.bytes_per_second;
                edges.insert(way, Link { wires, ..link }.speed(bytes, Confidence::Assumed));
            }
        }
        self.pair_up(&mut edges);
        for ((from, to), link) in edges {
            self.graph.add_edge(from, to, link);
        }
    }

    /// A link has two ends, also where NVML tells of only one.
    fn pair_up(&mut self, edges: &mut BTreeMap<(NodeId, NodeId), Link>) {
        let all: Vec<_> = edges.iter().map(|(ends, link)| (*ends, *link)).collect();
        for ((from, to), link) in all {
            let names = [from, to].map(|node| self.graph.name(node).to_owned());
            let [one, other] = &names;
            match edges.get(&(to, from)).map(|back| back.wires) {
                None => {
                    edges.insert((to, from), link);
                    self.tell(format!(
                        "{one} has NVLinks to {other}, but not back: taken as both ways"
                    ));
                }
                Some(back) if back != link.wires && from < to => {
                    let wires = link.wires;
                    self.tell(format!(
                        "{one} has {wires} NVLinks to {other}, which has {back} back: each way kept"
                    ));
                }
                Some(_) => {}
            }
        }
    }

    /// The switch to which all links to switches lead: the first that sysfs has, or else one that stands for those of this host,
    /// or for a fabric of several hosts whose switches nobody sees.
    fn switch(&mut self, rows: &[Row], origin: Origin) -> Option<NodeId> {
        let to_switch = || rows.iter().filter(|row| row.end == End::Switch);
        to_switch().next()?;
        let seen = to_switch().filter_map(|row| Some((&row.target, *self.functions.get(&row.target)?)));
        let first = seen
            .filter(|(_, node)| self.graph.kind(*node) == NodeKind::NvSwitch)
            .min();
        Some(match first {
            Some((_, node)) => node,
            None if to_switch().all(|row| is_hidden(&row.target)) => {
                self.graph
                    .add_node(NodeKind::NvSwitch, "NVLink fabric", None, origin)
            }
            None => self
                .graph
                .add_node(NodeKind::NvSwitch, "NVSwitch", Some(self.host), origin),
        })
    }

    /// Keeps a row as a reader of NCCL's file does, where the target has no bus id by which to write it.
    fn keep(&mut self, row: &Row) {
        let class = match row.end {
            End::Processor => "0x068001",
            _ => "0x068000",
        };
        let key = format!("{}nvlink {}", words::LINK_PREFIX, row.target);
        let words = format!("count={} tclass={class}", row.wires);
        self.graph.set(row.gpu, &key, &words);
    }
}

/// Whether a bus id is that of a switch which this host does not see.
fn is_hidden(bus_id: &str) -> bool {
    bus_id.starts_with("fffffff")
}
