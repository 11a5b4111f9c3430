//! The schedules that a communicator has used lately, each proved before it is run, and the last calls as they were made ready.

use super::proofs;
use crate::{
    exec::Straight,
    plan::{
        algo::{Algorithm, Request},
        bounds::Bounds,
        calibration::CrowdsTake,
        choose,
        cost::{Load, Machine, Order, STREAMED},
        groups::Groups,
        layout::{Grains, Layout, Tiling},
        schedule::{Extent, Schedule},
        verify::Proof,
    },
    sys::{cache, float_mode::usual, helpers::Helpers},
    transport::{CALL_LANES, MAX_MESSAGE, links::Attach},
    types::{Collective, Error},
};
use std::sync::Arc;
use tracing::info;

/// A bounded cache of one rank's schedules, the latest first.
#[derive(Debug, Default)]
pub(super) struct Plans {
    recent: Vec<(Key, Proved)>,
    /// Programs repeat their calls, and a short call is over in less time than it takes to plan it.
    ready: Vec<Arc<Prepared>>,
    helpers: Helpers,
    /// Whether long messages are left for their receivers to take also in calls that lose by it.
    takes_all: bool,
    /// Whether all that are long go by TCP without a copy in their sender's system.
    lends_all: bool,
}

type Key = (&'static str, Collective, Order);

/// A schedule of this rank's with what was proved of it.
#[derive(Debug, Clone)]
struct Proved {
    schedule: Arc<Schedule>,
    /// What the ranks' tiles depend on.
    extent: Extent,
    proof: Arc<Proof>,
}

/// What the planner says of a call.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) load: Load,
    pub(super) algorithm: &'static str,
    /// Its place among all.
    pub(super) number: u8,
    pub(super) schedule: Arc<Schedule>,
    pub(super) layout: Layout,
    /// Of given blocks only the length of the tiles counts.
    pub(super) tiling: Tiling,
    /// Tiles in flight.
    pub(super) copies: usize,
    /// Channels of the rank that has the most of them.
    pub(super) channels: usize,
    /// The way of a call whose steps are known.
    pub(super) straight: Option<Straight>,
    /// Bytes of the shortest output that goes past the caches; none does that is read again.
    pub(super) streamed: usize,
    /// Bytes of the shortest vector, that is of the longer buffer, of which what is written for other ranks does.
    pub(super) past: usize,
    /// Which messages may be left where they lie, if some are long enough.
    pub(super) lends: Option<Lends>,
    /// Who takes parts of what is copied and reduced, where it is so much that it pays ([`HELPED`]).
    pub(super) helpers: Option<Helpers>,
}

/// Which messages of a call this rank may leave where they lie.
#[derive(Debug)]
pub(super) struct Lends {
    pub(super) proof: Arc<Proof>,
    pub(super) rank: usize,
    /// Bytes of the shortest that a peer may read where it lies.
    pub(super) read: usize,
    pub(super) taken: Taken,
    /// Bytes of the shortest that goes by TCP without a copy in this rank's system.
    pub(super) paged: usize,
}

/// Which messages of a call peers may take by a system call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    /// Bytes of the shortest.
    message: usize,
    /// Bytes of the shortest block, and of the longest input or output, of a call that has some.
    block: usize,
    vector: usize,
}

impl Taken {
    /// None at all.
    const NONE: Taken = Taken {
        message: usize::MAX,
        block: usize::MAX,
        vector: 0,
    };
    /// All that are long enough.
    const ALL: Taken = Taken {
        message: READ,
        block: 0,
        vector: usize::MAX,
    };

    /// Bytes of the shortest in a call whose longest message has `message` bytes, its longest block `block`, and its longer buffer
    /// `vector`; [`usize::MAX`]: there is none.
    pub(super) fn from(&self, message: usize, block: usize, vector: usize) -> usize {
        match message >= self.message && block >= self.block && vector <= self.vector {
            true => self.message,
            false => usize::MAX,
        }
    }

