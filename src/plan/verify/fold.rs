//! Whether every rank's schedule is rank 0's, turned: peers r further on for rank r, and positions so many blocks.
//!
//! Then rank 0 stands for all. Its run is a possible order of all ranks: a step that rank 0 can take all can take at
//! that moment, and one after the other, since no rank's step takes away what another's needs. And where rank 0 is
//! stuck all are.

use crate::plan::schedule::{Affine, Buffer, Item, Schedule, Slice, Source, Step};
use crate::types::Collective;

/// Rank 0's schedule and how the others' follow from it.
pub(super) struct Symmetry {
    pub(super) schedule: Schedule,
    /// Grains by which positions move on from one rank to the next.
    pub(super) shift: usize,
    /// The ranks whose schedules were compared with rank 0's.
    pub(super) sample: Vec<usize>,
}

/// About how many sources, stores and sends are compared. All ranks if that suffices, else as many as it does for.
const EFFORT: usize = 4_000_000;

/// At least this many ranks are compared.
const LEAST: usize = 8;

/// Compares the ranks' schedules, a sample of them when they are long. `None` when one is not rank 0's, turned, or
/// the collective itself treats ranks differently.
pub(super) fn symmetry(
    collective: Collective,
    ranks: usize,
    schedule_of: impl Fn(usize) -> Schedule,
) -> Option<Symmetry> {
    if collective.root().is_some() {
        return None;
    }
    let first = schedule_of(0);
    let total = first.total_grains();
    if total == 0 || first.ranks as usize != ranks {
        return None; // a flaw, for the machine to tell
    }
    let mut shifts = Vec::new();
    // Positions can move with the rank where that keeps scratch grains as long as the block's.
    if first.blocks as usize == ranks && (first.scratch as usize).is_multiple_of(total) {
        shifts.push(first.grains as usize);
    }
    // They can stay where all ranks have the same input and want the same output, so that what rank 0 ends with is what all want.
    if matches!(collective, Collective::AllReduce | Collective::Barrier) {
        shifts.push(0);
    }
    let sample = sample(ranks, size(&first));
    let alike = |shift: usize| {
        let same = |&rank: &usize| turned(schedule_of(rank), 0, 0) == turned(first.clone(), rank, shift);
        sample.iter().all(same)
    };
    let shift = shifts.into_iter().find(|&shift| alike(shift))?;
    Some(Symmetry {
        schedule: first,
        shift,
        sample,
    })
}

/// The ranks to compare with rank 0: all, or its neighbours, the last, and some spread over the rest.
fn sample(ranks: usize, size: usize) -> Vec<usize> {
    let most = (EFFORT / size.max(1)).max(LEAST);
    if ranks <= most {
        return (1..ranks).collect();
    }
    let mut sample = vec![1, 2, ranks / 2, ranks - 1];
    sample.extend((4..most as u64 - 1).map(|i| super::value::mix(i) as usize % ranks));
    sample.retain(|&rank| rank > 0);
    sample.sort_unstable();
    sample.dedup();
    sample
}

/// Sources, stores and sends of a schedule as it is written.
fn size(schedule: &Schedule) -> usize {
    fn of(items: &[Item]) -> usize {
        let one = |item: &Item| match item {
            Item::Step(step) => step.sources.len() + step.stores.len() + step.sends.len(),
            Item::Repeat { items, .. } => of(items),
        };
        items.iter().map(one).sum()
    }
    schedule.channels.iter().map(|items| of(items)).sum()
}

/// What `schedule` would be for the rank `by` further on if positions move by `shift` grains a rank, written in one
/// way only: indices reduced, and the sources of a reduction sorted, whose order does not matter to what it holds.
fn turned(schedule: Schedule, by: usize, shift: usize) -> Schedule {
    let mut schedule = as_rank(schedule, by, by * shift);
    schedule.channels.iter_mut().for_each(|items| sort(items));
    schedule
}

/// What `rank`'s schedule would be for rank 0 where positions move by `shift` grains a rank. Sources stay in their order.
pub(super) fn as_rank_0(schedule: &Schedule, rank: usize, shift: usize) -> Schedule {
    let back = schedule.ranks as usize - rank;
    as_rank(schedule.clone(), back, back * shift)
}

/// The schedule with peers `by` further on and positions `grains` further on.
fn as_rank(mut schedule: Schedule, by: usize, grains: usize) -> Schedule {
    let turn = Turn {
        ranks: schedule.ranks as usize,
        by,
        total: schedule.total_grains(),
        scratch: schedule.scratch as usize,
        grains,
    };
    schedule.channels.iter_mut().for_each(|items| turn.items(items));
    schedule
}

/// Sorts the sources of each step. As a rule they are two sorted runs, which this sort finds.
fn sort(items: &mut [Item]) {
    for item in items {
        match item {
            Item::Step(step) => step.sources.sort_by_key(key),
            Item::Repeat { items, .. } => sort(items),
        }
    }
}

struct Turn {
    ranks: usize,
    by: usize,
    total: usize,
    scratch: usize,
    grains: usize,
}

impl Turn {
    fn items(&self, items: &mut [Item]) {
        for item in items {
            match item {
                Item::Step(step) => self.step(step),
                Item::Repeat { items, .. } => self.items(items),
            }
        }
    }

    fn step(&self, step: &mut Step) {
        for source in &mut step.sources {
            match source {
                Source::Slice(slice) => self.slice(slice),
                Source::Recv(peer) => turn(peer, self.by, self.ranks),
            }
        }
        step.stores.iter_mut().for_each(|slice| self.slice(slice));
        step.sends
            .iter_mut()
            .for_each(|peer| turn(peer, self.by, self.ranks));
    }

    fn slice(&self, slice: &mut Slice) {
        let modulus = match slice.buffer {
            Buffer::Input | Buffer::Output => self.total,
            Buffer::Scratch => self.scratch,
        };
        turn(&mut slice.first, self.grains, modulus);
        slice.stride = match slice.reps {
            1 => 0,
            _ => slice.stride.rem_euclid(modulus.max(1) as i64),
        };
    }
}

fn turn(index: &mut Affine, by: usize, modulus: usize) {
    let modulus = modulus.max(1) as i64;
    // Most are there already, and a division takes longer than all else here.
    let reduced = |i: i64| match (0..modulus).contains(&i) {
        true => i,
        false => i.rem_euclid(modulus),
    };
    index.base = reduced(index.base + by as i64);
    index.step.iter_mut().for_each(|step| *step = reduced(*step));
}

/// Orders sources: messages by peer, then slices.
fn key(source: &Source) -> (u8, i64, [i64; crate::plan::schedule::DEPTH], u32, i64, u32) {
    match source {
        Source::Recv(peer) => (0, peer.base, peer.step, 0, 0, 0),
        Source::Slice(slice) => {
            let buffer = match slice.buffer {
                Buffer::Input => 1,
                Buffer::Output => 2,
                Buffer::Scratch => 3,
            };
            (
                buffer,
                slice.first.base,
                slice.first.step,
                slice.run,
                slice.stride,
                slice.reps,
            )
        }
    }
}
