//! Ranks that die, stand still or hear of each other late in the midst of a call, anywhere, by seeds that replay.
//!
//! `CCL_SIM_SEEDS` is how many seeds are tried, `CCL_SIM_SEED` the first of them.

use super::*;
use crate::types::Cause;
use std::env;

/// What goes wrong, besides the adversarial order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Nothing: messages of different lanes and ranks come in any order all the same.
    Reordered,
    /// At this turn all that is next under way from the first rank to the second takes longer than all others' way.
    Delayed(usize, usize),
    /// The rank has no turn for a long time.
    Stands(usize),
    /// The rank ends; of those that are left each goes on until it waits for that rank in vain, or hears of it.
    Dies(usize),
}

/// How the ranks of a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    Right,
    /// With this error.
    Told(String),
    Dead,
}

/// A call, and what befalls it.
#[derive(Debug)]
struct Case {
    collective: Collective,
    algorithm: &'static Algorithm,
    ranks: usize,
    count: usize,
    tile: usize,
    copies: usize,
    in_place: bool,
    slots: usize,
    fault: Fault,
    /// The turn of the fault.
    at: usize,
}

impl Case {
    fn of(random: &mut fastrand::Rng) -> Case {
        let ranks = random.usize(2..=9);
        let mut collectives = definition::every([random.usize(..ranks)]);
        collectives.retain(|collective| !collective.has_given_blocks());
        let collective = *random.choice(&collectives).unwrap();
        let algorithms: Vec<_> = fitting(collective).collect();
        let peer = random.usize(..ranks);
        let most = 1 << random.u32(0..12);
        let other = (peer + random.usize(1..ranks)) % ranks;
        Case {
            collective,
            algorithm: random.choice(&algorithms).unwrap(),
            ranks,
            count: [0, 1, ranks + 1, 40, 150][random.usize(..5)],
            tile: [1, 4, 16, 50][random.usize(..4)],
            copies: random.usize(1..=CALL_LANES),
            in_place: random.bool(),
            slots: [0, 1, 2, 4][random.usize(..4)],
            fault: match random.u8(..8) {
                0 => Fault::Reordered,
                1 => Fault::Delayed(peer, other),
                2 => Fault::Stands(peer),
                _ => Fault::Dies(peer),
            },
            at: random.usize(..most),
        }
    }

    fn run(&self, seed: u64) -> Result<Vec<End>, String> {
        let schedules = schedules(self.algorithm, self.collective, self.ranks);
        let proof = verify_all(self.collective, &schedules).map_err(|flaw| format!("{flaw:?}"))?;
        let trial = Trial {
            collective: self.collective,
            schedules: &schedules,
            count: self.count,
            in_place: self.in_place,
            tile: self.tile,
            copies: self.copies,
            proof: Some(&proof),
        };
        let mut ends = Vec::new();
        trial.play(self.slots, seed, |world, works| {
            ends = self.play(world, works, seed)?;
            Ok(ends.iter().map(|end| *end == End::Right).collect())
        })?;
        Ok(ends)
    }

