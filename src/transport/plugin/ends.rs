//! [`Ends`]: this rank's ends of the connections of one direction of a link.

use super::{
    DEPTH, Hub, MAX_ENDS,
    abi::Setup,
    broken,
    wire::{End, Memory},
};
use crate::{transport::LANES, types::Error};
use std::{
    cell::{OnceCell, RefCell},
    collections::VecDeque,
    sync::Arc,
    time::Instant,
};

/// The ends of one direction of a link: lane l uses the end l modulo their number. They are given up together.
pub(super) struct Ends {
    ends: Vec<End>,
    devices: Vec<usize>,
    wire: Arc<super::Wire>,
    /// What the wire has no room for yet, by end.
    waiting: Vec<RefCell<VecDeque<Posted>>>,
    trouble: OnceCell<(String, Instant)>,
}

/// A write: its lane, piece of the ring, immediate and number.
type Posted = (usize, (usize, usize), u32, u32);

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
    /// So many ends of connections with `peer`, on which this rank sends or receives, over all devices in turn; and the bytes by
    /// which the other side joins them.
    pub(super) fn create(
        rank: usize,
        peer: usize,
        hub: &Hub,
        sends: bool,
        count: usize,
    ) -> Result<(Ends, Vec<Vec<u8>>), Error> {
        let wire = hub.wire();
        let devices: Vec<usize> = (0..count.min(MAX_ENDS)).map(|i| i % wire.devices()).collect();
        let (messages, credits) = ((LANES * DEPTH) as u32, LANES as u32);
        let create = |(index, &device): (usize, &usize)| {
            let setup = Setup {
                number: Number { peer, sends, index }.encode(),
                device: device as u32,
                peer: peer as u32,
                first: sends.into(),
                writes: if sends { messages } else { credits },
                // A credit is for one message or more, all of which this rank has sent since it looked.
                arrivals: messages,
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

    /// Which end a lane uses.
    pub(super) fn index(&self, lane: usize) -> usize {
        lane % self.ends.len()
    }

    pub(super) fn end(&self, lane: usize) -> &End {
        &self.ends[self.index(lane)]
    }

    /// Memory that the end of a lane can use.
    pub(super) fn memory(&self, lane: usize, len: usize) -> Result<Memory, String> {
        Memory::new(&self.wire, self.devices[self.index(lane)], len)
    }

    /// Puts a write in its line.
    pub(super) fn post(&self, lane: usize, piece: (usize, usize), word: u32, number: u32) {
        if !self.are_broken() {
            let mut line = self.waiting[self.index(lane)].borrow_mut();
            line.push_back((lane, piece, word, number));
        }
    }

    /// Hands the line of `lane` to the wire by `write`, as far as there is room; `false` if that failed, now or before.
    pub(super) fn flush(
        &self,
        lane: usize,
        write: impl Fn(usize, (usize, usize), u32, u32) -> Result<bool, String>,
        hub: &Hub,
    ) -> bool {
        if self.are_broken() {
            return false;
        }
        let mut line = self.waiting[self.index(lane)].borrow_mut();
        while let Some(&(lane, piece, word, number)) = line.front() {
            match write(lane, piece, word, number) {
                Ok(true) => _ = line.pop_front(),
                Ok(false) => {
                    hub.is_full();
                    return true;
                }
                Err(why) => {
                    line.clear();
                    self.fail(why, hub);
                    return false;
                }
            }
        }
        true
    }

    /// The connection `index` has failed.
    pub(super) fn failed(&self, index: usize, hub: &Hub) {
        if let Some(end) = self.ends.get(index) {
            self.fail(end.reason(), hub);
        }
    }

    fn fail(&self, why: String, hub: &Hub) {
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
