//! Watching processes that are not our children.

use super::fork::ProcessFd;
use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};

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
