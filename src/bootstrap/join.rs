//! [`join`]: a rank's way into a communicator.

use super::{
    MAX_TIMEOUT, UniqueId,
    control::{self, Command, Key},
    derive::Child,
    health::{Shared, Wake},
    membership::Membership,
    messages::{Answer, Comes, Join},
    rails::Roads,
    seat::{Host, Life, Seat, Table},
    unique_id::Owner,
};
use crate::{
    net::{
        Address, Channel, DialError, Failure, FrameError, MEETING, Packed, Parcel, Patience, Presence,
        Protection, Refused, Role, Target, Way, interfaces,
    },
    sys::{clock, host, tcp},
    topo::share::Allowance,
    types::{Error, check_rank},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};
use tracing::{debug, info};

/// What a rank brings.
pub(crate) struct Joining<'a> {
    pub(crate) id: &'a UniqueId,
    /// What it is made of, where that is another communicator.
    pub(crate) child: Option<&'a Child<'a>>,
    /// What its program calls the communicator.
    pub(crate) called: Option<&'a str>,
    /// How many ranks the communicator has.
    pub(crate) ranks: usize,
    /// Which of them this is.
    pub(crate) rank: usize,
    /// How long to wait for the others; also the first deadline for opening links.
    pub(crate) timeout: Duration,
    /// Settings, by name, that must have the same value on all ranks.
    pub(crate) knobs: Vec<(String, String)>,
    /// What all ranks get to know if this is rank 0: [`Membership::told`].
    pub(crate) told: Vec<u8>,
    /// Whether it has a wire of a plugin's: that is used if all have.
    pub(crate) has_wire: bool,
    /// What a peer gets that opens a link to this rank.
    pub(crate) welcome: Parcel,
    /// Whether this rank listens by TCP, for others that cannot share memory with it.
    pub(crate) network: Network,
    /// By which interfaces and ports it may then be reached.
    pub(crate) presence: Presence,
    /// What its connections by TCP are to be like. One of the settings, too.
    pub(crate) protection: Protection,
    /// How many ways to another host are used together, if that is said.
    pub(crate) rails: Option<usize>,
    /// Called on the control thread when something has changed. Must not block.
    pub(crate) wake: Wake,
    /// Becomes true when it goes to the others, who hear from then on what becomes of it. Who fails before [excuses](excuse) itself.
    pub(crate) went: &'a AtomicBool,
}

/// Whether a rank listens by TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    Never,
    /// If the id's owner does.
    AsTheId,
    Always,
}

