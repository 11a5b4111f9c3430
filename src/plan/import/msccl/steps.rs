//! Reads the steps of a thread block. Those that only wait become waits of the next one.

use super::flaw::{At, Flaw as Mistake, Flaws, Kind};
use super::read::{CELLS, CHUNKS, Element, Notes, Reader};
use super::{Action, Place, Step, Wait};
use crate::plan::schedule::Buffer;
use crate::topo::read::Flaw;
use smallvec::SmallVec;

/// Chunks of a step that RCCL takes at most.
const RCCL_COUNT: usize = 71;

/// The steps of a thread block as they are read.
pub(super) struct Steps<'r> {
    pub(super) reader: &'r Reader<'r>,
    /// The rank and the block.
    pub(super) at: (usize, usize),
    /// What steps that only wait have gathered for the next one.
    pub(super) waits: SmallVec<[Wait; 1]>,
    pub(super) count: u32,
}

impl Steps<'_> {
    pub(super) fn read(
        &mut self,
        element: Element<'_>,
        steps: &mut Vec<Step>,
        notes: &mut Notes,
        flaws: &mut Flaws,
    ) -> Result<(), Flaw> {
        let reader = self.reader;
        let number = reader.size(element, "s", 1 << 24)? as u32;
        let mut wrong = |kind| {
            flaws.push(Mistake {
                line: reader.line(element),
                at: At {
                    rank: self.at.0,
                    block: Some(self.at.1),
                    step: Some(number),
                },
                kind,
            });
        };
        if number != self.count {
            wrong(Kind::Misnumbered { at: self.count });
        }
        let number = self.count;
        self.count += 1;
        let block = reader.option(element, "depid", 1 << 24)?;
        let step = reader.option(element, "deps", 1 << 24)?;
        let wait = block.map(|block| Wait {
            line: reader.line(element),
            block,
            step: step.unwrap_or(0) as u32,
        });
        let signals = reader.size(element, "hasdep", 1)? == 1;
        let word = reader.word(element, "type")?;
        if word == "nop" {
            match wait {
                Some(wait) => self.waits.push(wait),
                None => wrong(Kind::IdleNop),
            }
            return Ok(());
        }
        let found = Action::ALL.into_iter().find(|(name, _)| *name == word);
        let Some((_, action)) = found else {
            let shown: String = word.chars().take(40).collect();
            let names = Action::ALL.map(|(name, _)| name).join(", ");
            return Err(reader.at(element, format!("type=\"{shown}\""), format!("{names} or nop")));
        };
        let has_hidden = !self.waits.is_empty() && wait.is_none();
        let mut waits = std::mem::take(&mut self.waits);
        waits.extend(wait);
        let step = Step {
            line: reader.line(element),
            number,
            action,
            source: self.place(element, ["srcbuf", "srcoff"], action.reads())?,
            store: self.place(element, ["dstbuf", "dstoff"], action.stores())?,
            count: reader.size(element, "cnt", CHUNKS)?,
            waits,
            signals,
        };
        if step.count > RCCL_COUNT {
            notes.add(
                reader.line(element),
                &format!("RCCL takes at most {RCCL_COUNT} chunks a step"),
            );
        }
        // RCCL reduces in one what goes to the same place from the same buffer without a wait between.
        let before = steps
            .last()
            .filter(|before| is_one_reduction(before, &step) && wait.is_none());
        match before {
            Some(_) if has_hidden => wrong(Kind::HiddenWait),
            Some(before) if before.count != step.count => wrong(Kind::MixedCounts {
                count: step.count,
                before: before.count,
            }),
            None if has_hidden => notes.add(
                reader.line(element),
                "RCCL refuses a step after a nop that waits for nothing itself",
            ),
            _ => {}
        }
        steps.push(step);
        Ok(())
    }

    /// Where a step reads or stores; anything where it does not.
    fn place(&self, element: Element<'_>, names: [&str; 2], is_used: bool) -> Result<Place, Flaw> {
        let reader = self.reader;
        let buffer = match reader.word(element, names[0])? {
            "i" => Buffer::Input,
            "o" => Buffer::Output,
            "s" => Buffer::Scratch,
            other => {
                let shown: String = other.chars().take(40).collect();
                return Err(reader.at(element, format!("{}=\"{shown}\"", names[0]), "i, o or s"));
            }
        };
        let least = if is_used { 0 } else { -1 };
        let first = reader.number(element, names[1], least, CELLS)?;
        Ok(Place {
            buffer,
            first: usize::try_from(first).unwrap_or(0),
        })
    }
}

/// Whether RCCL does two steps that follow each other as one reduction of several chunks into one place, but for waits.
fn is_one_reduction(before: &Step, step: &Step) -> bool {
    let are_reductions = before.action == Action::Reduce && step.action == Action::Reduce;
    are_reductions
        && !before.signals
        && before.store == step.store
        && before.source.buffer == step.source.buffer
}
