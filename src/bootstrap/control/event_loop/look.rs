//! What the event loop does when something has happened at a source, by kind of source.

use super::{EventLoop, LAST_BREATHS, PATIENCE, REDIAL, REDIAL_CLOSED, RETURN};
use crate::{
    bootstrap::{
        control::{
            Key,
            member::{Attempts, Member, ended, longest_closed},
            place::{Heard, Places, State},
            poller::{Token, Wire},
            source::{Near, Source},
        },
        messages::{Answer, Comes, Elsewhere, Word},
        status,
    },
    net::{
        ALTERED, Address, Channel, CommId, DialError, Dialer, Dialing, Frame, FrameError, Greeter, Greeting,
        Hello, Kind, Packed, Parcel, Protection, Refused, Role, Secret,
    },
    sys::{poll::Ready, tcp},
    types::Cause,
};
use std::{
    collections::{HashMap, HashSet},
    io,
    net::IpAddr,
    time::Instant,
};
use tracing::debug;

impl EventLoop {
    /// Something has happened at a source.
    pub(super) fn look(&mut self, token: Token) {
        let next = match self.sources.take(token) {
            None => return, // closed since
            Some(Source::Stranger(greeter)) => self.look_at_stranger(token, greeter),
            Some(Source::Dialing { key, to, dialer }) => self.look_at_dialing(token, key, to, dialer),
            Some(Source::Joiner {
                comm,
                rank,
                introduced,
                wire,
            }) => self.look_at_joiner(comm, rank, introduced, wire),
            Some(Source::Link { key, from, wire }) => self.look_at_link(key, from, wire),
            Some(Source::Stream { key, from, wire }) => self.look_at_stream(key, from, wire),
            Some(Source::Alarm(key)) => self.members.get(&key).map(|member| {
                member.shared.wake();
                Source::Alarm(key)
            }),
            Some(Source::Edge { key, peer, wire }) => self.look_at_edge(key, peer, wire),
            Some(Source::Closing(wire)) => self.look_at_closing(wire),
            Some(Source::Process { pid, .. }) => {
                for (key, rank) in self.watches.ended(pid) {
                    self.stir(key, |member| member.view.lose(rank, ended(pid)));
                }
                None
            }
        };
        match next {
            Some(source) => self.sources.put(token, source),
            None => self.sources.close(token),
        }
    }

    fn look_at_stranger(&mut self, token: Token, greeter: Greeter) -> Option<Source> {
        self.obey(); // so that whoever enlisted before its peer could speak is known
        let (members, places, looking) = (&self.members, &mut self.places, &self.control.keys_for_looking);
        let secret = |hello: &Hello, kind| match hello.role {
            Role::Status => secret_for_looking(hello, kind, looking.get()),
            _ => secret_for(hello, kind, members, places),
        };
        match greeter.advance(secret) {
            Greeting::Waiting(greeter) => Some(Source::Stranger(greeter)),
            Greeting::Over => None,
            Greeting::Denied(hello, stream) => {
                self.places.denied(&hello, tcp::peer_address(&stream).ok());
                None
            }
            Greeting::Foreign(version, stream) => {
                self.places
                    .misunderstood(version, tcp::peer_address(&stream).ok());
                None
            }
            Greeting::Met(hello, channel) => self.welcome(token, &hello, channel),
        }
    }

    /// `hello` is proved.
    fn welcome(&mut self, token: Token, hello: &Hello, channel: Channel) -> Option<Source> {
        let wire = Wire::new(channel, token);
        let (comm, from) = (hello.comm, hello.from);
        let key = Key { comm, rank: hello.to };
        Some(match hello.role {
            // It has a deadline of its own, and does not come again: it may have been stopped, or this process, or wait for a processor.
            Role::Join => {
                self.sources.unlimit(token);
                Source::Joiner {
                    comm,
                    rank: from,
                    introduced: false,
                    wire,
                }
            }
            // These two still have to speak within the limit that they came with: they come again.
            Role::Link => Source::Link { key, from, wire },
            Role::Stream => Source::Stream { key, from, wire },
            Role::Control => self.connected(key, from, wire),
            Role::Ask => {
                let mut waits = self.members.get(&key)?.shared.waits();
                if waits.ranks.is_empty() {
                    waits.elsewhere = self.elsewhere(key.comm);
                }
                return self.finish(wire, Packed::message(&waits).ok()?);
            }
            Role::Status => {
                let connection = wire.into_connection(&self.poller)?;
                let insides = self.members.values().map(Member::seen).collect();
                self.looked_at.push((connection, insides));
                return None;
            }
        })
    }

