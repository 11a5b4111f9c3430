//! `CCL_TUNE=online`, with ranks as processes: where a process has several, nothing is tried.
#![allow(missing_docs)]

mod common;

use ccl::{Communicator, Config, Error, Op, Stream};
use common::process::{Rank, role, say};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

/// Not a test by itself: what the processes do that the tests below start.
#[test]
fn roles() {
    let Some((_, id, ranks, rank)) = role() else {
        return;
    };
    let comm = Communicator::init(ranks, &id, rank, &Config::default()).unwrap();
    comm.set_timeout(Duration::from_secs(2));
    let (stream, is_open) = (Stream::new(), Arc::new(AtomicBool::new(false)));
    let until = Arc::clone(&is_open);
    let wait = move |_| {
        while !until.load(SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
    };
    stream.add_callback(wait).unwrap();
    let begin = |_| comm.begin().on(&stream).all_reduce(vec![1u32; 1024], Op::Sum);
    let refused = (0..100).map(begin).find_map(Result::err);
    assert!(matches!(refused, Some(Error::Usage { .. })), "{refused:?}");
    is_open.store(true, SeqCst);
    stream.synchronize().unwrap();
    // The decision has come meanwhile.
    let sum = begin(0).unwrap().wait().unwrap();
    assert!(sum.iter().all(|&x| x == ranks as u32));
    comm.finalize().unwrap();
    say(refused.map(|error| error.to_string()).unwrap_or_default());
}

/// A stream that waits for its caller keeps back also the decision, for which the caller waits.
#[test]
fn who_waits_for_a_decision_behind_its_own_stream_is_told_so() {
    let mut ranks = Rank::start_all(2, &[("CCL_TUNE", "online")], "streams");
    for rank in &mut ranks {
        let said = rank.said();
        assert!(said.contains("CCL_TUNE=online"), "{said}");
    }
}
