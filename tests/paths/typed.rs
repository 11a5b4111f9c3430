//! The types of elements, made of small whole numbers.

use ccl::{Element, F8E4M3, F8E5M2};
use half::{bf16, f16};
use std::fmt::Debug;

pub(crate) trait Typed: Element + PartialEq + Debug {
    /// `number`, or what the type makes of one that it does not have.
    fn of(number: u8) -> Self;
}

macro_rules! typed {
    ($($t:ty: $of:expr),* $(,)?) => {$(
        impl Typed for $t {
            fn of(number: u8) -> Self {
                let of: fn(u8) -> Self = $of;
                of(number)
            }
        }
    )*};
}

typed! {
    i8: |x| x as i8, u8: |x| x, i16: i16::from, u16: u16::from, i32: i32::from, u32: u32::from, i64: i64::from,
    u64: u64::from, f32: f32::from, f64: f64::from, f16: |x| f16::from_f32(x.into()), bf16: |x| bf16::from_f32(x.into()),
    F8E4M3: |x| F8E4M3::from_f32(x.into()), F8E5M2: |x| F8E5M2::from_f32(x.into()),
}

/// `$body` where `$T` is the type of that number.
macro_rules! element {
    ($dtype:expr, $T:ident => $body:expr) => {
        element!($dtype, $T => $body;
            Int8 i8, Uint8 u8, Int16 i16, Uint16 u16, Int32 i32, Uint32 u32, Int64 i64, Uint64 u64, Float32 f32, Float64 f64,
            Float16 half::f16, Bfloat16 half::bf16, Float8e4m3 ccl::F8E4M3, Float8e5m2 ccl::F8E5M2)
    };
    ($dtype:expr, $T:ident => $body:expr; $($name:ident $t:ty),*) => {
        match $dtype {
            $(ccl::DType::$name => {
                type $T = $t;
                $body
            })*
        }
    };
}
pub(crate) use element;
