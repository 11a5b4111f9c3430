//! Operations that go on side by side: scopes, owned buffers, streams, and messages between two ranks.

mod common;

use ccl::{Cause, Communicator, Config, Error, Op, Operation, Pending, Stream, Transfer, UniqueId};
use common::{
    config,
    process::{Rank, role, say},
    with_ranks,
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    sync::{
        Arc, Barrier,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
        mpsc::channel,
    },
    thread,
    time::{Duration, Instant},
};

/// What rank `rank` sends in message `k`.
fn message(rank: usize, k: usize, len: usize) -> Vec<u64> {
    (0..len)
        .map(|i| (rank as u64) << 48 | (k as u64) << 32 | i as u64)
        .collect()
}

/// Lengths around what travels ahead (8 KiB), a piece (32 KiB) and several.
const LENGTHS: [usize; 9] = [0, 1, 5, 1023, 1024, 1025, 4096, 4097, 100_000];

#[test]
fn messages_of_any_length_arrive_in_their_order() {
    with_ranks(2, &config(), |comm| {
        for (k, len) in LENGTHS.into_iter().enumerate() {
            if comm.rank() == 0 {
                comm.send(&message(0, k, len), 1).unwrap();
                let mut back = vec![0; len];
                comm.recv(&mut back, 1).unwrap();
                assert!(back == message(1, k, len));
            } else {
                let mut got = vec![0; len];
                comm.recv(&mut got, 0).unwrap();
                assert!(got == message(0, k, len));
                comm.send(&message(1, k, len), 0).unwrap();
            }
        }
        // Many short ones ahead of their receives, more than are kept.
        for k in 0..200 {
            if comm.rank() == 0 {
                comm.send(&message(0, k, 3), 1).unwrap();
            } else {
                let mut got = [0; 3];
                comm.recv(&mut got, 0).unwrap();
                assert_eq!(got.to_vec(), message(0, k, 3));
            }
        }
    });
}

#[test]
fn tags_and_senders_choose_the_message() {
    with_ranks(4, &config(), |comm| {
        let (long, short) = (message(comm.rank(), 7, 5000), message(comm.rank(), 8, 2));
        if comm.rank() > 0 {
            let both = comm.scope(|scope| {
                scope.send_tagged(&long, 0, 7)?;
                scope.send_tagged(&short, 0, 8)
            });
            return both.unwrap();
        }
        // A long one that waits for its receive holds up no other.
        for (from, tag) in [(2, 8), (1, 7), (3, 8), (1, 8), (3, 7), (2, 7)] {
            let mut got = vec![0; 6000];
            let came = comm.recv_tagged(&mut got, Some(from), Some(tag)).unwrap();
            assert_eq!((came.source, came.tag), (from, tag));
            assert!(got[..came.count] == message(from, tag as usize, if tag == 7 { 5000 } else { 2 }));
        }
    });
}

/// The receiver is in another call, or sends itself.
#[test]
fn short_messages_travel_ahead() {
    const MOST: usize = 32;
    with_ranks(3, &config(), |comm| {
        let (rank, ranks) = (comm.rank(), comm.ranks());
        for k in 0..MOST {
            comm.send(&message(rank, k, 3), (rank + 1) % ranks).unwrap();
        }
        comm.barrier().unwrap();
        let from = (rank + ranks - 1) % ranks;
        for k in 0..MOST {
            let mut got = vec![0; 3];
            comm.recv(&mut got, from).unwrap();
            assert_eq!(got, message(from, k, 3));
        }
        comm.barrier().unwrap();
        // What is received is not told at once, and more comes before it is.
        for (round, most) in [(0, 31), (1, 31), (2, 17), (3, 25), (4, MOST), (5, 31), (6, MOST)] {
            if rank == 0 {
                (0..most).for_each(|k| comm.send(&message(round, k, 8), 1).unwrap());
            }
            comm.barrier().unwrap();
            for k in 0..if rank == 1 { most } else { 0 } {
                let mut got = vec![0; 8];
                comm.recv(&mut got, 0).unwrap();
                assert_eq!(got, message(round, k, 8));
            }
        }
        comm.barrier().unwrap();
        // One sends before a call of all, and the others receive after it.
        if rank == 0 {
            (0..2 * MOST).for_each(|k| comm.send(&message(0, k / 2, 1024), 1 + k % 2).unwrap());
        }
        comm.barrier().unwrap();
        for k in 0..if rank == 0 { 0 } else { MOST } {
            let mut got = vec![0; 1024];
            comm.recv(&mut got, 0).unwrap();
            assert_eq!(got, message(0, k, 1024));
        }
    });
}

