//! [`Straight`]: the way of a short call, worked out when it is planned.
//!
//! Of the time of a call of a few bytes, most would go into finding out what to do: which step is next, where its grains lie,
//! what of them is in which tile. Where a call is one tile on one lane all that is always the same. So the steps of the
//! proved schedule are kept as they come, with their peers and places, and run one after the other.
//!
//! Whatever is not at once as it should be (a message that does not come, one of another call, no room) ends the way, and the
//! general executor goes on from that step. Messages are the same either way, so that other ranks never know.

use super::{cursor::Cursor, memory::Work};
use crate::{
    mem::Region,
    plan::{
        layout::{Grains, Tiling},
        schedule::{Buffer, How, LoopVars, Schedule, Slice, Source, Step},
    },
    reduce::{Manner, reduce_as},
    transport::{Link, Message, Wires},
};
use smallvec::SmallVec;

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

    /// Runs `work`, as long as `wait` lets it: that is asked before each look but the first for the same message. How many steps
    /// are done: the general executor goes on from there if these are not all.
    pub(crate) fn run<W: Wires>(
        &self,
        work: &Work<'_>,
        wires: &W,
        mut wait: impl FnMut(bool) -> bool,
    ) -> usize {
        let done = |leg: &&Leg| leg.bytes == 0 || leg.run(work, wires, &mut wait).is_some();
        self.legs.iter().take_while(done).count()
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

    /// `None` if something is not there; then nothing has happened.
    #[inline]
    fn run<W: Wires>(&self, work: &Work<'_>, wires: &W, wait: &mut impl FnMut(bool) -> bool) -> Option<()> {
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
            sources.push(match *from {
                From::Place(at) => place(at),
                From::Peer(peer) => {
                    let link = wires.from(peer).ok()??;
                    came.push(link);
                    self.message(work, link, wait)?.body
                }
            });
        }
        let mut targets = SmallVec::<[Region<'_>; 4]>::new();
        targets.extend(self.stores.iter().map(|&at| place(at)));
        for &peer in &self.sends {
            let link = wires.to(peer).ok()??;
            go.push(link);
            targets.push(link.reserve(lane, self.bytes).ok()??);
        }
        let result = match (self.how, &sources[..], &targets[..]) {
            (How::Copy, &[only], _) => Some(only),
            (_, sources, &[target, ..]) => {
                let manner = Manner {
                    tree: work.tree,
                    scaled: None,
                };
                let finish = (self.how == How::ReduceLast).then_some(work.ranks());
                reduce_as(work.op, work.dtype, finish, manner, sources, &target);
                targets.remove(0);
                Some(target)
            }
            _ => None,
        };
        if let Some(result) = result {
            targets.iter().for_each(|target| target.copy_from(&result));
        }
        go.iter().for_each(|link| link.commit(lane, work.header));
        came.iter().for_each(|link| link.release(lane));
        Some(())
    }

    /// The message that is to come by `link`, once it has.
    #[inline]
    fn message<'l, L: Link>(
        &self,
        work: &Work<'_>,
        link: &'l L,
        wait: &mut impl FnMut(bool) -> bool,
    ) -> Option<Message<'l>> {
        let mut waited = false;
        let message = loop {
            match link.peek(work.first_lane).ok()? {
                Some(message) => break message,
                None if !wait(true) => return None,
                None => waited = true,
            }
        };
        if waited {
            wait(false);
        }
        (message.header == work.header && message.body.len() == self.bytes).then_some(message)
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
    let (mut begin, mut end) = (0, 0);
    for k in 0..slice.grains() {
        let position = slice.position(k, vars, schedule.grains_of(slice.buffer));
        let range = tiling.cut(grains.place(slice.buffer, position % schedule.total_grains()), 0);
        let at = match slice.buffer {
            Buffer::Input | Buffer::Output => range.start,
            Buffer::Scratch => position * tiling.elements,
        };
        if k == 0 {
            begin = at;
        } else if at != end && !range.is_empty() {
            return None;
        }
        end = at + range.len();
    }
    let place = Place {
        buffer: slice.buffer,
        at: begin * element,
    };
    Some((place, (end - begin) * element))
}

/// Sources, stores and sends of all steps, at most: of longer ways little would be won.
const MOST: usize = 256;
