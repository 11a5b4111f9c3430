//! The V forms of the operations: blocks whose lengths and places the caller gives.

#[cfg(feature = "cuda")]
use super::later::on_device;
use super::{
    at_once,
    collectives::Called,
    later::{When, is_now, later, when},
    memory::{region, region_if_good},
    on_entry,
    types::{cclComm_t, cclDataType_t, cclRedOp_t, cclResult_t, cclStream_t},
};
use crate::{
    comm::{Side, Size},
    mem::Hold,
    types::{Collective, DType, Error, Result},
};
use std::{
    ffi::{c_int, c_void},
    slice,
    sync::Arc,
};

/// What a call from C sends, or what it receives.
struct Given {
    /// The names of buffer, counts and displacements.
    names: [&'static str; 3],
    buffer: *const c_void,
    blocks: Blocks,
}

enum Blocks {
    /// This rank's own, of so many elements.
    Own(usize),
    /// One for each rank: counts and displacements.
    Each([*const usize; 2]),
}

impl Given {
    fn send(buffer: *const c_void, blocks: Blocks) -> Self {
        Given {
            names: ["sendbuff", "sendcounts", "sdispls"],
            buffer,
            blocks,
        }
    }

    fn recv(buffer: *mut c_void, blocks: Blocks) -> Self {
        Given {
            names: ["recvbuff", "recvcounts", "rdispls"],
            buffer: buffer.cast_const(),
            blocks,
        }
    }

    /// What is given, where it lies. `None` if the arrays must be copied first, or are not there.
    ///
    /// # Safety
    /// As for [`Given::arrays`]; they stay as they are for `'a`.
    unsafe fn lent<'a>(&self, ranks: usize, is_used: bool) -> Option<Side<'a>> {
        match self.blocks {
            Blocks::Own(count) => Some(Side::Own(count)),
            Blocks::Each(_) if !is_used => Some(Side::None),
            Blocks::Each(arrays) if arrays.iter().all(|at| !at.is_null() && at.is_aligned()) => {
                // SAFETY: the caller's promise; they are not NULL and aligned, just checked.
                let [counts, displs] = arrays.map(|at| unsafe { slice::from_raw_parts(at, ranks) });
                Some(Side::Each { counts, displs })
            }
            Blocks::Each(_) => None,
        }
    }

    /// The counts and displacements, where the rank uses them.
    ///
    /// # Safety
    /// Arrays that are used hold an element for each of `ranks` ranks.
    unsafe fn arrays(&self, ranks: usize, is_used: bool) -> Result<[Vec<usize>; 2]> {
        match self.blocks {
            // SAFETY: the caller's promise.
            Blocks::Each([counts, displs]) if is_used => Ok(unsafe {
                [
                    array(self.names[1], counts, ranks)?,
                    array(self.names[2], displs, ranks)?,
                ]
            }),
            _ => Ok(Default::default()),
        }
    }
}

impl Blocks {
    fn side<'a>(&self, [counts, displs]: &'a [Vec<usize>; 2]) -> Side<'a> {
        match *self {
            Blocks::Own(count) => Side::Own(count),
            Blocks::Each(_) => Side::Each { counts, displs },
        }
    }
}

/// A copy of the `len` elements at `at`, which `name` names.
///
/// # Safety
/// They are readable.
unsafe fn array(name: &str, at: *const usize, len: usize) -> Result<Vec<usize>> {
    if at.is_null() {
        return Err(Error::invalid(format!(
            "{name} is NULL: it must have an element for each of {len} ranks"
        )));
    }
    // SAFETY: the caller's promise; any alignment will do.
    Ok((0..len)
        .map(|i| unsafe { at.wrapping_add(i).read_unaligned() })
        .collect())
}

