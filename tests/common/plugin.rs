//! The network plugin of the examples.

use super::compile;
use tempfile::TempDir;

/// Compiles it: the path of the library, and the folder in which it lies, which is there as long as this.
pub(crate) fn example() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libccl_net_loop.so");
    compile::library("examples/net_plugin/loop.c", &library, &["-std=c11", "-Iinclude"]);
    let library = library.to_str().unwrap().to_owned();
    (folder, library)
}
