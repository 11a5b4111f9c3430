//! What the process has loaded and mapped.

use std::{
    ffi::{c_int, c_void},
    ptr,
};

/// How many libraries were loaded so far, those that were unloaded again included.
#[inline]
pub(crate) fn loads() -> u64 {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _size: usize, loads: *mut c_void) -> c_int {
        // SAFETY: glibc passes an object's description, which has that number since 2.4, and what `loads` passed.
        unsafe { loads.cast::<u64>().write((*info).dlpi_adds) };
        1 // no more
    }
    let mut loads = 0u64;
    // SAFETY: the function writes one number, where this one is.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut loads).cast()) };
    loads
}

/// Whether the byte at `at` can be read. The system says, nobody reads it.
pub(crate) fn is_readable(at: *const u8) -> bool {
    let mut byte = 0u8;
    let to = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let from = libc::iovec {
        iov_base: at.cast_mut().cast(),
        iov_len: 1,
    };
    // SAFETY: it writes the one byte, or says that it cannot read.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &raw const to, 1, &raw const from, 1, 0) };
    read == 1 && !ptr::eq(at, ptr::null())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loads_are_counted() {
        let before = loads();
        assert!(before > 0);
        // SAFETY: it has no initialisers.
        drop(unsafe { libloading::Library::new("libanl.so.1") });
        assert!(loads() >= before);
    }

    #[test]
    fn what_is_not_mapped_cannot_be_read() {
        let byte = 7u8;
        assert!(is_readable(&raw const byte));
        assert!(!is_readable(ptr::without_provenance(1)));
    }
}
