//! The receiving half of a link.

use super::{
    DEPTH, Hub,
    abi::UNTOLD,
    broken,
    ends::{Ends, Post},
    frame::{self, Greeting},
    ring::{self, Head, NUMBER_BITS, Place, RING, SLACK, Wanted, Word},
    wire::{Memory, Part},
};
use crate::{
    mem::Region,
    transport::{self, Header, LANES, MAX_MESSAGE, Message},
    types::Error,
};
use smallvec::{SmallVec, smallvec};
use std::{
    cell::{Cell, RefCell},
    sync::Arc,
};

/// The receiving half of a link. What the peer writes is read once and checked before it is used; it may write into the rings
/// whenever it likes, and into memory of callers' where a message is wanted, which spoils values and no more.
pub(super) struct Inbound {
    peer: usize,
    ends: Ends,
    lanes: [RecvLane; LANES],
    /// Behind the ends, by which they are written; by lane. What this rank says of its wishes lies behind each.
    rings: Vec<Arc<Memory>>,
    /// The peer's, where wishes are told.
    desk: Place,
}

#[derive(Default)]
struct RecvLane {
    /// Messages that have come, were released, and of which the peer was told that they were; modulo 2^32.
    arrived: Cell<u32>,
    released: Cell<u32>,
    returned: Cell<u32>,
    /// Message k, if it has come, at k modulo [`DEPTH`].
    messages: [Cell<Option<Arrived>>; DEPTH],
    /// Bytes of messages that were released and of which the peer was not told.
    unpaid: Cell<usize>,
    /// The message that was last looked at as one that may be wanted somewhere.
    considered: Cell<Option<u32>>,
    /// Whether a wish is under way, behind which the next waits.
    is_wishing: Cell<bool>,
    /// Where message k is wanted, from when the peer was told until it is released, at k modulo [`DEPTH`].
    wishes: RefCell<[Option<Wish>; DEPTH]>,
}

#[derive(Clone, Copy)]
struct Arrived {
    /// In the ring; `None`: where it was wanted.
    at: Option<usize>,
    len: u32,
    header: Header,
}

struct Wish {
    number: u32,
    header: Header,
    target: Part,
}

impl Inbound {
    /// The half that receives from `peer`, which has said so, and the answer.
    pub(super) fn accept(
        rank: usize,
        peer: usize,
        bytes: &[Vec<u8>],
        desk: Place,
        hub: &Hub,
    ) -> Result<(Inbound, Greeting), Error> {
        let (ends, own) = Ends::from(rank, peer, hub, bytes)?;
        // From here on the ends go before the rings, whatever fails.
        let mut half = Inbound {
            peer,
            ends,
            lanes: Default::default(),
            rings: Vec::with_capacity(LANES),
            desk,
        };
        for _ in 0..LANES {
            let ring = half.ends.memory(RING + DEPTH * Wanted::ROOM, hub);
            half.rings.push(ring.map_err(|why| broken(rank, why))?);
        }
        half.ends.join(rank, bytes)?;
        let rings = half
            .rings
            .iter()
            .map(|ring| half.ends.place(ring, 0))
            .collect::<Option<_>>();
        let rings = rings.ok_or_else(|| Error::internal("a ring that its connections do not know"))?;
        let places = frame::Places::Rings(rings);
        Ok((half, Greeting { bytes: own, places }))
    }

    pub(super) fn ends(&self) -> &Ends {
        &self.ends
    }

    /// A write has arrived.
    pub(super) fn arrived(&self, word: u32, hub: &Hub) -> Result<(), Error> {
        let found = match Word::decode(word) {
            Some(Word::Message { lane, at, number }) => self.in_ring(lane, at, number).map(|one| (lane, one)),
            Some(Word::Landed { lane, number }) => self.where_wanted(lane, number).map(|one| (lane, one)),
            _ => None,
        };
        let Some((lane, (number, message))) = found else {
            return Err(broken(
                self.peer,
                "it wrote what no rank of this version does".to_owned(),
            ));
        };
        let state = &self.lanes[lane];
        state.messages[number as usize % DEPTH].set(Some(message));
        // Of several connections the later may be the faster.
        let next = || state.messages[state.arrived.get() as usize % DEPTH].get();
        while state.arrived.get().wrapping_sub(state.released.get()) < DEPTH as u32 && next().is_some() {
            state.arrived.set(state.arrived.get().wrapping_add(1));
        }
        // It may have taken the peer's last credit, while the peer has a right to more.
        self.pay(lane, hub);
        Ok(())
    }

    /// The whole number of a message of which the last bits came, if it may come now.
    fn number_of(&self, lane: usize, number: u32) -> Option<u32> {
        let state = &self.lanes[lane];
        let ahead = number.wrapping_sub(state.arrived.get()) & ((1 << NUMBER_BITS) - 1);
        let number = state.arrived.get().wrapping_add(ahead);
        let held = number.wrapping_sub(state.released.get()) as usize;
        (held < DEPTH && state.messages[number as usize % DEPTH].get().is_none()).then_some(number)
    }

    fn in_ring(&self, lane: usize, at: usize, number: u32) -> Option<(u32, Arrived)> {
        let (number, ring) = (self.number_of(lane, number)?, self.ring(lane));
        let (from, _) = ring::whole(at, 0);
        let mut bytes = [0u8; Head::LEN];
        Region::of_mut(&mut bytes).copy_from(&ring.get(from, Head::LEN)?);
        let head = Head::decode(&bytes);
        let len = head.len as usize;
        let is_sound = head.number == number && len <= MAX_MESSAGE && ring::body(&ring, at, len).is_some();
        self.lanes[lane].wishes.borrow_mut()[number as usize % DEPTH] = None; // the peer had not heard of it
        let message = Arrived {
            at: Some(at),
            len: head.len,
            header: head.header,
        };
        is_sound.then_some((number, message))
    }

