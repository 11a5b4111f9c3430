//! Runs an algorithm symbolically: one of the orders that are possible, which stands for all of them.
//!
//! A thread (a block of a rank) waits only for what stays true until it has gone on: a message at the head of a
//! connection that it alone reads, room in one that it alone fills, a block's word that a step is over. So all
//! orders have the same messages, and end or stop alike; that they have the same values is for
//! [`races`](super::races) to show.
//!
//! A step that receives and sends takes its message when there is room for the one that it sends, as RCCL's do.
//!
//! RCCL carries a step out in pieces of as many chunks as have room in a slot, all steps of all ranks alike, so
//! that of long vectors each chunk is a message of its own. And it does all steps for one part of the chunks after
//! the other. What ends for one ends for all: no message is left over, and who is ahead waits at the same places.

use super::flaw::{At, Flaw, Flaws, Kind};
use super::memory::{Cell, Content};
use super::wires::Wires;
use super::{Action, Place, Program, Step};
use crate::plan::verify::{self, value::Domain};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// How a program is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mode {
    pub(super) in_place: bool,
    /// Messages that a connection holds.
    pub(super) slots: usize,
    /// Chunks of a message, at most.
    pub(super) piece: usize,
}

/// What came of a run.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) flaws: Flaws,
    /// The thread of each piece that was carried out, if all were.
    pub(super) order: Vec<u32>,
    pub(super) cost: Cost,
}

/// What a run took. Data is counted in chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cost {
    pub(crate) messages: u64,
    /// The longest chain of messages of which each waits for the one before.
    pub(crate) chain: u64,
    /// What the busiest ranks send, receive, and do together.
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) passed: u64,
}

/// What a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    Nothing,
    Message(usize),
    Room(usize),
    /// This thread's word.
    Word(usize),
}

pub(super) struct Thread {
    step: usize,
    /// Chunks of the step that are done.
    done: usize,
    pub(super) wait: Wait,
    /// How many of the step's waits are known to be over.
    waited: usize,
    /// The number of the last step that it told of.
    told: Option<u32>,
    /// How many messages waited for one another before it came here.
    chain: u64,
    /// The same of each step that it told of.
    tellings: Vec<(u32, u64)>,
}

pub(super) struct Message<S> {
    values: SmallVec<[Content<S>; 1]>,
    /// Of the step that it is of.
    count: usize,
    pub(super) from: usize,
    pub(super) step: usize,
    chain: u64,
}

pub(super) struct Machine<'m, D: Domain> {
    pub(super) program: &'m Program,
    pub(super) wires: &'m Wires,
    pub(super) domain: &'m D,
    pub(super) mode: Mode,
    pub(super) threads: Vec<Thread>,
    pub(super) lanes: Vec<VecDeque<Message<D::Sum>>>,
    pub(super) memories: Vec<Vec<Cell<D::Sum>>>,
    ready: VecDeque<usize>,
    ports: Vec<(u64, u64)>,
    pub(super) outcome: Outcome,
    /// Nothing more can be said, because two ends of a connection do not fit.
    is_broken: bool,
}

impl<'m, D: Domain> Machine<'m, D> {
    pub(super) fn new(program: &'m Program, wires: &'m Wires, domain: &'m D, mode: Mode) -> Self {
        let thread = |_| Thread {
            step: 0,
            done: 0,
            waited: 0,
            wait: Wait::Nothing,
            told: None,
            chain: 0,
            tellings: Vec::new(),
        };
        Machine {
            program,
            wires,
            domain,
            mode,
            threads: wires.threads.iter().map(thread).collect(),
            lanes: wires.ends.iter().map(|_| VecDeque::new()).collect(),
            memories: (0..program.ranks())
                .map(|rank| program.memory(domain, rank))
                .collect(),
            ready: (0..wires.threads.len()).collect(),
            ports: vec![(0, 0); program.ranks()],
            outcome: Outcome::default(),
            is_broken: false,
        }
    }

