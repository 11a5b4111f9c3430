//! The operations.

#[cfg(feature = "cuda")]
use super::later::on_device;
use super::{
    at_once,
    later::{self, Collecting, When, is_blocking, is_now, later, when},
    memory::{index, region, region_if_good},
    on_entry,
    types::{cclComm_t, cclDataType_t, cclRedOp_t, cclResult_t, cclStream_t},
};
use crate::{
    comm::{Asked, Size},
    mem::Hold,
    types::{Collective, DType, Op, Result},
};
use std::ffi::{c_int, c_void};

/// What a call from C is, by numbers that may be anything.
#[derive(Clone, Copy)]
pub(super) struct Called {
    /// With 0 for its root.
    collective: Collective,
    root: c_int,
    pub(super) datatype: cclDataType_t,
    /// Of those that reduce.
    pub(super) op: Option<cclRedOp_t>,
}

impl Called {
    #[inline]
    pub(super) fn new(collective: Collective, datatype: cclDataType_t) -> Called {
        Called {
            collective,
            root: 0,
            datatype,
            op: None,
        }
    }

    #[inline]
    pub(super) fn at(self, root: c_int) -> Called {
        Called { root, ..self }
    }

    #[inline]
    pub(super) fn reducing(self, op: cclRedOp_t) -> Called {
        Called { op: Some(op), ..self }
    }

    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a root that is negative.
    pub(super) fn checked(self) -> Result<Collective> {
        // It is not negative.
        let root = index("root", self.root)? as u32;
        Ok(self.collective.at_root(|_| root))
    }

    /// Whether rank `rank` is the root, or there is none.
    #[inline]
    pub(super) fn is_at(self, rank: usize) -> bool {
        self.collective.root().is_none() || usize::try_from(self.root) == Ok(rank)
    }

