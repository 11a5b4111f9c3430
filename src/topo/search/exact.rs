//! The best ring over up to 64 endpoints: branch and bound.
//!
//! Endpoints are added one by one, the promising first. A part is given up when it carries no more than the best ring so far, or
//! when over hops that carry more than that not all others can be reached. Of endpoints that could change places without any
//! difference only the first is tried.

use super::problem::{Load, Problem, Route};

/// A ring, or a way through a host, by numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) order: Vec<usize>,
    /// Where it enters and leaves a host.
    pub(super) nics: Option<[usize; 2]>,
    pub(super) speed: u64,
}

/// What is looked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    /// Slower ones do not matter.
    pub(super) beyond: u64,
    /// A ring this fast is fast enough.
    pub(super) enough: u64,
    pub(super) steps: u64,
    /// Among equal hops another one is tried first for each turn; with 0 that to the first endpoint.
    pub(super) turn: u64,
}

/// The best ring that is wanted, and whether it is sure that there is no better one.
pub(super) fn best(problem: &Problem, left: &[u64], wanted: Wanted) -> (Option<Candidate>, bool) {
    let mut search = Search::new(problem, left, wanted);
    search.run();
    (search.found, search.steps > 0)
}

struct Search<'p> {
    problem: &'p Problem,
    load: Load<'p>,
    enough: u64,
    steps: u64,
    turn: u64,
    /// What the next must pass.
    best: u64,
    found: Option<Candidate>,
    /// For each endpoint, those with which it could change places.
    twins: Vec<u64>,
    /// What each hop carries alone.
    alone: Vec<u64>,
    /// What the way out of the host, or none, carries alone.
    out: Vec<u64>,
    /// Hops that carry more than the best.
    to: Vec<u64>,
    /// Endpoints where a ring can end that carries more than the best.
    last: u64,
}

/// A place in the order, and who may come there: what the ring then carries, the adapter or none, the endpoint.
struct Frame {
    choices: Vec<(u64, usize, usize)>,
    next: usize,
    /// What the ring up to here carries.
    speed: u64,
}

impl<'p> Search<'p> {
    fn new(problem: &'p Problem, left: &'p [u64], wanted: Wanted) -> Self {
        let count = problem.len();
        let load = Load::none(left);
        let alone = |from, to| {
            let route = problem.route(from, to);
            route.map_or(0, |route| Load::none(left).add(route))
        };
        let mut search = Search {
            problem,
            enough: wanted.enough,
            steps: wanted.steps,
            turn: wanted.turn,
            best: wanted.beyond,
            found: None,
            twins: super::local::twins(problem, left),
            alone: (0..count * count)
                .map(|at| alone(at / count, at % count))
                .collect(),
            out: (0..count)
                .map(|from| match problem.nics.is_empty() {
                    true => alone(from, 0),
                    false => exit(problem, &load, from).map_or(0, |(speed, _)| speed),
                })
                .collect(),
            load,
            to: vec![0; count],
            last: 0,
        };
        search.narrow();
        search
    }

    /// What is possible beyond the best.
    fn narrow(&mut self) {
        let count = self.problem.len();
        let mask = |better: &dyn Fn(usize) -> bool| {
            (0..count)
                .filter(|at| better(*at))
                .fold(0, |mask, at| mask | 1 << at)
        };
        for from in 0..count {
            let row = &self.alone[from * count..][..count];
            self.to[from] = mask(&|to| row[to] > self.best);
        }
        self.last = mask(&|from| self.out[from] > self.best);
    }

    fn run(&mut self) {
        let count = self.problem.len();
        let mut order: Vec<usize> = Vec::with_capacity(count);
        let mut nic = None;
        let mut free: u64 = u64::MAX >> (64 - count);
        let mut frames = vec![self.first(free)];
        while let Some(place) = frames.len().checked_sub(1) {
            // What was tried last is taken back.
            if order.len() > place {
                let Some(gone) = order.pop() else { break };
                free |= 1 << gone;
                if let Some(route) = self.hop(&order, nic, gone) {
                    self.load.remove(route);
                }
            }
            let frame = &mut frames[place];
            let choice = frame.choices.get(frame.next).copied();
            let Some((_, by, next)) = choice.filter(|choice| choice.0 > self.best) else {
                frames.pop();
                continue;
            };
            frame.next += 1;
            if self.steps == 0 || self.best >= self.enough {
                return;
            }
            if order.is_empty() {
                nic = (!self.problem.nics.is_empty()).then_some(by);
            }
            let mut speed = frame.speed;
            if let Some(route) = self.hop(&order, nic, next) {
                speed = speed.min(self.load.add(route));
            }
            order.push(next);
            free &= !(1 << next);
            if free == 0 {
                self.close(&order, nic, speed);
                frames.push(Frame {
                    choices: Vec::new(),
                    next: 0,
                    speed,
                });
            } else if speed > self.best && self.possible(next, free) {
                frames.push(self.choices(next, free, speed));
            } else {
                frames.push(Frame {
                    choices: Vec::new(),
                    next: 0,
                    speed,
                });
            }
            // The frame that was pushed is the one of the place after `next`.
        }
    }

