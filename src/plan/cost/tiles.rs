//! How long the tiles of a call are.

use super::{Counts, Load, Machine, STREAMED};
use crate::{
    plan::{calibration::CrowdsTake, choose::TileBytes},
    types::Collective,
};

impl Machine {
    /// How long the tiles of a call are.
    pub(crate) fn tile(&self, load: &Load, counts: &Counts) -> TileBytes {
        if let Some(tile) = self.crowded_tile(load, counts) {
            return tile;
        }
        if self.tile == TileBytes::TCP {
            return match (self.takes_turns(load), self.runs_ahead(load)) {
                (true, true) => TileBytes::ONE_SHORT,
                (true, false) => TileBytes::ONE_LONG,
                (false, _) => self.tile.with_peers((load.ranks - 1).div_ceil(4)),
            };
        }
        if let (TileBytes::HOSTS, Some(groups)) = (self.tile, &self.groups) {
            let between_few = TileBytes::FEW_HOSTS.with_peers((groups.count() - 1).div_ceil(4));
            let gains = matches!(
                load.collective,
                Collective::Broadcast { .. } | Collective::Reduce { .. }
            );
            return match gains && between_few.most > self.tile.most {
                true => between_few,
                false => self.tile,
            };
        }
        let (peers, have_cores) = (load.ranks - 1, load.ranks <= self.cores);
        match load.collective.plain() {
            Collective::Gather { .. } if !have_cores || !self.keeps_what_it_reads() => self.exchanged_tile,
            Collective::Gather { .. }
            | Collective::AllGather
            | Collective::AlltoAll
            | Collective::Scatter { .. } => match have_cores {
                true => self.exchanged_tile.with_peers(peers),
                false if self.is_taken_by_crowd(load) => self.exchanged_tile.with_peers(1),
                false => self.exchanged_tile,
            },
            collective if have_cores && self.keeps_what_it_reads() => {
                let round = match collective {
                    Collective::Broadcast { .. } => TileBytes::ROUND_ONE_WAY,
                    _ => TileBytes::ROUND,
                };
                let round = round.with_peers(peers);
                match round.most > self.tile.most {
                    true => round,
                    false => self.tile,
                }
            }
            _ => self.tile,
        }
    }

    /// Whether ranks that share memory do so on cores that keep what they have read. What a rank with a core of its own sends goes round
    /// more than its cache there.
    fn keeps_what_it_reads(&self) -> bool {
        self.shares_memory() && !self.answers
    }

    /// Whether ranks over TCP take turns on cores for so long that what the tiles are for others is too little for a turn. Of more ranks
    /// nothing was measured, and each keeps what others send.
    fn takes_turns(&self, load: &Load) -> bool {
        load.ranks > 2 * self.cores && load.ranks <= MOST_IN_TURNS
    }

    /// Whether ranks that take turns do their parts of several calls over TCP in one turn: nothing comes back to those that send,
    /// and what is under way fits the system's buffers.
    pub(crate) fn runs_ahead(&self, load: &Load) -> bool {
        let is_one_way = matches!(
            load.collective.plain(),
            Collective::Broadcast { .. } | Collective::Reduce { .. }
        );
        is_one_way && self.takes_turns(load) && load.bytes() * load.ranks as f64 <= RUNS_AHEAD
    }

    /// Whether ranks that share cores take the long messages of a call from each other's memory, so that none lies in slots and
    /// the longest are the best.
    ///
    /// Measured on 2 cores, all-to-all, medians of 3, with tiles of 64 and of 256 KiB: 4 ranks, 1 MiB 243 and 185 us, 4 MiB 920 and
    /// 810; 8 ranks 628 and 551, 2160 and 1960; but from slots 4 MiB of 8 ranks 2400 and 3850. Scatter: 4 ranks, 512 KiB 20 and 15, 1 MiB
    /// 38 and 23, 4 MiB 285 and 224; 8 ranks, 1 MiB 58 and 41, 4 MiB 293 and 255.
    fn is_taken_by_crowd(&self, load: &Load) -> bool {
        let least = match load.collective.plain() {
            Collective::Scatter { .. } => CrowdsTake::Scattered,
            Collective::AlltoAll => CrowdsTake::Exchanged,
            _ => return false,
        };
        self.crowds_take >= least && load.bytes() < STREAMED as f64
    }

