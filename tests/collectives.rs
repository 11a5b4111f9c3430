//! Reduce, all-gather, reduce-scatter, gather, scatter and all-to-all by the Rust API, ranks as threads: results by every
//! algorithm, what stays untouched, refusals, and calls that differ.

mod common;

use ccl::{Collective, Communicator, DType, Element, Op, algorithms};
use common::{config, every_copy, every_reduction, fail, said, with_algorithm, with_ranks};
use std::{fmt::Debug, ops::Range};

/// Elements of a rank's block: none, fewer than fit a cache line, inline and slot messages, several tiles.
const COUNTS: &[usize] = &[0, 1, 2, 3, 7, 64, 1000, 5001];

/// What is in a buffer that nobody may write.
const UNTOUCHED: u64 = u64::MAX;

/// One call: who makes it and with what.
struct Case<'a> {
    comm: &'a Communicator,
    algorithm: &'a str,
    count: usize,
    root: usize,
}

impl Case<'_> {
    fn is_root(&self) -> bool {
        self.comm.rank() == self.root
    }

    /// Elements of a vector with a block for each rank.
    fn total(&self) -> usize {
        self.comm.ranks() * self.count
    }

    /// Where `rank`'s block lies in a vector.
    fn block(&self, rank: usize) -> Range<usize> {
        rank * self.count..(rank + 1) * self.count
    }

    fn assert(&self, what: &str, is: &[u64], wanted: impl IntoIterator<Item = u64>) {
        let wanted: Vec<u64> = wanted.into_iter().collect();
        let at = is.iter().zip(&wanted).position(|(is, wanted)| is != wanted);
        let differs = at.map(|i| format!("element {i} is {:#x}, not {:#x}", is[i], wanted[i]));
        assert!(
            differs.is_none() && is.len() == wanted.len(),
            "{what} by {}, rank {} of {}, root {}, count {}: {differs:?}",
            self.algorithm,
            self.comm.rank(),
            self.comm.ranks(),
            self.root,
            self.count
        );
    }
}

