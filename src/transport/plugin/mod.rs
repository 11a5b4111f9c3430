//! Wires of others: a library that is loaded at run time brings remote writes with immediates, by the C interface of
//! `include/ccl_net.h`. All that is about messages is done here.
//!
//! Each direction of a link has connections of its own, at least one for each device. Its sender makes its ends and hands their bytes over,
//! and the rank at the other side, when it looks at what came, makes its own, registers a ring for each lane, and answers. Until
//! then there is no link to send on. A message is written from the sender's ring to the same place of the receiver's, and its
//! immediate says where ([`ring`]). Credits go the other way as writes of no bytes. So nobody ever writes where there is no room,
//! and the wire's queues have bounds that it is told. Long messages of a lane take turns among the connections.
//!
//! Bodies in memory that callers had from this library need no copy: the sender's lie there while they are written, and a receiver
//! who waits says where it wants the next message, by a write onto the sender's desk: if the sender has not sent it yet, it is
//! written there and not into the ring. Nobody waits for that for long. Such memory is registered once, as a whole, and its addresses stay
//! taken as long as devices know it, though it be given back.
//!
//! The connection by which a link was made stays open and carries nothing: its end tells that nothing more will come.

mod abi;
mod ends;
mod frame;
mod inbound;
mod library;
mod outbound;
mod ring;
#[cfg(test)]
pub(crate) mod tests;
mod wire;

pub(crate) use frame::is_greeting;
pub(crate) use library::Plugin;
pub(crate) use wire::{Wire, joined};

use super::{CALL_LANES, Caps, Header, MAX_MESSAGE, Message, Reach, Ticket};
use crate::{
    mem::{
        Region,
        shared::{self, Allocation},
    },
    net::{Connection, Parcel},
    sys::{fork::ProcessFd, socket},
    types::{Cause, Error},
};
use abi::{ARRIVED, Event, FAILED, UNTOLD, WRITTEN};
use ends::Number;
use frame::Greeting;
use inbound::Inbound;
use outbound::{Outbound, Sent};
use ring::Word;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::{
    cell::{Cell, OnceCell},
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};
use tracing::warn;
use wire::{Memory, Part};

/// Messages that a lane holds.
pub(crate) const DEPTH: usize = 8;

/// The most ends of one direction of a link.
const MAX_ENDS: usize = CALL_LANES;

/// What a rank's links of this transport share.
pub(crate) struct Hub {
    wire: Arc<Wire>,
    /// The wire's descriptor, for those who wait.
    epoll: ProcessFd,
    /// Messages that are not written yet. One thread at a time counts.
    busy: AtomicUsize,
    /// Whether the wire had no room for something.
    is_full: AtomicBool,
    /// Whether more may have come than was looked at.
    may_have_more: AtomicBool,
    /// How often nothing had happened.
    quiet: AtomicUsize,
    /// How often this rank was about to sleep.
    sleeps: AtomicUsize,
    /// When the last connection ended, in whichever way.
    ended: Mutex<Option<Instant>>,
    allocations: Mutex<Vec<Known>>,
}

/// Callers' memory that devices were asked to know; `None`: they cannot.
type Known = (Arc<Allocation>, Option<Arc<Memory>>);

impl Hub {
    pub(crate) fn new(rank: usize, wire: &Arc<Wire>) -> Result<Hub, Error> {
        let epoll = ProcessFd::open(|| epoll::create(CreateFlags::CLOEXEC));
        let epoll = epoll.map_err(|e| Error::system("cannot make an epoll instance", e))?;
        let Some(descriptor) = wire.descriptor() else {
            let name = wire.name();
            return Err(broken(
                rank,
                format!("plugin {name} has no descriptor to wait for"),
            ));
        };
        epoll::add(&epoll, descriptor, EventData::new_u64(0), EventFlags::IN)
            .map_err(|e| Error::system("cannot wait for a plugin's descriptor", e))?;
        Ok(Hub {
            wire: Arc::clone(wire),
            epoll,
            busy: AtomicUsize::new(0),
            is_full: AtomicBool::new(false),
            may_have_more: AtomicBool::new(false),
            quiet: AtomicUsize::new(0),
            sleeps: AtomicUsize::new(0),
            ended: Mutex::default(),
            allocations: Mutex::default(),
        })
    }

    fn wire(&self) -> &Arc<Wire> {
        &self.wire
    }

    /// What all links by this wire can do.
    pub(crate) fn caps(&self) -> Caps {
        Caps {
            name: self.wire.name(),
            max_message: MAX_MESSAGE,
        }
    }

