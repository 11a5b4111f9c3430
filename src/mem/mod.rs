//! Memory that peers or aliases may touch: never a Rust slice.

mod region;

pub(crate) use region::Region;
