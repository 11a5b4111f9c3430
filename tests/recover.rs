//! Ranks that go on without others, or with more: `revoke`, `shrink` and `grow`.

mod common;

use ccl::{Cause, Communicator, Config, Error, Op, UniqueId};
use common::{
    config,
    process::{Rank, hex, id_of, role, say},
    said, with_ranks,
};
use std::{
    path::Path,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

/// The sum of what all ranks of `comm` give.
fn sum(comm: &Communicator, one: u64) -> u64 {
    let mut sums = [one; 1000];
    comm.all_reduce_in_place(&mut sums, Op::Sum).unwrap();
    assert_eq!(sums, [sums[0]; 1000]);
    sums[0]
}

/// Calls until one fails.
fn until_it_fails(comm: &Communicator) -> Error {
    loop {
        let mut sums = [1u32; 1000];
        if let Err(error) = comm.all_reduce_in_place(&mut sums, Op::Sum) {
            return error;
        }
    }
}

/// In the process of a rank, when a test has started it as one.
#[test]
fn roles() {
    let Some((role, id, ranks, rank)) = role() else {
        return;
    };
    let words: Vec<&str> = role.split('/').collect();
    let excluded: Vec<usize> = words[1].split(',').filter_map(|rank| rank.parse().ok()).collect();
    let mut comm = Communicator::init(ranks, &id, rank, &config()).unwrap();
    if words[0] == "sends" {
        say("begun");
        let (process, bytes) = (Path::new("/proc").join(words[1]), words[2].parse().unwrap());
        while rank != 0 || process.exists() {
            thread::sleep(Duration::from_millis(1));
        }
        let message = vec![7u8; bytes];
        say((0..).find_map(|_| comm.send(&message, 1).err()).unwrap());
        return;
    }
    // Else there are no links yet.
    if words[0] != "apart" {
        let wanted: u64 = (0..ranks as u64).sum();
        assert_eq!(sum(&comm, rank as u64), wanted);
    }
    say("begun");
    if words[0] == "parent" {
        say(hex(&comm.grow_id().unwrap()));
        loop {
            thread::park();
        }
    }
    if ["past", "apart"].contains(&words[0]) {
        let error = thread::scope(|scope| {
            if words[2] == rank.to_string() {
                scope.spawn(|| {
                    thread::sleep(Duration::from_secs(4)); // the others wait for the one that is stopped by then
                    comm.abort();
                });
            }
            if words[0] == "apart" {
                thread::sleep(Duration::from_secs(1)); // until one is stopped
            }
            until_it_fails(&comm)
        });
        drop(comm);
        say(error);
        loop {
            thread::park();
        }
    }
    let deaths: usize = words[2].parse().unwrap();
    let mut left = ranks;
    while left > ranks - deaths {
        let error = until_it_fails(&comm);
        assert!(
            matches!(
                error,
                Error::Failed(Cause::Lost { .. }) | Error::Closed(Cause::Lost { .. })
            ),
            "{error:?}"
        );
        // Others may know more, or fewer, of the dead, where none are named.
        let smaller = comm.shrink(&excluded, None).unwrap();
        left = smaller.ranks();
        comm = smaller;
    }
    say(format!(
        "{} of {}: {}",
        comm.rank(),
        comm.ranks(),
        sum(&comm, rank as u64)
    ));
}

/// Kills ranks, one after the other or at once, and has the others go on.
fn survive(ranks: usize, dead: &[usize], named: bool, settings: &[(&str, &str)]) {
    let excluded: Vec<String> = dead.iter().map(usize::to_string).collect();
    let excluded = if named { excluded.join(",") } else { String::new() };
    let mut all = Rank::start_all(ranks, settings, &format!("survive/{excluded}/{}", dead.len()));
    assert!(all.iter_mut().all(|rank| rank.said() == "begun"));
    let began = Instant::now();
    for &rank in dead {
        all[rank].child.kill().unwrap();
    }
    let living: Vec<usize> = (0..ranks).filter(|rank| !dead.contains(rank)).collect();
    for (new, &old) in living.iter().enumerate() {
        let wanted = format!("{new} of {}: {}", living.len(), living.iter().sum::<usize>());
        assert_eq!(all[old].said(), wanted, "{dead:?} of {ranks} {settings:?}");
    }
    println!(
        "{dead:?} of {ranks}, {settings:?}: went on after {:.0?}",
        began.elapsed()
    );
}

#[test]
fn survivors_go_on_whoever_was_killed() {
    for dead in 0..4 {
        survive(4, &[dead], true, &[]);
        survive(4, &[dead], false, &[("CCL_TRANSPORT", "tcp")]);
    }
}

#[test]
fn survivors_go_on_when_several_are_killed_at_once() {
    for dead in [&[0, 1][..], &[1, 4], &[0, 2, 4]] {
        survive(5, dead, false, &[]);
        survive(5, dead, true, &[("CCL_TRANSPORT", "tcp")]);
    }
}

#[test]
fn ranks_may_be_left_out_that_are_well() {
    let over = Barrier::new(5);
    with_ranks(5, &config(), |comm| {
        let rank = comm.rank();
        if rank % 2 == 0 {
            let some = comm.shrink(&[3, 1, 3], None).unwrap();
            assert_eq!((some.rank(), some.ranks()), (rank / 2, 3));
            assert_eq!(sum(&some, rank as u64), 6);
            let fewer = (rank > 0).then(|| some.shrink(&[0], None).unwrap());
            if let Some(fewer) = fewer {
                assert_eq!(sum(&fewer, rank as u64), 6);
            }
        }
        over.wait();
        assert_eq!(sum(comm, rank as u64), 10, "the parent goes on");
        // Nobody is gone, so that all are in it.
        assert_eq!(sum(&comm.shrink(&[], None).unwrap(), 1), 5);
        over.wait();
    });
}

#[test]
fn revoking_ends_what_runs_and_leaves_it_for_shrinking() {
    with_ranks(3, &config(), |comm| {
        let error = match comm.rank() {
            2 => {
                comm.revoke();
                comm.barrier().unwrap_err()
            }
            _ => until_it_fails(comm),
        };
        assert!(
            matches!(
                error,
                Error::Failed(Cause::Revoked { rank: 2 }) | Error::Closed(Cause::Revoked { rank: 2 })
            ),
            "{error:?}"
        );
        assert!(comm.failure().unwrap().to_string().contains("rank 2 revoked"));
        if comm.rank() != 2 {
            assert_eq!(sum(&comm.shrink(&[2], None).unwrap(), 1), 2);
        }
    });
}

#[test]
fn ranks_that_exclude_different_ones_do_not_wait_for_ever() {
    let over = Barrier::new(4);
    with_ranks(4, &config(), |comm| {
        let mut short = config();
        short.timeout = Some(Duration::from_secs(1));
        // Who comes late at a shrink that has failed for the others meets them when they try again.
        if comm.rank() == 2 {
            thread::sleep(Duration::from_millis(1300));
        }
        if comm.rank() < 3 {
            let mut tries = (0..10).map(|_| comm.shrink(&[3], Some(&short)));
            let some = tries.find_map(|made| {
                made.inspect_err(|error| println!("{}: {error}", comm.rank()))
                    .ok()
            });
            let some = some.expect("one of ten tries");
            assert_eq!(sum(&some, 1), 3);
        }
        over.wait();
        let excluded = match comm.rank() {
            0 => Some([2, 3]),
            1 => Some([0, 3]),
            2 => Some([1, 3]),
            _ => None,
        };
        if let Some(excluded) = excluded {
            let error = comm.shrink(&excluded, Some(&short)).unwrap_err();
            let Error::InitTimeout { what } = error else {
                panic!("{error:?}")
            };
            let left = (0..4)
                .filter(|rank| !excluded.contains(rank))
                .map(|rank| rank.to_string());
            let left = left.collect::<Vec<_>>().join(", ");
            assert!(
                what.contains(&format!("(ranks {left} of the parent are")),
                "{what}"
            );
        }
        over.wait();
        if comm.rank() < 3 {
            let some = comm.shrink(&[3], None).unwrap();
            assert_eq!(sum(&some, 1), 3, "it can be tried again");
        }
        over.wait();
    });
}

#[test]
fn a_survivor_that_dies_meanwhile_is_named() {
    let mut all = Rank::start_all(3, &[], "survive/1/1");
    assert!(all.iter_mut().all(|rank| rank.said() == "begun"));
    // Rank 2 is there, but goes nowhere: the other waits for it.
    let stopped = rustix::process::Pid::from_child(&all[2].child);
    rustix::process::kill_process(stopped, rustix::process::Signal::STOP).unwrap();
    all[1].child.kill().unwrap();
    thread::sleep(Duration::from_millis(500));
    all[2].child.kill().unwrap();
    let status = all[0].child.wait().unwrap();
    assert!(!status.success());
    let log = all[0].log();
    assert!(log.contains("rank 2 of the parent was lost"), "{log}");
}

/// The one that goes on has left it out from the beginning, so that the other looks in vain for the meeting of all three.
#[test]
fn a_rank_that_leaves_while_others_shrink_is_left_out() {
    for aborts in [false, true] {
        let id = UniqueId::new().unwrap();
        let (id, has_left) = (&id, &Barrier::new(2));
        let shrunk = |comm: Communicator| {
            let some = comm.shrink(&[], None).unwrap();
            assert_eq!((some.rank(), some.ranks()), (comm.rank(), 2));
            assert_eq!(sum(&some, 1), 2);
        };
        thread::scope(|scope| {
            let init = |rank| Communicator::init(3, id, rank, &config()).unwrap();
            scope.spawn(move || {
                let comm = init(0);
                has_left.wait();
                shrunk(comm);
            });
            scope.spawn(move || shrunk(init(1)));
            scope.spawn(move || {
                let comm = init(2);
                // Rank 1 is on its way by then; if it is not, there is less to see.
                thread::sleep(Duration::from_millis(300));
                if aborts {
                    comm.abort();
                }
                drop(comm);
                has_left.wait();
            });
        });
    }
}

/// On the rank where they meet, and on one that looks for it: the other one never comes.
#[test]
fn an_abort_ends_a_shrink() {
    for aborts in [0, 1] {
        let over = Barrier::new(2);
        let errors = with_ranks(2, &config(), |comm| {
            let error = (comm.rank() == aborts).then(|| {
                thread::scope(|scope| {
                    let shrunk = scope.spawn(|| comm.shrink(&[], None).map(drop));
                    thread::sleep(Duration::from_millis(300)); // if it has not begun by then, there is less to see
                    comm.abort();
                    shrunk.join().unwrap()
                })
            });
            over.wait();
            error
        });
        let Some(Err(Error::Init { what })) = &errors[aborts] else {
            panic!("{errors:?}")
        };
        let wanted = format!("rank {aborts} aborted the parent communicator");
        assert!(what.contains(&wanted), "{what}");
    }
}

/// Where the ranks meet, and on one that would go there.
#[test]
fn nothing_is_made_of_what_was_aborted() {
    for (ranks, aborts) in [(1, 0), (2, 0), (2, 1)] {
        let (ready, over) = (Barrier::new(ranks), Barrier::new(ranks));
        let errors = with_ranks(ranks, &config(), |comm| {
            ready.wait();
            let shrunk = (comm.rank() == aborts).then(|| {
                comm.abort();
                comm.shrink(&[], None)
            });
            over.wait(); // the other one is still there
            shrunk.map(|shrunk| shrunk.map(drop))
        });
        let Some(Err(Error::Init { what })) = &errors[aborts] else {
            panic!("{errors:?}")
        };
        let wanted = format!("rank {aborts} aborted the parent communicator");
        assert!(what.contains(&wanted), "{what}");
    }
}

/// Short ones, which the caller sends by itself, and long ones, where nothing was sent before.
#[test]
fn a_send_to_a_rank_that_is_lost_says_what_it_was() {
    for (transport, bytes) in [("shm", 1), ("shm", 1 << 20), ("tcp", 1), ("tcp", 1 << 20)] {
        let settings = [("CCL_TRANSPORT", transport)];
        let id = UniqueId::new().unwrap();
        let mut gone = Rank::start(&id, 2, 1, &settings, "sends//1");
        let process = gone.child.id();
        let mut sends = Rank::start(&id, 2, 0, &settings, &format!("sends/{process}/{bytes}"));
        assert_eq!([sends.said(), gone.said()], ["begun"; 2]);
        drop(gone);
        let said = sends.said();
        let wanted = format!("rank 1 was lost (its process {process} ended)");
        assert!(said.contains(&wanted), "{said}");
        let call = format!("in send({bytes} x uint8 to rank 1, tag 0)");
        assert!(said.contains(&call), "{transport}, {bytes} bytes: {said}");
    }
}

/// Others hear of an abort though a process is stopped by which they would: the lowest rank, or one between that and who aborts.
#[test]
fn an_abort_is_heard_past_a_stopped_rank() {
    for (ranks, stopped, aborts, role) in [(4, 0, 1, "past"), (10, 1, 9, "past"), (4, 0, 1, "apart")] {
        let mut all = Rank::start_all(ranks, &[], &format!("{role}//{aborts}"));
        assert!(all.iter_mut().all(|rank| rank.said() == "begun"));
        let pid = rustix::process::Pid::from_child(&all[stopped].child);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        for rank in (0..ranks).filter(|&rank| rank != stopped) {
            let (said, wanted) = (all[rank].said(), format!("rank {aborts} aborted"));
            assert!(said.contains(&wanted), "{rank} of {ranks}: {said}");
        }
    }
}

#[test]
fn it_grows_and_shrinks_and_grows() {
    let ids = std::sync::Mutex::new(Vec::<(UniqueId, usize)>::new());
    thread::scope(|scope| {
        let joins = |id: UniqueId, ranks: usize, rank: usize| {
            scope.spawn(move || {
                let comm = Communicator::init(ranks, &id, rank, &config()).unwrap();
                assert_eq!(sum(&comm, 1) as usize, ranks);
            })
        };
        with_ranks(2, &config(), |comm| {
            if comm.rank() == 1 {
                // The new ones come first, and wait.
                let id = UniqueId::from_bytes(comm.grow_id().unwrap().to_bytes()).unwrap();
                for rank in [2, 3] {
                    joins(id.clone(), 4, rank);
                }
                thread::sleep(Duration::from_millis(100));
            }
            let four = comm.grow(4, None).unwrap();
            assert_eq!((four.rank(), four.ranks()), (comm.rank(), 4));
            assert_eq!(sum(&four, 1), 4);
            assert_eq!(sum(comm, 1), 2, "the smaller one goes on");
            let two = four.shrink(&[2, 3], None).unwrap();
            if two.rank() == 0 {
                ids.lock().unwrap().push((two.grow_id().unwrap(), 3));
                joins(two.grow_id().unwrap(), 3, 2);
            }
            let three = two.grow(3, None).unwrap();
            assert_eq!(sum(&three, 1), 3);
        });
    });
    let (id, ranks) = ids.into_inner().unwrap().pop().unwrap();
    let mut short = Config::default();
    short.timeout = Some(Duration::from_millis(700));
    let late = Communicator::init(ranks, &id, 2, &short).unwrap_err().to_string();
    assert!(late.contains("has made its communicator already"), "{late}");
}

#[test]
fn who_comes_late_to_what_has_failed_is_told_why() {
    let over = Barrier::new(3);
    with_ranks(3, &config(), |comm| {
        let mut ring = config();
        ring.algorithm = Some("ring".to_owned());
        let settings = (comm.rank() == 1).then_some(&ring);
        let grow = || comm.grow(3, settings);
        let shrink = || comm.shrink(&[], settings);
        let ways: [&dyn Fn() -> ccl::Result<Communicator>; 2] = [&grow, &shrink];
        let is_told = |error: Error| {
            assert!(
                matches!(&error, Error::Init { what } if what.starts_with("the ranks' settings differ: algorithm is ")),
                "{error:?}"
            );
        };
        let id = comm.grow_id().unwrap();
        for made in ways {
            if comm.rank() == 2 {
                over.wait();
            }
            is_told(made().unwrap_err());
            if comm.rank() != 2 {
                over.wait();
            }
            over.wait();
        }
        if comm.rank() == 2 {
            is_told(Communicator::init(4, &id, 3, &config()).unwrap_err());
        }
        over.wait();
        assert_eq!(sum(&comm.grow(3, None).unwrap(), 1), 3);
        assert_eq!(sum(&comm.shrink(&[], None).unwrap(), 1), 3);
    });
}

#[test]
fn who_makes_a_communicator_and_who_calls_something_else_are_told_of_each_other() {
    let over = Barrier::new(2);
    with_ranks(2, &config(), |comm| {
        let mut short = config();
        short.timeout = Some(Duration::from_secs(1));
        if comm.rank() == 0 {
            let error = comm.grow(2, Some(&short)).unwrap_err().to_string();
            assert!(
                error.contains("; in the parent rank 1 waits in call #0 barrier()"),
                "{error}"
            );
        }
        comm.barrier().unwrap();
        // What one has tried alone does not keep them from one another.
        let grow = || comm.grow(2, None);
        let shrink = || comm.shrink(&[], None);
        let ways: [&dyn Fn() -> ccl::Result<Communicator>; 2] = [&grow, &shrink];
        for make in ways {
            // Who comes long before the other is told of what that one has tried before.
            let made = make().or_else(|_| make()).unwrap();
            assert_eq!(sum(&made, 1), 2);
        }
        let error = match comm.rank() {
            0 => comm.grow(2, None).unwrap_err().to_string(),
            _ => {
                comm.set_timeout(Duration::from_secs(1));
                comm.barrier().unwrap_err().to_string()
            }
        };
        let both = "rank 0 stayed silent: rank 1 waited 1.0 s in call #1 barrier(); rank 0 waits for others to make a \
                    communicator of this one";
        assert!(error.contains(both), "{error}");
        over.wait();
    });
}

#[test]
fn a_new_rank_does_not_wait_for_a_rank_0_that_has_died() {
    let mut parent = Rank::start_all(1, &[], "parent//").pop().unwrap();
    assert_eq!(parent.said(), "begun");
    let id = id_of(&parent.said());
    parent.child.kill().unwrap();
    parent.child.wait().unwrap();
    let error = Communicator::init(2, &id, 1, &config()).unwrap_err();
    assert!(
        matches!(&error, Error::Init { what } if what.starts_with("rank 0 ended before all ranks had joined")),
        "{error:?}"
    );
}

#[test]
fn what_cannot_be_is_refused() {
    with_ranks(2, &config(), |comm| {
        let rank = comm.rank();
        let strange = said(comm.shrink(&[2], None));
        assert!(
            strange.contains("rank 2 cannot be excluded: this communicator has ranks 0 to 1"),
            "{strange}"
        );
        let own = said(comm.shrink(&[rank], None));
        assert!(own.contains("excludes itself"), "{own}");
        let fewer = said(comm.grow(1, None));
        assert!(fewer.contains("1 ranks are fewer than the 2"), "{fewer}");
        assert_eq!(sum(comm, 1), 2);
        comm.revoke();
        let grown = comm.grow(3, None).unwrap_err();
        assert!(matches!(grown, Error::Closed(Cause::Revoked { .. })), "{grown:?}");
        assert!(matches!(comm.grow_id(), Err(Error::Closed(_))));
    });
}
