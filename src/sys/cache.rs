//! Hints to the processor's caches.

#[cfg(not(miri))]
use std::arch::asm;

/// Has the line at `place`, which may be anywhere, brought here to be written, while other things go on.
#[inline]
pub(crate) fn prefetch_to_write<T>(place: *const T) {
    // An instruction that the compiler has no word for where it does not know of the processor's having it; a processor
    // that has it not does nothing.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads and writes nothing that the program could see, and never faults.
    unsafe {
        asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        asm!("prfm pstl1keep, [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
    #[cfg(miri)]
    let _ = place; // it knows of no caches
}

/// Has the line at `place`, which may be anywhere, brought here to be read, while other things go on.
#[inline]
pub(crate) fn prefetch_to_read<T>(place: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads and writes nothing that the program could see, and never faults.
    unsafe {
        asm!("prefetcht0 [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        asm!("prfm pldl1keep, [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
    #[cfg(miri)]
    let _ = place; // it knows of no caches
}
