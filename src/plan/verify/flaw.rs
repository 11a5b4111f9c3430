//! What is wrong with a schedule, and where.

use super::program::Path;
use crate::plan::schedule::{Buffer, DEPTH, How};
use smallvec::SmallVec;
use std::fmt;

/// Why schedules do not carry out their collective, and the place where that shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flaw {
    pub(crate) rank: usize,
    pub(crate) at: Option<Box<At>>,
    pub(crate) grain: Option<Grain>,
    pub(crate) kind: Kind,
}

/// A step of a rank, and its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) channel: u32,
    pub(crate) item: Path,
    /// The turns of the enclosing repeats, outermost first, from 0.
    pub(crate) turns: SmallVec<[i64; DEPTH]>,
}

/// A grain of the vector: part `part` of block `block`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grain {
    pub(crate) block: usize,
    pub(crate) part: usize,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Kind {
    #[error("its schedule is for {got} {what} where {want} are agreed")]
    Disagrees { what: &'static str, got: u32, want: u32 },
    #[error("repeats nest deeper than {DEPTH}")]
    TooDeep,
    #[error("the step has no slice, so nobody knows how long its messages are")]
    NoSlice,
    #[error("a slice has {got} grains where the step's first has {want}")]
    UnevenSlices { got: usize, want: usize },
    #[error("{how:?} with {count} sources")]
    SourceCount { how: How, count: usize },
    #[error("scratch position {position} lies outside of the {scratch} grains declared")]
    OutsideScratch { position: i64, scratch: u32 },
    #[error("stores into the input, which belongs to the caller")]
    StoresInput,
    #[error("reads of the input what this rank does not have")]
    ReadsNoInput,
    #[error("stores this block into the output, and this rank's has none of it")]
    StoresNoOutput,
    #[error("waits for item {item} of channel {channel}, which is its own channel or does not exist")]
    BadAfter { channel: u32, item: u32 },
    #[error("{verb} itself")]
    Itself { verb: Verb },
    #[error("{verb} rank {peer} twice in one step: a lane shows and takes one message at a time")]
    Twice { verb: Verb, peer: usize },
    #[error(
        "its slices overlap at different places, so that it would overwrite what it has yet to read or keep"
    )]
    OverlapsItself,
    #[error("conflicts with {} in {buffer:?}: nothing orders the two", .other)]
    Race { other: Box<At>, buffer: Buffer },

    #[error("reads a grain of {buffer:?} that nothing has written")]
    Unwritten { buffer: Buffer },
    #[error("reads a grain of the input where in place a step has stored a result")]
    ReadsResult,
    #[error("reduces a value of block {block} with one of this block")]
    MixesBlocks { block: usize },
    #[error(
        "reduces {parts}, which are no neighbours in the tree over ranks or would be rounded before it is complete"
    )]
    OutOfOrder { parts: String },
    #[error("reduces a value that is finished already")]
    ReducesFinished,
    #[error("stores it at position {position} of {buffer:?}, which the rank does not know to be as long")]
    Misplaced { buffer: Buffer, position: usize },
    #[error("the output holds {holds} where {wants} is wanted")]
    WrongOutput { holds: String, wants: String },

    #[error("expects {want} grains from rank {from}, whose message has {got}")]
    WrongLength { from: usize, got: usize, want: usize },
    #[error("waits for a message from rank {from} that is never sent")]
    NeverSent { from: usize },
    #[error("waits for room in its lane to rank {to}, which never takes what is there")]
    NeverTaken { to: usize },
    #[error("its message to rank {to} is never received")]
    Unconsumed { to: usize },
    #[error("deadlock: {}", .cycle.join(", "))]
    Deadlock { cycle: Vec<String> },
}

/// What a step does with a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    ReceivesFrom,
    SendsTo,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verb::ReceivesFrom => "receives from",
            Verb::SendsTo => "sends to",
        })
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "channel {}, item ", self.channel)?;
        for (i, index) in self.item.iter().enumerate() {
            write!(f, "{}{index}", if i == 0 { "" } else { "." })?;
        }
        match self.turns.as_slice() {
            [] => Ok(()),
            [turn] => write!(f, " (turn {turn})"),
            turns => write!(f, " (turns {turns:?})"),
        }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.rank)?;
        if let Some(at) = &self.at {
            write!(f, ", {at}")?;
        }
        match self.grain {
            Some(Grain { block, part: 0 }) => write!(f, ", block {block}")?,
            Some(Grain { block, part }) => write!(f, ", block {block}, grain {part}")?,
            None => {}
        }
        write!(f, ": {}", self.kind)
    }
}

impl std::error::Error for Flaw {}
