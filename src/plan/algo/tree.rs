//! Binomial tree: in each round every rank that has something hands it to one that has not, or the other way round.
//!
//! ceil(log2(n)) messages one after the other, so that something short is everywhere soonest; but the root is busy with all
//! rounds. Ranks are counted from the root on: the parent of the v-th is v without its lowest bit, and its children are
//! v + 2^j for each 2^j below that bit. Of a broadcast and a scatter the farthest child is served first, because the most
//! ranks are behind it.
//!
//! The ranks behind v, with itself, are those from v to before v + its lowest bit: what a gather or a scatter carries for them
//! is one message. Blocks that pass through a rank lie in its scratch memory.
//! A reduction adds a rank's own vector and those of its children in the order of their numbers, in one pass; 16- and 8-bit
//! floats are rounded at each rank.
//!
//! Source: the binomial trees in R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of collective communication
//! operations in MPICH", 2005.

use super::{Algorithm, Request, whole};
use crate::plan::cost::{Counts, Load, Work};
use crate::plan::schedule::{
    Affine,
    Buffer::{self, Input, Output, Scratch},
    How, Item, Schedule, Slice, Source, Step,
};
use crate::types::Collective;

pub(super) const TREE: Algorithm = Algorithm {
    name: "tree",
    about: "from or to the root in rounds, with twice as many ranks in each (binomial tree)",
    // Of blocks that are not equally long the ranks between know no lengths.
    fits: |collective| collective.root().is_some() && !collective.has_given_blocks(),
    build,
    counts,
};

fn build(request: &Request) -> Schedule {
    let place = Place::of(request);
    match request.collective {
        Collective::Reduce { .. } if place.ranks == 1 => Schedule::plain(1, 1, vec![super::alone()]),
        Collective::Reduce { .. } => Schedule::plain(place.ranks, 1, vec![Item::Step(place.reduce())]),
        Collective::Gather { .. } => place.with_blocks(place.gather()),
        Collective::Scatter { .. } => place.with_blocks(place.scatter()),
        _ => Schedule::plain(place.ranks, 1, vec![Item::Step(place.broadcast())]),
    }
}

/// A rank's place in the tree.
struct Place {
    ranks: usize,
    root: usize,
    /// How far after the root it comes.
    v: usize,
    /// The lowest bit of `v`.
    lowest: usize,
}

impl Place {
    fn of(request: &Request) -> Place {
        let (ranks, me) = (request.ranks, request.rank);
        let root = request.collective.root().map_or(0, |root| root as usize);
        let v = (me + ranks - root) % ranks;
        let lowest = lowest_bit(v, ranks);
        Place {
            ranks,
            root,
            v,
            lowest,
        }
    }

    /// The rank that comes `v` after the root.
    fn rank(&self, v: usize) -> usize {
        (self.root + v) % self.ranks
    }

    fn peer(&self, v: usize) -> Affine {
        Affine::fixed(self.rank(v))
    }

    fn is_root(&self) -> bool {
        self.v == 0
    }

    fn parent(&self) -> Affine {
        self.peer(self.v - self.lowest)
    }

    /// Its children, the nearest first.
    fn children(&self) -> impl DoubleEndedIterator<Item = usize> {
        let (v, ranks) = (self.v, self.ranks);
        (0..self.lowest.ilog2())
            .map(move |j| v + (1 << j))
            .filter(move |&child| child < ranks)
    }

    /// The blocks of the ranks from `v` on up to those behind it.
    fn blocks(&self, buffer: Buffer, v: usize) -> Slice {
        Slice::run(buffer, self.at(buffer, v), behind(v, self.ranks))
    }

    fn own(&self, buffer: Buffer) -> Slice {
        Slice::grain(buffer, self.at(buffer, self.v))
    }

    /// Where the block of the rank at `v` lies. Scratch memory has the blocks of this rank and those behind it.
    fn at(&self, buffer: Buffer, v: usize) -> Affine {
        match buffer {
            Scratch => Affine::fixed(v - self.v),
            Input | Output => self.peer(v),
        }
    }

    fn broadcast(&self) -> Step {
        let source = match self.is_root() {
            true => Source::Slice(whole(Input)),
            false => Source::Recv(self.parent()),
        };
        let mut step = Step::copy(source).store(whole(Output));
        step.sends = self.children().rev().map(|child| self.peer(child)).collect();
        step
    }

    fn reduce(&self) -> Step {
        let theirs = self.children().map(|child| Source::Recv(self.peer(child)));
        let sources: Vec<_> = [Source::Slice(whole(Input))].into_iter().chain(theirs).collect();
        match (self.is_root(), sources.len()) {
            (true, _) => Step::of(How::ReduceLast, sources).store(whole(Output)),
            (false, 1) => Step::copy(sources[0]).send(self.parent()),
            (false, _) => Step::of(How::Reduce, sources).send(self.parent()),
        }
    }

