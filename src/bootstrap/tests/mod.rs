//! Tests of init and of the control thread, with ranks as threads and as processes.

mod children;
mod crowds;
mod processes;
mod protected;
mod ranks;
mod refusals;
mod strangers;

use super::{Joining, Membership, Network, UniqueId, join};
use crate::{
    net::{Parcel, Presence, Protection},
    types::Error,
};
use std::{
    sync::{Arc, atomic::AtomicBool},
    thread,
    time::{Duration, Instant},
};

/// Longer than any test should take on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// An ordinary rank.
fn joining(id: &UniqueId, ranks: usize, rank: usize) -> Joining<'_> {
    Joining {
        id,
        child: None,
        called: None,
        ranks,
        rank,
        timeout: LONG,
        knobs: vec![("CCL_ALGO".into(), "ring".into())],
        told: vec![rank as u8],
        has_wire: false,
        welcome: Parcel {
            bytes: format!("welcome to {rank}").into_bytes(),
            ..Parcel::default()
        },
        network: Network::AsTheId,
        presence: Presence::default(),
        protection: Protection::Off,
        rails: None,
        wake: Arc::new(|| ()),
        went: &WENT,
    }
}

/// Who fails here excuses itself to nobody.
static WENT: AtomicBool = AtomicBool::new(false);

/// What each rank got that a thread of its own joined.
fn join_all(joinings: Vec<Joining<'_>>) -> Vec<Result<Membership, Error>> {
    thread::scope(|s| {
        let threads: Vec<_> = joinings.into_iter().map(|j| s.spawn(|| join(j))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

/// A communicator with a thread's join for each rank.
fn communicator(ranks: usize) -> Vec<Membership> {
    let id = UniqueId::new().unwrap();
    let joinings = (0..ranks).map(|rank| joining(&id, ranks, rank)).collect();
    join_all(joinings).into_iter().map(Result::unwrap).collect()
}

/// Waits for something that must come.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LONG, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(1));
    }
}
