//! `srun`, in a cluster of two nodes that `scripts/slurm` makes.

use super::{
    CCL_PERF, HOSTS, SWEEP, check_table, check_that_rank_1_was_lost, one_is_killed, script, text, there_are,
};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Command, Output},
};

const SLURM: [(&str, &str); 4] = [
    ("munged", "munge"),
    ("slurmctld", "slurmctld"),
    ("slurmd", "slurmd"),
    ("srun", "slurm-client"),
];

/// `srun`, with the words of `line` as its arguments.
fn srun(line: &str) -> Option<Command> {
    there_are(&[&HOSTS[..], &SLURM[..]].concat()).then_some(())?;
    script("slurm", &format!("--nodes 2 srun {line}"))
}

fn run(line: &str) -> Option<Output> {
    let mut srun = srun(&format!("{line} {CCL_PERF} allreduce {SWEEP}"))?;
    Some(srun.output().unwrap())
}

const FOUR: &str = "# ranks      4, started by Slurm";

#[test]
fn on_one_node() {
    if let Some(output) = run("-N 1 -n 4") {
        check_table(&output, FOUR, "shm");
    }
}

/// No secret: Slurm's PMIx and PMI-2 plugins carry one.
#[test]
fn on_two_nodes_by_pmi() {
    for plugin in ["pmix", "pmi2"] {
        let Some(output) = run(&format!("--mpi={plugin} -N 2 -n 4")) else {
            return;
        };
        check_table(&output, FOUR, "shm+tcp");
    }
}

/// Nothing is carried: the ranks meet at a port made of the job's numbers, on its first node.
#[test]
fn on_two_nodes_by_a_secret() {
    let Some(mut srun) = srun(&format!("--mpi=none -N 2 -n 3 {CCL_PERF} allreduce {SWEEP}")) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, "which nobody can guess").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let output = srun.env("CCL_SECRET_FILE", &secret).output().unwrap();
    check_table(&output, "# ranks      3, started by Slurm", "shm+tcp");
    let without = run("--mpi=none -N 2 -n 2").unwrap();
    assert!(
        !without.status.success() && text(&without.stderr).contains("export CCL_SECRET_FILE="),
        "{}",
        text(&without.stderr)
    );
}

#[test]
fn a_rank_that_dies_ends_all() {
    let Some(mut srun) = srun("--mpi=pmi2 -N 2 -n 3 sh -c") else {
        return;
    };
    let output = srun
        .arg(one_is_killed("test $SLURM_PROCID = 1"))
        .output()
        .unwrap();
    check_that_rank_1_was_lost(&output, &[0, 2]);
}
