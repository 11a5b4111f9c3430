//! Transports: links between two ranks, their lanes, and the contract that each kind fulfils.
//!
//! What a backend owes:
//!
//! - A link has [`LANES`] lanes in each direction. A lane is a first-in first-out queue of messages with credits of
//!   its own: [`Link::reserve`] gives room only when the receiver has room in that lane, so no lane ever waits for
//!   another. A sender hears of releases when there are half as many as a lane holds, or sooner.
//! - Messages of a lane arrive complete, once, unchanged and in order. A message carries a [`Header`] of 16 bytes
//!   that mean nothing to the transport, and a body of at most [`Caps::max_message`] bytes.
//! - Nothing blocks, except the making of a link. Nothing here waits, retries for ever or reads a clock; that is the
//!   executor's policy. What needs a rank's hand to move is moved by [`Wires::progress`].
//! - Whatever a rank may be asleep for (a message, a credit, a link that is made) rings its bell.
//! - A link's two directions are independent: one is there without the other, and each rank makes the one that it
//!   sends on. Sending is done on what [`Wires::to`] gives, receiving on what [`Wires::from`] gives.
//! - A received body that is here may be read where it lies until it is released; a reserved one written until it is
//!   committed. It stays mapped, though not unchanged, as long as the link: using it later gives wrong data, never a fault.
//! - Where the next message of a lane is wanted ([`Link::land`]) anything may lie from when it was sent until it has arrived.
//! - Reserved bodies begin at multiples of 8, those of 128 bytes and more at multiples of 64, and so do they where they
//!   are received. An offered body stays where its sender has it: it is read there ([`Link::pin`]), or brought ([`Link::take`]).
//! - What comes from the peer (offsets, lengths) is read once and checked before it is used.
//! - The death of the peer is not a transport's to find: the control thread does, for all of them.

pub(crate) mod bench;
#[cfg(test)]
mod conformance;
pub(crate) mod inproc;
pub(crate) mod links;
pub(crate) mod plugin;
pub(crate) mod shm;
#[cfg(test)]
pub(crate) mod sim;
pub(crate) mod tcp;

use crate::{mem::Region, types::Error};
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Relaxed, Release, SeqCst},
    fence,
};

/// Lanes of a link in each direction: those of collective calls, and two of messages between two ranks.
pub(crate) const LANES: usize = CALL_LANES + 2;

/// Lanes of collective calls, the first ones. Each running channel of a call has one.
pub(crate) const CALL_LANES: usize = 8;

/// Bytes of the largest body of a message, on links of any kind: the tiles of a call are the same on all ranks, whatever
/// joins them.
pub(crate) const MAX_MESSAGE: usize = 256 << 10;

/// Sixteen bytes of the upper floors' that travel with each message.
pub(crate) type Header = [u32; 4];

/// A header as two words, the lower half of each first: what is put together in registers and read again a moment later is
/// written and read in these pieces. To read more at once than was written waits until the writes have left for the cache, and
/// with them all messages that were written before.
pub(crate) type Words = [u64; 2];

/// The header that these words are.
#[inline(always)]
pub(crate) fn header_of(words: Words) -> Header {
    let [first, count] = words;
    [
        first as u32,
        (first >> 32) as u32,
        count as u32,
        (count >> 32) as u32,
    ]
}

/// The words that a header is.
pub(crate) fn words_of(header: Header) -> Words {
    let [number, what, low, high] = header.map(u64::from);
    [number | what << 32, low | high << 32]
}

/// What a link can do, asked before it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caps {
    /// The transport's name, for reports.
    pub(crate) name: &'static str,
    /// The largest body of one message, in bytes.
    pub(crate) max_message: usize,
}

/// How a peer gets at a piece of this rank's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Not at all: it is sent a copy.
    No,
    /// By [`Link::take`] alone.
    Taking,
    /// It is sent from where it lies, by this rank's hand: the peer gets a copy, and this rank makes none.
    Sending,
    /// It reads it where it lies.
    Reading,
}

/// The oldest message of a lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message<'l> {
    pub(crate) header: Header,
    pub(crate) body: Body<'l>,
}

