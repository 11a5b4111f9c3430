//! One-shot all-reduce: everyone sends its whole vector to everyone, and each rank adds them all.
//!
//! One message deep whatever n, but n times the traffic and the additions of a two-shot: for vectors that are so short that
//! only the rounds count. Every rank adds the n vectors in one pass in the order 0, 1, 2, …, so that the result has the same
//! bits everywhere and 16- and 8-bit floats are rounded once. The step that adds names its n sources; all else is written in
//! the same few words for any n.
//!
//! Source: the one-shot all-reduce of NVIDIA/TensorRT-LLM, cpp/tensorrt_llm/kernels/customAllReduceKernels.cu.

use super::{
    Algorithm, Request,
    direct::{sum, to_others},
    whole,
};
use crate::plan::cost::{Counts, Load, Work};
use crate::plan::schedule::{
    Buffer::{Input, Output},
    Item, Schedule, Source, Step,
};

pub(super) const ONESHOT: Algorithm = Algorithm {
    name: "oneshot",
    about: "everyone sends its vector to everyone, and each rank adds all of them at once; a single round",
    fits: super::reduces_to_all,
    in_order: |_, _| true,
    build,
    counts,
};

fn build(request: &Request) -> Schedule {
    let (n, me) = (request.ranks, request.rank);
    let add = sum(n, me, whole(Input)).store(whole(Output));
    let tell = to_others(Step::copy(Source::Slice(whole(Input))), n, me);
    let items = vec![Item::Step(tell), Item::Step(add)];
    Schedule::plain(n, 1, items)
}

fn counts(load: &Load) -> Counts {
    if load.ranks == 1 {
        return Counts::ALONE;
    }
    let (ranks, others, bytes) = (load.ranks as f64, load.ranks as f64 - 1.0, load.bytes());
    let work = |ranks: f64| Work {
        messages: ranks * 2.0 * others,
        bytes: ranks * 2.0 * others * bytes,
        spared: ranks * (others - 1.0) * bytes,
        reduced: ranks * others * bytes,
    };
    Counts {
        rounds: 1.0,
        peers: others,
        message: bytes,
        lead: 0.0,
        moved: 0.0,
        general: false,
        busiest: work(1.0),
        all: work(ranks),
    }
}
