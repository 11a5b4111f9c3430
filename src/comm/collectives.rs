//! The operations of a [`Communicator`]: every rank calls each, with the same count, type, operation and root.

use super::{
    Communicator,
    buffers::{self, Buffers},
    engine::{Asked, AtOnce, Size, Start},
};
use crate::{
    mem::{Hold, Owned, Region},
    plan::definition,
    topo::share::Crowd,
    types::{Collective, DType, Element, Error, Op, Reducing, Reduction, Result},
};

/// # Operations
///
/// Every rank calls each with the same counts, type, operation and root. A call returns when this rank's part is done.
/// Buffers lie apart; the forms `..._in_place` have one for both. All of them fail in the same ways:
/// [`Error::Invalid`] and [`Error::Usage`] before anything moves, with the communicator as good as before;
/// [`Error::Failed`] and [`Error::Closed`] as the type says. After a failure output buffers hold anything.
impl Communicator {
    /// Reduces the ranks' `send` element by element into `recv` on every rank.
    ///
    /// Both have the same length on all ranks. The result has the same bits on every rank, and again for the same
    /// inputs, number of ranks and configuration, unless `CCL_TUNE` is `online` or `probe`. 16- and 8-bit floats are added in `f32`; "direct" and
    /// "oneshot" round once, "ring" at each hop, "doubling" in each round.
    ///
    /// # Errors
    /// See [operations](#operations).
    pub fn all_reduce<T: Element>(&self, send: &[T], recv: &mut [T], op: impl Reduction<T>) -> Result<()> {
        let count = same_length(send.len(), recv.len())?;
        self.run(Collective::AllReduce, Some(send), Some(recv), count, op)
    }

    /// [`Communicator::all_reduce`] with `data` for input and output.
    ///
    /// # Errors
    /// See [operations](#operations).
    pub fn all_reduce_in_place<T: Element>(&self, data: &mut [T], op: impl Reduction<T>) -> Result<()> {
        let count = data.len();
        self.run_in_place(Collective::AllReduce, data, count, op)
    }

    /// Reduces the ranks' `send` element by element into `root`'s `recv`. Only the root's `recv` is looked at.
    ///
    /// # Errors
    /// See [operations](#operations).
    pub fn reduce<T: Element>(
        &self,
        send: &[T],
        recv: Option<&mut [T]>,
        op: impl Reduction<T>,
        root: usize,
    ) -> Result<()> {
        self.run(
            Collective::Reduce { root: rank(root) },
            Some(send),
            recv,
            send.len(),
            op,
        )
    }

    /// [`Communicator::reduce`] with the root's `data` for input and output; that of the others stays as it is.
    ///
    /// # Errors
    /// See [operations](#operations).
    pub fn reduce_in_place<T: Element>(
        &self,
        data: &mut [T],
        op: impl Reduction<T>,
        root: usize,
    ) -> Result<()> {
        let count = data.len();
        self.run_in_place(Collective::Reduce { root: rank(root) }, data, count, op)
    }

    /// Copies `root`'s `send` into `recv` on every rank, the root's included. Only the root's `send` is looked at.
    ///
    /// # Errors
    /// See [operations](#operations).
    pub fn broadcast<T: Element>(&self, send: Option<&[T]>, recv: &mut [T], root: usize) -> Result<()> {
        let count = recv.len();
        self.run(
            Collective::Broadcast { root: rank(root) },
            send,
            Some(recv),
            count,
            Op::Sum,
        )
    }

    /// Copies `root`'s `data` into everyone else's.
    ///
    /// # Errors
    /// See [operations](#operations).
    pub fn broadcast_in_place<T: Element>(&self, data: &mut [T], root: usize) -> Result<()> {
        let count = data.len();
        self.run_in_place(Collective::Broadcast { root: rank(root) }, data, count, Op::Sum)
    }

    /// Gathers `send` of every rank into `recv` on all ranks, in rank order: `recv` is as long as the ranks' `send`
    /// together, and rank r's lands at r times the length of one.
    ///
    /// # Errors
    /// See [operations](#operations).
    pub fn all_gather<T: Element>(&self, send: &[T], recv: &mut [T]) -> Result<()> {
        self.run(Collective::AllGather, Some(send), Some(recv), send.len(), Op::Sum)
    }

    /// [`Communicator::all_gather`] where this rank's part lies in `data`, at its place.
    ///
    /// # Errors
    /// See [operations](#operations).
    pub fn all_gather_in_place<T: Element>(&self, data: &mut [T]) -> Result<()> {
        let count = self.block_of(data.len())?;
        self.run_in_place(Collective::AllGather, data, count, Op::Sum)
    }

