//! The sending half of a link.

use super::{
    Ways,
    bell::{Bell, Ringer},
    broken,
    handed::Handed,
    layout::{self, DEPTH, INLINE, LEN_BITS, MAX_MESSAGE, Segment},
    neighbour::Token,
    refused,
    room::{Pages, Room},
};
use crate::{
    mem::{Region, shared::Allocation},
    net::Parcel,
    sys::{attach::Seal, cache::prefetch_to_write, memfd::Shared},
    transport::{Header, LANES, Reach, Ticket},
    types::Error,
};
use std::{
    cell::Cell,
    io,
    sync::{
        Arc,
        atomic::{Ordering::*, fence},
    },
    thread,
};

/// A segment that was made and whose receiver has not answered yet.
pub(crate) struct Opening {
    segment: Shared<Segment>,
    start: u32,
    seal: Option<Seal>,
    token: Option<Token>,
}

impl Opening {
    /// Makes the segment. The parcel is for the receiver, which gets at this process's memory in the `ways` that are allowed;
    /// its welcome is for [`Opening::connected`].
    pub(crate) fn new(ours: &Bell, ways: Ways) -> Result<(Opening, Parcel), Error> {
        Self::starting_at(0, ours, ways)
    }

    /// The same with messages numbered from `start`.
    pub(super) fn starting_at(start: u32, ours: &Bell, ways: Ways) -> Result<(Opening, Parcel), Error> {
        let (segment, fd) = Shared::<Segment>::create("ccl-shm")
            .map_err(|err| Error::system("the shared memory of a link could not be made", err))?;
        for count in &segment.released {
            // The receiver maps the segment after the parcel has gone through a socket, which orders this before.
            count.0.store(start, Relaxed);
        }
        let no_random = |err| Error::system("the system has no random bytes", err);
        let seal = ways.attach.then(Seal::new).transpose().map_err(no_random)?;
        let token = ways.direct.then(Token::new).transpose().map_err(no_random)?;
        let mut bytes = layout::hello();
        bytes.extend(token.as_ref().map_or(Token::NONE, Token::bytes));
        bytes.extend(seal.iter().flat_map(|seal| seal.holder().to_bytes()));
        let parcel = Parcel {
            bytes,
            fds: vec![fd, ours.descriptor()?],
        };
        let opening = Opening {
            segment,
            start,
            seal,
            token,
        };
        Ok((opening, parcel))
    }

    /// The half that sends, now that `peer` has taken the segment.
    pub(crate) fn connected(self, peer: usize, welcome: &Parcel, ours: &Bell) -> Result<Outbound, Error> {
        let bell = Ringer::welcomed(welcome, ours).map_err(|err| refused(peer, err))?;
        let lane = || SendLane {
            sent: Cell::new(self.start),
            released: Cell::new(self.start),
            reserved: Cell::new(NOTHING),
            rooms: Default::default(),
        };
        Ok(Outbound {
            lanes: std::array::from_fn(|_| lane()),
            segment: self.segment,
            pages: Pages::default(),
            handed: Handed::default(),
            bell,
            peer,
            _seal: self.seal,
            _token: self.token,
        })
    }
}

/// The sending half of a link. Everything that it relies on lies in its own memory; of what the peer can write it
/// reads the counts of released messages, and checks them.
pub(crate) struct Outbound {
    pub(super) segment: Shared<Segment>,
    lanes: [SendLane; LANES],
    pages: Pages,
    /// Memory that the receiver may have mapped.
    handed: Handed,
    bell: Ringer,
    peer: usize,
    /// By it the receiver knows this process's memory.
    _seal: Option<Seal>,
    /// By it the receiver knows whether it is a thread of this process.
    _token: Option<Token>,
}

struct SendLane {
    /// Messages sent, modulo 2^32: the number of the next one.
    sent: Cell<u32>,
    /// Messages that the receiver is known to have released: at most [`DEPTH`] behind `sent`.
    released: Cell<u32>,
    /// Bytes of the reserved body, or [`NOTHING`].
    reserved: Cell<u32>,
    /// Where the bodies of messages that are in flight lie, and that of a reserved one, if not in their entries.
    rooms: [Cell<Option<Room>>; DEPTH],
}

const NOTHING: u32 = u32::MAX;

