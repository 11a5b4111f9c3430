//! Copies that know what becomes of the lines they write.

#[cfg(target_arch = "x86_64")]
use crate::sys::cache::prefetch_to_write;

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;
/// Bytes by which lines are asked for before they are written.
#[cfg(target_arch = "x86_64")]
const AHEAD: usize = 1 << 10;
/// Bytes of the fewest lines that are worth it.
pub(super) const FEW: usize = 256;

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
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the caller's, and the processor has AVX-512.
            return unsafe { whole_lines(to, from, lines, stores) };
        }
        // SAFETY: the caller's.
        unsafe { by_parts(to, from, lines, stores) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = stores;
        // SAFETY: the caller's.
        unsafe { std::ptr::copy(from, to, lines * LINE) }
    }
}

/// Asks for those of the `lines` lines at `to` that begin at `bytes` of them, if they are to be written [`Stores::Ahead`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn ask_for(to: *const u8, bytes: std::ops::Range<usize>, lines: usize, stores: Stores) {
    if stores == Stores::Ahead {
        let those = bytes.start..bytes.end.min(lines * LINE);
        those
            .step_by(LINE)
            .for_each(|at| prefetch_to_write(to.wrapping_add(at)));
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn whole_lines(to: *mut u8, from: *const u8, lines: usize, stores: Stores) {
    use std::arch::x86_64::{__m512i, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_stream_si512};
    ask_for(to, 0..AHEAD, lines, stores);
    for at in (0..lines).map(|line| line * LINE) {
        // SAFETY: the caller's.
        unsafe {
            let line = _mm512_loadu_si512(from.add(at).cast::<__m512i>());
            match stores {
                Stores::Ahead => {
                    ask_for(to, at + AHEAD..at + AHEAD + LINE, lines, stores);
                    _mm512_storeu_si512(to.add(at).cast::<__m512i>(), line);
                }
                Stores::Streaming => _mm512_stream_si512(to.add(at).cast::<__m512i>(), line),
            }
        }
    }
}

/// SSE2 is there on every x86-64.
#[cfg(target_arch = "x86_64")]
unsafe fn by_parts(to: *mut u8, from: *const u8, lines: usize, stores: Stores) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_storeu_si128, _mm_stream_si128};
    ask_for(to, 0..AHEAD, lines, stores);
    for at in (0..lines).map(|line| line * LINE) {
        // SAFETY: the caller's.
        unsafe {
            ask_for(to, at + AHEAD..at + AHEAD + LINE, lines, stores);
            let (to, from) = (to.add(at).cast::<__m128i>(), from.add(at).cast::<__m128i>());
            let line: [__m128i; 4] = std::array::from_fn(|k| _mm_loadu_si128(from.add(k)));
            for (k, part) in line.into_iter().enumerate() {
                match stores {
                    Stores::Ahead => _mm_storeu_si128(to.add(k), part),
                    Stores::Streaming => _mm_stream_si128(to.add(k), part),
                }
            }
        }
    }
}

/// Orders what this thread has written by [`Stores::Streaming`] before all that it writes from here on.
pub(crate) fn settle_streams() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: SSE is there on every x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
