//! A model of the shared-memory lanes (`src/transport/shm`), which loom runs in every order that the memory model allows.
//!
//! The functions here are those of the same names in `outbound.rs`, `inbound.rs`, `room.rs` and `bell.rs`, for one lane, with
//! the same steps and the same memory orders; a lane is a ring of two entries, and bodies are a word. What is copied by plain
//! reads and writes there lies in loom's `UnsafeCell`s here: who reads what is being written fails at once. Numbers begin so
//! that they come round. Each order is then weakened in turn, to show that the model would notice.
//!
//! Not modelled: the barrier that the sleeper's kernel makes for its peers (`membarrier`), for which loom has no means.

use loom::{
    cell::UnsafeCell,
    model::Builder,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering, Ordering::*, fence},
    },
    thread,
};
use std::cell::Cell;

/// Entries of the ring: `layout::SHALLOW` are 4, `layout::DEEP` 16.
const DEPTH: usize = 2;

/// Shared pages for bodies that do not fit their entry. One less than entries, so that a lane has to find credits for them.
const PAGES: usize = 1;

/// The first message's number: the second one's is 0.
const START: u32 = u32::MAX;

/// `layout::LEN_BITS`.
const LEN_BITS: u32 = 20;

/// The memory orders of the protocol.
#[derive(Clone, Copy)]
struct Orders {
    /// `Outbound::post` stores an entry's flag.
    post: Ordering,
    /// `Inbound::peek` loads it.
    peek: Ordering,
    /// `Inbound::release` stores the count of released messages.
    release: Ordering,
    /// `Outbound::look` loads it.
    credit: Ordering,
}

/// Those of the code.
const ORDERS: Orders = Orders {
    post: Release,
    peek: Acquire,
    release: Release,
    credit: Acquire,
};

/// `layout::Segment`, of one lane.
struct Segment {
    entries: [Entry; DEPTH],
    released: AtomicU32,
    pages: [UnsafeCell<u32>; PAGES],
}

/// `layout::Entry`. The word that says where a long body lies has a place of its own.
#[derive(Default)]
struct Entry {
    flag: AtomicU32,
    len: AtomicU32,
    header: AtomicU32,
    at: AtomicU32,
    inline: UnsafeCell<u32>,
}

impl Segment {
    fn new() -> Arc<Segment> {
        Arc::new(Segment {
            entries: Default::default(),
            released: AtomicU32::new(START),
            pages: Default::default(),
        })
    }

    fn entry(&self, number: u32) -> &Entry {
        &self.entries[number as usize % DEPTH]
    }
}

/// `layout::flag`.
fn flag(number: u32) -> u32 {
    number << 1 | 1
}

/// What message `number` holds.
fn contents(number: u32) -> u32 {
    number.wrapping_add(100)
}

/// Every other message is too long for its entry.
fn is_long(number: u32) -> bool {
    number % 2 == 1
}

/// `Outbound` and its `SendLane`.
struct Outbound {
    segment: Arc<Segment>,
    orders: Orders,
    sent: Cell<u32>,
    released: Cell<u32>,
    rooms: [Cell<Option<usize>>; DEPTH],
    /// `room::Pages`.
    used: [Cell<bool>; PAGES],
    /// Whether it looks at the count in the segment: else it must do with what it is told.
    looks: bool,
}

impl Outbound {
    fn new(segment: &Arc<Segment>, orders: Orders, looks: bool) -> Outbound {
        Outbound {
            segment: segment.clone(),
            orders,
            sent: Cell::new(START),
            released: Cell::new(START),
            rooms: Default::default(),
            used: Default::default(),
            looks,
        }
    }

    /// `reserve`, the filling of what was reserved, and `commit`: `false` where there is no room.
    fn send(&self, received: u32) -> bool {
        if self.in_flight() == DEPTH && !self.look() {
            return false;
        }
        let number = self.sent.get();
        let entry = self.segment.entry(number);
        let body = match is_long(number) {
            false => &entry.inline,
            true => match self.room(number) {
                Some(page) => &self.segment.pages[page],
                None => return false,
            },
        };
        // SAFETY: loom fails when anybody else is at it.
        body.with_mut(|body| unsafe { *body = contents(number) });
        self.post(number, received);
        true
    }

    fn room(&self, number: u32) -> Option<usize> {
        let take = || (0..PAGES).find(|&page| !self.used[page].replace(true));
        let page = take().or_else(|| {
            self.look();
            take()
        });
        self.rooms[number as usize % DEPTH].set(page);
        page
    }

    fn post(&self, number: u32, received: u32) {
        let entry = self.segment.entry(number);
        if let Some(page) = self.rooms[number as usize % DEPTH].get() {
            entry.at.store(page as u32, Relaxed);
        }
        entry.len.store(4 | received << LEN_BITS, Relaxed);
        entry.header.store(contents(number), Relaxed);
        entry.flag.store(flag(number), self.orders.post);
        self.sent.set(number.wrapping_add(1));
        if self.in_flight() == DEPTH {
            self.look();
        }
    }

