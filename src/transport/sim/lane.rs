//! The lanes of a simulated world: what was sent, what was seen of it, and when more will be.

use crate::{mem::Region, transport::Header};
use std::collections::VecDeque;

/// No delay is longer, in looks. A message may take one for each of: its link's making, as the sender and as the
/// receiver see it, the credit that it needs, and its own way. So ranks that all look four times as often at what they
/// wait for, and get nowhere, are stuck.
pub(crate) const LONGEST_DELAY: u32 = 64;

/// What a look at a lane needs besides the lane.
pub(super) struct Draws<'s> {
    pub(super) random: &'s mut fastrand::Rng,
    pub(super) sender_lives: bool,
    pub(super) receiver_lives: bool,
}

/// One direction of one lane. Messages are numbered from 0, modulo 2^32: `known <= released <= arrived <= sent`.
#[derive(Default)]
pub(super) struct Lane {
    /// Those that were sent and not released, oldest first.
    pub(super) messages: VecDeque<Posted>,
    /// Memory for reserved messages: number k uses room k modulo the slots.
    rooms: Vec<Room>,
    /// Bytes of the message that is being written.
    pub(super) reserved: Option<usize>,
    /// Where it is written, if not into the room of its number: into an open one, or into that of what it answers.
    pub(super) elsewhere: Option<(*mut u8, Open)>,
    /// Open rooms, one for each message that lay in one.
    opened: Vec<Room>,
    /// With 0 slots: the number of the last message that was copied into the one room.
    pub(super) staged: Option<u32>,
    pub(super) landing: Option<Landing>,
    pub(super) sent: u32,
    /// How many the receiver can see.
    pub(super) arrived: u32,
    pub(super) released: u32,
    /// How many the sender knows to be released.
    pub(super) known: u32,
    arriving: Delay,
    returning: Delay,
}

#[derive(Clone, Copy)]
pub(super) struct Posted {
    pub(super) header: Header,
    pub(super) base: *mut u8,
    pub(super) len: usize,
    /// It lies in a room rather than in the sender's own memory.
    pub(super) copied: bool,
    /// Its receiver gets it by taking it alone.
    pub(super) is_there: bool,
    /// Where it was brought to, as the receiver had wanted.
    pub(super) landed: Option<*mut u8>,
    pub(super) open: Open,
}

/// Whether a message's room is one that its receiver may answer in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Open {
    No,
    Yes,
    /// It has: the room is the answer's now.
    Answered,
    /// It is such an answer.
    Answer,
}

/// Where the receiver wants message `number` if it is like this.
pub(super) struct Landing {
    pub(super) number: u32,
    pub(super) header: Header,
    pub(super) base: *mut u8,
    pub(super) len: usize,
}

impl Landing {
    fn suits(&self, message: &Posted) -> bool {
        message.copied && message.header == self.header && message.len == self.len
    }
}

impl Posted {
    pub(super) fn body<'m>(&self) -> Region<'m> {
        // SAFETY: a room, which stays until the world ends, or memory that its sender offered: it promised to keep that
        // mapped and unchanged until `taken`, which comes after the release.
        // And memory that its receiver wanted it in, and leaves alone until the release.
        unsafe { Region::from_raw(self.landed.unwrap_or(self.base), self.len) }
    }
}

impl Lane {
    /// One look of the receiver's.
    pub(super) fn look_for_message(&mut self, draws: &mut Draws<'_>) {
        while draws.sender_lives && self.arrived != self.sent && self.arriving.is_over(draws.random) {
            self.arrived = self.arrived.wrapping_add(1);
        }
        self.bring(draws);
    }

    /// Brings the message that is wanted somewhere there when it has arrived, and some of it, as anything, when it is on its way.
    fn bring(&mut self, draws: &mut Draws<'_>) {
        let Some(landing) = &self.landing else { return };
        let at = landing.number.wrapping_sub(self.released) as usize;
        let Some(message) = self.messages.get_mut(at).filter(|message| landing.suits(message)) else {
            return;
        };
        if self.arrived.wrapping_sub(landing.number).cast_signed() > 0 {
            let body = message.body();
            message.landed = Some(landing.base);
            message.body().copy_from(&body);
            self.landing = None;
        } else if draws.sender_lives {
            spoil(landing.base, draws.random.usize(0..=landing.len));
        }
    }

