//! The [`Communicator`]: checks calls, asks the planner, and drives the executor.

mod buffers;
mod collectives;
mod config;
mod drive;
mod env;
mod plans;

pub use config::Config;

use crate::{
    bootstrap::{self, Joining, Membership, Network, UniqueId},
    exec::{Work, wait::Patience},
    log,
    mem::Region,
    plan::{
        choose,
        cost::{Load, Machine},
        explain::{self, Explanation},
        groups::Groups,
    },
    sys::host::usable_cpus,
    transport::{
        LANES, MAX_MESSAGE,
        links::{Choice, Links},
        shm,
    },
    types::{Call, Cause, Collective, DType, Error, Op, Result},
};
use buffers::Buffers;
use plans::Plans;
use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tracing::{info, trace, warn};

/// A rank's membership in a group of ranks that communicate collectively.
///
/// Every rank makes the same calls in the same order. A call returns when this rank's part is done: its output is
/// complete and its input may be changed. Calls on one communicator from several threads are served one after the
/// other; whoever does that makes sure that their order is the same on all ranks.
///
/// After a failure (a rank died, was silent past the deadline, called something else) every rank's running or next
/// call returns [`Error::Failed`] with the same [`Cause`], and all later ones [`Error::Closed`]. Dropping a communicator
/// leaves it in order.
pub struct Communicator {
    /// What the ranks' bytes travel over as far as init can tell, and why.
    transport: (&'static str, &'static str),
    membership: Arc<Membership>,
    config: Config,
    /// What the planner knows of where the ranks run: the same on all.
    machine: Machine,
    timeout_ns: AtomicU64,
    /// The failure that closed it, as its calls report it. Others than those that run may ask.
    closed: OnceLock<Cause>,
    inner: Mutex<Inner>,
}

/// What one call at a time uses.
struct Inner {
    links: Links,
    plans: Plans,
    patience: Patience,
    /// The number of the next call.
    seq: u32,
    scratch: Vec<u64>,
    finalized: bool,
}

impl Communicator {
    /// Joins the communicator of `ranks` ranks that `id` names, as `rank`. Each rank calls this once with the same id;
    /// blocks until all have.
    ///
    /// # Errors
    /// [`Error::Invalid`] for ranks that cannot be; [`Error::Usage`] for settings that do not exist; [`Error::Init`]
    /// when another rank came with other numbers, settings or another version, or went away; [`Error::InitTimeout`]
    /// past the deadline, naming the ranks that are missing.
    pub fn init(ranks: usize, id: &UniqueId, rank: usize, config: &Config) -> Result<Communicator> {
        log::begin();
        Communicator::join(ranks, id, rank, config)
            .inspect_err(|error| warn!(rank, ranks, "init: failed: {error}"))
    }

    fn join(ranks: usize, id: &UniqueId, rank: usize, config: &Config) -> Result<Communicator> {
        let mut config = config.clone();
        let timeout = config.check()?;
        let (choice, streams) = (config.choice()?, config.streams()?);
        let bell = shm::Bell::new()?;
        let wake = Arc::clone(&bell);
        let membership = Arc::new(bootstrap::join(Joining {
            id,
            ranks,
            rank,
            timeout,
            knobs: config.knobs(),
            welcome: bell.welcome()?,
            network: match choice {
                Choice::Shm => Network::Never,
                Choice::Auto => Network::AsTheId,
                Choice::Tcp => Network::Always,
            },
            wake: Arc::new(move || wake.wake()),
        })?);
        let opener = Box::new(Arc::clone(&membership));
        let links = Links::new(rank, ranks, opener, bell).with_transport(choice, streams);
        let inner = Inner {
            links,
            plans: Plans::default(),
            patience: Patience::new(membership.oversubscribed()),
            seq: 0,
            scratch: Vec::new(),
            finalized: false,
        };
        let timeout_ns = AtomicU64::new(nanoseconds(timeout));
        let transport = transport(choice, &membership);
        info!(
            rank,
            ranks,
            "init: transport {} ({}), algorithm {}, deadline {timeout:?}{}",
            transport.0,
            transport.1,
            config.algorithm.as_deref().unwrap_or("chosen for each call"),
            match membership.oversubscribed() {
                true => "; more ranks than processors, so that waits soon yield",
                false => "",
            }
        );
        let machine = machine(
            choice,
            membership.one_host(),
            Groups::listed(membership.hosts()),
            membership.cores(),
        );
        Ok(Communicator {
            transport,
            machine,
            membership,
            config,
            timeout_ns,
            closed: OnceLock::new(),
            inner: Mutex::new(inner),
        })
    }

    /// This rank's number.
    pub fn rank(&self) -> usize {
        self.membership.rank()
    }

