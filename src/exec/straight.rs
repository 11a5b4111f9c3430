//! [`Straight`]: the way of a call whose steps are known, worked out when it is planned; of given blocks, when it is made.
//!
//! Of the time of a call of a few bytes, and of each tile of a longer one, much would go into finding out what to do: which
//! step is next, where its grains lie, what of them is in which tile. Where a call has one channel, and pieces that lie in
//! one piece each, all that is always the same. So the steps of the proved schedule are kept as they come, with their peers
//! and places, and run one after the other, tiles in flight by turns.
//!
//! Whatever is not soon as it should be (a message that does not come, one of another call, no room) ends the way, and the
//! general executor goes on from there. Messages are the same either way, so that other ranks never know.

use super::{
    cursor::Cursor,
    host::Fault,
    memory::{Work, telling},
    short::{reserve, sends_first},
};
use crate::{
    mem::Region,
    plan::{
        layout::{Grains, Tiling},
        schedule::{Buffer, How, LoopVars, Schedule, Slice, Source, Step},
    },
    transport::{CALL_LANES, Header, Link, Wires},
    types::Error,
};
use smallvec::SmallVec;
use std::ops::Range;

/// The steps of a call of one channel.
#[derive(Debug)]
pub(crate) struct Straight {
    legs: Vec<Leg>,
    tiling: Tiling,
    /// Bytes of an element.
    element: usize,
    /// Elements of the scratch memory of a copy of the program.
    scratch: usize,
    /// Whether its messages tell their lengths in the place of the call's count, as [`Work::header_of`] says.
    tells: bool,
}

/// A step with everything in its place.
#[derive(Debug)]
pub(super) struct Leg {
    pub(super) sources: SmallVec<[From; 2]>,
    pub(super) how: How,
    pub(super) stores: SmallVec<[Place; 1]>,
    pub(super) sends: SmallVec<[usize; 2]>,
    pub(super) room: Where,
    /// Elements of each message and of each place, in all tiles.
    pub(super) elements: usize,
}

/// In which room a message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Where {
    /// One of its own.
    Own,
    /// One that its receiver may answer in.
    Open,
    /// That of the message from the same peer which it answers, if that is open.
    Answer,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum From {
    Place(Place),
    Peer(usize),
}

/// A place in a buffer: in elements here, in bytes in a [`Short`](super::Short) way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) buffer: Buffer,
    pub(super) at: usize,
}

/// How far a copy of the program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reached {
    /// The tile that it works on; the number of tiles or more when it has done all of its own.
    pub(super) tile: usize,
    /// Steps of that tile that are done: never all.
    pub(super) steps: usize,
}

impl Straight {
    /// The way through `schedule`, if there is one: a single channel of few steps, whose messages each lie in one piece in
    /// each tile. `element` is the size of one.
    pub(crate) fn new(
        schedule: &Schedule,
        grains: &Grains<'_>,
        tiling: &Tiling,
        element: usize,
    ) -> Option<Straight> {
        let [items] = &schedule.channels[..] else {
            return None;
        };
        let ends = |step: &Step| step.sources.len() + step.stores.len() + step.sends.len();
        let (mut cursor, mut legs, mut all) = (Cursor::new(items), Vec::new(), 0);
        while let Some(step) = cursor.step(items) {
            all += ends(step);
            if all > MOST {
                return None;
            }
            legs.push(Leg::of(step, cursor.vars(), schedule, |slice| {
                piece(slice, cursor.vars(), schedule, grains, tiling)
            })?);
            cursor.advance(items);
        }
        find_answers(
            legs.iter_mut()
                .map(|leg| (&leg.sources[..], &leg.sends[..], &mut leg.room)),
        );
        Some(Straight {
            legs,
            tiling: *tiling,
            element,
            scratch: schedule.scratch as usize * tiling.elements,
            tells: grains.are_told(),
        })
    }

    /// That of `work`, if its blocks are given: it may be another in each call, and is not planned. All-to-all-v on an AMD EPYC with 2 cores,
    /// medians of 5, by the general executor and straight, in us: 4 ranks 1 MiB 167 and 134, 4 MiB 871 and 731; 8 ranks 64 KiB 50 and 41,
    /// 1 MiB 753 and 646, 4 MiB 2896 and 2629; 2 ranks as much.
    pub(crate) fn of_given(work: &Work<'_>) -> Option<Straight> {
        let Work {
            schedule,
            grains: grains @ Grains::Given { .. },
            tiling,
            dtype,
            ..
        } = work
        else {
            return None;
        };
        Straight::new(schedule, grains, tiling, dtype.size())
    }

