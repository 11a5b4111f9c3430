//! One step of a track: what it needs, what it reads and where the result goes.

use super::{
    Fault, Outcome, Run,
    landing::landing,
    sends::{Route, route},
};
use crate::{
    exec::{
        bodies::{Bodies, bring},
        memory::Work,
        straight::goes_past,
        track::{Track, Wait},
    },
    mem::Region,
    plan::schedule::{Slice, Source, Step},
    transport::{Header, Link, Message, Wires},
};
use smallvec::SmallVec;

impl Run {
    /// Runs the step of track `i` as far as what it needs is there.
    ///
    /// Messages are consumed even when there is no room for what the step sends: a ring whose ranks all waited for room
    /// before they made some would stand still with one slot a lane.
    pub(super) fn try_step<W: Wires>(
        &mut self,
        work: &Work<'_>,
        i: usize,
        wires: &W,
    ) -> Result<Outcome, Fault> {
        let track = &self.tracks[i];
        let Some(step) = track.cursor.step(&work.schedule.channels[track.channel]) else {
            return Ok(Outcome::Later); // it waits for the other channels of its copy
        };
        if !track.unsent.is_empty() {
            return self.send_rest(work, i, step, wires);
        }
        if !self.comes_after(step, track) {
            return Ok(Outcome::Later);
        }
        let (lane, bytes) = (track.lane, work.bytes_of(step, track));
        if bytes == 0 && !work.sends_empty(track.tile) {
            return Ok(Outcome::Done);
        }
        let mut received: SmallVec<[Message<'_>; 2]> = SmallVec::new();
        for peer in track.receives(step, work.ranks()) {
            match look(
                work.header_of(step, track.cursor.vars()),
                wires,
                peer,
                lane,
                bytes,
            )? {
                Some(message) => received.push(message),
                None => {
                    self.land(work, i, wires)?;
                    return Ok(Outcome::Needs(Wait::Message(peer)));
                }
            }
        }
        if !self.tracks[i].landing.is_empty() {
            // What was to come there has come.
            let place = landing(work, step, &self.tracks[i], &[]).map(|target| target.addresses());
            self.tracks[i]
                .landing
                .retain(|other| Some(&*other) != place.as_ref());
        }
        if let Some(peer) = self.overwrites_offered(work, i, step, wires)? {
            return Ok(Outcome::Needs(Wait::Room(peer)));
        }
        let (mut routes, mut lacks) = (SmallVec::<[Route<'_, '_>; 2]>::new(), None);
        for (k, peer) in self.tracks[i].sends(step, work.ranks()).enumerate() {
            let offer = self.offerable(work, step, k, &self.tracks[i], bytes);
            let route = route(wires, peer, lane, bytes, offer)?;
            if matches!(route, Route::Wait) {
                lacks.get_or_insert(peer);
            }
            routes.push(route);
        }
        if let Some(peer) = lacks
            && received.is_empty()
        {
            return Ok(Outcome::Needs(Wait::Room(peer)));
        }
        // What a step only copies from memory can be taken while it does so.
        let lies_there = work.copied_slice(step).is_some();
        let goes_first = |route: &Route<'_, '_>| lies_there && matches!(route, Route::Offer(_));
        self.dispatch(work, i, step, &routes, goes_first, wires)?;
        let mut fetched = std::mem::take(&mut self.tracks[i].fetched);
        let track = &self.tracks[i];
        let messages = track.receives(step, work.ranks()).zip(received);
        let landing = landing(work, step, track, &routes);
        let brought = bring(wires, lane, messages, landing, &mut fetched)?;
        let lost = brought.and_then(|bodies| {
            let far = goes_past(work, wires, self.tracks[i].sends(step, work.ranks()));
            self.compute(work, i, step, &bodies, &routes, (bytes, far));
            bodies.end()
        });
        let lost = lost.err();
        self.tracks[i].fetched = fetched;
        if let Some(peer) = lost {
            return Ok(Outcome::Needs(Wait::Message(peer)));
        }
        for peer in self.tracks[i].receives(step, work.ranks()) {
            if let Some(link) = wires.from(peer).map_err(|error| Fault::Wire { peer, error })? {
                link.release(lane);
            }
        }
        self.dispatch(work, i, step, &routes, |route| !goes_first(route), wires)?;
        Ok(match self.first_unsent(work, i, step) {
            None => Outcome::Done,
            Some(peer) => Outcome::Partly(Wait::Room(peer)),
        })
    }

    /// Whether the item that `step` must come after is over, in this copy and tile.
    fn comes_after(&self, step: &Step, track: &Track) -> bool {
        let Some((channel, item)) = step.after else {
            return true;
        };
        let first = |t: &&Track| t.copy == track.copy && t.channel == channel as usize;
        self.tracks
            .iter()
            .find(first)
            .is_none_or(|t| t.tile > track.tile || t.tile == track.tile && t.cursor.item() > item as usize)
    }

    /// Reads the sources of `step` and writes its stores and the rooms of its messages; into staging as well when a
    /// message without room would find the result nowhere else.
    fn compute(
        &mut self,
        work: &Work<'_>,
        i: usize,
        step: &Step,
        received: &Bodies<'_>,
        routes: &[Route<'_, '_>],
        (bytes, far): (usize, bool),
    ) {
        let mut staging = std::mem::take(&mut self.tracks[i].staging);
        let stage =
            work.result_slice(step).is_none() && routes.iter().any(|route| matches!(route, Route::Wait));
        if stage {
            staging.resize(staging.len().max(bytes.div_ceil(8)), 0);
        }
        let staged = stage.then(|| Region::of_mut(&mut staging));
        let track = &self.tracks[i];
        let grains = step.shape().map_or(0, Slice::grains);
        let mut at = 0;
        for k in 0..grains {
            let len = step.shape().map_or(0, |slice| work.piece(slice, k, track).len());
            let mut bodies = received.iter();
            let mut region = |source: &Source| match source {
                Source::Slice(slice) => work.piece(slice, k, track),
                // One message was received for each such source, in their order.
                Source::Recv(_) => bodies.next().map_or(Region::empty(), |body| body.part(at, len)),
            };
            let mut sources = SmallVec::<[Region<'_>; 8]>::new();
            for source in &step.sources {
                sources.push(region(source));
            }
            let stores = step.stores.iter().map(|slice| work.piece(slice, k, track));
            let rooms = routes.iter().filter_map(|route| match route {
                Route::Room(room) => Some(room.part(at, len)),
                Route::Offer(_) | Route::Wait => None,
            });
            let staged = staged.iter().map(|whole| whole.part(at, len));
            let targets = stores.chain(staged).chain(rooms);
            work.combine(step.how, work.scaled(step), &sources, targets, far);
            at += len;
        }
        self.tracks[i].staging = staging;
    }
}

/// The message from `peer`, if it is there, checked against what this rank's schedule expects.
fn look<W: Wires>(
    ours: Header,
    wires: &W,
    peer: usize,
    lane: usize,
    want: usize,
) -> Result<Option<Message<'_>>, Fault> {
    let wire = |error| Fault::Wire { peer, error };
    let Some(link) = wires.from(peer).map_err(wire)? else {
        return Ok(None);
    };
    let Some(message) = link.peek(lane).map_err(wire)? else {
        return Ok(None);
    };
    let header = message.header;
    if header != ours {
        return Err(Fault::Mismatch { peer, header, ours });
    }
    if message.body.len() != want {
        return Err(Fault::Length {
            peer,
            got: message.body.len(),
            want,
        });
    }
    Ok(Some(message))
}
