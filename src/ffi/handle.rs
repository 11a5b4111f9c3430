//! [`Table`]: what handles of C's stand for. A handle is a slot's number and generation dressed as a pointer.

use crate::{
    sys::{
        fork,
        in_use::{self, Here, is_held},
        per_process::PerProcess,
    },
    types::{Error, Result},
};
use std::{
    cell::UnsafeCell,
    convert::Infallible,
    ops::Deref,
    ptr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{
            AtomicU64,
            Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
            fence,
        },
    },
    thread,
    time::{Duration, Instant},
};

/// How long who takes a value away waits for those who use it: a question takes microseconds.
const ASKED: Duration = Duration::from_millis(if cfg!(test) { 1000 } else { 10 });

const SLOT_BITS: u32 = 24;
const GENERATION_BITS: u32 = 24;
const PROCESS_BITS: u32 = 8;

/// Values that C refers to by handles.
///
/// A handle's top 8 bits are the table's tag, which makes it no address that a program can have; then come 8 bits that
/// tell the process from the one that forked it, 24 bits of generation and 24 of slot. A slot gets a new generation with
/// each value, so that the handle of a destroyed one is recognised, and is retired when its generations are used up: no
/// handle ever comes again.
///
/// To look a handle up is to say that this thread uses the slot ([`Here::hold`]), or, where it says so of another one already, to count
/// oneself among the slot's users. Who takes the value away leaves it to the last of them.
///
/// A forked child begins with an empty table: another thread may have held the parent's lock at the fork, and what its
/// values own is not there.
pub(super) struct Table<T> {
    tag: u8,
    /// What a good handle is, for messages.
    noun: &'static str,
    slots: PerProcess<Slots<T>>,
}

/// Slots, which never move: part k has 2^k times [`FIRST`] of them.
struct Slots<T> {
    parts: [OnceLock<Box<[Slot<T>]>>; PARTS],
    /// How many were ever used; held by whoever looks for one to use.
    used: Mutex<usize>,
}

const FIRST: usize = 64;
const PARTS: usize = (SLOT_BITS - FIRST.ilog2() + 1) as usize;

#[repr(align(128))] // so that calls on several communicators do not pull at one line
struct Slot<T> {
    /// The generation of its value in the upper half; then [`FREE`], [`LIVE`], [`CLOSED`] or [`EMPTYING`], and how many are counted
    /// that use it.
    state: AtomicU64,
    /// Written by who has found it free; emptied by who has set [`EMPTYING`]. Between the two it is only read, by users.
    value: UnsafeCell<Option<Arc<T>>>,
}

// SAFETY: an `Arc<T>` may be shared and sent as `T` may; `value` is accessed as its comment says.
unsafe impl<T: Send + Sync> Sync for Slot<T> {}

/// It has no value, and may get one.
const FREE: u64 = 1 << 31;
/// It has a value.
const LIVE: u64 = 1 << 30;
/// Its value was taken; the last user empties it.
const CLOSED: u64 = 1 << 29;
/// Somebody who found no users counted looks whether there are others, and empties it if not.
const EMPTYING: u64 = 1 << 28;
const USERS: u64 = EMPTYING - 1;
/// The generation's lowest bit.
const GENERATION: u64 = 1 << 32;

impl<T> Slots<T> {
    fn new() -> Self {
        Slots {
            parts: [const { OnceLock::new() }; PARTS],
            used: Mutex::new(0),
        }
    }

    fn used(&self) -> MutexGuard<'_, usize> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which part has the slot number `index`, and where.
    #[inline]
    fn place(index: usize) -> (usize, usize) {
        if index < FIRST {
            return (0, index); // nearly all are
        }
        let part = (index / FIRST + 1).ilog2();
        (part as usize, index - FIRST * ((1 << part) - 1))
    }

    #[inline]
    fn get(&self, index: usize) -> Option<&Slot<T>> {
        let (part, at) = Self::place(index);
        self.parts.get(part)?.get()?.get(at)
    }

