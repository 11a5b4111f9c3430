//! What a rank takes beside the calls that are measured: time to join, and memory.

use crate::topo::host;
use serde::{Deserialize, Serialize};
use std::{path::Path, time::Duration};

/// Of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Footprint {
    /// From the beginning of init until it could be used: the communicator that is measured.
    pub(super) init_us: u64,
    /// Pages of its process that are in memory, at the end of all calls; and its share of those that several have. Buffers
    /// and the communicator over which ranks agree are in it. Of ranks that are threads each has an equal part. 0 where the
    /// kernel does not tell.
    pub(super) resident_bytes: u64,
    pub(super) share_bytes: u64,
}

impl Footprint {
    /// As it is now, after an init that took so long, of one of so many ranks of this process: its part of what they have together.
    pub(super) fn now(init: Duration, ranks: usize) -> Footprint {
        let process = host::resident(Path::new("/")).unwrap_or_default();
        let [resident_bytes, share_bytes] = process.map(|bytes| bytes / ranks as u64);
        Footprint {
            init_us: init.as_micros() as u64,
            resident_bytes,
            share_bytes,
        }
    }

    pub(super) fn numbers(self) -> [u64; 3] {
        [self.init_us, self.resident_bytes, self.share_bytes]
    }

    pub(super) fn of(numbers: [u64; 3]) -> Footprint {
        let [init_us, resident_bytes, share_bytes] = numbers;
        Footprint {
            init_us,
            resident_bytes,
            share_bytes,
        }
    }
}

/// Of all ranks: each number for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Footprints {
    pub(super) mean: Footprint,
    pub(super) most: Footprint,
}

impl Footprints {
    /// `None` of no ranks.
    pub(super) fn of(all: &[Footprint]) -> Option<Footprints> {
        let ranks = u64::try_from(all.len()).ok().filter(|&ranks| ranks > 0)?;
        let number = |i: usize| all.iter().map(move |one| one.numbers()[i]);
        let mean = [0, 1, 2].map(|i| number(i).sum::<u64>() / ranks);
        let most = [0, 1, 2].map(|i| number(i).max().unwrap_or(0));
        Some(Footprints {
            mean: Footprint::of(mean),
            most: Footprint::of(most),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_counts_for_itself() {
        let all = [[1, 20, 3], [3, 10, 4]].map(Footprint::of);
        let of_all = Footprints::of(&all).unwrap();
        assert_eq!(of_all.mean.numbers(), [2, 15, 3]);
        assert_eq!(of_all.most.numbers(), [3, 20, 4]);
        assert_eq!(Footprints::of(&[]), None);
    }

    #[test]
    fn a_process_has_memory() {
        let now = Footprint::now(Duration::from_millis(2), 1);
        assert_eq!(now.init_us, 2000);
        assert!(
            now.resident_bytes >= now.share_bytes && now.share_bytes > 0,
            "{now:?}"
        );
    }
}
