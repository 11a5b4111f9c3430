//! Making, asking and ending communicators.

use super::{
    COMMUNICATORS,
    config::{blocks, deadline, read},
    guard,
    handle::drop_last,
    later::{Origin, make, refused},
    memory::{index, put},
    on,
    types::{Code, cclComm_t, cclConfig_t, cclResult_t, cclUniqueId, version},
};
use crate::{
    bootstrap::{UniqueId, env::Turn},
    comm::Communicator,
    types::{Error, Result, check_rank},
};
use std::{
    ffi::{c_char, c_int},
    ptr,
};

/// Tells the library's version, as CCL_VERSION makes it of major, minor and patch.
///
/// # Safety
/// `version` is NULL, which is an invalid argument, or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclGetVersion(version: *mut c_int) -> cclResult_t {
    // SAFETY: the caller's promise.
    guard(|| unsafe { put("version", version, self::version()) })
}

/// Makes the id by which the ranks of one communicator find each other.
///
/// One process calls it and passes the 128 bytes to the others, which may be its own forked children; it listens for
/// them and so must live until all have made the communicator. One communicator can be made of each id. Of ids to which nobody has come
/// a process keeps the latest 10,000.
///
/// # Safety
/// `uniqueId` is NULL, which is an invalid argument, or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclGetUniqueId(uniqueId: *mut cclUniqueId) -> cclResult_t {
    guard(|| {
        if uniqueId.is_null() {
            return Err(Error::invalid("uniqueId is NULL: it must point at a cclUniqueId"));
        }
        let internal = UniqueId::new()?.to_bytes().map(|byte| byte as c_char);
        // SAFETY: the caller's promise.
        unsafe { put("uniqueId", uniqueId, cclUniqueId { internal }) }
    })
}

/// Makes a communicator of `nranks` ranks, of which the caller is `rank` (0 to nranks - 1).
///
/// All ranks call it, each with its own number and the same id; it returns when all have, or with an error that names
/// the ranks that did not come in time. `*comm` is then a handle, to be given back with cclCommDestroy or cclCommAbort;
/// after an error it is NULL, and cclGetLastError(NULL) tells why. In a group it is NULL until cclGroupEnd, which makes all
/// of the group's communicators side by side, or none if one fails (others that wait at ids of this process then end at once, those
/// at ids of other processes by their deadline).
///
/// # Safety
/// `comm` is NULL, which is an invalid argument, or may be written, in a group until that ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclCommInitRank(
    comm: *mut cclComm_t,
    nranks: c_int,
    commId: cclUniqueId,
    rank: c_int,
) -> cclResult_t {
    // SAFETY: the caller's promise; no config is the default one.
    making(|| unsafe { init(comm, nranks, commId, rank, ptr::null()) }.inspect_err(refused))
}

/// The same with a configuration; NULL is the default one.
///
/// The configuration is only read, and needed only during the call.
///
/// # Safety
/// `comm` as for cclCommInitRank. `config` is NULL or begins with its size, as CCL_CONFIG_INITIALIZER makes it; its
/// texts end with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclCommInitRankConfig(
    comm: *mut cclComm_t,
    nranks: c_int,
    commId: cclUniqueId,
    rank: c_int,
    config: *mut cclConfig_t,
) -> cclResult_t {
    // SAFETY: the caller's promise.
    making(|| unsafe { init(comm, nranks, commId, rank, config) }.inspect_err(refused))
}

/// Runs what makes a communicator, and says whether that goes on in the background.
pub(super) fn making(body: impl FnOnce() -> Result<bool>) -> cclResult_t {
    let mut goes_on = false;
    let status = guard(|| {
        goes_on = body()?;
        Ok(())
    });
    match goes_on {
        true => Code::InProgress as cclResult_t,
        false => status,
    }
}