    /// Runs to the end and checks what is there then.
    pub(super) fn run(mut self) -> Outcome {
        while let Some(id) = self.ready.pop_front() {
            self.go_on(id);
            if self.is_broken {
                self.outcome.order.clear();
                return self.outcome;
            }
        }
        match (0..self.threads.len()).all(|id| self.step(id).is_none()) {
            true => {
                self.check_lanes();
                self.check_outputs();
            }
            false => {
                self.tell_why_stuck();
                self.outcome.order.clear();
            }
        }
        let most = |of: fn(&(u64, u64)) -> u64| self.ports.iter().map(of).max().unwrap_or(0);
        let cost = Cost {
            sent: most(|port| port.0),
            received: most(|port| port.1),
            passed: most(|port| port.0 + port.1),
            ..self.outcome.cost
        };
        Outcome { cost, ..self.outcome }
    }

    pub(super) fn step(&self, id: usize) -> Option<&'m Step> {
        let (rank, block) = self.wires.threads[id];
        let program: &'m Program = self.program;
        program.gpus[rank].blocks[block].steps.get(self.threads[id].step)
    }

    pub(super) fn at(&self, id: usize, step: Option<u32>) -> At {
        let (rank, block) = self.wires.threads[id];
        At {
            rank,
            block: Some(block),
            step,
        }
    }

    pub(super) fn wrong(&mut self, id: usize, step: &Step, kind: Kind) {
        let at = self.at(id, Some(step.number));
        let line = step.line;
        self.outcome.flaws.push(Flaw { line, at, kind });
    }

    fn wake(&mut self, id: Option<usize>, what: Wait) {
        let Some(id) = id else { return };
        if self.threads[id].wait == what {
            self.threads[id].wait = Wait::Nothing;
            self.ready.push_back(id);
        }
    }

    /// Runs a thread until it has to wait.
    fn go_on(&mut self, id: usize) {
        while let Some(step) = self.step(id) {
            let wait = self.blocked(id, step);
            self.threads[id].wait = wait;
            if wait != Wait::Nothing || self.is_broken {
                return;
            }
            self.carry_out(id, step);
            if self.is_broken {
                return;
            }
        }
    }

    /// What keeps the next piece of a step from being carried out.
    fn blocked(&mut self, id: usize, step: &Step) -> Wait {
        if self.threads[id].done == 0 {
            for wait in &step.waits[self.threads[id].waited..] {
                let other = self.wires.first[self.wires.threads[id].0] + wait.block;
                if self.threads[other].told.is_none_or(|told| told < wait.step) {
                    return Wait::Word(other);
                }
                let tellings = &self.threads[other].tellings;
                let first = tellings.partition_point(|(number, _)| *number < wait.step);
                let chain = tellings[first].1;
                let thread = &mut self.threads[id];
                thread.chain = thread.chain.max(chain);
                thread.waited += 1;
            }
        }
        if step.count == 0 {
            return Wait::Nothing;
        }
        if let Some(lane) = self.wires.coming[id].filter(|_| step.action.receives())
            && self.lanes[lane].is_empty()
        {
            return Wait::Message(lane);
        }
        if let Some(lane) = self.wires.leaving[id].filter(|_| step.action.sends())
            && self.lanes[lane].len() >= self.mode.slots
        {
            return Wait::Room(lane);
        }
        Wait::Nothing
    }

    /// Carries out the next piece of a step.
    fn carry_out(&mut self, id: usize, step: &Step) {
        let first = self.threads[id].done;
        let chunks = self.mode.piece.min(step.count - first);
        self.outcome.order.push(id as u32);
        let message = match self.wires.coming[id].filter(|_| step.action.receives() && step.count > 0) {
            Some(lane) => match self.take(id, step, lane) {
                Some(message) => Some(message.values),
                None => return,
            },
            None => None,
        };
        let mut result = SmallVec::new();
        for k in 0..chunks {
            let message = message.as_ref().map(|values| values[k].clone());
            let value = self.combine(id, step, first + k, message);
            if step.action.stores() {
                self.store(id, step, first + k, value.clone());
            }
            result.push(value);
        }
        if step.action.sends() && step.count > 0 {
            self.send(id, result, step.count);
        }
        let thread = &mut self.threads[id];
        thread.done += chunks;
        if thread.done == step.count {
            (thread.done, thread.waited) = (0, 0);
            thread.step += 1;
            if step.signals {
                thread.told = Some(step.number);
                let chain = thread.chain;
                thread.tellings.push((step.number, chain));
                let rank = self.wires.threads[id].0;
                for other in self.wires.first[rank]..self.wires.first[rank + 1] {
                    self.wake(Some(other), Wait::Word(id));
                }
            }
        }
    }

    /// The message at the head of a connection, if it is as long as the step awaits.
    fn take(&mut self, id: usize, step: &Step, lane: usize) -> Option<Message<D::Sum>> {
        let message = self.lanes[lane].pop_front()?; // It is there: see `blocked`.
        if message.count != step.count {
            let (rank, block) = self.wires.threads[message.from];
            let sent = &self.program.gpus[rank].blocks[block].steps[message.step];
            let kind = Kind::OtherLength {
                from: rank,
                got: message.count,
                want: step.count,
                line: sent.line,
            };
            self.wrong(id, step, kind);
            self.is_broken = true;
            return None;
        }
        self.wake(Some(message.from), Wait::Room(lane));
        let thread = &mut self.threads[id];
        thread.chain = thread.chain.max(message.chain);
        self.ports[self.wires.threads[id].0].1 += message.values.len() as u64;
        Some(message)
    }

    fn send(&mut self, id: usize, values: SmallVec<[Content<D::Sum>; 1]>, count: usize) {
        let Some(lane) = self.wires.leaving[id] else {
            return;
        };
        let thread = &self.threads[id];
        let chain = thread.chain + 1;
        self.outcome.cost.messages += 1;
        self.outcome.cost.chain = self.outcome.cost.chain.max(chain);
        self.ports[self.wires.threads[id].0].0 += values.len() as u64;
        self.lanes[lane].push_back(Message {
            values,
            count,
            from: id,
            step: thread.step,
            chain,
        });
        self.wake(self.wires.ends[lane].1, Wait::Message(lane));
    }

    /// The value of a step's `k`-th chunk.
    fn combine(
        &mut self,
        id: usize,
        step: &Step,
        k: usize,
        message: Option<Content<D::Sum>>,
    ) -> Content<D::Sum> {
        let mine = |machine: &mut Self, place| machine.load(id, step, place, k);
        match step.action {
            Action::Send | Action::Copy => mine(self, step.source),
            Action::Recv | Action::RecvCopySend => message.flatten(),
            Action::RecvReduceSend | Action::RecvReduceCopy | Action::RecvReduceCopySend => {
                let own = mine(self, step.source);
                self.reduce(id, step, own, message.flatten())
            }
            Action::Reduce => {
                let (sum, more) = (mine(self, step.store), mine(self, step.source));
                self.reduce(id, step, sum, more)
            }
        }
    }

    fn load(&mut self, id: usize, step: &Step, place: Place, k: usize) -> Content<D::Sum> {
        let rank = self.wires.threads[id].0;
        let cell = self
            .program
            .cell(rank, place.buffer, place.first + k, self.mode.in_place);
        match &self.memories[rank][cell].content {
            Some(content) => content.clone(),
            None => {
                let buffer = place.buffer;
                self.wrong(id, step, verify::Kind::Unwritten { buffer }.into());
                None
            }
        }
    }

    fn store(&mut self, id: usize, step: &Step, k: usize, content: Content<D::Sum>) {
        let rank = self.wires.threads[id].0;
        let Place { buffer, first } = step.store;
        let cell = self.program.cell(rank, buffer, first + k, self.mode.in_place);
        self.memories[rank][cell] = Cell {
            content: Some(content),
            line: Some(step.line),
        };
    }

    fn reduce(&mut self, id: usize, step: &Step, a: Content<D::Sum>, b: Content<D::Sum>) -> Content<D::Sum> {
        let (mut sum, more) = (a?, b?);
        let (chunk, other) = (sum.grain as usize, more.grain as usize);
        if chunk != other {
            self.wrong(id, step, Kind::MixesChunks { chunk, other });
            return None;
        }
        self.domain.add(&mut sum.ranks, &more.ranks);
        if let Some(rank) = self.domain.repeated(&sum.ranks) {
            self.wrong(id, step, Kind::Twice { rank, chunk });
            return None;
        }
        Some(sum)
    }
}
