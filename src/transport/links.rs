//! A rank's links to all others, made on first use.

mod any;

pub(crate) use any::{AnyLink, Direction, Way};

use super::{
    Link, Reach, Wires,
    plugin::{self, Wire},
    shm::{self, Bell, Lease, Mapping, Ways},
    tcp::{self, Hub},
};
use crate::{
    mem::{Region, shared},
    net::{Connection, Parcel},
    sys,
    types::{Cause, Error},
};
use std::{
    cell::{LazyCell, OnceCell, RefCell},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};
use tracing::debug;

/// Carries parcels between the transports of two ranks: implemented by the floor that knows the peers' addresses.
///
/// Neither rank's peer itself need do anything: it may be waiting for something else, while its process answers.
pub(crate) trait Opener: Send {
    /// Hands `parcel` to `peer` and returns the peer's welcome ([`Bell::welcome`]); `None` when descriptors cannot be
    /// handed to it, but a connection can. Blocks until the peer's process took it, its death, a failure of the
    /// communicator, or the deadline of operations.
    fn open(&self, peer: usize, parcel: Parcel) -> Result<Option<Parcel>, Error>;

    /// Makes `wanted` connections to `peer`, or fewer where more do not come about, or as many as there are ways to it that are worth it. The peer gets the other end of
    /// each in a parcel with what `about` makes of its number and how many there are. Blocks as [`Opener::open`].
    fn connect(
        &self,
        peer: usize,
        _wanted: Option<usize>,
        _about: &dyn Fn(usize, usize) -> Vec<u8>,
    ) -> Result<Vec<Connection>, Error> {
        Err(Error::internal(format!(
            "there are no connections to rank {peer}"
        )))
    }

    /// The process of `peer`, as it is numbered here, if this process can see it.
    fn process(&self, _peer: usize) -> Option<u32> {
        None
    }

    /// The parcels that have come in since the last time, with the ranks that sent them. It is asked again and again by
    /// ranks that wait: where nothing came it costs no more than the load of a word. Whoever puts a parcel there wakes
    /// the rank's bell afterwards ([`Bell::wake`]).
    fn arrivals(&self) -> Vec<(usize, Parcel)>;

    /// What a direction of the link with `peer` goes over from now on, for whoever asks.
    fn note(&self, _peer: usize, _direction: Direction, _way: Way) {}

    /// Wakes the rank's bell, once, when something happens in `watched`, an epoll instance of the rank's; at once if
    /// something has. Without it sleepers look up by themselves, now and then.
    fn wake_when_ready(&self, _watched: BorrowedFd<'_>) -> Result<(), Error> {
        Ok(())
    }
}

impl<T: Opener + Sync + ?Sized> Opener for Arc<T> {
    fn open(&self, peer: usize, parcel: Parcel) -> Result<Option<Parcel>, Error> {
        (**self).open(peer, parcel)
    }

    fn connect(
        &self,
        peer: usize,
        wanted: Option<usize>,
        about: &dyn Fn(usize, usize) -> Vec<u8>,
    ) -> Result<Vec<Connection>, Error> {
        (**self).connect(peer, wanted, about)
    }

    fn process(&self, peer: usize) -> Option<u32> {
        (**self).process(peer)
    }

    fn arrivals(&self) -> Vec<(usize, Parcel)> {
        (**self).arrivals()
    }

    fn note(&self, peer: usize, direction: Direction, way: Way) {
        (**self).note(peer, direction, way);
    }

    fn wake_when_ready(&self, watched: BorrowedFd<'_>) -> Result<(), Error> {
        (**self).wake_when_ready(watched)
    }
}

/// Which transports a rank's links may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Shared memory where it can be shared, else a plugin's wire if there is one, else TCP.
    Auto,
    Shm,
    Tcp,
    /// A plugin's wire for all.
    Plugin,
}

