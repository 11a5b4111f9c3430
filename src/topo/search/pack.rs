//! Several rings side by side: each takes what it carries from what is left.

use super::{
    EXACT, End, Ring,
    exact::{self, Candidate, Wanted},
    local,
    problem::{Load, Problem, Route},
};
use crate::topo::width;

/// More channels than this are of no use.
pub(super) const MOST: usize = 32;

/// A channel that carries less than this part of the first is not worth its work.
pub(super) const LEAST: u64 = 16;

/// Speeds that all rings are tried with.
const SPEEDS: usize = 6;

/// Tries with other rings among equals.
const TURNS: u64 = 40;

/// Rings side by side, until they carry `most` or no more fits.
pub(super) fn rings(problem: &Problem, steps: u64, most: Option<u64>) -> (Vec<Ring>, End) {
    let mut pack = Pack {
        problem,
        steps,
        turn: 0,
        taken: 0,
    };
    let mut best = pack.greedy(None);
    let mut taken = pack.taken;
    let enough = |packed: &[Candidate]| most.is_none_or(|most| !less(total(packed), most));
    if problem.len() <= EXACT {
        let turns = (1..=TURNS).map(|turn| (None, turn));
        let speeds = speeds(problem, &best).into_iter().map(|speed| (Some(speed), 0));
        for (speed, turn) in turns.chain(speeds) {
            if enough(&best) {
                break;
            }
            let mut other = Pack {
                // A search that is cut short may leave more to the others.
                steps: steps >> (2 + turn % 4),
                turn,
                taken: 0,
                ..pack
            };
            let packed = other.greedy(speed);
            if less(total(&best), total(&packed)) {
                (best, taken) = (packed, other.taken);
            }
        }
    }
    even(problem, &mut best);
    let end = match taken {
        _ if most.is_some() && enough(&best) => End::Exact,
        _ if problem.len() > EXACT => End::TwoOpt,
        0 => End::Greedy,
        taken => End::Steps(taken),
    };
    (finish(problem, best), end)
}

#[derive(Clone, Copy)]
struct Pack<'p> {
    problem: &'p Problem,
    steps: u64,
    turn: u64,
    /// Steps of searches that did not see all that they had to.
    taken: u64,
}

impl Pack<'_> {
    /// One after another; all with the same speed, or each with what it can.
    fn greedy(&mut self, speed: Option<u64>) -> Vec<Candidate> {
        let mut left = self.problem.capacities.clone();
        let mut packed: Vec<Candidate> = Vec::new();
        while packed.len() < MOST {
            let first = packed.first().map_or(0, |first| first.speed);
            let wanted = Wanted {
                beyond: speed.map_or(first / LEAST, |speed| speed - 1),
                enough: speed.unwrap_or_else(|| enough(self.problem, &left)),
                steps: if packed.is_empty() {
                    self.steps
                } else {
                    self.steps / 4
                },
                turn: self.turn,
            };
            let Some(mut found) = self.one(&left, wanted) else {
                break;
            };
            found.speed = speed.unwrap_or(found.speed);
            for &used in routes(self.problem, &found).iter().flat_map(|route| &route.uses) {
                left[used as usize] = left[used as usize].saturating_sub(found.speed);
            }
            packed.push(found);
        }
        packed
    }

    fn one(&mut self, left: &[u64], wanted: Wanted) -> Option<Candidate> {
        if wanted.enough <= wanted.beyond {
            return None;
        }
        if self.problem.len() > EXACT {
            return local::good(self.problem, left, wanted.beyond, wanted.steps);
        }
        let (found, all) = exact::best(self.problem, left, wanted);
        if all {
            return found;
        }
        self.taken += wanted.steps;
        // A mended ring may be better than what the search had time for.
        let mended = local::good(self.problem, left, wanted.beyond, wanted.steps / 4);
        let best = found.into_iter().chain(mended);
        best.max_by_key(|ring| ring.speed)
    }
}

