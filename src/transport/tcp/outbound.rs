//! The sending half of a link.

use super::{
    DEPTH, Event, Hub, Lends, Settings, broken,
    buffer::{Place, Slots},
    frame::Head,
    hub::UsedPipe,
};
use crate::{
    mem::Region,
    net::{Connection, Sealer},
    sys::{fork::ProcessFd, tcp},
    transport::{Header, LANES, MAX_MESSAGE, Ticket},
    types::Error,
};
use rustix::{io::Errno, net::connect_unspec};
use smallvec::SmallVec;
use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::VecDeque,
    io::IoSlice,
    iter,
    sync::Arc,
    time::Instant,
};

/// The sending half of a link: its connections, and the messages that have not been released yet.
pub(crate) struct Outbound {
    peer: usize,
    hub: Arc<Hub>,
    streams: Vec<Stream>,
    /// [`LANES`], made one by one: who sends for the first time may have little stack.
    lanes: Box<[SendLane]>,
    /// Whether the system copies all that is sent.
    copies: bool,
    trouble: OnceCell<(String, Instant)>,
}

#[derive(Default)]
struct SendLane {
    /// Messages sent, modulo 2^32: the number of the next one.
    sent: Cell<u32>,
    /// Messages that are with the system, or lost: at most [`DEPTH`] behind `sent`.
    gone: Cell<u32>,
    /// Messages that the receiver is known to have released: at most [`DEPTH`] behind `sent`.
    released: Cell<u32>,
    /// Messages that are known to have come: no fewer than were released, and no more than have gone.
    come: Cell<u32>,
    /// Whether message k, at k modulo [`DEPTH`], has gone without being copied, and is not known to have come.
    stays: [Cell<bool>; DEPTH],
    /// The reserved body and its bytes, if there is one.
    reserved: Cell<Option<(Place, u32)>>,
    slots: Slots,
}

struct Stream {
    fd: ProcessFd,
    /// What is still to be sent, with the bytes of the first that have gone. While there is something the hub tells of
    /// room for it, or sending was put off.
    queue: RefCell<Queue>,
    is_put_off: Cell<bool>,
    /// Nothing is sent on it any more: a message may have been cut short.
    is_dead: Cell<bool>,
}

#[derive(Default)]
struct Queue {
    pieces: VecDeque<Piece>,
    gone: usize,
    /// What of the first piece is on its way to the connection without being copied, if that had no room for all of it.
    pipe: Option<UsedPipe>,
    /// What makes the bytes that go over the connection of them, where it is protected. It takes pieces by itself, so that some
    /// may have gone as far as they are concerned.
    sealer: Option<Box<Sealer>>,
}

impl Queue {
    /// Whether everything is with the system.
    fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.sealer.as_ref().is_none_or(|sealer| !sealer.is_pending())
    }
}

/// Something to be sent.
enum Piece {
    /// A message, which lies in a slot of its lane.
    Message {
        lane: u16,
        number: u32,
        place: Place,
        len: u32,
    },
    /// A message whose body lies in a caller's memory, and may stay there until it has come.
    Lent {
        lane: u16,
        number: u32,
        head: [u8; Head::LEN],
        body: Region<'static>,
        stays: bool,
    },
    Credit([u8; Head::LEN]),
}

impl Piece {
    /// Bytes.
    fn len(&self) -> usize {
        Head::LEN
            + match self {
                Piece::Message { len, .. } => *len as usize,
                Piece::Lent { body, .. } => body.len(),
                Piece::Credit(_) => 0,
            }
    }

    /// Whether its body is sent without being copied.
    fn stays(&self) -> bool {
        matches!(self, Piece::Lent { stays: true, .. })
    }
}

impl Stream {
    /// Whether the hub tells of room for what is still to be sent.
    fn is_watched(&self) -> bool {
        !self.is_put_off.get() && !self.queue.borrow().is_empty()
    }
}

