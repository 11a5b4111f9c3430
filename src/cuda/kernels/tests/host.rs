//! The kernels' source, compiled for the processor, beside src/reduce: the same bits.
//!
//! What this cannot show is what GPUs do with their own instructions: the conversions of float16, the larger and
//! smaller of two float32, loads and stores.

use super::{
    args::{ArriveArgs, Entry, InCall, Launch, Meeting, Row, Swap},
    *,
};
use crate::mem::Region;
use crate::reduce::{Manner, reduce_as};
use std::{
    cell::UnsafeCell,
    ffi::{CString, c_char, c_int, c_longlong, c_uint, c_void},
    mem::offset_of,
    num::NonZero,
    process::Command,
    sync::LazyLock,
};

/// `ccl_kernels_on_host`.
type OnHost = unsafe extern "C" fn(*const c_char, *const c_void, c_uint, c_uint, c_uint, c_int) -> c_longlong;
/// `ccl_kernels_layout`.
type Layout = unsafe extern "C" fn(*mut *const u64) -> c_uint;

/// The library of host.cpp, which stays loaded.
static HOST: LazyLock<libloading::Library> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let (library, source) = (
        folder.path().join("libkernels.so"),
        concat!(env!("CARGO_MANIFEST_DIR"), "/src/cuda/kernels/host.cpp"),
    );
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-O1", "-fPIC", "-shared", "-ffp-contract=off", "-o"]);
    let compiled = compiler.arg(&library).arg(source).output();
    let compiled = compiled.expect("this test needs a C++ compiler, c++");
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    // SAFETY: it was just made of our source, which does nothing when it is loaded.
    unsafe { libloading::Library::new(library) }.unwrap()
});

/// Runs a kernel: in each row so many blocks of so many threads.
fn launch<A>(launched: &Launch<A>, grid: u32, block: u32, backwards: bool) {
    let Launch {
        kernel, args, rows, ..
    } = launched;
    let name = CString::new(kernel.name()).unwrap();
    // SAFETY: the function has this type, and `args` are those of the kernel, made of vectors that the tests hold.
    let refused = unsafe {
        let launch = HOST.get::<OnHost>(b"ccl_kernels_on_host\0").unwrap();
        launch(
            name.as_ptr(),
            (&raw const *args).cast(),
            grid,
            *rows,
            block,
            backwards.into(),
        )
    };
    assert_eq!(
        refused, 0,
        "{name:?}: -1: there is no such kernel; else so many misaligned accesses"
    );
}

#[test]
fn arguments_lie_where_the_kernels_look_for_them() {
    let mut found = std::ptr::null();
    // SAFETY: the function has this type; it gives a table that stays, and its length.
    let found = unsafe {
        let layout = HOST.get::<Layout>(b"ccl_kernels_layout\0").unwrap();
        let length = layout(&raw mut found);
        std::slice::from_raw_parts(found, length as usize)
    };
    macro_rules! layout {
        ($t:ty: $($field:ident)*) => { [size_of::<$t>() as u64, $(offset_of!($t, $field) as u64),*] };
    }
    let reduce = layout!(
        ReduceArgs: sources destinations scalars count source_at destination_at source_step destination_step call n m
            scaled ranks rounded rows sources_apart destinations_apart
    );
    let copy = layout!(CopyArgs: from to bytes ranges reserved);
    let swap = layout!(SwapArgs: begins bytes blocks own_at sends recvs call me reserved);
    let entry = layout!(Entry: send recv call turn agreed done reserved);
    let meeting = layout!(Meeting: reset told n reserved);
    let call = layout!(InCall: number own entries nobody meeting ranks reserved);
    let arrive = layout!(ArriveArgs: call send recv);
    let all = [&reduce[..], &copy, &swap, &entry, &meeting, &call, &arrive];
    assert_eq!(found, all.concat());
}

/// Vectors in one piece of memory, each so many bytes after a multiple of 16, with some bytes around that must stay.
struct Vectors {
    memory: Vec<u8>,
    begins: Vec<usize>,
    len: usize,
}

/// Bytes between vectors.
const GAP: usize = 32;

