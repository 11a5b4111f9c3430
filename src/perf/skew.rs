//! [`Skew`]: how unequal the blocks of the V forms are.

use super::{operation::Operation, puzzle::hash};
use crate::types::Collective;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How unequal the blocks of a V form are. The mean is always the same, so that sizes can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Skew {
    /// All are as long.
    #[default]
    Balanced,
    /// Rank 0's is three quarters of all; in an all-to-all what each rank sends to it.
    Hot,
    /// The last rank has nothing; in an all-to-all it sends and gets nothing.
    Zero,
    /// Drawn by this seed, one in four empty.
    Random(u64),
}

impl Skew {
    pub(super) fn parse(text: &str) -> Result<Skew, String> {
        let (name, seed) = text
            .split_once(':')
            .map_or((text, None), |(name, seed)| (name, Some(seed)));
        match (name, seed.map(str::parse)) {
            ("balanced", None) => Ok(Skew::Balanced),
            ("hot", None) => Ok(Skew::Hot),
            ("zero", None) => Ok(Skew::Zero),
            ("random", None) => Ok(Skew::Random(0)),
            ("random", Some(Ok(seed))) => Ok(Skew::Random(seed)),
            _ => Err("there are balanced, hot, zero, random and random:SEED, e.g. random:7".to_owned()),
        }
    }

    /// The elements of each block of a call with `count` in the mean; of an all-to-all of given blocks the elements from rank
    /// a to rank b, at a · ranks + b.
    pub(super) fn lengths(self, operation: Operation, ranks: usize, count: usize) -> Vec<usize> {
        let is_all_to_all = operation == Operation::Collective(Collective::AlltoAllV);
        let from = if is_all_to_all { ranks } else { 1 };
        let places = operation.blocks(ranks) * from;
        if !operation.has_given_blocks() {
            return vec![count; places];
        }
        let last = ranks - 1;
        let weight = |place: usize| {
            let (from, to) = (place / ranks, place % ranks);
            match self {
                Skew::Balanced => 1,
                // Three times as much as those of the n - 1 others.
                Skew::Hot if to == 0 => 3 * last as u64,
                Skew::Hot => 1,
                Skew::Zero => u64::from(to != last && (!is_all_to_all || from != last)),
                Skew::Random(seed) => match hash(seed, place as u64) % 1024 {
                    few if few < 256 => 0,
                    weight => weight,
                },
            }
        };
        let mut weights: Vec<u64> = (0..places).map(weight).collect();
        if weights.iter().all(|&weight| weight == 0) {
            weights.fill(1); // there has to be somebody
        }
        // Each place ends where its share of the whole does, so that nothing is lost by rounding.
        let (all, total) = (weights.iter().sum::<u64>(), (count * places) as u128);
        let end = |sum: u64| (total * u128::from(sum) / u128::from(all)) as usize;
        let mut sum = 0;
        let length = |weight| {
            let begin = end(sum);
            sum += weight;
            end(sum) - begin
        };
        weights.into_iter().map(length).collect()
    }
}

/// The most elements that a rank must send, or receive, beside its own block, of blocks of these [`Skew::lengths`].
pub(super) fn most_moved(collective: Collective, ranks: usize, lengths: &[usize]) -> usize {
    let but_own = |rank: usize| match collective {
        Collective::AlltoAllV => {
            let sent = lengths[rank * ranks..][..ranks].iter().sum::<usize>();
            let received = lengths[rank..].iter().step_by(ranks).sum();
            sent.max(received) - lengths[rank * ranks + rank]
        }
        _ => lengths.iter().sum::<usize>() - lengths[rank],
    };
    match collective.root() {
        Some(root) => but_own(root as usize),
        None => (0..ranks).map(but_own).max().unwrap_or(0),
    }
}

impl fmt::Display for Skew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Skew::Balanced => f.write_str("balanced"),
            Skew::Hot => f.write_str("hot"),
            Skew::Zero => f.write_str("zero"),
            Skew::Random(seed) => write!(f, "random:{seed}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Skew; 4] = [Skew::Balanced, Skew::Hot, Skew::Zero, Skew::Random(3)];

    fn lengths(skew: Skew, collective: Collective, ranks: usize, count: usize) -> Vec<usize> {
        skew.lengths(Operation::Collective(collective), ranks, count)
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for skew in ALL {
            assert_eq!(Skew::parse(&skew.to_string()), Ok(skew));
        }
        assert_eq!(Skew::parse("random"), Ok(Skew::Random(0)));
        for text in ["", "cold", "hot:1", "random:", "random:x"] {
            assert!(Skew::parse(text).unwrap_err().contains("random:SEED"), "{text}");
        }
    }

    #[test]
    fn the_mean_is_kept() {
        for ranks in 1..9 {
            for count in [0, 1, 7, 1000] {
                for skew in ALL {
                    let of = |collective| lengths(skew, collective, ranks, count);
                    for collective in [Collective::AllGatherV, Collective::ScatterV { root: 0 }] {
                        let lengths = of(collective);
                        assert_eq!((lengths.len(), lengths.iter().sum()), (ranks, ranks * count));
                    }
                    let lengths = of(Collective::AlltoAllV);
                    assert_eq!(lengths.len(), ranks * ranks);
                    assert_eq!(lengths.iter().sum::<usize>(), ranks * ranks * count);
                    assert_eq!(of(Collective::AlltoAll), vec![count; ranks]);
                    assert_eq!(skew.lengths(Operation::SendRecv, ranks, count), [count]);
                }
            }
        }
    }

    #[test]
    fn blocks_are_as_unequal_as_the_name_says() {
        assert_eq!(
            lengths(Skew::Hot, Collective::AllGatherV, 4, 100),
            [300, 33, 33, 34]
        );
        let swapped = lengths(Skew::Hot, Collective::AlltoAllV, 2, 4);
        assert_eq!(swapped, [6, 2, 6, 2]);
        assert_eq!(
            lengths(Skew::Zero, Collective::GatherV { root: 0 }, 3, 2),
            [3, 3, 0]
        );
        assert_eq!(lengths(Skew::Zero, Collective::AlltoAllV, 2, 4), [16, 0, 0, 0]);
        let drawn = |seed| lengths(Skew::Random(seed), Collective::AlltoAllV, 4, 100);
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
        assert!(drawn(1).contains(&0));
    }

    #[test]
    fn a_rank_s_own_block_does_not_move() {
        let moved = |skew, collective, ranks, count| {
            most_moved(collective, ranks, &lengths(skew, collective, ranks, count))
        };
        for collective in [
            Collective::AllGatherV,
            Collective::ReduceScatterV,
            Collective::GatherV { root: 2 },
            Collective::ScatterV { root: 1 },
            Collective::AlltoAllV,
        ] {
            assert_eq!(moved(Skew::Balanced, collective, 4, 10), 30, "{collective:?}");
            assert_eq!(moved(Skew::Balanced, collective, 3, 0), 0, "{collective:?}");
        }
        assert_eq!(moved(Skew::Zero, Collective::AlltoAllV, 2, 4), 0);
        // To rank 0 come three quarters of what each of the others has.
        assert_eq!(moved(Skew::Hot, Collective::AlltoAllV, 4, 30), 3 * 90);
        assert_eq!(moved(Skew::Hot, Collective::AllGatherV, 4, 30), 110);
        assert_eq!(moved(Skew::Hot, Collective::GatherV { root: 0 }, 4, 30), 30);
    }
}
