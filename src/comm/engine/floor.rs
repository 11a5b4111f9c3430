//! [`Floor`]: links and operations under way; [`Held`]: having it; [`Turns`]: who waits for it.

use super::{
    Engine,
    jobs::Jobs,
    quick::Lately,
    reasons::{FIRST_QUESTION, Questions},
};
use crate::{
    bootstrap::LONGEST_APART,
    exec::wait::Patience,
    sys::biased::{Guard, Waiters},
    transport::links::Links,
};
use std::{
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

/// What one thread at a time moves.
pub(super) struct Floor {
    pub(super) links: Links,
    pub(super) patience: Patience,
    pub(super) scratch: Vec<u64>,
    pub(super) lately: Lately,
    pub(super) jobs: Jobs,
    pub(super) ways: Ways,
    /// When the leader last looked at the clock.
    looked: Option<Instant>,
    lost: Lost,
    /// Rounds, whoever led.
    rounds: u32,
    /// When others were last asked about what stood still.
    asked: Option<Instant>,
    pub(super) questions: Questions,
}

/// How many calls went which way.
#[derive(Debug, Default)]
pub(super) struct Ways {
    pub(super) short: u64,
    pub(super) straight: u64,
    /// By the general executor, be it only the rest of them.
    pub(super) general: u64,
}

impl Floor {
    pub(super) fn new(links: Links, patience: Patience, jobs: Jobs) -> Self {
        Floor {
            links,
            patience,
            scratch: Vec::new(),
            lately: Lately::default(),
            jobs,
            ways: Ways::default(),
            looked: None,
            lost: Lost::default(),
            rounds: 0,
            asked: None,
            questions: Questions::default(),
        }
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.jobs.is_idle()
    }

    /// Somebody begins to lead.
    pub(super) fn begin(&mut self) {
        self.patience.refresh();
        if self.is_idle() {
            self.looked = None;
            self.lost.0.clear();
        }
    }

    /// Before each round: whether it is time to look if something stands still, though something else moves. Leaders that come and go
    /// get no further than this between them.
    pub(super) fn is_due(&mut self) -> bool {
        self.rounds = self.rounds.wrapping_add(1);
        // Rounds that move much take long: time between two looks is not to be taken for one in which nobody looked.
        let is_long = || self.looked.is_some_and(|looked| looked.elapsed() >= GAP / 4);
        self.rounds.is_multiple_of(LOOK_EVERY) || self.rounds.is_multiple_of(GLANCE_EVERY) && is_long()
    }

    /// Whether others may be asked about what has stood still, of which the longest has done so for `longest`: after a while, and then
    /// ever more rarely, unless the leader `wants` to.
    pub(super) fn may_ask(&mut self, longest: Duration, wants: bool) -> bool {
        if longest < FIRST_QUESTION {
            return false;
        }
        let may = wants
            || self
                .asked
                .is_none_or(|asked| asked.elapsed() >= (longest / 2).min(LONGEST_APART));
        if may {
            self.asked = Some(Instant::now());
        }
        may
    }

    /// The leader looks at the clock.
    pub(super) fn look(&mut self) {
        let now = Instant::now();
        self.lost.look(self.looked.unwrap_or(now), now);
        self.looked = Some(now);
    }

    /// How long something has stood still that did so first at `since`.
    pub(super) fn elapsed(&self, since: Instant) -> Duration {
        since.elapsed().saturating_sub(self.lost.after(since))
    }
}

/// Time in which nobody looked at the clock, as when the process was stopped: that does not count as waiting. Each is given by
/// its end and its length.
#[derive(Default)]
struct Lost(Vec<(Instant, Duration)>);

impl Lost {
    /// Somebody looks at the clock `now`, and did so `before`.
    fn look(&mut self, before: Instant, now: Instant) {
        let lost = now.saturating_duration_since(before).saturating_sub(GAP);
        if !lost.is_zero() {
            self.0.push((now, lost));
        }
        if self.0.len() > MOST_LOST {
            let (_, earlier) = self.0.remove(0);
            self.0[0].1 += earlier;
        }
    }

    /// How much was lost after `since`.
    fn after(&self, since: Instant) -> Duration {
        self.0
            .iter()
            .map(|(end, lost)| end.saturating_duration_since(since).min(*lost))
            .sum()
    }
}

/// Times that are told apart.
const MOST_LOST: usize = 32;

/// The most that counts as waiting between two looks.
const GAP: Duration = Duration::from_secs(1);

/// Rounds after which it is looked whether something stands still, and those after which it is if they have taken long.
const LOOK_EVERY: u32 = 4096;
const GLANCE_EVERY: u32 = 64;

/// The floor, which this thread has: it leads.
pub(super) type Held<'e> = Guard<'e, Floor, Turns>;

/// Who waits for the floor: callers, and the engine's own thread.
#[derive(Default)]
pub(super) struct Turns {
    /// Whether there may be jobs that nobody leads.
    pub(super) left: AtomicBool,
    /// Threads that wait for the floor or for the end of an operation.
    pub(super) waiting: AtomicU32,
    /// How often something has ended.
    pub(super) ended: AtomicU32,
    turn: Mutex<Turn>,
    pub(super) turned: Condvar,
}

/// The state of the engine's own thread.
#[derive(Default)]
pub(super) struct Turn {
    pub(super) running: bool,
    pub(super) stop: bool,
}

impl Turns {
    pub(super) fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is somebody's turn.
    pub(super) fn wait<'t>(&self, turn: MutexGuard<'t, Turn>) -> MutexGuard<'t, Turn> {
        self.turned.wait(turn).unwrap_or_else(PoisonError::into_inner)
    }

    /// Has all those look who wait.
    pub(super) fn over(&self) {
        let _turn = self.turn();
        self.turned.notify_all();
    }
}

