//! The sending half of a link.

use super::{
    DEPTH, Hub, broken,
    ends::{Ends, Post},
    frame::{self, Greeting},
    inbound::WANTED_LEAST,
    ring::{self, DESK, Head, Place, Places, RING, Wanted, Word},
    wire::{Memory, Part},
};
use crate::{
    mem::Region,
    transport::{Header, LANES, MAX_MESSAGE, Ticket},
    types::Error,
};
use smallvec::{SmallVec, smallvec};
use std::{
    cell::{Cell, OnceCell, RefCell},
    sync::Arc,
};

/// The sending half of a link. Messages are written from rings of its own, or from where they lie, into rings of the receiver's, or
/// to where it wants them.
pub(super) struct Outbound {
    peer: usize,
    ends: Ends,
    /// The receiver's rings, when it has answered.
    targets: OnceCell<Vec<Place>>,
    /// Behind the ends, which use the rings.
    lanes: [SendLane; LANES],
    /// Where the receiver says what it wants.
    desk: Arc<Memory>,
    /// Messages that were given up.
    lost: Cell<usize>,
    sent: Cell<Sent>,
}

/// How many messages were sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) all: u64,
    /// From where they lay with the caller.
    pub(super) lent: u64,
    /// To where the receiver wanted them.
    pub(super) landed: u64,
}

#[derive(Default)]
struct SendLane {
    /// Messages sent, modulo 2^32: the number of the next one.
    sent: Cell<u32>,
    /// The first message that the wire has not written: at most [`DEPTH`] behind `sent`.
    written: Cell<u32>,
    /// Those behind it that it has written, by other connections: a bit for each.
    written_early: Cell<u32>,
    /// Messages that the receiver is known to have released: at most [`DEPTH`] behind `sent`.
    released: Cell<u32>,
    /// The reserved body, if there is one: where, and its bytes.
    reserved: Cell<Option<(usize, usize)>>,
    places: Cell<Places>,
    /// Made with the first message.
    ring: OnceCell<Arc<Memory>>,
    /// How many more looks a message that is sent from where it lies waits for the receiver to say where it wants it, as long as the
    /// hub has slept so often. None, unless the receiver has said so of one of late: most then are wanted a little after they could
    /// be sent.
    patience: Cell<(u32, usize)>,
    /// What the receiver said of the next message.
    wanted: RefCell<Option<Wanted>>,
    /// The memory of messages that are sent from where they lie, until they are written.
    lent: RefCell<[Option<Arc<Memory>>; DEPTH]>,
}

impl Outbound {
    /// The half that sends to `peer`, and what the peer needs to make the other one.
    pub(super) fn open(rank: usize, peer: usize, hub: &Hub) -> Result<(Outbound, Greeting), Error> {
        let (ends, bytes) = Ends::to(rank, peer, hub)?;
        let desk = ends.memory(DESK, hub).map_err(|why| broken(rank, why))?;
        let place = ends.place(&desk, 0);
        let half = Outbound {
            peer,
            ends,
            targets: OnceCell::new(),
            lanes: Default::default(),
            desk,
            lost: Cell::new(0),
            sent: Cell::default(),
        };
        let place = place.ok_or_else(|| Error::internal("a desk that its connections do not know"))?;
        let places = frame::Places::Desk(place);
        Ok((half, Greeting { bytes, places }))
    }

    /// The peer has made its half: from here on messages can be sent.
    pub(super) fn joined(&self, rank: usize, bytes: &[Vec<u8>], rings: Vec<Place>) -> Result<(), Error> {
        if bytes.len() != self.ends.count() {
            return Err(broken(
                self.peer,
                "it answered what no rank of this version does".to_owned(),
            ));
        }
        if self.is_joined() {
            return Err(broken(self.peer, "it answered twice".to_owned()));
        }
        // One that has broken meanwhile is told of by whoever waits.
        if !self.ends.are_broken() {
            self.ends.join(rank, bytes)?;
        }
        self.targets.get_or_init(|| rings);
        Ok(())
    }

    pub(super) fn is_joined(&self) -> bool {
        self.targets.get().is_some()
    }

    /// How many messages were sent.
    pub(super) fn sent(&self) -> Sent {
        self.sent.get()
    }

    pub(super) fn ends(&self) -> &Ends {
        &self.ends
    }

