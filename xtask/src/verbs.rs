//! `cargo xtask verbs`: the plugin for InfiniBand and RoCE, built, and tested in virtual machines (`scripts/rdma-vm`).

use crate::{cargo::build_release, run::follow, tally::Tally};
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

/// Runs ranks over it in one machine with two devices, and in two machines.
pub(crate) fn check(root: &Path) -> Tally {
    let mut tally = Tally::default();
    // An emulated processor feels each instruction.
    if let Err(why) = build_release(root) {
        tally.count("the verbs plugin", Err(why));
        return tally;
    }
    for (name, options, argument) in [
        ("one machine", ["--hosts", "1"], None),
        ("two machines", ["--hosts", "2"], Some("hosts")),
    ] {
        println!("\n== RoCE in software: {name}");
        let mut machine = Command::new(root.join("scripts/rdma-vm/run"));
        machine.args(options).arg("scripts/rdma-vm/matrix").args(argument);
        let mut found = Tally::default();
        let ended = follow(machine.current_dir(root), |line| {
            println!("{line}");
            // Of several machines each line says whose it is.
            let line = match line.split_once(": ") {
                Some((host, line)) if host.parse::<u8>().is_ok() => line,
                _ => line,
            };
            found.line(line);
        });
        found.ended(name, ended);
        tally.add(found);
    }
    tally
}
