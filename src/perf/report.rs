//! What the ranks' processes are told, and what they report: the parent reads it from pipes, a line of JSON each, the rank first.

use super::{
    footprint::Footprint, operation::Operation, overlap::Overlap, size::Sweep, skew::Skew, stats::Stats,
};
use crate::types::{DType, Op};
use serde::{Deserialize, Serialize};
use std::{ops::Range, time::Duration};

/// What every rank is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) ranks: usize,
    pub(super) runs: Vec<Run>,
    pub(super) sweep: Sweep,
    pub(super) placements: Vec<Placement>,
    pub(super) iterations: Option<u32>,
    pub(super) warmup: Option<u32>,
    /// How long samples of one size may take together, within bounds, where their number is not given.
    pub(super) time: Option<Duration>,
    pub(super) check: bool,
    /// Whether operations go on by themselves while their caller computes.
    pub(super) overlap: bool,
    /// Whether the planner's prediction stands beside each time.
    pub(super) predict: bool,
    pub(super) timeout: Option<Duration>,
    pub(super) transport: Option<String>,
    pub(super) algorithm: Option<String>,
    /// How unequal blocks are that are given.
    pub(super) skew: Skew,
    /// Whether buffers are memory of CUDA devices.
    pub(super) on_device: bool,
    /// How many calls a CUDA graph has, if calls are made by graphs.
    pub(super) graph: Option<u64>,
    /// Whether they are memory that peers may read.
    pub(super) shared: bool,
    /// Whether ranks are threads of one process.
    pub(super) threads: bool,
}

impl Job {
    /// Whether the operation has algorithms to choose from.
    pub(super) fn has_algorithms(&self) -> bool {
        self.runs.iter().any(|run| run.operation.collective().is_some())
    }

    /// Where the buffers are, as the command line names it.
    pub(super) fn device(&self) -> &'static str {
        match (self.on_device, self.shared) {
            (true, _) => "cuda",
            (false, true) => "shared",
            (false, false) => "host",
        }
    }

    /// The counts of a run's calls: as many elements as the sizes hold, for each rank where the vector has a block for each.
    /// As in nccl-tests, a size is that of the whole vector, which is the largest buffer that a rank has.
    pub(super) fn counts(&self, run: Run) -> impl Iterator<Item = usize> {
        self.sweep
            .counts(run.dtype.size() * run.operation.blocks(self.ranks))
    }

    /// The size of the whole vector of a call with this count.
    pub(super) fn bytes(&self, run: Run, count: usize) -> u64 {
        (count * run.dtype.size() * run.operation.blocks(self.ranks)) as u64
    }
}

/// One series of sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) operation: Operation,
    /// [`DType::Uint8`] where the operation has no vector.
    pub(super) dtype: DType,
    /// [`Op::Sum`] where the operation does not reduce.
    pub(super) op: Op,
}

impl Run {
    /// The type as the table names it.
    pub(super) fn dtype_name(&self) -> &'static str {
        match self.operation.has_vector() {
            true => self.dtype.name(),
            false => "none",
        }
    }
}

/// Where the result goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Placement {
    /// To a buffer of its own.
    OutOfPlace,
    /// Over the input.
    InPlace,
}

/// What a process of ranks hears first, after the unique ids.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    /// A thread for each.
    pub(super) ranks: Range<usize>,
    /// The parent's process id; a rank whose parent is another has lost it.
    pub(super) parent: u32,
    pub(super) job: Job,
}

/// What a rank says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Report {
    /// Rank 0: all ranks are there.
    Ready { transport: String },
    /// Rank 0: a size has been measured.
    Row(Box<Row>),
    /// Any rank: all is measured; so many elements were wrong on this rank.
    Done { wrong: u64, footprint: Footprint },
    /// Any rank: it cannot go on.
    Failed { why: String },
}

/// One line of the table.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) operation: String,
    /// The whole vector.
    pub(super) bytes: u64,
    /// Elements of the vector, or of a rank's block of it: what the call is told; of blocks that are given the mean.
    pub(super) count: u64,
    #[serde(rename = "type")]
    pub(super) dtype: String,
    #[serde(rename = "redop")]
    pub(super) op: Option<String>,
    pub(super) root: Option<u32>,
    /// How unequal the blocks are, where they are given.
    pub(super) skew: Option<String>,
    /// Nothing where the operation has no algorithms.
    pub(super) algorithm: Option<String>,
    /// What the planner predicts, in microseconds, where it was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) predicted_us: Option<f64>,
    pub(super) out_of_place: Option<Measured>,
    pub(super) in_place: Option<Measured>,
}

impl Row {
    /// How many times as long as it took the planner predicts, where it was asked.
    pub(super) fn predicted_factor(&self) -> Option<f64> {
        let measured = self.out_of_place.as_ref().or(self.in_place.as_ref())?;
        let median_us = measured.stats.median_us;
        Some(self.predicted_us? / median_us).filter(|_| median_us > 0.0)
    }

    pub(super) fn placement(&self, placement: Placement) -> Option<&Measured> {
        match placement {
            Placement::OutOfPlace => self.out_of_place.as_ref(),
            Placement::InPlace => self.in_place.as_ref(),
        }
    }
}

/// One placement of a row.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Measured {
    /// Of operations that are begun and waited for at once, where [`Measured::overlap`] is there.
    #[serde(flatten)]
    pub(super) stats: Stats,
    #[serde(rename = "algbw_GBps")]
    pub(super) algorithm_bandwidth: f64,
    #[serde(rename = "busbw_GBps")]
    pub(super) bus_bandwidth: f64,
    /// Wrong elements on all ranks; `None` where results were not checked.
    pub(super) wrong: Option<u64>,
    /// Where it was asked for.
    pub(super) overlap: Option<Overlap>,
}