/// Where the body of a message lies.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Body<'l> {
    /// It may be read here.
    Here(Region<'l>),
    /// So many bytes with the sender, which may be read there by [`Link::pin`].
    Lent(usize),
    /// So many bytes with the sender, which this rank reaches by [`Link::take`] alone.
    There(usize),
}

impl<'l> Body<'l> {
    /// Bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Body::Here(region) => region.len(),
            Body::Lent(len) | Body::There(len) => *len,
        }
    }

    /// The body, if it may be read here.
    #[inline]
    pub(crate) fn here(&self) -> Option<Region<'l>> {
        match self {
            Body::Here(region) => Some(*region),
            Body::Lent(_) | Body::There(_) => None,
        }
    }
}

/// A body that is being read where it lies with its sender. A sender that wants its memory back may wait for the end of that:
/// what is done meanwhile is bounded, and waits for nobody.
pub(crate) struct Pinned<'l> {
    body: Region<'l>,
    /// Not 0 while it is read, where the sender waits for that.
    reading: Option<&'l AtomicU32>,
    /// Not 0 once the sender has withdrawn what it had offered.
    withdrawn: &'l AtomicU32,
}

impl<'l> Pinned<'l> {
    /// Begins to read a body that `body` finds; `None` when it was withdrawn.
    fn new<E>(
        body: impl FnOnce() -> Result<Region<'l>, E>,
        reading: Option<&'l AtomicU32>,
        withdrawn: &'l AtomicU32,
    ) -> Result<Option<Self>, E> {
        if let Some(reading) = reading {
            reading.store(1, Relaxed);
            // Either this sees that it was withdrawn, or who withdraws it sees that it is read.
            fence(SeqCst);
        }
        // From here on the end of the reading is told, whatever happens.
        let mut pinned = Pinned {
            body: Region::empty(),
            reading,
            withdrawn,
        };
        if withdrawn.load(Relaxed) != 0 {
            return Ok(None);
        }
        pinned.body = body()?;
        Ok(Some(pinned))
    }

    /// What is read.
    #[inline]
    pub(crate) fn body(&self) -> Region<'_> {
        self.body
    }

    /// Ends it. `false` when what was read may have been something else, because the sender has withdrawn it meanwhile.
    pub(crate) fn end(self) -> bool {
        if self.reading.is_some() {
            return true; // the sender waits
        }
        // If what was read is what the sender's caller wrote after the withdrawal, then that is seen now.
        fence(SeqCst);
        self.withdrawn.load(Relaxed) == 0
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        if let Some(reading) = self.reading {
            reading.store(0, Release); // pairs with the Acquire of who withdraws: all is read
        }
    }
}

/// What lies on a lane where one message is awaited: see [`Link::expect`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum Expected<'l> {
    Nothing,
    /// The body of that message, which may be read here.
    Body(Region<'l>),
    /// Anything else: [`Link::peek`] says what, and [`Link::take`] brings what lies elsewhere.
    Other,
}

/// Names an offered message of one lane: the how-manieth message it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket(pub(crate) u32);

/// One rank's end of the link to another rank. See the module's text for what an implementation owes.
///
/// Methods take `&self` so that the regions they lend out can be held side by side; a link belongs to one thread at a
/// time.
pub(crate) trait Link {
    fn caps(&self) -> Caps;

    /// Room for a message of `len` bytes at the end of `lane`, or `None` as long as the lane has no credit. Asking
    /// again for as many bytes before the commit gives the same room; for another number it gives that much, and what
    /// was written is lost. It is the lane's next message: nothing else is sent on the lane before the commit.
    ///
    /// # Errors
    /// When `len` is more than [`Caps::max_message`], or the peer is found to be broken.
    fn reserve(&self, lane: usize, len: usize) -> Result<Option<Region<'_>>, Error>;

    /// [`Link::reserve`] for a message with the same body as the one that was reserved last on that lane of `first`, another link
    /// of this rank's: of what is written there the receivers of both read the one copy. `Some(false)` if they cannot: then
    /// nothing was reserved.
    ///
    /// # Errors
    /// As [`Link::reserve`].
    #[inline]
    fn reserve_with(&self, _first: &Self, _lane: usize) -> Result<Option<bool>, Error> {
        Ok(Some(false))
    }

