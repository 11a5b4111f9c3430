//! [`Taking`]: whether the peers had better take a kept call's long messages from this rank's memory, or it copies them.
//!
//! To take them is one copy instead of two, by the kernel. Which is faster depends on what the program does between its calls:
//! memory that was written anew lies in the caches of the core that wrote it, and another core's kernel reads it there at a
//! quarter of the speed, while a core that copies its own memory has it at hand. What is copied anyway is not read anew. So a
//! kept call tries both from time to time, and goes by what took less time. Each rank decides alone for what it sends: results
//! are the same either way.
//!
//! Measured on 2 cores of an Intel Xeon (model 167), `cclX` in a loop, medians of 3, taken -> copied, in us. Buffers unchanged: 2
//! ranks, all-to-all of 128 KiB 6.4 -> 9.0, 512 KiB 19 -> 36, scatter of 1 MiB 24 -> 47; 4 ranks, scatter of 1 MiB 31 -> 76. Written
//! before each call: all-to-all 17.7 -> 8.9, 44 -> 37, scatter 81 -> 51; 4 ranks 150 -> 108.

use std::mem;

/// What is known of a call's two ways.
#[derive(Debug)]
pub(super) struct Taking {
    /// Calls since both were tried last, those of the trial included.
    calls: u32,
    /// After so many they are tried again.
    period: u32,
    /// Nanoseconds that the last calls of each way in a trial took: those whose messages were taken, and the others.
    took: [[u64; MEASURED]; 2],
    /// What came out: whether messages are copied.
    copies: bool,
}

impl Taking {
    pub(super) fn new() -> Self {
        Taking {
            calls: 0,
            period: FIRST_PERIOD,
            took: Default::default(),
            copies: false,
        }
    }

    /// Whether messages of the next call may be taken.
    pub(super) fn takes(&self) -> bool {
        match self.calls as usize {
            0..TRIED => true,
            TRIED..BOTH_TRIED => false,
            _ => !self.copies,
        }
    }

    /// The call took so many nanoseconds.
    pub(super) fn took(&mut self, took: u64) {
        let at = self.calls as usize;
        self.calls += 1;
        if at < BOTH_TRIED && at % TRIED >= WARMED_UP {
            self.took[at / TRIED][at % TRIED - WARMED_UP] = took;
        }
        if at + 1 == BOTH_TRIED {
            let [taken, copied] = mem::take(&mut self.took).map(median);
            // What was found before stays as long as the other is not clearly better.
            self.copies = match self.copies {
                true => copied < taken + taken / MARGIN,
                false => copied + copied / MARGIN < taken,
            };
        }
        if self.calls == self.period {
            self.calls = 0;
            self.period = (self.period * 2).min(LAST_PERIOD);
        }
    }
}

fn median(mut of: [u64; MEASURED]) -> u64 {
    of.sort_unstable();
    of[MEASURED / 2]
}

/// Calls of each way in a trial. In the first ones the rooms that bodies are copied to are new: their pages are made, and lie in
/// nobody's caches.
const TRIED: usize = WARMED_UP + MEASURED;
const WARMED_UP: usize = 16;
const MEASURED: usize = 8;
const BOTH_TRIED: usize = 2 * TRIED;
const FIRST_PERIOD: u32 = 256;
const LAST_PERIOD: u32 = 4096;
/// It is clear from this part of the time on.
const MARGIN: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes so many calls, and says how many had messages taken.
    fn calls(taking: &mut Taking, count: u32, taken: u64, copied: u64) -> u32 {
        let call = |taking: &mut Taking| {
            let takes = taking.takes();
            taking.took(if takes { taken } else { copied });
            u32::from(takes)
        };
        (0..count).map(|_| call(taking)).sum()
    }

    #[test]
    fn what_takes_less_time_is_done_until_the_other_does() {
        let mut taking = Taking::new();
        let tried = TRIED as u32;
        assert_eq!(calls(&mut taking, FIRST_PERIOD, 100, 100), FIRST_PERIOD - tried);
        assert_eq!(calls(&mut taking, 2 * FIRST_PERIOD, 100, 50), tried);
        // A little better is not better.
        assert_eq!(calls(&mut taking, 4 * FIRST_PERIOD, 100, 105), tried);
        assert_eq!(
            calls(&mut taking, 8 * FIRST_PERIOD, 100, 200),
            8 * FIRST_PERIOD - tried
        );
        // The trials become rare.
        calls(&mut taking, 8 * LAST_PERIOD, 100, 200);
        assert_eq!(taking.period, LAST_PERIOD);
    }

    #[test]
    fn a_call_that_waited_for_long_decides_nothing() {
        let mut taking = Taking::new();
        for k in 0..FIRST_PERIOD {
            let waits = k % 8 < 3 || k as usize % TRIED < WARMED_UP;
            let took = if taking.takes() { 100 } else { 50 };
            taking.took(if waits { 1_000_000 } else { took });
        }
        assert!(taking.copies);
    }
}
