//! A process of one rank, or of a thread for each: takes its order from standard input, measures, and reports on standard output.

use super::{
    buffer::Buffer,
    footprint::Footprint,
    layout::{Layout, Whole},
    measure::{self, Team, Timed},
    operation::Operation,
    overlap::{self, Overlap},
    pattern::{Pattern, Sample},
    puzzle::{Puzzle, hash},
    report::{Job, Measured, Order, Placement, Report, Row, Run},
    skew::{Skew, most_moved},
    stats,
};
use crate::{
    Communicator, Config, UniqueId,
    comm::Side,
    cuda::{
        DeviceMemory,
        allocation::Allocation,
        gpu::{self, Gpu, Graph},
    },
    mem::Region,
    types::{Collective, Error::Failed, Result},
};
use std::{
    error::Error,
    io::{Read, Write},
    ops::Range,
    process::ExitCode,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use zeroize::Zeroizing;

/// A sample of calls in the stream of a device lasts so long at least, so that the wait for the last one weighs little.
const SHORTEST_ON_DEVICES: Duration = Duration::from_millis(1);

/// The first argument of such a process; the second says which ranks it has, for `ps`.
pub(super) const ARGUMENT: &str = "__rank";

/// A rank reads this many bytes first: the unique ids of the communicators to measure and to agree over.
pub(super) const IDS_BYTES: usize = 2 * 128;

/// The first seed; others are made of it.
const SEED: u64 = 0x0063_636c_2d70_6572;

/// A failure of the library or of this process; only its text matters.
pub(super) type Outcome<T> = Result<T, Box<dyn Error>>;

/// The whole life of such a process. Whatever goes wrong is the parent's to print.
pub(super) fn main() -> ExitCode {
    let (ids, order) = match receive_order() {
        Ok(received) => received,
        Err(error) => return fail(0, &*error),
    };
    let live = &|rank| match follow(&ids, &order.job, rank) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(rank, &*error),
    };
    // The first rank has this thread: its end is the process's.
    thread::scope(|scope| {
        for rank in order.ranks.clone().skip(1) {
            let live = move || live(rank);
            let started = thread::Builder::new().spawn_scoped(scope, live);
            if let Err(error) = started {
                return fail(rank, &error);
            }
        }
        live(order.ranks.start)
    })
}

fn fail(rank: usize, error: &dyn Error) -> ExitCode {
    // If the parent cannot be told, nobody can.
    let why = error.to_string();
    let _ = say(rank, &Report::Failed { why });
    ExitCode::FAILURE
}

fn receive_order() -> Outcome<(Zeroizing<[u8; IDS_BYTES]>, Order)> {
    let alien = |_| format!("{ARGUMENT} is for ccl-perf's own use: start it as ccl-perf <OP>");
    let mut stdin = std::io::stdin().lock();
    let mut ids = Zeroizing::new([0; IDS_BYTES]);
    stdin.read_exact(&mut *ids).map_err(alien)?;
    let mut json = Vec::new();
    stdin.read_to_end(&mut json).map_err(alien)?;
    let order: Order =
        serde_json::from_slice(&json).map_err(|error| format!("reading the order: {error}"))?;
    die_with(order.parent)?;
    // Ctrl-C reaches all processes of a terminal; the parent alone decides what it means. The flag is not looked at.
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::default())
        .map_err(|error| format!("leaving SIGINT to the parent: {error}"))?;
    Ok((ids, order))
}

/// Has the kernel end this process when `parent` ends, however that happens.
fn die_with(parent: u32) -> Outcome<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|error| format!("asking to end with the parent: {error}"))?;
    // It may have ended before.
    let now = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned());
    if now != Some(parent) {
        return Err("the parent has ended".into());
    }
    Ok(())
}

fn say(rank: usize, report: &Report) -> Outcome<()> {
    let mut line = serde_json::to_vec(&(rank, report))?;
    line.push(b'\n');
    Ok(std::io::stdout().write_all(&line)?)
}

