//! Short messages that are sent and received by who waits for them, where nothing else is under way: at once, or not at all.

use super::{
    Kept, Pair, Transfers, Wanted,
    message::{Envelope, Word},
    pair,
};
use crate::{
    exec::{Fault, Received},
    mem::Region,
    transport::{Link, Wires},
    types::{DType, Transfer},
};

/// A message that its caller waits for, in the caller's memory.
#[derive(Debug)]
pub(crate) enum Message<'m> {
    Send {
        to: usize,
        tag: i32,
        dtype: DType,
        data: Region<'m>,
    },
    Receive {
        wanted: Wanted,
        data: Region<'m>,
        got: Option<Received>,
    },
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Brief {
    Done,
    /// There is no room yet, or it has not come.
    NotYet,
    /// It takes longer, or goes wrong.
    Never,
}

impl Message<'_> {
    pub(crate) fn transfer(&self) -> Transfer {
        match self {
            &Message::Send { to, tag, dtype, data } => Envelope::of(tag, dtype, &data).sent_to(to),
            Message::Receive { wanted, data, .. } => wanted.transfer(data.len()),
        }
    }

    /// Whether it goes the same way as another, so that it comes after that.
    pub(crate) fn follows(&self, other: &Message<'_>) -> bool {
        match (self, other) {
            (Message::Send { to, .. }, Message::Send { to: before, .. }) => to == before,
            (Message::Receive { wanted, .. }, Message::Receive { wanted: before, .. }) => {
                wanted.from == before.from || wanted.from.is_none() || before.from.is_none()
            }
            _ => false,
        }
    }
}

impl Envelope {
    fn of(tag: i32, dtype: DType, data: &Region<'_>) -> Envelope {
        let count = (data.len() / dtype.size()) as u64;
        Envelope { tag, dtype, count }
    }
}

impl Transfers {
    /// Sends or receives `message`, if that can be done now. Nothing else may be under way.
    ///
    /// # Errors
    /// Of the link.
    #[inline]
    pub(crate) fn briefly<W: Wires>(&mut self, message: &mut Message<'_>, wires: &W) -> Result<Brief, Fault> {
        match message {
            &mut Message::Send { to, tag, dtype, data } => {
                if data.len() > pair::SHORT || to == self.rank {
                    return Ok(Brief::Never);
                }
                self.send_briefly(to, Envelope::of(tag, dtype, &data), &data, wires)
            }
            Message::Receive { wanted, data, got } => match wanted.from {
                Some(from) if from == self.rank => Ok(Brief::Never),
                Some(from) => self.receive_briefly(from, wanted, data, got, wires),
                None => self.receive_any_briefly(wanted, data, got, wires),
            },
        }
    }

    fn receive_any_briefly<W: Wires>(
        &mut self,
        wanted: &Wanted,
        data: &Region<'_>,
        got: &mut Option<Received>,
        wires: &W,
    ) -> Result<Brief, Fault> {
        let kept = |(&peer, pair): (&usize, &Pair)| Some((pair.first_kept(peer, wanted)?.1, peer));
        if let Some((_, peer)) = self.pairs.iter().filter_map(kept).min() {
            return match peer == self.rank {
                true => Ok(Brief::Never),
                false => self.receive_briefly(peer, wanted, data, got, wires),
            };
        }
        // Nobody is always the first.
        let (me, first) = (self.rank, self.next_of_any);
        for peer in (first..self.ranks).chain(0..first).filter(|&peer| peer != me) {
            let brief = self.receive_briefly(peer, wanted, data, got, wires)?;
            if brief != Brief::NotYet {
                self.next_of_any = (peer + 1) % self.ranks;
                return Ok(brief);
            }
        }
        Ok(Brief::NotYet)
    }

