//! The project's own chores: `cargo xtask test`, `lint`, `header`, `install`, `chaos`, `fuzz`, `sanitize`, `miri` and `verbs`.

mod cargo;
mod chaos;
mod checks;
mod fuzz;
mod header;
mod install;
mod libtest;
mod miri;
mod pytorch;
mod readme;
mod run;
mod sanitize;
mod tally;
mod tools;
mod verbs;

use std::{env, path::Path, process::ExitCode};

const USAGE: &str = "\
usage: cargo xtask <what>
  test            every check of the project; ends with `N passed, N failed, N skipped`
  lint            those of them that run nothing of the library: format, clippy, header, features, documentation, kernels
  header          writes include/ccl.h from src/ffi/ and cbindgen.toml
  header --check  fails if include/ccl.h is not what `header` would write
  install --prefix DIR [--destdir DIR]
                  builds and puts library, header and benchmark under DIR (in the --destdir, for a package)
  chaos [--seed N] [--runs N] [--seconds S]
                  real ranks that are killed, stopped, cut off and besieged; ends with a table of what came of it
  fuzz [--seconds S] [--keep] [TARGET...]
                  throws bytes at all that reads bytes from outside; --keep adds to fuzz/corpus what covers more
  sanitize [address] [thread]
                  the programs of tests/c with a library that finds bad accesses, leaks and races
  miri [FILTER...]
                  tests of unsafe code in Miri, with the nightly toolchain
  verbs build     builds the plugin for InfiniBand and RoCE beside the library, in target/release
  verbs test [--all]
                  runs it in virtual machines with RoCE in software; installs what they need (Debian's packages). --all has
                  the cases for which the checks have no time";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["test"] => return checks::run(root()),
        ["lint"] => return checks::lint(root()).report(),
        ["verbs", "build"] => verbs::build(root()),
        ["verbs", "test"] => return verbs::check(root(), false).report(),
        ["verbs", "test", "--all"] => return verbs::check(root(), true).report(),
        ["header"] => header::write(root()),
        ["header", "--check"] => header::check(root()),
        ["chaos", ref args @ ..] => chaos::Plan::from_args(args).and_then(|plan| chaos::run(root(), &plan)),
        ["fuzz", ref args @ ..] => fuzz::Plan::from_args(args).and_then(|plan| fuzz::run(root(), &plan)),
        ["miri", ref filters @ ..] => miri::run(root(), filters),
        ["sanitize", ref args @ ..] => {
            sanitize::from_args(args).and_then(|which| sanitize::run(root(), &which))
        }
        ["install", ref args @ ..] => {
            install::Place::from_args(args).and_then(|to| install::run(root(), &to))
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// The repository.
fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}
