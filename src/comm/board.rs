//! [`Board`]: where ranks that are threads of one process tell each other where the buffers of their calls are, and when the work is given.
//!
//! All ranks take a [`Seat`] in each call. Once all sit there, and are known to call the same, one of them takes what they have said, and
//! gives the work to its stream; the others wait until it has. Who gives up before that takes its buffers along: then nobody gives the
//! work any more.

use crate::{
    cuda::events::{Events, Point},
    mem::Region,
};
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// The calls of a communicator.
pub(super) struct Board {
    ranks: usize,
    pub(super) events: Arc<Events>,
    calls: Mutex<Calls>,
}

struct Calls {
    /// By rank, the number of its next call.
    next: Vec<u64>,
    /// By number, those that not all ranks have left.
    open: HashMap<u64, (Arc<Call>, usize)>,
}

struct Call {
    sides: Mutex<Sides>,
    /// The point after the work; none: there is no work, and never will be.
    given: OnceLock<Option<Point>>,
}

enum Sides {
    /// By rank.
    Here(Vec<Option<Side>>),
    Taken,
    GivenUp,
}

/// A rank's buffers, and the point in its stream after which they may be used.
pub(super) struct Side {
    pub(super) send: Region<'static>,
    pub(super) recv: Region<'static>,
    pub(super) ready: Point,
}

/// A rank's place in a call.
pub(super) struct Seat {
    board: Arc<Board>,
    call: Arc<Call>,
    number: u64,
    leads: bool,
}

/// Boards that ranks may still look for.
static OFFERED: Mutex<Vec<Arc<Board>>> = Mutex::new(Vec::new());

impl Board {
    pub(super) fn new(ranks: usize, events: Arc<Events>) -> Arc<Self> {
        Arc::new(Board {
            ranks,
            events,
            calls: Mutex::new(Calls {
                next: vec![0; ranks],
                open: HashMap::new(),
            }),
        })
    }

    /// Has other ranks of this process find it by a number, until it is withdrawn.
    pub(super) fn offer(self: &Arc<Self>) -> u64 {
        offered().push(Arc::clone(self));
        self.key()
    }

    /// The one that is offered by this number.
    pub(super) fn find(key: u64) -> Option<Arc<Self>> {
        offered().iter().find(|board| board.key() == key).map(Arc::clone)
    }

    pub(super) fn withdraw(self: &Arc<Self>) {
        offered().retain(|board| !Arc::ptr_eq(board, self));
    }

    /// No other one is there meanwhile.
    fn key(self: &Arc<Self>) -> u64 {
        Arc::as_ptr(self).addr() as u64
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the seat of `rank` in its next call. Rank 0 leads.
    pub(super) fn enter(self: &Arc<Self>, rank: usize, side: Side) -> Seat {
        let mut calls = self.calls();
        let number = calls.next[rank];
        calls.next[rank] += 1;
        let (call, entered) = calls.open.entry(number).or_insert_with(|| {
            let nobody = (0..self.ranks).map(|_| None).collect();
            let call = Call {
                sides: Mutex::new(Sides::Here(nobody)),
                given: OnceLock::new(),
            };
            (Arc::new(call), 0)
        });
        *entered += 1;
        let call = Arc::clone(call);
        drop(calls);
        if let Sides::Here(sides) = &mut *call.sides() {
            sides[rank] = Some(side);
        }
        Seat {
            board: Arc::clone(self),
            call,
            number,
            leads: rank == 0,
        }
    }
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Board({})", self.ranks)
    }
}

impl Call {
    fn sides(&self) -> MutexGuard<'_, Sides> {
        self.sides.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody will give the work any more: not if somebody is about to.
    fn give_up(&self) -> bool {
        let mut sides = self.sides();
        if let Sides::Here(_) = *sides {
            *sides = Sides::GivenUp;
        }
        !matches!(*sides, Sides::Taken)
    }
}

impl Seat {
    pub(super) fn events(&self) -> &Arc<Events> {
        &self.board.events
    }

    /// Whether this rank is the one that gives the work.
    pub(super) fn leads(&self) -> bool {
        self.leads
    }

    /// The number of the call among all.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// What all ranks have said, by rank, of the one that gives the work: at most once; none if one has not come, or has given up.
    pub(super) fn take(&self) -> Option<Vec<Side>> {
        let mut sides = self.call.sides();
        let are_all = |sides: &Sides| matches!(sides, Sides::Here(all) if all.iter().all(Option::is_some));
        if !self.leads || !are_all(&sides) {
            return None;
        }
        match std::mem::replace(&mut *sides, Sides::Taken) {
            Sides::Here(all) => all.into_iter().collect(),
            Sides::Taken | Sides::GivenUp => None,
        }
    }

    /// Says that the work is given, and ends at this point; none: that there is none.
    pub(super) fn give(&self, end: Option<Point>) {
        // Of two the first one counts: there is only one.
        let _ = self.call.given.set(end);
    }

    /// The point after the work, once it is given; none: it never will be, as the one that gives it says, or since something `has_failed`.
    pub(super) fn given(&self, has_failed: impl Fn() -> bool) -> Option<&Point> {
        let begun = Instant::now();
        loop {
            if let Some(given) = self.call.given.get() {
                return given.as_ref();
            }
            let waited = begun.elapsed();
            if waited < SPIN {
                std::hint::spin_loop();
            } else if waited < YIELD {
                thread::yield_now();
            } else if has_failed() && self.call.give_up() {
                return None;
            } else {
                thread::sleep(LOOK);
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.call.give_up();
        if self.leads {
            self.give(None);
        }
        let mut calls = self.board.calls();
        let (ranks, number) = (self.board.ranks, self.number);
        if let Some((_, left)) = calls.open.get_mut(&number) {
            // Who has entered and left counts twice.
            *left += 1;
            if *left == 2 * ranks {
                calls.open.remove(&number);
            }
        }
    }
}

fn offered() -> MutexGuard<'static, Vec<Arc<Board>>> {
    OFFERED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// For so long one waits without a rest, then lets others have the processor, then looks so often.
const SPIN: Duration = Duration::from_micros(20);
const YIELD: Duration = Duration::from_micros(200);
const LOOK: Duration = Duration::from_micros(50);
