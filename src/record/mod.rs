//! The flight recorder: the last operations of a rank in one communicator, kept in memory for whoever asks.
//!
//! ```text
//! Recorder     a ring of calls and one of messages, each entry a cache line: recording takes no lock and allocates nothing
//! Record       an entry as text and for programs
//! trace        the same, of all operations, in a file for Chrome's viewer (CCL_TRACE_FILE)
//! ```

mod entry;
mod flight;
pub(crate) mod trace;

use crate::{
    log,
    sys::clock,
    types::{Call, Cause, Operation, Transfer},
};
use entry::{ANY_PEER, ANY_TAG, Entry, SENT, SoFar, Words};
use serde::{Deserialize, Serialize};
use std::{
    borrow::Cow,
    cmp::Reverse,
    ffi::OsString,
    fmt, io,
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use trace::{Row, Trace};

/// Calls that are kept, and as many messages.
pub(crate) const KEPT: usize = 64;

/// An operation that a rank has called lately, as [`Communicator::records`](crate::Communicator::records) gives it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Record {
    /// What was called. A collective call has its number; messages have [`Record::message`].
    pub operation: Operation,
    /// The number of a message among this rank's, sent and received, from 0.
    pub message: Option<u32>,
    /// The algorithm of a collective call.
    pub algorithm: Option<Cow<'static, str>>,
    /// Bytes of the vector, or of the message or the place for it.
    pub bytes: u64,
    /// When it was called. Of calls of a few bytes it may be some milliseconds too early.
    pub began: SystemTime,
    /// How far it has come.
    pub state: State,
}

/// How far an operation has come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum State {
    /// It goes on.
    UnderWay {
        /// How long it has gone on.
        since: Duration,
        /// Bytes of the vector that this rank is done with, as far as it was looked at.
        done: u64,
    },
    /// It is over.
    Done {
        /// How long it took. Of calls of a few bytes, which are over at once, that is not measured.
        took: Option<Duration>,
    },
    /// It failed.
    Failed {
        /// Why, in a word: "lost", "left", "late", "mismatch", "aborted", "revoked" or "broken".
        why: Cow<'static, str>,
        /// How long it had gone on.
        took: Duration,
    },
}

impl Record {
    /// Whether it goes on.
    pub fn is_under_way(&self) -> bool {
        matches!(self.state, State::UnderWay { .. })
    }

    /// The collective call, if it is one.
    pub fn call(&self) -> Option<&Call> {
        match &self.operation {
            Operation::Collective(call) => Some(call),
            Operation::Transfer(_) => None,
        }
    }
}

/// One line: `call #7 allreduce(1000 x float32, sum) by ring, 4000 bytes, at 09:12:33.104 UTC, done in 1.2ms`.
impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(number) = self.message {
            write!(f, "message #{number} ")?;
        }
        write!(f, "{}", self.operation)?;
        if let Some(algorithm) = &self.algorithm {
            write!(f, " by {algorithm}")?;
        }
        write!(f, ", {} bytes, at {}, ", self.bytes, Clock(self.began))?;
        match &self.state {
            State::UnderWay { since, done: 0 } => write!(f, "under way for {since:.1?}"),
            State::UnderWay { since, done } => write!(f, "under way for {since:.1?}, {done} bytes done"),
            State::Done { took: Some(took) } => write!(f, "done in {took:.1?}"),
            State::Done { took: None } => f.write_str("done"),
            State::Failed { why, took } => write!(f, "failed ({why}) after {took:.1?}"),
        }
    }
}

/// The time of day.
struct Clock(SystemTime);

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.0.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (seconds, ms) = (since.as_secs() % 86_400, since.subsec_millis());
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        write!(f, "{hours:02}:{minutes:02}:{:02}.{ms:03} UTC", seconds % 60)
    }
}

/// Why a call ended, in the byte that an entry has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End(u8);

impl End {
    pub(crate) const DONE: End = End(1);
    /// It ended by a panic.
    pub(crate) const BROKEN: End = End(7);

