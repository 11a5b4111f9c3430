//! Short messages that a caller waits for: with nothing else under way the caller's thread sends and receives them by itself, without
//! the desk, without a job, and without an allocation.

use super::{AtOnce, Engine, Floor, Job, Start, floor::Held, lead::Until};
use crate::{
    exec::{Brief, Completion, Fault, Message},
    mem::Lender,
    record::End,
    transport::Wires,
    types::{Error, Result},
};
use smallvec::SmallVec;
use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, atomic::Ordering::SeqCst},
};

impl Engine {
    /// Carries out messages, the first of which are done already, as far as that takes a moment: `over` says of each whether it is
    /// over. `None` where some are left; these go the way of all operations then.
    #[inline]
    pub(in crate::comm) fn briefly(&self, messages: &mut [Message<'_>], over: &mut [bool]) -> AtOnce {
        if messages.len() > MOST || !self.membership.is_here() || self.recorder.is_traced() {
            return None;
        }
        let mut guard = self.try_floor()?;
        let floor = &mut *guard;
        let is_wanted = self.mail.load(SeqCst) || !floor.is_idle();
        let is_over = self.finalized.load(SeqCst) || self.closed.get().is_some() || self.membership.trouble();
        if is_wanted || is_over {
            return None;
        }
        let go = || match self.go_briefly(floor, messages, over) {
            Ok(true) if floor.links.unsent() => self.lead(floor, None, Until::Sent).map(|()| true),
            Ok(is_over) => Ok(is_over),
            Err(met) => {
                let ((fault, at), recorder) = (*met, &self.recorder);
                let transfer = messages[at].transfer();
                let mark = recorder.message(&transfer);
                let cause = self.fall_by(floor, fault, Some(transfer.into()));
                mark.end(End::of::<()>(&Err(cause.clone())));
                Err(cause)
            }
        };
        match catch_unwind(AssertUnwindSafe(go)) {
            Ok(Ok(true)) => {
                self.step_back_idle(guard);
                Some(Ok(()))
            }
            Ok(Ok(false)) => None,
            Ok(Err(cause)) => {
                self.step_back(guard);
                Some(Err(Box::new(Error::Failed(cause))))
            }
            Err(panic) => self.end_by(guard, panic),
        }
    }

    /// Begins messages that the caller waits for, each with its completion. If nobody else leads the caller does, until all are over.
    ///
    /// # Errors
    /// Why nothing has begun.
    pub(in crate::comm) fn attend<'m>(
        &self,
        lender: &Lender<'m>,
        messages: &[(&Message<'m>, Arc<Completion>)],
    ) -> Result<()> {
        self.membership.check()?;
        self.accepts()?;
        let job = |(message, completion): &(&Message<'m>, Arc<Completion>)| {
            let start = Start::now(Arc::clone(completion), true);
            match **message {
                Message::Send { to, tag, dtype, data } => {
                    self.sending(lender.lend(data), dtype, (to, tag), start)
                }
                Message::Receive { wanted, data, .. } => self.receiving(lender.lend(data), wanted, start),
            }
        };
        let jobs: SmallVec<[Job; 2]> = messages.iter().map(job).collect();
        match self.try_floor() {
            // Who led may have closed it since, and the links take nothing of callers' then.
            Some(mut floor) if floor.is_idle() && !self.mail.load(SeqCst) && self.closed.get().is_none() => {
                let lead = || self.lead_these(&mut floor, jobs, messages);
                if catch_unwind(AssertUnwindSafe(lead)).is_err() {
                    self.break_down(&mut floor);
                    // Those that the floor did not have yet.
                    let cause = self.closed().cloned();
                    let ended = cause
                        .iter()
                        .flat_map(|cause| messages.iter().map(move |(_, one)| (one, cause)));
                    ended.for_each(|(one, cause)| one.finish(Err(cause.clone())));
                }
                self.step_back(floor);
                Ok(())
            }
            floor => {
                drop(floor);
                self.hand_over(jobs)
            }
        }
    }

    /// How that went the completions tell.
    fn lead_these(
        &self,
        floor: &mut Floor,
        jobs: SmallVec<[Job; 2]>,
        messages: &[(&Message<'_>, Arc<Completion>)],
    ) {
        let ready = jobs.iter().filter_map(Job::lent).try_for_each(|(memory, to)| {
            let ready = floor.links.get_ready(memory.each_ref(), to);
            ready.map_err(|(peer, error)| Fault::Wire { peer, error })
        });
        floor.jobs.extend(jobs.into_iter());
        if let Err(fault) = ready {
            self.fall_by(floor, fault, None);
        }
        let open = messages.iter().filter(|(_, completion)| !completion.is_over());
        for (_, completion) in open {
            if self.lead(floor, None, Until::Over(completion)).is_err() {
                return; // all are over
            }
        }
    }

    /// Posts jobs for whoever leads.
    fn hand_over(&self, jobs: SmallVec<[Job; 2]>) -> Result<()> {
        match self.open_desk() {
            Ok(mut desk) => {
                desk.incoming.extend(jobs);
                self.mail.store(true, SeqCst);
                self.turns().left.store(true, SeqCst);
                Ok(())
            }
            Err(error) => {
                jobs.into_iter().for_each(|job| job.end(Ok(None)));
                Err(error)
            }
        }
    }

    #[cold]
    fn end_by(&self, mut floor: Held<'_>, panic: Box<dyn std::any::Any + Send>) -> ! {
        self.break_down(&mut floor);
        self.step_back(floor);
        resume_unwind(panic)
    }

    /// See [`Engine::briefly`]: whether all are over, or which has met a fault.
    #[inline]
    fn go_briefly(
        &self,
        floor: &mut Floor,
        messages: &mut [Message<'_>],
        over: &mut [bool],
    ) -> std::result::Result<bool, Box<(Fault, usize)>> {
        let Floor {
            links,
            patience,
            jobs,
            ..
        } = floor;
        patience.refresh();
        let mut looks = 0;
        loop {
            let (mut moved, mut left) = (false, None);
            for at in 0..messages.len() {
                let (before, rest) = messages.split_at_mut(at);
                let message = &mut rest[0];
                let waits = || (before.iter().zip(&*over)).any(|(one, over)| !over && message.follows(one));
                if over[at] {
                    continue;
                }
                if left.is_some() && waits() {
                    continue;
                }
                match jobs
                    .briefly(message, links)
                    .map_err(|fault| Box::new((fault, at)))?
                {
                    Brief::Done => {
                        self.recorder.message_lately(&message.transfer());
                        (over[at], moved) = (true, true);
                    }
                    Brief::NotYet => _ = left.get_or_insert(at),
                    Brief::Never => return Ok(false),
                }
            }
            let Some(left) = left else {
                return Ok(true);
            };
            looks = if moved { 0 } else { looks + 1 };
            // Who is waited for may have no room before others' messages are taken in.
            if looks % LISTEN_EVERY == LISTEN_EVERY - 1 {
                let heard = jobs.hear_all(links).map_err(|met| Box::new((met.0, left)))?;
                looks = if heard { 0 } else { looks };
            }
            if !self.may_wait(links, patience, looks) {
                return Ok(false);
            }
        }
    }
}

/// Fruitless looks after which it is looked what all ranks have sent.
const LISTEN_EVERY: u32 = 64;

/// Of more messages it takes too long to find which comes after which.
const MOST: usize = 64;
