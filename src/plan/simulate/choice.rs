//! With which algorithm, how many channels and what tile a call takes least time on a network: a pure function of both.
//!
//! What it takes to reckon a candidate grows with the pairs of ranks that talk, which follow from the counts of its algorithm without
//! its schedules. So does a time that it cannot take less than. Candidates with few pairs are reckoned first; of the others only
//! those that may be faster than these, and none with so many pairs that it would take long, unless nothing else can do the call.

use super::network::{Network, femtoseconds};
use super::rounds::{Causes, Course, Cut, Spent};
use super::{Busy, Constants, seconds};
use crate::plan::algo::{Algorithm, Request};
use crate::plan::bounds::Bounds;
use crate::plan::cost::{Counts, Load, Order};
use crate::plan::groups::Groups;
use crate::types::{Collective, Error};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

/// What may be chosen, and what is given.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) collective: Collective,
    pub(crate) algorithms: Vec<&'static Algorithm>,
    /// Copies of a schedule that share the vector; none: some that fit.
    pub(crate) channels: Option<usize>,
    /// Bytes of the longest message; none: some that fit.
    pub(crate) tile: Option<f64>,
    pub(crate) in_flight: usize,
    pub(crate) constants: Constants,
}

/// All candidates on a network, for any length.
pub(crate) struct Planner<'n> {
    network: &'n Network,
    question: Question,
    groups: Groups,
    reach: Reach,
    forms: Vec<Form<'n>>,
    unable: Vec<Rejected>,
}

/// An algorithm in so many channels: a candidate.
struct Form<'n> {
    algorithm: &'static Algorithm,
    channels: usize,
    /// Those of ranks that talk to one another, in all channels.
    pairs: f64,
    /// Messages that a thread sends, at least on average, and shares of the vector that a rank does.
    sent: f64,
    shares: f64,
    /// Written when it is first needed.
    course: OnceCell<Result<Course<'n>, String>>,
}

/// What the nearest way takes, in femtoseconds, and what can leave a rank in a second, in bytes. The ranks of the first host stand
/// for all.
#[derive(Debug, Clone, Copy)]
struct Reach {
    nearest: u64,
    widest: f64,
}

/// A way to do a call, and what it takes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) algorithm: &'static str,
    pub(crate) channels: usize,
    /// Bytes of the longest message.
    pub(crate) tile: f64,
    pub(crate) spent: Spent,
    pub(crate) bus_bandwidth: f64,
    /// Which of the forms it is.
    at: usize,
}

/// A candidate that was not reckoned to the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rejected {
    pub(crate) algorithm: &'static str,
    pub(crate) channels: usize,
    pub(crate) why: String,
}

/// Why algorithms were left out, the last reason of each; each reason once, with those to which it applies.
pub(crate) fn reasons<'w>(left_out: impl Iterator<Item = (&'static str, &'w str)>) -> String {
    let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, why) in left_out {
        for (_, names) in &mut all {
            names.retain(|known| *known != name);
        }
        match all.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.push(name),
            None => all.push((why, vec![name])),
        }
    }
    all.retain(|(_, names)| !names.is_empty());
    match &all[..] {
        [(why, _)] => (*why).to_owned(),
        all => {
            let each = |(why, names): &(&str, Vec<&str>)| format!("{}: {why}", names.join(", "));
            all.iter().map(each).collect::<Vec<_>>().join("; ")
        }
    }
}

/// The candidates, the fastest first: at least one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Choice {
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) rejected: Vec<Rejected>,
    pub(crate) bounds: Least,
}

/// What no schedule can do in less. Seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Least {
    pub(crate) latency: f64,
    pub(crate) bandwidth: f64,
}

/// Why the chosen candidate takes as long as it does.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reasons {
    pub(crate) causes: Causes,
    pub(crate) busiest: Vec<Busy>,
}

/// Tiles that are weighed, beside the whole message.
const TILES: [f64; 4] = [65_536.0, 524_288.0, 4_194_304.0, 33_554_432.0];

