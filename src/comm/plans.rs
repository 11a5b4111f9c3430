//! The schedules that a communicator has used lately: each proved before it is run.

use crate::{
    plan::{
        algo::{Algorithm, Request},
        schedule::Schedule,
        verify::verify,
    },
    types::{Collective, Error},
};
use std::{sync::Arc, time::Instant};
use tracing::info;

/// A bounded cache of one rank's schedules, the latest first.
#[derive(Debug, Default)]
pub(super) struct Plans {
    recent: Vec<(Key, Arc<Schedule>)>,
}

type Key = (&'static str, Collective);

impl Plans {
    /// This rank's schedule for `collective` by `algorithm`, which is proved with all other ranks' when it is new; `why`
    /// says what made it be used.
    ///
    /// # Errors
    /// [`Error::Internal`] when the proof fails.
    pub(super) fn get(
        &mut self,
        algorithm: &Algorithm,
        collective: Collective,
        ranks: usize,
        rank: usize,
        why: impl FnOnce() -> String,
    ) -> Result<Arc<Schedule>, Error> {
        let key = (algorithm.name, collective);
        match self.recent.iter().position(|(k, _)| *k == key) {
            Some(0) => {}
            Some(at) => self.recent[..=at].rotate_right(1),
            None => {
                let of = |rank| {
                    (algorithm.build)(&Request {
                        collective,
                        ranks,
                        rank,
                    })
                };
                let began = Instant::now();
                let proof = verify(collective, ranks, of).map_err(|flaw| {
                    Error::internal(format!(
                        "the {} schedule of {} is wrong: {flaw}",
                        algorithm.name,
                        collective.name()
                    ))
                })?;
                info!(
                    rank,
                    ranks,
                    "schedule: {} by {}, {}; proved in {:.1?}: {} steps and {} messages of all ranks",
                    collective.name(),
                    algorithm.name,
                    why(),
                    began.elapsed(),
                    proof.steps,
                    proof.messages,
                );
                let schedule = of(rank);
                self.recent.truncate(CAPACITY - 1);
                self.recent.insert(0, (key, Arc::new(schedule)));
            }
        }
        Ok(Arc::clone(&self.recent[0].1))
    }
}

/// Schedules kept: a broadcast has one for each root.
const CAPACITY: usize = 64;
