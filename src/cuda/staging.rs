//! [`Staging`]: pinned host memory through which an operation's data go, and the flags by which a stream of the device and the
//! host wait for each other.
//!
//! ```text
//! stream  copies the input in, writes READY, waits for DONE, copies the output out, writes FREE
//! host    sees READY, carries the operation out on the pinned memory, writes DONE
//! ```
//!
//! No host thread calls the driver for what a stream waits for. Memory is kept for later operations, and used again when both the
//! host is through with it and its stream has written FREE.
//!
//! *None is given back in a call*: the driver would wait for all streams of the context, those that the program itself holds up, too. Sizes
//! come in classes, each at most a quarter larger than the one before it but for the shortest, which double; so calls that come one after
//! the other have 6.5 times as much at most as the longest of them takes, however their lengths follow one another. What is idle beyond
//! [`MOST_KEPT`] goes when a communicator does ([`give_back`]).

use super::{
    driver::{Current, Driver, Stream},
    flags,
};
use crate::{
    mem::Region,
    sys::area::Area,
    types::{Error, Result},
};
use std::{
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool, AtomicU32,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

/// Pinned memory of one operation, until it is dropped.
pub(crate) struct Staging(Option<Memory>);

/// Memory, its address for streams, and which of its uses this is.
struct Memory {
    area: Area,
    address: u64,
    /// The id of the context in which it is pinned.
    context: u64,
    turn: u32,
    /// Whether no stream will write FREE. What one was given to do with it before, waits for no other rank.
    is_lost: AtomicBool,
}

/// What says that a turn has come to some point.
#[derive(Clone, Copy)]
enum Flag {
    Ready = 0,
    Done = 1,
    Free = 2,
}

/// Memory of this process.
static KEPT: Mutex<Kept> = Mutex::new(Kept {
    idle: Vec::new(),
    taken: 0,
});

struct Kept {
    /// That no operation of the host's uses.
    idle: Vec<Memory>,
    /// How many operations use some.
    taken: usize,
}

/// Each flag is alone in its line, and all in the first page.
const FLAG_BYTES: usize = 128;
const PAGE: usize = 4096;
/// Sizes of memory, but for the page of flags, are powers of two from here, and from there also quarters of the way to the next.
const LEAST: usize = 64 << 10;
const LARGE: usize = 64 << 20;
/// Idle memory beyond that is given back by who may wait.
const MOST_KEPT: usize = 256 << 20;

impl Staging {
    /// Memory for `len` bytes.
    ///
    /// # Errors
    /// [`Error::System`] and [`Error::Cuda`] when there is none.
    pub(crate) fn take(current: &Current<'_>, len: usize) -> Result<Self> {
        let bytes =
            size(len).ok_or_else(|| Error::invalid(format!("{len} bytes are too many to be staged")))?;
        let context = current.id()?;
        let mut kept = kept();
        let idle = kept.find(context, bytes);
        kept.taken += 1;
        drop(kept);
        let make = || Memory::new(current, context, bytes);
        let made = || {
            make().or_else(|why| {
                if make_room(current, context) {
                    make()
                } else {
                    Err(why)
                }
            })
        };
        let memory = idle.map_or_else(made, Ok);
        let mut memory = memory.inspect_err(|_| self::kept().taken -= 1)?;
        memory.turn = memory.turn.wrapping_add(1);
        Ok(Staging(Some(memory)))
    }

    /// The `len` bytes from `at` on.
    ///
    /// # Panics
    /// When there are not so many.
    pub(crate) fn part(&self, at: usize, len: usize) -> Region<'_> {
        let region = self.memory().area.region();
        region.part(PAGE, region.len() - PAGE).part(at, len)
    }

    /// Has `stream` copy memory of the device here, from byte `at` on.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(crate) fn copy_in(
        &self,
        current: &Current<'_>,
        stream: Stream,
        from: Region<'static>,
        at: usize,
    ) -> Result<()> {
        let to = self.part(at, from.len());
        // SAFETY: the pinned memory is given back only when its stream has told that it is free; whoever made the region answers
        // for the device's.
        unsafe { current.copy_to_host(stream, from.as_ptr(), to) }
    }

    /// Has `stream` copy what lies here from byte `at` on to memory of the device.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(crate) fn copy_out(
        &self,
        current: &Current<'_>,
        stream: Stream,
        at: usize,
        to: Region<'static>,
    ) -> Result<()> {
        let from = self.part(at, to.len());
        // SAFETY: as in `copy_in`.
        unsafe { current.copy_to_device(stream, to.as_ptr(), from) }
    }

    /// Whether the stream has copied the input.
    pub(crate) fn is_ready(&self) -> bool {
        self.memory().has(Flag::Ready)
    }

    /// Lets the stream go on.
    pub(crate) fn done(&self) {
        self.memory().set(Flag::Done);
    }

    /// Nothing in any stream uses it: none was given anything to do.
    pub(crate) fn is_unused(&self) {
        self.memory().set(Flag::Free);
    }

    /// Has `stream` say that it has copied the input.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(crate) fn tell_ready(&self, current: &Current<'_>, stream: Stream) -> Result<()> {
        self.memory().write(Flag::Ready, current, stream)
    }

    /// Has `stream` wait for the end of the operation.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(crate) fn wait_done(&self, current: &Current<'_>, stream: Stream) -> Result<()> {
        let memory = self.memory();
        // SAFETY: the flag's memory stays until the stream has written FREE, after this.
        unsafe { current.wait_flag(stream, memory.address_of(Flag::Done), memory.turn) }
    }

    /// Has `stream` say that it uses the memory no more, which is not used again where that fails.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(crate) fn tell_free(&self, current: &Current<'_>, stream: Stream) -> Result<()> {
        let memory = self.memory();
        let told = memory.write(Flag::Free, current, stream);
        // Who looks at it has the lock of `KEPT`, under which it comes there.
        told.inspect_err(|_| memory.is_lost.store(true, Relaxed))
    }

    fn memory(&self) -> &Memory {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Some(memory) = self.0.take() {
            let mut kept = kept();
            kept.idle.push(memory);
            kept.taken -= 1;
        }
    }
}