    fn told(&self, word: u32) {
        let known = self.released.get();
        let more = (word >> LEN_BITS).wrapping_sub(known) & (u32::MAX >> LEN_BITS);
        if more as usize <= self.in_flight() {
            self.settle(known.wrapping_add(more));
        }
    }

    fn look(&self) -> bool {
        if self.looks && self.in_flight() > 0 {
            let now = self.segment.released.load(self.orders.credit);
            let in_flight = self.sent.get().wrapping_sub(now) as usize;
            assert!(in_flight <= self.in_flight(), "a credit went back");
            self.settle(now);
        }
        self.in_flight() < DEPTH
    }

    fn settle(&self, released: u32) {
        let mut number = self.released.replace(released);
        while number != released {
            if let Some(page) = self.rooms[number as usize % DEPTH].take() {
                self.used[page].set(false);
            }
            number = number.wrapping_add(1);
        }
    }

    fn in_flight(&self) -> usize {
        self.sent.get().wrapping_sub(self.released.get()) as usize
    }
}

/// `Inbound` and its `RecvLane`.
struct Inbound {
    segment: Arc<Segment>,
    orders: Orders,
    released: Cell<u32>,
}

impl Inbound {
    fn new(segment: &Arc<Segment>, orders: Orders) -> Inbound {
        Inbound {
            segment: segment.clone(),
            orders,
            released: Cell::new(START),
        }
    }

    /// `peek`, the reading of the body and `release`: the word beside it, or `None` where no message is. Fails unless the
    /// message is the next one, whole.
    fn receive(&self) -> Option<u32> {
        let number = self.released.get();
        let entry = self.segment.entry(number);
        if entry.flag.load(self.orders.peek) != flag(number) {
            return None;
        }
        let word = entry.len.load(Relaxed);
        assert_eq!(word & ((1 << LEN_BITS) - 1), 4, "the length of another message");
        assert_eq!(
            entry.header.load(Relaxed),
            contents(number),
            "the header of another message"
        );
        let body = match is_long(number) {
            false => &entry.inline,
            true => &self.segment.pages[entry.at.load(Relaxed) as usize],
        };
        // SAFETY: as in `send`.
        body.with(|body| assert_eq!(unsafe { *body }, contents(number), "the body of another message"));
        let released = number.wrapping_add(1);
        self.released.set(released);
        self.segment.released.store(released, self.orders.release);
        Some(word)
    }
}

/// Tries until there is something.
fn until<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        thread::yield_now();
    }
}

/// Runs `model` in all orders with so many involuntary switches between threads at most.
fn explore(switches: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(switches);
    builder.check(model);
}

/// One rank sends, the other receives: more messages than there are entries.
fn one_way(orders: Orders) {
    explore(4, move || {
        let segment = Segment::new();
        let inbound = Inbound::new(&segment, orders);
        let outbound = Outbound::new(&segment, orders, true);
        let sender = thread::spawn(move || {
            for _ in 0..MESSAGES {
                until(|| outbound.send(0).then_some(()));
            }
        });
        for _ in 0..MESSAGES {
            until(|| inbound.receive());
        }
        sender.join().unwrap();
        assert!(inbound.receive().is_none(), "a message came twice");
    });
}

/// Both send and receive in turn, and know what was released by what they are told beside messages alone.
fn exchange(orders: Orders) {
    let rank = |outbound: Outbound, inbound: Inbound| {
        for _ in 0..MESSAGES {
            until(|| outbound.send(inbound.released.get()).then_some(()));
            outbound.told(until(|| inbound.receive()));
        }
    };
    explore(4, move || {
        let [there, back] = [Segment::new(), Segment::new()];
        let outbound = Outbound::new(&there, orders, false);
        let inbound = Inbound::new(&back, orders);
        let other = thread::spawn({
            let outbound = Outbound::new(&back, orders, false);
            let inbound = Inbound::new(&there, orders);
            move || rank(outbound, inbound)
        });
        rank(outbound, inbound);
        other.join().unwrap();
    });
}

const MESSAGES: u32 = 4;

#[test]
fn no_message_is_lost_doubled_torn_or_out_of_order() {
    one_way(ORDERS);
}

