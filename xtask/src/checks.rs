//! Every check of the project, one after the other; all are run, whatever fails.

use crate::{header, libtest, readme, tally::Tally, tools};
use std::{
    env,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, ExitCode, Stdio},
};

/// Runs them and prints the counts.
pub(crate) fn run(root: &Path) -> ExitCode {
    tools::prepare();
    let mut tally = Tally::default();
    let mut check = |name: &str, needs: Option<&str>, check: &dyn Fn() -> Result<(), String>| {
        println!("\n== {name}");
        match needs.filter(|component| !tools::has_component(component)) {
            Some(missing) => tally.skipped.push(format!("{name}: {missing} is not installed")),
            None => tally.count(name, check()),
        }
    };
    let cargo = |args: &str| succeed(&mut cargo(root, args));
    check("format", Some("rustfmt"), &|| cargo("fmt --all --check"));
    check("clippy", Some("clippy"), &|| {
        cargo("clippy --workspace --all-targets -- -D warnings")
    });
    check("clippy without features", Some("clippy"), &|| {
        cargo("clippy --package ccl --all-targets --no-default-features -- -D warnings")
    });
    check("header", None, &|| header::check(root));
    check("library without features", None, &|| {
        cargo("check --lib --no-default-features")
    });
    check("documentation", None, &|| documentation(root));
    println!("\n== tests");
    tally.add(tests(root));
    println!("\n== README");
    tally.add(readme::check(root));
    tally.report(env::var("CI").is_ok_and(|ci| ci == "true"))
}

fn documentation(root: &Path) -> Result<(), String> {
    succeed(cargo(root, "doc --workspace --no-deps").env("RUSTDOCFLAGS", "-D warnings"))
}

/// `cargo test`, shown as it goes and counted.
fn tests(root: &Path) -> Tally {
    let mut output = libtest::Output::default();
    let ended = follow(
        &mut cargo(root, "test --workspace --no-fail-fast -- --show-output"),
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

fn cargo(root: &Path, args: &str) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args.split(' ')).current_dir(root);
    command
}

/// Runs `command` to its end; an error tells how it ended if that was not well.
pub(crate) fn succeed(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("ended with {status}")),
        Err(error) => Err(format!("{program} could not be run: {error}")),
    }
}

/// The same, with each line of its output for `line`.
fn follow(command: &mut Command, mut line: impl FnMut(&str)) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("could not be run: {error}");
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(failed)?;
    if let Some(stdout) = child.stdout.take() {
        for bytes in BufReader::new(stdout).split(b'\n') {
            line(&String::from_utf8_lossy(&bytes.map_err(failed)?));
        }
    }
    match child.wait().map_err(failed)? {
        status if status.success() => Ok(()),
        status => Err(format!("ended with {status}")),
    }
}