    /// [`Link::reserve`] of room that the peer may answer in ([`Link::answer`]), if there is such room. Until its answer, or the
    /// message that it sends instead, has been released, no more is opened on the lane.
    ///
    /// # Errors
    /// As [`Link::reserve`].
    #[inline]
    fn reserve_open(&self, lane: usize, len: usize) -> Result<Option<Region<'_>>, Error> {
        self.reserve(lane, len)
    }

    /// Reserves for a message of `len` bytes to the peer the room of the oldest message of `lane` that came from it, if that is open
    /// and as long, and the lane has a credit: what is written there is read there again, and no other lines go to and fro. It may
    /// be written as soon as the message has been read. [`Link::reserve`], asked instead, has the message lie elsewhere.
    #[inline]
    fn answer(&self, _lane: usize, _len: usize) -> Option<Region<'_>> {
        None
    }

    /// Whether what is written into reserved rooms had better go past the caches, if it is long.
    #[inline]
    fn is_far(&self) -> bool {
        false
    }

    /// Sends what was written into the reserved room. Non-temporal stores must have been fenced.
    ///
    /// # Panics
    /// When nothing is reserved on the lane.
    fn commit(&self, lane: usize, header: Header);

    /// Whether the lane has a credit for a message with a body of `len` bytes: if it has, and they are no more than
    /// [`shm::INLINE`], [`Link::send`] sends it. `None` where that is found by sending.
    #[inline]
    fn has_credit(&self, _lane: usize, _len: usize) -> Option<bool> {
        None
    }

    /// Sends a copy of `body`: [`Link::reserve`], the copy, and [`Link::commit`] in one. `Some(false)` as long as the lane has no
    /// credit; `None` for what is wrong, which [`Link::reserve`] tells. What was reserved on the lane and not committed is given up.
    #[inline]
    fn send(&self, lane: usize, header: Header, body: &Region<'_>) -> Option<bool> {
        match self.reserve(lane, body.len()) {
            Ok(Some(room)) => room.copy_from(body),
            Ok(None) => return Some(false),
            Err(_) => return None,
        }
        self.commit(lane, header);
        Some(true)
    }

    /// [`Link::send`] of a message that the peer sends one like back for, so that each is the only one of its call: it may be shown
    /// where [`Link::take_shown`] finds it sooner.
    #[inline]
    fn send_shown(&self, lane: usize, header: Header, body: &Region<'_>) -> Option<bool> {
        self.send(lane, header, body)
    }

    /// [`Link::commit`] of such a message.
    #[inline]
    fn commit_shown(&self, lane: usize, header: Header) {
        self.commit(lane, header);
    }

    /// Takes the oldest message of `lane`, if it has this header and so many bytes, and is seen at one of so many looks where
    /// [`Link::send_shown`] shows it: its body, which is the first bytes of the word, and it is released. `None` says nothing
    /// of whether there is one.
    #[inline]
    fn take_shown(&self, _lane: usize, _header: &Header, _len: usize, _looks: u32) -> Option<u64> {
        None
    }

    /// How the peer would get at `body` if it were offered. What it can read it can read as long as the memory is there; whether it
    /// had better take something follows what the link learns of how fast copies are.
    fn reach(&self, _body: &Region<'_>) -> Reach {
        Reach::No
    }

    /// Sends `body` without copying it: it must stay mapped and unchanged until [`Link::taken`] says so, or all offers have
    /// been withdrawn ([`links::Links::withdraw`]). `None` as long as the lane has no credit, or
    /// where the peer can no longer [`reach`](Link::reach) it. Only what it can. What was reserved on the lane and not committed is given up.
    fn offer(&self, lane: usize, header: Header, body: Region<'_>) -> Result<Option<Ticket>, Error>;

    /// [`Link::offer`] of a long body, for whoever would rather wait until all of it has come than have the system copy it on this
    /// side, where that can be.
    fn offer_pages(&self, lane: usize, header: Header, body: Region<'_>) -> Result<Option<Ticket>, Error> {
        self.offer(lane, header, body)
    }

    /// Whether the receiver has released the message that was offered as `ticket`; where this rank sends it
    /// ([`Reach::Sending`]), whether all of it has been sent, or is lost. Its memory is the caller's own again then.
    fn taken(&self, lane: usize, ticket: Ticket) -> bool;

    /// The oldest message of `lane`, if one has arrived; the same one until it is released.
    ///
    /// # Errors
    /// When the peer is found to be broken.
    fn peek(&self, lane: usize) -> Result<Option<Message<'_>>, Error>;

    /// Says where the body of the next message of `lane`, none of which has arrived, is wanted if it has this header and is as
    /// long as `target`: a link that brings bodies by this rank's hand may bring it straight there, so that [`Link::peek`] shows
    /// it there. Nobody else uses `target` until that message has been released, or [`links::Links::withdraw`].
    fn land(&self, _lane: usize, _header: &Header, _target: &Region<'_>) {}

    /// Whether messages come without [`Wires::progress`], so that it may be worth looking for one time and again.
    #[inline]
    fn comes_alone(&self) -> bool {
        false
    }

    /// Looks for a message with this header and so many bytes, as the oldest of `lane`.
    #[inline]
    fn expect(&self, lane: usize, header: &Header, len: usize) -> Expected<'_> {
        match self.peek(lane) {
            Ok(None) => Expected::Nothing,
            Ok(Some(Message { header: found, body })) if found == *header && body.len() == len => {
                body.here().map_or(Expected::Other, Expected::Body)
            }
            _ => Expected::Other,
        }
    }

    /// The oldest message of `lane`, of so many bytes, is likely there already and wanted soon.
    #[inline]
    fn foresee(&self, _lane: usize, _len: usize) {}

    /// Copies the body of the oldest message of `lane`, which [`Link::peek`] has shown, into `target`, of the same length;
    /// it may be asked again. `false` when it is not to be had any more, because its sender has withdrawn it or is gone: then
    /// `target` holds anything, and the message is as good as one that never came. Why, others find.
    ///
    /// # Errors
    /// When the peer is found to be broken.
    fn take(&self, lane: usize, target: &Region<'_>) -> Result<bool, Error> {
        let body = self.peek(lane)?.and_then(|message| message.body.here());
        if let Some(body) = &body {
            target.copy_from(body);
        }
        Ok(body.is_some())
    }

    /// Begins to read the body of the oldest message of `lane` where it lies, which [`Link::peek`] has shown to be
    /// [`Body::Lent`] and of `len` bytes. `None` as for [`Link::take`].
    ///
    /// # Errors
    /// When the peer is found to be broken.
    fn pin(&self, _lane: usize, _len: usize) -> Result<Option<Pinned<'_>>, Error> {
        Ok(None)
    }

    /// Gives up the oldest message of `lane`, whose room the sender may use again.
    fn release(&self, lane: usize);
}

