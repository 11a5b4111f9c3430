//! The combinations of type and operation, compiled for several instruction sets.

use super::Manner;
use super::number::{Arithmetic, Number};
use super::operator::{And, Average, Canonical, Max, Min, Operator, Or, Prod, Scaled, Sum, Xor};
use super::walk::walk;
use crate::mem::Region;
use crate::types::{DType, F8E4M3, F8E5M2, Op};
use half::{bf16, f16};
use multiversion::{multiversion, target::match_target};
use std::num::NonZero;

/// Bytes of accumulators of a block: eight AVX-512 registers, or all of AVX2's or NEON's.
const BLOCK: usize = 512;

/// Bytes of accumulators of a block of a short vector: two SSE2 registers.
const SHORT_BLOCK: usize = 32;

/// Elements of a block of a short vector whose elements are converted: an AVX-512 register of float32.
const FEW: usize = 16;

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
pub(super) fn run(pass: Pass<'_>) {
    let converts = !pass.dtype.is_integer() && pass.dtype.size() < size_of::<f32>();
    if pass.dst.len() < BLOCK && !converts {
        portable(pass);
    } else {
        fastest(pass);
    }
}

/// The type whose kernel does the same to the bits: it saves most of the integers' kernels.
fn same_bits(pass: &Pass<'_>) -> DType {
    match (pass.op, pass.dtype) {
        (Op::BitAnd | Op::BitOr | Op::BitXor, _) => DType::Uint8,
        (Op::Max | Op::Min, dtype) => dtype,
        (Op::Avg, dtype) if pass.finish.is_some() => dtype,
        (_, DType::Int8) => DType::Uint8,
        (_, DType::Int16) => DType::Uint16,
        (_, DType::Int32) => DType::Uint32,
        (_, DType::Int64) => DType::Uint64,
        (_, dtype) => dtype,
    }
}

macro_rules! kernels {
    ($($name:ident: $dtype:ident, $kind:ident, $t:ty;)*) => {
        /// The kernels without special instructions, in small blocks: for old processors, and for short vectors, which
        /// seldom fill a large block.
        pub(super) fn portable(pass: Pass<'_>) {
            match same_bits(&pass) {
                $(DType::$dtype => $kind::<$t, { block::<$t>(SHORT_BLOCK) }>(pass),)*
            }
        }

        /// The best kernels that the processor can run.
        fn fastest(pass: Pass<'_>) {
            match same_bits(&pass) {
                $(DType::$dtype => $name(pass),)*
            }
        }

        $(
            /// The first of these that the processor has is chosen, once. (`multiversion` asks for the AVX-512 of Ice
            /// Lake and later: what came before slows its clock down for it.) On aarch64 the baseline has NEON.
            #[multiversion(targets(
                "x86_64+avx2+avx512bw+avx512dq+avx512f+avx512vl+bmi2+f16c",
                "x86_64+avx2+bmi2+f16c",
            ))]
            fn $name(pass: Pass<'_>) {
                match_target! {
                    "x86_64+avx2+f16c" => $kind::<<$t as Number>::Avx2, { block::<$t>(BLOCK) }>(pass),
                    "x86_64" => portable(pass),
                    _ => $kind::<$t, { block::<$t>(BLOCK) }>(pass),
                }
            }
        )*
    };
}

kernels! {
    int8: Int8, signed, i8;
    int16: Int16, signed, i16;
    int32: Int32, signed, i32;
    int64: Int64, signed, i64;
    uint8: Uint8, bytes, u8;
    uint16: Uint16, integers, u16;
    uint32: Uint32, integers, u32;
    uint64: Uint64, integers, u64;
    float16: Float16, converted, f16;
    bfloat16: Bfloat16, converted, bf16;
    float32: Float32, floats, f32;
    float64: Float64, floats, f64;
    float8e4m3: Float8e4m3, converted, F8E4M3;
    float8e5m2: Float8e5m2, converted, F8E5M2;
}