/// Blocking sends of what travels ahead, and now and then of more in a scope; receives in any order, by sender and tag or by any.
#[test]
fn messages_find_their_receives_in_whatever_order_these_come() {
    const RANKS: usize = 3;
    let longest = if cfg!(debug_assertions) { 200 } else { 2000 };
    for seed in 0..8 {
        with_ranks(RANKS, &config(), |comm| {
            let (me, mut random) = (comm.rank(), fastrand::Rng::with_seed(seed)); // the same on all ranks
            for step in 0..longest {
                // To each rank from each, with tags: what its message says.
                let mut all = Vec::new();
                for from in 0..RANKS {
                    for to in (0..RANKS).filter(|&to| to != from) {
                        let most = if random.u8(0..8) == 0 { 16 } else { 4 };
                        for k in 0..random.usize(0..most) {
                            let len = if random.u8(0..20) == 0 {
                                2000
                            } else {
                                random.usize(0..1024)
                            };
                            all.push((from, to, random.i32(0..2), (step * 16 + k, len)));
                        }
                    }
                }
                let (mut own, mut wanted): (Vec<_>, Vec<_>) = (Vec::new(), Vec::new());
                for &(from, to, tag, (k, len)) in &all {
                    if from == me {
                        own.push((to, tag, message(me, k, len)));
                    } else if to == me {
                        wanted.push((from, tag, message(from, k, len)));
                    }
                }
                let is_long = own.iter().any(|(.., data)| data.len() > 1024);
                let mut by = fastrand::Rng::with_seed(seed ^ (me as u64 + 1) << 32 ^ step as u64);
                let mut receive = |wanted: &mut Vec<(usize, i32, Vec<u64>)>| {
                    while !wanted.is_empty() {
                        let (from, tag, _) = wanted[by.usize(..wanted.len())];
                        let asked = match by.u8(0..4) {
                            0 => (None, None),
                            1 => (Some(from), None),
                            2 => (None, Some(tag)),
                            _ => (Some(from), Some(tag)),
                        };
                        let mut got = vec![0; 2000];
                        let came = comm.recv_tagged(&mut got, asked.0, asked.1).unwrap();
                        let is_it = |one: &(usize, i32, Vec<u64>)| (one.0, one.1) == (came.source, came.tag);
                        let at = wanted.iter().position(is_it).expect("somebody sent it");
                        assert_eq!(got[..came.count], wanted.remove(at).2, "seed {seed}, step {step}");
                    }
                };
                if is_long {
                    comm.scope(|scope| {
                        for (to, tag, data) in &own {
                            scope.send_tagged(data, *to, *tag)?;
                        }
                        receive(&mut wanted);
                        Ok(())
                    })
                    .unwrap();
                } else {
                    for (to, tag, data) in &own {
                        comm.send_tagged(data, *to, *tag).unwrap();
                    }
                    receive(&mut wanted);
                }
                // What comes from any is of this step.
                comm.barrier().unwrap();
            }
        });
    }
}

