//! [`Host`]: the processor's name, how many processors this process may use, and how much memory it may still take.

use super::{
    fingerprint::{count_list, cpu_name, field},
    quota::{groups, quotas},
    text,
};
use std::path::Path;

/// This process's share of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    /// The processor as `/proc/cpuinfo` names it.
    pub(crate) cpu: String,
    /// Processors that this process may use: its affinity, and its control groups' quota rounded up. At least 1.
    pub(crate) cpus: usize,
    /// Bytes that can be taken without swapping or meeting a control group's limit; `None` where nothing says so.
    pub(crate) memory_available: Option<u64>,
}

impl Host {
    /// Reads the machine as seen under `root`, which is `/` but for tests.
    pub(crate) fn read(root: &Path) -> Host {
        let cpus = allowed_cpus(root).unwrap_or(1);
        let quotas = quotas(root).into_iter();
        let quota = quotas
            .map(|quota| quota.thousandths.div_ceil(1000) as usize)
            .min();
        Host {
            cpu: cpu_name(root),
            cpus: quota.map_or(cpus, |quota| cpus.min(quota)).max(1),
            memory_available: [meminfo_available(root), memory_left(root)]
                .into_iter()
                .flatten()
                .min(),
        }
    }
}

/// Bytes of memory that this process has: all its pages that are in memory; and its share of them, where a page that n
/// processes have counts as a part of n, so that the shares of all add up to what they take together. `None` where the
/// kernel does not tell.
pub(crate) fn resident(root: &Path) -> Option<[u64; 2]> {
    let rollup = text(&root.join("proc/self/smaps_rollup"))?;
    let bytes = |name| {
        let kib = field(&rollup, name)?.strip_suffix("kB")?;
        Some(kib.trim().parse::<u64>().ok()?.saturating_mul(1024))
    };
    Some([bytes("Rss")?, bytes("Pss")?])
}

fn allowed_cpus(root: &Path) -> Option<usize> {
    let status = text(&root.join("proc/self/status"))?;
    count_list(field(&status, "Cpus_allowed_list")?)
}

fn meminfo_available(root: &Path) -> Option<u64> {
    let meminfo = text(&root.join("proc/meminfo"))?;
    let kib = field(&meminfo, "MemAvailable")?.strip_suffix("kB")?;
    Some(kib.trim().parse::<u64>().ok()?.saturating_mul(1024))
}

/// Bytes until the tightest limit of this process's control groups.
fn memory_left(root: &Path) -> Option<u64> {
    let [unified, own] = groups(root, "memory");
    let v2 = unified
        .iter()
        .filter_map(|group| room(group, "memory.max", "memory.current", "inactive_file"));
    let v1 = own.iter().filter_map(|group| {
        room(
            group,
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "total_inactive_file",
        )
    });
    v2.chain(v1).min()
}

/// What a group may still take. File pages that were not used lately are given up before the limit hurts.
fn room(group: &Path, limit: &str, usage: &str, reclaimable: &str) -> Option<u64> {
    let limit = number(&group.join(limit))?;
    let usage = number(&group.join(usage))?;
    let stat = text(&group.join("memory.stat")).unwrap_or_default();
    let reclaimable = stat
        .lines()
        .find_map(|line| line.strip_prefix(reclaimable)?.trim().parse().ok())
        .unwrap_or(0);
    Some(limit.saturating_sub(usage.saturating_sub(reclaimable)))
}

fn number(path: &Path) -> Option<u64> {
    text(path)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn host(files: &[(&str, &str)]) -> Host {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Host::read(root.path())
    }

    const CPUINFO: &str =
        "processor\t: 0\nmodel name\t: Some  CPU @ 2.00GHz\n\nprocessor\t: 1\nmodel name\t: other\n";
    const STATUS: &str = "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0-5,8,10-11\n";
    const MEMINFO: &str = "MemTotal:       9000 kB\nMemAvailable:   8000 kB\n";

    #[test]
    fn a_plain_machine() {
        let host = host(&[
            ("proc/cpuinfo", CPUINFO),
            ("proc/self/status", STATUS),
            ("proc/meminfo", MEMINFO),
        ]);
        assert_eq!(host.cpu, "Some CPU @ 2.00GHz");
        assert_eq!(host.cpus, 9);
        assert_eq!(host.memory_available, Some(8000 * 1024));
    }

    #[test]
    fn an_ancestor_group_may_be_the_tightest() {
        let host = host(&[
            ("proc/self/status", STATUS),
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/memory.max", "5000\n"),
            ("sys/fs/cgroup/a/memory.current", "3000\n"),
            (
                "sys/fs/cgroup/a/memory.stat",
                "anon 2\ninactive_file 1500\nactive_file 7\n",
            ),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.current", "10\n"),
            ("sys/fs/cgroup/a/b/cpu.max", "250000 100000\n"),
            ("sys/fs/cgroup/a/cpu.max", "max 100000\n"),
        ]);
        assert_eq!(host.memory_available, Some(3500));
        assert_eq!(host.cpus, 3);
    }

    #[test]
    fn version_1_groups_whose_path_is_the_host_s() {
        let host = host(&[
            ("proc/self/status", STATUS),
            ("proc/meminfo", MEMINFO),
            (
                "proc/self/cgroup",
                "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n",
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "4096\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "96\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ]);
        assert_eq!(host.memory_available, Some(4000));
        assert_eq!(host.cpus, 9);
    }

    #[test]
    fn arm_and_nothing_at_all() {
        let arm = host(&[("proc/cpuinfo", "CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n")]);
        assert_eq!(arm.cpu, "ARM implementer 0x41 part 0xd0c");
        let none = host(&[]);
        assert_eq!((none.cpus, none.memory_available), (1, None));
        assert_eq!(none.cpu, "unknown");
    }

    #[test]
    fn this_machine() {
        let host = Host::read(Path::new("/"));
        assert!(
            host.cpus >= 1 && host.memory_available.is_some_and(|bytes| bytes > 0),
            "{host:?}"
        );
    }
}
