//! Room for the bodies of one direction's messages: which pages hold what is in flight.

use super::layout::{MAX_MESSAGE, PAGE, PAGES, SHARED};
use std::cell::Cell;

/// Who has which of the pages that the lanes share.
///
/// Pages are taken from the first on and given back as soon as they are known to be read, so that what is written next lies
/// where something lay just before. A lane that finds no pages and has nothing else under way has a slot of its own: so no
/// lane waits for another.
#[derive(Debug, Default)]
pub(super) struct Pages {
    /// A bit for each page in use.
    used: Cell<u128>,
}

/// Where a body lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Room {
    /// In bytes from where all bodies begin.
    pub(super) at: u32,
    /// How many of the shared pages it has: none, if it lies elsewhere.
    pages: u8,
}

impl Room {
    /// The own slot of `lane`.
    pub(super) fn own(lane: usize) -> Room {
        Room {
            at: (SHARED + lane * MAX_MESSAGE) as u32,
            pages: 0,
        }
    }

    /// Whether `len` bytes fit as well.
    #[inline]
    pub(super) fn holds(&self, len: usize) -> bool {
        len <= usize::from(self.pages) * PAGE
    }
}

impl Pages {
    /// The first pages in a row that hold `len` bytes.
    #[inline]
    pub(super) fn take(&self, len: usize) -> Option<Room> {
        let pages = len.div_ceil(PAGE).max(1);
        let free = !self.used.get();
        // A bit stays where `have` pages in a row are free from there on.
        let (mut runs, mut have) = (free, 1);
        while have < pages && runs != 0 {
            let more = have.min(pages - have);
            runs &= runs >> more;
            have += more;
        }
        if runs == 0 {
            return None;
        }
        let first = runs.trailing_zeros();
        self.used.set(self.used.get() | row(pages) << first);
        Some(Room {
            at: first * PAGE as u32,
            pages: pages as u8,
        })
    }

    #[inline]
    pub(super) fn give(&self, room: Room) {
        if room.pages > 0 {
            let first = room.at / PAGE as u32;
            self.used
                .set(self.used.get() & !(row(room.pages.into()) << first));
        }
    }
}

/// So many ones.
#[inline]
fn row(pages: usize) -> u128 {
    u128::MAX >> (PAGES - pages)
}

const _: () = assert!(MAX_MESSAGE / PAGE < PAGES && MAX_MESSAGE.is_multiple_of(PAGE));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_lies_apart_and_comes_back() {
        let pages = Pages::default();
        let mut random = fastrand::Rng::with_seed(7);
        let mut taken: Vec<Room> = Vec::new();
        let span = |room: &Room| room.at as usize..room.at as usize + usize::from(room.pages) * PAGE;
        for _ in 0..10_000 {
            let len = random.usize(1..=MAX_MESSAGE);
            if random.bool() && !taken.is_empty() {
                pages.give(taken.swap_remove(random.usize(..taken.len())));
            } else if let Some(room) = pages.take(len) {
                assert!(room.holds(len) && span(&room).end <= SHARED);
                let apart = |other: &Room| {
                    span(other).end <= span(&room).start || span(&room).end <= span(other).start
                };
                assert!(taken.iter().all(apart), "{room:?} of {taken:?}");
                taken.push(room);
            } else {
                let free = PAGES - taken.iter().map(|room| usize::from(room.pages)).sum::<usize>();
                assert!(free < 16 * 16, "no room for {len} bytes in {free} pages");
            }
        }
        taken.drain(..).for_each(|room| pages.give(room));
        for k in 0..SHARED / MAX_MESSAGE {
            assert_eq!(pages.take(MAX_MESSAGE).unwrap().at as usize, k * MAX_MESSAGE);
        }
        assert_eq!(pages.take(1), None);
    }

    #[test]
    fn the_first_pages_are_taken_again() {
        let pages = Pages::default();
        let first = pages.take(3 * PAGE).unwrap();
        let second = pages.take(1).unwrap();
        pages.give(first);
        assert_eq!(pages.take(PAGE).unwrap().at, 0);
        assert_eq!(pages.take(2 * PAGE).unwrap().at as usize, PAGE);
        assert_eq!(second.at as usize, 3 * PAGE);
    }
}
