//! Schedules with one mistake in them, to test the verifier and, with those that it accepts, the executors.

use super::value::mix;
use crate::plan::algo::{self, Request};
use crate::plan::definition;
use crate::plan::schedule::{Affine, Buffer, How, Item, Schedule, Slice, Source, Step};
use crate::types::Collective;

/// What was done to a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mutation {
    DroppedStep,
    DuplicatedStep,
    SwappedItems,
    ChangedRepeat,
    WrongPeer,
    WrongBlock,
    WrongBuffer,
    DroppedSend,
    DroppedStore,
    ChangedHow,
}

const MUTATIONS: [Mutation; 10] = [
    Mutation::DroppedStep,
    Mutation::DuplicatedStep,
    Mutation::SwappedItems,
    Mutation::ChangedRepeat,
    Mutation::WrongPeer,
    Mutation::WrongBlock,
    Mutation::WrongBuffer,
    Mutation::DroppedSend,
    Mutation::DroppedStore,
    Mutation::ChangedHow,
];

/// All ranks' schedules, one of them mutated.
#[derive(Debug, Clone)]
pub(crate) struct Mutant {
    pub(crate) mutation: Mutation,
    /// Whose schedule was mutated.
    pub(crate) rank: usize,
    pub(crate) schedules: Vec<Schedule>,
}

/// A mutant that the verifier takes for right, in place and out of place: it must give right results.
#[derive(Debug, Clone)]
pub(crate) struct Accepted {
    pub(crate) algorithm: &'static str,
    pub(crate) collective: Collective,
    pub(crate) ranks: usize,
    pub(crate) mutant: Mutant,
}

/// What the verifier said of some mutants.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    pub(crate) rejected: Vec<Mutation>,
    pub(crate) accepted: Vec<Accepted>,
}

/// Mutants that the tests use.
pub(crate) const COUNT: usize = 1000;
pub(crate) const SEED: u64 = 1;

/// The mutants among the first [`COUNT`] that the verifier accepts.
pub(crate) fn accepted_mutants() -> Vec<Accepted> {
    judge(COUNT, SEED).accepted
}

/// Verifies `count` mutants of all algorithms among 2 to 8 ranks.
pub(crate) fn judge(count: usize, seed: u64) -> Judged {
    let mut judged = Judged::default();
    let mut dice = Dice(mix(seed));
    while judged.rejected.len() + judged.accepted.len() < count {
        let ranks = 2 + dice.below(7);
        let collectives = definition::every([dice.below(ranks)]);
        let collective = collectives[dice.below(collectives.len())];
        let fitting: Vec<_> = algo::fitting(collective).collect();
        let algorithm = fitting[dice.below(fitting.len())];
        let request = |rank| Request {
            collective,
            ranks,
            rank,
        };
        let schedules: Vec<_> = (0..ranks).map(|rank| (algorithm.build)(&request(rank))).collect();
        let Some(mutant) = mutants(&schedules, dice.roll()).next() else {
            continue;
        };
        match super::verify_all(collective, &mutant.schedules) {
            Err(_) => judged.rejected.push(mutant.mutation),
            Ok(_) => judged.accepted.push(Accepted {
                algorithm: algorithm.name,
                collective,
                ranks,
                mutant,
            }),
        }
    }
    judged
}

/// Mutants of some ranks' schedules, without end: each with one mistake in one rank's schedule, somewhere where it is
/// carried out.
pub(crate) fn mutants(schedules: &[Schedule], seed: u64) -> impl Iterator<Item = Mutant> {
    let mut dice = Dice(seed);
    let mutant = move || {
        let rank = dice.below(schedules.len());
        let mutation = MUTATIONS[dice.below(MUTATIONS.len())];
        let mut mutated = schedules[rank].clone();
        mutation.apply(&mut mutated, &mut dice)?;
        let mut schedules = schedules.to_vec();
        let changed = std::mem::replace(&mut schedules[rank], mutated) != schedules[rank];
        changed.then_some(Mutant {
            mutation,
            rank,
            schedules,
        })
    };
    std::iter::repeat_with(mutant).flatten()
}

