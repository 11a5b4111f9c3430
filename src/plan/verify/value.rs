//! What a grain holds while a collective runs: whose contributions to which block-grain, and whether they are all.
//!
//! A contribution is one rank's input at one position. Which ranks contributed is kept in one of two ways, behind
//! [`Domain`]: [`Exact`] as runs of ranks with their multiplicity, which can be printed and turned from one rank's
//! view to another's; [`Labels`] as a sum of one hash for each contribution, which takes the same few bytes whatever
//! the number of ranks.

use smallvec::{SmallVec, smallvec};
use std::fmt::{Debug, Write as _};

/// A grain's symbolic value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::plan) struct Value<S> {
    /// The position that its contributions have in their ranks' inputs.
    pub(in crate::plan) grain: u32,
    /// Whether a [`ReduceLast`](crate::plan::schedule::How::ReduceLast) completed it.
    pub(in crate::plan) finished: bool,
    /// The ranks that contributed, each as often as it did.
    pub(in crate::plan) ranks: S,
}

/// A way to keep a multiset of ranks.
pub(in crate::plan) trait Domain {
    type Sum: Clone + PartialEq + Debug;

    /// `rank`, once.
    fn one(&self, rank: usize) -> Self::Sum;

    /// Adds `more` to `sum`, with multiplicity.
    fn add(&self, sum: &mut Self::Sum, more: &Self::Sum);

    /// Makes one of the multisets that a reduction has added, if they may be combined in their order.
    fn close(&self, _sum: &mut Self::Sum) -> bool {
        true
    }

    /// A rank that is in it more than once, where that can be seen.
    #[cfg(any(feature = "cli", feature = "fuzzing"))]
    fn repeated(&self, _sum: &Self::Sum) -> Option<usize> {
        None
    }

    /// Every rank once.
    fn everyone(&self) -> &Self::Sum;

    /// The multiset in words.
    fn text(&self, sum: &Self::Sum) -> String;
}

/// Some ranks that follow each other, `times` times each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::plan) struct Run {
    start: u32,
    end: u32,
    times: u32,
}

/// Runs that are sorted, disjoint, and as long as they can be.
pub(in crate::plan) type Runs = SmallVec<[Run; 1]>;

/// The multiset itself.
pub(in crate::plan) struct Exact {
    everyone: Runs,
}

impl Exact {
    pub(in crate::plan) fn new(ranks: usize) -> Self {
        let (start, end, times) = (0, ranks as u32, 1);
        Exact {
            everyone: smallvec![Run { start, end, times }],
        }
    }
}

impl Domain for Exact {
    type Sum = Runs;

    fn one(&self, rank: usize) -> Runs {
        let start = rank as u32;
        smallvec![Run {
            start,
            end: start + 1,
            times: 1
        }]
    }

    fn add(&self, sum: &mut Runs, more: &Runs) {
        let follows = match (sum.last(), more.first()) {
            (Some(last), Some(first)) => last.end <= first.start,
            _ => true,
        };
        if follows {
            more.iter().for_each(|run| append(sum, *run));
        } else {
            *sum = merged(sum, more);
        }
    }

    #[cfg(any(feature = "cli", feature = "fuzzing"))]
    fn repeated(&self, sum: &Runs) -> Option<usize> {
        let run = sum.iter().find(|run| run.times > 1);
        run.map(|run| run.start as usize)
    }

    fn everyone(&self) -> &Runs {
        &self.everyone
    }

    fn text(&self, sum: &Runs) -> String {
        let mut text = String::new();
        for (i, run) in sum.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            let _ = match run.end - run.start {
                1 => write!(text, "{comma}{}", run.start),
                _ => write!(text, "{comma}{}..={}", run.start, run.end - 1),
            };
            if run.times > 1 {
                let _ = write!(text, " x{}", run.times);
            }
        }
        text
    }
}

/// `sum` as the rank that is `by` further on would have it, among `ranks`: each contributor is `by` further on too.
pub(in crate::plan) fn turned(sum: &Runs, by: u32, ranks: u32) -> Runs {
    let mut parts: SmallVec<[Run; 4]> = SmallVec::new();
    for run in sum {
        let (start, end) = (run.start + by, run.end + by);
        let wrapped = |at: u32| at.saturating_sub(ranks);
        parts.push(Run {
            start: start.min(ranks),
            end: end.min(ranks),
            ..*run
        });
        parts.push(Run {
            start: wrapped(start),
            end: wrapped(end),
            ..*run
        });
    }
    parts.retain(|run| run.start < run.end);
    parts.sort_unstable_by_key(|run| run.start);
    let mut sum = Runs::new();
    parts.into_iter().for_each(|run| append(&mut sum, run));
    sum
}

