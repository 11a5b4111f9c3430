//! [`Ends`]: this rank's ends of the connections of one direction of a link.

use super::{
    DEPTH, Hub, MAX_ENDS,
    abi::Setup,
    broken,
    ring::{Place, Word},
    wire::{End, Memory, Part},
};
use crate::{transport::LANES, types::Error};
use smallvec::SmallVec;
use std::{
    cell::{OnceCell, RefCell},
    collections::VecDeque,
    sync::Arc,
    time::Instant,
};
use tracing::{debug, warn};

/// The ends of one direction of a link, over which messages are spread. They are given up together.
pub(super) struct Ends {
    rank: usize,
    peer: usize,
    ends: Vec<End>,
    devices: Vec<usize>,
    wire: Arc<super::Wire>,
    /// What the wire has no room for yet, by end.
    waiting: Vec<RefCell<VecDeque<Post>>>,
    trouble: OnceCell<(String, Instant)>,
}

/// A write.
pub(super) struct Post {
    pub(super) parts: SmallVec<[Part; 2]>,
    /// Address and key.
    pub(super) to: (u64, u64),
    pub(super) word: Word,
    pub(super) id: u64,
}

/// Which end an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) peer: usize,
    pub(super) sends: bool,
    pub(super) index: usize,
}

impl Number {
    fn encode(self) -> u64 {
        (self.peer as u64) << 16 | (self.index as u64) << 1 | u64::from(self.sends)
    }

    pub(super) fn decode(number: u64) -> Number {
        Number {
            peer: (number >> 16) as usize,
            sends: number & 1 == 1,
            index: (number as u16 >> 1) as usize,
        }
    }
}

impl Ends {
    /// Ends of connections with `peer`, on which this rank sends: so many of each device; and the bytes by which the other side
    /// joins them.
    pub(super) fn to(rank: usize, peer: usize, hub: &Hub) -> Result<(Ends, Vec<Vec<u8>>), Error> {
        let wire = hub.wire();
        // Those of all devices come before a second one of the first, if there is no room for all.
        let count = wire.devices() * wire.connections();
        let devices = (0..count.min(MAX_ENDS)).map(|i| i % wire.devices()).collect();
        Ends::create(rank, peer, wire, true, devices)
    }

    /// Ends of connections with `peer` on which this rank receives: each of the device that best meets the one that gave these
    /// bytes.
    pub(super) fn from(
        rank: usize,
        peer: usize,
        hub: &Hub,
        bytes: &[Vec<u8>],
    ) -> Result<(Ends, Vec<Vec<u8>>), Error> {
        let wire = hub.wire();
        let meet = |(i, bytes): (usize, &Vec<u8>)| wire.meet(bytes, i % wire.devices());
        let devices = bytes.iter().enumerate().map(meet).collect::<Result<_, _>>();
        Ends::create(rank, peer, wire, false, devices.map_err(|why| broken(rank, why))?)
    }

    fn create(
        rank: usize,
        peer: usize,
        wire: &Arc<super::Wire>,
        sends: bool,
        devices: Vec<usize>,
    ) -> Result<(Ends, Vec<Vec<u8>>), Error> {
        let messages = (LANES * DEPTH) as u32;
        let create = |(index, &device): (usize, &usize)| {
            let setup = Setup {
                number: Number { peer, sends, index }.encode(),
                device: device as u32,
                peer: peer as u32,
                first: sends.into(),
                // A receiver writes credits, and one wish of each lane.
                writes: if sends { messages } else { messages + LANES as u32 },
                // A credit is for one message or more, all of which this rank has sent since it looked; and a wish is for one of
                // these, or the next one.
                arrivals: if sends {
                    2 * messages + LANES as u32
                } else {
                    messages
                },
            };
            End::create(wire, &setup)
        };
        let made = devices
            .iter()
            .enumerate()
            .map(create)
            .collect::<Result<Vec<_>, _>>();
        let (ends, bytes): (Vec<End>, Vec<Vec<u8>>) =
            made.map_err(|why| broken(rank, why))?.into_iter().unzip();
        let ends = Ends {
            rank,
            peer,
            waiting: ends.iter().map(|_| RefCell::default()).collect(),
            ends,
            devices,
            wire: Arc::clone(wire),
            trouble: OnceCell::new(),
        };
        Ok((ends, bytes))
    }

