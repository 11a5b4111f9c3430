//! Rings and trees below the devices of a picture, each in a lane of its own: every device in the column of its box.

use super::colours::of_number;
use super::machine::{Drawn, MARGIN, note};
use super::names::Names;
use super::page::{Letters, Page, Rect, Shape, pair};
use crate::topo::{
    graph::{Graph, NodeId},
    search::{Found, Task},
    show::giga,
};
use std::collections::BTreeMap;

/// Channels of a kind, those that are alike as one.
#[derive(Debug)]
pub(super) struct Lanes {
    kind: &'static str,
    count: usize,
    together: u64,
    lanes: Vec<Lane>,
    names: BTreeMap<NodeId, String>,
}

/// Who sends to whom.
#[derive(Debug, PartialEq)]
struct Lane {
    numbers: Vec<usize>,
    bytes_per_second: u64,
    hops: Vec<(NodeId, NodeId)>,
    /// How deep each stands: of a ring all alike.
    depths: Vec<(NodeId, usize)>,
}

impl Lane {
    fn new(hops: Vec<(NodeId, NodeId)>, depths: Vec<(NodeId, usize)>, bytes_per_second: u64) -> Lane {
        Lane {
            numbers: Vec::new(),
            bytes_per_second,
            hops,
            depths,
        }
    }
}

impl Lanes {
    pub(super) fn rings(graph: &Graph, found: &Found) -> Lanes {
        let lanes = found.rings.iter().map(|ring| {
            let mut order = ring.order.clone();
            match ring.nics {
                Some([enter, leave]) => {
                    order.insert(0, enter);
                    order.push(leave);
                }
                None => order.extend(ring.order.first()),
            }
            let hops: Vec<_> = order.windows(2).map(|pair| (pair[0], pair[1])).collect();
            let mut depths: Vec<(NodeId, usize)> = order.into_iter().map(|node| (node, 0)).collect();
            depths.sort_unstable();
            depths.dedup();
            Lane::new(hops, depths, ring.bytes_per_second)
        });
        Lanes::new(graph, "ring", lanes.collect(), found.ring_bandwidth())
    }

    pub(super) fn trees(graph: &Graph, found: &Found) -> Lanes {
        let lanes = found.trees.iter().map(|tree| {
            let mut hops: Vec<_> = tree.nic.map(|nic| (nic, tree.root)).into_iter().collect();
            hops.extend(&tree.edges);
            let mut depths: BTreeMap<NodeId, usize> = BTreeMap::new();
            depths.insert(tree.nic.unwrap_or(tree.root), 0);
            for (parent, child) in &hops {
                let depth = depths.get(parent).copied().unwrap_or(0) + 1;
                depths.insert(*child, depth);
            }
            Lane::new(hops, depths.into_iter().collect(), tree.bytes_per_second)
        });
        Lanes::new(graph, "tree", lanes.collect(), found.tree_bandwidth())
    }

    fn new(graph: &Graph, kind: &'static str, all: Vec<Lane>, together: u64) -> Lanes {
        let count = all.len();
        let mut lanes: Vec<Lane> = Vec::new();
        let short = Names::new(graph);
        let mut names = BTreeMap::new();
        for (number, mut one) in all.into_iter().enumerate() {
            for (node, _) in &one.depths {
                names.entry(*node).or_insert_with(|| short.of(graph, *node));
            }
            let like = lanes
                .iter_mut()
                .find(|lane| lane.hops == one.hops && lane.bytes_per_second == one.bytes_per_second);
            match like {
                Some(lane) => lane.numbers.push(number),
                None => {
                    one.numbers.push(number);
                    lanes.push(one);
                }
            }
        }
        Lanes {
            kind,
            count,
            together,
            lanes,
            names,
        }
    }

    /// What there is, in a line.
    pub(super) fn about(&self, task: &Task) -> String {
        let plural = if self.count == 1 { "" } else { "s" };
        let hosts = match task.hosts {
            1 => String::new(),
            hosts => format!(" of each of {hosts} hosts"),
        };
        format!(
            "{} {}{plural} over {} endpoints{hosts}, {} GB/s together",
            self.count,
            self.kind,
            task.endpoints.len(),
            giga(self.together)
        )
    }

    /// Draws them below all that there is.
    ///
    /// # Errors
    /// If there are none, or their devices are not all in the picture.
    pub(super) fn draw(&self, drawn: &mut Drawn) -> Result<(), String> {
        if self.lanes.is_empty() {
            return Err(format!(
                "there is no {} to draw: ccl-topo rings tells why",
                self.kind
            ));
        }
        let mut columns: BTreeMap<NodeId, f64> = BTreeMap::new();
        for node in self.names.keys() {
            let at = drawn.view.of(*node).filter(|_| drawn.view.is_there(*node));
            let at = at.filter(|at| drawn.view.boxes[*at].node == *node && drawn.view.boxes[*at].alike == 1);
            let at =
                at.ok_or_else(|| format!("{}s over more devices than a picture has room for", self.kind))?;
            columns.insert(*node, drawn.layout.at[at].centre());
        }
        let room = spread(&mut columns);
        let last = columns.values().copied().fold(0.0, f64::max);
        drawn.page.width = drawn.page.width.max(last + room / 2.0 + MARGIN);
        for (place, lane) in self.lanes.iter().take(MOST_LANES).enumerate() {
            self.lane(&mut drawn.page, lane, of_number(place), &columns, room);
        }
        let more = self.lanes.len().saturating_sub(MOST_LANES);
        if more > 0 {
            note(&mut drawn.page, &format!("and {more} more {}s", self.kind));
        }
        drawn.page.height += 8.0;
        Ok(())
    }

