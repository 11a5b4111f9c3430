//! `include/ccl_net.h` in Rust, as a plugin needs it.

use crate::{connection::Connection, context::Context, memory::Memory};
use std::{
    ffi::{CStr, c_char, c_int, c_void},
    mem::offset_of,
};

pub(crate) const VERSION: u32 = 1;
pub(crate) const OK: c_int = 0;
pub(crate) const AGAIN: c_int = 1;
pub(crate) const ERROR: c_int = 2;

pub(crate) const WRITTEN: u32 = 1;
pub(crate) const ARRIVED: u32 = 2;
pub(crate) const FAILED: u32 = 3;

/// `CCL_NET_UNTOLD`.
pub(crate) const UNTOLD: u64 = u64::MAX;

/// `ccl_net_error`.
#[repr(C)]
pub struct ErrorText {
    pub(crate) text: *mut c_char,
    pub(crate) size: usize,
}

/// `ccl_net_host`.
#[repr(C)]
pub struct Host {
    pub(crate) size: u32,
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    pub(crate) log: unsafe extern "C" fn(*const Host, c_int, *const c_char),
    /// Not there in older cores: [`Host::gpu`].
    gpu: *const c_char,
}

impl Host {
    /// The PCI address of the GPU that the rank works with.
    ///
    /// # Safety
    /// The host is as long as it says, and so is what it names.
    pub(crate) unsafe fn gpu(this: *const Host) -> Option<String> {
        // SAFETY: the caller's promise. The field is looked at only if it is there.
        unsafe {
            let has_it = (*this).size as usize >= offset_of!(Host, gpu) + size_of::<*const c_char>();
            let gpu = if has_it { (*this).gpu } else { return None };
            (!gpu.is_null()).then(|| CStr::from_ptr(gpu).to_string_lossy().into_owned())
        }
    }
}

/// `ccl_net_device`.
#[repr(C)]
pub struct Device {
    pub(crate) name: [u8; 64],
    pub(crate) port: u32,
    pub(crate) megabits: u32,
    pub(crate) numa_node: i32,
    pub(crate) max_segments: u32,
    pub(crate) max_write: u64,
}

/// `ccl_net_setup`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Setup {
    pub(crate) number: u64,
    pub(crate) device: u32,
    pub(crate) peer: u32,
    pub(crate) first: u32,
    pub(crate) writes: u32,
    pub(crate) arrivals: u32,
}

/// `ccl_net_segment`.
#[repr(C)]
pub struct Segment {
    pub(crate) address: *const c_void,
    pub(crate) len: usize,
    pub(crate) memory: *mut Memory,
}

/// `ccl_net_event`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Event {
    pub(crate) connection: u64,
    pub(crate) id: u64,
    pub(crate) kind: u32,
    pub(crate) immediate: u32,
}

type Why = *mut ErrorText;

/// `ccl_net_plugin`.
#[repr(C)]
pub struct Plugin {
    pub(crate) size: u32,
    pub(crate) version: u32,
    pub(crate) name: *const c_char,
    pub(crate) about: *const c_char,
    pub(crate) open: unsafe extern "C" fn(*const Host, *mut *mut Context, Why) -> c_int,
    pub(crate) close: unsafe extern "C" fn(*mut Context),
    pub(crate) devices: unsafe extern "C" fn(*mut Context) -> u32,
    pub(crate) device: unsafe extern "C" fn(*mut Context, u32, *mut Device, Why) -> c_int,
    pub(crate) register:
        unsafe extern "C" fn(*mut Context, u32, *mut c_void, usize, *mut *mut Memory, *mut u64, Why) -> c_int,
    pub(crate) deregister: unsafe extern "C" fn(*mut Context, *mut Memory),
    pub(crate) create: unsafe extern "C" fn(
        *mut Context,
        *const Setup,
        *mut *mut Connection,
        *mut u8,
        *mut usize,
        Why,
    ) -> c_int,
    pub(crate) join: unsafe extern "C" fn(*mut Connection, *const u8, usize, Why) -> c_int,
    pub(crate) destroy: unsafe extern "C" fn(*mut Connection),
    pub(crate) write:
        unsafe extern "C" fn(*mut Connection, *const Segment, u32, u64, u64, u32, u64, Why) -> c_int,
    pub(crate) poll: unsafe extern "C" fn(*mut Context, *mut Event, u32, *mut u32, Why) -> c_int,
    pub(crate) describe: unsafe extern "C" fn(*mut Connection, *mut c_char, usize),
    pub(crate) descriptor: unsafe extern "C" fn(*mut Context) -> c_int,
    pub(crate) arm: unsafe extern "C" fn(*mut Context, Why) -> c_int,
    pub(crate) connections: unsafe extern "C" fn(*mut Context) -> u32,
    pub(crate) meet: unsafe extern "C" fn(*mut Context, *const u8, usize, *mut u32, Why) -> c_int,
    pub(crate) register_dmabuf: unsafe extern "C" fn(
        *mut Context,
        u32,
        c_int,
        u64,
        u64,
        usize,
        *mut *mut Memory,
        *mut u64,
        Why,
    ) -> c_int,
}

// SAFETY: its texts are constants.
unsafe impl Sync for Plugin {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_host_names_no_gpu() {
        unsafe extern "C" fn log(_: *const Host, _: c_int, _: *const c_char) {}
        let gpu = |size, gpu: *const c_char| {
            let (rank, ranks) = (0, 1);
            let host = Host {
                size,
                rank,
                ranks,
                log,
                gpu,
            };
            // SAFETY: it is as long as it says or longer, and the text is a constant.
            unsafe { Host::gpu(&host) }
        };
        let (whole, text) = (size_of::<Host>() as u32, c"0000:3b:00.0".as_ptr());
        assert_eq!(gpu(whole, text).as_deref(), Some("0000:3b:00.0"));
        assert_eq!(gpu(whole, std::ptr::null()), None);
        assert_eq!(gpu(offset_of!(Host, gpu) as u32, text), None);
    }
}
