//! Rendezvous by environment: the ranks that a launcher started find each other by its variables.
//!
//! ```text
//! variables, launcher, slurm, master    what the variables say, as functions of them
//! ancestor          tells launchers by their processes where the variables do not
//! door, knock       ranks on one host: rank 0 hands out the unique id at an abstract socket; words: what is said there
//! carrier, pmi      ranks on several hosts: what the launcher carries from rank 0 to all, a secret and an address
//! secret            the user's secret; between_hosts: what is made of these
//! ```

mod ancestor;
mod between_hosts;
mod carrier;
mod door;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod knock;
mod launcher;
mod master;
mod pmi;
mod secret;
mod slurm;
mod variables;
mod words;

#[cfg(test)]
mod tests;

pub(crate) use launcher::Launch;
#[cfg(test)]
pub(crate) use variables::Variables;

pub(in crate::bootstrap) use between_hosts::{Named, keys_for_looking};

use super::{MAX_TIMEOUT, UniqueId, unique_id::Owner};
use crate::{
    net::{VERSION, hex},
    sys::environment,
    types::{Error, Result},
};
use door::Door;
use knock::{Absence, knock};
use launcher::{Launcher, Spread};
use rustix::process::geteuid;
use sha2::{Digest, Sha256};
use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};
use words::Hello;

/// The number of a call of init by environment in this process. Ranks meet those whose number is the same.
///
/// To be taken before anything can fail: ranks make the same calls, but one may fail where another succeeds, by a
/// wrong setting or because it waited for a rank that did not come. As each call counts, whatever comes of it, they
/// stay in step. Only one that met nobody is [given back](Turn::give_back).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn(u64);

impl Turn {
    pub(crate) fn take() -> Turn {
        TURNS.take()
    }

    /// Says that this call ended before the other ranks had come, so that it does not count among theirs: they make their first when
    /// this rank makes another.
    fn give_back(self) {
        TURNS.give_back(self);
    }
}

static TURNS: Turns = Turns::new();

/// The numbers of a process's calls, of which several may be under way at once.
#[derive(Debug)]
struct Turns {
    next: AtomicU64,
    /// Given back, but a later call may meet the others yet, whose calls are numbered alike: kept until all later ones are given back.
    late: Mutex<Vec<u64>>,
}

impl Turns {
    const fn new() -> Turns {
        Turns {
            next: AtomicU64::new(0),
            late: Mutex::new(Vec::new()),
        }
    }

    fn take(&self) -> Turn {
        Turn(self.next.fetch_add(1, Relaxed))
    }

    fn give_back(&self, turn: Turn) {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        late.push(turn.0);
        let becomes_next = |&turn: &u64| {
            let next = self.next.compare_exchange(turn + 1, turn, Relaxed, Relaxed);
            next.is_ok()
        };
        while let Some(at) = late.iter().position(becomes_next) {
            late.swap_remove(at);
        }
    }
}

/// What the launcher's variables say of this process.
///
/// # Errors
/// [`Error::Usage`] when they contradict each other, or when there are none.
pub(crate) fn launch() -> Result<Launch> {
    Launch::of_this_process()?.ok_or_else(|| {
        Error::usage(
            "no launcher has set this process's rank: start it by mpirun, torchrun or srun, or set RANK, WORLD_SIZE \
             and, the same for all ranks of a job, MASTER_PORT",
        )
    })
}

/// Finds the other ranks of `launch` that make this turn, and calls `join` with the id of their communicator and the
/// time that is left.
///
/// # Errors
/// Those of `join`; [`Error::InitTimeout`] when rank 0 did not come; [`Error::Init`] when rank 0 turned this rank
/// away or the meeting place is taken; [`Error::Usage`] when what ranks on several hosts need is not there.
pub(crate) fn meet<T>(
    launch: &Launch,
    turn: Turn,
    timeout: Duration,
    join: impl FnOnce(&UniqueId, Duration) -> Result<T>,
) -> Result<T> {
    if launch.ranks == 1 {
        return join(&UniqueId::local()?, timeout);
    }
    let spread = launch.spread();
    if spread != Spread::OneHost {
        let unsure = spread == Spread::PerhapsSeveral;
        let timeout = timeout.min(MAX_TIMEOUT);
        let deadline = Instant::now() + timeout;
        let appointment =
            between_hosts::Appointment::new(launch, turn, timeout).map_err(|e| hint(e, unsure, launch))?;
        let id = between_hosts::between_hosts(appointment, deadline)?;
        return join(&id, left(deadline));
    }
    let place = place(launch, turn);
    match launch.rank {
        0 => receive(&place, launch, timeout, join),
        _ => visit(&place, launch, timeout, join),
    }
}

