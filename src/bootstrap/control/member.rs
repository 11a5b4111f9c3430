//! [`Member`]: a rank of this process, as the control thread keeps it.

use super::{
    super::{health::Shared, messages::Made, seat::Table, status::Inside, view::View},
    poller::Token,
};
use crate::{
    net::{Address, DialError, Packed, Protection, Role, Round, Secret, Target, Tried, tell_tried},
    sys::{host, pidfd, tcp},
    types::Cause,
};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

/// A rank of this process, from its joining until all ranks of its communicator have left or died.
pub(super) struct Member {
    pub(super) shared: Arc<Shared>,
    /// The communicator's.
    pub(super) secret: Secret,
    /// What those must hold who come to this rank.
    pub(super) own: Secret,
    /// What its connections by TCP are to be like.
    pub(super) protection: Protection,
    /// `None` once it has left.
    pub(super) welcome: Option<Packed>,
    /// `None` until all ranks have joined.
    pub(super) table: Option<Arc<Table>>,
    /// When that was, as long as there are neighbours in the control tree without a connection.
    pub(super) seated: Option<Instant>,
    pub(super) view: View,
    /// Its connections in the control tree, by peer.
    pub(super) edges: HashMap<u32, Token>,
    /// The connection to its parent that is being made.
    pub(super) dialing: Option<Token>,
    /// The child that is looked for, if one has made no connection.
    pub(super) look: Option<Look>,
    /// Since when all ways to a child that makes none have been closed.
    closed_since: HashMap<u32, Instant>,
    /// The last one that was given up because nothing came back from its host, from which nothing has come since.
    silent: Option<u32>,
    /// When to try to reach the parent again, after it has failed.
    pub(super) redial_at: Option<Instant>,
    /// What came of that since the last success.
    pub(super) attempts: Attempts,
    /// Watched peers without their connection, and until when they may come back or be seen ending.
    pub(super) missed: HashMap<u32, Instant>,
    /// Peers whose processes are watched. For the others the end of a connection must do.
    pub(super) watched: HashSet<u32>,
    /// What wakes it when it sleeps for its links, if it asked for that.
    pub(super) alarm: Option<Token>,
    /// Whether it has left: who waits for that is told once all have heard.
    pub(super) leaving: bool,
}

impl Member {
    pub(super) fn new(
        shared: Arc<Shared>,
        [secret, own]: [Secret; 2],
        protection: Protection,
        welcome: Packed,
    ) -> Member {
        Member {
            view: View::new(shared.key.rank, shared.ranks),
            shared,
            secret,
            own,
            protection,
            welcome: Some(welcome),
            table: None,
            seated: None,
            edges: HashMap::new(),
            dialing: None,
            look: None,
            closed_since: HashMap::new(),
            silent: None,
            redial_at: None,
            attempts: Attempts::default(),
            missed: HashMap::new(),
            watched: HashSet::new(),
            alarm: None,
            leaving: false,
        }
    }

    /// What is needed to tell how its communicator is doing.
    pub(super) fn seen(&self) -> Inside {
        Inside {
            shared: self.shared.clone(),
            secret: self.secret.clone(),
            protection: self.protection,
            table: self.table.clone(),
        }
    }

    pub(super) fn leave(&mut self, made: Option<Made>) {
        self.view.leave(made);
        self.leaving = true;
        self.welcome = None;
    }

    /// Loses those whose connections ended some time ago and whose processes were not seen ending. Whether there were any.
    pub(super) fn lose_missed(&mut self, now: Instant) -> bool {
        let late = self.missed.extract_if(|_, until| *until <= now);
        let late: Vec<u32> = late.map(|(peer, _)| peer).collect();
        for &peer in &late {
            // One that has left, too: nobody waits for what it cannot say any more.
            if self.view.there(peer) {
                self.lose(peer, REPLACED.to_owned());
            }
        }
        !late.is_empty()
    }

    /// That a peer's process ended, if it has, or is about to: its connections end a little before its pidfd tells, and a rank that
    /// dies early is not watched yet.
    pub(super) fn ending(&self, peer: u32) -> Option<String> {
        let pid = self.table.as_ref()?.processes()(peer)?;
        (host::is_ending(pid) || pidfd::has_ended(pid)).then(|| ended(pid))
    }

