//! Messages on their way: what share of each edge they get, and when they end.
//!
//! Rates are max-min fair: no flow gets more at the cost of one that has less. They are those of progressive filling, found from
//! the edges that changed: an edge's *level* is the most that a flow can have there, given what others let its flows have, and a
//! flow has the least level of its edges. An edge is looked at again when the level of a neighbour changed so that it matters.
//! Where nothing changes any more each flow has an edge that is full and on which none has more, which is what max-min fair
//! means; that is reached because the lowest levels settle first and then stay.
//!
//! Source: A. Charny, D. Clark and R. Jain, "Congestion control with explicit rate indication", 1995, for the iteration.

use super::model::Model;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// All flows: at most one for each lane, which stands for as many as its class has.
pub(super) struct Flows<'m> {
    model: &'m Model,
    /// Of each lane's flow, where it has one.
    flows: Vec<Flow>,
    levels: Vec<f64>,
    /// Which crossings of flows there are on each edge.
    crossing: Vec<Vec<u32>>,
    /// The place of a crossing in that list, and its lane.
    places: Vec<u32>,
    lane_of: Vec<u32>,
    dirty: VecDeque<u32>,
    is_dirty: Vec<bool>,
    touched: Vec<u32>,
    is_touched: Vec<bool>,
    /// By time; lanes that start are marked.
    events: BinaryHeap<Reverse<(u64, u32)>>,
    limits: Vec<(f64, f64)>,
    /// Crossings of edges whose shares were looked at.
    pub(super) looked_at: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Flow {
    is_active: bool,
    left: f64,
    rate: f64,
    since: u64,
    end: u64,
    /// When it is looked at whether it has ended, which is no later than it does.
    looked_at: u64,
}

/// Marks a lane.
const START: u32 = 1 << 31;

/// Never.
const NEVER: u64 = u64::MAX;

/// What happens to a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// A message may leave.
    Start,
    /// All of it has left.
    End,
}

/// Rates that differ by less, relatively, are the same.
const SAME: f64 = 1e-13;

impl<'m> Flows<'m> {
    pub(super) fn new(model: &'m Model) -> Self {
        let (edges, lanes) = (model.capacities.len(), model.lanes.len());
        let mut lane_of = vec![0; model.crossings.len()];
        for (at, lane) in model.lanes.iter().enumerate() {
            lane_of[lane.crossings.clone()].fill(at as u32);
        }
        Flows {
            model,
            flows: vec![Flow::default(); lanes],
            levels: vec![f64::INFINITY; edges],
            crossing: vec![Vec::new(); edges],
            places: vec![0; model.crossings.len()],
            lane_of,
            dirty: VecDeque::new(),
            is_dirty: vec![false; edges],
            touched: Vec::new(),
            is_touched: vec![false; lanes],
            events: BinaryHeap::new(),
            limits: Vec::new(),
            looked_at: 0,
        }
    }

    /// Has a lane's next message start at a moment that is not over.
    pub(super) fn plan(&mut self, at: u64, lane: u32) {
        self.events.push(Reverse((at, lane | START)));
    }

    /// When something may happen next.
    pub(super) fn next(&self) -> Option<u64> {
        self.events.peek().map(|Reverse((at, _))| *at)
    }

    /// What happens next, if it is at `now`.
    pub(super) fn take(&mut self, now: u64) -> Option<(u32, Event)> {
        while self.next()? == now {
            let Reverse((_, marked)) = self.events.pop()?;
            let lane = marked & !START;
            if marked != lane {
                return Some((lane, Event::Start));
            }
            let flow = &mut self.flows[lane as usize];
            if !flow.is_active || flow.looked_at != now {
                continue;
            }
            if flow.end == now {
                return Some((lane, Event::End));
            }
            flow.looked_at = flow.end; // It has become slower.
            self.events.push(Reverse((flow.end, lane)));
        }
        None
    }

    /// A message of so many bytes is on its way.
    pub(super) fn start(&mut self, now: u64, lane: u32, bytes: f64) {
        self.flows[lane as usize] = Flow {
            is_active: true,
            left: bytes,
            rate: 0.0,
            since: now,
            end: NEVER,
            looked_at: NEVER,
        };
        for at in self.model.lanes[lane as usize].crossings.clone() {
            let edge = self.model.crossings[at].0;
            self.places[at] = self.crossing[edge as usize].len() as u32;
            self.crossing[edge as usize].push(at as u32);
            self.mark(edge);
        }
        self.touch(lane);
    }