    /// The tiles of a call whose ranks share cores, and exchange messages with all others in a round or two. Where several are in
    /// flight, a rank whose turn it is writes as many as it may, and what others are to read has left the cache before their turn.
    /// Where messages go from rank to rank one after the other, several in flight let all be at work.
    pub(super) fn crowded_tile(&self, load: &Load, counts: &Counts) -> Option<TileBytes> {
        let is_crowd = self.shares_memory() && self.groups.is_none() && load.ranks > self.cores;
        let (collective, keeps) = (load.collective.plain(), self.keeps_what_it_reads());
        match collective {
            _ if !is_crowd => return None,
            Collective::Broadcast { .. } if keeps => return Some(TileBytes::CROWDED_ONE_WAY),
            Collective::Reduce { .. } if keeps => {
                return Some(TileBytes::crowded_up_to(64 << 10).two_in_flight());
            }
            _ if counts.rounds > 2.0 || counts.lead > 0.0 => return None,
            _ => {}
        }
        let (bytes, streamed) = (load.bytes(), STREAMED as f64);
        match collective {
            Collective::Broadcast { .. } => {
                (bytes < streamed / 2.0).then_some(TileBytes::crowded_up_to(64 << 10))
            }
            // What is shorter goes from rank to rank in caches, and no root has all the work.
            Collective::Reduce { .. } => (LONG_REDUCE..streamed)
                .contains(&bytes)
                .then_some(TileBytes::CROWDED),
            Collective::AllReduce => {
                // The ranks' own vectors, if not too long for that, are to have half of the cache.
                let room = if bytes < streamed {
                    self.cache / 2.0
                } else {
                    self.cache
                };
                let written = self.written_a_core(load.ranks, counts, self.tile.in_flight(), true);
                let tile = match load.ranks <= 2 * self.cores {
                    true if keeps => TileBytes::crowded_up_to(64 << 10).two_in_flight(),
                    true => TileBytes::crowded_up_to(64 << 10),
                    false => TileBytes::CROWDED,
                };
                (written > room).then_some(tile)
            }
            Collective::AllGather => (bytes < streamed).then_some(TileBytes::crowded_up_to(256 << 10)),
            Collective::ReduceScatter => (bytes < streamed).then_some(TileBytes::crowded_up_to(128 << 10)),
            _ => None,
        }
    }

    /// Bytes that the ranks of a core write before others read them, with so many bytes of each message in flight.
    pub(super) fn written_a_core(
        &self,
        ranks: usize,
        counts: &Counts,
        in_flight: usize,
        shares: bool,
    ) -> f64 {
        let ranks_a_core = (ranks as f64 / self.cores as f64).max(1.0);
        counts.written(shares) * ranks_a_core * counts.message.min(in_flight as f64)
    }
}

/// Bytes of a vector whose reduction among ranks that share cores is better left to few rounds. Measured on 2 cores, chain and these,
/// in us: 8 ranks, 256 KiB 30 and 120, 512 KiB 380 and 235; 4 ranks 21 and 35, 152 and 82.
const LONG_REDUCE: f64 = 524_288.0;

