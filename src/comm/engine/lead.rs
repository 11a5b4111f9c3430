//! Leading: polls all that is under way, waits by policy, and tells a slow peer from a lost one.

use super::{
    Engine, Floor, Job, Placed, What, jobs, past,
    reasons::{self, FIRST_QUESTION, QUESTIONS_APART, Stuck, TROUBLED_NAP},
};
use crate::{
    bootstrap::{LONGEST_APART, Membership, Peer},
    exec::{
        Completion, Fault, Progress, Run, Straight, Work,
        wait::{Patience, Pause},
    },
    mem::Region,
    transport::{Wires, links::Links},
    types::{Call, Cause, Error, Operation},
};
use std::{
    hint,
    sync::{
        PoisonError,
        atomic::Ordering::{Relaxed, SeqCst},
    },
    time::{Duration, Instant},
};
use tracing::debug;

/// A call that the leading thread runs on its own caller's memory.
pub(super) struct Own<'m> {
    pub(super) run: Run,
    pub(super) work: &'m Work<'m>,
    pub(super) call: Call,
    /// Of the vector.
    pub(super) bytes: u64,
    /// A bit for each.
    pub(super) lanes: u32,
    /// Since when it stands still, if it does and something else is under way: what that moves is no sign of this call's life.
    pub(super) since: Option<Instant>,
}

/// How long to lead.
#[derive(Clone, Copy)]
pub(super) enum Until<'c> {
    /// Until the leader's own call is over.
    OwnDone,
    Over(&'c Completion),
    /// Until nothing is under way.
    Idle,
    /// The same, or somebody else waits for the floor.
    Relieved,
    /// Until what was sent has gone.
    Sent,
}

impl Engine {
    /// Moves on all that is under way until what is to be waited for is over.
    ///
    /// # Errors
    /// Why the communicator failed; then all that was under way has.
    pub(super) fn lead(
        &self,
        floor: &mut Floor,
        mut own: Option<Own<'_>>,
        until: Until<'_>,
    ) -> Result<(), Cause> {
        let outcome = self.go_on(floor, &mut own, until);
        if let Err(cause) = &outcome {
            self.fall(floor, cause);
        }
        outcome.map_err(|cause| self.close(cause))
    }

    /// Takes the straight way of a call, if it has one, as far as it goes and nobody else needs the floor: the rest of the
    /// call, if there is one.
    ///
    /// # Errors
    /// As [`Engine::lead`].
    #[inline]
    pub(super) fn dash(
        &self,
        floor: &mut Floor,
        placed: &Placed,
        work: &Work<'_>,
    ) -> Result<Option<Run>, Cause> {
        // The straight way copies all that it sends, and reads no peer's memory.
        let lends = match work.lend {
            Some(lend) => self.lends(floor, placed.call, [&work.input, &work.output], lend.taken)?,
            None => false,
        };
        let is_best = work.scalar.is_none() && !lends;
        let of_given;
        let straight = match &placed.plan.straight {
            _ if !is_best => None,
            None => {
                of_given = Straight::of_given(work);
                of_given.as_ref()
            }
            planned => planned.as_ref(),
        };
        let Some(straight) = straight else {
            return Ok(Some(Run::new(work)));
        };
        let Floor { links, patience, .. } = floor;
        patience.refresh();
        let reached = straight.run(work, links, |looks| {
            // Who goes on looks what the trouble is.
            !self.membership.trouble() && self.may_wait(links, patience, looks)
        });
        match reached {
            Ok(Some(reached)) => Ok(Some(Run::after(work, &reached))),
            Ok(None) if links.unsent() => Ok(Some(Run::over(work))),
            Ok(None) => {
                floor.ways.straight += 1;
                Ok(None)
            }
            Err(fault) => Err(self.fall_by(floor, fault, Some(placed.call.into()))),
        }
    }

