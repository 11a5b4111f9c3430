//! [`Gpu`]: a device with a stream and memory of the program's own, for programs that bring none.

use super::{
    DeviceMemory, Stream,
    driver::{Context, Driver},
    symbols::Address,
};
use crate::{
    mem::Region,
    types::{Error, Result},
};
use std::ptr;

/// A device of this process, and a stream of it that waits for no other.
pub(crate) struct Gpu {
    driver: &'static Driver,
    context: Context,
    stream: Stream,
}

/// Memory of a device, until it is dropped. Nothing in a stream may use it then.
pub(crate) struct Allocation<'g> {
    gpu: &'g Gpu,
    at: Address,
    len: usize,
}

/// The number of devices, 1 or more.
///
/// # Errors
/// Why there is none that can be used, in a line.
pub(crate) fn devices() -> Result<i32, String> {
    counted().map(|(_, count)| count)
}

/// The driver, and the number of its devices.
fn counted() -> Result<(&'static Driver, i32), String> {
    let driver = Driver::load()?;
    let mut count = 0;
    // SAFETY: it writes the number.
    let result = unsafe { (driver.symbols.device_count)(&raw mut count) };
    let counted = driver.checked("cuDeviceGetCount", result);
    counted.map_err(|e| format!("the CUDA driver does not work: {e}"))?;
    match count {
        ..1 => Err("there is a CUDA driver, but no GPU".to_owned()),
        count => Ok((driver, count)),
    }
}

impl Gpu {
    /// The device with this number, counted around.
    ///
    /// # Errors
    /// [`Error::Usage`] where there is none; [`Error::Cuda`].
    pub(crate) fn open(number: usize) -> Result<Self> {
        let (driver, count) = counted().map_err(Error::usage)?;
        // Less than the count, which is no less than 1.
        let context = driver.primary((number % count as usize) as i32)?;
        let current = driver.enter(context)?;
        let mut raw = ptr::null_mut();
        // SAFETY: it writes the stream.
        let result = unsafe { (driver.symbols.create_stream)(&raw mut raw, NON_BLOCKING) };
        drop(current);
        driver.checked("cuStreamCreate", result)?;
        Ok(Gpu {
            driver,
            context,
            stream: Stream(raw),
        })
    }

    /// Its stream, which stays until the process ends.
    pub(crate) fn stream(&self) -> Stream {
        self.stream
    }

    /// Waits for all that is in its stream.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(crate) fn synchronize(&self) -> Result<()> {
        let _current = self.driver.enter(self.context)?;
        // SAFETY: the stream is there.
        let result = unsafe { (self.driver.symbols.synchronize)(self.stream.0) };
        self.driver.checked("cuStreamSynchronize", result)
    }

    /// Memory of `len` bytes.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(crate) fn allocate(&self, len: usize) -> Result<Allocation<'_>> {
        let _current = self.driver.enter(self.context)?;
        let mut at = 0;
        // SAFETY: it writes the address.
        let result = unsafe { (self.driver.symbols.allocate)(&raw mut at, len.max(1)) };
        self.driver.checked("cuMemAlloc", result)?;
        Ok(Allocation { gpu: self, at, len })
    }
}

impl Allocation<'_> {
    /// What operations are given of it.
    pub(crate) fn memory(&self) -> DeviceMemory {
        let at = ptr::without_provenance_mut(self.at as usize);
        // SAFETY: it stays until it is dropped; the rest is the word of who drops it.
        unsafe { DeviceMemory::from_raw(at, self.len) }
    }

    /// Copies `from` to its beginning.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    ///
    /// # Panics
    /// When it is longer.
    pub(crate) fn write(&self, from: Region<'_>) -> Result<()> {
        assert!(from.len() <= self.len, "more than there is room for");
        let driver = self.gpu.driver;
        let _current = driver.enter(self.gpu.context)?;
        // SAFETY: both are there, and so long.
        let result = unsafe { (driver.symbols.write)(self.at, from.as_ptr().cast(), from.len()) };
        driver.checked("cuMemcpyHtoD", result)
    }

    /// Copies its beginning to `to`.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    ///
    /// # Panics
    /// When that is longer.
    pub(crate) fn read(&self, to: Region<'_>) -> Result<()> {
        assert!(to.len() <= self.len, "more than there is");
        let driver = self.gpu.driver;
        let _current = driver.enter(self.gpu.context)?;
        // SAFETY: as in `write`.
        let result = unsafe { (driver.symbols.read)(to.as_ptr().cast(), self.at, to.len()) };
        driver.checked("cuMemcpyDtoH", result)
    }
}

impl Drop for Allocation<'_> {
    fn drop(&mut self) {
        let driver = self.gpu.driver;
        if let Ok(_current) = driver.enter(self.gpu.context) {
            // SAFETY: it came from the driver, and goes once. What fails is left to the end of the process.
            let _ = unsafe { (driver.symbols.free)(self.at) };
        }
    }
}

const NON_BLOCKING: u32 = 1;
