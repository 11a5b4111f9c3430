//! How long a call will take by an algorithm: counts of its messages and bytes, weighed with what they cost on a machine.
//!
//! The time is that of the rounds, in each of which a rank waits for another, and that of the busiest rank's work; where
//! ranks share cores, that of all ranks' work divided by the cores, if it is more.
//!
//! ```text
//! time = call + rounds·α·s² + (lead + moved·s)·β + max(work of the busiest rank, work of all ranks / cores) + links·λ
//! work = messages·o + (bytes − those spared)·β + bytes reduced·γ
//! ```
//!
//! α, o and β are others with fewer cores than ranks, and where bytes go one way only, to a root or from it; o is more where messages go
//! by the general executor, β where vectors or what is in flight exceed a cache.
//!
//! s is how many ranks share a core, at least 1. A rank that waits gives up its turn, s − 1 others have theirs, most of them
//! in vain as well, and so on until each of the s has found what it waits for. Of hundreds most sleep: s² is s·64 from 64 on.
//! λ is a call's share of what it takes to make a link, which is done once: in shared memory where ranks share cores. So among
//! hundreds of ranks a schedule with few peers for each is chosen, and not one that makes n² links.
//!
//! It tells algorithms apart rather than microseconds: other programs and the sizes of most caches are not in it. The names
//! are those of the models that it follows. Source: D. Culler et al., "LogP: towards a realistic model of parallel
//! computation", 1993, with bytes as in A. Alexandrov et al., "LogGP", 1995.

mod tiles;

use super::{
    calibration::{Calibration, Choice, Constants, CrowdsTake, Prices},
    choose::{self, TileBytes},
    definition,
    groups::Groups,
    layout::Blocks,
    levels::Levels,
};
use crate::types::{Collective, DType};

/// A call as all ranks make it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Load {
    pub(crate) collective: Collective,
    pub(crate) ranks: usize,
    /// Elements of the vector.
    pub(crate) count: usize,
    /// Bytes of one.
    pub(crate) element: usize,
    /// Of given blocks of which all ranks know all: how many times the mean the longest has, as a power of two, so that calls whose
    /// lengths differ a little are alike. Else 0.
    pub(crate) skew: u8,
    pub(crate) order: Order,
}

/// What a call asks of the order in which contributions are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Order {
    /// Nothing.
    Any,
    /// That it is the tree over ranks that splits [a, b) at a plus the largest power of two below b − a, whatever the count
    /// and whoever combines. `narrow`: elements are not of the type that they are accumulated in, so that no partial result
    /// may leave the rank that computes it.
    Tree { narrow: bool },
}

impl Load {
    /// Of given blocks `count` is the mean length.
    pub(crate) fn new(collective: Collective, ranks: usize, count: usize, dtype: DType) -> Self {
        // Of vectors that no memory holds any large number will do.
        let total = definition::total(collective, ranks, count).unwrap_or(usize::MAX);
        Load::of_total(collective, ranks, total, dtype)
    }

    /// Of blocks that a rank was given.
    pub(crate) fn given(collective: Collective, ranks: usize, blocks: &Blocks, dtype: DType) -> Self {
        // Where all ranks know all blocks, one side of each has them.
        let total = blocks.total(0).max(blocks.total(1));
        let skew = match collective.counts_by_pair() {
            true => 0,
            false => skew(blocks.longest(), total, ranks),
        };
        Load {
            skew,
            ..Load::of_total(collective, ranks, total, dtype)
        }
    }

    /// With so many elements of the whole vector. Where no rank knows them they are taken for a tile's in each block, so
    /// that all ranks plan alike.
    fn of_total(collective: Collective, ranks: usize, total: usize, dtype: DType) -> Self {
        Load {
            collective,
            ranks,
            count: match collective {
                Collective::Barrier => 1, // the token is the library's own
                _ if collective.counts_by_pair() => ranks * TileBytes::SHARED_MEMORY.most / dtype.size(),
                _ => total,
            },
            element: dtype.size(),
            skew: 0,
            order: Order::Any,
        }
    }

