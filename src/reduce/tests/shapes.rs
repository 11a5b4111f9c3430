//! Reductions of all shapes by all kernels: beside the reference, and beside one another.

use super::reference::{Value, element, expected, from_f32, value_of};
use crate::mem::Region;
use crate::reduce::kernels::{Pass, Way};
use crate::reduce::{Manner, reduce_as};
use crate::types::{DType, Op};
use proptest::prelude::*;
use std::num::NonZero;

/// A reduction's shape, apart from type and operation.
#[derive(Debug, Clone)]
struct Case {
    count: usize,
    /// Bytes before each source, and last before the destination: any alignment.
    gaps: Vec<usize>,
    /// The source that is the destination too.
    in_place: Option<usize>,
    /// The source that a pre-multiplied sum multiplies.
    scaled: Option<usize>,
    finish: Option<usize>,
    tree: bool,
    seed: u64,
}

impl Case {
    fn any() -> impl Strategy<Value = Case> {
        let shape = (
            prop_oneof![0usize..70, 0usize..1200],
            proptest::collection::vec(0usize..80, 2..=20),
            proptest::option::of(0usize..9),
            proptest::option::of(0usize..9),
            proptest::option::of(prop_oneof![1usize..=10, Just(1000), Just(1 << 40)]),
            any::<bool>(),
            any::<u64>(),
        );
        shape.prop_map(|(count, gaps, in_place, scaled, finish, tree, seed)| Case {
            count,
            in_place: in_place.map(|source| source % (gaps.len() - 1)),
            scaled: scaled.map(|source| source % (gaps.len() - 1)),
            gaps,
            finish,
            tree,
            seed,
        })
    }

    /// Where each vector begins, and how long the memory is.
    fn places(&self, dtype: DType) -> (Vec<usize>, usize) {
        let len = self.count * dtype.size();
        let mut end = 0;
        let begin = |gap: &usize| {
            let at = end + gap;
            end = at + len;
            at
        };
        let places = self.gaps.iter().map(begin).collect();
        (places, end + 64)
    }

