//! [`Slots`]: a lane's memory for messages on this side of the connection.

use super::{DEPTH, frame::Head};
use crate::{mem::Region, transport::MAX_MESSAGE, types::Error};
use std::{
    cell::{Cell, OnceCell, UnsafeCell},
    io,
};

/// Room for [`DEPTH`] messages, of which the first that is free is used: it was used last, and is in a cache. What was allocated
/// once stays: a region that is used too late shows wrong data, never somebody else's memory. A lane that carries short
/// messages only takes a few KiB.
#[derive(Default)]
pub(super) struct Slots {
    slots: [Slot; DEPTH],
    /// A bit for each that is in use.
    taken: Cell<u8>,
}

/// A slot that is in use, and which of its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    slot: u8,
    class: u8,
}

/// A block for bodies of each of [`LENGTHS`], when it was needed.
#[derive(Default)]
struct Slot([OnceCell<Block>; LENGTHS.len()]);

/// A body's lines, after one whose last bytes are the head's.
struct Block(Box<[Line]>);

#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "reached by address only")] UnsafeCell<[u8; LINE]>);

const LINE: usize = 64;
/// Bytes of the longest bodies that blocks hold.
const LENGTHS: [usize; 4] = [1 << 10, 32 << 10, 128 << 10, MAX_MESSAGE];

impl Slots {
    /// A slot for one more message with a body of up to `len <= MAX_MESSAGE` bytes. There are [`DEPTH`] at most.
    ///
    /// # Errors
    /// [`Error::System`] where there is no memory for it.
    pub(super) fn take(&self, len: usize) -> Result<Place, Error> {
        assert!(len <= MAX_MESSAGE, "a body of {len} bytes");
        let class = LENGTHS.iter().take_while(|&&holds| holds < len).count();
        let taken = self.taken.get();
        let first = taken.trailing_ones() as usize;
        assert!(first < DEPTH, "a message too many");
        let block = &self.slots[first].0[class];
        if block.get().is_none() {
            let _ = block.set(Block::new(LENGTHS[class])?); // it has none
        }
        self.taken.set(taken | 1 << first);
        let [slot, class] = [first, class].map(|number| number as u8);
        Ok(Place { slot, class })
    }

    /// Has it free again.
    pub(super) fn give_back(&self, place: Place) {
        self.taken.set(self.taken.get() & !(1 << place.slot));
    }

    /// Where a body of `len` bytes lies in a slot that was taken for as many or more.
    pub(super) fn body(&self, place: Place, len: usize) -> Region<'_> {
        // SAFETY: a block holds `LINE` bytes before its body, and at least `len` after. They are inside `UnsafeCell`s, so
        // no reference claims them, and live as long as `self`.
        unsafe { Region::from_raw(self.block(place, len).start().add(LINE), len) }
    }

    /// The same with room for the head before it.
    pub(super) fn whole(&self, place: Place, len: usize) -> Region<'_> {
        // SAFETY: as in `body`; `Head::LEN <= LINE`.
        unsafe {
            Region::from_raw(
                self.block(place, len).start().add(LINE - Head::LEN),
                Head::LEN + len,
            )
        }
    }

    /// Bytes that were allocated.
    pub(super) fn allocated(&self) -> usize {
        let blocks = self.slots.iter().flat_map(|slot| &slot.0);
        blocks
            .filter_map(OnceCell::get)
            .map(|block| block.0.len() * LINE)
            .sum()
    }

    fn block(&self, place: Place, len: usize) -> &Block {
        let class = usize::from(place.class);
        assert!(len <= LENGTHS[class], "a body of {len} bytes");
        let block = self.slots[usize::from(place.slot)].0[class].get();
        block.expect("it was made when the slot was taken")
    }
}

impl Block {
    fn new(body: usize) -> Result<Block, Error> {
        let count = 1 + body.div_ceil(LINE);
        let mut lines = Vec::new();
        lines.try_reserve_exact(count).map_err(|_| {
            let what = format!("there is no memory for a message of up to {body} bytes");
            Error::system(what, io::ErrorKind::OutOfMemory)
        })?;
        lines.extend((0..count).map(|_| Line(UnsafeCell::new([0; LINE]))));
        Ok(Block(lines.into_boxed_slice()))
    }

    fn start(&self) -> *mut u8 {
        // Derived from the whole slice, so that all of its lines may be reached from it.
        self.0.as_ptr().cast_mut().cast()
    }
}

const _: () = assert!(Head::LEN <= LINE && DEPTH == u8::BITS as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_takes_what_its_messages_need() {
        let slots = Slots::default();
        for len in LENGTHS {
            for _ in 0..3 {
                let places: Vec<Place> = (0..DEPTH).map(|_| slots.take(len).unwrap()).collect();
                let mut starts: Vec<_> = (places.iter())
                    .map(|&place| slots.body(place, len).as_ptr())
                    .collect();
                starts.sort();
                starts.dedup();
                assert_eq!(starts.len(), DEPTH);
                places.into_iter().for_each(|place| slots.give_back(place));
            }
            assert!(
                (DEPTH * len..DEPTH * len * 2).contains(&slots.allocated()),
                "{len}"
            );
        }
    }

    #[test]
    fn the_slot_that_was_used_last_is_used_again() {
        let slots = Slots::default();
        let [a, b] = [(); 2].map(|()| slots.take(5).unwrap());
        slots.give_back(a);
        assert_eq!(slots.take(5).unwrap(), a);
        slots.give_back(b);
        assert_eq!(slots.take(5).unwrap(), b);
    }
}
