//! Every check of the project, one after the other; all are run, whatever fails.

use crate::{
    cargo::command,
    header, install, libtest, readme,
    run::{follow, succeed},
    tally::Tally,
    tools::{self, Need},
};
use std::{env, path::Path, process::ExitCode};

/// Runs them and prints the counts.
pub(crate) fn run(root: &Path) -> ExitCode {
    tools::prepare();
    let mut tally = Tally::default();
    let mut check = |name: &str, needs: &[Need], check: &dyn Fn() -> Result<(), String>| {
        println!("\n== {name}");
        match needs.iter().find(|need| !need.is_there()) {
            Some(missing) => tally.skipped.push(format!("{name}: {missing} is not installed")),
            None => tally.count(name, check()),
        }
    };
    let cargo = |args: &str| succeed(&mut command(root, args));
    check("format", &[Need::Component("rustfmt")], &|| {
        cargo("fmt --all --check")
    });
    check("clippy", &[Need::Component("clippy")], &|| {
        cargo("clippy --workspace --all-targets -- -D warnings")
    });
    check("clippy without features", &[Need::Component("clippy")], &|| {
        cargo("clippy --package ccl --all-targets --no-default-features -- -D warnings")
    });
    check("header", &[], &|| header::check(root));
    check("library without features", &[], &|| {
        cargo("check --lib --no-default-features")
    });
    check("documentation", &[], &|| documentation(root));
    println!("\n== tests");
    tally.add(tests(root));
    println!("\n== README");
    tally.add(readme::check(root));
    println!("\n== installing");
    tally.add(install::check(root));
    tally.report(env::var("CI").is_ok_and(|ci| ci == "true"))
}

fn documentation(root: &Path) -> Result<(), String> {
    succeed(command(root, "doc --workspace --no-deps").env("RUSTDOCFLAGS", "-D warnings"))
}

/// `cargo test`, shown as it goes and counted.
fn tests(root: &Path) -> Tally {
    let mut output = libtest::Output::default();
    let ended = follow(
        &mut command(root, "test --workspace --no-fail-fast -- --show-output"),
        |line| {
            if output.line(line) {
                println!("{line}");
            }
        },
    );
    let mut tally = output.tally();
    match ended {
        // A program that did not compile, or that crashed, printed no counts.
        Err(why) if tally.failed.is_empty() => tally.count("cargo test", Err(why)),
        Ok(()) if tally.passed == 0 => tally.count("cargo test", Err("no test was run".to_owned())),
        _ => {}
    }
    tally
}
