//! [`Windows`]: collectives on device memory whose data stay on the devices of a host.
//!
//! Each rank has a window, a piece of device memory in which the kernels of all ranks read and write ([`Window`]). An operation goes
//! by rounds of as much as a window holds, in the caller's stream:
//!
//! ```text
//! copy the input into the own window; meet (A); one kernel, which waits for nothing; meet (B); copy the output out of the own window
//! ```
//!
//! The kernel reads all ranks' windows and writes this rank's part of a sum into the windows of those that want it, or into the caller's
//! memory. The streams meet by [`Flags`], without the hosts; so a stream that is captured into a graph gets the same work.
//!
//! Where all ranks are threads of one process that use one device, nothing is copied into windows. Calls are [`Meeting`]s then, but for
//! those that are captured into graphs, of which each rank launches its own: a rank's stream says in the rank's entry where its buffers
//! are, and kernels read and write all ranks' buffers, in one round, each byte once:
//!
//! ```text
//! a kernel writes the entry and tells the others; wait for them (A); one kernel, which tells the others at its end; wait for them (B)
//! ```
//!
//! Kernels do nothing where not all entries are of one call and turn, on which they agree: so calls that differ, or a rank that is not in a
//! call, spoil no memory, and a rank that is let go because of a failure knows that nobody uses its buffers.
//!
//! Beside that the hosts exchange what is called, when the streams have come to it, with the deadline of all operations. No stream waits
//! for this; but where the calls differ, or a rank is late or lost, the communicator fails, and [`Watch`] lets the stream go. In a graph
//! nothing is checked.

use super::{
    Communicator,
    board::Board,
    device::Device,
    engine::{Gate, Start},
    meeting::Meeting,
    watch::Watch,
};
use crate::{
    cuda::{
        driver::Current,
        flags::{Flags, MOST_RANKS, Phase},
        kernels::args::{InCall, MOST_SOURCES, Reducing as Reduction},
        window::{self, CARD, Card, Together, Window},
    },
    exec::{Completion, Outcome},
    mem::{Owned, Region},
    types::{Call, Cause, Collective, DType, Error, Op, Reducing, Result},
};
use std::{num::NonZero, os::fd::OwnedFd, sync::Arc, thread, time::Duration};
use tracing::{info, warn};

const _: () = assert!(MOST_RANKS <= MOST_SOURCES);

/// What a rank has of the windows of all, and how their streams meet.
#[derive(Debug)]
pub(super) struct Windows {
    pub(super) window: Window,
    flags: Arc<Flags>,
    /// Where all ranks are of one process and device.
    board: Option<Arc<Board>>,
}

impl Windows {
    /// Opens the windows of all ranks and proves that each can be read; `None` where that does not work, for a reason that the log has.
    ///
    /// # Errors
    /// What ended the exchange.
    pub(super) fn open(comm: &Communicator) -> Result<Option<Self>> {
        let (rank, ranks) = (comm.rank(), comm.ranks());
        let mut window = match comm.engine.membership.one_host() {
            _ if ranks > MOST_RANKS => Err(format!("there are more than {MOST_RANKS} ranks")),
            false => Err("the ranks are on several hosts".to_owned()),
            true if comm.config.algorithm.is_some() => Err("an algorithm is forced".to_owned()),
            true => Window::new(comm.config.context),
        };
        let card = window.as_ref().map_err(String::clone).and_then(Window::card);
        let mut cards = vec![0; CARD * ranks];
        comm.all_gather(card.as_ref().unwrap_or(&[0; CARD]), &mut cards)?;
        let (cards, _): (&[Card], _) = cards.as_chunks();
        let opened = card.and_then(|_| {
            let window = window.as_mut().map_err(|reason| reason.clone())?;
            if let Some(without) = cards.iter().position(|card| *card == [0; CARD]) {
                return Err(format!("rank {without} has no window"));
            }
            window.open(cards, rank)?;
            let written = window.memory().write(0, Region::of(&proof(rank)));
            written.map_err(in_a_line)?;
            let flags = (rank == 0).then(|| give_flags(comm, window)).transpose();
            flags.map_err(in_a_line)
        });
        let opened = agreed(comm, &mut window, opened)?;
        let tried = opened.and_then(|flags| {
            let window = window.as_ref().map_err(String::clone)?;
            prove(window, rank, ranks).map_err(in_a_line)??;
            let flags = flags.map_or_else(|| take_flags(comm, window), Ok);
            flags.map_err(in_a_line)
        });
        let tried = agreed(comm, &mut window, tried)?;
        match tried.and_then(|flags| Ok((window?, flags))) {
            Ok((window, flags)) => {
                let how = match window.is_together() {
                    true => "from buffer to buffer: all ranks are of one process and device",
                    false => "by windows on the devices",
                };
                info!(rank, ranks, "init: collectives on device memory go {how}");
                let flags = Arc::new(flags);
                let board = (window.is_together()).then(|| board(comm, &window)).transpose()?;
                Watch::begin(&comm.engine, Arc::clone(&flags))?;
                Ok(Some(Windows { board, window, flags }))
            }
            Err(reason) => {
                warn!(
                    rank,
                    ranks, "init: device memory goes through host memory: {reason}"
                );
                Ok(None)
            }
        }
    }

