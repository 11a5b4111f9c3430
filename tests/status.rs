//! What is told of ranks while they run, hang, or have failed: `ccl-perf status`, records, and traces.
#![allow(missing_docs)]

mod common;

use ccl::{Communicator, Config, Op, Record};
use common::process::{Rank, role, say};
use rustix::process::{Pid, Signal, getuid, kill_process};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    env,
    fs::{self, Permissions},
    io::{BufRead, BufReader, Read, Write},
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::PermissionsExt,
            net::{SocketAddr, UnixStream},
            process::CommandExt,
        },
    },
    path::Path,
    process::{Command, Output, Stdio},
    thread::{self, sleep},
    time::{Duration, Instant},
};

/// Far more than anything here takes, unless it hangs.
const SOON: Duration = Duration::from_secs(60);

/// Not a test by itself: what the processes do that the tests below start.
#[test]
fn roles() {
    if let Ok(name) = env::var("CCL_TEST_KNOCK") {
        return say(knock(&name));
    }
    if let Ok(name) = env::var("CCL_TEST_FLOOD") {
        return flood(&name);
    }
    let Some((role, id, ranks, rank)) = role() else {
        return;
    };
    let mut config = Config::default();
    config.timeout = Some(10 * SOON);
    let comm = Communicator::init(ranks, &id, rank, &config).unwrap();
    match role.as_str() {
        // Rank 1 makes five calls, the others begin a sixth.
        "late" => {
            sum(&comm, 5, 1000);
            say("ready");
            if rank != 1 {
                sum(&comm, 1, 1000);
            }
            sleep(10 * SOON);
        }
        "differ" => {
            sum(&comm, 3, 10);
            let error = comm.all_reduce_in_place(&mut vec![1f32; 10 + rank], Op::Sum);
            error.unwrap_err();
            say(comm.records().last().map(Record::to_string).unwrap_or_default());
        }
        "trace" | "trace_and_be_killed" => {
            sum(&comm, 20, 2);
            sum(&comm, 5, 100_000);
            comm.barrier().unwrap();
            let other = 1 - rank;
            match rank {
                0 => comm.send(&[1u8; 9], other).unwrap(),
                _ => comm.recv(&mut [0u8; 9], other).unwrap(),
            }
            // More at once than are kept.
            let mut bytes = [0u8; MANY];
            let all = comm.scope(|scope| match rank {
                0 => bytes.chunks(1).try_for_each(|byte| scope.send(byte, other)),
                _ => bytes.chunks_mut(1).try_for_each(|byte| scope.recv(byte, other)),
            });
            all.unwrap();
            if role != "trace" {
                sum(&comm, 1, 2);
                sleep(Duration::from_millis(300)); // the next event is written with all before it
                sum(&comm, 1, 2);
                say("ready");
                sleep(10 * SOON);
            }
        }
        "fork" => {
            sum(&comm, 3, 2);
            fork(&comm);
            sum(&comm, 3, 2);
        }
        _ => panic!("{role}"),
    }
}

/// Messages of one scope.
const MANY: usize = 100;

fn sum(comm: &Communicator, calls: usize, count: usize) {
    for _ in 0..calls {
        comm.all_reduce_in_place(&mut vec![1f32; count], Op::Sum).unwrap();
    }
}

/// A child that has a communicator of its own.
fn fork(comm: &Communicator) {
    // SAFETY: this process has no other thread that holds a lock which the child needs, but the harness's, which it does not
    // use; it ends by _exit.
    let pid = unsafe { libc::fork() };
    if pid != 0 {
        let mut status = 0;
        // SAFETY: waits for our own child; `status` is a live int.
        unsafe { libc::waitpid(pid, &mut status, 0) };
        say(format!("{pid} {status}"));
        return;
    }
    let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        assert_eq!(comm.records().len(), 3); // the parent's are still to be seen
        let id = ccl::UniqueId::new().unwrap();
        let own = Communicator::init(1, &id, 0, &Config::default()).unwrap();
        sum(&own, 2, 2);
        assert_eq!(own.records().len(), 2);
    }));
    // SAFETY: ends the child without running what the parent registered.
    unsafe { libc::_exit(if made.is_ok() { 0 } else { 1 }) }
}

fn status(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccl-perf"));
    command.arg("status").args(words).output().unwrap()
}

