//! Why something that stands still has no hope: tells a slow peer from a lost one, and who is late.

use super::past;
use crate::{
    bootstrap::{GO_ROUND, GRACE, LONGEST_APART, Membership, Peer, Waits},
    exec::Fault,
    sys::tcp,
    transport::{Wires, links::Links},
    types::{Call, Cause, Error, Operation, Transfer},
};
use std::time::{Duration, Instant};

/// Something that stands still.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stuck {
    /// What it is. `None`: messages of calls that are over.
    pub(super) operation: Option<Operation>,
    /// The ranks without which it does not go on.
    pub(super) waits_for: Vec<usize>,
    /// How long it has stood still.
    pub(super) waited: Duration,
}

/// Why something cannot go on, if it cannot.
pub(super) fn failure(membership: &Membership, links: &Links, stuck: &Stuck) -> Option<Cause> {
    let Stuck {
        operation,
        waits_for,
        waited,
    } = stuck;
    if let Some(verdict) = membership.verdict() {
        return Some(verdict);
    }
    let (seen_by, during) = (membership.rank() as u32, *operation);
    let ends = || operation.is_some() && matches!(membership.peer(membership.rank()), Peer::Left { .. });
    let gone = |&rank: &usize| match membership.peer(rank) {
        Peer::Alive => None,
        Peer::Left { .. } if ends() => Some(Cause::Broken {
            rank: seen_by,
            what: ENDS.to_owned(),
        }),
        Peer::Left { made, .. } => {
            let differs = match (during, made) {
                (Some(Operation::Collective(ours)), Some(made)) => {
                    past::other_at_last(membership, ours, (rank, made))
                }
                _ => None,
            };
            Some(differs.unwrap_or(Cause::Left {
                rank: rank as u32,
                seen_by,
                during,
            }))
        }
        Peer::Dead { how, .. } => Some(Cause::Lost {
            rank: rank as u32,
            how,
            seen_by,
            during,
        }),
    };
    // Its process may have ended, or it has left, of which word may still be on its way.
    let cut_off = |&rank: &usize| {
        let (how, since) = links.trouble(rank)?;
        (since.elapsed() >= CUT_OFF).then_some(Cause::Lost {
            rank: rank as u32,
            how,
            seen_by,
            during,
        })
    };
    // A rank that this one does not wait for directly: those who do may still be served by what it had sent, and as long
    // as something moves here they are.
    let long_dead = || {
        (*waited >= GRACE)
            .then(|| long_dead(membership, *operation))
            .flatten()
    };
    // Who has not got what was lost may be waited for by those that this rank waits for.
    let without = || {
        let is_alive = |&rank: &usize| matches!(membership.peer(rank), Peer::Alive);
        links.lost_to().filter(is_alive).find_map(|rank| cut_off(&rank))
    };
    let cut_off = || waits_for.iter().find_map(cut_off);
    // A receive from any rank waits for nobody alone.
    let is_any = matches!(
        operation,
        Some(Operation::Transfer(Transfer::Recv { from: None, .. }))
    );
    let all_gone = || {
        if !is_any || !waits_for.is_empty() {
            return None;
        }
        let mut last = None;
        let may_bring_more =
            |rank, since| links.may_bring_more(rank) && silence(links, stuck, (rank, since)) < UNDER_WAY;
        for rank in (0..membership.ranks()).filter(|&rank| rank != membership.rank()) {
            match membership.peer(rank) {
                // One that has not ended makes it none.
                Peer::Alive => return None,
                // What one had sent may still be on its way: then that is the one to be told of.
                Peer::Left { since, .. } | Peer::Dead { since, .. } => {
                    last = last.max(Some((may_bring_more(rank, since), since, rank)));
                }
            }
        }
        gone(&last?.2)
    };
    waits_for
        .iter()
        .find_map(gone)
        .or_else(all_gone)
        .or_else(long_dead)
        .or_else(cut_off)
        .or_else(without)
}

/// What is told of `cause`, for which something is given up: who left may have done so because it saw another one's end.
pub(super) fn first_of(membership: &Membership, cause: Cause) -> Cause {
    match cause {
        Cause::Left { during, .. } => membership.dead_for(Duration::ZERO, during).unwrap_or(cause),
        cause => cause,
    }
}

/// Whether what the rank that `cause` is about had sent to what is `stuck` may still come: by TCP it may be overtaken by word of its
/// end. The end of its connections tells that there is no more.
pub(super) fn under_way(membership: &Membership, links: &Links, stuck: &Stuck, cause: &Cause) -> bool {
    let (Cause::Left { rank, .. } | Cause::Lost { rank, .. }) = *cause else {
        return false;
    };
    let rank = rank as usize;
    let (since, made) = match membership.peer(rank) {
        Peer::Alive => return false,
        Peer::Left { since, made } => (since, made),
        Peer::Dead { since, .. } => (since, None),
    };
    let most = match (stuck.operation, made) {
        (Some(Operation::Collective(ours)), Some(made)) if is_among(made.calls, ours.seq) => sent_again(),
        _ => UNDER_WAY,
    };
    membership.verdict().is_none()
        && links.may_bring_more(rank)
        && silence(links, stuck, (rank, since)) < most
}

