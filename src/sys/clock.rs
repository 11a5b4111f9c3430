//! The clock that all processes of a host share, in nanoseconds since its boot.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Now.
#[inline]
pub(crate) fn now() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// Now, or some milliseconds ago: it costs a few loads, and never a system call.
#[inline]
pub(crate) fn lately() -> u64 {
    nanoseconds(clock_gettime(ClockId::MonotonicCoarse))
}

#[inline]
fn nanoseconds(time: Timespec) -> u64 {
    // Neither part of these clocks is negative.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_go_together() {
        let before = now();
        let coarse = lately();
        assert!(now() >= before && coarse <= now());
        assert!(coarse + 1_000_000_000 > before);
    }
}
