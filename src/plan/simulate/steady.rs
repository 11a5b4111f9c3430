//! When a loop has become steady: all threads take as long for its turns as they did some turns before.
//!
//! Times at which threads end turns are compared with those of some earlier turns in a row. If all differ by the same, the state
//! of the ranks has come back, so much later; all turns but the last few take as long again, and need not be run. The number
//! of turns after which a state comes back is not known: around a ring of hosts it is the number of ranks of a host, or of a pod.

/// A loop that all threads run.
pub(super) struct Steady {
    /// Turns of the loop, and which run of it is watched.
    pub(super) turns: u32,
    pub(super) run: u32,
    threads: usize,
    /// Turns that each thread has ended.
    done: Vec<u32>,
    windows: Vec<Window>,
}

/// Turns in a row that are compared.
const ROW: u32 = 4;

/// Times may differ by so many femtoseconds, by which a message's end is rounded.
const ROUNDING: u64 = 4;

/// Later turns that are compared with one, at most.
const MOST: u32 = 40_000;

struct Window {
    base: u32,
    /// Later turns that are compared with its own.
    span: u32,
    /// When each thread ended each of its turns.
    ends: Vec<u64>,
    /// By how many turns later: what was found.
    found: Vec<Found>,
    /// Which of them are no period: looked at often, and so kept apart.
    differs: Vec<bool>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Found {
    least: u64,
    most: u64,
    sum: f64,
    hits: u32,
}

/// So many turns can be left out, which take so many femtoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Jump {
    pub(super) turns: u32,
    pub(super) time: u64,
}

impl Steady {
    pub(super) fn new(turns: u32, threads: usize) -> Self {
        let mut steady = Steady {
            turns,
            run: 0,
            threads,
            done: vec![0; threads],
            windows: Vec::new(),
        };
        steady.begin(0);
        steady
    }

    /// Watches the loop's next run.
    fn begin(&mut self, run: u32) {
        self.run = run;
        self.done.fill(0);
        self.windows.clear();
        // One to find long periods soon, and ones for what takes long to become steady.
        self.windows.push(Window::new(EARLY, MOST));
        self.windows.push(Window::new(1, 2 * ROW));
    }

    /// A thread has ended one more turn of a run, at `now`.
    pub(super) fn note(&mut self, thread: usize, run: u32, now: u64) -> Option<Jump> {
        if self.turns < LEAST || run < self.run {
            return None;
        }
        if run > self.run {
            self.begin(run);
        }
        self.done[thread] += 1;
        let turn = self.done[thread];
        let last = &self.windows[self.windows.len() - 1];
        if turn >= last.base + last.span {
            let base = last.base + last.span;
            self.windows.push(Window::new(base, base + 2 * ROW));
            if self.windows.len() > 4 {
                self.windows.remove(1);
            }
        }
        let threads = self.threads;
        let steady = self
            .windows
            .iter_mut()
            .find_map(|window| window.note(thread, threads, turn, now));
        let (period, time) = steady?;
        let left = self
            .done
            .iter()
            .map(|done| self.turns.saturating_sub(*done))
            .min()?;
        let times = left.saturating_sub(1) / period;
        if times == 0 {
            return None;
        }
        let jump = Jump {
            turns: times * period,
            time: (time * f64::from(times)).round() as u64,
        };
        self.done.iter_mut().for_each(|done| *done += jump.turns);
        self.windows.truncate(0);
        self.windows.push(Window::new(self.turns, 1)); // The rest is run as it is.
        Some(jump)
    }

    /// An outer loop leaves out some of its turns, and so some runs of this one.
    pub(super) fn skip_runs(&mut self, runs: u32) {
        self.run += runs;
    }
}

/// A shorter loop is run as it is.
const LEAST: u32 = 12;

/// The first turn that later ones are compared with.
const EARLY: u32 = 6;

impl Window {
    fn new(base: u32, span: u32) -> Self {
        Window {
            base,
            span,
            ends: Vec::new(),
            found: Vec::new(),
            differs: Vec::new(),
        }
    }

    /// The turns after which all is as before, and how long they take.
    fn note(&mut self, thread: usize, threads: usize, turn: u32, now: u64) -> Option<(u32, f64)> {
        if turn < self.base {
            return None;
        }
        if self.ends.is_empty() {
            self.ends = vec![0; threads * ROW as usize];
        }
        let mut period = None;
        for at in 0..ROW.min(turn - self.base) {
            let later = turn - self.base - at;
            if later > self.span {
                continue;
            }
            let place = later as usize - 1;
            if self.found.len() <= place {
                self.found.resize(place + 1, Found::default());
                self.differs.resize(place + 1, false);
            }
            if self.differs[place] {
                continue;
            }
            let found = &mut self.found[place];
            found.hits += 1;
            let took = now - self.ends[at as usize * threads + thread];
            if found.hits == 1 {
                (found.least, found.most) = (took, took);
            }
            (found.least, found.most) = (found.least.min(took), found.most.max(took));
            found.sum += took as f64;
            self.differs[place] = found.most - found.least > ROUNDING;
            if !self.differs[place] && found.hits as usize == threads * ROW as usize {
                period = period.or(Some((later, found.sum / f64::from(found.hits))));
            }
        }
        if turn - self.base < ROW {
            self.ends[(turn - self.base) as usize * threads + thread] = now;
        }
        period
    }
}
