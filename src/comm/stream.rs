//! [`Stream`]: operations and callbacks, one after the other, while the program goes on.

use super::engine::{Engine, Gate, Start};
use crate::{
    exec::{Completion, Outcome},
    sys::{
        fork,
        thread::{self, Blocked, Promise, spawn_quiet},
    },
    types::{Cause, Error, Result},
};
use std::{
    collections::VecDeque,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        mpsc::{Sender, channel},
    },
};

/// An order for operations that go on by themselves: each begins when the one before it in the stream is over, whichever
/// communicators they are of.
///
/// ```no_run
/// # fn steps(comm: &ccl::Communicator, weights: Vec<f32>, gradients: Vec<f32>) -> ccl::Result<()> {
/// let stream = ccl::Stream::new();
/// let weights = comm.begin().on(&stream).broadcast(weights, 0)?;
/// let gradients = comm.begin().on(&stream).all_reduce(gradients, ccl::Op::Sum)?;
/// stream.synchronize()?;
/// # let _ = (weights.wait(), gradients.wait());
/// # Ok(()) }
/// ```
///
/// Dropping a stream does not end what is in it.
pub struct Stream(Arc<Shared>);

struct Shared {
    /// The process that it is of (see [`fork::generation`]): a forked child finds its locks as other threads had them, and nobody who moves
    /// on what is in it.
    generation: u32,
    queue: Mutex<Queue>,
    /// Held from an operation's getting its place here until it has its place among its communicator's.
    order: Mutex<()>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    entries: VecDeque<Entry>,
    /// The number of the next entry.
    next: u64,
    /// The least of the numbers up to which somebody waits for all to be over.
    awaited: Option<u64>,
    /// The first failure of an operation in the stream.
    failure: Option<Cause>,
    /// Takes callbacks to the thread that runs them.
    callbacks: Option<Sender<Call>>,
}

struct Entry {
    number: u64,
    what: What,
    /// What of it is not over: operations, a callback, a [`Batch`] that may bring more operations.
    left: usize,
}

enum What {
    /// Operations that begin together, and where they are.
    Operations(Arc<Gate>, Vec<Arc<Engine>>),
    Callback(Callback),
    /// It has begun.
    Begun,
}

/// A place in a stream for operations that begin together: when all that was in the stream before is over, and what comes later
/// waits for all of them. It takes operations until it is dropped, and those that have come by then need not wait for that.
pub(crate) struct Batch {
    stream: Arc<Shared>,
    number: u64,
    gate: Arc<Gate>,
}

type Callback = Box<dyn FnOnce(Result<()>) + Send>;

/// A callback whose turn has come.
struct Call {
    number: u64,
    callback: Callback,
    failure: Option<Cause>,
    stream: Arc<Shared>,
}

impl Default for Stream {
    fn default() -> Self {
        Stream::new()
    }
}

impl Stream {
    /// A stream with nothing in it.
    pub fn new() -> Self {
        let _ = fork::watch(); // what fails here fails again, and is told, when a communicator is made
        Stream(Arc::new(Shared {
            generation: fork::generation(),
            queue: Mutex::default(),
            order: Mutex::default(),
            changed: Condvar::new(),
        }))
    }

