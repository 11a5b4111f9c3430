//! The Rust API over shared memory, ranks as threads: results, refusals, and failures that name ranks.

mod common;

use ccl::{Cause, Collective, Communicator, Config, DType, Element, Error, Op, Why, algorithms};
use common::{config, every_reduction, said, with_algorithm, with_ranks};
use std::{
    sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

fn shared_memory() -> Config {
    let mut config = config();
    config.transport = Some("shm".to_owned());
    config
}

/// Lengths around every boundary that there is: none, fewer than ranks, inline and slot messages, tiles.
const LENGTHS: &[usize] = &[0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 1000, 4096, 16_384, 100_003];

#[test]
fn all_reduce_sums_for_every_algorithm_and_number_of_ranks() {
    for (name, _) in algorithms(Collective::AllReduce) {
        for n in [1, 2, 3, 4, 7, 8] {
            let config = with_algorithm(name);
            with_ranks(n, &config, |comm| {
                for &len in LENGTHS {
                    // Rank r contributes bit r: a lost or doubled rank changes the sum visibly.
                    let value = |i: usize| (1u64 << comm.rank()) + ((i as u64) << 16);
                    let want = |i: usize| (1u64 << n) - 1 + ((n * i) as u64) * (1 << 16);
                    let send: Vec<u64> = (0..len).map(value).collect();
                    let mut recv = vec![u64::MAX; len];
                    comm.all_reduce(&send, &mut recv, Op::Sum).unwrap();
                    assert!((0..len).all(|i| recv[i] == want(i)), "{name} n={n} len={len}");
                    assert!((0..len).all(|i| send[i] == value(i)), "the input is left alone");
                    recv.copy_from_slice(&send);
                    comm.all_reduce_in_place(&mut recv, Op::Sum).unwrap();
                    assert!(
                        (0..len).all(|i| recv[i] == want(i)),
                        "{name} in place n={n} len={len}"
                    );
                }
            });
        }
    }
}

#[test]
fn broadcast_copies_from_every_root() {
    let names = algorithms(Collective::Broadcast { root: 0 }).map(|(name, _)| name);
    for (name, n) in names.flat_map(|name| [1, 2, 5].map(|n| (name, n))) {
        with_ranks(n, &with_algorithm(name), |comm| {
            for root in 0..n {
                for &len in LENGTHS {
                    let data: Vec<u32> = (0..len).map(|i| (i * n + root) as u32).collect();
                    let send = (comm.rank() == root).then_some(&data[..]);
                    let mut recv = vec![0; len];
                    comm.broadcast(send, &mut recv, root).unwrap();
                    assert_eq!(recv, data, "{name} n={n} root={root} len={len}");
                    if comm.rank() != root {
                        recv.fill(9);
                    }
                    comm.broadcast_in_place(&mut recv, root).unwrap();
                    assert_eq!(recv, data, "{name} in place n={n} root={root} len={len}");
                }
            }
        });
    }
}

/// All-reduces `values` of rank r for each op and compares with `want`.
fn check_type<T: Element + PartialEq + std::fmt::Debug>(
    comm: &Communicator,
    values: [T; 3],
    want: &[(Op, T)],
) {
    for &(op, want) in want {
        let mut data = vec![values[comm.rank()]; 100];
        comm.all_reduce_in_place(&mut data, op).unwrap();
        assert_eq!(data, [want; 100], "{} {op}", T::DTYPE);
    }
}

#[test]
fn every_type_reduces_with_every_operation() {
    for (name, _) in algorithms(Collective::AllReduce) {
        with_ranks(3, &with_algorithm(name), |comm| {
            every_reduction!(check_type, comm);
        });
    }
}

#[test]
fn wrong_arguments_are_refused_and_the_communicator_goes_on() {
    with_ranks(2, &config(), |comm| {
        let (send, mut recv) = ([1.0f32; 3], [0.0f32; 4]);
        assert_eq!(
            said(comm.all_reduce(&send, &mut recv, Op::Sum)),
            "the send buffer has 3 elements and the receive buffer 4: they must have the same number"
        );
        assert_eq!(
            said(comm.all_reduce_in_place(&mut recv, Op::BitXor)),
            "bitxor is for integers only: float32 elements cannot be combined by it"
        );
        assert_eq!(
            said(comm.broadcast_in_place(&mut recv, 2)),
            "root 2 is outside the communicator: its ranks are 0 to 1"
        );
        if comm.rank() == 0 {
            assert_eq!(
                said(comm.broadcast(None, &mut recv, 0)),
                "the root of a broadcast needs a send buffer of 4 elements of float32"
            );
        }
        comm.all_reduce_in_place(&mut recv, Op::Sum).unwrap();
    });
}

#[test]
fn different_calls_fail_on_all_ranks_with_both_named() {
    let errors = with_ranks(3, &config(), |comm| {
        let mut data = [comm.rank() as i32; 50];
        comm.all_reduce_in_place(&mut data, Op::Sum).unwrap();
        let started = Instant::now();
        let result = match comm.rank() {
            1 => comm.broadcast_in_place(&mut data, 1),
            _ => comm.all_reduce_in_place(&mut data, Op::Max),
        };
        // A rank whose part was over before the others noticed hears of it at its next call.
        let error = result
            .and_then(|()| comm.all_reduce_in_place(&mut data, Op::Max))
            .unwrap_err();
        assert!(started.elapsed() < Duration::from_secs(10));
        let again = comm.all_reduce_in_place(&mut data, Op::Max).unwrap_err();
        assert!(matches!(again, Error::Closed(_)), "{again:?}");
        error.to_string()
    });
    assert!(errors.iter().all(|error| error == &errors[0]), "{errors:?}");
    assert!(
        errors[0].contains("rank 1 made call #1 broadcast(50 x int32, root 1)"),
        "{errors:?}"
    );
    assert!(
        errors[0].contains("made call #1 allreduce(50 x int32, max)"),
        "{errors:?}"
    );
}

#[test]
fn different_counts_are_named() {
    let errors = with_ranks(2, &config(), |comm| {
        let mut data = vec![1u8; 1000 + comm.rank()];
        comm.all_reduce_in_place(&mut data, Op::Sum)
            .unwrap_err()
            .to_string()
    });
    assert_eq!(errors[0], errors[1]);
    assert!(
        errors[0].contains("1000 x uint8") && errors[0].contains("1001 x uint8"),
        "{errors:?}"
    );
}

#[test]
fn two_roots_are_a_mismatch_and_no_hang() {
    let errors = with_ranks(2, &config(), |comm| {
        let mut data = [comm.rank(), 0].map(|word| word as u64);
        // Both only send: it shows when there is no more room for what nobody takes.
        let mut calls = (0..100).map(|_| comm.broadcast_in_place(&mut data, comm.rank()));
        calls.find_map(Result::err).unwrap().to_string()
    });
    assert_eq!(errors[0], errors[1]);
    assert!(
        errors[0].contains("root 0") && errors[0].contains("root 1"),
        "{errors:?}"
    );
}

#[test]
fn no_rank_leaves_a_barrier_before_all_have_come() {
    for (name, _) in algorithms(Collective::Barrier) {
        for n in [1, 2, 3, 4, 7] {
            let arrived = AtomicUsize::new(0);
            with_ranks(n, &with_algorithm(name), |comm| {
                for round in 0..100 {
                    if round % n == comm.rank() {
                        std::thread::sleep(Duration::from_micros(100));
                    }
                    arrived.fetch_add(1, Ordering::Relaxed);
                    comm.barrier().unwrap();
                    let seen = arrived.load(Ordering::Relaxed);
                    // The others may be in the next round already, but not beyond it.
                    assert!(
                        ((round + 1) * n..(round + 2) * n).contains(&seen),
                        "{name} n={n} {seen}"
                    );
                }
            });
        }
    }
}

#[test]
fn a_barrier_and_another_call_differ() {
    let errors = with_ranks(3, &config(), |comm| {
        let result = match comm.rank() {
            1 => comm.all_reduce_in_place(&mut [7u8], Op::Sum),
            _ => comm.barrier(),
        };
        // Also where a rank's part was over before the others noticed.
        result.and_then(|()| comm.barrier()).unwrap_err().to_string()
    });
    for error in &errors {
        assert!(
            error.contains("call #0 barrier()") && error.contains("call #0 allreduce(1 x uint8, sum)"),
            "{errors:?}"
        );
    }
}

#[test]
fn a_barrier_without_one_rank_ends_at_the_deadline() {
    let mut config = config();
    config.timeout = Some(Duration::from_millis(300));
    let over = Barrier::new(3);
    let errors = with_ranks(3, &config, |comm| {
        let error = (comm.rank() != 1).then(|| comm.barrier().unwrap_err());
        over.wait();
        error
    });
    for error in errors.iter().flatten() {
        let Error::Failed(Cause::Late { ranks, .. }) = error else {
            panic!("{error:?}")
        };
        assert_eq!(ranks, &[1], "{error:?}");
    }
}

#[test]
fn calls_that_differ_where_nobody_sends_are_found() {
    let started = Instant::now();
    // Each takes the next rank for the root, so that all only receive.
    for ranks in [2, 3] {
        let errors = with_ranks(ranks, &config(), |comm| {
            let root = (comm.rank() + 1) % ranks;
            comm.broadcast_in_place(&mut [0u16; 9], root)
                .unwrap_err()
                .to_string()
        });
        assert!(
            errors
                .iter()
                .all(|error| error.contains("the ranks' calls differ")),
            "{errors:?}"
        );
    }
    assert!(
        started.elapsed() < Duration::from_secs(30),
        "long before the deadline"
    );
}

/// One rank is with a message from another that has gone on to a longer call than all the rest: these have that rank's part of the
/// call before them, but wait for the first one.
#[test]
fn calls_that_differ_are_found_where_another_rank_is_waited_for() {
    for ranks in [4, 8] {
        for (first, other) in [(0, ranks - 1), (ranks - 1, 0), (1, 2), (2, 1)] {
            let errors = with_ranks(ranks, &config(), |comm| {
                let result = match comm.rank() {
                    rank if rank == first => comm.recv(&mut [0i32; 9], other),
                    rank if rank == other => comm.all_reduce_in_place(&mut [1i32; 101], Op::Max),
                    _ => comm.all_reduce_in_place(&mut [1i32], Op::Max),
                };
                result.unwrap_err().to_string()
            });
            let called = |what: &str| errors.iter().all(|error| error.contains(what));
            let theirs = format!("rank {other} made call #0 allreduce(101 x int32, max)");
            assert!(
                called(&theirs) && called("made call #0 allreduce(1 x int32, max)"),
                "{errors:?}"
            );
        }
    }
}

#[test]
fn ranks_that_wait_for_the_silent_one_are_not_blamed() {
    // In a ring only one rank waits for the silent one; the others wait for those that wait.
    let mut config = with_algorithm("ring");
    config.timeout = Some(Duration::from_millis(300));
    for silent in [0, 2, 4] {
        let over = Barrier::new(5);
        let errors = with_ranks(5, &config, |comm| {
            let mut data = [1.0f64; 10];
            let error =
                (comm.rank() != silent).then(|| comm.all_reduce_in_place(&mut data, Op::Sum).unwrap_err());
            over.wait();
            error
        });
        for error in errors.iter().flatten() {
            let Error::Failed(Cause::Late { ranks, .. }) = error else {
                panic!("{error:?}")
            };
            assert_eq!(ranks, &[silent as u32], "{error:?}");
        }
    }
}

#[test]
fn a_silent_rank_is_named_past_the_deadline() {
    let mut config = config();
    config.timeout = Some(Duration::from_millis(300));
    let over = Barrier::new(3);
    let errors = with_ranks(3, &config, |comm| {
        let mut data = [1.0f64; 10];
        comm.barrier().unwrap();
        let error = (comm.rank() != 2).then(|| comm.all_reduce_in_place(&mut data, Op::Sum).unwrap_err());
        over.wait();
        error
    });
    for error in &errors[..2] {
        let Some(Error::Failed(cause @ Cause::Late { ranks, .. })) = error else {
            panic!("{error:?}")
        };
        assert_eq!(ranks, &[2], "{error:?}");
        let text = cause.to_string();
        let says = "; the last call of rank 2 is call #0 barrier(), and what is waited for it has not done";
        assert!(text.contains(says), "{text}");
    }
}

#[test]
fn a_rank_that_left_is_named() {
    let errors = with_ranks(2, &config(), |comm| {
        if comm.rank() == 1 {
            return None;
        }
        Some(comm.all_reduce_in_place(&mut [1i64; 5], Op::Sum).unwrap_err())
    });
    assert!(
        matches!(
            errors[0],
            Some(Error::Failed(Cause::Left {
                rank: 1,
                seen_by: 0,
                ..
            }))
        ),
        "{errors:?}"
    );
}

/// It had nothing to wait for in its call, and left without comparing.
#[test]
fn a_rank_that_left_after_another_call_is_a_mismatch() {
    with_ranks(2, &config(), |comm| {
        comm.barrier().unwrap();
        if comm.rank() == 0 {
            return comm.all_reduce_in_place::<u32>(&mut [], Op::Sum).unwrap();
        }
        let error = comm.all_reduce_in_place(&mut [1u32; 5], Op::Sum).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Failed(Cause::Mismatch { .. })), "{text}");
        assert!(
            text.contains("rank 0") && text.contains("allreduce(0 x"),
            "{text}"
        );
    });
}

