//! [`Carrier`]: a launcher's own way to carry a text from rank 0 to all ranks, and the [`Card`] that goes by it.
//!
//! The card says where rank 0 is, and holds a secret. It goes once in the life of a process; what the ranks need for
//! each of their communicators is made of it.

use super::{Launch, Turn, launcher::Launcher, pmi, variables::Variables};
use crate::{
    bootstrap::unique_id::{ENCODED, UniqueId, decode, encode},
    log,
    net::{Secret, VERSION, fill_random, hex, unhex},
    sys::{fork, library::has_others_rights, per_process::PerProcess, pmix, thread},
    types::{Error, Result},
};
use std::{
    ffi::CStr,
    fmt, fs,
    net::SocketAddr,
    os::fd::RawFd,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    time::{Duration, Instant},
};
use tracing::{info, warn};
use zeroize::Zeroizing;

/// By what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Carrier {
    /// Open MPI's and Slurm's servers (`srun --mpi=pmix`), by a library.
    Pmix,
    /// MPICH's process manager, Intel's, Flux's, Slurm's (`srun --mpi=pmi2`), by a descriptor.
    Pmi { fd: RawFd },
}

/// Why a text was not carried.
#[derive(Debug, Clone)]
pub(super) enum Trouble {
    /// It cannot be done, in this process or in all.
    Unable(String),
    /// Not all ranks took part in time.
    Late,
}

/// What comes of asking PMIx.
type Pending = Mutex<mpsc::Receiver<Result<Zeroizing<String>, String>>>;

/// Where that has not come yet, the next call waits for it.
static PENDING: PerProcess<Pending> = PerProcess::new();

/// What rank 0 tells the others.
#[derive(Debug, Clone)]
pub(super) struct Card {
    /// Where it listens.
    pub(super) at: Vec<SocketAddr>,
    /// Whether it has a secret of the user's, besides.
    pub(super) guarded: bool,
    pub(super) seed: Secret,
}

impl Carrier {
    /// What the launcher's variables offer to this rank, and not those of another one in which it was started. `None` also where
    /// the user says where the ranks meet.
    pub(super) fn of(
        launcher: Launcher,
        variables: &Variables<'_>,
        rank: usize,
        ranks: usize,
    ) -> Option<Carrier> {
        if variables.first(&["CCL_MASTER_ADDR", "CCL_MASTER_PORT"]).is_some() {
            return None;
        }
        let is = |name, number: usize| variables.text(name) == Some(number.to_string());
        let pmix = || {
            let space = variables.text("PMIX_NAMESPACE")?;
            let step = || {
                let [job, step] = ["SLURM_JOB_ID", "SLURM_STEP_ID"].map(|name| variables.text(name));
                Some(format!("slurm.pmix.{}.{}", job?, step?))
            };
            let is_own = launcher != Launcher::Slurm || step() == Some(space);
            // The environment says which components PMIx loads.
            let may_load = !has_others_rights();
            (is_own && may_load && is("PMIX_RANK", rank)).then_some(Carrier::Pmix)
        };
        let pmi = || {
            let fd = variables.text("PMI_FD")?.parse().ok()?;
            (is("PMI_RANK", rank) && is("PMI_SIZE", ranks)).then_some(Carrier::Pmi { fd })
        };
        match launcher {
            Launcher::Mpich => pmi().or_else(pmix),
            _ => pmix().or_else(pmi),
        }
    }

    /// Gives all ranks the text that rank 0 brings.
    fn share(
        self,
        rank: usize,
        mine: Option<Zeroizing<String>>,
        timeout: Duration,
    ) -> Result<Zeroizing<String>, Trouble> {
        match self {
            Carrier::Pmix => share_by_pmix(rank, mine, timeout),
            Carrier::Pmi { fd } => {
                if let Some(library) = mpi_in_this_process() {
                    return Err(Trouble::Unable(format!(
                        "this program has an MPI of its own ({library}), to which PMI_FD belongs"
                    )));
                }
                let mine = mine.as_ref().map(|text| text.as_str());
                pmi::share(fd, KEY_TEXT, mine, Instant::now() + timeout)
            }
        }
    }
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Carrier::Pmix => "PMIx",
            Carrier::Pmi { .. } => "PMI",
        })
    }
}

