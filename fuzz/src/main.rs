//! Bytes from outside, thrown at everything that reads them: `cargo xtask fuzz`.
//!
//! One program for all targets, so that it is linked once; `CCL_FUZZ_TARGET` says which one. All else is libFuzzer's.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("CCL_FUZZ_TARGET").unwrap_or_default();
    let found = ccl::fuzzing::TARGETS.iter().find(|(known, _)| *known == name);
    match found {
        Some((_, target)) => *target,
        None => panic!("CCL_FUZZ_TARGET={name:?} is no target: see fuzz/corpus"),
    }
});

fuzz_target!(|bytes: &[u8]| TARGET(bytes));
