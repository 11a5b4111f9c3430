//! How to wait: spin, then yield, then sleep.

use crate::{sys::host, topo::share::Crowd};
use std::{
    hint,
    ops::Range,
    thread,
    time::{Duration, Instant},
};

/// What to do before looking again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    /// A few cycles of the CPU's own pause.
    Spin,
    /// Let another process run.
    Yield,
    /// Sleep until the bell rings, at most this long.
    Sleep(Duration),
}

/// The policy of a rank's waits, with what it has learnt from those before.
///
/// While every rank has a core of its own it pays to spin: what one waits for is nanoseconds away, and a sleeper takes
/// some 25 µs to wake. Where a rank shares its core, as where there are more ranks than cores, the one waited for may need
/// this very core, so that yielding comes first (0.5 µs to the next process). Where ranks share a quota of time, each look takes
/// of what the one waited for needs, so that sleep comes soon: after about as long as it takes to wake. Other work on the machine does the same to any rank, so that the spinning adapts: a
/// wait that ended only after yielding halves it, one that ended while spinning doubles it. Either way a long wait ends in
/// sleep, so that a rank that waits for a slow peer costs nothing. The clock is not read while spinning.
#[derive(Debug)]
pub(crate) struct Patience {
    crowd: Crowd,
    spins: u32,
    looks: u32,
    /// When this wait last looked at the clock, and how long it has lasted by then.
    clock: Option<(Instant, Duration)>,
    start: Option<Start>,
}

/// The processor on which the thread that waits should be at first.
///
/// Of four ranks that begin on two processors the kernel leaves three on one of them for 100 ms and more, where they take
/// 1.4 to 2 times as long. So the first waits look where they are, ever more rarely, and may move the thread; from then on it is where the
/// kernel has it.
#[derive(Debug)]
struct Start {
    cpu: usize,
    /// The first look, and how long after it the next one is.
    since: Option<Instant>,
    next: Duration,
}

impl Start {
    /// Moves the thread if it is time to, and says whether there will be another look.
    fn look(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(*self.since.get_or_insert(now));
        if passed > SETTLED {
            return false;
        }
        if passed >= self.next {
            host::move_to(self.cpu);
            self.next = (self.next * 2).max(FIRST_MOVES_APART);
        }
        true
    }
}

impl Patience {
    /// `crowd`: what this rank shares with others.
    pub(crate) fn new(crowd: Crowd) -> Self {
        Patience {
            crowd,
            spins: match crowd {
                Crowd::Alone => SPINS.end,
                Crowd::Processor | Crowd::Time => SPINS.start,
            },
            looks: 0,
            clock: None,
            start: None,
        }
    }

    /// The first waits move the thread to this processor, if there is one.
    pub(crate) fn starting_on(self, cpu: Option<usize>) -> Self {
        let start = |cpu| Start {
            cpu,
            since: None,
            next: Duration::ZERO,
        };
        Patience {
            start: cpu.map(start),
            ..self
        }
    }

    /// Whether the rank shares its core with nobody.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        self.crowd == Crowd::Alone
    }

    /// Something came: the next wait begins anew.
    #[inline(always)] // in the path of each short call
    pub(crate) fn refresh(&mut self) {
        if self.looks != 0 {
            self.begin_anew();
        }
    }

    #[inline(never)]
    fn begin_anew(&mut self) {
        if self.crowd == Crowd::Alone {
            let spins = if self.looks <= self.spins {
                self.spins * 2
            } else {
                self.spins / 2
            };
            self.spins = spins.clamp(SPINS.start, SPINS.end);
        }
        self.looks = 0;
        self.clock = None;
    }

    /// It was looked so many times more than is told by [`Patience::pause`].
    #[inline]
    pub(crate) fn looked(&mut self, more: u32) {
        self.looks = self.looks.saturating_add(more);
    }

    /// A look was a question to the system, which takes as long as several others: among ranks that share a core it is the last before the
    /// first yield. 4 ranks on 2 cores over TCP, in us: barrier 42.5 -> 38.3, all-to-all of 8 bytes 57.4 -> 56.2, all-reduce 42.6 -> 42.1.
    #[inline]
    pub(crate) fn asked(&mut self) {
        if self.crowd != Crowd::Alone {
            self.looked(SPINS.start - 1);
        }
    }

    /// After another fruitless look, where the caller does not sleep: pauses and says whether to look again. If not, the wait
    /// goes on elsewhere, and what is learnt from it as well.
    #[inline]
    pub(crate) fn pause(&mut self) -> bool {
        match self.next(Instant::now).0 {
            Pause::Spin => hint::spin_loop(),
            Pause::Yield => thread::yield_now(),
            Pause::Sleep(_) => {
                (self.looks, self.clock) = (0, None);
                return false;
            }
        }
        true
    }

    /// After another fruitless look: what to do now, and how long this wait has lasted (zero while it spins).
    #[inline]
    pub(crate) fn next(&mut self, now: impl FnOnce() -> Instant) -> (Pause, Duration) {
        self.looks = self.looks.saturating_add(1);
        if self.looks <= self.spins {
            return (Pause::Spin, Duration::ZERO);
        }
        let now = now();
        if self.start.as_mut().is_some_and(|start| !start.look(now)) {
            self.start = None;
        }
        let (before, waited) = self.clock.unwrap_or((now, Duration::ZERO));
        let waited = waited + now.saturating_duration_since(before).min(GAP);
        self.clock = Some((now, waited));
        let awake = match self.crowd {
            Crowd::Time => WAKE_UP,
            Crowd::Alone | Crowd::Processor => AWAKE,
        };
        if waited < awake {
            (Pause::Yield, waited)
        } else {
            (Pause::Sleep(NAP), waited)
        }
    }
}

