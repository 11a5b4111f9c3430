//! [`Flags`]: how the streams of a host's ranks meet, without the hosts in the way.
//!
//! The flags are words of pinned host memory that all ranks have mapped: a slot for each ordered pair of ranks and each of two
//! phases, A and B. In a meeting of a phase a rank's stream does, in this order,
//!
//! ```text
//! write 1 to slot[me → j], wait for 1 in slot[j → me], write 0 to slot[j → me]        each for all other ranks j
//! ```
//!
//! and a communicator's meetings are of phases A, B, A, B and so on. The values are the same each time, so that a captured graph does
//! what a call does, any number of times, and both in any mixture.
//!
//! *No meeting is lost.* A slot has one writer and one reader, and is 0 whenever its writer writes 1: so each 1 is waited for once.
//! For i writes slot A[i → j] again only when it has been through B, for which it has waited for a 1 of j's in B[j → i]. This 1 is of the
//! same round, because by the same argument none was left over; and j's stream wrote it after it had set A[i → j] back. The same holds of
//! B with the A of the next round. Who is through a meeting has seen all others' flags, hence what their streams did before.
//!
//! Where kernels know when they are through (see [`Flags::meeting`]) they set the flags, and no stream writes any: each write by a stream
//! costs the device half a microsecond in which no other stream's is done. A flag is a byte then, and those for which a rank waits are
//! together in two words, so that its stream waits for all at once. Kernels set them back: the kernel at the end of phase A's part, before it
//! tells that it has come to B, those of A; the one that begins the next round those of B. No meeting is lost by the same argument.
//!
//! When the communicator has failed the host writes 1 to all that its rank's stream waits for, again and again, because the stream sets
//! back what it has waited for. It first says so in a word that all ranks see: what streams that were let go write to others is no sign
//! that anything is done.
//!
//! Where kernels tell, they use the buffers of other ranks, and nobody may leave phase B while they do. There a stream is let go out of phase A,
//! and out of B only if its own kernel has said that it did nothing. For the kernels of a call agree whether all ranks are in it
//! (`is_agreed` in sides.h). If so all of them run, and B is told; if not none uses anything, in this call and in all later ones.

use super::{
    driver::{Capture, Current, OnFlag, Stream},
    kernels::args::Meeting,
};
use crate::{
    mem::Region,
    sys::memfd::{Layout, Shared},
    types::{Error, Result},
};
use std::{
    fmt,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release, SeqCst},
        },
    },
};

/// The most ranks that there are slots for.
pub(crate) const MOST_RANKS: usize = 16;

/// One of a round's two meetings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    A = 0,
    B = 1,
}

/// A rank's end of the flags of a communicator.
pub(crate) struct Flags {
    board: Shared<Board>,
    /// By which the device knows the board.
    address: u64,
    rank: usize,
    ranks: usize,
    uses: Arc<Uses>,
}

/// Of flags, what streams may still do with them.
#[derive(Default)]
struct Uses {
    /// The number of the last call that was given to a stream and not captured.
    given: AtomicU32,
    /// Captured calls in graphs that are there.
    captured: AtomicUsize,
    /// Whether the rank makes no calls any more.
    has_left: AtomicBool,
}

/// The memory that the ranks share.
#[repr(C)]
struct Board {
    /// By phase, by the rank that waits, by the one that writes.
    slots: [[[Line; MOST_RANKS]; MOST_RANKS]; 2],
    /// By rank, how far its calls are: see [`Point`].
    calls: [Line; MOST_RANKS],
    /// By rank, whether it lets its stream go because of a failure.
    failed: Line,
    /// By rank, whether none of its streams uses the memory of others any more, nor ever will.
    left: Line,
    /// By phase, by the rank that waits: a byte for each that tells it.
    arrivals: [[Bytes; MOST_RANKS]; 2],
}

// SAFETY: `repr(C)`, all atomics, aligned to a line.
unsafe impl Layout for Board {}

/// A line of the caches.
#[repr(C, align(64))]
struct Line([AtomicU32; 16]);

/// A byte for each rank, and what fills a line of the caches.
#[repr(C, align(64))]
struct Bytes([AtomicU64; 8]);

/// Words of them that have all bytes of ranks.
const WORDS: usize = MOST_RANKS / 8;

/// To which the last call has come; and whether a kernel did nothing.
#[derive(Clone, Copy)]
enum Point {
    Begun = 0,
    Ended = 1,
    Nobody = 2,
}

