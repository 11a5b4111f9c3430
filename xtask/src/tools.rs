//! The programs that the checks need, installed where that is allowed.

use std::process::{Command, Stdio};

/// Installs what is missing and can be had. What then still is missing is for the checks to say.
pub(crate) fn prepare() {
    for component in ["rustfmt", "clippy"] {
        if !has_component(component) {
            install("rustup", &["component", "add", component]);
        }
    }
    // `nm` and `timeout` come with every system that has a compiler; the linker was there to build this program.
    let wanted = [
        ("cc", &["gcc", "libc6-dev"][..]),
        ("c++", &["g++"]),
        ("mpirun.openmpi", &["openmpi-bin"]),
        ("mpirun.mpich", &["mpich"]),
    ];
    let missing = (wanted.into_iter())
        .filter(|(program, _)| !answers(program, &["--version"]))
        .flat_map(|(_, packages)| packages.iter().copied());
    let missing: Vec<&str> = missing.collect();
    if !missing.is_empty() && is_root() && answers("apt-get", &["--version"]) {
        install("apt-get", &["update"]);
        let options = ["install", "--yes", "--no-install-recommends"];
        install("apt-get", &[&options[..], &missing].concat());
    }
}

/// Whether cargo has `rustfmt` or `clippy`.
pub(crate) fn has_component(component: &str) -> bool {
    let subcommand = component.trim_start_matches("rust");
    answers("cargo", &[subcommand, "--version"])
}

fn install(program: &str, args: &[&str]) {
    println!("installing: {program} {}", args.join(" "));
    let done = Command::new(program)
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .status();
    match done {
        Ok(status) if status.success() => {}
        Ok(status) => eprintln!("{program} ended with {status}"),
        Err(error) => eprintln!("{program}: {error}"),
    }
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn answers(program: &str, args: &[&str]) -> bool {
    let silent = Command::new(program)
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    silent.is_ok_and(|status| status.success())
}
