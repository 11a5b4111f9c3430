//! Accesses of a rank's channels to the same grain that nothing orders.
//!
//! Two accesses conflict when at least one of them writes. They are ordered when they are in the same channel, or
//! when an `after` lets the later one's channel wait for the item of the earlier one, directly or through other
//! channels of the rank. An order that comes about through messages and other ranks does not count: a schedule must
//! say what it needs.
//!
//! Each channel carries a clock: for each channel the number of its items that are known to be over. Source:
//! C. Flanagan and S. Freund, "FastTrack: efficient and precise dynamic race detection", 2009.

use super::flaw::{At, Flaw, Kind};
use super::program::{Cursor, Program};
use super::team::Team;
use crate::plan::schedule::{Buffer, Schedule, Slice, Source, Step};
use smallvec::SmallVec;

type Clock = SmallVec<[u32; 4]>;

/// Who accessed a grain: the channel and where it was.
#[derive(Clone, Copy)]
struct Access {
    channel: usize,
    cursor: Cursor,
}

/// The last write of a grain, and the last read of each channel since.
#[derive(Clone, Default)]
struct Cell {
    write: Option<Access>,
    reads: SmallVec<[Access; 2]>,
}

/// No rank of the team has two accesses in conflict.
pub(super) fn check(team: &Team<'_>, in_place: bool) -> Result<(), Flaw> {
    for (rank, schedule) in team.schedules.iter().enumerate() {
        let threads = team.threads_of(rank);
        if threads.len() > 1 {
            let mut walk = Walk::new(schedule, &team.programs[threads.clone()], in_place);
            walk.run()
                .map_err(|(channel, cursor, kind)| team.flaw(threads.start + channel, &cursor, kind))?;
        }
    }
    Ok(())
}

type Conflict = (usize, Cursor, Kind);

/// A walk through all channels of a rank, in any order that `after` allows.
struct Walk<'w> {
    schedule: &'w Schedule,
    programs: &'w [Program<'w>],
    in_place: bool,
    cursors: Vec<Cursor>,
    clocks: Vec<Clock>,
    /// Each channel's clock at the end of each of its items that are over.
    ends: Vec<Vec<Clock>>,
    cells: Vec<Cell>,
}

impl<'w> Walk<'w> {
    fn new(schedule: &'w Schedule, programs: &'w [Program<'w>], in_place: bool) -> Self {
        let channels = programs.len();
        let mut walk = Walk {
            schedule,
            programs,
            in_place,
            cursors: programs.iter().map(Cursor::start).collect(),
            clocks: vec![SmallVec::from_elem(0, channels); channels],
            ends: vec![Vec::new(); channels],
            cells: vec![Cell::default(); schedule.total_grains() + schedule.scratch as usize],
        };
        (0..channels).for_each(|channel| walk.close_items(channel));
        walk
    }

    /// Walks until no channel can go on. Channels that wait for each other are left to the machine to find.
    fn run(&mut self) -> Result<(), Conflict> {
        let mut moved = true;
        while std::mem::take(&mut moved) {
            for channel in 0..self.programs.len() {
                while let Some(step) = self.programs[channel].step(self.cursors[channel].pc) {
                    if !self.join(channel, step) {
                        break;
                    }
                    self.access(channel, step)?;
                    self.cursors[channel].advance(&self.programs[channel]);
                    self.close_items(channel);
                    moved = true;
                }
            }
        }
        Ok(())
    }

    /// Learns what the item that the step waits for knew at its end. Whether it is over.
    fn join(&mut self, channel: usize, step: &Step) -> bool {
        let Some((other, item)) = step.after else {
            return true;
        };
        let Some(end) = self.ends[other as usize].get(item as usize) else {
            return false;
        };
        let clock = &mut self.clocks[channel];
        clock
            .iter_mut()
            .zip(end)
            .for_each(|(known, &there)| *known = there.max(*known));
        true
    }

    /// Notes the items of a channel that have come to their end.
    fn close_items(&mut self, channel: usize) {
        let over = self.cursors[channel].items_over(&self.programs[channel]);
        while (self.ends[channel].len() as u32) < over {
            self.clocks[channel][channel] += 1;
            let clock = self.clocks[channel].clone();
            self.ends[channel].push(clock);
        }
    }

    fn access(&mut self, channel: usize, step: &Step) -> Result<(), Conflict> {
        for source in &step.sources {
            if let Source::Slice(slice) = source {
                self.each_cell(channel, slice, |cell, access, knows| cell.read(access, knows))?;
            }
        }
        for slice in &step.stores {
            self.each_cell(channel, slice, |cell, access, knows| cell.write(access, knows))?;
        }
        Ok(())
    }

    fn each_cell(
        &mut self,
        channel: usize,
        slice: &Slice,
        touch: impl Fn(&mut Cell, Access, &dyn Fn(&Access) -> bool) -> Result<(), Access>,
    ) -> Result<(), Conflict> {
        let cursor = self.cursors[channel];
        let access = Access { channel, cursor };
        let base = match slice.buffer {
            Buffer::Input if !self.in_place => return Ok(()), // never written
            Buffer::Input | Buffer::Output => 0,
            Buffer::Scratch => self.schedule.total_grains(),
        };
        let (clock, programs) = (&self.clocks[channel], self.programs);
        let knows = |earlier: &Access| {
            let item = earlier.cursor.items_over(&programs[earlier.channel]);
            earlier.channel == channel || clock[earlier.channel] > item
        };
        for k in 0..slice.grains() {
            let at = base + slice.position(k, &cursor.vars, self.schedule.grains_of(slice.buffer));
            touch(&mut self.cells[at], access, &knows).map_err(|other| {
                let other = Box::new(At {
                    channel: other.channel as u32,
                    item: programs[other.channel].path(other.cursor.pc).into(),
                    turns: other.cursor.turns(),
                });
                let buffer = slice.buffer;
                (channel, cursor, Kind::Race { other, buffer })
            })?;
        }
        Ok(())
    }
}

impl Cell {
    fn read(&mut self, access: Access, knows: &dyn Fn(&Access) -> bool) -> Result<(), Access> {
        if let Some(write) = self.write.filter(|write| !knows(write)) {
            return Err(write);
        }
        self.reads.retain(|read| read.channel != access.channel);
        self.reads.push(access);
        Ok(())
    }

    fn write(&mut self, access: Access, knows: &dyn Fn(&Access) -> bool) -> Result<(), Access> {
        let earlier = self.reads.iter().copied().chain(self.write);
        if let Some(other) = earlier.into_iter().find(|other| !knows(other)) {
            return Err(other);
        }
        *self = Cell {
            write: Some(access),
            reads: SmallVec::new(),
        };
        Ok(())
    }
}
