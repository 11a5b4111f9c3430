//! Ranks joined by a network plugin: that of `examples/ccl_net_loop.c`.

mod common;

use ccl::{Cause, Collective, Communicator, Config, Error, Op, UniqueId, algorithms};
use common::{
    config,
    process::{self, Rank},
    with_ranks,
};
use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// The plugin, compiled.
fn library() -> &'static str {
    static LIBRARY: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("libccl_net_loop.so");
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-O1", "-fPIC", "-shared", "-Iinclude", "-o"]);
        let cc = cc.current_dir(env!("CARGO_MANIFEST_DIR")).arg(&library);
        assert!(cc.arg("examples/ccl_net_loop.c").status().unwrap().success());
        (folder, library)
    });
    LIBRARY.1.to_str().unwrap()
}

fn over_loop() -> Config {
    let mut config = config();
    (config.transport, config.plugin) = (Some("loop".to_owned()), Some(library().to_owned()));
    config
}

#[test]
fn every_algorithm_gives_the_bits_of_shared_memory() {
    for (name, _) in algorithms(Collective::AllReduce) {
        for ranks in [2, 5] {
            let bits = |mut config: Config| {
                config.algorithm = Some(name.to_owned());
                with_ranks(ranks, &config, |comm| {
                    let mut all = Vec::new();
                    for len in [1, 1000, 150_001] {
                        let value = |i: usize| ((i * 37 + comm.rank() * 101) as f32).sin() * 1e3;
                        let mut data: Vec<f32> = (0..len).map(value).collect();
                        comm.all_reduce_in_place(&mut data, Op::Sum).unwrap();
                        all.extend(data.into_iter().map(f32::to_bits));
                    }
                    (comm.transport(), all)
                })
            };
            let ours = bits(over_loop());
            assert!(
                ours.iter()
                    .all(|(transport, bits)| (*transport, bits) == ("loop", &ours[0].1))
            );
            assert!(ours[0].1 == bits(config())[0].1, "{name} among {ranks}");
        }
    }
}