/// Joins: blocks until all ranks have come to the meeting place of the id.
///
/// Peers may open links to this rank before the call returns, because they may have got the table earlier.
///
/// # Errors
/// [`Error::Invalid`] for impossible numbers; [`Error::InitTimeout`] when not all came in time, which names the
/// missing; [`Error::Init`] when the ranks do not fit together, one died, or the process of the meeting place is gone;
/// [`Error::System`].
pub(crate) fn join(joining: Joining<'_>) -> Result<Membership, Error> {
    let (rank, ranks) = numbers(joining.rank, joining.ranks)?;
    let timeout = joining.timeout.min(MAX_TIMEOUT);
    let (began, first) = (Instant::now(), clock::now());
    let deadline = began + timeout;
    let control = control::start()?;
    let (started, second) = (began.elapsed(), clock::now());
    let id = joining.id;
    let key = Key { comm: id.comm, rank };
    let welcome =
        Packed::parcel(joining.welcome).map_err(|e| Error::internal(format!("the welcome parcel: {e}")))?;
    let shared = Arc::new(Shared::new(
        control.clone(),
        key,
        ranks,
        joining.called,
        joining.wake,
    ));
    let life = Life::draw()?;
    control.post(Command::Enlist {
        shared: shared.clone(),
        secret: id.secret.clone(),
        own: life.secret(&id.secret)?,
        protection: joining.protection,
        welcome,
    })?;
    let listens = match joining.network {
        Network::Never => false,
        Network::AsTheId => id.is_open_to_networks(),
        Network::Always => true,
    };
    let mut fastest = None;
    let request = || {
        let (mut port, mut ways) = (None, Vec::new());
        if listens {
            let there = interfaces::here();
            ways = joining.presence.selection.ways(&there, Way::MOST)?;
            fastest = interfaces::fastest(&there);
            port = Some(control.listen_tcp(joining.presence.ports.as_ref(), |port| id.is_appointed(port))?);
            tell_interfaces(rank, ranks, &there, &ways);
        }
        Ok(Box::new(Join {
            ranks,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            knobs: joining.knobs,
            has_wire: joining.has_wire,
            seat: Seat {
                unix: control.address(),
                port,
                pid: host::pid(),
                pid_namespace: host::pid_namespace(),
                life,
            },
            host: Host::here(ways),
            allowance: Allowance::here(),
            told: joining.told,
            timeout,
            left: timeout,
        }))
    };
    debug!(
        rank,
        ranks,
        "init: going to the meeting of the ranks at {}",
        id.places()
    );
    let came = request().and_then(|request| {
        joining.went.store(true, Relaxed);
        meet(id, joining.child, &shared, joining.protection, deadline, request)
    });
    match came {
        Ok((table, [found, met])) => {
            let all = began.elapsed();
            info!(
                rank,
                ranks,
                "init: joined {ranks} ranks in {all:.1?} (control thread {started:.1?}, meeting place found {:.1?}, all ranks \
                 there {:.1?}, table read {:.1?})",
                (found - began).saturating_sub(started),
                met - found,
                (began + all).saturating_duration_since(met)
            );
            shared.recorder.init_part("control thread", first, second);
            shared.recorder.init_part("meeting", second, clock::now());
            let table = Arc::new(table);
            control.post(Command::Seat(key, table.clone()))?;
            let links = Roads::new(joining.rails, fastest);
            let keys = (id.secret.clone(), joining.protection);
            Ok(Membership::new(shared, keys, table, links, timeout))
        }
        Err(e) => {
            // If that fails the control thread has ended, and with it all that it held.
            let _ = control.post(Command::Forget(shared));
            Err(e)
        }
    }
}

/// Tells the meeting that a rank, this one of so many, will not come, and why, if it can be told soon: the others hear that at once, and
/// not at their deadline that it never came. What is wrong with arguments and settings its caller may put right, and come again.
pub(crate) fn excuse(
    id: &UniqueId,
    child: Option<&Child<'_>>,
    (rank, ranks): (usize, usize),
    protection: Protection,
    why: &Error,
) {
    let may_come = matches!(why, Error::Invalid { .. } | Error::Usage { .. });
    let (Ok((rank, ranks)), false) = (numbers(rank, ranks), may_come) else {
        return;
    };
    let stop = || child.is_some_and(Child::hopeless);
    let patience = Patience::new(Instant::now() + EXCUSE, &stop);
    let key = Key { comm: id.comm, rank };
    let tell = |mut channel: Channel| {
        let what = format!("rank {rank} on {} cannot join: {why}", host::name());
        patience.send(&mut channel, Packed::message(&Comes::Fails(what))?)?;
        patience.receive(&mut channel).map(drop)
    };
    let told = go_there((id, child.is_some()), (key, ranks), protection, &patience).and_then(tell);
    if let Err(failure) = told {
        debug!(
            rank,
            ranks, "init: the others do not hear why this rank fails: {failure}"
        );
    }
}

fn numbers(rank: usize, ranks: usize) -> Result<(u32, u32), Error> {
    check_rank(rank, ranks)?;
    Ok((rank as u32, ranks as u32))
}

