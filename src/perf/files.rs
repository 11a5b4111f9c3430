//! The files that `--json` and `--csv` name: opened before anything runs, written at the end.

use super::{
    footprint::Footprints,
    overlap::Overlap,
    report::{Job, Placement, Row},
    setup::Setup,
    table::Summary,
};
use crate::topo::host::Host;
use serde_json::json;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::PathBuf,
};

const PLACEMENTS: [(Placement, &str); 2] = [
    (Placement::OutOfPlace, "out_of_place"),
    (Placement::InPlace, "in_place"),
];

/// The files to write.
pub(super) struct Files {
    json: Option<Output>,
    csv: Option<Output>,
}

impl Files {
    /// # Errors
    /// A line that names the file that cannot be written.
    pub(super) fn open(setup: &Setup) -> Result<Files, String> {
        let open =
            |path: &Option<PathBuf>, flag| path.clone().map(|path| Output::open(path, flag)).transpose();
        let files = Files {
            json: open(&setup.json, "--json")?,
            csv: open(&setup.csv, "--csv")?,
        };
        let [json, csv] = [&files.json, &files.csv].map(|file| file.as_ref().and_then(Output::inode));
        if json.is_some() && json == csv {
            return Err("--json and --csv name the same file: give each its own".to_owned());
        }
        Ok(files)
    }

    /// # Errors
    /// A line that names the file that could not be written.
    pub(super) fn write(self, run: &Finished<'_>) -> Result<(), String> {
        if let Some(output) = self.json {
            output.write(&run.json())?;
        }
        if let Some(output) = self.csv {
            output.write(&run.csv())?;
        }
        Ok(())
    }
}

/// A run that came to its end.
pub(super) struct Finished<'r> {
    pub(super) job: &'r Job,
    pub(super) host: &'r Host,
    pub(super) launcher: Option<&'r str>,
    pub(super) notes: &'r [String],
    pub(super) transport: &'r str,
    pub(super) rows: &'r [Row],
    pub(super) summary: Summary,
    pub(super) footprints: Option<Footprints>,
}

