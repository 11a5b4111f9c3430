//! [`Meeting`]: collectives of ranks that are threads of one process and use one device.
//!
//! Each rank can use the memory of all, so nothing is copied into windows, and no kernel waits. The ranks tell each other on the host where
//! their buffers are, and what they call ([`Board`]); rank 0 has its stream wait for those of all ranks, gives it a kernel or a few that
//! read and write each byte as often as the operation needs, and the streams of the others wait for the end of that. Streams wait by
//! events, and each only for what was given to the device before: so the device may do what it was given one after the other, and streams
//! that share a queue of its do not stop each other.
//!
//! A call returns when all ranks have come to it and rank 0 has given the work to its stream; not when that is done. Calls that differ
//! are told before anything is given. From then on it is work of the device: nothing cuts it short.

use super::{
    Communicator,
    board::{Board, Seat, Side},
    device::Device,
    direct::{Direct, VERDICT_WAIT, Windows, how},
    engine::Start,
};
use crate::{
    cuda::{
        driver::Current,
        kernels::args::MOST_RANGES,
        window::{Rows, Window},
    },
    exec::Completion,
    mem::{Owned, Region},
    types::{Call, Cause, Collective, DType, Error, Reducing, Result},
};
use std::sync::Arc;

/// A call of which this rank's stream has all that comes before it, but not its end.
pub(super) struct Meeting {
    device: Device,
    what: (usize, DType, Reducing),
    call: Call,
    seat: Seat,
    /// How far the ranks have told each other what they call.
    told: Told,
    /// Whether rank 0 has given the work to its stream.
    is_led: bool,
}

enum Told {
    Nothing,
    /// It goes on by itself: the words of all ranks.
    Begun(Arc<Completion>, Arc<Owned<u32>>),
    All,
}

/// Of a call: its signature, and its number among those of the board.
const WORDS: usize = 6;

