//! What schedules cost: as the algorithms count it, and against what there must be at least.

use super::{built, exchange, named};
use crate::plan::algo::{self, Algorithm};
use crate::plan::bounds::Bounds;
use crate::plan::cost::{Load, Order};
use crate::plan::definition;
use crate::plan::verify::{Certificate, Proof, verify_all};
use crate::types::Collective;

/// Calls `check` with every proof among these numbers of ranks, and the call whose grains are an element each.
fn each(numbers: impl IntoIterator<Item = usize>, check: impl Fn(&str, &Algorithm, &Load, &Proof)) -> usize {
    let mut checked = 0;
    for ranks in numbers {
        for collective in definition::every([ranks / 3]) {
            for algorithm in algo::fitting(collective) {
                let proof = verify_all(collective, &built(algorithm, collective, ranks)).unwrap();
                let load = Load {
                    collective,
                    ranks,
                    count: proof.certificate.vector as usize,
                    element: 1,
                    skew: 0,
                    order: Order::Any,
                };
                let what = format!("{}: {}, {ranks} ranks", algorithm.name, named(collective));
                check(&what, algorithm, &load, &proof);
                checked += 1;
            }
        }
    }
    checked
}

#[test]
fn algorithms_count_what_their_schedules_cost() {
    let checked = each((1..=33).chain([63, 64, 65]), |what, algorithm, load, proof| {
        let (counts, found) = ((algorithm.counts)(load), &proof.certificate);
        assert_eq!(counts.all.messages, 2.0 * proof.messages as f64, "{what}");
        assert_eq!(counts.all.bytes, 2.0 * found.total as f64, "{what}");
        let rounds = counts.rounds_one_by_one(load.collective);
        match algorithm.name {
            "doubling" | "direct" | "ring" | "halving" | "bruck" | "pat" | "tree" | "chain" => {
                assert_eq!(counts.busiest.bytes, found.passed as f64, "{what}");
                assert_eq!(rounds, found.rounds as f64, "{what}");
            }
            _ => assert!(counts.busiest.bytes >= found.passed as f64, "{what}"),
        }
        match algorithm.name {
            "direct" | "ring" | "bruck" | "pat" | "chain" => {
                assert_eq!(counts.rounds, found.chain as f64, "{what}");
            }
            // What a rank sends to all its children, or to one and then to another, are as many rounds, but no chain.
            _ => assert!(counts.rounds >= found.chain as f64, "{what}"),
        }
    });
    println!("counted: {checked} collectives cost what their algorithms count");
}

#[test]
fn algorithms_are_as_good_as_they_claim() {
    let checked = each((2..=33).chain([64, 100]), |what, algorithm, load, proof| {
        let bounds = Bounds::of(load.collective, load.ranks);
        let found = &proof.certificate;
        let (rounds, bytes) = (found.times_rounds(&bounds), found.times_passed(&bounds));
        assert!(
            rounds >= 1.0 && bytes >= 1.0,
            "{what}: {found:?} where {bounds:?}"
        );
        let power = load.ranks.is_power_of_two();
        let (most_rounds, most_bytes) = match (algorithm.name, load.collective) {
            ("ring", _) => (f64::INFINITY, 1.0),
            ("direct", Collective::Reduce { .. } | Collective::Broadcast { .. }) => {
                (f64::INFINITY, f64::INFINITY)
            }
            ("direct", _) => (f64::INFINITY, 1.0),
            ("bruck", Collective::AllGather) | ("pat", _) => (1.0, 1.0),
            ("tree", Collective::Gather { .. } | Collective::Scatter { .. }) => (1.0, 1.5),
            ("tree", _) => (1.0, f64::INFINITY),
            ("doubling", _) if power => (1.0, f64::INFINITY),
            ("doubling", _) => (2.0, f64::INFINITY),
            ("halving", _) if power => (2.0, 1.0),
            ("halving", _) => (3.0, 2.0),
            ("chain", _) => (f64::INFINITY, load.ranks as f64 / (load.ranks as f64 - 1.0)),
            _ => (f64::INFINITY, f64::INFINITY),
        };
        assert!(rounds <= most_rounds, "{what}: {rounds} times the fewest rounds");
        assert!(
            bytes <= most_bytes + 1e-9,
            "{what}: {bytes} times the least bytes"
        );
    });
    println!("counted: {checked} collectives are as good as their algorithms claim");
}

#[test]
fn an_exchange_costs_what_one_sees() {
    let proof = verify_all(Collective::AllReduce, &exchange()).unwrap();
    let wanted = Certificate {
        chain: 1,
        rounds: 1,
        sent: 1,
        received: 1,
        passed: 2,
        total: 2,
        vector: 1,
    };
    assert_eq!(proof.certificate, wanted);
    let possible = |certificate: Certificate| certificate.is_possible(Collective::AllReduce, 2);
    assert!(possible(wanted));
    assert!(!possible(Certificate {
        rounds: 0,
        chain: 0,
        ..wanted
    }));
    assert!(!possible(Certificate { sent: 0, ..wanted }));
    assert!(!possible(Certificate { vector: 2, ..wanted }));
}
