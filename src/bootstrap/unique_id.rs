//! [`UniqueId`]: what a rank must be given to join a communicator.

use super::{
    control::{self, Command, Control},
    env::Named,
};
use crate::{
    log,
    net::{Address, CommId, Presence, Said, Secret, VERSION, Way, fill_random, hex, interfaces, ip_bytes},
    types::{Error, Result},
};
use rustix::io::Errno;
use std::{
    fmt, iter,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
};
use tracing::info;

/// Names a communicator that is to be made, says where its ranks meet, and holds the secret by which they know each
/// other.
///
/// One process makes it and hands its 128 bytes to all ranks, by whatever way it has: a pipe, MPI, a file that only
/// the user can read. Ranks of the same host reach it by a Unix socket, those of other hosts by TCP. That process need not be a rank itself, but it must live until all ranks have joined. An id
/// makes one communicator. Whoever holds the bytes can join, so they are to be kept from others.
///
/// The secret is never printed and is wiped from memory when the last copy is dropped; the arrays of
/// [`UniqueId::to_bytes`] are their owner's to wipe.
#[derive(Clone)]
pub struct UniqueId {
    /// Where its owner listens: the best first.
    pub(super) addresses: Vec<Address>,
    pub(super) comm: CommId,
    pub(super) secret: Secret,
    pub(super) owner: Owner,
    /// The host whose addresses those are, if it was named: they may be others later.
    pub(super) host: Option<Named>,
}

/// Who holds the meeting, as the ranks know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// The process that made the id.
    Maker,
    /// Rank 0, which has handed the id out: the ranks' programs have never seen it.
    Rank0,
    /// Rank 0, to whom all ranks were sent by the environment. Each works out the same id, so that rank 0 may be late.
    AppointedRank0,
    /// Rank 0 of a communicator that is made of another one. The same holds.
    DerivedRank0,
}

impl Owner {
    /// Whether ranks may come before it listens.
    pub(super) fn may_be_late(self) -> bool {
        matches!(self, Owner::AppointedRank0 | Owner::DerivedRank0)
    }

    /// Whether ranks know it as rank 0.
    pub(super) fn is_rank_0(self) -> bool {
        self != Owner::Maker
    }
}

impl UniqueId {
    /// Bytes of an id.
    pub const LEN: usize = 128;

    /// A new id, whose ranks meet in this process. Starts the library's control thread if it does not run yet. It
    /// listens at a TCP port if this host has a network, so that ranks of other hosts can come, and at a Unix socket. The
    /// environment says which interfaces they come by, and at which ports, as for [`Config`](crate::Config). Of ids to which nobody
    /// has come a process keeps the latest 10,000.
    ///
    /// # Errors
    /// [`Error::System`] when the system has no socket, thread or randomness to give; [`Error::Usage`] for settings that leave no
    /// interface, or no port.
    pub fn new() -> Result<UniqueId> {
        log::begin();
        let control = control::start()?;
        let at = Self::listen(&control)?;
        Self::met_at(&control, &at)
    }

    /// The same for ranks that are all on this host: nothing listens at a network.
    ///
    /// # Errors
    /// As [`UniqueId::new`].
    pub fn local() -> Result<UniqueId> {
        log::begin();
        Self::met_at(&*control::start()?, &[])
    }

    fn met_at(control: &Control, at: &[SocketAddr]) -> Result<UniqueId> {
        let (mut comm, mut secret) = (CommId::default(), zeroize::Zeroizing::new([0; Secret::LEN]));
        fill_random(&mut comm)?;
        fill_random(&mut *secret)?;
        let id = Self::held(control, at, comm, Secret::new(&secret))?;
        info!("id: made; its ranks meet here, at {}", id.places());
        Ok(id)
    }

    /// The id that all ranks of a job work out alike, for those that do not hold its meeting, which is at one of the
    /// addresses `at`.
    pub(super) fn agreed(at: &[SocketAddr], comm: CommId, secret: Secret) -> UniqueId {
        UniqueId {
            addresses: at.iter().copied().map(Address::Tcp).collect(),
            comm,
            secret,
            owner: Owner::AppointedRank0,
            host: None,
        }
    }

    /// The same id, which meets where that host is.
    pub(super) fn of_host(self, host: Named) -> UniqueId {
        UniqueId {
            host: Some(host),
            ..self
        }
    }

    /// The same for the rank that holds the meeting, at TCP port `port`.
    ///
    /// # Errors
    /// [`Error::Init`] when the port is in use; [`Error::System`].
    pub(super) fn agreed_here(port: u16, comm: CommId, secret: Secret) -> Result<UniqueId> {
        let control = control::start()?;
        control.listen_at(port).map_err(|e| match e {
            Errno::ADDRINUSE => Error::Init {
                what: format!(
                    "rank 0 cannot listen at port {port}, which is in use, by another job or another program: set \
                     CCL_MASTER_PORT to a free one on all ranks (ccl-perf: --rendezvous HOST:PORT)"
                ),
            },
            e => Error::system(format!("rank 0 cannot listen at port {port}"), e),
        })?;
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self::held(&control, &[at], comm, secret)
    }