impl Outbound {
    /// The half that sends to `peer` on these connections.
    pub(crate) fn open(
        peer: usize,
        settings: &Settings,
        hub: &Arc<Hub>,
        streams: Vec<Connection>,
    ) -> Result<Outbound, Error> {
        // A card reads what it sends when it sends it: that may be later than that this rank has had its memory back, and before word of
        // that has come to the peer.
        let leads_away = streams.iter().any(|stream| !tcp::is_on_one_host(&stream.fd));
        let stream = |Connection { fd, guard }| {
            // A rank may come to its call as late as the deadline allows. That its host has vanished is for others to find.
            let prepared = tcp::wait_for_reader(&fd).and_then(|()| match &settings.congestion {
                Some(name) => tcp::set_congestion(&fd, name),
                None => Ok(()),
            });
            prepared.map_err(|e| Error::system("cannot prepare a connection", e))?;
            Ok(Stream {
                fd,
                queue: RefCell::new(Queue {
                    sealer: guard.map(|guard| Box::new(guard.sealer)),
                    ..Queue::default()
                }),
                is_put_off: Cell::new(false),
                is_dead: Cell::new(false),
            })
        };
        Ok(Outbound {
            peer,
            hub: hub.clone(),
            streams: streams.into_iter().map(stream).collect::<Result<_, Error>>()?,
            lanes: (0..LANES).map(|_| SendLane::default()).collect(),
            copies: settings.lends == Lends::Off || leads_away,
            trouble: OnceCell::new(),
        })
    }

