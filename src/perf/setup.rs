//! From the command line to a job: what the flags mean together and on this machine.

use super::{
    args::{Args, Choice, Root},
    operation::Operation,
    report::{Job, Placement, Run},
    size::{Step, Sweep, readable},
};
use crate::{
    algorithms,
    bootstrap::env::Launch,
    cuda::gpu,
    topo::host::Host,
    types::{Collective, DType, Op},
};
use std::path::PathBuf;

/// The sizes where a run starts and ends unless told.
const DEFAULT_SIZES: (u64, u64) = (8, 64 << 20);

/// The numbers of ranks to choose from unless told.
const DEFAULT_RANKS: (usize, usize) = (2, 8);

/// More sizes than anybody looks at.
const MOST_SIZES: usize = 100_000;

/// The sizes of an operation that has no vector: one row.
const NO_VECTOR: Sweep = Sweep {
    min: 0,
    max: 0,
    step: Step::Bytes(1),
};

/// What a rank needs besides its buffers: the library's segments and a process's own memory.
const PROCESS_BYTES: u64 = 16 << 20;

/// A run that may begin.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) job: Job,
    /// Whether to tell what would be run instead of running it.
    pub(super) explain: bool,
    /// Things that the user should know, for the header.
    pub(super) notes: Vec<String>,
    pub(super) json: Option<PathBuf>,
    pub(super) csv: Option<PathBuf>,
    /// Who started the ranks, if not ccl-perf itself.
    pub(super) launcher: Option<String>,
    /// Ranks on this host, as far as that is known.
    pub(super) ranks_here: usize,
}

impl Setup {
    /// A run whose processes ccl-perf starts.
    ///
    /// # Errors
    /// One line that names the flag to change.
    pub(super) fn new(args: Args, host: &Host) -> Result<Setup, String> {
        Setup::with(args, host, None)
    }

    /// A run of the ranks that a launcher has started.
    ///
    /// # Errors
    /// As above.
    pub(super) fn launched(args: Args, host: &Host, launch: &Launch) -> Result<Setup, String> {
        Setup::with(args, host, Some(launch))
    }

    fn with(args: Args, host: &Host, launch: Option<&Launch>) -> Result<Setup, String> {
        let operation = args
            .operation
            .ok_or("say what to measure, e.g. ccl-perf allreduce")?;
        let mut notes = Vec::new();
        let barrier = !operation.has_vector();
        let sweep = if barrier { NO_VECTOR } else { sweep(&args)? };
        let placements = placements(operation, &args)?;
        let memory = Memory::new(operation, &args, sweep.max, placements.len() as u64, host);
        let ranks = match launch {
            Some(launch) => launched_ranks(&args, &memory, launch)?,
            None => ranks(&args, &memory, host, &mut notes)?,
        };
        let runs = runs(operation, &args, ranks, &mut notes)?;
        check_planner(operation, &args)?;
        if operation.has_given_blocks() {
            notes.push(format!("blocks are {}", args.skew.unwrap_or_default()));
        }
        if args.json.is_some() && args.json == args.csv {
            return Err("--json and --csv name the same file: give each its own".to_owned());
        }
        let launcher = launch.map(|launch| starter(&args, launch));
        let on_device = args.device == "cuda";
        if on_device {
            if args.overlap {
                return Err("--device cuda does not go with --overlap".to_owned());
            }
            let devices = gpu::devices().map_err(|reason| format!("--device cuda: {reason}"))?;
            notes.push(format!(
                "buffers are memory of CUDA devices, of which there are {devices}; a time includes the wait for the stream"
            ));
        }
        match args.graph {
            Some(_) if !on_device => return Err("--graph is for --device cuda".to_owned()),
            Some(calls) => notes.push(format!("calls are made by CUDA graphs of {calls}")),
            None => {}
        }
        let shared = args.device == "shared";
        if shared {
            notes.push("buffers are memory of cclMemAlloc".to_owned());
        }
        if args.threads && launch.is_some() {
            return Err(
                "--threads is for ranks that ccl-perf starts by itself: leave it out under a launcher"
                    .to_owned(),
            );
        }
        let job = Job {
            ranks,
            runs,
            sweep,
            placements,
            iterations: args.iterations,
            warmup: args.warmup,
            time: None,
            predict: args.predicted,
            // A barrier leaves no result to look at.
            check: !args.no_check && !barrier,
            overlap: args.overlap,
            timeout: args.timeout,
            transport: args.transport,
            algorithm: args.algo,
            skew: args.skew.unwrap_or_default(),
            on_device,
            graph: args.graph,
            shared,
            threads: args.threads,
        };
        let mut setup = Setup {
            job,
            explain: args.explain,
            notes,
            json: args.json,
            csv: args.csv,
            launcher,
            ranks_here: launch.map_or(ranks, Launch::ranks_here),
        };
        if launch.is_none() {
            setup.note_turns(host);
        }
        Ok(setup)
    }

