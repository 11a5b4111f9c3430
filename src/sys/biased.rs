//! [`Biased`]: a lock that costs the thread which takes it time and again no locked instruction.
//!
//! Such an instruction waits until all stores before it have left the processor, which those of a short call have not: the
//! two of an uncontended lock take longer than half of the call. The thread that has had the lock some times in a row becomes
//! its owner. It says by a plain store that it is inside, and looks whether it still is the owner. Whoever else wants the lock
//! takes that away first, with a barrier on all processors ([`membarrier::here`]), which is dear, so that after each
//! such time the next owner must have had the lock twice as often in a row.
//!
//! An owner may be stopped just before it says that it is inside, for as long as the system likes, and say so when another has
//! long become the owner. So each has a flag of its own for that, which stays its own: only [`PLACES`] threads can become owners.
//!
//! `tests/biased_model.rs` has the same steps for loom.

use super::membarrier;
use std::{
    cell::{Cell, UnsafeCell},
    marker::PhantomData,
    mem::ManuallyDrop,
    ops::{Deref, DerefMut},
    sync::atomic::{
        AtomicBool, AtomicUsize,
        Ordering::{self, Acquire, Relaxed, Release, SeqCst},
        compiler_fence, fence,
    },
    thread,
    time::Duration,
};

/// A value that one thread at a time has.
///
/// Who has said that it waits, and then does not get it by [`Biased::try_lock`], is told by whoever has it ([`Waiters`]).
pub(crate) struct Biased<T, W: Waiters = Nobody> {
    pub(crate) waiters: W,
    /// [`FREE`], [`HELD`], or the mark of the thread that owns it with the number of its place.
    state: AtomicUsize,
    /// For each thread that owns it, or did, whether it is inside.
    inside: [AtomicBool; PLACES],
    /// Belongs to whoever has it [`HELD`], as the places do.
    streak: Cell<Streak>,
    /// Whose places those are: marks.
    places: [Cell<usize>; PLACES],
    value: UnsafeCell<T>,
}

// SAFETY: the value and the cells belong to one thread at a time, as the fields tell.
unsafe impl<T: Send, W: Waiters + Sync> Sync for Biased<T, W> {}

/// Those who wait for a [`Biased`].
pub(crate) trait Waiters {
    /// It was given up: whoever has said before that it waits is told.
    fn tell(&self);
}

/// No one waits: who does not get it tries again.
#[derive(Default)]
pub(crate) struct Nobody;

impl Waiters for Nobody {
    #[inline]
    fn tell(&self) {}
}

/// Nobody holds it, unless somebody is still inside.
const FREE: usize = 0;
/// Somebody holds it who does not own it.
const HELD: usize = 1;

/// Who had it last without owning it, how often in a row, and how often makes an owner; [`usize::MAX`]: none is made.
#[derive(Clone, Copy)]
struct Streak {
    thread: usize,
    times: usize,
    needed: usize,
}

/// The value of a [`Biased`] that this thread has.
///
/// Two words, which stay in registers: those that are put down and read again at once would be waited for.
pub(crate) struct Guard<'l, T, W: Waiters = Nobody> {
    lock: &'l Biased<T, W>,
    /// The owner's; [`PLACES`] where it is not owned.
    place: usize,
    _stays: PhantomData<*const ()>,
}

impl<T, W: Waiters> Biased<T, W> {
    pub(crate) fn new(value: T, waiters: W) -> Self {
        Biased {
            waiters,
            state: AtomicUsize::new(FREE),
            inside: [const { AtomicBool::new(false) }; PLACES],
            places: [const { Cell::new(FREE) }; PLACES],
            streak: Cell::new(Streak {
                thread: 0,
                times: 0,
                needed: if membarrier::register_here() {
                    FIRST
                } else {
                    usize::MAX
                },
            }),
            value: UnsafeCell::new(value),
        }
    }

