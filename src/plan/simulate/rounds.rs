//! How long a call takes, reckoned and not run: by rounds, over the same edges as the simulator's.
//!
//! A round is what messages have that are as many messages away from the call's begin. Those of a round share edges: each takes as
//! long as the fullest edge on its way takes for all that the round brings it. Along these times the call's longest chain is
//! followed for the tiles that are in flight together, and once more for those after them; so it is known how long each further
//! turn of tiles takes, which is no less than the busiest edge needs for all its bytes.
//!
//! So messages of one round share also if they come one after the other, and those of several rounds never do but by what an edge
//! has to carry in all. The tests hold it against the simulator.

use super::edges::Used;
use super::fold::Classes;
use super::model::Model;
use super::network::{Network, femtoseconds};
use super::program::{Op, Programs, Work};
use super::{Busy, Constants, busiest, tiles};
use crate::plan::algo::Algorithm;
use crate::plan::definition;
use crate::plan::groups::Groups;
use crate::types::{Collective, Error};
use std::collections::VecDeque;

/// A schedule on a network, ready to be reckoned for any length.
pub(crate) struct Course<'n> {
    network: &'n Network,
    collective: Collective,
    parts: usize,
    programs: Programs,
    used: Used,
    model: Model,
}

/// How a call is cut, and what its messages cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    /// Of the whole vector.
    pub(crate) bytes: f64,
    /// Bytes of the longest message.
    pub(crate) tile: f64,
    /// Tiles in flight.
    pub(crate) in_flight: usize,
    pub(crate) constants: Constants,
}

/// What a call takes. Seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spent {
    pub(crate) time: f64,
    pub(crate) tiles: usize,
    pub(crate) in_flight: usize,
}

/// Of what that consists. Seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Causes {
    /// What it would take if bytes took no time.
    pub(crate) latency: f64,
    /// What bytes add if each message has its way for itself.
    pub(crate) bandwidth: f64,
    /// What is added to that by reducing.
    pub(crate) reduction: f64,
    /// What sharing adds.
    pub(crate) contention: f64,
}

/// What messages share, and what they cost.
#[derive(Debug, Clone, Copy)]
struct Terms {
    grain: f64,
    overhead: f64,
    reduce: f64,
    /// Tiles that are in flight together.
    copies: f64,
    shares: bool,
}

/// Operations of a course that are gone through at most.
const MOST_OPS: u64 = 60_000_000;

