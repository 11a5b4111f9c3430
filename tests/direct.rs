//! Long messages that are read where they lie: in `SharedMemory` between processes, in any memory between threads. The same
//! results wherever the buffers lie on each rank, whatever comes and goes between calls, and whoever is lost meanwhile.

mod common;

use ccl::{Communicator, Element, Op, SharedMemory, UniqueId};
use common::{
    config,
    memory::Memory,
    process::{Rank, is_lost_when_killed, role, say},
    with_algorithm, with_ranks,
};
use std::{
    fs,
    ops::Range,
    thread,
    time::{Duration, Instant},
};

/// A buffer of `len` elements of either kind that hold anything.
fn any(random: &mut fastrand::Rng, len: usize) -> Memory<u32> {
    Memory::of(random.bool(), &vec![random.u32(..); len])
}

/// One of either kind that holds `data`.
fn with(random: &mut fastrand::Rng, data: &[u32]) -> Memory<u32> {
    Memory::of(random.bool(), data)
}

/// Element `at` of `rank`'s vector in call `turn`.
fn element(turn: usize, rank: usize, at: usize) -> u32 {
    ((at + turn) as u32)
        .wrapping_mul(0x9e37_79b9)
        .rotate_left(rank as u32)
        ^ rank as u32
}

fn part(turn: usize, rank: usize, range: Range<usize>) -> Vec<u32> {
    range.map(|at| element(turn, rank, at)).collect()
}

fn same<T: Element + PartialEq>(is: &[T], wanted: &[T], what: &str) {
    let at = is.iter().zip(wanted).position(|(is, wanted)| is != wanted);
    assert!(at.is_none() && is.len() == wanted.len(), "{what}: element {at:?}");
}

/// Elements of a block: about the shortest messages that are read where they lie, and several tiles, none of them even.
const COUNTS: [usize; 6] = [1_023, 1_024, 4_097, 8_192, 16_390, 70_001];

