//! Ranks, as threads, that meet on one host; and strangers who come to the same place.

use super::*;
use crate::{
    bootstrap::{Joining, Membership, Network, join},
    net::{Parcel, Presence, Protection},
    sys::{fork::ProcessFd, socket},
};
use rustix::io::Errno;
use std::{
    io::IoSlice,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32},
    },
    thread,
};

/// Longer than any test should take on a busy machine.
const LONG: Duration = Duration::from_secs(60);
/// A deadline that passes.
const SHORT: Duration = Duration::from_secs(2);

/// The launches of a job of its own, by rank.
fn job(ranks: usize) -> Vec<Launch> {
    static JOBS: AtomicU32 = AtomicU32::new(0);
    let name = format!("{}-{}", std::process::id(), JOBS.fetch_add(1, Relaxed));
    (0..ranks).map(|rank| rank_of(&name, rank, ranks)).collect()
}

fn rank_of(job: &str, rank: usize, ranks: usize) -> Launch {
    let look_up = |name: &str| match name {
        "RANK" => Some(rank.to_string()),
        "WORLD_SIZE" => Some(ranks.to_string()),
        "TORCHELASTIC_RUN_ID" => Some(job.to_owned()),
        _ => None,
    };
    Launch::read(&Variables::of(&look_up), std::iter::empty())
        .unwrap()
        .expect("a launch")
}

/// Does what init does.
fn arrive(launch: &Launch, turn: Turn, timeout: Duration) -> Result<Membership> {
    meet(launch, turn, timeout, |id, left| {
        join(Joining {
            child: None,
            called: None,
            id,
            ranks: launch.ranks,
            rank: launch.rank,
            timeout: left,
            knobs: Vec::new(),
            told: Vec::new(),
            has_wire: false,
            welcome: Parcel::default(),
            network: Network::Never,
            presence: Presence::default(),
            protection: Protection::Off,
            rails: None,
            wake: Arc::new(|| ()),
            went: &AtomicBool::new(false),
        })
    })
}

