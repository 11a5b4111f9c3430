//! The sending half of a link.

use super::{
    Ways,
    bell::{Bell, Ringer},
    broken,
    distance::Distance,
    handed::Handed,
    layout::{self, DEEP, Depth, Entry, INLINE, LEN_BITS, MAX_MESSAGE, Segment},
    neighbour::Token,
    pace::Pace,
    pair::{self, Pair, Side},
    pool::{self, Lease, Room, Unread},
    refused,
    tally::{Long, Tally},
};
use crate::{
    mem::{Region, shared::Allocation},
    net::Parcel,
    sys::{attach::Seal, cache::prefetch_to_write, clock, memfd::Shared},
    transport::{Header, LANES, Reach, Ticket},
    types::Error,
};
use std::{
    cell::Cell,
    fmt, io,
    sync::{
        Arc,
        atomic::{Ordering::*, fence},
    },
    thread,
};

/// A segment that was made and whose receiver has not answered yet.
pub(crate) struct Opening {
    segment: Shared<Segment>,
    depth: Depth,
    start: u32,
    is_host: bool,
    seal: Option<Seal>,
    token: Option<Token>,
}

impl Opening {
    /// Makes the segment. The parcel is for the receiver, which gets at this process's memory in the `ways` that are allowed;
    /// its welcome is for [`Opening::connected`].
    pub(crate) fn new(ours: &Bell, ways: Ways, depth: Depth) -> Result<(Opening, Parcel), Error> {
        Self::starting_at(0, ours, ways, depth)
    }

    /// The same with messages numbered from `start`.
    pub(super) fn starting_at(
        start: u32,
        ours: &Bell,
        ways: Ways,
        depth: Depth,
    ) -> Result<(Opening, Parcel), Error> {
        let (segment, fd) = Shared::<Segment>::create("ccl-shm")
            .map_err(|err| Error::system("the shared memory of a link could not be made", err))?;
        for count in &segment.released.0 {
            // The receiver maps the segment after the parcel has gone through a socket, which orders this before.
            count.store(start, Relaxed);
        }
        let no_random = |err| Error::system("the system has no random bytes", err);
        let seal = ways.attach.then(Seal::new).transpose().map_err(no_random)?;
        let token = ways
            .direct
            .then(|| Token::new(ways.link))
            .transpose()
            .map_err(no_random)?;
        let mut bytes = layout::hello(depth);
        bytes.extend(token.as_ref().map_or(Token::NONE, Token::bytes));
        bytes.extend(seal.iter().flat_map(|seal| seal.holder().to_bytes()));
        let pool = pool::descriptor()
            .map_err(|err| Error::system("there is no memory for this process's messages", err))?;
        let parcel = Parcel {
            bytes,
            fds: vec![fd, ours.descriptor()?, pool],
            guard: None,
        };
        let opening = Opening {
            segment,
            depth,
            start,
            is_host: ways.sender_is_host(),
            seal,
            token,
        };
        Ok((opening, parcel))
    }

    /// The half that sends, now that `peer` has taken the segment.
    /// Long bodies are put into memory of `lease`.
    pub(crate) fn connected(
        self,
        peer: usize,
        welcome: &Parcel,
        ours: &Bell,
        lease: &Arc<Lease>,
    ) -> Result<Outbound, Error> {
        let bell = Ringer::welcomed(welcome, ours).map_err(|err| refused(peer, err))?;
        let lane = || SendLane {
            sent: Cell::new(self.start),
            released: Cell::new(self.start),
            reserved: Cell::new(NOTHING),
            began: Cell::new(0),
            rooms: Default::default(),
        };
        Ok(Outbound {
            lanes: std::array::from_fn(|_| lane()),
            segment: self.segment,
            depth: self.depth,
            is_host: self.is_host,
            lease: Arc::clone(lease),
            has_own: Cell::new(0),
            handed: Handed::default(),
            tally: Tally::default(),
            distance: Distance::default(),
            seen: Cell::new([self.start; LANES]),
            bell,
            peer,
            process: None,
            _seal: self.seal,
            token: self.token,
        })
    }
}

