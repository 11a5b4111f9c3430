//! [`Area`]: memory of any size that processes of one host share: its maker writes it, others read it.

use super::{fork, memfd};
use crate::mem::Region;
use rustix::{
    fs::{self, FallocateFlags},
    io::Errno,
    mm::{self, Advice, MapFlags, ProtFlags},
};
use std::{
    ffi::c_void,
    io,
    os::fd::{AsFd, OwnedFd},
    ptr,
};

/// A mapping of a sealed memfd. Children made by `fork` do not inherit it.
#[derive(Debug)]
pub(crate) struct Area {
    base: *mut c_void,
    len: usize,
    /// The process that has the mapping: in a forked child something else may lie there.
    generation: u32,
}

impl Area {
    /// New memory of `len` bytes, a multiple of the page size and not 0, all zero, and the descriptor by which others map it.
    /// Only the pages that are touched cost memory. `name` is seen in `/proc/<pid>/maps`.
    pub(crate) fn create(name: &str, len: usize) -> io::Result<(Area, OwnedFd)> {
        let fd = memfd::sealed(name, len)?;
        let area = Area::map(&fd, len, ProtFlags::READ | ProtFlags::WRITE)?;
        Ok((area, fd))
    }

    /// The same for memory that nobody else can map to write, whoever has the descriptor; nor can it be discarded.
    pub(crate) fn create_guarded(name: &str, len: usize) -> io::Result<(Area, OwnedFd)> {
        let fd = memfd::sized(name, len)?;
        let area = Area::map(&fd, len, ProtFlags::READ | ProtFlags::WRITE)?;
        fs::fcntl_add_seals(&fd, memfd::GUARDED)?;
        Ok((area, fd))
    }

    /// Maps the `len` bytes behind a descriptor of what [`Area::create_guarded`] makes, to be read.
    ///
    /// # Errors
    /// `InvalidData` when it is something else.
    pub(crate) fn open_guarded(fd: impl AsFd, len: usize) -> io::Result<Area> {
        memfd::check(&fd, len, memfd::GUARDED)?;
        Area::map(fd, len, ProtFlags::READ)
    }

    /// Maps the `len` bytes behind a descriptor that came from another process, to be read.
    ///
    /// # Errors
    /// `InvalidData` when it is not what [`Area::create`] makes.
    pub(crate) fn open(fd: impl AsFd, len: usize) -> io::Result<Area> {
        memfd::check(&fd, len, memfd::SEALS)?;
        Area::map(fd, len, ProtFlags::READ)
    }

    /// All of it. One that was opened must not be written; of one that others have opened nobody but its maker's caller
    /// says who reads and writes.
    pub(crate) fn region(&self) -> Region<'_> {
        // SAFETY: `len` bytes that are mapped until `drop`, by a file that cannot shrink. Nobody makes a reference to them but
        // who owns an area that was created, as its caller allows.
        unsafe { Region::from_raw(self.base.cast(), self.len) }
    }

    /// Has the pages of `len` bytes at `at` there before they are touched, if the kernel can (Linux 5.14).
    pub(crate) fn populate(&self, at: usize, len: usize) {
        let Some(part) = self.region().get(at, len) else {
            return;
        };
        // SAFETY: a part of the mapping, just checked; this does not change its contents.
        let _ = unsafe { mm::madvise(part.as_ptr().cast(), len, Advice::LinuxPopulateWrite) };
    }

    /// Has children made by `fork` not have it, as it is from the beginning, unless another library has said otherwise since.
    pub(crate) fn keep_from_children(&self) {
        // SAFETY: the mapping is this one's; advice does not change its contents.
        let _ = unsafe { mm::madvise(self.base, self.len, Advice::LinuxDontFork) };
    }

    fn map(fd: impl AsFd, len: usize, access: ProtFlags) -> io::Result<Area> {
        let map = || -> io::Result<*mut c_void> {
            let place = Place::of(len)?;
            let fixed = match place.base.is_null() {
                true => MapFlags::empty(),
                false => MapFlags::FIXED,
            };
            // SAFETY: a new mapping at an address of the kernel's choice, or in a reservation that nothing else uses.
            let base = unsafe { mm::mmap(place.base, len, access, MapFlags::SHARED | fixed, &fd, 0)? };
            place.give_back_the_rest(base, len);
            Ok(base)
        };
        #[cfg(ccl_one_mapping)]
        let map = || super::one_mapping::of(&fd, map);
        let base = map()?;
        let area = Area {
            base,
            len,
            generation: fork::generation(),
        };
        // SAFETY: the mapping just made, which `area` owns; advice does not change its contents.
        unsafe {
            mm::madvise(base, len, Advice::LinuxDontFork)?;
            // Refused by kernels without huge pages.
            let _ = mm::madvise(base, len, Advice::LinuxHugepage);
        }
        Ok(area)
    }
}

