//! `ccl-topo`: shows, converts and compares descriptions of machines. All of it is in the library's `topo_tool` module.

use std::process::ExitCode;

fn main() -> ExitCode {
    ccl::topo_tool::main()
}