    /// Runs `work`; `None` if that was all of it, else how far each copy of the program is: the general executor goes on from
    /// there. `wait` is asked after each round, with the number of fruitless rounds since the last one in which something
    /// moved, whether to go on; it may pause.
    ///
    /// # Errors
    /// When a link fails, which is not found a second time.
    pub(crate) fn run<W: Wires>(
        &self,
        work: &Work<'_>,
        wires: &W,
        mut wait: impl FnMut(u32) -> bool,
    ) -> Result<Option<SmallVec<[Reached; 4]>>, Fault> {
        let (tiles, copies) = (self.tiling.tiles, work.copies.min(self.tiling.tiles));
        let mut reached: SmallVec<[Reached; 4]> =
            (0..copies).map(|tile| Reached { tile, steps: 0 }).collect();
        let mut looks = 0;
        loop {
            let (mut moved, mut is_over, mut is_strange) = (false, true, false);
            for (copy, Reached { tile, steps }) in reached.iter_mut().enumerate() {
                while *tile < tiles {
                    let Some(leg) = self.legs.get(*steps) else {
                        (*tile, *steps) = (*tile + work.copies, 0);
                        continue;
                    };
                    let ran = self.step(leg, work, wires, (copy, *tile))?;
                    *steps += usize::from(ran == Ran::Done);
                    moved |= ran == Ran::Done;
                    is_strange |= ran == Ran::Strange;
                    if ran != Ran::Done || *steps < self.legs.len() {
                        break;
                    }
                }
                is_over &= *tile >= tiles;
            }
            if is_over {
                work.settle();
                return Ok(None);
            }
            looks = if moved { 0 } else { looks + 1 };
            if is_strange || !wait(looks) {
                return Ok(Some(reached));
            }
        }
    }

    /// Runs a step for a tile. Unless it is done nothing has been sent or released, and what was reserved is reserved again by
    /// who goes on.
    #[inline]
    fn step<W: Wires>(
        &self,
        leg: &Leg,
        work: &Work<'_>,
        wires: &W,
        (copy, tile): (usize, usize),
    ) -> Result<Ran, Fault> {
        let at = tile * self.tiling.elements;
        // Of a call of one tile a piece may be several grains.
        let elements = match self.tiling.tiles {
            1 => leg.elements,
            _ => self.tiling.elements.min(leg.elements.saturating_sub(at)),
        };
        if elements == 0 && !work.sends_empty(tile) {
            return Ok(Ran::Done);
        }
        let bytes = elements * self.element;
        let lane = (work.first_lane + copy * work.channels) % CALL_LANES;
        let header = match self.tells {
            true => telling(work.header, leg.elements),
            false => work.header,
        };
        leg.run(work, wires, (lane, header, bytes), |place| {
            let (buffer, at) = match place.buffer {
                Buffer::Input => (work.input, place.at + at),
                Buffer::Output => (work.output, place.at + at),
                Buffer::Scratch => (work.scratch, place.at + copy * self.scratch),
            };
            buffer.part(at * self.element, bytes)
        })
    }
}

/// What came of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ran {
    Done,
    /// Something has not come yet, or there is no room.
    Waits,
    /// A message is there that only the general executor knows what to do with: it lies where its sender left it, or is wrong.
    Strange,
}

impl Leg {
    /// `step` where these are the loop variables; `place` finds where a slice begins, and how long it is.
    pub(super) fn of(
        step: &Step,
        vars: &LoopVars,
        schedule: &Schedule,
        place: impl Fn(&Slice) -> Option<(Place, usize)>,
    ) -> Option<Leg> {
        let ranks = schedule.ranks as usize;
        let (_, elements) = place(step.shape()?)?;
        let from = |source: &Source| match source {
            Source::Slice(slice) => Some(From::Place(place(slice)?.0)),
            Source::Recv(peer) => Some(From::Peer(peer.at(vars, ranks))),
        };
        Some(Leg {
            sources: step.sources.iter().map(from).collect::<Option<_>>()?,
            how: step.how,
            stores: (step.stores.iter().map(|slice| Some(place(slice)?.0))).collect::<Option<_>>()?,
            sends: step.sends.iter().map(|peer| peer.at(vars, ranks)).collect(),
            room: Where::Own,
            elements,
        })
    }

