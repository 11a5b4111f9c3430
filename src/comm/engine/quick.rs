//! Calls that repeat one of the last: their checks are comparisons, and their way is known.
//!
//! A call of a few bytes is over in the time that a few cache lines take between two processors, so that all that is worked
//! out for it counts. What was found of a short call (how long its buffers are, its plan, its straight way) stays on the
//! floor. Who finds it there, with nothing under way, needs neither the desk nor the planner.

use super::{Engine, Floor, job::Placed};
use crate::{
    mem::Region,
    types::{Collective, DType, Reducing, Result},
};
use std::sync::atomic::Ordering::SeqCst;

/// A short call that was made before.
pub(super) struct Quick {
    /// Its place is that of the last one.
    placed: Placed,
    /// Bytes of input and output.
    bytes: [usize; 2],
    /// Bytes of the vector with which the two begin.
    begins: [usize; 2],
}

impl Quick {
    #[inline]
    fn is(&self, collective: Collective, (count, dtype, op): (usize, DType, Reducing)) -> bool {
        let call = &self.placed.call;
        call.count == count as u64
            && call.collective == collective
            && call.dtype == dtype
            && call.op == op.op
            && op.scalar.is_none()
    }

    /// Whether the buffers lie apart, or in place.
    #[inline]
    fn lie_right(&self, buffers: &[Region<'_>; 2]) -> bool {
        let [input, output] = buffers;
        let begin = |k: usize| buffers[k].as_ptr().addr().wrapping_sub(self.begins[k]);
        !input.overlaps(output) || begin(0) == begin(1)
    }
}

impl Floor {
    /// Keeps what is known of a call, if it has a straight way.
    pub(super) fn keep(&mut self, placed: &Placed, buffers: &[Region<'_>; 2]) {
        let Some(begins) = placed.places.begins() else {
            return;
        };
        let call = &placed.call;
        let what = (call.count as usize, call.dtype, call.op.into());
        let is_kept = || self.quick.iter().any(|quick| quick.is(call.collective, what));
        if placed.plan.straight.is_none() || placed.scalar.is_some() || is_kept() {
            return;
        }
        let quick = Quick {
            placed: placed.clone(),
            bytes: buffers.each_ref().map(Region::len),
            begins: begins.map(|begin| begin * placed.call.dtype.size()),
        };
        if self.quick.len() == KEPT {
            self.quick.remove(0);
        }
        self.quick.push(quick);
    }
}

impl Engine {
    /// Runs a call that repeats one of the last. `buffers` makes input and output of so many bytes each, if the caller's are
    /// as long. `None`, before anything is done, where it is no such call or others need the floor: then it is checked and
    /// run as any other.
    #[inline]
    pub(in crate::comm) fn quick<'m>(
        &self,
        collective: Collective,
        what: (usize, DType, Reducing),
        buffers: impl FnOnce([usize; 2]) -> Option<[Region<'m>; 2]>,
    ) -> Option<Result<()>> {
        self.membership.check().ok()?;
        let mut floor = self.floor.try_lock().ok()?;
        let at = floor.quick.iter().position(|quick| quick.is(collective, what))?;
        let seen = self.next.look()?;
        let quick = &floor.quick[at];
        let buffers = buffers(quick.bytes).filter(|buffers| quick.lie_right(buffers))?;
        let is_wanted = self.mail.load(SeqCst) || !floor.is_idle();
        let is_over = self.finalized.load(SeqCst) || self.closed.get().is_some() || self.membership.trouble();
        if is_wanted || is_over || tracing::enabled!(tracing::Level::TRACE) {
            return None;
        }
        let (seq, first_lane) = self.next.take_seen(seen, quick.placed.width())?;
        let mut kept = std::mem::take(&mut floor.quick);
        let placed = &mut kept[at].placed;
        (placed.call.seq, placed.first_lane) = (seq, first_lane);
        self.membership.record(&placed.call);
        let led = self.run_own(&mut floor, placed, buffers);
        floor.quick = kept;
        Some(self.end_own(floor, led))
    }
}

/// Short calls that are kept: programs repeat a few.
const KEPT: usize = 8;
