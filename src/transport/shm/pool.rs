//! [`Pool`]: the memory in which the bodies of a process's messages lie, of whatever link and communicator.
//!
//! It is a memfd, cut into chunks, which all receivers map, to read. A communicator leases chunks when it has bodies to send
//! and keeps them while there are enough; else it gives them back after each call. A message in a chunk that was given back may
//! not have been read yet: whoever leases the chunk next looks at that message's count first. So what a process needs is
//! bounded, however many communicators it has, and the caches hold the same few pages for all.

use super::{
    layout::{DEEP, Depth, SHALLOW, Segment},
    pace::Pace,
    room::{CHUNK, PAGE, PAGES, Pages, Row},
};
use crate::{
    mem::Region,
    sys::{
        area::Area,
        cache,
        fork::{self, ProcessFd},
        memfd::{Shared, identity},
        per_process::PerProcess,
        pidfd,
    },
};
use std::{
    cell::RefCell,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{
            AtomicBool, AtomicU8, AtomicU32, AtomicUsize,
            Ordering::{Acquire, Relaxed},
        },
    },
    time::{Duration, Instant},
};

/// Chunks of a process.
const CHUNKS: usize = 24;
/// Bytes of them all.
pub(super) const BYTES: usize = CHUNKS * CHUNK;
const _: () = assert!(
    CHUNKS <= u32::BITS as usize,
    "`Pool::populated` has a bit for each"
);
/// Chunks that a communicator may lease.
const LEASED: usize = 8;
/// How often a lease that finds no chunk looks whether receivers have ended.
const BURIALS_APART: Duration = Duration::from_millis(20);
/// Chunks that rooms go round, at most: so that two communicators that do leave enough.
const ROUND: usize = 4;
/// With fewer free ones all are given back after each call; so they are by a communicator that has leased all that it may.
const SHORT: usize = CHUNKS - LEASED + 1;

/// The memory for the bodies of this process's messages.
struct Pool {
    area: Area,
    fd: ProcessFd,
    free: Mutex<Vec<Free>>,
    /// How many can be leased.
    left: AtomicUsize,
    /// Those whose pages are all there, a bit each.
    populated: AtomicU32,
    /// When a lease last looked for the dead, which takes system calls.
    buried: Mutex<Option<Instant>>,
}

/// A chunk that nobody leases.
struct Free {
    chunk: usize,
    /// The messages in it that must have been read before it is used.
    unread: Vec<Unread>,
}

/// A message that its receiver may not have read yet.
pub(super) struct Unread {
    pub(super) segment: Shared<Segment>,
    pub(super) lane: usize,
    pub(super) number: u32,
    /// The receiver's, if it can be told whether it has ended.
    pub(super) process: Option<u32>,
}

impl Unread {
    /// Whether it was read, or never will be, as its receiver has given the link up.
    fn is_read(&self) -> bool {
        // Both pair with the Release in `inbound.rs`. No more messages than a lane holds are unread, however many have come since.
        let released = self.segment.released.0[self.lane].load(Acquire);
        let is_in_flight = self.number.wrapping_sub(released) < DEEP.messages() as u32;
        !is_in_flight || self.segment.left.0.load(Acquire) != 0
    }
}

static POOL: PerProcess<Pool> = PerProcess::new();