/// On a thread of its own, because PMIx has no deadlines.
fn share_by_pmix(
    rank: usize,
    mine: Option<Zeroizing<String>>,
    timeout: Duration,
) -> Result<Zeroizing<String>, Trouble> {
    let rank = u32::try_from(rank).unwrap_or(u32::MAX);
    let share = |(rank, mine): (u32, Option<Zeroizing<String>>)| {
        pmix::share(KEY, rank, mine.as_ref().map(|text| text.as_str()))
    };
    let begin = || thread::aside(c"ccl-pmix", (rank, mine), share).map(Mutex::new);
    let pending = PENDING.get_or_try_init(begin);
    await_text(
        pending.map_err(|e| Trouble::Unable(format!("cannot start a thread: {e}")))?,
        timeout,
    )
}

fn await_text(pending: &Pending, timeout: Duration) -> Result<Zeroizing<String>, Trouble> {
    let outcome = pending.lock().unwrap_or_else(PoisonError::into_inner);
    match outcome.recv_timeout(timeout) {
        Ok(outcome) => outcome.map_err(Trouble::Unable),
        Err(mpsc::RecvTimeoutError::Timeout) => Err(Trouble::Late),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            Err(Trouble::Unable("the thread that asked it has ended".to_owned()))
        }
    }
}

/// The MPI library that this process has loaded, initialised or not. One that is linked statically is not seen.
fn mpi_in_this_process() -> Option<String> {
    let maps = fs::read_to_string("/proc/thread-self/maps").ok()?;
    let names = maps.lines().filter_map(|line| line.rsplit('/').next());
    names
        .filter(|name| name.starts_with("libmpi") && name.contains(".so"))
        .map(str::to_owned)
        .next()
}

/// What became of rank 0's card.
#[derive(Debug)]
pub(super) enum Delivery {
    Card(Card),
    /// The launcher offers no way.
    NoCarrier,
    /// It does, but it cannot be gone, because of this.
    Unable(String),
}

/// Rank 0's card, as the launcher carries it. The outcome is the same in all calls of a process; but where PMIx is late, the next call
/// goes on waiting, and has the turn that was given back. With PMI that cannot be: who has left a barrier there is out of step with the others.
///
/// # Errors
/// [`Error::InitTimeout`] when not all ranks took part in time; [`Error::System`] when rank 0 cannot listen.
pub(super) fn card(launch: &Launch, turn: Turn, guarded: bool, timeout: Duration) -> Result<Delivery> {
    static OUTCOME: PerProcess<Result<Card, Trouble>> = PerProcess::new();
    let Some(carrier) = launch.carrier else {
        return Ok(Delivery::NoCarrier);
    };
    log::begin();
    let deadline = Instant::now() + timeout;
    let mut is_now = false;
    let late = |is_now| {
        let waited = match is_now {
            true => format!("init timed out after {:.1} s", timeout.as_secs_f64()),
            false => "an earlier init of this process waited in vain, and can do so only once".to_owned(),
        };
        Error::InitTimeout {
            what: format!(
                "{waited}: not all of the {} ranks came to hear by {carrier} where rank 0 is (ranks for which CCL_MASTER_ADDR or \
                 CCL_MASTER_PORT is set do not: give these to all ranks or to none)",
                launch.ranks
            ),
        }
    };
    // Another thread may be about it, which takes a while.
    let wait = || {
        std::thread::sleep(A_LOOK);
        Instant::now() < deadline
    };
    let outcome = OUTCOME.get_or_try_init_while(wait, || {
        is_now = true;
        // Another thread may have waited before, and in vain.
        let left = deadline.saturating_duration_since(Instant::now());
        match fetch(carrier, launch.rank, guarded, left)? {
            Err(Trouble::Late) if PENDING.get().is_some() => {
                turn.give_back();
                Err(late(true))
            }
            outcome => Ok(outcome),
        }
    });
    let Some(outcome) = outcome else {
        if matches!(carrier, Carrier::Pmix) {
            turn.give_back();
        }
        return Err(late(true));
    };
    match outcome? {
        Ok(card) => Ok(Delivery::Card(card.clone())),
        Err(Trouble::Unable(why)) => Ok(Delivery::Unable(format!("by {carrier}: {why}"))),
        Err(Trouble::Late) => Err(late(is_now)),
    }
}

