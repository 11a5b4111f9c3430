//! `ccl-topo simulate`: how long a collective takes on a network that need not be there.

use super::{How, load, plain, plain_json};
use crate::plan::algo::{ALGORITHMS, Algorithm, fitting};
use crate::plan::simulate::choice::{self, Question};
use crate::plan::simulate::host::{Host, Limits, declared_of, devices_of, hosts_of};
use crate::plan::simulate::network::{Fabric, MOST_RANKS, Network};
use crate::plan::simulate::{Call, Constants, Effort, Report, simulate};
use crate::topo::graph::{Graph, NodeKind};
use crate::topo::levels::{declared, devices};
use crate::types::Collective;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A call on a network, and what might happen to that.
#[derive(Debug, clap::Args)]
pub(super) struct Simulate {
    /// The collective: allreduce, broadcast, allgather, ...
    #[arg(value_name = "OP", value_parser = collective)]
    operation: Collective,
    /// Bytes of the whole vector: 4096, 64K, 1G
    #[arg(value_parser = crate::perf::bytes)]
    bytes: u64,
    /// What each host is like, or hosts and the switches that join them: a file, - or live [default: a device and an adapter
    /// for each rank]
    #[arg(long, value_name = "FILE")]
    topo: Option<PathBuf>,
    #[command(flatten)]
    pub(super) how: How,
    #[command(flatten)]
    options: Options,
    /// Run every rank and turn; slow, and for comparison
    #[arg(long)]
    unfolded: bool,
    /// With --json: every message, with its begin and end, of up to 512 ranks and a million messages
    #[arg(long, requires = "json")]
    trace: bool,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

/// On what network a call is simulated, and how.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// Hosts [default: all of a file that joins several, 1 of a file with neither hosts nor adapters, else 2]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(super) hosts: Option<usize>,
    /// Ranks of a host [default: those that the file declares, where it does; its GPUs, else 1 for each NUMA node with processors, else
    /// 8, or 1 where a file joins several]
    #[arg(long, value_name = "K", value_parser = ranks_of_a_host)]
    ranks_per_host: Option<usize>,
    /// What joins hosts that are alike: switch, or tree:H (H hosts on a leaf switch, all leaves on one spine), or tree:H:L (L
    /// leaves in a pod, all pods on one core); not of a file that joins several [default: switch]
    #[arg(long, value_parser = fabric)]
    fabric: Option<Fabric>,
    /// How many times as much comes from below such a switch as goes up from it [default: 1]
    #[arg(long, value_name = "FACTOR", value_parser = above_zero)]
    oversubscription: Option<f64>,
    /// GB/s of each adapter's link, and of each host's own, one way [default: the file's, else 50]
    #[arg(long, value_name = "GB/S", value_parser = above_zero)]
    link_bandwidth: Option<f64>,
    /// Nanoseconds of a link between hosts and such switches [default: 500]
    #[arg(long, value_name = "NS", value_parser = a_time)]
    link_latency: Option<f64>,
    /// GB/s between the ranks of a host, without a file [default: 400]
    #[arg(long, value_name = "GB/S", value_parser = above_zero)]
    local_bandwidth: Option<f64>,
    /// Nanoseconds of a sender's time for each message [default: 500]
    #[arg(long, value_name = "NS", value_parser = a_time)]
    overhead: Option<f64>,
    /// Messages that a lane holds until they are taken [default: 4]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    slots: Option<usize>,
    /// The algorithm [default: all that can, and the best]
    #[arg(long, value_name = "NAME", value_parser = algorithm)]
    algorithm: Option<&'static Algorithm>,
    /// Copies of the schedule that share the vector, each of which goes another way in and out of hosts [default: 1; of a ring
    /// of up to 16384 ranks those of a host]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    channels: Option<u16>,
    /// Bytes of the longest message [default: 1M, or a 256th of the vector if that is more]
    #[arg(long, value_name = "BYTES", value_parser = tile)]
    tile: Option<u64>,
    /// Tiles in flight [default: 4]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    in_flight: Option<usize>,
    /// What if an edge carried only so much of what it does: host3/nic0 out=0.5. Names are those of the busiest edges
    #[arg(long, value_name = "EDGE=SHARE", value_parser = share)]
    degrade: Vec<(String, f64)>,
    /// What if a host (host3), its adapter or an edge (host3/NAME) were not there; of a file that joins several hosts only an edge
    /// (A->B)
    #[arg(long, value_name = "NAME")]
    fail: Vec<String>,
    /// What if there were more hosts; a file that joins several has to have them
    #[arg(long, value_name = "N", default_value_t = 0)]
    add_hosts: usize,
}

