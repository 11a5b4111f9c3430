//! The `ccl-perf` benchmark: runs an operation between processes of this machine, checks its results and times it.
//!
//! The parent (`launch`) starts one process per rank and is no rank itself. It gives each the unique ids and the job
//! through standard input, and gets reports back through standard output. `rank` is such a process; `operation` is what can
//! be measured, `puzzle` makes inputs whose results are known, `layout` says which of them each rank has, `measure` times
//! calls, `overlap` operations beside which their caller computes.
//! Under mpirun, torchrun or srun there is no parent: every process is a rank (`launched`), and rank 0 has the `console`. Who
//! types `--rendezvous` for each rank is a launcher, too (`by_hand`). `ccl-perf status` measures nothing: it looks into running processes (`status`). `ccl-perf tune`
//! goes through the algorithms and leaves what the planner reckons with (`tune`). What is printed is written by `patient`.

mod args;
mod buffer;
mod by_hand;
mod console;
mod explain;
mod files;
mod footprint;
mod launch;
mod launched;
mod layout;
mod measure;
mod number;
mod operation;
mod overlap;
mod patient;
mod pattern;
mod processes;
mod puzzle;
mod rank;
mod report;
mod setup;
mod size;
mod skew;
mod stats;
mod status;
mod table;
mod tune;

use crate::{
    algorithms,
    bootstrap::env::Launch,
    topo::host::Host,
    types::{DType, Op},
};
pub(crate) use args::one_line;
use args::{Args, Stop};
use console::Trouble;
use files::Files;
use operation::Operation;
use report::Job;
use setup::Setup;
pub(crate) use size::parse as bytes;
use std::{io::Write, path::Path, process::ExitCode};

/// The whole program.
///
/// The exit status is 0 if all went well, 1 if an element was wrong or something failed, 2 for a mistake on the command
/// line, and 128 + n if signal n asked to stop.
pub fn main() -> ExitCode {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|first| first == rank::ARGUMENT)
    {
        return rank::main();
    }
    if std::env::args_os()
        .nth(1)
        .is_some_and(|first| first == status::COMMAND)
    {
        return status::main(std::env::args_os().skip(2));
    }
    if std::env::args_os()
        .nth(1)
        .is_some_and(|first| first == tune::COMMAND)
    {
        return tune::main(std::env::args_os().skip(2));
    }
    let launch = Launch::of_this_process();
    let first = !matches!(&launch, Ok(Some(launch)) if launch.rank > 0);
    let args = match Args::read(std::env::args_os()) {
        Ok(args) => args,
        Err(Stop::Help(text)) => return show(&text, first),
        Err(Stop::Mistake(line)) => return complain(&line, 2),
    };
    if args.list {
        return show(&list(), first);
    }
    if let Err(line) = by_hand::go_on(&args) {
        return complain(&line, 2);
    }
    match launch {
        Ok(None) => {}
        // As in a shell of `srun --pty` or `mpirun -n 1`.
        Ok(Some(launch)) if launch.ranks == 1 && args.starts_ranks() => {}
        Ok(Some(launch)) => return launched::main(args, &launch),
        Err(error) => return complain(&error.to_string(), 2),
    }
    let host = Host::read(Path::new("/"));
    let setups =
        (args.each()).and_then(|each| each.into_iter().map(|args| Setup::new(args, &host)).collect());
    let setups: Vec<Setup> = match setups {
        Ok(setups) => setups,
        Err(line) => return complain(&line, 2),
    };
    let codes = setups.iter().map(|setup| run(setup, &host));
    codes
        .into_iter()
        .find(|code| *code != ExitCode::SUCCESS)
        .unwrap_or(ExitCode::SUCCESS)
}

/// One run, of ranks that are started for it.
fn run(setup: &Setup, host: &Host) -> ExitCode {
    if setup.explain {
        return match explain::text(&setup.job) {
            Ok(text) => show(&text, true),
            Err(error) => complain(&error.to_string(), 1),
        };
    }
    let result = Files::open(setup)
        .map_err(Trouble::Failed)
        .and_then(|files| launch::run(setup, host, files));
    match result {
        Ok(0) => ExitCode::SUCCESS,
        Ok(wrong) => complain(&wrong_elements(wrong, &setup.job), 1),
        Err(trouble) => tell(trouble),
    }
}

/// Says what ended a run; gives the status to end with.
fn tell(trouble: Trouble) -> ExitCode {
    match trouble {
        Trouble::Failed(line) => complain(&line, 1),
        Trouble::Unread => ExitCode::FAILURE,
        Trouble::Signal(signal) => {
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
            let line = format!("ccl-perf: stopped by {name}; all ranks have ended\n");
            // It may be what nobody reads that is to be left.
            patient::write_now(std::io::stderr(), &line);
            ExitCode::from(128 + signal as u8)
        }
    }
}

/// Prints what the user asked for; of several ranks only the first does.
fn show(text: &str, first: bool) -> ExitCode {
    if !first {
        return ExitCode::SUCCESS;
    }
    match (patient::write(std::io::stdout(), text), launch::go_on()) {
        (Ok(()), _) => ExitCode::SUCCESS,
        (Err(_), Ok(())) => ExitCode::FAILURE,
        (Err(_), Err(trouble)) => tell(trouble),
    }
}

fn complain(line: &str, status: u8) -> ExitCode {
    // In one piece, as other ranks may write there, too. If it is closed, the status has to do.
    let _ = std::io::stderr().write_all(format!("ccl-perf: {line}\n").as_bytes());
    ExitCode::from(status)
}

fn wrong_elements(wrong: u64, job: &Job) -> String {
    let advice = match job.has_algorithms() {
        true => "--algo shows whether only one algorithm is; ",
        false => "",
    };
    format!("{wrong} elements are wrong: {advice}please report it")
}

/// What `--list` prints.
fn list() -> String {
    let mut lines = Vec::new();
    for operation in Operation::all() {
        let name = operation.name();
        let Some(collective) = operation.collective() else {
            lines.push(format!("{name}, which has no algorithms"));
            continue;
        };
        lines.push(format!("{name}, with --algo"));
        lines.extend(algorithms(collective).map(|(name, about)| format!("  {name:<12} {about}")));
    }
    lines.push(format!(
        "types, with -d\n  {}",
        DType::ALL.map(DType::name).join(" ")
    ));
    lines.push(format!(
        "reductions, with -o\n  {}",
        Op::ALL.map(Op::name).join(" ")
    ));
    lines.join("\n") + "\n"
}
