//! Two levels: what ranks of a group can do among themselves they do so, and as little as possible goes between groups.
//!
//! The groups are hosts, inside of which messages cost much less than between two. All-reduce among groups of the same size is
//! done in *rails*: each group reduces and scatters the vector among its ranks, those that have the same place in their groups
//! all-reduce their part, and each group gathers the parts. So all ranks of a host have the same share of what the network
//! carries, which is no more than if each host were one rank.
//!
//! Where groups are of different sizes, and for a barrier, a broadcast and a reduction, each group has a *leader*: the root, or
//! its first rank. Vectors are reduced to the leaders, which carry out the operation among themselves, and the
//! result is broadcast in each group.
//!
//! Each stage is an algorithm of one level ([`super::embed`]): direct exchange among few ranks, halving among many groups and
//! parallel aggregated trees among many ranks of one; a chain among few and a binomial tree among many. `hierarchical-ring` has a
//! ring between groups, unless they are very many. 16- and 8-bit floats are rounded where these do so, and at the end of each stage.
//!
//! All-gather and reduce-scatter have no such form here: the blocks of a group whose ranks do not follow each other are no slice
//! of the vector, and "pat" leaves little to the network.
//!
//! Source: M. Cho et al., "BlueConnect: decomposing all-reduce for deep learning on heterogeneous network hierarchy", 2019;
//! for leaders, N. Karonis et al., "Exploiting hierarchy in parallel computer networks to optimize collective operation
//! performance", 2000.

use super::{
    Algorithm, Request,
    chain::CHAIN,
    direct::DIRECT,
    doubling::DOUBLING,
    embed::{Part, Place},
    halving::HALVING,
    pat::PAT,
    ring::RING,
    tree::TREE,
};
use crate::plan::cost::{Counts, Load};
use crate::plan::groups::{Groups, Seat};
use crate::plan::levels::Levels;
use crate::plan::schedule::{
    Buffer::{self, Input, Output, Scratch},
    Item, Schedule, Step,
};
use crate::types::Collective;

/// How an all-reduce goes between groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Between {
    /// In few rounds.
    Rounds,
    /// Around a ring, unless the groups are too many: the least traffic for any number of groups, in as many rounds as it takes.
    Ring,
}

pub(super) const HIERARCHICAL: Algorithm = Algorithm {
    name: "hierarchical",
    about: "first inside each host, then between hosts, then inside again; the least traffic between hosts",
    fits: |collective| {
        matches!(
            collective,
            Collective::AllReduce
                | Collective::Barrier
                | Collective::Broadcast { .. }
                | Collective::Reduce { .. }
        )
    },
    in_order: |_, _| false,
    build: |request| among(request, &Groups::square(request.ranks), Between::Rounds),
    counts: |load| levels(load, &Groups::square(load.ranks), Between::Rounds).together(),
};

pub(super) const HIERARCHICAL_RING: Algorithm = Algorithm {
    name: "hierarchical-ring",
    about: "the same with rings between up to 64 hosts: the least traffic there for any number, in more rounds",
    fits: |collective| collective == Collective::AllReduce,
    in_order: |_, _| false,
    build: |request| among(request, &Groups::square(request.ranks), Between::Ring),
    counts: |load| levels(load, &Groups::square(load.ranks), Between::Ring).together(),
};

/// Up to so many ranks exchange their blocks directly.
const FEW: usize = 8;

/// Up to so many ranks are a chain.
const CHAINED: usize = 4;

/// Up to so many groups are a ring: each of its turns is a step of the schedule.
const RINGED: usize = 64;

/// How the ranks of a group scatter and gather the vector.
fn exchange(size: usize) -> &'static Algorithm {
    if size <= FEW { &DIRECT } else { &PAT }
}

/// How leaders, or the ranks of a rail, carry out the collective.
fn across(collective: Collective, groups: usize, between: Between) -> &'static Algorithm {
    match collective {
        Collective::AllReduce if between == Between::Ring && groups <= RINGED => &RING,
        Collective::AllReduce if groups <= FEW => &DIRECT,
        Collective::AllReduce => &HALVING,
        Collective::Barrier => &DOUBLING,
        _ => line(groups),
    }
}

/// How a vector goes to one rank or comes from it.
fn line(ranks: usize) -> &'static Algorithm {
    if ranks <= CHAINED { &CHAIN } else { &TREE }
}

