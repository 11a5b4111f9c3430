//! [`Communicator::init_all`]: all ranks in one process.

use super::{Communicator, Config};
use crate::{
    bootstrap::UniqueId,
    types::{Error, Result, check_ranks},
};
use std::{
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
        let (id, config) = (UniqueId::local()?, Config::default());
        // Of the first rank that failed. The others only learn that.
        let failure = Mutex::new(None);
        let fail = |error: Error| {
            let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
            if failure.is_none() {
                // Without a control thread nobody waits for the meeting either.
                let _ = id.adjourn(format!("another rank of this process failed: {error}"));
                *failure = Some(error);
            }
        };
        let join = |rank| Communicator::init(ranks, &id, rank, &config).map_err(&fail).ok();
        let made: Vec<Option<Communicator>> = thread::scope(|scope| {
            let begin = |rank| {
                let join = &join;
                let begun = thread::Builder::new().spawn_scoped(scope, move || join(rank));
                begun
                    .map_err(|e| fail(Error::system(format!("cannot start a thread for rank {rank}"), e)))
                    .ok()
            };
            // All have begun, or one has failed, before the first is waited for.
            let threads: Vec<_> = (0..ranks).map_while(begin).collect();
            threads.into_iter().map(|thread| thread.join().ok()?).collect()
        });
        let failure = failure.into_inner().unwrap_or_else(PoisonError::into_inner);
        let made: Option<Vec<_>> = made.into_iter().collect();
        match (failure, made) {
            (Some(error), _) => Err(error),
            (None, Some(made)) if made.len() == ranks => Ok(made),
            _ => Err(Error::internal("a thread that made a rank panicked")),
        }
    }
}
