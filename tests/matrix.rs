//! A covering array over real processes: every pair of values of what a call depends on (operation, algorithm, ranks,
//! transport, type, reduction, placement, size, root) occurs in some run of `ccl-perf`, whose results are all right.

mod common;

use ccl::{Collective, DType, Op, algorithms};
use std::{
    collections::BTreeSet,
    process::{Command, Stdio},
};

/// The values of each factor of a case, by their places in [`Factors`].
type Case = [usize; FACTORS];

const FACTORS: usize = 10;
const OPERATION: usize = 0;
const ALGORITHM: usize = 1;
const DTYPE: usize = 2;
const REDUCTION: usize = 3;

struct Factors {
    operations: Vec<Collective>,
    algorithms: Vec<&'static str>,
    values: [Vec<String>; FACTORS],
}

impl Factors {
    fn new() -> Self {
        let root = 0;
        let operations = vec![
            Collective::AllReduce,
            Collective::Broadcast { root },
            Collective::Reduce { root },
            Collective::AllGather,
            Collective::ReduceScatter,
            Collective::Gather { root },
            Collective::Scatter { root },
            Collective::AlltoAll,
            Collective::AllGatherV,
            Collective::ReduceScatterV,
            Collective::GatherV { root },
            Collective::ScatterV { root },
            Collective::AlltoAllV,
        ];
        let names: BTreeSet<&str> = operations
            .iter()
            .flat_map(|&op| algorithms(op).map(|(name, _)| name))
            .collect();
        let algorithms: Vec<&str> = names.into_iter().collect();
        let text = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
        let values = [
            operations
                .iter()
                .map(|operation| operation.name().to_owned())
                .collect(),
            text(&algorithms),
            DType::ALL.map(|dtype| dtype.name().to_owned()).to_vec(),
            Op::ALL.map(|op| op.name().to_owned()).to_vec(),
            text(&["1", "2", "3", "4", "5", "7", "8"]),
            text(&["shm", "tcp", "loop"]),
            text(&["--in-place", "--out-of-place"]),
            // In bytes: less than an element a rank, odd, a line, a slot, a tile, several tiles, many.
            text(&["0", "8", "72", "1000", "9000", "70001", "300000", "2097160"]),
            text(&["first", "middle", "last"]),
            text(&["balanced", "hot", "zero", "random"]),
        ];
        Factors {
            operations,
            algorithms,
            values,
        }
    }

    /// Whether these values can be in one case.
    fn is_valid(&self, operation: usize, algorithm: usize, dtype: usize, reduction: usize) -> bool {
        let collective = self.operations[operation];
        let fits = algorithms(collective).any(|(name, _)| name == self.algorithms[algorithm]);
        let (dtype, reduction) = (DType::ALL[dtype], Op::ALL[reduction]);
        fits && (!collective.reduces() && reduction == Op::Sum
            || collective.reduces() && reduction.accepts(dtype))
    }

    /// Cases in which every pair of values occurs that can.
    fn cover(&self) -> Vec<Case> {
        let lens = self.values.each_ref().map(Vec::len);
        let mut cores = Vec::new();
        for operation in 0..lens[OPERATION] {
            for algorithm in 0..lens[ALGORITHM] {
                for dtype in 0..lens[DTYPE] {
                    for reduction in 0..lens[REDUCTION] {
                        if self.is_valid(operation, algorithm, dtype, reduction) {
                            cores.push([operation, algorithm, dtype, reduction]);
                        }
                    }
                }
            }
        }
        let mut open = BTreeSet::new();
        for core in &cores {
            for (a, &x) in core.iter().enumerate() {
                for (b, &y) in core.iter().enumerate().skip(a + 1) {
                    open.insert((a, x, b, y));
                }
                for (b, &len) in lens.iter().enumerate().skip(core.len()) {
                    open.extend((0..len).map(|y| (a, x, b, y)));
                }
            }
        }
        for a in REDUCTION + 1..FACTORS {
            for b in a + 1..FACTORS {
                open.extend((0..lens[a]).flat_map(|x| (0..lens[b]).map(move |y| (a, x, b, y))));
            }
        }
        let mut cases = Vec::new();
        while !open.is_empty() {
            // The constrained values that close most, then one factor after the other likewise.
            let gain = |core: &&[usize; 4]| {
                let pairs = (0..4).flat_map(|a| (a + 1..4).map(move |b| (a, core[a], b, core[b])));
                let inner = pairs.filter(|pair| open.contains(pair)).count();
                let outer = open
                    .iter()
                    .filter(|(a, x, b, _)| *a < 4 && *b >= 4 && core[*a] == *x)
                    .count();
                (inner, outer)
            };
            let Some(core) = cores.iter().max_by_key(gain) else {
                break;
            };
            let mut case: Case = [0; FACTORS];
            case[..4].copy_from_slice(core);
            for b in 4..FACTORS {
                let closes = |y: &usize| (0..b).filter(|&a| open.contains(&(a, case[a], b, *y))).count();
                // Where nothing is gained the values take turns.
                let turns = (0..lens[b]).map(|y| (y + cases.len()) % lens[b]);
                case[b] = turns.max_by_key(closes).unwrap_or(0);
            }
            let before = open.len();
            for a in 0..FACTORS {
                for b in a + 1..FACTORS {
                    open.remove(&(a, case[a], b, case[b]));
                }
            }
            assert!(open.len() < before, "nothing closes {:?}", open.first());
            cases.push(case);
        }
        cases
    }

    /// The command line of a case.
    fn line(&self, case: &Case) -> Vec<String> {
        let value = |factor: usize| self.values[factor][case[factor]].as_str();
        let ranks: usize = value(4).parse().unwrap();
        let root = match value(8) {
            "first" => 0,
            "middle" => ranks / 2,
            _ => ranks - 1,
        };
        let collective = self.operations[case[OPERATION]];
        let mut line = format!(
            "{} --algo {} -d {} --ranks {ranks} --transport {} {} -b {size} -e {size} -n 1 -w 0",
            value(OPERATION),
            value(ALGORITHM),
            value(DTYPE),
            value(5),
            // Blocks that are given have no place in both buffers of an all-to-all.
            if collective == Collective::AlltoAllV {
                "--out-of-place"
            } else {
                value(6)
            },
            size = value(7),
        );
        if collective.reduces() {
            line += &format!(" -o {}", value(REDUCTION));
        }
        if collective.root().is_some() {
            line += &format!(" -r {root}");
        }
        if collective.has_given_blocks() {
            line += &format!(" --skew {}", value(9));
        }
        line.split(' ').map(str::to_owned).collect()
    }
}

#[test]
fn every_pair_of_values_gives_right_results_between_processes() {
    let factors = Factors::new();
    let cases = factors.cover();
    let plugin = common::plugin::example();
    for case in &cases {
        let line = factors.line(case);
        let output = Command::new(env!("CARGO_BIN_EXE_ccl-perf"))
            .args(&line)
            .env(
                "CCL_NET_PLUGIN",
                if line.iter().any(|word| word == "loop") {
                    plugin.as_str()
                } else {
                    ""
                },
            )
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "ccl-perf {}: {said}", line.join(" "));
    }
    let pairs: usize = factors.values.iter().map(Vec::len).sum();
    println!(
        "counted: {} cases between processes cover all pairs of {pairs} values: all were right",
        cases.len()
    );
}
