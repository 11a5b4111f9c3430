//! The README's examples, run as they stand there. Its Rust example is a documentation test of the crate.

use crate::{cargo::build_release, run::succeed, tally::Tally};
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

/// Compares the C example with its file and runs the shell examples in their order.
pub(crate) fn check(root: &Path) -> Tally {
    let mut tally = Tally::default();
    let readme = match fs::read_to_string(root.join("README.md")) {
        Ok(readme) => readme,
        Err(error) => {
            tally.count("README.md", Err(error.to_string()));
            return tally;
        }
    };
    let blocks = blocks(&readme);
    let of = |language| blocks.iter().filter(move |block| block.language == language);
    tally.count("README.md: C example", same_as_file(root, of("c").collect()));
    // Before the examples, whose time is limited, and which do not compile it any more.
    tally.count("release build", build_release(root).map(|_| ()));
    for block in of("sh") {
        // This very program.
        if block.text.trim() == "cargo xtask test" {
            continue;
        }
        tally.count(
            &format!("README.md:{}: shell example", block.line),
            shell(root, &block.text),
        );
    }
    if of("sh").count() < 2 || of("rust").next().is_none() {
        tally.count(
            "README.md: examples",
            Err("there is no shell or no Rust example".to_owned()),
        );
    }
    tally
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
    succeed(
        Command::new("timeout")
            .args(["--kill-after=5", "300", "bash", "-c", &script])
            .current_dir(root),
    )
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
