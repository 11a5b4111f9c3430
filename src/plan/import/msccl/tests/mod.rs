mod files;
mod mutants;
mod play;

use super::prove::{Verdict, prove};
use super::read::{Reading, read};
use std::path::{Path, PathBuf};

/// A file of the tests' data.
fn text(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/msccl")
}

/// The files of a folder, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files
        .filter(|file| file.extension().is_some_and(|end| end == "xml"))
        .collect();
    files.sort();
    files
}

fn reading(text: &str) -> Reading {
    read(text, "file", 0).unwrap()
}

fn proved(reading: &Reading) -> Verdict {
    prove(reading, reading.program.protocol.slots())
}

/// The flaws of a text, as they are told.
fn flaws(text: &str) -> Vec<String> {
    let verdict = proved(&reading(text));
    verdict.flaws.first.iter().map(ToString::to_string).collect()
}
