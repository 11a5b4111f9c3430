//! All operations of this process as a file for Chrome's viewer (chrome://tracing, <https://ui.perfetto.dev>): `CCL_TRACE_FILE`.
//!
//! The file is an array of events in JSON, whole after each time that it was written to: what comes next takes the place of the
//! bracket at its end. So it can be read while the process runs, and after it was killed.

use super::{Record, State};
use crate::{
    log,
    sys::{
        fork::{self, ProcessFd},
        host,
        per_process::PerProcess,
        quiet::quietly,
        thread,
    },
    types::{Operation, Transfer},
};
use rustix::{
    fs::{FlockOperation, Mode, OFlags, flock},
    io::Errno,
};
use std::{
    convert::Infallible,
    fmt::{self, Write},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Keeps others from a file as long as it is open. In a folder of several hosts or containers another process may have the same
/// number, and where the file system has no locks nothing tells.
fn claim(file: &ProcessFd) -> Result<(), Errno> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::AGAIN) => Err(Errno::AGAIN),
        _ => Ok(()),
    }
}

/// This process's trace.
pub(crate) struct Trace {
    file: ProcessFd,
    pid: u32,
    rows: AtomicU32,
    inner: Mutex<Inner>,
}

struct Inner {
    /// Events that are not written yet, each with a comma before it but the first of all.
    text: String,
    /// Where in the file they belong.
    at: u64,
    /// Something could not be written.
    is_full: bool,
    written: Instant,
}

/// A rank of a communicator: what the viewer calls a thread.
pub(crate) struct Row(u32);

static TRACE: PerProcess<Option<Trace>> = PerProcess::new();
/// Whether [`flush_at_exit`] is registered; forked children inherit that.
static AT_EXIT: AtomicBool = AtomicBool::new(false);

/// The trace, where the environment asks for one. A forked child has its own.
pub(crate) fn here() -> Option<&'static Trace> {
    let Ok(trace) = TRACE.get_or_try_init(|| Ok::<_, Infallible>(Trace::open()));
    trace.as_ref()
}

extern "C" fn flush_at_exit() {
    flush();
}

/// Writes what there is to the trace, if there is one: nothing more may come for a long time.
pub(crate) fn flush() {
    if let Some(Some(trace)) = TRACE.get() {
        trace.flush();
    }
}

