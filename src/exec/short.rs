//! [`Short`]: the way of a short call that is made again.
//!
//! Such a call is over in the time that a few cache lines take between two processors, so that each instruction counts. Its
//! data is one tile, so that all places are known in bytes beforehand, and messages are looked at only for being exactly
//! those that must come. Whatever is not soon as it should be ends the way, and the general executor goes on from there, as
//! from a [`Straight`](super::Straight) one: messages are the same either way.

use super::{
    cursor::Cursor,
    memory::Work,
    straight::{self, From, Place, Reached, Where, find_answers, piece},
};
use crate::{
    mem::Region,
    plan::schedule::{Buffer, How, LoopVars, Step},
    reduce::{Manner, Pair, reduce_as},
    sys::clock,
    transport::{
        CALL_LANES, Expected, Header, Link, Wires, Words, header_of,
        shm::{INLINE, MAX_SHOWN},
        words_of,
    },
    types::{DType, Error, Op},
};
use std::{cell::Cell, hint, slice};

/// The steps of a call of one channel and one tile that move anything.
#[derive(Debug)]
pub(crate) struct Short {
    legs: Vec<Leg>,
    /// Where this rank only receives, so that who sends may be calls ahead.
    stream: Option<Stream>,
    /// Whether it sends before it receives.
    sends_first: bool,
    dtype: DType,
    op: Op,
    manner: Manner,
    /// Ranks of the call.
    ranks: usize,
    /// Words of scratch memory.
    scratch: usize,
}

/// A step.
#[derive(Debug)]
struct Leg {
    sources: Vec<From>,
    how: How,
    stores: Vec<Place>,
    sends: Vec<usize>,
    room: Where,
    /// Bytes of each message and of each place.
    bytes: usize,
    /// What its messages tell in the place of the call's count, if they do.
    count: Option<u64>,
    /// Steps of the call before it.
    before: usize,
    /// Whether its messages may be shown: each peer that it sends to, or receives from, sends one back.
    is_shown: bool,
    kind: Kind,
}

/// What kind of step it is: for most there is less to do than for any.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// What lies in a place is sent to a peer, and goes to another place if there is one.
    Send {
        from: Place,
        to: usize,
        keep: Option<Place>,
    },
    /// What lies in a place is sent to several peers, and goes to another place if there is one. It fits an entry.
    Spread {
        from: Place,
        keep: Option<Place>,
    },
    /// What comes from a peer goes to a place.
    Receive {
        from: usize,
        to: Place,
    },
    /// From one place to another.
    Copy {
        from: Place,
        to: Place,
    },
    /// What comes from a peer and what lies in a place are reduced into a place.
    Join(Join),
    /// At most [`NARROW`] sources and peers to which it sends.
    Narrow,
    Wide,
}

