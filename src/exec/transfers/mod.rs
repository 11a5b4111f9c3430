//! Messages between two ranks: finding the receive for each, and moving the data.
//!
//! A sender announces its messages to a rank in their order. A short one brings its data along; of a longer one the
//! receiver says when it has a place for it, and only then does the data travel, on a lane of its own. So no lane ever
//! waits for a receive: what was announced is taken off its lane at once, and of each rank at most [`pair::KEPT`] short
//! messages are kept.
//!
//! A message goes to the first receive, in the order in which they were posted, that takes its sender and tag; a receive
//! gets the first message, in the order of arrival, that it takes. Messages of one rank with the same tag so arrive in the
//! order in which they were sent.

mod brief;
mod message;
mod pair;
#[cfg(test)]
mod tests;

use super::{Completion, Fault, Received, completion::Outcome};
use crate::{
    mem::{Hold, Region},
    transport::{Ticket, Wires},
    types::{Cause, DType, Transfer},
};
pub(crate) use brief::{Brief, Message};
use message::Envelope;
use pair::Pair;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Instant,
};

/// A message to be sent.
#[derive(Debug)]
pub(crate) struct Sending {
    envelope: Envelope,
    data: Hold,
    completion: Arc<Completion>,
    /// When it began.
    since: Instant,
}

impl Sending {
    pub(crate) fn new(data: Hold, tag: i32, dtype: DType, completion: Arc<Completion>) -> Self {
        let count = (data.region().len() / dtype.size()) as u64;
        Sending {
            envelope: Envelope { tag, dtype, count },
            data,
            completion,
            since: Instant::now(),
        }
    }

    fn is_short(&self) -> bool {
        self.envelope.bytes() <= pair::SHORT
    }

    /// Its data, if that is so long that it may be left where it lies.
    pub(crate) fn lent(&self) -> Option<Region<'_>> {
        (!self.is_short()).then(|| self.data.region())
    }

    pub(crate) fn transfer(&self, to: usize) -> Transfer {
        self.envelope.sent_to(to)
    }

    /// Gives back its memory and says how it ended.
    pub(crate) fn end(self, outcome: Outcome) {
        drop(self.data);
        self.completion.finish(outcome);
    }
}

impl Envelope {
    /// What the receive of a message of rank `peer` says.
    fn received_from(&self, peer: usize) -> Received {
        Received {
            source: peer,
            tag: self.tag,
            count: self.count as usize,
            dtype: self.dtype,
        }
    }

    fn sent_to(&self, to: usize) -> Transfer {
        Transfer::Send {
            to: to as u32,
            tag: self.tag,
            count: self.count,
            dtype: self.dtype,
        }
    }
}

/// Which messages a receive takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// `None`: from any rank.
    pub(crate) from: Option<usize>,
    /// `None`: with any tag.
    pub(crate) tag: Option<i32>,
    pub(crate) dtype: DType,
    /// Whether the message must be as long as the place for it, and not only fit.
    pub(crate) exact: bool,
}

impl Wanted {
    fn takes(&self, peer: usize, envelope: &Envelope) -> bool {
        self.from.is_none_or(|from| from == peer) && self.tag.is_none_or(|tag| tag == envelope.tag)
    }

    /// Whether a message that it takes has its place in `room` bytes.
    fn fits(&self, room: usize, envelope: &Envelope) -> bool {
        let bytes = envelope.bytes();
        let is_long_enough = if self.exact { bytes == room } else { bytes <= room };
        is_long_enough && self.dtype == envelope.dtype
    }

    /// What a receive into `room` bytes is, for records and messages.
    fn transfer(&self, room: usize) -> Transfer {
        Transfer::Recv {
            from: self.from.map(|from| from as u32),
            tag: self.tag,
            count: (room / self.dtype.size()) as u64,
            dtype: self.dtype,
        }
    }

    /// A message of rank `from` without a tag, just as long as the place for it.
    pub(crate) fn exactly(from: usize, dtype: DType) -> Self {
        Wanted {
            from: Some(from),
            tag: Some(0),
            dtype,
            exact: true,
        }
    }
}

/// A receive that waits for its message.
#[derive(Debug)]
pub(crate) struct Posted {
    wanted: Wanted,
    data: Hold,
    completion: Arc<Completion>,
    since: Instant,
    /// Its place in the order of the receives.
    number: u64,
    /// What it gets, once that is known.
    gets: Option<Received>,
}

impl Posted {
    pub(crate) fn new(data: Hold, wanted: Wanted, completion: Arc<Completion>) -> Self {
        Posted {
            wanted,
            data,
            completion,
            since: Instant::now(),
            number: 0,
            gets: None,
        }
    }

