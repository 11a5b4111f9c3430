//! The ranks' processes: started, listened to, and ended with the run.

use super::{
    launch::Event,
    rank,
    report::{Order, Report},
    setup::Setup,
};
use crate::UniqueId;
use signal_hook::{consts::SIGKILL, low_level::signal_name};
use std::{
    collections::HashSet,
    io::{self, BufRead, BufReader, Write},
    ops::Range,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
};
use zeroize::Zeroizing;

/// The ranks' processes. None is left, not even as a zombie, once this is dropped.
pub(super) struct Processes {
    pub(super) all: Vec<Process>,
}

impl Processes {
    /// Must be called by a thread that lives as long as the processes: the kernel ends them with it.
    pub(super) fn start(
        setup: &Setup,
        ids: &[UniqueId; 2],
        events: &mpsc::Sender<Event>,
    ) -> Result<Self, String> {
        let mut secret = Zeroizing::new([0; rank::IDS_BYTES]);
        for (place, id) in secret.chunks_mut(rank::IDS_BYTES / 2).zip(ids) {
            place.copy_from_slice(&*Zeroizing::new(id.to_bytes()));
        }
        let mut processes = Processes { all: Vec::new() };
        let of_each = if setup.job.threads { setup.job.ranks } else { 1 };
        for first in (0..setup.job.ranks).step_by(of_each) {
            let ranks = first..first + of_each;
            let start = || -> io::Result<Child> {
                let mut command = Command::new(std::env::current_exe()?);
                command.arg0("ccl-perf").args([rank::ARGUMENT, &short(&ranks)]);
                if setup.job.threads && setup.job.on_device && std::env::var_os(QUEUES).is_none() {
                    // Streams that wait for one another want a queue each.
                    command.env(QUEUES, "32");
                }
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
            };
            let child = start().map_err(|error| {
                let advice = match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::ENOMEM) => "; lower --ranks",
                    Some(libc::EMFILE | libc::ENFILE) => "; raise `ulimit -n`, or lower --ranks",
                    _ => "",
                };
                format!("starting {}: {error}{advice}", name(&ranks))
            })?;
            processes.all.push(Process {
                child,
                explained: HashSet::new(),
                ranks,
                ended: false,
            });
        }
        for (place, process) in processes.all.iter_mut().enumerate() {
            process
                .instruct(place, setup, secret.as_slice(), events)
                .map_err(|error| format!("starting {}: {error}", name(&process.ranks)))?;
        }
        Ok(processes)
    }

    /// Takes note that a rank has said that it is done or has failed.
    pub(super) fn explain(&mut self, rank: usize) {
        let is_its = |process: &&mut Process| process.ranks.contains(&rank);
        if let Some(process) = self.all.iter_mut().find(is_its) {
            process.explained.insert(rank);
        }
    }

    pub(super) fn running(&self) -> usize {
        self.all.iter().filter(|process| !process.ended).count()
    }

    /// Ranks that run and have not said how it went.
    pub(super) fn silent(&self) -> usize {
        let running = self.all.iter().filter(|process| !process.ended);
        running
            .map(|process| process.ranks.len() - process.explained.len())
            .sum()
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for process in self.all.iter_mut().filter(|process| !process.ended) {
            // One that has ended already needs no killing, and is waited for all the same.
            let _ = process.child.kill();
        }
        for process in self.all.iter_mut().filter(|process| !process.ended) {
            let _ = process.wait();
        }
    }
}

/// A process of one rank, or of all.
pub(super) struct Process {
    pub(super) child: Child,
    pub(super) ranks: Range<usize>,
    /// Those of them that have said that they are done or have failed.
    explained: HashSet<usize>,
    ended: bool,
}

/// Ranks, for `ps`.
fn short(ranks: &Range<usize>) -> String {
    match ranks.len() {
        1 => ranks.start.to_string(),
        _ => format!("{}-{}", ranks.start, ranks.end - 1),
    }
}

/// Ranks, for messages.
fn name(ranks: &Range<usize>) -> String {
    match ranks.len() {
        1 => format!("rank {}", ranks.start),
        _ => format!("ranks {} to {}", ranks.start, ranks.end - 1),
    }
}

