//! One other rank: what is on its way to it and from it.

use super::{
    Arrival, Brief, Flow, Kept, Payload, Posted, Sending,
    message::{Envelope, Word},
};
use crate::{
    exec::Fault,
    mem::Region,
    transport::{CALL_LANES, Link, Reach, Wires},
    types::{Cause, Error, Transfer},
};
use std::{collections::VecDeque, time::Instant};

/// The lane of all that is said about messages, and of short ones: it is emptied whatever it brings.
pub(super) const CONTROL: usize = CALL_LANES;
/// The lane of the data of the others: only what is wanted travels on it.
pub(super) const DATA: usize = CALL_LANES + 1;

/// Bytes of the longest message that goes along with its announcement: a receiver that has no place for it yet keeps it.
pub(super) const SHORT: usize = 8 << 10;
/// Short messages that a rank may keep of another.
pub(super) const KEPT: u32 = 64;
/// After so many that it has handed on it tells the other, which goes on counting those before: 32 travel ahead whatever was told. (Where
/// a link would have to be made for that, after twice as many.)
const TOLD: u32 = 16;
/// Short messages that travel ahead at least, as `Communicator::send` promises.
const AHEAD: u32 = 32;
const _: () = assert!(KEPT - TOLD >= AHEAD);
/// Bytes of a piece of a longer message.
const PIECE: usize = 32 << 10;
/// The same where the receiver reads it where it lies, or it is sent from there.
const LENT_PIECE: usize = 64 << 10;
/// Words, and pieces each way, that one look moves: no fewer than a lane holds, so that it leaves nothing of what a dead rank had sent,
/// and no more, whatever the other adds meanwhile, so that other ranks and the clock have their turn.
pub(super) const AT_ONCE: usize = 16;

/// Whether `peer` has said something that was not heard yet.
pub(super) fn has_spoken<W: Wires>(peer: usize, wires: &W) -> Result<bool, Fault> {
    let wire = |error| Fault::Wire { peer, error };
    match wires.from(peer).map_err(wire)? {
        Some(link) => Ok(link.peek(CONTROL).map_err(wire)?.is_some()),
        None => Ok(false),
    }
}

/// One other rank.
#[derive(Debug, Default)]
pub(super) struct Pair {
    /// Messages to it that it does not know of yet, in order.
    pub(super) unsaid: VecDeque<Sending>,
    /// Those that it knows of and has no place for yet, by their numbers.
    announced: VecDeque<(u32, Sending)>,
    /// How many of these are short: they go when the other can keep more.
    delayed: usize,
    /// Those that it wants.
    flowing: VecDeque<(u32, Flow<Sending>)>,
    /// Those that have gone, of which it is still to read pieces where they lie, in order.
    lent: VecDeque<Flow<Sending>>,
    /// Short messages that it has not handed on yet, as far as this rank knows.
    kept_there: u32,
    next_id: u32,
    /// What is to be said to it.
    answers: VecDeque<Word>,
    /// Receives from it alone, in order.
    pub(super) posted: VecDeque<Posted>,
    /// Messages from it for which there is no place yet, in order.
    pub(super) arrived: VecDeque<Arrival>,
    /// Messages that it was told to send, by their numbers.
    coming: VecDeque<(u32, Flow<Posted>)>,
    /// Its short messages that came, except those that it was told were handed on: at most [`KEPT`].
    kept_here: u32,
    /// Those that were handed on since it was told so.
    handed_on: u32,
    /// When something last moved here.
    pub(super) moved: Option<Instant>,
}

impl Pair {
    /// Whether something here needs the other rank to go on.
    pub(super) fn is_open(&self) -> bool {
        self.has_begun() || !self.posted.is_empty()
    }

    /// Whether that is more than receives that nothing has come for.
    fn has_begun(&self) -> bool {
        !(self.unsaid.is_empty()
            && self.announced.is_empty()
            && self.flowing.is_empty()
            && self.lent.is_empty()
            && self.coming.is_empty())
    }

    /// Whether all that is to be said to it is that some short messages were handed on, so few that [`AHEAD`] more travel ahead. No link is
    /// made for that, as its end may be near, or it may be stopped.
    fn can_wait(&self) -> bool {
        let untold = self.answers.len() as u32 * TOLD;
        !self.has_begun()
            && (self.answers.iter()).all(|word| matches!(word, Word::Taken { .. }))
            && untold + TOLD + AHEAD <= KEPT
    }

    /// Whether the other rank keeps another short message, as far as is known.
    #[inline]
    pub(super) fn may_send_ahead(&self) -> bool {
        self.kept_there < KEPT
    }

