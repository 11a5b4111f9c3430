//! A rank's process: takes its order from standard input, measures, and reports on standard output.

use super::{
    buffer::Buffer,
    measure::{self, Team},
    pattern::{Pattern, Sample},
    puzzle::{Puzzle, hash},
    report::{Job, Measured, Order, Placement, Report, Row, Run},
    stats,
};
use crate::{
    Communicator, Config, UniqueId,
    types::{Collective, DType, F8E4M3, F8E5M2, Result},
};
use std::{
    error::Error,
    io::{Read, Write},
    process::ExitCode,
};
use zeroize::Zeroizing;

/// The first argument of a rank's process; the second is its rank, for `ps`.
pub(super) const ARGUMENT: &str = "__rank";

/// A rank reads this many bytes first: the unique ids of the communicators to measure and to agree over.
pub(super) const IDS_BYTES: usize = 2 * 128;

/// The first seed; others are made of it.
const SEED: u64 = 0x0063_636c_2d70_6572;

/// A failure of the library or of this process; only its text matters.
pub(super) type Outcome<T> = Result<T, Box<dyn Error>>;

/// A rank's whole life. Whatever goes wrong is the parent's to print.
pub(super) fn main() -> ExitCode {
    match receive_order().and_then(|(ids, order)| follow(&ids, &order)) {
        Ok(status) => status,
        Err(error) => fail(&*error),
    }
}

fn fail(error: &dyn Error) -> ExitCode {
    // If the parent cannot be told, nobody can.
    let _ = say(&Report::Failed {
        why: error.to_string(),
    });
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

fn say(report: &Report) -> Outcome<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    Ok(std::io::stdout().write_all(&line)?)
}

fn follow(ids: &[u8; IDS_BYTES], order: &Order) -> Outcome<ExitCode> {
    // Ctrl-C reaches all processes of a terminal; the parent alone decides what it means. The flag is not looked at.
    let interrupted = std::sync::Arc::default();
    signal_hook::flag::register(signal_hook::consts::SIGINT, interrupted)
        .map_err(|error| format!("leaving SIGINT to the parent: {error}"))?;
    let job = &order.job;
    let (measured, control) = ids.split_at(IDS_BYTES / 2);
    let join = |id: &[u8], config: &Config| -> Result<Communicator> {
        let mut bytes = Zeroizing::new([0; IDS_BYTES / 2]);
        bytes.copy_from_slice(id);
        Communicator::init(job.ranks, &UniqueId::from_bytes(*bytes)?, order.rank, config)
    };
    let [config, plain] = configs(job);
    let comm = join(measured, &config)?;
    let team = Team {
        control: join(control, &plain)?,
    };
    if order.rank == 0 {
        say(&Report::Ready {
            transport: comm.transport().to_owned(),
        })?;
    }
    let session = Session {
        comm: &comm,
        team: &team,
        job,
        tell: &|report| say(&report),
    };
    // The communicators are dropped afterwards: with a rank that is silent that takes a while.
    match session.run_all() {
        Ok(wrong) => say(&Report::Done { wrong }).map(|()| ExitCode::SUCCESS),
        Err(error) => Ok(fail(&*error)),
    }
}

