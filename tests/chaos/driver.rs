//! One run: starts ranks, does them harm, and holds what they say against what they must.

use super::{
    fault::{self, Fault},
    leaks::{self, Place, Sockets},
    strangers,
    worker::{self, Spec, now},
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    collections::BTreeSet,
    env, fmt,
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// What is done in a run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) fault: Fault,
    seed: u64,
    run: u64,
    ranks: usize,
    tcp: bool,
    /// The rank that it happens to, when, and for how long.
    victim: usize,
    delay: Duration,
    length: Duration,
    timeout: Duration,
    random: u64,
}

impl Plan {
    pub(crate) fn new(seed: u64, run: u64, faults: &[Fault]) -> Plan {
        let mut random = fastrand::Rng::with_seed(seed.wrapping_mul(1_000_003).wrapping_add(run));
        let fault = faults[run as usize % faults.len()];
        let ranks = random.usize(2..=6);
        let longest = if fault == Fault::KillInInit { 100 } else { 400 };
        Plan {
            fault,
            seed,
            run,
            ranks,
            tcp: random.bool() || fault == Fault::Cut,
            victim: random.usize(0..ranks),
            delay: Duration::from_millis(random.u64(0..longest)),
            length: Duration::from_millis(random.u64(100..1200)),
            timeout: match fault {
                Fault::StopLong => STOP_DEADLINE,
                // The others wait for one that never came until then.
                Fault::KillInInit => INIT_DEADLINE,
                _ => DEADLINE,
            },
            random: random.u64(..),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wire = if self.tcp { "tcp" } else { "shm" };
        let Plan {
            seed,
            run,
            fault,
            ranks,
            victim,
            delay,
            ..
        } = self;
        write!(
            f,
            "run {run} of seed {seed}: {fault}, rank {victim} of {ranks} over {wire}, after {delay:?}"
        )
    }
}

/// What may be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Flaw {
    Hang,
    Wrong,
    Crash,
    Leak,
    /// Another outcome than must be.
    Other,
}

/// What came of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) flaws: Vec<(Flaw, String)>,
    /// How long after the fault each rank knew of it.
    pub(crate) detected: Vec<Duration>,
    /// How long after it the ranks that were left had a communicator again, and had used it.
    pub(crate) recovered: Vec<Duration>,
    /// How many more descriptors and mappings a rank had at its end than at its beginning, at most.
    pub(crate) growth: [i64; 2],
}

impl Outcome {
    fn flaw(&mut self, flaw: Flaw, what: String) {
        self.flaws.push((flaw, what));
    }
}

/// A process that is a rank, killed when dropped.
struct Rank {
    number: usize,
    child: Child,
    lines: Receiver<String>,
    said: Vec<String>,
    log: Option<JoinHandle<String>>,
}