    /// The same call with one order for all its contributions, where they are combined.
    pub(crate) fn in_order(self, dtype: DType) -> Self {
        let narrow = !dtype.is_integer() && dtype.size() < size_of::<f32>();
        let order = if self.collective.reduces() {
            Order::Tree { narrow }
        } else {
            Order::Any
        };
        Load { order, ..self }
    }

    /// Bytes of the vector.
    pub(crate) fn bytes(&self) -> f64 {
        self.count as f64 * self.element as f64
    }

    /// Bytes of the longest of `blocks` blocks, and how many of them are not empty.
    pub(crate) fn blocks(&self, blocks: usize) -> (f64, f64) {
        let longest = self.count.div_ceil(blocks) as f64 * self.element as f64;
        (longest, self.count.min(blocks) as f64)
    }
}

/// How many times the mean of `ranks` blocks the longest has, as a power of two: from 4/3 on it is 2, from 8/3 on 4.
fn skew(longest: usize, total: usize, ranks: usize) -> u8 {
    let times = 3 * longest as u128 * ranks as u128 / (2 * total.max(1)) as u128;
    times.max(1).ilog2() as u8
}

/// What an algorithm does in a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Counts {
    /// Messages that wait for one another: the longest chain.
    pub(crate) rounds: f64,
    /// Ranks that a rank sends to.
    pub(crate) peers: f64,
    /// Bytes of the longest of its messages, were it not for tiles.
    pub(crate) message: f64,
    /// Bytes that go one after the other from rank to rank before the last has work: a pipeline's first tile.
    pub(crate) lead: f64,
    /// Bytes that a rank of an all-to-all copies into scratch memory or out of it, neither received nor sent by that step. What other
    /// collectives copy so is little beside their messages, and not counted.
    pub(crate) moved: f64,
    /// Whether it is done by the general executor: it has several channels, or messages whose bytes do not lie in one piece.
    pub(crate) general: bool,
    /// What the busiest rank does.
    pub(crate) busiest: Work,
    /// What all ranks do together.
    pub(crate) all: Work,
}

/// Work of one rank or of several.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Work {
    /// Messages that are sent or received.
    pub(crate) messages: f64,
    /// Bytes that are sent or received.
    pub(crate) bytes: f64,
    /// Those of them that are sent again, by the same step to one more rank: what ranks of a host share is written once, where a
    /// call goes a straight way.
    pub(crate) spared: f64,
    /// Bytes that are added to others.
    pub(crate) reduced: f64,
}

impl Counts {
    /// Of a call in which there is nobody to talk to.
    pub(crate) const ALONE: Counts = Counts {
        rounds: 0.0,
        peers: 0.0,
        message: 0.0,
        lead: 0.0,
        moved: 0.0,
        general: false,
        busiest: Work::NONE,
        all: Work::NONE,
    };

    /// The same, where so many bytes are sent again: by the busiest rank and by all.
    pub(crate) fn sparing(mut self, busiest: f64, all: f64) -> Counts {
        (self.busiest.spared, self.all.spared) = (busiest, all);
        self
    }

    /// The same where the longest block has more than the mean, for which the rest is counted. A rank sends its own block to each of
    /// its peers, or gets what each has for it, and as many of the others' as are left.
    pub(crate) fn skewed(mut self, load: &Load) -> Counts {
        if load.skew == 0 || load.ranks == 1 {
            return self;
        }
        let (total, others) = (load.bytes(), load.ranks as f64 - 1.0);
        let mean = total / load.ranks as f64;
        let longest = (mean * f64::from(load.skew).exp2()).min(total);
        let rest = (total - longest) / others;
        let one_way = self.peers * longest + (others - self.peers) * rest;
        let busiest = &mut self.busiest;
        busiest.bytes = busiest.bytes.max(one_way + others * rest);
        busiest.spared *= longest / mean;
        if busiest.reduced > 0.0 {
            busiest.reduced = busiest.reduced.max(one_way);
        }
        self
    }

