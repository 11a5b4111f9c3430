//! The schedules that are run together, flattened, and the numbering of their channels.

use super::flaw::{At, Flaw, Kind};
use super::program::{Cursor, Program};
use super::shape;
use crate::plan::schedule::Schedule;
use crate::types::Collective;

/// The ranks whose schedules are run: all of them, or rank 0 for all.
pub(super) struct Team<'s> {
    /// The ranks of the communicator.
    pub(super) ranks: usize,
    pub(super) schedules: &'s [Schedule],
    /// Each channel of each rank, one rank after the other. A channel's place in this list is its *thread* number.
    pub(super) programs: Vec<Program<'s>>,
    /// The rank and channel of each thread.
    pub(super) threads: Vec<(usize, usize)>,
    /// Each rank's first thread, and the number of threads at the end.
    first: Vec<usize>,
    /// Channels of the rank that has most.
    pub(super) channels: usize,
}

impl<'s> Team<'s> {
    /// Checks what can be seen of each schedule alone and against the others, and flattens them.
    pub(super) fn new(collective: Collective, ranks: usize, schedules: &'s [Schedule]) -> Result<Self, Flaw> {
        let mut team = Team {
            ranks,
            schedules,
            programs: Vec::with_capacity(schedules.len()),
            threads: Vec::with_capacity(schedules.len()),
            first: Vec::with_capacity(schedules.len() + 1),
            channels: 0,
        };
        for (rank, schedule) in schedules.iter().enumerate() {
            shape::agrees(rank, schedule, ranks, &schedules[0])?;
            team.first.push(team.threads.len());
            team.channels = team.channels.max(schedule.channels.len());
            for (channel, items) in schedule.channels.iter().enumerate() {
                shape::nests(rank, channel, items)?;
                let program = Program::new(items);
                shape::steps(collective, rank, channel, schedule, &program)?;
                team.programs.push(program);
                team.threads.push((rank, channel));
            }
        }
        team.first.push(team.threads.len());
        Ok(team)
    }

    /// The threads of `rank`.
    pub(super) fn threads_of(&self, rank: usize) -> std::ops::Range<usize> {
        self.first[rank]..self.first[rank + 1]
    }

    /// The thread of a rank's channel, if it has that many.
    pub(super) fn thread(&self, rank: usize, channel: usize) -> Option<usize> {
        let threads = self.threads_of(rank);
        (channel < threads.len()).then(|| threads.start + channel)
    }

    /// Names the step that `thread` is at.
    pub(super) fn at(&self, thread: usize, cursor: &Cursor) -> At {
        At {
            channel: self.threads[thread].1 as u32,
            item: self.programs[thread].path(cursor.pc).into(),
            turns: cursor.turns(),
        }
    }

    /// A flaw of the rank that `thread` belongs to, at the step where it is.
    pub(super) fn flaw(&self, thread: usize, cursor: &Cursor, kind: Kind) -> Flaw {
        Flaw {
            rank: self.threads[thread].0,
            at: Some(Box::new(self.at(thread, cursor))),
            grain: None,
            kind,
        }
    }
}
