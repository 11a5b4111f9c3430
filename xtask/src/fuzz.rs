//! Fuzzing: `fuzz/` is one program with a target for everything that reads bytes from outside; this builds and runs it.
//!
//! What libFuzzer needs of the compiler is to count the edges it passes and to show what is compared, which stable Rust can; no
//! sanitizer is used. What it finds worth keeping grows in `target/fuzz/corpus`; `fuzz/corpus` has what each run begins with.

use crate::{
    cargo::command,
    run::{each, output_of, succeed},
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

/// What to run, and how long each.
#[derive(Debug)]
pub(crate) struct Plan {
    seconds: u32,
    /// None: all.
    targets: Vec<String>,
    /// Whether to write what was found to `fuzz/corpus`, as little of it as covers the same.
    keeps: bool,
    /// 0: another one each time.
    seed: u32,
}

impl Plan {
    /// What CI does.
    pub(crate) fn short() -> Plan {
        Plan {
            seconds: 4,
            targets: Vec::new(),
            keeps: false,
            seed: 1,
        }
    }

    pub(crate) fn from_args(args: &[&str]) -> Result<Plan, String> {
        let mut plan = Plan {
            seconds: 60,
            seed: 0,
            ..Plan::short()
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match *arg {
                "--seconds" => {
                    let seconds = args.next().and_then(|text| text.parse().ok());
                    plan.seconds = seconds
                        .filter(|&seconds| seconds > 0)
                        .ok_or("--seconds wants a number")?;
                }
                "--keep" => plan.keeps = true,
                option if option.starts_with('-') => return Err(format!("there is no {option}")),
                target => plan.targets.push(target.to_owned()),
            }
        }
        Ok(plan)
    }
}

/// Fuzzes, and prints what was done.
///
/// # Errors
/// That something was found, and where it lies.
pub(crate) fn run(root: &Path, plan: &Plan) -> Result<(), String> {
    let program = build(root)?;
    let all = folders(&root.join("fuzz/corpus"))?;
    let unknown = plan.targets.iter().find(|target| !all.contains(target));
    if let Some(unknown) = unknown {
        return Err(format!(
            "there is no target {unknown}: there are {}",
            all.join(", ")
        ));
    }
    let chosen = |target: &&String| plan.targets.is_empty() || plan.targets.contains(target);
    println!("target        executions   seconds    a second  edges  kept inputs");
    each(
        all.iter().rev().filter(chosen).collect(),
        |target| (*target).clone(),
        |target| fuzz(root, &program, target, plan),
    )
}

/// Clippy for the program, which others leave out.
pub(crate) fn lint(root: &Path) -> Result<(), String> {
    succeed(&mut command(
        root,
        "clippy --package ccl-fuzz --package ccl --no-default-features --features ccl-fuzz/parsers -- -D warnings",
    ))
}

fn build(root: &Path) -> Result<PathBuf, String> {
    let host = output_of(Command::new("rustc").args(["--print", "host-tuple"]))?;
    let host = host.trim();
    println!("building for {host}, with counters, in target/fuzz");
    // With a target given, build scripts and macros are compiled without the counters.
    let mut cargo = command(root, "build --locked --package ccl-fuzz --features engine");
    cargo
        .args(["--target", host, "--target-dir", "target/fuzz"])
        .env("RUSTFLAGS", COUNTERS)
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0")
        .env("CARGO_PROFILE_DEV_DEBUG", "0");
    succeed(&mut cargo)?;
    Ok(root.join("target/fuzz").join(host).join("debug/ccl-fuzz"))
}

/// One target. Returns a line of the table.
fn fuzz(root: &Path, program: &Path, target: &str, plan: &Plan) -> Result<String, String> {
    let [kept, grown, found] = ["fuzz/corpus", "target/fuzz/corpus", "target/fuzz/found"]
        .map(|folder| root.join(folder).join(target));
    for folder in [&grown, &found] {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let start = Instant::now();
    let mut command = Command::new(program);
    command
        .args([
            &format!("-dict={}", root.join("fuzz/dictionary").display()),
            &format!("-max_total_time={}", plan.seconds),
            &format!("-seed={}", plan.seed),
            &format!("-artifact_prefix={}/", found.display()),
        ])
        .args(OPTIONS)
        .args([&grown, &kept])
        .env_clear()
        .env("CCL_FUZZ_TARGET", target);
    let output = command.output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let last: Vec<&str> = said.lines().rev().take(40).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        return Err(format!("{}\nit ended with {}", last.join("\n"), output.status));
    }
    let after = |mark: &str| {
        let rest = said.rsplit_once(mark).map(|(_, rest)| rest.trim_start());
        let number = rest.and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
        number.and_then(|number| number.parse::<u64>().ok())
    };
    let done = after("stat::number_of_executed_units:").filter(|&done| done > 0);
    let done = done.ok_or("it did not say how much it has done")?;
    let edges = after(" cov: ").unwrap_or(0);
    if plan.keeps {
        keep(program, target, &kept, &grown)?;
    }
    let inputs = fs::read_dir(&kept).map_err(|error| error.to_string())?.count();
    let took = start.elapsed().as_secs_f64();
    Ok(format!(
        "{target:<13}{done:>11}{took:>10.1}{:>12.0}{edges:>7}{inputs:>13}",
        done as f64 / took
    ))
}

/// Adds to the kept inputs those of the others that reach something new: the fewest short ones.
fn keep(program: &Path, target: &str, kept: &Path, grown: &Path) -> Result<(), String> {
    let mut merge = Command::new(program);
    merge
        .args(["-set_cover_merge=1", "-use_counters=0", "-max_len=512"])
        .args([kept, grown])
        .env_clear()
        .env("CCL_FUZZ_TARGET", target);
    let output = merge.output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// The names of the folders in one, in order.
fn folders(of: &Path) -> Result<Vec<String>, String> {
    let entries = fs::read_dir(of).map_err(|error| format!("{}: {error}", of.display()))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.collect();
    names.sort();
    Ok(names)
}

/// What libFuzzer needs in the code.
const COUNTERS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Bounds on a run: bytes of an input, seconds for one, MiB of memory.
const OPTIONS: [&str; 4] = [
    "-print_final_stats=1",
    "-max_len=4096",
    "-timeout=20",
    "-rss_limit_mb=1024",
];
