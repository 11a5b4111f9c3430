//! Direct exchange: whoever has a block sends it to the rank that needs it, without a stop between.
//!
//! One message deep, two for an all-reduce, whatever n, and no rank sends more than it must; but every pair of ranks needs a
//! link, and a root has n − 1 of them busy.
//!
//! All-reduce is *two-shot*: everyone sends block q to rank q, which adds the n blocks in one pass and sends the result to
//! everyone. Whoever reduces sees all contributions, so that 16- and 8-bit floats are added in float32 and rounded once, and
//! the order is always rank 0, 1, 2, …, which is that of the leaves of [`Order::Tree`](crate::plan::cost::Order).
//!
//! Source: the reduce-scatter and all-gather composition in R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of
//! collective communication operations in MPICH", 2005, with both halves done by direct exchange.

use super::{Algorithm, Request, whole};
use crate::plan::cost::{Counts, Load, Work};
use crate::plan::schedule::{
    Affine,
    Buffer::{Input, Output},
    How, Item, Schedule, Slice, Source, Step,
};
use crate::types::Collective;

pub(super) const DIRECT: Algorithm = Algorithm {
    name: "direct",
    about: "every block goes straight to the rank that needs it; whoever reduces does so from all inputs at once",
    fits: |_| true,
    in_order: |_, _| true,
    build,
    counts,
};

fn build(request: &Request) -> Schedule {
    let (n, me) = (request.ranks, request.rank);
    match request.collective {
        collective if n == 1 && collective.reduces() => Schedule::plain(1, 1, vec![super::alone()]),
        Collective::Barrier if n == 1 => Schedule::plain(1, 1, vec![super::alone()]),
        Collective::AllReduce | Collective::Barrier => two_shot(n, me),
        Collective::Broadcast { root } => broadcast(n, me, root as usize),
        Collective::Reduce { root } => reduce(n, me, root as usize),
        Collective::AllGather | Collective::AllGatherV => {
            let tell = Item::Step(to_others(super::keep_step(me), n, me));
            Schedule::plain(n, n, vec![tell, collect(n, me)])
        }
        Collective::AlltoAll | Collective::AlltoAllV => all_to_all(n, me),
        Collective::ReduceScatter | Collective::ReduceScatterV => {
            let (scatter, reduce) = reduce_scatter(n, me);
            Schedule::plain(n, n, vec![scatter, Item::Step(reduce)])
        }
        Collective::Gather { root } | Collective::GatherV { root } => gather(n, me, root as usize),
        Collective::Scatter { root } | Collective::ScatterV { root } => scatter(n, me, root as usize),
    }
}

/// This rank's block of the input.
fn own(me: usize) -> Slice {
    Slice::grain(Input, Affine::fixed(me))
}

/// The other ranks, one in each turn, the next one first.
fn others(me: usize) -> Affine {
    Affine::stepping(me + 1, 1)
}

/// The reduction of what all ranks have, this one's in `mine`, in the order of the ranks.
pub(super) fn sum(n: usize, me: usize, mine: Slice) -> Step {
    let from = |rank: usize| match rank == me {
        true => Source::Slice(mine),
        false => Source::Recv(Affine::fixed(rank)),
    };
    Step::of(How::ReduceLast, (0..n).map(from))
}

/// Sends each other rank the block `what` of it.
pub(super) fn hand_out(n: usize, me: usize, what: impl Fn(Affine) -> Slice) -> Item {
    let others = others(me);
    super::repeat(n - 1, Step::copy(Source::Slice(what(others))).send(others))
}

/// `step`, which sends its result to all other ranks.
pub(super) fn to_others(mut step: Step, n: usize, me: usize) -> Step {
    step.sends = (1..n).map(|k| Affine::fixed((me + k) % n)).collect();
    step
}

/// Gets each other rank's block.
fn collect(n: usize, me: usize) -> Item {
    let others = others(me);
    super::repeat(
        n - 1,
        Step::copy(Source::Recv(others)).store(Slice::grain(Output, others)),
    )
}

/// All is sent before anything is stored, so that in place nothing is lost.
fn all_to_all(n: usize, me: usize) -> Schedule {
    let hand_out = hand_out(n, me, |to| Slice::grain(Input, to));
    Schedule::plain(n, n, vec![hand_out, super::keep(me), collect(n, me)])
}

fn broadcast(n: usize, me: usize, root: usize) -> Schedule {
    let step = match me == root {
        true => to_others(Step::copy(Source::Slice(whole(Input))), n, me),
        false => Step::copy(Source::Recv(Affine::fixed(root))),
    };
    Schedule::plain(n, 1, vec![Item::Step(step.store(whole(Output)))])
}