    /// The number of ranks.
    pub fn ranks(&self) -> usize {
        self.membership.ranks()
    }

    /// What the bytes travel over: `"shm"`, `"tcp"`, or `"shm+tcp"` where some ranks share memory and others cannot. Links
    /// are made on first use, so that this is what init knew.
    pub fn transport(&self) -> &'static str {
        self.transport.0
    }

    /// Bytes of address space that the links to other ranks take so far: they are made on first use, and memory is used
    /// only for the pages that messages have touched. Waits for a running call.
    ///
    /// # Errors
    /// [`Error::Usage`] in a forked child.
    pub fn link_memory(&self) -> Result<usize> {
        Ok(self.lock()?.links.memory())
    }

    /// Sets how long an operation may wait for another rank. It holds from the next wait on.
    pub fn set_timeout(&self, timeout: Duration) {
        self.timeout_ns.store(nanoseconds(timeout), Ordering::Relaxed);
        self.membership.set_timeout(timeout);
    }

    /// The name of the algorithm that a call would use.
    ///
    /// # Errors
    /// [`Error::Usage`] when the configuration forces one that does not exist.
    pub fn algorithm_for(&self, collective: Collective, count: usize, dtype: DType) -> Result<&'static str> {
        Ok(self
            .choose(&Load::new(collective, self.ranks(), count, dtype))?
            .name)
    }

    /// Why a call would use the algorithm that it would use: what the planner predicts for each.
    ///
    /// # Errors
    /// [`Error::Usage`] when the chosen schedule does not fit the links.
    pub fn explain(&self, collective: Collective, count: usize, dtype: DType) -> Result<Explanation> {
        self.explain_load(&Load::new(collective, self.ranks(), count, dtype))
    }

    fn explain_load(&self, load: &Load) -> Result<Explanation> {
        let forced = self.config.algorithm.as_deref();
        explain::explain(load, &self.machine, forced, MAX_MESSAGE, LANES)
    }

    /// Ends the communicator's use: no call is accepted any more. Every call has ended when it returned, so that there
    /// is nothing to wait for.
    ///
    /// # Errors
    /// The failure that closed the communicator, if one did.
    pub fn finalize(&self) -> Result<()> {
        let mut inner = self.lock()?;
        inner.finalized = true;
        self.closed
            .get()
            .map_or(Ok(()), |cause| Err(Error::Closed(cause.clone())))
    }

    /// Makes every rank's running or next call fail, now, and closes the communicator. Never waits for a running call.
    pub fn abort(&self) {
        self.membership.raise(Cause::Aborted {
            rank: self.rank() as u32,
        });
    }

    /// The failure that closed the communicator, or that the next call will report. Never waits for a running call.
    pub fn failure(&self) -> Option<Cause> {
        // Its own failure may be all that a rank knows: who would tell all of it may be stopped.
        self.closed.get().cloned().or_else(|| self.membership.verdict())
    }

    /// Runs a checked call on the parts of the vector that this rank has.
    fn call(
        &self,
        collective: Collective,
        buffers: Buffers<'_>,
        count: usize,
        dtype: DType,
        op: Op,
    ) -> Result<()> {
        let mut guard = self.lock()?;
        let inner = &mut *guard;
        if inner.finalized {
            return Err(Error::usage("the communicator was finalized: make a new one"));
        }
        if let Some(cause) = self.closed.get() {
            return Err(Error::Closed(cause.clone()));
        }
        let call = Call {
            seq: inner.seq,
            collective,
            count: count as u64,
            dtype,
            op,
        };
        if let Some(cause) = self.lost_before(&call) {
            return Err(self.close(cause));
        }
        let load = Load::new(collective, self.ranks(), count, dtype);
        let (choose, why) = (|| self.choose(&load), || self.why(&load));
        let plan = inner
            .plans
            .prepare(load, self.rank(), &self.machine, choose, why)?;
        // From here on data moves, and the ranks' call numbers go on together.
        inner.seq = inner.seq.wrapping_add(1);
        trace!(
            rank = self.rank(),
            ranks = self.ranks(),
            "call: {call} by {}, tiles: {}, in flight: {}",
            plan.algorithm,
            plan.tiling.tiles,
            plan.copies
        );
        if count == 0 {
            return Ok(());
        }
        let scratch = Work::scratch_bytes(&plan.schedule, &plan.tiling, plan.copies, dtype).div_ceil(8);
        if inner.scratch.len() < scratch {
            inner.scratch.resize(scratch, 0);
        }
        let work = Work {
            schedule: &plan.schedule,
            layout: plan.layout,
            tiling: plan.tiling,
            copies: plan.copies,
            dtype,
            op,
            header: call.signature(),
            input: buffers.input,
            output: buffers.output,
            begins: buffers.begins,
            scratch: Region::of_mut(&mut inner.scratch),
            lend: None,
        };
        drive::drive(
            &self.membership,
            &inner.links,
            work,
            call,
            &mut inner.patience,
            || self.timeout(),
        )
        .map_err(|cause| self.close(cause))
    }

    /// Closes the communicator. Under the lock of calls, so that it happens once.
    fn close(&self, cause: Cause) -> Error {
        let cause = self.closed.get_or_init(|| {
            let (rank, ranks) = (self.rank(), self.ranks());
            warn!(rank, ranks, "failure: {cause}; the communicator is closed");
            cause
        });
        Error::Failed(cause.clone())
    }

    fn choose(&self, load: &Load) -> Result<&'static crate::plan::algo::Algorithm> {
        choose::algorithm(load, &self.machine, self.config.algorithm.as_deref())
    }

    /// What made [`Communicator::choose`] choose, for whoever reads the log.
    fn why(&self, load: &Load) -> String {
        self.explain_load(load).map_or_else(
            |error| error.to_string(),
            |explanation| {
                let predicted = explanation.candidates[explanation.chosen].predicted;
                let (why, bytes) = (explanation.why, load.bytes());
                format!("{why} ({predicted:.1?} predicted for {bytes} bytes)")
            },
        )
    }

    /// What has happened since the last call that makes this one pointless.
    fn lost_before(&self, call: &Call) -> Option<Cause> {
        if !self.membership.trouble() {
            return None;
        }
        self.membership
            .verdict()
            .or_else(|| drive::long_dead(&self.membership, call))
    }

    fn timeout(&self) -> Duration {
        Duration::from_nanos(self.timeout_ns.load(Ordering::Relaxed))
    }

    fn lock(&self) -> Result<MutexGuard<'_, Inner>> {
        self.membership.check()?;
        self.inner
            .lock()
            .map_err(|_| Error::internal("an earlier call on this communicator panicked"))
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Communicator(rank {} of {})", self.rank(), self.ranks())
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        let began = Instant::now();
        self.membership.leave();
        if let (Ok(()), Ok(inner)) = (self.membership.check(), self.inner.get_mut()) {
            let (rank, ranks) = (self.membership.rank(), self.membership.ranks());
            let (calls, took) = (inner.seq, began.elapsed());
            info!(rank, ranks, "end: left in {took:.1?} after {calls} calls");
        }
    }
}

