//! [`Console`]: shows a run on the terminal as it goes, and writes its files at the end.

use super::{
    files::{Files, Finished},
    footprint::Footprints,
    patient,
    report::Row,
    setup::Setup,
    table::{self, Summary},
};
use crate::topo::host::Host;
use indicatif::{ProgressBar, ProgressStyle};
use std::{
    io::{self, IsTerminal},
    time::Duration,
};

/// How a run ended, if not well.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Trouble {
    /// A line to print.
    #[error("{0}")]
    Failed(String),
    /// Nobody reads the table any more.
    #[error("nobody reads the table any more")]
    Unread,
    /// A signal asked to stop.
    #[error("stopped by signal {0}")]
    Signal(i32),
}

impl Trouble {
    /// The same, with what it was about before a line to print.
    pub(super) fn of(self, what: &str) -> Trouble {
        match self {
            Trouble::Failed(line) => Trouble::Failed(format!("{what}: {line}")),
            other => other,
        }
    }
}

impl From<String> for Trouble {
    fn from(line: String) -> Self {
        Trouble::Failed(line)
    }
}

/// What is shown of a run.
pub(super) struct Console<'r> {
    setup: &'r Setup,
    host: &'r Host,
    bar: ProgressBar,
    transport: String,
    pub(super) rows: Vec<Row>,
    /// Whether rows are only kept.
    is_quiet: bool,
}

impl<'r> Console<'r> {
    pub(super) fn new(setup: &'r Setup, host: &'r Host) -> Self {
        Console {
            setup,
            host,
            bar: progress_bar(setup),
            transport: String::new(),
            rows: Vec::new(),
            is_quiet: false,
        }
    }

    /// One that only keeps the rows.
    pub(super) fn quiet(setup: &'r Setup, host: &'r Host) -> Self {
        Console {
            bar: ProgressBar::hidden(),
            is_quiet: true,
            ..Console::new(setup, host)
        }
    }

    /// All ranks are there.
    pub(super) fn ready(&mut self, transport: String) -> Result<(), Trouble> {
        self.print(&table::header(self.setup, self.host, &transport))?;
        self.transport = transport;
        Ok(())
    }

    /// A size has been measured.
    pub(super) fn row(&mut self, row: Row) -> Result<(), Trouble> {
        self.print(&table::row(&row))?;
        self.bar.inc(1);
        self.rows.push(row);
        Ok(())
    }

    /// The run is over, well or not: the bar goes.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// All is measured; says how many elements were wrong by the rows.
    pub(super) fn finish(&mut self, files: Files, footprints: Option<Footprints>) -> Result<u64, Trouble> {
        self.clear();
        let job = &self.setup.job;
        let summary = Summary::of(&self.rows);
        let ranks_here = self.setup.ranks_here;
        self.print(&table::footer(
            &summary, footprints, &self.rows, ranks_here, self.host,
        ))?;
        files.write(&Finished {
            job,
            host: self.host,
            launcher: self.setup.launcher.as_deref(),
            notes: &self.setup.notes,
            transport: &self.transport,
            rows: &self.rows,
            summary,
            footprints,
        })?;
        Ok(summary.wrong.unwrap_or(0))
    }

    fn print(&self, lines: &str) -> Result<(), Trouble> {
        if self.is_quiet {
            return Ok(());
        }
        let lines = format!("{lines}\n");
        let written = self.bar.suspend(|| patient::write(io::stdout(), &lines));
        written.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Trouble::Unread,
            _ => Trouble::Failed(format!("writing the table: {error}")),
        })
    }
}

fn progress_bar(setup: &Setup) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let sizes = |&run| setup.job.counts(run).count() as u64;
    let rows = setup.job.runs.iter().map(sizes).sum();
    // A template that is wrong would be seen by the first who runs this on a terminal; the default is good enough.
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} sizes, {elapsed}, {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(rows).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}
