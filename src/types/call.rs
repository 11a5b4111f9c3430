//! What a rank calls: the collective and everything that the ranks must agree on.

use super::{DType, Op};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A collective operation, with what distinguishes its schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Collective {
    /// Every rank ends with the reduction of all ranks' vectors.
    AllReduce,
    /// Every rank ends with `root`'s vector.
    Broadcast {
        /// The rank whose data everyone gets.
        root: u32,
    },
}

impl Collective {
    /// The name that messages and `ccl-perf` use.
    pub fn name(self) -> &'static str {
        match self {
            Collective::AllReduce => "allreduce",
            Collective::Broadcast { .. } => "broadcast",
        }
    }

    /// The root, where there is one.
    pub fn root(self) -> Option<u32> {
        match self {
            Collective::AllReduce => None,
            Collective::Broadcast { root } => Some(root),
        }
    }

    /// Whether values are combined on the way, so that the reduction operation matters.
    pub fn reduces(self) -> bool {
        matches!(self, Collective::AllReduce)
    }
}

/// One call as every rank must have made it. Two ranks whose calls with the same number differ get an error that
/// prints both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Call {
    /// The call's number on its communicator, from 0.
    pub seq: u32,
    /// What is called.
    pub collective: Collective,
    /// Elements of the vector.
    pub count: u64,
    /// Type of the elements.
    pub dtype: DType,
    /// The reduction; [`Op::Sum`] where the collective does not reduce.
    pub op: Op,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "call #{} {}({} x {}",
            self.seq,
            self.collective.name(),
            self.count,
            self.dtype
        )?;
        if self.collective.reduces() {
            write!(f, ", {}", self.op)?;
        }
        if let Some(root) = self.collective.root() {
            write!(f, ", root {root}")?;
        }
        f.write_str(")")
    }
}