/// Pairs of ranks up to which a candidate is reckoned whatever others take: a tenth of a second.
const FEW_PAIRS: f64 = 32_768.0;

/// And from which on one is not, if any other can do the call: a second or two.
const MOST_PAIRS: f64 = 524_288.0;

/// The same in one channel, without which an algorithm is not weighed at all; or so many for each rank.
const MOST_PAIRS_OF_ONE: f64 = 1_048_576.0;
const MOST_PEERS: f64 = 32.0;

impl<'n> Planner<'n> {
    pub(crate) fn new(question: Question, network: &'n Network) -> Planner<'n> {
        let groups = network.groups();
        let size = network.ranks_per_host().max(1);
        let channels = question
            .channels
            .map_or_else(|| vec![1, 2, 4, size], |one| vec![one]);
        let channels: BTreeSet<_> = channels
            .into_iter()
            .filter(|&many| question.channels.is_some() || many <= size)
            .collect();
        let (mut forms, mut unable) = (Vec::new(), Vec::new());
        for &algorithm in &question.algorithms {
            for &channels in &channels {
                let form = Form::new(question.collective, algorithm, channels, &groups, network.ranks());
                let first = question.channels.is_some() || channels == 1;
                match form.is_between_all(network.ranks()) && !first {
                    true => unable.push(form.rejected(
                        "every rank sends to every other: more channels go the same ways".to_owned(),
                    )),
                    false => forms.push(form),
                }
            }
        }
        Planner {
            network,
            question,
            groups,
            reach: Reach::of(network),
            forms,
            unable,
        }
    }

    /// Weighs all candidates for a vector of so many bytes. One that cannot be faster than what is known already is left out.
    ///
    /// # Errors
    /// [`Error::Usage`] if no candidate can do it.
    pub(crate) fn choose(&self, bytes: f64) -> Result<Choice, Error> {
        let mut weighing = Weighing {
            planner: self,
            bytes,
            best: f64::INFINITY,
            candidates: Vec::new(),
            rejected: self.unable.clone(),
        };
        let few = |form: &Form<'_>| form.pairs <= FEW_PAIRS;
        weighing.few((0..self.forms.len()).filter(|&at| few(&self.forms[at])));
        weighing.many((0..self.forms.len()).filter(|&at| !few(&self.forms[at])));
        let Weighing {
            mut candidates,
            rejected,
            ..
        } = weighing;
        candidates.sort_by(|one, other| one.spent.time.total_cmp(&other.spent.time));
        if candidates.is_empty() {
            let why = rejected.iter().map(|one| (one.algorithm, one.why.as_str()));
            return Err(Error::usage(format!("nothing to choose from: {}", reasons(why))));
        }
        Ok(Choice {
            candidates,
            rejected,
            bounds: self.bounds(bytes),
        })
    }

    /// Why a candidate takes as long as it does.
    ///
    /// # Errors
    /// None for a candidate of this planner.
    pub(crate) fn reasons(&self, candidate: &Candidate, bytes: f64) -> Result<Reasons, Error> {
        let course = self.course(candidate.at).map_err(Error::usage)?;
        Ok(Reasons {
            causes: course.causes(&self.cut(bytes, candidate.tile))?,
            busiest: course.busiest(bytes, candidate.spent.time),
        })
    }

    /// A course with the tile that it is fastest with, the longest of equals.
    fn tiled(&self, at: usize, bytes: f64) -> Result<Candidate, Error> {
        let form = &self.forms[at];
        let course = self.course(at).map_err(Error::usage)?;
        let shorter = TILES.iter().rev().copied().filter(|&tile| tile < bytes);
        let tiles: Vec<f64> = match self.question.tile {
            Some(tile) => vec![tile],
            None => std::iter::once(bytes.max(1.0)).chain(shorter).collect(),
        };
        let mut best: Option<(f64, Spent)> = None;
        for tile in tiles {
            let spent = course.reckon(&self.cut(bytes, tile))?;
            if best.is_none_or(|(_, best)| spent.time < best.time) {
                best = Some((tile, spent));
            }
        }
        let (tile, spent) = best.ok_or_else(|| Error::internal("no tile to weigh".to_owned()))?;
        Ok(Candidate {
            algorithm: form.algorithm.name,
            channels: form.channels,
            tile,
            bus_bandwidth: course.bus_bandwidth(bytes, spent.time),
            spent,
            at,
        })
    }

    /// A candidate's course, or why there is none.
    fn course(&self, at: usize) -> Result<&Course<'n>, String> {
        let form = &self.forms[at];
        let course = form.course.get_or_init(|| {
            let collective = self.question.collective;
            let groups = Some(&self.groups);
            Course::new(collective, form.algorithm, form.channels, groups, self.network)
                .map_err(|error| error.to_string())
        });
        course.as_ref().map_err(String::clone)
    }

