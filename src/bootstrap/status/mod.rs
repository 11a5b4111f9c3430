//! Looking into a running process: which communicators it has, what each of their ranks is in, and who is behind.
//!
//! ```text
//! answer    a process is asked: a short-lived thread of its asks the other ranks, as who waits for them does, and tells
//! look      asks a process of this host and this user, by its number, or one where it listens
//! ```
//!
//! The way in is the Unix socket of the process's control thread, whose name the system tells those who may look into the
//! process. Who is at the other end the system says, too, so that no secret is needed. By TCP who has the user's secret is
//! answered, if the process has it as well; the answer is encrypted.

#[cfg(feature = "cli")]
pub(crate) mod look;

use super::{
    health::{Health, Peer, Shared},
    membership::{ASK, ask},
    messages::Waits,
    seat::Table,
};
use crate::{
    net::{Channel, Connection, Failure, Packed, Patience, Protection, Role, Secret, Target},
    sys::{
        host,
        per_process::PerProcess,
        thread::{spawn_quiet, stack},
    },
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread::{Builder, scope},
    time::{Duration, Instant},
};

/// What a process tells.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Report {
    /// The library's.
    pub(crate) version: String,
    pub(crate) host: String,
    pub(crate) pid: u32,
    pub(crate) communicators: Vec<Group>,
}

/// A communicator in which a process has ranks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Group {
    /// The beginning of its name.
    pub(crate) name: String,
    pub(crate) ranks: u32,
    /// The ranks of the process, the first of which has asked the others.
    pub(crate) here: Vec<u32>,
    /// Whether all ranks have come; else only those of the process are known.
    pub(crate) joined: bool,
    /// What stopped it.
    pub(crate) failure: Option<String>,
    /// All ranks in their order.
    pub(crate) seen: Vec<Seen>,
}

/// A rank.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) rank: u32,
    pub(crate) host: String,
    pub(crate) pid: u32,
    pub(crate) standing: Standing,
}

/// What a rank is up to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Standing {
    Answers(Box<Waits>),
    /// Its process says nothing: why, as far as is known.
    Silent(String),
    /// There was no time to ask it.
    Unasked,
    Left,
    Lost(String),
}

/// A rank of this process, as the control thread knows it.
pub(super) struct Inside {
    pub(super) shared: Arc<Shared>,
    pub(super) secret: Secret,
    pub(super) protection: Protection,
    pub(super) table: Option<Arc<Table>>,
}

/// What stands for a secret where the system says who somebody is.
pub(super) fn known_secret() -> Secret {
    Secret::new(b"whoever comes in here may look!!")
}

