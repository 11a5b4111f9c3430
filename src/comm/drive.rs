//! Runs one call to its end: polls the executor, waits by policy, and tells a slow peer from a lost one.

use crate::{
    bootstrap::{Membership, Peer},
    exec::{
        Fault, Progress, Run, Work,
        wait::{Patience, Pause},
    },
    transport::links::Links,
    types::{Call, Cause, Error},
};
use std::{
    hint,
    time::{Duration, Instant},
};

/// Runs `work` until it is done or has failed for all ranks alike.
pub(super) fn drive(
    membership: &Membership,
    links: &Links,
    work: Work<'_>,
    call: Call,
    patience: &mut Patience,
    timeout: impl Fn() -> Duration,
) -> Result<(), Cause> {
    let mut run = Run::new(work);
    patience.refresh();
    let failed = |fault| raise(membership, cause_of(fault, membership.rank() as u32, call));
    loop {
        match run.poll(links).map_err(failed)? {
            Progress::Done => return Ok(()),
            Progress::Moved => {
                patience.refresh();
                continue;
            }
            Progress::Blocked => {}
        }
        let (pause, waited) = patience.next(Instant::now);
        match pause {
            Pause::Spin => {
                hint::spin_loop();
                continue;
            }
            Pause::Yield => std::thread::yield_now(),
            Pause::Sleep(nap) => {
                links.arm();
                // What came before the bell was armed rang no bell: look once more.
                let progress = run.poll(links);
                if matches!(progress, Ok(Progress::Blocked)) && !membership.trouble() {
                    links.sleep(nap);
                }
                links.disarm();
                match progress.map_err(failed)? {
                    Progress::Done => return Ok(()),
                    Progress::Moved => patience.refresh(),
                    Progress::Blocked => {}
                }
            }
        }
        if membership.trouble() || membership.departures() {
            // All that a lost rank had sent came before its loss was seen: take it first.
            match run.poll(links).map_err(failed)? {
                Progress::Done => return Ok(()),
                Progress::Moved => patience.refresh(),
                Progress::Blocked => {
                    if let Some(cause) = failure(membership, &run, &call) {
                        return Err(cause);
                    }
                }
            }
        }
        let limit = timeout();
        if waited >= limit {
            let ranks = run.waits_for().into_iter().map(|rank| rank as u32).collect();
            let seen_by = membership.rank() as u32;
            return Err(membership.raise(Cause::Late {
                ranks,
                seen_by,
                during: call,
                after: limit,
            }));
        }
    }
}

/// Why a blocked run cannot go on, if it cannot.
fn failure(membership: &Membership, run: &Run<'_>, call: &Call) -> Option<Cause> {
    if let Some(verdict) = membership.verdict() {
        return Some(verdict);
    }
    let (seen_by, during) = (membership.rank() as u32, Some(*call));
    for rank in run.waits_for() {
        match membership.peer(rank) {
            Peer::Alive => {}
            Peer::Left => {
                return Some(membership.raise(Cause::Left {
                    rank: rank as u32,
                    seen_by,
                    during,
                }));
            }
            Peer::Dead { how, .. } => {
                return Some(membership.raise(Cause::Lost {
                    rank: rank as u32,
                    how,
                    seen_by,
                    during,
                }));
            }
        }
    }
    // A rank that this one does not wait for directly: those who do may still be served by what it had sent.
    dead(membership, call, GRACE)
}

/// The loss of any rank, for a call that has not begun.
pub(super) fn any_dead(membership: &Membership, call: &Call) -> Option<Cause> {
    dead(membership, call, Duration::ZERO)
}

/// The loss of a rank that was seen at least `grace` ago.
fn dead(membership: &Membership, call: &Call, grace: Duration) -> Option<Cause> {
    (0..membership.ranks()).find_map(|rank| match membership.peer(rank) {
        Peer::Dead { how, since } if since.elapsed() >= grace => {
            let (seen_by, during) = (membership.rank() as u32, Some(*call));
            Some(membership.raise(Cause::Lost {
                rank: rank as u32,
                how,
                seen_by,
                during,
            }))
        }
        _ => None,
    })
}

/// Raises what went wrong here, and returns what all ranks report.
///
/// That a peer is in another call may only follow from an earlier difference between their calls, which a third rank
/// sees at first hand: it is given time to say so.
fn raise(membership: &Membership, cause: Cause) -> Cause {
    if let Cause::Mismatch {
        here: (_, ours),
        there: (_, theirs),
    } = &cause
        && ours.seq != theirs.seq
    {
        let patience = Instant::now() + GRACE;
        while membership.verdict().is_none() && Instant::now() < patience {
            std::thread::sleep(GRACE / 50);
        }
    }
    membership.raise(cause)
}

/// What all ranks are told of a fault that this rank's executor met.
fn cause_of(fault: Fault, rank: u32, call: Call) -> Cause {
    match fault {
        Fault::Mismatch { peer, header } => match Call::from_signature(header) {
            Some(theirs) => Cause::Mismatch {
                here: (rank, call),
                there: (peer as u32, theirs),
            },
            None => Cause::Broken {
                rank: peer as u32,
                what: format!("it sent rank {rank} a message of no known call"),
            },
        },
        Fault::Length { peer, got, want } => Cause::Broken {
            rank: peer as u32,
            what: format!(
                "it sent rank {rank} {got} bytes where {call} has {want}: the ranks' schedules differ"
            ),
        },
        Fault::Wire {
            error: Error::Failed(cause),
            ..
        } => cause,
        Fault::Wire { peer, error } => Cause::Broken {
            rank,
            what: format!("its link to rank {peer} failed in {call}: {error}"),
        },
    }
}

/// How long those that know of a failure only indirectly leave it to the others: after a rank's death the ranks that do
/// not wait for it, and after a difference of calls those that see only its consequences.
const GRACE: Duration = Duration::from_millis(250);
