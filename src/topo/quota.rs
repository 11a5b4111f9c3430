//! [`Quota`]: how much time on processors a control group has.

use super::text;
use serde::{Deserialize, Serialize};
use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// A limit on the time that the processes of a control group, and of those below it, may run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Quota {
    /// Which group: the device and number of its folder, which all processes of a machine see alike.
    pub(crate) group: [u64; 2],
    /// Thousandths of a processor.
    pub(crate) thousandths: u64,
}

/// The quotas that hold for this process, that of its own group first, as seen under `root`.
pub(crate) fn quotas(root: &Path) -> Vec<Quota> {
    let [unified, cpu] = groups(root, "cpu");
    let v2 = unified.into_iter().filter_map(|group| {
        let thousandths = of_max(&text(&group.join("cpu.max"))?)?;
        Some((group, thousandths))
    });
    let v1 = cpu.into_iter().filter_map(|group| {
        let [quota, period] = ["cpu.cfs_quota_us", "cpu.cfs_period_us"].map(|name| text(&group.join(name)));
        let thousandths = of_cfs(&quota?, &period?)?;
        Some((group, thousandths))
    });
    v2.chain(v1)
        .filter_map(|(group, thousandths)| {
            let folder = fs::metadata(group).ok()?;
            Some(Quota {
                group: [folder.dev(), folder.ino()],
                thousandths,
            })
        })
        .take(MOST)
        .collect()
}

/// The folders of this process's control groups that may limit what `controller` is about, each with its ancestors: every
/// one's limit holds. First those of version 2, then those of version 1.
pub(super) fn groups(root: &Path, controller: &str) -> [Vec<PathBuf>; 2] {
    let mount = root.join("sys/fs/cgroup");
    let [mut unified, mut own] = [Vec::new(), Vec::new()];
    for (controllers, path) in memberships(&text(&root.join("proc/self/cgroup")).unwrap_or_default()) {
        if controllers.is_empty() {
            // Beside version 1 it has a folder of its own.
            let beside = mount.join("unified");
            let mount = if beside.is_dir() { &beside } else { &mount };
            unified = with_ancestors(mount, path);
        } else if controllers.split(',').any(|one| one == controller) {
            own = with_ancestors(&mount.join(controller), path);
        }
    }
    [unified, own]
}

/// The controllers and paths of `/proc/<pid>/cgroup`, whose lines are "hierarchy:controllers:path"; version 2 is the hierarchy
/// without controllers.
fn memberships(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines()
        .filter_map(|line| line.split_once(':')?.1.split_once(':'))
}

/// `path` under `mount` and all folders above it up to `mount`. Inside a container the path may be the host's: what
/// does not exist here is not found when it is read.
fn with_ancestors(mount: &Path, path: &str) -> Vec<PathBuf> {
    Path::new(path.trim_start_matches('/'))
        .ancestors()
        .map(|part| mount.join(part))
        .collect()
}

/// What a `cpu.max` of version 2 allows: "quota period", or "max period", which is no limit.
fn of_max(text: &str) -> Option<u64> {
    let (quota, period) = text.trim().split_once(' ')?;
    of_cfs(quota, period)
}

/// What a quota in microseconds of each period allows. One of -1 is none; it does not parse as unsigned.
fn of_cfs(quota: &str, period: &str) -> Option<u64> {
    let quota = quota.trim().parse::<u64>().ok()?;
    let period = period.trim().parse().ok().filter(|&period: &u64| period > 0)?;
    Some((quota.saturating_mul(1000) / period).max(1))
}

/// Groups of one process that are looked at: far more than there are.
const MOST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_understood() {
        let parsed = ["250000 100000\n", "100000 100000", "50000 100000\n", "1 1000000"].map(of_max);
        assert_eq!(parsed, [Some(2500), Some(1000), Some(500), Some(1)]);
        for none in ["max 100000\n", "", "100000", "1 0", "-1 100000", "x y"] {
            assert_eq!(of_max(none), None, "{none:?}");
        }
        assert_eq!(of_cfs("150000\n", "100000\n"), Some(1500));
        assert_eq!(of_cfs("-1\n", "100000\n"), None);
        assert_eq!(of_cfs("18446744073709551615", "1"), Some(u64::MAX));
        let lines = "9:name=systemd:/\n3:cpu,cpuacct:/docker/a:b\n0::/user.slice\nbroken\n";
        assert_eq!(
            memberships(lines).collect::<Vec<_>>(),
            [
                ("name=systemd", "/"),
                ("cpu,cpuacct", "/docker/a:b"),
                ("", "/user.slice")
            ]
        );
    }

    /// The quotas under a root with these files, and the number of each group's folder by its path.
    fn read(files: &[(&str, &str)]) -> (Vec<Quota>, impl Fn(&str) -> [u64; 2]) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let found = quotas(root.path());
        let group = move |path: &str| {
            let folder = fs::metadata(root.path().join(path)).unwrap();
            [folder.dev(), folder.ino()]
        };
        (found, group)
    }

    fn told(found: &[Quota]) -> Vec<([u64; 2], u64)> {
        found
            .iter()
            .map(|quota| (quota.group, quota.thousandths))
            .collect()
    }

    #[test]
    fn all_groups_up_to_the_root_count_of_either_version() {
        let (found, group) = read(&[
            ("proc/self/cgroup", "0::/a/b/c\n"),
            ("sys/fs/cgroup/a/cpu.max", "300000 100000\n"),
            ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/a/b/c/cpu.max", "50000 100000\n"),
        ]);
        let ids = [group("sys/fs/cgroup/a/b/c"), group("sys/fs/cgroup/a")];
        assert_eq!(told(&found), [(ids[0], 500), (ids[1], 3000)]);

        let (found, group) = read(&[
            ("proc/self/cgroup", "4:memory:/m\n3:cpu,cpuacct:/x\n0::/\n"),
            ("sys/fs/cgroup/unified/cgroup.procs", ""),
            ("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "200000\n"),
            ("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ]);
        assert_eq!(told(&found), [(group("sys/fs/cgroup/cpu/x"), 2000)]);
        assert!(read(&[]).0.is_empty());
    }

    #[test]
    fn a_container_may_be_told_its_path_on_the_host() {
        let (found, group) = read(&[
            ("proc/self/cgroup", "0::/docker/abc\n"),
            ("sys/fs/cgroup/cpu.max", "100000 100000\n"),
        ]);
        assert_eq!(told(&found), [(group("sys/fs/cgroup"), 1000)]);
    }
}
