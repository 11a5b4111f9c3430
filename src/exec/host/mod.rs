//! The host executor: runs a schedule over memory that the CPU can reach.
//!
//! Each tile in flight has a copy of the program, and each channel of a copy a cursor and a lane of its own. A cursor's
//! step runs when its messages have come in and its sends have room: its sources are read in one pass, received bodies
//! where they lie, and the result goes straight into the room of the message where there is nowhere else to put it.

mod landing;
mod sends;
mod step;

use super::{
    cursor::Cursor,
    memory::Work,
    straight::Reached,
    track::{Track, Wait},
};
use crate::{
    transport::{CALL_LANES, Header, Link, Message, Wires},
    types::{Error, Transfer},
};
use sends::Offer;
use smallvec::SmallVec;

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
    /// All peers to which it sends, once that was wanted.
    sends_to: Option<Vec<usize>>,
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

/// What steps of a track count that are run by turns with those of others: such that receive, and others. Before more is taken
/// in, the next one says what it waits for, and where that is wanted.
const TURN: usize = 8;
const RECEIVING: usize = 4;
const OTHER: usize = 1;

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
            sends_to: None,
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
        // Its last step may have been done just now: who leads looks for nothing more then.
        done |= moved && (0..self.tracks.len()).all(|i| !self.open(work, i));
        // Another thread may go on.
        if done || moved {
            work.settle();
        }
        if done || !moved {
            // Also where something else is waited for: who has taken all may leave.
            self.drop_taken(wires)?;
        }
        if done {
            self.unsent_to = match wires.unsent() {
                true => self.unsent_of(work, wires),
                false => Vec::new(),
            };
            done = self.offered.is_empty() && self.unsent_to.is_empty();
        }
        Ok(match (done, moved) {
            (true, _) => Progress::Done,
            (false, true) => Progress::Moved,
            (false, false) => Progress::Blocked,
        })
    }

    /// The peers to which it sends and something has still to be sent. What is for others another operation has sent.
    #[cold]
    fn unsent_of<W: Wires>(&mut self, work: &Work<'_>, wires: &W) -> Vec<usize> {
        let mut unsent_to = wires.unsent_to();
        let sends_to = self.sends_to.get_or_insert_with(|| sends_to(work));
        unsent_to.retain(|peer| sends_to.binary_search(peer).is_ok());
        unsent_to
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

    /// Finds that a rank sends something else, be it one that is not waited for: where one of several messages of a step is missing,
    /// the others are not looked at until it comes.
    pub(crate) fn check_all<W: Wires>(&self, work: &Work<'_>, wires: &W) -> Result<(), Fault> {
        let lanes = self.tracks.iter().map(|track| track.lane);
        for (lane, peer) in lanes.flat_map(|lane| (0..work.ranks()).map(move |peer| (lane, peer))) {
            if wires.made_from(peer).is_none() {
                continue;
            }
            match self.check_crossing(work, wires, peer, lane) {
                // Who needs the link finds what is wrong with it.
                Ok(()) | Err(Fault::Wire { .. }) => {}
                Err(differs) => return Err(differs),
            }
        }
        Ok(())
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
        // Messages tell the lower half of the number.
        let is_later = (header[0] as u16)
            .wrapping_sub(work.header[0] as u16)
            .cast_signed()
            > 0;
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
}

/// The peers to which `work` sends anything, in order.
fn sends_to(work: &Work<'_>) -> Vec<usize> {
    let mut peers = Vec::new();
    for items in &work.schedule.channels {
        let mut cursor = Cursor::new(items);
        while let Some(step) = cursor.step(items) {
            let to = step.sends.iter().map(|peer| peer.at(cursor.vars(), work.ranks()));
            peers.extend(to);
            cursor.advance(items);
        }
    }
    peers.sort_unstable();
    peers.dedup();
    peers
}
