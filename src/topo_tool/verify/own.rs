//! The library's own schedules: their proofs, and what they cost beside what cannot be done with less.

use super::amount;
use crate::plan::algo::{self, Algorithm, Request};
use crate::plan::bounds::Bounds;
use crate::plan::schedule::Buffer;
use crate::plan::verify::{self, Flaw, Proof};
use crate::types::Collective;
use std::fmt::Write as _;
use std::process::ExitCode;

/// Schedules to prove.
pub(super) struct Asked {
    pub(super) operation: Collective,
    pub(super) ranks: usize,
    pub(super) algorithm: Option<&'static Algorithm>,
    pub(super) bytes: Option<u64>,
}

/// How proving an algorithm's schedules ended.
enum Verdict {
    Proved(Box<Proof>),
    Flawed(Flaw),
    LeftOut(String),
}

/// Grains of all ranks' memory at most where each rank is run: some hundred MB.
const MOST_GRAINS: usize = 1 << 23;

impl Asked {
    /// Proves them. The status is 1 if there is a flaw.
    ///
    /// # Errors
    /// If all are left out.
    pub(super) fn tell(&self) -> Result<(String, ExitCode), String> {
        let algorithms = self.algorithms()?;
        let verdicts: Vec<_> = algorithms.iter().map(|one| (*one, self.prove(one))).collect();
        let left_out: Vec<_> = verdicts
            .iter()
            .filter_map(|(one, verdict)| match verdict {
                Verdict::LeftOut(why) => Some((one.name, why)),
                Verdict::Proved(_) | Verdict::Flawed(_) => None,
            })
            .collect();
        if let Some((_, why)) = left_out.first().filter(|_| left_out.len() == verdicts.len()) {
            let names: Vec<_> = left_out.iter().map(|(name, _)| *name).collect();
            let are = if names.len() == 1 { "is" } else { "are" };
            return Err(format!("{} {are} not proved: {why}", names.join(", ")));
        }
        let code = match is_flawed(&verdicts) {
            true => ExitCode::FAILURE,
            false => ExitCode::SUCCESS,
        };
        Ok((self.text(&verdicts), code))
    }

    /// Those whose schedules are proved.
    ///
    /// # Errors
    /// If the one that is asked for cannot do the collective.
    pub(super) fn algorithms(&self) -> Result<Vec<&'static Algorithm>, String> {
        let fitting = || algo::fitting(self.operation);
        match self.algorithm {
            Some(one) if !(one.fits)(self.operation) => {
                let fitting: Vec<_> = fitting().map(|fits| fits.name).collect();
                let (name, operation) = (one.name, self.operation.name());
                Err(format!(
                    "{name} cannot {operation}: one of {}",
                    fitting.join(", ")
                ))
            }
            Some(one) => Ok(vec![one]),
            None => Ok(fitting().collect()),
        }
    }

    fn prove(&self, algorithm: &Algorithm) -> Verdict {
        let (collective, ranks) = (self.operation, self.ranks);
        let schedule_of = |rank| {
            (algorithm.build)(&Request {
                collective,
                ranks,
                rank,
            })
        };
        match verify::verify_folded(collective, ranks, schedule_of) {
            Ok(Some(proof)) => return Verdict::Proved(Box::new(proof)),
            Ok(None) => {}
            Err(flaw) => return Verdict::Flawed(flaw),
        }
        let first = schedule_of(0);
        let grains = first.total_grains() + first.grains_of(Buffer::Scratch);
        if grains.saturating_mul(ranks) > MOST_GRAINS {
            let why = format!("the ranks' schedules differ, and all of them have over {MOST_GRAINS} grains");
            return Verdict::LeftOut(why);
        }
        match verify::verify(collective, ranks, schedule_of) {
            Ok(proof) => Verdict::Proved(Box::new(proof)),
            Err(flaw) => Verdict::Flawed(flaw),
        }
    }

    fn text(&self, verdicts: &[(&Algorithm, Verdict)]) -> String {
        let bounds = Bounds::of(self.operation, self.ranks);
        let least = bounds.passed as f64 / self.ranks as f64;
        let mut text = format!("{} among {} ranks", self.operation.name(), self.ranks);
        let _ = match self.bytes {
            Some(bytes) => writeln!(text, ", {bytes} bytes"),
            None => writeln!(text),
        };
        let _ = writeln!(
            text,
            "no schedule takes less than {} rounds, nor passes less than {} at the busiest rank\n",
            bounds.rounds,
            amount(least, self.bytes),
        );
        let _ = writeln!(
            text,
            "{:<14}{:>12}{:>12}{:>8}{:>8}{:>8}{:>18}{:>8}  proved with",
            "algorithm", "steps", "messages", "chain", "rounds", "times", "busiest passes", "times",
        );
        for (algorithm, verdict) in verdicts {
            let _ = match verdict {
                Verdict::Proved(proof) => writeln!(text, "{}", self.row(algorithm, proof, &bounds)),
                Verdict::Flawed(flaw) => writeln!(text, "{:<13} FLAW: {flaw}", algorithm.name),
                Verdict::LeftOut(why) => writeln!(text, "{:<13} left out: {why}", algorithm.name),
            };
        }
        if !is_flawed(verdicts) {
            text.push_str(
                "\nproved: in place and out of place, every block ends as the collective says, each message is received, channels do \
                 not race,\nand nobody waits for ever with one message on its way in a lane\n",
            );
        }
        text
    }

    fn row(&self, algorithm: &Algorithm, proof: &Proof, bounds: &Bounds) -> String {
        let certificate = &proof.certificate;
        let passed = certificate.passed as f64 / certificate.vector.max(1) as f64;
        let how = match proof.folded {
            Some(compared) => format!("rank 0 for all, {compared} compared"),
            None => "every rank".to_owned(),
        };
        format!(
            "{:<14}{:>12}{:>12}{:>8}{:>8}{:>8.2}{:>18}{:>8.2}  {how}",
            algorithm.name,
            proof.steps,
            proof.messages,
            certificate.chain,
            certificate.rounds,
            certificate.times_rounds(bounds),
            amount(passed, self.bytes),
            certificate.times_passed(bounds),
        )
    }
}

