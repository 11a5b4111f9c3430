//! Memory of GPUs: the driver's functions, found at run time, and pinned memory by which streams and host meet.
//!
//! Nothing here needs a driver to be there. A program that uses host memory alone never loads one.

pub(crate) mod allocation;
mod aside;
mod by_context;
pub(crate) mod devices;
pub(crate) mod driver;
pub(crate) mod events;
pub(crate) mod flags;
#[cfg(feature = "cli")]
pub(crate) mod gpu;
pub(crate) mod kernels;
mod loaded;
mod memory;
pub(crate) mod queues;
pub(crate) mod staging;
mod symbols;
pub(crate) mod window;

pub use driver::Stream;
pub use memory::DeviceMemory;
