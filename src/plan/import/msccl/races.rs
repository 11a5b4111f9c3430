//! Accesses of a rank's thread blocks to the same chunk that nothing orders.
//!
//! Two accesses conflict when at least one of them stores. They are ordered in the same block, by waits, and by
//! messages, also through other ranks; not by the room in a connection, which is another for another protocol.
//!
//! A run is gone through again for each rank, with a clock in each thread of all ranks: how many pieces of each of
//! this rank's threads are known to be over. Source: C. Flanagan and S. Freund, "FastTrack: efficient and precise
//! dynamic race detection", 2009.

use super::flaw::{At, Flaw, Flaws, Kind, Name};
use super::machine::Mode;
use super::wires::Wires;
use super::{Program, Step};
use crate::plan::schedule::Buffer;
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet, VecDeque};

/// Tells the accesses in conflict of a run that carried out a piece of these threads in turn.
pub(super) fn check(program: &Program, wires: &Wires, mode: Mode, order: &[u32], flaws: &mut Flaws) {
    let signals = awaited(program, wires);
    for (rank, gpu) in program.gpus.iter().enumerate() {
        if gpu.blocks.len() > 1 {
            Walk::new(program, wires, mode, rank).run(order, &signals, flaws);
        }
    }
}

/// A step of a thread, by its index.
type Place = (usize, usize);

/// The steps that others wait for, and how many do.
fn awaited(program: &Program, wires: &Wires) -> HashMap<Place, usize> {
    let mut signals = HashMap::new();
    for (id, &(rank, block)) in wires.threads.iter().enumerate() {
        for step in &program.gpus[rank].blocks[block].steps {
            for place in places_awaited(wires, id, step) {
                *signals.entry(place).or_default() += 1;
            }
        }
    }
    signals
}

/// The steps whose end a step's waits take.
fn places_awaited(wires: &Wires, id: usize, step: &Step) -> impl Iterator<Item = Place> {
    let rank = wires.threads[id].0;
    step.waits.iter().filter_map(move |wait| {
        let thread = wires.first[rank] + wait.block;
        Some((thread, wires.words[thread].of(wait.step)?))
    })
}

/// An access: the block, which piece of its, and the step.
#[derive(Clone, Copy)]
struct Access {
    block: usize,
    piece: u32,
    step: usize,
}

/// The last store to a chunk, and the last read of each block since.
#[derive(Clone, Default)]
struct Cell {
    store: Option<Access>,
    reads: SmallVec<[Access; 2]>,
}

/// A clock for the threads of one rank.
type Clock = Box<[u32]>;

struct Walk<'w> {
    program: &'w Program,
    wires: &'w Wires,
    mode: Mode,
    rank: usize,
    /// Where each thread is: its step, and chunks of that.
    at: Vec<(usize, usize)>,
    clocks: Vec<Clock>,
    cells: Vec<Cell>,
    /// The steps of which a conflict was told.
    told: HashSet<(Place, Place)>,
}

impl<'w> Walk<'w> {
    fn new(program: &'w Program, wires: &'w Wires, mode: Mode, rank: usize) -> Self {
        let (threads, blocks) = (wires.threads.len(), program.gpus[rank].blocks.len());
        Walk {
            program,
            wires,
            mode,
            rank,
            at: vec![(0, 0); threads],
            clocks: vec![vec![0; blocks].into(); threads],
            cells: vec![Cell::default(); 2 * program.chunks + program.gpus[rank].scratch],
            told: HashSet::new(),
        }
    }

