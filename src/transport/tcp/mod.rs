//! TCP between ranks that do not share memory.
//!
//! Each direction of a link has connections of its own, made by its sender, so that whoever sends first needs to agree
//! with nobody. Lane l of a direction uses its connection l modulo their number; a message is a [`frame::Head`] and its
//! body. The credits of the direction r -> s travel on the connections of s -> r, in the heads of its messages or beside
//! them. So nothing ever comes in on a connection at its sender's end, and a rank that leaves at once after its last
//! message can close it: the system delivers what is under way, which it would throw away if something lay there unread.
//!
//! Nothing here waits. What is long, and what the system does not take at once, is sent by [`Outbound::progress`], and what has come
//! is taken in by [`Inbound::progress`], both when the [`Hub`] says that it is time. A receiver takes in all that comes,
//! whichever lane it is for: the credits bound how much that can be, so that no lane waits for another.

mod buffer;
mod frame;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod hub;
mod inbound;
mod outbound;
#[cfg(test)]
mod tests;

pub(crate) use frame::{hello, is_hello};
pub(crate) use hub::{Event, Hub};
pub(crate) use inbound::Arrival;
use inbound::Inbound;
pub(crate) use outbound::Outbound;

use super::{CALL_LANES, Caps, Header, LANES, MAX_MESSAGE, Message, Reach, Ticket};
use crate::{
    mem::Region,
    types::{Cause, Error},
};
use std::{
    cell::{Cell, OnceCell, RefCell},
    sync::Arc,
    time::{Duration, Instant},
};

/// Messages that a lane holds.
pub(crate) const DEPTH: usize = 8;

/// The most connections of one direction of a link.
pub(crate) const MAX_STREAMS: usize = CALL_LANES;

/// How links are made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Connections in each direction of a link, [`MAX_STREAMS`] at most; one for each interface that is used, if nothing is
    /// said.
    pub(crate) streams: Option<usize>,
    /// Their congestion control, if it is not the one that suits them.
    pub(crate) congestion: Option<String>,
    /// Which long messages the system sends from where they lie, without copying them.
    pub(crate) lends: Lends,
}

/// Which long messages the system sends from where they lie, where it can.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Lends {
    /// Those that it takes less time to.
    #[default]
    Auto,
    /// All of 128 KiB and more that belong to collectives.
    On,
    Off,
}

/// What every link of this transport can do.
pub(crate) const CAPS: Caps = Caps {
    name: "tcp",
    max_message: MAX_MESSAGE,
};

/// One rank's end of a link: the halves that have been made so far.
pub(crate) struct Link {
    peer: usize,
    hub: Arc<Hub>,
    outbound: OnceCell<Outbound>,
    inbound: OnceCell<Inbound>,
    /// Connections of the receiving half, until all have come.
    arrivals: RefCell<Vec<Arrival>>,
    /// Whether credits could not be sent for want of a sending half.
    owes: Cell<bool>,
    /// Whether no more credits are due, ever.
    peer_has_gone: Cell<bool>,
}

impl Link {
    pub(crate) fn new(peer: usize, hub: Arc<Hub>) -> Self {
        Link {
            peer,
            hub,
            outbound: OnceCell::new(),
            inbound: OnceCell::new(),
            arrivals: RefCell::default(),
            owes: Cell::new(false),
            peer_has_gone: Cell::new(false),
        }
    }

    /// Whether this rank can send on it.
    pub(crate) fn sends(&self) -> bool {
        self.outbound.get().is_some()
    }

    /// Adds the sending half; `false` if there is one already.
    pub(crate) fn set_outbound(&self, half: Outbound) -> bool {
        self.outbound.set(half).is_ok()
    }

    /// Adds a connection of the receiving half; `true` when that is then complete.
    ///
    /// # Errors
    /// That the peer is broken, if it has sent another one like it, or more than it said.
    pub(crate) fn add_inbound(&self, arrival: Arrival) -> Result<bool, Error> {
        let mut arrivals = self.arrivals.borrow_mut();
        let fits = arrivals.iter().all(|other| other.goes_with(&arrival));
        if !fits || self.inbound.get().is_some() {
            return Err(broken(self.peer, "it opened a connection too many".to_owned()));
        }
        arrivals.push(arrival);
        if !Arrival::are_all(&arrivals) {
            return Ok(false);
        }
        let half = Inbound::new(self.peer, std::mem::take(&mut *arrivals), &self.hub)?;
        Ok(self.inbound.set(half).is_ok())
    }

    /// Goes on with what an event of the hub is about.
    pub(crate) fn progress(&self, event: Event) -> Result<(), Error> {
        match event {
            Event::Out { stream, .. } => {
                if let Some(half) = self.outbound.get() {
                    half.progress(stream);
                }
                Ok(())
            }
            Event::In { stream, .. } => {
                if let Some(half) = self.inbound.get() {
                    half.progress(stream, self.outbound.get())?;
                    // Of what has come and stays with the peer it is to hear at once.
                    (0..LANES).for_each(|lane| self.settle(half, lane));
                }
                Ok(())
            }
        }
    }

