//! What kernels are launched with: args.h in Rust.

use super::Kernel;
use crate::types::{DType, Op};
use std::{cmp::Ordering, num::NonZero};

/// The most sources, and the most destinations, of a reduction.
pub(crate) const MOST_SOURCES: usize = 16;

/// The most ranges of a copy.
pub(crate) const MOST_RANGES: usize = 64;

/// Bytes that are loaded and stored at once, at their multiples.
const PACK: u64 = 16;

/// `struct ccl_entry`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Entry {
    pub(crate) send: u64,
    pub(crate) recv: u64,
    pub(crate) call: u64,
    pub(crate) turn: u64,
    pub(crate) agreed: u64,
    pub(crate) done: u32,
    pub(crate) reserved: u32,
}

/// `struct ccl_meeting`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Meeting {
    pub(super) reset: u64,
    pub(super) told: [u64; MOST_SOURCES],
    pub(super) n: u32,
    pub(super) reserved: u32,
}

/// `struct ccl_call`: a call of all ranks, in which kernels find buffers by entries.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct InCall {
    pub(super) number: u64,
    pub(super) own: u64,
    pub(super) entries: [u64; MOST_SOURCES],
    pub(super) nobody: u64,
    pub(super) meeting: Meeting,
    pub(super) ranks: u32,
    pub(super) reserved: u32,
}

/// `struct ccl_arrive_args`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct ArriveArgs {
    pub(super) call: InCall,
    pub(super) send: u64,
    pub(super) recv: u64,
}

/// `struct ccl_reduce_args`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct ReduceArgs {
    pub(super) sources: [u64; MOST_SOURCES],
    pub(super) destinations: [u64; MOST_SOURCES],
    pub(super) scalars: [u64; MOST_SOURCES],
    pub(super) count: u64,
    pub(super) source_at: u64,
    pub(super) destination_at: u64,
    pub(super) source_step: u64,
    pub(super) destination_step: u64,
    pub(super) call: InCall,
    pub(super) n: u32,
    pub(super) m: u32,
    pub(super) scaled: u32,
    pub(super) ranks: u32,
    pub(super) rounded: u32,
    pub(super) rows: u32,
    pub(super) sources_apart: u32,
    pub(super) destinations_apart: u32,
}

/// `struct ccl_copy_args`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct CopyArgs {
    pub(super) from: [u64; MOST_RANGES],
    pub(super) to: [u64; MOST_RANGES],
    pub(super) bytes: [u64; MOST_RANGES],
    pub(super) ranges: u32,
    pub(super) reserved: u32,
}

/// `struct ccl_swap_args`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct SwapArgs {
    pub(super) begins: [u64; MOST_SOURCES],
    pub(super) bytes: [u64; MOST_SOURCES],
    pub(super) blocks: [u64; MOST_SOURCES],
    pub(super) own_at: u64,
    pub(super) sends: [u64; MOST_SOURCES],
    pub(super) recvs: [u64; MOST_SOURCES],
    pub(super) call: InCall,
    pub(super) me: u32,
    pub(super) reserved: u32,
}

/// A kernel, what it is launched with, and how many items the threads of a row of the grid have to do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launch<A> {
    pub(crate) kernel: Kernel,
    pub(crate) args: A,
    pub(crate) items: u64,
    pub(crate) rows: u32,
}

/// Where the sources and destinations of a reduction are: so many bytes behind the addresses that it is told; in a call these are the
/// addresses of ranks' entries, and it is so many bytes behind where their buffers begin.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lie {
    pub(crate) call: InCall,
    pub(crate) source_at: u64,
    pub(crate) destination_at: u64,
}

impl InCall {
    /// A call that is told from others by its number, of the rank with this number and all whose entries these are, in their order; `None` of
    /// more than [`MOST_SOURCES`]. A word that becomes 1 where a kernel does nothing, and whom a kernel tells that it is through.
    pub(crate) fn new(
        number: NonZero<u64>,
        rank: usize,
        all: impl IntoIterator<Item = u64>,
        nobody: u64,
        meeting: Meeting,
    ) -> Option<Self> {
        let mut call = InCall {
            number: number.get(),
            nobody,
            meeting,
            ..InCall::default()
        };
        for entry in all {
            *call.entries.get_mut(call.ranks as usize)? = entry;
            call.ranks += 1;
        }
        call.own = *call.entries[..call.ranks as usize].get(rank)?;
        Some(call)
    }
}

impl Meeting {
    /// Has these bytes set when the words at `reset` were set back; `None` of more than [`MOST_SOURCES`].
    pub(crate) fn new(reset: u64, bytes: impl IntoIterator<Item = u64>) -> Option<Self> {
        let mut meeting = Meeting {
            reset,
            ..Meeting::default()
        };
        for byte in bytes {
            *meeting.told.get_mut(meeting.n as usize)? = byte;
            meeting.n += 1;
        }
        Some(meeting)
    }
}