    /// Whether this operation goes by windows, if it has elements: all ranks say the same.
    pub(super) fn take(collective: Collective, (_, _, op): (usize, DType, Reducing)) -> bool {
        collective.has_vector() && !collective.has_given_blocks() && op.op != Op::PreMulSum
    }

    /// What has ended the communicator, where only a rank that lets its stream go has said so far that something has.
    pub(super) fn failure(&self, comm: &Communicator) -> Option<Cause> {
        let alone = || self.flags.were_alone().then_some(comm.rank());
        let rank = self.flags.failed().or_else(alone)?;
        let health = &comm.engine.membership;
        health.await_change(VERDICT_WAIT, || false);
        let unknown = || Cause::Broken {
            rank: rank as u32,
            what: match self.flags.failed() {
                Some(_) => "it lets its stream go because of a failure",
                None => "another rank's graph launched another operation at the same time",
            }
            .to_owned(),
        };
        Some(health.verdict().unwrap_or_else(|| health.raise(unknown())))
    }

    /// Waits until this rank's streams are through with all calls, but for those in graphs, or will never be. Its window is a later
    /// communicator's when that holds for all ranks, and their graphs are gone: one that makes a call too many writes to it as soon as it is
    /// let go.
    pub(super) fn leave(&mut self, comm: &Communicator) {
        while !self.flags.are_over() && comm.failure().is_none() {
            thread::sleep(LOOK);
        }
        self.window.give_back(Some(self.flags.users()));
        self.flags.leave();
        comm.engine.membership.changed();
    }
}

fn in_a_line(error: Error) -> String {
    error.to_string()
}

/// What this rank has, if all ranks have it. Else its window is a later communicator's: nobody reads any more what was written there to
/// be tried.
fn agreed<T>(
    comm: &Communicator,
    window: &mut Result<Window, String>,
    mine: Result<T, String>,
) -> Result<Result<T, String>> {
    let mut all = vec![0; comm.ranks()];
    comm.all_gather(&[u8::from(mine.is_ok())], &mut all)?;
    let without = all.iter().position(|there| *there == 0);
    if let (Ok(window), Some(_)) = (window, without) {
        window.give_back(None);
    }
    Ok(match (mine, without) {
        (Ok(_), Some(rank)) => Err(format!("rank {rank} cannot use the windows of all")),
        (mine, _) => mine,
    })
}

/// The board of all ranks, which are of this process.
fn board(comm: &Communicator, window: &Window) -> Result<Arc<Board>> {
    let made = (comm.rank() == 0).then(|| Ok(Board::new(comm.ranks(), window.events()?)));
    let made = made.transpose()?;
    let mut key = [made.as_ref().map_or(0, Board::offer)];
    let told = comm.broadcast_in_place(&mut key, 0);
    let board = made.clone().or_else(|| Board::find(key[0]));
    // Until then it is offered.
    let found = told.and_then(|()| comm.barrier());
    if let Some(made) = made {
        made.withdraw();
    }
    found?;
    board.ok_or_else(|| Error::internal("rank 0 has offered no board"))
}

/// Makes the flags, and gives their memory to all other ranks.
fn give_flags(comm: &Communicator, window: &Window) -> Result<Flags> {
    let (flags, fd) = flags(comm, window, None)?;
    for peer in 1..comm.ranks() {
        let fd = fd.try_clone();
        let fd = fd.map_err(|e| Error::system("the descriptor of the flags could not be copied", e))?;
        comm.engine.give(peer, fd)?;
    }
    Ok(flags)
}

/// The flags whose memory rank 0 has given before.
fn take_flags(comm: &Communicator, window: &Window) -> Result<Flags> {
    let fd = comm.engine.given(0)?;
    let fd = fd.ok_or_else(|| Error::internal("rank 0 has given no memory for flags"))?;
    flags(comm, window, Some(fd)).map(|(flags, _)| flags)
}

