//! Runs one call to its end: polls the executor, waits by policy, and tells a slow peer from a lost one.

use crate::{
    bootstrap::{Membership, Peer},
    exec::{
        Fault, Progress, Run, Work,
        wait::{Patience, Pause},
    },
    transport::{Wires, links::Links},
    types::{Call, Cause, Error},
};
use std::{
    hint,
    time::{Duration, Instant},
};
use tracing::debug;

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
    let mut asleep = false;
    let mut ask_after = FIRST_QUESTION;
    let failed = |fault| raise(membership, cause_of(fault, membership.rank() as u32, call));
    loop {
        match run.poll(links).map_err(failed)? {
            Progress::Done => break,
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
                asleep = true;
                membership.set_waits(&run.waits_for(), Some(call));
                // What came before the bell was armed rang no bell: look once more.
                let armed = links.arm().map_err(|error| Fault::Wire {
                    peer: membership.rank(),
                    error,
                });
                let progress = armed.and_then(|()| run.poll(links));
                if matches!(progress, Ok(Progress::Blocked)) {
                    let nap = if membership.trouble() { TROUBLED_NAP } else { nap };
                    links.sleep(nap.min(timeout().saturating_sub(waited)));
                }
                links.disarm();
                match progress.map_err(failed)? {
                    Progress::Done => break,
                    Progress::Moved => {
                        patience.refresh();
                        continue;
                    }
                    Progress::Blocked => {}
                }
            }
        }
        let limit = timeout();
        let ask = waited >= ask_after;
        if !ask && waited < limit && !membership.trouble() && !membership.departures() {
            continue;
        }
        if ask {
            ask_after = waited.saturating_mul(QUESTIONS_APART);
            let (rank, ranks, waits_for) = (membership.rank(), membership.ranks(), run.waits_for());
            debug!(
                rank,
                ranks, "wait: {waited:.1?} for ranks {waits_for:?} in {call}"
            );
        }
        let reason = |waits_for: &[usize]| {
            failure(membership, links, waits_for, &call, waited)
                .or_else(|| ask.then(|| difference(membership, waits_for, call)).flatten())
                .or_else(|| (waited >= limit).then(|| late(membership, waits_for, call, limit)))
        };
        match last_look(&mut run, links, reason).map_err(failed)? {
            (Progress::Done, _) => break,
            (Progress::Moved, _) => patience.refresh(),
            (Progress::Blocked, Some(cause)) if !under_way(membership, links, &cause) => {
                return Err(raise(membership, cause));
            }
            (Progress::Blocked, _) => {}
        }
    }
    if asleep {
        membership.set_waits(&[], None);
    }
    Ok(())
}

/// Asks whether there is a reason to give up a blocked run, and then polls it once more, because all that a lost rank had
/// sent came before its loss was seen. The reason is returned if the run still waits for the same ranks.
fn last_look<W: Wires>(
    run: &mut Run<'_>,
    wires: &W,
    reason: impl FnOnce(&[usize]) -> Option<Cause>,
) -> Result<(Progress, Option<Cause>), Fault> {
    let waited_for = run.waits_for();
    let reason = reason(&waited_for);
    let progress = run.poll(wires)?;
    Ok((progress, reason.filter(|_| run.waits_for() == waited_for)))
}

/// Why a run that waits for these ranks cannot go on, if it cannot.
fn failure(
    membership: &Membership,
    links: &Links,
    waits_for: &[usize],
    call: &Call,
    waited: Duration,
) -> Option<Cause> {
    if let Some(verdict) = membership.verdict() {
        return Some(verdict);
    }
    let (seen_by, during) = (membership.rank() as u32, Some(*call));
    let gone = |&rank: &usize| match membership.peer(rank) {
        Peer::Alive => None,
        Peer::Left { .. } => Some(Cause::Left {
            rank: rank as u32,
            seen_by,
            during,
        }),
        Peer::Dead { how, .. } => Some(Cause::Lost {
            rank: rank as u32,
            how,
            seen_by,
            during,
        }),
    };
    // Its process may have ended, of which word is still on its way.
    let cut_off = |&rank: &usize| {
        links.trouble(rank).map(|how| Cause::Lost {
            rank: rank as u32,
            how,
            seen_by,
            during,
        })
    };
    // A rank that this one does not wait for directly: those who do may still be served by what it had sent, and as long
    // as something moves here they are.
    let long = || long_dead(membership, call).or_else(|| waits_for.iter().find_map(cut_off));
    let gone = waits_for.iter().find_map(gone);
    gone.or_else(|| (waited >= GRACE).then(long).flatten())
}