impl Rank {
    fn start(plan: &Plan, spec: &Spec, folder: &Path) -> Rank {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "roles", "--nocapture"])
            .env(worker::SPEC, spec.text())
            .env(MARK, mark(plan))
            .env("CCL_TRANSPORT", if plan.tcp { "tcp" } else { "shm" })
            .env("TMPDIR", folder)
            .env_remove("CCL_TIMEOUT")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (send, lines) = mpsc::channel();
        let says = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            let lines = says.lines().map_while(Result::ok);
            for said in lines.filter_map(|line| line.strip_prefix("says: ").map(str::to_owned)) {
                let _ = send.send(said);
            }
        });
        let mut stderr = child.stderr.take().unwrap();
        let log = thread::spawn(move || {
            let mut log = Vec::new();
            let _ = stderr.read_to_end(&mut log);
            String::from_utf8_lossy(&log).into_owned()
        });
        Rank {
            number: spec.rank,
            child,
            lines,
            said: Vec::new(),
            log: Some(log),
        }
    }

    /// What it says that begins with `word`, now or before; `None` if it ends or nothing comes by `until`.
    fn says(&mut self, word: &str, until: Instant) -> Option<String> {
        loop {
            if let Some(said) = self.told(word) {
                return Some(said);
            }
            let left = until.saturating_duration_since(Instant::now());
            self.said.push(self.lines.recv_timeout(left).ok()?);
        }
    }

    /// The same of what has been heard.
    fn told(&self, word: &str) -> Option<String> {
        let mut rests = self.said.iter().filter_map(|said| said.strip_prefix(word));
        rests.next().map(|rest| rest.trim_start().to_owned())
    }

    fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// What it said last, and what is in its log.
    fn last(&mut self) -> String {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.said.extend(self.lines.try_iter());
        let log = self
            .log
            .take()
            .and_then(|log| log.join().ok())
            .unwrap_or_default();
        format!(
            "rank {}: last said {:?}; log: {log}",
            self.number,
            self.said.last()
        )
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs it.
pub(crate) fn run(plan: &Plan) -> Outcome {
    let mut outcome = Outcome::default();
    let folder = tempfile::tempdir().unwrap();
    let before = leaks::shared_files();
    let mut sockets = Sockets::default();
    if let Err((flaw, what)) = with_ranks(plan, folder.path(), &mut sockets, &mut outcome) {
        outcome.flaw(flaw, what);
    }
    // All have ended.
    for pid in leaks::processes(&format!("{MARK}={}", mark(plan))) {
        outcome.flaw(Flaw::Leak, format!("process {pid} is left"));
        let _ = Pid::from_raw(pid as i32).map(|pid| kill_process(pid, Signal::KILL));
    }
    for place in sockets.left() {
        outcome.flaw(Flaw::Leak, format!("{place:?} is left"));
    }
    for file in leaks::shared_files().difference(&before) {
        outcome.flaw(Flaw::Leak, format!("/dev/shm/{file} is left"));
    }
    for entry in folder.path().read_dir().unwrap().flatten() {
        outcome.flaw(Flaw::Leak, format!("{} is left", entry.path().display()));
    }
    outcome
}

fn with_ranks(
    plan: &Plan,
    folder: &Path,
    sockets: &mut Sockets,
    outcome: &mut Outcome,
) -> Result<(), (Flaw, String)> {
    let mut random = fastrand::Rng::with_seed(plan.random);
    let soon = || Instant::now() + PATIENCE;
    let spec = |rank: usize, id: &str| Spec {
        seed: plan.random,
        ranks: plan.ranks,
        rank,
        timeout: plan.timeout,
        shrinks: plan.fault.ends_a_rank() && plan.fault != Fault::KillInInit,
        act: match plan.fault {
            Fault::Abort if rank == plan.victim => "abort",
            Fault::Segfault if rank == plan.victim => "segv",
            Fault::Exit if rank == plan.victim => "exit",
            Fault::Fork if rank == plan.victim => "fork",
            _ => "-",
        }
        .to_owned(),
        after: plan.delay.as_millis() as u32,
        id: id.to_owned(),
    };
    let mut first = Rank::start(plan, &spec(0, "-"), folder);
    let Some(id) = first.says("id", soon()) else {
        return Err((Flaw::Crash, first.last()));
    };
    let mut kept = Vec::new();
    bother(plan, &[&first], &mut random, &mut kept);
    let mut impostor = (plan.fault == Fault::WrongSecret).then(|| {
        let mut wrong = id.clone().into_bytes();
        let digit = &mut wrong[2 * SECRET + random.usize(0..64)];
        *digit = if *digit == b'0' { b'1' } else { b'0' };
        let timeout = Duration::from_secs(2);
        let spec = spec(plan.victim, &String::from_utf8(wrong).unwrap());
        Rank::start(plan, &Spec { timeout, ..spec }, folder)
    });
    if impostor.is_some() {
        thread::sleep(plan.delay / 4);
    }
    let others = (1..plan.ranks).map(|rank| Rank::start(plan, &spec(rank, &id), folder));
    let mut ranks: Vec<Rank> = [first].into_iter().chain(others.collect::<Vec<_>>()).collect();
    let (mut since, mut is_cut) = (now(), false);
    if plan.fault == Fault::KillInInit {
        thread::sleep(plan.delay);
        since = now();
        ranks[plan.victim].signal(Signal::KILL);
    } else {
        for rank in &mut ranks {
            if rank.says("begun", soon()).is_none() {
                return Err((Flaw::Hang, format!("did not begin: {}", rank.last())));
            }
            sockets.add(rank.child.id());
        }
        if plan.fault.signal().is_some() || plan.fault.does_no_harm() || plan.fault == Fault::Cut {
            thread::sleep(plan.delay);
        }
        if let Some(signal) = plan.fault.signal() {
            since = now();
            ranks[plan.victim].signal(signal);
        }
        match plan.fault {
            Fault::StopShort => {
                thread::sleep(plan.length);
                ranks[plan.victim].signal(Signal::CONT);
            }
            Fault::Abort | Fault::Segfault | Fault::Exit => {
                let gone = ranks[plan.victim].says("gone", soon());
                since = gone.and_then(|at| at.parse().ok()).unwrap_or(since);
            }
            Fault::Cut => {
                since = now();
                let ports = leaks::connected_ports(ranks[plan.victim].child.id());
                is_cut = ports.into_iter().map(fault::cut).sum::<usize>() > 0;
            }
            _ => {}
        }
        bother(plan, &ranks.iter().collect::<Vec<_>>(), &mut random, &mut kept);
    }
    if let Some(impostor) = &mut impostor {
        match impostor.says("end", soon()) {
            Some(_) if impostor.told("no-init").is_some() => {}
            Some(_) => outcome.flaw(Flaw::Other, "somebody with a wrong secret was let in".to_owned()),
            None => outcome.flaw(Flaw::Hang, format!("with a wrong secret: {}", impostor.last())),
        }
    }
    drop(kept);
    // Where nothing was cut nothing is to be seen.
    let is_well = plan.fault.does_no_harm() || plan.fault == Fault::Cut && !is_cut;
    if is_well {
        let _ = ranks[0]
            .child
            .stdin
            .take()
            .map(|mut stdin| stdin.write_all(b"stop\n"));
    }
    for rank in &mut ranks {
        if rank.number != plan.victim || plan.fault.does_no_harm() || plan.fault == Fault::Cut {
            judge(plan, rank, since, is_well, outcome);
        }
    }
    let victim = &mut ranks[plan.victim];
    match plan.fault {
        Fault::StopLong => {
            victim.signal(Signal::CONT);
            if victim
                .says("end", Instant::now() + plan.timeout + PATIENCE)
                .is_none()
            {
                outcome.flaw(Flaw::Hang, victim.last());
            } else if victim.told("failed").is_none() {
                outcome.flaw(Flaw::Other, victim.last());
            }
        }
        Fault::Fork => {
            // It may have been killed before it said so.
            if let Some(child) = victim.says("child", soon()).and_then(|pid| pid.parse().ok()) {
                let has: BTreeSet<String> = leaks::of_library(child).into_iter().collect();
                if !has.is_empty() {
                    outcome.flaw(Flaw::Leak, format!("the forked child has {has:?}"));
                }
                let _ = Pid::from_raw(child as i32).map(|pid| kill_process(pid, Signal::KILL));
                let until = Instant::now() + PATIENCE;
                while leaks::is_there(child) && Instant::now() < until {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// Waits for the end of a rank that lives on, and holds what it said against what it must.
fn judge(plan: &Plan, rank: &mut Rank, since: u64, is_well: bool, outcome: &mut Outcome) {
    let until = Instant::now() + plan.timeout + PATIENCE;
    let ended = rank.says("end", until);
    if rank.told("wrong").is_some() {
        return outcome.flaw(Flaw::Wrong, rank.last());
    }
    let Some(ended) = ended else {
        let flaw = if Instant::now() < until {
            Flaw::Crash
        } else {
            Flaw::Hang
        };
        return outcome.flaw(flaw, rank.last());
    };
    let numbers: Vec<i64> = ended
        .split(' ')
        .filter_map(|number| number.parse().ok())
        .collect();
    for (most, pair) in outcome.growth.iter_mut().zip(numbers.chunks(2)) {
        *most = (*most).max(pair[1] - pair[0]);
    }
    let most = worker::MOST_MORE.map(|most| most as i64);
    let has_more = numbers
        .chunks(2)
        .zip(most)
        .any(|(pair, most)| pair[1] - pair[0] > most);
    // A rank that stands still is there all the time, and may still read and answer.
    let ended_alone = plan.fault != Fault::StopLong;
    if ended_alone && has_more {
        outcome.flaw(Flaw::Leak, format!("rank {} ended with {ended}", rank.number));
    }
    let after = |at: &str| {
        let at = at.split(' ').next().and_then(|at| at.parse::<u64>().ok());
        Duration::from_micros(at.unwrap_or(0).saturating_sub(since))
    };
    let (done, failed, no_init) = (rank.told("done"), rank.told("failed"), rank.told("no-init"));
    let failure = failed.as_ref().or(no_init.as_ref());
    let blamed = failed
        .as_ref()
        .and_then(|said| said.split(' ').nth(1))
        .unwrap_or_default();
    let victim = plan.victim;
    let is_right = match plan.fault {
        _ if is_well => done.is_some(),
        Fault::StopLong => blamed == format!("late:{victim}"),
        Fault::Cut => failed.is_some(),
        // Whoever holds the meeting is named by its place.
        Fault::KillInInit => {
            blamed == format!("lost:{victim}")
                || no_init
                    .as_ref()
                    .is_some_and(|said| victim == 0 || names(said, victim))
        }
        _ => blamed == format!("lost:{victim}") && rank.told("shrunk").is_some(),
    };
    outcome.detected.extend(failure.map(|said| after(said)));
    outcome
        .recovered
        .extend(rank.told("shrunk").map(|said| after(&said)));
    match rank.child.wait() {
        Ok(status) if status.success() => {}
        other => outcome.flaw(Flaw::Crash, format!("{other:?}: {}", rank.last())),
    }
    if !is_right {
        let said = rank.said.join("; ");
        outcome.flaw(Flaw::Other, format!("{}; all: {said}", rank.last()));
    }
}

/// Whether what is said of an init that failed names a rank.
fn names(said: &str, rank: usize) -> bool {
    let missing = said.split_once("never came: ").map_or("", |(_, list)| list);
    let is_missing = missing.split(", ").any(|one| one.parse() == Ok(rank));
    is_missing || said.contains(&format!("rank {rank} "))
}

/// Strangers come to everywhere that these ranks listen, if it is their turn.
fn bother(plan: &Plan, ranks: &[&Rank], random: &mut fastrand::Rng, kept: &mut Vec<strangers::Stranger>) {
    let count = match plan.fault {
        Fault::Strangers => 20,
        Fault::Flood => 500,
        _ => return,
    };
    let places: Vec<Place> = ranks
        .iter()
        .flat_map(|rank| leaks::places_of(rank.child.id()))
        .collect();
    if places.is_empty() {
        return;
    }
    for k in 0..count {
        match strangers::bother(&places[k % places.len()], random) {
            Ok(Some(stranger)) if kept.len() < 100 => kept.push(stranger),
            _ => {} // turned away, or not kept
        }
    }
}

fn mark(plan: &Plan) -> String {
    format!("{}-{}-{}", std::process::id(), plan.seed, plan.run)
}

/// The environment variable by which processes of a run are found.
const MARK: &str = "CCL_CHAOS_MARK";
/// The deadline of ranks, and that of those of which one stands still past it.
const DEADLINE: Duration = Duration::from_secs(20);
const STOP_DEADLINE: Duration = Duration::from_secs(3);
const INIT_DEADLINE: Duration = Duration::from_secs(8);
/// How much later than it must something may happen on a busy machine before it is taken for a hang.
const PATIENCE: Duration = Duration::from_secs(30);
/// Where the secret begins in a unique id.
const SECRET: usize = 95;