impl fmt::Debug for Staging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Staging(turn {})", self.memory().turn)
    }
}

/// Gives back what is idle beyond [`MOST_KEPT`] in this thread's current context, and flags that nobody uses, unless a stream of this process
/// waits for an operation: the driver waits for all streams of the context, those of other ranks too, which may wait for what comes next. So
/// this is for who may wait.
pub(crate) fn give_back() {
    let Some(Ok(driver)) = Driver::in_use() else {
        return;
    };
    let entered = driver
        .current()
        .ok()
        .flatten()
        .map(|context| driver.enter(context));
    if let Some(Ok(current)) = entered
        && let Ok(context) = current.id()
    {
        let mut kept = kept();
        if !kept.nothing_waits() {
            return;
        }
        let excess = kept.excess(context, MOST_KEPT);
        drop(kept); // calls go on meanwhile
        excess
            .iter()
            .for_each(|memory| current.unpin(memory.area.region()));
        flags::unpin_retired(&current);
    }
}

/// Gives back all that is idle in a context, for who has taken some and finds none, unless a stream waits for another operation. It may wait
/// for streams of the program's, which is better than to fail. Whether there was any.
fn make_room(current: &Current<'_>, context: u64) -> bool {
    let mut kept = kept();
    kept.taken -= 1;
    let may_wait = kept.nothing_waits();
    kept.taken += 1;
    let idle = if may_wait {
        kept.excess(context, 0)
    } else {
        Vec::new()
    };
    drop(kept);
    idle.iter().for_each(|memory| current.unpin(memory.area.region()));
    !idle.is_empty()
}

