//! The blocks of the V forms: what a caller gives of them, and its checks.

use super::{
    Communicator,
    buffers::{self, Buffers, Places},
};
use crate::{
    mem::Region,
    plan::{definition, layout::Blocks},
    types::{Collective, DType, Error, Reducing, Result, count_of_all},
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

    /// Whether `blocks` are what it gives of rank `me`.
    #[inline]
    pub(super) fn is(&self, blocks: &[Range<usize>], me: usize) -> bool {
        match *self {
            Side::Each { counts, displs } => {
                let is = |((count, displ), block): ((&usize, &usize), &Range<usize>)| {
                    *count == block.len() && (*count == 0 || *displ == block.start)
                };
                let is_for_all = counts.len() == blocks.len() && displs.len() == blocks.len();
                is_for_all && counts.iter().zip(displs).zip(blocks).all(is)
            }
            Side::Own(count) => blocks[me] == (0..count),
            Side::None => false,
        }
    }

    /// What only the root gives: its buffer, and the blocks in it.
    pub(super) fn of_root<B>(given: Option<(B, &'a [usize], &'a [usize])>) -> (Option<B>, Self) {
        match given {
            Some((buffer, counts, displs)) => (Some(buffer), Side::each(counts, displs)),
            None => (None, Side::None),
        }
    }
}

impl Communicator {
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
pub(super) fn count(collective: Collective, blocks: &Blocks) -> usize {
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
pub(super) fn checked<'m>(
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
