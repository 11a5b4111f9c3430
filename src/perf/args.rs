//! The command line as it is written, before anything is checked against the machine or against each other.

use super::{by_hand::Rendezvous, operation::Operation, size, skew::Skew};
use crate::{
    Config,
    types::{DType, MAX_RANKS, Op},
};
use clap::{Parser, error::ErrorKind};
use std::{ffi::OsString, path::PathBuf, time::Duration};

/// Measures collectives and messages between processes and checks their results.
///
/// Starts one process per rank on this machine (or a thread: --threads), runs the operation at every size from MIN to MAX and prints a line
/// for each: the time of one call (median and p99 over samples; a sample is a batch of 8 calls or more of at least 50 us, or as many
/// as last 1 ms, as always where the operation has a root, and counts as the slowest rank had it), algorithm bandwidth (bytes /
/// time), bus bandwidth (what a rank must at least move / time) and the number of wrong elements. Bandwidths are in 1e9 bytes per second.
///
/// A size is that of the largest buffer a rank has. In allgather and gather (the receive buffer), scatter and
/// reducescatter (the send buffer) and alltoall (each) it has a block for each rank, size / ranks rounded down to whole
/// elements, and column count is a block's; where a size is too small for that, nothing is moved. In allgatherv, gatherv,
/// scatterv, reducescatterv and alltoallv blocks have that many elements in the mean: --skew.
///
/// In sendrecv each rank sends a message to the next rank, the last to rank 0, and receives one from the rank before, both
/// at once; a size is that of one message. It needs two buffers and has no algorithms: --in-place, --algo and --explain are
/// for collectives.
///
/// With --overlap each operation is begun, goes on by itself while its caller computes for as long as it takes alone, and is
/// then waited for. Column total is the time of all three, pure that of beginning and waiting at once, compute that of the
/// same computation alone; it stays in registers. Column left is the share of the pure time that the caller gained:
/// 100 * (1 - (total - compute) / pure), 0 at least. Column osu is the same as OSU's benchmarks count it: with the time that
/// the computation took meanwhile, which is longer where the operation shares a core with it.
///
/// Started by mpirun, torchrun or srun, each process is itself a rank; the first one prints. So it is with --rendezvous, typed
/// for each rank on its host. A process that they start alone starts ranks where --ranks or --threads says so.
///
/// `ccl-perf tune` measures this machine, and has communicators plan by it: ccl-perf tune --help.
///
/// `ccl-perf status` looks into running processes instead, also such as hang: ccl-perf status --help.
///
/// Exit status: 0 if all went well, 1 if an element was wrong or something failed, 2 for a mistake on the command line, 128 + n if
/// signal n asked to stop.
#[derive(Debug, Clone, Parser)]
#[command(name = "ccl-perf", version, allow_negative_numbers = true)]
pub(super) struct Args {
    /// What to measure: allreduce, broadcast, reduce, allgather, reducescatter, gather, scatter, alltoall, barrier; allgatherv,
    /// reducescatterv, gatherv, scatterv, alltoallv; sendrecv
    #[arg(value_name = "OP", required_unless_present = "list", value_parser = operation)]
    pub(super) operation: Option<Operation>,

    /// Smallest size in bytes [default: 8]
    #[arg(short = 'b', value_name = "MIN", value_parser = size::parse)]
    pub(super) min: Option<u64>,

    /// Largest size; 1K, 1.5M, 1G are binary [default: 64M]
    #[arg(short = 'e', value_name = "MAX", value_parser = size::parse)]
    pub(super) max: Option<u64>,

    /// Each size is the one before, times FACTOR [default: 2]
    #[arg(short = 'f', value_name = "FACTOR", value_parser = factor, conflicts_with = "step")]
    pub(super) factor: Option<f64>,

    /// Each size is the one before, plus STEP
    #[arg(short = 'i', value_name = "STEP", value_parser = step)]
    pub(super) step: Option<u64>,

