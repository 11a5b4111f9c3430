//! What no schedule of a collective can do with less of, whatever the algorithm.
//!
//! Rounds: a rank that sends one message and receives one in a round can at most double the number of ranks that have
//! something, or of those whose contributions a rank has; and every collective brings something from one rank to all, from all to
//! one, or both.
//!
//! Bytes: each part of the vector has to be sent so often, by all ranks together; the busiest does at least its share. To reduce an
//! element takes a message of each rank but one, and to spread it as many, so that an all-reduce sends it 2(n − 1) times. Source: P.
//! Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.

use crate::types::Collective;

/// The least that some ranks need. Data is counted in n-th parts of the vector, n being the number of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    ranks: u64,
    /// Rounds in each of which a rank sends at most one message and receives at most one.
    pub(crate) rounds: u64,
    /// What the rank that sends most sends.
    pub(crate) sent: u64,
    /// What the rank that receives most receives.
    pub(crate) received: u64,
    /// What the rank that does most sends and receives.
    pub(crate) passed: u64,
}

impl Bounds {
    pub(crate) fn of(collective: Collective, ranks: usize) -> Bounds {
        let (ranks, others) = (ranks as u64, (ranks as u64).saturating_sub(1));
        let (sent, received, passed) = match collective {
            _ if others == 0 => (0, 0, 0),
            Collective::AllReduce | Collective::Barrier => (2 * others, 2 * others, 4 * others),
            Collective::AllGather
            | Collective::AllGatherV
            | Collective::ReduceScatter
            | Collective::ReduceScatterV
            | Collective::AlltoAll
            | Collective::AlltoAllV => (others, others, 2 * others),
            // Some rank sends all of the vector, and some rank receives it.
            Collective::Broadcast { .. } | Collective::Reduce { .. } => (ranks, ranks, 2 * others),
            Collective::Gather { .. } | Collective::GatherV { .. } => (1, others, others),
            Collective::Scatter { .. } | Collective::ScatterV { .. } => (others, 1, others),
        };
        Bounds {
            ranks,
            rounds: u64::from(ranks.next_power_of_two().ilog2()),
            sent,
            received,
            passed,
        }
    }

    /// How many times the bound `rounds` are.
    pub(crate) fn times_rounds(&self, rounds: f64) -> f64 {
        times(rounds, self.rounds as f64)
    }

    /// How many times the bound it is to send and receive `passed` of a vector of `vector`, in the same unit.
    pub(crate) fn times_passed(&self, passed: f64, vector: f64) -> f64 {
        times(passed, self.passed as f64 * vector / self.ranks as f64)
    }
}

/// Nothing is once nothing.
fn times(found: f64, least: f64) -> f64 {
    match least > 0.0 {
        true => found / least,
        false => 1.0,
    }
}
