//! [`Loaded`]: the kernels in a context, loaded once for all communicators of the process.

use super::{
    by_context::ByContext,
    driver::{Context, Current, Driver, Stream},
    kernels::{Kernel, THREADS, args::Launch, blocks, image::Image},
    symbols::{RawFunction, RawModule},
};
use crate::types::{Error, Result};
use std::{
    collections::HashMap,
    ffi::{CString, c_int, c_void},
    ptr,
    sync::Arc,
};

/// All kernels, and what of the device decides how they are launched.
pub(super) struct Loaded {
    driver: &'static Driver,
    functions: HashMap<Kernel, Function>,
    multiprocessors: u32,
    /// Whether streams write words of 64 bits.
    pub(super) writes_long: bool,
}

/// A kernel that was loaded.
struct Function(RawFunction);

// SAFETY: a name by which the driver knows the function, on any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// What was loaded stays as long as the context does.
static ALL: ByContext<Arc<Loaded>> = ByContext::new();

impl Loaded {
    /// Those of this context, which is the current one.
    ///
    /// # Errors
    /// [`Error::Cuda`]; [`Error::Usage`] of a device for which there are none.
    pub(super) fn of(driver: &'static Driver, context: Context) -> Result<Arc<Self>> {
        ALL.of(driver, context, || Loaded::new(driver, context).map(Arc::new))
    }

    /// Loads all, because to load them later waits for what runs: for streams that may wait for what is to be launched.
    fn new(driver: &'static Driver, context: Context) -> Result<Self> {
        let device = driver.device_of(context)?;
        let attribute = |which| {
            let mut value = 0;
            // SAFETY: it writes the number.
            let result = unsafe { (driver.symbols.attribute)(&raw mut value, which, device) };
            driver.checked("cuDeviceGetAttribute", result)?;
            Ok::<_, Error>(u32::try_from(value).unwrap_or(0))
        };
        let (multiprocessors, writes_long) = (attribute(MULTIPROCESSORS)?, attribute(WRITES_64_BITS)? != 0);
        let image = Image::for_capability(attribute(MAJOR)?, attribute(MINOR)?)?.unpacked()?;
        let module = Module::new(driver, &image)?;
        let mut functions = HashMap::new();
        for kernel in Kernel::all() {
            let name =
                CString::new(kernel.name()).map_err(|_| Error::internal("a kernel's name has a NUL"))?;
            let mut function = ptr::null_mut();
            // SAFETY: it writes the function, which stays as long as the module: always.
            let result = unsafe { (driver.symbols.function)(&raw mut function, module.raw, name.as_ptr()) };
            driver.checked("cuModuleGetFunction", result)?;
            if let Some(load) = driver.symbols.load_function {
                // SAFETY: the function is there.
                driver.checked("cuFuncLoad", unsafe { load(function) })?;
            }
            functions.insert(kernel, Function(function));
        }
        module.keep();
        Ok(Loaded {
            driver,
            functions,
            multiprocessors,
            writes_long,
        })
    }

    /// Has `stream` run a kernel.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    ///
    /// # Safety
    /// What the kernel's arguments say lies in memory that stays until the stream has done so.
    pub(super) unsafe fn launch<A>(
        &self,
        _current: &Current<'_>,
        stream: Stream,
        Launch {
            kernel,
            mut args,
            items,
            rows,
        }: Launch<A>,
    ) -> Result<()> {
        let function = self.functions.get(&kernel);
        let function = function.ok_or_else(|| Error::internal(format!("no kernel {}", kernel.name())))?;
        let mut params = [(&raw mut args).cast::<c_void>()];
        let grid = blocks(items, rows, self.multiprocessors);
        // SAFETY: the caller's promise; the driver copies the arguments before it returns.
        let result = unsafe {
            (self.driver.symbols.launch)(
                function.0,
                grid,
                rows,
                1,
                THREADS,
                1,
                1,
                0,
                stream.0,
                params.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        self.driver.checked("cuLaunchKernel", result)
    }
}

/// An image that was loaded; unloaded where not all of it can be used.
struct Module {
    driver: &'static Driver,
    raw: RawModule,
}

impl Module {
    /// In the current context.
    fn new(driver: &'static Driver, image: &[u8]) -> Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: an image, with a NUL at its end, that the driver copies.
        let result = unsafe { (driver.symbols.load_module)(&raw mut raw, image.as_ptr().cast()) };
        driver.checked("cuModuleLoadData", result)?;
        Ok(Module { driver, raw })
    }

    /// It stays from now on.
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: none of its kernels was launched.
        let _ = unsafe { (self.driver.symbols.unload_module)(self.raw) };
    }
}

const MULTIPROCESSORS: c_int = 16;
const MAJOR: c_int = 75;
const MINOR: c_int = 76;
const WRITES_64_BITS: c_int = 122;