    /// Moves on what is under way: each thing that happened is for [`Link::progress`] of the link with that rank.
    pub(crate) fn progress<'l, E>(
        &self,
        links: impl Fn(usize) -> Option<&'l Link>,
        failed: impl Fn(usize, Error) -> E,
        rank: usize,
    ) -> Result<(), E> {
        let mut events = [Event::default(); AT_ONCE];
        let polled = self.wire.poll(&mut events);
        let count = polled
            .map_err(|why| failed(rank, broken(rank, format!("plugin {}: {why}", self.wire.name()))))?;
        self.may_have_more.store(count == AT_ONCE, Relaxed);
        if count == 0 {
            self.quiet.fetch_add(1, Relaxed);
        }
        for event in &events[..count] {
            let number = Number::decode(event.connection);
            if let Some(link) = links(number.peer) {
                link.progress(number, event).map_err(|e| failed(number.peer, e))?;
            }
        }
        Ok(())
    }

    /// Whether the wire had no room for something, which is to be [handed](Link::flush) to it again.
    pub(crate) fn was_full(&self) -> bool {
        self.is_full.load(Relaxed) && self.is_full.swap(false, Relaxed)
    }

    /// Has the hub's descriptor tell of what comes from now on.
    pub(crate) fn arm(&self, rank: usize) -> Result<(), Error> {
        self.sleeps.fetch_add(1, Relaxed);
        let armed = self.wire.arm();
        armed.map_err(|why| broken(rank, format!("plugin {}: {why}", self.wire.name())))
    }

    /// Whether more has come than was taken in the last time.
    pub(crate) fn may_have_more(&self) -> bool {
        self.may_have_more.load(Relaxed)
    }

    /// Whether something is still to be written.
    #[inline]
    pub(crate) fn unsent(&self) -> bool {
        self.busy.load(Relaxed) > 0
    }

    /// When the last connection ended, in whichever way.
    pub(crate) fn last_end(&self) -> Option<Instant> {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A piece of memory of a caller's as devices know it, if they can: of allocations that peers may read
    /// ([`shared`](crate::mem::shared)), each registered when it is first used. They alone are known, as it is known when they are
    /// given back.
    fn known(&self, body: &Region<'_>) -> Option<Part> {
        let mut all = self.allocations.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(allocation, _)| !allocation.is_freed());
        let found = all
            .iter()
            .find_map(|(allocation, memory)| Some((allocation.place_of(body)?, memory.clone())));
        let (at, memory) = match found {
            Some(found) => found,
            None => {
                let allocation = shared::find(body)?;
                let memory = Memory::of(&self.wire, &allocation)?;
                let memory = memory
                    .map_err(|why| warn!("{why}: its messages are copied"))
                    .ok()
                    .map(Arc::new);
                let at = allocation.place_of(body)?;
                all.push((allocation, memory.clone()));
                (at, memory)
            }
        };
        let (memory, len) = (memory?, body.len());
        Some(Part { memory, at, len })
    }

    /// Has devices forget callers' memory that nothing comes to or goes from, because of `why`; whether there was any.
    fn forget(&self, why: &str) -> bool {
        let mut all = self.allocations.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = |memory: &mut Arc<Memory>| Arc::strong_count(memory) == 1;
        let forgotten = all
            .iter_mut()
            .filter_map(|(_, memory)| memory.take_if(idle))
            .count();
        if forgotten > 0 {
            warn!("{why}: messages of {forgotten} allocations of callers' are copied instead");
        }
        forgotten > 0
    }

    fn sleeps(&self) -> usize {
        self.sleeps.load(Relaxed)
    }

    fn one_ended(&self) -> Instant {
        let now = Instant::now();
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        now
    }

    fn posted(&self) {
        self.busy.fetch_add(1, Relaxed);
    }

    fn settled(&self, messages: usize) {
        self.busy.fetch_sub(messages, Relaxed);
    }

    fn is_full(&self) {
        self.is_full.store(true, Relaxed);
    }
}

impl AsFd for Hub {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// One rank's end of a link: the halves that have been made so far.
pub(crate) struct Link {
    rank: usize,
    peer: usize,
    hub: Arc<Hub>,
    outbound: OnceCell<Outbound>,
    inbound: OnceCell<Inbound>,
    /// By which the halves were made; behind them, so that they close later.
    made_by: [OnceCell<ProcessFd>; 2],
    /// How often nothing had happened when the peer was first found to have closed its connection.
    over: Cell<Option<usize>>,
}

impl Link {
    pub(crate) fn new(rank: usize, peer: usize, hub: Arc<Hub>) -> Self {
        Link {
            rank,
            peer,
            hub,
            outbound: OnceCell::new(),
            inbound: OnceCell::new(),
            made_by: Default::default(),
            over: Cell::new(None),
        }
    }

