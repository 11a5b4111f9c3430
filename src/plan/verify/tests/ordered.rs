//! One order for all contributions: which schedules have it, and that others are found out.

use super::{built, built_one, named};
use crate::plan::algo::{Algorithm, fitting};
use crate::plan::cost::Order;
use crate::plan::definition;
use crate::plan::schedule::{Item, Schedule, Step};
use crate::plan::verify::{EXACT, verify, verify_in_order};
use crate::types::{Collective, MAX_RANKS};

/// Calls `check` for each algorithm that says that it has the order, each collective that reduces, and narrow or not.
fn each(ranks: usize, mut check: impl FnMut(&Algorithm, Collective, Order)) {
    let collectives = definition::every([0, ranks - 1]).into_iter();
    for collective in collectives.filter(|collective| collective.reduces()) {
        for narrow in [false, true] {
            let able = fitting(collective).filter(|algorithm| (algorithm.in_order)(ranks, narrow));
            able.for_each(|algorithm| check(algorithm, collective, Order::Tree { narrow }));
        }
    }
}

#[test]
fn those_that_say_so_have_the_order() {
    let mut names = std::collections::BTreeSet::new();
    let prove = |algorithm: &Algorithm, collective, ranks, order| {
        let of = |rank| built_one(algorithm, collective, ranks, rank);
        let proof = verify_in_order(collective, ranks, order, of).unwrap_or_else(|flaw| {
            panic!("{}: {}, {ranks} ranks: {flaw}", algorithm.name, named(collective))
        });
        assert_eq!(Ok(proof), verify(collective, ranks, of));
    };
    for ranks in (1..=40).chain((41..=EXACT).step_by(3)) {
        each(ranks, |algorithm, collective, order| {
            names.insert(algorithm.name);
            prove(algorithm, collective, ranks, order);
        });
    }
    assert!(
        names.contains("direct") && names.contains("doubling"),
        "{names:?}"
    );
    each(MAX_RANKS, |algorithm, collective, order| {
        // A rank that hears from all others takes long to run for each of them.
        if collective == Collective::AllReduce && order == (Order::Tree { narrow: false }) {
            prove(algorithm, collective, MAX_RANKS, order);
        }
    });
}

#[test]
fn sources_in_another_order_are_rejected() {
    let mut swapped = 0;
    for ranks in 2..=8 {
        each(ranks, |algorithm, collective, order| {
            let right = built(algorithm, collective, ranks);
            for rank in 0..ranks {
                for (step, i, j) in pairs(&right[rank]) {
                    let mut wrong = right.clone();
                    steps(&mut wrong[rank])[step].sources.swap(i, j);
                    let of = |rank: usize| wrong[rank].clone();
                    let what = format!("{}: {}, {ranks} ranks", algorithm.name, named(collective));
                    assert!(verify(collective, ranks, of).is_ok(), "{what}");
                    let flaw = verify_in_order(collective, ranks, order, of)
                        .expect_err(&what)
                        .to_string();
                    assert!(flaw.contains("no neighbours in the tree"), "{what}: {flaw}");
                    swapped += 1;
                }
            }
        });
    }
    assert!(swapped > 1000, "{swapped}");
}

/// All steps of a schedule.
fn steps(schedule: &mut Schedule) -> Vec<&mut Step> {
    fn of<'s>(items: &'s mut [Item], steps: &mut Vec<&'s mut Step>) {
        for item in items {
            match item {
                Item::Step(step) => steps.push(step),
                Item::Repeat { items, .. } => of(items, steps),
            }
        }
    }
    let mut all = Vec::new();
    schedule.channels.iter_mut().for_each(|items| of(items, &mut all));
    all
}

/// Each two sources of each step.
fn pairs(schedule: &Schedule) -> Vec<(usize, usize, usize)> {
    let mut schedule = schedule.clone();
    let mut pairs = Vec::new();
    for (step, of) in steps(&mut schedule).into_iter().enumerate() {
        let n = of.sources.len();
        pairs.extend((0..n).flat_map(|i| (i + 1..n).map(move |j| (step, i, j))));
    }
    pairs
}

#[test]
fn another_order_or_a_rounding_in_between_is_found() {
    let (all_reduce, wide, narrow) = (
        Collective::AllReduce,
        Order::Tree { narrow: false },
        Order::Tree { narrow: true },
    );
    let flaw = |name: &str, ranks, order| {
        let algorithm = fitting(all_reduce)
            .find(|algorithm| algorithm.name == name)
            .unwrap();
        let of = |rank| built_one(algorithm, all_reduce, ranks, rank);
        verify_in_order(all_reduce, ranks, order, of)
            .expect_err(name)
            .to_string()
    };
    assert!(flaw("ring", 3, wide).contains("reduces rank 2 and rank 0, which are no neighbours in the tree"));
    assert!(flaw("doubling", 5, wide).contains("no neighbours in the tree"));
    assert!(flaw("doubling", 4, narrow).contains("reduces rank 0 and rank 1,"));
    flaw("halving", 8, wide);
}
