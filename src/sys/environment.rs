//! Environment variables that hold a secret.

use std::{env, ffi::OsString, os::unix::ffi::OsStringExt};
use zeroize::Zeroizing;

/// The value of a variable that is set and not empty. What is not UTF-8 is replaced by marks.
pub(crate) fn text(name: &str) -> Option<String> {
    let value = env::var_os(name).filter(|value| !value.is_empty());
    value.map(|value| value.to_string_lossy().into_owned())
}

/// The value of a variable that holds a secret, which stays in the environment, if it is not empty.
pub(crate) fn peek(name: &str) -> Option<Zeroizing<Vec<u8>>> {
    value(name).filter(|value| !value.is_empty())
}

fn value(name: &str) -> Option<Zeroizing<Vec<u8>>> {
    env::var_os(name).map(|value| Zeroizing::new(OsString::into_vec(value)))
}

/// Takes a variable out of the environment, so that programs which this one starts do not inherit it; gives its
/// value, if that is not empty. The kernel still shows what the process was started with in `/proc/<pid>/environ`, to
/// the same user and to root.
pub(crate) fn take(name: &str) -> Option<Zeroizing<Vec<u8>>> {
    let value = value(name)?;
    // SAFETY: other threads of Rust's standard library, ours included, are kept out by its lock. C code that looks a
    // variable up at this moment without one is not harmed: glibc's unsetenv, which is all that this library is built
    // for, moves the pointers behind the removed one down by a place, each by one store, and frees nothing, so that a
    // reader finds valid pointers and the end of the list; at worst it misses a variable. We do that once, in a call
    // whose documentation says so.
    unsafe { env::remove_var(name) };
    (!value.is_empty()).then_some(value)
}
