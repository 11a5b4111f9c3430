//! [`Patience`]: making connections and talking on them while a thread waits.

use super::{
    Address, Channel, DialError, Dialer, Dialing, Frame, FrameError, Target,
    dial::{Round, SILENCE},
    frame::Packed,
};
use crate::sys::poll::{self, Ready};
use std::{
    cell::{Cell, RefCell},
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd},
    thread,
    time::{Duration, Instant},
};

/// How long a waiting thread goes on.
pub(crate) struct Patience<'a> {
    pub(crate) deadline: Instant,
    /// Whether waiting has become pointless; asked every [`SLICE`].
    pub(crate) stop: &'a dyn Fn() -> bool,
    /// When it was last asked, and how long nobody did, as while the process was stopped: that is no waiting.
    asked: Cell<Instant>,
    lost: Cell<Duration>,
    /// The addresses of the network that led nowhere, and why.
    tried: RefCell<Vec<Tried>>,
}

/// Why a waiting thread came back without what it waited for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("it did not answer in time")]
    Late,
    #[error("waiting became pointless")]
    Stopped,
    /// No address leads there from here: see the reason.
    #[error("{0}")]
    Nowhere(String),
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error(transparent)]
    Frame(#[from] FrameError),
}

impl<'a> Patience<'a> {
    pub(crate) fn new(deadline: Instant, stop: &'a dyn Fn() -> bool) -> Self {
        Patience {
            deadline,
            stop,
            asked: Cell::new(Instant::now()),
            lost: Cell::default(),
            tried: RefCell::default(),
        }
    }

    /// The addresses of the network that led nowhere the last time that they were tried, each with its reason; empty if there
    /// are none.
    pub(crate) fn tried(&self) -> String {
        tell_tried(&self.tried.borrow())
    }

    /// Forgets them: there is another way.
    pub(crate) fn forget_tried(&self) {
        self.tried.borrow_mut().clear();
    }

    /// Connects by the first address that leads to somebody, trying again while the other side is busy, or silent.
    pub(crate) fn dial(&self, target: &Target) -> Result<Channel, Failure> {
        self.dial_until(target, None)
    }

    /// The same, which tries again until then alone, if there is such a time.
    ///
    /// # Errors
    /// That nothing came back, then.
    pub(crate) fn dial_until(&self, target: &Target, until: Option<Instant>) -> Result<Channel, Failure> {
        let mut silence = SILENCE;
        loop {
            let mut round = Round::default();
            for &address in &target.addresses {
                let others = target.addresses.len() > 1 || until.is_some();
                let one = self.dial_all(target, &[(address, None)], silence, others)?;
                match one.into_iter().next() {
                    Some(Ok(channel)) => return Ok(channel),
                    Some(Err(why)) => round.failed(address, why),
                    None => (),
                }
            }
            match round.verdict() {
                why if why.may_pass() && until.is_none_or(|until| Instant::now() < until) => {
                    silence = LONGEST_SILENCE.min(2 * silence)
                }
                why => return Err(why.into()),
            }
        }
    }

    /// Connects to all these addresses, from those of our own, at once, trying again while the other side is busy. What becomes
    /// of each: `silence` is how long one may take to come about, and, once another one is there, to get on. `others`: whether there
    /// are others to try where all of these are busy or mute for long.
    ///
    /// # Errors
    /// When it is of no use to go on.
    pub(crate) fn dial_all(
        &self,
        target: &Target,
        spots: &[(Address, Option<IpAddr>)],
        silence: Duration,
        others: bool,
    ) -> Result<Vec<Result<Channel, DialError>>, Failure> {
        // Also where all fail at once, time after time.
        self.time_left();
        let mute = Instant::now() + LONGEST_SILENCE;
        let mut attempts: Vec<Attempt<'_>> = spots
            .iter()
            .map(|&(address, source)| Attempt::begin(target, address, source, silence))
            .collect();
        loop {
            let some_met = attempts.iter().any(Attempt::has_met);
            let need_not = some_met || (others && Instant::now() >= mute);
            attempts.iter_mut().for_each(|attempt| attempt.go_on(need_not));
            if attempts.iter().all(Attempt::is_over) {
                break;
            }
            let left = self.left().inspect_err(|_| self.note_last(&attempts))?;
            let waits: Vec<_> = attempts.iter().filter_map(Attempt::waits_for).collect();
            match waits[..] {
                [] => thread::sleep(RETRY),
                _ => poll::wait_any(&waits, left.min(SLICE)).map_err(|e| FrameError::Io(e.into()))?,
            }
        }
        self.note(&attempts);
        Ok(attempts.into_iter().map(Attempt::outcome).collect())
    }

