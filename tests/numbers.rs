//! What the numbers of a reduction are: pre-multiplied sums, roundings, NaN, wrapping, and the same bits everywhere.

mod common;

use ccl::{Collective, Communicator, DType, Element, Error, F8E4M3, F8E5M2, Op, PreMulSum, algorithms};
use common::{config, with_algorithm, with_ranks};
use half::{bf16, f16};
use std::fmt::Debug;

/// None, one, fewer than ranks, several lines, and several tiles.
const COUNTS: [usize; 5] = [0, 1, 3, 1000, 40_001];

/// Element `at` of `rank`'s vector.
fn element(rank: usize, at: usize) -> i32 {
    (rank as i32 + 1) << 20 | at as i32
}

/// The scalar of `rank`.
fn scalar(rank: usize) -> i32 {
    3 * rank as i32 - 1
}

/// What the ranks' products add up to.
fn total(ranks: usize, at: usize) -> i32 {
    (0..ranks).fold(0, |sum: i32, rank| {
        sum.wrapping_add(element(rank, at).wrapping_mul(scalar(rank)))
    })
}

fn totals(ranks: usize, first: usize, count: usize) -> Vec<i32> {
    (first..first + count).map(|at| total(ranks, at)).collect()
}

/// By every algorithm, every collective that reduces, in place and not: each contribution is multiplied once, by its
/// rank's scalar.
#[test]
fn pre_multiplied_sums_multiply_each_contribution_once() {
    let collectives = [
        Collective::AllReduce,
        Collective::Reduce { root: 0 },
        Collective::ReduceScatter,
        Collective::ReduceScatterV,
    ];
    for collective in collectives {
        for (algorithm, _) in algorithms(collective) {
            for n in [1, 2, 3, 4, 7] {
                with_ranks(n, &with_algorithm(algorithm), |comm| {
                    for count in COUNTS {
                        check_pre_multiplied(comm, collective, algorithm, count);
                    }
                });
            }
        }
    }
}

fn check_pre_multiplied(comm: &Communicator, collective: Collective, algorithm: &str, count: usize) {
    let (n, me) = (comm.ranks(), comm.rank());
    let what = format!("{collective:?} by {algorithm}, {n} ranks, {count} elements");
    let op = PreMulSum(scalar(me));
    match collective {
        Collective::AllReduce => {
            let mut data: Vec<i32> = (0..count).map(|at| element(me, at)).collect();
            let mut recv = vec![0; count];
            comm.all_reduce(&data, &mut recv, op).unwrap();
            comm.all_reduce_in_place(&mut data, op).unwrap();
            assert!(recv == totals(n, 0, count), "{what}");
            assert!(data == recv, "{what}, in place");
        }
        Collective::Reduce { .. } => {
            let root = n - 1;
            let send: Vec<i32> = (0..count).map(|at| element(me, at)).collect();
            let (mut recv, mut data) = (vec![0; count], send.clone());
            let given = (me == root).then_some(&mut recv[..]);
            comm.reduce(&send, given, op, root).unwrap();
            comm.reduce_in_place(&mut data, op, root).unwrap();
            let wanted = if me == root { totals(n, 0, count) } else { send };
            assert!(me != root || recv == wanted, "{what}");
            assert!(data == wanted, "{what}, in place");
        }
        // The higher the rank, the longer its block.
        Collective::ReduceScatterV => {
            let ends: Vec<usize> = (0..=n).map(|rank| rank * rank * count / n).collect();
            let (displs, own) = (&ends[..n], ends[me]..ends[me + 1]);
            let counts: Vec<usize> = ends.windows(2).map(|ends| ends[1] - ends[0]).collect();
            let mut data: Vec<i32> = (0..ends[n]).map(|at| element(me, at)).collect();
            let mut recv = vec![0; own.len()];
            comm.reduce_scatter_v(&data, &counts, displs, &mut recv, op)
                .unwrap();
            comm.reduce_scatter_v_in_place(&mut data, &counts, displs, op)
                .unwrap();
            assert!(recv == totals(n, own.start, own.len()), "{what}");
            assert!(data[own] == recv, "{what}, in place");
        }
        _ => {
            let mut data: Vec<i32> = (0..n * count).map(|at| element(me, at)).collect();
            let mut recv = vec![0; count];
            comm.reduce_scatter(&data, &mut recv, op).unwrap();
            comm.reduce_scatter_in_place(&mut data, op).unwrap();
            assert!(recv == totals(n, me * count, count), "{what}");
            assert!(data[me * count..(me + 1) * count] == recv, "{what}, in place");
        }
    }
}

