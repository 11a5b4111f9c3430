//! `CCL_TUNE=probe`: rank 0 measures shared memory for a moment before it joins, and tells the others with the table of ranks.
//!
//! Two threads are the ranks of communicators of their own, which copy messages as processes do. Their calls, by the algorithms
//! that are told apart best, give what a call, a round, a message, a byte and its reduction cost.

use super::{Communicator, Config, together};
use crate::{
    bootstrap::UniqueId,
    plan::{
        algo::ALGORITHMS,
        calibration::{Calibration, Constants},
        cost::Load,
        fit::{Sample, fit},
    },
    topo::share::{Allowance, share},
    types::{Collective, DType, Error, Op, Result},
};
use std::time::{Duration, Instant};

/// The constants of the model, as far as two threads of this process tell them within about `most`.
///
/// # Errors
/// Why the threads could not be joined, or a call failed.
pub(super) fn shared_memory(most: Duration) -> Result<Calibration> {
    let here = Allowance::here();
    let cores = share(&[&here; RANKS]).cores;
    let mut samples = Vec::new();
    let each = most / NAMES.len() as u32;
    for name in NAMES {
        for (count, nanos) in times(name, each)? {
            let load = Load::new(Collective::AllReduce, RANKS, count, DType::Float32);
            let algorithm = ALGORITHMS.iter().find(|one| one.name == name);
            let algorithm = algorithm.ok_or_else(|| Error::internal(format!("no algorithm is {name}")))?;
            samples.push(Sample {
                load,
                counts: (algorithm.counts)(&load),
                cores,
                nanos,
            });
        }
    }
    let which = match cores >= RANKS {
        true => Constants::ALONE,
        false => Constants::CROWDED,
    };
    Ok(Calibration {
        shm: fit(&samples, "shm", which).one_way_as_both(),
        ..Calibration::DEFAULT
    })
}

/// How long all-reduces of these lengths take by an algorithm, in nanoseconds: the least of the batches' means.
fn times(algorithm: &str, most: Duration) -> Result<Vec<(usize, f64)>> {
    let config = Config {
        name: Some("probe".to_owned()),
        timeout: Some(DEADLINE),
        transport: Some("shm".to_owned()),
        algorithm: Some(algorithm.to_owned()),
        encryption: Some("off".to_owned()),
        threads: Some(1),
        is_probe: true,
        ..Config::default()
    };
    let id = UniqueId::local()?;
    let run = |rank: usize| {
        let (id, config) = (&id, &config);
        move || {
            let comm = Communicator::init(RANKS, id, rank, config)?;
            let each = most / COUNTS.len() as u32;
            COUNTS
                .into_iter()
                .map(|count| Ok((count, batches(&comm, count, each)?)))
                .collect::<Result<Vec<_>>>()
        }
    };
    let made = together(std::slice::from_ref(&id), (0..RANKS).map(run))?;
    made.into_iter()
        .next()
        .ok_or_else(|| Error::internal("nobody has measured"))
}

/// The least mean of batches of calls. Rank 0 says after each whether there is time for another.
fn batches(comm: &Communicator, count: usize, most: Duration) -> Result<f64> {
    let began = Instant::now();
    let mut data = vec![0.0_f32; count];
    let mut least = f64::INFINITY;
    for batch in 0.. {
        let from = Instant::now();
        for _ in 0..BATCH {
            comm.all_reduce_in_place(&mut data, Op::Sum)?;
        }
        if batch > 0 {
            least = least.min(from.elapsed().as_nanos() as f64 / f64::from(BATCH));
        }
        let mut goes_on = [u8::from(batch == 0 || began.elapsed() < most)];
        comm.broadcast_in_place(&mut goes_on, 0)?;
        if goes_on == [0] {
            break;
        }
    }
    Ok(least.max(1.0))
}

const RANKS: usize = 2;
/// One round and few messages against two and many; and one that reads what the other has written.
const NAMES: [&str; 3] = ["doubling", "direct", "ring"];
/// Elements of four bytes: nothing but latency, and bytes that stay in the caches.
const COUNTS: [usize; 3] = [2, 4096, 65_536];
/// Calls between two looks at the clock.
const BATCH: u32 = 10;
/// For what goes wrong.
const DEADLINE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_enough_for_constants_that_can_be() {
        let calibration = shared_memory(Duration::from_millis(5)).unwrap();
        let tuning = crate::plan::calibration::Tuning {
            calibration,
            ..Default::default()
        };
        assert_eq!(tuning.check(), Ok(()));
        assert_ne!(calibration.shm, Calibration::DEFAULT.shm);
        assert_eq!(calibration.tcp, Calibration::DEFAULT.tcp);
    }
}
