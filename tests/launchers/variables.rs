//! Processes with the variables that torchrun sets, started by the test itself.

use super::{CCL_PERF, ENDLESS, SWEEP, check_table, command, text};
use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::fs::PermissionsExt,
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

/// Processes with the variables that torchrun sets on one host, as a job of their own.
struct Torchrun {
    ranks: usize,
    port: String,
}

impl Torchrun {
    fn new(ranks: usize) -> Torchrun {
        static JOBS: AtomicU32 = AtomicU32::new(0);
        // A name like a port's; no port is used on one host.
        let port = format!("{}{:02}", std::process::id(), JOBS.fetch_add(1, Relaxed));
        Torchrun { ranks, port }
    }

    fn rank(&self, rank: usize, line: &str) -> Command {
        let mut command = command(CCL_PERF, line);
        let (rank, ranks) = (rank.to_string(), self.ranks.to_string());
        for (name, value) in [("RANK", &rank), ("LOCAL_RANK", &rank), ("WORLD_SIZE", &ranks)] {
            command.env(name, value);
        }
        command
            .env("LOCAL_WORLD_SIZE", ranks)
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", &self.port)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Starts the first `come` ranks; gives what became of them.
    fn run(&self, come: usize, line: &str) -> Vec<Output> {
        let start = |rank| self.rank(rank, line).spawn().unwrap();
        let ranks: Vec<Child> = (0..come).map(start).collect();
        ranks
            .into_iter()
            .map(|rank| rank.wait_with_output().unwrap())
            .collect()
    }
}

#[test]
fn with_torchrun_s_variables() {
    let folder = tempfile::tempdir().unwrap();
    let (json, csv) = (folder.path().join("json"), folder.path().join("csv"));
    let files = format!("--json {} --csv {}", json.display(), csv.display());
    let outputs = Torchrun::new(3).run(3, &format!("allreduce {SWEEP} --ranks 3 {files}"));
    check_table(&outputs[0], "# ranks      3, started by torchrun", "shm");
    assert_eq!(text(&outputs[0].stderr), "");
    for other in &outputs[1..] {
        assert_eq!(other.status.code(), Some(0));
        assert_eq!(
            (text(&other.stdout), text(&other.stderr)),
            (String::new(), String::new())
        );
    }
    let document: serde_json::Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(
        (&document["ranks"], document["rows"].as_array().unwrap().len()),
        (&3.into(), 3)
    );
    assert!(
        document["launcher"].as_str().unwrap().contains("torchrun"),
        "{document}"
    );
    assert_eq!(fs::read_to_string(csv).unwrap().lines().count(), 1 + 2 * 3);
}

#[test]
fn a_world_of_one() {
    let outputs = Torchrun::new(1).run(1, &format!("broadcast {SWEEP}"));
    check_table(&outputs[0], "# ranks      1, started by torchrun", "shm");
}

#[test]
fn only_the_first_rank_shows_help() {
    for line in ["--help", "--list"] {
        let outputs = Torchrun::new(2).run(2, line);
        let shown: Vec<bool> = outputs.iter().map(|output| !output.stdout.is_empty()).collect();
        assert_eq!(shown, [true, false]);
        assert!(outputs.iter().all(|output| output.status.success()));
    }
}

#[test]
fn mistakes_are_one_line_with_status_2() {
    let job = Torchrun::new(4);
    let mistakes = [
        (
            job.rank(0, "allreduce --ranks 3"),
            "--ranks 3, but torchrun (RANK and WORLD_SIZE) started 4",
        ),
        (
            job.rank(0, "allreduce -e 1000T"),
            "4 ranks with buffers for 1000T",
        ),
        (
            job.rank(4, "allreduce"),
            "RANK=4 does not fit WORLD_SIZE=4: it must be 0 to 3",
        ),
        (
            {
                let mut half = job.rank(0, "allreduce");
                half.env_remove("WORLD_SIZE");
                half
            },
            "RANK=0 is set but WORLD_SIZE is not",
        ),
    ];
    for (mut rank, part) in mistakes {
        let output = rank.output().unwrap();
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.contains(part) && err.lines().count() == 1, "{err}");
        assert_eq!(text(&output.stdout), "");
    }
}

