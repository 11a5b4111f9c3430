//! Where boxes stand: what lies in a machine below it in rows, all devices in the last; switches of networks above, NVSwitches below.

use super::links::Wire;
use super::page::{Letters, Rect};
use super::view::View;
use crate::topo::graph::NodeKind;
use std::collections::BTreeMap;

/// Where everything is, from the left and the top of the picture's middle part.
#[derive(Debug)]
pub(super) struct Layout {
    /// Of each box; of one around others all that it holds.
    pub(super) at: Vec<Rect>,
    /// Which boxes stand side by side. No two rows have the same number.
    pub(super) rows: Vec<i32>,
    /// By row, how far edges between its boxes reach above them, or below them in the rows of devices and NVSwitches; and from box
    /// to box.
    arcs: BTreeMap<i32, [f64; 2]>,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// The row of devices, that of NVSwitches of machines below it, and that of machines.
pub(super) const DEVICES: i32 = 1000;
const APART: i32 = 1001;
const MACHINES: i32 = -1;

/// How wide boxes can be made at least, so that all go into a room: those that are wider stay so.
fn widest(mut room: f64, boxes: impl Iterator<Item = f64>) -> f64 {
    let mut widths: Vec<f64> = boxes.collect();
    widths.sort_by(|one, other| other.total_cmp(one));
    for (place, width) in widths.iter().enumerate() {
        let each = room / (widths.len() - place) as f64;
        if *width <= each {
            return each;
        }
        room -= width;
    }
    0.0
}

impl Layout {
    pub(super) fn new(view: &View, wires: &[Wire]) -> Layout {
        let count = view.boxes.len();
        let mut layout = Layout {
            at: vec![Rect::default(); count],
            rows: vec![0; count],
            arcs: BTreeMap::new(),
            width: 0.0,
            height: 0.0,
        };
        layout.size(view);
        layout.set_rows(view);
        layout.machines_across(view);
        layout.down(view, wires);
        layout.networks_across(view, wires);
        layout.width = layout.at.iter().map(Rect::right).fold(0.0, f64::max);
        layout
    }

    /// How large each box is, apart from what it holds.
    fn size(&mut self, view: &View) {
        let letters = Letters::PLAIN;
        for (at, shown) in self.at.iter_mut().zip(&view.boxes) {
            let lines = shown.lines.iter().map(|line| letters.width(line));
            let least = match shown.kind {
                NodeKind::Gpu | NodeKind::Npu => NARROWEST_WITH_LINKS,
                _ => NARROWEST,
            };
            at.width = (lines.fold(0.0, f64::max) + 2.0 * PAD).max(least);
            at.height = letters.height() * shown.lines.len() as f64 + PAD;
        }
    }

    fn set_rows(&mut self, view: &View) {
        for (at, shown) in view.boxes.iter().enumerate() {
            let is_leaf = shown.children.is_empty();
            self.rows[at] = match shown.parent {
                Some(_) if view.is_apart(at) => APART,
                _ if is_leaf && is_device(view, at) => DEVICES,
                Some(parent) => self.rows[parent].max(0) + 1,
                None if shown.rank == 0 => MACHINES,
                None if shown.rank > 0 => -1 - shown.rank,
                None => 2000 - shown.rank,
            };
        }
    }

    /// Places what lies in machines, and these, side by side.
    fn machines_across(&mut self, view: &View) {
        let mut needs: Vec<f64> = self.at.iter().map(|at| at.width).collect();
        let row = |needs: &[f64], boxes: &[usize]| {
            let sum: f64 = boxes.iter().map(|&at| needs[at]).sum();
            sum + GAP * boxes.len().saturating_sub(1) as f64
        };
        for (at, shown) in view.boxes.iter().enumerate().rev() {
            let inner = row(&needs, &shown.children).max(row(&needs, &shown.apart));
            needs[at] = match view.is_frame(at) {
                true => (inner + 2.0 * FRAME).max(heading(view, at) + 2.0 * FRAME),
                false => needs[at].max(inner),
            };
        }
        let mut left = 0.0;
        let machines = view.roots.iter().filter(|at| view.boxes[**at].rank == 0);
        let mut lefts = vec![0.0; view.boxes.len()];
        for &at in machines {
            lefts[at] = left;
            left += needs[at] + 2.0 * GAP;
        }
        for (at, shown) in view.boxes.iter().enumerate() {
            if shown.parent.is_none() && shown.rank != 0 {
                continue;
            }
            // NVSwitches are as wide as there is room for: they are joined with all.
            let room = (needs[at] - 2.0 * FRAME) * 0.9 - GAP * shown.apart.len() as f64;
            let wide = widest(room, shown.apart.iter().map(|&apart| needs[apart]));
            for &apart in &shown.apart {
                needs[apart] = needs[apart].max(wide);
                self.at[apart].width = needs[apart];
            }
            for group in [&shown.children, &shown.apart] {
                let mut left = lefts[at] + (needs[at] - row(&needs, group)) / 2.0;
                for &inner in group {
                    lefts[inner] = left;
                    left += needs[inner] + GAP;
                }
            }
            if view.is_frame(at) {
                self.at[at].width = needs[at];
            }
            self.at[at].x = lefts[at] + (needs[at] - self.at[at].width) / 2.0;
        }
    }

