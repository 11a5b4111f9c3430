//! How much memory ranks of one host share, however many communicators they have.

mod common;

use ccl::{Communicator, Op};
use common::{
    config,
    process::{Rank, role, say},
};
use std::fs;

const RANKS: usize = 8;
/// Communicators after which the pool holds what it ever will, and those after these.
const FEW: usize = 10;
const FURTHER: usize = 40;

/// KiB of memory that this process shares by ccl's links, each page divided by those that have it mapped.
fn shared() -> u64 {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut is_ours = false;
    let mut sum = 0;
    for line in smaps.lines() {
        if let Some(kib) = line.strip_prefix("Pss:").filter(|_| is_ours) {
            sum += kib.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
        } else if line.contains('-') && line.as_bytes()[0].is_ascii_hexdigit() {
            is_ours = line.contains("memfd:ccl-");
        }
    }
    sum
}

/// KiB of all ranks.
fn of_all(comm: &Communicator) -> u64 {
    let mut sum = [0];
    comm.barrier().unwrap();
    comm.all_reduce(&[shared()], &mut sum, Op::Sum).unwrap();
    sum[0]
}

/// Calls whose messages need much room.
fn work(comm: &Communicator) {
    let n = comm.ranks();
    let (send, mut recv) = (vec![1f32; 1 << 20], vec![0f32; 1 << 20]);
    comm.all_reduce(&send, &mut recv, Op::Sum).unwrap();
    assert!(recv.iter().all(|&x| x == n as f32));
    comm.all_to_all(&send, &mut recv).unwrap();
    assert!(recv.iter().all(|&x| x == 1.0));
    recv.fill(comm.rank() as f32);
    comm.broadcast_in_place(&mut recv, n - 1).unwrap();
    assert!(recv.iter().all(|&x| x == n as f32 - 1.0));
    comm.all_gather(&send[..1 << 17], &mut recv).unwrap();
    assert!(recv.iter().all(|&x| x == 1.0));
}

/// Not a test by itself: what the processes do.
#[test]
fn roles() {
    let Some((_, id, ranks, rank)) = role() else {
        return;
    };
    let comm = Communicator::init(ranks, &id, rank, &config()).unwrap();
    // All in turn, twice, so that each has had its share and others have had it since.
    let mut all = Vec::new();
    let mut with = |further: usize| {
        all.extend((0..further).map(|_| comm.duplicate(None).unwrap()));
        (0..2).for_each(|_| all.iter().for_each(work));
        of_all(&comm)
    };
    say(format!("{} {}", with(FEW), with(FURTHER)));
}

#[test]
fn memory_is_bounded_however_many_communicators_there_are() {
    let mut ranks = Rank::start_all(RANKS, &[], "work");
    let said: Vec<String> = ranks.iter_mut().map(Rank::said).collect();
    assert!(said.iter().all(|other| *other == said[0]), "{said:?}");
    let kib: Vec<usize> = said[0].split(' ').map(|kib| kib.parse().unwrap()).collect();
    let [few, last] = [kib[0] / RANKS, kib[1] / RANKS];
    let further = (last as f64 - few as f64) / FURTHER as f64;
    println!(
        "counted: {few} KiB of shared memory a rank of {RANKS} with {FEW} communicators, {further:.1} KiB for each further one"
    );
    assert!(last < 16 << 10, "{said:?}");
    assert!(further < 64.0, "{said:?}");
}
