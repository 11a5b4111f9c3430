//! Gives `libccl.so` its SONAME, and the build folder a link by that name, so that programs run from the build tree.
//!
//! `cargo build` puts the library into the profile's folder, `cargo test` leaves it in `deps`: both get the link.

use std::{
    env, fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

/// What programs that link with `-lccl` ask the loader for, until 1.0.
const SONAME: &str = "libccl.so.0";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{SONAME}");
    // The control thread runs the library's code until the process ends, also after a dlclose.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    let linked = profile_folder()
        .ok_or_else(|| io::Error::other("OUT_DIR is not inside a `build` folder"))
        .and_then(|folder| {
            link(&folder)?;
            let deps = folder.join("deps");
            if deps.is_dir() { link(&deps) } else { Ok(()) }
        });
    if let Err(error) = linked {
        println!("cargo::warning=no link {SONAME} -> libccl.so in the build folder: {error}");
    }
}

/// `target/<profile>` or `target/<triple>/<profile>`: the parent of the `build` folder that OUT_DIR lies in.
fn profile_folder() -> Option<PathBuf> {
    let out = PathBuf::from(env::var_os("OUT_DIR")?);
    let build = out.ancestors().find(|folder| folder.ends_with("build"))?;
    build.parent().map(Path::to_path_buf)
}

/// Puts the link there, unless it is there. Builds of several feature sets may do so at the same time.
fn link(folder: &Path) -> io::Result<()> {
    let link = folder.join(SONAME);
    if fs::read_link(&link).is_ok_and(|to| to == Path::new("libccl.so")) {
        return Ok(());
    }
    match fs::remove_file(&link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    match symlink("libccl.so", &link) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        done => done,
    }
}
