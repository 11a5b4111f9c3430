//! One mapping of each memfd for a whole process, kept for ever: with `--cfg ccl_one_mapping`, for ranks that are threads.
//!
//! ThreadSanitizer knows memory by its address. What two threads do to the same page by two mappings it takes for two places,
//! and it would see neither the races nor the order of the shared memory transport.

use super::{fork, memfd};
use std::{
    collections::BTreeMap,
    ffi::c_void,
    io,
    os::fd::AsFd,
    sync::{Mutex, PoisonError},
};

/// By the process, and what tells the file from all others: where it is mapped.
static KNOWN: Mutex<BTreeMap<(u32, (u64, u64)), usize>> = Mutex::new(BTreeMap::new());

/// Where the file is mapped; `map` maps it the first time. It is never unmapped, so that its number stays its own.
pub(super) fn of(fd: impl AsFd, map: impl FnOnce() -> io::Result<*mut c_void>) -> io::Result<*mut c_void> {
    let key = (fork::generation(), memfd::identity(fd)?);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(&base) = known.get(&key) {
        return Ok(std::ptr::with_exposed_provenance_mut(base));
    }
    let base = map()?;
    known.insert(key, base.expose_provenance());
    Ok(base)
}