/// Runs a V form.
///
/// # Safety
/// Buffers hold the blocks that this rank uses, as [`region`] wants them, and arrays that it uses an element for each rank.
unsafe fn run([send, recv]: [Given; 2], called: Called, comm: cclComm_t, stream: cclStream_t) -> cclResult_t {
    let at = |given: &Given, count, dtype| {
        // SAFETY: NULL and impossible sizes are refused; the rest is the caller's promise, who leaves the buffers alone
        // until the operation is over.
        unsafe { region(given.names[0], given.buffer, count, dtype) }
    };
    if is_now(stream, [send.buffer, recv.buffer]) {
        let outcome = at_once(comm, |entry| {
            let comm = entry.made.get()?;
            let (is_root, ranks) = (called.is_at(comm.rank()), comm.ranks());
            // SAFETY: the caller's promise.
            let sides = unsafe { [send.lent(ranks, is_root)?, recv.lent(ranks, is_root)?] };
            let buffers = |[sent, received]: [usize; 2]| {
                // SAFETY: what cannot be is refused; the rest is the caller's promise, who leaves the buffers alone until
                // the operation is over.
                let region = |given: &Given, bytes| unsafe { region_if_good(given.buffer, bytes) };
                Some([region(&send, sent)?, region(&recv, received)?])
            };
            comm.repeat(&called.asked(Size::Given(sides))?, buffers)
        });
        if let Some(outcome) = outcome {
            return outcome;
        }
    }
    on_entry(comm, |entry| {
        let comm = entry.communicator()?;
        let dtype = DType::from_number(called.datatype)?;
        let (op, collective) = (entry.reducing(called.op, dtype)?, called.checked()?);
        let (is_root, ranks) = (called.is_at(comm.rank()), comm.ranks());
        // SAFETY: the caller's promise.
        let arrays = unsafe { [send.arrays(ranks, is_root)?, recv.arrays(ranks, is_root)?] };
        let sides = [send.blocks.side(&arrays[0]), recv.blocks.side(&arrays[1])];
        let blocks = comm.given(collective, sides, dtype)?;
        let memory = [
            at(&send, blocks.span(0), dtype)?,
            at(&recv, blocks.span(1), dtype)?,
        ];
        let [input, output] = memory.map(Some);
        match when(stream, [("sendbuff", input), ("recvbuff", output)])? {
            #[cfg(feature = "cuda")]
            When::OnDevice(device) => {
                comm.check_given(collective, &blocks, memory, (dtype, op))?;
                on_device(entry, move |comm| {
                    comm.given_on(device, collective, Arc::clone(&blocks), memory, (dtype, op))
                })
            }
            When::Now => comm.run_given(collective, blocks, memory, dtype, op),
            When::Later(stream) => {
                comm.check_given(collective, &blocks, memory, (dtype, op))?;
                let memory = memory.map(Hold::raw);
                later(
                    entry,
                    stream,
                    |_| (),
                    move |comm, start| {
                        comm.begin_given(collective, Arc::clone(&blocks), memory, (dtype, op), start)
                    },
                )
            }
        }
    })
}

/// Copies `sendcounts[r]` elements of `sendbuff` from `sdispls[r]` on to rank r, and what rank r has for this one into
/// `recvbuff`: `recvcounts[r]` elements from `rdispls[r]` on.
///
/// `sendcounts[b]` on rank a and `recvcounts[a]` on rank b are the same. Blocks lie in any order and with gaps, which stay
/// untouched (but those of a side in device memory, with the gaps between them, lie in one allocation); those of `recvbuff` do not overlap. There is no form in place: no block that is received may overlap one that is
/// sent. Counts and displacements are elements, not bytes; the arrays have an element for each rank and are read during the
/// call. The displacement of a block without elements is not looked at.
///
/// @param stream NULL: the call returns when `recvbuff` is complete and `sendbuff` may be changed.
/// @return As cclAllReduce. Ranks whose counts for each other differ have made calls that differ; some may hear of it only from
/// their next call.
///
/// # Safety
/// As for cclAllReduce, with the elements of the blocks; the arrays hold an element for each rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclAlltoAllV(
    sendbuff: *const c_void,
    sendcounts: *const usize,
    sdispls: *const usize,
    recvbuff: *mut c_void,
    recvcounts: *const usize,
    rdispls: *const usize,
    datatype: cclDataType_t,
    comm: cclComm_t,
    stream: cclStream_t,
) -> cclResult_t {
    let given = [
        Given::send(sendbuff, Blocks::Each([sendcounts, sdispls])),
        Given::recv(recvbuff, Blocks::Each([recvcounts, rdispls])),
    ];
    // SAFETY: the caller's promise.
    unsafe { run(given, Called::new(Collective::AlltoAllV, datatype), comm, stream) }
}

/// Gathers the `sendcount` elements of `sendbuff` of every rank into `recvbuff` on every rank: those of rank r are the
/// `recvcounts[r]` elements from `rdispls[r]` on.
///
/// All ranks pass the same counts, each its own displacements; sendcount is the rank's own recvcounts[rank]. In place where
/// sendbuff == recvbuff + rdispls[rank]; any other overlap is an invalid argument. Blocks and arrays are as in cclAlltoAllV.
///
/// @param stream NULL: the call returns when `recvbuff` is complete and `sendbuff` may be changed.
/// @return As cclAlltoAllV.
///
/// # Safety
/// As for cclAlltoAllV.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclAllGatherV(
    sendbuff: *const c_void,
    sendcount: usize,
    recvbuff: *mut c_void,
    recvcounts: *const usize,
    rdispls: *const usize,
    datatype: cclDataType_t,
    comm: cclComm_t,
    stream: cclStream_t,
) -> cclResult_t {
    let given = [
        Given::send(sendbuff, Blocks::Own(sendcount)),
        Given::recv(recvbuff, Blocks::Each([recvcounts, rdispls])),
    ];
    // SAFETY: the caller's promise.
    unsafe { run(given, Called::new(Collective::AllGatherV, datatype), comm, stream) }
}