    /// Notes it if there are more ranks than cores on this host. Of ranks that were launched, each knows only its own
    /// cores before they have met.
    pub(super) fn note_turns(&mut self, host: &Host) {
        let ranks = self.ranks_here;
        if ranks > host.cpus {
            self.notes.push(format!(
                "{ranks} ranks on {} usable cores take turns: times include waiting for a core",
                host.cpus
            ));
        }
        if self.job.overlap && 2 * ranks > host.cpus {
            self.notes.push(format!(
                "{ranks} ranks and the threads that move their operations want {} cores and share {}: what these take, the callers lack",
                2 * ranks,
                host.cpus
            ));
        }
    }
}

fn sweep(args: &Args) -> Result<Sweep, String> {
    let (default_min, default_max) = DEFAULT_SIZES;
    let min = args
        .min
        .unwrap_or_else(|| default_min.min(args.max.unwrap_or(default_max)));
    let max = args.max.unwrap_or(default_max.max(min));
    if min > max {
        return Err(format!(
            "-b {} is more than -e {}: lower -b or raise -e",
            readable(min),
            readable(max)
        ));
    }
    let step = args
        .step
        .map_or(Step::Factor(args.factor.unwrap_or(2.0)), Step::Bytes);
    let sweep = Sweep { min, max, step };
    if sweep.sizes().nth(MOST_SIZES).is_some() {
        return Err(format!(
            "more than {MOST_SIZES} sizes from -b {} to -e {}: raise -f or -i",
            readable(min),
            readable(max)
        ));
    }
    Ok(sweep)
}

fn placements(operation: Operation, args: &Args) -> Result<Vec<Placement>, String> {
    Ok(match (args.out_of_place, args.in_place) {
        _ if !operation.has_vector() => vec![Placement::OutOfPlace],
        (_, true) if !operation.has_form_in_place() => {
            let name = operation.name();
            return Err(format!("--in-place: {name} has no form in place, leave it out"));
        }
        _ if !operation.has_form_in_place() => vec![Placement::OutOfPlace],
        (true, _) => vec![Placement::OutOfPlace],
        (_, true) => vec![Placement::InPlace],
        _ => vec![Placement::OutOfPlace, Placement::InPlace],
    })
}

/// What ranks need of this host's memory.
pub(super) struct Memory {
    max: u64,
    /// Buffers of `max` bytes that each rank has, and those that are shared out among the ranks or that one of them has.
    each: u64,
    others: u64,
    available: u64,
}

impl Memory {
    /// What ranks need that have two buffers of `max` bytes each.
    pub(super) fn of_two_buffers(max: u64, host: &Host) -> Memory {
        Memory {
            max,
            each: 2,
            others: 0,
            available: host.memory_available.unwrap_or(u64::MAX),
        }
    }

    fn new(operation: Operation, args: &Args, max: u64, placements: u64, host: &Host) -> Memory {
        // In place alone one buffer holds both. Of both placements each of the two is as long as the longer one wants it: in place
        // the second has what is otherwise sent, where that is more.
        let (in_place, both) = (placements == 1 && args.in_place, placements > 1);
        let (each, others) = match operation.collective().map(Collective::plain) {
            Some(Collective::Gather { .. } | Collective::Scatter { .. }) => (0, if both { 3 } else { 2 }),
            Some(Collective::Reduce { .. } | Collective::ReduceScatter) if both => (2, 0),
            Some(Collective::AllReduce | Collective::AlltoAll | Collective::Barrier) | None => {
                (if in_place { 1 } else { 2 }, 0)
            }
            Some(_) => (1, u64::from(!in_place)),
        };
        Memory {
            max,
            each,
            others,
            // What is only explained takes none.
            available: (host.memory_available)
                .filter(|_| !args.explain)
                .unwrap_or(u64::MAX),
        }
    }

