//! How long a schedule takes on a network: messages as flows that share edges.
//!
//! A rank's channels are threads that take messages, add, and send, as the schedule says. A message waits for room in its lane,
//! takes its sender `overhead`, shares the edges of its way fairly with all others ([`flows`]), and comes when all of it has left
//! and the way's latency is over. What a network is made of is in [`network`] and [`host`].
//!
//! Lengths are fractions of bytes: blocks, grains and tiles of a call are taken as equally long, and as many tiles are in
//! flight as divide all. So ranks that are alike stay so, and one is run for all ([`fold`]); and loops whose turns take as long
//! as earlier ones are cut short ([`steady`]). Neither changes the result by more than rounding: times are femtoseconds.
//!
//! Out of scope are packets: pauses, drops, and flows that a switch puts on one of several links.

pub(crate) mod choice;
mod edges;
mod engine;
mod flows;
mod fold;
pub(crate) mod host;
mod model;
pub(crate) mod network;
mod program;
mod queue;
pub(crate) mod rounds;
mod steady;
#[cfg(test)]
mod tests;
pub(crate) mod trace;

use super::algo::Algorithm;
use super::definition;
use crate::types::{Collective, Error};
use edges::Used;
use engine::{Setting, Sharing};
use fold::Classes;
use model::Model;
use network::{Network, femtoseconds};
use program::{Op, Programs, Work};
use trace::Span;

/// A call, and how it is run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'c> {
    pub(crate) collective: Collective,
    pub(crate) algorithm: &'c Algorithm,
    /// Of the whole vector.
    pub(crate) bytes: f64,
    /// Copies of the schedule that share the vector, each with the ranks of a host one place further on: so each goes another way
    /// in and out of hosts.
    pub(crate) channels: usize,
    /// Bytes of the longest message.
    pub(crate) tile: f64,
    /// Tiles in flight.
    pub(crate) in_flight: usize,
    pub(crate) constants: Constants,
    pub(crate) effort: Effort,
}

/// What messages cost apart from their way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Constants {
    /// Nanoseconds of a sender's time for each message.
    pub(crate) overhead_ns: f64,
    /// Nanoseconds for each byte that is added to others: 0 if that is done while bytes come.
    pub(crate) reduce_ns: f64,
    /// Messages that a lane holds until they are taken.
    pub(crate) slots: usize,
}

impl Constants {
    /// What network adapters and GPUs take, roughly.
    pub(crate) const USUAL: Constants = Constants {
        overhead_ns: 500.0,
        reduce_ns: 0.0,
        slots: 4,
    };
}

/// What may be left out, and what is asked for besides the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effort {
    /// Whether ranks that are alike are run once.
    pub(crate) folds: bool,
    /// Whether steady loops are cut short.
    pub(crate) cuts: bool,
    /// Whether the time is split by its causes, which takes two more runs, in a thread of their own. Not done for a long one.
    pub(crate) splits: bool,
    /// Whether spans are kept. Then all ranks are run.
    pub(crate) traces: bool,
    /// How many shares of flows are looked at before it is given up; about 10 million a second.
    pub(crate) most: u64,
}

impl Effort {
    pub(crate) const USUAL: Effort = Effort {
        folds: true,
        cuts: true,
        splits: true,
        traces: false,
        most: u64::MAX,
    };
}

/// What came out. Times in seconds.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    pub(crate) ranks: usize,
    pub(crate) time: f64,
    pub(crate) split: Option<Split>,
    /// Bytes a second, as nccl-tests count it.
    pub(crate) bus_bandwidth: f64,
    pub(crate) tiles: usize,
    pub(crate) in_flight: usize,
    /// Threads of all ranks, and how many were run.
    pub(crate) threads: usize,
    pub(crate) classes: usize,
    /// Messages of all ranks, and how many were run.
    pub(crate) messages: f64,
    pub(crate) run: u64,
    /// The edges that were busiest, one of those that are alike; and how many are.
    pub(crate) busiest: Vec<Busy>,
    pub(crate) spans: Vec<Span>,
}

