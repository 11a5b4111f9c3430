//! The machine: what it is made of, read from a root path that the caller gives, and how ranks share it.
//!
//! [`graph`] is the model of machines and networks; [`read`] makes it from files, [`discover`] from sysfs, [`mod@write`] and [`show`] make
//! text of it, [`paths`] finds ways in it, [`levels`] what is near what, [`search`] rings and trees. All but `discover` is pure, and all hidden from the crate's
//! documentation until their shape has settled.

pub mod diff;
pub mod discover;
pub(crate) mod fingerprint;
pub mod graph;
#[cfg(feature = "cli")]
pub(crate) mod host;
pub mod levels;
pub(crate) mod numa;
pub mod paths;
pub mod pci;
pub(crate) mod quota;
pub mod read;
#[cfg(test)]
pub(crate) mod samples;
pub mod search;
pub(crate) mod share;
pub mod show;
pub mod speeds;
pub mod width;
mod words;
pub mod write;

use std::{fs, path::Path};

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}