/// What `pid` tells of its only communicator, as soon as `good` says that it is as it will be.
fn communicator(pid: u32, good: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let output = status(&["--json", &pid.to_string()]);
        let all: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let told = &all[0]["communicators"][0];
        if output.status.success() && good(told) {
            assert_eq!(all[0]["pid"], pid);
            return told.clone();
        }
        assert!(begun.elapsed() < SOON, "{all:#} {output:?}");
        sleep(Duration::from_millis(20));
    }
}

/// The text has all these parts, as soon as all have answered in time.
fn says(words: &[&str], parts: &[&str]) {
    let begun = Instant::now();
    loop {
        let said = text(&status(words).stdout);
        match parts.iter().find(|part| !said.contains(**part)) {
            None => return,
            Some(part) => assert!(begun.elapsed() < SOON, "{part}: {said}"),
        }
        sleep(Duration::from_millis(20));
    }
}

fn in_call(rank: &Value, seq: u64) -> bool {
    // Who did not answer in time has none.
    let last = rank["records"].as_array().and_then(|records| records.last());
    last.is_some_and(|last| last["state"] == "under way" && last["call"] == seq)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn who_is_behind_and_who_is_stopped() {
    let mut ranks = Rank::start_all(3, &[], "late");
    assert!(ranks.iter_mut().all(|rank| rank.said() == "ready"));
    let pids: Vec<u32> = ranks.iter().map(|rank| rank.child.id()).collect();
    let behind = serde_json::json!([{"rank": 1, "calls": 1}]);
    let waits = |told: &Value| {
        [0, 2].iter().all(|&rank| in_call(&told["seen"][rank], 5))
            && told["seen"][1]["state"] == "answers"
            && told["behind"] == behind
    };
    // Whoever is asked, the late one too.
    for &pid in &pids {
        let told = communicator(pid, waits);
        assert_eq!(told["ranks"], 3);
        assert_eq!(told["calls"], 6);
        assert_eq!(told["failure"], Value::Null);
        let late = &told["seen"][1];
        assert_eq!((&late["state"], &late["calls"]), (&"answers".into(), &5.into()));
        assert_eq!(late["pid"], pids[1]);
        assert_eq!(
            late["records"].as_array().unwrap().last().unwrap()["state"],
            "done"
        );
    }
    // Once rank 0 sleeps it says for whom it waits, and that it is over shared memory.
    let told = communicator(pids[0], |told| told["seen"][0]["still_seconds"].is_number());
    let first = &told["seen"][0];
    assert!(
        first["waits_for"].as_array().unwrap().contains(&1.into()),
        "{told:#}"
    );
    assert!(
        first["links"]
            .as_array()
            .unwrap()
            .iter()
            .any(|link| link["to"] == "shm")
    );
    let parts = [
        "behind: rank 1 by 1 call of 6",
        "): in call #5 allreduce(1000 x float32, sum) for ",
        "): in no operation, after 5 calls; the last was call #4 allreduce(1000 x float32, sum)",
        "rank 0 by shm with rank",
        "rank 0 called call #4 allreduce(1000 x float32, sum) by ",
    ];
    says(&[&pids[0].to_string()], &parts);
    // Without a number all are asked that may be.
    let all = pids.iter().map(|pid| format!(":{pid}, ccl ")).collect::<Vec<_>>();
    says(&[], &all.iter().map(String::as_str).collect::<Vec<_>>());

    let stopped = pids[2];
    kill_process(Pid::from_child(&ranks[2].child), Signal::STOP).unwrap();
    let told = communicator(pids[0], |told| told["seen"][2]["state"] == "silent");
    let why = told["seen"][2]["why"].as_str().unwrap();
    assert!(why.contains("it may be stopped"), "{why}");
    let output = status(&[&stopped.to_string()]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    let wanted = format!("ccl-perf: process {stopped}: it did not answer within 5s: it is stopped\n");
    assert_eq!(said, wanted);
}

#[test]
fn processes_that_tell_nothing() {
    let mut idle = Command::new("sleep").arg("1000").spawn().unwrap();
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    for (pid, why) in [
        (idle.id(), "it uses no communicator of ccl's, or none yet"),
        (gone.id(), "there is no such process"),
    ] {
        let output = status(&[&pid.to_string()]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(text(&output.stderr), format!("ccl-perf: process {pid}: {why}\n"));
    }
    idle.kill().unwrap();
    idle.wait().unwrap();
    for mistake in [&["x"][..], &["--nonsense"]] {
        let output = status(mistake);
        assert_eq!(
            (output.status.code(), text(&output.stderr).lines().count()),
            (Some(2), 1)
        );
    }
    assert!(text(&status(&["--help"]).stdout).contains("ccl-perf status"));
}

/// The name of the socket where the control thread of process `pid` listens.
fn socket_of(pid: u32) -> String {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let links = links.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    let inodes: BTreeSet<String> = links
        .filter_map(|link| {
            Some(
                link.to_str()?
                    .strip_prefix("socket:[")?
                    .strip_suffix(']')?
                    .to_owned(),
            )
        })
        .collect();
    let table = fs::read_to_string(format!("/proc/{pid}/net/unix")).unwrap();
    let mut names = table.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_ours = words.len() == 8 && words[3] == "00010000" && inodes.contains(words[6]);
        is_ours.then(|| words[7].strip_prefix('@').map(str::to_owned))?
    });
    names.next().unwrap()
}

/// How many bytes come back to somebody who asks at a control thread's socket.
fn knock(name: &str) -> usize {
    let mut hello = [0u8; 72];
    hello[..8].copy_from_slice(b"ccl\0wire");
    (hello[8], hello[12]) = (6, 6);
    hello[16..24].fill(0xff);
    hello[40..].fill(7);
    let mut stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    if stream.write_all(&hello).is_err() {
        return 0; // it was closed before
    }
    stream.read(&mut [0; 72]).unwrap_or(0)
}

/// Connects, and says nothing, as often as it can, as long as somebody is there.
fn flood(name: &str) {
    say("floods");
    let address = SocketAddr::from_abstract_name(name).unwrap();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| while UnixStream::connect_addr(&address).is_ok() {});
        }
    });
}