/// Of what a time consists. Seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Split {
    /// What it would take if bytes took no time.
    pub(crate) latency: f64,
    /// What bytes add if each message has its way for itself.
    pub(crate) bandwidth: f64,
    /// What sharing adds to that. Rarely less than 0, where who is late is in nobody's way.
    pub(crate) contention: f64,
}

/// How busy an edge was.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Busy {
    pub(crate) name: String,
    /// Where its bandwidth is written.
    pub(crate) place: String,
    /// Those that carry as much of what they can.
    pub(crate) alike: usize,
    /// Bytes that went over it, those that can in a second, and their share of what could have.
    pub(crate) bytes: f64,
    pub(crate) capacity: f64,
    pub(crate) utilisation: f64,
}

/// Messages of a run that is done twice more to split its time, at most.
const MOST_SPLIT: u64 = 20_000_000;

/// Ranks whose spans are kept, at most.
pub(crate) const MOST_TRACED: usize = 512;

/// Spans that are kept, at most: some hundred MB.
const MOST_SPANS: f64 = 1e6;

/// Runs a call.
///
/// # Errors
/// [`Error::Usage`] if a rank cannot reach another that it has messages for, or there is too much to do.
pub(crate) fn simulate(call: &Call<'_>, network: &Network) -> Result<Report, Error> {
    let ranks = network.ranks();
    if call.effort.traces && ranks > MOST_TRACED {
        return Err(Error::usage(format!(
            "a trace of {ranks} ranks: {MOST_TRACED} are the most"
        )));
    }
    let work = Work {
        collective: call.collective,
        algorithm: call.algorithm,
        parts: call.channels.max(1),
        groups: None,
    };
    let mut programs = Programs::new(&work, network)?;
    let used = Used::number(&mut programs, network);
    used.prune(&mut programs);
    let classes = match call.effort.folds && !call.effort.traces {
        true => Classes::new(&programs, &used.capacities, network),
        false => Classes::apart(&programs, used.of.len()),
    };
    let grain = call.bytes / work.parts as f64 / programs.grains.max(1) as f64;
    let (tiles, in_flight) = tiles(call.tile, call.in_flight, &programs, grain)?;
    let messages = programs.messages * tiles as f64;
    if call.effort.traces && messages > MOST_SPANS {
        return Err(Error::usage(format!(
            "a trace of {messages:.0} messages: {MOST_SPANS:.0} are the most; longer tiles (--tile), fewer channels (--channels) or \
             another algorithm (--algorithm) make them fewer"
        )));
    }
    let model = Model::new(&programs, &classes, &used.capacities, in_flight as f64);
    let setting = Setting {
        grain: grain / tiles as f64,
        tiles: (tiles / in_flight) as u32, // not more than `MOST_TILES`
        overhead: femtoseconds(call.constants.overhead_ns),
        reduce: call.constants.reduce_ns * 1e6,
        slots: call.constants.slots.max(1),
        sharing: Sharing::Fair,
        copies: in_flight as f64,
        most: call.effort.most,
        most_run: u64::MAX,
        cuts: call.effort.cuts && !call.effort.traces,
        traces: call.effort.traces,
    };
    let apart = |sharing| {
        let setting = Setting {
            sharing,
            most_run: MOST_SPLIT,
            traces: false,
            ..setting
        };
        engine::run(&model, &setting).map(|outcome| outcome.time)
    };
    // Beside it, as long as they do not take longer than what they are about: then the time is not split.
    let (outcome, apart) = std::thread::scope(|scope| {
        let apart = || Ok::<_, Error>([apart(Sharing::Latency)?, apart(Sharing::Alone)?]);
        let apart = call.effort.splits.then(|| scope.spawn(apart));
        let outcome = engine::run(&model, &setting);
        (outcome, apart.map(|apart| apart.join()))
    });
    let outcome = outcome?;
    let split = match apart {
        Some(Ok(split)) => split.ok(),
        Some(Err(panic)) => std::panic::resume_unwind(panic),
        None => None,
    };
    let time = seconds(outcome.time);
    let split = split.map(|apart| {
        let [latency, alone] = apart.map(seconds);
        Split {
            latency,
            bandwidth: alone - latency,
            contention: time - alone,
        }
    });
    Ok(Report {
        ranks,
        time,
        split,
        bus_bandwidth: match time > 0.0 {
            true => call.bytes / time * definition::bus_factor(call.collective, ranks),
            false => 0.0,
        },
        tiles,
        in_flight,
        threads: programs.threads.len() * in_flight,
        classes: model.threads.len(),
        messages,
        run: outcome.run,
        busiest: busiest(&used, network, grain, time),
        spans: spans(outcome.spans, &programs),
    })
}

