//! [`EventLoop`]: what the control thread does. It owns all bootstrap sockets and sleeps until one of them, the bell or
//! a deadline wakes it.

mod look;

use super::{
    super::{
        messages::Answer,
        status::{self, Inside},
        view::Effect,
    },
    Command, Control, Key, hush,
    member::{Member, ended},
    place::Places,
    poller::{AT_ONCE, Poller, Token},
    ring,
    source::{Near, Source, Sources},
    watch::{Watched, Watches},
};
use crate::{
    net::{Address, CommId, Connection, DialError, Dialer, Greeter, Kind, Packed, SILENCE, Target},
    record::trace,
    sys::{
        fork::{self, ProcessFd},
        poll::{self, Ready},
        socket, thread,
    },
    types::{Cause, Error},
};
use rustix::{
    event::{EventfdFlags, eventfd},
    io::Errno,
};
use std::{
    collections::{HashMap, hash_map::Entry},
    convert::Infallible,
    mem,
    os::fd::AsFd,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::Ordering::{Acquire, Relaxed},
    },
    time::{Duration, Instant},
};
use tracing::info;

/// See the module's text.
pub(super) struct EventLoop {
    control: Arc<Control>,
    poller: Poller,
    /// What the poller saw.
    ready: Vec<Token>,
    bell: Token,
    listeners: Vec<Listener>,
    /// Whether the poller waits for connections; not while there are too many strangers, or no descriptors.
    listening: bool,
    /// No descriptors were left: until when to leave the listener alone.
    rest_until: Option<Instant>,
    /// Since when the system has let no connection in, and why, the last time.
    refused: Option<(Instant, Errno)>,
    /// A descriptor in reserve for when the program has used up all others: so that who asks this rank what it does is answered, and
    /// word of it gets out.
    spare: Option<ProcessFd>,
    sources: Sources,
    places: Places,
    members: HashMap<Key, Member>,
    watches: Watches,
    /// Members in whose view something happened.
    stirred: Vec<Key>,
    /// Meetings that have ended.
    answers: Vec<(CommId, Answer)>,
    goodbye: Goodbye,
    /// Those that want to know how the communicators are doing.
    looked_at: Vec<(Connection, Vec<Inside>)>,
}

/// A socket that connections come in by.
struct Listener {
    fd: ProcessFd,
    token: Token,
    kind: Kind,
}

/// How far the end of the process has got.
#[derive(PartialEq, Eq)]
enum Goodbye {
    NotYet,
    Begun,
    Said,
}

impl EventLoop {
    pub(super) fn new(control: Arc<Control>, listener: ProcessFd) -> Result<Self, Error> {
        let problem = |e| Error::system("cannot wait for events", e);
        let mut poller = Poller::new(control.epoll.clone());
        let bell = poller.add(&control.bell).map_err(problem)?;
        let token = poller.add(&listener).map_err(problem)?;
        Ok(EventLoop {
            control,
            poller,
            ready: Vec::with_capacity(AT_ONCE),
            bell,
            listeners: vec![Listener {
                fd: listener,
                token,
                kind: Kind::Unix,
            }],
            listening: true,
            rest_until: None,
            refused: None,
            spare: spare(),
            sources: Sources::default(),
            places: Places::default(),
            members: HashMap::new(),
            watches: Watches::default(),
            stirred: Vec::new(),
            answers: Vec::new(),
            goodbye: Goodbye::NotYet,
            looked_at: Vec::new(),
        })
    }

    /// Runs until the process ends. If it cannot go on, all communicators of the process learn why.
    pub(super) fn run(&mut self) {
        thread::stays();
        let what = match catch_unwind(AssertUnwindSafe(|| self.serve())) {
            Ok(Err(e)) => format!("its control thread ended: {e}"),
            Err(_) => "its control thread panicked".to_owned(),
        };
        self.control.close();
        for (key, member) in &self.members {
            member.shared.conclude(Cause::Broken {
                rank: key.rank,
                what: what.clone(),
            });
            member.shared.settled();
        }
    }

