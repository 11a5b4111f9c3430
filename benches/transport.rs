//! Messages through a link of shared memory between two threads, each of which keeps its data in memory of its own.
//!
//! `one_way`: half of a round trip. `exchange`: both send, then both receive, as a small all-reduce of two ranks does.

use ccl::bench_support::{End, shm_pair};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::{
    sync::atomic::{AtomicU64, Ordering::*},
    thread,
    time::{Duration, Instant},
};

fn one_way(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("shm/one_way");
    for bytes in [8, 64, 512, 4 << 10, 16 << 10, 64 << 10] {
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(format!("{bytes} B"), |bencher| {
            let turn = |end: &End, first: bool, out: &[u8], into: &mut [u8]| {
                if first {
                    end.send(0, [1; 4], out);
                    end.recv(0, into);
                } else {
                    end.recv(0, into);
                    end.send(0, [1; 4], out);
                }
            };
            with_two_threads(bytes, turn, |turns| bencher.iter_custom(|count| turns(count) / 2));
        });
    }
    group.finish();
}

fn exchange(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("shm/exchange");
    for bytes in [8, 64, 512, 4 << 10] {
        group.bench_function(format!("{bytes} B"), |bencher| {
            let turn = |end: &End, _first: bool, out: &[u8], into: &mut [u8]| {
                end.send(0, [1; 4], out);
                end.recv(0, into);
            };
            with_two_threads(bytes, turn, |turns| bencher.iter_custom(turns));
        });
    }
    group.finish();
}

/// Gives `measure` a function that takes a number of turns and says how long they took; a second thread takes part.
fn with_two_threads(
    bytes: usize,
    turn: impl Fn(&End, bool, &[u8], &mut [u8]) + Copy + Send,
    measure: impl FnOnce(&mut dyn FnMut(u64) -> Duration),
) {
    let [here, there] = shm_pair().expect("shared memory");
    let due = &AtomicU64::new(0);
    let mine = move |end: &End, first: bool, turns: u64| {
        let (out, mut into) = (vec![7u8; bytes], vec![0u8; bytes]);
        let start = Instant::now();
        (0..turns).for_each(|_| turn(end, first, &out, &mut into));
        let took = start.elapsed();
        assert!(turns == 0 || out == into);
        took
    };
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut done = 0;
            loop {
                let until = due.load(Acquire);
                mine(&there, false, (until & !STOP) - done);
                done = until & !STOP;
                if until & STOP != 0 {
                    return;
                }
            }
        });
        measure(&mut |turns| {
            due.fetch_add(turns, Release);
            mine(&here, true, turns)
        });
        due.fetch_or(STOP, Release);
    });
}

/// Added to the number of turns when there will be no more.
const STOP: u64 = 1 << 63;

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    targets = one_way, exchange
}
criterion_main!(benches);
