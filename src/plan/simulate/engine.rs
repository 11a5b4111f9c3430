//! Runs the threads of a model: who waits for whom, and when all is over.
//!
//! Each thread has a clock of its own and goes on until it needs a message that has not come, or room in a lane. Lanes carry one
//! message after the other. Where nothing else ever is on its edges, a message's end follows from its start at once; all
//! others are flows that share edges, and these happen in the order of time. A thread is never behind them, for it waits for
//! what wakes it.

use super::flows::{Event, Flows};
use super::model::Model;
use super::program::Op;
use super::steady::{Jump, Steady};
use super::trace::Span;
use crate::types::Error;

/// What is taken for granted. Times in femtoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Setting {
    /// Bytes of a grain in a tile.
    pub(super) grain: f64,
    /// Tiles that a thread goes through.
    pub(super) tiles: u32,
    /// Of each message, at its sender.
    pub(super) overhead: u64,
    /// Of each byte that is added to others.
    pub(super) reduce: f64,
    /// Messages that a lane holds until they are taken.
    pub(super) slots: usize,
    pub(super) sharing: Sharing,
    /// Copies of all threads that the model's stand for.
    pub(super) copies: f64,
    /// See [`Effort`](super::Effort).
    pub(super) most: u64,
    /// Messages that are run before it is given up.
    pub(super) most_run: u64,
    /// Whether steady loops are cut short.
    pub(super) cuts: bool,
    /// Whether spans are kept.
    pub(super) traces: bool,
}

/// What messages have to share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sharing {
    /// Edges, fairly.
    Fair,
    /// Nothing: each has its way for itself.
    Alone,
    /// Nothing, and bytes take no time.
    Latency,
}

/// What came out.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Femtoseconds.
    pub(super) time: u64,
    /// Messages that were run, and those that would have been without cutting loops short.
    pub(super) run: u64,
    pub(super) spans: Vec<(u32, Span)>,
}

struct Thread {
    clock: u64,
    pc: u32,
    /// Its operations in the model.
    first: u32,
    end: u32,
    tile: u32,
    turns: [u32; 2],
    depth: u8,
    is_over: bool,
}

/// Of hundreds of thousands each lies in a line of a cache of its own.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Lane {
    /// Bytes of a femtosecond, if nobody shares them.
    rate: f64,
    busy_until: u64,
    latency: u64,
    from: u32,
    to: u32,
    /// Counts of messages that were sent, have left, have come and were taken, which may go round.
    sent: u32,
    left: u32,
    come: u32,
    taken: u32,
    is_free: bool,
    is_sending: bool,
    reader_waits: bool,
    writer_waits: bool,
}

/// What is known of a message, or of the one that was in its slot before.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// When it was sent; once it has left, when it comes; and once it was taken, when that was.
    at: u64,
    bytes: f64,
}

struct Engine<'m> {
    model: &'m Model,
    setting: &'m Setting,
    flows: Flows,
    threads: Vec<Thread>,
    lanes: Vec<Lane>,
    /// A ring for each lane, of so many slots as `slots` or the next power of two.
    slots: Vec<Slot>,
    ring: usize,
    ready: Vec<u32>,
    /// Of the tiles, and of the outermost loops of the program.
    steady: Vec<Steady>,
    /// Femtoseconds that were left out.
    skipped: u64,
    /// The moment of the flows.
    now: u64,
    outcome: Outcome,
}

/// Runs it to the end.
///
/// # Errors
/// [`Error::Internal`] if threads wait for each other for ever; [`Error::Usage`] if it takes more than 5 hours, or too much memory.
pub(super) fn run(model: &Model, setting: &Setting) -> Result<Outcome, Error> {
    if model.lanes.len().saturating_mul(setting.slots) > MOST_SLOTS {
        let (lanes, slots) = (model.lanes.len(), setting.slots);
        return Err(Error::usage(format!(
            "{slots} slots in each of {lanes} lanes are too many"
        )));
    }
    let mut engine = Engine::new(model, setting);
    engine.go()?;
    let Engine {
        threads,
        outcome,
        skipped,
        ..
    } = engine;
    if threads.iter().any(|thread| !thread.is_over) {
        return Err(Error::internal(
            "ranks of a schedule wait for each other".to_owned(),
        ));
    }
    let time = threads.iter().map(|thread| thread.clock).max().unwrap_or(0);
    let time = time.checked_add(skipped).filter(|&time| time < LONGEST);
    let time = time.ok_or_else(too_long)?;
    Ok(Outcome { time, ..outcome })
}

