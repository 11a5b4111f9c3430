//! [`Pair`]: the line that both ranks of a link write.
//!
//! Where two ranks send each other a few bytes and then look for the other's, a line for each direction goes over once for the
//! write and once for the read. In a line that both write, what a rank fetches in order to write brings what the other has
//! written, and as long as it stays there the rank may write again at once: one trip does for an exchange.
//!
//! So such a message is shown here as well as in its entry, and who expects exactly this one takes it from here. Whatever does
//! not lie here, be it that the sender went another way, or is two calls ahead, is found in its entry.

use crate::transport::{CALL_LANES, Header, words_of};
use std::{
    hint,
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
        fence,
    },
};

/// Two places for each rank, which the calls use by turns: the other rank may not have seen the last call's message yet.
#[repr(C, align(128))]
pub(super) struct Pair([[Shown; 2]; 2]);

/// A message.
#[repr(C)]
struct Shown {
    /// [`tag`] of the message, or [`NONE`] while it is written.
    tag: AtomicU64,
    body: AtomicU64,
}

/// Bytes of the longest body that is shown.
pub(crate) const MAX_SHOWN: usize = size_of::<u64>();

/// Which of the two a rank is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// In whose memory the line is.
    Host,
    Guest,
}

impl Side {
    pub(super) fn other(self) -> Side {
        match self {
            Side::Host => Side::Guest,
            Side::Guest => Side::Host,
        }
    }
}

/// No message's tag.
const NONE: u64 = 0;

/// What tells a message from all others, so that nothing else of it need be looked at: all of its header, its length, and its
/// number on its lane go into it. Of messages that differ in some of that, one in 2^64 pairs would be taken for one another.
#[inline]
pub(super) fn tag(number: u32, lane: usize, header: &Header, len: usize) -> u64 {
    let [first, count] = words_of(*header);
    let place = u64::from(number) << 32 | (lane << 8 | len) as u64;
    let mixed = mix(first ^ PRIMES[0], count ^ PRIMES[1]) ^ place;
    mix(mixed ^ PRIMES[2], PRIMES[1]).max(NONE + 1)
}

/// Both halves of the product, one upon the other.
#[inline]
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl Pair {
    #[inline]
    fn place(&self, side: Side, lane: usize) -> &Shown {
        &self.0[side as usize][lane % 2]
    }

    /// Shows a message of `side`.
    #[inline]
    pub(super) fn show(&self, side: Side, lane: usize, tag: u64, body: u64) {
        let shown = self.place(side, lane);
        shown.tag.store(NONE, Relaxed);
        // Who reads the new body finds that the old tag is gone; pairs with the fence in `find`.
        fence(Release);
        shown.body.store(body, Relaxed);
        shown.tag.store(tag, Release); // pairs with the Acquire in `find`
    }

    /// The body of the message of `side` with this tag, if it is there at one of so many looks, between which there are short
    /// pauses.
    #[inline]
    pub(super) fn find(&self, side: Side, lane: usize, tag: u64, looks: u32) -> Option<u64> {
        let shown = self.place(side, lane);
        for look in 0..looks {
            if look > 0 {
                hint::spin_loop();
            }
            if shown.tag.load(Acquire) == tag {
                let body = shown.body.load(Relaxed);
                fence(Acquire);
                return (shown.tag.load(Relaxed) == tag).then_some(body);
            }
        }
        None
    }
}

/// Whether messages of that lane and length are shown.
#[inline]
pub(super) fn may_show(lane: usize, len: usize) -> bool {
    lane < CALL_LANES && len <= MAX_SHOWN
}

/// Odd, with bits set all over.
const PRIMES: [u64; 3] = [
    0x9E37_79B9_7F4A_7C15,
    0xC2B2_AE3D_27D4_EB4F,
    0xD6E8_FEB8_6659_FD93,
];

const _: () = assert!(size_of::<Pair>() == 128 && size_of::<[[Shown; 2]; 2]>() == 64);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn fresh() -> Pair {
        Pair([(); 2].map(|()| {
            [(); 2].map(|()| Shown {
                tag: AtomicU64::new(NONE),
                body: AtomicU64::new(0),
            })
        }))
    }

    #[test]
    fn each_rank_finds_what_the_other_shows_until_its_second_next() {
        let pair = fresh();
        let header = [1, 2, 3, 0];
        let tags: Vec<u64> = (0..3).map(|lane| tag(7, lane, &header, 8)).collect();
        assert_eq!(pair.find(Side::Host, 0, tags[0], 2), None);
        pair.show(Side::Host, 0, tags[0], 10);
        pair.show(Side::Guest, 0, tags[0], 20);
        pair.show(Side::Host, 1, tags[1], 11);
        assert_eq!(pair.find(Side::Host, 0, tags[0], 1), Some(10));
        assert_eq!(pair.find(Side::Guest, 0, tags[0], 1), Some(20));
        assert_eq!(pair.find(Side::Host, 1, tags[1], 1), Some(11));
        assert_eq!(pair.find(Side::Guest, 1, tags[1], 3), None);
        pair.show(Side::Host, 2, tags[2], 12);
        assert_eq!(pair.find(Side::Host, 0, tags[0], 1), None, "it was written over");
    }

    #[test]
    fn messages_that_differ_anywhere_have_other_tags() {
        let base = [5, 1 << 20, 2, 0];
        let mut seen = HashSet::from([tag(0, 0, &base, 8)]);
        for bit in 0..128 {
            let mut header = base;
            header[bit / 32] ^= 1 << (bit % 32);
            assert!(seen.insert(tag(0, 0, &header, 8)), "bit {bit}");
        }
        for number in [1, 2, 1 << 31, u32::MAX] {
            assert!(seen.insert(tag(number, 0, &base, 8)), "number {number}");
        }
        for lane in 1..CALL_LANES {
            assert!(seen.insert(tag(0, lane, &base, 8)), "lane {lane}");
        }
        for len in 0..MAX_SHOWN {
            assert!(seen.insert(tag(0, 0, &base, len)), "{len} bytes");
        }
        assert!(!seen.contains(&NONE));
    }
}
