//! [`Fingerprint`]: what machines have in common that take the same time for the same work.

use super::text;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{fs::File, io::Read, path::Path};

/// The processors of a machine and their caches. Nothing in it tells one machine from another of its kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fingerprint {
    /// The processor as `/proc/cpuinfo` names it.
    pub(crate) cpu: String,
    /// Processors that are there, whoever may use them.
    pub(crate) processors: usize,
    /// Processors that share a core with the first.
    pub(crate) threads_of_a_core: usize,
    /// The first processor's caches: level, kind and size.
    pub(crate) caches: Vec<String>,
}

impl Fingerprint {
    /// Reads the machine as seen under `root`, which is `/` but for tests.
    pub(crate) fn read(root: &Path) -> Fingerprint {
        let processors = root.join("sys/devices/system/cpu");
        let count = |path: &str| {
            let list = text(&processors.join(path))?;
            count_list(list.trim())
        };
        let cache = |index: usize| {
            let folder = processors.join(format!("cpu0/cache/index{index}"));
            let said = ["level", "type", "size"].map(|name| text(&folder.join(name)));
            let [level, kind, size] = said.map(|text| Some(text?.trim().to_owned()));
            Some(format!("L{} {} {}", level?, kind?, size?))
        };
        Fingerprint {
            cpu: cpu_name(root),
            processors: count("present").unwrap_or(1),
            threads_of_a_core: count("cpu0/topology/thread_siblings_list").unwrap_or(1),
            caches: (0..MOST_CACHES).map_while(cache).collect(),
        }
    }

    /// 16 hexadecimal digits, the same for the same kind of machine.
    pub(crate) fn hash(&self) -> String {
        let Fingerprint {
            cpu,
            processors,
            threads_of_a_core,
            caches,
        } = self;
        let said = format!("{cpu}\n{processors}\n{threads_of_a_core}\n{}", caches.join("\n"));
        let digest = Sha256::digest(said.as_bytes());
        digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// More caches than a processor has.
const MOST_CACHES: usize = 16;

/// The first processor's name.
pub(super) fn cpu_name(root: &Path) -> String {
    let text = head(&root.join("proc/cpuinfo")).unwrap_or_default();
    if let Some(name) = field(&text, "model name") {
        return name.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    // 64-bit ARM names no model, only numbers from Arm's list of implementers and their parts.
    match (field(&text, "CPU implementer"), field(&text, "CPU part")) {
        (Some(implementer), Some(part)) => format!("ARM implementer {implementer} part {part}"),
        _ => "unknown".to_owned(),
    }
}

/// The beginning of a file, which may be long where there are many processors.
fn head(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path)
        .ok()?
        .take(16 << 10)
        .read_to_end(&mut bytes)
        .ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The number of a list such as `0-3,8`.
pub(super) fn count_list(list: &str) -> Option<usize> {
    list.split(',')
        .map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (first.trim().parse::<usize>().ok()?, last.trim().parse().ok()?);
            Some(usize::checked_sub(last, first)? + 1)
        })
        .sum()
}

/// The value of the first line `name : value`.
pub(super) fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then_some(value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_machine_is_known_by_its_processors_and_caches() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let nothing = Fingerprint::read(root.path());
        assert_eq!((nothing.processors, nothing.cpu.as_str()), (1, "unknown"));
        write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Some  CPU\n");
        write("sys/devices/system/cpu/present", "0-7\n");
        write(
            "sys/devices/system/cpu/cpu0/topology/thread_siblings_list",
            "0,4\n",
        );
        write("sys/devices/system/cpu/cpu0/cache/index0/level", "1\n");
        write("sys/devices/system/cpu/cpu0/cache/index0/type", "Data\n");
        write("sys/devices/system/cpu/cpu0/cache/index0/size", "32K\n");
        let here = Fingerprint::read(root.path());
        assert_eq!(
            here,
            Fingerprint {
                cpu: "Some CPU".into(),
                processors: 8,
                threads_of_a_core: 2,
                caches: vec!["L1 Data 32K".into()],
            }
        );
        assert!(here.hash().len() == 16 && here.hash() != nothing.hash());
        assert_eq!(here.hash(), Fingerprint::read(root.path()).hash());
    }
}
