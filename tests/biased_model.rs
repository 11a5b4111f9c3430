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
/// The marks of the threads, each with a place of its own.
const OWNER: usize = 2;
const OTHER: usize = 3;
const THIRD: usize = 4;
const PLACES: usize = 3;

/// The fences that are there.
#[derive(Clone, Copy)]
struct Fences {
    /// In `try_lock`, after the owner has said that it is inside.
    entering: bool,
    /// In `leave`, before the owner looks whether it still is one.
    leaving: bool,
    /// In `try_otherwise`, before it is looked whether the lock can be had.
    looking: bool,
    /// Whether each owner has a place of its own to say that it is inside.
    apart: bool,
    /// Whether who took the lock away looks again after it has left it to who is inside.
    again: bool,
}

const ALL: Fences = Fences {
    entering: true,
    leaving: true,
    looking: true,
    apart: true,
    again: true,
};

struct Biased {
    fences: Fences,
    /// Whether who has it once more becomes its owner: the code wants it to have it several times in a row.
    makes_owners: bool,
    state: AtomicUsize,
    inside: [AtomicBool; PLACES],
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
    fn owned(fences: Fences, makes_owners: bool) -> Arc<Biased> {
        Arc::new(Biased {
            fences,
            makes_owners,
            state: AtomicUsize::new(OWNER),
            inside: [(); PLACES].map(|()| AtomicBool::new(false)),
            value: UnsafeCell::new(0),
            waiting: AtomicU32::new(0),
            told: AtomicBool::new(false),
        })
    }

    /// Where a thread says that it is inside.
    fn inside(&self, me: usize) -> &AtomicBool {
        &self.inside[if self.fences.apart { me - OWNER } else { 0 }]
    }

    fn try_lock(&self, me: usize) -> Option<Guard> {
        if self.state.load(Relaxed) == me && !self.inside(me).load(Acquire) {
            self.inside(me).store(true, Relaxed);
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
            let is_mine = seen == me;
            if seen == HELD || (seen == FREE || is_mine) && self.is_anybody_inside() {
                return None;
            }
            if self.state.compare_exchange(seen, HELD, Acquire, Relaxed).is_err() {
                continue;
            }
            if seen != FREE && !is_mine {
                fence(SeqCst);
            }
            if !self.is_anybody_inside() {
                return Some(self.enter(me));
            }
            self.state.store(FREE, Release);
            if !self.fences.again {
                return None;
            }
        }
    }

    fn is_anybody_inside(&self) -> bool {
        self.inside.iter().any(|inside| inside.load(Acquire))
    }

    fn enter(&self, me: usize) -> Guard {
        if !self.makes_owners {
            return Guard::Other;
        }
        self.inside(me).store(true, Relaxed);
        self.state.store(me, Release);
        fence(SeqCst);
        Guard::Owner(me)
    }

    fn leave(&self, me: usize) {
        self.inside(me).store(false, Release);
        if self.fences.leaving {
            fence(SeqCst);
        }
        if self.state.load(Relaxed) <= HELD {
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

/// The owner takes it so often; another waits for it so often, and others only try. Who waits has had it, or is told.
fn passes(fences: Fences, makes_owners: bool, [owner, other, third]: [usize; 3]) {
    model(move || {
        let lock = Biased::owned(fences, makes_owners);
        let waits = {
            let lock = lock.clone();
            thread::spawn(move || (0..other).all(|_| lock.wait(OTHER)))
        };
        let tries = (third > 0).then(|| {
            let lock = lock.clone();
            thread::spawn(move || (0..third).for_each(|_| _ = lock.pass(THIRD)))
        });
        (0..owner).for_each(|_| _ = lock.pass(OWNER));
        let had = waits.join().unwrap();
        if let Some(tries) = tries {
            tries.join().unwrap();
        }
        assert!(had || lock.told.load(Relaxed), "who waits is told");
    });
}

#[test]
fn one_at_a_time_has_it_and_who_waits_is_told() {
    passes(ALL, false, [2, 1, 1]);
    passes(ALL, true, [2, 2, 0]);
    passes(ALL, true, [1, 1, 1]);
}

#[test]
#[should_panic]
fn the_owner_needs_the_barrier_as_it_enters() {
    let fences = Fences {
        entering: false,
        ..ALL
    };
    passes(fences, false, [1, 1, 0]);
}

#[test]
#[should_panic]
fn owners_need_places_of_their_own() {
    passes(Fences { apart: false, ..ALL }, true, [2, 2, 0]);
}

#[test]
#[should_panic(expected = "who waits is told")]
fn the_owner_needs_the_barrier_as_it_leaves() {
    let fences = Fences {
        leaving: false,
        ..ALL
    };
    passes(fences, false, [1, 1, 0]);
}

#[test]
#[should_panic(expected = "who waits is told")]
fn who_waits_must_say_so_before_it_looks() {
    let fences = Fences {
        looking: false,
        ..ALL
    };
    passes(fences, false, [1, 1, 0]);
}

#[test]
#[should_panic(expected = "who waits is told")]
fn who_left_it_to_the_owner_must_look_again() {
    passes(Fences { again: false, ..ALL }, false, [2, 1, 1]);
}