/// # Safety
/// As cclCommInitRankConfig.
pub(super) unsafe fn init(
    comm: *mut cclComm_t,
    nranks: c_int,
    id: cclUniqueId,
    rank: c_int,
    config: *const cclConfig_t,
) -> Result<bool> {
    // SAFETY: the caller's promise about `comm`.
    unsafe { put("comm", comm, ptr::null_mut())? };
    let (ranks, rank) = (index("nranks", nranks)?, index("rank", rank)?);
    check_rank(rank, ranks)?;
    // SAFETY: the caller's promise about `config`.
    let (config, blocking) = unsafe { (read(config)?, blocks(config)?) };
    let id = UniqueId::from_bytes(id.internal.map(|byte| byte as u8))?;
    // SAFETY: the caller's promise about `comm`.
    unsafe {
        make(comm, Origin::Id(id.clone()), blocking, move || {
            Communicator::init(ranks, &id, rank, &config).map(Some)
        })
    }
}

/// Makes the communicator of all ranks that a launcher started (torchrun, mpirun of Open MPI or MPICH, srun,
/// Kubernetes), with the rank that it gave to this process. NULL is the default configuration.
///
/// All ranks call it; each further call makes another communicator of the same ranks, and a call counts also where it
/// fails. The first of these pairs that is set says rank and ranks: RANK and WORLD_SIZE; OMPI_COMM_WORLD_RANK and
/// OMPI_COMM_WORLD_SIZE; PMI_RANK and PMI_SIZE; in a Slurm step SLURM_PROCID and SLURM_STEP_NUM_TASKS; in a pod of an
/// indexed Job JOB_COMPLETION_INDEX and WORLD_SIZE; of launchers that run in each other the nearest counts. On one
/// host the ranks then find each other without more; jobs that are started by hand at the same time need each a MASTER_PORT of its own. Between hosts a launcher that offers PMIx
/// or PMI-1 carries what they need, PMI-1 only in a program that has loaded no MPI. Otherwise they need MASTER_ADDR,
/// MASTER_PORT (they meet at the port after it; or CCL_MASTER_PORT, which is taken as it is) and a secret: a file of mode 0600 that CCL_SECRET_FILE names, or CCL_SECRET, which the first call
/// takes out of the environment.
///
/// `*comm` is as for cclCommInitRank.
///
/// # Safety
/// `comm` and `config` as for cclCommInitRankConfig. While CCL_SECRET is set, no other thread changes environment
/// variables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclCommInitEnv(comm: *mut cclComm_t, config: *mut cclConfig_t) -> cclResult_t {
    // SAFETY: the caller's promise.
    making(|| unsafe { init_env(comm, config) }.inspect_err(refused))
}

/// # Safety
/// As cclCommInitEnv.
unsafe fn init_env(comm: *mut cclComm_t, config: *const cclConfig_t) -> Result<bool> {
    // Before anything can fail, so that the ranks' calls stay in step.
    let turn = Turn::take();
    // SAFETY: the caller's promise about `comm`.
    unsafe { put("comm", comm, ptr::null_mut())? };
    // SAFETY: the caller's promise about `config`.
    let (config, blocking) = unsafe { (read(config)?, blocks(config)?) };
    // SAFETY: the caller's promise about `comm`.
    unsafe {
        make(comm, Origin::Launcher, blocking, move || {
            Communicator::init_turn(turn, &config).map(Some)
        })
    }
}

/// Ends the work on a communicator in order. The handle stays, for questions and for cclCommDestroy.
///
/// All ranks call it once they have no more operations on the communicator; calls that run on it end first. Ranks whose last
/// calls differ are told so; for that it waits a second at most for a rank that has made fewer calls, and two for one whose process
/// does not answer.
#[unsafe(no_mangle)]
pub extern "C" fn cclCommFinalize(comm: cclComm_t) -> cclResult_t {
    on(comm, Communicator::finalize)
}

/// Leaves the communicator and gives the handle back, also after an error. NULL is fine.
///
/// Does what cclCommFinalize does if that was not called, but compares no calls. Calls that other threads have running on the
/// communicator go on; it is left when the last of them has ended. Waits a second at most until the others have heard that it is left; for
/// further communicators a tenth of that, as long as they do not hear in time, as where a process is stopped. Where device memory was used it
/// may give pinned memory back, for which the driver waits for all streams of the current context, as it does when device memory is freed.
#[unsafe(no_mangle)]
pub extern "C" fn cclCommDestroy(comm: cclComm_t) -> cclResult_t {
    guard(|| {
        if !comm.is_null() {
            drop_last(COMMUNICATORS.take(comm)?);
        }
        Ok(())
    })
}