/// What no single ring can pass: each endpoint has a best hop to it and from it.
fn enough(problem: &Problem, left: &[u64]) -> u64 {
    let load = Load::none(left);
    let with = |route: Option<&Route>| route.map_or(0, |route| load.with(route));
    let count = problem.len();
    let nics = 0..problem.nics.len();
    let mut least = u64::MAX;
    for at in 0..count {
        let others = (0..count).filter(|other| *other != at);
        let into = others.clone().map(|other| with(problem.route(other, at)));
        let into = into
            .chain(nics.clone().map(|nic| with(problem.enter(nic, at))))
            .max();
        let out = others.map(|other| with(problem.route(at, other)));
        let out = out
            .chain(nics.clone().map(|nic| with(problem.leave(at, nic))))
            .max();
        least = least.min(into.unwrap_or(0)).min(out.unwrap_or(0));
    }
    if !nics.is_empty() {
        let pairs = || nics.clone().flat_map(|nic| (0..count).map(move |at| (nic, at)));
        let into = pairs().map(|(nic, to)| with(problem.enter(nic, to))).max();
        let out = pairs().map(|(nic, from)| with(problem.leave(from, nic))).max();
        least = least.min(into.unwrap_or(0)).min(out.unwrap_or(0));
    }
    least
}

/// Speeds at which rings may fill up what is shared: parts of the first ring's, and what single hops carry.
fn speeds(problem: &Problem, best: &[Candidate]) -> Vec<u64> {
    let Some(first) = best.first().map(|first| first.speed) else {
        return Vec::new();
    };
    let count = problem.len();
    let load = Load::none(&problem.capacities);
    let hops = (0..count * count).filter_map(|at| problem.route(at / count, at % count));
    let mut hops: Vec<u64> = hops
        .map(|route| load.with(route))
        .filter(|&speed| speed < first)
        .collect();
    hops.sort();
    hops.dedup();
    let parts = [2, 3, 4, 6].map(|part| first / part);
    let mut speeds: Vec<u64> = hops.into_iter().rev().take(3).chain(parts).collect();
    speeds.retain(|&speed| speed > first / LEAST);
    speeds.sort_by(|one, other| other.cmp(one));
    speeds.dedup();
    speeds.truncate(SPEEDS);
    speeds
}

/// The same speed for all, where that carries as much together.
fn even(problem: &Problem, packed: &mut [Candidate]) {
    let mut load = Load::none(&problem.capacities);
    let mut speed = width::MOST;
    for channel in packed.iter() {
        for route in routes(problem, channel) {
            speed = speed.min(load.add(route));
        }
    }
    if !less(speed.saturating_mul(packed.len() as u64), total(packed)) {
        for channel in packed {
            channel.speed = speed;
        }
    }
}

/// What a channel's hops use.
fn routes<'p>(problem: &'p Problem, channel: &Candidate) -> Vec<&'p Route> {
    let order = &channel.order;
    let hops = order.windows(2).map(|pair| problem.route(pair[0], pair[1]));
    let (first, last) = (order[0], order[order.len() - 1]); // No channel is without endpoints.
    let ends = match channel.nics {
        Some([enter, leave]) => [problem.enter(enter, first), problem.leave(last, leave)],
        None => [None, problem.route(last, first)],
    };
    hops.chain(ends).flatten().collect()
}

fn finish(problem: &Problem, packed: Vec<Candidate>) -> Vec<Ring> {
    let mut load = Load::none(&problem.capacities);
    for route in packed.iter().flat_map(|channel| routes(problem, channel)) {
        load.add(route);
    }
    let ring = |channel: &Candidate| {
        let routes = routes(problem, channel);
        let mut relays: Vec<_> = routes
            .iter()
            .flat_map(|route| route.relays.iter().copied())
            .collect();
        relays.sort();
        relays.dedup();
        Ring {
            order: channel.order.iter().map(|&at| problem.endpoints[at]).collect(),
            nics: channel.nics.map(|nics| nics.map(|nic| problem.nics[nic])),
            bytes_per_second: channel.speed,
            relays,
            limit: problem.limit(&routes, &load.times),
        }
    };
    packed.iter().map(ring).collect()
}

fn total(packed: &[Candidate]) -> u64 {
    packed.iter().map(|channel| channel.speed).sum()
}

/// Less by more than what division leaves over.
fn less(one: u64, other: u64) -> bool {
    one < other - other / 1000
}
