//! Memory shared between processes: sealed memfds, each mapped as one value of a known layout.
//!
//! Nothing has a name in a file system, so nothing is left behind however a process ends. The seals mean that the
//! size that was checked once stays: no access to the mapping can fault because another process shrank the file.

use super::fork;
use rustix::{
    fs::{self, MemfdFlags, SealFlags},
    io::Errno,
    mm::{self, Advice, MapFlags, ProtFlags},
};
use std::{
    ffi::c_void,
    io,
    marker::PhantomData,
    ops::{Deref, Range},
    os::fd::{AsFd, OwnedFd},
    ptr::NonNull,
    sync::Arc,
};

/// A layout that processes may share.
///
/// # Safety
/// `repr(C)`; every pattern of bits is a value (zero bytes are the first one); all bytes lie in atomics or
/// `UnsafeCell`s, as other processes may change any of them at any time; aligned to a page or less.
pub(crate) unsafe trait Layout {}

/// A `T` in memory that other processes map too. Children made by `fork` do not inherit the mapping. Clones have the same
/// one.
pub(crate) struct Shared<T: Layout> {
    base: NonNull<T>,
    mapping: Arc<Mapping>,
    owner: PhantomData<T>,
}

/// A mapping, which ends when it is dropped.
struct Mapping {
    base: *mut c_void,
    len: usize,
    /// The process that has the mapping (see [`fork::generation`]): in a forked child something else may lie there.
    generation: u32,
}

impl<T: Layout> Shared<T> {
    /// New memory, all zero, and the descriptor by which others map it. Only the pages that are touched cost memory.
    /// `name` is seen in `/proc/<pid>/maps`.
    pub(crate) fn create(name: &str) -> io::Result<(Self, OwnedFd)> {
        let fd = sealed(name, size_of::<T>())?;
        Ok((Self::map(&fd)?, fd))
    }

    /// Maps the memory behind a descriptor that came from another process.
    ///
    /// # Errors
    /// `InvalidData` when it is not what [`Shared::create`] makes: a memfd of this very size and with these seals.
    pub(crate) fn open(fd: impl AsFd) -> io::Result<Self> {
        check(&fd, size_of::<T>(), SEALS)?;
        Self::map(&fd)
    }

    /// Bytes of address space that the mapping takes.
    pub(crate) fn mapped(&self) -> usize {
        size_of::<T>().next_multiple_of(rustix::param::page_size())
    }

    /// Gives whole pages of it back, whoever has them mapped: what is read there from now on is zero.
    pub(crate) fn discard(&self, part: Range<usize>) -> io::Result<()> {
        let is_here = self.mapping.generation == fork::generation();
        if !is_here || part.start > part.end || part.end > size_of::<T>() {
            return Err(Errno::INVAL.into());
        }
        let base = self.mapping.base.wrapping_byte_add(part.start);
        // SAFETY: a part of this process's own mapping, just checked. Zero bytes are a value, and others may change any byte at any time, as
        // `Layout` promises.
        unsafe { mm::madvise(base, part.len(), Advice::LinuxRemove)? };
        Ok(())
    }

    /// `fd` is a memfd of the size of `T` that can not shrink.
    fn map(fd: impl AsFd) -> io::Result<Self> {
        const { assert!(align_of::<T>() <= 4096 && size_of::<T>() > 0) }
        let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        let place = || -> io::Result<*mut c_void> {
            // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing that exists.
            Ok(unsafe { mm::mmap(std::ptr::null_mut(), size_of::<T>(), access, kind, &fd, 0)? })
        };
        #[cfg(ccl_one_mapping)]
        let place = || super::one_mapping::of(&fd, place);
        let base = place()?;
        let mapping = Mapping {
            base,
            len: size_of::<T>(),
            generation: fork::generation(),
        };
        let shared = Shared {
            base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?,
            mapping: Arc::new(mapping),
            owner: PhantomData,
        };
        // A forked child that went on writing to our lanes would break them for the peer.
        // SAFETY: the range is the mapping just made, which `shared` owns; the advice does not change its contents.
        unsafe { mm::madvise(base, size_of::<T>(), Advice::LinuxDontFork)? };
        // Most of it is never touched, and must not be there because a part is. Kernels without huge pages know no such advice.
        // SAFETY: as above.
        let _ = unsafe { mm::madvise(base, size_of::<T>(), Advice::LinuxNoHugepage) };
        Ok(shared)
    }
}