    /// Messages at a time that the busiest rank writes: one for each peer, or fewer where those that several receive are written
    /// once. They are what fills a cache: measured on 2 cores, 8 ranks, direct and ring, an all-gather of 1 MiB took 390 and 610 us,
    /// of 16 MiB 4.7 and 7.2 ms; 32 ranks 1600 us and 2900, 21 ms and 37.
    fn written(&self, shares: bool) -> f64 {
        if !shares || self.busiest.spared == 0.0 {
            return self.peers;
        }
        let sent = self.busiest.bytes / 2.0 - self.busiest.spared;
        (sent / self.message).clamp(1.0, self.peers.max(1.0))
    }

    /// Rounds if a rank sends no more than one message and receives no more than one in each: the rounds, or, if they are
    /// more, what the busiest rank sends or receives. A collective with a root keeps it busy in one way only.
    pub(crate) fn rounds_one_by_one(&self, collective: Collective) -> f64 {
        let ways = if collective.root().is_some() { 1.0 } else { 2.0 };
        self.rounds.max(self.busiest.messages / ways)
    }
}

impl Work {
    pub(crate) const NONE: Work = Work {
        messages: 0.0,
        bytes: 0.0,
        spared: 0.0,
        reduced: 0.0,
    };

    /// Adds `messages` messages of `bytes` bytes each; those of none are not sent.
    pub(crate) fn pass(&mut self, messages: f64, bytes: f64) {
        if bytes > 0.0 {
            self.messages += messages;
            self.bytes += messages * bytes;
        }
    }

    /// The work of as many that do the same.
    pub(crate) fn times(&self, ranks: f64) -> Work {
        Work {
            messages: ranks * self.messages,
            bytes: ranks * self.bytes,
            spared: ranks * self.spared,
            reduced: ranks * self.reduced,
        }
    }

    pub(crate) fn add(&mut self, other: &Work) {
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.spared += other.spared;
        self.reduced += other.reduced;
    }

    /// Makes each number at least that of `other`.
    pub(crate) fn raise_to(&mut self, other: &Work) {
        self.messages = self.messages.max(other.messages);
        self.bytes = self.bytes.max(other.bytes);
        self.spared = self.spared.max(other.spared);
        self.reduced = self.reduced.max(other.reduced);
    }
}

/// What things cost where the ranks run: the same on all ranks of a communicator. Times are in nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Machine {
    /// Cores that the ranks may use together.
    cores: usize,
    /// How long tiles are.
    tile: TileBytes,
    /// The same in calls in which ranks only exchange what they have.
    exchanged_tile: TileBytes,
    /// What ranks that share cores most likely take from each other's memory.
    crowds_take: CrowdsTake,
    /// Whether they write answers where what they answer lies: not where cores keep what they have read.
    answers: bool,
    /// What every call takes.
    call: f64,
    costs: Costs,
    /// The same with more ranks than cores, where a rank that waits has others take their turns, and finds the caches cold.
    crowded: Costs,
    /// Both for calls whose bytes go one way.
    one_way: [Costs; 2],
    /// Which ranks are near each other, where some are and others are not.
    groups: Option<Groups>,
    /// What messages inside a group cost, if not as much as others: `costs` and `crowded`.
    inner: Option<[Costs; 2]>,
    /// What long messages cost where they are read where they lie.
    read: Option<Read>,
    /// By how many times more what a root sends costs it for each further rank on its core.
    root_waits: f64,
    /// Bytes of messages in flight that stay in a core's cache, and how many times as much a byte costs beyond.
    cache: f64,
    cold: f64,
    /// And where the vectors of those who share a core do not stay in it.
    far: f64,
    /// What was measured to be better than what all this says.
    choices: Vec<Choice>,
}

/// What messages of [`Read::LEAST`] bytes and more cost where receivers read them where they lie.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Read {
    costs: Costs,
    crowded: Costs,
}

impl Read {
    const LEAST: f64 = 16384.0;
}

/// [`Prices`] and what goes with them.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Costs {
    round: f64,
    message: f64,
    cold_message: f64,
    byte: f64,
    reduced: f64,
    general: f64,
    /// A link to one more peer, which is made once, by its share of [`CALLS`].
    link: f64,
    /// Whether what several receive is written once.
    shares: bool,
}