/// The sending half of a link. Everything that it relies on lies in its own memory; of what the peer can write it
/// reads the counts of released messages, and checks them.
pub(crate) struct Outbound {
    pub(super) segment: Shared<Segment>,
    depth: Depth,
    /// Whether the line that both ranks write is the one in this segment.
    is_host: bool,
    lanes: [SendLane; LANES],
    lease: Arc<Lease>,
    /// The lanes whose own slots have had a body since [`Outbound::leave`] gave their pages back, a bit each.
    has_own: Cell<u32>,
    /// Memory that the receiver may have mapped.
    handed: Handed,
    tally: Tally,
    distance: Distance,
    /// The counts of released messages when they were looked at last.
    seen: Cell<[u32; LANES]>,
    bell: Ringer,
    peer: usize,
    /// The peer's process, if it can be told whether that has ended.
    process: Option<u32>,
    /// By it the receiver knows this process's memory.
    _seal: Option<Seal>,
    /// By it the receiver knows whether it is a thread of this process.
    token: Option<Token>,
}

struct SendLane {
    /// Messages sent, modulo 2^32: the number of the next one.
    sent: Cell<u32>,
    /// Messages that the receiver is known to have released: at most as many as a lane holds behind `sent`.
    released: Cell<u32>,
    /// Bytes of the reserved body, or [`NOTHING`].
    reserved: Cell<u32>,
    /// When it was reserved, if that is of interest; else 0.
    began: Cell<u64>,
    /// Where the bodies of messages that are in flight lie, and that of a reserved one, if not in their entries.
    rooms: [Spot; DEEP.messages()],
}

const NOTHING: u32 = u32::MAX;

/// Where a body lies that is not in its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Pool(Room),
    /// In the lane's own slot.
    Own,
    /// In its open slot, where the receiver may answer.
    Open,
    /// In the receiver's open slot, where what is answered lay.
    Answer,
}

/// What a lane knows of where a body lies, in one word, as a [`Room`] is.
#[derive(Debug, Default)]
struct Spot(Cell<u64>);

impl Spot {
    #[inline]
    fn get(&self) -> Option<Place> {
        match self.0.get() {
            0 => None,
            Spot::OWN => Some(Place::Own),
            Spot::OPEN => Some(Place::Open),
            Spot::ANSWER => Some(Place::Answer),
            word => Some(Place::Pool(Room::of_word(word))),
        }
    }

    #[inline]
    fn set(&self, place: Option<Place>) {
        self.0.set(match place {
            None => 0,
            Some(Place::Own) => Spot::OWN,
            Some(Place::Open) => Spot::OPEN,
            Some(Place::Answer) => Spot::ANSWER,
            Some(Place::Pool(room)) => room.word(),
        });
    }

    #[inline]
    fn replace(&self, place: Option<Place>) -> Option<Place> {
        let before = self.get();
        self.set(place);
        before
    }

    const OWN: u64 = 1;
    const OPEN: u64 = 2;
    const ANSWER: u64 = 3;
}

const _: () = assert!(Spot::ANSWER < Room::LEAST);

impl Outbound {
    /// The same, where the peer's process is known.
    pub(crate) fn of_process(mut self, process: Option<u32>) -> Outbound {
        self.process = process;
        self
    }

