//! The C ABI: `include/ccl.h` as functions over the public Rust API.
//!
//! Thin by intent. A function here turns C's pointers and integers into checked Rust values, calls the
//! [`Communicator`], and turns the outcome into a number and a text. `cargo xtask header` writes the header from these
//! files; their documentation is the C programmer's.
//!
//! - C may pass any integer and any pointer. Numbers are checked; handles are looked up in a table and never
//!   dereferenced; data pointers are refused when they cannot be right.
//! - Nothing unwinds into C: a panic is caught, closes its communicator and becomes `cclInternalError`.
//! - No lock is held while a call runs, so that `cclCommAbort` and the questions about a communicator never wait.

#![allow(non_camel_case_types, non_snake_case, reason = "the names are C's")]
#![allow(unreachable_pub, reason = "the functions are public to C, not to Rust")]

mod collectives;
mod communicator;
mod config;
mod ending;
mod handle;
mod later;
mod memory;
mod recover;
mod reductions;
mod shared;
mod split;
mod stream;
mod text;
mod transfers;
mod types;
mod vector;

use crate::{
    comm::{AtOnce, Communicator},
    sys::in_use::Here,
    types::{Cause, DType, Error, Op, Reducing, Result},
};
use handle::Table;
use std::{
    any::Any,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{
            AtomicBool,
            Ordering::{Relaxed, SeqCst},
            fence,
        },
    },
};
use types::{Code, cclComm_t, cclRedOp_t, cclResult_t};

/// What a handle of C's stands for.
#[derive(Default)]
struct Entry {
    /// The communicator, once it has been made.
    made: OnceLock<Communicator>,
    /// Why it never will be.
    failed: OnceLock<(Code, String)>,
    /// Whether it was aborted before that.
    given_up: AtomicBool,
    /// The text of the last call on it that failed, on whichever thread.
    last_error: Mutex<String>,
    /// Reductions that C has made.
    reductions: reductions::Made,
    registered: shared::Registered,
}

impl Entry {
    fn new(communicator: Communicator) -> Self {
        Entry {
            made: OnceLock::from(communicator),
            ..Entry::default()
        }
    }

    /// # Errors
    /// [`Error::Usage`] while it is being made, and when that failed.
    #[inline]
    fn communicator(&self) -> Result<&Communicator> {
        self.made.get().ok_or_else(|| self.not_made())
    }

    #[cold]
    fn not_made(&self) -> Error {
        Error::usage(match self.failed.get() {
            Some(_) => "the communicator could not be made (cclGetLastError tells why): only destroy it",
            None => "the communicator is still being made: wait until cclCommGetAsyncError gives cclSuccess",
        })
    }

    /// How its making or its work is going.
    fn state(&self) -> Code {
        match self.made.get() {
            Some(made) => made.failure().map_or(Code::Success, |cause| cause_code(&cause)),
            None => self.failed.get().map_or(Code::InProgress, |(code, _)| *code),
        }
    }

    /// Sets what making it in the background has come to.
    fn settle(&self, outcome: Result<Option<Communicator>>) {
        match outcome {
            Ok(Some(made)) => {
                let made = self.made.get_or_init(|| made);
                fence(SeqCst); // with that of `abort`: one of the two sees what the other has set
                if self.given_up.load(Relaxed) {
                    made.abort();
                }
            }
            Ok(None) => self.fail(&Error::internal("no communicator was made")),
            Err(error) => self.fail(&error),
        }
    }

    fn fail(&self, error: &Error) {
        let _ = self.failed.set((code(error), error.to_string()));
    }

    /// What stopped it, or kept it from being made, or was wrong with the last call that failed.
    fn last_error(&self) -> String {
        let stopped = self
            .made
            .get()
            .and_then(Communicator::failure)
            .map(|cause| cause.to_string());
        let text = stopped.or_else(|| self.failed.get().map(|(_, text)| text.clone()));
        text.unwrap_or_else(|| {
            self.last_error
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone()
        })
    }

    /// Stops it, or what becomes of it.
    fn abort(&self) {
        self.given_up.store(true, Relaxed);
        fence(SeqCst);
        self.made.get().inspect(|made| made.abort());
    }

    /// How a collective reduces whose reduction, if it has one, C calls `op`.
    fn reducing(&self, op: Option<cclRedOp_t>, dtype: DType) -> Result<Reducing> {
        op.map_or(Ok(Op::Sum.into()), |op| self.reductions.reducing(op, dtype))
    }

    /// A call on it ended by this error, whose text it keeps.
    #[cold]
    fn ended_by(&self, error: Error) -> Error {
        self.remember(&error);
        later::refused(&error);
        error
    }