/// Elements of `T` that fill `bytes` bytes of accumulators.
const fn block<T: Number>(bytes: usize) -> usize {
    bytes / size_of::<T::Wide>()
}

/// All operations, of bytes.
#[inline(always)]
fn bytes<T: Number<Wide = u8>, const N: usize>(pass: Pass<'_>) {
    match pass.op {
        Op::BitAnd => walk::<T, _, N, false>(And, pass.sources, pass.dst),
        Op::BitOr => walk::<T, _, N, false>(Or, pass.sources, pass.dst),
        Op::BitXor => walk::<T, _, N, false>(Xor, pass.sources, pass.dst),
        _ => integers::<T, N>(pass),
    }
}

/// All but the bitwise operations, of integers: in any order they come to the same.
#[inline(always)]
fn integers<T: Number<Wide: Arithmetic>, const N: usize>(pass: Pass<'_>) {
    arithmetic::<T, N, false>(pass);
}

/// The operations for which signed and unsigned integers differ.
#[inline(always)]
fn signed<T: Number<Wide: Arithmetic>, const N: usize>(pass: Pass<'_>) {
    ordered::<T, N, false>(pass);
}

/// The same operations, of floats, in the order that is asked for.
#[inline(always)]
fn floats<T: Number<Wide: Arithmetic>, const N: usize>(pass: Pass<'_>) {
    if pass.manner.tree {
        arithmetic::<T, N, true>(pass);
    } else {
        arithmetic::<T, N, false>(pass);
    }
}

/// The same for types that are converted to be accumulated: short vectors, too, gain from special instructions then.
#[inline(always)]
fn converted<T: Number<Wide: Arithmetic>, const N: usize>(pass: Pass<'_>) {
    if pass.dst.len() < size_of::<[T; N]>() {
        floats::<T, FEW>(pass);
    } else {
        floats::<T, N>(pass);
    }
}

/// All but the bitwise operations.
#[inline(always)]
fn arithmetic<T: Number<Wide: Arithmetic>, const N: usize, const TREE: bool>(pass: Pass<'_>) {
    match (pass.op, pass.finish) {
        (Op::PreMulSum, _) => match pass.manner.scaled {
            Some((source, scalar)) => {
                let scalar = element::<T>(scalar);
                go::<T, _, N, TREE>(Scaled::<T, TREE> { source, scalar }, pass);
            }
            None => go::<T, _, N, TREE>(Sum, pass),
        },
        (Op::Sum, _) | (Op::Avg, None) => go::<T, _, N, TREE>(Sum, pass),
        (Op::Prod, _) => go::<T, _, N, TREE>(Prod, pass),
        _ => ordered::<T, N, TREE>(pass),
    }
}

/// Those that [`same_bits`] leaves to each type.
#[inline(always)]
fn ordered<T: Number<Wide: Arithmetic>, const N: usize, const TREE: bool>(pass: Pass<'_>) {
    match (pass.op, pass.finish) {
        (Op::Max, _) => go::<T, _, N, TREE>(Max, pass),
        (Op::Min, _) => go::<T, _, N, TREE>(Min, pass),
        (Op::Avg, Some(ranks)) => go::<T, _, N, TREE>(Average { ranks }, pass),
        _ => unreachable!("`same_bits` sent {} elsewhere", pass.op),
    }
}

#[inline(always)]
fn go<T: Number<Wide: Arithmetic>, O: Operator<T::Wide>, const N: usize, const TREE: bool>(
    operator: O,
    pass: Pass<'_>,
) {
    if TREE {
        walk::<T, _, N, true>(Canonical(operator), pass.sources, pass.dst);
    } else {
        walk::<T, _, N, false>(operator, pass.sources, pass.dst);
    }
}

/// The element that lies at the lowest address of `bits`.
fn element<T: Number>(bits: u64) -> T {
    const { assert!(size_of::<T>() <= size_of::<u64>()) }
    // SAFETY: `bits` has as many bytes, just checked, and any bytes are an element.
    unsafe { (&raw const bits).cast::<T>().read_unaligned() }
}