/// Whoever may use memory by the kernels of a communicator: its ranks, until they have left.
pub(crate) struct Users {
    board: Shared<Board>,
    ranks: usize,
}

/// Boards that no rank of this process uses any more, still pinned: who drops the last use may be a thread that must not call the driver.
static RETIRED: Mutex<Vec<Shared<Board>>> = Mutex::new(Vec::new());

/// Unpins these, for which the driver waits for all streams of the context.
pub(super) fn unpin_retired(current: &Current<'_>) {
    let boards = std::mem::take(&mut *retired());
    boards.iter().for_each(|board| current.unpin(all(board)));
}

impl Flags {
    /// Flags for `rank` of `ranks`, on a board of its own or, with a descriptor, on the one that was made by another; and the
    /// descriptor of the board.
    ///
    /// # Errors
    /// [`Error::System`] and [`Error::Cuda`].
    pub(crate) fn new(
        current: &Current<'_>,
        (rank, ranks): (usize, usize),
        board: Option<OwnedFd>,
    ) -> Result<(Self, OwnedFd)> {
        assert!(ranks <= MOST_RANKS, "more ranks than there are slots for");
        let made = match board {
            None => Shared::create("ccl-flags"),
            Some(fd) => Shared::open(fd.as_fd()).map(|board| (board, fd)),
        };
        let (board, fd) = made.map_err(|e| Error::system("no memory that the ranks share for flags", e))?;
        // SAFETY: it stays mapped until it was retired and is unpinned.
        let address = unsafe { current.pin(all(&board))? };
        let flags = Flags {
            board,
            address,
            rank,
            ranks,
            uses: Arc::default(),
        };
        live().push((Arc::downgrade(&flags.uses), flags.board.clone(), rank));
        Ok((flags, fd))
    }