    /// What is behind each child, and its own block, go to the parent as one message.
    fn gather(&self) -> Vec<Step> {
        let into = if self.is_root() { Output } else { Scratch };
        if !self.is_root() && self.children().next().is_none() {
            return vec![Step::copy(Source::Slice(self.own(Input))).send(self.parent())];
        }
        let mut steps = vec![Step::copy(Source::Slice(self.own(Input))).store(self.own(into))];
        steps.extend(
            self.children()
                .map(|child| Step::copy(Source::Recv(self.peer(child))).store(self.blocks(into, child))),
        );
        if !self.is_root() {
            steps.push(Step::copy(Source::Slice(self.blocks(Scratch, self.v))).send(self.parent()));
        }
        steps
    }

    /// What is for the ranks behind comes from the parent as one message, and is handed on to the children.
    fn scatter(&self) -> Vec<Step> {
        let from = if self.is_root() { Input } else { Scratch };
        if !self.is_root() && self.children().next().is_none() {
            return vec![Step::copy(Source::Recv(self.parent())).store(self.own(Output))];
        }
        let mut steps = Vec::new();
        if !self.is_root() {
            steps.push(Step::copy(Source::Recv(self.parent())).store(self.blocks(Scratch, self.v)));
        }
        steps.extend(
            self.children()
                .rev()
                .map(|child| Step::copy(Source::Slice(self.blocks(from, child))).send(self.peer(child))),
        );
        steps.push(Step::copy(Source::Slice(self.own(from))).store(self.own(Output)));
        steps
    }

    /// A schedule with a block for each rank, and scratch memory if it is used.
    fn with_blocks(&self, steps: Vec<Step>) -> Schedule {
        let uses_scratch = steps
            .iter()
            .any(|step| step.slices().any(|slice| slice.buffer == Scratch));
        Schedule {
            scratch: if uses_scratch {
                behind(self.v, self.ranks) as u32
            } else {
                0
            },
            ..Schedule::plain(
                self.ranks,
                self.ranks,
                steps.into_iter().map(Item::Step).collect(),
            )
        }
    }
}

/// How many ranks there are from `v` on up to those behind it.
fn behind(v: usize, ranks: usize) -> usize {
    lowest_bit(v, ranks).min(ranks - v)
}

/// The lowest bit of `v`; of 0, which is the root, the first that is more than all of 0..n.
fn lowest_bit(v: usize, n: usize) -> usize {
    match v {
        0 => n.next_power_of_two(),
        _ => 1 << v.trailing_zeros(),
    }
}

/// The root is the busiest: it has something to do in each round. In a gather or a scatter a rank's message has the blocks of
/// all ranks behind it.
fn counts(load: &Load) -> Counts {
    if load.ranks == 1 {
        return Counts::ALONE;
    }
    let (ranks, others) = (load.ranks, load.ranks as f64 - 1.0);
    let rounds = f64::from(ranks.next_power_of_two().ilog2());
    let (block, _) = load.blocks(ranks);
    if load.collective.has_blocks() {
        let passed: usize = (1..ranks).map(|v| behind(v, ranks)).sum();
        return Counts {
            rounds,
            peers: rounds,
            message: block * behind(ranks.next_power_of_two() / 2, ranks) as f64,
            lead: block * others,
            busiest: busiest_of_blocks(ranks, block),
            all: Work {
                messages: 2.0 * others,
                bytes: 2.0 * passed as f64 * block,
                reduced: 0.0,
            },
        };
    }
    let adds = if load.collective.reduces() { 1.0 } else { 0.0 };
    let bytes = load.bytes();
    Counts {
        rounds,
        peers: rounds,
        message: bytes,
        lead: 0.0,
        busiest: Work {
            messages: rounds,
            bytes: rounds * bytes,
            reduced: adds * rounds * bytes,
        },
        all: Work {
            reduced: adds * others * bytes,
            ..super::passed_on(others, bytes)
        },
    }
}

/// The most messages, and the most bytes, of a rank: the root's, but for the child of most, which passes on all it has.
fn busiest_of_blocks(ranks: usize, block: f64) -> Work {
    let of = |v: usize| {
        let lowest = lowest_bit(v, ranks);
        let children = (0..lowest.ilog2())
            .map(|j| v + (1 << j))
            .filter(|&child| child < ranks);
        let passed: Vec<usize> = children.map(|child| behind(child, ranks)).collect();
        let up = if v == 0 { (0, 0) } else { (1, behind(v, ranks)) };
        (up.0 + passed.len(), up.1 + passed.iter().sum::<usize>())
    };
    // Beyond the root's first child nobody has more than it.
    let candidates =
        [0, ranks.next_power_of_two() / 2, ranks.next_power_of_two() / 4].map(|v| of(v.min(ranks - 1)));
    let most = |pick: fn(&(usize, usize)) -> usize| candidates.iter().map(pick).max().unwrap_or(0) as f64;
    Work {
        messages: most(|one| one.0),
        bytes: most(|one| one.1) * block,
        reduced: 0.0,
    }
}
