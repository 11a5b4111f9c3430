//! The receiving half of a link.

use super::{
    DEPTH, Event, Hub, Outbound, broken,
    buffer::{Place, Slots},
    frame::{Head, heard},
};
use crate::{
    mem::Region,
    net::{ALTERED, Connection, Opener, Parcel},
    sys::{fork::ProcessFd, tcp},
    transport::{self, Header, LANES, Message},
    types::Error,
};
use rustix::io::Errno;
use std::{
    cell::{Cell, OnceCell, RefCell},
    io::IoSliceMut,
    sync::Arc,
    time::{Duration, Instant},
};

/// One connection of a receiving half, as it came.
pub(crate) struct Arrival {
    index: usize,
    count: usize,
    connection: Connection,
}

impl Arrival {
    /// The connection in `parcel`, which came from `peer`.
    ///
    /// # Errors
    /// That the peer is broken, if the parcel is not what this version sends.
    pub(crate) fn of(peer: usize, parcel: Parcel) -> Result<Arrival, Error> {
        match (heard(&parcel.bytes), <[_; 1]>::try_from(parcel.fds)) {
            (Some((index, count)), Ok([fd])) => Ok(Arrival {
                index,
                count,
                connection: Connection {
                    fd: ProcessFd::adopt(fd),
                    guard: parcel.guard,
                },
            }),
            _ => Err(broken(
                peer,
                "it opened a connection of another version".to_owned(),
            )),
        }
    }

    /// Whether both can belong to the same half.
    pub(super) fn goes_with(&self, other: &Arrival) -> bool {
        self.count == other.count && self.index != other.index
    }

    /// Whether these, which go with each other, are all connections of their half.
    pub(super) fn are_all(arrivals: &[Arrival]) -> bool {
        arrivals
            .first()
            .is_some_and(|first| arrivals.len() == first.count)
    }
}

/// The receiving half of a link: its connections, and the messages that have come and are not released yet. What the peer
/// sends is checked before it is used.
pub(super) struct Inbound {
    peer: usize,
    hub: Arc<Hub>,
    streams: Vec<Stream>,
    /// [`LANES`], made one by one: who sends for the first time may have little stack.
    lanes: Box<[RecvLane]>,
    trouble: OnceCell<(String, Instant)>,
}

#[derive(Default)]
struct RecvLane {
    /// Messages that have come, were released, and of which the peer was told that they were; modulo 2^32.
    arrived: Cell<u32>,
    released: Cell<u32>,
    returned: Cell<u32>,
    /// Messages up to the last that has come and stays with its sender until it hears of that, and as many as it has heard of.
    stayed: Cell<u32>,
    heard: Cell<u32>,
    /// Header and length of message k at k modulo [`DEPTH`].
    heads: [Cell<(Header, u32)>; DEPTH],
    /// Where its body lies.
    bodies: [Cell<Lies>; DEPTH],
    slots: Slots,
    /// Where the next message is wanted.
    landing: Cell<Option<Landing>>,
}

