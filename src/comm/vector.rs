//! The V forms of the collectives: the caller says how long each block is and where in the buffer it lies.

use super::{
    Communicator, Side,
    buffers::{self, Buffers},
    collectives::{erased, rank},
    engine::{Asked, Size, Start},
    given::{checked, count},
};
use crate::{
    mem::{Hold, Region},
    plan::layout::Blocks,
    types::{Collective, DType, Element, Op, Reducing, Reduction, Result},
};
use std::sync::Arc;

/// # Operations on blocks of any length
///
/// Of each rank's block a call is given the length, in `..._counts`, and the element of the buffer at which it begins, in
/// `..._displs`: one of each for every rank. Blocks may lie in any order and with gaps, which stay untouched; blocks that are
/// received must not overlap. Of a block without elements the place does not matter.
///
/// Two ranks must give the same count for what goes between them; else all ranks fail with a
/// [`Cause::Mismatch`](crate::Cause::Mismatch) that names both, some perhaps only in their next call.
impl Communicator {
    /// Hands block r of `send` to rank r, and gets into block r of `recv` what rank r has for this one.
    ///
    /// # Errors
    /// See [operations](#operations).
    pub fn all_to_all_v<T: Element>(
        &self,
        send: &[T],
        send_counts: &[usize],
        send_displs: &[usize],
        recv: &mut [T],
        recv_counts: &[usize],
        recv_displs: &[usize],
    ) -> Result<()> {
        let sides = [
            Side::each(send_counts, send_displs),
            Side::each(recv_counts, recv_displs),
        ];
        let memory = [Region::of(send), Region::of_mut(recv)];
        self.vector(Collective::AlltoAllV, sides, memory, T::DTYPE, Op::Sum.into())
    }

    /// Gathers `send` of every rank into `recv` on all ranks: that of rank r is block r. All ranks give the same counts; where
    /// blocks lie is each rank's own affair.
    ///
    /// # Errors
    /// See [operations](#operations).
    pub fn all_gather_v<T: Element>(
        &self,
        send: &[T],
        recv: &mut [T],
        recv_counts: &[usize],
        recv_displs: &[usize],
    ) -> Result<()> {
        let sides = [Side::Own(send.len()), Side::each(recv_counts, recv_displs)];
        let memory = [Region::of(send), Region::of_mut(recv)];
        self.vector(Collective::AllGatherV, sides, memory, T::DTYPE, Op::Sum.into())
    }

    /// [`Communicator::all_gather_v`] where this rank's block lies in `data`, at its place.
    ///
    /// # Errors
    /// See [operations](#operations).
    pub fn all_gather_v_in_place<T: Element>(
        &self,
        data: &mut [T],
        counts: &[usize],
        displs: &[usize],
    ) -> Result<()> {
        let data = (Region::of_mut(data), T::DTYPE);
        self.vector_in_place(
            Collective::AllGatherV,
            data,
            Some([counts, displs]),
            Op::Sum.into(),
        )
    }

    /// Reduces the ranks' `send` block by block; of the result this rank's block is left in `recv`. All ranks give the same
    /// counts; where blocks lie is each rank's own affair.
    ///
    /// # Errors
    /// See [operations](#operations).
    pub fn reduce_scatter_v<T: Element>(
        &self,
        send: &[T],
        send_counts: &[usize],
        send_displs: &[usize],
        recv: &mut [T],
        op: impl Reduction<T>,
    ) -> Result<()> {
        let sides = [Side::each(send_counts, send_displs), Side::Own(recv.len())];
        let memory = [Region::of(send), Region::of_mut(recv)];
        self.vector(Collective::ReduceScatterV, sides, memory, T::DTYPE, erased(op))
    }

    /// [`Communicator::reduce_scatter_v`] with this rank's block of `data` for the result. The rest of `data` stays as it is.
    ///
    /// # Errors
    /// See [operations](#operations).
    pub fn reduce_scatter_v_in_place<T: Element>(
        &self,
        data: &mut [T],
        counts: &[usize],
        displs: &[usize],
        op: impl Reduction<T>,
    ) -> Result<()> {
        let data = (Region::of_mut(data), T::DTYPE);
        self.vector_in_place(
            Collective::ReduceScatterV,
            data,
            Some([counts, displs]),
            erased(op),
        )
    }

    /// Gathers `send` of every rank into `root`'s buffer: that of rank r is block r. Only the root's `recv` is looked at: the
    /// buffer, the counts and where the blocks lie.
    ///
    /// # Errors
    /// See [operations](#operations).
    pub fn gather_v<T: Element>(
        &self,
        send: &[T],
        recv: Option<(&mut [T], &[usize], &[usize])>,
        root: usize,
    ) -> Result<()> {
        let (root, (recv, side)) = (rank(root), Side::of_root(recv));
        let sides = [Side::Own(send.len()), side];
        let memory = [Region::of(send), recv.map_or(Region::empty(), Region::of_mut)];
        let collective = Collective::GatherV { root };
        self.vector(collective, sides, memory, T::DTYPE, Op::Sum.into())
    }

    /// [`Communicator::gather_v`] where the root's block lies in its `data`, at its place among the others; that of the others
    /// is what they send. Only the root's `blocks` are looked at: the counts, and where the blocks lie.
    ///
    /// # Errors
    /// See [operations](#operations).
    pub fn gather_v_in_place<T: Element>(
        &self,
        data: &mut [T],
        blocks: Option<(&[usize], &[usize])>,
        root: usize,
    ) -> Result<()> {
        let (root, data) = (rank(root), (Region::of_mut(data), T::DTYPE));
        let blocks = blocks.map(<[_; 2]>::from);
        self.vector_in_place(Collective::GatherV { root }, data, blocks, Op::Sum.into())
    }