#[test]
fn a_send_and_a_receive_go_at_once() {
    with_ranks(3, &config(), |comm| {
        let (rank, ranks) = (comm.rank(), comm.ranks());
        let (next, last) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        for len in LENGTHS {
            let mut got = vec![0; len];
            comm.send_recv(&message(rank, 1, len), next, &mut got, last)
                .unwrap();
            assert_eq!(got, message(last, 1, len));
            let mut got = vec![0; len];
            comm.send_recv(&message(rank, 2, len), rank, &mut got, rank)
                .unwrap();
            assert_eq!(got, message(rank, 2, len));
        }
        for (to, from) in [(rank, last), (next, rank)] {
            let refused = comm.send_recv(&[1u8], to, &mut [0u8], from).unwrap_err();
            assert!(refused.to_string().contains("is both sides of this"), "{refused}");
        }
        let mismatch = (rank == 0).then(|| comm.send_recv(&[1u8; 3], 1, &mut [0u8; 3], 3).unwrap_err());
        assert!(mismatch.is_none_or(|error| error.to_string().contains("outside the communicator")));
        comm.barrier().unwrap();
    });
}

#[test]
fn who_sent_may_leave_before_all_is_received() {
    const SENT: usize = 20;
    with_ranks(3, &config(), |comm| match comm.rank() {
        0 => {
            comm.recv(&mut [0u8; 1], 2).unwrap();
            for k in 0..SENT {
                let mut got = vec![0; 3];
                comm.recv(&mut got, 1).unwrap();
                assert_eq!(got, message(1, k, 3));
            }
            comm.send(&[1u8], 2).unwrap();
        }
        1 => (0..SENT).for_each(|k| comm.send(&message(1, k, 3), 0).unwrap()),
        _ => {
            thread::sleep(Duration::from_millis(300));
            comm.send(&[1u8], 0).unwrap();
            comm.recv(&mut [0u8; 1], 0).unwrap();
        }
    });
}

/// Who receives has never sent to who leaves, and does not ask for a way to it only to say what it has handed on.
#[test]
fn a_sender_that_leaves_at_once_is_heard_to_the_end() {
    for messages in [16, 17, 20, 31, 33, 50] {
        with_ranks(2, &config(), |comm| {
            if comm.rank() == 0 {
                (0..messages).for_each(|k| comm.send(&message(0, k, 1), 1).unwrap());
                return;
            }
            let mut got = vec![[0]; messages];
            let received = comm.scope(|scope| got.iter_mut().try_for_each(|one| scope.recv(one, 0)));
            received.unwrap();
            assert!((0..messages).all(|k| got[k].to_vec() == message(0, k, 1)));
        });
    }
}

#[test]
fn a_receive_from_any_ends_when_all_others_have_left() {
    with_ranks(3, &config(), |comm| {
        if comm.rank() == 2 {
            comm.send(&[7u8], 0).unwrap();
        } else if comm.rank() == 0 {
            let mut got = [0u8];
            let first = comm.recv_tagged(&mut got, None, None).unwrap();
            assert_eq!((first.source, got), (2, [7]));
            let error = comm.recv_tagged(&mut got, None, None).unwrap_err();
            assert!(
                matches!(error, Error::Failed(Cause::Left { seen_by: 0, .. })),
                "{error:?}"
            );
        }
    });
}

#[test]
fn any_rank_and_any_tag_take_what_comes() {
    with_ranks(4, &config(), |comm| {
        if comm.rank() > 0 {
            for tag in 0..5 {
                let data = message(comm.rank(), tag as usize, 100 * comm.rank() + tag as usize);
                comm.send_tagged(&data, 0, tag).unwrap();
            }
            return;
        }
        let mut next = [0; 4];
        for _ in 0..15 {
            let mut got = vec![u64::MAX; 1000];
            let came = comm.recv_tagged(&mut got, None, None).unwrap();
            // Those of one rank come in their order.
            assert_eq!(came.tag, next[came.source]);
            next[came.source] += 1;
            let sent = message(came.source, came.tag as usize, came.count);
            assert_eq!(came.count, 100 * came.source + came.tag as usize);
            assert!(got[..came.count] == sent && got[came.count..].iter().all(|&x| x == u64::MAX));
        }
        assert_eq!(next, [0, 5, 5, 5]);
    });
}

