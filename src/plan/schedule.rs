//! The schedule format: one rank's part of a collective, as data.
//!
//! A schedule is a few *channels*; a channel is a list of *items* that one cursor runs in order; an item is a *step*
//! or a *repeat* of items. A step reads its sources in one pass, copies or reduces them, and puts the result into
//! its stores and its sends. All indices count *grains*: the vector of a call is cut into `blocks` blocks and each
//! block into `grains` grains (see [`super::layout::Layout`]).
//!
//! ```text
//! step  = { sources: 1..k of slice | recv(peer) } --copy | reduce in the listed order-->
//!         { stores: 0..k slices, sends: 0..k peers } [after: (channel, item)]
//! ```
//!
//! Indices are affine in the loop variables, so a ring costs the same memory at any number of ranks.

use smallvec::SmallVec;

/// How deep repeats nest.
pub(crate) const DEPTH: usize = 2;

/// The values of the enclosing repeats' loop variables, outermost first; zero where there is no loop.
pub(crate) type LoopVars = [i64; DEPTH];

/// `base + Σ step[d] · loop_variable[d]`. Where it is used it is taken modulo the number of ranks (a peer) or of the
/// buffer's grains (a position).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Affine {
    pub(crate) base: i64,
    pub(crate) step: LoopVars,
}

impl Affine {
    /// The same in every turn.
    pub(crate) fn fixed(base: usize) -> Self {
        Affine {
            base: base as i64,
            step: [0; DEPTH],
        }
    }

    /// `base`, and `step` more with each turn of the outermost repeat.
    pub(crate) fn stepping(base: usize, step: i64) -> Self {
        let mut steps = [0; DEPTH];
        steps[0] = step;
        Affine {
            base: base as i64,
            step: steps,
        }
    }

    /// The value in `0..modulus` for these loop variables.
    #[inline]
    pub(crate) fn at(&self, vars: &LoopVars, modulus: usize) -> usize {
        let value = self.base + self.step.iter().zip(vars).map(|(s, v)| s * v).sum::<i64>();
        if (0..modulus as i64).contains(&value) {
            value as usize
        } else {
            value.rem_euclid(modulus as i64) as usize
        }
    }
}

/// The memory that a slice lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Buffer {
    /// What the caller gave to be sent. In place it is the same memory as the output, block for block.
    Input,
    /// Where the caller wants the result.
    Output,
    /// Memory of the executor's, one for each tile in flight, shaped like the blocks: grain i is as long as grain
    /// i modulo the number of grains of the input.
    Scratch,
}

/// `reps` runs of `run` consecutive grains, the starts `stride` grains apart: one message when it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Slice {
    pub(crate) buffer: Buffer,
    pub(crate) first: Affine,
    pub(crate) run: u32,
    pub(crate) stride: i64,
    pub(crate) reps: u32,
}

impl Slice {
    /// The one grain at `first`.
    pub(crate) fn grain(buffer: Buffer, first: Affine) -> Self {
        Slice::run(buffer, first, 1)
    }

    /// The `grains` grains from `first` on, going round at the end of the buffer.
    pub(crate) fn run(buffer: Buffer, first: Affine, grains: usize) -> Self {
        Slice {
            buffer,
            first,
            run: grains as u32,
            stride: 0,
            reps: 1,
        }
    }

    /// How many grains it has.
    pub(crate) fn grains(&self) -> usize {
        self.run as usize * self.reps as usize
    }

    /// The position of its `k`-th grain in a buffer of `total` grains.
    #[inline]
    pub(crate) fn position(&self, k: usize, vars: &LoopVars, total: usize) -> usize {
        if k == 0 {
            return self.first.at(vars, total);
        }
        let (rep, at) = (k as i64 / i64::from(self.run), k as i64 % i64::from(self.run));
        let shifted = Affine {
            base: self.first.base + rep * self.stride + at,
            ..self.first
        };
        shifted.at(vars, total)
    }
}

/// Where a step reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    Slice(Slice),
    /// The next message from this rank on the channel's lane.
    Recv(Affine),
}

/// What a step does with what it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum How {
    /// Takes its only source as it is.
    Copy,
    /// Reduces its sources in the listed order. More contributions follow elsewhere.
    Reduce,
    /// The same, and the result is complete: what is done once at the end (the division of an average) is done now.
    /// With one source this finishes a value that one rank alone contributed.
    ReduceLast,
}

