//! What passed, failed and was skipped.

use std::process::ExitCode;

/// The outcome of many checks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    /// What failed.
    pub(crate) failed: Vec<String>,
    /// What was skipped, and why.
    pub(crate) skipped: Vec<String>,
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

    pub(crate) fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.skipped.extend(other.skipped);
    }

    /// Prints the names of what did not pass, and the counts as the last line. With `complete` nothing may be skipped.
    pub(crate) fn report(&self, complete: bool) -> ExitCode {
        println!();
        for name in &self.failed {
            println!("failed: {name}");
        }
        for name in &self.skipped {
            println!("skipped: {name}");
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