    pub(super) fn reserve(&self, lane: usize, len: usize) -> Result<Option<Region<'_>>, Error> {
        check(len)?;
        let state = &self.lanes[lane];
        let number = state.sent.get();
        if in_flight(number, state.released.get()) == DEPTH {
            return Ok(None);
        }
        let place = match state.reserved.take() {
            Some((place, before)) if before as usize == len => place,
            before => {
                if let Some((place, _)) = before {
                    state.slots.give_back(place);
                }
                state.slots.take(len)?
            }
        };
        state.reserved.set(Some((place, len as u32)));
        Ok(Some(state.slots.body(place, len)))
    }

    /// `released` goes along, as in [`Outbound::credit`].
    pub(super) fn commit(&self, lane: usize, header: Header, released: u32) {
        let state = &self.lanes[lane];
        let Some((place, len)) = state.reserved.take() else {
            panic!("a commit on lane {lane} without a reservation");
        };
        let (number, lane) = (state.sent.get(), lane as u16);
        let head = message(lane, len, header, released, false);
        let room = state.slots.whole(place, len as usize).part(0, Head::LEN);
        room.copy_from(&Region::of(&head));
        state.sent.set(number.wrapping_add(1));
        let piece = Piece::Message {
            lane,
            number,
            place,
            len,
        };
        self.post(usize::from(lane) % self.streams.len(), iter::once(piece));
    }

    /// Sends `body` from where it lies: until it [has gone](Outbound::has_gone), or [`Outbound::withdraw`]. `released` is asked for
    /// what goes along. A body that `may_stay`, of which the peer can say that it has come, is not copied.
    pub(super) fn offer(
        &self,
        lane: usize,
        header: Header,
        released: impl FnOnce() -> u32,
        body: Region<'_>,
        may_stay: bool,
    ) -> Result<Option<Ticket>, Error> {
        check(body.len())?;
        let state = &self.lanes[lane];
        if let Some((place, _)) = state.reserved.take() {
            state.slots.give_back(place);
        }
        let number = state.sent.get();
        if in_flight(number, state.released.get()) == DEPTH {
            return Ok(None);
        }
        state.sent.set(number.wrapping_add(1));
        let stays = may_stay && self.copies_nothing(lane);
        let (lane, len) = (lane as u16, body.len() as u32);
        let head = message(lane, len, header, released(), stays);
        // SAFETY: who offers leaves the memory mapped and unchanged as long as the piece is in the queue: it leaves that before
        // it has gone, when the connection fails, and when all is withdrawn (`Link::offer`).
        let body = unsafe { Region::from_raw(body.as_ptr(), body.len()) };
        let piece = Piece::Lent {
            lane,
            number,
            head,
            body,
            stays,
        };
        self.post(usize::from(lane) % self.streams.len(), iter::once(piece));
        Ok(Some(Ticket(number)))
    }

    /// Whether the memory of a message that was offered is not used any more.
    pub(super) fn has_gone(&self, lane: usize, Ticket(number): Ticket) -> bool {
        let state = &self.lanes[lane];
        let is_among = |count: u32| count.wrapping_sub(number).cast_signed() > 0;
        let stays = state.stays[number as usize % DEPTH].get();
        is_among(state.come.get()) || is_among(state.gone.get()) && !stays
    }

    /// Whether a lane's connection can have what lies in a caller's memory without a copy of it.
    fn copies_nothing(&self, lane: usize) -> bool {
        let stream = &self.streams[lane % self.streams.len()];
        let goes = !self.copies && !stream.is_dead.get() && self.hub.has_pipes();
        goes && stream.queue.borrow().sealer.is_none()
    }

    /// Sends nothing any more that lies in callers' memory, nor what comes after it.
    pub(super) fn withdraw(&self) {
        let is_lent = |piece: &Piece| matches!(piece, Piece::Lent { .. });
        for (index, stream) in self.streams.iter().enumerate() {
            let (is_watched, lends) = (
                stream.is_watched(),
                stream.queue.borrow().pieces.iter().any(is_lent),
            );
            let stays = |state: &SendLane| state.stays.iter().any(Cell::get);
            let is_under_way = self.lanes_of(stream).any(stays) && !stream.is_dead.get();
            if is_under_way {
                // What the peer has not read yet it must not take for what was sent: it finds the connection reset.
                let _ = connect_unspec(&stream.fd);
            }
            if lends || is_under_way {
                self.give_up(stream, "what was to be sent was withdrawn".to_owned());
                if is_watched {
                    self.hub.unwatch(&stream.fd, self.event(index));
                }
            }
        }
    }

    /// Tells the peer how many of the messages that it sent were released, and how many have come, on all lanes that have the connection
    /// of `lane` and of which there is `news`.
    pub(super) fn credit(&self, lane: usize, news: impl Fn(usize) -> Option<(u32, u32)>) {
        let index = lane % self.streams.len();
        let lanes = (index..LANES).step_by(self.streams.len());
        let credit = |lane| {
            let ((released, come), lane) = (news(lane)?, lane as u16);
            let come = come as u8;
            Some(Piece::Credit(Head::Credit { lane, released, come }.encode()))
        };
        self.post(index, lanes.filter_map(credit));
    }

    /// The peer says how many messages of `lane` have come, in the last bits.
    pub(super) fn came(&self, lane: usize, last_bits: u8) -> Result<(), Error> {
        let state = &self.lanes[lane];
        let before = state.come.get();
        let more = last_bits.wrapping_sub(before as u8);
        if usize::from(more) > in_flight(state.gone.get(), before) {
            let what = format!("it says that messages of lane {lane} came that were not sent");
            return Err(broken(self.peer, what));
        }
        self.have_come(state, before.wrapping_add(more.into()));
        Ok(())
    }

    /// The memory of all messages before `now` is not used any more.
    fn have_come(&self, state: &SendLane, now: u32) {
        let before = state.come.get();
        for number in (0..in_flight(now, before) as u32).map(|k| before.wrapping_add(k)) {
            state.stays[number as usize % DEPTH].set(false);
        }
        state.come.set(now);
    }

    /// The peer says how many messages of `lane` it has released.
    pub(super) fn credited(&self, lane: usize, now: u32) -> Result<(), Error> {
        let state = &self.lanes[lane];
        let gone = state.gone.get();
        // Credits never go back, and never beyond what has left.
        if in_flight(gone, now) > in_flight(gone, state.released.get()) {
            let what =
                format!("it says that it released {now} messages of lane {lane}, of which {gone} were sent");
            return Err(broken(self.peer, what));
        }
        state.released.set(now);
        if in_flight(now, state.come.get()) <= DEPTH {
            self.have_come(state, now);
        }
        Ok(())
    }

    /// The same with a message of that lane, which has no more than the last bits.
    pub(super) fn credited_along(&self, lane: usize, last_bits: u8) -> Result<(), Error> {
        let before = self.lanes[lane].released.get();
        let more = last_bits.wrapping_sub(before as u8);
        match more {
            0 => Ok(()),
            more => self.credited(lane, before.wrapping_add(more.into())),
        }
    }

    /// There is room again on a connection, or sending on it was put off until now.
    pub(super) fn progress(&self, stream: usize) {
        let Some(at) = self.streams.get(stream) else {
            return;
        };
        if at.is_put_off.replace(false) {
            self.send_queue(stream);
        } else if at.is_watched() && self.flush(at) {
            self.hub.unwatch(&at.fd, self.event(stream));
        }
    }

    /// Whether something is still to be sent.
    pub(super) fn unsent(&self) -> bool {
        self.streams
            .iter()
            .any(|stream| !stream.queue.borrow().is_empty())
    }

    pub(super) fn trouble(&self) -> Option<(String, Instant)> {
        self.trouble.get().cloned()
    }

    pub(super) fn mapped(&self) -> usize {
        self.lanes.iter().map(|lane| lane.slots.allocated()).sum()
    }

    /// Sends pieces, after all others of their connection. A long one waits until the rank has done all else that it can: what
    /// comes after it meanwhile goes in the same call of the system.
    fn post(&self, index: usize, pieces: impl Iterator<Item = Piece>) {
        let stream = &self.streams[index];
        if stream.is_dead.get() {
            return pieces.for_each(|piece| self.has_left(&piece));
        }
        let mut queue = stream.queue.borrow_mut();
        let is_first = queue.is_empty();
        let mut is_long = false;
        queue
            .pieces
            .extend(pieces.inspect(|piece| is_long |= piece.len() >= Head::LEN + PUT_OFF));
        drop(queue);
        if is_first && is_long {
            stream.is_put_off.set(true);
            self.hub.put_off(self.event(index));
        } else if is_first {
            self.send_queue(index);
        }
    }

    /// Sends what goes of a queue that is not watched; for the rest it is, from then on.
    fn send_queue(&self, index: usize) {
        let stream = &self.streams[index];
        if !self.flush(stream)
            && let Err(e) = self.hub.watch(&stream.fd, self.event(index))
        {
            self.fail(stream, e);
            self.hub.unwatch(&stream.fd, self.event(index));
        }
    }

    /// Sends what goes without waiting; whether that was all.
    fn flush(&self, stream: &Stream) -> bool {
        let mut queue = stream.queue.borrow_mut();
        let mut is_touched = false;
        while !queue.is_empty() {
            match self.send_some(stream, &mut queue) {
                Ok(n) => {
                    is_touched = false;
                    self.sent(&mut queue, n);
                }
                Err(Errno::AGAIN) => return false,
                Err(Errno::INTR) => (),
                // What the caller gave is not memory, or is protected: not the peer's fault.
                Err(Errno::FAULT) if !is_touched => {
                    is_touched = true;
                    for piece in queue.pieces.iter().take(BATCH) {
                        if let Piece::Lent { body, .. } = piece {
                            body.touch(false);
                        }
                    }
                }
                Err(e) => {
                    drop(queue);
                    self.fail(stream, e);
                    return true;
                }
            }
        }
        true
    }

    /// One call's worth.
    fn send_some(&self, stream: &Stream, queue: &mut Queue) -> Result<usize, Errno> {
        if let (true, Some(sealer)) = (queue.pieces.is_empty(), &mut queue.sealer) {
            return sealer.flush(&stream.fd).map(|()| 0);
        }
        if queue.gone >= Head::LEN
            && let Some(&Piece::Lent {
                body, stays: true, ..
            }) = queue.pieces.front()
        {
            return self.send_pages(stream, queue, &body);
        }
        let mut goes_on = false;
        let mut slices = SmallVec::<[IoSlice<'_>; 2 * BATCH]>::new();
        for piece in queue.pieces.iter().take(BATCH) {
            goes_on = piece.stays();
            match piece {
                Piece::Credit(bytes) => slices.push(IoSlice::new(bytes)),
                &Piece::Message { lane, place, len, .. } => {
                    let slots = &self.lanes[usize::from(lane)].slots;
                    let whole = slots.whole(place, len as usize);
                    // SAFETY: the region is mapped as long as `self`. Nobody writes to a message that was committed until
                    // its slot is taken again, which is after it has left this queue.
                    let whole = unsafe { std::slice::from_raw_parts(whole.as_ptr(), whole.len()) };
                    slices.push(IoSlice::new(whole));
                }
                Piece::Lent {
                    head, body, stays, ..
                } => {
                    slices.push(IoSlice::new(head));
                    if !stays {
                        // SAFETY: mapped and unchanged as long as the piece is here (`offer`).
                        let body = unsafe { std::slice::from_raw_parts(body.as_ptr(), body.len()) };
                        slices.push(IoSlice::new(body));
                    }
                }
            }
            if goes_on {
                break;
            }
        }
        let mut rest = &mut slices[..];
        IoSlice::advance_slices(&mut rest, queue.gone);
        match &mut queue.sealer {
            None if goes_on => tcp::send_ahead(&stream.fd, rest),
            None => tcp::send(&stream.fd, rest),
            Some(sealer) => sealer.send(&stream.fd, rest),
        }
    }

    /// Sends of the first piece's body what goes at once, without copying it, where the kernel can do that.
    fn send_pages(&self, stream: &Stream, queue: &mut Queue, body: &Region<'_>) -> Result<usize, Errno> {
        let at = queue.gone - Head::LEN;
        let rest = body.part(at, body.len() - at);
        let pipe = match queue.pipe.take() {
            Some(pipe) => pipe,
            None => match self.hub.pipe() {
                Some(pipe) => pipe,
                None => return send_copy(stream, &rest),
            },
        };
        let filled = match pipe.holds() {
            0 => pipe.fill(&rest),
            held => Ok(held),
        };
        let moved = match filled {
            Ok(held) => pipe.empty_into(&stream.fd, held < rest.len()),
            // Memory of a device, say, to which the kernel cannot refer.
            Err(_) => send_copy(stream, &rest),
        };
        match moved {
            // Where it is forbidden. Nothing of what is in the pipe has gone.
            Err(Errno::INVAL | Errno::NOSYS | Errno::PERM | Errno::OPNOTSUPP) => {
                self.hub.use_no_pipes();
                return send_copy(stream, &rest);
            }
            _ if pipe.holds() == 0 => self.hub.give_back(pipe),
            _ => queue.pipe = Some(pipe),
        }
        moved
    }

    /// Takes `n` sent bytes off what is to be sent.
    fn sent(&self, queue: &mut Queue, n: usize) {
        queue.gone += n;
        while let Some(piece) = queue.pieces.front()
            && queue.gone >= piece.len()
        {
            queue.gone -= piece.len();
            if let Some(piece) = queue.pieces.pop_front() {
                self.has_left(&piece);
            }
        }
    }

    /// The memory in which it lay is not used any more.
    fn has_left(&self, piece: &Piece) {
        let (lane, number, place) = match *piece {
            Piece::Message {
                lane, number, place, ..
            } => (lane, number, Some(place)),
            Piece::Lent { lane, number, .. } => (lane, number, None),
            Piece::Credit(_) => return,
        };
        let state = &self.lanes[usize::from(lane)];
        state.gone.set(number.wrapping_add(1));
        state.stays[number as usize % DEPTH].set(piece.stays());
        if let Some(place) = place {
            state.slots.give_back(place);
        }
    }

    /// The connection does not work any more: nothing more is sent on it. What that means is for those to say who know how
    /// the peer is.
    fn fail(&self, stream: &Stream, why: Errno) {
        // It may be alive, where the system lacked something: the peer is not to wait there for more, nor to take what lies in memory
        // that is given back for what was sent.
        let _ = connect_unspec(&stream.fd);
        let why = std::io::Error::from(why);
        self.give_up(stream, format!("the connection to it failed: {why}"));
    }

    /// As if a call of the system had failed on the connection of `lane`.
    #[cfg(test)]
    pub(super) fn break_off(&self, lane: usize) {
        self.fail(&self.streams[lane % self.streams.len()], Errno::IO);
    }

    fn give_up(&self, stream: &Stream, why: String) {
        stream.is_dead.set(true);
        let lost = std::mem::take(&mut *stream.queue.borrow_mut());
        lost.pieces.iter().for_each(|piece| self.has_left(piece));
        // Callers wait for nothing of it.
        for state in self.lanes_of(stream) {
            state.stays.iter().for_each(|stays| stays.set(false));
        }
        let _ = self.trouble.set((why, self.hub.one_ended()));
    }

    /// The lanes that use a connection.
    fn lanes_of(&self, stream: &Stream) -> impl Iterator<Item = &SendLane> {
        let lanes = self.lanes.iter().enumerate();
        let uses =
            move |lane: usize| std::ptr::eq(&raw const self.streams[lane % self.streams.len()], stream);
        lanes.filter_map(move |(lane, state)| uses(lane).then_some(state))
    }

    fn event(&self, stream: usize) -> Event {
        Event::Out {
            peer: self.peer,
            stream,
        }
    }
}

