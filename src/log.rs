//! What the library tells of its work: `tracing` events, which `CCL_DEBUG` writes to standard error or to a file.
//!
//! Events have the ranks' numbers in the fields `rank` and `ranks`. A program in Rust that has a subscriber of its own
//! gets them there, and `CCL_DEBUG` changes nothing; for all others [`begin`] installs one. It is made for ranks that
//! are forked: it takes no lock, which a child might find held, and a line is one write, so that lines of several
//! processes do not mix. It does not wait for who reads them, but for a moment.

use crate::sys::{
    fork::{self, ProcessFd},
    host,
    library::has_others_rights,
    per_process::PerProcess,
    poll::{self, Ready},
    quiet::quietly,
};
use rustix::{
    fs::{FileType, Mode, OFlags, fstat},
    io,
    net::{SendFlags, send},
    stdio,
};
use std::{
    convert::Infallible,
    env,
    ffi::{OsStr, OsString},
    fmt::{self, Write},
    os::{
        fd::OwnedFd,
        unix::ffi::{OsStrExt, OsStringExt},
    },
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span,
};

/// Looks once what the environment asks for. To be called before anything is told, by whatever a program may call first.
pub(crate) fn begin() {
    static HERE: PerProcess<()> = PerProcess::new();
    // A forked child has its parent's subscriber.
    static ANYWHERE: AtomicBool = AtomicBool::new(false);
    let Ok(()) = HERE
        .get_or_try_init(|| {
            if !ANYWHERE.load(Relaxed) {
                install();
                ANYWHERE.store(true, Relaxed);
            }
            Ok::<(), Infallible>(())
        })
        .copied();
}

fn install() {
    let Some(asked) = env::var_os("CCL_DEBUG") else {
        return;
    };
    let Some(level) = level(&asked) else {
        complain(&format!(
            "CCL_DEBUG={} is no word for what to tell: use warn, info, debug or trace (1 is info, 0 is off)",
            asked.display()
        ));
        return;
    };
    if level == LevelFilter::OFF {
        return;
    }
    let log = Log {
        level,
        began: Instant::now(),
        host: host::name(),
        file: named_file("CCL_DEBUG_FILE"),
        opened: PerProcess::new(),
    };
    // Fails where the program has a subscriber: that one is told.
    let _ = tracing::subscriber::set_global_default(log);
}

/// What a value of `CCL_DEBUG` asks for.
fn level(word: &OsStr) -> Option<LevelFilter> {
    match word.to_str()?.trim().to_ascii_lowercase().as_str() {
        "" | "0" | "off" => Some(LevelFilter::OFF),
        "warn" => Some(LevelFilter::WARN),
        "1" | "info" => Some(LevelFilter::INFO),
        "debug" => Some(LevelFilter::DEBUG),
        "trace" => Some(LevelFilter::TRACE),
        _ => None,
    }
}

/// A line to standard error that nobody asked for.
pub(crate) fn complain(what: &str) {
    to_stderr(&format!("ccl: {what}\n"));
}

/// Lines to standard error that `CCL_EXPLAIN` asks for.
pub(crate) fn explain(text: &str) {
    for line in text.lines() {
        to_stderr(&format!("ccl: {line}\n"));
    }
}

