//! What was measured of a machine: the constants of the planner's model, and which algorithms were best where the model
//! chooses worse ones.

use super::algo::fitting;
use crate::types::Collective;
use serde::{Deserialize, Serialize};

/// What rank 0 tells all at init, so that they plan alike.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tuning {
    pub(crate) calibration: Calibration,
    pub(crate) choices: Vec<Choice>,
    /// What ranks of its host that share cores most likely take from each other's memory.
    pub(crate) crowds_take: CrowdsTake,
    /// How many times as far as its own memory the farthest NUMA node of its host is, where it has several.
    pub(crate) farthest: Option<f64>,
    /// Whether ranks of its host write answers where what they answer lies: not where cores keep what they have read. Tiles go by it,
    /// too.
    pub(crate) answers: bool,
    /// Whether first calls try the algorithms that lead.
    pub(crate) online: bool,
}

/// Which long messages ranks that share cores take from each other's memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum CrowdsTake {
    #[default]
    Nothing,
    /// Those of a scatter.
    Scattered,
    /// Also those of an all-to-all.
    Exchanged,
}

/// The constants of the model, by what the ranks talk over.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Calibration {
    pub(crate) shm: Constants,
    pub(crate) tcp: Constants,
}

/// Constants of one transport. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Constants {
    /// What every call takes.
    pub(crate) call: f64,
    /// With a core for each rank.
    pub(crate) alone: Prices,
    /// With fewer cores, where a rank that waits has others take their turns, and finds the caches cold.
    pub(crate) crowded: Prices,
    /// Both for calls whose bytes go one way, to a root or from it: nobody waits there for an answer, so that calls overlap.
    pub(crate) alone_one_way: Prices,
    pub(crate) crowded_one_way: Prices,
    /// Bytes of messages in flight that stay in a core's cache, and how many times as much a byte costs beyond.
    pub(crate) cache: f64,
    pub(crate) cold: f64,
    /// How many times as much a byte costs where the vectors of those who share a core exceed that cache.
    pub(crate) far: f64,
}

/// What messages cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Prices {
    /// A round: from the end of a message's writing until its receiver reads it; crowded, a rank's turn on a shared core.
    pub(crate) round: f64,
    /// Sending or receiving a message, whatever its length.
    pub(crate) message: f64,
    /// The same where the lines of all peers of those who share a core do not stay in its cache.
    pub(crate) cold_message: f64,
    /// Sending or receiving a byte.
    pub(crate) byte: f64,
    /// Adding a byte to others.
    pub(crate) reduced: f64,
    /// What a message costs more by the general executor.
    pub(crate) general: f64,
}

/// The algorithm that was measured as the best of an operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Choice {
    /// `shm` or `tcp`.
    pub(crate) transport: String,
    pub(crate) operation: String,
    pub(crate) ranks: u32,
    /// The cores that they had together.
    pub(crate) cores: u32,
    /// Bytes of the vector: from so many on, and fewer than so many.
    pub(crate) bytes: [u64; 2],
    pub(crate) algorithm: String,
}

