//! The combinations of type and operation, compiled for several instruction sets.

use super::Manner;
use super::number::{Arithmetic, Float, Number};
use super::operator::{
    And, Average, Canonical, FusedAverage, Max, Min, Operator, Or, Prod, Scaled, Share, Sum, WholeAverage,
    Xor,
};
use super::order::Ordered;
use super::quotient::Quotient;
use super::walk::{pair, walk};
use crate::mem::Region;
use crate::types::{DType, F8E4M3, F8E5M2, Op};
use half::{bf16, f16};
use std::num::NonZero;
use std::sync::LazyLock;

/// Bytes of accumulators of a block: eight AVX-512 registers, or all of AVX2's or NEON's.
pub(super) const BLOCK: usize = 512;

/// Bytes of accumulators of a block of a short vector: two SSE2 registers.
const SHORT_BLOCK: usize = 32;

/// Elements of a block of a short vector whose elements are converted: an AVX-512 register of float32.
const FEW: usize = 16;

/// Elements of a block for max and min of small floats.
const KEYS: usize = 256;

/// What a kernel is to do: the arguments of [`super::reduce_as`], checked.
#[derive(Clone, Copy)]
pub(super) struct Pass<'r> {
    pub(super) op: Op,
    pub(super) dtype: DType,
    pub(super) finish: Option<NonZero<usize>>,
    pub(super) manner: Manner,
    pub(super) sources: &'r [Region<'r>],
    pub(super) dst: &'r Region<'r>,
}

/// Runs the kernel that suits the length.
pub(super) fn run(pass: &Pass<'_>) {
    let converts = !pass.dtype.is_integer() && pass.dtype.size() < size_of::<f32>();
    if pass.dst.len() < BLOCK && !converts {
        let finishes = pass.finish.is_some();
        match (
            pass.sources,
            sum_of_two(pass.op, pass.dtype, finishes, pass.manner.tree),
        ) {
            (&[a, b], Some(sum)) => sum(a, b, *pass.dst),
            // SAFETY: every processor has these instructions.
            _ => unsafe { Way::Portable.run(pass) },
        }
    } else {
        static FASTEST: LazyLock<Way> = LazyLock::new(Way::fastest);
        // SAFETY: the processor has the instructions, as `fastest` found.
        unsafe { FASTEST.run(pass) }
    }
}

/// The instructions that kernels are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// AVX-512 as Ice Lake has it, which is told by VBMI: what came before slows its clock down for it.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// AVX2, F16C and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Those of every processor of its architecture, which on aarch64 are NEON's, in large blocks.
    #[cfg(not(target_arch = "x86_64"))]
    Large,
    /// The same in small blocks: for old processors, and for short vectors, which seldom fill a large block.
    Portable,
}

impl Way {
    /// All, the fastest first.
    pub(super) const ALL: &[Way] = &[
        #[cfg(target_arch = "x86_64")]
        Way::Avx512,
        #[cfg(target_arch = "x86_64")]
        Way::Avx2,
        #[cfg(not(target_arch = "x86_64"))]
        Way::Large,
        Way::Portable,
    ];

    /// Whether the processor has the instructions.
    pub(super) fn is_there(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Way::Avx512 => {
                Way::Avx2.is_there()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512ifma")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vbmi")
            }
            #[cfg(target_arch = "x86_64")]
            Way::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("bmi2")
                    && is_x86_feature_detected!("f16c")
                    && is_x86_feature_detected!("fma")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Way::Large => true,
            Way::Portable => true,
        }
    }

    fn fastest() -> Way {
        let there = Way::ALL.iter().copied().find(|way| way.is_there());
        there.unwrap_or(Way::Portable)
    }
}

