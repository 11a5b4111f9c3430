//! [`Table`]: where all ranks are, and how they reach each other.

use crate::{
    net::{Address, Rail, Rails, Secret, Way, fill_random, interfaces::gigabits},
    sys::host,
    topo::share::Crowd,
    types::{Error, Result},
};
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

/// Where a rank is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seat {
    /// Its process's Unix socket; ranks with the same one share a process.
    pub(super) unix: Address,
    /// The TCP port where it listens, if it does.
    pub(super) port: Option<u16>,
    /// Its process, as seen in its pid namespace.
    pub(super) pid: u32,
    /// Its pid namespace; 0 when it does not know.
    pub(super) pid_namespace: u64,
    pub(super) life: Life,
}

/// A number that a rank draws for one communicator. Where the name and the secret of that follow from what a user has set, a job that
/// is started anew has them again, and its ranks may be at the same places: this tells them from those of the job's earlier life, of
/// which some may still be there, cut off from the others or stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Life([u8; 16]);

impl Life {
    /// # Errors
    /// [`Error::System`] when the system has no randomness to give.
    pub(super) fn draw() -> Result<Life> {
        let mut life = Life([0; 16]);
        fill_random(&mut life.0)?;
        Ok(life)
    }

    /// What others must hold who come to the rank that drew it, in a communicator of this secret.
    ///
    /// # Errors
    /// [`Error::Internal`].
    pub(super) fn secret(&self, communicator_s: &Secret) -> Result<Secret> {
        derived(communicator_s, &[b"ccl rank 1 ", &self.0])
    }
}

fn derived(secret: &Secret, info: &[&[u8]]) -> Result<Secret> {
    let derived = secret.derive(info);
    let derived = derived.ok_or_else(|| Error::internal("HMAC refused a key"))?;
    Ok(Secret::new(&derived))
}

/// What ranks of the same host say of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Host {
    pub(super) name: String,
    /// Its machine, as far as pids and processors are concerned (see [`host::boot_id`]).
    pub(super) boot: [u8; 16],
    /// Its network namespace: a machine may be several hosts. 0 when it does not know.
    pub(super) network: u64,
    /// At which addresses others may reach it.
    pub(super) ways: Vec<Way>,
}

/// What tells a host from others.
pub(super) type HostKey = ([u8; 16], u64, Option<IpAddr>);

impl Host {
    /// This host, which others may reach in these ways.
    pub(super) fn here(ways: Vec<Way>) -> Host {
        Host {
            name: host::name(),
            boot: host::boot_id(),
            network: host::network_namespace(),
            ways,
        }
    }

    /// Whether this is certainly the same host as `other`, so that its loopback leads there.
    pub(super) fn is(&self, other: &Host) -> bool {
        self.is_known() && (self.boot, self.network) == (other.boot, other.network)
    }

    fn is_known(&self) -> bool {
        self.boot != [0; 16] && self.network != 0
    }

    /// Equal for what seems to be one host.
    pub(super) fn key(&self) -> HostKey {
        let first = self.ways.first().map(Way::ip);
        (self.boot, self.network, first.filter(|_| !self.is_known()))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.name.is_empty() {
            "a host"
        } else {
            &self.name
        };
        match self.ways.first() {
            Some(way) => write!(f, "{name} ({})", way.ip()),
            None => f.write_str(name),
        }
    }
}

/// Where all ranks are.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Table {
    /// By rank.
    pub(super) seats: Vec<Seat>,
    /// By rank, the place of its host in `hosts`.
    pub(super) on: Vec<u16>,
    /// What ranks say of their hosts. There may be several of one host, where its ranks say different things.
    pub(super) hosts: Vec<Host>,
    /// The cores for all ranks: as many as on the machine that has the fewest for each of its own.
    pub(super) cores: u32,
    /// By rank, whether it has to share a processor, or has less than one's time.
    pub(super) crowds: Vec<Crowd>,
    /// By rank, the processor that it begins on, where it shares some.
    pub(super) starts: Vec<Option<u16>>,
    /// By rank, its NUMA node: where all ranks are on one host and bound to nodes, else of none.
    pub(super) nodes: Vec<u16>,
    /// What rank 0 tells all.
    pub(super) told: Vec<u8>,
    /// Whether all ranks came to the meeting place from its own host: as a rule they can share memory then.
    pub(super) one_host: bool,
    /// The first rank that has no wire of a plugin's, if there is one.
    pub(super) without_wire: Option<u32>,
}