    /// Hands block r of `root`'s buffer to rank r, into `recv`. Only the root's `send` is looked at: the buffer, the counts and
    /// where the blocks lie.
    ///
    /// # Errors
    /// See [operations](#operations).
    pub fn scatter_v<T: Element>(
        &self,
        send: Option<(&[T], &[usize], &[usize])>,
        recv: &mut [T],
        root: usize,
    ) -> Result<()> {
        let (root, (send, side)) = (rank(root), Side::of_root(send));
        let sides = [side, Side::Own(recv.len())];
        let memory = [send.map_or(Region::empty(), Region::of), Region::of_mut(recv)];
        let collective = Collective::ScatterV { root };
        self.vector(collective, sides, memory, T::DTYPE, Op::Sum.into())
    }

    /// [`Communicator::scatter_v`] where the root keeps its block in `data`, at its place among the others; that of the others
    /// is what they get. Only the root's `blocks` are looked at: the counts, and where the blocks lie.
    ///
    /// # Errors
    /// See [operations](#operations).
    pub fn scatter_v_in_place<T: Element>(
        &self,
        data: &mut [T],
        blocks: Option<(&[usize], &[usize])>,
        root: usize,
    ) -> Result<()> {
        let (root, data) = (rank(root), (Region::of_mut(data), T::DTYPE));
        let blocks = blocks.map(<[_; 2]>::from);
        self.vector_in_place(Collective::ScatterV { root }, data, blocks, Op::Sum.into())
    }

    pub(crate) fn vector(
        &self,
        collective: Collective,
        sides: [Side<'_>; 2],
        memory: [Region<'_>; 2],
        dtype: DType,
        op: Reducing,
    ) -> Result<()> {
        let as_long = |bytes: [usize; 2]| {
            let part = |k: usize| (bytes[k] <= memory[k].len()).then(|| memory[k].part(0, bytes[k]));
            Some([part(0)?, part(1)?])
        };
        if op.scalar.is_none()
            && let Some(asked) = Asked::new(collective, Size::Given(sides), (dtype, op.op))
            && let Some(outcome) = self.repeat(&asked, as_long)
        {
            return outcome.map_err(|error| *error);
        }
        let blocks = self.given(collective, sides, dtype)?;
        self.run_given(collective, blocks, memory, dtype, op)
    }

    /// Runs a V form with one buffer, in which this rank's own block lies at its place among all, or alone on ranks other than
    /// the root.
    fn vector_in_place(
        &self,
        collective: Collective,
        (data, dtype): (Region<'_>, DType),
        given: Option<[&[usize]; 2]>,
        op: Reducing,
    ) -> Result<()> {
        let me = self.rank();
        let is_root = collective.root().is_none_or(|root| root as usize == me);
        let (count, all) = match given.filter(|_| is_root) {
            // Too few counts are refused.
            Some([counts, displs]) => (counts.get(me).copied().unwrap_or(0), Side::each(counts, displs)),
            None => (data.len() / dtype.size(), Side::None),
        };
        let own = Side::Own(count);
        // The side of all blocks: what is sent, or what is received.
        let (whole, sides) = match collective {
            Collective::ReduceScatterV | Collective::ScatterV { .. } => (0, [all, own]),
            _ => (1, [own, all]),
        };
        let blocks = self.given(collective, sides, dtype)?;
        let mut memory = [data; 2];
        memory[1 - whole] = part(data, blocks.sides[whole][me].start, count, dtype);
        self.run_given(collective, blocks, memory, dtype, op)
    }

    /// Runs a V form on blocks that [`Communicator::given`] has checked.
    pub(crate) fn run_given(
        &self,
        collective: Collective,
        blocks: Arc<Blocks>,
        memory: [Region<'_>; 2],
        dtype: DType,
        op: Reducing,
    ) -> Result<()> {
        let count = count(collective, &blocks);
        let buffers = checked(collective, blocks, memory, (dtype, op))?;
        self.call(collective, buffers, count, dtype, op)
    }

    /// Begins one as [`Communicator::run_given`] runs it.
    pub(crate) fn begin_given(
        &self,
        collective: Collective,
        blocks: Arc<Blocks>,
        memory: [Hold; 2],
        (dtype, op): (DType, Reducing),
        start: Start,
    ) -> Result<()> {
        let count = count(collective, &blocks);
        let regions = memory.each_ref().map(Hold::region);
        let Buffers {
            input,
            output,
            places,
        } = checked(collective, blocks, regions, (dtype, op))?;
        let is_used = [input.len() > 0, output.len() > 0];
        let memory = buffers::keep(memory.map(Some), is_used);
        self.engine
            .start(collective, (memory, places), (count, dtype, op), start)
    }

    /// Checks one and does nothing.
    pub(crate) fn check_given(
        &self,
        collective: Collective,
        blocks: &Arc<Blocks>,
        memory: [Region<'_>; 2],
        what: (DType, Reducing),
    ) -> Result<()> {
        checked(collective, Arc::clone(blocks), memory, what).map(|_| ())
    }
}

/// The `count` elements of a buffer from `first` on, or all of it where they do not lie inside, so that the check of its
/// length tells.
fn part(data: Region<'_>, first: usize, count: usize, dtype: DType) -> Region<'_> {
    let (at, len) = (first * dtype.size(), count * dtype.size());
    if at + len <= data.len() {
        data.part(at, len)
    } else {
        data
    }
}
