//! Bruck's all-gather and all-to-all: ceil(log2(n)) messages one after the other for any n, each to a rank twice as far away as
//! the one before.
//!
//! All-gather: in each round a rank passes on all the blocks that it has, and no block is sent twice to the same rank. In round
//! j the rank has the blocks of itself and the 2^j − 1 ranks after it, sends them to the rank 2^j before it, and gets as many
//! from the rank 2^j after it; the last round sends what is still missing. Blocks lie at their places from the beginning: slices
//! go round at the end of the vector, so that nothing is turned afterwards. Where n is a power of two up to 64 the two ranks
//! are one, at which bit j differs (recursive doubling): what they have are the blocks of ranks that are alike from that bit on.
//!
//! All-to-all: a block that has d ranks to go travels by the powers of two that d is made of. In round j a rank sends about half
//! of all blocks, those with bit j in their d, to the rank 2^j after it, and gets as many of others in their place; each block
//! is sent about log2(n)/2 times. They lie in scratch memory, those with d to go where what has come d ranks far ends in the
//! output. Where n is no power of two, those of a round's blocks that are no whole run may take a message more.
//!
//! Source: J. Bruck et al., "Efficient algorithms for all-to-all communications in multiport message-passing systems", 1997.

use super::{Algorithm, Request};
use crate::plan::cost::{Counts, Load, Work};
use crate::plan::schedule::{
    Affine,
    Buffer::{Input, Output, Scratch},
    Item, Schedule, Slice, Source, Step,
};
use crate::types::Collective;

pub(super) const BRUCK: Algorithm = Algorithm {
    name: "bruck",
    about: "in each round ranks pass on many blocks at once, to ranks twice as far away as before; the fewest rounds",
    fits: |collective| collective.plain() == Collective::AllGather || collective == Collective::AlltoAll,
    in_order: |_, _| false,
    build: |request| match request.collective {
        Collective::AlltoAll => all_to_all(request),
        _ => all_gather(request),
    },
    counts: |load| match load.collective {
        _ if load.ranks == 1 => Counts::ALONE,
        Collective::AlltoAll => all_to_all_counts(load),
        _ => all_gather_counts(load),
    },
};

fn all_gather(request: &Request) -> Schedule {
    let (n, me) = (request.ranks, request.rank);
    let run = |first: usize, blocks: usize| Slice::run(Output, Affine::fixed(first % n), blocks);
    let mut items = vec![super::keep(me)];
    for (distance, blocks) in rounds(n) {
        let (from, to) = super::partners(n, me, distance);
        let first = |rank: usize| match super::is_paired(n) {
            true => rank & !(distance - 1),
            false => rank,
        };
        let (sent, came) = (run(first(me), blocks), run(first(from), blocks));
        items.push(Item::Step(
            Step::copy(Source::Slice(sent)).send(Affine::fixed(to)),
        ));
        items.push(Item::Step(
            Step::copy(Source::Recv(Affine::fixed(from))).store(came),
        ));
    }
    Schedule::plain(n, n, items)
}

/// The distance to the partners of each round, and the blocks that are sent.
fn rounds(n: usize) -> impl Iterator<Item = (usize, usize)> {
    distances(n).map(move |distance| (distance, distance.min(n - distance)))
}

/// The powers of two below `n`.
fn distances(n: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(1), |distance| Some(2 * distance)).take_while(move |&distance| distance < n)
}

fn all_gather_counts(load: &Load) -> Counts {
    let (ranks, rounds) = (load.ranks as f64, rounds(load.ranks).count() as f64);
    let (block, _) = load.blocks(load.ranks);
    let each = Work {
        messages: 2.0 * rounds,
        bytes: 2.0 * (ranks - 1.0) * block,
        spared: 0.0,
        reduced: 0.0,
    };
    Counts {
        rounds,
        peers: rounds,
        message: block * (ranks / 2.0).ceil(),
        lead: 0.0,
        moved: 0.0,
        general: !super::is_paired(load.ranks),
        busiest: each,
        all: Work {
            messages: ranks * each.messages,
            bytes: ranks * each.bytes,
            spared: 0.0,
            reduced: 0.0,
        },
    }
}

fn all_to_all(request: &Request) -> Schedule {
    let (n, me) = (request.ranks, request.rank);
    if n == 1 {
        return Schedule::plain(1, 1, vec![super::keep(0)]);
    }
    let others = |buffer| Slice::run(buffer, Affine::fixed((me + 1) % n), n - 1);
    // The block for the rank d after this one lies d places before this rank's.
    let reversed = Slice {
        run: 1,
        stride: -1,
        reps: n as u32 - 1,
        ..Slice::grain(Scratch, Affine::fixed((me + n - 1) % n))
    };
    let mut steps = vec![Step::copy(Source::Slice(others(Input))).store(reversed)];
    for distance in distances(n) {
        let (to, from) = (
            Affine::fixed((me + distance) % n),
            Affine::fixed((me + n - distance) % n),
        );
        for part in parts(n, distance) {
            let slice = part.lying_before(me, n);
            steps.push(Step::copy(Source::Slice(slice)).send(to));
            steps.push(Step::copy(Source::Recv(from)).store(slice));
        }
    }
    steps.push(Step::copy(Source::Slice(others(Scratch))).store(others(Output)));
    let items = std::iter::once(super::keep(me)).chain(steps.into_iter().map(Item::Step));
    Schedule {
        scratch: n as u32,
        ..Schedule::plain(n, n, items.collect())
    }
}

/// Some of the blocks that are sent in a round of an all-to-all: `reps` runs of `run` distances to go, the first of which
/// begins at `first` and each 2·`distance` after the one before.
struct Part {
    first: usize,
    run: usize,
    reps: usize,
    distance: usize,
}

impl Part {
    fn blocks(&self) -> usize {
        self.run * self.reps
    }

    /// Where they lie in the scratch memory of `me`.
    fn lying_before(&self, me: usize, n: usize) -> Slice {
        Slice {
            stride: -2 * self.distance as i64,
            reps: self.reps as u32,
            ..Slice::run(
                Scratch,
                Affine::fixed((me + n + 1 - self.first - self.run) % n),
                self.run,
            )
        }
    }
}

/// The distances below `n` with the bit `distance`: the whole runs of them, and what remains of one.
fn parts(n: usize, distance: usize) -> impl Iterator<Item = Part> {
    let (whole, rest) = (n / (2 * distance), n % (2 * distance));
    let runs = Part {
        first: distance,
        run: distance,
        reps: whole,
        distance,
    };
    let remains = Part {
        first: whole * 2 * distance + distance,
        run: rest.saturating_sub(distance),
        reps: 1,
        distance,
    };
    [runs, remains].into_iter().filter(|part| part.blocks() > 0)
}

fn all_to_all_counts(load: &Load) -> Counts {
    let (block, _) = load.blocks(load.ranks);
    let mut each = Work::NONE;
    let (mut rounds, mut longest) = (0.0, 0);
    for part in distances(load.ranks).flat_map(|distance| parts(load.ranks, distance)) {
        each.pass(2.0, part.blocks() as f64 * block);
        longest = longest.max(part.blocks());
        rounds += 1.0;
    }
    let ranks = load.ranks as f64;
    Counts {
        rounds,
        peers: distances(load.ranks).count() as f64,
        message: block * longest as f64,
        lead: 0.0,
        moved: 2.0 * (ranks - 1.0) * block,
        general: true,
        busiest: each,
        all: Work {
            messages: ranks * each.messages,
            bytes: ranks * each.bytes,
            spared: 0.0,
            reduced: 0.0,
        },
    }
}
