//! Schedules of some ranks as parts of one of more: how hierarchies are put together from the algorithms that there are.

use crate::plan::schedule::{Affine, Buffer, How, Item, LoopVars, Schedule, Slice, Source, Step};

/// Where the blocks of a part's buffer lie in the whole: block i is the `width` grains of `buffer` from `first` + i·`width` on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) buffer: Buffer,
    pub(super) first: usize,
    pub(super) width: usize,
}

/// A collective among some of the ranks, as a part of what all do.
pub(super) struct Part<'p> {
    /// The rank that has a number in the part.
    pub(super) rank: &'p dyn Fn(usize) -> usize,
    pub(super) input: Place,
    pub(super) output: Place,
    pub(super) scratch: Place,
    /// Whether a reduction that is complete in the part is complete.
    pub(super) completes: bool,
}

impl Part<'_> {
    /// Adds the steps of the part's `schedule` to those of the whole. Turns of repeats become steps of their own, since ranks
    /// that follow each other in the part need not do so in the whole.
    ///
    /// The schedule has one channel and blocks of one grain. Slices that go round at the end of the vector do so in the whole
    /// only if the part has all of it.
    pub(super) fn embed(&self, schedule: &Schedule, steps: &mut Vec<Step>) {
        assert!(
            schedule.channels.len() == 1 && schedule.grains == 1,
            "a part has one channel and blocks of one grain"
        );
        self.items(schedule, &schedule.channels[0], &mut [0; 2], 0, steps);
    }

    fn items(
        &self,
        schedule: &Schedule,
        items: &[Item],
        vars: &mut LoopVars,
        depth: usize,
        steps: &mut Vec<Step>,
    ) {
        for item in items {
            match item {
                Item::Step(step) => steps.extend(useful(self.step(schedule, step, vars))),
                Item::Repeat { count, items } => {
                    for turn in 0..i64::from(*count) {
                        vars[depth] = turn;
                        self.items(schedule, items, vars, depth + 1, steps);
                    }
                    vars[depth] = 0;
                }
            }
        }
    }

    fn step(&self, schedule: &Schedule, step: &Step, vars: &LoopVars) -> Step {
        let peer = |peer: &Affine| Affine::fixed((self.rank)(peer.at(vars, schedule.ranks as usize)));
        let slice = |slice: &Slice| self.slice(schedule, slice, vars);
        let source = |source: &Source| match source {
            Source::Slice(one) => Source::Slice(slice(one)),
            Source::Recv(from) => Source::Recv(peer(from)),
        };
        Step {
            sources: step.sources.iter().map(source).collect(),
            how: match step.how {
                How::ReduceLast if !self.completes => How::Reduce,
                how => how,
            },
            stores: step.stores.iter().map(slice).collect(),
            sends: step.sends.iter().map(peer).collect(),
            after: None,
        }
    }

    fn slice(&self, schedule: &Schedule, slice: &Slice, vars: &LoopVars) -> Slice {
        let place = match slice.buffer {
            Buffer::Input => self.input,
            Buffer::Output => self.output,
            Buffer::Scratch => self.scratch,
        };
        let first = slice.position(0, vars, schedule.grains_of(slice.buffer));
        Slice {
            buffer: place.buffer,
            first: Affine::fixed(place.first + first * place.width),
            run: slice.run * place.width as u32,
            stride: slice.stride * place.width as i64,
            reps: slice.reps,
        }
    }
}

/// The step without stores of what is there already, if that leaves anything to do.
fn useful(mut step: Step) -> Option<Step> {
    if let (How::Copy, [Source::Slice(source)]) = (step.how, step.sources.as_slice()) {
        step.stores.retain(|store| store != source);
    }
    (!step.stores.is_empty() || !step.sends.is_empty()).then_some(step)
}