impl Meeting {
    /// Takes this rank's place in the call.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(super) fn begin(direct: &Direct<'_>, board: &Arc<Board>, current: &Current<'_>) -> Result<Self> {
        let (device, [send, recv]) = (direct.device, direct.memory);
        let ready = board.events.record(current, device.stream)?;
        // What is in place may be given once.
        let side = Side {
            send: send.or(recv).unwrap_or_else(Region::empty),
            recv: recv.or(send).unwrap_or_else(Region::empty),
            ready,
        };
        let seat = board.enter(direct.comm.rank(), side);
        Ok(Meeting {
            device,
            what: direct.what,
            call: direct.call(),
            seat,
            told: Told::Nothing,
            is_led: false,
        })
    }

    fn words(&self) -> [u32; WORDS] {
        let [seq, what, low, high] = self.call.signature();
        let number = self.seat.number();
        [seq, what, low, high, number as u32, (number >> 32) as u32]
    }

    /// Has the ranks tell each other what they call, while this one goes on: for the calls of a group, of which one may be another rank's.
    ///
    /// # Errors
    /// As any operation.
    pub(super) fn tell(&mut self, comm: &Communicator) -> Result<()> {
        let words = self.words().to_vec();
        let all = Owned::new(vec![0; WORDS * comm.ranks()]);
        let memory = [Some(Owned::new(words).hold()), Some(all.hold())];
        let completion = Completion::with_hook(Box::new(|_| ()));
        let start = Start::now(Arc::clone(&completion), false);
        let what = (WORDS, DType::Uint32, Call::ON_DEVICE);
        comm.begin_collective(Collective::AllGather, memory, what, start)?;
        self.told = Told::Begun(completion, all);
        Ok(())
    }

    /// Waits until all ranks have told what they call, and compares it.
    fn compare(&mut self, comm: &Communicator) -> Result<()> {
        let mut words = vec![0u32; WORDS * comm.ranks()];
        match &self.told {
            Told::All => return Ok(()),
            Told::Nothing => {
                let (mine, all) = (self.words(), Region::of_mut(&mut words));
                let (collective, op) = (Collective::AllGather, Call::ON_DEVICE);
                comm.collective(
                    collective,
                    Some(Region::of(&mine)),
                    Some(all),
                    WORDS,
                    DType::Uint32,
                    op,
                )?;
            }
            Told::Begun(completion, all) => {
                comm.wait_for(completion)?;
                Region::of_mut(&mut words).copy_from(&all.hold().region());
            }
        }
        self.told = Told::All;
        match self.difference(comm.rank() as u32, &words) {
            None => Ok(()),
            Some(cause) => {
                comm.engine.fail(cause.clone());
                Err(Error::Failed(comm.failure().unwrap_or(cause)))
            }
        }
    }

    /// The first rank whose call is not this one.
    fn difference(&self, me: u32, words: &[u32]) -> Option<Cause> {
        let number = &self.words()[4..];
        let (words, _): (&[[u32; WORDS]], _) = words.as_chunks();
        (0..).zip(words).find_map(|(rank, theirs)| {
            let [_, what, low, high, ..] = *theirs;
            let broken = |what: &str| Cause::Broken {
                rank,
                what: what.to_owned(),
            };
            match Call::from_signature([self.call.seq, what, low, high]) {
                None => Some(broken("it said of a call something that is no call")),
                Some(call) if call != self.call => Some(Cause::Mismatch {
                    here: (me, self.call.into()),
                    there: (rank, call.into()),
                }),
                Some(_) if theirs[4..] != *number => Some(broken(
                    "it made calls on memory of a device on several threads at once",
                )),
                Some(_) => None,
            }
        })
    }

    /// Whether all ranks have told what they call, or there is nothing to lead.
    pub(super) fn may_lead(&self) -> bool {
        match &self.told {
            Told::Begun(completion, _) => completion.is_over(),
            Told::Nothing | Told::All => true,
        }
    }

    /// On rank 0: once all ranks have come, gives the work to its stream.
    ///
    /// # Errors
    /// As any operation.
    pub(super) fn lead(&mut self, comm: &Communicator, windows: &Windows) -> Result<()> {
        if self.is_led || !self.seat.leads() {
            return Ok(());
        }
        self.is_led = true;
        let led = self.compare(comm).and_then(|()| self.give(comm, windows));
        if led.is_err() {
            // Where there was no end yet, nobody waits for one.
            self.seat.give(None);
        }
        led
    }

    /// Gives rank 0's stream the work, and tells the others where it ends.
    fn give(&self, comm: &Communicator, windows: &Windows) -> Result<()> {
        let (current, stream) = (self.device.enter()?, self.device.stream);
        let sides = self.seat.take().ok_or_else(|| given_up(comm))?;
        for side in &sides[1..] {
            side.ready.wait(&current, stream)?;
        }
        let worked = self.work(comm, &windows.window, &current, &sides);
        if let Err(error) = &worked {
            // Before the others go on: theirs holds anything.
            comm.give_up(error);
        }
        // At any rate: what was given uses the buffers of all.
        let end = self.seat.events().record(&current, stream);
        let end = end.inspect_err(|_| {
            let _ = current.synchronize(stream);
        })?;
        self.seat.give(Some(end));
        worked
    }

    /// Gives the stream the end of the call.
    ///
    /// # Errors
    /// As any operation.
    pub(super) fn end(mut self, comm: &Communicator, windows: &Windows) -> Result<()> {
        if self.seat.leads() {
            return self.lead(comm, windows);
        }
        // Where it has ended here by a failure, rank 0 may have given the work all the same.
        let compared = self.compare(comm);
        let given = self.seat.given(|| compared.is_err() || comm.failure().is_some());
        match given {
            None => Err(compared.err().unwrap_or_else(|| given_up(comm))),
            Some(end) => {
                let current = self.device.enter()?;
                end.wait(&current, self.device.stream).and(compared)
            }
        }
    }

    /// Gives rank 0's stream the kernels of all ranks.
    fn work(
        &self,
        comm: &Communicator,
        window: &Window,
        current: &Current<'_>,
        sides: &[Side],
    ) -> Result<()> {
        let (count, dtype, _) = self.what;
        let (ranks, block, stream) = (sides.len(), count * dtype.size(), self.device.stream);
        let sends: Vec<_> = sides.iter().map(|side| side.send).collect();
        let recvs: Vec<_> = sides.iter().map(|side| side.recv).collect();
        let root = self.call.collective.root().map_or(0, |root| root as usize);
        let (root_send, root_recv) = ([sends[root]], [recvs[root]]);
        let all = |regions| Rows {
            regions,
            is_one: false,
            step: 0,
        };
        let one_each = |regions| Rows {
            is_one: true,
            ..all(regions)
        };
        let by_block = |rows| Rows { step: block, ..rows };
        let reduce = |rows, sources: Rows<'_>, destinations: Rows<'_>| {
            let n = if sources.is_one { 1 } else { sources.regions.len() };
            let how = how(comm, self.call.collective, self.what, n);
            window.reduce_rows(current, stream, &how, (rows, count), [&sources, &destinations])
        };
        let of = |region: Region<'static>, rank: usize| region.part(rank * block, block);
        let copy = |pairs: Vec<[Region<'static>; 2]>| {
            let mut some = pairs.chunks(MOST_RANGES);
            some.try_for_each(|some| window.copy_all(current, stream, some))
        };
        match self.call.collective {
            Collective::AllReduce => reduce(1, all(&sends), all(&recvs)),
            Collective::Reduce { .. } => reduce(1, all(&sends), all(&root_recv)),
            Collective::ReduceScatter => reduce(ranks, by_block(all(&sends)), one_each(&recvs)),
            Collective::AllGather => reduce(ranks, one_each(&sends), by_block(all(&recvs))),
            Collective::Broadcast { .. } => {
                let others = recvs
                    .into_iter()
                    .filter(|to| to.as_ptr() != root_send[0].as_ptr());
                match others.collect::<Vec<_>>() {
                    others if others.is_empty() => Ok(()),
                    others => reduce(1, all(&root_send), all(&others)),
                }
            }
            Collective::Gather { .. } => {
                let pair = |rank: usize| [of(root_recv[0], rank), sends[rank]];
                copy((0..ranks).map(pair).collect())
            }
            Collective::Scatter { .. } => {
                let pair = |rank: usize| [recvs[rank], of(root_send[0], rank)];
                copy((0..ranks).map(pair).collect())
            }
            Collective::AlltoAll if sides.iter().any(|side| side.send.as_ptr() == side.recv.as_ptr()) => {
                let ends: Vec<_> = sides.iter().map(|side| [side.send, side.recv]).collect();
                (0..ranks).try_for_each(|rank| window.swap_between(current, stream, rank, &ends, block))
            }
            Collective::AlltoAll => {
                let pair = |from: usize, to: usize| [of(recvs[to], from), of(sends[from], to)];
                copy((0..ranks * ranks).map(|i| pair(i / ranks, i % ranks)).collect())
            }
            _ => Err(Error::internal("a collective that does not go by windows")),
        }
    }
}

/// What a call ends with that another rank has given up.
fn given_up(comm: &Communicator) -> Error {
    comm.engine.membership.await_change(VERDICT_WAIT, || false);
    comm.failure().map_or_else(
        || Error::internal("a rank left a call on memory of a device"),
        Error::Failed,
    )
}