impl Outbound {
    #[inline]
    pub(super) fn reserve(&self, lane: usize, len: usize) -> Result<Option<Region<'_>>, Error> {
        if len > MAX_MESSAGE {
            return Err(too_long(len));
        }
        if !self.has_room(lane)? {
            return Ok(None);
        }
        let state = &self.lanes[lane];
        let number = state.sent.get();
        let entry = &self.segment.entries[lane][number as usize % DEPTH];
        let body = if len <= INLINE {
            entry.inline()
        } else {
            let Some(room) = self.room(lane, len)? else {
                return Ok(None);
            };
            let body = layout::body(&self.segment, room.at as usize, len);
            body.ok_or_else(|| Error::internal("room for a message where none is"))?
        };
        state.reserved.set(len as u32);
        // SAFETY: `body` begins at least `len` bytes of the mapping (`INLINE` in the entry; elsewhere it was just checked),
        // which lives as long as `self`. They are inside `UnsafeCell`s, so no reference claims them. The receiver leaves
        // them alone: it has released the message that lay there before, which the credit or the room proved.
        Ok(Some(unsafe { Region::from_raw(body, len) }))
    }

    /// Room for the lane's next message, if there is some: what was found for it before, unless that is too small.
    fn room(&self, lane: usize, len: usize) -> Result<Option<Room>, Error> {
        let state = &self.lanes[lane];
        let next = &state.rooms[state.sent.get() as usize % DEPTH];
        if let Some(room) = next.get() {
            if room.holds(len) || room == Room::own(lane) {
                return Ok(Some(room));
            }
            self.pages.give(room);
            next.set(None);
        }
        let mut room = self.pages.take(len);
        if room.is_none() {
            (0..LANES).try_for_each(|lane| self.has_credit(lane).map(|_| ()))?;
            let own =
                Some(Room::own(lane)).filter(|&own| state.rooms.iter().all(|room| room.get() != Some(own)));
            room = self.pages.take(len).or(own);
        }
        next.set(room);
        Ok(room)
    }

    #[inline]
    pub(super) fn commit(&self, lane: usize, header: Header, received: u32) {
        let state = &self.lanes[lane];
        let len = state.reserved.replace(NOTHING);
        assert!(len != NOTHING, "a commit on lane {lane} without a reservation");
        self.post(lane, len, header, received);
    }

    /// Sends `body` as it lies there.
    pub(super) fn offer(
        &self,
        lane: usize,
        header: Header,
        body: Region<'_>,
        received: u32,
    ) -> Result<Option<Ticket>, Error> {
        if body.len() > MAX_MESSAGE {
            return Err(too_long(body.len()));
        }
        let reaches = self.reaches();
        let place = match reaches & layout::SAME {
            0 => self.handed.place(&self.segment, &body),
            _ => None,
        };
        if place.is_none() && reaches & (layout::SAME | layout::ATTACHES) == 0 {
            return Err(Error::internal(format!(
                "an offer to rank {}, which cannot read this rank's memory",
                self.peer
            )));
        }
        let state = &self.lanes[lane];
        // What was reserved before is not sent.
        state.reserved.set(NOTHING);
        if !self.has_room(lane)? {
            return Ok(None);
        }
        let number = state.sent.get();
        let entry = &self.segment.entries[lane][number as usize % DEPTH];
        let mut word = body.len() as u32 | layout::ELSEWHERE;
        match place {
            None => entry.set_address(body.as_ptr().addr() as u64),
            Some(place) => {
                entry.set_address(place.at as u64);
                entry.set_mapping(place.mapping, place.number);
                word |= layout::MAPPED;
            }
        }
        self.post(lane, word, header, received);
        Ok(Some(Ticket(number)))
    }

    /// How the receiver gets at `body`.
    #[inline]
    pub(super) fn reach(&self, body: &Region<'_>) -> Reach {
        let reaches = self.reaches();
        if reaches & layout::SAME != 0 || self.handed.place(&self.segment, body).is_some() {
            Reach::Reading
        } else if reaches & layout::ATTACHES != 0 {
            Reach::Taking
        } else {
            Reach::No
        }
    }

    /// What the receiver has said of how it gets at this rank's memory.
    #[inline]
    fn reaches(&self) -> u32 {
        self.segment.reaches.0.load(Relaxed)
    }

    /// What to hand to the receiver, so that it can read `memory`; `None` if it knows of it, cannot have it, or need not.
    pub(super) fn hand_over(&self, memory: &Arc<Allocation>) -> io::Result<Option<Parcel>> {
        match self.reaches() & (layout::SAME | layout::MAPS) {
            layout::MAPS => self.handed.add(&self.segment, memory),
            _ => Ok(None),
        }
    }

    /// Whether the receiver has released the offered message `ticket`.
    pub(super) fn taken(&self, lane: usize, Ticket(number): Ticket) -> bool {
        let state = &self.lanes[lane];
        let is_known =
            || in_flight(state.sent.get(), number) > in_flight(state.sent.get(), state.released.get());
        // Nonsense of the peer's is found by `reserve`.
        is_known() || self.has_credit(lane).is_ok() && is_known()
    }

    /// Withdraws all that was offered and is not released: the receiver takes nothing any more of what is in this rank's
    /// memory from here on.
    pub(super) fn withdraw(&self) {
        self.segment.withdrawn.0.store(1, Relaxed);
        // Before whatever the caller does to its memory now; pairs with the fences of `Pinned`.
        fence(SeqCst);
        // A thread of this process that began to read before ends soon. Another process need not be waited for: if it goes on
        // it gets wrong values, sees that they were withdrawn, and drops them.
        while self.reaches() & layout::SAME != 0 && self.segment.reading.0.load(Acquire) != 0 {
            thread::yield_now();
        }
    }

    /// Sends message number `sent`, of which all else is written.
    #[inline]
    fn post(&self, lane: usize, len: u32, header: Header, received: u32) {
        let state = &self.lanes[lane];
        let number = state.sent.get();
        let entry = &self.segment.entries[lane][number as usize % DEPTH];
        if !layout::is_elsewhere(len)
            && len as usize > INLINE
            && let Some(room) = state.rooms[number as usize % DEPTH].get()
        {
            entry.set_at(room.at);
        }
        entry.len.store(layout::told(len, received), Relaxed);
        entry.set_header(header);
        // Publishes the body, the length and the header; pairs with the Acquire in `Inbound::peek`.
        entry.flag.store(layout::flag(number), Release);
        let sent = number.wrapping_add(1);
        state.sent.set(sent);
        self.bell.ring();
        // The peer, which waits for the next entry only when it has taken this one, is not reading it yet.
        prefetch_to_write(&self.segment.entries[lane][sent as usize % DEPTH]);
        if in_flight(sent, state.released.get()) == DEPTH {
            // The last credit is spent. Looking for more now costs nothing where the next thing to do is to wait for an
            // answer anyway; in `reserve` the miss would delay the next message. Nonsense is found there.
            let _ = self.has_credit(lane);
        }
    }

    /// The peer said beside a message how many it has released; of that count these are the last bits. Only of lanes of
    /// calls, whose messages are received in the call that they belong to: elsewhere one may have lain there while the count
    /// came round.
    #[inline]
    pub(super) fn told(&self, lane: usize, word: u32) {
        let state = &self.lanes[lane];
        let (sent, known) = (state.sent.get(), state.released.get());
        // The distance from what is known, modulo what fits the word. What was not earned is not taken for granted: the
        // count in the segment is looked at when credits run out, and nonsense in it is found there.
        let more = (word >> LEN_BITS).wrapping_sub(known) & (u32::MAX >> LEN_BITS);
        if more as usize <= in_flight(sent, known) {
            self.settle(state, known.wrapping_add(more));
        }
    }

    /// Whether the lane has a credit.
    #[inline]
    fn has_room(&self, lane: usize) -> Result<bool, Error> {
        let state = &self.lanes[lane];
        Ok(in_flight(state.sent.get(), state.released.get()) < DEPTH || self.has_credit(lane)?)
    }

    /// Looks how far the receiver is; whether that left room in the lane.
    fn has_credit(&self, lane: usize) -> Result<bool, Error> {
        let state = &self.lanes[lane];
        let sent = state.sent.get();
        // Pairs with the Release in `Inbound::release`: the receiver is done with the bodies that it released.
        let now = self.segment.released[lane].0.load(Acquire);
        // Credits never go back, and never beyond what was sent.
        if in_flight(sent, now) > in_flight(sent, state.released.get()) {
            return Err(broken(
                self.peer,
                format!("it says that it released {now} messages of lane {lane}, of which {sent} were sent"),
            ));
        }
        self.settle(state, now);
        Ok(in_flight(sent, now) < DEPTH)
    }

    /// The receiver has released all before message `released`.
    #[inline]
    fn settle(&self, state: &SendLane, released: u32) {
        let mut number = state.released.replace(released);
        while number != released {
            if let Some(room) = state.rooms[number as usize % DEPTH].take() {
                self.pages.give(room);
            }
            number = number.wrapping_add(1);
        }
    }

    pub(super) fn mapped(&self) -> usize {
        self.segment.mapped() + self.bell.mapped()
    }
}

/// Messages sent and not released; `usize` for a 64-bit machine holds any difference of the counts.
#[inline]
fn in_flight(sent: u32, released: u32) -> usize {
    sent.wrapping_sub(released) as usize
}

#[cold]
fn too_long(len: usize) -> Error {
    Error::internal(format!(
        "a message of {len} bytes for a link that takes {MAX_MESSAGE} at most"
    ))
}