    /// Reduces the ranks' `send` element by element; of the result, which has a block for each rank, this rank's block is
    /// left in `recv`.
    ///
    /// # Errors
    /// See [operations](#operations).
    pub fn reduce_scatter<T: Element>(
        &self,
        send: &[T],
        recv: &mut [T],
        op: impl Reduction<T>,
    ) -> Result<()> {
        let count = recv.len();
        self.run(Collective::ReduceScatter, Some(send), Some(recv), count, op)
    }

    /// [`Communicator::reduce_scatter`] with this rank's block of `data` for the result. The rest of `data` stays as it is.
    ///
    /// # Errors
    /// See [operations](#operations).
    pub fn reduce_scatter_in_place<T: Element>(&self, data: &mut [T], op: impl Reduction<T>) -> Result<()> {
        let count = self.block_of(data.len())?;
        self.run_in_place(Collective::ReduceScatter, data, count, op)
    }

    /// Gathers `send` of every rank into `root`'s `recv`, in rank order. Only the root's `recv` is looked at.
    ///
    /// # Errors
    /// See [operations](#operations).
    pub fn gather<T: Element>(&self, send: &[T], recv: Option<&mut [T]>, root: usize) -> Result<()> {
        self.run(
            Collective::Gather { root: rank(root) },
            Some(send),
            recv,
            send.len(),
            Op::Sum,
        )
    }

    /// [`Communicator::gather`] where the root's part lies in its `data` at its place; that of the others is what they send.
    ///
    /// # Errors
    /// See [operations](#operations).
    pub fn gather_in_place<T: Element>(&self, data: &mut [T], root: usize) -> Result<()> {
        let count = self.part_at(root, data.len())?;
        self.run_in_place(Collective::Gather { root: rank(root) }, data, count, Op::Sum)
    }

    /// Hands block r of `root`'s `send` to rank r, into `recv`. Only the root's `send` is looked at.
    ///
    /// # Errors
    /// See [operations](#operations).
    pub fn scatter<T: Element>(&self, send: Option<&[T]>, recv: &mut [T], root: usize) -> Result<()> {
        let count = recv.len();
        self.run(
            Collective::Scatter { root: rank(root) },
            send,
            Some(recv),
            count,
            Op::Sum,
        )
    }

    /// [`Communicator::scatter`] where the root keeps its part in `data`, at its place; that of the others is what they get.
    ///
    /// # Errors
    /// See [operations](#operations).
    pub fn scatter_in_place<T: Element>(&self, data: &mut [T], root: usize) -> Result<()> {
        let count = self.part_at(root, data.len())?;
        self.run_in_place(Collective::Scatter { root: rank(root) }, data, count, Op::Sum)
    }

    /// Hands block r of `send` to rank r, and gets into block r of `recv` what rank r has for this one.
    ///
    /// # Errors
    /// See [operations](#operations).
    pub fn all_to_all<T: Element>(&self, send: &[T], recv: &mut [T]) -> Result<()> {
        let count = self.block_of(same_length(send.len(), recv.len())?)?;
        self.run(Collective::AlltoAll, Some(send), Some(recv), count, Op::Sum)
    }

    /// [`Communicator::all_to_all`] with `data` for input and output.
    ///
    /// # Errors
    /// See [operations](#operations).
    pub fn all_to_all_in_place<T: Element>(&self, data: &mut [T]) -> Result<()> {
        let count = self.block_of(data.len())?;
        self.run_in_place(Collective::AlltoAll, data, count, Op::Sum)
    }

    /// Returns when every rank has called it.
    ///
    /// # Errors
    /// See [operations](#operations).
    pub fn barrier(&self) -> Result<()> {
        let token = &mut [0u8];
        let memory = Some(Region::of_mut(token));
        self.collective(Collective::Barrier, memory, memory, 1, DType::Uint8, Op::Sum)
    }

    /// The same if there was one before: see [`Communicator::repeat`].
    #[inline]
    pub(crate) fn repeat_barrier(&self) -> AtOnce {
        let token = &mut [0u8];
        let memory = Region::of_mut(token);
        let asked = Asked::new(Collective::Barrier, Size::Count(1), (DType::Uint8, Op::Sum))?;
        self.repeat(&asked, |bytes| {
            Some([memory.get(0, bytes[0])?, memory.get(0, bytes[1])?])
        })
    }

