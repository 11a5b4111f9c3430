//! [`Health`]: how a communicator is doing, as the control thread writes it and everybody else reads it.

use super::{
    control::{Command, Control, Key},
    messages::{Elsewhere, Made, Waits},
};
use crate::{
    net::{CommId, Frame, hex},
    plan::algo::ALGORITHMS,
    record::Recorder,
    sys::fork,
    transport::links::{Direction, Way},
    types::{Cause, Error, Operation},
};
use std::{
    mem,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{
            AtomicBool, AtomicU8, AtomicU32,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    time::{Duration, Instant},
};
use tracing::{debug, info};

/// What is known of another rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Peer {
    Alive,
    /// It left in order.
    Left {
        /// When this process heard it.
        since: Instant,
        /// What it had called, if it said so.
        made: Option<Made>,
    },
    /// Its process died.
    Dead {
        /// How that was seen, e.g. "its process 4711 ended".
        how: String,
        /// When it was seen.
        since: Instant,
    },
}

/// Called by the control thread when something has changed: death, departure, verdict, parcel. Must not block.
pub(crate) type Wake = Arc<dyn Fn() + Send + Sync>;

/// What a thread may ask of a communicator while others use it: who is alive, what stopped it; and it may stop it.
/// Cheap to clone; does not keep the rank in the communicator.
///
/// A forked child gets answers that concern nobody: see [`Health::check`].
#[derive(Clone)]
pub(crate) struct Health(pub(super) Arc<Shared>);

impl Health {
    /// This rank.
    pub(crate) fn rank(&self) -> usize {
        self.0.key.rank as usize
    }

    /// All ranks of the communicator.
    pub(crate) fn ranks(&self) -> usize {
        self.0.ranks as usize
    }