impl<T: Layout> Deref for Shared<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `base` is a mapping of `size_of::<T>()` bytes, aligned to a page, that lives until `drop`; the file
        // behind it can not shrink (`create` sealed it, `open` checked the seals and the size). `Layout` promises that
        // all bytes are in atomics or `UnsafeCell`s, so that others may change them under a shared reference.
        unsafe { self.base.as_ref() }
    }
}

impl<T: Layout> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared {
            base: self.base,
            mapping: Arc::clone(&self.mapping),
            owner: PhantomData,
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.generation == fork::generation() && !cfg!(ccl_one_mapping) {
            // SAFETY: the mapping is this process's own, just checked, and nobody has a reference into it any more:
            // they borrow from a `Shared`, and this was the last one.
            let _ = unsafe { mm::munmap(self.base, self.len) };
        }
    }
}

// SAFETY: an address of memory that belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; only `drop` uses the address.
unsafe impl Sync for Mapping {}

// SAFETY: an address of memory that belongs to the process, not to a thread; the contents are atomics and
// `UnsafeCell`s, which only raw pointers under somebody's protocol reach, whichever thread (or process) uses them.
unsafe impl<T: Layout> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Layout> Sync for Shared<T> {}

/// Neither the size nor the seals change any more.
pub(super) const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The same, and only who has mapped it already writes.
pub(super) const GUARDED: SealFlags = SEALS.union(SealFlags::FUTURE_WRITE);

/// A memfd of `size` bytes, all zero, which stays as large.
pub(super) fn sealed(name: &str, size: usize) -> io::Result<OwnedFd> {
    let fd = sized(name, size)?;
    fs::fcntl_add_seals(&fd, SEALS)?;
    Ok(fd)
}