impl Drop for Outbound {
    fn drop(&mut self) {
        for (index, stream) in self.streams.iter().enumerate() {
            if stream.is_watched() {
                self.hub.unwatch(&stream.fd, self.event(index));
            }
            // Calls that have succeeded may have left their last messages with the system.
            tcp::leave_behind(&stream.fd);
        }
    }
}

/// Sends of a body what goes at once.
fn send_copy(stream: &Stream, body: &Region<'_>) -> Result<usize, Errno> {
    // SAFETY: mapped and unchanged as long as its piece is in the queue.
    let body = unsafe { std::slice::from_raw_parts(body.as_ptr(), body.len()) };
    tcp::send(&stream.fd, &[IoSlice::new(body)])
}

fn message(lane: u16, len: u32, header: Header, released: u32, stays: bool) -> [u8; Head::LEN] {
    let released = released as u8;
    Head::Message {
        lane,
        len,
        header,
        released,
        stays,
    }
    .encode()
}

/// That so long a body can be sent.
fn check(len: usize) -> Result<(), Error> {
    if len > MAX_MESSAGE {
        return Err(Error::internal(format!(
            "a message of {len} bytes for a link that takes {MAX_MESSAGE} at most"
        )));
    }
    Ok(())
}

/// Messages sent and not released.
fn in_flight(sent: u32, released: u32) -> usize {
    sent.wrapping_sub(released) as usize
}

/// Messages sent in one call, at most.
const BATCH: usize = 16;

/// Bytes of the shortest body that waits for others to go with it. It takes the system as long to send 256 KiB four times as 1.3 MiB at
/// once. Ranks on 2 cores of an AMD EPYC (family 25, model 1), over loopback, medians of 3, sent at once -> when all tiles that may be in
/// flight are there, in us: 2 ranks, broadcast of 1 MiB 160 -> 130, 16 MiB 3000 -> 2640, gather of 4 MiB 414 -> 330, scatter 390 -> 347,
/// all-to-all of 1 MiB 132 -> 115, all-reduce of 512 KiB 129 -> 119; 4 ranks, broadcast of 4 MiB 1850 -> 1590, scatter 597 -> 528,
/// gather 840 -> 720.
const PUT_OFF: usize = 32 << 10;
