//! The receiving half of a link.

use super::{
    bell::{Bell, Ringer},
    broken,
    layout::{self, DEPTH, INLINE, MAX_MESSAGE, Segment},
    refused,
};
use crate::{
    mem::Region,
    net::Parcel,
    sys::memfd::Shared,
    transport::{LANES, Message},
    types::Error,
};
use std::{cell::Cell, io, sync::atomic::Ordering::*};

/// The receiving half of a link. What the peer wrote is read once and checked before it is used.
pub(crate) struct Inbound {
    pub(super) segment: Shared<Segment>,
    lanes: [RecvLane; LANES],
    bell: Ringer,
    peer: usize,
}

struct RecvLane {
    /// Messages released, modulo 2^32: the number of the one that is looked for.
    released: Cell<u32>,
}

impl Inbound {
    /// Maps the segment that `peer` made.
    ///
    /// # Errors
    /// That the peer is broken, if the parcel is not what this version makes, or the memory not what it says.
    pub(crate) fn attach(peer: usize, parcel: &Parcel, ours: &Bell) -> Result<Inbound, Error> {
        let strange = || io::Error::new(io::ErrorKind::InvalidData, "its link is laid out in another way");
        let open = || {
            let [segment, bell] = &parcel.fds[..] else {
                return Err(strange());
            };
            if parcel.bytes != layout::hello() {
                return Err(strange());
            }
            Ok((Shared::<Segment>::open(segment)?, Ringer::open(bell, ours)?))
        };
        let (segment, bell) = open().map_err(|err| refused(peer, err))?;
        let lanes = std::array::from_fn(|lane| RecvLane {
            // Any number will do: it chooses the entry where the count begins.
            released: Cell::new(segment.released[lane].0.load(Relaxed)),
        });
        Ok(Inbound {
            segment,
            lanes,
            bell,
            peer,
        })
    }

    /// The oldest message, and the word that tells how many of the other direction its sender has released.
    #[inline]
    pub(super) fn peek(&self, lane: usize) -> Result<Option<(Message<'_>, u32)>, Error> {
        let number = self.lanes[lane].released.get();
        let entry = &self.segment.entries[lane][number as usize % DEPTH];
        // Pairs with the Release in `Outbound::commit`.
        if entry.flag.load(Acquire) != layout::flag(number) {
            return Ok(None);
        }
        let word = entry.len.load(Relaxed);
        let len = layout::len_of(word);
        if len > MAX_MESSAGE {
            return Err(self.garbage(lane, 0, len));
        }
        let body = if len <= INLINE {
            entry.inline()
        } else {
            let at = entry.at();
            layout::body(&self.segment, at, len).ok_or_else(|| self.garbage(lane, at, len))?
        };
        // SAFETY: `body` begins at least `len` bytes of the mapping (`INLINE` in the entry; elsewhere it was just checked),
        // which lives as long as `self`; they are inside `UnsafeCell`s, so no reference claims them. A well-behaved sender
        // leaves them alone until they are released; another one spoils values, not memory.
        let body = unsafe { Region::from_raw(body, len) };
        let header = entry.header();
        Ok(Some((Message { header, body }, word)))
    }

    /// How many messages of `lane` were released.
    #[inline]
    pub(super) fn released(&self, lane: usize) -> u32 {
        self.lanes[lane].released.get()
    }

    #[inline]
    pub(super) fn release(&self, lane: usize) {
        let state = &self.lanes[lane];
        debug_assert!(
            matches!(self.peek(lane), Ok(Some(_))),
            "a release on lane {lane}, where no message is"
        );
        let released = state.released.get().wrapping_add(1);
        state.released.set(released);
        // After all reads of the body; pairs with the Acquire in `Outbound::has_credit`.
        self.segment.released[lane].0.store(released, Release);
        self.bell.ring();
    }

    pub(super) fn mapped(&self) -> usize {
        self.segment.mapped() + self.bell.mapped()
    }

    #[cold]
    fn garbage(&self, lane: usize, at: usize, len: usize) -> Error {
        broken(
            self.peer,
            format!(
                "a message of lane {lane} claims {len} bytes at {at}, more than the {MAX_MESSAGE} that fit"
            ),
        )
    }
}
