//! Threads of the library's own, and the end of the process.

use std::{io, mem::MaybeUninit, ptr, thread};

/// Starts a detached thread that takes no signals, so that the program's handlers run on the program's threads.
///
/// # Errors
/// When the system has no room for a thread.
pub(crate) fn spawn_quiet(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both are live signal sets of the right size; the first is filled before it is read, the second by the
    // second call. A new thread starts with its maker's mask; ours is put back below.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let started = thread::Builder::new().name(name.into()).spawn(body);
    // SAFETY: `before` was filled above: pthread_sigmask cannot fail with these arguments.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    started.map(drop)
}

/// Has `handler` called when the process ends in order, by `exit` or a return from `main`.
///
/// # Errors
/// When the C library has no memory left for the handler.
pub(crate) fn at_exit(handler: extern "C" fn()) -> io::Result<()> {
    // SAFETY: `handler` lives as long as this code is loaded; if it is unloaded before, the C library calls the
    // handler then.
    match unsafe { libc::atexit(handler) } {
        0 => Ok(()),
        _ => Err(io::ErrorKind::OutOfMemory.into()),
    }
}
