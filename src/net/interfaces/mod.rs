//! The interfaces of this host, and which of their addresses others are told.

mod read;
mod selection;
#[cfg(test)]
mod tests;

pub(crate) use read::here;
pub(crate) use selection::Selection;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::{
    cmp::Reverse,
    collections::BTreeSet,
    fmt,
    net::{IpAddr, Ipv6Addr},
};

/// An interface, as far as it matters for the way to other hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    /// Its addresses, each with its subnet.
    pub(crate) nets: Vec<IpNet>,
    /// Whether it can carry anything at the moment.
    pub(crate) is_up: bool,
    pub(crate) kind: Kind,
    /// Megabits per second, where that is known.
    pub(crate) speed: Option<u32>,
    /// Whether a default route leaves by it.
    pub(crate) is_default: bool,
}

/// What an interface is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A network card, or what stands for one: the inner end of a container's pair, a bond, a VLAN.
    Ordinary,
    /// Air, or a tunnel: what it is fast for varies.
    Detour,
    /// A bridge between containers or virtual machines of this host, or what belongs to one.
    Inside,
    Loopback,
}

/// An address at which other hosts may reach this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Way {
    /// The address, with its subnet.
    pub(crate) net: IpNet,
    /// The same number for addresses of the same interface.
    pub(crate) interface: u8,
    /// How likely it leads to other hosts: 0 is the best.
    pub(crate) tier: u8,
    /// Megabits per second, where that is known.
    pub(crate) speed: Option<u32>,
    /// Whether it may be the [only one for somebody](firsts).
    pub(crate) is_first: bool,
}

impl Way {
    /// The most addresses that a host tells: all that are used together, and what may be the only one for somebody.
    pub(crate) const MOST: usize = 10;

    pub(crate) fn ip(&self) -> IpAddr {
        self.net.addr()
    }

    /// One of which nothing but the address is known.
    pub(crate) fn plain(ip: IpAddr) -> Way {
        Way {
            net: ip.into(),
            interface: 0,
            tier: 0,
            speed: None,
            is_first: false,
        }
    }

    /// An address of a host that somebody came to or from, if others may reach it there, too.
    pub(crate) fn seen(ip: IpAddr) -> Option<Way> {
        let leads_out = !ip.is_loopback() && !matches!(ip, IpAddr::V6(v6) if is_link_local(v6));
        leads_out.then(|| Way::plain(ip))
    }
}

/// The addresses at which others may reach this host, the best first, `most` at most: one of each version of IP for each
/// interface that `selection` lets through. Ordinary interfaces come first, the fastest of them first, one with a default
/// route before its equals, and version 4 of IP before version 6.
///
/// Left out are interfaces that are down, addresses of loopback (others on `lo` come last), and those that mean something else on each link (IPv6's `fe80::/10`); and of
/// more than `most` the last, but not the [only one for somebody](firsts).
pub(crate) fn ways(interfaces: &[Interface], selection: &Selection, most: usize) -> Vec<Way> {
    let mut found = Vec::new();
    for (at, interface) in interfaces.iter().enumerate() {
        let nets = interface
            .nets
            .iter()
            .filter(|net| selection.takes(interface, net));
        let tiers: Vec<_> = nets
            .filter_map(|net| Some((tier(interface, net)?, net)))
            .collect();
        for version in [false, true] {
            let nets = tiers.iter().filter(|(_, net)| is_v6(net) == version);
            let best = nets.min_by_key(|(tier, _)| *tier);
            found.extend(best.map(|&(tier, net)| (tier, interface, net, at)));
        }
    }
    found.sort_by_key(|&(tier, interface, net, _)| {
        let speed = Reverse(order_of(interface.speed));
        (tier, is_v6(net), speed, !interface.is_default)
    });
    let firsts = firsts(&found);
    let way = |place: usize| {
        let (tier, interface, net, at) = found[place];
        Way {
            net: *net,
            interface: at.min(u8::MAX.into()) as u8,
            tier,
            speed: interface.speed,
            is_first: firsts.contains(&Some(place)),
        }
    };
    let mut told: BTreeSet<usize> = firsts.into_iter().flatten().take(most).collect();
    for place in 0..found.len() {
        if told.len() < most {
            told.insert(place);
        }
    }
    told.into_iter().map(way).collect()
}