impl Calibration {
    /// What the library knows without having been measured here.
    ///
    /// Shared memory: measured on 2 cores of an AMD EPYC 9005 with `ccl-perf allreduce --algo X --out-of-place --no-check`,
    /// medians: `call` is a call of 1 rank (0.11 us). `round` and `message` follow from doubling (0.23 us, 1 round, 2 messages) and
    /// direct (0.37 us, 2 and 4) with 2 ranks and 8 bytes; `byte` and `reduced` (0.018) from the same with 256 KiB (12.7 and 10.0
    /// us). `reduced` is less here, because on an Intel Xeon one-shot takes less time than direct up to 52 KiB (4.5 and 5.8 us for
    /// 32) and beyond as much to a few percent. The crowded costs are from 4, 8 and 16 ranks: `round` from doubling with 64 bytes
    /// (3.4, 23 and 112 us; 2, 3 and 4 rounds of 2², 4² and 8² turns), `message` from direct with as much (8.4, 24 and 105 us; 48,
    /// 224 and 960 messages), `byte` from doubling with 32 KiB (10, 52 and 204 us). The cache is a little more than the second
    /// level's; `cold_message` is rough, from one-shot with 8 bytes among 128 ranks (100 ms on cores that were not quiet); `cold`
    /// is from direct and ring with 1 MiB among 16 ranks of another machine (6.1 and 5.1 ms).
    ///
    /// `general` of ranks that share cores, of calls that go one way, is from the double tree, on an AMD EPYC with 2 cores, beside the
    /// best: reduce among 7 and 8 ranks, 128 KiB 50 and 28 us, 61 and 29; broadcast among 6 ranks, 3 KB 12 and 1, 30 KB 20 and 7.
    ///
    /// TCP: rounded from what `ccl-perf tune --transport tcp --ranks 2,3,4,8` fitted on 2 cores of an AMD EPYC 9005, over the loopback
    /// interface, where whoever sends does the receiver's work as well; but `cold`, which was 1.4, and with which k-nomial trees would
    /// be chosen for what 8 ranks reduce (256 KiB 780 us, a chain 184). A byte is as dear with a core for each rank, as there may be a
    /// network then. `call` and `cache` are as above.
    pub(crate) const DEFAULT: Calibration = Calibration {
        shm: Constants {
            crowded_one_way: Prices {
                general: 3000.0,
                ..CROWDED
            },
            ..Constants::of(
                110.0,
                Prices {
                    round: 70.0,
                    message: 25.0,
                    cold_message: 25.0,
                    byte: 0.015,
                    reduced: 0.014,
                    general: 1.0,
                },
                CROWDED,
            )
        },
        tcp: Constants {
            crowded_one_way: Prices {
                round: 100.0,
                message: 3100.0,
                cold_message: 3100.0,
                byte: 0.135,
                reduced: 0.15,
                general: 3000.0,
            },
            cold: 1.8,
            ..Constants::of(
                110.0,
                Prices {
                    round: 2000.0,
                    message: 1700.0,
                    cold_message: 1700.0,
                    byte: 0.16,
                    reduced: 0.0375,
                    general: 1.0,
                },
                Prices {
                    round: 700.0,
                    message: 3500.0,
                    cold_message: 3500.0,
                    byte: 0.16,
                    reduced: 0.15,
                    general: 300.0,
                },
            )
        },
    };

    /// The constants of a transport, `shm` or `tcp`.
    pub(crate) fn of(&mut self, transport: &str) -> &mut Constants {
        match transport {
            "tcp" => &mut self.tcp,
            _ => &mut self.shm,
        }
    }
}

/// Shared memory among ranks that share cores.
const CROWDED: Prices = Prices {
    round: 500.0,
    message: 120.0,
    cold_message: 1000.0,
    byte: 0.03,
    reduced: 0.014,
    general: 1.0,
};

impl Default for Calibration {
    fn default() -> Self {
        Calibration::DEFAULT
    }
}

impl Constants {
    /// Where calls of all kinds cost the same.
    const fn of(call: f64, alone: Prices, crowded: Prices) -> Constants {
        Constants {
            call,
            alone,
            crowded,
            alone_one_way: alone,
            crowded_one_way: crowded,
            cache: 1.25e6,
            cold: 2.5,
            far: 1.0,
        }
    }

    /// All of them, to be changed: those of [`Constants::FITTED`], and behind them others.
    pub(crate) fn each(&mut self) -> [&mut f64; 28] {
        let Constants {
            call,
            alone,
            crowded,
            alone_one_way,
            crowded_one_way,
            cache,
            cold,
            far,
        } = self;
        [
            call,
            &mut alone.round,
            &mut alone.message,
            &mut alone.byte,
            &mut crowded.round,
            &mut crowded.message,
            &mut crowded.byte,
            &mut alone.reduced,
            &mut crowded.reduced,
            cold,
            &mut alone_one_way.round,
            &mut alone_one_way.message,
            &mut alone_one_way.byte,
            &mut alone_one_way.reduced,
            &mut crowded_one_way.round,
            &mut crowded_one_way.message,
            &mut crowded_one_way.byte,
            &mut crowded_one_way.reduced,
            &mut alone.general,
            &mut crowded.general,
            &mut alone_one_way.general,
            &mut crowded_one_way.general,
            far,
            cache,
            &mut alone.cold_message,
            &mut crowded.cold_message,
            &mut alone_one_way.cold_message,
            &mut crowded_one_way.cold_message,
        ]
    }

    /// Those of [`Constants::each`] that measurements of many calls tell.
    #[cfg(feature = "cli")]
    pub(crate) const FITTED: std::ops::Range<usize> = 0..23;