    fn lane(
        &self,
        page: &mut Page,
        lane: &Lane,
        colour: &'static str,
        columns: &BTreeMap<NodeId, f64>,
        room: f64,
    ) {
        let letters = Letters {
            colour,
            ..Letters::BOLD
        };
        let text = self.told(lane);
        let text = letters.cut(&text, page.width - 2.0 * MARGIN);
        page.label(&text, (MARGIN, page.height), letters, None);
        page.height += letters.height() + 6.0;
        let is_flat = lane.depths.iter().all(|(_, depth)| *depth == 0);
        let reach = |(from, to): &(NodeId, NodeId)| match (columns.get(from), columns.get(to)) {
            (Some(from), Some(to)) => height(*from, *to, page.width),
            _ => 0.0,
        };
        let highest = lane.hops.iter().map(reach).fold(0.0, f64::max);
        let top = page.height + if is_flat { highest } else { 0.0 };
        let deepest = lane.depths.iter().map(|(_, depth)| *depth).max().unwrap_or(0);
        let step = if deepest > 16 { PILL + 8.0 } else { PILL + 27.0 };
        let depths: BTreeMap<NodeId, usize> = lane.depths.iter().copied().collect();
        let place = |node: &NodeId| {
            let (x, depth) = (columns.get(node).copied()?, *depths.get(node)?);
            Some((x, top + step * depth as f64))
        };
        let widest = page.width;
        for (from, to) in &lane.hops {
            let (Some(from), Some(to)) = (place(from), place(to)) else {
                continue;
            };
            let hop = if is_flat {
                arc(from, to, widest)
            } else {
                fall(from, to)
            };
            page.add(hop.stroke(colour, 1.8), "");
            let x = if is_flat { to.0 + aside(from, to) } else { to.0 };
            let head = [(x - 3.5, to.1 - 6.5), (x + 3.5, to.1 - 6.5), (x, to.1 - 0.5)].map(pair);
            let head = Shape::path(&format!("M{} L{} L{} Z", head[0], head[1], head[2]));
            page.add(head.fill(colour), "");
        }
        for (node, _) in &lane.depths {
            let (Some((x, y)), Some(name)) = (place(node), self.names.get(node)) else {
                continue;
            };
            let name = Letters::PLAIN.cut(name, room - 14.0);
            let width = Letters::PLAIN.width(&name) + 8.0;
            let at = Rect {
                x: x - width / 2.0,
                y,
                width,
                height: PILL,
            };
            page.add(Shape::rect(at, 7.0).fill("#ffffff").stroke(colour, 1.4), "");
            page.centred(&name, x, y + 1.5, Letters::PLAIN, Some(at));
        }
        page.height = top + step * deepest as f64 + PILL + 14.0;
    }

    fn told(&self, lane: &Lane) -> String {
        let speed = giga(lane.bytes_per_second);
        match lane.numbers.as_slice() {
            [number] => format!("{} {number}: {speed} GB/s", self.kind),
            numbers => format!("{} × {}: {speed} GB/s each", numbers.len(), self.kind),
        }
    }
}

/// Moves columns apart that are too near for names, and says how near they are then.
fn spread(columns: &mut BTreeMap<NodeId, f64>) -> f64 {
    let mut order: Vec<&mut f64> = columns.values_mut().collect();
    order.sort_by(|one, other| one.total_cmp(other));
    let (mut nearest, mut last): (f64, Option<f64>) = (90.0, None);
    for x in order {
        if let Some(last) = last {
            *x = x.max(last + NEAREST);
            nearest = nearest.min(*x - last);
        }
        last = Some(*x);
    }
    nearest
}

/// Where a hop's end is aside of the middle, so that those there and back differ.
fn aside(from: (f64, f64), to: (f64, f64)) -> f64 {
    if from.0 < to.0 { -5.0 } else { 5.0 }
}

/// How high a hop of a ring goes.
fn height(from: f64, to: f64, widest: f64) -> f64 {
    let back = if from > to { 6.0 } else { 0.0 };
    (14.0 + back + (to - from).abs() / widest * (ARC - 20.0)).min(ARC)
}

fn arc(from: (f64, f64), to: (f64, f64), widest: f64) -> Shape {
    let high = height(from.0, to.0, widest) / 0.75;
    let by = aside(from, to);
    let (from, to) = ((from.0 - by, from.1), (to.0 + by, to.1 - 3.0));
    Shape::curve(from, (from.0, from.1 - high), (to.0, to.1 - high), to)
}

fn fall(from: (f64, f64), to: (f64, f64)) -> Shape {
    let from = (from.0, from.1 + PILL);
    let half = (to.1 - from.1) / 2.0;
    let end = (to.0, to.1 - 3.0);
    Shape::curve(from, (from.0, from.1 + half), (to.0, to.1 - half), end)
}

/// How high the longest hops of rings are, and devices' names.
const ARC: f64 = 72.0;
const PILL: f64 = 17.0;

const NEAREST: f64 = 50.0;

const MOST_LANES: usize = 16;