    /// See [`Straight::step`]: on `lane`, with messages of `bytes` bytes that carry `header`, and `place` finds the places.
    #[inline]
    fn run<'m, W: Wires>(
        &self,
        work: &Work<'m>,
        wires: &W,
        (lane, header, bytes): (usize, Header, usize),
        place: impl Fn(Place) -> Region<'m>,
    ) -> Result<Ran, Fault> {
        let mut sources = SmallVec::<[Region<'_>; 4]>::new();
        for from in &self.sources {
            sources.push(match *from {
                From::Place(at) => place(at),
                From::Peer(peer) => {
                    let wire = |error| Fault::Wire { peer, error };
                    let Some(link) = wires.from(peer).map_err(wire)? else {
                        return Ok(Ran::Waits);
                    };
                    match body(link, (lane, header, bytes)).map_err(wire)? {
                        Ok(body) => body,
                        Err(ran) => return Ok(ran),
                    }
                }
            });
        }
        let (mut rooms, mut first) = (SmallVec::<[Region<'_>; 2]>::new(), None);
        for &peer in &self.sends {
            let wire = |error| Fault::Wire { peer, error };
            let Some(link) = wires.to(peer).map_err(wire)? else {
                return Ok(Ran::Waits);
            };
            match reserve(link, first, self.room, lane, bytes).map_err(wire)? {
                Some(room) if room.len() > 0 => rooms.push(room),
                Some(_) => {}
                None => return Ok(Ran::Waits),
            }
            first = first.or(Some(link));
        }
        let mut stores: SmallVec<[Region<'_>; 2]> = self.stores.iter().map(|&at| place(at)).collect();
        let far = goes_past(work, wires, self.sends.iter().copied());
        let sends_first = self.how == How::Copy && !self.sends.is_empty() && sends_first(bytes);
        let later = match sends_first {
            true => std::mem::take(&mut stores),
            false => SmallVec::new(),
        };
        work.combine(self.how, None, &sources, stores.into_iter().chain(rooms), far);
        // The links are there, as they were above.
        for &peer in &self.sends {
            if let Some(link) = wires.to(peer).map_err(|error| Fault::Wire { peer, error })? {
                link.commit(lane, header);
            }
        }
        if !later.is_empty() {
            work.combine(self.how, None, &sources, later.into_iter(), far);
        }
        for from in &self.sources {
            let &From::Peer(peer) = from else { continue };
            if let Some(link) = wires.from(peer).map_err(|error| Fault::Wire { peer, error })? {
                link.release(lane);
            }
        }
        Ok(Ran::Done)
    }
}

/// Finds, of the legs of a program with their sources, peers to which they send and rooms, which send back to a peer what came from it
/// and something more: such an answer may lie where what it answers lay. The first of them does. All ranks' programs being alike, this
/// rank's message to that peer before is answered as well.
///
/// All-reduce of 2 ranks by direct on an Intel Xeon, medians of 2, answered elsewhere and there, in us: 4 KiB 1.22 and 1.07, 8 KiB 1.99 and
/// 1.62, 64 KiB 7.55 and 6.45, 256 KiB 28.3 and 24.7, 16 MiB 2790 and 2450.
pub(super) fn find_answers<'l>(legs: impl Iterator<Item = (&'l [From], &'l [usize], &'l mut Where)>) {
    let mut last: Option<(usize, &mut Where)> = None;
    for (sources, sends, room) in legs {
        let &[to] = sends else { continue };
        let peers = || {
            sources.iter().filter_map(|from| match *from {
                From::Peer(peer) => Some(peer),
                From::Place(_) => None,
            })
        };
        match &mut last {
            _ if peers().next().is_none() => last = Some((to, room)),
            Some((peer, opened)) if *peer == to && peers().eq([to]) => {
                **opened = Where::Open;
                *room = Where::Answer;
                return; // One at a time on a lane: all are received before the program is run again there.
            }
            _ => {}
        }
    }
}

/// The body of the message that is to come by `link`, if it is there, is what it must be, and can be read where it lies.
#[inline]
fn body<L: Link>(
    link: &L,
    (lane, header, bytes): (usize, Header, usize),
) -> Result<std::result::Result<Region<'_>, Ran>, Error> {
    let Some(message) = link.peek(lane)? else {
        return Ok(Err(Ran::Waits));
    };
    let is_right = message.header == header && message.body.len() == bytes;
    Ok(message.body.here().filter(|_| is_right).ok_or(Ran::Strange))
}

/// Whether what is written for these peers had better go past the caches: the call says so, or one of them is far away.
#[inline]
pub(super) fn goes_past<W: Wires>(
    work: &Work<'_>,
    wires: &W,
    mut peers: impl Iterator<Item = usize>,
) -> bool {
    work.past || peers.any(|peer| wires.made_to(peer).is_some_and(Link::is_far))
}

/// Where `slice` lies, and how many elements it has, if each tile's part of it is in one piece.
pub(super) fn piece(
    slice: &Slice,
    vars: &LoopVars,
    schedule: &Schedule,
    grains: &Grains<'_>,
    tiling: &Tiling,
) -> Option<(Place, usize)> {
    let mut all: Option<Range<usize>> = None;
    for k in 0..slice.grains() {
        let position = slice.position(k, vars, schedule.grains_of(slice.buffer));
        let range = grains.place(slice.buffer, position % schedule.total_grains());
        let at = match slice.buffer {
            Buffer::Input | Buffer::Output => range.start,
            Buffer::Scratch => position * tiling.elements,
        };
        all = match all {
            _ if range.is_empty() => all,
            None => Some(at..at + range.len()),
            Some(before) if before.end == at && tiling.tiles == 1 => Some(before.start..at + range.len()),
            Some(_) => return None,
        };
    }
    let Range { start: at, end } = all.unwrap_or(0..0);
    let place = Place {
        buffer: slice.buffer,
        at,
    };
    Some((place, end - at))
}

/// Sources, stores and sends of all steps, at most: of longer ways little would be won.
const MOST: usize = 256;