/// The configurations of the communicator to measure and of the one to agree over.
pub(super) fn configs(job: &Job) -> [Config; 2] {
    let plain = Config {
        timeout: job.timeout,
        ..Config::default()
    };
    let measured = Config {
        transport: job.transport.clone(),
        algorithm: job.algorithm.clone(),
        ..plain.clone()
    };
    [measured, plain]
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
        self.job.runs.iter().map(|&run| self.run_any(run)).sum()
    }

    /// Goes through the sizes; says how many elements were wrong on this rank.
    fn run_any(&self, run: Run) -> Outcome<u64> {
        match run.dtype {
            DType::Int8 => self.run::<i8>(run),
            DType::Uint8 => self.run::<u8>(run),
            DType::Int16 => self.run::<i16>(run),
            DType::Uint16 => self.run::<u16>(run),
            DType::Int32 => self.run::<i32>(run),
            DType::Uint32 => self.run::<u32>(run),
            DType::Int64 => self.run::<i64>(run),
            DType::Uint64 => self.run::<u64>(run),
            DType::Float16 => self.run::<half::f16>(run),
            DType::Bfloat16 => self.run::<half::bf16>(run),
            DType::Float32 => self.run::<f32>(run),
            DType::Float64 => self.run::<f64>(run),
            DType::Float8e4m3 => self.run::<F8E4M3>(run),
            DType::Float8e5m2 => self.run::<F8E5M2>(run),
        }
    }

    fn run<T: Sample>(&self, run: Run) -> Outcome<u64> {
        let capacity = self.job.sweep.max as usize / size_of::<T>();
        let needs_send = self.job.placements.contains(&Placement::OutOfPlace);
        let mut buffers = Buffers::<T> {
            send: Buffer::new(if needs_send { capacity } else { 0 })?,
            recv: Buffer::new(capacity)?,
        };
        let mut wrong = 0;
        for (index, count) in self.job.sweep.counts(size_of::<T>()).enumerate() {
            let size = Size { run, count, index };
            wrong += self.size(size, &mut buffers)?;
        }
        Ok(wrong)
    }

    /// Measures and reports one size; says how many elements were wrong on this rank.
    fn size<T: Sample>(&self, size: Size, buffers: &mut Buffers<T>) -> Outcome<u64> {
        let Size { run, count, .. } = size;
        let mut row = Row {
            operation: run.collective.name().to_owned(),
            bytes: (count * size_of::<T>()) as u64,
            count: count as u64,
            dtype: run.dtype_name().to_owned(),
            op: run.collective.reduces().then(|| run.op.to_string()),
            root: run.collective.root(),
            algorithm: self
                .comm
                .algorithm_for(run.collective, count, run.dtype)?
                .to_owned(),
            out_of_place: None,
            in_place: None,
        };
        let mut wrong_here = 0;
        for &placement in &self.job.placements {
            let mut wrong = None;
            if self.job.check {
                let here = self.check(size, placement, buffers)?;
                wrong_here += here;
                wrong = Some(self.team.sum(here)?);
            }
            let stats = self.time(size, placement, buffers)?;
            let algorithm_bandwidth = stats.algorithm_bandwidth(row.bytes);
            let measured = Measured {
                bus_bandwidth: algorithm_bandwidth * stats::bus_factor(run.collective, self.job.ranks),
                algorithm_bandwidth,
                wrong,
                stats,
            };
            match placement {
                Placement::OutOfPlace => row.out_of_place = Some(measured),
                Placement::InPlace => row.in_place = Some(measured),
            }
        }
        if self.comm.rank() == 0 {
            (self.tell)(Report::Row(Box::new(row)))?;
        }
        Ok(wrong_here)
    }

    /// One call whose result is known; says how many elements of this rank's buffers are not what they must be.
    fn check<T: Sample>(&self, size: Size, placement: Placement, buffers: &mut Buffers<T>) -> Result<u64> {
        let Size { run, count, index } = size;
        let puzzle = Puzzle {
            collective: run.collective,
            dtype: run.dtype,
            op: run.op,
            ranks: self.job.ranks,
            // What is left in a buffer from another size or placement is wrong here.
            seed: hash(SEED, 2 * index as u64 + placement as u64),
        };
        let input = Pattern::input(&puzzle, self.comm.rank());
        let expected = Pattern::expected(&puzzle);
        let Buffers { send, recv } = buffers;
        let has_input = run
            .collective
            .root()
            .is_none_or(|root| root as usize == self.comm.rank());
        if placement == Placement::InPlace && has_input {
            input.fill(recv.data_mut(count));
        } else {
            Pattern::opposite(&puzzle).fill(recv.data_mut(count));
        }
        recv.set_guards(count);
        if placement == Placement::InPlace {
            self.call(run, count, None, recv)?;
            return Ok(expected.count_wrong(recv.data(count)) + recv.count_broken_guards(count));
        }
        input.fill(send.data_mut(count));
        send.set_guards(count);
        self.call(run, count, Some(send), recv)?;
        let results = expected.count_wrong(recv.data(count)) + recv.count_broken_guards(count);
        let untouched = input.count_wrong(send.data(count)) + send.count_broken_guards(count);
        Ok(results + untouched)
    }

    /// Times calls on zeros. They are a fixed point of every operation, so that calls in place, each on the last one's
    /// result, do not drift to infinities or to subnormal numbers, which some processors handle at another speed.
    fn time<T: Sample>(
        &self,
        size: Size,
        placement: Placement,
        buffers: &mut Buffers<T>,
    ) -> Result<stats::Stats> {
        let Size { run, count, .. } = size;
        let Buffers { send, recv } = buffers;
        let out_of_place = placement == Placement::OutOfPlace;
        if out_of_place {
            send.data_mut(count).fill(T::from_raw(0));
        }
        recv.data_mut(count).fill(T::from_raw(0));
        let bytes = (count * size_of::<T>()) as u64;
        measure::time(self.team, self.job, bytes, || {
            self.call(run, count, out_of_place.then_some(&*send), recv)
        })
    }

    /// The call itself; in place where there is no `send`.
    #[inline]
    fn call<T: Sample>(
        &self,
        run: Run,
        count: usize,
        send: Option<&Buffer<T>>,
        recv: &mut Buffer<T>,
    ) -> Result<()> {
        let recv = recv.data_mut(count);
        let send = send.map(|send| send.data(count));
        match (run.collective, send) {
            (Collective::AllReduce, Some(send)) => self.comm.all_reduce(send, recv, run.op),
            (Collective::AllReduce, None) => self.comm.all_reduce_in_place(recv, run.op),
            (Collective::Broadcast { root }, Some(send)) => {
                let is_root = self.comm.rank() == root as usize;
                self.comm.broadcast(is_root.then_some(send), recv, root as usize)
            }
            (Collective::Broadcast { root }, None) => self.comm.broadcast_in_place(recv, root as usize),
            (Collective::Barrier, _) => self.comm.barrier(),
            (other, _) => Err(crate::Error::internal(format!(
                "ccl-perf does not measure {}",
                other.name()
            ))),
        }
    }
}

/// One size of a run; `index` tells it from the others.
#[derive(Clone, Copy)]
struct Size {
    run: Run,
    count: usize,
    index: usize,
}

/// The memory of a run. What is measured in place lies in `recv`.
struct Buffers<T> {
    send: Buffer<T>,
    recv: Buffer<T>,
}