    /// Places the rows one below the other.
    fn down(&mut self, view: &View, wires: &[Wire]) {
        let mut rows: Vec<i32> = self.rows.clone();
        rows.sort_unstable();
        rows.dedup();
        let bent = wires
            .iter()
            .map(|wire| wire.ends)
            .filter(|ends| self.rows[ends[0]] == self.rows[ends[1]] && !self.are_straight(*ends));
        let mut arcs: BTreeMap<i32, [f64; 2]> = BTreeMap::new();
        for [one, other] in bent {
            let row = self.rows[one];
            let reach = (self.at[one].centre() - self.at[other].centre()).abs();
            let [high, widest] = arcs.entry(row).or_default();
            *widest = widest.max(reach);
            let most = if row >= DEVICES { MOST_BELOW } else { MOST_ABOVE };
            *high = (24.0 + *widest * 0.12).min(most);
        }
        self.arcs = arcs;
        let crossing = wires
            .iter()
            .filter(|wire| wire.ends.iter().any(|&end| self.rows[end] == APART));
        let above_apart = if crossing.count() > 24 { 110.0 } else { STEP + 14.0 };

        let mut top = 0.0;
        for &row in rows.iter().filter(|row| **row < MACHINES) {
            top += self.room(row);
            top += self.put(row, top) + BETWEEN;
        }
        let frames: Vec<usize> = (0..view.boxes.len()).filter(|&at| view.is_frame(at)).collect();
        let first = top + self.room(MACHINES);
        for &at in &frames {
            self.at[at].height = HEADING;
        }
        let mut end = first + self.put(MACHINES, first);
        top = if frames.is_empty() { first } else { first + HEADING };
        let inner: Vec<i32> = rows
            .iter()
            .copied()
            .filter(|row| (1..=APART).contains(row))
            .collect();
        for (place, &row) in inner.iter().enumerate() {
            let is_below = row == DEVICES || row == APART;
            top += match (place, row) {
                (0, _) => 0.0,
                (_, APART) => above_apart,
                _ => STEP,
            };
            top += if is_below { 0.0 } else { self.room(row) };
            top += self.put(row, top);
            top += if is_below { self.room(row) } else { 0.0 };
        }
        end = top.max(end);
        if !frames.is_empty() {
            end += FRAME;
        }
        for at in frames {
            self.at[at].height = end - first;
        }
        for &row in rows.iter().filter(|row| **row > APART) {
            end += BETWEEN;
            end += self.put(row, end);
        }
        self.height = end;
    }

    /// What edges between a row's boxes take beside them.
    fn room(&self, row: i32) -> f64 {
        self.arcs.get(&row).map_or(0.0, |[high, _]| high + 6.0)
    }

    /// How far an edge between two boxes of a row goes aside: the further, the further they are apart.
    pub(super) fn bend(&self, row: i32, reach: f64) -> f64 {
        let [high, widest] = self.arcs.get(&row).copied().unwrap_or([24.0, reach]);
        14.0 + (high - 14.0) * (reach / widest.max(1.0)).min(1.0)
    }

    /// Puts a row's boxes there, and says how high the highest is.
    fn put(&mut self, row: i32, top: f64) -> f64 {
        let mut height: f64 = 0.0;
        for (at, _) in self.at.iter_mut().zip(&self.rows).filter(|(_, of)| **of == row) {
            at.y = top;
            height = height.max(at.height);
        }
        height
    }