    fn where_wanted(&self, lane: usize, number: u32) -> Option<(u32, Arrived)> {
        let number = self.number_of(lane, number)?;
        let wishes = self.lanes[lane].wishes.borrow();
        let wish = wishes[number as usize % DEPTH].as_ref()?;
        let message = Arrived {
            at: None,
            len: wish.target.len as u32,
            header: wish.header,
        };
        (wish.number == number).then_some((number, message))
    }

    pub(super) fn peek(&self, lane: usize) -> Option<Message<'_>> {
        let state = &self.lanes[lane];
        let number = state.released.get();
        if number == state.arrived.get() {
            return None;
        }
        let Arrived { at, len, header } = state.messages[number as usize % DEPTH].get()?;
        let body = match at {
            Some(at) => ring::body(&self.ring(lane), at, len as usize)?,
            None => state.wishes.borrow()[number as usize % DEPTH]
                .as_ref()?
                .target
                .landed(),
        };
        let body = transport::Body::Here(body);
        Some(Message { header, body })
    }

    /// Tells the peer where the next message of a lane is wanted, if it can be written there.
    pub(super) fn land(&self, lane: usize, header: &Header, target: &Region<'_>, hub: &Hub) {
        let state = &self.lanes[lane];
        let number = state.arrived.get();
        let is_new = state.considered.get() != Some(number) && !state.is_wishing.get();
        if !is_new || target.len() < WANTED_LEAST || target.len() > MAX_MESSAGE {
            return;
        }
        state.considered.set(Some(number));
        let Some(target) = hub.known(target) else { return };
        let Some(place) = self.ends.place(&target.memory, target.at) else {
            return;
        };
        let wanted = Wanted {
            number,
            len: target.len as u32,
            header: *header,
            place,
        };
        let said = wanted.encode();
        let own = Part {
            memory: self.rings[lane].clone(),
            at: RING + number as usize % DEPTH * Wanted::ROOM,
            len: said.len(),
        };
        own.bytes().copy_from(&Region::of(&said));
        state.wishes.borrow_mut()[number as usize % DEPTH] = Some(Wish {
            number,
            header: *header,
            target,
        });
        state.is_wishing.set(true);
        let index = self.ends.of_lane(lane);
        let at = ring::on_desk(lane, number) as u64;
        let post = Post {
            parts: smallvec![own],
            to: (self.desk.address.wrapping_add(at), self.desk.keys[index]),
            word: Word::Wanted {
                lane,
                number: number as u16,
            },
            id: lane as u64,
        };
        self.ends.post(index, post);
        self.ends.flush(index, hub);
    }

    /// Has nothing come to memory of callers' any more.
    pub(super) fn withdraw(&self, hub: &Hub) {
        let wishes = |state: &RecvLane| state.wishes.borrow().iter().any(Option::is_some);
        if self.lanes.iter().any(wishes) {
            self.ends.close("what it sends is not wanted any more", hub);
        }
    }

    pub(super) fn release(&self, lane: usize, hub: &Hub) {
        let state = &self.lanes[lane];
        debug_assert!(
            state.released.get() != state.arrived.get(),
            "a release on lane {lane}, where no message is"
        );
        let number = state.released.get();
        let message = state.messages[number as usize % DEPTH].take();
        state.wishes.borrow_mut()[number as usize % DEPTH] = None;
        let len = message.map_or(0, |message| message.len as usize);
        state.unpaid.set(state.unpaid.get() + ring::taken(len));
        state.released.set(number.wrapping_add(1));
        self.pay(lane, hub);
    }

    /// Tells the peer how many of its messages were released, if it should hear: when it has no credit left, half of it would
    /// come back at once, or the next message might not fit.
    pub(super) fn pay(&self, lane: usize, hub: &Hub) {
        let state = &self.lanes[lane];
        let (released, returned) = (state.released.get(), state.returned.get());
        let to_return = released.wrapping_sub(returned) as usize;
        let known = state.arrived.get().wrapping_sub(returned) as usize;
        let owes = to_return >= DEPTH / 2 || to_return > 0 && known == DEPTH || state.unpaid.get() > SLACK;
        if owes {
            state.returned.set(released);
            state.unpaid.set(0);
            let word = Word::Credit {
                lane,
                released: released as u16,
            };
            // Credits are not told of: what counts is what comes for them.
            let post = Post {
                parts: SmallVec::new(),
                to: (0, 0),
                word,
                id: UNTOLD,
            };
            let index = self.ends.of_lane(lane);
            self.ends.post(index, post);
            self.ends.flush(index, hub);
        }
    }

    /// Hands the wire what it had no room for.
    pub(super) fn flush(&self, hub: &Hub) {
        self.ends.flush_all(hub);
    }

    /// A wish is with the peer.
    pub(super) fn written(&self, id: u64) -> Result<(), String> {
        match self.lanes.get(id as usize) {
            Some(state) if state.is_wishing.replace(false) => Ok(()),
            _ => Err(format!(
                "the plugin says that wish {id:#x} is written, of which there is none"
            )),
        }
    }

    pub(super) fn mapped(&self) -> usize {
        self.rings.iter().map(|ring| ring.len()).sum()
    }

    /// The ring of a lane.
    fn ring(&self, lane: usize) -> Region<'_> {
        self.rings[lane].region().part(0, RING)
    }
}

/// Bytes of a message that is worth a word to its sender, so that it need not be copied.
pub(super) const WANTED_LEAST: usize = 16 << 10;
