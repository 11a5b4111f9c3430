//! Communicators that are made and destroyed again and again: nothing grows, neither descriptors nor mappings, threads or memory.

mod common;

use ccl::{Communicator, Op, UniqueId};
use common::{
    config,
    process::{Rank, role, say},
};
use std::{
    env, fs, thread,
    time::{Duration, Instant},
};

/// Cycles after which a process has all that it ever will, and those after these; `CCL_TEST_CYCLES` asks for more.
const FIRST: usize = 100;
const FURTHER: usize = 300;
/// KiB by which the memory of allocators may grow, which keep what was given back.
const SLACK: usize = 512;

/// What a process holds.
#[derive(Debug, PartialEq, Clone, Copy)]
struct Held {
    descriptors: usize,
    mappings: usize,
    threads: usize,
    /// Of memory that is no file's.
    kib: usize,
}

impl Held {
    fn now() -> Held {
        // What is free and what an allocator keeps of it is not held.
        // SAFETY: it gives free memory back, and touches nothing that is in use.
        unsafe { libc::malloc_trim(0) };
        let entries = |folder: &str| fs::read_dir(folder).unwrap().count();
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let kib = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        Held {
            descriptors: entries("/proc/self/fd"),
            mappings: maps.lines().filter(|line| line.contains("memfd:ccl-")).count(),
            threads: entries("/proc/self/task"),
            kib: kib.unwrap().trim().trim_end_matches(" kB").parse().unwrap(),
        }
    }

    /// Whether no more is held than `before`.
    fn is_within(&self, before: &Held) -> bool {
        self.descriptors <= before.descriptors
            && self.mappings <= before.mappings
            && self.threads <= before.threads
            && self.kib <= before.kib + SLACK
    }
}

/// A communicator of its own for the ranks of `parent`, one call of each kind of way, and its end.
fn cycle(parent: &Communicator) {
    let (ranks, rank) = (parent.ranks(), parent.rank());
    let mut id = [0; 128];
    if rank == 0 {
        id = UniqueId::new().unwrap().to_bytes();
    }
    parent.broadcast_in_place(&mut id, 0).unwrap();
    let comm = Communicator::init(ranks, &UniqueId::from_bytes(id).unwrap(), rank, &config()).unwrap();
    let mut long = vec![1u32; 20_000];
    comm.all_reduce_in_place(&mut long, Op::Sum).unwrap();
    assert!(long.iter().all(|&x| x as usize == ranks));
    comm.barrier().unwrap();
}

/// Not a test by itself: what the processes do.
#[test]
fn roles() {
    let Some((_, id, ranks, rank)) = role() else {
        return;
    };
    let parent = Communicator::init(ranks, &id, rank, &config()).unwrap();
    let asked = env::var("CCL_TEST_CYCLES").map(|n| n.parse().unwrap());
    (0..FIRST).for_each(|_| cycle(&parent));
    let before = Held::now();
    (0..asked.unwrap_or(FURTHER)).for_each(|_| cycle(&parent));
    // The control thread lets go of what is over in its own time.
    let began = Instant::now();
    while !Held::now().is_within(&before) && began.elapsed() < Duration::from_secs(20) {
        thread::sleep(Duration::from_millis(10));
    }
    let after = Held::now();
    say(format!("{} {before:?}, then {after:?}", after.is_within(&before)));
}

#[test]
fn nothing_grows() {
    for transport in ["shm", "tcp"] {
        for mut rank in Rank::start_all(3, &[("CCL_TRANSPORT", transport)], "cycles") {
            let said = rank.said();
            println!("{transport}: {said}");
            assert!(said.starts_with("true"), "{transport}: {said}");
        }
    }
}