/// A rank's links as the executor sees them.
pub(crate) trait Wires {
    type Link: Link;

    /// The link to send to `peer` on, or `None` while it is being made; the first call begins that, and may block until
    /// the peer's process has answered.
    fn to(&self, peer: usize) -> Result<Option<&Self::Link>, Error>;

    /// The link on which `peer` sends to this rank, or `None` as long as `peer` has not made it.
    fn from(&self, peer: usize) -> Result<Option<&Self::Link>, Error>;

    /// The link of [`Wires::to`], if it is there.
    #[inline]
    fn made_to(&self, peer: usize) -> Option<&Self::Link> {
        self.to(peer).ok().flatten()
    }

    /// The link of [`Wires::from`], if it is there.
    #[inline]
    fn made_from(&self, peer: usize) -> Option<&Self::Link> {
        self.from(peer).ok().flatten()
    }

    /// Moves on what is under way and needs this rank's hand: without it nothing comes in or goes out. Where the hardware
    /// does it all there is nothing to do. An error is about the link to the rank beside it.
    fn progress(&self) -> Result<(), (usize, Error)> {
        Ok(())
    }

    /// Whether something that was committed or released still needs [`Wires::progress`]. Nobody gives up the links while
    /// something does, unless another goes on with them.
    fn unsent(&self) -> bool {
        false
    }

    /// The ranks for which that is.
    fn unsent_to(&self) -> Vec<usize> {
        Vec::new()
    }
}