/// Makes `turns` calls as all ranks draw them, each with buffers that lie where this rank draws.
fn calls(comm: &Communicator, seed: u64, turns: usize) {
    let (rank, n) = (comm.rank(), comm.ranks());
    let (mut shared, mut own) = (
        fastrand::Rng::with_seed(seed),
        fastrand::Rng::with_seed(seed ^ (rank as u64 + 1) << 32),
    );
    // What is kept from call to call, beside what comes and goes.
    let mut kept: Vec<Memory<u32>> = Vec::new();
    for turn in 0..turns {
        let count = *shared.choice(&COUNTS).unwrap();
        let (root, in_place, call) = (shared.usize(..n), shared.bool(), shared.u8(..9));
        let block = |rank: usize| rank * count..(rank + 1) * count;
        let data = |rank: usize, range: Range<usize>| part(turn, rank, range);
        let what =
            format!("call {call} of {count}, turn {turn}, rank {rank} of {n}, seed {seed}, {in_place}");
        let all: Vec<u32> = (0..n).flat_map(|rank| data(rank, block(rank))).collect();
        let sum = |range: Range<usize>| -> Vec<u32> {
            range
                .map(|at| (0..n).fold(0u32, |sum, rank| sum.wrapping_add(element(turn, rank, at))))
                .collect()
        };
        let is_root = rank == root;
        let mut recv = match kept.iter().position(|memory| memory.len() == n * count) {
            Some(at) => kept.swap_remove(at),
            None => any(&mut own, n * count),
        };
        match (call, in_place) {
            (0, false) => {
                let send = with(&mut own, &data(rank, 0..n * count));
                comm.all_reduce(&send, &mut recv, Op::Sum).unwrap();
                same(&recv, &sum(0..n * count), &what);
            }
            (0, true) => {
                recv.copy_from_slice(&data(rank, 0..n * count));
                comm.all_reduce_in_place(&mut recv, Op::Sum).unwrap();
                same(&recv, &sum(0..n * count), &what);
            }
            (1, false) => {
                let send = with(&mut own, &data(rank, 0..n * count));
                comm.reduce(&send, is_root.then_some(&mut recv[..]), Op::Sum, root)
                    .unwrap();
                if is_root {
                    same(&recv, &sum(0..n * count), &what);
                }
            }
            (1, true) => {
                recv.copy_from_slice(&data(rank, 0..n * count));
                comm.reduce_in_place(&mut recv, Op::Sum, root).unwrap();
                let wanted = if is_root {
                    sum(0..n * count)
                } else {
                    data(rank, 0..n * count)
                };
                same(&recv, &wanted, &what);
            }
            (2, false) => {
                let send = with(&mut own, &data(rank, 0..n * count));
                let mut recv = any(&mut own, count);
                comm.reduce_scatter(&send, &mut recv, Op::Sum).unwrap();
                same(&recv, &sum(block(rank)), &what);
            }
            (2, true) => {
                recv.copy_from_slice(&data(rank, 0..n * count));
                comm.reduce_scatter_in_place(&mut recv, Op::Sum).unwrap();
                same(&recv[block(rank)], &sum(block(rank)), &what);
            }
            (3, false) => {
                let send = with(&mut own, &data(rank, block(rank)));
                comm.all_gather(&send, &mut recv).unwrap();
                same(&recv, &all, &what);
            }
            (3, true) => {
                recv[block(rank)].copy_from_slice(&data(rank, block(rank)));
                comm.all_gather_in_place(&mut recv).unwrap();
                same(&recv, &all, &what);
            }
            (4, _) => {
                let send = with(&mut own, &data(rank, 0..n * count));
                let wanted: Vec<u32> = (0..n).flat_map(|from| data(from, block(rank))).collect();
                if in_place {
                    recv.copy_from_slice(&send);
                    comm.all_to_all_in_place(&mut recv).unwrap();
                } else {
                    comm.all_to_all(&send, &mut recv).unwrap();
                }
                same(&recv, &wanted, &what);
            }
            (5, _) => {
                let wanted = data(root, 0..n * count);
                if in_place {
                    if is_root {
                        recv.copy_from_slice(&wanted);
                    }
                    comm.broadcast_in_place(&mut recv, root).unwrap();
                } else {
                    let send = with(&mut own, &wanted);
                    comm.broadcast(is_root.then_some(&send[..]), &mut recv, root)
                        .unwrap();
                }
                same(&recv, &wanted, &what);
            }
            (6, _) => {
                let send = with(&mut own, &data(rank, block(rank)));
                comm.gather(&send, is_root.then_some(&mut recv[..]), root)
                    .unwrap();
                if is_root {
                    same(&recv, &all, &what);
                }
            }
            (7, _) => {
                let send = with(&mut own, &data(root, 0..n * count));
                let mut recv = any(&mut own, count);
                comm.scatter(is_root.then_some(&send[..]), &mut recv, root)
                    .unwrap();
                same(&recv, &send[block(rank)], &what);
            }
            _ => {
                // Side by side: messages to the next rank, and calls.
                let send = with(&mut own, &data(rank, 0..n * count));
                let mut gathered = any(&mut own, n * n * count);
                let mut theirs = any(&mut own, n * count);
                let (next, before) = ((rank + 1) % n, (rank + n - 1) % n);
                let (from, sums) = (&send[..], &mut recv[..]);
                let (received, blocks) = (&mut theirs[..], &mut gathered[..]);
                comm.scope(|scope| {
                    scope.send(from, next)?;
                    scope.all_reduce(from, sums, Op::Sum)?;
                    scope.recv(received, before)?;
                    scope.all_gather(from, blocks)
                })
                .unwrap();
                same(&theirs, &data(before, 0..n * count), &what);
                same(&recv, &sum(0..n * count), &what);
                let everyones: Vec<u32> = (0..n).flat_map(|rank| data(rank, 0..n * count)).collect();
                same(&gathered, &everyones, &what);
            }
        }
        if own.u8(..4) > 0 {
            kept.push(recv);
        }
        kept.truncate(own.usize(1..6));
    }
}

#[test]
fn threads_get_what_was_sent() {
    for n in 2..=4 {
        with_ranks(n, &config(), |comm| calls(comm, 40 + n as u64, 150));
    }
    for (k, algorithm) in ["ring", "tree", "bruck", "doubling", "chain"].iter().enumerate() {
        with_ranks(3, &with_algorithm(algorithm), |comm| calls(comm, k as u64, 40));
    }
}

