//! Helping threads: the same bits whatever their number, in every call, and no thread of an idle communicator runs.

mod common;

use ccl::{Communicator, Config, Op, PreMulSum};
use common::{config, with_ranks};
use std::{fs, sync::Mutex, thread};

/// Elements of a block: calls over the length from which there are helpers, whose tiles are not all long, nor their parts even.
const COUNT: usize = 2_100_003;

/// One test at a time, as they look at all threads of the process.
static ALONE: Mutex<()> = Mutex::new(());

fn with_threads(threads: usize) -> Config {
    let mut config = config();
    config.threads = Some(threads);
    config
}

/// Numbers of no pattern, whose sums are rounded.
fn floats(rank: usize, count: usize) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(rank as u64);
    (0..count).map(|_| random.f32() - 0.5).collect()
}

/// The bits of what each call gives this rank.
fn every_call(comm: &Communicator) -> Vec<Vec<u32>> {
    let (rank, n) = (comm.rank(), comm.ranks());
    let (own, all) = (floats(rank, COUNT), floats(rank, n * COUNT));
    let (mut given, mut given_all) = (vec![0.0; COUNT], vec![0.0; n * COUNT]);
    let mut bits = Vec::new();
    let mut keep = |floats: &[f32]| bits.push(floats.iter().map(|x| x.to_bits()).collect::<Vec<u32>>());
    for op in [Op::Sum, Op::Max, Op::Avg] {
        comm.all_reduce(&own, &mut given, op).unwrap();
        keep(&given);
        comm.reduce_scatter(&all, &mut given, op).unwrap();
        keep(&given);
    }
    let scaled = PreMulSum(0.1f32);
    comm.all_reduce(&own, &mut given, scaled).unwrap();
    keep(&given);
    let mut data = all.clone();
    comm.all_reduce_in_place(&mut data, Op::Sum).unwrap();
    keep(&data);
    comm.all_gather(&own, &mut given_all).unwrap();
    keep(&given_all);
    comm.all_to_all(&all, &mut given_all).unwrap();
    keep(&given_all);
    let (root, is_root) = (n - 1, rank == n - 1);
    comm.broadcast(is_root.then_some(&own[..]), &mut given, root)
        .unwrap();
    keep(&given);
    comm.reduce(&own, is_root.then_some(&mut given[..]), Op::Sum, root)
        .unwrap();
    keep(&given);
    comm.gather(&own, is_root.then_some(&mut given_all[..]), root)
        .unwrap();
    keep(&given_all);
    comm.scatter(is_root.then_some(&all[..]), &mut given, root)
        .unwrap();
    keep(&given);
    // The copies of 16- and 8-bit floats and of bytes are cut at the same places as all others.
    let halves: Vec<half::f16> = (own.iter())
        .map(|&x| half::f16::from_f32(x))
        .cycle()
        .take(2 * COUNT + 1)
        .collect();
    let mut given = vec![half::f16::ZERO; halves.len()];
    comm.all_reduce(&halves, &mut given, Op::Sum).unwrap();
    bits.push(given.iter().map(|x| x.to_bits().into()).collect());
    let small: Vec<ccl::F8E4M3> = (all.iter())
        .map(|&x| ccl::F8E4M3::from_f32(x))
        .cycle()
        .take(4 * COUNT + 3)
        .collect();
    let mut given = vec![ccl::F8E4M3(0); small.len()];
    comm.all_reduce(&small, &mut given, Op::Sum).unwrap();
    bits.push(given.iter().map(|x| x.0.into()).collect());
    bits
}

fn names() -> Vec<String> {
    states().into_iter().map(|(name, _)| name).collect()
}

/// The library's threads, and the state of each.
fn states() -> Vec<(String, char)> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let stat = |task: fs::DirEntry| fs::read_to_string(task.path().join("stat")).ok();
    let state = |stat: String| {
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
        Some((name.to_owned(), rest.chars().next()?))
    };
    let all = tasks.filter_map(|task| state(stat(task.ok()?)?));
    all.filter(|(name, _)| name.starts_with("ccl-")).collect()
}

#[test]
fn the_bits_are_the_same_with_any_number_of_threads() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    for (ranks, all_threads) in [(1, 2..5), (2, 3..4), (3, 4..5)] {
        let alone = with_ranks(ranks, &with_threads(1), |comm| (every_call(comm), names()));
        for (rank, (_, names)) in alone.iter().enumerate() {
            assert!(
                !names.iter().any(|name| name == "ccl-helper"),
                "rank {rank}: {names:?}"
            );
        }
        for threads in all_threads {
            let together = with_ranks(ranks, &with_threads(threads), |comm| (every_call(comm), names()));
            for (rank, ((bits, names), (wanted, _))) in together.iter().zip(&alone).enumerate() {
                let differs = bits.iter().zip(wanted).position(|(bits, wanted)| bits != wanted);
                assert_eq!(
                    (differs, bits.len()),
                    (None, wanted.len()),
                    "threads {threads}, rank {rank} of {ranks}"
                );
                assert!(names.iter().any(|name| name == "ccl-helper"), "{names:?}");
            }
        }
    }
}

#[test]
fn results_are_reproducible_with_threads() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let sums = [1, 3].map(|threads| {
        let mut config = with_threads(threads);
        config.reproducible = true;
        with_ranks(5, &config, |comm| {
            let (own, mut sum) = (floats(comm.rank(), COUNT), vec![0.0; COUNT]);
            comm.all_reduce(&own, &mut sum, Op::Sum).unwrap();
            sum.iter().map(|x| x.to_bits()).collect::<Vec<u32>>()
        })
    });
    assert!(sums[0] == sums[1]);
}

#[test]
fn no_thread_of_an_idle_communicator_runs() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    with_ranks(1, &with_threads(3), |comm| {
        let (own, mut sum) = (floats(0, COUNT), vec![0.0; COUNT]);
        comm.scope(|scope| scope.all_reduce(&own, &mut sum, Op::Sum))
            .unwrap();
        let whole = comm.duplicate(None).unwrap();
        whole.all_reduce(&own, &mut sum, Op::Sum).unwrap();
        for name in ["ccl-control", "ccl-progress", "ccl-helper"] {
            assert!(names().iter().any(|there| there == name), "{name}: {:?}", names());
        }
        // The duplicate has its parent's.
        assert_eq!(names().iter().filter(|name| *name == "ccl-helper").count(), 2);
        // They may be awake for a moment; from then on each look finds them asleep.
        let mut asleep = 0;
        for look in 0.. {
            assert!(look < 10_000_000, "{:?}", states());
            let is_idle = states().iter().all(|&(_, state)| state == 'S');
            asleep = if is_idle { asleep + 1 } else { 0 };
            if asleep == 1000 {
                break;
            }
            thread::yield_now();
        }
    });
}
