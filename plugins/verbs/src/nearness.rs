//! Which devices are near: to the processors that a rank may use, and to the other end of a connection.

use std::{fs, net::IpAddr, path::Path, ptr};

/// How far the NUMA nodes of this machine are from the processors that this thread may use.
pub(crate) struct Distances {
    /// Of each node that has such processors: to each node, as the firmware says (10: itself).
    rows: Vec<Vec<u32>>,
}

impl Distances {
    pub(crate) fn here() -> Distances {
        // SAFETY: all bytes zero are a set, which the call fills.
        let allowed = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            (libc::sched_getaffinity(0, size_of_val(&set), &mut set) == 0).then_some(set)
        };
        let may = |cpu: usize| match &allowed {
            // SAFETY: within the set.
            Some(set) => cpu < libc::CPU_SETSIZE as usize && unsafe { libc::CPU_ISSET(cpu, set) },
            None => true,
        };
        Distances::read(Path::new("/sys/devices/system/node"), may)
    }

    fn read(nodes: &Path, may: impl Fn(usize) -> bool) -> Distances {
        let text =
            |node: usize, file: &str| fs::read_to_string(nodes.join(format!("node{node}/{file}"))).ok();
        let row = |node| {
            let is_own = numbers(&text(node, "cpulist")?).into_iter().any(&may);
            let row = text(node, "distance")?
                .split_whitespace()
                .map(|n| n.parse().ok())
                .collect::<Option<_>>()?;
            is_own.then_some(row)
        };
        let most = fs::read_dir(nodes).map_or(0, Iterator::count);
        let rows = (0..most).filter_map(row).collect();
        Distances { rows }
    }

    /// To a node; the greatest where that is not known.
    pub(crate) fn to(&self, node: i32) -> u32 {
        let node = usize::try_from(node).unwrap_or(usize::MAX);
        let near = self.rows.iter().filter_map(|row| row.get(node));
        near.min().copied().unwrap_or(u32::MAX)
    }
}

/// What a list such as `0-3,8` names.
fn numbers(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

/// How many bits of a port's address are its subnet's.
pub(crate) fn subnet(gid: [u8; 16], infiniband: bool) -> u32 {
    let ip = address(gid);
    let found = match infiniband {
        true => None,
        false => masks()
            .into_iter()
            .find_map(|(own, bits)| (own == ip).then_some(bits)),
    };
    match (ip, found) {
        (IpAddr::V4(_), Some(bits)) => 96 + bits,
        (IpAddr::V6(_), Some(bits)) => bits,
        (IpAddr::V4(_), None) => 96 + 24,
        (IpAddr::V6(_), None) => 64,
    }
}

/// Whether two addresses have the first bits in common.
pub(crate) fn share(one: [u8; 16], other: [u8; 16], bits: u32) -> bool {
    let differ = u128::from_be_bytes(one) ^ u128::from_be_bytes(other);
    differ.leading_zeros() >= bits
}

fn address(gid: [u8; 16]) -> IpAddr {
    std::net::Ipv6Addr::from(gid).to_canonical()
}

/// The addresses of this machine's interfaces, and the bits of their subnets.
fn masks() -> Vec<(IpAddr, u32)> {
    let mut list = ptr::null_mut();
    // SAFETY: it gives a list, which is given back below.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Vec::new();
    }
    let (mut found, mut at) = (Vec::new(), list);
    // SAFETY: an element of the list or its end; addresses are as long as their family says.
    while let Some(one) = unsafe { at.as_ref() } {
        // SAFETY: as above.
        let [address, mask] = unsafe { [ip(one.ifa_addr), ip(one.ifa_netmask)] };
        if let (Some(address), Some(mask)) = (address, mask) {
            let bits = match mask {
                IpAddr::V4(mask) => u32::from(mask).leading_ones(),
                IpAddr::V6(mask) => u128::from(mask).leading_ones(),
            };
            found.push((address, bits));
        }
        at = one.ifa_next;
    }
    // SAFETY: it came from there.
    unsafe { libc::freeifaddrs(list) };
    found
}

/// # Safety
/// Null, or an address as long as its family says.
unsafe fn ip(at: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller's promise.
    unsafe {
        match i32::from(at.as_ref()?.sa_family) {
            libc::AF_INET => {
                let at = at.cast::<libc::sockaddr_in>().read_unaligned();
                Some(IpAddr::V4(u32::from_be(at.sin_addr.s_addr).into()))
            }
            libc::AF_INET6 => Some(IpAddr::V6(
                at.cast::<libc::sockaddr_in6>()
                    .read_unaligned()
                    .sin6_addr
                    .s6_addr
                    .into(),
            )),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_of_the_allowed_nodes_counts() {
        let folder = std::env::temp_dir().join(format!("ccl-verbs-nodes-{}", std::process::id()));
        for (node, cpus, distances) in [
            (0, "0-3,8", "10 21 31"),
            (1, "4-7", "21 10 21"),
            (2, "", "31 21 10"),
        ] {
            let at = folder.join(format!("node{node}"));
            fs::create_dir_all(&at).unwrap();
            fs::write(at.join("cpulist"), format!("{cpus}\n")).unwrap();
            fs::write(at.join("distance"), format!("{distances}\n")).unwrap();
        }
        let to = |may: &dyn Fn(usize) -> bool| {
            let all = Distances::read(&folder, may);
            [0, 1, 2, 3, -1].map(|node| all.to(node))
        };
        let unknown = u32::MAX;
        assert_eq!(to(&|cpu| cpu == 8), [10, 21, 31, unknown, unknown]);
        assert_eq!(to(&|cpu| cpu == 5), [21, 10, 21, unknown, unknown]);
        assert_eq!(to(&|_| true), [10, 10, 21, unknown, unknown]);
        assert_eq!(to(&|_| false), [unknown; 5]);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(Distances::read(&folder, |_| true).to(0), unknown);
    }

    #[test]
    fn addresses_of_a_subnet_share_its_bits() {
        let gid = |ip: &str| match ip.parse().unwrap() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        assert_eq!(subnet(gid("127.0.0.1"), false), 96 + 8);
        assert_eq!(subnet(gid("203.0.113.9"), false), 96 + 24);
        assert_eq!(subnet(gid("fd00::1"), false), 64);
        assert_eq!(subnet(gid("fe80::1"), true), 64);
        assert!(share(gid("10.77.0.1"), gid("10.77.0.200"), 96 + 24));
        assert!(!share(gid("10.77.0.1"), gid("10.77.1.1"), 96 + 24));
        assert!(share(gid("10.77.0.1"), gid("10.77.1.1"), 96 + 16));
        assert!(!share(gid("fe80::1"), gid("10.0.0.1"), 64));
    }
}