    /// Has `stream` meet those of the other ranks.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(crate) fn meet(&self, current: &Current<'_>, stream: Stream, phase: Phase) -> Result<()> {
        let slot = |Slot { from, to }: Slot| self.address_of_word(self.slot(phase, from, to));
        let on = |step| match step {
            Step::Set(at) => OnFlag::Write(slot(at), SET),
            Step::Await(at) => OnFlag::Wait(slot(at), SET),
            Step::Clear(at) => OnFlag::Write(slot(at), 0),
        };
        // SAFETY: the board stays as long as a stream or a graph may use it: who drops this sees to that.
        unsafe { current.flags(stream, meeting(self.rank, self.ranks).map(on)) }
    }

    /// What this rank's kernel tells when it has come to a meeting: by bytes, once those of the meeting before are set back.
    pub(crate) fn meeting(&self, phase: Phase) -> Meeting {
        let before = match phase {
            Phase::A => Phase::B,
            Phase::B => Phase::A,
        };
        let told = others(self.rank, self.ranks).map(|to| self.bytes(phase, to) + self.rank as u64);
        Meeting::new(self.bytes(before, self.rank), told).expect("no more ranks than there are slots for")
    }

    /// Has `stream` wait until all others have told this rank that they have come to a meeting.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(crate) fn hear(&self, current: &Current<'_>, stream: Stream, phase: Phase) -> Result<()> {
        let at = self.bytes(phase, self.rank);
        let words = all_others(self.rank, self.ranks).into_iter().enumerate();
        let waits = words.filter(|(_, word)| *word != 0);
        let waits = waits.map(|(i, word)| OnFlag::Await(at + (i * size_of::<u64>()) as u64, word));
        // SAFETY: as in `meet`.
        unsafe { current.flags(stream, waits) }
    }

    /// Where the device has the bytes of a rank.
    fn bytes(&self, phase: Phase, rank: usize) -> u64 {
        let bytes = &self.board.arrivals[phase as usize][rank];
        self.address_of((&raw const *bytes).addr())
    }

    /// The word that says that a kernel of this rank's did nothing, because not all ranks were in its call.
    pub(crate) fn nobody(&self) -> u64 {
        self.address_of_word(self.point(Point::Nobody))
    }

    /// Whether there was such a kernel: there is no other one since.
    pub(crate) fn were_alone(&self) -> bool {
        self.point(Point::Nobody).load(Acquire) != 0
    }

    /// The next call's number. Calls are given to streams in the order of their numbers.
    pub(crate) fn give(&self) -> u32 {
        self.uses.given.fetch_add(1, Relaxed).wrapping_add(1)
    }

    /// Has `stream` say that it has come to the call with this number.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(crate) fn begin(&self, current: &Current<'_>, stream: Stream, call: u32) -> Result<()> {
        self.tell(current, stream, Point::Begun, call)
    }

    /// Has `stream` say that it is through with the call with this number.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(crate) fn end(&self, current: &Current<'_>, stream: Stream, call: u32) -> Result<()> {
        self.tell(current, stream, Point::Ended, call)
    }

    fn tell(&self, current: &Current<'_>, stream: Stream, point: Point, call: u32) -> Result<()> {
        let word = self.address_of_word(self.point(point));
        // SAFETY: as in `meet`.
        unsafe { current.write_flag(stream, word, call) }
    }

    /// Whether the stream has come to the call with this number.
    pub(crate) fn has_begun(&self, call: u32) -> bool {
        self.is_at(Point::Begun, call)
    }

    /// Whether the stream is through with it.
    pub(crate) fn has_ended(&self, call: u32) -> bool {
        self.is_at(Point::Ended, call)
    }

    /// Whether streams are through with all calls that were not captured.
    pub(crate) fn are_over(&self) -> bool {
        self.has_ended(self.uses.given.load(Relaxed))
    }

    /// Numbers go around.
    fn is_at(&self, point: Point, call: u32) -> bool {
        is_at(self.point(point), call)
    }

    /// Has the flags stay for as long as there is a graph of this capture's.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(crate) fn keep_for(self: &Arc<Self>, current: &Current<'_>, capture: Capture) -> Result<()> {
        self.uses.captured.fetch_add(1, Relaxed);
        current.keep(capture, Box::new(Captured(Arc::clone(self))))
    }

    /// Whether there are graphs that may still be launched.
    pub(crate) fn are_captured(&self) -> bool {
        self.uses.captured.load(SeqCst) > 0
    }

    /// Says to all ranks that this one lets its stream go.
    pub(crate) fn fail(&self) {
        self.board.failed.0[self.rank].store(1, Release);
    }

    /// The first rank that has said so.
    pub(crate) fn failed(&self) -> Option<usize> {
        let has_failed = |word: &AtomicU32| word.load(Acquire) != 0;
        self.board.failed.0.iter().position(has_failed)
    }

    /// Has this rank make no calls any more. All ranks are told so as soon as its streams and graphs are through with all: now, by the watch
    /// that lets them go, or when the last graph goes.
    pub(crate) fn leave(&self) {
        self.uses.has_left.store(true, SeqCst);
        self.tell_left();
    }

    /// Whether it makes none.
    pub(crate) fn has_left(&self) -> bool {
        self.uses.has_left.load(SeqCst)
    }

    /// Says so to all ranks, if its streams and graphs are through: whether they are. Who leaves and who drops the last graph at once both
    /// look after they have said what they did, so that one of them sees both.
    pub(crate) fn tell_left(&self) -> bool {
        let is_through = self.has_left() && !self.are_captured() && self.are_over();
        if is_through {
            self.board.left.0[self.rank].store(1, Release); // pairs with the Acquire in `have_left`
        }
        is_through
    }

    /// All ranks.
    pub(crate) fn users(&self) -> Users {
        Users {
            board: self.board.clone(),
            ranks: self.ranks,
        }
    }

    /// Lets the stream go, as far as it has come, and nobody's kernel uses what is its caller's.
    pub(crate) fn release(&self) {
        for from in others(self.rank, self.ranks) {
            for phase in [Phase::A, Phase::B] {
                self.slot(phase, from, self.rank).store(SET, Release);
            }
        }
        self.tell_all(Phase::A);
        if self.were_alone() {
            self.tell_all(Phase::B);
        }
    }

    /// Writes to this rank what kernels tell in a phase.
    fn tell_all(&self, phase: Phase) {
        let bytes = &self.board.arrivals[phase as usize][self.rank];
        for (to, word) in bytes.0.iter().zip(all_others(self.rank, self.ranks)) {
            to.store(word, Release);
        }
    }

    fn slot(&self, phase: Phase, from: usize, to: usize) -> &AtomicU32 {
        &self.board.slots[phase as usize][to][from].0[0]
    }

    fn point(&self, point: Point) -> &AtomicU32 {
        &self.board.calls[self.rank].0[point as usize]
    }

    /// By which the device knows a word of the board.
    fn address_of_word(&self, word: &AtomicU32) -> u64 {
        self.address_of((&raw const *word).addr())
    }

    /// And what lies at an address in it.
    fn address_of(&self, at: usize) -> u64 {
        self.address + (at - (&raw const *self.board).addr()) as u64
    }
}