    pub(crate) fn of<T>(outcome: &Result<T, Cause>) -> End {
        match outcome {
            Ok(_) => End::DONE,
            Err(cause) => match cause {
                Cause::Lost { .. } => End(2),
                Cause::Left { .. } => End(3),
                Cause::Late { .. } => End(4),
                Cause::Mismatch { .. } => End(5),
                Cause::Aborted { .. } => End(6),
                Cause::Broken { .. } => End::BROKEN,
                Cause::Revoked { .. } => End(8),
            },
        }
    }

    /// What failed ones failed by.
    fn word(self) -> &'static str {
        match self.0 {
            1 => "done",
            2 => "lost",
            3 => "left",
            4 => "late",
            5 => "mismatch",
            6 => "aborted",
            8 => "revoked",
            _ => "broken",
        }
    }
}

/// The last operations of a rank. Any thread may look; one at a time records calls.
pub(crate) struct Recorder {
    calls: [Entry; KEPT],
    /// Made for the first message.
    messages: OnceLock<Box<[Entry; KEPT]>>,
    /// Messages so far.
    count: AtomicU32,
    /// What the numbers of algorithms mean.
    names: fn(u8) -> Option<&'static str>,
    /// The beginning of the times in entries, by the clock of this host and as time of day.
    base: u64,
    wall: SystemTime,
    /// Where all operations are written, if that is wanted, and in which row.
    traced: Option<(&'static Trace, Row)>,
    /// Where what is kept is written when the communicator fails, if that is wanted: `CCL_FLIGHT_FILE`. It is looked up early: a
    /// program may change its environment while its communicators work.
    flight: Option<OsString>,
}

/// An operation that has been recorded, and whose end is to be.
pub(crate) struct Mark {
    recorder: Arc<Recorder>,
    number: u32,
    is_message: bool,
    /// What is known of it, and when it began, where a trace is written: that tells of it though others have taken its place among
    /// the last ones.
    traced: Option<Box<(Words, AtomicU64)>>,
}

impl Mark {
    /// It begins only now.
    pub(crate) fn begins(&self) {
        let recorder = &self.recorder;
        recorder.begins(self.number);
        if let Some(traced) = &self.traced {
            traced.1.store(recorder.since_base(clock::now()), Relaxed);
        }
    }

    pub(crate) fn end(&self, end: End) {
        let recorder = &self.recorder;
        let entry = match self.is_message {
            true => recorder
                .messages
                .get()
                .map(|messages| &messages[self.number as usize % KEPT]),
            false => Some(&recorder.calls[self.number as usize % KEPT]),
        };
        let now = recorder.since_base(clock::now());
        if let Some(entry) = entry {
            entry.end(self.number, now, end);
        }
        if let Some((words, began)) = self.traced.as_deref() {
            let began = began.load(Relaxed);
            recorder.trace(&Words { began, ..*words }, (now, end), self.is_message);
        }
    }
}

impl Recorder {
    /// Nothing yet, of `rank` among the `ranks` of communicator `name`. `names` gives those of algorithms.
    pub(crate) fn new(
        names: fn(u8) -> Option<&'static str>,
        (name, rank, ranks): (&str, u32, u32),
    ) -> Recorder {
        Recorder {
            calls: [const { Entry::new() }; KEPT],
            messages: OnceLock::new(),
            count: AtomicU32::new(0),
            names,
            base: clock::now(),
            wall: SystemTime::now(),
            traced: trace::here().map(|trace| (trace, trace.row(name, rank, ranks))),
            flight: log::named_file("CCL_FLIGHT_FILE"),
        }
    }

    /// A call begins that is over in a moment, or [`Recorder::begins`] later: of it only about when is kept.
    ///
    /// The signature is that of [`Call::signature`], two of its words in one.
    #[inline(always)] // in the path of each short call
    pub(crate) fn call_lately(&self, [first, count]: [u64; 2], algorithm: u8, bytes: u64) {
        let now = if self.traced.is_none() {
            clock::lately()
        } else {
            clock::now()
        };
        self.write([first, count], algorithm, bytes, now);
    }

    /// A call begins.
    pub(crate) fn call(&self, words: [u64; 2], algorithm: u8, bytes: u64) {
        self.write(words, algorithm, bytes, clock::now());
    }