    /// What this process waits in, in another communicator than `comm`. Where it is several ranks of one, as threads, it is not known
    /// which of them is the same in another.
    fn elsewhere(&self, comm: CommId) -> Option<Elsewhere> {
        let comms: HashSet<CommId> = self.members.keys().map(|key| key.comm).collect();
        if comms.len() < self.members.len() {
            return None;
        }
        let others = self.members.iter().filter(|(key, _)| key.comm != comm);
        let waits = others.filter_map(|(_, member)| member.shared.waits_elsewhere());
        waits.max_by_key(|waits| waits.still)
    }

    fn look_at_dialing(&mut self, token: Token, key: Key, to: Near, dialer: Dialer) -> Option<Source> {
        let (address, was_connecting) = (dialer.address(), dialer.is_connecting());
        match dialer.advance() {
            Ok(Dialing::Waiting(dialer)) => {
                let writes = dialer.waits_for() == Ready::Write;
                if let Err(e) = self.poller.set(&dialer, token, !writes, writes) {
                    self.not_connected(key, to, address, DialError::Io(e.into()));
                    return None;
                }
                if was_connecting && !dialer.is_connecting() {
                    self.sources.limit(token, Instant::now() + PATIENCE);
                }
                // A parent that has read the proof takes the connection for made, and its end for this rank's. Where its host is gone
                // the system ends it.
                if dialer.has_proved() && address.is_tcp() && matches!(to, Near::Parent(_)) {
                    self.sources.unlimit(token);
                }
                Some(Source::Dialing { key, to, dialer })
            }
            Ok(Dialing::Met(channel)) => match to {
                Near::Parent(parent) => {
                    // It may have waited for room to write until now.
                    if let Err(e) = self.poller.set(&channel, token, true, false) {
                        self.not_connected(key, to, address, DialError::Io(e.into()));
                        return None;
                    }
                    Some(self.connected(key, parent, Wire::new(channel, token)))
                }
                Near::Child(child) => {
                    self.stir(key, |member| {
                        member.found(child);
                        member.look_for_next(Instant::now());
                    });
                    None
                }
            },
            Err(e) => {
                self.not_connected(key, to, address, e);
                None
            }
        }
    }

    /// There is a new edge of the control tree.
    fn connected(&mut self, key: Key, peer: u32, wire: Wire) -> Source {
        let token = wire.token;
        self.sources.unlimit(token);
        let mut old = None;
        self.stir(key, |member| {
            if member.dialing == Some(token) {
                member.dialing = None;
                member.attempts = Attempts::default();
            }
            old = member.edges.insert(peer, token);
            member.missed.remove(&peer);
            member.found(peer);
            member.view.disconnect(peer);
            member.view.connect(peer);
        });
        if let Some(old) = old {
            self.sources.close(old);
        }
        Source::Edge { key, peer, wire }
    }

    /// Who was dialled did not answer at this address. Once none is left to try that says something of that rank.
    pub(super) fn not_connected(&mut self, key: Key, to: Near, address: Address, why: DialError) {
        let now = Instant::now();
        self.stir(key, |member| {
            let (rank, ranks) = (key.rank, member.shared.ranks);
            let (Near::Parent(peer) | Near::Child(peer)) = to;
            debug!(
                rank,
                ranks, "control: no connection to rank {peer} at {address}: {why}"
            );
            if let Near::Child(child) = to {
                return member.not_found(child, address, why, now);
            }
            member.dialing = None;
            let peer_of = (peer, member.addresses(peer).len());
            let Some(verdict) = member.attempts.failed(peer_of, address, why, now) else {
                return;
            };
            // The sockets of a process that ends are closed a little before its pidfd tells; that says more.
            let ending = matches!(verdict, DialError::Nobody)
                && member.watched.contains(&peer)
                && member.attempts.refusals < LAST_BREATHS;
            if let DialError::Exhausted(what) = &verdict
                && member.attempts.exhausted_for(PATIENCE, now)
            {
                let what = format!("it cannot connect to rank {peer}: {what}");
                let cause = Cause::Broken { rank, what };
                // Word of it may have no way to the others.
                member.shared.conclude(cause.clone());
                member.view.raise(cause);
            }
            let closed = match verdict {
                DialError::Nobody if !ending && member.is_nowhere(peer) => false,
                DialError::Nobody | DialError::Refused(_) => !ending,
                DialError::Busy | DialError::Exhausted(_) => false,
                DialError::Silent | DialError::Io(_) => {
                    let is_silent = verdict.is_of_the_way() && member.is_silent(peer);
                    is_silent || member.attempts.last_for(longest_closed(), now)
                }
            };
            let pause = match verdict {
                DialError::Silent | DialError::Io(_) | DialError::Exhausted(_) => REDIAL_CLOSED,
                _ => REDIAL,
            };
            match closed {
                true => {
                    let told = member.attempts.tell(&verdict);
                    match verdict.is_of_the_way() {
                        true => member.lose_silent(peer, told),
                        false => member.lose(peer, told),
                    }
                }
                false => member.redial_at = Some(now + pause),
            }
        });
    }

