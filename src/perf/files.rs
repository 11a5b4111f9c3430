//! The files that `--json` and `--csv` name: opened before anything runs, written at the end.

use super::{
    footprint::Footprints,
    overlap::Overlap,
    patient,
    report::{Job, Placement, Row},
    setup::Setup,
    table::Summary,
};
use crate::topo::host::Host;
use serde_json::json;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::{
        fd::AsFd,
        unix::fs::{MetadataExt, OpenOptionsExt, fchown},
    },
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
        self.replace(text)
            .map_err(|error| format!("{} {}: {error}", self.flag, self.path.display()))?;
        self.empty = false;
        Ok(())
    }

    fn replace(&mut self, text: &str) -> io::Result<()> {
        let there = self.file.metadata()?;
        if !there.is_file() {
            // Pipes and devices cannot be cut.
            return patient::write(&self.file, text);
        }
        if let Some((place, beside, mut file)) = self.beside(&there) {
            let write = || {
                file.write_all(text.as_bytes())?;
                file.sync_all()?;
                fs::rename(&beside, place)
            };
            return write().inspect_err(|_| {
                // What is left of it does no harm.
                let _ = fs::remove_file(&beside);
            });
        }
        self.file.set_len(0)?;
        self.file.write_all(text.as_bytes())
    }

    /// Where the file really is, and a new one beside it that is like it and can take its place, so that what was there stays if the
    /// disk is full. None for what others know by another name or hold open as their output, and where there can be no such file.
    fn beside(&self, there: &fs::Metadata) -> Option<(PathBuf, PathBuf, File)> {
        let same = |other: &fs::Metadata| (other.dev(), other.ino()) == (there.dev(), there.ino());
        let is_open = |fd: &dyn AsFd| {
            let copy = fd.as_fd().try_clone_to_owned().map(File::from);
            copy.and_then(|file| file.metadata())
                .is_ok_and(|file| same(&file))
        };
        let place = fs::canonicalize(&self.path).ok()?;
        let is_there = fs::metadata(&place).is_ok_and(|file| same(&file));
        if !is_there || there.nlink() > 1 || is_open(&io::stdout()) || is_open(&io::stderr()) {
            return None;
        }
        let name = place.file_name()?.to_string_lossy();
        // As much of the name as leaves room for the rest.
        let name: String = name.chars().take(32).collect();
        let beside = place.with_file_name(format!(".{name}.{}.new", std::process::id()));
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)
            .ok()?;
        match like(&file, there) {
            Ok(()) => Some((place, beside, file)),
            Err(_) => {
                let _ = fs::remove_file(&beside); // As above.
                None
            }
        }
    }
}

/// Gives a file owner, group and mode of another.
fn like(file: &File, other: &fs::Metadata) -> io::Result<()> {
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (other.uid(), other.gid()) {
        fchown(file, Some(other.uid()), Some(other.gid()))?;
    }
    file.set_permissions(other.permissions())
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
    use std::{
        io::Read,
        os::unix::fs::{PermissionsExt, symlink},
    };

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
    fn what_was_there_is_whole_until_what_is_new_is() {
        let folder = tempfile::tempdir().unwrap();
        let [old, link, name] = ["old", "link", "name"].map(|name| folder.path().join(name));
        fs::write(&old, "before").unwrap();
        fs::set_permissions(&old, fs::Permissions::from_mode(0o640)).unwrap();
        symlink("old", &link).unwrap();
        let write = |path: &PathBuf, text| Output::open(path.clone(), "--csv").unwrap().write(text);
        let mut held = File::open(&old).unwrap();
        write(&link, "new").unwrap();
        let mut text = String::new();
        held.read_to_string(&mut text).unwrap();
        assert_eq!(
            (text.as_str(), fs::read_to_string(&old).unwrap().as_str()),
            ("before", "new")
        );
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&old).unwrap().permissions().mode() & 0o777, 0o640);
        // What has another name is still known by it.
        fs::hard_link(&old, &name).unwrap();
        write(&old, "newer").unwrap();
        assert_eq!(fs::read_to_string(&name).unwrap(), "newer");
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            3,
            "nothing is left beside them"
        );
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let error = Output::open("/nowhere/at/all".into(), "--csv").err().unwrap();
        assert!(error.contains("--csv /nowhere/at/all"), "{error}");
    }
}
