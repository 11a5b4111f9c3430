//! The host executor: runs a schedule over memory that the CPU can reach.
//!
//! Each tile in flight has a copy of the program, and each channel of a copy a cursor and a lane of its own. A cursor's
//! step runs when its messages have come in and its sends have room: its sources are read in one pass, received bodies
//! where they lie, and the result goes straight into the room of the message where there is nowhere else to put it.

use super::{
    bodies::{Bodies, bring},
    cursor::Cursor,
    memory::Work,
    straight::Reached,
    track::{Track, Wait},
};
use crate::{
    mem::Region,
    plan::{
        schedule::{How, Slice, Source, Step},
        verify::SendSite,
    },
    transport::{CALL_LANES, Header, Link, Message, Reach, Ticket, Wires},
    types::{Error, Transfer},
};
use smallvec::SmallVec;
use std::ops::Range;

/// How far a poll came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Done,
    /// Something moved: look again at once.
    Moved,
    /// Nothing can move until a message or a credit comes in.
    Blocked,
}

/// Why a run cannot go on.
#[derive(Debug)]
pub(crate) enum Fault {
    /// `peer`'s message belongs to another call: it does not carry what this rank's would.
    Mismatch {
        peer: usize,
        header: Header,
        ours: Header,
    },
    /// `peer`'s message has not the length that this rank's schedule expects.
    Length { peer: usize, got: usize, want: usize },
    /// The message that `peer` sent is not what this rank's receive takes.
    Unlike {
        peer: usize,
        ours: Transfer,
        theirs: Transfer,
    },
    /// What `peer` says of its messages makes no sense.
    Nonsense { peer: usize },
    /// The link to `peer` failed.
    Wire { peer: usize, error: Error },
}

/// How far a call has come. What it works on is given with each poll: a call that is not waited for owns its memory.
#[derive(Debug)]
pub(crate) struct Run {
    /// A small call has one, and is over before an allocation would be.
    tracks: SmallVec<[Track; 1]>,
    offered: Vec<Offer>,
    /// The peers to which something had still to be sent when all else was done.
    unsent_to: Vec<usize>,
}

/// A message that lies in this rank's memory until the peer has taken it.
#[derive(Debug)]
struct Offer {
    peer: usize,
    lane: usize,
    ticket: Ticket,
    /// Its addresses.
    body: Range<usize>,
}

/// What a track's step came to.
enum Outcome {
    Done,
    /// It has read its sources; sends that had no room wait for it.
    Partly(Wait),
    /// Other tracks of this rank have to go first.
    Later,
    /// Nothing can be done before this comes.
    Needs(Wait),
}

