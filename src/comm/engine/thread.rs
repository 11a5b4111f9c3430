//! Who leads: callers that wait, and the engine's own thread when there are none.

use super::{
    Engine,
    floor::{Floor, Held},
    lead::Until,
};
use crate::{
    exec::Completion,
    sys::thread::spawn_quiet,
    types::{Cause, Error, Result},
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, PoisonError,
        atomic::Ordering::{Relaxed, SeqCst},
    },
    time::{Duration, Instant},
};

impl Engine {
    /// Waits until an operation is over, leading meanwhile if nobody else does.
    pub(in crate::comm) fn wait_for(&self, completion: &Completion) {
        if !completion.is_over() {
            self.wait_until(Until::Over(completion));
        }
    }

    pub(super) fn wait_until(&self, until: Until<'_>) {
        let turns = self.turns();
        turns.waiting.fetch_add(1, SeqCst);
        self.bell.wake();
        loop {
            let turn = turns.turn();
            if self.is_reached(until) {
                break;
            }
            // Under the lock of turns: who leads now will find this thread waiting when it steps back.
            match self.try_floor() {
                Some(floor) => {
                    drop(turn);
                    self.take_over(floor, until);
                }
                None => drop(turns.wait(turn)),
            }
        }
        turns.waiting.fetch_sub(1, SeqCst);
        // The thread may have stepped back for this caller.
        turns.over();
    }

    /// Whether what a caller waits for has come, as far as can be seen without the floor.
    fn is_reached(&self, until: Until<'_>) -> bool {
        match until {
            Until::OwnDone | Until::Sent => false,
            Until::Over(completion) => completion.is_over(),
            Until::Idle | Until::Relieved => !self.turns().left.load(SeqCst),
        }
    }

    /// Leads. How that went, the operations' ends tell.
    fn take_over(&self, mut floor: Held<'_>, until: Until<'_>) {
        let led = catch_unwind(AssertUnwindSafe(|| self.lead(&mut floor, None, until)));
        if led.is_err() {
            self.break_down(&mut floor);
        }
        self.step_back(floor);
    }

    /// Ends all that is under way after a panic.
    pub(super) fn break_down(&self, floor: &mut Floor) {
        let cause = Cause::Broken {
            rank: self.membership.rank() as u32,
            what: "a call on the communicator panicked".to_owned(),
        };
        let cause = self.membership.raise(cause);
        self.fall(floor, &cause);
    }

    /// Gives up the floor, for whoever waits for it or for the thread.
    pub(super) fn step_back(&self, floor: Held<'_>) {
        let turns = self.turns();
        if turns.left.load(SeqCst) && floor.is_idle() {
            // Under the lock of turns: who asks whether something is left does so there, and never finds it gone for a moment.
            let _turn = turns.turn();
            turns.left.store(false, SeqCst);
            if self.mail.load(SeqCst) {
                turns.left.store(true, SeqCst);
            }
        }
        if floor.is_idle() {
            floor.links.rest();
        }
    }

    /// [`Engine::step_back`] from a floor where nothing is under way.
    #[inline(always)] // in the path of each short call
    pub(super) fn step_back_idle(&self, floor: Held<'_>) {
        match self.turns().left.load(Relaxed) || floor.links.are_wanted() {
            true => self.step_back(floor),
            false => floor.leave(),
        }
    }

    /// Has whoever leads, or the thread, look at the desk and at gates.
    pub(in crate::comm) fn nudge(&self) {
        let turns = self.turns();
        self.mail.store(true, SeqCst);
        turns.left.store(true, SeqCst);
        self.bell.wake();
        turns.over();
    }

    /// Makes the engine's own thread if it is not there.
    ///
    /// # Errors
    /// [`Error::System`] when the system has no room for a thread.
    pub(super) fn need_thread(self: &Arc<Self>) -> Result<()> {
        let mut turn = self.turns().turn();
        if !turn.running && !turn.stop {
            let engine = Some(self.clone());
            spawn_quiet(c"ccl-progress", engine, |engine| {
                if let Some(engine) = engine.take() {
                    engine.serve();
                }
            })
            .map_err(|e| Error::system("cannot start a thread for operations that nobody waits for", e))?;
            turn.running = true;
        }
        Ok(())
    }

    /// Leads whenever there is something to lead and nobody waits.
    fn serve(&self) {
        let turns = self.turns();
        let mut turn = turns.turn();
        while !turn.stop {
            if turns.left.load(SeqCst)
                && turns.waiting.load(SeqCst) == 0
                && let Some(floor) = self.try_floor()
            {
                drop(turn);
                self.take_over(floor, Until::Relieved);
                turn = turns.turn();
                continue;
            }
            turn = turns.wait(turn);
        }
        turn.running = false;
        turns.turned.notify_all();
    }

    /// Ends the thread, if there is one, and waits until it is gone.
    pub(in crate::comm) fn stop(&self) {
        let turns = self.turns();
        let mut turn = turns.turn();
        turn.stop = true;
        turns.turned.notify_all();
        let end = Instant::now() + STOP_WAIT;
        while turn.running {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            self.bell.wake();
            let woken = turns.turned.wait_timeout(turn, left.min(LOOK));
            turn = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.turns().turn().stop
    }
}

/// How long [`Engine::stop`] waits for the thread, and how often it looks.
const STOP_WAIT: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);
