//! Making communicators of another one, and of one process.

use super::{
    COMMUNICATORS, Entry,
    config::read,
    guard,
    later::{self, Origin},
    memory::{index, put},
    on_entry,
    types::{CCL_SPLIT_NOCOLOR, Code, cclComm_t, cclConfig_t, cclResult_t},
};
use crate::{
    comm::{Communicator, Config},
    types::{Error, Result, check_ranks},
};
use std::{ffi::c_int, ptr, sync::Arc};

/// Makes a communicator of the ranks that pass the same `color`, in the order of their `key`, and of their ranks in
/// `comm` where keys are equal.
///
/// It is an operation: all ranks of `comm` call it, at the same place among the others; with CCL_SPLIT_NOCOLOR a rank
/// takes part, and gets NULL. `*newcomm` is a handle as cclCommInitRank makes it, to be given back like that, before or
/// after `comm`; after an error it is NULL. All ranks must pass valid arguments: one whose arguments are refused takes no
/// part, and the others wait for it as in any operation. If a rank is lost once the colors are known, or does not come,
/// the call fails on all ranks of its color with cclRemoteError or cclTimeout and leaves `comm` as it is. In a group it is
/// carried out at the end, before the group's operations, beside the other communicators that the group makes.
///
/// @param color 0 or more, or CCL_SPLIT_NOCOLOR.
/// @param config Ranks of one color pass settings that fit; NULL means the settings of `comm` with its present timeout.
///
/// # Safety
/// `newcomm` is NULL, which is an invalid argument, or may be written, in a group until that ends. `config` as for
/// cclCommInitRankConfig.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclCommSplit(
    comm: cclComm_t,
    color: c_int,
    key: c_int,
    newcomm: *mut cclComm_t,
    config: *mut cclConfig_t,
) -> cclResult_t {
    let make = |_: &Communicator| {
        let color = match color {
            CCL_SPLIT_NOCOLOR => None,
            color => Some(u32::try_from(color).map_err(|_| {
                Error::invalid(format!(
                    "color is {color}: it must be 0 or more, or CCL_SPLIT_NOCOLOR ({CCL_SPLIT_NOCOLOR}) for no communicator"
                ))
            })?),
        };
        Ok(move |comm: &Communicator, config: Option<&Config>| comm.split(color, key, config))
    };
    // SAFETY: the caller's promises.
    unsafe { derive(comm, newcomm, config, true, make) }
}

/// Makes another communicator of the same ranks: cclCommSplit with one color for all, and one key.
///
/// # Safety
/// As cclCommSplit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclCommDup(
    comm: cclComm_t,
    newcomm: *mut cclComm_t,
    config: *mut cclConfig_t,
) -> cclResult_t {
    // SAFETY: the caller's promises.
    unsafe {
        derive(comm, newcomm, config, true, |_| {
            Ok(|comm: &Communicator, config: Option<&Config>| comm.duplicate(config).map(Some))
        })
    }
}

/// Makes a communicator of another one by what `check` gives once it has found the other arguments to be right. `is_operation`: whether
/// that is one of the other's operations.
///
/// # Safety
/// As cclCommSplit.
pub(super) unsafe fn derive<M>(
    comm: cclComm_t,
    newcomm: *mut cclComm_t,
    config: *const cclConfig_t,
    is_operation: bool,
    check: impl FnOnce(&Communicator) -> Result<M>,
) -> cclResult_t
where
    M: FnOnce(&Communicator, Option<&Config>) -> Result<Option<Communicator>> + Send + 'static,
{
    // SAFETY: the caller's promise about `newcomm`.
    let cleared = guard(|| unsafe { put("newcomm", newcomm, ptr::null_mut()) }.inspect_err(later::refused));
    if cleared != Code::Success as cclResult_t {
        return cleared;
    }
    on_entry(comm, |entry| {
        let make = check(entry.communicator()?)?;
        let config = match config.is_null() {
            true => None,
            // SAFETY: the caller's promise about `config`.
            false => Some(unsafe { read(config)? }.anywhere()),
        };
        entry.communicator()?.settings(config.as_ref())?;
        let (origin, entry) = (Origin::Parent(Arc::clone(entry), is_operation), Arc::clone(entry));
        let make = move || make(entry.communicator()?, config.as_ref());
        // SAFETY: the caller's promise about `newcomm`.
        unsafe { later::make(newcomm, origin, true, make) }.map(|_| ())
    })
}

/// Makes a communicator whose `ndev` ranks are all in this process: their handles, by rank, in `comms`.
///
/// Each is as cclCommInitRank makes it and is given back by itself. An operation needs all of them, so that each rank calls
/// it on a thread of its own, or one thread calls it for all in a group. After an error all of `comms` are NULL, unless
/// it was about `ndev`.
///
/// @param devlist The CUDA device of each rank, of which several may have one. NULL: all have the caller's current one, if there is
/// one. Buffers may be host memory either way.
///
/// # Safety
/// `comms` is NULL, which is an invalid argument, or `ndev` handles may be written there. `devlist` is NULL or holds that many numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclCommInitAll(
    comms: *mut cclComm_t,
    ndev: c_int,
    devlist: *const c_int,
) -> cclResult_t {
    guard(|| {
        let ranks = index("ndev", ndev)?;
        check_ranks(ranks)?;
        for rank in 0..ranks {
            // SAFETY: the caller's promise; NULL is refused at the first.
            unsafe { put("comms", comms.wrapping_add(rank), ptr::null_mut())? };
        }
        let made = match devlist.is_null() {
            true => Communicator::init_all(ranks)?,
            false => {
                // SAFETY: the caller's promise about `devlist`.
                let at = |rank| unsafe { devlist.add(rank).read_unaligned() };
                init_all_on(&(0..ranks).map(at).collect::<Vec<c_int>>())?
            }
        };
        let mut handles = Vec::with_capacity(ranks);
        for communicator in made {
            match handle(communicator) {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    // They are in the table: nobody else knows them.
                    handles.iter().for_each(|&handle| _ = COMMUNICATORS.take(handle));
                    return Err(error);
                }
            }
        }
        for (rank, handle) in handles.into_iter().enumerate() {
            // SAFETY: the caller's promise; it was not NULL before.
            unsafe { put("comms", comms.wrapping_add(rank), handle)? };
        }
        Ok(())
    })
}

#[cfg(feature = "cuda")]
fn init_all_on(devices: &[c_int]) -> Result<Vec<Communicator>> {
    Communicator::init_all_on(devices)
}

#[cfg(not(feature = "cuda"))]
fn init_all_on(_: &[c_int]) -> Result<Vec<Communicator>> {
    Err(Error::usage(
        "this library was built without CUDA: pass NULL for devlist",
    ))
}

/// A new handle.
fn handle(communicator: Communicator) -> Result<cclComm_t> {
    COMMUNICATORS.insert(Entry::new(communicator))
}