impl Pool {
    fn here() -> io::Result<&'static Pool> {
        POOL.get_or_try_init(|| {
            let (area, fd) = Area::create_guarded("ccl-pool", BYTES)?;
            let free = |chunk| Free {
                chunk,
                unread: Vec::new(),
            };
            Ok(Pool {
                area,
                fd: ProcessFd::adopt(fd),
                free: Mutex::new((0..CHUNKS).map(free).collect()),
                left: AtomicUsize::new(CHUNKS),
                populated: AtomicU32::new(0),
                buried: Mutex::default(),
            })
        })
    }

    fn free(&self) -> MutexGuard<'_, Vec<Free>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first chunk of which all has been read.
    fn lease(&self) -> Option<usize> {
        let mut free = self.free();
        self.prune(&mut free);
        let first = |free: &[Free]| free.iter().position(|free| free.unread.is_empty());
        let at = first(&free).or_else(|| {
            let mut buried = self.buried.lock().unwrap_or_else(PoisonError::into_inner);
            if buried.is_some_and(|buried| buried.elapsed() < BURIALS_APART) {
                return None;
            }
            self.bury(&mut free);
            *buried = Some(Instant::now());
            first(&free)
        })?;
        self.left.fetch_sub(1, Relaxed);
        Some(free.remove(at).chunk)
    }

    /// Has the pages of `chunk` there, all of which are written soon.
    fn populate(&self, chunk: usize) {
        let bit = 1 << chunk;
        if self.populated.fetch_or(bit, Relaxed) & bit == 0 {
            self.area.populate(chunk * CHUNK, CHUNK);
        }
    }

    /// Forgets what nobody will read any more, as its receiver's process has ended without a word.
    fn bury(&self, free: &mut [Free]) {
        let mut known: Vec<(u32, bool)> = Vec::new();
        let mut has_ended = |pid: u32| match known.iter().find(|(known, _)| *known == pid) {
            Some(&(_, ended)) => ended,
            None => {
                let ended = pidfd::has_ended(pid);
                known.push((pid, ended));
                ended
            }
        };
        for one in free.iter_mut() {
            one.unread
                .retain(|unread| !unread.process.is_some_and(&mut has_ended));
        }
        self.prune(free);
    }

    /// Forgets what was read meanwhile, and notes how many can be leased.
    fn prune(&self, free: &mut [Free]) {
        free.iter_mut()
            .for_each(|free| free.unread.retain(|unread| !unread.is_read()));
        let ready = free.iter().filter(|free| free.unread.is_empty()).count();
        self.left.store(ready, Relaxed);
    }

    fn give_back(&self, back: impl Iterator<Item = Free>) {
        let mut free = self.free();
        free.extend(back);
        free.sort_unstable_by_key(|free| free.chunk);
        self.prune(&mut free);
    }
}

/// How many messages for a process may still have to be read in chunks that nobody leases.
#[cfg(test)]
pub(super) fn unread_by(process: u32) -> usize {
    let free = POOL.get().map(Pool::free);
    let unread = free
        .iter()
        .flat_map(|free| free.iter())
        .flat_map(|free| &free.unread);
    unread.filter(|unread| unread.process == Some(process)).count()
}

/// A descriptor of this process's pool, for a receiver.
pub(super) fn descriptor() -> io::Result<OwnedFd> {
    Pool::here()?.fd.as_fd().try_clone_to_owned()
}

/// The pool of a sender's process, mapped once for all links from there.
pub(super) fn open(fd: impl AsFd) -> io::Result<Arc<Area>> {
    static OPENED: PerProcess<Mutex<Vec<Opened>>> = PerProcess::new();
    let opened = OPENED.get_or_try_init(|| Ok::<_, io::Error>(Mutex::default()))?;
    let who = identity(&fd)?;
    let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
    opened.retain(|(_, area)| area.strong_count() > 0);
    let known = opened.iter().find(|(other, _)| *other == who);
    if let Some(area) = known.and_then(|(_, area)| area.upgrade()) {
        return Ok(area);
    }
    let area = Arc::new(Area::open_guarded(fd, BYTES)?);
    opened.push((who, Arc::downgrade(&area)));
    Ok(area)
}

/// A file, and where it is mapped.
type Opened = ((u64, u64), Weak<Area>);

/// The body of `len` bytes at `at` of a pool, if there is room for one.
#[inline]
pub(super) fn body(pool: &Area, at: u32, len: usize) -> Option<Region<'_>> {
    pool.region().get(at as usize, len)
}

/// Where a body lies: pages of the pool.
///
/// It is one word, as a struct of several would be written in pieces and read whole: that waits until all stores before it are done, and
/// those of the last message go to lines that its receiver holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room(u64);

impl Room {
    /// Pages from byte `at` of the pool on, which are of the lease's chunk number `place`.
    #[inline]
    fn new(at: usize, pages: u8, place: usize) -> Room {
        Room(at as u64 & u64::from(u32::MAX) | u64::from(pages) << 32 | (place as u64) << 40)
    }

    /// What [`Room::word`] gave.
    #[inline]
    pub(super) fn of_word(word: u64) -> Room {
        Room(word)
    }

    #[inline]
    pub(super) fn word(self) -> u64 {
        self.0
    }

    /// No word is less: no room is without pages.
    pub(super) const LEAST: u64 = 1 << 32;