#[test]
fn a_scope_takes_sends_and_receives_in_any_order() {
    with_ranks(4, &config(), |comm| {
        let (rank, ranks) = (comm.rank(), comm.ranks());
        for len in LENGTHS {
            let sent: Vec<Vec<u64>> = (0..ranks).map(|to| message(rank, to, len)).collect();
            let mut got: Vec<Vec<u64>> = vec![vec![0; len]; ranks];
            let mut sum = vec![1u64; 1000];
            let mut all = vec![rank as u32; 3];
            comm.scope(|scope| {
                // Each rank in another order, itself included.
                for k in 0..ranks {
                    scope.send(&sent[(rank + k) % ranks], (rank + k) % ranks)?;
                }
                scope.all_reduce_in_place(&mut sum, Op::Sum)?;
                for (from, got) in got.iter_mut().enumerate() {
                    scope.recv(got, from)?;
                }
                scope.broadcast_in_place(&mut all, 2)
            })
            .unwrap();
            for (from, got) in got.iter().enumerate() {
                assert!(*got == message(from, rank, len), "rank {rank} from {from}, {len}");
            }
            assert!(sum.iter().all(|&x| x == ranks as u64) && all == [2; 3]);
        }
    });
}

#[test]
fn thousands_of_operations_are_under_way_at_once() {
    with_ranks(3, &config(), |comm| {
        let rank = comm.rank();
        let sums: Vec<_> = (0..3000u64)
            .map(|k| {
                comm.begin()
                    .all_reduce(vec![k + rank as u64; 7], Op::Sum)
                    .unwrap()
            })
            .collect();
        let sends: Vec<_> = (0..1000)
            .map(|k| comm.begin().send(vec![k; 5], (rank + 1) % 3, k).unwrap())
            .collect();
        let receives: Vec<_> = (0..1000)
            .rev() // the other way round
            .map(|k| {
                comm.begin()
                    .recv(vec![0; 5], Some((rank + 2) % 3), Some(k))
                    .unwrap()
            })
            .collect();
        for (k, sum) in sums.into_iter().enumerate() {
            assert_eq!(sum.wait().unwrap(), [3 * k as u64 + 3; 7]);
        }
        for (k, receive) in (0..1000).rev().zip(receives) {
            let (data, came) = receive.wait().unwrap();
            assert_eq!((data, came.tag), (vec![k; 5], k));
        }
        sends.into_iter().for_each(|send| drop(send.wait().unwrap()));
    });
}

#[test]
fn calls_of_several_threads_go_on_side_by_side() {
    with_ranks(2, &config(), |comm| {
        // A receive that blocks holds up no send of another thread, which the peer needs first.
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut got = vec![0u64; 9000];
                comm.recv_tagged(&mut got, Some(1 - comm.rank()), Some(1))
                    .unwrap();
            });
            for k in 0..50 {
                let mut sum = [1u32; 10];
                comm.all_reduce_in_place(&mut sum, Op::Sum).unwrap();
                assert_eq!(sum, [2; 10], "{k}");
            }
            comm.send_tagged(&[1u64; 9000], 1 - comm.rank(), 1).unwrap();
        });
    });
}

#[test]
fn a_pending_operation_goes_on_while_nobody_waits() {
    with_ranks(2, &config(), |comm| {
        let begun = comm.begin().all_reduce(vec![1.5f32; 100_000], Op::Sum).unwrap();
        let end = Instant::now() + Duration::from_secs(30);
        while !begun.is_over() {
            assert!(Instant::now() < end);
            thread::yield_now();
        }
        assert!(begun.wait().unwrap().iter().all(|&x| x == 3.0));
        // One that is dropped goes on all the same.
        drop(comm.begin().all_reduce(vec![1u8; 1000], Op::Sum).unwrap());
        comm.barrier().unwrap();
    });
}

