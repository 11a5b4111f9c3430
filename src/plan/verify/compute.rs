//! What a step does to the symbolic values: takes its messages, computes its result and stores it.

use super::flaw::{Flaw, Kind};
use super::lanes::{Message, Values};
use super::machine::{Machine, NO_LANE, Wait};
use super::memory::Memory;
use super::places;
use super::program::Cursor;
use super::team::Team;
use super::value::{Domain, Value};
use crate::plan::definition;
use crate::plan::schedule::{Buffer, How, LoopVars, Source, Step};
use crate::types::Collective;
use smallvec::SmallVec;

impl<'j, D: Domain> Machine<'j, D> {
    /// Takes the step's messages, computes its result and stores it.
    pub(super) fn compute(&mut self, id: usize, step: &Step) -> Result<Values<D::Sum>, Flaw> {
        let vars = self.threads[id].cursor.vars;
        let rank = self.job.team.threads[id].0;
        let count = step.shape().map_or(0, |slice| slice.grains());
        if count > 1 && overlaps_itself(&self.memories[rank], step, &vars) {
            return Err(self.flaw(id, Kind::OverlapsItself));
        }
        let messages = self.take_messages(id, step, count)?;
        let mut result = Values::with_capacity(count);
        for k in 0..count {
            result.push(self.combine(id, step, &messages, k)?);
        }
        for slice in &step.stores {
            for (k, value) in result.iter().enumerate() {
                let (position, cell) = self.memories[rank].locate(slice, k, &vars);
                let total = self.job.team.schedules[rank].total_grains();
                let (buffer, grain) = (slice.buffer, value.grain as usize);
                if buffer == Buffer::Output && !self.memories[rank].has_output(position) {
                    return Err(self.flaw_at_grain(id, position, Kind::StoresNoOutput));
                }
                let is_as_long = self.is_as_long(rank, (buffer, position % total), value);
                let (Some(cell), true) = (cell, is_as_long) else {
                    let kind = Kind::Misplaced { buffer, position };
                    return Err(self.flaw_at_grain(id, grain, kind));
                };
                self.memories[rank].write(
                    cell,
                    value.clone(),
                    (id as u32, self.threads[id].cursor.pc as u32),
                );
            }
        }
        Ok(result)
    }

    /// Whether a place of `rank`'s is as long as `value` whatever the counts, and the rank can know it.
    fn is_as_long(&self, rank: usize, (buffer, position): (Buffer, usize), value: &Value<D::Sum>) -> bool {
        let (collective, memory) = (self.job.collective, &self.memories[rank]);
        let (grain, grains) = (value.grain as usize, self.job.team.schedules[0].grains as usize);
        let is_same_part = grain % grains == position % grains;
        if definition::has_equal_blocks(collective) {
            return is_same_part;
        }
        if collective == Collective::AlltoAllV {
            // Two ranks know what goes between them: a block of the one's input, of the other's output. Which of the two a place
            // in scratch memory is as long as depends on the counts (see `Blocks`).
            let (from, block) = match buffer {
                Buffer::Output => (position / grains, rank),
                Buffer::Input => (rank, position / grains),
                Buffer::Scratch => return false,
            };
            return is_same_part && grain / grains == block && value.ranks == self.job.domain.one(from);
        }
        let knows = !collective.counts_by_pair() || memory.has_input(position) || memory.has_output(position);
        grain == position && knows
    }

    /// Takes one message for each source that is one, as this rank sees them.
    fn take_messages(
        &mut self,
        id: usize,
        step: &Step,
        want: usize,
    ) -> Result<SmallVec<[Values<D::Sum>; 2]>, Flaw> {
        let mut messages = SmallVec::new();
        for i in 0..step.sources.len() {
            let lane = self.threads[id].arrived[i];
            if lane == NO_LANE {
                continue;
            }
            let from = self.sender(id, step, i);
            let Some(mut message) = self.lanes[lane].queue.pop_front() else {
                return Err(self.flaw(id, Kind::NeverSent { from })); // not reached: it has arrived
            };
            self.give_back(lane, &message);
            let got = message.values.len();
            if got != want {
                return Err(self.flaw(id, Kind::WrongLength { from, got, want }));
            }
            if let Some(turn) = self.job.turn {
                let team = self.job.team;
                let (ranks, total) = (team.ranks, team.schedules[0].total_grains());
                for value in &mut message.values {
                    value.grain = ((value.grain as usize + from * turn.grains) % total) as u32;
                    value.ranks = (turn.ranks)(&value.ranks, from as u32, ranks as u32);
                }
            }
            messages.push(message.values);
        }
        Ok(messages)
    }

