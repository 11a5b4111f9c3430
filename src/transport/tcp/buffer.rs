//! [`Slots`]: a lane's memory for messages on this side of the connection.

use super::{DEPTH, frame::Head};
use crate::{mem::Region, transport::MAX_MESSAGE};
use std::cell::{OnceCell, UnsafeCell};

/// Room for [`DEPTH`] messages. What was allocated once stays: a region that is used too late shows wrong data, never
/// somebody else's memory. A lane that carries short messages only takes a few KiB.
#[derive(Default)]
pub(super) struct Slots([Slot; DEPTH]);

#[derive(Default)]
struct Slot {
    short: OnceCell<Block>,
    middle: OnceCell<Block>,
    long: OnceCell<Block>,
}

/// A body's lines, after one whose last bytes are the head's.
struct Block(Box<[Line]>);

#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "reached by address only")] UnsafeCell<[u8; LINE]>);

const LINE: usize = 64;
/// The longest body that a short block holds, in bytes.
const SHORT: usize = 1024;
/// The longest that a middle one holds: the tiles of calls that were planned for TCP are no longer.
const MIDDLE: usize = 32 << 10;

impl Slots {
    /// Where the body of message `number`, of `len <= MAX_MESSAGE` bytes, lies.
    pub(super) fn body(&self, number: u32, len: usize) -> Region<'_> {
        // SAFETY: a block holds `LINE` bytes before its body, and at least `len` after. They are inside `UnsafeCell`s, so
        // no reference claims them, and live as long as `self`.
        unsafe { Region::from_raw(self.block(number, len).start().add(LINE), len) }
    }

    /// The same with room for the head before it.
    pub(super) fn whole(&self, number: u32, len: usize) -> Region<'_> {
        // SAFETY: as in `body`; `Head::LEN <= LINE`.
        unsafe {
            Region::from_raw(
                self.block(number, len).start().add(LINE - Head::LEN),
                Head::LEN + len,
            )
        }
    }

    /// Bytes that were allocated.
    pub(super) fn allocated(&self) -> usize {
        let slots = self.0.iter();
        let blocks = slots.flat_map(|slot| [slot.short.get(), slot.middle.get(), slot.long.get()]);
        blocks.flatten().map(|block| block.0.len() * LINE).sum()
    }

    fn block(&self, number: u32, len: usize) -> &Block {
        assert!(len <= MAX_MESSAGE, "a body of {len} bytes");
        let slot = &self.0[number as usize % DEPTH];
        let (block, holds) = if len <= SHORT {
            (&slot.short, SHORT)
        } else if len <= MIDDLE {
            (&slot.middle, MIDDLE)
        } else {
            (&slot.long, MAX_MESSAGE)
        };
        block.get_or_init(|| Block::new(holds))
    }
}

impl Block {
    fn new(body: usize) -> Block {
        let lines = 1 + body.div_ceil(LINE);
        Block((0..lines).map(|_| Line(UnsafeCell::new([0; LINE]))).collect())
    }

    fn start(&self) -> *mut u8 {
        // Derived from the whole slice, so that all of its lines may be reached from it.
        self.0.as_ptr().cast_mut().cast()
    }
}

const _: () = assert!(Head::LEN <= LINE && DEPTH.is_power_of_two());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_takes_what_its_messages_need() {
        let slots = Slots::default();
        for (len, most) in [
            (SHORT, 2 * SHORT),
            (MIDDLE, 2 * MIDDLE),
            (MAX_MESSAGE, 2 * MAX_MESSAGE),
        ] {
            for turn in 0..3 {
                (0..DEPTH as u32).for_each(|number| {
                    assert_eq!(slots.body(turn * DEPTH as u32 + number, len).len(), len);
                });
            }
            assert!((DEPTH * len..DEPTH * most).contains(&slots.allocated()), "{len}");
        }
    }
}