    /// Whether the parent is to be dialled now, and where.
    pub(super) fn to_dial(&self, now: Instant) -> Option<(Target, Address)> {
        if self.dialing.is_some() || self.redial_at.is_some_and(|at| at > now) {
            return None;
        }
        let parent = self.view.wants()?;
        self.target(parent, Role::Control, &self.attempts)
    }

    /// Whether a child is to be looked for now, and where.
    pub(super) fn whom_to_look_for(&mut self, now: Instant) -> Option<(Target, Address)> {
        let look = self.look.as_ref().filter(|look| look.is_due(now))?;
        let target = self.target(look.child, Role::Ask, &look.attempts);
        if target.is_none() {
            self.look = None; // it begins anew
        }
        target
    }

    /// Children that have made no connection yet: of one that died before it did, nothing may tell; nor, be its process seen, of one that
    /// lives and takes no part, as the others' word that it does never reached it.
    fn unseen(&self) -> impl Iterator<Item = u32> {
        let seated = self.table.is_some();
        let awaited = self.view.awaited();
        awaited.filter(move |_| seated)
    }

    /// Sees whether a child is to be looked for, and which.
    pub(super) fn heed_children(&mut self, now: Instant) {
        let child = match &self.look {
            Some(look) if look.dialing.is_some() || self.unseen().any(|child| child == look.child) => return,
            _ => self.unseen().next(),
        };
        let (at, gap) = self
            .look
            .take()
            .map_or((now + CHILD_COMES, CHILD_COMES), |look| (look.at, look.gap));
        self.look = child.map(|child| Look::new(child, at, gap));
    }

    /// The child that was looked for is there, or nothing tells whether it is: the next one's turn, or once all had theirs, the first
    /// one's again, ever more rarely.
    pub(super) fn look_for_next(&mut self, now: Instant) {
        let Some(look) = self.look.take() else { return };
        let (next, first) = (
            self.unseen().find(|&child| child > look.child),
            self.unseen().next(),
        );
        let gap = 2 * look.gap;
        self.look = match next {
            Some(child) => Some(Look::new(child, now, look.gap)),
            None => first.map(|child| Look::new(child, now + gap, gap)),
        };
    }

    /// The child that is looked for did not answer at this address. That nobody is there at any says that it has gone. A way may be closed
    /// that is open for the child; but then it comes, and where its own is closed, too, it gives this rank up after [`CLOSED`].
    pub(super) fn not_found(&mut self, child: u32, address: Address, why: DialError, now: Instant) {
        let addresses = self.addresses(child).len();
        let Some(look) = self.look.as_mut().filter(|look| look.child == child) else {
            return;
        };
        look.dialing = None;
        let Some(verdict) = look.attempts.failed((child, addresses), address, why, now) else {
            return; // the next address
        };
        let told = look.attempts.tell(&verdict);
        let says_gone = match verdict {
            DialError::Nobody | DialError::Refused(_) => true,
            ref why if why.is_of_the_way() => {
                let since = *self.closed_since.entry(child).or_insert(now);
                self.is_silent(child) || since + 2 * longest_closed() <= now
            }
            _ => {
                self.closed_since.remove(&child);
                false
            }
        };
        match says_gone && self.unseen().any(|unseen| unseen == child) && !self.is_nowhere(child) {
            true => self.lose(child, told),
            false => self.look_for_next(now),
        }
    }

    /// A rank has answered.
    pub(super) fn found(&mut self, peer: u32) {
        self.closed_since.remove(&peer);
        if self.is_silent(peer) {
            self.silent = None;
        }
    }

    /// Loses a rank, as is told unless its process is seen ending, which says more.
    pub(super) fn lose(&mut self, peer: u32, told: String) {
        let how = self.ending(peer).unwrap_or(told);
        self.view.lose(peer, how);
    }

    /// The same for one from whose host nothing comes back any more.
    pub(super) fn lose_silent(&mut self, peer: u32, told: String) {
        self.silent = Some(peer);
        self.lose(peer, told);
    }