/// Somebody else's process tells nothing, neither by its files nor at its socket, which anybody may find.
#[test]
fn another_user_is_refused() {
    if !getuid().is_root() {
        println!("skipped: only the superuser can be another user");
        return;
    }
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let copy = |from: &Path, name: &str| {
        let to = folder.path().join(name);
        fs::copy(from, &to).unwrap();
        fs::set_permissions(&to, Permissions::from_mode(0o755)).unwrap();
        to
    };
    let tool = copy(Path::new(env!("CARGO_BIN_EXE_ccl-perf")), "ccl-perf");
    let test = copy(&env::current_exe().unwrap(), "test");
    let mut ranks = Rank::start_all(2, &[], "late");
    assert!(ranks.iter_mut().all(|rank| rank.said() == "ready"));
    let pid = ranks[0].child.id();
    let nobody = |program: &Path| {
        let mut command = Command::new(program);
        command.uid(65534).gid(65534).current_dir("/");
        command
    };
    let output = nobody(&tool).args(["status", &pid.to_string()]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let wanted = format!("ccl-perf: process {pid}: it belongs to another user\n");
    assert_eq!(text(&output.stderr), wanted);
    let name = socket_of(pid);
    assert_eq!(knock(&name), 72);
    let output = nobody(&test)
        .args(["--exact", "roles", "--nocapture"])
        .env("CCL_TEST_KNOCK", &name)
        .output()
        .unwrap();
    let said = text(&output.stdout);
    assert!(said.contains("says: 0\n"), "{said} {output:?}");
    // Nor does it keep others from being heard.
    let mut flood = nobody(&test)
        .args(["--exact", "roles", "--nocapture"])
        .env("CCL_TEST_FLOOD", &name)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(flood.stdout.take().unwrap()).lines();
    assert!(
        lines
            .by_ref()
            .map_while(Result::ok)
            .any(|line| line.ends_with("floods"))
    );
    // Where others have the processors for long one may not be heard in time; the next one is.
    let patiently = |_| (0..3).map(|_| knock(&name)).find(|&len| len > 0);
    let heard: Vec<_> = (0..20).map(patiently).collect();
    flood.kill().unwrap();
    flood.wait().unwrap();
    assert_eq!(heard, [Some(72); 20]);
}

#[test]
fn what_was_called_before_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("flight-%h-%p");
    let settings = [("CCL_FLIGHT_FILE", file.to_str().unwrap()), ("CCL_DEBUG", "info")];
    let mut ranks = Rank::start_all(2, &settings, "differ");
    for (rank, count) in ranks.iter_mut().zip([10, 11]) {
        let said = rank.said();
        let call = format!("call #3 allreduce({count} x float32, sum) by ");
        assert!(
            said.starts_with(&call) && said.contains(", failed (mismatch) after "),
            "{said}"
        );
        let pid = rank.child.id();
        assert!(rank.child.wait().unwrap().success());
        let log = rank.log();
        assert!(log.contains(&format!("record: {call}")), "{log}");
        assert!(
            log.contains("record: call #2 allreduce(10 x float32, sum) by "),
            "{log}"
        );
        let files = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let file = files
            .into_iter()
            .find(|path| path.to_str().unwrap().ends_with(&format!("-{pid}")));
        let told = fs::read_to_string(file.unwrap()).unwrap();
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(lines.len(), 5, "{told}");
        assert!(
            lines[0].contains("call #3 allreduce(10 x float32") && lines[0].contains(" of 2, "),
            "{told}"
        );
        assert!(
            lines[1].starts_with("  call #0 allreduce(10 x float32, sum) by "),
            "{told}"
        );
        assert!(
            lines[4].starts_with(&format!("  {call}")) && lines[4].contains("under way"),
            "{told}"
        );
    }
}

