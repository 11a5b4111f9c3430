//! [`Driver`]: thin wrappers over NVIDIA's driver, which never panic where it, or a function of it, is missing.

use super::symbols::{self, Address, MemOp, RawContext, RawEvent, RawGraph, RawStream, Symbols};
use crate::{
    mem::Region,
    sys::{attach, fork, loaded},
    types::{Error, Result},
};
use libloading::{Library, os::unix};
use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    fmt,
    marker::PhantomData,
    mem::ManuallyDrop,
    ptr,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Release},
        },
    },
};

/// The driver of this process.
pub(crate) struct Driver {
    pub(super) symbols: Symbols,
    /// Device memory that was used last, as first address and one past the last.
    lately: Mutex<Vec<(u64, u64)>>,
}

/// A stream of a CUDA device: one that the program made, or one of the special ones (NULL, 1, 2).
#[derive(Clone, Copy)]
pub struct Stream(pub(super) RawStream);

// SAFETY: a name by which the driver knows the stream, on any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

/// A context of the driver's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Context(pub(super) RawContext);

// SAFETY: a name by which the driver knows the context, on any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// A context as the calling thread's current one. The one before it is current again afterwards. Meanwhile calls that could not be
/// captured, as such that pin memory, neither fail nor spoil a capture that another thread has begun.
pub(crate) struct Current<'d> {
    driver: &'d Driver,
    context: Context,
    /// How this thread's calls concerned captures before.
    mode: Option<c_int>,
    /// It is this thread's.
    thread: PhantomData<*mut ()>,
}

/// A capture of work into a graph.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Capture {
    /// No two have the same.
    pub(super) id: u64,
    graph: RawGraph,
}

/// What a stream does with a flag, by its [`Current::pin`]ned address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnFlag {
    /// After all that is in the stream: who sees the value sees the rest.
    Write(u64, u32),
    /// Until there is the value, or a later one, counted around.
    Wait(u64, u32),
    /// Until there is just this value, of 64 bits, where the device has that.
    Await(u64, u64),
}

/// A point in a stream that other streams can wait for, once it was recorded.
pub(super) struct Event {
    driver: &'static Driver,
    raw: RawEvent,
}

// SAFETY: a name by which the driver knows the event, on any thread.
unsafe impl Send for Event {}
// SAFETY: as above; the driver may be asked by several at once.
unsafe impl Sync for Event {}

/// Where an address lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Host memory, or none at all.
    Host,
    /// Memory of the device with this number.
    Device(i32),
}

/// Whether the driver was looked for in the libraries that were loaded so far, by the number of loads.
static LOOKED: AtomicU64 = AtomicU64::new(u64::MAX);

/// The driver once it was found, or why it cannot be used.
static DRIVER: OnceLock<Result<Driver, String>> = OnceLock::new();

impl Driver {
    /// The driver, if this process has loaded it: else no address is device memory.
    ///
    /// # Errors
    /// Why the driver that it has loaded cannot be used.
    #[inline]
    pub(crate) fn in_use() -> Option<Result<&'static Driver, &'static str>> {
        if let Some(found) = DRIVER.get() {
            return Some(found.as_ref().map_err(String::as_str));
        }
        // The loader's lock is one that a forked child would find locked for ever.
        let loads = fork::gated(loaded::loads);
        if LOOKED.load(Acquire) == loads {
            return None;
        }
        Driver::look(loads)
    }

    /// Whether a call has found it, whatever it is worth.
    #[inline]
    pub(crate) fn was_found() -> bool {
        DRIVER.get().is_some()
    }

    #[cold]
    fn look(loads: u64) -> Option<Result<&'static Driver, &'static str>> {
        let flags = unix::RTLD_LAZY | libc::RTLD_NOLOAD;
        // SAFETY: it loads nothing that is not loaded.
        let library = unsafe { unix::Library::open(Some(symbols::file()), flags) };
        match library {
            Ok(library) => {
                let found = DRIVER.get_or_init(|| Driver::of(library.into()));
                Some(found.as_ref().map_err(String::as_str))
            }
            Err(_) => {
                LOOKED.store(loads, Release); // pairs with the Acquire in `in_use`
                None
            }
        }
    }