impl Machine {
    /// Ranks of one host, over shared memory.
    pub(crate) fn of_shared_memory(cores: usize, calibration: &Calibration) -> Self {
        let links = [0.0, LINK / CALLS];
        Machine {
            tile: TileBytes::SHARED_MEMORY,
            exchanged_tile: TileBytes::EXCHANGED,
            ..Machine::of_constants(cores, &calibration.shm, links, true)
        }
    }

    /// Ranks that read each other's long messages where they lie: threads of one process.
    ///
    /// Measured on 2 cores with `benches/peers/collectives -j`, medians, in us. Among 2 ranks an all-reduce of 64 KiB, 1, 4 and 16 MiB took 6.0,
    /// 145, 620 and 5300 by one-shot, and 17, 166, 820 and 4100 by direct exchange: who reduces what it reads takes hardly
    /// longer than who copies it, and a message costs more than the word of it, as its sender waits until it is read. Among 4
    /// ranks one-shot took 17 for 64 KiB and direct exchange 30; 60 both for 256 KiB; 350 and 270 for 1 MiB.
    pub(crate) fn of_one_memory(cores: usize, calibration: &Calibration) -> Self {
        let shared = Machine::of_shared_memory(cores, calibration);
        let read = Read {
            costs: Costs {
                message: 400.0,
                cold_message: 400.0,
                byte: 0.02,
                reduced: 0.0002,
                ..shared.costs
            },
            crowded: Costs {
                message: 800.0,
                cold_message: 1000.0,
                byte: 0.02,
                reduced: 0.0002,
                ..shared.crowded
            },
        };
        Machine {
            read: Some(read),
            tile: TileBytes::READ,
            exchanged_tile: TileBytes::READ,
            ..shared
        }
    }

    /// Ranks that talk over TCP.
    pub(crate) fn of_tcp(cores: usize, calibration: &Calibration) -> Self {
        Machine {
            root_waits: ROOT_WAITS,
            ..Machine::of_constants(cores, &calibration.tcp, [0.0; 2], false)
        }
    }

    /// Ranks in groups, as on several hosts: they share memory inside a group and talk over TCP otherwise. The constants are
    /// those of both. An algorithm that knows no groups is reckoned as if all its messages went between hosts: in nearly every
    /// round some do, and the others wait for them.
    pub(crate) fn of_hosts(cores: usize, groups: Groups, calibration: &Calibration) -> Self {
        let inside = Machine::of_shared_memory(cores, calibration);
        let between = Machine::of_tcp(cores, calibration).with_groups(groups);
        let adds = |costs: Costs, inside: Costs| Costs {
            reduced: inside.reduced,
            ..costs
        };
        let [alone, crowded] = between.one_way;
        Machine {
            inner: Some([inside.costs, inside.crowded]),
            costs: adds(between.costs, inside.costs),
            crowded: adds(between.crowded, inside.crowded),
            one_way: [adds(alone, inside.one_way[0]), adds(crowded, inside.one_way[1])],
            root_waits: 0.0,
            tile: TileBytes::HOSTS,
            exchanged_tile: TileBytes::HOSTS,
            ..between
        }
    }

    /// Ranks of one host that are bound to its NUMA nodes: messages between two of these cost as many times more as the farthest
    /// memory is farther than a node's own, by what the firmware says; nothing of that was measured. What algorithms that know no
    /// groups cost follows as in [`Machine::of_hosts`].
    pub(crate) fn of_nodes(cores: usize, groups: Groups, farthest: f64, calibration: &Calibration) -> Self {
        let near = Machine::of_shared_memory(cores, calibration);
        let far = |costs: Costs| Costs {
            round: costs.round * farthest,
            message: costs.message * farthest,
            cold_message: costs.cold_message * farthest,
            byte: costs.byte * farthest,
            ..costs
        };
        Machine {
            inner: Some([near.costs, near.crowded]),
            costs: far(near.costs),
            crowded: far(near.crowded),
            one_way: near.one_way.map(far),
            ..near.with_groups(groups)
        }
    }