    /// A call of that size. `None` for numbers that are no call's.
    #[inline(always)] // in the path of each short call
    pub(super) fn asked(self, size: Size<'_>) -> Option<Asked<'_>> {
        let op = self.op.unwrap_or(Op::Sum as c_int);
        Asked::of_numbers(self.collective, size, self.root, (self.datatype, op))
    }
}

/// Runs a collective from `send` to `recv`.
///
/// # Safety
/// The buffers hold the elements that the collective uses on this rank, as [`region`] wants them.
#[inline(always)] // so that each entry point has a path of its own for short calls
unsafe fn run(
    buffers: [*const c_void; 2],
    count: usize,
    called: Called,
    comm: cclComm_t,
    stream: cclStream_t,
) -> cclResult_t {
    if is_now(stream, buffers)
        && let Some(asked) = called.asked(Size::Count(count))
    {
        let regions = |bytes: [usize; 2]| {
            // SAFETY: what cannot be is refused; the rest is the caller's promise, who leaves the buffers alone until
            // the operation is over.
            let region = |k: usize| unsafe { region_if_good(buffers[k], bytes[k]) };
            Some([region(0)?, region(1)?])
        };
        let outcome = at_once(comm, |entry| entry.made.get()?.repeat(&asked, regions));
        if let Some(outcome) = outcome {
            return outcome;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { run_checked(buffers, count, called, comm, stream) }
}

/// The same for a call that is not over at once, or wrong.
///
/// # Safety
/// As for [`run`].
#[inline(never)]
unsafe fn run_checked(
    [send, recv]: [*const c_void; 2],
    count: usize,
    called: Called,
    comm: cclComm_t,
    stream: cclStream_t,
) -> cclResult_t {
    let part = |name, at, len, dtype| {
        if len == 0 {
            return Ok(None);
        }
        // SAFETY: NULL and impossible sizes are refused; the rest is the caller's promise, who leaves the buffers
        // alone until the operation is over.
        unsafe { region(name, at, len, dtype) }.map(Some)
    };
    let parts = |sent, received, dtype| {
        Ok([
            part("sendbuff", send, sent, dtype)?,
            part("recvbuff", recv, received, dtype)?,
        ])
    };
    on_entry(comm, |entry| {
        let comm = entry.communicator()?;
        let dtype = DType::from_number(called.datatype)?;
        let (op, collective) = (entry.reducing(called.op, dtype)?, called.checked()?);
        let held = comm.held(collective, count, dtype)?;
        let [input, output] = parts(held.input.len(), held.output.len(), dtype)?;
        let when = when(stream, [("sendbuff", input), ("recvbuff", output)])?;
        match when {
            When::Now => comm.collective(collective, input, output, count, dtype, op),
            When::Later(None) => {
                comm.check(collective, [input, output], (count, dtype, op))?;
                later::collective(
                    entry,
                    Collecting {
                        collective,
                        memory: [input, output],
                        what: (count, dtype, op),
                    },
                )
            }
            When::Later(stream) => {
                comm.check(collective, [input, output], (count, dtype, op))?;
                let memory = [input, output].map(|region| region.map(Hold::raw));
                later(
                    entry,
                    stream,
                    |_| (),
                    move |comm, start| comm.begin_collective(collective, memory, (count, dtype, op), start),
                )
            }
            #[cfg(feature = "cuda")]
            When::OnDevice(device) => {
                comm.check_on(device, collective, [input, output], (count, dtype, op))?;
                on_device(entry, move |comm| {
                    comm.collective_on(device, collective, [input, output], (count, dtype, op))
                })
            }
        }
    })
}

/// Reduces the `count` elements of `sendbuff` over all ranks and leaves the result in `recvbuff` on every rank.
///
/// All ranks pass the same count, type and operation. In place where sendbuff == recvbuff; any other overlap is an
/// invalid argument. Buffers are memory of the host or of a CUDA device, of any alignment; with a count of 0 they may be NULL.
/// The result has the same bits on every rank; of a NaN the sign and the payload may differ.
///
/// Device memory, which the CUDA driver knows, takes a CUDA stream (NULL is its default one): the call returns at once, and the
/// operation is carried out in the order of the stream, through pinned host memory. When it fails the stream goes on, `recvbuff`
/// holds anything, and cclCommGetAsyncError tells. Ranks that are threads of one process need CUDA streams of their own that do not
/// wait for each other. cclUnhandledCudaError is what the driver refused.
///
/// With CCL_CUDA_DIRECT=on collectives that have a buffer, but for V forms, can be captured into a CUDA graph, by all ranks; all
/// else is a cclInvalidUsage, and the capture goes on. All ranks launch their graphs in one order with their calls, as often as they
/// like; where launches, or launches and calls, of one communicator are in several streams the program has these wait for each
/// other. A launch has no deadline, nor is it checked that the ranks launch the same; when a rank is lost or aborts the graph goes on,
/// with anything in the buffers, and cclCommGetAsyncError tells. No graph is launched once its communicator is destroyed, or that of
/// another rank. That calls differ may be told a little after the streams have gone on. Such calls do not begin together where a group
/// has several of them in one stream: those of several communicators all ranks make there in one order, else the streams wait for each other
/// until the deadline.
///
/// Of ranks that are threads of one process and use one device such a collective returns, where it is not captured, once all ranks
/// have made it and the streams have it; calls before it that go through host memory have then begun. Calls that differ, and ranks that do not come, are its result then, and nothing is carried out;
/// what the streams have is carried out whatever becomes of the communicator, and after it is destroyed. A thread that has several of the ranks makes their
/// calls in a group. The ranks may use any streams, and in a group make calls of several communicators in any order.
///
/// @param count Elements, not bytes.
/// @param stream Of host memory: NULL, the call returns when `recvbuff` is complete; or a stream of cclStreamCreate.
/// @return cclSuccess; cclInvalidArgument before anything moved, with the communicator as good as before; cclRemoteError
/// when a rank was lost, left or aborted, cclTimeout when one stayed silent past the deadline, cclInvalidUsage when the
/// ranks' calls differ; a rank that only sends in its call, or has a count of 0, may be told that as late as by its next call or
/// cclCommFinalize. After these three the communicator is closed, as cclCommGetAsyncError tells, and `recvbuff` holds anything. A
/// cclInvalidUsage of another kind, e.g. after cclCommFinalize, leaves all as it was.
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
    let buffers = [sendbuff, recvbuff.cast_const()];
    let called = Called::new(Collective::AllReduce, datatype).reducing(op);
    // SAFETY: the caller's promise.
    unsafe { run(buffers, count, called, comm, stream) }
}

/// Copies the `count` elements of `sendbuff` on rank `root` into `recvbuff` on every rank, the root included.
///
/// All ranks pass the same count, type and root. Of ranks that name themselves each only sends: that others named another root they
/// may learn as late as in the next call, or when they finalize. `sendbuff` is looked at on the root alone and may be anything
/// elsewhere. In place on the root where sendbuff == recvbuff; any other overlap is an invalid argument. Buffers have
/// any alignment; with a count of 0 they may be NULL.
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
    let buffers = [sendbuff, recvbuff.cast_const()];
    let called = Called::new(Collective::Broadcast { root: 0 }, datatype).at(root);
    // SAFETY: the caller's promise.
    unsafe { run(buffers, count, called, comm, stream) }
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
    let buffers = [buff.cast_const(); 2];
    let called = Called::new(Collective::Broadcast { root: 0 }, datatype).at(root);
    // SAFETY: the caller's promise.
    unsafe { run(buffers, count, called, comm, stream) }
}

/// Reduces the `count` elements of `sendbuff` over all ranks and leaves the result in `recvbuff` on rank `root`.
///
/// All ranks pass the same count, type, operation and root. `recvbuff` is looked at on the root alone and may be anything
/// elsewhere. In place on the root where sendbuff == recvbuff; any other overlap is an invalid argument.
///
/// @param count Elements, not bytes.
/// @param stream NULL: the call returns when `recvbuff` is complete and `sendbuff` may be changed.
/// @return As cclAllReduce.
///
/// # Safety
/// As for cclAllReduce, with the buffers that this rank uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclReduce(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: cclDataType_t,
    op: cclRedOp_t,
    root: c_int,
    comm: cclComm_t,
    stream: cclStream_t,
) -> cclResult_t {
    let buffers = [sendbuff, recvbuff.cast_const()];
    let called = Called::new(Collective::Reduce { root: 0 }, datatype)
        .at(root)
        .reducing(op);
    // SAFETY: the caller's promise.
    unsafe { run(buffers, count, called, comm, stream) }
}