    /// Joins each with the one that gave these bytes.
    pub(super) fn join(&self, rank: usize, bytes: &[Vec<u8>]) -> Result<(), Error> {
        let mut pairs = self.ends.iter().zip(bytes);
        pairs
            .try_for_each(|(end, bytes)| end.join(bytes))
            .map_err(|why| broken(rank, why))
    }

    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    /// The end of a lane: what is short, and all that the other direction's receiver says, goes by it.
    pub(super) fn of_lane(&self, lane: usize) -> usize {
        lane % self.ends.len()
    }

    /// The end by which a lane's message of so many bytes goes. Long ones take turns, so that one lane has them all.
    pub(super) fn of_message(&self, lane: usize, number: u32, len: usize) -> usize {
        match len < STRIPED {
            true => self.of_lane(lane),
            false => (lane + number as usize) % self.ends.len(),
        }
    }

    /// Memory that all ends can use. Callers' memory makes room for it: that can be copied.
    pub(super) fn memory(&self, len: usize, hub: &Hub) -> Result<Arc<Memory>, String> {
        let make = || Memory::new(&self.wire, &self.devices, len);
        let made = make().or_else(|why| match hub.forget(&why) {
            true => make(),
            false => Err(why),
        });
        made.map(Arc::new)
    }

    /// By which the other side writes into `memory`, at `at`; `None` if not all ends can use it.
    pub(super) fn place(&self, memory: &Memory, at: usize) -> Option<Place> {
        let keys = self
            .devices
            .iter()
            .map(|&device| memory.key(device))
            .collect::<Option<_>>()?;
        let address = memory.address() + at as u64;
        Some(Place { address, keys })
    }

    /// Puts a write in the line of an end.
    pub(super) fn post(&self, index: usize, post: Post) {
        if !self.are_broken() {
            self.waiting[index].borrow_mut().push_back(post);
        }
    }

    /// Hands the line of an end to the wire, as far as there is room.
    pub(super) fn flush(&self, index: usize, hub: &Hub) {
        if self.are_broken() {
            return;
        }
        let mut line = self.waiting[index].borrow_mut();
        while let Some(post) = line.front() {
            match self.ends[index].write(&post.parts, post.to, post.word.encode(), post.id) {
                Ok(true) => _ = line.pop_front(),
                Ok(false) => return hub.is_full(),
                Err(why) => {
                    line.clear();
                    self.fail(why, true, hub);
                }
            }
        }
    }

    /// Hands the lines of all ends to the wire, as [`flush`](Ends::flush) does.
    pub(super) fn flush_all(&self, hub: &Hub) {
        (0..self.ends.len()).for_each(|index| self.flush(index, hub));
    }

    /// Destroys them: from here on nothing is read or written by them.
    pub(super) fn close(&self, why: &str, hub: &Hub) {
        self.ends.iter().for_each(End::close);
        self.waiting.iter().for_each(|line| line.borrow_mut().clear());
        self.end(why.to_owned(), hub);
    }

    /// The connection `index` has failed, and `is_loss` if it took messages along.
    pub(super) fn failed(&self, index: usize, is_loss: bool, hub: &Hub) {
        if let Some(end) = self.ends.get(index) {
            self.fail(end.reason(), is_loss, hub);
        }
    }

    fn fail(&self, why: String, is_loss: bool, hub: &Hub) {
        let (rank, peer) = (self.rank, self.peer);
        match is_loss && !self.are_broken() {
            true => warn!(rank, "link: a connection with rank {peer} has failed: {why}"),
            // That a peer has left may be all.
            false => debug!(rank, "link: a connection with rank {peer} has ended: {why}"),
        }
        self.end(why, hub);
    }

    fn end(&self, why: String, hub: &Hub) {
        let _ = self.trouble.set((why, hub.one_ended())); // the first tells the most
    }

    /// Whether one does not work any more: then none is used.
    pub(super) fn are_broken(&self) -> bool {
        self.trouble.get().is_some()
    }

    /// What happened to one of them, and when, if one does not work any more.
    pub(super) fn trouble(&self) -> Option<(String, Instant)> {
        self.trouble.get().cloned()
    }
}

/// Bytes of a message that is worth another connection than its lane's.
const STRIPED: usize = 16 << 10;
