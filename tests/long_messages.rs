//! Long messages between ranks of one host, which receivers take from their senders' memory where they may: the same
//! results by either way, from threads and from processes, and the loss of a rank whose memory is being read.

mod common;

use ccl::{Communicator, Element, UniqueId};
use common::{
    config,
    process::{Rank, is_lost_when_killed, role, say},
    with_ranks,
};
use std::ops::Range;

/// Elements of a block: about the shortest message that is read straight, and several tiles, none of them even.
const COUNTS: [usize; 4] = [8_191, 16_385, 33_001, 100_003];

/// Element `at` of `rank`'s vector.
fn element(rank: usize, at: usize) -> u32 {
    (at as u32).wrapping_mul(0x9e37_79b9).rotate_left(rank as u32) ^ rank as u32
}

fn part(rank: usize, range: Range<usize>) -> Vec<u32> {
    range.map(|at| element(rank, at)).collect()
}

fn same<T: Element + PartialEq>(is: &[T], wanted: &[T], what: &str) {
    let at = is.iter().zip(wanted).position(|(is, wanted)| is != wanted);
    assert!(at.is_none() && is.len() == wanted.len(), "{what}: element {at:?}");
}

/// Makes every call that only copies, out of place and in place.
fn every_call(comm: &Communicator) {
    let (rank, n) = (comm.rank(), comm.ranks());
    for (call, count) in COUNTS.into_iter().enumerate() {
        let (total, root) = (n * count, call % n);
        let block = |rank: usize| rank * count..(rank + 1) * count;
        let all: Vec<u32> = (0..n).flat_map(|rank| part(rank, block(rank))).collect();
        let own = part(rank, block(rank));
        let what = |name: &str| format!("{name}, rank {rank} of {n}, {count} elements");

        let mut recv = vec![0; total];
        comm.all_gather(&own, &mut recv).unwrap();
        same(&recv, &all, &what("all-gather"));
        recv.fill(0);
        recv[block(rank)].copy_from_slice(&own);
        comm.all_gather_in_place(&mut recv).unwrap();
        same(&recv, &all, &what("all-gather in place"));

        let send = part(rank, 0..total);
        let wanted: Vec<u32> = (0..n).flat_map(|from| part(from, block(rank))).collect();
        comm.all_to_all(&send, &mut recv).unwrap();
        same(&recv, &wanted, &what("all-to-all"));
        recv.copy_from_slice(&send);
        comm.all_to_all_in_place(&mut recv).unwrap();
        same(&recv, &wanted, &what("all-to-all in place"));

        let wanted = part(root, 0..total);
        let send = (rank == root).then_some(&wanted[..]);
        comm.broadcast(send, &mut recv, root).unwrap();
        same(&recv, &wanted, &what("broadcast"));
        if rank != root {
            recv.fill(0);
        }
        comm.broadcast_in_place(&mut recv, root).unwrap();
        same(&recv, &wanted, &what("broadcast in place"));

        recv.fill(0);
        let gathered = (rank == root).then_some(&mut recv[..]);
        comm.gather(&own, gathered, root).unwrap();
        if rank == root {
            same(&recv, &all, &what("gather"));
        }
        // In place the root has all blocks, the others their own.
        let mut data = own.clone();
        if rank == root {
            data = vec![0; total];
            data[block(rank)].copy_from_slice(&own);
        }
        comm.gather_in_place(&mut data, root).unwrap();
        let wanted = if rank == root { &all } else { &own };
        same(&data, wanted, &what("gather in place"));

        let sent = part(root, 0..total);
        let mut recv = vec![0; count];
        let send = (rank == root).then_some(&sent[..]);
        comm.scatter(send, &mut recv, root).unwrap();
        same(&recv, &sent[block(rank)], &what("scatter"));
        let (mut data, mut wanted) = (vec![0; count], &sent[block(rank)]);
        if rank == root {
            (data, wanted) = (sent.clone(), &sent);
        }
        comm.scatter_in_place(&mut data, root).unwrap();
        same(&data, wanted, &what("scatter in place"));
    }
}

#[test]
fn threads_get_what_was_sent() {
    for n in 2..=5 {
        with_ranks(n, &config(), every_call);
    }
}

/// Not a test by itself: what the processes do that the tests below start.
#[test]
fn roles() {
    let Some((role, id, ranks, rank)) = role() else {
        return;
    };
    let joined = Communicator::init(ranks, &id, rank, &config());
    match (&role[..], joined) {
        (_, Err(error)) => say(error),
        ("calls", Ok(comm)) => {
            every_call(&comm);
            say("done");
        }
        (_, Ok(comm)) => {
            let (send, mut recv) = (vec![rank as u64; 1 << 20], vec![0; ranks << 20]);
            comm.all_gather(&send, &mut recv).unwrap();
            say("begun");
            let error = (0..).find_map(|_| comm.all_gather(&send, &mut recv).err());
            say(error.unwrap());
        }
    }
}

#[test]
fn processes_get_what_was_sent_whichever_way_it_comes() {
    for cma in ["auto", "on", "off", "any"] {
        for mut rank in Rank::start_all(3, &[("CCL_CMA", cma)], "calls") {
            assert_eq!(rank.said(), "done", "CCL_CMA={cma}");
        }
    }
}

#[test]
fn a_rank_that_is_killed_while_its_memory_is_read_is_lost() {
    is_lost_when_killed("gather");
}

#[test]
fn a_setting_that_does_not_exist_is_refused() {
    let said = Rank::start(&UniqueId::new().unwrap(), 1, 0, &[("CCL_CMA", "maybe")], "calls").said();
    let wanted = "CCL_CMA=\"maybe\" does not exist: use \"auto\", \"on\", \"off\" or \"any\"";
    assert_eq!(said, wanted);
}
