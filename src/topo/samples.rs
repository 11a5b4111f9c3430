//! The machines and networks of `tests/data/topologies`, for tests.

use super::{
    graph::Graph,
    read::{read, tests::mutate},
};
use std::{fs, path::Path};

/// The graph of a file, such as "own/slurm-tree.conf".
pub(crate) fn graph(name: &str) -> Graph {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER).join(name)).unwrap();
    read(&text, name).unwrap_or_else(|flaw| panic!("{flaw}")).0.graph
}

const FOLDER: &str = "tests/data/topologies";

/// The graphs of all files, and of each as often as said one that was changed at random and can still be read.
pub(crate) fn mutants(random: &mut fastrand::Rng, times: usize) -> Vec<(String, Graph)> {
    let mut graphs = Vec::new();
    let folders = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER)).unwrap();
    let mut files: Vec<_> = folders
        .map(|folder| folder.unwrap().path())
        .filter(|path| path.is_dir())
        .flat_map(|folder| fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()))
        .collect();
    files.sort();
    for path in files {
        let name = path.display().to_string();
        let bytes = fs::read(&path).unwrap();
        for time in 0..=times {
            let mut bytes = bytes.clone();
            for _ in 0..time {
                mutate(&mut bytes, random);
            }
            if let Ok((reading, _)) = read(&String::from_utf8_lossy(&bytes), &name) {
                graphs.push((format!("{name}, mutant {time}"), reading.graph));
            }
        }
    }
    assert!(graphs.len() > 100, "only {} graphs", graphs.len());
    graphs
}
