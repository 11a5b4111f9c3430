//! Watching processes that are not our children.

use super::{
    fork::ProcessFd,
    poll::{self, Ready},
};
use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};
use std::{os::fd::AsFd, time::Duration};

/// A descriptor that becomes readable when process `pid` has ended. `Ok(None)` when there is no such process any more.
///
/// # Errors
/// What the kernel says: too many open files, or a sandbox that forbids the call.
pub(crate) fn open(pid: u32) -> Result<Option<ProcessFd>, Errno> {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return Ok(None);
    };
    match ProcessFd::open(|| pidfd_open(pid, PidfdFlags::empty())) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::SRCH) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Whether process `pid` has certainly ended.
pub(crate) fn has_ended(pid: u32) -> bool {
    match open(pid) {
        Ok(None) => true,
        Ok(Some(fd)) => poll::wait(fd.as_fd(), Ready::Read, Duration::ZERO).is_ok_and(|ended| ended),
        Err(_) => false,
    }
}