impl Drop for Flags {
    fn drop(&mut self) {
        retired().push(self.board.clone());
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flags({:#x})", self.address)
    }
}

impl Users {
    /// Whether none of them uses the memory any more. Who died without leaving may: nobody knows until when the device works for it.
    pub(super) fn have_left(&self) -> bool {
        self.board.left.0[..self.ranks]
            .iter()
            .all(|word| word.load(Acquire) != 0)
    }
}

/// A captured call: the graph has it.
struct Captured(Arc<Flags>);

impl Drop for Captured {
    fn drop(&mut self) {
        self.0.uses.captured.fetch_sub(1, SeqCst);
        // The communicator may be gone. This calls no driver.
        self.0.tell_left();
    }
}

/// What is written to a slot of a meeting; between meetings it is 0.
const SET: u32 = 1;

/// The slot by which one rank tells another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Slot {
    from: usize,
    to: usize,
}

/// What a stream does with a slot.
#[derive(Debug, Clone, Copy)]
enum Step {
    Set(Slot),
    Await(Slot),
    Clear(Slot),
}

/// A meeting, as the stream of `me` has it.
fn meeting(me: usize, ranks: usize) -> impl Iterator<Item = Step> {
    let told = others(me, ranks).map(move |to| Step::Set(Slot { from: me, to }));
    let heard = move || others(me, ranks).map(move |from| Slot { from, to: me });
    told.chain(heard().map(Step::Await))
        .chain(heard().map(Step::Clear))
}

/// The words of a rank when all others have told it.
fn all_others(me: usize, ranks: usize) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    for rank in others(me, ranks) {
        words[rank / 8] |= 1 << (rank % 8 * 8);
    }
    words
}

fn others(me: usize, ranks: usize) -> impl Iterator<Item = usize> {
    (0..ranks).filter(move |&rank| rank != me)
}

fn all(board: &Shared<Board>) -> Region<'_> {
    // SAFETY: one mapping of so many bytes, all of them atomics.
    unsafe { Region::from_raw((&raw const **board).cast_mut().cast(), size_of::<Board>()) }
}

fn is_at(point: &AtomicU32, call: u32) -> bool {
    let last = point.load(Acquire); // what the stream did before is there
    last.wrapping_sub(call).cast_signed() >= 0
}

/// Whether no stream of this process waits for a flag, and no graph that is there can: while one does the driver unpins no memory, and
/// neither does who asks for that go on.
pub(crate) fn nothing_waits() -> bool {
    let mut live = live();
    live.retain(|(uses, ..)| uses.strong_count() > 0);
    live.iter().all(|(uses, board, rank)| {
        let is_over = |uses: Arc<Uses>| {
            let ended = &board.calls[*rank].0[Point::Ended as usize];
            uses.captured.load(Acquire) == 0 && is_at(ended, uses.given.load(Relaxed))
        };
        uses.upgrade().is_none_or(is_over)
    })
}

fn live() -> MutexGuard<'static, Vec<Live>> {
    static LIVE: Mutex<Vec<Live>> = Mutex::new(Vec::new());
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Flags that are there, their board, and the rank whose they are.
type Live = (Weak<Uses>, Shared<Board>, usize);

