//! The machine: what it is made of, read from a root path that the caller gives.

#[cfg(feature = "cli")]
pub(crate) mod host;
