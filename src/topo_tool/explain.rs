//! `ccl-topo explain`: why a collective would be done so on a machine, what limits it, and where another way is faster.

use super::plan::{Plan, of_candidate};
use super::{plain, plain_json};
use crate::plan::simulate::choice::{Choice, Planner, Reasons};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::process::ExitCode;

/// A call on a machine.
#[derive(Debug, clap::Args)]
pub(super) struct Explain {
    #[command(flatten)]
    pub(super) asked: Plan,
}

/// From how many bytes on an algorithm is chosen.
struct Flip {
    bytes: u64,
    algorithm: &'static str,
    channels: usize,
}

impl Explain {
    pub(super) fn run(&self) -> Result<(String, ExitCode), String> {
        let site = self.asked.site()?;
        let planner = self.asked.planner(&site)?;
        let choice = self.asked.choose(&planner)?;
        let reasons = planner.reasons(&choice.candidates[0], self.asked.bytes as f64);
        let reasons = reasons.map_err(|error| error.to_string())?;
        let flips = flips(&planner);
        let text = match self.asked.json {
            true => {
                let mut value = self.asked.as_json(&site, &choice);
                explained(&mut value, &choice, &reasons, &flips);
                plain_json(format!("{value:#}\n"))
            }
            false => plain(&(self.asked.as_text(&site, &choice) + &told(&choice, &reasons, &flips))),
        };
        Ok((text, ExitCode::SUCCESS))
    }
}

/// What is chosen from 1 KiB to 4 GiB, looked at where bytes are four times as many.
fn flips(planner: &Planner<'_>) -> Vec<Flip> {
    let mut flips: Vec<Flip> = Vec::new();
    for bytes in (10..=32).step_by(2).map(|power| 1_u64 << power) {
        let Ok(choice) = planner.choose(bytes as f64) else {
            continue;
        };
        let best = &choice.candidates[0];
        let same = |flip: &Flip| flip.algorithm == best.algorithm && flip.channels == best.channels;
        if !flips.last().is_some_and(same) {
            flips.push(Flip {
                bytes,
                algorithm: best.algorithm,
                channels: best.channels,
            });
        }
    }
    flips
}

fn told(choice: &Choice, reasons: &Reasons, flips: &[Flip]) -> String {
    let causes = &reasons.causes;
    let mut text = format!(
        "\nlatency {:.2} us, bandwidth {:.2} us, reduction {:.2} us, contention {:.2} us\n",
        causes.latency * 1e6,
        causes.bandwidth * 1e6,
        causes.reduction * 1e6,
        causes.contention * 1e6,
    );
    for (at, busy) in reasons.busiest.iter().enumerate() {
        let _ = writeln!(
            text,
            "{:<11}{:>5.1}%  {} ({:.1} GB/s, {} alike), from {}",
            if at == 0 { "bottleneck" } else { "" },
            busy.utilisation * 100.0,
            busy.name,
            busy.capacity / 1e9,
            busy.alike,
            busy.place,
        );
    }
    text.push_str("\ncandidates:\n");
    let best = choice.candidates[0].spent.time;
    for candidate in &choice.candidates {
        // What nobody sends takes no time.
        let slower = match best > 0.0 && best.is_finite() {
            true => candidate.spent.time / best,
            false => 1.0,
        };
        let _ = writeln!(
            text,
            "  {:<13} {:>4} channels  tile {:>10.0}  {:>12.2} us  {:>8.2} GB/s  {slower:.2} times the best",
            candidate.algorithm,
            candidate.channels,
            candidate.tile,
            candidate.spent.time * 1e6,
            candidate.bus_bandwidth / 1e9,
        );
    }
    for rejected in &choice.rejected {
        let _ = writeln!(
            text,
            "  {:<13} {:>4} channels  left out: {}",
            rejected.algorithm, rejected.channels, rejected.why
        );
    }
    text.push_str("\nchosen by size:\n");
    for flip in flips {
        let _ = writeln!(
            text,
            "  from {:>10} bytes  {} ({} channels)",
            flip.bytes, flip.algorithm, flip.channels
        );
    }
    text
}

fn explained(value: &mut Value, choice: &Choice, reasons: &Reasons, flips: &[Flip]) {
    let causes = &reasons.causes;
    value["latency_us"] = (causes.latency * 1e6).into();
    value["bandwidth_us"] = (causes.bandwidth * 1e6).into();
    value["reduction_us"] = (causes.reduction * 1e6).into();
    value["contention_us"] = (causes.contention * 1e6).into();
    let busy = reasons.busiest.iter().map(|busy| {
        json!({
            "edge": busy.name,
            "declared": busy.place,
            "alike": busy.alike,
            "bytes": busy.bytes,
            "GBps": busy.capacity / 1e9,
            "utilisation": busy.utilisation,
        })
    });
    value["busiest"] = busy.collect();
    value["candidates"] = choice.candidates.iter().map(of_candidate).collect();
    let rejected = choice.rejected.iter().map(
        |rejected| json!({ "algorithm": rejected.algorithm, "channels": rejected.channels, "why": rejected.why }),
    );
    value["rejected"] = rejected.collect();
    let flips = flips.iter().map(
        |flip| json!({ "from_bytes": flip.bytes, "algorithm": flip.algorithm, "channels": flip.channels }),
    );
    value["flips"] = flips.collect();
}