    fn get_or_make(&self, index: usize) -> &Slot<T> {
        let (part, at) = Self::place(index);
        let slot = || Slot {
            state: AtomicU64::new(FREE),
            value: UnsafeCell::new(None),
        };
        let make = || (0..FIRST << part).map(|_| slot()).collect();
        &self.parts[part].get_or_init(make)[at]
    }
}

impl<T> Slot<T> {
    fn generation(&self) -> u64 {
        self.state.load(Relaxed) / GENERATION
    }

    fn is_free(&self) -> bool {
        self.state.load(Acquire) & FREE != 0 // pairs with the Release in `leave`: its value is gone
    }

    /// Gives the slot a value, of the next generation, which is returned. Only for whoever holds `Slots::used` and has found
    /// it free.
    fn fill(&self, value: Arc<T>) -> u64 {
        // SAFETY: nobody else writes it: it is free, and others that look for such a slot wait. Nobody reads it, as it is not
        // live.
        unsafe { *self.value.get() = Some(value) };
        // Others may come and leave meanwhile. Pairs with the Acquire in `enter`.
        self.state.fetch_add(GENERATION + LIVE - FREE, Release) / GENERATION + 1
    }

    /// Uses the value of this generation, if it is there.
    #[inline]
    fn enter(&self, generation: u64, here: Here) -> Option<Used<'_, T>> {
        let held = here.hold(self);
        let before = match held {
            Some(_) => self.state.load(Acquire),
            None => self.state.fetch_add(1, Acquire),
        };
        let used = Used { slot: self, held };
        (before / GENERATION == generation && before & LIVE != 0).then_some(used)
    }

    /// Ends a use that was counted. The last one of a value that was taken drops it.
    fn leave(&self) {
        let before = self.state.fetch_sub(1, Release);
        if before & CLOSED != 0 && before & USERS == 1 {
            self.empty();
        }
    }

    /// Drops the value, which was taken, if nobody uses it any more: else the last of those does.
    #[cold]
    fn empty(&self) {
        // With whoever leaves: one of the two sees the other's store.
        fence(SeqCst);
        // Who comes in vain leaves as well, so that there may be several last ones; and by now this may be another value's mark.
        let unused =
            |state: u64| (state & CLOSED != 0 && state & USERS == 0).then_some(state ^ (CLOSED | EMPTYING));
        // Acquire: the counted uses are over.
        while self.state.fetch_update(AcqRel, Relaxed, unused).is_ok() {
            if !is_held(self) {
                // SAFETY: one thread at a time sets this mark, where no user is counted and, as was seen after it, no other is
                // either; nobody begins to use the value, as it is not live; the slot is not free yet.
                let value = unsafe { (*self.value.get()).take() };
                self.state.fetch_xor(EMPTYING | FREE, Release);
                drop(value);
                return;
            }
            self.state.fetch_xor(EMPTYING | CLOSED, SeqCst);
            // Who has left meanwhile did not see it closed.
            if is_held(self) {
                return;
            }
        }
    }

    /// Lets nobody in any more; `false` if somebody else has.
    fn close(&self, generation: u64) -> bool {
        let closed = |state: u64| {
            let is_it = state / GENERATION == generation && state & LIVE != 0;
            is_it.then_some(state - LIVE + CLOSED)
        };
        self.state.fetch_update(Relaxed, Relaxed, closed).is_ok()
    }
}

/// A value of a [`Table`] in use. It stays, also when it is taken out of the table.
pub(super) struct Used<'t, T> {
    slot: &'t Slot<T>,
    /// Not if it is counted.
    held: Option<in_use::Held>,
}

impl<T> Deref for Used<'_, T> {
    type Target = Arc<T>;

    #[inline]
    fn deref(&self) -> &Arc<T> {
        // SAFETY: made where the slot was live, whose value nobody changes before its users have left; this is one.
        let value = unsafe { &*self.slot.value.get() };
        value.as_ref().expect("a live slot has a value")
    }
}