/// Gives the pages of an area back, whoever has it mapped: what is read there from now on is zero.
pub(crate) fn discard(fd: impl AsFd, len: usize) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(fs::fallocate(fd, flags, 0, len as u64)?)
}

impl Drop for Area {
    fn drop(&mut self) {
        if self.generation == fork::generation() && !cfg!(ccl_one_mapping) {
            // SAFETY: the mapping is this process's own, just checked, and regions of it borrow from `self`.
            let _ = unsafe { mm::munmap(self.base, self.len) };
        }
    }
}

// SAFETY: an address of memory that belongs to the process, not to a thread, which is reached by raw pointers alone.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

/// Addresses reserved for a mapping, so that it begins where a huge page may. NULL: anywhere.
struct Place {
    base: *mut c_void,
    reserved: *mut c_void,
    len: usize,
}

impl Place {
    fn of(len: usize) -> io::Result<Place> {
        let none = ptr::null_mut();
        if len < HUGE_PAGE {
            return Ok(Place {
                base: none,
                reserved: none,
                len: 0,
            });
        }
        let all = len.checked_add(HUGE_PAGE).ok_or(Errno::NOMEM)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing that exists.
        let reserved = unsafe { mm::mmap_anonymous(none, all, ProtFlags::empty(), flags)? };
        let before = reserved.addr().next_multiple_of(HUGE_PAGE) - reserved.addr();
        Ok(Place {
            base: reserved.wrapping_byte_add(before),
            reserved,
            len: all,
        })
    }

    /// Unmaps what lies before and after the `len` bytes at `base`.
    fn give_back_the_rest(mut self, base: *mut c_void, len: usize) {
        let (start, all) = (self.reserved, std::mem::take(&mut self.len));
        if all == 0 {
            return;
        }
        let before = base.addr() - start.addr();
        for (at, len) in [(0, before), (before + len, all - before - len)] {
            if len > 0 {
                // SAFETY: a part of the reservation that nothing was mapped into.
                let _ = unsafe { mm::munmap(start.wrapping_byte_add(at), len) };
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: the reservation, into which nothing was mapped.
            let _ = unsafe { mm::munmap(self.reserved, self.len) };
        }
    }
}

/// Bytes of a huge page on x86-64, and on aarch64 with pages of 4 KiB.
const HUGE_PAGE: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::Region;
    use std::os::fd::OwnedFd;

    fn bytes(area: &Area, at: usize) -> [u8; 4] {
        let mut bytes = [0; 4];
        Region::of_mut(&mut bytes).copy_from(&area.region().part(at, 4));
        bytes
    }

    #[test]
    fn what_the_maker_writes_others_read_until_it_is_discarded() {
        for len in [4096, 12 << 10, HUGE_PAGE, HUGE_PAGE + 4096, 5 * HUGE_PAGE] {
            let (area, fd) = Area::create("ccl-test", len).unwrap();
            let seen = Area::open(&fd, len).unwrap();
            if len >= HUGE_PAGE {
                assert!(
                    [&area, &seen]
                        .iter()
                        .all(|area| area.base.addr() % HUGE_PAGE == 0)
                );
            }
            for at in [0, len - 4] {
                area.region().part(at, 4).copy_from(&Region::of(&[1u8, 2, 3, 4]));
                assert_eq!(bytes(&seen, at), [1, 2, 3, 4]);
            }
            drop(area);
            assert_eq!(bytes(&seen, len - 4), [1, 2, 3, 4]);
            discard(&fd, len).unwrap();
            assert_eq!(bytes(&seen, len - 4), [0; 4]);
            assert_eq!(fs::fstat(&fd).unwrap().st_size, len as i64);
        }
    }

    #[test]
    fn what_is_not_ours_is_refused() {
        let (_area, fd) = Area::create("ccl-test", 8192).unwrap();
        for len in [4096, 8191, 12288] {
            let refused = Area::open(&fd, len).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        }
        let open: OwnedFd = fs::memfd_create("ccl-test", fs::MemfdFlags::CLOEXEC).unwrap();
        fs::ftruncate(&open, 8192).unwrap();
        let refused = Area::open(&open, 8192).unwrap_err();
        assert!(refused.to_string().contains("seals"), "{refused}");
    }

    #[test]
    fn children_do_not_inherit_it() {
        let (area, _fd) = Area::create("ccl-test", 4096).unwrap();
        let start = format!("{:x}-", area.base.addr());
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let ours = smaps.lines().skip_while(|line| !line.starts_with(&start));
        let flags = ours.clone().find(|line| line.starts_with("VmFlags:")).unwrap();
        assert!(flags.split_whitespace().any(|flag| flag == "dc"), "{flags}");
    }
}
