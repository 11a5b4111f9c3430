//! Ranks as threads of one process.

use super::*;
use crate::{
    bootstrap::{
        Peer, control,
        health::Shared,
        messages::{Answer, Comes, Join},
        seat::{Host, Life, Seat},
    },
    net::{Address, Frame, MEETING, Packed, Patience, Role, Target},
    sys::host::{self, usable_cpus},
    topo::share::{Allowance, Crowd},
    transport::links::Opener,
    types::{Cause, Error},
};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[test]
fn all_ranks_join_open_links_and_leave() {
    for n in [1, 2, 5, 17] {
        let members = communicator(n);
        let cpus: u32 = usable_cpus().iter().map(|b| b.count_ones()).sum();
        thread::scope(|s| {
            for (rank, member) in members.iter().enumerate() {
                s.spawn(move || {
                    assert_eq!((member.rank(), member.ranks()), (rank, n));
                    assert_eq!(member.crowd() != Crowd::Alone, n > cpus as usize);
                    for peer in (0..n).filter(|&p| p != rank) {
                        let bytes = format!("{rank} to {peer}").into_bytes();
                        let parcel = Parcel {
                            bytes,
                            ..Parcel::default()
                        };
                        let welcome = member.open(peer, parcel).unwrap();
                        assert_eq!(welcome.unwrap().bytes, format!("welcome to {peer}").as_bytes());
                    }
                    let mut came = Vec::new();
                    while came.len() < n - 1 {
                        came.extend(member.arrivals());
                        thread::yield_now();
                    }
                    came.sort_by_key(|(from, _)| *from);
                    let others = (0..n).filter(|&p| p != rank);
                    for ((from, parcel), peer) in came.into_iter().zip(others) {
                        assert_eq!(from, peer);
                        assert_eq!(parcel.bytes, format!("{peer} to {rank}").as_bytes());
                    }
                    assert!(member.arrivals().is_empty());
                });
            }
        });
        // One after the other: those who are left see the others as gone in order.
        for (rank, member) in members.iter().enumerate() {
            assert!(!member.trouble());
            member.leave(None);
            for other in &members[rank + 1..] {
                until("departures", || {
                    matches!(other.peer(rank), Peer::Left { .. }) && other.departures()
                });
                assert!(!other.trouble());
            }
        }
    }
}