/// Adds a run that begins at or after the end of all others.
fn append(sum: &mut Runs, run: Run) {
    match sum.last_mut() {
        Some(last) if last.end == run.start && last.times == run.times => last.end = run.end,
        _ => sum.push(run),
    }
}

/// The sum of two multisets whose runs may overlap.
fn merged(a: &[Run], b: &[Run]) -> Runs {
    let (mut a, mut b) = (a.iter().copied(), b.iter().copied());
    let (mut p, mut q) = (a.next(), b.next());
    let mut sum = Runs::new();
    loop {
        let (Some(x), Some(y)) = (p, q) else {
            let rest = p.into_iter().chain(a).chain(q).chain(b);
            rest.for_each(|run| append(&mut sum, run));
            return sum;
        };
        // The part up to the next place where either begins or ends.
        let start = x.start.min(y.start);
        let end = [x.start, x.end, y.start, y.end]
            .into_iter()
            .filter(|&at| at > start)
            .min()
            .unwrap_or(start); // some end lies beyond: runs are not empty
        let in_x = x.start == start;
        let in_y = y.start == start;
        let times = [(in_x, x), (in_y, y)]
            .iter()
            .filter(|(inside, _)| *inside)
            .fold(0u32, |times, (_, run)| times.saturating_add(run.times));
        append(&mut sum, Run { start, end, times });
        if in_x {
            p = if end == x.end {
                a.next()
            } else {
                Some(Run { start: end, ..x })
            };
        }
        if in_y {
            q = if end == y.end {
                b.next()
            } else {
                Some(Run { start: end, ..y })
            };
        }
    }
}

/// The sum of a hash of each contributor modulo the prime 2^61 − 1, and how many contributions there are.
///
/// Two different multisets of the same size are taken for equal with a chance of 2^-61 for each comparison. The
/// hashes are the same in every run: schedules are not written against them.
pub(in crate::plan) struct Labels {
    everyone: Label,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::plan) struct Label {
    hash: u64,
    count: u32,
}

impl Labels {
    pub(in crate::plan) fn new(ranks: usize) -> Self {
        let none = Label { hash: 0, count: 0 };
        Labels {
            everyone: (0..ranks).map(label).fold(none, plus),
        }
    }
}

impl Domain for Labels {
    type Sum = Label;

    fn one(&self, rank: usize) -> Label {
        label(rank)
    }

    fn add(&self, sum: &mut Label, more: &Label) {
        *sum = plus(*sum, *more);
    }

    fn everyone(&self) -> &Label {
        &self.everyone
    }

    fn text(&self, sum: &Label) -> String {
        format!("a sum of {} (label {:x})", sum.count, sum.hash)
    }
}

const PRIME: u64 = (1 << 61) - 1;

fn plus(a: Label, b: Label) -> Label {
    Label {
        hash: (a.hash + b.hash) % PRIME,
        count: a.count.saturating_add(b.count),
    }
}

fn label(rank: usize) -> Label {
    let hash = mix(rank as u64) % PRIME;
    Label { hash, count: 1 }
}

/// A well-spread function of `x`. Source: the output function of SplitMix64 in G. Steele, D. Lea and C. Flood, "Fast
/// splittable pseudorandom number generators", 2014.
pub(in crate::plan) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counted(sum: &Runs, ranks: usize) -> Vec<u32> {
        let mut times = vec![0; ranks];
        for run in sum {
            (run.start..run.end).for_each(|rank| times[rank as usize] += run.times);
        }
        times
    }

    proptest! {
        #[test]
        fn runs_are_multisets(parts in prop::collection::vec(prop::collection::vec(0usize..12, 0..12), 1..5), by in 0u32..12) {
            let (exact, labels) = (Exact::new(12), Labels::new(12));
            let (mut total, mut times) = (Runs::new(), vec![0; 12]);
            let mut hash = Label { hash: 0, count: 0 };
            for part in &parts {
                let mut sum = Runs::new();
                for &rank in part {
                    exact.add(&mut sum, &exact.one(rank));
                    labels.add(&mut hash, &labels.one(rank));
                    times[rank] += 1;
                }
                exact.add(&mut total, &sum);
            }
            prop_assert_eq!(counted(&total, 12), times.clone());
            prop_assert!(total.windows(2).all(|w| w[0].end < w[1].start || w[0].end == w[1].start && w[0].times != w[1].times));
            prop_assert_eq!(total == *exact.everyone(), hash == *labels.everyone());
            times.rotate_right(by as usize);
            prop_assert_eq!(counted(&turned(&total, by, 12), 12), times);
        }
    }

    #[test]
    fn a_multiset_reads_as_ranks() {
        let exact = Exact::new(8);
        let mut sum = exact.one(5);
        for rank in [6, 7, 2, 2] {
            exact.add(&mut sum, &exact.one(rank));
        }
        assert_eq!(exact.text(&sum), "2 x2, 5..=7");
    }
}
