//! The programs that the checks need, installed where that is allowed.

use crate::{
    cargo::command,
    run::{answers, succeed},
};
use std::{
    env, fmt,
    path::{Path, PathBuf},
    process::Command,
};

/// The oldest Rust that the project promises to compile with.
pub(crate) const MSRV: &str = env!("CARGO_PKG_RUST_VERSION");
/// The other kind of processor that it promises to compile for.
pub(crate) const ARM: &str = "aarch64-unknown-linux-gnu";

/// Fails where Python's installation is not whole.
const HAS_ALL: &str =
    "import ensurepip, os, sysconfig, venv; os.stat(sysconfig.get_path('include') + '/Python.h')";

/// The version of cargo-deny that is installed where there is none.
const CARGO_DENY: &str = "0.20.2";

/// Something that a check cannot do without.
#[derive(Clone, Copy)]
pub(crate) enum Need {
    /// `rustfmt` or `clippy`.
    Component(&'static str),
    /// `rust-src`, the standard library's source.
    RustSource,
    /// The standard library for [`ARM`].
    ArmStd,
    /// The compiler of [`MSRV`].
    OldestRust,
    CargoDeny,
    /// Python that can make environments, and its headers.
    Python,
    /// A program, and the Debian packages that it comes with.
    Program(&'static str, &'static [&'static str]),
    /// A library that the loader finds by this name, and the Debian packages that it comes with.
    Library(&'static str, &'static [&'static str]),
    /// A Python environment below `target/tools`, and a program that it has when it is whole.
    Environment(&'static str, &'static str),
}

const COMPONENTS: [Need; 4] = [
    Need::Component("rustfmt"),
    Need::Component("clippy"),
    Need::ArmStd,
    Need::OldestRust,
];

/// `nm` and `timeout` come with every system that has a compiler; the linker was there to build this program.
const PROGRAMS: [Need; 15] = [
    Need::Program("cc", &["gcc", "libc6-dev"]),
    Need::Program("c++", &["g++"]),
    Need::Program("mpirun.openmpi", &["openmpi-bin"]),
    Need::Program("mpirun.mpich", &["mpich"]),
    Need::Program("ip", &["iproute2"]),
    Need::Program("munged", &["munge"]),
    Need::Program("slurmctld", &["slurmctld"]),
    Need::Program("slurmd", &["slurmd"]),
    Need::Program("srun", &["slurm-client", "slurm-wlm-basic-plugins"]),
    // By this name Slurm's plugin for PMIx loads it.
    Need::Library("libpmix.so", &["libpmix-dev"]),
    Need::Python,
    PKG_CONFIG,
    CMAKE,
    MAKE,
    ARM_CC,
];
/// The compiler of C with which dependencies are compiled for [`ARM`].
pub(crate) const ARM_CC: Need = Need::Program(
    "aarch64-linux-gnu-gcc",
    &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"],
);
pub(crate) const PKG_CONFIG: Need = Need::Program("pkg-config", &["pkg-config"]);
pub(crate) const CMAKE: Need = Need::Program("cmake", &["cmake"]);
pub(crate) const MAKE: Need = Need::Program("make", &["make"]);

/// What `scripts/check-manifests` runs in.
pub(crate) const KUBERNETES: Need = Need::Environment("kubernetes", "bin/kubernetes-validate");
/// What the tests of torchrun and of `python/` run in; `scripts/torch/install` makes it.
pub(crate) const TORCH: Need = Need::Environment("torch", "ready");
/// What `scripts/kernels` compiles with; it makes it itself.
pub(crate) const KERNELS: Need = Need::Environment("kernels", "ready");

/// The version of the validator of Kubernetes' resources.
const KUBERNETES_VALIDATE: &str = "kubernetes-validate==1.37.0";

/// Installs what is missing and can be had. What then still is missing is for the checks to say.
pub(crate) fn prepare(root: &Path) {
    for need in COMPONENTS.iter().filter(|need| !need.is_there(root)) {
        match need {
            Need::OldestRust => install("rustup", &["toolchain", "install", MSRV, "--profile", "minimal"]),
            need => install("rustup", &["component", "add", &need.to_string()]),
        }
    }
    let missing = PROGRAMS.iter().filter(|need| !need.is_there(root));
    let packages: Vec<&str> = missing.flat_map(Need::packages).copied().collect();
    if !packages.is_empty() && is_root() && answers("apt-get", &["--version"]) {
        let apt_get = ["install", "--yes", "--no-install-recommends"];
        install("apt-get", &["update"]);
        install("apt-get", &[&apt_get[..], &packages].concat());
    }
    if !Need::CargoDeny.is_there(root) {
        install_cargo_deny(root);
    }
    if !KUBERNETES.is_there(root) {
        let place = environment(root, "kubernetes");
        let pip = place.join("bin/pip").to_string_lossy().into_owned();
        install("python3", &["-m", "venv", &place.to_string_lossy()]);
        install(&pip, &["install", "--quiet", KUBERNETES_VALIDATE]);
    }
    if !TORCH.is_there(root) {
        let script = root.join("scripts/torch/install");
        install(
            &script.to_string_lossy(),
            &[&environment(root, "torch").to_string_lossy()],
        );
    }
    if !KERNELS.is_there(root) {
        install(&root.join("scripts/kernels").to_string_lossy(), &["install"]);
    }
}

/// Where the Python environment `name` is.
pub(crate) fn environment(root: &Path, name: &str) -> PathBuf {
    root.join("target/tools").join(name)
}

/// Without optimisation, which makes no difference to what it does here: that takes half a minute instead of three.
fn install_cargo_deny(root: &Path) {
    println!("installing: cargo-deny {CARGO_DENY} into target/tools");
    let mut cargo = command(
        root,
        "install --quiet --locked --no-default-features --root target/tools",
    );
    cargo
        .args([
            "--target-dir",
            "target/tools/build",
            "cargo-deny",
            "--version",
            CARGO_DENY,
        ])
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    if let Err(why) = succeed(&mut cargo) {
        eprintln!("cargo install {why}");
    }
}

/// The cargo-deny that [`prepare`] installed, or else the user's.
pub(crate) fn cargo_deny(root: &Path) -> PathBuf {
    let own = root.join("target/tools/bin/cargo-deny");
    if own.is_file() { own } else { "cargo-deny".into() }
}

impl Need {
    pub(crate) fn is_there(&self, root: &Path) -> bool {
        match self {
            Need::Component(name) => answers("cargo", &[name.trim_start_matches("rust"), "--version"]),
            Need::RustSource => is_in_sysroot("src/rust/library/std"),
            Need::ArmStd => is_in_sysroot(&format!("{ARM}/lib")),
            Need::OldestRust => answers("rustup", &["run", MSRV, "cargo", "--version"]),
            Need::CargoDeny => answers(&cargo_deny(root).to_string_lossy(), &["--version"]),
            Need::Python => answers("python3", &["-c", HAS_ALL]),
            Need::Program(name, _) => is_in_path(name),
            Need::Library(name, _) => is_loadable(name),
            Need::Environment(name, last) => environment(root, name).join(last).exists(),
        }
    }

    fn packages(&self) -> &'static [&'static str] {
        match self {
            Need::Program(_, packages) | Need::Library(_, packages) => packages,
            Need::Python => &["python3", "python3-venv", "python3-dev"],
            _ => &[],
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Need::Component(name) | Need::Program(name, _) | Need::Library(name, _) => f.write_str(name),
            Need::RustSource => f.write_str("rust-src"),
            Need::ArmStd => write!(f, "rust-std-{ARM}"),
            Need::OldestRust => write!(f, "Rust {MSRV}"),
            Need::CargoDeny => f.write_str("cargo-deny"),
            Need::Python => f.write_str("python3 with venv and headers"),
            Need::Environment(name, _) => write!(f, "target/tools/{name}"),
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

/// Whether the compiler has a folder of this name below its `lib/rustlib`.
fn is_in_sysroot(folder: &str) -> bool {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output();
    sysroot.is_ok_and(|output| {
        let sysroot = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Path::new(&sysroot).join("lib/rustlib").join(folder).is_dir()
    })
}

fn is_in_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Whether the loader's cache has a library of this name.
fn is_loadable(library: &str) -> bool {
    let cache = Command::new("/sbin/ldconfig").arg("-p").output();
    cache.is_ok_and(|cache| {
        let cache = String::from_utf8_lossy(&cache.stdout);
        cache
            .lines()
            .any(|line| line.trim_start().starts_with(&format!("{library} ")))
    })
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}
