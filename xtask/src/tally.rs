//! What passed, failed and was skipped.

use crate::checks::TIMES_AGAIN;
use std::{env, process::ExitCode};

/// The outcome of many checks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    /// What failed.
    pub(crate) failed: Vec<String>,
    /// What was skipped, and why.
    pub(crate) skipped: Vec<String>,
    /// What failed among others, and passed by itself; it counts as passed.
    pub(crate) unsteady: Vec<String>,
}

impl Tally {
    /// Counts a check that passed, or failed for the reason that is printed.
    pub(crate) fn count(&mut self, name: &str, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => self.passed += 1,
            Err(why) => {
                eprintln!("{name}: {why}");
                self.failed.push(name.to_owned());
            }
        }
    }

    /// Counts by what a script says: what did not pass has a line of its own; its last line has the counts.
    pub(crate) fn line(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("failed: ") {
            self.failed.push(name.to_owned());
        } else if let Some(name) = line.strip_prefix("skipped: ") {
            self.skipped.push(name.to_owned());
        } else if let Some((passed, _)) = line.split_once(" passed, ") {
            self.passed += passed.parse::<usize>().unwrap_or(0);
        }
    }

    /// What the end of a program tells whose checks were counted: one that did not compile, or that crashed, printed no counts.
    pub(crate) fn ended(&mut self, name: &str, ended: Result<(), String>) {
        match ended {
            Err(why) if self.failed.is_empty() => self.count(name, Err(why)),
            Ok(()) if self.passed == 0 => self.count(name, Err("no test was run".to_owned())),
            _ => {}
        }
    }

    /// Counts what failed and has passed when it was run again.
    pub(crate) fn passed_again(&mut self, tests: Vec<String>) {
        self.passed += tests.len();
        self.unsteady.extend(tests);
    }

    pub(crate) fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.unsteady.extend(other.unsteady);
        self.failed.extend(other.failed);
        self.skipped.extend(other.skipped);
    }

    /// Prints the names of what did not pass, and the counts as the last line. With CI=true nothing may be skipped.
    pub(crate) fn report(&self) -> ExitCode {
        let complete = env::var("CI").is_ok_and(|ci| ci == "true");
        println!();
        for name in &self.failed {
            println!("failed: {name}");
        }
        for name in &self.skipped {
            println!("skipped: {name}");
        }
        for name in &self.unsteady {
            println!("unsteady: {name} (failed among others, passed {TIMES_AGAIN} times by itself)");
        }
        let incomplete = complete && !self.skipped.is_empty();
        if incomplete {
            println!("CI=true: nothing may be skipped");
        }
        println!(
            "{} passed, {} failed, {} skipped",
            self.passed,
            self.failed.len(),
            self.skipped.len()
        );
        match self.failed.is_empty() && !incomplete {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_counts_are_read() {
        let mut tally = Tally::default();
        let text = "failed: a.b\nskipped: c: no such thing\nsome words\n3 passed, 1 failed, 1 skipped\n";
        text.lines().for_each(|line| tally.line(line));
        let want = Tally {
            passed: 3,
            failed: vec!["a.b".to_owned()],
            skipped: vec!["c: no such thing".to_owned()],
            unsteady: Vec::new(),
        };
        assert_eq!(tally, want);
    }
}
