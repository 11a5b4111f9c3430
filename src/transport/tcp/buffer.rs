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
    long: OnceCell<Block>,
}

/// A body's lines, after one whose last bytes are the head's.
struct Block(Box<[Line]>);

#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "reached by address only")] UnsafeCell<[u8; LINE]>);

const LINE: usize = 64;
/// The longest body that a short block holds, in bytes.
const SHORT: usize = 1024;

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
        let blocks = self.0.iter().flat_map(|slot| [slot.short.get(), slot.long.get()]);
        blocks.flatten().map(|block| block.0.len() * LINE).sum()
    }

    fn block(&self, number: u32, len: usize) -> &Block {
        assert!(len <= MAX_MESSAGE, "a body of {len} bytes");
        let slot = &self.0[number as usize % DEPTH];
        match len <= SHORT {
            true => slot.short.get_or_init(|| Block::new(SHORT)),
            false => slot.long.get_or_init(|| Block::new(MAX_MESSAGE)),
        }
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