    /// Samples per size [default: as many as fit 0.2 s, from 5 (3 from 256M on) to 1000]
    #[arg(short = 'n', value_name = "ITERS", value_parser = iterations)]
    pub(super) iterations: Option<u32>,

    /// Calls before the first sample; those that find the batch's length come on top [default: 5, 1 from 256M on]
    #[arg(short = 'w', value_name = "WARMUP", value_parser = warmup)]
    pub(super) warmup: Option<u32>,

    /// Element type, several with commas, or all
    #[arg(short = 'd', value_name = "TYPE", default_value = "float32", value_parser = dtypes)]
    pub(super) dtypes: Choice<DType>,

    /// Reduction: sum, prod, max, min, avg, bitand, bitor, bitxor, several with commas, or all [default: sum]
    #[arg(short = 'o', value_name = "REDOP", value_parser = ops)]
    pub(super) ops: Option<Choice<Op>>,

    /// Root of operations that have one, or all [default: 0]
    #[arg(short = 'r', value_name = "ROOT", value_parser = root)]
    pub(super) root: Option<Root>,

    /// Processes to start, several numbers with commas for one run after the other [default: one per usable core, 2 to 8,
    /// fewer where memory is short; a launcher's]
    #[arg(long, value_name = "N", value_parser = ranks, value_delimiter = ',')]
    pub(super) ranks: Vec<usize>,

    /// Have ranks be threads of one process, not processes
    #[arg(long, conflicts_with_all = ["rendezvous", "list", "explain"])]
    pub(super) threads: bool,

    /// Be one rank of several that are started by hand, which meet at this host and port of rank 0's; the same for all. Ranks of
    /// several hosts need CCL_SECRET_FILE too; those of one host alone say localhost
    #[arg(long, value_name = "HOST:PORT", value_parser = Rendezvous::parse, requires_all = ["rank", "nranks"],
          conflicts_with_all = ["ranks", "list", "explain"])]
    pub(super) rendezvous: Option<Rendezvous>,

    /// Which of them, from 0 on (--ranks starts processes by itself)
    #[arg(long, value_name = "RANK", requires = "rendezvous")]
    pub(super) rank: Option<usize>,

    /// How many they are
    #[arg(long, value_name = "N", value_parser = ranks, requires = "rendezvous")]
    pub(super) nranks: Option<usize>,

    /// What the bytes travel over: shm, tcp, the name of a network plugin, or auto, which shares memory where that is possible
    /// [default: CCL_TRANSPORT, else auto]
    #[arg(long, value_name = "NAME", value_parser = transport)]
    pub(super) transport: Option<String>,

    /// Algorithm to use for all sizes; --list names them [default: CCL_ALGO, else the library's choice]
    #[arg(long, value_name = "NAME")]
    pub(super) algo: Option<String>,

    /// How unequal the blocks of allgatherv, reducescatterv, gatherv, scatterv and alltoallv are: balanced, hot (rank 0's is
    /// three quarters of all), zero (the last rank has none), random or random:SEED [default: balanced]
    #[arg(long, value_name = "HOW", value_parser = Skew::parse)]
    pub(super) skew: Option<Skew>,

    /// Measure with one buffer only
    #[arg(long, conflicts_with_all = ["out_of_place", "both"])]
    pub(super) in_place: bool,

    /// Measure with two buffers only
    #[arg(long, conflicts_with = "both")]
    pub(super) out_of_place: bool,

    /// Measure out of place and in place (this is the default)
    #[arg(long)]
    pub(super) both: bool,

    /// Measure how much time operations that go on by themselves leave to their caller
    #[arg(long, conflicts_with_all = ["list", "explain"])]
    pub(super) overlap: bool,

    /// Where the buffers are: "host"; "shared" for memory of cclMemAlloc, which peers and network cards reach where it lies; or "cuda" for
    /// memory of CUDA devices, rank r's of a host on device r modulo their number: calls follow one another in a stream, and the last one is waited for
    #[arg(long, value_name = "NAME", default_value = "host", value_parser = ["host", "shared", "cuda"])]
    pub(super) device: String,

    /// With --device cuda: measure CUDA graphs of so many calls, as CCL_CUDA_DIRECT=on allows them
    #[arg(long, value_name = "CALLS", value_parser = graph)]
    pub(super) graph: Option<u64>,

    /// Do not check results
    #[arg(long)]
    pub(super) no_check: bool,

    /// Longest time that a call or the start may take [default: the library's]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) timeout: Option<Duration>,

    /// Write everything that was measured to FILE
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    pub(super) json: Option<PathBuf>,

    /// Write a line for each size and placement to FILE
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    pub(super) csv: Option<PathBuf>,

    /// Tell what the planner predicts for each algorithm at each size and which it chooses, and measure nothing
    #[arg(long, conflicts_with_all = ["list", "json", "csv"])]
    pub(super) explain: bool,

    /// Print beside each time what the planner predicts, and how many times as long that is
    #[arg(long, conflicts_with_all = ["list", "explain", "overlap"])]
    pub(super) predicted: bool,

    /// List operations, algorithms, types and reductions
    #[arg(long)]
    pub(super) list: bool,
}