/// Where a body lies.
#[derive(Default, Clone, Copy)]
enum Lies {
    Slot(Place),
    /// In a caller's memory.
    Landed(Region<'static>),
    /// Nowhere any more: it was in a caller's memory that is not to be used.
    #[default]
    Lost,
}

/// A place in a caller's memory for the message with this number and header.
#[derive(Clone, Copy)]
struct Landing {
    number: u32,
    header: Header,
    target: Region<'static>,
}

struct Stream {
    fd: ProcessFd,
    reader: RefCell<Reader>,
    open: Cell<bool>,
}

/// How far a connection's bytes have been understood.
struct Reader {
    /// Bytes that came after a body, or are too few for a head: `begin..end`. Empty while a body is read.
    staging: Box<[u8; STAGING]>,
    begin: usize,
    end: usize,
    /// The message of which some bytes are still to come.
    body: Option<Body>,
    /// What makes these bytes of those that come, where the connection is protected.
    opener: Option<Box<Opener>>,
}

struct Body {
    lane: usize,
    header: Header,
    len: usize,
    have: usize,
    lies: Lies,
    /// It lies in its sender's memory as well, until that hears that it has come.
    stays: bool,
}

impl Inbound {
    /// The half that receives from `peer`.
    pub(super) fn new(peer: usize, mut arrivals: Vec<Arrival>, hub: &Arc<Hub>) -> Result<Inbound, Error> {
        arrivals.sort_by_key(|arrival| arrival.index);
        let stream = |arrival: Arrival| {
            let (index, Connection { fd, guard }) = (arrival.index, arrival.connection);
            let event = Event::In { peer, stream: index };
            hub.watch(&fd, event)
                .map_err(|e| Error::system("cannot wait for a connection", e))?;
            Ok(Stream {
                fd,
                reader: RefCell::new(Reader::new(guard.map(|guard| Box::new(guard.opener)))),
                open: Cell::new(true),
            })
        };
        Ok(Inbound {
            peer,
            hub: hub.clone(),
            streams: arrivals.into_iter().map(stream).collect::<Result<_, Error>>()?,
            lanes: (0..LANES).map(|_| RecvLane::default()).collect(),
            trouble: OnceCell::new(),
        })
    }

    pub(super) fn peek(&self, lane: usize) -> Option<Message<'_>> {
        let state = &self.lanes[lane];
        let number = state.released.get();
        if number == state.arrived.get() {
            return None;
        }
        let (header, len) = state.heads[number as usize % DEPTH].get();
        let body = match state.bodies[number as usize % DEPTH].get() {
            Lies::Slot(place) => state.slots.body(place, len as usize),
            Lies::Landed(target) => target,
            Lies::Lost => return None,
        };
        Some(Message {
            header,
            body: transport::Body::Here(body),
        })
    }

    /// Has the next message of a lane, none of which is here, come to `target`, if it is the one that is meant; what has come of it
    /// already is copied.
    pub(super) fn land(&self, lane: usize, header: &Header, target: &Region<'_>) {
        if target.len() <= STAGING {
            return; // it comes along with others
        }
        let state = &self.lanes[lane];
        // SAFETY: who says this leaves the memory to the link until the message was released, or all was withdrawn
        // (`Link::land`); from then on it is not used.
        let target: Region<'static> = unsafe { Region::from_raw(target.as_ptr(), target.len()) };
        let stream = &self.streams[lane % self.streams.len()];
        if let Some(body) = &mut stream.reader.borrow_mut().body
            && body.lane == lane
        {
            if let Lies::Slot(place) = body.lies
                && body.header == *header
                && body.len == target.len()
            {
                let slot = state.slots.body(place, body.have);
                target.part(0, body.have).copy_from(&slot);
                state.slots.give_back(place);
                body.lies = Lies::Landed(target);
            }
            return;
        }
        state.landing.set(Some(Landing {
            number: state.arrived.get(),
            header: *header,
            target,
        }));
    }

    /// Uses no memory of callers' any more. What was on its way there is lost, and what would come after it.
    pub(super) fn withdraw(&self) {
        for state in &self.lanes {
            state.landing.set(None);
            for body in &state.bodies {
                if let Lies::Landed(_) = body.get() {
                    body.set(Lies::Lost);
                }
            }
        }
        for (index, stream) in self.streams.iter().enumerate() {
            let mut reader = stream.reader.borrow_mut();
            if let Some(Body {
                lies: Lies::Landed(_),
                ..
            }) = reader.body
            {
                reader.body = None;
                self.close(index, "what it sends is not wanted any more".to_owned());
            }
        }
    }

    pub(super) fn release(&self, lane: usize) {
        let state = &self.lanes[lane];
        debug_assert!(
            state.released.get() != state.arrived.get(),
            "a release on lane {lane}, where no message is"
        );
        let number = state.released.get();
        if let Lies::Slot(place) = state.bodies[number as usize % DEPTH].replace(Lies::Lost) {
            state.slots.give_back(place);
        }
        state.released.set(number.wrapping_add(1));
    }