    #[inline]
    fn write(&self, [first, count]: [u64; 2], algorithm: u8, bytes: u64, now: u64) {
        let seq = first as u32;
        self.calls[seq as usize % KEPT].write(&Words {
            number: seq,
            what: (first >> 32) as u32,
            count,
            began: self.since_base(now),
            how: u64::from(algorithm),
            bytes,
        });
    }

    /// Call `seq` begins, or goes on in a way that takes longer.
    pub(crate) fn begins(&self, seq: u32) {
        let now = self.since_base(clock::now());
        self.calls[seq as usize % KEPT].restart(seq, now);
    }

    /// Call `seq` was over in a moment.
    #[inline(always)] // in the path of each short call
    pub(crate) fn over(&self, seq: u32) {
        if self.traced.is_none() {
            self.calls[seq as usize % KEPT].end(seq, 0, End::DONE);
        } else {
            self.end(seq, End::DONE);
        }
    }

    /// Call `seq` is over.
    pub(crate) fn end(&self, seq: u32, end: End) {
        let entry = &self.calls[seq as usize % KEPT];
        let now = self.since_base(clock::now());
        let is_first = entry.end(seq, now, end);
        if is_first
            && self.is_traced()
            && let Some((words, _)) = entry.read()
            && words.number == seq
        {
            self.trace(&words, (now, end), false);
        }
    }

    /// Tells the trace of an operation that is over.
    fn trace(&self, words: &Words, (now, end): (u64, End), is_message: bool) {
        let so_far = SoFar {
            end: Some((now, end)),
            done: 0,
        };
        if let Some((trace, row)) = &self.traced
            && let Some(record) = self.record(words, &so_far, is_message)
        {
            trace.operation(row, &record, self.base + words.began, self.base + now);
        }
    }

    /// Bytes of the vector of call `seq` that this rank is done with.
    pub(crate) fn done(&self, seq: u32, bytes: u64) {
        self.calls[seq as usize % KEPT].done(seq, bytes);
    }

    /// A call that goes on by itself.
    pub(crate) fn mark(self: &Arc<Self>, seq: u32) -> Mark {
        let words = || Some(self.calls[seq as usize % KEPT].read()?.0).filter(|words| words.number == seq);
        Mark {
            recorder: Arc::clone(self),
            number: seq,
            is_message: false,
            traced: self.to_trace(words),
        }
    }

    /// A message is to be sent or received.
    pub(crate) fn message(self: &Arc<Self>, transfer: &Transfer) -> Mark {
        let (words, _) = self.write_message(transfer, clock::now());
        Mark {
            recorder: Arc::clone(self),
            number: words.number,
            is_message: true,
            traced: self.to_trace(|| Some(words)),
        }
    }

    /// What a mark keeps of an operation.
    fn to_trace(&self, words: impl FnOnce() -> Option<Words>) -> Option<Box<(Words, AtomicU64)>> {
        let words = self.is_traced().then(words)??;
        Some(Box::new((words, AtomicU64::new(words.began))))
    }

    /// Whether more than the last operations is kept.
    #[inline]
    pub(crate) fn is_traced(&self) -> bool {
        self.traced.is_some()
    }

    /// A message was sent or received a moment ago: of it only about when is kept.
    #[inline]
    pub(crate) fn message_lately(&self, transfer: &Transfer) {
        let (words, entry) = self.write_message(transfer, clock::lately());
        entry.end(words.number, 0, End::DONE);
    }

    /// What is known of it, and the entry that has that.
    #[inline]
    fn write_message(&self, transfer: &Transfer, now: u64) -> (Words, &Entry) {
        let messages = (self.messages).get_or_init(|| Box::new([const { Entry::new() }; KEPT]));
        let number = self.count.fetch_add(1, Relaxed);
        let (sent, peer, tag, count, dtype) = match *transfer {
            Transfer::Send {
                to,
                tag,
                count,
                dtype,
            } => (SENT, Some(to), Some(tag), count, dtype),
            Transfer::Recv {
                from,
                tag,
                count,
                dtype,
            } => (0, from, tag, count, dtype),
        };
        let any_peer = if peer.is_none() { ANY_PEER } else { 0 };
        let any_tag = if tag.is_none() { ANY_TAG } else { 0 };
        let entry = &messages[number as usize % KEPT];
        let words = Words {
            number,
            what: dtype as u32 | sent | any_peer | any_tag,
            count,
            began: self.since_base(now),
            how: u64::from(peer.unwrap_or(0)) | u64::from(tag.unwrap_or(0).cast_unsigned()) << 32,
            bytes: count.saturating_mul(dtype.size() as u64),
        };
        entry.write(&words);
        (words, entry)
    }

