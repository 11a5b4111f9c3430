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
use super::queue::Queue;
use std::collections::VecDeque;

/// All flows: at most one for each lane, which stands for as many as its class has.
pub(super) struct Flows {
    /// Of each lane's flow, where it has one.
    flows: Vec<Flow>,
    /// The edges of all lanes.
    crossings: Vec<Crossing>,
    edges: Vec<Edge>,
    /// The crossings of flows that there are, edge by edge, with their lanes.
    over: Vec<[u32; 2]>,
    dirty: VecDeque<u32>,
    touched: Vec<u32>,
    /// Lanes; those that start are marked.
    events: Queue,
    limits: Vec<(f64, f64)>,
    /// Crossings of edges whose shares were looked at.
    pub(super) looked_at: u64,
}

/// An edge: what is looked at together lies together.
#[derive(Debug, Clone, Copy)]
struct Edge {
    level: f64,
    /// Bytes in a femtosecond.
    capacity: f64,
    /// Where its crossings begin, and how many there are of flows.
    first: u32,
    flows: u32,
    is_dirty: bool,
}

/// A lane that goes over an edge.
#[derive(Debug, Clone, Copy)]
struct Crossing {
    edge: u32,
    /// Where it is in `over`, while there is a flow.
    place: u32,
    /// How many lanes of the class do so.
    times: f64,
}

/// In a line of a cache of its own.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Flow {
    left: f64,
    rate: f64,
    since: u64,
    end: u64,
    /// When it is looked at whether it has ended, which is no later than it does.
    looked_at: u64,
    /// Its lane's crossings, and how many.
    first: u32,
    crossings: u32,
    is_active: bool,
    is_touched: bool,
}

impl Flow {
    fn crossings(&self) -> std::ops::Range<usize> {
        self.first as usize..(self.first + self.crossings) as usize
    }
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

impl Edge {
    /// Where the crossings of its flows are.
    fn over(&self) -> std::ops::Range<usize> {
        self.first as usize..(self.first + self.flows) as usize
    }
}

impl Flows {
    pub(super) fn new(model: &Model) -> Self {
        let flow = |line: &super::model::Line| Flow {
            left: 0.0,
            rate: 0.0,
            since: 0,
            end: NEVER,
            looked_at: NEVER,
            first: line.crossings.start as u32,
            crossings: line.crossings.len() as u32,
            is_active: false,
            is_touched: false,
        };
        let crossing = |&(edge, times): &(u32, f64)| Crossing {
            edge,
            place: 0,
            times,
        };
        let mut room = vec![0; model.capacities.len()];
        model
            .crossings
            .iter()
            .for_each(|(edge, _)| room[*edge as usize] += 1);
        let mut first = 0;
        let edge = |(&capacity, room): (&f64, u32)| {
            first += room;
            Edge {
                level: f64::INFINITY,
                capacity,
                first: first - room,
                flows: 0,
                is_dirty: false,
            }
        };
        let edges = model.capacities.iter().zip(room).map(edge).collect();
        Flows {
            flows: model.lanes.iter().map(flow).collect(),
            crossings: model.crossings.iter().map(crossing).collect(),
            edges,
            over: vec![[0; 2]; model.crossings.len()],
            dirty: VecDeque::new(),
            touched: Vec::new(),
            events: Queue::new(),
            limits: Vec::new(),
            looked_at: 0,
        }
    }

    /// Has a lane's next message start at a moment that is not over.
    pub(super) fn plan(&mut self, at: u64, lane: u32) {
        self.events.push(at, lane | START);
    }

    /// Goes on to when something may happen next.
    pub(super) fn next(&mut self) -> Option<u64> {
        self.events.next()
    }

    /// What else happens at `now`, to which [`Flows::next`] has led.
    pub(super) fn take(&mut self, now: u64) -> Option<(u32, Event)> {
        loop {
            let marked = self.events.take()?;
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
            self.events.push(flow.end, lane);
        }
    }

    /// A message of so many bytes is on its way.
    pub(super) fn start(&mut self, now: u64, lane: u32, bytes: f64) {
        let flow = &mut self.flows[lane as usize];
        *flow = Flow {
            is_active: true,
            left: bytes,
            rate: 0.0,
            since: now,
            end: NEVER,
            looked_at: NEVER,
            ..*flow
        };
        // Where it is alone it has all there is, whatever others have elsewhere.
        let mut alone = f64::INFINITY;
        let mut shares = false;
        for at in flow.crossings() {
            let crossing = &mut self.crossings[at];
            let number = crossing.edge;
            let edge = &mut self.edges[number as usize];
            crossing.place = edge.first + edge.flows;
            self.over[crossing.place as usize] = [at as u32, lane];
            edge.flows += 1;
            if edge.flows == 1 {
                edge.level = edge.capacity / crossing.times;
                alone = alone.min(edge.level);
                self.looked_at += 1;
            } else {
                shares = true;
                self.mark(number);
            }
        }
        match shares {
            true => self.touch(lane),
            false => self.set_rate(now, lane, alone),
        }
    }