/// Looks before the first yield: the fewest, also where ranks share cores and look at memory, and the most, some tens of microseconds.
const SPINS: Range<u32> = 4..2048;
/// Between the first two looks whether the thread is on the processor that it starts on; each gap is twice the one before.
const FIRST_MOVES_APART: Duration = Duration::from_millis(1);
/// After that long the kernel has seen which processors have too many.
const SETTLED: Duration = Duration::from_millis(200);
/// How long a wait stays awake: long against a wake-up, short against a human.
const AWAKE: Duration = Duration::from_millis(5);
/// The same where who is awake takes others' time.
const WAKE_UP: Duration = Duration::from_micros(50);
/// The most that counts as waiting between two looks: a process that was itself stopped did not wait for its peers.
const GAP: Duration = Duration::from_secs(1);
/// The longest sleep: the bell ends it earlier; without one, deadlines and failures are looked at this often.
const NAP: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    /// Spins, and what came after them.
    fn spins(patience: &mut Patience, now: Instant) -> (u32, Pause) {
        let mut spins = 0;
        loop {
            match patience.next(|| now).0 {
                Pause::Spin => spins += 1,
                other => return (spins, other),
            }
        }
    }

    #[test]
    fn it_spins_then_yields_then_sleeps_and_begins_anew() {
        for (crowd, most, awake) in [
            (Crowd::Alone, SPINS.end, AWAKE),
            (Crowd::Processor, SPINS.start, AWAKE),
            (Crowd::Time, SPINS.start, WAKE_UP),
        ] {
            let start = Instant::now();
            let mut patience = Patience::new(crowd);
            assert_eq!(spins(&mut patience, start), (most, Pause::Yield));
            assert_eq!(patience.next(|| start + awake / 2), (Pause::Yield, awake / 2));
            assert_eq!(patience.next(|| start + awake), (Pause::Sleep(NAP), awake));
            patience.refresh();
            assert_eq!(patience.next(|| start), (Pause::Spin, Duration::ZERO));
        }
    }

    #[test]
    fn questions_count_more_where_a_core_is_shared() {
        let now = Instant::now();
        for (crowd, most) in [(Crowd::Alone, SPINS.end), (Crowd::Processor, 1)] {
            let mut patience = Patience::new(crowd);
            for look in 0..=most {
                patience.asked();
                let wanted = if look < most { Pause::Spin } else { Pause::Yield };
                assert_eq!(patience.next(|| now).0, wanted);
            }
        }
    }

    #[test]
    fn the_first_waits_move_the_thread() {
        let mine = host::usable_cpus();
        let mut cpus = (0..8 * mine.len()).filter(|cpu| mine[cpu / 8] >> (cpu % 8) & 1 == 1);
        let (first, last) = (cpus.next().unwrap(), cpus.next_back().unwrap_or_default());
        let at = |ms| Instant::now() + Duration::from_millis(ms);
        let mut patience = Patience::new(Crowd::Processor).starting_on(Some(first));
        assert_eq!(spins(&mut patience, at(0)).1, Pause::Yield);
        assert_eq!(patience.start.as_ref().unwrap().next, FIRST_MOVES_APART);
        host::move_to(last);
        patience.next(|| at(10));
        assert_eq!(patience.start.as_ref().unwrap().next, 2 * FIRST_MOVES_APART);
        patience.next(|| at(150));
        assert_eq!(patience.start.as_ref().unwrap().next, 4 * FIRST_MOVES_APART);
        // Who first waits long after that is where the kernel wants it.
        patience.next(|| at(1000));
        assert!(patience.start.is_none());
        assert_eq!(host::usable_cpus(), mine);
    }

    #[test]
    fn a_time_in_which_nobody_looked_hardly_counts() {
        let start = Instant::now();
        let mut patience = Patience::new(Crowd::Processor);
        assert_eq!(spins(&mut patience, start).1, Pause::Yield);
        assert_eq!(patience.next(|| start + Duration::from_secs(3600)).1, GAP);
        assert_eq!(
            patience.next(|| start + Duration::from_secs(3600) + NAP).1,
            GAP + NAP
        );
    }

    #[test]
    fn spinning_in_vain_grows_shorter_and_in_time_longer() {
        let now = Instant::now();
        let mut patience = Patience::new(Crowd::Alone);
        for most in [2048, 1024, 512, 256, 128, 64, 32, 16, 8, 4, 4] {
            assert_eq!(spins(&mut patience, now).0, most);
            patience.refresh();
        }
        for _ in 0..10 {
            patience.next(|| now);
            patience.refresh();
        }
        assert_eq!(spins(&mut patience, now).0, 2048);
    }
}
