//! What is left behind when all ranks have ended.

use std::{collections::BTreeSet, fs, path::Path};

/// Sockets of processes, by the number by which the system knows them.
#[derive(Debug, Default)]
pub(crate) struct Sockets(BTreeSet<u64>);

/// Where a process listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Tcp(u16),
    /// A name in the abstract namespace, without its first byte.
    Unix(Vec<u8>),
}

impl Sockets {
    /// Adds those that a process has at the moment.
    pub(crate) fn add(&mut self, pid: u32) {
        self.0.extend(sockets_of(pid));
    }

    /// Those that still are there: that is somebody listens, or holds a name.
    pub(crate) fn left(&self) -> Vec<Place> {
        let places = listening().into_iter();
        places
            .filter(|(inode, _)| self.0.contains(inode))
            .map(|(_, place)| place)
            .collect()
    }
}

/// Where a process listens at the moment.
pub(crate) fn places_of(pid: u32) -> Vec<Place> {
    let own: BTreeSet<u64> = sockets_of(pid).collect();
    let places = listening().into_iter();
    places
        .filter(|(inode, _)| own.contains(inode))
        .map(|(_, place)| place)
        .collect()
}

/// What a process has open that the library made: sockets, but those that all processes here were given, and memory.
pub(crate) fn of_library(pid: u32) -> Vec<String> {
    let given: BTreeSet<String> = links_of(std::process::id()).collect();
    let ours = |link: &String| link.starts_with("socket:") || link.contains("memfd:ccl");
    let links = links_of(pid).filter(ours);
    links.filter(|link| !given.contains(link)).collect()
}

/// Files in /dev/shm that may be the library's.
pub(crate) fn shared_files() -> BTreeSet<String> {
    let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with("ccl")).collect()
}

/// Processes whose environment holds `mark`.
pub(crate) fn processes(mark: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_marked = |pid: &u32| {
        let environment =
            fs::read(Path::new("/proc").join(pid.to_string()).join("environ")).unwrap_or_default();
        environment
            .windows(mark.len())
            .any(|bytes| bytes == mark.as_bytes())
    };
    pids.filter(is_marked).collect()
}

fn links_of(pid: u32) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten();
    entries.filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned()))
}

fn sockets_of(pid: u32) -> impl Iterator<Item = u64> {
    links_of(pid).filter_map(|link| link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok())
}

/// All that listens by TCP or has a name in the abstract namespace.
fn listening() -> Vec<(u64, Place)> {
    let mut found = Vec::new();
    for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = fs::read_to_string(file).unwrap_or_default();
        found.extend(text.lines().skip(1).filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let port = u16::from_str_radix(words.get(1)?.rsplit_once(':')?.1, 16).ok()?;
            let listens = *words.get(3)? == "0A";
            listens.then_some((words.get(9)?.parse().ok()?, Place::Tcp(port)))
        }));
    }
    let text = fs::read("/proc/net/unix").unwrap_or_default();
    found.extend(text.split(|&byte| byte == b'\n').skip(1).filter_map(|line| {
        let line = String::from_utf8_lossy(line).into_owned();
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = words.get(7)?.strip_prefix('@')?;
        let listens = words.get(3)?.ends_with("10000");
        listens.then_some((words.get(6)?.parse().ok()?, Place::Unix(name.as_bytes().to_vec())))
    }));
    found
}

/// The ports of a process's TCP connections.
pub(crate) fn connected_ports(pid: u32) -> BTreeSet<u16> {
    let own: BTreeSet<u64> = sockets_of(pid).collect();
    let text = ["/proc/net/tcp", "/proc/net/tcp6"].map(|file| fs::read_to_string(file).unwrap_or_default());
    let ports = text
        .iter()
        .flat_map(|text| text.lines().skip(1))
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let is_own = *words.get(3)? == "01" && own.contains(&words.get(9)?.parse().ok()?);
            is_own.then(|| u16::from_str_radix(words[1].rsplit_once(':')?.1, 16).ok())?
        });
    ports.collect()
}

/// Whether there is such a process.
pub(crate) fn is_there(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // One that nobody has waited for is gone all the same.
    status
        .rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with('Z'))
}
