//! A channel of a schedule as a flat list of operations, and a cursor that walks it.

use crate::plan::schedule::{DEPTH, Item, LoopVars, Step};
use smallvec::SmallVec;

/// Where an item stands: its index among the channel's items, then its index in the repeat that it is, and so on.
pub(crate) type Path = SmallVec<[u32; 3]>;

/// An item, or an end of a repeat.
enum Op<'s> {
    Step { step: &'s Step, path: Path },
    Enter { count: u32, leave: usize },
    Leave { enter: usize, count: u32 },
}

/// A channel's items, flattened.
pub(super) struct Program<'s> {
    ops: Vec<Op<'s>>,
    items: u32,
}

impl<'s> Program<'s> {
    /// The repeats must not nest deeper than [`DEPTH`].
    pub(super) fn new(items: &'s [Item]) -> Self {
        let mut ops = Vec::with_capacity(items.len());
        flatten(items, &mut Path::new(), &mut ops);
        Program {
            ops,
            items: items.len() as u32,
        }
    }

    /// Every step once, with where it stands and its operation's number.
    pub(super) fn steps(&self) -> impl Iterator<Item = (usize, &'s Step, &Path)> {
        self.ops.iter().enumerate().filter_map(|(pc, op)| match op {
            Op::Step { step, path } => Some((pc, *step, path)),
            _ => None,
        })
    }

    /// Where the step with this operation number stands.
    pub(super) fn path(&self, pc: usize) -> &[u32] {
        match self.ops.get(pc) {
            Some(Op::Step { path, .. }) => path,
            _ => &[],
        }
    }

    /// The step with this operation number.
    pub(super) fn step(&self, pc: usize) -> Option<&'s Step> {
        match self.ops.get(pc) {
            Some(Op::Step { step, .. }) => Some(step),
            _ => None,
        }
    }
}

fn flatten<'s>(items: &'s [Item], path: &mut Path, ops: &mut Vec<Op<'s>>) {
    for (i, item) in items.iter().enumerate() {
        path.push(i as u32);
        match item {
            Item::Step(step) => ops.push(Op::Step {
                step,
                path: path.clone(),
            }),
            Item::Repeat { count, items } => {
                let enter = ops.len();
                ops.push(Op::Enter {
                    count: *count,
                    leave: 0,
                });
                flatten(items, path, ops);
                let leave = ops.len();
                if leave == enter + 1 {
                    ops.pop(); // nothing to repeat
                } else {
                    ops.push(Op::Leave { enter, count: *count });
                    ops[enter] = Op::Enter { count: *count, leave };
                }
            }
        }
        path.pop();
    }
}

/// The step that a channel is at, and its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) pc: usize,
    pub(super) vars: LoopVars,
    depth: usize,
}

impl Cursor {
    /// At the first step.
    pub(super) fn start(program: &Program<'_>) -> Self {
        let mut cursor = Cursor {
            pc: 0,
            vars: [0; DEPTH],
            depth: 0,
        };
        cursor.settle(program);
        cursor
    }

    /// On to the next step.
    pub(super) fn advance(&mut self, program: &Program<'_>) {
        self.pc += 1;
        self.settle(program);
    }

    /// Walks over the ends of repeats until it stands at a step or behind the last one.
    fn settle(&mut self, program: &Program<'_>) {
        loop {
            match program.ops.get(self.pc) {
                None | Some(Op::Step { .. }) => return,
                Some(Op::Enter { count: 0, leave }) => self.pc = leave + 1,
                Some(Op::Enter { .. }) => {
                    self.vars[self.depth] = 0;
                    self.depth += 1;
                    self.pc += 1;
                }
                Some(Op::Leave { enter, count }) => {
                    let turn = &mut self.vars[self.depth - 1];
                    *turn += 1;
                    if *turn < i64::from(*count) {
                        self.pc = enter + 1;
                    } else {
                        *turn = 0;
                        self.depth -= 1;
                        self.pc += 1;
                    }
                }
            }
        }
    }

    /// How many of the channel's items are over.
    pub(super) fn items_over(&self, program: &Program<'_>) -> u32 {
        program.path(self.pc).first().copied().unwrap_or(program.items)
    }

    /// The turns of the enclosing repeats.
    pub(super) fn turns(&self) -> SmallVec<[i64; DEPTH]> {
        self.vars[..self.depth].into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::schedule::{Affine, Source};

    #[test]
    fn a_cursor_takes_every_turn_and_passes_empty_repeats() {
        let step = || Item::Step(Step::copy(Source::Recv(Affine::fixed(0))));
        let repeat = |count, items| Item::Repeat { count, items };
        let items = vec![
            repeat(2, vec![step(), repeat(3, vec![step()]), repeat(9, vec![])]),
            repeat(0, vec![step()]),
            step(),
        ];
        let program = Program::new(&items);
        let mut cursor = Cursor::start(&program);
        let mut seen = vec![];
        while program.step(cursor.pc).is_some() {
            seen.push((
                program.path(cursor.pc).to_vec(),
                cursor.turns().to_vec(),
                cursor.items_over(&program),
            ));
            cursor.advance(&program);
        }
        let turn = |a: i64| {
            let outer = (vec![0, 0], vec![a], 0);
            std::iter::once(outer).chain((0..3).map(move |b| (vec![0, 1, 0], vec![a, b], 0)))
        };
        let all: Vec<_> = turn(0).chain(turn(1)).chain([(vec![2], vec![], 2)]).collect();
        assert_eq!(seen, all);
        assert_eq!(cursor.items_over(&program), 3);
    }
}