    /// Whether a rank is on the host of one that was lost because nothing came back from there: then it need not be waited for once more.
    pub(super) fn is_silent(&self, peer: u32) -> bool {
        let host = |rank| self.table.as_ref()?.place(rank).map(|(_, host)| host);
        let lost = self.silent.and_then(host);
        lost.zip(host(peer)).is_some_and(|(lost, host)| lost.is(host))
    }

    /// Whether no address leads from here to `peer`, so that it says nothing of that that nobody was found. It is over for all then.
    pub(super) fn is_nowhere(&mut self, peer: u32) -> bool {
        let rank = self.shared.key.rank;
        let Some(why) = self.table.as_ref().and_then(|table| table.nowhere(rank, peer)) else {
            return false;
        };
        let what = format!("it cannot connect to rank {peer}: {why}");
        let cause = Cause::Broken { rank, what };
        // Word of it may have no way to the others.
        self.shared.conclude(cause.clone());
        self.view.raise(cause);
        true
    }

    /// A rank to be dialled, and where.
    fn target(&self, to: u32, role: Role, attempts: &Attempts) -> Option<(Target, Address)> {
        let table = self.table.as_ref()?;
        let addresses = self.addresses(to);
        let address = *addresses.get(attempts.next(to))?;
        let target = Target {
            addresses,
            role,
            from: self.shared.key.rank,
            to,
            comm: self.shared.key.comm,
            secret: table.secret_of(to, &self.secret).ok()?,
            protection: self.protection,
        };
        Some((target, address))
    }

    /// Where another rank's process may be reached, the best first.
    pub(super) fn addresses(&self, peer: u32) -> Vec<Address> {
        let table = self.table.as_ref();
        table.map_or_else(Vec::new, |table| table.addresses(self.shared.key.rank, peer))
    }

    /// Peers whose processes are to be watched and are not yet, with those processes.
    ///
    /// That is everybody else of this machine who can be watched, so that each sees a death by itself; but of many only those
    /// who are near in the control tree, which tells all others, and the next one of this machine. So of those who are left each
    /// has one here that watches it, whoever else has died; and the end of a process does not wake hundreds of others.
    pub(super) fn to_watch(&self) -> Vec<(u32, u32)> {
        let me = self.shared.key.rank;
        let Some((table, (ours, _))) = self.table.as_ref().and_then(|t| Some((t, t.place(me)?))) else {
            return Vec::new();
        };
        let process = table.processes();
        let pid_of = |rank: u32| {
            let (seat, _) = table.place(rank)?;
            process(rank).filter(|_| seat.unix != ours.unix)
        };
        let there = |&(rank, _): &(u32, u32)| self.view.there(rank);
        let all = (0..self.shared.ranks).filter_map(|rank| Some((rank, pid_of(rank)?)));
        let mut peers: Vec<(u32, u32)> = all.filter(there).collect();
        if peers.len() > ALL_WATCHED {
            let mut members = peers.iter().filter(|(rank, _)| self.view.is_member(*rank));
            let first = members.clone().next();
            let next = members
                .find(|(rank, _)| *rank > me)
                .or(first)
                .map(|(_, pid)| *pid);
            let near: HashSet<u32> = self.view.near().filter_map(pid_of).chain(next).collect();
            peers.retain(|(_, pid)| near.contains(pid));
        }
        peers.retain(|(rank, _)| !self.watched.contains(rank));
        peers
    }
}

/// What is said of a process that was seen ending.
pub(super) fn ended(pid: u32) -> String {
    format!("its process {pid} ended")
}

/// What is said of a process that goes on without its connections.
const REPLACED: &str = "its control connection ended, and its process goes on: it has become another program (exec), or is cut off";
/// So many peers of one machine are all watched: the end of each of n processes then wakes n − 1 others.
const ALL_WATCHED: usize = 64;

/// A child that has made no connection, and is looked for.
pub(super) struct Look {
    pub(super) child: u32,
    /// When, and how long that is after the last time.
    pub(super) at: Instant,
    gap: Duration,
    /// The connection that is being made for that.
    pub(super) dialing: Option<Token>,
    attempts: Attempts,
}

impl Look {
    fn new(child: u32, at: Instant, gap: Duration) -> Look {
        Look {
            child,
            at,
            gap,
            dialing: None,
            attempts: Attempts::default(),
        }
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.dialing.is_none() && self.at <= now
    }
}

