//! `ccl-perf status`: who is behind in running communicators, and in what.

use super::{complain, one_line, show};
use crate::{
    bootstrap::status::{Group, Report, Seen, Standing, look, several},
    record::{Record, State},
    transport::links::Way,
    types::Operation,
};
use clap::{Parser, error::ErrorKind};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    ffi::OsString,
    fmt::{self, Write},
    process::ExitCode,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The word that asks for this.
pub(super) const COMMAND: &str = "status";

/// Looks into running processes that use ccl, and disturbs nobody: those of this host by their numbers, others by where they listen.
///
/// For each communicator of a process it shows what every rank is in, who is behind and by how many calls, how long nothing has
/// moved, over what the ranks are joined, and the last operations. It works while ranks are stuck; the process itself must not be
/// stopped, its ranks may hang. Processes of this host are this user's (the superuser may ask all). One that is asked by HOST:PORT,
/// such as rank 0 at its MASTER_ADDR, port CCL_MASTER_PORT or else the one after MASTER_PORT, answers who has the secret by which its
/// ranks met (CCL_SECRET_FILE or CCL_SECRET).
///
/// Exit status: 0 if all answered, 1 if one did not or there is none, 2 for a mistake on the command line.
#[derive(Debug, Parser)]
#[command(name = "ccl-perf status")]
struct Args {
    /// The processes to ask [default: all of this host that may be asked]
    #[arg(value_name = "PID|HOST:PORT", value_parser = whom)]
    whom: Vec<Whom>,

    /// Print everything as JSON
    #[arg(long)]
    json: bool,

    /// Operations to show of each rank that the process has
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 8)]
    last: usize,
}

/// A process to ask.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Whom {
    Pid(u32),
    /// HOST:PORT.
    At(String),
}

impl fmt::Display for Whom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Whom::Pid(pid) => write!(f, "process {pid}"),
            Whom::At(place) => f.write_str(place),
        }
    }
}

fn whom(word: &str) -> Result<Whom, String> {
    if let Ok(pid) = word.parse() {
        return Ok(Whom::Pid(pid));
    }
    match word.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) => {
            Ok(Whom::At(word.to_owned()))
        }
        _ => Err("neither the number of a process nor HOST:PORT".to_owned()),
    }
}

/// What follows `ccl-perf status`.
pub(super) fn main(words: impl Iterator<Item = OsString>) -> ExitCode {
    let line = std::iter::once(OsString::from("ccl-perf status")).chain(words);
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
    let all: BTreeSet<Whom> = match args.whom[..] {
        [] => match look::processes() {
            Ok(pids) if pids.is_empty() => {
                if args.json {
                    show("[]\n", true); // the status is the same
                }
                return complain("no process of this user on this host uses ccl", 1);
            }
            Ok(pids) => pids.into_iter().map(Whom::Pid).collect(),
            Err(error) => return complain(&format!("looking for processes: {error}"), 1),
        },
        _ => args.whom.into_iter().collect(),
    };
    let all: Vec<Whom> = all.into_iter().collect();
    let (mut text, mut told, mut code) = (String::new(), Vec::new(), ExitCode::SUCCESS);
    // One that is stopped does not keep the others.
    let looks = several(&all, AT_ONCE, |whom| match whom {
        Whom::Pid(pid) => look::look(*pid, LIMIT),
        Whom::At(place) => look::look_at(place, LIMIT),
    });
    for (whom, looked) in all.into_iter().zip(looks) {
        match looked {
            Ok(report) if args.json => told.push(in_json(&report)),
            Ok(report) => tell(&mut text, &report, args.last),
            Err(error) => {
                code = complain(&plain(&format!("{whom}: {error}")), 1);
                let mut value = json!({"error": error.to_string()});
                match whom {
                    Whom::Pid(pid) => value["pid"] = pid.into(),
                    Whom::At(place) => value["at"] = place.into(),
                }
                told.push(value);
            }
        }
    }
    if args.json {
        text = format!("{:#}\n", Value::from(told));
    }
    match show(&plain(&text), true) {
        ExitCode::SUCCESS => code,
        failed => failed,
    }
}

/// What processes tell, without what would move a terminal's cursor.
fn plain(text: &str) -> String {
    let strange = |c: char| c.is_control() && c != '\n';
    text.replace(strange, "\u{fffd}")
}

/// The most that a process may take to answer; it asks others for 3 s.
const LIMIT: Duration = Duration::from_secs(5);
/// Processes that are asked at once.
const AT_ONCE: usize = 64;

/// What is known of the ranks of a communicator together.
struct Overview {
    /// Calls of the rank that has made the most.
    most: u32,
    /// Ranks that have made fewer, with how many fewer, the last first; none while those that have made the most go on.
    behind: Vec<(u32, u32)>,
}

