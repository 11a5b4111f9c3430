//! Going on with fewer ranks, or with more.

use super::{
    communicator::{init, making},
    later::refused,
    memory::{index, put},
    on,
    split::derive,
    types::{CCL_SHRINK_ABORT, CCL_SHRINK_DEFAULT, cclComm_t, cclConfig_t, cclResult_t, cclUniqueId},
};
use crate::{
    bootstrap::UniqueId,
    comm::{Communicator, Config},
    types::{Error, Result},
};
use std::{
    ffi::{c_char, c_int},
    ptr,
};

/// Makes a communicator of the ranks of `comm` without those that are excluded, in the order of their ranks.
///
/// Each rank that is not excluded calls it, with the same ones; those that are may be dead. It works after a failure of `comm`, too,
/// which stays as it is. With a count of 0 those are left out that have died or left, as far as is known, and those that do before
/// all others have come.
///
/// @param excludeRanksList NULL where the count is 0.
/// @param config NULL means the settings of `comm` with its present timeout.
/// @param shrinkFlags CCL_SHRINK_DEFAULT, or CCL_SHRINK_ABORT, which revokes `comm` first.
/// @return cclRemoteError where another one was lost, and cclTimeout where not all come in time, or they do not name the same
/// ones: then it can be tried again.
///
/// # Safety
/// `excludeRanksList` holds that many numbers. `newcomm` and `config` as for cclCommSplit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclCommShrink(
    comm: cclComm_t,
    excludeRanksList: *mut c_int,
    excludeRanksCount: c_int,
    newcomm: *mut cclComm_t,
    config: *mut cclConfig_t,
    shrinkFlags: c_int,
) -> cclResult_t {
    // SAFETY: the caller's promise.
    let excluded = || unsafe { ranks(excludeRanksList, excludeRanksCount) };
    let abort = || match shrinkFlags {
        CCL_SHRINK_DEFAULT => Ok(false),
        CCL_SHRINK_ABORT => Ok(true),
        other => Err(Error::invalid(format!(
            "shrinkFlags is {other}: it must be CCL_SHRINK_DEFAULT (0) or CCL_SHRINK_ABORT (1)"
        ))),
    };
    // SAFETY: the caller's promises.
    unsafe {
        derive(comm, newcomm, config, false, |comm| {
            let (excluded, abort) = (excluded()?, abort()?);
            comm.check_excluded(&excluded)?;
            Ok(move |comm: &Communicator, config: Option<&Config>| {
                let shrink = match abort {
                    true => Communicator::revoke_and_shrink,
                    false => Communicator::shrink,
                };
                shrink(comm, &excluded, config).map(Some)
            })
        })
    }
}

/// # Safety
/// `list` holds `count` numbers.
unsafe fn ranks(list: *const c_int, count: c_int) -> Result<Vec<usize>> {
    let count = index("excludeRanksCount", count)?;
    if count > 0 && list.is_null() {
        return Err(Error::invalid(format!(
            "excludeRanksList is NULL: it must hold {count} ranks"
        )));
    }
    // SAFETY: the caller's promise.
    let at = |i| unsafe { list.add(i).read_unaligned() };
    (0..count)
        .map(|i| index("a rank in excludeRanksList", at(i)))
        .collect()
}

/// Makes the id by which new ranks join when `comm` is next grown by cclCommGrow: any of its ranks calls this and passes the
/// bytes to the new ones. These can be on other hosts if the ranks of `comm` listen at a network, as they do where its own id
/// was made by cclGetUniqueId on a host that has one.
///
/// # Safety
/// `uniqueId` is NULL, which is an invalid argument, or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclCommGetUniqueId(comm: cclComm_t, uniqueId: *mut cclUniqueId) -> cclResult_t {
    on(comm, |comm| {
        if uniqueId.is_null() {
            return Err(Error::invalid("uniqueId is NULL: it must point at a cclUniqueId"));
        }
        let internal = comm.grow_id()?.to_bytes().map(|byte| byte as c_char);
        // SAFETY: the caller's promise.
        unsafe { put("uniqueId", uniqueId, cclUniqueId { internal }) }
    })
}

/// Makes a communicator of all ranks of `comm`, with their numbers, and of new ones with the numbers after these.
///
/// The ranks of `comm` pass it with the rank -1, and NULL or the id for `uniqueId`; the new ones pass NULL, their number and the id of
/// cclCommGetUniqueId. It returns when all have called it. `comm` stays as it is.
///
/// @param nranks All ranks, old and new.
/// @param config NULL means the settings of `comm` with its present timeout; for a new rank the default, which must fit.
///
/// # Safety
/// `uniqueId` is NULL or may be read. `newcomm` and `config` as for cclCommSplit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclCommGrow(
    comm: cclComm_t,
    nranks: c_int,
    uniqueId: *const cclUniqueId,
    rank: c_int,
    newcomm: *mut cclComm_t,
    config: *mut cclConfig_t,
) -> cclResult_t {
    // SAFETY: the caller's promise; NULL is looked for.
    let id = (!uniqueId.is_null()).then(|| unsafe { uniqueId.read_unaligned() });
    if comm.is_null() {
        // SAFETY: the caller's promise.
        let cleared = || unsafe { put("newcomm", newcomm, ptr::null_mut()) };
        let join = || {
            cleared()?;
            let id = id.ok_or_else(|| {
                Error::invalid("uniqueId is NULL: a new rank needs the id that cclCommGetUniqueId made")
            })?;
            // SAFETY: the caller's promises.
            unsafe { init(newcomm, nranks, id, rank, config) }
        };
        return making(|| join().inspect_err(refused));
    }
    // SAFETY: the caller's promises.
    unsafe {
        derive(comm, newcomm, config, false, |comm| {
            let nranks = index("nranks", nranks)?;
            comm.check_grow(nranks)?;
            if rank != -1 {
                return Err(Error::invalid(format!(
                    "rank is {rank}: a rank of comm keeps its number and passes -1"
                )));
            }
            let id = id.map(|id| UniqueId::from_bytes(id.internal.map(|byte| byte as u8)));
            let id = id.transpose()?;
            Ok(move |comm: &Communicator, config: Option<&Config>| {
                if let Some(id) = id
                    && !comm.grow_id()?.is_of_the_same(&id)
                {
                    return Err(Error::invalid(format!(
                        "{id:?} is not the id of the next cclCommGrow of this communicator: get it with \
                         cclCommGetUniqueId"
                    )));
                }
                comm.grow(nranks, config).map(Some)
            })
        })
    }
}
