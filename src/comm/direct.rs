//! [`Direct`]: collectives on device memory whose data stay on the devices of a host.
//!
//! Each rank has a window, a piece of device memory in which the kernels of all ranks read and write ([`Window`]). An operation goes
//! by rounds of as much as a window holds, in the caller's stream:
//!
//! ```text
//! copy the input into the own window; meet; one kernel, which waits for nothing; meet; copy the output out of the own window
//! ```
//!
//! The kernel reads all ranks' windows and writes this rank's part of a sum into all of them, or into the caller's memory. To meet is
//! an operation of the host's, which exchanges what is called: the stream writes a flag, the engines of the ranks meet, and a flag
//! lets the stream go on. So a deadline or the end of a rank lets it go on, too.

use super::{Communicator, device::Device};
use crate::{
    cuda::{
        driver::Current,
        kernels::args::{MOST_SOURCES, Reducing as Reduction},
        window::{self, CARD, Card, Window},
    },
    mem::Region,
    types::{Call, Cause, Collective, DType, Error, Op, Reducing, Result},
};
use std::{num::NonZero, sync::Arc};
use tracing::{info, warn};

/// Opens the windows of all ranks and proves that each can be read; `None` where that does not work, for a reason that the log has.
///
/// # Errors
/// What ended the exchange.
pub(super) fn open(comm: &Communicator) -> Result<Option<Window>> {
    let (rank, ranks) = (comm.rank(), comm.ranks());
    let window = match comm.engine.membership.one_host() {
        _ if ranks > MOST_SOURCES => Err(format!("there are more than {MOST_SOURCES} ranks")),
        false => Err("the ranks are on several hosts".to_owned()),
        true if comm.config.algorithm.is_some() => Err("an algorithm is forced".to_owned()),
        true => Window::new(),
    };
    let carded = window.and_then(|window| Ok((window.card()?, window)));
    let mut cards = vec![0; CARD * ranks];
    comm.all_gather(carded.as_ref().map_or(&[0; CARD], |(card, _)| card), &mut cards)?;
    let (cards, _): (&[Card], _) = cards.as_chunks();
    let opened = carded.and_then(|(_, mut window)| {
        if let Some(without) = cards.iter().position(|card| *card == [0; CARD]) {
            return Err(format!("rank {without} has no window"));
        }
        window.open(cards, rank)?;
        let written = window.memory().write(Region::of(&proof(rank)));
        written.map_err(|error| error.to_string())?;
        Ok(window)
    });
    let tried = agreed(comm, opened)?.and_then(|window| {
        let read = prove(&window, rank, ranks).map_err(|error| error.to_string())?;
        read.map(|()| window)
    });
    // Where one rank cannot, all windows stay, unused: who knows what the driver does with them.
    match agreed(comm, tried)? {
        Ok(window) => {
            info!(
                rank,
                ranks, "init: collectives on device memory go by windows on the devices"
            );
            Ok(Some(window))
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

/// What this rank has, if all ranks have it.
fn agreed(comm: &Communicator, mine: Result<Window, String>) -> Result<Result<Window, String>> {
    let mut all = vec![0; comm.ranks()];
    comm.all_gather(&[u8::from(mine.is_ok())], &mut all)?;
    let without = all.iter().position(|there| *there == 0);
    Ok(match (mine, without) {
        (Ok(_), Some(rank)) => Err(format!("rank {rank} cannot use the windows of all")),
        (mine, _) => mine,
    })
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

/// An operation that goes by windows.
pub(super) struct Direct<'c> {
    comm: &'c Communicator,
    window: &'c Window,
    device: Device,
}

impl<'c> Direct<'c> {
    /// Whether this operation goes by windows where there are some: all ranks say the same.
    pub(super) fn takes(collective: Collective, (count, _, op): (usize, DType, Reducing)) -> bool {
        let is_known = matches!(
            collective,
            Collective::AllReduce
                | Collective::ReduceScatter
                | Collective::AllGather
                | Collective::Broadcast { .. }
        );
        is_known && count > 0 && op.op != Op::PreMulSum
    }

    /// # Errors
    /// [`Error::Usage`] where the window is on another device.
    pub(super) fn new(comm: &'c Communicator, window: &'c Window, device: Device) -> Result<Self> {
        let (here, there) = (device.driver.device_of(device.context)?, window.device()?);
        if here != there {
            return Err(Error::usage(format!(
                "the operation is on CUDA device {here}, and the communicator was made on device {there}: with \
                 CCL_CUDA_DIRECT=on a communicator has one device, the current one when it was made"
            )));
        }
        Ok(Direct { comm, window, device })
    }

    /// Gives the stream a collective that was not checked yet. A failure of the driver's ends the communicator: the other ranks
    /// count on it.
    pub(super) fn collective(
        &self,
        collective: Collective,
        memory: [Option<Region<'static>>; 2],
        what: (usize, DType, Reducing),
    ) -> Result<()> {
        self.comm.check(collective, memory, what)?;
        drop(self.comm.enter_device(self.device)?);
        let given = self.rounds(collective, memory, what);
        // What has ended the communicator already is what all are to be told.
        if let Err(error) = &given
            && !matches!(error, Error::Failed(_) | Error::Closed(_))
        {
            self.comm.abort();
        }
        given
    }

    fn rounds(
        &self,
        collective: Collective,
        memory: [Option<Region<'static>>; 2],
        (count, dtype, op): (usize, DType, Reducing),
    ) -> Result<()> {
        let (size, me, ranks) = (dtype.size(), self.comm.rank(), self.comm.ranks());
        let [send, recv] = memory.map(|region| region.unwrap_or_else(Region::empty));
        let blocks = match collective {
            Collective::ReduceScatter => ranks,
            _ => 1,
        };
        // A multiple of 16 elements, so that all blocks in the window begin at packs.
        let most = window::BYTES / size / blocks / 16 * 16;
        let current = self.device.driver.enter(self.device.context)?;
        let stream = self.device.stream;
        // Until the end: operations of other threads come before or after it.
        let mut turns = self.window.turns();
        turns.enter(&current, stream)?;
        let copy = |to, from| self.window.copy(&current, stream, to, from);
        for begin in (0..count).step_by(most) {
            let len = most.min(count - begin);
            let (at, bytes) = (begin * size, len * size);
            // What lies in a rank's window, and a rank's block of a buffer, as far as it is of this round.
            let held = |rank: usize, at: usize, bytes: usize| self.window.of(rank).part(at, bytes);
            let block = |all: Region<'static>, rank: usize| all.part(rank * count * size + at, bytes);
            match collective {
                Collective::ReduceScatter => {
                    for rank in 0..ranks {
                        copy(held(me, rank * bytes, bytes), block(send, rank))?;
                    }
                }
                Collective::Broadcast { root } if root as usize != me => {}
                _ => copy(held(me, 0, bytes), send.part(at, bytes))?,
            }
            self.meet(collective, (count, dtype, op.op))?;
            match collective {
                Collective::AllReduce => {
                    let part = |rank: usize| rank * len / ranks * size;
                    let mine = |rank| held(rank, part(me), part(me + 1) - part(me));
                    let all: Vec<_> = (0..ranks).map(mine).collect();
                    self.reduce(&current, (dtype, op.op), &all, &all)?;
                }
                Collective::ReduceScatter => {
                    let mine = |rank| held(rank, me * bytes, bytes);
                    let all: Vec<_> = (0..ranks).map(mine).collect();
                    self.reduce(&current, (dtype, op.op), &all, &[recv.part(at, bytes)])?;
                }
                Collective::Broadcast { root } => {
                    copy(recv.part(at, bytes), held(root as usize, 0, bytes))?;
                }
                Collective::AllGather => {
                    let pair = |rank| [block(recv, rank), held(rank, 0, bytes)];
                    let pairs: Vec<_> = (0..ranks).map(pair).collect();
                    self.window.copy_all(&current, stream, &pairs)?;
                }
                _ => {}
            }
            self.meet(collective, (count, dtype, op.op))?;
            if collective == Collective::AllReduce {
                copy(recv.part(at, bytes), held(me, 0, bytes))?;
            }
        }
        turns.leave(&current, stream)
    }

    fn reduce(
        &self,
        current: &Current<'_>,
        (dtype, op): (DType, Op),
        sources: &[Region<'static>],
        destinations: &[Region<'static>],
    ) -> Result<()> {
        if sources.iter().all(|source| source.len() == 0) {
            return Ok(());
        }
        let how = Reduction {
            op,
            dtype,
            finish: NonZero::new(sources.len() as u32),
            tree: self.comm.config.reproducible,
            scaled: &[],
        };
        self.window
            .reduce(current, self.device.stream, &how, sources, destinations)
    }

    /// Has the stream wait until those of all ranks have come here with the same call.
    fn meet(&self, collective: Collective, (count, dtype, op): (usize, DType, Op)) -> Result<()> {
        let call = Call {
            seq: self.comm.engine.calls(),
            collective,
            count: count as u64,
            dtype,
            op: if collective.reduces() { op } else { Op::Sum },
        };
        let word = call.signature();
        let (engine, me) = (Arc::clone(&self.comm.engine), self.comm.rank() as u32);
        self.comm.meet_on(self.device, word, move |words| {
            for (rank, &theirs) in (0..).zip(words) {
                // Its number is the meeting's, which all have come to.
                let theirs = Call::from_signature(theirs).map(|theirs| Call {
                    seq: call.seq,
                    ..theirs
                });
                let cause = match theirs {
                    Some(theirs) if theirs == call => continue,
                    Some(theirs) => Cause::Mismatch {
                        here: (me, call.into()),
                        there: (rank, theirs.into()),
                    },
                    None => Cause::Broken {
                        rank,
                        what: "it came to a meeting with something that is no call".to_owned(),
                    },
                };
                engine.fail(cause);
                return;
            }
        })
    }
}
