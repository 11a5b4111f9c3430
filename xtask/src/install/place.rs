//! Where to install.

use std::path::{Component, Path, PathBuf};

/// The prefix under which the files are found later, and the folder that stands for the system's root meanwhile.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place {
    prefix: PathBuf,
    destdir: Option<PathBuf>,
}

impl Place {
    /// `prefix` as it will be; with `destdir` the files are written to `destdir/prefix`, for a package.
    ///
    /// # Errors
    /// When the prefix is not an absolute path without `..`.
    pub(crate) fn new(prefix: &Path, destdir: Option<&Path>) -> Result<Place, String> {
        if !prefix.is_absolute() {
            return Err(format!(
                "--prefix {}: it must be an absolute path, such as /usr/local",
                prefix.display()
            ));
        }
        if prefix.components().any(|part| part == Component::ParentDir) {
            return Err(format!("--prefix {}: write it without `..`", prefix.display()));
        }
        if destdir.is_some_and(|folder| folder.as_os_str().is_empty()) {
            return Err("--destdir is empty: name a folder, or leave it out".to_owned());
        }
        Ok(Place {
            prefix: prefix.to_owned(),
            destdir: destdir.map(Path::to_owned),
        })
    }

    /// What `--prefix DIR [--destdir DIR]` says, in any order, also as `--prefix=DIR`.
    ///
    /// # Errors
    /// When it says anything else.
    pub(crate) fn from_args(args: &[&str]) -> Result<Place, String> {
        let (mut prefix, mut destdir) = (None, None);
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let (flag, value) = match arg.split_once('=') {
                Some((flag, value)) => (flag, Some(value)),
                None => (*arg, args.next().copied()),
            };
            let slot = match flag {
                "--prefix" => &mut prefix,
                "--destdir" => &mut destdir,
                _ => {
                    return Err(format!(
                        "install: what is {flag}? It takes --prefix DIR and --destdir DIR"
                    ));
                }
            };
            let value = value.ok_or_else(|| format!("{flag} needs a folder"))?;
            if slot.replace(Path::new(value)).is_some() {
                return Err(format!("{flag} is there twice"));
            }
        }
        let prefix = prefix.ok_or("install needs --prefix DIR, such as --prefix /usr/local")?;
        Place::new(prefix, destdir)
    }

    /// The folder to write to.
    pub(crate) fn folder(&self) -> PathBuf {
        match &self.destdir {
            Some(destdir) => destdir.join(self.prefix.strip_prefix("/").unwrap_or(&self.prefix)),
            None => self.prefix.clone(),
        }
    }

    /// It as the user is told.
    pub(crate) fn shown(&self) -> String {
        match &self.destdir {
            Some(destdir) => format!("{}, staged in {}", self.prefix.display(), destdir.display()),
            None => self.prefix.display().to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_or_refused() {
        let folder = |args: &[&str]| Place::from_args(args).map(|place| place.folder());
        assert_eq!(folder(&["--prefix", "/usr/local"]), Ok("/usr/local".into()));
        assert_eq!(
            folder(&["--destdir=stage", "--prefix=/usr"]),
            Ok("stage/usr".into())
        );
        for (args, why) in [
            (&[][..], "needs --prefix"),
            (&["--prefix"], "needs a folder"),
            (&["--prefix", "here"], "absolute"),
            (&["--prefix="], "absolute"),
            (&["--prefix", "/a/../b"], "without `..`"),
            (&["--prefix", "/a", "--prefix", "/b"], "twice"),
            (&["--prefix", "/a", "--destdir="], "empty"),
            (&["--root", "/a"], "what is --root"),
        ] {
            let told = folder(args).unwrap_err();
            assert!(told.contains(why), "{args:?}: {told}");
        }
    }
}
