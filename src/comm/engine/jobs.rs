//! [`Jobs`]: what goes on by itself, in the order of its calls.

use super::{
    job::{Job, What},
    reasons::Stuck,
};
use crate::{
    exec::{Brief, Fault, Message, Progress, Transfers},
    transport::Wires,
    types::{Cause, Operation},
};
use smallvec::SmallVec;
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// What goes on by itself: collective calls, and messages to single ranks.
#[derive(Debug)]
pub(super) struct Jobs {
    /// Collective calls, in their order.
    calls: VecDeque<Job>,
    /// Messages that have not begun.
    messages: Vec<Job>,
    transfers: Transfers,
}

/// A fault, and the operation that met it, if it is one.
pub(super) type Met = (Fault, Option<Operation>);

pub(super) fn met(operation: Option<Operation>) -> impl FnOnce(Fault) -> Box<Met> {
    move |fault| Box::new((fault, operation))
}

impl Jobs {
    /// None yet, of `rank` among `ranks`.
    pub(super) fn new(rank: usize, ranks: usize) -> Self {
        Jobs {
            calls: VecDeque::new(),
            messages: Vec::new(),
            transfers: Transfers::new(rank, ranks),
        }
    }

    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.calls.is_empty() && self.messages.is_empty() && self.transfers.is_idle()
    }

    /// Whether something waits for what is not told.
    pub(super) fn watches(&self) -> bool {
        let has_not_begun = |job: &Job| match &job.what {
            What::Collective(call) => !call.has_begun(),
            What::Send(..) | What::Receive(_) => true,
        };
        let mut all = self.calls.iter().chain(&self.messages);
        all.any(|job| job.is_watched() && has_not_begun(job))
    }

    pub(super) fn extend(&mut self, jobs: impl Iterator<Item = Job>) {
        for job in jobs {
            match job.what {
                What::Collective(_) => self.calls.push_back(job),
                What::Send(..) | What::Receive(_) => self.messages.push(job),
            }
        }
    }

    /// Moves on what can be moved without waiting: whether anything moved, and whether anything ended. `lanes` are those of a
    /// call that all these come after.
    pub(super) fn poll<W: Wires>(&mut self, wires: &W, mut lanes: u32) -> Result<(bool, bool), Box<Met>> {
        let begun = self.begin_messages().map_err(met(None))?;
        let (mut moved, mut ended) = (begun, begun);
        let mut at = 0;
        while let Some(job) = self.calls.get_mut(at) {
            let gate_open = job.may_begin();
            let What::Collective(call) = &mut job.what else {
                break;
            };
            // Calls begin in their order, and none uses the lanes of an earlier one.
            let may_begin = gate_open && lanes & call.placed.lanes() == 0;
            if !call.has_begun() && !may_begin {
                break;
            }
            lanes |= call.placed.lanes();
            let operation = call.placed.call.into();
            match call.poll(wires).map_err(met(Some(operation)))? {
                Progress::Done => {
                    if let Some(job) = self.calls.remove(at) {
                        job.end(Ok(None));
                    }
                    (moved, ended) = (true, true);
                }
                progress => {
                    moved |= progress == Progress::Moved;
                    at += 1;
                }
            }
        }
        if !self.transfers.is_idle() {
            let went = self.transfers.poll(wires);
            let went = went.map_err(|fault| self.met_by_message(fault))?;
            (moved, ended) = (moved | went, ended | went);
        }
        Ok((moved, ended))
    }

    /// Finds that a rank sends something else than belongs to a call.
    pub(super) fn check<W: Wires>(&mut self, wires: &W) -> Result<(), Box<Met>> {
        self.calls.iter_mut().try_for_each(|job| match &mut job.what {
            What::Collective(call) => {
                let operation = call.placed.call.into();
                call.check(wires).map_err(met(Some(operation)))
            }
            What::Send(..) | What::Receive(_) => Ok(()),
        })
    }

    /// Sends or receives a message at once, if that can be done; see [`Transfers::briefly`].
    #[inline]
    pub(super) fn briefly<W: Wires>(&mut self, message: &mut Message<'_>, wires: &W) -> Result<Brief, Fault> {
        self.transfers.briefly(message, wires)
    }

    /// Takes in messages that nothing here waits for; whether there were any.
    pub(super) fn hear_all<W: Wires>(&mut self, wires: &W) -> Result<bool, Box<Met>> {
        let heard = self.transfers.hear_all(wires);
        heard.map_err(|fault| self.met_by_message(fault))
    }

    /// A fault, in the oldest message with the rank that a link is to, if there is one.
    fn met_by_message(&self, fault: Fault) -> Box<Met> {
        let transfer = match fault {
            Fault::Wire { peer, .. } => self.transfers.oldest_with(peer),
            _ => None,
        };
        met(transfer.map(Operation::from))(fault)
    }

    /// Begins the messages that may begin; whether there were any.
    fn begin_messages(&mut self) -> Result<bool, Fault> {
        if self.messages.is_empty() {
            return Ok(false);
        }
        // Gates open meanwhile, those of a stream in its order: looked at from the last on, one is open only if all before it are.
        let mut may_begin: SmallVec<[bool; 32]> = self.messages.iter().rev().map(Job::may_begin).collect();
        if !may_begin.contains(&true) {
            return Ok(false);
        }
        let (mut any, mut fault) = (false, None);
        for job in std::mem::take(&mut self.messages) {
            if may_begin.pop() != Some(true) || fault.is_some() {
                self.messages.push(job);
                continue;
            }
            any = true;
            let begun = match job.what {
                What::Send(peer, sending) => self.transfers.send(peer, sending),
                What::Receive(posted) => self.transfers.receive(posted),
                What::Collective(_) => Ok(()),
            };
            fault = begun.err();
        }
        fault.map_or(Ok(any), Err)
    }

    /// Adds what stands still, where `elapsed` says how long.
    pub(super) fn stuck(&self, all: &mut Vec<Stuck>, elapsed: impl Fn(Instant) -> Duration) {
        let job = |job: &Job| {
            let What::Collective(call) = &job.what else {
                return None;
            };
            let (waits_for, since) = call.waits()?;
            Some(Stuck {
                operation: Some(call.placed.call.into()),
                waits_for,
                waited: elapsed(since),
            })
        };
        all.extend(self.calls.iter().filter_map(job));
        all.extend(self.transfers.oldest().map(|oldest| Stuck {
            operation: Some(oldest.transfer.into()),
            waits_for: oldest.waits_for,
            waited: elapsed(oldest.since),
        }));
    }

    /// The loss of a rank that `rank` has seen while messages stood still, of which the oldest speaks for all: in the oldest that is with
    /// the lost one, if there is one.
    pub(super) fn placed(&self, mut cause: Cause, rank: usize) -> Cause {
        if let Cause::Lost {
            rank: gone,
            seen_by,
            during: Some(place),
            ..
        }
        | Cause::Left {
            rank: gone,
            seen_by,
            during: Some(place),
        } = &mut cause
            && *seen_by as usize == rank
            && matches!(place, Operation::Transfer(_))
            && let Some(transfer) = self.transfers.oldest_with(*gone as usize)
        {
            *place = transfer.into();
        }
        cause
    }

    /// The calls that stand still, by number, and how many bytes of their vectors are done with.
    pub(super) fn done(&mut self) -> impl Iterator<Item = (u32, u64)> {
        self.calls.iter_mut().filter_map(|job| match &mut job.what {
            What::Collective(call) => call.done(),
            What::Send(..) | What::Receive(_) => None,
        })
    }

    /// Ends all because of `cause`.
    pub(super) fn fail(&mut self, cause: &Cause) {
        let messages = std::mem::take(&mut self.messages);
        for job in std::mem::take(&mut self.calls).into_iter().chain(messages) {
            job.end(Err(cause.clone()));
        }
        self.transfers.fail(cause);
    }
}

#[cfg(test)]
mod tests;
