//! [`Member`]: a rank of this process, as the control thread keeps it.

use super::{
    super::{
        health::Shared,
        messages::{Seat, Table},
        view::View,
    },
    poller::Token,
};
use crate::{
    net::{Packed, Role, Secret, Target},
    sys::host,
};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Instant,
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
    /// How often it has failed since the last success.
    pub(super) refusals: u32,
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
            refusals: 0,
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

    /// Whom to dial now, if anybody.
    pub(super) fn to_dial(&self, now: Instant) -> Option<Target> {
        let table = self.table.as_ref()?;
        if self.dialing.is_some() || self.redial_at.is_some_and(|at| at > now) {
            return None;
        }
        let to = self.view.wants()?;
        Some(Target {
            addresses: table.seats.get(to as usize)?.addresses(),
            role: Role::Control,
            from: self.shared.key.rank,
            to,
            comm: self.shared.key.comm,
            secret: self.secret.clone(),
        })
    }

    /// The ranks that live in other processes that can be watched from here, with those processes.
    pub(super) fn to_watch(&self) -> Vec<(u32, u32)> {
        let Some(table) = &self.table else {
            return Vec::new();
        };
        let Some(ours) = table.seats.get(self.shared.key.rank as usize) else {
            return Vec::new();
        };
        let (namespace, boot) = (host::pid_namespace(), host::boot_id());
        // Each machine numbers its first pid namespace alike.
        let watchable = |seat: &Seat| {
            let same_pids = (seat.pid_namespace, seat.boot) == (namespace, boot) && namespace != 0;
            seat.unix != ours.unix && same_pids
        };
        let ranks = (0..).zip(&table.seats);
        ranks
            .filter(|(_, seat)| watchable(seat))
            .map(|(rank, seat)| (rank, seat.pid))
            .collect()
    }
}
