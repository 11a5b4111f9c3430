//! [`share`]: how the ranks of a machine share its processors.

use super::quota::Quota;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, VecDeque},
    path::Path,
};

/// What a rank may use of its machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Allowance {
    /// The processors: bit `i % 8` of byte `i / 8`.
    pub(crate) cpus: Vec<u8>,
    /// How much time on them, that of its own control group first.
    pub(crate) quotas: Vec<Quota>,
    /// The NUMA node that has all of the processors, where there are several nodes.
    pub(crate) node: Option<u16>,
}

impl Allowance {
    /// This thread's.
    pub(crate) fn here() -> Self {
        let (root, cpus) = (Path::new("/"), crate::sys::host::usable_cpus());
        Allowance {
            quotas: super::quota::quotas(root),
            node: super::numa::node_of(root, &cpus),
            cpus,
        }
    }

    /// How many processors there are.
    pub(crate) fn cpus(&self) -> usize {
        self.cpus.iter().map(|byte| byte.count_ones() as usize).sum()
    }
}

/// With whom a rank shares what it may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Crowd {
    /// With nobody: it has a processor of its own, all the time.
    Alone,
    /// It shares a processor with other ranks.
    Processor,
    /// It shares the time that a quota leaves: whoever waits awake takes it from the others, on whatever processor.
    Time,
}

/// How ranks share a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Share {
    /// Processors for all ranks together: fewer than ranks exactly where some are crowded, and at least 1.
    pub(crate) cores: usize,
    /// Of each rank, whether there is no way to give it a processor of its own, all the time, without taking that of another.
    pub(crate) crowds: Vec<Crowd>,
    /// Of each rank that shares processors, on which of them it begins: each has as many ranks, and neighbours are together.
    pub(crate) starts: Vec<Option<u16>>,
}

/// How these ranks share their machine.
pub(crate) fn share(ranks: &[&Allowance]) -> Share {
    let (mut sharing, mut short) = (vec![false; ranks.len()], vec![false; ranks.len()]);
    let seated = seat(ranks, &mut sharing);
    let timed = give_time(ranks, |_| WHOLE, &mut short);
    let crowd = |(&sharing, &short): (&bool, &bool)| match (sharing, short) {
        (_, true) => Crowd::Time,
        (true, false) => Crowd::Processor,
        (false, false) => Crowd::Alone,
    };
    let crowds: Vec<Crowd> = sharing.iter().zip(&short).map(crowd).collect();
    let cores = if crowds.iter().any(|&crowd| crowd != Crowd::Alone) {
        seated.min((timed / WHOLE) as usize)
    } else {
        let mut all: Vec<u8> = Vec::new();
        for rank in ranks {
            all.resize(all.len().max(rank.cpus.len()), 0);
            all.iter_mut().zip(&rank.cpus).for_each(|(all, one)| *all |= one);
        }
        let cpus: u32 = all.iter().map(|byte| byte.count_ones()).sum();
        let of_own = |rank: &Allowance| WHOLE * rank.cpus() as u64;
        let time = give_time(ranks, of_own, &mut short);
        (cpus as usize).min((time / WHOLE) as usize)
    };
    Share {
        cores: cores.max(1),
        starts: spread(ranks, &crowds),
        crowds,
    }
}

/// A processor for each rank that shares some.
fn spread(ranks: &[&Allowance], crowds: &[Crowd]) -> Vec<Option<u16>> {
    let mut starts = vec![None; ranks.len()];
    for (cpus, ranks) in kinds(ranks) {
        for (i, &rank) in ranks.iter().enumerate() {
            if crowds[rank] == Crowd::Processor {
                let cpu = cpus.get(i * cpus.len() / ranks.len());
                starts[rank] = cpu.and_then(|&cpu| u16::try_from(cpu).ok());
            }
        }
    }
    starts
}

/// Each set of processors that ranks may use, and these ranks.
fn kinds(ranks: &[&Allowance]) -> Vec<(Vec<usize>, Vec<usize>)> {
    let mut kinds: BTreeMap<&[u8], Vec<usize>> = BTreeMap::new();
    for (rank, allowance) in ranks.iter().enumerate() {
        kinds.entry(&allowance.cpus).or_default().push(rank);
    }
    kinds
        .into_iter()
        .map(|(mask, ranks)| {
            let cpus = (0..8 * mask.len()).filter(|cpu| mask[cpu / 8] >> (cpu % 8) & 1 == 1);
            (cpus.collect(), ranks)
        })
        .collect()
}