    /// Those that it takes less time to leave where they lie.
    ///
    /// It is one copy instead of two, but a slow one: the kernel looks up each page. All-gather and all-to-all gain where each rank
    /// has a core and the vector is not so long that it goes past the caches; where ranks share cores all-to-all still does on most
    /// processors ([`taken_by_crowds`]), but an all-gather, whose slots one rank writes and all read, does not; scatter gains where its
    /// blocks are long. A gather's root, which would make all copies alone, loses as much; so do the receivers of a broadcast, which
    /// compete for the root's pages.
    /// And who adds to what it receives reads it by the way, which is better done where it was copied to.
    ///
    /// Measured on 2 cores, medians of 3, copied twice -> once: all-gather of 2 ranks, 64 KiB 7.9 -> 8.9 us, 256 KiB 30 -> 25,
    /// 1 MiB 146 -> 119, 16 MiB 3.1 -> 4.0 ms; of 4 ranks, 256 KiB 73 -> 105 us, 4 MiB 1.5 -> 1.7 ms. On a later processor, all-to-all of
    /// 4 ranks, 256 KiB 98 -> 31 us, 1 MiB 384 -> 264, 4 MiB 1060 -> 1000; of 8 ranks 222 -> 182, 798 -> 689, 2435 -> 2300, 16 MiB 10.4 ->
    /// 13.8 ms.
    fn by(load: &Load, machine: &Machine) -> Taken {
        let (block, vector) = match load.collective.plain() {
            Collective::AllGather | Collective::AlltoAll if load.ranks <= machine.cores() => {
                (0, STREAMED - 1)
            }
            Collective::AlltoAll if machine.crowds_take() == CrowdsTake::Exchanged => {
                (SHORT_BLOCK, STREAMED - 1)
            }
            Collective::Scatter { .. } => (LONG_BLOCK, usize::MAX),
            _ => return Taken::NONE,
        };
        Taken {
            message: TAKEN,
            block,
            vector,
        }
    }
}

/// What ranks that share cores take from each other's memory, where they can.
///
/// Blocks of an all-to-all not where cores keep what they have read, and the kernel copies more slowly than a rank does. Measured on an
/// AMD EPYC (family 25, model 17) with 2 cores, near each other and far, medians of 3 to 5, taken -> copied twice, in us: 4 ranks,
/// 256 KiB 63 -> 28 and 67 -> 54, 1 MiB 167 -> 119 and 173 -> 180, 4 MiB 1160 -> 750 and 1030 -> 750; 8 ranks, 256 KiB 212 -> 88 and
/// 235 -> 152, 1 MiB 511 -> 530 and 613 -> 528, 4 MiB 2940 -> 2640 and 3240 -> 2190. But scatter: 8 ranks, 1 MiB 64 -> 69 and
/// 74 -> 132, 4 MiB 215 -> 292 and 243 -> 510.
pub(super) fn taken_by_crowds(attach: Attach) -> CrowdsTake {
    match attach {
        Attach::Off => CrowdsTake::Nothing,
        Attach::Auto | Attach::Any if cache::keeps_what_it_reads().is_some() => CrowdsTake::Scattered,
        _ => CrowdsTake::Exchanged,
    }
}

impl Plans {
    /// No plans yet; long calls have these helpers. `takes_all`: long messages of all calls are left for their receivers to
    /// take, where they can; `lends_all`: and go by TCP without a copy in their sender's system.
    pub(super) fn new(helpers: Helpers, takes_all: bool, lends_all: bool) -> Self {
        Plans {
            helpers,
            takes_all,
            lends_all,
            ..Plans::default()
        }
    }