/// Whether a rank that has made so many calls has made this one.
fn is_among(calls: u32, seq: u32) -> bool {
    calls.wrapping_sub(seq).cast_signed() > 0
}

/// How long what is `stuck` has waited in vain for a rank that is gone since then: what had come before it began is read only then, and
/// what had no room comes after that.
fn silence(links: &Links, stuck: &Stuck, (rank, since): (usize, Instant)) -> Duration {
    let waited = stuck.operation.map(|_| stuck.waited);
    let known = [Some(since.elapsed()), waited, links.silent_for(rank)];
    known.into_iter().flatten().min().unwrap_or_default()
}

/// Whether one of the ranks that something waits for has made a different call in its place, or before, or waits in a later one:
/// what it has sent in this one came before it went on, so that nothing more will come. Or what has stopped the communicator, where word
/// of that comes by a stopped process and one that is asked knows: after a while others are asked as well.
pub(super) fn difference(
    membership: &Membership,
    links: &Links,
    stuck: &Stuck,
    questions: &mut Questions,
) -> Option<Cause> {
    let ours = match stuck.operation {
        Some(Operation::Collective(ours)) => Some(ours),
        Some(Operation::Transfer(_)) | None => None,
    };
    let unsent = links.unsent_to();
    let others = stuck.waits_for.iter().filter(|&&rank| rank != membership.rank());
    let found = others.take(MOST_ASKED).find_map(|&rank| {
        let answer = questions.ask(membership, rank)?;
        if let Some(cause) = &answer.stopped {
            return Some(cause.clone());
        }
        if let Some(first) = past::first_difference(membership, rank, &answer) {
            return Some(first);
        }
        let ours = ours?;
        let (most, made) = match answer.made(ours.seq) {
            Some(made) if made.agrees_with(&ours) => (Duration::MAX, None),
            // So far ahead are those that only send: what they have sent comes, or what comes of the next call tells. Where nothing does,
            // they have made calls that send nothing.
            None if answer.has_forgotten(ours.seq) => (sent_again(), None),
            made => (UNDER_WAY, made),
        };
        let waits_in = match answer.waits_in {
            Some(Operation::Collective(call)) => Some(call),
            Some(Operation::Transfer(_)) | None => None,
        };
        let later = waits_in.filter(|call| call.seq.wrapping_sub(ours.seq).cast_signed() > 0);
        // What it waits for may still be here, and what it has sent under way: where it has made this call, too, for as long as a network
        // likes that lost something and tries again.
        let may_come = links.may_bring_more(rank) && stuck.waited < most;
        let later = later.filter(|_| !may_come && !unsent.contains(&rank));
        let here = (membership.rank() as u32, ours.into());
        made.or(later).map(|theirs| Cause::Mismatch {
            here,
            there: (rank as u32, theirs.into()),
        })
    });
    found.or_else(|| {
        let asks_others = stuck.waited >= GO_ROUND && questions.go_round();
        asks_others
            .then(|| membership.stopped_elsewhere(|rank| questions.ask(membership, rank)))
            .flatten()
    })
}

/// Whom a rank has asked what they wait in.
#[derive(Debug, Default)]
pub(super) struct Questions {
    /// Who did not answer, and when it was asked: a stopped process holds up the asking rank each time.
    silent: Vec<(usize, Instant)>,
    /// Whether others than those that are waited for have been asked this time.
    went_round: bool,
}

impl Questions {
    /// It is time to ask again: something has stood still for `longest`.
    pub(super) fn begin(&mut self, longest: Duration) {
        let kept = if longest < LONGEST_APART {
            Duration::ZERO
        } else {
            SILENT
        };
        self.silent.retain(|(_, asked)| asked.elapsed() < kept);
        self.went_round = false;
    }

    /// What `rank` waits in, unless it has not answered lately.
    fn ask(&mut self, membership: &Membership, rank: usize) -> Option<Waits> {
        if self.silent.iter().any(|(silent, _)| *silent == rank) {
            return None;
        }
        let answer = membership.calls_of(rank);
        if answer.is_none() {
            self.silent.push((rank, Instant::now()));
        }
        answer
    }

    /// Whether others are asked now: once for all that stands still.
    fn go_round(&mut self) -> bool {
        !std::mem::replace(&mut self.went_round, true)
    }
}