#[test]
fn one_cause_for_all_even_if_many_raise() {
    for n in [1, 2, 5, 17] {
        let members = communicator(n);
        let verdicts: Vec<Cause> = thread::scope(|s| {
            let raise = |m: &Membership| {
                m.raise(Cause::Aborted {
                    rank: m.rank() as u32,
                })
            };
            let threads: Vec<_> = members.iter().map(|m| s.spawn(move || raise(m))).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        for member in &members {
            until("the verdict", || member.verdict().is_some());
            assert!(member.trouble());
            assert_eq!(member.verdict(), members[0].verdict());
        }
        // What raise returned is the verdict, unless the machine was too busy for it to come in time.
        for (rank, returned) in verdicts.into_iter().enumerate() {
            let own = Cause::Aborted { rank: rank as u32 };
            assert!(returned == own || Some(&returned) == members[0].verdict().as_ref());
        }
        // It stays the same.
        let late = Cause::Aborted { rank: 99 };
        assert_eq!(Some(members[n - 1].raise(late)), members[0].verdict());
    }
}

#[test]
fn a_hundred_ranks() {
    let members = communicator(100);
    members[99].raise(Cause::Aborted { rank: 99 });
    until("the verdict", || members.iter().all(|m| m.verdict().is_some()));
    thread::scope(|s| members.iter().for_each(|m| _ = s.spawn(|| m.leave(None))));
    until("departures", || {
        (0..100).all(|r| matches!(members[0].peer(r), Peer::Left { .. }))
    });
}

#[test]
fn another_thread_may_abort_and_everybody_is_woken() {
    let id = UniqueId::new().unwrap();
    let woken: Vec<Arc<AtomicUsize>> = (0..3).map(|_| Arc::default()).collect();
    let joinings = (0..3).map(|rank| {
        let count = woken[rank].clone();
        Joining {
            wake: Arc::new(move || _ = count.fetch_add(1, Relaxed)),
            ..joining(&id, 3, rank)
        }
    });
    let members: Vec<_> = join_all(joinings.collect())
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let health = (*members[2]).clone();
    let abort = thread::spawn(move || health.raise(Cause::Aborted { rank: 2 }));
    abort.join().unwrap();
    for (member, count) in members.iter().zip(&woken) {
        until("the verdict", || {
            member.verdict() == Some(Cause::Aborted { rank: 2 })
        });
        until("the wake-up", || count.load(Relaxed) > 0);
    }
    match members[0].open(1, Parcel::default()) {
        Err(Error::Failed(Cause::Aborted { rank: 2 })) => (),
        other => panic!("{other:?}"),
    }
}

#[test]
fn no_link_to_a_rank_that_left() {
    let mut members = communicator(3);
    drop(members.pop());
    match members[0].open(2, Parcel::default()) {
        Err(Error::Failed(Cause::Left {
            rank: 2, seen_by: 0, ..
        })) => (),
        other => panic!("{other:?}"),
    }
    assert!(!members[1].trouble());
    members[1].open(0, Parcel::default()).unwrap();
}

#[test]
fn leaving_lets_go_of_everything() {
    let id = UniqueId::new().unwrap();
    let held = Arc::new(());
    let joinings = (0..2).map(|rank| {
        let held = held.clone();
        Joining {
            wake: Arc::new(move || _ = &held),
            ..joining(&id, 2, rank)
        }
    });
    let members = join_all(joinings.collect());
    members[0].as_ref().unwrap().leave(None);
    drop(members);
    until("the wakes to be dropped", || Arc::strong_count(&held) == 1);
}

#[test]
fn communicators_of_one_process_do_not_mix() {
    let (a, b) = (communicator(3), communicator(3));
    a[1].raise(Cause::Aborted { rank: 1 });
    until("the verdict", || a.iter().all(|m| m.verdict().is_some()));
    assert!(b.iter().all(|m| !m.trouble()));
    drop(a);
    b[0].open(2, Parcel::default()).unwrap();
    assert!(b.iter().all(|m| !m.trouble()));
}

/// Joins as rank 1 of 2, which stands still after it has proved itself, and before it takes the answer, a long one, and then does nothing
/// more. `change` has its seat, and `look` rank 0.
fn join_by_hand(
    stands_still: [Duration; 2],
    change: impl FnOnce(&mut Seat),
    look: impl FnOnce(Membership) + Send,
) -> Answer {
    let id = UniqueId::new().unwrap();
    let first = Joining {
        told: vec![1; 1 << 20],
        ..joining(&id, 2, 0)
    };
    let target = Target {
        addresses: id.addresses.clone(),
        role: Role::Join,
        from: 1,
        to: MEETING,
        comm: id.comm,
        secret: id.secret.clone(),
        protection: Protection::Off,
    };
    let mut seat = Seat {
        unix: control::start().unwrap().address(),
        port: None,
        pid: host::pid(),
        pid_namespace: host::pid_namespace(),
        life: Life::draw().unwrap(),
    };
    change(&mut seat);
    let request = Join {
        ranks: 2,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        knobs: first.knobs.clone(),
        has_wire: false,
        seat,
        host: Host::here(Vec::new()),
        allowance: Allowance::here(),
        told: Vec::new(),
        timeout: LONG,
        left: LONG,
    };
    thread::scope(|s| {
        let other = s.spawn(|| join(first).map(look));
        let patience = Patience::new(Instant::now() + LONG, &|| false);
        let mut channel = patience.dial(&target).unwrap();
        thread::sleep(stands_still[0]);
        patience
            .send(
                &mut channel,
                Packed::message(&Comes::Joins(Box::new(request))).unwrap(),
            )
            .unwrap();
        thread::sleep(stands_still[1]);
        let answer = patience.receive(&mut channel).unwrap().message().unwrap();
        other.join().unwrap().unwrap();
        answer
    })
}

/// Longer than a stranger may.
#[test]
fn a_rank_may_stand_still_on_its_way_into_a_communicator() {
    let still = Duration::from_millis(5500);
    thread::scope(|s| {
        let ways = [[still, Duration::ZERO], [Duration::ZERO, still]];
        for way in ways.map(|way| s.spawn(move || join_by_hand(way, |_| (), drop))) {
            let answer = way.join().unwrap();
            assert!(
                matches!(&answer, Answer::Table(table) if table.told.len() == 1 << 20),
                "{answer:?}"
            );
        }
    });
}

/// It has made no connection whose end would tell of its own, and its process is not seen.
#[test]
fn a_rank_that_dies_right_after_init_is_found() {
    let (address, listener) = Address::listen().unwrap();
    drop(listener);
    let elsewhere = |seat: &mut Seat| (seat.unix, seat.pid_namespace) = (address, 0);
    join_by_hand([Duration::ZERO; 2], elsewhere, |member| {
        until("word of its end", || member.trouble());
        assert!(matches!(member.peer(1), Peer::Dead { how, .. } if how.contains("does not listen")));
    });
}

/// While it takes no connections in nothing is made of that.
#[test]
fn a_rank_that_stands_still_right_after_init_is_left_alone() {
    let (address, listener) = Address::listen().unwrap();
    let elsewhere = |seat: &mut Seat| (seat.unix, seat.pid_namespace) = (address, 0);
    join_by_hand([Duration::ZERO; 2], elsewhere, |member| {
        thread::sleep(Duration::from_secs(8)); // it is looked for after 2 seconds, and takes 5 to answer
        assert!(!member.trouble());
        drop(listener);
        until("word of its end", || member.trouble());
    });
}

/// Who has the answer to a parcel may do what needs that, and at once.
#[test]
fn a_parcel_is_there_once_it_is_answered_and_not_if_it_is_not() {
    let comm = [9; 16];
    let key = control::Key { comm, rank: 0 };
    let shared = Shared::new(control::start().unwrap(), key, 2, None, Arc::new(|| ()));
    assert_eq!(shared.deliver(1, Frame::default(), || None::<()>), None);
    assert!(shared.arrivals().is_empty());
    let looks = AtomicBool::new(false);
    thread::scope(|s| {
        let answer = || {
            let looker = s.spawn(|| {
                looks.store(true, Relaxed);
                shared.arrivals().len()
            });
            until("the other one to look", || looks.load(Relaxed));
            Some(looker)
        };
        let looker = shared.deliver(1, Frame::default(), answer).unwrap();
        assert_eq!(looker.join().unwrap(), 1);
    });
}

#[test]
fn a_rank_that_makes_a_communicator_says_so_unless_another_thread_waits_in_a_call() {
    let ranks = communicator(3);
    let said = || {
        let waits = ranks[1].calls_of(0).unwrap();
        (waits.makes, waits.ranks)
    };
    ranks[0].add_makes(&[1, 2]);
    assert_eq!(said(), (true, vec![1, 2]));
    ranks[0].set_waits(&[2], None);
    assert_eq!(said(), (false, vec![2]));
    ranks[0].set_waits(&[], None);
    assert_eq!(said(), (true, vec![1, 2]));
    // Two threads make one each.
    ranks[0].add_makes(&[2]);
    ranks[0].end_makes(&[1, 2]);
    assert_eq!(said(), (true, vec![2]));
    ranks[0].add_makes(&[1]);
    assert_eq!(said(), (true, vec![1, 2]));
    ranks[0].end_makes(&[1]);
    ranks[0].end_makes(&[2]);
    assert_eq!(said(), (false, vec![]));
}