    /// The plan for `load` on `machine` by the algorithm that `choose` gives; `why` says why that one. `begins`: the
    /// elements of the vector with which this rank's input and output begin, where its blocks are not given.
    ///
    /// # Errors
    /// [`Error::Internal`] when the proof of its schedule fails; [`Error::Usage`] when it does not fit the links.
    pub(super) fn prepare(
        &mut self,
        load: Load,
        rank: usize,
        machine: &Machine,
        begins: Option<[usize; 2]>,
        (choose, why): (
            impl FnOnce() -> Result<&'static Algorithm, Error>,
            impl FnOnce() -> String,
        ),
    ) -> Result<Arc<Prepared>, Error> {
        let known = self.ready.iter().position(|plan| plan.load == load);
        if let Some(at) = known {
            self.ready[..=at].rotate_right(1);
        } else {
            let algorithm = choose()?;
            let Proved {
                schedule,
                extent,
                proof,
            } = self.get(algorithm, &load, rank, machine.groups(), why)?;
            let layout = Layout {
                count: load.count,
                blocks: schedule.blocks as usize,
                grains: schedule.grains as usize,
            };
            let (tiling, copies) = choose::tiling(
                extent,
                &layout,
                &load,
                MAX_MESSAGE,
                CALL_LANES,
                // Ranks cut alike, whatever the threads that call have set.
                usual(|| machine.tile(&load, &(algorithm.counts)(&load))),
            )?;
            let taken = match self.takes_all {
                true => Taken::ALL,
                false => Taken::by(&load, machine),
            };
            let read = read_from(&load);
            let longest = tiling.elements * load.element;
            let lends = (longest >= read.min(taken.message)).then(|| Lends {
                proof,
                rank,
                read,
                taken,
                paged: match self.lends_all {
                    true => PAGED,
                    false => paged_from(&load, machine),
                },
            });
            let straight = begins.and_then(|begins| {
                let grains = Grains::Cut { layout, begins };
                Straight::new(&schedule, &grains, &tiling, load.element)
            });
            let streamed = match schedule.reads_output() {
                true => usize::MAX,
                false => streamed_from(&load, machine),
            };
            let helpers = (self.helpers.threads() > 1).then(|| self.helpers.clone());
            self.ready.truncate(READY - 1);
            let prepared = Prepared {
                load,
                algorithm: algorithm.name,
                number: algorithm.number(),
                schedule,
                layout,
                tiling,
                copies,
                channels: extent.channels,
                straight,
                streamed,
                past: past_from(&load, machine),
                lends,
                helpers,
            };
            self.ready.insert(0, Arc::new(prepared));
        }
        Ok(self.ready[0].clone())
    }

    /// Forgets the plan of a call that is to go by another algorithm than before.
    pub(super) fn forget_others(&mut self, load: &Load, algorithm: &Algorithm) {
        self.ready
            .retain(|plan| plan.load != *load || plan.algorithm == algorithm.name);
    }

    /// This rank's schedule for a call by `algorithm` among `groups`, which is proved with all other ranks' when this process has
    /// not done so lately; and what was proved. `why` says what made it be used.
    ///
    /// # Errors
    /// [`Error::Internal`] when the proof fails.
    fn get(
        &mut self,
        algorithm: &Algorithm,
        load: &Load,
        rank: usize,
        groups: Option<&Groups>,
        why: impl FnOnce() -> String,
    ) -> Result<Proved, Error> {
        let Load {
            collective,
            ranks,
            order,
            ..
        } = *load;
        let key = (algorithm.name, collective, order);
        match self.recent.iter().position(|(k, ..)| *k == key) {
            Some(0) => {}
            Some(at) => self.recent[..=at].rotate_right(1),
            None => {
                let (proof, took) = proofs::proof(algorithm, (collective, ranks, order), groups)?;
                let bounds = Bounds::of(collective, ranks);
                info!(
                    rank,
                    ranks,
                    "schedule: {} by {}, {}; {}: {} steps and {} messages of all ranks, {:.2} times the least bytes and \
                     {:.2} times the fewest rounds",
                    collective.name(),
                    algorithm.name,
                    why(),
                    took.map_or("proved before".to_owned(), |took| format!("proved in {took:.1?}")),
                    proof.steps,
                    proof.messages,
                    proof.certificate.times_passed(&bounds),
                    proof.certificate.times_rounds(&bounds),
                );
                let request = Request {
                    collective,
                    ranks,
                    rank,
                };
                self.recent.truncate(proofs::kept(CAPACITY, ranks) - 1);
                let proved = Proved {
                    schedule: Arc::new(algorithm.schedule(&request, groups)),
                    extent: proof.extent,
                    proof: Arc::new(proof.of(rank)),
                };
                self.recent.insert(0, (key, proved));
            }
        }
        Ok(self.recent[0].1.clone())
    }
}

/// A rank's part of what the ranks of a core have together.
fn share_of(bytes: usize, load: &Load, machine: &Machine) -> usize {
    bytes / load.ranks.div_ceil(machine.cores()).max(1)
}

