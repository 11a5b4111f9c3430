//! [`Next`]: the place that the next collective call gets.

use crate::{
    sys::biased::{Biased, Guard, Nobody},
    transport::CALL_LANES,
};

/// The number of the next call, the first of its lanes, and whether somebody has a place but has not gone there yet.
///
/// Calls that get their places at the desk say so until they are under way. One that goes quickly, past the desk, comes after
/// all these or takes no place: so no call uses the lanes of an earlier one that is still on its way. Held for moments.
pub(super) struct Next(Biased<State>);

#[derive(Default)]
struct State {
    seq: u32,
    lane: usize,
    is_busy: bool,
}

/// A place: the number of a call, and the first of its lanes.
pub(super) type Place = (u32, usize);

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
        self.0.lock().seq
    }

    /// A place for a call that has so many lanes. Until [`Next::settle`] nobody passes the desk.
    pub(super) fn take(&self, lanes: usize) -> Place {
        let mut state = self.0.lock();
        state.is_busy = true;
        state.take(lanes)
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
    /// Takes it, for a call that has so many lanes.
    #[inline]
    pub(super) fn take(mut self, lanes: usize) -> Place {
        self.0.take(lanes)
    }
}

impl State {
    #[inline]
    fn take(&mut self, lanes: usize) -> Place {
        let place = (self.seq, self.lane);
        self.seq = self.seq.wrapping_add(1);
        self.lane = (self.lane + lanes) % CALL_LANES;
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_one_another_and_wrap() {
        let last = State {
            seq: u32::MAX,
            ..State::default()
        };
        let next = Next(Biased::new(last, Nobody));
        assert_eq!(next.take(5), (u32::MAX, 0));
        assert_eq!(next.take(0), (0, 5));
        assert_eq!(next.take(4), (1, 5));
        assert_eq!(next.number(), 2);
        next.settle();
        assert_eq!(next.look().unwrap().take(1), (2, (5 + 4) % CALL_LANES));
    }

    #[test]
    fn nobody_passes_one_that_is_on_its_way() {
        let next = Next::default();
        next.take(1);
        assert!(next.look().is_none());
        next.settle();
        let free = next.look().unwrap();
        assert!(next.look().is_none(), "one at a time");
        assert_eq!(free.take(1), (1, 1));
        assert_eq!(next.number(), 2);
    }
}