impl Table {
    /// Whether it is one of `ranks` ranks, and whole.
    pub(super) fn fits(&self, ranks: usize) -> bool {
        [
            self.seats.len(),
            self.on.len(),
            self.crowds.len(),
            self.starts.len(),
        ] == [ranks; 4]
            && [0, ranks].contains(&self.nodes.len())
            && self.on.iter().all(|&at| usize::from(at) < self.hosts.len())
            && self.cores > 0
    }

    /// Seat and host of a rank, if there is such a rank.
    pub(super) fn place(&self, rank: u32) -> Option<(&Seat, &Host)> {
        let at = *self.on.get(rank as usize)?;
        Some((self.seats.get(rank as usize)?, self.hosts.get(usize::from(at))?))
    }

    /// What who comes to `rank` must hold, made of the communicator's secret: see [`Life`].
    ///
    /// # Errors
    /// [`Error::Internal`].
    pub(super) fn secret_of(&self, rank: u32, communicator_s: &Secret) -> Result<Secret> {
        let seat = self.seats.get(rank as usize);
        let seat = seat.ok_or_else(|| Error::internal(format!("there is no rank {rank}")))?;
        seat.life.secret(communicator_s)
    }

    /// Of what the secrets of communicators are made that come of this one: of all its ranks' lives.
    ///
    /// # Errors
    /// [`Error::Internal`].
    pub(super) fn secret_of_all(&self, communicator_s: &Secret) -> Result<Secret> {
        let lives = self.seats.iter().map(|seat| &seat.life.0[..]);
        let info: Vec<&[u8]> = [&b"ccl ranks 1 "[..]].into_iter().chain(lives).collect();
        derived(communicator_s, &info)
    }

    /// The processes of ranks, where their numbers are this process's, too. Each machine numbers its first pid namespace alike.
    pub(super) fn processes(&self) -> impl Fn(u32) -> Option<u32> {
        self.processes_of((host::pid_namespace(), host::boot_id()))
    }

    /// The same for a process of this pid namespace, on this machine.
    pub(super) fn processes_of(&self, ours: (u64, [u8; 16])) -> impl Fn(u32) -> Option<u32> {
        let is_known = ours.0 != 0 && ours.1 != [0; 16];
        move |rank| {
            let (seat, host) = self.place(rank)?;
            let same_pids = is_known && (seat.pid_namespace, host.boot) == ours;
            same_pids.then_some(seat.pid)
        }
    }

    /// Where `peer`'s process may be reached from that of rank `me`, the best first.
    pub(super) fn addresses(&self, me: u32, peer: u32) -> Vec<Address> {
        let (Some((_, ours)), Some((seat, theirs))) = (self.place(me), self.place(peer)) else {
            return Vec::new();
        };
        let is_near = self.is_here(ours, theirs) || !ours.is_known();
        let (together, else_one) = self.spots(me, peer, None);
        let network = together.into_iter().chain(else_one).map(|spot| spot.address);
        let mut addresses: Vec<Address> = is_near.then_some(seat.unix).into_iter().chain(network).collect();
        if addresses.is_empty() {
            addresses.push(seat.unix); // to hear that nobody is there
        }
        addresses
    }

    /// Whether the loopback of one leads to the other. Of hosts that tell too little it is taken to do so where all ranks met as if
    /// they were on one.
    fn is_here(&self, ours: &Host, theirs: &Host) -> bool {
        ours.is(theirs) || self.one_host && !(ours.is_known() && theirs.is_known())
    }

