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

/// Calls `$check::<T>($comm)` for every float type.
macro_rules! every_float {
    ($check:ident, $comm:expr) => {{
        $check::<f32>($comm);
        $check::<f64>($comm);
        $check::<f16>($comm);
        $check::<bf16>($comm);
        $check::<F8E4M3>($comm);
        $check::<F8E5M2>($comm);
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
                    let owner = (0..n).find(|q| at < (q + 1) * data.len() / n).unwrap();
                    // The product of two float32 is exact in float64, and then rounded as a product of float32 is.
                    let part = |rank| match rank == owner {
                        true => product(rank) as f32,
                        false => T::of(product(rank)).value() as f32,
                    };
                    (0..n).map(part).reduce(|a, b| a + b).map(f64::from)
                }
            };
            T::of(sum.unwrap())
        })
        .collect();
    assert_eq!(data, wanted, "{}", T::DTYPE);
}
