//! [`Next`]: the place that the next collective call gets.

use crate::{
    sys::biased::{Biased, Guard, Nobody},
    transport::CALL_LANES,
    types::{Call, TRAIL, TRAIL_BITS},
};

/// The number of the next call, the trail of those before it, the first of its lanes, and whether somebody has a place but has
/// not gone there yet.
///
/// Calls that get their places at the desk say so until they are under way. One that goes quickly, past the desk, comes after
/// all these or takes no place: so no call uses the lanes of an earlier one that is still on its way. Held for moments.
pub(super) struct Next(Biased<State>);

#[derive(Default)]
struct State {
    place: Packed,
    is_busy: bool,
}

/// A [`Place`] in one word: three that were written a moment ago, and are read in pieces of another size, would be waited for.
#[derive(Default, Clone, Copy)]
struct Packed(u64);

/// The place of a call.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) seq: u32,
    /// The trail of the calls before it.
    pub(super) trail: u32,
    /// The first of its lanes.
    pub(super) lane: usize,
}

/// The next place, which this thread may take.
pub(super) struct Free<'n>(Guard<'n, State>);

impl Default for Next {
    fn default() -> Self {
        Next(Biased::new(State::default(), Nobody))
    }
}

impl Next {
    /// The number of the next call.
    pub(super) fn number(&self) -> u32 {
        self.0.lock().place.get().seq
    }

    /// A place for a call that has so many lanes and leaves that mark. Until [`Next::settle`] nobody passes the desk.
    pub(super) fn take(&self, lanes: usize, mark: u32) -> Place {
        let mut state = self.0.lock();
        state.is_busy = true;
        state.place.take(lanes, mark)
    }

    /// The call with the place that was taken last at the desk is under way, or has nothing to do.
    pub(super) fn settle(&self) {
        self.0.lock().is_busy = false;
    }

    /// The next place, if all before it are under way.
    #[inline]
    pub(super) fn look(&self) -> Option<Free<'_>> {
        let state = self.0.try_lock()?;
        (!state.is_busy).then_some(Free(state))
    }
}

impl Free<'_> {
    /// Takes it, for a call that has so many lanes and leaves that mark.
    #[inline(always)] // in the path of each short call
    pub(super) fn take(mut self, lanes: usize, mark: u32) -> Place {
        self.0.place.take(lanes, mark)
    }
}

impl Packed {
    #[inline]
    fn new(Place { seq, trail, lane }: Place) -> Packed {
        Packed(u64::from(seq) | u64::from(trail) << u32::BITS | (lane as u64) << (u32::BITS + TRAIL_BITS))
    }

    #[inline]
    fn get(self) -> Place {
        let above = (self.0 >> u32::BITS) as u32;
        Place {
            seq: self.0 as u32,
            trail: above & TRAIL,
            lane: (above >> TRAIL_BITS) as usize,
        }
    }

    /// This place; then it is the next one.
    #[inline(always)] // in the path of each short call
    fn take(&mut self, lanes: usize, mark: u32) -> Place {
        let taken = self.get();
        *self = Packed::new(Place {
            seq: taken.seq.wrapping_add(1),
            trail: Call::trail_after(taken.trail, mark),
            lane: (taken.lane + lanes) % CALL_LANES,
        });
        taken
    }
}

const _: () = assert!(CALL_LANES <= 1 << (u32::BITS - TRAIL_BITS));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_one_another_and_wrap() {
        let place = Place {
            seq: u32::MAX,
            ..Place::default()
        };
        let last = State {
            place: Packed::new(place),
            is_busy: false,
        };
        let next = Next(Biased::new(last, Nobody));
        assert_eq!(next.take(5, 77), place);
        let (seq, trail) = (0, Call::trail_after(0, 77));
        assert_eq!(next.take(0, 0), Place { seq, trail, lane: 5 });
        assert_eq!(next.take(4, 0).lane, 5);
        assert_eq!(next.number(), 2);
        next.settle();
        assert_eq!(next.look().unwrap().take(1, 0).lane, (5 + 4) % CALL_LANES);
    }

    #[test]
    fn nobody_passes_one_that_is_on_its_way() {
        let next = Next::default();
        next.take(1, 0);
        assert!(next.look().is_none());
        next.settle();
        let free = next.look().unwrap();
        assert!(next.look().is_none(), "one at a time");
        let taken = free.take(1, 0);
        assert_eq!((taken.seq, taken.lane), (1, 1));
        assert_eq!(next.number(), 2);
    }
}
