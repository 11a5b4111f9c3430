//! The reduction kernels on vectors that fit a second-level cache. Throughput counts the bytes of the result.
//!
//! `cargo bench --bench reduce -- --ratios` prints instead how fast each is beside a plain copy of the same traffic, in both
//! caches and in memory.

#![allow(missing_docs)] // criterion's macros make public functions

#[path = "reduce/ratios.rs"]
mod ratios;

use ccl::bench_support::{Threads, reduce};
use ccl::types::{DType, Op};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group};
use std::{hint::black_box, time::Duration};

/// Bytes of a vector.
const LEN: usize = 64 << 10;

fn each_type(c: &mut Criterion) {
    let (a, b, mut out) = (vector(LEN), vector(LEN), vector(LEN));
    // Integers compare by their sign, floats look for NaN.
    for (name, op) in [
        ("sum of two", Op::Sum),
        ("maximum of two", Op::Max),
        ("minimum of two", Op::Min),
    ] {
        let mut group = c.benchmark_group(name);
        group.throughput(Throughput::Bytes(LEN as u64));
        for dtype in DType::ALL {
            group.bench_function(dtype.name(), |bencher| {
                bencher.iter(|| reduce(op, dtype, black_box([&a, &b]), black_box(&mut out)));
            });
        }
    }
    c.benchmark_group("copy, for comparison")
        .throughput(Throughput::Bytes(LEN as u64))
        .bench_function("copy", |bencher| {
            bencher.iter(|| black_box(&mut out).copy_from_slice(black_box(&a)));
        });
}

fn many_sources(c: &mut Criterion) {
    let mut group = c.benchmark_group("sum of float32");
    group.throughput(Throughput::Bytes(LEN as u64));
    sources::<2>(&mut group);
    sources::<4>(&mut group);
    sources::<8>(&mut group);
}

fn sources<const K: usize>(group: &mut criterion::BenchmarkGroup<'_, criterion::measurement::WallTime>) {
    let (sources, mut out) = ([(); K].map(|()| vector(LEN)), vector(LEN));
    group.bench_function(BenchmarkId::new("sources", K), |bencher| {
        let sources = sources.each_ref().map(Vec::as_slice);
        bencher.iter(|| reduce(Op::Sum, DType::Float32, black_box(sources), black_box(&mut out)));
    });
}

/// How much sooner several threads are done with a long vector, by the length of the tiles that they share.
fn threads(c: &mut Criterion) {
    const LONG: usize = 16 << 20;
    let mut group = c.benchmark_group("sum of float32 by threads");
    group.throughput(Throughput::Bytes(LONG as u64));
    let (a, b, mut out) = (vec![0x38; LONG], vec![0x39; LONG], vec![0; LONG]);
    for threads in [1, 2] {
        let team = Threads::new(threads);
        for tile in [32 << 10, 64 << 10, LONG] {
            let name = format!("{threads}, tiles of {} KiB", tile >> 10);
            group.bench_function(name, |bencher| {
                bencher.iter(|| team.sum(tile, black_box([&a, &b]), black_box(&mut out)));
            });
        }
    }
}

/// Small numbers in every type: no infinities, no NaN, no subnormals.
fn vector(len: usize) -> Vec<u8> {
    (0..len).map(|i| 0x38 + (i % 7) as u8).collect()
}

fn quick() -> Criterion {
    Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(300))
}

criterion_group! {
    name = benches;
    config = quick();
    targets = each_type, many_sources, threads
}

fn main() {
    if std::env::args().any(|argument| argument == "--ratios") {
        return ratios::print();
    }
    benches();
    Criterion::default().configure_from_args().final_summary();
}
