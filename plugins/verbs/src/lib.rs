//! InfiniBand and RoCE for ccl: the network plugin `libccl_net_verbs.so` (`include/ccl_net.h`).
//!
//! libibverbs is loaded when the plugin is opened: it is built without rdma-core's headers, and where the library is missing
//! it says so. What is called on the way of data are functions of the device's own table, which no library has by name.

#[expect(
    unreachable_pub,
    reason = "the entry gives a pointer to one, so they are as public as it is"
)]
mod abi;
mod connection;
mod context;
mod device;
mod forks;
mod gid;
mod memory;
mod nearness;
mod settings;
mod verbs;

use abi::{AGAIN, ERROR, ErrorText, Event, Host, OK, Plugin, Segment, Setup};
use connection::{Connection, MOST_SEGMENTS};
use context::Context;
use memory::{Memory, Piece};
use std::{
    ffi::{c_char, c_int, c_void},
    slice,
};

/// # Safety
/// There is room for `size` bytes.
unsafe fn put(text: &str, at: *mut c_char, size: usize) {
    if !at.is_null() && size > 0 {
        let mut len = text.len().min(size - 1);
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        // SAFETY: the caller's promise.
        unsafe {
            at.copy_from_nonoverlapping(text.as_ptr().cast(), len);
            *at.add(len) = 0;
        }
    }
}

/// # Safety
/// The error is null or one of the core's.
unsafe fn answer(result: Result<c_int, String>, error: *mut ErrorText) -> c_int {
    result.unwrap_or_else(|why| {
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(error) = error.as_ref() {
                put(&why, error.text, error.size);
            }
        }
        ERROR
    })
}

// Pointers are as `ccl_net.h` promises: those of contexts, connections and memory were made here, and calls are one at a time.

unsafe extern "C" fn open(host: *const Host, made: *mut *mut Context, error: *mut ErrorText) -> c_int {
    // SAFETY: the contract, above.
    unsafe {
        let opened = Context::open(host).map(|context| {
            *made = Box::into_raw(context);
            OK
        });
        answer(opened, error)
    }
}

unsafe extern "C" fn close(context: *mut Context) {
    // SAFETY: the contract, above.
    drop(unsafe { Box::from_raw(context) });
}

unsafe extern "C" fn devices(context: *mut Context) -> u32 {
    // SAFETY: the contract, above.
    unsafe { &*context }.devices().len() as u32
}

unsafe extern "C" fn device(
    context: *mut Context,
    index: u32,
    to: *mut abi::Device,
    error: *mut ErrorText,
) -> c_int {
    // SAFETY: the contract, above.
    unsafe {
        let found = (*context).device(index).map(|device| {
            let mut name = [0; 64];
            let len = device.name.len().min(63);
            name[..len].copy_from_slice(&device.name.as_bytes()[..len]);
            *to = abi::Device {
                name,
                port: u32::from(device.port),
                megabits: device.megabits,
                numa_node: device.numa_node,
                max_segments: device.max_sge.min(MOST_SEGMENTS as u32),
                max_write: device.max_write,
            };
            OK
        });
        answer(found, error)
    }
}

unsafe extern "C" fn register(
    context: *mut Context,
    device: u32,
    address: *mut c_void,
    len: usize,
    memory: *mut *mut Memory,
    key: *mut u64,
    error: *mut ErrorText,
) -> c_int {
    // SAFETY: the contract, above.
    unsafe {
        let made = (*context)
            .device(device)
            .and_then(|device| Memory::register(device, address, len));
        let made = made.map(|made| {
            *key = u64::from(made.rkey);
            *memory = Box::into_raw(made);
            OK
        });
        answer(made, error)
    }
}

unsafe extern "C" fn deregister(context: *mut Context, memory: *mut Memory) {
    // SAFETY: the contract, above.
    unsafe { Box::from_raw(memory).deregister((*context).verbs()) };
}

unsafe extern "C" fn create(
    context: *mut Context,
    setup: *const Setup,
    connection: *mut *mut Connection,
    bytes: *mut u8,
    len: *mut usize,
    error: *mut ErrorText,
) -> c_int {
    // SAFETY: the contract, above.
    unsafe {
        let made = Connection::create(context, *setup).and_then(|made| match (*made).bytes() {
            Ok(own) if own.len() <= *len => {
                bytes.copy_from_nonoverlapping(own.as_ptr(), own.len());
                *len = own.len();
                (*context).connections.borrow_mut().push(made);
                *connection = made;
                Ok(OK)
            }
            other => {
                Connection::destroy(made);
                Err(other
                    .err()
                    .unwrap_or_else(|| "there is no room for the bytes".to_owned()))
            }
        });
        answer(made, error)
    }
}

