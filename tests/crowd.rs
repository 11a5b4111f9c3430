//! Many more ranks than cores, each a process: they meet, their collectives are right, and the death of some reaches all.

mod common;

use ccl::{Cause, Communicator, Config, Error, Op};
use common::process::{Rank, role, say};
use std::time::{Duration, Instant};

const RANKS: usize = 200;

/// Waits that end on the slowest machine.
fn config() -> Config {
    let mut config = Config::default();
    config.timeout = Some(Duration::from_secs(120));
    config
}

/// What rank `from` has for rank `to`.
fn word(from: usize, to: usize) -> u32 {
    (1000 * from + to) as u32
}

fn sum(comm: &Communicator, one: usize) -> Result<u64, Error> {
    let mut sums = [one as u64; 3];
    comm.all_reduce_in_place(&mut sums, Op::Sum)?;
    assert_eq!(sums, [sums[0]; 3]);
    Ok(sums[0])
}

/// In the process of a rank, when a test has started it as one.
#[test]
fn roles() {
    let Some((role, id, ranks, rank)) = role() else {
        return;
    };
    let victims: Vec<usize> = role.split(',').map(|rank| rank.parse().unwrap()).collect();
    let comm = Communicator::init(ranks, &id, rank, &config()).unwrap();
    assert_eq!(sum(&comm, rank).unwrap(), (0..ranks as u64).sum::<u64>());
    let mut all = vec![0; ranks];
    comm.all_gather(&[word(rank, 7)], &mut all).unwrap();
    assert!((0..ranks).all(|from| all[from] == word(from, 7)));
    let sent: Vec<u32> = (0..ranks).map(|to| word(rank, to)).collect();
    comm.all_to_all(&sent, &mut all).unwrap();
    assert!((0..ranks).all(|from| all[from] == word(from, rank)));
    say("checked");
    if victims.contains(&rank) {
        loop {
            std::thread::park();
        }
    }
    let mut error = sum(&comm, rank).unwrap_err();
    say(&error);
    // Whoever has heard of one death may not have heard of all.
    let smaller = loop {
        assert!(
            matches!(
                error,
                Error::Failed(Cause::Lost { .. }) | Error::Closed(_) | Error::Init { .. }
            ),
            "{error:?}"
        );
        match comm.shrink(&[], None) {
            Ok(smaller) => break smaller,
            Err(again) => error = again,
        }
    };
    say(format!(
        "{} of {}: {}",
        smaller.rank(),
        smaller.ranks(),
        sum(&smaller, rank).unwrap()
    ));
}

/// A rank with ranks below it in the control tree, one of these, and one of those below that: who is left has been watching
/// hardly any of them.
#[test]
fn hundreds_of_ranks_meet_and_hear_of_deaths() {
    let victims = [2, 21, 173];
    let began = Instant::now();
    let mut ranks = Rank::start_all(RANKS, &[("CCL_DEBUG", "info")], "2,21,173");
    for rank in &mut ranks {
        assert_eq!(rank.said(), "checked");
    }
    let checked = began.elapsed();
    for victim in victims {
        ranks[victim].child.kill().unwrap();
    }
    let left: Vec<usize> = (0..RANKS).filter(|rank| !victims.contains(rank)).collect();
    let mut causes: Vec<String> = Vec::new();
    for &rank in &left {
        let said = ranks[rank].said();
        let named = victims
            .iter()
            .any(|victim| said.contains(&format!("rank {victim} was lost")));
        assert!(named, "rank {rank}: {said}");
        causes.push(said);
    }
    let told = began.elapsed() - checked;
    for (new, &old) in left.iter().enumerate() {
        let sum = left.iter().sum::<usize>();
        assert_eq!(ranks[old].said(), format!("{new} of {}: {sum}", left.len()));
    }
    let all = began.elapsed();
    println!(
        "checked after {checked:.1?}, told in {told:.1?}, gone on after {all:.1?}: {}",
        causes[0]
    );
    for &rank in &left {
        let _ = ranks[rank].child.wait();
        let log = ranks[rank].log();
        let init = "meeting place found";
        assert!(log.contains(init), "rank {rank}: {log}");
        // Its parent, at most 8 children, and the next rank; the same again where a neighbour died.
        let watched = log.lines().find_map(|line| line.split_once("control tree in "));
        let watched = watched.and_then(|(_, rest)| rest.split_once("; ")?.1.split_once(' '));
        let watched: usize = watched.unwrap_or_else(|| panic!("{log}")).0.parse().unwrap();
        assert!(watched <= 20, "rank {rank} watches {watched} others");
    }
}
