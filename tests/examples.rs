//! The examples in Rust, run as programs. Those in C and C++ are run by `tests/c_abi.rs`.

use serde_json::Value;
use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

/// The examples' names and programs, which cargo builds, if it has not, with the profile of this one.
fn examples() -> &'static [(String, PathBuf)] {
    static EXAMPLES: OnceLock<Vec<(String, PathBuf)>> = OnceLock::new();
    EXAMPLES.get_or_init(|| {
        let me = env::current_exe().unwrap();
        // The folder of target/<profile>/deps.
        let profile = me.ancestors().nth(2).and_then(Path::file_name).unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        // As cargo builds them for all tests: with other options, or variables that build scripts look at, it would build the
        // library once more.
        let of_this_package = |name: &&str| {
            let prefixes = ["CARGO_PKG_", "CARGO_MANIFEST_", "OUT_DIR"];
            prefixes.iter().any(|prefix| name.starts_with(prefix))
        };
        for (name, _) in env::vars_os() {
            if name.to_str().as_ref().is_some_and(of_this_package) {
                cargo.env_remove(name);
            }
        }
        let all = [
            "test",
            "--workspace",
            "--exclude",
            "ccl-fuzz",
            "--no-run",
            "--message-format=json-render-diagnostics",
        ];
        cargo.args(all);
        match profile.to_str() {
            Some("debug") => &mut cargo,
            _ => cargo.arg("--profile").arg(profile),
        };
        cargo.args((!cfg!(feature = "cli")).then_some("--no-default-features"));
        let lines = lines_of(cargo.current_dir(env!("CARGO_MANIFEST_DIR")));
        let messages = lines.iter().map(|line| line.parse::<Value>().unwrap());
        let built = messages.filter(|message| message["target"]["kind"][0] == "example");
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let example = |message: Value| {
            let (name, program) = (text(&message["target"]["name"]), text(&message["executable"]));
            Some((name?, program?.into()))
        };
        built.filter_map(example).collect()
    })
}

/// A command that sees nothing of the launcher under which the tests themselves may run.
fn command(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new(program.as_ref());
    command.env_clear().env("CCL_TIMEOUT", "60").stdin(Stdio::null());
    for name in ["PATH", "HOME", "TMPDIR"] {
        command.envs(env::var_os(name).map(|value| (name, value)));
    }
    command
}

/// Runs `command` to its end; the lines that it printed.
fn lines_of(command: &mut Command) -> Vec<String> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn they_run() {
    let examples = examples();
    assert!(examples.len() >= 4, "{examples:?}");
    for (name, program) in examples {
        let lines = lines_of(&mut command(program));
        assert!(
            lines.len() == 1 && lines[0].starts_with("4 "),
            "{name}: {lines:?}"
        );
    }
}

/// The first rank of one communicator speaks.
#[test]
fn they_run_under_open_mpi() {
    if let Err(error) = Command::new("mpirun.openmpi").arg("--version").output() {
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
        println!("skipped: there is no mpirun.openmpi: install openmpi-bin");
        return;
    }
    for (name, program) in examples() {
        let mut mpirun = command("mpirun.openmpi");
        mpirun.envs([
            ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
            ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ]);
        let lines = lines_of(mpirun.args(["--oversubscribe", "-n", "3"]).arg(program));
        assert!(
            lines.len() == 1 && lines[0].starts_with("3 "),
            "{name}: {lines:?}"
        );
    }
}