fn retired() -> MutexGuard<'static, Vec<Shared<Board>>> {
    RETIRED.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, HashSet};

    /// Streams at some moment: how many steps each has done, and the slots that are set.
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Moment {
        done: Vec<usize>,
        set: Vec<bool>,
    }

    /// A step with the slots of a phase.
    type InPhase = (usize, Step);

    /// A round of two meetings by streams alone, in these phases.
    fn by_streams(phases: [usize; 2]) -> impl Fn(usize, usize) -> Vec<InPhase> {
        move |me, ranks| {
            let in_phase = |phase| meeting(me, ranks).map(move |step| (phase, step));
            phases.into_iter().flat_map(in_phase).collect()
        }
    }

    /// A round of two meetings that kernels tell; flags are set back in time, or too late.
    fn by_kernels(in_time: bool) -> impl Fn(usize, usize) -> Vec<InPhase> {
        move |me, ranks| told_by_kernels(me, ranks, in_time)
    }

    fn told_by_kernels(me: usize, ranks: usize, in_time: bool) -> Vec<InPhase> {
        let told = |phase| others(me, ranks).map(move |to| (phase, Step::Set(Slot { from: me, to })));
        let heard = move |phase, step: fn(Slot) -> Step| {
            others(me, ranks).map(move |from| (phase, step(Slot { from, to: me })))
        };
        let arrives = heard(1, Step::Clear).chain(told(0)).chain(heard(0, Step::Await));
        let (back, told) = (heard(0, Step::Clear), told(1));
        let leaves: Vec<InPhase> = match in_time {
            true => back.chain(told).collect(),
            false => told.chain(back).collect(),
        };
        arrives.chain(leaves).chain(heard(1, Step::Await)).collect()
    }

    /// Goes through all interleavings of the steps of `ranks` streams in so many rounds.
    fn explore(ranks: usize, rounds: usize, round: impl Fn(usize, usize) -> Vec<InPhase>) -> usize {
        let all: Vec<Vec<InPhase>> = (0..ranks).map(|me| round(me, ranks)).collect();
        let steps = all[0].len();
        let slot = |phase: usize, Slot { from, to }: Slot| (phase * ranks + to) * ranks + from;
        // At which of its steps the other rank sets a slot that is awaited at step `at`; where a phase has two meetings, in this one.
        let told_at = |phase: usize, awaited: Slot, at: usize| {
            let is_it = |&(_, &(of, step)): &(usize, &InPhase)| {
                of == phase
                    && matches!(step, Step::Set(Slot { from, to }) if (from, to) == (awaited.from, awaited.to))
            };
            let sets: Vec<usize> = all[awaited.from]
                .iter()
                .enumerate()
                .filter(is_it)
                .map(|(i, _)| i)
                .collect();
            sets[usize::from(sets.len() > 1 && at > steps / 2)]
        };
        let first = Moment {
            done: vec![0; ranks],
            set: vec![false; 2 * ranks * ranks],
        };
        let (mut seen, mut left) = (HashSet::from([first.clone()]), vec![first]);
        while let Some(moment) = left.pop() {
            let mut goes_on = false;
            for (me, one) in all.iter().enumerate() {
                let (at, within) = (moment.done[me] / steps, moment.done[me] % steps);
                if at == rounds {
                    continue;
                }
                let mut next = moment.clone();
                let (phase, step) = one[within];
                match step {
                    Step::Set(to) => {
                        let was_set = std::mem::replace(&mut next.set[slot(phase, to)], true);
                        assert!(!was_set, "a flag that nobody has seen is written again");
                    }
                    Step::Await(from) if !moment.set[slot(phase, from)] => continue,
                    Step::Await(from) => {
                        let told = at * steps + told_at(phase, from, within);
                        let is_of_this_round = told + 1..=told + steps;
                        assert!(
                            is_of_this_round.contains(&moment.done[from.from]),
                            "a meeting of fewer than all"
                        );
                    }
                    Step::Clear(from) => {
                        let was_set = std::mem::replace(&mut next.set[slot(phase, from)], false);
                        // A round that begins with this has nothing to set back if it is the first.
                        let is_first = at == 0 && within < ranks - 1;
                        assert!(was_set || is_first, "a flag that was waited for is gone");
                    }
                }
                next.done[me] += 1;
                goes_on = true;
                if seen.insert(next.clone()) {
                    left.push(next);
                }
            }
            let all_done = moment.done.iter().all(|done| *done == rounds * steps);
            assert!(goes_on || all_done, "all wait: {:?}", moment.done);
        }
        seen.len()
    }

    #[test]
    fn in_all_interleavings_no_meeting_is_lost() {
        let rounds = [(2, 4), (3, 2), (4, 1)];
        let streams = rounds.map(|(ranks, rounds)| (ranks, explore(ranks, rounds, by_streams([0, 1]))));
        let kernels = rounds.map(|(ranks, rounds)| (ranks, explore(ranks, rounds + 1, by_kernels(true))));
        for seen in [streams, kernels].map(BTreeMap::from) {
            assert!(seen[&2] > 100 && seen[&3] > 1000 && seen[&4] > 10_000, "{seen:?}");
        }
    }

    #[test]
    #[should_panic(expected = "a flag that nobody has seen is written again")]
    fn with_one_phase_flags_would_be_lost() {
        explore(2, 1, by_streams([0, 0]));
    }

    /// How far a rank is in a call in which kernels use the buffers of all.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    enum Stage {
        Outside,
        /// It waits in phase A.
        Arrived,
        /// Its kernel has looked: whether all others were in the same turn.
        Looked(bool),
        /// Its kernel uses the buffers of all.
        Working,
        /// It waits in phase B, and whether its kernel did nothing.
        Through(bool),
    }

    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Ranks {
        at: Vec<(usize, Stage)>,
        /// The word that kernels share, and whether it says that there is no call of all any more.
        agreed: (usize, bool),
        failed: bool,
    }

    /// What the rank may do next. `alone`: it is let go out of phase B only when its kernel did nothing.
    fn goes_on(ranks: &Ranks, me: usize, alone: bool) -> Option<Ranks> {
        let (turn, stage) = ranks.at[me];
        let mut next = ranks.clone();
        let has_come = |(its, at): &(usize, Stage)| *its > turn || *its == turn && *at != Stage::Outside;
        let is_through =
            |(its, at): &(usize, Stage)| *its > turn || *its == turn && matches!(at, Stage::Through(_));
        next.at[me] = match stage {
            Stage::Outside => (turn, Stage::Arrived),
            Stage::Arrived if !ranks.failed && !ranks.at.iter().all(has_come) => return None,
            Stage::Arrived => {
                let is_in_turn = |(its, at): &(usize, Stage)| *its == turn && *at != Stage::Outside;
                (turn, Stage::Looked(ranks.at.iter().all(is_in_turn)))
            }
            Stage::Looked(all_here) => {
                // One step, on one word.
                let before = ranks.agreed;
                if before == (turn, false) {
                    next.agreed = if all_here { (turn + 1, false) } else { (turn, true) };
                }
                let agreed = before == (turn + 1, false) || all_here && before == (turn, false);
                (
                    turn,
                    if agreed {
                        Stage::Working
                    } else {
                        Stage::Through(true)
                    },
                )
            }
            Stage::Working => (turn, Stage::Through(false)),
            Stage::Through(nothing) => {
                let is_let_go = ranks.failed && (nothing || !alone);
                if !is_let_go && !ranks.at.iter().all(is_through) {
                    return None;
                }
                (turn + 1, Stage::Outside)
            }
        };
        Some(next)
    }

    /// Goes through all that ranks may do in so many turns, where the communicator fails at any moment, or never.
    fn leave_in_all_ways(ranks: usize, turns: usize, alone: bool) -> usize {
        let first = Ranks {
            at: vec![(0, Stage::Outside); ranks],
            agreed: (0, false),
            failed: false,
        };
        let (mut seen, mut left) = (HashSet::from([first.clone()]), vec![first]);
        while let Some(now) = left.pop() {
            let used = now.at.iter().filter(|(_, at)| *at == Stage::Working);
            for (turn, _) in used {
                let is_there = |(its, at): &(usize, Stage)| its == turn && *at != Stage::Outside;
                assert!(
                    now.at.iter().all(is_there),
                    "buffers of a rank that has left are used"
                );
            }
            let within = (0..ranks).filter(|&me| now.at[me].0 < turns);
            let mut next: Vec<Ranks> = within.filter_map(|me| goes_on(&now, me, alone)).collect();
            let are_done = now.at.iter().all(|(turn, _)| *turn == turns);
            assert!(are_done || !next.is_empty(), "all wait: {:?}", now.at);
            next.push(Ranks { failed: true, ..now });
            for next in next {
                if seen.insert(next.clone()) {
                    left.push(next);
                }
            }
        }
        seen.len()
    }

    #[test]
    fn nobody_uses_the_buffers_of_a_rank_that_was_let_go() {
        let seen = [(2, 3), (3, 2), (4, 2)].map(|(ranks, turns)| leave_in_all_ways(ranks, turns, true));
        assert!(seen[0] > 100 && seen[1] > 500 && seen[2] > 2000, "{seen:?}");
    }

    #[test]
    #[should_panic(expected = "buffers of a rank that has left are used")]
    fn let_go_at_any_time_it_would_leave_its_buffers_to_others() {
        leave_in_all_ways(2, 1, false);
    }

    #[test]
    #[should_panic(expected = "a flag that nobody has seen is written again")]
    fn set_back_too_late_flags_would_be_lost() {
        explore(2, 2, by_kernels(false));
    }
}
