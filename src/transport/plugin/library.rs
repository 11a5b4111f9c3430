//! [`Plugin`]: a library that brings a wire.

//! Finds plugins and makes safe calls of their functions.

use super::abi::{self, Functions, Later};
use crate::sys::library::{self, beside};
use std::{
    ffi::{CStr, OsStr, c_char, c_void},
    mem,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// A plugin library that was loaded. It stays until the process ends.
#[derive(Clone, Copy)]
pub(crate) struct Plugin {
    name: &'static str,
    about: &'static str,
    functions: Functions,
    later: Later,
}

impl Plugin {
    /// The plugin that `said` names: a path, if there is a slash in it, else the NAME of `libccl_net_NAME.so`, which is looked for
    /// beside this library, as it is installed, and then where the linker looks.
    ///
    /// # Errors
    /// A text that says what is wrong with which file.
    pub(crate) fn load(said: &str) -> Result<Plugin, String> {
        let (shown, file) = match said.contains('/') {
            true => (said.to_owned(), PathBuf::from(said)),
            false if !is_name(said) => return Err(format!("{said:?} is no name of a plugin")),
            false => {
                let name = format!("libccl_net_{said}.so");
                // An installed program lies in another folder than the libraries.
                let folders = ["", "../lib"].map(|folder| beside(&Path::new(folder).join(&name)));
                let near = folders.into_iter().flatten().find(|path| path.exists());
                let file = near.unwrap_or_else(|| PathBuf::from(&name));
                (name, file)
            }
        };
        let plugin = Plugin::of(file.as_os_str()).map_err(|why| format!("{shown}: {why}"))?;
        if !said.contains('/') && plugin.name != said {
            return Err(format!("{shown}: it says that it is {:?}", plugin.name));
        }
        Ok(plugin)
    }

    fn of(file: &OsStr) -> Result<Plugin, String> {
        let found = library::function(file, abi::SYMBOL)?;
        let Some(found) = found else {
            return Err(format!(
                "it has no function {}: it is no plugin, or one for another version of ccl",
                abi::SYMBOL.to_string_lossy()
            ));
        };
        // SAFETY: the function of this name has this type (`ccl_net.h`), and the library stays loaded.
        let found = unsafe { mem::transmute::<library::Function, abi::Entry>(found)() };
        // SAFETY: it is null, or a struct that begins so and stays as the library does; nothing beyond its size is read.
        let (size, version) = match unsafe { found.cast::<[u32; 2]>().as_ref() } {
            Some(&[size, version]) => (size as usize, version),
            None => return Err("it gives no functions".to_owned()),
        };
        if version != abi::VERSION || size < size_of::<abi::Plugin>() {
            return Err(format!(
                "it is for version {version} of the plugin interface ({size} bytes), and this is version {} ({})",
                abi::VERSION,
                size_of::<abi::Plugin>()
            ));
        }
        // SAFETY: as above; of what lies behind, only what it says to have is read, whole pointers of the same types.
        let later = unsafe {
            let mut later = Later::default();
            let own = (size - size_of::<abi::Plugin>()).min(size_of::<Later>()) & !(size_of::<usize>() - 1);
            found
                .add(1)
                .cast::<u8>()
                .copy_to_nonoverlapping((&raw mut later).cast(), own);
            later
        };
        // SAFETY: as above; it is as long as that.
        let found = unsafe { &*found };
        if found.functions.iter().any(|function| function.is_null()) {
            return Err("it lacks a function".to_owned());
        }
        // SAFETY: null, or texts that end with a zero and stay as the library does.
        let text = |at: *const c_char| unsafe {
            let text = (!at.is_null()).then(|| CStr::from_ptr(at).to_string_lossy());
            intern(&tidy(&text.unwrap_or_default()))
        };
        let name = text(found.name);
        if !is_name(name) {
            return Err(format!("its name is {name:?}"));
        }
        Ok(Plugin {
            name,
            about: text(found.about),
            // SAFETY: pointers to functions of these types, in this order, none of them null.
            functions: unsafe {
                mem::transmute::<[*const c_void; abi::FUNCTIONS], Functions>(found.functions)
            },
            later,
        })
    }

    /// Whether one may have this name.
    pub(crate) fn may_be_called(name: &str) -> bool {
        is_name(name)
    }

    /// What it is called.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Name and version, which must be the same on all ranks.
    pub(crate) fn identity(&self) -> String {
        format!("{} {}", self.name, self.about)
    }

    pub(super) fn functions(&self) -> &Functions {
        &self.functions
    }

    pub(super) fn later(&self) -> &Later {
        &self.later
    }
}

/// Whether `text` may be the name of a plugin, and so a part of a file's.
fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    (1..=32).contains(&text.len()) && text.chars().all(fits)
}

/// A plugin's text, fit for a line of a message.
pub(super) fn tidy(text: &str) -> String {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    text.chars()
        .take(MOST_TEXT)
        .map(printable)
        .collect::<String>()
        .trim()
        .to_owned()
}

/// The most characters of a plugin's text.
const MOST_TEXT: usize = 400;

/// The same text for as long as the process lives: there are as many as plugins.
pub(crate) fn intern(text: &str) -> &'static str {
    static TEXTS: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = texts.iter().find(|found| **found == text) {
        return found;
    }
    let kept: &'static str = text.to_owned().leak();
    texts.push(kept);
    kept
}