    #[inline(always)] // so that `send_long` does not pass its answer through memory
    pub(super) fn reserve(&self, lane: usize, len: usize) -> Result<Option<Region<'_>>, Error> {
        if len > MAX_MESSAGE {
            return Err(too_long(len));
        }
        if !self.has_room(lane, len)? {
            return Ok(None);
        }
        let state = &self.lanes[lane];
        state.began.set(0);
        let number = state.sent.get();
        let entry = self.segment.entry(lane, number, self.depth);
        let body = if len <= INLINE {
            entry.inline()
        } else {
            match self.room(lane, len)? {
                None => return Ok(None),
                Some(Place::Own | Place::Open | Place::Answer) => layout::own(&self.segment, lane),
                Some(Place::Pool(room)) => {
                    let body = self.lease.body(room, len);
                    let body = body.ok_or_else(|| Error::internal("room for a message where none is"))?;
                    state.reserved.set(len as u32);
                    if Pace::is_told_by(len)
                        && self.lease.pace().is_some()
                        && self.attaches()
                        && !self.is_far()
                    {
                        state.began.set(clock::now());
                    }
                    return Ok(Some(body));
                }
            }
        };
        state.reserved.set(len as u32);
        // SAFETY: `body` begins at least `len` bytes of the mapping (`INLINE` in the entry, `MAX_MESSAGE` in the own slot),
        // which lives as long as `self`. They are inside `UnsafeCell`s, so no reference claims them. The receiver leaves
        // them alone: it has released the message that lay there before, which the credit or the room proved.
        Ok(Some(unsafe { Region::from_raw(body, len) }))
    }

    /// Room for the lane's next message, if there is some: what was found for it before, unless that is too small. A lane that
    /// finds no pages and has nothing else there has a slot of its own: so no lane waits for another.
    #[inline(always)] // as `reserve`
    fn room(&self, lane: usize, len: usize) -> Result<Option<Place>, Error> {
        let state = &self.lanes[lane];
        let next = &state.rooms[self.depth.place(state.sent.get())];
        match next.get() {
            Some(Place::Pool(room)) if !room.holds(len) => {
                self.lease.give(room);
                next.set(None);
            }
            None | Some(Place::Open | Place::Answer) => {}
            found => return Ok(found),
        }
        let room = match self.lease.take(len) {
            Some(room) => Some(Place::Pool(room)),
            None => self.last_room(lane, len)?,
        };
        next.set(room);
        Ok(room)
    }

    /// The same where there was none a moment ago.
    #[cold]
    #[inline(never)]
    fn last_room(&self, lane: usize, len: usize) -> Result<Option<Place>, Error> {
        self.look(lane)?;
        if let Some(room) = self.lease.take(len) {
            return Ok(Some(Place::Pool(room)));
        }
        let is_free = !self.lanes[lane].has_own_body();
        if is_free {
            self.has_own.set(self.has_own.get() | 1 << lane);
            self.lease.set_has_own(true);
        }
        Ok(is_free.then_some(Place::Own))
    }

    /// Tells the lease of all messages in its chunks that have not been read, so that it can give these back.
    pub(super) fn leave(&self) {
        if self.has_own.get() == 0 && self.lanes.iter().all(SendLane::has_no_rooms) {
            return;
        }
        // Nonsense of the peer's is found by `reserve`.
        let _ = self.look(0);
        for (lane, state) in self.lanes.iter().enumerate() {
            state.reserved.set(NOTHING);
            let sent = state.sent.get();
            for k in 1..=in_flight(sent, state.released.get()) {
                let number = sent.wrapping_sub(k as u32);
                if let Some(Place::Pool(room)) = state.rooms[self.depth.place(number)].get() {
                    let segment = self.segment.clone();
                    self.lease.leave(
                        room,
                        Unread {
                            segment,
                            lane,
                            number,
                            process: self.process,
                        },
                    );
                }
            }
            // One more was reserved, perhaps.
            let forget = |at: &Spot| at.set(at.get().filter(|at| !matches!(at, Place::Pool(_))));
            state.rooms.iter().for_each(forget);
        }
        self.empty_own_slots();
    }

    /// How many own slots may take memory.
    #[cfg(test)]
    pub(super) fn own_slots(&self) -> u32 {
        self.has_own.get().count_ones()
    }

    /// Gives the pages of own slots back that nobody reads any more.
    fn empty_own_slots(&self) {
        for (lane, state) in self.lanes.iter().enumerate() {
            let bit = 1 << lane;
            if self.has_own.get() & bit != 0 && !state.has_own_body() {
                // Else they stay until there is something else in them.
                let _ = self.segment.discard(layout::own_range(lane));
                self.has_own.set(self.has_own.get() & !bit);
            }
        }
        if self.has_own.get() != 0 {
            self.lease.set_has_own(true);
        }
    }

    /// The open slot for the lane's next message: `None` where there is none, or the lane has no credit.
    #[inline]
    pub(super) fn reserve_open(&self, lane: usize, len: usize) -> Option<Region<'_>> {
        // Where a core keeps what it has read, rooms go round instead of being written again at once.
        let may = len > INLINE && !self.lease.watches() && !self.lease.is_short() && self.lease.opens();
        let room = layout::open(&self.segment, lane, len).filter(|_| may)?;
        let state = &self.lanes[lane];
        if !self.has_room(lane, len).ok()? {
            return None;
        }
        let rooms = &state.rooms[..self.depth.messages()];
        let is_taken = || rooms.iter().any(|place| place.get() == Some(Place::Open));
        // Nonsense of the peer's is found by `reserve`.
        if is_taken() && (self.look(lane).is_err() || is_taken()) {
            return None;
        }
        self.reserve_in(state, Place::Open, len);
        Some(room)
    }

    /// Reserves for a message of `len` bytes the room where what it answers lies; `false` if the lane has no credit.
    #[inline]
    pub(super) fn reserve_answer(&self, lane: usize, len: usize) -> bool {
        let has_room = self.has_room(lane, len).unwrap_or(false);
        if has_room {
            self.reserve_in(&self.lanes[lane], Place::Answer, len);
        }
        has_room
    }

    /// Has the next message lie at `place`.
    fn reserve_in(&self, state: &SendLane, place: Place, len: usize) {
        let next = &state.rooms[self.depth.place(state.sent.get())];
        if let Some(Place::Pool(before)) = next.replace(Some(place)) {
            self.lease.give(before);
        }
        state.began.set(0);
        state.reserved.set(len as u32);
    }

    /// The answer of `len` bytes that `lane` tells of, if that can be: it lies where the lane's open message lay.
    #[inline]
    pub(super) fn answered(&self, lane: usize, len: usize) -> Option<Region<'_>> {
        layout::open(&self.segment, lane, len)
    }

    /// Reserves for the lane's next message the body that `first`, of the same communicator, has reserved for its own: who
    /// writes there writes both. `Ok(None)` as long as the lane has no credit, `Some(false)` if the body lies in an entry or a
    /// slot, and each needs its own.
    #[inline]
    pub(super) fn reserve_with(&self, first: &Outbound, lane: usize) -> Result<Option<bool>, Error> {
        let other = &first.lanes[lane];
        let Some(Place::Pool(room)) = other.rooms[first.depth.place(other.sent.get())].get() else {
            return Ok(Some(false));
        };
        let len = other.reserved.get();
        if len == NOTHING || len as usize <= INLINE {
            return Ok(Some(false));
        }
        if !self.has_room(lane, len as usize)? {
            return Ok(None);
        }
        let state = &self.lanes[lane];
        let next = &state.rooms[self.depth.place(state.sent.get())];
        let found = next.get();
        if found != Some(Place::Pool(room)) {
            if !self.lease.share(room) {
                return Ok(Some(false));
            }
            if let Some(Place::Pool(before)) = found {
                self.lease.give(before);
            }
            next.set(Some(Place::Pool(room)));
        }
        state.reserved.set(len);
        Ok(Some(true))
    }

    /// The line that both ranks write, if this rank is its host.
    #[inline]
    pub(super) fn pair(&self) -> Option<&Pair> {
        self.is_host.then_some(&self.segment.pair)
    }

    #[inline(always)] // as `reserve`
    pub(super) fn commit(&self, lane: usize, header: Header, received: u32) {
        self.commit_beside(lane, header, received, None);
    }

    /// The same; the message is shown in `pair` too, if it is short enough.
    #[inline(always)] // as `reserve`
    pub(super) fn commit_beside(
        &self,
        lane: usize,
        header: Header,
        received: u32,
        pair: Option<(&Pair, Side)>,
    ) {
        let state = &self.lanes[lane];
        let len = state.reserved.replace(NOTHING);
        assert!(len != NOTHING, "a commit on lane {lane} without a reservation");
        if let (began @ 1.., Some(pace)) = (state.began.take(), self.lease.pace()) {
            pace.wrote(len as usize, clock::now() - began);
        }
        let entry = self.segment.entry(lane, state.sent.get(), self.depth);
        self.post(lane, entry, len, header, received, pair);
    }

    /// Sends a copy of `body`, and shows it in `pair` too if it is short enough; `None` for what is wrong, which
    /// [`Outbound::reserve`] tells.
    #[inline(always)] // in the path of each short call
    pub(super) fn send(
        &self,
        lane: usize,
        header: Header,
        body: &Region<'_>,
        received: u32,
        pair: Option<(&Pair, Side)>,
    ) -> Option<bool> {
        if body.len() > INLINE {
            return self.send_long(lane, header, body, received);
        }
        if !self.has_room(lane, body.len()).ok()? {
            return Some(false);
        }
        let state = &self.lanes[lane];
        // What was reserved before is not sent.
        state.reserved.set(NOTHING);
        state.began.set(0);
        let entry = self.segment.entry(lane, state.sent.get(), self.depth);
        // SAFETY: an entry has room for so many bytes, in an `UnsafeCell` of the mapping, which `self` keeps. The receiver
        // leaves them alone: it has released the message that lay there before, which the credit proved.
        unsafe { Region::from_raw(entry.inline(), body.len()) }.copy_few_from(body);
        self.post(lane, entry, body.len() as u32, header, received, pair);
        Some(true)
    }

    /// The same where it does not fit an entry.
    #[inline(never)] // so that shorter ones do not pay for it
    fn send_long(&self, lane: usize, header: Header, body: &Region<'_>, received: u32) -> Option<bool> {
        let Some(room) = self.reserve(lane, body.len()).ok()? else {
            return Some(false);
        };
        room.copy_out_from(body, self.is_far());
        self.commit(lane, header, received);
        Some(true)
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
        if !self.has_room(lane, body.len())? {
            return Ok(None);
        }
        let number = state.sent.get();
        let entry = self.segment.entry(lane, number, self.depth);
        let mut word = body.len() as u32 | layout::ELSEWHERE;
        self.tally.add(match place {
            Some(_) => Long::Mapped,
            None if reaches & layout::SAME != 0 => Long::Read,
            None => Long::Taken,
        });
        match place {
            None => entry.set_address(body.as_ptr().addr() as u64),
            Some(place) => {
                entry.set_address(place.at as u64);
                entry.set_mapping(place.mapping, place.number);
                word |= layout::MAPPED;
            }
        }
        self.post(lane, entry, word, header, received, None);
        Ok(Some(Ticket(number)))
    }

    /// How the receiver gets at `body`.
    #[inline]
    pub(super) fn reach(&self, body: &Region<'_>) -> Reach {
        if self.reaches() & layout::SAME != 0 || self.handed.place(&self.segment, body).is_some() {
            Reach::Reading
        } else if self.attaches() && self.is_better_taken() {
            Reach::Taking
        } else {
            Reach::No
        }
    }

    /// Whether long bodies that the receiver can take had better not be copied, as far as is known here.
    #[inline]
    fn is_better_taken(&self) -> bool {
        self.lease
            .pace()
            .is_none_or(|pace| !self.is_far() && pace.is_slow())
    }

    /// Whether the receiver can take what lies in this rank's memory.
    #[inline]
    fn attaches(&self) -> bool {
        self.reaches() & layout::ATTACHES != 0
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
        is_known() || self.look(lane).is_ok() && is_known()
    }

    /// Withdraws all that was offered and is not released: the receiver takes nothing any more of what is in this rank's
    /// memory from here on.
    pub(super) fn withdraw(&self) {
        self.segment.withdrawn.0.store(1, Relaxed);
        // Before whatever the caller does to its memory now; pairs with the fences of `Pinned`.
        fence(SeqCst);
        // A thread of this process that began to read before ends soon. Another process need not be waited for: if it goes on
        // it gets wrong values, sees that they were withdrawn, and drops them.
        if self.token.as_ref().is_some_and(Token::is_taken) {
            while self.segment.reading.0.load(Acquire) != 0 {
                thread::yield_now();
            }
        }
    }

    /// Sends message number `sent`, whose entry that is; all else of it is written.
    #[inline(always)] // in the path of each short call
    fn post(
        &self,
        lane: usize,
        entry: &Entry,
        len: u32,
        header: Header,
        received: u32,
        pair: Option<(&Pair, Side)>,
    ) {
        let state = &self.lanes[lane];
        let number = state.sent.get();
        let body = layout::len_of(len);
        // First, as it is what the receiver looks at.
        if let Some((pair, side)) = pair.filter(|_| pair::may_show(lane, len as usize)) {
            let tag = pair::tag(number, lane, &header, len as usize);
            pair.show(side, lane, tag, entry.first_word());
        }
        if !layout::is_elsewhere(len)
            && len as usize > INLINE
            && let Some(place) = state.rooms[self.depth.place(number)].get()
        {
            self.tally.add(Long::Copied);
            entry.set_at(match place {
                Place::Pool(room) => room.at(),
                Place::Own => layout::OWN,
                Place::Open => layout::OPEN,
                Place::Answer => layout::ANSWER,
            });
        }
        entry.len.store(layout::told(len, received), Relaxed);
        entry.set_header(header);
        // Publishes the body, the length and the header; pairs with the Acquire in `Inbound::peek`.
        entry.flag.store(layout::flag(number), Release);
        let sent = number.wrapping_add(1);
        state.sent.set(sent);
        self.bell.ring();
        // The peer, which waits for the next entry only when it has taken this one, is not reading it yet.
        layout::lines(self.segment.entry(lane, sent, self.depth), len as usize).for_each(prefetch_to_write);
        // A long body in so many has the way of a line timed.
        let is_timed = len as usize > INLINE && self.lease.watches() && self.distance.passes();
        if is_timed || in_flight(sent, state.released.get()) == self.depth.window(body) {
            // The last credit is spent. Looking for more now costs nothing where the next thing to do is to wait for an
            // answer anyway; in `reserve` the miss would delay the next message. Nonsense is found there.
            let _ = self.look(lane);
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

    /// Whether the lane has a credit for a message with a body of `len` bytes.
    #[inline(always)] // in the path of each short call
    pub(super) fn has_room(&self, lane: usize, len: usize) -> Result<bool, Error> {
        let state = &self.lanes[lane];
        let has = || in_flight(state.sent.get(), state.released.get()) < self.depth.window(len);
        Ok(has() || {
            self.look(lane)?;
            has()
        })
    }

    /// Looks how far the receiver is, which `lane` wants to know. The counts of the other lanes came along with the
    /// line: they are taken note of.
    pub(super) fn look(&self, lane: usize) -> Result<(), Error> {
        let released = self.released();
        for (other, now) in released.into_iter().enumerate() {
            let state = &self.lanes[other];
            let sent = state.sent.get();
            let known = in_flight(sent, state.released.get());
            if known == 0 {
                continue;
            }
            // Credits never go back, and never beyond what was sent.
            if in_flight(sent, now) <= known {
                self.settle(state, now);
            } else if other == lane {
                return Err(broken(
                    self.peer,
                    format!(
                        "it says that it released {now} messages of lane {lane}, of which {sent} were sent"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// How many messages of each lane the receiver says that it has released.
    #[inline]
    fn released(&self) -> [u32; LANES] {
        let began = self.distance.is_due().then(clock::now);
        // Pairs with the Release in `Inbound::release`: the receiver is done with the bodies that it released.
        let counts = self
            .segment
            .released
            .0
            .each_ref()
            .map(|count| count.load(Acquire));
        if let Some(began) = began {
            let took = clock::now() - began;
            // Else the line may have been here.
            if counts != self.seen.get() {
                self.distance.came(took);
            }
        }
        self.seen.set(counts);
        counts
    }

    /// Whether the receiver is so far away that long bodies had better go past the caches.
    #[inline]
    pub(super) fn is_far(&self) -> bool {
        self.distance.is_far()
    }

    /// The receiver has released all before message `released`.
    #[inline]
    fn settle(&self, state: &SendLane, released: u32) {
        let mut number = state.released.replace(released);
        while number != released {
            if let Some(Place::Pool(room)) = state.rooms[self.depth.place(number)].replace(None) {
                self.lease.give(room);
            }
            number = number.wrapping_add(1);
        }
    }

    /// Which ways the messages have gone.
    pub(super) fn told_of_messages(&self) -> impl fmt::Display {
        let sent = self.lanes.iter().map(|lane| lane.sent.get());
        self.tally.of(sent.fold(0, u32::wrapping_add))
    }

    pub(super) fn mapped(&self) -> usize {
        self.segment.mapped() + self.bell.mapped()
    }
}

impl SendLane {
    fn has_no_rooms(&self) -> bool {
        self.rooms.iter().all(|room| room.get().is_none())
    }

    /// Whether the receiver may still read what lies in the lane's own slot.
    fn has_own_body(&self) -> bool {
        self.rooms.iter().any(|room| room.get() == Some(Place::Own))
    }
}

impl Drop for Outbound {
    /// The receiver may still read what was sent.
    fn drop(&mut self) {
        if self.lease.is_here() {
            self.leave();
        }
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