    /// Those of [`Constants::FITTED`] that long calls alone tell; the others short ones do.
    #[cfg(feature = "cli")]
    pub(crate) const OF_LONG: [usize; 10] = [3, 6, 7, 8, 9, 12, 13, 16, 17, 22];

    /// Those that a few calls tell of ranks with a core each, and of ranks with fewer.
    pub(crate) const ALONE: [usize; 5] = [0, 1, 2, 3, 7];
    pub(crate) const CROWDED: [usize; 5] = [0, 4, 5, 6, 8];

    /// The same, where what was measured of calls both ways is all that is known of those one way.
    pub(crate) fn one_way_as_both(self) -> Constants {
        Constants {
            alone_one_way: Prices {
                general: self.alone_one_way.general,
                ..self.alone
            },
            crowded_one_way: Prices {
                general: self.crowded_one_way.general,
                ..self.crowded
            },
            ..self
        }
    }
}

impl Tuning {
    /// The most choices that are taken: what is told at init is bounded.
    pub(crate) const MOST_CHOICES: usize = 4096;

    /// # Errors
    /// What cannot be.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut calibration = self.calibration;
        for constants in [&mut calibration.shm, &mut calibration.tcp] {
            if constants
                .each()
                .iter()
                .any(|&&mut value| !(1e-6..=1e12).contains(&value))
            {
                return Err("it has a constant that is no time".to_owned());
            }
        }
        if self.farthest.is_some_and(|times| !(1.0..=100.0).contains(&times)) {
            return Err("it has a distance that cannot be".to_owned());
        }
        if self.choices.len() > Tuning::MOST_CHOICES {
            return Err(format!("it has more than {} choices", Tuning::MOST_CHOICES));
        }
        for choice in &self.choices {
            let Choice {
                transport,
                operation,
                algorithm,
                ..
            } = choice;
            if !matches!(transport.as_str(), "shm" | "tcp") {
                return Err(format!("it chooses for {transport:?}"));
            }
            let collectives = super::definition::every([0]);
            let known = collectives.into_iter().find(|known| known.name() == operation);
            if !known.is_some_and(|known| fitting(known).any(|one| one.name == algorithm)) {
                return Err(format!("it chooses {algorithm:?} for {operation:?}"));
            }
        }
        Ok(())
    }
}

impl Choice {
    /// Whether it is about calls with so many bytes.
    pub(crate) fn concerns(&self, collective: Collective, ranks: usize, bytes: u64) -> bool {
        let [from, to] = self.bytes;
        self.ranks as usize == ranks && (from..to).contains(&bytes) && self.operation == collective.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn choice(operation: &str, algorithm: &str) -> Choice {
        Choice {
            transport: "shm".into(),
            operation: operation.into(),
            ranks: 4,
            cores: 2,
            bytes: [64, 4096],
            algorithm: algorithm.into(),
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let with = |choices: Vec<Choice>| Tuning {
            choices,
            ..Tuning::default()
        };
        assert_eq!(with(vec![choice("allreduce", "ring")]).check(), Ok(()));
        assert!(with(vec![choice("broadcast", "ring")]).check().is_err());
        assert!(with(vec![choice("allreduce", "rings")]).check().is_err());
        assert!(with(vec![choice("x", "ring"); 5000]).check().is_err());
        let strange = Choice {
            transport: "x".repeat(1000),
            ..choice("allreduce", "ring")
        };
        assert!(with(vec![strange]).check().is_err());
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let mut tuning = Tuning::default();
            tuning.calibration.tcp.crowded.byte = wrong;
            assert!(tuning.check().is_err(), "{wrong}");
            let tuning = Tuning {
                farthest: Some(wrong),
                ..Tuning::default()
            };
            assert!(tuning.check().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_choice_is_about_its_own_sizes() {
        let choice = choice("allreduce", "ring");
        let concerns = |collective, ranks, bytes| choice.concerns(collective, ranks, bytes);
        assert!(concerns(Collective::AllReduce, 4, 64) && concerns(Collective::AllReduce, 4, 4095));
        assert!(!concerns(Collective::AllReduce, 4, 63) && !concerns(Collective::AllReduce, 4, 4096));
        assert!(!concerns(Collective::AllReduce, 5, 64) && !concerns(Collective::AllGather, 4, 64));
    }
}