    /// Whether the peer should hear of what was released on `lane`: when half of its credit would come back at once; and of what has
    /// come and stays with it. Who has no credit left may send the sooner for one, but waits for the next then, message by
    /// message, and each costs both sides a call of the system.
    pub(super) fn owes(&self, lane: usize) -> bool {
        let state = &self.lanes[lane];
        if state.stayed != state.heard {
            return true;
        }
        let to_return = state.released.get().wrapping_sub(state.returned.get()) as usize;
        to_return >= DEPTH / 2
    }

    /// How many messages of `lane` were released, for the peer to hear along with one that goes to it.
    pub(super) fn pay_along(&self, lane: usize) -> u32 {
        let released = self.lanes[lane].released.get();
        self.lanes[lane].returned.set(released);
        released
    }

    /// Tells the peer of it, if it should hear; and of all else that it may hear by the same connection, as each time costs both a call of
    /// the system.
    pub(super) fn pay(&self, lane: usize, out: &Outbound) {
        if self.owes(lane) {
            out.credit(lane, |lane| self.news(lane));
        }
    }

    /// How many messages of `lane` were released and how many have come, if the peer has not heard that.
    fn news(&self, lane: usize) -> Option<(u32, u32)> {
        let state = &self.lanes[lane];
        let is_news = state.stayed != state.heard || state.released != state.returned;
        is_news.then(|| {
            state.heard.set(state.stayed.get());
            (self.pay_along(lane), state.arrived.get())
        })
    }

    /// Takes in what has come on a connection. `out` is the link's other half, whose credits may be among it.
    pub(super) fn progress(&self, stream: usize, out: Option<&Outbound>) -> Result<(), Error> {
        let Some(at) = self.streams.get(stream).filter(|at| at.open.get()) else {
            return Ok(());
        };
        let reader = &mut *at.reader.borrow_mut();
        let mut is_touched = false;
        loop {
            let (got, room) = match self.receive(at, reader) {
                Ok(read) => read,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                // What the caller gave is not memory, or is protected: not the peer's fault.
                Err(Errno::FAULT) if !is_touched => {
                    is_touched = true;
                    if let Some(body) = &reader.body {
                        self.missing(body).touch(true);
                    }
                    continue;
                }
                Err(Errno::BADMSG) => return Err(broken(self.peer, ALTERED.to_owned())),
                Err(e) => {
                    let how = std::io::Error::from(e);
                    self.close(stream, format!("the connection from it failed: {how}"));
                    return Ok(());
                }
            };
            if got == 0 {
                self.close(stream, "it closed its connection".to_owned());
                return Ok(());
            }
            let may_land = self.understand(reader, stream, out)?;
            if !at.open.get() {
                return Ok(());
            }
            // Most likely that was all; or who waits for a long message may say where the next one is wanted, of which no more
            // is here yet than its beginning.
            if got < room {
                return Ok(());
            }
            let has_more = |opener: &Opener| opener.has_more();
            if may_land && !reader.opener.as_deref().is_some_and(has_more) {
                self.hub.has_more();
                return Ok(());
            }
        }
    }

    /// Whether a connection has not come to its end.
    pub(super) fn is_open(&self) -> bool {
        self.streams.iter().any(|stream| stream.open.get())
    }

    /// How long ago something came on one of its connections, as far as the system says.
    pub(super) fn silent_for(&self) -> Option<Duration> {
        let open = self.streams.iter().filter(|stream| stream.open.get());
        open.filter_map(|stream| tcp::silent_for(&stream.fd)).min()
    }

    /// What happened to its connections, if one does not work any more.
    pub(super) fn trouble(&self) -> Option<(String, Instant)> {
        self.trouble.get().cloned()
    }

