//! The reduction operations.

use super::{DType, Error};
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
}

impl Op {
    /// Every operation, in the order of its number.
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
        usize::try_from(n)
            .ok()
            .and_then(|i| Op::ALL.get(i).copied())
            .ok_or_else(|| {
                Error::invalid(format!(
                    "reduction operation {n} does not exist: the operations are 0 (sum) to 7 (bitxor)"
                ))
            })
    }

    /// The operation's short name, as `ccl-perf -o` takes it.
    pub fn name(self) -> &'static str {
        ["sum", "prod", "max", "min", "avg", "bitand", "bitor", "bitxor"][self as usize]
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
