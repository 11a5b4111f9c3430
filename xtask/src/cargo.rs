//! Calling cargo.

use crate::run::output_of;
use serde_json::Value;
use std::{
    collections::BTreeSet,
    env,
    path::{Path, PathBuf},
    process::Command,
};

/// The cargo that runs this program, in the repository.
pub(crate) fn command(root: &Path, args: &str) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args.split(' ')).current_dir(root);
    of_no_package(&mut command);
    command
}

/// Hides what cargo says of this program. Build scripts look at it, so that crates would be built again for who does not see it.
pub(crate) fn of_no_package(command: &mut Command) {
    let prefixes = ["CARGO_PKG_", "CARGO_MANIFEST_"];
    for (name, _) in env::vars_os() {
        let starts_with = |prefix: &&str| name.to_str().is_some_and(|name| name.starts_with(prefix));
        if prefixes.iter().any(starts_with) {
            command.env_remove(name);
        }
    }
}

/// What a release build leaves, wherever that is.
pub(crate) struct Built {
    /// The shared library.
    pub(crate) library: PathBuf,
    /// `ccl-perf`.
    pub(crate) perf: PathBuf,
    /// `ccl-topo`.
    pub(crate) topo: PathBuf,
    /// The plugin for InfiniBand and RoCE.
    pub(crate) verbs: PathBuf,
    /// The folders of all packages that went into them, or were run to make them, but the repository's own.
    pub(crate) packages: BTreeSet<PathBuf>,
}

/// Builds the library, the programs and the plugin.
pub(crate) fn build_release(root: &Path) -> Result<Built, String> {
    const ARGS: &str = "build --release --locked --package ccl --package ccl-net-verbs \
                        --message-format=json-render-diagnostics";
    let artifacts = artifacts(command(root, ARGS))?;
    let files: Vec<PathBuf> = artifacts
        .iter()
        .filter_map(|artifact| artifact["filenames"].as_array())
        .flatten()
        .filter_map(|file| file.as_str().map(PathBuf::from))
        .collect();
    let manifests = artifacts
        .iter()
        .filter_map(|artifact| Path::new(artifact["manifest_path"].as_str()?).parent());
    let packages = manifests
        .filter(|folder| !folder.starts_with(root))
        .map(Path::to_owned)
        .collect();
    let named = |name: &str| {
        let found = files.iter().find(|file| file.ends_with(name)).cloned();
        found.ok_or_else(|| format!("cargo built no {name}"))
    };
    Ok(Built {
        library: named("libccl.so")?,
        perf: named("ccl-perf")?,
        topo: named("ccl-topo")?,
        verbs: named("libccl_net_verbs.so")?,
        packages,
    })
}

/// A program of tests that cargo has built.
pub(crate) struct TestProgram {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

/// What a `cargo test --no-run` with messages in JSON built, or has built before.
pub(crate) fn test_programs(command: Command) -> Result<Vec<TestProgram>, String> {
    let program = |artifact: &Value| {
        let (name, path) = (
            artifact["target"]["name"].as_str()?,
            artifact["executable"].as_str()?,
        );
        let is_test = artifact["profile"]["test"] == true;
        is_test.then(|| TestProgram {
            name: name.to_owned(),
            path: path.into(),
        })
    };
    Ok(artifacts(command)?.iter().filter_map(program).collect())
}

/// What cargo says in JSON of all that it made.
fn artifacts(mut command: Command) -> Result<Vec<Value>, String> {
    let messages = output_of(&mut command)?;
    let messages = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(messages
        .filter(|message| message["reason"] == "compiler-artifact")
        .collect())
}
