//! Which devices are near: to the GPU or the processors that a rank works with, and to the other end of a connection.

use std::{
    cmp::Reverse,
    fmt, fs,
    net::IpAddr,
    path::{Path, PathBuf},
    ptr,
};

/// How near devices are to where a rank works: to its GPU, if it has one, else to the processors that its thread may use.
pub(crate) struct Nearness {
    sys: PathBuf,
    gpu: Option<Gpu>,
    distances: Distances,
    /// What devices are near to.
    what: String,
}

/// How far a device is; the nearest is the least.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Far {
    /// What it and the GPU have above them, from the root of their PCI tree on: more where a switch is.
    shared: Reverse<usize>,
    numa: u32,
}

impl Nearness {
    /// Near the GPU that has this PCI address.
    pub(crate) fn to(gpu: Option<&str>) -> Nearness {
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
        Nearness::read(Path::new("/sys"), gpu, may)
    }

    fn read(sys: &Path, address: Option<&str>, may: impl Fn(usize) -> bool) -> Nearness {
        let gpu = address.and_then(|address| Gpu::read(sys, address));
        let nodes = sys.join("devices/system/node");
        let node = gpu.as_ref().and_then(|gpu| gpu.node);
        let distances = match node {
            Some(node) => Distances::read(&nodes, |one| one == node),
            None => Distances::from_processors(&nodes, may),
        };
        let what = match (address, &gpu) {
            (None, _) => "this rank's processors".to_owned(),
            (Some(address), Some(_)) => format!("GPU {address}"),
            (Some(address), None) => format!("this rank's processors (there is no GPU {address} in {sys:?})"),
        };
        Nearness {
            sys: sys.to_owned(),
            gpu,
            distances,
            what,
        }
    }

    /// The device of this name and NUMA node.
    pub(crate) fn far(&self, name: &str, node: i32) -> Far {
        let device = self.sys.join(format!("class/infiniband/{name}/device"));
        let shared = self.gpu.as_ref().map_or(0, |gpu| gpu.shared(&device));
        Far {
            shared: Reverse(shared),
            numa: self.distances.to(node),
        }
    }
}

impl fmt::Display for Nearness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl fmt::Display for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shared.0 {
            0 => {}
            1 => f.write_str("same PCI root, ")?,
            shared => write!(f, "same PCI root and {} bridges, ", shared - 1)?,
        }
        match self.numa {
            u32::MAX => f.write_str("NUMA distance unknown"),
            numa => write!(f, "NUMA distance {numa}"),
        }
    }
}

/// A GPU of this machine.
struct Gpu {
    /// Its folder in sysfs, which lies in those of the bridges above it.
    folder: PathBuf,
    node: Option<usize>,
}

impl Gpu {
    fn read(sys: &Path, address: &str) -> Option<Gpu> {
        let folder = fs::canonicalize(sys.join("bus/pci/devices").join(address)).ok()?;
        let node = fs::read_to_string(folder.join("numa_node")).ok();
        let node = node.and_then(|node| node.trim().parse().ok());
        Some(Gpu { folder, node })
    }

    /// How many folders it and a device have above them, from the one of a PCI root on.
    fn shared(&self, device: &Path) -> usize {
        let Ok(device) = fs::canonicalize(device) else {
            return 0;
        };
        let pairs = self.folder.iter().zip(device.iter());
        let common = pairs.take_while(|(one, other)| one == other);
        let is_root = |name: &str| name.starts_with("pci") && name.contains(':');
        common
            .skip_while(|(name, _)| !name.to_str().is_some_and(is_root))
            .count()
    }
}

/// How far the NUMA nodes of this machine are from some of them.
struct Distances {
    /// Of each of those: to each node, as the firmware says (10: itself).
    rows: Vec<Vec<u32>>,
}

impl Distances {
    /// From the nodes of the processors that may be used.
    fn from_processors(nodes: &Path, may: impl Fn(usize) -> bool) -> Distances {
        Distances::read(nodes, |node| {
            let list = text(nodes, node, "cpulist").unwrap_or_default();
            numbers(&list).into_iter().any(&may)
        })
    }

    fn read(nodes: &Path, is_own: impl Fn(usize) -> bool) -> Distances {
        let row = |node| {
            let row = text(nodes, node, "distance")?;
            let row = row.split_whitespace().map(|n| n.parse().ok());
            row.collect::<Option<_>>()
        };
        let most = fs::read_dir(nodes).map_or(0, Iterator::count);
        let rows = (0..most).filter(|&node| is_own(node)).filter_map(row);
        Distances { rows: rows.collect() }
    }

    /// To a node; the greatest where that is not known.
    fn to(&self, node: i32) -> u32 {
        let node = usize::try_from(node).unwrap_or(usize::MAX);
        let near = self.rows.iter().filter_map(|row| row.get(node));
        near.min().copied().unwrap_or(u32::MAX)
    }
}

