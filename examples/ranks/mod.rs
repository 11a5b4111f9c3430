//! What the examples share: ranks, as threads of a program that is started by itself, or as a launcher's processes.

use ccl::{Communicator, Config, Error, Result};
use std::{env, panic::resume_unwind, thread};

/// Runs `work` as each of `ranks` ranks, or as the one that mpirun, torchrun or srun started this process as.
pub(crate) fn run(ranks: usize, work: impl Fn(&Communicator) -> Result<()> + Sync) -> Result<()> {
    if launched() {
        return work(&Communicator::init_env(&Config::default())?);
    }
    let work = &work;
    let outcomes: Vec<Result<()>> = thread::scope(|scope| {
        // A rank's communicator ends with its thread, so that the others hear of one that failed.
        let start = |comm: Communicator| scope.spawn(move || work(&comm));
        let threads: Vec<_> = Communicator::init_all(ranks)?.into_iter().map(start).collect();
        let ends = threads.into_iter().map(|thread| thread.join());
        let ends = ends.map(|end| end.unwrap_or_else(|panic| resume_unwind(panic)));
        Ok::<_, Error>(ends.collect())
    })?;
    outcomes.into_iter().collect()
}

/// Whether a launcher started this process as one of its ranks. Slurm's shells are steps, too, of numbers that no other step has.
fn launched() -> bool {
    let has = |name| env::var_os(name).is_some();
    let step = env::var("SLURM_STEP_ID")
        .ok()
        .and_then(|step| step.parse::<u32>().ok());
    ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"].into_iter().any(has)
        || has("SLURM_STEP_NUM_TASKS") && step.is_some_and(|step| step < 0xffff_fff0)
        || has("JOB_COMPLETION_INDEX") && has("WORLD_SIZE")
}

/// `count` numbers from -1 to 1 for each seed: they look random, and are the same on all ranks.
pub(crate) fn numbers(seed: usize, count: usize) -> Vec<f32> {
    let number = |i: usize| {
        let mut bits = (seed * 1_000_003 + i) as u32;
        bits = (bits ^ bits >> 16).wrapping_mul(0x7feb_352d);
        bits = (bits ^ bits >> 15).wrapping_mul(0x846c_a68b);
        (bits >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(number).collect()
}

/// How far two vectors are apart: the sum of the squares.
#[allow(dead_code)] // not every example compares
pub(crate) fn squared_error(one: &[f32], other: &[f32]) -> f32 {
    one.iter().zip(other).map(|(a, b)| (a - b) * (a - b)).sum()
}
