//! Which pages of a chunk hold bodies that are in flight.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of a page.
pub(super) const PAGE: usize = 4 << 10;
/// The pages of a chunk, a bit each in a word.
pub(super) const PAGES: usize = u128::BITS as usize;
/// Bytes of a chunk.
pub(super) const CHUNK: usize = PAGES * PAGE;

/// Who has which of the pages of a chunk.
///
/// Pages are given back as soon as they are known to be read. Who takes the first free ones writes where something lay just before,
/// so that what is in flight stays in a core's second-level cache beside the user's data. They belong to one thread at a time.
#[derive(Debug, Default)]
pub(super) struct Pages {
    /// A bit for each page in use, the lower half first.
    used: [AtomicU64; 2],
}

/// Pages in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) first: u8,
    pub(super) pages: u8,
}

impl Pages {
    #[inline]
    fn used(&self) -> u128 {
        let [low, high] = self.used.each_ref().map(|word| u128::from(word.load(Relaxed)));
        low | high << 64
    }

    #[inline]
    fn set_used(&self, used: u128) {
        self.used[0].store(used as u64, Relaxed);
        self.used[1].store((used >> 64) as u64, Relaxed);
    }

    /// The first pages in a row, from page `from` on, that hold `len` bytes.
    #[inline(always)] // in the path of each message
    pub(super) fn take(&self, from: usize, len: usize) -> Option<Row> {
        let first = || {
            // Of one page in the lower half, as most messages have it, less is to be worked out.
            let used = self.used[0].load(Relaxed);
            let first = used.trailing_ones();
            self.used[0].store(used | 1u64.checked_shl(first)?, Relaxed);
            Some(Row {
                first: first as u8,
                pages: 1,
            })
        };
        let is_one = from == 0 && len <= PAGE;
        is_one.then(first).flatten().or_else(|| self.take_any(from, len))
    }

    #[inline(never)] // so that one page does not pay for it
    fn take_any(&self, from: usize, len: usize) -> Option<Row> {
        let pages = len.div_ceil(PAGE).max(1);
        let used = self.used();
        // A bit stays where `have` pages in a row are free from there on.
        let (mut runs, mut have) = (!used & (u128::MAX << from), 1);
        while have < pages && runs != 0 {
            let more = have.min(pages - have);
            runs &= runs >> more;
            have += more;
        }
        if runs == 0 {
            return None;
        }
        let first = runs.trailing_zeros();
        self.set_used(used | row(pages) << first);
        Some(Row {
            first: first as u8,
            pages: pages as u8,
        })
    }

    /// The pages in a row that begin at page `first`, if they are free and hold `len` bytes.
    #[inline]
    pub(super) fn take_at(&self, first: usize, len: usize) -> Option<Row> {
        let pages = len.div_ceil(PAGE).max(1);
        let (used, those) = (self.used(), row(pages) << first);
        if first + pages > PAGES || used & those != 0 {
            return None;
        }
        self.set_used(used | those);
        Some(Row {
            first: first as u8,
            pages: pages as u8,
        })
    }

    #[inline]
    pub(super) fn give(&self, Row { first, pages }: Row) {
        if pages == 1 {
            let used = &self.used[usize::from(first) / 64 % 2];
            used.store(used.load(Relaxed) & !(1 << (first % 64)), Relaxed);
            return;
        }
        self.set_used(self.used() & !(row(pages.into()) << first));
    }

    pub(super) fn clear(&self) {
        self.set_used(0);
    }
}

/// So many ones.
#[inline]
fn row(pages: usize) -> u128 {
    u128::MAX >> (PAGES - pages)
}

const _: () = assert!(super::layout::MAX_MESSAGE <= CHUNK && PAGES <= u8::MAX as usize);

#[cfg(test)]
mod tests {
    use super::{super::layout::MAX_MESSAGE, *};

    #[test]
    fn what_is_taken_lies_apart_and_comes_back() {
        let pages = Pages::default();
        let mut random = fastrand::Rng::with_seed(7);
        let mut taken: Vec<Row> = Vec::new();
        let span = |row: &Row| usize::from(row.first)..usize::from(row.first) + usize::from(row.pages);
        for _ in 0..10_000 {
            let len = random.usize(1..=MAX_MESSAGE);
            if random.bool() && !taken.is_empty() {
                pages.give(taken.swap_remove(random.usize(..taken.len())));
            } else if let Some(row) = pages.take(0, len) {
                assert!(len <= usize::from(row.pages) * PAGE && span(&row).end <= PAGES);
                let apart =
                    |other: &Row| span(other).end <= span(&row).start || span(&row).end <= span(other).start;
                assert!(taken.iter().all(apart), "{row:?} of {taken:?}");
                taken.push(row);
            } else {
                let free = PAGES - taken.iter().map(|row| usize::from(row.pages)).sum::<usize>();
                assert!(free < 16 * 16, "no room for {len} bytes in {free} pages");
            }
        }
        taken.drain(..).for_each(|row| pages.give(row));
        for k in 0..CHUNK / MAX_MESSAGE {
            let first = pages.take(0, MAX_MESSAGE).unwrap().first;
            assert_eq!(usize::from(first) * PAGE, k * MAX_MESSAGE);
        }
        assert_eq!(pages.take(0, 1), None);
    }

    #[test]
    fn the_first_pages_are_taken_again() {
        let pages = Pages::default();
        let first = pages.take(0, 3 * PAGE).unwrap();
        let second = pages.take(0, 1).unwrap();
        pages.give(first);
        assert_eq!(pages.take(0, PAGE).unwrap().first, 0);
        assert_eq!(pages.take(0, 2 * PAGE).unwrap().first, 1);
        assert_eq!(second.first, 3);
        assert_eq!(pages.take(PAGES - 2, PAGE).unwrap().first as usize, PAGES - 2);
        assert_eq!(pages.take(PAGES - 2, 2 * PAGE), None);
        assert_eq!(pages.take_at(0, PAGE), None);
        assert_eq!(pages.take_at(PAGES - 1, 2 * PAGE), None);
        assert_eq!(pages.take_at(PAGES - 1, PAGE).unwrap().first as usize, PAGES - 1);
    }
}
