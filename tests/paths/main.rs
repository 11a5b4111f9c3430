//! Every operation by every way that its messages can go through shared memory, each forced in turn: the results are right, and the
//! ranks' logs tell that this way was the one.

#[path = "../common/mod.rs"]
mod common;

mod case;
mod told;
mod typed;

use case::Case;
use ccl::{Collective, Communicator, DType, Op, UniqueId, algorithms};
use common::{
    config,
    process::{Rank, role, say},
    with_algorithm, with_ranks,
};
use rustix::process::{PTracer, set_ptracer};
use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Mutex,
};
use told::Told;

/// A way, and how it is forced.
struct Way {
    name: &'static str,
    settings: &'static [(&'static str, &'static str)],
    /// Whether the ranks are threads of one process.
    is_one_process: bool,
    /// Whether all buffers are of the kind that peers can read.
    is_shared: bool,
    sizes: Sizes,
}

/// Bytes of the vectors of calls, or of the longest blocks.
enum Sizes {
    /// Vectors whose messages lie in their entries, however they are cut.
    Inline,
    /// Up to a MiB, about each length from which on something else is done.
    All,
    /// So long that other threads help.
    Helped,
}

const WAYS: [Way; 6] = [
    Way {
        name: "inline",
        settings: &[("CCL_CMA", "off"), ("CCL_DIRECT", "off")],
        is_one_process: false,
        is_shared: false,
        sizes: Sizes::Inline,
    },
    Way {
        name: "fifo",
        settings: &[("CCL_CMA", "off"), ("CCL_DIRECT", "off")],
        is_one_process: false,
        is_shared: false,
        sizes: Sizes::All,
    },
    Way {
        name: "attach",
        settings: &[("CCL_CMA", "on"), ("CCL_DIRECT", "off")],
        is_one_process: false,
        is_shared: false,
        sizes: Sizes::All,
    },
    Way {
        name: "direct",
        settings: &[("CCL_CMA", "off"), ("CCL_DIRECT", "on")],
        is_one_process: false,
        is_shared: true,
        sizes: Sizes::All,
    },
    Way {
        name: "threads",
        settings: &[("CCL_CMA", "off"), ("CCL_DIRECT", "auto")],
        is_one_process: true,
        is_shared: false,
        sizes: Sizes::All,
    },
    Way {
        name: "helpers",
        settings: &[("CCL_THREADS", "3")],
        is_one_process: false,
        is_shared: false,
        sizes: Sizes::Helped,
    },
];

/// The numbers of ranks: a pair, and such as are no power of two.
const RANKS: [usize; 3] = [2, 3, 5];

/// Bytes from which on they are those of a vector, also where that has blocks.
const LONG: usize = 100_000;

/// One way at a time: each has more ranks than most machines have cores.
static ALONE: Mutex<()> = Mutex::new(());

