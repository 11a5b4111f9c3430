//! [`Membership`]: what a rank holds while it belongs to a communicator.

use super::{
    MAX_TIMEOUT,
    control::{Command, Token},
    health::{Health, Peer, Shared},
    messages::{Made, Waits},
    rails::Roads,
    seat::{Host, HostKey, Seat, Spot, Table},
};
use crate::{
    net::{
        ALTERED, Address, CommId, Connection, DialError, Failure, Frame, FrameError, Packed, Parcel,
        Patience, Protection, Refused, Role, Secret, Target, Way,
    },
    sys::{host, tcp},
    topo::share::Crowd,
    transport::links::{Direction, Opener, Way as Joined},
    types::{Cause, Error, Operation, Says, Whereabouts},
};
use rustix::io::Errno;
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeSet, VecDeque},
    fmt, iter,
    net::SocketAddr,
    ops::Deref,
    os::fd::BorrowedFd,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};
use tracing::debug;

/// A rank's place in a communicator, with all that [`Health`] tells. Dropping it leaves in order.
pub(crate) struct Membership {
    health: Health,
    secret: Secret,
    protection: Protection,
    table: Arc<Table>,
    pub(super) roads: Roads,
    timeout_ms: AtomicU64,
    left: AtomicBool,
    /// What the control thread knows this rank's connections by; see [`Opener::wake_when_ready`].
    alarm: OnceLock<Token>,
}

impl Membership {
    pub(super) fn new(
        shared: Arc<Shared>,
        (secret, protection): (Secret, Protection),
        table: Arc<Table>,
        roads: Roads,
        timeout: Duration,
    ) -> Self {
        let membership = Membership {
            health: Health(shared),
            secret,
            protection,
            table,
            roads,
            timeout_ms: AtomicU64::new(0),
            left: AtomicBool::new(false),
            alarm: OnceLock::new(),
        };
        membership.set_timeout(timeout);
        membership
    }

    /// A number by which this communicator differs from others, as far as their names do.
    pub(crate) fn number(&self) -> u64 {
        self.comm()
            .iter()
            .fold(0, |number, &byte| number.rotate_left(8) ^ u64::from(byte))
    }

    /// The communicator's name for people.
    pub(crate) fn name(&self) -> String {
        self.health.0.name.clone()
    }

    /// The communicator's name.
    pub(super) fn comm(&self) -> CommId {
        self.health.0.key.comm
    }

    /// Of what the secrets of communicators are made that come of this one.
    ///
    /// # Errors
    /// [`Error::Internal`].
    pub(super) fn secret_of_all(&self) -> Result<Secret, Error> {
        self.table.secret_of_all(&self.secret)
    }

    /// Where the process of `rank`, which may be this one, can be reached from here, the best first.
    pub(super) fn addresses(&self, rank: usize) -> Vec<Address> {
        self.table.addresses(self.rank() as u32, rank as u32)
    }

    /// Where the process of `rank` listens, for whom it is not known where they are: first those that may be the only ones for somebody.
    pub(super) fn addresses_for_strangers(&self, rank: usize) -> Vec<Address> {
        let Some((seat, host)) = self.table.place(rank as u32) else {
            return Vec::new();
        };
        let mut ways = host.ways.clone();
        ways.sort_by_key(|way| !way.is_first);
        let network = seat.port.into_iter().flat_map(|port| {
            let ips = ways.iter().map(Way::ip);
            ips.map(move |ip| Address::Tcp(SocketAddr::new(ip, port)))
        });
        iter::once(seat.unix).chain(network).collect()
    }

    /// The ways to the process of `rank` by TCP: see [`Table::spots`].
    pub(super) fn ways(&self, rank: usize, most: Option<usize>) -> (Vec<Spot>, Vec<Spot>) {
        self.table.spots(self.rank() as u32, rank as u32, most)
    }

    fn seat(&self, rank: usize) -> Option<&Seat> {
        self.table.seats.get(rank)
    }

    fn host(&self, rank: usize) -> Option<&Host> {
        self.table.place(rank as u32).map(|(_, host)| host)
    }

    /// A rank's host, for messages.
    pub(super) fn host_of(&self, rank: usize) -> String {
        self.host(rank).map_or_else(String::new, Host::to_string)
    }