/// What a rank said that failed: one line.
fn failure(output: &Output) -> String {
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
    err
}

#[test]
fn a_rank_that_does_not_come_is_named_by_the_others() {
    for output in Torchrun::new(3).run(2, "allreduce --timeout 5") {
        assert!(failure(&output).contains("1 of 3 ranks never came: 2"));
        assert_eq!(text(&output.stdout), "");
    }
}

#[test]
fn a_file_that_cannot_be_written_ends_all_ranks() {
    let outputs = Torchrun::new(2).run(2, "allreduce --json /nowhere/x --timeout 60");
    assert!(failure(&outputs[0]).contains("rank 0: --json /nowhere/x: cannot write there"));
    assert!(failure(&outputs[1]).contains("rank 1: rank 0 has left"));
}

#[test]
fn a_rank_that_dies_is_named_by_the_others() {
    let job = Torchrun::new(3);
    let line = format!("allreduce {ENDLESS}");
    let mut ranks: Vec<Child> = (0..3)
        .map(|rank| job.rank(rank, &line).spawn().unwrap())
        .collect();
    // The names of the columns are printed when all ranks have met.
    let mut lines = BufReader::new(ranks[0].stdout.take().unwrap()).lines();
    assert!(
        lines.any(|line| line.unwrap().contains("busbw")),
        "the run did not start"
    );
    ranks[1].kill().unwrap();
    for (rank, mut child) in ranks.into_iter().enumerate() {
        let status = child.wait().unwrap();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        if rank == 1 {
            assert_eq!((status.code(), said.as_str()), (None, ""));
        } else {
            assert_eq!(status.code(), Some(1), "{said}");
            assert!(
                said.starts_with(&format!("ccl-perf: rank {rank}: rank 1 was lost")),
                "{said}"
            );
            assert_eq!(said.lines().count(), 1, "{said}");
        }
    }
}

/// Rank 1 of 2 that are on two hosts.
fn on_two_hosts(variables: &[(&str, &str)]) -> String {
    let mut rank = Torchrun::new(2).rank(1, "allreduce --timeout 1");
    rank.env("LOCAL_RANK", "0")
        .env("LOCAL_WORLD_SIZE", "1")
        .env("MASTER_PORT", "29500");
    let output = rank.envs(variables.iter().copied()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    text(&output.stderr)
}

#[test]
fn several_hosts_need_a_secret() {
    let said = on_two_hosts(&[]);
    for line in [
        "  (umask 077 && head -c 32 /dev/urandom | base64 > ~/.ccl-secret)",
        "  export CCL_SECRET_FILE=~/.ccl-secret",
    ] {
        assert!(said.lines().any(|said| said == line), "{said}");
    }
    assert!(on_two_hosts(&[("CCL_SECRET", "too short")]).contains("has 9 characters"));
    assert!(on_two_hosts(&[("CCL_INSECURE", "yes")]).contains("CCL_INSECURE=yes is neither 0 nor 1"));
    // With a secret it gets further.
    let said = on_two_hosts(&[("CCL_SECRET", "long enough to be one")]);
    assert!(!said.contains("secret"), "{said}");
    let said = on_two_hosts(&[("CCL_INSECURE", "1")]);
    assert_eq!(said.matches("warning: CCL_INSECURE=1").count(), 1, "{said}");
}

#[test]
fn a_secret_s_file_is_its_owner_s_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    fs::write(&path, "0123456789abcdef\n").unwrap();
    let shown = path.to_str().unwrap();
    let with_mode = |mode| {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        on_two_hosts(&[("CCL_SECRET_FILE", shown), ("CCL_SECRET", "another, good enough")])
    };
    assert!(with_mode(0o644).contains(&format!("chmod 600 {shown}")));
    assert!(!with_mode(0o600).contains("secret"));
    fs::write(&path, "0123456789abcde\n").unwrap();
    assert!(with_mode(0o600).contains("the secret of CCL_SECRET_FILE has 15 characters"));
    fs::remove_file(&path).unwrap();
    assert!(on_two_hosts(&[("CCL_SECRET_FILE", shown)]).contains("cannot be read"));
}
