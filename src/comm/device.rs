//! [`OnCuda`]: operations on memory of a CUDA device, in the order of a stream of the device.
//!
//! Each goes through pinned host memory ([`Staging`]): the stream copies the input there and waits, the engine carries the operation
//! out as any other of host memory, the stream copies the output back. So all algorithms, transports and kinds of calls are there,
//! and ranks with host memory take part. The caller waits for nothing, and no thread of the library's calls the driver. What may stay on
//! the devices goes another way ([`Direct`]).

use super::{
    Communicator,
    direct::{Direct, Windows},
    engine::{Gate, Start},
    meeting::Meeting,
};
use crate::{
    cuda::{
        DeviceMemory,
        driver::{Capture, Context, Current, Driver, Place, Stream},
        events::{Events, Point},
        queues,
        staging::Staging,
    },
    exec::{Completion, Outcome, Wanted},
    mem::{Hold, Region},
    plan::layout::Blocks,
    sys::attach::is_mapped,
    types::{Cause, Collective, DType, Error, Op, Reducing, Result},
};
use std::{
    cell::Cell,
    ffi::c_void,
    ops::Range,
    ptr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

/// Operations on memory of a CUDA device: see [`Communicator::on_cuda`].
#[derive(Debug, Clone, Copy)]
pub struct OnCuda<'c> {
    comm: &'c Communicator,
    stream: Stream,
}

/// # Memory of CUDA devices
///
/// Ranks of one operation may have different kinds of memory. Data go through pinned host memory; with `CCL_CUDA_DIRECT=on` those of
/// collectives stay on the devices of a host, and all ranks must have memory of devices. These can be captured into CUDA graphs.
impl Communicator {
    /// Operations on memory of a CUDA device, each in the order of `stream`. They return at once, but for those named below. A failure
    /// ends those that are in the stream, whose output is then anything; [`Communicator::failure`] tells.
    ///
    /// Ranks that are threads of one process need streams of their own, which do not wait for each other: not the default one.
    /// Waits of one stream for another's later work are not seen by the driver: more such streams of a process and device than
    /// `CUDA_DEVICE_MAX_CONNECTIONS` (8 by default, at most 32) stop each other, until the deadline. With `CCL_CUDA_DIRECT=on`
    /// collectives of ranks that are threads and use one device return when all ranks have made them, and may be in any streams; a
    /// thread has one of the ranks, and what is in the streams by then is carried out whatever fails.
    ///
    /// Tested with a stand-in for the driver; `docs/results/gpu.md` has what was tried on a GPU.
    pub fn on_cuda(&self, stream: Stream) -> OnCuda<'_> {
        OnCuda { comm: self, stream }
    }
}

/// That `data` are whole elements.
fn check_whole(data: DeviceMemory, dtype: DType) -> Result<()> {
    let bytes = data.region().len();
    match bytes.is_multiple_of(dtype.size()) {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "{bytes} bytes are not whole elements of {dtype}"
        ))),
    }
}

