//! Small facts about this process and its host.

use rustix::{
    fs::stat,
    process::getpid,
    system::uname,
    thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity},
};
use std::thread::available_parallelism;

/// This process's number in its own namespace.
pub(crate) fn pid() -> u32 {
    getpid().as_raw_nonzero().get().unsigned_abs()
}

/// The host's name up to its first dot.
pub(crate) fn name() -> String {
    let system = uname();
    let name = system.nodename().to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}

/// What tells this process's pid namespace from others: two processes with the same number here may watch each other
/// by pid. 0 when it cannot be known.
pub(crate) fn pid_namespace() -> u64 {
    stat("/proc/self/ns/pid").map_or(0, |s| s.st_ino)
}

/// What tells this process's network namespace from others of this machine. 0 when it cannot be known.
pub(crate) fn network_namespace() -> u64 {
    stat("/proc/self/ns/net").map_or(0, |s| s.st_ino)
}

/// What tells this boot of this machine from others. Containers on a machine see the same. Zero when it cannot be
/// known.
pub(crate) fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: Vec<u8> = (text.bytes())
        .filter_map(|byte| char::from(byte).to_digit(16))
        .map(|digit| digit as u8)
        .collect();
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(digits.chunks(2)) {
        *byte = pair.iter().fold(0, |byte, digit| byte << 4 | digit);
    }
    id
}

/// Whether a process of this process's pid namespace is stopped, by a signal or a debugger.
pub(crate) fn is_stopped(pid: u32) -> bool {
    matches!(process_state(pid), Some('T' | 't'))
}

/// The state of a process of this process's pid namespace, as `ps` shows it.
pub(crate) fn process_state(pid: u32) -> Option<char> {
    process_stat(pid)?.chars().next()
}

/// Whether a process of this process's pid namespace is on its way out: it runs no code any more, though its pidfd may not tell yet.
pub(crate) fn is_ending(pid: u32) -> bool {
    const EXITING: u32 = 4; // PF_EXITING
    let Some(stat) = process_stat(pid) else {
        return false;
    };
    let mut fields = stat.split_ascii_whitespace(); // from the third on
    let dead = matches!(fields.next(), Some("Z" | "X"));
    let flags = fields.nth(9 - 4).and_then(|flags| flags.parse::<u32>().ok());
    dead || flags.is_some_and(|flags| flags & EXITING != 0)
}

/// What the kernel says of a process, from the third field on: the second, its name, may hold anything.
fn process_stat(pid: u32) -> Option<String> {
    let mut stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let end = stat.rfind(") ")? + 2;
    Some(stat.split_off(end))
}

/// The processors that this thread may run on: bit `i % 8` of byte `i / 8` for processor `i`.
pub(crate) fn usable_cpus() -> Vec<u8> {
    const CPUS: usize = 1024; // what a `CpuSet` holds; a kernel with more refuses the call
    let mut mask = vec![0; CPUS / 8];
    let mut set = |i: usize| mask[i / 8] |= 1 << (i % 8);
    match sched_getaffinity(None) {
        Ok(cpus) => (0..CPUS).filter(|&i| cpus.is_set(i)).for_each(&mut set),
        Err(_) => (0..available_parallelism().map_or(1, usize::from).min(CPUS)).for_each(&mut set),
    }
    let used = mask.iter().rposition(|&b| b != 0).map_or(0, |i| i + 1);
    mask.truncate(used);
    mask
}

/// Moves this thread to a processor, if it may run there. It may go on to all that it might use before: the kernel leaves it
/// where it is as long as no processor has more to do than another.
pub(crate) fn move_to(cpu: usize) {
    if sched_getcpu() == cpu {
        return;
    }
    let Ok(all) = sched_getaffinity(None) else {
        return;
    };
    if cpu < CpuSet::MAX_CPU && all.is_set(cpu) && all.count() > 1 {
        let mut one = CpuSet::new();
        one.set(cpu);
        // Where it is not allowed it stays where it is. What others have set meanwhile is theirs.
        let is_bound = sched_setaffinity(None, &one).is_ok();
        if is_bound && sched_getaffinity(None).is_ok_and(|now| now == one) {
            _ = sched_setaffinity(None, &all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_plausible() {
        assert_eq!(pid(), std::process::id());
        let cpus: u32 = usable_cpus().iter().map(|b| b.count_ones()).sum();
        assert!(cpus >= 1);
    }

    #[test]
    fn a_thread_that_moves_may_run_where_it_might_before() {
        let before = usable_cpus();
        let cpus = (0..8 * before.len()).filter(|cpu| before[cpu / 8] >> (cpu % 8) & 1 == 1);
        for cpu in cpus.take(2) {
            move_to(cpu);
            assert_eq!(usable_cpus(), before);
        }
        move_to(before.len() * 8 + 1);
        move_to(usize::MAX);
        assert_eq!(usable_cpus(), before);
    }

    #[test]
    fn who_is_killed_is_seen_ending_before_it_is_reaped() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(!is_ending(child.id()) && !is_ending(pid()));
        child.kill().unwrap();
        let soon = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while !is_ending(child.id()) {
            assert!(std::time::Instant::now() < soon);
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!is_ending(child.id()));
    }
}
