//! [`Buffers`]: a call's memory, checked before anything moves.

use crate::{
    mem::{Hold, Region},
    plan::{
        definition::Held,
        layout::{Blocks, Grains, Layout},
    },
    types::{Collective, DType, Error, Op, Reducing, Result},
};
use std::{cmp::Ordering, ops::Range, sync::Arc};

/// A call's memory on this rank: what it holds of the vector that is sent and of the one that is received.
#[derive(Debug)]
pub(super) struct Buffers<'m> {
    pub(super) input: Region<'m>,
    pub(super) output: Region<'m>,
    pub(super) places: Places,
}

/// Which part of a call's vector lies where in a rank's buffers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Places {
    /// All from these elements on in the input and in the output.
    From([usize; 2]),
    Given(Arc<Blocks>),
}

impl Places {
    /// The same as the executor wants it, with the vector cut as `layout` says.
    pub(super) fn grains(&self, layout: Layout) -> Grains<'_> {
        match self {
            &Places::From(begins) => Grains::Cut { layout, begins },
            Places::Given(blocks) => Grains::Given {
                blocks,
                grains: layout.grains,
            },
        }
    }

    /// The elements of the vector with which the input and the output begin, where its blocks are not given.
    pub(super) fn begins(&self) -> Option<[usize; 2]> {
        match self {
            &Places::From(begins) => Some(begins),
            Places::Given(_) => None,
        }
    }

    /// The blocks, where they are given.
    pub(super) fn given(&self) -> Option<&Blocks> {
        match self {
            Places::From(_) => None,
            Places::Given(blocks) => Some(blocks),
        }
    }
}

impl<'m> Buffers<'m> {
    /// Checks that buffers are as long as what this rank holds, and lie apart or in place. What it holds nothing in is not
    /// looked at.
    ///
    /// # Errors
    /// [`Error::Invalid`] that says what was wrong, what was wanted, and by how much.
    pub(super) fn new(
        collective: Collective,
        held: &Held,
        input: Option<Region<'m>>,
        output: Option<Region<'m>>,
        dtype: DType,
    ) -> Result<Self> {
        let input = checked(collective, "send buffer", input, &held.input, dtype)?;
        let output = checked(collective, "receive buffer", output, &held.output, dtype)?;
        let begins = [held.input.start, held.output.start];
        lie_right(&input, &output, begins.map(|begin| begin * dtype.size()))?;
        Ok(Buffers {
            input,
            output,
            places: Places::From(begins),
        })
    }
}

/// Refuses a reduction that is not for elements of this type.
pub(super) fn check_op(
    collective: Collective,
    dtype: DType,
    Reducing { op, scalar }: Reducing,
) -> Result<()> {
    if op == Op::PreMulSum && scalar.is_none() {
        return Err(Error::invalid(
            "premulsum is no operation without its scalar: pass ccl::PreMulSum(scalar)",
        ));
    }
    if !collective.reduces() || op.accepts(dtype) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{op} is for integers only: {dtype} elements cannot be combined by it"
    )))
}

/// Of memory for a call that goes on by itself what is used.
pub(super) fn keep(memory: [Option<Hold>; 2], is_used: [bool; 2]) -> [Hold; 2] {
    let [input, output] = memory;
    let kept = |hold: Option<Hold>, is_used: bool| hold.filter(|_| is_used).unwrap_or_else(Hold::empty);
    [kept(input, is_used[0]), kept(output, is_used[1])]
}

/// Refuses buffers that share memory, unless each part of the vector lies at the same place in both, which begin at these
/// bytes of it.
fn lie_right(input: &Region<'_>, output: &Region<'_>, [sent, received]: [usize; 2]) -> Result<()> {
    if !input.overlaps(output) {
        return Ok(());
    }
    let (input, output) = (input.as_ptr().addr(), output.as_ptr().addr());
    if input.wrapping_sub(sent) == output.wrapping_sub(received) {
        return Ok(());
    }
    let is = from(input, output);
    let wanted = from(sent, received);
    Err(Error::invalid(format!(
        "the send and receive buffers overlap: the receive buffer begins {is} the send buffer. In place it must begin \
         {wanted} it; otherwise the two must lie apart"
    )))
}

/// Where `there` is, seen from `here`.
fn from(here: usize, there: usize) -> String {
    match there.cmp(&here) {
        Ordering::Less => format!("{} bytes before", here - there),
        Ordering::Equal => "together with".to_owned(),
        Ordering::Greater => format!("{} bytes after", there - here),
    }
}

/// The buffer for the elements `held` of the vector.
fn checked<'m>(
    collective: Collective,
    what: &str,
    buffer: Option<Region<'m>>,
    held: &Range<usize>,
    dtype: DType,
) -> Result<Region<'m>> {
    // The vector's bytes are a number, see `definition::total`.
    let (count, bytes) = (held.len(), held.len() * dtype.size());
    match buffer {
        _ if bytes == 0 => Ok(Region::empty()),
        // Everybody else has both.
        None => Err(Error::invalid(format!(
            "the root of a {} needs a {what} of {count} elements of {dtype}",
            collective.name()
        ))),
        Some(buffer) if buffer.len() != bytes => Err(Error::invalid(format!(
            "the {what} has {} bytes: {count} elements of {dtype} need {bytes}",
            buffer.len()
        ))),
        Some(buffer) => Ok(buffer),
    }
}