    /// Keeps what these attempts have come to when the time is up. Where somebody is there who does not speak, the network is
    /// not what is wrong.
    fn note_last(&self, attempts: &[Attempt<'_>]) {
        match attempts.iter().any(Attempt::is_heard) {
            true => self.tried.borrow_mut().clear(),
            false => self.note(attempts),
        }
    }

    /// Keeps what these attempts have come to.
    fn note(&self, attempts: &[Attempt<'_>]) {
        let mut tried = self.tried.borrow_mut();
        if attempts.iter().any(Attempt::has_met) {
            tried.clear(); // there is a way
            return;
        }
        for attempt in attempts.iter().filter(|attempt| attempt.address.is_tcp()) {
            tried.retain(|(address, _)| *address != attempt.address);
            tried.extend(attempt.complaint().map(|why| (attempt.address, why)));
        }
    }

    /// Sends a message, whole.
    pub(crate) fn send(&self, channel: &mut Channel, message: Packed) -> Result<(), Failure> {
        channel.post(message);
        loop {
            channel.flush()?;
            if !channel.unsent() {
                return Ok(());
            }
            self.wait(channel.as_fd(), Ready::Write)?;
        }
    }

    /// Waits for a message.
    pub(crate) fn receive(&self, channel: &mut Channel) -> Result<Frame, Failure> {
        loop {
            if let Some(frame) = channel.next()? {
                return Ok(frame);
            }
            if !channel.fill()? {
                self.wait(channel.as_fd(), Ready::Read)?;
            }
        }
    }

    fn wait(&self, fd: BorrowedFd<'_>, ready: Ready) -> Result<(), Failure> {
        let slice = self.left()?.min(SLICE);
        poll::wait(fd, ready, slice).map_err(|e| FrameError::Io(e.into()))?;
        Ok(())
    }

    /// The time left, if there is any and a reason to use it.
    fn left(&self) -> Result<Duration, Failure> {
        let left = self.time_left();
        if (self.stop)() {
            return Err(Failure::Stopped);
        }
        // It may take long, and that is waiting, too.
        self.asked.set(Instant::now());
        match left {
            Duration::ZERO => Err(Failure::Late),
            left => Ok(left),
        }
    }

    /// The time until the deadline.
    pub(crate) fn time_left(&self) -> Duration {
        let now = Instant::now();
        let unasked = now.saturating_duration_since(self.asked.replace(now));
        let lost = self.lost.get() + unasked.saturating_sub(GAP);
        self.lost.set(lost);
        (self.deadline + lost).saturating_duration_since(now)
    }
}

/// An address that led nowhere, and why.
pub(crate) type Tried = (Address, String);

/// Addresses that led nowhere, for messages.
pub(crate) fn tell_tried(tried: &[Tried]) -> String {
    let all: Vec<String> = tried
        .iter()
        .map(|(address, why)| format!("{address} ({why})"))
        .collect();
    all.join(", ")
}

/// A connection that is to be made to one address.
struct Attempt<'a> {
    target: &'a Target,
    address: Address,
    source: Option<IpAddr>,
    silence: Duration,
    /// Until when it must have got on: later once somebody has answered, the first time.
    limit: Instant,
    answered: bool,
    state: State,
}

enum State {
    Dialing(Dialer),
    /// To be begun again then.
    Pause(Instant),
    Over(Result<Channel, DialError>),
}

impl<'a> Attempt<'a> {
    fn begin(target: &'a Target, address: Address, source: Option<IpAddr>, silence: Duration) -> Self {
        let mut attempt = Attempt {
            target,
            address,
            source,
            silence,
            limit: Instant::now() + silence,
            answered: false,
            state: State::Pause(Instant::now()),
        };
        attempt.again();
        attempt
    }