    fn need(&self, ranks: usize) -> u64 {
        let ranks = ranks as u64;
        let buffers = self.each.saturating_mul(ranks).saturating_add(self.others);
        let processes = PROCESS_BYTES.saturating_mul(ranks);
        self.max.saturating_mul(buffers).saturating_add(processes)
    }

    fn numbers(&self, ranks: usize) -> String {
        format!(
            "{ranks} ranks with buffers for {} need {} of memory",
            readable(self.max),
            readable(self.need(ranks))
        )
    }

    /// # Errors
    /// A line that ends with `advice` when there is too little for so many ranks.
    pub(super) fn check(&self, ranks: usize, advice: &str) -> Result<(), String> {
        if self.need(ranks) <= self.available {
            return Ok(());
        }
        let available = readable(self.available);
        Err(format!(
            "{}, but {available} are available: {advice}",
            self.numbers(ranks)
        ))
    }
}

/// Who started the ranks.
fn starter(args: &Args, launch: &Launch) -> String {
    match &args.rendezvous {
        Some(_) => "hand (--rendezvous)".to_owned(),
        None => launch.launcher.to_string(),
    }
}

/// The number of ranks: the launcher's.
fn launched_ranks(args: &Args, memory: &Memory, launch: &Launch) -> Result<usize, String> {
    let ranks = launch.ranks;
    if let Some(told) = args.ranks.iter().find(|&&told| told != ranks) {
        return Err(format!(
            "--ranks {told}, but {} started {ranks}: leave --ranks away, or start {told}",
            starter(args, launch)
        ));
    }
    memory.check(launch.ranks_here(), "lower -e, or start fewer ranks on a host")?;
    Ok(ranks)
}

/// The number of ranks: as told, or one per core as far as memory goes.
fn ranks(args: &Args, memory: &Memory, host: &Host, notes: &mut Vec<String>) -> Result<usize, String> {
    if let Some(&ranks) = args.ranks.first() {
        memory.check(ranks, "lower -e or --ranks")?;
        return Ok(ranks);
    }
    let available = memory.available;
    let (least, most) = DEFAULT_RANKS;
    let wanted = host.cpus.clamp(least, most);
    let Some(ranks) = (least..=wanted)
        .rev()
        .find(|&ranks| memory.need(ranks) <= available / 2)
    else {
        let numbers = memory.numbers(least);
        let half = readable(available / 2);
        return Err(format!(
            "{numbers}, more than half of what is available ({half}): lower -e, or set --ranks to use more than half"
        ));
    };
    if ranks < wanted {
        notes.push(format!(
            "ranks lowered from {wanted} to {ranks}, so that buffers fit half of the available {}; --ranks overrides",
            readable(available)
        ));
    }
    Ok(ranks)
}

/// Every combination of type, reduction and root that was asked for; at least one.
fn runs(
    operation: Operation,
    args: &Args,
    ranks: usize,
    notes: &mut Vec<String>,
) -> Result<Vec<Run>, String> {
    let roots = match args.root.unwrap_or(Root::Rank(0)) {
        Root::Rank(root) if root as usize >= ranks => {
            return Err(format!(
                "-r {root} is outside the group of {ranks} ranks: use 0 to {}, or raise --ranks",
                ranks - 1
            ));
        }
        Root::Rank(root) => vec![root],
        Root::All => (0..ranks as u32).collect(),
    };
    let roots = operation.root().map_or(vec![0], |_| roots);
    let sum = Choice {
        items: vec![Op::Sum],
        all: false,
    };
    let ops = (args.ops.as_ref().filter(|_| operation.reduces())).unwrap_or(&sum);
    let bytes = Choice {
        items: vec![DType::Uint8],
        all: false,
    };
    let dtypes = if operation.has_vector() {
        &args.dtypes
    } else {
        &bytes
    };
    notes.extend(
        (meaningless(operation, args))
            .map(|flag| format!("{flag} has no meaning for {} and is left out", operation.name())),
    );
    Ok(reductions(dtypes, ops)?
        .into_iter()
        .flat_map(|(dtype, op)| {
            roots.iter().map(move |&root| Run {
                operation: with_root(operation, root),
                dtype,
                op,
            })
        })
        .collect())
}

