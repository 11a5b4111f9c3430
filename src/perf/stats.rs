//! Statistics over the samples of one measurement, and the bandwidths that follow from them.

use super::operation::Operation;
use crate::plan::definition;
use serde::{Deserialize, Serialize};

/// Times of one call in microseconds, over samples that are batches of calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Stats {
    /// Calls in each sample; a sample's value is its time divided by this.
    pub(super) batch: u64,
    pub(super) samples: usize,
    pub(super) min_us: f64,
    pub(super) median_us: f64,
    pub(super) mean_us: f64,
    pub(super) p99_us: f64,
    pub(super) max_us: f64,
}

impl Stats {
    /// Of samples in nanoseconds, each of `batch` calls. There is at least one; they end up sorted.
    pub(super) fn of(samples: &mut [u64], batch: u64) -> Stats {
        samples.sort_unstable();
        let count = samples.len();
        let us = |nanos: u64| nanos as f64 / batch as f64 / 1e3;
        let (low, high) = (us(samples[(count - 1) / 2]), us(samples[count / 2]));
        let sum: u128 = samples.iter().map(|&sample| u128::from(sample)).sum();
        Stats {
            batch,
            samples: count,
            min_us: us(samples[0]),
            median_us: (low + high) / 2.0,
            mean_us: sum as f64 / count as f64 / batch as f64 / 1e3,
            // The smallest sample that at least 99 % of all are not above.
            p99_us: us(samples[(count * 99).div_ceil(100) - 1]),
            max_us: us(samples[count - 1]),
        }
    }

    /// Bytes of the vector over the median time, in GB/s (1e9).
    pub(super) fn algorithm_bandwidth(&self, bytes: u64) -> f64 {
        if bytes == 0 || self.median_us <= 0.0 {
            return 0.0;
        }
        bytes as f64 / (self.median_us * 1e3)
    }
}

/// What turns algorithm bandwidth into bus bandwidth: the traffic per rank that `operation` cannot do without, in
/// vectors. Bus bandwidth is comparable with what the memory or the wire can carry, whatever the number of ranks.
///
/// Source: nccl-tests, `doc/PERFORMANCE.md`.
pub(super) fn bus_factor(operation: Operation, ranks: usize) -> f64 {
    match operation {
        Operation::Collective(collective) => definition::bus_factor(collective, ranks),
        Operation::SendRecv => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Collective;

    #[test]
    fn odd_and_even_numbers_of_samples() {
        let stats = Stats::of(&mut [3000, 1000, 9000], 1);
        assert_eq!((stats.min_us, stats.median_us, stats.max_us), (1.0, 3.0, 9.0));
        assert_eq!((stats.p99_us, stats.samples), (9.0, 3));
        let stats = Stats::of(&mut [8000, 2000, 4000, 6000], 2);
        assert_eq!((stats.min_us, stats.median_us, stats.mean_us), (1.0, 2.5, 2.5));
        assert_eq!(Stats::of(&mut [500], 5).median_us, 0.1);
    }

    #[test]
    fn p99_leaves_one_in_a_hundred_out() {
        let mut samples: Vec<u64> = (1..=200).rev().map(|n| n * 1000).collect();
        assert_eq!(Stats::of(&mut samples, 1).p99_us, 198.0);
        assert_eq!(Stats::of(&mut samples[..100], 1).p99_us, 99.0);
    }

    #[test]
    fn bandwidths_are_those_of_nccl_tests() {
        let stats = Stats::of(&mut [1_000_000], 1);
        assert_eq!(stats.algorithm_bandwidth(5_000_000), 5.0);
        assert_eq!(stats.algorithm_bandwidth(0), 0.0);
        let factors = |operation| [1, 2, 4, 8].map(|ranks| bus_factor(operation, ranks));
        let all_reduce = Operation::Collective(Collective::AllReduce);
        assert_eq!(factors(all_reduce), [0.0, 1.0, 1.5, 1.75]);
        let broadcast = Operation::Collective(Collective::Broadcast { root: 0 });
        assert_eq!([broadcast, Operation::SendRecv].map(factors), [[1.0; 4]; 2]);
    }
}
