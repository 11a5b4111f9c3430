//! [`Member`]: a rank of this process, as the control thread keeps it.

use super::{
    super::{health::Shared, seat::Table, view::View},
    poller::Token,
};
use crate::net::{Address, DialError, Packed, Role, Round, Secret, Target, Tried, tell_tried};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

/// A rank of this process, from its joining until all ranks of its communicator have left or died.
pub(super) struct Member {
    pub(super) shared: Arc<Shared>,
    pub(super) secret: Secret,
    /// `None` once it has left.
    pub(super) welcome: Option<Packed>,
    /// `None` until all ranks have joined.
    pub(super) table: Option<Arc<Table>>,
    pub(super) view: View,
    /// Its connections in the control tree, by peer.
    pub(super) edges: HashMap<u32, Token>,
    /// The connection to its parent that is being made.
    pub(super) dialing: Option<Token>,
    /// When to try that again, after it has failed.
    pub(super) redial_at: Option<Instant>,
    /// What came of that since the last success.
    pub(super) attempts: Attempts,
    /// Peers whose processes are watched. For the others the end of a connection must do.
    pub(super) watched: HashSet<u32>,
    /// What wakes it when it sleeps for its links, if it asked for that.
    pub(super) alarm: Option<Token>,
    /// Whether it has left: who waits for that is told once all have heard.
    pub(super) leaving: bool,
}

impl Member {
    pub(super) fn new(shared: Arc<Shared>, secret: Secret, welcome: Packed) -> Member {
        Member {
            view: View::new(shared.key.rank, shared.ranks),
            shared,
            secret,
            welcome: Some(welcome),
            table: None,
            edges: HashMap::new(),
            dialing: None,
            redial_at: None,
            attempts: Attempts::default(),
            watched: HashSet::new(),
            alarm: None,
            leaving: false,
        }
    }

    pub(super) fn leave(&mut self) {
        self.view.leave();
        self.leaving = true;
        self.welcome = None;
    }

    /// Whom to dial now, if anybody, and where.
    pub(super) fn to_dial(&self, now: Instant) -> Option<(Target, Address)> {
        self.table.as_ref()?;
        if self.dialing.is_some() || self.redial_at.is_some_and(|at| at > now) {
            return None;
        }
        let to = self.view.wants()?;
        let addresses = self.addresses(to);
        let address = *addresses.get(self.attempts.next(to))?;
        let target = Target {
            addresses,
            role: Role::Control,
            from: self.shared.key.rank,
            to,
            comm: self.shared.key.comm,
            secret: self.secret.clone(),
        };
        Some((target, address))
    }

    /// Where another rank's process may be reached, the best first.
    pub(super) fn addresses(&self, peer: u32) -> Vec<Address> {
        let table = self.table.as_ref();
        table.map_or_else(Vec::new, |table| table.addresses(self.shared.key.rank, peer))
    }

    /// The ranks that live in other processes that can be watched from here, with those processes.
    pub(super) fn to_watch(&self) -> Vec<(u32, u32)> {
        let Some(table) = &self.table else {
            return Vec::new();
        };
        let Some((ours, _)) = table.place(self.shared.key.rank) else {
            return Vec::new();
        };
        let others = (0..self.shared.ranks).filter_map(|rank| Some((rank, table.place(rank)?.0)));
        others
            .filter(|(_, seat)| seat.unix != ours.unix)
            .filter_map(|(rank, _)| Some((rank, table.process(rank)?)))
            .collect()
    }
}

/// What came of dialing a parent, since the last success.
#[derive(Default)]
pub(super) struct Attempts {
    peer: Option<u32>,
    /// The address to try next.
    next: usize,
    /// Of the addresses tried so far in this round, and in the last one.
    round: Round,
    tried: Vec<Tried>,
    /// Rounds that failed, and since when.
    pub(super) refusals: u32,
    since: Option<Instant>,
    /// How often somebody was busy.
    busy: u32,
}

/// How often somebody may be busy before another address is tried.
const BUSY: u32 = 200;

impl Attempts {
    /// Which of `peer`'s addresses to try next.
    fn next(&self, peer: u32) -> usize {
        if self.peer == Some(peer) { self.next } else { 0 }
    }

    /// One of the `addresses` addresses of `peer` failed. When all have: what that says of who should be there.
    pub(super) fn failed(
        &mut self,
        (peer, addresses): (u32, usize),
        address: Address,
        why: DialError,
        now: Instant,
    ) -> Option<DialError> {
        if self.peer != Some(peer) {
            *self = Attempts::default();
            self.peer = Some(peer);
        }
        if matches!(why, DialError::Busy) {
            self.refusals += 1;
            self.since = None;
            self.busy += 1;
            if self.busy.is_multiple_of(BUSY) {
                self.next = (self.next + 1) % addresses.max(1); // what answers there may be something else
            }
            return Some(why); // somebody is there: the same once more
        }
        self.since.get_or_insert(now);
        if address.is_tcp() {
            self.tried.retain(|(other, _)| *other != address);
            self.tried.push((address, why.to_string()));
        }
        self.round.failed(address, why);
        self.next += 1;
        if self.next < addresses {
            return None;
        }
        self.next = 0;
        self.refusals += 1;
        Some(std::mem::take(&mut self.round).verdict())
    }

    /// Whether nothing else has come of it for so long.
    pub(super) fn last_for(&self, long: Duration, now: Instant) -> bool {
        self.since.is_some_and(|since| since + long <= now)
    }

    /// What to say of the peer.
    pub(super) fn tell(&self, verdict: &DialError) -> String {
        match tell_tried(&self.tried) {
            tried if tried.is_empty() => verdict.how(),
            tried => format!("{}; tried {tried}", verdict.how()),
        }
    }
}