/// Reduces over all ranks the `sendcounts[r]` elements of `sendbuff` from `sdispls[r]` on, and leaves the result in `recvbuff`
/// of rank r.
///
/// All ranks pass the same counts, type and operation, each its own displacements; recvcount is the rank's own
/// sendcounts[rank]. In place where recvbuff == sendbuff + sdispls[rank]; any other overlap is an invalid argument. Blocks and
/// arrays are as in cclAlltoAllV.
///
/// @param stream NULL: the call returns when `recvbuff` is complete and `sendbuff` may be changed.
/// @return As cclAlltoAllV.
///
/// # Safety
/// As for cclAlltoAllV.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclReduceScatterV(
    sendbuff: *const c_void,
    sendcounts: *const usize,
    sdispls: *const usize,
    recvbuff: *mut c_void,
    recvcount: usize,
    datatype: cclDataType_t,
    op: cclRedOp_t,
    comm: cclComm_t,
    stream: cclStream_t,
) -> cclResult_t {
    let given = [
        Given::send(sendbuff, Blocks::Each([sendcounts, sdispls])),
        Given::recv(recvbuff, Blocks::Own(recvcount)),
    ];
    let called = Called::new(Collective::ReduceScatterV, datatype).reducing(op);
    // SAFETY: the caller's promise.
    unsafe { run(given, called, comm, stream) }
}

/// Gathers the `sendcount` elements of `sendbuff` of every rank into `recvbuff` on rank `root`: those of rank r are the
/// `recvcounts[r]` elements from `rdispls[r]` on.
///
/// All ranks pass the same type and root; `recvbuff` and the arrays are looked at on the root alone and may be anything
/// elsewhere. recvcounts[r] is the sendcount of rank r. In place on the root where sendbuff == recvbuff + rdispls[root]; any
/// other overlap is an invalid argument. Blocks and arrays are as in cclAlltoAllV.
///
/// @param stream NULL: the call returns when `recvbuff` is complete and `sendbuff` may be changed.
/// @return As cclAlltoAllV.
///
/// # Safety
/// As for cclAlltoAllV, with what this rank uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclGatherV(
    sendbuff: *const c_void,
    sendcount: usize,
    recvbuff: *mut c_void,
    recvcounts: *const usize,
    rdispls: *const usize,
    datatype: cclDataType_t,
    root: c_int,
    comm: cclComm_t,
    stream: cclStream_t,
) -> cclResult_t {
    let given = [
        Given::send(sendbuff, Blocks::Own(sendcount)),
        Given::recv(recvbuff, Blocks::Each([recvcounts, rdispls])),
    ];
    let called = Called::new(Collective::GatherV { root: 0 }, datatype).at(root);
    // SAFETY: the caller's promise.
    unsafe { run(given, called, comm, stream) }
}

/// Copies the `sendcounts[r]` elements of `sendbuff` on rank `root` from `sdispls[r]` on into `recvbuff` on rank r, the root
/// included.
///
/// All ranks pass the same type and root; `sendbuff` and the arrays are looked at on the root alone and may be anything
/// elsewhere. sendcounts[r] is the recvcount of rank r. In place on the root where recvbuff == sendbuff + sdispls[root]; any
/// other overlap is an invalid argument. Blocks and arrays are as in cclAlltoAllV.
///
/// @param stream NULL: the call returns when `recvbuff` is complete and `sendbuff` may be changed.
/// @return As cclAlltoAllV.
///
/// # Safety
/// As for cclAlltoAllV, with what this rank uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclScatterV(
    sendbuff: *const c_void,
    sendcounts: *const usize,
    sdispls: *const usize,
    recvbuff: *mut c_void,
    recvcount: usize,
    datatype: cclDataType_t,
    root: c_int,
    comm: cclComm_t,
    stream: cclStream_t,
) -> cclResult_t {
    let given = [
        Given::send(sendbuff, Blocks::Each([sendcounts, sdispls])),
        Given::recv(recvbuff, Blocks::Own(recvcount)),
    ];
    let called = Called::new(Collective::ScatterV { root: 0 }, datatype).at(root);
    // SAFETY: the caller's promise.
    unsafe { run(given, called, comm, stream) }
}
