//! `--explain`: what the planner says of each size. It is a pure function of what a run would tell it, so that no rank is
//! started for it.

use super::{
    report::{Job, Run},
    size::readable,
};
use crate::{
    plan::{
        cost::{Load, Machine},
        explain::explain,
    },
    sys::host::usable_cpus,
    transport::{LANES, shm},
    types::Result,
};
use std::fmt::Write;

/// A paragraph for each size of each run, as the ranks of a run would see it.
pub(super) fn text(job: &Job) -> Result<String> {
    // The ranks' processes may use the cores that this one may.
    let cores = usable_cpus().iter().map(|byte| byte.count_ones()).sum::<u32>();
    let machine = Machine::shared_memory(cores.max(1) as usize);
    let mut text = format!(
        "# what the planner predicts for {} ranks on {cores} cores; counts are the busiest rank's; nothing is run\n",
        job.ranks
    );
    for run in &job.runs {
        for count in job.sweep.counts(run.dtype.size()) {
            let load = Load::new(run.collective, job.ranks, count, run.dtype);
            let explanation = explain(
                &load,
                &machine,
                job.algorithm.as_deref(),
                shm::CAPS.max_message,
                LANES,
            )?;
            // Writing to a text does not fail.
            let _ = write!(text, "{}\n{explanation}", title(run, count));
        }
    }
    Ok(text)
}

fn title(run: &Run, count: usize) -> String {
    let name = run.collective.name();
    if !run.collective.has_vector() {
        return name.to_owned();
    }
    let size = readable((count * run.dtype.size()) as u64);
    let root = run
        .collective
        .root()
        .map_or(String::new(), |root| format!(", root {root}"));
    format!("{name} {size} ({count} x {}{root})", run.dtype)
}
