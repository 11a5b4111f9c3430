//! k-nomial tree: in each round every rank that has something hands it to k − 1 that have not, or the other way round. With k = 2
//! it is the binomial tree.
//!
//! ceil(log_k(n)) messages one after the other, so that something short is everywhere soonest; but the root is busy with all
//! rounds, and with k − 1 ranks in each. Ranks are counted from the root on: the parent of the v-th is v without its last digit
//! to the base k that is not 0, and its children are v + d·k^j for each digit d and each k^j below the unit of that digit. Of a
//! broadcast and a scatter the farthest child is served first, because the most ranks are behind it.
//!
//! The ranks behind v, with itself, are those from v to before v + that unit: what a gather or a scatter carries for them
//! is one message. Blocks that pass through a rank lie in its scratch memory.
//! A reduction adds a rank's own vector and those of its children in the order of their numbers, in one pass; 16- and 8-bit
//! floats are rounded at each rank.
//!
//! Source: the binomial trees in R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of collective communication
//! operations in MPICH", 2005; with other bases, the k-nomial algorithms of UCC (openucx/ucc, src/components/tl/ucp).

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
    in_order: |_, _| false,
    build: |request| build(request, 2),
    counts: |load| counts(load, 2),
};

pub(super) const KNOMIAL: Algorithm = Algorithm {
    name: "knomial",
    about: "from or to the root in rounds, with four times as many ranks in each (k-nomial tree, k = 4)",
    build: |request| build(request, 4),
    counts: |load| counts(load, 4),
    ..TREE
};

fn build(request: &Request, radix: usize) -> Schedule {
    let place = Place::of(request, radix);
    match request.collective {
        Collective::Reduce { .. } if request.ranks == 1 => Schedule::plain(1, 1, vec![super::alone()]),
        Collective::Reduce { .. } => place.with_vector(place.reduce()),
        Collective::Gather { .. } => place.with_blocks(place.gather()),
        Collective::Scatter { .. } => place.with_blocks(place.scatter()),
        _ => place.with_vector(place.broadcast()),
    }
}

/// The tree over all ranks, counted from the root on.
#[derive(Clone, Copy)]
struct Tree {
    ranks: usize,
    radix: usize,
}

impl Tree {
    /// The unit of the last digit of `v` that is not 0; of 0, which is the root, the first that is at least n.
    fn unit(&self, v: usize) -> usize {
        let Tree { ranks, radix } = *self;
        let mut unit = 1;
        while if v == 0 {
            unit < ranks
        } else {
            v.is_multiple_of(unit * radix)
        } {
            unit *= radix;
        }
        unit
    }

    fn parent(&self, v: usize) -> usize {
        v - v % (self.unit(v) * self.radix)
    }

    /// The children of `v`, the nearest first.
    fn children(&self, v: usize) -> impl DoubleEndedIterator<Item = usize> + use<> {
        let Tree { ranks, radix } = *self;
        (0..self.unit(v).ilog(radix))
            .flat_map(move |level| (1..radix).map(move |digit| v + digit * radix.pow(level)))
            .filter(move |&child| child < ranks)
    }

    /// How many ranks there are from `v` on up to those behind it.
    fn behind(&self, v: usize) -> usize {
        self.unit(v).min(self.ranks - v)
    }
}

/// A rank's place in the tree.
struct Place {
    tree: Tree,
    root: usize,
    /// How far after the root it comes.
    v: usize,
}

impl Place {
    fn of(request: &Request, radix: usize) -> Place {
        let (ranks, me) = (request.ranks, request.rank);
        let root = request.collective.root().map_or(0, |root| root as usize);
        Place {
            tree: Tree { ranks, radix },
            root,
            v: (me + ranks - root) % ranks,
        }
    }

    /// The rank that comes `v` after the root.
    fn rank(&self, v: usize) -> usize {
        (self.root + v) % self.tree.ranks
    }

