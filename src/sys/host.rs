//! Small facts about this process and its host.

use rustix::{
    fs::stat,
    process::getpid,
    system::uname,
    thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity},
};
use std::{fs, thread::available_parallelism};

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
    namespace("pid")
}

/// What tells this process's network namespace from others of this machine. 0 when it cannot be known.
pub(crate) fn network_namespace() -> u64 {
    namespace("net")
}

/// That of `main`'s thread; of this one, if that has ended and is in none any more.
fn namespace(kind: &str) -> u64 {
    let stat = |of| stat(format!("/proc/{of}/ns/{kind}")).ok();
    ["self", "thread-self"]
        .into_iter()
        .find_map(stat)
        .map_or(0, |s| s.st_ino)
}

/// What tells this boot of this machine from others. Containers on a machine see the same. Zero when it cannot be
/// known.
pub(crate) fn boot_id() -> [u8; 16] {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
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

/// The state of a process of this process's pid namespace, as `ps` shows it; where `main`'s thread has ended before others, that of one of
/// these.
pub(crate) fn process_state(pid: u32) -> Option<char> {
    let living = Task::living(pid).map(|(_, task)| task);
    Some(living.or_else(|| Task::main(pid))?.state)
}

/// Whether a process of this process's pid namespace is on its way out: it runs no code any more, though its pidfd may not tell yet.
pub(crate) fn is_ending(pid: u32) -> bool {
    Task::main(pid).is_some() && Task::living(pid).is_none()
}

/// Whether a process of this process's pid namespace has crashed, and its memory is being written to a file: until that is done, which takes
/// minutes where there is much, its descriptors stay open and its pidfd tells nothing.
pub(crate) fn is_dumping(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| {
        line.strip_prefix("CoreDumping:")
            .is_some_and(|says| says.trim() == "1")
    })
}

/// A thread of a process that has the process's descriptors and namespaces: `main`'s, as a rule, whose number is the process's own.
#[cfg(any(feature = "cli", test))]
pub(crate) fn living_thread(pid: u32) -> u32 {
    Task::living(pid).map_or(pid, |(id, _)| id)
}

/// Whether `main`'s thread of this process has ended: then others go on.
pub(crate) fn has_main_ended() -> bool {
    Task::main(pid()).is_some_and(|main| main.state == 'Z')
}

/// What the kernel says of a thread.
struct Task {
    state: char,
    is_exiting: bool,
}

impl Task {
    /// The first thread of process `pid`, which is there as long as any other, though it may have ended.
    fn main(pid: u32) -> Option<Task> {
        Self::of(pid, pid)
    }

    /// A thread of process `pid` that has not ended, nor is about to, and its number: the first, if it is one.
    fn living(pid: u32) -> Option<(u32, Task)> {
        let is_living = |task: &Task| !task.is_exiting;
        if let Some(main) = Self::main(pid).filter(is_living) {
            return Some((pid, main));
        }
        let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        let ids = threads.filter_map(|thread| thread.ok()?.file_name().to_str()?.parse().ok());
        ids.filter_map(|id| Some((id, Self::of(pid, id)?)))
            .find(|(_, task)| is_living(task))
    }

    fn of(pid: u32, id: u32) -> Option<Task> {
        const EXITING: u32 = 4; // PF_EXITING
        let stat = fs::read_to_string(format!("/proc/{pid}/task/{id}/stat")).ok()?;
        // The second field, its name, may hold anything.
        let mut fields = stat[stat.rfind(") ")? + 2..].split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let flags = fields.nth(9 - 4).and_then(|flags| flags.parse::<u32>().ok());
        let is_exiting = matches!(state, 'Z' | 'X') || flags.is_some_and(|flags| flags & EXITING != 0);
        Some(Task { state, is_exiting })
    }
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
            // What is asked for here stays asked for when the process is given other processors (Linux 6.2), so that it is all that there
            // may be, unless the program has asked for less.
            let mut any = CpuSet::new();
            (0..CpuSet::MAX_CPU).for_each(|cpu| any.set(cpu));
            let is_all =
                sched_setaffinity(None, &any).is_ok() && sched_getaffinity(None).is_ok_and(|now| now == all);
            if !is_all {
                _ = sched_setaffinity(None, &all);
            }
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

    #[test]
    fn a_process_goes_on_without_its_first_thread() {
        // SAFETY: the child needs nothing that other threads of this process could hold.
        let child = unsafe { libc::fork() };
        if child == 0 {
            std::thread::spawn(|| {
                std::thread::sleep(std::time::Duration::from_secs(60));
                // SAFETY: it ends the process.
                unsafe { libc::_exit(1) };
            });
            // SAFETY: it ends this thread, of which nothing is needed by the other.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        }
        let pid = child.cast_unsigned();
        let soon = std::time::Instant::now() + std::time::Duration::from_secs(30);
        let until = |what: &str, is_so: &dyn Fn() -> bool| {
            while !is_so() {
                assert!(std::time::Instant::now() < soon, "{what}");
                std::thread::yield_now();
            }
        };
        until("its first thread ends", &|| {
            Task::main(pid).is_some_and(|main| main.state == 'Z')
        });
        assert!(!is_ending(pid) && !is_stopped(pid));
        assert!(process_state(pid) != Some('Z') && living_thread(pid) != pid);
        // SAFETY: the child's number, which is nobody else's before it is waited for.
        let signal = |number| assert_eq!(unsafe { libc::kill(child, number) }, 0);
        signal(libc::SIGSTOP);
        until("it is stopped", &|| is_stopped(pid));
        signal(libc::SIGKILL);
        until("it ends", &|| is_ending(pid));
        assert_eq!((process_state(pid), living_thread(pid)), (Some('Z'), pid));
        // SAFETY: a null pointer, for the status that nobody wants.
        assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
        assert_eq!(process_state(pid), None);
    }
}
