//! [`Helpers`]: threads that take parts of a thread's work over memory while it does the others.

use super::{fork, futex, thread::spawn_quiet};
use std::{
    cell::{Cell, UnsafeCell},
    fmt, hint,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release, SeqCst},
        },
    },
    thread,
    time::{Duration, Instant},
};

/// A number of threads that work together, whoever calls included. Clones have the same threads, and may be for fewer of
/// them; they are made on first need, sleep when there is nothing to do, and end with the last clone.
#[derive(Clone)]
pub(crate) struct Helpers {
    threads: usize,
    crew: Arc<Crew>,
}

impl Helpers {
    /// So many threads at most; 1 is the caller alone.
    pub(crate) fn new(threads: usize) -> Self {
        Helpers {
            threads: threads.clamp(1, Helpers::MOST),
            crew: Arc::default(),
        }
    }

    /// The same threads, of which so many work for who has this.
    pub(crate) fn with(&self, threads: usize) -> Self {
        Helpers {
            threads: threads.clamp(1, Helpers::MOST),
            crew: Arc::clone(&self.crew),
        }
    }

    /// The most threads that may work together.
    pub(crate) const MOST: usize = 64;

    /// Threads that work together, the caller included.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// Does `work` for each of `0..parts`, once each, on this thread and on those that are there for it. Never waits for a
    /// thread to come: what nobody has begun the caller does itself. All is done, and seen, when this returns.
    ///
    /// While another thread has the helpers, as if there were none. The same where the system has no room for threads.
    ///
    /// # Panics
    /// When `work` does, after what was begun has ended.
    pub(crate) fn share(&self, parts: usize, work: &(dyn Fn(usize) + Sync)) {
        assert!(parts <= MASK as usize, "{parts} parts");
        let crew = &*self.crew;
        if self.threads == 1 || parts < 2 || crew.busy.swap(true, Acquire) {
            return (0..parts).for_each(work);
        }
        crew.hire(self.threads - 1);
        // SAFETY: only the lifetime is another: `round` ends before this function returns or unwinds, and no thread calls
        // `work` after that.
        let work = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static Work>(work) };
        let round = Round::begin(crew, parts, work);
        work(0);
        while let Some(part) = crew.shared.take() {
            round.own.set(round.own.get() + 1);
            work(part);
        }
        drop(round);
        assert!(
            !crew.shared.panicked.swap(false, Relaxed),
            "a helping thread panicked"
        );
    }
}

impl Default for Helpers {
    fn default() -> Self {
        Helpers::new(1)
    }
}

impl fmt::Debug for Helpers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Helpers({} threads)", self.threads)
    }
}

type Work = dyn Fn(usize) + Sync;

/// The threads, as those see them who give them work.
#[derive(Default)]
struct Crew {
    shared: Arc<Shared>,
    /// Whether somebody gives them work.
    busy: AtomicBool,
    /// Threads that were made, or that the system refused.
    hired: AtomicUsize,
    /// Where the threads are.
    generation: AtomicU32,
}

impl Crew {
    /// Makes threads until there are so many. Called by who is `busy`.
    fn hire(&self, threads: usize) {
        while self.hired.load(Relaxed) < threads {
            self.generation.store(fork::generation(), Relaxed);
            self.hired.fetch_add(1, Relaxed);
            self.shared.running.fetch_add(1, Relaxed);
            let shared = Some(Arc::clone(&self.shared));
            let made = spawn_quiet(c"ccl-helper", shared, |shared| {
                if let Some(shared) = shared.take() {
                    shared.serve();
                }
            });
            if made.is_err() {
                self.shared.running.fetch_sub(1, Relaxed);
            }
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        if self.hired.load(Relaxed) == 0 || self.generation.load(Relaxed) != fork::generation() {
            return; // a forked child has none of them
        }
        self.shared.stop.store(true, SeqCst);
        self.shared.wake();
        let end = Instant::now() + STOP_WAIT;
        while self.shared.running.load(Acquire) > 0 && Instant::now() < end {
            thread::yield_now();
        }
    }
}

/// What is being done together: begun, and over when dropped, also by a panic of the caller's.
struct Round<'c> {
    crew: &'c Crew,
    parts: u64,
    /// Parts that the caller has begun.
    own: Cell<u64>,
}