    #[inline]
    fn send_briefly<W: Wires>(
        &mut self,
        peer: usize,
        envelope: Envelope,
        data: &Region<'_>,
        wires: &W,
    ) -> Result<Brief, Fault> {
        let Some(link) = wires.made_to(peer) else {
            return Ok(Brief::Never);
        };
        let pair = self.pairs.entry(peer).or_default();
        if !pair.may_send_ahead() {
            // It may have said that it can keep more.
            let all = (self.rank, &mut self.anyone, &mut self.arrivals);
            if !pair.tend(peer, all, wires)? || !pair.may_send_ahead() {
                return Ok(Brief::NotYet);
            }
        }
        let sent = pair.send_ahead(envelope, data, link);
        sent.map_err(|error| Fault::Wire { peer, error })
    }

    #[inline]
    fn receive_briefly<W: Wires>(
        &mut self,
        peer: usize,
        wanted: &Wanted,
        data: &Region<'_>,
        got: &mut Option<Received>,
        wires: &W,
    ) -> Result<Brief, Fault> {
        let pair = self.pairs.entry(peer).or_default();
        loop {
            let came = match pair.take_kept(peer, wanted, data) {
                Some(came) => came,
                None => pair.take_next(peer, wanted, data, wires)?,
            };
            match came {
                Came::Taken(envelope) => {
                    *got = Some(envelope.received_from(peer));
                    pair.hand_on();
                    if pair.has_answers() {
                        pair.send(peer, wires)?;
                    }
                    return Ok(Brief::Done);
                }
                Came::Nothing => return Ok(Brief::NotYet),
                Came::Unfit => return Ok(Brief::Never),
                Came::Other => {
                    let all = (self.rank, &mut self.anyone, &mut self.arrivals);
                    if !pair.tend(peer, all, wires)? {
                        return Ok(Brief::NotYet);
                    }
                }
            }
        }
    }
}

/// What has come that a receive may take.
enum Came {
    Taken(Envelope),
    Nothing,
    /// What it takes does not fit, or is not here.
    Unfit,
    /// Something else.
    Other,
}

impl Pair {
    /// Which of the messages that are kept is the first that `wanted` takes, and its place in the order of arrivals.
    #[inline]
    fn first_kept(&self, peer: usize, wanted: &Wanted) -> Option<(usize, u64)> {
        let mut kept = self.arrived.iter().enumerate();
        let (at, first) = kept.find(|(_, arrival)| wanted.takes(peer, &arrival.envelope))?;
        Some((at, first.number))
    }

    /// Of the messages that are kept the first that `wanted` takes, if there is one.
    #[inline]
    fn take_kept(&mut self, peer: usize, wanted: &Wanted, data: &Region<'_>) -> Option<Came> {
        let (at, _) = self.first_kept(peer, wanted)?;
        let envelope = self.arrived[at].envelope;
        let Kept::Here(bytes) = &mut self.arrived[at].data else {
            return Some(Came::Unfit);
        };
        if !wanted.fits(data.len(), &envelope) {
            return Some(Came::Unfit);
        }
        data.part(0, bytes.len()).copy_from(&Region::of_mut(bytes));
        self.arrived.remove(at);
        Some(Came::Taken(envelope))
    }

    /// What comes next from `peer`, if it is a short message that `wanted` takes.
    #[inline]
    fn take_next<W: Wires>(
        &mut self,
        peer: usize,
        wanted: &Wanted,
        data: &Region<'_>,
        wires: &W,
    ) -> Result<Came, Fault> {
        let wire = |error| Fault::Wire { peer, error };
        let Some(link) = wires.from(peer).map_err(wire)? else {
            return Ok(Came::Nothing);
        };
        let Some(message) = link.peek(pair::CONTROL).map_err(wire)? else {
            return Ok(Came::Nothing);
        };
        let Some(Word::Here(envelope)) = Word::of(message.header) else {
            return Ok(Came::Other);
        };
        let body = message.body.here().filter(|body| body.len() == envelope.bytes());
        let Some(body) = body.filter(|_| wanted.takes(peer, &envelope)) else {
            return Ok(Came::Other);
        };
        if !wanted.fits(data.len(), &envelope) {
            return Ok(Came::Unfit);
        }
        self.take_in(&body).ok_or(Fault::Nonsense { peer })?;
        data.part(0, body.len()).copy_from(&body);
        link.release(pair::CONTROL);
        Ok(Came::Taken(envelope))
    }
}
