//! `ccl-perf tune`: measures this machine's transports, fits the planner's constants, and notes where the model still chooses
//! what was measured to be slower.

use super::{
    args::one_line,
    complain,
    console::Trouble,
    launch,
    operation::Operation,
    report::{Job, Placement, Run},
    setup::{Memory, Setup},
    show, size,
    size::{Step, Sweep, readable},
    skew::Skew,
    tell,
};
use crate::{
    bootstrap::env::Launch,
    comm::tuning::{self, Tuned},
    plan::{
        self,
        algo::{ALGORITHMS, Algorithm},
        calibration::{Calibration, Choice, Constants, Tuning},
        choose,
        cost::{Counts, Load},
        definition,
        fit::{Sample, machine},
        forced::Forced,
    },
    topo::{
        fingerprint::Fingerprint,
        host::Host,
        share::{Allowance, share},
    },
    types::{Collective, DType, Op},
};
use clap::{Parser, error::ErrorKind};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt::Write,
    io,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

/// The word that asks for this.
pub(super) const COMMAND: &str = "tune";

/// Measures this machine, and has communicators plan by it.
///
/// Runs each algorithm of each operation shortly between processes of this machine, fits the constants of the planner's model to
/// the times, and prints for each what was measured and what the model predicts then. Where it still chooses an algorithm that takes
/// over 10% longer than the best, also when both are measured again in turn, that is noted as well. All goes to a file that rank 0 of
/// each later communicator reads when it is made, on machines of this kind, and tells the others. Run it where nothing else runs.
///
/// The file is CCL_TUNE_FILE, else tune-HASH.json in ccl of the user's folder of caches (XDG_CACHE_HOME, ~/.cache). What it has of
/// the other transport stays. CCL_TUNE=off has it ignored, CCL_TUNE=FILE names another.
///
/// Exit status: 0 if all went well, 1 if something failed or --check found a choice that is too slow, 2 for a mistake on the command
/// line, 128 + n if signal n asked to stop, and nothing is written then.
#[derive(Debug, Parser)]
#[command(name = "ccl-perf tune")]
struct Args {
    /// Numbers of ranks, with commas [default: 2, one per usable core, and twice as many, up to 16]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..=1024))]
    ranks: Vec<u32>,

    /// Smallest size in bytes
    #[arg(short = 'b', value_name = "MIN", default_value = "8", value_parser = size::parse)]
    min: u64,

    /// Largest size; sizes are 8 times as long each as the one before
    #[arg(short = 'e', value_name = "MAX", default_value = "4M", value_parser = size::parse)]
    max: u64,

    /// What to measure: shm, or tcp over the loopback interface
    #[arg(long, value_name = "NAME", default_value = "shm", value_parser = ["shm", "tcp"])]
    transport: String,

    /// About how long it may take, beside measuring again what seems slower than the best, a second each; all is measured once,
    /// however long that takes
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,

    /// Write to FILE instead
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Write nothing, and tell what communicators choose here, by CCL_TUNE's file or without one, beside the best that is measured now: where
    /// the choice takes over 10% longer also when both are measured again in turn, and more than half of the best's spread longer
    #[arg(long, conflicts_with = "output")]
    check: bool,
}

/// The whole command.
pub(super) fn main(words: impl Iterator<Item = OsString>) -> ExitCode {
    let line = std::iter::once(OsString::from("ccl-perf tune")).chain(words);
    let args = match Args::try_parse_from(line) {
        Ok(args) => args,
        Err(error) => {
            let text = error.render().to_string();
            return match error.kind() {
                ErrorKind::DisplayHelp => show(&text, true),
                _ => complain(&one_line(&text), 2),
            };
        }
    };
    if args.min == 0 || args.min > args.max {
        return complain("-b is more than -e, or 0", 2);
    }
    if matches!(Launch::of_this_process(), Ok(Some(launch)) if launch.ranks > 1) {
        return complain(
            "it starts the ranks itself: run it once on a machine, and by no launcher",
            2,
        );
    }
    let host = Host::read(Path::new("/"));
    let most = ranks(&args, &host).into_iter().max().unwrap_or(0);
    if let Err(line) = Memory::of_two_buffers(args.max, &host).check(most, "lower -e or --ranks") {
        return complain(&line, 2);
    }
    match tune(&args, &host) {
        Ok((text, is_good)) => match (show(&text, true), is_good) {
            (status, true) => status,
            (_, false) => ExitCode::FAILURE,
        },
        Err(trouble) => tell(trouble),
    }
}

