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
        kernels::args::{CopyArgs, MOST_SOURCES, Range, ReduceArgs, Reducing as Reduction},
        window::{self, CARD, Card, Window},
    },
    mem::Region,
    types::{Cause, Collective, DType, Error, Op, Reducing, Result},
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
        window.write(&proof(rank)).map_err(|error| error.to_string())?;
        Ok(window)
    });
    let tried = agreed(comm, opened)?.and_then(|window| {
        let read = prove(&window, ranks).map_err(|error| error.to_string())?;
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
fn prove(window: &Window, ranks: usize) -> Result<Result<(), String>> {
    const BEHIND: usize = 4096;
    let own = window.own_address() + BEHIND as u64;
    let ranges: Vec<Range> = (0..ranks)
        .map(|rank| Range {
            from: window.of(rank),
            to: own + (rank * PROOF) as u64,
            bytes: PROOF as u64,
        })
        .collect();
    // SAFETY: all lies in windows, which stay, and which nobody uses otherwise yet.
    unsafe { window.run(copying(&ranges)?)? };
    let mut read = vec![0; PROOF * ranks];
    window.read(BEHIND, &mut read)?;
    let wrong = (0..ranks).find(|&rank| read[rank * PROOF..][..PROOF] != proof(rank));
    Ok(wrong.map_or(Ok(()), |rank| {
        Err(format!(
            "what was read of rank {rank}'s window is not what it wrote"
        ))
    }))
}

fn copying(ranges: &[Range]) -> Result<(crate::cuda::kernels::Kernel, CopyArgs, u64)> {
    let (kernel, args) =
        CopyArgs::new(ranges).ok_or_else(|| Error::internal("more ranges than a kernel copies"))?;
    Ok((kernel, args, args.items()))
}

/// An operation that goes by windows.
pub(super) struct Direct<'c> {
    comm: &'c Communicator,
    window: &'c Window,
    device: Device,
}

/// What the ranks tell each other of a call.
const WORD: usize = 32;

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

    /// Gives the stream a collective that was not checked yet. A failure ends the communicator: the other ranks count on it.
    pub(super) fn collective(
        &self,
        collective: Collective,
        memory: [Option<Region<'static>>; 2],
        what: (usize, DType, Reducing),
    ) -> Result<()> {
        self.comm.check(collective, memory, what)?;
        drop(self.comm.enter_device(self.device)?);
        self.rounds(collective, memory, what)
            .inspect_err(|_| self.comm.abort())
    }

    fn rounds(
        &self,
        collective: Collective,
        memory: [Option<Region<'static>>; 2],
        (count, dtype, op): (usize, DType, Reducing),
    ) -> Result<()> {
        let (size, ranks) = (dtype.size(), self.comm.ranks());
        let [send, recv] = memory.map(|region| region.unwrap_or_else(Region::empty).as_ptr().addr() as u64);
        let held = if collective == Collective::ReduceScatter {
            ranks
        } else {
            1
        };
        // A multiple of 16 elements, so that all blocks in the window begin at packs.
        let most = window::BYTES / size / held / 16 * 16;
        let current = self.device.driver.enter(self.device.context)?;
        let stream = self.device.stream;
        // Until the end: operations of other threads come before or after it.
        let mut turns = self.window.turns();
        turns.enter(&current, stream)?;
        let own = self.window.own_address();
        let copy = |to: u64, from: u64, len: usize| {
            // SAFETY: windows stay; whoever made the regions answers for the caller's memory, whose length was checked.
            unsafe { current.copy(stream, to, from, len) }
        };
        for begin in (0..count).step_by(most) {
            let len = most.min(count - begin);
            let (at, bytes) = ((begin * size) as u64, len * size);
            let block = |rank: usize| (rank * bytes) as u64;
            match collective {
                Collective::ReduceScatter => {
                    for rank in 0..ranks {
                        let from = send + (rank * count * size) as u64 + at;
                        copy(own + block(rank), from, bytes)?;
                    }
                }
                Collective::Broadcast { root } if root as usize != self.comm.rank() => {}
                _ => copy(own, send + at, bytes)?,
            }
            self.meet(collective, (count, dtype, op.op))?;
            let me = self.comm.rank();
            let windows = |skipped: u64| -> Vec<u64> {
                (0..ranks).map(|rank| self.window.of(rank) + skipped).collect()
            };
            match collective {
                Collective::AllReduce => {
                    let part = |rank: usize| rank * len / ranks;
                    let all = windows((part(me) * size) as u64);
                    self.reduce(&current, (dtype, op.op), part(me + 1) - part(me), &all, &all)?;
                }
                Collective::ReduceScatter => {
                    self.reduce(&current, (dtype, op.op), len, &windows(block(me)), &[recv + at])?;
                }
                Collective::Broadcast { root } if recv != 0 => {
                    copy(recv + at, self.window.of(root as usize), bytes)?;
                }
                Collective::AllGather => {
                    let from = |rank: usize| Range {
                        from: self.window.of(rank),
                        to: recv + (rank * count * size) as u64 + at,
                        bytes: bytes as u64,
                    };
                    let ranges: Vec<Range> = (0..ranks).map(from).collect();
                    // SAFETY: as in `copy`.
                    unsafe { self.window.launch(&current, stream, copying(&ranges)?)? };
                }
                _ => {}
            }
            self.meet(collective, (count, dtype, op.op))?;
            if collective == Collective::AllReduce {
                copy(recv + at, own, bytes)?;
            }
        }
        turns.leave(&current, stream)
    }

    fn reduce(
        &self,
        current: &crate::cuda::driver::Current<'_>,
        (dtype, op): (DType, Op),
        len: usize,
        sources: &[u64],
        destinations: &[u64],
    ) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let how = Reduction {
            op,
            dtype,
            finish: NonZero::new(sources.len() as u32),
            tree: self.comm.config.reproducible,
            scaled: &[],
        };
        let (kernel, args) = ReduceArgs::new(&how, len as u64, sources, destinations)
            .ok_or_else(|| Error::internal("no kernel reduces so"))?;
        // SAFETY: windows stay; whoever made the regions answers for the caller's memory, whose length was checked.
        unsafe {
            self.window
                .launch(current, self.device.stream, (kernel, args, args.items()))
        }
    }

    /// Has the stream wait until those of all ranks have come here with the same call.
    fn meet(&self, collective: Collective, (count, dtype, op): (usize, DType, Op)) -> Result<()> {
        let text = format!("{collective:?} of {count} {dtype} {op}");
        let mut word = [0; WORD];
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        word[..8].copy_from_slice(&hash.to_le_bytes());
        word[8..16].copy_from_slice(&(count as u64).to_le_bytes());
        let (membership, me) = (Arc::clone(&self.comm.engine.membership), self.comm.rank());
        self.comm.meet_on(self.device, word, move |words| {
            if let Some(other) = words.iter().position(|there| *there != word) {
                membership.raise(Cause::Broken {
                    rank: me as u32,
                    what: format!("it called {text}, and rank {other} something else"),
                });
            }
        })
    }
}