/// Rank 0's part on one host.
fn receive<T>(
    place: &str,
    launch: &Launch,
    timeout: Duration,
    join: impl FnOnce(&UniqueId, Duration) -> Result<T>,
) -> Result<T> {
    let deadline = Instant::now() + timeout.min(MAX_TIMEOUT);
    let id = UniqueId::local()?;
    let door = once_free(deadline, || {
        Door::open(place, geteuid().as_raw(), &id, hello(launch))
    })?;
    let joined = join(&id, left(deadline));
    let turned_away = door.close();
    joined.map_err(|error| match error {
        Error::InitTimeout { what } if !turned_away.is_empty() => Error::InitTimeout {
            what: format!("{what}; turned away: {}", turned_away.join("; ")),
        },
        error => error,
    })
}

/// Another rank's part on one host.
fn visit<T>(
    place: &str,
    launch: &Launch,
    timeout: Duration,
    join: impl FnOnce(&UniqueId, Duration) -> Result<T>,
) -> Result<T> {
    let deadline = Instant::now() + timeout.min(MAX_TIMEOUT);
    let no_answer = |absence| {
        let (rank, ranks, job, waited) = (launch.rank, launch.ranks, job(launch), timeout.as_secs_f64());
        let found = match absence {
            Absence::Nobody => format!(
                "rank {rank} of {ranks} did not find rank 0 at unix:@{place}, where the ranks of the job ({job}) \
                 meet. Rank 0 never came, or had given up; or it runs as another user, in another network namespace \
                 (container), with other variables, or has made another number of communicators"
            ),
            Absence::Mute => format!(
                "rank {rank} of {ranks} got no answer from rank 0, which listens at unix:@{place}, where the ranks \
                 of the job ({job}) meet: its process is stopped, or very late"
            ),
        };
        Error::InitTimeout {
            what: format!("init timed out after {waited:.1} s: {found}"),
        }
    };
    let mut id = knock(place, geteuid().as_raw(), hello(launch), deadline)?.map_err(no_answer)?;
    id.owner = Owner::Rank0;
    join(&id, left(deadline))
}

/// The time until `deadline`. Nothing left is as good as very little: the meeting says who is missing.
fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(LEAST_TIME)
}

fn hello(launch: &Launch) -> Hello {
    Hello {
        version: VERSION,
        rank: u32::try_from(launch.rank).unwrap_or(u32::MAX),
        ranks: u32::try_from(launch.ranks).unwrap_or(u32::MAX),
    }
}

/// The abstract name where the ranks of a job meet in this turn: the same for all of them, and another one for
/// everybody else. It is no secret: who may come in is decided by the user that the kernel names.
fn place(launch: &Launch, turn: Turn) -> String {
    let process = match launch.launcher {
        _ if !launch.is_named() => Some(ancestor::launcher()),
        // What names it may be an outer job's, in which there are several.
        Launcher::Mpich => ancestor::proxy(),
        // Its name is made of mpirun's host and process id, which are those of another job's in another container.
        Launcher::OpenMpi => PMIX_SERVERS.into_iter().find_map(environment::text),
        _ => None,
    };
    let mut hash = Sha256::new_with_prefix("ccl meeting on one host 1");
    hash.update(geteuid().as_raw().to_le_bytes());
    hash.update(turn.0.to_le_bytes());
    for part in launch.job.iter().chain(&launch.life).chain(&process) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    format!("ccl-env-{}", hex(&hash.finalize()[..16]))
}

/// Where a host's processes of Open MPI reach their PMIx server, by the versions of its protocol: the same for all of them.
const PMIX_SERVERS: [&str; 5] = [
    "PMIX_SERVER_URI41",
    "PMIX_SERVER_URI4",
    "PMIX_SERVER_URI3",
    "PMIX_SERVER_URI21",
    "PMIX_SERVER_URI2",
];

/// The job's variables, for messages.
fn job(launch: &Launch) -> String {
    match &launch.job[..] {
        [] => format!("started by {}", launch.launcher),
        job => job.join(", "),
    }
}

/// What else may be wrong when ranks were only taken to be on several hosts.
fn hint(error: Error, unsure: bool, launch: &Launch) -> Error {
    match error {
        Error::Usage { what } if unsure => {
            let setting = match launch.launcher {
                Launcher::Torchrun => format!("LOCAL_WORLD_SIZE={}", launch.ranks),
                _ => "CCL_MASTER_ADDR=localhost".to_owned(),
            };
            Error::usage(format!(
                "{what}\nIf all ranks are on this host, set {setting} (ccl-perf: --rendezvous localhost:PORT)."
            ))
        }
        error => error,
    }
}

/// Tries again for a while where the place of the meeting is taken: who has it may be about to end, as where a job is started anew
/// just after its processes were killed.
fn once_free<T>(deadline: Instant, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let end = deadline.min(Instant::now() + TAKEN_FOR);
    loop {
        match attempt() {
            Err(Error::Init { .. }) if Instant::now() < end => thread::sleep(RETRY),
            done => return done,
        }
    }
}

const LEAST_TIME: Duration = Duration::from_millis(1);
/// How long who is about to end may have the place of a meeting.
const TAKEN_FOR: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(50);