    fn look_at_joiner(
        &mut self,
        comm: CommId,
        rank: u32,
        introduced: bool,
        mut wire: Wire,
    ) -> Option<Source> {
        let read = wire.read();
        let comes = read.and_then(|frames| frames.first().map(Frame::message::<Comes>).transpose());
        let state = &mut self.places.get_mut(&comm)?.state;
        if let State::Failed { heard, .. } = state {
            heard.insert(rank, Heard::Why);
        }
        let (meeting, joiners) = match state {
            State::Open { meeting, joiners } => (meeting, joiners),
            State::Over(answer) | State::Failed { answer, .. } => {
                let answer = answer.clone();
                return self.finish(wire, answer);
            }
        };
        let fails = match &comes {
            Err(FrameError::Altered) => Some(format!("rank {rank} could not join: {ALTERED}")),
            Ok(Some(Comes::Fails(what))) if !introduced => Some(what.clone()),
            _ => None,
        };
        if let Some(what) = fails {
            joiners.retain(|&token| token != wire.token);
            meeting.fail(rank);
            let answer = Answer::Refused { late: false, what };
            self.answers.push((comm, answer.clone()));
            return self.finish(wire, Packed::message(&answer).ok()?);
        }
        let answer = match comes {
            Ok(None) => None,
            Ok(Some(Comes::Joins(join))) if !introduced => {
                joiners.push(wire.token);
                meeting.arrive(rank, *join, here(&wire.channel), Instant::now())
            }
            // It has gone, or speaks out of turn.
            _ => {
                joiners.retain(|&token| token != wire.token);
                let answer = if introduced { meeting.depart(rank) } else { None };
                self.answers.extend(answer.map(|answer| (comm, answer)));
                return None;
            }
        };
        let introduced = joiners.contains(&wire.token);
        self.answers.extend(answer.map(|answer| (comm, answer)));
        Some(Source::Joiner {
            comm,
            rank,
            introduced,
            wire,
        })
    }

    fn look_at_link(&mut self, key: Key, from: u32, mut wire: Wire) -> Option<Source> {
        let Some(parcel) = self.read_of(key, from, &mut wire)?.into_iter().next() else {
            return Some(Source::Link { key, from, wire });
        };
        let member = self.members.get(&key)?;
        let (welcome, shared) = (member.welcome.clone()?, member.shared.clone());
        let good = parcel.body.len() <= Parcel::MAX_BYTES;
        // A peer that does not get it comes once more, with another parcel.
        let answer = || self.say_last(wire, welcome).ok();
        good.then(|| shared.deliver(from, parcel, answer))??
    }

    /// What `from` says on a connection that it made; `None` at its end.
    fn read_of(&mut self, key: Key, from: u32, wire: &mut Wire) -> Option<Vec<Frame>> {
        let read = wire.read();
        match &read {
            Err(FrameError::Altered) => self.stir(key, |member| member.view.lose(from, ALTERED.to_owned())),
            Err(lacking @ FrameError::TooManyFds) => self.stir(key, |member| {
                let (rank, what) = (
                    key.rank,
                    format!("it cannot take in what rank {from} hands over: {lacking}"),
                );
                member.view.raise(Cause::Broken { rank, what });
            }),
            _ => {}
        }
        read.ok()
    }

    /// Hands the connection over to the rank, with what its peer says of it.
    fn look_at_stream(&mut self, key: Key, from: u32, mut wire: Wire) -> Option<Source> {
        let Some(about) = self.read_of(key, from, &mut wire)?.into_iter().next() else {
            return Some(Source::Stream { key, from, wire });
        };
        let shared = self.members.get(&key)?.shared.clone();
        // The peer sends nothing until it has this.
        wire.channel.post(Packed::parcel(Parcel::default()).ok()?);
        wire.pump(&self.poller).ok()?;
        let connection = wire.into_connection(&self.poller)?;
        if about.fds.is_empty() && about.body.len() <= Parcel::MAX_BYTES {
            let frame = Frame {
                fds: vec![connection.fd],
                guard: connection.guard,
                ..about
            };
            shared.deliver(from, frame, || Some(()));
        }
        None
    }

