//! Topology files, for `fuzz/`.

use super::read;
use crate::topo::{
    diff::diff,
    levels::Levels,
    paths::Paths,
    search::{Task, search},
    write,
};

/// Reads what may be a file. What is read can be written, JSON gives the same graph again, and levels and rings can be looked for.
pub(crate) fn topology(bytes: &[u8]) {
    let Ok((reading, _)) = std::str::from_utf8(bytes)
        .map_err(drop)
        .and_then(|text| read(text, "file").map_err(drop))
    else {
        return;
    };
    // A short line of Slurm's may name very many hosts: all that follows would take a slow build half a minute.
    if reading.graph.nodes().count() > MOST_NODES {
        return;
    }
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
    let _ = Levels::of(&reading.graph).tell(&reading.graph);
    for hosts in [1, 3] {
        let task = Task::of(&reading.graph, hosts);
        // Long searches find no more than short ones.
        if task.endpoints.len() <= 12 {
            let _ = search(&reading.graph, &Task { steps: 200, ..task });
        }
    }
}

/// Of graphs that have more nodes it is enough that they were read.
const MOST_NODES: usize = 10_000;
