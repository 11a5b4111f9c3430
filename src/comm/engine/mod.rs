//! [`Engine`]: all operations of a rank in one communicator, in their order, and who moves them on.
//!
//! ```text
//! desk     where calls get their places: number, plan, lanes. Held for moments.
//! floor    links and operations under way. Whoever holds it leads: polls all of them until its own is over.
//! ```
//!
//! A thread that calls something blocking leads if nobody else does, without any hand-over. Operations that nobody waits
//! for are led by a thread of the engine's own, which steps back as soon as somebody wants to wait. So the memory of links
//! belongs to one thread at a time, and everything under way goes on whoever leads.
//!
//! Collective calls begin in the order of their numbers, each with lanes of its own, the next ones in turn; one whose lanes
//! are still used by an earlier one waits. The oldest can therefore always go on.

mod brief;
mod floor;
mod job;
mod jobs;
mod lead;
mod next;
mod online;
mod past;
mod quick;
mod reasons;
mod taking;
mod thread;

pub(super) use job::{Gate, Job, What};
pub(crate) use quick::{Asked, Size};

use super::{
    Config,
    plans::{Plans, Prepared},
    proofs,
};
use crate::{
    bootstrap::{Made, Membership},
    exec::{Completion, Fault, Outcome, Posted, Run, Sending, Wanted, Work, wait::Patience},
    log,
    mem::{Hold, Region},
    plan::{
        algo::Algorithm,
        choose,
        cost::{Load, Machine},
        explain::{self, Explanation},
        forced::Forced,
        layout::Blocks,
    },
    record::{End, Record, Recorder},
    sys::{biased::Biased, float_mode::usual, helpers::Helpers},
    transport::{CALL_LANES, MAX_MESSAGE, links::Links, shm::Bell, words_of},
    types::{Call, Cause, Collective, DType, Error, Reducing, Result},
};
use floor::{Floor, Held, Turns};
use job::{Collecting, Placed};
use jobs::Jobs;
use lead::{Own, Until};
use next::Next;
use online::Online;
#[cfg(feature = "cuda")]
use std::os::fd::OwnedFd;
use std::{
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::{Duration, Instant},
};
use tracing::{Level, debug, enabled, info, trace, warn};

use super::buffers::{Buffers, Places};

/// All operations of a rank in one communicator.
pub(super) struct Engine {
    pub(super) membership: Arc<Membership>,
    pub(super) recorder: Arc<Recorder>,
    /// What the planner knows of where the ranks run: the same on all.
    machine: Machine,
    /// The algorithms that the configuration forces.
    forced: Forced,
    /// Whether the bits of results depend on inputs and ranks alone.
    reproducible: bool,
    timeout_ns: AtomicU64,
    /// The failure that closed the communicator, as its calls report it.
    closed: OnceLock<Cause>,
    /// The place of the next collective call.
    next: Next,
    /// Whether no call is accepted any more.
    finalized: AtomicBool,
    desk: Mutex<Desk>,
    floor: Biased<Floor, Turns>,
    /// Whether the desk has jobs for the floor.
    mail: AtomicBool,
    /// Rings for whoever leads, and may be asleep.
    bell: Arc<Bell>,
}

/// Where calls get their places.
struct Desk {
    plans: Plans,
    /// The calls that were explained, where they are to be.
    explained: Option<HashSet<Load>>,
    /// What is tried, where it is to be.
    online: Option<Online>,
    /// Jobs that the floor has not taken yet.
    incoming: Vec<Job>,
}

/// How leading a call came out, or its panic.
type Led = std::thread::Result<std::result::Result<(), Cause>>;

/// How a call came out that is over at once; `None` if that could not be, and nothing was done.
///
/// The error is boxed. As it stands it would be passed on whole though nothing is in it: what is read in larger pieces than it was
/// written waits until all stores before it have been done, and those of a call's messages take as long as the call.
pub(crate) type AtOnce = Option<std::result::Result<(), Box<Error>>>;

