//! Files that appear whole or not at all: written beside their place, then renamed.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

/// A folder to install into.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Makes `path` under `prefix`, with all that is above it.
    pub(super) fn make(prefix: &Path, path: &str) -> Result<Folder, String> {
        let folder = prefix.join(path);
        fs::create_dir_all(&folder).map_err(|error| match not_a_folder(&folder) {
            Some(file) => format!(
                "{} is not a folder: remove it, or install elsewhere",
                file.display()
            ),
            None => explain("cannot make the folder", &folder, &error),
        })?;
        Ok(Folder(folder))
    }

    /// Copies a file.
    pub(super) fn copy(&self, from: &Path, name: &str, mode: u32) -> Result<(), String> {
        let content = fs::read(from).map_err(|error| explain("cannot read", from, &error))?;
        self.file(name, &content, mode)
    }

    /// Writes a text that everybody may read.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), String> {
        self.file(name, text.as_bytes(), 0o644)
    }

    /// Makes a relative link.
    pub(super) fn link(&self, name: &str, to: &str) -> Result<(), String> {
        self.put(name, |path| symlink(to, path))
    }

    /// The mode is what is said, whatever the user's umask is: others are to use these files.
    fn file(&self, name: &str, content: &[u8], mode: u32) -> Result<(), String> {
        self.put(name, |path| {
            fs::write(path, content)?;
            fs::set_permissions(path, Permissions::from_mode(mode))
        })
    }

    /// Has `make` make something under a name of its own and gives it its name.
    fn put(&self, name: &str, make: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), String> {
        let (place, new) = (self.0.join(name), self.0.join(format!(".{name}.new")));
        let _ = fs::remove_file(&new); // one that an interrupted run left
        make(&new)
            .and_then(|()| fs::rename(&new, &place))
            .map_err(|error| {
                let _ = fs::remove_file(&new);
                match place.is_dir() {
                    true => format!("{} is a folder: remove it, or install elsewhere", place.display()),
                    false => explain("cannot write", &place, &error),
                }
            })
    }
}

/// The nearest of `path` and what is above it that exists, if that is no folder.
fn not_a_folder(path: &Path) -> Option<&Path> {
    let there = path.ancestors().find(|path| path.symlink_metadata().is_ok())?;
    (!there.is_dir()).then_some(there)
}

fn explain(what: &str, path: &Path, error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            ": choose a --prefix that is yours, or install with --destdir and copy as root"
        }
        _ => "",
    };
    format!("{what} {}: {error}{advice}", path.display())
}