    /// Gets ready for a call whose long messages may be left where they lie, those that peers take from `taken` bytes on, and says
    /// whether some are.
    ///
    /// # Errors
    /// As [`Engine::lead`].
    pub(super) fn lends(
        &self,
        floor: &mut Floor,
        call: Call,
        memory: [&Region<'_>; 2],
        taken: usize,
    ) -> Result<bool, Cause> {
        match floor.links.get_ready(memory, None) {
            Ok(()) => Ok(floor.links.lend(memory, taken != usize::MAX)),
            Err((peer, error)) => Err(self.fall_by(floor, Fault::Wire { peer, error }, Some(call.into()))),
        }
    }

    /// Whether a call that goes ahead looks again after so many fruitless looks since something moved. It pauses meanwhile.
    #[inline]
    pub(super) fn may_wait(&self, links: &Links, patience: &mut Patience, looks: u32) -> bool {
        if looks <= 1 {
            patience.refresh();
        }
        let is_wanted = self.mail.load(Relaxed) || self.turns().waiting.load(Relaxed) > 0;
        if is_wanted {
            return false;
        }
        match links.move_alone() {
            true => looks == 0 || patience.pause(),
            // What came while this waited is looked at next, and the first time there is no wait.
            false => {
                patience.asked();
                (looks <= 1 || patience.pause()) && links.moves_on()
            }
        }
    }

    /// Ends all that is under way because of what an operation, if it was one, met.
    pub(super) fn fall_by(&self, floor: &mut Floor, fault: Fault, operation: Option<Operation>) -> Cause {
        let cause = self.cause_of(fault, operation);
        self.fall(floor, &cause);
        self.close(cause)
    }

    fn go_on(&self, floor: &mut Floor, own: &mut Option<Own<'_>>, until: Until<'_>) -> Result<(), Cause> {
        floor.begin();
        let membership = &*self.membership;
        // What has come already is not taken in before the call has said where it is wanted.
        if self.poll_own(floor, own)? == Progress::Done {
            return Ok(());
        }
        let (mut asleep, mut ask_after) = (false, FIRST_QUESTION);
        loop {
            let is_due = floor.is_due();
            // However well all goes.
            if is_due && let Some(cause) = self.called_off() {
                return Err(cause);
            }
            if is_due && !floor.is_idle() {
                floor.look();
                if self.give_up(floor, own, until, Duration::ZERO, false)? == Progress::Done {
                    break;
                }
            }
            let progress = self.round(floor, own, until)?;
            if progress == Progress::Done {
                break;
            }
            if progress == Progress::Moved {
                floor.patience.refresh();
                ask_after = FIRST_QUESTION;
                continue;
            }
            if !floor.links.move_alone() {
                floor.patience.asked();
            }
            let (pause, waited) = floor.patience.next(Instant::now);
            match pause {
                Pause::Spin => {
                    hint::spin_loop();
                    continue;
                }
                Pause::Yield => std::thread::yield_now(),
                Pause::Sleep(nap) => {
                    asleep = true;
                    say_waits(membership, &stuck(floor, own.as_ref(), waited));
                    self.say_done(floor, own.as_ref());
                    // Not past the deadline; but behind it, where only what nobody waits for is left, as long as ever.
                    let left = self.timeout().saturating_sub(waited);
                    let nap = if left.is_zero() { nap } else { nap.min(left) };
                    match self.sleep(floor, own, until, nap)? {
                        Progress::Done => break,
                        Progress::Moved => {
                            floor.patience.refresh();
                            ask_after = FIRST_QUESTION;
                            continue;
                        }
                        Progress::Blocked => {}
                    }
                }
            }
            floor.look();
            let ask = waited >= ask_after;
            if ask {
                ask_after = waited + ((QUESTIONS_APART - 1) * waited).min(LONGEST_APART);
            }
            let news = membership.trouble() || membership.departures() || floor.links.last_end().is_some();
            if !ask && !news && waited < self.timeout() && floor.is_idle() {
                continue;
            }
            match self.give_up(floor, own, until, waited, ask)? {
                Progress::Done => break,
                Progress::Moved => {
                    floor.patience.refresh();
                    ask_after = FIRST_QUESTION;
                }
                Progress::Blocked => {}
            }
        }
        if asleep {
            membership.set_waits(&[], None);
        }
        Ok(())
    }

    /// The word of a rank that has ended all that is under way, if one has.
    fn called_off(&self) -> Option<Cause> {
        let verdict = self.membership.verdict();
        verdict.filter(|cause| matches!(cause, Cause::Aborted { .. } | Cause::Revoked { .. }))
    }

    /// Why the communicator fails by what an operation, if it was one, met.
    fn cause_of(&self, fault: Fault, operation: Option<Operation>) -> Cause {
        let first = past::before(&self.membership, &fault);
        let cause =
            first.unwrap_or_else(|| reasons::cause_of(fault, self.membership.rank() as u32, operation));
        reasons::raise(&self.membership, cause)
    }

    /// Says for others that ask how far what stands still has come.
    fn say_done(&self, floor: &mut Floor, own: Option<&Own<'_>>) {
        if let Some(own) = own {
            self.recorder
                .done(own.call.seq, own.run.done(own.work, own.bytes));
        }
        for (seq, bytes) in floor.jobs.done() {
            self.recorder.done(seq, bytes);
        }
        self.recorder.rest();
    }

    /// Polls the caller's own call once, if there is one.
    fn poll_own(&self, floor: &Floor, own: &mut Option<Own<'_>>) -> Result<Progress, Cause> {
        let Some(own) = own else {
            return Ok(Progress::Blocked);
        };
        let polled = match own.run.poll(own.work, &floor.links) {
            // Nobody would push on what others have left.
            Ok(Progress::Done) if floor.is_idle() && floor.links.unsent() => Ok(Progress::Blocked),
            polled => polled,
        };
        match polled {
            Ok(Progress::Blocked) if floor.is_idle() => {}
            Ok(Progress::Blocked) => _ = own.since.get_or_insert_with(Instant::now),
            _ => own.since = None,
        }
        polled.map_err(|fault| self.cause_of(fault, Some(own.call.into())))
    }

    /// Looks whether a rank sends something else than belongs to the calls that are under way.
    fn check(&self, floor: &mut Floor, own: Option<&Own<'_>>) -> Result<(), Cause> {
        let of_own = own.map_or(Ok(()), |own| {
            let checked = own.run.check_all(own.work, &floor.links);
            checked.map_err(jobs::met(Some(own.call.into())))
        });
        for met in [of_own, floor.jobs.check(&floor.links)]
            .into_iter()
            .filter_map(Result::err)
        {
            let (fault, operation) = *met;
            if !past::is_far_behind(&self.membership, &fault, operation) {
                return Err(self.cause_of(fault, operation));
            }
        }
        Ok(())
    }

    /// Polls everything once.
    fn round(
        &self,
        floor: &mut Floor,
        own: &mut Option<Own<'_>>,
        until: Until<'_>,
    ) -> Result<Progress, Cause> {
        if let Err((peer, error)) = floor.links.progress() {
            let operation = stuck(floor, own.as_ref(), Duration::ZERO)
                .first()
                .and_then(|stuck| stuck.operation);
            return Err(self.cause_of(Fault::Wire { peer, error }, operation));
        }
        let mut moved = match self.poll_own(floor, own)? {
            Progress::Done => return Ok(Progress::Done),
            progress => progress == Progress::Moved,
        };
        if self.mail.load(SeqCst) {
            let taken = self.take_mail(floor);
            taken.map_err(|(peer, error)| self.cause_of(Fault::Wire { peer, error }, None))?;
        }
        if !floor.is_idle() {
            let lanes = own.as_ref().map_or(0, |own| own.lanes);
            let polled = floor.jobs.poll(&floor.links, lanes);
            let (any, ended) = polled.map_err(|met| self.cause_of(met.0, met.1))?;
            moved |= any;
            if ended {
                let turns = self.turns();
                turns.ended.fetch_add(1, Relaxed);
                if turns.waiting.load(SeqCst) > 0 {
                    turns.over();
                }
            }
        }
        let reached = match until {
            Until::OwnDone => false,
            Until::Sent => true,
            Until::Over(completion) => completion.is_over(),
            Until::Idle => floor.is_idle() && !self.mail.load(SeqCst),
            Until::Relieved => {
                self.turns().waiting.load(SeqCst) > 0
                    || floor.is_idle() && !self.mail.load(SeqCst)
                    || self.is_stopping()
            }
        };
        // What is still under way somebody leads on, who pushes on what has not gone: whom that is for holds up nobody else.
        let is_led_on = matches!(until, Until::Over(_) | Until::Relieved | Until::Sent) && !floor.is_idle();
        Ok(match (reached && (is_led_on || !floor.links.unsent()), moved) {
            (true, _) => Progress::Done,
            (false, true) => Progress::Moved,
            (false, false) => Progress::Blocked,
        })
    }

    /// Takes in the jobs that have come, and gets the links ready for those of long messages.
    fn take_mail(&self, floor: &mut Floor) -> Result<(), (usize, Error)> {
        let mut desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
        self.mail.store(false, SeqCst);
        let jobs = std::mem::take(&mut desk.incoming);
        drop(desk);
        let mut lent = jobs.iter().filter_map(Job::lent);
        let ready = match self.closed.get() {
            None => lent.try_for_each(|(memory, to)| floor.links.get_ready(memory.each_ref(), to)),
            Some(_) => Ok(()),
        };
        let is_call = |job: &&Job| matches!(job.what, What::Collective(_));
        floor.ways.general += jobs.iter().filter(is_call).count() as u64;
        floor.jobs.extend(jobs.into_iter());
        ready
    }

    /// Sleeps unless something came before the bell was armed, which rang no bell.
    fn sleep(
        &self,
        floor: &mut Floor,
        own: &mut Option<Own<'_>>,
        until: Until<'_>,
        nap: Duration,
    ) -> Result<Progress, Cause> {
        let progress = match floor.links.arm() {
            Ok(()) => self.round(floor, own, until),
            Err(error) => {
                let cause = match error {
                    Error::Failed(cause) => cause,
                    error => Cause::Broken {
                        rank: self.membership.rank() as u32,
                        what: format!("it cannot sleep: {error}"),
                    },
                };
                Err(reasons::raise(&self.membership, cause))
            }
        };
        let progress = match progress {
            Ok(Progress::Blocked) => {
                floor.links.doze();
                self.round(floor, own, until)
            }
            progress => progress,
        };
        // What it hears may be what others wait to be rid of, and is nothing for which anything here waits.
        let heard = match progress {
            Ok(Progress::Blocked) => self.hear_all(floor),
            _ => Ok(true),
        };
        if matches!(heard, Ok(false)) {
            let is_cut_off = |ended: Instant| ended.elapsed() < reasons::CUT_OFF_SEEN;
            let nap = if self.membership.trouble() || floor.links.last_end().is_some_and(is_cut_off) {
                TROUBLED_NAP
            } else {
                nap
            };
            // Streams of devices ring no bell.
            let nap = if floor.jobs.watches() {
                nap.min(WATCHED_NAP)
            } else {
                nap
            };
            // What had come before the bell was armed, and was more than a look takes in, rings none.
            if !floor.links.may_have_more() {
                floor.links.sleep(nap);
            }
        }
        floor.links.disarm();
        heard.and(progress)
    }

    /// Takes in what any rank has announced, whatever this one waits for; whether there was anything.
    fn hear_all(&self, floor: &mut Floor) -> Result<bool, Cause> {
        let heard = floor.jobs.hear_all(&floor.links);
        let heard = heard.map_err(|met| self.cause_of(met.0, met.1))?;
        if heard && self.turns().waiting.load(SeqCst) > 0 {
            self.turns().over();
        }
        Ok(heard)
    }

    /// Looks whether something that stands still has no hope.
    ///
    /// # Errors
    /// The reason, if what stands still does so after another poll: all that a lost rank had sent came before its loss was
    /// seen.
    fn give_up(
        &self,
        floor: &mut Floor,
        own: &mut Option<Own<'_>>,
        until: Until<'_>,
        waited: Duration,
        ask: bool,
    ) -> Result<Progress, Cause> {
        let (membership, limit) = (&*self.membership, self.timeout());
        if floor.links.unsent() {
            let mut to = floor.links.unsent_to();
            to.retain(|&rank| matches!(membership.peer(rank), Peer::Left { .. }) && floor.links.let_go(rank));
            if !to.is_empty() {
                return self.round(floor, own, until);
            }
        }
        let all = stuck(floor, own.as_ref(), waited);
        let longest = all.iter().map(|one| one.waited).max().unwrap_or_default();
        let asks = floor.may_ask(longest, ask);
        if asks {
            self.check(floor, own.as_ref())?;
        }
        floor.questions.begin(longest);
        let mut outcome = Progress::Blocked;
        for (i, one) in all.into_iter().enumerate() {
            let ask = asks && one.waited >= FIRST_QUESTION;
            if ask {
                let (rank, ranks) = (membership.rank(), membership.ranks());
                let (waits_for, waited) = (&one.waits_for, one.waited);
                match &one.operation {
                    Some(operation) => {
                        debug!(
                            rank,
                            ranks, "wait: {waited:.1?} for ranks {waits_for:?} in {operation}"
                        );
                    }
                    None => debug!(rank, ranks, "wait: {waited:.1?} for ranks {waits_for:?}"),
                }
            }
            let reason = reasons::failure(membership, &floor.links, &one)
                .or_else(|| {
                    ask.then(|| reasons::difference(membership, &floor.links, &one, &mut floor.questions))
                        .flatten()
                })
                .or_else(|| (one.waited >= limit).then(|| reasons::late(membership, &one, limit)));
            let Some(cause) = reason else { continue };
            floor.links.look();
            let mut progress = self.round(floor, own, until)?;
            while progress == Progress::Blocked && floor.links.may_have_more() {
                progress = self.round(floor, own, until)?;
            }
            // Whether it is the leader's own that moved is known only of one that has waited.
            let goes_on = match progress {
                Progress::Done => true,
                Progress::Moved => one.waited.is_zero(),
                Progress::Blocked => false,
            };
            if goes_on && i == 0 && own.is_some() {
                return Ok(progress);
            }
            // What moved itself waits anew. Of messages the oldest is late, whomever the others are with.
            let again = match progress {
                Progress::Blocked => waited,
                Progress::Moved | Progress::Done => Duration::ZERO,
            };
            let is_late = matches!(cause, Cause::Late { .. });
            let still = stuck(floor, own.as_ref(), again);
            let same = |other: &Stuck| {
                other.operation == one.operation
                    && (is_late || other.waits_for == one.waits_for)
                    && other.waited >= one.waited
            };
            let may_come = one.waited < limit && reasons::under_way(membership, &floor.links, &one, &cause);
            if still.iter().any(same) && !may_come {
                let cause = floor
                    .jobs
                    .placed(reasons::first_of(membership, cause), membership.rank());
                return Err(reasons::raise(membership, cause));
            }
            match progress {
                Progress::Done => return Ok(progress),
                Progress::Moved => outcome = progress,
                Progress::Blocked => {}
            }
        }
        Ok(outcome)
    }

    /// Ends all that is under way because of `cause`.
    pub(super) fn fall(&self, floor: &mut Floor, cause: &Cause) {
        let cause = self.close(cause.clone());
        // Before anybody gets back memory from which others might still take messages.
        floor.links.withdraw();
        // It is closed, so that no link is got ready.
        let _ = self.take_mail(floor);
        floor.jobs.fail(&cause);
        self.turns().over();
    }
}

/// What stands still, the leader's own call first, which has done so for `waited`.
fn stuck(floor: &Floor, own: Option<&Own<'_>>, waited: Duration) -> Vec<Stuck> {
    let own = own.map(|own| {
        let mut waits_for = own.run.waits_for();
        if waits_for.is_empty() {
            waits_for = floor.links.unsent_to();
        }
        Stuck {
            operation: Some(own.call.into()),
            waits_for,
            waited: own.since.map_or(waited, |since| waited.max(floor.elapsed(since))),
        }
    });
    let mut all: Vec<Stuck> = own.into_iter().collect();
    floor.jobs.stuck(&mut all, |since| floor.elapsed(since));
    if all.is_empty() {
        // All is over, but for what the system has not taken yet; or nothing may begin yet, which is no other rank's fault.
        all.push(Stuck {
            operation: None,
            waits_for: floor.links.unsent_to(),
            waited: if floor.is_idle() { waited } else { Duration::ZERO },
        });
    }
    all
}

/// Says for others that ask what this rank waits for: the oldest of what stands still speaks for all.
fn say_waits(membership: &Membership, stuck: &[Stuck]) {
    let mut ranks: Vec<usize> = stuck.iter().flat_map(|one| one.waits_for.clone()).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let (operation, waited) =
        (stuck.first()).map_or((None, Duration::ZERO), |one| (one.operation, one.waited));
    membership.set_waiting(&ranks, operation, waited);
}

/// How long a gate that must be looked at is left alone.
const WATCHED_NAP: Duration = Duration::from_micros(50);
