//! What schedules cost whatever the machine: rounds, and the data that the busiest ranks pass.
//!
//! A proved schedule is walked once more without values, on an imagined network in which a rank sends one message and
//! receives one in each round, and all else takes no time. What is ready leaves in the order of the steps; what has been sent
//! waits at its receiver until those that were sent earlier have come in.

use super::program::Cursor;
use super::team::Team;
use crate::plan::bounds::Bounds;
use crate::plan::schedule::{Slice, Source, Step};
use crate::types::Collective;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

/// What all ranks' schedules cost. Data is counted in grains, as if all were equally long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Certificate {
    /// The longest chain of messages of which each waits for the one before.
    pub(crate) chain: u64,
    /// Rounds, if a rank sends and receives no more than one message in each.
    pub(crate) rounds: u64,
    /// What the rank that sends most sends, what the one that receives most receives, and what the busiest does together.
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) passed: u64,
    /// What all ranks send.
    pub(crate) total: u64,
    /// Grains of the vector.
    pub(crate) vector: u64,
}

impl Certificate {
    /// How many times the least there can be its rounds are.
    pub(crate) fn times_rounds(&self, bounds: &Bounds) -> f64 {
        bounds.times_rounds(self.rounds as f64)
    }

    /// How many times the least there can be the busiest rank sends and receives.
    pub(crate) fn times_passed(&self, bounds: &Bounds) -> f64 {
        bounds.times_passed(self.passed as f64, self.vector as f64)
    }

    /// Whether it is no less than the collective needs. If it is, something was counted or proved wrongly.
    pub(crate) fn is_possible(&self, collective: Collective, ranks: usize) -> bool {
        let bounds = Bounds::of(collective, ranks);
        let agrees = self.chain <= self.rounds && self.total >= self.sent.max(self.received);
        let enough = |found: u64, least: u64| found * ranks as u64 >= least * self.vector;
        agrees
            && self.rounds >= bounds.rounds
            && enough(self.sent, bounds.sent)
            && enough(self.received, bounds.received)
            && enough(self.passed, bounds.passed)
    }
}

/// Walks the schedules of a team that was proved; `folded` if it is rank 0 for all.
pub(super) fn certify(team: &Team<'_>, folded: bool) -> Certificate {
    let mut walk = Walk {
        team,
        folded,
        threads: team
            .programs
            .iter()
            .map(|program| Thread::at(Cursor::start(program)))
            .collect(),
        ports: vec![Port::default(); team.schedules.len()],
        lanes: HashMap::new(),
        ready: (0..team.programs.len()).collect(),
        due: BinaryHeap::new(),
        chain: 0,
        rounds: 0,
    };
    walk.run();
    let most = |of: fn(&Port) -> u64| walk.ports.iter().map(of).max().unwrap_or(0);
    let each: u64 = walk.ports.iter().map(|port| port.sent).sum();
    Certificate {
        chain: walk.chain,
        rounds: walk.rounds,
        sent: most(|port| port.sent),
        received: most(|port| port.received),
        passed: most(|port| port.sent + port.received),
        total: if folded { each * team.ranks as u64 } else { each },
        vector: team
            .schedules
            .first()
            .map_or(0, |schedule| schedule.total_grains() as u64),
    }
}

/// When something is there, in rounds, and how many messages waited for one another before it.
#[derive(Debug, Clone, Copy, Default)]
struct Moment {
    round: u64,
    chain: u64,
}

impl Moment {
    fn after(&mut self, other: Moment) {
        self.round = self.round.max(other.round);
        self.chain = self.chain.max(other.chain);
    }
}

/// A channel of a rank.
struct Thread {
    cursor: Cursor,
    now: Moment,
    /// Sources and sends of the step that are done with.
    taken: usize,
    gone: usize,
    /// Whether its next message has its place in the order of all.
    is_due: bool,
    /// When the channel's items were over. Kept only where other channels may wait for them.
    ends: Vec<Moment>,
}

impl Thread {
    fn at(cursor: Cursor) -> Self {
        Thread {
            cursor,
            now: Moment::default(),
            taken: 0,
            gone: 0,
            is_due: false,
            ends: Vec::new(),
        }
    }
}

/// A rank's end of the network: the last rounds in which it sent and received, and how much in all.
#[derive(Debug, Clone, Copy, Default)]
struct Port {
    sent_at: u64,
    received_at: u64,
    sent: u64,
    received: u64,
}

/// The messages of a lane, and who waits for one.
#[derive(Default)]
struct Lane {
    messages: VecDeque<Moment>,
    waits: Option<usize>,
}

