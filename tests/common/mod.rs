//! What the integration tests share: ranks as threads of one process.
#![allow(dead_code, missing_docs)] // each test uses a part of it

use ccl::{Communicator, Config, UniqueId};
use std::{thread, time::Duration};

/// A configuration whose waits end soon enough for a test, and late enough for a busy machine.
pub(crate) fn config() -> Config {
    let mut config = Config::default();
    config.timeout = Some(Duration::from_secs(60));
    config
}

/// Runs `body` as each of `ranks` ranks, a thread each, and returns what they returned, by rank.
pub(crate) fn with_ranks<T: Send>(
    ranks: usize,
    config: &Config,
    body: impl Fn(&Communicator) -> T + Sync,
) -> Vec<T> {
    let id = UniqueId::new().expect("a unique id");
    thread::scope(|scope| {
        let run = |rank| {
            let (id, body) = (&id, &body);
            scope.spawn(move || body(&Communicator::init(ranks, id, rank, config).expect("init")))
        };
        let threads: Vec<_> = (0..ranks).map(run).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a rank's thread"))
            .collect()
    })
}
