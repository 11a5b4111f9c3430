//! Short messages that a caller waits for: with nothing else under way the caller's thread sends and receives them by itself, without
//! the desk, without a job, and without an allocation.

use super::{Engine, Floor, floor::Held, lead::Until};
use crate::{
    exec::{Brief, Fault, Message},
    transport::Wires,
    types::{Error, Result},
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::atomic::Ordering::SeqCst,
};

impl Engine {
    /// Carries out messages, the first of which are done already, as far as that takes a moment: `over` says of each whether it is
    /// over. `None` where some are left; these go the way of all operations then.
    #[inline]
    pub(in crate::comm) fn briefly(
        &self,
        messages: &mut [Message<'_>],
        over: &mut [bool],
    ) -> Option<Result<()>> {
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
        match catch_unwind(AssertUnwindSafe(|| self.go_briefly(floor, messages, over))) {
            Ok(Ok(true)) if floor.links.unsent() => {
                let led = self.lead(floor, None, Until::Idle);
                self.step_back(guard);
                Some(led.map_err(Error::Failed))
            }
            Ok(Ok(true)) => {
                self.step_back_idle(guard);
                Some(Ok(()))
            }
            Ok(Ok(false)) => None,
            Ok(Err(met)) => {
                let (fault, at) = *met;
                let cause = self.fall_by(floor, fault, Some(messages[at].transfer().into()));
                self.step_back(guard);
                Some(Err(Error::Failed(cause)))
            }
            Err(panic) => self.end_by(guard, panic),
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
            let (mut moved, mut left) = (false, false);
            for at in 0..messages.len() {
                let (before, rest) = messages.split_at_mut(at);
                let message = &mut rest[0];
                let waits = || (before.iter().zip(&*over)).any(|(one, over)| !over && message.follows(one));
                if over[at] {
                    continue;
                }
                if left && waits() {
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
                    Brief::NotYet => left = true,
                    Brief::Never => return Ok(false),
                }
            }
            if !left {
                return Ok(true);
            }
            looks = if moved { 0 } else { looks + 1 };
            if !self.may_wait(links, patience, looks) {
                return Ok(false);
            }
        }
    }
}

/// Of more messages it takes too long to find which comes after which.
const MOST: usize = 64;