/// Times stay at the end of their range when they reach it, which is beyond this.
const LONGEST: u64 = 18_000_000_000_000_000_000;

fn too_long() -> Error {
    Error::usage("it takes more than 5 hours".to_owned())
}

/// Slots of all lanes, at most: some 5 GB.
const MOST_SLOTS: usize = 1 << 27;

impl<'m> Engine<'m> {
    fn new(model: &'m Model, setting: &'m Setting) -> Self {
        let (threads, lanes) = (model.threads.len(), model.lanes.len());
        let ring = setting.slots.next_power_of_two();
        let mut users = vec![0_u32; model.capacities.len()];
        model
            .crossings
            .iter()
            .for_each(|(edge, _)| users[*edge as usize] += 1);
        let lane = |line: &super::model::Line| {
            let crossings = &model.crossings[line.crossings.clone()];
            let least =
                |of: &dyn Fn(&(u32, f64)) -> f64| crossings.iter().map(of).fold(f64::INFINITY, f64::min);
            let alone = crossings.iter().all(|(edge, _)| users[*edge as usize] == 1);
            Lane {
                busy_until: 0,
                latency: line.latency,
                from: line.from,
                to: line.to,
                sent: 0,
                left: 0,
                come: 0,
                taken: 0,
                is_sending: false,
                reader_waits: false,
                writer_waits: false,
                rate: match setting.sharing {
                    Sharing::Fair => least(&|(edge, times)| model.capacities[*edge as usize] / times),
                    Sharing::Alone => least(&|(edge, _)| model.capacities[*edge as usize] / setting.copies),
                    Sharing::Latency => f64::INFINITY,
                },
                is_free: alone || setting.sharing != Sharing::Fair,
            }
        };
        let thread = |ops: &std::ops::Range<usize>| Thread {
            clock: 0,
            pc: ops.start as u32,
            first: ops.start as u32,
            end: ops.end as u32,
            tile: 0,
            turns: [0; 2],
            depth: 0,
            is_over: false,
        };
        Engine {
            model,
            setting,
            flows: Flows::new(model),
            threads: model.threads.iter().map(thread).collect(),
            lanes: model.lanes.iter().map(lane).collect(),
            slots: vec![Slot::default(); lanes * ring],
            ring,
            ready: (0..threads as u32).rev().collect(),
            steady: if setting.cuts {
                loops(model, setting)
            } else {
                Vec::new()
            },
            skipped: 0,
            now: 0,
            outcome: Outcome::default(),
        }
    }

    fn go(&mut self) -> Result<(), Error> {
        loop {
            while let Some(thread) = self.ready.pop() {
                self.go_on(thread);
                if self.outcome.run > self.setting.most_run {
                    return Err(Error::usage("it has too many messages".to_owned()));
                }
            }
            let Some(now) = self.flows.next() else {
                return Ok(());
            };
            if now >= LONGEST {
                return Err(too_long());
            }
            self.now = now;
            while let Some((lane, event)) = self.flows.take(now) {
                match event {
                    Event::Start => self.start(now, lane),
                    Event::End => self.end(now, lane),
                }
                // Whom that wakes may send at once.
                while let Some(thread) = self.ready.pop() {
                    self.go_on(thread);
                }
            }
            self.flows.settle(now);
            if self.flows.looked_at > self.setting.most {
                return Err(Error::usage(
                    "it takes long to work out, and is done only where it is asked for by name".to_owned(),
                ));
            }
        }
    }