/// Runs `body` for every algorithm of the collective, number of ranks, count and root; two calls in a row have different
/// roots.
fn with_every_case(collective: Collective, body: impl Fn(&Case<'_>) + Sync) {
    for (algorithm, _) in algorithms(collective) {
        for n in 1..=9 {
            let roots = if collective.root().is_some() { n } else { 1 };
            with_ranks(n, &with_algorithm(algorithm), |comm| {
                for &count in COUNTS {
                    for root in 0..roots {
                        let case = Case {
                            comm,
                            algorithm,
                            count,
                            root,
                        };
                        body(&case);
                    }
                }
            });
        }
    }
}

/// Element `at` of `rank`'s vector. No two are alike, and each rank has a bit of its own, so that a sum in which one is
/// lost or doubled is another.
fn element(rank: usize, at: usize) -> u64 {
    1 << (32 + rank) | at as u64
}

fn part(rank: usize, range: Range<usize>) -> Vec<u64> {
    range.map(|at| element(rank, at)).collect()
}

/// The sum of all ranks' vectors.
fn sums(ranks: usize, range: Range<usize>) -> impl Iterator<Item = u64> {
    range.map(move |at| (0..ranks).map(|rank| element(rank, at)).sum())
}

#[test]
fn reduce_leaves_the_sum_on_every_root() {
    with_every_case(Collective::Reduce { root: 0 }, |case| {
        let (comm, count) = (case.comm, case.count);
        let send = part(comm.rank(), 0..count);
        let mut recv = vec![UNTOUCHED; count];
        // Elsewhere than on the root the buffer may be there, of any length, or not.
        let given = match comm.rank() % 2 {
            _ if case.is_root() => Some(&mut recv[..]),
            0 => Some(&mut recv[..count / 2]),
            _ => None,
        };
        comm.reduce(&send, given, Op::Sum, case.root).unwrap();
        case.assert("the input", &send, part(comm.rank(), 0..count));
        let mut data = send;
        comm.reduce_in_place(&mut data, Op::Sum, case.root).unwrap();
        if case.is_root() {
            case.assert("reduce", &recv, sums(comm.ranks(), 0..count));
            case.assert("reduce in place", &data, recv);
        } else {
            case.assert("the unused output", &recv, vec![UNTOUCHED; count]);
            case.assert("the input in place", &data, part(comm.rank(), 0..count));
        }
    });
}

#[test]
fn all_gather_puts_each_rank_s_at_its_place() {
    with_every_case(Collective::AllGather, |case| {
        let (comm, own) = (case.comm, case.block(case.comm.rank()));
        let send = part(comm.rank(), own.clone());
        let mut recv = vec![UNTOUCHED; case.total()];
        comm.all_gather(&send, &mut recv).unwrap();
        let wanted = (0..comm.ranks()).flat_map(|rank| part(rank, case.block(rank)));
        case.assert("all-gather", &recv, wanted.clone());
        case.assert("the input", &send, part(comm.rank(), own.clone()));
        recv.fill(UNTOUCHED);
        recv[own].copy_from_slice(&send);
        comm.all_gather_in_place(&mut recv).unwrap();
        case.assert("all-gather in place", &recv, wanted);
    });
}

#[test]
fn reduce_scatter_leaves_each_rank_its_block_of_the_sum() {
    with_every_case(Collective::ReduceScatter, |case| {
        let (comm, own) = (case.comm, case.block(case.comm.rank()));
        let send = part(comm.rank(), 0..case.total());
        let mut recv = vec![UNTOUCHED; case.count];
        comm.reduce_scatter(&send, &mut recv, Op::Sum).unwrap();
        case.assert("reduce-scatter", &recv, sums(comm.ranks(), own.clone()));
        case.assert("the input", &send, part(comm.rank(), 0..case.total()));
        let mut data = send.clone();
        comm.reduce_scatter_in_place(&mut data, Op::Sum).unwrap();
        let mut wanted = send;
        wanted[own].copy_from_slice(&recv);
        case.assert("reduce-scatter in place", &data, wanted);
    });
}

#[test]
fn gather_puts_each_rank_s_at_its_place_on_every_root() {
    with_every_case(Collective::Gather { root: 0 }, |case| {
        let (comm, own) = (case.comm, case.block(case.comm.rank()));
        let send = part(comm.rank(), own.clone());
        let mut recv = vec![UNTOUCHED; case.total()];
        let given = match comm.rank() % 2 {
            _ if case.is_root() => Some(&mut recv[..]),
            0 => Some(&mut recv[..case.count]),
            _ => None,
        };
        comm.gather(&send, given, case.root).unwrap();
        case.assert("the input", &send, part(comm.rank(), own));
        if case.is_root() {
            let wanted = (0..comm.ranks()).flat_map(|rank| part(rank, case.block(rank)));
            case.assert("gather", &recv, wanted);
        } else {
            case.assert("the unused output", &recv, vec![UNTOUCHED; case.total()]);
        }
        let own = case.block(comm.rank());
        let mut data = match case.is_root() {
            true => vec![UNTOUCHED; case.total()],
            false => vec![UNTOUCHED; case.count],
        };
        let at = if case.is_root() { own.start } else { 0 };
        data[at..][..case.count].copy_from_slice(&part(comm.rank(), own.clone()));
        comm.gather_in_place(&mut data, case.root).unwrap();
        match case.is_root() {
            true => {
                let wanted = (0..comm.ranks()).flat_map(|rank| part(rank, case.block(rank)));
                case.assert("gather in place", &data, wanted);
            }
            false => case.assert("what was sent in place", &data, part(comm.rank(), own)),
        }
    });
}

#[test]
fn scatter_hands_out_the_blocks_of_every_root() {
    with_every_case(Collective::Scatter { root: 0 }, |case| {
        let (comm, own) = (case.comm, case.block(case.comm.rank()));
        let send = part(comm.rank(), 0..case.total());
        let given = match comm.rank() % 2 {
            _ if case.is_root() => Some(&send[..]),
            0 => Some(&send[..case.count]),
            _ => None,
        };
        let mut recv = vec![UNTOUCHED; case.count];
        comm.scatter(given, &mut recv, case.root).unwrap();
        case.assert("scatter", &recv, part(case.root, own));
        case.assert("the input", &send, part(comm.rank(), 0..case.total()));
        let own = case.block(comm.rank());
        let mut data = match case.is_root() {
            true => part(comm.rank(), 0..case.total()),
            false => vec![UNTOUCHED; case.count],
        };
        comm.scatter_in_place(&mut data, case.root).unwrap();
        match case.is_root() {
            true => case.assert("the root's in place", &data, part(comm.rank(), 0..case.total())),
            false => case.assert("scatter in place", &data, part(case.root, own)),
        }
    });
}

#[test]
fn all_to_all_swaps_the_blocks() {
    with_every_case(Collective::AlltoAll, |case| {
        let (comm, own) = (case.comm, case.block(case.comm.rank()));
        let mut send = part(comm.rank(), 0..case.total());
        let mut recv = vec![UNTOUCHED; case.total()];
        comm.all_to_all(&send, &mut recv).unwrap();
        let wanted = (0..comm.ranks()).flat_map(|rank| part(rank, own.clone()));
        case.assert("all-to-all", &recv, wanted.clone());
        case.assert("the input", &send, part(comm.rank(), 0..case.total()));
        comm.all_to_all_in_place(&mut send).unwrap();
        case.assert("all-to-all in place", &send, wanted);
    });
}

/// Blocks of many tiles, which go by several lanes; where they are cut is not where elements' bits repeat.
#[test]
fn long_blocks_arrive_whole() {
    const COUNT: usize = 200_003;
    for collective in [
        Collective::AllGather,
        Collective::ReduceScatter,
        Collective::AlltoAll,
    ] {
        for (algorithm, _) in algorithms(collective) {
            with_ranks(3, &with_algorithm(algorithm), |comm| {
                let case = Case {
                    comm,
                    algorithm,
                    count: COUNT,
                    root: 0,
                };
                let own = case.block(comm.rank());
                let mut data = part(comm.rank(), 0..case.total());
                match collective {
                    Collective::AllGather => {
                        comm.all_gather_in_place(&mut data).unwrap();
                        let wanted = (0..comm.ranks()).flat_map(|rank| part(rank, case.block(rank)));
                        case.assert("all-gather", &data, wanted);
                    }
                    Collective::ReduceScatter => {
                        comm.reduce_scatter_in_place(&mut data, Op::Sum).unwrap();
                        case.assert("reduce-scatter", &data[own.clone()], sums(comm.ranks(), own));
                    }
                    _ => {
                        comm.all_to_all_in_place(&mut data).unwrap();
                        let wanted = (0..comm.ranks()).flat_map(|rank| part(rank, own.clone()));
                        case.assert("all-to-all", &data, wanted);
                    }
                }
            });
        }
    }
}

/// Nothing between the calls keeps the ranks together, and each call has another root than the one before.
#[test]
fn calls_in_a_row_are_kept_apart() {
    const COUNT: usize = 9;
    with_ranks(5, &config(), |comm| {
        let (n, me) = (comm.ranks(), comm.rank());
        for round in 0..200 {
            let roots = [round, round + 3, round + 1].map(|root| root % n);
            let (send, mut gathered) = ([(round * n + me) as u32; COUNT], vec![0; n * COUNT]);
            let recv = (me == roots[0]).then_some(&mut gathered[..]);
            comm.gather(&send, recv, roots[0]).unwrap();
            let blocks: Vec<u32> = (0..n * COUNT).map(|at| (round + at / COUNT) as u32).collect();
            let mut block = [0; COUNT];
            comm.scatter((me == roots[1]).then_some(&blocks[..]), &mut block, roots[1])
                .unwrap();
            assert_eq!(block, [(round + me) as u32; COUNT]);
            comm.reduce_in_place(&mut block, Op::Sum, roots[2]).unwrap();
            if me == roots[0] {
                let each = gathered.iter().enumerate();
                assert!(
                    each.clone()
                        .all(|(at, &is)| is as usize == round * n + at / COUNT)
                );
            }
            let sum = (n * round + (0..n).sum::<usize>()) as u32;
            let wanted = if me == roots[2] { sum } else { (round + me) as u32 };
            assert_eq!(block, [wanted; COUNT]);
        }
    });
}

/// In a scope, and with buffers that are moved in: all forms, under way at a time.
#[test]
fn they_go_on_side_by_side() {
    for n in [1, 2, 3, 5] {
        with_ranks(n, &config(), |comm| {
            for count in [0, 1, 5001] {
                check_side_by_side(&Case {
                    comm,
                    algorithm: "any",
                    count,
                    root: n - 1,
                });
            }
        });
    }
}

fn check_side_by_side(case: &Case<'_>) {
    let (comm, n, count, root) = (case.comm, case.comm.ranks(), case.count, case.root);
    let (me, own, all) = (comm.rank(), case.block(comm.rank()), 0..case.total());
    let (block, vector) = (part(me, own.clone()), part(me, all.clone()));
    let untouched = |len| vec![UNTOUCHED; len];
    // Of who is not the root there is no buffer, and nothing in it.
    let at_root = |data: Vec<u64>| if case.is_root() { data } else { Vec::new() };
    let gathered: Vec<u64> = (0..n).flat_map(|rank| part(rank, case.block(rank))).collect();
    let swapped: Vec<u64> = (0..n).flat_map(|rank| part(rank, own.clone())).collect();
    let (sum, sum_of_own) = (sums(n, all.clone()), sums(n, own.clone()));
    let wanted: [(&str, Vec<u64>); 7] = [
        ("all-gather", gathered.clone()),
        ("reduce-scatter", sum_of_own.collect()),
        ("all-to-all", swapped),
        ("gather", at_root(gathered)),
        ("scatter", part(root, own)),
        ("reduce", at_root(sum.collect())),
        ("broadcast", part(root, all)),
    ];

    let mut recv = [
        n * count,
        count,
        n * count,
        n * count,
        count,
        n * count,
        n * count,
    ]
    .map(untouched);
    comm.scope(|scope| {
        let is_root = case.is_root();
        let [all, one, swap, gather, scatter, reduce, broadcast] = &mut recv;
        scope.all_gather(&block, all)?;
        scope.reduce_scatter(&vector, one, Op::Sum)?;
        scope.all_to_all(&vector, swap)?;
        scope.gather(&block, is_root.then_some(gather), root)?;
        scope.scatter(is_root.then_some(&vector[..]), scatter, root)?;
        scope.reduce(&vector, is_root.then_some(reduce), Op::Sum, root)?;
        scope.broadcast(is_root.then_some(&vector[..]), broadcast, root)
    })
    .unwrap();
    if !case.is_root() {
        for unused in [3, 5] {
            case.assert("what is not used", &recv[unused], untouched(n * count));
            recv[unused].clear();
        }
    }
    for ((what, wanted), recv) in wanted.iter().zip(&recv) {
        case.assert(what, recv, wanted.clone());
    }

    let begin = comm.begin();
    let to_root = case.is_root().then(|| untouched(n * count));
    let from_root = case.is_root().then(|| vector.clone());
    let apart = [
        begin.all_gather(block.clone(), untouched(n * count)),
        begin.reduce_scatter(vector.clone(), untouched(count), Op::Sum),
        begin.all_to_all(vector.clone(), untouched(n * count)),
        begin.gather(block.clone(), to_root, root),
        begin.scatter(from_root, untouched(count), root),
    ];
    let sent = [&block, &vector, &vector, &block, &at_root(vector.clone())].map(Vec::clone);
    let reduce = begin.reduce(vector.clone(), Op::Sum, root).unwrap();
    let broadcast = begin.broadcast(vector.clone(), root).unwrap();
    for ((begun, sent), (what, wanted)) in apart.into_iter().zip(sent).zip(&wanted) {
        let (send, recv) = begun.unwrap().wait().unwrap();
        case.assert(what, &send, sent);
        case.assert(what, &recv, wanted.clone());
    }
    let reduced = if case.is_root() {
        wanted[5].1.clone()
    } else {
        vector
    };
    case.assert("reduce", &reduce.wait().unwrap(), reduced);
    case.assert("broadcast", &broadcast.wait().unwrap(), wanted[6].1.clone());
}

/// Copies values that `of` makes of a byte by each of the collectives that copy.
fn check_copies<T: Element + PartialEq + Debug>(comm: &Communicator, of: impl Fn(u8) -> T) {
    const COUNT: usize = 67;
    let (n, me, dtype) = (comm.ranks(), comm.rank(), T::DTYPE);
    let value = |rank: usize, at: usize| of((rank * 29 + at) as u8);
    let own = |rank: usize| (0..n * COUNT).map(move |at| (rank, at));
    let make = |places: &mut dyn Iterator<Item = (usize, usize)>| -> Vec<T> {
        places.map(|(rank, at)| value(rank, at)).collect()
    };
    let send = make(&mut own(me));
    let zeros = vec![of(0); n * COUNT];
    let (mut all, mut block) = (zeros.clone(), zeros[..COUNT].to_vec());

    comm.all_gather(&send[..COUNT], &mut all).unwrap();
    let gathered = make(&mut (0..n).flat_map(|rank| (0..COUNT).map(move |at| (rank, at))));
    assert_eq!(all, gathered, "all-gather of {dtype}");
    all.copy_from_slice(&zeros);
    let recv = (me == 1).then_some(&mut all[..]);
    comm.gather(&send[..COUNT], recv, 1).unwrap();
    assert_eq!(
        all,
        if me == 1 { gathered } else { zeros.clone() },
        "gather of {dtype}"
    );
    comm.scatter((me == 2).then_some(&send[..]), &mut block, 2)
        .unwrap();
    let place = me * COUNT;
    assert_eq!(
        block,
        make(&mut (place..place + COUNT).map(|at| (2, at))),
        "scatter of {dtype}"
    );
    comm.all_to_all(&send, &mut all).unwrap();
    let swapped = make(&mut (0..n).flat_map(|rank| (place..place + COUNT).map(move |at| (rank, at))));
    assert_eq!(all, swapped, "all-to-all of {dtype}");
}

#[test]
fn every_type_is_copied() {
    let names = [
        Collective::AllGather,
        Collective::Gather { root: 0 },
        Collective::Scatter { root: 0 },
        Collective::AlltoAll,
    ];
    // One that a collective does not have is another's.
    let mut names: Vec<_> = names
        .into_iter()
        .flat_map(algorithms)
        .map(|(name, _)| name)
        .collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        with_ranks(3, &with_algorithm(name), |comm| {
            every_copy!(check_copies, comm);
        });
    }
}

