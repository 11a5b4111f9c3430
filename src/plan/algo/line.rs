//! Rings and chains through one group of ranks after the other, whatever the ranks' numbers: as few of their hops as can be go
//! between groups. Ranks that were dealt out to hosts by turns would else have all of them do so.
//!
//! The schedule is that of the place in the line that a rank has, with its peers by their ranks. Where each rank has a block of its
//! own, so are the blocks; then turns of repeats become steps of their own, since blocks that follow each other in the line need not do so
//! in the vector.

use super::Request;
use crate::plan::schedule::{Affine, Item, LoopVars, Schedule, Slice, Source, Step};
use crate::types::Collective;

/// A rank's schedule by what `build` makes for places in a line; `ranks` are those of the line, in its order. Of one channel, whose
/// peers stay the same in all turns.
pub(super) fn along(request: &Request, ranks: &[usize], build: fn(&Request) -> Schedule) -> Schedule {
    let place = |rank: usize| ranks.iter().position(|&other| other == rank).unwrap_or(rank);
    let collective = request.collective.at_root(|root| place(root as usize) as u32);
    let schedule = build(&Request {
        collective,
        rank: place(request.rank),
        ..*request
    });
    let line = Line {
        ranks,
        has_blocks: matches!(
            collective.plain(),
            Collective::AllGather | Collective::ReduceScatter
        ),
    };
    let channels = schedule.channels.iter();
    let channels = channels.map(|items| line.items(items, &[0; 2], 0)).collect();
    Schedule { channels, ..schedule }
}

struct Line<'l> {
    ranks: &'l [usize],
    /// Whether blocks are those of ranks.
    has_blocks: bool,
}

impl Line<'_> {
    fn items(&self, items: &[Item], vars: &LoopVars, depth: usize) -> Vec<Item> {
        let mut all = Vec::new();
        for item in items {
            match item {
                Item::Step(step) => all.push(Item::Step(self.step(step, vars))),
                Item::Repeat { count, items } if self.has_blocks => {
                    for turn in 0..i64::from(*count) {
                        let mut vars = *vars;
                        vars[depth] = turn;
                        all.extend(self.items(items, &vars, depth + 1));
                    }
                }
                Item::Repeat { count, items } => all.push(Item::Repeat {
                    count: *count,
                    items: self.items(items, vars, depth + 1),
                }),
            }
        }
        all
    }

    fn step(&self, step: &Step, vars: &LoopVars) -> Step {
        let peer = |peer: &Affine| Affine::fixed(self.ranks[peer.at(vars, self.ranks.len())]);
        let slice = |slice: &Slice| match self.has_blocks {
            true => Slice {
                first: Affine::fixed(self.ranks[slice.position(0, vars, self.ranks.len())]),
                ..*slice
            },
            false => *slice,
        };
        let source = |source: &Source| match source {
            Source::Slice(one) => Source::Slice(slice(one)),
            Source::Recv(from) => Source::Recv(peer(from)),
        };
        Step {
            sources: step.sources.iter().map(source).collect(),
            stores: step.stores.iter().map(slice).collect(),
            sends: step.sends.iter().map(peer).collect(),
            ..step.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{
        algo::{Algorithm, chain::CHAIN, ring::RING},
        cost::Order,
        definition,
        groups::Groups,
        verify::verify_in_order,
    };
    use proptest::prelude::*;

    /// Messages of all ranks' first steps that send, by whether they leave their group.
    fn crossings(algorithm: &Algorithm, collective: Collective, groups: &Groups, ranks: usize) -> usize {
        let hops = (0..ranks).flat_map(|rank| {
            let request = Request {
                collective,
                ranks,
                rank,
            };
            let schedule = algorithm.schedule(&request, Some(groups));
            let items = schedule.channels.into_iter().flatten();
            let step = items.filter_map(|item| match item {
                Item::Step(step) => step.sends.first().copied(),
                Item::Repeat { .. } => None,
            });
            step.take(1)
                .map(move |peer| (rank, peer.at(&[0; 2], ranks)))
                .collect::<Vec<_>>()
        });
        hops.filter(|&(from, to)| groups.seat(from).group != groups.seat(to).group)
            .count()
    }

    proptest! {
        #[test]
        fn a_line_through_groups_is_right_and_leaves_each_once(labels in prop::collection::vec(0u8..4, 2..12), root in 0u32..12) {
            let ranks = labels.len();
            let groups = Groups::listed(&labels);
            for collective in definition::every([root as usize % ranks]) {
                for algorithm in [&RING, &CHAIN].into_iter().filter(|one| (one.fits)(collective)) {
                    let of = |rank| {
                        let request = Request { collective, ranks, rank };
                        algorithm.schedule(&request, Some(&groups))
                    };
                    let proof = verify_in_order(collective, ranks, Order::Any, of);
                    prop_assert!(proof.is_ok(), "{collective:?}: {}", proof.unwrap_err());
                    // A chain does not come back, but may begin in the middle of a group.
                    let least = if groups.count() > 1 { groups.count() } else { 0 };
                    prop_assert!(crossings(algorithm, collective, &groups, ranks) <= least);
                }
            }
        }
    }

    #[test]
    fn many_ranks_stand_in_a_line_too() {
        let ranks = 1024;
        let groups = Groups::listed((0..ranks).map(|rank| rank % 128));
        let cases = [
            (&RING, Collective::AllReduce),
            (&CHAIN, Collective::Broadcast { root: 1 }),
        ];
        for (algorithm, collective) in cases {
            let crossings = crossings(algorithm, collective, &groups, ranks);
            assert!(crossings <= 128, "{}: {crossings}", algorithm.name);
        }
    }

    #[test]
    fn ranks_that_stand_in_order_stay() {
        for groups in [
            Groups::Rows { ranks: 6, size: 4 },
            Groups::listed([0, 0, 1, 1, 1, 2]),
        ] {
            for rank in 0..6 {
                let request = Request {
                    collective: Collective::AllGather,
                    ranks: 6,
                    rank,
                };
                assert_eq!(RING.schedule(&request, Some(&groups)), (RING.build)(&request));
            }
        }
    }
}
