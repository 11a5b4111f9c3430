//! Data types, reduction operations, calls and errors: words that every floor shares.

mod call;
mod dtype;
mod error;
mod op;

pub use call::{Call, Collective};
pub use dtype::{DType, Element, F8E4M3, F8E5M2};
pub use error::{Cause, Error, Result};
pub use op::Op;
