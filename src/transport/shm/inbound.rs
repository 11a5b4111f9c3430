//! The receiving half of a link.

use super::{
    Ways,
    bell::{Bell, Ringer},
    broken,
    handed::Mapping,
    layout::{self, DEEP, Depth, Entry, INLINE, MAPPINGS, MAX_MESSAGE, SHALLOW, Segment},
    neighbour::Token,
    outbound::Outbound,
    pair::{self, Pair, Side},
    pool, refused,
};
use crate::{
    mem::Region,
    net::Parcel,
    sys::{
        area::Area,
        attach::{Fault, Holder},
        cache::prefetch_to_read,
        fork,
        memfd::Shared,
    },
    transport::{Body, Expected, Header, LANES, Message, Pinned},
    types::Error,
};
use rustix::io::Errno;
use std::{
    cell::Cell,
    io, ptr,
    sync::{
        Arc,
        atomic::{Ordering::*, fence},
    },
};

/// The receiving half of a link. What the peer wrote is read once and checked before it is used.
pub(crate) struct Inbound {
    pub(super) segment: Shared<Segment>,
    depth: Depth,
    /// Whether the line that both ranks write is the one in this segment.
    is_guest: bool,
    /// Where long bodies lie.
    pool: Arc<Area>,
    lanes: [RecvLane; LANES],
    bell: Ringer,
    peer: usize,
    /// Whose it is: a forked child has nothing of it.
    generation: u32,
    /// Whose memory offered messages lie in, or why it cannot be read.
    sender: Result<Holder, String>,
    /// Whether the peer is a thread of this process.
    is_same: bool,
    /// Memory of the peer's that is mapped here.
    mappings: [Option<Mapping>; MAPPINGS],
}

struct RecvLane {
    /// Messages released, modulo 2^32: the number of the one that is looked for.
    released: Cell<u32>,
}

impl Inbound {
    /// Maps the segment that `peer` made, and tells it how its memory can be read, of the `ways` that are allowed.
    ///
    /// # Errors
    /// That the peer is broken, if the parcel is not what this version makes, or the memory not what it says.
    pub(crate) fn attach(peer: usize, parcel: &Parcel, ours: &Bell, ways: Ways) -> Result<Inbound, Error> {
        let strange = || io::Error::new(io::ErrorKind::InvalidData, "its link is laid out in another way");
        let open = || {
            let [segment, bell, pool] = &parcel.fds[..] else {
                return Err(strange());
            };
            let after = |depth| Some((depth, parcel.bytes.strip_prefix(&layout::hello(depth)[..])?));
            let (depth, said) = [SHALLOW, DEEP].into_iter().find_map(after).ok_or_else(strange)?;
            let said = said.split_first_chunk::<{ Token::BYTES }>();
            let (token, holder) = match said {
                None => return Err(strange()),
                Some((token, [])) => (token, None),
                Some((token, bytes)) => (token, Some(bytes.try_into().map_err(|_| strange())?)),
            };
            Ok((
                Shared::<Segment>::open(segment)?,
                depth,
                Ringer::open(bell, ours)?,
                pool::open(pool)?,
                holder.map(Holder::from_bytes),
                ways.direct && Token::is_ours(token, ways.link),
            ))
        };
        let (segment, depth, bell, pool, holder, is_same) = open().map_err(|err| refused(peer, err))?;
        let is_guest = ways.sender_is_host();
        let sender = match is_same {
            true => Err("it is a thread of this process".to_owned()),
            false => reach(holder, ways.attach),
        };
        let ways = [
            (is_same, layout::SAME),
            (ways.direct && !is_same, layout::MAPS),
            (sender.is_ok(), layout::ATTACHES),
        ];
        let ways = ways
            .iter()
            .filter(|(is, _)| *is)
            .fold(0, |all, (_, way)| all | way);
        // The sender only chooses by it how it sends.
        segment.reaches.0.store(ways, Relaxed);
        let lanes = std::array::from_fn(|lane| RecvLane {
            // Any number will do: it chooses the entry where the count begins.
            released: Cell::new(segment.released.0[lane].load(Relaxed)),
        });
        Ok(Inbound {
            segment,
            depth,
            is_guest,
            pool,
            lanes,
            bell,
            peer,
            generation: fork::generation(),
            sender,
            is_same,
            mappings: [const { None }; MAPPINGS],
        })
    }