impl Kind {
    /// That of any step with so many sources, or peers to which it sends.
    fn any(ends: usize) -> Kind {
        match ends <= NARROW {
            true => Kind::Narrow,
            false => Kind::Wide,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Join {
    /// Whether what comes is the first of the two.
    comes_first: bool,
    from: usize,
    with: Place,
    to: Place,
    sum: Pair,
}

/// What is another in each call.
#[derive(Debug)]
pub(crate) struct Turn<'t, 'm> {
    /// The call's header.
    pub(crate) words: Words,
    pub(crate) lane: usize,
    /// Input and output.
    pub(crate) buffers: &'t [Region<'m>; 2],
    /// At least [`Short::scratch_words`].
    pub(crate) scratch: Region<'m>,
    /// Whether this rank shares its core with nobody.
    pub(crate) is_alone: bool,
}

/// How a try at a step came out.
#[derive(PartialEq, Eq)]
enum Tried {
    Done,
    /// Something is not there yet.
    NotYet,
    /// Something else came.
    Other,
}

impl Short {
    /// The way of a call like `work`, if it is one: of one channel, one tile and few steps, each of which reads and writes a
    /// few pieces of memory.
    pub(crate) fn new(work: &Work<'_>) -> Option<Short> {
        let Work { schedule, tiling, .. } = *work;
        let [items] = &schedule.channels[..] else {
            return None;
        };
        if tiling.tiles != 1 || work.scalar.is_some() {
            return None;
        }
        let sends_empty = work.sends_empty(0);
        let manner = Manner {
            tree: work.tree,
            scaled: None,
        };
        let (mut cursor, mut legs, mut before) = (Cursor::new(items), Vec::new(), 0);
        while let Some(step) = cursor.step(items) {
            let leg = Leg::of(step, cursor.vars(), work, manner, before)?;
            if leg.bytes > 0 || sends_empty {
                legs.push(leg);
            }
            before += 1;
            if legs.len() > MOST {
                return None;
            }
            cursor.advance(items);
        }
        find_answers(
            legs.iter_mut()
                .map(|leg| (&leg.sources[..], &leg.sends[..], &mut leg.room)),
        );
        for leg in legs.iter_mut().filter(|leg| leg.room == Where::Open) {
            leg.kind = Kind::any(leg.sources.len().max(leg.sends.len()));
        }
        find_exchanges(&mut legs);
        Some(Short {
            stream: Stream::of(&legs),
            sends_first: {
                let receives = |leg: &Leg| leg.sources.iter().any(|from| matches!(from, From::Peer(_)));
                legs.first()
                    .is_some_and(|leg| !leg.sends.is_empty() && !receives(leg))
                    && legs.iter().any(receives)
            },
            legs,
            dtype: work.dtype,
            op: work.op,
            manner,
            ranks: work.ranks(),
            scratch: Work::scratch_bytes(schedule, &tiling, 1, work.dtype).div_ceil(size_of::<u64>()),
        })
    }

    /// Bytes of its longest message.
    pub(crate) fn longest(&self) -> usize {
        self.legs.iter().map(|leg| leg.bytes).max().unwrap_or(0)
    }

    /// Whether there is something to be done in the meantime when its first step is done.
    #[inline]
    pub(crate) fn sends_first(&self) -> bool {
        self.sends_first
    }

    /// Words of scratch memory that it needs.
    #[inline]
    pub(crate) fn scratch_words(&self) -> usize {
        self.scratch
    }

    /// Goes the way; `None` if that was all of it, else how far the call is. After each fruitless look `wait` is asked, with
    /// the number of those since something moved, whether to look again; it may pause. `meanwhile` is done once the first step was
    /// tried: others wait for what that sends.
    #[inline]
    pub(crate) fn run<W: Wires>(
        &self,
        turn: &Turn<'_, '_>,
        wires: &W,
        meanwhile: impl FnOnce(),
        mut wait: impl FnMut(u32) -> bool,
    ) -> Option<Reached> {
        let flows = self.stream.as_ref().is_some_and(|stream| stream.flows(turn));
        // Whether that is looked for which it may fall behind.
        let mut is_first = flows;
        let few = if turn.is_alone { FEW_LOOKS } else { 0 };
        let (mut falls_behind, mut waited, mut meanwhile) = (false, 0, Meanwhile(Some(meanwhile)));
        for leg in &self.legs {
            let mut looks = 0;
            loop {
                let tried = self.step(leg, turn, wires, if is_first { 0 } else { few });
                meanwhile.run();
                match tried {
                    Tried::Done => break,
                    Tried::NotYet if is_first => {
                        is_first = false;
                        let stream = self.stream.as_ref();
                        falls_behind = stream.is_some_and(|stream| stream.falls_behind(wires));
                        continue;
                    }
                    Tried::NotYet => {
                        looks += 1;
                        waited += 1;
                    }
                    Tried::Other => return Some(leg.reached()),
                }
                if !wait(looks) {
                    return Some(leg.reached());
                }
            }
            is_first &= matches!(leg.kind, Kind::Copy { .. });
        }
        if let Some(stream) = &self.stream {
            stream.passed(turn, waited);
            if flows && waited == 0 && !falls_behind {
                stream.foresee(turn, wires);
            }
        }
        None
    }

    /// Tries a step; what it waits for is looked at so often `more`. If it is not done nothing has been sent or released, and what was
    /// reserved is reserved again by who goes on.
    #[inline(always)] // in the path of each short call
    fn step<W: Wires>(&self, leg: &Leg, turn: &Turn<'_, '_>, wires: &W, more: u32) -> Tried {
        match leg.kind {
            Kind::Send { from, to, keep } => leg.send(to, from, keep, turn, wires),
            Kind::Spread { from, keep } => match leg.spread(from, keep, turn, wires) {
                Some(tried) => tried,
                None if leg.sends.len() <= NARROW => self.step_of_any::<_, NARROW>(leg, turn, wires),
                None => self.step_of_any::<_, WIDE>(leg, turn, wires),
            },
            Kind::Receive { from, to } => leg.receive_into(from, to, turn, wires, more),
            Kind::Copy { from, to } => {
                turn.place(to, leg.bytes).keep(&turn.place(from, leg.bytes));
                Tried::Done
            }
            Kind::Join(ref join) => leg.join(join, turn, wires, more),
            Kind::Narrow => self.step_of_any::<_, NARROW>(leg, turn, wires),
            Kind::Wide => self.step_of_any::<_, WIDE>(leg, turn, wires),
        }
    }

    /// [`Short::step`] of whatever kind. It has at most `ENDS` sources, and sends to so many peers.
    #[inline(never)] // so that the other kinds do not pay for it
    fn step_of_any<W: Wires, const ENDS: usize>(&self, leg: &Leg, turn: &Turn<'_, '_>, wires: &W) -> Tried {
        let (bytes, lane) = (leg.bytes, turn.lane);
        let header = leg.header(turn);
        let (mut sources, mut froms) = ([Region::empty(); ENDS], [None; ENDS]);
        let (sources, froms) = (&mut sources[..leg.sources.len()], &mut froms[..leg.sources.len()]);
        for (k, from) in leg.sources.iter().enumerate() {
            sources[k] = match *from {
                From::Place(place) => turn.place(place, bytes),
                From::Peer(peer) => {
                    let Some(link) = wires.made_from(peer) else {
                        return Tried::Other;
                    };
                    froms[k] = Some(link);
                    match link.expect(lane, &header, bytes) {
                        Expected::Body(body) => body,
                        Expected::Nothing => return Tried::NotYet,
                        Expected::Other => return Tried::Other,
                    }
                }
            };
        }
        let (mut rooms, mut tos) = ([Region::empty(); ENDS], [None; ENDS]);
        let (rooms, tos) = (&mut rooms[..leg.sends.len()], &mut tos[..leg.sends.len()]);
        for (k, &peer) in leg.sends.iter().enumerate() {
            let Some(link) = wires.made_to(peer) else {
                return Tried::Other;
            };
            tos[k] = Some(link);
            // What is wrong is found again.
            match reserve(link, tos[0], leg.room, lane, bytes) {
                Ok(Some(room)) => rooms[k] = room,
                Ok(None) => return Tried::NotYet,
                Err(_) => return Tried::Other,
            }
        }
        let far = tos.iter().flatten().any(|link| link.is_far());
        let mut stores = leg.stores.iter().map(|&place| turn.place(place, bytes));
        let mut rooms = rooms.iter().copied();
        let result = match (leg.how, &*sources) {
            (How::Copy, &[only]) => Some(only),
            _ => stores.next().or_else(|| rooms.next()).inspect(|first| {
                let finish = (leg.how == How::ReduceLast).then_some(self.ranks);
                reduce_as(self.op, self.dtype, finish, self.manner, sources, first);
            }),
        };
        let store = |store: Region<'_>| {
            result.inspect(|result| store.copy_from(result));
        };
        if !sends_first(bytes) {
            stores.by_ref().for_each(store);
        }
        for room in rooms.filter(|room| room.len() > 0) {
            result.inspect(|result| room.copy_out_from(result, far));
        }
        for link in tos.iter().flatten() {
            match leg.is_shown_in(turn) {
                true => link.commit_shown(lane, header),
                false => link.commit(lane, header),
            }
        }
        stores.for_each(store);
        for link in froms.iter().flatten() {
            link.release(lane);
        }
        Tried::Done
    }
}

/// What is to be done once, at the latest when this is dropped.
struct Meanwhile<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Meanwhile<F> {
    #[inline(always)] // in the path of each short call
    fn run(&mut self) {
        if let Some(meanwhile) = self.0.take() {
            meanwhile();
        }
    }
}

impl<F: FnOnce()> Drop for Meanwhile<F> {
    #[inline(always)] // in the path of each short call
    fn drop(&mut self) {
        self.run();
    }
}

/// What a rank that only receives knows of those who send to it, call after call.
///
/// Where it is as fast as they are it looks at each line just before that is written: the line goes to it and back in vain,
/// which takes both longer than the call. So in calls of one kind that follow one another at once it falls a little behind
/// when nothing is there yet, takes several messages one after the other then, and has the next one brought meanwhile.
#[derive(Debug)]
struct Stream {
    /// The number of the call after the last one, if what that received came soon; else [`NONE`].
    next: Cell<u64>,
    /// Each message's peer and bytes.
    messages: Vec<(usize, usize)>,
}

impl Stream {
    /// `None` where it sends too.
    fn of(legs: &[Leg]) -> Option<Stream> {
        if legs.iter().any(|leg| !leg.sends.is_empty()) {
            return None;
        }
        let sources = legs
            .iter()
            .flat_map(|leg| leg.sources.iter().map(|from| (from, leg.bytes)));
        let message = |(from, bytes): (&From, usize)| match *from {
            From::Peer(peer) => Some((peer, bytes)),
            From::Place(_) => None,
        };
        Some(Stream {
            next: Cell::new(NONE),
            messages: sources.filter_map(message).collect(),
        })
    }