    /// It has left.
    pub(super) fn end(&mut self, lane: u32) {
        let flow = &mut self.flows[lane as usize];
        flow.is_active = false;
        for at in flow.crossings() {
            let Crossing {
                edge: number, place, ..
            } = self.crossings[at];
            let edge = &mut self.edges[number as usize];
            edge.flows -= 1;
            if edge.flows == 0 {
                edge.level = f64::INFINITY;
                continue;
            }
            // The last one takes its place.
            let moved = self.over[(edge.first + edge.flows) as usize];
            self.over[place as usize] = moved;
            self.crossings[moved[0] as usize].place = place;
            self.mark(number);
        }
    }

    fn mark(&mut self, edge: u32) {
        if !std::mem::replace(&mut self.edges[edge as usize].is_dirty, true) {
            self.dirty.push_back(edge);
        }
    }

    fn touch(&mut self, lane: u32) {
        if !std::mem::replace(&mut self.flows[lane as usize].is_touched, true) {
            self.touched.push(lane);
        }
    }

    /// Finds the rates after all that started and ended at `now`.
    pub(super) fn settle(&mut self, now: u64) {
        while let Some(edge) = self.dirty.pop_front() {
            let Edge { level: old, .. } = self.edges[edge as usize];
            self.edges[edge as usize].is_dirty = false;
            let new = self.level(edge);
            // What differs by rounding alone would go round for ever.
            if new == old || (old.is_finite() && (new - old).abs() <= SAME * old) {
                continue;
            }
            self.edges[edge as usize].level = new;
            let least = old.min(new);
            for at in self.edges[edge as usize].over() {
                let [_, lane] = self.over[at];
                self.touch(lane);
                for other in self.flows[lane as usize].crossings() {
                    let other = self.crossings[other].edge;
                    if other != edge && least < self.edges[other as usize].level {
                        self.mark(other);
                    }
                }
            }
        }
        let mut touched = std::mem::take(&mut self.touched);
        for lane in touched.drain(..) {
            let rate = self.rate_of(lane);
            let flow = &mut self.flows[lane as usize];
            flow.is_touched = false;
            if flow.is_active && (rate - flow.rate).abs() > SAME * flow.rate {
                self.set_rate(now, lane, rate);
            }
        }
        self.touched = touched;
    }

    /// From now on a flow has this rate.
    fn set_rate(&mut self, now: u64, lane: u32, rate: f64) {
        let flow = &mut self.flows[lane as usize];
        flow.left = (flow.left - flow.rate * (now - flow.since) as f64).max(0.0);
        (flow.rate, flow.since) = (rate, now);
        let took = (flow.left / rate).round() as u64;
        flow.end = now.saturating_add(took).min(NEVER - 1);
        if flow.end < flow.looked_at {
            flow.looked_at = flow.end;
            self.events.push(flow.end, lane);
        }
    }

    fn rate_of(&self, lane: u32) -> f64 {
        let crossings = &self.crossings[self.flows[lane as usize].crossings()];
        let levels = crossings.iter().map(|one| self.edges[one.edge as usize].level);
        levels.fold(f64::INFINITY, f64::min)
    }

    /// The most that a flow can have on an edge: as much as is there if all that are held back elsewhere have what they can.
    fn level(&mut self, edge: u32) -> f64 {
        let mut left = self.edges[edge as usize].capacity;
        let over = &self.over[self.edges[edge as usize].over()];
        self.looked_at += over.len() as u64 + 1;
        if let [[one, _]] = over {
            return left / self.crossings[*one as usize].times;
        }
        let mut limits = std::mem::take(&mut self.limits);
        limits.clear();
        let mut flows = 0.0;
        for &[at, lane] in over {
            let others = self.crossings[self.flows[lane as usize].crossings()].iter();
            let others = others.filter(|other| other.edge != edge);
            let limit = others.fold(f64::INFINITY, |least, other| {
                least.min(self.edges[other.edge as usize].level)
            });
            let times = self.crossings[at as usize].times;
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
impl Flows {
    /// Rates of all flows that are on their way: bytes in a femtosecond.
    pub(super) fn rates(&self) -> Vec<f64> {
        self.flows
            .iter()
            .map(|flow| if flow.is_active { flow.rate } else { 0.0 })
            .collect()
    }
}