    /// Whether the sending half was begun.
    pub(crate) fn is_begun(&self) -> bool {
        self.outbound.get().is_some()
    }

    /// Begins the sending half, which `connect` hands over with these bytes; it is there when the peer has answered.
    pub(crate) fn open(
        &self,
        connect: impl FnOnce(&dyn Fn(usize, usize) -> Vec<u8>) -> Result<Vec<Connection>, Error>,
    ) -> Result<(), Error> {
        let (half, greeting) = Outbound::open(self.rank, self.peer, &self.hub)?;
        let said = greeting.encode();
        // The answer may be there before this returns, but nobody looks at it before.
        if let Some(made_by) = connect(&|_, _| said.clone())?.pop() {
            let _ = self.made_by[0].set(made_by.fd);
        }
        let _ = self.outbound.set(half);
        Ok(())
    }

    /// Takes in what the peer says: an answer, after which this rank can send, or what wants one, after which it can receive.
    pub(crate) fn hear(&self, parcel: Parcel) -> Result<Heard, Error> {
        let Some(greeting) = Greeting::decode(&parcel.bytes) else {
            return Err(broken(
                self.peer,
                "it opened a link of another version".to_owned(),
            ));
        };
        let desk = match greeting.places {
            frame::Places::Desk(desk) => desk,
            frame::Places::Rings(rings) => {
                let Some(half) = self.outbound.get() else {
                    return Err(broken(self.peer, "it answered what was not asked".to_owned()));
                };
                half.joined(self.rank, &greeting.bytes, rings)?;
                return Ok(Heard::Sends);
            }
        };
        if self.inbound.get().is_some() {
            let what = format!("it opened a second link to rank {}", self.rank);
            return Err(broken(self.peer, what));
        }
        let (half, answer) = Inbound::accept(self.rank, self.peer, &greeting.bytes, desk, &self.hub)?;
        let _ = self.inbound.set(half);
        if let Some(fd) = parcel.fds.into_iter().next() {
            let _ = self.made_by[1].set(ProcessFd::adopt(fd));
        }
        Ok(Heard::Receives(answer.encode()))
    }

    /// Something happened.
    fn progress(&self, number: Number, event: &Event) -> Result<(), Error> {
        let of_plugin = |why| broken(self.rank, format!("plugin {}: {why}", self.hub.wire.name()));
        match (event.kind, number.sends, self.outbound.get(), self.inbound.get()) {
            (WRITTEN, ..) if event.id == UNTOLD => Ok(()),
            (WRITTEN, true, Some(half), _) => half.written(event.id, &self.hub).map_err(of_plugin),
            (WRITTEN, false, _, Some(half)) => half.written(event.id).map_err(of_plugin),
            (ARRIVED, true, Some(half), _) => match Word::decode(event.immediate) {
                Some(Word::Credit { lane, released }) => half.credited(lane, released),
                Some(Word::Wanted { lane, number }) => {
                    half.wanted(lane, number, &self.hub);
                    Ok(())
                }
                _ => Err(broken(
                    self.peer,
                    "it wrote what no rank of this version does".to_owned(),
                )),
            },
            (ARRIVED, false, _, Some(half)) => half.arrived(event.immediate, &self.hub),
            (FAILED, true, Some(half), _) => {
                half.ends().failed(number.index, half.unsent(), &self.hub);
                Ok(())
            }
            (FAILED, false, _, Some(half)) => {
                half.ends().failed(number.index, false, &self.hub);
                Ok(())
            }
            (WRITTEN | ARRIVED | FAILED, ..) => Ok(()), // of a half that could not be made
            (kind, ..) => Err(of_plugin(format!("there is no event {kind}"))),
        }
    }

    /// Hands the wire what it had no room for.
    pub(crate) fn flush(&self) {
        self.outbound.get().inspect(|half| half.flush(&self.hub));
        self.inbound.get().inspect(|half| half.flush(&self.hub));
    }

    /// Uses no memory of callers' any more.
    pub(crate) fn withdraw(&self) {
        self.outbound.get().inspect(|half| half.withdraw(&self.hub));
        self.inbound.get().inspect(|half| half.withdraw(&self.hub));
    }

    /// Whether something is still to be written.
    pub(crate) fn unsent(&self) -> bool {
        self.outbound.get().is_some_and(Outbound::unsent)
    }

