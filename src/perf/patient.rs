//! Writing to what may take nothing for long, a pipe that nobody reads or a terminal that was told to wait: a signal that asks to stop
//! is heard meanwhile.

use super::launch;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{io, os::fd::AsFd};

/// A pipe that can be written to takes so many bytes at once (`PIPE_BUF`).
const AT_ONCE: usize = 4096;

/// How long a signal may go unnoticed that another thread has taken.
const WAIT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Writes the whole of a text.
///
/// # Errors
/// Of the system; [`io::ErrorKind::Interrupted`] if a signal has asked to stop.
pub(super) fn write(to: impl AsFd, text: &str) -> io::Result<()> {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        if launch::go_on().is_err() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        rest = &rest[some(&to, rest, &WAIT)?..];
    }
    Ok(())
}

/// Writes a text if it is taken at once.
pub(super) fn write_now(to: impl AsFd, text: &str) {
    // Nobody is left to tell that it was not.
    let _ = some(to, text.as_bytes(), &Timespec::default());
}

/// Writes how it begins, if something can be written within a time; says how many bytes that were.
fn some(to: impl AsFd, bytes: &[u8], wait: &Timespec) -> io::Result<usize> {
    let mut fds = [PollFd::new(&to, PollFlags::OUT)];
    let ready = match poll(&mut fds, Some(wait)) {
        Ok(ready) => ready > 0,
        Err(rustix::io::Errno::INTR) => false,
        Err(error) => return Err(error.into()),
    };
    if !ready {
        return Ok(0);
    }
    match rustix::io::write(&to, &bytes[..bytes.len().min(AT_ONCE)]) {
        Ok(written) => Ok(written),
        Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Ok(0),
        Err(error) => Err(error.into()),
    }
}
