//! [`Address`]: where a process listens.

use crate::{
    sys::{fork::ProcessFd, socket, tcp},
    types::Error,
};
use rustix::{io::Errno, process::geteuid};
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
};

/// Where a process listens. On the wire each kind has a number of its own, so that more can be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Address {
    /// A Unix socket with the abstract name `ccl-` and these bytes in hexadecimal: reachable on this host, in this
    /// network namespace, and gone with its process.
    Unix([u8; 16]),
    /// A TCP port.
    Tcp(SocketAddr),
}

impl Address {
    /// Bytes of an encoded address: a kind byte and up to 31 more, unused ones zero.
    pub(crate) const LEN: usize = 32;

    /// A fresh Unix address and its listening socket, which never blocks.
    pub(crate) fn listen() -> Result<(Address, ProcessFd), Error> {
        let mut random = [0; 16];
        fill_random(&mut random)?;
        let listener = socket::listen(&unix_name(&random)).map_err(|e| Error::system("cannot listen", e))?;
        Ok((Address::Unix(random), listener))
    }

    /// Begins a connection to whoever listens here. Never blocks; one by TCP is there later ([`tcp::connected`]).
    ///
    /// # Errors
    /// [`Errno::CONNREFUSED`] when nobody listens, or only a user whose Unix sockets are not for us;
    /// [`Errno::AGAIN`] when the listener's queue is full.
    pub(crate) fn dial(&self) -> Result<ProcessFd, Errno> {
        match self {
            Address::Unix(random) => {
                let stream = socket::dial(&unix_name(random))?;
                let (theirs, ours) = (socket::peer_uid(&stream)?, geteuid().as_raw());
                if theirs == ours || ours == 0 {
                    Ok(stream)
                } else {
                    Err(Errno::CONNREFUSED)
                }
            }
            Address::Tcp(at) => tcp::dial(*at),
        }
    }

    /// Whether this is a TCP port.
    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self, Address::Tcp(_))
    }

    pub(crate) fn encode(&self) -> [u8; Address::LEN] {
        let mut bytes = [0; Address::LEN];
        match self {
            Address::Unix(random) => {
                bytes[0] = UNIX;
                bytes[1..17].copy_from_slice(random);
            }
            Address::Tcp(at) => {
                bytes[0] = TCP;
                bytes[1..17].copy_from_slice(&ip_bytes(at.ip()));
                bytes[17..19].copy_from_slice(&at.port().to_le_bytes());
            }
        }
        bytes
    }

    /// The address that [`Address::encode`] made these bytes of, or `None`.
    pub(crate) fn decode(bytes: &[u8; Address::LEN]) -> Option<Address> {
        let (head, rest) = bytes.split_at(17);
        let body: [u8; 16] = head[1..].try_into().ok()?;
        match (head[0], rest) {
            (UNIX, rest) if rest.iter().all(|&b| b == 0) => Some(Address::Unix(body)),
            (TCP, [low, high, rest @ ..]) if rest.iter().all(|&b| b == 0) => {
                let ip = Ipv6Addr::from(body).to_canonical();
                Some(Address::Tcp(SocketAddr::new(
                    ip,
                    u16::from_le_bytes([*low, *high]),
                )))
            }
            _ => None,
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

/// An address of either version of IP.
fn ip_bytes(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

const UNIX: u8 = 1;
const TCP: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let (address, listener) = Address::listen().unwrap();
        assert_eq!(Address::decode(&address.encode()), Some(address));
        address.dial().unwrap();
        drop(listener);
        // A child that another test is just forking may hold a copy for a moment.
        while address.dial().is_ok() {
            std::thread::yield_now();
        }
        assert_eq!(address.dial().unwrap_err(), Errno::CONNREFUSED);
        assert!(address.to_string().starts_with("unix:@ccl-"));
    }

    #[test]
    fn tcp_addresses_round_trip() {
        for at in ["10.1.2.3:65535", "[fd00::1]:1"] {
            let address = Address::Tcp(at.parse().unwrap());
            assert_eq!(Address::decode(&address.encode()), Some(address));
            assert_eq!(address.to_string(), format!("tcp:{at}"));
        }
    }

    #[test]
    fn unknown_kinds_are_refused() {
        let mut bytes = Address::Unix([7; 16]).encode();
        bytes[31] = 1;
        assert_eq!(Address::decode(&bytes), None);
        assert_eq!(Address::decode(&[0; 32]), None);
        assert_eq!(Address::decode(&[2; 32]), None);
        assert_eq!(Address::decode(&[3; 32]), None);
    }
}
