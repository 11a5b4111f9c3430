//! Operations that go on by themselves: those of streams, and those of groups, which begin when the group ends.

use super::{
    COMMUNICATORS, Entry,
    ending::{self, at_first},
    guard,
    memory::put,
    panicked,
    stream::STREAMS,
    types::{cclComm_t, cclResult_t, cclStream_t},
};
use crate::{
    bootstrap::UniqueId,
    comm::{Batch, Communicator, Start, Stream, give_up, together},
    exec::{Completion, Message, Outcome, Received},
    mem::{Hold, Region},
    sys::thread,
    types::{Collective, DType, Error, Reducing, Result},
};
#[cfg(feature = "cuda")]
use crate::{
    comm::{Device, Tail},
    cuda::Stream as CudaStream,
    sys::in_use::Here,
};
use smallvec::SmallVec;
#[cfg(feature = "cuda")]
use std::time::Duration;
use std::{
    cell::RefCell,
    ffi::c_void,
    mem::{self, ManuallyDrop},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// When a call's operation is carried out.
pub(super) enum When {
    /// Before the call returns.
    Now,
    /// In a stream, or when the group ends.
    Later(Option<Arc<Stream>>),
    /// In a stream of a CUDA device, on its memory.
    #[cfg(feature = "cuda")]
    OnDevice(Device),
}

/// A call's buffers, as far as this rank uses them, by their names.
pub(super) type Named<'m> = [(&'static str, Option<Region<'m>>); 2];

/// What the stream of a call on these buffers means.
///
/// # Errors
/// [`Error::Invalid`] for a stream that does not fit the buffers.
pub(super) fn when(stream: cclStream_t, buffers: Named<'_>) -> Result<When> {
    #[cfg(feature = "cuda")]
    if let Some(device) = device(stream, buffers)? {
        return Ok(When::OnDevice(device));
    }
    #[cfg(not(feature = "cuda"))]
    let _ = buffers;
    if !stream.is_null() {
        return Ok(When::Later(Some(Arc::clone(&*STREAMS.get(stream)?))));
    }
    Ok(match is_in_group() {
        false => When::Now,
        true => When::Later(None),
    })
}

/// The device that buffers and stream are of.
///
/// # Errors
/// [`Error::Invalid`] for device memory with a stream of ccl's, and as [`Device::of`].
#[cfg(feature = "cuda")]
fn device(stream: cclStream_t, buffers: Named<'_>) -> Result<Option<Device>> {
    let is_ours = !stream.is_null() && STREAMS.find(stream, Here::new()).is_some();
    if stream.is_null() || stream.addr() < HANDLES && !is_ours {
        // SAFETY: the caller's word: what is no stream of ccl's is one of CUDA's.
        return Device::of(unsafe { CudaStream::from_raw(stream) }, buffers);
    }
    let addresses = buffers.map(|(_, buffer)| match buffer.filter(|buffer| buffer.len() > 0) {
        Some(buffer) => buffer.as_ptr().cast_const().cast(),
        None => ptr::null(),
    });
    if is_ours && Device::has(addresses) {
        return Err(Error::invalid(
            "a buffer is memory of a CUDA device, and the stream is one of ccl's: device memory takes a CUDA stream",
        ));
    }
    Ok(None)
}

/// Handles of ccl's are numbers from here on, where no program has memory.
#[cfg(feature = "cuda")]
const HANDLES: usize = 1 << 56;

/// Whether that is [`When::Now`] where there are no buffers.
#[inline]
pub(super) fn is_blocking(stream: cclStream_t) -> bool {
    stream.is_null() && !is_in_group()
}

/// Whether that is [`When::Now`].
#[inline]
pub(super) fn is_now(stream: cclStream_t, buffers: [*const c_void; 2]) -> bool {
    #[cfg(feature = "cuda")]
    let is_host = || !Device::has(buffers);
    #[cfg(not(feature = "cuda"))]
    let is_host = || {
        let _ = buffers;
        true
    };
    is_blocking(stream) && is_host()
}

/// A call whose operation is carried out later.
struct Deferred {
    entry: Arc<Entry>,
    how: How,
}

enum How {
    OnHost {
        stream: Option<Arc<Stream>>,
        at_end: AtEnd,
        begin: Begin,
    },
    /// A message that the group's end waits for, and what is told of it.
    Message(Message<'static>, Option<Tell>),
    /// A collective that the group's end waits for.
    Collective(Collecting),
    #[cfg(feature = "cuda")]
    OnDevice(BeginOnDevice),
}

/// A collective, with input and output, and its count, type and operation.
pub(super) struct Collecting {
    pub(super) collective: Collective,
    pub(super) memory: [Option<Region<'static>>; 2],
    pub(super) what: (usize, DType, Reducing),
}

/// Tells what a receive got.
type Tell = Box<dyn FnOnce(Received) + Send>;

#[cfg(feature = "cuda")]
type BeginOnDevice = Box<dyn FnOnce(&Communicator) -> Result<Tail>>;

/// What has begun, and what there is to do when all has.
enum Begun {
    Waited(Arc<Entry>, Arc<Completion>),
    InStream,
    #[cfg(feature = "cuda")]
    OnDevice(Arc<Entry>, Tail),
}

type Begin = Box<dyn FnOnce(&Communicator, Start) -> Result<()>>;
type AtEnd = Box<dyn FnOnce(&Outcome) + Send>;

/// A communicator that is made when the group ends, if it is.
struct Making {
    place: Place,
    origin: Origin,
    make: Box<dyn FnOnce() -> Result<Option<Communicator>> + Send>,
}

impl Making {
    fn id(&self) -> Option<&UniqueId> {
        match &self.origin {
            Origin::Id(id) => Some(id),
            Origin::Parent(..) | Origin::Launcher => None,
        }
    }
}

/// By what the ranks of a communicator that is made find each other.
pub(super) enum Origin {
    Id(UniqueId),
    /// The communicator that it is made of: what is made of one is made in the order of the calls. And whether that is one of its
    /// operations, as a split is.
    Parent(Arc<Entry>, bool),
    Launcher,
}

/// Where C wants a handle.
struct Place(*mut cclComm_t);

// SAFETY: an address; whoever writes there has the promise of the caller of the function that was given it.
unsafe impl Send for Place {}

/// The calls of this thread since the outermost cclGroupStart.
struct Group {
    depth: u32,
    deferred: Vec<Deferred>,
    makings: Vec<Making>,
    /// The first of the calls that was refused.
    refused: Option<Error>,
}

thread_local! {
    static GROUP: ManuallyDrop<RefCell<Group>> = const { at_first(Group::NONE) };
}

/// Drops the group that this thread is in, if it is in one.
pub(super) fn forget() {
    drop(grouped(mem::take));
}

impl Default for Group {
    fn default() -> Self {
        Group::NONE
    }
}

/// Does something with this thread's group.
#[inline]
fn grouped<R>(act: impl FnOnce(&mut Group) -> R) -> R {
    GROUP.with(|group| act(&mut group.borrow_mut()))
}

/// Whether this thread is in a group.
#[inline]
fn is_in_group() -> bool {
    GROUP.with(|group| group.borrow().depth > 0)
}

/// Has `begin` begin an operation: now in its stream, or at the end of the group.
pub(super) fn later(
    entry: &Arc<Entry>,
    stream: Option<Arc<Stream>>,
    at_end: impl FnOnce(&Outcome) + Send + 'static,
    begin: impl FnOnce(&Communicator, Start) -> Result<()> + 'static,
) -> Result<()> {
    let how = How::OnHost {
        stream,
        at_end: Box::new(at_end),
        begin: Box::new(begin),
    };
    defer(entry, how)
}

/// Has a message sent or received when the group ends, and `tell` tell what was received.
pub(super) fn message(entry: &Arc<Entry>, message: Message<'static>, tell: Option<Tell>) -> Result<()> {
    defer(entry, How::Message(message, tell))
}

/// Has a collective carried out when the group ends.
pub(super) fn collective(entry: &Arc<Entry>, collecting: Collecting) -> Result<()> {
    defer(entry, How::Collective(collecting))
}

/// Has `begin` begin an operation on device memory: now, or at the end of the group.
#[cfg(feature = "cuda")]
pub(super) fn on_device(
    entry: &Arc<Entry>,
    begin: impl FnOnce(&Communicator) -> Result<Tail> + 'static,
) -> Result<()> {
    defer(entry, How::OnDevice(Box::new(begin)))
}

fn defer(entry: &Arc<Entry>, how: How) -> Result<()> {
    let deferred = Deferred {
        entry: Arc::clone(entry),
        how,
    };
    let now = grouped(|group| match group.depth {
        0 => Some(deferred),
        _ => {
            group.deferred.push(deferred);
            None
        }
    });
    now.map_or(Ok(()), |deferred| {
        let stream = deferred.stream().cloned();
        let _order = stream.as_ref().map(|stream| stream.in_order());
        match deferred.begin(false, &mut Batches::default())? {
            #[cfg(feature = "cuda")]
            Begun::OnDevice(entry, tail) => entry.communicator()?.end_on(tail),
            Begun::Waited(..) | Begun::InStream => Ok(()),
        }
    })
}

/// Makes a communicator and puts its handle at `place`, if it is one: now, or at the end of the group, where all that are
/// made are made together. If that shall not block and there is no group the handle is there at once, and the rest goes on in the
/// background: then the result is `true`.
///
/// # Safety
/// `place` may be written, until the group ends if there is one.
pub(super) unsafe fn make(
    place: *mut cclComm_t,
    origin: Origin,
    blocking: bool,
    make: impl FnOnce() -> Result<Option<Communicator>> + Send + 'static,
) -> Result<bool> {
    if !blocking && !is_in_group() {
        // SAFETY: the caller's promise.
        return unsafe { begin_making(place, make) }.map(|()| true);
    }
    let making = Making {
        place: Place(place),
        origin,
        make: Box::new(make),
    };
    let now = grouped(|group| match group.depth {
        0 => Some(making),
        _ => {
            group.makings.push(making);
            None
        }
    });
    let Some(making) = now else { return Ok(false) };
    if let Some(comm) = (making.make)()? {
        // SAFETY: the caller's promise.
        unsafe { put("comm", place, COMMUNICATORS.insert(Entry::new(comm))?)? };
    }
    Ok(false)
}

/// Puts a handle at `place` whose communicator is made in the background.
///
/// # Safety
/// As [`make`].
unsafe fn begin_making(
    place: *mut cclComm_t,
    make: impl FnOnce() -> Result<Option<Communicator>> + Send + 'static,
) -> Result<()> {
    let handle: cclComm_t = COMMUNICATORS.insert(Entry::default())?;
    let entry = Arc::clone(&*COMMUNICATORS.get(handle)?);
    // Taken out by the thread: its state is not dropped.
    let work = Some((make, entry));
    let begun = thread::spawn_quiet(c"ccl-init", work, |work| {
        if let Some((make, entry)) = work.take() {
            let made = catch_unwind(AssertUnwindSafe(make));
            entry.settle(made.unwrap_or_else(|panic| Err(panicked(&*panic))));
        }
    });
    if let Err(e) = begun {
        COMMUNICATORS.take(handle)?;
        return Err(Error::system(
            "no thread to make the communicator in the background",
            e,
        ));
    }
    // SAFETY: the caller's promise.
    unsafe { put("comm", place, handle) }
}

/// Keeps in mind that a call of this group was refused: then none of its calls is carried out.
pub(super) fn refused(error: &Error) {
    grouped(|group| {
        if group.depth > 0 && group.refused.is_none() {
            let what = format!("a call of the group was refused, so that none was carried out: {error}");
            group.refused = Some(match error {
                Error::Invalid { .. } => Error::invalid(what),
                Error::Cuda { code, .. } => Error::Cuda { what, code: *code },
                _ => Error::usage(what),
            });
        }
    });
}

impl Deferred {
    /// Begins it, in a stream together with others of `batches`. `attended`: whoever waits for it does so at once.
    fn begin(self, attended: bool, batches: &mut Batches) -> Result<Begun> {
        let Deferred { entry, how } = self;
        let comm = entry.communicator()?;
        let (stream, at_end, begin) = match how {
            How::OnHost {
                stream,
                at_end,
                begin,
            } => (stream, at_end, begin),
            How::Message(message, tell) => {
                let at_end: AtEnd = match tell {
                    Some(tell) => Box::new(told(tell)),
                    None => Box::new(|_: &Outcome| ()),
                };
                let begin: Begin = match message {
                    Message::Send { to, tag, dtype, data } => {
                        Box::new(move |comm, start| comm.begin_send(Hold::raw(data), dtype, (to, tag), start))
                    }
                    Message::Receive { wanted, data, .. } => {
                        Box::new(move |comm, start| comm.begin_receive(Hold::raw(data), wanted, start))
                    }
                };
                (None, at_end, begin)
            }
            How::Collective(Collecting {
                collective,
                memory,
                what,
            }) => {
                let memory = memory.map(|region| region.map(Hold::raw));
                let begin: Begin =
                    Box::new(move |comm, start| comm.begin_collective(collective, memory, what, start));
                (None, Box::new(|_: &Outcome| ()) as AtEnd, begin)
            }
            #[cfg(feature = "cuda")]
            How::OnDevice(begin) => {
                let tail = begin(comm).inspect_err(|error| entry.remember(error))?;
                return Ok(Begun::OnDevice(entry, tail));
            }
        };
        let is_waited = stream.is_none();
        let (start, completion) = match stream {
            Some(stream) => comm.enter(batches.of(&stream), at_end),
            None => {
                let completion = Completion::with_hook(at_end);
                (Start::now(Arc::clone(&completion), attended), completion)
            }
        };
        // What is refused has no place in the stream.
        begin(comm, start).inspect_err(|error| {
            entry.remember(error);
            completion.finish(Ok(None));
        })?;
        Ok(match is_waited {
            true => Begun::Waited(entry, completion),
            false => Begun::InStream,
        })
    }

    /// The stream that it is in, if that is one of ccl's.
    fn stream(&self) -> Option<&Arc<Stream>> {
        match &self.how {
            How::OnHost { stream, .. } => stream.as_ref(),
            _ => None,
        }
    }

    /// Whether the group's end waits for it.
    fn is_waited(&self) -> bool {
        matches!(
            self.how,
            How::OnHost { stream: None, .. } | How::Message(..) | How::Collective(..)
        )
    }
}

/// The places that a group has in streams, one in each.
#[derive(Default)]
struct Batches(Vec<(Arc<Stream>, Batch)>);

impl Batches {
    fn of(&mut self, stream: &Arc<Stream>) -> &Batch {
        let known = self.0.iter().position(|(other, _)| Arc::ptr_eq(other, stream));
        let at = known.unwrap_or_else(|| {
            self.0.push((Arc::clone(stream), stream.batch()));
            self.0.len() - 1
        });
        &self.0[at].1
    }
}

impl Group {
    const NONE: Group = Group {
        depth: 0,
        deferred: Vec::new(),
        makings: Vec::new(),
        refused: None,
    };

    /// Carries out all its calls.
    fn run(self) -> Result<()> {
        if let Some(error) = self.refused {
            give_up(self.makings.iter().filter_map(Making::id), &error);
            return Err(error);
        }
        match make_together(self.makings) {
            // The other ranks wait in a call that this one has not made.
            (made, false) => made,
            // Where it was called and came to nothing all go on with the operations.
            (made, true) => made.and(run_all(self.deferred)),
        }
    }
}

/// Carries out the calls of a group but for those that make communicators.
fn run_all(all: Vec<Deferred>) -> Result<()> {
    let first = all.first().map(|first| Arc::clone(&first.entry));
    let is_alike = |deferred: &Deferred| {
        deferred.is_waited()
            && first
                .as_ref()
                .is_some_and(|first| Arc::ptr_eq(first, &deferred.entry))
    };
    let attended = all.iter().all(is_alike);
    let is_message = |deferred: &Deferred| matches!(deferred.how, How::Message(..));
    if let (Some(entry), true) = (&first, attended && all.iter().all(is_message)) {
        return carry_out(entry, all).inspect_err(|error| entry.remember(error));
    }
    let is_collective = |deferred: &Deferred| matches!(deferred.how, How::Collective(..));
    if let (Some(entry), true) = (&first, attended && all.iter().all(is_collective))
        && entry.communicator()?.goes_in_turn()
    {
        return run_in_turn(entry, all);
    }
    let (mut waited, mut failure) = (Vec::new(), None);
    #[cfg(feature = "cuda")]
    let mut tails = Vec::new();
    let mut streams: Vec<Arc<Stream>> = all.iter().filter_map(|one| one.stream().cloned()).collect();
    // All threads take them in one order.
    streams.sort_unstable_by_key(Arc::as_ptr);
    streams.dedup_by(|a, b| Arc::ptr_eq(a, b));
    let order: Vec<_> = streams.iter().map(|stream| stream.in_order()).collect();
    let mut batches = Batches::default();
    // One that was destroyed meanwhile waits for its operations as it goes: not before all are done that is to be done here.
    let _entries: Vec<_> = all.iter().map(|one| Arc::clone(&one.entry)).collect();
    for deferred in all {
        match deferred.begin(attended, &mut batches) {
            Ok(Begun::Waited(entry, completion)) => waited.push((entry, completion)),
            Ok(Begun::InStream) => {}
            #[cfg(feature = "cuda")]
            Ok(Begun::OnDevice(entry, mut tail)) => match with(&entry, |comm| comm.tell_on(&mut tail)) {
                Ok(()) => tails.push((entry, tail)),
                Err(error) => failure = failure.or(Some(error)),
            },
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    // Nothing more comes: what is put into the streams from now on may begin when these are over.
    drop(batches);
    drop(order);
    let mut note = |ended: Result<()>| failure = failure.take().or(ended.err());
    #[cfg(feature = "cuda")]
    {
        let mut left: Vec<_> = tails.iter_mut().collect();
        while !left.is_empty() {
            // Other ranks may make these calls one by one, in any order.
            let count = left.len();
            left.retain_mut(|(entry, tail)| {
                let leads = tail.may_lead();
                if leads {
                    note(with(entry, |comm| comm.lead_on(tail)));
                }
                !leads
            });
            if left.len() == count {
                std::thread::sleep(LOOK);
            }
        }
        for (entry, tail) in tails {
            note(with(&entry, |comm| comm.end_on(tail)));
        }
    }
    for (entry, completion) in waited {
        note(with(&entry, |comm| comm.wait_for(&completion)));
    }
    failure.map_or(Ok(()), Err)
}

/// How often it is looked whether all ranks have come to a call of a group.
#[cfg(feature = "cuda")]
const LOOK: Duration = Duration::from_micros(20);

/// Has the communicator do something; its handle remembers what fails.
fn with(entry: &Entry, body: impl FnOnce(&Communicator) -> Result<()>) -> Result<()> {
    let done = entry.communicator().and_then(body);
    done.inspect_err(|error| entry.remember(error))
}

/// Sends and receives messages of one communicator, all at once.
fn carry_out(entry: &Entry, deferred: Vec<Deferred>) -> Result<()> {
    let parts = deferred.into_iter().filter_map(|deferred| match deferred.how {
        How::Message(message, tell) => Some((message, tell)),
        _ => None,
    });
    let (mut messages, tells): (SmallVec<[Message<'_>; 4]>, SmallVec<[Option<Tell>; 4]>) = parts.unzip();
    let outcome = entry.communicator()?.carry_out(&mut messages);
    for (message, tell) in messages.iter().zip(tells) {
        if let (Message::Receive { got: Some(got), .. }, Some(tell)) = (message, tell) {
            tell(*got);
        }
    }
    outcome
}

/// Runs collectives of one communicator one after the other: each at its place among the calls, as the other ranks have them, too.
fn run_in_turn(entry: &Entry, deferred: Vec<Deferred>) -> Result<()> {
    let (comm, mut outcome) = (entry.communicator()?, Ok(()));
    for deferred in deferred {
        if let How::Collective(Collecting {
            collective,
            memory: [input, output],
            what: (count, dtype, op),
        }) = deferred.how
        {
            let ran = comm.collective(collective, input, output, count, dtype, op);
            outcome = outcome.and(ran.inspect_err(|error| entry.remember(error)));
        }
    }
    outcome
}

/// Has `tell` tell what was received, once it was.
pub(super) fn told(tell: impl FnOnce(Received) + Send + 'static) -> impl FnOnce(&Outcome) + Send + 'static {
    |outcome| {
        if let Ok(Some(received)) = outcome {
            tell(*received);
        }
    }
}

/// Makes communicators side by side: each may wait for the others. If one fails all are given up. Tells, too, whether each operation that
/// this takes was called, be it in vain: where one was not this rank's calls are no longer the same as the other ranks'.
fn make_together(makings: Vec<Making>) -> (Result<()>, bool) {
    let is_operation = |making: &&Making| matches!(making.origin, Origin::Parent(_, true));
    let uncalled = AtomicUsize::new(makings.iter().filter(is_operation).count());
    let made = make_all(makings, &uncalled);
    (made, uncalled.into_inner() == 0)
}

/// Counts down `uncalled` with each call on a communicator.
fn make_all(makings: Vec<Making>, uncalled: &AtomicUsize) -> Result<()> {
    let (mut ids, mut rows) = (Vec::new(), Vec::<Vec<Making>>::new());
    for making in makings {
        let row = match &making.origin {
            Origin::Parent(parent, _) => rows
                .iter_mut()
                .find(|row| matches!(&row[0].origin, Origin::Parent(other, _) if Arc::ptr_eq(other, parent))),
            Origin::Id(id) => {
                ids.push(id.clone());
                None
            }
            Origin::Launcher => None,
        };
        match row {
            Some(row) => row.push(making),
            None => rows.push(vec![making]),
        }
    }
    let in_turn = |row: Vec<Making>| {
        move || {
            let make = |Making { place, origin, make }: Making| {
                let Origin::Parent(parent, is_operation) = origin else {
                    return Ok((place, make()?));
                };
                let calls = || parent.made.get().map(Communicator::calls);
                let before = calls();
                let made = make();
                let is_own = |error: &Error| {
                    matches!(
                        error,
                        Error::Invalid { .. }
                            | Error::Usage { .. }
                            | Error::System { .. }
                            | Error::Internal { .. }
                    )
                };
                if is_operation && (calls() != before || !made.as_ref().is_err_and(is_own)) {
                    uncalled.fetch_sub(1, Relaxed);
                }
                Ok((place, made.inspect_err(|error| parent.remember(error))?))
            };
            // After a failure, too: the other ranks go on with the next.
            let made: Vec<Result<_>> = row.into_iter().map(make).collect();
            made.into_iter().collect::<Result<Vec<_>>>()
        }
    };
    let made = together(&ids, rows.into_iter().map(in_turn))?;
    for (Place(place), comm) in made.into_iter().flatten() {
        if let Some(comm) = comm {
            // SAFETY: the promise of `make`'s caller.
            unsafe { put("comm", place, COMMUNICATORS.insert(Entry::new(comm))?)? };
        }
    }
    Ok(())
}

/// Begins a group: the calls of this thread until cclGroupEnd are carried out together, at its end.
///
/// Operations on any number of communicators, sends and receives in any order, and cclCommInitRank may be in a group. Those
/// that one group puts into one stream begin together, when what was in the stream before is over; what comes later in the
/// stream waits for all of them. Arguments are checked at once; one call that is refused makes cclGroupEnd refuse all. What only
/// tells or sets something, as cclCommCount does, is carried out at once, and fails alone. Calls on streams, cclCommFinalize, cclCommDestroy,
/// cclCommAbort and cclCommInitAll are not of the group: they act at once, on what was begun before it. A communicator on which the
/// ranks do not agree does not keep the group's operations from being carried out. Groups may lie in each other: the
/// outermost one counts. Of device memory see cclAllReduce: with CCL_CUDA_DIRECT=on such operations do not begin together.
#[unsafe(no_mangle)]
pub extern "C" fn cclGroupStart() -> cclResult_t {
    guard(|| {
        ending::heed();
        grouped(|group| group.depth += 1);
        Ok(())
    })
}

/// Ends a group, and with the outermost one carries out its calls. Returns when those with stream NULL are over.
///
/// @return cclSuccess; otherwise the first failure: of a call that was refused, then nothing was carried out, or of an
/// operation.
#[unsafe(no_mangle)]
pub extern "C" fn cclGroupEnd() -> cclResult_t {
    guard(|| {
        let group = grouped(|group| match group.depth {
            0 => Err(Error::usage(
                "cclGroupEnd without cclGroupStart on this thread: each ends one",
            )),
            1 => Ok(mem::take(group)),
            _ => {
                group.depth -= 1;
                Ok(Group::default())
            }
        })?;
        group.run()
    })
}

/// Something from C that an operation uses when it goes on by itself.
pub(super) struct FromC<T>(pub(super) *mut T);

// SAFETY: an address; who uses it answers for that.
unsafe impl<T> Send for FromC<T> {}

impl<T> FromC<T> {
    /// Puts `value` there, unless it is NULL.
    ///
    /// # Safety
    /// It is NULL or may be written.
    pub(super) unsafe fn put(&self, value: T) {
        if !ptr::eq(self.0, ptr::null()) {
            // SAFETY: the caller's promise.
            unsafe { self.0.write(value) };
        }
    }
}
