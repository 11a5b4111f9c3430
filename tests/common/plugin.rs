//! The network plugin of the examples.

use super::compile;

/// Compiles it: the path of the library.
pub(crate) fn example() -> String {
    // Where it stays: a program's statics, which may hold the path, are never dropped. Several programs may do this at once.
    let folder = env!("CARGO_TARGET_TMPDIR");
    let made = tempfile::Builder::new()
        .suffix(".so")
        .tempfile_in(folder)
        .unwrap()
        .into_temp_path();
    compile::library("examples/net_plugin/loop.c", &made, &["-std=c11", "-Iinclude"]);
    let library = format!("{folder}/libccl_net_loop.so");
    made.persist(&library).unwrap();
    library
}
