//! The `ccl-topo` program: shows, converts, compares and draws descriptions of machines, and simulates calls on them; proves schedules.

mod draw;
mod explain;
mod plan;
mod rings;
mod simulate;
mod verify;

use crate::{
    log,
    topo::{
        diff::diff,
        discover,
        levels::Levels,
        read::{self, Reading},
        show, write,
    },
};
use clap::{Parser, Subcommand, error::ErrorKind};
use std::{
    env,
    ffi::OsString,
    fmt::Write as _,
    fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Shows, converts and compares descriptions of machines: their processors, PCI trees, GPUs, links and network adapters.
///
/// A description is a file in a format that is found out from its content, `-` for standard input, or `live` for this machine. What a
/// file says is believed unless it cannot be true; what was changed or left out is told.
///
/// Exit status: 0 if all went well, 1 if something failed, 2 for a mistake on the command line. Of diff: 0 if there is no difference,
/// 1 if there is one, 2 if something failed.
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
    /// Find rings and trees over a machine's GPUs, beside what no schedule can pass
    Rings {
        /// A file, - or live
        file: PathBuf,
        /// How many such hosts there are, which talk by their network adapters
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        hosts: u32,
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
    /// Draw a machine, rings and trees on it, or when ranks send in a call, as SVG
    Draw(Box<draw::Draw>),
    /// Choose how to do a collective on a machine, its ranks as the file declares them or in its order: algorithm, channels and tile
    Plan(Box<plan::Plan>),
    /// Tell why a collective is done so on a machine, what limits it, and where another way is faster
    Explain(Box<explain::Explain>),
    /// Prove the schedules of a collective, or an algorithm in MSCCL's XML
    Verify(Box<verify::Verify>),
}

#[derive(Debug, clap::Args)]
struct How {
    /// Where live looks, instead of /: a copy of another machine's /sys and /proc, without its NVLinks
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
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
    log::begin();
    run(env::args_os())
}

fn run(words: impl Iterator<Item = OsString>) -> ExitCode {
    let args = match Args::try_parse_from(words) {
        Ok(args) => args,
        Err(error) => {
            let text = error.render().to_string();
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => print(&text, ExitCode::SUCCESS, FAILED),
                ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => complain(
                    "show, dump, diff, rings, simulate, draw, plan, explain or verify? --help tells more",
                    MISTAKEN,
                ),
                _ => complain(&crate::perf::one_line(&text), MISTAKEN),
            };
        }
    };
    let (files, how) = args.command.files();
    if how.is_some_and(|how| how.root.is_some()) && !files.into_iter().any(is_live) {
        return complain("--root says where live looks, which is not asked for", MISTAKEN);
    }
    if let Err(line) = args.command.check() {
        return complain(&line, MISTAKEN);
    }
    match obey(&args.command) {
        Ok((text, code)) => print(&text, code, args.command.trouble()),
        Err(line) => complain(&line, args.command.trouble()),
    }
}

impl Command {
    fn files(&self) -> (Vec<&Path>, Option<&How>) {
        match self {
            Command::Show { file, how }
            | Command::Rings { file, how, .. }
            | Command::Dump { file, how, .. } => (vec![file.as_path()], Some(how)),
            Command::Diff { first, second, how } => (vec![first.as_path(), second.as_path()], Some(how)),
            Command::Simulate(simulate) => (simulate.files().collect(), Some(&simulate.how)),
            Command::Draw(draw) => (draw.files().collect(), Some(&draw.how)),
            Command::Plan(plan) => (vec![plan.file()], Some(plan.how())),
            Command::Explain(explain) => (vec![explain.asked.file()], Some(explain.asked.how())),
            Command::Verify(_) => (Vec::new(), None),
        }
    }

    /// Whether what is asked for goes together, as far as that is known before any file is read.
    fn check(&self) -> Result<(), String> {
        match self {
            Command::Show { .. } | Command::Rings { .. } | Command::Dump { .. } | Command::Diff { .. } => {
                Ok(())
            }
            Command::Simulate(simulate) => simulate.check(),
            Command::Draw(draw) => draw.check(),
            Command::Plan(plan) => plan.check(),
            Command::Explain(explain) => explain.asked.check(),
            Command::Verify(verify) => verify.check(),
        }
    }

    /// The status when something failed.
    fn trouble(&self) -> u8 {
        match self {
            Command::Diff { .. } => MISTAKEN,
            _ => FAILED,
        }
    }
}

/// The status when something failed; and for a mistake on the command line.
const FAILED: u8 = 1;
const MISTAKEN: u8 = 2;

