//! The memory that two ranks of one machine share: one [`Segment`] for each direction in which they talk.
//!
//! The segment of the direction r -> s is made by r. Its lanes are rings of entries, [`SHALLOW`] or [`DEEP`] ones; message number k of a
//! lane has entry k modulo so many. A body that is too long for its entry lies in the pool of the sender's process
//! (`pool.rs`), or in one of the lane's slots here, as the entry says; that of an offered message stays in the sender's memory, and
//! the entry has its address there, or its place in memory that the receiver has mapped. The sender writes the entries and the
//! bodies, the receiver the counts of released messages and what it says of the sender's memory, and no cache line is written by
//! both, but those of the open slots: what lies there the receiver may answer in the same place, by a message of the other direction
//! that says so; and the one in which short messages that are exchanged are shown besides (`pair.rs`).

use crate::{
    mem::Region,
    sys::memfd::Layout,
    transport::{
        CALL_LANES, Header, LANES,
        shm::{pair::Pair, room::PAGE},
    },
};
use std::{
    cell::UnsafeCell,
    iter,
    mem::offset_of,
    ops::Range,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

/// Messages that a lane holds, as its direction's sender says: [`SHALLOW`] or [`DEEP`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Depth(u32);

/// A sender that runs ahead is stopped by the receiver's word coming back, a trip of two cache lines; with four messages in flight
/// neither side of a pipeline waits for that. Of bodies longer than a page no lane has more in flight, so that the caches hold them.
pub(crate) const SHALLOW: Depth = Depth(4);

/// Where ranks share cores, that word comes when the receiver has had its turn: a sender of short messages does the more in a turn of
/// its own. What that takes is beyond what each of many communicators may have.
pub(crate) const DEEP: Depth = Depth(16);

impl Depth {
    #[inline]
    pub(crate) const fn messages(self) -> usize {
        self.0 as usize
    }

    /// How many messages with bodies of `len` bytes a lane has in flight.
    #[inline]
    pub(super) fn window(self, len: usize) -> usize {
        if len <= PAGE {
            self.messages()
        } else {
            SHALLOW.messages()
        }
    }

    /// Where in a lane message `number` lies.
    #[inline]
    pub(super) fn place(self, number: u32) -> usize {
        // Less than the deepest, which is known here: no bounds need be checked.
        (number & (self.0 - 1) & (DEEP.0 - 1)) as usize
    }
}

pub(crate) use crate::transport::MAX_MESSAGE;

/// Bytes of the largest body that lies in the entry itself: the rest of its two cache lines. Up to 40 bytes a message
/// is one cache line in all.
pub(crate) const INLINE: usize = 128 - ENTRY_HEAD;

/// Bytes of body in the entry's first cache line.
pub(crate) const FIRST_LINE: usize = 64 - ENTRY_HEAD;

/// One direction of a link.
#[repr(C)]
pub(crate) struct Segment {
    /// How many messages of each lane the receiver has released, modulo 2^32. The sender sets where the count begins. All in
    /// one line, so that a sender that looks for one of them knows them all.
    pub(super) released: Counts,
    /// How the receiver gets at the sender's memory, which it says when it attaches the segment: [`ATTACHES`], [`MAPS`] and
    /// [`SAME`].
    pub(super) reaches: Alone,
    /// Of each place for memory that the sender hands over: the number of what the receiver has mapped there.
    pub(super) mapped: Numbers,
    /// 1 while the receiver, a thread of the sender's process, reads the sender's memory.
    pub(super) reading: Alone,
    /// 1 once the receiver has given the link up, and reads nothing any more.
    pub(super) left: Alone,
    /// 1 once the sender has withdrawn all that it had offered and that was not released.
    pub(super) withdrawn: Alone,
    /// Of the two segments of a link, that of the rank with the lower number has the line that both ranks write.
    pub(super) pair: Pair,
    /// All lanes' first ones, all their second ones, and so on: of a shallow one all lie in the segment's first two pages.
    entries: [[Entry; LANES]; DEEP.0 as usize],
    /// So that bodies begin with a page, whatever the system's pages are. Never used.
    gap: UnsafeCell<[u8; LARGEST_PAGE - BEFORE_GAP]>,
    pub(super) bodies: Bodies,
    pub(super) open: Open,
}

/// Bytes of the largest pages that systems have: some of ARM's.
const LARGEST_PAGE: usize = 64 << 10;

/// Bytes of a segment before the gap.
const BEFORE_GAP: usize = size_of::<Counts>()
    + size_of::<Numbers>()
    + 4 * size_of::<Alone>()
    + size_of::<Pair>()
    + DEEP.0 as usize * LANES * size_of::<Entry>();

const _: () = assert!(offset_of!(Segment, gap) == BEFORE_GAP && offset_of!(Segment, bodies) == LARGEST_PAGE);

// SAFETY: repr(C) all the way down; only atomics of integers and `UnsafeCell`s of bytes; aligned to 128.
unsafe impl Layout for Segment {}

impl Segment {
    /// The entry of message `number` of `lane`, where lanes are so deep.
    #[inline]
    pub(super) fn entry(&self, lane: usize, number: u32, depth: Depth) -> &Entry {
        &self.entries[depth.place(number)][lane]
    }
}

/// What says that a message is there. Two cache lines, as processors fetch lines in pairs: a receiver that waits for
/// one entry does not pull at the next.
#[repr(C, align(128))]
pub(super) struct Entry {
    /// [`flag`] of the message's number; written last.
    pub(super) flag: AtomicU32,
    /// Bytes of the body, with [`ELSEWHERE`] and maybe [`MAPPED`] for an offered one; in the upper bits what the sender has released of the lane
    /// in the other direction: see [`told`].
    pub(super) len: AtomicU32,
    header: [AtomicU32; 4],
    /// The body, or where it lies.
    body: [AtomicU32; INLINE / 4],
}

/// The cache lines of `entry` that a message with a body of `len` bytes fills.
#[inline]
pub(super) fn lines(entry: &Entry, len: usize) -> impl Iterator<Item = *const u8> {
    let first = (&raw const *entry).cast::<u8>();
    let both = FIRST_LINE < len && len <= INLINE;
    iter::once(first).chain(both.then(|| first.wrapping_add(64)))
}

impl Entry {
    /// The words of its body.
    #[cfg(feature = "fuzzing")]
    pub(super) fn body(&self) -> &[AtomicU32] {
        &self.body
    }

    /// Where a body of up to [`INLINE`] bytes lies.
    #[inline]
    pub(super) fn inline(&self) -> *mut u8 {
        (&raw const self.body).cast_mut().cast()
    }

    /// The first eight bytes of a body that is here.
    #[inline]
    pub(super) fn first_word(&self) -> u64 {
        let [low, high] = [0, 1].map(|k| self.body[k].load(Relaxed).to_ne_bytes());
        let mut word = [0; 8];
        word[..4].copy_from_slice(&low);
        word[4..].copy_from_slice(&high);
        u64::from_ne_bytes(word)
    }

    /// Where a longer one lies: in bytes from the pool's beginning, or [`OWN`], [`OPEN`] or [`ANSWER`].
    #[inline]
    pub(super) fn at(&self) -> u32 {
        self.body[0].load(Relaxed)
    }

    /// Where an offered one lies: its address in its sender's memory, or its place in memory that was handed over.
    #[inline]
    pub(super) fn address(&self) -> u64 {
        let [low, high] = [0, 1].map(|k| u64::from(self.body[k].load(Relaxed)));
        low | high << 32
    }

    #[inline]
    pub(super) fn set_address(&self, address: u64) {
        self.body[0].store(address as u32, Relaxed);
        self.body[1].store((address >> 32) as u32, Relaxed);
    }

    /// In which memory that was handed over an offered one lies: where that is mapped, and its number.
    #[inline]
    pub(super) fn mapping(&self) -> (usize, u32) {
        let [place, number] = [2, 3].map(|k| self.body[k].load(Relaxed));
        (place as usize, number)
    }

    #[inline]
    pub(super) fn set_mapping(&self, place: usize, number: u32) {
        self.body[2].store(place as u32, Relaxed);
        self.body[3].store(number, Relaxed);
    }

    #[inline]
    pub(super) fn set_at(&self, at: u32) {
        self.body[0].store(at, Relaxed);
    }

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

/// A slot for each lane, for a body that is too long for its entry and for which the pool has no room.
#[repr(C, align(4096))]
pub(super) struct Bodies(UnsafeCell<[u8; LANES * MAX_MESSAGE]>);

/// An open slot for each lane of calls.
#[repr(C, align(4096))]
pub(super) struct Open(UnsafeCell<[u8; CALL_LANES * MAX_OPEN]>);

/// Bytes of an open slot: a tile of what is answered is hardly longer.
pub(super) const MAX_OPEN: usize = 64 << 10;

/// The place of a body that says that it is the lane's own slot.
pub(super) const OWN: u32 = 1 << 31;
/// The same of its open slot.
pub(super) const OPEN: u32 = OWN | 1;
/// The same of the lane's open slot in the segment of the other direction.
pub(super) const ANSWER: u32 = OWN | 2;

/// A count for each lane.
#[repr(C, align(128))]
pub(super) struct Counts(pub(super) [AtomicU32; LANES]);

/// A number for each place for memory that the sender hands over.
#[repr(C, align(128))]
pub(super) struct Numbers(pub(super) [AtomicU32; MAPPINGS]);

/// A word without neighbours.
#[repr(C, align(128))]
pub(super) struct Alone(pub(super) AtomicU32);

/// The own slot of `lane`.
#[inline]
pub(super) fn own(segment: &Segment, lane: usize) -> *mut u8 {
    segment.bodies.0.get().cast::<u8>().wrapping_add(own_at(lane))
}

/// Where in the segment the own slot of `lane` lies.
pub(super) fn own_range(lane: usize) -> Range<usize> {
    let at = offset_of!(Segment, bodies) + own_at(lane);
    at..at + MAX_MESSAGE
}

/// Where among the own slots that of `lane` lies.
#[inline]
fn own_at(lane: usize) -> usize {
    lane % LANES * MAX_MESSAGE
}

/// The first `len` bytes of the open slot of `lane`, if it has one and they are no more than that holds.
#[inline]
pub(super) fn open(segment: &Segment, lane: usize, len: usize) -> Option<Region<'_>> {
    if lane >= CALL_LANES || len > MAX_OPEN {
        return None;
    }
    let at = segment.open.0.get().cast::<u8>().wrapping_add(lane * MAX_OPEN);
    // SAFETY: so many bytes of the mapping, as checked above, which lives as long as `segment`. They are inside an `UnsafeCell`, so
    // that no reference claims them. Who of the two ranks may write there their messages say; one that writes at other times
    // spoils values, not memory.
    Some(unsafe { Region::from_raw(at, len) })
}

/// The bit of an entry's length that marks an offered message.
pub(super) const ELSEWHERE: u32 = 1 << (LEN_BITS - 1);
/// The one that marks such a message in memory that was handed over.
pub(super) const MAPPED: u32 = 1 << (LEN_BITS - 2);

/// Whether it is an offered message's.
#[inline]
pub(super) fn is_elsewhere(word: u32) -> bool {
    word & ELSEWHERE != 0
}

/// Whether it is that of one in memory that was handed over.
#[inline]
pub(super) fn is_mapped(word: u32) -> bool {
    word & MAPPED != 0
}

/// The receiver can read the sender's memory by system calls.
pub(super) const ATTACHES: u32 = 1;
/// It maps memory that the sender hands over.
pub(super) const MAPS: u32 = 2;
/// It is a thread of the sender's process: all memory is its own.
pub(super) const SAME: u32 = 4;

/// Pieces of the sender's memory that the receiver may have mapped at a time.
pub(super) const MAPPINGS: usize = 64;

/// The flag of message `number`. Odd, so that the zero of a fresh entry is none; the entry's previous message had
/// another one, and the same comes again only after 2^31 messages.
#[inline]
pub(super) fn flag(number: u32) -> u32 {
    number << 1 | 1
}

/// The word with a body's length, and with how many messages of the same lane its sender has released: where two ranks
/// exchange messages, that spares them the line in which these are counted.
#[inline]
pub(super) fn told(len: u32, released: u32) -> u32 {
    len | released << LEN_BITS
}

/// The length in such a word.
#[inline]
pub(super) fn len_of(word: u32) -> usize {
    (word & (MAPPED - 1)) as usize
}

/// Bits of a length, the last of which are [`MAPPED`] and [`ELSEWHERE`]; the others hold the last bits of a count. On lanes of calls that
/// tells the count: it has not come round since the message was sent.
pub(super) const LEN_BITS: u32 = 22;

/// What a sender says of its segment when it hands it over: the receiver goes on only if it would say the same.
pub(super) fn hello(depth: Depth) -> Vec<u8> {
    let facts = [
        VERSION,
        LANES,
        depth.messages(),
        INLINE,
        MAX_MESSAGE,
        size_of::<Segment>(),
    ];
    let numbers = facts.iter().flat_map(|&fact| (fact as u64).to_le_bytes());
    b"ccl-shm\0".iter().copied().chain(numbers).collect()
}

/// Changes whenever the meaning of the memory does, be it with the same sizes.
const VERSION: usize = 8;

/// Bytes before the body of an entry.
const ENTRY_HEAD: usize = 24;

const _: () = {
    assert!(
        SHALLOW.0.is_power_of_two() && DEEP.0.is_power_of_two() && SHALLOW.0 <= DEEP.0,
        "numbers wrap at 2^32 and must keep their entry"
    );
    let shallow = std::mem::offset_of!(Segment, entries) + SHALLOW.0 as usize * LANES * size_of::<Entry>();
    assert!(shallow <= 2 * 4096, "what each further communicator takes");
    assert!(size_of::<Entry>() == 128 && std::mem::offset_of!(Entry, body) == ENTRY_HEAD);
    assert!(
        MAX_MESSAGE.is_multiple_of(128) && DEEP.0 < 1 << (32 - LEN_BITS) && MAX_MESSAGE < MAPPED as usize
    );
};