    fn look_at_edge(&mut self, key: Key, peer: u32, mut wire: Wire) -> Option<Source> {
        if !self.members.contains_key(&key) {
            return None;
        }
        let read = wire.read();
        let words: Result<Vec<Word>, _> = read.and_then(|frames| frames.iter().map(Frame::message).collect());
        let alive = words.is_ok();
        self.stir(key, |member| match words {
            Ok(words) => words.into_iter().for_each(|word| member.view.hear(peer, word)),
            Err(why) if member.edges.get(&peer) == Some(&wire.token) => {
                member.edges.remove(&peer);
                member.view.disconnect(peer);
                if let FrameError::Altered = why {
                    member.view.lose(peer, ALTERED.to_owned());
                } else if !member.watched.contains(&peer) {
                    match is_silence(&why) {
                        true => member.lose_silent(peer, how_ended(&why)),
                        false => member.lose(peer, how_ended(&why)),
                    }
                } else if member.view.wants() != Some(peer) {
                    // To a parent we go ourselves, and see what is there.
                    member.missed.insert(peer, Instant::now() + RETURN);
                }
            }
            Err(_) => (), // there is a newer one
        });
        alive.then_some(Source::Edge { key, peer, wire })
    }

    fn look_at_closing(&mut self, mut wire: Wire) -> Option<Source> {
        wire.read().ok()?;
        wire.pump(&self.poller).ok()?;
        wire.channel.unsent().then_some(Source::Closing(wire))
    }

    /// Sends the last message of a connection. What does not go at once must have gone soon, if the connection has a limit.
    pub(super) fn finish(&mut self, wire: Wire, last: Packed) -> Option<Source> {
        self.say_last(wire, last).ok()?
    }

    /// The same; an error where it does not go.
    fn say_last(&mut self, mut wire: Wire, last: Packed) -> Result<Option<Source>, FrameError> {
        wire.channel.post(last);
        wire.pump(&self.poller)?;
        if !wire.channel.unsent() {
            return Ok(None); // what was sent stays readable after the close
        }
        self.sources.renew(wire.token, Instant::now() + PATIENCE);
        Ok(Some(Source::Closing(wire)))
    }
}

/// Whether a connection ended because nothing came back from the other host any more; where something is under way the system says
/// what it has last heard of the way there.
fn is_silence(why: &FrameError) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkUnreachable, TimedOut};
    matches!(why, FrameError::Io(e) if [TimedOut, HostUnreachable, NetworkUnreachable].contains(&e.kind()))
}

/// How a control connection ended.
fn how_ended(why: &FrameError) -> String {
    match why {
        why if is_silence(why) => {
            format!("its host did not answer for {:.0?}", tcp::given_up_after())
        }
        FrameError::Io(e) => format!("its control connection ended: {e}"),
        _ => "its control connection ended".to_owned(),
    }
}

/// This host's address on a connection that came from another host. Who goes to an address of the loopback's, be it one that is
/// not his own (127.0.1.1), comes from this host.
fn here(channel: &Channel) -> Option<IpAddr> {
    let ours = tcp::local_address(channel).ok()?.ip();
    let theirs = tcp::peer_address(channel).ok()?.ip();
    (ours != theirs && !ours.is_loopback()).then_some(ours)
}

/// The secret that a stranger must prove to hold who wants to know how the communicators are doing. Who comes by the Unix socket is
/// known without; by TCP it takes what is made of the user's secret, and the answer is encrypted.
fn secret_for_looking(hello: &Hello, kind: Kind, keys: Option<&(CommId, Secret)>) -> Result<Secret, Refused> {
    let (known, wanted) = match kind {
        Kind::Unix => (Some(status::known_secret()), Protection::Off),
        Kind::Tcp => {
            let ours = keys.filter(|(comm, _)| *comm == hello.comm);
            (ours.map(|(_, secret)| secret.clone()), Protection::Encrypt)
        }
    };
    match known {
        Some(_) if hello.protection != wanted => Err(Refused::Protection),
        known => known.ok_or(Refused::Unknown),
    }
}

/// The secret that a stranger who says `hello` must prove to hold, if it wants something that there is.
///
/// How its connection is protected is a rank's own matter when it comes to a meeting, which compares that with the others'; from
/// then on it is what all ranks have.
fn secret_for(
    hello: &Hello,
    kind: Kind,
    members: &HashMap<Key, Member>,
    places: &mut Places,
) -> Result<Secret, Refused> {
    let (secret, protection) = if hello.role == Role::Join {
        (places.secret(hello), hello.protection)
    } else {
        let (comm, rank) = (hello.comm, hello.to);
        let member = members.get(&Key { comm, rank }).ok_or(Refused::Unknown)?;
        let fits = hello.from < member.shared.ranks && hello.from != rank;
        (fits.then(|| member.own.clone()), member.protection)
    };
    let secret = secret.ok_or(Refused::Unknown)?;
    let wanted = match kind {
        Kind::Unix => Protection::Off,
        Kind::Tcp => protection,
    };
    if hello.protection == wanted {
        Ok(secret)
    } else {
        Err(Refused::Protection)
    }
}
