//! Miri: runs tests of unsafe code that needs no system call, and finds undefined behaviour that did no harm.
//!
//! It takes the nightly toolchain with `miri` and `rust-src`. Processor instructions that it does not know are left out (`cfg(miri)`).

use crate::run::succeed;
use std::{path::Path, process::Command};

/// The tests that it can run in bounded time, by the beginnings of their names.
const TESTS: [&str; 3] = ["exec::wait", "mem::hold", "mem::region"];

/// Runs them, or those whose names contain one of `filters`.
///
/// # Errors
/// That it found something; what is printed.
pub(crate) fn run(root: &Path, filters: &[&str]) -> Result<(), String> {
    let mut cargo = Command::new("rustup");
    // What cargo has set for this program is of another toolchain.
    for name in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN"] {
        cargo.env_remove(name);
    }
    let test = "run nightly cargo miri test --locked --package ccl --lib --no-default-features";
    cargo.args(test.split(' ')).current_dir(root);
    cargo
        .args(["--target-dir", "target/miri", "--"])
        .args(if filters.is_empty() { &TESTS[..] } else { filters })
        .env("MIRIFLAGS", "-Zmiri-disable-isolation")
        .env("CARGO_INCREMENTAL", "0");
    succeed(&mut cargo)
}