/// An address: its tier, its interface, and the place of that.
type Found<'a> = (u8, &'a Interface, &'a IpNet, usize);

/// The places of those that may be the only ones by which somebody comes: the best of each version of IP, and with a default route.
fn firsts(found: &[Found<'_>]) -> [Option<usize>; 3] {
    let first = |fits: &dyn Fn(&Found<'_>) -> bool| {
        let fits = |one: &Found<'_>| one.0 < LAST && fits(one);
        found.iter().position(fits)
    };
    [
        first(&|(_, _, net, _)| !is_v6(net)),
        first(&|(_, _, net, _)| is_v6(net)),
        first(&|(_, interface, _, _)| interface.is_default),
    ]
}

/// Megabits per second of the fastest interface that could lead to other hosts, whatever is asked for.
pub(crate) fn fastest(interfaces: &[Interface]) -> Option<u32> {
    let fits = |one: &&Interface| one.nets.iter().any(|net| tier(one, net) == Some(0));
    interfaces.iter().filter(fits).filter_map(|one| one.speed).max()
}

/// How likely an address leads to other hosts, 0 the best; `None` for those that certainly do not.
fn tier(interface: &Interface, net: &IpNet) -> Option<u8> {
    let ip = net.addr();
    if !interface.is_up || ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() {
        return None;
    }
    match (interface.kind, ip) {
        (_, IpAddr::V6(v6)) if is_link_local(v6) => None,
        // Where hosts route, their own address may lie there.
        (Kind::Loopback, _) => Some(LAST),
        (_, IpAddr::V4(v4)) if v4.is_link_local() => Some(LAST),
        // The bridge by which a host leaves is its card.
        (Kind::Inside, _) if !interface.is_default => Some(LAST),
        (Kind::Detour, _) => Some(LATE),
        (Kind::Ordinary | Kind::Inside, _) => Some(0),
    }
}

/// The place of a speed among others. One that is not known lies between 1 and 10 Gbit/s.
pub(super) fn order_of(speed: Option<u32>) -> u32 {
    speed.unwrap_or(5_000)
}

fn is_v6(net: &IpNet) -> bool {
    matches!(net, IpNet::V6(_))
}

fn is_link_local(ip: Ipv6Addr) -> bool {
    ip.segments()[0] & 0xffc0 == 0xfe80
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        let nets = self.nets.iter().map(IpNet::to_string);
        let speed = self.speed.map(gigabits);
        let kind = match self.kind {
            Kind::Ordinary => None,
            Kind::Detour => Some("wireless or a tunnel"),
            Kind::Inside => Some("of a bridge"),
            Kind::Loopback => Some("loopback"),
        };
        let facts = nets
            .chain(speed)
            .chain(kind.map(str::to_owned))
            .chain((!self.is_up).then(|| "down".to_owned()));
        let facts: Vec<String> = facts.collect();
        match facts[..] {
            [] => Ok(()),
            _ => write!(f, " ({})", facts.join(", ")),
        }
    }
}

/// A speed for messages.
pub(crate) fn gigabits(speed: u32) -> String {
    format!("{} Gbit/s", f64::from(speed) / 1000.0)
}

/// Interfaces for messages.
pub(crate) fn list(interfaces: &[Interface]) -> String {
    match interfaces {
        [] => "no interfaces".to_owned(),
        _ => {
            let all: Vec<String> = interfaces.iter().map(Interface::to_string).collect();
            all.join(", ")
        }
    }
}

/// Tiers after the best one: what seldom leads to other hosts, and what hardly ever does.
const LATE: u8 = 1;
const LAST: u8 = 2;
