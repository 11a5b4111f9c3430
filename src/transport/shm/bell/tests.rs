//! No ring is missed, and no bell is taken that is none.

use super::*;
use crossbeam_utils::CachePadded;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::{sync::atomic::AtomicU64, thread};

const LONG: Duration = Duration::from_secs(60);
/// Long enough for a ring that is under way.
const SOON: Duration = Duration::from_secs(1);

/// Puts this thread on a processor of its own, if there are as many.
fn pin(which: usize) {
    let allowed = sched_getaffinity(None).unwrap();
    let mut own = CpuSet::new();
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
    own.set(cpus[which % cpus.len()]);
    sched_setaffinity(None, &own).unwrap();
}

/// How many of so many rings may be lost. With the sleeper's barrier those that come while it misses a processor.
fn may_be_lost(asymmetric: bool, rings: u64) -> u64 {
    if asymmetric { rings / 50 } else { 0 }
}

/// The race itself, over and over: one arms and looks while the other publishes and rings. Either the look finds
/// what was published or the bell was rung; where the kernel's barrier can miss a processor, nearly always.
fn race(asymmetric: bool) {
    const ROUNDS: u64 = 5000;
    let bells = [Bell::with(asymmetric).unwrap(), Bell::with(asymmetric).unwrap()];
    let ringer = Ringer::welcomed(&bells[0].welcome().unwrap(), &bells[1]).unwrap();
    let (bell, published) = (&bells[0], &CachePadded::new(AtomicU64::new(0)));
    let meeting = [0, 0].map(|none| CachePadded::new(AtomicU64::new(none)));
    // Both go on together, if they have a processor each, give or take a few nanoseconds, with what they are going
    // to look at in their caches: so the looks are fast and the stores slow.
    let meet = |me: usize, random: &mut fastrand::Rng, looks_at: &dyn Fn() -> bool| {
        let count = meeting[me].fetch_add(1, AcqRel);
        for look in 1u64.. {
            if meeting[1 - me].load(Acquire) > count {
                break;
            }
            if look.is_multiple_of(1000) {
                thread::yield_now();
            }
        }
        std::hint::black_box(looks_at());
        (0..random.u32(..100)).for_each(|turn| _ = std::hint::black_box(turn));
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(0);
            let (mut random, mut lost) = (fastrand::Rng::with_seed(1), 0);
            for round in 1..=ROUNDS {
                let find = || published.load(Relaxed) == round;
                meet(0, &mut random, &find);
                bell.arm();
                let found = find();
                meet(0, &mut random, &find);
                lost += u64::from(!found && bell.page.state.load(Relaxed) == ARMED);
                bell.disarm();
            }
            println!("{lost} rings lost in {ROUNDS} rounds");
            assert!(
                lost <= may_be_lost(asymmetric, ROUNDS),
                "{lost} of {ROUNDS} rings lost"
            );
        });
        scope.spawn(|| {
            pin(1);
            let mut random = fastrand::Rng::with_seed(2);
            for round in 1..=ROUNDS {
                let armed = || ringer.page.state.load(Relaxed) == ARMED;
                meet(1, &mut random, &armed);
                published.store(round, Release);
                ringer.ring();
                meet(1, &mut random, &armed);
            }
        });
    });
}

#[test]
fn a_ring_or_a_find_with_fences() {
    race(false);
}

/// With the sleeper's barrier where the kernel has it.
#[test]
fn a_ring_or_a_find_as_bells_are_made() {
    race(Bell::new().unwrap().asymmetric);
}

/// Two threads hand a token to and fro and go to sleep for it each time, without a look in between. A lost wake-up
/// shows as a sleep of a minute.
fn hand_over(asymmetric: bool) {
    let bells = [Bell::with(asymmetric).unwrap(), Bell::with(asymmetric).unwrap()];
    let (token, lost) = (AtomicU64::new(0), AtomicU64::new(0));
    const TURNS: u64 = 4000;
    let play = |me: usize| {
        let other = Ringer::welcomed(&bells[1 - me].welcome().unwrap(), &bells[me]).unwrap();
        assert_eq!(other.fence, !asymmetric);
        let mine = |token: u64| token % 2 == me as u64;
        while token.load(Acquire) < TURNS {
            bells[me].arm();
            let at = token.load(Acquire);
            let came = |at| at >= TURNS || mine(at);
            if !came(at) {
                bells[me].doze();
                let rung = bells[me].page.state.load(Relaxed) == AWAKE;
                // Who has stored the token may be about to ring.
                let is_lost = !rung && came(token.load(Acquire)) && !bells[me].sleep(SOON);
                lost.fetch_add(u64::from(is_lost), Relaxed);
            }
            if !came(token.load(Acquire)) {
                assert!(bells[me].sleep(LONG), "a ring was missed at turn {at}");
            }
            bells[me].disarm();
            let at = token.load(Acquire);
            if at < TURNS && mine(at) {
                token.store(at + 1, Release);
                other.ring();
            }
        }
        other.ring();
    };
    thread::scope(|scope| {
        scope.spawn(|| play(0));
        scope.spawn(|| play(1));
    });
    let lost = lost.into_inner();
    assert!(
        lost <= may_be_lost(asymmetric, TURNS),
        "{lost} of {TURNS} rings lost"
    );
}

#[test]
fn no_ring_is_missed_with_fences() {
    hand_over(false);
}

/// With the sleeper's barrier where the kernel has it.
#[test]
fn no_ring_is_missed_as_bells_are_made() {
    hand_over(Bell::new().unwrap().asymmetric);
}

#[test]
fn a_ring_before_the_sleep_is_not_lost() {
    let bell = Bell::new().unwrap();
    bell.arm();
    bell.wake();
    assert!(bell.sleep(LONG));
    bell.disarm();
    // A ring at a bell that is not armed leaves nothing behind.
    bell.wake();
    bell.arm();
    assert!(!bell.sleep(Duration::from_millis(1)));
    bell.disarm();
}

#[test]
fn sides_that_can_not_rely_on_the_sleeper_fence() {
    let [with, without] = [true, false].map(|asymmetric| Bell::with(asymmetric).unwrap());
    let fences =
        |theirs: &Bell, ours: &Bell| Ringer::welcomed(&theirs.welcome().unwrap(), ours).unwrap().fence;
    assert!(!fences(&with, &with));
    assert!(fences(&with, &without) && fences(&without, &with) && fences(&without, &without));
}

#[test]
fn a_wrong_welcome_is_refused() {
    let bell = Bell::new().unwrap();
    let refused = |parcel: Parcel| Ringer::welcomed(&parcel, &bell).err().unwrap().kind();
    let mut other = bell.welcome().unwrap();
    other.bytes.push(0);
    assert_eq!(refused(other), io::ErrorKind::InvalidData);
    let mut other = bell.welcome().unwrap();
    other.fds.clear();
    assert_eq!(refused(other), io::ErrorKind::InvalidData);
    assert_eq!(refused(Parcel::default()), io::ErrorKind::InvalidData);
}
