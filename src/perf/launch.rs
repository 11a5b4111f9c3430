//! The parent: starts a process per rank, prints what they report, and sees to it that none outlives the run.

use super::{
    console::{Console, Trouble},
    files::Files,
    footprint::{Footprint, Footprints},
    processes::{Processes, epitaph},
    report::{Report, Row},
    setup::Setup,
};
use crate::{UniqueId, topo::host::Host};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::{Handle, Signals},
};
use std::{
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

/// After a first failure the other ranks may take this long to say what they saw of it. Those that are busy with a buffer
/// of gigabytes, or stopped, cannot; the run is to be over within a second all the same.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What happens to the parent.
pub(super) enum Event {
    /// A rank has.
    Said(usize, Report),
    /// A process's end of the pipe was closed: it has ended, or is about to.
    Silent(usize),
    Signal(i32),
}

/// Runs `setup`; says how many elements were wrong.
pub(super) fn run(setup: &Setup, host: &Host, files: Files) -> Result<u64, Trouble> {
    watched(|events, inbox| Run::start(setup, Console::new(setup, host), events)?.attend(inbox, files))
}

/// Runs `setup` and prints nothing; gives what was measured.
pub(super) fn rows(setup: &Setup, host: &Host) -> Result<Vec<Row>, Trouble> {
    watched(|events, inbox| {
        let mut run = Run::start(setup, Console::quiet(setup, host), events)?;
        run.attend(inbox, Files::open(setup)?)?;
        Ok(std::mem::take(&mut run.console.rows))
    })
}

/// Does what a signal may end.
fn watched<T>(
    run: impl FnOnce(&mpsc::Sender<Event>, &mpsc::Receiver<Event>) -> Result<T, Trouble>,
) -> Result<T, Trouble> {
    let (events, inbox) = mpsc::channel();
    let _signals = SignalWatch::start(events.clone())?;
    go_on()?;
    let result = run(&events, &inbox);
    // The children may have been hit by the same signal, and their end seen first.
    match result {
        Err(trouble) => Err(go_on().err().unwrap_or(trouble)),
        done => done,
    }
}

/// Whether no signal has asked to stop since the first run began.
pub(super) fn go_on() -> Result<(), Trouble> {
    match LAST.get().map_or(0, |last| last.load(Ordering::SeqCst)) {
        0 => Ok(()),
        signal => Err(Trouble::Signal(signal as i32)),
    }
}

/// The last signal that asked to stop, also between two runs.
static LAST: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// Turns signals into events.
struct SignalWatch {
    handle: Handle,
}

impl SignalWatch {
    fn start(events: mpsc::Sender<Event>) -> Result<Self, String> {
        let watch = || -> io::Result<SignalWatch> {
            if LAST.get().is_none() {
                let last = LAST.get_or_init(Arc::default);
                for signal in [SIGINT, SIGTERM] {
                    signal_hook::flag::register_usize(signal, last.clone(), signal as usize)?;
                }
            }
            let mut signals = Signals::new([SIGINT, SIGTERM])?;
            let handle = signals.handle();
            thread::Builder::new().spawn(move || {
                for signal in signals.forever() {
                    // Nobody listens any more once the run is over.
                    let _ = events.send(Event::Signal(signal));
                }
            })?;
            Ok(SignalWatch { handle })
        };
        watch().map_err(|error| format!("watching for signals: {error}"))
    }
}

impl Drop for SignalWatch {
    fn drop(&mut self) {
        self.handle.close();
    }
}

/// A run in progress.
struct Run<'r> {
    processes: Processes,
    /// The ids' owner is where the ranks meet; they last until the ranks are done.
    _ids: [UniqueId; 2],
    console: Console<'r>,
    wrong: u64,
    footprints: Vec<Footprint>,
    /// The first failure that a rank reported.
    failure: Option<(usize, String)>,
    /// The first end that no report explains, or that was none in order though nothing had failed.
    death: Option<String>,
    /// When ranks that are left have had their last words.
    deadline: Option<Instant>,
}

impl<'r> Run<'r> {
    fn start(setup: &'r Setup, console: Console<'r>, events: &mpsc::Sender<Event>) -> Result<Self, Trouble> {
        let id = || UniqueId::local().map_err(|error| error.to_string());
        let ids = [id()?, id()?];
        let processes = Processes::start(setup, &ids, events)?;
        Ok(Run {
            processes,
            _ids: ids,
            console,
            wrong: 0,
            footprints: Vec::new(),
            failure: None,
            death: None,
            deadline: None,
        })
    }

    /// Listens until no process is left.
    fn attend(&mut self, inbox: &mpsc::Receiver<Event>, files: Files) -> Result<u64, Trouble> {
        while self.processes.running() > 0 {
            let patience = self
                .deadline
                .map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            match inbox.recv_timeout(patience) {
                Ok(Event::Said(rank, report)) => self.hear(rank, report)?,
                Ok(Event::Silent(place)) => self.bury(place)?,
                Ok(Event::Signal(signal)) => return Err(Trouble::Signal(signal)),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err("no rank reports any more".to_owned().into());
                }
            }
        }
        self.console.clear();
        if let Some(line) = self.failure_line() {
            return Err(line.into());
        }
        let footprints = Footprints::of(&self.footprints);
        // What each rank counted by itself does not depend on the library having added it up rightly.
        Ok(self.wrong.max(self.console.finish(files, footprints)?))
    }

    fn hear(&mut self, rank: usize, report: Report) -> Result<(), Trouble> {
        match report {
            Report::Ready { transport } => self.console.ready(transport)?,
            Report::Row(row) => self.console.row(*row)?,
            Report::Done { wrong, footprint } => {
                self.wrong += wrong;
                self.footprints.push(footprint);
                self.processes.explain(rank);
            }
            Report::Failed { why } => {
                self.processes.explain(rank);
                // Others may tell first that it aborted because of that.
                let is_echo = |why: &str| why.contains("aborted the communicator");
                let tells_more = |(_, first): &(usize, String)| is_echo(first) && !is_echo(&why);
                if self.failure.as_ref().is_none_or(tells_more) {
                    self.failure = Some((rank, why));
                }
                self.expect_the_end();
            }
        }
        Ok(())
    }

    /// Takes note of a process that has ended.
    fn bury(&mut self, place: usize) -> Result<(), Trouble> {
        let process = &mut self.processes.all[place];
        let (pid, explained) = (process.child.id(), process.is_explained());
        let status = process
            .wait()
            .map_err(|error| format!("waiting for process {pid}: {error}"))?;
        // A rank that says that it has failed ends as it likes.
        let is_bad = !status.success() && self.failure.is_none();
        if !explained || is_bad {
            (self.death).get_or_insert_with(|| epitaph(&process.ranks, pid, status, explained));
            self.expect_the_end();
        }
        Ok(())
    }

    fn expect_the_end(&mut self) {
        self.deadline.get_or_insert(Instant::now() + LAST_WORDS);
    }

    /// The one line that tells what failed: a death before what others say of it.
    fn failure_line(&self) -> Option<String> {
        let mut line = match (&self.death, &self.failure) {
            (None, None) => return None,
            (None, Some((rank, why))) => format!("rank {rank}: {why}"),
            (Some(death), None) => death.clone(),
            (Some(death), Some((rank, why))) => format!("{death}; rank {rank} says: {why}"),
        };
        let silent = self.processes.silent();
        if silent > 0 {
            let ranks = if silent == 1 { "rank" } else { "ranks" };
            line = format!("{line}; {silent} {ranks} did not notice within {LAST_WORDS:?}: ended");
        }
        Some(line)
    }
}