    /// Seconds that a form takes at the least, whatever its messages' ways.
    fn floor(&self, form: &Form<'_>, bytes: f64) -> f64 {
        let overhead = form.sent * self.question.constants.overhead_ns * 1e-9;
        let leaves = match self.reach.widest > 0.0 {
            true => carried(self.question.collective, bytes) * form.shares / self.reach.widest,
            false => 0.0,
        };
        overhead.max(leaves) * (1.0 - ROUNDING)
    }

    fn cut(&self, bytes: f64, tile: f64) -> Cut {
        Cut {
            bytes,
            tile,
            in_flight: self.question.in_flight,
            constants: self.question.constants,
        }
    }

    /// To bring something from one rank to all, or to one, each message over the nearest neighbour's way; and what some rank has to
    /// send, over all the edges that leave it.
    fn bounds(&self, bytes: f64) -> Least {
        let ranks = self.network.ranks();
        let least = Bounds::of(self.question.collective, ranks);
        if ranks < 2 {
            return Least {
                latency: 0.0,
                bandwidth: 0.0,
            };
        }
        let Reach { nearest, widest } = self.reach;
        let overhead = femtoseconds(self.question.constants.overhead_ns);
        let latency = match self.question.collective.plain() {
            // The root takes messages from all at once.
            Collective::Reduce { .. } | Collective::Gather { .. } => overhead.saturating_add(nearest),
            _ => broadcast(ranks as u64, overhead, nearest),
        };
        let sent = carried(self.question.collective, bytes) * least.sent as f64 / ranks as f64;
        Least {
            latency: seconds(latency),
            bandwidth: if widest > 0.0 { sent / widest } else { 0.0 },
        }
    }
}

/// A choice that is being made.
struct Weighing<'p, 'n> {
    planner: &'p Planner<'n>,
    bytes: f64,
    best: f64,
    candidates: Vec<Candidate>,
    rejected: Vec<Rejected>,
}

impl Weighing<'_, '_> {
    /// Those whose courses are soon written: the busiest edge of each tells what it takes at the least.
    fn few(&mut self, forms: impl Iterator<Item = usize>) {
        let mut order = Vec::new();
        for at in forms {
            match self.planner.course(at) {
                Ok(course) => order.push((course.least(self.bytes), at)),
                Err(why) => self.reject(at, why),
            }
        }
        order.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        for (_, at) in order {
            self.weigh(at);
        }
    }