/// How many tiles there are, and how many of them are in flight: a number that divides them.
///
/// # Errors
/// [`Error::Usage`] if they are more than can be counted.
fn tiles(tile: f64, in_flight: usize, programs: &Programs, grain: f64) -> Result<(usize, usize), Error> {
    let grains = programs.ops.iter().map(|op| match op {
        Op::Send { grains, .. } => *grains,
        _ => 0,
    });
    let longest = f64::from(grains.max().unwrap_or(0)) * grain;
    let wanted = (longest / tile.max(1.0)).ceil().max(1.0);
    if wanted > MOST_TILES {
        return Err(Error::usage(format!(
            "messages of {} bytes would be {wanted:.0}: make them longer",
            tile
        )));
    }
    let wanted = wanted as usize;
    let in_flight = wanted.min(in_flight.max(1));
    Ok((wanted.next_multiple_of(in_flight), in_flight))
}

/// The most tiles of a call.
const MOST_TILES: f64 = 1e9;

fn seconds(femtoseconds: u64) -> f64 {
    femtoseconds as f64 * 1e-15
}

/// How many kinds of edges are told of.
const TOLD: usize = 5;

fn busiest(used: &Used, network: &Network, grain: f64, time: f64) -> Vec<Busy> {
    let share = |edge: usize| used.grains[edge] * grain / used.capacities[edge];
    let is_told = |edge: &usize| share(*edge) > time * 1e-3;
    let mut order: Vec<usize> = (0..used.of.len()).filter(is_told).collect();
    order.sort_by(|&one, &other| share(other).total_cmp(&share(one)));
    let alike = |one: &usize, other: &usize| (share(*one) - share(*other)).abs() <= 1e-9 * share(*one);
    let kinds = order.chunk_by(alike).take(TOLD);
    let busy = |edges: &[usize]| {
        let edge = edges.iter().copied().min()?;
        Some(Busy {
            name: network.name(used.of[edge]),
            place: network.place(used.of[edge]),
            alike: edges.len(),
            bytes: used.grains[edge] * grain,
            capacity: used.capacities[edge],
            utilisation: if time > 0.0 { share(edge) / time } else { 0.0 },
        })
    };
    kinds.filter_map(busy).collect()
}

/// Says whose they are. There is a thread in the model for each thread.
fn spans(spans: Vec<(u32, Span)>, programs: &Programs) -> Vec<Span> {
    let mut spans: Vec<_> = spans
        .into_iter()
        .map(|(lane, span)| {
            let lane = &programs.lanes[lane as usize];
            let (from, to) = (
                &programs.threads[lane.from as usize],
                &programs.threads[lane.to as usize],
            );
            Span {
                rank: from.rank as usize,
                channel: from.channel as usize,
                label: format!("to {}", to.rank),
                ..span
            }
        })
        .collect();
    spans.sort_by_key(|span| (span.rank, span.channel, span.begin, span.end));
    spans
}
