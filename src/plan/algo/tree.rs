//! Binomial tree broadcast: in each round every rank that has the vector sends it to one that has not.
//!
//! ceil(log2(n)) messages one after the other, so that a short vector is everywhere soonest; but the root sends the vector
//! as often. Ranks are counted from the root on: the v-th gets it from v without its lowest bit, and passes it on to
//! v + 2^j for each 2^j below that bit, the farthest first, because the most ranks are behind it.
//!
//! Source: the binomial tree in R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of collective communication
//! operations in MPICH", 2005.

use super::{Algorithm, Request, whole};
use crate::plan::cost::{Counts, Load, Work};
use crate::plan::schedule::{
    Affine,
    Buffer::{Input, Output},
    Item, Schedule, Source, Step,
};
use crate::types::Collective;

pub(super) const TREE: Algorithm = Algorithm {
    name: "tree",
    about: "each rank that has the vector passes it on, twice as many in each round (binomial tree)",
    fits: |collective| matches!(collective, Collective::Broadcast { .. }),
    build,
    counts,
};

fn build(request: &Request) -> Schedule {
    let (n, me) = (request.ranks, request.rank);
    let root = request.collective.root().map_or(0, |root| root as usize);
    let from_root = (me + n - root) % n;
    let rank = |from_root: usize| Affine::fixed((root + from_root) % n);
    let lowest = lowest_bit(from_root, n);
    let source = match from_root {
        0 => Source::Slice(whole(Input)),
        _ => Source::Recv(rank(from_root - lowest)),
    };
    let mut step = Step::copy(source).store(whole(Output));
    let children = (0..lowest.ilog2()).rev().map(|j| from_root + (1 << j));
    step.sends = children.filter(|&child| child < n).map(rank).collect();
    Schedule::plain(n, 1, vec![Item::Step(step)])
}

/// The lowest bit of `v`; of 0, which is the root, the first that is more than all of 0..n.
fn lowest_bit(v: usize, n: usize) -> usize {
    match v {
        0 => n.next_power_of_two(),
        _ => 1 << v.trailing_zeros(),
    }
}

/// The root is the busiest: it sends in each round.
fn counts(load: &Load) -> Counts {
    let rounds = f64::from(load.ranks.next_power_of_two().ilog2());
    let bytes = load.bytes();
    Counts {
        rounds,
        peers: rounds,
        message: bytes,
        lead: 0.0,
        busiest: Work {
            messages: rounds,
            bytes: rounds * bytes,
            reduced: 0.0,
        },
        all: super::passed_on(load.ranks as f64 - 1.0, bytes),
    }
}
