//! `cargo xtask install`: the library, its headers, its programs and the plugin for InfiniBand and RoCE under a prefix, with what
//! lets other builds find them.

mod check;
mod files;
mod licences;
mod place;

pub(crate) use check::check;
pub(crate) use place::Place;

use crate::cargo::{self, Built};
use files::Folder;
use std::{fs, path::Path};

/// The library's own version.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// What programs ask the loader for; build.rs puts it into the library.
const SONAME: &str = "libccl.so.0";

/// The documentation's folder, and what goes there as it is.
const DOCUMENTATION: &str = "share/doc/ccl";
const DOCUMENTS: [&str; 5] = [
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "CHANGELOG.md",
    "SECURITY.md",
];
/// What the packages that the library and the programs have in them ask to go with them: their notices.
const THIRD_PARTY: &str = "THIRD-PARTY";
/// Where the README finds the examples, here and where it is installed.
const EXAMPLES: &str = "examples";

/// Builds and installs. To do it again changes nothing; programs that run from an older version's files keep them.
pub(crate) fn run(root: &Path, place: &Place) -> Result<(), String> {
    let built = cargo::build_release(root)?;
    write(root, &built, &place.folder())?;
    println!("ccl {VERSION} is installed under {}", place.shown());
    Ok(())
}

/// Lays the files out under `prefix`: first all folders, so that what cannot be done is found before anything is changed.
fn write(root: &Path, built: &Built, prefix: &Path) -> Result<(), String> {
    let folder = |path: &str| Folder::make(prefix, path);
    let (bin, include, lib) = (folder("bin")?, folder("include")?, folder("lib")?);
    let (pkgconfig, cmake) = (folder("lib/pkgconfig")?, folder("lib/cmake/ccl")?);
    let documents = folder(DOCUMENTATION)?;
    let examples = folder(&format!("{DOCUMENTATION}/{EXAMPLES}"))?;

    let library = library();
    lib.copy(&built.library, &library, 0o755)?;
    lib.link(SONAME, &library)?;
    lib.link("libccl.so", SONAME)?;
    // Where the library looks for it.
    lib.copy(&built.verbs, "libccl_net_verbs.so", 0o755)?;
    include.copy(&root.join("include/ccl.h"), "ccl.h", 0o644)?;
    include.copy(&root.join("include/ccl_net.h"), "ccl_net.h", 0o644)?;
    bin.copy(&built.perf, "ccl-perf", 0o755)?;
    bin.copy(&built.topo, "ccl-topo", 0o755)?;
    pkgconfig.write("ccl.pc", &fill(include_str!("ccl.pc.in")))?;
    cmake.write("cclConfig.cmake", &fill(include_str!("cclConfig.cmake.in")))?;
    cmake.write(
        "cclConfigVersion.cmake",
        &fill(include_str!("cclConfigVersion.cmake.in")),
    )?;
    for document in DOCUMENTS {
        documents.copy(&root.join(document), document, 0o644)?;
    }
    documents.write(THIRD_PARTY, &licences::of(&built.packages)?)?;
    for example in examples_in_c(root)? {
        examples.copy(&root.join(EXAMPLES).join(&example), &example, 0o644)?;
    }
    Ok(())
}

/// The names of the examples in C and C++, and of their headers.
fn examples_in_c(root: &Path) -> Result<Vec<String>, String> {
    let folder = root.join(EXAMPLES);
    let read = || -> std::io::Result<Vec<String>> {
        let entries = fs::read_dir(&folder)?;
        entries
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    };
    let mut names = read().map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
    let extensions = [".c", ".cpp", ".h", ".hpp"];
    names.retain(|name| extensions.iter().any(|extension| name.ends_with(extension)));
    Ok(names)
}

/// The library's file, with the full version.
fn library() -> String {
    format!("libccl.so.{VERSION}")
}

