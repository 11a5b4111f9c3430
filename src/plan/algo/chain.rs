//! Pipelined chain: a broadcast's root sends to the next rank, which stores and passes on; in a reduction the last rank before
//! the root begins, and each adds its own vector to what comes and passes on.
//!
//! Each rank sends the vector once; the tiles of a call follow each other down the chain, so that a long vector takes
//! about the time of one copy whatever n.
//!
//! Source: the pipelined chain in J. Pjesivac-Grbovic et al., "Performance analysis of MPI collective operations",
//! 2007.

use super::{Algorithm, Request, whole};
use crate::plan::choose::TileBytes;
use crate::plan::cost::{Counts, Load, Work};
use crate::plan::schedule::{
    Affine,
    Buffer::{Input, Output},
    How, Item, Schedule, Source, Step,
};
use crate::types::Collective;

pub(super) const CHAIN: Algorithm = Algorithm {
    name: "chain",
    about: "each rank passes the vector on to its neighbour, tile by tile",
    fits: |collective| {
        matches!(
            collective,
            Collective::Broadcast { .. } | Collective::Reduce { .. }
        )
    },
    in_order: |_, _| false,
    build,
    counts,
};

fn build(request: &Request) -> Schedule {
    let (n, me) = (request.ranks, request.rank);
    let root = request.collective.root().map_or(0, |root| root as usize);
    if request.collective.reduces() {
        return Schedule::plain(n, 1, vec![reduce(n, me, root)]);
    }
    let source = match me == root {
        true => Source::Slice(whole(Input)),
        false => Source::Recv(Affine::fixed((me + n - 1) % n)),
    };
    let mut step = Step::copy(source).store(whole(Output));
    let next = (me + 1) % n;
    if next != root {
        step = step.send(Affine::fixed(next));
    }
    Schedule::plain(n, 1, vec![Item::Step(step)])
}

/// The vectors are added from the rank before the root back to the one after it, and then to the root's.
fn reduce(n: usize, me: usize, root: usize) -> Item {
    if n == 1 {
        return super::alone();
    }
    let (mine, next, prev) = (
        Source::Slice(whole(Input)),
        Affine::fixed((me + 1) % n),
        Affine::fixed((me + n - 1) % n),
    );
    let is_first = (me + 1) % n == root;
    Item::Step(match (me == root, is_first) {
        (true, _) => Step::of(How::ReduceLast, [mine, Source::Recv(next)]).store(whole(Output)),
        (false, true) => Step::copy(mine).send(prev),
        (false, false) => Step::of(How::Reduce, [mine, Source::Recv(next)]).send(prev),
    })
}

/// With tiles the ranks' work overlaps, but for the first tile's way to the last rank.
fn counts(load: &Load) -> Counts {
    if load.ranks == 1 {
        return Counts::ALONE;
    }
    let (others, bytes) = (load.ranks as f64 - 1.0, load.bytes());
    let between = others - 1.0;
    let adds = if load.collective.reduces() { 1.0 } else { 0.0 };
    let lead = 2.0 * between * TileBytes::SHARED_MEMORY.of_message(load.count, load.element) as f64;
    // With two ranks the one only sends and the other only receives.
    let messages = 1.0 + between.min(1.0);
    Counts {
        rounds: others,
        peers: 1.0,
        message: bytes,
        lead,
        moved: 0.0,
        general: false,
        busiest: Work {
            messages,
            bytes: messages * bytes,
            spared: 0.0,
            reduced: adds * bytes,
        },
        all: Work {
            reduced: adds * others * bytes,
            ..super::passed_on(others, bytes)
        },
    }
}
