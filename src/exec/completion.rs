//! [`Completion`]: how an operation that goes on by itself ended.

use crate::{
    record::{End, Mark},
    types::{Cause, DType},
};
use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
};

/// What a receive got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// The rank that sent it.
    pub source: usize,
    /// The tag it was sent with.
    pub tag: i32,
    /// Elements.
    pub count: usize,
    /// Their type.
    pub dtype: DType,
}

/// How an operation ended; receives say what they got.
pub(crate) type Outcome = Result<Option<Received>, Cause>;

/// Done once with the outcome, by whoever finds the operation ended.
pub(crate) type Hook = Box<dyn FnOnce(&Outcome) + Send>;

/// How an operation ended, once it has. Others may ask while it runs.
#[derive(Default)]
pub(crate) struct Completion {
    /// Where its end is recorded.
    mark: OnceLock<Mark>,
    over: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    outcome: Option<Outcome>,
    hook: Option<Hook>,
}

impl Completion {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The same, with something to be done at the end.
    pub(crate) fn with_hook(hook: Hook) -> Arc<Self> {
        let inner = Mutex::new(Inner {
            outcome: None,
            hook: Some(hook),
        });
        Arc::new(Completion {
            inner,
            ..Completion::default()
        })
    }

    /// Has the end recorded there.
    pub(crate) fn set_mark(&self, mark: Mark) {
        let _ = self.mark.set(mark); // an operation has one
    }

    /// The operation begins, and has waited so far.
    pub(crate) fn begins(&self) {
        if let Some(mark) = self.mark.get() {
            mark.begins();
        }
    }

    /// Whether the operation has ended: nobody touches its memory any more.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        // Pairs with the Release in `finish`: what the operation wrote is there.
        self.over.load(Acquire)
    }

    /// How it ended, if it has.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        if !self.is_over() {
            return None;
        }
        self.lock().outcome.clone()
    }

    /// The operation has ended and all that it held is given back. Later outcomes change nothing. Who waits for the end finds
    /// the hook done.
    pub(crate) fn finish(&self, outcome: Outcome) {
        let mut inner = self.lock();
        if inner.outcome.is_some() {
            return;
        }
        let hook = inner.hook.take();
        if let Some(mark) = self.mark.get() {
            mark.end(End::of(&outcome));
        }
        inner.outcome = Some(outcome.clone());
        drop(inner);
        if let Some(hook) = hook {
            hook(&outcome);
        }
        self.over.store(true, Release);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Completion({:?})", self.outcome())
    }
}