    fn again(&mut self) {
        self.state = match Dialer::begin(self.target, self.address, self.source) {
            Ok(dialer) => State::Dialing(dialer),
            Err(why) => State::failed(why),
        };
    }

    /// Goes on with what has come. `need_not`: whether this one need not be waited for long, as another one is there.
    fn go_on(&mut self, need_not: bool) {
        let now = Instant::now();
        match &mut self.state {
            State::Pause(_) if need_not && now >= self.limit => {
                self.state = State::Over(Err(DialError::Busy));
            }
            State::Pause(until) if *until <= now => self.again(),
            State::Pause(_) | State::Over(_) => (),
            State::Dialing(_) => self.advance(now, need_not),
        }
    }

    fn advance(&mut self, now: Instant, need_not: bool) {
        let State::Dialing(dialer) = std::mem::replace(&mut self.state, State::Pause(now)) else {
            return;
        };
        let was_connecting = dialer.is_connecting();
        self.state = match dialer.advance() {
            Ok(Dialing::Met(channel)) => State::Over(Ok(channel)),
            Err(why) => State::failed(why),
            Ok(Dialing::Waiting(dialer)) => {
                if was_connecting && !dialer.is_connecting() && !std::mem::replace(&mut self.answered, true) {
                    self.limit = now + self.silence;
                }
                match now >= self.limit && (dialer.is_connecting() || need_not) {
                    true => State::Over(Err(DialError::Silent)),
                    false => State::Dialing(dialer),
                }
            }
        };
    }

    fn has_met(&self) -> bool {
        matches!(self.state, State::Over(Ok(_)))
    }

    /// Whether somebody is there who has not said all yet.
    fn is_heard(&self) -> bool {
        matches!(&self.state, State::Dialing(dialer) if !dialer.is_connecting())
    }

    fn is_over(&self) -> bool {
        matches!(self.state, State::Over(_))
    }

    fn waits_for(&self) -> Option<(BorrowedFd<'_>, Ready)> {
        match &self.state {
            State::Dialing(dialer) => Some((dialer.as_fd(), dialer.waits_for())),
            State::Pause(_) | State::Over(_) => None,
        }
    }

    /// What there is to say of it, if it is not there.
    fn complaint(&self) -> Option<String> {
        match &self.state {
            State::Over(Ok(_)) => None,
            State::Over(Err(why)) => Some(why.to_string()),
            State::Dialing(_) => Some(DialError::Silent.to_string()),
            State::Pause(_) => Some(DialError::Busy.to_string()),
        }
    }

    fn outcome(self) -> Result<Channel, DialError> {
        match self.state {
            State::Over(outcome) => outcome,
            State::Dialing(_) | State::Pause(_) => Err(DialError::Busy),
        }
    }
}

impl State {
    fn failed(why: DialError) -> State {
        match why {
            DialError::Busy => State::Pause(Instant::now() + RETRY),
            why => State::Over(Err(why)),
        }
    }
}

/// The longest that a connection may take to come about before others are tried again.
pub(crate) const LONGEST_SILENCE: Duration = Duration::from_secs(5);
/// The most that counts as waiting between two looks at the time.
const GAP: Duration = Duration::from_secs(1);
/// How often a waiting thread looks up.
const SLICE: Duration = Duration::from_millis(20);
/// How long to leave a busy listener alone.
const RETRY: Duration = Duration::from_millis(5);