/// Gathers the `sendcount` elements of `sendbuff` of every rank into `recvbuff` on every rank: those of rank r at element
/// r * sendcount.
///
/// All ranks pass the same count and type; `recvbuff` holds sendcount elements for each rank. In place where
/// sendbuff == recvbuff + rank * sendcount; any other overlap is an invalid argument.
///
/// @param sendcount Elements of one rank, not bytes.
/// @param stream NULL: the call returns when `recvbuff` is complete and `sendbuff` may be changed.
/// @return As cclAllReduce.
///
/// # Safety
/// As for cclAllReduce, with the buffers that this rank uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclAllGather(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    sendcount: usize,
    datatype: cclDataType_t,
    comm: cclComm_t,
    stream: cclStream_t,
) -> cclResult_t {
    let buffers = [sendbuff, recvbuff.cast_const()];
    let called = Called::new(Collective::AllGather, datatype);
    // SAFETY: the caller's promise.
    unsafe { run(buffers, sendcount, called, comm, stream) }
}

/// Reduces `sendbuff` over all ranks and leaves in `recvbuff` of rank r the `recvcount` elements of the result from
/// r * recvcount on.
///
/// All ranks pass the same count, type and operation; `sendbuff` holds recvcount elements for each rank. In place where
/// recvbuff == sendbuff + rank * recvcount; any other overlap is an invalid argument.
///
/// @param recvcount Elements of one rank, not bytes.
/// @param stream NULL: the call returns when `recvbuff` is complete and `sendbuff` may be changed.
/// @return As cclAllReduce.
///
/// # Safety
/// As for cclAllReduce, with the buffers that this rank uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclReduceScatter(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    recvcount: usize,
    datatype: cclDataType_t,
    op: cclRedOp_t,
    comm: cclComm_t,
    stream: cclStream_t,
) -> cclResult_t {
    let buffers = [sendbuff, recvbuff.cast_const()];
    let called = Called::new(Collective::ReduceScatter, datatype).reducing(op);
    // SAFETY: the caller's promise.
    unsafe { run(buffers, recvcount, called, comm, stream) }
}

