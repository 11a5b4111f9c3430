//! A world of ranks in one thread, for tests: deterministic, and as adverse as the contract allows.
//!
//! A message shows up only after some number of its receiver's looks at the lane, a credit only after some number of
//! its sender's looks, a link only after some number of looks at it; each lane draws its own numbers, so that between
//! lanes any order comes about. Which rank goes on next is drawn too ([`World::next_rank`]), in bursts. All draws come
//! from one seed: the same seed and the same calls are the same run.
//!
//! A released body is overwritten at once, and so is a reserved one: who reads too late, or sends what it did not
//! write, gets visibly wrong data. An offered body is not copied: the receiver sees what is there when it reads it. Some, as
//! drawn, it can only take. From a sender that is dead it gets neither. Where a message is wanted lies anything from when it was
//! sent until it has arrived.

mod lane;
#[cfg(test)]
mod tests;

pub(crate) use lane::LONGEST_DELAY;

use super::{Body, Caps, Header, LANES, Message, Pinned, Reach, Ticket};
use crate::{mem::Region, types::Error};
use lane::{Draws, Landing, Lane, Making, Open, Posted, spoil};
use std::{
    cell::{Cell, RefCell},
    sync::atomic::AtomicU32,
};

/// The ranks, what is on its way between them, and the seed's next draws. One thread uses it.
pub(crate) struct World {
    ranks: usize,
    slots: usize,
    max_message: Cell<usize>,
    state: RefCell<State>,
}

struct State {
    random: fastrand::Rng,
    /// By sender, receiver and lane.
    lanes: Vec<Lane>,
    /// By sender and receiver.
    links: Vec<Making>,
    dead: Vec<bool>,
    /// The rank whose turn it is, and for how many turns more.
    turn: (usize, u32),
}

impl World {
    /// `ranks` ranks. With `slots` of 1 or more a lane holds that many messages, and offers are refused. With 0 slots
    /// any number of messages can be offered on a lane, and at most one reserved message is under way on it.
    pub(crate) fn new(ranks: usize, slots: usize, seed: u64) -> World {
        World {
            ranks,
            slots,
            max_message: Cell::new(4096),
            state: RefCell::new(State {
                random: fastrand::Rng::with_seed(seed),
                lanes: (0..ranks * ranks * LANES).map(|_| Lane::default()).collect(),
                links: (0..ranks * ranks).map(|_| Making::default()).collect(),
                dead: vec![false; ranks],
                turn: (0, 0),
            }),
        }
    }

    /// The same with bodies of at most `bytes`; to be said before anything is sent.
    pub(crate) fn with_max_message(self, bytes: usize) -> World {
        self.max_message.set(bytes);
        self
    }

    /// `rank`'s links.
    pub(crate) fn wires(&self, rank: usize) -> Wires<'_> {
        let link = |peer| Link {
            world: self,
            rank,
            peer,
        };
        Wires {
            world: self,
            rank,
            links: (0..self.ranks).map(link).collect(),
        }
    }

    /// The rank to go on with: one that lives, often the same as before, so that the others fall behind.
    ///
    /// # Panics
    /// When no rank lives.
    pub(crate) fn next_rank(&self) -> usize {
        let state = &mut *self.state.borrow_mut();
        let (mut rank, mut more) = state.turn;
        if more == 0 || state.dead[rank] {
            let living: Vec<usize> = (0..self.ranks).filter(|&rank| !state.dead[rank]).collect();
            rank = *state.random.choice(&living).expect("some rank lives");
            more = if state.random.u8(..) < 32 {
                50
            } else {
                state.random.u32(1..=4)
            };
        }
        state.turn = (rank, more - 1);
        rank
    }

    /// Has all that is sent next from one rank to another, and the credits for it, take `looks` looks.
    pub(crate) fn delay(&self, from: usize, to: usize, looks: u32) {
        for lane in 0..LANES {
            self.lane(from, to, lane, |lane, _| lane.delay(looks));
        }
    }

    /// Ends `rank`: what its peers can see by now stays, nothing else comes from it, neither messages nor credits.
    pub(crate) fn kill(&self, rank: usize) {
        self.state.borrow_mut().dead[rank] = true;
    }

    /// Whether every message, credit and link of the living has been seen by the rank that it is for. What a rank does
    /// not look at stays on its way.
    pub(crate) fn is_quiet(&self) -> bool {
        let state = self.state.borrow();
        let pairs = (0..self.ranks).flat_map(|from| (0..self.ranks).map(move |to| (from, to)));
        let mut living = pairs.filter(|&(from, to)| !state.dead[from] && !state.dead[to]);
        living.all(|(from, to)| {
            let pair = from * self.ranks + to;
            let lanes = &state.lanes[pair * LANES..][..LANES];
            state.links[pair].is_quiet() && lanes.iter().all(Lane::is_quiet)
        })
    }

    /// Whether `rank` has not been killed.
    pub(crate) fn lives(&self, rank: usize) -> bool {
        !self.state.borrow().dead[rank]
    }

    /// Does something to the lane from one rank to another, with the draws and whether both live.
    fn lane<R>(
        &self,
        from: usize,
        to: usize,
        lane: usize,
        work: impl FnOnce(&mut Lane, &mut Draws<'_>) -> R,
    ) -> R {
        assert!(lane < LANES, "lane {lane}");
        let state = &mut *self.state.borrow_mut();
        let lane = &mut state.lanes[(from * self.ranks + to) * LANES + lane];
        let mut draws = Draws {
            random: &mut state.random,
            sender_lives: !state.dead[from],
            receiver_lives: !state.dead[to],
        };
        work(lane, &mut draws)
    }
}

