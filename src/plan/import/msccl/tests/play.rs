//! Carries an algorithm out with numbers, in any order that it allows: nothing is shared with what proves.

use super::super::mutate::Dice;
use super::super::{Action, Place, Program};
use crate::plan::schedule::Buffer;
use crate::types::Collective;
use std::collections::{HashMap, VecDeque};

/// A chunk: how often it has each rank's contribution to each chunk. Nothing is what was there before.
type Chunk = HashMap<(usize, usize), u32>;

/// Why it went wrong, if it did.
pub(super) fn play(
    program: &Program,
    in_place: bool,
    slots: usize,
    piece: usize,
    dice: &mut Dice,
) -> Result<(), String> {
    let mut memories: Vec<HashMap<(u8, usize), Chunk>> =
        (0..program.ranks()).map(|rank| inputs(program, rank)).collect();
    let place = |rank: usize, buffer: Buffer, at: usize| {
        let (input, output) = shifts(program, rank);
        match buffer {
            Buffer::Input => (0, input + at),
            Buffer::Output => (u8::from(!in_place), output + at),
            Buffer::Scratch => (2, at),
        }
    };
    let blocks: Vec<(usize, usize)> = (0..program.ranks())
        .flat_map(|rank| (0..program.gpus[rank].blocks.len()).map(move |block| (rank, block)))
        .collect();
    let mut at: HashMap<(usize, usize), (usize, usize)> = blocks.iter().map(|&id| (id, (0, 0))).collect();
    let mut told: HashMap<(usize, usize), u32> = HashMap::new();
    let mut lanes: HashMap<(usize, usize, u32), VecDeque<Vec<Chunk>>> = HashMap::new();
    loop {
        // Whoever can go on may be the next.
        let can: Vec<_> = blocks
            .iter()
            .copied()
            .filter(|&(rank, number)| {
                let block = &program.gpus[rank].blocks[number];
                let (index, done) = at[&(rank, number)];
                let Some(step) = block.steps.get(index) else {
                    return false;
                };
                let waits = done > 0
                    || step.waits.iter().all(|wait| {
                        told.get(&(rank, wait.block))
                            .is_some_and(|&step| step >= wait.step)
                    });
                let comes = || {
                    block.recv.is_some_and(|peer| {
                        lanes
                            .get(&(peer, rank, block.channel))
                            .is_some_and(|lane| !lane.is_empty())
                    })
                };
                let room = || {
                    block.send.is_some_and(|peer| {
                        lanes
                            .get(&(rank, peer, block.channel))
                            .is_none_or(|lane| lane.len() < slots)
                    })
                };
                let moves = step.count > 0;
                waits
                    && (!moves || !step.action.receives() || comes())
                    && (!moves || !step.action.sends() || room())
            })
            .collect();
        if can.is_empty() {
            break;
        }
        let id @ (rank, number) = can[dice.below(can.len())];
        let block = &program.gpus[rank].blocks[number];
        let (index, done) = at[&id];
        let step = &block.steps[index];
        let chunks = piece.min(step.count - done);
        let message = match (step.action.receives() && step.count > 0, block.recv) {
            (true, Some(peer)) => lanes
                .get_mut(&(peer, rank, block.channel))
                .and_then(VecDeque::pop_front),
            _ => None,
        };
        if message.as_ref().is_some_and(|message| message.len() != chunks) {
            return Err("lengths".into());
        }
        let mut sent = Vec::new();
        for k in 0..chunks {
            let cell = |Place { buffer, first }: Place| place(rank, buffer, first + done + k);
            let load =
                |memory: &HashMap<_, Chunk>, from| memory.get(&cell(from)).cloned().unwrap_or_default();
            let message = || {
                message
                    .as_ref()
                    .map(|message| message[k].clone())
                    .unwrap_or_default()
            };
            let memory = &memories[rank];
            let result = match step.action {
                Action::Send | Action::Copy => load(memory, step.source),
                Action::Recv | Action::RecvCopySend => message(),
                Action::Reduce => sum(load(memory, step.store), load(memory, step.source)),
                _ => sum(message(), load(memory, step.source)),
            };
            if step.action.stores() {
                memories[rank].insert(cell(step.store), result.clone());
            }
            sent.push(result);
        }
        if let (true, Some(peer)) = (step.action.sends() && step.count > 0, block.send) {
            lanes
                .entry((rank, peer, block.channel))
                .or_default()
                .push_back(sent);
        }
        match done + chunks == step.count {
            true => {
                at.insert(id, (index + 1, 0));
                if step.signals {
                    told.insert(id, step.number);
                }
            }
            false => drop(at.insert(id, (index, done + chunks))),
        }
    }
    if blocks
        .iter()
        .any(|id| at[id].0 < program.gpus[id.0].blocks[id.1].steps.len())
    {
        return Err("stands still".into());
    }
    if lanes.values().any(|lane| !lane.is_empty()) {
        return Err("left over".into());
    }
    for (rank, memory) in memories.iter().enumerate() {
        for (index, wanted) in outputs(program, rank).into_iter().enumerate() {
            let held = memory
                .get(&place(rank, Buffer::Output, index))
                .cloned()
                .unwrap_or_default();
            if held != wanted {
                return Err(format!("rank {rank}, chunk {index}: {held:?}"));
            }
        }
    }
    Ok(())
}

fn sum(mut a: Chunk, b: Chunk) -> Chunk {
    b.into_iter()
        .for_each(|(key, times)| *a.entry(key).or_default() += times);
    a
}

/// Where a rank's input and output begin in the vector.
fn shifts(program: &Program, rank: usize) -> (usize, usize) {
    let own = rank * (program.chunks / program.ranks());
    match program.collective {
        Collective::AllGather => (own, 0),
        Collective::ReduceScatter => (0, own),
        _ => (0, 0),
    }
}

fn inputs(program: &Program, rank: usize) -> HashMap<(u8, usize), Chunk> {
    let part = program.chunks / program.ranks();
    let chunks = match program.collective {
        Collective::AllGather => rank * part..(rank + 1) * part,
        Collective::Broadcast { root } if root as usize != rank => 0..0,
        _ => 0..program.chunks,
    };
    chunks
        .map(|chunk| ((0, chunk), Chunk::from([((rank, chunk), 1)])))
        .collect()
}

fn outputs(program: &Program, rank: usize) -> Vec<Chunk> {
    let (ranks, chunks) = (program.ranks(), program.chunks);
    let part = chunks / ranks;
    let all = |chunk| (0..ranks).map(|rank| ((rank, chunk), 1)).collect();
    let one = |rank, chunk| Chunk::from([((rank, chunk), 1)]);
    match program.collective {
        Collective::AllReduce => (0..chunks).map(all).collect(),
        Collective::ReduceScatter => (rank * part..(rank + 1) * part).map(all).collect(),
        Collective::AllGather => (0..chunks).map(|chunk| one(chunk / part, chunk)).collect(),
        Collective::AlltoAll => (0..chunks)
            .map(|chunk| one(chunk / part, rank * part + chunk % part))
            .collect(),
        Collective::Broadcast { root } => (0..chunks).map(|chunk| one(root as usize, chunk)).collect(),
        other => panic!("{other:?} is not played"),
    }
}
