//! [`Buffer`]: memory for the largest size of a run, with guards that show when somebody writes past an end.

use super::{layout::Whole, pattern::Sample};
use crate::SharedMemory;
use std::ops::{Deref, DerefMut, Range};

/// Where user data begins: a cache line, as careful callers have it.
const ALIGNMENT: usize = 64;

/// Elements before and after the data that nobody may touch.
const GUARD: usize = 64;

/// The guards' contents; bytes that the patterns hardly hold 64 times in a row.
const GUARD_BITS: u64 = 0xa5a5_a5a5_a5a5_a5a5;

/// Elements of one type, aligned to a cache line.
pub(super) struct Buffer<T: Sample> {
    elements: Elements<T>,
    start: usize,
}

enum Elements<T: Sample> {
    Own(Vec<T>),
    /// Memory that peers may read.
    Shared(SharedMemory<T>),
}

impl<T: Sample> Deref for Elements<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Elements::Own(elements) => elements,
            Elements::Shared(elements) => elements,
        }
    }
}

impl<T: Sample> DerefMut for Elements<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Elements::Own(elements) => elements,
            Elements::Shared(elements) => elements,
        }
    }
}

impl<T: Sample> Buffer<T> {
    /// Room for `capacity` elements, in memory that peers may read if `shared`; every page of it has been written.
    ///
    /// # Errors
    /// A text when there is no such memory.
    pub(super) fn new(capacity: usize, shared: bool) -> Result<Self, String> {
        let slack = ALIGNMENT / size_of::<T>();
        let total = capacity.saturating_add(2 * GUARD + slack);
        let no_memory = || {
            let bytes = super::size::readable((total as u64).saturating_mul(size_of::<T>() as u64));
            format!("no memory for a buffer of {bytes}: lower -e or --ranks")
        };
        let mut elements = if shared {
            Elements::Shared(SharedMemory::new(total).map_err(|_| no_memory())?)
        } else {
            let mut elements = Vec::new();
            elements.try_reserve_exact(total).map_err(|_| no_memory())?;
            elements.resize(total, T::from_raw(0));
            Elements::Own(elements)
        };
        elements.fill(T::from_raw(GUARD_BITS));
        // In elements. An allocation that cannot be aligned is used as it is; there is room for both.
        let start = GUARD + elements[GUARD..].as_ptr().align_offset(ALIGNMENT).min(slack);
        Ok(Buffer { elements, start })
    }

    /// The most elements that there is room for.
    pub(super) fn capacity(&self) -> usize {
        self.elements.len() - self.start - GUARD
    }

    /// The first `count` elements.
    pub(super) fn data(&self, count: usize) -> &[T] {
        &self.elements[self.start..][..count]
    }

    pub(super) fn data_mut(&mut self, count: usize) -> &mut [T] {
        &mut self.elements[self.start..][..count]
    }

    /// The blocks that the buffer consists of, each with its number.
    pub(super) fn blocks(&self, whole: &Whole) -> impl Iterator<Item = (usize, &[T])> {
        let data = self.data(whole.len());
        whole.blocks().map(move |(block, at)| (block, &data[at]))
    }

    pub(super) fn blocks_mut(&mut self, whole: &Whole) -> impl Iterator<Item = (usize, &mut [T])> {
        let mut rest = self.data_mut(whole.len());
        whole.blocks().map(move |(block, at)| {
            let data;
            (data, rest) = std::mem::take(&mut rest).split_at_mut(at.len());
            (block, data)
        })
    }

    /// Puts guards around the first `count` elements.
    pub(super) fn set_guards(&mut self, count: usize) {
        for range in self.guards(count) {
            self.elements[range].fill(T::from_raw(GUARD_BITS));
        }
    }

    /// Elements of the guards around the first `count` elements that are not as they were set.
    pub(super) fn count_broken_guards(&self, count: usize) -> u64 {
        let broken = |element: &&T| **element != T::from_raw(GUARD_BITS);
        (self.guards(count).into_iter())
            .map(|range| self.elements[range].iter().filter(broken).count() as u64)
            .sum()
    }

    fn guards(&self, count: usize) -> [Range<usize>; 2] {
        let end = self.start + count;
        [self.start - GUARD..self.start, end..end + GUARD]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_show_writes_past_the_ends() {
        for shared in [false, true] {
            guards_show_writes(Buffer::<u16>::new(100, shared).unwrap());
        }
    }

    fn guards_show_writes(mut buffer: Buffer<u16>) {
        for count in [0, 99, 100] {
            buffer.set_guards(count);
            buffer.data_mut(count).fill(7);
            assert_eq!(buffer.count_broken_guards(count), 0);
        }
        buffer.set_guards(50);
        buffer.data_mut(51)[50] = 1;
        assert_eq!(buffer.count_broken_guards(50), 1);
        assert!(buffer.data(100).as_ptr().addr().is_multiple_of(ALIGNMENT));
    }

    #[test]
    fn too_much_is_an_error_and_no_abort() {
        assert!(
            Buffer::<u64>::new(usize::MAX / 16, false)
                .err()
                .unwrap()
                .contains("lower -e")
        );
        assert!(Buffer::<u8>::new(usize::MAX, true).is_err());
    }
}