/// A communicator is left once what goes on by itself is over, wherever the thread that leads it is just then.
#[test]
fn a_communicator_that_is_dropped_ends_what_is_in_its_streams() {
    let base = Communicator::init_all(2).unwrap();
    thread::scope(|scope| {
        for comm in base {
            scope.spawn(move || {
                for k in 0..300 {
                    let (one, stream) = (comm.duplicate(None).unwrap(), Stream::new());
                    let mine = vec![k; 1 << (k % 15)];
                    let sum = one.begin().on(&stream).all_reduce(mine, Op::Sum).unwrap();
                    drop(one);
                    stream.synchronize().unwrap();
                    assert!(sum.wait().unwrap().iter().all(|&x| x == 2 * k));
                }
            });
        }
    });
}

#[test]
fn a_stream_keeps_its_order_across_communicators() {
    let (first, second) = (UniqueId::new().unwrap(), UniqueId::new().unwrap());
    let rank = |rank: usize| {
        let one = Communicator::init(2, &first, rank, &config()).unwrap();
        let two = Communicator::init(2, &second, rank, &config()).unwrap();
        let (stream, other) = (Stream::new(), Stream::new());
        let order = Arc::new(AtomicUsize::new(0));
        let (mut waits, mut sums) = (Vec::new(), Vec::new());
        for k in 0..20usize {
            sums.push(
                one.begin()
                    .on(&stream)
                    .all_reduce(vec![k as u64; 1000], Op::Sum)
                    .unwrap(),
            );
            waits.push((
                two.begin()
                    .on(&other)
                    .all_reduce(vec![k as u64 + 1; 10], Op::Sum)
                    .unwrap(),
                k + 1,
            ));
            let order = Arc::clone(&order);
            stream
                .add_callback(move |outcome| {
                    outcome.unwrap();
                    assert_eq!(order.fetch_add(1, SeqCst), k);
                })
                .unwrap();
        }
        stream.synchronize().unwrap();
        assert_eq!(order.load(SeqCst), 20);
        assert!(stream.is_over().unwrap());
        for (k, sum) in sums.into_iter().enumerate() {
            assert_eq!(sum.wait().unwrap(), vec![2 * k as u64; 1000]);
        }
        for (sum, k) in waits {
            assert_eq!(sum.wait().unwrap(), vec![2 * k as u64; 10]);
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| rank(0));
        rank(1);
    });
}

#[test]
fn communicators_are_used_in_different_orders() {
    let (first, second) = (UniqueId::new().unwrap(), UniqueId::new().unwrap());
    let rank = |rank: usize| {
        let comms = [&first, &second].map(|id| Communicator::init(2, id, rank, &config()).unwrap());
        for _ in 0..100 {
            let order = if rank == 0 { [0, 1] } else { [1, 0] };
            let begun = order.map(|k| comms[k].begin().all_reduce(vec![k as u64; 500], Op::Sum).unwrap());
            for (k, sum) in order.into_iter().zip(begun) {
                assert_eq!(sum.wait().unwrap(), vec![2 * k as u64; 500]);
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| rank(0));
        rank(1);
    });
}

