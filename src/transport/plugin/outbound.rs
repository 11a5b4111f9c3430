//! The sending half of a link.

use super::{
    DEPTH, Hub, broken,
    ends::Ends,
    frame::Greeting,
    ring::{self, Head, Places, RING, Word},
    wire::Memory,
};
use crate::{
    mem::Region,
    transport::{Header, LANES, MAX_MESSAGE},
    types::Error,
};
use std::cell::{Cell, OnceCell};

/// The sending half of a link. Messages are written from rings of its own into rings of the receiver's.
pub(super) struct Outbound {
    peer: usize,
    ends: Ends,
    /// The receiver's rings, when it has answered: where they are and by which key.
    targets: OnceCell<[(u64, u64); LANES]>,
    /// Behind the ends, which use the rings.
    lanes: [SendLane; LANES],
}

#[derive(Default)]
struct SendLane {
    /// Messages sent, modulo 2^32: the number of the next one.
    sent: Cell<u32>,
    /// Messages that the wire has written: at most [`DEPTH`] behind `sent`.
    written: Cell<u32>,
    /// Messages that the receiver is known to have released: at most [`DEPTH`] behind `sent`.
    released: Cell<u32>,
    /// The reserved body, if there is one: where, and its bytes.
    reserved: Cell<Option<(usize, usize)>>,
    places: Cell<Places>,
    /// Made with the first message.
    ring: OnceCell<Memory>,
}

impl Outbound {
    /// The half that sends to `peer`, and what the peer needs to make the other one.
    pub(super) fn open(rank: usize, peer: usize, hub: &Hub) -> Result<(Outbound, Greeting), Error> {
        let (ends, bytes) = Ends::create(rank, peer, hub, true, hub.wire().devices())?;
        let half = Outbound {
            peer,
            ends,
            targets: OnceCell::new(),
            lanes: Default::default(),
        };
        Ok((half, Greeting { bytes, rings: None }))
    }

    /// The peer has made its half: from here on messages can be sent.
    pub(super) fn joined(&self, rank: usize, answer: Greeting) -> Result<(), Error> {
        let Some(rings) = answer.rings.filter(|_| answer.bytes.len() == self.ends.count()) else {
            return Err(broken(
                self.peer,
                "it answered what no rank of this version does".to_owned(),
            ));
        };
        if self.is_joined() {
            return Err(broken(self.peer, "it answered twice".to_owned()));
        }
        self.ends.join(rank, &answer.bytes)?;
        self.targets.get_or_init(|| rings);
        Ok(())
    }

    pub(super) fn is_joined(&self) -> bool {
        self.targets.get().is_some()
    }

    pub(super) fn ends(&self) -> &Ends {
        &self.ends
    }

    pub(super) fn reserve(&self, rank: usize, lane: usize, len: usize) -> Result<Option<Region<'_>>, Error> {
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
        let ring = self.ring(rank, lane)?;
        state.reserved.set(Some((at, len)));
        Ok(ring::body(&ring.region(), at, len))
    }

    pub(super) fn commit(&self, lane: usize, header: Header, hub: &Hub) {
        let state = &self.lanes[lane];
        let (Some((at, len)), Some(ring)) = (state.reserved.take(), state.ring.get()) else {
            panic!("a commit on lane {lane} without a reservation");
        };
        let number = state.sent.get();
        let head = Head {
            len: len as u32,
            number,
            header,
        };
        let (from, whole) = ring::whole(at, len);
        let whole = ring.region().part(from, whole);
        whole.part(0, Head::LEN).copy_from(&Region::of(&head.encode()));
        let mut places = state.places.get();
        places.set(number, at, len);
        state.places.set(places);
        state.sent.set(number.wrapping_add(1));
        let word = Word::Message { lane, at, number }.encode();
        hub.posted();
        self.ends.post(lane, (from, whole.len()), word, number);
        self.flush(lane, hub);
    }

    /// Hands the wire what it had no room for.
    pub(super) fn flush(&self, lane: usize, hub: &Hub) {
        let write = |lane: usize, (at, len): (usize, usize), word: u32, number: u32| {
            let (Some(ring), Some(targets)) = (self.lanes[lane].ring.get(), self.targets.get()) else {
                return Ok(true); // nothing was reserved, or nobody joined
            };
            let (base, key) = targets[lane];
            let from = ring.region().part(at, len);
            let to = (base.wrapping_add(at as u64), key);
            let id = u64::from(number) << 8 | lane as u64;
            self.ends.end(lane).write(Some((&from, ring)), to, word, id)
        };
        if !self.ends.flush(lane, write, hub) {
            self.give_up(hub);
        }
    }

    /// The wire has written a message.
    pub(super) fn written(&self, id: u64, hub: &Hub) -> Result<(), String> {
        if self.ends.are_broken() {
            return Ok(()); // it was given up
        }
        let (lane, number) = ((id & 0xff) as usize, (id >> 8) as u32);
        match self.lanes.get(lane) {
            Some(state) if state.written.get() == number && number != state.sent.get() => {
                state.written.set(number.wrapping_add(1));
                hub.settled(1);
                Ok(())
            }
            _ => Err(format!(
                "the plugin says that write {id:#x} is done, which was not its turn"
            )),
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

    /// Nothing more is sent, ever: what is under way is lost.
    pub(super) fn give_up(&self, hub: &Hub) {
        for state in &self.lanes {
            let lost = state
                .sent
                .get()
                .wrapping_sub(state.written.replace(state.sent.get()));
            hub.settled(lost as usize);
        }
    }

    /// Whether something is still to be written.
    pub(super) fn unsent(&self) -> bool {
        self.lanes.iter().any(|state| state.sent != state.written)
    }

    pub(super) fn mapped(&self) -> usize {
        self.lanes
            .iter()
            .filter_map(|state| state.ring.get())
            .map(Memory::len)
            .sum()
    }

    fn ring(&self, rank: usize, lane: usize) -> Result<&Memory, Error> {
        let state = &self.lanes[lane];
        if let Some(ring) = state.ring.get() {
            return Ok(ring);
        }
        let ring = self.ends.memory(lane, RING).map_err(|why| broken(rank, why))?;
        Ok(state.ring.get_or_init(|| ring))
    }
}

impl SendLane {
    /// The first message whose place is not free: the wire, or the receiver, still uses it.
    fn oldest(&self) -> u32 {
        let sent = self.sent.get();
        let under_way = |till: &Cell<u32>| sent.wrapping_sub(till.get());
        sent.wrapping_sub(under_way(&self.written).max(under_way(&self.released)))
    }
}

const _: () = assert!(DEPTH < 1 << 15);