impl Overview {
    fn of(group: &Group) -> Overview {
        let made = |seen: &Seen| match &seen.standing {
            Standing::Answers(waits) => Some((seen.rank, waits.calls_made())),
            _ => None,
        };
        let made: Vec<(u32, u32)> = group.seen.iter().filter_map(made).collect();
        let most = made
            .iter()
            .map(|(_, made)| *made)
            .reduce(crate::record::later)
            .unwrap_or(0);
        // They are asked one after the other, and those that run go on meanwhile.
        let stands = |seen: &&Seen| match &seen.standing {
            Standing::Answers(waits) => {
                waits.calls_made() == most && waits.still.is_some_and(|still| still >= STANDS)
            }
            _ => false,
        };
        let counts = group.seen.iter().any(|seen| stands(&seen));
        let mut behind: Vec<(u32, u32)> = (made.into_iter())
            .map(|(rank, made)| (rank, most.wrapping_sub(made)))
            .filter(|(_, fewer)| *fewer > 0 && counts)
            .collect();
        behind.sort_by_key(|(rank, fewer)| (std::cmp::Reverse(*fewer), *rank));
        Overview { most, behind }
    }
}

fn tell(text: &mut String, report: &Report, last: usize) {
    // Writing to a text does not fail.
    let (host, pid, version) = (&report.host, report.pid, &report.version);
    let _ = writeln!(text, "{host}:{pid}, ccl {version}");
    if report.communicators.is_empty() {
        text.push_str("  no communicator\n");
    }
    for group in &report.communicators {
        tell_group(text, group, last);
    }
}

fn tell_group(text: &mut String, group: &Group, last: usize) {
    let (name, ranks) = (&group.name, group.ranks);
    let _ = writeln!(
        text,
        "  communicator {name}: {ranks} ranks, here {}",
        list(&group.here)
    );
    if !group.joined {
        text.push_str("    not all ranks have come to its making\n");
    }
    if let Some(failure) = &group.failure {
        let _ = writeln!(text, "    stopped: {failure}");
    }
    let overview = Overview::of(group);
    for (rank, fewer) in overview.behind.iter().take(MOST_LINES) {
        let calls = if *fewer == 1 { "call" } else { "calls" };
        let _ = writeln!(
            text,
            "    behind: rank {rank} by {fewer} {calls} of {}",
            overview.most
        );
    }
    if overview.behind.len() > MOST_LINES {
        let _ = writeln!(
            text,
            "    behind: {} more ranks",
            overview.behind.len() - MOST_LINES
        );
    }
    for seen in &group.seen {
        let (rank, host, pid) = (seen.rank, &seen.host, seen.pid);
        let _ = writeln!(text, "    rank {rank} ({host}:{pid}): {}", doing(&seen.standing));
    }
    for seen in group.seen.iter().filter(|seen| group.here.contains(&seen.rank)) {
        let Standing::Answers(waits) = &seen.standing else {
            continue;
        };
        for way in [Way::Shm, Way::Tcp, Way::Plugin] {
            let joined = |ways: &[Way; 2]| ways.contains(&way);
            let peers: Vec<u32> = (0..)
                .zip(&waits.ways)
                .filter(|(_, ways)| joined(ways))
                .map(|(r, _)| r)
                .collect();
            if let (Some(name), false) = (way.name(), peers.is_empty()) {
                let _ = writeln!(text, "    rank {} by {name} with {}", seen.rank, list(&peers));
            }
        }
        let records = &waits.records[waits.records.len().saturating_sub(last)..];
        for record in records {
            let _ = writeln!(text, "    rank {} called {record}", seen.rank);
        }
    }
}

/// What a rank is in, as a line.
fn doing(standing: &Standing) -> String {
    let waits = match standing {
        Standing::Answers(waits) => waits,
        Standing::Silent(why) => return why.clone(),
        Standing::Unasked => return "not asked: there was no time".to_owned(),
        Standing::Left => return "has left".to_owned(),
        Standing::Lost(how) => return format!("was lost: {how}"),
    };
    let (made, calls) = (
        waits.calls_made(),
        if waits.calls_made() == 1 { "call" } else { "calls" },
    );
    let under_way: Vec<&Record> = waits
        .records
        .iter()
        .filter(|record| record.is_under_way())
        .collect();
    // A receive that was posted long ago says less than the call in which a rank hangs.
    let waits_in = |record: &&&Record| Some(record.operation) == waits.waits_in;
    let is_call = |record: &&&Record| record.call().is_some();
    let first = under_way.iter().find(waits_in);
    let first = first
        .or_else(|| under_way.iter().rev().find(is_call))
        .or(under_way.first());
    let mut line = match (first, waits.waits_in) {
        (Some(first), _) => {
            let mut line = format!("in {}", first.operation);
            if let State::UnderWay { since, done } = &first.state {
                let _ = write!(line, " for {since:.1?}, {done} of {} bytes done", first.bytes);
            }
            if under_way.len() > 1 {
                let _ = write!(line, ", and {} more", under_way.len() - 1);
            }
            line
        }
        (None, Some(operation)) => format!("in {operation}"),
        (None, None) if waits.makes => format!("making a communicator of this one, after {made} {calls}"),
        (None, None) => format!("in no operation, after {made} {calls}"),
    };
    if under_way.is_empty()
        && let Some(last) = waits.records.iter().rev().find(|record| record.call().is_some())
    {
        let ago = SystemTime::now().duration_since(last.began).unwrap_or_default();
        let _ = write!(line, "; the last was {}, begun {ago:.1?} ago", last.operation);
    }
    if let Some(still) = waits.still {
        let _ = write!(
            line,
            "; waits for {}, nothing has moved for {still:.1?}",
            list(&waits.ranks)
        );
    }
    line
}

