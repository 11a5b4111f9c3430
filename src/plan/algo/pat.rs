//! Parallel aggregated trees: all-gather and reduce-scatter in ceil(log2(n)) messages for any n, the longest of them between
//! the nearest ranks.
//!
//! Each block travels down a binomial tree of its own, and what a rank passes on for all trees in a round is one message. An
//! all-gather begins with the farthest: in the round with distance d = 2^j the rank has the blocks of the ranks before it at
//! every multiple of 2d, and sends those that are not yet there to the rank d after it. So the first message is one
//! block, and half of all blocks go to the next rank only: of ranks that are numbered host by host the network carries
//! little. Every block comes to each rank once, so that no all-gather sends less.
//!
//! Where n is a power of two up to 64 the ranks d after and before are both the one at which bit j differs: modulo 2d that is the same.
//!
//! A reduce-scatter is the reverse: partial sums go the same way back, from the nearest to the farthest, and each rank
//! adds what comes to what it has. 16- and 8-bit floats are rounded in each round.
//!
//! A message here is all of a round's blocks. The source bounds its buffers by more rounds of fewer blocks; here the tiles of
//! a call do that: the longer the message, the shorter its part of each block, and the scratch memory of a reduce-scatter, which
//! has a place for each block, is about twice a message for each tile in flight, whatever n.
//!
//! Source: S. Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale", 2025.

use super::{Algorithm, Request};
use crate::plan::cost::{Counts, Load, Work};
use crate::plan::schedule::{
    Affine,
    Buffer::{self, Input, Output, Scratch},
    How, Item, Schedule, Slice, Source, Step,
};
use crate::types::Collective;

pub(super) const PAT: Algorithm = Algorithm {
    name: "pat",
    about: "in each round what is passed on for all ranks is one message, long ones go to near ranks; the fewest rounds",
    fits: |collective| matches!(collective, Collective::AllGather | Collective::ReduceScatter),
    in_order: |_, _| false,
    build,
    counts,
};

fn build(request: &Request) -> Schedule {
    let (n, me) = (request.ranks, request.rank);
    let reduces = request.collective.reduces();
    if reduces && n == 1 {
        return Schedule::plain(1, 1, vec![super::alone()]);
    }
    let steps = match reduces {
        true => reduce_scatter(n, me),
        false => all_gather(n, me),
    };
    let items = steps.into_iter().map(Item::Step).collect();
    Schedule {
        scratch: if reduces && n > 2 { n as u32 } else { 0 },
        ..Schedule::plain(n, n, items)
    }
}

fn all_gather(n: usize, me: usize) -> Vec<Step> {
    let mut steps = vec![super::keep_step(me)];
    let rounds: Vec<Round> = rounds(n).collect();
    for round in rounds.iter().rev() {
        let (next, prev) = super::partners(n, me, round.distance);
        let sent = round.blocks(Output, me, n);
        let came = round.blocks(Output, prev, n);
        steps.push(Step::copy(Source::Slice(sent)).send(Affine::fixed(next)));
        steps.push(Step::copy(Source::Recv(Affine::fixed(prev))).store(came));
    }
    steps
}

fn reduce_scatter(n: usize, me: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    // This block is passed on in a later round without anything being added to it before: it lies with those that are.
    if n % 2 == 1 {
        let untouched = |buffer| Slice::grain(buffer, Affine::fixed((me + 1) % n));
        steps.push(Step::copy(Source::Slice(untouched(Input))).store(untouched(Scratch)));
    }
    let mut held = Input;
    let last = rounds(n).count() - 1;
    for (i, round) in rounds(n).enumerate() {
        let (next, prev) = super::partners(n, me, round.distance);
        let sent = round.blocks(held, prev, n);
        let mine = round.blocks(held, me, n);
        steps.push(Step::copy(Source::Slice(sent)).send(Affine::fixed(prev)));
        let (how, into) = match i == last {
            true => (How::ReduceLast, Output),
            false => (How::Reduce, Scratch),
        };
        let sources = [Source::Slice(mine), Source::Recv(Affine::fixed(next))];
        steps.push(Step::of(how, sources).store(round.blocks(into, me, n)));
        held = Scratch;
    }
    steps
}

/// A round of an all-gather: how far its messages go, and of how many blocks they are.
struct Round {
    distance: usize,
    blocks: usize,
}

impl Round {
    /// What `rank` has for the rank at this distance: the blocks at every second multiple of the distance before it.
    fn blocks(&self, buffer: Buffer, rank: usize, n: usize) -> Slice {
        Slice {
            stride: -2 * self.distance as i64,
            reps: self.blocks as u32,
            ..Slice::grain(buffer, Affine::fixed(rank % n))
        }
    }
}

/// The rounds, the nearest first.
fn rounds(n: usize) -> impl Iterator<Item = Round> {
    let distances = std::iter::successors(Some(1), |distance| Some(2 * distance));
    distances
        .take_while(move |&distance| distance < n)
        .map(move |distance| Round {
            distance,
            // Every second multiple from 0 on, as long as the receiver is less than n ranks after the block's own.
            blocks: (n - distance).div_ceil(2 * distance),
        })
}

fn counts(load: &Load) -> Counts {
    if load.ranks == 1 {
        return Counts::ALONE;
    }
    let (ranks, rounds) = (load.ranks as f64, rounds(load.ranks).count() as f64);
    let (block, _) = load.blocks(load.ranks);
    let passed = (ranks - 1.0) * block;
    let adds = if load.collective.reduces() { 1.0 } else { 0.0 };
    let each = Work {
        messages: 2.0 * rounds,
        bytes: 2.0 * passed,
        spared: 0.0,
        reduced: adds * passed,
    };
    Counts {
        rounds,
        peers: rounds,
        message: block * (load.ranks / 2) as f64,
        lead: 0.0,
        moved: 0.0,
        general: true,
        busiest: each,
        all: each.times(ranks),
    }
}
