//! Chaos: `tests/chaos` for longer than as a test.

use crate::{cargo::command, run::succeed};
use std::{path::Path, time::SystemTime};

/// How long, and from which seed.
#[derive(Debug)]
pub(crate) struct Plan(Vec<(&'static str, String)>);

impl Plan {
    pub(crate) fn from_args(args: &[&str]) -> Result<Plan, String> {
        let mut plan = Vec::new();
        for pair in args.chunks(2) {
            let (name, number) = match *pair {
                ["--seed", number] => ("CCL_CHAOS_SEED", number),
                ["--runs", number] => ("CCL_CHAOS_RUNS", number),
                ["--seconds", number] => ("CCL_CHAOS_SECONDS", number),
                _ => return Err(format!("{}: see cargo xtask", pair.join(" "))),
            };
            number
                .parse::<u64>()
                .map_err(|_| format!("{} {number}: no number", pair[0]))?;
            plan.push((name, number.to_owned()));
        }
        if !plan.iter().any(|(name, _)| *name != "CCL_CHAOS_SEED") {
            plan.push(("CCL_CHAOS_SECONDS", "300".to_owned()));
        }
        if !plan.iter().any(|(name, _)| *name == "CCL_CHAOS_SEED") {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let seed = now.map_or(1, |now| now.as_millis() % 1_000_000);
            plan.push(("CCL_CHAOS_SEED", seed.to_string()));
        }
        Ok(Plan(plan))
    }
}

/// Runs it; the table is printed.
///
/// # Errors
/// That something hung, was wrong, crashed or was left behind.
pub(crate) fn run(root: &Path, plan: &Plan) -> Result<(), String> {
    let mut cargo = command(root, "test --locked --test chaos -- --exact --nocapture");
    cargo.arg("nothing_hangs_and_nothing_is_left_behind");
    succeed(cargo.envs(plan.0.iter().map(|(name, number)| (name, number))))
}