    /// In bytes from the pool's beginning.
    #[inline]
    pub(super) fn at(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    fn pages(self) -> u8 {
        (self.0 >> 32) as u8
    }

    /// Which of the lease's chunks its pages are of.
    #[inline]
    fn place(self) -> usize {
        (self.0 >> 40) as usize
    }

    /// Whether `len` bytes fit as well.
    #[inline]
    pub(super) fn holds(self, len: usize) -> bool {
        len <= usize::from(self.pages()) * PAGE
    }

    #[inline]
    fn chunk(self) -> usize {
        self.at() as usize / CHUNK
    }

    #[inline]
    fn row(self) -> Row {
        Row {
            first: (self.at() as usize % CHUNK / PAGE) as u8,
            pages: self.pages(),
        }
    }
}

/// The chunks that the links of a communicator have leased. It belongs to one thread at a time, as they do.
pub(crate) struct Lease {
    /// Whose they are: a forked child has none of them.
    generation: u32,
    pool: OnceLock<&'static Pool>,
    chunks: [Leased; LEASED],
    /// How many chunks rooms go round; 0: they stay where they are.
    round: usize,
    /// Whether it is worth a look how bodies are best written.
    watches: bool,
    /// Where the next room may begin, in pages of the round.
    next: AtomicU32,
    pace: Pace,
    /// [`FIRST`] and [`DEEP_ONES`], if it is one of those that have them.
    deep: Option<[Arc<()>; 2]>,
    /// [`OPEN_ONES`], if it is one of those whose links use their open slots; not known before the first is wanted.
    opens: OnceLock<Option<Arc<()>>>,
    /// What is said of unread messages while chunks are given back.
    unread: Mutex<Vec<(usize, Unread)>>,
    /// Whether there are lanes whose own slots have pages.
    has_own: AtomicBool,
}

/// A place for a leased chunk.
#[derive(Default)]
struct Leased {
    /// One more than the chunk's number; 0: there is none.
    chunk: AtomicU32,
    pages: Pages,
    /// How many messages each row of pages is the body of, at its first page.
    holders: Holders,
}

struct Holders([AtomicU8; super::room::PAGES]);

impl Default for Holders {
    fn default() -> Self {
        Holders([const { AtomicU8::new(0) }; super::room::PAGES])
    }
}

impl Leased {
    fn chunk(&self) -> Option<usize> {
        (self.chunk.load(Relaxed) as usize).checked_sub(1)
    }
}

impl Default for Lease {
    fn default() -> Self {
        Lease {
            generation: fork::generation(),
            pool: OnceLock::new(),
            chunks: Default::default(),
            round: 0,
            watches: false,
            next: AtomicU32::new(0),
            pace: Pace::default(),
            deep: None,
            opens: OnceLock::new(),
            unread: Mutex::default(),
            has_own: AtomicBool::new(false),
        }
    }
}

thread_local! {
    /// What the first lease has of those that this thread has made and that still are: a program makes most of its calls in its first
    /// communicator, and others are many.
    /// Beside it, of which process that is: a forked child's first one is its own.
    static FIRST: RefCell<(u32, Weak<()>)> = const { RefCell::new((0, Weak::new())) };
}

/// What all leases of a process have whose links are deep. Communicators that are made in the background are each the first of a thread.
static DEEP_ONES: PerProcess<Arc<()>> = PerProcess::new();

/// How many there may be: one for each rank, where ranks are threads.
const MOST_DEEP: usize = 16;

/// What all leases of a process have whose links use their open slots: the memory of these stays with the link.
static OPEN_ONES: PerProcess<Arc<()>> = PerProcess::new();

/// How many there may be.
const MOST_OPEN: usize = 16;

/// What all of `ones` have, if there are fewer than `most`.
fn one_of(ones: &'static PerProcess<Arc<()>>, most: usize) -> Option<Arc<()>> {
    let all = ones.get_or_try_init(|| Ok::<_, io::Error>(Arc::default())).ok()?;
    // One is that of the static.
    (Arc::strong_count(all) <= most).then(|| Arc::clone(all))
}

/// [`FIRST`], if no lease has it, and [`DEEP_ONES`].
fn first() -> Option<[Arc<()>; 2]> {
    let all = one_of(&DEEP_ONES, MOST_DEEP)?;
    let take = |first: &RefCell<(u32, Weak<()>)>| {
        let mut first = first.borrow_mut();
        let (generation, it) = (fork::generation(), Arc::new(()));
        if first.0 == generation && first.1.strong_count() > 0 {
            return None;
        }
        *first = (generation, Arc::downgrade(&it));
        Some([it, all.clone()])
    };
    FIRST.try_with(take).ok().flatten()
}

impl Lease {
    /// One that suits the processor: where its cores keep what they have read, a rank looks how its bodies are best written, and if
    /// ranks have cores of their own, rooms go round.
    pub(crate) fn of_processor(has_own_cores: bool) -> Self {
        let mut lease = Lease::default();
        lease.deep = (!has_own_cores).then(first).flatten();
        if let Some(kept) = cache::keeps_what_it_reads() {
            lease.watches = true;
            lease.round = match has_own_cores {
                true => (2 * kept).div_ceil(CHUNK).min(ROUND),
                false => 0,
            };
        }
        lease
    }

