//! How one placement of one size is timed, the same way on every rank.

use super::{report::Job, stats::Stats};
use crate::{
    Communicator,
    types::{Op, Result},
};
use std::time::{Duration, Instant};

/// The fewest calls of a sample that does not last [`LONG_SAMPLE`]: of one call alone the slowest rank's time has in it how long the others
/// were ahead, over again in each sample.
const FEWEST_CALLS: u64 = 8;
const LONG_SAMPLE: Duration = Duration::from_millis(1);

/// The most calls that a sample is made of.
const LARGEST_BATCH: u64 = 1 << 14;

/// Calls that take so long did not only wait for a core.
const LONGEST_PROBED: Duration = Duration::from_millis(50);

/// Unless told, as many samples are taken as fit into this, but within the bounds below.
const TIME: Duration = Duration::from_millis(200);
const MOST_SAMPLES: u64 = 1000;

/// From here on, in bytes, calls are so long that a few say enough.
pub(super) const HUGE: u64 = 256 << 20;

/// What the ranks agree on goes over a communicator of its own, never through the algorithm that is measured.
pub(super) struct Team {
    pub(super) control: Communicator,
}

impl Team {
    /// Replaces each value by the largest that any rank has.
    pub(super) fn max(&self, values: &mut [u64]) -> Result<()> {
        self.control.all_reduce_in_place(values, Op::Max)
    }

    /// Waits for all ranks.
    pub(super) fn meet(&self) -> Result<()> {
        self.control.barrier()
    }

    /// The sum over all ranks.
    pub(super) fn sum(&self, value: u64) -> Result<u64> {
        let mut sum = [value];
        self.control.all_reduce_in_place(&mut sum, Op::Sum)?;
        Ok(sum[0])
    }
}

/// What is timed.
pub(super) struct Timed {
    pub(super) bytes: u64,
    /// Calls that are made at once.
    pub(super) at_once: u64,
    /// How long a sample is at least.
    pub(super) shortest: Duration,
}

/// Has `call` make so many calls one after the other, and wait for their end, often enough to say how long one takes. All ranks make the
/// same number of calls.
pub(super) fn time(
    team: &Team,
    job: &Job,
    what: &Timed,
    mut call: impl FnMut(u64) -> Result<()>,
) -> Result<Stats> {
    let huge = what.bytes >= HUGE;
    call(job.warmup.map_or(if huge { 1 } else { 5 }, u64::from))?;
    let (batch, sample_nanos) = find_batch(team, what.shortest, &mut call)?;
    let least = if huge { 3 } else { 5 };
    let fitting =
        (job.time.unwrap_or(TIME).as_nanos() as u64 / sample_nanos.max(1)).clamp(least, MOST_SAMPLES);
    let count = job.iterations.map_or(fitting, u64::from);
    let mut samples = vec![0; count as usize];
    for sample in &mut samples {
        *sample = time_batch(batch, &mut call)?;
    }
    // A call is as slow as the slowest rank had it.
    team.max(&mut samples)?;
    Ok(Stats::of(&mut samples, batch * what.at_once))
}

/// The smallest power of two of calls that makes a sample as long as it should be, and how many nanoseconds that is: the least of a few,
/// as one may have waited for a core.
fn find_batch(
    team: &Team,
    shortest: Duration,
    call: &mut impl FnMut(u64) -> Result<()>,
) -> Result<(u64, u64)> {
    let mut batch = 1;
    loop {
        let mut least = u64::MAX;
        for _ in 0..3 {
            let mut nanos = [time_batch(batch, call)?];
            team.max(&mut nanos)?;
            least = least.min(nanos[0]);
            if !(shortest..LONGEST_PROBED).contains(&Duration::from_nanos(least)) {
                break;
            }
        }
        let lasts = Duration::from_nanos(least);
        if lasts >= shortest && (batch >= FEWEST_CALLS || lasts >= LONG_SAMPLE) || batch >= LARGEST_BATCH {
            return Ok((batch, least));
        }
        batch *= 2;
    }
}

fn time_batch(batch: u64, call: &mut impl FnMut(u64) -> Result<()>) -> Result<u64> {
    let start = Instant::now();
    call(batch)?;
    Ok(start.elapsed().as_nanos() as u64)
}
