//! [`DeviceMemory`]: memory of a CUDA device, as its address and its length.

use crate::mem::Region;
use std::ffi::c_void;

/// Memory of a CUDA device, of any allocator.
#[derive(Debug, Clone, Copy)]
pub struct DeviceMemory(Region<'static>);

impl DeviceMemory {
    /// The `bytes` bytes at `at`, which may lie anywhere in an allocation.
    ///
    /// # Safety
    /// Until each operation that is given this memory is over in its stream, it stays allocated and nobody else writes it, nor, where
    /// the operation writes it, reads it.
    ///
    /// # Panics
    /// When so many bytes do not fit behind `at`.
    pub unsafe fn from_raw(at: *mut c_void, bytes: usize) -> Self {
        assert!(
            at.addr().checked_add(bytes).is_some(),
            "{bytes} bytes at {at:p} go past the end of memory"
        );
        // SAFETY: the host does not touch them; for what a device does with them there is the caller's promise.
        DeviceMemory(unsafe { Region::from_raw(at.cast(), bytes) })
    }

    /// Its address.
    #[must_use]
    pub fn as_ptr(&self) -> *mut c_void {
        self.0.as_ptr().cast()
    }

    /// The `bytes` bytes from byte `at` on.
    ///
    /// # Panics
    /// When they do not lie inside.
    #[must_use]
    pub fn part(&self, at: usize, bytes: usize) -> Self {
        DeviceMemory(self.0.part(at, bytes))
    }

    /// Its addresses, which are the device's.
    pub(crate) fn region(self) -> Region<'static> {
        self.0
    }
}
