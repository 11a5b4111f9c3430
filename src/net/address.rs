//! [`Address`]: where a process listens.

use crate::{
    sys::{fork::ProcessFd, socket, tcp},
    types::Error,
};
use rustix::{io::Errno, process::geteuid};
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

/// Where a process listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Address {
    /// A Unix socket with the abstract name `ccl-` and these bytes in hexadecimal: reachable on this host, in this
    /// network namespace, and gone with its process.
    Unix([u8; 16]),
    /// A TCP port.
    Tcp(SocketAddr),
}

impl Address {
    /// A fresh Unix address and its listening socket, which never blocks.
    pub(crate) fn listen() -> Result<(Address, ProcessFd), Error> {
        let mut random = [0; 16];
        fill_random(&mut random)?;
        let listener = socket::listen(&unix_name(&random)).map_err(|e| Error::system("cannot listen", e))?;
        Ok((Address::Unix(random), listener))
    }

    /// Begins a connection to whoever listens here, by TCP from our address `source` if that is said. Never blocks; one by TCP
    /// is there later ([`tcp::connected`]).
    ///
    /// # Errors
    /// [`Errno::CONNREFUSED`] when nobody listens, or only another user; [`Errno::ACCESS`] and [`Errno::PERM`] where the system keeps
    /// us from a Unix socket, as it may do containers (SELinux, Landlock);
    /// [`Errno::AGAIN`] when the listener's queue is full.
    pub(crate) fn dial(&self, source: Option<IpAddr>) -> Result<ProcessFd, Errno> {
        match self {
            Address::Unix(random) => {
                let stream = socket::dial(&unix_name(random))?;
                let (theirs, ours) = (socket::peer_uid(&stream)?, geteuid().as_raw());
                // Root may do what it likes with us anyway; a rank that was root when it began to listen may be somebody else by now.
                if theirs == ours || theirs == 0 || ours == 0 {
                    Ok(stream)
                } else {
                    Err(Errno::CONNREFUSED)
                }
            }
            Address::Tcp(at) => tcp::dial(source, *at),
        }
    }

    /// Whether this is a TCP port.
    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self, Address::Tcp(_))
    }

    /// The TCP port, if it is one.
    pub(crate) fn tcp(&self) -> Option<&SocketAddr> {
        match self {
            Address::Tcp(at) => Some(at),
            Address::Unix(_) => None,
        }
    }

    /// The random bytes of a Unix socket's name, if it is one.
    pub(crate) fn unix(&self) -> Option<&[u8; 16]> {
        match self {
            Address::Unix(random) => Some(random),
            Address::Tcp(_) => None,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(random) => write!(f, "unix:@{}", String::from_utf8_lossy(&unix_name(random))),
            Address::Tcp(at) => write!(f, "tcp:{at}"),
        }
    }
}

/// Fills `bytes` with the system's randomness.
pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<(), Error> {
    getrandom::fill(bytes).map_err(|e| Error::system("no random bytes from the system", e))
}

fn unix_name(random: &[u8; 16]) -> Vec<u8> {
    format!("ccl-{}", hex(random)).into_bytes()
}

/// Bytes in hexadecimal, for names.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Fills `bytes` with what [`hex`] wrote; `None` if that is something else, or not as long.
pub(crate) fn unhex(text: &str, bytes: &mut [u8]) -> Option<()> {
    let digits = text.as_bytes();
    if digits.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        for &digit in pair {
            *byte = *byte << 4 | char::from(digit).to_digit(16)? as u8;
        }
    }
    Some(())
}

/// An address of either version of IP, as one of version 6.
pub(crate) fn ip_bytes(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unix_socket_is_gone_with_its_listener() {
        let (address, listener) = Address::listen().unwrap();
        address.dial(None).unwrap();
        drop(listener);
        // A child that another test is just forking may hold a copy for a moment.
        while address.dial(None).is_ok() {
            std::thread::yield_now();
        }
        assert_eq!(address.dial(None).unwrap_err(), Errno::CONNREFUSED);
        assert!(address.to_string().starts_with("unix:@ccl-"));
    }
}
