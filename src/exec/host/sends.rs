//! How messages leave: written into the peer's room, or offered where they lie until the peer has taken them.

use super::{Fault, Outcome, Run, landing::overlap};
use crate::{
    exec::{
        memory::Work,
        track::{Track, Wait},
    },
    mem::Region,
    plan::{
        schedule::{Slice, Step},
        verify::SendSite,
    },
    sys::attach::is_dumpable,
    transport::{Header, Link, Reach, Ticket, Wires},
    types::Error,
};
use std::ops::Range;

/// How a message leaves.
pub(super) enum Route<'l, 'm> {
    /// It is written here.
    Room(Region<'l>),
    /// It stays here until the peer takes it.
    Offer(Region<'m>),
    /// There is no room yet.
    Wait,
}

/// A message that lies in this rank's memory until the peer has taken it.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) peer: usize,
    lane: usize,
    ticket: Ticket,
    /// Its addresses.
    body: Range<usize>,
}

impl Run {
    /// Sends by the routes that `is_due` names, whose messages are written, and notes what had no room.
    pub(super) fn dispatch<W: Wires>(
        &mut self,
        work: &Work<'_>,
        i: usize,
        step: &Step,
        routes: &[Route<'_, '_>],
        is_due: impl Fn(&Route<'_, '_>) -> bool,
        wires: &W,
    ) -> Result<(), Fault> {
        let (lane, header) = (
            self.tracks[i].lane,
            work.header_of(step, self.tracks[i].cursor.vars()),
        );
        for (k, (peer, route)) in self.tracks[i].sends(step, work.ranks()).zip(routes).enumerate() {
            if !is_due(route) {
                continue;
            }
            let wire = |error| Fault::Wire { peer, error };
            let link = wires.to(peer).map_err(wire)?;
            let sent = match (route, link) {
                (Route::Room(_), Some(link)) => {
                    link.commit(lane, header);
                    true
                }
                (&Route::Offer(body), Some(link)) => {
                    self.offer(work, link, (peer, lane), header, body).map_err(wire)?
                }
                _ => false,
            };
            if !sent {
                self.tracks[i].unsent.push(k);
            }
        }
        Ok(())
    }

    /// Offers `body` to `peer`; whether there was credit.
    fn offer<L: Link>(
        &mut self,
        work: &Work<'_>,
        link: &L,
        (peer, lane): (usize, usize),
        header: Header,
        body: Region<'_>,
    ) -> Result<bool, Error> {
        work.settle();
        let ticket = match work.lend {
            Some(lend) if body.len() >= lend.paged => link.offer_pages(lane, header, body)?,
            _ => link.offer(lane, header, body)?,
        };
        self.offered.extend(ticket.map(|ticket| Offer {
            peer,
            lane,
            ticket,
            body: body.addresses(),
        }));
        Ok(ticket.is_some())
    }

    /// Sends what had no room when the step of track `i` ran, as far as there is room now.
    pub(super) fn send_rest<W: Wires>(
        &mut self,
        work: &Work<'_>,
        i: usize,
        step: &Step,
        wires: &W,
    ) -> Result<Outcome, Fault> {
        let track = &self.tracks[i];
        let (lane, bytes) = (track.lane, work.bytes_of(step, track));
        let header = work.header_of(step, track.cursor.vars());
        let before = std::mem::take(&mut self.tracks[i].unsent);
        for &k in &before {
            let Some(peer) = self.tracks[i].sends(step, work.ranks()).nth(k) else {
                continue;
            };
            let wire = |error| Fault::Wire { peer, error };
            let offer = self.offerable(work, step, k, &self.tracks[i], bytes);
            let route = route(wires, peer, lane, bytes, offer)?;
            let sent = match (route, wires.to(peer)) {
                (Route::Room(room), Ok(Some(link))) => {
                    self.refill(work, i, step, &room, work.past || link.is_far());
                    link.commit(lane, header);
                    true
                }
                (Route::Offer(body), Ok(Some(link))) => {
                    self.offer(work, link, (peer, lane), header, body).map_err(wire)?
                }
                _ => false,
            };
            if !sent {
                self.tracks[i].unsent.push(k);
            }
        }
        let moved = self.tracks[i].unsent.len() < before.len();
        Ok(match self.first_unsent(work, i, step) {
            None => Outcome::Done,
            Some(peer) if moved => Outcome::Partly(Wait::Room(peer)),
            Some(peer) => Outcome::Needs(Wait::Room(peer)),
        })
    }

    /// The peer of the first send of track `i`'s step that had no room.
    pub(super) fn first_unsent(&self, work: &Work<'_>, i: usize, step: &Step) -> Option<usize> {
        let track = &self.tracks[i];
        track
            .unsent
            .first()
            .and_then(|&k| track.sends(step, work.ranks()).nth(k))
    }