/// Writes to standard error. Where that is a pipe, a socket or a terminal which nobody empties, the line is lost after a while, and
/// those that follow at once, until there is room again: the control thread tells things, too, and while it waited for a reader
/// no failure would be seen and no deadline kept.
fn to_stderr(line: &str) {
    static STUCK: AtomicBool = AtomicBool::new(false);
    let stderr = Stderr::here();
    let patience = match STUCK.load(Relaxed) {
        true => Duration::ZERO,
        false => PATIENCE,
    };
    let (deadline, mut rest) = (Instant::now() + patience, line.as_bytes());
    loop {
        match quietly(|| stderr.write(rest)) {
            Ok(written @ 1..) if written < rest.len() => {
                rest = &rest[written..];
                continue;
            }
            Err(io::Errno::INTR) => continue,
            Err(io::Errno::AGAIN) => {}
            Ok(_) | Err(_) => {
                STUCK.store(false, Relaxed);
                return;
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            STUCK.store(true, Relaxed);
            return;
        }
        let _ = poll::wait(stdio::stderr(), Ready::Write, left);
    }
}

/// Standard error, and how to write there without waiting. To let it not wait would change it for everybody who has it.
enum Stderr {
    /// A pipe or a terminal, opened once more.
    Again(OwnedFd),
    Socket,
    /// It cannot be opened once more: written to if there is room for something, which may not be enough for a long line.
    Asked,
    /// Nobody has to read it.
    File,
}

impl Stderr {
    fn here() -> Stderr {
        let stat = fstat(stdio::stderr());
        match stat.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::Socket) => Stderr::Socket,
            Ok(FileType::Fifo | FileType::CharacterDevice) => {
                let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
                let again = rustix::fs::open("/proc/thread-self/fd/2", flags, Mode::empty());
                again.map_or(Stderr::Asked, Stderr::Again)
            }
            _ => Stderr::File,
        }
    }

    /// To a pipe whole or not at all, as long as it is no longer than a page.
    ///
    /// # Errors
    /// `AGAIN`: nobody reads.
    fn write(&self, line: &[u8]) -> io::Result<usize> {
        let stderr = stdio::stderr();
        match self {
            Stderr::Again(again) => io::write(again, line),
            Stderr::Socket => send(stderr, line, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
            Stderr::Asked if !poll::wait(stderr, Ready::Write, Duration::ZERO)? => Err(io::Errno::AGAIN),
            Stderr::Asked | Stderr::File => io::write(stderr, line),
        }
    }
}

/// How long to wait for whoever reads standard error.
const PATIENCE: Duration = Duration::from_millis(200);

/// Writes the library's events as lines.
struct Log {
    level: LevelFilter,
    /// A child counts from its parent's beginning, so that the times of ranks forked from one process compare.
    began: Instant,
    host: String,
    /// The value of `CCL_DEBUG_FILE`.
    file: Option<OsString>,
    /// That file as this process has it; `None` if it cannot be opened.
    opened: PerProcess<Option<ProcessFd>>,
}

impl Log {
    /// What cannot be written is lost: there is nowhere to tell of it.
    fn write(&self, line: &str) {
        match self.file() {
            Some(file) => {
                let _ = quietly(|| io::write(file, line.as_bytes()));
            }
            None => to_stderr(line),
        }
    }

    /// The file, opened when this process writes its first line.
    fn file(&self) -> Option<&'static ProcessFd> {
        let pattern = self.file.as_deref()?;
        let Ok(file) = self.opened.get_or_try_init(|| {
            let path = path(pattern, &self.host, host::pid());
            let opened = open(&path).inspect_err(|error| {
                complain(&format!(
                    "CCL_DEBUG_FILE: cannot open {}: {error}; what was to go there is told here",
                    path.display()
                ));
            });
            Ok::<_, Infallible>(opened.ok())
        });
        file.as_ref()
    }
}

/// The pattern of a file that the environment names. A process with more rights than its user writes to none.
pub(crate) fn named_file(variable: &str) -> Option<OsString> {
    let named = env::var_os(variable).filter(|path| !path.is_empty());
    named.filter(|_| !has_others_rights())
}

/// Whether each process has a name of its own by `pattern`.
pub(crate) fn names_process(pattern: &OsStr) -> bool {
    path(pattern, "", 1) != path(pattern, "", 2)
}