/// Bytes of a vector, times ranks that take turns: see [`Machine::runs_ahead`].
const RUNS_AHEAD: f64 = 3_200_000.0;
/// Ranks that have so long tiles.
const MOST_IN_TURNS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::DType;

    #[test]
    fn ranks_that_take_turns_over_tcp_have_one_tile_in_flight() {
        let tile = |collective, cores, ranks, bytes: usize| {
            let machine = Machine::tcp(cores);
            let load = Load::new(collective, ranks, bytes, DType::Int8);
            (machine.tile(&load, &Counts::ALONE), machine.runs_ahead(&load))
        };
        let (reduce, sum) = (Collective::Reduce { root: 0 }, Collective::AllReduce);
        for (collective, ranks, bytes, expected) in [
            (reduce, 8, 128 << 10, (TileBytes::ONE_SHORT, true)),
            (reduce, 8, 1 << 20, (TileBytes::ONE_LONG, false)),
            (sum, 8, 128 << 10, (TileBytes::ONE_LONG, false)),
            (reduce, 4, 128 << 10, (TileBytes::TCP.with_peers(1), false)),
        ] {
            assert_eq!(
                tile(collective, 2, ranks, bytes),
                expected,
                "{collective:?} of {ranks}"
            );
        }
        assert_eq!(tile(sum, 2, 64, 1 << 20), (TileBytes::TCP.with_peers(16), false));
        assert_eq!(tile(reduce, 4, 8, 128 << 10).0, TileBytes::TCP.with_peers(2));
    }

    #[test]
    fn tiles_are_longer_where_cores_keep_what_they_have_read() {
        let tile = |cores, answers, collective, ranks| {
            let machine = Machine::shared_memory(cores).with_answers(answers);
            let load = Load::new(collective, ranks, 8 << 20, DType::Int8);
            machine.tile(&load, &Counts::ALONE)
        };
        let (sum, one_way) = (Collective::AllReduce, Collective::Broadcast { root: 1 });
        let (gather, reduce) = (Collective::Gather { root: 0 }, Collective::Reduce { root: 0 });
        let (round, round_one_way) = (TileBytes::ROUND, TileBytes::ROUND_ONE_WAY);
        let (usual, exchanged) = (TileBytes::SHARED_MEMORY, TileBytes::EXCHANGED);
        for (collective, elsewhere, of_two, of_three, of_eight, of_a_crowd) in [
            (sum, usual, round.with_peers(1), round.with_peers(2), usual, None),
            (
                reduce,
                usual,
                round.with_peers(1),
                round.with_peers(2),
                usual,
                Some(TileBytes::crowded_up_to(64 << 10).two_in_flight()),
            ),
            (
                one_way,
                usual,
                round_one_way.with_peers(1),
                round_one_way.with_peers(2),
                usual,
                Some(TileBytes::CROWDED_ONE_WAY),
            ),
            (
                gather,
                exchanged,
                exchanged.with_peers(1),
                exchanged.with_peers(2),
                exchanged,
                Some(exchanged),
            ),
        ] {
            assert_eq!(tile(8, true, collective, 2), elsewhere, "{collective:?}");
            assert_eq!(tile(8, false, collective, 2), of_two, "{collective:?}");
            assert_eq!(tile(8, false, collective, 3), of_three, "{collective:?}");
            assert_eq!(tile(8, false, collective, 8), of_eight, "{collective:?}");
            if let Some(of_a_crowd) = of_a_crowd {
                assert_eq!(tile(2, false, collective, 8), of_a_crowd, "{collective:?}");
            }
        }
    }

    /// Only an all-to-all and a scatter among ranks that share cores, and shorter than what goes past the caches, has longer tiles where memory
    /// of others may be read.
    #[test]
    fn crowds_that_take_messages_have_longer_tiles() {
        let longest = |cores, takes, collective, ranks, bytes: usize| {
            let machine = Machine::shared_memory(cores).with_crowds_taking(takes);
            let load = Load::new(collective, ranks, bytes / ranks, DType::Int8);
            machine.tile(&load, &Counts::ALONE).most
        };
        use CrowdsTake::{Exchanged, Nothing, Scattered};
        for (gains, least, less) in [
            (Collective::AlltoAll, Exchanged, Scattered),
            (Collective::Scatter { root: 1 }, Scattered, Nothing),
        ] {
            assert_eq!(longest(2, least, gains, 4, 1 << 20), 256 << 10);
            assert_eq!(longest(2, less, gains, 4, 1 << 20), 64 << 10);
            assert_eq!(longest(2, least, gains, 4, STREAMED), 64 << 10);
            assert_eq!(
                longest(4, least, gains, 4, 1 << 20),
                longest(4, less, gains, 4, 1 << 20)
            );
        }
        for collective in [Collective::AllGather, Collective::AllReduce] {
            assert_eq!(
                longest(2, Exchanged, collective, 4, 1 << 20),
                longest(2, Nothing, collective, 4, 1 << 20)
            );
        }
    }
}