/// What there is to say, and whether all is well.
fn tune(args: &Args, host: &Host) -> Result<(String, bool), Trouble> {
    let machine = Fingerprint::read(Path::new("/"));
    let transport = args.transport.as_str();
    let mut again = |chosen: &Probe, best: &Probe| again(args, host, chosen, best);
    if args.check {
        let (tuning, source) = tuning::named(0, 1);
        let (probes, note) = measure(args, host)?;
        let (text, is_good) = checked(&probes, transport, &tuning, &mut again)?;
        return Ok((format!("{text}{note}# as planned by {source}\n"), is_good));
    }
    let path = match &args.output {
        Some(path) => path.clone(),
        None => tuning::place(|| machine.clone())
            .or_else(|| Some(tuning::folder()?.join(tuning::name(&machine))))
            .ok_or_else(|| "there is no folder for the file: set HOME, or give --output FILE".to_owned())?,
    };
    let unwritten = |error: io::Error| format!("writing {}: {error}", path.display());
    tuning::check_place(&path).map_err(unwritten)?;
    let (probes, note) = measure(args, host)?;
    // What is there of the other transport stays.
    let before = tuning::read(&path).ok();
    let before = before.filter(|tuned| tuning::fitting(tuned.clone(), &machine).is_ok());
    let is_lost = before.is_none() && path.exists();
    let mut tuned = before.unwrap_or_else(|| Tuned {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        machine,
        fit: Vec::new(),
        calibration: Calibration::DEFAULT,
        choices: Vec::new(),
    });
    *tuned.calibration.of(transport) = fit(&probes, transport, tuned.calibration);
    let (text, said) = report(&probes, transport, &tuned.calibration);
    let is_other = |line: &String| !line.starts_with(transport);
    tuned.fit.retain(is_other);
    tuned.fit.push(said);
    let is_anew =
        |choice: &Choice| choice.transport == transport && probes.iter().any(|probe| probe.is_of(choice));
    tuned.choices.retain(|choice| !is_anew(choice));
    let choices = choices(&probes, transport, &tuned.calibration, &mut again)?;
    let mut text = text + &told(&choices, &probes) + &note;
    tuned.choices.extend(choices);
    tuned.choices.truncate(Tuning::MOST_CHOICES);
    launch::go_on()?;
    if let Err(error) = tuning::write(&path, &tuned) {
        // What was measured is told all the same.
        show(&text, true);
        return Err(unwritten(error).into());
    }
    // Writing to a text does not fail.
    let _ = writeln!(text, "# written to {}", path.display());
    if is_lost {
        text.push_str(
            "# what was there was damaged, or of another build or machine: all of it is replaced\n",
        );
    }
    Ok((text, true))
}

/// One call that was measured.
#[derive(Debug, Clone)]
struct Probe {
    load: Load,
    /// The cores that its ranks had together.
    cores: usize,
    algorithm: &'static Algorithm,
    counts: Counts,
    /// The least of the medians of the rounds, in nanoseconds; and the greatest, once there are several.
    nanos: f64,
    most: Option<f64>,
}

impl Probe {
    fn predicted(&self, transport: &str, calibration: &Calibration) -> f64 {
        self.sample().predicted(transport, calibration)
    }

    fn sample(&self) -> Sample {
        Sample {
            load: self.load,
            counts: self.counts,
            cores: self.cores,
            nanos: self.nanos,
        }
    }

