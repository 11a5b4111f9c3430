//! [`AnyLink`]: one rank's link to another, whatever it goes over.

use crate::{
    mem::Region,
    transport::{
        Caps, Expected, Header, Link, Message, Pinned, Reach, Ticket, plugin, shm,
        tcp::{self, Hub},
    },
    types::Error,
};
use serde::{Deserialize, Serialize};
use std::{
    cell::{Cell, OnceCell},
    sync::Arc,
};

/// A link of any kind, each direction over the transport by which it was made: the transports are a closed set, so a
/// `match` finds the way.
#[derive(Default)]
pub(crate) struct AnyLink {
    pub(super) to: Cell<Way>,
    pub(super) from: Cell<Way>,
    pub(super) shm: shm::Link,
    pub(super) tcp: OnceCell<Box<tcp::Link>>,
    pub(super) plugin: OnceCell<Box<plugin::Link>>,
}

/// What a direction of a link goes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum Way {
    /// It was not made yet.
    #[default]
    None,
    Shm,
    Tcp,
    /// A plugin's wire.
    Plugin,
}

impl Way {
    /// What has this number.
    pub(crate) fn of(number: u8) -> Way {
        [Way::Shm, Way::Tcp, Way::Plugin]
            .into_iter()
            .find(|&way| way as u8 == number)
            .unwrap_or_default()
    }

    /// Its name, if it is there.
    #[cfg(feature = "cli")]
    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            Way::None => None,
            Way::Shm => Some(shm::CAPS.name),
            Way::Tcp => Some(tcp::CAPS.name),
            Way::Plugin => Some("a plugin"),
        }
    }
}

/// The two halves of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    To,
    From,
}

impl AnyLink {
    pub(super) fn tcp(&self, peer: usize, hub: &Arc<Hub>) -> &tcp::Link {
        self.tcp
            .get_or_init(|| Box::new(tcp::Link::new(peer, hub.clone())))
    }

    pub(super) fn mapped(&self) -> usize {
        self.shm.mapped()
            + self.tcp.get().map_or(0, |link| link.mapped())
            + self.plugin.get().map_or(0, |link| link.mapped())
    }

    #[cold]
    fn over_tcp(&self) -> &tcp::Link {
        self.tcp
            .get()
            .expect("a direction goes over TCP after its connections were made")
    }

    #[cold]
    fn over_plugin(&self) -> &plugin::Link {
        self.plugin
            .get()
            .expect("a direction goes over a plugin's wire after its link was made")
    }
}

impl Link for AnyLink {
    #[inline]
    fn caps(&self) -> Caps {
        match self.to.get() {
            Way::Tcp => tcp::CAPS,
            Way::Plugin => self.over_plugin().caps(),
            Way::None | Way::Shm => self.shm.caps(),
        }
    }

