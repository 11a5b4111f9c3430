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
        let past = stores == Stores::Streaming;
        let copy = match (
            is_x86_feature_detected!("avx512f"),
            is_x86_feature_detected!("avx"),
        ) {
            (true, _) if past => whole_lines::<true>,
            (true, _) => whole_lines::<false>,
            (_, true) if past => by_halves::<true>,
            (_, true) => by_halves::<false>,
            _ if past => by_quarters::<true>,
            _ => by_quarters::<false>,
        };
        // SAFETY: the caller's, and the processor has the instructions of that which is used.
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

/// Fewer instructions and stores than [`by_quarters`], so that more lines are under way at once. 2 ranks on an AMD EPYC, quarters ->
/// halves, in ns: scatter of 1 KiB a rank 166 -> 154, of 4 KiB 284 -> 273, broadcast in place of 1 KiB 165 -> 155, all-gather of 4 KiB
/// a rank 566 -> 528; from 16 KiB on there is no difference.
///
/// # Safety
/// As of [`copy_lines`], and the processor has AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn by_halves<const PAST: bool>(to: *mut u8, from: *const u8, lines: usize) {
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_stream_si256};
    each_line::<PAST>(to, lines, |at| {
        // SAFETY: the caller's.
        unsafe {
            let (to, from) = (to.add(at).cast::<__m256i>(), from.add(at).cast::<__m256i>());
            let (first, second) = (_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1)));
            if PAST {
                _mm256_stream_si256(to, first);
                _mm256_stream_si256(to.add(1), second);
            } else {
                _mm256_storeu_si256(to, first);
                _mm256_storeu_si256(to.add(1), second);
            }
        }
    });
}

/// SSE2 is there on every x86-64.
///
/// # Safety
/// As of [`copy_lines`].
#[cfg(target_arch = "x86_64")]
unsafe fn by_quarters<const PAST: bool>(to: *mut u8, from: *const u8, lines: usize) {
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

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn each_way_copies_all_lines_and_nothing_else() {
        type Way = unsafe fn(*mut u8, *const u8, usize);
        let ways: [(bool, [Way; 2]); 3] = [
            (true, [by_quarters::<false>, by_quarters::<true>]),
            (
                is_x86_feature_detected!("avx"),
                [by_halves::<false>, by_halves::<true>],
            ),
            (
                is_x86_feature_detected!("avx512f"),
                [whole_lines::<false>, whole_lines::<true>],
            ),
        ];
        let most = 3 * AHEAD;
        let from: Vec<u8> = (0..(most + 2) * LINE).map(|i| (i % 251) as u8).collect();
        for way in ways
            .iter()
            .filter(|(is_there, _)| *is_there)
            .flat_map(|(_, ways)| ways)
        {
            for lines in [0, 1, 2, AHEAD, AHEAD + 1, most] {
                let mut to = vec![0xaa_u8; (most + 3) * LINE];
                let begin = to.as_ptr().align_offset(LINE) + LINE;
                // SAFETY: so many lines lie in both, apart; those of `to` begin at a multiple of a line, and the processor has
                // the instructions.
                unsafe { way(to[begin..].as_mut_ptr(), from[3..].as_ptr(), lines) };
                settle_streams();
                let (before, rest) = to.split_at(begin);
                let (copied, after) = rest.split_at(lines * LINE);
                assert_eq!(copied, &from[3..3 + lines * LINE], "{lines} lines");
                assert!(
                    before.iter().chain(after).all(|&byte| byte == 0xaa),
                    "{lines} lines"
                );
            }
        }
    }
}
