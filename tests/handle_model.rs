//! A model of the slots that C's handles stand for (`src/ffi/handle.rs`, `src/sys/in_use.rs`), which loom runs in every order that
//! the memory model allows.
//!
//! The functions here are those of the same names there, with the same steps and the same memory orders, for one value. The
//! barrier on all processors, for which loom has no means, is a full fence on either side: that is what it makes of the
//! compiler's fence. Each fence is then left out in turn, to show that the model would notice.

use loom::{
    cell::UnsafeCell,
    model::Builder,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::*, fence},
    },
    thread,
};

const FREE: u32 = 1 << 31;
const LIVE: u32 = 1 << 30;
const CLOSED: u32 = 1 << 29;
const EMPTYING: u32 = 1 << 28;
const USERS: u32 = EMPTYING - 1;

/// What is there.
#[derive(Clone, Copy)]
struct Fences {
    /// In `hold`, after a thread has said what it uses.
    holding: bool,
    /// In `Held::leave`, before it looks whether that was marked.
    leaving: bool,
    /// Whether who leaves the emptying to others looks again.
    again: bool,
}

const ALL: Fences = Fences {
    holding: true,
    leaving: true,
    again: true,
};

struct Slot {
    fences: Fences,
    state: AtomicU32,
    /// Whether there is a value.
    value: UnsafeCell<bool>,
    /// The threads' lines: whether they use it.
    lines: [AtomicBool; 3],
}

impl Slot {
    fn live(fences: Fences) -> Arc<Slot> {
        Arc::new(Slot {
            fences,
            state: AtomicU32::new(LIVE),
            value: UnsafeCell::new(true),
            lines: [(); 3].map(|()| AtomicBool::new(false)),
        })
    }

    /// Uses the value, if it is there: by the line of that number, or counted.
    fn visit(&self, line: Option<usize>) {
        let before = match line {
            Some(line) => {
                self.lines[line].store(true, Relaxed);
                if self.fences.holding {
                    fence(SeqCst);
                }
                self.state.load(Acquire)
            }
            None => self.state.fetch_add(1, Acquire),
        };
        if before & LIVE != 0 {
            self.value.with(|value| {
                // SAFETY: whether this is right is what the model shows.
                assert!(unsafe { *value }, "what is used is there");
            });
        }
        self.leave(line);
    }

    fn leave(&self, line: Option<usize>) {
        match line {
            None => {
                let before = self.state.fetch_sub(1, Release);
                if before & CLOSED != 0 && before & USERS == 1 {
                    self.empty();
                }
            }
            Some(line) => {
                self.lines[line].store(false, Release);
                if self.fences.leaving {
                    fence(SeqCst);
                }
                if self.state.load(Relaxed) & CLOSED != 0 {
                    self.empty();
                }
            }
        }
    }

    fn is_held(&self) -> bool {
        fence(SeqCst);
        self.lines.iter().any(|line| line.load(Acquire))
    }

    fn empty(&self) {
        fence(SeqCst);
        let unused =
            |state: u32| (state & CLOSED != 0 && state & USERS == 0).then_some(state ^ (CLOSED | EMPTYING));
        while self.state.fetch_update(AcqRel, Relaxed, unused).is_ok() {
            if !self.is_held() {
                self.value.with_mut(|value| {
                    // SAFETY: whether this is right is what the model shows.
                    unsafe { *value = false }
                });
                self.state.fetch_xor(EMPTYING | FREE, Release);
                return;
            }
            self.state.fetch_xor(EMPTYING | CLOSED, SeqCst);
            if !self.fences.again || self.is_held() {
                return;
            }
        }
    }

    /// Takes the value away, as one of its users: by the line of that number, or counted.
    fn take(&self, line: Option<usize>) {
        match line {
            Some(line) => {
                self.lines[line].store(true, Relaxed);
                fence(SeqCst);
            }
            None => _ = self.state.fetch_add(1, Acquire),
        }
        self.state.fetch_xor(LIVE | CLOSED, Relaxed);
        self.leave(line);
    }
}

/// The value is taken while others, by such lines, visit it; in the end it is gone.
fn visits<const N: usize>(fences: Fences, taker: Option<usize>, lines: [Option<usize>; N]) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let slot = Slot::live(fences);
        let visits = lines.map(|line| {
            let slot = slot.clone();
            thread::spawn(move || slot.visit(line))
        });
        slot.take(taker);
        for visit in visits {
            visit.join().unwrap();
        }
        assert_eq!(slot.state.load(Relaxed), FREE, "it is free in the end");
    });
}

#[test]
fn a_value_is_dropped_once_after_all_who_use_it_have_left() {
    for taker in [None, Some(2)] {
        visits(ALL, taker, [Some(0), Some(1)]);
        visits(ALL, taker, [Some(0), None]);
        visits(ALL, taker, [None, None]);
    }
}

#[test]
#[should_panic]
fn who_uses_it_needs_the_barrier() {
    visits(
        Fences {
            holding: false,
            ..ALL
        },
        None,
        [Some(0)],
    );
}

#[test]
#[should_panic(expected = "it is free in the end")]
fn who_leaves_needs_the_barrier() {
    visits(
        Fences {
            leaving: false,
            ..ALL
        },
        None,
        [Some(0)],
    );
}

#[test]
#[should_panic(expected = "it is free in the end")]
fn who_leaves_the_emptying_to_others_looks_again() {
    visits(Fences { again: false, ..ALL }, None, [Some(0)]);
}