    /// Has the messages of the next call, if it is like this one, brought into the cache: they are likely there already.
    #[inline]
    fn foresee<W: Wires>(&self, turn: &Turn<'_, '_>, wires: &W) {
        let lane = (turn.lane + 1) % CALL_LANES;
        for &(peer, bytes) in &self.messages {
            if let Some(link) = wires.made_from(peer) {
                link.foresee(lane, bytes);
            }
        }
    }

    /// Whether the call before this one was of the same kind, and hardly waited. Not where ranks take turns: there time is
    /// better given to others.
    #[inline]
    fn flows(&self, turn: &Turn<'_, '_>) -> bool {
        turn.is_alone && self.next.get() == u64::from(turn.number())
    }

    /// The call is over, in which so many looks were in vain.
    #[inline]
    fn passed(&self, turn: &Turn<'_, '_>, waited: u32) {
        let next = u64::from(turn.number().wrapping_add(1));
        self.next.set(if waited < SOON { next } else { NONE });
    }

    /// What it needs first is not there yet: lets some time pass in which no line is looked at, where messages come in lines.
    #[cold]
    fn falls_behind<W: Wires>(&self, wires: &W) -> bool {
        let mut links = (self.messages.iter()).filter_map(|&(peer, _)| wires.made_from(peer));
        if !links.all(Link::comes_alone) {
            return false;
        }
        let until = clock::now() + BEHIND;
        while clock::now() < until {
            hint::spin_loop();
        }
        true
    }
}

impl Leg {
    /// `step` of `work` where these are the loop variables, after so many others. Not if it has many ends.
    fn of(step: &Step, vars: &LoopVars, work: &Work<'_>, manner: Manner, before: usize) -> Option<Leg> {
        let ends = step.sources.len().max(step.sends.len());
        if ends > WIDE {
            return None;
        }
        let leg = straight::Leg::of(step, vars, work.schedule, |slice| {
            piece(slice, vars, work.schedule, &work.grains, &work.tiling)
        })?;
        let element = work.dtype.size();
        let in_bytes = |place: Place| Place {
            at: place.at * element,
            ..place
        };
        let from = |from| match from {
            From::Place(place) => From::Place(in_bytes(place)),
            From::Peer(peer) => From::Peer(peer),
        };
        let [_, count] = words_of(work.header_of(step, vars));
        let (how, bytes) = (leg.how, leg.elements * element);
        let sources: Vec<From> = leg.sources.into_iter().map(from).collect();
        let stores: Vec<Place> = leg.stores.into_iter().map(in_bytes).collect();
        let join = |comes_first, from, with, to| {
            let finish = (how == How::ReduceLast).then_some(work.ranks());
            let sum = Pair::new(work.op, work.dtype, finish, manner, bytes)?;
            Some(Kind::Join(Join {
                comes_first,
                from,
                with,
                to,
                sum,
            }))
        };
        let any = Kind::any(ends);
        let kind = match (how, &sources[..], &stores[..], &leg.sends[..]) {
            (How::Copy, &[From::Place(from)], &[], &[to]) => Kind::Send { from, to, keep: None },
            (How::Copy, &[From::Place(from)], &[keep], &[to]) => Kind::Send {
                from,
                to,
                keep: Some(keep),
            },
            (How::Copy, &[From::Place(from)], [] | [_], [_, _, ..]) if bytes <= INLINE => Kind::Spread {
                from,
                keep: stores.first().copied(),
            },
            (How::Copy, &[From::Peer(from)], &[to], []) => Kind::Receive { from, to },
            (How::Copy, &[From::Place(from)], &[to], []) => Kind::Copy { from, to },
            (_, &[From::Peer(from), From::Place(with)], &[to], []) => {
                join(true, from, with, to).unwrap_or(any)
            }
            (_, &[From::Place(with), From::Peer(from)], &[to], []) => {
                join(false, from, with, to).unwrap_or(any)
            }
            _ => any,
        };
        Some(Leg {
            sources,
            how,
            stores,
            sends: leg.sends.into_vec(),
            room: Where::Own,
            bytes,
            count: work.grains.are_told().then_some(count),
            before,
            is_shown: false,
            kind,
        })
    }