    /// Whether this process may use the communicator at all.
    ///
    /// # Errors
    /// [`Error::Usage`] in a child that was forked after the communicator was made.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.0.check()
    }

    /// Whether that is so.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.0.is_here()
    }

    /// Whether a rank died or there is a verdict; stays so. One atomic load.
    #[inline]
    pub(crate) fn trouble(&self) -> bool {
        self.0.news.load(Acquire) & TROUBLE != 0
    }

    /// Whether a rank, this one included, has left in order; stays so. One atomic load. No trouble in itself, but
    /// whoever waits for a rank may want to look whether it is still there.
    #[inline]
    pub(crate) fn departures(&self) -> bool {
        self.0.news.load(Acquire) & DEPARTURES != 0
    }

    /// What is known of `rank`.
    pub(crate) fn peer(&self, rank: usize) -> Peer {
        if self.0.check().is_err() {
            return Peer::Alive;
        }
        self.0.lock().peers.get(rank).cloned().unwrap_or(Peer::Alive)
    }

    /// The ranks that have left and said what they had called.
    pub(crate) fn left(&self) -> Vec<(usize, Made)> {
        if self.0.check().is_err() || !self.departures() {
            return Vec::new();
        }
        let made = |peer: &Peer| match peer {
            Peer::Left { made, .. } => *made,
            Peer::Alive | Peer::Dead { .. } => None,
        };
        let inner = self.0.lock();
        let all = (0..).zip(&inner.peers);
        all.filter_map(|(rank, peer)| Some((rank, made(peer)?))).collect()
    }

    /// What stopped the communicator, once all ranks are being told, or this one has [ended](Health::end) it. It never changes again.
    pub(crate) fn verdict(&self) -> Option<Cause> {
        if self.0.check().is_err() || !self.trouble() {
            return None;
        }
        self.0.lock().verdict.clone()
    }

    /// Waits for the verdict, or until `done`, `limit` at most. `done` is asked whenever something has changed, under the lock: what it
    /// asks of this must not take that.
    #[cfg(feature = "cuda")]
    pub(crate) fn await_change(&self, limit: Duration, done: impl Fn() -> bool) {
        let verdict = |inner: &Inner| inner.verdict.is_some();
        self.0
            .wait(limit, |inner| (verdict(inner) || done()).then_some(()));
    }

    /// Has those look who wait for a change.
    #[cfg(feature = "cuda")]
    pub(crate) fn changed(&self) {
        self.0.tell(0, |_| ());
    }

    /// What keeps this rank's last operations, for others that ask.
    pub(crate) fn recorder(&self) -> &Arc<Recorder> {
        &self.0.recorder
    }

    /// Says which ranks this one waits for, and in which call, for others that ask; no ranks when it does not wait.
    pub(crate) fn set_waits(&self, ranks: &[usize], call: Option<Operation>) {
        self.set_waiting(ranks, call, Duration::ZERO);
    }

    /// The same of a rank that has stood still for `waited`.
    pub(crate) fn set_waiting(&self, ranks: &[usize], call: Option<Operation>, waited: Duration) {
        self.0.lock().waits = Waiting::new(ranks, call, waited);
    }

    /// Says with which ranks this one makes a communicator of this one, for others that ask. Other threads may be in a call meanwhile, or
    /// make communicators, too.
    pub(crate) fn add_makes(&self, ranks: &[usize]) {
        let makes = Waiting::new(ranks, None, Duration::ZERO);
        self.0.lock().makes.push(makes);
    }

    /// One that it made with these ranks is made, or will not be.
    pub(crate) fn end_makes(&self, ranks: &[usize]) {
        let same = |one: &Waiting| {
            one.ranks
                .iter()
                .map(|&rank| rank as usize)
                .eq(ranks.iter().copied())
        };
        let mut inner = self.0.lock();
        if let Some(at) = inner.makes.iter().position(same) {
            inner.makes.remove(at);
        }
    }

    /// By what the direction to `peer`, or from it, goes.
    pub(crate) fn set_way(&self, peer: usize, direction: Direction, way: Way) {
        if let Some(ways) = self.0.ways.get(peer) {
            ways[direction as usize].store(way as u8, Relaxed);
        }
    }

    /// Takes note that this rank's program aborts the communicator: nothing is made of it any more.
    pub(crate) fn note_aborted(&self) {
        self.0.aborted.store(true, Relaxed);
    }

    /// Whether it has.
    pub(crate) fn is_aborted(&self) -> bool {
        self.0.aborted.load(Relaxed)
    }

    /// Stops the communicator because of `cause`, unless something else has: the lowest living rank takes the first
    /// cause that reaches it and tells all. Returns its verdict, or `cause` if none has come after [`RAISE_WAIT`].
    pub(crate) fn raise(&self, cause: Cause) -> Cause {
        let shared = &self.0;
        let key = shared.key;
        let raise = Command::Raise(key, cause.clone());
        if shared.check().is_err() || shared.control.post(raise).is_err() {
            return cause;
        }
        shared
            .wait(RAISE_WAIT, |inner| inner.verdict.clone())
            .unwrap_or(cause)
    }

    /// The same, and at least on this rank whatever the others do: who would have to decide or to pass it on may be stopped.
    pub(crate) fn end(&self, cause: Cause) -> Cause {
        let cause = self.raise(cause);
        if self.0.check().is_ok() && self.verdict().is_none() {
            self.0.end(cause.clone());
        }
        cause
    }
}

/// Between the control thread and the threads of the program. No lock here is held while anything blocks.
pub(super) struct Shared {
    pub(super) key: Key,
    pub(super) ranks: u32,
    pub(super) control: Arc<Control>,
    /// The communicator's name for people.
    pub(super) name: String,
    generation: u32,
    /// [`TROUBLE`] and [`DEPARTURES`].
    news: AtomicU32,
    /// Whether `arrivals` may hold something.
    arrived: AtomicBool,
    pub(super) recorder: Arc<Recorder>,
    /// By rank, what each direction goes by: a [`Way`].
    ways: Vec<[AtomicU8; 2]>,
    /// Whether this rank's program has aborted it.
    aborted: AtomicBool,
    /// Why this rank cannot join, once that is known before it has.
    pub(super) barred: OnceLock<String>,
    inner: Mutex<Inner>,
    changed: Condvar,
}

/// What [`Shared`] protects by a lock.
struct Inner {
    peers: Vec<Peer>,
    verdict: Option<Cause>,
    /// Whether this rank has left and all have heard.
    settled: bool,
    arrivals: Vec<(usize, Frame)>,
    waits: Waiting,
    /// The same of a rank that makes communicators of this one, the oldest first.
    makes: Vec<Waiting>,
    wake: Option<Wake>,
}

/// The ranks that a rank waits for, in what, and since when.
#[derive(Clone)]
struct Waiting {
    ranks: Vec<u32>,
    call: Option<Operation>,
    since: Instant,
}

