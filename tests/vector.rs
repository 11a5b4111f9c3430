//! The V forms of the collectives by the Rust API, ranks as threads: results by every algorithm, what stays untouched, refusals,
//! and counts that differ.

mod common;

use ccl::{Collective, Communicator, Element, Op, Result, algorithms};
use common::{config, every_copy, every_reduction, fail, said, with_algorithm, with_ranks};
use std::{fmt::Debug, ops::Range};

/// What is in a buffer that nobody may write.
const UNTOUCHED: u64 = u64::MAX;

/// The most elements of a block: that fit a message inline or a slot, and several tiles.
const MOST: &[usize] = &[3, 1000, 40_000];

/// Blocks as a call is given them.
#[derive(Debug, Clone, PartialEq)]
struct Blocks {
    counts: Vec<usize>,
    displs: Vec<usize>,
}

impl Blocks {
    /// Of these lengths, in an order that `seed` gives, with gaps between.
    fn of(counts: Vec<usize>, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut order: Vec<usize> = (0..counts.len()).collect();
        random.shuffle(&mut order);
        let (mut displs, mut at) = (vec![0; counts.len()], 0);
        for rank in order {
            at += random.usize(..4);
            displs[rank] = at;
            at += counts[rank];
        }
        Blocks { counts, displs }
    }

    fn block(&self, rank: usize) -> Range<usize> {
        self.displs[rank]..self.displs[rank] + self.counts[rank]
    }

    /// A buffer for them all and a little more.
    fn buffer(&self) -> Vec<u64> {
        let ends = (0..self.counts.len()).map(|rank| self.block(rank).end);
        vec![UNTOUCHED; ends.max().unwrap_or(0) + 2]
    }

    /// Such a buffer with `content(rank, i)` in element i of each rank's block.
    fn filled(&self, content: impl Fn(usize, usize) -> u64) -> Vec<u64> {
        let mut buffer = self.buffer();
        for rank in 0..self.counts.len() {
            for (i, at) in self.block(rank).enumerate() {
                buffer[at] = content(rank, i);
            }
        }
        buffer
    }
}

/// One call: who makes it, and how long blocks are.
struct Case<'a> {
    comm: &'a Communicator,
    seed: u64,
    most: usize,
}

impl Case<'_> {
    /// A length that all ranks draw alike.
    fn len(&self, from: usize, to: usize) -> usize {
        let mut random = fastrand::Rng::with_seed(self.seed ^ (from << 10 | to << 20) as u64);
        match random.u8(..4) {
            0 => 0,
            1 => self.most,
            _ => random.usize(..=self.most),
        }
    }

    /// The same length of each rank's block on all ranks, laid out as each likes.
    fn common(&self) -> Blocks {
        let counts = (0..self.comm.ranks()).map(|rank| self.len(rank, 0)).collect();
        Blocks::of(counts, self.seed + self.comm.rank() as u64)
    }

    fn rank(&self) -> usize {
        self.comm.rank()
    }
}

/// Element `i` of what `from` has for `to`: each rank has a bit of its own, so that a sum in which one is lost or doubled is
/// another.
fn element(from: usize, to: usize, i: usize) -> u64 {
    1 << (48 + from) | (to << 32 | i) as u64
}

fn vector(from: usize, to: usize, len: usize) -> Vec<u64> {
    (0..len).map(|i| element(from, to, i)).collect()
}