/// Reduces `values` of rank r by both collectives that leave parts of the result, and compares with `want`.
fn check_reductions<T: Element + PartialEq + Debug>(comm: &Communicator, values: [T; 3], want: &[(Op, T)]) {
    const COUNT: usize = 100;
    let (n, me) = (comm.ranks(), comm.rank());
    for &(op, want) in want {
        let send = vec![values[me]; n * COUNT];
        let mut block = vec![values[me]; COUNT];
        comm.reduce_scatter(&send, &mut block, op).unwrap();
        assert_eq!(block, [want; COUNT], "reduce-scatter of {}, {op}", T::DTYPE);
        for root in 0..n {
            let mut data = send.clone();
            comm.reduce_in_place(&mut data, op, root).unwrap();
            let wanted = if me == root { want } else { values[me] };
            assert_eq!(data, [wanted; 3 * COUNT], "reduce of {}, {op}", T::DTYPE);
        }
    }
}

#[test]
fn every_type_reduces_with_every_operation() {
    let (reduce, scatter) = (Collective::Reduce { root: 0 }, Collective::ReduceScatter);
    let mut names: Vec<_> = algorithms(reduce)
        .chain(algorithms(scatter))
        .map(|(name, _)| name)
        .collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        with_ranks(3, &with_algorithm(name), |comm| {
            every_reduction!(check_reductions, comm);
        });
    }
}