/// What came of each of `launches`, a thread each.
fn arrive_all(launches: &[Launch], timeout: Duration) -> Vec<Result<Membership>> {
    thread::scope(|s| {
        let arrive = |launch| s.spawn(move || arrive(launch, Turn(0), timeout));
        let threads: Vec<_> = launches.iter().map(arrive).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn text(outcome: Result<Membership>) -> String {
    outcome.map(|member| member.rank()).unwrap_err().to_string()
}

#[test]
fn a_turn_in_which_nobody_came_is_the_next_ones() {
    let turns = Turns::new();
    let take = || turns.take().0;
    let again = |turn| turns.give_back(Turn(turn));
    // One after the other.
    for _ in 0..2 {
        assert_eq!(take(), 0);
        again(0);
    }
    // At once, in any order.
    for late in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        assert_eq!([take(), take(), take()], [0, 1, 2]);
        late.into_iter().for_each(again);
    }
    // A later one met the others, who have made the one before in vain.
    assert_eq!([take(), take()], [0, 1]);
    again(0);
    assert_eq!(take(), 2);
    again(2);
    assert_eq!(take(), 2);
}

/// Connects to where the ranks meet, once somebody listens there.
fn come_to(place: &str) -> ProcessFd {
    let deadline = Instant::now() + LONG;
    loop {
        match socket::dial(place.as_bytes()) {
            Ok(stream) => return stream,
            Err(Errno::CONNREFUSED | Errno::AGAIN) if Instant::now() < deadline => thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn ranks_meet_without_port_and_secret() {
    for ranks in [1, 2, 5] {
        let mut members: Vec<_> = arrive_all(&job(ranks), LONG)
            .into_iter()
            .map(Result::unwrap)
            .collect();
        members.sort_by_key(|member| member.rank());
        assert_eq!(
            members.iter().map(|member| member.rank()).collect::<Vec<_>>(),
            (0..ranks).collect::<Vec<_>>()
        );
        assert!(
            members
                .iter()
                .all(|member| member.ranks() == ranks && !member.trouble())
        );
    }
}

#[test]
fn each_turn_is_a_meeting_of_its_own() {
    let launches = job(3);
    thread::scope(|s| {
        for launch in &launches {
            s.spawn(move || {
                // A rank may be a turn ahead of the others.
                let members = [0, 1, 2].map(|turn| arrive(launch, Turn(turn), LONG).unwrap());
                assert!(members.iter().all(|member| !member.trouble()));
            });
        }
    });
    let [a, b] = [0, 1].map(|turn| place(&launches[0], Turn(turn)));
    assert_ne!(a, b);
    assert_eq!(a, place(&launches[2], Turn(0)), "the same for all ranks");
}

#[test]
fn turns_count_calls() {
    let [a, b] = [Turn::take(), Turn::take()];
    assert!(b.0 > a.0);
}

#[test]
fn rank_0_may_be_late() {
    let launches = job(2);
    thread::scope(|s| {
        let early = s.spawn(|| arrive(&launches[1], Turn(0), LONG));
        thread::sleep(Duration::from_millis(300));
        let late = arrive(&launches[0], Turn(0), LONG).unwrap();
        let early = early.join().unwrap().unwrap();
        assert!(!late.trouble() && !early.trouble());
    });
}

#[test]
fn a_rank_that_does_not_come_is_named() {
    let launches = job(4);
    for outcome in arrive_all(&[launches[0].clone(), launches[3].clone()], SHORT) {
        let text = text(outcome);
        assert!(text.contains("2 of 4 ranks never came: 1, 2"), "{text}");
    }
    let launches = job(2);
    let text = text(arrive(&launches[1], Turn(0), SHORT));
    assert!(
        text.starts_with("init timed out after 2.0 s: rank 1 of 2 did not find rank 0"),
        "{text}"
    );
    assert!(text.contains("TORCHELASTIC_RUN_ID="), "{text}");
}

#[test]
fn a_rank_that_comes_twice_is_named() {
    let launches = job(3);
    let twice = [&launches[0], &launches[1], &launches[1]].map(Launch::clone);
    for outcome in arrive_all(&twice, LONG) {
        let text = text(outcome);
        assert!(text.contains("rank 1 came twice"), "{text}");
    }
}

#[test]
fn a_second_rank_0_is_told_so_and_does_no_harm() {
    let launches = job(2);
    thread::scope(|s| {
        let first = s.spawn(|| arrive(&launches[0], Turn(0), LONG));
        drop(come_to(&place(&launches[0], Turn(0))));
        let text = text(arrive(&launches[0], Turn(0), LONG));
        assert!(
            text.contains("a second rank 0 of the same job") && text.contains("MASTER_PORT"),
            "{text}"
        );
        assert!(arrive(&launches[1], Turn(0), LONG).is_ok());
        assert!(first.join().unwrap().is_ok());
    });
}

#[test]
fn different_numbers_of_ranks_are_told() {
    let name = format!("{}-numbers", std::process::id());
    let outcomes = arrive_all(&[rank_of(&name, 0, 3), rank_of(&name, 2, 4)], SHORT);
    let [zero, two] = <[_; 2]>::try_from(outcomes).ok().unwrap().map(text);
    let both = "rank 0 was told 3, rank 2 was told 4";
    assert!(two.contains(both), "{two}");
    assert!(
        zero.contains("never came: 1, 2; turned away: ") && zero.contains(both),
        "{zero}"
    );
}

#[test]
fn another_version_is_told_both() {
    let launches = job(2);
    let place = place(&launches[0], Turn(0));
    thread::scope(|s| {
        let zero = s.spawn(|| arrive(&launches[0], Turn(0), SHORT));
        let newer = Hello {
            version: VERSION + 1,
            ..hello(&launches[1])
        };
        let refused = knock(&place, geteuid().as_raw(), newer, Instant::now() + LONG)
            .unwrap_err()
            .to_string();
        let both = format!(
            "rank 1's library speaks version {} of the protocol, rank 0's version {VERSION}",
            VERSION + 1
        );
        assert!(refused.starts_with(&both), "{refused}");
        let zero = text(zero.join().unwrap());
        assert!(zero.contains(&both), "{zero}");
    });
}

/// 100 who say nothing and stay, 100 who say half of a hello, 100 who talk nonsense, 100 who leave at once.
#[test]
fn strangers_lock_nobody_out() {
    let launches = job(3);
    let place = place(&launches[0], Turn(0));
    thread::scope(|s| {
        let zero = s.spawn(|| arrive(&launches[0], Turn(0), LONG));
        let mut stay = Vec::new();
        for nonsense in 0..100u8 {
            stay.push(come_to(&place));
            for bytes in [&hello(&launches[1]).encode()[..9], &[nonsense; 200], &[]] {
                let stream = come_to(&place);
                // It may have been sent away.
                let _ = socket::send(&stream, &[IoSlice::new(bytes)], &[]);
                if !bytes.is_empty() {
                    stay.push(stream);
                }
            }
        }
        let others: Vec<_> = arrive_all(&launches[1..], LONG);
        assert!(others.iter().all(Result::is_ok));
        assert!(zero.join().unwrap().is_ok());
    });
    assert_eq!(
        socket::dial(place.as_bytes()).unwrap_err(),
        Errno::CONNREFUSED,
        "the door is closed"
    );
}

#[test]
fn nonsense_at_rank_0_s_place_is_not_believed() {
    let launches = job(2);
    let place = place(&launches[1], Turn(0));
    let listener = socket::listen(place.as_bytes()).unwrap();
    thread::scope(|s| {
        let one = s.spawn(|| arrive(&launches[1], Turn(0), LONG));
        let stream = loop {
            match socket::accept(&listener).unwrap() {
                Some(stream) => break stream,
                None => thread::yield_now(),
            }
        };
        socket::send(&stream, &[IoSlice::new(b"HTTP/1.1 200 OK\r\n")], &[]).unwrap();
        let text = text(one.join().unwrap());
        assert!(text.contains("does not speak ccl's protocol"), "{text}");
    });
}

#[test]
fn somebody_who_listens_and_says_nothing_ends_with_the_deadline() {
    let launches = job(2);
    let _listener = socket::listen(place(&launches[1], Turn(0)).as_bytes()).unwrap();
    let text = text(arrive(&launches[1], Turn(0), SHORT));
    assert!(text.contains("no answer from rank 0"), "{text}");
}

/// For whom this process's user is another one: as if somebody else had taken the name, or came as a guest.
#[test]
fn another_user_is_not_believed() {
    let launches = job(2);
    let name = place(&launches[0], Turn(0));
    let (me, other) = (geteuid().as_raw(), geteuid().as_raw() + 1);
    let (zero, one) = (hello(&launches[0]), hello(&launches[1]));
    let id = UniqueId::new().unwrap();
    let door = Door::open(&name, other, &id, zero).unwrap();
    let taken = Door::open(&name, other, &id, zero).err().unwrap().to_string();
    assert!(
        taken.starts_with(&format!("a process of user {me} has the name unix:@{name}")),
        "{taken}"
    );
    let text = knock(&name, other, one, Instant::now() + LONG)
        .unwrap_err()
        .to_string();
    assert!(
        text.contains(&format!(
            "listens a process of user {me}: nothing that it says is believed"
        )),
        "{text}"
    );
    // A guest gets no answer, not even a refusal.
    assert!(knock(&name, me, one, Instant::now() + SHORT).unwrap().is_err());
    assert_eq!(door.close(), Vec::<String>::new());
}

/// Rank 0 of a job that is started anew may come while the one before it is still ending.
#[test]
fn who_is_about_to_end_may_have_the_name() {
    let launches = job(2);
    let place = place(&launches[0], Turn(0));
    let before = socket::listen(place.as_bytes()).unwrap();
    thread::scope(|s| {
        let zero = s.spawn(|| arrive(&launches[0], Turn(0), LONG));
        thread::sleep(Duration::from_millis(300));
        drop(before);
        let one = s.spawn(|| arrive(&launches[1], Turn(0), LONG));
        let ranks = [zero, one].map(|rank| rank.join().unwrap().unwrap());
        assert_eq!(ranks.len(), 2);
    });
}

#[test]
fn several_hosts_need_what_the_error_says() {
    let look_up = |name: &str| match name {
        "RANK" => Some("1".to_owned()),
        "WORLD_SIZE" => Some("2".to_owned()),
        "MASTER_ADDR" => Some("10.0.0.1".to_owned()),
        _ => None,
    };
    let launch = Launch::read(&Variables::of(&look_up), std::iter::empty())
        .unwrap()
        .expect("a launch");
    let text = text(arrive(&launch, Turn(0), LONG));
    for part in [
        "(umask 077 && head -c 32 /dev/urandom | base64 > ~/.ccl-secret)",
        "export CCL_SECRET_FILE=~/.ccl-secret",
        "set LOCAL_WORLD_SIZE=2",
    ] {
        assert!(text.contains(part), "{text}");
    }
}
