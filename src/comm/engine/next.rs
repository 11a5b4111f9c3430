//! [`Next`]: the place that the next collective call gets.

use crate::transport::CALL_LANES;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// The number of the next call, the first of its lanes, and whether somebody has a place but has not gone there yet.
///
/// Calls that get their places at the desk say so until they are under way. One that goes quickly, past the desk, comes after
/// all these or takes no place: so no call uses the lanes of an earlier one that is still on its way.
#[derive(Debug, Default)]
pub(super) struct Next(AtomicU64);

/// A place: the number of a call, and the first of its lanes.
pub(super) type Place = (u32, usize);

/// What was seen of the next place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen(u64);

const BUSY: u64 = 1 << 63;

impl Next {
    /// The number of the next call.
    pub(super) fn number(&self) -> u32 {
        self.0.load(Relaxed) as u32
    }

    /// A place for a call that has so many lanes. Until [`Next::settle`] nobody passes the desk.
    pub(super) fn take(&self, lanes: usize) -> Place {
        let after = |now: u64| Some(after(now, lanes) | BUSY);
        let (Ok(now) | Err(now)) = self.0.fetch_update(Relaxed, Relaxed, after);
        place(now)
    }

    /// The call with the place that was taken last at the desk is under way, or has nothing to do.
    pub(super) fn settle(&self) {
        self.0.fetch_and(!BUSY, Release); // pairs with the Acquire in `look`: how it is under way is seen
    }

    /// Sees the next place, if all before it are under way.
    #[inline]
    pub(super) fn look(&self) -> Option<Seen> {
        let now = self.0.load(Acquire);
        (now & BUSY == 0).then_some(Seen(now))
    }

    /// That place, if nobody has taken it since.
    #[inline]
    pub(super) fn take_seen(&self, Seen(now): Seen, lanes: usize) -> Option<Place> {
        let taken = self.0.compare_exchange(now, after(now, lanes), Relaxed, Relaxed);
        taken.ok().map(place)
    }
}

fn place(now: u64) -> Place {
    (now as u32, ((now & !BUSY) >> 32) as usize)
}

/// The next place, not busy, after a call of so many lanes.
fn after(now: u64, lanes: usize) -> u64 {
    let (seq, lane) = place(now);
    (((lane + lanes) % CALL_LANES) as u64) << 32 | u64::from(seq.wrapping_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_one_another_and_wrap() {
        let next = Next(AtomicU64::new(u64::from(u32::MAX)));
        assert_eq!(next.take(5), (u32::MAX, 0));
        assert_eq!(next.take(0), (0, 5));
        assert_eq!(next.take(4), (1, 5));
        assert_eq!(next.number(), 2);
        next.settle();
        let seen = next.look().unwrap();
        assert_eq!(next.take_seen(seen, 1), Some((2, (5 + 4) % CALL_LANES)));
    }

    #[test]
    fn nobody_passes_one_that_is_on_its_way() {
        let next = Next::default();
        let seen = next.look().unwrap();
        next.take(1);
        assert!(next.look().is_none());
        assert_eq!(next.take_seen(seen, 1), None);
        next.settle();
        assert_eq!(next.take_seen(seen, 1), None);
        let seen = next.look().unwrap();
        assert_eq!(next.take_seen(seen, 1), Some((1, 1)));
        assert_eq!(next.take_seen(seen, 1), None);
    }
}
