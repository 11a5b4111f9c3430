//! Forked children: what the library owns stays with the parent.
//!
//! A child has none of its parent's threads, so nothing of the library's can go on working in it. Each fork therefore
//! begins a new *generation*: descriptors held in a [`ProcessFd`] are closed in the child, process-wide state in a
//! [`super::per_process::PerProcess`] is forgotten there, and whoever made a handle compares [`generation`] before
//! touching its locks, which another thread may have held at the fork.

use std::{
    cell::Cell,
    io,
    mem::ManuallyDrop,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    sync::atomic::{
        AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
        Ordering::{Acquire, Relaxed, Release},
    },
    thread,
};

/// How many forks lie between the process that first loaded the library and this one.
#[inline]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Relaxed)
}

/// Begins to watch for forks, as is done when the library is loaded: what runs before a fork runs in the opposite order, so that locks
/// that the program takes before it forks are taken while its other threads can still leave the library, should they hold those.
/// Later calls do nothing, if that went well.
///
/// # Errors
/// When the C library has no memory left for the handler.
pub(crate) fn watch() -> io::Result<()> {
    if WATCHING.swap(true, Relaxed) {
        return Ok(());
    }
    // SAFETY: the handlers live as long as this code is loaded (the C library drops them when it unloads the code);
    // `in_child` does only what a child of a process with threads may do: atomics and close(2).
    match unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) } {
        0 => Ok(()),
        code => {
            WATCHING.store(false, Relaxed);
            Err(io::Error::from_raw_os_error(code))
        }
    }
}

#[cfg(not(miri))]
#[used]
// SAFETY: the linker makes of it a table of functions that are called, with arguments that may be left out, when the library is
// loaded; this one calls the C library alone.
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        // A replaced allocator watches from its first use on. It is to take its locks after the library has come to rest, as the
        // control thread allocates within the gate.
        drop(std::hint::black_box(Box::new(0_u8)));
        let _ = watch(); // what fails here fails again, and is told
    }
    at_load
};

/// A descriptor that belongs to this process alone: a forked child finds it closed, and dropping the child's copy of
/// this value does nothing.
#[derive(Debug)]
pub(crate) struct ProcessFd {
    fd: ManuallyDrop<OwnedFd>,
    generation: u32,
}

impl ProcessFd {
    /// The descriptor that `make` makes. `make` is one system call that does not block.
    pub(crate) fn open<E>(make: impl FnOnce() -> Result<OwnedFd, E>) -> Result<ProcessFd, E> {
        gated(|| make().map(ProcessFd::note))
    }

    /// Several descriptors at once; as for [`ProcessFd::open`].
    pub(crate) fn open_many<T>(make: impl FnOnce(&mut dyn FnMut(OwnedFd)) -> T) -> (T, Vec<ProcessFd>) {
        let mut fds = Vec::new();
        let out = gated(|| make(&mut |fd| fds.push(ProcessFd::note(fd))));
        (out, fds)
    }

    /// Takes over a descriptor that children have inherited so far.
    pub(crate) fn adopt(fd: OwnedFd) -> ProcessFd {
        gated(|| ProcessFd::note(fd))
    }

    /// Puts `fd` on the list. Only within [`gated`].
    fn note(fd: OwnedFd) -> ProcessFd {
        let fd = above_stdio(fd);
        if let Some((word, bit)) = place(fd.as_raw_fd()) {
            word.fetch_or(bit, Relaxed);
            HIGHEST.fetch_max(fd.as_raw_fd() as usize, Relaxed);
        }
        ProcessFd {
            fd: ManuallyDrop::new(fd),
            generation: generation(),
        }
    }

    /// Gives the descriptor up: from here on a child inherits it.
    pub(crate) fn into_owned(self) -> OwnedFd {
        let mut this = ManuallyDrop::new(self);
        gated(|| forget(this.fd.as_raw_fd()));
        // SAFETY: `this` is never dropped nor used again, so the descriptor has one owner, the returned one.
        unsafe { ManuallyDrop::take(&mut this.fd) }
    }
}

impl AsFd for ProcessFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for ProcessFd {
    fn drop(&mut self) {
        if self.generation == generation() {
            gated(|| {
                forget(self.fd.as_raw_fd());
                // SAFETY: dropped once, here, and not used after; in a child, where the number was closed already
                // and may name another file, the generation differs.
                unsafe { ManuallyDrop::drop(&mut self.fd) }
            });
        }
    }
}