    /// Whether its messages are shown in this call.
    #[inline]
    fn is_shown_in(&self, turn: &Turn<'_, '_>) -> bool {
        self.is_shown && turn.is_alone
    }

    /// Tries a step that sends what lies in a place.
    ///
    /// Each kind of step is a function of its own: what one works out beforehand the others would pay for.
    #[inline(never)]
    fn send<W: Wires>(
        &self,
        to: usize,
        from: Place,
        keep: Option<Place>,
        turn: &Turn<'_, '_>,
        wires: &W,
    ) -> Tried {
        let Some(link) = wires.made_to(to) else {
            return Tried::Other;
        };
        let (header, body) = (self.header(turn), turn.place(from, self.bytes));
        let sent = match self.is_shown_in(turn) {
            true => link.send_shown(turn.lane, header, &body),
            false => link.send(turn.lane, header, &body),
        };
        match sent {
            Some(true) => {
                if let Some(keep) = keep {
                    turn.place(keep, self.bytes).keep(&body);
                }
                Tried::Done
            }
            Some(false) => Tried::NotYet,
            None => Tried::Other,
        }
    }

    /// Tries a step that sends what lies in a place to several peers. `None` if a link can't say whether it can.
    #[inline(never)]
    fn spread<W: Wires>(
        &self,
        from: Place,
        keep: Option<Place>,
        turn: &Turn<'_, '_>,
        wires: &W,
    ) -> Option<Tried> {
        for &peer in &self.sends {
            let Some(link) = wires.made_to(peer) else {
                return Some(Tried::Other);
            };
            if !link.has_credit(turn.lane, self.bytes)? {
                return Some(Tried::NotYet);
            }
        }
        let (header, body) = (self.header(turn), turn.place(from, self.bytes));
        for link in self.sends.iter().filter_map(|&peer| wires.made_to(peer)) {
            let sent = match self.is_shown_in(turn) {
                true => link.send_shown(turn.lane, header, &body),
                false => link.send(turn.lane, header, &body),
            };
            assert_eq!(sent, Some(true), "a message for which there was a credit");
        }
        if let Some(keep) = keep {
            turn.place(keep, self.bytes).keep(&body);
        }
        Some(Tried::Done)
    }

