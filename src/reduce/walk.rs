//! The way through memory.

use super::{number::Number, operator::Operator};
use crate::mem::Region;
use std::mem::MaybeUninit;

/// Reduces `sources` into `dst`, all equally long, in blocks of `N` elements; one by one where there are not so many.
///
/// The last block ends with the last element and may overlap the one before it. So that it sees the sources as they
/// were, even when `dst` is one of them, it is computed first and written last.
#[inline(always)]
pub(super) fn walk<T: Number, O: Operator<T::Wide>, const N: usize>(
    operator: O,
    sources: &[Region<'_>],
    dst: &Region<'_>,
) {
    let [first, others @ ..] = sources else { return };
    let (element, block) = (size_of::<T>(), size_of::<[T; N]>());
    let len = dst.len();
    assert!(len.is_multiple_of(element) && sources.iter().all(|source| source.len() == len));
    let to = |at: usize| dst.as_ptr().wrapping_add(at).cast::<T>();
    if len < block {
        for at in (0..len).step_by(element) {
            // SAFETY: `at` is a multiple of the element's size, as `len` is, so that an element lies there in every
            // source and in `dst`, which is writable, being written.
            unsafe { reduce_at::<T, O, 1>(operator, first, others, at, to(at)) }
        }
        return;
    }
    let (whole, tail) = (len - len % block, len - block);
    let mut last = MaybeUninit::<[T; N]>::uninit();
    if whole < len {
        // SAFETY: the last `block` bytes are elements of every source; `last` has room for as many.
        unsafe { reduce_at::<T, O, N>(operator, first, others, tail, last.as_mut_ptr().cast()) }
    }
    for at in (0..whole).step_by(block) {
        // SAFETY: a block lies at `at` in every source and in `dst`, since `whole` counts whole blocks.
        unsafe { reduce_at::<T, O, N>(operator, first, others, at, to(at)) }
    }
    if whole < len {
        // SAFETY: `last` was written above, by the same condition; the last `block` bytes of `dst` are elements.
        unsafe { to(tail).cast::<[T; N]>().write_unaligned(last.assume_init()) }
    }
}

/// Reduces the `N` elements at byte `at` of the sources and writes the results to `to`.
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
unsafe fn reduce_at<T: Number, O: Operator<T::Wide>, const N: usize>(
    operator: O,
    first: &Region<'_>,
    others: &[Region<'_>],
    at: usize,
    to: *mut T,
) {
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
    // SAFETY: the caller gave room for `N` elements.
    unsafe { T::store::<N>(to, |i| operator.finish(total[i])) };
}
