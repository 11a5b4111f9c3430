//! What every channel of every rank does, as flat lists of receives, sends and sums, and the lanes that join them.
//!
//! Turns of a repeat stay a loop where all go to the same peers, and are written out where not.

use super::network::{Network, Way};
use crate::plan::algo::{Algorithm, Request};
use crate::plan::groups::Groups;
use crate::plan::schedule::{Affine, Item, LoopVars, Schedule, Slice, Source, Step};
use crate::types::{Collective, Error};

/// One thing that a thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Op {
    /// Takes the next message of a lane.
    Recv {
        lane: u32,
    },
    /// Adds so many grains to others.
    Reduce {
        grains: u32,
    },
    /// Sends so many grains into a lane.
    Send {
        lane: u32,
        grains: u32,
    },
    /// Repeats what follows up to its `Leave`.
    Enter {
        count: u32,
    },
    Leave {
        enter: u32,
    },
}

/// A channel of a rank: a stretch of the operations, and of the lanes that it sends into.
#[derive(Debug, Clone)]
pub(super) struct Thread {
    pub(super) rank: u32,
    /// The rank that the schedule has it for.
    pub(super) place: u32,
    pub(super) channel: u32,
    pub(super) ops: std::ops::Range<usize>,
    pub(super) lanes: std::ops::Range<usize>,
}

/// From a thread to one of another rank.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lane {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) latency: u64,
    /// Where its edges begin in [`Programs::edges`]; they end where the next lane's begin.
    pub(super) first_edge: u32,
    /// Grains that go over it in a tile.
    pub(super) grains: f64,
}

/// What all ranks do.
#[derive(Debug, Default)]
pub(super) struct Programs {
    pub(super) threads: Vec<Thread>,
    pub(super) ops: Vec<Op>,
    pub(super) lanes: Vec<Lane>,
    edges: Vec<u32>,
    /// Grains that the vector of a part is cut into.
    pub(super) grains: usize,
    /// Messages of all ranks in a tile.
    pub(super) messages: f64,
}

/// Operations of all ranks that are written down at most.
const MOST_OPS: usize = 80_000_000;

/// What is to be simulated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work<'w> {
    pub(crate) collective: Collective,
    pub(crate) algorithm: &'w Algorithm,
    /// How many copies of the schedule share the vector, each with the ranks of a host one place further on, so that each goes
    /// another way in and out of a host.
    pub(crate) parts: usize,
    /// Which ranks are near each other, if it should not be those of a host.
    pub(crate) groups: Option<&'w Groups>,
}

impl Programs {
    /// Of all ranks of a network.
    ///
    /// # Errors
    /// [`Error::Usage`] where there is no way, or too much to write down.
    pub(super) fn new(work: &Work<'_>, network: &Network) -> Result<Programs, Error> {
        let groups = work.groups.cloned().unwrap_or_else(|| network.groups());
        let groups = Some(groups).filter(Groups::has_levels);
        let mut programs = Programs::default();
        let mut writer = Writer::default();
        for rank in 0..network.ranks() {
            for part in 0..work.parts {
                let turn = Turn::new(network, part);
                let schedule = work.algorithm.schedule(
                    &Request {
                        // Its root stands elsewhere as well.
                        collective: work.collective.at_root(|root| turn.place(root as usize) as u32),
                        ranks: network.ranks(),
                        rank: turn.place(rank),
                    },
                    groups.as_ref(),
                );
                let channels = schedule.channels.len();
                programs.grains = schedule.total_grains();
                for (channel, items) in schedule.channels.iter().enumerate() {
                    writer.begin(rank, &schedule, &turn);
                    writer.items(items, &mut [0; 2], 0, 1.0)?;
                    let thread = (turn.place(rank), part * channels + channel);
                    programs.add(rank, thread, &mut writer, network)?;
                }
            }
        }
        programs.join(network.ranks())?;
        Ok(programs)
    }

    /// The edges of a lane's way.
    pub(super) fn edges(&self, lane: usize) -> &[u32] {
        let end = self
            .lanes
            .get(lane + 1)
            .map_or(self.edges.len(), |next| next.first_edge as usize);
        &self.edges[self.lanes[lane].first_edge as usize..end]
    }

