//! The algorithms: one file each, pure functions that write schedules, and the registry that names them.

mod bruck;
mod chain;
mod direct;
mod doubletree;
mod doubling;
mod embed;
mod halving;
mod hierarchical;
mod line;
mod oneshot;
mod pairwise;
mod pat;
mod ring;
mod tree;

use super::cost::{Counts, Load, Machine, Order, Parts, Work};
use super::groups::Groups;
use super::levels::Levels;
use super::schedule::{Affine, Buffer, How, Item, Schedule, Slice, Source, Step};
use super::verify::EXACT;
use crate::types::Collective;
use hierarchical::Between;

/// What an algorithm is asked for: one rank's schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    pub(crate) collective: Collective,
    pub(crate) ranks: usize,
    pub(crate) rank: usize,
}

/// An algorithm, by its name.
#[derive(Debug)]
pub(crate) struct Algorithm {
    /// As `--algo` and the configuration take it.
    pub(crate) name: &'static str,
    /// One line for listings.
    pub(crate) about: &'static str,
    /// Whether it can carry out a collective.
    pub(crate) fits: fn(Collective) -> bool,
    /// Whether its reductions among so many ranks are in one order for all elements: [`Order::Tree`], narrow or not.
    pub(crate) in_order: fn(ranks: usize, narrow: bool) -> bool,
    /// Writes a rank's schedule where nothing is known of groups. Any number of ranks ≥ 1.
    pub(crate) build: fn(&Request) -> Schedule,
    /// What that comes to in a call: exactly what the schedules of all ranks do, tiles left aside.
    pub(crate) counts: fn(&Load) -> Counts,
}

impl Algorithm {
    /// A rank's schedule where the ranks lie in `groups`, if it is known that they do.
    pub(crate) fn schedule(&self, request: &Request, groups: Option<&Groups>) -> Schedule {
        let Some(groups) = self.concerned(groups) else {
            return (self.build)(request);
        };
        match (self.between(), groups.line()) {
            (Some(between), _) => hierarchical::among(request, groups, between),
            (None, Some(line)) => line::along(request, line, self.build),
            (None, None) => (self.build)(request),
        }
    }

    /// The groups, if schedules depend on them: those of hierarchies, and of chains, and rings of not so many ranks that the proof
    /// would take long, where ranks do not stand in the groups' order.
    pub(crate) fn concerned<'g>(&self, groups: Option<&'g Groups>) -> Option<&'g Groups> {
        let is = |other: &Algorithm| self.name == other.name;
        let turns = |line: &[usize]| is(&chain::CHAIN) || is(&ring::RING) && line.len() <= MOST_IN_LINE;
        groups.filter(|groups| self.knows_groups() || groups.line().is_some_and(turns))
    }

    /// What that comes to on a machine, and how long it takes there.
    pub(crate) fn predicted(&self, load: &Load, machine: &Machine) -> (Counts, Parts) {
        if let Some(levels) = self.levels(load, machine.groups()) {
            return (levels.together(), machine.predict_levels(load, &levels));
        }
        let counts = (self.counts)(load).skewed(load);
        (counts, machine.predict(load, &counts))
    }

    /// What a call by a hierarchy comes to, inside groups and between them; none of other algorithms.
    pub(in crate::plan) fn levels(&self, load: &Load, groups: Option<&Groups>) -> Option<Levels> {
        let between = self.between()?;
        let square = Groups::square(load.ranks);
        Some(hierarchical::levels(load, groups.unwrap_or(&square), between))
    }

    /// Whether the proof for a call is short: it is made by each process. Where all ranks' schedules differ and cut the vector into
    /// as many parts as there are ranks it takes n² steps, or, of hierarchies, as much memory.
    pub(crate) fn is_proved_soon(&self, load: &Load, groups: Option<&Groups>) -> bool {
        let is = |other: &Algorithm| self.name == other.name;
        if is(&halving::HALVING) || is(&hierarchical::HIERARCHICAL_RING) {
            return load.ranks <= EXACT;
        }
        let groups = groups.filter(|_| is(&hierarchical::HIERARCHICAL));
        groups.is_none_or(|groups| {
            load.ranks * hierarchical::kept(load.collective, groups, load.ranks) <= MOST_KEPT
        })
    }

    /// Its place in [`ALGORITHMS`].
    pub(crate) fn number(&self) -> u8 {
        let at = ALGORITHMS.iter().position(|other| other.name == self.name);
        at.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX)
    }

    /// Whether its time depends on which ranks are near each other. Where nothing is known of that, such an algorithm works, but
    /// has no advantage.
    pub(crate) fn knows_groups(&self) -> bool {
        self.between().is_some()
    }

    /// How a hierarchical algorithm goes between groups.
    fn between(&self) -> Option<Between> {
        let forms = [
            (hierarchical::HIERARCHICAL, Between::Rounds),
            (hierarchical::HIERARCHICAL_RING, Between::Ring),
        ];
        let form = forms
            .into_iter()
            .find(|(algorithm, _)| algorithm.name == self.name);
        form.map(|(_, between)| between)
    }
}