fn flags(comm: &Communicator, window: &Window, board: Option<OwnedFd>) -> Result<(Flags, OwnedFd)> {
    Flags::new(&window.enter()?, (comm.rank(), comm.ranks()), board)
}

const PROOF: usize = 64;

/// What a rank writes into its window.
fn proof(rank: usize) -> [u8; PROOF] {
    std::array::from_fn(|i| (rank * 31 + i + 1) as u8)
}

/// Has a kernel copy what all ranks have written into the own window, and looks at it.
fn prove(window: &Window, rank: usize, ranks: usize) -> Result<Result<(), String>> {
    const BEHIND: usize = 4096;
    let own = window.of(rank).part(BEHIND, PROOF * ranks);
    let pair = |of: usize| [own.part(of * PROOF, PROOF), window.of(of).part(0, PROOF)];
    window.copy_all_now(&(0..ranks).map(pair).collect::<Vec<_>>())?;
    let mut read = vec![0; PROOF * ranks];
    window.memory().read(BEHIND, Region::of_mut(&mut read))?;
    let wrong = (0..ranks).find(|&rank| read[rank * PROOF..][..PROOF] != proof(rank));
    Ok(wrong.map_or(Ok(()), |rank| {
        Err(format!(
            "what was read of rank {rank}'s window is not what it wrote"
        ))
    }))
}

/// A collective that goes by windows.
pub(super) struct Direct<'c> {
    pub(super) comm: &'c Communicator,
    pub(super) windows: &'c Windows,
    pub(super) device: Device,
    pub(super) collective: Collective,
    pub(super) memory: [Option<Region<'static>>; 2],
    pub(super) what: (usize, DType, Reducing),
}

