//! The processes that this one descends from: by them launchers are known whose variables do not name the job, or do not tell which
//! of several has started it.

use rustix::process::getppid;
use std::{fs, iter};

/// Names the process of the launcher that all ranks of a job on this host descend from: MPICH's proxy, else the parent.
pub(super) fn launcher() -> String {
    let parent = parent();
    let named = || stat(parent).map(|stat| named(parent, &stat));
    proxy()
        .or_else(named)
        .unwrap_or_else(|| format!("process {parent}"))
}

/// Names the nearest ancestor that is MPICH's proxy.
pub(super) fn proxy() -> Option<String> {
    nearest(parent(), stat).map(|(pid, stat)| named(pid, &stat))
}

/// The time of its start tells it from another one that had the number before.
fn named(pid: i32, stat: &Stat) -> String {
    format!("process {pid} started at {}", stat.start)
}

/// The names of this process's ancestors, from its parent on, as far as this process sees them.
pub(super) fn names() -> impl Iterator<Item = String> {
    line(parent(), stat).map(|(_, stat)| stat.name)
}

/// The nearest of `pid` and its ancestors that is MPICH's proxy.
fn nearest(pid: i32, stat: impl Fn(i32) -> Option<Stat>) -> Option<(i32, Stat)> {
    line(pid, stat).find(|(_, stat)| stat.name == PROXY)
}

/// `pid` and its ancestors.
fn line(pid: i32, stat: impl Fn(i32) -> Option<Stat>) -> impl Iterator<Item = (i32, Stat)> {
    let mut next = pid;
    let up = iter::from_fn(move || {
        let pid = next;
        let found = stat(pid)?;
        next = found.parent;
        Some((pid, found))
    });
    up.take(MOST_ANCESTORS)
}

/// 0 if this process does not see it.
fn parent() -> i32 {
    getppid().map_or(0, |pid| pid.as_raw_nonzero().get())
}

/// What the kernel says of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stat {
    name: String,
    parent: i32,
    /// In clock ticks since the machine was started.
    start: u64,
}

fn stat(pid: i32) -> Option<Stat> {
    (pid > 0).then_some(())?;
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Reads `pid (name) state ppid ...`; the start is field 22. The name may hold anything, also parentheses.
fn parse(line: &str) -> Option<Stat> {
    let (before, after) = line.rsplit_once(')')?;
    let mut fields = after.split_whitespace().skip(1); // from field 4 on
    Some(Stat {
        name: before.split_once('(')?.1.to_owned(),
        parent: fields.next()?.parse().ok()?,
        start: fields.nth(22 - 5)?.parse().ok()?,
    })
}

/// MPICH's process on each host.
pub(super) const PROXY: &str = "hydra_pmi_proxy";
/// More than any chain of wrappers has.
const MOST_ANCESTORS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let line = "19168 (hydra_pmi_proxy) S 19167 19168 19168 0 -1 4194304 186 0 1 0 0 0 0 0 20 0 1 0 1166635 6832128 600";
        let wanted = Stat {
            name: PROXY.to_owned(),
            parent: 19167,
            start: 1_166_635,
        };
        assert_eq!(parse(line), Some(wanted));
        assert_eq!(
            parse(&line.replace("hydra", "a) (b")).unwrap().name,
            "a) (b_pmi_proxy"
        );
        assert_eq!(parse("1 (x) S"), None);
        let me = stat(std::process::id() as i32).unwrap();
        assert_eq!(me.parent, getppid().unwrap().as_raw_nonzero().get());
    }

    #[test]
    fn wrappers_are_passed() {
        let tree = |pid| {
            let (name, parent) = match pid {
                9 => ("bash", 8),
                8 => (PROXY, 7),
                7 => (PROXY, 1),
                5 => ("loop", 5),
                _ => return None,
            };
            Some(Stat {
                name: name.to_owned(),
                parent,
                start: pid as u64,
            })
        };
        assert_eq!(nearest(9, tree).map(|(pid, _)| pid), Some(8));
        assert_eq!(nearest(5, tree), None);
        assert_eq!(nearest(1, tree), None);
    }

    #[test]
    fn this_process_was_started_by_somebody() {
        assert!(launcher().starts_with("process "));
        assert!(names().next().is_some_and(|name| !name.is_empty()));
    }
}