#[test]
fn acknowledgements_beside_messages_free_entries_and_bodies() {
    exchange(ORDERS);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_flag_that_publishes_nothing_is_noticed() {
    one_way(Orders {
        post: Relaxed,
        ..ORDERS
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_flag_that_acquires_nothing_is_noticed() {
    one_way(Orders {
        peek: Relaxed,
        ..ORDERS
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_release_before_the_reading_is_noticed() {
    one_way(Orders {
        release: Relaxed,
        ..ORDERS
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_credit_that_acquires_nothing_is_noticed() {
    one_way(Orders {
        credit: Relaxed,
        ..ORDERS
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn acknowledgements_that_are_not_acquired_are_noticed() {
    exchange(Orders {
        peek: Relaxed,
        ..ORDERS
    });
}

/// A rank that is about to sleep (`Bell::arm`, a last look, `Bell::sleep`) and a peer that sends (`post`, `Ringer::ring` with a
/// fence): fails if the rank sleeps and nobody rings. `is_fenced`: sleeper and peer.
fn bell(is_fenced: [bool; 2]) {
    explore(4, move || {
        let state = Arc::new(AtomicU32::new(AWAKE));
        let message = Arc::new(AtomicU32::new(0));
        let peer = thread::spawn({
            let (state, message) = (state.clone(), message.clone());
            move || {
                message.store(1, Release);
                if is_fenced[1] {
                    fence(SeqCst);
                }
                if state.load(Relaxed) == ARMED {
                    // A swap that finds it armed wakes the sleeper.
                    state.swap(AWAKE, AcqRel);
                }
            }
        });
        state.store(ARMED, if is_fenced[0] { SeqCst } else { Relaxed });
        if is_fenced[0] {
            fence(SeqCst);
        }
        let is_there = message.load(Acquire) == 1;
        peer.join().unwrap();
        assert!(
            is_there || state.load(Relaxed) == AWAKE,
            "a sleeper that nobody wakes"
        );
    });
}

const AWAKE: u32 = 0;
const ARMED: u32 = 1;

#[test]
fn a_sleeper_sees_the_message_or_is_rung() {
    bell([true, true]);
}

#[test]
#[should_panic(expected = "a sleeper that nobody wakes")]
fn a_sleeper_without_a_fence_is_noticed() {
    bell([false, true]);
}

#[test]
#[should_panic(expected = "a sleeper that nobody wakes")]
fn a_ring_without_a_fence_is_noticed() {
    bell([true, false]);
}

/// A rank that shows two messages in the same place (`Pair::show`), and one that looks for the first and for the second
/// (`Pair::find`). `is_fenced`: whether who shows makes sure that the old tag is gone first, and who finds that it still is there.
fn shown(is_fenced: [bool; 2], store: Ordering, load: Ordering) {
    explore(4, move || {
        let [tag, body] = [(); 2].map(|()| Arc::new(AtomicU32::new(0)));
        let shows = thread::spawn({
            let (tag, body) = (tag.clone(), body.clone());
            move || {
                for message in [1, 2] {
                    tag.store(0, Relaxed);
                    if is_fenced[0] {
                        fence(Release);
                    }
                    body.store(contents(message), Relaxed);
                    tag.store(message, store);
                }
            }
        });
        for message in [1, 2] {
            if tag.load(load) == message {
                let found = body.load(Relaxed);
                if is_fenced[1] {
                    fence(Acquire);
                }
                if tag.load(Relaxed) == message {
                    assert_eq!(found, contents(message), "the body of another message");
                }
            }
        }
        shows.join().unwrap();
    });
}

#[test]
fn what_is_found_where_it_is_shown_is_the_right_message() {
    shown([true, true], Release, Acquire);
}

#[test]
#[should_panic(expected = "the body of another message")]
fn a_tag_that_may_go_late_is_noticed() {
    shown([false, true], Release, Acquire);
}

#[test]
#[should_panic(expected = "the body of another message")]
fn a_tag_that_is_looked_at_again_too_soon_is_noticed() {
    shown([true, false], Release, Acquire);
}

#[test]
#[should_panic(expected = "the body of another message")]
fn a_tag_that_publishes_no_body_is_noticed() {
    shown([true, true], Relaxed, Acquire);
}

#[test]
#[should_panic(expected = "the body of another message")]
fn a_tag_that_acquires_no_body_is_noticed() {
    shown([true, true], Release, Relaxed);
}

/// A sender that withdraws an offer and then writes its memory (`Outbound::withdraw`), and a receiver that reads it
/// (`Inbound::fetch`): fails if the receiver takes what was written afterwards.
fn withdrawal(is_fenced: bool) {
    explore(4, move || {
        let memory = Arc::new([AtomicU32::new(1), AtomicU32::new(1)]);
        let withdrawn = Arc::new(AtomicU32::new(0));
        let barrier = move || {
            if is_fenced {
                fence(SeqCst);
            }
        };
        let sender = thread::spawn({
            let (memory, withdrawn) = (memory.clone(), withdrawn.clone());
            move || {
                withdrawn.store(1, Relaxed);
                barrier();
                memory.iter().for_each(|word| word.store(2, Relaxed));
            }
        });
        let read = [0, 1].map(|word| memory[word].load(Relaxed));
        barrier();
        let is_taken = withdrawn.load(Relaxed) == 0;
        assert!(!is_taken || read == [1, 1], "what was withdrawn is taken");
        sender.join().unwrap();
    });
}

#[test]
fn what_is_withdrawn_is_not_taken() {
    withdrawal(true);
}

#[test]
#[should_panic(expected = "what was withdrawn is taken")]
fn a_withdrawal_without_a_fence_is_noticed() {
    withdrawal(false);
}