impl Way {
    fn of(name: &str) -> &'static Way {
        WAYS.iter()
            .find(|way| way.name == name)
            .expect("the name of a way")
    }

    /// What is called on one communicator after the other: an operation, and the algorithm that is forced, if one is.
    fn groups(&self) -> Vec<(Collective, Option<&'static str>)> {
        let root = 1;
        let operations = [
            Collective::AllReduce,
            Collective::Broadcast { root },
            Collective::Reduce { root },
            Collective::AllGather,
            Collective::ReduceScatter,
            Collective::Gather { root },
            Collective::Scatter { root },
            Collective::AlltoAll,
            Collective::Barrier,
            Collective::AllGatherV,
            Collective::ReduceScatterV,
            Collective::GatherV { root },
            Collective::ScatterV { root },
            Collective::AlltoAllV,
        ];
        let forced = |operation| algorithms(operation).map(|(name, _)| Some(name));
        let all = operations.into_iter().flat_map(|operation| {
            let forced = forced(operation).filter(|_| !matches!(self.sizes, Sizes::Helped));
            let names = [None].into_iter().chain(forced);
            names.map(move |name| (operation, name)).collect::<Vec<_>>()
        });
        all.collect()
    }

    /// The lengths of the calls of the `k`-th group.
    fn bytes(&self, k: usize, is_forced: bool) -> Vec<usize> {
        let some = |all: &[usize], step: usize| all.iter().copied().skip(k % step).step_by(step).collect();
        let step = if is_forced { 6 } else { 1 };
        match self.sizes {
            Sizes::Inline => some(&[0, 1, 8, 24, 40, 41, 72, 104], step),
            Sizes::All => some(
                &[
                    0, 5, 16_392, 70_001, 40, 104, 33_001, 66_000, 105, 1000, 49_999, 131_072, 4097, 300_001,
                    16_376, 1_100_003,
                ],
                step,
            ),
            Sizes::Helped => vec![8_400_000],
        }
    }

    /// The calls of the `k`-th group among `n` ranks.
    fn cases(&self, (k, operation, is_forced): (usize, Collective, bool), n: usize) -> Vec<Case> {
        let mut random = fastrand::Rng::with_seed((n << 16 | k) as u64);
        let case = |(i, bytes): (usize, usize)| {
            // Among two ranks it is the other way round than among more.
            let is_in_place = (i + k + n).is_multiple_of(2);
            let dtype = loop {
                let dtype = *random.choice(&DType::ALL).unwrap();
                // What takes long is looked at faster with fewer elements.
                let least = if matches!(self.sizes, Sizes::Helped) { 8 } else { 4 };
                if bytes < LONG || dtype.size() >= least {
                    break dtype;
                }
            };
            let op = loop {
                let op = *random.choice(&Op::ALL).unwrap();
                if op.accepts(dtype) {
                    break op;
                }
            };
            let parts = match self.sizes {
                _ if !operation.has_blocks() => 1,
                Sizes::All if bytes < LONG => 1,
                _ => n,
            };
            let (root, count) = (random.u32(..n as u32), (bytes / parts).div_ceil(dtype.size()));
            let odd = usize::from(bytes > 1000 && random.bool());
            Case {
                collective: match operation {
                    Collective::Broadcast { .. } => Collective::Broadcast { root },
                    Collective::Reduce { .. } => Collective::Reduce { root },
                    Collective::Gather { .. } => Collective::Gather { root },
                    Collective::Scatter { .. } => Collective::Scatter { root },
                    Collective::GatherV { .. } => Collective::GatherV { root },
                    Collective::ScatterV { .. } => Collective::ScatterV { root },
                    other => other,
                },
                dtype,
                op: random.u8(..9).checked_sub(1).map(|_| op),
                count: count | odd,
                in_place: is_in_place && operation != Collective::AlltoAllV,
                is_shared: self.is_shared,
                repeats: if matches!(self.sizes, Sizes::Helped) { 1 } else { 3 },
                seed: random.u64(..),
            }
        };
        self.bytes(k + n, is_forced)
            .into_iter()
            .enumerate()
            .map(case)
            .collect()
    }

    /// Makes all calls as one rank.
    fn calls(&self, comm: &Communicator) {
        for (k, (operation, algorithm)) in self.groups().into_iter().enumerate() {
            let settings = algorithm.map_or_else(config, with_algorithm);
            let group = comm.duplicate(Some(&settings)).unwrap();
            for case in self.cases((k, operation, algorithm.is_some()), comm.ranks()) {
                case.run(&group);
            }
        }
    }

    /// Runs it among `n` ranks: what each told.
    fn run(&self, n: usize) -> Vec<Told> {
        let file = format!("{}/paths-{}-{n}-%p.log", env!("CARGO_TARGET_TMPDIR"), self.name);
        let mut settings = self.settings.to_vec();
        settings.extend([
            ("CCL_DEBUG", "debug"),
            ("CCL_DEBUG_FILE", &file),
            ("CCL_TRANSPORT", "shm"),
        ]);
        let mut processes = match self.is_one_process {
            true => vec![Rank::start(&UniqueId::new().unwrap(), n, 0, &settings, self.name)],
            false => Rank::start_all(n, &settings, self.name),
        };
        let said: Vec<String> = processes.iter_mut().map(Rank::said).collect();
        assert!(
            said.iter().all(|said| said == "done"),
            "{} of {n}: {said:#?}",
            self.name
        );
        let mut told = Vec::new();
        for process in &mut processes {
            process.child.wait().unwrap();
            let file = file.replace("%p", &process.child.id().to_string());
            told.extend(Told::read(&fs::read_to_string(&file).unwrap()));
            fs::remove_file(&file).unwrap();
        }
        assert_eq!(told.len(), n, "{}", self.name);
        told
    }
}