#[test]
fn wrong_arguments_are_refused_and_the_communicator_goes_on() {
    with_ranks(2, &config(), |comm| {
        let (send, mut recv) = ([1.0f32; 4], [0.0f32; 6]);
        assert_eq!(
            said(comm.all_gather(&send, &mut recv)),
            "the receive buffer has 24 bytes: 8 elements of float32 need 32"
        );
        assert_eq!(
            said(comm.reduce_scatter(&send, &mut recv, Op::Sum)),
            "the send buffer has 16 bytes: 12 elements of float32 need 48"
        );
        assert_eq!(
            said(comm.all_to_all(&send, &mut recv)),
            "the send buffer has 4 elements and the receive buffer 6: they must have the same number"
        );
        let odd = "the buffer has 3 elements: it must have as many for each of 2 ranks";
        assert_eq!(said(comm.all_to_all(&send[..3], &mut recv[..3])), odd);
        assert_eq!(said(comm.all_to_all_in_place(&mut recv[..3])), odd);
        assert_eq!(said(comm.all_gather_in_place(&mut recv[..3])), odd);
        assert_eq!(said(comm.reduce_scatter_in_place(&mut recv[..3], Op::Sum)), odd);
        assert_eq!(
            said(comm.reduce_in_place(&mut recv, Op::BitOr, 0)),
            "bitor is for integers only: float32 elements cannot be combined by it"
        );
        let outside = "root 2 is outside the communicator: its ranks are 0 to 1";
        assert_eq!(said(comm.reduce_in_place(&mut recv, Op::Sum, 2)), outside);
        assert_eq!(said(comm.gather(&send, None, 2)), outside);
        assert_eq!(said(comm.scatter(None, &mut recv, 2)), outside);
        assert!(said(comm.gather(&send, None, usize::MAX)).contains("is outside the communicator"));
        if comm.rank() == 0 {
            assert_eq!(
                said(comm.reduce(&send, None, Op::Sum, 0)),
                "the root of a reduce needs a receive buffer of 4 elements of float32"
            );
            assert_eq!(
                said(comm.gather(&send, None, 0)),
                "the root of a gather needs a receive buffer of 8 elements of float32"
            );
            assert_eq!(
                said(comm.scatter(None, &mut recv, 0)),
                "the root of a scatter needs a send buffer of 12 elements of float32"
            );
            assert_eq!(
                said(comm.gather(&send, Some(&mut recv), 0)),
                "the receive buffer has 24 bytes: 8 elements of float32 need 32"
            );
        }
        let mut all = [0.0; 8];
        comm.all_gather(&send, &mut all).unwrap();
        assert_eq!(all, [1.0; 8]);
    });
}