    /// The driver, loaded and begun.
    ///
    /// # Errors
    /// Why there is none, or why it does not work, in a line.
    pub(super) fn load() -> Result<&'static Driver, String> {
        // SAFETY: what its initialisers do is the wish of whoever installed it.
        let library = unsafe { Library::new(symbols::file()) };
        let library = library.map_err(|e| match std::error::Error::source(&e) {
            Some(source) => format!("there is no CUDA driver: {source}"),
            None => format!("there is no CUDA driver: {e}"),
        })?;
        let driver = DRIVER.get_or_init(|| Driver::of(library)).as_ref()?;
        // SAFETY: it takes a number.
        let result = unsafe { (driver.symbols.init)(0) };
        let begun = driver.checked("cuInit", result);
        begun.map_err(|e| format!("the CUDA driver does not work: {e}"))?;
        Ok(driver)
    }

    fn of(library: Library) -> Result<Self, String> {
        // It is never unloaded: it has threads of its own.
        let library = ManuallyDrop::new(library);
        // SAFETY: a library of that name is the driver, or stands in for it.
        let symbols = unsafe { Symbols::find(&library) };
        let symbols = symbols.map_err(|name| {
            format!(
                "the CUDA driver is too old, or none: it has no {name}; one for CUDA 12.2 or later is needed"
            )
        })?;
        Ok(Driver {
            symbols,
            lately: Mutex::default(),
        })
    }

    /// Where the byte at `at` lies. What the driver does not know is host memory, and so is what the host can read where the driver
    /// does not work.
    ///
    /// # Errors
    /// [`Error::Cuda`] where it does not work.
    pub(crate) fn place(&self, at: *const u8) -> Result<Place> {
        let mut attributes = [MEMORY_TYPE, DEVICE_ORDINAL];
        let (mut kind, mut device) = (0 as c_int, -1 as c_int);
        let mut answers = [(&raw mut kind).cast::<c_void>(), (&raw mut device).cast()];
        // SAFETY: two attributes, both of which are written as numbers of 32 bits.
        let result = unsafe {
            (self.symbols.pointer_attributes)(
                2,
                attributes.as_mut_ptr(),
                answers.as_mut_ptr(),
                at.addr() as Address,
            )
        };
        match (result, kind) {
            (SUCCESS, DEVICE_MEMORY | UNIFIED_MEMORY) if device >= 0 => Ok(Place::Device(device)),
            (SUCCESS, _) => Ok(Place::Host),
            // Where the driver has not begun, or has no device, there is no memory of one.
            (NOT_INITIALIZED | DEINITIALIZED | NO_DEVICE, _) => Ok(Place::Host),
            _ if attach::is_mapped(at) => Ok(Place::Host),
            _ => Err(self.failed("cuPointerGetAttributes", result)),
        }
    }

    /// Checks that all `len` bytes at `at` are device memory, be it of several parts that were mapped one after the other, and remembers
    /// that it was.
    ///
    /// # Errors
    /// [`Error::Invalid`] if they are not.
    pub(crate) fn check_range(&self, name: &str, at: *const u8, len: usize) -> Result<()> {
        let at = at.addr() as Address;
        let (mut from, until) = (at, at.saturating_add(len as u64));
        while from < until {
            let (mut base, mut size) = (0, 0);
            // SAFETY: it writes the two.
            let result = unsafe { (self.symbols.address_range)(&raw mut base, &raw mut size, from) };
            let end = base.saturating_add(size as u64);
            if from == at && result != SUCCESS {
                return Ok(()); // the copy tells
            }
            if result != SUCCESS || end <= from {
                return Err(Error::invalid(format!(
                    "{name} has {len} bytes from {at:#x} on, but the device memory there ends after {}",
                    from - at
                )));
            }
            self.remember(base, end);
            from = end;
        }
        Ok(())
    }

    fn remember(&self, base: u64, end: u64) {
        let mut lately = self.lately.lock().unwrap_or_else(PoisonError::into_inner);
        if !lately.contains(&(base, end)) {
            if lately.len() == REMEMBERED {
                lately.remove(0);
            }
            lately.push((base, end));
        }
    }

    /// Whether `at`, which the driver does not know now, lies where device memory lay: it was freed.
    pub(crate) fn was_freed(&self, at: *const u8) -> bool {
        let lately = self.lately.lock().unwrap_or_else(PoisonError::into_inner);
        let address = at.addr() as u64;
        let was_there = lately.iter().any(|&(from, to)| (from..to).contains(&address));
        // The system may have put host memory there since.
        was_there && !attach::is_mapped(at)
    }

    /// The context in which work of `stream` on memory of device `device`, if there is any, is given to the driver: the stream's.
    /// A special stream is the one of the current context, or of the device's primary one.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a stream of another device; [`Error::Cuda`].
    pub(crate) fn context(&self, stream: Stream, device: Option<i32>) -> Result<Context> {
        let mut raw = ptr::null_mut();
        if !stream.is_special() {
            // SAFETY: the caller names a stream; it writes the context.
            let result = unsafe { (self.symbols.stream_context)(stream.0, &raw mut raw) };
            self.checked("cuStreamGetCtx", result)?;
            let (context, Some(device)) = (Context(raw), device) else {
                return Ok(Context(raw));
            };
            let other = self.device_of(context)?;
            if other == device {
                return Ok(context);
            }
            return Err(Error::invalid(format!(
                "the buffers are memory of CUDA device {device}, and the stream is of device {other}: both must be of the same"
            )));
        }
        match (self.current().unwrap_or(None), device) {
            (Some(current), None) => Ok(current),
            (Some(current), Some(device)) if self.device_of(current)? == device => Ok(current),
            _ => self.primary(device.unwrap_or(0)),
        }
    }

    /// This thread's current context.
    pub(crate) fn current(&self) -> Result<Option<Context>> {
        let mut raw = ptr::null_mut();
        // SAFETY: it writes the context.
        let result = unsafe { (self.symbols.current)(&raw mut raw) };
        self.checked("cuCtxGetCurrent", result)?;
        Ok((!raw.is_null()).then_some(Context(raw)))
    }

    /// The PCI address, as sysfs has it, of the device whose context is this thread's current one; `None` if there is no such one.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(crate) fn current_gpu(&self) -> Result<Option<CString>> {
        let Some(current) = self.current()? else {
            return Ok(None);
        };
        self.pci_address(self.device_of(current)?).map(Some)
    }

    /// The PCI address of a device, as sysfs has it.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(super) fn pci_address(&self, device: i32) -> Result<CString> {
        let mut text = [0u8; 32];
        // SAFETY: it writes a text of at most so many bytes, with a zero at the end.
        let result =
            unsafe { (self.symbols.pci_address)(text.as_mut_ptr().cast(), text.len() as c_int, device) };
        self.checked("cuDeviceGetPCIBusId", result)?;
        let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
        let said = text.to_string_lossy();
        in_sysfs(&said).ok_or_else(|| Error::internal(format!("{said:?} is no PCI address")))
    }

    /// The device of a context.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(crate) fn device_of(&self, context: Context) -> Result<i32> {
        let _current = self.enter(context)?;
        let mut device = 0;
        // SAFETY: it writes the number.
        let result = unsafe { (self.symbols.context_device)(&raw mut device) };
        self.checked("cuCtxGetDevice", result).map(|()| device)
    }

    /// A number that no other context of this process has, nor one that is made where this one was destroyed.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(super) fn id_of(&self, context: Context) -> Result<u64> {
        let mut id = 0;
        // SAFETY: it writes the number.
        let result = unsafe { (self.symbols.context_id)(context.0, &raw mut id) };
        self.checked("cuCtxGetId", result).map(|()| id)
    }

    /// The primary context of a device, which stays there from then on.
    pub(super) fn primary(&self, device: i32) -> Result<Context> {
        static RETAINED: Mutex<Vec<(i32, Context)>> = Mutex::new(Vec::new());
        let mut retained = RETAINED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, context)) = retained.iter().find(|(of, _)| *of == device) {
            return Ok(*context);
        }
        let (mut handle, mut raw) = (0, ptr::null_mut());
        // SAFETY: it writes the handle.
        let result = unsafe { (self.symbols.device)(&raw mut handle, device) };
        self.checked("cuDeviceGet", result)?;
        // SAFETY: it writes the context.
        let result = unsafe { (self.symbols.retain_primary)(&raw mut raw, handle) };
        self.checked("cuDevicePrimaryCtxRetain", result)?;
        retained.push((device, Context(raw)));
        Ok(Context(raw))
    }

    /// Makes `context` this thread's current one.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(crate) fn enter(&self, context: Context) -> Result<Current<'_>> {
        // SAFETY: the context came from the driver.
        let result = unsafe { (self.symbols.push)(context.0) };
        self.checked("cuCtxPushCurrent", result)?;
        Ok(Current {
            driver: self,
            context,
            mode: self.set_mode(RELAXED),
            thread: PhantomData,
        })
    }

    /// Has this thread's calls concern captures of others so far: what it was before, where the driver knows that.
    fn set_mode(&self, mut mode: c_int) -> Option<c_int> {
        let exchange = self.symbols.exchange_mode?;
        // SAFETY: it reads the mode, and writes another one there.
        (unsafe { exchange(&raw mut mode) } == SUCCESS).then_some(mode)
    }

    /// # Errors
    /// What the driver says, if it is not that all is well.
    pub(super) fn checked(&self, function: &'static str, result: c_int) -> Result<()> {
        match result {
            SUCCESS => Ok(()),
            _ => Err(self.failed(function, result)),
        }
    }

    /// What the driver says that is no success.
    #[cold]
    fn failed(&self, function: &'static str, result: c_int) -> Error {
        let text = |of: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int| {
            let mut text = ptr::null();
            // SAFETY: it writes the address of a text that stays, or NULL for a number that it does not know.
            let found = unsafe { of(result, &raw mut text) } == SUCCESS && !text.is_null();
            // SAFETY: as above.
            found.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy())
        };
        let name = text(self.symbols.error_name).unwrap_or("an unknown error".into());
        let what = text(self.symbols.error_text).unwrap_or_default();
        Error::Cuda {
            what: format!("{function} failed: {name} ({what})"),
            code: result,
        }
    }
}

