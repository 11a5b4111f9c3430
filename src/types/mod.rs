//! Data types, reduction operations, calls and errors: words that every floor shares.

mod call;
mod dtype;
mod error;
pub(crate) mod float8;
mod op;

pub use call::{Call, Collective, Operation, Transfer};
pub(crate) use call::{MAX_RANKS, TRAIL, TRAIL_BITS, check_rank, check_ranks, count_of_all};
pub use dtype::{DType, Element};
pub use error::{Cause, Error, Result, Says, Whereabouts};
pub use float8::{F8E4M3, F8E5M2};
pub(crate) use op::Reducing;
pub use op::{Op, PreMulSum, Reduction};
