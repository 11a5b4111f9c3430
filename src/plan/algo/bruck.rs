//! Bruck's all-gather: in each round a rank passes on all the blocks that it has, to a rank twice as far away.
//!
//! ceil(log2(n)) messages one after the other for any n, and no block is sent twice to the same rank. In round j the rank has
//! the blocks of itself and the 2^j − 1 ranks after it, sends them to the rank 2^j before it, and gets as many from the rank
//! 2^j after it; the last round sends what is still missing. Blocks lie at their places from the beginning: slices go
//! round at the end of the vector, so that nothing is turned afterwards.
//!
//! Source: J. Bruck et al., "Efficient algorithms for all-to-all communications in multiport message-passing systems", 1997.

use super::{Algorithm, Request};
use crate::plan::cost::{Counts, Load, Work};
use crate::plan::schedule::{Affine, Buffer::Output, Item, Schedule, Slice, Source, Step};
use crate::types::Collective;

pub(super) const BRUCK: Algorithm = Algorithm {
    name: "bruck",
    about: "in each round ranks pass on all blocks that they have, twice as many as before; the fewest rounds",
    fits: |collective| collective.plain() == Collective::AllGather,
    build,
    counts,
};

fn build(request: &Request) -> Schedule {
    let (n, me) = (request.ranks, request.rank);
    let run = |first: usize, blocks: usize| Slice::run(Output, Affine::fixed(first % n), blocks);
    let mut items = vec![super::keep(me)];
    for (distance, blocks) in rounds(n) {
        let (to, from) = (
            Affine::fixed((me + n - distance) % n),
            Affine::fixed((me + distance) % n),
        );
        items.push(Item::Step(Step::copy(Source::Slice(run(me, blocks))).send(to)));
        items.push(Item::Step(
            Step::copy(Source::Recv(from)).store(run(me + distance, blocks)),
        ));
    }
    Schedule::plain(n, n, items)
}

/// The distance to the partners of each round, and the blocks that are sent.
fn rounds(n: usize) -> impl Iterator<Item = (usize, usize)> {
    let distances = std::iter::successors(Some(1), |distance| Some(2 * distance));
    distances
        .take_while(move |&distance| distance < n)
        .map(move |distance| (distance, distance.min(n - distance)))
}

fn counts(load: &Load) -> Counts {
    if load.ranks == 1 {
        return Counts::ALONE;
    }
    let (ranks, rounds) = (load.ranks as f64, rounds(load.ranks).count() as f64);
    let (block, _) = load.blocks(load.ranks);
    let each = Work {
        messages: 2.0 * rounds,
        bytes: 2.0 * (ranks - 1.0) * block,
        reduced: 0.0,
    };
    Counts {
        rounds,
        peers: rounds,
        message: block * (ranks / 2.0).ceil(),
        lead: 0.0,
        busiest: each,
        all: Work {
            messages: ranks * each.messages,
            bytes: ranks * each.bytes,
            reduced: 0.0,
        },
    }
}
