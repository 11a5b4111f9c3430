//! Kernels: reductions and copies on GPUs, as images that were made beforehand.
//!
//! `kernels.cu` is their source, and `images/` what `scripts/kernels build` makes of it: machine code for each
//! architecture, and PTX, which a driver translates for GPUs that are newer. A kernel has a name by a rule
//! ([`Kernel`]) and is launched with one struct without pointers ([`args`]). None waits for anything, so that any
//! number of ranks may share a GPU.
//!
//! Results are those of `src/reduce`, bit by bit, in the order of the sources, or by its tree.

pub(crate) mod args;
pub(crate) mod image;
#[cfg(test)]
mod tests;

use crate::types::{DType, Op};

/// Threads of a block, whatever the kernel.
pub(crate) const THREADS: u32 = 512;

/// Blocks that a multiprocessor has at once: by their registers.
const BLOCKS_AT_ONCE: u32 = 2;

/// Blocks for the `items` of each of so many rows, of which a thread does one at a time, on a GPU of so many multiprocessors: a
/// thread for each, but in all rows together no more than run at once, as they go on with the next item.
pub(crate) fn blocks(items: u64, rows: u32, multiprocessors: u32) -> u32 {
    let most = multiprocessors.max(1) * BLOCKS_AT_ONCE / rows.max(1);
    items.div_ceil(u64::from(THREADS)).clamp(1, most.max(1).into()) as u32
}

/// A kernel that every image has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kernel {
    /// `ccl_reduce_<op>_<type>`: one source after the other.
    Reduce(Op, DType),
    /// `ccl_tree_<op>_<type>`: by the tree of reproducible results.
    Tree(Op, DType),
    /// `ccl_copy`.
    Copy,
    /// `ccl_arrive`: a call begins in which kernels find the buffers of all ranks.
    Arrive,
    /// `ccl_swap`: ranks exchange blocks.
    Swap,
}

impl Kernel {
    /// All of them: for what there is a kernel of its own. [`Kernel::of`] says which one others share.
    pub(crate) fn all() -> Vec<Kernel> {
        let mut all = vec![Kernel::Copy, Kernel::Swap, Kernel::Arrive];
        for op in [
            Op::Sum,
            Op::Prod,
            Op::Max,
            Op::Min,
            Op::BitAnd,
            Op::BitOr,
            Op::BitXor,
        ] {
            for dtype in DType::ALL.into_iter().filter(|dtype| op.accepts(*dtype)) {
                for kernel in [false, true].map(|tree| Kernel::of(op, dtype, tree)) {
                    if !all.contains(&kernel) {
                        all.push(kernel);
                    }
                }
            }
        }
        // Sums are divided, for averages, so that signed ones have a kernel of their own.
        all.extend(
            [DType::Int8, DType::Int16, DType::Int32, DType::Int64]
                .map(|dtype| Kernel::of(Op::Avg, dtype, false)),
        );
        all
    }

    /// The kernel for this operation, by the `tree` or not: averages and pre-multiplied sums are sums, what does the
    /// same to the bits of several types is done once, and only sums and products of floats depend on the order.
    pub(crate) fn of(op: Op, dtype: DType, tree: bool) -> Kernel {
        let (op, dtype) = match op {
            Op::BitAnd | Op::BitOr | Op::BitXor => (op, DType::Uint8),
            Op::Max | Op::Min => return Kernel::Reduce(op, dtype),
            Op::Prod => (op, dtype.unsigned()),
            Op::Avg => (Op::Sum, dtype),
            Op::Sum | Op::PreMulSum => (Op::Sum, dtype.unsigned()),
        };
        match tree && !dtype.is_integer() {
            true => Kernel::Tree(op, dtype),
            false => Kernel::Reduce(op, dtype),
        }
    }

    /// Its name in the images.
    pub(crate) fn name(self) -> String {
        match self {
            Kernel::Reduce(op, dtype) => format!("ccl_reduce_{op}_{dtype}"),
            Kernel::Tree(op, dtype) => format!("ccl_tree_{op}_{dtype}"),
            Kernel::Copy => "ccl_copy".to_owned(),
            Kernel::Swap => "ccl_swap".to_owned(),
            Kernel::Arrive => "ccl_arrive".to_owned(),
        }
    }
}