    /// Why no address leads to the process of `rank`, if none does: see [`Table::nowhere`].
    pub(super) fn nowhere(&self, rank: usize) -> Option<String> {
        self.table.nowhere(self.rank() as u32, rank as u32)
    }

    /// What tells a rank's host from others.
    pub(super) fn key_of(&self, rank: usize) -> Option<HostKey> {
        self.host(rank).map(Host::key)
    }

    /// Whether this rank has a processor of its own, all the time, or shares one with others, or a quota.
    pub(crate) fn crowd(&self) -> Crowd {
        let crowd = self.table.crowds.get(self.rank());
        crowd.copied().unwrap_or(Crowd::Alone)
    }

    /// The processor that this rank begins on, where it shares some.
    pub(crate) fn start(&self) -> Option<usize> {
        let start = self.table.starts.get(self.rank()).copied();
        start.flatten().map(usize::from)
    }

    /// The cores for all ranks: as many as on the host that has the fewest for each of its own. Fewer than ranks where some
    /// are not alone ([`Membership::crowd`]). The same on all ranks.
    pub(crate) fn cores(&self) -> usize {
        self.table.cores as usize
    }

    /// Each rank's NUMA node, if all are on one host and each is bound to one; else nothing. The same on all ranks.
    pub(crate) fn nodes(&self) -> &[u16] {
        &self.table.nodes
    }

    /// What rank 0 brought for all.
    pub(crate) fn told(&self) -> &[u8] {
        &self.table.told
    }

    /// Whether all ranks seem to be on one host. The same on all ranks.
    pub(crate) fn one_host(&self) -> bool {
        self.table.one_host
    }

    /// Rank 0 and the first rank that is on another host, if there is one, for messages. The same on all ranks.
    pub(crate) fn on_two_hosts(&self) -> Option<[String; 2]> {
        let is_elsewhere = |&rank: &usize| !self.one_host() && self.key_of(rank) != self.key_of(0);
        let other = (1..self.ranks()).find(is_elsewhere)?;
        Some([0, other].map(|rank| format!("rank {rank} ({})", self.host_of(rank))))
    }

    /// The first rank that has no wire of a plugin's, if there is one. The same on all ranks.
    pub(crate) fn without_wire(&self) -> Option<usize> {
        self.table.without_wire.map(|rank| rank as usize)
    }

    /// Whether a process has several ranks. The same on all ranks.
    pub(crate) fn has_ranks_in_one_process(&self) -> bool {
        let mut seats: Vec<_> = self.table.seats.iter().map(|seat| &seat.unix).collect();
        seats.sort_unstable();
        seats.windows(2).any(|two| two[0] == two[1])
    }

    /// Whether all ranks are threads of one process. The same on all ranks.
    pub(crate) fn one_process(&self) -> bool {
        let mut seats = self.table.seats.iter();
        let first = seats.next().map(|seat| &seat.unix);
        seats.all(|seat| Some(&seat.unix) == first)
    }

    /// Whether each rank seems to be on a host of its own. The same on all ranks.
    pub(crate) fn all_apart(&self) -> bool {
        let mut hosts = BTreeSet::new();
        let mut apart = |rank| self.key_of(rank).is_some_and(|key| hosts.insert(key));
        !self.one_host() && (0..self.ranks()).all(&mut apart)
    }

