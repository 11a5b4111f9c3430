//! Collective communication between processes.

mod bootstrap;
mod comm;
mod exec;
mod ffi;
mod mem;
mod net;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod perf;
mod plan;
mod reduce;
mod sys;
mod topo;
mod transport;
pub mod types;