/// What a call that goes on by itself is given.
#[derive(Default)]
pub(crate) struct Start {
    pub(in crate::comm) gate: Option<Arc<Gate>>,
    pub(in crate::comm) completion: Arc<Completion>,
    /// Whether the caller leads at once: then no thread is needed for it.
    pub(in crate::comm) attended: bool,
}

impl Start {
    /// At once, ending in `completion`. `attended`: the caller waits for it right away.
    pub(crate) fn now(completion: Arc<Completion>, attended: bool) -> Self {
        Start {
            gate: None,
            completion,
            attended,
        }
    }
}

impl Engine {
    pub(super) fn new(
        membership: Arc<Membership>,
        (machine, forced, is_online): (Machine, Forced, bool),
        config: &Config,
        timeout: Duration,
        links: Links,
        bell: Arc<Bell>,
        helpers: Helpers,
    ) -> Self {
        let plans = Plans::new(helpers, links.takes_all(), links.lends_all());
        let jobs = Jobs::new(membership.rank(), membership.ranks());
        let patience = Patience::new(membership.crowd()).starting_on(membership.start());
        let floor = Floor::new(links, patience, jobs);
        // Other words were refused before.
        let explains = membership.rank() == 0 && config.explains().unwrap_or(false);
        let desk = Desk {
            plans,
            explained: explains.then(HashSet::new),
            online: is_online.then(Online::default),
            incoming: Vec::new(),
        };
        let engine = Engine {
            recorder: membership.recorder().clone(),
            membership,
            machine,
            forced,
            reproducible: config.reproducible,
            timeout_ns: AtomicU64::new(0),
            closed: OnceLock::new(),
            next: Next::default(),
            finalized: AtomicBool::new(false),
            desk: Mutex::new(desk),
            floor: Biased::new(floor, Turns::default()),
            mail: AtomicBool::new(false),
            bell,
        };
        engine.set_timeout(timeout);
        engine
    }

    pub(super) fn set_timeout(&self, timeout: Duration) {
        let timeout = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        self.timeout_ns.store(timeout, Relaxed);
    }

    pub(super) fn timeout(&self) -> Duration {
        Duration::from_nanos(self.timeout_ns.load(Relaxed))
    }

    /// The failure that closed the communicator.
    pub(super) fn closed(&self) -> Option<&Cause> {
        self.closed.get()
    }

    /// What has ended the communicator, or what the next call will report. Its own failure may be all that a rank knows: who would
    /// tell all of it may be stopped.
    pub(super) fn failure(&self) -> Option<Cause> {
        self.closed().cloned().or_else(|| self.membership.verdict())
    }

    /// Collective calls so far.
    pub(super) fn calls(&self) -> u32 {
        self.next.number()
    }

    /// Runs a collective call to its end.
    pub(super) fn run(
        &self,
        collective: Collective,
        buffers: Buffers<'_>,
        count: usize,
        dtype: DType,
        op: Reducing,
    ) -> Result<()> {
        let mut desk = self.open_desk()?;
        let Buffers {
            input,
            output,
            places,
        } = buffers;
        let is_tuned = desk.online.is_some();
        if is_tuned {
            let load = self.load(collective, count, dtype, places.given());
            desk = self.tune(desk, &load, false)?;
        }
        let placed = self.place(&mut desk, collective, (count, dtype, op), places)?;
        if placed.is_empty() {
            self.recorder.over(placed.call.seq);
            self.next.settle();
            return Ok(());
        }
        // Nothing else is under way: this thread leads, and works on the caller's memory.
        if desk.incoming.is_empty()
            && let Some(mut floor) = self.try_floor()
            && floor.is_idle()
        {
            self.next.settle();
            drop(desk);
            let began = is_tuned.then(Instant::now);
            let led = self.run_own(&mut floor, &placed, [input, output], |floor, placed, work| {
                self.dash(floor, placed, work)
            });
            if began.is_none_or(|began| self.is_decided(&placed.plan, began.elapsed())) {
                floor.keep(&placed, [input, output], self.membership.rank());
            }
            return self.end_own(floor, led);
        }
        let completion = Completion::new();
        completion.set_mark(self.recorder.mark(placed.call.seq));
        crate::mem::scope(
            |lender| {
                let memory = [lender.lend(input), lender.lend(output)];
                let collecting = Collecting::new(placed, memory, completion.clone());
                self.post(
                    desk,
                    Job {
                        what: What::Collective(Box::new(collecting)),
                        gate: None,
                    },
                );
            },
            || self.wait_for(&completion),
        );
        self.result(&completion).map(|_| ())
    }