/// `pattern` with `%h` for the host, `%p` for the process and `%%` for a percent sign.
pub(crate) fn path(pattern: &OsStr, host: &str, pid: u32) -> OsString {
    let mut path = Vec::new();
    let mut rest = pattern.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let value = match after.first().filter(|_| first == b'%') {
            Some(b'h') => Some(host.replace('/', "_")),
            Some(b'p') => Some(pid.to_string()),
            Some(b'%') => Some("%".to_owned()),
            _ => None,
        };
        match value {
            Some(value) => {
                path.extend_from_slice(value.as_bytes());
                rest = &after[1..];
            }
            None => {
                path.push(first);
                rest = after;
            }
        }
    }
    OsString::from_vec(path)
}

/// Without waiting for the other end, should it be a pipe.
fn open(path: &OsStr) -> io::Result<ProcessFd> {
    let _ = fork::watch(); // what fails here fails again, and is told, when the control thread starts
    let flags = OFlags::WRONLY
        | OFlags::CREATE
        | OFlags::APPEND
        | OFlags::CLOEXEC
        | OFlags::NOCTTY
        | OFlags::NONBLOCK;
    ProcessFd::open(|| rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR))
}

impl Subscriber for Log {
    /// Only this library's events: a program may have others, and it did not ask for those.
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let own = metadata.target().split("::").next() == Some(env!("CARGO_CRATE_NAME"));
        own && *metadata.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn event(&self, event: &Event<'_>) {
        let mut told = Told::default();
        event.record(&mut told);
        let elapsed = self.began.elapsed().as_secs_f64();
        let (level, place) = (*event.metadata().level(), (self.host.as_str(), host::pid()));
        self.write(&told.line(elapsed, place, level));
    }

    // The library has no spans.
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// An event's fields as text.
#[derive(Debug, Default)]
struct Told {
    rank: String,
    ranks: String,
    message: String,
    others: String,
}

impl Told {
    fn line(&self, elapsed: f64, (host, pid): (&str, u32), level: Level) -> String {
        let rank = match (self.rank.as_str(), self.ranks.as_str()) {
            ("", _) => String::new(),
            (rank, "") => format!("rank {rank} "),
            (rank, ranks) => format!("rank {rank}/{ranks} "),
        };
        let text = format!("{}{}", self.message, self.others).replace(char::is_control, " ");
        format!("ccl {elapsed:.3} {host}:{pid} {rank}{level} {text}\n")
    }
}

impl Visit for Told {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a text does not fail.
        let _ = match field.name() {
            "rank" => write!(self.rank, "{value:?}"),
            "ranks" => write!(self.ranks, "{value:?}"),
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.others, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_nccl_s_or_ours() {
        let level = |word: &str| level(OsStr::new(word));
        assert_eq!(level("INFO"), Some(LevelFilter::INFO));
        assert_eq!(level("1"), level("info"));
        assert_eq!(level("Warn "), Some(LevelFilter::WARN));
        assert_eq!([level(""), level("0"), level("off")], [Some(LevelFilter::OFF); 3]);
        assert_eq!([level("loud"), level("2"), level("info,debug")], [None; 3]);
    }

    #[test]
    fn paths_name_host_and_process() {
        let path = |pattern: &str| path(OsStr::new(pattern), "a/b", 7);
        assert_eq!(path("/tmp/%h.%p.log"), "/tmp/a_b.7.log");
        assert_eq!(path("100%%p%q%"), "100%p%q%");
    }

    #[test]
    fn lines_stay_lines() {
        let mut told = Told {
            message: "it said\n\x1b[1mthis".to_owned(),
            ..Told::default()
        };
        assert_eq!(
            told.line(0.0034, ("host", 12), Level::WARN),
            "ccl 0.003 host:12 WARN it said  [1mthis\n"
        );
        (told.rank, told.ranks) = ("0".to_owned(), "4".to_owned());
        assert!(
            told.line(1.0, ("h", 1), Level::INFO)
                .starts_with("ccl 1.000 h:1 rank 0/4 INFO it")
        );
    }
}