/// `fd` under a number above 2. A program that was started without standard input, output or error, or closed them,
/// would otherwise find our descriptors there: print into them, or replace them by `/dev/null`.
pub(crate) fn above_stdio(fd: OwnedFd) -> OwnedFd {
    if fd.as_raw_fd() > libc::STDERR_FILENO {
        return fd;
    }
    // With no number left, the low one is better than none.
    rustix::io::fcntl_dupfd_cloexec(&fd, libc::STDERR_FILENO + 1).unwrap_or(fd)
}

/// Does `body`, in which the list and the open descriptors may differ for a moment, or the memory be in a state of which
/// a copy is of no use, while no thread forks. Short, and without a lock that another thread may hold when it calls
/// this: a fork waits for it.
pub(crate) fn gated<T>(body: impl FnOnce() -> T) -> T {
    if INSIDE.replace(true) {
        return body(); // within another `gated`
    }
    loop {
        let seen = GATE.load(Relaxed);
        if seen & FORKING == 0 && GATE.compare_exchange(seen, seen + 1, Acquire, Relaxed).is_ok() {
            break;
        }
        thread::yield_now();
    }
    let _leave = Leave;
    return body();

    /// Also when `body` panics.
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            INSIDE.set(false);
            GATE.fetch_sub(1, Release); // pairs with the Acquire in `before`
        }
    }
}

