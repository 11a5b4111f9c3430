//! Memory that peers or aliases may touch: never a Rust slice.

mod copy;
mod hold;
mod region;
pub(crate) mod shared;

pub(crate) use copy::settle_streams;
pub(crate) use hold::{Hold, Lender, Owned, scope};
pub(crate) use region::Region;
pub use shared::SharedMemory;
