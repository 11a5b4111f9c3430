//! What must be so when all threads are over.

use super::flaw::{At, Flaw, Grain, Kind};
use super::machine::Machine;
use super::value::{Domain, Value};
use crate::plan::definition::{self, Wanted};
use smallvec::SmallVec;

impl<D: Domain> Machine<'_, D> {
    /// Every message was received.
    pub(super) fn check_lanes(&self) -> Result<(), Flaw> {
        for lane in self.lanes.iter() {
            let (Some(message), Some(from)) = (lane.queue.front(), lane.from) else {
                continue;
            };
            let (team, cursor) = (self.job.team, &message.cursor);
            let step = team.programs[from].step(cursor.pc);
            let to = step.map_or(0, |step| step.sends[message.send].at(&cursor.vars, team.ranks));
            return Err(team.flaw(from, cursor, Kind::Unconsumed { to }));
        }
        Ok(())
    }

    /// Every output holds what the collective promises.
    pub(super) fn check_outputs(&self) -> Result<(), Flaw> {
        for (rank, schedule) in self.job.team.schedules.iter().enumerate() {
            for grain in 0..schedule.total_grains() {
                let Grain { block, part } = self.grain(grain);
                let memory = &self.memories[rank];
                let Some(cell) = memory.cell(grain).filter(|_| memory.has_output(grain)) else {
                    continue;
                };
                let wanted = definition::wanted(self.job.collective, rank, block);
                let held = memory.held(cell);
                if held == Some(&self.value_of(wanted, part)) {
                    continue;
                }
                let kind = Kind::WrongOutput {
                    holds: held.map_or("nothing".into(), |value| self.text(value)),
                    wants: self.text(&self.value_of(wanted, part)),
                };
                return Err(Flaw {
                    rank,
                    at: memory.writer(cell).map(|(id, pc)| {
                        Box::new(At {
                            channel: self.job.team.threads[id].1 as u32,
                            item: self.job.team.programs[id].path(pc).into(),
                            turns: SmallVec::new(),
                        })
                    }),
                    grain: Some(Grain { block, part }),
                    kind,
                });
            }
        }
        Ok(())
    }

    fn value_of(&self, wanted: Wanted, part: usize) -> Value<D::Sum> {
        let at = |block: usize| (block * self.job.team.schedules[0].grains as usize + part) as u32;
        match wanted {
            Wanted::ReductionOf { block } => Value {
                grain: at(block),
                finished: true,
                ranks: self.job.domain.everyone().clone(),
            },
            Wanted::CopyOf { rank, block } => Value {
                grain: at(block),
                finished: false,
                ranks: self.job.domain.one(rank),
            },
        }
    }

    fn text(&self, value: &Value<D::Sum>) -> String {
        let finished = if value.finished {
            "the finished"
        } else {
            "the unfinished"
        };
        let block = self.grain(value.grain as usize).block;
        format!(
            "{finished} block {block} of ranks {}",
            self.job.domain.text(&value.ranks)
        )
    }

    pub(super) fn grain(&self, grain: usize) -> Grain {
        let grains = self.job.team.schedules[0].grains as usize;
        Grain {
            block: grain / grains,
            part: grain % grains,
        }
    }
}