    /// Whether it may get a message that is left where it lies.
    pub(crate) fn is_long(&self) -> bool {
        self.data.region().len() > pair::SHORT
    }

    pub(crate) fn transfer(&self) -> Transfer {
        self.wanted.transfer(self.data.region().len())
    }

    /// Checks that the message from `peer` to `rank` has a place here.
    fn check(&self, rank: usize, peer: usize, envelope: &Envelope) -> Result<(), Fault> {
        if self.wanted.fits(self.data.region().len(), envelope) {
            return Ok(());
        }
        Err(Fault::Unlike {
            peer,
            ours: self.transfer(),
            theirs: envelope.sent_to(rank),
        })
    }

    /// The same, ready for the message that it has got, which was checked.
    fn matched(mut self, peer: usize, envelope: &Envelope) -> Self {
        self.data = self.data.part(0, envelope.bytes());
        self.gets = Some(envelope.received_from(peer));
        self
    }

    /// Its data is there.
    fn done(self) {
        let gets = self.gets;
        self.end(Ok(gets));
    }

    /// Gives back its memory and says how it ended.
    pub(crate) fn end(self, outcome: Outcome) {
        drop(self.data);
        self.completion.finish(outcome);
    }
}

/// What stands still for the longest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Oldest {
    pub(crate) transfer: Transfer,
    pub(crate) since: Instant,
    /// The ranks without which nothing here goes on. A receive from any rank adds none.
    pub(crate) waits_for: Vec<usize>,
}

/// A message on its way.
#[derive(Debug)]
struct Flow<T> {
    what: T,
    /// Bytes that have gone.
    done: usize,
    /// The last piece that was left where it lies, if any was.
    lent: Option<Ticket>,
    since: Instant,
}

impl<T> Flow<T> {
    fn new(what: T) -> Self {
        Flow {
            what,
            done: 0,
            lent: None,
            since: Instant::now(),
        }
    }

    fn go_on(&mut self, bytes: usize) {
        self.done += bytes;
        self.since = Instant::now();
    }
}

/// Where the data of a message is.
enum Payload<'l> {
    Here(Region<'l>),
    /// With its sender, by this number.
    There(u32),
}

/// A message that came before its receive.
#[derive(Debug)]
struct Arrival {
    envelope: Envelope,
    data: Kept,
    /// Its place in the order of arrivals.
    number: u64,
}

#[derive(Debug)]
enum Kept {
    Here(Vec<u8>),
    There(u32),
    /// This rank sends it to itself.
    Own(Sending),
}

impl Arrival {
    fn fail(self, cause: &Cause) {
        if let Kept::Own(sending) = self.data {
            sending.end(Err(cause.clone()));
        }
    }
}

/// All messages of a rank to others and from them.
#[derive(Debug)]
pub(crate) struct Transfers {
    rank: usize,
    ranks: usize,
    /// The ranks that it has had to do with.
    pairs: BTreeMap<usize, Pair>,
    /// Receives from any rank, in order.
    anyone: VecDeque<Posted>,
    /// Receives posted and messages arrived so far.
    receives: u64,
    arrivals: u64,
    /// Whether something may be under way.
    busy: bool,
    /// Polls in which nothing moved, since something did.
    fruitless: u32,
    /// Whom a receive from any rank asks first, where it asks itself.
    next_of_any: usize,
}

impl Transfers {
    /// Those of `rank` among `ranks`.
    pub(crate) fn new(rank: usize, ranks: usize) -> Self {
        Transfers {
            rank,
            ranks,
            pairs: BTreeMap::new(),
            anyone: VecDeque::new(),
            receives: 0,
            arrivals: 0,
            busy: false,
            fruitless: 0,
            next_of_any: 0,
        }
    }