/// Over TCP, where what is sent to a rank that is in no call stays here: it holds up only what sends to that rank.
#[test]
fn what_has_not_gone_to_one_rank_holds_up_no_call_with_another() {
    let (first, second) = (UniqueId::new().unwrap(), UniqueId::new().unwrap());
    let mut config = config();
    config.transport = Some("tcp".to_owned());
    config.timeout = Some(Duration::from_secs(20));
    let rank = |rank: usize| {
        let [one, two] = [&first, &second].map(|id| Communicator::init(3, id, rank, &config).unwrap());
        let (len, mut x) = (4 << 20, [0u8; 4]);
        // Whoever leads on rank 0 when the connection is full: the caller, or the thread.
        for (k, pause) in [Duration::ZERO, Duration::from_millis(300)]
            .into_iter()
            .enumerate()
        {
            let scatter = || {
                let all = (rank == 0).then(|| message(0, k, 3 * len));
                one.begin().scatter(all, vec![0; len], 0).unwrap()
            };
            let part = match rank {
                0 => {
                    let part = scatter();
                    thread::sleep(pause);
                    one.recv(&mut x, 2).unwrap();
                    one.link_memory().unwrap();
                    two.send(&x, 1).unwrap();
                    part
                }
                1 => {
                    two.recv(&mut x, 0).unwrap();
                    scatter()
                }
                _ => {
                    thread::sleep(pause);
                    one.send(&[k as u8; 4], 0).unwrap();
                    scatter()
                }
            };
            let (_, part) = part.wait().unwrap();
            assert!(part == message(0, k, 3 * len)[rank * len..][..len]);
        }
    };
    thread::scope(|scope| {
        let rank = &rank;
        (0..3).for_each(|k| _ = scope.spawn(move || rank(k)));
    });
}

/// A configuration for TCP.
fn tcp() -> Config {
    let mut config = config();
    config.transport = Some("tcp".to_owned());
    config
}

/// In the process of a rank, when a test has started it as one.
#[test]
fn roles() {
    let Some((_, id, ranks, rank)) = role() else {
        return;
    };
    let comm = Communicator::init(ranks, &id, rank, &tcp()).unwrap();
    (0..AHEAD).for_each(|k| comm.send(&[k as u8; 4], 0).unwrap());
    say("sent");
    scatters(&comm).into_iter().for_each(end);
}

/// Messages after which their receiver is to tell their sender that it has taken them in.
const AHEAD: usize = 4;

/// What rank 0 sends each rank, by all lanes at once: more than the system takes in for one that reads nothing.
fn scatters(comm: &Communicator) -> Vec<Scattered> {
    let scatter = |_| {
        let all = (comm.rank() == 0).then(|| vec![7u8; 3 * LONG]);
        comm.begin().scatter(all, vec![0; LONG], 0).unwrap()
    };
    (0..8).map(scatter).collect()
}

fn end(begun: Scattered) {
    assert!(begun.wait().unwrap().1 == vec![7u8; LONG]);
}

type Scattered = Pending<(Vec<u8>, Vec<u8>)>;
const LONG: usize = 8 << 20;

/// Over TCP, where a receiver owes its sender word of it: another thread begins something while that has not gone.
#[test]
fn what_has_not_gone_to_one_rank_holds_up_no_short_message_with_another() {
    let id = UniqueId::new().unwrap();
    let mut sends = Rank::start(&id, 3, 2, &[], "sends");
    let id = &id;
    thread::scope(|scope| {
        let (go_on, wait) = channel::<()>();
        scope.spawn(move || {
            let comm = Communicator::init(3, id, 1, &tcp()).unwrap();
            comm.recv(&mut [0u8], 0).unwrap();
            let _ = wait.recv(); // also where nobody says so, as something has failed
            scatters(&comm).into_iter().for_each(end);
        });
        let comm = Communicator::init(3, id, 0, &tcp()).unwrap();
        comm.send(&[0u8], 1).unwrap(); // which makes the link
        assert_eq!(sends.said(), "sent");
        // It cannot be told yet.
        let pid = Pid::from_child(&sends.child);
        kill_process(pid, Signal::STOP).unwrap();
        let take = || {
            for k in 0..AHEAD {
                let mut got = [0u8; 4];
                comm.recv(&mut got, 2).unwrap();
                assert_eq!(got, [k as u8; 4]);
            }
        };
        let begun = thread::scope(|scope| {
            let taken = scope.spawn(take);
            // Amid the last of them.
            thread::sleep(Duration::from_millis(300));
            let begun = scatters(&comm);
            kill_process(pid, Signal::CONT).unwrap();
            taken.join().unwrap();
            begun
        });
        drop(go_on);
        begun.into_iter().for_each(end);
    });
    assert!(sends.child.wait().unwrap().success());
}

