//! The bodies of received messages, brought to where they can be read.

use super::host::Fault;
use crate::{
    mem::Region,
    transport::{Body, Link, Message, Pinned, Wires},
};
use smallvec::SmallVec;

/// Of each message that a step receives where it can be read, in the order of its sources.
pub(super) struct Bodies<'r>(SmallVec<[Place<'r>; 2]>);

enum Place<'r> {
    Here(Region<'r>),
    /// With this peer, whose memory it is.
    Lent(usize, Pinned<'r>),
}

impl Bodies<'_> {
    pub(super) fn iter(&self) -> impl Iterator<Item = Region<'_>> {
        self.0.iter().map(|place| match place {
            Place::Here(region) => *region,
            Place::Lent(_, pinned) => pinned.body(),
        })
    }

    /// Ends the reading. `Err` names a peer whose message may have been something else meanwhile: it is not to be had any more.
    pub(super) fn end(self) -> Result<(), usize> {
        let mut lost = Ok(());
        for place in self.0 {
            if let Place::Lent(peer, pinned) = place
                && !pinned.end()
            {
                lost = Err(peer);
            }
        }
        lost
    }
}

/// Where `messages` from these peers on `lane` can be read. Those that can only be taken from their senders are taken to
/// `landing` if there is one, of which the step has no other use, or to `fetched`. `Err` names a peer whose message is not to
/// be had any more; nothing but `landing` was changed then.
pub(super) fn bring<'r, 'w: 'r, W: Wires>(
    wires: &'w W,
    lane: usize,
    messages: impl Iterator<Item = (usize, Message<'w>)>,
    landing: Option<Region<'r>>,
    fetched: &'r mut Vec<u64>,
) -> Result<Result<Bodies<'r>, usize>, Fault> {
    let mut bodies = SmallVec::new();
    let mut there = SmallVec::<[(usize, usize, usize); 2]>::new();
    for (k, (peer, message)) in messages.enumerate() {
        bodies.push(match message.body {
            Body::Here(body) => Place::Here(body),
            Body::There(len) => {
                there.push((k, peer, len));
                Place::Here(Region::empty())
            }
            Body::Lent(len) => {
                let wire = |error| Fault::Wire { peer, error };
                let link = wires.from(peer).map_err(wire)?;
                match link.map_or(Ok(None), |link| link.pin(lane, len)).map_err(wire)? {
                    Some(pinned) => Place::Lent(peer, pinned),
                    None => return Ok(Err(peer)),
                }
            }
        });
    }
    if there.is_empty() {
        return Ok(Ok(Bodies(bodies)));
    }
    let words: usize = match landing {
        Some(_) => 0,
        None => there.iter().map(|(_, _, len)| len.div_ceil(8)).sum(),
    };
    if fetched.len() < words {
        fetched.resize(words, 0);
    }
    let (staged, mut at) = (Region::of_mut(fetched), 0);
    for (k, peer, len) in there {
        let target = landing.unwrap_or_else(|| staged.part(at, len));
        at += len.next_multiple_of(8);
        let wire = |error| Fault::Wire { peer, error };
        let link = wires.from(peer).map_err(wire)?;
        let taken = link.map_or(Ok(false), |link| link.take(lane, &target));
        if !taken.map_err(wire)? {
            return Ok(Err(peer));
        }
        bodies[k] = Place::Here(target);
    }
    Ok(Ok(Bodies(bodies)))
}