/// What adds two short vectors, the commonest thing that is done to short ones, in few instructions; `None` if that is not what
/// is asked for, or of another type.
#[inline]
pub(super) fn sum_of_two(op: Op, dtype: DType, finishes: bool, tree: bool) -> Option<OfTwo> {
    let is_sum = op == Op::Sum || op == Op::Avg && !finishes;
    if !is_sum || tree {
        return None;
    }
    Some(match dtype {
        DType::Float32 => |a, b, to| pair::<f32, _, 16, 4>(Sum, [a, b], &to),
        DType::Float64 => |a, b, to| pair::<f64, _, 8, 2>(Sum, [a, b], &to),
        DType::Int32 | DType::Uint32 => |a, b, to| pair::<u32, _, 16, 4>(Sum, [a, b], &to),
        DType::Int64 | DType::Uint64 => |a, b, to| pair::<u64, _, 8, 2>(Sum, [a, b], &to),
        // A barrier's.
        DType::Int8 | DType::Uint8 => |a, b, to| pair::<u8, _, 64, 16>(Sum, [a, b], &to),
        _ => return None,
    })
}

/// Reduces two vectors into a third, all equally long. Each is passed in two registers.
pub(super) type OfTwo = fn(Region<'_>, Region<'_>, Region<'_>);

/// The type whose kernel does the same to the bits: it saves most of the integers' kernels.
fn same_bits(pass: &Pass<'_>) -> DType {
    match (pass.op, pass.dtype) {
        (Op::BitAnd | Op::BitOr | Op::BitXor, _) => DType::Uint8,
        (Op::Max | Op::Min, dtype) => dtype,
        (Op::Avg, dtype) if pass.finish.is_some() => dtype,
        (_, dtype) => dtype.unsigned(),
    }
}

/// Proof that the processor has the instructions that a kernel is compiled for.
trait Instructions: Copy {
    /// [`walk()`], compiled for them. Each is a function of its own, so that the frames of unoptimised ones stay small.
    fn walk<T: Number<Wide: Arithmetic>, O: Operator<T::Wide>, const N: usize, const TREE: bool>(
        self,
        operator: O,
        pass: &Pass<'_>,
    );
}

/// Those of every processor.
#[derive(Clone, Copy)]
struct Every;

impl Instructions for Every {
    #[inline(always)]
    fn walk<T: Number<Wide: Arithmetic>, O: Operator<T::Wide>, const N: usize, const TREE: bool>(
        self,
        operator: O,
        pass: &Pass<'_>,
    ) {
        walk::<T, O, N, TREE>(operator, pass.sources, pass.dst);
    }
}

#[cfg(target_arch = "x86_64")]
macro_rules! instructions {
    ($($name:ident: $features:literal;)*) => {$(
        #[derive(Clone, Copy)]
        struct $name(());

        impl $name {
            /// # Safety
            /// The processor has them.
            unsafe fn there() -> $name {
                $name(())
            }
        }

        impl Instructions for $name {
            #[inline(always)]
            fn walk<T: Number<Wide: Arithmetic>, O: Operator<T::Wide>, const N: usize, const TREE: bool>(
                self,
                operator: O,
                pass: &Pass<'_>,
            ) {
                #[target_feature(enable = $features)]
                fn compiled<T: Number<Wide: Arithmetic>, O: Operator<T::Wide>, const N: usize, const TREE: bool>(
                    operator: O,
                    pass: &Pass<'_>,
                ) {
                    walk::<T, O, N, TREE>(operator, pass.sources, pass.dst);
                }
                // SAFETY: the processor has them: only who promised that has a value of this type.
                unsafe { compiled::<T, O, N, TREE>(operator, pass) }
            }
        }
    )*};
}

#[cfg(target_arch = "x86_64")]
instructions! {
    Avx512: "avx2,avx512bw,avx512dq,avx512f,avx512ifma,avx512vbmi,avx512vl,bmi2,f16c,fma";
    Avx2: "avx2,bmi2,f16c,fma";
}

macro_rules! kernels {
    ($($dtype:ident: $kind:ident, $t:ty;)*) => {
        impl Way {
            /// Runs the kernel for these instructions, whatever the length.
            ///
            /// # Safety
            /// The processor has them: [`Way::is_there`].
            pub(super) unsafe fn run(self, pass: &Pass<'_>) {
                match (self, same_bits(pass)) {$(
                    #[cfg(target_arch = "x86_64")]
                    (Way::Avx512, DType::$dtype) => {
                        // SAFETY: the caller's promise.
                        let has = unsafe { Avx512::there() };
                        $kind::<<$t as Number>::Avx512, { block::<$t>(BLOCK) }, _>(has, pass);
                    }
                    #[cfg(target_arch = "x86_64")]
                    (Way::Avx2, DType::$dtype) => {
                        // SAFETY: the caller's promise.
                        let has = unsafe { Avx2::there() };
                        $kind::<<$t as Number>::Avx2, { block::<$t>(BLOCK) }, _>(has, pass);
                    }
                    #[cfg(not(target_arch = "x86_64"))]
                    (Way::Large, DType::$dtype) => $kind::<$t, { block::<$t>(BLOCK) }, _>(Every, pass),
                    (Way::Portable, DType::$dtype) => $kind::<$t, { block::<$t>(SHORT_BLOCK) }, _>(Every, pass),
                )*}
            }
        }
    };
}

kernels! {
    Int8: signed, i8;
    Int16: signed, i16;
    Int32: signed, i32;
    Int64: signed, i64;
    Uint8: bytes, u8;
    Uint16: integers, u16;
    Uint32: integers, u32;
    Uint64: integers, u64;
    Float16: converted, f16;
    Bfloat16: converted, bf16;
    Float32: floats, f32;
    Float64: floats, f64;
    Float8e4m3: converted, F8E4M3;
    Float8e5m2: converted, F8E5M2;
}

/// Elements of `T` that fill `bytes` bytes of accumulators.
const fn block<T: Number>(bytes: usize) -> usize {
    bytes / size_of::<T::Wide>()
}

/// All operations, of bytes.
fn bytes<T: Quotient<Wide = u8>, const N: usize, I: Instructions>(has: I, pass: &Pass<'_>) {
    match pass.op {
        Op::BitAnd => has.walk::<T, _, N, false>(And, pass),
        Op::BitOr => has.walk::<T, _, N, false>(Or, pass),
        Op::BitXor => has.walk::<T, _, N, false>(Xor, pass),
        _ => integers::<T, N, _>(has, pass),
    }
}

/// All but the bitwise operations, of integers: in any order they come to the same.
fn integers<T: Quotient<Wide: Arithmetic>, const N: usize, I: Instructions>(has: I, pass: &Pass<'_>) {
    match (pass.op, pass.finish) {
        (Op::Max | Op::Min, _) | (Op::Avg, Some(_)) => signed::<T, N, _>(has, pass),
        _ => sums::<T, N, false, _>(has, pass),
    }
}

/// The operations for which signed and unsigned integers differ: those that [`same_bits`] leaves to each type.
fn signed<T: Quotient<Wide: Arithmetic>, const N: usize, I: Instructions>(has: I, pass: &Pass<'_>) {
    match (pass.op, pass.finish) {
        (Op::Avg, Some(ranks)) if ranks.get() > 1 => {
            go::<T, _, N, false, _>(has, WholeAverage::<T>(T::divisor(ranks)), pass);
        }
        (Op::Avg, _) => go::<T, _, N, false, _>(has, Sum, pass),
        _ => extremes::<T, N, false, _>(has, pass),
    }
}

/// The same operations, of floats, in the order that is asked for.
fn floats<T: Number<Wide: Float>, const N: usize, I: Instructions>(has: I, pass: &Pass<'_>) {
    match (pass.op, pass.manner.tree) {
        (Op::Max | Op::Min, true) => extremes::<T, N, true, _>(has, pass),
        (Op::Max | Op::Min, false) => extremes::<T, N, false, _>(has, pass),
        _ => sums_in_order::<T, N, _>(has, pass),
    }
}

/// The same for types that are converted to be accumulated: short vectors, too, gain from special instructions then.
fn converted<T: Ordered<Wide: Float>, const N: usize, I: Instructions>(has: I, pass: &Pass<'_>) {
    let len = pass.dst.len();
    match pass.op {
        Op::Max | Op::Min if len < size_of::<[T; KEYS]>() => keys::<T, FEW, _>(has, pass),
        Op::Max | Op::Min => keys::<T, KEYS, _>(has, pass),
        _ if len < size_of::<[T; N]>() => sums_in_order::<T, FEW, _>(has, pass),
        _ => sums_in_order::<T, N, _>(has, pass),
    }
}

/// Max and min by integers: in any order they come to the same, NaN too.
fn keys<T: Ordered, const N: usize, I: Instructions>(has: I, pass: &Pass<'_>) {
    match pass.op {
        Op::Max => go::<T::ForMax, _, N, false, _>(has, Max, pass),
        _ => go::<T::ForMin, _, N, false, _>(has, Max, pass),
    }
}

/// Sums, averages and products of floats.
fn sums_in_order<T: Number<Wide: Float>, const N: usize, I: Instructions>(has: I, pass: &Pass<'_>) {
    match (pass.op, pass.finish, pass.manner.tree) {
        (Op::Avg, Some(ranks), true) => averages::<T, N, true, _>(has, ranks, pass),
        (Op::Avg, Some(ranks), false) => averages::<T, N, false, _>(has, ranks, pass),
        (_, _, true) => sums::<T, N, true, _>(has, pass),
        (_, _, false) => sums::<T, N, false, _>(has, pass),
    }
}

/// Averages of floats.
fn averages<T: Number<Wide: Float>, const N: usize, const TREE: bool, I: Instructions>(
    has: I,
    ranks: NonZero<usize>,
    pass: &Pass<'_>,
) {
    if let Some(factor) = T::Wide::factor(ranks) {
        return go::<T, _, N, TREE, _>(has, Share { factor }, pass);
    }
    match T::Wide::inverse(ranks) {
        Some(inverse) if T::FUSED => go::<T, _, N, TREE, _>(has, FusedAverage::<T>(inverse), pass),
        _ => go::<T, _, N, TREE, _>(has, Average { ranks }, pass),
    }
}

/// Sums and products.
fn sums<T: Number<Wide: Arithmetic>, const N: usize, const TREE: bool, I: Instructions>(
    has: I,
    pass: &Pass<'_>,
) {
    match pass.op {
        Op::PreMulSum => match pass.manner.scaled {
            // Another source is multiplied on each rank, so that what the compiler makes of the two additions is not the same: of two
            // NaNs another one would win.
            Some((source, scalar)) => {
                let scalar = element::<T>(scalar);
                has.walk::<T, _, N, TREE>(Canonical(Scaled { source, scalar }), pass);
            }
            None => has.walk::<T, _, N, TREE>(Canonical(Sum), pass),
        },
        Op::Sum | Op::Avg => go::<T, _, N, TREE, _>(has, Sum, pass),
        Op::Prod => go::<T, _, N, TREE, _>(has, Prod, pass),
        _ => unreachable!("{} sent elsewhere", pass.op),
    }
}

fn extremes<T: Number<Wide: Arithmetic>, const N: usize, const TREE: bool, I: Instructions>(
    has: I,
    pass: &Pass<'_>,
) {
    match pass.op {
        Op::Max => go::<T, _, N, TREE, _>(has, Max, pass),
        Op::Min => go::<T, _, N, TREE, _>(has, Min, pass),
        _ => unreachable!("{} sent elsewhere", pass.op),
    }
}

#[inline(always)]
fn go<
    T: Number<Wide: Arithmetic>,
    O: Operator<T::Wide>,
    const N: usize,
    const TREE: bool,
    I: Instructions,
>(
    has: I,
    operator: O,
    pass: &Pass<'_>,
) {
    if TREE {
        has.walk::<T, _, N, true>(Canonical(operator), pass);
    } else {
        has.walk::<T, _, N, false>(operator, pass);
    }
}

/// The element that lies at the lowest address of `bits`.
fn element<T: Number>(bits: u64) -> T {
    const { assert!(size_of::<T>() <= size_of::<u64>()) }
    // SAFETY: `bits` has as many bytes, just checked, and any bytes are an element.
    unsafe { (&raw const bits).cast::<T>().read_unaligned() }
}