/// Runs `body` for every algorithm of the collective, some numbers of ranks and lengths, and every root.
fn with_every_case(collective: Collective, body: impl Fn(&Case<'_>, usize) + Sync) {
    for (algorithm, _) in algorithms(collective) {
        for n in [1, 2, 3, 5, 8] {
            let roots = if collective.root().is_some() { n } else { 1 };
            with_ranks(n, &with_algorithm(algorithm), |comm| {
                for &most in MOST {
                    for root in 0..roots {
                        for seed in 0..3 {
                            let seed = seed << 40 | (most + root) as u64;
                            body(&Case { comm, seed, most }, root);
                        }
                    }
                }
            });
        }
    }
}

#[test]
fn all_to_all_v_swaps_the_blocks() {
    with_every_case(Collective::AlltoAllV, |case, _| {
        let (n, me) = (case.comm.ranks(), case.rank());
        let sent = Blocks::of((0..n).map(|to| case.len(me, to)).collect(), case.seed);
        let received = Blocks::of((0..n).map(|from| case.len(from, me)).collect(), case.seed + 1);
        let (send, mut recv) = (sent.filled(|to, i| element(me, to, i)), received.buffer());
        let (before, comm) = (send.clone(), case.comm);
        comm.all_to_all_v(
            &send,
            &sent.counts,
            &sent.displs,
            &mut recv,
            &received.counts,
            &received.displs,
        )
        .unwrap();
        assert!(
            recv == received.filled(|from, i| element(from, me, i)),
            "{received:?}"
        );
        assert!(send == before);
    });
}

#[test]
fn all_gather_v_puts_each_rank_s_at_its_place() {
    with_every_case(Collective::AllGatherV, |case, _| {
        let (comm, me, blocks) = (case.comm, case.rank(), case.common());
        let (send, mut recv) = (vector(me, 0, blocks.counts[me]), blocks.buffer());
        comm.all_gather_v(&send, &mut recv, &blocks.counts, &blocks.displs)
            .unwrap();
        let wanted = blocks.filled(|from, i| element(from, 0, i));
        assert!(recv == wanted, "{blocks:?}");
        recv.fill(UNTOUCHED);
        recv[blocks.block(me)].copy_from_slice(&send);
        comm.all_gather_v_in_place(&mut recv, &blocks.counts, &blocks.displs)
            .unwrap();
        assert!(recv == wanted, "in place: {blocks:?}");
    });
}

#[test]
fn reduce_scatter_v_leaves_each_rank_its_block_of_the_sum() {
    with_every_case(Collective::ReduceScatterV, |case, _| {
        let (comm, me, blocks) = (case.comm, case.rank(), case.common());
        let sum = |i| -> u64 { (0..comm.ranks()).map(|from| element(from, me, i)).sum() };
        let mut send = blocks.filled(|to, i| element(me, to, i));
        let (before, mut recv) = (send.clone(), vec![UNTOUCHED; blocks.counts[me]]);
        comm.reduce_scatter_v(&send, &blocks.counts, &blocks.displs, &mut recv, Op::Sum)
            .unwrap();
        assert!(recv == (0..recv.len()).map(sum).collect::<Vec<_>>(), "{blocks:?}");
        assert!(send == before);
        comm.reduce_scatter_v_in_place(&mut send, &blocks.counts, &blocks.displs, Op::Sum)
            .unwrap();
        let mut wanted = before;
        wanted[blocks.block(me)].copy_from_slice(&recv);
        assert!(send == wanted, "in place: {blocks:?}");
    });
}

#[test]
fn gather_v_puts_each_rank_s_at_its_place_on_every_root() {
    with_every_case(Collective::GatherV { root: 0 }, |case, root| {
        let (comm, me, blocks) = (case.comm, case.rank(), case.common());
        let (send, mut recv) = (vector(me, 0, blocks.counts[me]), blocks.buffer());
        // Elsewhere than on the root there may be anything, or nothing.
        let given = match me % 2 {
            _ if me == root => Some((&mut recv[..], &blocks.counts[..], &blocks.displs[..])),
            0 => Some((&mut recv[..1], &blocks.counts[..1], &[][..])),
            _ => None,
        };
        comm.gather_v(&send, given, root).unwrap();
        let wanted = match me == root {
            true => blocks.filled(|from, i| element(from, 0, i)),
            false => blocks.buffer(),
        };
        assert!(recv == wanted, "root {root}: {blocks:?}");
        let (mut data, wanted, given) = match me % 2 {
            _ if me == root => {
                recv.fill(UNTOUCHED);
                recv[blocks.block(me)].copy_from_slice(&send);
                (recv, wanted, Some((&blocks.counts[..], &blocks.displs[..])))
            }
            0 => (send.clone(), send, Some((&blocks.counts[..1], &[][..]))),
            _ => (send.clone(), send, None),
        };
        comm.gather_v_in_place(&mut data, given, root).unwrap();
        assert!(data == wanted, "in place, root {root}: {blocks:?}");
    });
}

#[test]
fn scatter_v_hands_out_the_blocks_of_every_root() {
    with_every_case(Collective::ScatterV { root: 0 }, |case, root| {
        let (comm, me, blocks) = (case.comm, case.rank(), case.common());
        let send = blocks.filled(|to, i| element(me, to, i));
        let given = match me % 2 {
            _ if me == root => Some((&send[..], &blocks.counts[..], &blocks.displs[..])),
            0 => Some((&send[..1], &blocks.counts[..1], &[][..])),
            _ => None,
        };
        let mut recv = vec![UNTOUCHED; blocks.counts[me]];
        comm.scatter_v(given, &mut recv, root).unwrap();
        assert!(recv == vector(root, me, recv.len()), "root {root}: {blocks:?}");
        let (mut data, wanted, given) = match me % 2 {
            _ if me == root => (send.clone(), send, Some((&blocks.counts[..], &blocks.displs[..]))),
            0 => (
                vec![UNTOUCHED; recv.len()],
                recv,
                Some((&blocks.counts[..1], &[][..])),
            ),
            _ => (vec![UNTOUCHED; recv.len()], recv, None),
        };
        comm.scatter_v_in_place(&mut data, given, root).unwrap();
        assert!(data == wanted, "in place, root {root}: {blocks:?}");
    });
}

/// Several calls under way at a time, in a scope and with buffers that are moved in.
#[test]
fn they_go_on_side_by_side() {
    with_ranks(3, &config(), |comm| {
        let case = Case {
            comm,
            seed: 7,
            most: 20_000,
        };
        let (me, blocks) = (comm.rank(), case.common());
        let Blocks { counts, displs } = &blocks;
        let own = counts[me];
        let (mine, theirs) = (Blocks::of(vec![own; 3], 1), Blocks::of(counts.clone(), 2));
        let gathered = blocks.filled(|from, i| element(from, 0, i));
        let reduced: Vec<u64> = (0..own)
            .map(|i| (0..3).map(|from| element(from, me, i)).sum())
            .collect();
        let swapped = theirs.filled(|from, i| element(from, me, i));
        let (block, vectors) = (vector(me, 0, own), blocks.filled(|to, i| element(me, to, i)));
        let sent = mine.filled(|to, i| element(me, to, i));

        let (mut all, mut sum, mut got) = (blocks.buffer(), vec![UNTOUCHED; own], theirs.buffer());
        comm.scope(|scope| {
            scope.all_gather_v(&block, &mut all, counts, displs)?;
            scope.reduce_scatter_v(&vectors, counts, displs, &mut sum, Op::Sum)?;
            scope.all_to_all_v(
                &sent,
                &mine.counts,
                &mine.displs,
                &mut got,
                &theirs.counts,
                &theirs.displs,
            )
        })
        .unwrap();
        assert!((&all, &sum, &got) == (&gathered, &reduced, &swapped));

        let begin = comm.begin();
        let all = begin
            .all_gather_v(block, blocks.buffer(), counts, displs)
            .unwrap();
        let sum = begin.reduce_scatter_v(vectors, counts, displs, vec![0; own], Op::Sum);
        let got = begin.all_to_all_v(
            sent,
            &mine.counts,
            &mine.displs,
            theirs.buffer(),
            &theirs.counts,
            &theirs.displs,
        );
        assert!(all.wait().unwrap().1 == gathered);
        assert!(sum.unwrap().wait().unwrap().1 == reduced);
        assert!(got.unwrap().wait().unwrap().1 == swapped);
    });
}

/// The same with every rank as the root of a gather and of a scatter at once, each of blocks of its own.
#[test]
fn those_with_a_root_go_on_side_by_side() {
    for n in [1, 2, 3, 5] {
        with_ranks(n, &config(), |comm| {
            let me = comm.rank();
            for seed in 0..10 {
                let all: Vec<Blocks> = (0..n)
                    .map(|root| {
                        let seed = seed << 40 | root as u64;
                        Case {
                            comm,
                            seed,
                            most: 5000,
                        }
                        .common()
                    })
                    .collect();
                let sent: Vec<_> = all
                    .iter()
                    .map(|blocks| vector(me, 0, blocks.counts[me]))
                    .collect();
                let handed = all[me].filled(|to, i| element(me, to, i));
                let gathered = all[me].filled(|from, i| element(from, 0, i));
                let got: Vec<_> = (0..n)
                    .map(|root| vector(root, me, all[root].counts[me]))
                    .collect();
                let fresh = || {
                    got.iter()
                        .map(|got| vec![UNTOUCHED; got.len()])
                        .collect::<Vec<_>>()
                };
                let Blocks { counts, displs } = &all[me];

                let (mut parts, mut whole) = (fresh(), all[me].buffer());
                comm.scope(|scope| {
                    let mut whole = Some((&mut whole[..], &counts[..], &displs[..]));
                    for (root, part) in parts.iter_mut().enumerate() {
                        let is_root = root == me;
                        scope.gather_v(&sent[root], whole.take_if(|_| is_root), root)?;
                        let handed = is_root.then_some((&handed[..], &counts[..], &displs[..]));
                        scope.scatter_v(handed, part, root)?;
                    }
                    Ok(())
                })
                .unwrap();
                assert!((&parts, &whole) == (&got, &gathered), "in a scope, {all:?}");

                let begun: Vec<_> = fresh()
                    .into_iter()
                    .enumerate()
                    .map(|(root, part)| {
                        let whole = (root == me).then(|| (all[me].buffer(), &counts[..], &displs[..]));
                        let handed = (root == me).then(|| (handed.clone(), &counts[..], &displs[..]));
                        let gather = comm.begin().gather_v(sent[root].clone(), whole, root);
                        (
                            gather.unwrap(),
                            comm.begin().scatter_v(handed, part, root).unwrap(),
                        )
                    })
                    .collect();
                for (root, (gather, scatter)) in begun.into_iter().enumerate() {
                    let (whole, handed) = match root == me {
                        true => (&gathered[..], &handed[..]),
                        false => (&[][..], &[][..]),
                    };
                    let (send, recv) = gather.wait().unwrap();
                    assert!(
                        (&send[..], &recv[..]) == (&sent[root], whole),
                        "gather_v, {all:?}"
                    );
                    let (send, recv) = scatter.wait().unwrap();
                    assert!(
                        (&send[..], &recv[..]) == (handed, &got[root]),
                        "scatter_v, {all:?}"
                    );
                }
            }
        });
    }
}

/// Copies values that `of` makes of a byte, r + 1 of them from rank r to each.
fn check_copies<T: Element + PartialEq + Debug>(comm: &Communicator, of: impl Fn(u8) -> T) {
    let (n, me) = (comm.ranks(), comm.rank());
    let value = |from: usize, to: usize, i: usize| of((from * 29 + to * 7 + i) as u8);
    let (sent, received) = (vec![me + 1; n], (1..=n).collect::<Vec<_>>());
    let send_displs: Vec<usize> = (0..n).map(|to| to * (me + 1)).collect();
    let recv_displs: Vec<usize> = (0..n).map(|from| from * (from + 1) / 2).collect();
    let send: Vec<T> = (0..n * (me + 1))
        .map(|at| value(me, at / (me + 1), at % (me + 1)))
        .collect();
    let mut recv = vec![of(0); n * (n + 1) / 2];
    comm.all_to_all_v(&send, &sent, &send_displs, &mut recv, &received, &recv_displs)
        .unwrap();
    let wanted: Vec<T> = (0..n)
        .flat_map(|from| (0..=from).map(move |i| (from, i)))
        .map(|(from, i)| value(from, me, i))
        .collect();
    assert_eq!(recv, wanted, "{}", T::DTYPE);
}

#[test]
fn every_type_is_copied() {
    with_ranks(4, &config(), |comm| {
        every_copy!(check_copies, comm);
    });
}

/// Reduces `values` of rank r in blocks of 0, 40 and 80 elements.
fn check_reductions<T: Element + PartialEq + Debug>(comm: &Communicator, values: [T; 3], want: &[(Op, T)]) {
    let (me, counts, displs) = (comm.rank(), [0, 40, 80], [0, 0, 40]);
    for &(op, want) in want {
        let mut data = vec![values[me]; 120];
        comm.reduce_scatter_v_in_place(&mut data, &counts, &displs, op)
            .unwrap();
        let mut wanted = vec![values[me]; 120];
        wanted[displs[me]..displs[me] + counts[me]].fill(want);
        assert_eq!(data, wanted, "{}, {op}", T::DTYPE);
    }
}

#[test]
fn every_type_reduces_with_every_operation() {
    for (name, _) in algorithms(Collective::ReduceScatterV) {
        with_ranks(3, &with_algorithm(name), |comm| {
            every_reduction!(check_reductions, comm);
        });
    }
}

#[test]
fn wrong_arguments_are_refused_and_the_communicator_goes_on() {
    with_ranks(2, &config(), |comm| {
        let (me, other) = (comm.rank(), 1 - comm.rank());
        let (send, mut recv) = ([1i32; 4], [0i32; 4]);
        let mut swap = |counts: &[usize], displs: &[usize]| {
            comm.all_to_all_v(&send, &[2, 2], &[0, 2], &mut recv, counts, displs)
        };
        assert_eq!(
            said(swap(&[2], &[0, 2])),
            "there are 1 receive counts and 2 displacements: there must be one of each for each of 2 ranks"
        );
        assert_eq!(
            said(swap(&[2, 2], &[0, 1])),
            "the blocks received from ranks 0 and 1 overlap: elements 0..2 and 1..3 of the receive buffer"
        );
        assert_eq!(
            said(swap(&[2, 2], &[0, 3])),
            "the receive buffer has 16 bytes: its blocks reach up to 5 elements of int32, 20 bytes"
        );
        let mut counts = [2, 2];
        counts[me] = 1;
        assert_eq!(
            said(swap(&counts, &[0, 2])),
            format!(
                "rank {me}'s own block has 2 elements where it is sent and 1 where it is received: both counts must be the same"
            )
        );
        for huge in [usize::MAX, usize::MAX / 4, isize::MAX as usize] {
            let mut counts = [2, 2];
            counts[other] = huge;
            let no_buffer = format!("no receive buffer can hold {huge} elements of int32 for rank {other}");
            assert!(said(swap(&counts, &[0, 2])).starts_with(&no_buffer));
            let mut displs = [0, 0];
            displs[other] = huge;
            assert!(
                said(swap(&[2, 2], &displs)).starts_with("no receive buffer can hold 2 elements of int32")
            );
        }
        // Each fits, but not all together.
        let half = isize::MAX as usize / 4 - 1;
        let sum = comm.reduce_scatter_v(&send, &[half, half], &[0, 0], &mut recv, Op::Sum);
        assert!(said(sum).contains(&format!("after {half} for the ranks before")));
        let outside = "root 2 is outside the communicator: its ranks are 0 to 1";
        assert_eq!(said(comm.gather_v(&send, None, 2)), outside);
        assert_eq!(said(comm.scatter_v(None, &mut recv, 2)), outside);
        // Each rank is the root of its own.
        assert_eq!(
            said(comm.gather_v(&send, None, me)),
            "the root of a gatherv needs a receive buffer with its counts and displacements"
        );
        let no_send_buffer = "the root of a scatterv needs a send buffer with its counts and displacements";
        assert_eq!(said(comm.scatter_v(None, &mut recv, me)), no_send_buffer);
        let mut floats = [1.0f32; 4];
        assert_eq!(
            said(comm.reduce_scatter_v_in_place(&mut floats, &[2, 2], &[0, 2], Op::BitOr)),
            "bitor is for integers only: float32 elements cannot be combined by it"
        );
        assert!(said(comm.all_gather_v_in_place(&mut floats, &[2, 3], &[0, 2])).contains("reach up to 5"));
        assert_eq!(said(comm.begin().gather_v(vec![1u8], None, 2)), outside);
        assert_eq!(said(comm.scope(|scope| scope.gather_v(&send, None, 2))), outside);
        assert_eq!(said(comm.gather_v_in_place(&mut floats, None, 2)), outside);
        assert_eq!(
            said(comm.scatter_v_in_place(&mut floats, None, me)),
            no_send_buffer
        );
        let far = Some((&[2, 2][..], &[0, 3][..]));
        assert!(said(comm.gather_v_in_place(&mut floats, far, me)).contains("reach up to 5"));
        assert!(said(comm.scatter_v_in_place(&mut floats, far, me)).contains("reach up to 5"));
        // The place of a block without elements does not matter.
        comm.all_gather_v_in_place(&mut floats, &[4, 0], &[0, usize::MAX])
            .unwrap();
    });
}

type Made = fn(&Communicator, usize) -> Result<()>;

/// Rank 0 sends `count` elements to rank 1, or gets them from it; all others send and get as many as their ranks say.
fn swap(comm: &Communicator, count: usize, is_sent: bool) -> Result<()> {
    let (n, me) = (comm.ranks(), comm.rank());
    let of = |from: usize, to: usize| match (from, to) {
        (0, 1) if is_sent => count,
        (1, 0) if !is_sent => count,
        _ => from + 2 * to,
    };
    let sent: Vec<usize> = (0..n).map(|to| of(me, to)).collect();
    let received: Vec<usize> = (0..n).map(|from| of(from, me)).collect();
    let displs: Vec<usize> = (0..n).map(|rank| rank * 10_000).collect();
    let (send, mut recv) = (vec![0i32; n * 10_000], vec![0i32; n * 10_000]);
    comm.all_to_all_v(&send, &sent, &displs, &mut recv, &received, &displs)
}

/// Of calls by pair: what ranks 0 and 1 count on in what goes between them.
const BY_PAIR: &[(&str, Made)] = &[
    ("alltoallv", |comm, count| swap(comm, count, true)),
    ("alltoallv", |comm, count| swap(comm, count, false)),
    ("gatherv", |comm, count| {
        let (send, mut recv) = (vec![0i32; count], vec![0i32; 20_000]);
        let counts: Vec<usize> = (0..comm.ranks())
            .map(|rank| if rank == 2 { 7 } else { count })
            .collect();
        let displs: Vec<usize> = (0..comm.ranks()).map(|rank| rank * 6_000).collect();
        let send = if comm.rank() == 2 { &[0; 7] } else { &send[..] };
        comm.gather_v(send, Some((&mut recv, &counts, &displs)), 0)
    }),
    ("scatterv", |comm, count| {
        let (send, mut recv) = (vec![0i32; 20_000], vec![0i32; count]);
        let counts: Vec<usize> = (0..comm.ranks())
            .map(|rank| if rank == 2 { 7 } else { count })
            .collect();
        let displs: Vec<usize> = (0..comm.ranks()).map(|rank| rank * 6_000).collect();
        let recv = if comm.rank() == 2 {
            &mut [0; 7]
        } else {
            &mut recv[..]
        };
        comm.scatter_v(Some((&send, &counts, &displs)), recv, 1)
    }),
];

#[test]
fn two_ranks_whose_counts_differ_fail_with_both_named() {
    for (name, call) in BY_PAIR {
        for [one, other] in [[5, 3], [0, 5], [5, 0], [5000, 0], [0, 5000], [5000, 4000]] {
            for ranks in [2, 3] {
                let errors = with_ranks(ranks, &config(), |comm| {
                    let count = if comm.rank() == 0 { one } else { other };
                    fail(|| call(comm, count))
                });
                let [ours, theirs] = [(0, one), (1, other)]
                    .map(|(rank, count)| format!("rank {rank} made call #0 {name}({count} x int32"));
                for error in &errors {
                    assert!(
                        error.contains(&ours)
                            && error.contains(&theirs)
                            && error.contains("the counts are of what goes between the two"),
                        "{one} and {other}: {error}"
                    );
                }
            }
        }
    }
}

#[test]
fn counts_that_are_not_the_same_on_all_ranks_fail_on_all() {
    let gather = |comm: &Communicator, counts: &[usize]| {
        comm.all_gather_v_in_place(&mut [0i32; 60], counts, &[0, 20, 40])
    };
    let scatter = |comm: &Communicator, counts: &[usize]| {
        comm.reduce_scatter_v_in_place(&mut [0i32; 60], counts, &[0, 20, 40], Op::Sum)
    };
    type Made = fn(&Communicator, &[usize]) -> Result<()>;
    let calls: [(&str, Made); 2] = [("allgatherv", gather), ("reducescatterv", scatter)];
    for (name, call) in calls {
        for (algorithm, _) in algorithms(Collective::AllGatherV) {
            for counts in [[5, 5, 6], [6, 5, 4], [0, 0, 0], [0, 0, 15]] {
                let errors = with_ranks(3, &with_algorithm(algorithm), |comm| {
                    fail(|| call(comm, if comm.rank() == 1 { &counts } else { &[5, 5, 5] }))
                });
                let sum: usize = counts.iter().sum();
                let [ours, theirs] = [sum, 15].map(|sum| format!("#0 {name}({sum} x int32 in all, counts #"));
                for error in &errors {
                    assert!(
                        error.contains("rank 1 made call")
                            && error.contains(&ours)
                            && error.contains(&theirs),
                        "{counts:?} by {algorithm}: {error}"
                    );
                }
            }
        }
    }
}

#[test]
fn records_tell_how_much_a_rank_was_given() {
    with_ranks(2, &config(), |comm| {
        let (rank, mut all) = (comm.rank(), [0u64; 8]);
        let send = vec![rank as u64; 3 + 2 * rank];
        let recv = (rank == 0).then_some((&mut all[..], &[3usize, 5][..], &[0usize, 3][..]));
        comm.gather_v(&send, recv, 0).unwrap();
        let told = comm.records().last().map(|record| record.bytes);
        assert_eq!(told, Some(if rank == 0 { 8 * 8 } else { 5 * 8 }));
    });
}
