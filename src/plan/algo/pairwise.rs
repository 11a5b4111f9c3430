//! Pairwise exchange: every block goes straight to the rank that needs it, and in each round a rank has to do with one or two
//! others only.
//!
//! As much traffic as a direct exchange, which sends all at once, and more rounds; but no rank hears from many at the same time,
//! whose messages would not find room in the buffers of a network's switches. The planner's model does not know of that: in
//! shared memory both were as fast.
//!
//! All-to-all: in round k a rank exchanges blocks with the rank k after it and with the rank k before it. Both of its own are
//! sent before either place is stored into, so that in place nothing is lost, without scratch memory.
//! Reduce-scatter: in round k a rank sends the block of the rank k after it there, and adds what comes from the rank k before
//! it to its own block, which is complete after n − 1 rounds; 16- and 8-bit floats are rounded in each.
//!
//! Of an all-gather this would be a ring's rounds and traffic with n − 1 links in place of one.
//!
//! Source: the pairwise exchanges in R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of collective communication
//! operations in MPICH", 2005.

use super::{Algorithm, Request};
use crate::plan::cost::{Counts, Load, Work};
use crate::plan::schedule::{
    Affine,
    Buffer::{Input, Output},
    How, Item, Schedule, Slice, Source, Step,
};
use crate::types::Collective;

pub(super) const PAIRWISE: Algorithm = Algorithm {
    name: "pairwise",
    about: "every block goes straight to the rank that needs it, to and from one or two ranks at a time",
    fits: |collective| {
        matches!(
            collective.plain(),
            Collective::AlltoAll | Collective::ReduceScatter
        )
    },
    in_order: |_, _| false,
    build,
    counts,
};

fn build(request: &Request) -> Schedule {
    let (n, me) = (request.ranks, request.rank);
    let items = match request.collective.plain() {
        Collective::ReduceScatter if n == 1 => vec![super::alone()],
        Collective::ReduceScatter => reduce_scatter(n, me),
        _ => all_to_all(n, me),
    };
    Schedule::plain(n, n, items)
}

/// Sends the block of the rank `to` there.
fn give(to: Affine) -> Step {
    Step::copy(Source::Slice(Slice::grain(Input, to))).send(to)
}

fn all_to_all(n: usize, me: usize) -> Vec<Item> {
    let take = |from| Step::copy(Source::Recv(from)).store(Slice::grain(Output, from));
    let (after, before) = (Affine::stepping(me + 1, 1), Affine::stepping(me + n - 1, -1));
    let round = [give(after), give(before), take(before), take(after)];
    let mut items = vec![
        super::keep(me),
        Item::Repeat {
            count: (n as u32 - 1) / 2,
            items: round.map(Item::Step).into(),
        },
    ];
    if n.is_multiple_of(2) {
        let opposite = Affine::fixed((me + n / 2) % n);
        items.extend([give(opposite), take(opposite)].map(Item::Step));
    }
    items
}

fn reduce_scatter(n: usize, me: usize) -> Vec<Item> {
    let own = |buffer| Slice::grain(buffer, Affine::fixed(me));
    let add = |how, sum, from| Step::of(how, [Source::Slice(sum), Source::Recv(from)]).store(own(Output));
    let (next, prev) = (Affine::fixed((me + 1) % n), Affine::fixed((me + n - 1) % n));
    if n == 2 {
        let steps = [give(next), add(How::ReduceLast, own(Input), prev)];
        return steps.map(Item::Step).into();
    }
    let between = [
        give(Affine::stepping(me + 2, 1)),
        add(How::Reduce, own(Output), Affine::stepping(me + n - 2, -1)),
    ];
    vec![
        Item::Step(give(next)),
        Item::Step(add(How::Reduce, own(Input), prev)),
        Item::Repeat {
            count: n as u32 - 3,
            items: between.map(Item::Step).into(),
        },
        Item::Step(give(prev)),
        Item::Step(add(How::ReduceLast, own(Output), next)),
    ]
}

/// All ranks are equally busy.
fn counts(load: &Load) -> Counts {
    if load.ranks == 1 {
        return Counts::ALONE;
    }
    let (ranks, others) = (load.ranks as f64, load.ranks as f64 - 1.0);
    let (block, _) = load.blocks(load.ranks);
    let (rounds, adds) = match load.collective.plain() {
        Collective::ReduceScatter => (others, 1.0),
        _ => ((ranks / 2.0).floor(), 0.0),
    };
    let work = |ranks: f64| Work {
        messages: ranks * 2.0 * others,
        bytes: ranks * 2.0 * others * block,
        spared: 0.0,
        reduced: ranks * adds * others * block,
    };
    Counts {
        rounds,
        peers: others,
        message: block,
        lead: 0.0,
        moved: 0.0,
        general: false,
        busiest: work(1.0),
        all: work(ranks),
    }
}