/// Who is late when a wait has lasted until the deadline: not those that only wait themselves.
pub(super) fn late(membership: &Membership, stuck: &Stuck, after: Duration) -> Cause {
    // One that is alone waits for itself.
    let anyone = || match membership.ranks() {
        1 => vec![membership.rank()],
        ranks => (0..ranks).filter(|&rank| rank != membership.rank()).collect(),
    };
    // Of messages the oldest is late, and not those that others are with.
    let waits_for: Vec<usize> = match stuck.operation {
        Some(Operation::Transfer(Transfer::Send { to, .. })) => vec![to as usize],
        Some(Operation::Transfer(Transfer::Recv { from: Some(from), .. })) => vec![from as usize],
        Some(Operation::Transfer(Transfer::Recv { from: None, .. })) => anyone(),
        _ if stuck.waits_for.is_empty() => anyone(),
        _ => stuck.waits_for.clone(),
    };
    let waits_for = &waits_for;
    membership.set_waiting(waits_for, stuck.operation, stuck.waited);
    let (ranks, mut found) = match membership.late(waits_for, stuck.operation) {
        Ok(late) => late,
        Err(cause) => return cause,
    };
    found.truncate(MOST_TOLD);
    Cause::Late {
        ranks,
        found,
        seen_by: membership.rank() as u32,
        during: stuck.operation,
        after,
    }
}

/// The loss of a rank that was seen some time ago. Until then what it had sent may be all that a call needs of it, even
/// one that has not begun here.
pub(super) fn long_dead(membership: &Membership, during: Option<Operation>) -> Option<Cause> {
    membership.dead_for(GRACE, during)
}

/// Raises what went wrong here, and returns what all ranks report; where their word does not come, as from a stopped process, those that
/// ask this rank hear of it.
///
/// That a peer is in another call may only follow from an earlier difference between their calls, which a third rank
/// sees at first hand: it is given time to say so.
pub(super) fn raise(membership: &Membership, cause: Cause) -> Cause {
    if let Cause::Mismatch {
        here: (_, Operation::Collective(ours)),
        there: (_, Operation::Collective(theirs)),
    } = &cause
        && ours.seq != theirs.seq
    {
        membership.await_verdict(GRACE);
    }
    membership.end(cause)
}

/// What all ranks are told of a fault that this rank's executor met.
pub(super) fn cause_of(fault: Fault, rank: u32, during: Option<Operation>) -> Cause {
    let near = match during {
        Some(Operation::Collective(call)) => call.seq,
        Some(Operation::Transfer(_)) | None => 0,
    };
    let of_message = |header| Call::from_header(header, near);
    let within = || during.map_or_else(String::new, |operation| format!(" in {operation}"));
    match fault {
        Fault::Mismatch { peer, header, ours } => match [header, ours].map(of_message) {
            [Some(theirs), Some(ours)] => Cause::Mismatch {
                here: (rank, ours.into()),
                there: (peer as u32, theirs.into()),
            },
            _ => Cause::Broken {
                rank: peer as u32,
                what: format!("it sent rank {rank} a message of no known call"),
            },
        },
        Fault::Unlike { peer, ours, theirs } => Cause::Mismatch {
            here: (rank, ours.into()),
            there: (peer as u32, theirs.into()),
        },
        Fault::Nonsense { peer } => Cause::Broken {
            rank: peer as u32,
            what: format!("what it told rank {rank} of its messages makes no sense"),
        },
        Fault::Length { peer, got, want } => Cause::Broken {
            rank: peer as u32,
            what: format!(
                "it sent rank {rank} {got} bytes instead of {want}{}: the ranks' schedules differ",
                within()
            ),
        },
        Fault::Wire {
            error: Error::Failed(mut cause),
            ..
        } => {
            // Floors below do not know the call.
            if let Cause::Lost { during: place, .. }
            | Cause::Left { during: place, .. }
            | Cause::Late { during: place, .. } = &mut cause
            {
                *place = place.or(during);
            }
            cause
        }
        Fault::Wire { peer, error } => Cause::Broken {
            rank,
            what: format!("its link to rank {peer} failed{}: {error}", within()),
        },
    }
}

/// How long a rank waits before it asks those it waits for which call they are in, and how many times as long until it asks
/// again, and how much longer at most; a stopped process holds up the asking rank each time.
pub(super) const FIRST_QUESTION: Duration = Duration::from_millis(50);
pub(super) const QUESTIONS_APART: u32 = 4;
/// How long a rank that did not answer is not asked again, once that is so.
const SILENT: Duration = Duration::from_secs(60);
/// Of how many late ranks an error tells where they are.
const MOST_TOLD: usize = 8;
/// How many ranks are asked each time.
const MOST_ASKED: usize = 4;

/// Of a rank whose process has left its communicators, as it ends, and still calls.
const ENDS: &str = "its process is ending and has left its communicators: what runs after that, early handlers of atexit and destructors \
                    of global objects, can only destroy them";

/// How long the last messages of a rank that has gone may be under way, and nothing come: its connections may not end if a process
/// that it forked has them, or if its host is gone.
const UNDER_WAY: Duration = Duration::from_secs(2);

/// The same where it had sent all: what was lost in an outage is sent again when that has lasted as long again, at the latest.
fn sent_again() -> Duration {
    (2 * tcp::given_up_after()).max(UNDER_WAY)
}

/// How long a rank whose connections have ended may not be told of as gone; and how long those who wait look for that.
const CUT_OFF: Duration = Duration::from_secs(2);
pub(super) const CUT_OFF_SEEN: Duration = Duration::from_secs(3);

/// The longest sleep after a rank's death, until this rank knows what follows from it.
pub(super) const TROUBLED_NAP: Duration = Duration::from_millis(5);