    /// Each rank's host, equal for those that seem to share one. The same on all ranks. A machine may be several hosts, in
    /// which ranks see other networks and share nothing.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = impl Ord> + use<'_> {
        let one_host = self.one_host();
        (0..self.ranks()).map(move |rank| if one_host { None } else { self.key_of(rank) })
    }

    /// Sets the deadline of [`Opener::open`]; at first it is that of init.
    pub(crate) fn set_timeout(&self, timeout: Duration) {
        let ms = timeout.min(MAX_TIMEOUT).as_millis();
        self.timeout_ms.store(ms as u64, Relaxed); // a year of milliseconds fits
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.load(Relaxed))
    }

    /// Leaves in order: tells all others, with what it has called, if that is worth comparing, so that the end of this process is no
    /// failure to them, and waits until they have heard, [`LEAVE_WAIT`] at most, and less after others have not heard so long, as where a
    /// process is stopped. From then on `wake` is not called any more, and peers
    /// get no welcome.
    /// Later calls do nothing, nor does the call of a forked child.
    pub(crate) fn leave(&self, made: Option<Made>) {
        let shared = &self.health.0;
        if shared.check().is_err() || self.left.swap(true, Relaxed) {
            return;
        }
        shared.hush();
        if shared.control.post(Command::Leave(shared.key, made)).is_ok() {
            let limit = match UNHEARD.load(Relaxed) {
                true => LEAVE_WAIT_NEXT,
                false => LEAVE_WAIT,
            };
            UNHEARD.store(!shared.wait_settled(limit), Relaxed);
        }
    }

    /// What keeps this rank from a link to `peer`, if anything is known.
    fn obstacle(&self, peer: usize) -> Option<Cause> {
        if !self.trouble() && !self.departures() {
            return None;
        }
        let (rank, seen_by, during) = (peer as u32, self.rank() as u32, None);
        self.verdict().or_else(|| match self.peer(peer) {
            Peer::Alive => None,
            Peer::Left { .. } => Some(Cause::Left {
                rank,
                seen_by,
                during,
            }),
            Peer::Dead { how, .. } => Some(Cause::Lost {
                rank,
                how,
                seen_by,
                during,
            }),
        })
    }

    /// Where to reach `peer`, and as whom.
    fn target(&self, peer: usize, role: Role) -> Result<Target, Failure> {
        let seat = self.seat(peer).ok_or(FrameError::Malformed)?;
        let key = self.health.0.key;
        let addresses = match role {
            // Descriptors go through Unix sockets only, and whoever wants a connection to keep wants one by TCP.
            Role::Link => vec![seat.unix],
            // They know the ways by themselves.
            Role::Stream => Vec::new(),
            Role::Join | Role::Control | Role::Ask | Role::Status => self.addresses(peer),
        };
        Ok(Target {
            addresses,
            role,
            from: key.rank,
            to: peer as u32,
            comm: key.comm,
            secret: seat
                .life
                .secret(&self.secret)
                .map_err(|_| FrameError::Malformed)?,
            protection: self.protection,
        })
    }

    /// Makes something of `peer`'s process: `attempt` until it succeeds, `peer` is gone, or the deadline has passed.
    fn reach<T>(
        &self,
        peer: usize,
        attempt: impl Fn(&Patience<'_>) -> Result<T, Failure>,
    ) -> Result<T, Error> {
        self.check()?;
        if peer >= self.ranks() || peer == self.rank() {
            return Err(Error::internal(format!(
                "a link from rank {} to rank {peer}",
                self.rank()
            )));
        }
        let (began, mut timeout) = (Instant::now(), self.timeout());
        let hearsay = Hearsay::of(peer);
        let obstacle = || self.obstacle(peer).or_else(|| hearsay.look(self));
        self.set_waits(&[peer], None);
        let outcome = loop {
            let is_cut_short = || {
                let now = self.timeout();
                now < timeout && began.elapsed() >= now
            };
            let stop = || obstacle().is_some() || is_cut_short();
            let patience = Patience::new(began + timeout, &stop);
            let attempt = |patience: &Patience<'_>| match attempt(patience) {
                Err(Failure::Stopped) if obstacle().is_none() && is_cut_short() => Err(Failure::Late),
                done => done,
            };
            let outcome = self.keep_trying(peer, (began, &patience), obstacle, attempt);
            // It may have been made longer meanwhile.
            let ran_out = outcome.is_err() && began.elapsed() >= timeout && obstacle().is_none();
            let now = self.timeout();
            if !ran_out || now <= timeout || began.elapsed() >= now {
                break outcome;
            }
            timeout = now;
        };
        self.set_waits(&[], None);
        outcome
    }

    /// The same, with what is left of `patience`, unless an `obstacle` shows.
    fn keep_trying<T>(
        &self,
        peer: usize,
        (began, patience): (Instant, &Patience<'_>),
        obstacle: impl Fn() -> Option<Cause>,
        attempt: impl Fn(&Patience<'_>) -> Result<T, Failure>,
    ) -> Result<T, Error> {
        let mut failures = 0;
        loop {
            if let Some(cause) = obstacle() {
                return Err(Error::Failed(cause));
            }
            let failure = match attempt(patience) {
                Ok(done) => return Ok(done),
                Err(failure) => failure,
            };
            match failure {
                // It died or left just now, and word of that is on its way; that says more than we can.
                Failure::Dial(DialError::Nobody)
                    if (failures < LAST_BREATHS || self.is_ending(peer))
                        && !patience.time_left().is_zero() =>
                {
                    failures += 1;
                    thread::sleep(RETRY);
                }
                // On another host, and nobody has heard of its end: what refuses the connection may be a firewall.
                Failure::Dial(e @ DialError::Nobody)
                    if self.table.processes()(peer as u32).is_none() && !patience.tried().is_empty() =>
                {
                    if began.elapsed() >= tcp::given_up_after() || patience.time_left().is_zero() {
                        return Err(self.no_way(peer, &e.to_string(), &patience.tried()));
                    }
                    thread::sleep(RETRY);
                }
                // The same, or its process lacks something at the moment, as to answer with a descriptor.
                Failure::Frame(FrameError::Closed) if !patience.time_left().is_zero() => {
                    thread::sleep(RETRY);
                }
                Failure::Dial(
                    e @ (DialError::Nobody
                    | DialError::Refused(
                        Refused::Unknown
                        | Refused::ProofRejected
                        | Refused::WrongProof
                        | Refused::Version { .. },
                    )),
                ) => {
                    return Err(Error::Failed(self.unreachable(peer, &e, &patience.tried())));
                }
                Failure::Stopped => (),
                // All that this user's processes hand over at the moment is too much for the system. It is theirs as soon as they take it.
                Failure::Frame(FrameError::Io(e))
                    if Errno::from_io_error(&e) == Some(Errno::TOOMANYREFS)
                        && !patience.time_left().is_zero() =>
                {
                    let (rank, ranks) = (self.rank(), self.ranks());
                    debug!(rank, ranks, "link: nothing can be handed to rank {peer} yet: {e}");
                    thread::sleep(RETRY);
                }
                // Nothing came back: the network's fault, not the peer's.
                Failure::Late if !patience.tried().is_empty() => {
                    let why = format!("none in {:.1} s", began.elapsed().as_secs_f64());
                    return Err(self.no_way(peer, &why, &patience.tried()));
                }
                Failure::Late => {
                    return Err(Error::Failed(Cause::Late {
                        ranks: vec![peer as u32],
                        found: vec![Whereabouts {
                            rank: peer as u32,
                            behind_in: None,
                            says: Says::Nothing,
                        }],
                        seen_by: self.rank() as u32,
                        during: None,
                        after: self.timeout(),
                    }));
                }
                Failure::Frame(FrameError::Altered) => {
                    return Err(Error::Failed(Cause::Broken {
                        rank: peer as u32,
                        what: ALTERED.to_owned(),
                    }));
                }
                e => return Err(self.no_way(peer, &e.to_string(), &patience.tried())),
            }
        }
    }

    /// Whether the process of `peer` is seen ending: the control thread is about to hear of it.
    fn is_ending(&self, peer: usize) -> bool {
        self.table.processes()(peer as u32).is_some_and(host::is_ending)
    }

    fn no_link(&self, peer: usize, why: &dyn fmt::Display) -> Error {
        self.broken(format!("no link to rank {peer}: {why}"))
    }

    pub(super) fn broken(&self, what: String) -> Error {
        let rank = self.rank() as u32;
        Error::Failed(Cause::Broken { rank, what })
    }

    /// Who is to blame when this rank has waited too long in `during` for `ranks`: those that wait themselves are asked whom for,
    /// and so on, until there are some that do not wait or whose processes do not answer. All of `ranks` if there are none, as
    /// they wait in a circle; with what they wait in. Then others are given time to find who does not answer them.
    ///
    /// # Errors
    /// What stopped the communicator, where one that is asked knows more of that than this rank.
    pub(crate) fn late(
        &self,
        ranks: &[usize],
        during: Option<Operation>,
    ) -> Result<(Vec<u32>, Vec<Whereabouts>), Cause> {
        let ranks: Vec<u32> = ranks.iter().map(|&rank| rank as u32).collect();
        let end = Instant::now() + ASK_ALL;
        let mut asked = BTreeSet::from([self.rank() as u32]);
        let mut to_ask: VecDeque<_> = ranks.iter().map(|&rank| (rank, during)).collect();
        let (mut late, mut waiting) = (Vec::new(), Vec::new());
        while let Some((rank, behind_in)) = to_ask.pop_front() {
            if self.verdict().is_some() || (Instant::now() > end && !late.is_empty()) {
                break;
            }
            if !asked.insert(rank) {
                continue;
            }
            let find = |says| Whereabouts {
                rank,
                behind_in,
                says,
            };
            match self.ask_again(rank) {
                Ok(Waits {
                    stopped: Some(cause), ..
                }) => return Err(cause),
                Ok(waits) if !waits.ranks.is_empty() => {
                    waiting.extend(waits.says().map(find));
                    let behind_in = waits.waits_in;
                    to_ask.extend(waits.ranks.into_iter().map(|rank| (rank, behind_in)));
                }
                Ok(waits) => late.push(find(waits.last())),
                Err(_) => late.push(find(Says::Nothing)),
            }
        }
        if late.is_empty() {
            // Who has asked one in vain has found more, and needs longer.
            self.await_verdict(2 * ASK + SLACK);
            waiting.retain(|one| ranks.contains(&one.rank));
            return Ok((ranks, waiting));
        }
        late.sort_unstable_by_key(|one| one.rank);
        Ok((late.iter().map(|one| one.rank).collect(), late))
    }

    /// Gives ranks that know more about a failure so long to say so.
    pub(crate) fn await_verdict(&self, limit: Duration) {
        let until = Instant::now() + limit;
        while self.verdict().is_none() && Instant::now() < until {
            thread::sleep(LOOK);
        }
    }

    /// As [`Membership::ask`]; a process that does not answer, but is not stopped as far as can be seen, is asked twice.
    fn ask_again(&self, rank: u32) -> Result<Waits, Failure> {
        let is_stopped = || self.table.processes()(rank).is_some_and(host::is_stopped);
        match self.ask(rank) {
            Err(Failure::Late) if !is_stopped() => self.ask(rank),
            answer => answer,
        }
    }

    /// What `rank` waits in and has called lately, if its process answers.
    pub(crate) fn calls_of(&self, rank: usize) -> Option<Waits> {
        self.ask(rank as u32).ok()
    }

    /// What stopped the communicator, as one of some other ranks says that `ask` asks: those at the distances 1, 2, 4 and so on, so that
    /// word of it goes round in a few questions of each, also where a process is stopped by which it would come.
    pub(crate) fn stopped_elsewhere(&self, mut ask: impl FnMut(usize) -> Option<Waits>) -> Option<Cause> {
        let distances = iter::successors(Some(1), |distance| Some(2 * distance));
        let distances = distances.take_while(|&distance| distance < self.ranks());
        let mut others = distances.map(|distance| (self.rank() + distance) % self.ranks());
        others.find_map(|rank| ask(rank)?.stopped)
    }

    /// The loss of a rank that was seen so long ago or longer.
    pub(crate) fn dead_for(&self, least: Duration, during: Option<Operation>) -> Option<Cause> {
        (0..self.ranks()).find_map(|rank| match self.peer(rank) {
            Peer::Dead { how, since } if since.elapsed() >= least => Some(Cause::Lost {
                rank: rank as u32,
                how,
                seen_by: self.rank() as u32,
                during,
            }),
            _ => None,
        })
    }

    /// What `rank` waits for, as its process says.
    fn ask(&self, rank: u32) -> Result<Waits, Failure> {
        let stop = || self.verdict().is_some();
        let answer = ask(
            &self.target(rank as usize, Role::Ask)?,
            Instant::now() + ASK,
            &stop,
        );
        if answer.is_err() {
            self.lose_if_dumping(rank);
        }
        answer
    }

    /// Tells that `rank` is lost if its process has crashed and does not end before its core is written.
    fn lose_if_dumping(&self, rank: u32) {
        if let Some(pid) = self.table.processes()(rank)
            && host::is_dumping(pid)
        {
            let how = format!("its process {pid} has crashed, and its core is being written");
            self.lose(rank, how);
        }
    }

    /// Tells the control thread, and so all, that `rank` is lost.
    fn lose(&self, rank: u32, how: String) {
        let shared = &self.health.0;
        // If that fails there is a verdict: the control thread's own end.
        let _ = shared.control.post(Command::Lose(shared.key, rank, how));
    }

    /// Tells the control thread, and so all, that `peer` is not to be reached; and what to make of that here.
    fn unreachable(&self, peer: usize, how: &DialError, tried: &str) -> Cause {
        let shared = &self.health.0;
        let tried = match tried {
            "" => String::new(),
            tried => format!("; tried {tried}"),
        };
        let (rank, how) = (peer as u32, format!("{}{tried}", how.how()));
        let lost = Cause::Lost {
            rank,
            how: how.clone(),
            seen_by: shared.key.rank,
            during: None,
        };
        self.lose(rank, how);
        self.obstacle(peer).unwrap_or(lost)
    }
}

impl Opener for Membership {
    /// # Errors
    /// [`Error::Failed`] with the communicator's verdict, or with what was found here: the caller raises it.
    fn open(&self, peer: usize, parcel: Parcel) -> Result<Option<Parcel>, Error> {
        let parcel = Packed::parcel(parcel).map_err(|e| self.no_link(peer, &e))?;
        let has_other_ways = self.seat(peer).is_some_and(|seat| seat.port.is_some());
        let exchange = |patience: &Patience<'_>| {
            let mut channel = match patience.dial(&self.target(peer, Role::Link)?) {
                Err(Failure::Dial(why))
                    if has_other_ways && (matches!(why, DialError::Nobody) || why.is_forbidden()) =>
                {
                    return Ok(None);
                }
                channel => channel?,
            };
            patience.send(&mut channel, parcel.clone())?;
            patience.receive(&mut channel).map(Some)
        };
        let welcome = self.reach(peer, exchange)?.map(Frame::into_parcel);
        welcome.transpose().map_err(|e| self.no_link(peer, &e))
    }

    fn connect(
        &self,
        peer: usize,
        wanted: Option<usize>,
        about: &dyn Fn(usize, usize) -> Vec<u8>,
    ) -> Result<Vec<Connection>, Error> {
        if self.seat(peer).is_some_and(|seat| seat.port.is_none()) {
            return Err(self.no_link(
                peer,
                &"it does not listen by TCP; set the transport to auto or tcp on all ranks",
            ));
        }
        // Kept when a later one fails: the peer has been told what they are.
        let made = RefCell::new(Vec::<Option<Connection>>::new());
        self.reach(peer, |patience| {
            let mut made = made.borrow_mut();
            let target = self.target(peer, Role::Stream)?;
            let missing = made.iter().filter(|stream| stream.is_none()).count();
            // Once the peer has been told how many there are it waits for them all.
            let (wanted, fewer_do) = match made.is_empty() {
                true => (wanted, true),
                false => (Some(missing), false),
            };
            let channels = self.ride(peer, (wanted, fewer_do), &target, patience, self.timeout())?;
            if made.is_empty() {
                made.resize_with(channels.len(), || None);
            }
            let count = made.len();
            let missing = made.iter_mut().enumerate().filter(|(_, stream)| stream.is_none());
            for ((index, stream), mut channel) in missing.zip(channels) {
                let parcel = Parcel {
                    bytes: about(index, count),
                    ..Parcel::default()
                };
                patience.send(&mut channel, Packed::parcel(parcel)?)?;
                patience.receive(&mut channel)?;
                *stream = channel.into_connection();
            }
            Ok(())
        })?;
        let streams: Option<Vec<_>> = made.into_inner().into_iter().collect();
        streams.ok_or_else(|| self.no_link(peer, &"it spoke out of turn"))
    }

    fn process(&self, peer: usize) -> Option<u32> {
        self.table.processes()(peer as u32)
    }

    fn arrivals(&self) -> Vec<(usize, Parcel)> {
        if self.check().is_err() {
            return Vec::new();
        }
        let frames = self.health.0.arrivals().into_iter();
        // The control thread has checked the sizes, so none is lost here.
        frames
            .filter_map(|(rank, frame)| Some((rank, frame.into_parcel().ok()?)))
            .collect()
    }

    fn note(&self, peer: usize, direction: Direction, way: Joined) {
        self.set_way(peer, direction, way);
    }

    fn wake_when_ready(&self, watched: BorrowedFd<'_>) -> Result<(), Error> {
        let shared = &self.health.0;
        let token = match self.alarm.get() {
            Some(token) => *token,
            None => {
                let token = shared.control.alarm(shared.key)?;
                *self.alarm.get_or_init(|| token)
            }
        };
        let armed = shared.control.wake_when_ready(watched, token);
        armed.map_err(|e| Error::system("cannot wait for connections", e))
    }
}

