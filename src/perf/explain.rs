//! `--explain`: what the planner says of each size. It is a pure function of what a run would tell it, so that no rank is
//! started for it.

use super::{
    report::{Job, Run},
    size::readable,
};
use crate::{Config, explain, types::Result};
use std::fmt::Write;

/// A paragraph for each size of each run of a collective, as the ranks' processes would see it.
pub(super) fn text(job: &Job) -> Result<String> {
    let config = Config {
        timeout: job.timeout,
        transport: job.transport.clone(),
        algorithm: job.algorithm.clone(),
        ..Config::default()
    };
    let mut text = "# what the planner predicts; counts are the busiest rank's; nothing is run\n".to_owned();
    let runs = job.runs.iter();
    for (run, collective) in runs.filter_map(|run| Some((run, run.operation.collective()?))) {
        for count in job.counts(*run) {
            let said = explain(collective, job.ranks, count, run.dtype, &config)?;
            // Writing to a text does not fail.
            let _ = write!(
                text,
                "{}, {} ranks on {} cores\n{said}",
                title(job, run, count),
                job.ranks,
                said.cores
            );
        }
    }
    Ok(text)
}

fn title(job: &Job, run: &Run, count: usize) -> String {
    let name = run.operation.name();
    if !run.operation.has_vector() {
        return name.to_owned();
    }
    let size = readable(job.bytes(*run, count));
    let root = run
        .operation
        .root()
        .map_or(String::new(), |root| format!(", root {root}"));
    format!("{name} {size} ({count} x {}{root})", run.dtype)
}
