//! The V forms of the collectives: the caller says how long each block is and where in the buffer it lies.

use super::{
    Communicator,
    buffers::{self, Buffers, Places},
    collectives::{erased, rank},
    engine::Start,
};
use crate::{
    mem::{Hold, Region},
    plan::{definition, layout::Blocks},
    types::{Collective, DType, Element, Error, Op, Reducing, Reduction, Result, count_of_all},
};
use std::{ops::Range, sync::Arc};

/// What a V call sends, or what it receives, on one rank.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Side<'a> {
    /// A block for each rank: its elements, and the element of the buffer at which it begins.
    Each {
        counts: &'a [usize],
        displs: &'a [usize],
    },
    /// The rank's own block alone, so many elements from the buffer's beginning on.
    Own(usize),
    /// Nothing is given.
    None,
}

impl<'a> Side<'a> {
    pub(super) fn each(counts: &'a [usize], displs: &'a [usize]) -> Self {
        Side::Each { counts, displs }
    }

    /// What only the root gives: its buffer, and the blocks in it.
    pub(super) fn of_root<B>(given: Option<(B, &'a [usize], &'a [usize])>) -> (Option<B>, Self) {
        match given {
            Some((buffer, counts, displs)) => (Some(buffer), Side::each(counts, displs)),
            None => (None, Side::None),
        }
    }
}

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

    fn vector(
        &self,
        collective: Collective,
        sides: [Side<'_>; 2],
        memory: [Region<'_>; 2],
        dtype: DType,
        op: Reducing,
    ) -> Result<()> {
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

    /// The blocks of a V call on this rank, of what is sent and of what is received. What the rank has no part in is not
    /// looked at.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a root that is no rank; for counts and places that are not one for each rank, that no memory
    /// holds, or that contradict each other.
    pub(crate) fn given(
        &self,
        collective: Collective,
        [send, recv]: [Side<'_>; 2],
        dtype: DType,
    ) -> Result<Arc<Blocks>> {
        self.check_root(collective)?;
        let (me, ranks) = (self.rank(), self.ranks());
        let of = |name: &str, side, has: Range<usize>| match side {
            _ if has.is_empty() => Ok(vec![0..0; ranks]),
            Side::None => Err(Error::invalid(format!(
                "the root of a {} needs a {name} buffer with its counts and displacements",
                collective.name()
            ))),
            Side::Own(count) => {
                let mut blocks = vec![0..0; ranks];
                blocks[me] = 0..count;
                Ok(blocks)
            }
            Side::Each { counts, displs } => each_block(name, counts, displs, ranks, dtype),
        };
        let (input, output) = (
            definition::input(collective, me, ranks),
            definition::output(collective, me, ranks),
        );
        let has_both = input.contains(&me) && output.contains(&me);
        let sides = [of("send", send, input)?, of("receive", recv, output)?];
        let [sent, received] = sides.each_ref().map(|side| side[me].len());
        if has_both && sent != received {
            return Err(Error::invalid(format!(
                "rank {me}'s own block has {sent} elements where it is sent and {received} where it is received: both counts \
                 must be the same"
            )));
        }
        lie_apart(&sides[1])?;
        Ok(Arc::new(Blocks {
            sides,
            by_pair: collective.counts_by_pair(),
        }))
    }
}

/// The count of the call that all ranks make.
fn count(collective: Collective, blocks: &Blocks) -> usize {
    if collective.counts_by_pair() {
        return blocks.total(0);
    }
    let all = usize::from(collective == Collective::AllGatherV);
    count_of_all(blocks.sides[all].iter().map(Range::len)) as usize
}

/// A block for each rank.
fn each_block(
    name: &str,
    counts: &[usize],
    displs: &[usize],
    ranks: usize,
    dtype: DType,
) -> Result<Vec<Range<usize>>> {
    if [counts.len(), displs.len()] != [ranks; 2] {
        return Err(Error::invalid(format!(
            "there are {} {name} counts and {} displacements: there must be one of each for each of {ranks} ranks",
            counts.len(),
            displs.len()
        )));
    }
    let fits = |elements: usize| {
        let bytes = elements.checked_mul(dtype.size());
        bytes.is_some_and(|bytes| isize::try_from(bytes).is_ok())
    };
    let (mut blocks, mut sum) = (Vec::with_capacity(ranks), 0usize);
    for (rank, (&count, &displ)) in counts.iter().zip(displs).enumerate() {
        if count == 0 {
            blocks.push(0..0);
            continue;
        }
        let end = displ.checked_add(count).filter(|&end| fits(end));
        let total = sum.checked_add(count).filter(|&total| fits(total));
        let (Some(end), Some(total)) = (end, total) else {
            return Err(Error::invalid(format!(
                "no {name} buffer can hold {count} elements of {dtype} for rank {rank} from element {displ} on, after \
                 {sum} for the ranks before: the most is {} bytes. Counts and displacements are elements, not bytes, and \
                 never negative",
                isize::MAX
            )));
        };
        blocks.push(displ..end);
        sum = total;
    }
    Ok(blocks)
}

/// Refuses blocks that would be received one over the other.
fn lie_apart(blocks: &[Range<usize>]) -> Result<()> {
    let mut order: Vec<usize> = (0..blocks.len())
        .filter(|&rank| !blocks[rank].is_empty())
        .collect();
    order.sort_unstable_by_key(|&rank| blocks[rank].start);
    let overlap = order
        .windows(2)
        .find(|pair| blocks[pair[1]].start < blocks[pair[0]].end);
    let Some(&[a, b]) = overlap else { return Ok(()) };
    Err(Error::invalid(format!(
        "the blocks received from ranks {a} and {b} overlap: elements {:?} and {:?} of the receive buffer",
        blocks[a], blocks[b]
    )))
}

/// What a call works on, if its memory is right.
fn checked<'m>(
    collective: Collective,
    blocks: Arc<Blocks>,
    [input, output]: [Region<'m>; 2],
    (dtype, op): (DType, Reducing),
) -> Result<Buffers<'m>> {
    buffers::check_op(collective, dtype, op)?;
    let spanned = |name: &str, side: usize, region: Region<'m>| {
        let (span, bytes) = (blocks.span(side), blocks.span(side) * dtype.size());
        match region.len() {
            _ if bytes == 0 => Ok(Region::empty()),
            len if len < bytes => Err(Error::invalid(format!(
                "the {name} buffer has {len} bytes: its blocks reach up to {span} elements of {dtype}, {bytes} bytes"
            ))),
            _ => Ok(region),
        }
    };
    let (input, output) = (spanned("send", 0, input)?, spanned("receive", 1, output)?);
    if input.overlaps(&output) {
        stay_apart(collective, &blocks, [&input, &output], dtype.size())?;
    }
    Ok(Buffers {
        input,
        output,
        places: Places::Given(blocks),
    })
}

/// Refuses a block that is received over one that is sent, but for the rank's own where both are the same.
fn stay_apart(
    collective: Collective,
    blocks: &Blocks,
    memory: [&Region<'_>; 2],
    element: usize,
) -> Result<()> {
    // The addresses of the blocks of one side.
    let addresses = |side: usize| {
        let base = memory[side].as_ptr().addr();
        let there = blocks.sides[side].iter().enumerate();
        there
            .filter(|(_, block)| !block.is_empty())
            .map(move |(rank, block)| (base + block.start * element..base + block.end * element, rank))
    };
    let mut received: Vec<_> = addresses(1).collect();
    received.sort_unstable_by_key(|(at, _)| at.start);
    for (sent, to) in addresses(0) {
        let first = received.partition_point(|(at, _)| at.end <= sent.start);
        let hit = received[first..].iter().take_while(|(at, _)| at.start < sent.end);
        let is_wrong = |(at, from): &&(Range<usize>, usize)| {
            collective == Collective::AlltoAllV || *from != to || at.start != sent.start
        };
        if let Some((_, from)) = hit.into_iter().find(is_wrong) {
            let in_place = match collective {
                Collective::AlltoAllV => "this operation has no form in place",
                _ => "in place this rank's own block begins at the same address in both buffers",
            };
            return Err(Error::invalid(format!(
                "block {to} of the send buffer and block {from} of the receive buffer overlap: {in_place}, and all others \
                 must lie apart"
            )));
        }
    }
    Ok(())
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
