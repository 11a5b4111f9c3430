//! [`read`]: the secret by which ranks on several hosts know each other, as the user gives it.

use crate::{
    log,
    sys::{environment, fork, library::has_others_rights},
    types::{Error, Result},
};
use rustix::{
    fs::{FileType, Mode, OFlags, fstat, open},
    process::geteuid,
};
use std::{
    fmt,
    fs::File,
    io::Read,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};
use zeroize::Zeroizing;

/// What the user shares with all ranks. Never printed, wiped when it is dropped.
#[derive(Clone)]
pub(super) struct UserSecret(Zeroizing<Vec<u8>>);

impl UserSecret {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for UserSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UserSecret(..)")
    }
}

/// The user's secret, where there is one: the content of the file that `CCL_SECRET_FILE` names, else `CCL_SECRET`, which is
/// taken out of the environment and kept for later calls.
///
/// # Errors
/// [`Error::Usage`] that says what to change.
pub(super) fn given() -> Result<Option<UserSecret>> {
    match named_file()? {
        Some(path) => of_file(&path).map(Some),
        None => of_variable(),
    }
}

/// The same as it is now, for who only looks: nothing is taken out of the environment.
///
/// # Errors
/// Those of [`given`].
pub(super) fn glance() -> Result<Option<UserSecret>> {
    if let Some(path) = named_file()? {
        return of_file(&path).map(Some);
    }
    match environment::peek(VARIABLE) {
        Some(text) => of_text(&text).map(Some),
        None => Ok(keep(|kept| kept.clone())),
    }
}

/// The file that the environment names.
///
/// # Errors
/// [`Error::Usage`] where the program has rights that who started it lacks: what it said of the file would tell of what that user may not
/// read.
fn named_file() -> Result<Option<String>> {
    match environment::text(FILE) {
        Some(_) if has_others_rights() => Err(Error::usage(
            "CCL_SECRET_FILE is not read by a program with rights that its starter lacks (set-user-ID, capabilities of its file): set \
             CCL_SECRET instead",
        )),
        named => Ok(named),
    }
}

/// What [`given`] gives; where there is none, with `CCL_INSECURE=1` one that everybody knows.
///
/// # Errors
/// [`Error::Usage`] that says what to change, or the lines that make a secret where there is none.
pub(super) fn read() -> Result<UserSecret> {
    if let Some(secret) = given()? {
        return Ok(secret);
    }
    match environment::text(INSECURE).as_deref() {
        Some("1") => {
            warn_once();
            Ok(UserSecret(Zeroizing::new(PUBLIC.to_vec())))
        }
        None | Some("0") => Err(Error::usage(MISSING)),
        Some(other) => Err(Error::usage(format!(
            "{INSECURE}={other} is neither 0 nor 1.\n{MISSING}"
        ))),
    }
}

fn of_file(path: &str) -> Result<UserSecret> {
    let wrong = |what: String| Error::usage(format!("{FILE}={path} {what}"));
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = open(path, flags, Mode::empty()).map_err(|e| wrong(format!("cannot be read: {e}")))?;
    let about = fstat(&file).map_err(|e| wrong(format!("cannot be looked at: {e}")))?;
    if FileType::from_raw_mode(about.st_mode) != FileType::RegularFile {
        return Err(wrong(
            "is no regular file: it must be one that holds the secret".to_owned(),
        ));
    }
    let me = geteuid().as_raw();
    if about.st_uid != me && about.st_uid != 0 {
        let owner = about.st_uid;
        return Err(wrong(format!(
            "belongs to user {owner}: it must be yours (user {me}) or root's"
        )));
    }
    let mode = about.st_mode & 0o777;
    if mode & 0o077 != 0 {
        return Err(wrong(format!(
            "may be used by others (its mode is {mode:03o}), so it holds no secret: make a new one, after\n  chmod 600 {path}"
        )));
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(LONGEST + 1)); // no growth leaves a copy behind
    let mut file = File::from(crate::sys::fork::above_stdio(file)).take(LONGEST as u64 + 1);
    file.read_to_end(&mut bytes)
        .map_err(|e| wrong(format!("cannot be read: {e}")))?;
    if bytes.len() > LONGEST {
        return Err(wrong(format!(
            "has more than {LONGEST} bytes: it must hold the secret alone"
        )));
    }
    // Whether an editor or a copy on the way put a line's end there must not matter.
    let len = bytes.trim_ascii_end().len();
    bytes.truncate(len);
    long_enough(FILE, len)?;
    Ok(UserSecret(bytes))
}