    #[inline(always)] // in the path of each short call
    fn reserve(&self, lane: usize, len: usize) -> Result<Option<Region<'_>>, Error> {
        match self.to.get() {
            Way::Tcp => self.over_tcp().reserve(lane, len),
            Way::Plugin => self.over_plugin().reserve(lane, len),
            Way::None | Way::Shm => self.shm.reserve(lane, len),
        }
    }

    #[inline]
    fn reserve_with(&self, first: &Self, lane: usize) -> Result<Option<bool>, Error> {
        match (self.to.get(), first.to.get()) {
            (Way::Shm, Way::Shm) => self.shm.reserve_with(&first.shm, lane),
            _ => Ok(Some(false)),
        }
    }

    #[inline]
    fn reserve_open(&self, lane: usize, len: usize) -> Result<Option<Region<'_>>, Error> {
        match self.to.get() {
            Way::Shm => self.shm.reserve_open(lane, len),
            _ => self.reserve(lane, len),
        }
    }

    #[inline]
    fn answer(&self, lane: usize, len: usize) -> Option<Region<'_>> {
        match (self.to.get(), self.from.get()) {
            (Way::Shm, Way::Shm) => self.shm.answer(lane, len),
            _ => None,
        }
    }

    #[inline]
    fn is_far(&self) -> bool {
        matches!(self.to.get(), Way::Shm) && self.shm.is_far()
    }

    #[inline(always)] // in the path of each short call
    fn commit(&self, lane: usize, header: Header) {
        match self.to.get() {
            Way::Tcp => self.over_tcp().commit(lane, header),
            Way::Plugin => self.over_plugin().commit(lane, header),
            Way::None | Way::Shm => self.shm.commit(lane, header),
        }
    }

    #[inline]
    fn has_credit(&self, lane: usize, len: usize) -> Option<bool> {
        match self.to.get() {
            Way::Shm => self.shm.has_credit(lane, len),
            _ => None,
        }
    }

    #[inline(always)] // in the path of each short call
    fn send(&self, lane: usize, header: Header, body: &Region<'_>) -> Option<bool> {
        match self.to.get() {
            Way::Tcp => self.over_tcp().send(lane, header, body),
            Way::Plugin => self.over_plugin().send(lane, header, body),
            Way::None | Way::Shm => self.shm.send(lane, header, body),
        }
    }

    #[inline(always)] // in the path of each short call
    fn send_shown(&self, lane: usize, header: Header, body: &Region<'_>) -> Option<bool> {
        match self.to.get() {
            Way::Shm => self.shm.send_shown(lane, header, body),
            _ => self.send(lane, header, body),
        }
    }

    #[inline]
    fn commit_shown(&self, lane: usize, header: Header) {
        match self.to.get() {
            Way::Shm => self.shm.commit_shown(lane, header),
            _ => self.commit(lane, header),
        }
    }

    #[inline(always)] // in the path of each short call
    fn take_shown(&self, lane: usize, header: &Header, len: usize, looks: u32) -> Option<u64> {
        match self.from.get() {
            Way::Shm => self.shm.take_shown(lane, header, len, looks),
            _ => None,
        }
    }

    #[inline]
    fn reach(&self, body: &Region<'_>) -> Reach {
        match self.to.get() {
            Way::None => Reach::No,
            Way::Tcp => Reach::Sending,
            Way::Plugin => self.over_plugin().reach(body),
            Way::Shm => self.shm.reach(body),
        }
    }

    #[inline]
    fn offer(&self, lane: usize, header: Header, body: Region<'_>) -> Result<Option<Ticket>, Error> {
        match self.to.get() {
            Way::Tcp => self.over_tcp().offer(lane, header, body),
            Way::Plugin => self.over_plugin().offer(lane, header, body),
            Way::None | Way::Shm => self.shm.offer(lane, header, body),
        }
    }

    fn offer_pages(&self, lane: usize, header: Header, body: Region<'_>) -> Result<Option<Ticket>, Error> {
        match self.to.get() {
            Way::Tcp => self.over_tcp().offer_pages(lane, header, body),
            _ => self.offer(lane, header, body),
        }
    }

    #[inline]
    fn taken(&self, lane: usize, ticket: Ticket) -> bool {
        match self.to.get() {
            Way::Tcp => self.over_tcp().taken(lane, ticket),
            Way::Plugin => self.over_plugin().taken(lane, ticket),
            Way::None | Way::Shm => self.shm.taken(lane, ticket),
        }
    }

    #[inline]
    fn peek(&self, lane: usize) -> Result<Option<Message<'_>>, Error> {
        match self.from.get() {
            Way::Tcp => self.over_tcp().peek(lane),
            Way::Plugin => self.over_plugin().peek(lane),
            Way::None | Way::Shm => self.shm.peek(lane),
        }
    }

    #[inline]
    fn land(&self, lane: usize, header: &Header, target: &Region<'_>) {
        match self.from.get() {
            Way::Tcp => self.over_tcp().land(lane, header, target),
            Way::Plugin => self.over_plugin().land(lane, header, target),
            Way::None | Way::Shm => {}
        }
    }

    #[inline]
    fn comes_alone(&self) -> bool {
        self.from.get() == Way::Shm
    }

    #[inline(always)] // in the path of each short call
    fn expect(&self, lane: usize, header: &Header, len: usize) -> Expected<'_> {
        match self.from.get() {
            Way::Tcp => self.over_tcp().expect(lane, header, len),
            Way::Plugin => self.over_plugin().expect(lane, header, len),
            Way::None | Way::Shm => self.shm.expect(lane, header, len),
        }
    }

    #[inline]
    fn foresee(&self, lane: usize, len: usize) {
        if let Way::Shm = self.from.get() {
            self.shm.foresee(lane, len);
        }
    }

    #[inline]
    fn take(&self, lane: usize, target: &Region<'_>) -> Result<bool, Error> {
        match self.from.get() {
            Way::Tcp => self.over_tcp().take(lane, target),
            Way::Plugin => self.over_plugin().take(lane, target),
            Way::None | Way::Shm => self.shm.take(lane, target),
        }
    }

    #[inline]
    fn pin(&self, lane: usize, len: usize) -> Result<Option<Pinned<'_>>, Error> {
        match self.from.get() {
            Way::Tcp => self.over_tcp().pin(lane, len),
            Way::Plugin => self.over_plugin().pin(lane, len),
            Way::None | Way::Shm => self.shm.pin(lane, len),
        }
    }

    #[inline(always)] // in the path of each short call
    fn release(&self, lane: usize) {
        match self.from.get() {
            Way::Tcp => self.over_tcp().release(lane),
            Way::Plugin => self.over_plugin().release(lane),
            Way::None | Way::Shm => self.shm.release(lane),
        }
    }
}
