//! System calls: what the standard library and `rustix` do not offer as they stand.

pub(crate) mod area;
pub(crate) mod attach;
pub(crate) mod biased;
pub(crate) mod cache;
pub(crate) mod clock;
pub(crate) mod environment;
pub(crate) mod float_mode;
pub(crate) mod fork;
pub(crate) mod futex;
pub(crate) mod helpers;
pub(crate) mod host;
pub(crate) mod in_use;
pub(crate) mod library;
#[cfg(feature = "cuda")]
pub(crate) mod loaded;
pub(crate) mod membarrier;
pub(crate) mod memfd;
pub(crate) mod names;
#[cfg(feature = "nvml")]
pub(crate) mod nvml;
#[cfg(ccl_one_mapping)]
mod one_mapping;
pub(crate) mod per_process;
pub(crate) mod pidfd;
pub(crate) mod pmix;
pub(crate) mod poll;
pub(crate) mod quiet;
pub(crate) mod socket;
pub(crate) mod splice;
pub(crate) mod tcp;
pub(crate) mod thread;
