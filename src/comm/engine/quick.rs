//! Calls that repeat one of the last: their checks are comparisons, and their way is known.
//!
//! A call of a few bytes is over in the time that a few cache lines take between two processors, so that all that is worked
//! out for it counts. What was found of a short call that was made twice (how long its buffers are, its plan, its way) stays
//! on the floor. Who finds it there, with nothing under way, needs neither the desk nor the planner.

use super::{AtOnce, Engine, Floor, Led, floor::Held, job::Placed, next::Place, taking::Taking};
use crate::{
    comm::{Side, buffers::Places},
    exec::{FEW_LOOKS, Reached, Run, Short, Turn, Work, wait::Patience},
    mem::Region,
    plan::definition,
    record::End,
    sys::clock,
    transport::{Wires, Words, links::Links, words_of},
    types::{Call, Cause, Collective, DType, MAX_RANKS, Op},
};
use std::{mem, sync::atomic::Ordering::SeqCst};

/// What a call is asked to do.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    /// [`Call::what`].
    what: u32,
    size: Size<'a>,
}

impl<'a> Asked<'a> {
    /// `None` for a root that no rank can be.
    #[inline(always)] // in the path of each short call
    pub(in crate::comm) fn new(
        collective: Collective,
        size: Size<'a>,
        (dtype, op): (DType, Op),
    ) -> Option<Self> {
        let what = Call::what(collective, dtype, op);
        let is_good = collective.root().is_none_or(|root| root < MAX_RANKS as u32);
        is_good.then_some(Asked { what, size })
    }

    /// The same of numbers from C, with `root` in the place of the root of `collective`.
    #[inline(always)] // in the path of each short call
    pub(crate) fn of_numbers(
        collective: Collective,
        size: Size<'a>,
        root: i32,
        (dtype, op): (i32, i32),
    ) -> Option<Self> {
        let what = Call::what_of_numbers(collective, root, dtype, op)?;
        Some(Asked { what, size })
    }
}

