//! Why a call gets the algorithm that it gets.

use super::{
    algo::{Algorithm, Request},
    bounds::Bounds,
    choose,
    cost::{Counts, Load, Machine},
    layout::Layout,
    schedule::Extent,
    wishes::Wish,
};
use crate::types::{Collective, Error};
use std::{fmt, time::Duration};

/// What the planner says of one call: every algorithm that can do it, the one that it gets, and why.
///
/// Its `Display` is a line for each algorithm.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// The algorithms that can carry out the call, in the planner's order.
    pub candidates: Vec<Candidate>,
    /// The index of the one that the call gets.
    pub chosen: usize,
    /// Why that one.
    pub why: Why,
    /// The cores that the ranks may use together, as the planner knows it.
    pub cores: usize,
    /// The pieces that the call is cut into, and how many of them are under way at a time.
    pub tiles: usize,
    /// See `tiles`.
    pub in_flight: usize,
    /// Independent parts of the schedule, each with a lane of its own for each tile under way.
    pub channels: usize,
    /// The nearest shorter and the nearest longer vector, in bytes, for which the choice is another, and which.
    pub flips: [Option<(u64, &'static str)>; 2],
}

/// One algorithm, as the planner counts it for a call.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Candidate {
    /// Its name.
    pub algorithm: &'static str,
    /// The time that the call would take by it, by the planner's model.
    pub predicted: Duration,
    /// What of that goes to waiting for one another, to messages whatever their lengths, to moving bytes, and to adding them.
    pub parts: [Duration; 4],
    /// Messages that wait for one another.
    pub rounds: f64,
    /// Messages that the busiest rank sends and receives, tiles left aside.
    pub messages: f64,
    /// Bytes that it sends and receives.
    pub bytes: f64,
    /// Bytes that it adds to others.
    pub reduced: f64,
    /// How many times as many bytes that is as some rank must send and receive by any algorithm.
    pub times_least_bytes: f64,
    /// How many times the fewest rounds there would be if a rank could send only one message and receive one in each.
    pub times_least_rounds: f64,
}

/// Why an algorithm was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// The configuration forces it.
    Forced,
    /// No other can carry out the call.
    Only,
    /// It is predicted to take the least time, or comes before another that takes hardly less.
    Least,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Forced => "forced",
            Why::Only => "the only one",
            Why::Least => "least time",
        })
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, candidate) in self.candidates.iter().enumerate() {
            let mark = if i == self.chosen { "->" } else { "  " };
            let Candidate {
                algorithm,
                predicted,
                rounds,
                messages,
                bytes,
                reduced,
                times_least_bytes,
                times_least_rounds,
                parts,
            } = candidate;
            let micros = |time: &Duration| time.as_secs_f64() * 1e6;
            let (time, [latency, each, moved, added]) = (micros(predicted), parts.each_ref().map(micros));
            write!(
                f,
                "  {mark} {algorithm:<12} {time:>12.2} us ({latency:.2} latency, {each:.2} messages, {moved:.2} bytes, {added:.2} \
                 reduction) {rounds:>7} rounds {messages:>8} messages {bytes:>12} bytes \
                 {reduced:>12} reduced; {times_least_bytes:.2} times the least bytes, {times_least_rounds:.2} times the \
                 fewest rounds"
            )?;
            if i == self.chosen {
                let Explanation {
                    why,
                    tiles,
                    in_flight,
                    channels,
                    ..
                } = self;
                write!(
                    f,
                    "; {why}; {tiles} tiles, {in_flight} in flight, {channels} channels"
                )?;
            }
            writeln!(f)?;
        }
        match self.flips {
            [None, None] => Ok(()),
            [Some((below, other)), None] => writeln!(f, "     up to {below} bytes: {other}"),
            [None, Some((above, other))] => writeln!(f, "     from {above} bytes on: {other}"),
            [Some((below, shorter)), Some((above, longer))] => {
                writeln!(
                    f,
                    "     up to {below} bytes: {shorter}; from {above} bytes on: {longer}"
                )
            }
        }
    }
}

