//! The bodies of received messages, brought to where they can be read.

use super::host::Fault;
use crate::{
    mem::Region,
    transport::{Body, Link, Message, Wires},
};
use smallvec::SmallVec;

/// Of each message that a step receives, in the order of its sources.
pub(super) type Bodies<'r> = SmallVec<[Region<'r>; 2]>;

/// Where `messages` from these peers on `lane` can be read. Those that lie with their senders are taken to `landing` if
/// there is one, of which the step has no other use, or to `fetched`. `Err` names a peer whose message is not to be had any
/// more; nothing but `landing` was changed then.
pub(super) fn bring<'r, 'w: 'r, W: Wires>(
    wires: &'w W,
    lane: usize,
    messages: impl Iterator<Item = (usize, Message<'w>)>,
    landing: Option<Region<'r>>,
    fetched: &'r mut Vec<u64>,
) -> Result<Result<Bodies<'r>, usize>, Fault> {
    let mut bodies = Bodies::new();
    let mut there = SmallVec::<[(usize, usize, usize); 2]>::new();
    for (k, (peer, message)) in messages.enumerate() {
        match message.body {
            Body::Here(body) => bodies.push(body),
            Body::There(len) => {
                there.push((k, peer, len));
                bodies.push(Region::empty());
            }
        }
    }
    if there.is_empty() {
        return Ok(Ok(bodies));
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
        bodies[k] = target;
    }
    Ok(Ok(bodies))
}