    /// Waits until all that is in the stream now is over, whatever others add meanwhile.
    ///
    /// # Errors
    /// The first failure of an operation in the stream, from then on each time. [`Error::Usage`] in a child of the process that made
    /// the stream.
    pub fn synchronize(&self) -> Result<()> {
        self.check()?;
        let mut queue = self.0.queue();
        let end = queue.next;
        while queue.is_before(end) {
            queue.awaited = Some(queue.awaited.map_or(end, |other| other.min(end)));
            queue = self.0.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.outcome()
    }

    /// Whether all that is in the stream is over.
    ///
    /// # Errors
    /// As [`Stream::synchronize`].
    pub fn is_over(&self) -> Result<bool> {
        self.check()?;
        let queue = self.0.queue();
        if !queue.entries.is_empty() {
            return Ok(false);
        }
        queue.outcome().map(|()| true)
    }

    /// Runs `callback` after all that is in the stream, on a thread of the stream's own, with the first failure of an
    /// operation in the stream, if there was one. What comes later in the stream waits for it.
    ///
    /// # Errors
    /// [`Error::System`] when the system has no room for that thread. [`Error::Usage`] in a child of the process that made the stream.
    pub fn add_callback(&self, callback: impl FnOnce(Result<()>) + Send + 'static) -> Result<()> {
        self.check()?;
        let mut queue = self.0.queue();
        if queue.callbacks.is_none() {
            queue.callbacks = Some(callback_thread()?);
        }
        let promise = Promise::new();
        queue.push(What::Callback(Box::new(move |outcome| {
            let _kept = promise;
            callback(outcome);
        })));
        self.0.advance(&mut queue);
        Ok(())
    }

    /// Refuses the parent's stream in a forked child.
    pub(super) fn check(&self) -> Result<()> {
        if self.0.generation == fork::generation() {
            return Ok(());
        }
        Err(Error::usage(
            "this stream belongs to the parent process: make a new one after the fork",
        ))
    }

    /// Keeps the calls of other threads out while operations get their places, here and in their communicators: where the two orders
    /// differed operations would wait for each other.
    pub(crate) fn in_order(&self) -> MutexGuard<'_, ()> {
        self.0.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place in the stream for operations that begin together.
    pub(crate) fn batch(&self) -> Batch {
        let gate = Arc::new(Gate::default());
        let mut queue = self.0.queue();
        let number = queue.push(What::Operations(Arc::clone(&gate), Vec::new()));
        self.0.advance(&mut queue);
        Batch {
            stream: Arc::clone(&self.0),
            number,
            gate,
        }
    }

    /// A place in the stream for an operation of `engine`. `at_end` is done as soon as that is over.
    pub(super) fn enter(
        &self,
        engine: &Arc<Engine>,
        at_end: impl FnOnce(&Outcome) + Send + 'static,
    ) -> Start {
        self.batch().enter(engine, at_end)
    }
}

impl Batch {
    /// The same for an operation of `engine`. `at_end` is done as soon as that is over.
    pub(super) fn enter(
        &self,
        engine: &Arc<Engine>,
        at_end: impl FnOnce(&Outcome) + Send + 'static,
    ) -> Start {
        if let Some(entry) = self.stream.queue().entry(self.number) {
            entry.left += 1;
            if let What::Operations(_, engines) = &mut entry.what {
                engines.push(Arc::clone(engine));
            }
        }
        let (stream, number) = (Arc::clone(&self.stream), self.number);
        let hook = move |outcome: &Outcome| {
            at_end(outcome);
            stream.ended(number, outcome.as_ref().err());
        };
        Start {
            gate: Some(Arc::clone(&self.gate)),
            completion: Completion::with_hook(Box::new(hook)),
            attended: false,
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.stream.ended(self.number, None);
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({} entries)", self.0.queue().entries.len())
    }
}

impl Queue {
    fn push(&mut self, what: What) -> u64 {
        let number = self.next;
        self.next += 1;
        self.entries.push_back(Entry {
            number,
            what,
            left: 1,
        });
        number
    }

    /// The entry with this number, if it is not over.
    fn entry(&mut self, number: u64) -> Option<&mut Entry> {
        // Numbers follow one another.
        let at = number.checked_sub(self.entries.front()?.number)?;
        self.entries.get_mut(usize::try_from(at).ok()?)
    }

    /// Whether something before the entry `end` is not over.
    fn is_before(&self, end: u64) -> bool {
        self.entries.front().is_some_and(|first| first.number < end)
    }

