//! Memory of GPUs.

#[cfg_attr(
    not(test),
    allow(dead_code, reason = "what launches them comes with the driver's wrappers")
)]
pub(crate) mod kernels;