/// How much a call moves.
#[derive(Clone, Copy)]
pub(crate) enum Size<'a> {
    Count(usize),
    /// The blocks that are sent, and those that are received.
    Given([Side<'a>; 2]),
}

/// The last short calls.
#[derive(Default)]
pub(super) struct Lately {
    kept: Vec<Quick>,
    /// The last one of them that was made.
    last: usize,
    /// The last ones that are not among them, and whether they were tried: a call that is made but once is not worth keeping.
    once: Vec<(Placed, bool)>,
}

/// A short call that was made before.
struct Quick {
    /// Its place is that of the last one that went no short way.
    placed: Placed,
    /// Its signature, with 0 for the number.
    words: Words,
    /// What it adds to the trail of the calls.
    mark: u32,
    lanes: usize,
    /// Bytes of input and output.
    bytes: [usize; 2],
    /// Bytes of the vector with which the two begin, if its blocks are not given.
    begins: Option<[usize; 2]>,
    /// This rank, and whether it has a part in what is sent and in what is received.
    rank: usize,
    has: [bool; 2],
    /// Bytes of the shortest message that is left for a peer to take, if messages may better be left where they lie.
    taken: Option<usize>,
    /// Whether some are taken, where that is this rank's choice.
    taking: Option<Taking>,
    /// Its way, if it is short enough for that.
    short: Option<Short>,
}

impl Quick {
    #[inline(always)] // in the path of each short call
    fn is(&self, asked: &Asked<'_>) -> bool {
        let [first, count] = self.words;
        (first >> 32) as u32 == asked.what
            && match (&asked.size, &self.placed.places) {
                (Size::Count(asked), Places::From(_)) => count == *asked as u64,
                (Size::Given(sides), Places::Given(blocks)) => {
                    (0..2).all(|k| !self.has[k] || sides[k].is(&blocks.sides[k], self.rank))
                }
                _ => false,
            }
    }

    /// Whether the buffers lie apart, or in place.
    #[inline]
    fn lie_right(&self, buffers: &[Region<'_>; 2]) -> bool {
        let [input, output] = buffers;
        if !input.overlaps(output) {
            return true;
        }
        let begin = |k: usize, begins: [usize; 2]| buffers[k].as_ptr().addr().wrapping_sub(begins[k]);
        self.begins
            .is_some_and(|begins| begin(0, begins) == begin(1, begins))
    }
}

impl Lately {
    /// The kept call that does what is asked.
    #[inline(always)] // in the path of each short call
    fn find(&mut self, asked: &Asked<'_>) -> Option<&Quick> {
        if !self.kept.get(self.last).is_some_and(|quick| quick.is(asked)) {
            self.last = self.kept.iter().position(|quick| quick.is(asked))?;
        }
        self.kept.get(self.last)
    }

    fn knows(&self, placed: &Placed) -> bool {
        self.kept.iter().any(|quick| quick.placed.repeats(placed))
    }
}

impl Floor {
    /// Keeps what is known of a call of this rank's, if it is the same as the last one and has a way.
    pub(super) fn keep(&mut self, placed: &Placed, buffers: [Region<'_>; 2], rank: usize) {
        let lately = &mut self.lately;
        if placed.scalar.is_some() || lately.knows(placed) {
            return;
        }
        match lately.once.iter_mut().find(|(once, _)| once.repeats(placed)) {
            Some((_, tried)) => {
                if std::mem::replace(tried, true) {
                    return;
                }
            }
            None => {
                if lately.once.len() == KEPT {
                    lately.once.remove(0);
                }
                lately.once.push((placed.clone(), false));
                return;
            }
        }
        let work = placed.work(buffers, &mut self.scratch);
        let short = Short::new(&work);
        let longest = short.as_ref().map_or(usize::MAX, Short::longest);
        let lend = work.lend.filter(|lend| longest >= lend.read.min(lend.taken));
        let may_choose = lend.is_some_and(|lend| lend.taken != usize::MAX) && !self.links.takes_all();
        if short.is_none() && placed.plan.straight.is_none() {
            return;
        }
        let (collective, ranks) = (placed.call.collective, work.schedule.ranks as usize);
        let parts = [
            definition::input(collective, rank, ranks),
            definition::output(collective, rank, ranks),
        ];
        let begins = placed.places.begins();
        let quick = Quick {
            words: words_of(
                Call {
                    seq: 0,
                    ..placed.call
                }
                .signature(),
            ),
            mark: placed.call.mark(),
            lanes: placed.width(),
            bytes: buffers.each_ref().map(Region::len),
            begins: begins.map(|begins| begins.map(|begin| begin * placed.call.dtype.size())),
            rank,
            has: parts.map(|part| !part.is_empty()),
            taken: lend.map(|lend| lend.taken),
            taking: may_choose.then(Taking::new),
            short,
            placed: placed.clone(),
        };
        if lately.kept.len() == KEPT {
            lately.kept.remove(0);
        }
        lately.kept.push(quick);
    }
}

impl Engine {
    /// Runs a call that repeats one of the last. `buffers` makes input and output of so many bytes each, if the caller's are
    /// as long. `None`, before anything is done, where it is no such call or others need the floor: then it is checked and
    /// run as any other.
    #[inline]
    pub(in crate::comm) fn quick<'m>(
        &self,
        asked: &Asked<'_>,
        buffers: impl FnOnce([usize; 2]) -> Option<[Region<'m>; 2]>,
    ) -> AtOnce {
        if !self.membership.is_here() || tracing::enabled!(tracing::Level::TRACE) {
            return None;
        }
        let mut during = During {
            engine: self,
            floor: Some(self.try_floor()?),
            seq: None,
        };
        let floor = during.floor.as_deref_mut()?;
        let place = self.next.look()?;
        let is_wanted = self.mail.load(SeqCst) || !floor.is_idle();
        let quick = floor.lately.find(asked)?;
        let buffers = buffers(quick.bytes)?;
        if !quick.lie_right(&buffers) {
            return None;
        }
        let is_over = self.finalized.load(SeqCst) || self.closed.get().is_some() || self.membership.trouble();
        if is_wanted || is_over {
            return None;
        }
        let place = place.take(quick.lanes, quick.mark);
        during.seq = Some(place.seq);
        let [first, count] = quick.words;
        let words = [first | u64::from(place.seq), count];
        let (number, bytes) = (quick.placed.plan.number, quick.placed.bytes);
        let led = match (&quick.short, quick.taken) {
            (Some(short), None) => {
                let begins = || self.recorder.call_lately(words, number, bytes);
                let with = (&floor.links, &mut floor.patience, &mut floor.scratch);
                let gone = match short.sends_first() {
                    true => self.go(short, with, (place, words), &buffers, begins),
                    false => {
                        begins();
                        self.go(short, with, (place, words), &buffers, || ())
                    }
                };
                self.run_rest(floor, place, &buffers, gone)
            }
            (_, taken) => {
                self.recorder.call(words, number, bytes);
                self.run_long(floor, (place, words), &buffers, taken)
            }
        };
        let floor = during.floor.take()?;
        mem::forget(during);
        match led {
            None => {
                self.step_back_idle(floor);
                Some(Ok(()))
            }
            Some(led) => Some(self.end_own(floor, led).map_err(Box::new)),
        }
    }

    /// Runs the kept call that was found last, whose messages may better be left where they lie. `None` if it is over.
    #[inline(never)] // so that shorter ones do not pay for it
    fn run_long(
        &self,
        floor: &mut Floor,
        (place, words): (Place, Words),
        buffers: &[Region<'_>; 2],
        taken: Option<usize>,
    ) -> Option<Led> {
        let at = floor.lately.last;
        let quick = &mut floor.lately.kept[at];
        let (mut call, has_short) = (quick.placed.call, quick.short.is_some());
        call.seq = place.seq;
        let began = quick.taking.as_ref().map(|_| clock::now());
        let copies_all = quick.taking.as_ref().is_some_and(|taking| !taking.takes());
        quick.placed.copies_all = copies_all;
        let lends = match taken.filter(|_| has_short) {
            Some(taken) => {
                let taken = if copies_all { usize::MAX } else { taken };
                self.lends(floor, call, [&buffers[0], &buffers[1]], taken)
            }
            None => Ok(true),
        };
        let led = match lends {
            Ok(false) => {
                let short = floor.lately.kept[at].short.as_ref()?;
                let with = (&floor.links, &mut floor.patience, &mut floor.scratch);
                let gone = self.go(short, with, (place, words), buffers, || ());
                self.run_rest(floor, place, buffers, gone)
            }
            Ok(true) => Some(self.run_kept(floor, place, *buffers, |floor, placed, work| {
                self.dash(floor, placed, work)
            })),
            Err(cause) => {
                self.recorder.end(call.seq, End::of::<()>(&Err(cause.clone())));
                Some(Ok(Err(cause)))
            }
        };
        let taking = floor.lately.kept[at].taking.as_mut();
        if let (Some(taking), Some(began)) = (taking, began) {
            taking.took(clock::now() - began);
        }
        led
    }

    /// Goes the short way of a call as far as that goes. `None` if that was all of it, else how far it is, if that is not to its end.
    ///
    /// What was written a moment ago is read in the same pieces here, as [`Words`] tells. `meanwhile` as in [`Short::run`].
    #[inline(always)] // in the path of each short call
    fn go(
        &self,
        short: &Short,
        (links, patience, scratch): (&Links, &mut Patience, &mut Vec<u64>),
        (place, [first, count]): (Place, Words),
        buffers: &[Region<'_>; 2],
        meanwhile: impl FnOnce(),
    ) -> Option<Option<Reached>> {
        let Place { seq, trail, lane } = place;
        if scratch.len() < short.scratch_words() {
            scratch.resize(short.scratch_words(), 0);
        }
        let turn = Turn {
            words: [Call::first_word(first, trail), count],
            lane,
            buffers,
            scratch: Region::of_mut(scratch),
            is_alone: patience.is_alone(),
        };
        patience.refresh();
        let wait = |looks| {
            let may_wait = self.may_wait(links, patience, looks);
            if may_wait && patience.is_alone() {
                patience.looked(FEW_LOOKS);
            }
            may_wait
        };
        let reached = short.run(&turn, links, meanwhile, wait);
        if reached.is_none() && !links.unsent() {
            self.recorder.over(seq);
            return None;
        }
        self.recorder.begins(seq); // now that it takes longer
        Some(reached)
    }

    /// Runs what is left of the kept call that was found last, which has `gone` so far.
    #[inline(always)] // in the path of each short call
    fn run_rest(
        &self,
        floor: &mut Floor,
        place: Place,
        buffers: &[Region<'_>; 2],
        gone: Option<Option<Reached>>,
    ) -> Option<Led> {
        let Some(reached) = gone else {
            floor.ways.short += 1;
            return None;
        };
        Some(self.run_kept(floor, place, *buffers, |_, _, work| {
            Ok(Some(match reached {
                Some(reached) => Run::after(work, &[reached]),
                None => Run::over(work),
            }))
        }))
    }

    /// Runs the kept call that was found last as any other, from where `begin` has brought it.
    #[inline(never)] // so that short ways do not pay for it
    fn run_kept(
        &self,
        floor: &mut Floor,
        place: Place,
        buffers: [Region<'_>; 2],
        begin: impl FnOnce(&mut Floor, &Placed, &Work<'_>) -> std::result::Result<Option<Run>, Cause>,
    ) -> Led {
        let at = floor.lately.last;
        let mut kept = mem::take(&mut floor.lately.kept);
        let placed = &mut kept[at].placed;
        (placed.call.seq, placed.first_lane, placed.trail) = (place.seq, place.lane, place.trail);
        let led = self.run_own(floor, &kept[at].placed, buffers, begin);
        floor.lately.kept = kept;
        led
    }

    /// Ends all that is under way after a panic in call `seq`.
    #[cold]
    fn break_off(&self, mut floor: Held<'_>, seq: u32) {
        self.recorder.end(seq, End::BROKEN);
        self.break_down(&mut floor);
        self.step_back(floor);
    }
}

/// The floor, during a call: should that panic all that is under way ends.
struct During<'e> {
    engine: &'e Engine,
    floor: Option<Held<'e>>,
    /// The call's number, once it has begun.
    seq: Option<u32>,
}

impl Drop for During<'_> {
    #[inline(always)] // in the path of each short call
    fn drop(&mut self) {
        if let (Some(seq), Some(floor)) = (self.seq, self.floor.take()) {
            self.engine.break_off(floor, seq);
        }
    }
}

/// Short calls that are kept: programs repeat a few.
const KEPT: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::engine::floor::tests::{alone, is_closed_by_a_panic};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_panic_in_a_short_call_ends_what_is_under_way_and_locks_nobody_out() {
        let comm = alone();
        let (send, mut recv) = ([1u32], [0u32]);
        for _ in 0..4 {
            comm.all_reduce(&send, &mut recv, Op::Sum).unwrap();
        }
        let size = Size::Count(1);
        let asked = Asked::new(Collective::AllReduce, size, (DType::Uint32, Op::Sum)).unwrap();
        assert!(comm.engine.quick(&asked, |_| None).is_none());
        let panics = |buffers: &dyn Fn() -> [Region<'static>; 2]| {
            let call = || comm.engine.quick(&asked, |_| Some(buffers()));
            catch_unwind(AssertUnwindSafe(call)).unwrap_err();
        };
        // Before it has begun nothing is broken.
        panics(&|| panic!("no buffers"));
        comm.all_reduce(&send, &mut recv, Op::Sum).unwrap();
        panics(&|| [Region::empty(); 2]); // which are too short
        is_closed_by_a_panic(&comm);
    }

    #[test]
    fn a_root_that_cannot_be_repeats_no_call() {
        let asked = |root| {
            let collective = Collective::Broadcast { root };
            Asked::new(collective, Size::Count(1), (DType::Int8, Op::Sum))
        };
        assert!(asked(MAX_RANKS as u32 - 1).is_some());
        assert!(asked(1 << 20).is_none(), "its root would be 0 in a word");
    }
}
