//! Topology files, for `fuzz/`.

use super::read;
use crate::topo::{diff::diff, paths::Paths, write};

/// Reads what may be a file. What is read can be written, and JSON gives the same graph again.
pub(crate) fn topology(bytes: &[u8]) {
    let Ok((reading, _)) = std::str::from_utf8(bytes)
        .map_err(drop)
        .and_then(|text| read(text, "file").map_err(drop))
    else {
        return;
    };
    for writer in write::WRITERS {
        let written = (writer.write)(&reading.graph);
        let again = read(&written.text, "file");
        if writer.name == "json" {
            let (again, _) = again.expect("JSON of our own can be read");
            assert!(
                again.graph == reading.graph,
                "{:?}",
                diff(&reading.graph, &again.graph)
            );
        }
    }
    if let Some(first) = reading.graph.nodes().next() {
        let _ = Paths::from(&reading.graph, first);
    }
}