    /// Whether nothing is under way, as the last poll found.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        !self.busy
    }

    /// Sends a message to `peer`, which may be this rank.
    pub(crate) fn send(&mut self, peer: usize, mut sending: Sending) -> Result<(), Fault> {
        self.busy = true;
        sending.since = Instant::now();
        if peer != self.rank {
            self.pairs.entry(peer).or_default().unsaid.push_back(sending);
            return Ok(());
        }
        let (pair, envelope) = (self.pairs.entry(peer).or_default(), sending.envelope);
        self.arrivals += 1;
        pair.arrived.push_back(Arrival {
            envelope,
            data: Kept::Own(sending),
            number: self.arrivals,
        });
        let taker = first_taker(&mut self.anyone, &mut pair.posted, self.rank, peer, &envelope)?;
        match (taker, pair.arrived.pop_back()) {
            (Some(posted), Some(arrival)) => pair.match_up(peer, posted, arrival),
            (None, Some(arrival)) => pair.arrived.push_back(arrival),
            (_, None) => {}
        }
        Ok(())
    }

    /// Receives the first message that `posted` takes.
    pub(crate) fn receive(&mut self, mut posted: Posted) -> Result<(), Fault> {
        self.busy = true;
        self.receives += 1;
        posted.since = Instant::now();
        posted.number = self.receives;
        let from = posted.wanted.from;
        let of = |(&peer, pair): (&usize, &Pair)| {
            let at = pair
                .arrived
                .iter()
                .position(|arrival| posted.wanted.takes(peer, &arrival.envelope))?;
            Some((pair.arrived[at].number, peer, at))
        };
        let found = match from {
            Some(peer) => self.pairs.get_key_value(&peer).and_then(of),
            None => self.pairs.iter().filter_map(of).min(),
        };
        let Some((_, peer, at)) = found else {
            match from {
                Some(peer) => self.pairs.entry(peer).or_default().posted.push_back(posted),
                None => self.anyone.push_back(posted),
            }
            return Ok(());
        };
        let pair = self.pairs.entry(peer).or_default();
        let fits = posted.check(self.rank, peer, &pair.arrived[at].envelope);
        match (fits, pair.arrived.remove(at)) {
            (Ok(()), Some(arrival)) => pair.match_up(peer, posted, arrival),
            (unlike, arrival) => {
                // They end with all others, when the communicator does.
                pair.arrived.extend(arrival);
                pair.posted.push_back(posted);
                unlike?;
            }
        }
        Ok(())
    }

    /// Moves what can be moved without waiting; whether that was anything.
    pub(crate) fn poll<W: Wires>(&mut self, wires: &W) -> Result<bool, Fault> {
        if !self.anyone.is_empty() && self.pairs.len() < self.ranks {
            for peer in 0..self.ranks {
                self.pairs.entry(peer).or_default();
            }
        }
        let any = !self.anyone.is_empty();
        let moved = self.pass(wires, |pair| any || pair.is_open() || pair.has_answers())?;
        self.fruitless = if moved { 0 } else { self.fruitless.wrapping_add(1) };
        // Where ranks send round in a circle none has room before one takes in what came.
        match self.fruitless % LISTEN_EVERY == 1 && self.pairs.values().any(Pair::lacks_room) {
            true => self.hear_all(wires),
            false => Ok(moved),
        }
    }

    /// Takes in what came from any rank, whether or not there is a receive for it: who sends it may wait for room, and this rank for
    /// what that one does next. Whether there was anything.
    pub(crate) fn hear_all<W: Wires>(&mut self, wires: &W) -> Result<bool, Fault> {
        for peer in (0..self.ranks).filter(|&peer| peer != self.rank) {
            if !self.pairs.contains_key(&peer) && pair::has_spoken(peer, wires)? {
                self.pairs.entry(peer).or_default();
            }
        }
        self.pass(wires, |_| true)
    }

    fn pass<W: Wires>(&mut self, wires: &W, concerns: impl Fn(&Pair) -> bool) -> Result<bool, Fault> {
        let mut moved = false;
        for (&peer, pair) in &mut self.pairs {
            if peer != self.rank && concerns(pair) {
                let all = (self.rank, &mut self.anyone, &mut self.arrivals);
                moved |= pair.tend(peer, all, wires)?;
            }
        }
        let open = |pair: &Pair| pair.is_open() || pair.holds_own();
        self.busy = !self.anyone.is_empty() || self.pairs.values().any(open);
        Ok(moved)
    }

    /// What stands still for the longest, if anything is under way.
    pub(crate) fn oldest(&self) -> Option<Oldest> {
        let of = |(&peer, pair): (&usize, &Pair)| pair.under_way(peer).min_by_key(|(_, since)| *since);
        let anyone = self.anyone.iter().map(|posted| (posted.transfer(), posted.since));
        let own = self.pairs.get(&self.rank).into_iter().flat_map(|pair| {
            let own = |arrival: &Arrival| match &arrival.data {
                Kept::Own(sending) => Some((sending.transfer(self.rank), sending.since)),
                Kept::Here(_) | Kept::There(_) => None,
            };
            pair.arrived.iter().filter_map(own)
        });
        let all = self.pairs.iter().filter_map(of).chain(anyone).chain(own);
        let (transfer, since) = all.min_by_key(|(_, since)| *since)?;
        let open = self.pairs.iter().filter(|(_, pair)| pair.is_open());
        let others = open.map(|(&peer, _)| peer).filter(|&peer| peer != self.rank);
        let mut waits_for: Vec<usize> = others.collect();
        if waits_for.is_empty() && self.anyone.is_empty() {
            waits_for.push(self.rank);
        }
        Some(Oldest {
            transfer,
            since,
            waits_for,
        })
    }

    /// Of what is under way with `peer` alone what stands still for the longest.
    pub(crate) fn oldest_with(&self, peer: usize) -> Option<Transfer> {
        let under_way = self.pairs.get(&peer)?.under_way(peer);
        Some(under_way.min_by_key(|(_, since)| *since)?.0)
    }

    /// Ends all that is under way because of `cause`.
    pub(crate) fn fail(&mut self, cause: &Cause) {
        for posted in self.anyone.drain(..) {
            posted.end(Err(cause.clone()));
        }
        for pair in std::mem::take(&mut self.pairs).into_values() {
            pair.fail(cause);
        }
        self.busy = false;
    }
}

