//! Copies that know what becomes of the lines they write.

#[cfg(target_arch = "x86_64")]
use crate::sys::cache::prefetch_to_write;

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;
/// Lines by which one is asked for before it is written.
#[cfg(target_arch = "x86_64")]
const AHEAD: usize = 16;
/// Bytes of the fewest lines that are worth it.
pub(super) const FEW: usize = 256;
/// Bytes of the fewest that are worth going past the caches for another processor's sake; few in tests, whose vectors are short.
pub(super) const PAST: usize = if cfg!(test) { LINE } else { 1 << 10 };

/// How lines are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stores {
    /// Lines that another processor has had last are asked for ahead of time, so that the stores do not wait for one after the
    /// other.
    Ahead,
    /// Past the caches, for what is not read again soon: what was in the lines is not read first. Each line goes by one store
    /// where the processor has such, as a line that is written in parts may leave in parts. Others see them in order only
    /// after [`settle_streams`], on the thread that wrote.
    Streaming,
}

/// Copies `lines` lines.
///
/// # Safety
/// Both are mapped, and the same or apart. For [`Stores::Streaming`] `to` begins at a multiple of a line.
pub(super) unsafe fn copy_lines(to: *mut u8, from: *const u8, lines: usize, stores: Stores) {
    // Miri knows no streaming stores.
    let stores = if cfg!(miri) { Stores::Ahead } else { stores };
    #[cfg(target_arch = "x86_64")]
    {
        let copy = match (is_x86_feature_detected!("avx512f"), stores) {
            (true, Stores::Ahead) => whole_lines::<false>,
            (true, Stores::Streaming) => whole_lines::<true>,
            (false, Stores::Ahead) => by_parts::<false>,
            (false, Stores::Streaming) => by_parts::<true>,
        };
        // SAFETY: the caller's, and the processor has AVX-512 where that is used.
        unsafe { copy(to, from, lines) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = stores;
        // SAFETY: the caller's.
        unsafe { std::ptr::copy(from, to, lines * LINE) }
    }
}

/// Calls `copy` for where each of the `lines` lines begins. Those at `to` are asked for ahead of time, unless they go `PAST` the
/// caches.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn each_line<const PAST: bool>(to: *const u8, lines: usize, copy: impl Fn(usize)) {
    let ask_for = |line: usize| prefetch_to_write(to.wrapping_add(line * LINE));
    if !PAST {
        (0..lines.min(AHEAD)).for_each(ask_for);
    }
    for line in 0..lines {
        if !PAST && line + AHEAD < lines {
            ask_for(line + AHEAD);
        }
        copy(line * LINE);
    }
}

/// # Safety
/// As of [`copy_lines`], and the processor has AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn whole_lines<const PAST: bool>(to: *mut u8, from: *const u8, lines: usize) {
    use std::arch::x86_64::{__m512i, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_stream_si512};
    each_line::<PAST>(to, lines, |at| {
        // SAFETY: the caller's.
        unsafe {
            let (to, line) = (
                to.add(at).cast::<__m512i>(),
                _mm512_loadu_si512(from.add(at).cast::<__m512i>()),
            );
            match PAST {
                true => _mm512_stream_si512(to, line),
                false => _mm512_storeu_si512(to, line),
            }
        }
    });
}

/// SSE2 is there on every x86-64.
///
/// # Safety
/// As of [`copy_lines`].
#[cfg(target_arch = "x86_64")]
unsafe fn by_parts<const PAST: bool>(to: *mut u8, from: *const u8, lines: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_storeu_si128, _mm_stream_si128};
    each_line::<PAST>(to, lines, |at| {
        // SAFETY: the caller's.
        unsafe {
            let (to, from) = (to.add(at).cast::<__m128i>(), from.add(at).cast::<__m128i>());
            let line: [__m128i; 4] = std::array::from_fn(|k| _mm_loadu_si128(from.add(k)));
            for (k, part) in line.into_iter().enumerate() {
                match PAST {
                    true => _mm_stream_si128(to.add(k), part),
                    false => _mm_storeu_si128(to.add(k), part),
                }
            }
        }
    });
}

/// Orders what this thread has written by [`Stores::Streaming`] before all that it writes from here on.
pub(crate) fn settle_streams() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: SSE is there on every x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