    /// Tries a step that receives into a place.
    #[inline(never)]
    fn receive_into<W: Wires>(
        &self,
        from: usize,
        to: Place,
        turn: &Turn<'_, '_>,
        wires: &W,
        more: u32,
    ) -> Tried {
        self.receive(from, turn, (wires, more), |body| {
            turn.place(to, self.bytes).copy_few_from(&body);
        })
    }

    /// Tries a step that reduces what comes.
    #[inline(never)]
    fn join<W: Wires>(&self, join: &Join, turn: &Turn<'_, '_>, wires: &W, more: u32) -> Tried {
        self.receive(join.from, turn, (wires, more), |body| {
            let with = turn.place(join.with, self.bytes);
            let sources = match join.comes_first {
                true => [body, with],
                false => [with, body],
            };
            join.sum.run(sources, turn.place(join.to, self.bytes));
        })
    }

    /// Tries a step that receives from a peer and sends nothing; `handle` does it with what comes.
    #[inline(always)] // in the path of each short call
    fn receive<W: Wires>(
        &self,
        peer: usize,
        turn: &Turn<'_, '_>,
        (wires, more): (&W, u32),
        handle: impl FnOnce(Region<'_>),
    ) -> Tried {
        let Some(link) = wires.made_from(peer) else {
            return Tried::Other;
        };
        let header = self.header(turn);
        let shown = match self.is_shown_in(turn) {
            true => link.take_shown(turn.lane, &header, self.bytes, FEW_LOOKS + 1),
            false => None,
        };
        let mut word = shown.unwrap_or(0);
        let body = if shown.is_some() {
            Region::of_mut(slice::from_mut(&mut word)).part(0, self.bytes)
        } else {
            let mut more = if link.comes_alone() { more } else { 0 };
            loop {
                match link.expect(turn.lane, &header, self.bytes) {
                    Expected::Body(body) => break body,
                    Expected::Nothing if more == 0 => return Tried::NotYet,
                    Expected::Nothing => more -= 1,
                    Expected::Other => return Tried::Other,
                }
                hint::spin_loop();
            }
        };
        handle(body);
        if shown.is_none() {
            link.release(turn.lane);
        }
        Tried::Done
    }

    #[inline]
    fn header(&self, turn: &Turn<'_, '_>) -> Header {
        let [first, count] = turn.words;
        header_of([first, self.count.unwrap_or(count)])
    }

    fn reached(&self) -> Reached {
        Reached {
            tile: 0,
            steps: self.before,
        }
    }
}

/// Marks the legs whose messages are a few bytes that two ranks send each other: one each, in the whole call.
fn find_exchanges(legs: &mut [Leg]) {
    let is_from = |leg: &Leg, peer: usize| {
        let froms = leg.sources.iter();
        froms
            .filter(|from| matches!(from, From::Peer(from) if *from == peer))
            .count()
    };
    let is_to = |leg: &Leg, peer: usize| leg.sends.iter().filter(|&&to| to == peer).count();
    let exchanges = |peer: usize, legs: &[Leg]| {
        let froms: usize = legs.iter().map(|leg| is_from(leg, peer)).sum();
        let tos: usize = legs.iter().map(|leg| is_to(leg, peer)).sum();
        (froms, tos) == (1, 1)
    };
    for k in 0..legs.len() {
        let leg = &legs[k];
        let peers = leg.sources.iter().filter_map(|from| match *from {
            From::Peer(peer) => Some(peer),
            From::Place(_) => None,
        });
        let mut peers = peers.chain(leg.sends.iter().copied());
        legs[k].is_shown = leg.bytes <= MAX_SHOWN && peers.all(|peer| exchanges(peer, legs));
    }
}

/// Whether a step that keeps what it sends, `bytes` bytes, had better send it first, as its receiver waits for it. Of fewer bytes the
/// stores for another processor would keep those for this one waiting.
///
/// All-gather of 2 ranks on an Intel Xeon, kept first -> sent first, in us: of 4 KiB a rank 1.0 -> 1.0, of 8 KiB 1.70 -> 1.74, of 10 KiB
/// 1.81 -> 1.77, 12 KiB 2.10 -> 1.91, 16 KiB 2.77 -> 2.27, 24 KiB 3.86 -> 3.11.
#[inline]
pub(super) fn sends_first(bytes: usize) -> bool {
    bytes > 8 << 10
}

/// Room for a message of `bytes` bytes on `lane` of `link`; empty if what is written for `first`, the first of the links to which
/// a step sends, is read there.
#[inline]
pub(super) fn reserve<'l, L: Link>(
    link: &'l L,
    first: Option<&L>,
    room: Where,
    lane: usize,
    bytes: usize,
) -> Result<Option<Region<'l>>, Error> {
    match room {
        Where::Own => {}
        Where::Open => return link.reserve_open(lane, bytes),
        Where::Answer => {
            if let Some(room) = link.answer(lane, bytes) {
                return Ok(Some(room));
            }
        }
    }
    if let Some(first) = first.filter(|&first| !std::ptr::eq(first, link)) {
        match link.reserve_with(first, lane)? {
            None => return Ok(None),
            Some(true) => return Ok(Some(Region::empty())),
            Some(false) => {}
        }
    }
    link.reserve(lane, bytes)
}