    fn outcome(&self) -> Result<()> {
        match &self.failure {
            None => Ok(()),
            Some(cause) => Err(Error::Failed(cause.clone())),
        }
    }
}

impl Shared {
    /// One thing of the entry `number` is over.
    fn ended(self: &Arc<Self>, number: u64, failure: Option<&Cause>) {
        let mut queue = self.queue();
        if let Some(cause) = failure {
            queue.failure.get_or_insert_with(|| cause.clone());
        }
        if let Some(entry) = queue.entry(number) {
            entry.left -= 1;
        }
        self.advance(&mut queue);
    }

    /// Begins the first entry that is not over, if it has not begun.
    fn advance(self: &Arc<Self>, queue: &mut Queue) {
        while queue.entries.front().is_some_and(|entry| entry.left == 0) {
            queue.entries.pop_front();
        }
        if queue.awaited.is_some_and(|end| !queue.is_before(end)) {
            queue.awaited = None;
            self.changed.notify_all();
        }
        let failure = queue.failure.clone();
        let Some(entry) = queue.entries.front_mut() else {
            return;
        };
        match std::mem::replace(&mut entry.what, What::Begun) {
            What::Operations(gate, engines) => {
                gate.open();
                engines.iter().for_each(|engine| engine.nudge());
            }
            What::Callback(callback) => {
                let call = Call {
                    number: entry.number,
                    callback,
                    failure,
                    stream: Arc::clone(self),
                };
                if let Some(callbacks) = &queue.callbacks {
                    // The thread is there as long as the sender.
                    let _ = callbacks.send(call);
                }
            }
            What::Begun => {}
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the thread that runs a stream's callbacks; it ends with the stream.
fn callback_thread() -> Result<Sender<Call>> {
    let (sender, calls) = channel::<Call>();
    // Taken by the thread, which drops it: what a thread is given is not dropped.
    spawn_quiet(c"ccl-callbacks", Some((calls, Blocked::here())), |it| {
        let Some((calls, blocked)) = it.take() else {
            return;
        };
        for call in calls {
            let outcome = call.failure.map_or(Ok(()), |cause| Err(Error::Failed(cause)));
            // What it throws is its own affair; the stream goes on. Dropped it might throw again.
            let callback = || catch_unwind(AssertUnwindSafe(|| (call.callback)(outcome)));
            if let Err(thrown) = thread::as_the_programs(|| blocked.during(callback)) {
                std::mem::forget(thrown);
            }
            call.stream.ended(call.number, None);
        }
    })
    .map_err(|e| Error::system("cannot start a thread for the callbacks of a stream", e))?;
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::panic_any;

    /// As what it starts inherits them.
    #[test]
    fn a_callback_takes_the_signals_that_the_program_takes() {
        let blocked = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let line = status.lines().find(|line| line.starts_with("SigBlk:"));
            line.unwrap().to_owned()
        };
        let (stream, (told, said)) = (Stream::new(), channel());
        for _ in 0..2 {
            let told = told.clone();
            stream
                .add_callback(move |_| told.send(blocked()).unwrap())
                .unwrap();
            assert_eq!(said.recv().unwrap(), blocked());
        }
    }

    #[test]
    fn what_a_callback_throws_may_throw_again() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("dropped");
            }
        }
        let (stream, (told, said)) = (Stream::new(), channel());
        stream.add_callback(|_| panic_any(Bomb)).unwrap();
        stream.add_callback(move |_| told.send(()).unwrap()).unwrap();
        stream.synchronize().unwrap();
        said.recv().unwrap();
    }

    #[test]
    fn a_forked_child_cannot_use_its_parents_stream() {
        let stream = Stream::new();
        let held = stream.0.queue(); // as another thread may have it
        let child = fork::child(|| {
            let outcomes = [
                stream.synchronize(),
                stream.is_over().map(drop),
                stream.add_callback(|_| ()),
            ];
            let is_refused = |outcome: &Result<()>| matches!(outcome, Err(Error::Usage { what }) if what.contains("parent"));
            outcomes.iter().all(is_refused) && Stream::new().synchronize().is_ok()
        });
        let status = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty()).unwrap();
        assert_eq!(status.unwrap().1.exit_status(), Some(0));
        drop(held);
        stream.synchronize().unwrap();
    }
}
