//! What kernels are launched with: args.h in Rust.

use super::Kernel;
use crate::types::{DType, Op};
use std::num::NonZero;

/// The most sources, and the most destinations, of a reduction.
pub(crate) const MOST_SOURCES: usize = 16;

/// The most ranges of a copy.
pub(crate) const MOST_RANGES: usize = 64;

/// Bytes that are loaded and stored at once, at their multiples.
const PACK: u64 = 16;

/// `struct ccl_reduce_args`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct ReduceArgs {
    pub(super) sources: [u64; MOST_SOURCES],
    pub(super) destinations: [u64; MOST_SOURCES],
    pub(super) scalars: [u64; MOST_SOURCES],
    pub(super) count: u64,
    pub(super) packs: u64,
    pub(super) head: u32,
    pub(super) n: u32,
    pub(super) m: u32,
    pub(super) scaled: u32,
    pub(super) ranks: u32,
    pub(super) whole: u32,
    pub(super) rounded: u32,
    pub(super) reserved: u32,
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

/// How sources become one vector: what [`reduce_as`](crate::reduce::reduce_as) is told, and each source may have a
/// scalar.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reducing<'s> {
    pub(crate) op: Op,
    pub(crate) dtype: DType,
    /// The number of all ranks, where the result holds the contributions of all: an average is divided then.
    pub(crate) finish: Option<NonZero<u32>>,
    /// Whether floats are combined by the tree of [`Manner`](crate::reduce::Manner), and products rounded.
    pub(crate) tree: bool,
    /// Of a pre-multiplied sum: sources, and by what each is multiplied: the element at the lowest address of these
    /// bytes.
    pub(crate) scaled: &'s [(usize, u64)],
}

/// A piece of memory that is copied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) bytes: u64,
}

impl ReduceArgs {
    /// The reduction of `count` elements at each of these addresses, and its kernel; `None` where there are no
    /// sources or destinations, or more than [`MOST_SOURCES`], or a scalar of none of them.
    ///
    /// A destination may be a source, exactly. With one source and nothing to divide or to multiply it is a copy,
    /// bit by bit.
    pub(crate) fn new(
        how: &Reducing<'_>,
        count: u64,
        sources: &[u64],
        destinations: &[u64],
    ) -> Option<(Kernel, ReduceArgs)> {
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
        let (size, count) = match kernel {
            Kernel::Reduce(Op::BitAnd | Op::BitOr | Op::BitXor, _) => (1, count * how.dtype.size() as u64),
            _ => (how.dtype.size() as u64, count),
        };
        let all = || sources.iter().chain(destinations).copied();
        let before = sources[0].wrapping_neg() % PACK;
        let alike =
            all().all(|address| address.wrapping_neg() % PACK == before) && before.is_multiple_of(size);
        let head = if alike { count.min(before / size) } else { 0 };
        let mut args = ReduceArgs {
            sources: [0; MOST_SOURCES],
            destinations: [0; MOST_SOURCES],
            scalars: [0; MOST_SOURCES],
            count,
            packs: if alike { (count - head) * size / PACK } else { 0 },
            head: head as u32,
            n: sources.len() as u32,
            m: destinations.len() as u32,
            scaled: 0,
            ranks: ranks.map_or(0, NonZero::get),
            whole: all().all(|address| address.is_multiple_of(size)).into(),
            rounded: how.tree.into(),
            reserved: 0,
        };
        args.sources[..sources.len()].copy_from_slice(sources);
        args.destinations[..destinations.len()].copy_from_slice(destinations);
        for &(source, scalar) in how.scaled {
            args.scalars[source] = scalar;
            args.scaled |= 1 << source;
        }
        Some((kernel, args))
    }

    /// How many items the threads have to do.
    pub(crate) fn items(&self) -> u64 {
        // Without packs as many as elements; with them elements are a handful.
        if self.packs > 0 { self.packs } else { self.count }
    }
}

impl CopyArgs {
    /// The copy of these ranges; `None` where there are more than [`MOST_RANGES`].
    pub(crate) fn new(ranges: &[Range]) -> Option<(Kernel, CopyArgs)> {
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
        Some((Kernel::Copy, args))
    }

    /// How many items the threads have to do: as if all ranges were as long as the longest, since blocks are dealt
    /// to ranges.
    pub(crate) fn items(&self) -> u64 {
        let longest = self.bytes.iter().max().map_or(0, |bytes| bytes.div_ceil(PACK));
        longest.next_multiple_of(super::THREADS.into()) * u64::from(self.ranges)
    }
}