/// The number of ranks of each group, if the collective is done in rails.
pub(super) fn rails(collective: Collective, groups: &Groups) -> Option<usize> {
    let size = groups.even().filter(|&size| size > 1 && groups.count() > 1);
    size.filter(|_| collective == Collective::AllReduce)
}

/// The grains of the vector, about, that a proof keeps of each of so many ranks.
pub(super) fn kept(collective: Collective, groups: &Groups, ranks: usize) -> usize {
    match (rails(collective, groups), groups.count()) {
        (Some(_), _) => ranks,
        (None, count) if collective == Collective::AllReduce => count,
        (None, _) => 1,
    }
}

/// A rank's schedule with these groups.
pub(super) fn among(request: &Request, groups: &Groups, between: Between) -> Schedule {
    let writer = Writer {
        request,
        groups,
        between,
        seat: groups.seat(request.rank),
    };
    match rails(request.collective, groups) {
        // Nothing is left to do for one rank in any stage.
        _ if request.ranks == 1 => (across(request.collective, 1, between).build)(request),
        Some(size) => writer.in_rails(size),
        None => writer.by_leaders(),
    }
}

struct Writer<'w> {
    request: &'w Request,
    groups: &'w Groups,
    between: Between,
    seat: Seat,
}

/// Blocks of a part that are grains of the whole, from the first on.
fn grains(buffer: Buffer) -> Place {
    blocks(buffer, 1)
}

/// Blocks of a part that are `width` grains of the whole each.
fn blocks(buffer: Buffer, width: usize) -> Place {
    Place {
        buffer,
        first: 0,
        width,
    }
}

impl Writer<'_> {
    /// A schedule for the rank that has a number among some `ranks`.
    fn flat(&self, algorithm: &Algorithm, collective: Collective, ranks: usize, rank: usize) -> Schedule {
        (algorithm.build)(&Request {
            collective,
            ranks,
            rank,
        })
    }

    /// The vector has a block for each place of a group, and blocks have a grain for each block of the rails' exchange.
    fn in_rails(&self, size: usize) -> Schedule {
        let (groups, Seat { group, place }) = (self.groups, self.seat);
        let algorithm = across(Collective::AllReduce, groups.count(), self.between);
        let rail = self.flat(algorithm, Collective::AllReduce, groups.count(), group);
        let width = rail.blocks as usize;
        let inner = |collective| self.flat(exchange(size), collective, size, place);
        let scatter = inner(Collective::ReduceScatter);
        let neighbours = Part {
            rank: &|place| groups.rank(group, place),
            input: blocks(Input, width),
            output: blocks(Output, width),
            scratch: blocks(Scratch, width),
            completes: false,
        };
        let mut steps = Vec::new();
        neighbours.embed(&scatter, &mut steps);
        let own = Place {
            first: place * width,
            ..grains(Output)
        };
        let along_the_rail = Part {
            rank: &|group| groups.rank(group, place),
            input: own,
            output: own,
            completes: true,
            ..neighbours
        };
        along_the_rail.embed(&rail, &mut steps);
        let gathering = Part {
            input: blocks(Output, width),
            ..neighbours
        };
        gathering.embed(&inner(Collective::AllGather), &mut steps);
        Schedule {
            grains: width as u32,
            scratch: scatter.scratch * width as u32,
            ..self.whole(size, steps)
        }
    }

    /// The vector has the blocks of the leaders' exchange.
    fn by_leaders(&self) -> Schedule {
        let Seat { group, place } = self.seat;
        let (collective, groups) = (self.request.collective, self.groups);
        let (count, size, leader) = (groups.count(), groups.size(group), self.leader(group));
        let root_group = collective
            .root()
            .map_or(0, |root| groups.seat(root as usize).group);
        let rooted = |collective: Collective, root: usize| match collective {
            Collective::Broadcast { .. } => Collective::Broadcast { root: root as u32 },
            Collective::Reduce { .. } => Collective::Reduce { root: root as u32 },
            rootless => rootless,
        };
        let outer = self.flat(
            across(collective, count, self.between),
            rooted(collective, root_group),
            count,
            group,
        );
        let width = outer.blocks as usize;
        let whole = |buffer| blocks(buffer, width);
        // Of a reduction only the root has an output.
        let partial = match collective {
            Collective::Reduce { .. } if group != root_group => Scratch,
            _ => Output,
        };
        let neighbours = Part {
            rank: &|place| groups.rank(group, place),
            input: whole(Input),
            output: whole(partial),
            scratch: whole(Scratch),
            completes: count == 1,
        };
        let inner = |collective| self.flat(line(size), rooted(collective, leader), size, place);
        let (mut steps, mut held) = (Vec::new(), Input);
        if size > 1 && (collective.reduces() || collective == Collective::Barrier) {
            neighbours.embed(&inner(Collective::Reduce { root: 0 }), &mut steps);
            held = partial;
        }
        if count > 1 && place == leader {
            let leaders = Part {
                rank: &|group| groups.rank(group, self.leader(group)),
                input: grains(held),
                output: grains(Output),
                completes: true,
                ..neighbours
            };
            leaders.embed(&outer, &mut steps);
            held = Output;
        }
        if size > 1 && !matches!(collective, Collective::Reduce { .. }) {
            let results = Part {
                input: whole(held),
                output: whole(Output),
                ..neighbours
            };
            results.embed(&inner(Collective::Broadcast { root: 0 }), &mut steps);
        }
        Schedule {
            scratch: if size > 1 && place == leader && partial == Scratch {
                1
            } else {
                0
            },
            ..self.whole(width, steps)
        }
    }

    /// The place of a group's leader.
    fn leader(&self, group: usize) -> usize {
        let root = self.request.collective.root();
        let root = root.map(|root| self.groups.seat(root as usize));
        root.filter(|root| root.group == group)
            .map_or(0, |root| root.place)
    }

    fn whole(&self, blocks: usize, steps: Vec<Step>) -> Schedule {
        let items = steps.into_iter().map(Item::Step).collect();
        Schedule::plain(self.request.ranks, blocks, items)
    }
}