    /// It has left.
    pub(super) fn end(&mut self, lane: u32) {
        self.flows[lane as usize].is_active = false;
        for at in self.model.lanes[lane as usize].crossings.clone() {
            let edge = self.model.crossings[at].0;
            let list = &mut self.crossing[edge as usize];
            let place = self.places[at] as usize;
            list.swap_remove(place);
            if let Some(&moved) = list.get(place) {
                self.places[moved as usize] = place as u32;
            }
            self.mark(edge);
        }
    }

    fn mark(&mut self, edge: u32) {
        if !std::mem::replace(&mut self.is_dirty[edge as usize], true) {
            self.dirty.push_back(edge);
        }
    }

    fn touch(&mut self, lane: u32) {
        if !std::mem::replace(&mut self.is_touched[lane as usize], true) {
            self.touched.push(lane);
        }
    }

    /// Finds the rates after all that started and ended at `now`.
    pub(super) fn settle(&mut self, now: u64) {
        while let Some(edge) = self.dirty.pop_front() {
            self.is_dirty[edge as usize] = false;
            let (old, new) = (self.levels[edge as usize], self.level(edge));
            // What differs by rounding alone would go round for ever.
            if new == old || (old.is_finite() && (new - old).abs() <= SAME * old) {
                continue;
            }
            self.levels[edge as usize] = new;
            let least = old.min(new);
            for at in 0..self.crossing[edge as usize].len() {
                let lane = self.lane_of[self.crossing[edge as usize][at] as usize];
                self.touch(lane);
                for other in self.model.lanes[lane as usize].crossings.clone() {
                    let other = self.model.crossings[other].0;
                    if other != edge && least < self.levels[other as usize] {
                        self.mark(other);
                    }
                }
            }
        }
        let mut touched = std::mem::take(&mut self.touched);
        for lane in touched.drain(..) {
            self.is_touched[lane as usize] = false;
            let rate = self.rate_of(lane);
            let flow = &mut self.flows[lane as usize];
            if !flow.is_active || (rate - flow.rate).abs() <= SAME * flow.rate {
                continue;
            }
            flow.left = (flow.left - flow.rate * (now - flow.since) as f64).max(0.0);
            (flow.rate, flow.since) = (rate, now);
            let took = (flow.left / rate).round() as u64;
            flow.end = now.saturating_add(took).min(NEVER - 1);
            if flow.end < flow.looked_at {
                flow.looked_at = flow.end;
                self.events.push(Reverse((flow.end, lane)));
            }
        }
        self.touched = touched;
    }

    fn rate_of(&self, lane: u32) -> f64 {
        let crossings = &self.model.crossings[self.model.lanes[lane as usize].crossings.clone()];
        let levels = crossings.iter().map(|(edge, _)| self.levels[*edge as usize]);
        levels.fold(f64::INFINITY, f64::min)
    }

    /// The most that a flow can have on an edge: as much as is there if all that are held back elsewhere have what they can.
    fn level(&mut self, edge: u32) -> f64 {
        let mut left = self.model.capacities[edge as usize];
        let crossing = &self.crossing[edge as usize];
        self.looked_at += crossing.len() as u64 + 1;
        if let [one] = crossing.as_slice() {
            return left / self.model.crossings[*one as usize].1;
        }
        let mut limits = std::mem::take(&mut self.limits);
        limits.clear();
        let mut flows = 0.0;
        for &at in crossing {
            let lane = &self.model.lanes[self.lane_of[at as usize] as usize];
            let others = self.model.crossings[lane.crossings.clone()].iter();
            let others = others.filter(|(other, _)| *other != edge);
            let limit = others.fold(f64::INFINITY, |least, (other, _)| {
                least.min(self.levels[*other as usize])
            });
            let times = self.model.crossings[at as usize].1;
            flows += times;
            limits.push((limit, times));
        }
        // Those that are held back most first, as long as they have less than an equal share.
        let share = left / flows;
        let mut level = share;
        if limits.iter().any(|(limit, _)| *limit < share * (1.0 - SAME)) {
            limits.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
            level = f64::INFINITY;
            for &(limit, times) in &limits {
                if limit * flows >= left {
                    level = left / flows;
                    break;
                }
                left -= limit * times;
                flows -= times;
            }
        }
        self.limits = limits;
        level
    }
}

#[cfg(test)]
impl Flows<'_> {
    /// Rates of all flows that are on their way: bytes in a femtosecond.
    pub(super) fn rates(&self) -> Vec<f64> {
        self.flows
            .iter()
            .map(|flow| if flow.is_active { flow.rate } else { 0.0 })
            .collect()
    }
}
