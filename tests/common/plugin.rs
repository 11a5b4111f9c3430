//! The network plugin of the examples.

use std::{path::Path, process::Command};
use tempfile::TempDir;

/// Compiles it: the path of the library, and the folder in which it lies, which is there as long as this.
pub(crate) fn example() -> (TempDir, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libccl_net_loop.so");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-O1", "-fPIC", "-shared", "-Iinclude", "-o"]);
    let cc = cc
        .arg(&library)
        .arg("examples/net_plugin/loop.c")
        .current_dir(root);
    assert!(cc.status().expect("a C compiler").success());
    let library = library.to_str().unwrap().to_owned();
    (folder, library)
}