    /// A call on it panicked: nobody uses it any more.
    #[cold]
    fn broken_by(&self, panic: &(dyn Any + Send)) -> Error {
        self.abort();
        panicked(panic)
    }

    /// Keeps the text for `cclGetLastError`.
    fn remember(&self, error: &Error) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = error.to_string();
    }
}

/// The live communicators of this process.
static COMMUNICATORS: Table<Entry> = Table::new(0xc1, "a live communicator");

/// Runs the body of an entry point: an error becomes its number, with the text kept for `cclGetLastError(NULL)`.
fn guard(body: impl FnOnce() -> Result<()>) -> cclResult_t {
    // What a panic leaves half done is a communicator, which `on` closes, or nothing that is used again.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => Code::Success as cclResult_t,
        Ok(Err(error)) => refuse(&error),
        Err(panic) => refuse(&panicked(&*panic)),
    }
}

/// The same for a call on a communicator, which also keeps the text. It is carried out at once in a group, too, which does not fail
/// with it.
fn on(handle: cclComm_t, body: impl FnOnce(&Communicator) -> Result<()>) -> cclResult_t {
    now_on_entry(handle, |entry| body(entry.communicator()?))
}

/// The same with what the handle stands for.
fn now_on_entry(handle: cclComm_t, body: impl FnOnce(&Arc<Entry>) -> Result<()>) -> cclResult_t {
    guard(|| {
        let entry = COMMUNICATORS.get(handle)?;
        run(&entry, body).inspect_err(|error| entry.remember(error))
    })
}

/// The same for an operation, which a group may carry out later, and which a group fails with.
fn on_entry(handle: cclComm_t, body: impl FnOnce(&Arc<Entry>) -> Result<()>) -> cclResult_t {
    guard(|| {
        let entry = COMMUNICATORS.get(handle).inspect_err(later::refused)?;
        run(&entry, body).map_err(|error| entry.ended_by(error))
    })
}

/// Runs the body of a call on what a handle stands for.
fn run(entry: &Arc<Entry>, body: impl FnOnce(&Arc<Entry>) -> Result<()>) -> Result<()> {
    let outcome = catch_unwind(AssertUnwindSafe(|| body(entry)));
    outcome.unwrap_or_else(|panic| Err(entry.broken_by(&*panic)))
}

/// Runs an operation by `body`, if that can do it: else `None`, and nothing was done. It is tried before [`on_entry`], which
/// also says what is wrong with a call.
#[inline(always)] // in the path of each short call
fn at_once(handle: cclComm_t, body: impl FnOnce(&Arc<Entry>) -> AtOnce) -> Option<cclResult_t> {
    /// A call on it, which is aborted if that panics.
    struct During<'e>(&'e Entry);
    impl Drop for During<'_> {
        #[cold]
        fn drop(&mut self) {
            self.0.abort();
        }
    }
    let here = Here::new();
    // By references: what is put down once and again, in pieces of another size, is waited for.
    let tried = catch_unwind(AssertUnwindSafe(|| {
        let entry = COMMUNICATORS.find(handle, here)?;
        let during = During(&entry);
        let outcome = body(&entry);
        mem::forget(during);
        match outcome? {
            Ok(()) => Some(Code::Success as cclResult_t),
            Err(error) => Some(refuse(&entry.ended_by(*error))),
        }
    }));
    tried.unwrap_or_else(|panic| Some(refuse(&panicked(&*panic))))
}

fn refuse(error: &Error) -> cclResult_t {
    text::remember(&error.to_string());
    code(error) as cclResult_t
}

fn panicked(payload: &(dyn Any + Send)) -> Error {
    let what = payload.downcast_ref::<&str>().copied();
    let what = what.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    Error::internal(format!("a panic: {}", what.unwrap_or("without a message")))
}

/// The number that C gets for `error`.
fn code(error: &Error) -> Code {
    match error {
        Error::Invalid { .. } => Code::InvalidArgument,
        Error::Usage { .. } => Code::InvalidUsage,
        Error::System { .. } => Code::SystemError,
        Error::Cuda { .. } => Code::UnhandledCudaError,
        Error::Init { .. } => Code::RemoteError,
        Error::InitTimeout { .. } => Code::Timeout,
        Error::Failed(cause) | Error::Closed(cause) => cause_code(cause),
        Error::Internal { .. } => Code::InternalError,
    }
}

fn cause_code(cause: &Cause) -> Code {
    match cause {
        Cause::Lost { .. }
        | Cause::Left { .. }
        | Cause::Aborted { .. }
        | Cause::Revoked { .. }
        | Cause::Broken { .. } => Code::RemoteError,
        Cause::Late { .. } => Code::Timeout,
        Cause::Mismatch { .. } => Code::InvalidUsage,
    }
}

#[cfg(test)]
mod tests;
