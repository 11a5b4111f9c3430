//! [`Gpu`]: a device with a stream and memory of the program's own, for programs that bring none.

use super::{
    Stream,
    allocation::Allocation,
    devices::{self, counted},
    driver::{Context, Driver},
    queues,
    symbols::RawGraph,
};
use crate::types::{Error, Result};
use std::{
    ffi::{CString, c_int},
    ptr,
};

/// A device of this process, and a stream of it that waits for no other.
pub(crate) struct Gpu {
    driver: &'static Driver,
    context: Context,
    stream: Stream,
}

/// The number of devices, 1 or more.
///
/// # Errors
/// Why there is none that can be used, in a line.
pub(crate) fn devices() -> Result<i32, String> {
    counted().map(|(_, count)| count)
}

/// The PCI address of the device with this number, counted around.
///
/// # Errors
/// [`Error::Usage`] where there is none; [`Error::Cuda`].
pub(crate) fn address(number: usize) -> Result<CString> {
    let (driver, count) = counted().map_err(Error::usage)?;
    driver.pci_address(nth(number, count))
}

/// Makes the device with this number, counted around, the current one of this thread from now on.
///
/// # Errors
/// [`Error::Usage`] where there is none; [`Error::Cuda`].
pub(crate) fn make_current(number: usize) -> Result<()> {
    let (_, count) = counted().map_err(Error::usage)?;
    devices::make_current(nth(number, count))
}

/// The number of a device, counted around their number, which is 1 or more.
fn nth(number: usize, count: i32) -> i32 {
    (number % count as usize) as i32
}

impl Gpu {
    /// The device with this number, counted around.
    ///
    /// # Errors
    /// [`Error::Usage`] where there is none; [`Error::Cuda`].
    pub(crate) fn open(number: usize) -> Result<Self> {
        let (driver, count) = counted().map_err(Error::usage)?;
        let context = driver.primary(nth(number, count))?;
        let current = driver.enter(context)?;
        let stream = current.new_stream()?;
        // What graphs wait for in it, no other waits for meanwhile.
        queues::settle(driver, &current, context, stream)?;
        current.synchronize(stream)?;
        Ok(Gpu {
            driver,
            context,
            stream,
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
        self.driver.enter(self.context)?.synchronize(self.stream)
    }

    /// A graph of what `body` gives to the stream.
    ///
    /// # Errors
    /// What ended `body`; [`Error::Cuda`].
    pub(crate) fn capture(&self, body: impl FnOnce() -> Result<()>) -> Result<Graph<'_>> {
        let symbols = &self.driver.symbols;
        let _current = self.driver.enter(self.context)?;
        // SAFETY: the stream is there.
        let result = unsafe { (symbols.begin_capture)(self.stream.0, OF_THIS_THREAD) };
        self.driver.checked("cuStreamBeginCapture", result)?;
        let given = body();
        let (mut graph, mut launched) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: it writes the graph, if there is one.
        let result = unsafe { (symbols.end_capture)(self.stream.0, &raw mut graph) };
        let ended = self.driver.checked("cuStreamEndCapture", result);
        given.and(ended)?;
        // SAFETY: the graph is there, and is not needed afterwards.
        let result = unsafe { (symbols.instantiate)(&raw mut launched, graph, 0) };
        // SAFETY: as above.
        let _ = unsafe { (symbols.destroy_graph)(graph) };
        self.driver.checked("cuGraphInstantiate", result)?;
        Ok(Graph { gpu: self, launched })
    }

    /// Memory of `len` bytes.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(crate) fn allocate(&self, len: usize) -> Result<Allocation> {
        Allocation::new(self.driver, self.context, len)
    }
}

/// What a stream was given while it was captured.
pub(crate) struct Graph<'g> {
    gpu: &'g Gpu,
    launched: RawGraph,
}

impl Graph<'_> {
    /// Has the stream do all that.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(crate) fn launch(&self) -> Result<()> {
        let driver = self.gpu.driver;
        let _current = driver.enter(self.gpu.context)?;
        // SAFETY: the graph is there, and what it uses: who has captured it answers for that.
        let result = unsafe { (driver.symbols.launch_graph)(self.launched, self.gpu.stream.0) };
        driver.checked("cuGraphLaunch", result)
    }
}

impl Drop for Graph<'_> {
    fn drop(&mut self) {
        // SAFETY: it goes once; the driver keeps what runs until it is over.
        let _ = unsafe { (self.gpu.driver.symbols.destroy_launched)(self.launched) };
    }
}

const OF_THIS_THREAD: c_int = 1;