impl Deref for Membership {
    type Target = Health;

    fn deref(&self) -> &Health {
        &self.health
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.leave(None);
    }
}

/// What may have happened elsewhere while this rank waits for a peer that does not answer.
struct Hearsay {
    /// Who does not answer.
    peer: usize,
    began: Instant,
    /// When others are asked next.
    next: Cell<Instant>,
    /// What was found.
    found: RefCell<Option<Cause>>,
}

impl Hearsay {
    fn of(peer: usize) -> Hearsay {
        let began = Instant::now();
        Hearsay {
            peer,
            began,
            next: Cell::new(began + GO_ROUND),
            found: RefCell::default(),
        }
    }

    /// What ends the communicator: the loss of a rank some time ago, or what others say, who are asked ever more rarely.
    fn look(&self, membership: &Membership) -> Option<Cause> {
        let mut found = self.found.borrow_mut();
        if found.is_none() && self.began.elapsed() >= GRACE {
            *found = membership.dead_for(GRACE, None);
        }
        if found.is_none() && Instant::now() >= self.next.get() {
            membership.lose_if_dumping(self.peer as u32);
            *found = membership.stopped_elsewhere(|rank| membership.calls_of(rank));
            self.next
                .set(Instant::now() + self.began.elapsed().min(LONGEST_APART));
        }
        found.clone()
    }
}