impl Waiters for Turns {
    #[inline]
    fn tell(&self) {
        if self.left.load(SeqCst) || self.waiting.load(SeqCst) > 0 {
            self.over();
        }
    }
}

impl Engine {
    pub(super) fn turns(&self) -> &Turns {
        &self.floor.waiters
    }

    /// The floor, if nobody has it.
    #[inline]
    pub(super) fn try_floor(&self) -> Option<Held<'_>> {
        self.floor.try_lock()
    }

    /// The floor, once whoever leads has stepped back.
    pub(super) fn wait_for_floor(&self) -> Held<'_> {
        let turns = self.turns();
        turns.waiting.fetch_add(1, SeqCst);
        self.bell.wake();
        let mut turn = turns.turn();
        let floor = loop {
            // Under the lock of turns: who has it will find this thread waiting when giving it up.
            match self.try_floor() {
                Some(floor) => break floor,
                None => turn = turns.wait(turn),
            }
        };
        drop(turn);
        turns.waiting.fetch_sub(1, SeqCst);
        floor
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::Lost;
    use crate::{
        bootstrap::UniqueId,
        comm::{Communicator, Config},
        types::{Error, Op},
    };
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        sync::atomic::{AtomicBool, Ordering::Relaxed},
        thread,
        time::{Duration, Instant},
    };

    pub(in crate::comm::engine) fn alone() -> Communicator {
        let id = UniqueId::new().unwrap();
        Communicator::init(1, &id, 0, &Config::default()).unwrap()
    }

    #[test]
    fn who_waits_is_told_by_calls_that_are_refused() {
        let (comm, is_over) = (alone(), AtomicBool::new(false));
        let (send, mut recv) = ([1u32; 2], [0u32; 2]);
        for _ in 0..100 {
            comm.all_reduce(&send, &mut recv, Op::Sum).unwrap();
        }
        let refused = |recv: &mut [u32]| {
            // It has the floor when it is found to be wrong.
            let refused = comm.all_reduce(&send, &mut recv[..1], Op::Sum);
            assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    refused(&mut recv);
                }
            });
            for _ in 0..2000 {
                comm.engine.memory().unwrap();
            }
            is_over.store(true, Relaxed);
        });
    }

    #[test]
    fn time_in_which_nobody_looked_counts_for_what_was_under_way_then() {
        let (start, mut lost) = (Instant::now(), Lost::default());
        let at = |seconds| start + Duration::from_secs(seconds);
        for (before, now) in [(0, 1), (1, 6), (6, 7), (7, 10)] {
            lost.look(at(before), at(now));
        }
        // GAP of each pause counts as waiting.
        for (since, after) in [(0, 6), (1, 6), (3, 5), (6, 2), (9, 1), (10, 0), (11, 0)] {
            assert_eq!(lost.after(at(since)), Duration::from_secs(after), "since {since}");
        }
    }

    #[test]
    fn a_panic_on_the_floor_ends_what_is_under_way_and_locks_nobody_out() {
        let comm = alone();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            comm.engine.with_floor(|_| panic!("on the floor"))
        }));
        panicked.unwrap_err();
        is_closed_by_a_panic(&comm);
    }

    /// The next call tells of the panic, and those after it that the communicator is closed; nobody is locked out.
    pub(in crate::comm::engine) fn is_closed_by_a_panic(comm: &Communicator) {
        let (send, mut recv) = ([1u32], [0u32]);
        let failed = comm.all_reduce(&send, &mut recv, Op::Sum).unwrap_err();
        assert!(failed.to_string().contains("panicked"), "{failed}");
        comm.engine.memory().unwrap();
        let closed = comm.all_reduce(&send, &mut recv, Op::Sum);
        assert!(matches!(closed, Err(Error::Closed(_))), "{closed:?}");
    }

    #[test]
    fn a_call_while_the_program_unwinds_is_a_call_as_any_other() {
        struct CallsAtLast<'c>(&'c Communicator);
        impl Drop for CallsAtLast<'_> {
            fn drop(&mut self) {
                self.0.all_reduce(&[1u32], &mut [0], Op::Sum).unwrap();
            }
        }
        let comm = alone();
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let _calls = CallsAtLast(&comm);
            panic!("of the program's own");
        }));
        unwound.unwrap_err();
        comm.all_reduce(&[1u32], &mut [0], Op::Sum).unwrap();
    }
}
