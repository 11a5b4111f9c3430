//! A rank whose process becomes another program.

mod common;

use ccl::{Communicator, Op};
use common::{
    config,
    process::{Rank, role, say},
};
use std::{
    os::unix::process::CommandExt,
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// In the process of a rank, when a test has started it as one.
#[test]
fn roles() {
    let Some((victim, id, ranks, rank)) = role() else {
        return;
    };
    let comm = Communicator::init(ranks, &id, rank, &config()).unwrap();
    let sum = |comm: &Communicator| comm.all_reduce_in_place(&mut [1u32; 1000], Op::Sum);
    sum(&comm).unwrap();
    say("begun");
    if victim == rank.to_string() {
        thread::sleep(Duration::from_millis(300)); // the others wait for it by then
        panic!("{}", Command::new("sleep").arg("100").exec());
    }
    let error = loop {
        if let Err(error) = sum(&comm) {
            break error;
        }
    };
    say(error);
}

/// The first of four, whom others dial, one that has both, and the last.
#[test]
fn is_lost_though_its_process_goes_on() {
    for transport in ["shm", "tcp"] {
        for victim in [0, 1, 3] {
            let mut ranks = Rank::start_all(4, &[("CCL_TRANSPORT", transport)], &victim.to_string());
            assert!(ranks.iter_mut().all(|rank| rank.said() == "begun"));
            let began = Instant::now();
            for survivor in (0..4).filter(|&rank| rank != victim) {
                let said = ranks[survivor].said();
                let lost = format!("rank {victim} was lost");
                assert!(said.contains(&lost), "{transport}, {survivor}: {said}");
            }
            let took = began.elapsed();
            println!("{transport}: rank {victim} became another program, told {took:.1?} later");
            assert!(took < Duration::from_secs(30), "{took:?}"); // of 60 s until the deadline
            let process = &mut ranks[victim].child;
            assert!(process.try_wait().unwrap().is_none(), "it has ended");
        }
    }
}