impl Mutation {
    /// Does it somewhere in `schedule`; `None` where there is nothing to do it to.
    fn apply(self, schedule: &mut Schedule, dice: &mut Dice) -> Option<()> {
        let (ranks, total) = (schedule.ranks as usize, schedule.total_grains());
        match self {
            Mutation::DroppedStep => {
                let (items, at) = step_in(schedule, dice)?;
                items.remove(at);
            }
            Mutation::DuplicatedStep => {
                let (items, at) = step_in(schedule, dice)?;
                items.insert(at, items[at].clone());
            }
            Mutation::SwappedItems => {
                let (items, at) = step_in(schedule, dice).filter(|(items, _)| items.len() > 1)?;
                let other = (at + 1 + dice.below(items.len() - 1)) % items.len();
                items.swap(at, other);
            }
            Mutation::ChangedRepeat => {
                let mut counts = Vec::new();
                schedule
                    .channels
                    .iter_mut()
                    .for_each(|items| repeats(items, &mut counts));
                let count = dice.pick(&mut counts)?;
                **count = if dice.below(2) == 0 {
                    **count + 1
                } else {
                    **count - 1
                };
            }
            Mutation::WrongPeer => {
                let step = step(schedule, dice)?;
                let mut peers: Vec<&mut Affine> = step.sources.iter_mut().filter_map(received).collect();
                peers.extend(&mut step.sends);
                dice.pick(&mut peers)?.base += 1 + dice.below(ranks - 1) as i64;
            }
            Mutation::WrongBlock => {
                let shift = 1 + dice.below(total.checked_sub(1).filter(|&others| others > 0)?) as i64;
                slice(step(schedule, dice)?, dice)?.first.base += shift;
            }
            Mutation::WrongBuffer => {
                let slice = slice(step(schedule, dice)?, dice)?;
                let buffers = [Buffer::Input, Buffer::Output, Buffer::Scratch];
                let others = buffers.into_iter().filter(|&buffer| buffer != slice.buffer);
                slice.buffer = others.cycle().nth(dice.below(2))?;
                schedule.scratch = total as u32;
            }
            Mutation::DroppedSend => {
                let sends = &mut step(schedule, dice)?.sends;
                sends.remove(dice.index(sends.len())?);
            }
            Mutation::DroppedStore => {
                let stores = &mut step(schedule, dice)?.stores;
                stores.remove(dice.index(stores.len())?);
            }
            Mutation::ChangedHow => {
                step(schedule, dice)?.how = [How::Copy, How::Reduce, How::ReduceLast][dice.below(3)];
            }
        }
        Some(())
    }
}

/// A list of items and the place of a step in it, among those that are carried out.
fn step_in<'s>(schedule: &'s mut Schedule, dice: &mut Dice) -> Option<(&'s mut Vec<Item>, usize)> {
    fn count(items: &[Item]) -> usize {
        let one = |item: &Item| match item {
            Item::Step(_) => 1,
            Item::Repeat { count: 0, .. } => 0,
            Item::Repeat { items, .. } => count(items),
        };
        items.iter().map(one).sum()
    }
    let mut nth = dice.index(schedule.channels.iter().map(|items| count(items)).sum())?;
    let mut lists: Vec<&mut Vec<Item>> = schedule.channels.iter_mut().rev().collect();
    while let Some(items) = lists.pop() {
        let mut before = 0;
        let holder = items.iter().position(|item| {
            before += count(std::slice::from_ref(item));
            before > nth
        });
        let Some(at) = holder else {
            nth -= before;
            continue;
        };
        nth -= before - count(std::slice::from_ref(&items[at]));
        if matches!(items[at], Item::Step(_)) {
            return Some((items, at));
        }
        if let Item::Repeat { items, .. } = &mut items[at] {
            lists.push(items);
        }
    }
    None
}

fn step<'s>(schedule: &'s mut Schedule, dice: &mut Dice) -> Option<&'s mut Step> {
    let (items, at) = step_in(schedule, dice)?;
    match &mut items[at] {
        Item::Step(step) => Some(step),
        Item::Repeat { .. } => None,
    }
}

fn slice<'s>(step: &'s mut Step, dice: &mut Dice) -> Option<&'s mut Slice> {
    let mut slices: Vec<&mut Slice> = Vec::new();
    for source in &mut step.sources {
        if let Source::Slice(slice) = source {
            slices.push(slice);
        }
    }
    slices.extend(&mut step.stores);
    let at = dice.index(slices.len())?;
    Some(slices.swap_remove(at))
}

fn received(source: &mut Source) -> Option<&mut Affine> {
    match source {
        Source::Recv(peer) => Some(peer),
        Source::Slice(_) => None,
    }
}

fn repeats<'s>(items: &'s mut [Item], counts: &mut Vec<&'s mut u32>) {
    for item in items {
        if let Item::Repeat {
            count: count @ 1..,
            items,
        } = item
        {
            counts.push(count);
            repeats(items, counts);
        }
    }
}

/// A stream of numbers that is the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.roll() % n as u64) as usize
    }

    /// A number below `n`, if there is one.
    fn index(&mut self, n: usize) -> Option<usize> {
        (n > 0).then(|| self.below(n))
    }

    fn pick<'l, T>(&mut self, list: &'l mut [T]) -> Option<&'l mut T> {
        let at = self.index(list.len())?;
        Some(&mut list[at])
    }
}