type Made = fn(&Communicator) -> ccl::Result<()>;

/// What one rank does, and the others instead; each with its text.
const DIFFERENT: &[[(Made, &str); 2]] = &[
    [
        (|comm| gather::<i32>(comm, 5, 0), "gather(5 x int32, root 0)"),
        (|comm| scatter(comm, 5, 0), "scatter(5 x int32, root 0)"),
    ],
    [
        (|comm| gather::<i32>(comm, 5, 0), "gather(5 x int32, root 0)"),
        (|comm| gather::<i32>(comm, 5, 1), "gather(5 x int32, root 1)"),
    ],
    [
        (|comm| gather::<i32>(comm, 5, 0), "gather(5 x int32, root 0)"),
        (|comm| gather::<u32>(comm, 5, 0), "gather(5 x uint32, root 0)"),
    ],
    [
        (|comm| gather::<i32>(comm, 5, 1), "gather(5 x int32, root 1)"),
        (|comm| gather::<i32>(comm, 6, 1), "gather(6 x int32, root 1)"),
    ],
    [
        (|comm| scatter(comm, 5, 0), "scatter(5 x int32, root 0)"),
        (|comm| scatter(comm, 5, 1), "scatter(5 x int32, root 1)"),
    ],
    [
        (|comm| scatter(comm, 5, 1), "scatter(5 x int32, root 1)"),
        (|comm| scatter(comm, 3000, 1), "scatter(3000 x int32, root 1)"),
    ],
    [
        (|comm| scatter(comm, 5, 0), "scatter(5 x int32, root 0)"),
        (
            |comm| comm.broadcast_in_place(&mut [0i32; 5], 0),
            "broadcast(5 x int32, root 0)",
        ),
    ],
    [
        (
            |comm| comm.reduce_in_place(&mut [0i32; 5], Op::Sum, 0),
            "reduce(5 x int32, sum, root 0)",
        ),
        (
            |comm| comm.reduce_in_place(&mut [0i32; 5], Op::Sum, 1),
            "reduce(5 x int32, sum, root 1)",
        ),
    ],
    [
        (
            |comm| comm.reduce_in_place(&mut [0i32; 5], Op::Sum, 0),
            "reduce(5 x int32, sum, root 0)",
        ),
        (
            |comm| comm.reduce_in_place(&mut [0i32; 5], Op::Max, 0),
            "reduce(5 x int32, max, root 0)",
        ),
    ],
    [
        (|comm| all_gather(comm, 5), "allgather(5 x int32)"),
        (|comm| all_gather(comm, 6), "allgather(6 x int32)"),
    ],
    [
        (|comm| all_gather(comm, 5), "allgather(5 x int32)"),
        (
            |comm| comm.all_reduce_in_place(&mut [0i32; 5], Op::Sum),
            "allreduce(5 x int32, sum)",
        ),
    ],
    [
        (|comm| all_gather(comm, 5), "allgather(5 x int32)"),
        (|comm| reduce_scatter(comm, 5), "reducescatter(5 x int32, sum)"),
    ],
    [
        (|comm| reduce_scatter(comm, 5), "reducescatter(5 x int32, sum)"),
        (
            |comm| reduce_scatter(comm, 4000),
            "reducescatter(4000 x int32, sum)",
        ),
    ],
    [
        (|comm| all_to_all(comm, 5), "alltoall(5 x int32)"),
        (|comm| all_to_all(comm, 4), "alltoall(4 x int32)"),
    ],
    [
        (|comm| all_to_all(comm, 5), "alltoall(5 x int32)"),
        (|comm| comm.barrier(), "barrier()"),
    ],
];

