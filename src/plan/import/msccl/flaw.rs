//! What is wrong with an algorithm, and where.

use crate::plan::schedule::Buffer;
use crate::plan::verify;
use std::fmt;

/// A mistake, at a line of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flaw {
    pub(crate) line: u32,
    pub(crate) at: At,
    pub(crate) kind: Kind,
}

/// A rank, a thread block of it, a step of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) rank: usize,
    pub(crate) block: Option<usize>,
    pub(crate) step: Option<u32>,
}

/// What is wrong. Much of it is what may be wrong with the library's own schedules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Kind {
    #[error(transparent)]
    Schedule(#[from] verify::Kind),
    #[error("is step {at} of its thread block: steps are counted from 0")]
    Misnumbered { at: u32 },
    #[error("its peer is rank {peer}, which is none of {ranks}")]
    NoPeer { peer: usize, ranks: usize },
    #[error("sends, but its thread block has no peer to send to")]
    SendsToNobody,
    #[error("receives, but its thread block has no peer to receive from")]
    ReceivesFromNobody,
    #[error(
        "{what} rank {peer} on channel {channel}, as thread block {other} does: a connection has one block at each end"
    )]
    SharedConnection {
        what: verify::Verb,
        peer: usize,
        channel: u32,
        other: usize,
    },
    #[error("{verb} chunks {first} to {last} of the {buffer}, which has {chunks}")]
    Outside {
        verb: &'static str,
        buffer: Name,
        first: usize,
        last: usize,
        chunks: usize,
    },
    #[error("waits for thread block {block}, which there is none of")]
    NoBlock { block: usize },
    #[error(
        "waits for step {step} of thread block {block}, of which neither that step nor a later one has hasdep=\"1\""
    )]
    NeverSignalled { block: usize, step: u32 },
    #[error(
        "a nop that waits for nothing: RCCL does not count it, so that waits for later steps would end too early or never"
    )]
    IdleNop,
    #[error(
        "follows a nop, but RCCL reduces in one with the step before that, and would not wait for what the nop does"
    )]
    HiddenWait,
    #[error(
        "is reduced in one with the step before by RCCL, which takes this count, {count}, for both: that one's is {before}"
    )]
    MixedCounts { count: usize, before: usize },
    #[error("takes a message of {want} chunks from rank {from}, which sends one of {got} (line {line})")]
    OtherLength {
        from: usize,
        got: usize,
        want: usize,
        line: u32,
    },
    #[error("reduces chunk {other} of the vector with chunk {chunk}")]
    MixesChunks { chunk: usize, other: usize },
    #[error("reduces what rank {rank} contributed to chunk {chunk} a second time")]
    Twice { rank: usize, chunk: usize },
    #[error(
        "conflicts with thread block {block}, step {step} (line {line}) in chunk {chunk} of the {buffer}: nothing orders the two"
    )]
    Race {
        block: usize,
        step: u32,
        line: u32,
        chunk: usize,
        buffer: Name,
    },
    #[error("chunk {chunk} of the output holds {holds} where {wants} is wanted")]
    WrongChunk {
        chunk: usize,
        holds: String,
        wants: String,
    },
}

/// A buffer in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name(pub(crate) Buffer);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Buffer::Input => "input",
            Buffer::Output => "output",
            Buffer::Scratch => "scratch",
        })
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.rank)?;
        if let Some(block) = self.block {
            write!(f, ", thread block {block}")?;
        }
        match self.step {
            Some(step) => write!(f, ", step {step}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.line, self.at, self.kind)
    }
}

/// The first flaws that were found, and how many there are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Flaws {
    pub(crate) first: Vec<Flaw>,
    pub(crate) count: usize,
}

/// How many are kept.
const KEPT: usize = 20;

impl Flaws {
    /// Adds one, unless it is the same as another.
    pub(crate) fn push(&mut self, flaw: Flaw) {
        if self.first.contains(&flaw) {
            return;
        }
        self.count += 1;
        if self.first.len() < KEPT {
            self.first.push(flaw);
        }
    }

    /// Adds others, with those of them that were not kept.
    pub(super) fn extend(&mut self, others: Flaws) {
        let lost = others.count - others.first.len();
        others.first.into_iter().for_each(|flaw| self.push(flaw));
        self.count += lost;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }
}