/// Why there are no arguments.
pub(super) enum Stop {
    /// The user asked for this text.
    Help(String),
    /// One line that says what is wrong.
    Mistake(String),
}

impl Args {
    /// Whether they say of several ranks that they are to be started.
    pub(super) fn starts_ranks(&self) -> bool {
        self.rendezvous.is_none() && (self.threads || self.ranks.iter().any(|&ranks| ranks > 1))
    }

    /// A command line for each number of ranks that was given.
    ///
    /// # Errors
    /// One line, when there are several and a file that would hold the last one only.
    pub(super) fn each(self) -> Result<Vec<Args>, String> {
        if self.ranks.len() < 2 {
            return Ok(vec![self]);
        }
        if self.json.is_some() || self.csv.is_some() {
            return Err("--json and --csv take one run: give --ranks one number".to_owned());
        }
        let one = |ranks: &usize| Args {
            ranks: vec![*ranks],
            ..self.clone()
        };
        Ok(self.ranks.iter().map(one).collect())
    }

    /// Reads a command line, the program's name first.
    pub(super) fn read(line: impl IntoIterator<Item = OsString>) -> Result<Args, Stop> {
        Args::try_parse_from(line).map_err(|error| match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Stop::Help(error.render().to_string()),
            _ => Stop::Mistake(one_line(&error.render().to_string())),
        })
    }
}

/// The error and its tips, without the synopsis that follows.
pub(crate) fn one_line(rendered: &str) -> String {
    let mut parts = rendered
        .split("\n\n")
        .map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    let mut line = parts.next().unwrap_or_default();
    if let Some(bare) = line.strip_prefix("error: ") {
        line = bare.to_owned();
    }
    for tip in parts.filter(|part| part.starts_with("tip:")) {
        line = format!("{line}; {tip}");
    }
    if line.contains("not provided") || line.contains("unexpected argument") {
        line.push_str("; --help lists the arguments");
    }
    line
}

/// One, several or all of something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice<T> {
    pub(super) items: Vec<T>,
    /// Whether the word was `all`: combinations that make no sense are then left out and not refused.
    pub(super) all: bool,
}

/// The rank that has the data, or gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Root {
    Rank(u32),
    All,
}

fn operation(text: &str) -> Result<Operation, String> {
    let name = match text.to_ascii_lowercase().replace(['-', '_'], "") {
        short if short == "bcast" => "broadcast".to_owned(),
        name => name,
    };
    (Operation::all().find(|operation| operation.name() == name)).ok_or_else(|| {
        let names: Vec<&str> = Operation::all().map(Operation::name).collect();
        format!("there are {}", names.join(", "))
    })
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor > 1.0 && factor.is_finite() => Ok(factor),
        _ => Err("sizes grow by a factor of more than 1, e.g. -f 2".to_owned()),
    }
}