impl Kept {
    /// Whether no stream waits for an operation.
    fn nothing_waits(&self) -> bool {
        let is_quiet = |memory: &Memory| memory.is_free() || memory.is_lost.load(Relaxed);
        self.taken == 0 && self.idle.iter().all(is_quiet) && flags::nothing_waits()
    }

    /// The least of what is idle in a context and has so many bytes.
    fn find(&mut self, context: u64, bytes: usize) -> Option<Memory> {
        let sizes = bytes..=bytes.saturating_mul(4);
        let fits =
            |memory: &Memory| memory.context == context && sizes.contains(&memory.len()) && memory.is_free();
        let fitting = self.idle.iter().enumerate().filter(|(_, memory)| fits(memory));
        let (at, _) = fitting.min_by_key(|(_, memory)| memory.len())?;
        Some(self.idle.swap_remove(at))
    }

    /// The longest of what is idle in a context, so that `most` bytes are left at most.
    fn excess(&mut self, context: u64, most: usize) -> Vec<Memory> {
        self.idle.sort_unstable_by_key(Memory::len);
        let mut sum = 0;
        let is_excess = |memory: &mut Memory| {
            let is_here = memory.context == context;
            sum += if is_here { memory.len() } else { 0 };
            is_here && sum > most
        };
        self.idle.extract_if(.., is_excess).collect()
    }
}

impl Memory {
    fn new(current: &Current<'_>, context: u64, bytes: usize) -> Result<Self> {
        let (area, _) = Area::create("ccl-staging", PAGE + bytes)
            .map_err(|e| Error::system(format!("no memory to stage {bytes} bytes"), e))?;
        // SAFETY: it stays mapped until `give_back` has unpinned it.
        let address = unsafe { current.pin(area.region())? };
        Ok(Memory {
            area,
            address,
            context,
            turn: 0,
            is_lost: AtomicBool::new(false),
        })
    }

    fn len(&self) -> usize {
        self.area.region().len() - PAGE
    }

    /// Whether no stream uses it.
    fn is_free(&self) -> bool {
        self.has(Flag::Free)
    }

    fn has(&self, flag: Flag) -> bool {
        // Pairs with the stream's write: who sees the flag sees what the stream did before.
        self.flag(flag).load(Acquire) == self.turn
    }

    fn set(&self, flag: Flag) {
        self.flag(flag).store(self.turn, Release);
    }

    fn write(&self, flag: Flag, current: &Current<'_>, stream: Stream) -> Result<()> {
        // SAFETY: memory whose stream has not written FREE is not given back.
        unsafe { current.write_flag(stream, self.address_of(flag), self.turn) }
    }

    fn flag(&self, flag: Flag) -> &AtomicU32 {
        let place = self
            .area
            .region()
            .part(flag as usize * FLAG_BYTES, size_of::<u32>());
        // SAFETY: it is mapped and aligned as long as the area is there; all that use it, the device included, do so
        // atomically.
        unsafe { AtomicU32::from_ptr(place.as_ptr().cast()) }
    }

    fn address_of(&self, flag: Flag) -> u64 {
        self.address + (flag as usize * FLAG_BYTES) as u64
    }
}

fn kept() -> MutexGuard<'static, Kept> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bytes of memory for `len` bytes.
fn size(len: usize) -> Option<usize> {
    let power = len.checked_next_power_of_two()?.max(LEAST);
    match power {
        ..=LARGE => Some(power),
        _ => Some(len.next_multiple_of(power / 8)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_all_lengths_have_little_more_than_the_longest_needs() {
        let (mut sizes, mut len, longest) = (Vec::new(), 1, 10 << 30);
        while len <= longest {
            let bytes = size(len).unwrap();
            assert!(bytes >= len && (bytes <= LARGE || bytes <= len + len / 4 + 1));
            sizes.push(bytes);
            len = bytes + 1;
        }
        assert_eq!(sizes[..2], [LEAST, 2 * LEAST]);
        assert!(2 * sizes.iter().sum::<usize>() < 13 * size(longest).unwrap());
        assert_eq!(size(usize::MAX), None);
    }
}
