use super::*;
use crate::transport::words_of;
use crate::types::{Collective, DType, Op};
use proptest::prelude::*;
use std::thread;

fn call(seq: u32) -> Call {
    Call {
        seq,
        collective: Collective::Broadcast { root: seq % 7 },
        count: u64::from(seq) << 31,
        dtype: DType::Float64,
        op: Op::Sum,
    }
}

fn recorder() -> Recorder {
    Recorder::new(|number| (number == 3).then_some("ring"), ("test", 0, 2))
}

fn calls(recorder: &Recorder) -> Vec<Call> {
    let records = recorder.records();
    records
        .iter()
        .filter_map(|record| record.call().copied())
        .collect()
}

#[test]
fn the_last_calls_are_kept_in_their_order() {
    let recorder = recorder();
    assert!(recorder.records().is_empty());
    for seq in (u32::MAX - 70..=u32::MAX).chain(0..10) {
        // Some by the clock that lags.
        match seq % 3 {
            0 => recorder.call(words_of(call(seq).signature()), 3, 9),
            _ => recorder.call_lately(words_of(call(seq).signature()), 3, 9),
        }
    }
    let last: Vec<Call> = (u32::MAX - 53..=u32::MAX).chain(0..10).map(call).collect();
    assert_eq!(calls(&recorder), last);
}

#[test]
fn a_call_that_is_being_written_is_not_mixed_up() {
    let recorder = recorder();
    thread::scope(|scope| {
        scope.spawn(|| {
            (0..200_000).for_each(|seq| recorder.call_lately(words_of(call(seq).signature()), 0, 1))
        });
        for _ in 0..2000 {
            assert!(calls(&recorder).iter().all(|one| *one == call(one.seq)));
        }
    });
}

#[test]
fn ends_are_told() {
    let recorder = Arc::new(recorder());
    for seq in 0..5 {
        recorder.call(words_of(call(seq).signature()), 3, 80);
    }
    recorder.over(0);
    recorder.end(1, End::DONE);
    let cause = Cause::Aborted { rank: 1 };
    recorder.mark(2).end(End::of::<()>(&Err(cause)));
    recorder.mark(2).end(End::DONE); // it has ended before
    recorder.done(3, 40);
    recorder.end(3 + KEPT as u32, End::DONE); // there is no such call
    let told: Vec<String> = recorder.records().iter().map(Record::to_string).collect();
    for (told, (begin, end)) in told.iter().zip([
        (
            "call #0 broadcast(0 x float64, root 0) by ring, 80 bytes, at ",
            " UTC, done",
        ),
        ("call #1 ", "s"),
        ("call #2 ", "s"),
        ("call #3 ", ", 40 bytes done"),
        ("call #4 ", "s"),
    ]) {
        assert!(told.starts_with(begin) && told.ends_with(end), "{told}");
    }
    assert!(told[1].contains(" UTC, done in "), "{}", told[1]);
    assert!(told[2].contains(" UTC, failed (aborted) after "), "{}", told[2]);
    assert!(told[3].contains(" UTC, under way for "), "{}", told[3]);
    assert_eq!(
        recorder.records().iter().filter(|one| one.is_under_way()).count(),
        2
    );
}

proptest! {
    #[test]
    fn messages_are_kept(sent: bool, peer: Option<u32>, tag: Option<i32>, count: u64, dtype in 0i32..14) {
        let dtype = DType::from_number(dtype).unwrap();
        let transfer = match (sent, peer, tag) {
            (true, Some(to), Some(tag)) => Transfer::Send { to, tag, count, dtype },
            _ => Transfer::Recv { from: peer, tag, count, dtype },
        };
        let recorder = Arc::new(recorder());
        recorder.message(&transfer).end(End::DONE);
        let record = &recorder.records()[0];
        prop_assert_eq!(record.operation, Operation::Transfer(transfer));
        prop_assert_eq!(record.message, Some(0));
        prop_assert!(!record.is_under_way());
    }
}