impl OnCuda<'_> {
    /// Begins `collective`, of none of the V forms, on `count` elements as its method of [`Communicator`] counts them, with the
    /// buffers that the rank uses.
    ///
    /// # Errors
    /// [`Error::Invalid`] for buffers that are not memory of the stream's device or not as long as the rank's part,
    /// [`Error::Usage`] for a stream that is being captured and where there is no driver, [`Error::Cuda`]; and see
    /// [operations](Communicator#operations).
    pub fn collective(
        &self,
        collective: Collective,
        [send, recv]: [Option<DeviceMemory>; 2],
        (count, dtype, op): (usize, DType, Op),
    ) -> Result<()> {
        if collective == Collective::Barrier {
            return self.barrier();
        }
        if collective.has_given_blocks() {
            return Err(Error::invalid(format!(
                "{} has blocks of the ranks' own lengths, which this call does not take",
                collective.name()
            )));
        }
        let memory = [send, recv].map(|memory| Some(memory?.region()));
        let op = if collective.reduces() { op } else { Op::Sum };
        let what = (count, dtype, op.into());
        let device = self.device([("send", memory[0]), ("receive", memory[1])])?;
        self.comm.check_on(device, collective, memory, what)?;
        // What the rank has no part of stays as it is.
        let held = self.comm.held(collective, count, dtype)?;
        let [input, output] = [held.input.is_empty(), held.output.is_empty()];
        let memory = [memory[0].filter(|_| !input), memory[1].filter(|_| !output)];
        self.comm
            .end_on(self.comm.collective_on(device, collective, memory, what)?)
    }

    /// Begins a V form on blocks that [`Communicator::given`] has checked.
    #[cfg(feature = "cli")]
    pub(crate) fn given(
        &self,
        collective: Collective,
        blocks: Arc<Blocks>,
        memory: [DeviceMemory; 2],
        what: (DType, Reducing),
    ) -> Result<()> {
        let memory = memory.map(DeviceMemory::region);
        self.comm.check_given(collective, &blocks, memory, what)?;
        let device = self.device([("send", Some(memory[0])), ("receive", Some(memory[1]))])?;
        self.comm
            .end_on(self.comm.given_on(device, collective, blocks, memory, what)?)
    }

    /// Begins to send `data`, elements of `dtype`, to rank `to`. The stream waits for no receiver.
    ///
    /// # Errors
    /// As [`OnCuda::collective`].
    pub fn send(&self, data: DeviceMemory, dtype: DType, to: usize, tag: i32) -> Result<()> {
        check_whole(data, dtype)?;
        self.comm.check_message(Some(to), Some(tag))?;
        let device = self.device([("send", Some(data.region())), ("receive", None)])?;
        self.comm
            .end_on(self.comm.send_on(device, data.region(), dtype, (to, tag))?)
    }

    /// Begins to receive a message with tag 0 from rank `from`, which is just as long as `data`, elements of `dtype`.
    ///
    /// # Errors
    /// As [`OnCuda::collective`].
    pub fn recv(&self, data: DeviceMemory, dtype: DType, from: usize) -> Result<()> {
        check_whole(data, dtype)?;
        let wanted = Wanted::exactly(from, dtype);
        self.comm.check_message(wanted.from, wanted.tag)?;
        let device = self.device([("send", None), ("receive", Some(data.region()))])?;
        self.comm
            .end_on(self.comm.receive_on(device, data.region(), wanted, |_| ())?)
    }

    /// Begins a barrier between what is in the ranks' streams.
    ///
    /// # Errors
    /// As [`OnCuda::collective`].
    pub fn barrier(&self) -> Result<()> {
        let device = self.device([("send", None), ("receive", None)])?;
        self.comm.end_on(self.comm.barrier_on(device)?)
    }

    fn device(&self, buffers: [(&'static str, Option<Region<'_>>); 2]) -> Result<Device> {
        Device::of_stream(self.stream, buffers)?.ok_or_else(|| {
            Error::usage(match Driver::in_use() {
                Some(_) => "the buffers are host memory: CUDA streams take memory of their device",
                None => "there is no CUDA driver in this process: nothing has loaded libcuda.so.1",
            })
        })
    }
}

/// The stream and the device of an operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Device {
    pub(super) driver: &'static Driver,
    pub(super) context: Context,
    pub(super) stream: Stream,
}

/// What is still to be given to an operation's stream: the wait for its end, and what comes after. Of operations that need one
/// another all are begun before the first stream waits.
#[must_use = "the stream has no output without it"]
pub(crate) struct Tail(Rest);

enum Rest {
    /// The stream has all.
    Nothing,
    Staged(Staged),
    Meeting(Box<Meeting>),
}

struct Staged {
    device: Device,
    staging: Arc<Staging>,
    /// Whether the stream waits.
    waits: bool,
    /// From here on in the pinned memory lies what belongs there.
    output: Vec<(usize, Region<'static>)>,
}

/// The operations of a communicator that streams of devices have before them: each with the point in its stream that it is awaited at, and
/// what says whether it still is. The streams themselves may be gone: who has made one may destroy it with work in it.
#[derive(Default)]
pub(super) struct InStreams(Mutex<Vec<(Point, Awaited)>>);

type Awaited = Box<dyn Fn() -> bool + Send>;

impl InStreams {
    fn all(&self) -> MutexGuard<'_, Vec<(Point, Awaited)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, point: Point, is_awaited: impl Fn() -> bool + Send + 'static) {
        let mut all = self.all();
        all.retain(|(_, is_awaited)| is_awaited());
        all.push((point, Box::new(is_awaited)));
    }