#[test]
fn messages_that_do_not_fit_name_both_calls() {
    let unlike = |send: fn(&Communicator), receive: fn(&Communicator) -> ccl::Result<()>| {
        let outcomes = with_ranks(3, &config(), |comm| match comm.rank() {
            0 => {
                send(comm);
                comm.barrier()
            }
            1 => receive(comm),
            _ => comm.barrier(),
        });
        for outcome in outcomes {
            let Err(
                Error::Failed(Cause::Mismatch { here, there })
                | Error::Closed(Cause::Mismatch { here, there }),
            ) = outcome
            else {
                panic!("{outcome:?}");
            };
            assert_eq!((here.0, there.0), (1, 0));
            assert!(
                matches!(here.1, Operation::Transfer(Transfer::Recv { .. })),
                "{here:?}"
            );
            assert!(
                matches!(there.1, Operation::Transfer(Transfer::Send { .. })),
                "{there:?}"
            );
        }
    };
    unlike(
        |comm| comm.send(&[1u32; 5], 1).unwrap(),
        |comm| comm.recv(&mut [0u32; 4], 0),
    );
    unlike(
        |comm| comm.send(&[1u32; 5], 1).unwrap(),
        |comm| comm.recv(&mut [0f32; 5], 0),
    );
    unlike(
        |comm| comm.send_tagged(&[1u32; 5], 1, 3).unwrap(),
        |comm| comm.recv_tagged(&mut [0u32; 4], None, Some(3)).map(|_| ()),
    );
    // Long ones wait for their receive, and fail with it.
    unlike(
        |comm| assert!(comm.send(&[1u64; 5000], 1).is_err()),
        |comm| comm.recv(&mut [0u64; 4999], 0),
    );
}

#[test]
fn who_waits_for_itself_is_told_so() {
    let (kept, data) = (Barrier::new(3), [1u8; 4]);
    let outcomes = with_ranks(3, &config(), |comm| {
        let outcome = match comm.rank() {
            1 => {
                comm.set_timeout(Duration::from_millis(700));
                comm.scope(|scope| scope.send(&data, 1))
            }
            _ => comm.barrier(),
        };
        kept.wait();
        outcome.unwrap_err().to_string()
    });
    for told in outcomes {
        assert!(
            told.contains("rank 1 waited 0.7 s for itself in send(4 x uint8 to rank 1, tag 0): what a rank sends to itself"),
            "{told}"
        );
    }
}

/// From any rank there is none but this one.
#[test]
fn who_is_alone_waits_for_itself() {
    with_ranks(1, &config(), |comm| {
        comm.set_timeout(Duration::from_millis(300));
        let told = comm
            .recv_tagged(&mut [0u8; 4], None, None)
            .unwrap_err()
            .to_string();
        assert!(told.contains("rank 0 waited 0.3 s for itself in recv("), "{told}");
    });
}

#[test]
fn wrong_arguments_are_refused_and_change_nothing() {
    with_ranks(2, &config(), |comm| {
        let refused = |outcome: ccl::Result<()>, text: &str| {
            let error = outcome.unwrap_err();
            assert!(
                matches!(error, Error::Invalid { .. } | Error::Usage { .. }),
                "{error:?}"
            );
            assert!(error.to_string().contains(text), "{error}");
        };
        refused(comm.send(&[1], 2), "rank 2, which is outside");
        refused(comm.recv(&mut [1], 9), "rank 9, which is outside");
        refused(comm.send_tagged(&[1], 0, -1), "tag -1");
        refused(comm.send(&[1], comm.rank()), "is both sides of this send");
        refused(comm.recv(&mut [1], comm.rank()), "is both sides of this receive");
        let (mut small, data) = ([0u8; 3], [1u8; 4]);
        refused(
            comm.scope(|scope| scope.all_reduce(&data, &mut small, Op::Sum)),
            "same number",
        );
        refused(comm.begin().broadcast(vec![1u8], 7).map(drop), "root 7");
        let stream = Stream::new();
        refused(
            comm.begin().on(&stream).broadcast(vec![1u8], 7).map(drop),
            "root 7",
        );
        stream.synchronize().unwrap();
        comm.barrier().unwrap();
    });
}

