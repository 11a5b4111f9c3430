//! One channel of one copy of the program, on its way through its tiles.

use super::cursor::Cursor;
use crate::plan::schedule::{Source, Step};
use smallvec::SmallVec;
use std::ops::Range;

/// One channel of one copy of the program.
#[derive(Debug)]
pub(super) struct Track {
    pub(super) cursor: Cursor,
    pub(super) channel: usize,
    pub(super) copy: usize,
    pub(super) lane: usize,
    /// The tile that it works on; the number of tiles or more when it has done all of its own.
    pub(super) tile: usize,
    pub(super) waits_for: Option<Wait>,
    /// Sends of the current step, by their place in it, for which there was no room when the step ran.
    pub(super) unsent: SmallVec<[usize; 2]>,
    /// Where the result of such a step waits if the step stores it nowhere.
    pub(super) staging: Vec<u64>,
    /// Where messages are taken to that lie with their senders, if a step does more than copy one.
    pub(super) fetched: Vec<u64>,
    /// The addresses where messages that it waits for may come in.
    pub(super) landing: SmallVec<[Range<usize>; 1]>,
}

/// What a track waits for: a message from a peer, or room for one to it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wait {
    Message(usize),
    Room(usize),
}

impl Track {
    /// The ranks that `step` receives from, in the order of its sources.
    pub(super) fn receives<'s>(&self, step: &'s Step, ranks: usize) -> impl Iterator<Item = usize> + use<'s> {
        let vars = *self.cursor.vars();
        step.sources.iter().filter_map(move |source| match source {
            Source::Recv(peer) => Some(peer.at(&vars, ranks)),
            Source::Slice(_) => None,
        })
    }

    /// The ranks that `step` sends to.
    pub(super) fn sends<'s>(&self, step: &'s Step, ranks: usize) -> impl Iterator<Item = usize> + use<'s> {
        let vars = *self.cursor.vars();
        step.sends.iter().map(move |peer| peer.at(&vars, ranks))
    }
}