    /// The same, at the addresses `at` of [`UniqueId::open`].
    ///
    /// # Errors
    /// [`Error::System`].
    pub(super) fn agreed_at(at: &[SocketAddr], comm: CommId, secret: Secret) -> Result<UniqueId> {
        Self::held(&*control::start()?, at, comm, secret)
    }

    fn held(control: &Control, at: &[SocketAddr], comm: CommId, secret: Secret) -> Result<UniqueId> {
        control.post(Command::Meet {
            comm,
            secret: secret.clone(),
            again: false,
        })?;
        Ok(UniqueId {
            addresses: iter::once(control.address())
                .chain(at.iter().copied().map(Address::Tcp))
                .collect(),
            comm,
            secret,
            owner: Owner::Maker,
            host: None,
        })
    }

    /// Where other hosts reach this process, which listens there from now on; on a host without a network, where this host
    /// does.
    ///
    /// # Errors
    /// As [`UniqueId::new`].
    pub(super) fn open() -> Result<Vec<SocketAddr>> {
        let at = Self::listen(&*control::start()?)?;
        if !at.is_empty() {
            return Ok(at);
        }
        let ports = Presence::new(Said::default())?.ports;
        let port = control::start()?.listen_tcp(ports.as_ref(), |_| false)?;
        Ok(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))])
    }

    /// The first addresses at which other hosts reach this one, if it has a network; this process listens there from now on.
    fn listen(control: &Control) -> Result<Vec<SocketAddr>> {
        let presence = Presence::new(Said::default())?;
        let ways = presence.selection.ways(&interfaces::here(), NETWORK)?;
        if ways.is_empty() {
            return Ok(Vec::new());
        }
        let port = control.listen_tcp(presence.ports.as_ref(), |_| false)?;
        let at = |way: &Way| SocketAddr::new(way.ip(), port);
        Ok(ways.iter().map(at).collect())
    }

    /// Ends the meeting, if it is held by this process and not over: all who have come and will come are told `why` there is
    /// no communicator.
    ///
    /// # Errors
    /// [`Error::System`], [`Error::Internal`] when there is no control thread.
    pub(crate) fn adjourn(&self, why: String) -> Result<()> {
        let comm = self.comm;
        control::start()?.post(Command::Adjourn { comm, why })
    }

    /// Whether rank 0, another process, is to listen at this port.
    pub(super) fn is_appointed(&self, port: u16) -> bool {
        let tcp = self.addresses.iter().filter_map(Address::tcp);
        self.owner == Owner::AppointedRank0 && tcp.map(SocketAddr::port).any(|at| at == port)
    }

    /// Whether ranks can come by TCP.
    pub(super) fn is_open_to_networks(&self) -> bool {
        self.addresses.iter().any(Address::is_tcp)
    }

    /// The id as bytes, for the way to the other ranks.
    pub fn to_bytes(&self) -> [u8; UniqueId::LEN] {
        let mut bytes = [0; UniqueId::LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let network = self.addresses.iter().filter_map(Address::tcp).copied();
        bytes[PORT..COMM].copy_from_slice(&encode(network));
        let unix = self.addresses.iter().find_map(Address::unix);
        if let Some(name) = unix {
            bytes[KIND] = UNIX;
            bytes[ADDRESS..PORT].copy_from_slice(name);
        }
        bytes[COMM..SECRET].copy_from_slice(&self.comm);
        bytes[SECRET..OWNER].copy_from_slice(self.secret.bytes());
        bytes[OWNER] = match self.owner {
            Owner::DerivedRank0 => DERIVED,
            Owner::Maker | Owner::Rank0 | Owner::AppointedRank0 => 0,
        };
        bytes
    }

    /// The id that [`UniqueId::to_bytes`] made these bytes of.
    ///
    /// # Errors
    /// [`Error::Invalid`] when they are not an id, or one of a version of the library that this one cannot talk to.
    pub fn from_bytes(bytes: [u8; UniqueId::LEN]) -> Result<UniqueId> {
        let bytes = zeroize::Zeroizing::new(bytes);
        if bytes[..8] != MAGIC {
            return Err(Error::invalid(
                "these 128 bytes are not a unique id: pass those that cclGetUniqueId wrote, unchanged",
            ));
        }
        let version: [u8; 4] = part(&bytes[..], 8)?;
        if u32::from_le_bytes(version) != VERSION {
            return Err(Error::invalid(format!(
                "the unique id is of version {} of the protocol, this library speaks version {VERSION}: use the same \
                 version of ccl in all processes",
                u32::from_le_bytes(version)
            )));
        }
        let damaged = || Error::invalid("the unique id is damaged: pass its 128 bytes unchanged");
        let mut addresses = vec![Address::Unix(part(&bytes[..], ADDRESS)?)];
        let network = decode(&part(&bytes[..], PORT)?).ok_or_else(damaged)?;
        addresses.extend(network.into_iter().map(Address::Tcp));
        let owner = match bytes[OWNER] {
            0 => Owner::Maker,
            DERIVED => Owner::DerivedRank0,
            _ => return Err(damaged()),
        };
        if bytes[KIND] != UNIX {
            return Err(damaged());
        }
        let secret = zeroize::Zeroizing::new(part(&bytes[..], SECRET)?);
        Ok(UniqueId {
            addresses,
            comm: part(&bytes[..], COMM)?,
            secret: Secret::new(&secret),
            owner,
            host: None,
        })
    }
}