    /// The hop to an endpoint after such an order.
    fn hop(&self, order: &[usize], nic: Option<usize>, next: usize) -> Option<&'p Route> {
        match (order.last(), nic) {
            (Some(&from), _) => self.problem.route(from, next),
            (None, Some(nic)) => self.problem.enter(nic, next),
            (None, None) => None,
        }
    }

    fn first(&mut self, free: u64) -> Frame {
        let mut choices = Vec::new();
        if self.problem.nics.is_empty() {
            choices.push((u64::MAX, 0, 0)); // A ring begins anywhere.
        }
        for nic in 0..self.problem.nics.len() {
            for to in 0..self.problem.len() {
                let route = self.problem.enter(nic, to).filter(|_| !self.twin(to, free));
                if let Some(route) = route {
                    choices.push((self.load.with(route), nic, to));
                }
            }
        }
        let problem = self.problem;
        choices.sort_by_key(|&(speed, nic, to)| {
            let way = problem
                .nics
                .get(nic)
                .and_then(|_| problem.enter(nic, to))
                .map(|route| route.way);
            (std::cmp::Reverse(speed), way, nic, to)
        });
        Frame {
            choices,
            next: 0,
            speed: u64::MAX,
        }
    }

    fn choices(&mut self, from: usize, free: u64, speed: u64) -> Frame {
        let mut choices = Vec::new();
        for to in (0..self.problem.len()).filter(|to| free & self.to[from] & 1 << to != 0) {
            if self.twin(to, free) {
                continue;
            }
            self.steps = self.steps.saturating_sub(1);
            if let Some(route) = self.problem.route(from, to) {
                choices.push((speed.min(self.load.with(route)), 0, to));
            }
        }
        let (problem, turn) = (self.problem, self.turn);
        choices.sort_by_key(|&(speed, _, to)| {
            let way = problem.route(from, to).map(|route| route.way);
            (std::cmp::Reverse(speed), way, shuffled(turn, from, to), to)
        });
        Frame {
            choices,
            next: 0,
            speed,
        }
    }

    /// Whether another free one is the same and comes first.
    fn twin(&self, at: usize, free: u64) -> bool {
        self.twins[at] & free & ((1 << at) - 1) != 0
    }

    /// Whether a ring beyond the best could go on from here to all that are free and end.
    fn possible(&self, from: usize, free: u64) -> bool {
        let mut reached = self.to[from] & free;
        let mut new = reached;
        while new != 0 {
            let at = new.trailing_zeros() as usize;
            new &= new - 1;
            let more = self.to[at] & free & !reached;
            reached |= more;
            new |= more;
        }
        let alone = |at: usize| free != 1 << at && self.to[at] & free == 0 && self.last & 1 << at == 0;
        reached == free
            && free & self.last != 0
            && !(0..self.problem.len()).any(|at| free & 1 << at != 0 && alone(at))
    }

    /// All are there: what the ring carries in the end.
    fn close(&mut self, order: &[usize], nic: Option<usize>, speed: u64) {
        let (Some(&first), Some(&last)) = (order.first(), order.last()) else {
            return;
        };
        // The way out is chosen among all adapters, of which some are looked at in a step.
        self.steps = (self.steps).saturating_sub(1 + self.problem.nics.len() as u64 / 16);
        let (speed, nics) = match nic {
            None => {
                let Some(route) = self.problem.route(last, first) else {
                    return;
                };
                let whole = speed.min(self.load.add(route));
                self.load.remove(route);
                (whole, None)
            }
            Some(enter) => {
                let Some((out, leave)) = exit(self.problem, &self.load, last) else {
                    return;
                };
                (speed.min(out), Some([enter, leave]))
            }
        };
        if speed > self.best {
            self.best = speed;
            self.found = Some(Candidate {
                order: order.to_vec(),
                nics,
                speed,
            });
            self.narrow();
        }
    }
}

/// Another order of the hops from an endpoint for each turn but the first.
fn shuffled(turn: u64, from: usize, to: usize) -> u64 {
    let mixed = (turn << 16 | (from as u64) << 8 | to as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    if turn == 0 {
        0
    } else {
        (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32
    }
}

/// The best way out of the host: what it carries, and its adapter.
pub(super) fn exit(problem: &Problem, load: &Load, from: usize) -> Option<(u64, usize)> {
    let mut load = load.clone();
    let mut best = None;
    for nic in 0..problem.nics.len() {
        let Some(route) = problem.leave(from, nic) else {
            continue;
        };
        let speed = load.add(route);
        load.remove(route);
        let key = (std::cmp::Reverse(speed), route.way, nic);
        if best.is_none_or(|best| key < best) {
            best = Some(key);
        }
    }
    best.map(|(speed, _, nic)| (speed.0, nic))
}