impl Direct<'_> {
    /// Gives what was checked to its stream, all or, of a meeting, what comes before it. A failure of the driver's ends the communicator,
    /// because the other ranks count on the operation, unless the stream is being captured.
    ///
    /// # Errors
    /// As any operation.
    pub(super) fn give(&self) -> Result<Option<Meeting>> {
        let Direct { comm, device, .. } = *self;
        let (current, capture) = comm.enter_device(device)?;
        if let (None, Some(board)) = (capture, &self.windows.board) {
            let meeting = Meeting::begin(self, board, &current);
            return meeting.map(Some).inspect_err(|error| comm.give_up(error));
        }
        // Until the end: what other threads call comes before or after it.
        let mut order = self.windows.window.order();
        let flags = &self.windows.flags;
        if let Some(capture) = capture {
            flags.keep_for(&current, capture)?;
            order.enter(device.stream, Some(capture))?;
            match self.windows.board {
                Some(_) => self.together(&current)?,
                None => self.rounds(&current)?,
            }
            return order.leave(device.stream, Some(capture)).map(|()| None);
        }
        let call = flags.give();
        let given = order
            .enter(device.stream, None)
            .and_then(|()| flags.begin(&current, device.stream, call))
            .and_then(|()| self.rounds(&current));
        // At any rate: it is waited for.
        let end = flags.end(&current, device.stream, call);
        let left = order.leave(device.stream, None);
        let ended = given.and(end).and(left).and_then(|()| device.point(&current));
        // The stream is at work meanwhile.
        let given = ended.and_then(|ended| self.exchange(call).map(|()| ended));
        let ended = given.inspect_err(|error| comm.give_up(error))?;
        let flags = Arc::clone(flags);
        comm.in_streams.add(ended, move || !flags.has_ended(call));
        Ok(None)
    }

    /// Gives a stream that is captured its part where kernels find the buffers of all ranks.
    fn together(&self, current: &Current<'_>) -> Result<()> {
        let (Windows { window, flags, .. }, stream) = (self.windows, self.device.stream);
        let [send, recv] = self.memory;
        // What is in place may be given once.
        let both = [send.or(recv), recv.or(send)].map(|region| region.unwrap_or_else(Region::empty));
        let number = number(&self.call());
        let at = |phase| window.in_call(number, self.comm.rank(), flags.nobody(), flags.meeting(phase));
        window.arrive(current, stream, at(Phase::A), both.each_ref())?;
        flags.hear(current, stream, Phase::A)?;
        self.kernel(current, at(Phase::B))?;
        flags.hear(current, stream, Phase::B)
    }

    /// Gives the stream this rank's kernel.
    fn kernel(&self, current: &Current<'_>, call: InCall) -> Result<()> {
        let (count, dtype, _) = self.what;
        let (size, me, ranks) = (dtype.size(), self.comm.rank(), self.comm.ranks());
        let window = &self.windows.window;
        let (all, mine, block) = (Vec::from_iter(0..ranks), [me], me * count * size);
        // Of a vector that all have, this rank's part.
        let part = |rank: usize| rank * count / ranks;
        let (at, part) = (part(me) * size, part(me + 1) - part(me));
        let root = self.collective.root().map(|root| [root as usize]);
        let root = root.as_ref().map_or(&mine[..], |root| &root[..]);
        let (count, sources, destinations) = match self.collective {
            Collective::AllReduce => (part, (&all[..], at), (&all[..], at)),
            Collective::Reduce { .. } => (part, (&all[..], at), (root, at)),
            Collective::ReduceScatter => (count, (&all[..], block), (&mine[..], 0)),
            Collective::Broadcast { .. } => (part, (root, at), (&all[..], at)),
            Collective::AllGather => (count, (&mine[..], 0), (&all[..], block)),
            Collective::Gather { .. } => (count, (&mine[..], 0), (root, block)),
            Collective::Scatter { .. } => (count, (root, block), (&mine[..], 0)),
            Collective::AlltoAll => {
                return window.swap_together(current, self.device.stream, call, (me, count * size));
            }
            _ => return Err(Error::internal("a collective that does not go by windows")),
        };
        let what = Together {
            call,
            count,
            sources,
            destinations,
        };
        window.reduce_together(current, self.device.stream, &self.how(sources.0.len()), &what)
    }

    /// How so many sources are reduced.
    fn how(&self, sources: usize) -> Reduction<'static> {
        how(self.comm, self.collective, self.what, sources)
    }

    /// Gives the stream all rounds.
    fn rounds(&self, current: &Current<'_>) -> Result<()> {
        let (count, dtype, _) = self.what;
        let blocks = match self.collective {
            Collective::ReduceScatter | Collective::Scatter { .. } | Collective::AlltoAll => {
                self.comm.ranks()
            }
            _ => 1,
        };
        // A multiple of 16 elements, so that all blocks in the window begin at packs.
        let most = window::BYTES / dtype.size() / blocks / 16 * 16;
        for begin in (0..count).step_by(most) {
            self.round(current, begin, most.min(count - begin))?;
        }
        Ok(())
    }

    /// Gives the stream a round, of `len` elements from `begin` on of the vector or of each of its blocks.
    fn round(&self, current: &Current<'_>, begin: usize, len: usize) -> Result<()> {
        let (count, dtype, _) = self.what;
        let (size, me, ranks) = (dtype.size(), self.comm.rank(), self.comm.ranks());
        let [send, recv] = self.memory.map(|region| region.unwrap_or_else(Region::empty));
        let (at, bytes) = (begin * size, len * size);
        let (windows, stream) = (self.windows, self.device.stream);
        // A block of what lies in a rank's window, and of a buffer, as far as it is of this round.
        let held = |rank: usize, block: usize| windows.window.of(rank).part(block * bytes, bytes);
        let block = |all: Region<'static>, rank: usize| all.part(rank * count * size + at, bytes);
        let copy = |to, from| windows.window.copy(current, stream, to, from);
        let copy_all = |pair: &dyn Fn(usize) -> [Region<'static>; 2]| {
            let pairs: Vec<_> = (0..ranks).map(pair).collect();
            windows.window.copy_all(current, stream, &pairs)
        };
        // Of a vector that all have, this rank's part is its own to reduce.
        let part = |rank: usize| rank * len / ranks * size;
        let mine = |of| held(of, 0).part(part(me), part(me + 1) - part(me));
        let parts = || (0..ranks).map(mine).collect::<Vec<_>>();
        let is_root = self.collective.root().is_none_or(|root| root as usize == me);

        match self.collective {
            Collective::ReduceScatter | Collective::AlltoAll => {
                copy_all(&|rank| [held(me, rank), block(send, rank)])?;
            }
            Collective::Scatter { .. } if is_root => copy_all(&|rank| [held(me, rank), block(send, rank)])?,
            Collective::Broadcast { .. } if is_root => copy(held(me, 0), send.part(at, bytes))?,
            Collective::Scatter { .. } | Collective::Broadcast { .. } => {}
            _ => copy(held(me, 0), send.part(at, bytes))?,
        }
        windows.flags.meet(current, stream, Phase::A)?;
        match self.collective {
            Collective::AllReduce => self.reduce(current, &parts(), &parts())?,
            Collective::Reduce { root } => self.reduce(current, &parts(), &[mine(root as usize)])?,
            Collective::ReduceScatter => {
                let all: Vec<_> = (0..ranks).map(|rank| held(rank, me)).collect();
                self.reduce(current, &all, &[recv.part(at, bytes)])?;
            }
            Collective::Broadcast { root } => copy(recv.part(at, bytes), held(root as usize, 0))?,
            Collective::Scatter { root } => copy(recv.part(at, bytes), held(root as usize, me))?,
            Collective::AlltoAll => copy_all(&|rank| [block(recv, rank), held(rank, me)])?,
            _ if is_root => copy_all(&|rank| [block(recv, rank), held(rank, 0)])?,
            _ => {}
        }
        windows.flags.meet(current, stream, Phase::B)?;
        match self.collective {
            Collective::AllReduce | Collective::Reduce { .. } if is_root => {
                copy(recv.part(at, bytes), held(me, 0))
            }
            _ => Ok(()),
        }
    }

    fn reduce(
        &self,
        current: &Current<'_>,
        sources: &[Region<'static>],
        destinations: &[Region<'static>],
    ) -> Result<()> {
        if sources.iter().all(|source| source.len() == 0) {
            return Ok(());
        }
        let how = self.how(sources.len());
        let (window, stream) = (&self.windows.window, self.device.stream);
        window.reduce(current, stream, &how, sources, destinations)
    }

    /// What is called.
    pub(super) fn call(&self) -> Call {
        let (count, dtype, op) = self.what;
        Call {
            seq: self.comm.engine.calls(),
            collective: self.collective,
            count: count as u64,
            dtype,
            op: if self.collective.reduces() { op.op } else { Op::Sum },
        }
    }

    /// Has the hosts exchange what is called, as soon as the stream has come to it.
    fn exchange(&self, number: u32) -> Result<()> {
        let (engine, call) = (&self.comm.engine, self.call());
        let words = call.signature().to_vec();
        let all = Owned::new(vec![0; words.len() * self.comm.ranks()]);
        let what = (words.len(), DType::Uint32, Call::ON_DEVICE);
        let memory = [Some(Owned::new(words).hold()), Some(all.hold())];
        let (told, me, flags) = (
            all.hold(),
            self.comm.rank() as u32,
            Arc::clone(&self.windows.flags),
        );
        let ours = Arc::clone(engine);
        let at_end = move |outcome: &Outcome| {
            let mut words = vec![0u32; told.region().len() / size_of::<u32>()];
            Region::of_mut(&mut words).copy_from(&told.region());
            if let Some(cause) = outcome.is_ok().then(|| difference(me, call, &words)).flatten() {
                ours.fail(cause);
            }
        };
        let start = Start {
            gate: Some(Arc::new(Gate::watching(move || flags.has_begun(number)))),
            completion: Completion::with_hook(Box::new(at_end)),
            attended: false,
        };
        self.comm
            .begin_collective(Collective::AllGather, memory, what, start)
    }
}

/// How so many sources are reduced; one is copied.
pub(super) fn how(
    comm: &Communicator,
    collective: Collective,
    (_, dtype, op): (usize, DType, Reducing),
    sources: usize,
) -> Reduction<'static> {
    Reduction {
        op: if collective.reduces() { op.op } else { Op::Sum },
        dtype,
        finish: NonZero::new(sources as u32),
        tree: comm.config.reproducible,
        scaled: &[],
    }
}

