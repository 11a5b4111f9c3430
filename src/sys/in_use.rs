//! [`Here::hold`]: says that this thread uses something, without a locked instruction.
//!
//! Each thread has a line of memory in which it says what it uses. Who wants to do away with that marks it first, so that nobody
//! begins to use it any more, and looks at all lines then ([`is_held`]); who leaves looks at the mark. One of the two sees the
//! other's store: who does away with it makes the barrier for both ([`membarrier::here`]).

use super::membarrier;
use std::{
    cell::Cell,
    marker::PhantomData,
    ptr,
    sync::atomic::{
        AtomicBool, AtomicPtr,
        Ordering::{Acquire, Relaxed, Release, SeqCst},
        compiler_fence,
    },
};

/// That a thread uses something, until [`Held::leave`].
pub(crate) struct Held(&'static Line);

/// What a thread uses. Lines are kept for threads to come.
#[repr(align(64))]
struct Line {
    what: AtomicPtr<()>,
    is_taken: AtomicBool,
    next: Option<&'static Line>,
}

/// All lines.
static LINES: AtomicPtr<Line> = AtomicPtr::new(ptr::null_mut());

thread_local! {
    /// This thread's, once it has one and until it ends.
    static MINE: Cell<Option<&'static Line>> = const { Cell::new(None) };
    /// Gives it back.
    static RETURN: Return = const { Return };
}

struct Return;

impl Drop for Return {
    fn drop(&mut self) {
        if let Some(line) = MINE.take() {
            line.is_taken.store(false, Release);
        }
    }
}

impl Held {
    /// This thread does not use it any more; it then looks whether that was marked meanwhile.
    #[inline]
    pub(crate) fn leave(&self) {
        self.0.what.store(ptr::null_mut(), Release);
        compiler_fence(SeqCst); // with the barrier in `is_held`
    }
}

/// Where this thread says what it uses. To find that takes a function that is in the path of each short call longer than all that is
/// done with it, so that it is found once, beside the thread's other variables.
pub(crate) struct Here(Option<&'static Line>, PhantomData<*const ()>);

impl Here {
    #[inline(always)] // in the path of each short call
    pub(crate) fn new() -> Here {
        Here(MINE.get(), PhantomData)
    }

    /// This thread uses `what`; it then looks whether that is marked. `None` where it uses something already, and where the kernel
    /// makes no such barriers.
    #[inline(always)] // in the path of each short call
    pub(crate) fn hold<T>(self, what: &T) -> Option<Held> {
        let line = self.0.or_else(line)?;
        if !line.what.load(Relaxed).is_null() {
            return None;
        }
        line.what.store(ptr::from_ref(what).cast_mut().cast(), Relaxed);
        compiler_fence(SeqCst); // with the barrier in `is_held`
        Some(Held(line))
    }
}

/// Whether a thread uses `what`, which is marked: who does not by now will see that.
pub(crate) fn is_held<T>(what: &T) -> bool {
    if lines().next().is_none() {
        return false;
    }
    membarrier::here();
    lines().any(|line| ptr::eq(line.what.load(Acquire).cast_const().cast(), what))
}

fn lines() -> impl Iterator<Item = &'static Line> {
    // SAFETY: NULL or a line that was leaked; written before it was stored there with Release.
    let first = unsafe { LINES.load(Acquire).as_ref() };
    std::iter::successors(first, |line| line.next)
}

/// A line for this thread.
#[cold]
fn line() -> Option<&'static Line> {
    if !membarrier::register_here() || RETURN.try_with(|_| ()).is_err() {
        return None;
    }
    let is_mine = |line: &&Line| {
        line.is_taken
            .compare_exchange(false, true, Acquire, Relaxed)
            .is_ok()
    };
    let line = lines().find(is_mine).unwrap_or_else(new_line);
    MINE.set(Some(line));
    Some(line)
}

fn new_line() -> &'static Line {
    let line = Box::leak(Box::new(Line {
        what: AtomicPtr::new(ptr::null_mut()),
        is_taken: AtomicBool::new(true),
        next: None,
    }));
    let mut first = LINES.load(Acquire);
    loop {
        // SAFETY: as in `lines`.
        line.next = unsafe { first.as_ref() };
        match LINES.compare_exchange(first, line, Release, Acquire) {
            Ok(_) => return line,
            Err(now) => first = now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn what_a_thread_uses_is_seen_until_it_leaves() {
        let (one, other) = (1, 2);
        let held = Here::new().hold(&one);
        assert_eq!(held.is_some(), membarrier::register_here());
        assert_eq!((is_held(&one), is_held(&other)), (held.is_some(), false));
        assert!(
            Here::new().hold(&other).is_none() || held.is_none(),
            "one at a time"
        );
        thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(
                    Here::new().hold(&other).inspect(Held::leave).is_some(),
                    held.is_some()
                )
            });
        });
        held.inspect(Held::leave);
        assert!(!is_held(&one) && !is_held(&other));
    }

    #[test]
    fn threads_that_follow_one_another_share_a_line() {
        let places = || {
            thread::spawn(|| {
                Here::new()
                    .hold(&LINES)
                    .inspect(Held::leave)
                    .map(|held| ptr::from_ref(held.0).addr())
            })
            .join()
            .unwrap()
        };
        let used: std::collections::HashSet<_> = (0..100).map(|_| places()).collect();
        assert!(used.len() < 50, "{} lines", used.len());
    }
}
