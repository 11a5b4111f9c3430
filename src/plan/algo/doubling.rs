//! Recursive doubling all-reduce: in each round a rank exchanges all that it has with a partner twice as far away.
//!
//! log2(n) exchanges of the whole vector: the fewest messages one after the other that an all-reduce can have, and so the
//! choice for short vectors. Where n is no power of two, the first 2·(n − 2^k) ranks first fold in pairs: the odd rank of
//! a pair hands its vector to the even one and gets the result at the end.
//!
//! Groups that meet hold ranks that follow each other, and the lower group's part is always the first source, so that both
//! partners compute the same expression: the result has the same bits on all ranks. 16- and 8-bit floats are rounded
//! in each round. With 2^k ranks that expression is [`Order::Tree`](crate::plan::cost::Order).
//!
//! Partial sums lie in the output, where the next round overwrites them: their messages are copied, which is the
//! cheapest for those that are short.
//!
//! Source: R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of collective communication operations in MPICH", 2005.

use super::{Algorithm, Request, whole};
use crate::plan::cost::{Counts, Load, Work};
use crate::plan::schedule::{
    Affine,
    Buffer::{self, Input, Output},
    How, Item, Schedule, Slice, Source, Step,
};

pub(super) const DOUBLING: Algorithm = Algorithm {
    name: "doubling",
    about: "in each round ranks exchange all they have with a partner twice as far away; the fewest rounds",
    fits: super::reduces_to_all,
    in_order: |ranks, narrow| ranks.is_power_of_two() && !narrow,
    build,
    counts,
};

fn build(request: &Request) -> Schedule {
    let (n, me) = (request.ranks, request.rank);
    if n == 1 {
        return Schedule::plain(1, 1, vec![super::alone()]);
    }
    let core = Core::of(n);
    let steps = match core.place(me) {
        Some(place) => exchange(&core, me, place),
        None => hand_over(me - 1, whole),
    };
    Schedule::plain(n, 1, steps.into_iter().map(Item::Step).collect())
}

/// The odd rank of a pair: gives its vector to `keeper` and gets the result; `vector` is all of a buffer.
pub(super) fn hand_over(keeper: usize, vector: impl Fn(Buffer) -> Slice) -> Vec<Step> {
    let keeper = Affine::fixed(keeper);
    vec![
        Step::copy(Source::Slice(vector(Input))).send(keeper),
        Step::copy(Source::Recv(keeper)).store(vector(Output)),
    ]
}

/// A rank that takes part in the rounds, at `place` among those that do.
fn exchange(core: &Core, me: usize, place: usize) -> Vec<Step> {
    let folded = core.folds(place).then(|| Affine::fixed(me + 1));
    let (input, output) = (Source::Slice(whole(Input)), Source::Slice(whole(Output)));
    let (mut held, mut step) = match folded {
        None => (input, Step::copy(input)),
        Some(odd) => (output, add(How::Reduce, [input, Source::Recv(odd)])),
    };
    let mut steps = Vec::new();
    for round in 0..core.rounds {
        let partner = place ^ 1 << round;
        let peer = Affine::fixed(core.rank(partner));
        steps.push(step.send(peer));
        let mut sources = [held, Source::Recv(peer)];
        if partner < place {
            sources.reverse();
        }
        let last = round + 1 == core.rounds;
        step = add(if last { How::ReduceLast } else { How::Reduce }, sources);
        held = output;
    }
    step.sends.extend(folded);
    steps.push(step);
    steps
}

fn add(how: How, sources: [Source; 2]) -> Step {
    Step::of(how, sources).store(whole(Output))
}

/// The 2^rounds ranks that take part in the rounds, numbered by their *place*: the even rank of each of the first
/// `pairs` pairs, and all ranks beyond those.
pub(super) struct Core {
    pub(super) rounds: usize,
    pub(super) pairs: usize,
}

impl Core {
    pub(super) fn of(ranks: usize) -> Self {
        let rounds = ranks.ilog2() as usize;
        let pairs = ranks - (1 << rounds);
        Core { rounds, pairs }
    }

    /// The place of a rank, unless it is the odd one of a pair.
    pub(super) fn place(&self, rank: usize) -> Option<usize> {
        match rank < 2 * self.pairs {
            true => rank.is_multiple_of(2).then_some(rank / 2),
            false => Some(rank - self.pairs),
        }
    }

    /// Whether another rank has folded its vector into that of the rank at `place`.
    pub(super) fn folds(&self, place: usize) -> bool {
        place < self.pairs
    }

    pub(super) fn rank(&self, place: usize) -> usize {
        place + self.pairs.min(place)
    }
}

/// The busiest are those that others fold into, if there are any.
fn counts(load: &Load) -> Counts {
    if load.ranks == 1 {
        return Counts::ALONE;
    }
    let core = Core::of(load.ranks);
    let (rounds, pairs, bytes) = (core.rounds as f64, core.pairs as f64, load.bytes());
    let folds = pairs.min(1.0);
    let work = |sent: f64, reduced: f64| Work {
        messages: 2.0 * sent,
        bytes: 2.0 * sent * bytes,
        spared: 0.0,
        reduced: reduced * bytes,
    };
    let exchanges = rounds * (load.ranks as f64 - pairs);
    Counts {
        rounds: rounds + 2.0 * folds,
        peers: rounds + folds,
        message: bytes,
        lead: 0.0,
        moved: 0.0,
        general: false,
        busiest: work(rounds + folds, rounds + folds),
        all: work(exchanges + 2.0 * pairs, exchanges + pairs),
    }
}