/// Goes to the meeting place and waits for its answer, a little longer than the deadline, so that it is the meeting
/// place that says who is missing. Returns when it got there, and when the answer came, as well.
fn meet(
    id: &UniqueId,
    child: Option<&Child<'_>>,
    shared: &Shared,
    protection: Protection,
    deadline: Instant,
    mut request: Box<Join>,
) -> Result<(Table, [Instant; 2]), Error> {
    let stop = || shared.barred.get().is_some() || child.is_some_and(Child::hopeless);
    let patience = Patience::new(deadline + GRACE, &stop);
    let key = shared.key;
    let (ranks, timeout) = (request.ranks, request.timeout);
    let explain = |failure| match (shared.barred.get(), child.and_then(Child::obstacle)) {
        (Some(what), _) => Error::Init { what: what.clone() },
        (None, Some(what)) => Error::Init { what },
        (None, None) => explain(failure, id, key.rank, timeout, &patience.tried()),
    };
    let began = Instant::now();
    let (found, met, answer) = loop {
        let mut channel =
            go_there((id, child.is_some()), (key, ranks), protection, &patience).map_err(explain)?;
        let found = Instant::now();
        if request.seat.port.is_some()
            && request.host.ways.is_empty()
            && let Ok(ours) = tcp::local_address(&channel)
        {
            // Where the way from here to the meeting place begins is where others find the way back.
            request.host.ways.extend(Way::seen(ours.ip()));
        }
        // It is the meeting place that says who is missing.
        request.left = deadline.saturating_duration_since(found);
        let packed = Packed::message(&Comes::Joins(request.clone())).map_err(|e| explain(e.into()))?;
        patience.send(&mut channel, packed).map_err(explain)?;
        if let Some(child) = child {
            child.note_come();
        }
        let frame = patience.receive(&mut channel).map_err(explain)?;
        let met = Instant::now();
        let answer = frame.message().map_err(|e| explain(e.into()))?;
        match answer {
            // A job that was started anew may still have the rank 0 of its earlier life there.
            Answer::Spent
                if id.owner == Owner::AppointedRank0
                    && began.elapsed() < SPENT_FOR
                    && Instant::now() < deadline =>
            {
                thread::sleep(RETRY)
            }
            answer => break (found, met, answer),
        }
    };
    if let (Some(child), Answer::Table(_) | Answer::Spent) = (child, &answer) {
        child.note_made();
    }
    match answer {
        Answer::Table(table) if table.fits(ranks as usize) => Ok((table, [found, met])),
        Answer::Table(_) => Err(Error::internal("a table of seats of the wrong length")),
        Answer::Refused { late: true, what } => Err(Error::InitTimeout { what }),
        Answer::Refused { late: false, what } => Err(Error::Init { what }),
        Answer::Spent => Err(Error::Init {
            what: match child {
                None if id.owner == Owner::AppointedRank0 => {
                    "what answers there is another job, or the ranks have made other numbers of communicators: give each job a \
                     MASTER_PORT (or CCL_MASTER_PORT) of its own"
                }
                None => "this unique id has made its communicator already: get a new id for another one",
                Some(_) => "the others have made the communicator without this rank, of which they took it that it had come",
            }
            .to_owned(),
        }),
    }
}