impl<'n> Course<'n> {
    /// Of an algorithm's schedules in so many copies that share the vector.
    ///
    /// # Errors
    /// [`Error::Usage`] if a rank cannot reach another that it has messages for, or there is too much to do.
    pub(crate) fn new(
        collective: Collective,
        algorithm: &Algorithm,
        parts: usize,
        groups: Option<&Groups>,
        network: &'n Network,
    ) -> Result<Course<'n>, Error> {
        let work = Work {
            collective,
            algorithm,
            parts: parts.max(1),
            groups,
        };
        let mut programs = Programs::new(&work, network)?;
        let used = Used::number(&mut programs, network);
        used.prune(&mut programs);
        let classes = Classes::new(&programs, &used.capacities, network);
        let model = Model::new(&programs, &classes, &used.capacities, 1.0);
        let course = Course {
            network,
            collective,
            parts: work.parts,
            programs,
            used,
            model,
        };
        let ops: u64 = course
            .model
            .threads
            .iter()
            .map(|ops| course.length(ops.clone()))
            .sum();
        if ops > MOST_OPS {
            return Err(Error::usage(format!(
                "{ops} operations are too many to reckon: simulate it"
            )));
        }
        Ok(course)
    }

    /// Operations of a thread with all turns of its loops.
    fn length(&self, ops: std::ops::Range<usize>) -> u64 {
        let mut times = vec![1_u64];
        let mut sum = 0_u64;
        for op in &self.model.ops[ops] {
            let now = times.last().copied().unwrap_or(1);
            match op {
                Op::Enter { count } => times.push(now.saturating_mul(u64::from(*count))),
                Op::Leave { .. } => _ = times.pop(),
                _ => sum = sum.saturating_add(now),
            }
        }
        sum
    }

    /// How long a call takes.
    ///
    /// # Errors
    /// [`Error::Usage`] if its tiles are too many; [`Error::Internal`] if its ranks wait for each other.
    pub(crate) fn reckon(&self, cut: &Cut) -> Result<Spent, Error> {
        let (tiles, in_flight, terms) = self.terms(cut)?;
        Ok(Spent {
            time: self.time(&terms, tiles / in_flight)?,
            tiles,
            in_flight,
        })
    }

    /// Of what a call's time consists.
    ///
    /// # Errors
    /// As [`reckon`](Course::reckon).
    pub(crate) fn causes(&self, cut: &Cut) -> Result<Causes, Error> {
        let (tiles, in_flight, terms) = self.terms(cut)?;
        let time = |terms: Terms| self.time(&terms, tiles / in_flight);
        let all = time(terms)?;
        let unreduced = Terms { reduce: 0.0, ..terms };
        let unreduced_time = time(unreduced)?;
        let alone = time(Terms {
            shares: false,
            ..unreduced
        })?;
        let latency = time(Terms {
            grain: 0.0,
            ..unreduced
        })?;
        Ok(Causes {
            latency,
            bandwidth: alone - latency,
            reduction: all - unreduced_time,
            contention: unreduced_time - alone,
        })
    }

    /// The edges that are busiest in a call that takes so many seconds.
    pub(crate) fn busiest(&self, bytes: f64, time: f64) -> Vec<Busy> {
        busiest(&self.used, self.network, self.grain(bytes), time)
    }

    /// Seconds that the busiest edge needs for all that a call brings it: none takes less.
    pub(crate) fn least(&self, bytes: f64) -> f64 {
        self.fullest(self.grain(bytes))
    }

    /// Bytes a second, as nccl-tests count it.
    pub(crate) fn bus_bandwidth(&self, bytes: f64, time: f64) -> f64 {
        match time > 0.0 {
            true => bytes / time * definition::bus_factor(self.collective, self.network.ranks()),
            false => 0.0,
        }
    }

    fn grain(&self, bytes: f64) -> f64 {
        bytes / self.parts as f64 / self.programs.grains.max(1) as f64
    }

    fn terms(&self, cut: &Cut) -> Result<(usize, usize, Terms), Error> {
        let grain = self.grain(cut.bytes);
        let (tiles, in_flight) = tiles(cut.tile, cut.in_flight, &self.programs, grain)?;
        let terms = Terms {
            grain: grain / tiles as f64,
            overhead: femtoseconds(cut.constants.overhead_ns) as f64,
            reduce: cut.constants.reduce_ns * 1e6,
            copies: in_flight as f64,
            shares: true,
        };
        Ok((tiles, in_flight, terms))
    }

    /// Seconds of so many turns of tiles.
    fn time(&self, terms: &Terms, turns: usize) -> Result<f64, Error> {
        let mut walk = Walk::new(&self.model, terms);
        let first = walk.turn()?;
        let edge = match terms.shares {
            true => self.fullest(terms.grain * terms.copies) * 1e15,
            false => 0.0,
        };
        let mut time = first;
        if turns > 1 {
            let next = walk.turn()? - first;
            time += (turns - 1) as f64 * next.max(edge);
        }
        Ok(time.max(turns as f64 * edge) * 1e-15)
    }

    /// How many seconds the busiest edge takes for grains of so many bytes.
    fn fullest(&self, grain: f64) -> f64 {
        let edges = self.used.grains.iter().zip(&self.used.capacities);
        let times = edges.map(|(grains, capacity)| grains * grain / capacity);
        times.fold(0.0, f64::max)
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Thread {
    pc: u32,
    clock: f64,
    turns: [u32; 2],
    depth: u8,
}

#[derive(Debug, Clone, Default)]
struct Lane {
    /// When messages come that nobody has taken yet.
    comes: VecDeque<f64>,
    busy_until: f64,
    /// Bytes of the round, and how long they take.
    bytes: f64,
    takes: f64,
    reader_waits: bool,
}

/// Where all threads are.
struct Walk<'m> {
    model: &'m Model,
    terms: &'m Terms,
    threads: Vec<Thread>,
    lanes: Vec<Lane>,
    /// Bytes on each edge in a round.
    load: Vec<f64>,
    /// Messages of a round: lane, the moment at which they are sent, and bytes.
    sent: Vec<(u32, f64, f64)>,
}