impl<'c> Round<'c> {
    /// Called by who is `busy`.
    fn begin(crew: &'c Crew, parts: usize, work: &'static Work) -> Self {
        let shared = &*crew.shared;
        // SAFETY: nobody reads it between rounds: see `Shared::serve`; and nobody else is `busy`.
        unsafe { *shared.work.get() = Some(work) };
        shared.end.done.store(0, Relaxed);
        shared.panicked.store(false, Relaxed);
        let number = (shared.ticket.load(Relaxed) >> (2 * BITS)) + 1;
        // The first part is the caller's. As in `Shared::rest`: either who goes to sleep sees the work, or this thread the
        // sleeper.
        shared
            .ticket
            .store(number << (2 * BITS) | (parts as u64) << BITS | 1, SeqCst);
        if shared.asleep.load(SeqCst) && shared.asleep.swap(false, SeqCst) {
            shared.wake();
        }
        Round {
            crew,
            parts: parts as u64,
            own: Cell::new(1),
        }
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        let shared = &*self.crew.shared;
        // After a panic nobody begins what is left.
        let left = std::iter::from_fn(|| shared.take()).count() as u64;
        let others = self.parts - left - self.own.get();
        let mut looks = 0u32;
        while u64::from(shared.end.done.load(Acquire)) < others {
            looks += 1;
            if looks < SPINS {
                hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
        self.crew.busy.store(false, Release);
    }
}

/// What the threads look at: lines of what is new in each round, of its end, and of what hardly changes.
#[derive(Default)]
#[repr(C)]
struct Shared {
    /// The number of the round, how many parts it has, and how many of them are taken.
    ticket: AtomicU64,
    work: UnsafeCell<Option<&'static Work>>,
    end: End,
    /// Whether some may be asleep; they sleep on the bell.
    asleep: AtomicBool,
    bell: AtomicU32,
    stop: AtomicBool,
    panicked: AtomicBool,
    running: AtomicU32,
}

#[derive(Default)]
#[repr(align(128))]
struct End {
    /// Parts that helpers have done.
    done: AtomicU32,
}

// SAFETY: `work` is all that is no atomic; `Round::begin` and `Shared::serve` say who uses it when.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// The next part of the round, if one is left.
    fn take(&self) -> Option<usize> {
        let mut seen = self.ticket.load(Acquire);
        loop {
            let (parts, taken) = (seen >> BITS & MASK, seen & MASK);
            if taken >= parts {
                return None;
            }
            // Pairs with the store in `Round::begin`.
            match self
                .ticket
                .compare_exchange_weak(seen, seen + 1, Acquire, Acquire)
            {
                Ok(_) => return Some(taken as usize),
                Err(now) => seen = now,
            }
        }
    }

    /// A helper's life.
    fn serve(&self) {
        let mut looks = 0;
        while !self.stop.load(Relaxed) {
            let Some(part) = self.take() else {
                looks += 1;
                match looks {
                    ..SPINS => hint::spin_loop(),
                    SPINS..LOOKS => thread::yield_now(),
                    _ => {
                        self.rest();
                        looks = 0;
                    }
                }
                continue;
            };
            looks = 0;
            // SAFETY: the part was taken, so its round goes on until `done` says so, below: `work` was written before it
            // began, and is written again after it only.
            let work = unsafe { *self.work.get() };
            if let Some(work) = work
                && catch_unwind(AssertUnwindSafe(|| work(part))).is_err()
            {
                self.panicked.store(true, Relaxed);
            }
            self.end.done.fetch_add(1, Release); // pairs with the Acquire at the end of the round
        }
        self.running.fetch_sub(1, Release);
    }

    /// Sleeps until there is something to do.
    fn rest(&self) {
        let bell = self.bell.load(SeqCst);
        self.asleep.store(true, SeqCst);
        let ticket = self.ticket.load(SeqCst);
        if ticket & MASK < ticket >> BITS & MASK || self.stop.load(SeqCst) {
            return;
        }
        futex::wait(&self.bell, bell, LONG);
    }

    fn wake(&self) {
        self.bell.fetch_add(1, SeqCst);
        futex::wake(&self.bell);
    }
}

/// Bits of a number of parts.
const BITS: u32 = 8;
const MASK: u64 = (1 << BITS) - 1;
/// Looks before the first yield, and before a helper sleeps: some tens of microseconds, about what it takes to wake it.
const SPINS: u32 = 512;
const LOOKS: u32 = 576;
/// How long a helper sleeps at a time.
const LONG: Duration = Duration::from_secs(3600);
/// How long the end waits for the threads.
const STOP_WAIT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn each_part_is_done_once() {
        let helpers = Helpers::new(4);
        let mut random = fastrand::Rng::with_seed(4);
        for round in 0..5000u32 {
            let parts = random.usize(0..9);
            let done: Vec<AtomicU32> = (0..parts).map(|_| AtomicU32::new(0)).collect();
            helpers.share(parts, &|part| {
                done[part].fetch_add(round + 1, Relaxed);
            });
            assert!(done.iter().all(|done| done.load(Relaxed) == round + 1));
            if round.is_multiple_of(100) {
                (0..700).for_each(|_| thread::yield_now()); // so that they fall asleep
            }
        }
    }

