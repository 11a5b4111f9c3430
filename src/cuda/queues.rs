//! Which queue of the device a stream has.
//!
//! The driver says so with the stream's first kernel, and where threads launch those at once two streams may get the same queue, though others
//! are free. One that waits for a flag then holds up the other, for ever if that is to write it (`docs/results/gpu.md`). So streams whose ranks
//! wait for each other get their queues one after the other.

use super::{
    allocation::Allocation,
    by_context::ByContext,
    driver::{Context, Current, Driver, Stream},
    symbols::Address,
};
use crate::types::Result;
use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

/// Streams that have a queue, by their ids, of which none is used twice.
static KNOWN: Mutex<Option<HashSet<u64>>> = Mutex::new(None);

/// Held while a stream gets one.
static FIRST: Mutex<()> = Mutex::new(());

/// Memory of the device that nobody needs.
static MEMORY: ByContext<Arc<Allocation>> = ByContext::new();

/// Has `stream`, of this context, which is the current one, get its queue, if it has none.
///
/// # Errors
/// [`Error::Cuda`](crate::Error::Cuda).
pub(crate) fn settle(
    driver: &'static Driver,
    current: &Current<'_>,
    context: Context,
    stream: Stream,
) -> Result<()> {
    let id = current.id_of(stream)?;
    if known(|streams| streams.contains(&id)) {
        return Ok(());
    }
    let at = prepare(driver, context)?.address();
    let _one_by_one = FIRST.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the memory stays for as long as the process does, and nobody looks at it.
    unsafe { current.copy(stream, at, at + HALF as Address, HALF)? };
    known(|streams| {
        if streams.len() >= MOST {
            streams.clear();
        }
        streams.insert(id);
    });
    Ok(())
}

/// Takes the memory that [`settle`] needs, which no thread may while one captures a stream for all.
///
/// # Errors
/// [`Error::Cuda`](crate::Error::Cuda).
pub(crate) fn prepare(driver: &'static Driver, context: Context) -> Result<Arc<Allocation>> {
    MEMORY.of(driver, context, || {
        Allocation::new(driver, context, 2 * HALF).map(Arc::new)
    })
}

fn known<R>(body: impl FnOnce(&mut HashSet<u64>) -> R) -> R {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    body(known.get_or_insert_with(HashSet::new))
}

/// Bytes that are copied.
const HALF: usize = 64;

/// So many streams are kept in mind; of more each may do that again.
const MOST: usize = 1 << 16;