    /// The others: those that may be better than all before, and, while there is none, the one with fewest pairs.
    fn many(&mut self, forms: impl Iterator<Item = usize>) {
        let (planner, bytes) = (self.planner, self.bytes);
        let ranks = planner.network.ranks() as f64;
        let most = |form: &Form<'_>| match form.channels {
            1 => MOST_PAIRS_OF_ONE.max(MOST_PEERS * ranks),
            _ => MOST_PAIRS,
        };
        let mut order: Vec<_> = forms
            .map(|at| (planner.floor(&planner.forms[at], bytes), at))
            .collect();
        order.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        let mut long = Vec::new();
        for (floor, at) in order {
            let form = &planner.forms[at];
            if floor > self.best {
                let (floor, best) = (floor * 1e6, self.best * 1e6);
                self.reject(
                    at,
                    format!("it takes no less than {floor:.1} us, and the best {best:.1} us"),
                );
            } else if form.pairs > most(form) {
                long.push((form.pairs, at));
            } else {
                self.weigh(at);
            }
        }
        long.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        for (pairs, at) in long {
            match self.candidates.is_empty() {
                true => self.weigh(at),
                false => self.reject(
                    at,
                    format!("{pairs:.0} pairs of ranks that talk take long to reckon: ask for it alone"),
                ),
            }
        }
    }

    /// Reckons one, if its busiest edge does not take longer than the best.
    fn weigh(&mut self, at: usize) {
        match self.weighed(at) {
            Ok(candidate) => {
                self.best = self.best.min(candidate.spent.time);
                self.candidates.push(candidate);
            }
            Err(why) => self.reject(at, why),
        }
    }

    fn weighed(&self, at: usize) -> Result<Candidate, String> {
        let course = self.planner.course(at)?;
        let least = course.least(self.bytes);
        if least > self.best
            && let [Busy { name, .. }, ..] = &course.busiest(self.bytes, least)[..]
        {
            let (least, best) = (least * 1e6, self.best * 1e6);
            return Err(format!(
                "{name} alone takes {least:.1} us, and the best {best:.1} us"
            ));
        }
        let candidate = self.planner.tiled(at, self.bytes);
        candidate.map_err(|error| error.to_string())
    }

    fn reject(&mut self, at: usize, why: String) {
        self.rejected.push(self.planner.forms[at].rejected(why));
    }
}

impl Form<'_> {
    fn new(
        collective: Collective,
        algorithm: &'static Algorithm,
        channels: usize,
        groups: &Groups,
        ranks: usize,
    ) -> Self {
        let load = Load {
            collective,
            ranks,
            count: VECTOR,
            element: 1,
            skew: 0,
            order: Order::Any,
        };
        let groups = Some(groups).filter(|groups| groups.has_levels());
        let (counts, pairs) = match algorithm.levels(&load, groups) {
            Some(levels) => (
                levels.together(),
                pairs(&levels.inner, ranks) + pairs(&levels.outer, ranks),
            ),
            None => {
                let counts = (algorithm.counts)(&load);
                (counts, pairs(&counts, ranks))
            }
        };
        let request = Request {
            collective,
            ranks,
            rank: 0,
        };
        let threads = algorithm.schedule(&request, groups).channels.len().max(1);
        let messages = counts.all.messages / 2.0;
        Form {
            algorithm,
            channels,
            pairs: pairs * channels as f64,
            sent: messages / (ranks * threads) as f64,
            shares: counts.all.bytes / 2.0 / (ranks as f64 * VECTOR as f64),
            course: OnceCell::new(),
        }
    }

    /// Whether every rank sends to every other.
    fn is_between_all(&self, ranks: usize) -> bool {
        self.pairs >= (ranks * ranks.saturating_sub(1) * self.channels) as f64
    }

    fn rejected(&self, why: String) -> Rejected {
        Rejected {
            algorithm: self.algorithm.name,
            channels: self.channels,
            why,
        }
    }
}

/// No more than there are messages, nor than ranks with as many peers as the busiest.
fn pairs(counts: &Counts, ranks: usize) -> f64 {
    (counts.all.messages / 2.0).min(counts.peers * ranks as f64)
}

/// Bytes of a vector that is long enough for all blocks to be about equal.
const VECTOR: usize = usize::MAX >> 12;

/// So that rounding leaves nothing out.
const ROUNDING: f64 = 1e-9;

impl Reach {
    fn of(network: &Network) -> Reach {
        let (ranks, size) = (network.ranks(), network.ranks_per_host());
        let (mut nearest, mut widest) = (u64::MAX, 0.0_f64);
        for rank in 0..size.min(ranks) {
            let mut leaving = BTreeMap::new();
            let others = (0..network.telling_ranks()).filter(|&other| other != rank);
            for other in others {
                let Ok(way) = network.way(rank, other) else {
                    continue;
                };
                nearest = nearest.min(way.latency);
                if let Some(&edge) = way.edges.first() {
                    leaving.insert(edge, network.capacity(edge));
                }
            }
            widest = widest.max(leaving.values().sum());
        }
        Reach { nearest, widest }
    }
}