/// How many ranks can have a processor of their own at once. Marks those that share: a rank that finds no way to a free
/// processor, and all whose processor it might have instead.
///
/// Source: bipartite matching by augmenting paths (Kuhn 1955), between processors and ranks of equal masks.
fn seat(ranks: &[&Allowance], crowded: &mut [bool]) -> usize {
    let kinds = kinds(ranks);
    let most = kinds.iter().filter_map(|(cpus, _)| cpus.last()).max();
    let mut holders: Vec<Option<usize>> = vec![None; most.map_or(0, |last| last + 1)];
    let mut seated = 0;
    for (kind, (_, ranks)) in kinds.iter().enumerate() {
        for _ in ranks {
            match path(kind, &kinds, &holders) {
                Ok(path) => {
                    for (cpu, kind) in path {
                        holders[cpu] = Some(kind);
                    }
                    seated += 1;
                }
                Err(met) => {
                    let ranks = met.into_iter().flat_map(|kind| &kinds[kind].1);
                    ranks.for_each(|&rank| crowded[rank] = true);
                    break; // no other of its kind finds more
                }
            }
        }
    }
    seated
}

/// Which processors go to which kinds so that one more of `kind` has one; or else the kinds that were met.
fn path(
    kind: usize,
    kinds: &[(Vec<usize>, Vec<usize>)],
    holders: &[Option<usize>],
) -> Result<Vec<(usize, usize)>, Vec<usize>> {
    // Of each processor that was met the kind that would have it, of each kind the processor that it would give for that.
    let mut takers = vec![None; holders.len()];
    let mut gives = BTreeMap::from([(kind, None)]);
    let mut queue = VecDeque::from([kind]);
    while let Some(taker) = queue.pop_front() {
        for &cpu in &kinds[taker].0 {
            if takers[cpu].is_some() {
                continue;
            }
            takers[cpu] = Some(taker);
            let Some(holder) = holders[cpu] else {
                let (mut path, mut next) = (Vec::new(), Some(cpu));
                while let Some(cpu) = next
                    && let Some(taker) = takers[cpu]
                {
                    path.push((cpu, taker));
                    next = gives[&taker];
                }
                return Ok(path);
            };
            gives.entry(holder).or_insert_with(|| {
                queue.push_back(holder);
                Some(cpu)
            });
        }
    }
    Err(gives.into_keys().collect())
}

/// Thousandths of processors that the quotas leave the ranks, each of which uses so many at most. Marks those that get less,
/// and all of the group whose quota is used up by then.
///
/// One after the other takes what is left: as groups lie within each other, that is the most for all together.
fn give_time(ranks: &[&Allowance], most: impl Fn(&Allowance) -> u64, crowded: &mut [bool]) -> u64 {
    let mut left: BTreeMap<[u64; 2], u64> = BTreeMap::new();
    for quota in ranks.iter().flat_map(|rank| &rank.quotas) {
        let least = left.entry(quota.group).or_insert(quota.thousandths);
        *least = quota.thousandths.min(*least);
    }
    let (mut all, mut short) = (0u64, Vec::new());
    for (i, rank) in ranks.iter().enumerate() {
        let wanted = most(rank);
        let groups = || rank.quotas.iter().map(|quota| quota.group);
        let got = groups()
            .map(|group| left[&group])
            .min()
            .unwrap_or(wanted)
            .min(wanted);
        for group in groups() {
            left.entry(group)
                .and_modify(|left| *left = left.saturating_sub(got));
        }
        if got < wanted {
            crowded[i] = true;
            short.extend(groups().find(|group| left[group] == 0));
        }
        all += got;
    }
    for (rank, crowded) in ranks.iter().zip(crowded) {
        *crowded |= rank.quotas.iter().any(|quota| short.contains(&quota.group));
    }
    all
}

