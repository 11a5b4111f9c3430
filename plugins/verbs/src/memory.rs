//! [`Memory`]: what a device may read and write.

use crate::{
    device::Device,
    verbs::{Mr, Verbs},
};
use std::{ffi::c_void, io};

/// `ccl_net_memory`: a registered piece.
pub(crate) struct Memory {
    raw: *mut Mr,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

impl Memory {
    /// Memory for writes, from here and from the other side.
    ///
    /// # Errors
    /// The system's reason, with the limit that is in the way if it is one.
    pub(crate) fn register(device: &Device, address: *mut c_void, len: usize) -> Result<Box<Memory>, String> {
        const LOCAL_AND_REMOTE_WRITE: i32 = 3;
        // SAFETY: the caller's memory, which it deregisters before it frees it.
        let raw = unsafe { (device.verbs.ibv_reg_mr)(device.pd, address, len, LOCAL_AND_REMOTE_WRITE) };
        if raw.is_null() {
            let why = io::Error::last_os_error();
            let mut text = format!("{device}: ibv_reg_mr: {why}");
            if matches!(
                why.raw_os_error(),
                Some(libc::ENOMEM | libc::EAGAIN | libc::EPERM)
            ) {
                // SAFETY: all bytes zero are a value of it, and the call fills it.
                let limit = unsafe {
                    let mut limit: libc::rlimit = std::mem::zeroed();
                    libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit);
                    limit.rlim_cur
                };
                if limit != libc::RLIM_INFINITY {
                    text += &format!(
                        "; the limit of locked memory (RLIMIT_MEMLOCK) is {} KiB: raise it by `ulimit -l unlimited`, \
                         or memlock in /etc/security/limits.conf, or LimitMEMLOCK= of a service",
                        limit / 1024
                    );
                }
            }
            return Err(text);
        }
        // SAFETY: it was just made.
        let (lkey, rkey) = unsafe { ((*raw).lkey, (*raw).rkey) };
        Ok(Box::new(Memory { raw, lkey, rkey }))
    }

    pub(crate) fn deregister(self, verbs: &Verbs) {
        // SAFETY: nothing writes there any more: the connections are gone.
        unsafe { (verbs.ibv_dereg_mr)(self.raw) };
    }
}