/// The events of a trace, by their kinds.
fn events(path: &str) -> (Vec<Value>, Vec<Value>) {
    let trace = fs::read_to_string(path).unwrap();
    let events: Vec<Value> = serde_json::from_str(&trace).unwrap_or_else(|e| panic!("{e}: {trace}"));
    let whole: Vec<Value> = events.into_iter().filter(|event| event["ph"] == "X").collect();
    whole.into_iter().partition(|event| event["cat"] == "operation")
}

fn count(events: &[Value], name: &str) -> usize {
    events.iter().filter(|event| event["name"] == name).count()
}

#[test]
fn a_trace_has_every_operation() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let file = format!("{path}/trace-%p.json");
    // The last event before a violent end may not be written.
    for (role, sums) in [("trace", 25..=25), ("trace_and_be_killed", 26..=27)] {
        let mut ranks = Rank::start_all(2, &[("CCL_TRACE_FILE", &file)], role);
        for (rank, message) in ranks.iter_mut().zip(["send", "recv"]) {
            if role == "trace" {
                assert!(rank.child.wait().unwrap().success());
            } else {
                assert_eq!(rank.said(), "ready");
            }
            let pid = rank.child.id();
            let _ = rank.child.kill();
            let (operations, init) = events(&format!("{path}/trace-{pid}.json"));
            let summed = count(&operations, "allreduce");
            assert!(sums.contains(&summed), "{role}: {summed}");
            assert_eq!(count(&operations, "barrier"), 1);
            assert_eq!((count(&operations, message), init.len()), (1 + MANY, 2));
            assert_eq!(operations.len(), summed + 2 + MANY);
            let first = &operations[0];
            assert_eq!((&first["pid"], &first["args"]["seq"]), (&pid.into(), &0.into()));
            let args = &first["args"];
            assert_eq!((&args["type"], &args["bytes"]), (&"float32".into(), &8.into()));
            assert!(
                args["algorithm"].is_string() && first["dur"].as_f64().unwrap() > 0.0,
                "{first:#}"
            );
        }
    }
}

#[test]
fn a_forked_child_has_a_trace_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    // Without a place for the number of the process one is added.
    let mut ranks = Rank::start_all(1, &[("CCL_TRACE_FILE", &format!("{path}/trace"))], "fork");
    let said = ranks[0].said();
    let (child, status) = said.split_once(' ').unwrap();
    assert_eq!(status, "0");
    assert!(ranks[0].child.wait().unwrap().success());
    let pid = ranks[0].child.id();
    for (pid, calls) in [(pid.to_string(), 6), (child.to_owned(), 2)] {
        let (operations, init) = events(&format!("{path}/trace.{pid}"));
        assert_eq!((operations.len(), init.len()), (calls, 2), "{operations:#?}");
        let number: u32 = pid.parse().unwrap();
        assert!(operations.iter().all(|event| event["pid"] == number));
    }
}
