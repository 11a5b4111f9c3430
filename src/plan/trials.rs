//! Trying the leading algorithms of a call in a communicator's first calls of its kind: whose turn it is, and what is decided.
//!
//! Every rank counts the calls of each kind in the order that all ranks share, so that all know whose turn it is without being
//! told. How long they took only rank 0 weighs. After `TURNS` turns of each it tells what it decided, and `AHEAD` calls later all
//! go by that: until then the model chooses.

use super::{
    algo::Algorithm,
    choose,
    cost::{Load, Machine, Order},
    forced::Forced,
};
use crate::types::Collective;
use smallvec::SmallVec;
use std::collections::HashMap;

/// All kinds of calls that are tried.
#[derive(Debug, Default)]
pub(crate) struct Trials(HashMap<Kind, Trial>);

/// Calls that are taken as alike: the bytes of a vector count by their power of two.
pub(crate) type Kind = (Collective, u32, usize);

#[derive(Debug)]
struct Trial {
    /// The model's choice first.
    among: SmallVec<[&'static Algorithm; MOST]>,
    calls: usize,
    /// Whether rank 0 has told its decision, or is about to.
    is_told: bool,
    /// Of each, in nanoseconds, on rank 0.
    times: SmallVec<[Vec<u64>; MOST]>,
    decided: Option<usize>,
}

/// What a kind's next call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing.
    Go,
    /// That rank 0 tells its decision before.
    Tell,
    /// That the decision has come before.
    Hear,
}

/// Turns of each algorithm; the first, in which it is proved and pages are touched, does not count.
const TURNS: usize = 9;
/// Calls between that by which the decision is told and the first that goes by it.
const AHEAD: usize = 16;
/// Algorithms that are tried.
const MOST: usize = 4;
/// Those that the model has take over so many times as long as the best are not.
const WORTH: f64 = 3.0;
/// Another than the model's choice must take less than so much of its time.
const GAIN: f64 = 0.95;
/// Kinds that are tried: later ones go by the model.
const MOST_KINDS: usize = 256;

impl Trials {
    /// The kind of a call, if it is one that is tried: in which every rank waits for all, so that rank 0's time tells what all take,
    /// whose length all ranks know, whose order nobody has asked for, and whose algorithm nobody forces.
    pub(crate) fn kind(load: &Load, forced: &Forced) -> Option<Kind> {
        use Collective::{AllGather, AllReduce, AlltoAll, Barrier, ReduceScatter};
        let waits = matches!(
            load.collective,
            AllReduce | AllGather | ReduceScatter | AlltoAll | Barrier
        );
        let is_free = load.order == Order::Any && forced.among(load.collective).is_none();
        let length = usize::BITS - load.count.leading_zeros();
        (waits && is_free && load.ranks > 1).then_some((load.collective, length, load.element))
    }

    pub(crate) fn next(&self, kind: &Kind) -> Next {
        match self.0.get(kind) {
            Some(trial) if trial.decided.is_some() => Next::Go,
            Some(trial) if trial.calls == trial.turns() && !trial.is_told => Next::Tell,
            Some(trial) if trial.calls == trial.turns() + AHEAD => Next::Hear,
            _ => Next::Go,
        }
    }

    /// Counts a call, and says by which algorithm it goes, if not as the model chooses.
    pub(crate) fn count(
        &mut self,
        kind: Kind,
        load: &Load,
        machine: &Machine,
        forced: &Forced,
    ) -> Option<&'static Algorithm> {
        if !self.0.contains_key(&kind) {
            if self.0.len() == MOST_KINDS {
                return None;
            }
            self.0.insert(kind, Trial::new(load, machine, forced));
        }
        let trial = self.0.get_mut(&kind)?;
        if let Some(decided) = trial.decided {
            return Some(trial.among[decided]);
        }
        let call = trial.calls;
        trial.calls += 1;
        let is_turn = call < trial.turns();
        Some(trial.among[if is_turn { call % trial.among.len() } else { 0 }])
    }

    /// Whether calls of this kind may still get another algorithm.
    pub(crate) fn is_open(&self, kind: &Kind) -> bool {
        self.0.get(kind).is_some_and(|trial| trial.decided.is_none())
    }

    /// What calls of this kind go by because it was the fastest of several.
    pub(crate) fn decided(&self, kind: &Kind) -> Option<&'static Algorithm> {
        let trial = self.0.get(kind).filter(|trial| trial.among.len() > 1)?;
        Some(trial.among[trial.decided?])
    }

    /// A call took so long by an algorithm.
    pub(crate) fn note(&mut self, kind: &Kind, algorithm: &str, nanos: u64) {
        let Some(trial) = self.0.get_mut(kind) else {
            return;
        };
        let at = trial.among.iter().position(|one| one.name == algorithm);
        if let Some(at) = at.filter(|_| trial.calls <= trial.turns()) {
            trial.times[at].push(nanos);
        }
    }

    /// What rank 0 is to tell: a place among those that are tried.
    pub(crate) fn tell(&mut self, kind: &Kind) -> usize {
        let Some(trial) = self.0.get_mut(kind) else {
            return 0;
        };
        trial.is_told = true;
        let median = |times: &Vec<u64>| {
            let mut times: Vec<u64> = times.iter().skip(1).copied().collect();
            times.sort_unstable();
            times.get(times.len() / 2).copied()
        };
        let medians: SmallVec<[_; MOST]> = trial.times.iter().map(median).collect();
        let Some(Some(first)) = medians.first() else {
            return 0;
        };
        let others = medians.iter().enumerate();
        let least = others.filter_map(|(at, took)| Some(((*took)?, at))).min();
        match least {
            Some((took, at)) if (took as f64) < *first as f64 * GAIN => at,
            _ => 0,
        }
    }

    /// From now on calls go by what rank 0 has decided; gives its name.
    pub(crate) fn decide(&mut self, kind: &Kind, decided: usize) -> Option<&'static str> {
        let trial = self.0.get_mut(kind)?;
        let decided = if decided < trial.among.len() { decided } else { 0 };
        trial.decided = Some(decided);
        Some(trial.among[decided].name)
    }
}

