//! How much memory ranks of one host share, however many communicators they have.

mod common;

use ccl::{Communicator, Op};
use common::{
    config,
    process::{Rank, role, say},
};
use std::fs;

const RANKS: usize = 8;
/// Communicators, and those after these.
const FEW: usize = 10;
const FURTHER: usize = 40;

/// KiB of memory that this process shares by ccl's pools, and by links, each page divided by those that have it mapped.
fn shared() -> [u64; 2] {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut of = None;
    let mut sums = [0; 2];
    for line in smaps.lines() {
        if let (Some(kib), Some(of)) = (line.strip_prefix("Pss:"), of) {
            let sum: &mut u64 = &mut sums[of];
            *sum += kib.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
        } else if line.contains('-') && line.as_bytes()[0].is_ascii_hexdigit() {
            let is_pool = line.contains("memfd:ccl-pool");
            of = line.contains("memfd:ccl-").then_some(if is_pool { 0 } else { 1 });
        }
    }
    sums
}

/// KiB of all ranks, of pools and of links.
fn of_all(comm: &Communicator) -> [u64; 2] {
    let mut sums = [0; 2];
    comm.barrier().unwrap();
    comm.all_reduce(&shared(), &mut sums, Op::Sum).unwrap();
    sums
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
    let ([_, few], [pools, last]) = (with(FEW), with(FURTHER));
    say(format!("{few} {last} {pools}"));
}

#[test]
fn memory_is_bounded_however_many_communicators_there_are() {
    let mut ranks = Rank::start_all(RANKS, &[], "work");
    let said: Vec<String> = ranks.iter_mut().map(Rank::said).collect();
    assert!(said.iter().all(|other| *other == said[0]), "{said:?}");
    let kib: Vec<usize> = said[0].split(' ').map(|kib| kib.parse().unwrap()).collect();
    let [few, last, pools] = [kib[0] / RANKS, kib[1] / RANKS, kib[2] / RANKS];
    // The pool is one for all communicators, and grows to what calls of them all have in flight at the worst moment.
    let further = (last as f64 - few as f64) / FURTHER as f64;
    println!(
        "counted: {} KiB of shared memory a rank of {RANKS} with {} communicators, {pools} of them its pool; {further:.1} KiB for each \
         communicator after the first {FEW}",
        last + pools,
        FEW + FURTHER
    );
    assert!(last + pools < 16 << 10, "{said:?}");
    assert!(further < 64.0, "{said:?}");
}