/// A file of a NUMA node.
fn text(nodes: &Path, node: usize, file: &str) -> Option<String> {
    fs::read_to_string(nodes.join(format!("node{node}/{file}"))).ok()
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
            let all = Distances::from_processors(&folder, may);
            [0, 1, 2, 3, -1].map(|node| all.to(node))
        };
        let unknown = u32::MAX;
        assert_eq!(to(&|cpu| cpu == 8), [10, 21, 31, unknown, unknown]);
        assert_eq!(to(&|cpu| cpu == 5), [21, 10, 21, unknown, unknown]);
        assert_eq!(to(&|_| true), [10, 10, 21, unknown, unknown]);
        assert_eq!(to(&|_| false), [unknown; 5]);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(Distances::from_processors(&folder, |_| true).to(0), unknown);
    }

    #[test]
    fn the_cards_of_the_gpu_come_first() {
        let sys = std::env::temp_dir().join(format!("ccl-verbs-gpus-{}", std::process::id()));
        let devices = sys.join("devices");
        let device = |link: &str, path: &str, node: i32| {
            let (link, folder) = (sys.join(link), devices.join(path));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("numa_node"), format!("{node}\n")).unwrap();
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(folder, link).unwrap();
        };
        let gpu = |address: &str, above: &str, node| {
            device(
                &format!("bus/pci/devices/{address}"),
                &format!("{above}/{address}"),
                node,
            );
        };
        let card = |name: &str, path: &str, node| {
            device(&format!("class/infiniband/{name}/device"), path, node);
        };
        let [left, right] = [
            "pci0000:3a/0000:3a:00.0/0000:3b:00.0",
            "pci0000:ba/0000:ba:00.0/0000:bb:00.0",
        ];
        gpu("0000:3d:00.0", &format!("{left}/0000:3c:00.0"), 0);
        gpu("0000:bd:00.0", &format!("{right}/0000:bc:00.0"), 1);
        gpu("0000:be:00.0", &format!("{right}/0000:bc:01.0"), -1);
        card("switch0", &format!("{left}/0000:3c:01.0/0000:3e:00.0"), 0);
        card("root0", "pci0000:3a/0000:3a:01.0/0000:40:00.0", 0);
        card("switch1", &format!("{right}/0000:bc:02.0/0000:bf:00.0"), 1);
        card("other1", "pci0000:d7/0000:d7:00.0/0000:d8:00.0", 1);
        fs::create_dir_all(sys.join("class/infiniband/rxe0")).unwrap();
        for (node, cpus, distances) in [(0, "0-3", "10 21"), (1, "4-7", "21 10")] {
            let at = devices.join(format!("system/node/node{node}"));
            fs::create_dir_all(&at).unwrap();
            fs::write(at.join("cpulist"), cpus).unwrap();
            fs::write(at.join("distance"), distances).unwrap();
        }
        let order = |gpu| {
            let near = Nearness::read(&sys, gpu, |cpu| cpu == 0);
            let mut all = [
                ("rxe0", -1),
                ("other1", 1),
                ("switch1", 1),
                ("root0", 0),
                ("switch0", 0),
            ];
            all.sort_by_key(|&(name, node)| near.far(name, node));
            (all.map(|(name, _)| name), near.to_string())
        };
        let (found, near) = order(Some("0000:3d:00.0"));
        assert_eq!(found, ["switch0", "root0", "other1", "switch1", "rxe0"]);
        assert_eq!(near, "GPU 0000:3d:00.0");
        assert_eq!(
            order(Some("0000:bd:00.0")).0,
            ["switch1", "other1", "root0", "switch0", "rxe0"]
        );
        // Its node is not known, so that the processors' counts for cards that are not near it.
        assert_eq!(
            order(Some("0000:be:00.0")).0,
            ["switch1", "root0", "switch0", "other1", "rxe0"]
        );
        let by_processors = ["root0", "switch0", "other1", "switch1", "rxe0"];
        assert_eq!(order(None), (by_processors, "this rank's processors".to_owned()));
        let (found, near) = order(Some("0000:77:00.0"));
        assert_eq!(found, by_processors);
        assert!(near.contains("no GPU 0000:77:00.0"), "{near}");
        let near = Nearness::read(&sys, Some("0000:3d:00.0"), |_| true);
        let told = [("switch0", 0), ("root0", 0), ("rxe0", -1)];
        assert_eq!(
            told.map(|(name, node)| near.far(name, node).to_string()),
            [
                "same PCI root and 2 bridges, NUMA distance 10",
                "same PCI root, NUMA distance 10",
                "NUMA distance unknown"
            ]
        );
        fs::remove_dir_all(&sys).unwrap();
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
