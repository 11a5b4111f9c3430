//! The threads of all ranks, and the connections between them.

use super::{Block, Program};
use std::collections::HashMap;

/// The threads of all ranks, and what joins them.
pub(super) struct Wires {
    /// The rank and block of each thread.
    pub(super) threads: Vec<(usize, usize)>,
    /// Each rank's first thread, and the number of threads at the end.
    pub(super) first: Vec<usize>,
    /// The connections by which threads send and receive.
    pub(super) leaving: Vec<Option<usize>>,
    pub(super) coming: Vec<Option<usize>>,
    /// The threads at both ends of each, if there are such.
    pub(super) ends: Vec<(Option<usize>, Option<usize>)>,
    /// Of which of its steps each thread tells.
    pub(super) words: Vec<Words>,
}

impl Wires {
    pub(super) fn new(program: &Program) -> Wires {
        let mut wires = Wires {
            threads: Vec::new(),
            first: vec![0],
            leaving: Vec::new(),
            coming: Vec::new(),
            ends: Vec::new(),
            words: program.each_block().map(Words::new).collect(),
        };
        let mut numbers: HashMap<(usize, usize, u32), usize> = HashMap::new();
        for (rank, gpu) in program.gpus.iter().enumerate() {
            for (number, block) in gpu.blocks.iter().enumerate() {
                let thread = wires.threads.len();
                let ends = &mut wires.ends;
                let mut lane = |from, to| {
                    *numbers.entry((from, to, block.channel)).or_insert_with(|| {
                        ends.push((None, None));
                        ends.len() - 1
                    })
                };
                let leaving = block.send.map(|peer| lane(rank, peer));
                let coming = block.recv.map(|peer| lane(peer, rank));
                if let Some(lane) = leaving {
                    wires.ends[lane].0 = Some(thread);
                }
                if let Some(lane) = coming {
                    wires.ends[lane].1 = Some(thread);
                }
                wires.leaving.push(leaving);
                wires.coming.push(coming);
                wires.threads.push((rank, number));
            }
            wires.first.push(wires.threads.len());
        }
        wires
    }
}

/// The steps that a block tells of: their numbers and places among its steps.
pub(super) struct Words(Vec<(u32, usize)>);

impl Words {
    pub(super) fn new(block: &Block) -> Words {
        let steps = block.steps.iter().enumerate().filter(|(_, step)| step.signals);
        Words(steps.map(|(at, step)| (step.number, at)).collect())
    }

    /// The place of the first step that tells of itself, and so of the one with this number, or of one before it.
    pub(super) fn of(&self, number: u32) -> Option<usize> {
        let from = self.0.partition_point(|(told, _)| *told < number);
        self.0.get(from).map(|(_, at)| *at)
    }
}