fn step(text: &str) -> Result<u64, String> {
    match size::parse(text)? {
        0 => Err("sizes grow by a step of at least 1 byte, e.g. -i 1M".to_owned()),
        step => Ok(step),
    }
}

fn iterations(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(samples @ 1..=10_000_000) => Ok(samples),
        _ => Err("give a number of samples from 1 to 10000000".to_owned()),
    }
}

fn graph(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(calls @ 1..=10_000) => Ok(calls),
        _ => Err("give a number of calls from 1 to 10000".to_owned()),
    }
}

fn warmup(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| "give a number of calls, 0 or more".to_owned())
}

fn ranks(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(ranks @ 1..=MAX_RANKS) => Ok(ranks),
        _ => Err(format!("give a number of ranks from 1 to {MAX_RANKS}")),
    }
}

fn root(text: &str) -> Result<Root, String> {
    if text == "all" {
        return Ok(Root::All);
    }
    (text.parse().map(Root::Rank)).map_err(|_| "give a rank, from 0 on, or all".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    (text.parse().ok())
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|timeout| *timeout >= Duration::from_millis(1))
        .ok_or_else(|| "give seconds, 0.001 or more, e.g. --timeout 30".to_owned())
}

/// A transport that is there.
fn transport(text: &str) -> Result<String, String> {
    let config = Config {
        transport: Some(text.to_owned()),
        plugin: std::env::var("CCL_NET_PLUGIN")
            .ok()
            .filter(|said| !said.is_empty()),
        ..Config::default()
    };
    match config.check_transport() {
        Ok(()) => Ok(text.to_owned()),
        Err(mistake) => Err(mistake.to_string()),
    }
}

fn dtypes(text: &str) -> Result<Choice<DType>, String> {
    choose("type", text, &DType::ALL, |word| {
        let name = match word {
            "char" | "i8" => "int8",
            "u8" => "uint8",
            "i16" => "int16",
            "u16" => "uint16",
            "int" | "i32" => "int32",
            "u32" => "uint32",
            "i64" => "int64",
            "u64" => "uint64",
            "half" | "f16" | "fp16" => "float16",
            "float" | "f32" | "fp32" => "float32",
            "double" | "f64" | "fp64" => "float64",
            "bf16" => "bfloat16",
            "f8e4m3" | "fp8_e4m3" => "float8e4m3",
            "f8e5m2" | "fp8_e5m2" => "float8e5m2",
            other => other,
        };
        DType::ALL.into_iter().find(|dtype| dtype.name() == name)
    })
}

fn ops(text: &str) -> Result<Choice<Op>, String> {
    choose("reduction", text, &Op::ALL, |word| {
        Op::ALL.into_iter().find(|op| op.name() == word)
    })
}

