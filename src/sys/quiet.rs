//! Writes that end no process: a pipe without a reader, and a file at its limit, have the kernel send a signal that would.

use rustix::io::Errno;
use std::{mem::MaybeUninit, ptr};

/// Runs `write`. If it fails, the signal that the kernel has sent this thread for it (SIGPIPE, SIGXFSZ) is dropped: its error says
/// the same. One that was pending before stays so.
pub(crate) fn quietly<T>(write: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    const SENT: [libc::c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];
    let (mut set, mut before, mut pending) = (
        MaybeUninit::uninit(),
        MaybeUninit::uninit(),
        MaybeUninit::uninit(),
    );
    // SAFETY: the three are places for signal sets, filled by the first call that names them and read after it. No call here fails with
    // these arguments.
    let (set, before, pending) = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in SENT {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        libc::sigemptyset(pending.as_mut_ptr());
        libc::sigpending(pending.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr());
        (set.assume_init(), before.assume_init(), pending.assume_init())
    };
    let written = write();
    // SAFETY: sets that are initialised, and a time.
    unsafe {
        let was_pending = SENT
            .iter()
            .any(|&signal| libc::sigismember(&raw const pending, signal) == 1);
        if written.is_err() && !was_pending {
            let now = libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            while libc::sigtimedwait(&raw const set, ptr::null_mut(), &raw const now) > 0 {}
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::{io, pipe::pipe};

    /// The test's program ignores SIGPIPE, as all of Rust's do: so the default, which ends it, is set for a while.
    #[test]
    fn a_pipe_without_a_reader_is_an_error_and_no_end() {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        // SAFETY: the default action for a signal that no other test raises.
        let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let written = quietly(|| io::write(&writer, b"x"));
        // SAFETY: as it was.
        unsafe { libc::signal(libc::SIGPIPE, before) };
        assert_eq!(written, Err(Errno::PIPE));
    }
}