/// Ranks from which on a ring has one channel unless it is asked for more: its messages are so short then that more of them share
/// nothing but take long to run.
const MOST_TURNED: usize = 16_384;

/// A call, and how it is run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) operation: Collective,
    pub(super) bytes: u64,
    /// Whether every rank and turn is run.
    pub(super) is_unfolded: bool,
    /// Whether messages are kept.
    pub(super) is_traced: bool,
}

/// What came out of a call.
pub(super) struct Outcome {
    pub(super) network: Network,
    /// At least one, the fastest first.
    pub(super) rows: Vec<Row>,
    left_out: Vec<(&'static str, String)>,
}

pub(super) fn collective(text: &str) -> Result<Collective, String> {
    let all = [
        Collective::AllReduce,
        Collective::Broadcast { root: 0 },
        Collective::Barrier,
        Collective::Reduce { root: 0 },
        Collective::AllGather,
        Collective::ReduceScatter,
        Collective::Gather { root: 0 },
        Collective::Scatter { root: 0 },
        Collective::AlltoAll,
    ];
    let found = all.into_iter().find(|collective| collective.name() == text);
    found.ok_or_else(|| format!("one of {}", all.map(Collective::name).join(", ")))
}

pub(super) fn algorithm(text: &str) -> Result<&'static Algorithm, String> {
    let found = ALGORITHMS.iter().find(|algorithm| algorithm.name == text);
    let names = || {
        ALGORITHMS
            .iter()
            .map(|algorithm| algorithm.name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    found.ok_or_else(|| format!("one of {}", names()))
}

fn fabric(text: &str) -> Result<Fabric, String> {
    let wrong = || "switch, tree:HOSTS or tree:HOSTS:LEAVES".to_owned();
    if text == "switch" {
        return Ok(Fabric::switch(0.0));
    }
    let numbers = text.strip_prefix("tree:").ok_or_else(wrong)?.split(':');
    let numbers: Result<Vec<_>, _> = numbers.map(at_least_one).collect();
    match numbers.map_err(|_| wrong())?.as_slice() {
        [hosts] => Ok(Fabric {
            hosts: *hosts,
            ..Fabric::switch(0.0)
        }),
        [hosts, leaves] => Ok(Fabric {
            hosts: *hosts,
            leaves: *leaves,
            ..Fabric::switch(0.0)
        }),
        _ => Err(wrong()),
    }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=1 << 24).contains(number));
    number.ok_or_else(|| "a number from 1 to 16777216".to_owned())
}

fn ranks_of_a_host(text: &str) -> Result<usize, String> {
    let most = Host::MOST_RANKS;
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| format!("a number from 1 to {most}"))
}

fn tile(text: &str) -> Result<u64, String> {
    let bytes = crate::perf::bytes(text)?;
    Some(bytes)
        .filter(|&bytes| bytes > 0)
        .ok_or_else(|| "at least 1 byte".to_owned())
}

fn above_zero(text: &str) -> Result<f64, String> {
    number_in(text, |number| *number > 0.0 && number.is_finite()).ok_or_else(|| "a number above 0".to_owned())
}

/// Nanoseconds.
fn a_time(text: &str) -> Result<f64, String> {
    number_in(text, |number| (0.0..1e12).contains(number)).ok_or_else(|| "a number from 0 to 1e12".to_owned())
}

fn number_in(text: &str, is_good: impl FnOnce(&f64) -> bool) -> Option<f64> {
    text.parse().ok().filter(is_good)
}