/// One rank's links in a [`World`].
pub(crate) struct Wires<'w> {
    world: &'w World,
    rank: usize,
    links: Vec<Link<'w>>,
}

impl<'w> Wires<'w> {
    fn making<R>(
        &self,
        from: usize,
        to: usize,
        work: impl FnOnce(&mut Making, &mut fastrand::Rng) -> R,
    ) -> Result<R, Error> {
        if from == to || from.max(to) >= self.world.ranks {
            return Err(Error::internal(format!("a link from rank {from} to rank {to}")));
        }
        let state = &mut *self.world.state.borrow_mut();
        let link = &mut state.links[from * self.world.ranks + to];
        Ok(work(link, &mut state.random))
    }
}

impl<'w> super::Wires for Wires<'w> {
    type Link = Link<'w>;

    fn to(&self, peer: usize) -> Result<Option<&Link<'w>>, Error> {
        let seen = self.making(self.rank, peer, |link, random| {
            link.begun = true;
            link.sends = link.sends || link.sending.is_over(random);
            link.sends
        })?;
        Ok(seen.then(|| &self.links[peer]))
    }

    fn from(&self, peer: usize) -> Result<Option<&Link<'w>>, Error> {
        let alive = peer < self.world.ranks && self.world.lives(peer);
        let seen = self.making(peer, self.rank, |link, random| {
            link.receives = link.receives || (alive && link.begun && link.receiving.is_over(random));
            link.receives
        })?;
        Ok(seen.then(|| &self.links[peer]))
    }
}

/// One rank's end of a link in a [`World`].
pub(crate) struct Link<'w> {
    world: &'w World,
    rank: usize,
    peer: usize,
}