impl UniqueId {
    /// Whether both are of one communicator.
    pub(crate) fn is_of_the_same(&self, other: &UniqueId) -> bool {
        self.comm == other.comm
    }

    /// Its addresses, for messages.
    pub(super) fn places(&self) -> String {
        let places: Vec<String> = self.addresses.iter().map(Address::to_string).collect();
        places.join(" or ")
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UniqueId({} at {})", hex(&self.comm), self.places())
    }
}

/// One port at the first of some addresses, [`NETWORK`] at most, for a way where there is little room.
pub(super) fn encode(at: impl Iterator<Item = SocketAddr>) -> [u8; ENCODED] {
    let (mut bytes, mut at) = ([0; ENCODED], at.peekable());
    let (port, ips) = bytes.split_at_mut(2);
    if let Some(first) = at.peek() {
        port.copy_from_slice(&first.port().to_le_bytes());
    }
    for (at, to) in at.zip(ips.chunks_exact_mut(16)) {
        to.copy_from_slice(&ip_bytes(at.ip()));
    }
    bytes
}

/// The addresses that [`encode`] made these bytes of, or `None`.
pub(super) fn decode(bytes: &[u8; ENCODED]) -> Option<Vec<SocketAddr>> {
    let (port, ips) = bytes.split_first_chunk()?;
    let port = u16::from_le_bytes(*port);
    let ips = ips.chunks_exact(16).filter_map(|ip| ip.first_chunk::<16>());
    let ips = ips
        .map(|ip| Ipv6Addr::from(*ip))
        .filter(|ip| !ip.is_unspecified());
    let at: Vec<_> = ips.map(|ip| SocketAddr::new(ip.to_canonical(), port)).collect();
    ((port != 0) != at.is_empty()).then_some(at)
}

/// The `N` bytes at `at`.
fn part<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N]> {
    let part = bytes.get(at..).and_then(|rest| rest.first_chunk());
    part.copied()
        .ok_or_else(|| Error::internal("a part of the unique id lies outside it"))
}

const MAGIC: [u8; 8] = *b"ccl\0uid\0";
/// Where the parts of an id lie: the kind of its address on this host, that address, the TCP port and the addresses of the network
/// where it listens (zeros for none), the communicator's name and its secret.
const KIND: usize = 12;
const ADDRESS: usize = KIND + 1;
const PORT: usize = ADDRESS + 16;
const COMM: usize = PORT + ENCODED;
const SECRET: usize = COMM + 16;
const OWNER: usize = SECRET + Secret::LEN;
/// The addresses of the network that an id has room for.
const NETWORK: usize = 3;
/// Bytes of those.
pub(super) const ENCODED: usize = 2 + NETWORK * 16;
/// The kind of a Unix socket.
const UNIX: u8 = 1;
/// Ranks may come before rank 0 listens: [`Owner::DerivedRank0`].
const DERIVED: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip_and_hide_the_secret() {
        let id = UniqueId::new().unwrap();
        for id in [&id, &UniqueId::local().unwrap()] {
            let back = UniqueId::from_bytes(id.to_bytes()).unwrap();
            assert_eq!((back.to_bytes(), &back.addresses), (id.to_bytes(), &id.addresses));
        }
        let hex = hex(id.secret.bytes());
        let shown = format!("{id:?} {id:#?} {:?}", id.secret);
        assert!(
            !shown.contains(&hex[..8]) && shown.contains("unix:@ccl-"),
            "{shown}"
        );
        assert_ne!(UniqueId::new().unwrap().to_bytes(), id.to_bytes());
    }

    #[test]
    fn damage_is_found() {
        let good = UniqueId::new().unwrap().to_bytes();
        for (at, text) in [
            (0, "not a unique id"),
            (8, "is of version"),
            (KIND, "damaged"),
            (127, "damaged"),
        ] {
            let mut bytes = good;
            bytes[at] ^= 0x55;
            let error = UniqueId::from_bytes(bytes).unwrap_err().to_string();
            assert!(error.contains(text), "{at}: {error}");
        }
        assert!(UniqueId::from_bytes([0; UniqueId::LEN]).is_err());
    }
}