    /// One look of the sender's.
    pub(super) fn look_for_credit(&mut self, draws: &mut Draws<'_>) {
        while draws.receiver_lives && self.known != self.released && self.returning.is_over(draws.random) {
            self.known = self.known.wrapping_add(1);
        }
    }

    /// What comes next, message and credit, takes so many looks.
    pub(super) fn delay(&mut self, looks: u32) {
        self.arriving = Delay(Some(looks));
        self.returning = Delay(Some(looks));
    }

    /// Whether the sender knows that message `number`, which it sent, is released.
    pub(super) fn is_known(&self, number: u32) -> bool {
        self.sent.wrapping_sub(number) > self.sent.wrapping_sub(self.known)
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.arrived == self.sent && self.known == self.released
    }

    /// Whether one more message may be copied into a room.
    pub(super) fn has_room(&self, slots: usize) -> bool {
        match slots {
            0 => self.staged.is_none_or(|number| self.is_known(number)),
            _ => (self.sent.wrapping_sub(self.known) as usize) < slots,
        }
    }

    /// The room of the next message.
    pub(super) fn room(&mut self, slots: usize, bytes: usize) -> *mut u8 {
        let slots = slots.max(1);
        while self.rooms.len() < slots {
            self.rooms.push(Room::new(bytes));
        }
        self.rooms[self.sent as usize % slots].base()
    }

    /// A new room that the receiver may answer in.
    pub(super) fn open_room(&mut self, bytes: usize) -> *mut u8 {
        self.opened.push(Room::new(bytes));
        self.opened[self.opened.len() - 1].base()
    }

    pub(super) fn post(&mut self, message: Posted) -> u32 {
        let number = self.sent;
        self.messages.push_back(message);
        self.sent = number.wrapping_add(1);
        number
    }
}

/// A link's coming to be: after `to`, first its maker sees it, then or before then the other rank.
#[derive(Default)]
pub(super) struct Making {
    pub(super) begun: bool,
    pub(super) sends: bool,
    pub(super) receives: bool,
    pub(super) sending: Delay,
    pub(super) receiving: Delay,
}

impl Making {
    pub(super) fn is_quiet(&self) -> bool {
        !self.begun || (self.sends && self.receives)
    }
}

/// Looks until something is seen, drawn at the first one.
#[derive(Default)]
pub(super) struct Delay(Option<u32>);

impl Delay {
    /// Counts a look; whether this one sees it. Then the next look draws anew.
    pub(super) fn is_over(&mut self, random: &mut fastrand::Rng) -> bool {
        let left = self.0.unwrap_or_else(|| match random.u8(..) {
            0..16 => random.u32(1..=LONGEST_DELAY),
            16..96 => random.u32(1..=4),
            _ => 0,
        });
        self.0 = left.checked_sub(1);
        left == 0
    }
}

/// Memory for a body. It stays where it is until the world ends, whoever still holds regions of it.
struct Room(*mut [u64]);

impl Room {
    fn new(bytes: usize) -> Room {
        // 56 bytes more, so that a multiple of 64 lies among the first ones.
        Room(Box::into_raw(
            vec![0u64; bytes.div_ceil(8) + 7].into_boxed_slice(),
        ))
    }

    fn base(&self) -> *mut u8 {
        let start: *mut u8 = self.0.cast();
        start.wrapping_add(start.align_offset(64))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw` in `new` and freed here alone; regions of it borrow from a link, which
        // borrows from the world that is going.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// Overwrites a body that nobody should be reading any more, or yet.
pub(super) fn spoil(base: *mut u8, len: usize) {
    // SAFETY: callers give `len` bytes of a room or region that exists; only raw pointers of this one thread reach it.
    unsafe { base.write_bytes(0xA5, len) }
}
