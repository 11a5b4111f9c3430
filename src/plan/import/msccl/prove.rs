//! Proves an algorithm, for calls in place and others as it is made for, and finds out what it needs.

use super::machine::{Cost, Machine, Mode, Outcome};
use super::wires::Wires;
use super::{Flaw, Flaws, Program, check, races, read::Reading};
use crate::plan::verify::value::{Domain, Exact, Labels};

/// What was proved, or found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// What is wrong, whatever the length of vectors.
    pub(crate) flaws: Flaws,
    /// If nothing is: messages that connections must hold.
    pub(crate) slots: usize,
    /// If nothing is: what is wrong where vectors are so long that each chunk is a message of its own.
    pub(crate) cut: Option<Flaw>,
    pub(crate) cost: Cost,
}

/// Up to this many ranks multisets of contributions are kept as they are.
const EXACT: usize = 64;

/// Proves what was read, with so many messages in a connection.
pub(crate) fn prove(reading: &Reading, slots: usize) -> Verdict {
    let program = &reading.program;
    let mut verdict = Verdict {
        flaws: reading.flaws.clone(),
        slots: 1,
        cut: None,
        cost: Cost::default(),
    };
    check::check(program, &mut verdict.flaws);
    if !verdict.flaws.is_empty() {
        return verdict;
    }
    let wires = Wires::new(program);
    for in_place in [true, false] {
        let is_meant = if in_place {
            program.in_place
        } else {
            program.out_of_place
        };
        if !is_meant {
            continue;
        }
        let mode = Mode {
            in_place,
            slots,
            piece: usize::MAX,
        };
        let outcome = run(program, &wires, mode);
        verdict.cost = outcome.cost;
        if !outcome.flaws.is_empty() {
            verdict.flaws = outcome.flaws;
            return verdict;
        }
        let ends = |slots: &usize| {
            let mode = Mode {
                slots: *slots,
                ..mode
            };
            let outcome = Machine::new(program, &wires, &Labels::new(program.ranks()), mode).run();
            outcome.flaws.is_empty()
        };
        let fewer = (1..slots).find(ends);
        verdict.slots = verdict.slots.max(fewer.unwrap_or(slots));
        let cut = run(program, &wires, Mode { piece: 1, ..mode }).flaws;
        verdict.cut = verdict.cut.or(cut.first.into_iter().next());
    }
    verdict
}

fn run(program: &Program, wires: &Wires, mode: Mode) -> Outcome {
    match program.ranks() <= EXACT {
        true => run_with(program, wires, mode, &Exact::new(program.ranks())),
        false => run_with(program, wires, mode, &Labels::new(program.ranks())),
    }
}

fn run_with<D: Domain>(program: &Program, wires: &Wires, mode: Mode, domain: &D) -> Outcome {
    let mut outcome = Machine::new(program, wires, domain, mode).run();
    let mut flaws = Flaws::default();
    races::check(program, wires, mode, &outcome.order, &mut flaws);
    // What comes in any order may hold anything: that is told first.
    flaws.extend(std::mem::take(&mut outcome.flaws));
    outcome.flaws = flaws;
    outcome
}
