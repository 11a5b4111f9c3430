//! Why a call gets the algorithm that it gets.

use super::{
    algo::{Algorithm, Request},
    bounds::Bounds,
    choose,
    cost::{Counts, Load, Machine, Parts},
    definition,
    forced::Forced,
    layout::Layout,
    schedule::{Extent, Schedule},
};
use crate::sys::float_mode::usual;
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
    /// The next shorter call, as far as a search by doubling and halving finds it, that gets another algorithm; and the next longer
    /// one. None of a call that goes by what was tried: lengths are tried each by themselves.
    pub flips: [Option<Flip>; 2],
}

/// Where another algorithm begins to be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Flip {
    /// Bytes of the whole vector of the first call that gets it.
    pub bytes: u64,
    /// Its name.
    pub algorithm: &'static str,
}

/// One algorithm, as the planner counts it for a call.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Candidate {
    /// Its name.
    pub algorithm: &'static str,
    /// The time that the call would take by it, by the planner's model.
    pub predicted: Duration,
    /// What of that is the call itself and rounds in which ranks wait for one another.
    pub latency: Duration,
    /// What of it messages cost whatever their length.
    pub per_message: Duration,
    /// What of it bytes cost that are sent and received.
    pub bandwidth: Duration,
    /// What of it the reduction costs.
    pub reduction: Duration,
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
    /// The configuration, or the environment, forces it, or some of which it is the best.
    Forced,
    /// No other can carry out the call.
    Only,
    /// It was measured as the best on this machine, where the prediction is another one.
    Measured,
    /// It was the fastest of those that the communicator's first calls of this kind tried, as rank 0 has measured.
    Tried,
    /// It is predicted to take the least time, or comes before another that takes hardly less.
    Least,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Forced => "forced",
            Why::Only => "the only one",
            Why::Measured => "measured as the best",
            Why::Tried => "the fastest of those tried",
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
                latency,
                per_message,
                bandwidth,
                reduction,
                rounds,
                messages,
                bytes,
                reduced,
                times_least_bytes,
                times_least_rounds,
            } = candidate;
            let us = |time: &Duration| time.as_secs_f64() * 1e6;
            write!(
                f,
                "  {mark} {algorithm:<12} {:>12.2} us = {:.2} latency + {:.2} messages + {:.2} bytes + {:.2} reduction; \
                 {rounds:>7} rounds {messages:>8} messages {bytes:>12} bytes \
                 {reduced:>12} reduced; {times_least_bytes:.2} times the least bytes, {times_least_rounds:.2} times the \
                 fewest rounds",
                us(predicted),
                us(latency),
                us(per_message),
                us(bandwidth),
                us(reduction),
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
        for (flip, (side, from)) in self.flips.iter().zip([("shorter", "up to"), ("longer", "from")]) {
            if let Some(Flip { bytes, algorithm }) = flip {
                writeln!(f, "     {side}: {algorithm} {from} {bytes} bytes")?;
            }
        }
        Ok(())
    }
}

/// Explains a call over links of up to `lanes` lanes whose messages hold up to `max_message` bytes. `tried`: what it goes by because
/// that was the fastest of several in earlier calls. `extent_of`: what the ranks' tiles depend on, by an algorithm.
///
/// # Errors
/// As [`choose::algorithm`], [`choose::tiling`] and `extent_of`.
pub(crate) fn explain(
    load: &Load,
    machine: &Machine,
    forced: &Forced,
    tried: Option<&'static Algorithm>,
    [max_message, lanes]: [usize; 2],
    extent_of: impl FnOnce(&Algorithm) -> Result<Extent, Error>,
) -> Result<Explanation, Error> {
    let explained = || {
        let chosen = tried.map_or_else(|| choose::algorithm(load, machine, forced), Ok)?;
        let candidates: Vec<_> = choose::candidates(load, machine, forced)
            .map(|algorithm| candidate(algorithm, load, machine))
            .collect();
        let extent = extent_of(chosen)?;
        let schedule = schedule(chosen, load, machine, 0);
        let layout = Layout {
            count: load.count,
            blocks: schedule.blocks as usize,
            grains: schedule.grains as usize,
        };
        let tile = machine.tile(load, &(chosen.counts)(load));
        let (tiling, in_flight) = choose::tiling(extent, &layout, load, max_message, lanes, tile)?;
        Ok(Explanation {
            chosen: candidates
                .iter()
                .position(|candidate| candidate.algorithm == chosen.name)
                .unwrap_or(0), // it is one of those that fit
            why: match forced.among(load.collective) {
                _ if tried.is_some() => Why::Tried,
                Some(_) => Why::Forced,
                None if candidates.len() == 1 => Why::Only,
                None if machine.measured(load) == Some(chosen.name) => Why::Measured,
                None => Why::Least,
            },
            candidates,
            cores: machine.cores(),
            tiles: tiling.tiles,
            in_flight,
            channels: extent.channels,
            flips: match tried {
                Some(_) => [None; 2],
                None => [false, true].map(|longer| flip(load, machine, forced, chosen.name, longer)),
            },
        })
    };
    // As calls are planned, whatever the thread that asks has set.
    usual(explained)
}

