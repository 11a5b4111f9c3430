//! [`Pipe`]: sending memory over a connection without copying it. Its pages are put into a pipe, and moved from there into the
//! connection, which refers to them until the other end has read them: on one host by the reader's copy, which then is the only
//! one.

use super::fork::ProcessFd;
use crate::mem::Region;
use rustix::{
    io::Errno,
    pipe::{self, IoSliceRaw, PipeFlags, SpliceFlags},
};
use std::{
    cell::Cell,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    ptr,
};

/// A pipe of pages on their way to a connection.
#[derive(Debug)]
pub(crate) struct Pipe {
    read: ProcessFd,
    write: ProcessFd,
    /// Bytes in it.
    holds: Cell<usize>,
}

impl Pipe {
    /// An empty one.
    pub(crate) fn new() -> Result<Pipe, Errno> {
        let (made, fds) = ProcessFd::open_many(|note| -> Result<(), Errno> {
            let both: [OwnedFd; 2] = pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?.into();
            both.into_iter().for_each(note);
            Ok(())
        });
        made?;
        let [read, write] = <[ProcessFd; 2]>::try_from(fds).map_err(|_| Errno::MFILE)?;
        // Where the user has many large pipes already a small one does as well, in more calls.
        let _ = pipe::fcntl_setpipe_size(&write, CAPACITY);
        Ok(Pipe {
            read,
            write,
            holds: Cell::new(0),
        })
    }

    /// Bytes in it.
    pub(crate) fn holds(&self) -> usize {
        self.holds.get()
    }

    /// Puts the pages of `memory` in, as far as there is room, and returns how many bytes that are. What is written to that memory
    /// before the other end of the connection has read it may be what it reads.
    ///
    /// # Errors
    /// `FAULT` where the kernel cannot refer to that memory.
    pub(crate) fn fill(&self, memory: &Region<'_>) -> Result<usize, Errno> {
        // SAFETY: the region is mapped, and the kernel only reads it. Nothing is given away (no `GIFT`): pages that change later
        // change what is read, and no memory is used wrongly by that.
        let put = unsafe {
            let bytes = std::slice::from_raw_parts(memory.as_ptr(), memory.len());
            pipe::vmsplice(
                &self.write,
                &[IoSliceRaw::from_slice(bytes)],
                SpliceFlags::NONBLOCK,
            )?
        };
        self.holds.set(self.holds.get() + put);
        Ok(put)
    }

    /// Moves what is in it into `stream`, which must not block, as far as that has room; `more` says that more follows at once.
    pub(crate) fn empty_into(&self, stream: impl AsFd, more: bool) -> Result<usize, Errno> {
        let flags = match more {
            true => SpliceFlags::NONBLOCK | SpliceFlags::MORE,
            false => SpliceFlags::NONBLOCK,
        };
        let holds = self.holds.get();
        // What was moved in full met no end of the connection, and where there was no room nobody looked.
        let may_signal =
            |outcome: &Result<usize, Errno>| *outcome != Ok(holds) && *outcome != Err(Errno::AGAIN);
        let moved = without_sigpipe(
            || pipe::splice(&self.read, None, stream, None, holds, flags),
            may_signal,
        )?;
        self.holds.set(holds - moved);
        Ok(moved)
    }
}

/// `splice` cannot be told not to raise SIGPIPE, by which a program that knows nothing of it would end. It raises it with its
/// error, and also with a count, of what was moved before the connection ended: `may_signal` says after what.
fn without_sigpipe<T>(call: impl FnOnce() -> T, may_signal: impl FnOnce(&T) -> bool) -> T {
    let mut pipe_alone = MaybeUninit::uninit();
    let (mut before, mut pending) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: sets that are initialised by the first two calls before they are used; all are of this thread alone.
    let was_pending = unsafe {
        libc::sigemptyset(pipe_alone.as_mut_ptr());
        libc::sigaddset(pipe_alone.as_mut_ptr(), libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, pipe_alone.as_ptr(), before.as_mut_ptr());
        libc::sigpending(pending.as_mut_ptr()) == 0 && libc::sigismember(pending.as_ptr(), libc::SIGPIPE) == 1
    };
    let outcome = call();
    // SAFETY: the same sets; what is taken is the signal that the call has raised for this thread.
    unsafe {
        if !was_pending && may_signal(&outcome) {
            let at_once = libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            libc::sigtimedwait(pipe_alone.as_ptr(), ptr::null_mut(), &at_once);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
    }
    outcome
}

/// Bytes for which a pipe has room, in whole pages.
const CAPACITY: usize = 512 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{socket::receive_bytes, tcp};
    use std::time::{Duration, Instant};

    #[test]
    fn what_is_put_in_comes_out_at_the_other_end() {
        let (near, far) = tcp::pair();
        let pipe = Pipe::new().unwrap();
        let bytes: Vec<u8> = (0..1_500_000u32).map(|i| (i / 7) as u8).collect();
        let (mut sent, mut came, mut room) = (0, Vec::new(), vec![0; 1 << 16]);
        let end = Instant::now() + Duration::from_secs(60);
        while came.len() < bytes.len() {
            if pipe.holds() == 0 && sent < bytes.len() {
                sent += pipe.fill(&Region::of(&bytes[sent..])).unwrap();
            }
            if pipe.holds() > 0 {
                match pipe.empty_into(&near, sent < bytes.len()) {
                    Ok(_) | Err(Errno::AGAIN) => (),
                    Err(e) => panic!("{e}"),
                }
            }
            if let Ok(n) = receive_bytes(&far, &mut room) {
                came.extend_from_slice(&room[..n]);
            }
            assert!(Instant::now() < end, "in vain");
        }
        assert!(came == bytes && pipe.holds() == 0);
    }

    thread_local! {
        /// The signals that this thread has had.
        static SIGNALS: Cell<usize> = const { Cell::new(0) };
    }

    extern "C" fn note(_: libc::c_int) {
        SIGNALS.set(SIGNALS.get() + 1);
    }

    /// Many times, with little and with much in the pipe: of much some goes before the connection is found to have ended, and
    /// its count comes with the signal.
    #[test]
    fn a_connection_that_has_ended_raises_no_signal() {
        let handler: extern "C" fn(libc::c_int) = note;
        // SAFETY: the handler only adds to a number of the thread's that needs no making. It stays: no test ends by the signal.
        unsafe { libc::signal(libc::SIGPIPE, handler as libc::sighandler_t) };
        let memory = vec![7; CAPACITY];
        let end = Instant::now() + Duration::from_secs(60);
        for round in 0..400 {
            let (near, far) = tcp::pair();
            drop(far);
            let pipe = Pipe::new().unwrap();
            let len = [100, CAPACITY][round % 2];
            loop {
                if pipe.holds() == 0 {
                    pipe.fill(&Region::of(&memory[..len])).unwrap();
                }
                match pipe.empty_into(&near, false) {
                    Err(Errno::PIPE) => break,
                    _ => assert!(Instant::now() < end, "in vain"),
                }
            }
            assert_eq!(SIGNALS.get(), 0, "round {round}");
        }
    }
}