    /// Copies the result of a step that has run into the room of a message.
    fn refill(&mut self, work: &Work<'_>, i: usize, step: &Step, room: &Region<'_>, far: bool) {
        let mut staging = std::mem::take(&mut self.tracks[i].staging);
        match work.result_slice(step) {
            None => room.copy_out_from(&Region::of_mut(&mut staging).part(0, room.len()), far),
            Some(slice) => {
                let mut at = 0;
                for k in 0..slice.grains() {
                    let piece = work.piece(slice, k, &self.tracks[i]);
                    room.part(at, piece.len()).copy_out_from(&piece, far);
                    at += piece.len();
                }
            }
        }
        self.tracks[i].staging = staging;
    }

    /// The memory of the message of `step`'s `send`-th send, of `bytes` bytes, if the proof lets it stay there and it is all in
    /// one piece; and whether it is long enough that a peer may take it by a system call, and that one may read it there.
    pub(super) fn offerable<'m>(
        &self,
        work: &Work<'m>,
        step: &Step,
        send: usize,
        track: &Track,
        bytes: usize,
    ) -> Option<(Region<'m>, [bool; 2])> {
        let lend = work.lend.filter(|lend| bytes >= lend.read.min(lend.taken))?;
        // Where it was before it was copied it is in caches of both more likely.
        let slice = work.copied_slice(step).or_else(|| work.result_slice(step));
        let slice = slice.filter(|slice| slice.grains() == 1)?;
        let item = track.cursor.path();
        let site = SendSite {
            rank: lend.rank,
            channel: track.channel as u32,
            item,
            send: send as u32,
        };
        let body = work.piece(slice, 0, track).addresses();
        let is_hit = |track: &Track| track.landing.iter().any(|place| overlap(place, &body));
        // What comes in there would not wait until the peer has taken it.
        if self.tracks.iter().any(is_hit) {
            return None;
        }
        lend.allows(slice.buffer, &site).then(|| {
            let long = [bytes >= lend.taken, bytes >= lend.read];
            (work.piece(slice, 0, track), long)
        })
    }

    /// A peer that has not yet taken an offered message over which `step` would write, if there is one.
    pub(super) fn overwrites_offered<W: Wires>(
        &mut self,
        work: &Work<'_>,
        i: usize,
        step: &Step,
        wires: &W,
    ) -> Result<Option<usize>, Fault> {
        if !self.offered.is_empty() {
            self.drop_taken(wires)?;
        }
        if self.offered.is_empty() || step.stores.is_empty() {
            return Ok(None);
        }
        let track = &self.tracks[i];
        let stored = |body: &Range<usize>| {
            let is_hit = |piece: Region<'_>| overlap(&piece.addresses(), body);
            let pieces = |slice: &Slice| (0..slice.grains()).any(|k| is_hit(work.piece(slice, k, track)));
            step.stores.iter().any(pieces)
        };
        Ok(self
            .offered
            .iter()
            .find(|offer| stored(&offer.body))
            .map(|offer| offer.peer))
    }

    /// Forgets the offers that their peers have taken.
    pub(super) fn drop_taken<W: Wires>(&mut self, wires: &W) -> Result<(), Fault> {
        let mut at = 0;
        while let Some(Offer {
            peer, lane, ticket, ..
        }) = self.offered.get(at)
        {
            let link = wires
                .to(*peer)
                .map_err(|error| Fault::Wire { peer: *peer, error })?;
            if link.is_some_and(|link| link.taken(*lane, *ticket)) {
                self.offered.swap_remove(at);
            } else {
                at += 1;
            }
        }
        Ok(())
    }
}

/// How a message of `bytes` bytes to `peer` can leave now, if it may be offered or not, and if it may be taken or read then.
pub(super) fn route<'l, 'm, W: Wires>(
    wires: &'l W,
    peer: usize,
    lane: usize,
    bytes: usize,
    offer: Option<(Region<'m>, [bool; 2])>,
) -> Result<Route<'l, 'm>, Fault> {
    let wire = |error| Fault::Wire { peer, error };
    let Some(link) = wires.to(peer).map_err(wire)? else {
        return Ok(Route::Wait);
    };
    if let Some((body, [may_be_taken, may_be_read])) = offer {
        let is_offered = match link.reach(&body) {
            Reach::No => false,
            Reach::Taking => may_be_taken && is_dumpable(),
            Reach::Sending => true,
            Reach::Reading => may_be_read,
        };
        if is_offered {
            return Ok(Route::Offer(body));
        }
    }
    let room = link.reserve(lane, bytes).map_err(wire)?;
    Ok(room.map_or(Route::Wait, Route::Room))
}