    /// Gives the ranks their turns until none is under way, and bounds their number.
    fn play(&self, world: &sim::World, works: &[Work<'_>], seed: u64) -> Result<Vec<End>, String> {
        let mut random = fastrand::Rng::with_seed(!seed);
        let mut ranks = Ranks::new(world, works);
        let mut ends: Vec<Option<End>> = vec![None; self.ranks];
        // How many looks in vain each rank takes before it asks whether those that it waits for live; and how many turns it
        // still has, once one was told, before it is told, too.
        let patience: Vec<usize> = (0..self.ranks).map(|_| random.usize(1..STUCK / 2)).collect();
        let mut late: Vec<usize> = (0..self.ranks).map(|_| random.usize(..200)).collect();
        let (mut waited, mut idle) = (vec![0; self.ranks], 0);
        let (mut turn, mut told) = (0, None::<String>);
        while ends.contains(&None) {
            if turn == self.at {
                match self.fault {
                    Fault::Delayed(from, to) => world.delay(from, to, 3 * sim::LONGEST_DELAY),
                    Fault::Dies(rank) => {
                        world.kill(rank);
                        ends[rank] = Some(End::Dead);
                    }
                    Fault::Reordered | Fault::Stands(_) => {}
                }
            }
            turn += 1;
            let rank = world.next_rank();
            let stands = self.fault == Fault::Stands(rank) && (self.at..self.at + STANDS).contains(&turn);
            if ends[rank].is_some() || stands {
                continue;
            }
            if let Some(why) = told.as_ref().filter(|_| late[rank] == 0) {
                ends[rank] = Some(End::Told(why.clone()));
                world.kill(rank); // what it had offered is withdrawn
                continue;
            }
            late[rank] -= usize::from(told.is_some());
            match ranks.poll(world, rank)? {
                Progress::Done => ends[rank] = Some(End::Right),
                Progress::Moved => (waited[rank], idle) = (0, 0),
                Progress::Blocked => (waited[rank], idle) = (waited[rank] + 1, idle + 1),
            }
            let dead = |&peer: &usize| ends[peer] == Some(End::Dead);
            if told.is_none() && ends[rank].is_none() && waited[rank] >= patience[rank] {
                let lost = ranks.waits_for(rank).into_iter().find(dead);
                told = lost.map(|lost| self.loss(lost, rank));
                late[rank] *= usize::from(told.is_none());
            }
            if idle > STUCK * self.ranks {
                let open = (0..self.ranks).filter(|&rank| ends[rank].is_none());
                let waits: Vec<_> = open.map(|rank| (rank, ranks.waits_for(rank))).collect();
                return Err(format!("stuck after {turn} turns: who waits for whom: {waits:?}"));
            }
        }
        Ok(ends.into_iter().flatten().collect())
    }

    /// What all ranks are told when `seen_by` waits for a rank that has died.
    fn loss(&self, rank: usize, seen_by: usize) -> String {
        let cause = Cause::Lost {
            rank: rank as u32,
            how: "its process ended".to_owned(),
            seen_by: seen_by as u32,
            during: None,
        };
        cause.to_string()
    }
}

#[test]
fn whatever_befalls_a_call_its_ranks_end_rightly_or_are_told_who_is_lost() {
    let number = |name: &str, default: u64| match env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => default,
    };
    let first = number("CCL_SIM_SEED", 1);
    let seeds = first..first + number("CCL_SIM_SEEDS", SEEDS);
    let (mut right, mut deaths, mut told) = (0, 0, 0);
    for seed in seeds.clone() {
        let case = Case::of(&mut fastrand::Rng::with_seed(seed));
        let replay = || {
            let Case { algorithm, fault, .. } = &case;
            format!(
                "CCL_SIM_SEED={seed} CCL_SIM_SEEDS=1 replays it: {}, {fault:?}: {case:?}",
                algorithm.name
            )
        };
        let ends = case.run(seed).unwrap_or_else(|why| panic!("{why}\n{}", replay()));
        let is_right = |end: &End| match (end, case.fault) {
            (End::Right, _) => true,
            (End::Dead, fault) => matches!(fault, Fault::Dies(_)),
            (End::Told(why), Fault::Dies(rank)) => why.contains(&format!("rank {rank} was lost")),
            (End::Told(_), _) => false,
        };
        assert!(ends.iter().all(is_right), "{ends:?}\n{}", replay());
        right += u64::from(ends.iter().all(|end| *end == End::Right));
        deaths += u64::from(ends.contains(&End::Dead));
        told += u64::from(ends.iter().any(|end| matches!(end, End::Told(_))));
    }
    println!(
        "counted: seeds {seeds:?}: {right} calls ended well, in {deaths} a rank died, of which {told} were told"
    );
    let enough = (seeds.end - seeds.start) / 10;
    assert!(
        right >= enough && told >= enough,
        "too few of either to mean anything"
    );
}

/// Seeds that are tried if nothing else is said.
const SEEDS: u64 = 3000;

/// Turns of all ranks for which one stands.
const STANDS: usize = 3000;