/// The flags that were given and say nothing about this operation.
fn meaningless(operation: Operation, args: &Args) -> impl Iterator<Item = &'static str> {
    let no_vector = !operation.has_vector();
    [
        ("-b", args.min.is_some() && no_vector),
        ("-e", args.max.is_some() && no_vector),
        ("-f", args.factor.is_some() && no_vector),
        ("-i", args.step.is_some() && no_vector),
        ("-o", args.ops.is_some() && !operation.reduces()),
        ("-r", args.root.is_some() && operation.root().is_none()),
        ("--skew", args.skew.is_some() && !operation.has_given_blocks()),
    ]
    .into_iter()
    .filter_map(|(flag, meaningless)| meaningless.then_some(flag))
}

/// The types and reductions that go together.
fn reductions(dtypes: &Choice<DType>, ops: &Choice<Op>) -> Result<Vec<(DType, Op)>, String> {
    let mut pairs = Vec::new();
    for &dtype in &dtypes.items {
        for &op in &ops.items {
            if op.accepts(dtype) {
                pairs.push((dtype, op));
            } else if !(dtypes.all || ops.all) {
                return Err(format!(
                    "-o {op} is for integers, not for {dtype}: use -d int32 or another integer type, or another -o"
                ));
            }
        }
    }
    Ok(pairs)
}

/// The operation, with this root if it has one.
fn with_root(operation: Operation, root: u32) -> Operation {
    let Operation::Collective(collective) = operation else {
        return operation;
    };
    Operation::Collective(match collective {
        Collective::Broadcast { .. } => Collective::Broadcast { root },
        Collective::Reduce { .. } => Collective::Reduce { root },
        Collective::Gather { .. } => Collective::Gather { root },
        Collective::Scatter { .. } => Collective::Scatter { root },
        Collective::GatherV { .. } => Collective::GatherV { root },
        Collective::ScatterV { .. } => Collective::ScatterV { root },
        rootless => rootless,
    })
}

