//! Runs schedules symbolically: one of the orders that are possible, which stands for all of them.
//!
//! A thread (a channel of a rank) only ever waits for things that, once true, stay true until it has gone on: a
//! message at the head of a lane that it alone reads, room in a lane that it alone fills, the end of an item, the
//! return of a lent grain. So whatever the order, the same steps are run with the same messages, and either all
//! orders come to the end or none does.

use super::flaw::{Flaw, Kind, Verb};
use super::lanes::{Lanes, Message, Values};
use super::memory::Memory;
use super::program::Cursor;
use super::team::Team;
use super::value::Domain;
use super::{Mode, Site, places};
use crate::plan::definition;
use crate::plan::schedule::{Schedule, Source, Step};
use crate::types::Collective;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

/// What is run and how.
pub(super) struct Job<'j, D: Domain> {
    pub(super) team: &'j Team<'j>,
    pub(super) collective: Collective,
    pub(super) in_place: bool,
    pub(super) mode: Mode,
    pub(super) domain: &'j D,
    /// With rank 0 run for all ranks: how its values look to the others.
    pub(super) turn: Option<&'j Turn<D::Sum>>,
}

/// How a value of rank 0 looks at the same place of rank p: `grains * p` further on in the vector, and with
/// contributors p further on.
pub(super) struct Turn<S> {
    pub(super) grains: usize,
    /// Of a multiset, p and the number of ranks.
    pub(super) ranks: fn(&S, u32, u32) -> S,
}

/// How much was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Tally {
    pub(super) steps: u64,
    pub(super) messages: u64,
}

/// What a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    Nothing,
    /// A message in this lane.
    Message(usize),
    /// Room in this lane.
    Room(usize),
    /// The item that the step names.
    After,
    /// The return of a grain that the step overwrites.
    Lent,
}

/// A channel of a rank, and where it is.
pub(super) struct Thread<S> {
    pub(super) cursor: Cursor,
    pub(super) wait: Wait,
    /// The number of the step that it is at, from 1.
    number: u64,
    /// The lanes of those of the step's sources that are known to be there (of slices: none), and of those of its
    /// sends that are known to have room.
    pub(super) arrived: Vec<usize>,
    pub(super) roomy: Vec<usize>,
    /// The result of the step, from when it was computed until it is sent.
    outgoing: Option<Values<S>>,
}

/// The state of a run.
pub(super) struct Machine<'j, D: Domain> {
    pub(super) job: &'j Job<'j, D>,
    pub(super) threads: Vec<Thread<D::Sum>>,
    pub(super) memories: Vec<Memory<D::Sum>>,
    pub(super) lanes: Lanes<D::Sum>,
    /// Sends that must be staged.
    pub(super) staged: &'j mut BTreeSet<Site>,
    ready: VecDeque<usize>,
    tally: Tally,
}

impl<'j, D: Domain> Machine<'j, D> {
    pub(super) fn new(job: &'j Job<'j, D>, staged: &'j mut BTreeSet<Site>) -> Self {
        let memory = |(rank, schedule): (usize, &Schedule)| {
            let grains = |blocks: Range<usize>| {
                let each = schedule.grains as usize;
                blocks.start * each..blocks.end * each
            };
            let blocks = schedule.blocks as usize;
            let input = grains(definition::input(job.collective, rank, blocks));
            let output = grains(definition::output(job.collective, rank, blocks));
            Memory::new(job.domain, rank, schedule, [input, output], job.in_place)
        };
        let thread = |program| Thread {
            cursor: Cursor::start(program),
            wait: Wait::Nothing,
            number: 1,
            arrived: Vec::new(),
            roomy: Vec::new(),
            outgoing: None,
        };
        let ranks = job.team.ranks;
        let pairs = if job.turn.is_some() { ranks } else { ranks * ranks };
        Machine {
            threads: job.team.programs.iter().map(thread).collect(),
            memories: job.team.schedules.iter().enumerate().map(memory).collect(),
            lanes: Lanes::new(pairs * job.team.channels),
            staged,
            ready: (0..job.team.programs.len()).collect(),
            tally: Tally::default(),
            job,
        }
    }

