//! `include/ccl_net.h` in Rust. A test compares the two.

use std::ffi::{c_char, c_int, c_void};

pub(super) const VERSION: u32 = 1;
pub(super) const OK: c_int = 0;
pub(super) const AGAIN: c_int = 1;

pub(super) const WRITTEN: u32 = 1;
pub(super) const ARRIVED: u32 = 2;
pub(super) const FAILED: u32 = 3;

/// The id of writes of which `WRITTEN` need not tell.
pub(super) const UNTOLD: u64 = u64::MAX;

/// Bytes of the longest text by which ends are joined.
pub(super) const MAX_BYTES: usize = 256;

/// What a plugin library exports.
pub(super) const SYMBOL: &std::ffi::CStr = c"ccl_net_plugin_v1";

/// `ccl_net_context`, of which nothing is known here.
#[repr(C)]
pub(super) struct RawContext([u8; 0]);
/// `ccl_net_connection`.
#[repr(C)]
pub(super) struct RawConnection([u8; 0]);
/// `ccl_net_memory`.
#[repr(C)]
pub(super) struct RawMemory([u8; 0]);

#[repr(C)]
pub(super) struct ErrorText {
    pub(super) text: *mut c_char,
    pub(super) size: usize,
}

#[repr(C)]
pub(super) struct Host {
    pub(super) size: u32,
    pub(super) rank: u32,
    pub(super) ranks: u32,
    pub(super) log: unsafe extern "C" fn(*const Host, c_int, *const c_char),
    pub(super) gpu: *const c_char,
}

#[repr(C)]
pub(super) struct Device {
    pub(super) name: [u8; 64],
    pub(super) port: u32,
    pub(super) megabits: u32,
    pub(super) numa_node: i32,
    pub(super) max_segments: u32,
    pub(super) max_write: u64,
}

#[repr(C)]
pub(super) struct Setup {
    pub(super) number: u64,
    pub(super) device: u32,
    pub(super) peer: u32,
    pub(super) first: u32,
    pub(super) writes: u32,
    pub(super) arrivals: u32,
}

#[repr(C)]
pub(super) struct Segment {
    pub(super) address: *const c_void,
    pub(super) len: usize,
    pub(super) memory: *mut RawMemory,
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Event {
    pub(super) connection: u64,
    pub(super) id: u64,
    pub(super) kind: u32,
    pub(super) immediate: u32,
}

type Why = *mut ErrorText;

/// The functions that every plugin has.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Functions {
    pub(super) open: unsafe extern "C" fn(*const Host, *mut *mut RawContext, Why) -> c_int,
    pub(super) close: unsafe extern "C" fn(*mut RawContext),
    pub(super) devices: unsafe extern "C" fn(*mut RawContext) -> u32,
    pub(super) device: unsafe extern "C" fn(*mut RawContext, u32, *mut Device, Why) -> c_int,
    pub(super) register: unsafe extern "C" fn(
        *mut RawContext,
        u32,
        *mut c_void,
        usize,
        *mut *mut RawMemory,
        *mut u64,
        Why,
    ) -> c_int,
    pub(super) deregister: unsafe extern "C" fn(*mut RawContext, *mut RawMemory),
    pub(super) create: unsafe extern "C" fn(
        *mut RawContext,
        *const Setup,
        *mut *mut RawConnection,
        *mut u8,
        *mut usize,
        Why,
    ) -> c_int,
    pub(super) join: unsafe extern "C" fn(*mut RawConnection, *const u8, usize, Why) -> c_int,
    pub(super) destroy: unsafe extern "C" fn(*mut RawConnection),
    pub(super) write:
        unsafe extern "C" fn(*mut RawConnection, *const Segment, u32, u64, u64, u32, u64, Why) -> c_int,
    pub(super) poll: unsafe extern "C" fn(*mut RawContext, *mut Event, u32, *mut u32, Why) -> c_int,
    pub(super) describe: unsafe extern "C" fn(*mut RawConnection, *mut c_char, usize),
    pub(super) descriptor: unsafe extern "C" fn(*mut RawContext) -> c_int,
    pub(super) arm: unsafe extern "C" fn(*mut RawContext, Why) -> c_int,
}

/// How many functions there are.
pub(super) const FUNCTIONS: usize = size_of::<Functions>() / size_of::<usize>();

/// Those that came later: a plugin may end before one, or have a null pointer there.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Later {
    pub(super) connections: Option<unsafe extern "C" fn(*mut RawContext) -> u32>,
    pub(super) meet: Option<unsafe extern "C" fn(*mut RawContext, *const u8, usize, *mut u32, Why) -> c_int>,
    pub(super) register_dmabuf: Option<
        unsafe extern "C" fn(
            *mut RawContext,
            u32,
            c_int,
            u64,
            u64,
            usize,
            *mut *mut RawMemory,
            *mut u64,
            Why,
        ) -> c_int,
    >,
}

/// `ccl_net_plugin` as the first ones had it: any pointer may be null.
#[repr(C)]
pub(super) struct Plugin {
    pub(super) size: u32,
    pub(super) version: u32,
    pub(super) name: *const c_char,
    pub(super) about: *const c_char,
    pub(super) functions: [*const c_void; FUNCTIONS],
}

pub(super) type Entry = unsafe extern "C" fn() -> *const Plugin;