impl Current<'_> {
    /// A number that no other context of this process has, nor one that is made where this one was destroyed.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(super) fn id(&self) -> Result<u64> {
        self.driver.id_of(self.context)
    }

    /// What work given to `stream` is captured into, if it is not done.
    ///
    /// # Errors
    /// [`Error::Usage`] for a capture that has become invalid; [`Error::Cuda`].
    pub(crate) fn capture(&self, stream: Stream) -> Result<Option<Capture>> {
        let (mut status, mut id, mut graph) = (0, 0, ptr::null_mut());
        // SAFETY: it writes the three, and gives nothing where the address is NULL.
        let result = unsafe {
            (self.driver.symbols.capture_info)(
                stream.0,
                &raw mut status,
                &raw mut id,
                &raw mut graph,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        self.driver.checked("cuStreamGetCaptureInfo", result)?;
        match status {
            0 => Ok(None),
            1 => Ok(Some(Capture { id, graph })),
            _ => Err(Error::usage(
                "the stream is being captured into a CUDA graph, and the capture has become invalid",
            )),
        }
    }

    /// Keeps `what` for as long as the graph, or one that is made of it, may be launched or runs. It is dropped on a thread that may
    /// not call the driver.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(super) fn keep<T: Send + 'static>(&self, capture: Capture, what: Box<T>) -> Result<()> {
        unsafe extern "C" fn drop_it<T>(what: *mut c_void) {
            // SAFETY: the driver calls it once, with the address that it was given.
            drop(unsafe { Box::from_raw(what.cast::<T>()) });
        }
        let (mut object, what) = (ptr::null_mut(), Box::into_raw(what));
        let symbols = &self.driver.symbols;
        // SAFETY: it writes the object, which has one reference.
        let result =
            unsafe { (symbols.create_object)(&raw mut object, what.cast(), drop_it::<T>, 1, UNSYNCHRONISED) };
        if let Err(error) = self.driver.checked("cuUserObjectCreate", result) {
            // SAFETY: nobody else has it.
            drop(unsafe { Box::from_raw(what) });
            return Err(error);
        }
        // SAFETY: the graph of a capture that goes on, to which the reference is moved.
        let result = unsafe { (symbols.retain_object)(capture.graph, object, 1, MOVED) };
        let retained = self.driver.checked("cuGraphRetainUserObject", result);
        retained.inspect_err(|_| {
            // SAFETY: the reference is still this one's.
            let _ = unsafe { (symbols.release_object)(object, 1) };
        })
    }

    /// A number that no other stream of this process has or had.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(super) fn id_of(&self, stream: Stream) -> Result<u64> {
        let mut id = 0;
        // SAFETY: it takes a stream that is one, and writes the number.
        let result = unsafe { (self.driver.symbols.stream_id)(stream.0, &raw mut id) };
        self.driver.checked("cuStreamGetId", result).map(|()| id)
    }

    /// Has `stream` copy device memory at `from` into `to`.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    ///
    /// # Safety
    /// Both stay until the stream has done so, and nobody else uses `to` meanwhile.
    pub(crate) unsafe fn copy_to_host(&self, stream: Stream, from: *const u8, to: Region<'_>) -> Result<()> {
        let (from, len) = (from.addr() as Address, to.len());
        // SAFETY: the caller's promise.
        let result = unsafe { (self.driver.symbols.to_host)(to.as_ptr().cast(), from, len, stream.0) };
        self.driver.checked("cuMemcpyDtoHAsync", result)
    }

    /// Has `stream` copy `from` into device memory at `to`.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    ///
    /// # Safety
    /// Both stay until the stream has done so, and nobody changes `from` meanwhile.
    pub(crate) unsafe fn copy_to_device(
        &self,
        stream: Stream,
        to: *const u8,
        from: Region<'_>,
    ) -> Result<()> {
        let (to, len) = (to.addr() as Address, from.len());
        // SAFETY: the caller's promise.
        let result = unsafe { (self.driver.symbols.to_device)(to, from.as_ptr().cast(), len, stream.0) };
        self.driver.checked("cuMemcpyHtoDAsync", result)
    }

    /// Has `stream` copy `len` bytes of device memory.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    ///
    /// # Safety
    /// Both stay until the stream has done so, and nobody changes `from` or uses `to` meanwhile.
    pub(crate) unsafe fn copy(&self, stream: Stream, to: u64, from: u64, len: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        let result = unsafe { (self.driver.symbols.copy)(to, from, len, stream.0) };
        self.driver.checked("cuMemcpyDtoDAsync", result)
    }

    /// Has `stream` write `value` after all that is in it: who sees the value sees the rest.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    ///
    /// # Safety
    /// `flag` is a [`Current::pin`]ned address that stays until the stream has done so.
    pub(crate) unsafe fn write_flag(&self, stream: Stream, flag: u64, value: u32) -> Result<()> {
        // SAFETY: the caller's promise.
        let result = unsafe { (self.driver.symbols.write_value)(stream.0, flag, value, 0) };
        self.driver.checked("cuStreamWriteValue32", result)
    }

    /// Has `stream` wait until there is `value`, or a later one, counted around.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    ///
    /// # Safety
    /// As [`Current::write_flag`].
    pub(crate) unsafe fn wait_flag(&self, stream: Stream, flag: u64, value: u32) -> Result<()> {
        // SAFETY: the caller's promise.
        let result = unsafe { (self.driver.symbols.wait_value)(stream.0, flag, value, WAIT_GEQ) };
        self.driver.checked("cuStreamWaitValue32", result)
    }

    /// Has `stream` do all these, in their order.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    ///
    /// # Safety
    /// As [`Current::write_flag`].
    pub(crate) unsafe fn flags(&self, stream: Stream, all: impl Iterator<Item = OnFlag>) -> Result<()> {
        let operation = |one| {
            let (operation, address, value, flags) = match one {
                OnFlag::Wait(address, value) => (WAIT_VALUE, address, value.into(), WAIT_GEQ),
                OnFlag::Write(address, value) => (WRITE_VALUE, address, value.into(), 0),
                OnFlag::Await(address, value) => (WAIT_VALUE_64, address, value, WAIT_EQ),
            };
            MemOp {
                operation,
                address,
                value,
                flags,
                alias: 0,
                rest: 0,
            }
        };
        let mut all: Vec<MemOp> = all.map(operation).collect();
        for some in all.chunks_mut(MOST_AT_ONCE) {
            let count = some.len() as u32;
            // SAFETY: the caller's promise; the driver copies what is to be done.
            let result = unsafe { (self.driver.symbols.batch)(stream.0, count, some.as_mut_ptr(), 0) };
            self.driver.checked("cuStreamBatchMemOp", result)?;
        }
        Ok(())
    }

    /// A new stream, which waits for no other, nor another for it, and stays as long as the process does.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(super) fn new_stream(&self) -> Result<Stream> {
        let mut raw = ptr::null_mut();
        // SAFETY: it writes the stream.
        let result = unsafe { (self.driver.symbols.create_stream)(&raw mut raw, NON_BLOCKING) };
        self.driver.checked("cuStreamCreate", result)?;
        Ok(Stream(raw))
    }

    /// Waits for all that is in `stream`, which is there.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(crate) fn synchronize(&self, stream: Stream) -> Result<()> {
        // SAFETY: it takes a stream, whose maker answers for it.
        let result = unsafe { (self.driver.symbols.synchronize)(stream.0) };
        self.driver.checked("cuStreamSynchronize", result)
    }

    /// Pins host memory, for all contexts, and returns the address by which streams know it.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    ///
    /// # Safety
    /// It stays mapped until it is unpinned.
    pub(crate) unsafe fn pin(&self, memory: Region<'_>) -> Result<u64> {
        let (at, mut address) = (memory.as_ptr().cast::<c_void>(), 0);
        // SAFETY: the caller's promise.
        let result = unsafe { (self.driver.symbols.register)(at, memory.len(), PORTABLE | DEVICE_MAP) };
        self.driver.checked("cuMemHostRegister", result)?;
        // SAFETY: it writes the address.
        let result = unsafe { (self.driver.symbols.device_address)(&raw mut address, at, 0) };
        self.driver
            .checked("cuMemHostGetDevicePointer", result)
            .inspect_err(|_| self.unpin(memory))?;
        Ok(address)
    }

    /// Undoes [`Current::pin`]. What fails is left to the end of the process.
    pub(crate) fn unpin(&self, memory: Region<'_>) {
        // SAFETY: it takes an address that it knows or refuses.
        let _ = unsafe { (self.driver.symbols.unregister)(memory.as_ptr().cast()) };
    }
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        if let Some(mode) = self.mode {
            self.driver.set_mode(mode);
        }
        let mut raw = ptr::null_mut();
        // SAFETY: it takes the context off that `enter` has put on, on this thread. What else can be done if it fails?
        let _ = unsafe { (self.driver.symbols.pop)(&raw mut raw) };
    }
}