    /// The sender of a message that was taken may overwrite it and has room for another.
    fn give_back(&mut self, lane: usize, message: &Message<D::Sum>) {
        let Some(from) = self.lanes[lane].from else { return };
        if message.lent {
            self.lend(from, &message.cursor, false);
        }
        self.wake(from, Wait::Room(lane));
    }

    /// Begins or ends the time in which the result of a step lies where it is for a peer to fetch.
    pub(super) fn lend(&mut self, id: usize, at: &Cursor, on: bool) {
        let team: &'j Team<'j> = self.job.team;
        let rank = team.threads[id].0;
        if let Some(step) = team.programs[id].step(at.pc) {
            places(step).for_each(|slice| self.memories[rank].lend(slice, &at.vars, on));
        }
        if !on {
            self.wake_rank(rank, Wait::Lent);
        }
    }

    /// The `k`-th grain of the step's result.
    fn combine(
        &self,
        id: usize,
        step: &Step,
        messages: &[Values<D::Sum>],
        k: usize,
    ) -> Result<Value<D::Sum>, Flaw> {
        let mut messages = messages.iter();
        let mut result: Option<Value<D::Sum>> = None;
        for source in &step.sources {
            let value = match source {
                Source::Slice(_) => self.read(id, source, k)?,
                Source::Recv(_) => messages.next().map(|values| values[k].clone()),
            };
            let Some(value) = value else { continue }; // not reached: there is a message for each
            if step.how != How::Copy && value.finished {
                return Err(self.flaw_at_grain(id, value.grain as usize, Kind::ReducesFinished));
            }
            let Some(sum) = &mut result else {
                result = Some(value);
                continue;
            };
            if sum.grain != value.grain {
                let block = self.grain(value.grain as usize).block;
                return Err(self.flaw_at_grain(id, sum.grain as usize, Kind::MixesBlocks { block }));
            }
            self.job.domain.add(&mut sum.ranks, &value.ranks);
        }
        let Some(mut result) = result else {
            let (how, count) = (step.how, 0);
            return Err(self.flaw(id, Kind::SourceCount { how, count })); // not reached: see `shape`
        };
        if step.how != How::Copy && !self.job.domain.close(&mut result.ranks) {
            let parts = self.job.domain.text(&result.ranks);
            return Err(self.flaw_at_grain(id, result.grain as usize, Kind::OutOfOrder { parts }));
        }
        result.finished |= step.how == How::ReduceLast;
        Ok(result)
    }

    /// What the `k`-th grain of a slice holds.
    fn read(&self, id: usize, source: &Source, k: usize) -> Result<Option<Value<D::Sum>>, Flaw> {
        let Source::Slice(slice) = source else {
            return Ok(None);
        };
        let rank = self.job.team.threads[id].0;
        let memory = &self.memories[rank];
        let place = memory.locate(slice, k, &self.threads[id].cursor.vars);
        if slice.buffer == Buffer::Input && !memory.has_input(place.0) {
            return Err(self.flaw_at_grain(id, place.0, Kind::ReadsNoInput));
        }
        // A pre-multiplied sum would multiply what it has multiplied before.
        let stored = |cell: usize| memory.writer(cell).is_some();
        if slice.buffer == Buffer::Input && self.job.collective.reduces() && place.1.is_some_and(stored) {
            return Err(self.flaw_at_grain(id, place.0, Kind::ReadsResult));
        }
        match memory.read(self.job.domain, rank, slice.buffer, place) {
            Some(value) => Ok(Some(value)),
            None => {
                let kind = Kind::Unwritten { buffer: slice.buffer };
                let total = self.job.team.schedules[rank].total_grains();
                Err(self.flaw_at_grain(id, place.0 % total, kind))
            }
        }
    }
}

/// Whether a step of several grains stores one where it reads or stores another.
fn overlaps_itself<S: Clone>(memory: &Memory<S>, step: &Step, vars: &LoopVars) -> bool {
    let mut stored: Vec<(usize, usize)> = Vec::new();
    for slice in &step.stores {
        stored.extend(
            memory
                .cells_of(slice, vars)
                .enumerate()
                .map(|(k, cell)| (cell, k)),
        );
    }
    stored.sort_unstable();
    if stored
        .windows(2)
        .any(|pair| pair[0].0 == pair[1].0 && pair[0].1 != pair[1].1)
    {
        return true;
    }
    let clashes = |(k, cell): (usize, usize)| {
        let at = stored.partition_point(|&(other, _)| other < cell);
        stored
            .get(at)
            .is_some_and(|&(other, turn)| other == cell && turn != k)
    };
    step.sources.iter().any(|source| match source {
        Source::Slice(slice) => memory.cells_of(slice, vars).enumerate().any(clashes),
        Source::Recv(_) => false,
    })
}
