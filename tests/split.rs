//! Communicators that are made of others, and of one process's threads: who is in them, what they have in common (nothing),
//! and what is told when they cannot be made.

mod common;

use ccl::{Cause, Collective, Communicator, DType, Error, Op, Why};
use common::{config, with_algorithm, with_ranks};
use std::{
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

/// The ranks of `comm`, as another communicator numbers them: `own` is this one's number there.
fn numbers(comm: &Communicator, own: usize) -> Vec<u64> {
    let mut all = vec![0; comm.ranks()];
    comm.all_gather(&[own as u64], &mut all).unwrap();
    all
}

#[test]
fn ranks_of_a_color_are_together_in_the_order_of_their_keys() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..12 {
        let n = 1 + round % 6;
        let color = |random: &mut fastrand::Rng| match random.u32(..5) {
            0 => None,
            1 => Some(u32::MAX),
            color => Some(color),
        };
        let key = |random: &mut fastrand::Rng| random.choice([i32::MIN, -1, 0, 0, 7, i32::MAX]).unwrap();
        let wishes: Vec<(Option<u32>, i32)> =
            (0..n).map(|_| (color(&mut random), key(&mut random))).collect();
        with_ranks(n, &config(), |comm| {
            let (color, key) = wishes[comm.rank()];
            let mut same: Vec<u64> = (0..n as u64).filter(|&r| wishes[r as usize].0 == color).collect();
            same.sort_by_key(|&r| (wishes[r as usize].1, r));
            match comm.split(color, key, None).unwrap() {
                None => assert_eq!(color, None),
                Some(child) => {
                    assert!(color.is_some());
                    assert_eq!(same[child.rank()], comm.rank() as u64, "{wishes:?}");
                    assert_eq!(numbers(&child, comm.rank()), same, "{wishes:?}");
                }
            }
            assert_eq!(numbers(comm, comm.rank()).len(), n, "the parent goes on");
        });
    }
}

#[test]
fn splits_can_be_split_until_each_rank_is_alone() {
    with_ranks(7, &config(), |comm| {
        let mut parts = vec![comm.duplicate(None).unwrap()];
        while let Some(part) = parts.last().filter(|part| part.ranks() > 1) {
            let upper = (2 * part.rank() >= part.ranks()) as u32;
            let half = part
                .split(Some(upper), -(part.rank() as i32), None)
                .unwrap()
                .unwrap();
            parts.push(half);
        }
        // All of them still work, the latest first: all ranks of one have it at another depth, but in the same order.
        for part in parts.iter().rev() {
            let mut one = [1u32];
            part.all_reduce_in_place(&mut one, Op::Sum).unwrap();
            assert_eq!(one[0] as usize, part.ranks());
        }
    });
}

#[test]
fn parent_and_child_end_in_any_order() {
    let works = |comm: &Communicator| {
        let mut one = [1u32; 1000];
        comm.all_reduce_in_place(&mut one, Op::Sum).unwrap();
        assert_eq!(one, [3; 1000]);
    };
    for round in 0..4 {
        let comms = Communicator::init_all(3).unwrap();
        thread::scope(|scope| {
            for parent in comms {
                scope.spawn(move || {
                    let child = parent.duplicate(None).unwrap();
                    works(&child);
                    works(&parent);
                    match round {
                        0 => {
                            drop(parent);
                            works(&child);
                            let grandchild = child.duplicate(None).unwrap();
                            drop(child);
                            works(&grandchild);
                        }
                        1 => {
                            drop(child);
                            works(&parent);
                        }
                        2 => {
                            parent.finalize().unwrap();
                            let refused = parent.duplicate(None).unwrap_err();
                            assert!(matches!(refused, Error::Usage { .. }), "{refused:?}");
                            works(&child);
                            child.finalize().unwrap();
                        }
                        _ => {
                            child.finalize().unwrap();
                            works(&parent);
                            child.duplicate(None).unwrap_err();
                            parent.finalize().unwrap();
                        }
                    }
                });
            }
        });
    }
}

#[test]
fn a_failure_stays_in_its_communicator() {
    with_ranks(3, &config(), |comm| {
        let child = comm.duplicate(None).unwrap();
        if comm.rank() == 1 {
            child.abort();
        }
        let error = child.barrier().and_then(|()| child.barrier()).unwrap_err();
        assert!(
            matches!(error, Error::Failed(Cause::Aborted { rank: 1 })),
            "{error:?}"
        );
        assert!(matches!(child.duplicate(None), Err(Error::Closed(_))));
        assert_eq!(numbers(&comm.duplicate(None).unwrap(), comm.rank()), [0, 1, 2]);
    });
}

#[test]
fn two_communicators_are_split_at_once() {
    with_ranks(3, &config(), |first| {
        let second = first.duplicate(None).unwrap();
        thread::scope(|scope| {
            for (comm, order) in [(first, 1), (&second, -1)] {
                scope.spawn(move || {
                    for round in 0..30 {
                        let key = order * comm.rank() as i32;
                        let child = comm.split(Some(round), key, None).unwrap().unwrap();
                        let wanted = if order > 0 { [0, 1, 2] } else { [2, 1, 0] };
                        assert_eq!(numbers(&child, comm.rank()), wanted);
                    }
                });
            }
        });
    });
}