    pub(crate) fn begin_barrier(&self, start: Start) -> Result<()> {
        let token = Owned::new(vec![0u8]).hold();
        let memory = [Some(token.clone()), Some(token)];
        self.begin_collective(Collective::Barrier, memory, (1, DType::Uint8, Op::Sum), start)
    }

    fn run<T: Element>(
        &self,
        collective: Collective,
        send: Option<&[T]>,
        recv: Option<&mut [T]>,
        count: usize,
        op: impl Reduction<T>,
    ) -> Result<()> {
        let (input, output) = (send.map(Region::of), recv.map(Region::of_mut));
        self.collective(collective, input, output, count, T::DTYPE, erased(op))
    }

    /// With one buffer, which holds both of this rank's parts of the vector.
    fn run_in_place<T: Element>(
        &self,
        collective: Collective,
        data: &mut [T],
        count: usize,
        op: impl Reduction<T>,
    ) -> Result<()> {
        let data = Region::of_mut(data);
        let part = |at, len| data.part(at, len);
        let [input, output] = self.in_place(collective, data.len(), (count, T::DTYPE), part)?;
        self.collective(collective, input, output, count, T::DTYPE, erased(op))
    }

    /// The parts of one buffer of `bytes` bytes that hold this rank's parts of the vector, as `part` makes them.
    ///
    /// # Errors
    /// As [`Communicator::held`].
    pub(super) fn in_place<P>(
        &self,
        collective: Collective,
        bytes: usize,
        (count, dtype): (usize, DType),
        part: impl Fn(usize, usize) -> P,
    ) -> Result<[Option<P>; 2]> {
        let held = self.held(collective, count, dtype)?;
        let begin = match (held.input.is_empty(), held.output.is_empty()) {
            (true, _) => held.output.start,
            (_, true) => held.input.start,
            _ => held.input.start.min(held.output.start),
        };
        Ok([held.input, held.output].map(|of| {
            if of.is_empty() {
                return None;
            }
            let (at, len) = ((of.start - begin) * dtype.size(), of.len() * dtype.size());
            // What does not fit is not cut, so that the check of its length tells.
            Some(if at + len <= bytes {
                part(at, len)
            } else {
                part(0, bytes)
            })
        }))
    }

    /// Checks and runs an operation on what this rank has of its vectors: see [`Communicator::held`].
    pub(crate) fn collective(
        &self,
        collective: Collective,
        input: Option<Region<'_>>,
        output: Option<Region<'_>>,
        count: usize,
        dtype: DType,
        op: impl Into<Reducing>,
    ) -> Result<()> {
        let op = op.into();
        let as_long = |bytes: [usize; 2]| Some([of_length(input, bytes[0])?, of_length(output, bytes[1])?]);
        if op.scalar.is_none()
            && let Some(asked) = Asked::new(collective, Size::Count(count), (dtype, op.op))
            && let Some(outcome) = self.repeat(&asked, as_long)
        {
            return outcome.map_err(|error| *error);
        }
        let buffers = self.checked(collective, [input, output], (count, dtype, op))?;
        self.call(collective, buffers, count, dtype, op)
    }

    /// Runs a short operation that was run before, on the buffers of so many bytes each that `buffers` makes. `None`, before
    /// anything is done, if it must be checked and run as any other.
    #[inline]
    pub(crate) fn repeat<'m>(
        &self,
        asked: &Asked<'_>,
        buffers: impl FnOnce([usize; 2]) -> Option<[Region<'m>; 2]>,
    ) -> AtOnce {
        self.engine.quick(asked, buffers)
    }

    /// Whether several operations of a group had better be run one after the other: where nothing is won by having them wait together, for
    /// what a network brings, or for turns on a processor.
    pub(crate) fn goes_in_turn(&self) -> bool {
        self.transport() == "shm" && self.engine.membership.crowd() == Crowd::Alone
    }

    /// Checks and begins an operation as [`Communicator::collective`] runs it.
    pub(crate) fn begin_collective(
        &self,
        collective: Collective,
        memory: [Option<Hold>; 2],
        (count, dtype, op): (usize, DType, impl Into<Reducing>),
        start: Start,
    ) -> Result<()> {
        let op = op.into();
        let regions = memory.each_ref().map(|hold| hold.as_ref().map(Hold::region));
        let Buffers {
            input,
            output,
            places,
        } = self.checked(collective, regions, (count, dtype, op))?;
        let is_used = [input.len() > 0, output.len() > 0];
        let memory = buffers::keep(memory, is_used);
        self.engine
            .start(collective, (memory, places), (count, dtype, op), start)
    }