/// Bytes of the shortest output that goes past the caches: that of a call of which all ranks' buffers together take [`KEPT`] of each of
/// their cores. It is each rank's own matter.
///
/// Measured on an AMD EPYC (family 25, model 1) with 2 cores, in us, plain -> past the caches, with all buffers' MiB before it. 2 ranks, all-to-all: 12 219 -> 346, 16 416 -> 492, 20 874 -> 654, 28 1521 -> 1107; all-gather: 12 330 -> 475, 15 543 -> 587, 18 931 -> 687;
/// broadcast: 14 377 -> 461. 4 ranks, all-gather: 15 400 -> 675, all-to-all: 24 1035 -> 843, gather: 6 153 -> 203. 8 ranks, broadcast:
/// 12 303 -> 584, all-to-all: 24 2261 -> 1568, all-reduce: 24 1989 -> 1420.
fn streamed_from(load: &Load, machine: &Machine) -> usize {
    let ranks = load.ranks;
    // All buffers, as so many outputs of a rank that has one.
    let outputs = match load.collective.plain() {
        Collective::AllReduce | Collective::AlltoAll | Collective::Scatter { .. } => 2 * ranks,
        Collective::ReduceScatter => ranks * (ranks + 1),
        Collective::AllGather | Collective::Reduce { .. } => ranks + 1,
        Collective::Gather { .. } => 2,
        _ => ranks,
    };
    KEPT * ranks.min(machine.cores()) / outputs
}

/// Bytes of the shortest vector, as long as the longer of a rank's two buffers, of which a rank writes what others are to read past the
/// caches, however near they are ([`Work::past`](crate::exec::Work::past)).
///
/// Where cores keep what they have read, it takes long to write there again what several have read, or what left this core's cache
/// before others had their turn. Measured on an AMD EPYC (family 25, model 17) with 2 cores near each other, medians of 3 and ranges of
/// two or three times, past the caches to plain: broadcast of 2 ranks, 256 KiB 0.97 to 1, 1 to 64 MiB 0.67 to 0.92; of 4 ranks, 64 KiB
/// to 4 MiB 0.64 to 0.76; of 8 0.78 to 1. All-to-all of 8 ranks, 256 KiB 0.94 to 1.2, 512 KiB 0.73 and 0.93, 1 MiB 0.68 to 0.78, 4 MiB 0.76
/// to 0.93; but of 2 and 4 ranks 1 to 1.6, of 5 and 6 0.65 to 1.4. Scatter of 2 and 4 ranks, 1 MiB 0.63 to 0.68, 4 MiB 0.82 to 0.99; but
/// 256 KiB 1 to 1.5, and of 8 ranks 1. Gather, and all that reduces, 1 to 2.6. On one with half as large caches (family 25, model 1)
/// a broadcast gains nothing: 2 ranks, 64 KiB to 4 MiB 1.4 to 1.6; 4 ranks, 256 KiB 1.25, 1 MiB 1.05, 4 MiB 0.96 to 1.1; 8 ranks 1 to 1.05.
fn past_from(load: &Load, machine: &Machine) -> usize {
    let Some(cache) = cache::keeps_what_it_reads().filter(|_| machine.shares_memory()) else {
        return usize::MAX;
    };
    let ranks_a_core = load.ranks.div_ceil(machine.cores());
    match load.collective.plain() {
        Collective::Broadcast { .. } if cache < 1 << 20 => usize::MAX,
        Collective::Broadcast { .. } if ranks_a_core > 1 => 64 << 10,
        Collective::Broadcast { .. } => 1 << 20,
        Collective::Scatter { .. } if ranks_a_core <= 2 => load.ranks * (256 << 10),
        Collective::AlltoAll if ranks_a_core >= 4 => share_of(2 << 20, load, machine),
        _ => usize::MAX,
    }
}