impl Event {
    /// In the current context. Nobody has to wait for it before it was recorded.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(super) fn new(current: &Current<'_>, driver: &'static Driver) -> Result<Self> {
        let _ = current; // it belongs to its context
        let mut raw = ptr::null_mut();
        // SAFETY: it writes the event.
        let result = unsafe { (driver.symbols.create_event)(&raw mut raw, WITHOUT_TIME) };
        driver.checked("cuEventCreate", result)?;
        Ok(Event { driver, raw })
    }

    /// Becomes the point after all that is in `stream`, which is of its context.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(super) fn record(&self, stream: Stream) -> Result<()> {
        // SAFETY: both are there.
        let result = unsafe { (self.driver.symbols.record_event)(self.raw, stream.0) };
        self.driver.checked("cuEventRecord", result)
    }

    /// Has `stream` wait for that point.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(super) fn wait(&self, stream: Stream) -> Result<()> {
        // SAFETY: as above.
        let result = unsafe { (self.driver.symbols.wait_event)(stream.0, self.raw, 0) };
        self.driver.checked("cuStreamWaitEvent", result)
    }

    /// Checks that a stream comes to that point, or has. Whether its caller has destroyed the stream meanwhile is the same.
    ///
    /// # Errors
    /// [`Error::Cuda`] if it never will.
    pub(super) fn check(&self, _current: &Current<'_>) -> Result<()> {
        // SAFETY: it is there.
        match unsafe { (self.driver.symbols.query_event)(self.raw) } {
            NOT_READY => Ok(()),
            result => self.driver.checked("cuEventQuery", result),
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: it goes once; what waits for it goes on waiting. What fails is left to the end of the process.
        let _ = unsafe { (self.driver.symbols.destroy_event)(self.raw) };
    }
}