    /// `links`: what one more link costs, and what it costs those who share cores. `shares`: whether what several receive is
    /// written once.
    fn of_constants(cores: usize, constants: &Constants, links: [f64; 2], shares: bool) -> Self {
        let costs = |prices: &Prices, link| Costs {
            round: prices.round,
            message: prices.message,
            cold_message: prices.cold_message,
            byte: prices.byte,
            reduced: prices.reduced,
            general: prices.general,
            link,
            shares,
        };
        Machine {
            cores,
            tile: TileBytes::TCP,
            exchanged_tile: TileBytes::TCP,
            crowds_take: CrowdsTake::Nothing,
            answers: false,
            call: constants.call,
            costs: costs(&constants.alone, links[0]),
            crowded: costs(&constants.crowded, links[1]),
            one_way: [
                costs(&constants.alone_one_way, links[0]),
                costs(&constants.crowded_one_way, links[1]),
            ],
            groups: None,
            inner: None,
            read: None,
            root_waits: 0.0,
            cache: constants.cache,
            cold: constants.cold,
            far: constants.far,
            choices: Vec::new(),
        }
    }

    /// The same, where ranks that share cores most likely take this from each other's memory.
    pub(crate) fn with_crowds_taking(self, crowds_take: CrowdsTake) -> Self {
        Machine { crowds_take, ..self }
    }

    /// The same, where ranks may write answers where what they answer lies.
    pub(crate) fn with_answers(self, answers: bool) -> Self {
        Machine { answers, ..self }
    }

    /// The same, with what was measured as the best among `ranks` ranks over `transport`.
    pub(crate) fn with_choices(self, choices: &[Choice], transport: &str, ranks: usize) -> Self {
        let concerns = |choice: &&Choice| {
            choice.transport == transport
                && choice.ranks as usize == ranks
                && choice.cores as usize == self.cores
        };
        Machine {
            choices: choices.iter().filter(concerns).cloned().collect(),
            ..self
        }
    }

    /// The name of the algorithm that was measured as the best for a call, where the model would choose a worse one. With blocks of
    /// one length: it says nothing of others.
    pub(crate) fn measured(&self, load: &Load) -> Option<&str> {
        if load.skew > 0 {
            return None;
        }
        let (collective, ranks, bytes) = (load.collective, load.ranks, load.bytes() as u64);
        let mut choices = self.choices.iter();
        let choice = choices.find(|choice| choice.concerns(collective, ranks, bytes))?;
        Some(&choice.algorithm)
    }

    /// The same where it matters which ranks are together.
    pub(crate) fn with_groups(self, groups: Groups) -> Self {
        Machine {
            groups: Some(groups),
            ..self
        }
    }

    pub(crate) fn cores(&self) -> usize {
        self.cores
    }

    /// Whether its constants are those of messages through shared memory, between ranks that are processes.
    pub(crate) fn shares_memory(&self) -> bool {
        self.tile == TileBytes::SHARED_MEMORY
    }

    /// What ranks that share cores most likely take from each other's memory.
    pub(crate) fn crowds_take(&self) -> CrowdsTake {
        self.crowds_take
    }

    /// Which ranks are near each other, if not all are alike.
    pub(crate) fn groups(&self) -> Option<&Groups> {
        self.groups.as_ref()
    }

    /// How long a call takes.
    pub(crate) fn predict(&self, load: &Load, counts: &Counts) -> Parts {
        let costs = match load.collective.root() {
            Some(_) => self.one_way.each_ref(),
            None => [&self.costs, &self.crowded],
        };
        let spent = self.spent(load, counts, costs);
        Parts {
            latency: self.call + spent.latency,
            ..spent
        }
    }

    /// How long a call takes by an algorithm that knows groups.
    pub(crate) fn predict_levels(&self, load: &Load, levels: &Levels) -> Parts {
        let inner = match &self.inner {
            Some([costs, crowded]) => [costs, crowded],
            None => [&self.costs, &self.crowded],
        };
        let (outer, inner) = (
            self.predict(load, &levels.outer),
            self.spent(load, &levels.inner, inner),
        );
        Parts {
            latency: outer.latency + inner.latency,
            messages: outer.messages + inner.messages,
            bytes: outer.bytes + inner.bytes,
            reduction: outer.reduction + inner.reduction,
        }
    }

