//! What was measured of this machine, as a file: where it lies, and whether it is to be believed.

use super::probe;
use crate::{
    log,
    plan::calibration::{Constants, Tuning},
    sys::{environment, library::has_others_rights, per_process::PerProcess},
    topo::fingerprint::Fingerprint,
};
use rustix::{fs::OFlags, process::geteuid};
use serde::{Deserialize, Serialize};
use std::{
    convert::Infallible,
    env,
    fs::{File, Metadata},
    io::Read,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};
#[cfg(feature = "cli")]
use std::{
    fs::{self, DirBuilder},
    io::{self, Write},
    os::unix::fs::DirBuilderExt,
};
use tracing::{info, warn};

/// What `ccl-perf tune` leaves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tuned {
    /// The version of the library that measured.
    pub(crate) version: String,
    /// The kind of machine.
    pub(crate) machine: Fingerprint,
    /// How well the model told what was measured, in words.
    pub(crate) fit: Vec<String>,
    pub(crate) calibration: crate::plan::calibration::Calibration,
    pub(crate) choices: Vec<crate::plan::calibration::Choice>,
}

/// What rank 0 is to tell the others: what was measured of this machine, if there is such a file and `CCL_TUNE` does not say
/// otherwise; what it takes a moment to measure; and whether first calls try algorithms. A file that cannot be used is told of.
pub(super) fn of_this_machine(rank: usize, ranks: usize) -> Tuning {
    named(rank, ranks).0
}

/// The same, and where it comes from.
pub(crate) fn named(rank: usize, ranks: usize) -> (Tuning, String) {
    let nothing = || "no file".to_owned();
    if has_others_rights() {
        return (Tuning::default(), nothing()); // the environment is not to say which files are read
    }
    let said = environment::text("CCL_TUNE");
    let (path, is_named) = match said.as_deref() {
        Some("off" | "0") => return (Tuning::default(), nothing()),
        Some("probe") => return (probed(rank, ranks), "what CCL_TUNE=probe measures".to_owned()),
        None | Some("auto" | "online") => (place(|| Fingerprint::read(Path::new("/"))), false),
        Some(file) => (Some(PathBuf::from(file)), true),
    };
    let online = said.as_deref() == Some("online");
    let untuned = Tuning {
        online,
        ..Tuning::default()
    };
    let Some(path) = path.filter(|path| is_named || path.exists()) else {
        return (untuned, nothing());
    };
    // A file that is named is its user's wish, whoever made it.
    let is_trusted = |file: &Metadata| is_named || is_ours(file);
    let tuned = read_if(&path, is_trusted);
    let tuned = tuned.and_then(|tuned| fitting(tuned, &Fingerprint::read(Path::new("/"))));
    match tuned {
        Ok(tuning) => {
            let choices = tuning.choices.len();
            info!(
                rank,
                ranks,
                "init: tuned by {}, {choices} choices",
                path.display()
            );
            (Tuning { online, ..tuning }, path.display().to_string())
        }
        Err(why) => {
            let why: String = why.chars().take(MOST_WORDS).collect();
            let why = why.replace(char::is_control, " ");
            let line = format!("{} is not used: {why}: run ccl-perf tune again", path.display());
            match is_named {
                true => log::complain(&format!("CCL_TUNE: {line}")),
                false => warn!(rank, ranks, "init: {line}"),
            }
            (untuned, nothing())
        }
    }
}

/// What a moment's measurement tells, which a process makes once: should it fail, what is told without any.
fn probed(rank: usize, ranks: usize) -> Tuning {
    static MEASURED: PerProcess<Tuning> = PerProcess::new();
    let wait = || {
        thread::sleep(Duration::from_millis(1));
        true
    };
    let made = MEASURED.get_or_try_init_while(wait, || Ok::<_, Infallible>(measured(rank, ranks)));
    match made {
        Some(Ok(tuning)) => tuning.clone(),
        None => unreachable!("it waits for as long as it takes"),
    }
}

