//! Events in the order of time, where none is before what happened last: a radix heap.
//!
//! An event waits in the bucket of the highest bit in which its time differs from that of what happened last. All that is next
//! is in the lowest bucket that has any; when its turn comes its events go to lower ones, and those of the first moment are due.
//! So each is moved no oftener than times have bits, mostly ten times or so, and always from one end of a bucket to the other, which
//! caches like: in a binary heap of hundreds of thousands each step down meets memory that is in none.
//!
//! Source: R. Ahuja et al., "Faster algorithms for the shortest path problem", 1990.

/// Events, which are numbers. Those that are known when their moment comes are taken in their order, and behind them those that
/// are added while it lasts.
pub(super) struct Queue {
    now: u64,
    /// Those of this moment, and how many of them were taken.
    due: Vec<u32>,
    taken: usize,
    /// All later ones, by the highest bit in which their time differs from this moment.
    later: [Vec<(u64, u32)>; 64],
}

impl Queue {
    pub(super) fn new() -> Self {
        Queue {
            now: 0,
            due: Vec::new(),
            taken: 0,
            later: std::array::from_fn(|_| Vec::new()),
        }
    }

    /// Adds an event at a moment that is not over.
    pub(super) fn push(&mut self, at: u64, event: u32) {
        debug_assert!(at >= self.now, "an event before what happened last");
        match (at ^ self.now).checked_ilog2() {
            None => self.due.push(event),
            Some(bit) => self.later[bit as usize].push((at, event)),
        }
    }

    /// The next event of this moment.
    pub(super) fn take(&mut self) -> Option<u32> {
        let event = *self.due.get(self.taken)?;
        self.taken += 1;
        Some(event)
    }

    /// Goes on to the next moment that has events, if all of this one were taken; and tells which moment it is.
    pub(super) fn next(&mut self) -> Option<u64> {
        if self.taken < self.due.len() {
            return Some(self.now);
        }
        self.due.clear();
        self.taken = 0;
        let bit = self.later.iter().position(|events| !events.is_empty())?;
        let mut events = std::mem::take(&mut self.later[bit]);
        self.now = events.iter().map(|(at, _)| *at).min()?;
        for (at, event) in events.drain(..) {
            self.push(at, event);
        }
        self.later[bit] = events; // None went back there; its memory is kept.
        self.due.sort_unstable();
        Some(self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_the_order_of_time() {
        let mut random = fastrand::Rng::with_seed(5);
        for round in 0..100 {
            let mut queue = Queue::new();
            let mut wanted: Vec<(u64, u32)> = Vec::new();
            let (mut now, mut events) = (0, 0..300);
            let span = 1 << random.u32(1..50);
            loop {
                let added = random.usize(..4);
                for event in events.by_ref().take(added) {
                    let at = now + if random.bool() { random.u64(..span) } else { 0 };
                    queue.push(at, event);
                    wanted.push((at, event));
                }
                match queue.take() {
                    Some(event) => {
                        let at = wanted.iter().position(|known| *known == (now, event));
                        wanted.swap_remove(at.unwrap_or_else(|| panic!("round {round}: {event} at {now}")));
                    }
                    None => {
                        let first = wanted.iter().map(|(at, _)| *at).min();
                        assert_eq!(queue.next(), first, "round {round}");
                        now = first.unwrap_or(now);
                        if first.is_none() && events.is_empty() {
                            break;
                        }
                    }
                }
            }
            assert!(wanted.is_empty(), "round {round}");
        }
    }

    #[test]
    fn events_of_a_moment_come_in_their_order() {
        let mut queue = Queue::new();
        for event in [3, 1, 2] {
            queue.push(7, event);
        }
        assert_eq!((queue.take(), queue.next()), (None, Some(7)));
        queue.push(7, 0);
        queue.push(u64::MAX, 4);
        let taken: Vec<u32> = std::iter::from_fn(|| queue.take()).collect();
        assert_eq!(taken, [1, 2, 3, 0]);
        assert_eq!((queue.next(), queue.take()), (Some(u64::MAX), Some(4)));
        assert_eq!(queue.next(), None);
    }
}