/// Connects to the meeting place, as one of so many ranks. Where its owner may come late, it is awaited. Where the system says that there
/// is no way, that is taken for an outage as long as one may last, half the time at most. A host that was named is looked up again
/// meanwhile: what was said first may be where it was before, as long as a name server keeps what it knows.
fn go_there(
    (id, is_child): (&UniqueId, bool),
    (key, ranks): (Key, u32),
    protection: Protection,
    patience: &Patience<'_>,
) -> Result<Channel, Failure> {
    let mut target = Target {
        addresses: id.addresses.clone(),
        role: Role::Join,
        from: key.rank,
        to: MEETING,
        comm: key.comm,
        secret: id.secret.clone(),
        protection,
    };
    let (began, end) = (Instant::now(), patience.deadline - GRACE);
    let no_way = began + tcp::given_up_after().min(end.saturating_duration_since(began) / 2);
    let (mut pause, mut looked_up) = (FIRST_RETRY, began);
    loop {
        let until = id.host.as_ref().map(|_| looked_up + LOOKED_UP_APART);
        let until = until.filter(|&until| until < end);
        let is_early = |failure: &DialError| match failure {
            why if until.is_some() && why.may_pass() => true,
            DialError::Io(_) | DialError::Refused(Refused::Unknown) if id.owner.may_be_late() => true,
            why if why.is_of_the_way() => Instant::now() < no_way,
            // A rank of a parent listens for as long as it lives. Others of the parent are about to hear that it does not.
            DialError::Nobody => id.owner == Owner::AppointedRank0 || is_child,
            _ => false,
        };
        match patience.dial_until(&target, until) {
            Err(Failure::Dial(failure))
                if is_early(&failure) && Instant::now() < end && !(patience.stop)() =>
            {
                if pause == FIRST_RETRY && failure.is_of_the_way() {
                    let (rank, place) = (key.rank, id.places());
                    info!(rank, ranks, "init: no way to {place} yet: {failure}");
                }
                thread::sleep(own_part(pause, key.rank).min(end.saturating_duration_since(Instant::now())));
                pause = longest_pause(ranks).min(2 * pause);
                if let (Some(host), Some(until)) = (&id.host, until)
                    && Instant::now() >= until
                {
                    looked_up = Instant::now();
                    let found = host.look_up(end).into_iter().flatten().map(Address::Tcp);
                    let found: Vec<Address> = found.collect();
                    if found.iter().any(|at| !target.addresses.contains(at)) {
                        info!(
                            rank = key.rank,
                            ranks, "init: rank 0's host has other addresses now: {found:?}"
                        );
                        target.addresses = found;
                    }
                }
            }
            // It was about to be looked up again.
            Err(Failure::Dial(why)) if until.is_some() && why.may_pass() => {
                return Err(match (patience.stop)() {
                    true => Failure::Stopped,
                    false => Failure::Late,
                });
            }
            done => return done,
        }
    }
}

/// How long the addresses of a host are taken for its own while nobody answers there.
const LOOKED_UP_APART: Duration = Duration::from_secs(5);

/// How long one of so many ranks leaves a place alone, in the end, where nobody listens yet: together they knock no more often than
/// 10,000 times a second, as far as that leaves none of them waiting for long.
fn longest_pause(ranks: u32) -> Duration {
    (ranks * ONE_KNOCK).clamp(RETRY, LONGEST_RETRY)
}

/// What a rank makes of a pause that all have, so that those that came together do not come together for ever.
fn own_part(pause: Duration, rank: u32) -> Duration {
    pause - pause / 2 * (rank % 64) / 64
}