    pub(super) fn all_edges(&mut self) -> &mut Vec<u32> {
        &mut self.edges
    }

    /// Keeps only some of the edges.
    pub(super) fn retain_edges(&mut self, keep: impl Fn(u32) -> bool) {
        let mut kept = 0;
        for lane in 0..self.lanes.len() {
            let end = self
                .lanes
                .get(lane + 1)
                .map_or(self.edges.len(), |next| next.first_edge as usize);
            let first = std::mem::replace(&mut self.lanes[lane].first_edge, kept as u32) as usize;
            for at in first..end {
                if keep(self.edges[at]) {
                    self.edges[kept] = self.edges[at];
                    kept += 1;
                }
            }
        }
        self.edges.truncate(kept);
    }

    /// Takes what was written for a thread; lanes are still its peers' ranks.
    fn add(
        &mut self,
        rank: usize,
        (place, channel): (usize, usize),
        writer: &mut Writer,
        network: &Network,
    ) -> Result<(), Error> {
        let first_lane = self.lanes.len();
        for &(peer, grains) in &writer.peers {
            let Way { edges, latency } = network.way(rank, peer as usize)?;
            self.lanes.push(Lane {
                from: self.threads.len() as u32,
                to: peer,
                latency,
                first_edge: u32::try_from(self.edges.len()).map_err(|_| too_much())?,
                grains,
            });
            self.edges.extend(edges);
        }
        let first_op = self.ops.len();
        self.ops.append(&mut writer.ops);
        if self.ops.len() > MOST_OPS {
            return Err(too_much());
        }
        self.messages += writer.messages;
        self.threads.push(Thread {
            rank: rank as u32,
            place: place as u32,
            channel: channel as u32,
            ops: first_op..self.ops.len(),
            lanes: first_lane..self.lanes.len(),
        });
        Ok(())
    }

    /// Finds the thread at the other end of each lane, and the lane of each receive.
    fn join(&mut self, ranks: usize) -> Result<(), Error> {
        let mut first = vec![0_u32; ranks + 1];
        for (at, thread) in self.threads.iter().enumerate() {
            first[thread.rank as usize + 1] = at as u32 + 1;
        }
        let thread_of = |rank: u32, channel: u32| {
            let at = first[rank as usize] + channel;
            (at < first[rank as usize + 1]).then_some(at)
        };
        // Lanes of a thread by the rank that they lead to.
        let mut order: Vec<u32> = (0..self.lanes.len() as u32).collect();
        for thread in &self.threads {
            order[thread.lanes.clone()].sort_unstable_by_key(|&lane| self.lanes[lane as usize].to);
        }
        for thread in &self.threads {
            for op in &mut self.ops[thread.ops.clone()] {
                if let Op::Recv { lane } = op {
                    let sender = thread_of(*lane, thread.channel).ok_or_else(unmatched)?;
                    let lanes = &order[self.threads[sender as usize].lanes.clone()];
                    let found =
                        lanes.binary_search_by_key(&thread.rank, |&lane| self.lanes[lane as usize].to);
                    *lane = lanes[found.map_err(|_| unmatched())?];
                }
            }
        }
        for thread in &self.threads {
            for lane in &mut self.lanes[thread.lanes.clone()] {
                lane.to = thread_of(lane.to, thread.channel).ok_or_else(unmatched)?;
            }
            for op in &mut self.ops[thread.ops.clone()] {
                if let Op::Send { lane, .. } = op {
                    *lane += thread.lanes.start as u32;
                }
            }
        }
        Ok(())
    }
}

/// Where the ranks stand in a part's schedule.
struct Turn {
    ranks: usize,
    size: usize,
    by: usize,
}

impl Turn {
    fn new(network: &Network, part: usize) -> Turn {
        let size = network.ranks_per_host();
        Turn {
            ranks: network.ranks(),
            size,
            by: part % size,
        }
    }

    /// Of a host with fewer ranks than others all stay where they are.
    fn turned(&self, rank: usize, by: usize) -> usize {
        let (host, place) = (rank / self.size, rank % self.size);
        match (host + 1) * self.size <= self.ranks {
            true => host * self.size + (place + by) % self.size,
            false => rank,
        }
    }

    fn place(&self, rank: usize) -> usize {
        self.turned(rank, self.by)
    }