/// What it comes to with these groups. Of a vector whose blocks are not of one length some are counted as the longest, and the
/// busiest rank is as busy as if one were so in each stage.
pub(super) fn levels(load: &Load, groups: &Groups, between: Between) -> Levels {
    if load.ranks == 1 {
        return Levels::ALONE;
    }
    match rails(load.collective, groups) {
        Some(size) => levels_of_rails(load, groups.count(), size, between),
        None => levels_of_leaders(load, groups, between),
    }
}

fn levels_of_rails(load: &Load, groups: usize, size: usize, between: Between) -> Levels {
    let inner = |collective| {
        let load = Load {
            collective,
            ranks: size,
            ..*load
        };
        (exchange(size).counts)(&load)
    };
    let inner = match size <= FEW {
        true => inner(Collective::AllReduce), // both halves at once, exact for short vectors too
        false => inner(Collective::ReduceScatter).then(&inner(Collective::AllGather)),
    };
    let rail = |count| {
        let load = Load {
            ranks: groups,
            count,
            ..*load
        };
        (across(load.collective, groups, between).counts)(&load)
    };
    let (short, longer) = (load.count / size, load.count % size);
    let mut outer = Counts::ALONE;
    if longer > 0 {
        outer = outer.beside(&rail(short + 1).times(longer));
    }
    if short > 0 {
        outer = outer.beside(&rail(short).times(size - longer));
    }
    Levels {
        inner: inner.times(groups),
        outer,
    }
}

