//! A rank's buffers, grain by grain.

use super::value::{Domain, Value};
use crate::plan::schedule::{Buffer, LoopVars, Schedule, Slice};
use std::ops::Range;

/// What a rank's output and scratch hold, and which of their grains are lent to peers.
///
/// Out of place the input needs no memory: nothing is ever stored there. In place it is the output. Of a vector of a block for each
/// rank a rank may have its own block only, and there are no cells for what its buffers have not.
pub(super) struct Memory<S> {
    /// Those of the grains in `held`, then those of the scratch.
    cells: Vec<Option<Value<S>>>,
    /// The thread and operation that wrote each cell last.
    writers: Vec<Option<(u32, u32)>>,
    /// For each cell, how many messages of which no copy was made still lie there.
    lent: Vec<u32>,
    /// Grains of the vector.
    total: usize,
    /// Those that the rank's input has, and its output.
    input: Range<usize>,
    output: Range<usize>,
    /// The grains of the vector that have cells: of the output, and in place of the input.
    held: Range<usize>,
    scratch: usize,
    in_place: bool,
}

impl<S: Clone> Memory<S> {
    /// `rank`'s memory when the collective begins, with these grains of its input and output.
    pub(super) fn new<D: Domain<Sum = S>>(
        domain: &D,
        rank: usize,
        schedule: &Schedule,
        [input, output]: [Range<usize>; 2],
        in_place: bool,
    ) -> Self {
        let (total, scratch) = (schedule.total_grains(), schedule.scratch as usize);
        let held = match in_place {
            true => around(&input, &output),
            false => output.clone(),
        };
        let mut cells = vec![None; held.len() + scratch];
        if in_place {
            for grain in input.clone() {
                cells[grain - held.start] = Some(given(domain, rank, grain));
            }
        }
        Memory {
            input,
            output,
            lent: vec![0; cells.len()],
            writers: vec![None; cells.len()],
            cells,
            total,
            held,
            scratch,
            in_place,
        }
    }

    /// Where a grain of a slice lies: its position in the buffer, and its cell if it has one.
    pub(super) fn locate(&self, slice: &Slice, k: usize, vars: &LoopVars) -> (usize, Option<usize>) {
        match slice.buffer {
            Buffer::Scratch => {
                let position = slice.position(k, vars, self.scratch);
                (position, Some(self.held.len() + position))
            }
            Buffer::Output => {
                let position = slice.position(k, vars, self.total);
                (position, self.cell(position))
            }
            Buffer::Input => {
                let position = slice.position(k, vars, self.total);
                (position, self.cell(position).filter(|_| self.in_place))
            }
        }
    }

    /// The cell of a grain of the vector, if there is one.
    pub(super) fn cell(&self, grain: usize) -> Option<usize> {
        self.held.contains(&grain).then(|| grain - self.held.start)
    }

    /// What a grain of the input, the output or the scratch holds, if it was written.
    pub(super) fn read<D: Domain<Sum = S>>(
        &self,
        domain: &D,
        rank: usize,
        buffer: Buffer,
        (position, cell): (usize, Option<usize>),
    ) -> Option<Value<S>> {
        match (cell, buffer) {
            (Some(cell), _) => self.cells[cell].clone(),
            (None, Buffer::Input) => self.has_input(position).then(|| given(domain, rank, position)),
            (None, Buffer::Output | Buffer::Scratch) => None,
        }
    }

    /// Whether a grain of the input is there.
    pub(super) fn has_input(&self, position: usize) -> bool {
        self.input.contains(&position)
    }

    /// Whether a grain of the output is there.
    pub(super) fn has_output(&self, position: usize) -> bool {
        self.output.contains(&position)
    }

    pub(super) fn write(&mut self, cell: usize, value: Value<S>, writer: (u32, u32)) {
        self.cells[cell] = Some(value);
        self.writers[cell] = Some(writer);
    }

    /// The thread and operation that stored what a cell holds.
    pub(super) fn writer(&self, cell: usize) -> Option<(usize, usize)> {
        self.writers[cell].map(|(thread, pc)| (thread as usize, pc as usize))
    }

    /// What a cell holds.
    pub(super) fn held(&self, cell: usize) -> Option<&Value<S>> {
        self.cells[cell].as_ref()
    }

    /// Whether a message still lies in one of the slice's grains.
    pub(super) fn is_lent(&self, slice: &Slice, vars: &LoopVars) -> bool {
        self.cells_of(slice, vars).any(|cell| self.lent[cell] > 0)
    }

    /// A message lies in the slice from now on, or no longer.
    pub(super) fn lend(&mut self, slice: &Slice, vars: &LoopVars, on: bool) {
        for k in 0..slice.grains() {
            if let (_, Some(cell)) = self.locate(slice, k, vars) {
                self.lent[cell] = if on {
                    self.lent[cell] + 1
                } else {
                    self.lent[cell] - 1
                };
            }
        }
    }

    /// The cells of a slice, in its order.
    pub(super) fn cells_of(&self, slice: &Slice, vars: &LoopVars) -> impl Iterator<Item = usize> {
        (0..slice.grains()).filter_map(move |k| self.locate(slice, k, vars).1)
    }
}

/// The grains of both, and what lies between them.
fn around(one: &Range<usize>, other: &Range<usize>) -> Range<usize> {
    match (one.is_empty(), other.is_empty()) {
        (true, _) => other.clone(),
        (_, true) => one.clone(),
        _ => one.start.min(other.start)..one.end.max(other.end),
    }
}

/// What the collective finds at `grain` of `rank`'s input.
fn given<D: Domain>(domain: &D, rank: usize, grain: usize) -> Value<D::Sum> {
    Value {
        grain: grain as u32,
        finished: false,
        ranks: domain.one(rank),
    }
}

#[cfg(test)]
mod tests {
    use super::super::value::Exact;
    use super::*;
    use crate::plan::schedule::Affine;

    #[test]
    fn a_rank_has_cells_for_what_its_buffers_have() {
        let domain = Exact::new(100);
        let mut schedule = Schedule::plain(100, 100, vec![]);
        schedule.scratch = 3;
        // Of a gather, at another rank than the root.
        for (in_place, cells) in [(false, 3), (true, 4)] {
            let memory = Memory::new(&domain, 7, &schedule, [7..8, 0..0], in_place);
            assert_eq!(memory.cells.len(), cells);
            let read = |buffer, at| {
                let place = memory.locate(&Slice::grain(buffer, Affine::fixed(at)), 0, &[0; 2]);
                memory.read(&domain, 7, buffer, place).map(|value| value.grain)
            };
            assert_eq!([6, 7].map(|at| read(Buffer::Input, at)), [None, Some(7)]);
            assert_eq!([6, 2].map(|at| read(Buffer::Output, at)), [None, None]);
            assert_eq!(read(Buffer::Scratch, 2), None);
        }
    }
}