/// A rank's part.
fn follow(ids: &[u8; IDS_BYTES], job: &Job, rank: usize) -> Outcome<()> {
    let (measured, control) = ids.split_at(IDS_BYTES / 2);
    let join = |id: &[u8], config: &Config| -> Result<Communicator> {
        let mut bytes = Zeroizing::new([0; IDS_BYTES / 2]);
        bytes.copy_from_slice(id);
        Communicator::init(job.ranks, &UniqueId::from_bytes(*bytes)?, rank, config)
    };
    let [config, plain] = configs(job, rank)?;
    let began = Instant::now();
    let comm = join(measured, &config)?;
    let init = began.elapsed();
    let team = Team {
        control: join(control, &plain)?,
    };
    if rank == 0 {
        let transport = comm.transport().to_owned();
        say(rank, &Report::Ready { transport })?;
    }
    let session = Session {
        comm: &comm,
        team: &team,
        job,
        tell: &|report| say(rank, &report),
    };
    // The communicators are dropped after something was said: with a rank that is silent that takes a while.
    let said = session.run_all().map(|wrong| Report::Done {
        wrong,
        footprint: Footprint::now(init, if job.threads { job.ranks } else { 1 }),
    });
    let failed = |error: Box<dyn Error>| Report::Failed {
        why: error.to_string(),
    };
    say(rank, &said.unwrap_or_else(failed))
}

/// The configurations of the communicator to measure and of the one to agree over, which are to be made on this thread: where
/// buffers are on devices the rank's is then its current one, the one of number `device` modulo how many there are.
pub(super) fn configs(job: &Job, device: usize) -> Result<[Config; 2]> {
    // As the one to measure, so that what the environment may say of transports is left alone for both.
    let plain = Config {
        timeout: job.timeout,
        transport: job.transport.clone(),
        ..Config::default()
    };
    let mut measured = Config {
        algorithm: job.algorithm.clone(),
        ..plain.clone()
    };
    if job.on_device {
        gpu::make_current(device)?;
        measured.gpu = Some(gpu::address(device)?);
    }
    Ok([measured, plain])
}

/// What does not change over a job.
pub(super) struct Session<'s> {
    pub(super) comm: &'s Communicator,
    pub(super) team: &'s Team,
    pub(super) job: &'s Job,
    /// Takes rank 0's rows.
    pub(super) tell: &'s dyn Fn(Report) -> Outcome<()>,
}