/// What the ranks' tiles depend on in a call, where nothing is proved: the schedules of all ranks are written.
pub(crate) fn extent(algorithm: &Algorithm, load: &Load, machine: &Machine) -> Extent {
    let of = |rank| schedule(algorithm, load, machine, rank).extent();
    Extent::of_all((0..load.ranks).map(of))
}

fn schedule(algorithm: &Algorithm, load: &Load, machine: &Machine, rank: usize) -> Schedule {
    let request = Request {
        collective: load.collective,
        ranks: load.ranks,
        rank,
    };
    algorithm.schedule(&request, machine.groups())
}

/// The next call that gets another algorithm than `chosen`. The choice need not change once only: what lies between two lengths
/// that get the same one is not looked at.
fn flip(load: &Load, machine: &Machine, forced: &Forced, chosen: &str, longer: bool) -> Option<Flip> {
    let unit = definition::total(load.collective, load.ranks, 1)?;
    if load.collective == Collective::Barrier || load.collective.has_given_blocks() {
        return None; // it has no length, or one for each block
    }
    let of = |units: usize| {
        let load = Load {
            count: units * unit,
            ..*load
        };
        choose::algorithm(&load, machine, forced).ok().map(|one| one.name)
    };
    let here = load.count / unit;
    let (mut same, mut other) = (here, here);
    while of(other)? == chosen {
        same = other;
        let bytes = other.checked_mul(unit)?.checked_mul(load.element)?;
        other = match longer {
            true if bytes >= FARTHEST => return None,
            true => (2 * other).max(1),
            false if other <= 1 => return None,
            false => other / 2,
        };
    }
    while same.abs_diff(other) > 1 {
        let middle = same.midpoint(other);
        match of(middle)? == chosen {
            true => same = middle,
            false => other = middle,
        }
    }
    Some(Flip {
        bytes: (other * unit * load.element) as u64,
        algorithm: of(other)?,
    })
}

/// No longer call is looked at.
const FARTHEST: usize = 1 << 36;

fn candidate(algorithm: &Algorithm, load: &Load, machine: &Machine) -> Candidate {
    let (counts, parts) = algorithm.predicted(load, machine);
    let Parts {
        latency,
        messages,
        bytes,
        reduction,
    } = parts;
    let Counts { rounds, busiest, .. } = counts;
    let bounds = Bounds::of(load.collective, load.ranks);
    Candidate {
        algorithm: algorithm.name,
        predicted: time(parts.total()),
        latency: time(latency),
        per_message: time(messages),
        bandwidth: time(bytes),
        reduction: time(reduction),
        rounds,
        messages: busiest.messages,
        bytes: busiest.bytes,
        reduced: busiest.reduced,
        times_least_bytes: bounds.times_passed(busiest.bytes, load.bytes()),
        times_least_rounds: bounds.times_rounds(counts.rounds_one_by_one(load.collective)),
    }
}

/// The longest time there is for one that is longer: a calibration may say anything.
fn time(nanos: f64) -> Duration {
    Duration::try_from_secs_f64(nanos * 1e-9).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{plan::groups::Groups, types::DType};

    fn told(load: &Load, machine: &Machine, forced: &Forced) -> Explanation {
        let extent_of = |algorithm: &Algorithm| Ok(extent(algorithm, load, machine));
        explain(load, machine, forced, None, [256 << 10, 8], extent_of).unwrap()
    }

    fn said(machine: &Machine, forced: &str) -> Explanation {
        let forced = Forced::parse(forced).unwrap();
        let load = Load::new(Collective::AllReduce, 8, 1 << 20, DType::Float32);
        told(&load, machine, &forced)
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
    fn a_time_that_no_clock_shows_is_the_longest() {
        assert_eq!(time(1.5e9), Duration::from_millis(1500));
        for nanos in [1e30, f64::INFINITY, f64::NAN] {
            assert_eq!(time(nanos), Duration::MAX);
        }
    }

    #[test]
    fn the_choice_is_told_where_it_changes_and_what_takes_the_time() {
        let machine = Machine::shared_memory(2);
        let of = |count| {
            let load = Load::new(Collective::AllReduce, 16, count, DType::Float32);
            told(&load, &machine, &Forced::default())
        };
        let said = of(1 << 16);
        let name = |said: &Explanation| said.candidates[said.chosen].algorithm;
        assert_eq!(name(&said), "direct");
        let [shorter, longer] = said.flips.map(Option::unwrap);
        assert!(shorter.bytes < 1 << 18 && 1 << 18 < longer.bytes);
        for (flip, inside) in [(shorter, 1), (longer, -1)] {
            let count = flip.bytes as isize / 4;
            assert_eq!(name(&of(count as usize)), flip.algorithm);
            assert_eq!(name(&of((count + inside) as usize)), "direct");
        }
        for one in &said.candidates {
            let parts = one.latency + one.per_message + one.bandwidth + one.reduction;
            assert!(parts.abs_diff(one.predicted) < Duration::from_nanos(8), "{one:?}");
        }
        assert!(said.to_string().contains(&format!(
            "longer: {} from {} bytes",
            longer.algorithm, longer.bytes
        )));
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