fn of_variable() -> Result<Option<UserSecret>> {
    if let Some(text) = environment::take(VARIABLE) {
        let secret = of_text(&text)?;
        keep(|kept| *kept = Some(secret));
    }
    Ok(keep(|kept| kept.clone()))
}

fn of_text(text: &[u8]) -> Result<UserSecret> {
    let secret = UserSecret(Zeroizing::new(text.trim_ascii().to_vec()));
    long_enough(VARIABLE, secret.0.len())?;
    Ok(secret)
}

/// Does `with` to the secret that `CCL_SECRET` held. Gated, so that no forked child finds the lock held.
fn keep<T>(with: impl FnOnce(&mut Option<UserSecret>) -> T) -> T {
    static KEPT: Mutex<Option<UserSecret>> = Mutex::new(None);
    fork::gated(|| with(&mut KEPT.lock().unwrap_or_else(PoisonError::into_inner)))
}

fn long_enough(name: &str, len: usize) -> Result<()> {
    if len >= SHORTEST {
        return Ok(());
    }
    Err(Error::usage(format!(
        "the secret of {name} has {len} characters, but must have {SHORTEST} or more that nobody can guess.\n{LINES}"
    )))
}

/// To standard error, because whoever has set it is to see it whatever becomes of the job.
fn warn_once() {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if !WARNED.swap(true, Relaxed) {
        log::complain("warning: CCL_INSECURE=1: whoever reaches rank 0's port can join this job");
    }
}

const FILE: &str = "CCL_SECRET_FILE";
const VARIABLE: &str = "CCL_SECRET";
const INSECURE: &str = "CCL_INSECURE";

/// Bytes that a secret must have, and may.
const SHORTEST: usize = 16;
const LONGEST: usize = 4096;

/// What stands for a secret on a trusted network.
const PUBLIC: &[u8] = b"ccl: no secret, by CCL_INSECURE=1";

const MISSING: &str = "\
ranks on several hosts need a secret that they share. Make one, copy the file to the same place on every host, and \
name it to all ranks:
  (umask 077 && head -c 32 /dev/urandom | base64 > ~/.ccl-secret)
  export CCL_SECRET_FILE=~/.ccl-secret
(Or set CCL_SECRET to the secret itself; or, on a network that you trust, CCL_INSECURE=1.)";

const LINES: &str = "\
This makes one:
  (umask 077 && head -c 32 /dev/urandom | base64 > ~/.ccl-secret)
  export CCL_SECRET_FILE=~/.ccl-secret";

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt, path::Path};

    fn file(folder: &Path, content: &[u8], mode: u32) -> String {
        let path = folder.join(format!("{mode:o}-{}", content.len()));
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn refused(path: &str) -> String {
        of_file(path).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn a_file_is_its_owner_s_alone() {
        let folder = tempfile::tempdir().unwrap();
        let secret = b"0123456789abcdef";
        for mode in [0o600, 0o400, 0o700] {
            let path = file(folder.path(), secret, mode);
            assert_eq!(of_file(&path).unwrap().bytes(), secret);
        }
        for mode in [0o640, 0o604, 0o620, 0o601, 0o666] {
            let path = file(folder.path(), secret, mode);
            let text = refused(&path);
            assert!(
                text.contains(&format!("chmod 600 {path}")) && text.contains(&format!("{mode:03o}")),
                "{text}"
            );
        }
    }

    #[test]
    fn a_file_has_a_secret_of_some_length() {
        let folder = tempfile::tempdir().unwrap();
        let of = |content: &[u8]| of_file(&file(folder.path(), content, 0o600));
        let text = of(b"0123456789abcde\n\n").map(|_| ()).unwrap_err().to_string();
        assert!(
            text.contains("15 characters") && text.contains("/dev/urandom"),
            "{text}"
        );
        assert_eq!(of(b"0123456789abcdef\r\n").unwrap().bytes(), b"0123456789abcdef");
        assert_eq!(of(&[7; LONGEST]).unwrap().bytes().len(), LONGEST);
        let text = of(&[7; LONGEST + 1]).map(|_| ()).unwrap_err().to_string();
        assert!(text.contains("more than 4096"), "{text}");
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(refused(folder.path().to_str().unwrap()).contains("no regular file"));
        assert!(refused("/dev/null").contains("no regular file"));
        assert!(refused("/nowhere/at/all").contains("CCL_SECRET_FILE=/nowhere/at/all cannot be read"));
    }

    #[test]
    fn a_secret_is_not_printed() {
        assert_eq!(
            format!("{:?}", UserSecret(Zeroizing::new(b"0123".to_vec()))),
            "UserSecret(..)"
        );
    }
}
