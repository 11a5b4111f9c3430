//! `ccl-topo plan`: how a collective would be done on a machine that need not be there.

use super::simulate::{Options, collective};
use super::{How, load, plain, plain_json};
use crate::plan::simulate::choice::{Candidate, Choice, Least, Planner};
use crate::plan::simulate::network::Network;
use crate::topo::graph::{Graph, NodeKind};
use crate::topo::width;
use crate::types::Collective;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A call on a machine.
#[derive(Debug, clap::Args)]
#[command(
    mut_arg("local_bandwidth", |arg| arg.hide(true)),
    mut_arg("channels", |arg| arg.help("Copies of the schedule that share the vector, each of which goes another way in and out of hosts [default: the best]")),
    mut_arg("tile", |arg| arg.help("Bytes of the longest message [default: the best]")),
)]
pub(super) struct Plan {
    /// What each host is like, or hosts and the switches that join them: a file, - or live
    file: PathBuf,
    /// The collective: allreduce, broadcast, allgather, ...
    #[arg(value_name = "OP", value_parser = collective)]
    operation: Collective,
    /// Bytes of the whole vector: 4096, 64K, 1G
    #[arg(value_parser = crate::perf::bytes)]
    pub(super) bytes: u64,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    options: Options,
    /// Write JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// A machine, and the network that it is taken for.
pub(super) struct Site {
    graph: Graph,
    pub(super) network: Network,
}

impl Plan {
    /// The file that it reads.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    pub(super) fn how(&self) -> &How {
        &self.how
    }

    /// Whether there is such a call.
    pub(super) fn check(&self) -> Result<(), String> {
        self.options.check(self.operation, true)
    }

    pub(super) fn site(&self) -> Result<Site, String> {
        let graph = load(&self.file, &self.how)?.0.graph;
        let network = self.options.changed(Some(&graph))?;
        Ok(Site { graph, network })
    }

    pub(super) fn planner<'s>(&self, site: &'s Site) -> Result<Planner<'s>, String> {
        let question = self.options.question(self.operation)?;
        Ok(Planner::new(question, &site.network))
    }

    pub(super) fn choose(&self, planner: &Planner<'_>) -> Result<Choice, String> {
        planner
            .choose(self.bytes as f64)
            .map_err(|error| error.to_string())
    }

    pub(super) fn run(&self) -> Result<(String, ExitCode), String> {
        let site = self.site()?;
        let choice = self.choose(&self.planner(&site)?)?;
        let text = match self.json {
            true => plain_json(format!("{:#}\n", self.as_json(&site, &choice))),
            false => plain(&self.as_text(&site, &choice)),
        };
        Ok((text, ExitCode::SUCCESS))
    }

    pub(super) fn as_text(&self, site: &Site, choice: &Choice) -> String {
        let (ranks, size) = (site.network.ranks(), site.network.ranks_per_host());
        let (best, least) = (&choice.candidates[0], &choice.bounds);
        let mut text = format!(
            "{} of {} bytes among {ranks} ranks, {} hosts of {size}\n{}: {} channels, tiles of {:.0} bytes, {} in flight\n",
            self.operation.name(),
            self.bytes,
            ranks / size.max(1),
            best.algorithm,
            best.channels,
            best.tile,
            best.spent.in_flight,
        );
        let _ = writeln!(
            text,
            "predicted: {:.2} us, bus bandwidth {:.2} GB/s, {:.2} times the lower bound (latency {:.2} us, bandwidth {:.2} us)",
            best.spent.time * 1e6,
            best.bus_bandwidth / 1e9,
            times(best, least),
            least.latency * 1e6,
            least.bandwidth * 1e6,
        );
        let _ = writeln!(text, "ranks in order: {}", site.order().join(" "));
        let unknown = site.unknown();
        if unknown > 0 {
            let _ = writeln!(
                text,
                "{unknown} links of unknown speed are taken as {} GB/s each (--link-bandwidth)",
                self.options.unknown() / 1e9,
            );
        }
        text
    }

    pub(super) fn as_json(&self, site: &Site, choice: &Choice) -> Value {
        let best = &choice.candidates[0];
        let mut value = of_candidate(best);
        value["op"] = self.operation.name().into();
        value["bytes"] = self.bytes.into();
        value["ranks"] = site.network.ranks().into();
        value["ranks_per_host"] = site.network.ranks_per_host().into();
        value["order"] = site.order().into();
        value["links_of_unknown_speed"] = site.unknown().into();
        value["bound_latency_us"] = (choice.bounds.latency * 1e6).into();
        value["bound_bandwidth_us"] = (choice.bounds.bandwidth * 1e6).into();
        value["times_bound"] = times(best, &choice.bounds).into();
        value
    }
}

impl Site {
    /// What the ranks of a host run on; where a file joins hosts, what all ranks do.
    fn order(&self) -> Vec<String> {
        let devices = self.network.devices();
        let name = |node| match self.graph.is_empty() {
            true => "host".to_owned(),
            false => self.graph.name(node).to_owned(),
        };
        devices.into_iter().map(name).collect()
    }

    /// How many links, each way counted once, have a bandwidth that no source says; without those to caches, by which no message goes.
    fn unknown(&self) -> usize {
        let is_cache = |node| self.graph.kind(node) == NodeKind::Cores;
        let ways = (self.graph.edges())
            .filter(|edge| !width::is_known(edge) && !is_cache(edge.from) && !is_cache(edge.to));
        ways.count().div_ceil(2)
    }
}

pub(super) fn of_candidate(candidate: &Candidate) -> Value {
    json!({
        "algorithm": candidate.algorithm,
        "channels": candidate.channels,
        "tile": candidate.tile,
        "tiles": candidate.spent.tiles,
        "in_flight": candidate.spent.in_flight,
        "time_us": candidate.spent.time * 1e6,
        "busbw_GBps": candidate.bus_bandwidth / 1e9,
    })
}

/// How many times the larger of the bounds it takes.
fn times(best: &Candidate, least: &Least) -> f64 {
    let least = least.latency.max(least.bandwidth);
    if least > 0.0 { best.spent.time / least } else { 1.0 }
}