    /// Sends a short message, if there is room: nothing goes before it.
    #[inline]
    pub(super) fn send_ahead<L: Link>(
        &mut self,
        envelope: Envelope,
        data: &Region<'_>,
        link: &L,
    ) -> Result<Brief, Error> {
        let Some(room) = link.reserve(CONTROL, data.len())? else {
            return Ok(Brief::NotYet);
        };
        room.copy_from(data);
        link.commit(CONTROL, Word::Here(envelope).header());
        self.kept_there += 1;
        Ok(Brief::Done)
    }

    /// Says that the next message is there to be wanted, if there is room for that.
    fn announce<L: Link>(&self, envelope: Envelope, link: &L) -> Result<Brief, Error> {
        let Some(room) = link.reserve(CONTROL, size_of::<u32>())? else {
            return Ok(Brief::NotYet);
        };
        room.copy_from(&Region::of(&self.next_id.to_ne_bytes()));
        link.commit(CONTROL, Word::There(envelope).header());
        Ok(Brief::Done)
    }

    /// Whether there was no room for something that it is to know of.
    pub(super) fn lacks_room(&self) -> bool {
        !self.unsaid.is_empty()
    }

    /// Whether something is to be said to it, which waits for nothing.
    pub(super) fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Whether this rank has sent itself something for which it has no receive yet.
    pub(super) fn holds_own(&self) -> bool {
        self.arrived
            .iter()
            .any(|arrival| matches!(arrival.data, Kept::Own(_)))
    }

    /// Since when a message on its way stands still: those before it go first.
    fn stands_since<T>(&self, flow: &Flow<T>) -> Instant {
        self.moved.map_or(flow.since, |moved| moved.max(flow.since))
    }

    /// What is under way, in no order: what it is, and since when it stands still.
    pub(super) fn under_way(&self, peer: usize) -> impl Iterator<Item = (Transfer, Instant)> {
        let sending = move |sending: &Sending, since| (sending.transfer(peer), since);
        let unsaid = self.unsaid.iter().map(move |one| sending(one, one.since));
        let announced = self.announced.iter().map(move |(_, one)| sending(one, one.since));
        let flowing = self.flowing.iter().map(|(_, flow)| flow).chain(&self.lent);
        let flowing = flowing.map(move |flow| sending(&flow.what, self.stands_since(flow)));
        let posted = self.posted.iter().map(|one| (one.transfer(), one.since));
        let coming = self
            .coming
            .iter()
            .map(|(_, flow)| (flow.what.transfer(), self.stands_since(flow)));
        unsaid.chain(announced).chain(flowing).chain(posted).chain(coming)
    }

    /// Ends all that is under way because of `cause`.
    pub(super) fn fail(self, cause: &Cause) {
        let announced = self.announced.into_iter().map(|(_, sending)| sending);
        let flowing = self.flowing.into_iter().map(|(_, flow)| flow).chain(self.lent);
        let flowing = flowing.map(|flow| flow.what);
        let sends = self.unsaid.into_iter().chain(announced).chain(flowing);
        sends.for_each(|sending| sending.end(Err(cause.clone())));
        let coming = self.coming.into_iter().map(|(_, flow)| flow.what);
        let receives = self.posted.into_iter().chain(coming);
        receives.for_each(|posted| posted.end(Err(cause.clone())));
        for arrival in self.arrived {
            arrival.fail(cause);
        }
    }

