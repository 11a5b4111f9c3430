//! `ccl-perf` under launchers: the real ones, and processes with the variables that they set.

mod kubernetes;
mod mpirun;
mod slurm;
mod torchrun;
mod variables;

use std::process::{Command, Output, Stdio};

const CCL_PERF: &str = env!("CARGO_BIN_EXE_ccl-perf");

/// A few sizes, and an end if something hangs.
const SWEEP: &str = "-b 1K -e 1M -f 32 -n 5 --timeout 60";

/// A run that goes on until a rank fails.
const ENDLESS: &str = "-b 1M -e 1M -n 10000000 --timeout 60";

/// A command that sees nothing of the launcher under which the tests themselves may run, and no secret. The words of `line`
/// are its arguments.
fn command(program: &str, line: &str) -> Command {
    let mut command = Command::new(program);
    command
        .args(line.split_whitespace())
        .env_clear()
        .stdin(Stdio::null());
    for name in ["PATH", "HOME", "TMPDIR"] {
        command.envs(std::env::var_os(name).map(|value| (name, value)));
    }
    command
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command
}

/// A command that starts ranks, and is ended if it hangs. Open MPI's mpirun may do so over several hosts after ranks have failed:
/// it waits for a daemon of its own.
fn bounded(program: &str, line: &str) -> Command {
    let mut bounded = command("timeout", LIMIT);
    bounded.arg(program).args(line.split_whitespace());
    bounded
}

/// More than ranks that hang take to say so.
const LIMIT: &str = "--kill-after 10 180";

/// Whether the programs that a test runs are there; the test is counted as skipped if one is not.
fn there_are(programs: &[(&str, &str)]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &str| std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    let missing = programs.iter().find(|(program, _)| !is_there(program));
    if let Some((program, package)) = missing {
        println!("skipped: there is no {program}: install {package}");
    }
    missing.is_none()
}

/// What a test of several hosts takes.
const HOSTS: [(&str, &str); 2] = [("ip", "iproute2"), ("unshare", "util-linux")];

/// A script of the project, with the words of `line` as its arguments, or `None` where it cannot make hosts.
fn script(name: &str, line: &str) -> Option<Command> {
    let probe = command("unshare", "--net true").output().unwrap();
    if !probe.status.success() {
        println!("skipped: no network namespaces: {}", text(&probe.stderr).trim());
        return None;
    }
    let path = format!("{}/scripts/{name}", env!("CARGO_MANIFEST_DIR"));
    Some(bounded(&path, line))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Checks that `output` is one whole table of the `SWEEP` without a wrong element, and shows it.
fn check_table(output: &Output, origin: &str, transport: &str) {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}\n{err}");
    for (line, times) in [
        ("# ccl-perf", 1),
        (origin, 1),
        (&format!("# transport  {transport}\n"), 1),
        ("# Out of bounds values : 0 OK", 1),
    ] {
        assert_eq!(out.matches(line).count(), times, "{line}:\n{out}\n{err}");
    }
    let rows = out.lines().filter(|line| !line.starts_with('#'));
    let rows: Vec<Vec<&str>> = rows.map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        rows.iter().map(|row| row[0]).collect::<Vec<_>>(),
        ["1024", "32768", "1048576"],
        "{out}"
    );
    assert!(rows.iter().all(|row| (row[11], row[16]) == ("0", "0")), "{out}");
    println!("{out}");
}

/// A shell line for a rank that runs `ccl-perf`, and is killed after a while if `condition` holds. The ranks' time is limited,
/// should that not happen.
fn one_is_killed(condition: &str) -> String {
    format!(
        "ulimit -t 100; if {condition}; then (sleep 1; kill -9 $$) & fi; exec {CCL_PERF} allreduce {ENDLESS}"
    )
}

/// Checks that all ranks ended, because rank 1 was lost.
fn check_that_rank_1_was_lost(output: &Output, survivors: &[usize]) {
    let err = text(&output.stderr);
    assert_ne!(output.status.code(), Some(0), "{err}");
    for rank in survivors {
        let said = format!("ccl-perf: rank {rank}: rank 1 was lost");
        assert!(err.contains(&said), "{said}:\n{err}");
    }
}
