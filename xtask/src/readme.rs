//! The examples of the README and of other texts, run as they stand there. The README's Rust example is a documentation test
//! of the crate.

use crate::{
    cargo::{build_release, of_no_package},
    run::succeed,
    tally::Tally,
};
use std::{fs, path::Path, process::Command};

/// The file that the README shows as its C example.
const C_EXAMPLE: &str = "examples/allreduce.c";

/// A fenced block of the README.
#[derive(Debug, PartialEq, Eq)]
struct Block {
    language: String,
    /// Its first line's number.
    line: usize,
    text: String,
}

/// Texts whose shell examples are run, too.
const MORE: [&str; 1] = ["docs/launchers.md"];

/// Compares the C example with its file and runs the shell examples of all texts in their order.
pub(crate) fn check(root: &Path) -> Tally {
    let mut tally = Tally::default();
    let blocks = read(root, "README.md", &mut tally);
    let of = |language| blocks.iter().filter(move |block| block.language == language);
    tally.count("README.md: C example", same_as_file(root, of("c").collect()));
    // Before the examples, whose time is limited, and which do not compile it any more.
    tally.count("release build", build_release(root).map(|_| ()));
    run_examples(root, "README.md", &blocks, &mut tally);
    if of("rust").next().is_none() {
        tally.count("README.md: examples", Err("there is no Rust example".to_owned()));
    }
    for text in MORE {
        let blocks = read(root, text, &mut tally);
        run_examples(root, text, &blocks, &mut tally);
    }
    tally
}

/// The blocks of a text.
fn read(root: &Path, text: &str, tally: &mut Tally) -> Vec<Block> {
    match fs::read_to_string(root.join(text)) {
        Ok(content) => blocks(&content),
        Err(error) => {
            tally.count(text, Err(error.to_string()));
            Vec::new()
        }
    }
}

fn run_examples(root: &Path, text: &str, blocks: &[Block], tally: &mut Tally) {
    let examples: Vec<&Block> = blocks.iter().filter(|block| block.language == "sh").collect();
    for block in &examples {
        // This very program.
        if block.text.trim() == "cargo xtask test" {
            continue;
        }
        let name = format!("{text}:{}: shell example", block.line);
        tally.count(&name, shell(root, &block.text));
    }
    if examples.len() < 2 {
        tally.count(text, Err("there are no shell examples".to_owned()));
    }
}

fn same_as_file(root: &Path, blocks: Vec<&Block>) -> Result<(), String> {
    let file = fs::read_to_string(root.join(C_EXAMPLE)).map_err(|error| format!("{C_EXAMPLE}: {error}"))?;
    match blocks[..] {
        [block] if block.text == file => Ok(()),
        [_] => Err(format!("it differs from {C_EXAMPLE}")),
        _ => Err(format!(
            "there are {} of them: there must be one, {C_EXAMPLE}",
            blocks.len()
        )),
    }
}

/// Runs `text` from the repository's root. The benchmark of the first command ends at 4 MiB instead of 1 GiB.
fn shell(root: &Path, text: &str) -> Result<(), String> {
    let text = text.replace("-e 1G", "-e 4M");
    println!("{}", text.trim_end());
    let script = format!("set -euo pipefail\n{text}");
    let mut bash = Command::new("timeout");
    of_no_package(&mut bash);
    bash.args(["--kill-after=5", "300", "bash", "-c", &script])
        // Open MPI's mpirun asks root for this.
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .current_dir(root);
    succeed(&mut bash)
}

fn blocks(markdown: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in markdown.lines().enumerate() {
        match (line.strip_prefix("```"), open.as_mut()) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(info), None) => {
                let language = info.split([' ', ',']).next().unwrap_or_default().to_owned();
                open = Some(Block {
                    language,
                    line: index + 2,
                    text: String::new(),
                });
            }
            (None, Some(block)) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_a_language_and_a_line() {
        let found = blocks("# A\n```sh\none\n\ntwo\n```\ntext\n```rust,no_run\nfn f() {}\n```\n");
        let block = |language: &str, line, text: &str| Block {
            language: language.into(),
            line,
            text: text.into(),
        };
        assert_eq!(
            found,
            [block("sh", 3, "one\n\ntwo\n"), block("rust", 9, "fn f() {}\n")]
        );
    }
}