impl Session<'_> {
    /// Goes through all runs; says how many elements were wrong on this rank.
    pub(super) fn run_all(&self) -> Outcome<u64> {
        let gpu = (self.job.on_device)
            .then(|| {
                let device = self.comm.device().and_then(|device| usize::try_from(device).ok());
                Gpu::open(device.unwrap_or(self.comm.rank()))
            })
            .transpose()?;
        let gpu = gpu.as_ref();
        self.job.runs.iter().map(|&run| self.run_any(run, gpu)).sum()
    }

    /// Goes through the sizes; says how many elements were wrong on this rank. What buffers hold are patterns of bits: of types of
    /// one length the unsigned one stands for all.
    fn run_any(&self, run: Run, gpu: Option<&Gpu>) -> Outcome<u64> {
        match run.dtype.size() {
            1 => self.run::<u8>(run, gpu),
            2 => self.run::<u16>(run, gpu),
            4 => self.run::<u32>(run, gpu),
            _ => self.run::<u64>(run, gpu),
        }
    }

    fn run<T: Sample>(&self, run: Run, gpu: Option<&Gpu>) -> Outcome<u64> {
        // A buffer that is long enough for all sizes and placements. What is drawn at random may be less of more.
        let room = |whole: fn(&Layout) -> &Whole| {
            let mut most = 0;
            for count in self.job.counts(run) {
                let layouts = self
                    .job
                    .placements
                    .iter()
                    .map(|&placement| self.layout(run, placement, count));
                most = layouts
                    .map(|layout| whole(&layout).len())
                    .max()
                    .max(Some(most))
                    .unwrap_or(0);
            }
            Buffer::new(most, self.job.shared)
        };
        let mut buffers = Buffers::<T> {
            send: room(|layout| &layout.send)?,
            recv: room(|layout| &layout.recv)?,
        };
        let device = gpu.map(|gpu| Device::new(gpu, &buffers)).transpose()?;
        let outcome = self.sizes(run, &mut buffers, device.as_ref());
        if let (Err(error), Some(_)) = (&outcome, &device) {
            self.give_up(&**error)?;
        }
        outcome
    }

    /// Measures and reports all sizes; says how many elements were wrong on this rank.
    fn sizes<T: Sample>(
        &self,
        run: Run,
        buffers: &mut Buffers<T>,
        device: Option<&Device<'_>>,
    ) -> Outcome<u64> {
        let mut wrong = 0;
        for (index, count) in self.job.counts(run).enumerate() {
            let size = Size { run, count, index };
            wrong += self.size(size, buffers, device)?;
        }
        self.settle(device)?;
        Ok(wrong)
    }

    /// Lets the other ranks know at once. Memory of devices is given back only when the streams are through, and these may wait for ranks
    /// that wait for this one.
    fn give_up(&self, error: &dyn Error) -> Outcome<()> {
        let why = error.to_string();
        (self.tell)(Report::Failed { why })?;
        self.comm.abort();
        self.team.control.abort();
        Ok(())
    }

    /// Measures and reports one size; says how many elements were wrong on this rank.
    fn size<T: Sample>(
        &self,
        size: Size,
        buffers: &mut Buffers<T>,
        device: Option<&Device<'_>>,
    ) -> Outcome<u64> {
        let Size { run, count, .. } = size;
        let mut row = Row {
            operation: run.operation.name().to_owned(),
            bytes: self.job.bytes(run, count),
            count: count as u64,
            dtype: run.dtype_name().to_owned(),
            op: run.operation.reduces().then(|| run.op.to_string()),
            root: run.operation.root(),
            skew: run
                .operation
                .has_given_blocks()
                .then(|| self.job.skew.to_string()),
            algorithm: None,
            predicted_us: None,
            out_of_place: None,
            in_place: None,
        };
        let mut wrong_here = 0;
        let bus_factor = self.bus_factor(size);
        for &placement in &self.job.placements {
            let mut wrong = None;
            if self.job.check {
                let here = self.check(size, placement, buffers, device)?;
                wrong_here += here;
                wrong = Some(self.team.sum(here)?);
            }
            let (stats, overlap) = self.time(size, placement, buffers, device)?;
            let algorithm_bandwidth = stats.algorithm_bandwidth(row.bytes);
            let measured = Measured {
                bus_bandwidth: algorithm_bandwidth * bus_factor,
                algorithm_bandwidth,
                wrong,
                stats,
                overlap,
            };
            match placement {
                Placement::OutOfPlace => row.out_of_place = Some(measured),
                Placement::InPlace => row.in_place = Some(measured),
            }
        }
        if let Some(collective) = run.operation.collective() {
            // First calls may have tried others.
            let algorithm = self.comm.algorithm_for(collective, count, run.dtype)?;
            row.algorithm = Some(algorithm.to_owned());
            if self.job.predict {
                let said = self.comm.explain(collective, count, run.dtype)?;
                row.predicted_us = Some(said.candidates[said.chosen].predicted.as_secs_f64() * 1e6);
            }
        }
        if self.comm.rank() == 0 {
            (self.tell)(Report::Row(Box::new(row)))?;
        }
        Ok(wrong_here)
    }

    /// What turns algorithm bandwidth into bus bandwidth, also where blocks are unequal.
    fn bus_factor(&self, Size { run, count, .. }: Size) -> f64 {
        let (ranks, skew) = (self.job.ranks, self.job.skew);
        match run.operation {
            Operation::Collective(collective) if collective.has_given_blocks() && skew != Skew::Balanced => {
                let lengths = skew.lengths(run.operation, ranks, count);
                most_moved(collective, ranks, &lengths) as f64 / (ranks * count).max(1) as f64
            }
            operation => stats::bus_factor(operation, ranks),
        }
    }

    /// A call whose result is known, which goes the way of those that are timed; says how many elements of this rank's buffers are
    /// not what they must be.
    fn check<T: Sample>(
        &self,
        size: Size,
        placement: Placement,
        buffers: &mut Buffers<T>,
        device: Option<&Device<'_>>,
    ) -> Result<u64> {
        let Size { run, count, index } = size;
        let puzzle = Puzzle {
            operation: run.operation,
            dtype: run.dtype,
            op: run.op,
            ranks: self.job.ranks,
            // What is left in a buffer from another size or placement is wrong here.
            seed: hash(SEED, 2 * index as u64 + placement as u64),
        };
        let (rank, layout) = (self.comm.rank(), self.layout(run, placement, count));
        let is_blocking = device.is_none() && !self.job.overlap;
        if is_blocking && self.job.bytes(run, count) < measure::HUGE {
            // From the third call on it goes the way of what is repeated.
            (0..2).try_for_each(|_| self.call(size, &layout, buffers))?;
        }
        buffers.fill(&puzzle, rank, &layout);
        match device {
            Some(device) => {
                device.write(buffers, &layout)?;
                // In place each call has the last one's result.
                let calls = match placement {
                    Placement::OutOfPlace => self.job.graph.unwrap_or(1),
                    Placement::InPlace => 1,
                };
                let mut call = self.caller(device, size, &layout, calls)?;
                self.settle(Some(device))?;
                call(1)?;
                device.read(buffers, &layout)?;
            }
            None if self.job.overlap => {
                self.call_beside(size, &layout, buffers, || overlap::compute(SOME_ROUNDS))?;
            }
            None => self.call(size, &layout, buffers)?,
        }
        Ok(buffers.count_wrong(&puzzle, rank, &layout))
    }

    /// Times calls on zeros. They are a fixed point of every operation, so that calls in place, each on the last one's
    /// result, do not drift to infinities or to subnormal numbers, which some processors handle at another speed.
    fn time<T: Sample>(
        &self,
        size: Size,
        placement: Placement,
        buffers: &mut Buffers<T>,
        device: Option<&Device<'_>>,
    ) -> Result<(stats::Stats, Option<Overlap>)> {
        let Size { run, count, .. } = size;
        let layout = self.layout(run, placement, count);
        buffers.send.data_mut(layout.send.len()).fill(T::from_raw(0));
        buffers.recv.data_mut(layout.recv.len()).fill(T::from_raw(0));
        let mut what = Timed {
            bytes: self.job.bytes(run, count),
            at_once: 1,
            shortest: run.operation.shortest_sample(),
        };
        if let Some(device) = device {
            device.write(buffers, &layout)?;
            what.at_once = self.job.graph.unwrap_or(1);
            what.shortest = SHORTEST_ON_DEVICES;
            let call = self.caller(device, size, &layout, what.at_once)?;
            self.settle(Some(device))?;
            return Ok((measure::time(self.team, self.job, &what, call)?, None));
        }
        if !self.job.overlap {
            let call = |calls| (0..calls).try_for_each(|_| self.call(size, &layout, buffers));
            return Ok((measure::time(self.team, self.job, &what, call)?, None));
        }
        let pure = measure::time(self.team, self.job, &what, |calls| {
            (0..calls).try_for_each(|_| self.call_beside(size, &layout, buffers, || ()))
        })?;
        let overlap = Overlap::measure(self.team, &pure, |compute| {
            self.call_beside(size, &layout, buffers, compute)
        })?;
        Ok((pure, Some(overlap)))
    }

    /// The call itself.
    #[inline]
    fn call<T: Sample>(&self, size: Size, layout: &Layout, buffers: &mut Buffers<T>) -> Result<()> {
        let Size { run, count, .. } = size;
        let collective = match run.operation {
            Operation::SendRecv => {
                let [from, to] = self.neighbours();
                let send = buffers.send.data(layout.send.len());
                let recv = buffers.recv.data_mut(layout.recv.len());
                return self.comm.send_recv(send, to, recv, from);
            }
            Operation::Collective(Collective::Barrier) => return self.comm.barrier(),
            Operation::Collective(collective) => collective,
        };
        let [input, output] = buffers.memory(layout);
        if collective.has_given_blocks() {
            let sides = sides(layout, self.job.ranks);
            return self
                .comm
                .vector(collective, sides, [input, output], run.dtype, run.op.into());
        }
        // Not every operation in place has a function of its own; this is what those that have one do.
        self.comm
            .collective(collective, Some(input), Some(output), count, run.dtype, run.op)
    }

    /// Waits for all ranks where there are devices. What gives memory back, and some of what takes it, waits for all streams of a process,
    /// as do streams and graphs that are made: no rank that is a thread does so while another's stream waits for its.
    fn settle(&self, device: Option<&Device<'_>>) -> Result<()> {
        device.map_or(Ok(()), |_| self.team.meet())
    }

    /// What makes so many calls on memory of a device, by a graph if that is to be, as often as it is told to, and waits for their end.
    fn caller<'d>(
        &'d self,
        device: &'d Device<'_>,
        size: Size,
        layout: &'d Layout,
        calls: u64,
    ) -> Result<impl FnMut(u64) -> Result<()> + 'd> {
        let give = move || (0..calls).try_for_each(|_| self.give(device, size, layout));
        let graph = (self.job.graph.is_some())
            .then(|| device.gpu.capture(give))
            .transpose()?;
        Ok(move |times| {
            (0..times).try_for_each(|_| graph.as_ref().map_or_else(give, Graph::launch))?;
            device.gpu.synchronize()?;
            self.comm.failure().map_or(Ok(()), |cause| Err(Failed(cause)))
        })
    }

    /// Gives a call to the device's stream.
    fn give(&self, device: &Device<'_>, size: Size, layout: &Layout) -> Result<()> {
        let Size { run, count, .. } = size;
        let (on, dtype, [input, output]) = (
            self.comm.on_cuda(device.gpu.stream()),
            run.dtype,
            device.memory(layout, run.dtype.size()),
        );
        match run.operation {
            Operation::SendRecv => {
                let [from, to] = self.neighbours();
                on.send(input, dtype, to, 0)?;
                on.recv(output, dtype, from)?;
            }
            Operation::Collective(collective) if collective.has_given_blocks() => {
                let blocks = (self.comm).given(collective, sides(layout, self.job.ranks), dtype)?;
                on.given(collective, blocks, [input, output], (dtype, run.op.into()))?;
            }
            Operation::Collective(collective) => {
                on.collective(collective, [Some(input), Some(output)], (count, dtype, run.op))?;
            }
        }
        Ok(())
    }

    /// Sends to the next rank and receives from the one before, both at once, while `meanwhile` runs.
    pub(super) fn pass_on<T: Sample>(
        &self,
        layout: &Layout,
        buffers: &mut Buffers<T>,
        meanwhile: impl FnOnce(),
    ) -> Result<()> {
        let [from, to] = self.neighbours();
        let send = buffers.send.data(layout.send.len());
        let recv = buffers.recv.data_mut(layout.recv.len());
        self.comm.scope(|scope| {
            scope.send(send, to)?;
            scope.recv(recv, from)?;
            meanwhile();
            Ok(())
        })
    }

    /// The ranks before and after this one, counted around.
    fn neighbours(&self) -> [usize; 2] {
        let (rank, ranks) = (self.comm.rank(), self.job.ranks);
        [(rank + ranks - 1) % ranks, (rank + 1) % ranks]
    }

    fn layout(&self, run: Run, placement: Placement, count: usize) -> Layout {
        let what = (run.operation, self.job.skew);
        Layout::new(what, self.job.ranks, self.comm.rank(), placement, count)
    }
}