/// `tried`: the addresses of the network that led nowhere, and why.
fn explain(failure: Failure, id: &UniqueId, rank: u32, timeout: Duration, tried: &str) -> Error {
    let (waited, place) = (timeout.as_secs_f64(), id.places());
    let tried = match tried {
        "" => String::new(),
        tried => format!("; tried from {}: {tried}", host::name()),
    };
    let owner = match id.owner.is_rank_0() {
        true => "rank 0",
        false => "the process that made the unique id",
    };
    let what = match failure {
        Failure::Late | Failure::Stopped => {
            return Error::InitTimeout {
                what: format!(
                    "init timed out after {waited:.1} s on rank {rank}: {owner}, at {place}, does not answer{tried}"
                ),
            };
        }
        Failure::Dial(DialError::Refused(Refused::Unknown)) if id.owner == Owner::DerivedRank0 => {
            return Error::InitTimeout {
                what: format!(
                    "init timed out after {waited:.1} s on rank {rank}: rank 0 never came to {place} to meet the others{tried}"
                ),
            };
        }
        Failure::Dial(DialError::Nobody | DialError::Refused(Refused::Unknown))
            if id.owner == Owner::AppointedRank0 =>
        {
            return Error::InitTimeout {
                what: format!(
                    "init timed out after {waited:.1} s on rank {rank}: rank 0 never came to {place}: see to it that \
                     rank 0 runs there, that MASTER_ADDR (or CCL_MASTER_ADDR) is its host on all ranks, written in \
                     the same way, as the port is, and that no firewall closes the port{tried}"
                ),
            };
        }
        Failure::Dial(DialError::Nobody) if id.owner.is_rank_0() => {
            let apart = match tried.as_str() {
                "" if id.owner == Owner::DerivedRank0 => {
                    ": new ranks on other hosts need a parent whose ranks listen at a network"
                }
                _ => "",
            };
            format!("rank 0 ended before all ranks had joined (nobody listens at {place} any more{apart}){tried}")
        }
        Failure::Dial(DialError::Nobody) => format!(
            "the process that made the unique id has ended (nobody listens at {place}): it must live until all \
             ranks have joined, and ranks of other hosts need a network between them{tried}"
        ),
        Failure::Dial(DialError::Refused(Refused::Unknown)) if id.owner.is_rank_0() => {
            format!("rank 0, at {place}, has given up, or rank {rank} came twice: look at rank 0's error")
        }
        Failure::Dial(DialError::Refused(Refused::Unknown)) => {
            "the process that made the unique id does not know it any more: an id makes one communicator, so get a \
             new one"
                .to_owned()
        }
        Failure::Dial(DialError::Refused(Refused::ProofRejected | Refused::WrongProof))
            if id.owner != Owner::DerivedRank0 =>
        {
            match id.owner.may_be_late() {
                true => format!(
                    "rank {rank} and rank 0 (at {place}) have different secrets: give all ranks the same CCL_SECRET_FILE \
                     or CCL_SECRET"
                ),
                false => "the secret in the unique id is wrong: pass its 128 bytes unchanged".to_owned(),
            }
        }
        Failure::Frame(FrameError::Closed) if id.addresses.iter().all(Address::is_tcp) => format!(
            "{owner} ended before all ranks had joined, or what is longer than a packet does not get through (compare the MTU of the \
             hosts' interfaces and of what lies between them)"
        ),
        Failure::Frame(FrameError::Closed) => format!("{owner} ended before all ranks had joined"),
        other => format!("rank {rank} cannot join at {place}: {other}{tried}"),
    };
    Error::Init { what }
}

/// Tells the interfaces that there are, and which of their addresses others are told.
fn tell_interfaces(rank: u32, ranks: u32, there: &[interfaces::Interface], ways: &[Way]) {
    let told: Vec<String> = ways.iter().map(|way| way.ip().to_string()).collect();
    let told = match told[..] {
        [] => "none".to_owned(),
        _ => told.join(", "),
    };
    info!(
        rank,
        ranks,
        "init: interfaces: {}; addresses for other hosts, the best first: {told}",
        interfaces::list(there)
    );
}

/// How much longer than its deadline a rank waits for the meeting place to say who is missing.
const GRACE: Duration = Duration::from_millis(500);
/// How long a meeting of that name may be over before that is told: longer than the next rank 0 waits for the place.
const SPENT_FOR: Duration = Duration::from_millis(2500);
/// How long a rank that cannot join tries to say so, where nobody answers.
const EXCUSE: Duration = Duration::from_secs(2);
/// How long to leave a place alone where nobody listens yet: at first, in the end, and at most where ranks are many.
const FIRST_RETRY: Duration = Duration::from_micros(500);
const RETRY: Duration = Duration::from_millis(20);
const LONGEST_RETRY: Duration = Duration::from_millis(500);
/// How much time there is for each of the knocks of all ranks.
const ONE_KNOCK: Duration = Duration::from_micros(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_ranks_knock_more_seldom_and_not_together() {
        let millis = |ranks| longest_pause(ranks).as_millis();
        assert_eq!(
            [1, 2, 200, 400, 4096, u32::MAX].map(millis),
            [20, 20, 20, 40, 409, 500]
        );
        let parts = [0, 1, 32, 63, 64].map(|rank| own_part(RETRY, rank));
        assert_eq!((parts[0], parts[4]), (RETRY, RETRY));
        assert!(parts[..4].is_sorted_by(|one, next| one > next) && parts[3] > RETRY / 2);
        assert_eq!(own_part(FIRST_RETRY, 0), FIRST_RETRY);
    }
}