/// What tells a call from others that differ in more than their turn.
fn number(call: &Call) -> NonZero<u64> {
    let [_, what, ..] = call.signature();
    // Of up to 16 ranks `what` has 16 bits; no memory has 2^46 elements.
    let number = u64::from(what) << 46 | call.count & ((1 << 46) - 1) | 1 << 63;
    NonZero::new(number).expect("a bit is set")
}

const _: () = assert!(MOST_RANKS <= 16);

/// The first rank whose call is not this one, by the signatures of all ranks' calls.
fn difference(me: u32, call: Call, words: &[u32]) -> Option<Cause> {
    let theirs = words.as_chunks().0.iter().map(|words| {
        // Its number is the exchange's, which all have come to.
        Call::from_signature(*words).map(|theirs| Call {
            seq: call.seq,
            ..theirs
        })
    });
    let (rank, theirs) = (0..).zip(theirs).find(|(_, theirs)| *theirs != Some(call))?;
    Some(match theirs {
        Some(theirs) => Cause::Mismatch {
            here: (me, call.into()),
            there: (rank, theirs.into()),
        },
        None => Cause::Broken {
            rank,
            what: "it said of a call something that is no call".to_owned(),
        },
    })
}

/// How long the verdict may take that follows when a rank lets its stream go.
pub(super) const VERDICT_WAIT: Duration = Duration::from_secs(1);
/// How often streams that are waited for are looked at.
const LOOK: Duration = Duration::from_millis(1);