/// Does `act` with each descriptor that is held in a [`ProcessFd`]. One that another thread closes meanwhile may be closed already, or be
/// another file's: what is done must do no harm to that.
pub(crate) fn each_open(mut act: impl FnMut(BorrowedFd<'_>)) {
    for (i, word) in OPEN.iter().enumerate().take(HIGHEST.load(Relaxed) / 64 + 1) {
        let mut bits = word.load(Relaxed);
        while bits != 0 {
            let number = (i * 64) as RawFd + bits.trailing_zeros() as RawFd;
            bits &= bits - 1;
            // SAFETY: a number that may be no open file's any more is what the caller reckons with; it is not -1.
            act(unsafe { BorrowedFd::borrow_raw(number) });
        }
    }
}

/// Takes `fd` off the list.
fn forget(fd: RawFd) {
    if let Some((word, bit)) = place(fd) {
        word.fetch_and(!bit, Relaxed);
    }
}

fn place(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((OPEN.get(fd / 64)?, 1 << (fd % 64)))
}

/// Runs before each fork(2), on its thread: closes the gate when nobody is inside. A handler of signals that forks while its thread is
/// inside waits for ever; `ccl.h` says that none may.
extern "C" fn before() {
    while GATE.fetch_or(FORKING, Acquire) & FORKING != 0 {
        thread::yield_now(); // another thread forks
    }
    while GATE.load(Acquire) != FORKING {
        thread::yield_now();
    }
}

extern "C" fn in_parent() {
    GATE.fetch_and(!FORKING, Release);
}

/// Runs in the child, on its only thread, before fork(2) returns there.
extern "C" fn in_child() {
    GATE.store(0, Release);
    GENERATION.fetch_add(1, Relaxed);
    for (i, word) in OPEN.iter().enumerate().take(HIGHEST.load(Relaxed) / 64 + 1) {
        let mut bits = word.load(Relaxed);
        if bits != 0 {
            word.store(0, Relaxed);
        }
        while bits != 0 {
            // SAFETY: the number is on the list, so a `ProcessFd` of the parent owns it; that value does nothing in
            // this child any more, because its generation has passed.
            unsafe { libc::close((i * 64) as RawFd + bits.trailing_zeros() as RawFd) };
            bits &= bits - 1;
        }
    }
}

static GENERATION: AtomicU32 = AtomicU32::new(0);
static WATCHING: AtomicBool = AtomicBool::new(false);
/// One bit for each descriptor held in a [`ProcessFd`]: up to the kernel's default ceiling of 2^20 numbers, 128 KiB of
/// which only the pages in use exist.
static OPEN: [AtomicU64; 1 << 14] = [const { AtomicU64::new(0) }; 1 << 14];
static HIGHEST: AtomicUsize = AtomicUsize::new(0);
/// How many threads are inside [`gated`], and whether one forks. Not a lock of the standard library, because the
/// thread that closes it opens it in another function, and in the child.
static GATE: AtomicU32 = AtomicU32::new(0);
const FORKING: u32 = 1 << 31;

thread_local! {
    /// Whether this thread is in [`gated`].
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Forks a child that does `body` and ends at once, as C programs do it; returns its pid. Its status is 0 if `body` gave
/// true; a child that hangs is ended by a signal, after a minute. For tests: in processes of few threads, because a child may find the
/// standard library's locks held.
#[cfg(test)]
pub(crate) fn child(body: impl FnOnce() -> bool) -> rustix::process::Pid {
    // SAFETY: the caller keeps to what this function says; the child never returns into the caller's frames.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: sets this child's alarm, which nothing else in it uses.
        unsafe { libc::alarm(60) };
        let good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(false);
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(if good { 0 } else { 1 }) }
    }
    rustix::process::Pid::from_raw(pid).expect("fork gives a pid")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::{
        event::{EventfdFlags, eventfd},
        fs::fstat,
        pipe::pipe,
    };

    #[test]
    fn a_child_finds_descriptors_closed() {
        watch().unwrap();
        let (ours, theirs) = pipe().unwrap();
        let number = ours.as_raw_fd();
        let ours = ProcessFd::adopt(ours);
        let before = generation();
        // SAFETY: the child only makes system calls and leaves with _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: only looked at; a closed number is answered with an error.
            let closed = fstat(unsafe { BorrowedFd::borrow_raw(number) }).is_err();
            let good = closed && fstat(&theirs).is_ok() && generation() == before + 1;
            // SAFETY: ends the child.
            unsafe { libc::_exit(if good { 0 } else { 1 }) }
        }
        let mut status = 0;
        // SAFETY: waits for our own child; `status` is a live int.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        assert!(fstat(&ours).is_ok());
        assert_eq!(ours.into_owned().as_raw_fd(), number);
        assert_eq!(generation(), before);
    }

    #[test]
    fn each_descriptor_is_found_while_it_is_held() {
        let (reader, _writer) = pipe().unwrap();
        let held = ProcessFd::adopt(reader);
        let number = held.as_fd().as_raw_fd();
        let is_found = || {
            let mut is_found = false;
            each_open(|fd| is_found |= fd.as_raw_fd() == number);
            is_found
        };
        assert!(is_found());
        let _owned = held.into_owned();
        assert!(!is_found());
    }

    #[test]
    fn the_places_of_standard_streams_stay_free() {
        watch().unwrap();
        let child = child(|| {
            // SAFETY: the child's own copies of descriptors that nothing in it uses.
            (0..3).for_each(|fd| _ = unsafe { libc::close(fd) });
            let mine = ProcessFd::open(|| eventfd(0, EventfdFlags::CLOEXEC)).unwrap();
            let free = (0..3).all(|fd| {
                // SAFETY: only looked at; a closed number is answered with an error.
                fstat(unsafe { BorrowedFd::borrow_raw(fd) }).is_err()
            });
            free && mine.as_fd().as_raw_fd() > 2
        });
        let status = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty()).unwrap();
        assert_eq!(status.unwrap().1.exit_status(), Some(0));
    }

    #[test]
    fn the_gate_opens_again_after_a_panic_and_a_nested_use() {
        assert!(std::panic::catch_unwind(|| gated(|| gated(|| panic!("inside")))).is_err());
        assert!(!INSIDE.get());
        gated(|| {
            gated(|| ());
            assert!(INSIDE.get());
        });
        assert!(!INSIDE.get());
    }

    #[test]
    fn forks_and_descriptors_do_not_meet() {
        watch().unwrap();
        thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    for _ in 0..2000 {
                        ProcessFd::open(|| eventfd(0, EventfdFlags::CLOEXEC)).unwrap();
                    }
                });
                s.spawn(|| {
                    for _ in 0..20 {
                        // SAFETY: the child leaves at once with _exit; the parent waits for it.
                        unsafe {
                            let child = libc::fork();
                            if child == 0 {
                                libc::_exit(GATE.load(Relaxed) as i32);
                            }
                            let mut status = 0;
                            assert_eq!(libc::waitpid(child, &mut status, 0), child);
                            assert_eq!(status, 0);
                        }
                    }
                });
            }
        });
        // Another test may be forking just now.
        while GATE.load(Relaxed) & FORKING != 0 {
            thread::yield_now();
        }
    }
}
