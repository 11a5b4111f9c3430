//! Algorithms in MSCCL's XML: their proofs, or what is wrong in which line.

use super::amount;
use crate::plan::bounds::Bounds;
use crate::plan::import::msccl::prove::{Verdict, prove};
use crate::plan::import::msccl::read::{self, Reading};
use crate::topo_tool::{plain, text};
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

/// A file to prove.
pub(super) struct Asked<'a> {
    pub(super) file: &'a Path,
    pub(super) root: u32,
    pub(super) slots: Option<usize>,
    pub(super) bytes: Option<u64>,
}

impl Asked<'_> {
    /// Proves it. The status is 1 if there is a flaw.
    ///
    /// # Errors
    /// If it cannot be read, or has no root where one is asked for.
    pub(super) fn tell(&self) -> Result<(String, ExitCode), String> {
        let (xml, name) = text(self.file, read::BYTES as u64, "algorithm of MSCCL's")?;
        let reading = read::read(&xml, &name, self.root).map_err(|flaw| plain(&flaw.to_string()))?;
        let collective = reading.program.collective;
        if self.root != 0 && collective.root().is_none() {
            return Err(format!("{name}: {} has no root", collective.name()));
        }
        let slots = self.slots.unwrap_or(reading.program.protocol.slots());
        let verdict = prove(&reading, slots);
        let mut text = about(&reading, &name);
        for note in &reading.notes {
            let more = match note.times {
                1 => String::new(),
                times => format!(" (and on {} more lines)", times - 1),
            };
            let _ = writeln!(text, "{name}:{}: note: {}{more}", note.line, note.text);
        }
        let code = match verdict.flaws.is_empty() {
            true => {
                self.tell_proof(&mut text, &name, &reading, &verdict, slots);
                ExitCode::SUCCESS
            }
            false => {
                for flaw in &verdict.flaws.first {
                    let _ = writeln!(text, "{name}:{flaw}");
                }
                let more = verdict.flaws.count - verdict.flaws.first.len();
                if more > 0 {
                    let _ = writeln!(text, "and {more} more");
                }
                text.push_str("NOT proved\n");
                ExitCode::FAILURE
            }
        };
        Ok((plain(&text), code))
    }

    fn tell_proof(&self, text: &mut String, name: &str, reading: &Reading, verdict: &Verdict, slots: usize) {
        let (program, cost) = (&reading.program, verdict.cost);
        let bounds = Bounds::of(program.collective, program.ranks());
        let vectors = |chunks: u64| chunks as f64 / program.chunks as f64;
        let _ = writeln!(
            text,
            "proved: every chunk ends as the collective says, each message is received, thread blocks do not race, and nobody waits \
             for ever\n  with {} of {slots} messages in a connection at once",
            verdict.slots,
        );
        let _ = writeln!(
            text,
            "{} messages, at most {} of them one after the other",
            cost.messages, cost.chain,
        );
        let _ = writeln!(
            text,
            "the busiest rank sends {}, receives {}, and passes {}: {:.2} times what one must",
            amount(vectors(cost.sent), self.bytes),
            amount(vectors(cost.received), self.bytes),
            amount(vectors(cost.passed), self.bytes),
            bounds.times_passed(cost.passed as f64, program.chunks as f64),
        );
        if let Some(cut) = &verdict.cut {
            let _ = writeln!(
                text,
                "only while a message of several chunks has room in a slot, which depends on the length of the vector. Where each \
                 chunk goes alone:\n  {name}:{cut}",
            );
        }
    }
}

/// What a file is.
fn about(reading: &Reading, name: &str) -> String {
    let program = &reading.program;
    let places = match (program.in_place, program.out_of_place) {
        (true, false) => "in place",
        (false, _) => "out of place",
        (true, true) => "in place and out of place",
    };
    let root = match program.collective.root() {
        Some(root) => format!(" with root {root}"),
        None => String::new(),
    };
    let blocks: usize = program.gpus.iter().map(|gpu| gpu.blocks.len()).sum();
    format!(
        "{name}: {:?}, {}{root} among {} ranks, {} chunks, {}, {places}: {blocks} thread blocks, {} steps\n",
        program.name,
        program.collective.name(),
        program.ranks(),
        program.chunks,
        program.protocol.name(),
        program.steps(),
    )
}