/// Between two looks at whether another thread knows.
const A_LOOK: Duration = Duration::from_millis(5);

fn fetch(carrier: Carrier, rank: usize, guarded: bool, timeout: Duration) -> Result<Result<Card, Trouble>> {
    fork::watch().map_err(|e| Error::system("cannot watch for forks", e))?;
    let start = Instant::now();
    let text = match PENDING.get() {
        Some(pending) => await_text(pending, timeout),
        None => {
            let mine = (rank == 0).then(|| Card::new(guarded)).transpose()?;
            // A launcher does this once for each process that it has started.
            static BEGUN: AtomicBool = AtomicBool::new(false);
            if BEGUN.swap(true, Relaxed) {
                let why = "it was asked before, here or in the process that forked this one";
                return Ok(Err(Trouble::Unable(why.to_owned())));
            }
            carrier.share(rank, mine.as_ref().map(Card::encode), timeout)
        }
    };
    let card = text.and_then(|text| {
        Card::decode(&text).ok_or_else(|| {
            Trouble::Unable(
                "what came is not of this version of ccl: use the same version in all processes".to_owned(),
            )
        })
    });
    match &card {
        Ok(card) => info!(
            "init: {carrier} carried a secret and where rank 0 is, {:?}, in {:.1} ms",
            card.at,
            start.elapsed().as_secs_f64() * 1e3
        ),
        Err(trouble) => warn!("init: {carrier} did not carry where rank 0 is: {trouble}"),
    }
    Ok(card)
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Unable(why) => f.write_str(why),
            Trouble::Late => f.write_str("not all ranks took part in time"),
        }
    }
}

impl Card {
    /// That of this process, which listens from now on.
    fn new(guarded: bool) -> Result<Card> {
        let mut seed = Zeroizing::new([0; Secret::LEN]);
        fill_random(&mut *seed)?;
        Ok(Card {
            at: UniqueId::open()?,
            guarded,
            seed: Secret::new(&seed),
        })
    }

    pub(super) fn encode(&self) -> Zeroizing<String> {
        let mut bytes = Zeroizing::new([0; CARD]);
        bytes[..4].copy_from_slice(&VERSION.to_le_bytes());
        bytes[4] = u8::from(self.guarded);
        bytes[ADDRESS..SEED].copy_from_slice(&encode(self.at.iter().copied()));
        bytes[SEED..].copy_from_slice(self.seed.bytes());
        Zeroizing::new(hex(&*bytes))
    }

    pub(super) fn decode(text: &str) -> Option<Card> {
        let mut bytes = Zeroizing::new([0; CARD]);
        unhex(text, &mut *bytes)?;
        let at = decode(bytes[ADDRESS..SEED].try_into().ok()?)?;
        let is_card = bytes[..4] == VERSION.to_le_bytes() && !at.is_empty();
        is_card.then_some(Card {
            at,
            guarded: bytes[4] != 0,
            seed: Secret::new(bytes[SEED..].first_chunk()?),
        })
    }
}

/// By what name the card goes.
const KEY: &CStr = c"ccl.rank0";
const KEY_TEXT: &str = "ccl.rank0";

const ADDRESS: usize = 5;
const SEED: usize = ADDRESS + ENCODED;
const CARD: usize = SEED + Secret::LEN;