    /// What messages take, with as many cores as ranks or with fewer.
    fn spent(&self, load: &Load, counts: &Counts, [costs, crowded]: [&Costs; 2]) -> Parts {
        let ranks = load.ranks;
        let read = self.read.as_ref().filter(|_| counts.message >= Read::LEAST);
        let (costs, crowded) = match read {
            Some(read) => (&read.costs, &read.crowded),
            None => (costs, crowded),
        };
        let ranks_a_core = (ranks as f64 / self.cores as f64).max(1.0);
        let costs = if ranks > self.cores { crowded } else { costs };
        let tiles = self
            .crowded_tile(load, counts)
            .map_or(self.tile.most * choose::IN_FLIGHT, TileBytes::in_flight);
        // Between hosts that is nothing beside what is sent.
        let is_one_host = [TileBytes::SHARED_MEMORY, TileBytes::READ].contains(&self.tile);
        let moved = if is_one_host {
            counts.moved * ranks_a_core
        } else {
            0.0
        };
        let in_flight = self.written_a_core(ranks, counts, tiles, costs.shares) + moved;
        let cold = if in_flight > self.cache { self.cold } else { 1.0 };
        let far = match load.bytes() * ranks_a_core > self.cache {
            true => self.far,
            false => 1.0,
        };
        let answered = match self.answers && read.is_none() && is_answered(load, counts) {
            true => ANSWERED,
            false => 1.0,
        };
        let byte = costs.byte * cold * far * answered;
        // The two lines of each message that a rank of a core has to look at before it is that one's turn again.
        let lines = counts.busiest.messages.min(2.0 * counts.peers) * ranks_a_core * 128.0;
        let message = if lines > self.cache {
            costs.cold_message
        } else {
            costs.message
        };
        let message = message + if counts.general { costs.general } else { 0.0 };
        let time = |work: &Work, cores: f64| {
            let spared = if costs.shares { work.spared } else { 0.0 };
            Parts {
                latency: 0.0,
                messages: work.messages * message / cores,
                bytes: (work.bytes - spared) * byte / cores,
                reduction: work.reduced * costs.reduced / cores,
            }
        };
        // What the busiest rank has of a core.
        let share = match load.collective.plain() {
            Collective::Broadcast { .. } | Collective::Scatter { .. } => {
                (1.0 + self.root_waits * (ranks_a_core - 1.0)).recip()
            }
            _ => 1.0,
        };
        let (busiest, all) = (time(&counts.busiest, share), time(&counts.all, self.cores as f64));
        let work = if all.total() > busiest.total() {
            all
        } else {
            busiest
        };
        // Who has no message for a peer makes no link to it.
        let many = (counts.peers - FEW_PEERS).max(0.0);
        let links = (many * ranks as f64).min(counts.all.messages / 2.0);
        let links = many.max(links / self.cores as f64) * costs.link;
        let turns = ranks_a_core * ranks_a_core.min(AWAKE);
        Parts {
            latency: counts.rounds * costs.round * turns,
            messages: work.messages + links,
            bytes: work.bytes + (counts.lead + moved) * byte,
            reduction: work.reduction,
        }
    }
}

/// Whether each rank's second message lies where the first one of its peer did.
fn is_answered(load: &Load, counts: &Counts) -> bool {
    load.collective == Collective::AllReduce && load.ranks == 2 && counts.rounds == 2.0 && !counts.general
}

/// Where the time of a call goes, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Parts {
    /// The call itself, and the rounds in which ranks wait for one another.
    pub(crate) latency: f64,
    /// What messages cost whatever their length, and links.
    pub(crate) messages: f64,
    /// What bytes cost.
    pub(crate) bytes: f64,
    /// What it takes to add bytes to others.
    pub(crate) reduction: f64,
}

impl Parts {
    pub(crate) fn total(&self) -> f64 {
        self.latency + self.messages + self.bytes + self.reduction
    }
}

/// Machines of which nothing was measured.
#[cfg(test)]
impl Machine {
    pub(crate) fn shared_memory(cores: usize) -> Self {
        Machine::of_shared_memory(cores, &Calibration::DEFAULT)
    }

    pub(crate) fn one_memory(cores: usize) -> Self {
        Machine::of_one_memory(cores, &Calibration::DEFAULT)
    }

