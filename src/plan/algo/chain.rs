//! Pipelined chain broadcast: the root sends to the next rank, which stores and passes on.
//!
//! Each rank sends the vector once; the tiles of a call follow each other down the chain, so that a long vector takes
//! about the time of one copy whatever n.
//!
//! Source: the pipelined chain in J. Pjesivac-Grbovic et al., "Performance analysis of MPI collective operations",
//! 2007.

use super::{Algorithm, Request, whole};
use crate::plan::choose;
use crate::plan::cost::{Counts, Load, Work};
use crate::plan::schedule::{
    Affine,
    Buffer::{Input, Output},
    Item, Schedule, Source, Step,
};
use crate::types::Collective;

pub(super) const CHAIN: Algorithm = Algorithm {
    name: "chain",
    about: "each rank passes the vector on to the next, tile by tile",
    fits: |collective| matches!(collective, Collective::Broadcast { .. }),
    build,
    counts,
};

fn build(request: &Request) -> Schedule {
    let (n, me) = (request.ranks, request.rank);
    let root = request.collective.root().map_or(0, |root| root as usize);
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

/// With tiles the ranks' work overlaps, but for the first tile's way to the last rank.
fn counts(load: &Load) -> Counts {
    if load.ranks == 1 {
        return Counts::ALONE;
    }
    let (others, bytes) = (load.ranks as f64 - 1.0, load.bytes());
    let between = others - 1.0;
    let lead = 2.0 * between * choose::tile_bytes(load.count, load.element) as f64;
    // With two ranks the one only sends and the other only receives.
    let messages = 1.0 + between.min(1.0);
    Counts {
        rounds: others,
        peers: 1.0,
        message: bytes,
        lead,
        busiest: Work {
            messages,
            bytes: messages * bytes,
            reduced: 0.0,
        },
        all: super::passed_on(others, bytes),
    }
}
