//! The `ccl-topo` program: shows, converts and compares descriptions of machines, and simulates calls on them.

mod simulate;

use crate::topo::{
    diff::diff,
    discover,
    read::{self, Reading},
    show, write,
};
use clap::{Parser, Subcommand, error::ErrorKind};
use std::{
    ffi::OsString,
    fmt::Write as _,
    fs,
    io::{Read, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Shows, converts and compares descriptions of machines: their processors, PCI trees, GPUs, links and network adapters.
///
/// A description is a file in a format that is found out from its content, `-` for standard input, or `live` for this machine. What a
/// file says is believed unless it cannot be true; what was changed or left out is told.
///
/// Exit status: 0 if all went well, 1 if something failed or diff found a difference, 2 for a mistake on the command line.
#[derive(Debug, Parser)]
#[command(name = "ccl-topo", version, arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show a machine: what there is, as a tree, the ways between GPUs and adapters, and what was repaired
    Show {
        /// A file, - or live
        file: PathBuf,
        #[command(flatten)]
        how: How,
    },
    /// Write a machine in a format
    Dump {
        /// A file, - or live
        file: PathBuf,
        /// The format: json, which holds everything, or nccl-xml
        #[arg(long, value_name = "NAME", default_value = "json", value_parser = ["json", "nccl-xml"])]
        format: String,
        #[command(flatten)]
        how: How,
    },
    /// Tell in what a machine differs from another
    Diff {
        /// A file, - or live
        first: PathBuf,
        /// A file, - or live
        second: PathBuf,
        #[command(flatten)]
        how: How,
    },
    /// Tell how long a collective takes on a network that need not be there
    Simulate(Box<simulate::Simulate>),
}

#[derive(Debug, clap::Args)]
struct How {
    /// Where live looks, instead of /: a copy of another machine's /sys and /proc
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// The format of files, where their content should not decide
    #[arg(long, value_name = "NAME", value_parser = format)]
    from: Option<&'static read::Format>,
}

fn format(name: &str) -> Result<&'static read::Format, String> {
    let names = || {
        read::FORMATS
            .iter()
            .map(|format| format.name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    read::format(name).ok_or_else(|| format!("a format is one of {}", names()))
}

/// The whole program.
pub fn main() -> ExitCode {
    run(std::env::args_os())
}

fn run(words: impl Iterator<Item = OsString>) -> ExitCode {
    let args = match Args::try_parse_from(words) {
        Ok(args) => args,
        Err(error) => {
            let text = error.render().to_string();
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => print(&text, ExitCode::SUCCESS),
                ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                    complain("show, dump, diff or simulate? --help tells more", 2)
                }
                _ => complain(&crate::perf::one_line(&text), 2),
            };
        }
    };
    match obey(&args.command) {
        Ok((text, code)) => print(&text, code),
        Err(line) => complain(&line, 1),
    }
}

fn obey(command: &Command) -> Result<(String, ExitCode), String> {
    match command {
        Command::Show { file, how } => {
            let (reading, from) = load(file, how)?;
            Ok((plain(&shown(&reading, &from)), ExitCode::SUCCESS))
        }
        Command::Dump { file, format, how } => {
            let (reading, _) = load(file, how)?;
            let writer = write::writer(format).ok_or("no such format")?; // The command line allows only such.
            let written = (writer.write)(&reading.graph);
            for left_out in written.left_out {
                complain(&plain(&format!("{format} has no words for {left_out}")), 0);
            }
            Ok((written.text, ExitCode::SUCCESS))
        }
        Command::Diff { first, second, how } => {
            let (before, after) = (load(first, how)?.0, load(second, how)?.0);
            let changes = diff(&before.graph, &after.graph);
            let code = if changes.is_empty() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            };
            let lines: String = changes.iter().map(|change| format!("{change}\n")).collect();
            Ok((plain(&lines), code))
        }
        Command::Simulate(simulate) => simulate.run(),
    }
}

/// A machine, and what its description is.
fn load(file: &Path, how: &How) -> Result<(Reading, String), String> {
    let name = file.display().to_string();
    if name == "live" {
        let reading = discover::read(&how.root);
        return Ok((reading, format!("the machine under {}", how.root.display())));
    }
    let mut bytes = Vec::new();
    let read = match name == "-" {
        true => std::io::stdin().lock().read_to_end(&mut bytes).map(|_| ()),
        false => fs::read(file).map(|all| bytes = all),
    };
    read.map_err(|error| format!("{name}: {error}"))?;
    let text = String::from_utf8(bytes).map_err(|error| format!("{name}: not text: {error}"))?;
    let read = match how.from {
        Some(format) => (format.read)(&text, &name).map(|reading| (reading, format)),
        None => read::read(&text, &name),
    };
    let (reading, format) = read.map_err(|flaw| plain(&flaw.to_string()))?;
    Ok((reading, format!("{name}: {}, {}", format.name, format.about)))
}

fn shown(reading: &Reading, from: &str) -> String {
    let graph = &reading.graph;
    let mut text = format!("{from}\n{}\n", show::counts(graph));
    for (key, value) in graph.whole() {
        let _ = writeln!(text, "{key}: {value}"); // Writing to a string does not fail.
    }
    let _ = write!(text, "\n{}", show::tree(graph));
    let matrix = show::matrix(graph);
    if !matrix.is_empty() {
        let _ = write!(text, "\n{matrix}");
    }
    if !reading.repairs.is_empty() {
        let _ = writeln!(text, "\nrepaired or left out:");
        for repair in &reading.repairs {
            let _ = writeln!(text, "  {repair}");
        }
    }
    text
}

/// Files' words, without what would move a terminal's cursor.
fn plain(text: &str) -> String {
    let strange = |c: char| c.is_control() && c != '\n';
    text.replace(strange, "\u{fffd}")
}

fn print(text: &str, code: ExitCode) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}

fn complain(line: &str, status: u8) -> ExitCode {
    // If standard error is closed, the status has to do.
    let _ = std::io::stderr().write_all(format!("ccl-topo: {line}\n").as_bytes());
    ExitCode::from(status)
}
