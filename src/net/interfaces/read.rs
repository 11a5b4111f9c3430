//! Reads the interfaces of this process's network namespace.

use super::{Interface, Kind};
use if_addrs::{IfAddr, IfOperStatus};
use ipnet::IpNet;
use std::{fs, path::Path};
use tracing::warn;

/// The interfaces that there are, with what the system says of them: those without addresses at the end.
pub(crate) fn here() -> Vec<Interface> {
    let defaults = default_routes();
    let mut found: Vec<Interface> = Vec::new();
    let addresses = if_addrs::get_if_addrs().unwrap_or_else(|e| {
        warn!("the system does not tell this host's network interfaces, so that none is used: {e}");
        Vec::new()
    });
    for mut address in addresses {
        // A second address of version 4 may have a label: eth0:1.
        address
            .name
            .truncate(address.name.find(':').unwrap_or(address.name.len()));
        let net = net(&address.addr);
        match found.iter_mut().find(|one| one.name == address.name) {
            Some(one) => one.nets.extend(net),
            None => found.push(Interface {
                kind: match address.addr.is_loopback() {
                    true => Kind::Loopback,
                    false => kind(&address.name),
                },
                nets: net.into_iter().collect(),
                is_up: address.oper_status == IfOperStatus::Up || has_carrier(&address.name),
                speed: speed(&address.name),
                is_default: defaults.contains(&address.name),
                name: address.name,
            }),
        }
    }
    let without = (fs::read_dir(CLASS).into_iter().flatten().flatten())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| found.iter().all(|one| one.name != *name));
    let without: Vec<Interface> = without
        .map(|name| Interface {
            nets: Vec::new(),
            is_up: fact(&name, "operstate").as_deref() != Some("down") || has_carrier(&name),
            kind: kind(&name),
            speed: speed(&name),
            is_default: false,
            name,
        })
        .collect();
    found.extend(without);
    found
}

fn net(address: &IfAddr) -> Option<IpNet> {
    let prefix = match address {
        IfAddr::V4(v4) => v4.prefixlen,
        IfAddr::V6(v6) => v6.prefixlen,
    };
    IpNet::new(address.ip(), prefix).ok()
}

/// Whether interface `name` has a carrier, and so is up. One that has just come up is called down for up to a second longer.
fn has_carrier(name: &str) -> bool {
    fact(name, "carrier").as_deref() == Some("1")
}

/// What the system says of interface `name` under this key, if anything.
fn fact(name: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(Path::new(CLASS).join(name).join(key)).ok()?;
    Some(text.trim().to_owned())
}

/// Whether it is one end of a pair (veth), of which the kernel says [`SPEED_OF_ENDS`] whatever it leads to.
fn is_end(name: &str) -> bool {
    let has_device = Path::new(CLASS).join(name).join("device").exists();
    let leads_on = fact(name, "iflink") != fact(name, "ifindex");
    !has_device && leads_on && device_type(name).is_none()
}

/// What kind of device it is, where the kernel says that of its kind.
fn device_type(name: &str) -> Option<String> {
    let facts = fact(name, "uevent")?;
    facts
        .lines()
        .find_map(|line| line.strip_prefix("DEVTYPE="))
        .map(str::to_owned)
}

fn speed(name: &str) -> Option<u32> {
    let megabits: i64 = fact(name, "speed")?.parse().ok()?;
    if megabits == SPEED_OF_ENDS && is_end(name) {
        return None;
    }
    u32::try_from(megabits)
        .ok()
        .filter(|&speed| speed != 0 && speed != u32::MAX)
}

fn kind(name: &str) -> Kind {
    let has = |key: &str| Path::new(CLASS).join(name).join(key).exists();
    let hardware = fact(name, "type");
    match hardware.as_deref() {
        Some(LOOPBACK) => Kind::Loopback,
        _ if has("bridge") || has("brport") => Kind::Inside,
        _ if has("tun_flags") || has("wireless") || has("phy80211") => Kind::Detour,
        _ if device_type(name).is_some_and(|device| OVERLAYS.contains(&&*device)) => Kind::Detour,
        Some(ETHERNET | INFINIBAND) | None => Kind::Ordinary,
        Some(_) => Kind::Detour,
    }
}

/// The names of the interfaces by which default routes leave.
fn default_routes() -> Vec<String> {
    let lines = |path| fs::read_to_string(path).unwrap_or_default();
    let v4 = lines("/proc/thread-self/net/route");
    let v4 = v4.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        match fields[..] {
            [name, "00000000", _, _, _, _, _, "00000000", ..] => Some(name.to_owned()),
            _ => None,
        }
    });
    let v6 = lines("/proc/thread-self/net/ipv6_route");
    let v6 = v6.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        match fields[..] {
            [to, "00", .., name] if to.bytes().all(|digit| digit == b'0') && name != "lo" => {
                Some(name.to_owned())
            }
            _ => None,
        }
    });
    v4.chain(v6).collect()
}

/// Networks inside others' packets.
const OVERLAYS: [&str; 2] = ["vxlan", "geneve"];
/// In Mbit/s.
const SPEED_OF_ENDS: i64 = 10_000;
const CLASS: &str = "/sys/class/net";
/// Kinds of hardware, as the kernel numbers them (`ARPHRD_…`).
const ETHERNET: &str = "1";
const INFINIBAND: &str = "32";
const LOOPBACK: &str = "772";