    /// Whether there are some.
    fn are_awaited(&self) -> bool {
        self.all().iter().any(|(_, is_awaited)| is_awaited())
    }

    /// Why a stream will never come to one of them, if the driver says so.
    fn failure(&self) -> Option<Error> {
        let all = self.all();
        let mut waiting = all.iter().filter(|(_, is_awaited)| is_awaited());
        waiting.find_map(|(point, _)| point.check().err())
    }
}

/// An operation's memory on the device, and what of it is copied in and out.
struct Moved {
    memory: [Region<'static>; 2],
    /// The bytes that input and output have in the pinned memory.
    lengths: [usize; 2],
    copied_in: [Vec<Piece>; 2],
    copied_out: Vec<Piece>,
    /// Whether the stream has something to wait for.
    waits: bool,
}

/// Bytes of the memory on the device, and at which byte of the input or output in the pinned memory they are.
#[derive(Clone)]
struct Piece {
    bytes: Range<usize>,
    at: usize,
}

impl Device {
    /// The device that `stream`, which is NULL or no stream of ccl's, and the buffers, by their names, belong to; `None` where all is
    /// host memory.
    ///
    /// # Errors
    /// [`Error::Invalid`] for buffers of both kinds, of several devices, of another device than the stream's, and for memory that
    /// was freed; [`Error::Cuda`] and [`Error::Usage`] for a driver that does not work.
    pub(crate) fn of(
        stream: Stream,
        buffers: [(&'static str, Option<Region<'_>>); 2],
    ) -> Result<Option<Self>> {
        let none = buffers
            .iter()
            .all(|(_, buffer)| buffer.is_none_or(|it| it.len() == 0));
        match none && stream.is_null() {
            true => Ok(None),
            false => Device::of_stream(stream, buffers),
        }
    }

    /// The same where `stream` is known to be one of CUDA's: `None` where there is no driver, or host memory and NULL.
    fn of_stream(stream: Stream, buffers: [(&'static str, Option<Region<'_>>); 2]) -> Result<Option<Self>> {
        let used = || {
            buffers
                .iter()
                .filter_map(|(name, buffer)| Some((*name, buffer.filter(|it| it.len() > 0)?)))
        };
        let Some(driver) = Driver::in_use() else {
            return Ok(None);
        };
        let driver = match driver {
            Ok(driver) => driver,
            Err(_) if stream.is_null() && used().all(|(_, buffer)| is_mapped(buffer.as_ptr())) => {
                return Ok(None);
            }
            Err(reason) => return Err(Error::usage(format!("no CUDA device can be used: {reason}"))),
        };
        let mut devices = Vec::new();
        for (name, buffer) in used() {
            match driver.place(buffer.as_ptr())? {
                Place::Device(device) => {
                    driver.check_range(name, buffer.as_ptr(), buffer.len())?;
                    devices.push((name, device));
                }
                Place::Host if driver.was_freed(buffer.as_ptr()) => {
                    return Err(Error::invalid(format!(
                        "{name} is {:p}: that was device memory, and was freed",
                        buffer.as_ptr()
                    )));
                }
                Place::Host => {}
            }
        }
        match (devices.as_slice(), used().count()) {
            ([], 0) => {}
            ([], _) if stream.is_null() => return Ok(None),
            ([], _) => {
                return Err(Error::invalid(format!(
                    "{stream:?} is no stream of ccl's, so one of CUDA's, and the buffers are host memory: host memory takes NULL \
                     or a stream that cclStreamCreate made"
                )));
            }
            ([(name, device)], 2) => {
                return Err(Error::invalid(format!(
                    "{name} is memory of CUDA device {device} and the other buffer is host memory: both must be of one kind"
                )));
            }
            ([(_, one), (_, other)], _) if one != other => {
                return Err(Error::invalid(format!(
                    "sendbuff is memory of CUDA device {one} and recvbuff of device {other}: both must be of one device"
                )));
            }
            _ => {}
        }
        let context = driver.context(stream, devices.first().map(|(_, device)| *device))?;
        Ok(Some(Device {
            driver,
            context,
            stream,
        }))
    }

