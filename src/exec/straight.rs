//! [`Straight`]: the way of a short call, worked out when it is planned.
//!
//! Of the time of a call of a few bytes, most would go into finding out what to do: which step is next, where its grains lie,
//! what of them is in which tile. Where a call is one tile on one lane all that is always the same. So the steps of the
//! proved schedule are kept as they come, with their peers and places, and run one after the other.
//!
//! Whatever is not soon as it should be (a message that does not come, one of another call, no room) ends the way, and the
//! general executor goes on from that step. Messages are the same either way, so that other ranks never know.

use super::{cursor::Cursor, host::Fault, memory::Work};
use crate::{
    mem::Region,
    plan::{
        layout::{Grains, Tiling},
        schedule::{Buffer, How, LoopVars, Schedule, Slice, Source, Step},
    },
    transport::{Link, Wires},
    types::Error,
};
use smallvec::SmallVec;
use std::ops::Range;

/// The steps of a call of one tile on one lane.
#[derive(Debug)]
pub(crate) struct Straight {
    legs: Vec<Leg>,
}

/// A step with everything in its place.
#[derive(Debug)]
struct Leg {
    sources: SmallVec<[From; 2]>,
    how: How,
    stores: SmallVec<[Place; 1]>,
    sends: SmallVec<[usize; 2]>,
    /// Of each message and of each place.
    bytes: usize,
}

#[derive(Debug, Clone, Copy)]
enum From {
    Place(Place),
    Peer(usize),
}

/// A place in a buffer, in bytes.
#[derive(Debug, Clone, Copy)]
struct Place {
    buffer: Buffer,
    at: usize,
}

impl Straight {
    /// The way through `schedule`, if there is one: a single channel of few steps, whose messages each lie in one piece.
    /// `element` is the size of one, and the call is one tile.
    pub(crate) fn new(
        schedule: &Schedule,
        grains: &Grains<'_>,
        tiling: &Tiling,
        element: usize,
    ) -> Option<Straight> {
        let [items] = &schedule.channels[..] else {
            return None;
        };
        if tiling.tiles != 1 {
            return None;
        }
        let ends = |step: &Step| step.sources.len() + step.stores.len() + step.sends.len();
        let (mut cursor, mut legs, mut all) = (Cursor::new(items), Vec::new(), 0);
        while let Some(step) = cursor.step(items) {
            all += ends(step);
            if all > MOST {
                return None;
            }
            legs.push(Leg::of(step, cursor.vars(), schedule, |slice| {
                piece(slice, cursor.vars(), schedule, grains, tiling, element)
            })?);
            cursor.advance(items);
        }
        Some(Straight { legs })
    }

    /// Runs `work`; how many steps are done: the general executor goes on from there if these are not all. `wait` is asked whether
    /// to look again, with the number of fruitless looks for the same message, from 1 on; it may pause.
    ///
    /// # Errors
    /// When a link fails, which is not found a second time.
    pub(crate) fn run<W: Wires>(
        &self,
        work: &Work<'_>,
        wires: &W,
        mut wait: impl FnMut(u32) -> bool,
    ) -> Result<usize, Fault> {
        for (done, leg) in self.legs.iter().enumerate() {
            if leg.bytes > 0 && !leg.run(work, wires, &mut wait)? {
                return Ok(done);
            }
        }
        Ok(self.legs.len())
    }

    /// How many steps there are.
    pub(crate) fn steps(&self) -> usize {
        self.legs.len()
    }
}

impl Leg {
    /// `step` where these are the loop variables; `place` finds where a slice begins, and how long it is.
    fn of(
        step: &Step,
        vars: &LoopVars,
        schedule: &Schedule,
        place: impl Fn(&Slice) -> Option<(Place, usize)>,
    ) -> Option<Leg> {
        let ranks = schedule.ranks as usize;
        let (_, bytes) = place(step.shape()?)?;
        let from = |source: &Source| match source {
            Source::Slice(slice) => Some(From::Place(place(slice)?.0)),
            Source::Recv(peer) => Some(From::Peer(peer.at(vars, ranks))),
        };
        Some(Leg {
            sources: step.sources.iter().map(from).collect::<Option<_>>()?,
            how: step.how,
            stores: (step.stores.iter().map(|slice| Some(place(slice)?.0))).collect::<Option<_>>()?,
            sends: step.sends.iter().map(|peer| peer.at(vars, ranks)).collect(),
            bytes,
        })
    }

