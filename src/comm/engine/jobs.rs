//! [`Jobs`]: what goes on by itself, in the order of its calls.

use super::{
    job::{Job, What},
    reasons::Stuck,
};
use crate::{
    exec::{Fault, Progress, Transfers},
    transport::Wires,
    types::{Cause, Operation},
};
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// What goes on by itself: collective calls, and messages to single ranks.
#[derive(Debug)]
pub(super) struct Jobs {
    /// In the order of their calls. Messages leave it as soon as they may begin.
    list: VecDeque<Job>,
    transfers: Transfers,
}

impl Jobs {
    /// None yet, of `rank` among `ranks`.
    pub(super) fn new(rank: usize, ranks: usize) -> Self {
        Jobs {
            list: VecDeque::new(),
            transfers: Transfers::new(rank, ranks),
        }
    }

    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.list.is_empty() && self.transfers.is_idle()
    }

    pub(super) fn extend(&mut self, jobs: impl Iterator<Item = Job>) {
        self.list.extend(jobs);
    }

    /// Moves on what can be moved without waiting: whether anything moved, and whether anything ended. `lanes` are those of a
    /// call that all these come after.
    pub(super) fn poll<W: Wires>(
        &mut self,
        wires: &W,
        mut lanes: u32,
    ) -> Result<(bool, bool), (Fault, Option<Operation>)> {
        let (mut moved, mut ended) = (false, false);
        // Calls begin in their order, and none uses the lanes of an earlier one.
        let mut may_begin = true;
        let mut at = 0;
        while let Some(job) = self.list.get_mut(at) {
            let gate_open = job.may_begin();
            let What::Collective(call) = &mut job.what else {
                if !gate_open {
                    at += 1;
                    continue;
                }
                if let Some(job) = self.list.remove(at) {
                    match job.what {
                        What::Send(peer, sending) => self.transfers.send(peer, sending),
                        What::Receive(posted) => self.transfers.receive(posted),
                        What::Collective(_) => Ok(()),
                    }
                    .map_err(|fault| (fault, None))?;
                }
                (moved, ended) = (true, true);
                continue;
            };
            let begins = may_begin && gate_open && lanes & call.placed.lanes() == 0;
            if !call.has_begun() && !begins {
                may_begin = false;
                at += 1;
                continue;
            }
            lanes |= call.placed.lanes();
            let operation = call.placed.call.into();
            match call.poll(wires).map_err(|fault| (fault, Some(operation)))? {
                Progress::Done => {
                    if let Some(job) = self.list.remove(at) {
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
            let went = self.transfers.poll(wires).map_err(|fault| (fault, None))?;
            (moved, ended) = (moved | went, ended | went);
        }
        Ok((moved, ended))
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
        all.extend(self.list.iter().filter_map(job));
        all.extend(self.transfers.oldest().map(|oldest| Stuck {
            operation: Some(oldest.transfer.into()),
            waits_for: oldest.waits_for,
            waited: elapsed(oldest.since),
        }));
    }

    /// Ends all because of `cause`.
    pub(super) fn fail(&mut self, cause: &Cause) {
        for job in std::mem::take(&mut self.list) {
            job.end(Err(cause.clone()));
        }
        self.transfers.fail(cause);
    }
}

#[cfg(test)]
mod tests;
