//! [`Job`]: an operation that goes on by itself, with all that it needs.

use crate::{
    comm::{
        buffers::Places,
        plans::{HELPED, Prepared},
    },
    exec::{Completion, Fault, Lend, Outcome, Posted, Progress, Run, Sending, Work},
    mem::{Hold, Region},
    plan::{
        cost::Order,
        layout::{Blocks, Tiling},
    },
    transport::{CALL_LANES, Header, Wires},
    types::Call,
};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
    time::Instant,
};

/// The least bytes of memory that are mapped by themselves.
const PAGE: usize = 4 << 10;

/// Whether what comes before an operation in its stream is over.
#[derive(Default)]
pub(in crate::comm) struct Gate {
    open: AtomicBool,
    /// What tells that the gate is open, where nobody opens it: it must be looked at.
    watched: Option<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl Gate {
    /// A gate that is open once `is_open` says so.
    #[cfg(feature = "cuda")]
    pub(in crate::comm) fn watching(is_open: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Gate {
            watched: Some(Box::new(is_open)),
            ..Gate::default()
        }
    }

    pub(in crate::comm) fn open(&self) {
        self.open.store(true, Release); // pairs with the Acquire in `is_open`: what came before is seen
    }

    fn is_open(&self) -> bool {
        match &self.watched {
            None => self.open.load(Acquire),
            Some(is_open) => is_open(),
        }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_open() {
            "Gate(open)"
        } else {
            "Gate(closed)"
        })
    }
}

/// An operation that goes on by itself.
#[derive(Debug)]
pub(in crate::comm) struct Job {
    pub(in crate::comm) what: What,
    /// It does not begin before that is open.
    pub(in crate::comm) gate: Option<Arc<Gate>>,
}

/// What a job is.
pub(in crate::comm) enum What {
    Collective(Box<Collecting>),
    /// To this rank.
    Send(usize, Sending),
    Receive(Posted),
}

impl fmt::Debug for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Collective(collecting) => collecting.placed.call.fmt(f),
            What::Send(peer, sending) => write!(f, "to {peer}: {sending:?}"),
            What::Receive(posted) => posted.fmt(f),
        }
    }
}

impl Job {
    /// Gives back all that it holds and says how it ended.
    pub(super) fn end(self, outcome: Outcome) {
        match self.what {
            What::Collective(collecting) => collecting.end(outcome),
            What::Send(_, sending) => sending.end(outcome),
            What::Receive(posted) => posted.end(outcome),
        }
    }

    /// Its memory, if its messages are so long that they may be left where they lie, or come so, and to whom they go, if that is one rank.
    pub(super) fn lent(&self) -> Option<([Region<'_>; 2], Option<usize>)> {
        match &self.what {
            What::Collective(call) => {
                let memory = [call.memory[0].region(), call.memory[1].region()];
                call.placed.plan.lends.is_some().then_some((memory, None))
            }
            What::Send(to, sending) => sending.lent().map(|data| ([data, Region::empty()], Some(*to))),
            What::Receive(posted) => posted.is_long().then(|| ([Region::empty(); 2], None)),
        }
    }

    pub(super) fn may_begin(&self) -> bool {
        self.gate.as_ref().is_none_or(|gate| gate.is_open())
    }

    /// Whether its gate must be looked at, since nobody says when it opens.
    pub(super) fn is_watched(&self) -> bool {
        self.gate.as_ref().is_some_and(|gate| gate.watched.is_some())
    }
}

/// A collective call with its place among the communicator's.
#[derive(Debug, Clone)]
pub(in crate::comm) struct Placed {
    pub(super) plan: Arc<Prepared>,
    pub(super) tiling: Tiling,
    pub(super) places: Places,
    pub(super) call: Call,
    /// What this rank's input is multiplied by, if it is: other ranks may have another.
    pub(super) scalar: Option<u64>,
    /// The first of its lanes.
    pub(super) first_lane: usize,
    /// The trail of the calls before it.
    pub(super) trail: u32,
    /// Bytes of the vector: of given blocks, of the longer of this rank's two sides.
    pub(super) bytes: u64,
    /// Whether messages that the plan leaves for peers to take are copied all the same.
    pub(super) copies_all: bool,
}

impl Placed {
    pub(in crate::comm) fn new(plan: Arc<Prepared>, places: Places, call: Call, first_lane: usize) -> Self {
        let tiling = match places.given() {
            None => plan.tiling,
            Some(blocks) => {
                let longest = blocks.longest().div_ceil(plan.layout.grains);
                Tiling::of_pieces(plan.tiling.elements, longest)
            }
        };
        Placed {
            plan,
            tiling,
            places,
            call,
            scalar: None,
            first_lane,
            trail: 0,
            bytes: 0,
            copies_all: false,
        }
    }

    /// Whether both are the same call, but for their places.
    pub(super) fn repeats(&self, other: &Placed) -> bool {
        let what = |placed: &Placed| Call {
            seq: 0,
            ..placed.call
        };
        what(self) == what(other) && self.places == other.places && self.scalar == other.scalar
    }

    /// Whether there is nothing to do on any rank. Of given blocks a rank says also that it has none.
    pub(super) fn is_empty(&self) -> bool {
        self.call.count == 0 && self.places.given().is_none()
    }

