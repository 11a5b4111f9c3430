//! Shared memory between the ranks of one machine.
//!
//! A link is two independent halves. The half r -> s is a [`layout::Segment`] that r makes when it first has something
//! for s, and hands to s as a descriptor: whoever sends first needs to agree with nobody. s attaches it when it comes.
//! Each rank has one [`Bell`], which all its peers ring when they have done something that it may be asleep for.

mod bell;
mod distance;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod handed;
mod inbound;
mod layout;
mod neighbour;
mod outbound;
mod pace;
mod pair;
mod pool;
mod room;
mod tally;
#[cfg(test)]
mod tests;

pub(crate) use bell::Bell;
pub(crate) use handed::Mapping;
pub(crate) use inbound::Inbound;
pub(crate) use layout::INLINE;
#[cfg(test)]
pub(crate) use layout::{DEEP, SHALLOW};
pub(crate) use outbound::{Opening, Outbound};
pub(crate) use pair::MAX_SHOWN;
pub(crate) use pool::Lease;

use super::{CALL_LANES, Caps, Expected, Header, Message, Pinned, Reach, Ticket};
use crate::{
    mem::{Region, shared::Allocation},
    net::Parcel,
    types::{Cause, Error},
};
use pair::{Pair, Side};
use std::{cell::OnceCell, fmt, io, sync::Arc};

/// How ranks may get at each other's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ways {
    /// By system calls.
    pub(crate) attach: bool,
    /// By loads: where the peer is a thread of the same process, and of memory that it has handed over.
    pub(crate) direct: bool,
    /// What the direction is of which link: a number of the communicator, its sender and its receiver.
    pub(crate) link: [u64; 3],
}

impl Ways {
    /// Whether the direction's sender has the line that both ranks write.
    fn sender_is_host(&self) -> bool {
        let [_, sender, receiver] = self.link;
        sender < receiver
    }
}

/// One rank's end of a link: the halves that have been made so far.
#[derive(Default)]
pub(crate) struct Link {
    outbound: OnceCell<Box<Outbound>>,
    inbound: OnceCell<Box<Inbound>>,
}

impl Link {
    /// Adds the sending half; `false` if there is one already.
    pub(crate) fn set_outbound(&self, half: Outbound) -> bool {
        self.outbound.set(Box::new(half)).is_ok()
    }

    /// Adds the receiving half; `false` if there is one already.
    pub(crate) fn set_inbound(&self, half: Inbound) -> bool {
        self.inbound.set(Box::new(half)).is_ok()
    }

    /// Withdraws all that was offered and is not taken.
    pub(crate) fn withdraw(&self) {
        if let Some(half) = self.outbound.get() {
            half.withdraw();
        }
    }

    /// See [`Lease::give_back`].
    pub(crate) fn leave(&self) {
        if let Some(half) = self.outbound.get() {
            half.leave();
        }
    }

    /// Adds memory that the peer has handed over; `false` if there is no receiving half.
    pub(crate) fn admit(&mut self, mapping: Mapping) -> bool {
        let half = self.inbound.get_mut();
        half.map(|half| half.admit(mapping)).is_some()
    }

    /// What to hand to the peer, so that it can read `memory`; `None` if it knows of it, cannot have it, or need not.
    pub(crate) fn hand_over(&self, memory: &Arc<Allocation>) -> io::Result<Option<Parcel>> {
        self.outbound
            .get()
            .map_or(Ok(None), |half| half.hand_over(memory))
    }

    /// Whether the peer may send messages that are read where they lie with it.
    pub(crate) fn may_lend(&self) -> bool {
        self.inbound.get().is_some_and(|half| half.may_lend())
    }

    /// Which ways the messages have gone that this rank has sent, for the log.
    pub(crate) fn sent(&self) -> Option<impl fmt::Display> {
        self.outbound.get().map(|half| half.told_of_messages())
    }

    /// Bytes of address space that it takes.
    pub(crate) fn mapped(&self) -> usize {
        self.outbound.get().map_or(0, |half| half.mapped())
            + self.inbound.get().map_or(0, |half| half.mapped())
    }

    /// How many messages of `lane` this rank has released, which it says beside what it sends.
    #[inline]
    fn released(&self, lane: usize) -> u32 {
        self.inbound.get().map_or(0, |half| half.released(lane))
    }

    #[inline]
    fn outbound(&self) -> &Outbound {
        self.outbound
            .get()
            .expect("`Wires::to` gives no link that can not send")
    }

    /// The line that both ranks write, and which of them this one is, if it is known.
    #[inline]
    fn pair(&self) -> Option<(&Pair, Side)> {
        let ours = self.outbound.get().and_then(|half| half.pair());
        let theirs = || self.inbound.get().and_then(|half| half.pair());
        match ours {
            Some(pair) => Some((pair, Side::Host)),
            None => theirs().map(|pair| (pair, Side::Guest)),
        }
    }

    /// The sending half, if there is one.
    #[inline]
    fn ours(&self) -> Option<&Outbound> {
        self.outbound.get().map(|half| &**half)
    }

