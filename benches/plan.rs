//! What planning takes: a call that was made before, one that was not, and one rank's schedule among 100,000.

use ccl::bench_support::{Planner, schedule};
use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;

fn calls(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan");
    for ranks in [8, 1024] {
        for count in [16, 1 << 18] {
            let mut planner = Planner::new(ranks);
            let bytes = count * 4;
            group.bench_function(format!("cold/{ranks} ranks, {bytes} B"), |bencher| {
                bencher.iter(|| planner.plan(black_box(count)).expect("a plan"));
            });
            planner.prepare(count).expect("a proof");
            group.bench_function(format!("warm/{ranks} ranks, {bytes} B"), |bencher| {
                bencher.iter(|| planner.prepare(black_box(count)).expect("a plan"));
            });
        }
    }
    group.finish();
}

fn many_ranks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan/one of 100000 ranks");
    for algorithm in ["ring", "doubletree", "hierarchical"] {
        group.bench_function(algorithm, |bencher| {
            bencher.iter(|| schedule(algorithm, 100_000, black_box(77_777)).expect("a schedule"));
        });
    }
    group.finish();
}

criterion_group!(benches, calls, many_ranks);
criterion_main!(benches);