    pub(super) fn mapped(&self) -> usize {
        let lanes: usize = self.lanes.iter().map(|lane| lane.slots.allocated()).sum();
        let allocated = |stream: &Stream| {
            let opener = &stream.reader.borrow().opener;
            STAGING + opener.as_ref().map_or(0, |opener| opener.allocated())
        };
        lanes + self.streams.iter().map(allocated).sum::<usize>()
    }

    /// Reads once: the rest of the body to where it belongs, and what follows. Returns the bytes that came and those for
    /// which there was room.
    fn receive(&self, stream: &Stream, reader: &mut Reader) -> Result<(usize, usize), Errno> {
        let Reader {
            staging,
            begin,
            end,
            body,
            opener,
        } = reader;
        staging.copy_within(*begin..*end, 0);
        (*begin, *end) = (0, *end - *begin);
        let rest = body.as_ref().map(|body| self.rest(body));
        let missing = rest.as_ref().map_or(0, |rest| rest.len());
        let tail = &mut staging[*end..];
        let room = missing + tail.len();
        let got = match (rest, opener) {
            (rest, Some(opener)) => opener.receive(&stream.fd, rest.unwrap_or_default(), tail)?,
            (Some(rest), None) => {
                tcp::receive(&stream.fd, &mut [IoSliceMut::new(rest), IoSliceMut::new(tail)])?
            }
            (None, None) => tcp::receive(&stream.fd, &mut [IoSliceMut::new(tail)])?,
        };
        if let Some(body) = body {
            body.have += got.min(missing);
        }
        *end += got.saturating_sub(missing);
        Ok((got, room))
    }

