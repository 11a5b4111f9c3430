//! The element types, as numbers for the wire and as Rust types.

use super::{Error, F8E4M3, F8E5M2};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The type of one element. The numbers are those of the C ABI (`cclDataType_t`), NCCL's as far as it has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
#[allow(missing_docs)] // the names say it all
pub enum DType {
    Int8 = 0,
    Uint8 = 1,
    Int32 = 2,
    Uint32 = 3,
    Int64 = 4,
    Uint64 = 5,
    Float16 = 6,
    Float32 = 7,
    Float64 = 8,
    Bfloat16 = 9,
    Float8e4m3 = 10,
    Float8e5m2 = 11,
    Int16 = 12,
    Uint16 = 13,
}

impl DType {
    /// Every type, in the order of its number.
    pub const ALL: [DType; 14] = [
        DType::Int8,
        DType::Uint8,
        DType::Int32,
        DType::Uint32,
        DType::Int64,
        DType::Uint64,
        DType::Float16,
        DType::Float32,
        DType::Float64,
        DType::Bfloat16,
        DType::Float8e4m3,
        DType::Float8e5m2,
        DType::Int16,
        DType::Uint16,
    ];

    /// The type with the C ABI's number `n`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is none.
    pub fn from_number(n: i32) -> Result<DType, Error> {
        DType::of_number(n).ok_or_else(|| {
            Error::invalid(format!(
                "data type {n} does not exist: the types are 0 (int8) to 13 (uint16)"
            ))
        })
    }

    /// The same without words.
    pub(crate) fn of_number(n: i32) -> Option<DType> {
        DType::ALL.get(usize::try_from(n).ok()?).copied()
    }

    /// Bytes of one element: 1, 2, 4 or 8.
    pub const fn size(self) -> usize {
        match self {
            DType::Int8 | DType::Uint8 | DType::Float8e4m3 | DType::Float8e5m2 => 1,
            DType::Int16 | DType::Uint16 | DType::Float16 | DType::Bfloat16 => 2,
            DType::Int32 | DType::Uint32 | DType::Float32 => 4,
            DType::Int64 | DType::Uint64 | DType::Float64 => 8,
        }
    }

    /// Whether the type is an integer type.
    pub const fn is_integer(self) -> bool {
        !matches!(
            self,
            DType::Float16
                | DType::Float32
                | DType::Float64
                | DType::Bfloat16
                | DType::Float8e4m3
                | DType::Float8e5m2
        )
    }

    /// The unsigned type of as many bits, of an integer type; else the type.
    pub(crate) const fn unsigned(self) -> DType {
        match self {
            DType::Int8 => DType::Uint8,
            DType::Int16 => DType::Uint16,
            DType::Int32 => DType::Uint32,
            DType::Int64 => DType::Uint64,
            other => other,
        }
    }

    /// The type's short name, as `ccl-perf -d` takes it.
    pub fn name(self) -> &'static str {
        [
            "int8",
            "uint8",
            "int32",
            "uint32",
            "int64",
            "uint64",
            "float16",
            "float32",
            "float64",
            "bfloat16",
            "float8e4m3",
            "float8e5m2",
            "int16",
            "uint16",
        ][self as usize]
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type whose slices the collectives take: plain bytes, each pattern valid.
pub trait Element: Copy + Send + Sync + 'static + sealed::Sealed {
    /// The type's number for the wire and the kernels.
    const DTYPE: DType;
}

macro_rules! element {
    ($($rust:ty => $dtype:ident),* $(,)?) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const DTYPE: DType = DType::$dtype;
        }
        const _: () = assert!(size_of::<$rust>() == DType::$dtype.size());
    )*};
}

element! {
    i8 => Int8, u8 => Uint8, i16 => Int16, u16 => Uint16, i32 => Int32, u32 => Uint32, i64 => Int64, u64 => Uint64,
    half::f16 => Float16, half::bf16 => Bfloat16, f32 => Float32, f64 => Float64,
    F8E4M3 => Float8e4m3, F8E5M2 => Float8e5m2,
}
