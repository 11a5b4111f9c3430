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
        tally.line(line);
    });
    tally.ended("PyTorch", ended);
    tally
}
