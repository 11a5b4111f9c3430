//! [`Window`]: memory of a device in which the kernels of all ranks of a host read and write, and the kernels.
//!
//! A rank tells the others of its window by a [`Card`]. Those of the same process use its address, others map it by CUDA IPC.
//! A window is never given back, because nobody knows when the last of the others has unmapped it: the process uses it again, as soon
//! as all ranks have left the communicator that had it. A rank that died never leaves.
//!
//! Behind a window is its rank's [`Entry`]: where the buffers of the rank's call are, while it is under way. Where all ranks are in one
//! context, in which each can use the memory of all, kernels of captured calls find the buffers there, and windows stay empty.

use super::{
    allocation::Allocation,
    aside,
    driver::{Capture, Context, Current, Driver, Event, Stream},
    events::Events,
    flags::Users,
    kernels::args::{
        ArriveArgs, CopyArgs, Entry, InCall, Lie, Meeting, Range, ReduceArgs, Reducing, Row, Swap, SwapArgs,
    },
    loaded::Loaded,
    queues,
    symbols::{Address, IpcHandle},
};
use crate::{
    mem::Region,
    types::{Error, Result},
};
use std::{
    ffi::{c_int, c_void},
    fmt, mem,
    num::NonZero,
    process, ptr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Bytes of a window.
pub(crate) const BYTES: usize = 32 << 20;

/// What a rank tells the others of its window; all 0: it has none.
pub(crate) const CARD: usize = 96;
pub(crate) type Card = [u8; CARD];

/// This rank's window, and where it has those of all ranks.
pub(crate) struct Window {
    driver: &'static Driver,
    context: Context,
    /// None once it was given back.
    own: Option<Own>,
    all: Vec<Address>,
    /// Whether all ranks are in one context.
    together: bool,
}

/// A call of all ranks, where each finds the buffers of the others: what a rank's kernel does of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Together<'r> {
    pub(crate) call: InCall,
    /// Elements.
    pub(crate) count: usize,
    /// The ranks whose sources are reduced, so many bytes behind where their send buffers begin.
    pub(crate) sources: (&'r [usize], usize),
    /// And those to whose destinations the result goes, of their receive buffers.
    pub(crate) destinations: (&'r [usize], usize),
}

/// Where the rows of a reduction have their sources, or their destinations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows<'r> {
    pub(crate) regions: &'r [Region<'static>],
    /// Whether each row has one of its own; else all have all.
    pub(crate) is_one: bool,
    /// Bytes further in each row.
    pub(crate) step: usize,
}

/// A window that a process uses for one communicator after the other.
struct Own {
    /// The context's id.
    context: u64,
    memory: Allocation,
    order: Mutex<Order>,
    kernels: Arc<Loaded>,
}

/// The order of the operations that use a window, whatever their streams: one after the other.
pub(crate) struct Order {
    /// The end of the last one that was not captured.
    last: Event,
    /// By capture, the end of the last one that was captured into it, the latest last: no stream waits for a point in another capture.
    /// In a capture since whose last call as many others had one as there are events, calls in one stream each are still in order.
    captured: Vec<(Event, Option<u64>)>,
}

/// Captures by turns in which the calls of a communicator are in order, whatever their streams.
const MOST_CAPTURES: usize = 8;

/// Windows that no communicator of this process has, and who may still use them.
static IDLE: Mutex<Vec<(Own, Option<Users>)>> = Mutex::new(Vec::new());

impl Window {
    /// A window in `context`, which has to be one: a thread that has set no device would have it on device 0.
    ///
    /// # Errors
    /// Why there is none, in a line.
    pub(crate) fn new(context: Option<Context>) -> Result<Self, String> {
        let driver = Driver::in_use().ok_or("nothing has loaded the CUDA driver")??;
        let context = context.ok_or("no CUDA context was current where the communicator was made")?;
        let made = Ok::<_, Error>(context).and_then(|context| {
            let current = driver.enter(context)?;
            let (id, mut idle) = (driver.id_of(context)?, idle());
            let is_free = |(own, users): &(Own, Option<Users>)| {
                own.context == id && users.as_ref().is_none_or(Users::have_left)
            };
            let own = match idle.iter().position(is_free) {
                Some(at) => idle.swap_remove(at).0,
                None => Own::new(driver, context, &current)?,
            };
            Ok(Window {
                driver,
                context,
                own: Some(own),
                all: Vec::new(),
                together: false,
            })
        });
        made.map_err(|error| error.to_string())
    }

