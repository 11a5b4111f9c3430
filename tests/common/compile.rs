//! Libraries of C that tests bring along.

use std::{path::Path, process::Command};

/// Compiles `source`, a path in the repository, to the shared library `to`, with all warnings as errors.
pub(crate) fn library(source: &str, to: &Path, flags: &[&str]) {
    let mut cc = Command::new("cc");
    cc.current_dir(env!("CARGO_MANIFEST_DIR"));
    cc.args([
        "-std=gnu11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-g",
        "-O1",
        "-fPIC",
        "-shared",
    ]);
    cc.args(flags).arg("-o").arg(to).arg(source);
    let output = cc.output().expect("this test needs a C compiler, cc");
    assert!(
        output.status.success(),
        "{cc:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The stand-in for the CUDA driver, with the kernels, compiled for the processor.
pub(crate) fn cuda_driver_with_kernels(to: &Path) {
    let kernels = to.with_file_name("kernels.o");
    let mut compiler = Command::new("c++");
    compiler.current_dir(env!("CARGO_MANIFEST_DIR"));
    compiler.args(["-std=c++17", "-O1", "-fPIC", "-ffp-contract=off", "-c", "-o"]);
    compiler.arg(&kernels).arg("src/cuda/kernels/host.cpp");
    let output = compiler.output().expect("this test needs a C++ compiler, c++");
    assert!(
        output.status.success(),
        "{compiler:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    cuda_driver(to, &[kernels.to_str().expect("a path in UTF-8"), "-lstdc++"]);
}

/// The stand-in for the CUDA driver.
pub(crate) fn cuda_driver(to: &Path, flags: &[&str]) {
    let flags = [&["-pthread", "-Wl,-soname,libcuda.so.1"], flags].concat();
    library("tests/cuda/libcuda.c", to, &flags);
}