#[test]
fn abort_ends_a_running_call() {
    let ready = Barrier::new(2);
    with_ranks(2, &config(), |comm| {
        if comm.rank() == 1 {
            ready.wait();
            comm.abort();
            assert_eq!(comm.failure(), Some(Cause::Aborted { rank: 1 }));
            return;
        }
        std::thread::scope(|scope| {
            let call = scope.spawn(|| comm.all_reduce_in_place(&mut [1i64; 5], Op::Sum));
            ready.wait();
            let error = call.join().unwrap().unwrap_err();
            assert!(
                matches!(error, Error::Failed(Cause::Aborted { rank: 1 })),
                "{error:?}"
            );
        });
    });
}

#[test]
fn communicators_are_independent_and_calls_from_threads_are_served() {
    with_ranks(2, &config(), |first| {
        let mut data = [1u32; 8];
        first.all_reduce_in_place(&mut data, Op::Sum).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let mut data = [1u16; 300];
                        first.all_reduce_in_place(&mut data, Op::Sum).unwrap();
                        assert_eq!(data, [2; 300]);
                    }
                });
            }
        });
    });
}

#[test]
fn the_same_inputs_give_the_same_bits_on_all_ranks_and_again() {
    for (name, _) in algorithms(Collective::AllReduce) {
        let bits = with_ranks(5, &with_algorithm(name), |comm| {
            let input = |i: usize| ((i * 7919 + comm.rank() * 104_729) % 1_000_003) as f32 * 1e-3;
            let send: Vec<f32> = (0..50_001).map(input).collect();
            let mut results = (0..2).map(|_| {
                let mut recv = vec![0.0; send.len()];
                comm.all_reduce(&send, &mut recv, Op::Sum).unwrap();
                recv.into_iter().map(f32::to_bits).collect::<Vec<_>>()
            });
            let first = results.next().unwrap();
            assert_eq!(results.next().unwrap(), first, "{name}: the same again");
            first
        });
        assert!(
            bits.iter().all(|b| *b == bits[0]),
            "{name}: the same on all ranks"
        );
    }
}

