//! The addresses of this host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// The address at which other hosts are most likely to reach this one: the one that the default route leaves from, else
/// that of the first interface that is up; `None` on a host that has no network. Nothing is sent.
pub(crate) fn own_address() -> Option<IpAddr> {
    towards_others().or_else(first_interface)
}

fn towards_others() -> Option<IpAddr> {
    // Addresses reserved for documentation: no route but the default one leads there.
    let v4 = (
        IpAddr::from(Ipv4Addr::UNSPECIFIED),
        IpAddr::from([198, 51, 100, 1]),
    );
    let v6 = (
        IpAddr::from(Ipv6Addr::UNSPECIFIED),
        IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]),
    );
    [v4, v6].into_iter().find_map(|(any, far)| {
        let socket = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
        socket.connect(SocketAddr::new(far, 9)).ok()?;
        let ours = socket.local_addr().ok()?.ip();
        (!ours.is_loopback() && !ours.is_unspecified()).then_some(ours)
    })
}

fn first_interface() -> Option<IpAddr> {
    let mut found: Vec<IpAddr> = (if_addrs::get_if_addrs().ok()?.into_iter())
        .filter(|interface| !interface.is_loopback() && !interface.is_link_local())
        .map(|interface| interface.ip())
        .collect();
    found.sort_by_key(IpAddr::is_ipv6); // keeps their order otherwise
    found.first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_an_address_that_this_host_has() {
        if let Some(ip) = own_address() {
            assert!(!ip.is_loopback());
            UdpSocket::bind(SocketAddr::new(ip, 0)).unwrap();
        }
    }
}