    /// The value, if nobody has it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T, W>> {
        let me = mark();
        let seen = self.state.load(Relaxed);
        let place = seen % PLACES;
        // Acquire: a thread may have the mark of one that has ended.
        if seen - place == me && !self.inside[place].load(Acquire) {
            self.inside[place].store(true, Relaxed);
            compiler_fence(SeqCst); // with the barrier in `try_otherwise`
            if self.state.load(Relaxed) == seen {
                return Some(self.guard(place));
            }
            self.leave(place);
        }
        self.try_otherwise(me)
    }

    /// The value, which others have for moments only.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T, W> {
        self.try_lock().unwrap_or_else(|| self.wait())
    }

    #[cold]
    fn wait(&self) -> Guard<'_, T, W> {
        let mut tries = 0;
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            tries += 1;
            match tries < YIELDS {
                true => thread::yield_now(),
                // Who has it may have to run on this very processor, with less of a right to it.
                false => thread::sleep(NAP),
            }
        }
    }

    #[cold]
    fn try_otherwise(&self, me: usize) -> Option<Guard<'_, T, W>> {
        loop {
            fence(SeqCst); // between what says that this thread waits, and the look whether it has to
            let seen = self.state.load(Relaxed);
            let is_mine = seen - seen % PLACES == me;
            // Its own owner would be inside twice.
            if seen == HELD || (seen == FREE || is_mine) && self.is_anybody_inside(Relaxed) {
                return None;
            }
            if self.state.compare_exchange(seen, HELD, Acquire, Relaxed).is_err() {
                continue;
            }
            if seen != FREE && !is_mine {
                membarrier::here();
                self.was_taken_away();
            }
            if !self.is_anybody_inside(Acquire) {
                return Some(self.enter(me));
            }
            // Who is inside leaves it free. Should that be done already, nobody would say so to those who saw it held just now.
            self.state.store(FREE, Release);
        }
    }

    fn is_anybody_inside(&self, order: Ordering) -> bool {
        self.inside.iter().any(|inside| inside.load(order))
    }

    /// This thread holds it, and has taken it away from its owner.
    fn was_taken_away(&self) {
        let streak = self.streak.get();
        self.streak.set(Streak {
            needed: streak.needed.saturating_mul(2).min(MOST),
            ..streak
        });
    }

    /// This thread holds it, and owns it from now on if it has had it often enough.
    fn enter(&self, me: usize) -> Guard<'_, T, W> {
        let mut streak = self.streak.get();
        streak.times = if streak.thread == me { streak.times + 1 } else { 1 };
        streak.thread = me;
        let place = (streak.times >= streak.needed).then(|| self.place(me)).flatten();
        if let Some(place) = place {
            streak.times = 0;
            self.inside[place].store(true, Relaxed);
            self.state.store(me + place, Release);
            fence(SeqCst); // between that it was free, which others may have seen, and the look at who waits
        }
        self.streak.set(streak);
        self.guard(place.unwrap_or(PLACES))
    }

    /// This thread's place, if there is one for it.
    fn place(&self, me: usize) -> Option<usize> {
        let of = |whose: usize| self.places.iter().position(|place| place.get() == whose);
        let place = of(me).or_else(|| of(FREE))?;
        self.places[place].set(me);
        Some(place)
    }

    #[inline]
    fn guard(&self, place: usize) -> Guard<'_, T, W> {
        Guard {
            lock: self,
            place,
            _stays: PhantomData,
        }
    }

    /// The owner leaves, or who was it when it came.
    #[inline]
    fn leave(&self, place: usize) {
        self.inside[place].store(false, Release);
        compiler_fence(SeqCst); // with the barrier in `try_otherwise`
        if self.state.load(Relaxed) <= HELD {
            fence(SeqCst); // somebody may have seen it inside, and waits
        }
    }
}