/// "rank 3", "ranks 0-3,7".
fn list(ranks: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(rank) => *last = rank,
            _ => runs.push((rank, rank)),
        }
    }
    let runs: Vec<String> = (runs.iter())
        .map(|(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        })
        .collect();
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{word} {}", runs.join(","))
}

fn in_json(report: &Report) -> Value {
    json!({
        "host": report.host,
        "pid": report.pid,
        "version": report.version,
        "communicators": report.communicators.iter().map(group_in_json).collect::<Vec<_>>(),
    })
}

fn group_in_json(group: &Group) -> Value {
    let overview = Overview::of(group);
    let behind = |(rank, fewer): &(u32, u32)| json!({"rank": rank, "calls": fewer});
    json!({
        "name": group.name,
        "ranks": group.ranks,
        "here": group.here,
        "joined": group.joined,
        "failure": group.failure,
        "calls": overview.most,
        "behind": overview.behind.iter().map(behind).collect::<Vec<_>>(),
        "seen": group.seen.iter().map(rank_in_json).collect::<Vec<_>>(),
    })
}

fn rank_in_json(seen: &Seen) -> Value {
    let mut value = json!({"rank": seen.rank, "host": seen.host, "pid": seen.pid});
    let (state, why) = match &seen.standing {
        Standing::Answers(waits) => {
            let ways: Vec<Value> = (0u32..)
                .zip(&waits.ways)
                .filter(|(_, ways)| **ways != [Way::None; 2])
                .map(|(peer, [to, from])| json!({"rank": peer, "to": to.name(), "from": from.name()}))
                .collect();
            value["calls"] = waits.calls_made().into();
            value["waits_for"] = waits.ranks.clone().into();
            value["still_seconds"] = waits.still.map(|still| still.as_secs_f64()).into();
            value["links"] = ways.into();
            value["records"] = waits
                .records
                .iter()
                .map(record_in_json)
                .collect::<Vec<_>>()
                .into();
            ("answers", None)
        }
        Standing::Silent(why) => ("silent", Some(why)),
        Standing::Unasked => ("unasked", None),
        Standing::Left => ("left", None),
        Standing::Lost(how) => ("lost", Some(how)),
    };
    value["state"] = state.into();
    value["why"] = why.cloned().into();
    value
}

fn record_in_json(record: &Record) -> Value {
    let began = record.began.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut value = json!({
        "operation": record.operation.to_string(),
        "algorithm": record.algorithm,
        "bytes": record.bytes,
        "began": began.as_secs_f64(),
    });
    match &record.operation {
        Operation::Collective(call) => {
            value["call"] = call.seq.into();
            value["op"] = call.collective.name().into();
            value["count"] = call.count.into();
            value["type"] = call.dtype.name().into();
        }
        Operation::Transfer(_) => value["message"] = record.message.into(),
    }
    let (state, seconds) = match &record.state {
        State::UnderWay { since, done } => {
            value["done_bytes"] = (*done).into();
            ("under way", Some(*since))
        }
        State::Done { took } => ("done", *took),
        State::Failed { why, took } => (&**why, Some(*took)),
    };
    value["state"] = state.into();
    value["seconds"] = seconds.map(|seconds| seconds.as_secs_f64()).into();
    value
}

/// How long a rank stands still before others count as behind it.
const STANDS: Duration = Duration::from_millis(100);
/// Ranks that are told to be behind, each in a line.
const MOST_LINES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_listed_in_runs() {
        assert_eq!(list(&[3]), "rank 3");
        assert_eq!(list(&[0, 1, 2, 5, 7, 8]), "ranks 0-2,5,7-8");
        assert_eq!(list(&[]), "ranks ");
    }
}