/// Whether a rank reads long messages straight from its peers' memory, and lets them read its own: cross-memory attach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Attach {
    /// Where the system lets it.
    #[default]
    Auto,
    Off,
    /// Where the system lets it, in all calls and not only in those that gain by it.
    On,
    /// Where the system lets it; and this process lets any other of its user, where that is asked.
    Any,
}

/// A rank's links. They belong to one thread at a time.
pub(crate) struct Links {
    rank: usize,
    choice: Choice,
    attach: Attach,
    /// Whether ranks read each other's memory by loads, where they can.
    direct: bool,
    communicator: u64,
    /// How TCP links are made.
    tcp: tcp::Settings,
    /// What joins ranks in TCP's stead.
    wire: Option<Arc<Wire>>,
    peers: Vec<AnyLink>,
    /// Where long messages of shared memory lie.
    lease: Arc<Lease>,
    opener: Box<dyn Opener>,
    bell: Arc<Bell>,
    /// Made with the first connection.
    hub: OnceCell<Arc<Hub>>,
    /// Made with the first link by the wire.
    wire_hub: OnceCell<Arc<plugin::Hub>>,
    /// What [`Links::moves_on`] met, until it is told.
    failure: RefCell<Option<(usize, Error)>>,
    /// Memory that came from these peers, and that no link has yet.
    handed: RefCell<Vec<(usize, Mapping)>>,
    /// Descriptors that peers have given, for whom they concern.
    given: RefCell<Vec<(usize, OwnedFd)>>,
}

impl Links {
    /// The links of `rank` to the others of `ranks`: none is made yet.
    pub(crate) fn new(rank: usize, ranks: usize, opener: Box<dyn Opener>, bell: Arc<Bell>) -> Self {
        Links {
            rank,
            choice: Choice::Auto,
            attach: Attach::Auto,
            direct: true,
            communicator: 0,
            tcp: tcp::Settings::default(),
            wire: None,
            peers: (0..ranks).map(|_| AnyLink::default()).collect(),
            lease: Arc::default(),
            opener,
            bell,
            hub: OnceCell::new(),
            wire_hub: OnceCell::new(),
            failure: RefCell::default(),
            handed: RefCell::default(),
            given: RefCell::default(),
        }
    }

    /// The same over `choice`, and TCP links as `tcp` says.
    pub(crate) fn with_transport(mut self, choice: Choice, tcp: tcp::Settings) -> Self {
        (self.choice, self.tcp) = (choice, tcp);
        self
    }

    /// The same, by a plugin's wire in TCP's stead.
    pub(crate) fn with_wire(mut self, wire: Option<Arc<Wire>>) -> Self {
        self.wire = wire;
        self
    }

    /// The same, with what is told of attaching.
    pub(crate) fn with_attach(mut self, attach: Attach) -> Self {
        if attach == Attach::Any {
            sys::attach::allow_any();
        }
        self.attach = attach;
        self
    }

    /// The same, where ranks read each other's memory by loads or do not; `communicator` is a number by which theirs differs from
    /// others.
    pub(crate) fn with_direct(mut self, direct: bool, communicator: u64) -> Self {
        (self.direct, self.communicator) = (direct, communicator);
        self
    }

    /// The same, where bodies are written as it suits the processor, and this rank has a core of its own or has not. Which way is
    /// faster is not asked where all long messages are taken.
    pub(crate) fn of_processor(mut self, has_own_core: bool) -> Self {
        if self.attach != Attach::On {
            self.lease = Arc::new(Lease::of_processor(has_own_core));
        }
        self
    }

    /// What may be done in the direction from one rank to another.
    fn ways(&self, from: usize, to: usize) -> Ways {
        Ways {
            attach: self.attach != Attach::Off,
            direct: self.direct,
            link: [self.communicator, from as u64, to as u64],
        }
    }