/// Not a test by itself: what the processes do that the tests below start.
#[test]
fn roles() {
    let Some((role, id, ranks, rank)) = role() else {
        return;
    };
    let way = Way::of(&role);
    // Where Yama is, the other ranks are no descendants.
    let _ = set_ptracer(PTracer::Any);
    let calls = || match way.is_one_process {
        true => drop(with_ranks(ranks, &config(), |comm| way.calls(comm))),
        false => {
            let comm = Communicator::init(ranks, &id, rank, &config()).unwrap();
            way.calls(&comm);
            if matches!(way.sizes, Sizes::Helped) {
                assert!(helpers() > 0, "no thread helped");
            }
        }
    };
    match catch_unwind(AssertUnwindSafe(calls)) {
        Ok(()) => say("done"),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            say(text.or(panic.downcast_ref().copied()).unwrap_or("a panic"));
        }
    }
}

/// Helping threads of this process.
fn helpers() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim() == "ccl-helper").count()
}

/// Runs the way of that name among each number of ranks. `is_right`: whether messages in all groups of an operation, and calls,
/// went as they must.
fn runs(name: &str, is_right: fn(&told::Messages) -> bool) {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let way = Way::of(name);
    let groups = way.groups();
    let mut calls = 0;
    for n in RANKS {
        let told = way.run(n);
        let is_taken = told
            .iter()
            .flat_map(|told| &told.groups)
            .any(|(messages, _)| messages.taken > 0);
        if let Some(why) = told.iter().find_map(|told| told.refused.as_deref())
            && name == "attach"
            && !is_taken
        {
            println!("skipped: ranks cannot read each other's memory here {why}; results are right without");
            return;
        }
        let mut all = told::Calls::default();
        for (operation, _) in groups.iter().filter(|(_, forced)| forced.is_none()) {
            let of_it = groups
                .iter()
                .enumerate()
                .filter(|(_, (other, _))| other == operation);
            let mut messages = told::Messages::default();
            for (k, _) in of_it {
                for rank in &told {
                    // After these there is the communicator of which they were made.
                    assert_eq!(rank.groups.len(), groups.len() + 1, "{name}");
                    messages.add(&rank.groups[k].0);
                    all.add(&rank.groups[k].1);
                }
            }
            let is_short = *operation == Collective::Barrier && messages.long() == 0;
            let what = operation.name();
            assert!(
                is_short || is_right(&messages),
                "{what} by {name} of {n} ranks: {messages:?}"
            );
        }
        // A rank whose message is not soon there goes on by the general executor; but a root that only sends need not wait.
        let is_all = all.general > 0 && all.short > 0 && all.straight > 0;
        assert!(
            is_all || matches!(way.sizes, Sizes::Helped),
            "{name} of {n} ranks: {all:?}"
        );
        calls += all.general + all.short + all.straight;
    }
    println!("counted: {calls} calls of ranks by way {name}: all were right");
}

#[test]
fn messages_in_their_entries() {
    runs("inline", |sent| sent.inline > 0 && sent.long() == 0);
}

#[test]
fn messages_that_are_copied_twice() {
    runs("fifo", |sent| sent.copied > 0 && sent.copied == sent.long());
}

#[test]
fn messages_that_are_taken_from_their_senders() {
    runs("attach", |sent| {
        sent.taken > 0 && sent.taken + sent.copied == sent.long()
    });
}

#[test]
fn messages_in_memory_that_was_handed_over() {
    runs("direct", |sent| {
        sent.mapped > 0 && sent.mapped + sent.copied == sent.long()
    });
}

#[test]
fn messages_between_threads_of_one_process() {
    runs("threads", |sent| {
        sent.read > 0 && sent.read + sent.copied == sent.long()
    });
}

#[test]
fn messages_of_calls_that_other_threads_help_with() {
    runs("helpers", |sent| sent.inline + sent.long() > 0);
}
