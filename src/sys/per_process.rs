//! [`PerProcess`]: a process-wide value that a forked child forgets.

use super::fork;
use std::{
    ptr,
    sync::atomic::{
        AtomicPtr, AtomicU32,
        Ordering::{Acquire, Relaxed, Release},
    },
    thread,
};

/// A value made on first need and kept for the life of the process. A forked child finds the place empty and may make
/// a value of its own; the parent's is kept there, never dropped. No lock is held while another thread could fork,
/// so a child cannot find one held.
pub(crate) struct PerProcess<T> {
    /// The generation (see [`fork::generation`]) that the rest is about, times 4, plus one of the three states.
    state: AtomicU32,
    value: AtomicPtr<Kept<T>>,
}

/// A value, and that of the process that forked this one: nobody uses it, but leak checkers shall find it.
struct Kept<T> {
    value: T,
    _before: *mut Kept<T>,
}

impl<T: Send + Sync> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        PerProcess {
            state: AtomicU32::new(EMPTY),
            value: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// This process's value, if it was made.
    #[inline]
    pub(crate) fn get(&self) -> Option<&'static T> {
        (self.state.load(Acquire) == here() | READY).then(|| {
            // SAFETY: READY of this generation was stored with Release after `value` came from a leaked box, which is
            // never freed and from then on only shared; `T: Sync`.
            unsafe { &(*self.value.load(Relaxed)).value }
        })
    }

    /// This process's value, made by `make` if there is none yet. Other threads that ask meanwhile wait, so `make` is
    /// to be short; when it fails, the next caller tries again.
    pub(crate) fn get_or_try_init<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&'static T, E> {
        let wait = || {
            thread::yield_now();
            true
        };
        match self.get_or_try_init_while(wait, make) {
            Some(made) => made,
            None => unreachable!("it waits for as long as it takes"),
        }
    }

    /// The same where `make` may take long. `wait` lets some time pass while another thread makes it, and says whether to go on:
    /// else there is `None`.
    pub(crate) fn get_or_try_init_while<E>(
        &self,
        wait: impl Fn() -> bool,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Option<Result<&'static T, E>> {
        loop {
            if let Some(value) = self.get() {
                return Some(Ok(value));
            }
            let seen = self.state.load(Relaxed);
            if seen == here() | BUSY {
                if !wait() {
                    return None;
                }
            } else if seen != here() | READY
                && self
                    .state
                    .compare_exchange(seen, here() | BUSY, Acquire, Relaxed)
                    .is_ok()
            {
                break;
            }
        }
        Some(match make() {
            Ok(value) => {
                let _before = self.value.load(Relaxed);
                let kept = Box::leak(Box::new(Kept { value, _before }));
                self.value.store(kept, Relaxed);
                self.state.store(here() | READY, Release); // pairs with the Acquire in `get`
                Ok(&kept.value)
            }
            Err(e) => {
                self.state.store(here() | EMPTY, Release);
                Err(e)
            }
        })
    }
}

fn here() -> u32 {
    fork::generation() << 2
}

const EMPTY: u32 = 0;
const BUSY: u32 = 1;
const READY: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_will_not_wait_for_another_thread_gets_none() {
        static SLOT: PerProcess<u32> = PerProcess::new();
        let made = SLOT.get_or_try_init(|| {
            let other = thread::spawn(|| SLOT.get_or_try_init_while(|| false, || Err("no")));
            assert_eq!(other.join().unwrap(), None);
            Ok::<_, ()>(7)
        });
        assert_eq!(made, Ok(&7));
    }

    #[test]
    fn one_value_for_all_threads() {
        static SLOT: PerProcess<u32> = PerProcess::new();
        assert!(SLOT.get().is_none());
        assert_eq!(SLOT.get_or_try_init(|| Err("no")), Err("no"));
        let made = AtomicU32::new(0);
        thread::scope(|s| {
            for _ in 0..8 {
                s.spawn(|| SLOT.get_or_try_init(|| Ok::<_, ()>(made.fetch_add(1, Relaxed) + 7)));
            }
        });
        assert_eq!(SLOT.get(), Some(&7));
        assert_eq!(SLOT.get_or_try_init_while(|| false, || Err("no")), Some(Ok(&7)));
        assert_eq!(made.load(Relaxed), 1);
    }
}
