//! `cargo xtask verbs`: the plugin for InfiniBand and RoCE, built, and tested in virtual machines (`scripts/rdma-vm`).

use crate::{
    cargo::{build_release, command, test_programs},
    run::follow,
    tally::Tally,
};
use std::{path::Path, process::Command};

/// Builds it beside the library: `target/release/libccl_net_verbs.so`.
///
/// # Errors
/// How Cargo ended.
pub(crate) fn build(root: &Path) -> Result<(), String> {
    let built = build_release(root)?;
    println!("{} is beside {}", built.verbs.display(), built.library.display());
    Ok(())
}

/// Runs ranks over it in virtual machines: what the checks have time for, or `all`.
pub(crate) fn check(root: &Path, all: bool) -> Tally {
    let mut tally = Tally::default();
    // An emulated processor feels each instruction.
    if let Err(why) = build_release(root) {
        tally.count("the verbs plugin", Err(why));
        return tally;
    }
    let mut runs = vec![
        ("one machine", "1", vec![]),
        ("two machines", "2", vec!["hosts".to_owned()]),
    ];
    if all {
        match conformance(root) {
            Ok(program) => runs.push(("conformance", "1", vec!["conforms".to_owned(), program])),
            Err(why) => tally.count("the conformance test", Err(why)),
        }
        runs.push(("two rails", "1", vec!["rails".to_owned()]));
        runs.push(("one machine, rarer cases", "1", vec!["more".to_owned()]));
        runs.push(("three machines", "3", vec!["hosts".to_owned()]));
    }
    for (name, hosts, arguments) in runs {
        println!("\n== RoCE in software: {name}");
        let mut machine = Command::new(root.join("scripts/rdma-vm/run"));
        machine
            .args(["--hosts", hosts])
            .arg("scripts/rdma-vm/matrix")
            .args(arguments);
        let (mut found, mut last) = (Tally::default(), String::new());
        let ended = follow(machine.current_dir(root), |line| {
            println!("{line}");
            // Of several machines each line says whose it is.
            let line = match line.split_once(": ") {
                Some((host, line)) if host.parse::<u8>().is_ok() => line,
                _ => line,
            };
            found.line(line);
            if !line.is_empty() {
                line.clone_into(&mut last);
            }
        });
        // As `lacks` in the script says it.
        let cannot_begin = |why: &String| why.starts_with("a virtual machine: ");
        if !found.skipped.iter().any(cannot_begin) {
            // Of a machine that stopped the name says where.
            found.ended(&format!("{name} (its last line: {last})"), ended);
        }
        tally.add(found);
    }
    tally
}

/// The program of the library's own tests, which has the conformance test of the transports.
fn conformance(root: &Path) -> Result<String, String> {
    const ARGS: &str = "test --package ccl --lib --locked --no-run --message-format=json-render-diagnostics";
    let program = test_programs(command(root, ARGS))?.into_iter().next();
    let program = program.ok_or("cargo built no program of tests")?;
    Ok(program.path.display().to_string())
}