impl Link<'_> {
    fn sending<R>(&self, lane: usize, work: impl FnOnce(&mut Lane, &mut Draws<'_>) -> R) -> R {
        self.world.lane(self.rank, self.peer, lane, work)
    }

    fn receiving<R>(&self, lane: usize, work: impl FnOnce(&mut Lane, &mut Draws<'_>) -> R) -> R {
        self.world.lane(self.peer, self.rank, lane, work)
    }

    fn check(&self, len: usize) -> Result<(), Error> {
        let most = self.world.max_message.get();
        if len > most {
            return Err(Error::internal(format!(
                "a message of {len} bytes for a link that takes {most} at most"
            )));
        }
        Ok(())
    }
}

impl super::Link for Link<'_> {
    fn caps(&self) -> Caps {
        Caps {
            name: "sim",
            max_message: self.world.max_message.get(),
        }
    }

    fn reserve(&self, lane: usize, len: usize) -> Result<Option<Region<'_>>, Error> {
        self.check(len)?;
        let (slots, bytes) = (self.world.slots, self.world.max_message.get());
        let base = self.sending(lane, |lane, draws| {
            lane.look_for_credit(draws);
            if !lane.has_room(slots) {
                return None;
            }
            let base = lane.room(slots, bytes);
            if lane.elsewhere.take().is_some() || lane.reserved != Some(len) {
                spoil(base, len);
            }
            lane.reserved = Some(len);
            Some(base)
        });
        // SAFETY: a room of at least `len` bytes, as checked above, that stays until the world ends; it is reached by
        // raw pointers alone, by this one thread.
        Ok(base.map(|base| unsafe { Region::from_raw(base, len) }))
    }

    /// Some links can say so.
    fn has_credit(&self, lane: usize, _len: usize) -> Option<bool> {
        let says = self.peer.is_multiple_of(2);
        let has = |lane: &mut Lane, draws: &mut Draws| {
            lane.look_for_credit(draws);
            lane.has_room(self.world.slots)
        };
        says.then(|| self.sending(lane, has))
    }

    /// Some rooms are open.
    fn reserve_open(&self, lane: usize, len: usize) -> Result<Option<Region<'_>>, Error> {
        let bytes = self.world.max_message.get();
        let base = self.sending(lane, |lane, draws| {
            let is_open = draws.random.u8(..) < 192 && len <= bytes && lane.has_room(self.world.slots);
            is_open.then(|| {
                let base = lane.open_room(bytes);
                spoil(base, len);
                lane.reserved = Some(len);
                lane.elsewhere = Some((base, Open::Yes));
                base
            })
        });
        match base {
            None => self.reserve(lane, len),
            // SAFETY: as in `reserve`.
            Some(base) => Ok(Some(unsafe { Region::from_raw(base, len) })),
        }
    }

    /// What is open is answered, mostly.
    fn answer(&self, lane: usize, len: usize) -> Option<Region<'_>> {
        let base = self.receiving(lane, |lane, draws| {
            let message = lane.messages.front().filter(|_| lane.arrived != lane.released)?;
            let is_right = message.open == Open::Yes && message.len == len && draws.random.u8(..) < 192;
            is_right.then_some(message.base)
        })?;
        let has_room = self.sending(lane, |lane, draws| {
            lane.look_for_credit(draws);
            let has_room = lane.has_room(self.world.slots);
            if has_room {
                lane.reserved = Some(len);
                lane.elsewhere = Some((base, Open::Answer));
            }
            has_room
        });
        // SAFETY: as in `reserve`.
        has_room.then(|| unsafe { Region::from_raw(base, len) })
    }

    /// Some are.
    fn is_far(&self) -> bool {
        (self.rank + self.peer) % 2 == 1
    }

    fn commit(&self, lane: usize, header: Header) {
        let (slots, bytes) = (self.world.slots, self.world.max_message.get());
        let open = self.sending(lane, |lane, _| {
            let len = lane.reserved.take().expect("a commit without a reservation");
            let in_room = (lane.room(slots, bytes), Open::No);
            let (base, open) = lane.elsewhere.take().unwrap_or(in_room);
            let copied = true;
            let number = lane.post(Posted {
                header,
                base,
                len,
                copied,
                is_there: false,
                landed: None,
                open,
            });
            lane.staged = Some(number);
            open
        });
        if open == Open::Answer {
            self.receiving(lane, |lane, _| {
                let answered = lane.messages.front_mut().expect("the message that is answered");
                answered.open = Open::Answered;
            });
        }
    }

    fn reach(&self, _body: &Region<'_>) -> Reach {
        match self.world.slots {
            0 => Reach::Reading,
            _ => Reach::No,
        }
    }

    fn offer(&self, lane: usize, header: Header, body: Region<'_>) -> Result<Option<Ticket>, Error> {
        self.check(body.len())?;
        if self.world.slots > 0 {
            return Err(Error::internal("an offer on a link that takes none"));
        }
        let (base, len) = (body.as_ptr(), body.len());
        let copied = false;
        let number = self.sending(lane, |lane, draws| {
            (lane.reserved, lane.elsewhere) = (None, None);
            lane.post(Posted {
                header,
                base,
                len,
                copied,
                is_there: draws.random.bool(),
                landed: None,
                open: Open::No,
            })
        });
        Ok(Some(Ticket(number)))
    }

    fn taken(&self, lane: usize, ticket: Ticket) -> bool {
        self.sending(lane, |lane, draws| {
            lane.look_for_credit(draws);
            lane.is_known(ticket.0)
        })
    }

    fn peek(&self, lane: usize) -> Result<Option<Message<'_>>, Error> {
        let oldest = self.receiving(lane, |lane, draws| {
            lane.look_for_message(draws);
            (lane.arrived != lane.released).then(|| lane.messages[0])
        });
        Ok(oldest.map(|message| Message {
            header: message.header,
            body: match (message.copied, message.is_there) {
                (true, _) => Body::Here(message.body()),
                (false, true) => Body::There(message.len),
                (false, false) => Body::Lent(message.len),
            },
        }))
    }

    fn land(&self, lane: usize, header: &Header, target: &Region<'_>) {
        self.receiving(lane, |lane, _| {
            assert_eq!(lane.arrived, lane.released, "a message is there");
            lane.landing = Some(Landing {
                number: lane.arrived,
                header: *header,
                base: target.as_ptr(),
                len: target.len(),
            });
        });
    }

    fn take(&self, lane: usize, target: &Region<'_>) -> Result<bool, Error> {
        let is_alive = self.world.lives(self.peer);
        let oldest = self.receiving(lane, |lane, _| lane.messages.front().copied());
        let message = oldest.expect("a message to take");
        if !message.copied && !is_alive {
            spoil(target.as_ptr(), target.len());
            return Ok(false);
        }
        target.copy_from(&message.body());
        Ok(true)
    }

    fn pin(&self, lane: usize, len: usize) -> Result<Option<Pinned<'_>>, Error> {
        static WITHDRAWN: AtomicU32 = AtomicU32::new(0);
        if !self.world.lives(self.peer) {
            return Ok(None);
        }
        let oldest = self.receiving(lane, |lane, _| lane.messages.front().copied());
        let body = oldest.expect("a message to read").body();
        assert_eq!(body.len(), len);
        Pinned::new(|| Ok(body), None, &WITHDRAWN)
    }

    fn release(&self, lane: usize) {
        self.receiving(lane, |lane, _| {
            assert!(lane.arrived != lane.released, "a release of nothing");
            if let Some(message) = lane.messages.pop_front()
                && message.copied
                && message.open != Open::Answered
            {
                spoil(message.base, message.len);
            }
            lane.released = lane.released.wrapping_add(1);
        });
    }
}