/// Whether what the rank that `cause` is about had sent may still come: by TCP it may be overtaken by word of its end. The
/// end of its connections tells that there is no more.
fn under_way(membership: &Membership, links: &Links, cause: &Cause) -> bool {
    let (Cause::Left { rank, .. } | Cause::Lost { rank, .. }) = *cause else {
        return false;
    };
    let gone_for = match membership.peer(rank as usize) {
        Peer::Alive => return false,
        Peer::Left { since } | Peer::Dead { since, .. } => since.elapsed(),
    };
    gone_for < UNDER_WAY && membership.verdict().is_none() && links.may_bring_more(rank as usize)
}

/// Whether one of these ranks, for which this one waits, is itself waiting in a different call, or in a later one: what it
/// has sent in this call came before it went on, so that nothing more will come.
fn difference(membership: &Membership, waits_for: &[usize], ours: Call) -> Option<Cause> {
    waits_for.iter().take(MOST_ASKED).find_map(|&rank| {
        let theirs = membership.call_of(rank)?;
        let ahead = theirs.seq.wrapping_sub(ours.seq).cast_signed();
        let differs = ahead > 0 || ahead == 0 && theirs != ours;
        let (here, there) = ((membership.rank() as u32, ours), (rank as u32, theirs));
        differs.then_some(Cause::Mismatch { here, there })
    })
}

/// Who is late when a wait for these ranks has lasted until the deadline: not those that only wait themselves.
fn late(membership: &Membership, waits_for: &[usize], during: Call, after: Duration) -> Cause {
    membership.set_waits(waits_for, Some(during));
    let (ranks, seen_by) = (membership.silent(waits_for), membership.rank() as u32);
    Cause::Late {
        ranks,
        seen_by,
        during: Some(during),
        after,
    }
}

/// Gives ranks that know more about a failure some time to say so.
fn await_verdict(membership: &Membership) {
    let until = Instant::now() + GRACE;
    while membership.verdict().is_none() && Instant::now() < until {
        std::thread::sleep(GRACE / 50);
    }
}