impl Vectors {
    fn new(len: usize, skews: &[usize], mut fill: impl FnMut(&mut [u8])) -> Self {
        let room = (len + 2 * GAP).next_multiple_of(16) + 16;
        let mut memory = vec![0xa5; room * skews.len() + 16];
        let base = memory.as_ptr().align_offset(16);
        let begins: Vec<usize> = (0..)
            .zip(skews)
            .map(|(i, skew)| base + i * room + GAP / 2 + skew)
            .collect();
        begins
            .iter()
            .for_each(|&begin| fill(&mut memory[begin..begin + len]));
        Vectors { memory, begins, len }
    }

    fn addresses(&mut self) -> Vec<u64> {
        let base = self.memory.as_mut_ptr().expose_provenance();
        self.begins.iter().map(|begin| (base + begin) as u64).collect()
    }

    fn get(&self, i: usize) -> &[u8] {
        &self.memory[self.begins[i]..self.begins[i] + self.len]
    }

    /// That nothing was written around them.
    fn are_alone(&self) -> bool {
        let inside = |at: usize| {
            self.begins
                .iter()
                .any(|begin| (*begin..begin + self.len).contains(&at))
        };
        (0..self.memory.len()).all(|at| inside(at) || self.memory[at] == 0xa5)
    }
}

