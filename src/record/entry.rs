//! [`Entry`]: what is kept of one operation, in words that may be read while they are written.

use super::End;
use crate::types::{DType, Transfer};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

/// An operation in a cache line. While it is written its first word is [`NONE`].
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Entry {
    /// Number, and what it is.
    first: AtomicU64,
    count: AtomicU64,
    began: AtomicU64,
    how: AtomicU64,
    bytes: AtomicU64,
    /// 0 as long as it is under way; else when it ended, times 256, and how ([`End`]).
    ended: AtomicU64,
    done: AtomicU64,
}

/// What is known of an operation when it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) number: u32,
    /// A call's from its signature; of a message its type and flags.
    pub(super) what: u32,
    pub(super) count: u64,
    /// Nanoseconds.
    pub(super) began: u64,
    /// The algorithm; of a message its peer and tag.
    pub(super) how: u64,
    pub(super) bytes: u64,
}

/// What came of it so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SoFar {
    /// When it ended, 0 if that was not looked at, and how.
    pub(super) end: Option<(u64, End)>,
    pub(super) done: u64,
}

/// What is said of messages beside their type.
pub(super) const SENT: u32 = 1 << 8;
pub(super) const ANY_PEER: u32 = 1 << 9;
pub(super) const ANY_TAG: u32 = 1 << 10;

impl Words {
    /// The message that this is.
    pub(super) fn transfer(&self) -> Option<Transfer> {
        let dtype = DType::from_number((self.what & 0xff).cast_signed()).ok()?;
        let (peer, tag) = (self.how as u32, ((self.how >> 32) as u32).cast_signed());
        let count = self.count;
        Some(match self.what & SENT {
            0 => Transfer::Recv {
                from: (self.what & ANY_PEER == 0).then_some(peer),
                tag: (self.what & ANY_TAG == 0).then_some(tag),
                count,
                dtype,
            },
            _ => Transfer::Send {
                to: peer,
                tag,
                count,
                dtype,
            },
        })
    }
}

impl Entry {
    pub(super) const fn new() -> Entry {
        Entry {
            first: AtomicU64::new(NONE),
            count: AtomicU64::new(0),
            began: AtomicU64::new(0),
            how: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            done: AtomicU64::new(0),
        }
    }

    /// Keeps another operation from here on.
    #[inline]
    pub(super) fn write(&self, words: &Words) {
        self.first.store(NONE, Relaxed);
        fence(Release); // who sees a new word does not see the old first one
        self.count.store(words.count, Relaxed);
        self.began.store(words.began, Relaxed);
        self.how.store(words.how, Relaxed);
        self.bytes.store(words.bytes, Relaxed);
        self.ended.store(0, Relaxed);
        self.done.store(0, Relaxed);
        let first = u64::from(words.number) | u64::from(words.what) << 32;
        self.first.store(first, Release); // pairs with the Acquire in `read`
    }

    /// Whether it is still the operation with this number: later ones may have taken its place.
    #[inline]
    fn is(&self, number: u32) -> bool {
        let first = self.first.load(Relaxed);
        first as u32 == number && first != NONE
    }

    /// It begins only now.
    pub(super) fn restart(&self, number: u32, now: u64) {
        if self.is(number) {
            self.began.store(now, Relaxed);
        }
    }

    /// It has ended; whether it had not before.
    #[inline]
    pub(super) fn end(&self, number: u32, at: u64, end: End) -> bool {
        let first = self.is(number) && self.ended.load(Relaxed) == 0;
        if first {
            self.ended.store(at << 8 | u64::from(end.0), Relaxed);
        }
        first
    }

    pub(super) fn done(&self, number: u32, bytes: u64) {
        if self.is(number) {
            self.done.store(bytes, Relaxed);
        }
    }

    /// What it holds, if that is not just being written.
    pub(super) fn read(&self) -> Option<(Words, SoFar)> {
        let first = self.first.load(Acquire);
        let words = Words {
            number: first as u32,
            what: (first >> 32) as u32,
            count: self.count.load(Relaxed),
            began: self.began.load(Relaxed),
            how: self.how.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
        };
        let (ended, done) = (self.ended.load(Relaxed), self.done.load(Relaxed));
        fence(Acquire); // pairs with the one in `write`
        if first == NONE || self.first.load(Relaxed) != first {
            return None;
        }
        let end = (ended != 0).then_some((ended >> 8, End(ended as u8)));
        Some((words, SoFar { end, done }))
    }
}

/// No operation's first word: there is none of this kind.
const NONE: u64 = u64::MAX;
