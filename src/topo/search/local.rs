//! A ring over many endpoints: to the best neighbour, then with pairs of hops exchanged (2-opt) while that helps. And which
//! endpoints could change places.

use super::{
    exact::{Candidate, exit},
    problem::{Load, Problem, Route},
};
use crate::topo::paths::Way;
use std::{cmp::Reverse, collections::HashMap};

/// How good an order is: what it carries, its worst way and the sum of what its ways are.
type Worth = (u64, Reverse<Way>, Reverse<usize>);

/// A good ring that carries more than `beyond`, if one is found; no more than some multiple of `steps` is looked at.
pub(super) fn good(problem: &Problem, left: &[u64], beyond: u64, steps: u64) -> Option<Candidate> {
    let mut order = greedy(problem, left)?;
    let (mut worth, mut nics) = worth(problem, left, &order)?;
    // A look takes about as long as a step for each hop; with more adapters than those, for each of them.
    let mut looks = steps / problem.len().max(problem.nics.len()) as u64;
    let mut better = true;
    while std::mem::take(&mut better) && looks > 0 {
        for start in 0..order.len() - 1 {
            for end in start + 1..order.len() {
                if looks == 0 {
                    break;
                }
                looks -= 1;
                order[start..=end].reverse();
                match self::worth(problem, left, &order) {
                    Some(other) if other.0 > worth => {
                        (worth, nics) = other;
                        better = true;
                    }
                    _ => order[start..=end].reverse(),
                }
            }
        }
    }
    let speed = worth.0;
    (speed > beyond).then_some(Candidate { order, nics, speed })
}

fn greedy(problem: &Problem, left: &[u64]) -> Option<Vec<usize>> {
    let mut load = Load::none(left);
    let mut order: Vec<usize> = Vec::new();
    let mut free = vec![true; problem.len()];
    let enter = (0..problem.nics.len()).flat_map(|nic| (0..problem.len()).map(move |to| (nic, to)));
    let enter = enter.filter_map(|(nic, to)| Some((problem.enter(nic, to)?, to)));
    let first = enter.min_by_key(|(route, to)| (Reverse(load.with(route)), route.way, *to));
    if let Some((route, _)) = first {
        load.add(route);
    }
    let mut next = first.map_or(0, |(_, to)| to);
    loop {
        order.push(next);
        free[next] = false;
        let choices = (0..problem.len()).filter(|to| free[*to]);
        let choices = choices.filter_map(|to| Some((problem.route(next, to)?, to)));
        match choices.min_by_key(|(route, to)| (Reverse(load.with(route)), route.way, *to)) {
            Some((route, to)) => {
                load.add(route);
                next = to;
            }
            None => return (order.len() == problem.len()).then_some(order),
        }
    }
}

fn worth(problem: &Problem, left: &[u64], order: &[usize]) -> Option<(Worth, Option<[usize; 2]>)> {
    let (&first, &last) = (order.first()?, order.last()?);
    let mut load = Load::none(left);
    let mut speed = u64::MAX;
    let mut worst = Way::Local;
    let mut sum = 0;
    let mut add = |route: &Route, load: &mut Load| {
        speed = speed.min(load.add(route));
        worst = worst.max(route.way);
        sum += route.way as usize;
    };
    for pair in order.windows(2) {
        add(problem.route(pair[0], pair[1])?, &mut load);
    }
    let nics = if problem.nics.is_empty() {
        add(problem.route(last, first)?, &mut load);
        None
    } else {
        let enter = (0..problem.nics.len()).filter_map(|nic| Some((problem.enter(nic, first)?, nic)));
        let (route, enter) = enter.min_by_key(|(route, nic)| (Reverse(load.with(route)), route.way, *nic))?;
        add(route, &mut load);
        let (_, leave) = exit(problem, &load, last)?;
        add(problem.leave(last, leave)?, &mut load);
        Some([enter, leave])
    };
    Some(((speed, Reverse(worst), Reverse(sum)), nics))
}

/// For each endpoint, those with which it could change places without any difference: for the first 64.
///
/// Two are twins if exchanging what their hops use for one another's changes no capacity and no hop of others.
pub(super) fn twins(problem: &Problem, left: &[u64]) -> Vec<u64> {
    let count = problem.len().min(64);
    let mut twins = vec![0; problem.len()];
    for one in 0..count {
        for other in one + 1..count {
            // Being twins is transitive.
            let known = twins[one] & twins[other] != 0;
            if known || are_twins(problem, left, one, other) {
                twins[one] |= 1 << other;
                twins[other] |= 1 << one;
            }
        }
    }
    twins
}

fn are_twins(problem: &Problem, left: &[u64], one: usize, other: usize) -> bool {
    let mut images: HashMap<u32, u32> = HashMap::new();
    let count = problem.len();
    let swap = |at: usize| match at {
        at if at == one => other,
        at if at == other => one,
        at => at,
    };
    let mut same = |route: Option<&Route>, image: Option<&Route>| match (route, image) {
        (None, None) => true,
        (Some(route), Some(image)) => {
            route.way == image.way
                && route.uses.len() == image.uses.len()
                && route.uses.iter().zip(&image.uses).all(|(&used, &its)| {
                    left[used as usize] == left[its as usize] && *images.entry(used).or_insert(its) == its
                })
        }
        _ => false,
    };
    // With hops that the exchange concerns first: they tell most pairs apart.
    let all = [one, other]
        .into_iter()
        .chain((0..count).filter(|at| ![one, other].contains(at)));
    for from in all {
        let hops = (0..count).all(|to| same(problem.route(from, to), problem.route(swap(from), swap(to))));
        let nics = (0..problem.nics.len()).all(|nic| {
            same(problem.enter(nic, from), problem.enter(nic, swap(from)))
                && same(problem.leave(from, nic), problem.leave(swap(from), nic))
        });
        if !hops || !nics {
            return false;
        }
    }
    true
}