    /// `false` if something is not there: then nothing has been sent or released, and what was reserved is reserved again by
    /// who goes on.
    #[inline]
    fn run<W: Wires>(
        &self,
        work: &Work<'_>,
        wires: &W,
        wait: &mut impl FnMut(u32) -> bool,
    ) -> Result<bool, Fault> {
        let lane = work.first_lane;
        let (mut came, mut go) = (SmallVec::<[&W::Link; 8]>::new(), SmallVec::<[&W::Link; 4]>::new());
        let place = |place: Place| {
            let buffer = match place.buffer {
                Buffer::Input => work.input,
                Buffer::Output => work.output,
                Buffer::Scratch => work.scratch,
            };
            buffer.part(place.at, self.bytes)
        };
        let mut sources = SmallVec::<[Region<'_>; 8]>::new();
        for from in &self.sources {
            let peer = match *from {
                From::Place(at) => {
                    sources.push(place(at));
                    continue;
                }
                From::Peer(peer) => peer,
            };
            let wire = |error| Fault::Wire { peer, error };
            let Some(link) = wires.from(peer).map_err(wire)? else {
                return Ok(false);
            };
            let Some(body) = self.body(work, link, wait).map_err(wire)? else {
                return Ok(false);
            };
            came.push(link);
            sources.push(body);
        }
        let mut rooms = SmallVec::<[Region<'_>; 4]>::new();
        for &peer in &self.sends {
            let wire = |error| Fault::Wire { peer, error };
            let Some(link) = wires.to(peer).map_err(wire)? else {
                return Ok(false);
            };
            let Some(room) = link.reserve(lane, self.bytes).map_err(wire)? else {
                return Ok(false);
            };
            go.push(link);
            rooms.push(room);
        }
        let stores = self.stores.iter().map(|&at| place(at));
        work.combine(self.how, None, &sources, stores.chain(rooms));
        go.iter().for_each(|link| link.commit(lane, work.header));
        came.iter().for_each(|link| link.release(lane));
        Ok(true)
    }

    /// The body of the message that is to come by `link`, if it comes while `wait` lets it, is what it must be, and is here.
    #[inline]
    fn body<'l, L: Link>(
        &self,
        work: &Work<'_>,
        link: &'l L,
        wait: &mut impl FnMut(u32) -> bool,
    ) -> Result<Option<Region<'l>>, Error> {
        let mut looks = 0;
        loop {
            if let Some(message) = link.peek(work.first_lane)? {
                let is_right = message.header == work.header && message.body.len() == self.bytes;
                return Ok(message.body.here().filter(|_| is_right));
            }
            looks += 1;
            if !wait(looks) {
                return Ok(None);
            }
        }
    }
}

/// Where `slice` lies, and how many bytes it has, if they are in one piece.
fn piece(
    slice: &Slice,
    vars: &LoopVars,
    schedule: &Schedule,
    grains: &Grains<'_>,
    tiling: &Tiling,
    element: usize,
) -> Option<(Place, usize)> {
    let mut all: Option<Range<usize>> = None;
    for k in 0..slice.grains() {
        let position = slice.position(k, vars, schedule.grains_of(slice.buffer));
        let range = tiling.cut(grains.place(slice.buffer, position % schedule.total_grains()), 0);
        let at = match slice.buffer {
            Buffer::Input | Buffer::Output => range.start,
            Buffer::Scratch => position * tiling.elements,
        };
        all = match all {
            _ if range.is_empty() => all,
            None => Some(at..at + range.len()),
            Some(before) if before.end == at => Some(before.start..at + range.len()),
            Some(_) => return None,
        };
    }
    let Range { start: begin, end } = all.unwrap_or(0..0);
    let place = Place {
        buffer: slice.buffer,
        at: begin * element,
    };
    Some((place, (end - begin) * element))
}

/// Sources, stores and sends of all steps, at most: of longer ways little would be won.
const MOST: usize = 256;