#[cfg(test)]
mod tests {
    use super::*;

    fn under(launcher: Launcher, variables: &[(&str, &str)]) -> Option<Carrier> {
        let look_up = |wanted: &str| {
            let found = variables.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| (*value).to_owned())
        };
        Carrier::of(launcher, &Variables::of(&look_up), 1, 4)
    }

    fn of(variables: &[(&str, &str)]) -> Option<Carrier> {
        under(Launcher::OpenMpi, variables)
    }

    #[test]
    fn the_variables_say_what_a_launcher_offers() {
        let pmix = [("PMIX_NAMESPACE", "job"), ("PMIX_RANK", "1")];
        assert_eq!(of(&pmix), Some(Carrier::Pmix));
        let pmi = [("PMI_FD", "7"), ("PMI_RANK", "1"), ("PMI_SIZE", "4")];
        assert_eq!(of(&pmi), Some(Carrier::Pmi { fd: 7 }));
        assert_eq!(of(&[pmix, [("x", ""); 2]].concat()), Some(Carrier::Pmix));
        // MPICH's ranks and Slurm's, in a step of Slurm's that offers PMIx.
        let both = [&pmix[..], &pmi[..]].concat();
        assert_eq!(under(Launcher::Mpich, &both), Some(Carrier::Pmi { fd: 7 }));
        let step = |number| [("SLURM_JOB_ID", "3"), ("SLURM_STEP_ID", number)];
        let slurm = [("PMIX_NAMESPACE", "slurm.pmix.3.0"), ("PMIX_RANK", "1")];
        let own = [&slurm[..], &step("0")].concat();
        assert_eq!(under(Launcher::Slurm, &own), Some(Carrier::Pmix));
        assert_eq!(under(Launcher::Slurm, &[&slurm[..], &step("1")].concat()), None);
        // Those of another job, around this one.
        assert_eq!(of(&[pmix[0], ("PMIX_RANK", "2")]), None);
        assert_eq!(of(&[pmi[0], pmi[1], ("PMI_SIZE", "2")]), None);
        assert_eq!(of(&[pmi[1], pmi[2]]), None);
        assert_eq!(of(&[pmix[0], pmix[1], ("CCL_MASTER_ADDR", "a")]), None);
    }

    #[test]
    fn cards_round_trip_and_nothing_else_is_one() {
        let card = Card {
            at: ["10.1.2.3:4567", "[fd00::7]:4567"]
                .map(|at| at.parse().unwrap())
                .to_vec(),
            guarded: true,
            seed: Secret::new(&[0xa5; Secret::LEN]),
        };
        let text = card.encode();
        assert!(text.len() < 250, "it fits where 256 bytes do");
        let back = Card::decode(&text).unwrap();
        assert_eq!((&back.at, back.guarded), (&card.at, true));
        assert_eq!(back.seed.bytes(), card.seed.bytes());
        assert!(!format!("{card:?}").contains("165"));
        let mut other = text.to_string();
        other.replace_range(..1, "f");
        for text in [&other, "", "x", &text[1..], &text.replace('a', "g")] {
            assert!(Card::decode(text).is_none(), "{text}");
        }
    }

    #[test]
    fn what_came_late_is_there_for_who_asks_again() {
        let (sender, receiver) = mpsc::channel();
        let pending = Mutex::new(receiver);
        assert!(matches!(await_text(&pending, Duration::ZERO), Err(Trouble::Late)));
        sender.send(Ok(Zeroizing::new("a card".to_owned()))).unwrap();
        assert_eq!(*await_text(&pending, Duration::ZERO).unwrap(), "a card");
        drop(sender);
        assert!(matches!(
            await_text(&pending, Duration::ZERO),
            Err(Trouble::Unable(_))
        ));
    }

    #[test]
    fn this_test_has_no_mpi() {
        assert_eq!(mpi_in_this_process(), None);
    }
}