/// Asks the process that is reached by `target` what the rank there waits for.
pub(super) fn ask(target: &Target, deadline: Instant, stop: &dyn Fn() -> bool) -> Result<Waits, Failure> {
    let patience = Patience::new(deadline, stop);
    // On this host the first is certain; elsewhere a closed way would take all the time.
    let near = target.addresses.first().is_some_and(|first| !first.is_tcp());
    let mut channel = match near {
        true => patience.dial(target)?,
        false => {
            let all: Vec<_> = target.addresses.iter().map(|&address| (address, None)).collect();
            let met = patience.dial_all(target, &all, ASK / 4, false)?;
            met.into_iter().find_map(Result::ok).ok_or(Failure::Late)?
        }
    };
    Ok(patience.receive(&mut channel)?.message()?)
}

/// Whether this process has last waited in vain for others to hear that it left a communicator: that may be so with many.
static UNHEARD: AtomicBool = AtomicBool::new(false);
/// How long [`Membership::leave`] waits for the slowest to hear, and how long when it has last waited in vain.
const LEAVE_WAIT: Duration = Duration::from_secs(1);
const LEAVE_WAIT_NEXT: Duration = Duration::from_millis(if cfg!(test) { 1000 } else { 100 });
/// How long those that know of a failure only indirectly leave it to the others: after a rank's death the ranks that do
/// not wait for it, and after a difference of calls those that see only its consequences.
pub(crate) const GRACE: Duration = Duration::from_millis(250);
/// How long a rank waits before it asks others than those it waits for, too.
pub(crate) const GO_ROUND: Duration = Duration::from_secs(3);
/// The longest between two times that it asks.
pub(crate) const LONGEST_APART: Duration = Duration::from_secs(10);
/// How long a process may take to say whom its rank waits for, and all those asked together.
pub(super) const ASK: Duration = Duration::from_millis(500);
const ASK_ALL: Duration = Duration::from_secs(2);
/// What a word takes to go round, and how often it is looked for.
const SLACK: Duration = Duration::from_millis(250);
const LOOK: Duration = Duration::from_millis(5);
/// How long, and how often, to wait for word of a peer that closes connections or does not listen.
const RETRY: Duration = Duration::from_millis(10);
const LAST_BREATHS: u32 = 20;