    /// Whether an edge between two boxes of a row is straight: there is nothing between them, and they are no devices.
    pub(super) fn are_straight(&self, ends: [usize; 2]) -> bool {
        self.rows[ends[0]] != DEVICES && self.are_beside(ends)
    }

    /// Whether nothing stands between two boxes of a row.
    fn are_beside(&self, [one, other]: [usize; 2]) -> bool {
        let (left, right) = match self.at[one].x < self.at[other].x {
            true => (self.at[one].right(), self.at[other].x),
            false => (self.at[other].right(), self.at[one].x),
        };
        let is_between = |at: usize| {
            self.rows[at] == self.rows[one] && self.at[at].x >= left && self.at[at].right() <= right
        };
        !(0..self.at.len()).any(|at| at != one && at != other && is_between(at))
    }

    /// Places what is above and below machines: each over the middle of what it joins, as far as there is room.
    fn networks_across(&mut self, view: &View, wires: &[Wire]) {
        let machines = (view.roots.iter()).filter(|at| view.boxes[**at].rank == 0);
        let middle = machines.map(|&at| self.at[at].right()).fold(0.0, f64::max) / 2.0;
        let mut ranks: Vec<i32> = view.roots.iter().map(|&at| view.boxes[at].rank).collect();
        ranks.sort_unstable_by_key(|&rank| if rank < 0 { 100 - rank } else { rank });
        ranks.dedup();
        for rank in ranks.into_iter().filter(|&rank| rank != 0) {
            let mut row: Vec<(f64, usize)> = Vec::new();
            for &at in view.roots.iter().filter(|at| view.boxes[**at].rank == rank) {
                let below = wires.iter().filter_map(|wire| {
                    let other = wire.ends[usize::from(wire.ends[0] == at)];
                    let height = view.boxes[other].rank;
                    let is_known = if rank < 0 {
                        height >= 0
                    } else {
                        (0..rank).contains(&height)
                    };
                    (wire.ends.contains(&at) && is_known).then(|| self.at[other].centre())
                });
                let (count, sum) = below.fold((0.0, 0.0), |(count, sum), x| (count + 1.0, sum + x));
                row.push((if count > 0.0 { sum / count } else { middle }, at));
            }
            row.sort_by(|one, other| one.0.total_cmp(&other.0));
            let (mut left, mut off) = (f64::MIN, 0.0);
            for &(wanted, at) in &row {
                let x = (wanted - self.at[at].width / 2.0).max(left);
                off += x + self.at[at].width / 2.0 - wanted;
                self.at[at].x = x;
                left = x + self.at[at].width + GAP;
            }
            let shift = off / row.len() as f64;
            for &(_, at) in &row {
                self.at[at].x -= shift;
            }
        }
        let left = self.at.iter().map(|at| at.x).fold(f64::MAX, f64::min);
        if left < 0.0 {
            self.at.iter_mut().for_each(|at| at.x -= left);
        }
    }

    /// Moves all.
    pub(super) fn shift(&mut self, x: f64, y: f64) {
        for at in &mut self.at {
            at.x += x;
            at.y += y;
        }
    }
}

/// Pixels of the line that says what a box around others is.
fn heading(view: &View, at: usize) -> f64 {
    Letters::BOLD.width(&view.boxes[at].lines.join("  "))
}

fn is_device(view: &View, at: usize) -> bool {
    matches!(
        view.boxes[at].kind,
        NodeKind::Gpu
            | NodeKind::Npu
            | NodeKind::Nic
            | NodeKind::PciFunction
            | NodeKind::Rank
            | NodeKind::NicPort
    )
}

const PAD: f64 = 7.0;
const NARROWEST: f64 = 40.0;
const NARROWEST_WITH_LINKS: f64 = 66.0;
const GAP: f64 = 10.0;
/// Between a frame and what it holds.
const FRAME: f64 = 14.0;
/// The height of a frame's line of words.
const HEADING: f64 = 34.0;
/// How far edges between boxes of a row reach above or below it, at most.
const MOST_ABOVE: f64 = 56.0;
const MOST_BELOW: f64 = 150.0;
/// Between rows of a machine, and between those of networks.
const STEP: f64 = 34.0;
const BETWEEN: f64 = 64.0;
