//! The constants of the planner's model that fit what was measured.

use super::{
    calibration::{Calibration, Constants},
    cost::{Counts, Load, Machine},
};
use crate::sys::cache;

/// One call that was measured.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) load: Load,
    /// What it costs by the algorithm that it went by.
    pub(crate) counts: Counts,
    /// The cores that its ranks had together.
    pub(crate) cores: usize,
    pub(crate) nanos: f64,
}

impl Sample {
    /// What the model says of it, in nanoseconds. `transport`: `shm` or `tcp`.
    pub(crate) fn predicted(&self, transport: &str, calibration: &Calibration) -> f64 {
        let machine = machine(transport, self.cores, calibration);
        machine.predict(&self.load, &self.counts).total()
    }
}

/// This machine, as the planner reckons with it. `transport`: `shm` or `tcp`.
pub(crate) fn machine(transport: &str, cores: usize, calibration: &Calibration) -> Machine {
    match transport {
        "tcp" => Machine::of_tcp(cores, calibration),
        _ => {
            Machine::of_shared_memory(cores, calibration).with_answers(cache::keeps_what_it_reads().is_none())
        }
    }
}

/// The constants by which the model misses the logarithms of the times by the least in the sum: those of [`Constants::each`] that
/// `which` names are made larger and smaller, one after the other, by less and less, until that gains nothing. The others stay as
/// they are without a measurement.
pub(crate) fn fit(
    samples: &[Sample],
    transport: &str,
    which: impl IntoIterator<Item = usize> + Clone,
) -> Constants {
    let mut calibration = Calibration::DEFAULT;
    let missed = |calibration: &Calibration| -> f64 {
        let of = |sample: &Sample| {
            (sample.predicted(transport, calibration) / sample.nanos)
                .ln()
                .abs()
        };
        samples.iter().map(of).sum()
    };
    let mut least = missed(&calibration);
    for step in [4.0, 2.0, 1.4, 1.2, 1.1, 1.05, 1.02] {
        for _ in 0..MOST_PASSES {
            let before = least;
            for which in which.clone() {
                for factor in [step, 1.0 / step] {
                    let mut other = calibration;
                    let constants = other.of(transport).each();
                    *constants[which] *= factor;
                    if *constants[which] < LEAST_CONSTANT {
                        continue;
                    }
                    let now = missed(&other);
                    if now < least {
                        (calibration, least) = (other, now);
                    }
                }
            }
            if least > before * 0.999 {
                break;
            }
        }
    }
    let constants = calibration.of(transport);
    constants.cold = constants.cold.max(1.0);
    constants.far = constants.far.max(1.0);
    *constants
}

/// So often the constants are gone through with one step.
const MOST_PASSES: usize = 20;
/// Nothing takes less than this.
const LEAST_CONSTANT: f64 = 1e-5;
