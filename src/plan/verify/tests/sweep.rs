//! Every algorithm, for the ranks that the design names.

use super::{built, built_one, named};
use crate::plan::algo::{self, ALGORITHMS, Algorithm, Request};
use crate::plan::definition;
use crate::plan::schedule::Schedule;
use crate::plan::verify::{EXACT, Mode, SendSite, run, value::mix, verify, verify_all, verify_folded};
use crate::types::{Collective, MAX_RANKS};

/// The collectives among `ranks` ranks: all roots up to 33 ranks, a few beyond.
fn collectives(ranks: usize) -> Vec<Collective> {
    let mut roots: Vec<usize> = (0..ranks).collect();
    if ranks > 33 {
        roots = vec![0, 1, ranks / 2, ranks - 1];
    }
    definition::every(roots)
}

/// Calls `check` for each algorithm, each collective that it fits and each number of ranks.
fn each(numbers: impl Iterator<Item = usize>, check: impl Fn(&Algorithm, Collective, Vec<Schedule>)) {
    for ranks in numbers {
        for collective in collectives(ranks) {
            for algorithm in algo::fitting(collective) {
                check(algorithm, collective, built(algorithm, collective, ranks));
            }
        }
    }
}

#[test]
fn every_algorithm_is_right_on_any_executor() {
    each(1..=EXACT, |algorithm, collective, schedules| {
        for in_place in [false, true] {
            for mode in [Mode::buffered(1), Mode::buffered(2), Mode::POSTED] {
                run(collective, &schedules, in_place, mode).unwrap_or_else(|flaw| {
                    let (name, ranks, call) = (algorithm.name, schedules.len(), named(collective));
                    panic!("{name}: {call}, {ranks} ranks, in place {in_place}, {mode:?}: {flaw}")
                });
            }
        }
    });
}

#[test]
fn every_algorithm_is_proved_and_folding_says_the_same() {
    each(1..=EXACT, |algorithm, collective, schedules| {
        let (name, ranks, call) = (algorithm.name, schedules.len(), named(collective));
        let proof = verify_all(collective, &schedules)
            .unwrap_or_else(|flaw| panic!("{name}: {call}, {ranks} ranks: {flaw}"));
        let folded = verify_folded(collective, ranks, |rank| schedules[rank].clone())
            .unwrap_or_else(|flaw| panic!("{name}: {call}, {ranks} ranks, folded: {flaw}"));
        assert_eq!(
            folded.is_some(),
            folds(algorithm, collective, ranks),
            "{name}, {ranks} ranks"
        );
        let Some(folded) = folded else { return };
        assert_eq!((proof.steps, proof.messages), (folded.steps, folded.messages));
        assert_eq!(folded.folded, Some(ranks));
        for in_place in [false, true] {
            let of_rank = |rank: usize| {
                folded
                    .staged(in_place)
                    .map(move |site| SendSite { rank, ..site.clone() })
            };
            let unfolded: Vec<_> = (0..ranks).flat_map(of_rank).collect();
            assert!(
                proof.staged(in_place).eq(&unfolded),
                "{name}, {ranks} ranks, in place {in_place}"
            );
        }
    });
}

/// Whether the ranks' schedules are turned copies of each other. Partners at distances of powers of two are not.
fn folds(algorithm: &Algorithm, collective: Collective, ranks: usize) -> bool {
    match algorithm.name {
        _ if collective.root().is_some() => false,
        "direct" | "oneshot" | "pairwise" | "ring" | "bruck" => true,
        "doubling" | "halving" => ranks <= 2,
        "doubletree" => ranks == 1,
        _ => false,
    }
}

/// Proves an algorithm for many ranks.
fn prove_large(algorithm: &Algorithm, collective: Collective, ranks: usize) {
    let schedule_of = |rank| {
        (algorithm.build)(&Request {
            collective,
            ranks,
            rank,
        })
    };
    let proof = verify(collective, ranks, schedule_of)
        .unwrap_or_else(|flaw| panic!("{}: {}, {ranks} ranks: {flaw}", algorithm.name, named(collective)));
    assert_eq!(proof.folded.is_some(), folds(algorithm, collective, ranks));
    assert!(proof.messages >= ranks as u64 - 1);
}

#[test]
fn random_numbers_of_ranks_up_to_4096() {
    for seed in 0..8 {
        let ranks = EXACT + 1 + mix(seed) as usize % (4096 - EXACT);
        let root = mix(!seed) as u32 % ranks as u32;
        for collective in definition::every([root as usize]) {
            algo::fitting(collective).for_each(|algorithm| prove_large(algorithm, collective, ranks));
        }
    }
}

#[test]
fn a_hundred_thousand_ranks() {
    let ranks = 100_000;
    for collective in [Collective::AllReduce, Collective::Broadcast { root: 54_321 }] {
        // What does not fold is proved here as well if a rank has but a few steps.
        for algorithm in algo::fitting(collective) {
            let last = built_one(algorithm, collective, ranks, ranks - 1);
            if folds(algorithm, collective, ranks) || items(&last) <= 4 {
                prove_large(algorithm, collective, ranks);
            }
        }
    }
}

fn items(schedule: &Schedule) -> usize {
    schedule.channels.iter().map(Vec::len).sum()
}

#[test]
fn schedules_are_short_for_any_number_of_ranks() {
    let ranks = 100_000;
    for collective in definition::every([54_321]) {
        for algorithm in algo::fitting(collective) {
            for rank in [0, ranks / 2, ranks - 1] {
                let items = items(&built_one(algorithm, collective, ranks, rank));
                assert!(
                    items <= 5 * 17,
                    "{}: {}, {items} items",
                    algorithm.name,
                    named(collective)
                );
            }
        }
    }
}

#[test]
fn more_ranks_than_a_communicator_has() {
    for collective in [Collective::AllReduce, Collective::Broadcast { root: 54 }] {
        algo::fitting(collective).for_each(|algorithm| prove_large(algorithm, collective, MAX_RANKS + 9));
    }
}

#[test]
fn labels_agree_with_exact_values() {
    let ranks = EXACT + 7;
    for algorithm in ALGORITHMS
        .iter()
        .filter(|algorithm| (algorithm.fits)(Collective::AllReduce))
    {
        let mut schedules = built(algorithm, Collective::AllReduce, ranks);
        let proof = verify_all(Collective::AllReduce, &schedules).unwrap();
        let folded = verify_folded(Collective::AllReduce, ranks, |rank| schedules[rank].clone());
        let messages = folded.unwrap().map(|folded| folded.messages);
        assert_eq!(messages.is_some(), folds(algorithm, Collective::AllReduce, ranks));
        assert_eq!(messages.unwrap_or(proof.messages), proof.messages);
        // One rank sends its neighbour's block in place of its own.
        schedules.swap(3, 4);
        verify_all(Collective::AllReduce, &schedules).unwrap_err();
    }
}

#[test]
fn a_ring_from_slot_to_slot_needs_two_slots() {
    let ring = ALGORITHMS
        .iter()
        .find(|algorithm| algorithm.name == "ring")
        .unwrap();
    let schedules = built(ring, Collective::AllReduce, 4);
    let with = |mode| run(Collective::AllReduce, &schedules, true, mode);
    assert!(with(Mode::buffered(1)).is_ok());
    assert!(with(Mode::buffered(2).holding()).is_ok());
    let flaw = with(Mode::buffered(1).holding()).unwrap_err().to_string();
    assert!(
        flaw.contains("deadlock") && flaw.contains("room in its lane"),
        "{flaw}"
    );
}