    fn rank(&self, place: usize) -> u32 {
        self.turned(place, self.size - self.by) as u32
    }
}

/// Writes down one thread.
#[derive(Default)]
struct Writer {
    ops: Vec<Op>,
    /// Whom it sends to, in the order of the first messages, and how many grains.
    peers: Vec<(u32, f64)>,
    known: std::collections::HashMap<u32, u32>,
    rank: usize,
    ranks: usize,
    size: usize,
    by: usize,
    messages: f64,
}

impl Writer {
    fn begin(&mut self, rank: usize, schedule: &Schedule, turn: &Turn) {
        self.rank = rank;
        self.ops.clear();
        self.peers.clear();
        self.known.clear();
        self.messages = 0.0;
        (self.ranks, self.size, self.by) = (schedule.ranks as usize, turn.size, turn.by);
    }

    fn peer(&self, peer: &Affine, vars: &LoopVars) -> u32 {
        let turn = Turn {
            ranks: self.ranks,
            size: self.size,
            by: self.by,
        };
        turn.rank(peer.at(vars, self.ranks))
    }

    fn items(&mut self, items: &[Item], vars: &mut LoopVars, depth: usize, times: f64) -> Result<(), Error> {
        for item in items {
            match item {
                Item::Step(step) => self.step(step, vars, times)?,
                Item::Repeat { count: 0, .. } => {}
                Item::Repeat { count, items } if stays(items, depth) => {
                    let enter = self.ops.len() as u32;
                    self.ops.push(Op::Enter { count: *count });
                    self.items(items, vars, depth + 1, times * f64::from(*count))?;
                    self.ops.push(Op::Leave { enter });
                }
                Item::Repeat { count, items } => {
                    for turn in 0..i64::from(*count) {
                        vars[depth] = turn;
                        self.items(items, vars, depth + 1, times)?;
                    }
                    vars[depth] = 0;
                }
            }
        }
        Ok(())
    }

    fn step(&mut self, step: &Step, vars: &LoopVars, times: f64) -> Result<(), Error> {
        if step.after.is_some() {
            return Err(Error::usage(
                "a schedule whose channels wait for one another is not simulated".to_owned(),
            ));
        }
        let grains = step.shape().map_or(0, Slice::grains) as u32;
        // A step needs all of them. In the order of their distance ranks that are alike do alike.
        let first = self.ops.len();
        for source in &step.sources {
            if let Source::Recv(peer) = source {
                let lane = self.peer(peer, vars);
                self.ops.push(Op::Recv { lane });
            }
        }
        let (rank, ranks) = (self.rank, self.ranks);
        self.ops[first..].sort_by_key(|op| match op {
            Op::Recv { lane } => (*lane as usize + ranks - rank) % ranks,
            _ => 0,
        });
        if step.sources.len() > 1 {
            let grains = grains * (step.sources.len() as u32 - 1);
            self.ops.push(Op::Reduce { grains });
        }
        for peer in &step.sends {
            let peer = self.peer(peer, vars);
            let peers = &mut self.peers;
            let lane = *self.known.entry(peer).or_insert_with(|| {
                peers.push((peer, 0.0));
                peers.len() as u32 - 1
            });
            self.peers[lane as usize].1 += times * f64::from(grains);
            self.messages += times;
            self.ops.push(Op::Send { lane, grains });
        }
        match self.ops.len() > MOST_OPS {
            true => Err(too_much()),
            false => Ok(()),
        }
    }
}

/// Whether all turns of a repeat at this depth have the same peers.
fn stays(items: &[Item], depth: usize) -> bool {
    let fixed = |peer: &Affine| peer.step[depth] == 0;
    items.iter().all(|item| match item {
        Item::Repeat { items, .. } => stays(items, depth),
        Item::Step(step) => {
            let recv = |source: &Source| match source {
                Source::Recv(peer) => fixed(peer),
                Source::Slice(_) => true,
            };
            step.sends.iter().all(fixed) && step.sources.iter().all(recv)
        }
    })
}

fn too_much() -> Error {
    Error::usage(format!(
        "the ranks have more than {MOST_OPS} messages to write down: simulate fewer ranks, or another algorithm"
    ))
}

fn unmatched() -> Error {
    Error::internal("a message that nobody sends or receives".to_owned())
}
