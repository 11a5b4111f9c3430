//! [`usual`]: floats as the language has them, whatever the program has this thread's processor do with them.

/// Does `work` with results rounded to nearest, numbers below the normal ones kept, and no traps, as all ranks do it. A program may
/// have set another mode for a thread (`fesetround`, flushing to zero, a library that was built for speed), which goes on after it.
#[inline]
pub(crate) fn usual<R>(work: impl FnOnce() -> R) -> R {
    let mode = Mode::now();
    match mode.is_usual() {
        true => work(),
        false => in_usual(mode, work),
    }
}

#[cold]
fn in_usual<R>(mode: Mode, work: impl FnOnce() -> R) -> R {
    /// Comes back to it, after a panic, too.
    struct Back(Mode);
    impl Drop for Back {
        fn drop(&mut self) {
            self.0.set();
        }
    }
    let _back = Back(mode);
    Mode::USUAL.set();
    work()
}

use mode::Mode;

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod mode {
    use std::arch::asm;

    /// The control and status register of SSE and AVX.
    #[derive(Clone, Copy)]
    pub(super) struct Mode(u32);

    impl Mode {
        /// No traps, and nothing else.
        pub(super) const USUAL: Mode = Mode(0x1f80);

        #[inline]
        pub(super) fn now() -> Mode {
            let mut mode = 0u32;
            // SAFETY: it writes four bytes there.
            unsafe {
                asm!("stmxcsr [{}]", in(reg) &raw mut mode, options(nostack, preserves_flags));
            }
            Mode(mode)
        }

        /// But for what has happened, which is below.
        #[inline]
        pub(super) fn is_usual(self) -> bool {
            self.0 & !0x3f == Self::USUAL.0
        }

        pub(super) fn set(self) {
            // SAFETY: it is what a processor had, or the usual one, of which no bit is reserved; and memory is as it is told here.
            unsafe {
                asm!("ldmxcsr [{}]", in(reg) &raw const self.0, options(nostack));
            }
        }
    }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
mod mode {
    use std::arch::asm;

    /// The control register of floats.
    #[derive(Clone, Copy)]
    pub(super) struct Mode(u64);

    impl Mode {
        pub(super) const USUAL: Mode = Mode(0);

        #[inline]
        pub(super) fn now() -> Mode {
            let mode;
            // SAFETY: it reads a register.
            unsafe {
                asm!("mrs {}, fpcr", out(reg) mode, options(nostack, preserves_flags));
            }
            Mode(mode)
        }

        #[inline]
        pub(super) fn is_usual(self) -> bool {
            self.0 == Self::USUAL.0
        }

        pub(super) fn set(self) {
            // SAFETY: it is what a processor had, or the usual one; and memory is as it is told here.
            unsafe {
                asm!("msr fpcr, {}", in(reg) self.0, options(nostack, preserves_flags));
            }
        }
    }
}

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod mode {
    /// What is not known.
    #[derive(Clone, Copy)]
    pub(super) struct Mode;

    impl Mode {
        pub(super) const USUAL: Mode = Mode;

        pub(super) fn now() -> Mode {
            Mode
        }

        pub(super) fn is_usual(self) -> bool {
            true
        }

        pub(super) fn set(self) {}
    }
}

/// Does `work` on a thread that rounds upward.
#[cfg(all(test, not(miri)))]
pub(crate) fn rounding_up<R>(work: impl FnOnce() -> R) -> R {
    unsafe extern "C" {
        fn fesetround(mode: i32) -> i32;
    }
    const TO_NEAREST: i32 = 0;
    const UPWARD: i32 = if cfg!(target_arch = "x86_64") {
        0x800
    } else {
        1 << 22
    };
    // SAFETY: it changes how this thread rounds, which is taken back below.
    assert_eq!(unsafe { fesetround(UPWARD) }, 0);
    let done = work();
    // SAFETY: as above.
    assert_eq!(unsafe { fesetround(TO_NEAREST) }, 0);
    done
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[test]
    fn another_mode_is_left_and_comes_back() {
        // As the hardware adds, and then: the compiler knows of one mode.
        let more = || black_box(black_box(1.0f32) + black_box(f32::EPSILON / 4.0));
        let nearest = more();
        let [upward, inside, after] = rounding_up(|| [more(), usual(more), more()]);
        assert!(nearest < upward, "{nearest} {upward}");
        assert!(Mode::now().is_usual());
        assert_eq!([inside, after], [nearest, upward]);
    }
}