    fn serve(&mut self) -> Result<Infallible, Error> {
        let mut heed_program = Some(Instant::now() + HEED_PROGRAM);
        loop {
            let wakeup = self.next_wakeup().into_iter().chain(heed_program).min();
            let limit = wakeup.map(|at| at.saturating_duration_since(Instant::now()));
            let waited = self.poller.wait(limit, &mut self.ready);
            waited.map_err(|e| Error::system("epoll failed", e))?;
            // A child that was forked in the middle would have what only this thread's stack knows, as a leak, and the
            // locks that it held, such as those of memory allocators that know nothing of forks.
            fork::gated(|| self.pass());
            // Asking others takes a while, and this thread does not wait. A thread is not begun within the gate: it has to pass it.
            for (connection, insides) in mem::take(&mut self.looked_at) {
                status::answer(connection, insides);
            }
            if heed_program.is_some_and(|at| Instant::now() >= at) {
                heed_program = Some(Instant::now() + HEED_PROGRAM);
                trace::flush();
                // This thread takes no signals: without an end of its own such a process would be there for ever.
                if fork::gated(thread::are_alone) && thread::end_process().is_ok() {
                    info!("all threads of the program have ended, and so does the process");
                    heed_program = None;
                }
            }
        }
    }

    /// Sees to what has happened. Never blocks.
    fn pass(&mut self) {
        let mut ready = mem::take(&mut self.ready);
        // First what processes said, then that they have ended: the last word may have been a goodbye.
        ready.sort_by_key(|&token| self.sources.is_process(token));
        self.obey();
        let mut knocked = !self.listening;
        for &token in &ready {
            if token == self.bell {
                hush(&self.control.bell);
                self.obey();
            } else if self.listeners.iter().any(|listener| listener.token == token) {
                knocked = true;
            } else {
                self.look(token);
            }
        }
        self.ready = ready;
        if self.spare.is_none() {
            self.spare = spare();
        }
        let now = Instant::now();
        self.keep_time(now);
        self.tidy(now);
        if knocked {
            self.admit(now);
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let crowded = (!self.listening && self.rest_until.is_none())
            .then(|| self.sources.oldest_stranger())
            .flatten()
            .map(|(_, since)| since + CROWDED);
        let redial = self.members.values().filter_map(|m| m.redial_at).min();
        let missed = self.members.values().flat_map(|m| m.missed.values()).min();
        let looks = self.members.values().filter_map(|m| m.look.as_ref());
        let look = looks.filter(|look| look.dialing.is_none()).map(|look| look.at);
        let times = [
            self.sources.next_limit(),
            self.places.next_deadline(),
            self.rest_until,
            crowded,
            redial,
            look.min(),
            missed.copied(),
        ];
        times.into_iter().flatten().min()
    }

    /// Does what other threads have asked for.
    fn obey(&mut self) {
        // Read first, so that whoever was enlisted before the end of the process is known when it is dealt with.
        let goodbye = self.control.goodbye.load(Acquire);
        for command in self.control.take() {
            match command {
                Command::Meet { comm, secret, again } => {
                    self.answer(); // which may be to an earlier meeting of that name
                    self.places.open(comm, secret, again);
                }
                Command::Adjourn { comm, why } => self.answers.push((
                    comm,
                    Answer::Refused {
                        late: false,
                        what: why,
                    },
                )),
                Command::Enlist {
                    shared,
                    secret,
                    own,
                    protection,
                    welcome,
                } => {
                    // A rank number that is taken in this process stays who it was; the meeting refuses the second.
                    match self.members.entry(shared.key) {
                        Entry::Occupied(_) => _ = self.control.members.fetch_sub(1, Relaxed),
                        Entry::Vacant(place) => {
                            place.insert(Member::new(shared, [secret, own], protection, welcome));
                        }
                    }
                }
                Command::Forget(shared) => {
                    let ours = self.members.get(&shared.key);
                    if ours.is_some_and(|member| Arc::ptr_eq(&member.shared, &shared)) {
                        self.dismiss(shared.key);
                    }
                }
                Command::Seat(key, table) => {
                    self.stir(key, |member| {
                        member.table = Some(table);
                        member.seated = Some(Instant::now());
                    });
                }
                Command::Raise(key, cause) => self.stir(key, |member| member.view.raise(cause)),
                Command::Lose(key, rank, how) => self.stir(key, |member| member.view.lose(rank, how)),
                Command::Leave(key, made) => self.stir(key, |member| member.leave(made)),
                Command::Listen(listener) => self.listen(listener),
                Command::Alarm(key, token) => {
                    if let Some(member) = self.members.get_mut(&key) {
                        member.alarm = Some(token);
                        self.sources.put(token, Source::Alarm(key));
                    }
                }
            }
        }
        if goodbye && self.goodbye == Goodbye::NotYet {
            self.goodbye = Goodbye::Begun;
            self.members.values_mut().for_each(|member| member.leave(None));
            self.stirred.extend(self.members.keys());
        }
    }

    /// Does something to a member, and sees to the consequences before the next sleep.
    fn stir(&mut self, key: Key, act: impl FnOnce(&mut Member)) {
        if let Some(member) = self.members.get_mut(&key) {
            act(member);
            self.stirred.push(key);
        }
    }

    /// Watches the processes of those peers of a member that it is to watch, and that are not watched yet.
    fn watch_peers(&mut self, key: Key) {
        let peers = self.members.get(&key).map(Member::to_watch).unwrap_or_default();
        for (rank, pid) in peers {
            let watched = self
                .watches
                .add(pid, key, rank, &mut self.poller, &mut self.sources);
            self.stir(key, |member| match watched {
                Watched::Yes => _ = member.watched.insert(rank),
                Watched::Ended => member.view.lose(rank, ended(pid)),
                Watched::Impossible => (),
            });
        }
    }

    /// Sees to everything whose time has come.
    fn keep_time(&mut self, now: Instant) {
        for token in self.sources.late(now) {
            if let Some(Source::Dialing { key, to, dialer }) = self.sources.take(token) {
                let why = match dialer.is_connecting() {
                    true => DialError::Silent,
                    false => DialError::Busy,
                };
                self.not_connected(key, to, dialer.address(), why);
            }
            self.sources.close(token);
        }
        self.answer(); // the last rank may have come just now
        self.answers
            .extend(self.places.expired(now, self.closed().as_deref()));
        for (key, member) in &mut self.members {
            if member.redial_at.is_some_and(|at| at <= now) {
                member.redial_at = None;
                self.stirred.push(*key);
            }
            if member.look.as_ref().is_some_and(|look| look.is_due(now)) {
                self.stirred.push(*key);
            }
            if member.lose_missed(now) {
                self.stirred.push(*key);
            }
        }
    }

    /// Ends the meetings to which there is an answer.
    fn answer(&mut self) {
        for (comm, answer) in mem::take(&mut self.answers) {
            let Some((packed, mut joiners)) = self.places.close(comm, &answer) else {
                continue;
            };
            // This process's own ranks last: with their error it may end, and the others would be told no more than that.
            let is_own = |key: Key| self.members.contains_key(&key);
            joiners.sort_by_key(|&token| self.sources.joiner(token).is_some_and(is_own));
            for token in joiners {
                if let Some(Source::Joiner { wire, .. }) = self.sources.take(token)
                    && let Some(source) = self.finish(wire, packed.clone())
                {
                    self.sources.put(token, source);
                }
            }
        }
    }

    /// Sees to the consequences of all that has happened.
    fn tidy(&mut self, now: Instant) {
        self.answer();
        while let Some(key) = self.stirred.pop() {
            self.tend(key, now);
        }
        let said = |m: &Member| m.view.settled() && flushed(m, &self.sources);
        if self.goodbye == Goodbye::Begun && self.members.values().all(said) {
            self.goodbye = Goodbye::Said;
            ring(&self.control.said);
        }
    }

    /// Does what a member's view asks for.
    fn tend(&mut self, key: Key, now: Instant) {
        let Some(member) = self.members.get_mut(&key) else {
            return;
        };
        if member.table.is_some() && member.view.has_moved() {
            self.watch_peers(key);
        }
        let Some(member) = self.members.get_mut(&key) else {
            return;
        };
        if let Some(since) = member.seated.take_if(|_| member.view.is_woven()) {
            let (rank, ranks, took) = (key.rank, member.shared.ranks, since.elapsed());
            let (near, watched) = (member.edges.len(), member.watched.len());
            info!(
                rank,
                ranks,
                "init: connected with {near} neighbours in the control tree in {took:.1?}; {watched} ranks are watched"
            );
        }
        for effect in member.view.effects() {
            match effect {
                Effect::Send(peer, word) => {
                    let wire = member.edges.get(&peer).and_then(|&t| self.sources.edge(t));
                    if let (Some(wire), Ok(packed)) = (wire, Packed::message(&word)) {
                        wire.channel.post(packed);
                    }
                }
                Effect::Died(rank, how) => member.shared.died(rank, how),
                Effect::Left(rank, made) => member.shared.departed(rank, made),
                Effect::Verdict(cause) => member.shared.conclude(cause),
            }
        }
        for &token in member.edges.values() {
            // A broken edge is not closed here: what its peer said before is still to be read, and then the end.
            self.sources.edge(token).map(|wire| wire.pump(&self.poller));
        }
        let flushed = flushed(member, &self.sources);
        if member.leaving && member.view.settled() && flushed {
            member.shared.settled();
        }
        member.heed_children(now);
        if member.view.finished() && flushed {
            return self.dismiss(key);
        }
        let (parent, child) = (member.to_dial(now), member.whom_to_look_for(now));
        if let Some((target, address)) = parent {
            self.dial(key, Near::Parent(target.to), &target, address);
        }
        if let Some((target, address)) = child {
            self.dial(key, Near::Child(target.to), &target, address);
        }
    }

    fn dial(&mut self, key: Key, to: Near, target: &Target, address: Address) {
        let begun = match Dialer::begin(target, address, None) {
            Err(DialError::Exhausted(_)) if self.spare.take().is_some() => {
                Dialer::begin(target, address, None)
            }
            begun => begun,
        };
        let begun = begun.and_then(|dialer| {
            let token = self.poller.add_for(&dialer, dialer.waits_for());
            Ok((dialer, token.map_err(std::io::Error::from)?))
        });
        match begun {
            Ok((dialer, token)) => {
                let patience = if dialer.is_connecting() { SILENCE } else { PATIENCE };
                self.sources.limit(token, Instant::now() + patience);
                self.sources.put(token, Source::Dialing { key, to, dialer });
                self.stir(key, |member| match (to, &mut member.look) {
                    (Near::Parent(_), _) => member.dialing = Some(token),
                    (Near::Child(_), Some(look)) => look.dialing = Some(token),
                    (Near::Child(_), None) => {}
                });
            }
            Err(e) => self.not_connected(key, to, address, e),
        }
    }

    /// Forgets a member.
    fn dismiss(&mut self, key: Key) {
        if let Some(member) = self.members.remove(&key) {
            self.control.members.fetch_sub(1, Relaxed);
            let looks = member.look.iter().flat_map(|look| &look.dialing);
            let dialing = member.dialing.iter().chain(looks);
            let tokens = member.edges.values().chain(dialing).chain(&member.alarm);
            tokens.for_each(|&token| self.sources.close(token));
            self.watches.forget(key, &mut self.sources);
        }
    }

    /// Lets connections in by one more socket.
    fn listen(&mut self, fd: ProcessFd) {
        // Without room in the poller nobody gets in by it, and ranks that need it say so past their deadlines.
        let Ok(token) = self.poller.add(&fd) else { return };
        if self.listening || self.poller.set(&fd, token, false, false).is_ok() {
            let kind = Kind::Tcp;
            self.listeners.push(Listener { fd, token, kind });
        }
    }

    /// Lets connections in, as long as there is room for strangers. When there is none, the oldest stranger has to go
    /// once it has had [`CROWDED`]; until then the others wait in the listeners' queues. So do those for whom there is no end.
    fn admit(&mut self, now: Instant) {
        self.rest_until = self.rest_until.filter(|&until| until > now);
        let mut crowded = false;
        for _ in 0..MAX_STRANGERS {
            if self.rest_until.is_some() {
                break;
            }
            let oldest = self.sources.oldest_stranger();
            let oldest = oldest.filter(|_| self.sources.strangers() >= MAX_STRANGERS);
            crowded = oldest.is_some_and(|(_, since)| since + CROWDED > now);
            if crowded {
                break;
            }
            match self.accept() {
                Ok(None) => {
                    self.refused = None;
                    break;
                }
                Ok(Some((stream, kind))) => {
                    self.refused = None;
                    if let Some((token, _)) = oldest {
                        self.sources.close(token);
                    }
                    self.greet(stream, kind, now);
                }
                Err(e) => {
                    self.rest_until = Some(now + REST);
                    self.refused(e, now);
                }
            }
        }
        let listening = !crowded && self.rest_until.is_none();
        let set = |l: &Listener| self.poller.set(&l.fd, l.token, listening, false).is_ok();
        if listening != self.listening && self.listeners.iter().all(set) {
            self.listening = listening;
        }
    }

    /// The system does not let a connection in. If that lasts, ranks that need one would wait in vain, and others be blamed.
    fn refused(&mut self, why: Errno, now: Instant) {
        let since = self.refused.map_or(now, |(since, _)| since);
        self.refused = Some((since, why));
        let Some(what) = self.closed().filter(|_| since + PATIENCE <= now) else {
            return;
        };
        for (key, member) in &mut self.members {
            let (rank, what) = (key.rank, what.clone());
            if member.table.is_some() {
                member.view.raise(Cause::Broken { rank, what });
                self.stirred.push(*key);
            } else {
                // Whom it waits for may be one that is not let in.
                let _ = member.shared.barred.set(format!("rank {rank} failed: {what}"));
            }
        }
        let what = format!("the process where the ranks meet failed: {what}");
        let refusal = Answer::Refused { late: false, what };
        let open = self.places.under_way().map(|comm| (comm, refusal.clone()));
        self.answers.extend(open);
    }

    /// Why no connection is let in, if that is so.
    fn closed(&self) -> Option<String> {
        let (_, why) = self.refused?;
        let hint = if why == Errno::MFILE {
            " (see ulimit -n)"
        } else {
            ""
        };
        Some(format!(
            "it cannot take connections in: {}{hint}",
            std::io::Error::from(why)
        ))
    }

    /// The next connection, of each listener in turn. Without descriptors one of them gets in by the spare one.
    fn accept(&mut self) -> Result<Option<(ProcessFd, Kind)>, Errno> {
        for at in 0..self.listeners.len() {
            let fd = &self.listeners[at].fd;
            let accepted = match socket::accept(fd) {
                // The system says so before it looks whether anybody is there. (It may refuse even to look.)
                Err(Errno::MFILE | Errno::NFILE)
                    if poll::wait(fd.as_fd(), Ready::Read, Duration::ZERO) == Ok(false) =>
                {
                    None
                }
                Err(Errno::MFILE | Errno::NFILE) if self.spare.take().is_some() => socket::accept(fd)?,
                other => other?,
            };
            if let Some(stream) = accepted {
                let kind = self.listeners[at].kind;
                self.listeners[at..].rotate_left(1); // a flood at one does not keep the others waiting
                return Ok(Some((stream, kind)));
            }
        }
        Ok(None)
    }

    fn greet(&mut self, stream: ProcessFd, kind: Kind, now: Instant) {
        if let Some(greeter) = Greeter::new(stream, kind, now)
            && let Ok(token) = self.poller.add(&greeter)
        {
            self.sources.limit(token, now + PATIENCE);
            self.sources.put(token, Source::Stranger(greeter));
        }
    }
}

/// A descriptor that is good for nothing but being closed; `None` if there is none left.
fn spare() -> Option<ProcessFd> {
    ProcessFd::open(|| eventfd(0, EventfdFlags::CLOEXEC)).ok()
}

/// Whether everything that a member had to say has been sent.
fn flushed(member: &Member, sources: &Sources) -> bool {
    let unsent = |&token: &Token| sources.unsent(token);
    !member.edges.values().any(unsent)
}

/// Connections that have not proved themselves, at most.
const MAX_STRANGERS: usize = 64;
/// How long a connection may take to prove itself. How long one that did may take to say its first word, or to take our last one,
/// where it is not a rank's at a meeting.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a stranger may stay when there is no room for others.
const CROWDED: Duration = Duration::from_millis(250);
/// How long to leave a parent alone that had no room for us.
const REDIAL: Duration = Duration::from_millis(20);
/// How long to leave one alone to which all ways are closed.
const REDIAL_CLOSED: Duration = Duration::from_millis(250);
/// How long a watched process may go on without its connection to us.
const RETURN: Duration = Duration::from_millis(500);
/// After how many refusals a process that nobody has seen ending counts as gone.
const LAST_BREATHS: u32 = 10;
/// How often to see whether the program still has threads.
const HEED_PROGRAM: Duration = Duration::from_secs(5);
/// How long to leave the listener alone when there are no descriptors.
const REST: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::{
        super::{place::State, poller::Wire},
        *,
    };
    use crate::{
        bootstrap::{MAX_TIMEOUT, meeting::tests::join},
        net::{Channel, Secret},
    };

