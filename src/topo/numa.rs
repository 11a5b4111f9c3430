//! On which of a machine's NUMA nodes a process runs, and how far they are from each other.

use super::text;
use std::{fs, path::Path};

/// The number of the node that has all of these processors, where the machine has several nodes: bit `i % 8` of byte `i / 8`.
/// `root` is `/` but for tests.
pub(crate) fn node_of(root: &Path, cpus: &[u8]) -> Option<u16> {
    let nodes = nodes(root);
    if nodes.len() < 2 || cpus.iter().all(|byte| *byte == 0) {
        return None;
    }
    let mine = || (0..8 * cpus.len()).filter(|cpu| cpus[cpu / 8] >> (cpu % 8) & 1 == 1);
    let has_all = |&number: &u16| {
        let ranges = text(&folder(root, number).join("cpulist")).map_or_else(Vec::new, |list| ranges(&list));
        mine().all(|cpu| ranges.iter().any(|&[first, last]| (first..=last).contains(&cpu)))
    };
    nodes.into_iter().map(|(_, number)| number).find(has_all)
}

/// How many times as far as its own memory that of the farthest other node with processors is, as the firmware says; at least 1.
/// `None` where there is one such node, or what is said cannot be.
pub(crate) fn farthest(root: &Path) -> Option<f64> {
    let nodes = nodes(root);
    let of_node = |&(own, number): &(usize, u16)| -> Option<f64> {
        let line = text(&folder(root, number).join("distance"))?;
        let all: Vec<f64> = line
            .split_whitespace()
            .map(|word| word.parse().ok())
            .collect::<Option<_>>()?;
        let own = *all.get(own)?;
        let mut most = own;
        for &(other, _) in &nodes {
            most = f64::max(most, *all.get(other).filter(|&&other| other >= own)?);
        }
        Some(most / own)
    };
    let times: Vec<f64> = nodes.iter().map(of_node).collect::<Option<_>>()?;
    let most = times.into_iter().fold(0.0, f64::max);
    (nodes.len() > 1 && (1.0..=MOST_TIMES).contains(&most)).then_some(most)
}

/// The nodes that have processors, in the order of their numbers, and each one's place among all.
fn nodes(root: &Path) -> Vec<(usize, u16)> {
    let entries = fs::read_dir(root.join(NODES)).into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok();
    let mut numbers: Vec<u16> = entries.filter_map(number).collect();
    numbers.sort_unstable();
    let list = |number| text(&folder(root, number).join("cpulist"));
    let has_cpus = |(_, number): &(usize, u16)| list(*number).is_some_and(|list| !list.trim().is_empty());
    numbers.into_iter().enumerate().filter(has_cpus).collect()
}

fn folder(root: &Path, number: u16) -> std::path::PathBuf {
    root.join(NODES).join(format!("node{number}"))
}

/// The ranges of a list such as `0-3,8`.
fn ranges(list: &str) -> Vec<[usize; 2]> {
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some([first.trim().parse().ok()?, last.trim().parse().ok()?])
    };
    list.split(',').filter_map(range).collect()
}

const NODES: &str = "sys/devices/system/node";
/// What firmware says beyond that is no distance.
const MOST_TIMES: f64 = 25.5;

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine whose nodes have these processors and distances.
    fn machine(nodes: &[(u16, &str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (number, cpus, distance) in nodes {
            let folder = folder(root.path(), *number);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("cpulist"), format!("{cpus}\n")).unwrap();
            fs::write(folder.join("distance"), format!("{distance}\n")).unwrap();
        }
        root
    }

    #[test]
    fn a_process_is_on_the_node_that_has_all_its_processors() {
        let root = machine(&[(0, "0-3,8-11", "10 21"), (1, "4-7,12-15", "21 10")]);
        let of = |cpus: [u8; 2]| node_of(root.path(), &cpus);
        assert_eq!([of([0b1, 0]), of([0b1000, 0b1000])], [Some(0); 2]);
        assert_eq!([of([0xf0, 0]), of([0, 0xf0])], [Some(1); 2]);
        // On both, on none that is there, and on none.
        assert_eq!([of([0b1_0001, 0]), of([0, 0])], [None; 2]);
        assert_eq!(node_of(root.path(), &[0, 0, 1]), None);
        assert_eq!(farthest(root.path()), Some(2.1));
        // Memory without processors is nothing that ranks run on.
        let root = machine(&[(0, "", "10 40 40"), (1, "0", "40 10 12"), (3, "1", "40 12 10")]);
        assert_eq!(
            (node_of(root.path(), &[2]), farthest(root.path())),
            (Some(3), Some(1.2))
        );
    }

    #[test]
    fn where_there_is_one_node_or_none_nothing_is_said() {
        for nodes in [
            &[][..],
            &[(0, "0-1", "10")],
            &[(0, "0-1", "10 17"), (1, "", "17 10")],
        ] {
            let root = machine(nodes);
            assert_eq!((node_of(root.path(), &[1]), farthest(root.path())), (None, None));
        }
        for wrong in ["10", "10 x", "0 0", "200 10", "10 300"] {
            let root = machine(&[(0, "0", wrong), (1, "1", wrong)]);
            assert_eq!(farthest(root.path()), None, "{wrong}");
        }
    }
}
