//! Where messages are wanted before they have come.

use super::{Fault, Run, sends::Route};
use crate::{
    exec::{memory::Work, track::Track},
    mem::Region,
    plan::schedule::{How, Source, Step},
    transport::{Link, Wires},
};
use smallvec::SmallVec;
use std::ops::Range;

/// Messages of which a track says where they are wanted before they have come.
const LANDINGS: usize = 4;

impl Run {
    /// Says where the messages are wanted for which track `i` waits, and those of its next steps, from other peers: as far as the
    /// steps do no more than store them. Who is ahead sends straight to where it belongs then.
    pub(super) fn land<W: Wires>(&mut self, work: &Work<'_>, i: usize, wires: &W) -> Result<(), Fault> {
        let here = self.tracks[i].cursor.clone();
        let landed = self.land_from_here(work, i, wires);
        self.tracks[i].cursor = here;
        landed
    }

    /// The same, which leaves the track at another step.
    fn land_from_here<W: Wires>(&mut self, work: &Work<'_>, i: usize, wires: &W) -> Result<(), Fault> {
        let items = &work.schedule.channels[self.tracks[i].channel];
        // What other channels do with the memory meanwhile may wait for the messages between.
        let ahead = if work.schedule.channels.len() == 1 {
            LANDINGS
        } else {
            1
        };
        let mut peers = SmallVec::<[usize; LANDINGS]>::new();
        let mut stored = SmallVec::<[Range<usize>; LANDINGS]>::new();
        while peers.len() < ahead
            && let Some(step) = self.tracks[i].cursor.step(items)
        {
            let track = &self.tracks[i];
            let (mut from, lane) = (track.receives(step, work.ranks()), track.lane);
            let is_first = peers.is_empty();
            let (Some(peer), Some(target)) = (from.next(), landing(work, step, track, &[])) else {
                break;
            };
            let goes_on = is_first || step.sends.is_empty() && step.after.is_none();
            if !goes_on || peers.contains(&peer) {
                break;
            }
            // Who is ahead would come before what the steps between have stored there.
            let place = target.addresses();
            if stored.iter().any(|other| overlap(other, &place))
                || self.overwrites_offered(work, i, step, wires)?.is_some()
            {
                break;
            }
            let wire = |error| Fault::Wire { peer, error };
            let track = &mut self.tracks[i];
            for slice in &step.stores {
                stored.extend((0..slice.grains()).map(|k| work.piece(slice, k, track).addresses()));
            }
            if target.len() > 0
                && let Some(link) = wires.from(peer).map_err(wire)?
                && link.peek(lane).map_err(wire)?.is_none()
            {
                if !track.landing.contains(&place) {
                    track.landing.push(place);
                }
                link.land(lane, &work.header_of(step, track.cursor.vars()), &target);
            }
            peers.push(peer);
            track.cursor.advance(items);
        }
        Ok(())
    }
}

/// Where a received message can be taken to at once, if `step` does no more than copy one: its first store, or the room of the
/// message that it is sent on in.
pub(super) fn landing<'r>(
    work: &Work<'r>,
    step: &Step,
    track: &Track,
    routes: &[Route<'r, '_>],
) -> Option<Region<'r>> {
    let (How::Copy, [Source::Recv(_)]) = (step.how, step.sources.as_slice()) else {
        return None;
    };
    match step.stores.first() {
        Some(store) => (store.grains() == 1).then(|| work.piece(store, 0, track)),
        None => routes.iter().find_map(|route| match route {
            Route::Room(room) => Some(*room),
            Route::Offer(_) | Route::Wait => None,
        }),
    }
}

/// Whether two ranges of addresses have bytes in common.
pub(super) fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}