fn fill(template: &str) -> String {
    template
        .replace("@VERSION@", VERSION)
        .replace("@MAJOR@", env!("CARGO_PKG_VERSION_MAJOR"))
        .replace("@LIBRARY@", &library())
        .replace("@SONAME@", SONAME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        collections::{BTreeMap, BTreeSet},
        fs,
        os::unix::fs::PermissionsExt,
    };

    /// Every file and link under `folder`: its path, then its mode and content or where it leads.
    fn listing(folder: &Path) -> BTreeMap<String, String> {
        fn walk(top: &Path, folder: &Path, found: &mut BTreeMap<String, String>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let metadata = path.symlink_metadata().unwrap();
                let what = if metadata.is_dir() {
                    walk(top, &path, found);
                    continue;
                } else if metadata.is_symlink() {
                    format!("-> {}", fs::read_link(&path).unwrap().display())
                } else {
                    let mode = metadata.permissions().mode() & 0o7777;
                    format!("{mode:o} {}", fs::read_to_string(&path).unwrap())
                };
                found.insert(path.strip_prefix(top).unwrap().display().to_string(), what);
            }
        }
        let mut found = BTreeMap::new();
        walk(folder, folder, &mut found);
        found
    }

    fn built(folder: &Path) -> Built {
        let file = |name: &str, content: &str| {
            let path = folder.join(name);
            fs::write(&path, content).unwrap();
            path
        };
        Built {
            library: file("libccl.so", "a library"),
            perf: file("ccl-perf", "a program"),
            topo: file("ccl-topo", "another"),
            verbs: file("libccl_net_verbs.so", "a plugin"),
            packages: BTreeSet::new(),
        }
    }

    #[test]
    fn installing_twice_is_installing_once() {
        let temporary = tempfile::tempdir().unwrap();
        let (built, prefix) = (built(temporary.path()), temporary.path().join("prefix"));
        write(crate::root(), &built, &prefix).unwrap();
        let first = listing(&prefix);
        write(crate::root(), &built, &prefix).unwrap();
        assert_eq!(listing(&prefix), first);
        let at = |path: &str| first.get(path).map(String::as_str);
        assert_eq!(at("lib/libccl.so"), Some("-> libccl.so.0"));
        assert_eq!(at("lib/libccl.so.0"), Some(format!("-> {}", library()).as_str()));
        assert_eq!(at(&format!("lib/{}", library())), Some("755 a library"));
        assert_eq!(at("bin/ccl-perf"), Some("755 a program"));
        assert_eq!(at("bin/ccl-topo"), Some("755 another"));
        for name in ["pipeline.c", "pipeline.cpp", "ranks.h", "ranks.hpp"] {
            assert!(
                first.contains_key(&format!("share/doc/ccl/examples/{name}")),
                "{name}"
            );
        }
        let examples = examples_in_c(crate::root()).unwrap().len();
        assert_eq!(at("lib/libccl_net_verbs.so"), Some("755 a plugin"));
        assert_eq!(first.len(), 12 + DOCUMENTS.len() + examples);
        assert!(
            first
                .values()
                .all(|text| !text.contains("@VERSION@") && !text.contains("@SONAME@"))
        );
    }

    #[test]
    fn what_is_in_the_way_is_named_and_nothing_is_changed() {
        let temporary = tempfile::tempdir().unwrap();
        let (built, prefix) = (built(temporary.path()), temporary.path().join("prefix"));
        fs::create_dir_all(prefix.join("share")).unwrap();
        fs::write(prefix.join("share/doc"), "a file").unwrap();
        let why = write(crate::root(), &built, &prefix).unwrap_err();
        assert!(why.contains("share/doc is not a folder"), "{why}");
        assert_eq!(listing(&prefix).len(), 1);

        fs::remove_file(prefix.join("share/doc")).unwrap();
        fs::create_dir_all(prefix.join("lib/libccl.so")).unwrap();
        let why = write(crate::root(), &built, &prefix).unwrap_err();
        assert!(why.contains("lib/libccl.so is a folder"), "{why}");
        assert!(
            listing(&prefix).keys().all(|path| !path.contains(".new")),
            "nothing is left behind"
        );
    }
}