/// The bits of an element, with one NaN for all.
fn bits(dtype: DType, bytes: &[u8]) -> u64 {
    let mut whole = [0; 8];
    whole[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(whole);
    let (magnitude, infinity) = match dtype {
        DType::Float16 => (bits & 0x7fff, 0x7c00),
        DType::Bfloat16 => (bits & 0x7fff, 0x7f80),
        DType::Float32 => (bits & 0x7fff_ffff, 0x7f80_0000),
        DType::Float64 => (bits & (u64::MAX >> 1), 0x7ff0_0000_0000_0000),
        DType::Float8e4m3 => (bits & 0x7f, 0x7e),
        DType::Float8e5m2 => (bits & 0x7f, 0x7c),
        _ => return bits,
    };
    if magnitude > infinity { u64::MAX } else { bits }
}

/// Elements of all kinds: any bits, but so that the exponents of floats are near to one another as often as not; zeros,
/// infinities and NaN among them.
fn fill(dtype: DType, random: &mut fastrand::Rng, bytes: &mut [u8]) {
    for element in bytes.chunks_exact_mut(dtype.size()) {
        let number = match random.u8(..16) {
            0 => 0u64,
            1 => u64::MAX,
            2 => 1 << (8 * dtype.size() - 1),
            3..=8 => random.u64(..),
            _ => match dtype {
                DType::Float16 => half::f16::from_f32(random.f32() * 8.0 - 4.0).to_bits().into(),
                DType::Bfloat16 => half::bf16::from_f32(random.f32() * 8.0 - 4.0).to_bits().into(),
                DType::Float32 => (random.f32() * 8.0 - 4.0).to_bits().into(),
                DType::Float64 => (random.f64() * 8.0 - 4.0).to_bits(),
                _ => random.u64(..),
            },
        };
        element.copy_from_slice(&number.to_le_bytes()[..element.len()]);
    }
}

/// Where a value lies, for a kernel.
fn place<T>(value: &T) -> u64 {
    (&raw const *value).expose_provenance() as u64
}

/// What a kernel tells: two words that it sets back, three bytes that it sets, of eight, and a word if it did nothing.
struct Told(Box<[UnsafeCell<u64>; 4]>);

impl Told {
    fn new() -> Self {
        Told(Box::new([u64::MAX, u64::MAX, 0, 0].map(UnsafeCell::new)))
    }

    /// A call of all these, for one of them.
    fn in_call(&self, number: u64, rank: usize, entries: &[u64]) -> InCall {
        let bytes = place(&self.0[2]);
        let meeting = Meeting::new(place(&self.0[0]), [1, 2, 7].map(|byte| bytes + byte)).unwrap();
        let number = NonZero::new(number).unwrap();
        InCall::new(number, rank, entries.iter().copied(), place(&self.0[3]), meeting).unwrap()
    }

    /// That it has, and makes it ready for the next; whether it did nothing.
    fn check(&self) -> bool {
        let words = self.0.each_ref().map(|word| {
            // SAFETY: no kernel runs.
            unsafe { word.get().replace(0) }
        });
        assert_eq!(words[..3], [0, 0, 0x0100_0000_0001_0100]);
        words[3] == 1
    }
}

/// The entry of a rank in a turn of a call, on these buffers.
fn entry([send, recv]: [u64; 2], call: u64, turn: u64) -> UnsafeCell<Entry> {
    UnsafeCell::new(Entry {
        send,
        recv,
        call,
        turn,
        agreed: turn - 1,
        done: 0,
        reserved: 0,
    })
}

/// What an entry says; no kernel runs.
fn read(entry: &UnsafeCell<Entry>) -> Entry {
    // SAFETY: nobody writes it.
    unsafe { *entry.get() }
}

/// Changes what it says.
fn write(entry: &UnsafeCell<Entry>, how: impl FnOnce(&mut Entry)) {
    // SAFETY: nobody else uses it.
    how(unsafe { &mut *entry.get() });
}

/// A call begins: what the entry says then, and that the others are told.
#[test]
fn who_arrives_says_so() {
    let (told, own) = (Told::new(), entry([0, 0], 0, 4));
    let what = told.in_call(9, 0, &[place(&own)]);
    for backwards in [true, false] {
        launch(&ArriveArgs::new(what, [16, 1 << 40]), 1, 32, backwards);
        assert!(!told.check());
    }
    let Entry {
        send,
        recv,
        call,
        turn,
        agreed,
        ..
    } = read(&own);
    assert_eq!((send, recv, call, turn, agreed), (16, 1 << 40, 9, 6, 3));
}

/// The first kernel that finds that not all ranks are in its call decides it for all, in this turn and for ever; and where one has found
/// all of them so do the others.
#[test]
fn kernels_agree_on_whether_all_ranks_are_in_a_call() {
    let (told, dtype) = (Told::new(), DType::Uint32);
    let mut results = Vectors::new(4, &[0; 2], |bytes| bytes.fill(0));
    let mut sources = Vectors::new(4, &[0; 2], |bytes| bytes.fill(1));
    let (from, to) = (sources.addresses(), results.addresses());
    let entries: Vec<_> = (0..2).map(|rank| entry([from[rank], to[rank]], 5, 1)).collect();
    let at: Vec<u64> = entries.iter().map(place).collect();
    let how = Reducing {
        op: Op::Sum,
        dtype,
        finish: None,
        tree: false,
        scaled: &[],
    };
    // Whether the kernel of a rank reduces.
    let mut reduces = |rank: usize| {
        let call = told.in_call(5, rank, &at);
        let (source_at, destination_at) = (0, 0);
        let lie = Lie {
            call,
            source_at,
            destination_at,
        };
        results.memory[results.begins[rank]..][..4].fill(0);
        launch(
            &ReduceArgs::new(&how, 1, lie, &at, &at[rank..=rank]).unwrap(),
            2,
            3,
            rank == 0,
        );
        let alone = told.check();
        assert_eq!(results.get(rank), [if alone { 0 } else { 2 }; 4]);
        !alone
    };
    let next = || {
        entries
            .iter()
            .for_each(|entry| write(entry, |entry| entry.turn += 1))
    };
    assert!(reduces(0) && reduces(1));
    next();
    assert!(reduces(1));
    // It was agreed on, whatever a kernel that looks later finds.
    write(&entries[1], |entry| entry.call = 6);
    assert!(reduces(0));
    next();
    assert!(!reduces(1));
    write(&entries[1], |entry| entry.call = 5);
    assert!(!reduces(0), "the other one did nothing");
    next();
    assert!(!reduces(0) && !reduces(1), "for ever");
}

/// One call, on both sides.
#[derive(Debug)]
struct Case<'s> {
    how: Reducing<'s>,
    count: usize,
    /// Of sources, then destinations.
    skews: &'s [usize],
    n: usize,
    grid: u32,
    block: u32,
    backwards: bool,
}

