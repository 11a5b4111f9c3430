//! The examples in Rust, run as programs. Those in C and C++ are run by `tests/c_abi.rs`.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The names of the examples.
fn examples() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let examples = files.filter(|file| file.extension().is_some_and(|of| of == "rs"));
    examples
        .map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect()
}

/// An example's program, where cargo puts it: beside the folder of this one.
fn program(name: &str) -> PathBuf {
    let me = env::current_exe().unwrap();
    let program = me.ancestors().nth(2).unwrap().join("examples").join(name);
    assert!(
        program.is_file(),
        "there is no {}: `cargo test` without --test builds it, and so does `cargo build --examples`",
        program.display()
    );
    program
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
    for name in examples {
        let lines = lines_of(&mut command(program(&name)));
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
    for name in examples() {
        let mut mpirun = command("mpirun.openmpi");
        mpirun.envs([
            ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
            ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ]);
        let lines = lines_of(mpirun.args(["--oversubscribe", "-n", "3"]).arg(program(&name)));
        assert!(
            lines.len() == 1 && lines[0].starts_with("3 "),
            "{name}: {lines:?}"
        );
    }
}
