//! Reading another process's memory, as far as the system lets it: "cross-memory attach".
//!
//! Who may, `ptrace(2)` tells: processes of one user, as long as neither has given up being dumpable. The Yama module may
//! keep it to descendants, unless the process whose memory it is has allowed it ([`allow_any`]). Containers may forbid it
//! altogether. A process is named by the number of one of its threads: `main`'s, whose number is the process's own, has nothing of the
//! memory once it has ended, so it is one that stays ([`thread::lasting`]). The number means another one, or none, in another PID
//! namespace, and may be given to another one as soon as it has ended. So each read brings along a [`Seal`] that only the right one has.
//!
//! Source: `process_vm_readv(2)`, Linux 3.2; `Documentation/admin-guide/LSM/Yama.rst`.

use super::thread;
use crate::mem::Region;
use rustix::{
    io::Errno,
    process::{self, DumpableBehavior, PTracer},
    thread::CapabilitySet,
};
use std::{array, io};
use zeroize::Zeroize;

/// Random bytes in this process's memory, at a fixed place as long as it lives.
pub(crate) struct Seal(Box<[u8; SEAL]>);

impl Drop for Seal {
    fn drop(&mut self) {
        // Nobody takes what lies in this process's memory from here on for what was to be read.
        self.0.zeroize();
    }
}

/// Another process, or this one, as the holder of a [`Seal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holder {
    /// A thread of its.
    thread: u32,
    at: u64,
    seal: [u8; SEAL],
}

/// Whose memory was not there, or not of a kind that can be read or written so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// That of the other process, as far as it can be read otherwise.
    Theirs,
    /// That of this process.
    Ours,
    /// All of the other's: it is ending, and its memory goes first.
    Gone,
}

const SEAL: usize = 16;

impl Seal {
    pub(crate) fn new() -> io::Result<Seal> {
        let mut bytes = Box::new([0; SEAL]);
        getrandom::fill(&mut bytes[..])?;
        Ok(Seal(bytes))
    }

    /// This process, for others to read from as long as `self` lives.
    pub(crate) fn holder(&self) -> Holder {
        Holder {
            thread: thread::lasting(),
            at: self.0.as_ptr().addr() as u64,
            seal: *self.0,
        }
    }
}

/// Whether others may still read this process's memory, as far as it knows: who changes its user or group is no longer dumpable,
/// or by root alone, as `fs.suid_dumpable` says.
pub(crate) fn is_dumpable() -> bool {
    use DumpableBehavior::{DumpableReadableOnlyByRoot, NotDumpable};
    !matches!(
        process::dumpable_behavior(),
        Ok(NotDumpable | DumpableReadableOnlyByRoot)
    )
}

impl Holder {
    /// Bytes of [`Holder::to_bytes`].
    pub(crate) const BYTES: usize = 4 + 8 + SEAL;

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let (thread, at) = (self.thread.to_le_bytes(), self.at.to_le_bytes());
        let all = [&thread[..], &at, &self.seal].concat();
        array::from_fn(|i| all[i])
    }

    pub(crate) fn from_bytes(bytes: &[u8; Self::BYTES]) -> Holder {
        Holder {
            thread: u32::from_le_bytes(array::from_fn(|i| bytes[i])),
            at: u64::from_le_bytes(array::from_fn(|i| bytes[4 + i])),
            seal: array::from_fn(|i| bytes[12 + i]),
        }
    }

    /// Whether its memory can be read.
    ///
    /// # Errors
    /// As [`Holder::read`].
    pub(crate) fn probe(&self) -> Result<(), Errno> {
        self.read(self.at, &Region::of_mut(&mut [0u8; SEAL]))
    }

    /// Fills `target` with what lies at address `from` there.
    ///
    /// # Errors
    /// `SRCH` when the process has ended, the seal is not there any more, or never was: then `target` holds anything. `PERM`
    /// or `NOSYS` when it is not allowed; `FAULT` when one of the two does not have so much memory there, or not of a kind
    /// that can be read this way: [`Holder::fault`] tells which.
    #[inline]
    pub(crate) fn read(&self, from: u64, target: &Region<'_>) -> Result<(), Errno> {
        let mut seal = [0u8; SEAL];
        let there = |at: u64| std::ptr::without_provenance_mut(at as usize);
        let local = [
            part(target.as_ptr().cast(), target.len()),
            part(seal.as_mut_ptr().cast(), SEAL),
        ];
        let remote = [part(there(from), target.len()), part(there(self.at), SEAL)];
        // SAFETY: a region, whose bytes are mapped and may be written, and a local array; their lengths are those given.
        match unsafe { read_parts(self.thread, local, remote) } {
            Err(errno) => Err(errno),
            // It stops short only where memory ends.
            Ok(got) if got != target.len() + SEAL => Err(Errno::FAULT),
            Ok(_) if seal != self.seal => Err(Errno::SRCH),
            Ok(_) => Ok(()),
        }
    }

    /// Why [`Holder::read`] of `len` bytes at `from` gave `FAULT`: it reads them once more, to somewhere else.
    #[cold]
    pub(crate) fn fault(&self, from: u64, len: usize) -> Fault {
        let mut piece = [0u8; 4096];
        let can_read = (0..len).step_by(piece.len()).all(|at| {
            let some = piece.len().min(len - at);
            let read = self.read(from.wrapping_add(at as u64), &Region::of_mut(&mut piece[..some]));
            read.is_ok()
        });
        match can_read {
            true => Fault::Ours,
            false if self.probe().is_err() => Fault::Gone,
            false => Fault::Theirs,
        }
    }
}