impl Case<'_> {
    fn check(&self, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let (
            Reducing {
                op,
                dtype,
                finish,
                tree,
                scaled,
            },
            len,
        ) = (self.how, self.count * self.how.dtype.size());
        let (from, to) = self.skews.split_at(self.n);
        let mut sources = Vectors::new(len, from, |bytes| fill(dtype, &mut random, bytes));
        let mut results = Vectors::new(len, to, |bytes| bytes.fill(0x5a));
        let before = sources.memory.clone();
        let (froms, tos) = (sources.addresses(), results.addresses());
        let run = |lie, froms: &[u64], tos: &[u64]| {
            let made = ReduceArgs::new(&self.how, self.count as u64, lie, froms, tos);
            launch(&made.unwrap(), self.grid, self.block, self.backwards);
        };
        if seed.is_multiple_of(2) {
            run(Lie::default(), &froms, &tos);
        } else {
            let (source_at, destination_at) = (seed * 8, seed * 24);
            // Of a rank that has no source or no destination the kernel uses nothing.
            let side = |all: &[u64], rank: usize, at: u64| all.get(rank).map_or(1, |begin| begin - at);
            let ranks = froms.len().max(tos.len());
            let entries: Vec<_> = (0..ranks)
                .map(|rank| {
                    let both = [side(&froms, rank, source_at), side(&tos, rank, destination_at)];
                    entry(both, seed, 7)
                })
                .collect();
            let at: Vec<u64> = entries.iter().map(place).collect();
            let told = Told::new();
            let call = told.in_call(seed, seed as usize / 3 % ranks, &at);
            let lie = Lie {
                call,
                source_at,
                destination_at,
            };
            if ranks > 1 {
                // Of another call or turn: nothing is done, but all others are told.
                let alien = &entries[seed as usize % ranks];
                let was = read(alien);
                write(alien, |alien| match seed as usize / 2 % 3 {
                    0 => alien.call = 0,
                    1 => alien.call += 1,
                    _ => alien.turn += 1,
                });
                run(lie, &at[..froms.len()], &at[..tos.len()]);
                assert!(told.check());
                let is_new = |&byte: &u8| byte == 0x5a || byte == 0xa5;
                assert!(results.memory.iter().all(is_new), "{self:?}");
                write(alien, |alien| *alien = was);
                write(&entries[0], |first| first.agreed = 6);
            }
            run(lie, &at[..froms.len()], &at[..tos.len()]);
            assert!(!told.check());
        }

        assert!(sources.memory == before && results.are_alone(), "{self:?}");

        let mut want = vec![0u8; len];
        let regions: Vec<Region<'_>> = (0..self.n).map(|k| Region::of(sources.get(k))).collect();
        let (finish, manner) = (
            finish.map(|ranks| ranks.get() as usize),
            Manner {
                tree,
                scaled: scaled.first().copied(),
            },
        );
        reduce_as(op, dtype, finish, manner, &regions, &Region::of_mut(&mut want));
        for k in 0..to.len() {
            let size = dtype.size();
            for (i, (got, want)) in results.get(k).chunks(size).zip(want.chunks(size)).enumerate() {
                let same = if tree {
                    got == want
                } else {
                    bits(dtype, got) == bits(dtype, want)
                };
                assert!(
                    same,
                    "{self:?}: element {i} of destination {k} is {got:02x?}, not {want:02x?}"
                );
            }
        }
    }
}

/// Where vectors begin: alike, alike beyond a pack's begin, at any element, and at any byte.
fn skews(kind: usize, size: usize, vectors: usize) -> Vec<usize> {
    (0..vectors)
        .map(|i| match kind {
            0 => 0,
            1 => 16 - size,
            2 => i * 3 * size % 16,
            3 => 1,
            _ => i * 5 % 16,
        })
        .collect()
}

