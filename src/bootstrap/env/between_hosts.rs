//! Ranks on several hosts: what they need to know to meet over the network, and the meeting.

use super::{
    Launch, Turn,
    carrier::{self, Card, Delivery},
    launcher::Launcher,
    once_free,
    secret::{self, UserSecret},
};
use crate::{
    bootstrap::UniqueId,
    net::{CommId, Secret},
    sys::{environment, names, tcp, thread::aside},
    types::{Error, Result},
};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::{
    io,
    net::{IpAddr, SocketAddr},
    thread,
    time::{Duration, Instant},
};
use tracing::warn;
use zeroize::Zeroizing;

/// Where and by what keys the ranks of a job meet in a turn: the same on all hosts but for the rank.
#[derive(Debug)]
pub(super) struct Appointment {
    pub(super) place: Place,
    pub(super) rank: usize,
    /// Whether rank 0's host may have no address yet.
    pub(super) host_may_be_late: bool,
    pub(super) comm: CommId,
    pub(super) secret: Secret,
}

/// Where rank 0 listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// At a port of a host that all ranks were told.
    Named { host: String, port: u16 },
    /// Where it said itself, by the launcher's carrier.
    Carried(Vec<SocketAddr>),
}

impl Appointment {
    /// What the launcher carries, else what the variables say, with the user's secret in both cases if there is one.
    ///
    /// # Errors
    /// [`Error::Usage`] with what to set when there is no secret, address or port, or a secret on some ranks only;
    /// [`Error::InitTimeout`] when the launcher carried nothing in time.
    pub(super) fn new(launch: &Launch, turn: Turn, timeout: Duration) -> Result<Appointment> {
        let given = secret::given()?;
        match carrier::card(launch, turn, given.is_some(), timeout)? {
            Delivery::Card(card) => Self::carried(launch, turn, &card, given.as_ref()),
            Delivery::NoCarrier => Self::told(launch, turn),
            Delivery::Unable(why) => Self::told(launch, turn).map_err(|error| match error {
                Error::Usage { what } => Error::usage(format!(
                    "{what}\nThe launcher might have carried address and secret, but could not {why}."
                )),
                error => error,
            }),
        }
    }

    fn carried(launch: &Launch, turn: Turn, card: &Card, given: Option<&UserSecret>) -> Result<Appointment> {
        if card.guarded != given.is_some() {
            let (has, lacks) = match card.guarded {
                true => ("rank 0 has", "this one has not"),
                false => ("this rank has", "rank 0 has not"),
            };
            return Err(Error::usage(format!(
                "{has} a secret (CCL_SECRET_FILE or CCL_SECRET) that {lacks}: give it to all ranks (mpirun of Open MPI \
                 passes variables on to other hosts by -x NAME), or to none, as the launcher carries one"
            )));
        }
        let mut key = Zeroizing::new(card.seed.bytes().to_vec());
        key.extend(given.map_or(&[][..], UserSecret::bytes));
        // Of the card alone: ranks of other hosts may have other variables.
        let (comm, secret) = keys(&key, &[], turn)?;
        Ok(Appointment {
            place: Place::Carried(card.at.clone()),
            rank: launch.rank,
            host_may_be_late: false,
            comm,
            secret,
        })
    }

    fn told(launch: &Launch, turn: Turn) -> Result<Appointment> {
        let user_secret = secret::read()?;
        let host = launch.master.clone().ok_or_else(|| {
            Error::usage(
                "ranks on several hosts need the address of rank 0's host: set MASTER_ADDR to it, and MASTER_PORT or \
                 CCL_MASTER_PORT to a port, the same on all ranks",
            )
        })?;
        let (comm, secret) = keys(user_secret.bytes(), &launch.job, turn)?;
        Ok(Appointment {
            place: Place::Named {
                host,
                port: launch.master_port.number()?,
            },
            rank: launch.rank,
            host_may_be_late: launch.launcher == Launcher::Kubernetes || environment::text(POD).is_some(),
            comm,
            secret,
        })
    }
}

