//! The [`Communicator`]: checks calls, asks the planner, and drives the executor.

pub(crate) mod bench;
#[cfg(feature = "cuda")]
mod board;
mod buffers;
mod collectives;
mod config;
#[cfg(feature = "cuda")]
mod device;
#[cfg(feature = "cuda")]
mod direct;
mod engine;
mod env;
mod given;
mod init_all;
#[cfg(feature = "cuda")]
mod meeting;
mod memory;
mod pending;
mod plans;
mod probe;
mod proofs;
mod recover;
mod scope;
mod split;
mod stream;
mod transfers;
pub(crate) mod tuning;
mod vector;
#[cfg(feature = "cuda")]
mod watch;

pub use config::Config;
#[cfg(feature = "cuda")]
pub use device::OnCuda;
#[cfg(feature = "cuda")]
pub(crate) use device::{Device, Tail};
pub(crate) use engine::{Asked, AtOnce, Size, Start};
pub(crate) use given::Side;
pub(crate) use init_all::{give_up, together};
pub use pending::{Begin, Pending};
pub use scope::{Message, Scope};
pub(crate) use stream::Batch;
pub use stream::Stream;

use crate::{
    bootstrap::{self, Child, Joining, Membership, Network, UniqueId},
    exec::{Completion, Outcome},
    log,
    net::Protection,
    plan::{
        calibration::{CrowdsTake, Tuning},
        cost::{Load, Machine},
        explain::{self, Explanation},
        groups::Groups,
    },
    record::Record,
    sys::{attach::may_be_read, cache::keeps_what_it_reads, float_mode::usual, helpers::Helpers},
    topo::{
        numa,
        share::{Allowance, Crowd, share},
    },
    transport::{
        links::{Attach, Choice, Links},
        plugin::{self, Wire},
        shm,
    },
    types::{Cause, Collective, DType, Error, Reducing, Result, check_ranks},
};
use buffers::Buffers;
use collectives::check_call;
use config::Direct;
use engine::Engine;
use std::{
    collections::BTreeMap,
    fmt,
    num::NonZero,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};
use tracing::{info, warn};

