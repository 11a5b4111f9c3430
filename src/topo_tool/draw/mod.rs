//! `ccl-topo draw`: pictures of machines, of rings and trees on them, and of calls in time, as SVG.

mod alike;
mod colours;
mod lanes;
mod layout;
mod links;
mod machine;
mod names;
mod page;
mod plan;
#[cfg(test)]
mod tests;
mod timeline;
mod view;

use super::{
    How, is_live, load, rings,
    simulate::{self, Options},
};
use crate::topo::{
    graph::Graph,
    search::{Task, search},
};
use crate::types::Collective;
use lanes::Lanes;
use machine::Drawn;
use page::{Page, clean};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What to draw of which machine.
#[derive(Debug, clap::Args)]
#[command(
    mut_arg("local_bandwidth", |arg| arg.hide(true)),
    mut_arg("hosts", |arg| arg.help("Hosts [default: of a timeline all of a file that joins several, 1 of a file with neither hosts nor adapters, else 2; of rings and trees 1]")),
)]
pub(super) struct Draw {
    /// A file, - or live
    file: PathBuf,
    /// Where the picture goes; - for standard output
    #[arg(short, long, value_name = "OUT.svg")]
    output: PathBuf,
    /// What to draw: the machine or network, rings or trees over its devices, or when ranks send in a call
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = What::Graph)]
    what: What,
    #[command(flatten)]
    pub(super) how: How,
    /// The call of a timeline: allreduce, broadcast, allgather, ...
    #[arg(long, value_name = "OP", value_parser = simulate::collective)]
    op: Option<Collective>,
    /// Bytes of its whole vector: 4096, 64K, 1G [default: 1M]
    #[arg(long, value_name = "BYTES", value_parser = crate::perf::bytes)]
    bytes: Option<u64>,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum What {
    Graph,
    Rings,
    Trees,
    Timeline,
}

impl Draw {
    /// The file that it reads.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(self.file.as_path())
    }

    /// Whether what is asked for goes with what is drawn.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.what != What::Timeline && (self.op.is_some() || self.bytes.is_some()) {
            return Err("--op and --bytes are a timeline's: --what timeline".to_owned());
        }
        if self.what != What::Timeline
            && let Some(option) = self.options.call_said().next()
        {
            return Err(format!("{option} is a timeline's: --what timeline"));
        }
        if self.what == What::Graph && self.options.hosts.is_some() {
            return Err("--hosts goes with --what rings, trees or timeline".to_owned());
        }
        match self.what {
            What::Timeline => self.options.check(self.operation(), true),
            What::Graph | What::Rings | What::Trees => Ok(()),
        }
    }

    /// Of a timeline.
    fn operation(&self) -> Collective {
        self.op.unwrap_or(Collective::AllReduce)
    }

    pub(super) fn run(&self) -> Result<(String, ExitCode), String> {
        let graph = load(&self.file, &self.how)?.0.graph;
        let name = self.name();
        let page = match self.what {
            What::Graph => of_graph(&graph, &name),
            What::Rings | What::Trees => {
                let hosts = self.options.hosts.unwrap_or(1);
                of_channels(&graph, &name, hosts, self.what == What::Trees)?
            }
            What::Timeline => timeline::draw(
                &graph,
                &name,
                self.operation(),
                self.bytes.unwrap_or(1 << 20),
                &self.options,
            )?,
        };
        let what = match self.what {
            What::Graph => "graph",
            What::Rings => "rings",
            What::Trees => "trees",
            What::Timeline => "timeline",
        };
        let svg = page.svg(&format!("{name}: {what}"));
        if self.output.as_os_str() == "-" {
            return Ok((svg, ExitCode::SUCCESS));
        }
        let written = std::fs::write(&self.output, svg);
        written.map_err(|error| format!("{}: {error}", self.output.display()))?;
        Ok((String::new(), ExitCode::SUCCESS))
    }

    /// What the title says of the machine.
    fn name(&self) -> String {
        let file = match is_live(&self.file) {
            true => Some("this machine".into()),
            false => self.file.file_name().map(|name| name.to_string_lossy()),
        };
        clean(&file.unwrap_or_default())
    }
}

/// A graph alone.
fn of_graph(graph: &Graph, name: &str) -> Page {
    Drawn::new(graph, &[name.to_owned()], false).end(Vec::new())
}

/// Rings or trees below a graph's devices.
fn of_channels(graph: &Graph, name: &str, hosts: usize, are_trees: bool) -> Result<Page, String> {
    rings::can_be(graph, hosts)?;
    let task = Task::of(graph, hosts);
    let found = search(graph, &task);
    let lanes = match are_trees {
        true => Lanes::trees(graph, &found),
        false => Lanes::rings(graph, &found),
    };
    let title = [name.to_owned(), lanes.about(&task)];
    let mut drawn = Drawn::new(graph, &title, true);
    lanes.draw(&mut drawn)?;
    Ok(drawn.end(Vec::new()))
}
