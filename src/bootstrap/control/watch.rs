//! [`Watches`]: which ranks end when a process ends.

use super::{
    Key,
    poller::{Poller, Token},
    source::{Source, Sources},
};
use crate::sys::pidfd;
use std::collections::HashMap;

/// One pidfd for each process that holds peers of ours, however many communicators it shares with us.
#[derive(Default)]
pub(super) struct Watches(HashMap<u32, Watch>);

struct Watch {
    token: Token,
    /// The ranks in that process, by the ranks of this process that know them.
    ranks: Vec<(Key, u32)>,
}

/// What came of watching.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Watched {
    Yes,
    /// The process has ended already.
    Ended,
    /// The system does not let us; the end of the control connection has to do.
    Impossible,
}

impl Watches {
    /// Watches process `pid`, for the sake of `key`, whose peer `rank` lives there.
    pub(super) fn add(
        &mut self,
        pid: u32,
        key: Key,
        rank: u32,
        poller: &mut Poller,
        sources: &mut Sources,
    ) -> Watched {
        if let Some(watch) = self.0.get_mut(&pid) {
            watch.ranks.push((key, rank));
            return Watched::Yes;
        }
        let fd = match pidfd::open(pid) {
            Ok(Some(fd)) => fd,
            Ok(None) => return Watched::Ended,
            Err(_) => return Watched::Impossible,
        };
        let Ok(token) = poller.add(&fd) else {
            return Watched::Impossible;
        };
        sources.put(token, Source::Process { pid, fd });
        let ranks = vec![(key, rank)];
        self.0.insert(pid, Watch { token, ranks });
        Watched::Yes
    }

    /// `pid` has ended: the ranks that were there.
    pub(super) fn ended(&mut self, pid: u32) -> Vec<(Key, u32)> {
        self.0.remove(&pid).map(|watch| watch.ranks).unwrap_or_default()
    }

    /// `key` does not care any more.
    pub(super) fn forget(&mut self, key: Key, sources: &mut Sources) {
        self.0.retain(|_, watch| {
            watch.ranks.retain(|(k, _)| *k != key);
            if watch.ranks.is_empty() {
                sources.close(watch.token);
            }
            !watch.ranks.is_empty()
        });
    }
}
