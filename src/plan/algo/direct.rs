//! Direct two-shot all-reduce: everyone sends block q to rank q, which adds the n blocks in one pass and sends the
//! result to everyone.
//!
//! Two messages deep whatever n, and each rank sends as little as in a ring; but every pair of ranks needs a link.
//! A block's owner sees all contributions, so that 16- and 8-bit floats are added in float32 and rounded once, and
//! the order is always rank 0, 1, 2, ….
//!
//! Source: the reduce-scatter and all-gather composition in R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of
//! collective communication operations in MPICH", 2005, with both halves done by direct exchange.

use super::{Algorithm, Request};
use crate::plan::cost::{Counts, Load, Work};
use crate::plan::schedule::{
    Affine,
    Buffer::{Input, Output},
    How, Item, Schedule, Slice, Source, Step,
};

pub(super) const TWO_SHOT: Algorithm = Algorithm {
    name: "direct",
    about: "every rank reduces its block of all inputs at once, then sends it to all (two-shot)",
    fits: super::reduces_to_all,
    build,
    counts,
};

fn build(request: &Request) -> Schedule {
    let (n, me) = (request.ranks, request.rank);
    if n == 1 {
        return Schedule::plain(1, 1, vec![super::alone()]);
    }
    let others = Affine::stepping(me + 1, 1);
    let mine = Affine::fixed(me);
    let from = |rank: usize| match rank == me {
        true => Source::Slice(Slice::grain(Input, mine)),
        false => Source::Recv(Affine::fixed(rank)),
    };
    let mut reduce = Step::of(How::ReduceLast, (0..n).map(from)).store(Slice::grain(Output, mine));
    reduce.sends = (1..n).map(|k| Affine::fixed((me + k) % n)).collect();
    let items = vec![
        super::repeat(
            n - 1,
            Step::copy(Source::Slice(Slice::grain(Input, others))).send(others),
        ),
        Item::Step(reduce),
        super::repeat(
            n - 1,
            Step::copy(Source::Recv(others)).store(Slice::grain(Output, others)),
        ),
    ];
    Schedule::plain(n, n, items)
}

/// A block's owner is the busiest: it hears from all others and sends to all. A short vector has fewer blocks than ranks.
fn counts(load: &Load) -> Counts {
    if load.ranks == 1 {
        return Counts::ALONE;
    }
    let others = load.ranks as f64 - 1.0;
    let (block, owners) = load.blocks(load.ranks);
    let messages = 2.0 * (others + owners - 1.0);
    Counts {
        rounds: 2.0,
        peers: others,
        message: block,
        lead: 0.0,
        busiest: Work {
            messages,
            bytes: messages * block,
            reduced: others * block,
        },
        all: Work {
            messages: 4.0 * owners * others,
            bytes: 4.0 * load.bytes() * others,
            reduced: load.bytes() * others,
        },
    }
}