    /// The room for the bytes of a body that are still to come.
    fn missing(&self, body: &Body) -> Region<'_> {
        let state = &self.lanes[body.lane];
        let room = match body.lies {
            Lies::Slot(place) => state.slots.body(place, body.len),
            Lies::Landed(target) => target,
            Lies::Lost => Region::empty(),
        };
        room.part(body.have, body.len - body.have)
    }

    /// The bytes of a body that are still to come.
    #[expect(
        clippy::mut_from_ref,
        reason = "the memory is the slot's, which nobody else uses yet"
    )]
    fn rest(&self, body: &Body) -> &mut [u8] {
        let rest = self.missing(body);
        // SAFETY: a caller's memory is the link's alone until it is withdrawn (`land`), and read no further then (`withdraw`). The
        // slot's message before this one was released, as slots are taken one message at a time,
        // and this one is shown to nobody until it is complete; one caller at a time uses the slice, and gives it
        // up before the next.
        unsafe { std::slice::from_raw_parts_mut(rest.as_ptr(), rest.len()) }
    }

    /// Makes messages and credits of the bytes that have come; whether a long message is over with them, or has begun that nobody
    /// awaits yet.
    fn understand(&self, reader: &mut Reader, stream: usize, out: Option<&Outbound>) -> Result<bool, Error> {
        let mut may_land = false;
        loop {
            if let Some(body) = &mut reader.body {
                let rest = self.rest(body);
                let len = rest.len().min(reader.end - reader.begin);
                rest[..len].copy_from_slice(&reader.staging[reader.begin..reader.begin + len]);
                reader.begin += len;
                body.have += len;
                if body.have < body.len {
                    return Ok(may_land);
                }
                // Where one was wanted, it is soon said where the next is.
                may_land |= body.len > READ_ON || matches!(body.lies, Lies::Landed(_));
                if body.stays && !self.is_intact(stream) {
                    reader.body = None;
                    return Ok(may_land);
                }
                let state = &self.lanes[body.lane];
                let number = state.arrived.get();
                state.heads[number as usize % DEPTH].set((body.header, body.len as u32));
                state.bodies[number as usize % DEPTH].set(body.lies);
                state.arrived.set(number.wrapping_add(1));
                if body.stays {
                    state.stayed.set(state.arrived.get());
                }
                reader.body = None;
            }
            let Some(head) = reader.staging[reader.begin..reader.end].first_chunk() else {
                return Ok(may_land);
            };
            let head = Head::decode(head);
            reader.begin += Head::LEN;
            match head {
                Some(Head::Message {
                    lane,
                    len,
                    header,
                    released,
                    stays,
                }) => {
                    let body = self.begin(lane.into(), len as usize, header, stream, stays)?;
                    may_land |= body.len > READ_ON && matches!(body.lies, Lies::Slot(_));
                    reader.body = Some(body);
                    match out {
                        Some(out) => out.credited_along(lane.into(), released)?,
                        None if released == 0 => {}
                        None => return Err(self.never_sent()),
                    }
                }
                Some(Head::Credit { lane, released, come }) => match out {
                    Some(out) => {
                        out.came(lane.into(), come)?;
                        out.credited(lane.into(), released)?;
                    }
                    None => return Err(self.never_sent()),
                },
                None => return Err(self.garbage("bytes that are no message")),
            }
        }
    }

    /// A message begins to come in.
    fn begin(
        &self,
        lane: usize,
        len: usize,
        header: Header,
        stream: usize,
        stays: bool,
    ) -> Result<Body, Error> {
        let state = &self.lanes[lane];
        let held = state.arrived.get().wrapping_sub(state.released.get()) as usize;
        if held == DEPTH || lane % self.streams.len() != stream {
            return Err(self.garbage("a message for which there is no room"));
        }
        let number = state.arrived.get();
        let landing = state.landing.take().filter(|landing| {
            landing.number == number && landing.header == header && landing.target.len() == len
        });
        Ok(Body {
            lane,
            header,
            len,
            have: 0,
            lies: match landing {
                Some(landing) => Lies::Landed(landing.target),
                None => Lies::Slot(state.slots.take(len)?),
            },
            stays,
        })
    }

    /// Whether a body that has been read from its sender's memory is what was sent: a sender that wants its memory back first
    /// resets the connection.
    fn is_intact(&self, stream: usize) -> bool {
        let Some(why) = tcp::broken(&self.streams[stream].fd) else {
            return true;
        };
        let how = std::io::Error::from(why);
        self.close(stream, format!("the connection from it failed: {how}"));
        false
    }

    /// Nothing more comes on a connection.
    fn close(&self, stream: usize, how: String) {
        let at = &self.streams[stream];
        at.open.set(false);
        let peer = self.peer;
        self.hub.unwatch(&at.fd, Event::In { peer, stream });
        let _ = self.trouble.set((how, self.hub.one_ended())); // the first tells the most
    }

    #[cold]
    fn never_sent(&self) -> Error {
        self.garbage("credits for messages that were never sent")
    }

    #[cold]
    fn garbage(&self, what: &str) -> Error {
        broken(self.peer, format!("it sent {what}"))
    }
}

impl Reader {
    fn new(opener: Option<Box<Opener>>) -> Reader {
        Reader {
            staging: Box::new([0; STAGING]),
            begin: 0,
            end: 0,
            body: None,
            opener,
        }
    }
}

/// Bytes read beyond a body: many short messages come at once, and little of a long one is copied twice.
const STAGING: usize = 4096;

/// Bytes of the longest body after which, and after the beginning of which, it is read on at once. Who waits for a longer one may say first
/// where it, or the next, is wanted, which spares a copy; for shorter ones the copy takes less than another look and another read.
///
/// Ranks on 2 cores, over loopback, 4 KiB -> 32 KiB, in us: 4 ranks, all-reduce of 8 KiB 65 -> 50, of 16 KiB 71 -> 56, of 32 KiB
/// 95 -> 81, all-gather of 16 KiB 58 -> 49, of 32 KiB 67 -> 54; 2 ranks, all-reduce of 8 KiB 10.7 -> 10.3. With 64 KiB a gather of 256 KiB
/// takes 73 instead of 62.
const READ_ON: usize = 32 << 10;