#[test]
fn pre_multiplied_sums_go_on_side_by_side() {
    const COUNT: usize = 5000;
    with_ranks(3, &config(), |comm| {
        let (n, me) = (comm.ranks(), comm.rank());
        let own = || (0..COUNT).map(|at| element(me, at)).collect::<Vec<_>>();
        let (send, mut recv, mut data) = (own(), vec![0; COUNT], own());
        let begun = comm.begin().all_reduce(own(), PreMulSum(scalar(me))).unwrap();
        let scope = comm.scope(|scope| {
            scope.all_reduce(&send, &mut recv, PreMulSum(scalar(me)))?;
            scope.all_reduce_in_place(&mut data, PreMulSum(scalar(me)))
        });
        scope.unwrap();
        let begun = begun.wait().unwrap();
        assert!([recv, data, begun].iter().all(|sum| *sum == totals(n, 0, COUNT)));
    });
}

#[test]
fn a_pre_multiplied_sum_needs_its_scalar_and_may_meet_no_other_sum() {
    let errors = with_ranks(2, &config(), |comm| {
        let refused = comm
            .all_reduce_in_place(&mut [1.0f32], Op::PreMulSum)
            .unwrap_err();
        assert!(matches!(refused, Error::Invalid { .. }), "{refused:?}");
        assert!(refused.to_string().contains("without its scalar"), "{refused}");
        let mut data = [1.0f32];
        let differs = match comm.rank() {
            0 => comm.all_reduce_in_place(&mut data, PreMulSum(2.0)),
            _ => comm.all_reduce_in_place(&mut data, Op::Sum),
        };
        differs.and_then(|()| comm.barrier()).unwrap_err().to_string()
    });
    for error in errors {
        assert!(
            error.contains("premulsum") && error.contains("float32, sum"),
            "{error}"
        );
    }
}

/// A float type, by way of `f32` or, where that is too narrow, `f64`.
trait Float: Element + PartialEq + Debug {
    fn of(value: f64) -> Self;
    fn value(self) -> f64;
}

macro_rules! floats {
    ($($t:ty: $of:expr, $value:expr;)*) => {$(
        impl Float for $t {
            fn of(value: f64) -> Self {
                $of(value)
            }
            fn value(self) -> f64 {
                $value(self)
            }
        }
    )*};
}

floats! {
    f32: |x| x as f32, f64::from;
    f64: |x| x, |x| x;
    f16: |x| f16::from_f32(x as f32), |x: f16| x.to_f64();
    bf16: |x| bf16::from_f32(x as f32), |x: bf16| x.to_f64();
    F8E4M3: |x| F8E4M3::from_f32(x as f32), |x: F8E4M3| x.to_f32().into();
    F8E5M2: |x| F8E5M2::from_f32(x as f32), |x: F8E5M2| x.to_f32().into();
}

/// Calls `$check::<T>($arg, ...)` for every float type.
macro_rules! every_float {
    ($check:ident, $comm:expr $(, $all:expr)?) => {{
        $check::<f32>($comm $(, $all)?);
        $check::<f64>($comm $(, $all)?);
        $check::<f16>($comm $(, $all)?);
        $check::<bf16>($comm $(, $all)?);
        $check::<F8E4M3>($comm $(, $all)?);
        $check::<F8E5M2>($comm $(, $all)?);
    }};
}

/// A rank that sees all contributions rounds once: products only where they come from another rank, sums never in between.
#[test]
fn what_one_rank_reduces_is_rounded_once() {
    with_ranks(3, &with_algorithm("direct"), |comm| {
        every_float!(check_roundings, comm)
    });
}

