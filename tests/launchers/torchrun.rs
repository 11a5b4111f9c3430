//! PyTorch's own `torchrun`.

use super::{CCL_PERF, SWEEP, bounded, check_table, check_that_rank_1_was_lost, one_is_killed};
use std::{fs, path::Path, process::Command};

/// `torchrun` of the environment that `cargo xtask test` makes (`scripts/torch/install`), with a free port of its own.
fn torchrun(options: &str) -> Option<Command> {
    let torchrun = concat!(env!("CARGO_MANIFEST_DIR"), "/target/tools/torch/bin/torchrun");
    if !Path::new(torchrun).exists() {
        println!("skipped: there is no {torchrun}: run scripts/torch/install target/tools/torch");
        return None;
    }
    let mut command = bounded(torchrun, &format!("--no-python --standalone {options}"));
    command.env("OMP_NUM_THREADS", "1");
    Some(command)
}

#[test]
fn under_torchrun() {
    let Some(mut torchrun) = torchrun("--nproc-per-node 3") else {
        return;
    };
    let ranks = format!("{CCL_PERF} allreduce {SWEEP}");
    let output = torchrun.args(ranks.split(' ')).output().unwrap();
    check_table(&output, "# ranks      3, started by torchrun", "shm");
}

#[test]
fn a_rank_that_dies_ends_all() {
    let Some(mut torchrun) = torchrun("--nproc-per-node 3") else {
        return;
    };
    // A file, because torchrun makes one dollar of two.
    let rank = tempfile::NamedTempFile::new().unwrap();
    fs::write(&rank, one_is_killed("test $RANK = 1")).unwrap();
    let output = torchrun.arg("sh").arg(rank.path()).output().unwrap();
    check_that_rank_1_was_lost(&output, &[]);
}
