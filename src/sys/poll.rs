//! Waiting for descriptors with a bound in whole milliseconds, rounded up.

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use std::{os::fd::BorrowedFd, time::Duration};

/// What to wait for on a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    Read,
    Write,
}

impl Ready {
    fn flags(self) -> PollFlags {
        match self {
            Ready::Read => PollFlags::IN,
            Ready::Write => PollFlags::OUT,
        }
    }
}

/// Waits until `fd` is ready, broken, or `limit` has passed; comes back early on a signal. True when there is
/// something to do.
pub(crate) fn wait(fd: BorrowedFd<'_>, ready: Ready, limit: Duration) -> Result<bool, Errno> {
    match poll(
        &mut [PollFd::from_borrowed_fd(fd, ready.flags())],
        Some(&millis(limit)),
    ) {
        Ok(n) => Ok(n > 0),
        Err(Errno::INTR) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Waits until one of `fds` is ready for what is said beside it or is broken, or `limit` has passed; comes back early on a
/// signal.
pub(crate) fn wait_any(fds: &[(BorrowedFd<'_>, Ready)], limit: Duration) -> Result<(), Errno> {
    let look = |&(fd, ready): &(_, Ready)| PollFd::from_borrowed_fd(fd, ready.flags());
    match poll(
        &mut fds.iter().map(look).collect::<Vec<_>>(),
        Some(&millis(limit)),
    ) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(e),
    }
}

/// Whether `fd` is broken, or over in both directions; does not wait.
pub(crate) fn is_broken(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    loop {
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::empty())];
        match poll(&mut fds, Some(&millis(Duration::ZERO))) {
            Ok(_) => return Ok(fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)),
            Err(Errno::INTR) => (),
            Err(e) => return Err(e),
        }
    }
}

/// `time` rounded up to milliseconds (a wait that ends too early would spin), a day at most.
pub(crate) fn millis(time: Duration) -> Timespec {
    let ms = time
        .min(Duration::from_secs(86_400))
        .as_nanos()
        .div_ceil(1_000_000);
    Timespec {
        tv_sec: (ms / 1000) as _,
        tv_nsec: (ms % 1000 * 1_000_000) as _,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up() {
        let t = millis(Duration::from_micros(1_999_001));
        assert_eq!((t.tv_sec, t.tv_nsec), (2, 0));
        assert_eq!(millis(Duration::ZERO).tv_nsec, 0);
    }
}
