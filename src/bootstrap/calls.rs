//! [`Calls`]: the calls that a rank has made last, for others that ask.

use crate::types::Call;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

/// Calls that are kept.
pub(super) const KEPT: usize = 64;

/// The last calls of a rank. One thread at a time records, others may look meanwhile; recording takes no lock, as it is
/// in the path of every call.
#[derive(Debug)]
pub(super) struct Calls([Entry; KEPT]);

/// A call's signature in two words. While it is written the first one is [`NONE`].
#[derive(Debug)]
struct Entry([AtomicU64; 2]);

impl Default for Calls {
    fn default() -> Self {
        Calls(std::array::from_fn(|_| {
            Entry([AtomicU64::new(NONE), AtomicU64::new(0)])
        }))
    }
}

impl Calls {
    /// Keeps the call with this signature.
    #[inline]
    pub(super) fn record(&self, [seq, what, low, high]: [u32; 4]) {
        let Entry([first, second]) = &self.0[seq as usize % KEPT];
        first.store(NONE, Relaxed);
        fence(Release); // who sees the new second word does not see the old first one
        second.store(u64::from(low) | u64::from(high) << 32, Relaxed);
        first.store(u64::from(seq) | u64::from(what) << 32, Release); // pairs with the Acquire in `all`
    }

    /// Those that are not just being written.
    pub(super) fn all(&self) -> Vec<Call> {
        let call = |Entry([first, second]): &Entry| {
            let before = first.load(Acquire);
            let count = second.load(Relaxed);
            fence(Acquire); // pairs with the one in `record`
            if before == NONE || first.load(Relaxed) != before {
                return None;
            }
            let signature = [
                before as u32,
                (before >> 32) as u32,
                count as u32,
                (count >> 32) as u32,
            ];
            Call::from_signature(signature)
        };
        self.0.iter().filter_map(call).collect()
    }
}

/// No call's first word: there is no operation of this kind.
const NONE: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Collective, DType, Op};

    fn call(seq: u32) -> Call {
        Call {
            seq,
            collective: Collective::Broadcast { root: seq % 7 },
            count: u64::from(seq) << 31,
            dtype: DType::Float64,
            op: Op::Sum,
        }
    }

    #[test]
    fn the_last_calls_are_kept() {
        let calls = Calls::default();
        assert!(calls.all().is_empty());
        for seq in (u32::MAX - 70..=u32::MAX).chain(0..10) {
            calls.record(call(seq).signature());
        }
        let mut kept = calls.all();
        kept.sort_by_key(|call| call.seq.wrapping_add(100));
        let last: Vec<Call> = (u32::MAX - 53..=u32::MAX).chain(0..10).map(call).collect();
        assert_eq!(kept, last);
    }

    #[test]
    fn a_call_that_is_being_written_is_not_mixed_up() {
        let calls = Calls::default();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..200_000).for_each(|seq| calls.record(call(seq).signature())));
            for _ in 0..2000 {
                assert!(calls.all().iter().all(|one| *one == call(one.seq)));
            }
        });
    }
}