    /// Runs to the end and checks what is there then.
    pub(super) fn run(mut self) -> Result<Tally, Flaw> {
        loop {
            while let Some(id) = self.ready.pop_front() {
                self.go_on(id)?;
            }
            if (0..self.threads.len()).all(|id| self.is_over(id)) {
                break;
            }
            if !self.stage_what_blocks() {
                return Err(self.why_stuck());
            }
        }
        self.check_lanes()?;
        self.check_outputs()?;
        Ok(self.tally)
    }

    pub(super) fn step(&self, id: usize) -> Option<&'j Step> {
        let team: &'j Team<'j> = self.job.team;
        team.programs[id].step(self.threads[id].cursor.pc)
    }

    pub(super) fn is_over(&self, id: usize) -> bool {
        self.step(id).is_none()
    }

    pub(super) fn flaw(&self, id: usize, kind: Kind) -> Flaw {
        self.job.team.flaw(id, &self.threads[id].cursor, kind)
    }

    /// Lets `id` go on if this is what it waits for.
    pub(super) fn wake(&mut self, id: usize, what: Wait) {
        if self.threads[id].wait == what {
            self.threads[id].wait = Wait::Nothing;
            self.ready.push_back(id);
        }
    }

    pub(super) fn wake_rank(&mut self, rank: usize, what: Wait) {
        for id in self.job.team.threads_of(rank) {
            self.wake(id, what);
        }
    }

    /// Runs a thread until it has to wait.
    fn go_on(&mut self, id: usize) -> Result<(), Flaw> {
        while let Some(step) = self.step(id) {
            if self.threads[id].outgoing.is_none() {
                let wait = self.blocked(id, step)?;
                if wait != Wait::Nothing {
                    self.threads[id].wait = wait;
                    return Ok(());
                }
                let result = self.compute(id, step)?;
                self.threads[id].outgoing = Some(result);
            }
            let wait = self.without_room(id, step)?;
            if wait != Wait::Nothing {
                self.threads[id].wait = wait;
                return Ok(());
            }
            self.send(id, step);
            self.finish(id);
        }
        Ok(())
    }

    /// What keeps a step from being computed.
    fn blocked(&mut self, id: usize, step: &Step) -> Result<Wait, Flaw> {
        let team = self.job.team;
        let rank = team.threads[id].0;
        if let Some((channel, item)) = step.after {
            let other = team.threads_of(rank).start + channel as usize; // exists: see `shape`
            if self.threads[other].cursor.items_over(&team.programs[other]) <= item {
                return Ok(Wait::After);
            }
        }
        for i in self.threads[id].arrived.len()..step.sources.len() {
            let lane = match step.sources[i] {
                Source::Recv(_) => self.incoming(id, step, i)?,
                Source::Slice(_) => NO_LANE,
            };
            if lane != NO_LANE && self.lanes[lane].queue.is_empty() {
                return Ok(Wait::Message(lane));
            }
            self.threads[id].arrived.push(lane);
        }
        if self.job.mode.holds {
            let wait = self.without_room(id, step)?;
            if wait != Wait::Nothing {
                return Ok(wait);
            }
        }
        let (memory, vars) = (&self.memories[rank], &self.threads[id].cursor.vars);
        if self.job.mode.posts && step.stores.iter().any(|slice| memory.is_lent(slice, vars)) {
            return Ok(Wait::Lent);
        }
        Ok(Wait::Nothing)
    }

    /// The lane without room for one of the step's messages, if there is one.
    fn without_room(&mut self, id: usize, step: &Step) -> Result<Wait, Flaw> {
        for i in self.threads[id].roomy.len()..step.sends.len() {
            let lane = self.leaving(id, step, i)?;
            if self.lanes[lane].queue.len() >= self.job.mode.slots {
                return Ok(Wait::Room(lane));
            }
            self.threads[id].roomy.push(lane);
        }
        Ok(Wait::Nothing)
    }

    /// The lane of the step's `i`-th source, a message.
    fn incoming(&mut self, id: usize, step: &Step, i: usize) -> Result<usize, Flaw> {
        let ((me, channel), peer) = (self.job.team.threads[id], self.sender(id, step, i));
        let lane = self.lane(peer, me, channel);
        let uses = (self.threads[id].number, i);
        let last = std::mem::replace(&mut self.lanes[lane].last_take, uses);
        self.check_use(id, Verb::ReceivesFrom, peer, uses, last)?;
        Ok(lane)
    }

    /// The lane of the step's `i`-th send.
    fn leaving(&mut self, id: usize, step: &Step, i: usize) -> Result<usize, Flaw> {
        let ((me, channel), peer) = (self.job.team.threads[id], self.receiver(id, step, i));
        let lane = self.lane(me, peer, channel);
        let uses = (self.threads[id].number, i);
        let last = std::mem::replace(&mut self.lanes[lane].last_send, uses);
        self.check_use(id, Verb::SendsTo, peer, uses, last)?;
        Ok(lane)
    }

    /// A step sends to another rank, and once to each. `uses` and `last` are the step's number and the index of its
    /// source or send that uses the lane, now and the last time.
    fn check_use(
        &self,
        id: usize,
        verb: Verb,
        peer: usize,
        uses: (u64, usize),
        last: (u64, usize),
    ) -> Result<(), Flaw> {
        if peer == self.job.team.threads[id].0 {
            return Err(self.flaw(id, Kind::Itself { verb }));
        }
        if last.0 == uses.0 && last.1 != uses.1 {
            return Err(self.flaw(id, Kind::Twice { verb, peer }));
        }
        Ok(())
    }

    /// Whom the step's `i`-th source comes from, if it is a message.
    pub(super) fn sender(&self, id: usize, step: &Step, i: usize) -> usize {
        match step.sources[i] {
            Source::Recv(peer) => peer.at(&self.threads[id].cursor.vars, self.job.team.ranks),
            Source::Slice(_) => self.job.team.threads[id].0,
        }
    }

    /// Whom the step's `i`-th send goes to.
    pub(super) fn receiver(&self, id: usize, step: &Step, i: usize) -> usize {
        step.sends[i].at(&self.threads[id].cursor.vars, self.job.team.ranks)
    }

    /// The lane between two ranks. With rank 0 run for all, one lane stands for all over the same distance.
    fn lane(&mut self, from: usize, to: usize, channel: usize) -> usize {
        let (team, folded) = (self.job.team, self.job.turn.is_some());
        let pair = match folded {
            true => (to + team.ranks - from) % team.ranks,
            false => from * team.ranks + to,
        };
        let key = pair * team.channels + channel;
        self.lanes.number(key, || {
            let end = |rank| team.thread(if folded { 0 } else { rank }, channel);
            (end(from), end(to))
        })
    }

    /// Puts the result into the lanes of all sends, which have room.
    fn send(&mut self, id: usize, step: &Step) {
        let Some(mut values) = self.threads[id].outgoing.take() else {
            return;
        };
        let cursor = self.threads[id].cursor;
        for send in 0..step.sends.len() {
            let lane = self.threads[id].roomy[send];
            let site = Site {
                thread: id,
                pc: cursor.pc,
                send,
            };
            let lent = self.job.mode.posts && places(step).next().is_some() && !self.staged.contains(&site);
            if lent {
                self.lend(id, &cursor, true);
            }
            let values = match send + 1 == step.sends.len() {
                true => std::mem::take(&mut values),
                false => values.clone(),
            };
            self.lanes[lane].queue.push_back(Message {
                values,
                cursor,
                send,
                lent,
            });
            self.tally.messages += 1;
            if let Some(to) = self.lanes[lane].to {
                self.wake(to, Wait::Message(lane));
            }
        }
    }

    /// On to the next step.
    fn finish(&mut self, id: usize) {
        let (rank, team) = (self.job.team.threads[id].0, self.job.team);
        let thread = &mut self.threads[id];
        thread.cursor.advance(&team.programs[id]);
        thread.arrived.clear();
        thread.roomy.clear();
        thread.number += 1;
        self.tally.steps += 1;
        if team.threads_of(rank).len() > 1 {
            self.wake_rank(rank, Wait::After);
        }
    }

    pub(super) fn flaw_at_grain(&self, id: usize, grain: usize, kind: Kind) -> Flaw {
        Flaw {
            grain: Some(self.grain(grain)),
            ..self.flaw(id, kind)
        }
    }
}

/// Stands for the lane of a source that is not a message.
pub(super) const NO_LANE: usize = usize::MAX;
