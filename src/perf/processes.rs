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
    io::{self, BufRead, BufReader, Write},
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
        for rank in 0..setup.job.ranks {
            let start = || -> io::Result<Child> {
                Command::new(std::env::current_exe()?)
                    .arg0("ccl-perf")
                    .args([rank::ARGUMENT, &rank.to_string()])
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
            };
            let child = start().map_err(|error| format!("starting rank {rank}: {error}; lower --ranks"))?;
            processes.all.push(Process {
                child,
                explained: false,
                ended: false,
            });
        }
        for (rank, process) in processes.all.iter_mut().enumerate() {
            process
                .instruct(rank, setup, secret.as_slice(), events)
                .map_err(|error| format!("starting rank {rank}: {error}"))?;
        }
        Ok(processes)
    }

    pub(super) fn running(&self) -> usize {
        self.all.iter().filter(|process| !process.ended).count()
    }

    /// Those that run and have not said how it went.
    pub(super) fn silent(&self) -> usize {
        let silent = |process: &&Process| !process.ended && !process.explained;
        self.all.iter().filter(silent).count()
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

/// A rank's process.
pub(super) struct Process {
    pub(super) child: Child,
    /// Whether it has said that it is done or has failed.
    pub(super) explained: bool,
    ended: bool,
}

impl Process {
    /// Hands the process its order, and begins to listen to it.
    fn instruct(
        &mut self,
        rank: usize,
        setup: &Setup,
        secret: &[u8],
        events: &mpsc::Sender<Event>,
    ) -> io::Result<()> {
        let order = Order {
            rank,
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
            let events = events.clone();
            thread::Builder::new().spawn(move || listen(rank, stdout, &events))?;
        }
        Ok(())
    }

    pub(super) fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait()?;
        self.ended = true;
        Ok(status)
    }
}

/// Passes on what a rank says until it falls silent.
fn listen(rank: usize, stdout: ChildStdout, events: &mpsc::Sender<Event>) {
    for line in BufReader::new(stdout).lines() {
        let report = line.and_then(|line| Ok(serde_json::from_str(&line)?));
        let report = report.unwrap_or_else(|error| Report::Failed {
            why: format!("its report is not understood: {error}"),
        });
        // Nobody listens any more once the run is over.
        let _ = events.send(Event::Said(rank, report));
    }
    let _ = events.send(Event::Silent(rank));
}

/// What is said of a process that ended without a word.
pub(super) fn epitaph(rank: usize, pid: u32, status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(SIGKILL), _) => format!(
            "rank {rank} (pid {pid}) was ended by signal 9 (SIGKILL); if memory ran out, lower -e or --ranks"
        ),
        (Some(signal), _) => {
            let name = signal_name(signal).unwrap_or("unknown");
            format!("rank {rank} (pid {pid}) was ended by signal {signal} ({name})")
        }
        (None, code) => format!(
            "rank {rank} (pid {pid}) ended with status {} before it was done",
            code.unwrap_or(0)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_without_a_word_is_told() {
        let killed = epitaph(2, 4711, ExitStatus::from_raw(SIGKILL));
        assert!(
            killed.starts_with("rank 2 (pid 4711) was ended by signal 9 (SIGKILL)"),
            "{killed}"
        );
        let crashed = epitaph(0, 1, ExitStatus::from_raw(11));
        assert!(crashed.contains("signal 11 (SIGSEGV)"), "{crashed}");
        let panicked = epitaph(0, 1, ExitStatus::from_raw(101 << 8));
        assert!(panicked.contains("status 101"), "{panicked}");
    }
}