impl Waiting {
    /// For `ranks`, for so long already.
    fn new(ranks: &[usize], call: Option<Operation>, waited: Duration) -> Waiting {
        Waiting {
            ranks: ranks.iter().map(|&rank| rank as u32).collect(),
            call,
            since: Instant::now().checked_sub(waited).unwrap_or_else(Instant::now),
        }
    }
}

impl Shared {
    /// `called`: what its program calls the communicator.
    pub(super) fn new(control: Arc<Control>, key: Key, ranks: u32, called: Option<&str>, wake: Wake) -> Self {
        let name = name_of(&key.comm, called);
        Shared {
            key,
            ranks,
            control,
            generation: fork::generation(),
            news: AtomicU32::new(0),
            arrived: AtomicBool::new(false),
            recorder: Arc::new(Recorder::new(algorithm, (&name, key.rank, ranks))),
            name,
            ways: (0..ranks).map(|_| Default::default()).collect(),
            aborted: AtomicBool::new(false),
            barred: OnceLock::new(),
            inner: Mutex::new(Inner {
                peers: vec![Peer::Alive; ranks as usize],
                verdict: None,
                settled: false,
                arrivals: Vec::new(),
                waits: Waiting::new(&[], None, Duration::ZERO),
                makes: Vec::new(),
                wake: Some(wake),
            }),
            changed: Condvar::new(),
        }
    }

    #[inline]
    fn is_here(&self) -> bool {
        self.generation == fork::generation()
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        if self.is_here() {
            return Ok(());
        }
        Err(Error::usage(
            "this communicator belongs to the parent process: make a new one after the fork",
        ))
    }

    pub(super) fn died(&self, rank: u32, how: String) {
        info!(
            rank = self.key.rank,
            ranks = self.ranks,
            "control: rank {rank} was lost: {how}"
        );
        let since = Instant::now();
        self.tell(TROUBLE, |inner| {
            inner.peers[rank as usize] = Peer::Dead { how, since }
        });
    }

    pub(super) fn departed(&self, rank: u32, made: Option<Made>) {
        debug!(
            rank = self.key.rank,
            ranks = self.ranks,
            "control: rank {rank} left"
        );
        let since = Instant::now();
        self.tell(DEPARTURES, |inner| {
            inner.peers[rank as usize] = Peer::Left { since, made }
        });
    }

    pub(super) fn conclude(&self, cause: Cause) {
        info!(
            rank = self.key.rank,
            ranks = self.ranks,
            "control: all ranks are told: {cause}"
        );
        self.end(cause);
    }

    /// Stops the communicator on this rank, unless something has.
    fn end(&self, cause: Cause) {
        self.tell(TROUBLE, |inner| {
            inner.verdict.get_or_insert(cause);
        });
    }

    pub(super) fn settled(&self) {
        self.tell(0, |inner| inner.settled = true);
    }

    /// Keeps a parcel from `rank` for [`Shared::arrivals`], if its sender gets the `answer`: what the sender does then finds it there. `None`
    /// if not, or if so many wait that something must be wrong.
    pub(super) fn deliver<T>(
        &self,
        rank: u32,
        parcel: Frame,
        answer: impl FnOnce() -> Option<T>,
    ) -> Option<T> {
        let limit = PARCELS_PER_RANK * self.ranks as usize;
        if self.lock().arrivals.len() >= limit {
            return None;
        }
        let mut answered = None;
        self.tell(0, |inner| {
            // Before the answer, so that who looks has to wait for the lock. Pairs with the Acquire in `arrivals`.
            self.arrived.store(true, Release);
            answered = answer();
            if answered.is_some() {
                inner.arrivals.push((rank as usize, parcel));
            }
        });
        answered
    }

    pub(super) fn arrivals(&self) -> Vec<(usize, Frame)> {
        if !self.arrived.load(Acquire) {
            return Vec::new();
        }
        let mut inner = self.lock();
        self.arrived.store(false, Relaxed); // under the lock, as the store in `deliver`
        mem::take(&mut inner.arrivals)
    }