    pub(crate) fn tcp(cores: usize) -> Self {
        Machine::of_tcp(cores, &Calibration::DEFAULT)
    }

    pub(crate) fn hosts(cores: usize, groups: Groups) -> Self {
        Machine::of_hosts(cores, groups, &Calibration::DEFAULT)
    }
}

/// What a link costs those who make it, in shared memory where ranks share cores: a connection that both prove themselves on,
/// a segment, its first pages. With 128 ranks on 2 cores that were not quiet a run that made 16256 links took about 4 s longer.
const LINK: f64 = 500_000.0;
/// Links to so many peers are not counted: they are made in moments, and soon pay.
const FEW_PEERS: f64 = 32.0;
/// So often a schedule is used before what it needs once has paid for itself.
const CALLS: f64 = 100.0;
/// The ranks of a core that are awake while they wait: where there are more, they sleep before all have had their turn so often.
/// A guess: with 64 ranks a core a round still took s² turns, with 256 fewer.
const AWAKE: f64 = 64.0;

/// What a byte costs of messages every second of which lies where the one before did, to that of others.
///
/// Measured on 2 cores of an Intel Xeon, all-reduce by doubling, by direct with answers elsewhere, and there, in us: 4 KiB 1.1, 1.2
/// and 1.05; 8 KiB 1.85, 2.0, 1.5; 16 KiB 2.6, 3.1, 2.5; 64 KiB 8, 7.6, 5.5; 256 KiB 30, 28, 22.
const ANSWERED: f64 = 0.4;

/// Over the loopback interface who sends does the work of receiving as well, and a root has its core for a share of the time only.
///
/// Measured on 2 cores, broadcast of 64 bytes, direct and by the tree, in us: 4 ranks 14.2 and 10.2, 8 ranks 60 and 24; scatter as much;
/// gather, direct, 10.5 and 24.
const ROOT_WAITS: f64 = 0.5;