fn gather<T: Element + Default>(comm: &Communicator, count: usize, root: usize) -> ccl::Result<()> {
    let mut recv = vec![T::default(); comm.ranks() * count];
    comm.gather(&vec![T::default(); count], Some(&mut recv), root)
}

fn scatter(comm: &Communicator, count: usize, root: usize) -> ccl::Result<()> {
    let send = vec![0i32; comm.ranks() * count];
    comm.scatter(Some(&send), &mut vec![0; count], root)
}

fn all_gather(comm: &Communicator, count: usize) -> ccl::Result<()> {
    comm.all_gather_in_place(&mut vec![0i32; comm.ranks() * count])
}

fn reduce_scatter(comm: &Communicator, count: usize) -> ccl::Result<()> {
    comm.reduce_scatter_in_place(&mut vec![0i32; comm.ranks() * count], Op::Sum)
}

fn all_to_all(comm: &Communicator, count: usize) -> ccl::Result<()> {
    comm.all_to_all_in_place(&mut vec![0i32; comm.ranks() * count])
}

#[test]
fn different_calls_fail_on_all_ranks_with_both_named() {
    for [(one, its), (rest, theirs)] in DIFFERENT {
        for (ranks, odd) in [(2, 0), (2, 1), (3, 0), (3, 1), (4, 3)] {
            let errors = with_ranks(ranks, &config(), |comm| {
                let call = if comm.rank() == odd { one } else { rest };
                fail(|| call(comm))
            });
            let all = |text: &str| errors.iter().all(|error| error.contains(text));
            assert!(
                all("the ranks' calls differ") && all(its) && all(theirs) && all(&format!("rank {odd} made")),
                "{its} by rank {odd} of {ranks}, {theirs} by the others: {errors:#?}"
            );
            assert!(errors.iter().all(|error| error == &errors[0]), "{errors:#?}");
        }
    }
}