/// All types and operations; sources from 1 to 9, and 16; counts that fill packs, that do not, and none.
#[test]
fn every_reduction_has_the_bits_of_the_processors() {
    let mut cases = 0;
    for dtype in DType::ALL {
        for op in Op::ALL.into_iter().filter(|op| op.accepts(dtype)) {
            for n in (1..=9).chain([13, 16]) {
                for tree in [false, true] {
                    for finish in [None, Some(1), Some(n as u32), Some(64)] {
                        if finish.is_some() && op != Op::Avg {
                            continue;
                        }
                        let how = Reducing {
                            op,
                            dtype,
                            finish: finish.and_then(NonZero::new),
                            tree,
                            scaled: &[],
                        };
                        let (kind, m) = (cases % 5, 1 + cases % 3);
                        for count in [[0, 1, 7, 16, 67][cases % 5], 150 + cases % 37] {
                            let skews = skews(kind, dtype.size(), n + m);
                            let (grid, block, backwards) =
                                [(1, 1, false), (2, 3, true), (3, 8, false)][cases % 3];
                            Case {
                                how,
                                count,
                                skews: &skews,
                                n,
                                grid,
                                block,
                                backwards,
                            }
                            .check(cases as u64);
                            cases += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(cases > 4000, "{cases} cases");
}

#[test]
fn every_pre_multiplied_sum_has_the_bits_of_the_processors() {
    let mut cases = 0;
    for dtype in DType::ALL {
        let mut scalar = [0; 8];
        for n in 1..=9 {
            for tree in [false, true] {
                fill(
                    dtype,
                    &mut fastrand::Rng::with_seed(cases as u64),
                    &mut scalar[..dtype.size()],
                );
                let scaled = [(cases % n, u64::from_ne_bytes(scalar))];
                let how = Reducing {
                    op: Op::PreMulSum,
                    dtype,
                    finish: None,
                    tree,
                    scaled: &scaled,
                };
                let skews = skews(cases % 5, dtype.size(), n + 2);
                Case {
                    how,
                    count: 101,
                    skews: &skews,
                    n,
                    grid: 2,
                    block: 5,
                    backwards: n % 2 == 0,
                }
                .check(cases as u64);
                cases += 1;
            }
        }
    }
    assert_eq!(cases, 14 * 9 * 2);
}

/// Each with a scalar of its own: products that are rounded, and then the sum.
#[test]
fn every_source_may_have_a_scalar() {
    let one = |dtype, op, tree, scaled: &[(usize, u64)], sources: &mut Vectors| {
        let mut result = Vectors::new(sources.len, &[0], |_| ());
        let how = Reducing {
            op,
            dtype,
            finish: None,
            tree,
            scaled,
        };
        let count = (sources.len / dtype.size()) as u64;
        let (from, to) = (sources.addresses(), result.addresses());
        launch(
            &ReduceArgs::new(&how, count, Lie::default(), &from, &to).unwrap(),
            2,
            4,
            false,
        );
        result
    };
    for dtype in DType::ALL {
        let mut random = fastrand::Rng::with_seed(7);
        let mut sources = Vectors::new(60 * dtype.size(), &[0; 5], |bytes| {
            fill(dtype, &mut random, bytes)
        });
        let scaled: Vec<(usize, u64)> = [0, 2, 4].map(|source| (source, random.u64(..))).to_vec();
        let got = one(dtype, Op::PreMulSum, true, &scaled, &mut sources);
        let products: Vec<Vec<u8>> = (0..5)
            .map(|k| {
                let mut alone =
                    Vectors::new(sources.len, &[0], |bytes| bytes.copy_from_slice(sources.get(k)));
                let scalar = scaled.iter().find(|(source, _)| *source == k);
                let scalar: Vec<(usize, u64)> = scalar.map(|(_, scalar)| (0, *scalar)).into_iter().collect();
                one(dtype, Op::PreMulSum, true, &scalar, &mut alone)
                    .get(0)
                    .to_vec()
            })
            .collect();
        let mut products = products.iter();
        let mut products = Vectors::new(sources.len, &[0; 5], |bytes| {
            bytes.copy_from_slice(products.next().unwrap())
        });
        let want = one(dtype, Op::Sum, true, &[], &mut products);
        assert_eq!(got.get(0), want.get(0), "{dtype}");
    }
}

/// A two-shot's part of a call in place: all sources are destinations.
#[test]
fn destinations_may_be_the_sources() {
    for backwards in [false, true] {
        let mut number = 0u32;
        let mut vectors = Vectors::new(4 * 1001, &[4; 5], |bytes| {
            bytes.chunks_mut(4).for_each(|bytes| {
                number += 1;
                bytes.copy_from_slice(&number.to_le_bytes());
            });
        });
        let addresses = vectors.addresses();
        let how = Reducing {
            op: Op::Sum,
            dtype: DType::Uint32,
            finish: None,
            tree: false,
            scaled: &[],
        };
        let launched = ReduceArgs::new(&how, 1001, Lie::default(), &addresses, &addresses).unwrap();
        launch(&launched, 3, 7, backwards);
        let want: Vec<u8> = (1..=1001u32)
            .flat_map(|i| (5 * i + 10 * 1001).to_le_bytes())
            .collect();
        assert!((0..5).all(|k| vectors.get(k) == want) && vectors.are_alone());
    }
}

/// Sources and destinations that all rows have, and that each has of its own, some in place: what a reduction for each row gives.
#[test]
fn rows_are_reduced_side_by_side() {
    for seed in 0..800u64 {
        let mut random = fastrand::Rng::with_seed(seed);
        let dtype = [DType::Uint8, DType::Float16, DType::Int32, DType::Float64][random.usize(..4)];
        let op = [Op::Sum, Op::Avg, Op::Max, Op::PreMulSum][random.usize(..4)];
        let rows = [1, 2, 3, 5, 16][random.usize(..5)];
        let scaled = [(0, random.u64(..))];
        let how = Reducing {
            op,
            dtype,
            finish: NonZero::new(rows as u32),
            tree: random.bool(),
            scaled: if op == Op::PreMulSum { &scaled } else { &[] },
        };
        let count = [0, 1, 7, 33, 150 + random.usize(..37)][random.usize(..5)];
        let step = count * dtype.size() + [0, 0, dtype.size(), 5][random.usize(..4)];
        // Of sources and destinations.
        let (is_one, in_place) = ([random.bool(), random.bool()], random.bool());
        let vectors = is_one.map(|is_one| match is_one || in_place {
            true => rows,
            false => random.usize(1..=6),
        });
        let steps = is_one.map(|is_one| match is_one && !in_place {
            true => [0, step][random.usize(..2)],
            false => step,
        });
        let kind = random.usize(..5);
        let make = || {
            let mut random = fastrand::Rng::with_seed(seed);
            let skews = skews(kind, dtype.size(), vectors[0] + vectors[1]);
            let (from, to) = skews.split_at(vectors[0]);
            [from, to].map(|skews| Vectors::new(rows * step, skews, |bytes| random.fill(bytes)))
        };
        let addresses = |both: &mut [Vectors; 2]| match in_place {
            true => [both[0].addresses(), both[0].addresses()],
            false => both.each_mut().map(Vectors::addresses),
        };
        let (grid, block, backwards) = (random.u32(1..4), random.u32(1..9), random.bool());

        let mut got = make();
        let all = addresses(&mut got);
        let [sources, destinations] = [0, 1].map(|side| Row {
            addresses: &all[side],
            is_one: is_one[side],
            step: steps[side] as u64,
        });
        let launched = ReduceArgs::in_rows(&how, count as u64, rows, &sources, &destinations).unwrap();
        launch(&launched, grid, block, backwards);

        let mut want = make();
        let all = addresses(&mut want);
        for row in 0..rows {
            let [from, to] = [0, 1].map(|side| {
                let of_row = if is_one[side] {
                    &all[side][row..=row]
                } else {
                    &all[side]
                };
                let at = (row * steps[side]) as u64;
                of_row.iter().map(|address| address + at).collect::<Vec<u64>>()
            });
            let launched = ReduceArgs::new(&how, count as u64, Lie::default(), &from, &to).unwrap();
            launch(&launched, grid, block, backwards);
        }
        for (side, (got, want)) in got.iter().zip(&want).enumerate() {
            let same = (0..vectors[side]).all(|i| got.get(i) == want.get(i));
            assert!(
                same && got.are_alone(),
                "{seed}: {how:?}, {rows} rows, side {side}"
            );
        }
    }
}

#[test]
fn ranges_are_copied_and_nothing_else() {
    let mut random = fastrand::Rng::with_seed(3);
    for seed in 0..200u64 {
        let mut sizes = fastrand::Rng::with_seed(seed);
        let ranges = 1 + seed as usize % if seed < 190 { 9 } else { 64 };
        let begins: Vec<[usize; 2]> = (0..ranges)
            .map(|_| {
                let from = sizes.usize(..16);
                [from, [from, (from + 4) % 16, (from + 1) % 16][sizes.usize(..3)]]
            })
            .collect();
        let of = |side: usize| begins.iter().map(|both| both[side]).collect::<Vec<usize>>();
        let mut from = Vectors::new(700, &of(0), |bytes| random.fill(bytes));
        let mut to = Vectors::new(700, &of(1), |bytes| bytes.fill(0xa5));
        let lengths: Vec<usize> = (0..ranges)
            .map(|_| {
                if sizes.bool() {
                    sizes.usize(..20)
                } else {
                    sizes.usize(..=700)
                }
            })
            .collect();
        let addresses = (from.addresses(), to.addresses());
        let all: Vec<Range> = (0..ranges)
            .map(|i| Range {
                from: addresses.0[i],
                to: addresses.1[i],
                bytes: lengths[i] as u64,
            })
            .collect();
        let launched = CopyArgs::new(&all).unwrap();
        launch(&launched, sizes.u32(1..12), sizes.u32(1..9), sizes.bool());
        for (i, &len) in lengths.iter().enumerate() {
            assert_eq!(to.get(i)[..len], from.get(i)[..len], "{seed}: range {i}");
            assert!(
                to.get(i)[len..].iter().all(|&byte| byte == 0xa5),
                "{seed}: range {i}"
            );
        }
        assert!(to.are_alone());
    }
}

/// Some send from and receive in one buffer, others not; each pair's block is exchanged by both of its ranks, in parts. In a call, and
/// between addresses.
#[test]
fn blocks_are_exchanged_where_they_are() {
    for seed in 1..300u64 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (ranks, block) = (random.usize(1..=5), [1, 15, 16, 64, 333][random.usize(..5)]);
        let skews: Vec<usize> = (0..ranks)
            .map(|_| [0, 4, 1, random.usize(..16)][random.usize(..4)])
            .collect();
        let mut sends = Vectors::new(ranks * block, &skews, |bytes| random.fill(bytes));
        let skews: Vec<usize> = skews
            .iter()
            .map(|skew| (skew + [0, 0, 4, 3][random.usize(..4)]) % 16)
            .collect();
        let mut recvs = Vectors::new(ranks * block, &skews, |bytes| bytes.fill(0xa5));
        let sent: Vec<Vec<u8>> = (0..ranks).map(|rank| sends.get(rank).to_vec()).collect();
        let in_place: Vec<bool> = (0..ranks).map(|_| random.bool()).collect();
        let (from, to) = (sends.addresses(), recvs.addresses());
        let ends: Vec<[u64; 2]> = (0..ranks)
            .map(|rank| [from[rank], if in_place[rank] { from[rank] } else { to[rank] }])
            .collect();
        let entries: Vec<_> = ends.iter().map(|both| entry(*both, seed, 3)).collect();
        let at: Vec<u64> = entries.iter().map(place).collect();
        let told = Told::new();
        let mut all = |call| {
            for me in 0..ranks {
                let launched = match call {
                    None => SwapArgs::between(me, &ends, block as u64),
                    Some(call) => {
                        let swaps = Swap::with_all(me, ranks, block as u64);
                        SwapArgs::new(told.in_call(call, me, &at), (me * block) as u64, &swaps)
                    }
                };
                launch(
                    &launched.unwrap(),
                    random.u32(1..12),
                    random.u32(1..9),
                    random.bool(),
                );
            }
        };
        if seed.is_multiple_of(2) {
            all(None);
        } else {
            all(Some(seed + 1));
            assert!((0..ranks).all(|rank| sends.get(rank) == sent[rank]));
            assert!(told.check());
            write(&entries[0], |first| first.agreed = 2);
            all(Some(seed));
            assert!(!told.check());
        }
        for rank in 0..ranks {
            let (got, same) = match in_place[rank] {
                true => (sends.get(rank), recvs.get(rank)),
                false => (recvs.get(rank), sends.get(rank)),
            };
            let want: Vec<u8> = (0..ranks)
                .flat_map(|other| sent[other][rank * block..][..block].to_vec())
                .collect();
            assert_eq!(got, want, "{seed}: rank {rank}");
            let untouched = if in_place[rank] {
                vec![0xa5; ranks * block]
            } else {
                sent[rank].clone()
            };
            assert_eq!(same, untouched, "{seed}: rank {rank}");
        }
        assert!(sends.are_alone() && recvs.are_alone());
    }
}