    /// One whose rooms go round so many chunks.
    #[cfg(test)]
    pub(super) fn round_of(chunks: usize) -> Self {
        let mut lease = Lease::default();
        (lease.watches, lease.round) = (chunks > 0, chunks);
        lease
    }

    /// Whether its links may use their open slots.
    #[inline]
    pub(super) fn opens(&self) -> bool {
        self.opens.get_or_init(|| one_of(&OPEN_ONES, MOST_OPEN)).is_some()
    }

    /// How deep its links' lanes are.
    pub(crate) fn depth(&self) -> Depth {
        self.deep.as_ref().map_or(SHALLOW, |_| DEEP)
    }

    /// One whose links have deep lanes.
    #[cfg(test)]
    pub(super) fn deep() -> Self {
        let mut lease = Lease::default();
        lease.deep = Some(Default::default());
        lease
    }

    /// Whether it is worth a look how far away receivers are.
    #[inline]
    pub(super) fn watches(&self) -> bool {
        self.watches
    }

    /// How fast this rank writes, if its rooms go round.
    #[inline]
    pub(super) fn pace(&self) -> Option<&Pace> {
        (self.round > 0).then_some(&self.pace)
    }

    /// Whether this is the process that leases.
    pub(super) fn is_here(&self) -> bool {
        self.generation == fork::generation()
    }

    /// Room for a body of `len` bytes.
    #[inline(always)] // in the path of each message
    pub(super) fn take(&self, len: usize) -> Option<Room> {
        self.take_next(len).or_else(|| self.take_any(len))
    }

    /// That of the next pages of the round, or of the first ones where there is none: most often they are free.
    #[inline(always)] // in the path of each message
    fn take_next(&self, len: usize) -> Option<Room> {
        let next = self.next_page();
        let (place, _) = next.unwrap_or_default();
        let leased = &self.chunks[place];
        let chunk = leased.chunk()?;
        let row = match next {
            Some((_, page)) => leased.pages.take_at(page, len)?,
            None => leased.pages.take(0, len)?,
        };
        Some(self.taken(place, chunk, row))
    }

    /// Where the next room of the round may begin: a place for a chunk, and a page of it.
    #[inline]
    fn next_page(&self) -> Option<(usize, usize)> {
        let next = self.next.load(Relaxed) as usize;
        (self.round > 0).then_some((next / PAGES % LEASED, next % PAGES))
    }

    #[inline(never)] // so that the usual way does not pay for it
    fn take_any(&self, len: usize) -> Option<Room> {
        if let Some((place, page)) = self.next_page() {
            let after = (place + 1) % self.round;
            let room = self
                .take_of(place, page, len)
                .or_else(|| self.take_of(after, 0, len));
            if room.is_some() {
                return room;
            }
        }
        let is_leased = |place: &usize| self.chunks[*place].chunk().is_some();
        let room = (0..LEASED)
            .filter(is_leased)
            .find_map(|place| self.take_of(place, 0, len));
        // What the pool refuses to one place it refuses to all.
        room.or_else(|| {
            let first = (0..LEASED).find(|place| !is_leased(place))?;
            self.take_of(first, 0, len)
        })
    }

    /// Room in one chunk, which is leased if it is not yet, from page `from` on.
    fn take_of(&self, place: usize, from: usize, len: usize) -> Option<Room> {
        let leased = &self.chunks[place];
        let chunk = match leased.chunk() {
            Some(chunk) => chunk,
            // `is_wanted` looks at the first place alone. A chunk may have come back since that one found none.
            None if place > 0 && self.chunks[0].chunk().is_none() => return self.take_of(0, 0, len),
            None => {
                let pool = self.pool()?;
                let chunk = pool.lease()?;
                if self.round > 0 {
                    pool.populate(chunk);
                }
                leased.chunk.store(chunk as u32 + 1, Relaxed);
                chunk
            }
        };
        let row = leased.pages.take(from, len)?;
        Some(self.taken(place, chunk, row))
    }

