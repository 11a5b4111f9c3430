//! Algorithms that others wrote, to be proved.

pub(crate) mod msccl;