/// How a message leaves.
enum Route<'l, 'm> {
    /// It is written here.
    Room(Region<'l>),
    /// It stays here until the peer takes it.
    Offer(Region<'m>),
    /// There is no room yet.
    Wait,
}

/// What steps of a track count that are run by turns with those of others: such that receive, and others. Before more is taken
/// in, the next one says what it waits for, and where that is wanted.
const TURN: usize = 8;
const RECEIVING: usize = 4;
const OTHER: usize = 1;
/// Messages of which a track says where they are wanted before they have come.
const LANDINGS: usize = 4;

impl Run {
    /// The beginning of `work`, whose lanes are those from `work.first_lane` on, going round at the end.
    pub(crate) fn new(work: &Work<'_>) -> Self {
        let channels = work.schedule.channels.len();
        assert!(
            channels <= work.channels && work.copies * work.channels <= CALL_LANES,
            "{} copies of {channels} channels of {}",
            work.copies,
            work.channels
        );
        let track = |copy: usize, channel: usize| Track {
            cursor: Cursor::new(&work.schedule.channels[channel]),
            channel,
            copy,
            lane: (work.first_lane + copy * work.channels + channel) % CALL_LANES,
            tile: copy,
            waits_for: None,
            unsent: SmallVec::new(),
            staging: Vec::new(),
            fetched: Vec::new(),
            landing: SmallVec::new(),
        };
        // A rank whose given blocks are short may have fewer tiles than others have in flight.
        let copies = work.copies.min(work.tiling.tiles);
        let mut tracks = SmallVec::with_capacity(copies * channels);
        for copy in 0..copies {
            for channel in 0..channels {
                tracks.push(track(copy, channel));
            }
        }
        Run {
            tracks,
            offered: Vec::new(),
            unsent_to: Vec::new(),
        }
    }

    /// The same from where its [`Straight`](super::Straight) way has come.
    pub(crate) fn after(work: &Work<'_>, reached: &[Reached]) -> Self {
        let mut run = Run::new(work);
        for (i, &Reached { tile, steps }) in reached.iter().enumerate() {
            run.tracks[i].tile = tile;
            (0..steps).for_each(|_| run.advance(work, i));
        }
        run
    }

    /// The same when all has been done but for what the links have still to send.
    pub(crate) fn over(work: &Work<'_>) -> Self {
        let mut run = Run::new(work);
        run.tracks.clear();
        run
    }

    /// The peers that the last poll found itself waiting for.
    pub(crate) fn waits_for(&self) -> Vec<usize> {
        let peer = |wait| match wait {
            Wait::Message(peer) | Wait::Room(peer) => peer,
        };
        let mut peers: Vec<usize> = self
            .tracks
            .iter()
            .filter_map(|track| track.waits_for.map(peer))
            .collect();
        peers.extend(self.offered.iter().map(|offer| offer.peer));
        peers.extend(&self.unsent_to);
        peers.sort_unstable();
        peers.dedup();
        peers
    }

    /// Bytes of the vector, `all` of them, that it is done with: those of whole tiles.
    pub(crate) fn done(&self, work: &Work<'_>, all: u64) -> u64 {
        let tiles = work.tiling.tiles * work.channels;
        let gone = |track: &Track| {
            track
                .tile
                .min(work.tiling.tiles)
                .saturating_sub(track.copy)
                .div_ceil(work.copies)
        };
        let gone: usize = self.tracks.iter().map(gone).sum();
        match tiles {
            0 => all,
            tiles => (u128::from(all) * gone.min(tiles) as u128 / tiles as u128) as u64,
        }
    }

    /// Does what can be done without waiting: at most a [`TURN`] of each track.
    pub(crate) fn poll<W: Wires>(&mut self, work: &Work<'_>, wires: &W) -> Result<Progress, Fault> {
        let (mut moved, mut done) = (false, true);
        for i in 0..self.tracks.len() {
            let mut turn = 0;
            while self.open(work, i) {
                done = false;
                if turn >= TURN || self.still_waits(i, wires)? {
                    break;
                }
                self.tracks[i].waits_for = None;
                match self.try_step(work, i, wires)? {
                    Outcome::Done => {
                        turn += match self.receives(work, i) {
                            true => RECEIVING,
                            false => OTHER,
                        };
                        self.advance(work, i);
                        moved = true;
                        continue;
                    }
                    Outcome::Partly(wait) => {
                        self.tracks[i].waits_for = Some(wait);
                        moved = true;
                    }
                    Outcome::Later => {}
                    Outcome::Needs(wait) => {
                        self.tracks[i].waits_for = Some(wait);
                        if let Wait::Room(peer) = wait {
                            self.check_crossing(work, wires, peer, self.tracks[i].lane)?;
                        }
                    }
                }
                break;
            }
        }
        if done {
            work.settle();
        }
        if !moved {
            // Also where something else is waited for: who has taken all may leave.
            self.drop_taken(wires)?;
        }
        if done {
            self.unsent_to = if wires.unsent() {
                wires.unsent_to()
            } else {
                Vec::new()
            };
            done = self.offered.is_empty() && self.unsent_to.is_empty();
        }
        Ok(match (done, moved) {
            (true, _) => Progress::Done,
            (false, true) => Progress::Moved,
            (false, false) => Progress::Blocked,
        })
    }

    /// Whether track `i` waits for a message that has not come yet: the look that a waiting rank repeats.
    #[inline]
    fn still_waits<W: Wires>(&self, i: usize, wires: &W) -> Result<bool, Fault> {
        let track = &self.tracks[i];
        let Some(Wait::Message(peer)) = track.waits_for else {
            return Ok(false);
        };
        let wire = |error| Fault::Wire { peer, error };
        let Some(link) = wires.from(peer).map_err(wire)? else {
            return Ok(true);
        };
        Ok(link.peek(track.lane).map_err(wire)?.is_none())
    }

    /// Finds that `peer`, which gives no room, sends something else: two ranks that only send to each other, in calls that
    /// differ, would both wait for ever. What belongs to a later call may well be there already.
    fn check_crossing<W: Wires>(
        &self,
        work: &Work<'_>,
        wires: &W,
        peer: usize,
        lane: usize,
    ) -> Result<(), Fault> {
        let wire = |error| Fault::Wire { peer, error };
        let Some(link) = wires.from(peer).map_err(wire)? else {
            return Ok(());
        };
        let Some(Message { header, .. }) = link.peek(lane).map_err(wire)? else {
            return Ok(());
        };
        let is_later = header[0].wrapping_sub(work.header[0]).cast_signed() > 0;
        // How long a block is that goes the other way is looked at when it is received.
        let is_same = match work.grains.are_told() {
            true => header[..2] == work.header[..2],
            false => header == work.header,
        };
        if is_same || is_later {
            return Ok(());
        }
        let ours = work.header;
        Err(Fault::Mismatch { peer, header, ours })
    }

    /// Whether track `i` has work left, moving it to its next tile when it has finished one.
    fn open(&mut self, work: &Work<'_>, i: usize) -> bool {
        let items = &work.schedule.channels[self.tracks[i].channel];
        while self.tracks[i].tile < work.tiling.tiles && self.tracks[i].cursor.step(items).is_none() {
            // Channels of a copy share its scratch, so that with scratch none begins a tile before all have ended one.
            let (copy, tile) = (self.tracks[i].copy, self.tracks[i].tile);
            let behind =
                |t: &Track| t.copy == copy && (t.tile < tile || t.tile == tile && !self.has_run(work, t));
            if work.schedule.scratch > 0 && self.tracks.iter().any(behind) {
                return true;
            }
            self.tracks[i].tile += work.copies;
            self.tracks[i].cursor = Cursor::new(items);
        }
        self.tracks[i].tile < work.tiling.tiles
    }

    /// Whether a track has run all of its items for its tile.
    fn has_run(&self, work: &Work<'_>, track: &Track) -> bool {
        track
            .cursor
            .step(&work.schedule.channels[track.channel])
            .is_none()
    }

    /// Whether the step of track `i` receives anything.
    fn receives(&self, work: &Work<'_>, i: usize) -> bool {
        let track = &self.tracks[i];
        let step = track.cursor.step(&work.schedule.channels[track.channel]);
        step.is_some_and(|step| track.receives(step, work.ranks()).next().is_some())
    }

    fn advance(&mut self, work: &Work<'_>, i: usize) {
        let track = &mut self.tracks[i];
        track.cursor.advance(&work.schedule.channels[track.channel]);
    }

    /// Runs the step of track `i` as far as what it needs is there.
    ///
    /// Messages are consumed even when there is no room for what the step sends: a ring whose ranks all waited for room
    /// before they made some would stand still with one slot a lane.
    fn try_step<W: Wires>(&mut self, work: &Work<'_>, i: usize, wires: &W) -> Result<Outcome, Fault> {
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
            self.compute(work, i, step, &bodies, &routes, bytes);
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

    /// Says where the messages are wanted for which track `i` waits, and those of its next steps, from other peers: as far as the
    /// steps do no more than store them. Who is ahead sends straight to where it belongs then.
    fn land<W: Wires>(&mut self, work: &Work<'_>, i: usize, wires: &W) -> Result<(), Fault> {
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

    /// Sends by the routes that `is_due` names, whose messages are written, and notes what had no room.
    fn dispatch<W: Wires>(
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
        let ticket = link.offer(lane, header, body)?;
        self.offered.extend(ticket.map(|ticket| Offer {
            peer,
            lane,
            ticket,
            body: body.addresses(),
        }));
        Ok(ticket.is_some())
    }

    /// Sends what had no room when the step of track `i` ran, as far as there is room now.
    fn send_rest<W: Wires>(
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
                    self.refill(work, i, step, &room);
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
    fn first_unsent(&self, work: &Work<'_>, i: usize, step: &Step) -> Option<usize> {
        let track = &self.tracks[i];
        track
            .unsent
            .first()
            .and_then(|&k| track.sends(step, work.ranks()).nth(k))
    }

    /// Copies the result of a step that has run into the room of a message.
    fn refill(&mut self, work: &Work<'_>, i: usize, step: &Step, room: &Region<'_>) {
        let mut staging = std::mem::take(&mut self.tracks[i].staging);
        match work.result_slice(step) {
            None => room.copy_from(&Region::of_mut(&mut staging).part(0, room.len())),
            Some(slice) => {
                let mut at = 0;
                for k in 0..slice.grains() {
                    let piece = work.piece(slice, k, &self.tracks[i]);
                    room.part(at, piece.len()).copy_from(&piece);
                    at += piece.len();
                }
            }
        }
        self.tracks[i].staging = staging;
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
        bytes: usize,
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
            work.combine(step.how, work.scaled(step), &sources, targets);
            at += len;
        }
        self.tracks[i].staging = staging;
    }

    /// The memory of the message of `step`'s `send`-th send, of `bytes` bytes, if the proof lets it stay there and it is all in
    /// one piece; and whether it is long enough that a peer may take it by a system call, and that one may read it there.
    fn offerable<'m>(
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
    fn overwrites_offered<W: Wires>(
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
    fn drop_taken<W: Wires>(&mut self, wires: &W) -> Result<(), Fault> {
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

/// Whether two ranges of addresses have bytes in common.
fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Where a received message can be taken to at once, if `step` does no more than copy one: its first store, or the room of the
/// message that it is sent on in.
fn landing<'r>(work: &Work<'r>, step: &Step, track: &Track, routes: &[Route<'r, '_>]) -> Option<Region<'r>> {
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

/// How a message of `bytes` bytes to `peer` can leave now, if it may be offered or not, and if it may be taken or read then.
fn route<'l, 'm, W: Wires>(
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
            Reach::Taking => may_be_taken,
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
