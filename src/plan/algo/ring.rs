//! Ring: every rank sends to the next one only.
//!
//! All-reduce is a reduce-scatter around the ring and then an all-gather around it: 2(n−1) messages of 1/n of the vector leave
//! each rank, the least that any all-reduce can send. Block b is summed in the order b, b+1, … around the ring (of a
//! reduce-scatter: b+1, b+2, …, b) and is complete at the last of these ranks. 16- and 8-bit floats are rounded at each hop.
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
    about: "every rank sends to the next one only; the least traffic",
    fits: |collective| {
        matches!(
            collective.plain(),
            Collective::AllReduce | Collective::AllGather | Collective::ReduceScatter
        )
    },
    in_order: |_, _| false,
    build,
    counts,
};

fn build(request: &Request) -> Schedule {
    let (n, me) = (request.ranks, request.rank);
    let items = match request.collective.plain() {
        Collective::AllGather if n == 1 => vec![super::keep(me)],
        _ if n == 1 => vec![super::alone()],
        Collective::AllGather => all_gather(n, me),
        Collective::ReduceScatter => reduce_scatter(n, me),
        _ => all_reduce(n, me),
    };
    Schedule::plain(n, n, items)
}

/// The ranks after and before this one.
fn neighbours(n: usize, me: usize) -> (Affine, Affine) {
    (Affine::fixed((me + 1) % n), Affine::fixed((me + n - 1) % n))
}

/// Each block goes around, from the rank that has it to the one before.
fn all_gather(n: usize, me: usize) -> Vec<Item> {
    let (next, prev) = neighbours(n, me);
    let pass = |at| Step::copy(Source::Recv(prev)).store(Slice::grain(Output, at));
    let own = Affine::fixed(me);
    let first = Step::copy(Source::Slice(Slice::grain(Input, own))).store(Slice::grain(Output, own));
    vec![
        Item::Step(first.send(next)),
        super::repeat(n - 2, pass(Affine::stepping(me + n - 1, -1)).send(next)),
        Item::Step(pass(Affine::fixed((me + 1) % n))),
    ]
}

/// The sum of each block goes around, from the rank after its own to its own.
fn reduce_scatter(n: usize, me: usize) -> Vec<Item> {
    let (next, prev) = neighbours(n, me);
    let block = |at| Slice::grain(Input, at);
    let add = |how, at| Step::of(how, [Source::Recv(prev), Source::Slice(block(at))]);
    let own = Affine::fixed(me);
    vec![
        Item::Step(Step::copy(Source::Slice(block(Affine::fixed((me + n - 1) % n)))).send(next)),
        super::repeat(
            n - 2,
            add(How::Reduce, Affine::stepping(me + 2 * n - 2, -1)).send(next),
        ),
        Item::Step(add(How::ReduceLast, own).store(Slice::grain(Output, own))),
    ]
}

/// Both, one after the other.
fn all_reduce(n: usize, me: usize) -> Vec<Item> {
    let (next, prev) = (Affine::fixed((me + 1) % n), Affine::fixed((me + n - 1) % n));
    let block = |first| Slice::grain(Input, first);
    let result = |first| Slice::grain(Output, first);
    let first = Step::copy(Source::Slice(block(Affine::fixed(me)))).send(next);
    let add = |how, at| Step::of(how, [Source::Recv(prev), Source::Slice(block(at))]);
    let complete = Affine::fixed((me + 1) % n);
    vec![
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
    ]
}

/// All ranks are equally busy, and each block passes each of them twice. A short vector has fewer blocks than ranks.
fn counts(load: &Load) -> Counts {
    if load.ranks == 1 {
        return Counts::ALONE;
    }
    let others = load.ranks as f64 - 1.0;
    let (block, blocks) = load.blocks(load.ranks);
    // An all-reduce is both halves.
    let halves = if load.collective == Collective::AllReduce {
        2.0
    } else {
        1.0
    };
    let adds = if load.collective.plain() == Collective::AllGather {
        0.0
    } else {
        1.0
    };
    let messages = 2.0 * halves * others.min(blocks);
    Counts {
        rounds: halves * others,
        peers: 1.0,
        message: block,
        lead: 0.0,
        moved: 0.0,
        general: false,
        busiest: Work {
            messages,
            bytes: messages * block,
            spared: 0.0,
            reduced: adds * others.min(blocks) * block,
        },
        all: Work {
            messages: 2.0 * halves * blocks * others,
            bytes: 2.0 * halves * load.bytes() * others,
            spared: 0.0,
            reduced: adds * load.bytes() * others,
        },
    }
}
