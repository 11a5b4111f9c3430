//! Ranks as processes: this test program runs itself again, with a role in the environment.

use super::*;
use crate::{
    bootstrap::{Peer, health::Health},
    sys::fork,
    transport::links::Opener,
    types::Cause,
};
use rustix::{
    fs::{MemfdFlags, memfd_create},
    process::{Pid, Signal, WaitOptions, kill_process, waitpid},
};
use std::{
    env,
    io::{BufRead, BufReader, Write, stdin},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio, exit},
};

/// A process with a role; killed when dropped.
pub(super) struct Actor {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Actor {
    pub(super) fn start(role: &str) -> Actor {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "bootstrap::tests::processes::roles", "--nocapture"])
            .env("CCL_TEST_ROLE", role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Actor {
            orders: child.stdin.take().unwrap(),
            answers: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    fn rank(id: &UniqueId, ranks: usize, rank: usize) -> Actor {
        let mut actor = Actor::start("rank");
        actor.order(&format!("{} {ranks} {rank}", hex(id)));
        actor
    }

    pub(super) fn order(&mut self, line: &str) {
        writeln!(self.orders, "{line}").unwrap();
    }

    /// The next answer. Lines of the test harness are skipped.
    pub(super) fn answer(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(
                self.answers.read_line(&mut line).unwrap() > 0,
                "the process ended"
            );
            if let Some((_, answer)) = line.split_once("answer: ") {
                return answer.trim_end().to_owned();
            }
        }
    }

    pub(super) fn ask(&mut self, line: &str) -> String {
        self.order(line);
        self.answer()
    }

    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processes that have joined.
pub(super) fn actors(ranks: usize) -> Vec<Actor> {
    let id = UniqueId::new().unwrap();
    let mut actors: Vec<Actor> = (0..ranks).map(|rank| Actor::rank(&id, ranks, rank)).collect();
    for actor in &mut actors {
        assert_eq!(actor.answer(), "joined");
    }
    actors
}

pub(super) fn hex(id: &UniqueId) -> String {
    crate::net::hex(&id.to_bytes())
}

fn unhex(text: &str) -> UniqueId {
    let mut bytes = [0; 128];
    crate::net::unhex(text, &mut bytes).unwrap();
    UniqueId::from_bytes(bytes).unwrap()
}

fn answer(text: impl std::fmt::Display) {
    // In one call, so that the harness's own output does not come in between.
    std::io::stdout()
        .write_all(format!("\nanswer: {text}\n").as_bytes())
        .unwrap();
}

fn next_order() -> Option<String> {
    let mut line = String::new();
    let got = stdin().read_line(&mut line).unwrap();
    (got > 0).then(|| line.trim_end().to_owned())
}

/// Not a test by itself: what the processes do that the tests below start.
#[test]
fn roles() {
    match env::var("CCL_TEST_ROLE").as_deref() {
        Ok("rank") => play_rank(),
        Ok("maker") => {
            answer(hex(&UniqueId::new().unwrap()));
            next_order();
        }
        Ok("forker") => play_forker(),
        _ => (),
    }
}

fn play_rank() {
    let order = next_order().unwrap();
    let mut words = order.split(' ');
    let id = unhex(words.next().unwrap());
    let ranks: usize = words.next().unwrap().parse().unwrap();
    let rank = words.next().unwrap().parse().unwrap();
    if let Some(mask) = words.next() {
        crowds::pin(mask);
    }
    let member = match join(joining(&id, ranks, rank)) {
        Ok(member) => member,
        Err(e) => return answer(e),
    };
    answer("joined");
    let mut came = Vec::new();
    while let Some(order) = next_order() {
        let (verb, number) = order.split_once(' ').unwrap_or((&order, "0"));
        let number: usize = number.parse().unwrap();
        match verb {
            "raise" => _ = member.raise(Cause::Aborted { rank: rank as u32 }),
            "leave" => member.leave(None),
            "exit" => exit(0),
            "timeout" => member.set_timeout(Duration::from_millis(number as u64)),
            "switches" => answer(switches()),
            "split" => answer(children::split(&member, number)),
            "trouble" => answer(member.trouble()),
            "share" => answer(format!("{:?} {}", member.crowd(), member.cores())),
            "peer" => answer(describe(&member, number)),
            "verdict" => {
                until("the verdict", || member.verdict().is_some());
                answer(member.verdict().unwrap());
            }
            "open" => {
                let fd = memfd_create("ccl-test", MemfdFlags::CLOEXEC).unwrap();
                rustix::io::write(&fd, format!("from {rank}").as_bytes()).unwrap();
                let parcel = Parcel {
                    bytes: b"memory".into(),
                    fds: vec![fd],
                    guard: None,
                };
                let opened = member.open(number, parcel);
                answer(opened.map_or_else(
                    |e| e.to_string(),
                    |w| String::from_utf8(w.unwrap().bytes).unwrap(),
                ));
            }
            "arrival" => {
                until("a parcel", || {
                    came.extend(member.arrivals());
                    !came.is_empty()
                });
                let (from, parcel) = came.remove(0);
                let mut bytes = [0; 32];
                let n = rustix::io::pread(&parcel.fds[0], &mut bytes, 0).unwrap();
                answer(format!("{from}: {}", String::from_utf8_lossy(&bytes[..n])));
            }
            other => panic!("no such order: {other}"),
        }
    }
}

/// How often the control thread has gone to sleep.
fn switches() -> String {
    let read =
        |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
    let mut control = None;
    until("the control thread to name itself", || {
        let mut tasks = std::fs::read_dir("/proc/self/task").unwrap();
        control = tasks
            .by_ref()
            .map(|task| read(task.unwrap()))
            .find(|status| status.starts_with("Name:\tccl-control"));
        control.is_some()
    });
    let status = control.unwrap();
    let line = status.lines().find(|l| l.starts_with("voluntary_ctxt_switches"));
    line.unwrap().to_owned()
}

/// What is known of `rank` once it is no longer alive.
fn describe(health: &Health, rank: usize) -> String {
    until("its end", || health.peer(rank) != Peer::Alive);
    match health.peer(rank) {
        Peer::Left { .. } => "Left".to_owned(),
        Peer::Dead { how, .. } => format!("dead: {how}"),
        other => format!("{other:?}"),
    }
}

/// A C program's usual way: make an id, fork the ranks, wait for them. In between, the parent is a rank of another
/// communicator, whose handle the children must not be able to use.
fn play_forker() {
    let own = UniqueId::new().unwrap();
    let member = join(joining(&own, 1, 0)).unwrap();
    let id = UniqueId::new().unwrap();
    let children: Vec<Pid> = (0..4)
        .map(|rank| {
            fork::child(|| {
                let refused = matches!(member.check(), Err(Error::Usage { .. }))
                    && matches!(member.open(0, Parcel::default()), Err(Error::Usage { .. }))
                    && member.raise(Cause::Aborted { rank: 7 }) == Cause::Aborted { rank: 7 };
                member.leave(None);
                let Ok(mine) = join(joining(&id, 4, rank)) else {
                    return false;
                };
                let met = mine.open((rank + 1) % 4, Parcel::default()).is_ok();
                until("the neighbour's parcel", || !mine.arrivals().is_empty());
                let calm = !mine.trouble();
                mine.leave(None);
                refused && met && calm
            })
        })
        .collect();
    let statuses = children.into_iter().map(|pid| {
        let (_, status) = waitpid(Some(pid), WaitOptions::empty()).unwrap().unwrap();
        status.exit_status()
    });
    let statuses: Vec<_> = statuses.collect();
    answer(format!("{statuses:?} {}", member.trouble()));
}

#[test]
fn a_forked_child_joins_with_its_parents_id_but_not_its_handles() {
    let answer = Actor::start("forker").answer();
    assert_eq!(answer, "[Some(0), Some(0), Some(0), Some(0)] false");
}

#[test]
fn parcels_with_memory_arrive() {
    let mut actors = actors(3);
    assert_eq!(actors[0].ask("open 2"), "welcome to 2");
    assert_eq!(actors[1].ask("open 2"), "welcome to 2");
    let mut came = [actors[2].ask("arrival"), actors[2].ask("arrival")];
    came.sort();
    assert_eq!(came, ["0: from 0", "1: from 1"]);
}

#[test]
fn a_killed_process_is_seen_by_all_and_one_cause_reaches_all() {
    // The dead is the root of the tree, an inner rank, or a leaf.
    for (n, dead) in [(12, 0), (12, 1), (12, 11), (2, 0)] {
        let mut actors = actors(n);
        let pid = actors[dead].pid();
        actors[dead].kill();
        let mut alive: Vec<_> = (0..n).filter(|&r| r != dead).collect();
        for &r in &alive {
            let seen = actors[r].ask(&format!("peer {dead}"));
            assert_eq!(seen, format!("dead: its process {pid} ended"));
            assert_eq!(actors[r].ask("trouble"), "true");
        }
        let text = actors[alive[0]].ask(&format!("open {dead}"));
        assert!(
            text.starts_with(&format!("rank {dead} was lost (its process {pid} ended)")),
            "{text}"
        );
        for &r in &alive {
            actors[r].order("raise");
        }
        let first = alive.remove(0);
        let verdict = actors[first].ask("verdict");
        for &r in &alive {
            assert_eq!(actors[r].ask("verdict"), verdict);
        }
    }
}

#[test]
fn the_end_of_the_process_is_a_goodbye() {
    for n in [2, 12] {
        let mut actors = actors(n);
        // Without leaving first, so that only the exit handler says it; the root goes first.
        for gone in 0..n - 1 {
            actors[gone].order("exit");
            assert!(actors[gone].child.wait().unwrap().success());
            for other in [gone + 1, n - 1] {
                assert_eq!(
                    actors[other].ask(&format!("peer {gone}")),
                    "Left",
                    "n={n} gone={gone} other={other}"
                );
                assert_eq!(actors[other].ask("trouble"), "false");
            }
        }
    }
}

#[test]
fn all_leave_and_end_at_once() {
    let mut actors = actors(12);
    for actor in &mut actors[1..] {
        actor.order("leave");
        actor.order("exit");
    }
    for gone in 1..12 {
        assert_eq!(actors[0].ask(&format!("peer {gone}")), "Left");
    }
    assert_eq!(actors[0].ask("trouble"), "false");
    for actor in &mut actors[1..] {
        assert!(actor.child.wait().unwrap().success());
    }
}

#[test]
fn a_stopped_process_holds_nobody_up() {
    let mut actors = actors(3);
    // Rank 0 decides causes; rank 1 gets its own back and goes on.
    let stopped = Pid::from_raw(actors[0].pid() as i32).unwrap();
    kill_process(stopped, Signal::STOP).unwrap();
    let (_, status) = waitpid(Some(stopped), WaitOptions::UNTRACED).unwrap().unwrap();
    assert!(status.stopped());
    actors[1].order("raise");
    assert_eq!(actors[1].ask("trouble"), "false");
    actors[1].order("leave");
    assert_eq!(actors[1].ask("trouble"), "false");
    kill_process(stopped, Signal::CONT).unwrap();
    // Its user's thread raised long ago; now the cause is heard.
    assert_eq!(actors[2].ask("verdict"), "rank 1 aborted the communicator");
    assert_eq!(actors[2].ask("peer 1"), "Left");
}

#[test]
fn a_stopped_process_that_takes_no_link_is_the_one_that_is_named() {
    let mut actors = actors(2);
    let stopped = Pid::from_raw(actors[1].pid() as i32).unwrap();
    kill_process(stopped, Signal::STOP).unwrap();
    let (_, status) = waitpid(Some(stopped), WaitOptions::UNTRACED).unwrap().unwrap();
    assert!(status.stopped());
    actors[0].order("timeout 200");
    assert_eq!(
        actors[0].ask("open 1"),
        "rank 1 stayed silent: rank 0 waited 0.2 s; rank 1 does not answer"
    );
}

#[test]
fn the_control_thread_sleeps_when_nothing_happens() {
    let mut actors = actors(3);
    // It may still be at work on the tree at first; if it polled, the count would never stay.
    until("the control thread to sleep", || {
        let before = actors[1].ask("switches");
        thread::sleep(Duration::from_millis(400));
        actors[1].ask("switches") == before
    });
}

#[test]
fn a_rank_killed_during_init_is_named_at_once() {
    let id = UniqueId::new().unwrap();
    let mut waiting: Vec<Actor> = (0..3).map(|rank| Actor::rank(&id, 4, rank)).collect();
    // All three must have come; nothing tells that from outside but time, so a rank that never came is killed too.
    thread::sleep(Duration::from_millis(300));
    let pid = waiting[1].pid();
    waiting[1].kill();
    let late = join(joining(&id, 4, 1)).err();
    let texts = [waiting[0].answer(), waiting[2].answer()];
    assert_eq!(texts[0], texts[1]);
    assert_eq!(
        texts[0],
        format!("rank 1 (process {pid}) ended before all ranks had joined")
    );
    assert_eq!(late.unwrap().to_string(), texts[0]);
}

#[test]
fn the_end_of_the_meeting_place_is_told() {
    let mut maker = Actor::start("maker");
    let id = unhex(&maker.answer());
    let mut rank = Actor::rank(&id, 2, 0);
    thread::sleep(Duration::from_millis(300));
    maker.kill();
    let text = rank.answer();
    assert!(
        text.starts_with("the process that made the unique id") && text.contains("ended"),
        "{text}"
    );
    let text = join(joining(&id, 2, 1)).err().unwrap().to_string();
    assert!(text.contains("has ended (nobody listens at"), "{text}");
}