/// Explains a call over links of up to `lanes` lanes whose messages hold up to `max_message` bytes.
///
/// # Errors
/// As [`choose::algorithm`] and [`choose::tiling`].
pub(crate) fn explain(
    load: &Load,
    machine: &Machine,
    wish: Wish,
    max_message: usize,
    lanes: usize,
) -> Result<Explanation, Error> {
    let chosen = choose::algorithm(load, machine, wish)?;
    let candidates: Vec<_> = choose::candidates(load, machine, wish)
        .map(|algorithm| candidate(algorithm, load, machine))
        .collect();
    let of = |rank| {
        let request = Request {
            collective: load.collective,
            ranks: load.ranks,
            rank,
        };
        chosen.schedule(&request, machine.groups())
    };
    let (schedule, extent) = (
        of(0),
        Extent::of_all((0..load.ranks).map(|rank| of(rank).extent())),
    );
    let layout = Layout {
        count: load.count,
        blocks: schedule.blocks as usize,
        grains: schedule.grains as usize,
    };
    let (tiling, in_flight) = choose::tiling(extent, &layout, load, max_message, lanes, machine.tile(load))?;
    Ok(Explanation {
        chosen: candidates
            .iter()
            .position(|candidate| candidate.algorithm == chosen.name)
            .unwrap_or(0), // it is one of those that fit
        why: match wish {
            wish if wish.names(chosen) => Why::Forced,
            _ if candidates.len() == 1 => Why::Only,
            _ => Why::Least,
        },
        candidates,
        cores: machine.cores(),
        tiles: tiling.tiles,
        in_flight,
        channels: extent.channels,
        flips: flips(load, machine, wish, chosen),
    })
}