    /// Sends the credits that are due on a lane, or notes that there is no way yet.
    fn settle(&self, half: &Inbound, lane: usize) {
        match self.outbound.get() {
            Some(out) => half.pay(lane, out),
            None if self.peer_has_gone.get() => {}
            None if half.owes(lane) && !self.owes.replace(true) => self.hub.owes(),
            None => {}
        }
    }

    /// Whether it needs a sending half for the credits of what it has received.
    pub(crate) fn owes(&self) -> bool {
        self.owes.get()
    }

    /// Sends the credits that it owes, now that it can.
    pub(crate) fn pay(&self) {
        if let (Some(out), Some(half), true) = (self.outbound.get(), self.inbound.get(), self.owes.get()) {
            self.owes.set(false);
            self.hub.paid();
            (0..LANES).for_each(|lane| half.pay(lane, out));
        }
    }

    /// Drops them for good: the peer has gone.
    pub(crate) fn forget_debts(&self) {
        self.peer_has_gone.set(true);
        if self.owes.replace(false) {
            self.hub.paid();
        }
    }

    /// Uses no memory of callers' any more: what was to be sent from there, or was to come there, is lost.
    pub(crate) fn withdraw(&self) {
        if let Some(half) = self.outbound.get() {
            half.withdraw();
        }
        self.withdraw_landings();
    }

    /// Has nothing come to memory of callers' any more.
    pub(crate) fn withdraw_landings(&self) {
        if let Some(half) = self.inbound.get() {
            half.withdraw();
        }
    }

    /// Whether something is still to be sent.
    pub(crate) fn unsent(&self) -> bool {
        self.owes.get() || self.outbound.get().is_some_and(Outbound::unsent)
    }

    /// Whether more may come: its peer has not closed all connections.
    pub(crate) fn may_bring_more(&self) -> bool {
        self.inbound.get().is_some_and(Inbound::is_open) || !self.arrivals.borrow().is_empty()
    }

    /// How long ago something came from the peer, as far as the system says.
    pub(crate) fn silent_for(&self) -> Option<Duration> {
        self.inbound.get()?.silent_for()
    }

    /// What happened to its connections, and when, if they do not work any more.
    pub(crate) fn trouble(&self) -> Option<(String, Instant)> {
        let sends = self.outbound.get().and_then(Outbound::trouble);
        let receives = self.inbound.get().and_then(Inbound::trouble);
        sends.into_iter().chain(receives).min_by_key(|(_, since)| *since)
    }

    /// As if sending on `lane` had failed.
    #[cfg(test)]
    pub(crate) fn break_off(&self, lane: usize) {
        self.outbound().break_off(lane);
    }

    /// Bytes of memory that its buffers take.
    pub(crate) fn mapped(&self) -> usize {
        self.outbound.get().map_or(0, Outbound::mapped) + self.inbound.get().map_or(0, Inbound::mapped)
    }

    /// What the peer hears along with a message of `lane`.
    fn released(&self, lane: usize) -> u32 {
        self.inbound.get().map_or(0, |half| half.pay_along(lane))
    }

    fn outbound(&self) -> &Outbound {
        self.outbound
            .get()
            .expect("`Wires::to` gives no link that can not send")
    }

    fn inbound(&self) -> &Inbound {
        self.inbound
            .get()
            .expect("`Wires::from` gives no link that can not receive")
    }
}

impl super::Link for Link {
    fn caps(&self) -> Caps {
        CAPS
    }

    fn reserve(&self, lane: usize, len: usize) -> Result<Option<Region<'_>>, Error> {
        self.outbound().reserve(lane, len)
    }

    fn commit(&self, lane: usize, header: Header) {
        self.outbound().commit(lane, header, self.released(lane));
    }

    fn reach(&self, _body: &Region<'_>) -> Reach {
        Reach::Sending
    }

    fn offer(&self, lane: usize, header: Header, body: Region<'_>) -> Result<Option<Ticket>, Error> {
        let released = || self.released(lane);
        self.outbound().offer(lane, header, released, body, false)
    }

    fn offer_pages(&self, lane: usize, header: Header, body: Region<'_>) -> Result<Option<Ticket>, Error> {
        let released = || self.released(lane);
        // By what comes from the peer it says that a body has come there.
        let is_answered = self.inbound.get().is_some();
        self.outbound().offer(lane, header, released, body, is_answered)
    }

    fn taken(&self, lane: usize, ticket: Ticket) -> bool {
        self.outbound().has_gone(lane, ticket)
    }

    fn land(&self, lane: usize, header: &Header, target: &Region<'_>) {
        self.inbound().land(lane, header, target);
    }

    fn peek(&self, lane: usize) -> Result<Option<Message<'_>>, Error> {
        Ok(self.inbound().peek(lane))
    }

    fn release(&self, lane: usize) {
        let half = self.inbound();
        half.release(lane);
        self.settle(half, lane);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.owes.get() {
            self.hub.paid();
        }
    }
}

/// `peer` did what no rank of this version does.
#[cold]
fn broken(peer: usize, what: String) -> Error {
    Error::Failed(Cause::Broken {
        rank: peer as u32,
        what,
    })
}
