//! Tests of the verifier, and with it of every algorithm.

mod certificates;
mod flaws;
mod marks;
mod mutants;
mod ordered;
mod sweep;

use crate::plan::algo::{Algorithm, Request};
use crate::plan::schedule::{Affine, Buffer, How, Item, Schedule, Slice, Source, Step};
use crate::types::Collective;

/// All ranks' schedules.
fn built(algorithm: &Algorithm, collective: Collective, ranks: usize) -> Vec<Schedule> {
    (0..ranks)
        .map(|rank| built_one(algorithm, collective, ranks, rank))
        .collect()
}

fn built_one(algorithm: &Algorithm, collective: Collective, ranks: usize, rank: usize) -> Schedule {
    (algorithm.build)(&Request {
        collective,
        ranks,
        rank,
    })
}

/// A collective and, if it has one, its root.
fn named(collective: Collective) -> String {
    let root = collective
        .root()
        .map_or(String::new(), |root| format!(" from {root}"));
    format!("{}{root}", collective.name())
}

// Shorthand for schedules written by hand.

fn grain(buffer: Buffer, at: usize) -> Slice {
    Slice::grain(buffer, Affine::fixed(at))
}

fn input(at: usize) -> Source {
    Source::Slice(grain(Buffer::Input, at))
}

fn output(at: usize) -> Slice {
    grain(Buffer::Output, at)
}

fn scratch(at: usize) -> Slice {
    grain(Buffer::Scratch, at)
}

fn recv(peer: usize) -> Source {
    Source::Recv(Affine::fixed(peer))
}

fn to(peer: usize) -> Affine {
    Affine::fixed(peer)
}

fn sum(sources: impl IntoIterator<Item = Source>) -> Step {
    Step::of(How::ReduceLast, sources)
}

/// A schedule for each rank, of one channel each.
fn plain<const N: usize>(blocks: usize, ranks: [Vec<Step>; N]) -> Vec<Schedule> {
    ranks
        .into_iter()
        .map(|steps| Schedule::plain(N, blocks, steps.into_iter().map(Item::Step).collect()))
        .collect()
}

/// A schedule for each rank, of several channels each.
fn channels<const N: usize>(blocks: usize, ranks: [Vec<Vec<Step>>; N]) -> Vec<Schedule> {
    ranks
        .into_iter()
        .map(|channels| Schedule {
            channels: channels
                .into_iter()
                .map(|steps| steps.into_iter().map(Item::Step).collect())
                .collect(),
            ..Schedule::plain(N, blocks, vec![])
        })
        .collect()
}

/// Two ranks exchange their vectors and add them: the smallest all-reduce.
fn exchange() -> Vec<Schedule> {
    let of = |me: usize| {
        let sources = if me == 0 {
            [input(0), recv(1)]
        } else {
            [recv(0), input(0)]
        };
        vec![
            Step::copy(input(0)).send(to(1 - me)),
            sum(sources).store(output(0)),
        ]
    };
    plain(1, [of(0), of(1)])
}