fn part(base: *mut libc::c_void, len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: base,
        iov_len: len,
    }
}

/// Fills the local parts with what lies at the remote ones in the process of `thread`: how many bytes.
///
/// # Safety
/// The local parts are mapped and may be written. What is read the kernel checks itself.
#[inline]
unsafe fn read_parts<const N: usize>(
    thread: u32,
    local: [libc::iovec; N],
    remote: [libc::iovec; N],
) -> Result<usize, Errno> {
    let (thread, count) = (thread.cast_signed(), N as libc::c_ulong);
    // SAFETY: the caller's promise; the kernel writes nothing else.
    let got = unsafe { libc::process_vm_readv(thread, local.as_ptr(), count, remote.as_ptr(), count, 0) };
    usize::try_from(got).map_err(|_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
}

/// Whether the byte at `at` can be read by this process. The system says, nobody reads it.
#[cfg(feature = "cuda")]
pub(crate) fn is_mapped(at: *const u8) -> bool {
    let mut byte = 0u8;
    let local = part((&raw mut byte).cast(), 1);
    // SAFETY: room for the byte.
    let read = unsafe {
        read_parts(
            thread::own_id().cast_unsigned(),
            [local],
            [part(at.cast_mut().cast(), 1)],
        )
    };
    read == Ok(1) && !at.is_null()
}

/// Lets any process of the same user read this one's memory, where Yama keeps it to descendants: until the process ends, for
/// debuggers as well. Without Yama it changes nothing.
pub(crate) fn allow_any() {
    // Refused where there is no Yama.
    let _ = process::set_ptracer(PTracer::Any);
}

/// Whether another process of this one's user, which is as free as this one, may likely read its memory. `any`: this one
/// [allows it](allow_any).
pub(crate) fn may_be_read(any: bool) -> bool {
    let by_this_thread = |seal: &Seal| Holder {
        thread: thread::own_id().cast_unsigned(), // none may stay yet
        ..seal.holder()
    };
    let own = Seal::new().is_ok_and(|seal| by_this_thread(&seal).probe().is_ok());
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    own && match scope.as_deref().map_or("0", str::trim) {
        "0" => true,
        "1" => any || may_trace_all(),
        "2" => may_trace_all(),
        _ => false,
    }
}

/// Whether this process has `CAP_SYS_PTRACE`.
fn may_trace_all() -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_PTRACE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_lies_there() {
        let seal = Seal::new().unwrap();
        let holder = Holder::from_bytes(&seal.holder().to_bytes());
        assert_eq!(holder, seal.holder());
        if let Err(errno) = holder.probe() {
            println!("skipped: memory cannot be read here: {errno}");
            return;
        }
        for len in [0, 1, 4095, 70_000] {
            let data: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
            let mut copy = vec![0u8; len];
            let from = data.as_ptr().addr() as u64;
            holder.read(from, &Region::of_mut(&mut copy)).unwrap();
            assert_eq!(copy, data);
        }
        let nothing = holder.read(8, &Region::of_mut(&mut [0u8; 8]));
        assert_eq!(nothing, Err(Errno::FAULT));
        let data = [7u8; 10_000];
        let from = data.as_ptr().addr() as u64;
        assert_eq!(holder.fault(8, 8), Fault::Theirs);
        assert_eq!(holder.fault(from, data.len()), Fault::Ours);
        assert_eq!(Holder { at: 8, ..holder }.fault(from, data.len()), Fault::Gone);
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn what_is_not_mapped_cannot_be_read() {
        let byte = 7u8;
        assert!(is_mapped(&raw const byte));
        assert!(!is_mapped(std::ptr::without_provenance(1)));
    }

    #[test]
    fn another_process_is_nobody() {
        let seal = Seal::new().unwrap();
        let holder = seal.holder();
        if holder.probe().is_err() {
            println!("skipped: memory cannot be read here");
            return;
        }
        let other_seal = Holder {
            seal: [0; SEAL],
            ..holder
        };
        assert_eq!(other_seal.probe(), Err(Errno::SRCH));
        let nobody = Holder {
            thread: i32::MAX.cast_unsigned(),
            ..holder
        };
        assert_eq!(nobody.probe(), Err(Errno::SRCH));
        let nowhere = Holder { at: 8, ..holder };
        assert_eq!(nowhere.probe(), Err(Errno::FAULT));
    }
}
