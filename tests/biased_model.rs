//! A model of the lock that is biased to a thread (`src/sys/biased.rs`), which loom runs in every order that the memory model
//! allows.
//!
//! The functions here are those of the same names there, with the same steps and the same memory orders. The barrier on all
//! processors, for which loom has no means, is a full fence on either side: that is what it makes of the compiler's fence. Each
//! fence is then left out in turn, to show that the model would notice.

use loom::{
    cell::UnsafeCell,
    model::Builder,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*, fence},
    },
    thread,
};

const FREE: usize = 0;
const HELD: usize = 1;
/// The marks of the threads.
const OWNER: usize = 2;
const OTHER: usize = 3;
const THIRD: usize = 4;

/// The fences that are there.
#[derive(Clone, Copy)]
struct Fences {
    /// In `try_lock`, after the owner has said that it is inside.
    entering: bool,
    /// In `leave`, before the owner looks whether it still is one.
    leaving: bool,
    /// In `try_otherwise`, before it is looked whether the lock can be had.
    looking: bool,
    /// Whether who took the lock away looks again after it has left it to who is inside.
    again: bool,
}

const ALL: Fences = Fences {
    entering: true,
    leaving: true,
    looking: true,
    again: true,
};

struct Biased {
    fences: Fences,
    state: AtomicUsize,
    inside: AtomicBool,
    value: UnsafeCell<u32>,
    /// As the engine has it: who waits to be told.
    waiting: AtomicU32,
    /// Whether somebody was told.
    told: AtomicBool,
}

/// How it is held.
#[derive(Clone, Copy, PartialEq)]
enum Guard {
    Owner(usize),
    Other,
}

impl Biased {
    fn owned(fences: Fences) -> Arc<Biased> {
        Arc::new(Biased {
            fences,
            state: AtomicUsize::new(OWNER),
            inside: AtomicBool::new(false),
            value: UnsafeCell::new(0),
            waiting: AtomicU32::new(0),
            told: AtomicBool::new(false),
        })
    }

    fn try_lock(&self, me: usize) -> Option<Guard> {
        if self.state.load(Relaxed) == me && !self.inside.load(Acquire) {
            self.inside.store(true, Relaxed);
            if self.fences.entering {
                fence(SeqCst);
            }
            if self.state.load(Relaxed) == me {
                return Some(Guard::Owner(me));
            }
            self.leave(me);
        }
        self.try_otherwise(me)
    }

    fn try_otherwise(&self, me: usize) -> Option<Guard> {
        loop {
            if self.fences.looking {
                fence(SeqCst);
            }
            let seen = self.state.load(Relaxed);
            if seen == HELD || (seen == FREE || seen == me) && self.inside.load(Relaxed) {
                return None;
            }
            if self.state.compare_exchange(seen, HELD, Acquire, Relaxed).is_err() {
                continue;
            }
            if seen != FREE && seen != me {
                fence(SeqCst);
            }
            if !self.inside.load(Acquire) {
                return Some(Guard::Other);
            }
            self.state.store(FREE, Release);
            if !self.fences.again {
                return None;
            }
        }
    }

    fn leave(&self, me: usize) {
        self.inside.store(false, Release);
        if self.fences.leaving {
            fence(SeqCst);
        }
        if self.state.load(Relaxed) != me {
            fence(SeqCst);
        }
    }

    /// Gives it up, and tells who waits, as the engine does.
    fn give_up(&self, guard: Guard) {
        match guard {
            Guard::Owner(me) => self.leave(me),
            Guard::Other => {
                self.state.store(FREE, Release);
                fence(SeqCst);
            }
        }
        if self.waiting.load(Relaxed) > 0 {
            self.told.store(true, Relaxed);
        }
    }

    /// Somebody who has it changes what it guards: loom fails where two do so at once, or where one does not see the other.
    fn change(&self) {
        self.value.with_mut(|value| {
            // SAFETY: whether this is right is what the model shows.
            unsafe { *value += 1 }
        });
    }

    /// Takes it once, if it can be had.
    fn pass(&self, me: usize) -> bool {
        let Some(guard) = self.try_lock(me) else {
            return false;
        };
        self.change();
        self.give_up(guard);
        true
    }

    /// Says that it waits, and takes it; whether it has, or will be told.
    fn wait(&self, me: usize) -> bool {
        self.waiting.fetch_add(1, Relaxed);
        self.pass(me)
    }
}

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(test);
}

/// The owner takes it twice; another waits for it, and a third one only tries. Who waits has had it, or is told.
fn passes(fences: Fences) {
    model(move || {
        let lock = Biased::owned(fences);
        let of = |me: usize, wait: bool| {
            let lock = lock.clone();
            thread::spawn(move || if wait { lock.wait(me) } else { lock.pass(me) })
        };
        let (other, third) = (of(OTHER, true), of(THIRD, false));
        lock.pass(OWNER);
        lock.pass(OWNER);
        let had = other.join().unwrap();
        third.join().unwrap();
        assert!(had || lock.told.load(Relaxed), "who waits is told");
    });
}

/// The owner takes it once, and another waits for it.
fn passes_of_two(fences: Fences) {
    model(move || {
        let lock = Biased::owned(fences);
        let waits = {
            let lock = lock.clone();
            thread::spawn(move || lock.wait(OTHER))
        };
        lock.pass(OWNER);
        let had = waits.join().unwrap();
        assert!(had || lock.told.load(Relaxed), "who waits is told");
    });
}

#[test]
fn one_at_a_time_has_it_and_who_waits_is_told() {
    passes(ALL);
}

#[test]
#[should_panic]
fn the_owner_needs_the_barrier_as_it_enters() {
    passes_of_two(Fences {
        entering: false,
        ..ALL
    });
}

#[test]
#[should_panic(expected = "who waits is told")]
fn the_owner_needs_the_barrier_as_it_leaves() {
    passes_of_two(Fences {
        leaving: false,
        ..ALL
    });
}

#[test]
#[should_panic(expected = "who waits is told")]
fn who_waits_must_say_so_before_it_looks() {
    passes_of_two(Fences {
        looking: false,
        ..ALL
    });
}

#[test]
#[should_panic(expected = "who waits is told")]
fn who_left_it_to_the_owner_must_look_again() {
    passes(Fences { again: false, ..ALL });
}