impl Payload<'_> {
    fn keep(self) -> Kept {
        match self {
            Payload::Here(body) => {
                let mut bytes = vec![0; body.len()];
                Region::of_mut(&mut bytes).copy_from(&body);
                Kept::Here(bytes)
            }
            Payload::There(id) => Kept::There(id),
        }
    }
}

/// Takes away the first of the receives, from any rank or from `peer`, that takes the message, which must fit it.
fn first_taker(
    anyone: &mut VecDeque<Posted>,
    from_it: &mut VecDeque<Posted>,
    rank: usize,
    peer: usize,
    envelope: &Envelope,
) -> Result<Option<Posted>, Fault> {
    let find = |list: &VecDeque<Posted>| list.iter().position(|posted| posted.wanted.takes(peer, envelope));
    let (list, at) = match (find(anyone), find(from_it)) {
        (Some(any), Some(own)) if anyone[any].number < from_it[own].number => (anyone, any),
        (_, Some(own)) => (from_it, own),
        (Some(any), None) => (anyone, any),
        (None, None) => return Ok(None),
    };
    list[at].check(rank, peer, envelope)?;
    Ok(list.remove(at))
}

impl Pair {
    /// Moves what goes to and fro between this rank and `peer`, as far as that can be done without waiting; whether that was anything.
    /// `all`: this rank, receives from any rank, and how many messages have arrived.
    fn tend<W: Wires>(
        &mut self,
        peer: usize,
        (rank, anyone, arrivals): (usize, &mut VecDeque<Posted>, &mut u64),
        wires: &W,
    ) -> Result<bool, Fault> {
        let mut went = false;
        let mut accept = |pair: &mut Pair, envelope: Envelope, payload: Payload<'_>| {
            let taker = first_taker(anyone, &mut pair.posted, rank, peer, &envelope)?;
            match (taker, payload) {
                (Some(posted), Payload::Here(body)) => {
                    let posted = posted.matched(peer, &envelope);
                    posted.data.region().copy_from(&body);
                    posted.done();
                    pair.hand_on();
                }
                (Some(posted), Payload::There(id)) => pair.want(id, posted.matched(peer, &envelope)),
                (None, payload) => {
                    *arrivals += 1;
                    pair.arrived.push_back(Arrival {
                        envelope,
                        data: payload.keep(),
                        number: *arrivals,
                    });
                }
            }
            Ok(())
        };
        for _ in 0..pair::AT_ONCE {
            if !self.hear(peer, wires, &mut accept)? {
                break;
            }
            went = true;
        }
        went |= self.receive(peer, wires)?;
        // After what it has heard, which may let it send, and send ahead.
        went |= self.send(peer, wires)?;
        if went {
            self.moved = Some(Instant::now());
        }
        Ok(went)
    }

    /// A message that had come before finds its receive, which it fits.
    fn match_up(&mut self, peer: usize, posted: Posted, arrival: Arrival) {
        let posted = posted.matched(peer, &arrival.envelope);
        match arrival.data {
            Kept::Here(mut bytes) => {
                posted.data.region().copy_from(&Region::of_mut(&mut bytes));
                posted.done();
                self.hand_on();
            }
            Kept::There(id) => self.want(id, posted),
            Kept::Own(sending) => {
                posted.data.region().copy_from(&sending.data.region());
                sending.end(Ok(None));
                posted.done();
            }
        }
    }
}

/// Fruitless polls after which a rank that has no room for what it sends looks what all have sent.
const LISTEN_EVERY: u32 = 16;