/// Checks what is asked of the planner, which knows collectives only.
fn check_planner(operation: Operation, args: &Args) -> Result<(), String> {
    let Some(collective) = operation.collective() else {
        let flag = match &args.algo {
            Some(name) => format!("--algo {name}"),
            None if args.explain => "--explain".to_owned(),
            None if args.predicted => "--predicted".to_owned(),
            None => return Ok(()),
        };
        return Err(format!(
            "{flag}: send and receive have no algorithms, leave it out"
        ));
    };
    let Some(name) = &args.algo else {
        return Ok(());
    };
    let names: Vec<&str> = algorithms(collective).map(|(name, _)| name).collect();
    if names.contains(&name.as_str()) {
        return Ok(());
    }
    Err(format!(
        "--algo {name} cannot do {}: use {}, or leave it out",
        collective.name(),
        names.join(" or ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::env::Variables;

    const GIB: u64 = 1 << 30;

    fn setup_on(cpus: usize, memory: u64, line: &str) -> Result<Setup, String> {
        let words = std::iter::once("ccl-perf").chain(line.split_whitespace());
        let Ok(args) = Args::read(words.map(Into::into)) else {
            panic!("{line} is not even read");
        };
        let host = Host {
            cpu: "test".to_owned(),
            cpus,
            memory_available: Some(memory),
        };
        Setup::new(args, &host)
    }

    fn ranks_on(cpus: usize, memory: u64, line: &str) -> (usize, usize) {
        let setup = setup_on(cpus, memory, line).unwrap();
        (setup.job.ranks, setup.notes.len())
    }

    #[test]
    fn ranks_follow_cores_and_memory() {
        assert_eq!(ranks_on(1, 64 * GIB, "allreduce"), (2, 1)); // noted: two ranks share a core
        assert_eq!(ranks_on(6, 64 * GIB, "allreduce"), (6, 0));
        assert_eq!(ranks_on(96, 64 * GIB, "allreduce"), (8, 0));
        assert_eq!(ranks_on(96, 24 * GIB, "allreduce -e 1G"), (5, 1)); // noted: lowered
        assert_eq!(ranks_on(96, 24 * GIB, "allreduce -e 1G --in-place"), (8, 0));
        assert_eq!(ranks_on(96, 24 * GIB, "allreduce -e 1G --ranks 11"), (11, 0));
        assert_eq!(ranks_on(2, 24 * GIB, "allreduce --ranks 16"), (16, 1));
        // A vector on the root, and its parts on the others.
        assert_eq!(ranks_on(16, 24 * GIB, "scatter -e 7G --ranks 16"), (16, 0));
        assert_eq!(ranks_on(4, 24 * GIB, "allreduce --overlap --ranks 2"), (2, 0));
        assert_eq!(ranks_on(3, 24 * GIB, "allreduce --overlap --ranks 2"), (2, 1)); // noted: threads share cores
    }

    #[test]
    fn what_does_not_go_together_is_refused_with_the_flag() {
        let cases = [
            ("allreduce -b 2M -e 1M", "-b 2M is more than -e 1M"),
            ("allreduce -b 0 -e 1G -i 1", "raise -f or -i"),
            (
                "allreduce -e 1G --ranks 12",
                "12 ranks with buffers for 1G need 24.19G",
            ),
            ("allreduce -e 1G --ranks 12", "lower -e or --ranks"),
            ("allreduce -e 8G", "lower -e, or set --ranks"),
            ("allreduce -e 8388607T --ranks 8192", "lower -e or --ranks"),
            ("allreduce -o bitand", "-d int32"),
            ("broadcast -r 4 --ranks 4", "use 0 to 3"),
            ("allreduce -r 4 --ranks 4", "-r 4"),
            ("gather -r 2 --ranks 2", "-r 2"),
            ("allgather -e 2G --ranks 12", "lower -e or --ranks"),
            ("reducescatter -o bitor", "-o bitor"),
            ("alltoall --algo magic", "--algo magic"),
            ("allreduce --json a --csv a", "--csv"),
            ("allreduce --algo magic", "--algo magic"),
            ("alltoallv --in-place", "alltoallv has no form in place"),
            ("sendrecv --in-place", "sendrecv has no form in place"),
            (
                "sendrecv --algo ring",
                "--algo ring: send and receive have no algorithms",
            ),
            (
                "sendrecv --explain",
                "--explain: send and receive have no algorithms",
            ),
        ];
        for (line, part) in cases {
            let mistake = setup_on(4, 24 * GIB, line).unwrap_err();
            assert!(
                mistake.contains(part) && !mistake.contains('\n'),
                "{line}: {mistake}"
            );
        }
    }

    #[test]
    fn a_launcher_s_ranks_are_taken() {
        let launched = |ranks: usize, here: usize, line: &str| {
            let words = std::iter::once("ccl-perf").chain(line.split_whitespace());
            let args = Args::read(words.map(Into::into)).ok().unwrap();
            let host = Host {
                cpu: "test".to_owned(),
                cpus: 1,
                memory_available: Some(4 * GIB),
            };
            let look_up = |name: &str| match name {
                "OMPI_COMM_WORLD_RANK" => Some("0".to_owned()),
                "OMPI_COMM_WORLD_SIZE" => Some(ranks.to_string()),
                "OMPI_COMM_WORLD_LOCAL_SIZE" => Some(here.to_string()),
                _ => None,
            };
            let launch = Launch::read(&Variables::of(&look_up), std::iter::empty())
                .unwrap()
                .unwrap();
            Setup::launched(args, &host, &launch)
        };
        for line in ["allreduce", "allreduce --ranks 16"] {
            let setup = launched(16, 4, line).unwrap();
            assert_eq!((setup.job.ranks, setup.notes.len()), (16, 0));
            assert_eq!(setup.launcher.as_deref(), Some("Open MPI"));
        }
        let mistake = launched(4, 4, "allreduce --ranks 3").unwrap_err();
        assert!(mistake.contains("--ranks 3, but Open MPI started 4"), "{mistake}");
        // Memory is this host's, and so are the ranks that share it.
        assert!(launched(16, 1, "allreduce -e 1G").is_ok());
        let mistake = launched(16, 16, "allreduce -e 1G").unwrap_err();
        assert!(
            mistake.contains("16 ranks with buffers for 1G") && mistake.contains("lower -e"),
            "{mistake}"
        );
    }

    #[test]
    fn all_leaves_out_what_makes_no_sense() {
        let runs = |line| setup_on(4, GIB, line).unwrap().job.runs.len();
        assert_eq!(runs("allreduce -d all -o all"), 8 * 8 + 6 * 5);
        assert_eq!(runs("allreduce -d f32 -o all"), 5);
        assert_eq!(runs("allreduce -d all -o bitxor"), 8);
        assert_eq!(runs("broadcast -d all -r all --ranks 3"), 14 * 3);
        assert_eq!(runs("reduce -d all -o all -r all --ranks 3"), (8 * 8 + 6 * 5) * 3);
        assert_eq!(runs("reducescatter -d f32,i32 -o all"), 5 + 8);
        assert_eq!(runs("alltoall -d all"), 14);
        assert_eq!(runs("sendrecv -d all"), 14);
        let setup = setup_on(4, 4 * GIB, "broadcast -o sum").unwrap();
        assert!(setup.notes[0].contains("-o"), "{:?}", setup.notes);
        let setup = setup_on(4, 4 * GIB, "allgather -o sum -r 1").unwrap();
        assert_eq!(
            (setup.notes.len(), setup.job.runs.len()),
            (2, 1),
            "{:?}",
            setup.notes
        );
        let run = setup_on(4, 4 * GIB, "scatter -r 2").unwrap().job.runs[0];
        assert_eq!(
            run.operation,
            Operation::Collective(Collective::Scatter { root: 2 })
        );
    }

    #[test]
    fn a_size_is_that_of_all_ranks_blocks() {
        let sizes = |line| {
            let job = setup_on(4, 4 * GIB, line).unwrap().job;
            let run = job.runs[0];
            (job.counts(run).map(|count| (count, job.bytes(run, count)))).collect::<Vec<_>>()
        };
        assert_eq!(
            sizes("reduce --ranks 3 -b 4 -e 64 -f 4"),
            [(1, 4), (4, 16), (16, 64)]
        );
        // 4, 16 and 64 bytes; a block for each of three ranks.
        assert_eq!(
            sizes("allgather --ranks 3 -b 4 -e 64 -f 4"),
            [(0, 0), (1, 12), (5, 60)]
        );
        assert_eq!(sizes("alltoall --ranks 4 -b 4 -e 15 -d f32"), [(0, 0)]);
        // One message's.
        assert_eq!(sizes("sendrecv --ranks 3 -b 4 -e 16 -f 4"), [(1, 4), (4, 16)]);
    }

    #[test]
    fn messages_are_out_of_place_only() {
        for line in ["sendrecv", "sendrecv --both", "sendrecv --out-of-place"] {
            let setup = setup_on(4, 4 * GIB, line).unwrap();
            assert_eq!(setup.job.placements, [Placement::OutOfPlace], "{line}");
        }
        let setup = setup_on(4, 4 * GIB, "sendrecv -o sum -r 1 --skew hot").unwrap();
        assert_eq!(
            (setup.notes.len(), setup.job.runs.len()),
            (3, 1),
            "{:?}",
            setup.notes
        );
    }

    #[test]
    fn a_barrier_is_one_row_without_a_vector() {
        let setup = setup_on(4, GIB, "barrier -e 1G -o max").unwrap();
        assert_eq!(setup.notes.len(), 2, "{:?}", setup.notes);
        let job = setup.job;
        assert_eq!((job.runs.len(), job.placements.len(), job.check), (1, 1, false));
        assert_eq!(job.sweep.counts(1).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn what_is_only_explained_takes_no_memory() {
        let setup = setup_on(4, GIB, "allreduce -e 1G --ranks 1000 --explain").unwrap();
        assert!(setup.explain && setup.job.ranks == 1000);
    }

    #[test]
    fn one_end_of_the_sizes_moves_the_other() {
        let sweep = |line| setup_on(4, 64 * GIB, line).unwrap().job.sweep;
        assert_eq!((sweep("allreduce").min, sweep("allreduce").max), DEFAULT_SIZES);
        assert_eq!(sweep("allreduce -b 1G").max, 1 << 30);
        assert_eq!(sweep("allreduce -e 4").min, 4);
    }
}
