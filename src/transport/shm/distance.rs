//! [`Distance`]: how far away a receiver's core is, by which its sender chooses how it writes long bodies.

use std::cell::Cell;

/// How long lines take from the receiver's core, as far as this rank has seen.
///
/// Where cores share no cache a line that is written goes from one to the other in more than twice the time, and each waits for it.
/// What goes past the caches there is read from memory, many lines at a time.
///
/// Measured on an AMD EPYC (family 25, model 17), both ranks writing and reading 2 MiB in turn, plain -> past the caches, in 1e9 bytes
/// a second: far away, in pieces of 512 bytes 0.80 -> 0.89, 1 KiB 1.1 -> 1.6, 2 KiB 1.3 -> 2.3, 4 KiB 1.6 -> 4.2, 32 KiB 2.1 -> 9.7; near,
/// 1 KiB 3.9 -> 1.9, 4 KiB 4.7 -> 4.6, 32 KiB 13 -> 8.
#[derive(Debug, Default)]
pub(super) struct Distance {
    /// Long bodies that were sent, modulo 2^32.
    bodies: Cell<u32>,
    /// Whether the next line that comes from there is to be timed.
    due: Cell<bool>,
    /// How many of the last ones took long, [`FAR`] at most.
    long: Cell<u32>,
    /// How many were timed, [`FIRST`] at most.
    timed: Cell<u32>,
}

impl Distance {
    /// One more long body was sent; whether it is time for a look.
    #[inline]
    pub(super) fn passes(&self) -> bool {
        let bodies = self.bodies.get().wrapping_add(1);
        self.bodies.set(bodies);
        let apart = match self.timed.get() < FIRST {
            true => FIRST_APART,
            false => APART,
        };
        let is_due = bodies.is_multiple_of(apart);
        if is_due {
            self.due.set(true);
        }
        is_due
    }

    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.due.get()
    }

    /// A line that the receiver had written came within so many nanoseconds.
    pub(super) fn came(&self, took: u64) {
        self.due.set(false);
        self.timed.set((self.timed.get() + 1).min(FIRST));
        self.long.set(match took > NEAR {
            true => (self.long.get() + 1).min(FAR),
            false => self.long.get().saturating_sub(2),
        });
    }

    #[inline]
    pub(super) fn is_far(&self) -> bool {
        self.long.get() == FAR
    }
}

/// Long bodies between two looks, each of which takes one line's way.
const APART: u32 = 32;
/// The first looks come sooner, so that a program's first long calls are already made in the right way.
const FIRST: u32 = 8;
const FIRST_APART: u32 = 4;
/// Nanoseconds that a line takes at most that comes from near, with a look at the clock: there 20 to 80, and 120 to 190 from far away.
const NEAR: u64 = 95;
/// So many in a row must take longer: now and then one does that waits for something else.
const FAR: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_long_ways_make_it_far_and_two_short_ones_near() {
        let distance = Distance::default();
        for k in 0..FIRST {
            let apart = (1..).find(|_| distance.passes()).unwrap();
            assert!(apart == FIRST_APART && distance.is_due(), "look {k}");
            distance.came(NEAR);
        }
        let apart = (1..).find(|_| distance.passes()).unwrap();
        assert!(apart <= APART && distance.is_due());
        (1..FAR).for_each(|_| distance.came(NEAR + 1));
        assert!(!distance.is_due() && !distance.is_far());
        distance.came(NEAR + 1);
        assert!(distance.is_far());
        distance.came(NEAR);
        assert!(!distance.is_far());
        distance.came(NEAR + 1);
        assert!(!distance.is_far());
        distance.came(NEAR + 1);
        assert!(distance.is_far());
    }
}