/// How many queues CUDA has for the streams of a process.
const QUEUES: &str = "CUDA_DEVICE_MAX_CONNECTIONS";

impl Process {
    /// Hands the process its order, and begins to listen to it.
    fn instruct(
        &mut self,
        place: usize,
        setup: &Setup,
        secret: &[u8],
        events: &mpsc::Sender<Event>,
    ) -> io::Result<()> {
        let order = Order {
            ranks: self.ranks.clone(),
            parent: std::process::id(),
            job: setup.job.clone(),
        };
        if let Some(mut stdin) = self.child.stdin.take() {
            let sent = stdin
                .write_all(secret)
                .and_then(|()| stdin.write_all(&serde_json::to_vec(&order)?));
            // One that does not read has died, which will be noticed below.
            if let Err(error) = sent
                && error.kind() != io::ErrorKind::BrokenPipe
            {
                return Err(error);
            }
        }
        if let Some(stdout) = self.child.stdout.take() {
            let (events, first) = (events.clone(), self.ranks.start);
            thread::Builder::new().spawn(move || listen(place, first, stdout, &events))?;
        }
        Ok(())
    }

    /// Whether all its ranks have said how it went.
    pub(super) fn is_explained(&self) -> bool {
        self.explained.len() == self.ranks.len()
    }

    pub(super) fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait()?;
        self.ended = true;
        Ok(status)
    }
}

/// Passes on what the ranks of a process, the first of which is `first`, say until it falls silent.
fn listen(place: usize, first: usize, stdout: ChildStdout, events: &mpsc::Sender<Event>) {
    for line in BufReader::new(stdout).lines() {
        let report = line.and_then(|line| Ok(serde_json::from_str(&line)?));
        let (rank, report) = report.unwrap_or_else(|error| {
            let why = format!("its report is not understood: {error}");
            (first, Report::Failed { why })
        });
        // Nobody listens any more once the run is over.
        let _ = events.send(Event::Said(rank, report));
    }
    let _ = events.send(Event::Silent(place));
}

/// What is said of a process that ended without a word, or, where its ranks `were_done`, badly.
pub(super) fn epitaph(ranks: &Range<usize>, pid: u32, status: ExitStatus, were_done: bool) -> String {
    let who = name(ranks);
    let when = if were_done { " after it was done" } else { "" };
    match (status.signal(), status.code()) {
        (Some(SIGKILL), _) if !were_done => format!(
            "{who} (pid {pid}) was ended by signal 9 (SIGKILL); if memory ran out, lower -e or --ranks"
        ),
        (Some(signal), _) => {
            let name = signal_name(signal).unwrap_or("unknown");
            format!("{who} (pid {pid}) was ended by signal {signal} ({name}){when}")
        }
        (None, code) => {
            let when = if were_done { when } else { " before it was done" };
            format!("{who} (pid {pid}) ended with status {}{when}", code.unwrap_or(0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_without_a_word_is_told() {
        let killed = epitaph(&(2..3), 4711, ExitStatus::from_raw(SIGKILL), false);
        assert!(
            killed.starts_with("rank 2 (pid 4711) was ended by signal 9 (SIGKILL)"),
            "{killed}"
        );
        let crashed = epitaph(&(0..1), 1, ExitStatus::from_raw(11), false);
        assert!(crashed.contains("signal 11 (SIGSEGV)"), "{crashed}");
        let panicked = epitaph(&(0..2), 1, ExitStatus::from_raw(101 << 8), false);
        assert!(
            panicked.starts_with("ranks 0 to 1 (pid 1) ended with status 101 before it was done"),
            "{panicked}"
        );
        for (raw, how) in [
            (11, "was ended by signal 11 (SIGSEGV)"),
            (SIGKILL, "was ended by signal 9 (SIGKILL)"),
            (23 << 8, "ended with status 23"),
        ] {
            let late = epitaph(&(1..2), 7, ExitStatus::from_raw(raw), true);
            assert_eq!(late, format!("rank 1 (pid 7) {how} after it was done"));
        }
    }
}
