//! Schedules: what they are, the algorithms that write them, and the proof that they are right.
//!
//! Everything here is a pure function of its arguments: no I/O, no environment, no clock.

pub(crate) mod algo;
pub(crate) mod bounds;
pub(crate) mod calibration;
pub(crate) mod choose;
pub(crate) mod cost;
pub(crate) mod definition;
pub(crate) mod explain;
pub(crate) mod fit;
pub(crate) mod forced;
pub(crate) mod groups;
#[cfg(any(feature = "cli", feature = "fuzzing"))]
pub(crate) mod import;
pub(crate) mod layout;
pub(crate) mod levels;
pub(crate) mod schedule;
#[cfg(feature = "cli")]
pub(crate) mod simulate;
pub(crate) mod trials;
pub(crate) mod verify;