/// Computation beside a call whose result is looked at: some microseconds.
const SOME_ROUNDS: u64 = 10_000;

/// What a call is told of the blocks of its buffers.
pub(super) fn sides(layout: &Layout, ranks: usize) -> [Side<'_>; 2] {
    [
        side(layout.sent(), &layout.input, ranks),
        side(&layout.recv, &layout.output, ranks),
    ]
}

/// What a call is told of the blocks of one of its buffers.
fn side<'l>(whole: &'l Whole, blocks: &Range<usize>, ranks: usize) -> Side<'l> {
    match blocks.len() {
        0 => Side::None,
        all if all == ranks => Side::Each {
            counts: &whole.counts,
            displs: &whole.displs,
        },
        _ => Side::Own(whole.within(blocks).len()),
    }
}

/// The elements `range` of `buffer`.
fn part<T>(buffer: Region<'_>, range: Range<usize>) -> Region<'_> {
    buffer.part(range.start * size_of::<T>(), range.len() * size_of::<T>())
}

/// One size of a run; `index` tells it from the others.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) run: Run,
    pub(super) count: usize,
    index: usize,
}

/// The memory of a run. What is measured in place lies in `recv`.
pub(super) struct Buffers<T: Sample> {
    send: Buffer<T>,
    recv: Buffer<T>,
}

