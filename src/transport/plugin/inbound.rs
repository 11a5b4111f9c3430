//! The receiving half of a link.

use super::{
    DEPTH, Hub, broken,
    ends::Ends,
    frame::Greeting,
    ring::{self, Head, NUMBER_BITS, RING, SLACK, Word},
    wire::Memory,
};
use crate::{
    mem::Region,
    transport::{self, Header, LANES, MAX_MESSAGE, Message},
    types::Error,
};
use std::cell::Cell;

/// The receiving half of a link. What the peer writes is read once and checked before it is used; it may write into the rings
/// whenever it likes, which spoils values and no more.
pub(super) struct Inbound {
    peer: usize,
    ends: Ends,
    lanes: [RecvLane; LANES],
    /// Behind the ends, by which they are written; by lane.
    rings: Vec<Memory>,
}

#[derive(Default)]
struct RecvLane {
    /// Messages that have come, were released, and of which the peer was told that they were; modulo 2^32.
    arrived: Cell<u32>,
    released: Cell<u32>,
    returned: Cell<u32>,
    /// Where message k lies, its length and header, at k modulo [`DEPTH`].
    messages: [Cell<(usize, u32, Header)>; DEPTH],
    /// Bytes of messages that were released and of which the peer was not told.
    unpaid: Cell<usize>,
    /// Whether a credit is under way, behind which the next waits.
    is_paying: Cell<bool>,
}

impl Inbound {
    /// The half that receives from `peer`, which has said `greeting`, and the answer.
    pub(super) fn accept(
        rank: usize,
        peer: usize,
        greeting: Greeting,
        hub: &Hub,
    ) -> Result<(Inbound, Greeting), Error> {
        let (ends, bytes) = Ends::create(rank, peer, hub, false, greeting.bytes.len())?;
        // From here on the ends go before the rings, whatever fails.
        let mut half = Inbound {
            peer,
            ends,
            lanes: Default::default(),
            rings: Vec::with_capacity(LANES),
        };
        for lane in 0..LANES {
            let ring = half.ends.memory(lane, RING);
            half.rings.push(ring.map_err(|why| broken(rank, why))?);
        }
        half.ends.join(rank, &greeting.bytes)?;
        let rings = Some(std::array::from_fn(|lane| half.rings[lane].place()));
        Ok((half, Greeting { bytes, rings }))
    }

    pub(super) fn ends(&self) -> &Ends {
        &self.ends
    }

    /// A write has arrived by the end `index`.
    pub(super) fn arrived(&self, index: usize, word: u32, hub: &Hub) -> Result<(), Error> {
        let Some(Word::Message { lane, at, number }) = Word::decode(word) else {
            return Err(self.garbage());
        };
        let state = &self.lanes[lane];
        let (arrived, ring) = (state.arrived.get(), self.rings[lane].region());
        let held = arrived.wrapping_sub(state.released.get()) as usize;
        let is_next = number == arrived & ((1 << NUMBER_BITS) - 1);
        let (from, _) = ring::whole(at, 0);
        let found = ring.get(from, Head::LEN).filter(|_| is_next && held < DEPTH);
        let Some(found) = found.filter(|_| self.ends.index(lane) == index) else {
            return Err(self.garbage());
        };
        let mut bytes = [0u8; Head::LEN];
        Region::of_mut(&mut bytes).copy_from(&found);
        let head = Head::decode(&bytes);
        let len = head.len as usize;
        if head.number != arrived || len > MAX_MESSAGE || ring::body(&ring, at, len).is_none() {
            return Err(self.garbage());
        }
        state.messages[arrived as usize % DEPTH].set((at, head.len, head.header));
        state.arrived.set(arrived.wrapping_add(1));
        // It may have taken the peer's last credit, while the peer has a right to more.
        self.pay(lane, hub);
        Ok(())
    }

    pub(super) fn peek(&self, lane: usize) -> Option<Message<'_>> {
        let state = &self.lanes[lane];
        let number = state.released.get();
        if number == state.arrived.get() {
            return None;
        }
        let (at, len, header) = state.messages[number as usize % DEPTH].get();
        let body = ring::body(&self.rings[lane].region(), at, len as usize)?;
        let body = transport::Body::Here(body);
        Some(Message { header, body })
    }

    pub(super) fn release(&self, lane: usize, hub: &Hub) {
        let state = &self.lanes[lane];
        debug_assert!(
            state.released.get() != state.arrived.get(),
            "a release on lane {lane}, where no message is"
        );
        let number = state.released.get();
        let (_, len, _) = state.messages[number as usize % DEPTH].get();
        state.unpaid.set(state.unpaid.get() + ring::taken(len as usize));
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
        if owes && !state.is_paying.replace(true) {
            state.returned.set(released);
            state.unpaid.set(0);
            let word = Word::Credit {
                lane,
                released: released as u16,
            };
            self.ends.post(lane, (0, 0), word.encode(), released);
            self.flush(lane, hub);
        }
    }

    /// Hands the wire what it had no room for.
    pub(super) fn flush(&self, lane: usize, hub: &Hub) {
        let write = |lane: usize, _, word: u32, _| self.ends.end(lane).write(None, (0, 0), word, lane as u64);
        self.ends.flush(lane, write, hub);
    }

    /// A credit is with the peer.
    pub(super) fn written(&self, id: u64, hub: &Hub) -> Result<(), String> {
        match self.lanes.get(id as usize) {
            Some(state) if state.is_paying.replace(false) => {
                self.pay(id as usize, hub);
                Ok(())
            }
            _ => Err(format!(
                "the plugin says that credit {id:#x} is written, of which there is none"
            )),
        }
    }

    pub(super) fn mapped(&self) -> usize {
        self.rings.iter().map(Memory::len).sum()
    }

    #[cold]
    fn garbage(&self) -> Error {
        broken(self.peer, "it wrote what no rank of this version does".to_owned())
    }
}