impl Trace {
    fn open() -> Option<Trace> {
        let mut pattern = log::named_file("CCL_TRACE_FILE")?;
        // Each process has to have a file of its own.
        if !log::names_process(&pattern) {
            pattern.push(".%p");
        }
        let (host, pid) = (host::name(), host::pid());
        let path = log::path(&pattern, &host, pid);
        let _ = fork::watch(); // what fails here fails again, and is told, when the control thread starts
        // In a folder that others can write to, what has the name may be theirs: a pipe that nobody reads, a file, a link to one.
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let open = |how| ProcessFd::open(|| rustix::fs::open(&path, flags | how, Mode::RUSR | Mode::WUSR));
        let (opened, is_new) = match open(OFlags::CREATE | OFlags::EXCL) {
            Err(Errno::EXIST) => (open(OFlags::empty()), false),
            made => (made, true),
        };
        let why = |e: Errno| match e {
            Errno::AGAIN => {
                "another process writes there; have %h for the host in the name, or a folder for each \
                             container"
                    .to_owned()
            }
            e => e.to_string(),
        };
        let begin = |file: ProcessFd| {
            // Of one that was made the file system says whose it is, which need not be so.
            if !is_new && rustix::fs::fstat(&file).map_err(why)?.st_uid != rustix::process::geteuid().as_raw()
            {
                return Err("it is another user's file".to_owned());
            }
            claim(&file).map_err(why)?;
            rustix::fs::ftruncate(&file, 0).map_err(why)?;
            Ok(file)
        };
        let file = match opened.map_err(why).and_then(begin) {
            Ok(file) => file,
            Err(why) => {
                log::complain(&format!(
                    "CCL_TRACE_FILE: cannot write to {}: {why}",
                    path.display()
                ));
                return None;
            }
        };
        if !AT_EXIT.swap(true, Relaxed) {
            // Without it the last moments may be missing.
            let _ = thread::at_exit(flush_at_exit);
        }
        let trace = Trace {
            file,
            pid,
            rows: AtomicU32::new(0),
            inner: Mutex::new(Inner {
                text: "[".to_owned(),
                at: 0,
                is_full: false,
                written: Instant::now(),
            }),
        };
        let name = Text(&format!("{host}:{pid}"));
        trace.add(
            false,
            format_args!(r#"{{"ph":"M","name":"process_name","pid":{pid},"args":{{"name":{name}}}}}"#),
        );
        // It is a whole file from the beginning.
        trace.flush();
        Some(trace)
    }

    /// A row for a rank.
    pub(super) fn row(&self, comm: &str, rank: u32, ranks: u32) -> Row {
        let (pid, row) = (self.pid, self.rows.fetch_add(1, Relaxed) + 1);
        let name = Text(&format!("communicator {comm}, rank {rank} of {ranks}"));
        self.add(
            true,
            format_args!(
                r#"{{"ph":"M","name":"thread_name","pid":{pid},"tid":{row},"args":{{"name":{name}}}}}"#
            ),
        );
        Row(row)
    }

    /// An operation that went on between these times.
    pub(super) fn operation(&self, row: &Row, record: &Record, began: u64, ended: u64) {
        let (pid, tid) = (self.pid, row.0);
        let (ts, dur) = (Micros(began), Micros(ended.saturating_sub(began)));
        let result = match &record.state {
            State::Failed { why, .. } => why,
            State::UnderWay { .. } | State::Done { .. } => "done",
        };
        let mut args = format!(r#""bytes":{},"result":{}"#, record.bytes, Text(result));
        let name = arguments(&mut args, record);
        self.add(
            true,
            format_args!(
                r#"{{"ph":"X","name":{},"cat":"operation","pid":{pid},"tid":{tid},"ts":{ts},"dur":{dur},"args":{{{args}}}}}"#,
                Text(name)
            ),
        );
    }

    /// A part of init, joined to the one before it by an arrow.
    pub(super) fn init_part(&self, row: &Row, name: &str, began: u64, ended: u64) {
        let (pid, tid, name) = (self.pid, row.0, Text(name));
        let (ts, dur) = (Micros(began), Micros(ended.saturating_sub(began)));
        self.add(
            true,
            format_args!(
                r#"{{"ph":"X","name":{name},"cat":"init","pid":{pid},"tid":{tid},"ts":{ts},"dur":{dur},"args":{{}}}}"#
            ),
        );
        let id = u64::from(pid) << 20 | u64::from(tid);
        for (ph, at) in [("s", Micros(began)), ("t", Micros(ended))] {
            self.add(
                true,
                format_args!(
                    r#"{{"ph":"{ph}","name":"init","cat":"init","id":{id},"pid":{pid},"tid":{tid},"ts":{at}}}"#
                ),
            );
        }
    }

    fn add(&self, comma: bool, event: fmt::Arguments<'_>) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.text.push_str(if comma { ",\n" } else { "\n" });
        // Writing to a text does not fail.
        let _ = inner.text.write_fmt(event);
        if inner.text.len() >= MUCH || inner.written.elapsed() >= OFTEN {
            inner.write(&self.file);
        }
    }

    /// Writes what there is.
    pub(super) fn flush(&self) {
        // A thread that panicked within, or was cut off when the process ended, must not keep others.
        if let Ok(mut inner) = self.inner.try_lock() {
            inner.write(&self.file);
        }
    }
}

impl Inner {
    /// Writes what there is. What cannot be written is lost, and all that comes later: what is there stays whole.
    fn write(&mut self, file: &ProcessFd) {
        if self.text.is_empty() || self.is_full {
            self.text.clear();
            return;
        }
        self.text.push_str(END);
        let (mut at, mut rest) = (self.at, self.text.as_bytes());
        while !rest.is_empty() {
            match quietly(|| rustix::io::pwrite(file, rest, at)) {
                Ok(0) => break,
                Ok(n) => (at, rest) = (at + n as u64, &rest[n..]),
                Err(rustix::io::Errno::INTR) => (),
                Err(e) => {
                    log::complain(&format!("CCL_TRACE_FILE: nothing more is written: {e}"));
                    break;
                }
            }
        }
        if !rest.is_empty() {
            self.is_full = true;
            // The end that was there before has its place still.
            let whole = match self.at {
                0 => 0,
                at => at + END.len() as u64,
            };
            let _ = quietly(|| rustix::io::pwrite(file, END.as_bytes(), self.at));
            let _ = rustix::fs::ftruncate(file, whole);
        }
        self.at += (self.text.len() - END.len()) as u64;
        self.text.clear();
        self.written = Instant::now();
    }
}

/// Adds what is told of an operation beside its name, which it returns.
fn arguments(args: &mut String, record: &Record) -> &'static str {
    // Writing to a text does not fail.
    let _ = match &record.operation {
        Operation::Collective(call) => {
            let _ = write!(
                args,
                r#","seq":{},"op":"{}","count":{},"type":"{}""#,
                call.seq,
                call.collective.name(),
                call.count,
                call.dtype
            );
            if call.collective.reduces() {
                let _ = write!(args, r#","redop":"{}""#, call.op);
            }
            if let Some(root) = call.collective.root() {
                let _ = write!(args, r#","root":{root}"#);
            }
            if let Some(algorithm) = &record.algorithm {
                let _ = write!(args, r#","algorithm":{}"#, Text(algorithm));
            }
            return match call.is_split() {
                true => "split",
                false => call.collective.name(),
            };
        }
        Operation::Transfer(Transfer::Send {
            to,
            tag,
            count,
            dtype,
        }) => {
            write!(
                args,
                r#","op":"send","peer":{to},"tag":{tag},"count":{count},"type":"{dtype}""#
            )
        }
        Operation::Transfer(Transfer::Recv {
            from,
            tag,
            count,
            dtype,
        }) => {
            let _ = match from {
                Some(from) => write!(args, r#","peer":{from}"#),
                None => write!(args, r#","peer":null"#),
            };
            let _ = match tag {
                Some(tag) => write!(args, r#","tag":{tag}"#),
                None => write!(args, r#","tag":null"#),
            };
            write!(args, r#","op":"recv","count":{count},"type":"{dtype}""#)
        }
    };
    let _ = write!(args, r#","seq":{}"#, record.message.unwrap_or(0));
    match record.operation {
        Operation::Transfer(Transfer::Send { .. }) => "send",
        _ => "recv",
    }
}

/// Nanoseconds as microseconds.
struct Micros(u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// A text in JSON.
struct Text<'a>(&'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                c if c < ' ' => write!(f, "\\u{:04x}", c as u32)?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

const END: &str = "\n]\n";
/// How much is kept back, and for how long: not to spoil what is measured.
const MUCH: usize = 64 << 10;
const OFTEN: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_json() {
        for text in ["plain", "a \"b\" \\ \n\u{1}é", ""] {
            let parsed: String = serde_json::from_str(&Text(text).to_string()).unwrap();
            assert_eq!(parsed, text);
        }
        assert_eq!(Micros(1_002_003).to_string(), "1002.003");
    }
}