    /// Runs a thread until it has to wait.
    fn go_on(&mut self, at: u32) {
        let model = self.model;
        if self.threads[at as usize].is_over {
            return;
        }
        loop {
            let thread = &mut self.threads[at as usize];
            if thread.pc == thread.end {
                if self.next_tile(at) {
                    continue;
                }
                return;
            }
            let op = &model.ops[thread.pc as usize];
            let goes_on = match *op {
                Op::Recv { lane } => self.receive(at, lane),
                Op::Send { lane, grains } => self.send(at, lane, f64::from(grains) * self.setting.grain),
                Op::Reduce { grains } => {
                    let took = (f64::from(grains) * self.setting.grain * self.setting.reduce).round();
                    thread.clock = thread.clock.saturating_add(took as u64);
                    true
                }
                Op::Enter { .. } => {
                    thread.turns[thread.depth as usize] = 0;
                    thread.depth += 1;
                    true
                }
                Op::Leave { enter } => {
                    self.leave(at, enter);
                    true
                }
            };
            if !goes_on {
                return;
            }
            self.threads[at as usize].pc += 1;
        }
    }

    /// Begins the next tile, if there is one.
    fn next_tile(&mut self, at: u32) -> bool {
        let thread = &mut self.threads[at as usize];
        let is_empty = thread.first == thread.end;
        (thread.pc, thread.tile) = (thread.first, thread.tile + 1);
        let now = thread.clock.saturating_add(self.skipped);
        let tiles = self.steady.first_mut().filter(|_| !is_empty);
        if let Some(jump) = tiles.and_then(|tiles| tiles.note(at as usize, 0, now)) {
            for thread in &mut self.threads {
                thread.tile += jump.turns;
            }
            self.steady[1..]
                .iter_mut()
                .for_each(|inner| inner.skip_runs(jump.turns));
            self.skip(jump);
        }
        let thread = &mut self.threads[at as usize];
        thread.is_over = thread.tile >= self.setting.tiles || is_empty;
        !thread.is_over
    }

    /// At the end of a loop's turn: back to its beginning, or on.
    fn leave(&mut self, at: u32, enter: u32) {
        let thread = &mut self.threads[at as usize];
        let first = thread.first;
        let ops = &self.model.ops[first as usize..thread.end as usize];
        let depth = thread.depth as usize - 1;
        thread.turns[depth] += 1;
        let (now, tile) = (thread.clock.saturating_add(self.skipped), thread.tile);
        if depth == 0 && self.steady.len() > 1 {
            let is_loop = |op: &&Op| matches!(op, Op::Enter { .. });
            // Loops inside loops are not watched, and there are few.
            let number = 1 + ops[..enter as usize].iter().filter(is_loop).count();
            if let Some(jump) = self
                .steady
                .get_mut(number)
                .and_then(|steady| steady.note(at as usize, tile, now))
            {
                for thread in &mut self.threads {
                    thread.turns[0] += jump.turns;
                }
                self.skip(jump);
            }
        }
        let thread = &mut self.threads[at as usize];
        let Op::Enter { count } = ops[enter as usize] else {
            return;
        };
        if thread.turns[depth] < count {
            thread.pc = first + enter;
        } else {
            thread.depth -= 1;
        }
    }

    fn skip(&mut self, jump: Jump) {
        self.skipped = self.skipped.saturating_add(jump.time);
    }

    fn slot(&self, lane: u32, number: u32) -> usize {
        lane as usize * self.ring + (number as usize & (self.ring - 1))
    }

    /// Takes the next message of a lane, if it is known when it comes.
    fn receive(&mut self, at: u32, number: u32) -> bool {
        let lane = &mut self.lanes[number as usize];
        if lane.taken == lane.come {
            lane.reader_waits = true;
            return false;
        }
        let taken = lane.taken;
        lane.taken = taken.wrapping_add(1);
        if std::mem::take(&mut lane.writer_waits) {
            self.ready.push(lane.from);
        }
        let slot = self.slot(number, taken);
        let thread = &mut self.threads[at as usize];
        let slot = &mut self.slots[slot];
        thread.clock = thread.clock.max(slot.at);
        slot.at = thread.clock;
        true
    }

