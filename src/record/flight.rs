//! What is kept, as a file, when a communicator fails: `CCL_FLIGHT_FILE`.

use super::Record;
use crate::{
    log,
    sys::{fork, host, quiet::quietly},
};
use rustix::fs::{Mode, OFlags};
use std::{ffi::OsStr, fmt::Write, io, path::PathBuf, time::SystemTime};

/// Appends the last operations of `rank` to the file of this pattern: where that is. `cause`: what went wrong.
///
/// # Errors
/// The path, and why it could not be written.
pub(super) fn write(
    pattern: &OsStr,
    (rank, ranks, comm): (usize, usize, &str),
    cause: &dyn std::fmt::Display,
    records: &[Record],
) -> Result<PathBuf, (PathBuf, io::Error)> {
    let path = PathBuf::from(log::path(pattern, &host::name(), host::pid()));
    let (host, pid, at) = (host::name(), host::pid(), super::Clock(SystemTime::now()));
    let mut text = format!("rank {rank} of {ranks}, {host}:{pid}, communicator {comm}, at {at}: {cause}\n");
    for record in records {
        // Writing to a text does not fail.
        let _ = writeln!(text, "  {record}");
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let open = || rustix::fs::open(&path, flags | OFlags::NOCTTY, Mode::RUSR | Mode::WUSR);
    // Closed again before any fork; one write, so that ranks which share the file do not mix.
    let written =
        fork::gated(|| open().and_then(|file| quietly(|| rustix::io::write(&file, text.as_bytes()))));
    match written {
        Ok(_) => Ok(path),
        Err(e) => Err((path, e.into())),
    }
}