impl Stream {
    /// The stream that CUDA calls so, a `CUstream` or `cudaStream_t`.
    ///
    /// # Safety
    /// It is a stream, or special, for as long as this is used.
    pub unsafe fn from_raw(raw: *mut c_void) -> Self {
        Stream(raw)
    }

    /// Whether it is the default one.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Whether it is one that each context has.
    fn is_special(self) -> bool {
        self.0.addr() <= 2
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CUDA stream {:p}", self.0)
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the CUDA driver")
    }
}

/// A PCI address as sysfs has it: `0000:3b:00.0`.
fn in_sysfs(address: &str) -> Option<CString> {
    let (domain, rest) = address.split_once(':')?;
    let domain = u32::from_str_radix(domain, 16).ok()?;
    CString::new(format!("{domain:04x}:{}", rest.to_ascii_lowercase())).ok()
}

const SUCCESS: c_int = 0;
const NOT_INITIALIZED: c_int = 3;
const DEINITIALIZED: c_int = 4;
const NO_DEVICE: c_int = 100;
const NOT_READY: c_int = 600;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_int = 2;
const MEMORY_TYPE: c_int = 2;
const DEVICE_ORDINAL: c_int = 9;
const DEVICE_MEMORY: c_int = 2;
const UNIFIED_MEMORY: c_int = 4;
const PORTABLE: u32 = 1;
const DEVICE_MAP: u32 = 2;
const WAIT_GEQ: u32 = 0;
const WAIT_EQ: u32 = 1;
const WAIT_VALUE: c_int = 1;
const WRITE_VALUE: c_int = 2;
const WAIT_VALUE_64: c_int = 4;
/// Operations on flags that the driver takes in one call.
const MOST_AT_ONCE: usize = 255;
const WITHOUT_TIME: u32 = 2;
const NON_BLOCKING: u32 = 1;
const UNSYNCHRONISED: u32 = 1;
const MOVED: u32 = 1;
/// Of how many allocations it is remembered that they were device memory.
const REMEMBERED: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_are_as_in_sysfs() {
        let known = |address| in_sysfs(address).map(|text| text.into_string().unwrap());
        assert_eq!(known("0000:3B:00.0").unwrap(), "0000:3b:00.0");
        assert_eq!(known("00000009:01:00.0").unwrap(), "0009:01:00.0");
        assert_eq!(known("10000:E1:1F.7").unwrap(), "10000:e1:1f.7");
        assert_eq!([known(""), known("GPU:0")], [None, None]);
    }
}
