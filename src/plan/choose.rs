//! Which algorithm, tiles and channels a call gets: a pure function of what all ranks know alike.

use super::{
    algo::{Algorithm, able},
    cost::{Load, Machine},
    forced::{self, Forced},
    layout::{Layout, Tiling},
    schedule::Extent,
};
use crate::types::Error;
use smallvec::SmallVec;

/// The algorithm for a call: of those that are `forced` if some of them fit the collective, else of all, the one that was measured
/// as the best, if one was; else the one that is to take the least time; of those that take little more the first, because predictions are no better than that and the order of the
/// registry says what is preferred otherwise.
///
/// # Errors
/// [`Error::Usage`] when those that are forced combine in an order of their own and the call asks for another;
/// [`Error::Internal`] when there is none at all.
pub(crate) fn algorithm(
    load: &Load,
    machine: &Machine,
    forced: &Forced,
) -> Result<&'static Algorithm, Error> {
    let mut left: SmallVec<[_; 16]> = able(load).collect();
    if let Some(asked) = forced.among(load.collective) {
        left.retain(|algorithm| asked.has(algorithm));
        if left.is_empty() {
            let able: Vec<_> = able(load).map(|candidate| candidate.name).collect();
            return Err(out_of_order(&forced::names(asked), &able));
        }
    }
    if left.iter().any(|algorithm| suits(algorithm, load, machine)) {
        left.retain(|algorithm| suits(algorithm, load, machine));
    }
    if let [only] = left[..] {
        return Ok(only);
    }
    let measured = machine.measured(load);
    if let Some(best) = left.iter().find(|algorithm| Some(algorithm.name) == measured) {
        return Ok(best);
    }
    let timed = left
        .into_iter()
        .map(|algorithm| (algorithm, algorithm.predicted(load, machine).1.total()));
    let timed: SmallVec<[_; 16]> = timed.collect();
    let least = timed.iter().map(|(_, time)| *time).fold(f64::INFINITY, f64::min);
    let good = timed.into_iter().find(|(_, time)| *time <= least * AS_GOOD);
    good.map(|(algorithm, _)| algorithm)
        .ok_or_else(|| Error::internal(format!("no algorithm for {}", load.collective.name())))
}

/// The algorithms among which a call's is chosen if nobody forces one: all that fit, but for one that is about groups where there
/// are none, and those whose proof would take longer than they gain; and the one that is forced.
pub(crate) fn candidates(
    load: &Load,
    machine: &Machine,
    forced: &Forced,
) -> impl Iterator<Item = &'static Algorithm> {
    let chosen = algorithm(load, machine, forced).ok();
    able(load).filter(move |algorithm| {
        suits(algorithm, load, machine) || chosen.is_some_and(|chosen| chosen.name == algorithm.name)
    })
}

/// Whether an algorithm is chosen where others are there as well.
fn suits(algorithm: &Algorithm, load: &Load, machine: &Machine) -> bool {
    (machine.groups().is_some() || !algorithm.knows_groups())
        && algorithm.is_proved_soon(load, machine.groups())
}

/// Why reproducible mode has no use for an algorithm, and which it has one for.
pub(crate) fn out_of_order(name: &str, able: &[&str]) -> Error {
    Error::usage(format!(
        "reproducible results need one order for all contributions, and {name:?} combines them in another: force none, or {}",
        able.join(" or ")
    ))
}

/// How many times as long as the best an algorithm may take and still be as good.
const AS_GOOD: f64 = 1.1;

/// Cuts a call of schedules with this `extent` into tiles for a link whose messages hold up to `max_message` bytes, with up to `lanes` lanes. Returns
/// the tiling and how many tiles are in flight.
///
/// Of given blocks no rank may know the longest: tiles are as long as they can be, and as many in flight, whatever it is.
///
/// # Errors
/// [`Error::Usage`] when the schedule's messages do not fit a link.
pub(crate) fn tiling(
    extent: Extent,
    layout: &Layout,
    load: &Load,
    max_message: usize,
    lanes: usize,
    tile: TileBytes,
) -> Result<(Tiling, usize), Error> {
    let (message_grains, element) = (extent.message.max(1), load.element);
    let room = max_message / message_grains / element;
    if room == 0 {
        return Err(Error::usage(format!(
            "a message of {message_grains} blocks does not fit the {max_message} bytes of a link's slot: force another algorithm"
        )));
    }
    let room = match message_grains {
        1 => room,
        several => room.min(TOGETHER / several / element).max(1),
    };
    let (longest, copies) = (
        layout.longest(),
        (lanes / extent.channels.max(1)).min(tile.in_flight),
    );
    if load.collective.has_given_blocks() {
        let pieces = (tile.most / element).clamp(1, room);
        return Ok((Tiling::of_pieces(pieces, longest), copies.max(1)));
    }
    let most = tile.of(longest, element).min(room);
    let tiling = Tiling::new(longest, most, (64 / element).min(room));
    Ok((tiling, copies.min(tiling.tiles).max(1)))
}