fn check_roundings<T: Float>(comm: &Communicator) {
    let (n, me) = (comm.ranks(), comm.rank());
    let values = |rank: usize| (0..200).map(move |at| T::of(0.13 * (at as f64 + 1.0) * (rank as f64 + 1.0)));
    let scalar = |rank: usize| T::of(0.3 * (rank as f64 + 1.0));
    let mut data: Vec<T> = values(me).collect();
    comm.all_reduce_in_place(&mut data, PreMulSum(scalar(me)))
        .unwrap();
    let (inputs, scalars): (Vec<Vec<T>>, Vec<T>) = (0..n).map(|r| (values(r).collect(), scalar(r))).unzip();
    let wanted: Vec<T> = (0..data.len())
        .map(|at| {
            let product = |rank: usize| inputs[rank][at].value() * scalars[rank].value();
            let sum = match T::DTYPE {
                DType::Float64 => (0..n).map(product).reduce(|a, b| a + b),
                _ => {
                    // The product of two float32 is exact in float64, and then rounded as a product of float32 is.
                    let part = |rank| T::of(f64::from(product(rank) as f32)).value() as f32;
                    (0..n).map(part).reduce(|a, b| a + b).map(f64::from)
                }
            };
            T::of(sum.unwrap())
        })
        .collect();
    assert_eq!(data, wanted, "{}", T::DTYPE);
}

/// Whichever way a pre-multiplied sum goes, all ranks have the same bits.
#[test]
fn all_ranks_have_the_bits_of_a_pre_multiplied_sum() {
    for ranks in [2, 3, 4, 7] {
        for (algorithm, _) in ccl::algorithms(ccl::Collective::AllReduce) {
            with_ranks(ranks, &with_algorithm(algorithm), |comm| {
                every_float!(check_alike, comm)
            });
        }
    }
}

fn check_alike<T: Float>(comm: &Communicator) {
    let me = comm.rank() as f64;
    let mut data: Vec<T> = (0..60)
        .map(|at| T::of(1.0 + 0.0078125 * f64::from(at) - 0.01 * me))
        .collect();
    comm.all_reduce_in_place(&mut data, PreMulSum(T::of(1.0078125 - 0.1 * me)))
        .unwrap();
    let mut first = data.clone();
    comm.broadcast_in_place(&mut first, 0).unwrap();
    assert_eq!(data, first, "{}", T::DTYPE);
}

/// The configuration for results that depend on inputs and ranks alone.
fn reproducible() -> ccl::Config {
    let mut config = config();
    config.reproducible = true;
    config
}

/// An element that rounds in every sum, among them some that are no numbers.
fn uneven<T: Float>(rank: usize, at: usize) -> T {
    let hash = (rank as u64 * 0x9e37_79b9 + at as u64 + 1).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 11;
    let special = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -0.0];
    let element = match hash % 500 {
        0 => T::of(special[rank % 4]),
        _ => T::of((hash as f64 / (1u64 << 52) as f64 - 1.0) * [0.01, 0.4, 3.0][at % 3]),
    };
    // A type without infinities has a NaN for each.
    if element.value().is_nan() {
        T::of(f64::NAN)
    } else {
        element
    }
}

/// The bits of an element, by way of the widest float, whose NaN are told apart by their sign alone.
fn bits<T: Float>(element: T) -> u64 {
    element.value().to_bits()
}

/// The sum over ranks `a` to `b` by the one tree, in the type that elements are accumulated in.
fn tree<T: Float>(at: usize, a: usize, b: usize) -> f64 {
    if b - a == 1 {
        return uneven::<T>(a, at).value();
    }
    let powers = (0..).map(|k| 1usize << k).take_while(|&power| power < b - a);
    let middle = a + powers.last().unwrap();
    let sum = tree::<T>(at, a, middle) + tree::<T>(at, middle, b);
    if T::DTYPE == DType::Float64 {
        sum
    } else {
        f64::from(sum as f32)
    }
}

#[test]
fn reproducible_results_have_the_same_bits_whatever_the_count_and_the_transport() {
    for transport in ["shm", "tcp"] {
        let mut config = reproducible();
        config.transport = Some(transport.to_owned());
        for n in [1, 2, 3, 4, 6] {
            with_ranks(n, &config, |comm| every_float!(check_the_tree, comm));
        }
    }
}

