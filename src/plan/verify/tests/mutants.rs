//! Mistakes in schedules are found, or change nothing.

use crate::plan::verify::mutate::{COUNT, SEED, accepted_mutants, judge};
use std::collections::BTreeMap;

#[test]
fn mutants_are_rejected_or_few() {
    let judged = judge(COUNT, SEED);
    let mut tally: BTreeMap<_, (usize, Vec<String>)> = BTreeMap::new();
    for mutation in &judged.rejected {
        tally.entry(*mutation).or_default().0 += 1;
    }
    for accepted in &judged.accepted {
        let text = format!(
            "{} {} of rank {}",
            accepted.algorithm, accepted.ranks, accepted.mutant.rank
        );
        tally.entry(accepted.mutant.mutation).or_default().1.push(text);
    }
    println!(
        "counted: {} mutants rejected, {} accepted",
        judged.rejected.len(),
        judged.accepted.len()
    );
    for (mutation, (rejected, accepted)) in &tally {
        println!(
            "{mutation:?}: {rejected} rejected, {} accepted: {}",
            accepted.len(),
            accepted.join(", ")
        );
    }
    assert_eq!(tally.len(), 10, "every kind of mistake was made");
    assert!(tally.values().all(|(rejected, _)| *rejected > 0));
    // Steps that are independent may change places, and a copy may be made twice.
    assert!(judged.accepted.len() * 10 < COUNT);
    assert_eq!(
        accepted_mutants().len(),
        judged.accepted.len(),
        "the same seed gives the same mutants"
    );
}