    /// Whether that choice is about such a call, however it went.
    fn is_of(&self, choice: &Choice) -> bool {
        let bytes = self.load.bytes() as u64;
        choice.operation == self.load.collective.name()
            && (choice.ranks as usize, choice.cores as usize) == (self.load.ranks, self.cores)
            && (choice.bytes[0]..choice.bytes[1]).contains(&bytes)
    }

    /// How many times as long, or as short, as predicted it took.
    fn factor(&self, transport: &str, calibration: &Calibration) -> f64 {
        (self.predicted(transport, calibration) / self.nanos)
            .ln()
            .abs()
            .exp()
    }
}

/// The operations that are measured. Those whose blocks are given cost what these do.
fn operations() -> impl Iterator<Item = Collective> {
    let all = definition::every([0]).into_iter();
    all.filter(|collective| collective.has_vector() && !collective.has_given_blocks())
}

/// The numbers of ranks that are measured.
fn ranks(args: &Args, host: &Host) -> Vec<usize> {
    let mut ranks: Vec<usize> = args.ranks.iter().map(|&ranks| ranks as usize).collect();
    if ranks.is_empty() {
        ranks = [2, host.cpus, 2 * host.cpus]
            .map(|ranks| ranks.clamp(2, 16))
            .to_vec();
    }
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

/// Measures all that is asked for, in rounds, as long as there is time; also says what is to be said of that.
///
/// # Errors
/// Also that nothing was.
fn measure(args: &Args, host: &Host) -> Result<(Vec<Probe>, String), Trouble> {
    let (probes, first_round) = measure_all(args, host)?;
    if probes.is_empty() {
        return Err(
            "nothing was measured: sizes from -b to -e have no element for each rank, raise -e"
                .to_owned()
                .into(),
        );
    }
    let (took, asked) = (first_round.as_secs_f64(), args.seconds);
    let note = match took > asked as f64 {
        true => format!(
            "# note: to measure all once took {took:.0} s, longer than --seconds {asked}: a moment's noise may count; raise it\n"
        ),
        false => String::new(),
    };
    Ok((probes, note))
}

/// What was measured, and how long the first round took, which is always whole: of an algorithm that is not measured nothing is known.
fn measure_all(args: &Args, host: &Host) -> Result<(Vec<Probe>, Duration), Trouble> {
    let began = Instant::now();
    let seconds = Duration::from_secs(args.seconds);
    let ranks = ranks(args, host);
    let sweep = Sweep {
        min: args.min,
        max: args.max,
        step: Step::Factor(8.0),
    };
    // Without hosts there is nothing to gain from what knows them.
    let algorithms: Vec<&Algorithm> = ALGORITHMS.iter().filter(|one| !one.knows_groups()).collect();
    let fitting = |one: &Algorithm| operations().filter(|&collective| (one.fits)(collective)).count();
    let calls =
        algorithms.iter().map(|one| fitting(one)).sum::<usize>() * sweep.sizes().count() * ranks.len();
    let each = seconds.mul_f64(SHARE) / (ROUNDS * calls.max(1)) as u32;
    let mut least: BTreeMap<(usize, usize, usize, u64), Probe> = BTreeMap::new();
    let mut first_round = Duration::ZERO;
    for round in 0..ROUNDS {
        if round == 1 {
            first_round = began.elapsed();
        }
        for &ranks in &ranks {
            let here = Allowance::here();
            let cores = share(&vec![&here; ranks]).cores.max(1);
            for (number, &algorithm) in algorithms.iter().enumerate() {
                if round > 0 && began.elapsed() > seconds.mul_f64(0.95) {
                    return Ok((least.into_values().collect(), first_round));
                }
                let collectives: Vec<Collective> =
                    operations().filter(|&one| (algorithm.fits)(one)).collect();
                let setup = setup(args, (ranks, sweep), algorithm, &collectives, each);
                let rows = launch::rows(&setup, host)
                    .map_err(|trouble| trouble.of(&format!("{ranks} ranks, {}", algorithm.name)))?;
                for row in rows {
                    let known = collectives.iter().find(|one| one.name() == row.operation);
                    let (Some(&collective), Some(measured)) = (known, row.out_of_place) else {
                        continue;
                    };
                    let nanos = measured.stats.median_us * 1e3;
                    if nanos <= 0.0 || row.bytes == 0 {
                        continue;
                    }
                    let load = Load::new(collective, ranks, row.count as usize, DType::Float32);
                    let place = operations().position(|one| one == collective).unwrap_or(0);
                    let probe = least
                        .entry((ranks, place, number, row.bytes))
                        .or_insert_with(|| Probe {
                            load,
                            cores,
                            algorithm,
                            counts: (algorithm.counts)(&load),
                            nanos,
                            most: None,
                        });
                    if round > 0 {
                        probe.most = Some(probe.most.unwrap_or(probe.nanos).max(nanos));
                    }
                    probe.nanos = probe.nanos.min(nanos);
                }
            }
        }
    }
    Ok((least.into_values().collect(), first_round))
}

/// Each call is measured so often, so that what else the machine did for a moment does not count.
const ROUNDS: usize = 2;

/// What two algorithms take for the same call, measured in turn.
#[derive(Debug, Clone, Copy)]
struct Again {
    /// Medians, in nanoseconds.
    chosen: f64,
    best: f64,
    /// Half of what lies between the shortest and the longest that the best took.
    noise: f64,
}

impl Again {
    fn new(chosen: &mut [f64], best: &mut [f64]) -> Again {
        chosen.sort_by(f64::total_cmp);
        best.sort_by(f64::total_cmp);
        let spread = best
            .last()
            .zip(best.first())
            .map_or(0.0, |(most, least)| most - least);
        Again {
            chosen: median(chosen.iter().copied()),
            best: median(best.iter().copied()),
            noise: spread / 2.0,
        }
    }

    fn is_slower(self) -> bool {
        self.chosen > (self.best * WORTH).max(self.best + self.noise)
    }
}

/// Measures again what is chosen and what seemed to be better.
fn again(args: &Args, host: &Host, chosen: &Probe, best: &Probe) -> Result<Again, Trouble> {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..AGAIN {
        for (probe, times) in [chosen, best].into_iter().zip(&mut times) {
            let bytes = probe.load.bytes() as u64;
            let sweep = Sweep {
                min: bytes,
                max: bytes,
                step: Step::Factor(2.0),
            };
            let (ranks, collective) = (probe.load.ranks, probe.load.collective);
            let setup = setup(args, (ranks, sweep), probe.algorithm, &[collective], LONG_ENOUGH);
            let rows = launch::rows(&setup, host)
                .map_err(|trouble| trouble.of(&format!("{ranks} ranks, {}", probe.algorithm.name)))?;
            let measured = rows.iter().filter_map(|row| row.out_of_place.as_ref());
            times.extend(measured.map(|measured| measured.stats.median_us * 1e3));
        }
    }
    let [chosen, best] = &mut times;
    Ok(Again::new(chosen, best))
}

/// Rounds in which two algorithms are measured in turn, and how long each is sampled in one.
const AGAIN: usize = 5;
const LONG_ENOUGH: Duration = Duration::from_millis(20);

/// The share of the time that is spent in samples; the rest is for starting processes and for calls before the first sample.
const SHARE: f64 = 0.5;

fn setup(
    args: &Args,
    (ranks, sweep): (usize, Sweep),
    algorithm: &Algorithm,
    collectives: &[Collective],
    each: Duration,
) -> Setup {
    let run = |&collective: &Collective| Run {
        operation: Operation::Collective(collective),
        dtype: DType::Float32,
        op: Op::Sum,
    };
    let job = Job {
        ranks,
        runs: collectives.iter().map(run).collect(),
        sweep,
        placements: vec![Placement::OutOfPlace],
        iterations: None,
        // The first calls by an algorithm touch memory that none did before.
        warmup: Some(10),
        time: Some(each),
        check: false,
        overlap: false,
        predict: false,
        timeout: None,
        transport: Some(args.transport.clone()),
        algorithm: Some(algorithm.name.to_owned()),
        skew: Skew::default(),
        on_device: false,
        graph: None,
        shared: false,
        threads: false,
    };
    Setup {
        job,
        explain: false,
        notes: Vec::new(),
        json: None,
        csv: None,
        launcher: None,
        ranks_here: ranks,
    }
}

/// The constants that fit what was measured. Those of which it tells nothing stay as they were `before`: of sizes that were not measured
/// nothing is to be said by what hardly counts in those that were.
fn fit(probes: &[Probe], transport: &str, mut before: Calibration) -> Constants {
    let samples: Vec<Sample> = probes.iter().map(Probe::sample).collect();
    let sizes = || samples.iter().map(|sample| sample.load.bytes());
    let (has_long, has_short) = (
        sizes().any(|size| size >= LONG),
        sizes().any(|size| size <= SHORT),
    );
    let is_told = |which: &usize| match Constants::OF_LONG.contains(which) {
        true => has_long,
        false => has_short,
    };
    let told: Vec<usize> = Constants::FITTED.filter(is_told).collect();
    let mut fitted = plan::fit::fit(&samples, transport, told.iter().copied());
    for (which, (constant, before)) in fitted
        .each()
        .into_iter()
        .zip(before.of(transport).each())
        .enumerate()
    {
        if Constants::FITTED.contains(&which) && !told.contains(&which) {
            *constant = *before;
        }
    }
    fitted
}

/// Bytes of the shortest calls that tell what bytes cost, and of the longest that tell what messages cost.
const LONG: f64 = 65_536.0;
const SHORT: f64 = 8_192.0;

/// What was measured beside what is predicted; and how well that fits, for the file.
fn report(probes: &[Probe], transport: &str, calibration: &Calibration) -> (String, String) {
    let mut text = format!(
        "# {transport}: measured (the least of {ROUNDS} medians) and predicted, in us\n#{:>12} {:>6} {:>12} {:>12} {:>12} {:>12} {:>8}\n",
        "operation", "ranks", "bytes", "algorithm", "measured", "predicted", "factor"
    );
    for probe in probes {
        let predicted = probe.predicted(transport, calibration);
        // Writing to a text does not fail.
        let _ = writeln!(
            text,
            "{:>13} {:>6} {:>12} {:>12} {:>12.2} {:>12.2} {:>8.2}",
            probe.load.collective.name(),
            probe.load.ranks,
            probe.load.bytes(),
            probe.algorithm.name,
            probe.nanos / 1e3,
            predicted / 1e3,
            predicted / probe.nanos,
        );
    }
    let median = |calibration: &Calibration, of: &dyn Fn(&Probe) -> bool| {
        let chosen = probes.iter().filter(|probe| of(probe));
        median(chosen.map(|probe| probe.factor(transport, calibration)))
    };
    let mut said = format!(
        "{transport}: {} calls; predicted and measured differ by a median factor of {:.2}, before {:.2}",
        probes.len(),
        median(calibration, &|_| true),
        median(&Calibration::DEFAULT, &|_| true),
    );
    let mut ranks: Vec<usize> = probes.iter().map(|probe| probe.load.ranks).collect();
    ranks.dedup();
    for ranks in ranks {
        let of = |probe: &Probe| probe.load.ranks == ranks;
        let _ = write!(said, "; {ranks} ranks {:.2}", median(calibration, &of));
    }
    let _ = writeln!(text, "# {said}");
    if median(calibration, &|_| true) > UNQUIET {
        text.push_str("# note: that is much: was the machine busy? Run it again where nothing else runs\n");
    }
    (text, said)
}

fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(1.0)
}