/// A rank's membership in a group of ranks that communicate collectively.
///
/// Every rank makes the same calls of all ranks in the same order. A call returns when this rank's part is done: its output is
/// complete and its input may be changed. Any thread may call anything at any time, and what several threads call goes on
/// side by side; they see to it that the order of their calls of all ranks is the same on all ranks. Operations that go on
/// by themselves are begun with [`Communicator::scope`] and [`Communicator::begin`].
///
/// After a failure (a rank died, was silent past the deadline, called something else) every rank's running or next
/// call returns [`Error::Failed`] with the same [`Cause`], and all later ones [`Error::Closed`]. Dropping a communicator
/// leaves it in order.
pub struct Communicator {
    /// What the ranks' bytes travel over as far as init can tell, and why.
    transport: (&'static str, &'static str),
    config: Config,
    device: Option<i32>,
    /// Those that init had.
    deadlines: config::Deadlines,
    /// How many splits there were, how often it was shrunk to the same ranks, and how often it was grown.
    splits: Mutex<u64>,
    shrinks: Mutex<BTreeMap<Vec<usize>, u64>>,
    grows: AtomicU64,
    /// Those of the communicators that are made of it, too.
    helpers: Helpers,
    /// What rank 0 told of the machine. So do those that are made of it.
    tuning: Tuning,
    #[cfg(feature = "cuda")]
    in_streams: device::InStreams,
    #[cfg(feature = "cuda")]
    windows: Option<direct::Windows>,
    engine: Arc<Engine>,
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
        Communicator::join(ranks, id, rank, config, None)
            .inspect_err(|error| warn!(rank, ranks, "init: failed: {error}"))
    }

    /// `parent`: what it is made of, and whose threads, tuning and device it has, where that is another communicator.
    fn join(
        ranks: usize,
        id: &UniqueId,
        rank: usize,
        config: &Config,
        parent: Option<(&Child<'_>, &Communicator)>,
    ) -> Result<Communicator> {
        let went = AtomicBool::new(false);
        Communicator::join_or_fail((ranks, id, rank), config, parent, &went).inspect_err(|why| {
            if !went.load(Relaxed) {
                let mut config = config.clone();
                let _ = config.check(); // it fills in what it can
                let protection = config.protection().unwrap_or(Protection::Off);
                bootstrap::excuse(id, parent.map(|(child, _)| child), (rank, ranks), protection, why);
            }
        })
    }

    /// The same; `went` is [`Joining::went`].
    fn join_or_fail(
        (ranks, id, rank): (usize, &UniqueId, usize),
        config: &Config,
        parent: Option<(&Child<'_>, &Communicator)>,
        went: &AtomicBool,
    ) -> Result<Communicator> {
        let began = Instant::now();
        let mut config = config.clone();
        let deadlines = config.check()?;
        if let Some((child, _)) = parent {
            child.check()?;
        }
        config.here();
        let (choice, tcp) = (config.choice(), config.tcp()?);
        let (attach, direct) = (config.attach()?, config.direct()?);
        // Processes copy each other's messages, which is what is to be measured.
        let direct = if config.is_probe { Direct::Off } else { direct };
        let bell = shm::Bell::new()?;
        let wake = Arc::clone(&bell);
        let mut tuning = match (rank, parent) {
            (0, Some((_, parent))) => parent.tuning.clone(),
            (0, None) if !config.is_probe => tuning_of_rank_0(ranks, attach),
            _ => Tuning::default(),
        };
        // As rank 0's host is, wherever the rest is from.
        tuning.answers = rank == 0 && answers_here();
        let outside = Outside::open(&config, rank, ranks);
        let ready = began.elapsed();
        let membership = Arc::new(bootstrap::join(Joining {
            id,
            child: parent.map(|(child, _)| child),
            called: config.name.as_deref(),
            ranks,
            rank,
            timeout: deadlines.init,
            knobs: [config.knobs(), outside.knobs()].concat(),
            told: to_tell(&tuning)?,
            has_wire: outside.is_there(),
            welcome: bell.welcome()?,
            network: match choice {
                Choice::Shm => Network::Never,
                Choice::Auto => Network::AsTheId,
                Choice::Tcp | Choice::Plugin => Network::Always,
            },
            presence: config.presence()?,
            protection: config.protection()?,
            rails: config.rails()?,
            wake: Arc::new(move || wake.wake()),
            went,
        })?);
        let joined = began.elapsed();
        if let (Choice::Shm, Some([one, other])) = (choice, membership.on_two_hosts()) {
            return Err(Error::usage(format!(
                "transport \"shm\" is for ranks of one host, and {one} and {other} are on two: use \"auto\" or \"tcp\""
            )));
        }
        let timeout = deadlines.operations;
        membership.set_timeout(timeout);
        let wire = outside.agreed(choice, &membership)?;
        let transport = transport(choice, &membership, wire.as_deref());
        let opener = Box::new(Arc::clone(&membership));
        let links = Links::new(rank, ranks, opener, Arc::clone(&bell))
            .with_transport(choice, tcp)
            .with_wire(wire)
            .with_attach(attach)
            .with_direct(direct != Direct::Off, membership.number())
            .of_processor(membership.crowd() == Crowd::Alone);
        info!(
            rank,
            ranks,
            "init: transport {} ({}), algorithm {}, deadline {timeout:?}{}",
            transport.0,
            transport.1,
            config.algorithm.as_deref().unwrap_or("chosen for each call"),
            match membership.crowd() {
                Crowd::Alone => "",
                Crowd::Processor => "; no processor of its own, so that waits soon yield",
                Crowd::Time => "; a quota of its control group is shared, so that waits soon sleep",
            }
        );
        let is_read = match direct {
            Direct::Auto => membership.one_process(),
            Direct::On => membership.one_host(),
            Direct::Off => false,
        };
        let tuning = told(membership.told())?;
        let machine = match choice {
            Choice::Auto | Choice::Shm if is_read => {
                Machine::of_one_memory(membership.cores(), &tuning.calibration)
            }
            _ => machine(
                choice,
                membership.one_host(),
                near(&membership),
                (membership.cores(), ranks),
                &tuning,
            ),
        };
        let most = config.threads()?.unwrap_or_else(|| threads(&membership));
        let helpers = parent.map_or_else(|| Helpers::new(most), |(_, parent)| parent.helpers.with(most));
        info!(
            rank,
            ranks, "init: {most} threads at most copy and reduce in long calls"
        );
        // What rank 0 has decided is waited for before a call: a thread that begins calls of several ranks would wait for itself.
        let is_online = tuning.online && !membership.has_ranks_in_one_process();
        let engine = Engine::new(
            membership,
            (machine, config.forced()?, is_online),
            &config,
            timeout,
            links,
            bell,
            helpers.clone(),
        );
        engine.tell_memory();
        let all = began.elapsed();
        info!(
            rank,
            ranks,
            "init: done in {all:.1?} (settings and bell {ready:.1?}, joining {:.1?}, links and planner {:.1?})",
            joined - ready,
            all - joined
        );
        #[cfg(feature = "cuda")]
        let by_window = config.cuda_direct()?;
        #[cfg_attr(not(feature = "cuda"), allow(unused_mut, reason = "it gets windows"))]
        let mut comm = Communicator {
            transport,
            // What is made of another one has that's: its context may have been destroyed since.
            device: parent.map_or_else(|| config.device(), |(_, parent)| parent.device),
            config,
            deadlines,
            splits: Mutex::new(0),
            shrinks: Mutex::default(),
            grows: AtomicU64::new(0),
            helpers,
            tuning,
            #[cfg(feature = "cuda")]
            in_streams: device::InStreams::default(),
            #[cfg(feature = "cuda")]
            windows: None,
            engine: Arc::new(engine),
        };
        #[cfg(feature = "cuda")]
        if by_window {
            comm.windows = direct::Windows::open(&comm)?;
        }
        Ok(comm)
    }

    /// This rank's number.
    pub fn rank(&self) -> usize {
        self.engine.membership.rank()
    }

    /// The number of ranks.
    pub fn ranks(&self) -> usize {
        self.engine.membership.ranks()
    }

    /// How many collective calls were made on it, those that make other communicators among them.
    pub(crate) fn calls(&self) -> u32 {
        self.engine.calls()
    }

    /// The ranks of this rank's host, itself among them.
    #[cfg(feature = "cli")]
    pub(crate) fn ranks_here(&self) -> Vec<usize> {
        let hosts: Vec<_> = self.engine.membership.hosts().collect();
        let is_here = |rank: &usize| hosts[*rank] == hosts[self.rank()];
        (0..hosts.len()).filter(is_here).collect()
    }

    /// How many calls went a short way.
    #[cfg(all(test, feature = "cli"))]
    pub(crate) fn short_calls(&self) -> Result<u64> {
        self.engine.short_calls()
    }

    /// The number of the CUDA device that the rank works with: that of the context that was the current one of the thread that made
    /// the communicator, or that it was made with. `None`: there was none, and host memory needs none. Buffers of any device may be used.
    pub fn device(&self) -> Option<i32> {
        self.device
    }

    /// What the bytes travel over: `"shm"`, `"tcp"`, or `"shm+tcp"` where some ranks share memory and others cannot; with a
    /// network plugin its name in TCP's place. Links are made on first use, so that this is what init knew.
    pub fn transport(&self) -> &'static str {
        self.transport.0
    }

    /// Bytes of address space that the links to other ranks take so far: they are made on first use, and memory is used
    /// only for the pages that messages have touched. Waits for a running call.
    ///
    /// # Errors
    /// [`Error::Usage`] in a forked child.
    pub fn link_memory(&self) -> Result<usize> {
        Ok(self.engine.memory()?.0)
    }

    /// Sets how long an operation may wait for another rank. It holds from the next wait on.
    pub fn set_timeout(&self, timeout: Duration) {
        self.engine.set_timeout(timeout);
        self.engine.membership.set_timeout(timeout);
    }

    /// The name of the algorithm that a call would use.
    ///
    /// # Errors
    /// [`Error::Usage`] when the configuration forces one that does not exist, and in a forked child; [`Error::Invalid`] for a call
    /// that cannot be.
    pub fn algorithm_for(&self, collective: Collective, count: usize, dtype: DType) -> Result<&'static str> {
        check_call(collective, self.ranks(), count, dtype)?;
        let load = self.engine.load(collective, count, dtype, None);
        let decided = self.engine.decided(&load)?;
        Ok(decided.map_or_else(|| self.engine.choose(&load), Ok)?.name)
    }

    /// Why a call would use the algorithm that it would use: what the planner predicts for each.
    ///
    /// # Errors
    /// [`Error::Usage`] when the chosen schedule does not fit the links, and in a forked child; [`Error::Invalid`] for a call that
    /// cannot be.
    pub fn explain(&self, collective: Collective, count: usize, dtype: DType) -> Result<Explanation> {
        check_call(collective, self.ranks(), count, dtype)?;
        let load = self.engine.load(collective, count, dtype, None);
        self.engine.explain(&load, self.engine.decided(&load)?)
    }

    fn timeout(&self) -> Duration {
        self.engine.timeout()
    }

    /// Ends the communicator's use: no call is accepted any more. Waits until those that go on by themselves have ended, and a
    /// second at most for a rank that has made fewer calls than this one: so that ranks whose last calls differ learn of it.
    ///
    /// # Errors
    /// The failure that closed the communicator, if one did.
    pub fn finalize(&self) -> Result<()> {
        self.engine.finalize(|| {
            #[cfg(feature = "cuda")]
            self.await_streams();
        })?;
        self.engine
            .closed()
            .map_or(Ok(()), |cause| Err(Error::Closed(cause.clone())))
    }

    /// Makes every rank's running or next call fail, now, and closes the communicator. Nothing is made of it any more on this rank: a
    /// split, a shrink or a grow that another thread is in ends, too. Never waits for a running call.
    ///
    /// Where a process is stopped by which the others would hear of it, they hear of it in a call, when they next ask what keeps them
    /// waiting: after some 10 s at most among few ranks, after minutes among thousands.
    pub fn abort(&self) {
        self.engine.membership.note_aborted();
        self.engine.membership.end(Cause::Aborted {
            rank: self.rank() as u32,
        });
    }

    /// The failure that closed the communicator, or that the next call will report. Never waits for a running call.
    pub fn failure(&self) -> Option<Cause> {
        let known = self.engine.failure();
        #[cfg(feature = "cuda")]
        let known = known.or_else(|| self.windows.as_ref()?.failure(self));
        known
    }

    /// The last operations of this rank, in the order in which they began: up to 64 calls and 64 messages. Never waits, and works
    /// after a failure, too. `CCL_FLIGHT_FILE` names a file to which they are appended when the communicator fails (`%h`: the
    /// host, `%p`: the process).
    pub fn records(&self) -> Vec<Record> {
        self.engine.recorder.records()
    }

    /// Waits for the end of something that was begun.
    pub(crate) fn wait_for(&self, completion: &Completion) -> Result<()> {
        self.engine.wait_for(completion);
        self.engine.result(completion).map(|_| ())
    }

    /// A place in `batch` for an operation. `at_end` is done as soon as that is over.
    pub(crate) fn enter(
        &self,
        batch: &Batch,
        at_end: impl FnOnce(&Outcome) + Send + 'static,
    ) -> (Start, Arc<Completion>) {
        let start = batch.enter(&self.engine, at_end);
        let completion = Arc::clone(&start.completion);
        (start, completion)
    }

    /// Runs a checked call on the parts of the vector that this rank has.
    fn call(
        &self,
        collective: Collective,
        buffers: Buffers<'_>,
        count: usize,
        dtype: DType,
        op: Reducing,
    ) -> Result<()> {
        self.engine.run(collective, buffers, count, dtype, op)
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Communicator(rank {} of {})", self.rank(), self.ranks())
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        if self.engine.membership.check().is_err() {
            return; // a forked child has neither the thread nor the others' ear
        }
        let began = Instant::now();
        #[cfg(feature = "cuda")]
        self.await_streams();
        self.engine.drain();
        // One that no call has met has its records, too, unless it is this rank's own will.
        let own = self.rank() as u32;
        let is_own = |cause: &Cause| matches!(*cause, Cause::Aborted { rank } | Cause::Revoked { rank } if rank == own);
        if let Some(cause) = self.engine.failure().filter(|cause| !is_own(cause)) {
            self.engine.close(cause);
        }
        #[cfg(feature = "cuda")]
        if let Some(mut windows) = self.windows.take() {
            windows.leave(self);
        }
        self.engine.stop();
        let membership = &self.engine.membership;
        membership.leave(self.engine.made());
        let (rank, ranks) = (membership.rank(), membership.ranks());
        let (calls, took) = (self.engine.calls(), began.elapsed());
        info!(rank, ranks, "end: left in {took:.1?} after {calls} calls");
        self.engine.tell_ways();
        self.engine.recorder.rest();
        self.engine.tell_memory();
        // The others wait for nothing of this rank's any more; who aborts waits for nothing, either.
        #[cfg(feature = "cuda")]
        if self.engine.failure().is_none() {
            crate::cuda::staging::give_back();
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
/// [`Error::Usage`] for settings that do not exist; [`Error::Invalid`] for more ranks than a communicator may have, or none, and for
/// a call that cannot be.
pub fn explain(
    collective: Collective,
    ranks: usize,
    count: usize,
    dtype: DType,
    config: &Config,
) -> Result<Explanation> {
    let mut config = config.clone();
    config.check()?;
    check_ranks(ranks)?;
    check_call(collective, ranks, count, dtype)?;
    let here = Allowance::here();
    let cores = share(&vec![&here; ranks]).cores;
    let one = Groups::Rows { ranks, size: ranks };
    let tuning = tuning_of_rank_0(ranks, config.attach()?);
    let machine = match (config.choice(), config.direct()?) {
        (Choice::Auto | Choice::Shm, Direct::On) => Machine::of_one_memory(cores, &tuning.calibration),
        (choice, _) => machine(choice, true, one, (cores, ranks), &tuning),
    };
    let mut load = Load::new(collective, ranks, count, dtype);
    if config.reproducible {
        load = load.in_order(dtype);
    }
    explain::explain(
        &load,
        &machine,
        &config.forced()?,
        None,
        engine::LINKS,
        |algorithm| Ok(explain::extent(algorithm, &load, &machine)),
    )
}

/// What rank 0 tells the others of its machine.
fn tuning_of_rank_0(ranks: usize, attach: Attach) -> Tuning {
    Tuning {
        crowds_take: match may_be_read(attach == Attach::Any) {
            true => plans::taken_by_crowds(attach),
            false => CrowdsTake::Nothing,
        },
        farthest: numa::farthest(Path::new("/")),
        answers: answers_here(),
        ..tuning::of_this_machine(0, ranks)
    }
}

/// Whether messages are better answered in their places here.
fn answers_here() -> bool {
    keeps_what_it_reads().is_none()
}

/// The threads that copy and reduce for this rank where nothing else is said: as many as there are cores for each rank, and as
/// this one may use. More than a few find the memory busy.
fn threads(membership: &Membership) -> usize {
    let each = membership.cores() / membership.ranks();
    let here = thread::available_parallelism().map_or(1, NonZero::get);
    each.min(here).clamp(1, 4)
}

/// A plugin's wire, as far as this rank is concerned.
enum Outside {
    /// None is wanted.
    None,
    There(plugin::Plugin, Arc<Wire>),
    /// The plugin is there and cannot be used, for this reason.
    Unusable(plugin::Plugin, String),
    /// There is no such plugin.
    Missing(String),
}

impl Outside {
    fn open(config: &Config, rank: usize, ranks: usize) -> Outside {
        match config.load_plugin() {
            None => Outside::None,
            Some(Err(why)) => Outside::Missing(why),
            Some(Ok(plugin)) => match Wire::open(plugin, rank, ranks, config.gpu.clone()) {
                Ok(wire) => Outside::There(plugin, wire),
                Err(why) => Outside::Unusable(plugin, why),
            },
        }
    }

    /// What the ranks must have in common.
    fn knobs(&self) -> Vec<(String, String)> {
        let value = match self {
            Outside::None => "none".to_owned(),
            Outside::There(plugin, _) | Outside::Unusable(plugin, _) => plugin.identity(),
            Outside::Missing(why) => format!("not there: {why}"),
        };
        vec![("CCL_NET_PLUGIN".to_owned(), value)]
    }

    /// Whether it can be used; where none is wanted nobody asks.
    fn is_there(&self) -> bool {
        matches!(self, Outside::There(..))
    }

    /// The wire, if all ranks have it: else they do without, unless the plugin was asked for by name.
    fn agreed(self, choice: Choice, membership: &Membership) -> Result<Option<Arc<Wire>>> {
        match self {
            Outside::None => Ok(None),
            Outside::Missing(why) => Err(Error::usage(format!("CCL_NET_PLUGIN: {why}"))),
            Outside::There(_, wire) if membership.without_wire().is_none() => Ok(Some(wire)),
            Outside::Unusable(_, why) if choice == Choice::Plugin => Err(Error::usage(why)),
            Outside::There(plugin, _) | Outside::Unusable(plugin, _) => {
                let (rank, ranks, name) = (membership.rank(), membership.ranks(), plugin.name());
                let without = membership.without_wire().unwrap_or(rank);
                if choice == Choice::Plugin {
                    return Err(Error::usage(format!(
                        "plugin {name} cannot be used on rank {without}"
                    )));
                }
                // Why, its own rank knows.
                let what = match &self {
                    Outside::Unusable(_, why) => format!("{why}: it cannot be used on rank {rank}"),
                    _ => format!("plugin {name} cannot be used on rank {without}"),
                };
                match (membership.one_host(), &self) {
                    (true, _) => info!(rank, ranks, "init: {what}, and is not needed on one host"),
                    // Who asked for the plugin is to know why all are slower than they could be.
                    (false, Outside::Unusable(..)) => {
                        log::complain(&format!("CCL_NET_PLUGIN: {what}: TCP is used between hosts"));
                    }
                    (false, _) => warn!(rank, ranks, "init: {what}: TCP is used between hosts"),
                }
                Ok(None)
            }
        }
    }
}

/// What the ranks' bytes will travel over, and why.
fn transport(choice: Choice, membership: &Membership, wire: Option<&Wire>) -> (&'static str, &'static str) {
    match choice {
        Choice::Plugin => (wire.map_or("tcp", Wire::name), "forced"),
        Choice::Tcp => ("tcp", "forced"),
        Choice::Shm => ("shm", "forced"),
        Choice::Auto if membership.one_host() => ("shm", "all ranks are on one host"),
        Choice::Auto if membership.all_apart() => (
            wire.map_or("tcp", Wire::name),
            "each rank is on a host of its own",
        ),
        Choice::Auto => (
            wire.map_or("shm+tcp", |wire| plugin::joined("shm", wire.name())),
            "several hosts: ranks that can share memory do",
        ),
    }
}

/// Which ranks are near each other: those of a NUMA node on one host, else those of a host.
fn near(membership: &Membership) -> Groups {
    match membership.nodes() {
        [] => Groups::listed(membership.hosts()),
        nodes => Groups::listed(nodes),
    }
}

/// What the planner reckons with where ranks use `choice` and share `one_host`, or several, and are `near` each other so. What was
/// measured as the best is so on one host.
fn machine(
    choice: Choice,
    one_host: bool,
    near: Groups,
    (cores, ranks): (usize, usize),
    Tuning {
        calibration,
        choices,
        crowds_take,
        farthest,
        answers,
        ..
    }: &Tuning,
) -> Machine {
    // Ranks reckon alike, whatever the threads that make them have set.
    usual(|| match choice {
        Choice::Auto | Choice::Shm if one_host => {
            match farthest.filter(|&times| times >= FAR && near.has_levels()) {
                Some(farthest) => Machine::of_nodes(cores, near, farthest, calibration),
                None => Machine::of_shared_memory(cores, calibration),
            }
            .with_crowds_taking(*crowds_take)
            .with_answers(*answers)
            .with_choices(choices, "shm", ranks)
        }
        Choice::Tcp if one_host => Machine::of_tcp(cores, calibration).with_choices(choices, "tcp", ranks),
        Choice::Auto if near.has_levels() => Machine::of_hosts(cores, near, calibration),
        _ if near.has_levels() && !one_host => Machine::of_tcp(cores, calibration).with_groups(near),
        _ => Machine::of_tcp(cores, calibration),
    })
}

/// NUMA nodes that are nearer to each other, as the parts of one processor, are taken for one: the model weighs an algorithm that knows
/// no groups as if all its messages went between nodes, and would choose hierarchies where nothing is gained.
const FAR: f64 = 1.5;

/// A tuning as rank 0 tells it: nothing where nothing was measured.
fn to_tell(tuning: &Tuning) -> Result<Vec<u8>> {
    if *tuning == Tuning::default() {
        return Ok(Vec::new());
    }
    postcard::to_stdvec(tuning).map_err(|error| Error::internal(format!("packing the tuning: {error}")))
}

/// The tuning that rank 0 told.
fn told(bytes: &[u8]) -> Result<Tuning> {
    if bytes.is_empty() {
        return Ok(Tuning::default());
    }
    let tuning: Tuning = postcard::from_bytes(bytes)
        .map_err(|error| Error::internal(format!("what rank 0 told of its machine: {error}")))?;
    tuning
        .check()
        .map_err(|why| Error::internal(format!("what rank 0 told of its machine: {why}")))?;
    Ok(tuning)
}
