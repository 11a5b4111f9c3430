//! The memory that two ranks of one machine share: one [`Segment`] for each direction in which they talk.
//!
//! The segment of the direction r -> s is made by r. Its lanes are rings of [`DEPTH`] entries; message number k of a
//! lane lies in entry and slot k modulo [`DEPTH`]. The sender writes the entries and the slots, the receiver the
//! counts of released messages, and no cache line is written by both. The body of an offered message stays in the sender's
//! memory; in its place the entry holds the address.

use crate::{
    sys::memfd::Layout,
    transport::{Header, LANES},
};
use std::{
    cell::UnsafeCell,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

/// Messages that a lane holds. A sender that runs ahead is stopped by the receiver's word coming back, a trip of
/// two cache lines; with four messages in flight neither side of a pipeline waits for that. More would spread a stream
/// over more memory than stays in cache.
pub(crate) const DEPTH: usize = 4;

pub(crate) use crate::transport::MAX_MESSAGE;

/// Bytes of the largest body that lies in the entry itself: the rest of its two cache lines. Up to 40 bytes a message
/// is one cache line in all.
pub(crate) const INLINE: usize = 128 - ENTRY_HEAD;

/// Bytes of body in the entry's first cache line.
#[cfg(test)]
pub(crate) const FIRST_LINE: usize = 64 - ENTRY_HEAD;

/// One direction of a link.
#[repr(C)]
pub(crate) struct Segment {
    pub(super) entries: [[Entry; DEPTH]; LANES],
    /// How many messages of each lane the receiver has released, modulo 2^32. The sender sets where the count begins.
    pub(super) released: [Alone; LANES],
    /// 1 once the receiver has found that it can read the sender's memory: it says so when it attaches the segment.
    pub(super) attaches: Alone,
    /// 1 once the sender has withdrawn all that it had offered and that was not released.
    pub(super) withdrawn: Alone,
    pub(super) slots: [[Slot; DEPTH]; LANES],
}

// SAFETY: repr(C) all the way down; only atomics of integers and `UnsafeCell`s of bytes; aligned to 128.
unsafe impl Layout for Segment {}

/// What says that a message is there. Two cache lines, as processors fetch lines in pairs: a receiver that waits for
/// one entry does not pull at the next.
#[repr(C, align(128))]
pub(super) struct Entry {
    /// [`flag`] of the message's number; written last.
    pub(super) flag: AtomicU32,
    /// Bytes of the body; with [`ELSEWHERE`] for an offered one.
    pub(super) len: AtomicU32,
    header: [AtomicU32; 4],
    body: UnsafeCell<[u8; INLINE]>,
}

impl Entry {
    #[inline]
    pub(super) fn header(&self) -> Header {
        [0, 1, 2, 3].map(|i| self.header[i].load(Relaxed))
    }

    #[inline]
    pub(super) fn set_header(&self, header: Header) {
        for (to, word) in self.header.iter().zip(header) {
            to.store(word, Relaxed);
        }
    }
}

/// The body of a message that is too long for its entry. All slots of a lane, 256 KiB, fit the second-level cache beside
/// the user's data. An executor that prefers smaller messages touches only the first pages of each slot.
#[repr(C, align(128))]
pub(super) struct Slot(UnsafeCell<[u8; MAX_MESSAGE]>);

/// A word without neighbours.
#[repr(C, align(128))]
pub(super) struct Alone(pub(super) AtomicU32);

/// Where the body of message `number` of `lane` lies, for `len <= MAX_MESSAGE` bytes. Both sides choose by this rule.
#[inline]
pub(super) fn body(segment: &Segment, lane: usize, number: u32, len: usize) -> *mut u8 {
    let at = number as usize % DEPTH;
    if len <= INLINE {
        segment.entries[lane][at].body.get().cast()
    } else {
        segment.slots[lane][at].0.get().cast()
    }
}

/// The place of an offered body's address, in the message's entry.
#[inline]
pub(super) fn address(segment: &Segment, lane: usize, number: u32) -> *mut u8 {
    body(segment, lane, number, ADDRESS)
}

/// Bytes of an address.
pub(super) const ADDRESS: usize = size_of::<u64>();

/// The bit of an entry's length that marks an offered message.
pub(super) const ELSEWHERE: u32 = 1 << 31;

/// The flag of message `number`. Odd, so that the zero of a fresh entry is none; the entry's previous message had
/// another one, and the same comes again only after 2^31 messages.
#[inline]
pub(super) fn flag(number: u32) -> u32 {
    number << 1 | 1
}

/// What a sender says of its segment when it hands it over: the receiver goes on only if it would say the same.
pub(super) fn hello() -> Vec<u8> {
    let facts = [VERSION, LANES, DEPTH, INLINE, MAX_MESSAGE, size_of::<Segment>()];
    let numbers = facts.iter().flat_map(|&fact| (fact as u64).to_le_bytes());
    b"ccl-shm\0".iter().copied().chain(numbers).collect()
}

/// Changes whenever the meaning of the memory does, be it with the same sizes.
const VERSION: usize = 2;

/// Bytes before the body of an entry.
const ENTRY_HEAD: usize = 24;

const _: () = {
    assert!(
        DEPTH.is_power_of_two(),
        "numbers wrap at 2^32 and must keep their entry"
    );
    assert!(size_of::<Entry>() == 128 && std::mem::offset_of!(Entry, body) == ENTRY_HEAD);
    assert!(
        MAX_MESSAGE.is_multiple_of(128)
            && size_of::<Slot>() == MAX_MESSAGE
            && MAX_MESSAGE < ELSEWHERE as usize
    );
};