/// A median factor from which on the measurements are to be doubted.
const UNQUIET: f64 = 1.5;

/// The same call by all algorithms: operation, ranks and bytes.
fn rows_of(probes: &[Probe]) -> BTreeMap<(&str, usize, u64), Vec<&Probe>> {
    let mut groups: BTreeMap<(&str, usize, u64), Vec<&Probe>> = BTreeMap::new();
    for probe in probes {
        let (name, ranks, bytes) = (
            probe.load.collective.name(),
            probe.load.ranks,
            probe.load.bytes() as u64,
        );
        groups.entry((name, ranks, bytes)).or_default().push(probe);
    }
    groups
}

/// Measures what is chosen and what seemed to be better again.
type MeasureAgain<'a> = dyn FnMut(&Probe, &Probe) -> Result<Again, Trouble> + 'a;

/// Where the model chooses what is slower than the best, also when both are measured again.
fn choices(
    probes: &[Probe],
    transport: &str,
    calibration: &Calibration,
    again: &mut MeasureAgain<'_>,
) -> Result<Vec<Choice>, Trouble> {
    let groups = rows_of(probes);
    let mut choices = Vec::new();
    for (&(operation, ranks, bytes), probes) in &groups {
        let (load, cores) = (probes[0].load, probes[0].cores);
        let machine = machine(transport, cores, calibration);
        let Ok(chosen) = choose::algorithm(&load, &machine, &Forced::default()) else {
            continue;
        };
        let taken = probes.iter().find(|probe| probe.algorithm.name == chosen.name);
        // Of what was slow for a moment nothing follows: the best was so in all rounds.
        let surely = |probe: &Probe| probe.most.unwrap_or(f64::INFINITY);
        let Some(best) = probes.iter().min_by(|a, b| surely(a).total_cmp(&surely(b))) else {
            continue;
        };
        let Some(taken) = taken.filter(|taken| taken.nanos > surely(best) * WORTH) else {
            continue;
        };
        if !again(taken, best)?.is_slower() {
            continue;
        }
        // As far as this length is the nearest of those that were measured.
        let between = |other: u64| (bytes as f64 * other as f64).sqrt() as u64;
        let others = groups
            .keys()
            .filter(|(name, n, _)| (*name, *n) == (operation, ranks));
        let lengths: Vec<u64> = others.map(|(.., bytes)| *bytes).collect();
        let shorter = lengths.iter().rev().find(|&&other| other < bytes);
        let longer = lengths.iter().find(|&&other| other > bytes);
        choices.push(Choice {
            transport: transport.to_owned(),
            operation: operation.to_owned(),
            ranks: ranks as u32,
            cores: cores as u32,
            bytes: [
                shorter.map_or(bytes / 2, |&other| between(other)),
                longer.map_or(bytes * 2, |&other| between(other)),
            ],
            algorithm: best.algorithm.name.to_owned(),
        });
    }
    Ok(choices)
}

