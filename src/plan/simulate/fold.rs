//! Which threads are alike, so that one stands for all: threads, lanes and edges in classes.
//!
//! Threads are alike if they do the same things with threads that are alike, over edges that are alike; edges, if they carry as
//! much and as many lanes of each class go over them. Such a partition is found by splitting classes until none has to be split
//! (colour refinement). In it all of a class do everything at the same moments, because what one of them does follows from
//! the classes alone: fair shares are unique. Where splitting takes long, as around a ring, partitions that the network
//! suggests are tried; and where nothing helps every thread is a class of its own.
//!
//! Classes are numbered so that those lie together whose members do alike among like neighbours: they mostly do so at the same
//! moments, and what the engine needs for one after the other then comes from memory in a row.
//!
//! Colours are hashes of 64 bits.

use super::network::Network;
use super::program::{Op, Programs};

/// Threads and edges with the numbers of their classes.
#[derive(Debug)]
pub(super) struct Classes {
    pub(super) of_thread: Vec<u32>,
    pub(super) of_edge: Vec<u32>,
    /// A thread and an edge of each class, and how many it has.
    pub(super) threads: Vec<(u32, u32)>,
    pub(super) edges: Vec<(u32, u32)>,
}

/// Edges of lanes that are looked at: about a second's work.
const EFFORT: usize = 12_000_000;

impl Classes {
    /// Every thread and edge by itself.
    pub(super) fn apart(programs: &Programs, edges: usize) -> Classes {
        let each = |count: usize| (0..count as u32).map(|at| (at, 1)).collect();
        Classes {
            of_thread: (0..programs.threads.len() as u32).collect(),
            of_edge: (0..edges as u32).collect(),
            threads: each(programs.threads.len()),
            edges: each(edges),
        }
    }

    /// The fewest that are found. `capacities` are those of the edges.
    pub(super) fn new(programs: &Programs, capacities: &[f64], network: &Network) -> Classes {
        let refiner = Refiner::new(programs, capacities);
        let rounds = (EFFORT / refiner.size()).clamp(3, 100);
        let stable = refiner.refine(|_| 0, rounds);
        let periods = network.periods();
        let suggested = || {
            let thread = |at: usize| &programs.threads[at];
            let mut periods = periods.iter().filter(|&&period| period < network.ranks());
            // Channels whose ranks stand elsewhere are alike by their places.
            let alike = periods
                .clone()
                .find_map(|&period| refiner.refine(|at| (thread(at).place as usize % period) as u64, 3));
            let turned = programs.threads.iter().any(|thread| thread.place != thread.rank);
            let in_channels = || {
                let of = |at: usize, period: usize| {
                    u64::from(thread(at).channel) << 32 | (thread(at).rank as usize % period) as u64
                };
                periods.find_map(|&period| refiner.refine(|at| of(at, period), 3))
            };
            let alike = if turned { alike.or_else(in_channels) } else { alike };
            // All hosts differ, and the ranks of each are alike.
            let size = network.ranks_per_host();
            let of_host = || refiner.refine(|at| (thread(at).rank as usize / size) as u64, 3);
            alike.or_else(|| of_host().filter(|_| size > 1))
        };
        let colours = stable
            .or_else(suggested)
            .unwrap_or_else(|| Colours::apart(programs, capacities.len()));
        colours.classes(&refiner.near())
    }
}

struct Colours {
    threads: Vec<u64>,
    edges: Vec<u64>,
}

impl Colours {
    /// Each thread and edge has one of its own.
    fn apart(programs: &Programs, edges: usize) -> Colours {
        Colours {
            threads: (0..programs.threads.len() as u64).collect(),
            edges: (0..edges as u64).collect(),
        }
    }

    fn counts(&self) -> [usize; 2] {
        let count = |colours: &[u64]| {
            let mut sorted = colours.to_vec();
            sorted.sort_unstable();
            sorted.dedup();
            sorted.len()
        };
        [count(&self.threads), count(&self.edges)]
    }

    /// Numbers them by their colours in `near`, and by their first members among those that have the same.
    fn classes(&self, near: &Colours) -> Classes {
        let (of_thread, threads) = number(&self.threads, &near.threads);
        let (of_edge, edges) = number(&self.edges, &near.edges);
        Classes {
            of_thread,
            of_edge,
            threads,
            edges,
        }
    }
}

/// The class of each, and the first one of each class with how many it has.
fn number(colours: &[u64], near: &[u64]) -> (Vec<u32>, Vec<(u32, u32)>) {
    let mut known = std::collections::HashMap::new();
    let mut firsts: Vec<(u32, u32)> = Vec::new();
    let mut of = Vec::with_capacity(colours.len());
    for (at, colour) in colours.iter().enumerate() {
        let class = *known.entry(*colour).or_insert_with(|| {
            firsts.push((at as u32, 0));
            firsts.len() as u32 - 1
        });
        firsts[class as usize].1 += 1;
        of.push(class);
    }
    let mut order: Vec<u32> = (0..firsts.len() as u32).collect();
    order.sort_by_key(|&class| near[firsts[class as usize].0 as usize]);
    let mut numbers = vec![0; order.len()];
    for (number, &class) in order.iter().enumerate() {
        numbers[class as usize] = number as u32;
    }
    of.iter_mut().for_each(|class| *class = numbers[*class as usize]);
    (of, order.iter().map(|&class| firsts[class as usize]).collect())
}

