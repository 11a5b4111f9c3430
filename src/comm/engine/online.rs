//! `CCL_TUNE=online`: a communicator's first calls of a kind try the algorithms that lead, and the later ones go by the fastest.
//!
//! What rank 0 has decided travels in a broadcast of its own, which all ranks begin before the same call, and is waited for before
//! a later one: by then it has long come where calls wait for each other anyway.

use super::{Collecting, Desk, Engine, Job, What};
use crate::{
    comm::buffers::{self, Places},
    exec::Completion,
    mem::Owned,
    plan::{
        algo::Algorithm,
        cost::{Load, Machine},
        definition,
        forced::Forced,
        trials::{Kind, Next, Trials},
    },
    types::{Collective, DType, Error, Op, Reducing, Result},
};
use std::{
    sync::{Arc, MutexGuard, atomic::Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};
use tracing::info;

/// What is tried, and the decisions that are on their way.
#[derive(Default)]
pub(super) struct Online {
    trials: Trials,
    telling: Vec<Telling>,
}

impl Online {
    /// Whether calls like this one may still get another algorithm.
    pub(super) fn is_open(&self, load: &Load, forced: &Forced) -> bool {
        Trials::kind(load, forced).is_some_and(|kind| self.trials.is_open(&kind))
    }

    /// What calls like this one go by because it was the fastest of several.
    pub(super) fn decided(&self, load: &Load, forced: &Forced) -> Option<&'static Algorithm> {
        self.trials.decided(&Trials::kind(load, forced)?)
    }

    /// A decision that has come, unless it was taken before.
    fn take(&mut self, kind: &Kind) -> Option<Result<usize>> {
        let at = self.telling.iter().position(|telling| telling.kind == *kind)?;
        let told = self.telling.swap_remove(at).decision.into_vec();
        let told = told.and_then(|told| told.first().copied());
        let told = told.ok_or_else(|| Error::internal("a decision has come and is still held"));
        Some(told.map(|told| told as usize))
    }

    /// Counts a call, and says by which algorithm it goes, if not as the model chooses.
    pub(super) fn count(
        &mut self,
        load: &Load,
        machine: &Machine,
        forced: &Forced,
    ) -> Option<&'static Algorithm> {
        let kind = Trials::kind(load, forced)?;
        self.trials.count(kind, load, machine, forced)
    }

    /// A call took so long by an algorithm.
    pub(super) fn note(&mut self, load: &Load, forced: &Forced, algorithm: &str, took: Duration) {
        if let Some(kind) = Trials::kind(load, forced) {
            let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            self.trials.note(&kind, algorithm, nanos);
        }
    }
}

/// A decision on its way.
struct Telling {
    kind: Kind,
    completion: Arc<Completion>,
    decision: Arc<Owned<u32>>,
}

impl Engine {
    /// What has to be done before a call that may be one of those that are tried: a decision is told, or waited for, if the call
    /// `goes_on` by itself until the deadline at most.
    ///
    /// # Errors
    /// [`Error::Usage`] when that has passed.
    pub(super) fn tune<'e>(
        &'e self,
        mut desk: MutexGuard<'e, Desk>,
        load: &Load,
        goes_on: bool,
    ) -> Result<MutexGuard<'e, Desk>> {
        let Some(kind) = Trials::kind(load, &self.forced) else {
            return Ok(desk);
        };
        loop {
            let Some(online) = &mut desk.online else {
                return Ok(desk);
            };
            match online.trials.next(&kind) {
                Next::Go => return Ok(desk),
                Next::Tell => {
                    let decision = online.trials.tell(&kind) as u32;
                    self.tell_decision(desk, kind, decision)?;
                    desk = self.open_desk()?;
                }
                Next::Hear => {
                    let telling = online.telling.iter().find(|telling| telling.kind == kind);
                    let completion = telling.map(|telling| Arc::clone(&telling.completion));
                    let completion =
                        completion.ok_or_else(|| Error::internal("a decision was not waited for"))?;
                    drop(desk);
                    match goes_on {
                        true => self.await_decision(&completion)?,
                        false => self.wait_for(&completion),
                    }
                    self.result(&completion)?;
                    desk = self.open_desk()?;
                    let Some(told) = desk.online.as_mut().and_then(|online| online.take(&kind)) else {
                        continue; // another thread was here
                    };
                    if let Some(online) = &mut desk.online {
                        let name = online.trials.decide(&kind, told?).unwrap_or_default();
                        let (rank, ranks) = (self.membership.rank(), self.membership.ranks());
                        info!(
                            rank,
                            ranks,
                            "tune: {} of about {} bytes by {name} from here on, as rank 0 has measured",
                            load.collective.name(),
                            load.bytes()
                        );
                    }
                    // What calls of this kind were said to go by holds no longer.
                    if let Some(explained) = &mut desk.explained {
                        explained.retain(|other| Trials::kind(other, &self.forced) != Some(kind));
                    }
                }
            }
        }
    }

    /// Waits for a decision while the engine's thread leads. Its broadcast begins after the calls before it, and what opens their
    /// streams may be what the caller is to do next.
    fn await_decision(&self, completion: &Completion) -> Result<()> {
        self.nudge();
        let ended = || self.turns().ended.load(Relaxed);
        let (mut since, mut before, limit) = (Instant::now(), ended(), self.timeout());
        while !completion.is_over() {
            if ended() != before {
                (since, before) = (Instant::now(), ended());
            }
            if since.elapsed() >= limit {
                return Err(Error::usage(format!(
                    "CCL_TUNE=online: what rank 0 has decided did not come, and no call before it ended in {limit:.1?}: programs whose \
                     streams wait for their callers need another CCL_TUNE"
                )));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Begins the broadcast of a decision.
    fn tell_decision(&self, mut desk: MutexGuard<'_, Desk>, kind: Kind, decision: u32) -> Result<()> {
        let decision = Owned::new(vec![decision]);
        let collective = Collective::Broadcast { root: 0 };
        let what = (1, DType::Uint32, Reducing::from(Op::Sum));
        let placed = self.place(&mut desk, collective, what, Places::From([0, 0]))?;
        let completion = Completion::new();
        completion.set_mark(self.recorder.mark(placed.call.seq));
        let (rank, ranks) = (self.membership.rank(), self.membership.ranks());
        let is_used = [
            !definition::input(collective, rank, ranks).is_empty(),
            !definition::output(collective, rank, ranks).is_empty(),
        ];
        let memory = buffers::keep([Some(decision.hold()), Some(decision.hold())], is_used);
        if let Some(online) = &mut desk.online {
            online.telling.push(Telling {
                kind,
                completion: completion.clone(),
                decision,
            });
        }
        let collecting = Collecting::new(placed, memory, completion);
        let what = What::Collective(Box::new(collecting));
        self.post(desk, Job { what, gate: None });
        Ok(())
    }
}

/// How often it is looked whether a decision has come.
const LOOK: Duration = Duration::from_micros(100);