    #[test]
    fn helpers_do_come() {
        let helpers = Helpers::new(3);
        let names = Mutex::new(Vec::new());
        let here = thread::current().id();
        // One part each: the caller's is done when another thread has done one.
        let came = AtomicBool::new(false);
        helpers.share(2, &|_| {
            if thread::current().id() != here {
                let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
                names.lock().unwrap().push(name.trim().to_owned());
                came.store(true, Release);
            }
            while !came.load(Acquire) {
                thread::yield_now();
            }
        });
        assert_eq!(*names.lock().unwrap(), ["ccl-helper"]);
        let running = Arc::clone(&helpers.crew.shared);
        let other = helpers.with(1);
        drop(helpers);
        assert_eq!(running.running.load(Relaxed), 2);
        drop(other);
        assert_eq!(running.running.load(Relaxed), 0);
    }

    #[test]
    fn one_thread_makes_none() {
        let helpers = Helpers::new(1);
        helpers.share(5, &|_| ());
        helpers.with(4).share(1, &|_| ());
        assert_eq!(helpers.crew.hired.load(Relaxed), 0);
    }

    #[test]
    fn several_callers_at_once_and_within_a_part() {
        let helpers = &Helpers::new(3);
        let sum = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        helpers.share(3, &|_| {
                            helpers.share(2, &|_| _ = sum.fetch_add(1, Relaxed));
                        });
                    }
                });
            }
        });
        assert_eq!(sum.load(Relaxed), 3 * 500 * 6);
    }

    #[test]
    fn a_panic_comes_to_the_caller_whoever_has_it() {
        let helpers = Helpers::new(2);
        let here = thread::current().id();
        for panics_here in [true, false] {
            let met = AtomicU32::new(0);
            let share = || {
                helpers.share(2, &|_| {
                    met.fetch_add(1, SeqCst);
                    while met.load(SeqCst) < 2 {
                        thread::yield_now();
                    }
                    assert!((thread::current().id() == here) != panics_here, "on purpose");
                });
            };
            assert!(catch_unwind(AssertUnwindSafe(share)).is_err());
        }
        let sum = AtomicUsize::new(0);
        helpers.share(4, &|part| _ = sum.fetch_add(part, Relaxed));
        assert_eq!(sum.into_inner(), 6);
    }

    #[test]
    fn a_forked_child_drops_its_copy_at_once() {
        fork::watch().unwrap();
        let helpers = Helpers::new(2);
        helpers.share(2, &|_| ());
        let child = fork::child(|| {
            drop(helpers);
            true
        });
        let status = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty()).unwrap();
        assert_eq!(status.unwrap().1.exit_status(), Some(0));
    }
}