struct Refiner<'r> {
    programs: &'r Programs,
    capacities: &'r [f64],
    /// What each thread does, whoever its peers are.
    shapes: Vec<u64>,
    /// Each lane's place among those that its receiver takes from, and all these lanes, receiver by receiver.
    places: Vec<u32>,
    incoming: Vec<u32>,
    first_incoming: Vec<u32>,
}

impl<'r> Refiner<'r> {
    fn new(programs: &'r Programs, capacities: &'r [f64]) -> Self {
        let mut places = vec![u32::MAX; programs.lanes.len()];
        let (mut incoming, mut first_incoming) = (Vec::with_capacity(places.len()), vec![0]);
        let mut shapes = Vec::with_capacity(programs.threads.len());
        for thread in &programs.threads {
            let first = incoming.len();
            let mut shape = 0;
            for op in &programs.ops[thread.ops.clone()] {
                let words = match *op {
                    Op::Recv { lane } => {
                        let place = &mut places[lane as usize];
                        if *place == u32::MAX {
                            *place = (incoming.len() - first) as u32;
                            incoming.push(lane);
                        }
                        [1, u64::from(*place)]
                    }
                    Op::Reduce { grains } => [2, u64::from(grains)],
                    Op::Send { lane, grains } => [
                        3 + (u64::from(lane) - thread.lanes.start as u64) * 8,
                        u64::from(grains),
                    ],
                    Op::Enter { count } => [4, u64::from(count)],
                    Op::Leave { enter } => [5, u64::from(enter)],
                };
                shape = mix(mix(shape ^ words[0]) ^ words[1]);
            }
            shapes.push(shape);
            first_incoming.push(incoming.len() as u32);
        }
        Refiner {
            programs,
            capacities,
            shapes,
            places,
            incoming,
            first_incoming,
        }
    }

    /// What a round looks at.
    fn size(&self) -> usize {
        let lanes = self.programs.lanes.len();
        let edges: usize = (0..lanes)
            .step_by(97)
            .map(|lane| self.programs.edges(lane).len())
            .sum();
        edges * 97 + 4 * lanes + 1
    }

    /// Splits from a first colouring of the threads until nothing has to be split; `None` if that takes more rounds.
    fn refine(&self, first: impl Fn(usize) -> u64, rounds: usize) -> Option<Colours> {
        let mut colours = self.first(first);
        let mut counts = [0, 0];
        for _ in 0..rounds {
            let now = colours.counts();
            if now == counts {
                return Some(colours);
            }
            counts = now;
            colours = self.split(&colours);
        }
        (colours.counts() == counts).then_some(colours)
    }

    /// By what each does, and what its neighbours and theirs do.
    fn near(&self) -> Colours {
        self.split(&self.split(&self.first(|_| 0)))
    }

    fn first(&self, of: impl Fn(usize) -> u64) -> Colours {
        let threads = self.shapes.iter().enumerate();
        Colours {
            threads: threads.map(|(at, shape)| mix(shape ^ mix(of(at)))).collect(),
            edges: self
                .capacities
                .iter()
                .map(|capacity| mix(capacity.to_bits()))
                .collect(),
        }
    }

    fn split(&self, colours: &Colours) -> Colours {
        let programs = self.programs;
        let mut over = vec![0_u64; colours.edges.len()];
        let of_lane = |lane: usize| {
            let one = &programs.lanes[lane];
            let slot = lane - programs.threads[one.from as usize].lanes.start;
            let ends = mix(colours.threads[one.from as usize]) ^ colours.threads[one.to as usize];
            let places = u64::from(self.places[lane]) << 32 | slot as u64;
            let mut colour = mix(mix(mix(ends) ^ places) ^ one.latency);
            for &edge in programs.edges(lane) {
                colour = mix(colour ^ colours.edges[edge as usize]);
            }
            colour
        };
        let lanes: Vec<u64> = (0..programs.lanes.len()).map(of_lane).collect();
        for (lane, colour) in lanes.iter().enumerate() {
            for &edge in programs.edges(lane) {
                over[edge as usize] = over[edge as usize].wrapping_add(mix(colour ^ 0x5bd1));
            }
        }
        let thread = |(at, old): (usize, &u64)| {
            let mut colour = mix(*old);
            for lane in programs.threads[at].lanes.clone() {
                colour = mix(colour ^ lanes[lane]);
            }
            let incoming = self.first_incoming[at] as usize..self.first_incoming[at + 1] as usize;
            for &lane in &self.incoming[incoming] {
                colour = mix(colour.wrapping_add(lanes[lane as usize]));
            }
            colour
        };
        Colours {
            threads: colours.threads.iter().enumerate().map(thread).collect(),
            edges: colours
                .edges
                .iter()
                .zip(over)
                .map(|(old, over)| mix(mix(*old) ^ over))
                .collect(),
        }
    }
}

/// Spreads the bits of a word. Source: G. Steele et al., "Fast splittable pseudorandom number generators", 2014.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
