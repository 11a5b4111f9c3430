//! `include/ccl.h`: cbindgen's output for `src/ffi/`, committed and compared.

use std::{fs, path::Path};

const HEADER: &str = "include/ccl.h";

/// The files that C's types and functions come from, in the order in which the header shows them.
const SOURCES: &[&str] = &[
    "src/ffi/types.rs",
    "src/ffi/text.rs",
    "src/ffi/communicator.rs",
    "src/ffi/split.rs",
    "src/ffi/recover.rs",
    "src/ffi/collectives.rs",
    "src/ffi/vector.rs",
    "src/ffi/reductions.rs",
    "src/ffi/transfers.rs",
    "src/ffi/later.rs",
    "src/ffi/stream.rs",
    "src/ffi/shared.rs",
];

/// Writes the header.
pub(crate) fn write(root: &Path) -> Result<(), String> {
    let path = root.join(HEADER);
    fs::write(&path, generate(root)?).map_err(|error| format!("{}: {error}", path.display()))
}

/// Compares the committed header with what [`write()`] would write.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let path = root.join(HEADER);
    let committed = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let wanted = generate(root)?;
    if committed == wanted {
        return Ok(());
    }
    let differs = committed
        .lines()
        .zip(wanted.lines())
        .take_while(|(is, should)| is == should)
        .count();
    Err(format!(
        "{HEADER} is not what `cargo xtask header` writes, from line {} on: run it and commit the result\n\
         - {}\n+ {}",
        differs + 1,
        committed.lines().nth(differs).unwrap_or("(its end)"),
        wanted.lines().nth(differs).unwrap_or("(its end)"),
    ))
}

fn generate(root: &Path) -> Result<String, String> {
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml"))?;
    let builder = cbindgen::Builder::new().with_config(config);
    let builder = SOURCES
        .iter()
        .fold(builder, |builder, source| builder.with_src(root.join(source)));
    let bindings = builder.generate().map_err(|error| format!("cbindgen: {error}"))?;
    let mut header = Vec::new();
    bindings.write(&mut header);
    let header = String::from_utf8(header).map_err(|error| format!("cbindgen: {error}"))?;
    // C90 has no such comments.
    Ok(header
        .replace("  // __cplusplus", "")
        .replace(" // __cplusplus", ""))
}