impl Trial {
    fn new(load: &Load, machine: &Machine, forced: &Forced) -> Trial {
        let chosen = choose::algorithm(load, machine, forced).ok();
        let timed = choose::candidates(load, machine, forced)
            .map(|one| (one.predicted(load, machine).1.total(), one));
        let mut timed: SmallVec<[_; 16]> = timed.collect();
        timed.sort_by(|(one, _), (other, _)| one.total_cmp(other)); // stable: equals stay in their order
        let least = timed.first().map_or(0.0, |(time, _)| *time);
        let others = timed
            .into_iter()
            .filter(|(time, one)| {
                *time <= least * WORTH && chosen.is_none_or(|chosen| chosen.name != one.name)
            })
            .map(|(_, one)| one);
        let among: SmallVec<[_; MOST]> = chosen.into_iter().chain(others).take(MOST).collect();
        Trial {
            times: among.iter().map(|_| Vec::new()).collect(),
            decided: (among.len() < 2).then_some(0),
            among,
            calls: 0,
            is_told: false,
        }
    }

    /// Calls in which all have had their turns.
    fn turns(&self) -> usize {
        self.among.len() * TURNS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{plan::calibration::Calibration, types::DType};

    fn run(nanos: impl Fn(&str) -> u64, decides: bool) -> Vec<&'static str> {
        let (machine, forced) = (
            Machine::of_shared_memory(4, &Calibration::DEFAULT),
            Forced::default(),
        );
        let load = Load::new(Collective::AllReduce, 4, 4096, DType::Float32);
        let kind = Trials::kind(&load, &forced).unwrap();
        let mut trials = Trials::default();
        let (mut told, mut went) = (0, Vec::new());
        for _ in 0..MOST * TURNS + AHEAD + 2 {
            match trials.next(&kind) {
                Next::Go => {}
                Next::Tell => told = trials.tell(&kind),
                Next::Hear => {
                    assert!(trials.decided(&kind).is_none());
                    trials.decide(&kind, if decides { told } else { usize::MAX });
                }
            }
            let one = trials.count(kind, &load, &machine, &forced).unwrap();
            trials.note(&kind, one.name, nanos(one.name));
            went.push(one.name);
        }
        assert!(!trials.is_open(&kind));
        assert_eq!(trials.decided(&kind).map(|one| one.name), went.last().copied());
        went
    }

    #[test]
    fn each_has_its_turns_and_the_fastest_is_what_all_go_by_some_calls_later() {
        let went = run(|name| if name == "ring" { 10 } else { 20 }, true);
        let tried: std::collections::BTreeSet<_> = went.iter().collect();
        assert!(tried.len() > 1 && tried.contains(&"ring"), "{tried:?}");
        let turns = tried.len() * TURNS;
        assert!(went[turns..turns + AHEAD].iter().all(|name| *name == went[0]));
        assert!(went[turns + AHEAD..].iter().all(|name| *name == "ring"));
    }

    #[test]
    fn without_a_gain_or_a_decision_that_can_be_the_model_chooses() {
        for (nanos, decides) in [(98, true), (1, false)] {
            let went = run(|name| if name == "ring" { nanos } else { 100 }, decides);
            assert_eq!(went.last(), went.first());
        }
    }

    #[test]
    fn what_is_ordered_forced_or_waits_for_one_rank_alone_is_not_tried() {
        let load = |collective| Load::new(collective, 4, 64, DType::Float32);
        let free = Forced::default();
        let root = Collective::Broadcast { root: 0 };
        assert_eq!(Trials::kind(&load(root), &free), None);
        let ordered = load(Collective::AllReduce).in_order(DType::Float32);
        assert_eq!(Trials::kind(&ordered, &free), None);
        let forced = Forced::parse("ring").unwrap();
        assert_eq!(Trials::kind(&load(Collective::AllReduce), &forced), None);
    }
}
