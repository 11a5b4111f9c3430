//! A rank's links to all others, made on first use.

use super::{
    Caps, Header, Link, Message, Ticket, Wires,
    shm::{self, Bell},
};
use crate::{
    mem::Region,
    net::Parcel,
    types::{Cause, Error},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tracing::debug;

/// Carries parcels between the transports of two ranks: implemented by the floor that knows the peers' addresses.
pub(crate) trait Opener: Send {
    /// Hands `parcel` to `peer` and returns the peer's welcome ([`Bell::welcome`]). Blocks until the peer's process took
    /// it, its death, a failure of the communicator, or the deadline of operations. The peer's rank itself need not do
    /// anything: it may be waiting for something else.
    fn open(&self, peer: usize, parcel: Parcel) -> Result<Parcel, Error>;

    /// The parcels that have come in since the last time, with the ranks that sent them. It is asked again and again by
    /// ranks that wait: where nothing came it costs no more than the load of a word. Whoever puts a parcel there wakes
    /// the rank's bell afterwards ([`Bell::wake`]).
    fn arrivals(&self) -> Vec<(usize, Parcel)>;
}

impl<T: Opener + Sync + ?Sized> Opener for Arc<T> {
    fn open(&self, peer: usize, parcel: Parcel) -> Result<Parcel, Error> {
        (**self).open(peer, parcel)
    }

    fn arrivals(&self) -> Vec<(usize, Parcel)> {
        (**self).arrivals()
    }
}

/// A rank's links. They belong to one thread at a time.
pub(crate) struct Links {
    rank: usize,
    peers: Vec<AnyLink>,
    opener: Box<dyn Opener>,
    bell: Arc<Bell>,
}

impl Links {
    /// The links of `rank` to the others of `ranks`: none is made yet.
    pub(crate) fn new(rank: usize, ranks: usize, opener: Box<dyn Opener>, bell: Arc<Bell>) -> Self {
        let peers = (0..ranks).map(|_| AnyLink::Shm(shm::Link::default())).collect();
        Links {
            rank,
            peers,
            opener,
            bell,
        }
    }

    /// Says that this rank is going to sleep. Whatever changes on a link from now on (a message, a credit, a link that a
    /// peer opens) ends the sleep; so look at everything once more before it.
    ///
    /// ```text
    /// links.arm();
    /// if nothing to do { links.sleep(timeout); }
    /// links.disarm();
    /// ```
    pub(crate) fn arm(&self) {
        self.bell.arm();
    }

    /// Sleeps until something changed since [`Links::arm`], or for no reason, or for `timeout`: then it is `false`.
    pub(crate) fn sleep(&self, timeout: Duration) -> bool {
        self.bell.sleep(timeout)
    }

    /// Ends what [`Links::arm`] began, whether it slept or not.
    pub(crate) fn disarm(&self) {
        self.bell.disarm();
    }

    /// Bytes of address space that the links take so far. Memory is used only for the pages that messages touched.
    pub(crate) fn memory(&self) -> usize {
        self.bell.mapped() + self.peers.iter().map(AnyLink::mapped).sum::<usize>()
    }

    /// Makes the sending half of the link to `peer` and hands it over.
    #[cold]
    fn open(&self, peer: usize) -> Result<(), Error> {
        self.check(peer)?;
        match &self.peers[peer] {
            AnyLink::Shm(link) => {
                let began = Instant::now();
                let (opening, parcel) = shm::Opening::new(&self.bell)?;
                let welcome = self.opener.open(peer, parcel)?;
                link.set_outbound(opening.connected(peer, &welcome, &self.bell)?);
                let (rank, ranks, took) = (self.rank, self.peers.len(), began.elapsed());
                debug!(
                    rank,
                    ranks,
                    "link: to rank {peer} by {}, made in {took:.1?}",
                    shm::CAPS.name
                );
            }
        }
        Ok(())
    }

    /// Attaches the receiving halves that have come in; then the link from `peer` may be there.
    fn await_link(&self, peer: usize) -> Result<Option<&AnyLink>, Error> {
        self.check(peer)?;
        for (sender, parcel) in self.opener.arrivals() {
            self.attach(sender, &parcel)?;
        }
        Ok(self.peers.get(peer).filter(|link| link.receives()))
    }

    #[cold]
    fn attach(&self, peer: usize, parcel: &Parcel) -> Result<(), Error> {
        self.check(peer)?;
        match &self.peers[peer] {
            AnyLink::Shm(link) => {
                if link.receives() || !link.set_inbound(shm::Inbound::attach(peer, parcel, &self.bell)?) {
                    return Err(Error::Failed(Cause::Broken {
                        rank: peer as u32,
                        what: format!("it opened a second link to rank {}", self.rank),
                    }));
                }
                let (rank, ranks) = (self.rank, self.peers.len());
                debug!(rank, ranks, "link: from rank {peer} by {}", shm::CAPS.name);
            }
        }
        Ok(())
    }

    /// Ranks come from schedules and from the floor that proved who the peers are, so another one is our mistake.
    fn check(&self, peer: usize) -> Result<(), Error> {
        if peer == self.rank || peer >= self.peers.len() {
            let (rank, ranks) = (self.rank, self.peers.len());
            return Err(Error::internal(format!(
                "a link between rank {rank} and rank {peer} of {ranks}"
            )));
        }
        Ok(())
    }
}

impl Wires for Links {
    type Link = AnyLink;

    #[inline]
    fn to(&self, peer: usize) -> Result<Option<&AnyLink>, Error> {
        match self.peers.get(peer) {
            Some(link) if link.sends() => Ok(Some(link)),
            _ => self.open(peer).map(|()| self.peers.get(peer)),
        }
    }

    #[inline]
    fn from(&self, peer: usize) -> Result<Option<&AnyLink>, Error> {
        match self.peers.get(peer) {
            Some(link) if link.receives() => Ok(Some(link)),
            _ => self.await_link(peer),
        }
    }
}

/// A link of any kind: the transports are a closed set, so a `match` finds the way.
pub(crate) enum AnyLink {
    Shm(shm::Link),
}

impl AnyLink {
    #[inline]
    fn sends(&self) -> bool {
        match self {
            AnyLink::Shm(link) => link.sends(),
        }
    }

    #[inline]
    fn receives(&self) -> bool {
        match self {
            AnyLink::Shm(link) => link.receives(),
        }
    }

    fn mapped(&self) -> usize {
        match self {
            AnyLink::Shm(link) => link.mapped(),
        }
    }
}

impl Link for AnyLink {
    #[inline]
    fn caps(&self) -> Caps {
        match self {
            AnyLink::Shm(link) => link.caps(),
        }
    }

    #[inline]
    fn reserve(&self, lane: usize, len: usize) -> Result<Option<Region<'_>>, Error> {
        match self {
            AnyLink::Shm(link) => link.reserve(lane, len),
        }
    }

    #[inline]
    fn commit(&self, lane: usize, header: Header) {
        match self {
            AnyLink::Shm(link) => link.commit(lane, header),
        }
    }

    #[inline]
    fn offer(&self, lane: usize, header: Header, body: Region<'_>) -> Result<Option<Ticket>, Error> {
        match self {
            AnyLink::Shm(link) => link.offer(lane, header, body),
        }
    }

    #[inline]
    fn taken(&self, lane: usize, ticket: Ticket) -> bool {
        match self {
            AnyLink::Shm(link) => link.taken(lane, ticket),
        }
    }

    #[inline]
    fn peek(&self, lane: usize) -> Result<Option<Message<'_>>, Error> {
        match self {
            AnyLink::Shm(link) => link.peek(lane),
        }
    }

    #[inline]
    fn release(&self, lane: usize) {
        match self {
            AnyLink::Shm(link) => link.release(lane),
        }
    }
}
