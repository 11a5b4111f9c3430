//! Descriptors that a forked child finds closed: its copies are among what keeps the queue pairs and pinned memory of a rank that has
//! ended. What drivers have mapped of a device the child still has.

use std::{
    ffi::c_int,
    sync::{
        Once,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// A bit for each, by its number; higher ones are left to children.
static OURS: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

/// Has children find an open descriptor closed.
pub(crate) fn note(fd: c_int) {
    static WATCHING: Once = Once::new();
    WATCHING.call_once(|| {
        // SAFETY: the handler stays as long as this code is loaded, and does only what a child of a process with threads may do.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) }; // without memory for it children keep them
    });
    if let Some((word, bit)) = place(fd) {
        word.fetch_or(bit, Relaxed);
    }
}

/// It is going to be closed here, and its number may be another's then.
pub(crate) fn forget(fd: c_int) {
    if let Some((word, bit)) = place(fd) {
        word.fetch_and(!bit, Relaxed);
    }
}

fn place(fd: c_int) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((OURS.get(fd / 64)?, 1 << (fd % 64)))
}

unsafe extern "C" fn in_child() {
    for (i, word) in OURS.iter().enumerate() {
        let mut bits = word.swap(0, Relaxed);
        while bits != 0 {
            // SAFETY: an open descriptor of the plugin's, which nothing in a child uses.
            unsafe { libc::close((i * 64) as c_int + bits.trailing_zeros() as c_int) };
            bits &= bits - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_has_none_of_them() {
        let mut fds: [c_int; 2] = [-1; 2];
        // SAFETY: room for two.
        assert_eq!(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
        note(fds[0]);
        note(fds[1]);
        forget(fds[1]);
        // SAFETY: they are asked for, and no more.
        let is_open = |fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0;
        // SAFETY: the child asks the system, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_right = !is_open(fds[0]) && is_open(fds[1]);
            // SAFETY: as above.
            unsafe { libc::_exit(if is_right { 7 } else { 8 }) };
        }
        let mut status = 0;
        // SAFETY: its own child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7,
            "{status}"
        );
        assert!(is_open(fds[0]));
        forget(fds[0]);
        for fd in fds {
            // SAFETY: this test's own.
            unsafe { libc::close(fd) };
        }
    }
}