    /// The room of a row that was taken a moment ago.
    #[inline]
    fn taken(&self, place: usize, chunk: usize, row: Row) -> Room {
        let first = usize::from(row.first);
        self.chunks[place].holders.0[first].store(1, Relaxed);
        if place < self.round {
            let after = place * PAGES + first + usize::from(row.pages);
            let is_last = after == self.round * PAGES;
            self.next.store(if is_last { 0 } else { after as u32 }, Relaxed);
        }
        Room::new(chunk * CHUNK + first * PAGE, row.pages, place)
    }

    /// One more message has its body there. `false` if there are too many.
    pub(super) fn share(&self, room: Room) -> bool {
        let Some(leased) = self.leased(room) else {
            return false;
        };
        let holders = &leased.holders.0[usize::from(room.row().first)];
        let more = holders.load(Relaxed).checked_add(1);
        more.inspect(|&more| holders.store(more, Relaxed)).is_some()
    }

    /// A message that has its body there was read.
    #[inline]
    pub(super) fn give(&self, room: Room) {
        let Some(leased) = self.leased(room) else {
            return;
        };
        let holders = &leased.holders.0[usize::from(room.row().first)];
        let left = holders.load(Relaxed).saturating_sub(1);
        holders.store(left, Relaxed);
        if left == 0 {
            leased.pages.give(room.row());
        }
    }

    /// Where a body of `len` bytes lies.
    #[inline]
    pub(super) fn body(&self, room: Room, len: usize) -> Option<Region<'static>> {
        body(&self.pool()?.area, room.at(), len)
    }

    /// The chunk of a room, if it has not been given back.
    #[inline]
    fn leased(&self, room: Room) -> Option<&Leased> {
        let leased = &self.chunks[room.place()];
        (leased.chunk() == Some(room.chunk())).then_some(leased)
    }

    #[inline]
    fn pool(&self) -> Option<&'static Pool> {
        if let Some(pool) = self.pool.get() {
            return Some(pool);
        }
        // It was there when the first link was made.
        let pool = Pool::here().ok()?;
        Some(self.pool.get_or_init(|| pool))
    }

    /// Whether chunks that are leased here are wanted elsewhere, or lanes have pages of their own.
    #[inline(always)] // in the path of each short call
    pub(crate) fn is_wanted(&self) -> bool {
        self.has_own.load(Relaxed) || self.chunks[0].chunk.load(Relaxed) != 0 && self.is_short()
    }

    /// Whether lanes have pages of their own, as far as is known.
    pub(crate) fn set_has_own(&self, has_own: bool) {
        self.has_own.store(has_own, Relaxed);
    }

    /// Whether few chunks are left: the process has many communicators, each of which is to take little memory.
    #[inline]
    pub(super) fn is_short(&self) -> bool {
        self.pool().is_some_and(|pool| pool.left.load(Relaxed) < SHORT)
    }

    /// A message in a chunk that is about to be given back, if it is in one.
    pub(super) fn leave(&self, room: Room, unread: Unread) {
        self.unread().push((room.chunk(), unread));
    }

    fn unread(&self) -> MutexGuard<'_, Vec<(usize, Unread)>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives all chunks back. Of each message that is in flight [`Lease::leave`] was told.
    pub(crate) fn give_back(&self) {
        let Some(pool) = self.pool.get() else {
            return;
        };
        let mut unread = std::mem::take(&mut *self.unread());
        // The first place is leased first: it says whether any is.
        self.next.store(0, Relaxed);
        pool.give_back(self.chunks.iter().filter_map(|leased| {
            let chunk = leased.chunk()?;
            leased.chunk.store(0, Relaxed);
            leased.pages.clear();
            let unread = unread.extract_if(.., |(of, _)| *of == chunk);
            let unread = unread.map(|(_, unread)| unread).collect();
            Some(Free { chunk, unread })
        }));
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.is_here() {
            self.give_back();
            // It may be given up because of a death.
            if let Some(pool) = self.pool.get() {
                pool.bury(&mut pool.free());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_only_so_many_of_a_process() {
        static ONES: PerProcess<Arc<()>> = PerProcess::new();
        let mut taken: Vec<_> = (0..5).map(|_| one_of(&ONES, 3)).collect();
        assert_eq!(taken.iter().flatten().count(), 3);
        taken.remove(0);
        assert!(one_of(&ONES, 3).is_some());
    }

    #[test]
    fn the_first_place_is_leased_first() {
        for place in 0..LEASED {
            let lease = Lease::default();
            let room = lease.take_of(place, 0, PAGE).unwrap();
            assert_eq!((room.place(), lease.leased(room).is_some()), (0, true));
            assert!(lease.take_of(1, 0, PAGE).is_some_and(|room| room.place() == 1));
        }
    }
}