impl<'m> Turn<'_, 'm> {
    /// The call's number, as far as its messages tell it.
    #[inline]
    fn number(&self) -> u16 {
        self.words[0] as u16
    }

    #[inline]
    fn place(&self, Place { buffer, at }: Place, bytes: usize) -> Region<'m> {
        let memory = match buffer {
            Buffer::Input => &self.buffers[0],
            Buffer::Output => &self.buffers[1],
            Buffer::Scratch => &self.scratch,
        };
        memory.part(at, bytes)
    }
}

/// Sources of most steps, and peers to which they send: what is prepared for more costs time.
const NARROW: usize = 2;
/// The same of all steps.
const WIDE: usize = 8;
/// More looks at an awaited message's flag alone, each time before anything else is looked at, where a rank has a core of its own.
/// 2 ranks, 8 bytes, in ns, without -> with them: gather 75 -> 66, barrier 133 -> 121; where the cores share no cache gather
/// 165 -> 122.
pub(crate) const FEW_LOOKS: u32 = 8;
/// Steps, at most.
const MOST: usize = 64;
/// Looks in vain of a call whose messages come soon, at most.
const SOON: u32 = 32;
/// Nanoseconds by which a rank falls behind.
const BEHIND: u64 = 350;
/// The number of no call.
const NONE: u64 = u64::MAX;