unsafe extern "C" fn join(at: *mut Connection, bytes: *const u8, len: usize, error: *mut ErrorText) -> c_int {
    // SAFETY: the contract, above.
    unsafe { answer((*at).join(slice::from_raw_parts(bytes, len)).map(|()| OK), error) }
}

unsafe extern "C" fn destroy(at: *mut Connection) {
    // SAFETY: the contract, above.
    unsafe {
        let context = &*(*at).context;
        context.connections.borrow_mut().retain(|&other| other != at);
        Connection::destroy(at);
    }
}

unsafe extern "C" fn write(
    at: *mut Connection,
    segments: *const Segment,
    count: u32,
    address: u64,
    key: u64,
    immediate: u32,
    id: u64,
    error: *mut ErrorText,
) -> c_int {
    // SAFETY: the contract, above.
    unsafe {
        let segments = match count {
            0 => &[],
            n => slice::from_raw_parts(segments, n as usize),
        };
        match (*at).write(segments, address, key, immediate, id) {
            Ok(posted) => {
                if posted {
                    OK
                } else {
                    AGAIN
                }
            }
            Err(why) => answer(Err(why), error),
        }
    }
}

unsafe extern "C" fn poll(
    context: *mut Context,
    events: *mut Event,
    most: u32,
    count: *mut u32,
    error: *mut ErrorText,
) -> c_int {
    // SAFETY: the contract, above.
    unsafe {
        if let Err(why) = (*context).failure() {
            return answer(Err(why), error);
        }
        let found = (*context).poll(most as usize);
        events.copy_from_nonoverlapping(found.as_ptr(), found.len());
        *count = found.len() as u32;
    }
    OK
}

unsafe extern "C" fn describe(at: *mut Connection, text: *mut c_char, size: usize) {
    // SAFETY: the contract, above.
    unsafe { put((*at).failed.get().map_or("", String::as_str), text, size) };
}

unsafe extern "C" fn descriptor(context: *mut Context) -> c_int {
    // SAFETY: the contract, above.
    unsafe { (*context).epoll }
}

unsafe extern "C" fn arm(context: *mut Context, error: *mut ErrorText) -> c_int {
    // SAFETY: the contract, above.
    unsafe { answer((*context).arm().map(|()| OK), error) }
}

unsafe extern "C" fn connections(context: *mut Context) -> u32 {
    // SAFETY: the contract, above.
    unsafe { &*context }.settings.connections
}

unsafe extern "C" fn meet(
    context: *mut Context,
    bytes: *const u8,
    len: usize,
    device: *mut u32,
    error: *mut ErrorText,
) -> c_int {
    // SAFETY: the contract, above.
    unsafe {
        let met = (*context)
            .meet(slice::from_raw_parts(bytes, len), *device)
            .map(|met| {
                *device = met;
                OK
            });
        answer(met, error)
    }
}

unsafe extern "C" fn register_dmabuf(
    context: *mut Context,
    device: u32,
    fd: c_int,
    offset: u64,
    address: u64,
    len: usize,
    memory: *mut *mut Memory,
    key: *mut u64,
    error: *mut ErrorText,
) -> c_int {
    // SAFETY: the contract, above.
    unsafe {
        let made = (*context).device(device).and_then(|device| {
            Memory::register_dmabuf(
                device,
                &Piece {
                    fd,
                    offset,
                    address,
                    len,
                },
            )
        });
        let made = made.map(|made| {
            *key = u64::from(made.rkey);
            *memory = Box::into_raw(made);
            OK
        });
        answer(made, error)
    }
}

static PLUGIN: Plugin = Plugin {
    size: size_of::<Plugin>() as u32,
    version: abi::VERSION,
    name: c"verbs".as_ptr(),
    about: c"2".as_ptr(),
    open,
    close,
    devices,
    device,
    register,
    deregister,
    create,
    join,
    destroy,
    write,
    poll,
    describe,
    descriptor,
    arm,
    connections,
    meet,
    register_dmabuf,
};

/// What `ccl_net.h` asks of a plugin.
#[unsafe(no_mangle)]
pub extern "C" fn ccl_net_plugin_v1() -> *const Plugin {
    &raw const PLUGIN
}