    /// Memory full of elements of all kinds, at whatever address: arbitrary bits, and those of simple numbers.
    fn memory(&self, dtype: DType, len: usize) -> Vec<u8> {
        let mut state = self.seed;
        let mut random = move || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            state >> 33
        };
        let special = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            1e-7,
            400.0,
            6e4,
        ];
        let mut next = || match (random() % 8, dtype) {
            (0, _) => random() << 33 ^ random(),
            (_, DType::Float64) => (f64::from(random() as i16) / 64.0).to_bits(),
            (_, _) if dtype.is_integer() => random() << 33 ^ random() << 11 ^ random(),
            (1, _) => from_f32(dtype, special[random() as usize % special.len()]),
            (_, _) => from_f32(dtype, f32::from(random() as i16) / 64.0),
        };
        let elements = len.div_ceil(dtype.size());
        let mut memory: Vec<u8> = (0..elements)
            .flat_map(|_| next().to_le_bytes().into_iter().take(dtype.size()))
            .collect();
        memory.truncate(len);
        memory
    }

    /// Runs a reduction by `run`.
    fn reduced(&self, op: Op, dtype: DType, run: impl Fn(&Pass<'_>)) -> Reduced {
        let (mut sources, len) = self.places(dtype);
        let before = self.memory(dtype, len);
        let scaled = self.scaled.filter(|_| op == Op::PreMulSum);
        let manner = Manner {
            tree: self.tree,
            scaled: scaled.map(|source| (source, element(&before, dtype, len - 8, 0))),
        };
        let out = sources.pop().unwrap();
        let out = self.in_place.map_or(out, |source| sources[source]);
        let bytes = self.count * dtype.size();

        let mut after = before.clone();
        let whole = Region::of_mut(&mut after);
        let regions: Vec<Region<'_>> = sources.iter().map(|&at| whole.part(at, bytes)).collect();
        run(&Pass {
            op,
            dtype,
            finish: self.finish.and_then(NonZero::new),
            manner,
            sources: &regions,
            dst: &whole.part(out, bytes),
        });
        Reduced {
            before,
            after,
            sources,
            out,
            manner,
        }
    }

    fn check(&self, op: Op, dtype: DType, run: impl Fn(&Pass<'_>)) {
        let Reduced {
            before,
            after,
            sources,
            out,
            manner,
        } = self.reduced(op, dtype, run);
        let bytes = self.count * dtype.size();
        for i in 0..self.count {
            let elements: Vec<u64> = sources.iter().map(|&at| element(&before, dtype, at, i)).collect();
            let want = expected(op, dtype, self.finish, manner, &elements);
            let got = element(&after, dtype, out, i);
            let got = if want == Value::NaN {
                value_of(dtype, got)
            } else {
                Value::Bits(got)
            };
            assert_eq!(got, want, "{op} of {dtype}, element {i}: {elements:x?}");
        }
        assert_eq!(
            after[..out],
            before[..out],
            "{op} of {dtype} wrote before its destination"
        );
        assert_eq!(
            after[out + bytes..],
            before[out + bytes..],
            "{op} of {dtype} wrote past its destination"
        );
    }

    fn check_all(&self, run: impl Fn(&Pass<'_>) + Copy) {
        for dtype in DType::ALL {
            ops(dtype).for_each(|op| self.check(op, dtype, run));
        }
    }

    /// The result by one way's kernels, to the bit, but for NaN where that is not promised.
    fn values(&self, way: Way, op: Op, dtype: DType) -> Vec<Value> {
        let Reduced {
            after, out, manner, ..
        } = self.reduced(op, dtype, |pass| run_by(way, pass));
        let bits = (0..self.count).map(|i| element(&after, dtype, out, i));
        match manner.tree {
            true => bits.map(Value::Bits).collect(),
            false => bits.map(|bits| value_of(dtype, bits)).collect(),
        }
    }
}

/// What was in memory before and after a reduction, where its vectors begin, and how they were reduced.
struct Reduced {
    before: Vec<u8>,
    after: Vec<u8>,
    sources: Vec<usize>,
    out: usize,
    manner: Manner,
}

/// The operations of a type.
fn ops(dtype: DType) -> impl Iterator<Item = Op> {
    let all = Op::ALL.into_iter().chain([Op::PreMulSum]);
    all.filter(move |op| op.accepts(dtype))
}

/// The kernels that the processor can run.
fn there() -> impl Iterator<Item = Way> {
    Way::ALL.iter().copied().filter(|way| way.is_there())
}

/// What is under test: the kernels that suit the length.
fn run(pass: &Pass<'_>) {
    let finish = pass.finish.map(NonZero::get);
    reduce_as(pass.op, pass.dtype, finish, pass.manner, pass.sources, pass.dst);
}

/// The same with kernels of one way, whatever the length.
fn run_by(way: Way, pass: &Pass<'_>) {
    match pass.sources {
        [_] if (pass.op != Op::Avg || pass.finish.is_none()) && pass.manner.scaled.is_none() => run(pass),
        // SAFETY: one of `there`.
        _ => unsafe { way.run(pass) },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_type_and_operation_is_right(case in Case::any()) {
        case.check_all(run);
    }

    #[test]
    fn the_kernels_of_each_way_are_right_at_any_length(case in Case::any()) {
        there().for_each(|way| case.check_all(|pass| run_by(way, pass)));
    }

    #[test]
    fn the_kernels_of_all_ways_come_to_the_same_bits(case in Case::any()) {
        for dtype in DType::ALL {
            for op in ops(dtype) {
                let want = case.values(Way::Portable, op, dtype);
                for way in there() {
                    prop_assert_eq!(&case.values(way, op, dtype), &want, "{} of {} by {:?}", op, dtype, way);
                }
            }
        }
    }
}

/// Every length around the blocks' edges, in place and not.
#[test]
fn every_length_around_a_block_is_right() {
    for count in (0..40)
        .chain(60..70)
        .chain(120..140)
        .chain(250..262)
        .chain(500..530)
    {
        for in_place in [None, Some(0), Some(1)] {
            let case = Case {
                count,
                gaps: vec![1, 3, 5],
                in_place,
                scaled: Some(count % 2),
                finish: Some(2),
                tree: count % 3 == 0,
                seed: count as u64,
            };
            case.check_all(run);
        }
    }
}
