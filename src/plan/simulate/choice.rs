//! With which algorithm, how many channels and what tile a call takes least time on a network: a pure function of both.

use super::network::Network;
use super::rounds::{Causes, Course, Cut, Spent};
use super::{Busy, Constants, seconds};
use crate::plan::algo::Algorithm;
use crate::plan::bounds::Bounds;
use crate::types::{Collective, Error};
use std::collections::BTreeMap;

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

/// All candidates on a network, ready for any length.
pub(crate) struct Planner<'n> {
    network: &'n Network,
    question: Question,
    courses: Vec<(&'static Algorithm, usize, Course<'n>)>,
    unable: Vec<Rejected>,
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
    /// Which of the courses it is.
    at: usize,
}

/// A candidate that was not reckoned to the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rejected {
    pub(crate) algorithm: &'static str,
    pub(crate) channels: usize,
    pub(crate) why: String,
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

impl<'n> Planner<'n> {
    pub(crate) fn new(question: Question, network: &'n Network) -> Planner<'n> {
        let groups = network.groups();
        let size = network.ranks_per_host().max(1);
        let channels = question
            .channels
            .map_or_else(|| vec![1, 2, 4, size], |one| vec![one]);
        let channels: std::collections::BTreeSet<_> = channels
            .into_iter()
            .filter(|&many| question.channels.is_some() || many <= size)
            .collect();
        let (mut courses, mut unable) = (Vec::new(), Vec::new());
        for &algorithm in &question.algorithms {
            for &channels in &channels {
                match Course::new(question.collective, algorithm, channels, Some(&groups), network) {
                    Ok(course) => courses.push((algorithm, channels, course)),
                    Err(error) => unable.push(Rejected {
                        algorithm: algorithm.name,
                        channels,
                        why: error.to_string(),
                    }),
                }
            }
        }
        Planner {
            network,
            question,
            courses,
            unable,
        }
    }

    /// Weighs all candidates for a vector of so many bytes. One that cannot be faster than what is known already is left out.
    ///
    /// # Errors
    /// [`Error::Usage`] if no candidate can do it.
    pub(crate) fn choose(&self, bytes: f64) -> Result<Choice, Error> {
        let mut order: Vec<(f64, usize)> = (0..self.courses.len())
            .map(|at| (self.least(at, bytes), at))
            .collect();
        order.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        let mut candidates: Vec<Candidate> = Vec::new();
        let mut rejected = self.unable.clone();
        let mut best = f64::INFINITY;
        for (least, at) in order {
            let (algorithm, channels, course) = &self.courses[at];
            let reject = |why| Rejected {
                algorithm: algorithm.name,
                channels: *channels,
                why,
            };
            if least > best {
                let edge = course.busiest(bytes, 1.0).swap_remove(0).name;
                let (least, best) = (least * 1e6, best * 1e6);
                rejected.push(reject(format!(
                    "{edge} alone takes {least:.1} us, and the best {best:.1} us"
                )));
                continue;
            }
            match self.tiled(at, bytes) {
                Ok(candidate) => {
                    best = best.min(candidate.spent.time);
                    candidates.push(candidate);
                }
                Err(error) => rejected.push(reject(error.to_string())),
            }
        }
        candidates.sort_by(|one, other| one.spent.time.total_cmp(&other.spent.time));
        if candidates.is_empty() {
            let why = rejected.pop().map_or_else(String::new, |rejected| rejected.why);
            return Err(Error::usage(format!("nothing to choose from: {why}")));
        }
        Ok(Choice {
            candidates,
            rejected,
            bounds: self.bounds(bytes)?,
        })
    }

    /// Why a candidate takes as long as it does.
    ///
    /// # Errors
    /// None for a candidate of this planner.
    pub(crate) fn reasons(&self, candidate: &Candidate, bytes: f64) -> Result<Reasons, Error> {
        let course = &self.courses[candidate.at].2;
        Ok(Reasons {
            causes: course.causes(&self.cut(bytes, candidate.tile))?,
            busiest: course.busiest(bytes, candidate.spent.time),
        })
    }

    /// A course with the tile that it is fastest with, the longest of equals.
    fn tiled(&self, at: usize, bytes: f64) -> Result<Candidate, Error> {
        let (algorithm, channels, course) = &self.courses[at];
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
            algorithm: algorithm.name,
            channels: *channels,
            tile,
            bus_bandwidth: course.bus_bandwidth(bytes, spent.time),
            spent,
            at,
        })
    }

    /// Seconds that the busiest edge of a course needs.
    fn least(&self, at: usize, bytes: f64) -> f64 {
        let busiest = self.courses[at].2.busiest(bytes, 1.0);
        busiest.first().map_or(0.0, |edge| edge.utilisation)
    }

    fn cut(&self, bytes: f64, tile: f64) -> Cut {
        Cut {
            bytes,
            tile,
            in_flight: self.question.in_flight,
            constants: self.question.constants,
        }
    }

    /// As many rounds as there must be over the nearest neighbour's way; and what some rank has to send, over all the edges that
    /// leave it. The ranks of the first host stand for all.
    fn bounds(&self, bytes: f64) -> Result<Least, Error> {
        let (ranks, size) = (self.network.ranks(), self.network.ranks_per_host());
        let least = Bounds::of(self.question.collective, ranks);
        if ranks < 2 {
            return Ok(Least {
                latency: 0.0,
                bandwidth: 0.0,
            });
        }
        let (mut nearest, mut widest) = (u64::MAX, 0.0_f64);
        for rank in 0..size.min(ranks) {
            let mut leaving = BTreeMap::new();
            let others = (0..ranks.min(2 * size)).filter(|&other| other != rank);
            for other in others {
                let Ok(way) = self.network.way(rank, other) else {
                    continue;
                };
                nearest = nearest.min(way.latency);
                if let Some(&edge) = way.edges.first() {
                    leaving.insert(edge, self.network.capacity(edge));
                }
            }
            widest = widest.max(leaving.values().sum());
        }
        let rounds = least.rounds as f64;
        let sent = carried(self.question.collective, bytes) * least.sent as f64 / ranks as f64;
        Ok(Least {
            latency: rounds * (seconds(nearest) + self.question.constants.overhead_ns * 1e-9),
            bandwidth: if widest > 0.0 { sent / widest } else { 0.0 },
        })
    }
}

/// A barrier has no bytes.
fn carried(collective: Collective, bytes: f64) -> f64 {
    match collective {
        Collective::Barrier => 0.0,
        _ => bytes,
    }
}