    /// Sends a message, if the lane has room.
    fn send(&mut self, at: u32, number: u32, bytes: f64) -> bool {
        let slots = self.setting.slots as u32; // not more than `MOST_SLOTS`
        let lane = &mut self.lanes[number as usize];
        if lane.sent.wrapping_sub(lane.taken) == slots {
            lane.writer_waits = true;
            return false;
        }
        let (count, is_free) = (lane.sent, lane.is_free);
        lane.sent = count.wrapping_add(1);
        // When the message was taken that had the lane's room before; of the first ones none had.
        let before = self.slots[self.slot(number, count.wrapping_sub(slots))].at;
        let slot = self.slot(number, count);
        let thread = &mut self.threads[at as usize];
        thread.clock = thread.clock.max(before);
        let begin = thread.clock;
        thread.clock = thread.clock.saturating_add(self.setting.overhead);
        let now = thread.clock;
        self.outcome.run += 1;
        self.slots[slot] = Slot { at: now, bytes };
        if is_free {
            let lane = &mut self.lanes[number as usize];
            let start = now.max(lane.busy_until);
            lane.busy_until = start.saturating_add((bytes / lane.rate).round() as u64);
            lane.left = lane.left.wrapping_add(1);
            let end = lane.busy_until;
            self.arrive(number, end, begin);
        } else if !std::mem::replace(&mut self.lanes[number as usize].is_sending, true) {
            debug_assert!(now >= self.now, "a thread is behind the flows");
            self.flows.plan(now, number);
        }
        true
    }

    /// The next message of a lane starts.
    fn start(&mut self, now: u64, number: u32) {
        let Slot { bytes, .. } = self.slots[self.slot(number, self.lanes[number as usize].left)];
        self.flows.start(now, number, bytes);
    }

    /// A lane's message has left, and the next may start.
    fn end(&mut self, now: u64, number: u32) {
        self.flows.end(number);
        let slot = self.slot(number, self.lanes[number as usize].left);
        let begin = self.slots[slot].at;
        let lane = &mut self.lanes[number as usize];
        lane.left = lane.left.wrapping_add(1);
        if lane.left != lane.sent {
            let slot = self.slot(number, self.lanes[number as usize].left);
            self.flows.plan(now.max(self.slots[slot].at), number);
        } else {
            lane.is_sending = false;
        }
        self.arrive(number, now, begin);
    }

    /// It is known when a message comes.
    fn arrive(&mut self, number: u32, left_at: u64, begin: u64) {
        let slot = self.slot(number, self.lanes[number as usize].come);
        let lane = &mut self.lanes[number as usize];
        let comes = left_at.saturating_add(lane.latency);
        lane.come = lane.come.wrapping_add(1);
        if std::mem::take(&mut lane.reader_waits) {
            self.ready.push(lane.to);
        }
        self.slots[slot].at = comes;
        if self.setting.traces {
            let span = Span {
                rank: self.lanes[number as usize].from as usize,
                channel: 0,
                label: format!("to {}", self.lanes[number as usize].to),
                begin: begin.saturating_add(self.skipped),
                end: comes.saturating_add(self.skipped),
            };
            self.outcome.spans.push((number, span));
        }
    }
}

/// The loops that all threads have, if they have the same: that of the tiles first.
fn loops(model: &Model, setting: &Setting) -> Vec<Steady> {
    let of = |ops: &std::ops::Range<usize>| {
        let mut depth = 0;
        let mut counts = Vec::new();
        for op in &model.ops[ops.clone()] {
            match op {
                Op::Enter { count } => {
                    counts.push(if depth == 0 { *count } else { 0 });
                    depth += 1;
                }
                Op::Leave { .. } => depth -= 1,
                _ => {}
            }
        }
        counts
    };
    let busy: Vec<_> = model.threads.iter().filter(|ops| !ops.is_empty()).collect();
    let first = busy.first().map_or_else(Vec::new, |ops| of(ops));
    let alike = busy.len() == model.threads.len() && busy.iter().all(|ops| of(ops) == first);
    let inner = first.into_iter().filter(|_| alike);
    let tiles = if busy.len() == model.threads.len() {
        setting.tiles
    } else {
        0
    };
    std::iter::once(tiles)
        .chain(inner)
        .map(|turns| Steady::new(turns, model.threads.len()))
        .collect()
}
