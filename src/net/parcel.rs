//! [`Parcel`]: bytes and file descriptors that one rank's transport hands to another's.

use super::Guard;
use std::os::fd::OwnedFd;

/// What a transport needs from a peer to make a link: opaque to everything that carries it.
#[derive(Debug, Default)]
pub(crate) struct Parcel {
    /// At most [`Parcel::MAX_BYTES`].
    pub(crate) bytes: Vec<u8>,
    /// At most [`Parcel::MAX_FDS`]; close-on-exec.
    pub(crate) fds: Vec<OwnedFd>,
    /// What protects the connection that is handed over, if one is and it is protected.
    pub(crate) guard: Option<Box<Guard>>,
}

impl Parcel {
    pub(crate) const MAX_BYTES: usize = 4096;
    pub(crate) const MAX_FDS: usize = 4;
}
