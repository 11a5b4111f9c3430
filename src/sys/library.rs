//! Libraries that are loaded when they are needed.

use libloading::Library;
use std::{
    env,
    error::Error,
    ffi::{CStr, OsStr, c_void},
    mem::ManuallyDrop,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    ptr,
};

/// A function of a loaded library, of some type.
pub(crate) type Function = unsafe extern "C" fn();

/// The function `name` of the library `file`, which is loaded and stays so; `None` if it has none of that name.
///
/// # Errors
/// Why it cannot be loaded.
pub(crate) fn function(file: &OsStr, name: &CStr) -> Result<Option<Function>, String> {
    let reason = |e: libloading::Error| e.source().map_or(e.to_string(), ToString::to_string);
    // SAFETY: the user names the library to be loaded into this program; what its initialisers do is the user's wish.
    let library = unsafe { Library::new(file) };
    // Never unloaded: it may have threads of its own, and functions that run at the end of the process.
    let library = ManuallyDrop::new(library.map_err(|e| format!("it cannot be loaded: {}", reason(e)))?);
    // SAFETY: a pointer to some function; who calls it says of which type.
    Ok(unsafe { library.get::<Function>(name) }.ok().map(|found| *found))
}

/// The path of `file` in the folder in which the code of this library lies.
pub(crate) fn beside(file: &Path) -> Option<PathBuf> {
    let mut info = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    // SAFETY: it looks an address up and writes the struct; a name that it finds stays as long as the library, this one.
    let ours = unsafe {
        let found = libc::dladdr(beside as *const c_void, &raw mut info) != 0 && !info.dli_fname.is_null();
        found.then(|| CStr::from_ptr(info.dli_fname).to_bytes())
    };
    let ours = OsStr::from_bytes(ours?);
    // Of the program itself it knows only how it was called, which need not be a path of it.
    let ours = match env::args_os().next() {
        Some(called) if called == ours => env::current_exe().ok()?,
        _ => PathBuf::from(ours),
    };
    Some(ours.parent()?.join(file))
}

/// Whether the process has more rights than who started it, so that the environment must not say which code is loaded.
pub(crate) fn has_others_rights() -> bool {
    // SAFETY: it reads a number that the kernel gave the process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