/// Bytes of the shortest vector whose output goes past the caches, as far as the lengths of tiles and the ways of messages go by it
/// (for a call itself it is the buffers of all ranks that count): what ranks write stays in the second-level cache no longer. Measured on 2 cores among 8 ranks, with 8 and with 2 MiB, in ms: all-gather of 4 MiB 10 and
/// 5.3, broadcast 8.9 and 6.3.
///
/// All-reduce of 2 ranks on an Intel Xeon, with 8 and with 1 MiB, in us: 1 MiB 128 and 120, 2 MiB 283 and 271, 4 MiB 558 and 565: less than what a caller
/// loses that goes on with the result.
pub(crate) const STREAMED: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{
        algo::{ALGORITHMS, Algorithm, Request, fitting},
        layout::Layout,
        schedule::{Buffer, How, Item, LoopVars, Schedule, Slice, Source, Step},
    };

    /// What a rank's schedule does with a vector, and the bytes that it moves.
    fn work(schedule: &Schedule, load: &Load) -> (Work, f64) {
        let layout = Layout {
            count: load.count,
            blocks: schedule.blocks as usize,
            grains: schedule.grains as usize,
        };
        let (mut work, mut moved) = (Work::NONE, 0.0);
        let mut step = |step: &Step, vars: &LoopVars| {
            let grain = |k| step.shape().unwrap().position(k, vars, schedule.total_grains());
            let grains = 0..step.shape().unwrap().grains();
            let bytes = grains
                .map(|k| layout.grain(grain(k)).len() * load.element)
                .sum::<usize>() as f64;
            let received = |source: &&Source| matches!(source, Source::Recv(_));
            let messages = (step.sources.iter().filter(received).count() + step.sends.len()) as f64;
            if bytes > 0.0 {
                work.messages += messages;
                work.bytes += messages * bytes;
                // Of several channels nothing is: they go by the general executor.
                if schedule.channels.len() == 1 {
                    work.spared += step.sends.len().saturating_sub(1) as f64 * bytes;
                }
                work.reduced += (step.sources.len() - 1) as f64 * bytes;
            }
            assert!(step.how != How::Copy || step.sources.len() == 1);
            let is_scratch = |slice: &Slice| slice.buffer == Buffer::Scratch;
            let moves = match &step.sources[..] {
                [Source::Slice(from)] if step.sends.is_empty() => {
                    is_scratch(from) || step.stores.iter().any(is_scratch)
                }
                _ => false,
            };
            moved += if moves { bytes } else { 0.0 };
        };
        for item in schedule.channels.iter().flatten() {
            match item {
                Item::Step(one) => step(one, &[0; 2]),
                Item::Repeat { count, items } => {
                    for turn in 0..i64::from(*count) {
                        for item in items {
                            let Item::Step(one) = item else {
                                panic!("a repeat in a repeat")
                            };
                            step(one, &[turn, 0]);
                        }
                    }
                }
            }
        }
        (work, moved)
    }

    fn has_channels(algorithm: &Algorithm, load: &Load) -> bool {
        let request = Request {
            collective: load.collective,
            ranks: load.ranks,
            rank: 0,
        };
        load.ranks > 1 && (algorithm.build)(&request).channels.len() > 1
    }

    fn each_work(algorithm: &Algorithm, load: &Load) -> Vec<(Work, f64)> {
        let request = |rank| Request {
            collective: load.collective,
            ranks: load.ranks,
            rank,
        };
        (0..load.ranks)
            .map(|rank| work(&(algorithm.build)(&request(rank)), load))
            .collect()
    }

    #[test]
    fn counts_are_those_of_the_schedules() {
        for ranks in 1usize..=33 {
            for collective in definition::every([ranks / 2]) {
                // One block, some blocks, all blocks, and blocks of several elements.
                for count in [1, ranks.div_ceil(2), ranks, 10 * ranks] {
                    let load = Load::new(collective, ranks, count, DType::Int32);
                    for algorithm in fitting(collective) {
                        let counts = (algorithm.counts)(&load);
                        let what = format!("{} {load:?}", algorithm.name);
                        let (works, moved): (Vec<Work>, Vec<f64>) =
                            each_work(algorithm, &load).into_iter().unzip();
                        if collective == Collective::AlltoAll {
                            assert_eq!(counts.moved, moved.into_iter().fold(0.0, f64::max), "{what}");
                        }
                        assert!(counts.general || !has_channels(algorithm, &load), "{what}");
                        let total = |of: fn(&Work) -> f64| works.iter().map(of).sum::<f64>();
                        let numbers: [fn(&Work) -> f64; 4] =
                            [|w| w.messages, |w| w.bytes, |w| w.spared, |w| w.reduced];
                        let all = numbers.map(total);
                        let counted = numbers.map(|number| number(&counts.all));
                        assert_eq!(counted, all, "{what}");
                        let most = |of: fn(&Work) -> f64| works.iter().map(of).fold(0.0, f64::max);
                        let busiest = numbers.map(most);
                        let counted = numbers.map(|number| number(&counts.busiest));
                        // Of fewer blocks than ranks a ring's rank may meet some only once.
                        // The busiest of the stages of a hierarchy need not be one rank.
                        let exact = match algorithm.name {
                            "ring" => count >= ranks,
                            "hierarchical" | "hierarchical-ring" => false,
                            _ => true,
                        };
                        for (counted, found) in counted.into_iter().zip(busiest) {
                            let at_most = if exact { found } else { 2.0 * found };
                            assert!((found..=at_most).contains(&counted), "{what}: {counted}, {found}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn more_of_anything_takes_longer() {
        for machine in [Machine::shared_memory(8), Machine::one_memory(8), Machine::tcp(8)] {
            for algorithm in ALGORITHMS {
                let mut collectives = definition::every([0]).into_iter();
                let collective = collectives
                    .find(|&collective| (algorithm.fits)(collective))
                    .unwrap();
                let time = |ranks, count| {
                    let load = Load::new(collective, ranks, count, DType::Int8);
                    machine.predict(&load, &(algorithm.counts)(&load)).total()
                };
                for ranks in 2..=64 {
                    assert!(time(ranks, 1 << 20) > time(ranks, 1000), "{}", algorithm.name);
                }
                assert!(
                    time(16, 1000) > time(8, 1000),
                    "{}: a core is shared",
                    algorithm.name
                );
            }
        }
    }
}
