//! [`Pace`]: how fast a rank writes, by which it chooses between two ways for long bodies.

use crate::sys::clock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// How fast a rank has written the bodies of its last long messages: whether it had better leave them where they lie, where their
/// receivers can take them there. It belongs to one thread at a time.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// How many of the last were slow, [`SLOW`] at most.
    slow: AtomicU32,
    /// When the last one was written, by [`clock::lately`].
    last: AtomicU64,
}

impl Pace {
    /// Whether a body of `len` bytes is worth a look at the clock.
    #[inline]
    pub(super) fn is_told_by(len: usize) -> bool {
        len >= TOLD
    }

    /// A body of `len` bytes was written in `took` nanoseconds.
    pub(super) fn wrote(&self, len: usize, took: u64) {
        let slow = match (len as u64) < took * FAST {
            true => (self.slow.load(Relaxed) + 1).min(SLOW),
            false => 0,
        };
        self.slow.store(slow, Relaxed);
        self.last.store(clock::lately(), Relaxed);
    }

    /// Whether it is slow, as far as is known. From time to time some are tried again.
    pub(super) fn is_slow(&self) -> bool {
        if self.slow.load(Relaxed) < SLOW {
            return false;
        }
        let is_known = clock::lately().saturating_sub(self.last.load(Relaxed)) < TRIED_APART;
        if !is_known {
            self.slow.store(SLOW - TRIED, Relaxed);
        }
        is_known
    }
}

/// Bytes of the shortest body by whose writing [`Pace`] goes.
const TOLD: usize = 32 << 10;
/// Bytes a nanosecond that are fast. The kernel copies 6 to 13 for who takes a message, where 17 to 36 are written, or 2 to 5 when
/// the machine is slow.
const FAST: u64 = 8;
/// Slow ones in a row before it is believed: the first ones find caches cold.
const SLOW: u32 = 8;
/// So many are tried again.
const TRIED: u32 = 4;
/// Nanoseconds after which a slow rank tries again.
const TRIED_APART: u64 = 20_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_writes_slowly_tries_again_from_time_to_time() {
        let pace = Pace::default();
        let write = |took| pace.wrote(TOLD, took);
        assert!(!pace.is_slow());
        (1..SLOW).for_each(|_| write(TOLD as u64));
        assert!(!pace.is_slow());
        write(TOLD as u64);
        assert!(pace.is_slow());
        pace.last.store(0, Relaxed);
        for _ in 0..TRIED {
            assert!(!pace.is_slow());
            write(TOLD as u64);
        }
        assert!(pace.is_slow());
        pace.last.store(0, Relaxed);
        assert!(!pace.is_slow());
        write(TOLD as u64 / FAST);
        (1..SLOW).for_each(|_| write(TOLD as u64));
        assert!(!pace.is_slow());
    }
}
