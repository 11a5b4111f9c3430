//! Ring all-reduce: reduce-scatter around the ring, then all-gather around it.
//!
//! 2(n−1) messages of 1/n of the vector leave each rank: the least that any all-reduce can send. Block b is summed in
//! the order b, b+1, … around the ring and is complete at rank b−1, which passes it on. 16- and 8-bit floats are
//! rounded at each hop.
//!
//! Source: P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.

use super::{Algorithm, Request};
use crate::plan::cost::{Counts, Load, Work};
use crate::plan::schedule::{
    Affine,
    Buffer::{Input, Output},
    How, Item, Schedule, Slice, Source, Step,
};
use crate::types::Collective;

pub(super) const RING: Algorithm = Algorithm {
    name: "ring",
    about: "reduce-scatter and all-gather around a ring; the least traffic",
    fits: |collective| matches!(collective, Collective::AllReduce),
    build,
    counts,
};

fn build(request: &Request) -> Schedule {
    let (n, me) = (request.ranks, request.rank);
    if n == 1 {
        return Schedule::plain(1, 1, vec![super::alone()]);
    }
    let (next, prev) = (Affine::fixed((me + 1) % n), Affine::fixed((me + n - 1) % n));
    let block = |first| Slice::grain(Input, first);
    let result = |first| Slice::grain(Output, first);
    let first = Step::copy(Source::Slice(block(Affine::fixed(me)))).send(next);
    let add = |how, at| Step::of(how, [Source::Recv(prev), Source::Slice(block(at))]);
    let complete = Affine::fixed((me + 1) % n);
    let items = vec![
        Item::Step(first),
        super::repeat(
            n - 2,
            add(How::Reduce, Affine::stepping(me + n - 1, -1)).send(next),
        ),
        Item::Step(add(How::ReduceLast, complete).store(result(complete)).send(next)),
        super::repeat(
            n - 2,
            Step::copy(Source::Recv(prev))
                .store(result(Affine::stepping(me + n, -1)))
                .send(next),
        ),
        Item::Step(Step::copy(Source::Recv(prev)).store(result(Affine::fixed((me + 2) % n)))),
    ];
    Schedule::plain(n, n, items)
}

/// All ranks are equally busy, and each block passes each of them twice. A short vector has fewer blocks than ranks.
fn counts(load: &Load) -> Counts {
    if load.ranks == 1 {
        return Counts::ALONE;
    }
    let others = load.ranks as f64 - 1.0;
    let (block, blocks) = load.blocks(load.ranks);
    let messages = 4.0 * others.min(blocks);
    Counts {
        rounds: 2.0 * others,
        peers: 1.0,
        message: block,
        lead: 0.0,
        busiest: Work {
            messages,
            bytes: messages * block,
            reduced: others.min(blocks) * block,
        },
        all: Work {
            messages: 4.0 * blocks * others,
            bytes: 4.0 * load.bytes() * others,
            reduced: load.bytes() * others,
        },
    }
}