/// The same on a device: what is there of both buffers.
struct Device<'g> {
    gpu: &'g Gpu,
    send: Allocation,
    recv: Allocation,
}

impl<'g> Device<'g> {
    fn new<T: Sample>(gpu: &'g Gpu, buffers: &Buffers<T>) -> Result<Self> {
        Ok(Device {
            gpu,
            send: gpu.allocate(buffers.send.capacity() * size_of::<T>())?,
            recv: gpu.allocate(buffers.recv.capacity() * size_of::<T>())?,
        })
    }

    /// Input and output of a call on elements of so many bytes.
    fn memory(&self, layout: &Layout, element: usize) -> [DeviceMemory; 2] {
        let recv = self.recv.memory();
        let send = match layout.has_one_buffer() {
            true => recv,
            false => self.send.memory(),
        };
        let part =
            |of: DeviceMemory, range: Range<usize>| of.part(range.start * element, range.len() * element);
        [
            part(send, layout.sent().within(&layout.input)),
            part(recv, layout.recv.within(&layout.output)),
        ]
    }

    /// Copies what the host's buffers have.
    fn write<T: Sample>(&self, buffers: &Buffers<T>, layout: &Layout) -> Result<()> {
        self.send
            .write(0, Region::of(buffers.send.data(layout.send.len())))?;
        self.recv
            .write(0, Region::of(buffers.recv.data(layout.recv.len())))
    }

