//! The operations.

use super::{
    memory::{blocking, index, region},
    on,
    types::{cclComm_t, cclDataType_t, cclRedOp_t, cclResult_t, cclStream_t},
};
use crate::types::{DType, Op};
use std::ffi::{c_int, c_void};

/// Reduces the `count` elements of `sendbuff` over all ranks and leaves the result in `recvbuff` on every rank.
///
/// All ranks pass the same count, type and operation. In place where sendbuff == recvbuff; any other overlap is an
/// invalid argument. Buffers are host memory of any alignment; with a count of 0 they may be NULL. The result has the
/// same bits on every rank.
///
/// @param count Elements, not bytes.
/// @param stream NULL: the call returns when `recvbuff` is complete.
/// @return cclSuccess; cclInvalidArgument before anything moved, with the communicator as good as before; cclRemoteError
/// when a rank was lost, left or aborted, cclTimeout when one stayed silent past the deadline, cclInvalidUsage when the
/// ranks' calls differ. After these three the communicator is closed and `recvbuff` holds anything.
///
/// # Safety
/// The buffers hold `count` elements each, which nobody else changes, nor in `recvbuff` reads, during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclAllReduce(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: cclDataType_t,
    op: cclRedOp_t,
    comm: cclComm_t,
    stream: cclStream_t,
) -> cclResult_t {
    on(comm, |comm| {
        blocking(stream)?;
        let (dtype, op) = (DType::from_number(datatype)?, Op::from_number(op)?);
        // SAFETY: NULL and impossible sizes are refused; the rest is the caller's promise, and the call below is over
        // with the buffers when it returns.
        let (input, output) = unsafe {
            (
                region("sendbuff", sendbuff, count, dtype)?,
                region("recvbuff", recvbuff, count, dtype)?,
            )
        };
        comm.all_reduce_regions(input, output, count, dtype, op)
    })
}

/// Copies the `count` elements of `sendbuff` on rank `root` into `recvbuff` on every rank, the root included.
///
/// All ranks pass the same count, type and root. `sendbuff` is looked at on the root alone and may be anything
/// elsewhere. In place on the root where sendbuff == recvbuff; any other overlap is an invalid argument. Buffers are
/// host memory of any alignment; with a count of 0 they may be NULL.
///
/// @param count Elements, not bytes.
/// @param stream NULL: the call returns when `recvbuff` is complete and `sendbuff` may be changed.
/// @return As cclAllReduce.
///
/// # Safety
/// As for cclAllReduce; `sendbuff` only on the root.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclBroadcast(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: cclDataType_t,
    root: c_int,
    comm: cclComm_t,
    stream: cclStream_t,
) -> cclResult_t {
    on(comm, |comm| {
        blocking(stream)?;
        let (dtype, root) = (DType::from_number(datatype)?, index("root", root)?);
        let input = match root == comm.rank() {
            // SAFETY: as in `cclAllReduce`.
            true => Some(unsafe { region("sendbuff", sendbuff, count, dtype)? }),
            false => None,
        };
        // SAFETY: as in `cclAllReduce`.
        let output = unsafe { region("recvbuff", recvbuff, count, dtype)? };
        comm.broadcast_regions(input, output, count, dtype, root)
    })
}

/// cclBroadcast in place: `buff` is sent on rank `root` and filled on the others.
///
/// # Safety
/// `buff` holds `count` elements, which nobody else changes during the call, nor, except on the root, reads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclBcast(
    buff: *mut c_void,
    count: usize,
    datatype: cclDataType_t,
    root: c_int,
    comm: cclComm_t,
    stream: cclStream_t,
) -> cclResult_t {
    on(comm, |comm| {
        blocking(stream)?;
        let (dtype, root) = (DType::from_number(datatype)?, index("root", root)?);
        // SAFETY: as in `cclAllReduce`.
        let buff = unsafe { region("buff", buff, count, dtype)? };
        let input = (root == comm.rank()).then_some(buff);
        comm.broadcast_regions(input, buff, count, dtype, root)
    })
}

/// Returns when every rank has called it.
///
/// @param stream NULL: the call blocks.
/// @return As cclAllReduce.
#[unsafe(no_mangle)]
pub extern "C" fn cclBarrier(comm: cclComm_t, stream: cclStream_t) -> cclResult_t {
    on(comm, |comm| {
        blocking(stream)?;
        comm.barrier()
    })
}
