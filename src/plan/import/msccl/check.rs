//! What can be seen of an algorithm without running it: that each step makes sense, and each connection has two ends.

use super::flaw::{At, Flaw, Flaws, Kind, Name};
use super::wires::Words;
use super::{Block, Program, Step, Wait};
use crate::plan::schedule::Buffer;
use crate::plan::verify::{self, Verb};
use std::collections::HashMap;

/// Adds all that is wrong with it.
pub(super) fn check(program: &Program, flaws: &mut Flaws) {
    // Who uses the ends of connections: whether it sends, the rank, the peer and the channel.
    let mut ends: HashMap<(bool, usize, usize, u32), usize> = HashMap::new();
    for (rank, gpu) in program.gpus.iter().enumerate() {
        let words: Vec<_> = gpu.blocks.iter().map(Words::new).collect();
        for (number, block) in gpu.blocks.iter().enumerate() {
            let at = At {
                rank,
                block: Some(number),
                step: None,
            };
            let mut wrong = |kind| {
                let line = block.line;
                flaws.push(Flaw { line, at, kind });
            };
            for (sends, peer) in [(true, block.send), (false, block.recv)] {
                let Some(peer) = peer else { continue };
                let verb = if sends { Verb::SendsTo } else { Verb::ReceivesFrom };
                let channel = block.channel;
                let other = ends.insert((sends, rank, peer, channel), number);
                if peer >= program.ranks() {
                    let ranks = program.ranks();
                    wrong(Kind::NoPeer { peer, ranks });
                } else if peer == rank {
                    wrong(verify::Kind::Itself { verb }.into());
                } else if let Some(other) = other {
                    wrong(Kind::SharedConnection {
                        what: verb,
                        peer,
                        channel,
                        other,
                    });
                }
            }
            for step in &block.steps {
                let at = At {
                    step: Some(step.number),
                    ..at
                };
                let kinds = of_peers(block, step)
                    .chain(of_places(program, rank, step))
                    .map(|kind| (step.line, kind));
                let waits = step.waits.iter().filter_map(|wait| {
                    let kind = never_signalled(&words, wait)?;
                    Some((wait.line, kind))
                });
                for (line, kind) in kinds.chain(waits) {
                    flaws.push(Flaw { line, at, kind });
                }
            }
        }
    }
}

/// Who sends has whom to send to.
fn of_peers(block: &Block, step: &Step) -> impl Iterator<Item = Kind> {
    let sends = step.action.sends() && block.send.is_none();
    let receives = step.action.receives() && block.recv.is_none();
    let sends = sends.then_some(Kind::SendsToNobody);
    sends
        .into_iter()
        .chain(receives.then_some(Kind::ReceivesFromNobody))
}

/// Steps stay within buffers, and read nothing that they overwrite at another place.
fn of_places(program: &Program, rank: usize, step: &Step) -> impl Iterator<Item = Kind> {
    let outside = |is_used: bool, verb, place: super::Place| {
        let chunks = program.extent(rank, place.buffer).len();
        let end = place.first + step.count;
        (is_used && step.count > 0 && end > chunks).then(|| Kind::Outside {
            verb,
            buffer: Name(place.buffer),
            first: place.first,
            last: end - 1,
            chunks,
        })
    };
    let reads = outside(step.action.reads(), "reads", step.source);
    let stores = outside(step.action.stores(), "stores", step.store);
    let is_inside = reads.is_none() && stores.is_none();
    let both = is_inside && step.action.reads() && step.action.stores();
    let overlaps = both && (program.overlaps(rank, step, true) || program.overlaps(rank, step, false));
    let input = step.action.stores() && program.out_of_place && step.store.buffer == Buffer::Input;
    let overlap = overlaps.then_some(verify::Kind::OverlapsItself.into());
    let input = input.then_some(verify::Kind::StoresInput.into());
    [reads, stores, overlap, input].into_iter().flatten()
}

/// Why a wait would last for ever, whatever else is done.
fn never_signalled(words: &[Words], wait: &Wait) -> Option<Kind> {
    let Wait { block, step, .. } = *wait;
    match words.get(block) {
        None => Some(Kind::NoBlock { block }),
        Some(words) => words
            .of(step)
            .is_none()
            .then_some(Kind::NeverSignalled { block, step }),
    }
}

impl Program {
    /// Whether a step reads chunks where it stores others of its.
    fn overlaps(&self, rank: usize, step: &Step, in_place: bool) -> bool {
        if !(if in_place {
            self.in_place
        } else {
            self.out_of_place
        }) {
            return false;
        }
        let [source, store] =
            [step.source, step.store].map(|place| self.cell(rank, place.buffer, place.first, in_place));
        source != store && source.abs_diff(store) < step.count
    }
}
