//! [`Source`]: everything that can wake the control thread, apart from its bell and its listener.

use super::{
    Key,
    poller::{Token, Wire},
};
use crate::{
    net::{CommId, Dialer, Greeter},
    sys::fork::ProcessFd,
};
use std::{
    collections::{BTreeSet, HashMap},
    time::Instant,
};

/// Whom a rank dials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Near {
    Parent(u32),
    Child(u32),
}

/// Something registered with the poller.
pub(super) enum Source {
    /// A connection that has come in and has not proved itself.
    Stranger(Greeter),
    /// A connection in the making of one of our ranks, to its parent in the control tree, or to see whether a child is there.
    Dialing { key: Key, to: Near, dialer: Dialer },
    /// A rank at the meeting place of `comm`, which has introduced itself or not yet.
    Joiner {
        comm: CommId,
        rank: u32,
        introduced: bool,
        wire: Wire,
    },
    /// A rank `from` that will hand over a parcel.
    Link { key: Key, from: u32, wire: Wire },
    /// A rank `from` that will hand over the connection itself, to send data on.
    Stream { key: Key, from: u32, wire: Wire },
    /// What wakes a rank that sleeps for its links.
    Alarm(Key),
    /// An edge of the control tree.
    Edge { key: Key, peer: u32, wire: Wire },
    /// A connection that is only to be emptied and closed.
    Closing(Wire),
    /// A process whose end is to be noticed.
    Process {
        pid: u32,
        #[expect(
            dead_code,
            reason = "held so that it stays open: the poller tells when it is readable"
        )]
        fd: ProcessFd,
    },
}

/// All sources, and until when some of them must have got on.
#[derive(Default)]
pub(super) struct Sources {
    all: HashMap<Token, Source>,
    limits: HashMap<Token, Instant>,
    /// The tokens of strangers. Tokens grow, so the first is the oldest.
    strangers: BTreeSet<Token>,
}

impl Sources {
    pub(super) fn put(&mut self, token: Token, source: Source) {
        if matches!(source, Source::Stranger(_)) {
            self.strangers.insert(token);
        }
        self.all.insert(token, source);
    }

    /// Takes a source out, to be looked at and put back, or dropped. Its limit stays.
    pub(super) fn take(&mut self, token: Token) -> Option<Source> {
        self.strangers.remove(&token);
        self.all.remove(&token)
    }

    /// Closes a source.
    pub(super) fn close(&mut self, token: Token) {
        self.take(token);
        self.limits.remove(&token);
    }

    /// Whether an edge of the control tree still has something to send.
    pub(super) fn unsent(&self, token: Token) -> bool {
        matches!(self.all.get(&token), Some(Source::Edge { wire, .. }) if wire.channel.unsent())
    }

    /// The wire of an edge of the control tree.
    pub(super) fn edge(&mut self, token: Token) -> Option<&mut Wire> {
        match self.all.get_mut(&token) {
            Some(Source::Edge { wire, .. }) => Some(wire),
            _ => None,
        }
    }

    /// The rank that waits at a meeting place by this connection.
    pub(super) fn joiner(&self, token: Token) -> Option<Key> {
        match self.all.get(&token) {
            Some(&Source::Joiner { comm, rank, .. }) => Some(Key { comm, rank }),
            _ => None,
        }
    }

    pub(super) fn is_process(&self, token: Token) -> bool {
        matches!(self.all.get(&token), Some(Source::Process { .. }))
    }

    pub(super) fn limit(&mut self, token: Token, until: Instant) {
        self.limits.insert(token, until);
    }

    /// Puts a limit off, if there is one.
    pub(super) fn renew(&mut self, token: Token, until: Instant) {
        self.limits.entry(token).and_modify(|limit| *limit = until);
    }

    pub(super) fn unlimit(&mut self, token: Token) {
        self.limits.remove(&token);
    }

    pub(super) fn next_limit(&self) -> Option<Instant> {
        self.limits.values().min().copied()
    }

    /// The sources whose time is up.
    pub(super) fn late(&self, now: Instant) -> Vec<Token> {
        let late = self.limits.iter().filter(|&(_, &until)| until <= now);
        late.map(|(&token, _)| token).collect()
    }

    /// How many connections have not proved themselves.
    pub(super) fn strangers(&self) -> usize {
        self.strangers.len()
    }

    /// The oldest of them, and when it came.
    pub(super) fn oldest_stranger(&self) -> Option<(Token, Instant)> {
        let token = *self.strangers.first()?;
        match self.all.get(&token) {
            Some(Source::Stranger(greeter)) => Some((token, greeter.since())),
            _ => None,
        }
    }
}