    /// Its context, as the current one.
    pub(super) fn enter(&self) -> Result<Current<'static>> {
        self.driver.enter(self.context)
    }

    /// Whether the stream's work is captured.
    fn is_captured(&self) -> Result<bool> {
        let current = self.enter()?;
        current.capture(self.stream).map(|capture| capture.is_some())
    }

    /// The point after all that is in the stream now.
    pub(super) fn point(&self, current: &Current<'_>) -> Result<Point> {
        Events::of(self.driver, self.context)?.record(current, self.stream)
    }

    /// Whether a buffer is device memory, or was, or it cannot be known.
    #[inline]
    pub(crate) fn has(buffers: [*const c_void; 2]) -> bool {
        let is_known = LAST.with(|Last { seen, unasked }| {
            let left = unasked.get();
            // One after the other, as they were written: a read of both waits until they have left the processor.
            let is_same = seen[0].get() == buffers[0] && seen[1].get() == buffers[1];
            let is_known = left > 0 && is_same && !Driver::was_found();
            if is_known {
                unasked.set(left - 1);
            }
            is_known
        });
        !is_known && Device::has_asked(buffers)
    }

    #[inline(never)] // so that short calls do not pay for it
    fn has_asked(buffers: [*const c_void; 2]) -> bool {
        let is_host = |driver: &Driver, at: *const u8| {
            at.is_null() || matches!(driver.place(at), Ok(Place::Host)) && !driver.was_freed(at)
        };
        match Driver::in_use() {
            Some(Ok(driver)) => !buffers.iter().all(|at| is_host(driver, at.cast())),
            Some(Err(_)) => !buffers.iter().all(|at| at.is_null() || is_mapped(at.cast())),
            None => {
                LAST.with(|Last { seen, unasked }| {
                    seen.iter().zip(buffers).for_each(|(seen, now)| seen.set(now));
                    unasked.set(UNASKED);
                });
                false
            }
        }
    }
}

thread_local! {
    /// The buffers of this thread's last call, where no driver was loaded yet, and how many calls with the same go on without
    /// asking again. To ask takes 9 ns, where the shortest calls take 60.
    static LAST: Last = const {
        Last {
            seen: [const { Cell::new(ptr::null()) }; 2],
            unasked: Cell::new(0),
        }
    };
}

struct Last {
    seen: [Cell<*const c_void>; 2],
    unasked: Cell<u32>,
}

/// A driver that is loaded between calls gives out no address of memory that is used in each of them: it may be seen late.
const UNASKED: u32 = 64;