/// The id by which all ranks of the appointment join. Rank 0 listens from here on.
///
/// # Errors
/// [`Error::Init`] when the port is in use, [`Error::Usage`] when rank 0's host is not known.
pub(super) fn between_hosts(appointment: Appointment, deadline: Instant) -> Result<UniqueId> {
    let Appointment {
        place,
        rank,
        host_may_be_late,
        comm,
        secret,
    } = appointment;
    match (place, rank) {
        (Place::Named { port, .. }, 0) => {
            once_free(deadline, || UniqueId::agreed_here(port, comm, secret.clone()))
        }
        (Place::Carried(at), 0) => UniqueId::agreed_at(&at, comm, secret),
        (Place::Carried(at), _) => Ok(UniqueId::agreed(&at, comm, secret)),
        (Place::Named { host, port }, _) => {
            let at = addresses(&host, port, host_may_be_late, deadline).map_err(|unknown| {
                let tell = |why: String| {
                    format!("rank {rank} does not know the host of rank 0: MASTER_ADDR (or CCL_MASTER_ADDR) is {host}: {why}")
                };
                match unknown {
                    Unknown::Told(why) => Error::usage(tell(why)),
                    Unknown::Late => Error::InitTimeout {
                        what: tell("what looks names up here did not answer in time".to_owned()),
                    },
                }
            })?;
            let id = UniqueId::agreed(&at, comm, secret);
            Ok(match host.parse::<IpAddr>() {
                Ok(_) => id,
                Err(_) => id.of_host(Named { host, port }),
            })
        }
    }
}

/// A port of a host that has a name.
#[derive(Debug, Clone)]
pub(in crate::bootstrap) struct Named {
    host: String,
    port: u16,
}

impl Named {
    /// Its addresses as the system knows them now; `None` if it does not say soon, and by `end`.
    pub(in crate::bootstrap) fn look_up(&self, end: Instant) -> Option<Vec<SocketAddr>> {
        let soon = end.min(Instant::now() + SOON);
        let found = look_up(&self.host, self.port, soon).ok()?.ok()?;
        (!found.is_empty()).then_some(found)
    }
}

/// Why a host's addresses are not known.
#[derive(Debug)]
enum Unknown {
    Told(String),
    /// Nobody said anything in time.
    Late,
}

/// The addresses of `host`. Where it may be late it is asked for again until `deadline`; where nobody tells whether there is such a host,
/// as long as an outage may last, half the time at most.
fn addresses(
    host: &str,
    port: u16,
    may_be_late: bool,
    deadline: Instant,
) -> Result<Vec<SocketAddr>, Unknown> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let began = Instant::now();
    let answered = began + tcp::given_up_after().min(deadline.saturating_duration_since(began) / 2);
    let mut before = None;
    loop {
        let (why, may_pass) = match look_up(host, port, deadline) {
            Ok(Ok(at)) if !at.is_empty() => return Ok(at),
            Ok(Ok(_)) => ("it has no address".to_owned(), may_be_late),
            Ok(Err(error)) => {
                let may_come = names::is_for_want_of_an_answer(&error) && Instant::now() < answered;
                (error.to_string(), may_be_late || may_come)
            }
            Err(unknown) => return Err(before.map_or(unknown, Unknown::Told)),
        };
        if !may_pass || Instant::now() + RETRY >= deadline {
            return Err(Unknown::Told(why));
        }
        if before.is_none() {
            warn!("init: the host of rank 0, {host}, is not known yet: {why}");
        }
        before = Some(why);
        thread::sleep(RETRY);
    }
}

/// Asks the system for the addresses of a name, on a thread of its own, which may be kept for long.
fn look_up(host: &str, port: u16, deadline: Instant) -> Result<io::Result<Vec<SocketAddr>>, Unknown> {
    let find = |(host, port): (String, u16)| names::look_up(&host, port);
    let outcome = aside(c"ccl-names", (host.to_owned(), port), find)
        .map_err(|e| Unknown::Told(format!("cannot start a thread to look it up: {e}")))?;
    let left = deadline.saturating_duration_since(Instant::now());
    outcome.recv_timeout(left).map_err(|_| Unknown::Late)
}