    fn own(&self) -> &Own {
        self.own.as_ref().expect("it is there until it is dropped")
    }

    /// The context that it is in.
    pub(crate) fn context(&self) -> Context {
        self.context
    }

    /// The events of that context.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(crate) fn events(&self) -> Result<Arc<Events>> {
        Events::of(self.driver, self.context)
    }

    /// That context, as the current one.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(crate) fn enter(&self) -> Result<Current<'static>> {
        self.driver.enter(self.context)
    }

    /// What the others are told.
    ///
    /// # Errors
    /// Why they could not use it, in a line.
    pub(crate) fn card(&self) -> Result<Card, String> {
        let current = self.enter();
        let _current = current.map_err(|error| error.to_string())?;
        let mut handle = IpcHandle([0; 64]);
        // SAFETY: it writes the handle.
        let result = unsafe { (self.driver.symbols.export)(&raw mut handle, self.own().memory.address()) };
        let exported = self.driver.checked("cuIpcGetMemHandle", result);
        exported.map_err(|error| error.to_string())?;
        let mut card = [0; CARD];
        let [id, place, context] = self.home();
        let numbers = [id, place, context, self.own().memory.address()];
        for (to, number) in card.chunks_exact_mut(8).zip(numbers) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        card[32..].copy_from_slice(&handle.0);
        Ok(card)
    }

    /// Opens the windows of all ranks, by rank, of which `rank` is this one.
    ///
    /// # Errors
    /// Why one cannot be used, in a line.
    pub(crate) fn open(&mut self, cards: &[Card], rank: usize) -> Result<(), String> {
        let current = self.enter();
        let _current = current.map_err(|error| error.to_string())?;
        let open = |(of, card): (usize, &Card)| {
            let opened = match of == rank {
                true => Ok(self.own().memory.address()),
                false => self.opened(card),
            };
            opened.map_err(|error| format!("the window of rank {of}: {error}"))
        };
        // No call so far: all ranks count from here.
        let cleared = self
            .own()
            .memory
            .write(BYTES, Region::of(&[0u8; size_of::<Entry>()]));
        cleared.map_err(|error| error.to_string())?;
        self.all = cards.iter().enumerate().map(open).collect::<Result<_, _>>()?;
        let is_here = |card: &Card| numbers(card)[..3] == self.home();
        self.together = self.own().kernels.writes_long && cards.iter().all(is_here);
        Ok(())
    }

    /// Whether kernels find the buffers of all ranks, by [`Window::entry`]: all say the same.
    pub(crate) fn is_together(&self) -> bool {
        self.together
    }

    /// Its process, by number and by where it has this library (processes of several containers may have the same number), and its
    /// context.
    fn home(&self) -> [u64; 3] {
        let context = self.context.0.addr() as u64;
        [process::id().into(), (&raw const IDLE).addr() as u64, context]
    }

    /// Another rank's window, in the current context.
    fn opened(&self, card: &Card) -> Result<Address> {
        let symbols = &self.driver.symbols;
        let [id, place, context, at] = numbers(card);
        if [id, place] == self.home()[..2] {
            let context: *mut c_void = ptr::without_provenance_mut(context as usize);
            if context == self.context.0 {
                return Ok(at);
            }
            // SAFETY: a context of this process, which has the other rank's window.
            let result = unsafe { (symbols.enable_peer)(context, 0) };
            if result != ALREADY_ENABLED {
                self.driver.checked("cuCtxEnablePeerAccess", result)?;
            }
            return Ok(at);
        }
        let mut handle = IpcHandle([0; 64]);
        handle.0.copy_from_slice(&card[32..]);
        let mut there = 0;
        // SAFETY: it writes the address; a handle that is none is refused.
        let result = unsafe { (symbols.import)(&raw mut there, handle, LAZY_PEER_ACCESS) };
        self.driver.checked("cuIpcOpenMemHandle", result)?;
        Ok(there)
    }

    /// The window of `rank`, as memory of the device.
    pub(crate) fn of(&self, rank: usize) -> Region<'static> {
        let at = ptr::with_exposed_provenance_mut(self.all[rank] as usize);
        // SAFETY: windows stay, and have so many bytes; who opened it may read and write it.
        unsafe { Region::from_raw(at, BYTES) }
    }

    /// The order of the operations that use it. Who has it gives its stream an operation.
    pub(crate) fn order(&self) -> MutexGuard<'_, Order> {
        self.own().order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This rank's own, for the host to write and to read.
    pub(crate) fn memory(&self) -> &Allocation {
        &self.own().memory
    }

    /// Has `stream` copy `from` to `to`, both memory of devices.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    ///
    /// # Panics
    /// When the lengths differ.
    pub(crate) fn copy(
        &self,
        current: &Current<'_>,
        stream: Stream,
        to: Region<'static>,
        from: Region<'static>,
    ) -> Result<()> {
        assert_eq!(
            to.len(),
            from.len(),
            "a copy between regions of different lengths"
        );
        // SAFETY: windows stay; whoever made the other regions answers for them.
        unsafe { current.copy(stream, address(&to), address(&from), to.len()) }
    }

    /// Has `stream` copy all these, from the second to the first of each two, by one kernel.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    ///
    /// # Panics
    /// When the lengths of two differ.
    pub(crate) fn copy_all(
        &self,
        current: &Current<'_>,
        stream: Stream,
        pairs: &[[Region<'static>; 2]],
    ) -> Result<()> {
        let range = |[to, from]: &[Region<'static>; 2]| {
            assert_eq!(
                to.len(),
                from.len(),
                "a copy between regions of different lengths"
            );
            Range {
                from: address(from),
                to: address(to),
                bytes: to.len() as u64,
            }
        };
        let ranges: Vec<Range> = pairs.iter().map(range).collect();
        let launch =
            CopyArgs::new(&ranges).ok_or_else(|| Error::internal("more ranges than a kernel copies"))?;
        // SAFETY: as in `copy`.
        unsafe { self.own().kernels.launch(current, stream, launch) }
    }

    /// The same, at once.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(crate) fn copy_all_now(&self, pairs: &[[Region<'static>; 2]]) -> Result<()> {
        let stream = aside::stream(self.driver, self.context)?;
        let current = self.enter()?;
        self.copy_all(&current, stream, pairs)?;
        current.synchronize(stream)
    }

    /// Has `stream` reduce all sources into each of the destinations.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    ///
    /// # Panics
    /// When their lengths differ.
    pub(crate) fn reduce(
        &self,
        current: &Current<'_>,
        stream: Stream,
        how: &Reducing<'_>,
        sources: &[Region<'static>],
        destinations: &[Region<'static>],
    ) -> Result<()> {
        let bytes = sources.first().map_or(0, Region::len);
        let is_so_long = |region: &Region<'_>| region.len() == bytes;
        assert!(
            sources.iter().chain(destinations).all(is_so_long),
            "a reduction of regions of different lengths"
        );
        let addresses = |regions: &[Region<'static>]| -> Vec<u64> { regions.iter().map(address).collect() };
        let (sources, destinations) = (addresses(sources), addresses(destinations));
        let count = (bytes / how.dtype.size()) as u64;
        let launch = ReduceArgs::new(how, count, Lie::default(), &sources, &destinations)
            .ok_or_else(|| Error::internal("no kernel reduces so"))?;
        // SAFETY: as in `copy`.
        unsafe { self.own().kernels.launch(current, stream, launch) }
    }

    /// A call of all ranks in which kernels find their buffers, by a number that calls which differ do not have, for the rank with this number;
    /// a word that becomes 1 where its kernel does nothing; whom its kernel tells that it has come so far.
    ///
    /// # Panics
    /// Of more ranks than kernels take.
    pub(crate) fn in_call(&self, number: NonZero<u64>, rank: usize, nobody: u64, meeting: Meeting) -> InCall {
        let entries = (0..self.all.len()).map(|rank| self.entry_of(rank));
        InCall::new(number, rank, entries, nobody, meeting).expect("no more ranks than kernels take")
    }

    /// Has `stream` begin a call on these buffers of this rank's: others find them once it has told them.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(crate) fn arrive(
        &self,
        current: &Current<'_>,
        stream: Stream,
        what: InCall,
        buffers: [&Region<'static>; 2],
    ) -> Result<()> {
        let launch = ArriveArgs::new(what, buffers.map(address));
        // SAFETY: it writes to the window and to the flags, which stay.
        unsafe { self.own().kernels.launch(current, stream, launch) }
    }

    fn entry_of(&self, rank: usize) -> u64 {
        self.all[rank] + BYTES as u64
    }

    /// Has `stream` reduce the sources of some ranks into the destinations of some, if all ranks are in this call.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(crate) fn reduce_together(
        &self,
        current: &Current<'_>,
        stream: Stream,
        how: &Reducing<'_>,
        what: &Together<'_>,
    ) -> Result<()> {
        let entries = |ranks: &[usize]| ranks.iter().map(|&rank| self.entry_of(rank)).collect::<Vec<_>>();
        let lie = Lie {
            call: what.call,
            source_at: what.sources.1 as u64,
            destination_at: what.destinations.1 as u64,
        };
        let (sources, destinations) = (entries(what.sources.0), entries(what.destinations.0));
        let launch = ReduceArgs::new(how, what.count as u64, lie, &sources, &destinations)
            .ok_or_else(|| Error::internal("no kernel reduces so"))?;
        // SAFETY: where the kernel uses the buffers of ranks all kernels of the call have agreed that all ranks are in it (`is_agreed` in
        // sides.h), and a rank's stream leaves it when they are through (`Flags::release`); whose buffers these are answers for them until
        // then.
        unsafe { self.own().kernels.launch(current, stream, launch) }
    }

    /// Has `stream` do `me`'s part of the exchange of blocks, of so many bytes, of all ranks, if all are in this call.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(crate) fn swap_together(
        &self,
        current: &Current<'_>,
        stream: Stream,
        what: InCall,
        (me, block): (usize, usize),
    ) -> Result<()> {
        let swaps = Swap::with_all(me, self.all.len(), block as u64);
        let launch = SwapArgs::new(what, (me * block) as u64, &swaps)
            .ok_or_else(|| Error::internal("a call of other ranks than those of the windows"))?;
        // SAFETY: as in `reduce_together`.
        unsafe { self.own().kernels.launch(current, stream, launch) }
    }

    /// Has `stream` reduce `count` elements in each of so many rows, from the first of these sides to the second.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    ///
    /// # Panics
    /// When a row reaches beyond a region.
    pub(crate) fn reduce_rows(
        &self,
        current: &Current<'_>,
        stream: Stream,
        how: &Reducing<'_>,
        (rows, count): (usize, usize),
        sides: [&Rows<'_>; 2],
    ) -> Result<()> {
        let longest = |side: &Rows<'_>| (rows - 1) * side.step + count * how.dtype.size();
        let holds = |side: &&Rows<'_>| side.regions.iter().all(|region| region.len() >= longest(side));
        assert!(sides.iter().all(holds), "a reduction of more than there is");
        let [sources, destinations] = sides.map(|side| side.regions.iter().map(address).collect::<Vec<_>>());
        let row = |addresses, side: &Rows<'_>| Row {
            addresses,
            is_one: side.is_one,
            step: side.step as u64,
        };
        let (from, to) = (row(&sources, sides[0]), row(&destinations, sides[1]));
        let launch = ReduceArgs::in_rows(how, count as u64, rows, &from, &to)
            .ok_or_else(|| Error::internal("no kernel reduces so"))?;
        // SAFETY: as in `copy`.
        unsafe { self.own().kernels.launch(current, stream, launch) }
    }

    /// Has `stream` do `me`'s part of the exchange of blocks, of so many bytes, between ranks with these buffers to send and to receive.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    ///
    /// # Panics
    /// When a buffer is shorter than the blocks of all ranks.
    pub(crate) fn swap_between(
        &self,
        current: &Current<'_>,
        stream: Stream,
        me: usize,
        ends: &[[Region<'static>; 2]],
        block: usize,
    ) -> Result<()> {
        let is_long = |region: &Region<'_>| region.len() >= block * ends.len();
        assert!(
            ends.iter().flatten().all(is_long),
            "an exchange of more than there is"
        );
        let ends: Vec<_> = ends
            .iter()
            .map(|[send, recv]| [address(send), address(recv)])
            .collect();
        let launch = SwapArgs::between(me, &ends, block as u64)
            .ok_or_else(|| Error::internal("more ranks than a kernel takes"))?;
        // SAFETY: as in `copy`.
        unsafe { self.own().kernels.launch(current, stream, launch) }
    }

    /// Leaves it to a later communicator, once these have left; without any no stream uses it.
    pub(crate) fn give_back(&mut self, users: Option<Users>) {
        idle().extend(self.own.take().map(|own| (own, users)));
    }
}

impl Own {
    fn new(driver: &'static Driver, context: Context, current: &Current<'_>) -> Result<Self> {
        let kernels = Loaded::of(driver, context)?;
        let memory = Allocation::new(driver, context, BYTES + size_of::<Entry>())?;
        // All of them now, while nothing is captured.
        let event = || Event::new(current, driver);
        let captured = (0..MOST_CAPTURES).map(|_| Ok((event()?, None)));
        let order = Mutex::new(Order {
            last: event()?,
            captured: captured.collect::<Result<_>>()?,
        });
        queues::prepare(driver, context)?;
        Ok(Own {
            context: driver.id_of(context)?,
            memory,
            order,
            kernels,
        })
    }
}

impl Order {
    /// Has `stream` wait for the operation before this one: in a capture, for the one before it in the capture.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(crate) fn enter(&self, stream: Stream, capture: Option<Capture>) -> Result<()> {
        match capture {
            None => self.last.wait(stream),
            Some(capture) => match place_of(&self.captured, capture.id) {
                Some(at) => self.captured[at].0.wait(stream),
                None => Ok(()),
            },
        }
    }

    /// Has the next operation come after what `stream` has now.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub(crate) fn leave(&mut self, stream: Stream, capture: Option<Capture>) -> Result<()> {
        let Some(capture) = capture else {
            return self.last.record(stream);
        };
        let (last, of) = make_latest(&mut self.captured, capture.id);
        last.record(stream)?;
        *of = Some(capture.id);
        Ok(())
    }
}

/// Where what is this capture's stands.
fn place_of<T>(captured: &[(T, Option<u64>)], id: u64) -> Option<usize> {
    captured.iter().position(|(_, of)| *of == Some(id))
}

/// Puts what is this capture's at the end, if nothing is, what was longest not used.
fn make_latest<T>(captured: &mut [(T, Option<u64>)], id: u64) -> &mut (T, Option<u64>) {
    let at = place_of(captured, id).unwrap_or(0);
    captured[at..].rotate_left(1);
    captured.last_mut().expect("there are some")
}

impl Drop for Window {
    fn drop(&mut self) {
        // Streams, of others too, may use it still.
        mem::forget(self.own.take());
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Window({:x?})", self.all)
    }
}

/// By which the device knows it.
fn address(region: &Region<'_>) -> Address {
    region.as_ptr().addr() as Address
}

fn idle() -> MutexGuard<'static, Vec<(Own, Option<Users>)>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The numbers of a card.
fn numbers(card: &Card) -> [u64; 4] {
    let mut numbers = [0; 4];
    for (number, from) in numbers.iter_mut().zip(card.as_chunks().0) {
        *number = u64::from_le_bytes(*from);
    }
    numbers
}

const LAZY_PEER_ACCESS: u32 = 1;
const ALREADY_ENABLED: c_int = 704;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_that_goes_on_keeps_its_event() {
        let mut captured: Vec<_> = (0..MOST_CAPTURES).map(|event| (event, None)).collect();
        let mut leave = |id| {
            let (event, of) = make_latest(&mut captured, id);
            *of = Some(id);
            *event
        };
        let long = leave(0);
        // One that takes longer, and many beside it.
        for id in 1..100 {
            assert_ne!(leave(id), long);
            assert_eq!(leave(0), long, "after {id} others");
        }
        // As many at once as there are events.
        let events: Vec<_> = (200..).take(MOST_CAPTURES).map(&mut leave).collect();
        for (id, event) in (200..).zip(events) {
            assert_eq!(leave(id), event);
        }
    }
}
