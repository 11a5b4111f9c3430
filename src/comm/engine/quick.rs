//! Calls that repeat one of the last: their checks are comparisons, and their way is known.
//!
//! A call of a few bytes is over in the time that a few cache lines take between two processors, so that all that is worked
//! out for it counts. What was found of a short call that was made twice (how long its buffers are, its plan, its way) stays
//! on the floor. Who finds it there, with nothing under way, needs neither the desk nor the planner.

use super::{AtOnce, Engine, Floor, Led, job::Placed, next::Place, taking::Taking};
use crate::{
    comm::{Side, buffers::Places},
    exec::{FEW_LOOKS, Run, Short, Turn, Work},
    mem::Region,
    plan::definition,
    record::End,
    sys::clock,
    transport::{Wires, Words, words_of},
    types::{Call, Cause, Collective, DType, Op},
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::Ordering::SeqCst,
};

/// What a call is asked to do.
#[derive(Clone, Copy)]
pub(in crate::comm) struct Asked<'a> {
    pub(in crate::comm) collective: Collective,
    pub(in crate::comm) size: Size<'a>,
    pub(in crate::comm) dtype: DType,
    pub(in crate::comm) op: Op,
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
    /// Its place is that of the last one.
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
        let call = &self.placed.call;
        let is_as_long = match (asked.size, &self.placed.places) {
            (Size::Count(count), Places::From(_)) => call.count == count as u64,
            (Size::Given(_), Places::Given(_)) => true,
            _ => false,
        };
        is_as_long
            && call.collective == asked.collective
            && call.dtype == asked.dtype
            && call.op == asked.op
            && self.has_blocks_of(&asked.size)
    }

    #[inline]
    fn has_blocks_of(&self, size: &Size<'_>) -> bool {
        match (size, &self.placed.places) {
            (Size::Given(sides), Places::Given(blocks)) => {
                (0..2).all(|k| !self.has[k] || sides[k].is(&blocks.sides[k], self.rank))
            }
            _ => true,
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
    fn find(&mut self, asked: &Asked<'_>) -> Option<usize> {
        if !self.kept.get(self.last).is_some_and(|quick| quick.is(asked)) {
            self.last = self.kept.iter().position(|quick| quick.is(asked))?;
        }
        Some(self.last)
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
        let mut guard = self.try_floor()?;
        let floor = &mut *guard;
        let at = floor.lately.find(asked)?;
        let place = self.next.look()?;
        let is_wanted = self.mail.load(SeqCst) || !floor.is_idle();
        let quick = &mut floor.lately.kept[at];
        let buffers = buffers(quick.bytes).filter(|buffers| quick.lie_right(buffers))?;
        let is_over = self.finalized.load(SeqCst) || self.closed.get().is_some() || self.membership.trouble();
        if is_wanted || is_over {
            return None;
        }
        let Place { seq, trail, lane } = place.take(quick.lanes, quick.mark);
        let placed = &mut quick.placed;
        (placed.call.seq, placed.first_lane, placed.trail) = (seq, lane, trail);
        let [first, count] = quick.words;
        let words = [first | u64::from(seq), count];
        let (number, bytes) = (quick.placed.plan.number, quick.placed.bytes);
        let led = match (&quick.short, quick.taken) {
            (Some(_), None) => {
                self.recorder.call_lately(words, number, bytes);
                self.run_short(floor, at, words, &buffers)
            }
            (_, taken) => {
                self.recorder.call(words, number, bytes);
                self.run_long(floor, at, words, &buffers, taken)
            }
        };
        match led {
            None => {
                self.step_back_idle(guard);
                Some(Ok(()))
            }
            Some(led) => Some(self.end_own(guard, led).map_err(Box::new)),
        }
    }

    /// Runs the kept call number `at`, whose messages may better be left where they lie. `None` if it is over.
    #[inline(never)] // so that shorter ones do not pay for it
    fn run_long(
        &self,
        floor: &mut Floor,
        at: usize,
        words: Words,
        buffers: &[Region<'_>; 2],
        taken: Option<usize>,
    ) -> Option<Led> {
        let quick = &mut floor.lately.kept[at];
        let (call, has_short) = (quick.placed.call, quick.short.is_some());
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
            Ok(false) => self.run_short(floor, at, words, buffers),
            Ok(true) => Some(self.run_kept(floor, at, *buffers, |floor, placed, work| {
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

    /// Runs the kept call number `at`, by its short way as far as that goes. `None` if that was all of it.
    ///
    /// What was written a moment ago is read in the same pieces here, as [`Words`] tells.
    #[inline]
    fn run_short(
        &self,
        floor: &mut Floor,
        at: usize,
        words: Words,
        buffers: &[Region<'_>; 2],
    ) -> Option<Led> {
        let seq = words[0] as u32;
        let Floor {
            links,
            patience,
            scratch,
            lately,
            ways,
            ..
        } = &mut *floor;
        let quick = &lately.kept[at];
        let short = quick.short.as_ref()?;
        let scratch_words = short.scratch_bytes().div_ceil(8);
        if scratch.len() < scratch_words {
            scratch.resize(scratch_words, 0);
        }
        let [first, count] = words;
        let turn = Turn {
            words: [Call::first_word(first, quick.placed.trail), count],
            lane: quick.placed.first_lane,
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
        let mut reached = None;
        let ran = catch_unwind(AssertUnwindSafe(|| reached = short.run(&turn, &*links, wait)));
        match ran {
            Ok(()) if reached.is_none() && !links.unsent() => {
                ways.short += 1;
                self.recorder.over(seq);
                None
            }
            Ok(()) => {
                self.recorder.begins(seq); // now that it takes longer
                Some(self.run_kept(floor, at, *buffers, |_, _, work| {
                    Ok(Some(match reached {
                        Some(reached) => Run::after(work, &[reached]),
                        None => Run::over(work),
                    }))
                }))
            }
            Err(panic) => {
                self.recorder.end(seq, End::BROKEN);
                self.break_down(floor);
                Some(Err(panic))
            }
        }
    }

    /// Runs the kept call number `at` as any other, from where `begin` has brought it.
    #[inline(never)] // so that short ways do not pay for it
    fn run_kept(
        &self,
        floor: &mut Floor,
        at: usize,
        buffers: [Region<'_>; 2],
        begin: impl FnOnce(&mut Floor, &Placed, &Work<'_>) -> std::result::Result<Option<Run>, Cause>,
    ) -> Led {
        let kept = std::mem::take(&mut floor.lately.kept);
        let led = self.run_own(floor, &kept[at].placed, buffers, begin);
        floor.lately.kept = kept;
        led
    }
}

/// Short calls that are kept: programs repeat a few.
const KEPT: usize = 8;