#[test]
fn settings_are_compared_at_init() {
    let id = ccl::UniqueId::new().unwrap();
    let errors = std::thread::scope(|scope| {
        let join = |rank: usize, name: &'static str| {
            let id = &id;
            scope.spawn(move || {
                Communicator::init(2, id, rank, &with_algorithm(name))
                    .unwrap_err()
                    .to_string()
            })
        };
        let ranks = [join(0, "ring"), join(1, "direct")];
        ranks.map(|rank| rank.join().unwrap())
    });
    for error in errors {
        assert!(
            error.contains("ring") && error.contains("direct") && error.contains("algorithm"),
            "{error}"
        );
    }
}

#[test]
fn links_are_made_on_first_use() {
    with_ranks(4, &shared_memory(), |comm| {
        let before = comm.link_memory().unwrap();
        let mut data = [1u8; 4];
        comm.broadcast_in_place(&mut data, 0).unwrap();
        let after = comm.link_memory().unwrap();
        assert!(before < 1 << 16 && after > before, "{before} {after}");
        comm.broadcast_in_place(&mut data, 0).unwrap();
        assert_eq!(
            comm.link_memory().unwrap(),
            after,
            "the second time takes nothing more"
        );
    });
}

#[test]
fn the_choice_can_be_asked_for() {
    with_ranks(2, &shared_memory(), |comm| {
        for (collective, count, name) in [
            (Collective::AllReduce, 10, "doubling"),
            // Threads read each other's messages: an exchange in one round then, where processes take two for half as many bytes.
            (Collective::AllReduce, 10_000_000, "doubling"),
            (Collective::Broadcast { root: 1 }, 10, "direct"),
            (Collective::Barrier, 0, "doubling"),
        ] {
            assert_eq!(
                comm.algorithm_for(collective, count, DType::Float32).unwrap(),
                name
            );
            let said = comm.explain(collective, count, DType::Float32).unwrap();
            let chosen = said.candidates[said.chosen];
            assert_eq!((chosen.algorithm, said.why), (name, Why::Least));
            assert!(
                said.candidates
                    .iter()
                    .all(|other| other.predicted.mul_f64(1.11) >= chosen.predicted)
            );
            // A hierarchy is a candidate only where there are hosts.
            let fit = algorithms(collective).filter(|(name, _)| !name.starts_with("hierarchical"));
            assert_eq!(said.candidates.len(), fit.count());
            assert!(said.to_string().contains(name), "{said}");
        }
        assert_eq!((comm.ranks(), comm.transport()), (2, "shm"));
    });
    with_ranks(2, &with_algorithm("ring"), |comm| {
        let said = comm.explain(Collective::AllReduce, 10, DType::Float32).unwrap();
        assert_eq!(
            (said.candidates[said.chosen].algorithm, said.why),
            ("ring", Why::Forced)
        );
        let said = comm.explain(Collective::Barrier, 0, DType::Uint8).unwrap();
        assert_eq!(said.why, Why::Least, "what is forced does not fit");
    });
}