impl Communicator {
    /// Checks what can be told of a collective on device memory before it begins, as a group does at the call.
    ///
    /// # Errors
    /// As any operation; [`Error::Usage`] where the communicator's windows are of another context.
    pub(crate) fn check_on(
        &self,
        device: Device,
        collective: Collective,
        memory: [Option<Region<'static>>; 2],
        what: (usize, DType, Reducing),
    ) -> Result<()> {
        self.check(collective, memory, what)?;
        match &self.windows {
            Some(windows)
                if Windows::take(collective, what) && windows.window.context() != device.context =>
            {
                Err(Error::usage(
                    "the operation is on another CUDA device, or in another of its contexts, than the communicator was made on: \
                     with CCL_CUDA_DIRECT=on a communicator has one device, of the context that is current when it is made",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Begins a collective on device memory that was checked.
    pub(crate) fn collective_on(
        &self,
        device: Device,
        collective: Collective,
        memory: [Option<Region<'static>>; 2],
        what: (usize, DType, Reducing),
    ) -> Result<Tail> {
        if let Some(windows) = &self.windows
            && Windows::take(collective, what)
            && (what.0 > 0 || device.is_captured()?)
        {
            let direct = Direct {
                comm: self,
                windows,
                device,
                collective,
                memory,
                what,
            };
            let meeting = direct.give()?;
            return Ok(Tail(
                meeting.map_or(Rest::Nothing, |meeting| Rest::Meeting(Box::new(meeting))),
            ));
        }
        let moved = Moved::whole(memory);
        // An operation looks at no buffer that it does not use.
        let is_used = memory.map(|region| region.is_some());
        self.on(
            device,
            moved,
            |_| (),
            |holds, start| {
                let [input, output] = holds;
                let memory = [is_used[0].then_some(input), is_used[1].then_some(output)];
                self.begin_collective(collective, memory, what, start)
            },
        )
    }

    /// The same of a V form, on blocks that were checked.
    pub(crate) fn given_on(
        &self,
        device: Device,
        collective: Collective,
        blocks: Arc<Blocks>,
        memory: [Region<'static>; 2],
        (dtype, op): (DType, Reducing),
    ) -> Result<Tail> {
        // What lies between blocks takes no pinned memory, but where one side is in the other.
        let (apart, size) = (!memory[0].overlaps(&memory[1]), dtype.size());
        let staged = match apart {
            true => Arc::new(blocks.packed()),
            false => Arc::clone(&blocks),
        };
        let of = |side: usize| {
            let both = blocks.sides[side].iter().zip(&staged.sides[side]);
            let piece = |(there, here): (&Range<usize>, &Range<usize>)| Piece {
                bytes: there.start * size..there.end * size,
                at: here.start * size,
            };
            both.filter(|(block, _)| !block.is_empty()).map(piece).collect()
        };
        let moved = Moved {
            lengths: match apart {
                true => [0, 1].map(|side| staged.span(side) * size),
                false => memory.each_ref().map(Region::len),
            },
            memory,
            copied_in: [of(0), Vec::new()],
            copied_out: of(1),
            waits: true,
        };
        self.on(
            device,
            moved,
            |_| (),
            |holds, start| self.begin_given(collective, staged, holds, (dtype, op), start),
        )
    }

    /// Checks and begins a send of device memory. Its stream goes on as soon as the data are copied.
    pub(crate) fn send_on(
        &self,
        device: Device,
        data: Region<'static>,
        dtype: DType,
        to: (usize, i32),
    ) -> Result<Tail> {
        let moved = Moved {
            waits: false,
            ..Moved::whole([Some(data), None])
        };
        self.on(
            device,
            moved,
            |_| (),
            |[data, _], start| self.begin_send(data, dtype, to, start),
        )
    }

    /// Checks and begins a receive into device memory. `at_end` is done before its stream goes on.
    pub(crate) fn receive_on(
        &self,
        device: Device,
        data: Region<'static>,
        wanted: Wanted,
        at_end: impl FnOnce(&Outcome) + Send + 'static,
    ) -> Result<Tail> {
        let mut moved = Moved::whole([None, Some(data)]);
        if !wanted.exact {
            // What is behind a shorter message stays as it is.
            moved.copied_in[1] = moved.copied_out.clone();
        }
        self.on(device, moved, at_end, |[_, data], start| {
            self.begin_receive(data, wanted, start)
        })
    }

    /// Begins a barrier between what is in the ranks' streams.
    pub(crate) fn barrier_on(&self, device: Device) -> Result<Tail> {
        let moved = Moved::whole([None, None]);
        self.on(device, moved, |_| (), |_, start| self.begin_barrier(start))
    }

    /// The device's context, if an operation may begin in its stream, and what it is captured into, if it is.
    pub(super) fn enter_device(&self, device: Device) -> Result<(Current<'static>, Option<Capture>)> {
        self.engine.membership.check()?;
        self.engine.accepts()?;
        if let Some(cause) = self.failure() {
            return Err(Error::Closed(cause));
        }
        // Where something has broken the context, it has all that is under way there as well.
        let entered = device.enter().and_then(|current| {
            let capture = current.capture(device.stream)?;
            Ok((current, capture))
        });
        let (current, capture) = entered.inspect_err(|_| self.check_streams())?;
        if capture.is_none() {
            queues::settle(device.driver, &current, device.context, device.stream)?;
        }
        Ok((current, capture))
    }

    /// Has the stream copy the input, and `begin` begin the operation on the copy as soon as that is there.
    fn on(
        &self,
        device: Device,
        moved: Moved,
        at_end: impl FnOnce(&Outcome) + Send + 'static,
        begin: impl FnOnce([Hold; 2], Start) -> Result<()>,
    ) -> Result<Tail> {
        let stream = device.stream;
        let (current, capture) = self.enter_device(device)?;
        if capture.is_some() {
            return Err(Error::usage(
                "the stream is being captured into a CUDA graph: only collectives that go by windows can be captured, which \
                 CCL_CUDA_DIRECT=on asks for, and of these no barrier, V form or pre-multiplied sum",
            ));
        }
        let (places, bytes) = moved.places();
        let staging = Arc::new(Staging::take(&current, bytes)?);
        let is_given = Cell::new(false);
        let give = || {
            for ((memory, place), pieces) in moved.memory.iter().zip(places).zip(&moved.copied_in) {
                for Piece { bytes, at } in pieces {
                    is_given.set(true);
                    let from = memory.part(bytes.start, bytes.len());
                    staging.copy_in(&current, stream, from, place + at)?;
                }
            }
            is_given.set(true);
            staging.tell_ready(&current, stream)?;
            device.point(&current)
        };
        let ready = give().inspect_err(|_| {
            match is_given.get() {
                // What it has of the copies comes before that.
                true => drop(staging.tell_free(&current, stream)),
                false => staging.is_unused(),
            }
            self.check_streams();
        })?;
        let holds = [0, 1].map(|side| {
            let part = staging.part(places[side], moved.lengths[side]);
            Hold::kept(part, staging.clone())
        });
        let (watched, ended) = (Arc::clone(&staging), Arc::clone(&staging));
        let start = Start {
            gate: Some(Arc::new(Gate::watching(move || watched.is_ready()))),
            completion: Completion::with_hook(Box::new(move |outcome| {
                at_end(outcome);
                ended.done();
            })),
            attended: false,
        };
        // What never began has no end: the hook is dropped, and the stream was not told to wait for it.
        if let Err(error) = begin(holds, start) {
            let _ = staging.tell_free(&current, stream);
            return Err(error);
        }
        drop(current);
        let there = Arc::downgrade(&staging);
        let is_awaited = move || there.upgrade().is_some_and(|staging| !staging.is_ready());
        self.in_streams.add(ready, is_awaited);
        let there = |Piece { bytes, at }: Piece| {
            let to = moved.memory[1].part(bytes.start, bytes.len());
            (places[1] + at, to)
        };
        Ok(Tail(Rest::Staged(Staged {
            device,
            staging,
            waits: moved.waits,
            output: moved.copied_out.into_iter().map(there).collect(),
        })))
    }

    /// Ends all that is under way if a stream of a device will never come to an operation that the other ranks count on.
    pub(super) fn check_streams(&self) {
        if let Some(error) = self.in_streams.failure() {
            self.break_off(&error);
        }
    }

    /// Ends the communicator on all ranks because of what the driver says.
    fn break_off(&self, error: &Error) {
        self.engine.membership.end(Cause::Broken {
            rank: self.rank() as u32,
            what: error.to_string(),
        });
    }

    /// Waits until the streams have come to all operations, and are through with those by windows, or one never will, which ends all
    /// that is under way.
    pub(super) fn await_streams(&self) {
        let mut nap = NAPS[0];
        while self.in_streams.are_awaited() && self.failure().is_none() {
            self.check_streams();
            thread::sleep(nap);
            nap = (2 * nap).min(NAPS[1]);
        }
    }

    /// Gives the stream what is left of an operation. Where that fails the communicator ends: the other ranks count on the
    /// operation.
    pub(crate) fn end_on(&self, tail: Tail) -> Result<()> {
        let ended = match tail.0 {
            Rest::Nothing => Ok(()),
            Rest::Staged(staged) => staged.give(),
            Rest::Meeting(meeting) => self.meets(|windows| meeting.end(self, windows)),
        };
        ended.inspect_err(|error| self.give_up(error))
    }

    /// Begins with what is left of an operation of a group, whose other operations may be other ranks' parts of it. Then come all the
    /// group's [`Communicator::lead_on`], and then the ends.
    ///
    /// # Errors
    /// As [`Communicator::end_on`].
    pub(crate) fn tell_on(&self, tail: &mut Tail) -> Result<()> {
        match &mut tail.0 {
            Rest::Nothing | Rest::Staged(_) => Ok(()),
            Rest::Meeting(meeting) => meeting.tell(self).inspect_err(|error| self.give_up(error)),
        }
    }

    /// Does what other ranks wait for.
    ///
    /// # Errors
    /// As [`Communicator::end_on`].
    pub(crate) fn lead_on(&self, tail: &mut Tail) -> Result<()> {
        let led = match &mut tail.0 {
            Rest::Nothing | Rest::Staged(_) => Ok(()),
            Rest::Meeting(meeting) => self.meets(|windows| meeting.lead(self, windows)),
        };
        led.inspect_err(|error| self.give_up(error))
    }

    /// Ends the communicator because of an error, unless its end is what has ended an operation.
    pub(super) fn give_up(&self, error: &Error) {
        if !matches!(error, Error::Failed(_) | Error::Closed(_)) {
            self.break_off(error);
        }
    }

    fn meets(&self, body: impl FnOnce(&Windows) -> Result<()>) -> Result<()> {
        let windows = self.windows.as_ref();
        body(windows.ok_or_else(|| Error::internal("a meeting of a communicator without windows"))?)
    }
}

impl Tail {
    /// Whether [`Communicator::lead_on`] would not wait.
    pub(crate) fn may_lead(&self) -> bool {
        match &self.0 {
            Rest::Nothing | Rest::Staged(_) => true,
            Rest::Meeting(meeting) => meeting.may_lead(),
        }
    }
}

impl Staged {
    fn give(self) -> Result<()> {
        let (current, stream) = (self.device.enter()?, self.device.stream);
        let given = self.output(&current);
        // At any rate: what the stream has of it comes before that.
        let free = self.staging.tell_free(&current, stream);
        given.and(free)
    }

    /// Gives the stream the wait for the end, and the output.
    fn output(&self, current: &Current<'_>) -> Result<()> {
        let (staging, stream) = (&self.staging, self.device.stream);
        if self.waits {
            staging.wait_done(current, stream)?;
        }
        let mut output = self.output.iter();
        output.try_for_each(|&(from, to)| staging.copy_out(current, stream, from, to))
    }
}

impl Moved {
    /// All of the input is copied in and all of the output out.
    fn whole(memory: [Option<Region<'static>>; 2]) -> Self {
        let memory = memory.map(|region| region.unwrap_or_else(Region::empty));
        let all = |region: &Region<'_>| -> Vec<Piece> {
            let bytes = Some(0..region.len()).filter(|all| !all.is_empty());
            bytes.into_iter().map(|bytes| Piece { bytes, at: 0 }).collect()
        };
        Moved {
            lengths: memory.each_ref().map(Region::len),
            copied_in: [all(&memory[0]), Vec::new()],
            copied_out: all(&memory[1]),
            memory,
            waits: true,
        }
    }

    /// Where input and output begin in the pinned memory, and its bytes: apart, or one over the other as on the device.
    fn places(&self) -> ([usize; 2], usize) {
        let [input, output] = &self.memory;
        let [a, b] = [input, output].map(|region| region.as_ptr().addr());
        if !input.overlaps(output) {
            let second = self.lengths[0].next_multiple_of(LINE);
            return ([0, second], second + self.lengths[1]);
        }
        let first = a.min(b);
        let places = [a - first, b - first];
        (places, (places[0] + input.len()).max(places[1] + output.len()))
    }
}

/// Outputs begin with a line of the caches.
const LINE: usize = 64;
/// How long streams are left alone by who waits for them to begin: at first, and at most.
const NAPS: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(20)];