#[test]
fn a_failure_ends_all_that_is_under_way() {
    let gone = Barrier::new(2);
    with_ranks(2, &config(), |comm| {
        if comm.rank() == 1 {
            comm.abort();
            gone.wait();
            return;
        }
        let stream = Stream::new();
        let sum = comm.begin().on(&stream).all_reduce(vec![1u8; 10], Op::Sum);
        let receive = comm.begin().recv(vec![0u8; 10], Some(1), None);
        let ended = |outcome: ccl::Result<()>| {
            let aborted = Cause::Aborted { rank: 1 };
            match outcome {
                Err(Error::Failed(cause) | Error::Closed(cause)) => assert_eq!(cause, aborted),
                other => panic!("{other:?}"),
            }
        };
        ended(receive.and_then(|receive| receive.wait().map(drop)));
        ended(sum.and_then(|sum| sum.wait().map(drop)));
        gone.wait();
    });
}

#[test]
fn threads_that_share_a_stream_give_it_one_order() {
    with_ranks(1, &config(), |comm| {
        let stream = Stream::new();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for i in 0..2000u32 {
                        let sum = comm.begin().on(&stream).all_reduce(vec![i], Op::Sum).unwrap();
                        assert_eq!(sum.wait().unwrap(), [i]);
                    }
                });
            }
        });
        stream.synchronize().unwrap();
    });
}

#[test]
fn messages_beside_a_call_do_not_put_off_its_deadline() {
    let mut config = config();
    config.timeout = Some(Duration::from_millis(500));
    with_ranks(2, &config, |comm| {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            if comm.rank() == 0 {
                scope.spawn(|| {
                    let late = comm.barrier().unwrap_err().to_string();
                    assert!(late.contains("rank 1 stayed silent"), "{late}");
                    is_over.store(true, Relaxed);
                });
            }
            // Until rank 0's barrier has failed, and with it the communicator.
            let (mut x, other) = ([0u8], 1 - comm.rank());
            loop {
                let went = match comm.rank() {
                    0 => comm.send(&[1u8], other).and_then(|()| comm.recv(&mut x, other)),
                    _ => comm.recv(&mut x, other).and_then(|_| comm.send(&[1u8], other)),
                };
                if went.is_err() {
                    break;
                }
                thread::sleep(Duration::from_millis(5));
            }
        });
        assert!(comm.rank() == 1 || is_over.into_inner());
    });
}

#[test]
fn a_revoked_communicator_takes_no_messages() {
    with_ranks(1, &config(), |comm| {
        comm.revoke();
        while comm.failure().is_none() {
            thread::yield_now();
        }
        let refused = comm.begin().send(vec![1u8], 0, 0).map(drop).unwrap_err();
        assert!(refused.to_string().contains("revoked"), "{refused}");
    });
}

/// Adds a callback that does so again, before the stream has come to its end.
fn go_on(stream: &Arc<Stream>, is_over: &Arc<AtomicBool>) {
    let (next, until) = (Arc::clone(stream), Arc::clone(is_over));
    let callback = move |_| {
        thread::sleep(Duration::from_millis(1));
        if !until.load(SeqCst) {
            go_on(&next, &until);
        }
    };
    stream.add_callback(callback).unwrap();
}

#[test]
fn what_is_added_meanwhile_is_not_waited_for() {
    let (stream, is_over) = (Arc::new(Stream::new()), Arc::new(AtomicBool::new(false)));
    go_on(&stream, &is_over);
    stream.synchronize().unwrap();
    is_over.store(true, SeqCst);
}
