//! [`Allocation`]: memory of a device that the driver gives.

#[cfg(feature = "cli")]
use super::DeviceMemory;
use super::{
    aside,
    driver::{Context, Driver},
    symbols::Address,
};
use crate::{mem::Region, types::Result};
use std::ptr;

/// Memory of a device, until it is dropped. Nothing in a stream may use it then.
pub(crate) struct Allocation {
    driver: &'static Driver,
    context: Context,
    at: Address,
    len: usize,
}

impl Allocation {
    /// `len` bytes on the context's device.
    ///
    /// # Errors
    /// [`Error::Cuda`](crate::Error::Cuda).
    pub(super) fn new(driver: &'static Driver, context: Context, len: usize) -> Result<Self> {
        let _current = driver.enter(context)?;
        let mut at = 0;
        // SAFETY: it writes the address.
        let result = unsafe { (driver.symbols.allocate)(&raw mut at, len.max(1)) };
        driver.checked("cuMemAlloc", result)?;
        Ok(Allocation {
            driver,
            context,
            at,
            len,
        })
    }

    /// Where it begins.
    pub(super) fn address(&self) -> Address {
        self.at
    }

    /// What operations are given of it.
    #[cfg(feature = "cli")]
    pub(crate) fn memory(&self) -> DeviceMemory {
        let at = ptr::without_provenance_mut(self.at as usize);
        // SAFETY: it stays until it is dropped; the rest is the word of who drops it.
        unsafe { DeviceMemory::from_raw(at, self.len) }
    }

    /// Copies `from` to what lies from byte `at` on, at once: all streams find it there.
    ///
    /// # Errors
    /// [`Error::Cuda`](crate::Error::Cuda).
    ///
    /// # Panics
    /// When that is longer.
    pub(crate) fn write(&self, at: usize, from: Region<'_>) -> Result<()> {
        assert!(
            at <= self.len && from.len() <= self.len - at,
            "more than there is room for"
        );
        if from.len() == 0 {
            return Ok(());
        }
        let stream = aside::stream(self.driver, self.context)?;
        let current = self.driver.enter(self.context)?;
        // SAFETY: both are there, and so long, until the stream is through.
        unsafe { current.copy_to_device(stream, self.byte(at), from)? };
        current.synchronize(stream)
    }

    /// Copies what lies from byte `at` on to `to`, at once.
    ///
    /// # Errors
    /// [`Error::Cuda`](crate::Error::Cuda).
    ///
    /// # Panics
    /// When that is longer.
    pub(crate) fn read(&self, at: usize, to: Region<'_>) -> Result<()> {
        assert!(at <= self.len && to.len() <= self.len - at, "more than there is");
        if to.len() == 0 {
            return Ok(());
        }
        let stream = aside::stream(self.driver, self.context)?;
        let current = self.driver.enter(self.context)?;
        // SAFETY: as in `write`.
        unsafe { current.copy_to_host(stream, self.byte(at), to)? };
        current.synchronize(stream)
    }

    /// The address of a byte, which is the device's.
    fn byte(&self, at: usize) -> *const u8 {
        ptr::without_provenance(self.at as usize + at)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Ok(_current) = self.driver.enter(self.context) {
            // SAFETY: it came from the driver, and goes once. What fails is left to the end of the process.
            let _ = unsafe { (self.driver.symbols.free)(self.at) };
        }
    }
}