/// The algorithms that can carry out `collective`: name and a line about each.
pub fn algorithms(collective: Collective) -> impl Iterator<Item = (&'static str, &'static str)> {
    crate::plan::algo::fitting(collective).map(|algorithm| (algorithm.name, algorithm.about))
}

/// What [`Communicator::explain`] would say of a call among `ranks` ranks that may use the cores that this process may. No
/// communicator is needed: the planner is a pure function.
///
/// # Errors
/// [`Error::Usage`] for settings that do not exist; [`Error::Invalid`] for no ranks.
pub fn explain(
    collective: Collective,
    ranks: usize,
    count: usize,
    dtype: DType,
    config: &Config,
) -> Result<Explanation> {
    let mut config = config.clone();
    config.check()?;
    if ranks == 0 {
        return Err(Error::invalid("a communicator has at least 1 rank"));
    }
    let cores: u32 = usable_cpus().iter().map(|byte| byte.count_ones()).sum();
    let one = Groups::Rows { ranks, size: ranks };
    let machine = machine(config.choice()?, true, one, cores.max(1) as usize);
    let load = Load::new(collective, ranks, count, dtype);
    let forced = config.algorithm.as_deref();
    explain::explain(&load, &machine, forced, MAX_MESSAGE, LANES)
}

fn nanoseconds(timeout: Duration) -> u64 {
    u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX)
}

/// What the ranks' bytes will travel over, and why.
fn transport(choice: Choice, membership: &Membership) -> (&'static str, &'static str) {
    match choice {
        Choice::Tcp => ("tcp", "forced"),
        Choice::Shm => ("shm", "forced"),
        Choice::Auto if membership.one_host() => ("shm", "all ranks are on one host"),
        Choice::Auto if membership.all_apart() => ("tcp", "each rank is on a host of its own"),
        Choice::Auto => ("shm+tcp", "several hosts: ranks that can share memory do"),
    }
}

/// What the planner reckons with where ranks use `choice` and share `one_host`, or several as `hosts` says.
fn machine(choice: Choice, one_host: bool, hosts: Groups, cores: usize) -> Machine {
    match choice {
        Choice::Auto | Choice::Shm if one_host => Machine::shared_memory(cores),
        Choice::Auto if hosts.has_levels() => Machine::hosts(cores, hosts),
        _ if hosts.has_levels() => Machine::tcp(cores).with_groups(hosts),
        _ => Machine::tcp(cores),
    }
}
