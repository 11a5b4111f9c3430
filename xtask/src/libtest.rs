//! Reading what `cargo test -- --show-output` prints.

use crate::tally::Tally;

/// Follows the output line by line.
///
/// A test that cannot run on this machine prints a line `skipped: <why>` and returns; it is counted as skipped, not as
/// passed. One that goes through many cases prints `counted: <how many>`, which is shown. The rest of what passing tests
/// print is left out.
#[derive(Debug, Default)]
pub(crate) struct Output {
    tally: Tally,
    /// A test program has begun, and has not told its counts.
    in_program: bool,
    /// Inside the list of what passing tests printed.
    in_successes: bool,
    /// The test whose output that is.
    test: String,
    /// Failures and skips of the present test program that have a name already.
    failed: usize,
    skipped: usize,
}

impl Output {
    /// Takes the next line and tells whether to show it.
    pub(crate) fn line(&mut self, line: &str) -> bool {
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.program_ended(counts);
            return true;
        }
        match line {
            "successes:" => self.in_successes = true,
            "failures:" => self.in_successes = false,
            _ if begins(line) => {
                self.no_program();
                self.in_program = true;
            }
            _ if self.in_successes => return self.printed_by_a_test(line),
            _ => self.outcome(line),
        }
        !self.in_successes
    }

    /// The sums, once the output is over.
    pub(crate) fn tally(mut self) -> Tally {
        self.no_program();
        self.tally
    }

    /// No test program is running any more: one that has told no counts has crashed. What it ran until then counts for nothing.
    fn no_program(&mut self) {
        if std::mem::take(&mut self.in_program) {
            self.tally
                .failed
                .push("a test program that ended before its tests".to_owned());
            (self.in_successes, self.failed, self.skipped) = (false, 0, 0);
        }
    }

    fn printed_by_a_test(&mut self, line: &str) -> bool {
        if let Some(name) = line
            .strip_prefix("---- ")
            .and_then(|rest| rest.strip_suffix(" stdout ----"))
        {
            self.test = name.to_owned();
        }
        let Some(why) = line.strip_prefix("skipped: ") else {
            return line.starts_with("counted: ");
        };
        self.tally.skipped.push(format!("{}: {why}", self.test));
        self.skipped += 1;
        true
    }

    fn outcome(&mut self, line: &str) {
        let Some((name, outcome)) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.rsplit_once(" ... "))
        else {
            return;
        };
        if outcome == "FAILED" {
            self.tally.failed.push(name.to_owned());
            self.failed += 1;
        } else if outcome.starts_with("ignored") {
            self.tally.skipped.push(format!("{name}: {outcome}"));
        }
    }

    /// A test program's own counts are what is believed; names are for the report.
    fn program_ended(&mut self, counts: &str) {
        let count = |word: &str| {
            let part = counts
                .split(['.', ';'])
                .find_map(|part| part.trim().strip_suffix(word));
            part.and_then(|number| number.trim().parse::<usize>().ok())
                .unwrap_or(0)
        };
        self.tally.passed += count("passed").saturating_sub(self.skipped);
        let unnamed = count("failed").saturating_sub(self.failed);
        self.tally
            .failed
            .extend((0..unnamed).map(|_| "a test whose name was lost".to_owned()));
        (self.in_program, self.in_successes) = (false, false);
        (self.failed, self.skipped) = (0, 0);
    }
}

/// Whether it is the first line of a test program: "running 4 tests".
fn begins(line: &str) -> bool {
    let count = line
        .strip_prefix("running ")
        .and_then(|rest| rest.strip_suffix(" tests").or(rest.strip_suffix(" test")));
    count.is_some_and(|count| count.parse::<usize>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_crashed_has_failed_whatever_others_do() {
        let crashed = "running 2 tests\ntest a ... ok\n";
        let whole = "running 1 test\ntest b ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored\n";
        for text in [[crashed, whole], [whole, crashed]] {
            let mut output = Output::default();
            text.concat().lines().for_each(|line| _ = output.line(line));
            let tally = output.tally();
            assert_eq!(
                (tally.passed, tally.failed),
                (1, vec!["a test program that ended before its tests".to_owned()])
            );
        }
    }

    #[test]
    fn names_and_counts_are_read() {
        let text = "\
running 4 tests
test a::fine ... ok
test a::broken ... FAILED
test a::slow ... ignored, takes a day
test a::gpu ... ok

successes:

---- a::fine stdout ----
noise
counted: 7 cases
---- a::gpu stdout ----
skipped: no device

successes:
    a::fine
    a::gpu

failures:

---- a::broken stdout ----
it broke

failures:
    a::broken

test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s

running 1 test
test src/lib.rs - (line 3) ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s";
        let mut output = Output::default();
        let shown: Vec<&str> = text.lines().filter(|line| output.line(line)).collect();
        assert!(shown.contains(&"it broke") && shown.contains(&"skipped: no device"));
        assert!(!shown.contains(&"noise") && shown.contains(&"counted: 7 cases"));
        let wanted = Tally {
            passed: 2,
            failed: vec!["a::broken".into()],
            skipped: vec!["a::slow: ignored, takes a day".into(), "a::gpu: no device".into()],
            unsteady: Vec::new(),
        };
        assert_eq!(output.tally(), wanted);
    }

    #[test]
    fn a_failure_without_a_name_still_counts() {
        let mut output = Output::default();
        output.line("test result: FAILED. 0 passed; 2 failed; 0 ignored");
        assert_eq!(output.tally().failed.len(), 2);
    }
}