fn check_the_tree<T: Float>(comm: &Communicator) {
    let (n, me) = (comm.ranks(), comm.rank());
    const MOST: usize = 30_001;
    let send: Vec<T> = (0..MOST).map(|at| uneven(me, at)).collect();
    let sum = |at| {
        let sum = tree::<T>(at, 0, n);
        bits(T::of(if sum.is_nan() { f64::NAN } else { sum }))
    };
    let wanted: Vec<u64> = (0..MOST).map(sum).collect();
    let check = |what: &str, got: &[T], first: usize| {
        let differs = got
            .iter()
            .zip(&wanted[first..])
            .position(|(got, wanted)| bits(*got) != *wanted);
        assert_eq!(differs, None, "{what} of {} x {} among {n}", got.len(), T::DTYPE);
    };
    for count in [1, 2, 5, 1000, MOST] {
        let mut data = send[..count].to_vec();
        comm.all_reduce_in_place(&mut data, Op::Sum).unwrap();
        check("all-reduce", &data, 0);
        data.copy_from_slice(&send[..count]);
        comm.reduce_in_place(&mut data, Op::Sum, n / 2).unwrap();
        if me == n / 2 {
            check("reduce", &data, 0);
        }
        let block = count / n;
        let mut data = vec![T::of(0.0); block];
        comm.reduce_scatter(&send[..n * block], &mut data, Op::Sum)
            .unwrap();
        check("reduce-scatter", &data, me * block);
    }
}

#[test]
fn reproducible_ranks_use_algorithms_of_the_one_order_alone() {
    with_ranks(4, &reproducible(), |comm| {
        let names = |collective, dtype| -> Vec<&str> {
            let said = comm.explain(collective, 1 << 20, dtype).unwrap();
            said.candidates.iter().map(|one| one.algorithm).collect()
        };
        let able = names(Collective::AllReduce, DType::Float32);
        assert!(
            able.contains(&"direct") && able.contains(&"doubling") && !able.contains(&"ring"),
            "{able:?}"
        );
        let able = names(Collective::AllReduce, DType::Float16);
        assert!(
            able.contains(&"direct") && !able.contains(&"doubling"),
            "{able:?}"
        );
        // What combines nothing is free.
        let able = names(Collective::AllGather, DType::Float16);
        assert_eq!(able.len(), algorithms(Collective::AllGather).count());
    });
    let explained =
        |config: ccl::Config| ccl::explain(Collective::AllReduce, 4, 1 << 24, DType::Float32, &config);
    assert!(
        explained(reproducible()).unwrap().candidates.len() < explained(config()).unwrap().candidates.len()
    );
    let mut ring = reproducible();
    ring.algorithm = Some("ring".to_owned());
    let refused = explained(ring).unwrap_err();
    assert!(matches!(refused, Error::Usage { .. }), "{refused:?}");
    assert!(
        refused.to_string().contains("\"ring\" combines them in another"),
        "{refused}"
    );
}

#[test]
fn an_algorithm_that_cannot_now_is_refused_before_anything_moves() {
    let mut doubling = reproducible();
    doubling.algorithm = Some("doubling".to_owned());
    with_ranks(3, &doubling, |comm| {
        let refused = comm.all_reduce_in_place(&mut [1.0f32], Op::Sum).unwrap_err();
        assert!(matches!(refused, Error::Usage { .. }), "{refused:?}");
        comm.barrier().unwrap();
    });
    with_ranks(2, &doubling, |comm| {
        let refused = comm.all_reduce_in_place(&mut [f16::ONE], Op::Sum).unwrap_err();
        assert!(matches!(refused, Error::Usage { .. }), "{refused:?}");
        let mut data = [1.0f32];
        comm.all_reduce_in_place(&mut data, Op::Sum).unwrap();
        assert_eq!(data, [2.0]);
    });
}

/// Calls `$check::<T>($comm)` for every integer type.
macro_rules! every_integer {
    ($check:ident, $comm:expr) => {{
        $check::<i8>($comm);
        $check::<u8>($comm);
        $check::<i16>($comm);
        $check::<u16>($comm);
        $check::<i32>($comm);
        $check::<u32>($comm);
        $check::<i64>($comm);
        $check::<u64>($comm);
    }};
}