/// A call of no elements sends nothing: who waits for it asks which call was made, or sees the next one first.
#[test]
fn a_count_of_none_against_others_is_no_hang() {
    let calls: [fn(&Communicator, usize) -> ccl::Result<()>; 5] = [
        all_gather,
        reduce_scatter,
        all_to_all,
        |comm, count| gather::<i32>(comm, count, 0),
        |comm, count| scatter(comm, count, 1),
    ];
    for call in calls {
        let errors = with_ranks(3, &config(), |comm| {
            let count = if comm.rank() == 1 { 0 } else { 5 };
            let result = call(comm, count).and_then(|()| comm.barrier());
            result.and_then(|()| comm.barrier()).unwrap_err().to_string()
        });
        for error in &errors {
            assert!(
                error.contains("(5 x int32") && error.contains("rank 1 made call #"),
                "{errors:#?}"
            );
        }
    }
}

#[test]
fn the_algorithm_can_be_asked_for() {
    with_ranks(3, &config(), |comm| {
        for collective in [
            Collective::Reduce { root: 1 },
            Collective::AllGather,
            Collective::ReduceScatter,
            Collective::Gather { root: 1 },
            Collective::Scatter { root: 1 },
            Collective::AlltoAll,
        ] {
            let said = comm.explain(collective, 1000, DType::Float32).unwrap();
            // A hierarchy is a candidate only where there are hosts.
            let fit = algorithms(collective).filter(|(name, _)| !name.starts_with("hierarchical"));
            assert_eq!(said.candidates.len(), fit.count());
            assert!(said.candidates.iter().all(|one| one.predicted.as_nanos() > 0));
        }
    });
}