    /// Notes how long a call took, where algorithms are tried; and says whether others like it go by the same from now on.
    fn is_decided(&self, plan: &Prepared, took: Duration) -> bool {
        let Ok(mut desk) = self.desk.lock() else {
            return false;
        };
        let Some(online) = &mut desk.online else {
            return true;
        };
        if self.membership.rank() == 0 {
            online.note(&plan.load, &self.forced, plan.algorithm, took);
        }
        !online.is_open(&plan.load, &self.forced)
    }

    /// Runs a call on its caller's memory, where nothing else is under way: `begin` goes ahead and says what is left of it.
    fn run_own(
        &self,
        floor: &mut Floor,
        placed: &Placed,
        buffers: [Region<'_>; 2],
        begin: impl FnOnce(&mut Floor, &Placed, &Work<'_>) -> std::result::Result<Option<Run>, Cause>,
    ) -> Led {
        let mut scratch = std::mem::take(&mut floor.scratch);
        let work = placed.work(buffers, &mut scratch);
        let (recorder, seq) = (&self.recorder, placed.call.seq);
        let mark = recorder.is_traced().then(|| recorder.mark(seq));
        let lead = || {
            let Some(run) = begin(floor, placed, &work)? else {
                return Ok(());
            };
            floor.ways.general += 1;
            let own = Own {
                run,
                work: &work,
                call: placed.call,
                bytes: placed.bytes,
                lanes: placed.lanes(),
                since: None,
            };
            self.lead(floor, Some(own), Until::OwnDone)
        };
        let led = catch_unwind(AssertUnwindSafe(lead));
        if led.is_err() {
            self.break_down(floor);
        }
        floor.scratch = scratch;
        let end = led.as_ref().map_or(End::BROKEN, End::of);
        match mark {
            Some(mark) => mark.end(end),
            None => recorder.end(seq, end),
        }
        led
    }

    /// Gives up the floor after [`Engine::run_own`], and says how it went.
    fn end_own(&self, floor: Held<'_>, led: Led) -> Result<()> {
        self.step_back(floor);
        match led {
            Ok(outcome) => outcome.map_err(Error::Failed),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Begins a collective call, which goes on by itself.
    pub(super) fn start(
        self: &Arc<Self>,
        collective: Collective,
        (memory, places): ([Hold; 2], Places),
        what: (usize, DType, Reducing),
        start: Start,
    ) -> Result<()> {
        let mut desk = self.open_desk_for(&start)?;
        if desk.online.is_some() {
            let (count, dtype, _) = what;
            let load = self.load(collective, count, dtype, places.given());
            desk = self.tune(desk, &load, !start.attended)?;
        }
        let placed = self.place(&mut desk, collective, what, places)?;
        start.completion.set_mark(self.recorder.mark(placed.call.seq));
        if placed.is_empty() && start.gate.is_none() {
            self.next.settle();
            drop((memory, desk));
            start.completion.finish(Ok(None));
            return Ok(());
        }
        let collecting = Collecting::new(placed, memory, start.completion);
        let job = Job {
            what: What::Collective(Box::new(collecting)),
            gate: start.gate,
        };
        self.begin(desk, job, start.attended);
        Ok(())
    }

    /// Begins to send a message.
    pub(super) fn send(
        self: &Arc<Self>,
        data: Hold,
        dtype: DType,
        (to, tag): (usize, i32),
        start: Start,
    ) -> Result<()> {
        let desk = self.open_desk_for(&start)?;
        let attended = start.attended;
        self.begin(desk, self.sending(data, dtype, (to, tag), start), attended);
        Ok(())
    }

    /// A send as a job.
    fn sending(&self, data: Hold, dtype: DType, (to, tag): (usize, i32), start: Start) -> Job {
        let sending = Sending::new(data, tag, dtype, start.completion.clone());
        let mark = self.recorder.message(&sending.transfer(to));
        start.completion.set_mark(mark);
        Job {
            what: What::Send(to, sending),
            gate: start.gate,
        }
    }

    /// Begins to receive a message.
    pub(super) fn receive(self: &Arc<Self>, data: Hold, wanted: Wanted, start: Start) -> Result<()> {
        let desk = self.open_desk_for(&start)?;
        let attended = start.attended;
        self.begin(desk, self.receiving(data, wanted, start), attended);
        Ok(())
    }

    /// A receive as a job.
    fn receiving(&self, data: Hold, wanted: Wanted, start: Start) -> Job {
        let posted = Posted::new(data, wanted, start.completion.clone());
        let mark = self.recorder.message(&posted.transfer());
        start.completion.set_mark(mark);
        Job {
            what: What::Receive(posted),
            gate: start.gate,
        }
    }

    /// The desk for something that goes on by itself. The thread that leads it is there before it gets its place.
    fn open_desk_for(self: &Arc<Self>, start: &Start) -> Result<MutexGuard<'_, Desk>> {
        self.membership.check()?; // a forked child has no such thread, and locks that nobody gives back
        if !start.attended {
            self.need_thread()?;
        }
        self.open_desk()
    }

    fn begin(&self, desk: MutexGuard<'_, Desk>, job: Job, attended: bool) {
        self.post(desk, job);
        if !attended {
            self.nudge();
        }
    }

    /// Hands a job to whoever leads.
    fn post(&self, mut desk: MutexGuard<'_, Desk>, job: Job) {
        desk.incoming.push(job);
        self.mail.store(true, SeqCst);
        self.turns().left.store(true, SeqCst);
        self.next.settle();
    }

    /// How an operation that has ended came out, for whoever waited for it.
    pub(super) fn result(&self, completion: &Completion) -> Result<Option<crate::exec::Received>> {
        let outcome = completion.outcome();
        let outcome: Outcome =
            outcome.ok_or_else(|| Error::internal("an operation was given up half done"))?;
        outcome.map_err(Error::Failed)
    }

    /// What this rank has called, if its communicator came to no bad end.
    pub(super) fn made(&self) -> Option<Made> {
        if self.closed().is_some() {
            return None;
        }
        let calls = self.calls();
        let records = self.recorder.records();
        let mut last = records.iter().rev().filter_map(Record::call);
        Some(Made {
            calls,
            last: last.find(|call| call.seq.wrapping_add(1) == calls).copied(),
        })
    }

    /// Accepts no call any more, waits for those under way, before that until `await_streams` returns, and looks whether they were the
    /// same on another rank.
    pub(super) fn finalize(&self, await_streams: impl FnOnce()) -> Result<()> {
        // Under the lock: who has the desk gets its place first.
        let desk = self.open_desk_anyway()?;
        self.finalized.store(true, SeqCst);
        drop(desk);
        await_streams();
        self.drain();
        // A call that another thread has running ends first.
        self.memory()?;
        if self.closed().is_none()
            && let Some(cause) = past::at_end(&self.membership, self.calls())
        {
            self.close(self.membership.raise(cause));
        }
        Ok(())
    }

    /// Waits until nothing is under way.
    pub(super) fn drain(&self) {
        self.wait_until(Until::Idle);
    }

    fn open_desk(&self) -> Result<MutexGuard<'_, Desk>> {
        let desk = self.open_desk_anyway()?;
        self.accepts()?;
        Ok(desk)
    }

    /// # Errors
    /// Why no operation begins any more.
    pub(super) fn accepts(&self) -> Result<()> {
        if self.finalized.load(SeqCst) {
            return Err(Error::usage("the communicator was finalized: make a new one"));
        }
        if let Some(cause) = self.closed.get() {
            return Err(Error::Closed(cause.clone()));
        }
        match self.membership.verdict() {
            Some(cause) => Err(Error::Failed(self.close(cause))),
            None => Ok(()),
        }
    }

    fn open_desk_anyway(&self) -> Result<MutexGuard<'_, Desk>> {
        self.membership.check()?;
        self.desk.lock().map_err(|_| panicked())
    }

    /// Bytes of links and of scratch. Waits until whoever leads steps back.
    pub(super) fn memory(&self) -> Result<(usize, usize)> {
        self.with_floor(|floor| (floor.links.memory(), floor.scratch.capacity() * size_of::<u64>()))
    }

    /// How many calls went a short way.
    #[cfg(all(test, feature = "cli"))]
    pub(super) fn short_calls(&self) -> Result<u64> {
        self.with_floor(|floor| floor.ways.short)
    }

    /// Tells which ways calls and messages have gone.
    pub(super) fn tell_ways(&self) {
        if !enabled!(Level::DEBUG) {
            return;
        }
        let (rank, ranks) = (self.membership.rank(), self.membership.ranks());
        // Only a forked child has no floor.
        let _ = self.with_floor(|floor| {
            floor.links.tell();
            let floor::Ways {
                short,
                straight,
                general,
            } = floor.ways;
            debug!(
                rank,
                ranks, "calls: {short} went a short way, {straight} a straight one, {general} by the general executor"
            );
        });
    }

    /// Makes `memory` known to peers, if it is of a kind that they can read. Waits until whoever leads steps back.
    pub(super) fn register(&self, memory: &Region<'_>) -> Result<()> {
        let made_known = self.with_floor(|floor| {
            if let Some(cause) = self.closed.get() {
                return Err(Error::Closed(cause.clone()));
            }
            floor.links.show_cards(memory);
            let made_known = floor.links.get_ready([memory, &Region::empty()], None);
            made_known.map_err(|(peer, error)| {
                Error::Failed(self.fall_by(floor, Fault::Wire { peer, error }, None))
            })
        });
        made_known?
    }

    /// Gives a descriptor to `peer`, on the same host.
    ///
    /// # Errors
    /// As for a link.
    #[cfg(feature = "cuda")]
    pub(super) fn give(&self, peer: usize, fd: OwnedFd) -> Result<()> {
        self.with_floor(|floor| floor.links.give(peer, fd))?
    }

    /// A descriptor that `peer` has given, if one has come.
    ///
    /// # Errors
    /// As for a link.
    #[cfg(feature = "cuda")]
    pub(super) fn given(&self, peer: usize) -> Result<Option<OwnedFd>> {
        self.with_floor(|floor| floor.links.given(peer))?
    }

    /// Does something with the floor, once whoever leads has stepped back.
    fn with_floor<R>(&self, body: impl FnOnce(&mut Floor) -> R) -> Result<R> {
        self.membership.check()?;
        let mut floor = self.wait_for_floor();
        let done = catch_unwind(AssertUnwindSafe(|| body(&mut floor)));
        if done.is_err() {
            self.break_down(&mut floor);
        }
        self.step_back(floor);
        done.map_err(|panic| resume_unwind(panic))
    }

    /// Gives a call its place: from here on the ranks' call numbers go on together.
    fn place(
        &self,
        desk: &mut Desk,
        collective: Collective,
        (count, dtype, op): (usize, DType, Reducing),
        places: Places,
    ) -> Result<Placed> {
        let call = Call {
            seq: self.calls(),
            collective,
            count: count as u64,
            dtype,
            op: op.op,
        };
        if let Some(cause) = self.lost_before(&call) {
            return Err(Error::Failed(self.close(cause)));
        }
        let load = self.load(collective, count, dtype, places.given());
        // How much given blocks are together a load may not tell.
        let given = places.given().map(|blocks| blocks.total(0).max(blocks.total(1)));
        let bytes = given.unwrap_or(load.count).saturating_mul(load.element) as u64;
        let Desk {
            online, explained, ..
        } = &mut *desk;
        let counting = online.as_mut();
        let tried = counting.and_then(|online| usual(|| online.count(&load, &self.machine, &self.forced)));
        if let Some(explained) = explained {
            let decided = online.as_ref();
            let decided = decided.and_then(|online| online.decided(&load, &self.forced));
            // What another is tried with is told when the model's choice has its turn, or one is decided on.
            if decided.is_some() || tried.is_none_or(|tried| self.is_chosen(&load, tried)) {
                self.tell_plan(explained, &load, decided, dtype);
            }
        }
        if let Some(algorithm) = tried {
            desk.plans.forget_others(&load, algorithm);
        }
        let choose = || tried.map_or_else(|| self.choose(&load), Ok);
        let why = || match tried {
            None => self.why(&load),
            Some(_) => "CCL_TUNE=online".to_owned(),
        };
        let plan = desk.plans.prepare(
            load,
            self.membership.rank(),
            &self.machine,
            places.begins(),
            (choose, why),
        )?;
        let mut placed = Placed::new(plan, places, call, 0);
        let place = self.next.take(placed.width(), call.mark());
        (placed.call.seq, placed.first_lane, placed.trail) = (place.seq, place.lane, place.trail);
        let (call, plan) = (placed.call, &placed.plan);
        self.recorder.call(words_of(call.signature()), plan.number, bytes);
        trace!(
            rank = self.membership.rank(),
            ranks = self.membership.ranks(),
            "call: {call} by {}, tiles: {}, in flight: {}",
            plan.algorithm,
            placed.tiling.tiles,
            plan.copies
        );
        Ok(Placed {
            scalar: op.scalar,
            bytes,
            ..placed
        })
    }

    /// Ends the communicator because of what went wrong here, on this rank even if those who should tell all are slow.
    #[cfg(feature = "cuda")]
    pub(super) fn fail(&self, cause: Cause) {
        self.close(self.membership.end(cause));
    }

    /// What has ended the communicator, or, if it `is_used`, will: a rank that died.
    #[cfg(feature = "cuda")]
    pub(super) fn hopeless(&self, is_used: bool) -> Option<Cause> {
        let dead = || reasons::long_dead(&self.membership, None).filter(|_| is_used);
        self.failure().or_else(dead)
    }

    /// Closes the communicator, once.
    pub(super) fn close(&self, cause: Cause) -> Cause {
        let mut is_first = false;
        let cause = self.closed.get_or_init(|| {
            let (rank, ranks) = (self.membership.rank(), self.membership.ranks());
            warn!(rank, ranks, "failure: {cause}; the communicator is closed");
            is_first = true;
            cause
        });
        if is_first {
            #[cfg(feature = "cuda")]
            self.membership.changed();
            self.tell_records(cause);
        }
        cause.clone()
    }

    /// Tells what this rank has called lately, when something went wrong.
    #[cold]
    fn tell_records(&self, cause: &Cause) {
        let (rank, ranks) = (self.membership.rank(), self.membership.ranks());
        let records = self.recorder.records();
        let comm = self.membership.name();
        match (self.recorder).write_flight((rank, ranks, &comm), cause, &records) {
            Ok(None) => {}
            Ok(Some(path)) => info!(
                rank,
                ranks,
                "failure: the last operations are in {}",
                path.display()
            ),
            Err((path, error)) => log::complain(&format!(
                "CCL_FLIGHT_FILE: cannot write {}: {error}",
                path.display()
            )),
        }
        let first = records.len().saturating_sub(MOST_TOLD);
        for record in &records[first..] {
            info!(rank, ranks, "record: {record}");
        }
    }

    /// A call as the planner sees it.
    pub(super) fn load(
        &self,
        collective: Collective,
        count: usize,
        dtype: DType,
        given: Option<&Blocks>,
    ) -> Load {
        let ranks = self.membership.ranks();
        let load = match given {
            None => Load::new(collective, ranks, count, dtype),
            Some(blocks) => Load::given(collective, ranks, blocks, dtype),
        };
        if self.reproducible {
            load.in_order(dtype)
        } else {
            load
        }
    }

    pub(super) fn choose(&self, load: &Load) -> Result<&'static Algorithm> {
        // Ranks choose alike, whatever the threads that call have set.
        usual(|| choose::algorithm(load, &self.machine, &self.forced))
    }