impl<'m> Walk<'m> {
    fn new(model: &'m Model, terms: &'m Terms) -> Walk<'m> {
        Walk {
            model,
            terms,
            threads: vec![Thread::default(); model.threads.len()],
            lanes: vec![Lane::default(); model.lanes.len()],
            load: vec![0.0; model.capacities.len()],
            sent: Vec::new(),
        }
    }

    /// Goes through the schedules once. Returns when all are done.
    fn turn(&mut self) -> Result<f64, Error> {
        let mut ready: Vec<u32> = (0..self.threads.len() as u32).collect();
        for thread in &mut self.threads {
            thread.pc = 0;
        }
        while !ready.is_empty() {
            for thread in std::mem::take(&mut ready) {
                self.go_on(thread as usize);
            }
            self.share();
            self.deliver(&mut ready);
        }
        let mut ends = self.threads.iter().zip(&self.model.threads);
        if ends.any(|(thread, ops)| (thread.pc as usize) < ops.len()) {
            return Err(Error::internal(
                "ranks of a schedule wait for each other".to_owned(),
            ));
        }
        Ok(self.threads.iter().map(|thread| thread.clock).fold(0.0, f64::max))
    }

    /// Runs a thread until it needs a message that comes in a later round.
    fn go_on(&mut self, at: usize) {
        let ops = &self.model.ops[self.model.threads[at].clone()];
        let thread = &mut self.threads[at];
        while let Some(op) = ops.get(thread.pc as usize) {
            match *op {
                Op::Recv { lane } => {
                    let lane = &mut self.lanes[lane as usize];
                    let Some(comes) = lane.comes.pop_front() else {
                        lane.reader_waits = true;
                        return;
                    };
                    thread.clock = thread.clock.max(comes);
                }
                Op::Send { lane, grains } => {
                    let bytes = f64::from(grains) * self.terms.grain;
                    thread.clock += self.terms.overhead;
                    self.sent.push((lane, thread.clock, bytes));
                }
                Op::Reduce { grains } => {
                    thread.clock += f64::from(grains) * self.terms.grain * self.terms.reduce;
                }
                Op::Enter { .. } => {
                    thread.turns[thread.depth as usize] = 0;
                    thread.depth += 1;
                }
                Op::Leave { enter } => {
                    let depth = thread.depth as usize - 1;
                    thread.turns[depth] += 1;
                    match ops[enter as usize] {
                        Op::Enter { count } if thread.turns[depth] < count => thread.pc = enter,
                        _ => thread.depth -= 1,
                    }
                }
            }
            thread.pc += 1;
        }
    }

    /// How long the messages of a round take.
    fn share(&mut self) {
        let Terms { copies, shares, .. } = *self.terms;
        let model = self.model;
        for &(lane, _, bytes) in &self.sent {
            self.lanes[lane as usize].bytes += bytes;
            for &(edge, times) in &model.crossings[model.lanes[lane as usize].crossings.clone()] {
                self.load[edge as usize] += bytes * times * copies;
            }
        }
        for &(number, ..) in &self.sent {
            let crossings = &model.crossings[model.lanes[number as usize].crossings.clone()];
            let lane = &mut self.lanes[number as usize];
            let time = |&(edge, _): &(u32, f64)| {
                let bytes = match shares {
                    true => self.load[edge as usize],
                    false => lane.bytes * copies,
                };
                bytes / model.capacities[edge as usize]
            };
            lane.takes = crossings.iter().map(time).fold(0.0, f64::max);
        }
        for &(lane, ..) in &self.sent {
            for &(edge, _) in &model.crossings[model.lanes[lane as usize].crossings.clone()] {
                self.load[edge as usize] = 0.0;
            }
        }
    }

    /// Brings them, and wakes who waits for them.
    fn deliver(&mut self, ready: &mut Vec<u32>) {
        for &(number, sent, bytes) in &self.sent {
            let line = &self.model.lanes[number as usize];
            let lane = &mut self.lanes[number as usize];
            let part = if lane.bytes > 0.0 { bytes / lane.bytes } else { 0.0 };
            lane.busy_until = lane.busy_until.max(sent) + lane.takes * part;
            lane.comes.push_back(lane.busy_until + line.latency as f64);
            if std::mem::take(&mut lane.reader_waits) {
                ready.push(line.to);
            }
        }
        for (lane, ..) in self.sent.drain(..) {
            self.lanes[lane as usize].bytes = 0.0;
        }
    }
}