impl ArriveArgs {
    /// The beginning of a call on these buffers.
    pub(crate) fn new(call: InCall, [send, recv]: [u64; 2]) -> Launch<ArriveArgs> {
        let args = ArriveArgs { call, send, recv };
        Launch {
            kernel: Kernel::Arrive,
            args,
            items: 1,
            rows: 1,
        }
    }
}

/// How sources become one vector: what [`reduce_as`](crate::reduce::reduce_as) is told, and each source may have a
/// scalar.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reducing<'s> {
    pub(crate) op: Op,
    pub(crate) dtype: DType,
    /// The number of all ranks, where the result holds the contributions of all: an average is divided then.
    pub(crate) finish: Option<NonZero<u32>>,
    /// Whether floats are combined by the tree of [`Manner`](crate::reduce::Manner).
    pub(crate) tree: bool,
    /// Of a pre-multiplied sum: sources, and by what each is multiplied: the element at the lowest address of these
    /// bytes.
    pub(crate) scaled: &'s [(usize, u64)],
}

/// Where the rows of a reduction have their sources, or their destinations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row<'a> {
    pub(crate) addresses: &'a [u64],
    /// Whether each row has one of its own, row r the r-th; else all have all of them.
    pub(crate) is_one: bool,
    /// So many bytes further in each row.
    pub(crate) step: u64,
}

impl<'a> Row<'a> {
    /// The addresses that the first of so many rows has; `None` where there is not one for each.
    fn first(&self, rows: usize) -> Option<&'a [u64]> {
        match self.is_one {
            true if self.addresses.len() != rows => None,
            true => self.addresses.get(..1),
            false => Some(self.addresses),
        }
    }
}

/// A piece of memory that is copied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) bytes: u64,
}

impl ReduceArgs {
    /// The reduction of `count` elements at each of these addresses; `None` where there are no
    /// sources or destinations, or more than [`MOST_SOURCES`], or a scalar of none of them.
    ///
    /// A destination may be a source, exactly. With one source and nothing to divide or to multiply it is a copy,
    /// bit by bit.
    pub(crate) fn new(
        how: &Reducing<'_>,
        count: u64,
        lie: Lie,
        sources: &[u64],
        destinations: &[u64],
    ) -> Option<Launch<ReduceArgs>> {
        let fits = |addresses: &[u64]| (1..=MOST_SOURCES).contains(&addresses.len());
        let is_source = |&(source, _): &(usize, u64)| source < sources.len();
        if !how.op.accepts(how.dtype)
            || !fits(sources)
            || !fits(destinations)
            || !how.scaled.iter().all(is_source)
        {
            return None;
        }
        let ranks = how.finish.filter(|_| how.op == Op::Avg);
        let kernel = match sources {
            [_] if ranks.is_none() && how.scaled.is_empty() => Kernel::Reduce(Op::BitOr, DType::Uint8),
            // Of up to three the tree is ((s0 op s1) op s2), too.
            _ => Kernel::of(how.op, how.dtype, how.tree && sources.len() > 3),
        };
        let bytes = count * how.dtype.size() as u64;
        let mut args = ReduceArgs {
            sources: [0; MOST_SOURCES],
            destinations: [0; MOST_SOURCES],
            scalars: [0; MOST_SOURCES],
            count: match kernel {
                Kernel::Reduce(Op::BitAnd | Op::BitOr | Op::BitXor, _) => bytes,
                _ => count,
            },
            source_at: lie.source_at,
            destination_at: lie.destination_at,
            source_step: 0,
            destination_step: 0,
            call: lie.call,
            n: sources.len() as u32,
            m: destinations.len() as u32,
            scaled: 0,
            ranks: ranks.map_or(0, NonZero::get),
            rounded: 1,
            rows: 1,
            sources_apart: 0,
            destinations_apart: 0,
        };
        args.sources[..sources.len()].copy_from_slice(sources);
        args.destinations[..destinations.len()].copy_from_slice(destinations);
        for &(source, scalar) in how.scaled {
            args.scalars[source] = scalar;
            args.scaled |= 1 << source;
        }
        let items = bytes.div_ceil(PACK);
        Some(Launch {
            kernel,
            args,
            items,
            rows: 1,
        })
    }

    /// So many reductions at once, of `count` elements each: row r's is that of its sources into its destinations. `None` where
    /// [`ReduceArgs::new`] has none for a row, of no rows or more than [`MOST_SOURCES`], and where each row is to have one address and
    /// there are not as many.
    ///
    /// A destination may be a source of its row, exactly.
    pub(crate) fn in_rows(
        how: &Reducing<'_>,
        count: u64,
        rows: usize,
        sources: &Row<'_>,
        destinations: &Row<'_>,
    ) -> Option<Launch<ReduceArgs>> {
        if !(1..=MOST_SOURCES).contains(&rows) {
            return None;
        }
        let (from, to) = (sources.first(rows)?, destinations.first(rows)?);
        let mut launch = ReduceArgs::new(how, count, Lie::default(), from, to)?;
        let args = &mut launch.args;
        args.sources[..sources.addresses.len()].copy_from_slice(sources.addresses);
        args.destinations[..destinations.addresses.len()].copy_from_slice(destinations.addresses);
        (args.source_step, args.destination_step) = (sources.step, destinations.step);
        (args.sources_apart, args.destinations_apart) = (sources.is_one.into(), destinations.is_one.into());
        args.rows = rows as u32;
        launch.rows = args.rows;
        Some(launch)
    }
}

