//! `ccl-perf`: measures collectives between processes. All of it is in the library's `perf` module.

use std::process::ExitCode;

fn main() -> ExitCode {
    ccl::perf::main()
}