fn levels_of_leaders(load: &Load, groups: &Groups, between: Between) -> Levels {
    let stage = |algorithm: &Algorithm, collective, ranks| {
        (algorithm.counts)(&Load {
            collective,
            ranks,
            ..*load
        })
    };
    let collective = load.collective;
    let (reduces, spreads) = (
        collective.reduces() || collective == Collective::Barrier,
        !matches!(collective, Collective::Reduce { .. }),
    );
    let mut inner = Counts::ALONE;
    for group in 0..groups.count() {
        let size = groups.size(group);
        let mut counts = Counts::ALONE;
        if reduces {
            counts = counts.then(&stage(line(size), Collective::Reduce { root: 0 }, size));
        }
        if spreads {
            counts = counts.then(&stage(line(size), Collective::Broadcast { root: 0 }, size));
        }
        inner = inner.beside(&counts);
    }
    Levels {
        inner,
        outer: stage(
            across(collective, groups.count(), between),
            collective,
            groups.count(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::cost::Order;
    use crate::{
        plan::{bounds::Bounds, definition, verify::verify_all},
        types::DType,
    };
    use proptest::prelude::*;

    fn schedules(collective: Collective, groups: &Groups, ranks: usize, between: Between) -> Vec<Schedule> {
        let of = |rank| {
            among(
                &Request {
                    collective,
                    ranks,
                    rank,
                },
                groups,
                between,
            )
        };
        (0..ranks).map(of).collect()
    }

    /// Proves all that fits, with these groups.
    fn prove(groups: &Groups, ranks: usize, root: usize) {
        let forms = [
            (HIERARCHICAL, Between::Rounds),
            (HIERARCHICAL_RING, Between::Ring),
        ];
        let fitting = |(algorithm, between): (Algorithm, Between)| {
            let all = definition::every([root]).into_iter();
            all.filter(move |collective| (algorithm.fits)(*collective))
                .map(move |collective| (collective, between))
        };
        for (collective, between) in forms.into_iter().flat_map(fitting) {
            let what = format!("{collective:?}, {groups:?}, {between:?}");
            let proof = verify_all(collective, &schedules(collective, groups, ranks, between))
                .unwrap_or_else(|flaw| panic!("{what}: {flaw}"));
            let found = proof.certificate;
            let load = Load {
                collective,
                ranks,
                count: found.vector as usize,
                element: 1,
                skew: 0,
                order: Order::Any,
            };
            let counts = levels(&load, groups, between).together();
            assert_eq!(counts.all.messages, 2.0 * proof.messages as f64, "{what}");
            assert_eq!(counts.all.bytes, 2.0 * found.total as f64, "{what}");
            let busiest = found.passed as f64..=2.0 * found.passed as f64;
            assert!(
                busiest.contains(&counts.busiest.bytes) && counts.rounds >= found.chain as f64,
                "{what}: {counts:?} where {found:?}"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn ranks_may_lie_anyhow(labels in prop::collection::vec(0u8..12, 1..60), root in 0usize..60) {
            prove(&Groups::listed(&labels), labels.len(), root % labels.len());
        }

        #[test]
        fn groups_of_one_size_may_lie_anyhow(
            size in 1usize..12, count in 1usize..12, by in 1usize..50, root in 0usize..200,
        ) {
            let ranks = size * count;
            let mut labels: Vec<usize> = (0..ranks).map(|rank| rank / size).collect();
            // Some change places.
            (0..ranks).for_each(|rank| labels.swap(rank, rank * by % ranks));
            let groups = Groups::listed(labels);
            prop_assert_eq!(groups.even(), Some(size));
            prove(&groups, ranks, root % ranks);
        }
    }

    /// Of equal groups no rank passes more than it must, but where groups are many and no power of two; and no more than its
    /// part leaves its group.
    #[test]
    fn rails_are_as_good_as_a_ring() {
        for (size, count) in [(2, 2), (4, 3), (8, 8), (3, 16), (12, 10)] {
            let (ranks, collective) = (size * count, Collective::AllReduce);
            let groups = Groups::Rows { ranks, size };
            for between in [Between::Rounds, Between::Ring] {
                let proof = verify_all(collective, &schedules(collective, &groups, ranks, between)).unwrap();
                let times = proof.certificate.times_passed(&Bounds::of(collective, ranks));
                let most = if between == Between::Ring || count <= FEW || count.is_power_of_two() {
                    1.0
                } else {
                    1.2
                };
                let what = format!("{size} x {count}, {between:?}");
                assert!(
                    (1.0..=most + 1e-9).contains(&times),
                    "{what}: {times} times the least bytes"
                );
                let load = Load::new(collective, ranks, ranks * ranks, DType::Uint8);
                let outer = levels(&load, &groups, between).outer.busiest.bytes;
                assert!(
                    outer <= most * 5.0 * load.bytes() / size as f64,
                    "{what}: {outer}"
                );
            }
        }
    }

    #[test]
    fn few_and_many_of_both_levels() {
        for (size, count) in [(2, 2), (8, 9), (9, 8), (12, 10), (3, 17), (17, 3), (1, 5), (5, 1)] {
            let ranks = size * count;
            prove(&Groups::Rows { ranks, size }, ranks, ranks - 1);
            // One is missing.
            prove(
                &Groups::Rows {
                    ranks: ranks - 1,
                    size,
                },
                ranks - 1,
                0,
            );
        }
    }
}