    pub(super) fn reserve(
        &self,
        rank: usize,
        lane: usize,
        len: usize,
        hub: &Hub,
    ) -> Result<Option<Region<'_>>, Error> {
        if len > MAX_MESSAGE {
            return Err(Error::internal(format!(
                "a message of {len} bytes for a link that takes {MAX_MESSAGE} at most"
            )));
        }
        if self.ends.are_broken() {
            return Ok(None); // what lies in the rings may still be on its way by another end
        }
        let state = &self.lanes[lane];
        let at = match state.reserved.get() {
            Some((at, before)) if before == len => at,
            _ => match state.places.get().find(state.oldest(), state.sent.get(), len) {
                Some(at) => at,
                None => return Ok(None),
            },
        };
        let ring = self.ring(rank, lane, hub)?;
        state.reserved.set(Some((at, len)));
        Ok(ring::body(&ring.region(), at, len))
    }

    pub(super) fn commit(&self, lane: usize, header: Header, hub: &Hub) {
        let state = &self.lanes[lane];
        let (Some((at, len)), Some(ring)) = (state.reserved.take(), state.ring.get()) else {
            panic!("a commit on lane {lane} without a reservation");
        };
        let body = Part {
            memory: ring.clone(),
            at: at + ring::LINE,
            len,
        };
        self.send(lane, header, at, body, hub);
    }

    /// Sends `body` from where it lies; `None` as long as there is no credit, or the receiver is likely to say where it wants it.
    pub(super) fn offer(
        &self,
        rank: usize,
        lane: usize,
        header: Header,
        body: Part,
        hub: &Hub,
    ) -> Result<Option<Ticket>, Error> {
        // Its place in the ring has its head, and its body if the receiver wants that nowhere else.
        if self.reserve(rank, lane, body.len, hub)?.is_none() {
            return Ok(None);
        }
        let state = &self.lanes[lane];
        let (looks, sleeps) = state.patience.get();
        let waits = looks > 0 && sleeps == hub.sleeps();
        if body.len >= WANTED_LEAST && waits && state.wanted.borrow().is_none() {
            state.patience.set((looks - 1, sleeps));
            return Ok(None);
        }
        let Some((at, _)) = state.reserved.take() else {
            return Ok(None);
        };
        let number = state.sent.get();
        state.lent.borrow_mut()[number as usize % DEPTH] = Some(body.memory.clone());
        self.send(lane, header, at, body, hub);
        Ok(Some(Ticket(number)))
    }

    /// Sends the next message of a lane, which has the place `at` of the ring.
    fn send(&self, lane: usize, header: Header, at: usize, body: Part, hub: &Hub) {
        let state = &self.lanes[lane];
        let (Some(ring), Some(targets)) = (state.ring.get(), self.targets.get()) else {
            return; // nothing was reserved, or nobody joined
        };
        let (number, len) = (state.sent.get(), body.len);
        let is_lent = !Arc::ptr_eq(ring, &body.memory);
        let mut places = state.places.get();
        places.set(number, at, len);
        state.places.set(places);
        state.sent.set(number.wrapping_add(1));
        let index = self.ends.of_message(lane, number, len);
        let wanted = state.wanted.take();
        let wanted = wanted.filter(|it| (it.number, it.len as usize, it.header) == (number, len, header));
        let (parts, to, word) = match wanted {
            Some(Wanted { place, .. }) => (
                smallvec![body],
                (place.address, place.keys[index]),
                Word::Landed { lane, number },
            ),
            None => {
                let (from, whole) = ring::whole(at, len);
                let head = Head {
                    len: len as u32,
                    number,
                    header,
                };
                ring.region()
                    .part(from, Head::LEN)
                    .copy_from(&Region::of(&head.encode()));
                let head = Part {
                    memory: ring.clone(),
                    at: from,
                    len: if is_lent { Head::LEN } else { whole },
                };
                let body = (is_lent && len > 0).then_some(body);
                let parts = SmallVec::from_iter([Some(head), body].into_iter().flatten());
                let place = &targets[lane];
                let to = (place.address.wrapping_add(from as u64), place.keys[index]);
                (parts, to, Word::Message { lane, at, number })
            }
        };
        let Sent { all, lent, landed } = self.sent.get();
        self.sent.set(Sent {
            all: all + 1,
            lent: lent + u64::from(is_lent),
            landed: landed + u64::from(matches!(word, Word::Landed { .. })),
        });
        hub.posted();
        let id = u64::from(number) << 8 | lane as u64;
        self.ends.post(index, Post { parts, to, word, id });
        self.ends.flush(index, hub);
    }

    /// Hands the wire what it had no room for.
    pub(super) fn flush(&self, hub: &Hub) {
        self.ends.flush_all(hub);
    }

    /// The wire has written a message.
    pub(super) fn written(&self, id: u64, hub: &Hub) -> Result<(), String> {
        if self.lost.get() > 0 {
            return Ok(()); // it was given up
        }
        let (lane, number) = ((id & 0xff) as usize, (id >> 8) as u32);
        let nonsense = || format!("the plugin says that write {id:#x} is done, which was not its turn");
        let state = self.lanes.get(lane).ok_or_else(nonsense)?;
        let (written, sent) = (state.written.get(), state.sent.get());
        let (ahead, mut early) = (number.wrapping_sub(written), state.written_early.get());
        if ahead >= sent.wrapping_sub(written) || early >> ahead & 1 == 1 {
            return Err(nonsense());
        }
        early |= 1 << ahead;
        state.lent.borrow_mut()[number as usize % DEPTH] = None;
        state.written.set(written.wrapping_add(early.trailing_ones()));
        state.written_early.set(early >> early.trailing_ones());
        hub.settled(1);
        Ok(())
    }

    /// Whether the message that was offered so has been written, and all of its lane before it: who offers the parts of something keeps
    /// the last one's ticket, and other connections may be slower.
    pub(super) fn has_gone(&self, lane: usize, Ticket(number): Ticket) -> bool {
        let state = &self.lanes[lane];
        let behind = state.sent.get().wrapping_sub(number);
        let ahead = number.wrapping_sub(state.written.get());
        match (behind, ahead) {
            _ if self.lost.get() > 0 => true, // nothing reads it any more
            (1.., 0..32) if behind <= DEPTH as u32 => false,
            _ => true, // it was written, or else no later one would have been sent
        }
    }

    /// Has nothing go out of memory of callers' any more, and nobody wait for what was lost.
    pub(super) fn withdraw(&self, hub: &Hub) {
        let lends = |state: &SendLane| state.lent.borrow().iter().any(Option::is_some);
        if self.lanes.iter().any(lends) {
            self.ends.close("what was to be sent was withdrawn", hub);
            self.forget_lent();
        }
        if self.ends.are_broken() {
            self.give_up(hub);
        }
    }

    /// The receiver has written where it wants a message of `lane`.
    pub(super) fn wanted(&self, lane: usize, number: u16, hub: &Hub) {
        let state = &self.lanes[lane];
        let mut said = [0; Wanted::ROOM];
        let at = ring::on_desk(lane, u32::from(number));
        Region::of_mut(&mut said).copy_from(&self.desk.region().part(at, Wanted::ROOM));
        let wanted = Wanted::decode(&said, self.ends.count());
        state.patience.set((PATIENCE, hub.sleeps()));
        // One that comes too late is of no use: the message is on its way into the ring. Of a later one that lies in its place already
        // what tells comes later, too.
        if wanted.number == state.sent.get() && wanted.number as u16 == number {
            state.wanted.replace(Some(wanted));
        }
    }

    /// The peer says how many messages of `lane` it has released.
    pub(super) fn credited(&self, lane: usize, released: u16) -> Result<(), Error> {
        let state = &self.lanes[lane];
        let before = state.released.get();
        let now = before.wrapping_add(u32::from(released.wrapping_sub(before as u16)));
        let sent = state.sent.get();
        // Credits never go beyond what was sent.
        if now.wrapping_sub(before) > sent.wrapping_sub(before) {
            let what =
                format!("it says that it released {now} messages of lane {lane}, of which {sent} were sent");
            return Err(broken(self.peer, what));
        }
        state.released.set(now);
        Ok(())
    }

    /// The receiver has left: it has all that it wants. What tells so of the last messages may be lost with its end of the connection,
    /// so that nobody waits for that. Whether anything was still under way.
    pub(super) fn let_go(&self, hub: &Hub) -> bool {
        if !self.unsent() {
            return false;
        }
        self.ends.close("the receiver has left", hub);
        self.forget_lent();
        self.give_up(hub);
        true
    }

    fn forget_lent(&self) {
        let forget = |state: &SendLane| *state.lent.borrow_mut() = Default::default();
        self.lanes.iter().for_each(forget);
    }

    /// Nobody waits any more for what is under way. Until then a call whose messages were lost stands still, so that it is the one
    /// that tells of their connection's failure.
    pub(super) fn give_up(&self, hub: &Hub) {
        let lost = self.under_way();
        hub.settled(lost - self.lost.replace(lost));
    }

    /// Whether something is still to be written, or was lost and not given up.
    pub(super) fn unsent(&self) -> bool {
        self.under_way() > self.lost.get()
    }

    /// Messages that the wire has not written.
    fn under_way(&self) -> usize {
        self.lanes.iter().map(SendLane::under_way).sum()
    }

    pub(super) fn mapped(&self) -> usize {
        self.lanes
            .iter()
            .filter_map(|state| state.ring.get())
            .map(|ring| ring.len())
            .sum::<usize>()
            + self.desk.len()
    }

    fn ring(&self, rank: usize, lane: usize, hub: &Hub) -> Result<&Arc<Memory>, Error> {
        let state = &self.lanes[lane];
        if let Some(ring) = state.ring.get() {
            return Ok(ring);
        }
        let ring = self.ends.memory(RING, hub).map_err(|why| broken(rank, why))?;
        Ok(state.ring.get_or_init(|| ring))
    }
}

/// Looks.
const PATIENCE: u32 = 200;

impl SendLane {
    /// Messages that the wire has not written.
    fn under_way(&self) -> usize {
        let early = self.written_early.get().count_ones();
        (self.sent.get().wrapping_sub(self.written.get()) - early) as usize
    }

    /// The first message whose place is not free: the wire, or the receiver, still uses it.
    fn oldest(&self) -> u32 {
        let sent = self.sent.get();
        let under_way = |till: &Cell<u32>| sent.wrapping_sub(till.get());
        sent.wrapping_sub(under_way(&self.written).max(under_way(&self.released)))
    }
}

const _: () = assert!(DEPTH < 1 << 15);
