use super::super::flaw::Flaws;
use super::super::mutate::{ALL, Dice, Mutation, text as mutated_text};
use super::super::read::{Reading, read};
use super::play::play;
use super::{files, folder, proved, reading};
use std::collections::BTreeMap;

/// How mutants of a kind were judged.
#[derive(Default)]
struct Judged {
    rejected: usize,
    accepted: usize,
}

/// What is accepted although something is changed has right results in whatever order it is carried out.
#[test]
fn mutants_are_rejected_or_right() {
    let mut dice = Dice(20_261_123);
    let texts: Vec<_> = files(&folder().join("own"))
        .iter()
        .map(|file| std::fs::read_to_string(file).unwrap())
        .collect();
    let mut judged: BTreeMap<Mutation, Judged> = BTreeMap::new();
    for turn in 0..1100 {
        let original = reading(&texts[dice.below(texts.len())]).program;
        let mutation = ALL[turn % ALL.len()];
        let Some(program) = mutation.of(&original, &mut dice) else {
            continue;
        };
        let mutant = Reading {
            program,
            notes: Vec::new(),
            flaws: Flaws::default(),
        };
        let verdict = proved(&mutant);
        let judged = judged.entry(mutation).or_default();
        if !verdict.flaws.is_empty() {
            judged.rejected += 1;
            continue;
        }
        judged.accepted += 1;
        let program = &mutant.program;
        for in_place in [true, false] {
            if !(if in_place {
                program.in_place
            } else {
                program.out_of_place
            }) {
                continue;
            }
            for round in 0..3 {
                let mut order = Dice(turn as u64 * 1000 + round);
                let whole = play(program, in_place, verdict.slots, usize::MAX, &mut order);
                assert_eq!(whole, Ok(()), "{mutation:?} of turn {turn}: {program:?}");
                if verdict.cut.is_none() {
                    let cut = play(program, in_place, program.protocol.slots(), 1, &mut order);
                    assert_eq!(cut, Ok(()), "{mutation:?} of turn {turn}, cut: {program:?}");
                }
            }
        }
    }
    let rejected: usize = judged.values().map(|judged| judged.rejected).sum();
    assert!(rejected > 500, "{rejected}");
    // What changes neither values nor order, if it is not hit, is nearly all that may be accepted.
    for mutation in [Mutation::DroppedStep, Mutation::WrongPeer] {
        assert_eq!(judged[&mutation].accepted, 0, "{mutation:?}");
    }
}

/// The originals, and what [`play`] finds wrong itself.
#[test]
fn playing_agrees_with_the_proof() {
    for file in files(&folder().join("own")) {
        let reading = reading(&std::fs::read_to_string(&file).unwrap());
        let program = &reading.program;
        let in_place = program.in_place;
        for seed in 0..5 {
            let slots = program.protocol.slots();
            let played = play(program, in_place, slots, usize::MAX, &mut Dice(seed));
            assert_eq!(played, Ok(()), "{file:?}");
        }
    }
    let broken = reading(&super::text("own/broken/not-reduced.xml")).program;
    let wrong = play(&broken, true, 8, usize::MAX, &mut Dice(1));
    assert!(wrong.unwrap_err().starts_with("rank 0, chunk 0"));
}

#[test]
fn mutated_texts_are_read_or_refused() {
    let mut dice = Dice(7);
    let texts: Vec<_> = files(&folder().join("own"))
        .iter()
        .map(|file| std::fs::read_to_string(file).unwrap())
        .collect();
    let (mut refused, mut flawed) = (0, 0);
    for turn in 0..1000 {
        let text = mutated_text(&texts[turn % texts.len()], &mut dice);
        match read(&text, "file", 0) {
            Err(flaw) => {
                assert!(flaw.to_string().starts_with("file:"), "{flaw}");
                refused += 1;
            }
            Ok(reading) => flawed += usize::from(!proved(&reading).flaws.is_empty()),
        }
    }
    assert!(
        refused > 100 && flawed > 100,
        "{refused} refused, {flawed} flawed"
    );
}
