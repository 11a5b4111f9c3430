//! Memory for C that peers of the same host read where it lies.

use super::{
    guard,
    memory::put,
    now_on_entry,
    types::{cclComm_t, cclResult_t},
};
use crate::{
    mem::{Region, shared},
    types::{Error, Result},
};
use std::{
    collections::HashSet,
    ffi::c_void,
    ptr,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// The registrations on a communicator.
#[derive(Default)]
pub(super) struct Registered(Mutex<HashSet<usize>>);

impl Registered {
    fn all(&self) -> MutexGuard<'_, HashSet<usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps one more and returns its handle, which never comes again and is no address.
    fn add(&self) -> *mut c_void {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let handle = TAG << 56 | NEXT.fetch_add(1, Relaxed);
        self.all().insert(handle);
        ptr::without_provenance_mut(handle)
    }
}

/// The top bits of a registration's handle: see `handle.rs`.
const TAG: usize = 0xc9;

/// Allocates `size` bytes of memory that the ranks of a host read where it lies, instead of having its data copied for them.
///
/// It is memory of the host, also in a program that uses CUDA, where ncclMemAlloc gives a device's.
/// It begins with a page and holds zeros. Any call of any communicator may use any part of it; ranks need not agree on
/// where their buffers are. Each communicator makes it known to the peers once, by the first calls that use it (no more than
/// four allocations are on their way to a peer at a time) or by cclCommRegister, so it is meant to be kept. In a communicator
/// a peer knows 64 of a rank's allocations at a time: what lies in others is copied until some of these are given back.
/// Between hosts a network plugin's cards reach it where it lies; to TCP it is as any other memory. Ranks that are threads of
/// one process need none of it. Give it back with cclMemFree. Children made by fork do not have it: who touches it there is ended by the system.
///
/// @param size 0 gives NULL.
/// @return cclSuccess; cclInvalidArgument; cclSystemError when there is no memory. Then `*ptr` is NULL.
///
/// # Safety
/// `ptr` is NULL, which is an invalid argument, or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclMemAlloc(ptr: *mut *mut c_void, size: usize) -> cclResult_t {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { put("ptr", ptr, ptr::null_mut())? };
        let memory = shared::allocate(size)?;
        // SAFETY: the caller's promise.
        unsafe { put("ptr", ptr, memory.cast()) }
    })
}

/// Gives back what cclMemAlloc gave: its pages are free at once, or, where network cards know them, with the next long
/// message (32 KiB are always enough) of each communicator by which they do, or its end. No call may be using it. NULL is fine.
///
/// @return cclSuccess; cclInvalidArgument for any other address, and for memory that was given back before.
///
/// # Safety
/// Nobody uses the memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclMemFree(ptr: *mut c_void) -> cclResult_t {
    guard(|| match ptr.addr() {
        0 => Ok(()),
        at => shared::free(at),
    })
}

/// Says that calls on `comm` will use the `size` bytes at `buff` again and again.
///
/// Memory of cclMemAlloc, or a part of it, is made known at once to the peers that this rank has sent to, which else happens
/// in the first calls that use it; cclMemAlloc says how much they know. Any other memory is accepted, and used as if it were
/// not registered. `*handle` is to be given back with cclCommDeregister; it goes with the communicator. It does not keep the
/// memory: that is given back as if it were not registered. Waits for a running call.
///
/// @return cclSuccess; cclInvalidArgument for NULL and for no bytes; otherwise as the calls on `comm`.
///
/// # Safety
/// `handle` is NULL, which is an invalid argument, or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclCommRegister(
    comm: cclComm_t,
    buff: *mut c_void,
    size: usize,
    handle: *mut *mut c_void,
) -> cclResult_t {
    now_on_entry(comm, |entry| {
        // SAFETY: the caller's promise.
        unsafe { put("handle", handle, ptr::null_mut())? };
        entry.communicator()?.register_memory(&registrable(buff, size)?)?;
        // SAFETY: the caller's promise.
        unsafe { put("handle", handle, entry.registered.add()) }
    })
}

/// Gives back what cclCommRegister gave on `comm`. NULL is fine.
///
/// @return cclSuccess; cclInvalidArgument for any other handle.
#[unsafe(no_mangle)]
pub extern "C" fn cclCommDeregister(comm: cclComm_t, handle: *mut c_void) -> cclResult_t {
    now_on_entry(comm, |entry| {
        if handle.is_null() || entry.registered.all().remove(&handle.addr()) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "handle {handle:p} is none that cclCommRegister gave on this communicator, or was given back"
        )))
    })
}

/// What is registered, which is not touched.
fn registrable(buff: *mut c_void, size: usize) -> Result<Region<'static>> {
    if buff.is_null() {
        return Err(Error::invalid(
            "buff is NULL: it must point at the memory to register",
        ));
    }
    if size == 0 {
        return Err(Error::invalid("size is 0: there is nothing to register"));
    }
    if buff.addr().checked_add(size).is_none() {
        return Err(Error::invalid(format!(
            "buff is {buff:p}: {size} bytes from there go past the end of memory"
        )));
    }
    // SAFETY: nobody reads or writes it: it is only compared with what was allocated.
    Ok(unsafe { Region::from_raw(buff.cast(), size) })
}
