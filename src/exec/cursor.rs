//! A position in a channel's items: which step is next, and the values of the loop variables there.

use crate::plan::{
    schedule::{DEPTH, Item, LoopVars, Step},
    verify::Path,
};

/// Walks the steps of a list of items in order, into and through the repeats.
#[derive(Debug, Clone)]
pub(super) struct Cursor {
    /// The index at each level: `at[0]` among the channel's items, `at[d]` among those of the d-th enclosing repeat.
    at: [usize; DEPTH + 1],
    level: usize,
    vars: LoopVars,
}

impl Cursor {
    /// Before the first step of `items`.
    pub(super) fn new(items: &[Item]) -> Self {
        let mut cursor = Cursor {
            at: [0; DEPTH + 1],
            level: 0,
            vars: [0; DEPTH],
        };
        cursor.settle(items);
        cursor
    }

    /// The loop variables here.
    pub(super) fn vars(&self) -> &LoopVars {
        &self.vars
    }

    /// The index of the channel's item that is being run: as many as there are when all is done.
    pub(super) fn item(&self) -> usize {
        self.at[0]
    }

    /// Where the step here stands: an index for each level.
    pub(super) fn path(&self) -> Path {
        self.at[..=self.level].iter().map(|&at| at as u32).collect()
    }

    /// The step here, or `None` at the end.
    #[inline]
    pub(super) fn step<'s>(&self, items: &'s [Item]) -> Option<&'s Step> {
        match self.list(items).get(self.at[self.level])? {
            Item::Step(step) => Some(step),
            Item::Repeat { .. } => None, // `settle` never leaves the cursor on one
        }
    }

    /// Goes on to the next step.
    pub(super) fn advance(&mut self, items: &[Item]) {
        self.at[self.level] += 1;
        self.settle(items);
    }

    /// The items of the innermost repeat that the cursor is in.
    fn list<'s>(&self, items: &'s [Item]) -> &'s [Item] {
        self.at[..self.level]
            .iter()
            .fold(items, |list, &at| match &list[at] {
                Item::Repeat { items, .. } => items,
                Item::Step(_) => &[],
            })
    }

    /// Moves forward until the cursor stands on a step or at the end of the channel.
    fn settle(&mut self, items: &[Item]) {
        loop {
            let list = self.list(items);
            match list.get(self.at[self.level]) {
                Some(Item::Step(_)) => return,
                Some(Item::Repeat { count: 0, .. }) => self.at[self.level] += 1,
                Some(Item::Repeat { items, .. }) if items.is_empty() => self.at[self.level] += 1,
                Some(Item::Repeat { .. }) => {
                    self.vars[self.level] = 0;
                    self.level += 1;
                    self.at[self.level] = 0;
                }
                None if self.level == 0 => return,
                None => self.turn(items),
            }
        }
    }

    /// At the end of a repeat's items: begins its next turn, or leaves it.
    fn turn(&mut self, items: &[Item]) {
        let inner = self.level;
        self.level -= 1;
        self.vars[self.level] += 1;
        let again = match &self.list(items)[self.at[self.level]] {
            Item::Repeat { count, .. } => self.vars[self.level] < i64::from(*count),
            Item::Step(_) => false,
        };
        if again {
            self.level = inner;
            self.at[inner] = 0;
        } else {
            self.vars[self.level] = 0;
            self.at[self.level] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::schedule::{Affine, Buffer, Slice, Source};

    fn step(base: usize, steps: LoopVars) -> Item {
        let first = Affine {
            base: base as i64,
            step: steps,
        };
        Item::Step(Step::copy(Source::Slice(Slice::grain(Buffer::Input, first))))
    }

    /// The value of each visited step's index.
    fn walk(items: &[Item]) -> Vec<usize> {
        let mut cursor = Cursor::new(items);
        let mut seen = Vec::new();
        while let Some(step) = cursor.step(items) {
            seen.push(step.shape().unwrap().first.at(cursor.vars(), 1000));
            cursor.advance(items);
        }
        assert_eq!(cursor.item(), items.len());
        seen
    }

    #[test]
    fn nested_repeats_are_walked_in_order() {
        let inner = Item::Repeat {
            count: 2,
            items: vec![step(0, [10, 1])],
        };
        let empty = Item::Repeat {
            count: 3,
            items: vec![],
        };
        let never = Item::Repeat {
            count: 0,
            items: vec![step(9, [0, 0])],
        };
        let outer = Item::Repeat {
            count: 3,
            items: vec![inner, step(5, [10, 0]), never, empty],
        };
        assert_eq!(
            walk(&[step(7, [1, 1]), outer, step(8, [1, 1])]),
            [7, 0, 1, 5, 10, 11, 15, 20, 21, 25, 8]
        );
        assert!(walk(&[]).is_empty());
    }
}
