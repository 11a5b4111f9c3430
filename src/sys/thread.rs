//! Threads of the library's own, and the end of the process.

use super::fork;
use std::{
    ffi::{CStr, c_void},
    io,
    mem::MaybeUninit,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
    sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed},
    thread,
};

/// Starts a detached thread that works on `state` and takes no signals, so that the program's handlers run on the
/// program's threads.
///
/// `state` is kept for ever, where leak checkers find it: a forked child has a copy of it but not the thread whose stack
/// would own it, and each rank of a program that forks its ranks would be said to leak.
///
/// # Errors
/// When the system has no room for a thread.
pub(crate) fn spawn_quiet<T: Send + 'static>(
    name: &'static CStr,
    state: T,
    body: fn(&mut T),
) -> io::Result<()> {
    let work = Box::into_raw(Box::new(Work {
        state,
        body,
        name,
        running: AtomicBool::new(false),
        earlier: KEPT.load(Relaxed),
    }));
    KEPT.store(work.cast(), Relaxed);
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    let mut id = MaybeUninit::uninit();
    // SAFETY: all four are live and of the right type, and filled before they are read; these calls cannot fail with
    // these arguments. A new thread starts with its maker's mask; ours is put back. `work` belongs to the thread
    // from here on, if there is one; `start::<T>` takes just such a pointer.
    let code = unsafe {
        libc::pthread_attr_init(attributes.as_mut_ptr());
        libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK);
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let code = libc::pthread_create(id.as_mut_ptr(), attributes.as_ptr(), start::<T>, work.cast());
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        code
    };
    if code != 0 {
        // SAFETY: made of a box above, and no thread came to know of it.
        let work = unsafe { Box::from_raw(work) };
        KEPT.store(work.earlier, Relaxed);
        return Err(io::Error::from_raw_os_error(code));
    }
    // The beginnings of a thread are no place for a fork: see `fork::gated`.
    // SAFETY: never freed; the flag is atomic, and nothing else of it is touched.
    while !unsafe { &(*work).running }.load(Relaxed) {
        thread::yield_now();
    }
    Ok(())
}

/// What a thread is made for.
struct Work<T> {
    state: T,
    body: fn(&mut T),
    name: &'static CStr,
    running: AtomicBool,
    /// That of the thread before, in the process that forked this one.
    earlier: *mut c_void,
}

extern "C" fn start<T>(work: *mut c_void) -> *mut c_void {
    let work: *mut Work<T> = work.cast();
    // SAFETY: `spawn_quiet` made it of a box that is never freed, and gave `state` to this thread alone; it looks only at
    // `running` itself.
    let (state, body, name, running) =
        unsafe { (&mut (*work).state, (*work).body, (*work).name, &(*work).running) };
    // SAFETY: names this thread; the text ends with NUL.
    unsafe { libc::pthread_setname_np(libc::pthread_self(), name.as_ptr()) };
    fork::gated(|| running.store(true, Relaxed)); // which makes what the gate keeps for this thread
    // Whoever has to say something about a panic says it within `body`.
    let _ = catch_unwind(AssertUnwindSafe(|| body(state)));
    ptr::null_mut()
}

/// The last [`Work`].
static KEPT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// Bytes, as the standard library's threads have.
const STACK: usize = 2 << 20;

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