/// What the planner chooses by what was measured before beside what was measured as the best; and whether no choice is slower beyond the noise.
fn checked(
    probes: &[Probe],
    transport: &str,
    tuning: &Tuning,
    again: &mut MeasureAgain<'_>,
) -> Result<(String, bool), Trouble> {
    let mut text = format!(
        "# {transport}: what is chosen, and the best of what may be forced, in us: the least of {ROUNDS} medians; of what was measured again (*) the middle one of {AGAIN}\n#{:>12} {:>6} {:>12} {:>18} {:>10} {:>18} {:>10} {:>8}\n",
        "operation", "ranks", "bytes", "chosen", "time", "best", "time", "ratio"
    );
    let (mut rows, mut slower, mut ratios) = (0, 0, Vec::new());
    for ((operation, ranks, bytes), probes) in rows_of(probes) {
        let (load, cores) = (probes[0].load, probes[0].cores);
        let machine = machine(transport, cores, &tuning.calibration);
        let machine = machine.with_choices(&tuning.choices, transport, ranks);
        let chosen = choose::algorithm(&load, &machine, &Forced::default()).ok();
        let of = |probe: &&Probe| chosen.is_some_and(|chosen| chosen.name == probe.algorithm.name);
        let best = probes.iter().copied().min_by(|a, b| a.nanos.total_cmp(&b.nanos));
        let (Some(chosen), Some(best)) = (probes.iter().copied().find(of), best) else {
            continue;
        };
        let measured = match chosen.nanos > best.nanos * WORTH {
            true => Some(again(chosen, best)?),
            false => None,
        };
        let is_slower = measured.is_some_and(Again::is_slower);
        let [taken, least] = measured.map_or([chosen.nanos, best.nanos], |again| [again.chosen, again.best]);
        let ratio = taken / least;
        rows += 1;
        slower += usize::from(is_slower);
        ratios.push(ratio);
        // Writing to a text does not fail.
        let _ = writeln!(
            text,
            "{operation:>13} {ranks:>6} {bytes:>12} {:>18} {:>10.2} {:>18} {:>10.2} {ratio:>8.2}{}",
            chosen.algorithm.name,
            taken / 1e3,
            best.algorithm.name,
            least / 1e3,
            match (measured, is_slower) {
                (None, _) => "",
                (Some(_), false) => "  *",
                (Some(_), true) => "  * slower",
            },
        );
    }
    let missed = probes
        .iter()
        .map(|probe| probe.factor(transport, &tuning.calibration));
    let _ = writeln!(
        text,
        "# {slower} of {rows} choices are slower than the best beyond the noise; the median is {:.2} times the best\n\
         # {} calls; predicted and measured differ by a median factor of {:.2}",
        median(ratios.into_iter()),
        probes.len(),
        median(missed),
    );
    Ok((text, slower == 0))
}