/// Where the choice is another: at the nearest shorter vector and the nearest longer one, in bytes.
fn flips(load: &Load, machine: &Machine, wish: Wish, chosen: &Algorithm) -> [Option<(u64, &'static str)>; 2] {
    let is_sized = load.collective != Collective::Barrier && !load.collective.counts_by_pair();
    // Elements are cut among ranks: below one each, and in odd counts, the choice means little.
    let (least, most) = (1, LONGEST / load.element);
    let other = |count: usize| {
        let found = choose::algorithm(&Load { count, ..*load }, machine, wish).ok()?;
        (found.name != chosen.name).then_some((count, found.name))
    };
    let bytes = |(count, name): (usize, &'static str)| (count as u64 * load.element as u64, name);
    // Between one that is as this and one that is not: the nearest of the latter.
    let nearest = |mut alike: usize, mut found: (usize, &'static str)| {
        while alike.abs_diff(found.0) > 1 {
            let middle = alike.midpoint(found.0);
            match other(middle) {
                Some(nearer) => found = nearer,
                None => alike = middle,
            }
        }
        found
    };
    let steps = |next: fn(usize) -> usize| {
        let counts = std::iter::successors(Some(load.count), move |&count| Some(next(count)));
        let counts = counts
            .skip(1)
            .take_while(move |count| (least..=most).contains(count));
        let mut alike = load.count;
        for count in counts {
            if let Some(found) = other(count) {
                return Some(bytes(nearest(alike, found)));
            }
            alike = count;
        }
        None
    };
    match is_sized && (least..=most).contains(&load.count) {
        true => [steps(|count| count / 2), steps(|count| count * 2)],
        false => [None; 2],
    }
}

/// Bytes of the longest vector that is looked at.
const LONGEST: usize = 1 << 40;

fn candidate(algorithm: &Algorithm, load: &Load, machine: &Machine) -> Candidate {
    let (counts, parts) = algorithm.predicted(load, machine);
    let time = |ns: f64| Duration::from_secs_f64(ns * 1e-9);
    let Counts { rounds, busiest, .. } = counts;
    let bounds = Bounds::of(load.collective, load.ranks);
    Candidate {
        algorithm: algorithm.name,
        predicted: time(parts.total()),
        parts: [parts.latency, parts.messages, parts.bytes, parts.reduced].map(time),
        rounds,
        messages: busiest.messages,
        bytes: busiest.bytes,
        reduced: busiest.reduced,
        times_least_bytes: bounds.times_passed(busiest.bytes, load.bytes()),
        times_least_rounds: bounds.times_rounds(counts.rounds_one_by_one(load.collective)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        plan::{groups::Groups, wishes::Wishes},
        types::{Collective, DType},
    };

    #[test]
    fn parts_are_the_whole_and_flips_are_where_the_choice_is_another() {
        for (cores, ranks) in [(2, 2), (2, 8), (8, 8), (16, 16)] {
            let machine = Machine::shared_memory(cores);
            for bytes in [8, 4 << 10, 256 << 10, 16 << 20] {
                let load = Load::new(Collective::AllReduce, ranks, bytes / 4, DType::Float32);
                let said = explain(&load, &machine, Wish::ANY, 256 << 10, 8).unwrap();
                for one in &said.candidates {
                    let sum: Duration = one.parts.iter().sum();
                    assert!(sum.abs_diff(one.predicted) <= Duration::from_nanos(4), "{one:?}");
                }
                let name = |bytes: u64| {
                    let count = bytes as usize / 4;
                    choose::algorithm(&Load { count, ..load }, &machine, Wish::ANY)
                        .unwrap()
                        .name
                };
                let chosen = said.candidates[said.chosen].algorithm;
                let [below, above] = said.flips;
                if let Some((at, other)) = below {
                    assert!(at < bytes as u64 && other != chosen);
                    assert_eq!((name(at), name(at + 4)), (other, chosen));
                }
                if let Some((at, other)) = above {
                    assert!(at > bytes as u64 && other != chosen);
                    assert_eq!((name(at), name(at - 4)), (other, chosen));
                }
            }
        }
        let said = said(&Machine::shared_memory(8), "").to_string();
        assert!(
            said.contains(" latency, ") && said.contains("\n     up to "),
            "{said}"
        );
    }

    fn said(machine: &Machine, wishes: &str) -> Explanation {
        let load = Load::new(Collective::AllReduce, 8, 1 << 20, DType::Float32);
        let wish = wishes.parse::<Wishes>().unwrap().of(load.collective);
        explain(&load, machine, wish, 256 << 10, 8).unwrap()
    }

    #[test]
    fn a_candidate_is_held_against_the_least_there_can_be() {
        let explanation = said(&Machine::shared_memory(8), "");
        let times = |name| {
            let mut named = explanation.candidates.iter().filter(|one| one.algorithm == name);
            let one = named.next().unwrap();
            (one.times_least_bytes, one.times_least_rounds)
        };
        assert_eq!(times("ring"), (1.0, 14.0 / 3.0));
        assert_eq!(times("direct"), (1.0, 14.0 / 3.0));
        assert_eq!(times("doubling"), (3.0 / 1.75, 1.0));
        assert_eq!(times("halving"), (1.0, 2.0));
        let text = explanation.to_string();
        assert!(
            text.contains("1.71 times the least bytes, 1.00 times the fewest rounds"),
            "{text}"
        );
    }

    #[test]
    fn a_hierarchy_is_a_candidate_where_there_are_hosts() {
        let chosen = |explanation: &Explanation| {
            let name = explanation.candidates[explanation.chosen].algorithm;
            (name, explanation.why)
        };
        let hosts = Machine::hosts(8, Groups::Rows { ranks: 8, size: 4 });
        assert_eq!(chosen(&said(&hosts, "")), ("hierarchical", Why::Least));
        let host = Machine::shared_memory(8);
        let text = said(&host, "").to_string();
        assert!(!text.contains("hierarchical"), "{text}");
        let forced = said(&host, "hierarchical");
        assert_eq!(chosen(&forced), ("hierarchical", Why::Forced));
    }
}