fn is_flawed(verdicts: &[(&Algorithm, Verdict)]) -> bool {
    verdicts
        .iter()
        .any(|(_, verdict)| matches!(verdict, Verdict::Flawed(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(operation: Collective, ranks: usize) -> Asked {
        Asked {
            operation,
            ranks,
            algorithm: None,
            bytes: None,
        }
    }

    #[test]
    fn all_that_can_are_proved() {
        let (text, code) = asked(Collective::AllReduce, 8).tell().unwrap();
        assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::SUCCESS));
        let row = text.lines().find(|line| line.starts_with("ring ")).unwrap();
        let words: Vec<_> = row.split_whitespace().collect();
        let wanted = ["ring", "112", "14", "14", "4.67", "3.500", "vectors", "1.00"];
        assert!(wanted.iter().all(|word| words.contains(word)), "{text}");
        for algorithm in algo::fitting(Collective::AllReduce) {
            assert!(text.contains(algorithm.name), "{text}");
        }
        assert!(!text.contains("left out") && !text.contains("FLAW"), "{text}");
    }

    #[test]
    fn bytes_are_told_and_what_would_take_too_much_is_left_out() {
        let asked = Asked {
            bytes: Some(1000),
            ..asked(Collective::AllGather, 5_000)
        };
        let (text, _) = asked.tell().unwrap();
        assert!(
            text.contains("at the busiest rank") && text.contains("2000 B"),
            "{text}"
        );
        let alone = Asked {
            algorithm: Some(
                algo::fitting(Collective::AllReduce)
                    .find(|one| one.name == "halving")
                    .unwrap(),
            ),
            ..self::asked(Collective::AllReduce, 5_000)
        };
        let why = alone.tell().unwrap_err();
        assert!(
            why.starts_with("halving is not proved: the ranks' schedules differ"),
            "{why}"
        );
        let why = self::asked(Collective::Gather { root: 0 }, 5_000)
            .tell()
            .unwrap_err();
        assert!(
            why.starts_with("direct, ") && why.contains(" are not proved: the ranks' schedules differ"),
            "{why}"
        );
    }

    #[test]
    fn beside_a_flaw_nothing_is_said_to_be_proved() {
        let asked = asked(Collective::AllReduce, 8);
        let one = asked.algorithms().unwrap()[0];
        let text = asked.text(&[(one, asked.prove(one))]);
        assert!(text.contains("\nproved: "), "{text}");
        let flaw = Flaw {
            rank: 0,
            at: None,
            grain: None,
            kind: verify::Kind::ReadsNoInput,
        };
        let text = asked.text(&[(one, asked.prove(one)), (one, Verdict::Flawed(flaw))]);
        assert!(text.contains(" FLAW: ") && !text.contains("proved: "), "{text}");
    }

    #[test]
    fn an_algorithm_that_cannot_is_told_with_those_that_can() {
        let ring = algo::fitting(Collective::AllReduce).find(|one| one.name == "ring");
        let asked = Asked {
            algorithm: ring,
            ..asked(Collective::Broadcast { root: 0 }, 4)
        };
        let why = asked.tell().unwrap_err();
        assert!(
            why.starts_with("ring cannot broadcast: one of ") && why.contains("chain"),
            "{why}"
        );
    }
}