fn reduce(n: usize, me: usize, root: usize) -> Schedule {
    let step = match me == root {
        true => sum(n, me, whole(Input)).store(whole(Output)),
        false => Step::copy(Source::Slice(whole(Input))).send(Affine::fixed(root)),
    };
    Schedule::plain(n, 1, vec![Item::Step(step)])
}

/// Everyone sends block q to rank q, which reduces.
fn reduce_scatter(n: usize, me: usize) -> (Item, Step) {
    let reduce = sum(n, me, own(me)).store(Slice::grain(Output, Affine::fixed(me)));
    (hand_out(n, me, |to| Slice::grain(Input, to)), reduce)
}

fn gather(n: usize, me: usize, root: usize) -> Schedule {
    let items = match me == root {
        true => vec![super::keep(me), collect(n, me)],
        false => vec![Item::Step(
            Step::copy(Source::Slice(own(me))).send(Affine::fixed(root)),
        )],
    };
    Schedule::plain(n, n, items)
}

fn scatter(n: usize, me: usize, root: usize) -> Schedule {
    let items = match me == root {
        true => vec![hand_out(n, me, |to| Slice::grain(Input, to)), super::keep(me)],
        false => {
            let from = Source::Recv(Affine::fixed(root));
            vec![Item::Step(
                Step::copy(from).store(Slice::grain(Output, Affine::fixed(me))),
            )]
        }
    };
    Schedule::plain(n, n, items)
}

/// Everyone reduces its block, and sends it to everyone.
fn two_shot(n: usize, me: usize) -> Schedule {
    let (scatter, reduce) = reduce_scatter(n, me);
    let reduce = Item::Step(to_others(reduce, n, me));
    Schedule::plain(n, n, vec![scatter, reduce, collect(n, me)])
}

fn counts(load: &Load) -> Counts {
    if load.ranks == 1 {
        return Counts::ALONE;
    }
    let others = load.ranks as f64 - 1.0;
    let (block, _) = load.blocks(load.ranks);
    let all = |messages: f64, bytes: f64, reduced: f64| Work {
        messages,
        bytes: messages * bytes,
        spared: 0.0,
        reduced,
    };
    let one_shot = |message: f64, messages: f64, reduced: f64, all: Work| Counts {
        rounds: 1.0,
        peers: others,
        message,
        lead: 0.0,
        moved: 0.0,
        general: false,
        busiest: Work {
            messages,
            bytes: messages * message,
            spared: 0.0,
            reduced,
        },
        all,
    };
    let pairs = load.ranks as f64 * others;
    match load.collective.plain() {
        Collective::AllReduce | Collective::Barrier => two_shot_counts(load),
        Collective::Broadcast { .. } => {
            let (bytes, again) = (load.bytes(), (others - 1.0) * load.bytes());
            let counts = one_shot(bytes, others, 0.0, all(2.0 * others, bytes, 0.0));
            counts.sparing(again, again)
        }
        Collective::Reduce { .. } => {
            let (bytes, reduced) = (load.bytes(), others * load.bytes());
            one_shot(bytes, others, reduced, all(2.0 * others, bytes, reduced))
        }
        Collective::ReduceScatter => {
            let work = all(2.0 * pairs, block, pairs * block);
            one_shot(block, 2.0 * others, others * block, work)
        }
        Collective::Gather { .. } | Collective::Scatter { .. } => {
            one_shot(block, others, 0.0, all(2.0 * others, block, 0.0))
        }
        Collective::AllGather => {
            let again = (others - 1.0) * block;
            let counts = one_shot(block, 2.0 * others, 0.0, all(2.0 * pairs, block, 0.0));
            counts.sparing(again, load.ranks as f64 * again)
        }
        // An all-to-all.
        _ => one_shot(block, 2.0 * others, 0.0, all(2.0 * pairs, block, 0.0)),
    }
}

/// A block's owner is the busiest: it hears from all others and sends to all. A short vector has fewer blocks than ranks.
fn two_shot_counts(load: &Load) -> Counts {
    let others = load.ranks as f64 - 1.0;
    let (block, owners) = load.blocks(load.ranks);
    let messages = 2.0 * (others + owners - 1.0);
    Counts {
        rounds: 2.0,
        peers: others,
        message: block,
        lead: 0.0,
        moved: 0.0,
        general: false,
        busiest: Work {
            messages,
            bytes: messages * block,
            spared: (others - 1.0) * block,
            reduced: others * block,
        },
        all: Work {
            messages: 4.0 * owners * others,
            bytes: 4.0 * load.bytes() * others,
            spared: load.bytes() * (others - 1.0),
            reduced: load.bytes() * others,
        },
    }
}