    #[inline]
    fn inbound(&self) -> &Inbound {
        self.inbound
            .get()
            .expect("`Wires::from` gives no link that can not receive")
    }
}

/// What every link of this transport can do.
pub(crate) const CAPS: Caps = Caps {
    name: "shm",
    max_message: layout::MAX_MESSAGE,
};

impl super::Link for Link {
    #[inline]
    fn caps(&self) -> Caps {
        CAPS
    }

    #[inline]
    fn reserve(&self, lane: usize, len: usize) -> Result<Option<Region<'_>>, Error> {
        self.outbound().reserve(lane, len)
    }

    #[inline]
    fn reserve_with(&self, first: &Self, lane: usize) -> Result<Option<bool>, Error> {
        self.outbound().reserve_with(first.outbound(), lane)
    }

    #[inline]
    fn reserve_open(&self, lane: usize, len: usize) -> Result<Option<Region<'_>>, Error> {
        match self.outbound().reserve_open(lane, len) {
            None => self.reserve(lane, len),
            room => Ok(room),
        }
    }

    #[inline]
    fn answer(&self, lane: usize, len: usize) -> Option<Region<'_>> {
        let room = self.inbound.get()?.open(lane, len)?;
        self.outbound().reserve_answer(lane, len).then_some(room)
    }

    #[inline]
    fn commit(&self, lane: usize, header: Header) {
        self.outbound().commit(lane, header, self.released(lane));
    }

    #[inline]
    fn has_credit(&self, lane: usize, len: usize) -> Option<bool> {
        self.outbound().has_room(lane, len).ok()
    }

    #[inline(always)] // in the path of each short call
    fn send(&self, lane: usize, header: Header, body: &Region<'_>) -> Option<bool> {
        let received = self.released(lane);
        self.outbound().send(lane, header, body, received, None)
    }

    #[inline(always)] // in the path of each short call
    fn send_shown(&self, lane: usize, header: Header, body: &Region<'_>) -> Option<bool> {
        let received = self.released(lane);
        self.outbound().send(lane, header, body, received, self.pair())
    }

    #[inline]
    fn commit_shown(&self, lane: usize, header: Header) {
        let received = self.released(lane);
        self.outbound().commit_beside(lane, header, received, self.pair());
    }

    #[inline(always)] // in the path of each short call
    fn take_shown(&self, lane: usize, header: &Header, len: usize, looks: u32) -> Option<u64> {
        let (pair, side) = self.pair()?;
        self.inbound()
            .take_shown(lane, header, len, looks, (pair, side.other()))
    }

    #[inline]
    fn reach(&self, body: &Region<'_>) -> Reach {
        self.outbound.get().map_or(Reach::No, |half| half.reach(body))
    }

    #[inline]
    fn is_far(&self) -> bool {
        self.outbound.get().is_some_and(|half| half.is_far())
    }

    fn offer(&self, lane: usize, header: Header, body: Region<'_>) -> Result<Option<Ticket>, Error> {
        self.outbound().offer(lane, header, body, self.released(lane))
    }

    fn taken(&self, lane: usize, ticket: Ticket) -> bool {
        self.outbound().taken(lane, ticket)
    }

    #[inline]
    fn peek(&self, lane: usize) -> Result<Option<Message<'_>>, Error> {
        let found = self.inbound().peek(lane, self.ours())?;
        if lane < CALL_LANES
            && let (Some((_, word)), Some(outbound)) = (&found, self.outbound.get())
        {
            outbound.told(lane, *word);
        }
        Ok(found.map(|(message, _)| message))
    }

    #[inline]
    fn comes_alone(&self) -> bool {
        true
    }

    #[inline(always)] // in the path of each short call
    fn expect(&self, lane: usize, header: &Header, len: usize) -> Expected<'_> {
        let (found, word) = self.inbound().expect(lane, header, len, self.ours());
        if lane < CALL_LANES
            && let (Expected::Body(_), Some(outbound)) = (&found, self.outbound.get())
        {
            outbound.told(lane, word);
        }
        found
    }

    #[inline]
    fn foresee(&self, lane: usize, len: usize) {
        self.inbound().foresee(lane, len);
    }

    fn take(&self, lane: usize, target: &Region<'_>) -> Result<bool, Error> {
        self.inbound().take(lane, target, self.ours())
    }

    fn pin(&self, lane: usize, len: usize) -> Result<Option<Pinned<'_>>, Error> {
        self.inbound().pin(lane, len)
    }

    #[inline]
    fn release(&self, lane: usize) {
        self.inbound().release(lane);
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

/// `peer`'s memory was not taken, be it its fault (`InvalidData`) or that of the system here.
#[cold]
fn refused(peer: usize, err: io::Error) -> Error {
    if err.kind() == io::ErrorKind::InvalidData {
        broken(peer, format!("its shared memory was refused: {err}"))
    } else {
        Error::system(
            format!("the shared memory of rank {peer} could not be mapped"),
            err,
        )
    }
}