/// Thousandths of a processor.
const WHOLE: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rank(cpus: &[usize], quotas: &[(u64, u64)]) -> Allowance {
        let mut mask = vec![0; 2];
        cpus.iter().for_each(|cpu| mask[cpu / 8] |= 1 << (cpu % 8));
        Allowance {
            cpus: mask,
            quotas: (quotas.iter())
                .map(|&(group, thousandths)| Quota {
                    group: [0, group],
                    thousandths,
                })
                .collect(),
            node: None,
        }
    }

    fn shared(ranks: &[Allowance]) -> (usize, Vec<usize>) {
        let share = share(&ranks.iter().collect::<Vec<_>>());
        let crowded = crowded(&share);
        (
            share.cores,
            (0..ranks.len()).filter(|&rank| crowded[rank]).collect(),
        )
    }

    fn crowded(share: &Share) -> Vec<bool> {
        share.crowds.iter().map(|&crowd| crowd != Crowd::Alone).collect()
    }

    #[test]
    fn by_processors() {
        let two = [0, 1];
        assert_eq!(shared(&[rank(&two, &[]), rank(&two, &[])]), (2, vec![]));
        assert_eq!(shared(&[rank(&[1], &[]), rank(&[0], &[])]), (2, vec![]));
        assert_eq!(shared(&[rank(&[0], &[]), rank(&[0], &[])]), (1, vec![0, 1]));
        // Four in a set of two of a larger machine.
        assert_eq!(
            shared(&[4; 4].map(|cpu| rank(&[cpu, cpu + 5], &[]))),
            (2, vec![0, 1, 2, 3])
        );
        // The last has processor 1 for itself, whoever came first; those of another machine's part are not concerned.
        let pinned = || rank(&[0], &[]);
        assert_eq!(
            shared(&[rank(&two, &[]), pinned(), pinned(), rank(&[7, 8], &[])]),
            (3, vec![1, 2])
        );
        // 0 and 1 could make room for one another, but there are three for two.
        let ranks = [rank(&[0], &[]), rank(&[0, 1], &[]), rank(&[1], &[])];
        assert_eq!(shared(&ranks), (2, vec![0, 1, 2]));
        assert_eq!(shared(&[rank(&[3, 4, 5, 6], &[])]), (4, vec![]));
        assert_eq!(shared(&[rank(&[], &[])]), (1, vec![0]));
    }

    #[test]
    fn by_time() {
        let four = [0, 1, 2, 3];
        let of = |quotas: &[(u64, u64)]| rank(&four, quotas);
        // A container of two ranks that has one processor's time, or nearly two, or two.
        for (quota, cores, crowded) in [(1000, 1, vec![0, 1]), (1999, 1, vec![0, 1]), (2000, 2, vec![])] {
            assert_eq!(
                shared(&[of(&[(1, quota)]), of(&[(1, quota)])]),
                (cores, crowded),
                "{quota}"
            );
        }
        // Who has less than one processor's time is not helped by a processor of its own.
        let ranks = [of(&[(1, 1000)]), rank(&[7], &[]), rank(&[7], &[])];
        let found = share(&ranks.iter().collect::<Vec<_>>());
        assert_eq!(found.crowds, [Crowd::Alone, Crowd::Processor, Crowd::Processor]);
        assert_eq!(share(&[&of(&[(1, 999)])]).crowds, [Crowd::Time]);
        // A container for each.
        assert_eq!(shared(&[of(&[(1, 1000)]), of(&[(2, 1000)])]), (2, vec![]));
        assert_eq!(shared(&[of(&[(1, 1000)]), of(&[(2, 400)])]), (1, vec![1]));
        assert_eq!(shared(&[of(&[(1, 3000)])]), (3, vec![]));
        assert_eq!(shared(&[of(&[(1, 3000)]), of(&[])]), (4, vec![]));
        // The inner group leaves less than the outer one: who is only in the outer one has enough.
        let outer = (9, 2000);
        let ranks = [of(&[(1, 500), outer]), of(&[(1, 500), outer]), of(&[outer])];
        assert_eq!(shared(&ranks), (1, vec![0, 1]));
        let ranks = [of(&[(1, 1500), outer]), of(&[(1, 1500), outer]), of(&[outer])];
        assert_eq!(shared(&ranks).1, [0, 1, 2]);
    }

    /// Of each rank, whether it has no processor in some way to give as many as possible one; and how many that is. Tries
    /// all ways.
    fn all_ways(ranks: &[Allowance]) -> (usize, Vec<bool>) {
        fn ways(ranks: &[Allowance], taken: u8, chosen: &mut Vec<bool>, best: &mut (usize, Vec<bool>)) {
            let [first, rest @ ..] = ranks else {
                let count = chosen.iter().filter(|&&has| has).count();
                if count > best.0 {
                    *best = (count, vec![false; chosen.len()]);
                }
                if count == best.0 {
                    let without = best.1.iter_mut().zip(&*chosen);
                    without.for_each(|(crowded, has)| *crowded |= !has);
                }
                return;
            };
            for cpu in 0..8 {
                if first.cpus[0] & !taken & (1 << cpu) != 0 {
                    chosen.push(true);
                    ways(rest, taken | 1 << cpu, chosen, best);
                    chosen.pop();
                }
            }
            chosen.push(false);
            ways(rest, taken, chosen, best);
            chosen.pop();
        }
        let mut best = (0, vec![false; ranks.len()]);
        ways(ranks, 0, &mut Vec::new(), &mut best);
        best
    }

    proptest! {
        #[test]
        fn masks_are_shared_as_if_all_ways_were_tried(masks in prop::collection::vec(1u8..32, 1..6)) {
            let ranks: Vec<Allowance> = masks
                .iter()
                .map(|&mask| Allowance { cpus: vec![mask], ..Allowance::default() })
                .collect();
            let share = share(&ranks.iter().collect::<Vec<_>>());
            let (seated, wanted) = all_ways(&ranks);
            prop_assert_eq!(crowded(&share), wanted);
            if seated < ranks.len() {
                prop_assert_eq!(share.cores, seated);
            }
        }

        #[test]
        fn whatever_the_limits(
            ranks in prop::collection::vec((1u8..=255, 0usize..4, prop::option::of(1u64..5000)), 1..9),
            quotas in prop::array::uniform4(1u64..9000),
            turn in 0usize..9,
        ) {
            // Groups 1 to 3 lie in group 0.
            let ranks: Vec<Allowance> = ranks
                .iter()
                .map(|&(mask, group, own)| {
                    let chain = own.is_some().then_some([group, 0]).into_iter().flatten();
                    let quota = |group: usize| Quota { group: [7, group as u64], thousandths: quotas[group] };
                    let mut quotas: Vec<Quota> = chain.map(quota).collect();
                    quotas.dedup();
                    Allowance { cpus: vec![mask], quotas, node: None }
                })
                .collect();
            let all: Vec<&Allowance> = ranks.iter().collect();
            let found = share(&all);
            let is_short = found.cores < ranks.len() || ranks.len() == 1 && crowded(&found)[0];
            prop_assert_eq!(is_short, crowded(&found).contains(&true));
            // Without quotas, or with fewer ranks, nobody is worse off.
            let free: Vec<Allowance> =
                ranks.iter().map(|rank| Allowance { quotas: Vec::new(), ..rank.clone() }).collect();
            let unlimited = share(&free.iter().collect::<Vec<_>>());
            prop_assert!(found.cores <= unlimited.cores);
            let fewer = share(&all[1..]);
            for rank in 1..ranks.len() {
                prop_assert!(crowded(&found)[rank] || !crowded(&unlimited)[rank]);
                prop_assert!(crowded(&found)[rank] || !crowded(&fewer)[rank - 1]);
            }
            // The order of the ranks is all the same.
            let turn = turn % ranks.len();
            let mut turned = all.clone();
            turned.rotate_left(turn);
            let mut again = share(&turned);
            again.crowds.rotate_right(turn);
            prop_assert_eq!((found.cores, &found.crowds), (again.cores, &again.crowds));
            // Of those that may use the same processors each has as many, one more or less.
            for (cpus, kind) in kinds(&all) {
                let on = |cpu| kind.iter().filter(|&&rank| found.starts[rank] == Some(cpu as u16)).count();
                let counts: Vec<usize> = cpus.iter().map(|&cpu| on(cpu)).collect();
                let crowded = kind.iter().all(|&rank| found.crowds[rank] == Crowd::Processor);
                if crowded {
                    prop_assert_eq!(counts.iter().sum::<usize>(), kind.len());
                    prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1);
                }
                for &rank in &kind {
                    prop_assert_eq!(found.starts[rank].is_some(), found.crowds[rank] == Crowd::Processor);
                }
            }
        }
    }
}