    /// Gets ready for long messages: takes in memory that peers have handed over, and hands over that in which `buffers` lie, on the
    /// links that are there: to all peers, or the one to which the messages go. Each is given each memory once, which may block as
    /// [`Wires::to`] does.
    ///
    /// # Errors
    /// About the link to the rank beside it.
    pub(crate) fn get_ready(
        &mut self,
        buffers: [&Region<'_>; 2],
        to: Option<usize>,
    ) -> Result<(), (usize, Error)> {
        self.attach_all()?;
        for (peer, mapping) in self.handed.get_mut().drain(..) {
            let what = mapping.what();
            if !self.peers[peer].shm.admit(mapping) {
                let what = format!("it handed over {what} before any link");
                return Err((
                    peer,
                    Error::Failed(Cause::Broken {
                        rank: peer as u32,
                        what,
                    }),
                ));
            }
            let (rank, ranks) = (self.rank, self.peers.len());
            debug!(rank, ranks, "link: {what} of rank {peer} is read where it lies");
        }
        if !self.direct {
            return Ok(());
        }
        let found = buffers.map(shared::find);
        let peers = to.map_or(0..self.peers.len(), |to| to..to + 1);
        for memory in found.iter().flatten() {
            let mut peers = peers.clone();
            peers.try_for_each(|peer| self.hand_over(peer, memory).map_err(|e| (peer, e)))?;
        }
        Ok(())
    }

    /// Makes `memory` known to the cards of a plugin by which there are links, if it is of a kind that they can keep.
    pub(crate) fn show_cards(&self, memory: &Region<'_>) {
        let links = self.peers.iter().filter_map(|peer| peer.plugin.get());
        links.for_each(|link| _ = link.reach(memory));
    }

    /// Hands `memory` to `peer` if there is a link to send to it by shared memory and it has use for it. One that has gone has
    /// none: whether a call needs it, the call finds.
    fn hand_over(&self, peer: usize, memory: &Arc<shared::Allocation>) -> Result<(), Error> {
        let no_descriptor = |err| Error::system("the descriptor of shared memory could not be copied", err);
        let Some(parcel) = self.peers[peer].shm.hand_over(memory).map_err(no_descriptor)? else {
            return Ok(());
        };
        self.send_put_off()?;
        let began = Instant::now();
        match self.opener.open(peer, parcel) {
            Err(e) if e.is_end_of(peer) => return Ok(()),
            handed => handed?,
        };
        let (rank, ranks, took) = (self.rank, self.peers.len(), began.elapsed());
        let (number, len) = (memory.number(), memory.len());
        debug!(
            rank,
            ranks, "link: memory #{number} of {len} bytes handed to rank {peer} in {took:.1?}"
        );
        Ok(())
    }

    /// Withdraws all that was offered and is not taken: then the memory in which it lies is the caller's own again, and no
    /// peer takes what is written there for a message. Nothing is offered any more.
    pub(crate) fn withdraw(&self) {
        for link in &self.peers {
            link.shm.withdraw();
            link.tcp.get().inspect(|link| link.withdraw());
            link.plugin.get().inspect(|link| link.withdraw());
        }
    }

    /// Nothing is under way: memory that other communicators of this process want is given back.
    #[inline]
    pub(crate) fn rest(&self) {
        if self.are_wanted() {
            // Those links whose lanes keep such pages say so again.
            self.lease.set_has_own(false);
            self.peers.iter().for_each(|link| link.shm.leave());
            self.lease.give_back();
        }
    }

    /// Whether [`Links::rest`] has something to do.
    #[inline(always)] // in the path of each short call
    pub(crate) fn are_wanted(&self) -> bool {
        self.lease.is_wanted()
    }

    /// Whether what is sent goes and comes without [`Wires::progress`].
    #[inline]
    pub(crate) fn move_alone(&self) -> bool {
        self.hub.get().is_none() && self.wire_hub.get().is_none()
    }

    /// [`Wires::progress`] for who can not say now what went wrong: `false` then, and the next progress says it.
    pub(crate) fn moves_on(&self) -> bool {
        match self.progress() {
            Ok(()) => true,
            Err(failure) => {
                self.failure.replace(Some(failure));
                false
            }
        }
    }

    /// Has the next [`Wires::progress`] look what has come, also if it sends what was put off.
    pub(crate) fn look(&self) {
        self.hub.get().inspect(|hub| hub.look());
    }

    /// Whether more has come than [`Wires::progress`] took in the last time, or was left to it.
    pub(crate) fn may_have_more(&self) -> bool {
        self.hub.get().is_some_and(|hub| hub.may_have_more())
            || self.wire_hub.get().is_some_and(|hub| hub.may_have_more())
    }

    /// Whether a peer reads messages that lie in `memory` there, or sends some that lie with itself; or takes them, if that
    /// counts as well.
    pub(crate) fn lend(&self, memory: [&Region<'_>; 2], by_taking: bool) -> bool {
        let is_dumpable = LazyCell::new(sys::attach::is_dumpable);
        let is_lent = |link: &AnyLink, body: &Region<'_>| match link.reach(body) {
            Reach::No => false,
            Reach::Taking => by_taking && *is_dumpable,
            Reach::Sending | Reach::Reading => true,
        };
        let lends = |link: &AnyLink| link.shm.may_lend() || memory.iter().any(|body| is_lent(link, body));
        self.peers.iter().any(lends)
    }

    /// Says that this rank is going to sleep. Whatever changes on a link from now on (a message, a credit, a link that a
    /// peer opens) ends the sleep; so look at everything once more before it.
    ///
    /// ```text
    /// links.arm();
    /// if nothing to do { links.doze(); }
    /// if still nothing to do { links.sleep(timeout); }
    /// links.disarm();
    /// ```
    pub(crate) fn arm(&self) -> Result<(), Error> {
        self.bell.arm();
        // A first connection that came just before is watched from here on; one that comes later rings.
        self.attach_all().map_err(|(_, e)| e)?;
        if let Some(hub) = self.wire_hub.get() {
            hub.arm(self.rank)?;
            self.opener.wake_when_ready(hub.as_fd())?;
        }
        match self.hub.get() {
            Some(hub) => self.opener.wake_when_ready(hub.as_fd()),
            None => Ok(()),
        }
    }

    /// Sleeps for a moment, so that a look after it finds what changed in the moment of [`Links::arm`] and rang no bell:
    /// see [`Bell::doze`].
    pub(crate) fn doze(&self) {
        self.bell.doze();
    }

    /// Sleeps until something changed since [`Links::arm`], or for no reason, or for `timeout`: then it is `false`.
    pub(crate) fn sleep(&self, timeout: Duration) -> bool {
        self.bell.sleep(timeout)
    }

    /// Ends what [`Links::arm`] began, whether it slept or not.
    pub(crate) fn disarm(&self) {
        self.bell.disarm();
    }

    /// Whether all long messages are left for their receivers to take, where those can, be it slower or not.
    pub(crate) fn takes_all(&self) -> bool {
        self.attach == Attach::On
    }

    /// Whether all long messages that go by TCP are sent from where they lie, where the system can, be it slower or not.
    pub(crate) fn lends_all(&self) -> bool {
        self.tcp.lends == tcp::Lends::On
    }

    /// Tells which ways the messages to each peer have gone by shared memory.
    pub(crate) fn tell(&self) {
        let (rank, ranks) = (self.rank, self.peers.len());
        for (peer, link) in self.peers.iter().enumerate() {
            if let Some(sent) = link.shm.sent() {
                debug!(rank, ranks, "link: messages to rank {peer} by shm: {sent}");
            }
            if let Some((link, sent)) = link.plugin.get().and_then(|link| Some((link, link.sent()?))) {
                let name = link.name();
                debug!(rank, ranks, "link: messages to rank {peer} by {name}: {sent}");
            }
        }
    }

    /// Bytes of address space that the links take so far. Memory is used only for the pages that messages touched.
    pub(crate) fn memory(&self) -> usize {
        self.bell.mapped() + self.peers.iter().map(AnyLink::mapped).sum::<usize>()
    }

    /// When the last connection with any peer ended.
    pub(crate) fn last_end(&self) -> Option<Instant> {
        let tcp = self.hub.get().and_then(|hub| hub.last_end());
        tcp.max(self.wire_hub.get().and_then(|hub| hub.last_end()))
    }

    /// What happened to the connections with `peer`, if they do not work any more. Whether that is its end is for others
    /// to find.
    pub(crate) fn trouble(&self, peer: usize) -> Option<(String, Instant)> {
        let link = self.peers.get(peer)?;
        let tcp = link.tcp.get().and_then(|link| link.trouble());
        tcp.or_else(|| link.plugin.get()?.trouble())
    }

    /// As if sending by TCP to `peer` on `lane` had failed.
    #[cfg(test)]
    pub(super) fn break_off(&self, peer: usize, lane: usize) {
        self.peers[peer].tcp.get().unwrap().break_off(lane);
    }

    /// The peers to which a wire has lost messages that are not given up. No other connection brings them.
    pub(crate) fn lost_to(&self) -> impl Iterator<Item = usize> {
        let may_have = self.wire_hub.get().is_some_and(|hub| hub.unsent());
        let has_lost = |link: &AnyLink| link.plugin.get().is_some_and(|link| link.has_lost());
        let peers = self.peers.iter().enumerate().filter(move |_| may_have);
        peers.filter_map(move |(peer, link)| has_lost(link).then_some(peer))
    }

    /// Whether messages of `peer` may still be under way, although it has gone: not by shared memory, where they are there
    /// as soon as they were sent.
    pub(crate) fn may_bring_more(&self, peer: usize) -> bool {
        // Its connection may have been handed over just now. What is wrong with it the next progress tells.
        if let Err(failure) = self.attach_all() {
            self.failure.replace(Some(failure));
        }
        let link = self.peers.get(peer);
        link.and_then(|link| link.tcp.get())
            .is_some_and(|link| link.may_bring_more())
            || link
                .and_then(|link| link.plugin.get())
                .is_some_and(|link| link.may_bring_more())
    }

    /// How long ago something came from `peer` by connections that are open, as far as the system says.
    pub(crate) fn silent_for(&self, peer: usize) -> Option<Duration> {
        self.peers.get(peer)?.tcp.get()?.silent_for()
    }

    /// `peer` has left, with all that it wants of what it was sent: of a wire that tells when a message is there, word of the last ones
    /// may never come. Whether some was still awaited.
    pub(crate) fn let_go(&self, peer: usize) -> bool {
        let link = self.peers.get(peer).and_then(|link| link.plugin.get());
        link.is_some_and(|link| link.let_go())
    }

    /// Makes the sending half of the link to `peer` and hands it over.
    #[cold]
    fn open(&self, peer: usize) -> Result<(), Error> {
        self.check(peer)?;
        if self.peers[peer].plugin.get().is_some_and(|link| link.is_begun()) {
            return self.attach_all().map_err(|(_, e)| e); // the answer may be there
        }
        self.send_put_off()?;
        let began = Instant::now();
        self.open_somehow(peer)?;
        if self.peers[peer].to.get() == Way::None {
            return Ok(()); // until the peer answers
        }
        self.opener.note(peer, Direction::To, self.peers[peer].to.get());
        let (rank, ranks, took) = (self.rank, self.peers.len(), began.elapsed());
        let name = self.peers[peer].caps().name;
        debug!(rank, ranks, "link: to rank {peer} by {name}, made in {took:.1?}");
        Ok(())
    }

    fn open_somehow(&self, peer: usize) -> Result<(), Error> {
        if matches!(self.choice, Choice::Auto | Choice::Shm) && self.open_shm(peer)? {
            return Ok(());
        }
        if self.choice == Choice::Shm {
            return Err(Error::Failed(Cause::Broken {
                rank: self.rank as u32,
                what: format!(
                    "it cannot share memory with rank {peer}, which is on another host or belongs to another user: use \
                     transport \"auto\" or \"tcp\""
                ),
            }));
        }
        match &self.wire {
            Some(wire) => {
                let link = self.plugin(peer, wire)?;
                link.open(|about| self.opener.connect(peer, Some(1), about))
            }
            None => self.open_tcp(peer),
        }
    }

    /// The link with `peer` by the wire, whatever of it is there.
    fn plugin(&self, peer: usize, wire: &Arc<Wire>) -> Result<&plugin::Link, Error> {
        let hub = match self.wire_hub.get() {
            Some(hub) => hub,
            None => {
                let hub = Arc::new(plugin::Hub::new(self.rank, wire)?);
                self.wire_hub.get_or_init(|| hub)
            }
        };
        let link = || Box::new(plugin::Link::new(self.rank, peer, hub.clone()));
        Ok(self.peers[peer].plugin.get_or_init(link))
    }

    /// Takes in what `peer` says of a link by the wire.
    fn attach_plugin(&self, peer: usize, parcel: Parcel) -> Result<(), Error> {
        let Some(wire) = &self.wire else {
            return Err(Error::Failed(Cause::Broken {
                rank: peer as u32,
                what: "it opened a link by a plugin, which is not used here".to_owned(),
            }));
        };
        let link = self.plugin(peer, wire)?;
        match link.hear(parcel)? {
            plugin::Heard::Sends => {
                self.peers[peer].to.set(Way::Plugin);
                self.opener.note(peer, Direction::To, Way::Plugin);
                let (rank, ranks, name) = (self.rank, self.peers.len(), wire.name());
                debug!(rank, ranks, "link: to rank {peer} by {name}");
            }
            plugin::Heard::Receives(answer) => {
                self.peers[peer].from.set(Way::Plugin);
                self.tell_from(peer, wire.name(), "");
                match self.opener.connect(peer, Some(1), &|_, _| answer.clone()) {
                    Err(e) if !e.is_end_of(peer) => return Err(e),
                    // One that is gone sends nothing more; whether that matters, the call finds.
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Whether memory could be shared with `peer`.
    fn open_shm(&self, peer: usize) -> Result<bool, Error> {
        let (opening, parcel) =
            shm::Opening::new(&self.bell, self.ways(self.rank, peer), self.lease.depth())?;
        let Some(welcome) = self.opener.open(peer, parcel)? else {
            return Ok(false);
        };
        let link = &self.peers[peer];
        let half = opening.connected(peer, &welcome, &self.bell, &self.lease)?;
        link.shm.set_outbound(half.of_process(self.opener.process(peer)));
        link.to.set(Way::Shm);
        Ok(true)
    }

    /// Gives a descriptor to `peer`, on the same host, which finds it by [`Links::given`]: for what is no link.
    ///
    /// # Errors
    /// As for a link; [`Error::Usage`] where no descriptor reaches it, but connections do.
    #[cfg(feature = "cuda")]
    pub(crate) fn give(&self, peer: usize, fd: OwnedFd) -> Result<(), Error> {
        let parcel = Parcel {
            bytes: GIVEN.to_vec(),
            fds: vec![fd],
            guard: None,
        };
        match self.opener.open(peer, parcel)? {
            Some(_) => Ok(()),
            None => Err(Error::usage(format!(
                "rank {peer} cannot be given a descriptor: its Unix socket is not reached from here"
            ))),
        }
    }

    /// A descriptor that `peer` has given, if one has come.
    ///
    /// # Errors
    /// As [`Links::progress`](Wires::progress).
    #[cfg(feature = "cuda")]
    pub(crate) fn given(&self, peer: usize) -> Result<Option<OwnedFd>, Error> {
        self.attach_all().map_err(|(_, error)| error)?;
        let mut given = self.given.borrow_mut();
        let at = given.iter().position(|(from, _)| *from == peer);
        Ok(at.map(|at| given.swap_remove(at).1))
    }

    fn open_tcp(&self, peer: usize) -> Result<(), Error> {
        let hub = self.hub()?;
        let streams = self.opener.connect(peer, self.tcp.streams, &tcp::hello)?;
        let half = tcp::Outbound::open(peer, &self.tcp, hub, streams)?;
        let link = &self.peers[peer];
        link.tcp(peer, hub).set_outbound(half);
        if link.to.get() == Way::None {
            link.to.set(Way::Tcp);
        }
        Ok(())
    }

    /// Attaches the receiving halves that have come in; then the link from `peer` may be there.
    fn await_link(&self, peer: usize) -> Result<Option<&AnyLink>, Error> {
        self.check(peer)?;
        self.attach_all().map_err(|(_, e)| e)?;
        Ok(self.peers.get(peer).filter(|link| link.from.get() != Way::None))
    }

    #[inline]
    fn attach_all(&self) -> Result<(), (usize, Error)> {
        for (sender, parcel) in self.opener.arrivals() {
            self.attach(sender, parcel).map_err(|e| (sender, e))?;
        }
        Ok(())
    }

    #[cold]
    fn attach(&self, peer: usize, parcel: Parcel) -> Result<(), Error> {
        self.check(peer)?;
        let link = &self.peers[peer];
        if tcp::is_hello(&parcel.bytes) {
            let arrival = tcp::Arrival::of(peer, parcel)?;
            if link.tcp(peer, self.hub()?).add_inbound(arrival)? && link.from.get() == Way::None {
                link.from.set(Way::Tcp);
                self.tell_from(peer, tcp::CAPS.name, "");
            }
        } else if plugin::is_greeting(&parcel.bytes) {
            self.attach_plugin(peer, parcel)?;
        } else if Mapping::is_hello(&parcel.bytes) {
            match Mapping::of(peer, &parcel)? {
                Ok(mapping) => self.handed.borrow_mut().push((peer, mapping)),
                Err(err) => self.tell_from(
                    peer,
                    "copies",
                    &format!(", as its memory cannot be mapped: {err}"),
                ),
            }
        } else if parcel.bytes == GIVEN {
            let fds = parcel.fds.into_iter().map(|fd| (peer, fd));
            self.given.borrow_mut().extend(fds);
        } else {
            let half = shm::Inbound::attach(peer, &parcel, &self.bell, self.ways(peer, self.rank))?;
            let long = half.long_messages();
            // A peer that could share its memory sends its messages there; a connection is for credits then.
            link.tcp.get().inspect(|tcp| tcp.withdraw_landings());
            if link.from.replace(Way::Shm) == Way::Shm || !link.shm.set_inbound(half) {
                return Err(Error::Failed(Cause::Broken {
                    rank: peer as u32,
                    what: format!("it opened a second link to rank {}", self.rank),
                }));
            }
            self.tell_from(peer, shm::CAPS.name, &format!("; long messages are {long}"));
        }
        Ok(())
    }

    fn tell_from(&self, peer: usize, name: &str, more: &str) {
        self.opener
            .note(peer, Direction::From, self.peers[peer].from.get());
        let (rank, ranks) = (self.rank, self.peers.len());
        debug!(rank, ranks, "link: from rank {peer} by {name}{more}");
    }

    #[cfg(test)]
    pub(super) fn attach_for_test(&self, peer: usize, parcel: Parcel) -> Result<(), Error> {
        self.attach(peer, parcel)
    }

    fn hub(&self) -> Result<&Arc<Hub>, Error> {
        if let Some(hub) = self.hub.get() {
            return Ok(hub);
        }
        let hub = Arc::new(Hub::new()?);
        Ok(self.hub.get_or_init(|| hub))
    }

    /// Goes on with all connections that have something to do.
    fn progress_connections(&self, hub: &Hub) -> Result<(), (usize, Error)> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        self.attach_all()?; // credits may come from a peer of which nothing else is awaited
        for event in hub.ready().map_err(|e| (self.rank, e))? {
            self.progress_connection(event)?;
        }
        if hub.owing() {
            self.pay()?;
        }
        Ok(())
    }

    fn progress_connection(&self, event: tcp::Event) -> Result<(), (usize, Error)> {
        let peer = event.peer();
        match self.peers.get(peer).and_then(|link| link.tcp.get()) {
            Some(link) => link.progress(event).map_err(|e| (peer, e)),
            None => Ok(()),
        }
    }

    /// Sends what was put off, for who waits before the next [`Wires::progress`].
    fn send_put_off(&self) -> Result<(), Error> {
        let put_off = self.hub.get().map(|hub| hub.take_put_off());
        let mut put_off = put_off.into_iter().flatten();
        put_off.try_for_each(|event| self.progress_connection(event).map_err(|(_, e)| e))
    }

    /// Goes on with all that the wire has to do.
    fn progress_wire(&self, hub: &plugin::Hub) -> Result<(), (usize, Error)> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        self.attach_all()?; // a peer may want an answer, or have given one
        let link = |peer: usize| self.peers.get(peer)?.plugin.get().map(|link| &**link);
        hub.progress(link, |peer, error| (peer, error), self.rank)?;
        if hub.was_full() {
            self.peers
                .iter()
                .filter_map(|link| link.plugin.get())
                .for_each(|link| link.flush());
        }
        Ok(())
    }

    /// Sends the credits for which there is no sending half yet.
    #[cold]
    fn pay(&self) -> Result<(), (usize, Error)> {
        for (peer, link) in self.peers.iter().enumerate() {
            if let Some(link) = link.tcp.get().filter(|link| link.owes()) {
                let opened = match link.sends() {
                    true => Ok(()),
                    false => self.open_tcp(peer),
                };
                match opened {
                    Ok(()) => link.pay(),
                    Err(e) if e.is_end_of(peer) => link.forget_debts(),
                    Err(e) => return Err((peer, e)),
                }
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

/// What parcels hold whose descriptor is for something else than a link.
const GIVEN: &[u8] = b"ccl-given\0\0\0\0\0\0\x01";

impl Drop for Links {
    /// Senders whose links this rank has not looked at hear that nobody will: else they would keep what they sent for ever.
    fn drop(&mut self) {
        for (sender, parcel) in self.opener.arrivals() {
            if !plugin::is_greeting(&parcel.bytes) {
                let _ = self.attach(sender, parcel);
            }
        }
    }
}

impl Wires for Links {
    type Link = AnyLink;

    #[inline]
    fn to(&self, peer: usize) -> Result<Option<&AnyLink>, Error> {
        match self.peers.get(peer) {
            Some(link) if link.to.get() != Way::None => Ok(Some(link)),
            _ => self.open(peer).map(|()| self.made_to(peer)),
        }
    }

    #[inline]
    fn from(&self, peer: usize) -> Result<Option<&AnyLink>, Error> {
        match self.peers.get(peer) {
            Some(link) if link.from.get() != Way::None => Ok(Some(link)),
            _ => self.await_link(peer),
        }
    }

    #[inline]
    fn made_to(&self, peer: usize) -> Option<&AnyLink> {
        self.peers.get(peer).filter(|link| link.to.get() != Way::None)
    }

    #[inline]
    fn made_from(&self, peer: usize) -> Option<&AnyLink> {
        self.peers.get(peer).filter(|link| link.from.get() != Way::None)
    }

    #[inline]
    fn progress(&self) -> Result<(), (usize, Error)> {
        if let Some(hub) = self.wire_hub.get() {
            self.progress_wire(hub)?;
        }
        match self.hub.get() {
            Some(hub) => self.progress_connections(hub),
            None => Ok(()),
        }
    }

    #[inline]
    fn unsent(&self) -> bool {
        self.hub.get().is_some_and(|hub| hub.unsent()) || self.wire_hub.get().is_some_and(|hub| hub.unsent())
    }

    fn unsent_to(&self) -> Vec<usize> {
        let unsent = |link: &AnyLink| {
            link.tcp.get().is_some_and(|link| link.unsent())
                || link.plugin.get().is_some_and(|link| link.unsent())
        };
        let peers = self.peers.iter().enumerate();
        peers
            .filter(|(_, link)| unsent(link))
            .map(|(peer, _)| peer)
            .collect()
    }
}
