//! Copies that know what becomes of the lines they write.

#[cfg(target_arch = "x86_64")]
use crate::sys::cache::prefetch_to_write;
use std::ops::Range;

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;
/// Lines by which one is asked for before it is written.
#[cfg(target_arch = "x86_64")]
const LINES_AHEAD: usize = 16;
/// Bytes of the fewest lines that are worth it.
pub(super) const FEW: usize = 256;
/// Bytes of the fewest that are worth going past the caches for another processor's sake; few in tests, whose vectors are short.
pub(super) const PAST: usize = if cfg!(test) { LINE } else { 1 << 10 };

/// Bytes of copies for which [`has_slow_string_copies`](crate::sys::cache::has_slow_string_copies) matters: glibc makes them from 2 or 4 KiB
/// on, by its version, up to the size of a core's own cache, which is 512 KiB or 1 MiB.
pub(super) const BY_STRINGS: Range<usize> = 2 << 10..1 << 20;

/// How lines are written.
pub(super) enum Stores {
    /// Like any others.
    Plain,
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
    let stores = if cfg!(miri) { Stores::Plain } else { stores };
    #[cfg(target_arch = "x86_64")]
    {
        let ways = match (
            is_x86_feature_detected!("avx512f"),
            is_x86_feature_detected!("avx"),
        ) {
            (true, _) => &WHOLE_LINES,
            (_, true) => &BY_HALVES,
            _ => &BY_QUARTERS,
        };
        // SAFETY: the caller's, and the processor has the instructions of that which is used.
        unsafe { ways[stores as usize](to, from, lines) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = stores;
        // SAFETY: the caller's.
        unsafe { std::ptr::copy(from, to, lines * LINE) }
    }
}

/// A way to copy lines, for each of [`Stores`], in their order.
#[cfg(target_arch = "x86_64")]
type Ways = [unsafe fn(*mut u8, *const u8, usize); 3];
#[cfg(target_arch = "x86_64")]
static WHOLE_LINES: Ways = [
    whole_lines::<PLAIN>,
    whole_lines::<AHEAD>,
    whole_lines::<STREAMING>,
];
#[cfg(target_arch = "x86_64")]
static BY_HALVES: Ways = [by_halves::<PLAIN>, by_halves::<AHEAD>, by_halves::<STREAMING>];
#[cfg(target_arch = "x86_64")]
static BY_QUARTERS: Ways = [
    by_quarters::<PLAIN>,
    by_quarters::<AHEAD>,
    by_quarters::<STREAMING>,
];

/// [`Stores`], as those who write them have it.
#[cfg(target_arch = "x86_64")]
const PLAIN: u8 = Stores::Plain as u8;
#[cfg(target_arch = "x86_64")]
const AHEAD: u8 = Stores::Ahead as u8;
#[cfg(target_arch = "x86_64")]
const STREAMING: u8 = Stores::Streaming as u8;

/// Calls `copy` for where each of the `lines` lines begins. If `STORES` says so those at `to` are asked for ahead of time.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn each_line<const STORES: u8>(to: *const u8, lines: usize, copy: impl Fn(usize)) {
    let ask_for = |line: usize| prefetch_to_write(to.wrapping_add(line * LINE));
    if STORES == AHEAD {
        (0..lines.min(LINES_AHEAD)).for_each(ask_for);
    }
    for line in 0..lines {
        if STORES == AHEAD && line + LINES_AHEAD < lines {
            ask_for(line + LINES_AHEAD);
        }
        copy(line * LINE);
    }
}

/// # Safety
/// As of [`copy_lines`], and the processor has AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn whole_lines<const STORES: u8>(to: *mut u8, from: *const u8, lines: usize) {
    use std::arch::x86_64::{__m512i, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_stream_si512};
    each_line::<STORES>(to, lines, |at| {
        // SAFETY: the caller's.
        unsafe {
            let (to, line) = (
                to.add(at).cast::<__m512i>(),
                _mm512_loadu_si512(from.add(at).cast::<__m512i>()),
            );
            match STORES {
                STREAMING => _mm512_stream_si512(to, line),
                _ => _mm512_storeu_si512(to, line),
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
unsafe fn by_halves<const STORES: u8>(to: *mut u8, from: *const u8, lines: usize) {
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_stream_si256};
    each_line::<STORES>(to, lines, |at| {
        // SAFETY: the caller's.
        unsafe {
            let (to, from) = (to.add(at).cast::<__m256i>(), from.add(at).cast::<__m256i>());
            let (first, second) = (_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1)));
            if STORES == STREAMING {
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
unsafe fn by_quarters<const STORES: u8>(to: *mut u8, from: *const u8, lines: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_storeu_si128, _mm_stream_si128};
    each_line::<STORES>(to, lines, |at| {
        // SAFETY: the caller's.
        unsafe {
            let (to, from) = (to.add(at).cast::<__m128i>(), from.add(at).cast::<__m128i>());
            let line: [__m128i; 4] = std::array::from_fn(|k| _mm_loadu_si128(from.add(k)));
            for (k, part) in line.into_iter().enumerate() {
                match STORES {
                    STREAMING => _mm_stream_si128(to.add(k), part),
                    _ => _mm_storeu_si128(to.add(k), part),
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
        let ways: [(bool, Ways); 3] = [
            (true, BY_QUARTERS),
            (is_x86_feature_detected!("avx"), BY_HALVES),
            (is_x86_feature_detected!("avx512f"), WHOLE_LINES),
        ];
        let most = 3 * LINES_AHEAD;
        let from: Vec<u8> = (0..(most + 2) * LINE).map(|i| (i % 251) as u8).collect();
        for way in ways
            .iter()
            .filter(|(is_there, _)| *is_there)
            .flat_map(|(_, ways)| ways)
        {
            for lines in [0, 1, 2, LINES_AHEAD, LINES_AHEAD + 1, most] {
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