/// Bytes of buffers that stay in the caches for each core, as far as is known without asking how large these are, and who else has
/// data there.
const KEPT: usize = 9 << 20;
/// Bytes of an all-to-all's block from which on it is better taken where ranks share cores. Between 8 ranks, copied twice -> once,
/// blocks of 8 KiB took 42 -> 92 us, of 32 KiB 222 -> 182; between 4 ranks, of 16 KiB 16.5 -> 17.6 us.
const SHORT_BLOCK: usize = 32 << 10;
/// Bytes of a scatter's block from which on it is better taken. Blocks of 32 KiB took 2.3 -> 2.5 us between 2 ranks, 7.9 -> 9.5 between 4,
/// of 64 KiB 4.4 -> 3.8 and 16.5 -> 11.2, of 128 KiB between 8 ranks 60 -> 38.
const LONG_BLOCK: usize = 64 << 10;
/// Bytes of the shortest message that is left for its receiver to take, where it can: both ways take as long, or this one 10 % less,
/// by the processor.
const TAKEN: usize = 32 << 10;
/// Bytes of the shortest vector for which helping threads are woken. To hand over a piece takes about 1 µs, which pays where they
/// come from memory and not from a cache.
///
/// Measured on 2 cores, medians of 3, by 1 -> 2 threads: the sum of two vectors of 16 MiB in pieces of 32 KiB 4.0 -> 2.9 ms, of
/// 64 KiB 4.5 -> 2.5, in one 4.3 -> 2.2. An all-reduce of 1 rank, which copies: 1 MiB 51 -> 53 µs, 4 MiB 404 -> 425, 16 MiB
/// 2.0 -> 2.1 ms, 64 MiB 12.5 -> 10.6.
pub(super) const HELPED: u64 = 8 << 20;

/// Bytes of the shortest message of a call that is left for its receiver to read, where it can.
///
/// Its sender waits until it has been read, and its lines come from the other's cache one by one. Measured on 2 cores between 2
/// threads, copied twice -> read, in us: broadcast of 16 KiB 2.2 -> 2.1, 32 KiB 4.1 -> 3.0; reduce 2.4 -> 2.6 and 4.4 -> 3.4.
/// In an all-reduce also what has just been reduced is read; with messages of 16 KiB 14.5 -> 19.8, of 32 KiB 52 -> 44.
fn read_from(load: &Load) -> usize {
    match load.collective {
        Collective::AllReduce => 32 << 10,
        _ => READ,
    }
}

/// The same of most calls.
const READ: usize = 16 << 10;

/// Bytes of the shortest message of a call that goes by TCP without a copy in its sender's system.
///
/// What the sender is spared makes the receiver's copy slower, which reads pages that it has not seen one by one, and the sender waits
/// until it hears that they came. So it pays nowhere on cores that keep what they read, of which an AMD EPYC (family 25, model 1) with
/// 2 was measured over the loopback interface, medians of 3 to 5, copied twice -> once, in us: 2 ranks, broadcast of 256 KiB 40 -> 47, 1
/// MiB 130 -> 163, 16 MiB 2640 -> 3220; scatter of 1 MiB 91 -> 110, but 16 MiB 1620 -> 1580; gather of 4 MiB 278 -> 382; reduce 604 -> 913;
/// all-reduce 1110 -> 1350; all-to-all 507 -> 622; 4 ranks, broadcast of 4 MiB 1590 -> 1680, scatter 528 -> 614, reduce-scatter of 1 MiB 455
/// -> 691, all-reduce of 16 MiB 15.0 -> 18.8 ms.
///
/// On a machine of which that is not known: all-gather of 512 KiB 183 -> 81, 16 MiB 3.2 -> 4.1 ms; all-to-all of 256 KiB 40 -> 52, 16 MiB 3.5
/// -> 4.0 ms; reduce of 64 KiB 17 -> 30, 16 MiB 3.6 -> 6.0 ms. Where ranks take turns on cores, and so little is under way that they could
/// run ahead of each other from call to call, it costs more, too.
fn paged_from(load: &Load, machine: &Machine) -> usize {
    match load.collective.plain() {
        _ if cache::keeps_what_it_reads().is_some() || machine.runs_ahead(load) => usize::MAX,
        Collective::Broadcast { .. } | Collective::Scatter { .. } => PAGED,
        // Nobody has more to do than others, nor adds.
        Collective::AllGather | Collective::AlltoAll if load.bytes() < STREAMED as f64 => MAX_MESSAGE,
        _ => usize::MAX,
    }
}

const PAGED: usize = 128 << 10;
/// Calls kept ready.
const READY: usize = 8;
/// Schedules kept, at least.
const CAPACITY: usize = 64;