impl<T, W: Waiters> Guard<'_, T, W> {
    /// Drops it, in the path of a short call.
    #[inline(always)]
    pub(crate) fn leave(self) {
        ManuallyDrop::new(self).give_up();
    }

    #[inline(always)]
    fn give_up(&self) {
        let lock = self.lock;
        match self.place {
            0..PLACES => lock.leave(self.place),
            _ => {
                lock.state.store(FREE, Release);
                fence(SeqCst); // as in `leave`
            }
        }
        lock.waiters.tell();
    }
}

impl<T, W: Waiters> Drop for Guard<'_, T, W> {
    #[inline]
    fn drop(&mut self) {
        self.give_up();
    }
}

impl<T, W: Waiters> Deref for Guard<'_, T, W> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this thread has it while the guard lives.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T, W: Waiters> DerefMut for Guard<'_, T, W> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; and the guard is borrowed alone.
        unsafe { &mut *self.lock.value.get() }
    }
}

/// What no other thread that lives has, a multiple of [`PLACES`]: the address of its control block, which a library finds in less time
/// than variables of the thread's.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
#[inline]
fn mark() -> usize {
    const { assert!(PLACES <= 16) };
    let block: usize;
    // SAFETY: it reads the block's first word, which is its address, as the ABI has it; blocks are aligned as `malloc` aligns.
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) block, options(pure, readonly, nostack, preserves_flags));
    }
    block
}

/// What no other thread that lives has, a multiple of [`PLACES`]: an address of this one's.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
#[inline]
fn mark() -> usize {
    thread_local!(static MARK: u64 = const { 0 });
    const { assert!(align_of::<u64>() >= PLACES) };
    MARK.with(|mark| &raw const *mark).addr()
}

/// Threads that can become owners.
const PLACES: usize = 8;

/// How often in a row a thread must have it to become its first owner, and any later one at most.
const FIRST: usize = 16;
const MOST: usize = 1 << 20;
/// How often who waits for moments yields before it sleeps, and for how long.
const YIELDS: u32 = 1000;
const NAP: Duration = Duration::from_micros(50);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Barrier, atomic::AtomicU32};

    fn is_owned<T>(lock: &Biased<T>) -> bool {
        lock.state.load(SeqCst) > HELD
    }

    #[test]
    fn who_takes_it_again_and_again_owns_it_until_another_comes() {
        let lock = Biased::new(0, Nobody);
        let biases = lock.streak.get().needed == FIRST;
        for _ in 0..FIRST {
            *lock.try_lock().unwrap() += 1;
        }
        assert_eq!(is_owned(&lock), biases);
        let guard = lock.try_lock().unwrap();
        assert!(lock.try_lock().is_none(), "nobody is inside twice");
        thread::scope(|scope| {
            let refused = scope.spawn(|| lock.try_lock().is_none()).join().unwrap();
            assert!(refused, "the owner is inside");
        });
        drop(guard);
        assert!(!is_owned(&lock));
        thread::scope(|scope| scope.spawn(|| *lock.lock() += 1).join().unwrap());
        for _ in 0..4 * FIRST {
            *lock.lock() += 1;
        }
        assert_eq!((*lock.lock(), is_owned(&lock)), (FIRST * 5 + 1, biases));
    }

    #[test]
    fn one_at_a_time_has_it_whoever_comes() {
        const ROUNDS: usize = 300;
        let (lock, inside, start) = (Biased::new(0, Nobody), AtomicU32::new(0), Barrier::new(3));
        let run = |burst: usize| {
            start.wait();
            for _ in 0..ROUNDS {
                for _ in 0..burst {
                    let mut value = lock.lock();
                    assert_eq!(inside.fetch_add(1, Relaxed), 0);
                    *value += 1;
                    inside.fetch_sub(1, Relaxed);
                }
            }
        };
        thread::scope(|scope| {
            for burst in [1, 7, 100] {
                scope.spawn(move || run(burst));
            }
        });
        assert_eq!(*lock.lock(), ROUNDS * 108);
    }
}
