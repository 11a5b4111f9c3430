//! Sleeping on a word of shared memory.

use rustix::{
    io::Errno,
    thread::futex::{self, Flags, Timespec},
};
use std::{sync::atomic::AtomicU32, time::Duration};

/// Sleeps while `word` holds `value`, for at most `timeout`. `false` when the time has passed; `true` when it was
/// woken, when `word` held something else already, or for no reason at all.
pub(crate) fn wait(word: &AtomicU32, value: u32, timeout: Duration) -> bool {
    let timeout = Timespec {
        // A timeout of more than 292 billion years may as well be a second shorter.
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    };
    // Without the private flag: the word may be mapped by several processes. Apart from the time's passing the call
    // fails only for a changed word or a signal (the address is a live reference), where the caller looks again.
    !matches!(
        futex::wait(word, Flags::empty(), value, Some(&timeout)),
        Err(Errno::TIMEDOUT)
    )
}

/// Wakes whoever sleeps on `word`.
pub(crate) fn wake(word: &AtomicU32) {
    // The call fails only for an address that is not mapped, and this one is a live reference.
    let _ = futex::wake(word, Flags::empty(), i32::MAX as u32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::atomic::Ordering::SeqCst, thread};

    #[test]
    fn a_changed_word_does_not_sleep_and_time_passes() {
        let word = AtomicU32::new(1);
        assert!(wait(&word, 0, Duration::from_secs(3600)));
        assert!(!wait(&word, 1, Duration::from_millis(1)));
    }

    #[test]
    fn a_sleeper_is_woken() {
        let word = AtomicU32::new(0);
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                while word.load(SeqCst) == 0 {
                    assert!(wait(&word, 0, Duration::from_secs(60)), "nobody woke the sleeper");
                }
            });
            thread::yield_now();
            word.store(1, SeqCst);
            wake(&word);
            sleeper.join().unwrap();
        });
    }
}