/// How long tiles are, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TileBytes {
    /// The least, where a call is cut only to have several in flight.
    least: usize,
    pub(crate) most: usize,
    /// The most between two ranks alone, where there may be more: see [`TileBytes::with_peers`].
    between_two: usize,
    /// Tiles that a short call is cut into.
    wanted: usize,
    /// Tiles in flight.
    in_flight: usize,
}

impl TileBytes {
    /// In shared memory: the slots of a few of them stay in a core's second-level cache.
    pub(crate) const SHARED_MEMORY: TileBytes = TileBytes {
        least: 16 << 10,
        most: 32 << 10,
        between_two: 0,
        wanted: TILES_WANTED,
        in_flight: IN_FLIGHT,
    };

    /// In shared memory, where what is sent goes round more than a core's cache, so that nothing need be short to stay there.
    ///
    /// Measured on an AMD EPYC with 2 ranks on 2 cores, medians of 30, least of 3, with the above and with these, in us: reduce of 1 MiB 50 and
    /// 46, of 4 MiB 220 and 204; all-reduce 82 and 78, 370 and 350; reduce-scatter 47 and 43, 203 and 186. Longer ones: reduce-scatter of 4
    /// MiB 172, but reduce of 1 MiB 55, all-reduce of 4 MiB 365.
    pub(crate) const ROUND: TileBytes = TileBytes {
        between_two: 96 << 10,
        in_flight: IN_FLIGHT / 2,
        ..TileBytes::SHARED_MEMORY
    };

    /// The same of a broadcast: 1 MiB 43 and 38.5, 4 MiB 172 and 142.
    pub(crate) const ROUND_ONE_WAY: TileBytes = TileBytes {
        least: 32 << 10,
        between_two: 256 << 10,
        wanted: 2 * TILES_WANTED,
        ..TileBytes::ROUND
    };

    /// In shared memory, of calls whose ranks only exchange what they have, each straight with each: there a receiver may take
    /// a message by one system call, which costs as much as copying 20 KiB, whatever its length. Half as many as above are in
    /// flight, so that slots stay in caches no less where it may not.
    ///
    /// Measured on 2 cores, all-gather, best of 3 to 5 medians: 2 ranks with 64 KiB in all took 8.4 us and not 14.9, with 1 MiB
    /// 119 and not 181 (from slots 133); 4 ranks with 256 KiB 81 and not 151 (from slots 137). With 4 in flight 4 ranks took
    /// 570 us for 1 MiB from slots, and not 418.
    pub(crate) const EXCHANGED: TileBytes = TileBytes {
        least: 8 << 10,
        most: 64 << 10,
        between_two: 256 << 10,
        wanted: 1,
        in_flight: IN_FLIGHT / 2,
    };

    /// The same where each rank has a core and so many peers: as long as the slots of them all stay in the second-level cache.
    ///
    /// Measured on 2 cores with 2 ranks, tiles of 64 and of 256 KiB, medians of 5: all-gather of 1 MiB 163 and 136 us (from slots
    /// 169 and 155), all-to-all 175 and 142 (from slots 248 and 209), scatter 61 and 46, of 4 MiB 500 and 397; but a gather,
    /// whose root copies from slots, 101 and 166. (Where cores keep what they have read,
    /// on an AMD EPYC, 37 and 26.6, of 4 MiB 136 and 118.)
    pub(crate) fn with_peers(self, peers: usize) -> TileBytes {
        TileBytes {
            most: (self.between_two / peers.next_power_of_two()).max(self.most),
            ..self
        }
    }