    /// Whether messages were lost with their connection, and not given up.
    pub(crate) fn has_lost(&self) -> bool {
        let has_lost = |half: &Outbound| half.ends().are_broken() && half.unsent();
        self.outbound.get().is_some_and(has_lost)
    }

    /// The peer has left: nobody waits for what is still to be written. Whether there was anything.
    pub(crate) fn let_go(&self) -> bool {
        self.outbound.get().is_some_and(|half| half.let_go(&self.hub))
    }

    /// Whether more may come: the peer has not closed, or what it wrote before has not been looked for since.
    pub(crate) fn may_bring_more(&self) -> bool {
        let Some(half) = self.inbound.get() else {
            return false;
        };
        if half.ends().are_broken() {
            return false;
        }
        let closed = |fd: &ProcessFd| socket::receive_bytes(fd, &mut [0]).is_ok_and(|got| got == 0);
        let quiet = self.hub.quiet.load(Relaxed);
        match (self.over.get(), self.made_by[1].get()) {
            (Some(since), _) => quiet == since,
            (None, Some(fd)) if closed(fd) => {
                self.over.set(Some(quiet));
                true
            }
            (None, _) => true,
        }
    }

    /// What happened to its connections, and when, if they do not work any more.
    pub(crate) fn trouble(&self) -> Option<(String, Instant)> {
        let sends = self.outbound.get().and_then(|half| half.ends().trouble());
        let receives = self.inbound.get().and_then(|half| half.ends().trouble());
        sends.into_iter().chain(receives).min_by_key(|(_, since)| *since)
    }

    /// The wire's name.
    pub(crate) fn name(&self) -> &'static str {
        self.hub.wire.name()
    }

    /// How many messages it has sent, if that is known, for people.
    pub(crate) fn sent(&self) -> Option<String> {
        let Sent { all, lent, landed } = self.outbound.get()?.sent();
        Some(format!(
            "{all}, {lent} of them from where they lay, {landed} to where they were wanted"
        ))
    }

    /// Bytes of memory that its rings take.
    pub(crate) fn mapped(&self) -> usize {
        self.outbound.get().map_or(0, Outbound::mapped) + self.inbound.get().map_or(0, Inbound::mapped)
    }

    fn outbound(&self) -> &Outbound {
        let joined = self.outbound.get().filter(|half| half.is_joined());
        joined.expect("`Wires::to` gives no link that can not send")
    }

    fn inbound(&self) -> &Inbound {
        let half = self.inbound.get();
        half.expect("`Wires::from` gives no link that can not receive")
    }
}

/// What a link can do after a greeting.
pub(crate) enum Heard {
    Sends,
    /// And these bytes are to go to the peer.
    Receives(Vec<u8>),
}

impl super::Link for Link {
    fn caps(&self) -> Caps {
        self.hub.caps()
    }

    fn reserve(&self, lane: usize, len: usize) -> Result<Option<Region<'_>>, Error> {
        self.outbound().reserve(self.rank, lane, len, &self.hub)
    }

    fn commit(&self, lane: usize, header: Header) {
        self.outbound().commit(lane, header, &self.hub);
    }

    fn reach(&self, body: &Region<'_>) -> Reach {
        match body.len() >= OFFERED_LEAST && self.hub.known(body).is_some() {
            true => Reach::Sending,
            false => Reach::No,
        }
    }

    fn offer(&self, lane: usize, header: Header, body: Region<'_>) -> Result<Option<Ticket>, Error> {
        // Devices may have had to forget it meanwhile; then it is copied.
        let Some(part) = self.hub.known(&body) else {
            return Ok(None);
        };
        self.outbound().offer(self.rank, lane, header, part, &self.hub)
    }

    fn taken(&self, lane: usize, ticket: Ticket) -> bool {
        self.outbound().has_gone(lane, ticket)
    }

    fn land(&self, lane: usize, header: &Header, target: &Region<'_>) {
        self.inbound().land(lane, header, target, &self.hub);
    }

    fn peek(&self, lane: usize) -> Result<Option<Message<'_>>, Error> {
        Ok(self.inbound().peek(lane))
    }

    fn release(&self, lane: usize) {
        self.inbound().release(lane, &self.hub);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(half) = self.outbound.get() {
            half.give_up(&self.hub);
        }
    }
}

/// `rank` did what no rank of this version does; or its plugin does not work.
#[cold]
fn broken(rank: usize, what: String) -> Error {
    Error::Failed(Cause::Broken {
        rank: rank as u32,
        what,
    })
}

/// Bytes of a body that is worth a piece of a write of its own, so that it need not be copied.
const OFFERED_LEAST: usize = 4 << 10;

/// Events taken at once.
const AT_ONCE: usize = 64;