    /// How long messages come, where their sender would rather not copy them.
    pub(crate) fn long_messages(&self) -> String {
        match &self.sender {
            _ if self.is_same => "read where they lie, by a thread of the same process".to_owned(),
            Ok(_) => "taken from its memory".to_owned(),
            Err(why) => format!("copied twice: {why}"),
        }
    }

    /// Whether messages may come that lie in the sender's memory and are read there.
    pub(super) fn may_lend(&self) -> bool {
        self.is_same || self.mappings.iter().any(Option::is_some)
    }

    /// Adds memory of the sender's, in the place of what it had there, and says so.
    pub(super) fn admit(&mut self, mapping: Mapping) {
        let (place, number) = (mapping.place, mapping.number);
        self.mappings[place] = Some(mapping);
        self.segment.mapped.0[place].store(number, Release);
    }

    /// The oldest message, and the word that tells how many of the other direction its sender has released. It may lie in the
    /// segment of `ours`, the other direction.
    #[inline]
    pub(super) fn peek<'l>(
        &'l self,
        lane: usize,
        ours: Option<&'l Outbound>,
    ) -> Result<Option<(Message<'l>, u32)>, Error> {
        let number = self.lanes[lane].released.get();
        let entry = self.segment.entry(lane, number, self.depth);
        // Pairs with the Release in `Outbound::commit`.
        if entry.flag.load(Acquire) != layout::flag(number) {
            return Ok(None);
        }
        let word = entry.len.load(Relaxed);
        let (len, is_here) = (layout::len_of(word), !layout::is_elsewhere(word));
        if len > MAX_MESSAGE {
            return Err(self.garbage(lane, 0, len));
        }
        if !is_here {
            let body = match self.is_same || layout::is_mapped(word) {
                true => Body::Lent(len),
                false => Body::There(len),
            };
            let header = entry.header();
            return Ok(Some((Message { header, body }, word)));
        }
        let body = match self.body(entry, lane, len, ours) {
            Some(body) => body,
            None => return Err(self.garbage(lane, entry.at() as usize, len)),
        };
        let (header, body) = (entry.header(), Body::Here(body));
        Ok(Some((Message { header, body }, word)))
    }

    /// [`Link::expect`](crate::transport::Link::expect), and the word as in [`Inbound::peek`] beside a body.
    #[inline(always)] // in the path of each short call
    pub(super) fn expect<'l>(
        &'l self,
        lane: usize,
        header: &Header,
        len: usize,
        ours: Option<&'l Outbound>,
    ) -> (Expected<'l>, u32) {
        let number = self.lanes[lane].released.get();
        let entry = self.segment.entry(lane, number, self.depth);
        // Pairs with the Release in `Outbound::commit`.
        if entry.flag.load(Acquire) != layout::flag(number) {
            return (Expected::Nothing, 0);
        }
        let word = entry.len.load(Relaxed);
        if layout::is_elsewhere(word) || layout::len_of(word) != len || entry.header() != *header {
            return (Expected::Other, 0);
        }
        match self.body(entry, lane, len, ours) {
            Some(body) => (Expected::Body(body), word),
            None => (Expected::Other, 0),
        }
    }

    /// The line that both ranks write, if the sender is its host.
    #[inline]
    pub(super) fn pair(&self) -> Option<&Pair> {
        self.is_guest.then_some(&self.segment.pair)
    }

    /// [`Link::take_shown`](crate::transport::Link::take_shown), of what `side` shows in `pair`.
    #[inline(always)] // in the path of each short call
    pub(super) fn take_shown(
        &self,
        lane: usize,
        header: &Header,
        len: usize,
        looks: u32,
        (pair, side): (&Pair, Side),
    ) -> Option<u64> {
        if !pair::may_show(lane, len) {
            return None;
        }
        let number = self.lanes[lane].released.get();
        let body = pair.find(side, lane, pair::tag(number, lane, header, len), looks)?;
        self.go_on(lane);
        Some(body)
    }

    /// Whether there is a message on `lane`.
    #[inline]
    fn has_come(&self, lane: usize) -> bool {
        let number = self.lanes[lane].released.get();
        let entry = self.segment.entry(lane, number, self.depth);
        entry.flag.load(Relaxed) == layout::flag(number)
    }

    #[inline]
    pub(super) fn foresee(&self, lane: usize, len: usize) {
        let number = self.lanes[lane].released.get();
        let entry = self.segment.entry(lane, number, self.depth);
        layout::lines(entry, len).for_each(prefetch_to_read);
    }

    /// Where the `len` bytes of the body of `entry` lie, if they can.
    #[inline]
    fn body<'l>(
        &'l self,
        entry: &Entry,
        lane: usize,
        len: usize,
        ours: Option<&'l Outbound>,
    ) -> Option<Region<'l>> {
        let body = if len <= INLINE {
            entry.inline()
        } else {
            match entry.at() {
                layout::OWN => layout::own(&self.segment, lane),
                layout::OPEN => return layout::open(&self.segment, lane, len),
                layout::ANSWER => return ours?.answered(lane, len),
                at => return pool::body(&self.pool, at, len),
            }
        };
        // SAFETY: `body` begins at least `len` bytes of the mapping (`INLINE` in the entry; `MAX_MESSAGE` in the own slot, and
        // `len` is no more), which lives as long as `self`; they are inside `UnsafeCell`s, so no reference claims them. A
        // well-behaved sender leaves them alone until they are released; another one spoils values, not memory.
        (len <= MAX_MESSAGE).then(|| unsafe { Region::from_raw(body, len) })
    }

    /// The room of the oldest message of `lane`, if it is there, open, and `len` bytes long.
    #[inline]
    pub(super) fn open(&self, lane: usize, len: usize) -> Option<Region<'_>> {
        let number = self.lanes[lane].released.get();
        let entry = self.segment.entry(lane, number, self.depth);
        // Pairs with the Release in `Outbound::commit`.
        let is_here = entry.flag.load(Acquire) == layout::flag(number);
        let word = entry.len.load(Relaxed);
        let is_open = is_here
            && len > INLINE
            && !layout::is_elsewhere(word)
            && layout::len_of(word) == len
            && entry.at() == layout::OPEN;
        is_open.then(|| layout::open(&self.segment, lane, len)).flatten()
    }

    /// How many messages of `lane` were released.
    #[inline]
    pub(super) fn released(&self, lane: usize) -> u32 {
        self.lanes[lane].released.get()
    }

    pub(super) fn take(
        &self,
        lane: usize,
        target: &Region<'_>,
        ours: Option<&Outbound>,
    ) -> Result<bool, Error> {
        let Some((message, _)) = self.peek(lane, ours)? else {
            return Ok(false);
        };
        if message.body.len() != target.len() {
            // It was as long a moment ago.
            return Err(self.garbage(lane, 0, message.body.len()));
        }
        match message.body {
            Body::Here(body) => {
                target.copy_from(&body);
                Ok(true)
            }
            Body::Lent(len) => match self.pin(lane, len)? {
                None => Ok(false),
                Some(pinned) => {
                    target.copy_from(&pinned.body());
                    Ok(pinned.end())
                }
            },
            Body::There(_) => self.fetch(lane, target),
        }
    }

    /// Begins to read the body of the message that is lent on `lane`, which was `len` bytes long a moment ago.
    pub(super) fn pin(&self, lane: usize, len: usize) -> Result<Option<Pinned<'_>>, Error> {
        let number = self.lanes[lane].released.get();
        let entry = self.segment.entry(lane, number, self.depth);
        let body = || match self.is_same {
            true => {
                let at = ptr::with_exposed_provenance_mut(entry.address() as usize);
                // SAFETY: the sender, a thread of this process, offered so many bytes there (`is_same` is what nobody else can
                // make this rank believe), and keeps them until the message is released, or it has withdrawn the offer and
                // then waited for the end of the reading. They are read alone, and only while the message is pinned.
                Ok(unsafe { Region::from_raw(at, len) })
            }
            false => {
                let (place, number) = entry.mapping();
                let mapping = self.mappings.get(place).and_then(Option::as_ref);
                let mapping = mapping.filter(|mapping| mapping.number == number);
                let body = mapping.and_then(|mapping| mapping.body(entry.address(), len));
                body.ok_or_else(|| {
                    let what = format!(
                        "a message of lane {lane} claims {len} bytes at {} of memory #{number} in place {place}, which it has \
                         not handed over",
                        entry.address()
                    );
                    broken(self.peer, what)
                })
            }
        };
        let segment = &self.segment;
        let reading = self.is_same.then_some(&segment.reading.0);
        Pinned::new(body, reading, &segment.withdrawn.0)
    }

    /// Brings the body of the message that is offered on `lane`.
    fn fetch(&self, lane: usize, target: &Region<'_>) -> Result<bool, Error> {
        let sender = self.sender.as_ref().map_err(|why| {
            let what = "it offers a message that lies in its memory, which cannot be read";
            broken(self.peer, format!("{what}: {why}"))
        })?;
        let number = self.lanes[lane].released.get();
        let entry = self.segment.entry(lane, number, self.depth);
        let (from, len) = (entry.address(), target.len());
        let mut read = sender.read(from, target);
        let mut fault = (read == Err(Errno::FAULT)).then(|| sender.fault(from, len));
        if fault == Some(Fault::Ours) {
            // Is it no memory, or protected, the program is told where it stands, and may put that right.
            target.touch(true);
            read = sender.read(from, target);
            fault = (read == Err(Errno::FAULT)).then(|| sender.fault(from, len));
        }
        // If what was read is what the sender's caller wrote after the withdrawal, then that is seen now; pairs with the
        // fence in `Outbound::withdraw`.
        fence(SeqCst);
        match read {
            _ if self.segment.withdrawn.0.load(Relaxed) != 0 => Ok(false),
            Ok(()) => Ok(true),
            // Word of its end is on the way.
            Err(Errno::SRCH) => Ok(false),
            Err(_) if fault == Some(Fault::Gone) => Ok(false),
            Err(errno) if fault == Some(Fault::Ours) => Err(Error::system(
                format!(
                    "a message of rank {} could not be stored: not all of the {len} bytes where it belongs can be written",
                    self.peer
                ),
                io::Error::from(errno),
            )),
            Err(errno @ Errno::NOMEM) => Err(Error::system(
                format!("the memory of rank {} could not be read", self.peer),
                io::Error::from(errno),
            )),
            Err(errno) => Err(broken(
                self.peer,
                format!("{len} bytes of its memory could not be read ({errno}): CCL_CMA=off goes without"),
            )),
        }
    }

    #[inline]
    pub(super) fn release(&self, lane: usize) {
        debug_assert!(
            self.has_come(lane),
            "a release on lane {lane}, where no message is"
        );
        self.go_on(lane);
    }

    /// The lane's next message is the oldest now.
    #[inline]
    fn go_on(&self, lane: usize) {
        let state = &self.lanes[lane];
        let released = state.released.get().wrapping_add(1);
        state.released.set(released);
        // After all reads of the body; pairs with the Acquire in `Outbound::look`.
        self.segment.released.0[lane].store(released, Release);
        self.bell.ring();
    }

    pub(super) fn mapped(&self) -> usize {
        let memory = self.mappings.iter().flatten().map(Mapping::mapped);
        self.segment.mapped() + self.bell.mapped() + memory.sum::<usize>()
    }

    #[cold]
    fn garbage(&self, lane: usize, at: usize, len: usize) -> Error {
        broken(
            self.peer,
            format!(
                "a message of lane {lane} claims {len} bytes at {at}, more than the {MAX_MESSAGE} that fit"
            ),
        )
    }
}

impl Drop for Inbound {
    fn drop(&mut self) {
        if self.generation == fork::generation() {
            self.segment.left.0.store(1, Release); // after all reads of bodies
        }
    }
}

/// The holder of the memory in which offered messages will lie, if it can be read; else why not.
fn reach(holder: Option<Holder>, may: bool) -> Result<Holder, String> {
    let Some(holder) = holder.filter(|_| may) else {
        return Err("CCL_CMA=off".to_owned());
    };
    let hint = |errno| match errno {
        Errno::PERM | Errno::ACCESS => "; a container or Yama forbids it, the latter unless CCL_CMA=any",
        Errno::SRCH => "; it has left already, or is in another PID namespace",
        _ => "",
    };
    let refused = |errno| format!("its memory cannot be read ({errno}{})", hint(errno));
    holder.probe().map_err(refused).map(|()| holder)
}