/// One of the answers that are given at once.
struct Place(&'static AtomicUsize);

impl Place {
    /// `None` while there are too many.
    fn take() -> Option<Place> {
        static TAKEN: PerProcess<AtomicUsize> = PerProcess::new();
        let Ok(taken) = TAKEN.get_or_try_init(|| Ok::<_, Infallible>(AtomicUsize::new(0)));
        let place = Place(taken);
        (taken.fetch_add(1, Relaxed) < AT_ONCE).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Tells whoever is at the other end of `connection` how the communicators of these ranks are doing. Where many ask at once, or
/// there is no thread to be had, the connection ends: they may try again.
pub(super) fn answer(connection: Connection, insides: Vec<Inside>) {
    let Some(place) = Place::take() else { return };
    let work = Some((Channel::new(connection), insides, place));
    let _ = spawn_quiet(c"ccl-status", work, |work| {
        if let Some((mut channel, insides, _place)) = work.take() {
            let mut report = report(insides);
            let patience = Patience::new(Instant::now() + ALL, &|| false);
            // Who does not wait for the answer does without.
            let packed = Packed::message(&report).or_else(|_| {
                shorten(&mut report);
                Packed::message(&report)
            });
            let _ = packed.map(|packed| patience.send(&mut channel, packed));
        }
    });
}

fn report(insides: Vec<Inside>) -> Report {
    let mut groups: BTreeMap<_, Vec<Inside>> = BTreeMap::new();
    for inside in insides {
        groups.entry(inside.shared.key.comm).or_default().push(inside);
    }
    let until = Instant::now() + ALL;
    Report {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: host::name(),
        pid: host::pid(),
        communicators: groups.into_values().map(|ours| group(ours, until)).collect(),
    }
}

/// How the communicator of these ranks is doing.
fn group(mut ours: Vec<Inside>, until: Instant) -> Group {
    ours.sort_by_key(|inside| inside.shared.key.rank);
    let asker = &ours[0]; // a group has one at least
    let health = Health(asker.shared.clone());
    let own = |rank: u32| ours.iter().find(|inside| inside.shared.key.rank == rank);
    let table = ours.iter().find_map(|inside| inside.table.as_ref());
    let ranks: Vec<u32> = match table {
        Some(_) => (0..asker.shared.ranks).collect(),
        None => ours.iter().map(|inside| inside.shared.key.rank).collect(),
    };
    let standing = |rank: u32| {
        if let Some(inside) = own(rank) {
            return Standing::Answers(Box::new(inside.shared.waits()));
        }
        match health.peer(rank as usize) {
            Peer::Left { .. } => Standing::Left,
            Peer::Dead { how, .. } => Standing::Lost(how),
            Peer::Alive if Instant::now() >= until => Standing::Unasked,
            Peer::Alive => match table {
                Some(table) => elsewhere(asker, table, rank, until),
                None => Standing::Unasked,
            },
        }
    };
    let seen = |&rank: &u32| {
        let place = table.and_then(|table| table.place(rank));
        let mut standing = standing(rank);
        if let Standing::Answers(waits) = &mut standing
            && (own(rank).is_none() || ours.len() > ALL_TOLD)
        {
            trim(waits, asker.shared.ranks as usize);
        }
        Seen {
            rank,
            host: place.map_or_else(host::name, |(_, host)| host.name.clone()),
            pid: place.map_or_else(host::pid, |(seat, _)| seat.pid),
            standing,
        }
    };
    Group {
        name: asker.shared.name.clone(),
        ranks: asker.shared.ranks,
        here: ours.iter().map(|inside| inside.shared.key.rank).collect(),
        joined: table.is_some(),
        failure: health.verdict().map(|cause| cause.to_string()),
        seen: several(&ranks, HELPERS, seen),
    }
}

/// What the process of another rank says.
fn elsewhere(asker: &Inside, table: &Table, rank: u32, until: Instant) -> Standing {
    let key = asker.shared.key;
    let Ok(secret) = table.secret_of(rank, &asker.secret) else {
        return Standing::Unasked;
    };
    let target = Target {
        addresses: table.addresses(key.rank, rank),
        role: Role::Ask,
        from: key.rank,
        to: rank,
        comm: key.comm,
        secret,
        protection: asker.protection,
    };
    match ask(&target, until.min(Instant::now() + ASK), &|| false) {
        Ok(waits) => Standing::Answers(Box::new(waits)),
        Err(Failure::Late) => Standing::Silent("its process does not answer: it may be stopped".to_owned()),
        Err(Failure::Dial(e)) => Standing::Silent(e.how()),
        Err(e) => Standing::Silent(e.to_string()),
    }
}

/// Keeps what matters of one of many ranks, so that an answer about thousands is not too long.
fn trim(waits: &mut Waits, ranks: usize) {
    let most = (TOLD_IN_ALL / ranks.max(1)).clamp(1, MOST_TOLD);
    let (newest, waits_in) = (waits.newest(), waits.waits_in);
    let under_way = waits.records.iter().filter(|record| record.is_under_way());
    let mut surplus = under_way.count().saturating_sub(most);
    waits.records.retain(|record| {
        let waits_in = record.is_under_way() && Some(record.operation) == waits_in;
        if waits_in || (record.call().is_some() && record.call() == newest.as_ref()) {
            return true;
        }
        let is_kept = record.is_under_way() && surplus == 0;
        surplus -= usize::from(record.is_under_way() && surplus > 0);
        is_kept
    });
    waits.ways.clear();
    waits.elsewhere = None;
    waits.stopped = None; // the asker's own is told
    waits.ranks.truncate(most);
}

/// Keeps what matters most of each rank, where there are very many communicators.
fn shorten(report: &mut Report) {
    let all = (report.communicators.iter_mut()).flat_map(|group| &mut group.seen);
    for seen in all {
        if let Standing::Answers(waits) = &mut seen.standing {
            trim(waits, TOLD_IN_ALL);
        }
    }
}

/// Does `body` with each of `all`, several at a time, and gives what came of them in their order.
pub(crate) fn several<A: Sync, T: Send>(all: &[A], at_once: usize, body: impl Fn(&A) -> T + Sync) -> Vec<T> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        loop {
            let at = next.fetch_add(1, Relaxed);
            let Some(one) = all.get(at) else { return };
            let came = body(one);
            done.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(at, came);
        }
    };
    scope(|scope| {
        for _ in 1..all.len().min(at_once) {
            // With fewer it takes longer.
            let _ = Builder::new()
                .name("ccl-status".to_owned())
                .stack_size(stack())
                .spawn_scoped(scope, work);
        }
        work();
    });
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.into_values().collect()
}

/// Answers that a process gives at once.
const AT_ONCE: usize = 4;
/// Ranks that are asked at once.
const HELPERS: usize = 8;
/// How long asking all ranks may take.
const ALL: Duration = Duration::from_secs(3);
/// Operations under way that are told of each rank of other processes, and ranks that it waits for, at most; and of all together.
const MOST_TOLD: usize = 16;
const TOLD_IN_ALL: usize = 1 << 15;
/// Ranks of a process of which all is told.
const ALL_TOLD: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        bootstrap::messages::Elsewhere,
        record::{Record, State},
        transport::links::Way,
        types::{Call, Collective, DType, Op},
    };
    use std::time::SystemTime;

    /// The newest call is told whatever else is under way, and thousands of ranks fit an answer.
    #[test]
    fn what_is_told_of_many_ranks_is_short() {
        let call = |seq| Call {
            seq,
            collective: Collective::AllReduce,
            count: u64::MAX,
            dtype: DType::Float64,
            op: Op::Sum,
        };
        let record = |seq, state: &State| Record {
            operation: call(seq).into(),
            message: None,
            algorithm: Some("halving".into()),
            bytes: u64::MAX,
            began: SystemTime::now(),
            state: state.clone(),
        };
        let under_way = State::UnderWay {
            since: Duration::MAX,
            done: u64::MAX,
        };
        let over = State::Done { took: None };
        let mut waits = Waits {
            ranks: (0..8192).collect(),
            waits_in: Some(call(60).into()),
            makes: false,
            still: Some(Duration::MAX),
            elsewhere: Some(Elsewhere {
                communicator: "another".to_owned(),
                waits_in: call(60).into(),
                ranks: (0..8192).collect(),
                still: Duration::MAX,
            }),
            stopped: None,
            records: vec![record(99, &over)],
            ways: vec![[Way::Shm; 2]; 1024],
        };
        waits.records.extend((30..98).map(|seq| record(seq, &under_way)));
        let record_of_60 = waits.records[31].clone();
        assert_eq!(Some(record_of_60.operation), waits.waits_in);
        trim(&mut waits, 8192);
        assert_eq!(waits.newest().map(|call| call.seq), Some(99));
        assert!(waits.records.contains(&record_of_60));
        let seen = |rank| Seen {
            rank,
            host: "a-host-with-a-long-name-0123456789".to_owned(),
            pid: u32::MAX,
            standing: Standing::Answers(Box::new(waits.clone())),
        };
        let group = Group {
            name: "01234567".to_owned(),
            ranks: 8192,
            here: vec![0],
            joined: true,
            failure: None,
            seen: (0..8192).map(seen).collect(),
        };
        let report = Report {
            version: "0.1.0".to_owned(),
            host: "here".to_owned(),
            pid: 1,
            communicators: vec![group],
        };
        assert!(Packed::message(&report).is_ok());
    }

    #[test]
    fn several_are_done_in_their_order() {
        let all: Vec<u32> = (0..100).collect();
        assert_eq!(
            several(&all, 8, |one| one * 2),
            all.iter().map(|one| one * 2).collect::<Vec<_>>()
        );
        assert!(several(&[0; 0], 8, |one| *one).is_empty());
    }
}