    /// The thread was kept from looking until then.
    #[test]
    fn a_rank_that_comes_with_the_deadline_has_come() {
        let (address, listener) = Address::listen().unwrap();
        let theirs = address.dial(None).unwrap();
        let ours = socket::accept(&listener).unwrap().unwrap();
        let channel = |fd| Channel::new(Connection { fd, guard: None });
        let control = Control::new(address).unwrap();
        let mut event_loop = EventLoop::new(control, listener).unwrap();
        let (comm, now) = ([7; 16], Instant::now());
        event_loop.places.open(comm, Secret::new(&[1; 32]), false);
        let token = event_loop.poller.add(&ours).unwrap();
        let State::Open { meeting, joiners } = &mut event_loop.places.get_mut(&comm).unwrap().state else {
            panic!("it is over")
        };
        joiners.push(token);
        let answer = meeting.arrive(0, join(1, 1), None, now).unwrap();
        event_loop.answers.push((comm, answer));
        let wire = Wire::new(channel(ours), token);
        let joiner = Source::Joiner {
            comm,
            rank: 0,
            introduced: true,
            wire,
        };
        event_loop.sources.put(token, joiner);
        let late = now + MAX_TIMEOUT;
        event_loop.keep_time(late);
        event_loop.tidy(late);
        let mut theirs = channel(theirs);
        theirs.fill().unwrap();
        let answer = theirs.next().unwrap().unwrap().message().unwrap();
        assert!(matches!(answer, Answer::Table(_)), "{answer:?}");
    }
}