    /// Sends what can be sent now; whether that was anything.
    pub(super) fn send<W: Wires>(&mut self, peer: usize, wires: &W) -> Result<bool, Fault> {
        if self.answers.is_empty()
            && self.unsaid.is_empty()
            && self.flowing.is_empty()
            && self.lent.is_empty()
            && self.delayed == 0
        {
            return Ok(false);
        }
        if wires.made_to(peer).is_none() && self.can_wait() {
            return Ok(false);
        }
        let wire = |error| Fault::Wire { peer, error };
        let link = match wires.to(peer) {
            // Whether what is waited for has come before the end is looked at by who looks for what has no hope.
            Err(error) if !self.has_begun() && error.is_end_of(peer) => {
                self.answers.clear(); // nobody is left to be told
                return Ok(false);
            }
            link => link.map_err(wire)?,
        };
        let Some(link) = link else {
            return Ok(false);
        };
        let mut moved = false;
        while let Some(word) = self.answers.front() {
            let Some(_) = link.reserve(CONTROL, 0).map_err(wire)? else {
                break;
            };
            link.commit(CONTROL, word.header());
            self.answers.pop_front();
            moved = true;
        }
        while self.delayed > 0
            && self.may_send_ahead()
            && let Some(at) = self.announced.iter().position(|(_, sending)| sending.is_short())
        {
            let (id, sending) = &self.announced[at];
            let data = sending.data.region();
            let Some(room) = link.reserve(CONTROL, data.len()).map_err(wire)? else {
                break;
            };
            room.copy_from(&data);
            link.commit(CONTROL, Word::Late { id: *id }.header());
            self.kept_there += 1;
            self.delayed -= 1;
            if let Some((_, sending)) = self.announced.remove(at) {
                sending.end(Ok(None));
            }
            moved = true;
        }
        while let Some(sending) = self.unsaid.pop_front() {
            let goes_ahead = self.may_send_ahead() && sending.is_short();
            let said = match goes_ahead {
                true => self.send_ahead(sending.envelope, &sending.data.region(), link),
                false => self.announce(sending.envelope, link),
            };
            if !matches!(said, Ok(Brief::Done)) {
                self.unsaid.push_front(sending);
                said.map_err(wire)?;
                break;
            }
            match goes_ahead {
                true => sending.end(Ok(None)),
                false => {
                    self.delayed += usize::from(sending.is_short());
                    self.announced.push_back((self.next_id, sending));
                    self.next_id = self.next_id.wrapping_add(1);
                }
            }
            moved = true;
        }
        for _ in 0..AT_ONCE {
            let Some((id, flow)) = self.flowing.front_mut() else {
                break;
            };
            let (at, whole) = (flow.done, flow.what.data.region());
            let piece = |most: usize| whole.part(at, most.min(whole.len() - at));
            let header = Word::Piece { id: *id }.header();
            let mut piece = piece(LENT_PIECE);
            if matches!(link.reach(&piece), Reach::Reading | Reach::Sending) {
                let Some(ticket) = link.offer(DATA, header, piece).map_err(wire)? else {
                    break;
                };
                flow.lent = Some(ticket);
            } else {
                piece = piece.part(0, PIECE.min(piece.len()));
                let Some(room) = link.reserve(DATA, piece.len()).map_err(wire)? else {
                    break;
                };
                room.copy_from(&piece);
                link.commit(DATA, header);
            }
            flow.go_on(piece.len());
            moved = true;
            if flow.done == flow.what.data.region().len()
                && let Some((_, flow)) = self.flowing.pop_front()
            {
                match flow.lent {
                    Some(_) => self.lent.push_back(flow),
                    None => flow.what.end(Ok(None)),
                }
            }
        }
        let is_taken = |flow: &Flow<Sending>| flow.lent.is_none_or(|ticket| link.taken(DATA, ticket));
        while self.lent.front().is_some_and(is_taken)
            && let Some(flow) = self.lent.pop_front()
        {
            flow.what.end(Ok(None));
            moved = true;
        }
        Ok(moved)
    }

