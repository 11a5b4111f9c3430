//! The texts that C gets: they live in the thread until its next call.

use super::{
    COMMUNICATORS,
    ending::{self, OfThread, at_first},
    guard,
    types::{cclComm_t, cclResult_t},
};
use std::{
    cell::RefCell,
    ffi::{CStr, CString, c_char},
    mem::ManuallyDrop,
};

type Kept = ManuallyDrop<RefCell<Option<CString>>>;

thread_local! {
    /// What went wrong last on this thread.
    static LAST: Kept = const { at_first(None) };
    /// What the thread was last told about a communicator.
    static TOLD: Kept = const { at_first(None) };
}

/// Drops this thread's texts.
pub(super) fn forget() {
    for place in [&LAST, &TOLD] {
        place.with(|place| place.take());
    }
}

/// Keeps `text` as the thread's last error.
pub(super) fn remember(text: &str) {
    keep(&LAST, text);
}

/// Names a result in a few words.
///
/// @return A text that is never freed and stays valid for ever; also for numbers that are no result.
#[unsafe(no_mangle)]
pub extern "C" fn cclGetErrorString(result: cclResult_t) -> *const c_char {
    let text: &CStr = match result {
        0 => c"no error",
        1 => c"unhandled CUDA error",
        2 => c"unhandled system error",
        3 => c"internal error",
        4 => c"invalid argument",
        5 => c"invalid usage",
        6 => c"remote error: a rank was lost, left or aborted",
        7 => c"operation in progress",
        8 => c"timeout",
        _ => c"not a result of ccl",
    };
    text.as_ptr()
}

/// Tells what went wrong: what was found, what was wanted and what to do.
///
/// With a communicator: why it stopped working if it did, on whichever rank that began; otherwise the last call on it
/// that failed, on any thread. With NULL: the last call of this thread that failed, the making of a communicator
/// included. Never waits for a running call.
///
/// @return A text that stays valid until the same thread's next call of ccl; not to be freed. Empty when nothing went
/// wrong.
#[unsafe(no_mangle)]
pub extern "C" fn cclGetLastError(comm: cclComm_t) -> *const c_char {
    if comm.is_null() {
        return shown(&LAST);
    }
    let mut told = String::new();
    let status = guard(|| {
        told = COMMUNICATORS.get(comm)?.last_error();
        Ok(())
    });
    if status != 0 {
        return shown(&LAST);
    }
    keep(&TOLD, &told);
    shown(&TOLD)
}

fn keep(place: &'static OfThread<Option<CString>>, text: &str) {
    ending::heed();
    // There is no interior NUL left that could make this fail.
    let text = CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default();
    place.with(|place| place.replace(Some(text)));
}

fn shown(place: &'static OfThread<Option<CString>>) -> *const c_char {
    place.with(|place| place.borrow().as_ref().map_or(c"".as_ptr(), |text| text.as_ptr()))
}