/// How many times as long as the best a choice must take to be replaced.
const WORTH: f64 = 1.1;

fn told(choices: &[Choice], probes: &[Probe]) -> String {
    let mut text = format!(
        "# {} of {} choices of the model are replaced by what was measured as the best\n",
        choices.len(),
        probes
            .iter()
            .map(|probe| (probe.load.collective.name(), probe.load.ranks, probe.load.count))
            .collect::<std::collections::BTreeSet<_>>()
            .len()
    );
    for choice in choices {
        let [from, to] = choice.bytes.map(readable);
        // Writing to a text does not fail.
        let _ = writeln!(
            text,
            "#   {} of {from} to {to}, {} ranks on {} cores: {}",
            choice.operation, choice.ranks, choice.cores, choice.algorithm
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls that took as long as a machine with these constants would.
    fn probes(truth: &Calibration) -> Vec<Probe> {
        let mut probes = Vec::new();
        for (ranks, collective) in [2, 4, 8]
            .into_iter()
            .flat_map(|n| operations().map(move |one| (n, one)))
        {
            for count in [1, 64, 4096, 1 << 18] {
                let load = Load::new(collective, ranks, count, DType::Float32);
                for algorithm in ALGORITHMS
                    .iter()
                    .filter(|one| (one.fits)(collective) && !one.knows_groups())
                {
                    let mut probe = Probe {
                        load,
                        cores: 4,
                        algorithm,
                        counts: (algorithm.counts)(&load),
                        nanos: 1.0,
                        most: None,
                    };
                    probe.nanos = probe.predicted("shm", truth);
                    probe.most = Some(probe.nanos);
                    probes.push(probe);
                }
            }
        }
        probes
    }

    /// Measured again it is as it was, but what was the best for a moment.
    #[allow(clippy::unnecessary_wraps, reason = "it stands for what may fail")]
    fn as_before(chosen: &Probe, best: &Probe) -> Result<Again, Trouble> {
        let best = best.most.unwrap_or(chosen.nanos);
        Ok(Again::new(&mut [chosen.nanos], &mut [best]))
    }

    #[test]
    fn constants_are_found_again() {
        let mut truth = Calibration::DEFAULT;
        truth.shm.alone.round *= 3.0;
        truth.shm.alone.byte *= 2.5;
        truth.shm.crowded.message *= 0.4;
        truth.shm.alone_one_way.message *= 3.0;
        truth.shm.crowded.general *= 200.0;
        truth.shm.far *= 2.0;
        truth.shm.alone.reduced *= 0.5;
        truth.shm.crowded.reduced *= 0.5;
        let probes = probes(&truth);
        let mut found = Calibration::DEFAULT;
        found.shm = fit(&probes, "shm", Calibration::DEFAULT);
        let mut factors: Vec<f64> = probes.iter().map(|probe| probe.factor("shm", &found)).collect();
        factors.sort_by(f64::total_cmp);
        let median = factors[factors.len() / 2];
        assert!(median < 1.1, "{median}");
        let (text, said) = report(&probes, "shm", &found);
        assert!(
            text.lines().count() == probes.len() + 3 && said.starts_with("shm: "),
            "{said}"
        );
        // The model is right: there is nothing to replace.
        assert_eq!(choices(&probes, "shm", &truth, &mut as_before), Ok(Vec::new()));
    }

    #[test]
    fn short_calls_tell_nothing_of_long_ones() {
        let mut truth = Calibration::DEFAULT;
        truth.shm.alone.round *= 3.0;
        let mut before = Calibration::DEFAULT;
        before.shm.alone.byte *= 2.0;
        before.shm.crowded_one_way.reduced *= 2.0;
        let mut short = probes(&truth);
        short.retain(|probe| probe.load.bytes() <= SHORT);
        let found = fit(&short, "shm", before);
        assert_eq!(
            (found.alone.byte, found.crowded_one_way.reduced),
            (before.shm.alone.byte, before.shm.crowded_one_way.reduced)
        );
        assert!(found.alone.round > 2.0 * before.shm.alone.round, "{found:?}");
    }

    #[test]
    fn what_was_better_replaces_the_choice_around_its_length() {
        let truth = Calibration::DEFAULT;
        let mut probes = probes(&truth);
        for probe in &mut probes {
            let is_it = probe.load.collective == Collective::AllReduce && probe.load.ranks == 4;
            if is_it && probe.load.count == 64 && probe.algorithm.name == "ring" {
                (probe.nanos, probe.most) = (1.0, Some(1.0));
            }
            // One that was the best for a moment only.
            if is_it && probe.load.count == 4096 && probe.algorithm.name == "ring" {
                probe.nanos = 1.0;
            }
        }
        // Measured again it is no better.
        let noisy =
            &mut |_: &Probe, best: &Probe| Ok(Again::new(&mut [1.2], &mut [0.9, 1.0, best.nanos * 2.0]));
        assert_eq!(choices(&probes, "shm", &truth, noisy), Ok(Vec::new()));
        let choices = choices(&probes, "shm", &truth, &mut as_before).unwrap();
        assert_eq!(choices.len(), 1, "{choices:?}");
        assert_eq!(
            (choices[0].algorithm.as_str(), choices[0].bytes),
            ("ring", [32, 2048])
        );
        let tuning = Tuning {
            choices: choices.clone(),
            ..Tuning::default()
        };
        assert_eq!(tuning.check(), Ok(()));
        // A check finds it where the file does not have it, and nothing else.
        for (choices, slower) in [(Vec::new(), 1), (choices.clone(), 0)] {
            let tuning = Tuning {
                calibration: truth,
                choices,
                ..Tuning::default()
            };
            let (text, is_good) = checked(&probes, "shm", &tuning, &mut as_before).unwrap();
            assert!(
                is_good == (slower == 0) && text.matches(" slower\n").count() == slower,
                "{text}"
            );
        }
        assert!(told(&choices, &probes).contains("allreduce of 32 to 2K, 4 ranks on 4 cores: ring"));
    }
}
