//! Streams of host memory.

use super::{
    guard,
    handle::Table,
    later::FromC,
    memory::put,
    refuse,
    types::{Code, cclResult_t, cclStream_t},
};
use crate::{comm::Stream, types::Error};
use std::{ffi::c_void, ptr};

/// The live streams of this process.
pub(super) static STREAMS: Table<Stream> = Table::new(0xc5, "a live stream");

/// A function of C's that a stream calls.
#[allow(non_camel_case_types)]
pub type cclStreamCallback_t = Option<unsafe extern "C" fn(*mut c_void, cclResult_t)>;

/// Makes a stream for host memory: operations in it are carried out one after the other, those of a group together, while
/// the caller goes on.
///
/// Give it back with cclStreamDestroy.
///
/// # Safety
/// `stream` is NULL, which is an invalid argument, or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclStreamCreate(stream: *mut cclStream_t) -> cclResult_t {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { put("stream", stream, ptr::null_mut())? };
        let handle = STREAMS.insert(Stream::new())?;
        // SAFETY: the caller's promise.
        unsafe { put("stream", stream, handle) }
    })
}

/// Waits until all that is in the stream now is over, whatever others add meanwhile.
///
/// @return cclSuccess, or the first failure of an operation in the stream, from then on each time.
#[unsafe(no_mangle)]
pub extern "C" fn cclStreamSynchronize(stream: cclStream_t) -> cclResult_t {
    guard(|| STREAMS.get(stream)?.synchronize())
}

/// Tells whether all that is in the stream is over: cclSuccess, cclInProgress, or the first failure.
#[unsafe(no_mangle)]
pub extern "C" fn cclStreamQuery(stream: cclStream_t) -> cclResult_t {
    let mut over = true;
    let code = guard(|| {
        over = STREAMS.get(stream)?.is_over()?;
        Ok(())
    });
    if over {
        code
    } else {
        Code::InProgress as cclResult_t
    }
}

/// Gives the stream back. What is in it goes on to its end.
#[unsafe(no_mangle)]
pub extern "C" fn cclStreamDestroy(stream: cclStream_t) -> cclResult_t {
    guard(|| STREAMS.take(stream).map(drop))
}

/// Has `callback(data, result)` called after all that is in the stream now, also after a failure, which `result` tells.
///
/// It is called on a thread of the library's; what comes later in the stream waits for it. It may call ccl, but nothing
/// that waits for this stream: nor an operation of all ranks, cclCommFinalize or cclCommDestroy on a communicator that has something
/// later in it.
///
/// # Safety
/// `callback` may be called with `data` on another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclStreamAddCallback(
    stream: cclStream_t,
    callback: cclStreamCallback_t,
    data: *mut c_void,
) -> cclResult_t {
    guard(|| {
        let stream = STREAMS.get(stream)?;
        let Some(callback) = callback else {
            return Err(Error::invalid("callback is NULL: it must be a function to call"));
        };
        let data = FromC(data);
        stream.add_callback(move |outcome| {
            let data = data; // the whole of it, which may go to another thread
            let result = outcome.map_or_else(|error| refuse(&error), |()| Code::Success as cclResult_t);
            // SAFETY: the caller's promise.
            unsafe { callback(data.0, result) };
        })
    })
}
