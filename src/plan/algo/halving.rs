//! Rabenseifner's all-reduce: a reduce-scatter by recursive halving, then an all-gather by recursive doubling.
//!
//! As few rounds as twice those of doubling, and hardly more traffic than a ring's. In each round of the first half a rank
//! gives a partner half of what it still has to reduce, and gets the other half of the partner's; in the second half the
//! parts come back the same way. Each block is reduced at one rank, so that the result has the same bits everywhere; 16- and
//! 8-bit floats are rounded in each round. Where n is no power of two, the first ranks fold in pairs as in doubling.
//!
//! Source: R. Rabenseifner, "Optimization of collective reduction operations", 2004; for other numbers of ranks as in
//! R. Thakur, R. Rabenseifner and W. Gropp, 2005.

use super::{
    Algorithm, Request,
    doubling::{Core, hand_over},
};
use crate::plan::cost::{Counts, Load, Work};
use crate::plan::layout::Layout;
use crate::plan::schedule::{
    Affine,
    Buffer::{self, Input, Output},
    How, Item, Schedule, Slice, Source, Step,
};
use crate::types::Collective;
use std::ops::Range;

pub(super) const HALVING: Algorithm = Algorithm {
    name: "halving",
    about: "partners halve what each has to reduce, then hand results back (Rabenseifner); few rounds and little traffic",
    fits: |collective| collective == Collective::AllReduce,
    in_order: |_, _| false,
    build,
    counts,
};

fn build(request: &Request) -> Schedule {
    let (n, me) = (request.ranks, request.rank);
    if n == 1 {
        return Schedule::plain(1, 1, vec![super::alone()]);
    }
    let core = Core::of(n);
    let blocks = 1 << core.rounds;
    let steps = match core.place(me) {
        Some(place) => exchange(&core, me, place),
        None => hand_over(me - 1, |buffer| part(buffer, &(0..blocks))),
    };
    Schedule::plain(n, blocks, steps.into_iter().map(Item::Step).collect())
}

/// A rank that takes part in the rounds, at `place` among those that do.
fn exchange(core: &Core, me: usize, place: usize) -> Vec<Step> {
    let folded = core.folds(place).then(|| Affine::fixed(me + 1));
    let (mut steps, mut held) = (Vec::new(), Input);
    if let Some(odd) = folded {
        let all = part(Input, &(0..1 << core.rounds));
        let sum = Step::of(How::Reduce, [Source::Slice(all), Source::Recv(odd)]);
        steps.push(sum.store(part(Output, &(0..1 << core.rounds))));
        held = Output;
    }
    let halves = halves(core, place);
    for (round, Half { partner, keep, give }) in halves.iter().enumerate() {
        let peer = Affine::fixed(core.rank(*partner));
        steps.push(Step::copy(Source::Slice(part(held, give))).send(peer));
        let how = if round + 1 == halves.len() {
            How::ReduceLast
        } else {
            How::Reduce
        };
        let sum = Step::of(how, [Source::Slice(part(held, keep)), Source::Recv(peer)]);
        steps.push(sum.store(part(Output, keep)));
        held = Output;
    }
    for Half { partner, keep, give } in halves.iter().rev() {
        let peer = Affine::fixed(core.rank(*partner));
        steps.push(Step::copy(Source::Slice(part(Output, keep))).send(peer));
        steps.push(Step::copy(Source::Recv(peer)).store(part(Output, give)));
    }
    if let Some(odd) = folded {
        let all = part(Output, &(0..1 << core.rounds));
        steps.push(Step::copy(Source::Slice(all)).send(odd));
    }
    steps
}

/// A round: what a rank keeps and what it gives away of the blocks that it had.
struct Half {
    partner: usize,
    keep: Range<usize>,
    give: Range<usize>,
}

/// The rounds of the rank at `place`, in which it comes down to the block with its own number.
fn halves(core: &Core, place: usize) -> Vec<Half> {
    let mut blocks = 0..1usize << core.rounds;
    let half = |_| {
        let middle = blocks.start + blocks.len() / 2;
        let (low, high) = (blocks.start..middle, middle..blocks.end);
        let partner = place ^ low.len();
        let (keep, give) = if place < middle { (low, high) } else { (high, low) };
        blocks = keep.clone();
        Half { partner, keep, give }
    };
    (0..core.rounds).map(half).collect()
}

fn part(buffer: Buffer, blocks: &Range<usize>) -> Slice {
    Slice::run(buffer, Affine::fixed(blocks.start), blocks.len())
}

/// Counted rank by rank, because blocks may differ by an element.
fn counts(load: &Load) -> Counts {
    if load.ranks == 1 {
        return Counts::ALONE;
    }
    let core = Core::of(load.ranks);
    let blocks = 1 << core.rounds;
    let layout = Layout {
        count: load.count,
        blocks,
        grains: 1,
    };
    let bytes = |blocks: &Range<usize>| {
        let (first, last) = (layout.grain(blocks.start), layout.grain(blocks.end - 1));
        ((last.end - first.start) * load.element) as f64
    };
    let whole = load.bytes();
    let mut all = Work::NONE;
    let mut busiest = Work::NONE;
    for place in 0..blocks {
        let mut work = Work::NONE;
        if core.folds(place) {
            work.pass(2.0, whole);
            work.reduced += whole;
            // Its partner's.
            all.pass(2.0, whole);
        }
        for Half { keep, give, .. } in halves(&core, place) {
            let (kept, given) = (bytes(&keep), bytes(&give));
            // Each goes one way in the first half, and the other way in the second.
            work.pass(2.0, kept);
            work.pass(2.0, given);
            work.reduced += kept;
        }
        all.add(&work);
        busiest.raise_to(&work);
    }
    let (rounds, folds) = (core.rounds as f64, f64::from(u8::from(core.pairs > 0)));
    Counts {
        rounds: 2.0 * (rounds + folds),
        peers: rounds + folds,
        message: if core.pairs > 0 { whole } else { whole / 2.0 },
        lead: 0.0,
        moved: 0.0,
        general: false,
        busiest,
        all,
    }
}
