//! When no thread can go on: stage the sends that are in the way, or say who waits for whom.

use super::flaw::{Flaw, Kind};
use super::machine::{Machine, Wait};
use super::program::Cursor;
use super::value::Domain;
use super::{Site, places};
use std::collections::HashMap;

/// How many members of a cycle are named.
const NAMED: usize = 8;

impl<D: Domain> Machine<'_, D> {
    /// Marks every send whose lent data some step waits to overwrite as one to be staged, now and from now on.
    /// Whether there was one.
    ///
    /// Staging earlier would have changed nothing: it only ever lets a thread go on sooner, and the messages are the
    /// same.
    pub(super) fn stage_what_blocks(&mut self) -> bool {
        // By rank, so that all lanes are looked through once and not once for each thread.
        let mut overwritten: HashMap<usize, Vec<usize>> = HashMap::new();
        for id in (0..self.threads.len()).filter(|&id| self.threads[id].wait == Wait::Lent) {
            let cells = overwritten.entry(self.job.team.threads[id].0).or_default();
            cells.extend(self.overwritten(id));
        }
        let mut blocking = Vec::new();
        for (number, lane) in self.lanes.iter().enumerate() {
            let Some(from) = lane.from else { continue };
            let Some(cells) = overwritten.get(&self.job.team.threads[from].0) else {
                continue;
            };
            for message in lane.queue.iter().filter(|message| message.lent) {
                if self.touches(from, &message.cursor, cells) {
                    let (pc, send) = (message.cursor.pc, message.send);
                    blocking.push((
                        number,
                        Site {
                            thread: from,
                            pc,
                            send,
                        },
                    ));
                }
            }
        }
        for &(number, site) in &blocking {
            self.staged.insert(site);
            self.stage(number, site);
        }
        !blocking.is_empty()
    }

    /// The messages of a lane that came from `site` no longer lie in the sender's memory.
    fn stage(&mut self, lane: usize, site: Site) {
        let mut returned = Vec::new();
        for message in &mut self.lanes[lane].queue {
            if message.lent && (message.cursor.pc, message.send) == (site.pc, site.send) {
                message.lent = false;
                returned.push(message.cursor);
            }
        }
        for cursor in returned {
            self.lend(site.thread, &cursor, false);
        }
    }

    /// The cells that the step where `id` is overwrites.
    fn overwritten(&self, id: usize) -> Vec<usize> {
        let memory = &self.memories[self.job.team.threads[id].0];
        let stores = self.step(id).map_or(&[][..], |step| &step.stores);
        let vars = self.threads[id].cursor.vars;
        stores
            .iter()
            .flat_map(|slice| memory.cells_of(slice, &vars))
            .collect()
    }

    /// Whether the message of a step lies in one of these cells.
    fn touches(&self, from: usize, at: &Cursor, cells: &[usize]) -> bool {
        let memory = &self.memories[self.job.team.threads[from].0];
        let step = self.job.team.programs[from].step(at.pc);
        step.is_some_and(|step| {
            places(step).any(|slice| memory.cells_of(slice, &at.vars).any(|cell| cells.contains(&cell)))
        })
    }

    /// The reason why nothing goes on: follows who waits for whom until somebody is over or comes up twice.
    pub(super) fn why_stuck(&self) -> Flaw {
        let first = (0..self.threads.len()).find(|&id| !self.is_over(id)).unwrap_or(0);
        let (mut chain, mut seen) = (vec![first], HashMap::from([(first, 0)]));
        loop {
            let last = chain[chain.len() - 1];
            let Some(next) = self.awaited(last).filter(|&next| !self.is_over(next)) else {
                return self.flaw(last, self.never(last));
            };
            if let Some(&start) = seen.get(&next) {
                let cycle = &chain[start..];
                let mut names: Vec<_> = cycle.iter().take(NAMED).map(|&id| self.waits(id)).collect();
                if cycle.len() > NAMED {
                    names.push(format!("and {} more", cycle.len() - NAMED));
                }
                return self.flaw(next, Kind::Deadlock { cycle: names });
            }
            seen.insert(next, chain.len());
            chain.push(next);
        }
    }

    /// The thread that `id` waits for.
    fn awaited(&self, id: usize) -> Option<usize> {
        match self.threads[id].wait {
            Wait::Message(lane) => self.lanes[lane].from,
            Wait::Room(lane) => self.lanes[lane].to,
            Wait::After => {
                let (channel, _) = self.step(id)?.after?;
                self.job
                    .team
                    .thread(self.job.team.threads[id].0, channel as usize)
            }
            Wait::Nothing | Wait::Lent => None,
        }
    }

    /// Why a thread waits in vain for one that is over.
    fn never(&self, id: usize) -> Kind {
        let peers = self.step(id).map(|step| match self.threads[id].wait {
            Wait::Room(_) => Kind::NeverTaken {
                to: self.receiver(id, step, self.threads[id].roomy.len()),
            },
            _ => Kind::NeverSent {
                from: self.sender(id, step, self.threads[id].arrived.len()),
            },
        });
        peers.unwrap_or(Kind::Deadlock {
            cycle: vec![self.waits(id)],
        })
    }

    /// Who waits for what, in words.
    fn waits(&self, id: usize) -> String {
        let rank = self.job.team.threads[id].0;
        let at = self.job.team.at(id, &self.threads[id].cursor);
        let Some(step) = self.step(id) else {
            return format!("rank {rank} is over");
        };
        let thread = &self.threads[id];
        let what = match (thread.wait, step.after) {
            (Wait::Message(_), _) => format!(
                "a message from rank {}",
                self.sender(id, step, thread.arrived.len())
            ),
            (Wait::Room(_), _) => format!(
                "room in its lane to rank {}",
                self.receiver(id, step, thread.roomy.len())
            ),
            (Wait::After, Some((channel, item))) => format!("item {item} of its channel {channel}"),
            _ => "what it lent".into(),
        };
        format!("rank {rank} ({at}) waits for {what}")
    }
}