impl Finished<'_> {
    fn json(&self) -> String {
        let job = self.job;
        let document = json!({
            "program": "ccl-perf",
            "version": env!("CARGO_PKG_VERSION"),
            "machine": {
                "cpu": self.host.cpu,
                "usable_cores": self.host.cpus,
                "available_memory_bytes": self.host.memory_available,
            },
            "ranks": job.ranks,
            "launcher": self.launcher,
            "transport": self.transport,
            "notes": self.notes,
            "arguments": {
                "min_bytes": job.sweep.min,
                "max_bytes": job.sweep.max,
                "step": job.sweep.step,
                "iterations": job.iterations,
                "warmup": job.warmup,
                "check": job.check,
                "overlap": job.overlap,
                "timeout_s": job.timeout.map(|timeout| timeout.as_secs_f64()),
                "transport": job.transport,
                "algorithm": job.algorithm,
                "skew": job.skew.to_string(),
                "threads": job.threads,
                "device": job.device(),
                "graph": job.graph,
            },
            "rows": self.rows,
            "summary": {
                "wrong": self.summary.wrong,
                "average_busbw_GBps": self.summary.bus_bandwidth,
            },
            "of_a_rank": self.footprints,
        });
        format!("{document:#}\n")
    }

    fn csv(&self) -> String {
        let mut text = String::from(
            "operation,ranks,transport,algorithm,placement,bytes,count,type,redop,root,batch,samples,min_us,\
             median_us,mean_us,p99_us,max_us,algbw_GBps,busbw_GBps,wrong,skew,total_us,compute_us,\
             meanwhile_us,left_percent,osu_percent,predicted_us,graph,threads,device\n",
        );
        for row in self.rows {
            for (placement, name) in PLACEMENTS {
                let Some(measured) = row.placement(placement) else {
                    continue;
                };
                let stats = &measured.stats;
                let of_overlap = |value: fn(&Overlap) -> f64| {
                    let value = measured.overlap.as_ref().map(value);
                    value.map(|value| value.to_string()).unwrap_or_default()
                };
                // What does not apply stays empty. No field needs quotes: all are numbers and the library's names.
                let fields = [
                    row.operation.clone(),
                    self.job.ranks.to_string(),
                    self.transport.to_owned(),
                    row.algorithm.clone().unwrap_or_default(),
                    name.to_owned(),
                    row.bytes.to_string(),
                    row.count.to_string(),
                    row.dtype.clone(),
                    row.op.clone().unwrap_or_default(),
                    row.root.map(|root| root.to_string()).unwrap_or_default(),
                    stats.batch.to_string(),
                    stats.samples.to_string(),
                    stats.min_us.to_string(),
                    stats.median_us.to_string(),
                    stats.mean_us.to_string(),
                    stats.p99_us.to_string(),
                    stats.max_us.to_string(),
                    measured.algorithm_bandwidth.to_string(),
                    measured.bus_bandwidth.to_string(),
                    measured.wrong.map(|wrong| wrong.to_string()).unwrap_or_default(),
                    row.skew.clone().unwrap_or_default(),
                    of_overlap(|overlap| overlap.total_us),
                    of_overlap(|overlap| overlap.compute_us),
                    of_overlap(|overlap| overlap.meanwhile_us),
                    of_overlap(|overlap| overlap.left_percent),
                    of_overlap(|overlap| overlap.osu_percent),
                    row.predicted_us.map(|us| us.to_string()).unwrap_or_default(),
                    self.job.graph.map(|calls| calls.to_string()).unwrap_or_default(),
                    self.job.threads.to_string(),
                    self.job.device().to_owned(),
                ];
                text.push_str(&fields.join(","));
                text.push('\n');
            }
        }
        text
    }
}

/// A file that keeps what was in it until there is something to write, and goes away again if there never is.
struct Output {
    path: PathBuf,
    file: File,
    flag: &'static str,
    /// Whether it did not exist before and has nothing in it yet.
    empty: bool,
}

impl Output {
    fn open(path: PathBuf, flag: &'static str) -> Result<Output, String> {
        let mut options = OpenOptions::new();
        options.write(true);
        let (file, empty) = match options.clone().create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (options.open(&path), false),
            made => (made, true),
        };
        let file = file.map_err(|error| format!("{flag} {}: cannot write there: {error}", path.display()))?;
        Ok(Output {
            path,
            file,
            flag,
            empty,
        })
    }

    /// What tells a file that is no pipe and no device from others, by whichever of its names it was opened.
    fn inode(&self) -> Option<(u64, u64)> {
        let file = self.file.metadata().ok().filter(fs::Metadata::is_file)?;
        Some((file.dev(), file.ino()))
    }

    fn write(mut self, text: &str) -> Result<(), String> {
        self.empty = false;
        self.replace(text)
            .map_err(|error| format!("{} {}: {error}", self.flag, self.path.display()))
    }

    fn replace(&mut self, text: &str) -> io::Result<()> {
        // Pipes and devices cannot be cut.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(text.as_bytes())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.empty {
            // An empty file that stays does no harm.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_only_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        fs::write(&old, "much longer than what follows").unwrap();
        for path in [&old, &new] {
            drop(Output::open(path.clone(), "--json").unwrap());
        }
        assert_eq!(fs::read_to_string(&old).unwrap(), "much longer than what follows");
        assert!(!new.exists());
        for path in [&old, &new] {
            Output::open(path.clone(), "--json")
                .unwrap()
                .write("short")
                .unwrap();
            assert_eq!(fs::read_to_string(path).unwrap(), "short");
        }
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let error = Output::open("/nowhere/at/all".into(), "--csv").err().unwrap();
        assert!(error.contains("--csv /nowhere/at/all"), "{error}");
    }
}
