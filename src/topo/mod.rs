//! The machine: what it is made of, read from a root path that the caller gives, and how ranks share it.

#[cfg(feature = "cli")]
pub(crate) mod host;
pub(crate) mod quota;
pub(crate) mod share;

use std::{fs, path::Path};

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}
