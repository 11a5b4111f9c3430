//! Algorithms with a mistake in them, and texts with some bytes changed.

use super::{Action, Block, Program, Step};
use crate::plan::schedule::Buffer;
use crate::plan::verify::value::mix;

/// A stream of numbers that is the same for the same seed.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0)
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.roll() % n.max(1) as u64) as usize
    }
}

/// A kind of mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mutation {
    DroppedStep,
    DoubledStep,
    SwappedSteps,
    WrongPeer,
    WrongChunk,
    SwappedChunks,
    WrongBuffer,
    WrongCount,
    WrongAction,
    DroppedWait,
    Untold,
}

pub(super) const ALL: [Mutation; 11] = [
    Mutation::DroppedStep,
    Mutation::DoubledStep,
    Mutation::SwappedSteps,
    Mutation::WrongPeer,
    Mutation::WrongChunk,
    Mutation::SwappedChunks,
    Mutation::WrongBuffer,
    Mutation::WrongCount,
    Mutation::WrongAction,
    Mutation::DroppedWait,
    Mutation::Untold,
];

impl Mutation {
    /// The program with a mistake somewhere, if it can have such.
    pub(super) fn of(self, program: &Program, dice: &mut Dice) -> Option<Program> {
        let mut mutant = program.clone();
        let ranks = mutant.ranks();
        let chunks = mutant.chunks;
        let rank = dice.below(ranks);
        let gpu = &mut mutant.gpus[rank];
        let number = dice.below(gpu.blocks.len());
        let block = gpu.blocks.get_mut(number)?;
        self.apply(block, (ranks, chunks), dice)?;
        for (index, step) in block.steps.iter_mut().enumerate() {
            if matches!(self, Mutation::DoubledStep | Mutation::SwappedSteps) {
                step.number = index as u32; // Waits for this block may mean others now.
            }
        }
        (mutant != *program).then_some(mutant)
    }

    fn apply(self, block: &mut Block, (ranks, chunks): (usize, usize), dice: &mut Dice) -> Option<()> {
        let count = block.steps.len();
        let at = dice.below(count);
        let other = dice.below(count);
        if self == Mutation::WrongPeer {
            let peer = [&mut block.send, &mut block.recv][dice.below(2)].as_mut()?;
            *peer = (*peer + 1 + dice.below(ranks - 1)) % ranks;
            return Some(());
        }
        if self == Mutation::SwappedChunks {
            let (a, b) = (block.steps.get(at)?.clone(), block.steps.get(other)?.clone());
            let swap = |step: &mut Step, with: &Step| (step.source, step.store) = (with.source, with.store);
            swap(&mut block.steps[at], &b);
            swap(&mut block.steps[other], &a);
            return Some(());
        }
        let step = block.steps.get_mut(at)?;
        match self {
            Mutation::DroppedStep => drop(block.steps.remove(at)),
            Mutation::DoubledStep => {
                let double = step.clone();
                block.steps.insert(at, double);
            }
            Mutation::SwappedSteps => block.steps.swap(at, other),
            Mutation::WrongChunk | Mutation::WrongBuffer => {
                let place = match step.action.reads() && (!step.action.stores() || dice.below(2) == 0) {
                    true => &mut step.source,
                    false => &mut step.store,
                };
                match self {
                    Mutation::WrongChunk => {
                        place.first = (place.first + 1 + dice.below(chunks)) % (chunks + 1)
                    }
                    _ => place.buffer = [Buffer::Input, Buffer::Output, Buffer::Scratch][dice.below(3)],
                }
            }
            Mutation::WrongCount => step.count = dice.below(4),
            Mutation::WrongAction => step.action = Action::ALL[dice.below(Action::ALL.len())].1,
            Mutation::DroppedWait => {
                step.waits.pop()?;
            }
            Mutation::Untold => step.signals = !step.signals,
            Mutation::WrongPeer | Mutation::SwappedChunks => {}
        }
        Some(())
    }
}

/// The text with a few bytes, words or lines changed.
pub(super) fn text(text: &str, dice: &mut Dice) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=dice.below(4) {
        let at = dice.below(bytes.len());
        match dice.below(6) {
            0 => bytes[at] = b"0123456789-\"<>/= \nsrcpy"[dice.below(23)],
            1 => drop(bytes.remove(at)),
            2 => bytes.truncate(at),
            3 => {
                let digits = bytes[at..]
                    .iter()
                    .position(u8::is_ascii_digit)
                    .map(|found| at + found);
                if let Some(digit) = digits {
                    bytes[digit] = b'0' + dice.below(10) as u8;
                }
            }
            _ => {
                let mut lines: Vec<_> = bytes.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
                let (line, other) = (dice.below(lines.len()), dice.below(lines.len()));
                match dice.below(3) {
                    0 => drop(lines.remove(line)),
                    1 => lines.insert(other, lines[line].clone()),
                    _ => lines.swap(line, other),
                }
                bytes = lines.join(&b'\n');
            }
        }
        if bytes.is_empty() {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
