//! What must be so when all threads are over, and who waits for whom when they are not.

use super::flaw::{At, Flaw, Kind};
use super::machine::{Machine, Wait};
use crate::plan::definition::{self, Wanted};
use crate::plan::schedule::Buffer::Output;
use crate::plan::verify::{
    self,
    value::{Domain, Value},
};
use std::collections::HashMap;

impl<D: Domain> Machine<'_, D> {
    /// Every message was received.
    pub(super) fn check_lanes(&mut self) {
        for lane in 0..self.lanes.len() {
            let Some(message) = self.lanes[lane].front() else {
                continue;
            };
            let (rank, block) = self.wires.threads[message.from];
            let block = &self.program.gpus[rank].blocks[block];
            let to = block.send.unwrap_or(rank); // It sent.
            let (id, step) = (message.from, &block.steps[message.step]);
            self.wrong(id, step, verify::Kind::Unconsumed { to }.into());
        }
    }

    /// Every output holds what the collective promises.
    pub(super) fn check_outputs(&mut self) {
        let (program, (blocks, chunks)) = (self.program, self.program.blocks());
        let at = |block: usize, part: usize| (block * chunks + part) as u32;
        debug_assert!(blocks * chunks == program.chunks);
        for (rank, gpu) in program.gpus.iter().enumerate() {
            let extent = program.extent(rank, Output);
            for (index, chunk) in extent.enumerate() {
                let (block, part) = (chunk / chunks, chunk % chunks);
                let wanted = match definition::wanted(program.collective, rank, block) {
                    Wanted::ReductionOf { block } => (at(block, part), self.domain.everyone().clone()),
                    Wanted::CopyOf { rank, block } => (at(block, part), self.domain.one(rank)),
                };
                let wanted = Value {
                    grain: wanted.0,
                    finished: false,
                    ranks: wanted.1,
                };
                let cell = &self.memories[rank][program.cell(rank, Output, index, self.mode.in_place)];
                let holds = match &cell.content {
                    Some(Some(value)) if *value == wanted => continue,
                    Some(Some(value)) => self.text(value),
                    Some(None) => continue, // What spoilt it was told.
                    None => "nothing".to_owned(),
                };
                let line = cell.line.unwrap_or(gpu.line);
                let at = At {
                    rank,
                    block: None,
                    step: None,
                };
                let (chunk, wants) = (index, self.text(&wanted));
                let kind = Kind::WrongChunk { chunk, holds, wants };
                self.outcome.flaws.push(Flaw { line, at, kind });
            }
        }
    }

    fn text(&self, value: &Value<D::Sum>) -> String {
        let ranks = self.domain.text(&value.ranks);
        let of = match () {
            () if ranks.bytes().all(|byte| byte.is_ascii_digit()) => " of rank",
            () if ranks.contains("label") => ",", // Which ranks is not known.
            () => " of ranks",
        };
        format!("chunk {} of the vector{of} {ranks}", value.grain)
    }

    /// Tells of each thread that waits in vain for one that is over, or, if there is none, of one circle.
    pub(super) fn tell_why_stuck(&mut self) {
        let stuck: Vec<_> = (0..self.threads.len())
            .filter(|&id| self.step(id).is_some())
            .collect();
        for &id in &stuck {
            let is_in_vain = self.awaited(id).is_none_or(|other| self.step(other).is_none());
            let Some(step) = self.step(id).filter(|_| is_in_vain) else {
                continue;
            };
            let (rank, block) = self.wires.threads[id];
            let block = &self.program.gpus[rank].blocks[block];
            let kind = match self.threads[id].wait {
                Wait::Room(_) => verify::Kind::NeverTaken {
                    to: block.send.unwrap_or(rank),
                },
                _ => verify::Kind::NeverSent {
                    from: block.recv.unwrap_or(rank),
                },
            };
            self.wrong(id, step, kind.into());
        }
        if !self.outcome.flaws.is_empty() {
            return;
        }
        let Some(&first) = stuck.first() else { return };
        let (mut chain, mut seen) = (vec![first], HashMap::from([(first, 0)]));
        while let Some(next) = self.awaited(chain[chain.len() - 1]) {
            if let Some(&start) = seen.get(&next) {
                let cycle = &chain[start..];
                let mut names: Vec<_> = cycle.iter().take(NAMED).map(|&id| self.waits(id)).collect();
                if cycle.len() > NAMED {
                    names.push(format!("and {} more", cycle.len() - NAMED));
                }
                if let Some(step) = self.step(next) {
                    self.wrong(next, step, verify::Kind::Deadlock { cycle: names }.into());
                }
                return;
            }
            seen.insert(next, chain.len());
            chain.push(next);
        }
    }

    /// The thread that `id` waits for.
    fn awaited(&self, id: usize) -> Option<usize> {
        match self.threads[id].wait {
            Wait::Message(lane) => self.wires.ends[lane].0,
            Wait::Room(lane) => self.wires.ends[lane].1,
            Wait::Word(other) => Some(other),
            Wait::Nothing => None,
        }
    }

    fn waits(&self, id: usize) -> String {
        let (rank, number) = self.wires.threads[id];
        let block = &self.program.gpus[rank].blocks[number];
        let Some(step) = self.step(id) else {
            return format!("{} is over", self.at(id, None));
        };
        let what = match self.threads[id].wait {
            Wait::Message(_) => format!("a message from rank {}", block.recv.unwrap_or(rank)),
            Wait::Room(_) => format!("room in its connection to rank {}", block.send.unwrap_or(rank)),
            Wait::Word(other) => format!("thread block {}", self.wires.threads[other].1),
            Wait::Nothing => "nothing".to_owned(),
        };
        let (at, line) = (self.at(id, Some(step.number)), step.line);
        format!("{at} (line {line}) waits for {what}")
    }
}

/// How many members of a circle are named.
const NAMED: usize = 8;