    fn run(&mut self, order: &[u32], signals: &HashMap<Place, usize>, flaws: &mut Flaws) {
        let mut lanes: Vec<VecDeque<Clock>> = self.wires.ends.iter().map(|_| VecDeque::new()).collect();
        let mut tellings: HashMap<Place, (Clock, usize)> = HashMap::new();
        for id in order.iter().map(|&id| id as usize) {
            let (rank, block) = self.wires.threads[id];
            let (index, done) = self.at[id];
            let step = &self.program.gpus[rank].blocks[block].steps[index];
            if done == 0 {
                for place in places_awaited(self.wires, id, step) {
                    let Some((clock, left)) = tellings.get_mut(&place) else {
                        continue; // It was told: the run came here.
                    };
                    join(&mut self.clocks[id], clock);
                    *left -= 1;
                    if *left == 0 {
                        tellings.remove(&place);
                    }
                }
            }
            let moves = step.count > 0;
            if let Some(lane) = self.wires.coming[id].filter(|_| moves && step.action.receives())
                && let Some(clock) = lanes[lane].pop_front()
            {
                join(&mut self.clocks[id], &clock);
            }
            let chunks = self.mode.piece.min(step.count - done);
            if rank == self.rank {
                self.access((id, index), step, done, chunks, flaws);
                self.clocks[id][block] += 1;
            }
            if let Some(lane) = self.wires.leaving[id].filter(|_| moves && step.action.sends()) {
                lanes[lane].push_back(self.clocks[id].clone());
            }
            self.at[id] = (index, done + chunks);
            if done + chunks == step.count {
                self.at[id] = (index + 1, 0);
                if let Some(&left) = signals.get(&(id, index)) {
                    tellings.insert((id, index), (self.clocks[id].clone(), left));
                }
            }
        }
    }

    fn access(&mut self, place: Place, step: &Step, first: usize, chunks: usize, flaws: &mut Flaws) {
        let action = step.action;
        let is_sum = action == super::Action::Reduce; // It reads where it stores, too.
        let accesses = [
            (action.reads(), step.source, false),
            (is_sum, step.store, false),
            (action.stores(), step.store, true),
        ];
        for (_, at, is_store) in accesses.into_iter().filter(|(is_done, ..)| *is_done) {
            for k in first..first + chunks {
                let index = at.first + k;
                let cell = self.program.cell(self.rank, at.buffer, index, self.mode.in_place);
                if let Some(other) = self.touch(place, cell, is_store) {
                    self.tell(place, step, other, (at.buffer, index), flaws);
                }
            }
        }
    }

    /// An access to a cell; the earlier one with which it is in conflict.
    fn touch(&mut self, (id, step): Place, cell: usize, is_store: bool) -> Option<Access> {
        let block = self.wires.threads[id].1;
        let clock = &self.clocks[id];
        let access = Access {
            block,
            piece: clock[block] + 1,
            step,
        };
        let knows = |other: &Access| other.block == block || clock[other.block] >= other.piece;
        let cell = &mut self.cells[cell];
        let store = cell.store.filter(|other| !knows(other));
        if !is_store {
            cell.reads.retain(|read| read.block != block);
            cell.reads.push(access);
            return store;
        }
        let read = cell.reads.iter().copied().find(|other| !knows(other));
        *cell = Cell {
            store: Some(access),
            reads: SmallVec::new(),
        };
        read.or(store)
    }

    fn tell(
        &mut self,
        (id, index): Place,
        step: &Step,
        other: Access,
        at: (Buffer, usize),
        flaws: &mut Flaws,
    ) {
        let earlier = (self.wires.first[self.rank] + other.block, other.step);
        if !self.told.insert((earlier, (id, index))) {
            return;
        }
        let with = &self.program.gpus[self.rank].blocks[other.block].steps[other.step];
        flaws.push(Flaw {
            line: step.line,
            at: At {
                rank: self.rank,
                block: Some(self.wires.threads[id].1),
                step: Some(step.number),
            },
            kind: Kind::Race {
                block: other.block,
                step: with.number,
                line: with.line,
                chunk: at.1,
                buffer: Name(at.0),
            },
        });
    }
}

fn join(clock: &mut [u32], other: &[u32]) {
    for (known, there) in clock.iter_mut().zip(other) {
        *known = (*known).max(*there);
    }
}