/// By every algorithm and operation: all ranks get the same bits, again when they call again, and those of integers are
/// what wrapping arithmetic gives, divided once, toward zero.
#[test]
fn all_ranks_get_the_same_bits_each_time() {
    for (algorithm, _) in algorithms(Collective::AllReduce) {
        for n in [1, 2, 3, 5, 8] {
            let of_ranks = with_ranks(n, &with_algorithm(algorithm), |comm| {
                every_integer!(check_integers, comm);
                let mut all = Vec::new();
                every_float!(check_floats, comm, &mut all);
                all
            });
            assert!(
                of_ranks.iter().all(|all| *all == of_ranks[0]),
                "{algorithm}, {n} ranks"
            );
        }
    }
}

/// An integer type.
trait Integer: Element {
    /// The number that has these low bits.
    fn wrapped(bits: u64) -> Self;
    fn integer(self) -> i128;
}

macro_rules! integers {
    ($($t:ty)*) => {$(
        impl Integer for $t {
            fn wrapped(bits: u64) -> Self {
                bits as $t
            }
            fn integer(self) -> i128 {
                self.into()
            }
        }
    )*};
}

integers! { i8 u8 i16 u16 i32 u32 i64 u64 }

/// Random bits for an element of a rank.
fn random(rank: usize, at: usize) -> u64 {
    let x = (rank as u64 * 1_000_003 + at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Reduces `send` twice: what comes of it has the same `bits`.
fn twice<T: Element>(comm: &Communicator, send: &[T], op: Op, bits: impl Fn(T) -> u64) -> Vec<T> {
    let (mut once, mut again) = (send.to_vec(), send.to_vec());
    comm.all_reduce_in_place(&mut once, op).unwrap();
    comm.all_reduce(send, &mut again, op).unwrap();
    let of = |vector: &[T]| -> Vec<u64> { vector.iter().map(|&x| bits(x)).collect() };
    assert!(of(&once) == of(&again), "{op} of {}", T::DTYPE);
    once
}

fn check_integers<T: Integer>(comm: &Communicator) {
    let (n, me) = (comm.ranks(), comm.rank());
    let vector = |rank: usize| (0..777).map(move |at| T::wrapped(random(rank, at)));
    let (send, all): (Vec<T>, Vec<Vec<T>>) = (
        vector(me).collect(),
        (0..n).map(|r| vector(r).collect()).collect(),
    );
    for op in Op::ALL {
        let got = twice(comm, &send, op, |x| x.integer() as u64);
        for (at, got) in got.into_iter().enumerate() {
            let numbers = all.iter().map(|vector| vector[at].integer());
            let total = match op {
                Op::Prod => numbers.fold(1, |a: i128, b| T::wrapped(a.wrapping_mul(b) as u64).integer()),
                Op::Max => numbers.max().unwrap(),
                Op::Min => numbers.min().unwrap(),
                Op::BitAnd => numbers.reduce(|a, b| a & b).unwrap(),
                Op::BitOr => numbers.reduce(|a, b| a | b).unwrap(),
                Op::BitXor => numbers.reduce(|a, b| a ^ b).unwrap(),
                Op::Avg => T::wrapped(numbers.sum::<i128>() as u64).integer() / n as i128,
                _ => T::wrapped(numbers.sum::<i128>() as u64).integer(),
            };
            assert_eq!(got.integer(), total, "{op} of {} at {at}", T::DTYPE);
        }
    }
}

fn check_floats<T: Float>(comm: &Communicator, all: &mut Vec<u64>) {
    let (n, me) = (comm.ranks(), comm.rank());
    let send: Vec<T> = (0..777).map(|at| uneven(me, at)).collect();
    for op in [Op::Sum, Op::Prod, Op::Max, Op::Min, Op::Avg] {
        let got: Vec<u64> = twice(comm, &send, op, bits).into_iter().map(bits).collect();
        for (at, got) in got.iter().enumerate().filter(|_| matches!(op, Op::Max | Op::Min)) {
            let numbers = (0..n).map(|rank| uneven::<T>(rank, at).value());
            let is_nan = numbers.clone().any(f64::is_nan);
            assert_eq!(
                f64::from_bits(*got).is_nan(),
                is_nan,
                "{op} of {} at {at}",
                T::DTYPE
            );
            let best = numbers.reduce(|a, b| {
                if (op == Op::Max) == a.total_cmp(&b).is_gt() {
                    a
                } else {
                    b
                }
            });
            assert!(
                is_nan || best.unwrap().to_bits() == *got,
                "{op} of {} at {at}",
                T::DTYPE
            );
        }
        all.extend(got);
    }
}
