//! The reduction operations.

use super::{DType, Element, Error};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How the contributions of the ranks to one element become one value.
///
/// The numbers are those of the C ABI (`cclRedOp_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Op {
    /// Addition. Integers wrap.
    Sum = 0,
    /// Multiplication. Integers wrap.
    Prod = 1,
    /// The largest; NaN wins over everything.
    Max = 2,
    /// The smallest; NaN wins over everything.
    Min = 3,
    /// The sum, divided once by the number of ranks. Integers are divided toward zero.
    Avg = 4,
    /// Bitwise and; integers only.
    BitAnd = 5,
    /// Bitwise or; integers only.
    BitOr = 6,
    /// Bitwise exclusive or; integers only.
    BitXor = 7,
    /// The sum of elements that each rank multiplies by a scalar of its own: how messages name a [`PreMulSum`]. Without the
    /// scalar no call takes it.
    PreMulSum = 8,
}

impl Op {
    /// Every operation that needs no scalar, in the order of its number.
    pub const ALL: [Op; 8] = [
        Op::Sum,
        Op::Prod,
        Op::Max,
        Op::Min,
        Op::Avg,
        Op::BitAnd,
        Op::BitOr,
        Op::BitXor,
    ];

    /// The operation with the C ABI's number `n`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is none.
    pub fn from_number(n: i32) -> Result<Op, Error> {
        Op::of_number(n).ok_or_else(|| {
            Error::invalid(format!(
                "reduction operation {n} does not exist: the operations are 0 (sum) to 7 (bitxor)"
            ))
        })
    }

    /// The same without words.
    pub(crate) fn of_number(n: i32) -> Option<Op> {
        Op::ALL.get(usize::try_from(n).ok()?).copied()
    }

    /// The operation's short name, as `ccl-perf -o` takes it.
    pub fn name(self) -> &'static str {
        [
            "sum",
            "prod",
            "max",
            "min",
            "avg",
            "bitand",
            "bitor",
            "bitxor",
            "premulsum",
        ][self as usize]
    }

    /// Whether the operation is defined for `dtype`: the bitwise ones are for integers only.
    pub fn accepts(self, dtype: DType) -> bool {
        !matches!(self, Op::BitAnd | Op::BitOr | Op::BitXor) || dtype.is_integer()
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The sum of elements that are multiplied by this scalar when they are read. Each rank may have another.
///
/// The products of 16- and 8-bit floats are rounded before they are added, as products of elements are: so all ranks have the same bits.
/// Integers wrap.
///
/// ```no_run
/// # fn weigh(comm: &ccl::Communicator, gradients: &mut [f32], weight: f32) -> ccl::Result<()> {
/// comm.all_reduce_in_place(gradients, ccl::PreMulSum(weight))
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreMulSum<T>(pub T);

/// How elements of type `T` are reduced: an [`Op`], or a [`PreMulSum`] with a scalar of that type.
pub trait Reduction<T: Element>: Copy + sealed::Sealed {
    /// The operation, and its scalar if it has one.
    #[doc(hidden)]
    fn parts(self) -> (Op, Option<T>);
}

impl<T: Element> Reduction<T> for Op {
    fn parts(self) -> (Op, Option<T>) {
        (self, None)
    }
}

impl<T: Element> Reduction<T> for PreMulSum<T> {
    fn parts(self) -> (Op, Option<T>) {
        (Op::PreMulSum, Some(self.0))
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Op {}
    impl<T> Sealed for super::PreMulSum<T> {}
}

/// A reduction of elements whose type is told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reducing {
    pub(crate) op: Op,
    /// What this rank's elements are multiplied by: an element as it lies in memory, at the lowest address.
    pub(crate) scalar: Option<u64>,
}

impl From<Op> for Reducing {
    fn from(op: Op) -> Self {
        Reducing { op, scalar: None }
    }
}