    fn peer(&self, v: usize) -> Affine {
        Affine::fixed(self.rank(v))
    }

    fn is_root(&self) -> bool {
        self.v == 0
    }

    fn parent(&self) -> Affine {
        self.peer(self.tree.parent(self.v))
    }

    /// Its children, the nearest first.
    fn children(&self) -> impl DoubleEndedIterator<Item = usize> + use<> {
        self.tree.children(self.v)
    }

    /// The blocks of the ranks from `v` on up to those behind it.
    fn blocks(&self, buffer: Buffer, v: usize) -> Slice {
        Slice::run(buffer, self.at(buffer, v), self.tree.behind(v))
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

    /// A schedule with one block.
    fn with_vector(&self, step: Step) -> Schedule {
        Schedule::plain(self.tree.ranks, 1, vec![Item::Step(step)])
    }

    /// A schedule with a block for each rank, and scratch memory if it is used.
    fn with_blocks(&self, steps: Vec<Step>) -> Schedule {
        let uses_scratch = steps
            .iter()
            .any(|step| step.slices().any(|slice| slice.buffer == Scratch));
        let (ranks, items) = (self.tree.ranks, steps.into_iter().map(Item::Step).collect());
        Schedule {
            scratch: if uses_scratch {
                self.tree.behind(self.v) as u32
            } else {
                0
            },
            ..Schedule::plain(ranks, ranks, items)
        }
    }
}

/// The root is the busiest: it has something to do in each round. In a gather or a scatter a rank's message has the blocks of
/// all ranks behind it.
fn counts(load: &Load, radix: usize) -> Counts {
    if load.ranks == 1 {
        return Counts::ALONE;
    }
    let (ranks, others) = (load.ranks, load.ranks as f64 - 1.0);
    let tree = Tree { ranks, radix };
    let rounds = f64::from(tree.unit(0).ilog(radix));
    let children = tree.children(0).count() as f64;
    let (block, _) = load.blocks(ranks);
    if load.collective.has_blocks() {
        let passed: usize = (1..ranks).map(|v| tree.behind(v)).sum();
        let longest = tree.children(0).map(|child| tree.behind(child)).max();
        return Counts {
            rounds,
            peers: children,
            message: block * longest.unwrap_or(0) as f64,
            lead: block * others / (radix as f64 - 1.0),
            moved: 0.0,
            general: false,
            busiest: busiest_of_blocks(tree, block),
            all: Work {
                messages: 2.0 * others,
                bytes: 2.0 * passed as f64 * block,
                spared: 0.0,
                reduced: 0.0,
            },
        };
    }
    let adds = if load.collective.reduces() { 1.0 } else { 0.0 };
    let bytes = load.bytes();
    // A rank tells all its children at once.
    let tells = 1.0 - adds;
    let parents = (0..ranks).filter(|&v| tree.children(v).next().is_some()).count() as f64;
    Counts {
        rounds,
        peers: children,
        message: bytes,
        lead: 0.0,
        moved: 0.0,
        general: false,
        busiest: Work {
            messages: children,
            bytes: children * bytes,
            spared: tells * (children - 1.0) * bytes,
            reduced: adds * children * bytes,
        },
        all: Work {
            reduced: adds * others * bytes,
            spared: tells * (others - parents) * bytes,
            ..super::passed_on(others, bytes)
        },
    }
}

/// The most messages, and the most bytes, of a rank: the root's, but for a child of most, which passes on all it has.
fn busiest_of_blocks(tree: Tree, block: f64) -> Work {
    let mut busiest = Work::NONE;
    // Nobody has more than the root's child with the same unit.
    for v in tree.children(0).chain([0]) {
        let mut work = Work::NONE;
        if v != 0 {
            work.pass(1.0, tree.behind(v) as f64 * block);
        }
        for child in tree.children(v) {
            work.pass(1.0, tree.behind(child) as f64 * block);
        }
        busiest.raise_to(&work);
    }
    busiest
}
