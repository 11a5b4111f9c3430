//! The way through memory, in one of two orders.

use super::{number::Number, operator::Operator};
use crate::mem::Region;
use std::mem::MaybeUninit;

/// One more than the bits of the largest number of sources that a tree may have.
const LEVELS: usize = 14;

/// Reduces `sources` into `dst`, all equally long, in blocks of `N` elements; one by one where there are not so many.
///
/// The last block ends with the last element and may overlap the one before it. So that it sees the sources as they
/// were, even when `dst` is one of them, it is computed first and written last.
#[inline(always)]
pub(super) fn walk<T: Number, O: Operator<T::Wide>, const N: usize, const TREE: bool>(
    operator: O,
    sources: &[Region<'_>],
    dst: &Region<'_>,
) {
    if sources.is_empty() {
        return;
    }
    assert!(
        !TREE || sources.len() < 1 << LEVELS,
        "a tree of {} sources",
        sources.len()
    );
    let (element, block) = (size_of::<T>(), size_of::<[T; N]>());
    let len = dst.len();
    assert!(len.is_multiple_of(element) && sources.iter().all(|source| source.len() == len));
    let to = |at: usize| dst.as_ptr().wrapping_add(at).cast::<T>();
    if len < block {
        for at in (0..len).step_by(element) {
            // SAFETY: `at` is a multiple of the element's size, as `len` is, so that an element lies there in every
            // source and in `dst`, which is writable, being written.
            unsafe { reduce_at::<T, O, 1, TREE>(operator, sources, at, to(at)) }
        }
        return;
    }
    let (whole, tail) = (len - len % block, len - block);
    let mut last = MaybeUninit::<[T; N]>::uninit();
    let overlaps = whole < len;
    let (mut at, mut out, mut next) = match overlaps {
        true => (tail, last.as_mut_ptr().cast(), 0),
        false => (0, to(0), block),
    };
    // From one place for both kinds of blocks: the compiler repeats it for each, and it is most of what there is.
    loop {
        // SAFETY: a block lies at `at` in every source, and `out` has room for one: the last `block` bytes and `last`, or a place
        // below `whole`, which counts whole blocks, in the sources and in `dst`.
        unsafe { reduce_at::<T, O, N, TREE>(operator, sources, at, out) }
        if next == whole {
            break;
        }
        (at, out) = (next, to(next));
        next += block;
    }
    if overlaps {
        // SAFETY: `last` was written above, by the same condition; the last `block` bytes of `dst` are elements.
        unsafe { to(tail).cast::<[T; N]>().write_unaligned(last.assume_init()) }
    }
}

/// Reduces two short `sources` into `dst`, all equally long, in blocks of `N` elements, then of `M`, then one by one.
#[inline(always)]
pub(super) fn pair<T: Number, O: Operator<T::Wide>, const N: usize, const M: usize>(
    operator: O,
    sources: [Region<'_>; 2],
    dst: &Region<'_>,
) {
    let (element, len) = (size_of::<T>(), dst.len());
    assert!(len.is_multiple_of(element) && sources.iter().all(|source| source.len() == len));
    let to = |at: usize| dst.as_ptr().wrapping_add(at).cast::<T>();
    let mut at = 0;
    while len - at >= N * element {
        // SAFETY: so many elements are left of both sources and of `dst`, which is writable, being written.
        unsafe { reduce_at::<T, O, N, false>(operator, &sources, at, to(at)) }
        at += N * element;
    }
    while len - at >= M * element {
        // SAFETY: as above.
        unsafe { reduce_at::<T, O, M, false>(operator, &sources, at, to(at)) }
        at += M * element;
    }
    while at < len {
        // SAFETY: as above: whole elements are left.
        unsafe { reduce_at::<T, O, 1, false>(operator, &sources, at, to(at)) }
        at += element;
    }
}

/// Reduces the `N` elements at byte `at` of the sources, of which there is at least one, and writes the results to `to`.
///
/// `N` is a constant so that the compiler makes vector instructions of each loop, without a remainder, and then keeps
/// `total` in registers; going over all sources with each block lets it stay there. For that `N` must not be so small
/// that the loops are unrolled before they are vectorised, nor so large that the registers do not suffice: 512 bytes of
/// accumulators do well with AVX2, AVX-512 and NEON. Smaller blocks work, less fast, and suit short vectors.
///
/// # Safety
/// All sources have `N` elements at `at`; `to` points to room for `N` elements, at any address. The room may be the
/// elements of a source: it is written after all sources were read.
#[inline(always)]
unsafe fn reduce_at<T: Number, O: Operator<T::Wide>, const N: usize, const TREE: bool>(
    operator: O,
    sources: &[Region<'_>],
    at: usize,
    to: *mut T,
) {
    // Of up to three the tree is ((s0 op s1) op s2), too.
    if TREE && sources.len() > 3 {
        // SAFETY: the caller's promises.
        return unsafe { tree_at::<T, O, N>(operator, sources, at, to) };
    }
    let [first, others @ ..] = sources else { return };
    let from = |source: &Region<'_>| source.as_ptr().wrapping_add(at).cast::<T>();
    let mut total = [T::Wide::default(); N];
    // SAFETY: `N` elements lie at `at`, by this function's contract, in memory that is mapped for as long as the region
    // lives (`Region::from_raw`). Each is copied out by a raw read: a peer that writes meanwhile makes its value
    // arbitrary, no more.
    unsafe { T::load::<N>(from(first), |i, value| total[i] = operator.read(0, value)) };
    for (k, source) in (1..).zip(others) {
        let combine = |i: usize, value| total[i] = operator.combine(total[i], operator.read(k, value));
        // SAFETY: as above.
        unsafe { T::load::<N>(from(source), combine) };
    }
    operator.finish(&mut total);
    // SAFETY: the caller gave room for `N` elements.
    unsafe { T::store::<N>(to, |i| total[i]) };
}

/// [`reduce_at`] by the tree of [`Manner::tree`](super::Manner::tree).
///
/// # Safety
/// As for [`reduce_at`]; there are fewer than 2^[`LEVELS`] sources.
#[inline(always)]
unsafe fn tree_at<T: Number, O: Operator<T::Wide>, const N: usize>(
    operator: O,
    sources: &[Region<'_>],
    at: usize,
    to: *mut T,
) {
    // A binary counter of the sources read: where it has bit l set, `levels[l]` is the total of 2^l sources, and those of
    // higher bits come before. No other is written.
    let mut levels = [const { MaybeUninit::<[T::Wide; N]>::uninit() }; LEVELS];
    let mut total = [T::Wide::default(); N];
    let add = |level: &MaybeUninit<[T::Wide; N]>, total: &mut [T::Wide; N]| {
        // SAFETY: called for levels whose bit is set alone.
        let before = unsafe { level.assume_init_ref() };
        for i in 0..N {
            total[i] = operator.combine(before[i], total[i]);
        }
    };
    for (k, source) in sources.iter().enumerate() {
        let from = source.as_ptr().wrapping_add(at).cast::<T>();
        // SAFETY: as in `reduce_at`.
        unsafe { T::load::<N>(from, |i, value| total[i] = operator.read(k, value)) };
        let carries = k.trailing_ones() as usize;
        levels[..carries].iter().for_each(|level| add(level, &mut total));
        levels[carries].write(total);
    }
    let bits = |l: &usize| sources.len() >> l & 1 == 1;
    let mut rest = (0..LEVELS).filter(bits);
    if let Some(lowest) = rest.next() {
        // SAFETY: its bit is set.
        total = unsafe { levels[lowest].assume_init() };
    }
    rest.for_each(|l| add(&levels[l], &mut total));
    operator.finish(&mut total);
    // SAFETY: the caller gave room for `N` elements.
    unsafe { T::store::<N>(to, |i| total[i]) };
}