#[test]
fn a_last_call_that_a_rank_leaves_out_is_found_when_all_finalize() {
    for (n, waits) in [2, 3]
        .into_iter()
        .flat_map(|n| [false, true].map(|waits| (n, waits)))
    {
        let (told, made) = (AtomicUsize::new(0), Barrier::new(n));
        with_ranks(n, &config(), |comm| {
            let is_last = comm.rank() == n - 1;
            comm.barrier().unwrap();
            let before = [(); 2].map(|()| comm.broadcast_in_place(&mut [1u32], 0));
            assert!(before.iter().all(Result::is_ok));
            // It leaves before the others make the call, as a rule, or after they have begun to finalize.
            let last = || {
                std::thread::sleep(Duration::from_millis(if waits { 0 } else { 50 }));
                comm.broadcast_in_place(&mut [1u32], 0)
            };
            let called = match is_last {
                true => Ok(()),
                false => last(),
            };
            if waits {
                called.as_ref().unwrap();
                made.wait();
            }
            // It may be told in the call, where another rank has made it before.
            if let Err(error) = called.and_then(|()| comm.finalize()) {
                let text = error.to_string();
                assert!(text.contains("call #3 broadcast(1 x uint32, root 0)"), "{text}");
                assert!(text.contains(&format!("rank {} made call #2 ", n - 1)), "{text}");
                told.fetch_add(1, Ordering::Relaxed);
            }
        });
        assert!(told.into_inner() > 0, "{n} ranks, {waits}");
    }
}
