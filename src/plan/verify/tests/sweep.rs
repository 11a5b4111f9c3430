//! Every algorithm, for the ranks that the design names.

use super::{built, built_one, named};
use crate::plan::algo::{self, ALGORITHMS, Algorithm, Request};
use crate::plan::definition;
use crate::plan::schedule::{Item, Schedule};
use crate::plan::verify::{EXACT, Mode, SendSite, run, value::mix, verify, verify_all, verify_folded};
use crate::types::{Collective, MAX_RANKS};

/// The collectives among `ranks` ranks: all roots up to 33 ranks, two of four beyond, the other two for one rank more.
fn collectives(ranks: usize) -> Vec<Collective> {
    match ranks {
        ..=33 => definition::every(0..ranks),
        _ if ranks.is_multiple_of(2) => definition::every([0, ranks / 2]),
        _ => definition::every([1, ranks - 1]),
    }
}

/// The algorithms that fit `collective`. Where its blocks may have any lengths and the ranks are many, its schedules are only
/// compared with those of the collective whose blocks have one length, and there are none.
fn fitting(collective: Collective, ranks: usize) -> Vec<&'static Algorithm> {
    let mut fitting: Vec<_> = algo::fitting(collective).collect();
    if ranks > 17 && collective != collective.plain() {
        for algorithm in fitting.drain(..) {
            for rank in [0, 1, ranks / 3, ranks - 1] {
                let of = |collective| built_one(algorithm, collective, ranks, rank);
                assert_eq!(of(collective), of(collective.plain()), "{}", algorithm.name);
            }
        }
    }
    fitting
}

/// Calls `check` for each algorithm, each collective that it fits and each number of ranks. Returns how often.
fn each(
    numbers: impl Iterator<Item = usize>,
    check: impl Fn(&Algorithm, Collective, Vec<Schedule>),
) -> usize {
    let mut checked = 0;
    for ranks in numbers {
        for collective in collectives(ranks) {
            for algorithm in fitting(collective, ranks) {
                check(algorithm, collective, built(algorithm, collective, ranks));
                checked += 1;
            }
        }
    }
    checked
}

#[test]
fn every_algorithm_is_right_on_any_executor() {
    let numbers = (1..=36).chain(62..=66).chain(126..=EXACT);
    let checked = each(numbers, |algorithm, collective, schedules| {
        for in_place in [false, true] {
            for mode in [Mode::buffered(1), Mode::buffered(2), Mode::POSTED] {
                run(collective, &schedules, in_place, mode).unwrap_or_else(|flaw| {
                    let (name, ranks, call) = (algorithm.name, schedules.len(), named(collective));
                    panic!("{name}: {call}, {ranks} ranks, in place {in_place}, {mode:?}: {flaw}")
                });
            }
        }
    });
    println!("counted: {checked} collectives among up to {EXACT} ranks are right on 6 kinds of executors");
}

#[test]
fn every_algorithm_is_proved_and_folding_says_the_same() {
    let proved = each(1..=EXACT, |algorithm, collective, schedules| {
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
        assert_eq!(proof.certificate, folded.certificate, "{name}, {ranks} ranks");
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
    println!("counted: {proved} collectives among 1 to {EXACT} ranks are proved");
}

/// Whether the ranks' schedules are turned copies of each other. Those in which ranks exchange in pairs are not.
fn folds(algorithm: &Algorithm, collective: Collective, ranks: usize) -> bool {
    match algorithm.name {
        _ if collective.root().is_some() => false,
        "bruck" | "pat" if collective != Collective::AlltoAll => ranks <= 2 || !algo::is_paired(ranks),
        "direct" | "oneshot" | "pairwise" | "ring" | "bruck" | "pat" => true,
        "doubling" | "halving" => ranks <= 2,
        "doubletree" | "hierarchical" | "hierarchical-ring" => ranks == 1,
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
    let mut proved = 0;
    for seed in 0..2 {
        let ranks = EXACT + 1 + mix(seed) as usize % (4096 - EXACT);
        let root = mix(!seed) as u32 % ranks as u32;
        for collective in definition::every([root as usize]) {
            for algorithm in fitting(collective, ranks) {
                prove_large(algorithm, collective, ranks);
                proved += 1;
            }
        }
    }
    println!("counted: {proved} collectives among random numbers of ranks up to 4096 are proved");
}

/// The items of a schedule, those in repeats included, and the most sources and sends of a step.
fn extents(items: &[Item]) -> [usize; 3] {
    let mut sum = [0; 3];
    for item in items {
        let [inner, sources, sends] = match item {
            Item::Step(step) => [0, step.sources.len(), step.sends.len()],
            Item::Repeat { items, .. } => extents(items),
        };
        sum = [sum[0] + 1 + inner, sum[1].max(sources), sum[2].max(sends)];
    }
    sum
}

/// A rank's schedule takes memory for what the rank does, whatever the number of ranks: items as rounds of a tree at
/// most, and steps with as many sources or sends, but for one that hears from all ranks or tells them at once.
#[test]
fn a_hundred_thousand_ranks() {
    let (ranks, root) = (100_000usize, 54_321);
    let few = 8 * ranks.ilog2() as usize;
    let (mut built, mut proved, mut longest) = (0, 0, 0);
    for collective in definition::every([root]) {
        for algorithm in fitting(collective, ranks) {
            let call = format!("{}: {}", algorithm.name, named(collective));
            for rank in [0, 1, root, ranks / 2, ranks - 1] {
                let schedule = built_one(algorithm, collective, ranks, rank);
                for channel in &schedule.channels {
                    let [items, sources, sends] = extents(channel);
                    assert!(items <= few, "{call}, rank {rank}: {items} items");
                    assert!(
                        sources <= few || sources == ranks,
                        "{call}, rank {rank}: {sources} sources"
                    );
                    assert!(
                        sends <= few || sends == ranks - 1,
                        "{call}, rank {rank}: {sends} sends"
                    );
                    longest = longest.max(items);
                }
                built += 1;
            }
            // What does not fold is proved here as well if a rank has but a step or two, and not a block for each rank. An
            // all-to-all has as many blocks as pairs, each of them lent and overwritten in place: that takes minutes.
            let last = built_one(algorithm, collective, ranks, ranks - 1);
            let steps: usize = last.channels.iter().map(Vec::len).sum();
            let short = folds(algorithm, collective, ranks) || steps <= 2 && last.blocks <= 2;
            if short && collective != Collective::AlltoAll {
                prove_large(algorithm, collective, ranks);
                proved += 1;
            }
        }
    }
    println!(
        "counted: {built} schedules for {ranks} ranks have at most {longest} items; {proved} collectives are proved"
    );
}

#[test]
fn more_ranks_than_a_communicator_has() {
    for collective in [Collective::AllReduce, Collective::Broadcast { root: 54 }] {
        // Halving sends runs of blocks that are looked at one by one, of which there are the square of the ranks: two minutes.
        let fitting = algo::fitting(collective).filter(|algorithm| algorithm.name != "halving");
        fitting.for_each(|algorithm| prove_large(algorithm, collective, MAX_RANKS + 9));
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
