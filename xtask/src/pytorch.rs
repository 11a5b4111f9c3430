//! The tests of `python/` on a real PyTorch, as `scripts/torch/test` runs and counts them.

use crate::{cargo::of_no_package, run::follow, tally::Tally, tools::TORCH};
use std::{path::Path, process::Command};

/// Runs them; what they say is shown.
pub(crate) fn check(root: &Path) -> Tally {
    let mut tally = Tally::default();
    if !TORCH.is_there(root) {
        tally.skipped.push(format!("PyTorch: {TORCH} is not installed"));
        return tally;
    }
    let mut test = Command::new(root.join("scripts/torch/test"));
    of_no_package(&mut test);
    let ended = follow(&mut test, |line| {
        println!("{line}");
        count(&mut tally, line);
    });
    match ended {
        Err(why) if tally.failed.is_empty() => tally.count("PyTorch", Err(why)),
        Ok(()) if tally.passed == 0 => tally.count("PyTorch", Err("no test was run".to_owned())),
        _ => {}
    }
    tally
}

/// What did not pass has a line of its own; the last line has the counts.
fn count(tally: &mut Tally, line: &str) {
    if let Some(name) = line.strip_prefix("failed: ") {
        tally.failed.push(name.to_owned());
    } else if let Some(name) = line.strip_prefix("skipped: ") {
        tally.skipped.push(name.to_owned());
    } else if let Some((passed, _)) = line.split_once(" passed, ") {
        tally.passed += passed.parse::<usize>().unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_counts_are_read() {
        let mut tally = Tally::default();
        let text = "failed: a.b\nskipped: c: no such thing\nsome words\n3 passed, 1 failed, 1 skipped\n";
        text.lines().for_each(|line| count(&mut tally, line));
        let want = Tally {
            passed: 3,
            failed: vec!["a.b".to_owned()],
            skipped: vec!["c: no such thing".to_owned()],
        };
        assert_eq!(tally, want);
    }
}