    pub(super) fn waits(&self) -> Waits {
        let inner = self.lock();
        let makes = inner.makes.first().filter(|_| inner.waits.ranks.is_empty());
        let is_made = makes.is_some();
        let Waiting {
            mut ranks,
            call,
            since,
        } = makes.unwrap_or(&inner.waits).clone();
        if is_made && inner.makes.len() > 1 {
            ranks = inner.makes.iter().flat_map(|one| one.ranks.clone()).collect();
            ranks.sort_unstable();
            ranks.dedup();
        }
        let stopped = inner.verdict.clone();
        drop(inner);
        let still = (!ranks.is_empty()).then(|| since.elapsed());
        // Of many ranks all that together would be too long.
        let ways = self.ways.iter().take(MOST_WAYS);
        Waits {
            ranks,
            waits_in: call,
            makes: is_made,
            still,
            elsewhere: None,
            stopped,
            records: self.recorder.records(),
            ways: ways
                .map(|ways| ways.each_ref().map(|way| Way::of(way.load(Relaxed))))
                .collect(),
        }
    }

    /// The same for those who wait for this process in another communicator; `None` if it does not wait, or is over.
    pub(super) fn waits_elsewhere(&self) -> Option<Elsewhere> {
        let inner = self.lock();
        let Waiting {
            ranks, call, since, ..
        } = &inner.waits;
        if ranks.is_empty() || inner.verdict.is_some() {
            return None;
        }
        Some(Elsewhere {
            communicator: self.name.clone(),
            waits_in: (*call)?,
            ranks: ranks.iter().copied().take(MOST_NAMED).collect(),
            still: since.elapsed(),
        })
    }

    /// Calls the program back.
    pub(super) fn wake(&self) {
        let wake = self.lock().wake.clone();
        if let Some(wake) = wake {
            wake();
        }
    }

    /// Stops calling the program back: it is about to take down what `wake` touches.
    pub(super) fn hush(&self) {
        let wake = self.lock().wake.take();
        drop(wake); // outside the lock: what it owns may be anything
    }

    /// Waits until `done` gives something, `limit` at most.
    fn wait<T>(&self, limit: Duration, done: impl Fn(&Inner) -> Option<T>) -> Option<T> {
        let end = Instant::now() + limit;
        let mut inner = self.lock();
        loop {
            if let Some(out) = done(&inner) {
                return Some(out);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let woken = self.changed.wait_timeout(inner, left);
            inner = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until all have heard that this rank left, `limit` at most.
    pub(super) fn wait_settled(&self, limit: Duration) -> bool {
        self.wait(limit, |inner| inner.settled.then_some(())).is_some()
    }

    fn tell(&self, news: u32, change: impl FnOnce(&mut Inner)) {
        let mut inner = self.lock();
        change(&mut inner);
        let wake = inner.wake.clone();
        // Pairs with the Acquire in `trouble` and `departures`; before the unlock, so that it is set for all who know.
        self.news.fetch_or(news, Release);
        drop(inner);
        self.changed.notify_all();
        if let Some(wake) = wake {
            wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The algorithm with this number.
fn algorithm(number: u8) -> Option<&'static str> {
    ALGORITHMS
        .get(usize::from(number))
        .map(|algorithm| algorithm.name)
}

/// Ranks of another communicator that are named at most.
const MOST_NAMED: usize = 16;

/// A communicator's name for people: as much of its own as tells it from others, and what its program calls it, in one line.
fn name_of(comm: &CommId, called: Option<&str>) -> String {
    let own = hex(&comm[..4]);
    let called = called.filter(|called| !called.is_empty()).map(|called| {
        let shown = called.chars().take(MOST_CALLED);
        let shown: String = shown.map(|c| if c.is_control() { ' ' } else { c }).collect();
        format!("{own} ({shown})")
    });
    called.unwrap_or(own)
}

/// Characters that are shown of what a program calls a communicator.
const MOST_CALLED: usize = 64;

/// Ranks up to which those that ask are told what joins a rank to them.
const MOST_WAYS: usize = 1024;
/// How long [`Health::raise`] waits for the verdict.
const RAISE_WAIT: Duration = Duration::from_millis(300);
/// Parcels that may wait for each rank's: a transport needs one for each connection.
const PARCELS_PER_RANK: usize = 16;

const TROUBLE: u32 = 1;
const DEPARTURES: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_communicator_s_name_is_its_own_and_what_its_program_calls_it() {
        let comm = &[0xab; size_of::<CommId>()];
        assert_eq!(name_of(comm, None), "abababab");
        assert_eq!(name_of(comm, Some("")), "abababab");
        assert_eq!(name_of(comm, Some("data\nparallel")), "abababab (data parallel)");
        let long = name_of(comm, Some(&"é".repeat(1000)));
        assert_eq!(long.chars().count(), "abababab ()".len() + MOST_CALLED);
    }
}