/// What Kubernetes sets in pods, whose names may come to be known after their processes have begun.
const POD: &str = "KUBERNETES_SERVICE_HOST";
/// How long an answer is waited for where addresses are known already.
const SOON: Duration = Duration::from_secs(2);
/// How long to leave a name server alone that does not know a host yet.
const RETRY: Duration = Duration::from_millis(500);

/// The name and the secret by which who has the user's secret may look into processes that have it, too; `None` without one.
///
/// # Errors
/// [`Error::Usage`] that says what is wrong with what stands for a secret.
pub(in crate::bootstrap) fn keys_for_looking() -> Result<Option<(CommId, Secret)>> {
    let keys_of = |secret: UserSecret| keys(secret.bytes(), &["looking in".to_owned()], Turn(u64::MAX));
    secret::glance()?.map(keys_of).transpose()
}

/// The name of a turn's communicator, and its secret, which is made of the user's: each turn of each job has its own, so
/// that nothing said in one is of use in another. The name does not depend on the user's secret, so that ranks with
/// different ones learn just that.
fn keys(user_secret: &[u8], job: &[String], turn: Turn) -> Result<(CommId, Secret)> {
    let derive = |key: &[u8]| -> Result<Zeroizing<[u8; 32]>> {
        // HMAC takes keys of any length.
        let mut mac =
            Hmac::<Sha256>::new_from_slice(key).map_err(|_| Error::internal("HMAC refused a key"))?;
        mac.update(b"ccl meeting between hosts 1");
        mac.update(&turn.0.to_le_bytes());
        for part in job {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part.as_bytes());
        }
        Ok(Zeroizing::new(mac.finalize().into_bytes().into()))
    };
    let mut comm = CommId::default();
    comm.copy_from_slice(&derive(b"name")?[..16]);
    Ok((comm, Secret::new(&*derive(user_secret)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_may_come_to_be_known() {
        let start = Instant::now();
        let (nowhere, deadline) = ("nowhere.invalid", start + Duration::from_secs(60));
        let asked = names::look_up(nowhere, 7).unwrap_err();
        if !names::is_for_want_of_an_answer(&asked) {
            // What was said last counts, though there be no time for more.
            let found = addresses(nowhere, 7, true, Instant::now() + 2 * RETRY);
            assert!(matches!(found, Err(Unknown::Told(_))));
            assert!(start.elapsed() >= RETRY);
            let found = addresses(nowhere, 7, false, deadline);
            assert!(matches!(found, Err(Unknown::Told(_))));
            assert!(Instant::now() + RETRY < deadline, "it was not waited for");
        }
        for host in ["127.0.0.1", "localhost"] {
            assert!(!addresses(host, 7, false, deadline).unwrap().is_empty());
        }
    }

    #[test]
    fn keys_depend_on_all_that_they_are_made_of() {
        let job = |text: &str| vec![text.to_owned()];
        let made = [
            keys(b"a secret of one user", &job("A=1"), Turn(0)),
            keys(b"a secret of another", &job("A=1"), Turn(0)),
            keys(b"a secret of one user", &job("A=2"), Turn(0)),
            keys(b"a secret of one user", &job("A=1"), Turn(1)),
            keys(b"a secret of one user", &[job("A="), job("1")].concat(), Turn(0)),
        ]
        .map(Result::unwrap);
        for (i, (comm, secret)) in made.iter().enumerate() {
            assert_ne!(&secret.bytes()[..16], comm);
            for (j, (other_comm, other_secret)) in made[..i].iter().enumerate() {
                assert_eq!(comm == other_comm, (i, j) == (1, 0)); // which differ in the user's secret alone
                assert_ne!(secret.bytes(), other_secret.bytes());
            }
        }
        let (comm, secret) = keys(b"a secret of one user", &job("A=1"), Turn(0)).unwrap();
        assert_eq!((comm, secret.bytes()), (made[0].0, made[0].1.bytes()));
    }
}