fn obey(command: &Command) -> Result<(String, ExitCode), String> {
    match command {
        Command::Show { file, how } => {
            let (reading, from) = read_in(file, how)?;
            Ok((plain(&shown(&reading, &from)), ExitCode::SUCCESS))
        }
        Command::Rings { file, hosts, how } => {
            let (reading, from) = load(file, how)?;
            let told = rings::rings(&reading.graph, *hosts as usize)?;
            Ok((plain(&format!("{from}\n{told}")), ExitCode::SUCCESS))
        }
        Command::Dump { file, format, how } => {
            let (reading, _) = load(file, how)?;
            let writer = write::writer(format).ok_or("no such format")?; // The command line allows only such.
            let written = (writer.write)(&reading.graph);
            for left_out in written.left_out {
                complain(&plain(&format!("{format} has no words for {left_out}")), 0);
            }
            let text = match *format == "json" {
                true => plain_json(written.text),
                false => written.text,
            };
            Ok((text, ExitCode::SUCCESS))
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
        Command::Draw(draw) => draw.run(),
        Command::Plan(plan) => plan.run(),
        Command::Explain(explain) => explain.run(),
        Command::Verify(verify) => verify.run(),
    }
}

fn is_live(file: &Path) -> bool {
    file.as_os_str() == "live"
}

/// A machine, and what its description is, for who is not shown what of it was repaired or left out: that something was is told.
fn load(file: &Path, how: &How) -> Result<(Reading, String), String> {
    let (reading, from) = read_in(file, how)?;
    if !reading.repairs.is_empty() && !is_live(file) {
        let line = format!(
            "{}: something was repaired or left out, ccl-topo show tells what",
            file.display()
        );
        complain(&plain(&line), 0);
    }
    Ok((reading, from))
}

/// A machine, and what its description is.
fn read_in(file: &Path, how: &How) -> Result<(Reading, String), String> {
    if is_live(file) {
        let root = how.root.as_deref().unwrap_or(Path::new("/"));
        if !root.join("sys").is_dir() {
            return Err(format!("{}: no folder with a sys in it", root.display()));
        }
        let reading = match nvml(how.root.is_none()) {
            Some(library) => discover::read_with_nvml(root, &library),
            None => discover::read(root),
        };
        return Ok((reading, format!("the machine under {}", root.display())));
    }
    let (text, name) = text(file, MOST_BYTES, "description of a machine")?;
    let read = match how.from {
        Some(format) => read::read_as(format, &text, &name).map(|reading| (reading, format)),
        None => read::read(&text, &name),
    };
    let (reading, format) = read.map_err(|flaw| plain(&flaw.to_string()))?;
    Ok((reading, format!("{name}: {}, {}", format.name, format.about)))
}

/// A file's text, of at most so many bytes, and its name.
fn text(file: &Path, most: u64, what: &str) -> Result<(String, String), String> {
    let name = file.display().to_string();
    let bytes = match name.as_str() {
        "-" => bytes(io::stdin().lock(), 0, most, what),
        _ => fs::File::open(file).and_then(|file| bytes(&file, file.metadata()?.len(), most, what)),
    };
    let text = bytes.and_then(|bytes| decode(bytes, &name));
    match text {
        Ok(text) => Ok((text, name)),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

/// The library that tells of NVLinks: this machine's knows nothing of others. `CCL_NVML_PATH` names another one, or, empty, none.
fn nvml(is_here: bool) -> Option<OsString> {
    match env::var_os("CCL_NVML_PATH") {
        Some(named) => (!named.is_empty()).then_some(named),
        None => is_here.then(|| discover::NVML.into()),
    }
}

/// All bytes, of which there seem to be so many, unless there are more than any such file has.
fn bytes(from: impl Read, length: u64, most: u64, what: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if length <= most {
        from.take(most + 1).read_to_end(&mut bytes)?;
    }
    if length.max(bytes.len() as u64) > most {
        let what = format!("more than {} MiB: no {what}", most >> 20);
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(bytes)
}

const MOST_BYTES: u64 = 1 << 30;

/// A text in UTF-8, in UTF-16 with a mark of its order, or else in Latin-1, which is told.
fn decode(bytes: Vec<u8>, name: &str) -> io::Result<String> {
    let order: Option<fn([u8; 2]) -> u16> = match *bytes {
        [0xff, 0xfe, ..] => Some(u16::from_le_bytes),
        [0xfe, 0xff, ..] => Some(u16::from_be_bytes),
        _ => None,
    };
    if let Some(order) = order {
        let units = bytes[2..].chunks_exact(2).map(|pair| order([pair[0], pair[1]]));
        let text: Result<String, _> = char::decode_utf16(units).collect();
        let whole = bytes.len().is_multiple_of(2);
        return text.ok().filter(|_| whole).ok_or_else(|| {
            let what = "begins as UTF-16, and is not";
            io::Error::new(io::ErrorKind::InvalidData, what)
        });
    }
    String::from_utf8(bytes).or_else(|error| {
        let at = error.utf8_error().valid_up_to();
        complain(
            &format!("{name}: byte {at} is not UTF-8: the file is read as Latin-1"),
            0,
        );
        Ok(error.into_bytes().into_iter().map(char::from).collect())
    })
}

fn shown(reading: &Reading, from: &str) -> String {
    let graph = &reading.graph;
    let mut text = format!("{from}\n{}\n", show::counts(graph));
    for (key, value) in graph.whole() {
        let _ = writeln!(text, "{key}: {value}"); // Writing to a string does not fail.
    }
    let _ = write!(text, "\n{}", show::tree(graph));
    let levels = Levels::of(graph);
    if !levels.levels.is_empty() {
        let _ = write!(text, "\nlevels, the nearest first:\n{}", levels.tell(graph));
    }
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

/// JSON with escapes for what would move a terminal's cursor and is not escaped anyway; outside of words there is none of it.
fn plain_json(text: String) -> String {
    let strange = |c: char| c.is_control() && !c.is_ascii_control() || c == '\u{7f}';
    if !text.contains(strange) {
        return text;
    }
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match strange(c) {
            true => _ = write!(plain, "\\u{:04x}", u32::from(c)), // Writing to a string does not fail.
            false => plain.push(c),
        }
    }
    plain
}

/// `trouble`: the status if it cannot be written.
fn print(text: &str, code: ExitCode, trouble: u8) -> ExitCode {
    let mut out = io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => code,
        // Who reads has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => code,
        Err(error) => complain(&format!("standard output: {error}"), trouble),
    }
}

fn complain(line: &str, status: u8) -> ExitCode {
    // If standard error is closed, the status has to do.
    let _ = io::stderr().write_all(format!("ccl-topo: {line}\n").as_bytes());
    ExitCode::from(status)
}
