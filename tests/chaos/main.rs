//! Chaos: ranks that are processes are killed, stopped, cut off and besieged, in runs that a seed replays as far as the machine
//! lets it, and what came of it is held against what must.
//!
//! As a test it goes once through all faults. `cargo xtask chaos` goes on for longer: `CCL_CHAOS_SEED`, `CCL_CHAOS_RUNS` and
//! `CCL_CHAOS_SECONDS` say how long.

mod driver;
mod fault;
mod leaks;
mod report;
mod strangers;
mod worker;

use fault::Fault;
use std::{
    env,
    time::{Duration, Instant},
};

/// In the process of a rank, when the driver has started it as one.
#[test]
fn roles() {
    if let Ok(spec) = env::var(worker::SPEC) {
        worker::run(&spec.parse().unwrap());
    }
}

#[test]
fn nothing_hangs_and_nothing_is_left_behind() {
    let number = |name: &str| Some(env::var(name).ok()?.parse::<u64>().expect("a number"));
    let seed = number("CCL_CHAOS_SEED").unwrap_or(1);
    let faults = Fault::all();
    let runs = number("CCL_CHAOS_RUNS").unwrap_or(u64::MAX);
    let time = number("CCL_CHAOS_SECONDS").map(Duration::from_secs);
    // Nothing said: each fault once.
    let runs = match (time, runs) {
        (None, u64::MAX) => faults.len() as u64,
        _ => runs,
    };
    println!("seed {seed}: CCL_CHAOS_SEED={seed} replays it");
    let began = Instant::now();
    let mut report = report::Report::default();
    let only = number("CCL_CHAOS_RUN");
    for run in only.map_or(0..runs, |run| run..run + 1) {
        if time.is_some_and(|time| began.elapsed() > time) {
            break;
        }
        let plan = driver::Plan::new(seed, run, &faults);
        report.add(&plan, driver::run(&plan));
    }
    print!("{report}");
    println!("counted: {} runs in {:.0?}", report.runs(), began.elapsed());
    assert!(report.is_good(), "seed {seed}");
}