    /// Checks an operation and does nothing.
    pub(crate) fn check(
        &self,
        collective: Collective,
        memory: [Option<Region<'_>>; 2],
        (count, dtype, op): (usize, DType, impl Into<Reducing>),
    ) -> Result<()> {
        self.checked(collective, memory, (count, dtype, op.into()))
            .map(|_| ())
    }

    /// What a call works on, if all its arguments are right.
    fn checked<'m>(
        &self,
        collective: Collective,
        [input, output]: [Option<Region<'m>>; 2],
        (count, dtype, op): (usize, DType, Reducing),
    ) -> Result<Buffers<'m>> {
        buffers::check_op(collective, dtype, op)?;
        let held = self.held(collective, count, dtype)?;
        Buffers::new(collective, &held, input, output, dtype)
    }

    /// The elements of a call's vectors that this rank's buffers hold.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a root that is no rank, and for vectors that no memory holds.
    pub(crate) fn held(
        &self,
        collective: Collective,
        count: usize,
        dtype: DType,
    ) -> Result<definition::Held> {
        let ranks = self.ranks();
        check_call(collective, ranks, count, dtype)?;
        Ok(definition::held(collective, ranks, self.rank(), count))
    }

    /// The length of one rank's block where the root's buffer, and nobody else's, has all.
    fn part_at(&self, root: usize, len: usize) -> Result<usize> {
        match self.rank() == root {
            true => self.block_of(len),
            false => Ok(len),
        }
    }

    /// # Errors
    /// [`Error::Invalid`] for a root that is no rank.
    pub(super) fn check_root(&self, collective: Collective) -> Result<()> {
        check_root(collective, self.ranks())
    }

    /// The length of one rank's block of a vector.
    pub(super) fn block_of(&self, len: usize) -> Result<usize> {
        let ranks = self.ranks();
        if len.is_multiple_of(ranks) {
            return Ok(len / ranks);
        }
        Err(Error::invalid(format!(
            "the buffer has {len} elements: it must have as many for each of {ranks} ranks"
        )))
    }
}

/// # Errors
/// [`Error::Invalid`] for a root that is none of `ranks` ranks, and for vectors that no memory holds.
pub(super) fn check_call(collective: Collective, ranks: usize, count: usize, dtype: DType) -> Result<()> {
    check_root(collective, ranks)?;
    let bytes = definition::total(collective, ranks, count).and_then(|total| total.checked_mul(dtype.size()));
    if bytes.is_some_and(|bytes| isize::try_from(bytes).is_ok()) {
        return Ok(());
    }
    let each = if collective.has_blocks() {
        format!(" for each of {ranks} ranks")
    } else {
        String::new()
    };
    Err(Error::invalid(format!(
        "no buffer can hold {count} elements of {dtype}{each}: the most is {} bytes. Counts are elements, not bytes, and never \
         negative",
        isize::MAX
    )))
}

fn check_root(collective: Collective, ranks: usize) -> Result<()> {
    match collective.root().filter(|&root| root as usize >= ranks) {
        None => Ok(()),
        Some(root) => Err(Error::invalid(format!(
            "root {root} is outside the communicator: its ranks are 0 to {}",
            ranks - 1
        ))),
    }
}

/// A reduction without the type of its elements.
pub(super) fn erased<T: Element>(reduction: impl Reduction<T>) -> Reducing {
    let (op, scalar) = reduction.parts();
    let bits = |scalar: T| {
        let mut bits = [0u64];
        let place = Region::of_mut(&mut bits).part(0, size_of::<T>());
        place.copy_from(&Region::of(&[scalar]));
        bits[0]
    };
    Reducing {
        op,
        scalar: scalar.map(bits),
    }
}

/// The buffer, if it has so many bytes; of none nothing is looked at.
fn of_length(buffer: Option<Region<'_>>, bytes: usize) -> Option<Region<'_>> {
    match buffer {
        _ if bytes == 0 => Some(Region::empty()),
        buffer => buffer.filter(|buffer| buffer.len() == bytes),
    }
}

/// A root as the call's signature has it. One that no number of ranks reaches stays one.
pub(super) fn rank(root: usize) -> u32 {
    u32::try_from(root).unwrap_or(u32::MAX)
}

pub(super) fn same_length(send: usize, recv: usize) -> Result<usize> {
    if send == recv {
        return Ok(send);
    }
    Err(Error::invalid(format!(
        "the send buffer has {send} elements and the receive buffer {recv}: they must have the same number"
    )))
}