/// Femtoseconds after which all of so many ranks can know what one knew: whoever knows it sends it on, a message each `overhead`, which
/// comes `latency` later. No schedule is faster, since no message is in vain. Source: R. Karp et al., "Optimal broadcast and
/// summation in the LogP model", 1993.
fn broadcast(ranks: u64, overhead: u64, latency: u64) -> u64 {
    // How many ranks are free to send, by when.
    let mut free = BTreeMap::from([(0_u64, 1_u64)]);
    let (mut informed, mut last) = (1, 0_u64);
    while informed < ranks {
        let Some((now, senders)) = free.pop_first() else {
            break;
        };
        let sent = now.saturating_add(overhead);
        let comes = sent.saturating_add(latency);
        last = last.max(comes);
        informed += senders;
        *free.entry(sent).or_default() += senders;
        *free.entry(comes).or_default() += senders;
    }
    last
}

/// A barrier has no bytes.
fn carried(collective: Collective, bytes: f64) -> f64 {
    match collective {
        Collective::Barrier => 0.0,
        _ => bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::super::host::{Host, Limits};
    use super::super::network::Fabric;
    use super::super::program::{Programs, Work};
    use super::*;
    use crate::{plan::algo::fitting, topo::read};
    use std::path::Path;

    fn hosts(hosts: usize, size: usize) -> Network {
        let host = Host::uniform(size, 400e9, 400, Limits::USUAL);
        Network::cluster(host, hosts, Fabric::switch(500.0))
    }

    fn pods() -> Network {
        const FILE: &str = "tests/data/topologies/own/hccl-pods.jsonc";
        let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE)).unwrap();
        let graph = read::read(&text, "hccl").unwrap().0.graph;
        Network::whole(graph, None, 2, Limits::USUAL).unwrap()
    }

    fn question(collective: Collective) -> Question {
        Question {
            collective,
            algorithms: fitting(collective).collect(),
            channels: None,
            tile: None,
            in_flight: 4,
            constants: Constants::USUAL,
        }
    }

    const COLLECTIVES: [Collective; 6] = [
        Collective::AllReduce,
        Collective::Broadcast { root: 0 },
        Collective::AllGather,
        Collective::ReduceScatter,
        Collective::Gather { root: 0 },
        Collective::AlltoAll,
    ];

    #[test]
    fn nothing_takes_less_than_it_is_said_to_take_at_least() {
        for (network, what) in [
            (hosts(1, 12), "one host"),
            (hosts(4, 4), "four hosts"),
            (hosts(9, 1), "hosts of one"),
            (hosts(1, 1), "one rank"),
            (
                pods(),
                "pods of hosts, of which a rank has another edge to the other ones",
            ),
        ] {
            for collective in COLLECTIVES {
                let planner = Planner::new(question(collective), &network);
                for (at, form) in planner.forms.iter().enumerate() {
                    for bytes in [0.0, 1e3, 1e6, 1e9] {
                        let time = planner.tiled(at, bytes).unwrap().spent.time;
                        let floor = planner.floor(form, bytes);
                        let form = (form.algorithm.name, form.channels);
                        assert!(floor <= time, "{form:?} {collective:?} {what}: {floor} {time}");
                        let edge = planner.course(at).unwrap().least(bytes) * (1.0 - ROUNDING);
                        assert!(edge <= time, "{form:?} {collective:?} {what}: {edge} {time}");
                        let least = planner.bounds(bytes);
                        let least = least.latency.max(least.bandwidth) * (1.0 - ROUNDING);
                        assert!(least <= time, "{form:?} {collective:?} {what}: {least} {time}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_its_busiest_edge_makes_too_slow_is_not_reckoned_however_short_the_call() {
        let network = hosts(4, 4);
        let planner = Planner::new(question(Collective::AllReduce), &network);
        for bytes in [1e6, 1e9] {
            let choice = planner.choose(bytes).unwrap();
            let alone = |one: &&Rejected| one.why.contains(" alone takes ");
            assert!(
                choice.rejected.iter().any(|one| alone(&one)),
                "{bytes}: {choice:?}"
            );
        }
    }

    #[test]
    fn a_call_of_days_takes_as_long_as_its_bytes() {
        let network = hosts(4, 1);
        let mut asked = question(Collective::Broadcast { root: 0 });
        asked.tile = Some(1e9);
        let planner = Planner::new(asked, &network);
        let time = |bytes| planner.choose(bytes).unwrap().candidates[0].spent.time;
        let times = time(1e16) / time(1e12);
        assert!((9_900.0..10_001.0).contains(&times), "{times}");
    }

    #[test]
    fn the_last_rank_knows_it_after_as_long_as_the_best_tree_takes() {
        // With no latency every rank sends in each round; with no overhead one sends to all.
        assert_eq!(
            [1, 2, 3, 8, 9].map(|ranks| broadcast(ranks, 5, 0)),
            [0, 5, 10, 15, 20]
        );
        assert_eq!([1, 2, 1000].map(|ranks| broadcast(ranks, 0, 7)), [0, 7, 7]);
        // Figure 3 of the LogP paper: among eight ranks, a message every 4, which has come 2 + 6 + 2 after it was begun.
        assert_eq!(broadcast(8, 4, 6), 24);
        assert_eq!(broadcast(1 << 10, 1, u64::MAX), u64::MAX);
    }

    #[test]
    fn pairs_are_known_without_schedules() {
        for network in [hosts(1, 12), hosts(4, 4), hosts(3, 5), hosts(16, 1)] {
            for collective in COLLECTIVES {
                for form in Planner::new(question(collective), &network).forms {
                    let work = Work {
                        collective,
                        algorithm: form.algorithm,
                        parts: form.channels,
                        groups: None,
                    };
                    let lanes = Programs::new(&work, &network).unwrap().lanes.len() as f64;
                    let what = format!("{} {collective:?}: {} {lanes}", form.algorithm.name, form.pairs);
                    assert!(lanes <= form.pairs && form.pairs <= 4.0 * lanes, "{what}");
                }
            }
        }
    }

    #[test]
    fn more_channels_take_no_other_ways_between_all() {
        let network = hosts(3, 4);
        let choose = |channels| {
            let algorithms = fitting(Collective::AllReduce);
            let direct = algorithms
                .filter(|algorithm| algorithm.name == "direct")
                .collect();
            let question = Question {
                algorithms: direct,
                channels,
                ..question(Collective::AllReduce)
            };
            Planner::new(question, &network).choose(1e6).unwrap()
        };
        let one = choose(None);
        assert_eq!((one.candidates.len(), one.candidates[0].channels), (1, 1));
        assert_eq!(one.rejected.len(), 2);
        assert!(
            one.rejected
                .iter()
                .all(|rejected| rejected.why.contains("the same ways"))
        );
        let four = choose(Some(4));
        let times = four.candidates[0].spent.time / one.candidates[0].spent.time;
        assert!((0.999..1.001).contains(&times), "{times}");
    }

    #[test]
    fn what_takes_long_to_reckon_is_left_out_with_a_reason() {
        let network = hosts(1, 300);
        let planner = Planner::new(question(Collective::AllReduce), &network);
        let choice = planner.choose(1e6).unwrap();
        let why = |name, channels| {
            let same = |one: &&Rejected| (one.algorithm, one.channels) == (name, channels);
            &choice.rejected.iter().find(same).unwrap().why
        };
        assert!(why("direct", 300).contains("the same ways"), "{choice:?}");
        assert!(why("direct", 1).contains("it takes no less than"), "{choice:?}");
        assert!(why("doubling", 300).contains("take long to reckon"), "{choice:?}");

        // It is reckoned where nothing else can do the call.
        let mut alone = question(Collective::AllReduce);
        alone.algorithms.retain(|algorithm| algorithm.name == "doubling");
        alone.channels = Some(200);
        let choice = Planner::new(alone, &network).choose(1e6).unwrap();
        assert_eq!(choice.candidates[0].channels, 200);
    }
}
