//! How much time an operation that goes on by itself leaves to its caller.
//!
//! Source: the non-blocking collectives of the OSU micro-benchmarks, which begin an operation, compute for as long as it takes
//! alone, and wait for it.

use super::{
    layout::Layout,
    measure::Team,
    operation::Operation,
    pattern::Sample,
    rank::{Buffers, Session, Size, sides},
    stats::Stats,
};
use crate::types::{Collective, Result};
use serde::{Deserialize, Serialize};
use std::{hint::black_box, time::Instant};

/// Times in microseconds, each the median over samples as the slowest rank had them, and shares in per cent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Overlap {
    /// Of beginning, computing and waiting.
    pub(super) total_us: f64,
    /// Of the computation, with no operation under way.
    pub(super) compute_us: f64,
    /// Of the computation beside the operation, which takes some of its core.
    pub(super) meanwhile_us: f64,
    /// The share of the operation's own time that its caller gained, whatever the rest went into.
    pub(super) left_percent: f64,
    /// The same as OSU's benchmarks count it: what the computation lost to the operation is taken for computation.
    pub(super) osu_percent: f64,
}

impl Overlap {
    /// Of an operation that takes `pure_us` when nothing is done beside it.
    fn of(pure_us: f64, total_us: f64, compute_us: f64, meanwhile_us: f64) -> Overlap {
        let share = |computing: f64| match pure_us > 0.0 {
            true => 100.0 * (1.0 - (total_us - computing) / pure_us).max(0.0),
            false => 0.0,
        };
        Overlap {
            total_us,
            compute_us,
            meanwhile_us,
            left_percent: share(compute_us),
            osu_percent: share(meanwhile_us),
        }
    }

    /// Measures it with as many calls as `pure`, the statistics of the operation alone, were made of. `call` begins the
    /// operation, does what it is given, and waits.
    pub(super) fn measure(
        team: &Team,
        pure: &Stats,
        mut call: impl FnMut(&mut dyn FnMut()) -> Result<()>,
    ) -> Result<Overlap> {
        let rounds = rounds_in(pure.median_us * 1e3);
        let mut alone = vec![0; pure.samples];
        for sample in &mut alone {
            let start = Instant::now();
            (0..pure.batch).for_each(|_| compute(rounds));
            *sample = nanos_since(start);
        }
        team.max(&mut alone)?;
        let (mut total, mut meanwhile) = (vec![0; pure.samples], vec![0; pure.samples]);
        for (total, meanwhile) in total.iter_mut().zip(&mut meanwhile) {
            let start = Instant::now();
            for _ in 0..pure.batch {
                call(&mut || {
                    let start = Instant::now();
                    compute(rounds);
                    *meanwhile += nanos_since(start);
                })?;
            }
            *total = nanos_since(start);
        }
        team.max(&mut total)?;
        team.max(&mut meanwhile)?;
        let [total, alone, meanwhile] =
            [total, alone, meanwhile].map(|mut samples| Stats::of(&mut samples, pure.batch).median_us);
        Ok(Overlap::of(pure.median_us, total, alone, meanwhile))
    }
}

impl Session<'_> {
    /// The operation of [`Session::call`], which goes on by itself while `meanwhile` runs.
    pub(super) fn call_beside<T: Sample>(
        &self,
        size: Size,
        layout: &Layout,
        buffers: &mut Buffers<T>,
        meanwhile: impl FnOnce(),
    ) -> Result<()> {
        let Size { run, count, .. } = size;
        let collective = match run.operation {
            Operation::SendRecv => return self.pass_on(layout, buffers, meanwhile),
            Operation::Collective(Collective::Barrier) => {
                let pending = self.comm.begin().barrier()?;
                meanwhile();
                return pending.wait();
            }
            Operation::Collective(collective) => collective,
        };
        let memory = buffers.memory(layout);
        self.comm.scope(|scope| {
            match collective.has_given_blocks() {
                true => {
                    let sides = sides(layout, self.job.ranks);
                    scope.vector(collective, sides, memory, run.dtype, run.op.into())?;
                }
                false => scope.collective(collective, memory.map(Some), (count, run.dtype, run.op.into()))?,
            }
            meanwhile();
            Ok(())
        })
    }
}

/// Computes for so many rounds, each a multiplication that needs the one before; touches no memory.
pub(super) fn compute(rounds: u64) {
    let mut x = rounds;
    for _ in 0..rounds {
        x = x
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
    }
    black_box(x);
}

/// How many rounds of [`compute`] take `nanos` where nothing disturbs them.
fn rounds_in(nanos: f64) -> u64 {
    let fastest = (0..CALIBRATIONS).map(|_| {
        let start = Instant::now();
        compute(black_box(CALIBRATION_ROUNDS));
        nanos_since(start)
    });
    let fastest = fastest.min().unwrap_or(0).max(1);
    (nanos * CALIBRATION_ROUNDS as f64 / fastest as f64) as u64
}

fn nanos_since(start: Instant) -> u64 {
    start.elapsed().as_nanos() as u64
}

/// Some hundred microseconds, so that reading the clock does not count; several, because one may be interrupted.
const CALIBRATION_ROUNDS: u64 = 100_000;
const CALIBRATIONS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_osu() {
        let shares = |pure, total, compute, meanwhile| {
            let overlap = Overlap::of(pure, total, compute, meanwhile);
            (overlap.left_percent, overlap.osu_percent)
        };
        // All of it went on beside; none did; a quarter did.
        assert_eq!(shares(100.0, 100.0, 100.0, 100.0), (100.0, 100.0));
        assert_eq!(shares(100.0, 200.0, 100.0, 100.0), (0.0, 0.0));
        assert_eq!(shares(100.0, 175.0, 100.0, 100.0), (25.0, 25.0));
        // The caller had the time to wait for its core: that is no computation.
        assert_eq!(shares(100.0, 200.0, 100.0, 200.0), (0.0, 100.0));
        // Worse than one after the other is not less than nothing; and an operation of no time leaves none.
        assert_eq!(shares(100.0, 350.0, 100.0, 120.0), (0.0, 0.0));
        assert_eq!(shares(0.0, 1.0, 1.0, 1.0), (0.0, 0.0));
    }

    #[test]
    fn more_time_is_more_rounds() {
        assert_eq!(rounds_in(0.0), 0);
        assert!(rounds_in(1e6) > rounds_in(1.0));
    }
}