impl<T> Drop for Used<'_, T> {
    #[inline]
    fn drop(&mut self) {
        match &self.held {
            None => self.slot.leave(),
            Some(held) => {
                held.leave();
                if self.slot.state.load(Relaxed) & CLOSED != 0 {
                    self.slot.empty();
                }
            }
        }
    }
}

/// Drops a value that was taken, once nobody else uses it: or else whoever asks it something at that moment would be the one to drop it, which
/// may take as long as what is under way. Those that use it for longer are not waited for.
pub(super) fn drop_last<T>(value: Arc<T>) {
    let end = Instant::now() + ASKED;
    while Arc::strong_count(&value) > 1 && Instant::now() < end {
        thread::yield_now();
    }
    drop(value);
}

impl<T: Send + Sync + 'static> Table<T> {
    /// An empty table whose handles begin with `tag`; no address begins so, nor does NULL.
    pub(super) const fn new(tag: u8, noun: &'static str) -> Self {
        assert!(tag != 0 && tag != u8::MAX, "a handle could be NULL or an address");
        let slots = PerProcess::new();
        Table { tag, noun, slots }
    }

    fn slots(&self) -> &'static Slots<T> {
        let made = self.slots.get_or_try_init(|| Ok::<_, Infallible>(Slots::new()));
        made.unwrap_or_else(|never| match never {})
    }

    /// Keeps `value` and returns its handle.
    ///
    /// # Errors
    /// [`Error::Usage`] when 2^24 values live. [`Error::System`] when forks cannot be told of.
    pub(super) fn insert<P>(&self, value: T) -> Result<*mut P> {
        // Or a child would take its parent's handles for its own.
        fork::watch().map_err(|e| Error::system("cannot watch for forks", e))?;
        let slots = self.slots();
        let mut used = slots.used();
        // A scan: values come and go with communicators, whose making takes far longer.
        let is_good = |slot: &Slot<T>| slot.is_free() && slot.generation() < (1 << GENERATION_BITS) - 1;
        let free = (0..*used).find(|&index| slots.get(index).is_some_and(is_good));
        let index = match free {
            Some(index) => index,
            None if *used < 1 << SLOT_BITS => {
                *used += 1;
                *used - 1
            }
            None => {
                return Err(Error::usage(format!(
                    "too many handles: there is no room for {}",
                    self.noun
                )));
            }
        };
        let generation = slots.get_or_make(index).fill(Arc::new(value));
        Ok(ptr::without_provenance_mut(
            self.number(index, generation) as usize
        ))
    }

    /// What `handle` stands for.
    ///
    /// # Errors
    /// [`Error::Invalid`] for NULL, a destroyed handle, and anything that never was one; [`Error::Usage`] for a handle of
    /// the process that forked this one.
    #[inline]
    pub(super) fn get<P>(&self, handle: *const P) -> Result<Used<'static, T>> {
        self.find(handle, Here::new()).ok_or_else(|| self.unknown(handle))
    }

    /// The same, `None` for whatever is wrong, for a thread that is `here`.
    #[inline(always)] // in the path of each short call
    pub(super) fn find<P>(&self, handle: *const P, here: Here) -> Option<Used<'static, T>> {
        let number = handle.addr() as u64;
        if number >> (SLOT_BITS + GENERATION_BITS) != self.prefix() {
            return None;
        }
        let slot = self.slots.get()?.get(handle.addr() & ((1 << SLOT_BITS) - 1))?;
        slot.enter(number >> SLOT_BITS & ((1 << GENERATION_BITS) - 1), here)
    }

    /// Takes what `handle` stands for out of the table: from now on the handle is refused.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub(super) fn take<P>(&self, handle: *const P) -> Result<Arc<T>> {
        let used = self.get(handle)?;
        let generation = handle.addr() as u64 >> SLOT_BITS & ((1 << GENERATION_BITS) - 1);
        match used.slot.close(generation) {
            true => Ok(Arc::clone(&used)),
            false => Err(self.unknown(handle)),
        }
    }

    fn number(&self, index: usize, generation: u64) -> u64 {
        self.prefix() << (SLOT_BITS + GENERATION_BITS) | generation << SLOT_BITS | index as u64
    }

    /// What all handles of this process begin with.
    fn prefix(&self) -> u64 {
        (u64::from(self.tag) << PROCESS_BITS) | (u64::from(fork::generation()) % (1 << PROCESS_BITS))
    }

    fn unknown<P>(&self, handle: *const P) -> Error {
        let prefix = handle.addr() as u64 >> (SLOT_BITS + GENERATION_BITS);
        if (u64::from(self.tag) << PROCESS_BITS..self.prefix()).contains(&prefix) {
            return Error::usage(format!(
                "{handle:p} belongs to the parent process: make a new one after the fork"
            ));
        }
        Error::invalid(match handle.is_null() {
            true => format!("the handle is NULL: it must be {}", self.noun),
            false => format!(
                "{handle:p} is not {}: it was destroyed, or never was one",
                self.noun
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_finds_its_value_until_it_is_taken() {
        let table = Table::new(0xc1, "a number");
        let (a, b): (*mut u8, *mut u8) = (table.insert(1).unwrap(), table.insert(2).unwrap());
        assert_eq!((**table.get(a).unwrap(), **table.get(b).unwrap()), (1, 2));
        assert_eq!(*table.take(a).unwrap(), 1);
        let gone = table.get(a).err().unwrap().to_string();
        assert!(gone.contains("is not a number: it was destroyed"), "{gone}");
        assert!(table.take(a).is_err());
        let c: *mut u8 = table.insert(3).unwrap();
        assert_ne!(a, c);
        assert!(table.get(a).is_err());
        assert_eq!((**table.get(b).unwrap(), **table.get(c).unwrap()), (2, 3));
    }

    #[test]
    fn who_takes_the_last_waits_for_short_uses_alone() {
        struct Noted(std::sync::mpsc::Sender<thread::ThreadId>);
        impl Drop for Noted {
            fn drop(&mut self) {
                let _ = self.0.send(thread::current().id());
            }
        }
        let (noted, dropped_by) = std::sync::mpsc::channel();
        let table = &Table::new(0xc1, "a number");
        for lasts in [1, 3000] {
            let handle: *mut u8 = table.insert(Noted(noted.clone())).unwrap();
            let (number, is_used) = (handle.addr(), std::sync::Barrier::new(2));
            thread::scope(|scope| {
                let user = scope.spawn(|| {
                    let _used = table.get(ptr::without_provenance_mut::<u8>(number)).unwrap();
                    is_used.wait();
                    thread::sleep(Duration::from_millis(lasts));
                    thread::current().id()
                });
                is_used.wait();
                drop_last(table.take(handle).unwrap());
                let user = user.join().unwrap();
                let by = dropped_by.recv().unwrap();
                assert_eq!(by == user, lasts > 1000, "{lasts}");
            });
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let (table, other) = (Table::new(0xc1, "a number"), Table::new(0xc2, "a word"));
        let handle: *mut u8 = table.insert(1).unwrap();
        let strange: *mut u8 = other.insert("one").unwrap();
        let on_stack = 0u8;
        let neighbours =
            [1, 1 << SLOT_BITS, 1 << (SLOT_BITS + GENERATION_BITS)].map(|d| handle.wrapping_byte_add(d));
        for garbage in [
            ptr::null(),
            &raw const on_stack,
            ptr::without_provenance(1),
            ptr::without_provenance(usize::MAX),
        ]
        .into_iter()
        .chain(neighbours.map(|p| p.cast_const()))
        .chain([strange.cast_const()])
        {
            assert!(table.get(garbage).is_err(), "{garbage:p}");
            assert!(table.take(garbage).is_err(), "{garbage:p}");
        }
        assert!(table.get(handle).is_ok());
    }

    #[test]
    fn a_child_begins_anew_even_if_the_lock_was_held() {
        fork::watch().unwrap();
        static TABLE: Table<u8> = Table::new(0xc1, "a number");
        let handle: *mut u8 = TABLE.insert(1).unwrap();
        let held = TABLE.slots().used();
        let child = fork::child(|| {
            let refused = [TABLE.get(handle).map(drop), TABLE.take(handle).map(drop)]
                .map(|r| matches!(r, Err(Error::Usage { .. })));
            let own: *mut u8 = TABLE.insert(2).unwrap();
            refused == [true, true] && own != handle && *TABLE.take(own).unwrap() == 2
        });
        let status = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty()).unwrap();
        assert_eq!(status.unwrap().1.exit_status(), Some(0));
        drop(held);
        assert_eq!(**TABLE.get(handle).unwrap(), 1);
    }

    #[test]
    fn a_slot_whose_generations_are_used_up_is_retired() {
        let table = Table::new(0xc1, "a number");
        let first: *mut u8 = table.insert(1).unwrap();
        table.take(first).unwrap();
        let slot = table.slots().get(0).unwrap();
        slot.state
            .store(((1 << GENERATION_BITS) - 1) * GENERATION + FREE, Relaxed);
        let second: *mut u8 = table.insert(2).unwrap();
        assert_eq!(second.addr() & ((1 << SLOT_BITS) - 1), 1);
    }

    /// A value that says when it is dropped.
    struct Told<'a>(&'a AtomicU64, u64);

    impl Drop for Told<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn a_value_in_use_stays_when_it_is_taken() {
        static DROPPED: AtomicU64 = AtomicU64::new(0);
        let table: Table<Told<'static>> = Table::new(0xc1, "a number");
        let handle: *mut u8 = table.insert(Told(&DROPPED, 7)).unwrap();
        let used = table.get(handle).unwrap();
        drop(table.take(handle).unwrap());
        assert!(table.get(handle).is_err());
        let other: *mut u8 = table.insert(Told(&DROPPED, 8)).unwrap();
        assert_eq!((used.1, DROPPED.load(Relaxed)), (7, 0));
        drop(used);
        assert_eq!(DROPPED.load(Relaxed), 1);
        assert_eq!(table.get(other).unwrap().1, 8);
    }

    #[test]
    fn slots_have_places_of_their_own() {
        let mut before = (0, 0);
        for index in 1..100_000 {
            let (part, at) = Slots::<u8>::place(index);
            assert!(at < FIRST << part && part < PARTS);
            let follows = [(before.0, before.1 + 1), (before.0 + 1, 0)];
            assert!(follows.contains(&(part, at)), "{index}");
            before = (part, at);
        }
        assert_eq!(Slots::<u8>::place((1 << SLOT_BITS) - 1).0, PARTS - 1);
    }

    /// Threads look up, take and insert all the time: each value is dropped once, and none while it is used.
    #[test]
    fn many_threads_come_and_go() {
        static TABLE: Table<Told<'static>> = Table::new(0xc1, "a number");
        static DROPPED: AtomicU64 = AtomicU64::new(0);
        let shared: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
        let made = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let (shared, made) = (&shared, &made);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    for _ in 0..20_000 {
                        let place = &shared[random.usize(..shared.len())];
                        let handle: *const u8 = ptr::without_provenance(place.load(Acquire) as usize);
                        match random.u8(..4) {
                            0 => drop(TABLE.take(handle)),
                            1 if place.load(Acquire) == 0 || TABLE.get(handle).is_err() => {
                                let value = made.fetch_add(1, Relaxed);
                                let new: *mut u8 = TABLE.insert(Told(&DROPPED, value)).unwrap();
                                let old: *const u8 =
                                    ptr::without_provenance(place.swap(new.addr() as u64, AcqRel) as usize);
                                drop(TABLE.take(old));
                            }
                            _ => {
                                if let Ok(used) = TABLE.get(handle) {
                                    assert!(used.1 < made.load(Relaxed));
                                }
                            }
                        }
                    }
                });
            }
        });
        for place in &shared {
            let handle: *const u8 = ptr::without_provenance(place.load(Relaxed) as usize);
            drop(TABLE.take(handle));
        }
        assert!(made.load(Relaxed) > 100);
        assert_eq!(DROPPED.load(Relaxed), made.load(Relaxed));
    }
}
