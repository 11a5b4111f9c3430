//! Reduction kernels: element by element over [`Region`]s, in one pass over memory.
//!
//! `number` says how each element type is read, accumulated and rounded (`half` and `avx512` by special instructions, `order`
//! for max and min of small floats); `operator` says how two contributions become one and what is done at the end (`quotient`: averages); `walk` takes
//! them through memory; `kernels` compiles the combinations for several instruction sets and picks one at run time.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod half;
mod kernels;
mod number;
mod operator;
mod order;
mod quotient;
#[cfg(test)]
mod tests;
mod walk;

use crate::{
    mem::Region,
    sys::float_mode::usual,
    types::{DType, Op},
};
use kernels::{OfTwo, Pass};
use std::num::NonZero;

/// What a reduction does beside combining its sources.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Manner {
    /// Whether the sources of floats are combined by the tree that splits [a, b) at a plus the largest power of two below
    /// b − a, and NaN comes out as one and the same: then the bits of a result do not depend on where its parts were combined. Of integers no order changes them.
    pub(crate) tree: bool,
    /// Of a [`Op::PreMulSum`]: the source whose elements are multiplied as they are read, and rounded, and by what: the element that lies
    /// at the lowest address of these bytes.
    pub(crate) scaled: Option<(usize, u64)>,
}

/// [`reduce_as`] without anything beside.
pub(crate) fn reduce(op: Op, dtype: DType, finish: Option<usize>, sources: &[Region<'_>], dst: &Region<'_>) {
    reduce_as(op, dtype, finish, Manner::default(), sources, dst);
}

/// Reduces `sources` into `dst`, element by element, as `((s0 op s1) op s2) op …`, or as [`Manner::tree`] says.
///
/// 16- and 8-bit floats are accumulated in float32 over all sources and rounded once, to nearest, ties to even. Integer
/// sums and products wrap. How the program has this thread round changes nothing. NaN wins in max and min (which NaN comes out of an
/// operation is not specified), and +0 is larger than −0.
///
/// `finish` is `Some(ranks)` when the result holds the contributions of all `ranks` ranks: an average is divided then,
/// integers toward zero, 16- and 8-bit floats before they are rounded. It changes nothing for other operations. With
/// one source and nothing to finish or to multiply this is a copy.
///
/// All regions have the same length, at any address. `dst` may be one or several of the sources, exactly; any other
/// overlap gives undefined values (but is memory-safe). So does a peer that writes a source meanwhile.
///
/// # Panics
/// When there is no source, the lengths differ or are not whole elements, `op` is not defined for `dtype`, or `finish`
/// is `Some(0)`.
pub(crate) fn reduce_as(
    op: Op,
    dtype: DType,
    finish: Option<usize>,
    manner: Manner,
    sources: &[Region<'_>],
    dst: &Region<'_>,
) {
    assert!(op.accepts(dtype), "{op} of {dtype}");
    let finish = finish.map(|ranks| NonZero::new(ranks).expect("a reduction over no ranks"));
    // Sizes are powers of two: a division would be felt by short vectors.
    assert!(
        dst.len() & (dtype.size() - 1) == 0,
        "{} bytes are not whole elements of {dtype}",
        dst.len()
    );
    assert!(
        sources.iter().all(|source| source.len() == dst.len()),
        "a reduction of regions of different lengths"
    );
    let divides = op == Op::Avg && finish.is_some();
    match sources {
        [] => panic!("a reduction of nothing"),
        [only] if !divides && manner.scaled.is_none() => dst.copy_from(only),
        _ => {
            let pass = Pass {
                op,
                dtype,
                finish,
                manner,
                sources,
                dst,
            };
            usual(|| kernels::run(&pass));
        }
    }
}

/// A reduction of two short vectors for which it is known what to do: [`reduce_as`] finds that out each time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pair {
    sum: OfTwo,
    /// Whether it matters how the processor rounds.
    rounds: bool,
}

impl Pair {
    /// The reduction of vectors of `bytes` bytes that [`reduce_as`] does with these, if it is one of those.
    pub(crate) fn new(
        op: Op,
        dtype: DType,
        finish: Option<usize>,
        manner: Manner,
        bytes: usize,
    ) -> Option<Pair> {
        let is_short =
            bytes < kernels::BLOCK && bytes.is_multiple_of(dtype.size()) && manner.scaled.is_none();
        let sum = kernels::sum_of_two(op, dtype, finish.is_some(), manner.tree);
        let rounds = !dtype.is_integer();
        sum.filter(|_| is_short).map(|sum| Pair { sum, rounds })
    }

    /// Reduces `sources`, in their order, into `dst`, as [`reduce_as`] does.
    ///
    /// # Panics
    /// When the lengths differ or are not whole elements.
    #[inline]
    pub(crate) fn run(self, [a, b]: [Region<'_>; 2], dst: Region<'_>) {
        match self.rounds {
            true => usual(|| (self.sum)(a, b, dst)),
            false => (self.sum)(a, b, dst),
        }
    }
}