    /// In shared memory, of calls whose ranks share cores and exchange messages with all others in a round or two.
    ///
    /// Measured on 2 cores with ranks bound to them, medians of 3, with tiles of 16 to 32 KiB, four in flight, and with these, in us: 8
    /// ranks, all-reduce of 256 KiB 240 and 205, of 1 MiB 1020 and 810, of 4 MiB 3160 and 3050 (ring: 1140 and 3930 of 1 and 4);
    /// reduce-scatter of 1 MiB 603 and 498, all-gather 400 and 315; 4 ranks, all-reduce of 1 MiB 347 and 310, reduce-scatter 202 and 181.
    /// (On a later processor longer ones are better still, see below.)
    pub(crate) const CROWDED: TileBytes = TileBytes {
        least: 16 << 10,
        most: 32 << 10,
        between_two: 0,
        wanted: 2,
        in_flight: 1,
    };

    /// The same with tiles of up to `most` bytes, of which one is enough: a rank whose turn it is does more before the next has its.
    ///
    /// Of a broadcast, where each tile is in one slot for all, with 64 KiB, in us: 8 ranks, 256 KiB 98 and 18 us, 1 MiB 430 and 350; 4
    /// ranks, 64 KiB 8.6 and 4.3, 256 KiB 42 and 17. On an AMD EPYC, 2 cores, medians of 6 and more, in us: all-gather with 256 KiB, 3
    /// ranks, 200 KiB 34 and 22, 1 MiB 166 and 106; 4 ranks 27 and 21, 141 and 96; 8 ranks 57 and 57, 225 and 215; reduce-scatter with 128
    /// KiB, 3 ranks, 200 KiB 32 and 18, 1 MiB 160 and 102; 4 ranks 30 and 19, 162 and 102; 8 ranks 75 and 61, 310 and 270; all-reduce of 4
    /// ranks with 64 KiB, 700 KiB 180 and 146, 3 MiB 971 and 832, but of 8 ranks 2130 and 2510.
    pub(crate) const fn crowded_up_to(most: usize) -> TileBytes {
        TileBytes {
            most,
            wanted: 1,
            ..TileBytes::CROWDED
        }
    }

    /// The same of a broadcast where cores keep what they have read, however long it is: each tile is in one slot for all.
    ///
    /// On an AMD EPYC, 2 cores, medians of 30, least of 3, with 64 KiB below 4 MiB and 32 KiB, four in flight, from there on, and with these,
    /// in us: 4 ranks, 128 KiB 9.4 and 8.5, 1 MiB 100 and 81, 4 MiB 431 and 362, 16 MiB 1670 and 1420; 8 ranks 20 and 17.3, 209 and 157, 880
    /// and 830, 3400 and 2900.
    pub(crate) const CROWDED_ONE_WAY: TileBytes = TileBytes::crowded_up_to(128 << 10).two_in_flight();

    /// The same, two in flight.
    ///
    /// On an AMD EPYC, 2 cores, up to 64 KiB, in us: all-reduce of 4 ranks, one and two, 1 MiB 220 and 201, 4 MiB 869 and 810. A reduction to one
    /// rank, by whatever algorithm, whose ranks are not bound to cores, medians of 5, as elsewhere and with these: 4 ranks, 64 KiB 11.0 and 7.5,
    /// 512 KiB 75 and 54, 1 MiB 151 and 114, 4 MiB 790 and 670; 8 ranks 20 and 18, 168 and 149, 333 and 270, 1800 and 1530.
    pub(crate) const fn two_in_flight(self) -> TileBytes {
        TileBytes { in_flight: 2, ..self }
    }

    /// Of messages that are read where they lie: nothing of them is in slots, and each costs as much whatever its length.
    /// Half as many as elsewhere are in flight, so that what one rank writes and another reads stays in caches. Measured on 2
    /// cores, all-reduce of 2 ranks, with tiles of 16 to 32 KiB and with these: 64 KiB 11.6 and 6.1 us, 1 MiB 190 and 150.
    pub(crate) const READ: TileBytes = TileBytes {
        least: 16 << 10,
        most: 64 << 10,
        between_two: 0,
        wanted: 1,
        in_flight: IN_FLIGHT / 2,
    };

