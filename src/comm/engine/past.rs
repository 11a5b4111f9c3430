//! The calls that a rank has made, held against those of others: the first one that differs is the one to tell.
//!
//! Ranks whose calls differ may all have come to their end, where each only sent. So each message carries a trail of the calls
//! before its own ([`Call::header`]): who gets one that comes after other calls than this rank's asks its sender which they
//! were. What no message tells any more, because no call follows, is compared when a communicator is finalized.

use crate::{
    bootstrap::{Made, Membership, Peer, Waits},
    exec::Fault,
    record::{Record, later},
    types::{Call, Cause, Operation},
};
use std::{
    thread,
    time::{Duration, Instant},
};

/// The first call that this rank and `peer`, which gave that answer, have made differently, as far as both know.
pub(super) fn first_difference(membership: &Membership, peer: usize, answer: &Waits) -> Option<Cause> {
    let ours = membership.recorder().records();
    ours.iter().filter_map(Record::call).find_map(|ours| {
        let theirs = answer.made(ours.seq).filter(|theirs| !theirs.agrees_with(ours))?;
        Some(mismatch(membership, *ours, (peer, theirs)))
    })
}

/// The call that differed before the one in which this rank got a message that came after other calls, if it is known.
pub(super) fn before(membership: &Membership, fault: &Fault) -> Option<Cause> {
    match *fault {
        Fault::Mismatch { peer, header, ours } if !Call::have_one_past(header, ours) => {
            // A process that is slow to answer is asked again.
            let answer = (0..LEAST_ASKED).find_map(|_| membership.calls_of(peer))?;
            first_difference(membership, peer, &answer)
        }
        _ => None,
    }
}

/// Whether a message that seems to come of a call before `during` is of one so far behind it that its number, of which messages tell half,
/// says nothing: calls that send nothing, as of no elements, wait for nobody. So it may be where its sender does not tell.
pub(super) fn is_far_behind(membership: &Membership, fault: &Fault, during: Option<Operation>) -> bool {
    let (&Fault::Mismatch { peer, .. }, Some(Operation::Collective(ours))) = (fault, during) else {
        return false;
    };
    let left = membership.left().into_iter().find(|(rank, _)| *rank == peer);
    let calls = left.map(|(_, made)| made.calls).or_else(|| {
        let answer = (0..LEAST_ASKED).find_map(|_| membership.calls_of(peer));
        answer.map(|answer| answer.calls_made())
    });
    calls.is_none_or(|calls| calls.wrapping_sub(ours.seq).cast_signed() > i16::MAX.into())
}

/// What differs between the calls of this rank, which makes no more, and those of the next one and of all that have left. As all ranks
/// do so, a difference is found. Waits a while until the next one has made as many.
pub(super) fn at_end(membership: &Membership, calls: u32) -> Option<Cause> {
    let next = (membership.rank() + 1) % membership.ranks();
    if next == membership.rank() {
        return None;
    }
    // This rank makes no more.
    let records = membership.recorder().records();
    let ours: Vec<Call> = records.iter().filter_map(Record::call).copied().collect();
    let (until, mut nap) = (Instant::now() + LAST_WAIT, FIRST_NAP);
    for asked in 1.. {
        // A rank that has found a difference tells all before it leaves, and word of either comes the same way.
        if membership.trouble() {
            return membership.verdict();
        }
        let left = membership.left();
        let differs = left
            .iter()
            .find_map(|left| with_left(membership, (calls, &ours), left));
        if differs.is_some() || !matches!(membership.peer(next), Peer::Alive) {
            return differs.or_else(|| membership.verdict());
        }
        if let Some(answer) = membership.calls_of(next) {
            if let Some(cause) = first_difference(membership, next, &answer) {
                return Some(cause);
            }
            let theirs = answer.calls_made();
            if theirs == calls {
                return None;
            }
            if later(theirs, calls) == theirs {
                return one_more(membership, calls, (next, &answer));
            }
        }
        if Instant::now() >= until && asked >= LEAST_ASKED {
            break;
        }
        thread::sleep(nap);
        nap = (nap * 2).min(LONGEST_NAP);
    }
    None
}

/// What differs between the calls of this rank, the last of which are `ours`, and those of one that has left.
fn with_left(
    membership: &Membership,
    (calls, ours): (u32, &[Call]),
    (peer, made): &(usize, Made),
) -> Option<Cause> {
    let (me, last) = (membership.rank() as u32, made.last);
    let call = |seq: u32| ours.iter().copied().find(|call| call.seq == seq);
    let newest = call(calls.wrapping_sub(1));
    if made.calls == calls {
        let (ours, theirs) = (newest?, last?);
        return (!theirs.agrees_with(&ours)).then(|| mismatch(membership, ours, (*peer, theirs)));
    }
    let has_more = later(made.calls, calls) == made.calls;
    let ours = if has_more {
        newest
    } else {
        call(made.calls).or(newest)
    };
    let (rank, seen_by, during) = match has_more {
        true => (me, *peer as u32, last),
        false => (*peer as u32, me, ours),
    };
    Some(match (ours, last) {
        (Some(ours), Some(theirs)) => mismatch(membership, ours, (*peer, theirs)),
        _ => Cause::Left {
            rank,
            seen_by,
            during: during.map(Operation::from),
        },
    })
}

/// That `peer`, which has left with so many calls made, made another one in the place of `ours`.
pub(super) fn other_at_last(
    membership: &Membership,
    ours: Call,
    (peer, made): (usize, Made),
) -> Option<Cause> {
    let theirs = made
        .last
        .filter(|theirs| theirs.seq == ours.seq && !theirs.agrees_with(&ours))?;
    Some(mismatch(membership, ours, (peer, theirs)))
}

/// The first call that `peer` has made beyond this rank's, which has ended its work with so many.
fn one_more(membership: &Membership, calls: u32, (peer, answer): (usize, &Waits)) -> Option<Cause> {
    let theirs = answer.made(calls).or_else(|| answer.newest())?;
    let newest = membership.recorder().records().pop();
    Some(match newest.map(|record| record.operation) {
        Some(ours) => mismatch(membership, ours, (peer, theirs)),
        None => Cause::Left {
            rank: membership.rank() as u32,
            seen_by: peer as u32,
            during: Some(theirs.into()),
        },
    })
}

fn mismatch(membership: &Membership, ours: impl Into<Operation>, (peer, theirs): (usize, Call)) -> Cause {
    Cause::Mismatch {
        here: (membership.rank() as u32, ours.into()),
        there: (peer as u32, theirs.into()),
    }
}

/// How long a rank that makes no more calls waits for one that has made fewer, and how long it leaves it alone in between.
const LAST_WAIT: Duration = Duration::from_secs(1);
const FIRST_NAP: Duration = Duration::from_millis(1);
const LONGEST_NAP: Duration = Duration::from_millis(64);
/// How often a rank is asked at least that does not answer.
const LEAST_ASKED: u32 = 4;
