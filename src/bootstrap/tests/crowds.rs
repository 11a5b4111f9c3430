//! What ranks find out about the processors that they share: processes that pin themselves, and that have a quota.

use super::{
    processes::{Actor, hex},
    *,
};
use crate::topo::share::Allowance;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The processors of a mask of hexadecimal digits are all that this thread may use from here on.
pub(super) fn pin(mask: &str) {
    let mask = u128::from_str_radix(mask, 16).unwrap();
    let mut cpus = CpuSet::new();
    (0..128)
        .filter(|cpu| mask >> cpu & 1 == 1)
        .for_each(|cpu| cpus.set(cpu));
    sched_setaffinity(None, &cpus).unwrap();
}

/// What each rank shares, and the cores for all, where each pins itself to these processors; `place` puts each process
/// where it is to be before that.
fn shares(masks: &[u128], place: impl Fn(&Actor)) -> (Vec<String>, usize) {
    let (id, ranks) = (UniqueId::new().unwrap(), masks.len());
    let started = masks.iter().enumerate().map(|(rank, mask)| {
        let mut actor = Actor::start("rank");
        place(&actor);
        actor.order(&format!("{} {ranks} {rank} {mask:x}", hex(&id)));
        actor
    });
    let mut actors: Vec<Actor> = started.collect();
    let mut all_cores = Vec::new();
    let crowds = actors.iter_mut().map(|actor| {
        assert_eq!(actor.answer(), "joined");
        let share = actor.ask("share");
        let (crowd, cores) = share.split_once(' ').unwrap();
        all_cores.push(cores.parse().unwrap());
        crowd.to_owned()
    });
    let crowds: Vec<String> = crowds.collect();
    assert!(
        all_cores.iter().all(|cores| *cores == all_cores[0]),
        "{all_cores:?}"
    );
    (crowds, all_cores[0])
}

/// Masks of one each of the processors that this process may use, of the first 128.
fn own() -> Vec<u128> {
    let cpus = Allowance::here().cpus;
    let each = (0..(8 * cpus.len()).min(128)).filter(|cpu| cpus[cpu / 8] >> (cpu % 8) & 1 == 1);
    each.map(|cpu| 1 << cpu).collect()
}

#[test]
fn ranks_that_pin_themselves_know_who_shares_a_processor() {
    let own = own();
    let [alone, shared] = ["Alone", "Processor"];
    let told = |masks: &[u128]| shares(masks, |_| ());
    let wanted = |crowds: &[&str], cores| (crowds.iter().map(|&crowd| crowd.to_owned()).collect(), cores);
    let [a, b, ..] = own[..] else {
        println!("skipped: there is one processor: give the tests two");
        return;
    };
    let both = a | b;
    // Only with a quota on the tests themselves are there fewer.
    let quota = Allowance::here()
        .quotas
        .iter()
        .any(|quota| quota.thousandths < 3000);
    if quota {
        println!("skipped: the tests have a quota of less than three processors' time");
        return;
    }
    assert_eq!(told(&[a; 2]), wanted(&[shared; 2], 1));
    assert_eq!(told(&[a, b]), wanted(&[alone; 2], 2));
    assert_eq!(told(&[both; 2]), wanted(&[alone; 2], 2));
    assert_eq!(told(&[both; 4]), wanted(&[shared; 4], 2));
    assert_eq!(told(&[both, a, a]), wanted(&[alone, shared, shared], 2));
}

/// A control group below this process's own, without processes in the end; removed when dropped.
struct Group(PathBuf);

impl Group {
    /// One with a quota of so many thousandths of a processor.
    fn with(thousandths: u64) -> io::Result<Group> {
        let version_1 = Path::new("/sys/fs/cgroup/cpu");
        let name = format!("ccl-test-{}", std::process::id());
        if version_1.is_dir() {
            let group = Group::make(version_1.join(name))?;
            fs::write(group.0.join("cpu.cfs_period_us"), "100000")?;
            fs::write(group.0.join("cpu.cfs_quota_us"), (100 * thousandths).to_string())?;
            return Ok(group);
        }
        let group = Group::make(Path::new("/sys/fs/cgroup").join(name))?;
        fs::write(group.0.join("cpu.max"), format!("{} 100000", 100 * thousandths))?;
        Ok(group)
    }

    fn make(at: PathBuf) -> io::Result<Group> {
        fs::create_dir(&at)?;
        Ok(Group(at))
    }

    fn take(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Of a process that was killed something may be left for a moment.
        until("the control group's end", || fs::remove_dir(&self.0).is_ok());
    }
}

#[test]
fn ranks_that_share_a_quota_know_it() {
    let own = own();
    let [a, b, ..] = own[..] else {
        println!("skipped: there is one processor: give the tests two");
        return;
    };
    let group = match Group::with(1000) {
        Ok(group) => group,
        Err(error) => {
            println!("skipped: no control group with a quota can be made here: {error}");
            return;
        }
    };
    let (crowds, cores) = shares(&[a, b], |actor| group.take(actor.pid()));
    assert_eq!((crowds, cores), (vec!["Time".to_owned(); 2], 1));
}