/// The loss of a rank that was seen some time ago. Until then what it had sent may be all that a call needs of it, even
/// one that has not begun here.
pub(super) fn long_dead(membership: &Membership, call: &Call) -> Option<Cause> {
    (0..membership.ranks()).find_map(|rank| match membership.peer(rank) {
        Peer::Dead { how, since } if since.elapsed() >= GRACE => {
            let (seen_by, during) = (membership.rank() as u32, Some(*call));
            Some(Cause::Lost {
                rank: rank as u32,
                how,
                seen_by,
                during,
            })
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
        await_verdict(membership);
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
            error: Error::Failed(mut cause),
            ..
        } => {
            // Floors below do not know the call.
            if let Cause::Lost { during, .. } | Cause::Left { during, .. } | Cause::Late { during, .. } =
                &mut cause
            {
                during.get_or_insert(call);
            }
            cause
        }
        Fault::Wire { peer, error } => Cause::Broken {
            rank,
            what: format!("its link to rank {peer} failed in {call}: {error}"),
        },
    }
}

/// How long a rank waits before it asks those it waits for which call they are in, and how many times as long until it asks
/// again; a stopped process holds up the asking rank each time.
const FIRST_QUESTION: Duration = Duration::from_millis(50);
const QUESTIONS_APART: u32 = 4;
/// How many ranks are asked each time.
const MOST_ASKED: usize = 4;

/// How long those that know of a failure only indirectly leave it to the others: after a rank's death the ranks that do
/// not wait for it, and after a difference of calls those that see only its consequences.
const GRACE: Duration = Duration::from_millis(250);

/// How long the last messages of a rank that has gone may be under way: its connections may not end if a process that it
/// forked has them, or if its host is gone.
const UNDER_WAY: Duration = Duration::from_secs(2);

/// The longest sleep after a rank's death, until this rank knows what follows from it.
const TROUBLED_NAP: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        bootstrap::UniqueId,
        comm::{Communicator, Config},
        mem::Region,
        plan::{
            algo::{Request, fitting},
            choose::{self, TileBytes},
            layout::Layout,
            schedule::Schedule,
        },
        transport::{LANES, inproc, shm},
        types::{Collective, DType, Op},
    };
    use std::{cell::Cell, sync::Barrier, thread};

    fn call(collective: Collective, count: u64) -> Call {
        Call {
            seq: 0,
            collective,
            count,
            dtype: DType::Uint64,
            op: Op::Sum,
        }
    }

    fn schedule(name: &str, collective: Collective, ranks: usize, rank: usize) -> Schedule {
        let request = Request {
            collective,
            ranks,
            rank,
        };
        let algorithm = fitting(collective).find(|algorithm| algorithm.name == name);
        (algorithm.unwrap().build)(&request)
    }

    fn work<'m>(schedule: &'m Schedule, call: Call, data: &'m mut [u64]) -> Work<'m> {
        let layout = Layout {
            count: data.len(),
            blocks: schedule.blocks as usize,
            grains: 1,
        };
        let (tiling, copies) = choose::tiling(
            schedule.extent(),
            &layout,
            8,
            shm::CAPS.max_message,
            LANES,
            TileBytes::SHARED_MEMORY,
        )
        .unwrap();
        let data = Region::of_mut(data);
        Work {
            schedule,
            layout,
            tiling,
            copies,
            dtype: call.dtype,
            op: call.op,
            header: call.signature(),
            input: data,
            output: data,
            begins: [0, 0],
            scratch: Region::empty(),
            lend: None,
        }
    }

    #[test]
    fn a_run_is_given_up_only_if_what_it_waits_for_does_not_come_after_the_reason() {
        let call = call(Collective::AllReduce, 3);
        let schedules = [0, 1, 2].map(|rank| schedule("direct", call.collective, 3, rank));
        let mut data = [[1u64; 3]; 3];
        let links = inproc::links(3).unwrap();
        let works = schedules.iter().zip(&mut data);
        let mut runs = works.map(|(schedule, data)| Run::new(work(schedule, call, data)));
        let [mut first, mut second, mut third] = std::array::from_fn(|_| runs.next().unwrap());
        let go_on = |run: &mut Run<'_>, rank: usize| {
            while run.poll(&links[rank]).unwrap() == Progress::Moved {}
        };
        let left = |rank| {
            Some(Cause::Left {
                rank,
                seen_by: 0,
                during: None,
            })
        };
        go_on(&mut first, 0);
        let in_vain = last_look(&mut first, &links[0], |waits_for| {
            assert_eq!(waits_for, [1]);
            left(1)
        });
        assert_eq!(in_vain.unwrap(), (Progress::Blocked, left(1)));
        let then_for_another = last_look(&mut first, &links[0], |_| {
            go_on(&mut second, 1);
            left(1)
        });
        assert_eq!(then_for_another.unwrap(), (Progress::Blocked, None));
        let on = last_look(&mut first, &links[0], |waits_for| {
            assert_eq!(waits_for, [2]);
            go_on(&mut third, 2);
            left(2)
        });
        assert_eq!(on.unwrap().0, Progress::Moved);
    }

    #[test]
    fn what_came_by_the_deadline_is_not_late() {
        let call = call(Collective::Broadcast { root: 1 }, 1);
        let config = Config {
            timeout: Some(Duration::from_secs(60)),
            ..Config::default()
        };
        let (id, begin, sent) = (UniqueId::new().unwrap(), Barrier::new(2), Barrier::new(2));
        let init = |rank| Communicator::init(2, &id, rank, &config).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let comm = init(1);
                begin.wait();
                comm.broadcast_in_place(&mut [7u64], 1).unwrap();
                sent.wait();
            });
            let comm = init(0);
            let inner = comm.inner.lock().unwrap();
            let (schedule, mut data) = (schedule("chain", call.collective, 2, 0), [0u64]);
            let work = work(&schedule, call, &mut data);
            let asked = Cell::new(false);
            // The message comes after the run was last found blocked, and then the time is up.
            let timeout = || {
                if !asked.replace(true) {
                    begin.wait();
                    sent.wait();
                }
                Duration::ZERO
            };
            let mut patience = Patience::new(true);
            drive(&comm.membership, &inner.links, work, call, &mut patience, timeout).unwrap();
            assert_eq!(data, [7]);
        });
    }
}