    /// What is kept, in the order in which it began.
    pub(crate) fn records(&self) -> Vec<Record> {
        let messages = self.messages.get().map_or(&[][..], |messages| &messages[..]);
        let mut messages = self.in_order(messages, true).into_iter().peekable();
        let mut all = Vec::new();
        // Times of short calls are coarse, numbers are not.
        for call in self.in_order(&self.calls, false) {
            while let Some(message) = messages.next_if(|message| message.began < call.began) {
                all.push(message);
            }
            all.push(call);
        }
        all.extend(messages);
        all
    }

    fn in_order(&self, entries: &[Entry], are_messages: bool) -> Vec<Record> {
        let numbered = |entry: &Entry| {
            let (words, so_far) = entry.read()?;
            Some((words.number, self.record(&words, &so_far, are_messages)?))
        };
        let mut all: Vec<(u32, Record)> = entries.iter().filter_map(numbered).collect();
        let last = all.iter().map(|(number, _)| *number).reduce(later).unwrap_or(0);
        all.sort_by_key(|(number, _)| Reverse(last.wrapping_sub(*number)));
        all.into_iter().map(|(_, record)| record).collect()
    }

    fn record(&self, words: &Words, so_far: &SoFar, is_message: bool) -> Option<Record> {
        let operation = match is_message {
            false => Operation::Collective(Call::from_signature([
                words.number,
                words.what,
                words.count as u32,
                (words.count >> 32) as u32,
            ])?),
            true => Operation::Transfer(words.transfer()?),
        };
        let name = if is_message {
            None
        } else {
            (self.names)(words.how as u8)
        };
        let since = |end: u64| Duration::from_nanos(end.saturating_sub(words.began));
        let state = match so_far.end {
            None => State::UnderWay {
                since: since(self.since_base(clock::now())),
                done: so_far.done,
            },
            Some((at, End::DONE)) => State::Done {
                took: (at != 0).then(|| since(at)),
            },
            Some((at, end)) => State::Failed {
                why: end.word().into(),
                took: since(at),
            },
        };
        Some(Record {
            operation,
            message: is_message.then_some(words.number),
            algorithm: name.map(Cow::Borrowed),
            bytes: words.bytes,
            began: self.wall + Duration::from_nanos(words.began),
            state,
        })
    }

    /// A part of init, in the trace.
    pub(crate) fn init_part(&self, name: &str, began: u64, ended: u64) {
        if let Some((trace, row)) = &self.traced {
            trace.init_part(row, name, began, ended);
        }
    }

    /// Writes what is kept to the file that `CCL_FLIGHT_FILE` named when the communicator was made, if it did: where that is.
    ///
    /// # Errors
    /// The path, and why it could not be written.
    pub(crate) fn write_flight(
        &self,
        who: (usize, usize, &str),
        cause: &Cause,
        records: &[Record],
    ) -> Result<Option<PathBuf>, (PathBuf, io::Error)> {
        let pattern = self.flight.as_deref();
        pattern
            .map(|pattern| flight::write(pattern, who, cause, records))
            .transpose()
    }

    /// Nothing happens for a while, or never again: what is to be written is written now.
    pub(crate) fn rest(&self) {
        if let Some((trace, _)) = &self.traced {
            trace.flush();
        }
    }

    /// Coarse times may lie before the beginning.
    #[inline]
    fn since_base(&self, now: u64) -> u64 {
        now.saturating_sub(self.base)
    }
}

/// The later of two numbers, which wrap.
pub(crate) fn later(one: u32, other: u32) -> u32 {
    match one.wrapping_sub(other).cast_signed() > 0 {
        true => one,
        false => other,
    }
}

#[cfg(test)]
mod tests;