/// Not a test by itself: what the processes do that the tests below start.
#[test]
fn roles() {
    let Some((role, id, ranks, rank)) = role() else {
        return;
    };
    let joined = Communicator::init(ranks, &id, rank, &config());
    let comm = match joined {
        Ok(comm) => comm,
        Err(error) => return say(error),
    };
    match &role[..] {
        "calls" => {
            calls(&comm, 7, 150);
            say("done");
        }
        "leaks" => {
            calls(&comm, 8, 200);
            let child = comm.split(Some(0), rank as i32, None).unwrap();
            calls(&child.unwrap(), 9, 20);
            comm.barrier().unwrap();
            let count = || {
                let maps = fs::read_to_string("/proc/self/maps").unwrap();
                let fds = fs::read_dir("/proc/self/fd").unwrap().flatten();
                let links = fds.filter_map(|fd| fs::read_link(fd.path()).ok());
                let ours = links.filter(|link| link.to_string_lossy().contains("ccl-memory"));
                (maps.matches("ccl-memory").count(), ours.count())
            };
            let during = count();
            drop(comm);
            // What a peer handed over last may still be with the control thread, which lets go of it in its own time.
            let began = Instant::now();
            while count() != (0, 0) && began.elapsed() < Duration::from_secs(20) {
                thread::sleep(Duration::from_millis(1));
            }
            say(format!(
                "{} {:?}",
                during.0 < 64 * ranks && during.1 <= 8 * ranks,
                count()
            ));
        }
        _ => {
            let mut data = SharedMemory::<u64>::new(3 << 20).unwrap();
            comm.register(&data).unwrap();
            let mut call = || comm.all_reduce_in_place(&mut data, Op::Max);
            (0..3).for_each(|_| call().unwrap());
            say("begun");
            let error = (0..).find_map(|_| call().err());
            // The memory is its own again.
            data.fill(1);
            drop(data);
            say(error.unwrap());
        }
    }
}

#[test]
fn processes_get_what_was_sent_whichever_way_it_comes() {
    for (cma, direct) in [("auto", "auto"), ("off", "on"), ("off", "off")] {
        let folder = env!("CARGO_TARGET_TMPDIR");
        let file = format!("{folder}/direct-%p.log");
        let log = [("CCL_DEBUG", "debug"), ("CCL_DEBUG_FILE", &file)];
        let settings = [("CCL_CMA", cma), ("CCL_DIRECT", direct), log[0], log[1]];
        for mut rank in Rank::start_all(3, &settings, "calls") {
            assert_eq!(rank.said(), "done", "CCL_CMA={cma} CCL_DIRECT={direct}");
            rank.child.wait().unwrap();
            let file = file.replace("%p", &rank.child.id().to_string());
            let told = fs::read_to_string(&file).unwrap();
            fs::remove_file(&file).unwrap();
            let is_direct = told.contains("is read where it lies");
            assert_eq!(is_direct, direct != "off", "CCL_CMA={cma} CCL_DIRECT={direct}");
        }
    }
}

#[test]
fn nothing_stays_of_memory_that_came_and_went() {
    for mut rank in Rank::start_all(2, &[], "leaks") {
        assert_eq!(rank.said(), "true (0, 0)");
    }
}

#[test]
fn a_rank_that_is_killed_while_its_memory_is_read_is_lost() {
    is_lost_when_killed("reduce");
}

/// A rank gives up in the middle of a call, and writes over its memory and gives it back at once, while others may read it.
#[test]
fn a_thread_that_gives_up_has_its_memory_back() {
    for seed in 0..60 {
        with_ranks(3, &config(), |comm| {
            let mut random = fastrand::Rng::with_seed(seed);
            let (calls, spins) = (random.usize(1..4), random.u32(..200_000));
            let mut data = vec![1u64; 300_000];
            thread::scope(|scope| {
                let failed = (0..).find_map(|call| {
                    // The others may still be in the call before.
                    if comm.rank() == 1 && call == calls {
                        scope.spawn(|| {
                            (0..spins).for_each(|_| std::hint::spin_loop());
                            comm.abort();
                        });
                    }
                    let outcome = comm.all_reduce_in_place(&mut data, Op::Min);
                    assert!(outcome.is_err() || data.iter().all(|&x| x == 1), "seed {seed}");
                    outcome.err()
                });
                data.fill(0);
                drop(std::mem::take(&mut data));
                assert!(failed.unwrap().to_string().contains("rank 1"), "seed {seed}");
            });
        });
    }
}

#[test]
fn any_memory_may_be_registered() {
    with_ranks(2, &config(), |comm| {
        let (shared, own) = (SharedMemory::<f32>::new(100_000).unwrap(), vec![0f32; 100]);
        for data in [&shared[..], &shared[7..9], &own[..], &[]] {
            comm.register(data).unwrap();
        }
        comm.barrier().unwrap();
        comm.register(&shared).unwrap();
        comm.abort();
        assert!(comm.barrier().is_err());
        assert!(comm.register(&shared).is_err());
    });
}

#[test]
fn a_setting_that_does_not_exist_is_refused() {
    let settings = [("CCL_DIRECT", "maybe")];
    let said = Rank::start(&UniqueId::new().unwrap(), 1, 0, &settings, "calls").said();
    assert_eq!(
        said,
        "CCL_DIRECT=\"maybe\" does not exist: use \"auto\", \"on\" or \"off\""
    );
}
