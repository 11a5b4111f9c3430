//! What the process has loaded.

use std::ffi::{c_int, c_void};

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
}
