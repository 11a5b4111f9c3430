//! Messages between two ranks.

#[cfg(feature = "cuda")]
use super::later::on_device;
use super::{
    Entry,
    later::{FromC, When, later, message, told, when},
    memory::{index, region},
    on_entry,
    types::{CCL_ANY_SOURCE, CCL_ANY_TAG, cclComm_t, cclDataType_t, cclRecvInfo_t, cclResult_t, cclStream_t},
};
use crate::{
    exec::{Message, Received, Wanted},
    mem::{Hold, Region},
    types::{DType, Result},
};
use std::{
    ffi::{c_int, c_void},
    ptr,
    sync::Arc,
};

/// Sends the `count` elements of `sendbuff` to rank `peer`, which calls cclRecv with the same count and type.
///
/// Messages to one rank arrive in the order in which they begin: in that of the calls, but in a stream not before what is in it ahead
/// of them, so that those of different streams may pass each other. It may return before the message was received: up to 8 KiB travel
/// ahead, 32 messages or more, once the receiver is in a call of this communicator. To itself a rank sends in a group, and there receives, too, or in
/// another stream than that in which it receives; outside groups neither may be NULL, which is an invalid usage.
///
/// @param count Elements, not bytes. May be 0; then `sendbuff` may be NULL.
/// @param stream NULL: the call returns when `sendbuff` may be changed. A CUDA stream waits for no receiver.
/// @return As cclAllReduce; a receive of another count or type is a call that differs.
///
/// # Safety
/// `sendbuff` holds `count` elements, which nobody changes until the operation is over.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclSend(
    sendbuff: *const c_void,
    count: usize,
    datatype: cclDataType_t,
    peer: c_int,
    comm: cclComm_t,
    stream: cclStream_t,
) -> cclResult_t {
    // SAFETY: the caller's promise.
    unsafe { send(sendbuff, count, datatype, (peer, 0), comm, stream) }
}

/// cclSend with a tag of 0 or more, by which the receiver can tell messages apart. cclSend's have tag 0.
///
/// # Safety
/// As for cclSend.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclSendTag(
    sendbuff: *const c_void,
    count: usize,
    datatype: cclDataType_t,
    peer: c_int,
    tag: c_int,
    comm: cclComm_t,
    stream: cclStream_t,
) -> cclResult_t {
    // SAFETY: the caller's promise.
    unsafe { send(sendbuff, count, datatype, (peer, tag), comm, stream) }
}

/// Receives the `count` elements that rank `peer` sends with cclSend into `recvbuff`.
///
/// @param count Elements, not bytes: as many as are sent. May be 0; then `recvbuff` may be NULL.
/// @param stream NULL: the call returns when `recvbuff` is complete.
/// @return As cclSend.
///
/// # Safety
/// `recvbuff` has room for `count` elements, which nobody uses until the operation is over.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclRecv(
    recvbuff: *mut c_void,
    count: usize,
    datatype: cclDataType_t,
    peer: c_int,
    comm: cclComm_t,
    stream: cclStream_t,
) -> cclResult_t {
    let wanted = |dtype| Ok(Wanted::exactly(index("peer", peer)?, dtype));
    // SAFETY: the caller's promise.
    unsafe { receive(recvbuff, count, datatype, wanted, ptr::null_mut(), comm, stream) }
}

/// Receives a message of at most `count` elements, from rank `peer` or CCL_ANY_SOURCE, with tag `tag` or CCL_ANY_TAG.
///
/// A message goes to the first receive, in the order in which they begin (see cclSend), that takes its sender and its tag.
///
/// @param count Elements that `recvbuff` has room for. A longer message is a call that differs.
/// @param info What came: sender, tag and count. May be NULL. It is written when the operation is over.
/// @return As cclSend.
///
/// # Safety
/// As for cclRecv; `info` is NULL or may be written until the operation is over.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclRecvTag(
    recvbuff: *mut c_void,
    count: usize,
    datatype: cclDataType_t,
    peer: c_int,
    tag: c_int,
    info: *mut cclRecvInfo_t,
    comm: cclComm_t,
    stream: cclStream_t,
) -> cclResult_t {
    let wanted = |dtype| {
        Ok(Wanted {
            from: match peer {
                CCL_ANY_SOURCE => None,
                peer => Some(index("peer", peer)?),
            },
            tag: (tag != CCL_ANY_TAG).then_some(tag),
            dtype,
            exact: false,
        })
    };
    // SAFETY: the caller's promise.
    unsafe { receive(recvbuff, count, datatype, wanted, info, comm, stream) }
}

/// # Safety
/// As for cclSend.
unsafe fn send(
    sendbuff: *const c_void,
    count: usize,
    datatype: cclDataType_t,
    (peer, tag): (c_int, c_int),
    comm: cclComm_t,
    stream: cclStream_t,
) -> cclResult_t {
    on_entry(comm, |entry| {
        let dtype = DType::from_number(datatype)?;
        let to = index("peer", peer)?;
        // SAFETY: NULL and impossible sizes are refused; the rest is the caller's promise.
        let data = unsafe { region("sendbuff", sendbuff, count, dtype)? };
        entry.communicator()?.check_message(Some(to), Some(tag))?;
        match when(stream, [("sendbuff", Some(data)), ("recvbuff", None)])? {
            #[cfg(feature = "cuda")]
            When::OnDevice(device) => {
                on_device(entry, move |comm| comm.send_on(device, data, dtype, (to, tag)))
            }
            When::Now => entry.communicator()?.send_now(data, dtype, to, tag),
            When::Later(None) => message(entry, Message::Send { to, tag, dtype, data }, None),
            When::Later(stream) => later(
                entry,
                stream,
                |_| (),
                move |comm, start| comm.begin_send(Hold::raw(data), dtype, (to, tag), start),
            ),
        }
    })
}

/// # Safety
/// As for cclRecvTag.
unsafe fn receive(
    recvbuff: *mut c_void,
    count: usize,
    datatype: cclDataType_t,
    wanted: impl FnOnce(DType) -> Result<Wanted>,
    info: *mut cclRecvInfo_t,
    comm: cclComm_t,
    stream: cclStream_t,
) -> cclResult_t {
    let (info, is_told) = (FromC(info), !info.is_null());
    let tell = move |received: Received| {
        // A rank and a count of elements that were received.
        let told = cclRecvInfo_t {
            source: received.source as c_int,
            tag: received.tag,
            count: received.count,
        };
        // SAFETY: the caller's promise.
        unsafe { info.put(told) };
    };
    let take = move |entry: &Arc<Entry>| {
        let dtype = DType::from_number(datatype)?;
        let wanted = wanted(dtype)?;
        // SAFETY: as in `send`.
        let data: Region<'static> = unsafe { region("recvbuff", recvbuff, count, dtype)? };
        entry.communicator()?.check_message(wanted.from, wanted.tag)?;
        let when = when(stream, [("sendbuff", None), ("recvbuff", Some(data))])?;
        match when {
            #[cfg(feature = "cuda")]
            When::OnDevice(device) => on_device(entry, move |comm| {
                comm.receive_on(device, data, wanted, told(tell))
            }),
            When::Now => entry.communicator()?.receive_now(data, wanted).map(tell),
            When::Later(None) => {
                let tell = is_told.then(|| Box::new(tell) as _);
                message(
                    entry,
                    Message::Receive {
                        wanted,
                        data,
                        got: None,
                    },
                    tell,
                )
            }
            When::Later(stream) => later(entry, stream, told(tell), move |comm, start| {
                comm.begin_receive(Hold::raw(data), wanted, start)
            }),
        }
    };
    on_entry(comm, take)
}