    /// What is to be done with these buffers.
    pub(super) fn work<'m>(
        &'m self,
        [input, output]: [Region<'m>; 2],
        scratch: &'m mut Vec<u64>,
    ) -> Work<'m> {
        let Placed {
            plan,
            tiling,
            places,
            call,
            scalar,
            first_lane,
            trail: _,
            bytes,
            copies_all,
        } = self;
        let words = Work::scratch_bytes(&plan.schedule, tiling, plan.copies, call.dtype).div_ceil(8);
        if scratch.len() < words {
            scratch.resize(words, 0);
        }
        let element = call.dtype.size();
        // Given blocks may lie far apart.
        let (message, block, moved) = match places.given() {
            Some(blocks) => {
                let moved = [0, 1].map(|side| blocks.total(side) * element);
                (blocks.longest().min(tiling.elements), blocks.longest(), moved)
            }
            None => {
                let block = plan.load.count.div_ceil(plan.load.ranks);
                (tiling.elements, block, [input.len(), output.len()])
            }
        };
        let vector = moved[0].max(moved[1]);
        // Between blocks that lie apart there may be other memory, also such in which messages lie: that is read by others as soon as it is
        // written, and so is never written past the caches. Where less than a page is left over it is the caller's, as the blocks are.
        let is_whole = |blocks: &Blocks| (blocks.span(1) - blocks.total(1)) * element < PAGE;
        let is_whole = places.given().is_none_or(is_whole);
        let in_place = input.overlaps(&output);
        // What has just been read to be reduced lies in a cache. All-reduce in place of 2 ranks on an Intel Xeon, past the caches and
        // not, in ms: 8 MiB 1.7 and 0.94, 16 MiB 3.3 and 1.9, 64 MiB 13.7 and 9.9, 256 MiB 55 and 41.
        let is_at_hand = in_place && plan.load.collective.reduces();
        let lend = plan.lends.as_ref().map(|lends| Lend {
            proof: &lends.proof,
            rank: lends.rank,
            in_place,
            read: lends.read,
            paged: lends.paged,
            taken: match copies_all {
                true => usize::MAX,
                false => lends
                    .taken
                    .from(message * element, block.saturating_mul(element), vector),
            },
        });
        Work {
            schedule: &plan.schedule,
            grains: places.grains(plan.layout),
            tiling: *tiling,
            copies: plan.copies,
            channels: plan.channels,
            first_lane: *first_lane,
            dtype: call.dtype,
            op: call.op,
            tree: plan.load.order != Order::Any,
            scalar: *scalar,
            header: self.header(),
            input,
            output,
            scratch: Region::of_mut(scratch),
            streams: moved[1] >= plan.streamed && !is_at_hand && is_whole,
            past: vector >= plan.past,
            lend,
            helpers: plan.helpers.as_ref().filter(|_| *bytes >= HELPED),
        }
    }

    fn header(&self) -> Header {
        self.call.header(self.trail)
    }

    /// How many lanes it has.
    #[inline]
    pub(super) fn width(&self) -> usize {
        if self.is_empty() {
            return 0;
        }
        self.plan.copies * self.plan.channels
    }

    /// Its lanes, a bit for each.
    pub(super) fn lanes(&self) -> u32 {
        (0..self.width()).fold(0, |lanes, k| lanes | 1 << ((self.first_lane + k) % CALL_LANES))
    }
}

/// A collective call that goes on by itself.
pub(in crate::comm) struct Collecting {
    pub(super) placed: Placed,
    pub(super) memory: [Hold; 2],
    pub(super) completion: Arc<Completion>,
    scratch: Vec<u64>,
    /// Once it has begun.
    run: Option<Run>,
    /// Since when it stands still, if it does.
    since: Option<Instant>,
}

impl Collecting {
    pub(super) fn new(placed: Placed, memory: [Hold; 2], completion: Arc<Completion>) -> Self {
        Collecting {
            placed,
            memory,
            completion,
            scratch: Vec::new(),
            run: None,
            since: None,
        }
    }

    pub(super) fn has_begun(&self) -> bool {
        self.run.is_some()
    }

    /// Does what can be done without waiting.
    pub(super) fn poll<W: Wires>(&mut self, wires: &W) -> Result<Progress, Fault> {
        let memory = [self.memory[0].region(), self.memory[1].region()];
        let work = self.placed.work(memory, &mut self.scratch);
        let begin = || {
            self.completion.begins();
            Run::new(&work)
        };
        let progress = self.run.get_or_insert_with(begin).poll(&work, wires)?;
        match progress {
            Progress::Blocked => {
                self.since.get_or_insert_with(Instant::now);
            }
            Progress::Moved | Progress::Done => self.since = None,
        }
        Ok(progress)
    }

    /// Finds that a rank sends something else.
    pub(super) fn check<W: Wires>(&mut self, wires: &W) -> Result<(), Fault> {
        let Some(run) = &self.run else { return Ok(()) };
        // It has no lanes of its own: what comes on them is for other calls.
        if self.placed.is_empty() {
            return Ok(());
        }
        let memory = [self.memory[0].region(), self.memory[1].region()];
        run.check_all(&self.placed.work(memory, &mut self.scratch), wires)
    }

    /// The ranks that it waits for, and since when, if it stands still.
    pub(super) fn waits(&self) -> Option<(Vec<usize>, Instant)> {
        Some((self.run.as_ref()?.waits_for(), self.since?))
    }

    /// Its number, and how many bytes of the vector are done with, if it stands still.
    pub(super) fn done(&mut self) -> Option<(u32, u64)> {
        self.since?;
        let memory = [self.memory[0].region(), self.memory[1].region()];
        let work = self.placed.work(memory, &mut self.scratch);
        Some((
            self.placed.call.seq,
            self.run.as_ref()?.done(&work, self.placed.bytes),
        ))
    }

    /// Gives back all that it holds and says how it ended.
    fn end(self, outcome: Outcome) {
        let Collecting {
            memory, completion, ..
        } = self;
        drop(memory);
        completion.finish(outcome);
    }
}