    /// Over TCP, where each message costs system calls on both sides: a call is cut no more than it must. Tiles of up to
    /// 256 KiB, two in flight, beside such of 32, four in flight, over the loopback interface, medians of 3 on a noisy machine: 2
    /// ranks, all-reduce of 1 MiB 1.3 and 2.8 ms, all-to-all of 16 MiB 12.8 and 20.7 ms; 4 ranks on 2 cores, broadcast of 16 MiB
    /// 40 and 66 ms, all-reduce 72 and 88. A block of less in one piece and in four, medians of 3: 2 ranks, broadcast of 128 KiB
    /// 15 and 24 us, all-reduce of 64 KiB 17.0 and 19.3, of 512 KiB 105 and 129; 4 ranks, all-reduce of 1 MiB 716 and 813.
    /// The more peers, the shorter: who falls behind keeps several of each.
    pub(crate) const TCP: TileBytes = TileBytes {
        least: 32 << 10,
        most: 32 << 10,
        between_two: 256 << 10,
        wanted: 1,
        in_flight: IN_FLIGHT / 2,
    };

    /// The same where ranks take turns on cores: the longer a message, the more a rank does in its turn.
    ///
    /// Measured on 2 cores of an AMD EPYC, medians of 3, with tiles of 128 KiB, two in flight, and these, in us: 8 ranks, broadcast of 2 MiB
    /// 2970 and 2440, all-gather of 4 MiB 5160 and 4120, all-reduce 11200 and 10300, scatter of 8 MiB 1950 and 1530. 3 ranks, reduce of 1
    /// MiB 550 and 670; 4 as long. With 64 KiB and these 12 ranks, broadcast of 2 MiB 4860 and 3480, scatter 1130 and 520.
    pub(crate) const ONE_LONG: TileBytes = TileBytes {
        most: 256 << 10,
        between_two: 0,
        in_flight: 1,
        ..TileBytes::TCP
    };

    /// The same where a rank does its part of several calls in its turn. With these and the longer ones, in us: 8 ranks, broadcast and
    /// reduce of 128 KiB 49 and 331, 58 and 68; 12 ranks 58 and 60, 126 and 1056, of 256 KiB 133 and 247, 421 and 1270; which of them
    /// do differs from run to run.
    pub(crate) const ONE_SHORT: TileBytes = TileBytes {
        most: 64 << 10,
        ..TileBytes::ONE_LONG
    };

    /// Over TCP between groups of ranks that share memory: what one level writes the next reads while it is in caches.
    pub(crate) const HOSTS: TileBytes = TileBytes {
        between_two: 0,
        in_flight: IN_FLIGHT,
        ..TileBytes::TCP
    };

    /// The same of a broadcast and a reduction, between so few groups that longer tiles are in caches as well.
    ///
    /// Measured with `scripts/hosts` and Reno, 2 hosts of 2 ranks on 2 cores, tiles of 32 KiB, four in flight, and these, medians
    /// of 7: broadcast of 256 KiB 95 and 52 us, of 2 MiB 950 and 740, reduce 76 and 52, 1120 and 770; all-reduce 147 and 164,
    /// 1324 and 1419; an all-gather of 1 MiB took 410 and 840 us.
    pub(crate) const FEW_HOSTS: TileBytes = TileBytes {
        between_two: 128 << 10,
        in_flight: IN_FLIGHT / 2,
        ..TileBytes::HOSTS
    };

    /// Bytes in flight of a long call.
    pub(crate) fn in_flight(self) -> usize {
        self.most * self.in_flight
    }

    /// Elements of a tile of a block of `longest` elements, as long as a message may be as long as that.
    fn of(self, longest: usize, element: usize) -> usize {
        longest
            .div_ceil(self.wanted)
            .next_multiple_of((self.least / element).max(1))
            .min((self.most / element).max(1))
    }

    /// Bytes of the longest message of a block of `longest` elements.
    pub(crate) fn of_message(self, longest: usize, element: usize) -> usize {
        self.of(longest, element).min(longest) * element
    }
}

