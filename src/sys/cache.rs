//! Hints to the processor's caches, and what they are like.

#[cfg(not(miri))]
use std::arch::asm;
use std::sync::OnceLock;

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

/// Bytes of a core's own cache, on processors that are slow to write over lines which another core still has there: it is worth
/// writing elsewhere until it has dropped them. `None` where it is not, or not known.
///
/// Measured on an AMD EPYC (family 25, model 17) with 1 MiB for each core, 32 KiB written by one and then read by the other, in
/// 1e9 bytes a second of the writes: in the same 32 KiB 9, in turn in 128 KiB 9, 1 MiB 9, 2 MiB 34, 4 MiB 34; when the machine
/// was slower 2.3, 2.3, 2.3, 5 and 5.2.
pub(crate) fn keeps_what_it_reads() -> Option<usize> {
    // "L2 Cache Identifiers": the size in KiB in the upper half.
    let leaf = 0x8000_0006;
    (is_amd() && cpuid(0x8000_0000)[0] >= leaf).then(|| (cpuid(leaf)[2] >> 16) as usize * 1024)
}

/// Whether `rep movsb`, by which the C library copies some KiB to 1 MiB, had better not be used: on AMD's processors.
///
/// There it takes long where the target begins 1 to 31 bytes further on in its page than the source, as what `malloc` has is 16 bytes
/// from a page's beginning. And who copies by it what another core writes meanwhile makes that one slow, often for as long as both go
/// on. Measured on an EPYC (family 25, model 1), line by line and so, in 1e9 bytes a second: to 16 bytes further on 47 and 3; 128 KiB
/// through 32 slots of 32 KiB, from one core to another, 38, and 38 or 11.5.
pub(crate) fn has_slow_string_copies() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(is_amd) // where a hypervisor answers it takes long
}

fn is_amd() -> bool {
    let [_, b, c, d] = cpuid(0);
    [b, d, c].map(u32::to_le_bytes).as_flattened() == b"AuthenticAMD"
}

/// What the processor says of itself, in four registers; nothing where it has no such instruction.
fn cpuid(leaf: u32) -> [u32; 4] {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: every x86-64 has the instruction. Newer compilers know.
        #[allow(unused_unsafe)]
        let all = unsafe { std::arch::x86_64::__cpuid(leaf) };
        [all.eax, all.ebx, all.ecx, all.edx]
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        let _ = leaf;
        [0; 4]
    }
}

prefetches! {
    /// Has the line at `place`, which may be anywhere, brought here to be written, while other things go on.
    prefetch_to_write: "prefetchw", "pstl1keep";
    /// The same, to be read.
    prefetch_to_read: "prefetcht0", "pldl1keep";
}