/// One pass over some grains.
///
/// All slices of a step have the same number of grains, and there is at least one slice, so that both ends of a
/// message know its length without being told.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Step {
    pub(crate) sources: SmallVec<[Source; 2]>,
    pub(crate) how: How,
    pub(crate) stores: SmallVec<[Slice; 1]>,
    pub(crate) sends: SmallVec<[Affine; 1]>,
    /// Waits until this (channel, item) of the same rank and tile is over.
    pub(crate) after: Option<(u32, u32)>,
}

impl Step {
    /// A step that copies `source` and does nothing with it yet.
    pub(crate) fn copy(source: Source) -> Self {
        Step::of(How::Copy, [source])
    }

    /// A step that reduces `sources` and does nothing with the result yet.
    pub(crate) fn of(how: How, sources: impl IntoIterator<Item = Source>) -> Self {
        let sources = sources.into_iter().collect();
        Step {
            sources,
            how,
            stores: SmallVec::new(),
            sends: SmallVec::new(),
            after: None,
        }
    }

    /// Also stores the result in `slice`.
    pub(crate) fn store(mut self, slice: Slice) -> Self {
        self.stores.push(slice);
        self
    }

    /// Also sends the result to `peer`.
    pub(crate) fn send(mut self, peer: Affine) -> Self {
        self.sends.push(peer);
        self
    }

    /// The slices among its sources and stores.
    pub(crate) fn slices(&self) -> impl Iterator<Item = &Slice> {
        let read = self.sources.iter().filter_map(|source| match source {
            Source::Slice(slice) => Some(slice),
            Source::Recv(_) => None,
        });
        read.chain(&self.stores)
    }

    /// The slice that says how long its messages are.
    pub(crate) fn shape(&self) -> Option<&Slice> {
        self.slices().next()
    }
}

/// A step, or items done over and over.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all items are steps, read in order"
)]
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Item {
    Step(Step),
    Repeat { count: u32, items: Vec<Item> },
}

/// One rank's part of a collective.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Schedule {
    /// The ranks of the communicator.
    pub(crate) ranks: u32,
    /// Blocks that the vector is cut into; the same on all ranks.
    pub(crate) blocks: u32,
    /// Grains of a block; the same on all ranks.
    pub(crate) grains: u32,
    /// Grains of scratch memory that this rank needs.
    pub(crate) scratch: u32,
    /// Independent lists of items, each run in order on a lane of its own.
    pub(crate) channels: Vec<Vec<Item>>,
}

impl Schedule {
    /// A schedule of one channel, without scratch, with blocks of one grain.
    pub(crate) fn plain(ranks: usize, blocks: usize, items: Vec<Item>) -> Self {
        Schedule {
            ranks: ranks as u32,
            blocks: blocks as u32,
            grains: 1,
            scratch: 0,
            channels: vec![items],
        }
    }

    /// Grains of the input, and of the output.
    pub(crate) fn total_grains(&self) -> usize {
        self.blocks as usize * self.grains as usize
    }

    /// Grains of `buffer`.
    pub(crate) fn grains_of(&self, buffer: Buffer) -> usize {
        match buffer {
            Buffer::Input | Buffer::Output => self.total_grains(),
            Buffer::Scratch => self.scratch as usize,
        }
    }

    /// Whether a step reads what another has left in the output.
    pub(crate) fn reads_output(&self) -> bool {
        fn of(items: &[Item]) -> bool {
            let is_output =
                |source: &Source| matches!(source, Source::Slice(slice) if slice.buffer == Buffer::Output);
            items.iter().any(|item| match item {
                Item::Step(step) => step.sources.iter().any(is_output),
                Item::Repeat { items, .. } => of(items),
            })
        }
        self.channels.iter().any(|items| of(items))
    }

    /// What its tiles depend on.
    pub(crate) fn extent(&self) -> Extent {
        fn of(items: &[Item]) -> usize {
            let one = |item: &Item| match item {
                Item::Step(step) => step.shape().map_or(0, Slice::grains),
                Item::Repeat { items, .. } => of(items),
            };
            items.iter().map(one).max().unwrap_or(0)
        }
        Extent {
            message: self.channels.iter().map(|items| of(items)).max().unwrap_or(0),
            channels: self.channels.len(),
        }
    }
}

/// What the tiles of a call depend on: the most that any rank's schedule has, so that all ranks cut a call alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Extent {
    /// Grains of the largest message.
    pub(crate) message: usize,
    pub(crate) channels: usize,
}

impl Extent {
    /// Of several schedules together.
    pub(crate) fn of_all(schedules: impl IntoIterator<Item = Extent>) -> Extent {
        schedules.into_iter().fold(Extent::default(), |most, one| Extent {
            message: most.message.max(one.message),
            channels: most.channels.max(one.channels),
        })
    }
}