    /// Takes in the next thing that came on the control lane. `accept` is given a message, and says whether it has handed
    /// on one whose data is here.
    pub(super) fn hear<W: Wires>(
        &mut self,
        peer: usize,
        wires: &W,
        accept: impl FnOnce(&mut Self, Envelope, Payload<'_>) -> Result<(), Fault>,
    ) -> Result<bool, Fault> {
        let wire = |error| Fault::Wire { peer, error };
        let Some(link) = wires.from(peer).map_err(wire)? else {
            return Ok(false);
        };
        let Some(message) = link.peek(CONTROL).map_err(wire)? else {
            return Ok(false);
        };
        let nonsense = || Fault::Nonsense { peer };
        match Word::of(message.header).ok_or_else(nonsense)? {
            Word::Here(envelope) if envelope.bytes() == message.body.len() => {
                let body = message.body.here().ok_or_else(nonsense)?;
                self.take_in(&body).ok_or_else(nonsense)?;
                accept(self, envelope, Payload::Here(body))?;
            }
            Word::There(envelope) if message.body.len() == size_of::<u32>() => {
                let mut id = [0u8; size_of::<u32>()];
                if !link.take(CONTROL, &Region::of_mut(&mut id)).map_err(wire)? {
                    return Err(nonsense());
                }
                accept(self, envelope, Payload::There(u32::from_ne_bytes(id)))?;
            }
            Word::Wanted { id } => {
                let at = self.announced.iter().position(|(announced, _)| *announced == id);
                match at.and_then(|at| self.announced.remove(at)) {
                    Some((_, sending)) => {
                        self.delayed -= usize::from(sending.is_short());
                        self.flowing.push_back((id, Flow::new(sending)));
                    }
                    // It has gone meanwhile.
                    None if self.next_id.wrapping_sub(id).cast_signed() > 0 => {}
                    None => return Err(nonsense()),
                }
            }
            Word::Late { id } => {
                let body = message.body.here().ok_or_else(nonsense)?;
                self.take_in(&body).ok_or_else(nonsense)?;
                self.take_late(id, &body).ok_or_else(nonsense)?;
            }
            Word::Taken { messages } if messages <= self.kept_there => self.kept_there -= messages,
            _ => return Err(nonsense()),
        }
        link.release(CONTROL);
        Ok(true)
    }

    /// A short message has come along with what was said; `None` if it is not short, or more than may be kept. A longer one never
    /// comes so, because the link may have been told where its data lands.
    #[inline]
    pub(super) fn take_in(&mut self, body: &Region<'_>) -> Option<()> {
        self.kept_here += 1;
        (body.len() <= SHORT && self.kept_here <= KEPT).then_some(())
    }

    /// The data of a message that it had announced has come; `None` if there is no such message.
    fn take_late(&mut self, id: u32, body: &Region<'_>) -> Option<()> {
        if let Some(at) = self.coming.iter().position(|(coming, _)| *coming == id) {
            let (_, flow) = &self.coming[at];
            let place = flow.what.data.region();
            if place.len() != body.len() || flow.done > 0 {
                return None;
            }
            place.copy_from(body);
            let (_, flow) = self.coming.remove(at)?;
            flow.what.done();
            self.hand_on();
            return Some(());
        }
        let is_it = |arrival: &&mut Arrival| matches!(arrival.data, Kept::There(other) if other == id);
        let arrival = self.arrived.iter_mut().find(is_it)?;
        if arrival.envelope.bytes() != body.len() {
            return None;
        }
        let mut bytes = vec![0; body.len()];
        Region::of_mut(&mut bytes).copy_from(body);
        arrival.data = Kept::Here(bytes);
        Some(())
    }

    /// A short message of the other rank was handed on.
    pub(super) fn hand_on(&mut self) {
        self.handed_on += 1;
        if self.handed_on >= TOLD {
            let messages = std::mem::take(&mut self.handed_on);
            self.kept_here -= messages;
            self.answers.push_back(Word::Taken { messages });
        }
    }

    /// Message `id` of the other rank has a place now.
    pub(super) fn want(&mut self, id: u32, posted: Posted) {
        self.answers.push_back(Word::Wanted { id });
        self.coming.push_back((id, Flow::new(posted)));
    }

    /// Takes in the data that came, [`AT_ONCE`] pieces at most; whether there was any.
    pub(super) fn receive<W: Wires>(&mut self, peer: usize, wires: &W) -> Result<bool, Fault> {
        let wire = |error| Fault::Wire { peer, error };
        let mut moved = false;
        for _ in 0..AT_ONCE {
            if self.coming.is_empty() {
                break;
            }
            let Some(link) = wires.from(peer).map_err(wire)? else {
                break;
            };
            let Some(message) = link.peek(DATA).map_err(wire)? else {
                if let Some((id, flow)) = self.coming.front()
                    && flow.what.data.region().len() > SHORT
                {
                    // As the sender leaves it where it lies; a shorter one is copied, or comes late.
                    let (place, at) = (flow.what.data.region(), flow.done);
                    let next = place.part(at, LENT_PIECE.min(place.len() - at));
                    link.land(DATA, &Word::Piece { id: *id }.header(), &next);
                }
                break;
            };
            let nonsense = || Fault::Nonsense { peer };
            let Some(Word::Piece { id }) = Word::of(message.header) else {
                return Err(nonsense());
            };
            let at = self.coming.iter().position(|(coming, _)| *coming == id);
            let at = at.ok_or_else(nonsense)?;
            let (_, flow) = &mut self.coming[at];
            let (place, len) = (flow.what.data.region(), message.body.len());
            if len > place.len() - flow.done || len == 0 && place.len() > 0 {
                return Err(nonsense());
            }
            let target = place.part(flow.done, len);
            if !link.take(DATA, &target).map_err(wire)? {
                break;
            }
            flow.go_on(len);
            link.release(DATA);
            moved = true;
            if flow.done == flow.what.data.region().len()
                && let Some((_, flow)) = self.coming.remove(at)
            {
                flow.what.done();
            }
        }
        Ok(moved)
    }
}