/// A memfd of `size` bytes, all zero, without seals.
pub(super) fn sized(name: &str, size: usize) -> io::Result<OwnedFd> {
    let limit = longest_file();
    // Past the limit the kernel does not only refuse: it ends the process by SIGXFSZ.
    if let Some(limit) = limit.filter(|&limit| limit < size as u64) {
        let what = format!(
            "{size} bytes of shared memory are a file to the kernel, and this process's limit for files is {limit} bytes; raise \
             it (`ulimit -f unlimited`)"
        );
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    let fd = memfd(name)?;
    fs::ftruncate(&fd, size as u64)?;
    Ok(fd)
}

/// Bytes of the longest file that this process may make, if it is told of one.
fn longest_file() -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: a place for the limit. Where the call is refused it stays as it is, which `rustix`'s does not promise.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Checks that a descriptor which came from another process is a memfd of `size` bytes with these seals.
///
/// # Errors
/// `InvalidData` when it is not.
pub(super) fn check(fd: impl AsFd, size: usize, wanted: SealFlags) -> io::Result<()> {
    let refuse = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let seals = fs::fcntl_get_seals(&fd)
        .map_err(|err| refuse(format!("the descriptor is not that of a memfd ({err})")))?;
    // Newer kernels add `SealFlags::EXEC`, which is none of our business.
    if seals & (GUARDED | SealFlags::WRITE) != wanted {
        return Err(refuse(format!(
            "the memory has the seals {seals:?} instead of {wanted:?}"
        )));
    }
    let is = fs::fstat(&fd)?.st_size;
    if usize::try_from(is) != Ok(size) {
        return Err(refuse(format!(
            "the memory is {is} bytes large instead of {size}"
        )));
    }
    Ok(())
}

/// What tells a file from all others: its device and its number there.
pub(crate) fn identity(fd: impl AsFd) -> io::Result<(u64, u64)> {
    let status = fs::fstat(fd)?;
    Ok((status.st_dev, status.st_ino))
}

fn memfd(name: &str) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Where `vm.memfd_noexec` is 2 only memory that can not be executed is allowed; kernels before 6.3 do not know
    // the flag.
    match fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => Ok(fork::above_stdio(fs::memfd_create(name, flags)?)),
        made => Ok(fork::above_stdio(made?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    #[repr(C)]
    struct Words([AtomicU64; 1000]);

    // SAFETY: atomics only.
    unsafe impl Layout for Words {}

    #[test]
    fn two_mappings_are_the_same_memory() {
        let (here, fd) = Shared::<Words>::create("ccl-test").unwrap();
        let there = Shared::<Words>::open(&fd).unwrap();
        drop(fd);
        assert_eq!(there.0[999].load(SeqCst), 0);
        here.0[999].store(7, SeqCst);
        assert_eq!(there.0[999].load(SeqCst), 7);
        drop(here);
        assert_eq!(there.0[999].load(SeqCst), 7);
        assert_eq!(there.mapped() % 4096, 0);
    }

    #[test]
    fn what_is_discarded_is_zero_for_all() {
        let (here, fd) = Shared::<Words>::create("ccl-test").unwrap();
        let there = Shared::<Words>::open(&fd).unwrap();
        here.0.iter().for_each(|word| word.store(7, SeqCst));
        here.discard(4096..8000).unwrap();
        let words = there.0.iter().map(|word| word.load(SeqCst));
        let zero = (4096 / 8)..1000;
        assert!(
            words
                .enumerate()
                .all(|(k, word)| word == if zero.contains(&k) { 0 } else { 7 })
        );
        assert!(here.discard(4096..16384).is_err());
    }

    #[test]
    fn children_do_not_inherit_the_mapping() {
        let (here, _fd) = Shared::<Words>::create("ccl-test").unwrap();
        let start = format!("{:x}-", here.base.as_ptr().addr());
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let ours = smaps.lines().skip_while(|line| !line.starts_with(&start));
        let flags = ours.clone().find(|line| line.starts_with("VmFlags:")).unwrap();
        // `dc`: do not copy the area on fork.
        assert!(flags.split_whitespace().any(|flag| flag == "dc"), "{flags}");
    }

    #[test]
    fn a_child_keeps_what_lies_where_the_mapping_was() {
        fork::watch().unwrap();
        let (here, _fd) = Shared::<Words>::create("ccl-test").unwrap();
        let base = here.base.as_ptr().cast();
        let child = fork::child(|| {
            let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
            // SAFETY: nothing lies there in the child; with that flag the kernel takes no place that is taken.
            let own = unsafe {
                mm::mmap_anonymous(base, size_of::<Words>(), access, kind | MapFlags::FIXED_NOREPLACE)
            };
            drop(here);
            // A page that is not mapped is refused.
            // SAFETY: the range is the child's own mapping, if it is still there; the advice changes nothing.
            own.is_ok() && unsafe { mm::madvise(base, size_of::<Words>(), Advice::Normal) }.is_ok()
        });
        let (_, status) = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty())
            .unwrap()
            .unwrap();
        assert_eq!(status.exit_status(), Some(0));
    }

    #[test]
    fn what_is_not_ours_is_refused() {
        let refused = |fd: &OwnedFd| {
            let err = Shared::<Words>::open(fd).err().expect("must be refused");
            assert_eq!(err.kind(), io::ErrorKind::InvalidData);
            err.to_string()
        };
        let make = |size, seals| {
            let fd = memfd("ccl-test").unwrap();
            fs::ftruncate(&fd, size).unwrap();
            fs::fcntl_add_seals(&fd, seals).unwrap();
            fd
        };
        assert!(Shared::<Words>::open(make(8000, SEALS)).is_ok());
        for size in [0, 7999, 8001, 1 << 40] {
            assert!(refused(&make(size, SEALS)).contains("bytes large instead of 8000"));
        }
        let weak = [
            SealFlags::empty(),
            SealFlags::GROW | SealFlags::SEAL,
            SealFlags::SHRINK | SealFlags::SEAL,
            SealFlags::SHRINK | SealFlags::GROW,
            SEALS | SealFlags::WRITE,
            SEALS | SealFlags::FUTURE_WRITE,
        ];
        for seals in weak {
            assert!(refused(&make(8000, seals)).contains("seals"));
        }
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        assert!(refused(&pipe).contains("not that of a memfd"));
    }
}