fn choose<T: Copy + ToString>(
    what: &str,
    text: &str,
    all: &[T],
    find: impl Fn(&str) -> Option<T>,
) -> Result<Choice<T>, String> {
    let lower = text.to_ascii_lowercase();
    if lower == "all" {
        return Ok(Choice {
            items: all.to_vec(),
            all: true,
        });
    }
    let items: Option<Vec<T>> = lower.split(',').map(|word| find(word.trim())).collect();
    items.map(|items| Choice { items, all: false }).ok_or_else(|| {
        let names: Vec<String> = all.iter().map(T::to_string).collect();
        format!("no such {what}; there are {}, or all", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Collective;

    fn read(line: &str) -> Result<Args, String> {
        let words = std::iter::once("ccl-perf").chain(line.split_whitespace());
        Args::read(words.map(OsString::from)).map_err(|stop| match stop {
            Stop::Help(text) | Stop::Mistake(text) => text,
        })
    }

    #[test]
    fn what_the_manual_says_is_understood() {
        let args = read(
            "all-reduce -b 8 -e 1.5M -f 8 -n 7 -w 0 -d f16,double -o all -r 3 --ranks 5 --transport shm \
             --algo ring --in-place --json a --csv b --no-check --overlap --timeout 2.5",
        )
        .unwrap();
        assert_eq!(args.operation, Some(Operation::Collective(Collective::AllReduce)));
        assert_eq!(
            (args.min, args.max, args.factor),
            (Some(8), Some(3 << 19), Some(8.0))
        );
        assert_eq!(
            (args.iterations, args.warmup, args.ranks),
            (Some(7), Some(0), vec![5])
        );
        assert_eq!(args.dtypes.items, [DType::Float16, DType::Float64]);
        assert!(args.ops.unwrap().all && args.in_place && args.no_check && args.overlap);
        assert!(!read("barrier").unwrap().overlap);
        assert_eq!(args.root, Some(Root::Rank(3)));
        assert_eq!(args.timeout, Some(Duration::from_millis(2500)));
        for name in ["bcast", "Broadcast", "BROAD_CAST"] {
            let broadcast = Operation::Collective(Collective::Broadcast { root: 0 });
            assert_eq!(read(name).unwrap().operation, Some(broadcast));
        }
        for name in ["alltoall", "all-to-all", "AllToAll", "all_to_all"] {
            let all_to_all = Operation::Collective(Collective::AlltoAll);
            assert_eq!(read(name).unwrap().operation, Some(all_to_all));
        }
        for name in ["sendrecv", "send-recv", "send_recv", "SendRecv"] {
            assert_eq!(read(name).unwrap().operation, Some(Operation::SendRecv));
        }
    }

    #[test]
    fn the_manual_names_every_operation() {
        let help = read("--help").unwrap_err();
        for operation in Operation::all() {
            assert_eq!(read(operation.name()).unwrap().operation, Some(operation));
            assert!(
                help.contains(&format!(" {}", operation.name())),
                "{operation:?}: {help}"
            );
        }
    }

    #[test]
    fn a_mistake_is_one_line_that_names_the_flag() {
        let cases = [
            ("", "<OP>"),
            ("allgatherx", "allgather, reducescatter, gather"),
            ("allreduce -b 1X", "-b"),
            ("allreduce -b -5", "-b"),
            ("allreduce -e lots", "-e"),
            ("allreduce -f 1", "-f"),
            ("allreduce -f nan", "-f"),
            ("allreduce -f 2 -i 4", "-i"),
            ("allreduce -i 0", "-i"),
            ("allreduce -n 0", "-n"),
            ("allreduce -w -1", "-w"),
            ("allreduce -d float33", "float8e5m2"),
            ("allreduce -o mean", "bitxor"),
            ("allreduce -r x", "-r"),
            ("allreduce --ranks 0", "--ranks"),
            ("allreduce --ranks many", "--ranks"),
            ("allreduce --ranks 8193", "--ranks"),
            (
                "allgather --explain --ranks 4611686018427387904",
                "from 1 to 8192",
            ),
            ("allreduce --rank 3", "--rendezvous"),
            ("allreduce --nranks 3", "--rendezvous"),
            ("allreduce --rendezvous a:1", "--nranks"),
            ("allreduce --rendezvous a --rank 0 --nranks 1", "HOST:PORT"),
            ("allreduce --transport rdma", "shm"),
            ("allreduce --in-place --both", "--both"),
            ("allreduce --overlap --explain", "--overlap"),
            ("allreduce --timeout 0", "--timeout"),
            ("allreduce --json", "--json"),
            ("--list --json a", "--json"),
            ("--list --csv a", "--csv"),
        ];
        for (line, part) in cases {
            let mistake = read(line).unwrap_err();
            assert!(
                mistake.contains(part) && !mistake.contains('\n'),
                "{line}: {mistake}"
            );
            assert!(!mistake.starts_with("error"), "{mistake}");
        }
    }
}