    /// Where `peer`'s process may be reached by TCP from that of rank `me`: the addresses to use together, `most` of them, and
    /// those to use for want of these.
    pub(super) fn spots(&self, me: u32, peer: u32, most: Option<usize>) -> (Vec<Spot>, Vec<Spot>) {
        let (Some((_, ours)), Some((seat, theirs))) = (self.place(me), self.place(peer)) else {
            return Default::default();
        };
        let Some(port) = seat.port else {
            return Default::default();
        };
        let spot = |to: IpAddr, source, speed| Spot {
            address: Address::Tcp(SocketAddr::new(to, port)),
            source,
            speed,
        };
        if self.is_here(ours, theirs) {
            let [v4, v6] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            return (vec![spot(v4, None, None)], vec![spot(v6, None, None)]);
        }
        let rails = Rails::new(&ours.ways, &theirs.ways, most);
        let spots = |rails: Vec<Rail>| {
            let spots = rails.into_iter().map(|rail| spot(rail.to, rail.from, rail.speed));
            spots.collect()
        };
        (spots(rails.together), spots(rails.else_one))
    }

    /// Why no address leads to `peer`'s process, which listens by TCP, from that of rank `me`, if none does: those that it tells are all
    /// of `me`'s host, too, and lead back there.
    pub(super) fn nowhere(&self, me: u32, peer: u32) -> Option<String> {
        let ((_, ours), (seat, theirs)) = (self.place(me)?, self.place(peer)?);
        let (together, else_one) = self.spots(me, peer, None);
        let is_apart = ours.is_known() && together.is_empty() && else_one.is_empty();
        if seat.port.is_none() || !is_apart {
            return None;
        }
        let told: Vec<String> = theirs.ways.iter().map(|way| way.ip().to_string()).collect();
        Some(match told[..] {
            [] => format!("rank {peer} tells no address at which other hosts may reach it"),
            _ => format!(
                "both hosts have all addresses that rank {peer} tells ({}), so that none leads from one to the other: choose \
                 interfaces with other addresses by CCL_SOCKET_IFNAME or CCL_SOCKET_SUBNET",
                told.join(", ")
            ),
        })
    }
}

/// An address of another process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spot {
    pub(super) address: Address,
    /// That of ours from which to go there, if that matters.
    pub(super) source: Option<IpAddr>,
    /// Megabits per second, where that is known.
    pub(super) speed: Option<u32>,
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        if let Some(source) = self.source {
            write!(f, " from {source}")?;
        }
        self.speed
            .map_or(Ok(()), |speed| write!(f, " ({})", gigabits(speed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_tell_the_same_addresses_lead_nowhere() {
        let host = |network, ips: &[[u8; 4]]| Host {
            name: String::new(),
            boot: [7; 16],
            network,
            ways: ips.iter().map(|&ip| Way::plain(IpAddr::from(ip))).collect(),
        };
        let (one, other) = ([172, 17, 0, 2], [10, 0, 0, 2]);
        let seat = |rank| Seat {
            unix: Address::Unix([rank; 16]),
            port: Some(4000),
            pid: 1,
            pid_namespace: 0,
            life: Life::draw().unwrap(),
        };
        let table = Table {
            seats: (0..5).map(seat).collect(),
            on: vec![0, 1, 2, 3, 0],
            hosts: vec![
                host(1, &[one]),
                host(2, &[one]),
                host(3, &[one, other]),
                host(4, &[]),
            ],
            cores: 1,
            crowds: vec![Crowd::Alone; 5],
            starts: vec![None; 5],
            nodes: Vec::new(),
            told: Vec::new(),
            one_host: false,
            without_wire: None,
        };
        let says = |me, peer, what: &str| table.nowhere(me, peer).is_some_and(|why| why.contains(what));
        assert!(says(0, 1, "(172.17.0.2)") && says(2, 0, "(172.17.0.2)"));
        assert!(says(0, 3, "rank 3 tells no address"));
        assert_eq!(table.nowhere(0, 2), None);
        assert_eq!(table.nowhere(0, 4), None); // they are on one host
    }
}