#[test]
fn a_child_has_its_parent_s_settings_or_those_given() {
    with_ranks(2, &with_algorithm("ring"), |comm| {
        let forced = |comm: &Communicator| {
            let said = comm.explain(Collective::AllReduce, 10, DType::Float32).unwrap();
            (said.candidates[said.chosen].algorithm, said.why)
        };
        let child = comm.duplicate(None).unwrap();
        assert_eq!(
            (forced(&child), child.transport()),
            (("ring", Why::Forced), comm.transport())
        );
        let mut other = config();
        other.transport = Some("tcp".to_owned());
        let child = comm.duplicate(Some(&other)).unwrap();
        assert_eq!((forced(&child).1, child.transport()), (Why::Least, "tcp"));
        assert_eq!(numbers(&child, comm.rank()), [0, 1]);
        // Over connections as over memory.
        assert_eq!(child.duplicate(None).unwrap().transport(), "tcp");
        assert_eq!(numbers(&child.duplicate(None).unwrap(), comm.rank()), [0, 1]);
    });
}

#[test]
fn a_child_has_its_parent_s_present_timeout() {
    let over = Barrier::new(2);
    with_ranks(2, &config(), |comm| {
        comm.set_timeout(Duration::from_millis(300));
        let child = comm.duplicate(None).unwrap();
        if comm.rank() == 0 {
            let error = child.barrier().unwrap_err();
            let Error::Failed(Cause::Late { ranks, after, .. }) = error else {
                panic!("{error:?}")
            };
            assert_eq!((ranks, after), (vec![1], Duration::from_millis(300)));
        }
        over.wait();
    });
}

#[test]
fn settings_that_do_not_fit_are_told_in_both_numberings() {
    let errors = with_ranks(3, &config(), |comm| {
        let other = with_algorithm(if comm.rank() == 2 { "direct" } else { "ring" });
        let color = (comm.rank() > 0).then_some(3);
        let error = match comm.split(color, -(comm.rank() as i32), Some(&other)) {
            Err(error @ Error::Init { .. }) => Some(error.to_string()),
            Ok(None) => None,
            other => panic!("{other:?}"),
        };
        assert_eq!(numbers(comm, comm.rank()), [0, 1, 2], "the parent goes on");
        error
    });
    for error in errors.into_iter().flatten() {
        assert!(
            error.contains("algorithm is")
                && error.contains("\"direct\" on rank 0")
                && error.contains("\"ring\" on rank 1")
                && error.ends_with("(ranks 2, 1 of the parent are ranks 0 to 1 of the new communicator)"),
            "{error}"
        );
    }
}

/// A call that is no split.
type Other = fn(&Communicator) -> ccl::Result<()>;

#[test]
fn a_split_and_another_call_differ() {
    let others: [(&str, Other); 3] = [
        // What a split sends looks like this.
        ("allgather(2 x int64)", |comm| {
            comm.all_gather(&[0i64; 2], &mut vec![0; 2 * comm.ranks()])
        }),
        ("barrier()", |comm| comm.barrier()),
        ("allreduce(2 x int64, bitxor)", |comm| {
            comm.all_reduce_in_place(&mut [0i64; 2], Op::BitXor)
        }),
    ];
    for (name, other) in others {
        let started = Instant::now();
        let errors = with_ranks(3, &config(), |comm| {
            let result = match comm.rank() {
                1 => other(comm),
                _ => comm.split(Some(0), 0, None).map(|_| ()),
            };
            // Also where a rank's part was over before the others noticed.
            result.and_then(|()| comm.barrier()).unwrap_err().to_string()
        });
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "long before the deadline"
        );
        for error in &errors {
            assert!(
                error.contains(&format!("rank 1 made call #0 {name}"))
                    && error.contains("made call #0 split()"),
                "{errors:?}"
            );
        }
    }
}

#[test]
fn settings_that_do_not_exist_are_refused_before_anything_is_sent() {
    let mut config = config();
    config.timeout = Some(Duration::from_millis(300));
    let over = Barrier::new(3);
    with_ranks(3, &config, |comm| {
        let error = match comm.rank() {
            1 => {
                let error = comm.duplicate(Some(&with_algorithm("guess"))).unwrap_err();
                assert!(matches!(error, Error::Usage { .. }), "{error:?}");
                None
            }
            _ => Some(comm.duplicate(None).unwrap_err()),
        };
        over.wait();
        match error {
            None => {}
            Some(Error::Failed(Cause::Late { ranks, .. })) => assert_eq!(ranks, [1]),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn an_abort_ends_a_split() {
    let ready = Barrier::new(2);
    with_ranks(2, &config(), |comm| {
        if comm.rank() == 1 {
            ready.wait();
            return comm.abort();
        }
        thread::scope(|scope| {
            let split = scope.spawn(|| comm.split(Some(0), 0, None).unwrap_err());
            ready.wait();
            let error = split.join().unwrap();
            assert!(
                matches!(error, Error::Failed(Cause::Aborted { rank: 1 })),
                "{error:?}"
            );
        });
    });
}

#[test]
fn all_ranks_of_a_process_are_made_at_once() {
    for n in [1, 2, 5, 16] {
        let comms = Communicator::init_all(n).unwrap();
        assert!(
            comms
                .iter()
                .enumerate()
                .all(|(rank, comm)| (comm.rank(), comm.ranks()) == (rank, n))
        );
        thread::scope(|scope| {
            for comm in &comms {
                scope.spawn(|| assert_eq!(numbers(comm, 7), vec![7; n]));
            }
        });
    }
    for n in [0, 8193, usize::MAX] {
        let error = Communicator::init_all(n).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("a communicator of {n} ranks: there must be 1 to 8192")
        );
    }
}