/// For how long all ways to a rank may be closed before it counts as lost.
pub(super) fn longest_closed() -> Duration {
    CLOSED.max(tcp::given_up_after())
}

/// That, at least.
const CLOSED: Duration = Duration::from_secs(20);

/// How long a child may take to make its connection before its parent looks whether it is there.
const CHILD_COMES: Duration = Duration::from_secs(2);

/// What came of dialing a rank, since the last success.
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
    /// Since when this process has had nothing to try it with.
    exhausted_since: Option<Instant>,
    /// Since when somebody at this address is busy, or says nothing.
    busy_since: Option<Instant>,
}

/// How long somebody may be busy before another address is tried.
const BUSY: Duration = Duration::from_secs(4);

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
            if *self.busy_since.get_or_insert(now) + BUSY <= now {
                self.busy_since = None;
                self.next = (self.next + 1) % addresses.max(1); // what answers there may be something else
                match self.next {
                    0 => self.round = Round::default(),
                    // That another one refuses does not say that it has ended.
                    _ => self.round.failed(address, DialError::Busy),
                }
            }
            return Some(why); // somebody is there: the same once more
        }
        self.busy_since = None;
        self.since.get_or_insert(now);
        self.exhausted_since = match why {
            DialError::Exhausted(_) => self.exhausted_since.or(Some(now)),
            _ => None,
        };
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

    /// Whether this process has had nothing to try it with for so long.
    pub(super) fn exhausted_for(&self, long: Duration, now: Instant) -> bool {
        self.exhausted_since.is_some_and(|since| since + long <= now)
    }

    /// What to say of the peer.
    pub(super) fn tell(&self, verdict: &DialError) -> String {
        match tell_tried(&self.tried) {
            tried if tried.is_empty() => verdict.how(),
            tried if matches!(verdict, DialError::Nobody) => format!(
                "{}, or a firewall refuses connections to it (see CCL_PORT_RANGE); tried {tried}",
                verdict.how()
            ),
            tried => format!("{}; tried {tried}", verdict.how()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Key, start},
        *,
    };
    use crate::{bootstrap::messages::Word, net::Parcel};

    /// A process that stands still has two addresses, of which one is somebody else's.
    #[test]
    fn who_is_busy_at_one_address_has_not_ended_because_another_refuses() {
        let [there, strange] = ["10.0.0.2:1", "172.17.0.1:1"].map(|at| Address::Tcp(at.parse().unwrap()));
        let (mut attempts, mut now) = (Attempts::default(), Instant::now());
        for _ in 0..3 {
            for _ in 0..2 {
                assert_eq!(attempts.next(1), 0);
                let verdict = attempts.failed((1, 2), there, DialError::Busy, now);
                assert!(matches!(verdict, Some(DialError::Busy)));
                now += BUSY;
            }
            assert_eq!(attempts.next(1), 1);
            let verdict = attempts.failed((1, 2), strange, DialError::Nobody, now);
            assert!(matches!(verdict, Some(DialError::Busy)), "{verdict:?}");
        }
        // It has ended.
        assert!(attempts.failed((1, 2), there, DialError::Nobody, now).is_none());
        let verdict = attempts.failed((1, 2), strange, DialError::Nobody, now);
        assert!(matches!(verdict, Some(DialError::Nobody)), "{verdict:?}");
    }

    #[test]
    fn who_has_left_and_become_another_program_is_not_waited_for() {
        let key = Key {
            comm: [7; 16],
            rank: 0,
        };
        let shared = Arc::new(Shared::new(start().unwrap(), key, 2, None, Arc::new(|| ())));
        let secrets = [Secret::new(&[1; 32]), Secret::new(&[2; 32])];
        let welcome = Packed::parcel(Parcel::default()).unwrap();
        let mut member = Member::new(shared, secrets, Protection::Off, welcome);
        member.view.connect(1);
        member.view.hear(1, Word::Left { rank: 1, made: None });
        member.view.disconnect(1);
        let now = Instant::now();
        member.missed.insert(1, now);
        assert!(member.view.there(1) && member.lose_missed(now));
        assert!(!member.view.there(1));
    }
}