impl CopyArgs {
    /// The copy of these ranges; `None` where there are more than [`MOST_RANGES`].
    pub(crate) fn new(ranges: &[Range]) -> Option<Launch<CopyArgs>> {
        let mut args = CopyArgs {
            from: [0; MOST_RANGES],
            to: [0; MOST_RANGES],
            bytes: [0; MOST_RANGES],
            ranges: ranges.len().try_into().ok()?,
            reserved: 0,
        };
        if ranges.len() > MOST_RANGES {
            return None;
        }
        for (i, range) in ranges.iter().enumerate() {
            (args.from[i], args.to[i], args.bytes[i]) = (range.from, range.to, range.bytes);
        }
        let longest = ranges.iter().map(|range| range.bytes).max();
        Some(Launch {
            kernel: Kernel::Copy,
            args,
            items: dealt(longest, ranges.len()),
            rows: 1,
        })
    }
}

/// What two ranks exchange of the blocks that they have for each other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Swap {
    /// Where this rank has, in its buffers, the block for the other, and the one from it.
    pub(crate) block: u64,
    /// From where on in the blocks, and how much.
    pub(crate) begin: u64,
    pub(crate) bytes: u64,
}

impl Swap {
    /// What `me` exchanges with each of so many ranks, in their order, where blocks have so many bytes.
    pub(crate) fn with_all(me: usize, ranks: usize, block: u64) -> Vec<Swap> {
        let with = |other: usize| {
            let (begin, end) = shared_part(me, other, block);
            Swap {
                block: other as u64 * block,
                begin,
                bytes: end - begin,
            }
        };
        (0..ranks).map(with).collect()
    }
}

impl SwapArgs {
    /// The exchanges with all ranks, in their order, of the one whose block begins at `own_at` in the others' buffers; `None` where there are
    /// not as many as ranks.
    pub(crate) fn new(call: InCall, own_at: u64, swaps: &[Swap]) -> Option<Launch<SwapArgs>> {
        if swaps.len() != call.ranks as usize {
            return None;
        }
        let mut args = SwapArgs {
            begins: [0; MOST_SOURCES],
            bytes: [0; MOST_SOURCES],
            blocks: [0; MOST_SOURCES],
            own_at,
            sends: [0; MOST_SOURCES],
            recvs: [0; MOST_SOURCES],
            call,
            me: 0,
            reserved: 0,
        };
        for (i, swap) in swaps.iter().enumerate() {
            (args.blocks[i], args.begins[i], args.bytes[i]) = (swap.block, swap.begin, swap.bytes);
        }
        let longest = swaps.iter().map(|swap| swap.bytes).max();
        Some(Launch {
            kernel: Kernel::Swap,
            args,
            items: dealt(longest, swaps.len()),
            rows: 1,
        })
    }

    /// `me`'s part of the exchange of blocks, of so many bytes, between ranks whose send and receive buffers these are; `None` of more
    /// than [`MOST_SOURCES`], and where `me` is none of them.
    pub(crate) fn between(me: usize, ends: &[[u64; 2]], block: u64) -> Option<Launch<SwapArgs>> {
        if ends.len() > MOST_SOURCES || me >= ends.len() {
            return None;
        }
        let call = InCall {
            ranks: ends.len() as u32,
            ..InCall::default()
        };
        let swaps = Swap::with_all(me, ends.len(), block);
        let mut launch = SwapArgs::new(call, me as u64 * block, &swaps)?;
        for (i, [send, recv]) in ends.iter().enumerate() {
            (launch.args.sends[i], launch.args.recvs[i]) = (*send, *recv);
        }
        launch.args.me = me as u32;
        Some(launch)
    }
}

/// The items of so many ranges: as if all were as long as the longest, since blocks are dealt to ranges.
fn dealt(longest: Option<u64>, ranges: usize) -> u64 {
    let items = longest.unwrap_or(0).div_ceil(PACK);
    items.next_multiple_of(super::THREADS.into()) * ranges as u64
}

/// Which part, from where to where, of the `bytes` of the blocks that two ranks have for each other `me` exchanges: each half,
/// and with itself all.
fn shared_part(me: usize, other: usize, bytes: u64) -> (u64, u64) {
    let half = (bytes / 2).next_multiple_of(PACK).min(bytes);
    match me.cmp(&other) {
        Ordering::Less => (0, half),
        Ordering::Equal => (0, bytes),
        Ordering::Greater => (half, bytes),
    }
}