/// Gathers the `count` elements of `sendbuff` of every rank into `recvbuff` on rank `root`: those of rank r at element
/// r * count.
///
/// All ranks pass the same count, type and root; `recvbuff` holds count elements for each rank on the root, and may be
/// anything elsewhere. In place on the root where sendbuff == recvbuff + root * count; any other overlap is an invalid
/// argument.
///
/// @param count Elements of one rank, not bytes.
/// @param stream NULL: the call returns when `recvbuff` is complete and `sendbuff` may be changed.
/// @return As cclAllReduce.
///
/// # Safety
/// As for cclAllReduce, with the buffers that this rank uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclGather(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: cclDataType_t,
    root: c_int,
    comm: cclComm_t,
    stream: cclStream_t,
) -> cclResult_t {
    let buffers = [sendbuff, recvbuff.cast_const()];
    let called = Called::new(Collective::Gather { root: 0 }, datatype).at(root);
    // SAFETY: the caller's promise.
    unsafe { run(buffers, count, called, comm, stream) }
}

/// Copies the `count` elements of `sendbuff` on rank `root` from r * count on into `recvbuff` on rank r, the root included.
///
/// All ranks pass the same count, type and root; `sendbuff` holds count elements for each rank on the root, and may be
/// anything elsewhere. In place on the root where recvbuff == sendbuff + root * count; any other overlap is an invalid
/// argument.
///
/// @param count Elements of one rank, not bytes.
/// @param stream NULL: the call returns when `recvbuff` is complete and `sendbuff` may be changed.
/// @return As cclAllReduce.
///
/// # Safety
/// As for cclAllReduce, with the buffers that this rank uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclScatter(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: cclDataType_t,
    root: c_int,
    comm: cclComm_t,
    stream: cclStream_t,
) -> cclResult_t {
    let buffers = [sendbuff, recvbuff.cast_const()];
    let called = Called::new(Collective::Scatter { root: 0 }, datatype).at(root);
    // SAFETY: the caller's promise.
    unsafe { run(buffers, count, called, comm, stream) }
}

/// Copies the `count` elements of `sendbuff` from r * count on into `recvbuff` of rank r, at the caller's rank * count.
///
/// All ranks pass the same count and type; both buffers hold count elements for each rank. In place where
/// sendbuff == recvbuff; any other overlap is an invalid argument.
///
/// @param count Elements from one rank to another, not bytes.
/// @param stream NULL: the call returns when `recvbuff` is complete and `sendbuff` may be changed.
/// @return As cclAllReduce.
///
/// # Safety
/// As for cclAllReduce, with the buffers that this rank uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclAlltoAll(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: cclDataType_t,
    comm: cclComm_t,
    stream: cclStream_t,
) -> cclResult_t {
    let buffers = [sendbuff, recvbuff.cast_const()];
    let called = Called::new(Collective::AlltoAll, datatype);
    // SAFETY: the caller's promise.
    unsafe { run(buffers, count, called, comm, stream) }
}

/// Returns when every rank has called it.
///
/// @param stream NULL: the call blocks. A CUDA stream, in a process that has loaded its driver: what is in the streams meets.
/// @return As cclAllReduce.
#[unsafe(no_mangle)]
pub extern "C" fn cclBarrier(comm: cclComm_t, stream: cclStream_t) -> cclResult_t {
    if is_blocking(stream)
        && let Some(outcome) = at_once(comm, |entry| entry.made.get()?.repeat_barrier())
    {
        return outcome;
    }
    on_entry(comm, |entry| {
        let made = entry.communicator()?;
        match when(stream, [("sendbuff", None), ("recvbuff", None)])? {
            When::Now => made.barrier(),
            #[cfg(feature = "cuda")]
            When::OnDevice(device) => on_device(entry, move |comm| comm.barrier_on(device)),
            When::Later(stream) => later(entry, stream, |_| (), |comm, start| comm.begin_barrier(start)),
        }
    })
}