fn share(text: &str) -> Result<(String, f64), String> {
    let (name, share) = text.rsplit_once('=').ok_or("EDGE=SHARE")?;
    Ok((
        name.to_owned(),
        share.parse().map_err(|_| format!("{share} is no number"))?,
    ))
}

/// The options that were given.
fn said<const N: usize>(options: [(&'static str, bool); N]) -> impl Iterator<Item = &'static str> {
    let given = options.into_iter().filter(|(_, is_given)| *is_given);
    given.map(|(option, _)| option)
}

/// What an algorithm came to, and what it comes to after the changes.
pub(super) struct Row {
    pub(super) algorithm: &'static Algorithm,
    channels: usize,
    report: Report,
    after: Option<Report>,
}

impl Simulate {
    /// The file that it reads.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        self.topo.iter().map(PathBuf::as_path)
    }

    /// Whether there is such a call.
    pub(super) fn check(&self) -> Result<(), String> {
        self.options.check(self.operation, self.topo.is_some())
    }

    pub(super) fn run(&self) -> Result<(String, ExitCode), String> {
        let graph = match &self.topo {
            Some(file) => Some(load(file, &self.how)?.0.graph),
            None => None,
        };
        let asked = Asked {
            operation: self.operation,
            bytes: self.bytes,
            is_unfolded: self.unfolded,
            is_traced: self.trace,
        };
        let outcome = self.options.simulate(&asked, graph.as_ref())?;
        let text = match self.json {
            true => plain_json(format!("{:#}\n", self.as_json(&outcome))),
            false => plain(&self.as_text(&outcome)),
        };
        Ok((text, ExitCode::SUCCESS))
    }

    fn as_text(&self, outcome: &Outcome) -> String {
        let Outcome {
            network,
            rows,
            left_out,
        } = outcome;
        let (ranks, size) = (network.ranks(), network.ranks_per_host());
        let mut text = format!(
            "{} of {} bytes among {ranks} ranks, {} hosts of {size}\n\n{:<14}{:>12}{:>12}{:>12}{:>12}{:>12}",
            self.operation.name(),
            self.bytes,
            ranks / size.max(1),
            "algorithm",
            "time us",
            "bus GB/s",
            "latency",
            "bandwidth",
            "contention",
        );
        if self.options.has_changes() {
            let _ = write!(text, "{:>14}{:>8}", "changed us", "times");
        }
        text.push('\n');
        for row in rows {
            let report = &row.report;
            let split = report
                .split
                .map(|split| [split.latency, split.bandwidth, split.contention]);
            let _ = write!(
                text,
                "{:<14}{:>12.2}{:>12.2}",
                row.algorithm.name,
                report.time * 1e6,
                report.bus_bandwidth / 1e9,
            );
            for part in 0..3 {
                let part = split.map_or("-".to_owned(), |split| format!("{:.2}", split[part] * 1e6));
                let _ = write!(text, "{part:>12}");
            }
            if let Some(after) = &row.after {
                let _ = write!(
                    text,
                    "{:>14.2}{:>8.2}",
                    after.time * 1e6,
                    after.time / report.time
                );
            }
            text.push('\n');
        }
        for (name, why) in left_out {
            let _ = writeln!(text, "{name:<13} left out: {why}");
        }
        let best = &rows[0];
        let report = best.after.as_ref().unwrap_or(&best.report);
        let _ = writeln!(
            text,
            "\n{}: {} channels, {} tiles, {} in flight; {:.0} messages, {} of {} threads and {} messages run\nbusiest edges:",
            best.algorithm.name,
            best.channels,
            report.tiles,
            report.in_flight,
            report.messages,
            report.classes,
            report.threads,
            report.run,
        );
        for busy in &report.busiest {
            let _ = writeln!(
                text,
                "  {:>5.1}%  {} ({:.1} GB/s), {} alike",
                busy.utilisation * 100.0,
                busy.name,
                busy.capacity / 1e9,
                busy.alike,
            );
        }
        text
    }

    fn as_json(&self, outcome: &Outcome) -> Value {
        let Outcome {
            network,
            rows,
            left_out,
        } = outcome;
        let row = |row: &Row| {
            json!({
                "algorithm": row.algorithm.name,
                "channels": row.channels,
                "now": of_report(&row.report),
                "changed": row.after.as_ref().map(of_report),
            })
        };
        let left_out = left_out
            .iter()
            .map(|(name, why)| json!({ "algorithm": name, "why": why }));
        json!({
            "op": self.operation.name(),
            "bytes": self.bytes,
            "ranks": network.ranks(),
            "ranks_per_host": network.ranks_per_host(),
            "results": rows.iter().map(row).collect::<Vec<_>>(),
            "left_out": left_out.collect::<Vec<_>>(),
        })
    }
}

impl Options {
    /// Runs a call by all algorithms that can, or the one that is asked for.
    ///
    /// # Errors
    /// If none can.
    pub(super) fn simulate(&self, asked: &Asked, graph: Option<&Graph>) -> Result<Outcome, String> {
        let network = self.network(graph, 0)?;
        let after = match self.has_changes() {
            true => Some(self.changed(graph)?),
            false => None,
        };
        let mut rows = Vec::new();
        let mut left_out = Vec::new();
        for algorithm in self.algorithms(asked.operation)? {
            match self.row(asked, algorithm, &network, after.as_ref()) {
                Ok(row) => rows.push(row),
                Err(why) if self.algorithm.is_none() => left_out.push((algorithm.name, why)),
                Err(why) => return Err(why),
            }
        }
        let last = |row: &Row| row.after.as_ref().unwrap_or(&row.report).time;
        rows.sort_by(|one, other| last(one).total_cmp(&last(other)));
        if rows.is_empty() {
            let why = left_out.iter().map(|(name, why)| (*name, why.as_str()));
            return Err(format!("nothing to simulate: {}", choice::reasons(why)));
        }
        Ok(Outcome {
            network,
            rows,
            left_out,
        })
    }

    /// Runs a call by an algorithm on the network as it is after all changes, and keeps its messages.
    ///
    /// # Errors
    /// If it cannot be run, or has too many ranks.
    pub(super) fn trace(
        &self,
        asked: &Asked,
        algorithm: &'static Algorithm,
        graph: Option<&Graph>,
    ) -> Result<Report, String> {
        let asked = Asked {
            is_traced: true,
            ..*asked
        };
        let network = self.changed(graph)?;
        Ok(self.row(&asked, algorithm, &network, None)?.report)
    }

    /// What a planner may choose.
    pub(super) fn question(&self, operation: Collective) -> Result<Question, String> {
        Ok(Question {
            collective: operation,
            algorithms: self.algorithms(operation)?,
            channels: self.channels.map(usize::from),
            tile: self.tile.map(|tile| tile as f64),
            in_flight: self.in_flight(),
            constants: self.constants(),
        })
    }

    fn in_flight(&self) -> usize {
        self.in_flight.unwrap_or(4)
    }

    fn constants(&self) -> Constants {
        Constants {
            overhead_ns: self.overhead.unwrap_or(Constants::USUAL.overhead_ns),
            slots: self.slots.unwrap_or(Constants::USUAL.slots),
            ..Constants::USUAL
        }
    }

    /// Whether the algorithm that is asked for can do a collective, and all that is said of the network counts.
    pub(super) fn check(&self, operation: Collective, has_file: bool) -> Result<(), String> {
        if has_file && self.local_bandwidth.is_some() {
            return Err("--local-bandwidth goes without a file, which says it".to_owned());
        }
        self.algorithms(operation).map(drop)
    }

    /// The options that say what joins hosts.
    fn fabric_said(&self) -> impl Iterator<Item = &'static str> {
        said([
            ("--fabric", self.fabric.is_some()),
            ("--oversubscription", self.oversubscription.is_some()),
            ("--link-latency", self.link_latency.is_some()),
        ])
    }

    /// The options that were given and mean nothing where no call is simulated.
    pub(super) fn call_said(&self) -> impl Iterator<Item = &'static str> {
        let of_call = said([
            ("--ranks-per-host", self.ranks_per_host.is_some()),
            ("--link-bandwidth", self.link_bandwidth.is_some()),
            ("--local-bandwidth", self.local_bandwidth.is_some()),
            ("--overhead", self.overhead.is_some()),
            ("--slots", self.slots.is_some()),
            ("--algorithm", self.algorithm.is_some()),
            ("--channels", self.channels.is_some()),
            ("--tile", self.tile.is_some()),
            ("--in-flight", self.in_flight.is_some()),
            ("--degrade", !self.degrade.is_empty()),
            ("--fail", !self.fail.is_empty()),
            ("--add-hosts", self.add_hosts > 0),
        ]);
        self.fabric_said().chain(of_call)
    }

    /// Bytes a second of links of unknown speed.
    pub(super) fn unknown(&self) -> f64 {
        self.link().unwrap_or(Limits::USUAL.unknown)
    }

    /// What links are asked to carry, in bytes a second.
    fn link(&self) -> Option<f64> {
        self.link_bandwidth.map(|gigabytes| gigabytes * 1e9)
    }

    fn has_changes(&self) -> bool {
        !self.degrade.is_empty() || !self.fail.is_empty() || self.add_hosts > 0
    }

    fn network(&self, graph: Option<&Graph>, more: usize) -> Result<Network, String> {
        let limits = Limits {
            link: self.link(),
            unknown: self.unknown(),
            ..Limits::USUAL
        };
        let count = |kind| graph.map_or(0, |graph| graph.of_kind(kind).count());
        let joined = count(NodeKind::Host);
        let of_file = |find: fn(&Graph) -> Vec<_>| Some(find(graph?).len()).filter(|&count| count > 0);
        if let Some(graph) = graph.filter(|_| joined > 1) {
            if let Some(option) = self.fabric_said().next() {
                return Err(format!(
                    "{option} is for hosts that are alike: the file says what joins its {joined}"
                ));
            }
            let hosts = self.hosts.unwrap_or(joined).saturating_add(more);
            let ranks = match self.ranks_per_host {
                Some(ranks) => ranks,
                None => {
                    let mut there = hosts_of(graph);
                    there.truncate(hosts);
                    let mut of_each = declared_of(graph, &there);
                    let is_declared = of_each.iter().any(|ranks| !ranks.is_empty());
                    if !is_declared {
                        of_each = devices_of(graph, &there);
                    } else if hosts == joined && of_each.concat() != declared(graph) {
                        let what = "the file's ranks are not numbered host by host: they are taken so, each host's in their order";
                        super::complain(what, 0);
                    }
                    let counts = of_each.into_iter().map(|of_host| of_host.len());
                    let (least, most) = counts.fold((usize::MAX, 1), |(least, most), count| {
                        (least.min(count), most.max(count))
                    });
                    if least < most {
                        let what = if is_declared { "ranks" } else { "devices" };
                        return Err(format!(
                            "the file's hosts have {least} to {most} {what}: --ranks-per-host says how many ranks each \
                             has"
                        ));
                    }
                    most
                }
            };
            let network =
                Network::whole(graph.clone(), Some(hosts), ranks, limits).and_then(Network::numbered);
            return network.map_err(|error| error.to_string());
        }
        let of_file = of_file(declared).or(of_file(devices));
        let ranks = self.ranks_per_host.or(of_file).unwrap_or(8);
        if ranks > Host::MOST_RANKS {
            let most = Host::MOST_RANKS;
            return Err(format!(
                "{ranks} ranks of a host: {most} are the most, --ranks-per-host says how many"
            ));
        }
        // What has neither hosts nor adapters is no host of several, but all that there is.
        let is_all = graph.is_some_and(|graph| !graph.is_empty()) && joined + count(NodeKind::Nic) == 0;
        let hosts = self.hosts.unwrap_or(if is_all { 1 } else { 2 });
        let hosts = hosts.saturating_add(more);
        if ranks.saturating_mul(hosts) > MOST_RANKS {
            return Err(format!(
                "{hosts} hosts of {ranks} ranks are more than {MOST_RANKS} ranks"
            ));
        }
        let host = match graph {
            Some(graph) => Host::new(graph.clone(), ranks, limits).map_err(|error| error.to_string())?,
            None => Host::uniform(ranks, self.local_bandwidth.unwrap_or(400.0) * 1e9, 400, limits),
        };
        if hosts > 1 && !host.has_exit() {
            return Err(
                "no port of the file's adapters is up, by which hosts could talk: --hosts 1 is one by itself"
                    .to_owned(),
            );
        }
        let fabric = Fabric {
            oversubscription: self.oversubscription.unwrap_or(1.0),
            latency_ns: self.link_latency.unwrap_or(500.0),
            ..self.fabric.unwrap_or(Fabric::switch(0.0))
        };
        let network = Network::cluster(host, hosts, fabric).numbered();
        network.map_err(|error| error.to_string())
    }

    /// The network after all changes.
    pub(super) fn changed(&self, graph: Option<&Graph>) -> Result<Network, String> {
        let mut network = self.network(graph, self.add_hosts)?;
        for (edge, share) in &self.degrade {
            network.degrade(edge, *share).map_err(|error| error.to_string())?;
        }
        for name in &self.fail {
            network.fail(name).map_err(|error| error.to_string())?;
        }
        Ok(network)
    }

    fn algorithms(&self, operation: Collective) -> Result<Vec<&'static Algorithm>, String> {
        let fit: Vec<_> = fitting(operation).collect();
        match self.algorithm {
            None => Ok(fit),
            Some(one) if fit.iter().any(|fits| fits.name == one.name) => Ok(vec![one]),
            Some(one) => Err(format!("{} does not do {}", one.name, operation.name())),
        }
    }

    fn row(
        &self,
        asked: &Asked,
        algorithm: &'static Algorithm,
        network: &Network,
        after: Option<&Network>,
    ) -> Result<Row, String> {
        let per_host = network.ranks_per_host();
        let turns = algorithm.name == "ring" && network.ranks() <= MOST_TURNED;
        let channels = self.channels.map(usize::from);
        let channels = channels.unwrap_or(if turns { per_host } else { 1 });
        let tile = self.tile.unwrap_or((asked.bytes / 256).max(1 << 20));
        let call = Call {
            collective: asked.operation,
            algorithm,
            bytes: asked.bytes as f64,
            channels,
            tile: tile as f64,
            in_flight: self.in_flight(),
            constants: self.constants(),
            effort: Effort {
                folds: !asked.is_unfolded,
                cuts: !asked.is_unfolded,
                traces: asked.is_traced,
                most: if self.algorithm.is_none() {
                    50_000_000
                } else {
                    u64::MAX
                },
                ..Effort::USUAL
            },
        };
        let run = |network| simulate(&call, network).map_err(|error| error.to_string());
        Ok(Row {
            algorithm,
            channels,
            report: run(network)?,
            after: after.map(run).transpose()?,
        })
    }
}