/// The number of tiles that a short call is cut into, so that one is written while another is read.
const TILES_WANTED: usize = 4;
/// Tiles in flight.
pub(crate) const IN_FLIGHT: usize = 4;
/// Bytes of the longest message of several grains, of each of which it has at least an element.
const TOGETHER: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        plan::{
            algo::Request,
            calibration::{Calibration, Choice},
            cost::Order,
            groups::Groups,
            layout::Blocks,
        },
        types::{Collective, DType},
    };

    fn chosen(cores: usize, ranks: usize, bytes: usize, forced: &str) -> &'static str {
        let load = Load::new(Collective::AllReduce, ranks, bytes / 4, DType::Float32);
        let forced = Forced::parse(forced).unwrap();
        algorithm(&load, &Machine::shared_memory(cores), &forced)
            .unwrap()
            .name
    }

    #[test]
    fn an_algorithm_is_forced_where_it_fits() {
        let name = |forced| chosen(4, 4, 8, forced);
        assert_eq!(
            [name(""), name("ring"), name("tree"), name("hierarchical")],
            ["doubling", "ring", "doubling", "hierarchical"]
        );
    }

    #[test]
    fn of_several_that_are_forced_the_best_is_chosen() {
        let name = |forced| [64, 16 << 20].map(|bytes| chosen(2, 8, bytes, forced));
        assert_eq!(name("ring,doubling"), ["doubling", "ring"]);
        assert_eq!(name("^oneshot,ring"), ["doubling", "direct"]);
        // There are no hosts.
        assert_eq!(name("ring,hierarchical"), ["ring"; 2]);
    }

    #[test]
    fn what_was_measured_comes_before_the_model_and_after_what_is_forced() {
        let choice = |transport: &str, cores| Choice {
            transport: transport.into(),
            operation: "allreduce".into(),
            ranks: 4,
            cores,
            bytes: [64, 4096],
            algorithm: "ring".into(),
        };
        let of = |choices: &[Choice], bytes: usize, forced: &str, order| {
            let load = Load::new(Collective::AllReduce, 4, bytes / 4, DType::Float32);
            let load = if order {
                load.in_order(DType::Float32)
            } else {
                load
            };
            let machine = Machine::shared_memory(4).with_choices(choices, "shm", 4);
            algorithm(&load, &machine, &Forced::parse(forced).unwrap())
                .unwrap()
                .name
        };
        let choices = [choice("shm", 4)];
        assert_eq!(
            [32, 64, 4096].map(|bytes| of(&choices, bytes, "", false)),
            ["doubling", "ring", "doubling"]
        );
        assert_eq!(of(&choices, 64, "halving", false), "halving");
        assert_eq!(of(&choices, 64, "^ring", false), "doubling");
        assert_eq!(of(&choices, 64, "", true), "doubling"); // a ring has an order of its own
        for other in [choice("tcp", 4), choice("shm", 2)] {
            assert_eq!(of(&[other], 64, "", false), "doubling");
        }
    }

    /// What was measured on 2 cores: the best, or as good as it.
    #[test]
    fn the_choice_is_what_was_measured_as_best() {
        let of =
            |ranks| [64, 32 << 10, 256 << 10, 2 << 20, 16 << 20].map(|bytes| chosen(2, ranks, bytes, ""));
        assert_eq!(of(2), ["doubling", "doubling", "direct", "direct", "direct"]);
        // With 64 bytes one-shot and doubling took 13.1 and 13.6 us among 4 ranks, 27 and 37 among 8, 89 and 135 among 16.
        assert_eq!(of(4), ["oneshot", "direct", "direct", "direct", "direct"]);
        // With 4 MiB direct and ring took 3.0 and 3.9 ms among 8 ranks, with 16 MiB 14.1 and 17.6; on another machine 21 and 16 ms
        // with 4 MiB among 16.
        assert_eq!(of(8), ["oneshot", "direct", "direct", "direct", "direct"]);
        assert_eq!(of(16), ["oneshot", "direct", "direct", "ring", "ring"]);
    }

    /// Where an answer may lie where what it answers lay, two messages of half a vector soon take less time than one of all of it.
    #[test]
    fn two_ranks_that_answer_in_place_exchange_halves() {
        let of = |answers| {
            [64, 2 << 10, 8 << 10, 32 << 10].map(|bytes| {
                let load = Load::new(Collective::AllReduce, 2, bytes / 4, DType::Float32);
                let machine = Machine::shared_memory(2).with_answers(answers);
                let chosen = algorithm(&load, &machine, &Forced::parse("").unwrap());
                chosen.unwrap().name
            })
        };
        assert_eq!(of(true), ["doubling", "doubling", "direct", "direct"]);
        assert_eq!(of(false), ["doubling"; 4]);
    }

    /// Where each rank has a core, a ring is for long vectors of many ranks, whose messages to all would not stay in caches.
    #[test]
    fn with_a_core_each_it_is_rounds_then_bytes_then_caches() {
        let of = |ranks| [64, 256 << 10, 16 << 20].map(|bytes| chosen(ranks, ranks, bytes, ""));
        assert_eq!(of(8), ["doubling", "direct", "direct"]);
        assert_eq!(of(16), ["doubling", "direct", "ring"]);
        assert_eq!(of(64), ["doubling", "direct", "ring"]);
    }

    /// Who has much more than the others must not send it to each of them.
    #[test]
    fn of_given_blocks_the_longest_counts() {
        let of = |collective, lengths: &[usize]| {
            let mut at = 0;
            let blocks = lengths.iter().map(|length| {
                at += length;
                at - length..at
            });
            let blocks: Vec<_> = blocks.collect();
            let blocks = Blocks {
                sides: [vec![0..0; lengths.len()], blocks],
                by_pair: false,
            };
            let load = Load::given(collective, lengths.len(), &blocks, DType::Uint8);
            let machine = Machine::of_tcp(lengths.len(), &Calibration::DEFAULT);
            algorithm(&load, &machine, &Forced::default()).unwrap().name
        };
        let one_has = |most| [0, 0, 0, most, 0, 0, 0, 0];
        assert_eq!(of(Collective::AllGatherV, &one_has(16 << 20)), "ring");
        assert_eq!(of(Collective::ReduceScatterV, &one_has(16 << 20)), "ring");
        for collective in [Collective::AllGatherV, Collective::ReduceScatterV] {
            assert_eq!(
                of(collective, &[2 << 20; 8]),
                of(collective.plain(), &[2 << 20; 8])
            );
        }
        assert_eq!(
            of(Collective::AllGatherV, &[0; 8]),
            of(Collective::AllGather, &[0; 8])
        );
    }

    #[test]
    fn what_takes_long_to_prove_is_no_candidate() {
        let of = |collective, ranks, name| {
            let load = Load::new(collective, ranks, 1 << 20, DType::Float32);
            let machine = Machine::hosts(ranks, Groups::Rows { ranks, size: 8 });
            candidates(&load, &machine, &Forced::default()).any(|one| one.name == name)
        };
        for ranks in [128, 2048, 4096] {
            assert_eq!(
                of(Collective::AllReduce, ranks, "hierarchical"),
                ranks <= 2048,
                "{ranks}"
            );
            assert!(of(Collective::Broadcast { root: 1 }, ranks, "hierarchical"));
            assert_eq!(of(Collective::AllReduce, ranks, "halving"), ranks <= 130);
        }
        // One host has fewer ranks: a vector in as many parts as there are hosts.
        for ranks in [4095, 8191] {
            assert_eq!(
                of(Collective::AllReduce, ranks, "hierarchical"),
                ranks == 4095,
                "{ranks}"
            );
        }
    }

    /// Bruck's blocks go through scratch memory: as many bytes again, which go past the caches as those of others do. Measured on 2 cores
    /// among 3 to 7 ranks, direct and Bruck's, 16 KiB 4.6 to 13.6 and 13 to 41 us, 4 MiB 740 to 2080 and 1580 to 5740.
    #[test]
    fn an_all_to_all_of_ranks_that_share_cores_is_direct() {
        for ranks in 3..=16 {
            for bytes in [16 << 10, 256 << 10, 1 << 20, 4 << 20, 64 << 20] {
                let load = Load::new(Collective::AlltoAll, ranks, bytes / 4, DType::Float32);
                let chosen = algorithm(&load, &Machine::shared_memory(2), &Forced::parse("").unwrap());
                assert_eq!(chosen.unwrap().name, "direct", "{bytes} bytes of {ranks} ranks");
            }
        }
    }

    /// What stays inside hosts is worth more than a few rounds; where hosts have a rank each, or there is one host, there is
    /// nothing to gain.
    #[test]
    fn ranks_of_several_hosts_choose_the_hierarchy() {
        let sizes = [64, 32 << 10, 1 << 20, 64 << 20];
        let of = |collective, machine: &Machine, ranks| {
            sizes.map(|bytes| {
                let load = Load::new(collective, ranks, bytes / 4, DType::Float32);
                algorithm(&load, machine, &Forced::default()).unwrap().name
            })
        };
        let collectives = [
            Collective::AllReduce,
            Collective::Reduce { root: 3 },
            Collective::Broadcast { root: 3 },
        ];
        for collective in collectives {
            let even = [(2, 2), (4, 2), (8, 4), (8, 16)].map(|(size, count)| Groups::Rows {
                ranks: size * count,
                size,
            });
            for groups in even
                .into_iter()
                .chain([Groups::listed([0, 0, 0, 1, 1, 2, 2, 2, 2])])
            {
                let ranks = (0..groups.count()).map(|group| groups.size(group)).sum();
                let chosen = of(collective, &Machine::hosts(ranks, groups.clone()), ranks);
                // The shortest all-reduce takes fewer rounds without, and a chain sends the longest vector only once.
                let levelled = match collective {
                    Collective::AllReduce => &chosen[1..],
                    _ => &chosen[..2],
                };
                assert!(
                    levelled.iter().all(|name| name.starts_with("hierarchical")),
                    "{collective:?}, {groups:?}: {levelled:?}"
                );
            }
            for machine in [
                Machine::tcp(16),
                Machine::one_memory(16),
                Machine::shared_memory(16),
            ] {
                assert!(
                    of(collective, &machine, 16)
                        .iter()
                        .all(|name| !name.starts_with("hierarchical"))
                );
            }
        }
    }

    /// As of hosts: the shortest call takes fewer rounds without.
    #[test]
    fn ranks_of_far_nodes_choose_the_hierarchy() {
        let groups = Groups::listed((0..16).map(|rank| rank % 2));
        let machine = Machine::of_nodes(16, groups, 3.2, &Calibration::DEFAULT);
        let of = |bytes: usize| {
            let load = Load::new(Collective::AllReduce, 16, bytes / 4, DType::Float32);
            algorithm(&load, &machine, &Forced::default()).unwrap().name
        };
        let chosen = [64, 1 << 20, 64 << 20].map(of);
        assert_eq!(chosen, ["doubling", "hierarchical", "hierarchical"]);
    }

    #[test]
    fn every_tile_fits_a_slot() {
        for tile in [
            TileBytes::SHARED_MEMORY,
            TileBytes::ROUND.with_peers(1),
            TileBytes::ROUND.with_peers(2),
            TileBytes::ROUND_ONE_WAY.with_peers(1),
            TileBytes::CROWDED_ONE_WAY,
            TileBytes::EXCHANGED,
            TileBytes::EXCHANGED.with_peers(1),
            TileBytes::EXCHANGED.with_peers(3),
            TileBytes::READ,
            TileBytes::TCP,
            TileBytes::TCP.with_peers(1),
            TileBytes::ONE_LONG,
            TileBytes::ONE_SHORT,
            TileBytes::HOSTS,
            TileBytes::FEW_HOSTS.with_peers(1),
        ] {
            every_tile_of_fits_a_slot(tile);
        }
    }

    fn every_tile_of_fits_a_slot(tile: TileBytes) {
        for ranks in [1, 2, 5, 64] {
            for count in [0, 1, 1000, 1 << 20, 1 << 40] {
                for element in [1, 2, 4, 8] {
                    let request = Request {
                        collective: Collective::AllReduce,
                        ranks,
                        rank: 0,
                    };
                    let load = Load {
                        collective: Collective::AllReduce,
                        ranks,
                        count,
                        element,
                        skew: 0,
                        order: Order::Any,
                    };
                    let algorithm = algorithm(&load, &Machine::shared_memory(8), &Forced::default()).unwrap();
                    let schedule = (algorithm.build)(&request);
                    let layout = Layout {
                        count,
                        blocks: schedule.blocks as usize,
                        grains: 1,
                    };
                    let (tiling, copies) = tiling(schedule.extent(), &layout, &load, 4096, 8, tile).unwrap();
                    assert!(tiling.elements * element * schedule.extent().message <= 4096);
                    assert!(copies >= 1 && copies <= tiling.tiles && copies * schedule.channels.len() <= 8);
                }
            }
        }
    }
}