    /// Copies it back.
    fn read<T: Sample>(&self, buffers: &mut Buffers<T>, layout: &Layout) -> Result<()> {
        self.send
            .read(0, Region::of_mut(buffers.send.data_mut(layout.send.len())))?;
        self.recv
            .read(0, Region::of_mut(buffers.recv.data_mut(layout.recv.len())))
    }
}

impl<T: Sample> Buffers<T> {
    /// Input and output of a call.
    #[inline]
    pub(super) fn memory(&mut self, layout: &Layout) -> [Region<'_>; 2] {
        let recv = Region::of_mut(self.recv.data_mut(layout.recv.len()));
        let send = match layout.has_one_buffer() {
            true => recv,
            false => Region::of(self.send.data(layout.send.len())),
        };
        [
            part::<T>(send, layout.sent().within(&layout.input)),
            part::<T>(recv, layout.recv.within(&layout.output)),
        ]
    }

    /// Has the buffers hold what `rank` puts in, and where it gets something the opposite of that.
    fn fill(&mut self, puzzle: &Puzzle, rank: usize, layout: &Layout) {
        for (block, data) in self.recv.blocks_mut(&layout.recv) {
            match layout.has_one_buffer() && layout.input.contains(&block) {
                true => Pattern::input(puzzle, rank, block).fill(data),
                false => Pattern::opposite(puzzle, rank, block).fill(data),
            }
        }
        for (block, data) in self.send.blocks_mut(&layout.send) {
            Pattern::input(puzzle, rank, block).fill(data);
        }
        self.recv.set_guards(layout.recv.len());
        self.send.set_guards(layout.send.len());
    }

    /// The elements that are not what the call must have left: results, what it only reads, and guards.
    fn count_wrong(&self, puzzle: &Puzzle, rank: usize, layout: &Layout) -> u64 {
        let received =
            self.recv
                .blocks(&layout.recv)
                .map(|(block, data)| match layout.output.contains(&block) {
                    true => Pattern::expected(puzzle, rank, block).count_wrong(data),
                    false => Pattern::input(puzzle, rank, block).count_wrong(data),
                });
        let sent = (self.send.blocks(&layout.send))
            .map(|(block, data)| Pattern::input(puzzle, rank, block).count_wrong(data));
        received.sum::<u64>()
            + sent.sum::<u64>()
            + self.recv.count_broken_guards(layout.recv.len())
            + self.send.count_broken_guards(layout.send.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        perf::{args::Args, setup::Setup},
        topo::host::Host,
    };
    use std::path::Path;

    /// Has a rank check calls of several sizes, each once; says how many went a short way.
    fn check(job: &Job, ids: &[UniqueId; 2], rank: usize) -> u64 {
        let join = |id| Communicator::init(job.ranks, id, rank, &Config::default()).unwrap();
        let [comm, control] = ids.each_ref().map(join);
        let session = Session {
            comm: &comm,
            team: &Team { control },
            job,
            tell: &|_| Ok(()),
        };
        let buffer = || Buffer::new(64, false).unwrap();
        let mut buffers = Buffers::<u32> {
            send: buffer(),
            recv: buffer(),
        };
        for count in 1..=8 {
            let size = Size {
                run: job.runs[0],
                count,
                index: count,
            };
            for &placement in &job.placements {
                assert_eq!(session.check(size, placement, &mut buffers, None).unwrap(), 0);
            }
        }
        comm.short_calls().unwrap()
    }

    #[test]
    fn what_is_checked_goes_the_way_of_what_is_timed() {
        let words = "ccl-perf allreduce -e 32 --ranks 2 --transport shm".split(' ');
        let args = Args::read(words.map(Into::into)).ok().unwrap();
        let job = Setup::new(args, &Host::read(Path::new("/"))).unwrap().job;
        let ids = [(); 2].map(|()| UniqueId::local().unwrap());
        let counts = thread::scope(|scope| {
            let ranks = [0, 1].map(|rank| {
                scope.spawn({
                    let (job, ids) = (&job, &ids);
                    move || check(job, ids, rank)
                })
            });
            ranks.map(|rank| rank.join().unwrap())
        });
        // Where others need the floor for a moment a call goes another way.
        assert!(counts.iter().all(|&short| short > 0), "{counts:?}");
    }
}
