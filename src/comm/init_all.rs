//! Communicators that one process makes side by side: [`Communicator::init_all`], and what groups of the C ABI make.

use super::{Communicator, Config};
#[cfg(feature = "cuda")]
use crate::cuda::devices;
use crate::{
    bootstrap::UniqueId,
    sys::thread::stack,
    types::{Error, Result, check_ranks},
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    slice,
    sync::{Mutex, PoisonError},
    thread,
};

impl Communicator {
    /// Makes a communicator whose `ranks` ranks are all in this process, with the default settings; returns them by rank.
    ///
    /// An operation needs all of them, so that each rank calls it on a thread of its own.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a number of ranks that cannot be; otherwise as [`Communicator::init`]. Then there is none.
    pub fn init_all(ranks: usize) -> Result<Vec<Communicator>> {
        check_ranks(ranks)?;
        let config = Config::of_this_thread();
        all_with(ranks, |_| Ok(config.clone()))
    }

    /// The same, where rank k works with the CUDA device number `devices[k]`; several may work with one.
    ///
    /// # Errors
    /// As [`Communicator::init_all`]; [`Error::Invalid`] for a device that is not there; [`Error::Usage`] where none is;
    /// [`Error::Cuda`].
    #[cfg(feature = "cuda")]
    pub fn init_all_on(devices: &[i32]) -> Result<Vec<Communicator>> {
        check_ranks(devices.len())?;
        devices::check(devices)?;
        all_with(devices.len(), |rank| {
            devices::make_current(devices[rank])?;
            Ok(Config::of_this_thread())
        })
    }
}

/// Makes a communicator of so many ranks with the settings that `config` says of each on a thread of its own.
fn all_with(ranks: usize, config: impl Fn(usize) -> Result<Config> + Sync) -> Result<Vec<Communicator>> {
    let id = UniqueId::local()?;
    let join = |rank| {
        let (id, config) = (&id, &config);
        move || Communicator::init(ranks, id, rank, &config(rank)?)
    };
    together(slice::from_ref(&id), (0..ranks).map(join))
}

/// Does each of `makings`, which may wait for one another, on a thread of its own; returns what they made, in their order. If
/// one fails all are given up: those of the meetings of `ids` that are in this process end, so that nobody waits there for
/// ranks that will not come.
///
/// # Errors
/// The first failure; others may be no more than its consequences.
///
/// # Panics
/// As a making does.
pub(crate) fn together<T: Send, M: FnOnce() -> Result<T> + Send>(
    ids: &[UniqueId],
    makings: impl IntoIterator<Item = M>,
) -> Result<Vec<T>> {
    let failure = Mutex::new(None);
    let fail = |error: Error| {
        let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
        if failure.is_none() {
            give_up(ids, &error);
            *failure = Some(error);
        }
    };
    let made: Vec<Option<T>> = thread::scope(|scope| {
        let begin = |making: M| {
            let fail = &fail;
            let make = move || {
                let made = catch_unwind(AssertUnwindSafe(making));
                let made = made.unwrap_or_else(|panic| {
                    fail(Error::internal("the making of a communicator panicked"));
                    resume_unwind(panic)
                });
                made.map_err(fail).ok()
            };
            let begun = thread::Builder::new()
                .stack_size(stack())
                .spawn_scoped(scope, make);
            let none = |e| {
                fail(Error::system(
                    "cannot start a thread that makes a communicator",
                    e,
                ))
            };
            begun.map_err(none).ok()
        };
        // All have begun, or one has failed, before the first is waited for.
        let threads: Vec<_> = makings.into_iter().map_while(begin).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(made.into_iter().flatten().collect()),
    }
}

/// Ends the meetings of `ids` that are in this process, as `error` keeps it from making their communicators.
pub(crate) fn give_up<'a>(ids: impl IntoIterator<Item = &'a UniqueId>, error: &Error) {
    for id in ids {
        // Without a control thread nobody waits for the meeting either.
        let _ = id.adjourn(format!("the process where the ranks meet gave up: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn those_that_wait_for_one_that_failed_end() {
        let ids = [UniqueId::local().unwrap(), UniqueId::local().unwrap()];
        let config = Config {
            timeout: Some(Duration::from_secs(60)),
            ..Config::default()
        };
        let make = |k: usize| match ids.get(k) {
            Some(id) => Communicator::init(3, id, 0, &config).map(drop),
            None => Err(Error::usage("not this one")),
        };
        let making = |k| move || make(k);
        let error = together(&ids, [0, 1, 2].map(making)).unwrap_err().to_string();
        assert!(error.contains("not this one"), "{error}");
        // Who comes late is told, too.
        let error = make(1).unwrap_err().to_string();
        assert!(
            error.contains("gave up: ") && error.contains("not this one"),
            "{error}"
        );
    }
}