struct Walk<'w> {
    team: &'w Team<'w>,
    folded: bool,
    threads: Vec<Thread>,
    ports: Vec<Port>,
    lanes: HashMap<usize, Lane>,
    /// Threads that may go on.
    ready: Vec<usize>,
    /// Threads with something to send, by the round.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    chain: u64,
    rounds: u64,
}

impl<'w> Walk<'w> {
    fn run(&mut self) {
        loop {
            while let Some(id) = self.ready.pop() {
                self.go_on(id);
            }
            let Some(Reverse((round, id))) = self.due.pop() else {
                return;
            };
            let port = &self.ports[self.team.threads[id].0];
            match port.sent_at < round {
                true => self.send(id, round),
                false => self.due.push(Reverse((port.sent_at + 1, id))), // another channel was first
            }
        }
    }

    fn step(&self, id: usize) -> Option<&'w Step> {
        let team: &'w Team<'w> = self.team;
        team.programs[id].step(self.threads[id].cursor.pc)
    }

    /// Goes on to the next message that has to be sent or that is not there yet.
    fn go_on(&mut self, id: usize) {
        let rank = self.team.threads[id].0;
        while let Some(step) = self.step(id).filter(|_| !self.threads[id].is_due) {
            if !self.has_come(id, step) {
                return;
            }
            let thread = &mut self.threads[id];
            if thread.gone < step.sends.len() {
                let round = thread.now.round.max(self.ports[rank].sent_at) + 1;
                thread.is_due = true;
                self.due.push(Reverse((round, id)));
                return;
            }
            (thread.taken, thread.gone) = (0, 0);
            thread.cursor.advance(&self.team.programs[id]);
            self.note_ends(id);
        }
    }

    /// Notes the items that are over, and lets the rank's other channels look at that.
    fn note_ends(&mut self, id: usize) {
        let siblings = self.team.threads_of(self.team.threads[id].0);
        if siblings.len() > 1 {
            let thread = &mut self.threads[id];
            let over = thread.cursor.items_over(&self.team.programs[id]);
            thread.ends.resize(over as usize, thread.now);
            self.ready.extend(siblings.filter(|&other| other != id));
        }
    }

    /// Takes what the step waits for. Whether that is all there.
    fn has_come(&mut self, id: usize, step: &Step) -> bool {
        let (rank, channel) = self.team.threads[id];
        if let Some((other, item)) = step.after {
            let other = self.team.threads_of(rank).start + other as usize;
            let Some(&end) = self.threads[other].ends.get(item as usize) else {
                return false;
            };
            self.threads[id].now.after(end);
        }
        while let Some(source) = step.sources.get(self.threads[id].taken) {
            if let Source::Recv(peer) = source {
                let from = peer.at(&self.threads[id].cursor.vars, self.team.ranks);
                let lane = self.lane(from, rank, channel);
                let Some(message) = lane.messages.pop_front() else {
                    lane.waits = Some(id);
                    return false;
                };
                self.threads[id].now.after(message);
            }
            self.threads[id].taken += 1;
        }
        true
    }

    /// Sends the next message of the step that a thread is at.
    fn send(&mut self, id: usize, round: u64) {
        let (rank, channel) = self.team.threads[id];
        let Some(step) = self.step(id) else { return };
        let thread = &mut self.threads[id];
        let to = step.sends[thread.gone].at(&thread.cursor.vars, self.team.ranks);
        let chain = thread.now.chain + 1;
        thread.gone += 1;
        thread.is_due = false;
        let grains = step.shape().map_or(0, Slice::grains) as u64;
        let port = &mut self.ports[rank];
        port.sent_at = round;
        port.sent += grains;
        let port = &mut self.ports[if self.folded { 0 } else { to }];
        port.received_at = round.max(port.received_at + 1);
        port.received += grains;
        let message = Moment {
            round: port.received_at,
            chain,
        };
        self.rounds = self.rounds.max(message.round);
        self.chain = self.chain.max(chain);
        let lane = self.lane(rank, to, channel);
        lane.messages.push_back(message);
        let waits = lane.waits.take();
        self.ready.extend(waits.into_iter().chain([id]));
    }

    /// The lane between two ranks; with rank 0 for all, that of all over the same distance.
    fn lane(&mut self, from: usize, to: usize, channel: usize) -> &mut Lane {
        let ranks = self.team.ranks;
        let pair = match self.folded {
            true => (to + ranks - from) % ranks,
            false => from * ranks + to,
        };
        self.lanes.entry(pair * self.team.channels + channel).or_default()
    }
}
