//! Short calls that are made again and again, which take the shortest way through the library: they are as right, and as well
//! checked, as the first of their kind.

mod common;

use ccl::{Error, Op};
use common::{config, with_algorithm, with_ranks};
use std::{thread, time::Duration};

/// Every rank draws the same calls, of few shapes; the data is another each time.
#[test]
fn repeated_calls_give_what_the_first_ones_do() {
    for (ranks, seed) in [(2, 1), (3, 2), (5, 3)] {
        with_ranks(ranks, &config(), |comm| {
            let mut random = fastrand::Rng::with_seed(seed);
            let rank = comm.rank() as u64;
            for turn in 0..3000u64 {
                let len = *random.choice(&[1usize, 2, 40, 3000, 40_000]).unwrap();
                let value = |rank: u64, i: usize| turn * 100 + rank * 7 + i as u64;
                let mine: Vec<u64> = (0..len).map(|i| value(rank, i)).collect();
                let sum = |i: usize| (0..ranks as u64).map(|r| value(r, i)).sum::<u64>();
                let mut all = vec![0; len * ranks];
                match random.u8(..6) {
                    0 => comm.barrier().unwrap(),
                    1 => {
                        comm.all_reduce(&mine, &mut all[..len], Op::Sum).unwrap();
                        assert!((0..len).all(|i| all[i] == sum(i)), "turn {turn}");
                    }
                    2 => {
                        let mut mine = mine;
                        comm.all_reduce_in_place(&mut mine, Op::Sum).unwrap();
                        assert!((0..len).all(|i| mine[i] == sum(i)), "turn {turn}");
                    }
                    3 => {
                        comm.all_gather(&mine, &mut all).unwrap();
                        let right = |at: usize| all[at] == value((at / len) as u64, at % len);
                        assert!((0..len * ranks).all(right), "turn {turn}");
                    }
                    4 => {
                        let (root, mut mine) = (random.usize(..ranks), mine);
                        comm.broadcast_in_place(&mut mine, root).unwrap();
                        assert!((0..len).all(|i| mine[i] == value(root as u64, i)), "turn {turn}");
                    }
                    _ => {
                        // What goes on by itself takes places among the others.
                        let (mut a, mut b) = (vec![0; len], vec![0; len]);
                        comm.scope(|scope| {
                            scope.all_reduce(&mine, &mut a, Op::Max)?;
                            scope.all_reduce(&mine, &mut b, Op::Sum)
                        })
                        .unwrap();
                        assert!(
                            (0..len).all(|i| a[i] == value(ranks as u64 - 1, i) && b[i] == sum(i)),
                            "turn {turn}"
                        );
                    }
                }
            }
        });
    }
}

#[test]
fn threads_may_repeat_the_same_call_at_once() {
    for algorithm in ["doubling", "direct"] {
        with_ranks(2, &with_algorithm(algorithm), |comm| {
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..2000 {
                            let mut data = [1u16; 3];
                            comm.all_reduce_in_place(&mut data, Op::Sum).unwrap();
                            assert_eq!(data, [2; 3]);
                        }
                    });
                }
            });
        });
    }
}

#[test]
fn a_repeated_call_is_refused_where_the_first_would_be() {
    with_ranks(2, &config(), |comm| {
        let (send, mut recv) = ([1u32, 2], [0u32; 2]);
        for _ in 0..10 {
            comm.all_reduce(&send, &mut recv, Op::Sum).unwrap();
        }
        let short = comm.all_reduce(&send, &mut recv[..1], Op::Sum);
        assert!(matches!(short, Err(Error::Invalid { .. })), "{short:?}");
        let bits = comm.all_reduce(&[1f32, 2.0], &mut [0.0; 2], Op::BitAnd);
        assert!(matches!(bits, Err(Error::Invalid { .. })), "{bits:?}");
        comm.all_reduce(&send, &mut recv, Op::Sum).unwrap();
        assert_eq!(recv, [2, 4]);
        comm.finalize().unwrap();
        let over = comm.all_reduce(&send, &mut recv, Op::Sum);
        assert!(matches!(over, Err(Error::Usage { .. })), "{over:?}");
    });
}

#[test]
fn a_rank_that_stops_repeating_is_named() {
    let errors = with_ranks(2, &config(), |comm| {
        let mut data = [comm.rank() as i32; 5];
        for _ in 0..10 {
            comm.all_reduce_in_place(&mut data, Op::Max).unwrap();
        }
        let result = match comm.rank() {
            1 => comm.all_reduce_in_place(&mut data, Op::Min),
            _ => comm.all_reduce_in_place(&mut data, Op::Max),
        };
        let error = result.and_then(|()| comm.barrier()).unwrap_err();
        let again = comm.all_reduce_in_place(&mut data, Op::Max).unwrap_err();
        assert!(matches!(again, Error::Closed(_)), "{again:?}");
        error.to_string()
    });
    assert!(errors.iter().all(|error| error == &errors[0]), "{errors:?}");
    for what in ["allreduce(5 x int32, max)", "allreduce(5 x int32, min)"] {
        assert!(errors[0].contains(&format!("#10 {what}")), "{errors:?}");
    }
}

#[test]
fn a_repeated_call_ends_at_the_deadline_too() {
    let mut config = config();
    config.timeout = Some(Duration::from_millis(300));
    let errors = with_ranks(2, &config, |comm| {
        (0..10).for_each(|_| comm.barrier().unwrap());
        match comm.rank() {
            0 => comm.barrier().unwrap_err().to_string(),
            _ => {
                // It does nothing until the other has given up.
                while comm.failure().is_none() {
                    thread::yield_now();
                }
                comm.barrier().unwrap_err().to_string()
            }
        }
    });
    assert!(errors[0].contains("rank 1"), "{errors:?}");
}

/// Calls of no elements wait for nobody, so that who makes many is further ahead than the number in a message tells.
#[test]
fn who_is_far_ahead_has_made_the_same_calls() {
    const EMPTY: usize = 40_000;
    with_ranks(3, &with_algorithm("direct"), |comm| {
        let gather = || {
            let mut all = [0u32; 3];
            let at_root = (comm.rank() == 0).then_some(&mut all[..]);
            comm.gather(&[comm.rank() as u32], at_root, 0).unwrap();
            assert!(comm.rank() != 0 || all == [0, 1, 2]);
        };
        if comm.rank() == 2 {
            thread::sleep(Duration::from_secs(1)); // rank 0 looks what the others send
        }
        gather();
        for _ in 0..EMPTY {
            comm.all_reduce::<u32>(&[], &mut [], Op::Sum).unwrap();
        }
        (0..8).for_each(|_| gather());
        comm.barrier().unwrap();
    });
}
