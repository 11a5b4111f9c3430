//! The programs that the checks need, installed where that is allowed.

use crate::run::{answers, succeed};
use std::{fmt, process::Command};

/// Something that a check cannot do without.
#[derive(Clone, Copy)]
pub(crate) enum Need {
    /// `rustfmt` or `clippy`.
    Component(&'static str),
    /// A program, and the Debian packages that it comes with.
    Program(&'static str, &'static [&'static str]),
}

const COMPONENTS: [Need; 2] = [Need::Component("rustfmt"), Need::Component("clippy")];

/// `nm` and `timeout` come with every system that has a compiler; the linker was there to build this program.
const PROGRAMS: [Need; 5] = [
    Need::Program("cc", &["gcc", "libc6-dev"]),
    Need::Program("c++", &["g++"]),
    PKG_CONFIG,
    CMAKE,
    MAKE,
];
pub(crate) const PKG_CONFIG: Need = Need::Program("pkg-config", &["pkg-config"]);
pub(crate) const CMAKE: Need = Need::Program("cmake", &["cmake"]);
pub(crate) const MAKE: Need = Need::Program("make", &["make"]);

/// Installs what is missing and can be had. What then still is missing is for the checks to say.
pub(crate) fn prepare() {
    for need in COMPONENTS.iter().filter(|need| !need.is_there()) {
        install("rustup", &["component", "add", &need.to_string()]);
    }
    let missing = PROGRAMS.iter().filter(|need| !need.is_there());
    let packages: Vec<&str> = missing.flat_map(Need::packages).copied().collect();
    if !packages.is_empty() && is_root() && answers("apt-get", &["--version"]) {
        let apt_get = ["install", "--yes", "--no-install-recommends"];
        install("apt-get", &["update"]);
        install("apt-get", &[&apt_get[..], &packages].concat());
    }
}

impl Need {
    pub(crate) fn is_there(&self) -> bool {
        match self {
            Need::Component(name) => answers("cargo", &[name.trim_start_matches("rust"), "--version"]),
            Need::Program(name, _) => answers(name, &["--version"]),
        }
    }

    fn packages(&self) -> &'static [&'static str] {
        match self {
            Need::Program(_, packages) => packages,
            Need::Component(_) => &[],
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Need::Component(name) | Need::Program(name, _) => f.write_str(name),
        }
    }
}

fn install(program: &str, args: &[&str]) {
    println!("installing: {program} {}", args.join(" "));
    let mut command = Command::new(program);
    if let Err(why) = succeed(command.args(args).env("DEBIAN_FRONTEND", "noninteractive")) {
        eprintln!("{program} {why}");
    }
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}
