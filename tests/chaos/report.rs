//! The table of faults and outcomes.

use super::{
    driver::{Flaw, Outcome, Plan},
    fault::Fault,
};
use std::{collections::BTreeMap, fmt, time::Duration};

#[derive(Debug, Default)]
pub(crate) struct Report(BTreeMap<Fault, Row>);

#[derive(Debug, Default)]
struct Row {
    runs: usize,
    flaws: BTreeMap<Flaw, usize>,
    detected: Vec<Duration>,
    recovered: Vec<Duration>,
    growth: [i64; 2],
}

impl Report {
    pub(crate) fn add(&mut self, plan: &Plan, outcome: Outcome) {
        let row = self.0.entry(plan.fault).or_default();
        row.runs += 1;
        for (flaw, what) in outcome.flaws {
            println!("{flaw:?} in {plan}: {what}");
            *row.flaws.entry(flaw).or_default() += 1;
        }
        row.detected.extend(outcome.detected);
        row.recovered.extend(outcome.recovered);
        for (most, growth) in row.growth.iter_mut().zip(outcome.growth) {
            *most = (*most).max(growth);
        }
    }

    pub(crate) fn runs(&self) -> usize {
        self.0.values().map(|row| row.runs).sum()
    }

    pub(crate) fn is_good(&self) -> bool {
        self.0.values().all(|row| row.flaws.is_empty())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<24}{:>5}{:>7}{:>7}{:>9}{:>7}{:>7}  {:<19}{:<19}more at the end",
            "fault",
            "runs",
            "hangs",
            "wrong",
            "crashes",
            "leaks",
            "other",
            "detected: mid, most",
            "went on: mid, most"
        )?;
        for (fault, row) in &self.0 {
            let flaw = |flaw| row.flaws.get(&flaw).copied().unwrap_or(0);
            let flaws = [Flaw::Hang, Flaw::Wrong, Flaw::Crash, Flaw::Leak, Flaw::Other].map(flaw);
            let [hangs, wrong, crashes, leaks, other] = flaws;
            let [fds, maps] = row.growth;
            writeln!(
                f,
                "{fault:<24}{:>5}{hangs:>7}{wrong:>7}{crashes:>9}{leaks:>7}{other:>7}  {:<19}{:<19}{fds} fds, {maps} maps",
                row.runs,
                times(&row.detected),
                times(&row.recovered)
            )?;
        }
        Ok(())
    }
}

/// The median and the longest.
fn times(all: &[Duration]) -> String {
    let mut all = all.to_vec();
    all.sort();
    match all.last() {
        None => String::new(),
        Some(most) => format!("{} {}", short(all[all.len() / 2]), short(*most)),
    }
}

fn short(time: Duration) -> String {
    match time.as_millis() {
        ms @ ..1000 => format!("{ms} ms"),
        _ => format!("{:.2} s", time.as_secs_f64()),
    }
}
