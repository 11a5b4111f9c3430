//! Every check of the project, one after the other; all are run, whatever fails.

use crate::{
    cargo::{TestProgram, command, test_programs},
    fuzz, header, install, libtest, pytorch, readme,
    run::{follow, succeed},
    sanitize::Sanitizer,
    tally::Tally,
    tools::{self, ARM, MSRV, Need},
    verbs,
};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    sync::LazyLock,
    time::Instant,
};

/// Runs them and prints the counts. What only compiles keeps one processor busy: it runs beside what compiles for fuzzing and
/// for the sanitizer, and is over before programs run whose ranks wait for each other.
pub(crate) fn run(root: &Path) -> ExitCode {
    tools::prepare(root);
    let mut tally = Tally::default();
    let aside = Aside::begin(root);
    heading("fuzzing");
    tally.count("fuzzing", fuzz::run(root, &fuzz::Plan::short()));
    heading("address sanitizer");
    let built = Sanitizer::Address.build(root);
    heading("format, lints and documentation, which ran beside these");
    match aside.and_then(Aside::end) {
        Ok(found) => tally.add(found),
        Err(why) => tally.count("lint", Err(why)),
    }
    heading("address sanitizer, the programs of tests/c");
    let outcome = built.and_then(|built| Sanitizer::Address.run(root, &built));
    tally.count("address sanitizer", outcome);
    heading("tests");
    tally.add(tests(root));
    heading("README and other texts with examples");
    tally.add(readme::check(root));
    heading("PyTorch");
    tally.add(pytorch::check(root));
    tally.add(verbs::check(root, false));
    heading("installing");
    tally.add(install::check(root));
    tally.report()
}