/// Ranks of a ring that does not go by their numbers. Its proof takes n² steps: 0.8 s of 512 ranks, 4.5 of 1,024, 20 of 2,048.
const MOST_IN_LINE: usize = 1024;

/// Grains of all ranks that the proof of a hierarchical all-reduce keeps, of 40 bytes: n² of n ranks in rails, of which it takes 1.1 s and 60 MB
/// of 1,024, 4 s and 250 MB of 2,048, and would take 2.7 GB of 8,192, in each process of a host at once; else n for each group.
const MOST_KEPT: usize = 2048 * 2048;

/// Every algorithm, in the order in which those that are about as fast are preferred: fewer roundings first.
pub(crate) const ALGORITHMS: &[Algorithm] = &[
    doubling::DOUBLING,
    oneshot::ONESHOT,
    direct::DIRECT,
    pairwise::PAIRWISE,
    ring::RING,
    halving::HALVING,
    bruck::BRUCK,
    pat::PAT,
    tree::TREE,
    tree::KNOMIAL,
    chain::CHAIN,
    doubletree::DOUBLETREE,
    hierarchical::HIERARCHICAL,
    hierarchical::HIERARCHICAL_RING,
];

/// The algorithms that can carry out `collective`.
pub(crate) fn fitting(collective: Collective) -> impl Iterator<Item = &'static Algorithm> {
    ALGORITHMS
        .iter()
        .filter(move |algorithm| (algorithm.fits)(collective))
}

/// Those of them that do `load` in the order that it asks for.
pub(crate) fn able(load: &Load) -> impl Iterator<Item = &'static Algorithm> {
    let (ranks, order) = (load.ranks, load.order);
    fitting(load.collective).filter(move |algorithm| match order {
        Order::Any => true,
        Order::Tree { narrow } => (algorithm.in_order)(ranks, narrow),
    })
}

/// The algorithms that combine contributions, and never in one order for all elements.
pub(crate) fn has_no_order(algorithm: &Algorithm) -> bool {
    let reducing = [
        Collective::AllReduce,
        Collective::Reduce { root: 0 },
        Collective::ReduceScatter,
    ];
    reducing.into_iter().any(algorithm.fits) && !(algorithm.in_order)(2, false)
}

/// The collectives that end with the reduction of all inputs everywhere.
fn reduces_to_all(collective: Collective) -> bool {
    matches!(collective, Collective::AllReduce | Collective::Barrier)
}

/// The whole vector in `buffer`, of a schedule with one block.
fn whole(buffer: Buffer) -> Slice {
    Slice::grain(buffer, Affine::fixed(0))
}

/// The work of all ranks when `others` of them get the vector from another rank.
fn passed_on(others: f64, bytes: f64) -> Work {
    Work {
        messages: 2.0 * others,
        bytes: 2.0 * others * bytes,
        spared: 0.0,
        reduced: 0.0,
    }
}

/// The only step of an all-reduce among one rank.
fn alone() -> Item {
    Item::Step(Step::of(How::ReduceLast, [Source::Slice(whole(Buffer::Input))]).store(whole(Buffer::Output)))
}

/// From block `me` of the input to that of the output.
fn keep(me: usize) -> Item {
    Item::Step(keep_step(me))
}

fn keep_step(me: usize) -> Step {
    let own = |buffer| Slice::grain(buffer, Affine::fixed(me));
    Step::copy(Source::Slice(own(Buffer::Input))).store(own(Buffer::Output))
}

/// Whether ranks that are a power of two apart may exchange in pairs, so that credits go with messages the other way. Of more ranks
/// schedules are rather turned copies of each other, of which one is proved and simulated for all.
pub(in crate::plan) fn is_paired(n: usize) -> bool {
    n.is_power_of_two() && n <= MOST_PAIRED
}

/// The ranks `distance`, a power of two, after and before `me`; of ranks [in pairs](is_paired) both are the one at which that bit differs.
fn partners(n: usize, me: usize, distance: usize) -> (usize, usize) {
    match is_paired(n) {
        true => (me ^ distance, me ^ distance),
        false => ((me + distance) % n, (me + n - distance) % n),
    }
}

const MOST_PAIRED: usize = 64;

/// `step`, `count` times.
fn repeat(count: usize, step: Step) -> Item {
    Item::Repeat {
        count: count as u32,
        items: vec![Item::Step(step)],
    }
}
