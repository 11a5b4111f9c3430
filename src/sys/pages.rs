//! [`Pages`]: memory of this process alone that begins at a page.

use crate::mem::Region;
use rustix::mm::{self, MapFlags, ProtFlags};
use std::{ffi::c_void, io, ptr};

/// Whole pages, all zero at first. What has been given to the kernel to be sent ([`super::splice`]) keeps its contents when they are
/// dropped: the pages are nobody else's until the kernel is done with them.
#[derive(Debug)]
pub(crate) struct Pages {
    base: *mut c_void,
    len: usize,
}

impl Pages {
    /// `len` bytes, not 0. Only what is touched costs memory.
    pub(crate) fn new(len: usize) -> io::Result<Pages> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { mm::mmap_anonymous(ptr::null_mut(), len, access, MapFlags::PRIVATE)? };
        Ok(Pages { base, len })
    }

    /// All of it.
    pub(crate) fn region(&self) -> Region<'_> {
        // SAFETY: mapped, readable and writable until `drop`; no reference is ever made to it here.
        unsafe { Region::from_raw(self.base.cast(), self.len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, also in a forked child, which has a copy of it.
        let _ = unsafe { mm::munmap(self.base, self.len) };
    }
}

// SAFETY: an address of memory that belongs to the process, not to a thread, which is reached by raw pointers alone.
unsafe impl Send for Pages {}
