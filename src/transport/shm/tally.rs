//! [`Tally`]: which ways the messages of one direction of a link have gone.

use std::{cell::Cell, fmt};

/// How the receiver gets at a body that does not lie in its message's entry.
#[derive(Debug, Clone, Copy)]
pub(super) enum Long {
    /// From the pool, or the lane's own slot, to where it was copied.
    Copied,
    /// Where it lies, as a thread of the same process.
    Read,
    /// Where it lies, in memory that was handed over.
    Mapped,
    /// By a system call.
    Taken,
}

/// How many messages had such bodies, modulo 2^32. The others, the short ones, are not counted: they are the rest of all.
#[derive(Debug, Default)]
pub(super) struct Tally([Cell<u32>; 4]);

impl Tally {
    #[inline]
    pub(super) fn add(&self, way: Long) {
        let count = &self.0[way as usize];
        count.set(count.get().wrapping_add(1));
    }

    /// What is told of `messages` messages in all.
    pub(super) fn of(&self, messages: u32) -> impl fmt::Display {
        let [copied, read, mapped, taken] = self.0.each_ref().map(Cell::get);
        let long = copied.wrapping_add(read).wrapping_add(mapped).wrapping_add(taken);
        let inline = messages.wrapping_sub(long);
        format!(
            "{inline} inline, {copied} copied, {read} read by a thread, {mapped} read in memory handed over, {taken} taken"
        )
    }
}