    /// Whether a call goes by an algorithm where nothing was tried.
    fn is_chosen(&self, load: &Load, algorithm: &Algorithm) -> bool {
        self.choose(load)
            .is_ok_and(|chosen| chosen.name == algorithm.name)
    }

    /// What calls like this one go by because it was the fastest of those that were tried.
    ///
    /// # Errors
    /// [`Error::Usage`] in a forked child.
    pub(super) fn decided(&self, load: &Load) -> Result<Option<&'static Algorithm>> {
        let desk = self.open_desk_anyway()?;
        let online = desk.online.as_ref();
        Ok(online.and_then(|online| online.decided(load, &self.forced)))
    }

    /// Why a call goes by the algorithm that it goes by: by `decided`, if that is one.
    pub(super) fn explain(&self, load: &Load, decided: Option<&'static Algorithm>) -> Result<Explanation> {
        let extent_of = |algorithm: &Algorithm| Ok(explain::extent(algorithm, load, &self.machine));
        explain::explain(load, &self.machine, &self.forced, decided, LINKS, extent_of)
    }

    /// The same of a call that is made, which needs the proof as well.
    fn explain_call(&self, load: &Load, decided: Option<&'static Algorithm>) -> Result<Explanation> {
        let extent_of = |algorithm: &Algorithm| {
            let what = (load.collective, load.ranks, load.order);
            proofs::proof(algorithm, what, self.machine.groups()).map(|(proof, _)| proof.extent)
        };
        explain::explain(load, &self.machine, &self.forced, decided, LINKS, extent_of)
    }

    /// Tells why a call gets its algorithm, once for each of the same kind and length.
    fn tell_plan(
        &self,
        explained: &mut HashSet<Load>,
        load: &Load,
        decided: Option<&'static Algorithm>,
        dtype: DType,
    ) {
        if explained.len() >= MOST_EXPLAINED || !explained.insert(*load) {
            return;
        }
        if let Ok(explanation) = self.explain_call(load, decided) {
            let (name, bytes, ranks) = (load.collective.name(), load.bytes(), load.ranks);
            let (comm, cores) = (self.membership.name(), self.machine.cores());
            log::explain(&format!(
                "plan: {name} of {bytes} bytes ({} x {dtype}), {ranks} ranks on {cores} cores, communicator {comm}\n{explanation}",
                load.count
            ));
        }
    }

    /// What made [`Engine::choose`] choose, for whoever reads the log.
    fn why(&self, load: &Load) -> String {
        self.explain_call(load, None).map_or_else(
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
            .or_else(|| reasons::long_dead(&self.membership, Some((*call).into())))
    }
}

/// The longest message and the lanes of a call.
pub(super) const LINKS: [usize; 2] = [MAX_MESSAGE, CALL_LANES];
/// Calls that are explained at most.
const MOST_EXPLAINED: usize = 4096;
/// Records that the log is told when something went wrong.
const MOST_TOLD: usize = 16;

fn panicked() -> Error {
    Error::internal("an earlier call on this communicator panicked")
}