fn measured(rank: usize, ranks: usize) -> Tuning {
    let began = Instant::now();
    match probe::shared_memory(PROBED) {
        Ok(calibration) => {
            let Constants {
                call, alone, crowded, ..
            } = calibration.shm;
            info!(
                rank,
                ranks,
                "init: probed in {:.1?}: a call {call:.0} ns, ranks with cores {alone:?}, without {crowded:?}",
                began.elapsed()
            );
            Tuning {
                calibration,
                ..Tuning::default()
            }
        }
        Err(error) => {
            log::complain(&format!("CCL_TUNE=probe: nothing was measured: {error}"));
            Tuning::default()
        }
    }
}

/// Where the file of this machine lies, by the environment. Nothing where there is no home, nor, but for who makes it, the
/// folder: what the machine is like need not be read then.
pub(crate) fn place(machine: impl FnOnce() -> Fingerprint) -> Option<PathBuf> {
    if let Some(file) = environment::text("CCL_TUNE_FILE") {
        return Some(file.into());
    }
    let folder = folder()?;
    folder.is_dir().then(|| folder.join(name(&machine())))
}

/// The folder of the user's caches.
pub(crate) fn folder() -> Option<PathBuf> {
    let absolute = |name| {
        let path = env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    Some(caches?.join("ccl"))
}

/// The name of the file of such a machine.
pub(crate) fn name(machine: &Fingerprint) -> String {
    format!("tune-{}.json", machine.hash())
}

/// # Errors
/// Why it cannot be read.
#[cfg(feature = "cli")]
pub(crate) fn read(path: &Path) -> std::result::Result<Tuned, String> {
    read_if(path, |_| true)
}

/// The same of a file that is trusted, as its owner and mode say.
fn read_if(path: &Path, is_trusted: impl Fn(&Metadata) -> bool) -> std::result::Result<Tuned, String> {
    // Not to wait for what a pipe of this name may bring.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::options()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path);
    let file = file.map_err(|error| error.to_string())?;
    let about = file.metadata().map_err(|error| error.to_string())?;
    if !about.is_file() {
        return Err("it is no file".to_owned());
    }
    if !is_trusted(&about) {
        return Err("others than this user and root own it, or may write it".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err("it is too long".to_owned());
    }
    parse(&bytes)
}

/// # Errors
/// Why it is no such file.
fn parse(bytes: &[u8]) -> std::result::Result<Tuned, String> {
    serde_json::from_slice(bytes).map_err(|error| format!("it is damaged, or of another build: {error}"))
}

/// What may be a file, for `fuzz/`. What is taken of it is planned by.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzzing(bytes: &[u8]) {
    use crate::{
        plan::{choose, cost::Load, cost::Machine, definition, forced::Forced},
        types::DType,
    };
    let Ok(tuned) = parse(bytes) else {
        return;
    };
    let here = tuned.machine.clone();
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let Ok(tuning) = fitting(Tuned { version, ..tuned }, &here) else {
        return;
    };
    for collective in definition::every([0]) {
        if collective.has_given_blocks() {
            continue;
        }
        for (ranks, count) in [(1, 0), (4, 16), (9, 1 << 22)] {
            let load = Load::new(collective, ranks, count, DType::Float32);
            let machine = Machine::of_shared_memory(2, &tuning.calibration);
            let machine = machine.with_choices(&tuning.choices, "shm", ranks);
            let chosen = choose::algorithm(&load, &machine, &Forced::default());
            let chosen = chosen.expect("some algorithm does it");
            let predicted = chosen.predicted(&load, &machine).1.total();
            assert!(predicted.is_finite() && predicted >= 0.0, "{predicted}");
        }
    }
}

/// Whether nobody but this user and root can have written a file.
fn is_ours(file: &Metadata) -> bool {
    let user = geteuid().as_raw();
    [0, user].contains(&file.uid()) && file.mode() & 0o022 == 0
}

/// What of a file holds here.
///
/// # Errors
/// Why nothing does.
pub(crate) fn fitting(tuned: Tuned, here: &Fingerprint) -> std::result::Result<Tuning, String> {
    let version = env!("CARGO_PKG_VERSION");
    if tuned.version != version {
        return Err(format!(
            "version {} has measured it, this is {version}",
            tuned.version
        ));
    }
    if tuned.machine != *here {
        return Err(format!(
            "it was measured on another machine ({})",
            tuned.machine.cpu
        ));
    }
    let tuning = Tuning {
        calibration: tuned.calibration,
        choices: tuned.choices,
        ..Tuning::default()
    };
    tuning.check()?;
    Ok(tuning)
}

/// Writes a file that only its user may read, as a whole or not at all; in the folder of caches, which is made.
///
/// # Errors
/// Of the system.
#[cfg(feature = "cli")]
pub(crate) fn write(path: &Path, tuned: &Tuned) -> io::Result<()> {
    let (beside, mut file) = beside(path)?;
    let mut write = || -> io::Result<()> {
        file.write_all(serde_json::to_string_pretty(tuned)?.as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    write().inspect_err(|_| {
        // What is left of it does no harm.
        let _ = fs::remove_file(&beside);
    })
}

/// Whether a file can most likely be written there.
///
/// # Errors
/// Of the system.
#[cfg(feature = "cli")]
pub(crate) fn check_place(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let (beside, _) = beside(path)?;
    fs::remove_file(beside)
}

/// A new file beside another one, whose place it is to take.
#[cfg(feature = "cli")]
fn beside(path: &Path) -> io::Result<(PathBuf, File)> {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    if let Some(above) = above {
        DirBuilder::new().recursive(true).mode(0o700).create(above)?;
    }
    let beside = path.with_extension(format!("{}.new", std::process::id()));
    let mut options = File::options();
    let file = options.write(true).create_new(true).mode(0o600).open(&beside)?;
    Ok((beside, file))
}

/// How long init measures, apart from making ranks for it.
const PROBED: Duration = Duration::from_millis(30);
/// The longest file that is read.
const MOST_BYTES: u64 = 1 << 20;
/// Characters that are told of what is wrong with it.
const MOST_WORDS: usize = 300;

#[cfg(all(test, feature = "cli"))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn tuned() -> Tuned {
        Tuned {
            version: env!("CARGO_PKG_VERSION").into(),
            machine: Fingerprint::read(Path::new("/")),
            fit: vec!["shm: not at all".into()],
            calibration: Default::default(),
            choices: Vec::new(),
        }
    }

    #[test]
    fn a_file_comes_back_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ccl/tune.json");
        for byte in [0.0151, 1.0 / 3.0] {
            let mut tuned = tuned();
            tuned.calibration.shm.alone.byte = byte;
            write(&path, &tuned).unwrap();
            assert_eq!(read(&path).unwrap(), tuned);
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
            assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
            let tuning = fitting(tuned.clone(), &tuned.machine).unwrap();
            assert_eq!(tuning.calibration, tuned.calibration);
        }
    }

    #[test]
    fn what_is_damaged_or_foreign_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tune.json");
        fs::write(&path, "{\"version\": 3").unwrap();
        assert!(read(&path).unwrap_err().contains("damaged"));
        assert!(read(folder.path()).unwrap_err().contains("no file"));
        fs::write(&path, vec![b' '; MOST_BYTES as usize + 1]).unwrap();
        assert!(read(&path).unwrap_err().contains("too long"));
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        assert!(read(&pipe).unwrap_err().contains("no file"));
        let here = tuned().machine;
        let mut other = tuned();
        other.machine.processors += 1;
        assert!(fitting(other, &here).unwrap_err().contains("another machine"));
        let mut older = tuned();
        older.version = "0.0.1".into();
        assert!(fitting(older, &here).unwrap_err().contains("version 0.0.1"));
        let mut wrong = tuned();
        wrong.calibration.shm.cold = -1.0;
        assert!(fitting(wrong, &here).is_err());
    }

    #[test]
    fn what_others_may_have_written_is_used_only_if_it_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tune.json");
        write(&path, &tuned()).unwrap();
        for (mode, trusted) in [(0o600, true), (0o644, true), (0o664, false), (0o606, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let found = read_if(&path, is_ours);
            assert_eq!(found.is_ok(), trusted, "{mode:o}: {found:?}");
            assert!(read(&path).is_ok());
        }
    }
}