/// Stops the communicator on all ranks: calls that run on it, here and on the other ranks, end soon with an error that names
/// this rank, and later ones are refused. Never waits for them. Unlike cclCommAbort it leaves the handle, for
/// cclCommShrink and cclCommDestroy.
///
/// @param revokeFlags 0.
#[unsafe(no_mangle)]
pub extern "C" fn cclCommRevoke(comm: cclComm_t, revokeFlags: c_int) -> cclResult_t {
    on(comm, |comm| match revokeFlags {
        0 => {
            comm.revoke();
            Ok(())
        }
        flags => Err(Error::invalid(format!(
            "revokeFlags is {flags}: there are none, so it must be 0"
        ))),
    })
}

/// Stops the communicator on all ranks and gives the handle back.
///
/// Calls that run on it, here and on the other ranks, end soon with an error that names this rank; so does what is made of it here. Never
/// waits for them, but as cclCommDestroy does until the others have heard: some 1.3 s at most, for further communicators 0.4 s. Where a
/// process is stopped by which the others would hear of it, calls of few ranks end within some 10 s, of thousands within minutes.
#[unsafe(no_mangle)]
pub extern "C" fn cclCommAbort(comm: cclComm_t) -> cclResult_t {
    guard(|| {
        let taken = COMMUNICATORS.take(comm)?;
        taken.abort();
        drop_last(taken);
        Ok(())
    })
}

/// Tells whether the communicator works: cclSuccess in `*asyncError`, cclInProgress while it is still being made in the
/// background, or why it stopped or could not be made; cclGetLastError has the text. Never waits for a running call.
///
/// # Safety
/// `asyncError` is NULL, which is an invalid argument, or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclCommGetAsyncError(comm: cclComm_t, asyncError: *mut cclResult_t) -> cclResult_t {
    guard(|| {
        let state = COMMUNICATORS.get(comm)?.state();
        // SAFETY: the caller's promise.
        unsafe { put("asyncError", asyncError, state as cclResult_t) }
    })
}

/// Tells the number of ranks. Never waits for a running call.
///
/// # Safety
/// `count` is NULL, which is an invalid argument, or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclCommCount(comm: cclComm_t, count: *mut c_int) -> cclResult_t {
    // SAFETY: the caller's promise.
    on(comm, |comm| unsafe { put("count", count, number(comm.ranks())?) })
}

/// Tells the caller's rank. Never waits for a running call.
///
/// # Safety
/// `rank` is NULL, which is an invalid argument, or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclCommUserRank(comm: cclComm_t, rank: *mut c_int) -> cclResult_t {
    // SAFETY: the caller's promise.
    on(comm, |comm| unsafe { put("rank", rank, number(comm.rank())?) })
}

/// Tells the number of the CUDA device that the rank works with: that whose context was the current one of the thread that made the
/// communicator, or that of cclCommInitAll; of one that was made of another one, that one's. Never waits for a running call.
///
/// @return cclInvalidUsage where there was none, with -1 in `*device`. Host memory needs none, and buffers of any device may be used.
///
/// # Safety
/// `device` is NULL, which is an invalid argument, or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclCommCuDevice(comm: cclComm_t, device: *mut c_int) -> cclResult_t {
    on(comm, |comm| {
        let number = comm.device();
        // SAFETY: the caller's promise.
        unsafe { put("device", device, number.unwrap_or(-1))? };
        let none = || Error::usage("the communicator has no CUDA device: none was current when it was made");
        number.map(|_| ()).ok_or_else(none)
    })
}

/// Changes how long operations may wait for other ranks, from now on, those under way included: at least 1 millisecond. The same
/// on all ranks. Errors may come later, as with that of cclConfig_t.
#[unsafe(no_mangle)]
pub extern "C" fn cclCommSetTimeout(comm: cclComm_t, milliseconds: c_int) -> cclResult_t {
    on(comm, |comm| {
        comm.set_timeout(deadline(milliseconds)?);
        Ok(())
    })
}

fn number(value: usize) -> Result<c_int> {
    c_int::try_from(value).map_err(|_| Error::internal(format!("{value} ranks, but an int counted them")))
}