fn of_report(report: &Report) -> Value {
    let busy = report.busiest.iter().map(|busy| {
        json!({
            "edge": busy.name,
            "alike": busy.alike,
            "bytes": busy.bytes,
            "GBps": busy.capacity / 1e9,
            "utilisation": busy.utilisation,
        })
    });
    let spans = report.spans.iter().map(|span| {
        json!({
            "rank": span.rank,
            "channel": span.channel,
            "label": span.label,
            "begin_us": span.begin as f64 * 1e-9,
            "end_us": span.end as f64 * 1e-9,
        })
    });
    let mut value = json!({
        "ranks": report.ranks,
        "time_us": report.time * 1e6,
        "busbw_GBps": report.bus_bandwidth / 1e9,
        "latency_us": report.split.map(|split| split.latency * 1e6),
        "bandwidth_us": report.split.map(|split| split.bandwidth * 1e6),
        "contention_us": report.split.map(|split| split.contention * 1e6),
        "tiles": report.tiles,
        "in_flight": report.in_flight,
        "messages": report.messages,
        "messages_run": report.run,
        "threads": report.threads,
        "threads_run": report.classes,
        "busiest": busy.collect::<Vec<_>>(),
    });
    let spans: Vec<_> = spans.collect();
    if !spans.is_empty() {
        value["spans"] = spans.into();
    }
    value
}