/// The checks that run nothing of the library: format, lints, header, features, documentation, manifests, kernels.
pub(crate) fn lint(root: &Path) -> Tally {
    let mut tally = Tally::default();
    let mut check = |name: &str, needs: &[Need], check: &dyn Fn() -> Result<(), String>| {
        heading(name);
        match needs.iter().find(|need| !need.is_there(root)) {
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
    check("clippy for the fuzzer", &[Need::Component("clippy")], &|| {
        fuzz::lint(root)
    });
    check("header", &[], &|| header::check(root));
    check("library with CUDA alone", &[], &|| {
        cargo("check --lib --no-default-features --features cuda")
    });
    // Not every machine that may install packages may have rustup's.
    match [Need::ArmStd, tools::ARM_CC]
        .iter()
        .find(|need| !need.is_there(root))
    {
        Some(missing) => println!("\nnothing is compiled for ARM: {missing} is not installed"),
        None => check("library without features, for ARM", &[], &|| {
            cargo(&format!("check --lib --no-default-features --target {ARM}"))
        }),
    }
    match Need::OldestRust.is_there(root) {
        true => check("oldest Rust", &[], &|| oldest_rust(root)),
        false => check("nothing newer than the oldest Rust, by clippy", &[], &|| {
            cargo("clippy --workspace --lib --bins -- -D clippy::incompatible_msrv")
        }),
    }
    check("dependencies", &[Need::CargoDeny], &|| dependencies(root));
    check("documentation", &[], &|| documentation(root));
    check("Kubernetes manifests", &[tools::KUBERNETES], &|| {
        let python = tools::environment(root, "kubernetes").join("bin/python");
        succeed(Command::new(python).arg(root.join("scripts/check-manifests")))
    });
    check("CUDA kernels", &[tools::KERNELS], &|| {
        succeed(Command::new(root.join("scripts/kernels")).arg("check"))
    });
    tally
}

/// [`lint`] as a process of its own, what it says in a file.
struct Aside {
    child: Child,
    said: PathBuf,
}

impl Aside {
    fn begin(root: &Path) -> Result<Aside, String> {
        let said = root.join("target/lint.log");
        let file = fs::File::create(&said).map_err(|error| format!("{}: {error}", said.display()))?;
        let (this, twin) = (env::current_exe(), file.try_clone());
        let child = this.and_then(|this| {
            let mut lint = Command::new(this);
            lint.arg("lint").stdin(Stdio::null()).stdout(file).stderr(twin?);
            lint.spawn()
        });
        let child = child.map_err(|error| format!("the checks beside: {error}"))?;
        Ok(Aside { child, said })
    }

    /// Waits for it, and shows what it said.
    fn end(mut self) -> Result<Tally, String> {
        let ended = self.child.wait().map_err(|error| error.to_string())?;
        let text = fs::read(&self.said).map_err(|error| format!("{}: {error}", self.said.display()))?;
        let text = String::from_utf8_lossy(&text);
        println!("{text}");
        let mut tally = Tally::default();
        text.lines().for_each(|line| tally.line(line));
        let ended = ended
            .success()
            .then_some(())
            .ok_or(format!("it ended with {ended}"));
        tally.ended("lint", ended);
        Ok(tally)
    }
}

/// Begins the output of a check: also when, so that a long run tells what takes its time.
pub(crate) fn heading(name: &str) {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let minutes = BEGAN.elapsed().as_secs_f64() / 60.0;
    println!("\n== {name} (after {minutes:.1} min)");
}

/// That the library and its programs compile with the version that Cargo.toml promises. In a folder of its own, so that
/// the two compilers do not undo each other's work.
fn oldest_rust(root: &Path) -> Result<(), String> {
    let mut cargo = Command::new("rustup");
    cargo.args([
        "run",
        MSRV,
        "cargo",
        "check",
        "--locked",
        "--workspace",
        "--lib",
        "--bins",
    ]);
    succeed(cargo.args(["--target-dir", "target/msrv"]).current_dir(root))
}

/// What deny.toml says of dependencies, but for advisories: those come from elsewhere and change from day to day.
fn dependencies(root: &Path) -> Result<(), String> {
    let mut deny = Command::new(tools::cargo_deny(root));
    deny.args(["--workspace", "--locked", "check", "bans", "licenses", "sources"]);
    succeed(deny.current_dir(root))
}

fn documentation(root: &Path) -> Result<(), String> {
    succeed(command(root, "doc --workspace --no-deps").env("RUSTDOCFLAGS", "-D warnings"))
}

/// `cargo test`, shown as it goes and counted; and once more over TCP what users do with communicators. The fuzzer has no
/// tests, but a dependency by which the library would be compiled another time than for the README's examples.
fn tests(root: &Path) -> Tally {
    const TEST: &str = "test --workspace --exclude ccl-fuzz --no-fail-fast";
    const SHOW: &str = "--show-output";
    let mut tally = test(|| command(root, &format!("{TEST} -- {SHOW}")), "cargo test");
    heading("tests over TCP");
    // Cargo would compile the library again for these two alone.
    let built = test_programs(command(
        root,
        &format!("{TEST} --no-run --message-format=json-render-diagnostics"),
    ));
    let built = match built {
        Ok(built) => built,
        Err(why) => {
            tally.count("tests over TCP", Err(why));
            return tally;
        }
    };
    // What some processors leave out as slower is to work everywhere.
    for (name, splice) in [("communicator", "auto"), ("collectives", "on")] {
        let what = format!("tests over TCP: {name}");
        match built.iter().find(|program| program.name == name) {
            Some(TestProgram { path, .. }) => {
                let over_tcp = || {
                    let mut over_tcp = Command::new(path);
                    over_tcp.arg(SHOW).current_dir(root);
                    over_tcp.envs([("CCL_TRANSPORT", "tcp"), ("CCL_TCP_SPLICE", splice)]);
                    over_tcp
                };
                tally.add(test(over_tcp, &what));
            }
            None => tally.count(&what, Err("cargo built none".to_owned())),
        }
    }
    tally
}

/// Runs tests, and those of a few that failed once more, by themselves: real processes are killed and waited for in them, and a
/// machine that stands still for a second in between may make one fail. What then passes several times in a row is told as unsteady.
fn test(command: impl Fn() -> Command, name: &str) -> Tally {
    let all = test_once(&mut command(), name);
    once_more(all, |test| {
        heading(&format!("once more: {test}"));
        test_once(command().args(["--exact", test]), test)
    })
}

/// What is left of the failures in `all` when those tests are run by themselves.
fn once_more(mut all: Tally, mut run: impl FnMut(&str) -> Tally) -> Tally {
    if all.failed.len() <= MOST_AGAIN {
        let mut passes = |test: &String| {
            (0..TIMES_AGAIN).all(|_| {
                let again = run(test);
                again.passed > 0 && again.failed.is_empty() && again.skipped.is_empty()
            })
        };
        let (steady, failed) = std::mem::take(&mut all.failed).into_iter().partition(&mut passes);
        all.failed = failed;
        all.passed_again(steady);
    }
    all
}

/// So many failed tests are run once more, so often.
const MOST_AGAIN: usize = 3;
pub(crate) const TIMES_AGAIN: usize = 5;

fn test_once(command: &mut Command, name: &str) -> Tally {
    let mut output = libtest::Output::default();
    let ended = follow(command, |line| {
        if output.line(line) {
            println!("{line}");
        }
    });
    let mut tally = output.tally();
    tally.ended(name, ended);
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(passed: usize, failed: &[&str]) -> Tally {
        Tally {
            passed,
            failed: failed.iter().map(|&name| name.to_owned()).collect(),
            ..Tally::default()
        }
    }

    #[test]
    fn what_failed_among_others_must_pass_by_itself_time_after_time() {
        let mut runs = 0;
        let shaken = once_more(tally(1, &["shaken"]), |_| {
            runs += 1;
            tally(1, &[])
        });
        assert_eq!((shaken.passed, shaken.failed.len(), runs), (2, 0, TIMES_AGAIN));
        assert_eq!(shaken.unsteady, ["shaken"]);
        for again in [tally(0, &["broken"]), tally(0, &[])] {
            let mut last = Some(again);
            let broken = once_more(tally(1, &["broken"]), |_| last.take().unwrap_or(tally(1, &[])));
            assert_eq!(broken, tally(1, &["broken"]));
        }
    }

    #[test]
    fn many_failures_are_no_accident() {
        let many = tally(9, &["a", "b", "c", "d"]);
        let left = once_more(tally(9, &["a", "b", "c", "d"]), |_| tally(1, &[]));
        assert_eq!(left, many);
    }
}
