//! Algorithms in MSCCL's XML, as msccl-tools writes them and MSCCL and RCCL carry them out.
//!
//! A file has the programs of all ranks. A rank's *thread blocks* each run a list of steps in order; one sends to
//! at most one peer and receives from at most one, on a channel, and two blocks of two ranks with the same channel
//! are the ends of a first-in first-out connection. Steps move *chunks*, equal parts of the vector, of three
//! buffers: input, output and scratch. A step may wait for a step of another block of its rank, and tell others
//! that it is over.
//!
//! [`read`](read::read) makes a [`Program`] of a text, [`check`](check::check) looks at it without running it, and
//! [`prove`](prove::prove) runs it symbolically on [`machine`], with the values of the verifier of the library's
//! own schedules. That a file is no [`Schedule`](crate::plan::schedule::Schedule) has reasons: its steps store into
//! the input in place, read there what was reduced, and wait for several others.
//!
//! What steps mean is what RCCL does: a step reads and stores at its own rank's buffers, wherever msccl-tools took
//! the other place from, and `srcbuf` of what only receives, and `dstbuf` of what only sends, mean nothing. Source:
//! ROCm/rccl, `src/misc/msccl/msccl_parser.cc` and `src/device/msccl_kernel_impl.h`; microsoft/msccl-tools,
//! `msccl/language/ir.py`.

mod check;
mod flaw;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod machine;
mod memory;
#[cfg(test)]
mod mutate;
mod outcome;
pub(crate) mod prove;
mod races;
pub(crate) mod read;
mod steps;
#[cfg(test)]
mod tests;
mod wires;

pub(crate) use flaw::{Flaw, Flaws};

use crate::plan::definition;
use crate::plan::schedule::Buffer;
use crate::types::Collective;
use smallvec::SmallVec;
use std::ops::Range;

/// All ranks' parts of an algorithm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) collective: Collective,
    pub(crate) protocol: Protocol,
    /// Chunks of the vector.
    pub(crate) chunks: usize,
    /// Whether it is for calls in place, and for others.
    pub(crate) in_place: bool,
    pub(crate) out_of_place: bool,
    /// By rank.
    pub(crate) gpus: Vec<Gpu>,
}

/// How connections carry messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Simple,
    Ll,
    Ll128,
}

impl Protocol {
    /// As files call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Protocol::Simple => "Simple",
            Protocol::Ll => "LL",
            Protocol::Ll128 => "LL128",
        }
    }

    /// Messages that a connection holds until they are received: NCCL's connections have 8 slots, of which a
    /// message of Simple takes 4 in RCCL.
    pub(crate) fn slots(self) -> usize {
        match self {
            Protocol::Simple => 2,
            Protocol::Ll | Protocol::Ll128 => 8,
        }
    }
}

/// A rank's part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gpu {
    pub(crate) line: u32,
    pub(crate) scratch: usize,
    /// By their numbers.
    pub(crate) blocks: Vec<Block>,
}

/// A thread block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) line: u32,
    pub(crate) send: Option<usize>,
    pub(crate) recv: Option<usize>,
    pub(crate) channel: u32,
    /// Without those that only wait: their waits are the next one's.
    pub(crate) steps: Vec<Step>,
}

/// A step of a thread block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) line: u32,
    /// Its number in the file, which counts also those that only wait.
    pub(crate) number: u32,
    pub(crate) action: Action,
    pub(crate) source: Place,
    pub(crate) store: Place,
    pub(crate) count: usize,
    pub(crate) waits: SmallVec<[Wait; 1]>,
    /// Whether others may wait for it.
    pub(crate) signals: bool,
}

/// Until a block of the same rank has told that this step of it, or a later one, is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) line: u32,
    pub(crate) block: usize,
    pub(crate) step: u32,
}

/// Where chunks lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) buffer: Buffer,
    pub(crate) first: usize,
}

/// What a step does: `s`, `r`, and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Send,
    Recv,
    RecvCopySend,
    RecvReduceSend,
    RecvReduceCopy,
    RecvReduceCopySend,
    Copy,
    Reduce,
}

impl Action {
    pub(crate) const ALL: [(&'static str, Action); 8] = [
        ("s", Action::Send),
        ("r", Action::Recv),
        ("rcs", Action::RecvCopySend),
        ("rrs", Action::RecvReduceSend),
        ("rrc", Action::RecvReduceCopy),
        ("rrcs", Action::RecvReduceCopySend),
        ("cpy", Action::Copy),
        ("re", Action::Reduce),
    ];

    pub(crate) fn sends(self) -> bool {
        use Action::*;
        matches!(self, Send | RecvCopySend | RecvReduceSend | RecvReduceCopySend)
    }

    pub(crate) fn receives(self) -> bool {
        use Action::*;
        matches!(
            self,
            Recv | RecvCopySend | RecvReduceSend | RecvReduceCopy | RecvReduceCopySend
        )
    }

    /// Whether it reads its source.
    pub(crate) fn reads(self) -> bool {
        !matches!(self, Action::Recv | Action::RecvCopySend)
    }

    pub(crate) fn stores(self) -> bool {
        !matches!(self, Action::Send | Action::RecvReduceSend)
    }
}

impl Program {
    pub(crate) fn ranks(&self) -> usize {
        self.gpus.len()
    }

    /// Blocks of the vector, as the collective's definition counts them, and chunks of each.
    fn blocks(&self) -> (usize, usize) {
        match self.collective.has_blocks() {
            true => (self.ranks(), self.chunks / self.ranks().max(1)),
            false => (self.chunks, 1),
        }
    }

    /// The chunks of the vector that `rank`'s buffer has; of scratch all.
    fn extent(&self, rank: usize, buffer: Buffer) -> Range<usize> {
        let (blocks, chunks) = self.blocks();
        let held = match buffer {
            Buffer::Input => definition::input(self.collective, rank, blocks),
            Buffer::Output => definition::output(self.collective, rank, blocks),
            Buffer::Scratch => return 0..self.gpus[rank].scratch,
        };
        held.start * chunks..held.end * chunks
    }

    pub(crate) fn steps(&self) -> usize {
        self.each_block().map(|block| block.steps.len()).sum()
    }

    fn each_block(&self) -> impl Iterator<Item = &Block> {
        self.gpus.iter().flat_map(|gpu| &gpu.blocks)
    }
}
