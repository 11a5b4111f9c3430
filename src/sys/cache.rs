//! Hints to the processor's caches.

#[cfg(not(miri))]
use std::arch::asm;

macro_rules! prefetches {
    ($($(#[$meta:meta])* $name:ident: $x86:literal, $arm:literal;)*) => {$(
        $(#[$meta])*
        #[inline]
        pub(crate) fn $name<T>(place: *const T) {
            // By instructions: the compiler has no word for the one to write where it does not know of the processor's having
            // it; a processor that has it not does nothing.
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            // SAFETY: a prefetch reads and writes nothing that the program could see, and never faults.
            unsafe {
                asm!(concat!($x86, " [{}]"), in(reg) place, options(nostack, preserves_flags, readonly));
            }
            #[cfg(all(target_arch = "aarch64", not(miri)))]
            // SAFETY: as above.
            unsafe {
                asm!(concat!("prfm ", $arm, ", [{}]"), in(reg) place, options(nostack, preserves_flags, readonly));
            }
            #[cfg(miri)]
            let _ = place; // it knows of no caches
        }
    )*};
}

prefetches! {
    /// Has the line at `place`, which may be anywhere, brought here to be written, while other things go on.
    prefetch_to_write: "prefetchw", "pstl1keep";
    /// The same, to be read.
    prefetch_to_read: "prefetcht0", "pldl1keep";
}
